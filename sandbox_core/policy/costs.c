/* See costs.h. */

#include "costs.h"
#include "sandbox_util.h"

#include <errno.h>
#include <string.h>


static uint64_t sbx_costs_now(void *data);
static sbx_costs_of_t *sbx_costs_find(sbx_costs_t *costs,
    const char *session);
static sbx_costs_of_t *sbx_costs_add(sbx_costs_t *costs, const char *session);
static void sbx_costs_sweep(sbx_costs_t *costs, uint64_t now);
static uint64_t sbx_costs_rank(const sbx_costs_of_t *of);
static sbx_costs_verdict_t sbx_costs_judge(sbx_costs_t *costs,
    sbx_costs_of_t *of, uint64_t now, uint64_t took);
static sbx_costs_verdict_t sbx_costs_guilty(sbx_costs_t *costs,
    sbx_costs_of_t *of);


void
sbx_costs_open(sbx_costs_t *costs)
{
    memset(costs, 0, sizeof(sbx_costs_t));
    costs->now = sbx_costs_now;
    costs->probe.clock = sbx_trial_clock;
    sbx_trial_probe_open(&costs->probe, 0);
}


void
sbx_costs_close(sbx_costs_t *costs)
{
    sbx_trial_probe_close(&costs->probe);
    costs->used = 0;
}


static uint64_t
sbx_costs_now(void *data)
{
    (void) data;

    return sbx_now_us();
}


/* Nearly always there is none. */

static sbx_costs_of_t *
sbx_costs_find(sbx_costs_t *costs, const char *session)
{
    unsigned  i;

    for (i = 0; i < costs->used; i++) {
        if (strcmp(costs->of[i].session, session) == 0) {
            return &costs->of[i];
        }
    }

    return NULL;
}


/* In the place of one that matters least. */

static sbx_costs_of_t *
sbx_costs_add(sbx_costs_t *costs, const char *session)
{
    unsigned         i;
    sbx_costs_of_t  *of;

    if (costs->used < SBX_COSTS_SESSIONS) {
        of = &costs->of[costs->used++];

    } else {
        of = &costs->of[0];

        for (i = 1; i < SBX_COSTS_SESSIONS; i++) {
            if (sbx_costs_rank(&costs->of[i]) < sbx_costs_rank(of)) {
                of = &costs->of[i];
            }
        }
    }

    memset(of, 0, sizeof(sbx_costs_of_t));
    of->room = SBX_COSTS_ROOM;
    (void) sbx_copy_string(of->session, sizeof(of->session), session,
                           strlen(session));

    return of;
}


/* Each call looks through the table, in which sessions that are gone, and
 * those of whom nothing is to be remembered, are of no use. */

static void
sbx_costs_sweep(sbx_costs_t *costs, uint64_t now)
{
    unsigned         i;
    uint64_t         last, kept;
    sbx_costs_of_t  *of;

    costs->swept = now;
    i = 0;

    while (i < costs->used) {
        of = &costs->of[i];
        last = sbx_costs_rank(of);
        last = last > of->ended ? last : of->ended;
        kept = SBX_COSTS_TRIAL + of->level * (uint64_t) SBX_COSTS_FORGET;

        if (last < now && now - last > kept) {
            *of = costs->of[--costs->used];

        } else {
            i++;
        }
    }
}


/* Whoever is left alone stays until that is over. */

static uint64_t
sbx_costs_rank(const sbx_costs_of_t *of)
{
    return of->until > of->slow_at ? of->until : of->slow_at;
}


void
sbx_costs_begin(sbx_costs_t *costs, const char *session,
    sbx_costs_span_t *span)
{
    sbx_costs_of_t  *of;

    span->own = 0;
    span->at = costs->now(costs->data);

    if (costs->used != 0 && span->at - costs->swept > SBX_COSTS_WINDOW) {
        sbx_costs_sweep(costs, span->at);
    }

    of = sbx_costs_find(costs, session);

    if (of != NULL && span->at - of->slow_at > SBX_COSTS_TRIAL) {
        of->trial.on = 0;
    }

    span->exact = of != NULL && (of->trial.on || of->exact_until > span->at);

    if (span->exact) {
        span->own = costs->probe.clock(costs->probe.data);
    }
}


