/*
 * The first process of a run: a fork of the helper in namespaces of its own,
 * and process 1 of the pid namespace.  It builds the sandbox, gives up every
 * right, starts the command as its child, reaps, and looks at what the tree
 * uses where no cgroup does.
 *
 * It ends with the command, and the kernel then ends everybody else of the
 * namespace.  It dies when the helper dies (PR_SET_PDEATHSIG), it cannot be
 * signalled from inside (it has no handlers), nor traced or looked into (it
 * is not dumpable, and nobody inside has a capability).
 *
 *   root:      mounts as root, then a user namespace; the helper writes the
 *              maps, one id of its own
 *   others:    the user namespace came with the clone; mounts in it
 */

#include "box.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <inttypes.h>
#include <linux/securebits.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>


#define SBX_COUNT_FIRST    5000       /* us until the first look */
#define SBX_COUNT_MOST     200000

#define SBX_INNER_SECUREBITS                                                 \
    (SECBIT_NOROOT | SECBIT_NO_SETUID_FIXUP | SECBIT_NO_CAP_AMBIENT_RAISE    \
     | SECURE_ALL_LOCKS)


typedef struct {
    uint64_t   user_us;
    uint64_t   system_us;
    uint64_t   processes;
    uint64_t   memory_peak;
} sbx_count_t;


static int sbx_inner_build(sbx_box_t *box, int *count, sbx_error_t *e);
static int sbx_inner_maps(const sbx_box_t *box, sbx_error_t *e);
static int sbx_inner_proc(const char *hidepid, sbx_error_t *e);
static int sbx_inner_user(const sbx_box_t *box, sbx_error_t *e);
static int sbx_inner_reduce(sbx_box_t *box, sbx_error_t *e);
static int sbx_inner_ask(const sbx_box_t *box, sbx_inner_type_t type);
static void sbx_inner_run(const sbx_box_t *box, int count)
    __attribute__((noreturn));
static int sbx_inner_started(const sbx_box_t *box, int report,
    sbx_inner_msg_t *msg);
static void sbx_inner_watch(const sbx_box_t *box, int count,
    sbx_inner_msg_t *msg);
static void sbx_inner_count(int proc, sbx_count_t *c);
static void sbx_inner_count_one(int proc, const char *pid, sbx_count_t *c);
static uint64_t sbx_inner_count_memory(int proc, const char *pid);
static void sbx_inner_look(const sbx_box_t *box, int count, sbx_count_t *c,
    sbx_inner_msg_t *msg);
static void sbx_inner_usage(const sbx_count_t *c, sbx_inner_msg_t *msg);
static int sbx_inner_over(const sbx_box_t *box, const sbx_count_t *c);


void
sbx_box_inner(sbx_box_t *box)
{
    int              count;
    sbx_inner_msg_t  msg;

    memset(&msg, 0, sizeof(msg));
    count = -1;

    if (sbx_inner_build(box, &count, &msg.error) == 0
        && sbx_inner_user(box, &msg.error) == 0
        && sbx_inner_reduce(box, &msg.error) == 0)
    {
        if (sbx_inner_ask(box, SBX_INNER_READY) == -1
            || box->request.op == SBX_BOX_PROBE)
        {
            _exit(0);
        }

        sbx_inner_run(box, count);
    }

    msg.type = msg.error.code == SBX_E_UNAVAILABLE ? SBX_INNER_UNABLE
                                                   : SBX_INNER_FAILED;
    (void) send(box->status, &msg, sizeof(msg), MSG_NOSIGNAL);
    _exit(1);
}


