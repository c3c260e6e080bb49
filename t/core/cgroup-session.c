/*
 * Groups of sessions and commands, on whichever version this machine has:
 * they are made, limit, are found again by another broker, and go.
 */

#include "isolate.h"

#include "tap.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>


#define ID   "itest0000000000000000000001"
#define MB   (1ull << 20)


static sbx_cgroup_t  *cg;
static sbx_limits_t   limits = {
    .memory = 64 * MB, .cpus = 500, .processes = 20, .disk = 16 * MB,
    .cpu_seconds = SBX_UNLIMITED
};


typedef struct {
    sbx_cgroup_command_t  *cc;
    int                    fds[SBX_TASK_FDS_MAX];
    unsigned               nfds;
    uint32_t               mask;
    uint32_t               attach;
} command_t;


static int
command_open(sbx_cgroup_session_t *cs, uint32_t number,
    const sbx_exec_limits_t *lower, command_t *c)
{
    sbx_error_t  e;

    if (sbx_cgroup_command_create(cs, number, &c->cc, &e) == -1
        || (lower != NULL && sbx_cgroup_command_limit(c->cc, lower, &e) == -1))
    {
        printf("# %s: %s\n", e.text, strerror(e.err));
        return -1;
    }

    c->nfds = sbx_cgroup_command_fds(c->cc, c->fds, &c->mask, &c->attach);

    return c->nfds ? 0 : -1;
}


/* The descriptor of a bit, -1 if the kernel has none. */
static int
command_fd(const command_t *c, uint32_t bit)
{
    uint32_t  b;
    unsigned  i;

    i = c->attach;

    for (b = SBX_TASK_FD_KILL; b < bit; b <<= 1) {
        i += (c->mask & b) != 0;
    }

    return (c->mask & bit) ? c->fds[i] : -1;
}


static uint64_t
command_number(const command_t *c, uint32_t bit, const char *key)
{
    char         text[1024];
    ssize_t      n;
    const char  *p;

    n = pread(command_fd(c, bit), text, sizeof(text) - 1, 0);
    text[n > 0 ? n : 0] = '\0';

    if (key == NULL) {
        return strtoull(text, NULL, 10);
    }

    p = strstr(text, key);

    return (p == NULL) ? 0 : strtoull(p + strlen(key), NULL, 10);
}


/* Runs body() in the command's group; returns when it has entered it. */
static pid_t
command_fork(const int *fds, unsigned attach, int (*body)(void))
{
    int       entered[2];
    char      byte;
    pid_t     pid;
    unsigned  i;

    if (pipe2(entered, O_CLOEXEC) == -1) {
        return -1;
    }

    (void) fflush(stdout);
    pid = fork();

    if (pid != 0) {
        (void) close(entered[1]);
        (void) !read(entered[0], &byte, 1);
        (void) close(entered[0]);

    } else {
        for (i = 0; i < attach; i++) {
            if (write(fds[i], "0", 1) != 1) {
                _exit(100);
            }
        }

        (void) close(entered[1]);
        _exit(body());
    }

    return pid;
}


static int
command_wait(pid_t pid)
{
    int  status;

    return (waitpid(pid, &status, 0) == pid) ? status : -1;
}


/* Orphans count until they are reaped, which is ours to do here. */
static void
reap(void)
{
    while (waitpid(-1, NULL, WNOHANG) > 0) { /* void */ }
}


static void
command_close(command_t *c)
{
    int          rc;
    unsigned     i;
    sbx_error_t  e;

    for (i = 0; i < c->nfds; i++) {
        (void) close(c->fds[i]);
    }

    for (i = 0; i < 1000; i++) {
        reap();
        rc = sbx_cgroup_command_remove(c->cc, &e);

        if (rc != 1) {
            break;
        }

        (void) usleep(1000);
    }

    reap();
    ok(rc == 0, "its group goes");
}


static int
body_nothing(void)
{
    return 7;
}


