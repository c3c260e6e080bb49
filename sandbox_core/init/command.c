/*
 * The process of one command, until its answer.
 *
 * Its leader's end is the command's end.  If init killed it, the answer
 * waits until its whole group is dead.  Then what the pipes hold is its last
 * output, and only when that is on its way the answer follows.
 *
 *   ASKED, STRINGS, INPUT     exec.c: not begun
 *   LAUNCHING                 command_start.c: a thread is on its way to exec
 *   RUNNING                   until SIGCHLD
 *   OVER                      killed group, last output
 *   CLOSING                   answered; the worker closes
 */

#include "init_command.h"
#include "sandbox_fault.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>


#define SBX_INIT_GROUP_WAIT  10000000    /* us for a killed group to die */
#define SBX_INIT_GROUP_POLL  2000
#define SBX_INIT_KILL_AGAIN  50000
#define SBX_INIT_GRACE       15000       /* us for word of a session's end */
#define SBX_INIT_POLL_MIN    2000        /* us between looks at the CPU time */
#define SBX_INIT_PERIOD      100000      /* us of the processors' quota */
#define SBX_INIT_OOM_LOOKS   100         /* for whom the kernel kills, after
                                            it has told that it must */
#define SBX_INIT_OOM_LOOK    1000        /* us between them */
#define SBX_INIT_OOM_POLL    50000       /* where the kernel does not tell, or
                                            tells too often */


static void sbx_init_command_oom(sbx_init_source_t *source, uint32_t events);
static void sbx_init_command_changed(sbx_init_source_t *source,
    uint32_t events);
static void sbx_init_command_look(sbx_init_command_t *c, uint64_t now);
static int sbx_init_command_await(sbx_init_command_t *c);
static void sbx_init_command_settle(sbx_init_command_t *c);
static int sbx_init_command_held(sbx_init_command_t *c);
static void sbx_init_command_group(sbx_init_command_t *c, uint64_t now);
static void sbx_init_command_answer(sbx_init_command_t *c);
static void sbx_init_command_excuse(sbx_init_command_t *c);
static sbx_reason_t sbx_init_command_reason(sbx_init_command_t *c);
static uint64_t sbx_init_command_due(sbx_init_command_t *c, uint64_t now);
static void sbx_init_command_release(sbx_init_command_t *c);


static sbx_init_command_t  sbx_init_commands[SBX_COMMANDS_MAX];
static unsigned            sbx_init_commands_end;    /* all in use are below */


sbx_init_command_t *
sbx_init_command_new(void)
{
    unsigned             i;
    sbx_init_command_t  *c;

    for (i = 0; i < SBX_COMMANDS_MAX; i++) {
        if (sbx_init_commands[i].state == SBX_INIT_FREE) {
            break;
        }
    }

    if (i == SBX_COMMANDS_MAX) {
        return NULL;
    }

    if (i >= sbx_init_commands_end) {
        sbx_init_commands_end = i + 1;
    }

    c = &sbx_init_commands[i];

    memset(c, 0, sizeof(sbx_init_command_t));
    memset(c->fds, 0xff, sizeof(c->fds));
    c->call.fd = -1;
    c->input.fd = -1;
    c->input_last = -1;
    c->oom.fd = -1;
    c->events.fd = -1;
    c->look = SBX_INIT_NONE;
    c->streams[0].source.fd = -1;
    c->streams[1].source.fd = -1;
    c->deadline = SBX_INIT_NONE;
    c->poll = SBX_INIT_NONE;
    c->recheck = SBX_INIT_NONE;
    c->give_up = SBX_INIT_NONE;

    return c;
}


sbx_init_command_t *
sbx_init_command_each(sbx_init_command_t *previous)
{
    unsigned  i;

    i = previous == NULL ? 0 : (unsigned) (previous - sbx_init_commands) + 1;

    for ( /* void */ ; i < sbx_init_commands_end; i++) {
        if (sbx_init_commands[i].state != SBX_INIT_FREE) {
            return &sbx_init_commands[i];
        }
    }

    return NULL;
}


