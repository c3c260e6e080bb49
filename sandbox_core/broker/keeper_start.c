/*
 * How a keeper comes to be: its directory, its lock, its socket, its rights.
 * What can be wrong with a machine or a configuration is found here, while
 * somebody waits for the report.
 */

#include "keeper.h"
#include "isolate.h"
#include "log.h"
#include "sandbox_fault.h"
#include "sandbox_util.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/capability.h>
#include <sys/file.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>


#define SBX_KEEPER_LOCK_WAIT    5000000      /* all in microseconds */
#define SBX_KEEPER_LOCK_STEP    20000
#define SBX_KEEPER_BACKLOG      64


static int sbx_keeper_state(sbx_keeper_t *k, sbx_error_t *e);
static int sbx_keeper_lock(sbx_keeper_t *k, sbx_error_t *e);
static int sbx_keeper_listen(sbx_keeper_t *k, sbx_error_t *e);
static int sbx_keeper_signals(sbx_keeper_t *k, sbx_error_t *e);
static int sbx_keeper_confine(sbx_error_t *e);
static int sbx_keeper_inherit(sbx_keeper_t *k, sbx_error_t *e);
static void sbx_keeper_notify(void);


/* The broker's: what the keeper may not lose from its bounding set. */

static const cap_value_t  sbx_keeper_bounding[] = {
    CAP_CHOWN, CAP_DAC_OVERRIDE, CAP_FOWNER, CAP_SETGID, CAP_SETUID,
    CAP_NET_ADMIN, CAP_SYS_CHROOT, CAP_SYS_ADMIN, CAP_MKNOD, CAP_SYS_RESOURCE
};


int
sbx_keeper_start(sbx_keeper_t *k, sbx_error_t *e)
{
    if (geteuid() != 0) {
        return sbx_error(e, EPERM, SBX_E_UNAVAILABLE,
                         "sessions need root: start the server as root, or "
                         "run sandbox-broker as a service of its own");
    }

    /* what its brokers would miss, told before there is any */

    if (k->options->inherit == -1 && sbx_preflight(NULL, e) != 0) {
        return -1;
    }

    if (sbx_log_open(k->options->log_path, e) != 0
        || sbx_process_hide(e) != 0
        || sbx_keeper_store_open(k, e) != 0
        || sbx_keeper_state(k, e) != 0
        || sbx_keeper_lock(k, e) != 0)
    {
        return -1;
    }

    sbx_process_raise_files();

    k->started = sbx_now_us();

    if (k->options->inherit != -1) {
        if (sbx_keeper_inherit(k, e) != 0) {
            return -1;
        }

    } else if (sbx_keeper_listen(k, e) != 0) {
        return -1;
    }

    if (sbx_keeper_confine(e) != 0 || sbx_keeper_signals(k, e) != 0) {
        return -1;
    }

    SBX_FAULT("keeper-start-confined");
    sbx_keeper_pid_file(k, "keeper.pid", getpid());

    return sbx_keeper_spawn(k, e);
}


static int
sbx_keeper_state(sbx_keeper_t *k, sbx_error_t *e)
{
    int           made;
    struct stat   st;
    const char   *dir;

    dir = k->options->state_dir;
    made = mkdir(dir, 0700) == 0;

    if (!made && errno != EEXIST) {
        return sbx_error(e, errno, SBX_E_UNAVAILABLE,
                         "cannot make the state directory \"%s\": make it, "
                         "owned by root and writable", dir);
    }

    k->state = open(dir, O_RDONLY|O_DIRECTORY|O_CLOEXEC);

    /* whom the socket is for has to come to it */

    if (k->state == -1
        || (made && k->options->socket_group != NULL
            && (fchown(k->state, 0, k->options->socket_gid) == -1
                || fchmod(k->state, 0710) == -1))
        || fstat(k->state, &st) == -1)
    {
        return sbx_error(e, errno, SBX_E_UNAVAILABLE,
                         "cannot open the state directory \"%s\"", dir);
    }

    /* whoever may rename in it could hand the broker a session of his own */

    if (st.st_uid != 0 || (st.st_mode & (S_IWGRP|S_IWOTH)) != 0) {
        return sbx_error(e, 0, SBX_E_UNAVAILABLE,
                         "the state directory \"%s\" must belong to root and "
                         "be writable by nobody else: chown root and chmod "
                         "go-w it", dir);
    }

    if (k->options->socket_group != NULL
        && (st.st_mode & (st.st_gid == k->options->socket_gid
                          ? S_IXGRP : S_IXOTH)) == 0)
    {
        sbx_log(SBX_LOG_WARN, NULL, 0, "the group \"%s\" cannot enter \"%s\" "
                "and so not reach its socket: chmod go+x it",
                k->options->socket_group, dir);
    }

    return 0;
}


