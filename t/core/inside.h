/*
 * For tests that need a live session: a stand-in for the keeper (main's
 * first process, which only reaps), for the broker (its child, which runs
 * the test) and for init (this same program, which runs shell commands in
 * the session and sends back what they print).
 */

#ifndef SBX_TEST_INSIDE_H
#define SBX_TEST_INSIDE_H

#include "isolate.h"
#include "wire.h"

#include "tap.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>


/* No test uses all of it. */
#pragma GCC diagnostic ignored "-Wunused-function"

#define INSIDE_UID        1800000000u
#define INSIDE_WAIT       120000    /* an emulated machine is slow */

typedef struct {
    uint32_t   user;                  /* sbx_user_t */
    uint32_t   nattach;
    uint32_t   nofilter;
    char       command[8000];         /* for sh, or "@name argument" */
} inside_request_t;

typedef struct {
    int        status;                /* of wait() */
    uint32_t   size;
    char       out[60000];
} inside_reply_t;

typedef struct {
    char                   id[SBX_ID_MAX + 1];
    char                   dir[256];
    sbx_cgroup_session_t  *cgroup;
    sbx_launched_t         launched;
    int                    disk;
    uint32_t               commands;
} inside_session_t;


static char           inside_state[128];
static sbx_cgroup_t  *inside_cgroup;
static sbx_storage_t *inside_storage;     /* NULL: tmpfs */
static void          *inside_filter, *inside_init_filter;
static size_t         inside_filter_size, inside_init_filter_size;
static int            inside_exe = -1;
static inside_reply_t inside_reply;

/* Of the sessions that are launched from now on. */
static const char    *inside_packages, *inside_trust;
static const char    *inside_rules, *inside_binds;
static size_t         inside_rules_size, inside_binds_size;

/* Of commands from now on: without the filter, as if it let all pass. */
static int            inside_nofilter;

/* "@name argument" of the test itself; runs in the command's process. */
static int inside_builtin(const char *name, const char *argument);


/*
 * ---- init's stand-in -------------------------------------------------------
 */

static void
inside_child(const inside_request_t *rq, const int *fds, int out,
    const char *filter, size_t filter_size)
{
    unsigned  i;
    char     *space, name[64];

    for (i = 0; i < rq->nattach; i++) {
        if (write(fds[i], "0", 1) != 1) {
            (void) dprintf(out, "cannot attach: %s\n", strerror(errno));
            _exit(98);
        }
    }

    (void) dup2(out, 1);
    (void) dup2(out, 2);
    (void) setsid();

    if (syscall(SYS_close_range, 3, ~0u, 0) == -1) {
        _exit(97);
    }

    if (rq->user == SBX_USER_USER
        && (setgroups(0, NULL) == -1 || setresgid(1000, 1000, 1000) == -1
            || setresuid(1000, 1000, 1000) == -1))
    {
        _exit(96);
    }

    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == -1
        || (!rq->nofilter && filter_size != 0
            && sbx_seccomp_load(filter, filter_size) == -1))
    {
        _exit(95);
    }

    if (chdir("/home/user") == -1) {
        (void) !chdir("/");
    }

    (void) setenv("PATH", "/usr/local/bin:/usr/bin:/bin", 1);
    (void) setenv("HOME", rq->user == SBX_USER_USER ? "/home/user" : "/root",
                  1);

    if (rq->command[0] == '@') {
        (void) snprintf(name, sizeof(name), "%.60s", rq->command + 1);
        space = strchr(name, ' ');

        if (space != NULL) {
            *space = '\0';
        }

        space = strchr(rq->command, ' ');
        i = (unsigned) inside_builtin(name, space ? space + 1 : "");
        (void) fflush(NULL);
        _exit((int) i);
    }

    (void) execl("/bin/sh", "sh", "-c", rq->command, (char *) NULL);
    _exit(127);
}