static int
body_memory(void)
{
    char  *p;

    p = mmap(NULL, 256 * MB, PROT_READ|PROT_WRITE,
             MAP_PRIVATE|MAP_ANONYMOUS, -1, 0);
    memset(p, 1, 256 * MB);

    return 0;
}


static int
body_fork(void)
{
    int    n;
    pid_t  pid;

    for (n = 0; n < 100; n++) {
        pid = fork();

        if (pid == -1) {
            break;
        }

        if (pid == 0) {
            (void) pause();
        }
    }

    return n;
}


/* The megabytes that 40 connections hold unread, or what killed it. */
static int
body_sockets(void)
{
    int                  i, door, end;
    uint64_t             held;
    ssize_t              n;
    socklen_t            len;
    struct sockaddr_in   addr;
    static char          buf[65536];

    memset(&addr, 0, sizeof(addr));
    addr.sin_family = AF_INET;
    addr.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    len = sizeof(addr);
    held = 0;
    door = socket(AF_INET, SOCK_STREAM, 0);

    if (bind(door, (struct sockaddr *) &addr, len) == -1
        || listen(door, 64) == -1
        || getsockname(door, (struct sockaddr *) &addr, &len) == -1)
    {
        return 255;
    }

    for (i = 0; i < 40; i++) {
        end = socket(AF_INET, SOCK_STREAM, 0);

        if (connect(end, (struct sockaddr *) &addr, len) == -1
            || accept(door, NULL, NULL) == -1)
        {
            return 255;
        }

        while ((n = send(end, buf, sizeof(buf), MSG_DONTWAIT)) > 0) {
            held += (uint64_t) n;
        }
    }

    return held / MB < 254 ? (int) (held / MB) : 254;
}


static int
body_spin(void)
{
    uint64_t  until;

    until = sbx_now_us() + 400000;

    while (sbx_now_us() < until) { /* void */ }

    return 0;
}


static int
body_pause(void)
{
    (void) pause();

    return 0;
}


