/*
 * What commands are told of the session's network: as it is when they begin.
 */

#include "init_test.h"


static init_session_t  s;
static init_result_t   r;


static void
tell(uint32_t network)
{
    sbx_task_t  task;

    memset(&task, 0, sizeof(task));
    task.token = network;
    init_task(&s, SBX_OP_NETWORK, &task, -1, NULL, 0);
}


static const char *
told(void)
{
    init_shell(&s, "env | grep -E '^(PIP_RETRIES|npm_config_fetch_retries)'"
                   " | sort"
                   " | tr '\\n' ' '", &r);

    return init_text(r.out);
}


int
main(void)
{
    char  offline[] = "PIP_RETRIES=1 npm_config_fetch_retries=0 ";
    char  online[] = "PIP_RETRIES=3 ";

    if (geteuid() != 0) {
        return skip_all("root is needed for namespaces");
    }

    if (init_program() == NULL) {
        return skip_all("sandbox-init has not been built");
    }

    init_defaults();
    init_start(&s);

    is_str(told(), offline, "without a network installers give up at once");

    tell(SBX_NETWORK_ALL);
    is_str(told(), online, "with one they try again");

    tell(SBX_NETWORK_LISTS + 1);
    is_str(told(), online, "what is no network changes nothing");

    tell(SBX_NETWORK_NONE);
    is_str(told(), offline, "it may be taken away");

    tell(SBX_NETWORK_LISTS);
    is_str(told(), online, "and given again");

    init_shell(&s, "echo $PIP_BREAK_SYSTEM_PACKAGES", &r);
    is_str(init_text(r.out), "1\n", "what all need stays");

    ok(init_stop(&s), "the session ends");

    return done_testing();
}
