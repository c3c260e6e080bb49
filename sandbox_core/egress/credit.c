/*
 * How much a session may move: bytes a second, both ways together, and bytes
 * in all.  A bucket of a tenth of a second.  Whoever finds it empty waits in a
 * queue, and those who wait are served in turn with equal shares, before any
 * who come later.
 */

#include "conn.h"
#include "sandbox_limits.h"

#include <string.h>


#define SBX_EG_BURST_MIN      4096
#define SBX_EG_SHARE_MIN      1448
#define SBX_EG_TICKS          50        /* a second, of those who wait */
#define SBX_EG_REFILL         1000      /* us */


static uint64_t sbx_eg_credit_burst(const sbx_eg_session_t *s);
static void sbx_eg_credit_refill(sbx_eg_session_t *s);
static uint64_t sbx_eg_credit_left(const sbx_eg_session_t *s);
static void sbx_eg_credit_wait(sbx_eg_conn_t *c, sbx_eg_end_t from);
static void sbx_eg_credit_timer(sbx_eg_session_t *s, uint64_t ms);
static void sbx_eg_credit_arm(sbx_eg_session_t *s);
static void sbx_eg_credit_spent(sbx_eg_session_t *s);
static void sbx_eg_credit_tick(sbx_timer_t *timer);


static uint64_t
sbx_eg_credit_burst(const sbx_eg_session_t *s)
{
    return s->rate / 10 > SBX_EG_BURST_MIN ? s->rate / 10 : SBX_EG_BURST_MIN;
}


static void
sbx_eg_credit_refill(sbx_eg_session_t *s)
{
    uint64_t  now, us, n, burst;

    now = sbx_now_us();

    /* seldom enough for fractions of a byte not to matter */

    if (now < s->credit_at + SBX_EG_REFILL) {
        return;
    }

    us = now - s->credit_at;
    burst = sbx_eg_credit_burst(s);

    if (us >= 1000000) {
        s->credit = burst;
        s->credit_at = now;
        return;
    }

    /* rates are below 2^43: us * rate fits */

    n = us * s->rate / 1000000;

    if (n == 0) {
        return;
    }

    s->credit += n;

    if (s->credit >= burst) {
        s->credit = burst;
        s->credit_at = now;

    } else {
        s->credit_at += n * 1000000 / s->rate;
    }
}


static uint64_t
sbx_eg_credit_left(const sbx_eg_session_t *s)
{
    uint64_t  used;

    if (s->bytes == SBX_UNLIMITED) {
        return UINT64_MAX;
    }

    used = s->traffic->sent + s->traffic->received;

    return used < s->bytes ? s->bytes - used : 0;
}


size_t
sbx_eg_conn_credit(sbx_eg_session_t *s, size_t wanted)
{
    uint64_t  n;

    n = sbx_eg_credit_left(s);

    if (n == 0) {
        sbx_eg_credit_arm(s);
        return 0;
    }

    if (s->rate != SBX_UNLIMITED && s->rate < (uint64_t) 1 << 43) {
        sbx_eg_credit_refill(s);

        if (s->credit < n) {
            n = s->credit;
        }
    }

    return n < wanted ? (size_t) n : wanted;
}


void
sbx_eg_conn_spend(sbx_eg_session_t *s, size_t n, int sent)
{
    uint64_t  *counter;

    counter = sent ? &s->traffic->sent : &s->traffic->received;
    __atomic_store_n(counter, *counter + n, __ATOMIC_RELAXED);

    if (n <= s->credit) {
        s->credit -= n;

    } else {
        /* on credit: the time for it begins later */

        if (s->rate != 0 && s->rate != SBX_UNLIMITED) {
            s->credit_at += (n - s->credit) * 1000000 / s->rate;
        }

        s->credit = 0;
    }

    if (sbx_eg_credit_left(s) == 0) {
        sbx_eg_credit_arm(s);
    }
}


