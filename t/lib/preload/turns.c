/*
 * What a worker of nginx does between two looks at its connections: loaded
 * into nginx (LD_PRELOAD), it wraps epoll_wait().  A turn is the time from
 * one return of it to the next call.  Of each turn: the processor time of the
 * thread, which no neighbour on the machine lengthens; the time by the clock;
 * and how often the thread slept, which it is to do in epoll_wait() alone.
 *
 * Kept in the file that TURNS names, which master and workers share: a slot
 * for each worker, and the round that the reader has begun.  A turn that was
 * under way when a round began is none of it.
 */

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>


#define SLOTS    64
#define BUCKETS  20


/* Turns.pm reads this: 64-bit numbers. */

typedef struct {
    uint64_t  pid;
    uint64_t  round;
    uint64_t  turns;
    uint64_t  cpu;                /* longest, in nanoseconds */
    uint64_t  wall;
    uint64_t  slept;              /* most of one turn */
    uint64_t  sleeps;             /* of all */
    uint64_t  total;              /* processor time of all */
    uint64_t  events;             /* of the turn that took longest */
    uint64_t  when;               /* it ended: CLOCK_REALTIME */
    uint64_t  bucket[BUCKETS];    /* turns of less than 8 us * 2^n */
} slot_t;

typedef struct {
    uint64_t  round;
    uint64_t  used;
    slot_t    slots[SLOTS];
} shared_t;


static shared_t  *shared;
static slot_t    *mine;
static uint64_t   begun_round, begun_cpu, begun_wall, begun_sleeps;
static int        begun_events;


__attribute__((constructor)) static void
open_shared(void)
{
    int          fd;
    void        *m;
    const char  *path;

    path = getenv("TURNS");

    if (path == NULL) {
        return;
    }

    fd = open(path, O_RDWR|O_CREAT|O_CLOEXEC, 0644);

    if (fd == -1 || ftruncate(fd, sizeof(shared_t)) != 0) {
        return;
    }

    m = mmap(NULL, sizeof(shared_t), PROT_READ|PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);

    if (m != MAP_FAILED) {
        shared = m;
    }
}


static uint64_t
clock_ns(clockid_t id)
{
    struct timespec  t;

    clock_gettime(id, &t);

    return (uint64_t) t.tv_sec * 1000000000 + (uint64_t) t.tv_nsec;
}


static uint64_t
sleeps(void)
{
    struct rusage  usage;

    getrusage(RUSAGE_THREAD, &usage);

    return (uint64_t) usage.ru_nvcsw;
}


static void
tell(slot_t *s, uint64_t cpu, uint64_t wall, uint64_t slept)
{
    int  n;

    s->turns++;
    s->total += cpu;
    s->sleeps += slept;

    for (n = 0; n < BUCKETS - 1 && cpu >= (uint64_t) 8000 << n; n++) {
        /* void */
    }

    s->bucket[n]++;

    if (cpu > s->cpu) {
        s->cpu = cpu;
        s->events = (uint64_t) begun_events;
        s->when = clock_ns(CLOCK_REALTIME);
    }

    s->wall = (wall > s->wall) ? wall : s->wall;
    s->slept = (slept > s->slept) ? slept : s->slept;
}


/* The thread is about to wait: what its turn was. */

static void
end_turn(void)
{
    uint64_t  round, n;

    if (mine == NULL || mine->pid != (uint64_t) getpid()) {
        n = __atomic_fetch_add(&shared->used, 1, __ATOMIC_RELAXED);
        mine = &shared->slots[n % SLOTS];
        memset(mine, 0, sizeof(slot_t));
        mine->pid = (uint64_t) getpid();
        begun_round = UINT64_MAX;
    }

    round = __atomic_load_n(&shared->round, __ATOMIC_ACQUIRE);

    if (mine->round != round) {
        memset(&mine->turns, 0, sizeof(slot_t) - offsetof(slot_t, turns));
        __atomic_store_n(&mine->round, round, __ATOMIC_RELEASE);
    }

    if (begun_round == round) {
        tell(mine, clock_ns(CLOCK_THREAD_CPUTIME_ID) - begun_cpu,
             clock_ns(CLOCK_MONOTONIC) - begun_wall,
             sleeps() - begun_sleeps);
    }
}


static void
begin_turn(int events)
{
    begun_round = __atomic_load_n(&shared->round, __ATOMIC_ACQUIRE);
    begun_events = events;
    begun_sleeps = sleeps();
    begun_wall = clock_ns(CLOCK_MONOTONIC);
    begun_cpu = clock_ns(CLOCK_THREAD_CPUTIME_ID);
}


int
epoll_wait(int ep, struct epoll_event *events, int max, int timeout)
{
    int  n, err;

    static int (*next)(int, struct epoll_event *, int, int);

    if (next == NULL) {
        *(void **) &next = dlsym(RTLD_NEXT, "epoll_wait");
    }

    if (shared == NULL) {
        return next(ep, events, max, timeout);
    }

    end_turn();
    n = next(ep, events, max, timeout);
    err = errno;
    begin_turn(n);
    errno = err;

    return n;
}
