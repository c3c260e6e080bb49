/*
 * Whether calls are slow of themselves or by what hits everybody, on a clock
 * of the test's own.
 */

#include "trial.h"
#include "tap.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>


#define MOST      200              /* us of a stroke */
#define CALL      7                /* us of a call */
#define STORM     30000            /* us of an interrupt */
#define EACH      20000            /* us from the end of one to the next, at
                                      random, in the middle */
#define TRIALS    200


typedef struct {
    uint64_t   now;
    uint64_t   next;               /* when it is hit; 0: never */
    uint64_t   controls;           /* us of them */
    unsigned   random;
} world_t;


static unsigned
number(world_t *w)
{
    w->random = w->random * 1103515245 + 12345;

    return w->random >> 8;
}


/* So many us go by, and what hits who runs then. */

static uint64_t
pass(world_t *w, uint64_t us)
{
    uint64_t  began;

    began = w->now;
    w->now += us;

    if (w->next != 0 && w->now >= w->next) {
        w->now += STORM;
        w->next = w->now + 1 + number(w) % (2 * EACH);
    }

    return w->now - began;
}


/* A look at it takes one. */

static uint64_t
clock_us(void *data)
{
    world_t  *w;

    w = data;
    w->controls++;
    (void) pass(w, 1);

    return w->now;
}


static void
check_storm(void)
{
    int                  i, calls, most_calls, guilty, open;
    uint64_t             took;
    world_t              w;
    sbx_trial_t          trial;
    sbx_trial_probe_t    probe;
    sbx_trial_verdict_t  verdict;

    memset(&w, 0, sizeof(w));
    memset(&probe, 0, sizeof(probe));
    w.next = EACH;
    probe.clock = clock_us;
    probe.data = &w;
    guilty = 0;
    open = 0;
    most_calls = 0;

    for (i = 0; i < TRIALS; i++) {
        sbx_trial_begin(&trial);
        verdict = SBX_TRIAL_OPEN;

        for (calls = 0; calls < 1000000 && trial.on; calls++) {
            took = pass(&w, CALL);
            verdict = sbx_trial_call(&trial, &probe, took, took > MOST, MOST);
        }

        guilty += verdict == SBX_TRIAL_IS_GUILTY;
        open += verdict == SBX_TRIAL_OPEN;
        most_calls = calls > most_calls ? calls : most_calls;
    }

    is_int(guilty, 0, "who is hit as all are is found guilty in no trial");
    is_int(open, 0, "each of which ends");
    ok(most_calls > 100, "after many calls");
    printf("# %d at most\n", most_calls);
}


/* Every so manieth call is slow of itself; how many of those it takes. */

static int
slow_calls(unsigned each, uint64_t slow, int storm,
    sbx_trial_verdict_t *verdict)
{
    int                i, n;
    uint64_t           took;
    world_t            w;
    sbx_trial_t        trial;
    sbx_trial_probe_t  probe;

    memset(&w, 0, sizeof(w));
    memset(&probe, 0, sizeof(probe));
    w.next = storm ? EACH : 0;
    probe.clock = clock_us;
    probe.data = &w;
    sbx_trial_begin(&trial);
    *verdict = SBX_TRIAL_OPEN;
    n = 0;

    for (i = 1; i < 1000000 && trial.on; i++) {
        took = pass(&w, i % (int) each == 0 ? slow : CALL);
        n += i % (int) each == 0;
        *verdict = sbx_trial_call(&trial, &probe, took, took > MOST, MOST);
    }

    return n;
}


static void
check_slow(void)
{
    sbx_trial_verdict_t  verdict;

    is_int(slow_calls(1, 20000, 0, &verdict), SBX_TRIAL_GUILTY,
           "calls that are slow are so after a few");
    is_int(verdict, SBX_TRIAL_IS_GUILTY, "and that is told");

    is_int(slow_calls(3000, 20000, 0, &verdict), SBX_TRIAL_GUILTY,
           "as one in thousands");
    is_int(verdict, SBX_TRIAL_IS_GUILTY, "is");

    ok(slow_calls(1, 20000, 1, &verdict) <= SBX_TRIAL_GUILTY * 2
       && verdict == SBX_TRIAL_IS_GUILTY, "and in a storm, too");

    (void) slow_calls(1000001, 0, 0, &verdict);
    is_int(verdict, SBX_TRIAL_OPEN, "without any it goes on");
}


static void
check_cost(void)
{
    world_t            w;
    sbx_trial_t        trial;
    sbx_trial_probe_t  probe;

    memset(&w, 0, sizeof(w));
    memset(&probe, 0, sizeof(probe));
    probe.clock = clock_us;
    probe.data = &w;

    sbx_trial_begin(&trial);
    (void) sbx_trial_call(&trial, &probe, 50, 0, MOST);
    ok(w.controls >= 50 * SBX_TRIAL_TIMES
       && w.controls < 50 * SBX_TRIAL_TIMES + 10, "a control lasts as long");

    w.controls = 0;
    (void) sbx_trial_call(&trial, &probe, 1000000, 1, MOST);
    ok(w.controls < SBX_TRIAL_MOST * SBX_TRIAL_TIMES + 10,
       "and not as long as a call that is stuck");
}


static uint64_t
ticks(void *data)
{
    return ++*(uint64_t *) data;
}


/* What it does is done, and nothing stays of it. */

static void
check_probe(int packets, const char *name)
{
    char               byte;
    int                i, bad;
    uint64_t           at;
    sbx_trial_t        trial;
    sbx_trial_probe_t  probe;

    memset(&probe, 0, sizeof(probe));
    at = 0;
    probe.clock = ticks;
    probe.data = &at;
    sbx_trial_probe_open(&probe, packets);
    ok(probe.fds[0] > 0 && probe.fds[1] > 0, "%s", name);

    sbx_trial_begin(&trial);

    for (i = 0, bad = 0; i < 100; i++) {
        bad += sbx_trial_call(&trial, &probe, 10, 0, 5) != SBX_TRIAL_OPEN;
    }

    is_int(bad, 0, "controls");
    ok(recv(probe.fds[1], &byte, 1, MSG_DONTWAIT) == -1 && errno == EAGAIN,
       "of which nothing is left");
    ok(send(probe.fds[0], "", 1, 0) == 1
       && recv(probe.fds[1], &byte, 1, MSG_DONTWAIT) == 1,
       "what is sent arrives");

    sbx_trial_probe_close(&probe);
    ok(probe.fds[0] == 0 && probe.fds[1] == 0, "and it is closed");
}


int
main(void)
{
    check_storm();
    check_slow();
    check_cost();
    check_probe(0, "a pair");
    check_probe(1, "packets");

    return done_testing();
}