static int
sbx_keeper_lock(sbx_keeper_t *k, sbx_error_t *e)
{
    char           pid[32];
    uint64_t       until;
    struct pollfd  pfd;

    k->lock = openat(k->state, "lock",
                     O_RDWR|O_CREAT|O_CLOEXEC|O_NOFOLLOW, 0600);

    if (k->lock == -1) {
        return sbx_error(e, errno, SBX_E_UNAVAILABLE,
                         "cannot write to the state directory \"%s\": mount "
                         "it writable or choose another",
                         k->options->state_dir);
    }

    until = sbx_now_us() + SBX_KEEPER_LOCK_WAIT;

    while (flock(k->lock, LOCK_EX|LOCK_NB) == -1) {

        if (errno != EWOULDBLOCK && errno != EINTR) {
            return sbx_error(e, errno, SBX_E_UNAVAILABLE,
                             "cannot lock \"%s/lock\"",
                             k->options->state_dir);
        }

        if (sbx_now_us() > until) {
            if (sbx_read_at(k->state, "keeper.pid", pid, sizeof(pid)) <= 0) {
                pid[0] = '\0';
            }

            return sbx_error(e, 0, SBX_E_UNAVAILABLE,
                             "another sandbox-broker (process %d) uses the "
                             "state directory \"%s\": end it, or give each "
                             "server its own", atoi(pid),
                             k->options->state_dir);
        }

        /* who started us may have found another keeper meanwhile */

        pfd.fd = k->options->standalone ? -1 : k->options->report;
        pfd.events = 0;
        pfd.revents = 0;

        if (poll(&pfd, 1, SBX_KEEPER_LOCK_STEP / 1000) == 1) {
            return sbx_error(e, 0, SBX_E_UNAVAILABLE,
                             "nobody waits for this keeper any more");
        }
    }

    return 0;
}


static int
sbx_keeper_listen(sbx_keeper_t *k, sbx_error_t *e)
{
    mode_t              mode;
    const char         *dir;
    sbx_auto_fd         fd = -1;
    struct sockaddr_un  addr;

    dir = k->options->state_dir;
    mode = k->options->socket_group != NULL ? 0660 : 0600;

    fd = socket(AF_UNIX, SOCK_SEQPACKET|SOCK_CLOEXEC|SOCK_NONBLOCK, 0);

    if (fd == -1) {
        return sbx_error(e, errno, SBX_E_INTERNAL, "socket() failed");
    }

    memset(&addr, 0, sizeof(struct sockaddr_un));
    addr.sun_family = AF_UNIX;
    memcpy(addr.sun_path, SBX_KEEPER_SOCKET, sizeof(SBX_KEEPER_SOCKET));

    /* by a relative name: the directory's may be longer than an address */

    (void) unlinkat(k->state, SBX_KEEPER_SOCKET, 0);

    if (fchdir(k->state) == -1
        || bind(fd, (struct sockaddr *) &addr, sizeof(addr)) == -1
        || chdir("/") == -1)
    {
        return sbx_error(e, errno, SBX_E_UNAVAILABLE,
                         "cannot make \"%s/" SBX_KEEPER_SOCKET "\"", dir);
    }

    if ((k->options->socket_group != NULL
         && fchownat(k->state, SBX_KEEPER_SOCKET, 0, k->options->socket_gid,
                     AT_SYMLINK_NOFOLLOW) == -1)
        || fchmodat(k->state, SBX_KEEPER_SOCKET, mode, 0) == -1
        || listen(fd, SBX_KEEPER_BACKLOG) == -1)
    {
        return sbx_error(e, errno, SBX_E_UNAVAILABLE,
                         "cannot listen on \"%s/" SBX_KEEPER_SOCKET "\"",
                         dir);
    }

    k->listen = sbx_steal_fd(&fd);

    return 0;
}