static void
test_commands(sbx_cgroup_session_t *cs)
{
    int                status;
    pid_t              pid;
    command_t          c;
    sbx_usage_t        usage;
    sbx_error_t        e;
    sbx_exec_limits_t  lower = { .memory = 32 * MB, .cpus = SBX_UNSET,
                                 .processes = 5 };

    ok(command_open(cs, 1, NULL, &c) == 0, "a command's group");
    status = command_wait(command_fork(c.fds, c.attach, body_nothing));
    ok(WIFEXITED(status) && WEXITSTATUS(status) == 7, "it is entered");
    ok((c.mask & (SBX_TASK_FD_ATTACH|SBX_TASK_FD_KILL|SBX_TASK_FD_CPU
                  |SBX_TASK_FD_OOM|SBX_TASK_FD_PIDS_EVENTS
                  |SBX_TASK_FD_THROTTLE))
       == (SBX_TASK_FD_ATTACH|SBX_TASK_FD_KILL|SBX_TASK_FD_CPU
           |SBX_TASK_FD_OOM|SBX_TASK_FD_PIDS_EVENTS|SBX_TASK_FD_THROTTLE),
       "what every kernel tells is there");
    command_close(&c);

    ok(command_open(cs, 2, NULL, &c) == 0, "another");
    is_int(command_number(&c, SBX_TASK_FD_OOM, "oom_kill "), 0,
           "nothing killed");
    status = command_wait(command_fork(c.fds, c.attach, body_memory));
    ok(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL,
       "the session's memory limit kills");
    ok(command_number(&c, SBX_TASK_FD_OOM, "oom_kill ") >= 1,
           "and is counted for the command");

    if (c.mask & SBX_TASK_FD_MEMORY_PEAK) {
        ok(command_number(&c, SBX_TASK_FD_MEMORY_PEAK, NULL) > 48 * MB
           && command_number(&c, SBX_TASK_FD_MEMORY_PEAK, NULL) <= 64 * MB,
           "the peak is told");
    }

    command_close(&c);

    ok(command_open(cs, 3, &lower, &c) == 0, "one with limits of its own");
    status = command_wait(command_fork(c.fds, c.attach, body_memory));
    ok(WIFSIGNALED(status), "its memory limit kills");

    if (c.mask & SBX_TASK_FD_MEMORY_PEAK) {
        ok(command_number(&c, SBX_TASK_FD_MEMORY_PEAK, NULL) <= 32 * MB,
           "at its own limit");
    }

    pid = command_fork(c.fds, c.attach, body_fork);
    status = command_wait(pid);
    ok(WIFEXITED(status) && WEXITSTATUS(status) == 4,
       "its process limit holds");
    ok(command_number(&c, SBX_TASK_FD_PIDS_EVENTS, "max ") >= 1,
       "and is counted for the command");
    ok(write(command_fd(&c, SBX_TASK_FD_KILL), "1", 1) == 1,
       "what it left behind is killed by its descriptor");
    command_close(&c);

    ok(command_open(cs, 4, NULL, &c) == 0, "one that forks");
    status = command_wait(command_fork(c.fds, c.attach, body_fork));
    is_int(status, 19 << 8, "the session's process limit holds");
    ok(sbx_cgroup_session_usage(cs, &usage, &e) == 0
       && usage.processes == 19, "the processes are counted");
    ok(sbx_cgroup_session_kill(cs, &e) == 0, "all are killed at once");
    command_close(&c);

    ok(command_open(cs, 6, NULL, &c) == 0, "one that fills its sockets");
    status = command_wait(command_fork(c.fds, c.attach, body_sockets));
    ok((WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL)
       || (WIFEXITED(status) && WEXITSTATUS(status) <= 64),
       "what they hold is within the memory limit");
    printf("# status %#x\n", (unsigned) status);
    command_close(&c);

    ok(command_open(cs, 5, NULL, &c) == 0, "one that computes");
    status = command_wait(command_fork(c.fds, c.attach, body_spin));
    ok(command_number(&c, SBX_TASK_FD_CPU, "usage_usec ") > 50000
       && command_number(&c, SBX_TASK_FD_CPU, "usage_usec ") < 330000,
       "half a processor gets half the time");
    command_close(&c);

    ok(sbx_cgroup_session_usage(cs, &usage, &e) == 0 && usage.cpu_us > 50000
       && usage.memory_peak > 30 * MB && usage.processes == 0,
       "the session's use is told");
}


static int
body_forever(void)
{
    while (getpid() != 0) { /* void */ }

    return 0;
}


/* Until the command's processor time grows, or no longer does. */
static int
await_computing(const command_t *c, int wanted)
{
    int       tries;
    uint64_t  before;

    for (tries = 0; tries < 100; tries++) {
        before = command_number(c, SBX_TASK_FD_CPU, "usage_usec ");
        (void) usleep(50000);

        if ((command_number(c, SBX_TASK_FD_CPU, "usage_usec ") != before)
            == wanted)
        {
            return 1;
        }
    }

    return 0;
}


/* Until the kernel has told that all stand still. */

static int
await_frozen(int events)
{
    int            frozen;
    struct pollfd  pfd;

    pfd.fd = events;
    pfd.events = POLLPRI;

    do {
        frozen = sbx_cgroup_frozen(events);
    } while (frozen == 0 && poll(&pfd, 1, 20000) == 1);

    return frozen;
}


