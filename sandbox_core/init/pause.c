/*
 * A paused session.  The broker freezes the group of everything but init, and
 * tells it: clocks of commands stand still, and whoever waits for a command's
 * answer hears every few seconds that there is one to come.
 */

#include "init.h"
#include "init_process.h"


#define SBX_INIT_ALIVE   5000000     /* us between signs of life */


static uint64_t  sbx_init_frozen_at;     /* us; 0: not frozen */
static uint64_t  sbx_init_alive_at;


void
sbx_init_pause(uint64_t now)
{
    if (sbx_init_frozen_at == 0) {
        sbx_init_frozen_at = now;
        sbx_init_alive_at = now;
        sbx_init_log_paused(1);
        sbx_init_loop_wake(now);
    }
}


/* One that began meanwhile has not waited for as long. */

void
sbx_init_resume(uint64_t now)
{
    uint64_t             since;
    sbx_init_command_t  *c;

    if (sbx_init_frozen_at == 0) {
        return;
    }

    for (c = sbx_init_command_each(NULL);
         c != NULL;
         c = sbx_init_command_each(c))
    {
        if (c->state != SBX_INIT_LAUNCHING && c->state != SBX_INIT_RUNNING) {
            continue;
        }

        since = c->start > sbx_init_frozen_at ? c->start
                                              : sbx_init_frozen_at;
        c->start += now - since;

        if (c->deadline != SBX_INIT_NONE) {
            c->deadline += now - since;
        }
    }

    sbx_init_hold_thaw(sbx_init_frozen_at, now);
    sbx_init_code_thaw(sbx_init_frozen_at, now);
    sbx_init_frozen_at = 0;
    sbx_init_log_paused(0);
    sbx_init_loop_wake(now);
}


int
sbx_init_paused(void)
{
    return sbx_init_frozen_at != 0;
}


unsigned
sbx_init_busy(void)
{
    unsigned          n;
    sbx_init_call_t  *call;

    n = sbx_init_command_running() + sbx_init_file_calls()
        + sbx_init_port_calls() + sbx_init_code_busy();

    for (call = sbx_init_call_each(NULL);
         call != NULL;
         call = sbx_init_call_each(call))
    {
        n++;
    }

    return n;
}


void
sbx_init_pause_tick(uint64_t now)
{
    sbx_init_command_t  *c;

    if (sbx_init_frozen_at == 0) {
        return;
    }

    if (now >= sbx_init_alive_at) {
        sbx_init_alive_at = now + SBX_INIT_ALIVE;

        for (c = sbx_init_command_each(NULL);
             c != NULL;
             c = sbx_init_command_each(c))
        {
            /* one that does not read hears enough */

            if (c->accepted && !c->answered && c->out == NULL) {
                sbx_init_exec_send(c, SBX_F_ACCEPTED, NULL, 0);
            }
        }

        sbx_init_code_alive();
    }

    sbx_init_loop_wake(sbx_init_alive_at);
}