static int
sbx_keeper_signals(sbx_keeper_t *k, sbx_error_t *e)
{
    sigset_t  set;

    (void) sigemptyset(&set);
    (void) sigaddset(&set, SIGCHLD);
    (void) sigaddset(&set, SIGTERM);
    (void) sigaddset(&set, SIGINT);
    (void) sigaddset(&set, SIGQUIT);
    (void) sigaddset(&set, SIGHUP);

    if (sigprocmask(SIG_BLOCK, &set, &k->old_mask) == -1) {
        return sbx_error(e, errno, SBX_E_INTERNAL, "sigprocmask() failed");
    }

    /* one that execs us may have left it blocked */
    (void) sigemptyset(&k->old_mask);

    k->signals = signalfd(-1, &set, SFD_CLOEXEC|SFD_NONBLOCK);

    if (k->signals == -1) {
        return sbx_error(e, errno, SBX_E_INTERNAL, "signalfd() failed");
    }

    return 0;
}


int
sbx_process_hide(sbx_error_t *e)
{
    struct rlimit  core;

    /* 1 and not 0: nor does the kernel then start a crash handler */

    core.rlim_cur = 1;
    core.rlim_max = 1;

    if (prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) == -1) {
        return sbx_error(e, errno, SBX_E_INTERNAL,
                         "prctl(PR_SET_DUMPABLE) failed");
    }

    (void) setrlimit(RLIMIT_CORE, &core);

    return 0;
}


void
sbx_process_raise_files(void)
{
    struct rlimit  files;

    if (getrlimit(RLIMIT_NOFILE, &files) == 0) {
        files.rlim_cur = files.rlim_max;
        (void) setrlimit(RLIMIT_NOFILE, &files);
    }
}


/*
 * Under no_new_privs (a keeper that a broker became) exec gives no more than
 * what is permitted, so there the broker's set stays permitted, though not
 * in effect.
 */

static int
sbx_keeper_confine(sbx_error_t *e)
{
    int          cap, kept, rc;
    cap_t        caps;
    size_t       i;
    cap_value_t  effective;

    for (cap = 0; prctl(PR_CAPBSET_READ, cap, 0, 0, 0) >= 0; cap++) {
        kept = 0;

        for (i = 0; i < sbx_nelts(sbx_keeper_bounding); i++) {
            kept |= sbx_keeper_bounding[i] == cap;
        }

        if (!kept && prctl(PR_CAPBSET_READ, cap, 0, 0, 0) == 1
            && prctl(PR_CAPBSET_DROP, cap, 0, 0, 0) == -1)
        {
            return sbx_error(e, errno, SBX_E_INTERNAL,
                             "prctl(PR_CAPBSET_DROP) failed");
        }
    }

    caps = cap_get_proc();

    if (caps == NULL) {
        return sbx_error(e, errno, SBX_E_INTERNAL, "cap_get_proc() failed");
    }

    effective = CAP_DAC_OVERRIDE;
    rc = cap_clear_flag(caps, CAP_INHERITABLE);
    rc |= cap_clear_flag(caps, CAP_EFFECTIVE);

    if (prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) != 1) {
        rc |= cap_clear_flag(caps, CAP_PERMITTED);
        rc |= cap_set_flag(caps, CAP_PERMITTED, 1, &effective, CAP_SET);
    }

    rc |= cap_set_flag(caps, CAP_EFFECTIVE, 1, &effective, CAP_SET);

    if (rc != 0 || cap_set_proc(caps) == -1) {
        rc = sbx_error(e, errno, SBX_E_INTERNAL, "cap_set_proc() failed");
    }

    (void) cap_free(caps);

    return rc;
}


/* The store of a keeper that died, as the broker knew it. */