static int
inside_main(void)
{
    int                status, pipefd[2], fds[SBX_TASK_FDS_MAX];
    char              *map, *filter;
    pid_t              pid, got;
    ssize_t            n;
    unsigned           nfds, i;
    struct stat        st;
    sbx_init_config_t  config;

    static inside_request_t  rq;
    static inside_reply_t    reply;

    (void) fcntl(3, F_SETFL, 0);

    if (fstat(4, &st) == -1) {
        return 90;
    }

    map = mmap(NULL, (size_t) st.st_size, PROT_READ, MAP_PRIVATE, 4, 0);

    if (map == MAP_FAILED) {
        return 91;
    }

    memcpy(&config, map, sizeof(config));
    filter = map + sizeof(config) + config.env_size;

    for ( ;; ) {
        nfds = sbx_nelts(fds);
        n = sbx_wire_recv(3, &rq, sizeof(rq), fds, &nfds, 0);

        if (n != sizeof(rq)) {
            return 92;
        }

        if (pipe2(pipefd, O_CLOEXEC) == -1) {
            return 93;
        }

        pid = fork();

        if (pid == 0) {
            inside_child(&rq, fds, pipefd[1], filter, config.filter_size);
        }

        (void) close(pipefd[1]);

        for (i = 0; i < nfds; i++) {
            (void) close(fds[i]);
        }

        reply.size = 0;

        while (pid > 0
               && (n = read(pipefd[0], reply.out + reply.size,
                            sizeof(reply.out) - reply.size))
                  > 0)
        {
            reply.size += (uint32_t) n;
        }

        (void) close(pipefd[0]);

        reply.status = 99 << 8;

        while (pid > 0) {
            got = waitpid(-1, &status, 0);

            if (got == pid) {
                reply.status = status;
                break;
            }
        }

        (void) send(3, &reply, sizeof(reply), 0);
    }
}


/*
 * ---- the broker's stand-in -------------------------------------------------
 */

static void
inside_limits(sbx_limits_t *l)
{
    memset(l, 0, sizeof(sbx_limits_t));

    l->memory = 128u << 20;
    l->cpus = 1000;
    l->cpu_seconds = SBX_UNLIMITED;
    l->processes = 64;
    l->max_file_size = 64u << 20;
    l->open_files = 256;
    l->stack = 8u << 20;
    l->disk = 32u << 20;
    l->inodes = 2000;
    l->exec_timeout = 60000;
    l->max_output = 1u << 20;
    l->timeout = 300000;
}


static void
inside_setup(void)
{
    char         path[256];
    sbx_error_t  e;

    (void) snprintf(inside_state, sizeof(inside_state),
                    "/tmp/sbx-state-XXXXXX");

    if (mkdtemp(inside_state) == NULL) {
        ok(0, "state directory: %s", strerror(errno));
        exit(done_testing());
    }

    (void) snprintf(path, sizeof(path), "%s/sessions", inside_state);
    (void) mkdir(path, 0700);
    (void) snprintf(path, sizeof(path), "sbx-test-%d", (int) getpid());

    /* with no more rights than the broker has */

    if (sbx_caps_reduce_broker(&e) == -1
        || sbx_cgroup_open("", path, &inside_cgroup, &e) == -1
        || sbx_base_prepare(inside_state, &e) == -1
        || sbx_init_exe("/proc/self/exe", &inside_exe, &e) == -1
        || sbx_seccomp_command(&inside_filter, &inside_filter_size, &e) == -1
        || sbx_seccomp_init(&inside_init_filter, &inside_init_filter_size, &e)
           == -1)
    {
        ok(0, "set up: %s (%s)", e.text, strerror(e.err));
        exit(done_testing());
    }
}


