/*
 * What peers have sent is closed by others (closer.h), whom signals keep from
 * lingering.  While too many wait to be closed, no calls are taken.
 */

#include "broker.h"

#include <signal.h>


#define SBX_DISCARD_NUDGE   50                /* ms */


static void sbx_discard_nudge(sbx_timer_t *timer);


int
sbx_discard_open(sbx_broker_t *b, sbx_error_t *e)
{
    b->discard_timer.handler = sbx_discard_nudge;
    b->discard_timer.data = b;
    b->closer = sbx_closer_open(SBX_DISCARDERS, SIGUSR1, e);

    return b->closer != NULL ? 0 : -1;
}


void
sbx_discard(sbx_broker_t *b, int fd)
{
    sbx_closer_close(b->closer, fd, NULL);

    if (b->closer != NULL && !b->discard_timer.set) {
        sbx_timer_set(&b->loop, &b->discard_timer, SBX_DISCARD_NUDGE);
    }
}


void
sbx_discard_all(sbx_broker_t *b, const int *fds, unsigned nfds)
{
    unsigned  i;

    for (i = 0; i < nfds; i++) {
        sbx_discard(b, fds[i]);
    }
}


int
sbx_discard_full(sbx_broker_t *b)
{
    return sbx_closer_pending(b->closer) > SBX_DISCARD_MAX;
}


/* Whoever lingers is interrupted; the others read on. */

static void
sbx_discard_nudge(sbx_timer_t *timer)
{
    sbx_broker_t  *b;

    b = timer->data;

    if (sbx_closer_pending(b->closer) == 0) {
        return;
    }

    sbx_closer_nudge(b->closer);
    sbx_timer_set(&b->loop, &b->discard_timer, SBX_DISCARD_NUDGE);
}


/* What is sent after that is closed by the broker itself, which ends. */

void
sbx_discard_close(sbx_broker_t *b)
{
    sbx_timer_del(&b->loop, &b->discard_timer);
    sbx_closer_done(b->closer, 0);
    b->closer = NULL;
}
