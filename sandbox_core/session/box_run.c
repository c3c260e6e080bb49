/*
 * The helper's part of a run: makes the first process, is the clock, listens
 * to the caller, and says why the run ended.  Whoever ended it is known here:
 * an exit status of 137 says nothing.
 *
 * Everything dies with the first process, which is killed by its pidfd: when
 * waitpid() has told of its end, nobody of its namespace is left.
 */

#include "box.h"

#include "wire.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/sched.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>


#define SBX_RUN_SETUP        30000000  /* us, at most, to build the sandbox */
#define SBX_RUN_POLL_LEAST   2000      /* us between looks at cpu.stat */
#define SBX_RUN_POLL_MOST    500000

#define SBX_RUN_NAMESPACES                                                   \
    (CLONE_NEWPID | CLONE_NEWNS | CLONE_NEWIPC | CLONE_NEWUTS)


typedef struct {
    sbx_box_t        *box;
    pid_t             pid;
    int               pidfd;
    int               status;         /* our end */
    uint64_t          start;          /* of the command; 0: not yet */
    uint64_t          deadline;
    uint64_t          look;           /* at the processor time */
    unsigned          killed:1;
    unsigned          ready:1;
    unsigned          told:1;         /* msg has come */
    sbx_reason_t      reason;
    sbx_inner_msg_t   msg;
    int               wstatus;
    struct rusage     rusage;
} sbx_run_t;


static int sbx_run_filter(sbx_box_t *box, sbx_error_t *e);
static int sbx_run_prepare(sbx_box_t *box, sbx_error_t *e);
static int sbx_run_clone(sbx_run_t *run, sbx_error_t *e);
static int sbx_run_loop(sbx_run_t *run, sbx_error_t *e);
static void sbx_run_kill(sbx_run_t *run, sbx_reason_t reason);
static int sbx_run_message(sbx_run_t *run);
static void sbx_run_streams(sbx_box_t *box);
static int sbx_run_maps(const sbx_run_t *run);
static void sbx_run_clock(sbx_run_t *run, uint64_t now);
static int sbx_run_result(sbx_run_t *run, sbx_box_answer_t *answer);
static void sbx_run_killed(const sbx_run_t *run, sbx_f_exit_t *x);
static sbx_reason_t sbx_run_reason(const sbx_run_t *run,
    const sbx_f_exit_t *x);


void
sbx_box_run(sbx_box_t *box, sbx_box_answer_t *answer)
{
    sbx_run_t  run;

    memset(&run, 0, sizeof(run));
    run.box = box;
    run.pidfd = -1;
    run.status = -1;
    answer->type = SBX_BOX_FAILED;

    if (sbx_run_prepare(box, &answer->error) == 0
        && sbx_run_clone(&run, &answer->error) == 0
        && sbx_run_loop(&run, &answer->error) == 0
        && sbx_run_result(&run, answer) == 0)
    {
        answer->type = SBX_BOX_RESULT;
        answer->isolated = 1;
        answer->backend = SBX_BACKEND_NAMESPACES;
        answer->measured = sbx_box_measured(box);
        sbx_box_enforcement(box, &answer->enforcement);
        memcpy(answer->note, box->note, sizeof(answer->note));
    }

    if (run.pidfd != -1) {
        (void) close(run.pidfd);
    }

    if (run.status != -1) {
        (void) close(run.status);
    }

    if (box->seen != NULL) {
        (void) munmap(box->seen, sizeof(sbx_inner_msg_t));
    }

    sbx_box_group_close(box);
}


/* A run's workspace is a directory of the host's, which outlives it. */
static int
sbx_run_filter(sbx_box_t *box, sbx_error_t *e)
{
    size_t               size;
    sbx_auto_free void  *program = NULL;

    if (sbx_seccomp_command(&program, &size, e) == -1) {
        return -1;
    }

    return sbx_seccomp_guard(SBX_GUARD_COMMAND, program, size, &box->filter,
                             &box->filter_size, e);
}


static int
sbx_run_prepare(sbx_box_t *box, sbx_error_t *e)
{
    void  *seen;

    if (sbx_box_paths(box, e) == -1
        || sbx_run_filter(box, e) == -1
        || sbx_box_group_open(box, e) == -1)
    {
        return -1;
    }

    box->count = sbx_box_group_blind(box);
    box->rlimit_memory = box->request.limits.memory < SBX_UNLIMITED
                         && (box->cg == NULL
                             || box->request.memory_strategy
                                == SBX_MEMORY_RLIMIT);

    if ((box->request.flags & SBX_BOX_NETWORK) && box->note[0] == '\0'
        && !sbx_box_scope_known())
    {
        (void) snprintf(box->note, sizeof(box->note),
                        "network: abstract sockets of the host can be "
                        "reached, Linux 6.12 closes them");
    }

    if (box->count) {
        seen = mmap(NULL, sizeof(sbx_inner_msg_t), PROT_READ|PROT_WRITE,
                    MAP_SHARED|MAP_ANONYMOUS, -1, 0);

        if (seen == MAP_FAILED) {
            return sbx_error(e, errno, SBX_E_INTERNAL, "mmap() failed");
        }

        box->seen = seen;
    }

    return sbx_box_limits_check(box, e);
}


