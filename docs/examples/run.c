/*
 * Runs the rest of the command line in a sandbox with a private workspace and
 * 256 MB of memory, and tells how it ended.
 *
 *   cc run.c $(pkg-config --cflags --libs sandbox-session) -o run
 *   ./run python3 -c 'print(6*7)'
 */

#include <sandbox_session.h>

#include <stdio.h>
#include <stdlib.h>


int
main(int argc, char **argv)
{
    sbx_error_t             e;
    sbx_sandbox_t          *sb;
    sbx_sandbox_result_t    r;
    sbx_sandbox_options_t   o;
    sbx_sandbox_command_t   c;

    (void) argc;

    sbx_sandbox_options_init(&o);
    o.limits.memory = 256 << 20;
    o.require_isolation = 1;
    o.helper = getenv("SANDBOX_SESSION");

    if (sbx_sandbox_open(&o, &sb, &e) == -1) {
        (void) fprintf(stderr, "%s\n", e.text);
        return 1;
    }

    sbx_sandbox_command_init(&c);
    c.argv = (const char *const *) (argv + 1);
    c.timeout = 30000;

    if (sbx_sandbox_run(sb, &c, &r, &e) == -1) {
        (void) fprintf(stderr, "%s\n", e.text);
        sbx_sandbox_free(sb);
        return 1;
    }

    (void) fwrite(r.out.data, 1, r.out.size, stdout);
    (void) printf("[%s %d, memory kept by %s]\n", r.reason, r.exit_code,
                  r.enforcement.memory);

    sbx_sandbox_result_free(&r);
    sbx_sandbox_free(sb);

    return 0;
}
