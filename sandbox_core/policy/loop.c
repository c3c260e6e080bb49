/*
 * Timers are in a pairing heap: each has those that it was once compared with
 * and that are later as its children, in no order.  A timer that is set is
 * compared with the first alone; when the first goes, its children are, two
 * by two and then from the last to the first, which keeps all later such
 * rounds short.
 */

#include "loop.h"
#include "sandbox_util.h"

#include <errno.h>
#include <string.h>


#define SBX_LOOP_EVENTS   128     /* of one round */
#define SBX_LOOP_TIMERS   64
#define SBX_LOOP_FOREVER  ((uint64_t) 365 * 86400 * 1000)


static void sbx_loop_sweep(sbx_loop_t *loop);
static int sbx_loop_wait_ms(const sbx_loop_t *loop);
static void sbx_loop_expire(sbx_loop_t *loop);
static sbx_timer_t *sbx_heap_join(sbx_timer_t *one, sbx_timer_t *two);
static sbx_timer_t *sbx_heap_children(sbx_timer_t *timer);


int
sbx_loop_init(sbx_loop_t *loop, sbx_error_t *e)
{
    memset(loop, 0, sizeof(sbx_loop_t));

    loop->epoll = epoll_create1(EPOLL_CLOEXEC);

    if (loop->epoll == -1) {
        return sbx_error(e, errno, SBX_E_INTERNAL, "epoll_create1() failed");
    }

    return 0;
}


void
sbx_loop_done(sbx_loop_t *loop)
{
    sbx_loop_sweep(loop);

    free(loop->garbage);

    if (loop->epoll != -1) {
        (void) close(loop->epoll);
        loop->epoll = -1;
    }
}


int
sbx_loop_run(sbx_loop_t *loop, sbx_error_t *e)
{
    int                  i, n;
    sbx_event_t         *ev;
    struct epoll_event   events[SBX_LOOP_EVENTS];

    while (!loop->stop) {
        n = epoll_wait(loop->epoll, events, SBX_LOOP_EVENTS,
                       sbx_loop_wait_ms(loop));

        if (n == -1) {
            if (errno == EINTR) {
                continue;
            }

            return sbx_error(e, errno, SBX_E_INTERNAL,
                             "epoll_wait() failed");
        }

        for (i = 0; i < n; i++) {
            ev = events[i].data.ptr;

            /* an earlier handler of this round may have deleted it */

            if (ev->active) {
                ev->handler(ev, events[i].events);
            }
        }

        sbx_loop_expire(loop);
        sbx_loop_sweep(loop);
    }

    return 0;
}


void
sbx_loop_stop(sbx_loop_t *loop)
{
    loop->stop = 1;
}


void
sbx_loop_free(sbx_loop_t *loop, void *p)
{
    size_t   size;
    void   **garbage;

    if (loop->ngarbage == loop->garbage_size) {
        size = loop->garbage_size ? loop->garbage_size * 2 : 64;
        garbage = realloc(loop->garbage, size * sizeof(void *));

        if (garbage == NULL) {
            /* what a handler may still meet must not be freed */
            return;
        }

        loop->garbage = garbage;
        loop->garbage_size = size;
    }

    loop->garbage[loop->ngarbage++] = p;
}


static void
sbx_loop_sweep(sbx_loop_t *loop)
{
    size_t  i;

    for (i = 0; i < loop->ngarbage; i++) {
        free(loop->garbage[i]);
    }

    loop->ngarbage = 0;
}


static int
sbx_loop_wait_ms(const sbx_loop_t *loop)
{
    uint64_t  now, ms;

    if (loop->first == NULL) {
        return -1;
    }

    now = sbx_now_us();

    if (loop->first->at <= now) {
        return 0;
    }

    ms = (loop->first->at - now + 999) / 1000;

    return ms > 60000 ? 60000 : (int) ms;
}