static int
sbx_inner_build(sbx_box_t *box, int *count, sbx_error_t *e)
{
    unsigned     i, n;
    const int   *attach;
    sbx_auto_fd  proc = -1;

    if (!box->root && sbx_inner_maps(box, e) == -1) {
        return -1;
    }

    n = box->cs != NULL ? sbx_cgroup_init_fds(box->cs, &attach) : 0;

    for (i = 0; i < n; i++) {
        if (write(attach[i], "0", 1) != 1) {
            return sbx_error(e, errno, SBX_E_INTERNAL,
                             "cannot enter the run's cgroup");
        }
    }

    /* a system that lets anybody make user namespaces, but gives no rights
       in them, says so at the first mount */

    if (mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) == -1) {
        return sbx_error(e, errno, SBX_E_UNAVAILABLE,
                         "mount namespace: no mount may be changed; see "
                         "kernel.apparmor_restrict_unprivileged_userns");
    }

    if (unshare(CLONE_NEWCGROUP) == -1) {
        return sbx_error(e, errno, SBX_E_UNAVAILABLE,
                         "cgroup namespace: none can be made");
    }

    if (sethostname("sandbox", 7) == -1 || setdomainname("", 0) == -1) {
        return sbx_error(e, errno, SBX_E_INTERNAL, "cannot set a host name");
    }

    proc = sbx_inner_proc("2", e);

    if (proc == -1) {
        return -1;
    }

    if (box->count) {
        *count = sbx_inner_proc("0", e);

        if (*count == -1) {
            return -1;
        }
    }

    if ((box->request.flags & SBX_BOX_NETWORK) == 0
        && sbx_net_setup(proc, e) == -1)
    {
        return -1;
    }

    (void) sbx_write_at(proc, "self/oom_score_adj", "300");

    return sbx_box_root(box, proc, e);
}


/* One's own id and no other. */
static int
sbx_inner_maps(const sbx_box_t *box, sbx_error_t *e)
{
    char  uid[64], gid[64];

    (void) snprintf(uid, sizeof(uid), "%u %u 1\n", box->inner_uid, box->uid);
    (void) snprintf(gid, sizeof(gid), "%u %u 1\n", box->inner_gid, box->gid);

    if (sbx_write_at(AT_FDCWD, "/proc/self/uid_map", uid) == -1
        || sbx_write_at(AT_FDCWD, "/proc/self/setgroups", "deny") == -1
        || sbx_write_at(AT_FDCWD, "/proc/self/gid_map", gid) == -1)
    {
        return sbx_error(e, errno, SBX_E_UNAVAILABLE,
                         "user namespace: its id maps cannot be written");
    }

    return 0;
}


static int
sbx_inner_proc(const char *hidepid, sbx_error_t *e)
{
    int  proc;

    proc = sbx_sys_procfs(hidepid);

    if (proc == -1) {
        return sbx_error(e, errno, SBX_E_UNAVAILABLE,
                         "process list: no procfs can be mounted; in a "
                         "container /proc must not be masked");
    }

    return proc;
}


static int
sbx_inner_ask(const sbx_box_t *box, sbx_inner_type_t type)
{
    char             go;
    sbx_inner_msg_t  msg;

    memset(&msg, 0, sizeof(msg));
    msg.type = type;

    if (send(box->status, &msg, sizeof(msg), MSG_NOSIGNAL) != sizeof(msg)
        || recv(box->status, &go, 1, 0) != 1)
    {
        return -1;
    }

    return 0;
}


static int
sbx_inner_user(const sbx_box_t *box, sbx_error_t *e)
{
    if (!box->root) {
        return 0;
    }

    if (unshare(CLONE_NEWUSER) == -1) {
        return sbx_error(e, errno, SBX_E_UNAVAILABLE,
                         "user namespace: none can be made, see "
                         "user.max_user_namespaces");
    }

    if (sbx_inner_ask(box, SBX_INNER_MAPS) == -1) {
        _exit(1);                     /* nobody is there to be told */
    }

    if (setgroups(0, NULL) == -1
        || setresgid(box->inner_gid, box->inner_gid, box->inner_gid) == -1
        || setresuid(box->inner_uid, box->inner_uid, box->inner_uid) == -1)
    {
        return sbx_error(e, errno, SBX_E_INTERNAL,
                         "cannot take the run's id");
    }

    return 0;
}


static int
sbx_inner_reduce(sbx_box_t *box, sbx_error_t *e)
{
    if (prctl(PR_SET_SECUREBITS, SBX_INNER_SECUREBITS, 0, 0, 0) == -1
        || prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == -1)
    {
        return sbx_error(e, errno, SBX_E_INTERNAL, "cannot give up rights");
    }

    if (sbx_caps_drop_all(e) == -1) {
        return -1;
    }

    sbx_box_scope();

    if (sbx_seccomp_load(box->filter, box->filter_size) == -1) {
        return sbx_error(e, errno, SBX_E_UNAVAILABLE,
                         "seccomp: no filter can be loaded");
    }

    /* after the last change of ids, which takes both back */

    if (prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) == -1
        || prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0) == -1)
    {
        return sbx_error(e, errno, SBX_E_INTERNAL, "prctl() failed");
    }

    return 0;
}


