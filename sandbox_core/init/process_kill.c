/*
 * Calls that end processes.  A signal that can be caught is sent, and that is
 * all; what has been killed is waited for, so that whoever is told of it does
 * not find it alive.
 */

#include "init_process.h"

#include <errno.h>
#include <signal.h>


#define SBX_INIT_CALL_KILLED   2000000   /* us for one to die */
#define SBX_INIT_CALL_OUTPUT   200000    /* us for its last output */
#define SBX_INIT_CALL_LOOK     2000      /* us between looks */


static int sbx_init_call_killing(const sbx_init_call_t *call, uint64_t now);
static int sbx_init_call_cancelling(void);


int
sbx_init_process_signal(sbx_init_command_t *c, const sbx_f_process_t *ask)
{
    if (ask->flags & SBX_PROCESS_FOREGROUND) {
        return sbx_init_tty_signal(c, ask->signal);
    }

    return sbx_init_command_signal(c, ask->signal);
}


/* Who is told that a process has been killed is not to find it alive. */

void
sbx_init_call_signal(sbx_init_call_t *call)
{
    int          rc;
    sbx_error_t  e;

    call->seq = call->process != NULL ? call->process->seq : 0;

    if (call->process != NULL) {
        rc = sbx_init_process_signal(call->process->command, &call->ask);

    } else {
        rc = sbx_init_orphan_signal(call->ask.pid, call->ask.signal);
    }

    call->process = NULL;

    if (rc == -1) {
        (void) sbx_error(&e, errno, errno == ESRCH ? SBX_E_PROCESS
                                                   : SBX_E_INTERNAL,
                         "process %d takes no signal", call->ask.pid);
        sbx_init_call_error(call, &e);
        return;
    }

    if (call->ask.signal != SIGKILL) {
        sbx_init_call_end(call, 0);
        return;
    }

    call->state = SBX_INIT_CALL_KILLS;
    call->give_up = sbx_now_us() + SBX_INIT_CALL_KILLED;
    sbx_init_loop_wake(0);
}


/* Its last output may wait for a slow reader, which is nobody's business
 * here. */

static int
sbx_init_call_killing(const sbx_init_call_t *call, uint64_t now)
{
    sbx_init_process_t  *process;

    if (now >= call->give_up) {
        return 0;
    }

    if (call->seq == 0) {
        return kill(call->ask.pid, 0) == 0;
    }

    process = sbx_init_process_find(call->ask.pid);

    return process != NULL && process->seq == call->seq
           && process->command != NULL
           && (!process->command->reaped
               || now < process->command->end + SBX_INIT_CALL_OUTPUT);
}


/* The answer waits for those that die. */

void
sbx_init_call_cancel(sbx_init_call_t *call)
{
    sbx_init_command_t  *c;

    sbx_init_call_send(call, SBX_F_ACCEPTED, NULL, 0);

    for (c = sbx_init_command_each(NULL);
         c != NULL;
         c = sbx_init_command_each(c))
    {
        if (!c->started || c->reaped || c->killed || c->code != NULL) {
            continue;
        }

        call->count++;
        sbx_init_command_kill(c, SBX_REASON_CANCELLED);
    }

    call->count += sbx_init_code_cancel();
    sbx_init_left_cancel();
    sbx_init_hold_drop(NULL);

    call->state = SBX_INIT_CALL_CANCELS;
    call->give_up = sbx_now_us() + SBX_INIT_LINGER;
    sbx_init_loop_wake(0);
}


static int
sbx_init_call_cancelling(void)
{
    sbx_init_command_t  *c;

    for (c = sbx_init_command_each(NULL);
         c != NULL;
         c = sbx_init_command_each(c))
    {
        if (c->state >= SBX_INIT_LAUNCHING && c->state <= SBX_INIT_OVER
            && c->killed && c->reason == SBX_REASON_CANCELLED && !c->settled)
        {
            return 1;
        }
    }

    return sbx_init_left_cancelling() || sbx_init_code_cancelling();
}


void
sbx_init_kill_tick(uint64_t now)
{
    int               waits, cancelling;
    sbx_init_call_t  *call;

    cancelling = -1;

    for (call = sbx_init_call_each(NULL);
         call != NULL;
         call = sbx_init_call_each(call))
    {
        switch (call->state) {

        case SBX_INIT_CALL_CANCELS:
            if (cancelling == -1) {
                cancelling = sbx_init_call_cancelling();
            }

            waits = cancelling && now < call->give_up;
            break;

        case SBX_INIT_CALL_KILLS:
            waits = sbx_init_call_killing(call, now);
            break;

        default:
            continue;
        }

        if (waits) {
            sbx_init_loop_wake(now + SBX_INIT_CALL_LOOK);
            continue;
        }

        sbx_init_call_end(call, call->count);
        sbx_init_call_interest(call);
    }
}
