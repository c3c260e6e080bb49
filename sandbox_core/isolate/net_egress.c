/*
 * Starting the egress: from the broker (root, few capabilities) to a process
 * that has nothing but three descriptors and the host's network.
 *
 * All that needs root is done before the exec, by a copy of the broker that
 * reads nothing: namespaces (CLONE_PARENT makes the keeper its parent, so that
 * it outlives a broker), a root of its own, limits, ids, capabilities.  The
 * root is an empty tmpfs, read-only, with what dynamic linking, OpenSSL and
 * c-ares read as they start: libraries, certificates, random bytes.  When the
 * program has read them it takes the rest from itself, see
 * net_egress_inside.c: from then on it can open no file, so that no root,
 * empty or not, is within its reach.
 */

#include "isolate_private.h"
#include "sandbox_fault.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/sched.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/capability.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>


#define SBX_EGRESS_FDS       6
#define SBX_EGRESS_HIGH      64       /* out of the way of those above */
#define SBX_EGRESS_ROOT      "/tmp"   /* is there on every host, and is
                                         covered in the child alone */

#ifndef CLONE_CLEAR_SIGHAND
#define CLONE_CLEAR_SIGHAND  0x100000000ULL
#endif


/* Shown where the host has them; what is a link there is the same link. */
static const struct {
    const char  *name;
    unsigned     device:1;
} sbx_egress_shown[] = {
    { "usr",                 0 },
    { "lib",                 0 },
    { "lib32",               0 },
    { "lib64",               0 },
    { "etc/ld.so.cache",     0 },
    { "etc/ssl",             0 },
    { "etc/pki",             0 },
    { "etc/ca-certificates", 0 },
    { "dev/null",            1 },
    { "dev/urandom",         1 }
};


static void sbx_egress_child(const sbx_egress_launch_t *launch)
    __attribute__((noreturn));
static int sbx_egress_fds(const sbx_egress_launch_t *launch, int *exe,
    sbx_error_t *e);
static int sbx_egress_limits(const sbx_egress_launch_t *launch,
    sbx_error_t *e);
static int sbx_egress_root(sbx_error_t *e);
static int sbx_egress_show(int top, const char *name, unsigned device);
static int sbx_egress_point(int top, const char *name, const char *host);
static int sbx_egress_reduce(const sbx_egress_launch_t *launch,
    sbx_error_t *e);


int
sbx_egress_launch(const sbx_egress_launch_t *launch, pid_t *pid, int *pidfd,
    sbx_error_t *e)
{
    int                fd;
    long               rc;
    struct clone_args  args;

    /* what is root's to the kernel would be the egress's */

    if (launch->uid == 0) {
        return sbx_error(e, 0, SBX_E_INVALID, "the egress cannot be root");
    }

    fd = -1;

    /* not NEWNET, which is what it is there for; exit_signal must be 0: the
       parent is told as of the caller's end */

    memset(&args, 0, sizeof(args));
    args.flags = CLONE_NEWPID | CLONE_NEWNS | CLONE_NEWIPC | CLONE_NEWUTS
                 | CLONE_NEWCGROUP | CLONE_PARENT | CLONE_PIDFD
                 | CLONE_CLEAR_SIGHAND;
    args.pidfd = (uint64_t) (uintptr_t) &fd;

    rc = syscall(SYS_clone3, &args, sizeof(args));

    if (rc == -1) {
        return sbx_error(e, errno, SBX_E_INTERNAL,
                         "cannot clone the egress");
    }

    if (rc == 0) {
        sbx_egress_child(launch);
    }

    *pid = (pid_t) rc;
    *pidfd = fd;

    return 0;
}


