/* Timers and events of the broker's loop. */

#include "loop.h"
#include "sandbox_util.h"
#include "tap.h"

#include <malloc.h>


#define TIMERS   500
#define CHANGES  20000


static sbx_loop_t   loop;
static sbx_timer_t  timers[TIMERS];
static sbx_event_t  first, second;
static uint64_t     last;
static unsigned     fired, wrong, met;


static void
fire(sbx_timer_t *timer)
{
    if (timer->at < last || timer->set) {
        wrong++;
    }

    last = timer->at;
    fired++;
}


static void
stop(sbx_timer_t *timer)
{
    (void) timer;
    sbx_loop_stop(&loop);
}


static void
again(sbx_timer_t *timer)
{
    if (++fired < 5) {
        sbx_timer_set(&loop, timer, 0);
        return;
    }

    sbx_loop_stop(&loop);
}


/* Each deletes the other: of two that are ready, one is met. */

static void
ready(sbx_event_t *ev, uint32_t events)
{
    (void) events;

    met++;
    sbx_event_del(&loop, ev == &first ? &second : &first);
    sbx_event_del(&loop, ev);
    sbx_loop_stop(&loop);
}


static void
run(void)
{
    sbx_error_t  e;

    loop.stop = 0;
    (void) sbx_loop_run(&loop, &e);
}


int
main(void)
{
    int           i, pipes[2];
    size_t        before;
    unsigned      kept;
    sbx_error_t   e;
    sbx_timer_t   end, repeat, *one;

    is_int(sbx_loop_init(&loop, &e), 0, "a loop is made");

    srand(7);
    kept = 0;
    before = mallinfo2().uordblks;

    for (i = 0; i < TIMERS; i++) {
        timers[i].handler = fire;
        sbx_timer_set(&loop, &timers[i], (uint64_t) (rand() % 40));
    }

    for (i = 0; i < CHANGES; i++) {
        one = &timers[rand() % TIMERS];

        if (rand() % 3 == 0) {
            sbx_timer_del(&loop, one);
            sbx_timer_del(&loop, one);

        } else {
            sbx_timer_set(&loop, one, (uint64_t) (rand() % 40));
        }
    }

    for (i = 0; i < TIMERS; i++) {
        kept += timers[i].set;
    }

    ok(mallinfo2().uordblks == before, "setting timers takes no memory");

    end.set = 0;
    end.handler = stop;
    sbx_timer_set(&loop, &end, 60);
    run();

    is_int(fired, kept, "every timer that was not deleted fires once");
    is_int(wrong, 0, "in order, and free to be set again");
    ok(loop.first == NULL, "none is left");

    fired = 0;
    repeat.set = 0;
    repeat.handler = again;
    sbx_timer_set(&loop, &repeat, 0);
    run();
    is_int(fired, 5, "a handler may set its own timer again");

    if (pipe(pipes) == -1 || write(pipes[1], "x", 1) != 1) {
        return 1;
    }

    first.handler = ready;
    second.handler = ready;
    ok(sbx_event_add(&loop, &first, pipes[0], EPOLLIN) == 0
       && sbx_event_add(&loop, &second, pipes[1], EPOLLOUT) == 0,
       "two events are ready at once");
    run();
    is_int(met, 1, "one that was deleted by the other is not met");

    sbx_loop_free(&loop, malloc(10));
    sbx_loop_done(&loop);

    return done_testing();
}
