/*
 * A run without isolation: the caller's rights, the caller's view.  What is
 * left of the contract are rlimits, the clock, and that nothing survives: the
 * helper is the subreaper of all that the command starts, and kills its own
 * children until there are none.  Only one's own children are killed: their
 * numbers cannot be anybody else's while they are not reaped.
 */

#include "box.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/wait.h>


static int sbx_plain_start(sbx_box_t *box, pid_t *pid, sbx_error_t *e);
static int sbx_plain_wait(const sbx_box_t *box, pid_t pid, int *status,
    sbx_reason_t *reason);
static void sbx_plain_end(void);
static void sbx_plain_kill(void);
static void sbx_plain_usage(sbx_f_exit_t *x);


void
sbx_box_plain(sbx_box_t *box, sbx_box_answer_t *answer)
{
    int            status;
    pid_t          pid;
    uint64_t       start;
    uint32_t       words[2];
    sbx_reason_t   reason;
    sbx_f_exit_t  *x;

    x = &answer->exit;
    answer->type = SBX_BOX_FAILED;
    box->rlimit_memory = box->request.limits.memory < SBX_UNLIMITED;

    if (box->request.memory_strategy == SBX_MEMORY_CGROUP) {
        (void) sbx_error(&answer->error, 0, SBX_E_MANIFEST,
                         "memory_strategy cgroup: passthrough has none");
        return;
    }

    start = sbx_now_us();

    if (sbx_box_limits_check(box, &answer->error) == -1) {
        return;
    }

    status = 0;
    pid = 0;
    words[0] = 0;
    reason = SBX_REASON_EXITED;

    if (box->request.op == SBX_BOX_RUN) {
        if (sbx_plain_start(box, &pid, &answer->error) == -1) {
            return;
        }

        if (sbx_read_full(box->status, words, sizeof(words))
            != sizeof(words))
        {
            words[0] = 0;
        }

        if (words[0] == 0 && !sbx_plain_wait(box, pid, &status, &reason)) {
            reason = SBX_REASON_EXITED;
        }

        sbx_plain_end();
    }

    if (words[0] == SBX_COMMAND_SETUP || words[0] == SBX_COMMAND_CWD) {
        (void) sbx_error(&answer->error, (int) words[1],
                         words[0] == SBX_COMMAND_CWD ? SBX_E_INVALID
                                                     : SBX_E_INTERNAL,
                         words[0] == SBX_COMMAND_CWD
                         ? "cwd cannot be entered"
                         : "the command's process cannot be set up");
        return;
    }

    x->pid = pid;
    x->duration_us = sbx_now_us() - start;
    sbx_plain_usage(x);
    sbx_box_status(x, reason == SBX_REASON_EXITED ? status : SIGKILL);
    x->reason = reason != SBX_REASON_EXITED ? reason
                : x->signal == SIGXCPU ? SBX_REASON_CPU_TIME
                : x->signal != 0 ? SBX_REASON_SIGNAL : SBX_REASON_EXITED;
    x->flags |= reason == SBX_REASON_TIMEOUT ? SBX_EXIT_TIMED_OUT : 0;
    x->flags |= reason == SBX_REASON_CANCELLED ? SBX_EXIT_CANCELLED : 0;

    if (words[0] == SBX_COMMAND_EXEC) {
        sbx_box_excuse(box, x, (int) words[1]);
    }

    answer->type = SBX_BOX_RESULT;
    answer->isolated = 0;
    answer->backend = SBX_BACKEND_PASSTHROUGH;
    answer->enforcement.memory = SBX_BY_RLIMIT;
    answer->enforcement.cpu_seconds = SBX_BY_RLIMIT;
    answer->enforcement.max_file_size = SBX_BY_RLIMIT;
    answer->enforcement.open_files = SBX_BY_RLIMIT;
    answer->enforcement.stack = SBX_BY_RLIMIT;
    memcpy(answer->note, box->note, sizeof(answer->note));
}


