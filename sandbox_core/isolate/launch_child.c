/*
 * The first process of a session, from the clone to init's exec: alone in new
 * namespaces, still real root.  See launch.c for the steps and their order.
 */

#include "launch_private.h"
#include "cgroup_private.h"
#include "sandbox_fault.h"
#include "wire.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/capability.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>


#define SBX_FD_CONTROL       3
#define SBX_FD_CONFIG        4
#define SBX_FD_ATTACH        5
#define SBX_FD_HIGH          64        /* out of the way of those above */


/* None of these may be made inside, whatever the filter let through. */
static const char  *sbx_child_namespaces[] = {
    "max_cgroup_namespaces", "max_ipc_namespaces", "max_mnt_namespaces",
    "max_net_namespaces", "max_pid_namespaces", "max_time_namespaces",
    "max_user_namespaces", "max_uts_namespaces"
};


static int sbx_child_enter(sbx_child_t *child, sbx_error_t *e);
static int sbx_child_isolate(sbx_child_t *child, sbx_error_t *e);
static int sbx_child_affinity(const sbx_plan_t *plan, sbx_error_t *e);
static int sbx_child_user(const sbx_child_t *child, sbx_error_t *e);
static int sbx_child_no_namespaces(const sbx_child_t *child, sbx_error_t *e);
static int sbx_child_owner(const sbx_launch_t *launch, sbx_error_t *e);
static int sbx_child_reduce(const sbx_child_t *child, sbx_error_t *e);
static int sbx_child_exec(sbx_child_t *child, sbx_error_t *e);
static int sbx_child_fds(sbx_child_t *child, int *exe, sbx_error_t *e);


void
sbx_child_main(sbx_child_t *child)
{
    sbx_status_msg_t  msg;

    memset(&msg, 0, sizeof(msg));
    msg.magic = SBX_STATUS_MAGIC;
    msg.type = SBX_STATUS_FAILED;

    /*
     * Or it would never see the end of a broker that dies meanwhile, and keep
     * every socket open that it has of that broker: those by which the other
     * sessions see it, too.
     */

    (void) close(child->parents[0]);
    (void) close(child->parents[1]);

    if (sbx_child_enter(child, &msg.error) == 0
        && sbx_child_isolate(child, &msg.error) == 0
        && sbx_child_user(child, &msg.error) == 0
        && sbx_child_reduce(child, &msg.error) == 0)
    {
        (void) sbx_child_exec(child, &msg.error);
    }

    (void) send(child->status, &msg, sizeof(msg), MSG_NOSIGNAL);
    _exit(1);
}


/* The group first: a cgroup namespace begins where its maker is. */
static int
sbx_child_enter(sbx_child_t *child, sbx_error_t *e)
{
    unsigned       i;
    sigset_t       none;
    /* 1 alone keeps the kernel from starting the host's crash handler */
    struct rlimit  core = { 1, 1 };

    for (i = 0; i < child->ninit_fds; i++) {
        if (i != child->core && write(child->init_fds[i], "0", 1) != 1) {
            return sbx_error(e, errno, SBX_E_INTERNAL,
                             "cannot enter the cgroup of init");
        }
    }

    SBX_FAULT("child-create-entered");

    child->files_dir = sbx_cgroup_files_dir(child->plan.launch->cgroup);

    if (child->files_dir == -1) {
        return sbx_error(e, errno, SBX_E_INTERNAL,
                         "cannot open the cgroup for file calls");
    }

    if (!(child->plan.launch->flags & SBX_LAUNCH_CGROUPS_SEEN)
        && unshare(CLONE_NEWCGROUP) == -1)
    {
        return sbx_error(e, errno, SBX_E_INTERNAL,
                         "cannot make a cgroup namespace");
    }

    (void) sigemptyset(&none);
    (void) sigprocmask(SIG_SETMASK, &none, NULL);
    (void) umask(0);
    (void) setsid();

    if (setrlimit(RLIMIT_CORE, &core) == -1) {
        return sbx_error(e, errno, SBX_E_INTERNAL,
                         "cannot forbid core dumps");
    }

    return 0;
}


