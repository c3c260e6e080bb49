/*
 * Whose sockets cost too much, on a clock of the test's own: each look at it
 * takes one microsecond.
 */

#include "costs.h"
#include "tap.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>


#define CALL      7                /* us of a call */
#define SLOW      20000
#define STORM     30000            /* us of an interrupt */
#define EACH      20000            /* us from the end of one to the next, at
                                      random, in the middle */
#define CALLS     200000
#define SECOND    1000000


static struct {
    uint64_t   now;
    uint64_t   own;                /* of the thread */
    uint64_t   next;               /* when it is hit; 0: never */
    uint64_t   looks;              /* at the thread's */
    unsigned   random;
} world;

static sbx_costs_t  costs;


static unsigned
number(void)
{
    world.random = world.random * 1103515245 + 12345;

    return world.random >> 8;
}


/* So many us of the thread go by, and what hits who runs then. */

static void
run(uint64_t us)
{
    world.own += us;
    world.now += us;

    if (world.next != 0 && world.now >= world.next) {
        world.own += STORM;
        world.now += STORM;
        world.next = world.now + 1 + number() % (2 * EACH);
    }
}


static uint64_t
now_us(void *data)
{
    (void) data;
    run(1);

    return world.now;
}


static uint64_t
own_us(void *data)
{
    (void) data;
    world.looks++;
    run(1);

    return world.own;
}


static void
begin(void)
{
    memset(&world, 0, sizeof(world));
    memset(&costs, 0, sizeof(costs));
    world.now = SECOND;
    costs.now = now_us;
    costs.probe.clock = own_us;
}


/* It runs for so many us, and waits for as many. */

static sbx_costs_verdict_t
one(const char *session, uint64_t runs, uint64_t waits)
{
    sbx_costs_span_t  span;

    sbx_costs_begin(&costs, session, &span);
    run(runs);
    world.now += waits;

    return sbx_costs_end(&costs, session, &span);
}


/* How many calls it takes, of which each so manieth is slow. */

static int
until_guilty(const char *session, int each, int most)
{
    int  n;

    for (n = 1; n <= most; n++) {
        if (one(session, n % each == 0 ? SLOW : CALL, 0)
            == SBX_COSTS_IS_GUILTY)
        {
            return n;
        }
    }

    return 0;
}


static void
check_nothing(void)
{
    int  i, other;

    begin();

    for (i = 0, other = 0; i < 1000; i++) {
        other += one("a", CALL, 0) != SBX_COSTS_FINE;
    }

    is_int(other, 0, "calls that are none slow are fine");
    is_int(world.looks, 0, "at no cost of a look at the thread's time");
    is_int(costs.used, 0, "nor of a place in the table");
    ok(sbx_costs_left(&costs, "a") == 0 && !sbx_costs_suspect(&costs, "a")
       && sbx_costs_room(&costs, "a", SIZE_MAX) == SIZE_MAX,
       "its calls are as any");
}


static void
check_guilty(void)
{
    int  n;

    begin();
    n = until_guilty("a", 1, 100);

    is_int(n, 1 + SBX_COSTS_CALLS + SBX_TRIAL_GUILTY,
           "calls that are slow are so after a few");
    is_int(sbx_costs_left(&costs, "a"), SBX_COSTS_FIRST,
           "it is left alone for a while");
    ok(sbx_costs_suspect(&costs, "a"), "and suspect");
    is_int(sbx_costs_left(&costs, "b"), 0, "another is not");
    ok(!sbx_costs_suspect(&costs, "b"), "nor suspect");

    world.now += (SBX_COSTS_FIRST + 1) * SECOND;
    is_int(sbx_costs_left(&costs, "a"), 0, "then it is not any more");

    begin();
    ok(until_guilty("a", 1000, CALLS) != 0, "as is one in a thousand");
}


static void
check_doubled(void)
{
    int       i, bad, n;
    unsigned  s, left;

    begin();
    bad = 0;

    for (i = 0, s = SBX_COSTS_FIRST; i < 10; i++) {
        n = until_guilty("a", 1, 100);
        left = sbx_costs_left(&costs, "a");
        bad += n == 0 || left != s;
        s = s * 2 < SBX_COSTS_MOST ? s * 2 : SBX_COSTS_MOST;
        world.now += (uint64_t) left * SECOND;
        bad += sbx_costs_left(&costs, "a") != 0;
    }

    is_int(bad, 0, "each time for twice as long, up to a bound");

    world.now += (uint64_t) SBX_COSTS_FORGET * 20;
    (void) until_guilty("a", 1, 100);
    is_int(sbx_costs_left(&costs, "a"), SBX_COSTS_FIRST,
           "and as at first when it has been long ago");
}


/* Of two that do the same one is slow of itself. */

static void
check_storm(void)
{
    int  i, guilty, found;

    begin();
    world.next = world.now + EACH;
    guilty = 0;
    found = 0;

    for (i = 0; i < CALLS; i++) {
        guilty += one("a", CALL, 0) == SBX_COSTS_IS_GUILTY;
    }

    is_int(guilty, 0, "who is hit as all are is not found guilty");
    ok(costs.used == 1 && world.looks > CALLS, "though it was looked at");

    for (i = 0; i < CALLS && !found; i++) {
        guilty += one("a", CALL, 0) == SBX_COSTS_IS_GUILTY;
        found = one("b", SLOW, 0) == SBX_COSTS_IS_GUILTY;
    }

    ok(found && i < 100, "one that is slow beside it is");
    is_int(guilty, 0, "and only that");
}