static void
test_freeze(sbx_cgroup_session_t *cs)
{
    int          status, events;
    pid_t        pid;
    command_t    c;
    sbx_error_t  e;

    ok(command_open(cs, 10, NULL, &c) == 0, "a command");
    pid = command_fork(c.fds, c.attach, body_forever);
    events = sbx_cgroup_session_events(cs);

    ok(sbx_cgroup_frozen(events) == 0, "not frozen");
    ok(sbx_cgroup_session_freeze(cs, 1, &e) == 0
       && sbx_cgroup_session_freeze(cs, 1, &e) == 0, "frozen, twice");
    ok(await_frozen(events) == 1, "an event tells when all are");
    (void) close(events);
    ok(await_computing(&c, 0), "it stops");
    ok(sbx_cgroup_session_freeze(cs, 0, &e) == 0, "thawed");
    ok(await_computing(&c, 1), "it goes on");
    (void) tap_kill(pid, SIGKILL);
    (void) waitpid(pid, &status, 0);

    pid = command_fork(c.fds, c.attach, body_pause);
    ok(sbx_cgroup_session_freeze(cs, 1, &e) == 0
       && sbx_cgroup_session_kill(cs, &e) == 0
       && waitpid(pid, &status, 0) == pid
       && WIFSIGNALED(status), "the frozen die when they are killed");
    ok(sbx_cgroup_session_freeze(cs, 0, &e) == 0, "thawed");
    command_close(&c);
}


static void
test_ahead(sbx_cgroup_session_t *cs)
{
    uint64_t     before, after;
    command_t    c;
    sbx_error_t  e;

    ok(command_open(cs, 11, NULL, &c) == 0, "a command");
    ok(sbx_cgroup_session_cpu(cs, &before) == 0, "the session's time");
    (void) tap_kill(command_fork(c.fds, c.attach, body_forever), 0);
    ok(await_computing(&c, 1), "it computes");
    ok(sbx_cgroup_session_cpu(cs, &after) == 0 && after > before,
       "and the time goes on");
    ok(sbx_cgroup_session_ahead(cs, 1) == 0
       && sbx_cgroup_session_ahead(cs, 1) == 0, "ahead, twice");
    ok(sbx_cgroup_session_ahead(cs, 0) == 0, "as others again");
    ok(sbx_cgroup_session_kill(cs, &e) == 0 && wait(NULL) > 0, "killed");
    command_close(&c);
}


static void
found_id(const char *id, void *data)
{
    unsigned  *n;

    n = data;
    *n += strcmp(id, ID) == 0 ? 1 : 100;
}


static void
test_files(sbx_cgroup_session_t *cs)
{
    int          status;
    pid_t        pid;
    unsigned     n;
    const int   *fds;
    command_t    c;
    sbx_error_t  e;

    ok(command_open(cs, 20, NULL, &c) == 0
       && WEXITSTATUS(command_wait(command_fork(c.fds, c.attach, body_fork)))
          == 19, "a session full of processes");

    n = sbx_cgroup_files_fds(cs, &fds);
    ok(n == c.attach, "the group for files has as many attach files");
    status = command_wait(command_fork(fds, n, body_nothing));
    ok(WIFEXITED(status) && WEXITSTATUS(status) == 7,
       "still has room for who serves files");
    pid = command_fork(fds, n, body_fork);
    is_int(WEXITSTATUS(command_wait(pid)), 39, "but not without end");
    ok(sbx_cgroup_session_kill(cs, &e) == 0, "killed");
    command_close(&c);

    ok(sbx_cgroup_init_fds(cs, &fds) == n, "init's group is entered so too");
    status = command_wait(command_fork(fds, n, body_memory));
    ok(WIFSIGNALED(status), "and has a limit of its own");
}


typedef struct {
    uint32_t  sum;
    uint32_t  busy;
} groups_t;


static int
found_command(sbx_cgroup_command_t *cc, uint32_t number, int busy,
    void *data)
{
    groups_t  *groups;

    groups = data;
    groups->sum += number;
    groups->busy += busy ? number : 0;
    free(cc);

    return 0;
}