static int
sbx_run_clone(sbx_run_t *run, sbx_error_t *e)
{
    int                fds[2], pidfd;
    long               pid;
    struct clone_args  args;

    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, fds) == -1) {
        return sbx_error(e, errno, SBX_E_INTERNAL, "socketpair() failed");
    }

    run->status = fds[0];
    run->box->status = fds[1];
    pidfd = -1;

    memset(&args, 0, sizeof(args));
    args.flags = SBX_RUN_NAMESPACES | CLONE_PIDFD;
    args.flags |= (run->box->request.flags & SBX_BOX_NETWORK)
                  ? 0 : CLONE_NEWNET;
    args.flags |= run->box->root ? 0 : CLONE_NEWUSER;
    args.pidfd = (uint64_t) (uintptr_t) &pidfd;
    args.exit_signal = SIGCHLD;

    pid = syscall(SYS_clone3, &args, sizeof(args));

    if (pid == 0) {
        (void) close(fds[0]);
        (void) close(SBX_BOX_SOCKET);
        sbx_box_inner(run->box);
    }

    (void) close(fds[1]);

    if (pid == -1) {
        return sbx_error(e, errno, SBX_E_UNAVAILABLE,
                         "user namespace: none can be made here (%s): see "
                         "user.max_user_namespaces and "
                         "kernel.unprivileged_userns_clone",
                         strerror(errno));
    }

    run->pid = (pid_t) pid;
    run->pidfd = pidfd;

    return 0;
}


/* Until the first process is dead and reaped. */
static int
sbx_run_loop(sbx_run_t *run, sbx_error_t *e)
{
    int            i;
    uint64_t       now, until;
    sbx_reason_t   reason;
    struct pollfd  fds[3];

    fds[0].fd = run->pidfd;
    fds[1].fd = run->status;
    fds[2].fd = SBX_BOX_SOCKET;
    run->deadline = sbx_now_us() + SBX_RUN_SETUP;
    run->look = UINT64_MAX;

    for ( ;; ) {
        for (i = 0; i < 3; i++) {
            fds[i].events = POLLIN;
            fds[i].revents = 0;
        }

        until = run->look < run->deadline ? run->look : run->deadline;

        if (poll(fds, 3, sbx_box_wait(until)) == -1 && errno != EINTR) {
            return sbx_error(e, errno, SBX_E_INTERNAL, "poll() failed");
        }

        now = sbx_now_us();

        if (fds[1].revents != 0 && sbx_run_message(run) == -1) {
            fds[1].fd = -1;           /* the first process is ending */
        }

        if (fds[0].revents != 0) {
            break;
        }

        if (fds[2].revents != 0 && sbx_box_asked(&reason)) {
            sbx_run_kill(run, reason);
            fds[2].fd = -1;
        }

        sbx_run_clock(run, now);
    }

    while (wait4(run->pid, &run->wstatus, 0, &run->rusage) == -1
           && errno == EINTR)
    { /* void */ }

    while (!run->told && sbx_run_message(run) == 0) { /* void */ }

    return 0;
}


int
sbx_box_wait(uint64_t until)
{
    uint64_t  now, ms;

    if (until == UINT64_MAX) {
        return -1;
    }

    now = sbx_now_us();
    ms = until > now ? (until - now + 999) / 1000 : 0;

    return ms > 3600000 ? 3600000 : (int) ms;
}


/* A byte cancels; the end of the socket is the caller's own. */
int
sbx_box_asked(sbx_reason_t *reason)
{
    char     byte;
    ssize_t  n;

    n = recv(SBX_BOX_SOCKET, &byte, 1, MSG_DONTWAIT);

    if (n == -1 && (errno == EAGAIN || errno == EINTR)) {
        return 0;
    }

    *reason = n == 1 ? SBX_REASON_CANCELLED : SBX_REASON_DISCONNECTED;

    return 1;
}


static void
sbx_run_kill(sbx_run_t *run, sbx_reason_t reason)
{
    if (run->killed) {
        return;
    }

    run->killed = 1;
    run->reason = reason;
    run->deadline = UINT64_MAX;
    run->look = UINT64_MAX;

    (void) syscall(SYS_pidfd_send_signal, run->pidfd, SIGKILL, NULL, 0);
}