static void
sbx_inner_run(const sbx_box_t *box, int count)
{
    int              report[2];
    pid_t            pid;
    sigset_t         chld;
    sbx_inner_msg_t  msg;

    memset(&msg, 0, sizeof(msg));

    (void) sigemptyset(&chld);
    (void) sigaddset(&chld, SIGCHLD);
    (void) sigprocmask(SIG_BLOCK, &chld, NULL);

    pid = -1;

    if (pipe2(report, O_CLOEXEC) == 0) {
        pid = fork();
    }

    if (pid == 0) {
        sbx_box_command(box, report[1]);
    }

    if (pid == -1) {
        msg.type = SBX_INNER_FAILED;
        (void) sbx_error(&msg.error, errno, SBX_E_INTERNAL,
                         "no process can be made");
        (void) send(box->status, &msg, sizeof(msg), MSG_NOSIGNAL);
        _exit(1);
    }

    (void) close(report[1]);
    msg.pid = pid;

    if (sbx_inner_started(box, report[0], &msg) == 0) {
        sbx_inner_watch(box, count, &msg);
    }

    (void) send(box->status, &msg, sizeof(msg), MSG_NOSIGNAL);
    _exit(0);
}


/* -1: it was not, and msg says why. */
static int
sbx_inner_started(const sbx_box_t *box, int report, sbx_inner_msg_t *msg)
{
    uint32_t  words[2];

    msg->type = SBX_INNER_OVER;

    if (sbx_read_full(report, words, sizeof(words)) != sizeof(words)) {
        (void) close(report);
        return 0;
    }

    switch (words[0]) {

    case SBX_COMMAND_EXEC:
        msg->failed = (int32_t) words[1];
        break;

    case SBX_COMMAND_CWD:
        msg->type = SBX_INNER_FAILED;
        (void) sbx_error(&msg->error, (int) words[1], SBX_E_INVALID,
                         "cwd \"%.180s\" cannot be entered",
                         box->string[SBX_BOX_CWD][0] != '\0'
                         ? box->string[SBX_BOX_CWD]
                         : box->string[SBX_BOX_WORKSPACE]);
        break;

    default:
        msg->type = SBX_INNER_FAILED;
        (void) sbx_error(&msg->error, (int) words[1], SBX_E_INTERNAL,
                         "the command's process cannot be set up");
    }

    return -1;
}


static void
sbx_inner_watch(const sbx_box_t *box, int count, sbx_inner_msg_t *msg)
{
    int              status;
    pid_t            pid;
    uint64_t         wait;
    sigset_t         chld;
    sbx_count_t      c;
    struct timespec  ts;

    (void) sigemptyset(&chld);
    (void) sigaddset(&chld, SIGCHLD);
    wait = SBX_COUNT_FIRST;

    for ( ;; ) {
        while ((pid = waitpid(-1, &status, WNOHANG)) > 0) {
            if (pid == msg->pid) {
                msg->status = status;
                sbx_inner_look(box, count, &c, msg);
                return;
            }
        }

        if (count == -1) {
            (void) sigwaitinfo(&chld, NULL);
            continue;
        }

        ts.tv_sec = 0;
        ts.tv_nsec = (long) wait * 1000;

        if (sigtimedwait(&chld, NULL, &ts) != -1) {
            continue;
        }

        sbx_inner_look(box, count, &c, msg);

        if (sbx_inner_over(box, &c)) {
            msg->cpu_time = 1;
            return;
        }

        wait = wait < SBX_COUNT_MOST / 2 ? wait * 2 : SBX_COUNT_MOST;

        if (box->request.limits.cpu_seconds < SBX_UNLIMITED
            && wait > SBX_COUNT_MOST / 10)
        {
            wait = SBX_COUNT_MOST / 10;
        }
    }
}


static void
sbx_inner_look(const sbx_box_t *box, int count, sbx_count_t *c,
    sbx_inner_msg_t *msg)
{
    memset(c, 0, sizeof(sbx_count_t));
    sbx_inner_count(count, c);
    sbx_inner_usage(c, msg);

    if (box->seen != NULL) {
        *box->seen = *msg;
    }
}


