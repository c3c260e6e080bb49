/*
 * Who goes first.  The kernel's fair share makes what has just begun wait
 * behind every neighbour's time slice, several times in a short command.  A
 * session that begins something is therefore put ahead, by a larger weight of
 * its group, for a short window at a time and while it has credit: what it
 * uses while it is ahead is charged, and credit comes back at half a
 * processor.  Who computes on and on is soon behind, and has its fair share
 * there; a session that is ahead all the time has half a processor of it.
 */

#include "broker.h"


#define SBX_CREDIT_WINDOW   100           /* ms */
#define SBX_CREDIT_MAX      250000        /* us of processor time */
#define SBX_CREDIT_FIRST    25000         /* of a new session: making one after
                                             the other must not pay */
#define SBX_CREDIT_LEAST    10000         /* to be put ahead */
#define SBX_CREDIT_RATE     2             /* one of so many us comes back */


static void sbx_credit_gain(sbx_session_t *s, uint64_t now);
static void sbx_credit_stop(sbx_session_t *s);


void
sbx_credit_open(sbx_session_t *s)
{
    s->credit = SBX_CREDIT_FIRST;
    s->credit_at = sbx_now_us();
    s->credit_timer.handler = sbx_credit_tick;
    s->credit_timer.data = s;
}


void
sbx_credit_begin(sbx_session_t *s)
{
    if (s->cgroup == NULL) {
        return;
    }

    if (s->ahead) {
        s->credit_again = 1;
        return;
    }

    sbx_credit_gain(s, sbx_now_us());

    if (s->credit < SBX_CREDIT_LEAST
        || sbx_cgroup_session_cpu(s->cgroup, &s->credit_cpu) != 0)
    {
        return;
    }

    sbx_timer_set(&s->broker->loop, &s->credit_timer, SBX_CREDIT_WINDOW);
    s->ahead = 1;
    s->credit_again = 0;

    if (sbx_cgroup_session_ahead(s->cgroup, 1) != 0) {
        sbx_credit_stop(s);
    }
}


void
sbx_credit_tick(sbx_timer_t *timer)
{
    uint64_t        cpu;
    sbx_session_t  *s;

    s = timer->data;

    if (sbx_cgroup_session_cpu(s->cgroup, &cpu) != 0) {
        sbx_credit_stop(s);
        return;
    }

    sbx_credit_gain(s, sbx_now_us());
    s->credit -= (int64_t) (cpu - s->credit_cpu);
    s->credit_cpu = cpu;

    if (s->credit <= 0 || !s->credit_again) {
        sbx_credit_stop(s);

    } else {
        sbx_timer_set(&s->broker->loop, timer, SBX_CREDIT_WINDOW);
    }

    s->credit_again = 0;
}


void
sbx_credit_close(sbx_session_t *s)
{
    sbx_timer_del(&s->broker->loop, &s->credit_timer);
    s->ahead = 0;
}


static void
sbx_credit_gain(sbx_session_t *s, uint64_t now)
{
    uint64_t  gain;

    gain = (now - s->credit_at) / SBX_CREDIT_RATE;
    s->credit_at = now;

    if (gain > SBX_CREDIT_MAX
        || s->credit + (int64_t) gain > SBX_CREDIT_MAX)
    {
        s->credit = SBX_CREDIT_MAX;
        return;
    }

    s->credit += (int64_t) gain;
}


static void
sbx_credit_stop(sbx_session_t *s)
{
    sbx_credit_close(s);
    (void) sbx_cgroup_session_ahead(s->cgroup, 0);
}
