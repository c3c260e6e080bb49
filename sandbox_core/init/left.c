/*
 * What commands have left in the background.
 *
 * The end of a command is its leader's.  What it leaves behind lives on in
 * the command's group, without a time-out, but not without limits: memory,
 * processes and processors are the group's own; here the processor time is
 * counted on, and where the kernel has killed one of them for want of memory
 * the others are killed too (on v2 it does that itself).
 *
 * The broker removes a group once it is empty; its files then tell nothing
 * any more, and what is kept of it here is given up.
 */

#include "init_process.h"

#include <errno.h>
#include <fcntl.h>


#define SBX_INIT_LEFT_IDLE   5000000     /* us between looks that nothing
                                            gave occasion for */
#define SBX_INIT_LEFT_DEAD   10000       /* us after orphans have died */
#define SBX_INIT_LEFT_LOOK   5000        /* us between looks for whom the
                                            kernel kills */
#define SBX_INIT_LEFT_LOOKS  50


typedef enum {
    SBX_INIT_LEFT_KILL,
    SBX_INIT_LEFT_CPU,
    SBX_INIT_LEFT_OOM,
    SBX_INIT_LEFT_POPULATED,
    SBX_INIT_LEFT_CPU_MAX,
    SBX_INIT_LEFT_MAX
} sbx_init_left_fd_t;


typedef struct {
    unsigned             used:1;
    unsigned             cancelled:1;
    unsigned             starved:1;    /* of memory, which has been told */
    int32_t              pid;          /* whose it was */
    int                  procs;        /* the list of its processes, or -1 */
    sbx_f_state_t        state;        /* of the command */
    char                *strings;
    int                  fds[SBX_INIT_LEFT_MAX];
    sbx_init_source_t    oom;
    unsigned             looks;
    uint64_t             cpus;
    uint64_t             limit;        /* us, or SBX_UNLIMITED */
    uint64_t             due;
} sbx_init_left_t;


static void sbx_init_left_oom(sbx_init_source_t *source, uint32_t events);
static void sbx_init_left_look(sbx_init_left_t *left, uint64_t now);
static uint64_t sbx_init_left_cpu(sbx_init_left_t *left, uint64_t now);
static void sbx_init_left_kill(const sbx_init_left_t *left);
static void sbx_init_left_free(sbx_init_left_t *left);


static sbx_init_left_t  sbx_init_lefts[SBX_COMMANDS_MAX];
static unsigned         sbx_init_lefts_end;       /* all in use are below */
static unsigned         sbx_init_lefts_used;
static uint64_t         sbx_init_left_due = SBX_INIT_NONE;


void
sbx_init_left_take(const sbx_init_command_t *c)
{
    unsigned          i, k;
    sbx_init_left_t  *left;

    static const uint8_t  from[SBX_INIT_LEFT_MAX] = {
        [SBX_INIT_LEFT_KILL] = SBX_INIT_FD_KILL,
        [SBX_INIT_LEFT_CPU] = SBX_INIT_FD_CPU,
        [SBX_INIT_LEFT_OOM] = SBX_INIT_FD_OOM,
        [SBX_INIT_LEFT_POPULATED] = SBX_INIT_FD_POPULATED,
        [SBX_INIT_LEFT_CPU_MAX] = SBX_INIT_FD_CPU_MAX
    };

    if (c->fds[SBX_INIT_FD_KILL] == -1
        || sbx_init_usage_populated_of(c->fds[SBX_INIT_FD_POPULATED]) != 1)
    {
        return;
    }

    for (i = 0; i < SBX_COMMANDS_MAX && sbx_init_lefts[i].used; i++) {
        /* void */
    }

    if (i == SBX_COMMANDS_MAX) {
        return;
    }

    left = &sbx_init_lefts[i];

    for (k = 0; k < SBX_INIT_LEFT_MAX; k++) {
        left->fds[k] = fcntl(c->fds[from[k]], F_DUPFD_CLOEXEC, 0);
    }

    left->procs = fcntl(c->fds[SBX_INIT_FD_PROCS], F_DUPFD_CLOEXEC, 0);
    left->strings = sbx_init_process_copy(c->process, &left->state);
    left->cancelled = 0;
    left->starved = 0;
    left->pid = c->pid;
    left->oom.fd = c->oom.fd == -1 ? -1
                                   : fcntl(c->oom.fd, F_DUPFD_CLOEXEC, 0);
    left->oom.events = 0;
    left->oom.handler = sbx_init_left_oom;
    left->oom.data = left;
    left->looks = 0;
    left->cpus = c->cpus;
    left->limit = c->exec.cpu_seconds == SBX_UNLIMITED
                  ? SBX_UNLIMITED : c->exec.cpu_seconds * 1000;
    left->due = 0;
    left->used = 1;

    sbx_init_lefts_used++;
    sbx_init_log_left(c->pid, 0);

    if (i >= sbx_init_lefts_end) {
        sbx_init_lefts_end = i + 1;
    }

    sbx_init_source_set(&left->oom, EPOLLIN);
    sbx_init_left_due = 0;
    sbx_init_loop_wake(0);
}