static void
sbx_loop_expire(sbx_loop_t *loop)
{
    unsigned      n;
    uint64_t      now;
    sbx_timer_t  *timer;

    if (loop->first == NULL) {
        return;
    }

    now = sbx_now_us();

    /* bounded, so that events are seen between many timers */

    for (n = 0; n < SBX_LOOP_TIMERS && loop->first != NULL; n++) {
        timer = loop->first;

        if (timer->at > now) {
            break;
        }

        sbx_timer_del(loop, timer);
        timer->handler(timer);
    }
}


int
sbx_event_add(sbx_loop_t *loop, sbx_event_t *ev, int fd, uint32_t events)
{
    struct epoll_event  ee;

    memset(&ee, 0, sizeof(struct epoll_event));
    ee.events = events;
    ee.data.ptr = ev;

    if (epoll_ctl(loop->epoll, EPOLL_CTL_ADD, fd, &ee) == -1) {
        return -1;
    }

    ev->fd = fd;
    ev->events = events;
    ev->active = 1;

    return 0;
}


void
sbx_event_set(sbx_loop_t *loop, sbx_event_t *ev, uint32_t events)
{
    struct epoll_event  ee;

    if (!ev->active || ev->events == events) {
        return;
    }

    memset(&ee, 0, sizeof(struct epoll_event));
    ee.events = events;
    ee.data.ptr = ev;

    if (epoll_ctl(loop->epoll, EPOLL_CTL_MOD, ev->fd, &ee) == 0) {
        ev->events = events;
    }
}


void
sbx_event_del(sbx_loop_t *loop, sbx_event_t *ev)
{
    if (!ev->active) {
        return;
    }

    /* explicit: the description may live on in another process */

    (void) epoll_ctl(loop->epoll, EPOLL_CTL_DEL, ev->fd, NULL);
    ev->active = 0;
    ev->fd = -1;
}


void
sbx_timer_set(sbx_loop_t *loop, sbx_timer_t *timer, uint64_t ms)
{
    if (ms > SBX_LOOP_FOREVER) {
        ms = SBX_LOOP_FOREVER;
    }

    sbx_timer_del(loop, timer);

    timer->at = sbx_now_us() + ms * 1000;
    timer->set = 1;
    loop->first = sbx_heap_join(loop->first, timer);
}


void
sbx_timer_del(sbx_loop_t *loop, sbx_timer_t *timer)
{
    sbx_timer_t  *children;

    if (!timer->set) {
        return;
    }

    timer->set = 0;
    children = sbx_heap_children(timer);

    if (timer == loop->first) {
        loop->first = children;
        return;
    }

    if (timer->prev->child == timer) {
        timer->prev->child = timer->next;

    } else {
        timer->prev->next = timer->next;
    }

    if (timer->next != NULL) {
        timer->next->prev = timer->prev;
    }

    timer->next = NULL;
    timer->prev = NULL;
    loop->first = sbx_heap_join(loop->first, children);
}


/* Of two that have no siblings, either of which may be none. */

static sbx_timer_t *
sbx_heap_join(sbx_timer_t *one, sbx_timer_t *two)
{
    sbx_timer_t  *later;

    if (one == NULL || two == NULL) {
        return one != NULL ? one : two;
    }

    later = two;

    if (two->at < one->at) {
        later = one;
        one = two;
    }

    later->prev = one;
    later->next = one->child;

    if (later->next != NULL) {
        later->next->prev = later;
    }

    one->child = later;

    return one;
}


/* One of them with all others below; it has no child then. */

static sbx_timer_t *
sbx_heap_children(sbx_timer_t *timer)
{
    sbx_timer_t  *one, *two, *next, *pairs;

    pairs = NULL;

    for (one = timer->child; one != NULL; one = next) {
        two = one->next;
        next = NULL;

        if (two != NULL) {
            next = two->next;
            two->next = NULL;
            two->prev = NULL;
        }

        one->next = NULL;
        one->prev = NULL;

        one = sbx_heap_join(one, two);
        one->next = pairs;
        pairs = one;
    }

    timer->child = NULL;

    for (one = NULL; pairs != NULL; pairs = next) {
        next = pairs->next;
        pairs->next = NULL;
        one = sbx_heap_join(one, pairs);
    }

    return one;
}