uint32_t
sbx_init_command_index(const sbx_init_command_t *c)
{
    return (uint32_t) (c - sbx_init_commands);
}


sbx_init_command_t *
sbx_init_command_of(uint32_t index)
{
    return &sbx_init_commands[index];
}


unsigned
sbx_init_command_running(void)
{
    unsigned             n;
    sbx_init_command_t  *c;

    n = 0;

    for (c = sbx_init_command_each(NULL);
         c != NULL;
         c = sbx_init_command_each(c))
    {
        n += c->started && !c->told && c->code == NULL;
    }

    return n;
}


/*
 * Where the kernel has run out of memory for the group and killed one of its
 * processes, the others go too: half a command is of no use to anybody.  On
 * v2 the kernel does that by itself, and tells of it; on v1 it tells, before
 * it kills.  A command that only waits is not looked at.
 */

void
sbx_init_command_memory(sbx_init_command_t *c)
{
    c->oom.fd = sbx_steal_fd(&c->fds[SBX_INIT_FD_OOM_EVENT]);
    c->oom.handler = sbx_init_command_oom;
    c->oom.data = c;
    c->events.handler = sbx_init_command_changed;
    c->events.data = c;

    if (c->oom.fd != -1) {
        sbx_init_source_set(&c->oom, EPOLLIN);

    } else if (c->fds[SBX_INIT_FD_OOM] != -1) {
        c->look = sbx_now_us() + SBX_INIT_OOM_POLL;
        sbx_init_loop_wake(c->look);
    }
}


static void
sbx_init_command_oom(sbx_init_source_t *source, uint32_t events)
{
    uint64_t             count;
    sbx_init_command_t  *c;

    (void) events;

    c = source->data;

    while (read(source->fd, &count, sizeof(count)) == sizeof(count)) {
        /* void */
    }

    c->looks = SBX_INIT_OOM_LOOKS;
    sbx_init_command_look(c, sbx_now_us());

    if (c->look != SBX_INIT_NONE) {
        sbx_init_loop_wake(c->look);
    }
}


static void
sbx_init_command_look(sbx_init_command_t *c, uint64_t now)
{
    c->look = SBX_INIT_NONE;

    if (sbx_init_usage_oom(c) != 0) {
        sbx_init_command_kill(c, SBX_REASON_MEMORY);
        return;
    }

    if (c->looks != 0) {
        c->looks--;
        c->look = now + SBX_INIT_OOM_LOOK;

    } else if (c->oom.fd == -1 && !sbx_init_command_await(c)) {
        c->look = now + SBX_INIT_OOM_POLL;
    }
}


/* Until a number of the file is another than when it was read. */

static int
sbx_init_command_await(sbx_init_command_t *c)
{
    int  fd;

    fd = c->fds[SBX_INIT_FD_OOM];

    if (c->events.fd == -1 && sbx_init_usage_oom_told(fd)) {
        c->events.fd = fcntl(fd, F_DUPFD_CLOEXEC, 0);
    }

    sbx_init_source_set(&c->events, EPOLLPRI);

    return c->events.events != 0;
}


/* A group that is always short of memory is told of all the time: after each
 * time the next one is not waited for before the clock has come round. */

static void
sbx_init_command_changed(sbx_init_source_t *source, uint32_t events)
{
    sbx_init_command_t  *c;

    (void) events;

    c = source->data;

    sbx_init_source_set(source, 0);

    if (sbx_init_usage_oom(c) != 0) {
        sbx_init_command_kill(c, SBX_REASON_MEMORY);
        return;
    }

    c->look = sbx_now_us() + SBX_INIT_OOM_POLL;
    sbx_init_loop_wake(c->look);
}


pid_t
sbx_init_command_pid(const sbx_init_command_t *c)
{
    if (!c->started) {
        return 0;
    }

    /* known to the kernel's word before the child runs */

    return c->launch != NULL ? c->launch->outcome.pid : c->pid;
}