size_t
sbx_eg_credit(sbx_eg_conn_t *c, sbx_eg_end_t from, size_t wanted)
{
    size_t             n;
    sbx_eg_session_t  *s;

    s = c->session;

    if (s->rate == SBX_UNLIMITED && s->bytes == SBX_UNLIMITED) {
        return wanted;
    }

    if (s->share == 0 && s->nwaiting != 0) {
        sbx_eg_credit_wait(c, from);
        return 0;
    }

    if (s->share != 0 && wanted > s->share) {
        wanted = s->share;
    }

    n = sbx_eg_conn_credit(s, wanted);

    if (n == 0) {
        sbx_eg_credit_wait(c, from);
    }

    return n;
}


static void
sbx_eg_credit_wait(sbx_eg_conn_t *c, sbx_eg_end_t from)
{
    sbx_eg_session_t  *s;

    s = c->session;
    c->side[from].starved = 1;

    if (!c->queued) {
        sbx_list_append(&s->waiting, &c->waiting);
        c->queued = 1;
        s->nwaiting++;
    }

    sbx_eg_credit_arm(s);
}


void
sbx_eg_credit_leave(sbx_eg_conn_t *c)
{
    if (c->queued) {
        sbx_list_remove(&c->waiting);
        c->queued = 0;
        c->session->nwaiting--;
    }
}


static void
sbx_eg_credit_timer(sbx_eg_session_t *s, uint64_t ms)
{
    s->credit_timer.handler = sbx_eg_credit_tick;
    s->credit_timer.data = s;

    sbx_timer_set(&s->egress->loop, &s->credit_timer, ms);
}


void
sbx_eg_credit_reset(sbx_eg_session_t *s)
{
    if (s->nwaiting != 0 || sbx_eg_credit_left(s) == 0) {
        sbx_eg_credit_timer(s, 0);
    }
}


static void
sbx_eg_credit_arm(sbx_eg_session_t *s)
{
    uint64_t  ms, need;

    if (sbx_eg_credit_left(s) == 0) {
        sbx_eg_credit_timer(s, 0);
        return;
    }

    if (s->credit_timer.set || s->rate == 0
        || s->rate == SBX_UNLIMITED)
    {
        return;
    }

    need = s->rate / SBX_EG_TICKS;
    need = need > SBX_EG_SHARE_MIN ? need : SBX_EG_SHARE_MIN;
    ms = need > s->credit ? (need - s->credit) * 1000 / s->rate + 1 : 1;

    sbx_eg_credit_timer(s, ms);
}


/* All that it may move in all is moved: what is open is cut, and told. */

static void
sbx_eg_credit_spent(sbx_eg_session_t *s)
{
    sbx_eg_conn_t  *c;

    while (!sbx_list_empty(&s->conns)) {
        c = sbx_node_of(s->conns.next, sbx_eg_conn_t, node);
        (void) sbx_eg_conn_refuse(c, SBX_REFUSED_LIMIT, c->name);
        sbx_eg_conn_close(c, 1);
    }
}


static void
sbx_eg_credit_tick(sbx_timer_t *timer)
{
    unsigned           n;
    sbx_eg_conn_t     *c;
    sbx_eg_session_t  *s;

    s = timer->data;

    if (sbx_eg_credit_left(s) == 0) {
        sbx_eg_credit_spent(s);
        return;
    }

    n = s->nwaiting;

    if (n == 0) {
        return;
    }

    s->share = sbx_eg_conn_credit(s, SIZE_MAX / 2) / n;
    s->share = s->share > SBX_EG_SHARE_MIN ? s->share : SBX_EG_SHARE_MIN;

    for ( /* void */ ; n > 0 && !sbx_list_empty(&s->waiting); n--) {
        c = sbx_node_of(s->waiting.next, sbx_eg_conn_t, waiting);

        if (sbx_eg_conn_credit(s, 1) == 0) {
            break;
        }

        sbx_eg_credit_leave(c);
        c->side[SBX_EG_CLIENT].starved = 0;
        c->side[SBX_EG_SERVER].starved = 0;
        sbx_eg_relay_go(c);
    }

    s->share = 0;

    if (s->nwaiting != 0) {
        sbx_eg_credit_arm(s);
    }
}
