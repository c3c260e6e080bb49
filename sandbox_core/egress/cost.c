/*
 * What it costs to serve a session.
 *
 * What is sent to a session arrives there within the call that sends it, and
 * whoever watches the receiving socket is woken then, one by one.  A session
 * may watch a socket as often as its memory lets it, so that a single byte for
 * it costs tens of milliseconds, which are those of all sessions.  No packet
 * has to be sent to a session, so one that costs so much is left alone.
 *
 * The clock of a call is cheap and tells too much: this process may have
 * waited for a processor meanwhile.  The kernel tells how long it did, which
 * is looked at only about a session that has had a slow call of late.  The
 * time of the thread itself would not do: kernels that account interrupts
 * apart leave out just what is looked for.
 *
 * A virtual machine that is not run for a while looks like a slow call, and so
 * does one during which interrupts are served.  So a few of them, and a fair
 * part of all that the session costs, only begin a trial: see trial.h.
 */

#include "egress.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>


#define SBX_EG_COST_SLOW     200       /* us of a call, beside its bytes */
#define SBX_EG_COST_BYTES    250       /* of them in a us, at least */
#define SBX_EG_COST_WINDOW   10000000  /* us */
#define SBX_EG_COST_CALLS    3         /* that are slow, within it, for a
                                          trial */
#define SBX_EG_COST_EXCESS   10000     /* us of them together */
#define SBX_EG_COST_PART     8         /* and that part of what all cost */
#define SBX_EG_COST_FIRST    2000      /* ms to be left alone for */
#define SBX_EG_COST_LEVELS   10        /* doubled so often */
#define SBX_EG_COST_MOST     600000
#define SBX_EG_COST_FORGET   600000000 /* us after the end of it, a step */


static uint64_t sbx_eg_cost_waited(const sbx_egress_t *eg);
static uint64_t sbx_eg_cost_clock(void *data);
static void sbx_eg_cost_judge(sbx_eg_session_t *s, uint64_t took, int slow);


void
sbx_eg_cost_open(sbx_egress_t *eg)
{
    eg->waited = open("/proc/thread-self/schedstat", O_RDONLY|O_CLOEXEC);
    eg->probe.clock = sbx_eg_cost_clock;
    eg->probe.data = eg;
    sbx_trial_probe_open(&eg->probe, 1);
}


void
sbx_eg_cost_close(sbx_egress_t *eg)
{
    if (eg->waited > 0) {
        (void) close(eg->waited);
    }

    eg->waited = -1;
    sbx_trial_probe_close(&eg->probe);
}


/* us for a processor, ever; without such a file, without those of the thread
 * itself. */

static uint64_t
sbx_eg_cost_waited(const sbx_egress_t *eg)
{
    char     buf[96], *end;
    ssize_t  n;

    n = eg->waited > 0 ? pread(eg->waited, buf, sizeof(buf) - 1, 0) : -1;

    if (n > 0) {
        buf[n] = '\0';
        (void) strtoull(buf, &end, 10);
        return strtoull(end, NULL, 10) / 1000;
    }

    return sbx_now_us() - sbx_trial_clock(NULL);
}


/* us, but for those of a wait for a processor. */

static uint64_t
sbx_eg_cost_clock(void *data)
{
    uint64_t             waited;
    const sbx_egress_t  *eg;

    eg = data;
    waited = sbx_eg_cost_waited(eg);

    return sbx_now_us() - waited;
}


sbx_eg_span_t
sbx_eg_cost_begin(const sbx_eg_session_t *s)
{
    sbx_eg_span_t  span;

    span.waited = 0;
    span.at = sbx_now_us();
    span.exact = s->cost.exact_until > span.at;

    if (span.exact) {
        span.waited = sbx_eg_cost_waited(s->egress);
        span.at = sbx_now_us();
    }

    return span;
}


void
sbx_eg_cost_end(sbx_eg_session_t *s, const sbx_eg_span_t *span, ssize_t bytes)
{
    int             err, slow;
    uint64_t        now, own, took, waited;
    sbx_eg_cost_t  *cost;

    err = errno;
    cost = &s->cost;
    now = sbx_now_us();
    took = now - span->at;
    own = bytes > 0 ? (uint64_t) bytes / SBX_EG_COST_BYTES : 0;
    slow = took > own + SBX_EG_COST_SLOW && !cost->cut;

    if (slow) {
        cost->exact_until = now + SBX_EG_COST_WINDOW;

        if (!span->exact) {
            return;
        }

        waited = sbx_eg_cost_waited(s->egress) - span->waited;
        took = took > waited ? took - waited : 0;
        slow = took > own + SBX_EG_COST_SLOW;

        if (now - cost->since > SBX_EG_COST_WINDOW) {
            cost->since = now;
            cost->all = 0;
            cost->excess = 0;
            cost->slow = 0;
        }
    }

    cost->all += took;

    if (cost->trial.on && span->exact && !cost->cut) {
        sbx_eg_cost_judge(s, took, slow);

    } else if (slow) {
        cost->excess += took - own;
        cost->slow++;

        if (cost->slow >= SBX_EG_COST_CALLS
            && cost->excess >= SBX_EG_COST_EXCESS
            && cost->excess >= cost->all / SBX_EG_COST_PART)
        {
            sbx_trial_begin(&cost->trial);
        }
    }

    errno = err;
}


static void
sbx_eg_cost_judge(sbx_eg_session_t *s, uint64_t took, int slow)
{
    sbx_eg_cost_t        *cost;
    sbx_trial_verdict_t   verdict;

    cost = &s->cost;
    verdict = sbx_trial_call(&cost->trial, &s->egress->probe, took, slow,
                             SBX_EG_COST_SLOW);

    if (verdict == SBX_TRIAL_IS_GUILTY) {

        /* whoever has called is in the midst of something */

        cost->cut = 1;
        sbx_timer_set(&s->egress->loop, &cost->timer, 0);

    } else if (verdict == SBX_TRIAL_IS_INNOCENT) {
        cost->since = 0;
    }
}


uint64_t
sbx_eg_cost_cut(sbx_eg_cost_t *cost)
{
    uint64_t  ms, steps;

    steps = cost->ended == 0
            ? 0 : (sbx_now_us() - cost->ended) / SBX_EG_COST_FORGET;
    cost->level -= steps < cost->level ? (unsigned) steps : cost->level;

    ms = (uint64_t) SBX_EG_COST_FIRST << cost->level;
    cost->level += cost->level < SBX_EG_COST_LEVELS;

    return ms < SBX_EG_COST_MOST ? ms : SBX_EG_COST_MOST;
}


void
sbx_eg_cost_over(sbx_eg_cost_t *cost)
{
    cost->ended = sbx_now_us();
    cost->cut = 0;
    cost->told = 0;
    cost->closed = 0;
    cost->since = 0;
}