int
sbx_init_command_reap(pid_t pid, int status, const struct rusage *usage)
{
    sbx_init_command_t  *c;

    for (c = sbx_init_command_each(NULL);
         c != NULL;
         c = sbx_init_command_each(c))
    {
        if (!c->reaped && sbx_init_command_pid(c) == pid) {
            break;
        }
    }

    if (c == NULL) {
        return 0;
    }

    c->reaped = 1;
    c->status = status;
    c->rusage = *usage;
    c->end = sbx_now_us();

    switch (c->state) {

    case SBX_INIT_RUNNING:
        sbx_init_command_over(c);
        break;

    case SBX_INIT_CLOSING:
        sbx_init_command_step(c);
        break;

    default:
        /* LAUNCHING: the thread has not told yet what became of it */
        break;
    }

    return 1;
}


void
sbx_init_command_kill(sbx_init_command_t *c, sbx_reason_t reason)
{
    if (c->killed || c->reaped || !c->started) {
        return;
    }

    c->killed = 1;
    c->reason = reason;
    c->again = sbx_now_us() + SBX_INIT_KILL_AGAIN;
    c->recheck = c->again;
    sbx_init_loop_wake(c->recheck);

    sbx_init_kill_hurry(c->fds[SBX_INIT_FD_CPU_MAX]);
    sbx_init_kill_group(c->fds[SBX_INIT_FD_KILL], sbx_init_command_pid(c));
}


void
sbx_init_command_terminate(void)
{
    pid_t                pid;
    sbx_init_command_t  *c;

    for (c = sbx_init_command_each(NULL);
         c != NULL;
         c = sbx_init_command_each(c))
    {
        pid = sbx_init_command_pid(c);

        if (pid > 0 && !c->reaped) {
            c->terminated = 1;
            (void) kill(-pid, SIGTERM);
        }
    }
}


int
sbx_init_command_signal(sbx_init_command_t *c, int sig)
{
    pid_t  pid;

    pid = sbx_init_command_pid(c);

    if (pid <= 1 || c->reaped) {
        errno = ESRCH;
        return -1;
    }

    /* it leads a group from the moment that it is about to be itself */

    return kill(-pid, sig) == 0 ? 0 : kill(pid, sig);
}


void
sbx_init_command_over(sbx_init_command_t *c)
{
    int       killed;
    uint64_t  now;

    now = sbx_now_us();

    SBX_FAULT("init-exec-over");
    c->state = SBX_INIT_OVER;
    c->deadline = SBX_INIT_NONE;
    c->poll = SBX_INIT_NONE;
    c->look = SBX_INIT_NONE;
    sbx_init_input_close(c);
    sbx_init_output_watch(c);

    killed = WIFSIGNALED(c->status) && WTERMSIG(c->status) == SIGKILL;

    if (killed && !c->killed && sbx_init_usage_oom(c) != 0) {
        /* by the kernel: what is left of the command follows */
        c->killed = 1;
        c->reason = SBX_REASON_MEMORY;
        sbx_init_kill_hurry(c->fds[SBX_INIT_FD_CPU_MAX]);
    }

    if (!c->killed && c->code == NULL) {
        sbx_init_left_take(c);

    } else if (!c->killed) {
        /* what it has left behind goes with it */
        sbx_init_kill_hurry(c->fds[SBX_INIT_FD_CPU_MAX]);
        sbx_init_kill_group(c->fds[SBX_INIT_FD_KILL], 0);
        c->again = now + SBX_INIT_KILL_AGAIN;
    }

    sbx_init_source_close(&c->oom);
    sbx_init_source_close(&c->events);

    if (killed && !c->killed && !sbx_init.ending) {
        /* it may be the broker's kill, whose word is on its way */
        c->give_up = now + SBX_INIT_GROUP_WAIT;
        c->recheck = now + SBX_INIT_GRACE;
        sbx_init_loop_wake(c->recheck);

    } else if (c->killed || c->code != NULL) {
        c->give_up = now + SBX_INIT_GROUP_WAIT;
        sbx_init_command_group(c, now);

    } else {
        sbx_init_command_settle(c);
    }

    if (c->state != SBX_INIT_FREE && c->call.fd != -1) {
        sbx_init_exec_resume(c);
    }
}


/* A leader that another process traces is that one's to reap first, which it
 * may never do.  The group does not count the dead. */

