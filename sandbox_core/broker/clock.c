/*
 * Times that callers are told are the wall's, whose clock may be set at any
 * moment, by hours.  How long a session lives and may be used, and how long
 * its end is remembered, is nothing that this may change: so what is told is
 * the clock that only goes forward and what the wall's was ahead of it when
 * that was looked at last.  When it has been set, every time that is kept
 * moves by as much, so that what is left stays left.
 *
 * A record says what its times were told by, for a broker that reads it after
 * the clock was set.  Nothing is kept from one boot of the machine to the next
 * but the ends of sessions, by the wall's clock.
 */

#include "broker.h"

#include <time.h>


#define SBX_CLOCK_STEP     100        /* ms: less is no setting of it */
#define SBX_CLOCK_BRIEF    100        /* us that a look may take */
#define SBX_CLOCK_LOOKS    5


static int sbx_clock_measure(int64_t *ahead);
static void sbx_clock_moved(sbx_broker_t *b, int64_t by);


static int64_t  sbx_clock_us;         /* that the wall's clock is ahead */
static int      sbx_clock_known;


int64_t
sbx_broker_clock_ms(void)
{
    (void) sbx_clock_ahead();

    return ((int64_t) sbx_now_us() + sbx_clock_us) / 1000;
}


int64_t
sbx_clock_ahead(void)
{
    if (!sbx_clock_known) {
        (void) sbx_clock_measure(&sbx_clock_us);
        sbx_clock_known = 1;
    }

    return sbx_clock_us / 1000;
}


void
sbx_clock_look(sbx_broker_t *b)
{
    int64_t  ahead, by;

    (void) sbx_clock_ahead();

    if (sbx_clock_measure(&ahead) != 0) {
        return;
    }

    by = (ahead - sbx_clock_us) / 1000;

    if (by > -SBX_CLOCK_STEP && by < SBX_CLOCK_STEP) {
        return;
    }

    sbx_clock_us = ahead;
    sbx_log(SBX_LOG_NOTICE, NULL, 0,
            "the clock was set by %lld ms, and what is kept of times with it",
            (long long) by);
    sbx_clock_moved(b, by);
}


void
sbx_clock_read(sbx_f_session_t *info, int64_t ahead)
{
    int64_t  by;

    by = sbx_clock_ahead() - ahead;

    if (by <= -SBX_CLOCK_STEP || by >= SBX_CLOCK_STEP) {
        sbx_clock_shift(info, by);
    }
}


void
sbx_clock_shift(sbx_f_session_t *info, int64_t by)
{
    info->created += by;
    info->expires += by;

    if (info->paused != 0) {
        info->paused += by;
    }
}


/* -1: it was interrupted each time, and has come to nothing exact. */

static int
sbx_clock_measure(int64_t *ahead)
{
    int              i;
    int64_t          wall;
    uint64_t         before, after;
    struct timespec  ts;

    for (i = 0; i < SBX_CLOCK_LOOKS; i++) {
        before = sbx_now_us();
        (void) clock_gettime(CLOCK_REALTIME, &ts);
        after = sbx_now_us();

        wall = (int64_t) ts.tv_sec * 1000000 + ts.tv_nsec / 1000;
        *ahead = wall - (int64_t) before;

        if (after - before < SBX_CLOCK_BRIEF) {
            return 0;
        }
    }

    return -1;
}


static void
sbx_clock_moved(sbx_broker_t *b, int64_t by)
{
    uint32_t        i;
    sbx_node_t     *node, *next;
    sbx_session_t  *s;

    b->started_ms += by;

    for (node = b->sessions.next; node != &b->sessions; node = node->next) {
        s = sbx_node_of(node, sbx_session_t, link);
        sbx_clock_shift(&s->info, by);

        if (s->ended_at != 0) {
            s->ended_at += by;
        }

        for (i = 0; i < s->sampled.count; i++) {
            s->sampled.ring[i].time += by;
        }

        for (next = s->changes.next; next != &s->changes; next = next->next) {
            sbx_change_shift(next, by);
        }
    }

    sbx_graves_shift(b, by);
}
