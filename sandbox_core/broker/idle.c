/*
 * Sessions that nobody uses.  A call that names the session touches it, as
 * does the end of a command.  When nothing has for as long as its manifest
 * says, its init is asked whether it is busy: only init knows of the uploads,
 * the streams and the commands of an earlier broker's time.  What it says is
 * hostile, and can do no more than let the session live until its time is
 * over.  Paused, a session is not idle.
 */

#include "broker.h"


#define SBX_IDLE_ANSWER   5000        /* ms that init has */


static void sbx_idle_tick(sbx_timer_t *timer);
static uint64_t sbx_idle_left(const sbx_session_t *s);


void
sbx_idle_open(sbx_session_t *s)
{
    s->idle.handler = sbx_idle_tick;
    s->idle.data = s;
}


void
sbx_idle_start(sbx_session_t *s)
{
    s->touched = sbx_now_us();

    if (s->info.idle_timeout != 0) {
        sbx_timer_set(&s->broker->loop, &s->idle, s->info.idle_timeout);
    }
}


/* The timer is left as it is: it looks when it goes off. */

void
sbx_idle_touch(sbx_session_t *s)
{
    s->touched = sbx_now_us();
    s->asked = 0;
}


static void
sbx_idle_tick(sbx_timer_t *timer)
{
    uint64_t        left;
    sbx_session_t  *s;

    s = timer->data;

    if (s->state != SBX_S_RUNNING) {
        return;
    }

    left = sbx_idle_left(s);

    if (s->info.status == SBX_STATUS_PAUSED || !sbx_list_empty(&s->running)
        || !sbx_list_empty(&s->tasks))
    {
        sbx_idle_touch(s);
        left = s->info.idle_timeout;
    }

    if (left != 0) {
        sbx_timer_set(&s->broker->loop, timer, left);
        return;
    }

    if (!s->asked) {
        /* one that has no room for the question has calls to serve */
        s->asked = sbx_command_send(s, SBX_OP_BUSY) == 0;
        sbx_timer_set(&s->broker->loop, timer, SBX_IDLE_ANSWER);
        return;
    }

    /* it has not answered in time */

    sbx_session_end(s, SBX_ENDED_IDLE, 0);
}


static uint64_t
sbx_idle_left(const sbx_session_t *s)
{
    uint64_t  idle;

    idle = (sbx_now_us() - s->touched) / 1000;

    return idle >= s->info.idle_timeout ? 0 : s->info.idle_timeout - idle;
}


void
sbx_idle_busy(sbx_session_t *s, uint32_t calls)
{
    if (!s->asked || s->state != SBX_S_RUNNING) {
        return;
    }

    s->asked = 0;

    if (calls == 0) {
        sbx_session_end(s, SBX_ENDED_IDLE, 0);
        return;
    }

    sbx_idle_start(s);
}


void
sbx_idle_close(sbx_session_t *s)
{
    sbx_timer_del(&s->broker->loop, &s->idle);
}