/*
 * Of the living: their own time and that of their children which they waited
 * for.  What a process leaves to be reaped by the kernel (SIGCHLD ignored)
 * is not in it.
 */
static void
sbx_inner_count(int proc, sbx_count_t *c)
{
    int             fd;
    DIR            *dir;
    struct dirent  *entry;

    if (proc == -1) {
        return;
    }

    fd = openat(proc, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    dir = fd == -1 ? NULL : fdopendir(fd);

    if (dir == NULL) {
        if (fd != -1) {
            (void) close(fd);
        }

        return;
    }

    while ((entry = readdir(dir)) != NULL) {
        if (isdigit((unsigned char) entry->d_name[0])
            && strcmp(entry->d_name, "1") != 0)
        {
            sbx_inner_count_one(proc, entry->d_name, c);
        }
    }

    (void) closedir(dir);
}


static void
sbx_inner_count_one(int proc, const char *pid, sbx_count_t *c)
{
    char               name[NAME_MAX + 8], text[1024], *p;
    unsigned long long user, system, child_user, child_system, threads;
    uint64_t           tick, memory;

    (void) snprintf(name, sizeof(name), "%s/stat", pid);

    if (sbx_read_at(proc, name, text, sizeof(text)) <= 0) {
        return;
    }

    p = strrchr(text, ')');

    if (p == NULL
        || sscanf(p + 1, " %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u"
                  " %llu %llu %llu %llu %*d %*d %llu", &user, &system,
                  &child_user, &child_system, &threads)
           != 5)
    {
        return;
    }

    tick = 1000000 / (uint64_t) sysconf(_SC_CLK_TCK);
    c->user_us += (user + child_user) * tick;
    c->system_us += (system + child_system) * tick;
    c->processes += threads;

    memory = sbx_inner_count_memory(proc, pid);

    if (memory > c->memory_peak) {
        c->memory_peak = memory;
    }
}


/* The most that it ever had; 0 for a zombie. */
static uint64_t
sbx_inner_count_memory(int proc, const char *pid)
{
    char                name[NAME_MAX + 8], text[2048], *p;
    unsigned long long  kb;

    (void) snprintf(name, sizeof(name), "%s/status", pid);

    if (sbx_read_at(proc, name, text, sizeof(text)) <= 0) {
        return 0;
    }

    p = strstr(text, "\nVmHWM:");

    return p != NULL && sscanf(p + 7, "%llu kB", &kb) == 1 ? kb * 1024 : 0;
}


static void
sbx_inner_usage(const sbx_count_t *c, sbx_inner_msg_t *msg)
{
    uint64_t       memory;
    struct rusage  ru;

    if (getrusage(RUSAGE_CHILDREN, &ru) == -1) {
        return;
    }

    msg->user_us = (uint64_t) ru.ru_utime.tv_sec * 1000000
                   + (uint64_t) ru.ru_utime.tv_usec + c->user_us;
    msg->system_us = (uint64_t) ru.ru_stime.tv_sec * 1000000
                     + (uint64_t) ru.ru_stime.tv_usec + c->system_us;
    memory = (uint64_t) ru.ru_maxrss * 1024;
    memory = memory > c->memory_peak ? memory : c->memory_peak;

    if (memory > msg->memory_peak) {
        msg->memory_peak = memory;
    }

    msg->read_bytes = (uint64_t) ru.ru_inblock * 512;
    msg->written_bytes = (uint64_t) ru.ru_oublock * 512;

    if (c->processes > msg->processes_peak) {
        msg->processes_peak = c->processes;
    }
}


static int
sbx_inner_over(const sbx_box_t *box, const sbx_count_t *c)
{
    uint64_t       used;
    struct rusage  ru;

    if (box->request.limits.cpu_seconds >= SBX_UNLIMITED
        || getrusage(RUSAGE_CHILDREN, &ru) == -1)
    {
        return 0;
    }

    used = c->user_us + c->system_us
           + ((uint64_t) ru.ru_utime.tv_sec + (uint64_t) ru.ru_stime.tv_sec)
             * 1000000
           + (uint64_t) ru.ru_utime.tv_usec + (uint64_t) ru.ru_stime.tv_usec;

    return used >= box->request.limits.cpu_seconds * 1000;
}