static int
sbx_init_command_held(sbx_init_command_t *c)
{
    int        populated;
    siginfo_t  info;

    memset(&info, 0, sizeof(info));

    if (waitid(P_PID, (id_t) c->pid, &info, WEXITED|WNOHANG|WNOWAIT) != 0
        || info.si_pid != 0)
    {
        /* the loop is about to do it */
        return 0;
    }

    populated = sbx_init_usage_populated(c);

    return populated == -1 ? sbx_init_kill_zombie(c->pid) : !populated;
}


/* A killed group: empty, or given up. */

static void
sbx_init_command_group(sbx_init_command_t *c, uint64_t now)
{
    int  populated;

    populated = sbx_init_usage_populated(c);

    if (populated == -1) {
        /* nothing counts them: none to be found, for a while */
        populated = sbx_init_kill_left(c->pid)
                    || now < c->end + SBX_INIT_GRACE;
    }

    if (!populated || now >= c->give_up) {
        sbx_init_command_settle(c);
        return;
    }

    /* forks under way died with the rest: to kill them all again takes time
     * from those that are dying */

    if (now >= c->again) {
        sbx_init_kill_group(c->fds[SBX_INIT_FD_KILL], 0);
        c->again = now + SBX_INIT_KILL_AGAIN;
    }

    c->recheck = now + SBX_INIT_GROUP_POLL;
    sbx_init_loop_wake(c->recheck);
}


static void
sbx_init_command_settle(sbx_init_command_t *c)
{
    c->settled = 1;
    c->recheck = SBX_INIT_NONE;

    sbx_init_output_last(c);
    sbx_init_output_watch(c);
    sbx_init_command_step(c);
}


void
sbx_init_command_step(sbx_init_command_t *c)
{
    if (c->state == SBX_INIT_OVER && c->settled && sbx_init_output_done(c)) {
        sbx_init_command_answer(c);
        return;
    }

    if (c->state != SBX_INIT_CLOSING || !c->answered
        || (c->started && !c->reaped))
    {
        return;
    }

    sbx_init_command_release(c);

    if (c->call.fd == -1 || (c->out == NULL && c->input_end)) {
        sbx_init_command_free(c);
        return;
    }

    if (c->out == NULL) {
        /* the worker has more to say, and would lose what it has not read
         * yet if it were cut short */
        (void) shutdown(c->call.fd, SHUT_WR);
    }
}


static void
sbx_init_command_answer(sbx_init_command_t *c)
{
    uint64_t       oom;
    sbx_f_exit_t  *x;

    x = &c->exit;
    oom = sbx_init_usage_oom(c);

    if (c->failed) {
        sbx_init_command_excuse(c);

    } else if (WIFSIGNALED(c->status)) {
        x->signal = WTERMSIG(c->status);
        x->exit_code = 128 + x->signal;

    } else {
        x->exit_code = WEXITSTATUS(c->status);
    }

    x->pid = c->pid;
    x->reason = sbx_init_command_reason(c);
    x->flags |= oom != 0 ? SBX_EXIT_OOM_KILLED : 0;
    x->flags |= x->reason == SBX_REASON_TIMEOUT ? SBX_EXIT_TIMED_OUT : 0;
    x->flags |= x->reason == SBX_REASON_CANCELLED ? SBX_EXIT_CANCELLED : 0;
    sbx_init_output_kept(c);
    x->flags |= c->streams[0].truncated ? SBX_EXIT_OUT_TRUNCATED : 0;
    x->flags |= c->streams[1].truncated ? SBX_EXIT_ERR_TRUNCATED : 0;
    x->stdout_bytes = c->streams[0].total;
    x->stderr_bytes = c->streams[1].total;
    x->duration_us = c->end - c->start;

    sbx_init_usage(c, x);

    c->state = SBX_INIT_CLOSING;
    c->answered = 1;
    c->ended = 1;
    c->give_up = sbx_now_us() + SBX_INIT_LINGER;
    sbx_init_loop_wake(c->give_up);

    sbx_init_process_ended(c);

    /* The broker hears of it first: who is answered may ask for the next
     * command at once, and is to find the place of this one free. */

    if (!c->started || c->reaped) {
        sbx_init_command_release(c);
    }

    if (c->code != NULL) {
        sbx_init_code_over(c);
    }

    if (c->exec.flags & SBX_EXEC_BACKGROUND) {
        sbx_init_exec_begun(c);

    } else {
        SBX_FAULT("init-exec-told");
        sbx_init_exec_send(c, SBX_F_EXIT, x, sizeof(sbx_f_exit_t));
        SBX_FAULT("init-exec-answered");
    }

    /* sent at once or not, the group's end need not wait for it */

    if (c->state == SBX_INIT_CLOSING) {
        sbx_init_command_step(c);
    }
}