static void
test_adopt(sbx_cgroup_session_t *cs, const char *name)
{
    int                    rc;
    pid_t                  pid;
    unsigned               n, i;
    groups_t               groups;
    command_t              a, b;
    sbx_error_t            e;
    sbx_cgroup_t          *old;
    sbx_cgroup_session_t  *again;

    ok(command_open(cs, 30, NULL, &a) == 0 && command_open(cs, 31, NULL, &b)
       == 0, "two commands");
    pid = command_fork(a.fds, a.attach, body_pause);

    for (i = 0; i < a.nfds; i++) {
        (void) close(a.fds[i]);
    }

    for (i = 0; i < b.nfds; i++) {
        (void) close(b.fds[i]);
    }

    /* as a broker's death would leave it */
    free(a.cc);
    free(b.cc);
    sbx_cgroup_session_free(cs);
    old = cg;

    ok(sbx_cgroup_open("", name, &cg, &e) == 0, "another broker comes");
    n = 0;
    ok(sbx_cgroup_list(cg, found_id, &n, &e) == 0 && n == 1,
       "it finds the session");
    ok(sbx_cgroup_session_create(cg, ID, &limits, 1, &again, &e) == 0,
       "and takes it up");

    memset(&groups, 0, sizeof(groups));
    ok(sbx_cgroup_command_list(again, found_command, &groups, &e) == 0
       && groups.sum == 30 + 31 && groups.busy == 30,
       "and its commands' groups, the empty one, too, which may be in use");
    ok(command_open(again, 32, NULL, &a) == 0, "commands go on");
    command_close(&a);

    ok(sbx_cgroup_session_remove(again, &e) == 1
       || waitpid(pid, NULL, WNOHANG) >= 0, "the session is removed");
    (void) waitpid(pid, NULL, 0);

    for (i = 0; i < 1000; i++) {
        rc = sbx_cgroup_session_remove(again, &e);

        if (rc != 1) {
            break;
        }

        (void) usleep(1000);
    }

    is_int(rc, 0, "nothing of it is left");
    sbx_cgroup_session_free(again);

    n = 0;
    ok(sbx_cgroup_list(cg, found_id, &n, &e) == 0 && n == 0,
       "nor found any more");
    ok(sbx_cgroup_session_create(cg, ID, &limits, 1, &again, &e) == -1
       && e.code == SBX_E_SESSION, "nor taken up");
    is_int(sbx_cgroup_sweep(cg, ID, &e), 0, "sweeping nothing is no error");
    ok(sbx_cgroup_sweep(cg, "../x", &e) == -1, "an id is no path");

    sbx_cgroup_close(old);
}


static int
broker(void)
{
    char                   name[64];
    const char            *skipped;
    unsigned               version;
    sbx_error_t            e;
    sbx_enforcement_t      enf;
    sbx_cgroup_session_t  *cs;

    (void) snprintf(name, sizeof(name), "sbx-test-%d", (int) getpid());

    if (sbx_cgroup_open("", name, &cg, &e) == -1) {
        skipped = getenv("SBX_TEST_CGROUP");

        if (skipped == NULL) {
            return skip_all(e.text);
        }

        ok(0, "cgroups: %s", e.text);
        return done_testing();
    }

    version = sbx_cgroup_version(cg);
    printf("# cgroup %s\n", version == SBX_BY_CGROUP_V2 ? "v2" : "v1");
    sbx_cgroup_enforcement(cg, &enf);
    ok(enf.memory == version && enf.processes != SBX_BY_NONE
       && enf.cpus != SBX_BY_NONE && enf.disk == SBX_BY_TMPFS,
       "each limit has a word for how it is enforced");

    ok(sbx_cgroup_session_create(cg, "no/id", &limits, 0, &cs, &e) == -1,
       "a bad id is refused");
    ok(sbx_cgroup_session_create(cg, ID, &limits, 0, &cs, &e) == 0,
       "a session's groups");

    test_commands(cs);
    test_freeze(cs);
    test_ahead(cs);
    test_files(cs);
    test_adopt(cs, name);

    sbx_cgroup_close(cg);

    return done_testing();
}


int
main(void)
{
    int    status;
    pid_t  pid;

    if (geteuid() != 0) {
        return skip_all("needs root");
    }

    /* the one that opens the branch may move its parent: not the shell */

    pid = fork();

    if (pid == 0) {
        (void) prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0);
        exit(broker());
    }

    return (waitpid(pid, &status, 0) == pid && WIFEXITED(status))
           ? WEXITSTATUS(status) : 1;
}
