/*
 * What the broker tells a session's init of its own accord.  What its socket
 * does not take is told again by the session's timer "queue".
 *
 * Whoever watches init's end of the socket is woken in the time of the one who
 * uses ours, the broker's.  Nobody has that end but an init that was taken
 * over, which may watch it some hundred thousand times.  So the processor time
 * of what is done with the socket is looked at, and an init whose socket costs
 * too much, by a trial (see trial.h), ends its session as one that sends
 * nonsense does.
 */

#include "broker.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>


#define SBX_COMMAND_AGAIN  20        /* ms */
#define SBX_CONTROL_SLOW   5000      /* us of processor time: of a call */
#define SBX_CONTROL_CALLS  3         /* that were so slow, for a trial */
#define SBX_CONTROL_WINDOW 10000000  /* us: within it */


static void sbx_command_cost(sbx_session_t *s, uint64_t began);
static int sbx_command_slow(sbx_session_t *s);


void
sbx_command_costs(sbx_broker_t *b)
{
    b->probe.clock = sbx_trial_clock;
    sbx_trial_probe_open(&b->probe, 0);
}


/* A task of the broker's own, with nothing to answer on. */

int
sbx_command_send(sbx_session_t *s, sbx_op_t op)
{
    return sbx_command_send_with(s, op, 0, -1);
}


int
sbx_command_send_with(sbx_session_t *s, sbx_op_t op, uint32_t token, int fd)
{
    sbx_task_t  task;

    if (s->control == -1) {
        return -1;
    }

    memset(&task, 0, sizeof(sbx_task_t));
    task.magic = SBX_WIRE_MAGIC;
    task.version = SBX_WIRE_VERSION;
    task.op = (uint16_t) op;
    task.token = token;

    return sbx_command_socket_send(s, &task, &fd, fd != -1) == -1 ? -1 : 0;
}


ssize_t
sbx_command_socket_send(sbx_session_t *s, const sbx_task_t *task,
    const int *fds, unsigned nfds)
{
    ssize_t   n;
    uint64_t  began;

    if (s->costly) {
        /* it ends in a moment */
        errno = EAGAIN;
        return -1;
    }

    began = sbx_trial_clock(NULL);
    n = sbx_wire_send(s->control, task, sizeof(sbx_task_t), fds, nfds,
                      MSG_DONTWAIT);
    sbx_command_cost(s, began);

    return n;
}


/* What is taken makes room, which whoever watches is woken for too. */

ssize_t
sbx_command_socket_recv(sbx_session_t *s, sbx_record_t *record, int *fds,
    unsigned *nfds)
{
    ssize_t   n;
    uint64_t  began;

    if (s->costly) {
        *nfds = 0;
        errno = EAGAIN;
        return -1;
    }

    began = sbx_trial_clock(NULL);
    n = sbx_wire_recv_all(s->control, record, sizeof(sbx_record_t), fds, nfds,
                          MSG_DONTWAIT);
    sbx_command_cost(s, began);

    return n;
}


static void
sbx_command_cost(sbx_session_t *s, uint64_t began)
{
    int       err, slow, costly;
    uint64_t  took;

    err = errno;
    took = sbx_trial_clock(NULL) - began;
    slow = took >= SBX_CONTROL_SLOW;
    costly = 0;

    if (s->trial.on) {
        costly = sbx_trial_call(&s->trial, &s->broker->probe, took, slow,
                                SBX_CONTROL_SLOW)
                 == SBX_TRIAL_IS_GUILTY;

    } else if (slow && sbx_command_slow(s) >= SBX_CONTROL_CALLS) {
        s->slow = 0;
        sbx_trial_begin(&s->trial);
    }

    /* later it is closed */

    if (costly && s->state < SBX_S_DYING) {
        s->costly = 1;
        sbx_timer_set(&s->broker->loop, &s->queue, 0);
    }

    errno = err;
}


/* One more: how many there were of late. */

static int
sbx_command_slow(sbx_session_t *s)
{
    uint64_t  now;

    now = sbx_now_us();

    if (s->slow == 0 || now - s->slow_since > SBX_CONTROL_WINDOW) {
        s->slow = 0;
        s->slow_since = now;
    }

    s->slow++;

    return (int) s->slow;
}


/* Init's clocks would stand still for ever, or never. */

void
sbx_command_tell(sbx_session_t *s, sbx_op_t op)
{
    s->untold = 0;

    if (sbx_command_send(s, op) == 0 || s->control == -1) {
        return;
    }

    s->untold = op;
    sbx_command_retry(s);
}


void
sbx_command_retry(sbx_session_t *s)
{
    if (!s->queue.set) {
        sbx_timer_set(&s->broker->loop, &s->queue, SBX_COMMAND_AGAIN);
    }
}