static void
check_waits(void)
{
    int  i, guilty;

    begin();

    for (i = 0, guilty = 0; i < 1000; i++) {
        guilty += one("a", CALL, SLOW) == SBX_COSTS_IS_GUILTY;
    }

    is_int(guilty, 0, "who waits for a processor is not guilty");
    ok(costs.used == 1 && !costs.of[0].trial.on, "nor on trial");
}


static void
check_room(void)
{
    int     n;
    size_t  room;

    begin();
    (void) one("a", SLOW, 0);
    is_int(sbx_costs_room(&costs, "a", 4096), 1,
           "after a slow call one byte is for the next");

    for (n = 0; sbx_costs_room(&costs, "a", SIZE_MAX) != SIZE_MAX && n < 100;
         n++)
    {
        (void) one("a", CALL, 0);
    }

    is_int(n, 16, "twice as many after each that is not");

    (void) one("a", SLOW, 0);
    (void) one("a", CALL, 0);
    room = sbx_costs_room(&costs, "a", SIZE_MAX);
    (void) one("a", SLOW, 0);
    ok(room == 2 && sbx_costs_room(&costs, "a", SIZE_MAX) == 1,
       "and one again after the next");
    is_int(sbx_costs_room(&costs, "b", 4096), 4096, "of another all");
}


static void
check_controls(void)
{
    int       n;
    uint64_t  before;

    begin();

    for (n = 0; n < 100 && !(costs.used && costs.of[0].trial.on); n++) {
        (void) one("a", SLOW, 0);
    }

    before = world.now;
    is_int(one("a", SLOW, 0), SBX_COSTS_WAS_SLOW, "a slow call in a trial");
    ok(world.now - before < SLOW + SBX_TRIAL_MOST * SBX_TRIAL_TIMES + 20,
       "has a control of 4 ms at most");

    before = world.now;
    is_int(one("a", CALL, 0), SBX_COSTS_TRIED, "one that is not");
    ok(world.now - before < (CALL + 10) * (1 + SBX_TRIAL_TIMES),
       "has a short one");

    world.now += SBX_COSTS_TRIAL + 1;
    is_int(one("a", CALL, 0), SBX_COSTS_FINE,
           "a trial without slow calls is over");
}


static void
check_table(void)
{
    int   i, kept;
    char  name[16];

    begin();
    (void) until_guilty("guilty", 1, 100);
    (void) one("old", SLOW, 0);

    for (i = 0; i < SBX_COSTS_SESSIONS - 1; i++) {
        (void) snprintf(name, sizeof(name), "s%d", i);
        (void) one(name, CALL, SLOW);
    }

    is_int(costs.used, SBX_COSTS_SESSIONS, "the table has its bound");
    ok(sbx_costs_left(&costs, "guilty") != 0, "who is left alone stays");
    ok(!sbx_costs_suspect(&costs, "old"), "the oldest goes");

    for (i = 0, kept = 0; i < SBX_COSTS_SESSIONS - 1; i++) {
        (void) snprintf(name, sizeof(name), "s%d", i);
        kept += sbx_costs_suspect(&costs, name);
    }

    is_int(kept, SBX_COSTS_SESSIONS - 1, "and only that");
}


/* With the clocks of the machine. */

/* Calls do not look through sessions of which nothing is remembered. */

static void
check_swept(void)
{
    int   i;
    char  name[16];

    begin();

    for (i = 0; i < SBX_COSTS_SESSIONS; i++) {
        (void) snprintf(name, sizeof(name), "session%d", i);
        (void) one(name, SLOW, 0);
    }

    (void) until_guilty("guilty", 1, 100);
    is_int(costs.used, SBX_COSTS_SESSIONS, "a table that is full");

    world.now += SBX_COSTS_TRIAL + SBX_COSTS_WINDOW;
    (void) one("quick", CALL, 0);
    is_int(costs.used, 1, "is not a minute after all that was slow");
    ok(strcmp(costs.of[0].session, "guilty") == 0,
       "but for who was left alone, and would be for longer");

    world.now += 2 * (uint64_t) SBX_COSTS_FORGET;
    (void) one("quick", CALL, 0);
    is_int(costs.used, 0, "until that is forgotten");
}


static void
check_open(void)
{
    sbx_costs_span_t  span;

    sbx_costs_open(&costs);
    ok(costs.probe.fds[0] > 0, "controls have a socket");

    sbx_costs_begin(&costs, "a", &span);
    errno = EAGAIN;
    (void) sbx_costs_end(&costs, "a", &span);
    is_int(errno, EAGAIN, "errno stays");

    sbx_costs_close(&costs);
    ok(costs.probe.fds[0] == 0, "which is closed");
}


int
main(void)
{
    check_nothing();
    check_guilty();
    check_doubled();
    check_storm();
    check_waits();
    check_room();
    check_controls();
    check_table();
    check_swept();
    check_open();

    return done_testing();
}