static int
sbx_child_isolate(sbx_child_t *child, sbx_error_t *e)
{
    sbx_auto_fd          proc = -1;
    const sbx_launch_t  *launch;

    launch = child->plan.launch;

    if (sethostname(launch->host_name, strlen(launch->host_name)) == -1
        || setdomainname("", 0) == -1)
    {
        return sbx_error(e, errno, SBX_E_INTERNAL, "cannot set a host name");
    }

    proc = sbx_sys_procfs("2");

    if (proc == -1) {
        return sbx_error(e, errno, SBX_E_INTERNAL, "cannot mount a procfs");
    }

    /* /proc/sys will be read-only; no descriptor outlives the exec */

    child->namespaces = openat(proc, "sys/user",
                               O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (child->namespaces == -1) {
        return sbx_error(e, errno, SBX_E_INTERNAL,
                         "cannot open /proc/sys/user");
    }

    SBX_FAULT("child-create-named");

    /* what the broker enters to give the session a network, or take it */

    child->netns = openat(proc, "self/ns/net", O_RDONLY | O_CLOEXEC);
    if (child->netns == -1) {
        return sbx_error(e, errno, SBX_E_INTERNAL,
                         "cannot open the network namespace");
    }

    /* should the host run out of memory, sessions go before services; as
       SYS_RESOURCE is held, this is also the least that they may set */
    (void) sbx_write_at(proc, "self/oom_score_adj", "300");

    if (sbx_net_setup(proc, e) == -1
        || sbx_root_volume(&child->plan, e) == -1)
    {
        return -1;
    }

    SBX_FAULT("child-create-volume");

    if (sbx_root_build(&child->plan, proc, e) == -1) {
        return -1;
    }

    SBX_FAULT("child-create-rooted");

    return sbx_child_affinity(&child->plan, e);
}


static int
sbx_child_affinity(const sbx_plan_t *plan, sbx_error_t *e)
{
    int        cpu;
    unsigned   i, have, taken;
    cpu_set_t  all, mine;

    if (sched_getaffinity(0, sizeof(all), &all) == -1) {
        /* more processors than a cpu_set_t holds: all of them then */
        return 0;
    }

    have = (unsigned) CPU_COUNT(&all);
    CPU_ZERO(&mine);
    i = 0;

    for (cpu = 0; cpu < CPU_SETSIZE; cpu++) {
        if (!CPU_ISSET(cpu, &all)) {
            continue;
        }

        taken = (i + have - plan->first_cpu) % have;
        i++;

        if (taken < plan->cpus) {
            CPU_SET(cpu, &mine);
        }
    }

    if (sched_setaffinity(0, sizeof(mine), &mine) == -1) {
        return sbx_error(e, errno, SBX_E_INTERNAL, "cannot set affinity");
    }

    return 0;
}


static int
sbx_child_user(const sbx_child_t *child, sbx_error_t *e)
{
    int               fds[SBX_STATUS_FDS];
    char              go;
    unsigned          nfds;
    struct pollfd     answer = { .fd = child->status, .events = POLLIN };
    sbx_status_msg_t  msg;

    if (sbx_child_owner(child->plan.launch, e) == -1) {
        return -1;
    }

    if (unshare(CLONE_NEWUSER) == -1) {
        return sbx_error(e, errno, SBX_E_UNAVAILABLE,
                         "no user namespace can be made: see "
                         "user.max_user_namespaces");
    }

    SBX_FAULT("child-create-unshared");

    memset(&msg, 0, sizeof(msg));
    msg.magic = SBX_STATUS_MAGIC;
    msg.type = SBX_STATUS_MAPS;

    nfds = 0;
    fds[nfds++] = child->plan.root_fd;
    fds[nfds++] = child->netns;

    if (sbx_inside_kept() != -1) {
        fds[nfds++] = sbx_inside_kept();
    }

    if (nfds > SBX_STATUS_FD_KEPT && child->plan.memory_fd != -1) {
        fds[nfds++] = child->plan.memory_fd;
    }

    if (sbx_wire_send(child->status, &msg, sizeof(msg), fds, nfds, 0)
        != sizeof(msg)
        || poll(&answer, 1, -1) != 1
        || recv(child->status, &go, 1, 0) != 1)
    {
        /* nobody is there to be told */
        _exit(1);
    }

    SBX_FAULT("child-create-mapped");

    /* not libc's, which would tell the broker's threads: they are not here */

    if (syscall(SYS_setgroups, 0, NULL) == -1
        || syscall(SYS_setresgid, 0, 0, 0) == -1
        || syscall(SYS_setresuid, 0, 0, 0) == -1)
    {
        return sbx_error(e, errno, SBX_E_INTERNAL,
                         "cannot take the session's ids");
    }

    return sbx_child_no_namespaces(child, e);
}


/* The limits are the user namespace's own; its maker still has every
 * capability in it. */
static int
sbx_child_no_namespaces(const sbx_child_t *child, sbx_error_t *e)
{
    size_t  i;

    for (i = 0; i < sbx_nelts(sbx_child_namespaces); i++) {
        if (sbx_write_at(child->namespaces, sbx_child_namespaces[i], "0")
            == -1 && errno != ENOENT)
        {
            return sbx_error(e, errno, SBX_E_INTERNAL,
                             "cannot set user.%s of the session",
                             sbx_child_namespaces[i]);
        }
    }

    return 0;
}


/*
 * What the kernel counts for each user of a namespace (inotify instances,
 * queued signals, message queues) it counts again for the namespace's maker.
 * Made by host root, all sessions would draw on the one account of host
 * root; made by the session's own id, each has its own.  Capabilities are
 * kept across the change of the effective id.
 */
static int
sbx_child_owner(const sbx_launch_t *launch, sbx_error_t *e)
{
    int    rc;
    cap_t  caps;

    if (!(launch->flags & SBX_LAUNCH_OWN_ACCOUNT)) {
        return 0;
    }

    caps = cap_get_proc();

    if (caps == NULL) {
        return sbx_error(e, errno, SBX_E_INTERNAL, "no memory");
    }

    rc = 0;

    if (syscall(SYS_setresgid, -1, (gid_t) launch->uid_first, -1) == -1
        || syscall(SYS_setresuid, -1, (uid_t) launch->uid_first, -1) == -1
        || cap_set_proc(caps) == -1)
    {
        rc = sbx_error(e, errno, SBX_E_INTERNAL,
                       "cannot give the user namespace to the session");
    }

    (void) cap_free(caps);

    return rc;
}


static int
sbx_child_reduce(const sbx_child_t *child, sbx_error_t *e)
{
    const sbx_launch_t  *launch;

    launch = child->plan.launch;

    if (sbx_caps_reduce_init(e) == -1) {
        return -1;
    }

    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == -1) {
        return sbx_error(e, errno, SBX_E_INTERNAL,
                         "cannot set no_new_privs");
    }

    (void) umask(022);
    SBX_FAULT("child-create-reduced");

    if (sbx_seccomp_load(launch->init_filter, launch->init_filter_size)
        == -1)
    {
        return sbx_error(e, errno, SBX_E_UNAVAILABLE,
                         "cannot load init's seccomp filter");
    }

    return 0;
}


