/*
 * Code: runs, results, output, contexts, and the order of all of them.
 */

#include "code_test.h"


static void
test_run(void)
{
    code("show(6 * 7)");
    ok(a.ended == SBX_F_RAN && a.accepted == 1, "code is run");
    is_str(a.results, "main{ text/plain=42}", "and its result told");
    is_str(a.id, "python", "in the default context of its language");
    is_str(a.cwd, "/home/user", "which is in the workspace");
    ok(a.ran.exit_code == 0 && a.ran.reason == SBX_REASON_EXITED
       && a.ran.flags == 0 && a.ran.execution == 1, "it has ended by itself");
    ok(a.ran.started_us != 0, "and says how long the start has taken");
}


int
main(void)
{
    size_t  used = 0;

    if (geteuid() != 0) {
        return skip_all("root is needed for namespaces");
    }

    if (init_program() == NULL) {
        return skip_all("sandbox-init has not been built");
    }

    init_defaults();
    init_config.capabilities |= SBX_CAP_CODE;
    code_add(&used, "python", "command /usr/bin/python3\ncommand -S\n"
             "command /tmp/kernel.py\ngrace 1\nenvironment OWN=1\n");

    code_start();
    test_run();
    ok(init_stop(&s), "the session ends");

    return done_testing();
}