static int
sbx_plain_start(sbx_box_t *box, pid_t *pid, sbx_error_t *e)
{
    int       report[2];
    sigset_t  chld;

    (void) sigemptyset(&chld);
    (void) sigaddset(&chld, SIGCHLD);
    (void) sigprocmask(SIG_BLOCK, &chld, NULL);

    if (prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == -1
        || pipe2(report, O_CLOEXEC) == -1)
    {
        return sbx_error(e, errno, SBX_E_INTERNAL,
                         "the command's process cannot be made");
    }

    *pid = fork();

    if (*pid == 0) {
        sbx_box_command(box, report[1]);
    }

    (void) close(report[1]);
    box->status = report[0];

    if (*pid == -1) {
        return sbx_error(e, errno, SBX_E_INTERNAL,
                         "the command's process cannot be made");
    }

    if (box->stdio[0] != -1) {
        (void) close(box->stdio[0]);
    }

    (void) close(box->stdio[1]);

    return 0;
}


/* 1: it is to be ended, for *reason; 0: it ended, with *status. */
static int
sbx_plain_wait(const sbx_box_t *box, pid_t pid, int *status,
    sbx_reason_t *reason)
{
    pid_t                    one;
    uint64_t                 deadline;
    sigset_t                 chld;
    sbx_auto_fd              signals = -1;
    struct pollfd            fds[2];
    struct signalfd_siginfo  info;

    (void) sigemptyset(&chld);
    (void) sigaddset(&chld, SIGCHLD);
    signals = signalfd(-1, &chld, SFD_CLOEXEC | SFD_NONBLOCK);

    deadline = box->request.limits.exec_timeout >= SBX_UNLIMITED ? UINT64_MAX
               : sbx_now_us() + box->request.limits.exec_timeout * 1000;

    for ( ;; ) {
        while ((one = waitpid(-1, status, WNOHANG)) > 0) {
            if (one == pid) {
                return 0;
            }
        }

        fds[0].fd = signals;
        fds[1].fd = SBX_BOX_SOCKET;
        fds[0].events = fds[1].events = POLLIN;
        fds[0].revents = fds[1].revents = 0;

        (void) poll(fds, 2, sbx_box_wait(deadline));

        while (read(signals, &info, sizeof(info)) > 0) { /* void */ }

        if (fds[1].revents != 0 && sbx_box_asked(reason)) {
            return 1;
        }

        if (sbx_now_us() >= deadline) {
            *reason = SBX_REASON_TIMEOUT;
            return 1;
        }
    }
}


static void
sbx_plain_end(void)
{
    pid_t  pid;

    for ( ;; ) {
        sbx_plain_kill();
        pid = waitpid(-1, NULL, WNOHANG);

        if (pid == -1 && errno == ECHILD) {
            return;
        }

        if (pid == 0) {
            (void) usleep(1000);
        }
    }
}


static void
sbx_plain_kill(void)
{
    int             pid, parent;
    DIR            *dir;
    char            name[NAME_MAX + 8], text[512], *p;
    struct dirent  *entry;

    dir = opendir("/proc");

    if (dir == NULL) {
        return;
    }

    while ((entry = readdir(dir)) != NULL) {
        pid = atoi(entry->d_name);
        (void) snprintf(name, sizeof(name), "%s/stat", entry->d_name);

        if (pid <= 1 || sbx_read_at(dirfd(dir), name, text, sizeof(text)) <= 0)
        {
            continue;
        }

        p = strrchr(text, ')');

        if (p != NULL && sscanf(p + 1, " %*c %d", &parent) == 1
            && parent == (int) getpid())
        {
            (void) kill((pid_t) pid, SIGKILL);
        }
    }

    (void) closedir(dir);
}


static void
sbx_plain_usage(sbx_f_exit_t *x)
{
    struct rusage  ru;

    if (getrusage(RUSAGE_CHILDREN, &ru) == -1) {
        return;
    }

    x->cpu_user_us = (uint64_t) ru.ru_utime.tv_sec * 1000000
                     + (uint64_t) ru.ru_utime.tv_usec;
    x->cpu_system_us = (uint64_t) ru.ru_stime.tv_sec * 1000000
                       + (uint64_t) ru.ru_stime.tv_usec;
    x->memory_peak = (uint64_t) ru.ru_maxrss * 1024;
    x->read_bytes = (uint64_t) ru.ru_inblock * 512;
    x->written_bytes = (uint64_t) ru.ru_oublock * 512;
}