/* Nobody waits for it: what it cannot do it tells where the egress would. */
static void
sbx_egress_child(const sbx_egress_launch_t *launch)
{
    int          exe;
    char         name[] = "sandbox-egress";
    char        *argv[] = { name, NULL };
    char        *envp[] = { sbx_fault_env(), NULL };
    sigset_t     none;
    sbx_error_t  e;

    exe = -1;

    (void) sigemptyset(&none);
    (void) sigprocmask(SIG_SETMASK, &none, NULL);
    (void) umask(022);
    (void) setsid();

    if (sbx_egress_fds(launch, &exe, &e) == 0
        && sbx_egress_root(&e) == 0
        && sbx_egress_limits(launch, &e) == 0
        && sbx_egress_reduce(launch, &e) == 0)
    {
        SBX_FAULT("child-egress-reduced");
        (void) syscall(SYS_execveat, exe, "", argv, envp, AT_EMPTY_PATH);
        (void) sbx_error(&e, errno, SBX_E_INTERNAL,
                         "cannot execute the egress");
    }

    (void) dprintf(STDERR_FILENO, "%s (%d: %s)\n", e.text, e.err,
                   strerror(e.err));
    _exit(1);
}


/* First out of the way of the numbers that are wanted, then down to them. */
static int
sbx_egress_fds(const sbx_egress_launch_t *launch, int *exe, sbx_error_t *e)
{
    int  fds[SBX_EGRESS_FDS], null, i;

    null = open("/dev/null", O_RDWR | O_CLOEXEC);

    if (null == -1) {
        return sbx_error(e, errno, SBX_E_INTERNAL, "cannot open /dev/null");
    }

    fds[0] = null;
    fds[1] = null;
    fds[2] = (launch->log == -1) ? null : launch->log;
    fds[3] = launch->control;
    fds[4] = launch->ca;
    fds[5] = launch->cert;

    *exe = fcntl(launch->exe, F_DUPFD_CLOEXEC, SBX_EGRESS_HIGH);

    for (i = 0; i < SBX_EGRESS_FDS; i++) {
        fds[i] = fcntl(fds[i], F_DUPFD_CLOEXEC, SBX_EGRESS_HIGH);

        if (fds[i] == -1 || *exe == -1) {
            return sbx_error(e, errno, SBX_E_INTERNAL, "fcntl() failed");
        }
    }

    for (i = 0; i < SBX_EGRESS_FDS; i++) {
        if (dup2(fds[i], i) == -1) {
            return sbx_error(e, errno, SBX_E_INTERNAL, "dup2() failed");
        }
    }

    /* CLOSE_RANGE_CLOEXEC: exe is needed until the exec */

    if (sbx_sys_close_range(SBX_EGRESS_FDS, ~0u, 4) == -1) {
        return sbx_error(e, errno, SBX_E_INTERNAL, "close_range() failed");
    }

    return 0;
}


static int
sbx_egress_limits(const sbx_egress_launch_t *launch, sbx_error_t *e)
{
    struct rlimit  files, core = { 0, 0 };

    if (getrlimit(RLIMIT_NOFILE, &files) == -1
        || setrlimit(RLIMIT_CORE, &core) == -1)
    {
        return sbx_error(e, errno, SBX_E_INTERNAL, "cannot set limits");
    }

    /* more than there are needs a capability that not every broker has */

    if (launch->open_files != 0) {
        files.rlim_cur = launch->open_files;

        if (files.rlim_max < files.rlim_cur) {
            files.rlim_max = files.rlim_cur;
        }

        if (setrlimit(RLIMIT_NOFILE, &files) == 0) {
            return 0;
        }

        (void) getrlimit(RLIMIT_NOFILE, &files);
    }

    files.rlim_cur = files.rlim_max;

    if (setrlimit(RLIMIT_NOFILE, &files) == -1) {
        return sbx_error(e, errno, SBX_E_INTERNAL,
                         "cannot set how many files may be open");
    }

    return 0;
}