static int
inside_launch(inside_session_t *s, const char *id,
    const sbx_limits_t *limits, const char *template, sbx_error_t *e)
{
    int            rc;
    sbx_launch_t   launch;
    struct pollfd  pfd;

    memset(s, 0, sizeof(inside_session_t));
    s->disk = -1;
    (void) snprintf(s->id, sizeof(s->id), "%s", id);
    (void) snprintf(s->dir, sizeof(s->dir), "%s/sessions/%s", inside_state,
                    id);

    if (mkdir(s->dir, 0700) == -1) {
        return sbx_error(e, errno, SBX_E_INTERNAL, "mkdir");
    }

    if (sbx_cgroup_session_create(inside_cgroup, id, limits, 0, &s->cgroup,
                                  e)
        == -1)
    {
        return -1;
    }

    memset(&launch, 0, sizeof(launch));
    launch.id = id;
    launch.state_dir = inside_state;
    launch.session_dir = s->dir;
    launch.template = template;
    launch.template_dir = inside_state;
    launch.host_name = "sandbox";
    launch.uid_first = INSIDE_UID;
    launch.limits = *limits;
    launch.cgroup = s->cgroup;
    launch.init_exe = inside_exe;
    launch.env = "";
    launch.tenant = "acme";
    launch.rules = inside_rules;
    launch.rules_size = inside_rules_size;
    launch.binds = inside_binds;
    launch.binds_size = inside_binds_size;
    launch.packages = inside_packages;
    launch.trust = inside_trust;
    launch.trust_size = inside_trust != NULL ? strlen(inside_trust) : 0;
    launch.filter = inside_filter;
    launch.filter_size = inside_filter_size;
    launch.init_filter = inside_init_filter;
    launch.init_filter_size = inside_init_filter_size;
    launch.flags = SBX_LAUNCH_OWN_ACCOUNT;
    launch.storage = inside_storage;
    launch.disk = &s->disk;

    if (sbx_launch_start(&launch, &s->launched, e) == -1) {
        return -1;
    }

    do {
        pfd.fd = s->launched.status;
        pfd.events = POLLIN;

        if (poll(&pfd, 1, INSIDE_WAIT) != 1) {
            return sbx_error(e, 0, SBX_E_INTERNAL, "no status in time");
        }

        rc = sbx_launch_event(&s->launched, e);

    } while (rc == 0);

    return (rc == 1) ? 0 : -1;
}


/* Called, where it is set, before what a command left behind is killed. */
static void  (*inside_left)(void);


/* Runs a command in a group of its own; the reply is in inside_reply. */
static int
inside_run_as(inside_session_t *s, sbx_user_t user,
    const sbx_exec_limits_t *limits, const char *command)
{
    int                    fds[SBX_TASK_FDS_MAX];
    ssize_t                n;
    uint32_t               mask, attach;
    unsigned               nfds, i;
    sbx_error_t            e;
    struct pollfd          pfd;
    sbx_cgroup_command_t  *cc;

    static inside_request_t  rq;

    memset(&rq, 0, sizeof(rq));
    memset(&inside_reply, 0, sizeof(inside_reply));
    inside_reply.status = 99 << 8;

    rq.user = user;
    rq.nofilter = (uint32_t) inside_nofilter;
    (void) snprintf(rq.command, sizeof(rq.command), "%s", command);

    if (sbx_cgroup_command_create(s->cgroup, ++s->commands, &cc, &e) == -1
        || (limits != NULL && sbx_cgroup_command_limit(cc, limits, &e) == -1))
    {
        printf("# %s\n", e.text);
        return -1;
    }

    nfds = sbx_cgroup_command_fds(cc, fds, &mask, &attach);
    rq.nattach = attach;

    n = sbx_wire_send(s->launched.control, &rq, sizeof(rq), fds, attach, 0);

    for (i = 0; i < nfds; i++) {
        (void) close(fds[i]);
    }

    pfd.fd = s->launched.control;
    pfd.events = POLLIN;

    if (n != sizeof(rq) || poll(&pfd, 1, INSIDE_WAIT) != 1
        || recv(s->launched.control, &inside_reply, sizeof(inside_reply), 0)
           != sizeof(inside_reply))
    {
        printf("# no reply to: %.200s\n", command);
        return -1;
    }

    inside_reply.out[inside_reply.size < sizeof(inside_reply.out)
                     ? inside_reply.size
                     : sizeof(inside_reply.out) - 1] = '\0';

    if (inside_left != NULL) {
        inside_left();
        inside_left = NULL;
    }

    while (sbx_cgroup_command_remove(cc, &e) == 1) {
        /* what the command left behind goes with it here */
        (void) sbx_cgroup_session_kill(s->cgroup, &e);
        (void) usleep(1000);
    }

    return 0;
}