/* The line that a shell would print. */

static void
sbx_init_command_excuse(sbx_init_command_t *c)
{
    int                  n;
    char                 line[512];
    size_t               i, len;
    sbx_init_stream_t   *stream;

    c->exit.exit_code = c->failed == ENOENT || c->failed == ENOTDIR
                        ? 127 : 126;

    stream = &c->streams[(c->exec.flags & SBX_EXEC_MERGE) ? 0 : 1];

    n = snprintf(line, sizeof(line), "sandbox: cannot run '%s': %s\n",
                 c->program, strerror(c->failed));
    len = (size_t) n < sizeof(line) ? (size_t) n : sizeof(line) - 1;

    for (i = 0; i + 1 < len; i++) {
        if ((uint8_t) line[i] < ' ') {
            line[i] = '?';
        }
    }

    stream->total += len;
    sbx_init_output_keep(c, stream, (uint8_t *) line, len);

    if ((c->exec.flags & SBX_EXEC_CAP) && len > c->exec.max_output) {
        len = (size_t) c->exec.max_output;
        stream->truncated = 1;
    }

    c->state = SBX_INIT_CLOSING;

    sbx_init_exec_send(c, (c->exec.flags & SBX_EXEC_MERGE) ? SBX_F_STDOUT
                                                           : SBX_F_STDERR,
                       line, len);
}


/* Who ended it says why; an exit status of 137 says nothing. */

static sbx_reason_t
sbx_init_command_reason(sbx_init_command_t *c)
{
    int  sig;

    sig = WIFSIGNALED(c->status) ? WTERMSIG(c->status) : 0;

    if (c->killed && sig == SIGKILL) {
        return c->reason;
    }

    if (c->failed) {
        return SBX_REASON_NOT_STARTED;
    }

    if (c->terminated || (sbx_init.ending && sig == SIGKILL)) {
        return SBX_REASON_SESSION_ENDED;
    }

    if (c->exec.cpu_seconds != SBX_UNLIMITED
        && (sig == SIGXCPU || sig == SIGKILL)
        && sbx_init_usage_cpu(c) - c->cpu_base
           >= c->exec.cpu_seconds * 1000)
    {
        /* the kernel's backstop was quicker */
        return SBX_REASON_CPU_TIME;
    }

    return sig != 0 ? SBX_REASON_SIGNAL : SBX_REASON_EXITED;
}


void
sbx_init_command_cpu(sbx_init_command_t *c, uint64_t now)
{
    uint64_t  limit, used;

    limit = c->exec.cpu_seconds * 1000;
    used = sbx_init_usage_cpu(c);
    used = used > c->cpu_base ? used - c->cpu_base : 0;

    if (used >= limit) {
        c->poll = SBX_INIT_NONE;
        sbx_init_command_kill(c, SBX_REASON_CPU_TIME);
        return;
    }

    c->poll = sbx_init_command_next(now, limit - used, c->cpus);
}


/*
 * What is left cannot be used up sooner than the quota allows, but for one
 * period, of which all may be used at once by many.  Near the end a quarter
 * of the time is waited.
 */