static int
sbx_egress_root(sbx_error_t *e)
{
    size_t       i;
    sbx_auto_fd  top = -1, proc = -1;

    /* nothing that is mounted here is to be seen elsewhere */

    if (mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) == -1) {
        return sbx_error(e, errno, SBX_E_INTERNAL,
                         "cannot make mounts private");
    }

    top = sbx_sys_tmpfs("0755", "1m", SBX_MOUNT_NOSUID | SBX_MOUNT_NOEXEC);

    if (top == -1
        || sbx_sys_move_mount(top, AT_FDCWD, SBX_EGRESS_ROOT) == -1
        || fchdir(top) == -1 || mkdir("etc", 0755) == -1
        || mkdir("dev", 0755) == -1 || mkdir("proc", 0755) == -1)
    {
        return sbx_error(e, errno, SBX_E_INTERNAL,
                         "cannot mount the egress's root");
    }

    for (i = 0; i < sbx_nelts(sbx_egress_shown); i++) {
        if (sbx_egress_show(top, sbx_egress_shown[i].name,
                            sbx_egress_shown[i].device)
            == -1)
        {
            return sbx_error(e, errno, SBX_E_INTERNAL,
                             "cannot show /%s to the egress",
                             sbx_egress_shown[i].name);
        }
    }

    proc = sbx_sys_procfs("2");

    if (proc == -1 || sbx_sys_move_mount(proc, AT_FDCWD, "proc") == -1
        || sbx_sys_mount_seal(top) == -1
        || sbx_sys_pivot_root(".", ".") == -1
        || umount2(".", MNT_DETACH) == -1 || chdir("/") == -1)
    {
        return sbx_error(e, errno, SBX_E_INTERNAL,
                         "cannot enter the egress's root");
    }

    return 0;
}


/* 0 as well where the host has no such thing. */
static int
sbx_egress_show(int top, const char *name, unsigned device)
{
    int          rc;
    char         host[64], link[PATH_MAX];
    ssize_t      n;
    sbx_auto_fd  tree = -1;

    (void) snprintf(host, sizeof(host), "/%s", name);
    n = readlink(host, link, sizeof(link) - 1);

    if (n > 0) {
        link[n] = '\0';
        return symlinkat(link, top, name);
    }

    rc = sbx_egress_point(top, name, host);

    if (rc != 0) {
        return rc == 1 ? 0 : -1;
    }

    tree = sbx_sys_clone_tree(AT_FDCWD, host, 0);

    if (tree == -1
        || sbx_sys_mount_attr(tree, SBX_MOUNT_RDONLY | SBX_MOUNT_NOSUID
                                    | (device ? SBX_MOUNT_NOEXEC
                                              : SBX_MOUNT_NODEV), -1)
           == -1)
    {
        return -1;
    }

    return sbx_sys_move_mount(tree, top, name);
}


/* Something of its kind to mount on; 1: the host has none. */
static int
sbx_egress_point(int top, const char *name, const char *host)
{
    int          fd;
    struct stat  st;

    if (stat(host, &st) == -1) {
        return errno == ENOENT ? 1 : -1;
    }

    if (S_ISDIR(st.st_mode)) {
        return mkdirat(top, name, 0755);
    }

    fd = openat(top, name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0444);

    if (fd == -1) {
        return -1;
    }

    return close(fd);
}


/*
 * The bounding set stays the broker's, whom it takes a capability to shrink:
 * without any other, and as nothing gives new ones to who has set
 * no_new_privs, there is no way to make use of it.
 */
static int
sbx_egress_reduce(const sbx_egress_launch_t *launch, sbx_error_t *e)
{
    cap_t  none;
    gid_t  gid;

    gid = (gid_t) launch->uid;

    /* not libc's, which would tell the broker's threads: they are not here */

    if (syscall(SYS_setgroups, 0, NULL) == -1
        || syscall(SYS_setresgid, gid, gid, gid) == -1
        || syscall(SYS_setresuid, (uid_t) launch->uid, (uid_t) launch->uid,
                   (uid_t) launch->uid)
           == -1)
    {
        return sbx_error(e, errno, SBX_E_INTERNAL,
                         "cannot take the egress's ids");
    }

    (void) prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0);

    none = cap_init();

    if (none == NULL || cap_set_proc(none) == -1) {
        return sbx_error(e, errno, SBX_E_INTERNAL,
                         "cannot drop capabilities");
    }

    (void) cap_free(none);

    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == -1) {
        return sbx_error(e, errno, SBX_E_INTERNAL,
                         "cannot set no_new_privs");
    }

    return 0;
}