sbx_costs_verdict_t
sbx_costs_end(sbx_costs_t *costs, const char *session,
    const sbx_costs_span_t *span)
{
    int                   err;
    uint64_t              now, took;
    sbx_costs_of_t       *of;
    sbx_costs_verdict_t   verdict;

    err = errno;
    now = costs->now(costs->data);
    took = now - span->at;
    of = sbx_costs_find(costs, session);

    if (of == NULL && took < SBX_COSTS_SLOW) {
        return SBX_COSTS_FINE;
    }

    if (of == NULL) {
        of = sbx_costs_add(costs, session);
    }

    if (took >= SBX_COSTS_SLOW) {
        of->slow_at = now;
        of->exact_until = now + SBX_COSTS_WINDOW;
    }

    if (span->exact) {
        took = costs->probe.clock(costs->probe.data) - span->own;
    }

    if (took >= SBX_COSTS_SLOW) {
        of->room = 1;

    } else if (of->room < SBX_COSTS_ROOM) {
        of->room *= 2;
    }

    verdict = took >= SBX_COSTS_SLOW ? SBX_COSTS_WAS_SLOW : SBX_COSTS_FINE;

    if (span->exact && of->until == 0) {
        verdict = sbx_costs_judge(costs, of, now, took);
    }

    errno = err;

    return verdict;
}


static sbx_costs_verdict_t
sbx_costs_judge(sbx_costs_t *costs, sbx_costs_of_t *of, uint64_t now,
    uint64_t took)
{
    int                  slow;
    sbx_trial_verdict_t  verdict;

    slow = took >= SBX_COSTS_SLOW;

    if (of->trial.on) {
        verdict = sbx_trial_call(&of->trial, &costs->probe, took, slow,
                                 SBX_COSTS_SLOW);

        if (verdict == SBX_TRIAL_IS_GUILTY) {
            return sbx_costs_guilty(costs, of);
        }

        return slow ? SBX_COSTS_WAS_SLOW : SBX_COSTS_TRIED;
    }

    if (!slow) {
        return SBX_COSTS_FINE;
    }

    if (of->slow == 0 || now - of->since > SBX_COSTS_WINDOW) {
        of->since = now;
        of->slow = 0;
    }

    if (++of->slow >= SBX_COSTS_CALLS) {
        of->slow = 0;
        sbx_trial_begin(&of->trial);
    }

    return SBX_COSTS_WAS_SLOW;
}


static sbx_costs_verdict_t
sbx_costs_guilty(sbx_costs_t *costs, sbx_costs_of_t *of)
{
    uint64_t  now, s, steps;

    now = costs->now(costs->data);
    steps = of->ended == 0 ? 0 : (now - of->ended) / SBX_COSTS_FORGET;
    of->level -= steps < of->level ? (unsigned) steps : of->level;

    s = (uint64_t) SBX_COSTS_FIRST << of->level;
    s = s < SBX_COSTS_MOST ? s : SBX_COSTS_MOST;
    of->level += of->level < SBX_COSTS_LEVELS;
    of->until = now + s * 1000000;

    return SBX_COSTS_IS_GUILTY;
}


unsigned
sbx_costs_left(sbx_costs_t *costs, const char *session)
{
    uint64_t         now;
    sbx_costs_of_t  *of;

    of = sbx_costs_find(costs, session);

    if (of == NULL || of->until == 0) {
        return 0;
    }

    now = costs->now(costs->data);

    if (now >= of->until) {
        of->ended = of->until;
        of->until = 0;
        return 0;
    }

    return (unsigned) ((of->until - now + 999999) / 1000000);
}


int
sbx_costs_suspect(sbx_costs_t *costs, const char *session)
{
    sbx_costs_of_t  *of;

    of = sbx_costs_find(costs, session);

    return of != NULL
           && (of->until != 0 || of->trial.on
               || of->exact_until > costs->now(costs->data));
}


size_t
sbx_costs_room(sbx_costs_t *costs, const char *session, size_t size)
{
    sbx_costs_of_t  *of;

    of = sbx_costs_find(costs, session);

    return of == NULL || of->room >= SBX_COSTS_ROOM || of->room >= size
           ? size : of->room;
}
