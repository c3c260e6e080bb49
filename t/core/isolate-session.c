/* What a session is made of, seen from inside and from outside. */

#include "inside.h"


static int
inside_builtin(const char *name, const char *argument)
{
    (void) name;
    (void) argument;

    return 1;
}


static int
session_test(void)
{
    sbx_error_t       e;
    sbx_limits_t      limits;
    inside_session_t  s;

    inside_setup();
    inside_limits(&limits);

    if (!ok(inside_launch(&s, "itest0000000000000000000001", &limits, "base",
                          &e)
            == 0,
            "a session starts"))
    {
        printf("# %s: %s\n", e.text, strerror(e.err));
        (void) inside_end(&s);
        inside_done();
        return done_testing();
    }

    inside_is(&s, "id -u; id -g; whoami; pwd; umask", "1000\n1000\nuser\n/home/user\n0022\n", "ids");
    inside_run(&s, getenv("INSIDE_CMD") ? getenv("INSIDE_CMD") : "cat /proc/self/mountinfo; ls -la / /dev /etc; df; cat /proc/self/cgroup");
    printf("%s\n", inside_reply.out);

    ok(inside_end(&s) == 0, "nothing is left of the session");
    inside_done();

    return done_testing();
}


int
main(int argc, char **argv)
{
    (void) argc;

    return inside_test(argv, session_test);
}