static int
inside_run(inside_session_t *s, const char *command)
{
    return inside_run_as(s, SBX_USER_USER, NULL, command);
}


/* The shell command must succeed; what it prints is told if not. */
static int
inside_ok_as(inside_session_t *s, sbx_user_t user, const char *command,
    const char *name)
{
    if (inside_run_as(s, user, NULL, command) == -1
        || !ok(inside_reply.status == 0, "%s", name))
    {
        printf("# status %#x: %.3000s\n", (unsigned) inside_reply.status,
               inside_reply.out);
        return 0;
    }

    return 1;
}


static int
inside_ok(inside_session_t *s, const char *command, const char *name)
{
    return inside_ok_as(s, SBX_USER_USER, command, name);
}


static int
inside_is(inside_session_t *s, const char *command, const char *expected,
    const char *name)
{
    if (inside_run(s, command) == -1) {
        return ok(0, "%s", name);
    }

    return is_str(inside_reply.out, expected, name);
}


/* 0 once nothing of the session is left. */
static int
inside_end(inside_session_t *s)
{
    int            rc, tries;
    sbx_error_t    e;
    struct pollfd  pfd;

    if (s->cgroup == NULL) {
        return 0;
    }

    (void) sbx_cgroup_session_end(s->cgroup, &e);

    pfd.fd = s->launched.pidfd;
    pfd.events = POLLIN;

    if (s->launched.pid != 0) {
        (void) poll(&pfd, 1, INSIDE_WAIT);
    }

    for (tries = 0; tries < 2000; tries++) {
        rc = sbx_cgroup_session_remove(s->cgroup, &e);

        if (rc != 1) {
            break;
        }

        (void) usleep(1000);
    }

    if (rc == -1) {
        printf("# %s: %s\n", e.text, strerror(e.err));
    }

    sbx_cgroup_session_free(s->cgroup);
    s->cgroup = NULL;

    if (s->launched.pid != 0) {
        (void) close(s->launched.pidfd);
        (void) close(s->launched.control);
        (void) close(s->launched.status);
        (void) close(s->launched.netns);
    }

    if (s->disk != -1) {
        (void) close(s->disk);
    }

    (void) rmdir(s->dir);

    return rc;
}


static void
inside_done(void)
{
    char  command[256];

    sbx_cgroup_close(inside_cgroup);
    (void) close(inside_exe);
    free(inside_filter);
    free(inside_init_filter);

    (void) snprintf(command, sizeof(command), "rm -rf '%s'", inside_state);
    (void) !system(command);
}


/* Runs test() as the broker below a process that reaps for it. */
static int
inside_test(char **argv, int (*test)(void))
{
    int    status, result;
    pid_t  pid, got;

    if (strcmp(argv[0], "sandbox-init") == 0) {
        return inside_main();
    }

    if (geteuid() != 0) {
        return skip_all("needs root");
    }

    (void) fflush(stdout);
    pid = fork();

    if (pid == 0) {
        exit(test());
    }

    result = 255;

    for ( ;; ) {
        got = waitpid(-1, &status, 0);

        if (got == -1) {
            return result;
        }

        if (got == pid) {
            result = WIFEXITED(status) ? WEXITSTATUS(status) : 254;
        }
    }
}


#endif