static int
sbx_child_exec(sbx_child_t *child, sbx_error_t *e)
{
    int    exe;
    char   name[] = "sandbox-init";
    char  *argv[] = { name, NULL };
    char  *envp[] = { sbx_fault_env(), NULL };

    exe = -1;

    if (sbx_child_fds(child, &exe, e) == -1) {
        return -1;
    }

    SBX_FAULT("child-create-filtered");

    (void) syscall(SYS_execveat, exe, "", argv, envp, AT_EMPTY_PATH);

    return sbx_error(e, errno, SBX_E_INTERNAL, "cannot execute init");
}


/* No number that high is to be had: EINVAL. */

static int
sbx_child_full(sbx_error_t *e)
{
    return sbx_error(e, errno == EINVAL ? EMFILE : errno, SBX_E_INTERNAL,
                     "fcntl() failed");
}


/* First out of the way of the numbers that are wanted, then down to them. */
static int
sbx_child_fds(sbx_child_t *child, int *exe, sbx_error_t *e)
{
    int       fds[SBX_FD_ATTACH + SBX_ROLE_MAX + 1], null;
    unsigned  i, n;

    null = open("/dev/null", O_RDWR | O_CLOEXEC);
    if (null == -1) {
        return sbx_error(e, errno, SBX_E_INTERNAL, "cannot open /dev/null");
    }

    n = SBX_FD_ATTACH + child->nfiles_fds + 1;

    for (i = 0; i < n; i++) {
        switch (i) {
        case SBX_FD_CONTROL:
            fds[i] = child->control;
            break;
        case SBX_FD_CONFIG:
            fds[i] = child->config;
            break;
        default:
            fds[i] = (i < SBX_FD_CONTROL) ? null
                     : (i == n - 1) ? child->files_dir
                     : child->files_fds[i - SBX_FD_ATTACH];
        }

        fds[i] = fcntl(fds[i], F_DUPFD_CLOEXEC, SBX_FD_HIGH);

        if (fds[i] == -1) {
            return sbx_child_full(e);
        }
    }

    *exe = fcntl(child->plan.launch->init_exe, F_DUPFD_CLOEXEC, SBX_FD_HIGH);
    child->status = fcntl(child->status, F_DUPFD_CLOEXEC, SBX_FD_HIGH);

    if (*exe == -1 || child->status == -1) {
        return sbx_child_full(e);
    }

    for (i = 0; i < n; i++) {
        if (dup2(fds[i], (int) i) == -1) {
            return sbx_error(e, errno, SBX_E_INTERNAL, "dup2() failed");
        }
    }

    /* CLOSE_RANGE_CLOEXEC: exe and status are needed until the exec */

    if (sbx_sys_close_range(n, ~0u, 4) == -1) {
        return sbx_error(e, errno, SBX_E_INTERNAL, "close_range() failed");
    }

    return 0;
}