/* -1: no more will come. */
static int
sbx_run_message(sbx_run_t *run)
{
    ssize_t          n;
    uint64_t         timeout;
    sbx_inner_msg_t  msg;

    n = recv(run->status, &msg, sizeof(msg), MSG_DONTWAIT);

    if (n == -1 && (errno == EAGAIN || errno == EINTR)) {
        return run->told ? -1 : 0;
    }

    if (n != sizeof(msg)) {
        return -1;
    }

    switch ((sbx_inner_type_t) msg.type) {

    case SBX_INNER_MAPS:
        if (sbx_run_maps(run) == -1) {
            sbx_run_kill(run, SBX_REASON_NOT_STARTED);
            return -1;
        }

        break;

    case SBX_INNER_READY:
        run->ready = 1;
        sbx_run_streams(run->box);
        run->start = sbx_now_us();
        timeout = run->box->request.limits.exec_timeout;
        run->deadline = timeout >= SBX_UNLIMITED ? UINT64_MAX
                                                 : run->start + timeout * 1000;

        if (run->box->nfiles != 0
            && run->box->request.limits.cpu_seconds < SBX_UNLIMITED)
        {
            run->look = run->start;
        }

        break;

    case SBX_INNER_FAILED:
    case SBX_INNER_UNABLE:
    case SBX_INNER_OVER:
        run->msg = msg;
        run->told = 1;

        return -1;
    }

    return send(run->status, "", 1, MSG_NOSIGNAL | MSG_DONTWAIT) == 1 ? 0
                                                                      : -1;
}


/* The command's alone from now on. */
static void
sbx_run_streams(sbx_box_t *box)
{
    int  i;

    for (i = 0; i < 2; i++) {
        if (box->stdio[i] != -1) {
            (void) close(box->stdio[i]);
            box->stdio[i] = -1;
        }
    }
}


static int
sbx_run_maps(const sbx_run_t *run)
{
    char              path[64], map[64];
    size_t            i;
    const sbx_box_t  *box;

    box = run->box;

    const struct {
        const char  *file;
        unsigned     inner;
        unsigned     host;
    } maps[] = {
        { "uid_map", box->inner_uid, box->uid },
        { "gid_map", box->inner_gid, box->gid }
    };

    for (i = 0; i < sbx_nelts(maps); i++) {
        (void) snprintf(path, sizeof(path), "/proc/%d/%s", (int) run->pid,
                        maps[i].file);
        (void) snprintf(map, sizeof(map), "%u %u 1\n", maps[i].inner,
                        maps[i].host);

        if (sbx_write_at(AT_FDCWD, path, map) == -1) {
            return -1;
        }
    }

    return 0;
}


static void
sbx_run_clock(sbx_run_t *run, uint64_t now)
{
    long      cpus;
    uint64_t  used, limit, wait;

    if (now >= run->deadline) {
        sbx_run_kill(run, run->ready ? SBX_REASON_TIMEOUT
                                     : SBX_REASON_NOT_STARTED);
        return;
    }

    if (now < run->look) {
        return;
    }

    used = sbx_box_group_cpu(run->box);
    limit = run->box->request.limits.cpu_seconds * 1000;

    if (used >= limit) {
        sbx_run_kill(run, SBX_REASON_CPU_TIME);
        return;
    }

    /* sooner it cannot be used up */

    cpus = sysconf(_SC_NPROCESSORS_ONLN);
    wait = (limit - used) / (cpus > 0 ? (uint64_t) cpus : 1);

    run->look = now + (wait < SBX_RUN_POLL_LEAST ? SBX_RUN_POLL_LEAST
                       : wait > SBX_RUN_POLL_MOST ? SBX_RUN_POLL_MOST : wait);
}


/*
 * ---- how it ended ----------------------------------------------------------
 */

static uint64_t
sbx_run_time(const struct timeval *tv)
{
    return (uint64_t) tv->tv_sec * 1000000 + (uint64_t) tv->tv_usec;
}


