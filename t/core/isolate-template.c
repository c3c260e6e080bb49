/*
 * A template with a root file system of its own: its owners become the
 * session's, its links lead nowhere outside, and it is never written to.
 */

#include "rootfs.h"


#define ID   "itest0000000000000000000003"


/* Its /tmp and etc/group are links that would lead out if they were
 * followed. */
static int
make_rootfs(void)
{
    if (make_base("small", "id ls cat touch stat wc") != 0) {
        return -1;
    }

    return shell("R=small/rootfs; mkdir -p $R/secret"
                 " && echo template > $R/etc/issue"
                 " && echo hidden > $R/secret/file"
                 " && chmod 600 $R/secret/file"
                 " && ln -s /etc $R/tmp"
                 " && ln -s /etc/passwd $R/etc/group");
}


static void
test_session(inside_session_t *s)
{
    inside_is(s, "cat /etc/issue; id -un", "template\nuser\n",
              "the template's files, and a user");
    inside_is(s, "stat -c '%u %g' /etc/issue /bin/busybox", "0 0\n0 0\n",
              "what is root's there is the session's root's");
    inside_ok(s, "test ! -e /usr/bin/python3 && test ! -e /usr/share",
              "nothing of the host's programs");
    inside_ok(s, "test ! -L /tmp && touch /tmp/x && ls /tmp/x",
              "a link in place of a mount point is not followed");
    inside_ok(s, "! cat /etc/group | grep -q postgres",
              "nor one in place of a generated file");
    inside_ok(s, "! cat /secret/file 2>/dev/null", "modes hold");
    inside_run_as(s, SBX_USER_ROOT, NULL, "cat /secret/file;"
                  " echo changed > /etc/issue; cat /etc/issue;"
                  " rm /secret/file && ls /secret | wc -l");
    is_str(inside_reply.out, "hidden\nchanged\n0\n",
           "the session's root may change its tree");
}


static int
template_test(void)
{
    sbx_error_t       e;
    sbx_limits_t      limits;
    inside_session_t  s;

    if (access("/bin/busybox", X_OK) == -1) {
        return skip_all("needs a static busybox");
    }

    inside_setup();
    inside_limits(&limits);

    if (!ok(make_rootfs() == 0, "a rootfs is made")) {
        inside_done();
        return done_testing();
    }

    if (inside_launch(&s, ID, &limits, "small", &e) == -1) {
        ok(e.code == SBX_E_TEMPLATE
           && strstr(e.text, "idmapped") != NULL,
           "a file system that cannot be idmapped is refused: %s", e.text);
        ok(inside_end(&s) == 0, "and nothing is left");
        inside_done();
        return done_testing();
    }

    ok(1, "a session starts from it");
    test_session(&s);
    ok(inside_end(&s) == 0, "nothing is left of the session");
    ok(shell("grep -q template small/rootfs/etc/issue"
             " && test -e small/rootfs/secret/file") == 0,
       "the template is as it was");
    inside_done();

    return done_testing();
}


int
main(int argc, char **argv)
{
    (void) argc;

    return inside_test(argv, template_test);
}