static void
sbx_init_left_oom(sbx_init_source_t *source, uint32_t events)
{
    uint64_t          count;
    sbx_init_left_t  *left;

    (void) events;

    left = source->data;

    while (read(source->fd, &count, sizeof(count)) == sizeof(count)) {
        /* void */
    }

    left->looks = SBX_INIT_LEFT_LOOKS;
    left->due = 0;
    sbx_init_left_due = 0;
    sbx_init_loop_wake(0);
}


void
sbx_init_left_reaped(void)
{
    unsigned  i;
    uint64_t  at;

    if (sbx_init_lefts_used == 0) {
        return;
    }

    at = sbx_now_us() + SBX_INIT_LEFT_DEAD;

    for (i = 0; i < sbx_init_lefts_end; i++) {
        if (sbx_init_lefts[i].used && sbx_init_lefts[i].due > at) {
            sbx_init_lefts[i].due = at;
        }
    }

    if (at < sbx_init_left_due) {
        sbx_init_left_due = at;
    }

    sbx_init_loop_wake(at);
}


void
sbx_init_left_tick(uint64_t now)
{
    unsigned          i;
    sbx_init_left_t  *left;

    if (sbx_init_lefts_used == 0) {
        return;
    }

    if (now >= sbx_init_left_due) {
        sbx_init_left_due = SBX_INIT_NONE;

        for (i = 0; i < sbx_init_lefts_end; i++) {
            left = &sbx_init_lefts[i];

            if (left->used && now >= left->due) {
                sbx_init_left_look(left, now);
            }

            if (left->used && left->due < sbx_init_left_due) {
                sbx_init_left_due = left->due;
            }
        }
    }

    sbx_init_loop_wake(sbx_init_left_due);
}


static void
sbx_init_left_look(sbx_init_left_t *left, uint64_t now)
{
    int  oom;

    oom = sbx_init_usage_oom_of(left->fds[SBX_INIT_LEFT_OOM]) != 0;

    if (oom && !left->starved) {
        left->starved = 1;
        sbx_init_log_left(left->pid, 1);
    }

    if (sbx_init_usage_populated_of(left->fds[SBX_INIT_LEFT_POPULATED]) != 1)
    {
        sbx_init_left_free(left);
        return;
    }

    left->due = sbx_init_left_cpu(left, now);

    if (left->cancelled) {
        sbx_init_left_kill(left);
        left->due = now + SBX_INIT_LEFT_LOOK;
        return;
    }

    if (left->oom.fd == -1) {
        return;
    }

    if (oom) {
        sbx_init_left_kill(left);
        left->due = now + SBX_INIT_LEFT_LOOK;

    } else if (left->looks != 0) {
        left->looks--;

        if (left->due > now + SBX_INIT_LEFT_LOOK) {
            left->due = now + SBX_INIT_LEFT_LOOK;
        }
    }
}


static uint64_t
sbx_init_left_cpu(sbx_init_left_t *left, uint64_t now)
{
    uint64_t  next, used;

    if (left->limit == SBX_UNLIMITED
        || !sbx_init_usage_cpu_of(left->fds[SBX_INIT_LEFT_CPU], &used))
    {
        return now + SBX_INIT_LEFT_IDLE;
    }

    if (used >= left->limit) {
        sbx_init_left_kill(left);
        return now + SBX_INIT_LEFT_LOOK;
    }

    next = sbx_init_command_next(now, left->limit - used, left->cpus);

    return next < now + SBX_INIT_LEFT_IDLE ? next : now + SBX_INIT_LEFT_IDLE;
}


void
sbx_init_left_cancel(void)
{
    unsigned  i;

    for (i = 0; i < sbx_init_lefts_end; i++) {
        if (sbx_init_lefts[i].used) {
            sbx_init_lefts[i].cancelled = 1;
            sbx_init_lefts[i].due = 0;
        }
    }

    sbx_init_left_due = 0;
    sbx_init_loop_wake(0);
}


int
sbx_init_left_cancelling(void)
{
    unsigned  i;

    for (i = 0; i < sbx_init_lefts_end; i++) {
        if (sbx_init_lefts[i].used && sbx_init_lefts[i].cancelled) {
            return 1;
        }
    }

    return 0;
}


const sbx_f_state_t *
sbx_init_left_group(unsigned i, int *procs, const char **strings)
{
    sbx_init_left_t  *left;

    if (i >= sbx_init_lefts_end || !sbx_init_lefts[i].used) {
        return NULL;
    }

    left = &sbx_init_lefts[i];
    *procs = left->procs;
    *strings = left->strings;

    return &left->state;
}


static void
sbx_init_left_kill(const sbx_init_left_t *left)
{
    sbx_init_kill_hurry(left->fds[SBX_INIT_LEFT_CPU_MAX]);
    sbx_init_kill_group(left->fds[SBX_INIT_LEFT_KILL], 0);
}


static void
sbx_init_left_free(sbx_init_left_t *left)
{
    unsigned  i;

    sbx_init_source_close(&left->oom);

    free(left->strings);
    left->strings = NULL;

    if (left->procs != -1) {
        (void) close(left->procs);
    }

    for (i = 0; i < SBX_INIT_LEFT_MAX; i++) {
        if (left->fds[i] != -1) {
            (void) close(left->fds[i]);
        }
    }

    left->used = 0;
    sbx_init_lefts_used--;
}