uint64_t
sbx_init_command_next(uint64_t now, uint64_t left, uint64_t cpus)
{
    uint64_t  time, wait;

    if (cpus == 0 || cpus >= SBX_UNLIMITED) {
        cpus = (uint64_t) sbx_init.cpus * 1000;
    }

    time = left * 1000 / cpus;
    wait = time / 4;

    if (time > SBX_INIT_PERIOD && time - SBX_INIT_PERIOD > wait) {
        wait = time - SBX_INIT_PERIOD;
    }

    return now + (wait > SBX_INIT_POLL_MIN ? wait : SBX_INIT_POLL_MIN);
}


void
sbx_init_command_tick(uint64_t now)
{
    uint64_t             due;
    sbx_init_command_t  *c;

    for (c = sbx_init_command_each(NULL);
         c != NULL;
         c = sbx_init_command_each(c))
    {
        due = sbx_init_command_due(c, now);

        if (c->state != SBX_INIT_FREE && due != SBX_INIT_NONE) {
            sbx_init_loop_wake(due);
        }
    }
}


static uint64_t
sbx_init_command_due(sbx_init_command_t *c, uint64_t now)
{
    uint64_t       due;
    struct rusage  usage;

    switch (c->state) {

    case SBX_INIT_LAUNCHING:
    case SBX_INIT_RUNNING:

        if (now >= c->deadline && !sbx_init_paused()) {
            c->deadline = SBX_INIT_NONE;
            sbx_init_command_kill(c, SBX_REASON_TIMEOUT);
        }

        if (now >= c->poll) {
            sbx_init_command_cpu(c, now);
        }

        if (now >= c->look) {
            sbx_init_command_look(c, now);
        }

        if (now >= c->recheck) {
            /* it may have been too early to be in its group */
            sbx_init_kill_group(c->fds[SBX_INIT_FD_KILL],
                                sbx_init_command_pid(c));
            c->recheck = now + SBX_INIT_KILL_AGAIN;

            if (c->killed && c->state == SBX_INIT_RUNNING
                && sbx_init_command_held(c))
            {
                memset(&usage, 0, sizeof(usage));
                (void) sbx_init_command_reap(c->pid, SIGKILL, &usage);

                return c->recheck;
            }
        }

        due = c->deadline < c->poll && !sbx_init_paused() ? c->deadline
                                                          : c->poll;
        due = due < c->look ? due : c->look;

        return due < c->recheck ? due : c->recheck;

    case SBX_INIT_OVER:

        if (!c->settled && (now >= c->recheck || sbx_init.ending)) {

            if (c->killed || c->code != NULL) {
                sbx_init_command_group(c, now);

            } else {
                sbx_init_command_settle(c);
            }
        }

        return c->recheck;

    case SBX_INIT_CLOSING:

        if (now >= c->give_up) {
            c->give_up = SBX_INIT_NONE;
            sbx_init_exec_hang_up(c);
        }

        return c->give_up;

    default:
        return SBX_INIT_NONE;
    }
}


/* Nothing of the group is needed any more: the broker may remove it. */

static void
sbx_init_command_release(sbx_init_command_t *c)
{
    unsigned  i;

    if (c->told) {
        return;
    }

    sbx_init_input_close(c);
    sbx_init_output_close(c);
    sbx_init_source_close(&c->oom);
    sbx_init_source_close(&c->events);

    if (c->launch != NULL) {
        sbx_init_command_ends(c);
        sbx_init_launch_free(c->launch);
        c->launch = NULL;
    }

    while (c->nattach != 0) {
        (void) close(c->attach[--c->nattach]);
    }

    for (i = 0; i < SBX_INIT_FD_MAX; i++) {
        if (c->fds[i] != -1) {
            (void) close(c->fds[i]);
            c->fds[i] = -1;
        }
    }

    sbx_init_process_ended(c);

    c->told = 1;
    sbx_init_record_over(c->number, c->ended ? &c->exit : NULL);
}


void
sbx_init_command_free(sbx_init_command_t *c)
{
    sbx_init_command_release(c);
    sbx_init_source_close(&c->call);

    if (c->flies) {
        c->flies = 0;
        sbx_init_flight_end(c->pid, c->seq);
    }

    sbx_init_buffer_put(c->in.buf);
    sbx_init_buffer_put(c->out);
    c->in.buf = NULL;
    c->out = NULL;

    c->state = SBX_INIT_FREE;
}
