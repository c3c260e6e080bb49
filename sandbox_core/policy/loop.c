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
static void sbx_heap_place(sbx_loop_t *loop, sbx_timer_t *timer, size_t i);
static void sbx_heap_up(sbx_loop_t *loop, size_t i);
static void sbx_heap_down(sbx_loop_t *loop, size_t i);


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

    free(loop->heap);
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

    if (loop->timers == 0) {
        return -1;
    }

    now = sbx_now_us();

    if (loop->heap[1]->at <= now) {
        return 0;
    }

    ms = (loop->heap[1]->at - now + 999) / 1000;

    return ms > 60000 ? 60000 : (int) ms;
}


static void
sbx_loop_expire(sbx_loop_t *loop)
{
    unsigned      n;
    uint64_t      now;
    sbx_timer_t  *timer;

    if (loop->timers == 0) {
        return;
    }

    now = sbx_now_us();

    /* bounded, so that events are seen between many timers */

    for (n = 0; n < SBX_LOOP_TIMERS && loop->timers != 0; n++) {
        timer = loop->heap[1];

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


int
sbx_timer_set(sbx_loop_t *loop, sbx_timer_t *timer, uint64_t ms)
{
    size_t         size;
    sbx_timer_t  **heap;

    if (ms > SBX_LOOP_FOREVER) {
        ms = SBX_LOOP_FOREVER;
    }

    sbx_timer_del(loop, timer);

    if (loop->timers + 2 > loop->size) {
        size = loop->size ? loop->size * 2 : 64;
        heap = realloc(loop->heap, size * sizeof(sbx_timer_t *));

        if (heap == NULL) {
            return -1;
        }

        loop->heap = heap;
        loop->size = size;
    }

    timer->at = sbx_now_us() + ms * 1000;

    loop->timers++;
    sbx_heap_place(loop, timer, loop->timers);
    sbx_heap_up(loop, loop->timers);

    return 0;
}


void
sbx_timer_del(sbx_loop_t *loop, sbx_timer_t *timer)
{
    size_t        i;
    sbx_timer_t  *last;

    i = timer->index;

    if (i == 0) {
        return;
    }

    timer->index = 0;
    last = loop->heap[loop->timers];
    loop->timers--;

    if (last == timer) {
        return;
    }

    sbx_heap_place(loop, last, i);
    sbx_heap_up(loop, i);
    sbx_heap_down(loop, last->index);
}


static void
sbx_heap_place(sbx_loop_t *loop, sbx_timer_t *timer, size_t i)
{
    loop->heap[i] = timer;
    timer->index = i;
}


static void
sbx_heap_up(sbx_loop_t *loop, size_t i)
{
    sbx_timer_t  *timer;

    timer = loop->heap[i];

    while (i > 1 && timer->at < loop->heap[i / 2]->at) {
        sbx_heap_place(loop, loop->heap[i / 2], i);
        i /= 2;
    }

    sbx_heap_place(loop, timer, i);
}


static void
sbx_heap_down(sbx_loop_t *loop, size_t i)
{
    size_t        child;
    sbx_timer_t  *timer;

    timer = loop->heap[i];

    for ( ;; ) {
        child = i * 2;

        if (child > loop->timers) {
            break;
        }

        if (child < loop->timers
            && loop->heap[child + 1]->at < loop->heap[child]->at)
        {
            child++;
        }

        if (timer->at <= loop->heap[child]->at) {
            break;
        }

        sbx_heap_place(loop, loop->heap[child], i);
        i = child;
    }

    sbx_heap_place(loop, timer, i);
}