static int
sbx_keeper_inherit(sbx_keeper_t *k, sbx_error_t *e)
{
    int         fds[SBX_LINK_FDS], rc;
    sbx_link_t  msg;

    while ((rc = sbx_link_read(k->options->inherit, &msg, fds)) == 1) {
        /* not our child: its end is to be seen by its pidfd */
        msg.flags |= SBX_LINK_ORPHAN;

        if (sbx_keeper_store(k, &msg, fds) != 0) {
            return sbx_error(e, ENOMEM, SBX_E_INTERNAL, "out of memory");
        }
    }

    if (rc == -1) {
        return sbx_error(e, errno, SBX_E_INTERNAL,
                         "a stored descriptor was not inherited");
    }

    (void) close(k->options->inherit);
    k->options->inherit = -1;
    k->had_control = 1;
    k->ready = 1;

    return 0;
}


void
sbx_keeper_pid_file(sbx_keeper_t *k, const char *name, pid_t pid)
{
    int          err, n;
    char         text[32], temp[64];
    sbx_auto_fd  fd = -1, old = -1;

    n = snprintf(text, sizeof(text), "%d\n", (int) pid);
    (void) snprintf(temp, sizeof(temp), "%s.new", name);

    fd = openat(k->state, temp,
                O_WRONLY|O_CREAT|O_TRUNC|O_CLOEXEC|O_NOFOLLOW, 0600);

    if (fd != -1 && fchmod(fd, 0644) == 0
        && sbx_write_all(fd, text, (size_t) n) == 0
        && renameat(k->state, temp, k->state, name) == 0)
    {
        return;
    }

    /* a disk that is full has room for what is there already: a name of a
     * process that has died would be worse than one that is not written whole
     */

    err = errno;
    (void) unlinkat(k->state, temp, 0);
    old = openat(k->state, name, O_WRONLY|O_CLOEXEC|O_NOFOLLOW);

    if (old == -1 || pwrite(old, text, (size_t) n, 0) != n
        || ftruncate(old, n) == -1)
    {
        (void) unlinkat(k->state, name, 0);
        errno = err;
        sbx_log(SBX_LOG_WARN, NULL, errno, "cannot write \"%s/%s\"",
                k->options->state_dir, name);
    }
}


/* NULL: the start has succeeded. */

void
sbx_keeper_report(sbx_keeper_t *k, const sbx_error_t *e)
{
    int   n;
    char  line[512];

    if (e != NULL) {
        n = snprintf(line, sizeof(line), e->err ? "%s (%d: %s)\n" : "%s\n",
                     e->text, e->err, strerror(e->err));
        n = (int) strnlen(line, (size_t) n < sizeof(line) ? (size_t) n
                                                          : sizeof(line));

        (void) sbx_write_all(k->options->report != -1 ? k->options->report
                                                      : STDERR_FILENO,
                             line, (size_t) n);
    }

    if (k->options->report != -1) {
        (void) close(k->options->report);
        k->options->report = -1;
    }

    if (e == NULL) {
        sbx_keeper_notify();
    }
}


/*
 * systemd holds up what comes after the service until then (Type=notify): an
 * nginx that came before would start a broker of its own.
 */

static void
sbx_keeper_notify(void)
{
    size_t              len;
    const char         *path;
    sbx_auto_fd         fd = -1;
    struct sockaddr_un  sa;

    static const char  ready[] = "READY=1\n";

    path = getenv("NOTIFY_SOCKET");
    len = (path == NULL) ? 0 : strlen(path);

    if (len == 0 || len >= sizeof(sa.sun_path)) {
        return;
    }

    memset(&sa, 0, sizeof(sa));
    sa.sun_family = AF_UNIX;
    memcpy(sa.sun_path, path, len);

    if (sa.sun_path[0] == '@') {
        sa.sun_path[0] = '\0';               /* abstract */
    }

    fd = socket(AF_UNIX, SOCK_DGRAM|SOCK_CLOEXEC, 0);

    if (fd == -1
        || sendto(fd, ready, sizeof(ready) - 1, MSG_NOSIGNAL,
                  (struct sockaddr *) &sa,
                  (socklen_t) (offsetof(struct sockaddr_un, sun_path) + len))
           == -1)
    {
        sbx_log(SBX_LOG_WARN, NULL, errno, "cannot tell \"%s\" that the "
                "broker is ready", path);
    }

    (void) unsetenv("NOTIFY_SOCKET");
}
