/*
 * What the broker tells a session's init of its own accord.  What its socket
 * does not take is told again by the session's timer "queue".
 *
 * Whoever watches init's end of the socket is woken in the time of the one who
 * uses ours, the broker's.  Nobody has that end but an init that was taken
 * over, which may watch it some hundred thousand times.  So the processor time
 * of what is done with the socket is looked at, and an init whose socket costs
 * too much ends its session as one that sends nonsense does.
 *
 * A virtual machine that is not run for a while looks like a slow call, and so
 * does an interrupt that takes long.  These come to any call, and to few of
 * those of a session.  So three slow calls are nothing by themselves: they
 * have to be half of all calls since the first one, or to take a good part of
 * the broker's time, as they do of an init that lets others be quick.
 */

#include "broker.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>


#define SBX_COMMAND_AGAIN  20        /* ms */
#define SBX_CONTROL_SLOW   5000      /* us of processor time: of a call */
#define SBX_CONTROL_CALLS  3         /* that were so slow */
#define SBX_CONTROL_PART   2         /* and that part of all, or */
#define SBX_CONTROL_TIME   300000    /* us of them together */
#define SBX_CONTROL_WINDOW 10000000  /* us: within it */


static uint64_t sbx_command_clock(void);
static void sbx_command_cost(sbx_session_t *s, uint64_t began, ssize_t n);


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

    began = sbx_command_clock();
    n = sbx_wire_send(s->control, task, sizeof(sbx_task_t), fds, nfds,
                      MSG_DONTWAIT);
    sbx_command_cost(s, began, n);

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

    began = sbx_command_clock();
    n = sbx_wire_recv_all(s->control, record, sizeof(sbx_record_t), fds, nfds,
                          MSG_DONTWAIT);
    sbx_command_cost(s, began, n);

    return n;
}


/* us of this thread. */

static uint64_t
sbx_command_clock(void)
{
    struct timespec  ts;

    (void) clock_gettime(CLOCK_THREAD_CPUTIME_ID, &ts);

    return (uint64_t) ts.tv_sec * 1000000 + (uint64_t) ts.tv_nsec / 1000;
}


/* n: what has come of the call; one that moved nothing has woken nobody. */

static void
sbx_command_cost(sbx_session_t *s, uint64_t began, ssize_t n)
{
    int          err;
    uint64_t     now, took;
    sbx_cost_t  *cost;

    err = errno;
    cost = &s->cost;
    took = sbx_command_clock() - began;

    if (took < SBX_CONTROL_SLOW) {
        cost->calls += n > 0;
        errno = err;
        return;
    }

    now = sbx_now_us();

    if (cost->slow == 0 || now - cost->since > SBX_CONTROL_WINDOW) {
        memset(cost, 0, sizeof(sbx_cost_t));
        cost->since = now;
    }

    cost->calls++;
    cost->slow++;
    cost->time += took;

    if (cost->slow >= SBX_CONTROL_CALLS
        && (cost->slow * SBX_CONTROL_PART >= cost->calls
            || cost->time >= SBX_CONTROL_TIME)
        && s->state < SBX_S_DYING)
    {
        /* later it is closed */
        s->costly = 1;
        sbx_timer_set(&s->broker->loop, &s->queue, 0);
    }

    errno = err;
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