static int
sbx_run_result(sbx_run_t *run, sbx_box_answer_t *answer)
{
    sbx_f_exit_t     *x;
    sbx_inner_msg_t  *msg;

    x = &answer->exit;
    msg = &run->msg;

    if (run->told && msg->type != SBX_INNER_OVER) {
        answer->error = msg->error;
        answer->error.text[sizeof(answer->error.text) - 1] = '\0';
        return -1;
    }

    if (run->box->request.op == SBX_BOX_PROBE && run->ready) {
        return 0;
    }

    if (!run->told && (!run->ready || !run->killed)) {
        if (run->killed && (run->reason == SBX_REASON_CANCELLED
                            || run->reason == SBX_REASON_DISCONNECTED))
        {
            x->reason = run->reason;

        } else if (run->ready) {
            x->reason = SBX_REASON_SIGNAL;

        } else {
            return sbx_error(&answer->error, 0, SBX_E_INTERNAL,
                             "the sandbox could not be built in time, or "
                             "its first process was killed");
        }
    }

    x->duration_us = run->start != 0 ? sbx_now_us() - run->start : 0;
    x->pid = msg->pid != 0 ? msg->pid : 2;

    if (run->told) {
        x->cpu_user_us = msg->user_us;
        x->cpu_system_us = msg->system_us;
        x->memory_peak = msg->memory_peak;
        x->processes_peak = msg->processes_peak;
        x->read_bytes = msg->read_bytes;
        x->written_bytes = msg->written_bytes;

    } else {
        sbx_run_killed(run, x);
    }

    sbx_box_group_usage(run->box, x);
    sbx_box_status(x, run->told && !msg->cpu_time ? msg->status : SIGKILL);
    x->reason = sbx_run_reason(run, x);

    if (run->told && msg->failed != 0) {
        sbx_box_excuse(run->box, x, msg->failed);
    }

    x->flags |= x->reason == SBX_REASON_TIMEOUT ? SBX_EXIT_TIMED_OUT : 0;
    x->flags |= x->reason == SBX_REASON_CANCELLED ? SBX_EXIT_CANCELLED : 0;

    return 0;
}


/*
 * The kernel reaps the others of the namespace without a word: of them only
 * that is known which the first process saw when it last looked.  Its own
 * memory says nothing of theirs.
 */
static void
sbx_run_killed(const sbx_run_t *run, sbx_f_exit_t *x)
{
    const sbx_inner_msg_t  *seen;

    x->cpu_user_us = sbx_run_time(&run->rusage.ru_utime);
    x->cpu_system_us = sbx_run_time(&run->rusage.ru_stime);

    seen = run->box->seen;

    if (seen == NULL) {
        return;
    }

    if (seen->user_us + seen->system_us > x->cpu_user_us + x->cpu_system_us) {
        x->cpu_user_us = seen->user_us;
        x->cpu_system_us = seen->system_us;
    }

    x->memory_peak = seen->memory_peak;
    x->processes_peak = seen->processes_peak;
    x->read_bytes = seen->read_bytes;
    x->written_bytes = seen->written_bytes;
}


void
sbx_box_status(sbx_f_exit_t *x, int status)
{
    if (WIFSIGNALED(status)) {
        x->signal = WTERMSIG(status);
        x->exit_code = 128 + x->signal;

    } else {
        x->exit_code = WEXITSTATUS(status);
    }
}


static sbx_reason_t
sbx_run_reason(const sbx_run_t *run, const sbx_f_exit_t *x)
{
    uint64_t  limit;

    limit = run->box->request.limits.cpu_seconds;

    if (!run->told) {
        return run->killed ? run->reason
               : (x->flags & SBX_EXIT_OOM_KILLED) ? SBX_REASON_MEMORY
               : SBX_REASON_SIGNAL;
    }

    if (run->msg.cpu_time) {
        return SBX_REASON_CPU_TIME;
    }

    if (x->signal == SIGKILL && (x->flags & SBX_EXIT_OOM_KILLED)) {
        return SBX_REASON_MEMORY;
    }

    if (limit < SBX_UNLIMITED
        && (x->signal == SIGXCPU || x->signal == SIGKILL)
        && x->cpu_user_us + x->cpu_system_us >= limit * 1000)
    {
        return SBX_REASON_CPU_TIME;   /* the kernel's backstop was quicker */
    }

    return x->signal != 0 ? SBX_REASON_SIGNAL : SBX_REASON_EXITED;
}


void
sbx_box_excuse(const sbx_box_t *box, sbx_f_exit_t *x, int failed)
{
    int     n;
    char    line[512];
    size_t  i, len;

    x->reason = SBX_REASON_NOT_STARTED;
    x->signal = 0;
    x->exit_code = failed == ENOENT || failed == ENOTDIR ? 127 : 126;

    n = snprintf(line, sizeof(line), "sandbox: cannot run '%s': %s\n",
                 box->list[SBX_BOX_ARGV][0], strerror(failed));
    len = (size_t) n < sizeof(line) ? (size_t) n : sizeof(line) - 1;

    for (i = 0; i + 1 < len; i++) {
        if ((unsigned char) line[i] < ' ') {
            line[i] = '?';
        }
    }

    (void) !write(box->stdio[2], line, len);
}
