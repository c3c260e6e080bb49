/*
 * Launching a session's process 1.
 *
 * The broker (real root, few capabilities) clones a child into new pid,
 * mount, ipc, uts and network namespaces, never a user namespace: what is
 * mounted belongs to the initial one, and the session's root cannot undo it.
 * CLONE_PARENT makes the keeper its parent, so that it outlives a broker.
 *
 * The child, alone in all of them, works through the steps of launch_child.c
 * and then leaves root for good: it unshares the user namespace, asks for its
 * maps over the status socket (fixed-size records, one way; one byte back),
 * takes the session's ids, drops capabilities, loads init's filter and execs
 * init from a sealed memfd.  The status socket closes with that exec; a
 * failure before it is told there with its text.
 *
 * Until the exec the child is the broker's copy, single-threaded and with
 * memory of its own, so it may allocate.
 */

#include "launch_private.h"
#include "cgroup_private.h"
#include "sandbox_fault.h"
#include "wire.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/sched.h>
#include <poll.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>


#define SBX_SESSION_IDS      65536

#define SBX_PATH             "/usr/local/sbin:/usr/local/bin:/usr/sbin:"      \
                             "/usr/bin:/sbin:/bin"

#ifndef CLONE_CLEAR_SIGHAND
#define CLONE_CLEAR_SIGHAND  0x100000000ULL
#endif
#ifndef CLONE_INTO_CGROUP
#define CLONE_INTO_CGROUP    0x200000000ULL
#endif
#ifndef MFD_EXEC
#define MFD_EXEC             0x10u
#endif
#ifndef MFD_NOEXEC_SEAL
#define MFD_NOEXEC_SEAL      0x8u
#endif


static void sbx_launch_release(sbx_plan_t **plan);
static int sbx_launch_pair(int *ours, int *theirs, sbx_error_t *e);
static int sbx_launch_check(const sbx_launch_t *launch, sbx_error_t *e);
static int sbx_launch_prepare(const sbx_launch_t *launch, sbx_child_t *child,
    sbx_error_t *e);
static int sbx_launch_config(const sbx_child_t *child, sbx_error_t *e);
static void sbx_launch_fill(const sbx_launch_t *launch, unsigned cpus,
    sbx_init_config_t *config);
static int sbx_launch_memfd(const sbx_init_config_t *config,
    const sbx_launch_t *launch, const sbx_programs_t *programs,
    sbx_error_t *e);
static unsigned sbx_launch_cpus_have(void);
static void sbx_launch_cpus(sbx_plan_t *plan);
static int sbx_launch_clone(sbx_child_t *child, sbx_launched_t *out,
    sbx_error_t *e);
static int sbx_launch_maps(sbx_launched_t *launched, sbx_error_t *e);
static int sbx_launch_over(sbx_launched_t *launched, sbx_error_t *e);
static void sbx_launch_fds(sbx_launched_t *launched, const int *fds,
    unsigned nfds);


int
sbx_launch_start(const sbx_launch_t *launch, sbx_launched_t *out,
    sbx_error_t *e)
{
    int          rc;
    sbx_child_t  child;
    sbx_auto_fd  control = -1, control_peer = -1;
    sbx_auto_fd  status = -1, status_peer = -1;
    sbx_auto_fd  config = -1, template = -1;
    sbx_plan_t  *plan SBX_CLEANUP(sbx_launch_release) = NULL;

    if (sbx_launch_check(launch, e) == -1) {
        return -1;
    }

    memset(&child, 0, sizeof(child));

    rc = sbx_launch_prepare(launch, &child, e);

    template = child.plan.template_fd;
    plan = &child.plan;

    if (rc == -1) {
        return -1;
    }

    if (sbx_launch_pair(&control, &control_peer, e) == -1
        || sbx_launch_pair(&status, &status_peer, e) == -1)
    {
        return -1;
    }

    config = sbx_launch_config(&child, e);
    if (config == -1) {
        return -1;
    }

    child.control = control_peer;
    child.status = status_peer;
    child.parents[0] = control;
    child.parents[1] = status;
    child.config = config;

    rc = sbx_launch_clone(&child, out, e);
    sbx_cgroup_fds_drop(launch->cgroup);

    if (rc == -1) {
        return -1;
    }

    out->control = sbx_steal_fd(&control);
    out->status = sbx_steal_fd(&status);
    out->uid_first = launch->uid_first;

    out->disk = launch->disk;
    out->netns = -1;
    out->kept[SBX_KEPT_MEMINFO] = -1;
    out->kept[SBX_KEPT_MEMORY] = -1;

    return 0;
}


static void
sbx_launch_release(sbx_plan_t **plan)
{
    if (*plan != NULL) {
        sbx_rules_release(*plan);
    }
}


static int
sbx_launch_pair(int *ours, int *theirs, sbx_error_t *e)
{
    int  pair[2];

    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0,
                   pair)
        == -1)
    {
        return sbx_error(e, errno, SBX_E_INTERNAL, "socketpair() failed");
    }

    *ours = pair[0];
    *theirs = pair[1];

    return 0;
}


static int
sbx_launch_check(const sbx_launch_t *launch, sbx_error_t *e)
{
    /* host ids below are people's and services' own */

    if (launch->uid_first < SBX_SESSION_IDS
        || launch->uid_first > UINT32_MAX - 2 * (uint64_t) SBX_SESSION_IDS)
    {
        return sbx_error(e, 0, SBX_E_INVALID,
                         "host ids from %" PRIu64 " on are not to be used",
                         launch->uid_first);
    }

    if (launch->limits.memory >= SBX_UNLIMITED
        || launch->limits.disk >= SBX_UNLIMITED
        || launch->limits.inodes >= SBX_UNLIMITED
        || launch->limits.cpus == 0
        || launch->limits.cpus >= SBX_UNLIMITED)
    {
        return sbx_error(e, 0, SBX_E_INVALID,
                         "a session needs limits of memory, cpus, disk and "
                         "inodes");
    }

    if (strlen(launch->host_name) > 63 || launch->host_name[0] == '\0') {
        return sbx_error(e, 0, SBX_E_INVALID, "bad host name");
    }

    return 0;
}


static int
sbx_launch_prepare(const sbx_launch_t *launch, sbx_child_t *child,
    sbx_error_t *e)
{
    sbx_plan_t  *plan;

    plan = &child->plan;
    plan->launch = launch;
    plan->template_fd = -1;
    plan->root_fd = -1;
    plan->memory_fd = -1;

    sbx_launch_cpus(plan);

    if (sbx_inside_plan(plan, e) == -1) {
        return -1;
    }

    if (strcmp(launch->template, "base") != 0
        && sbx_template_open(launch, &plan->template_fd, e) == -1)
    {
        return -1;
    }

    if (sbx_rules_prepare(plan, e) == -1) {
        return -1;
    }

    child->ninit_fds = sbx_cgroup_init_fds(launch->cgroup, &child->init_fds);
    child->nfiles_fds = sbx_cgroup_files_fds(launch->cgroup,
                                             &child->files_fds);

    if (child->ninit_fds == 0 || child->nfiles_fds == 0) {
        return sbx_error(e, errno, SBX_E_INTERNAL,
                         "the session's cgroups cannot be entered");
    }

    return 0;
}


/* Sessions are spread over the processors that the caller may use. */
static void
sbx_launch_cpus(sbx_plan_t *plan)
{
    unsigned         have;
    static unsigned  next;

    have = sbx_launch_cpus_have();
    plan->cpus = sbx_launch_cpus_seen(plan->launch->limits.cpus);
    plan->first_cpu = next % have;
    next = (next + plan->cpus) % have;
}


static unsigned
sbx_launch_cpus_have(void)
{
    cpu_set_t  set;

    return sched_getaffinity(0, sizeof(set), &set) == 0
           ? (unsigned) CPU_COUNT(&set) : 1;
}


unsigned
sbx_launch_cpus_seen(uint64_t cpus)
{
    unsigned  want, have;

    want = (unsigned) ((cpus + 999) / 1000);
    have = sbx_launch_cpus_have();

    return (want < have) ? want : have;
}


/* What init reads from descriptor 4. */
static int
sbx_launch_config(const sbx_child_t *child, sbx_error_t *e)
{
    sbx_programs_t       programs SBX_CLEANUP(sbx_programs_free) = { 0 };
    const sbx_launch_t  *launch;
    sbx_init_config_t    config;

    launch = child->plan.launch;

    if (sbx_programs_choose(&child->plan, &programs, e) == -1) {
        return -1;
    }

    sbx_launch_fill(launch, child->plan.cpus, &config);
    config.files_attach_count = child->nfiles_fds;
    config.filter_size = (uint32_t) programs.filter_size;
    config.files_filter_size = (uint32_t) programs.files_size;

    return sbx_launch_memfd(&config, launch, &programs, e);
}


int
sbx_launch_hand_over(const sbx_launch_t *launch, sbx_error_t *e)
{
    sbx_programs_t     none;
    sbx_init_config_t  config;

    memset(&none, 0, sizeof(none));
    sbx_launch_fill(launch, sbx_launch_cpus_seen(launch->limits.cpus),
                    &config);

    return sbx_launch_memfd(&config, launch, &none, e);
}


static void
sbx_launch_fill(const sbx_launch_t *launch, unsigned cpus,
    sbx_init_config_t *config)
{
    memset(config, 0, sizeof(*config));

    config->magic = SBX_WIRE_MAGIC;
    config->version = SBX_WIRE_VERSION;
    config->limits = launch->limits;
    config->uid = 1000;
    config->gid = 1000;
    config->files_core = sbx_cgroup_core(launch->cgroup);
    config->cpus_visible = cpus;
    config->env_size = (uint32_t) launch->env_size;
    config->languages_size = (uint32_t) launch->languages_size;
    config->capabilities = launch->capabilities;
    config->flags = launch->create_flags;
    config->network = launch->network;

    (void) snprintf(config->workspace, sizeof(config->workspace), "%s",
                    SBX_WORKSPACE);
    (void) snprintf(config->home, sizeof(config->home), "%s", SBX_WORKSPACE);
    (void) snprintf(config->path, sizeof(config->path), "%s", SBX_PATH);
}


static int
sbx_launch_memfd(const sbx_init_config_t *config, const sbx_launch_t *launch,
    const sbx_programs_t *programs, sbx_error_t *e)
{
    sbx_auto_fd  fd = -1;

    fd = memfd_create("config", MFD_CLOEXEC | MFD_ALLOW_SEALING);

    if (fd == -1
        || sbx_write_all(fd, config, sizeof(*config)) == -1
        || sbx_write_all(fd, launch->env, launch->env_size) == -1
        || sbx_write_all(fd, programs->filter, programs->filter_size) == -1
        || sbx_write_all(fd, programs->files, programs->files_size) == -1
        || sbx_write_all(fd, launch->languages, launch->languages_size) == -1
        || lseek(fd, 0, SEEK_SET) == -1
        || fcntl(fd, F_ADD_SEALS, F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW
                                  | F_SEAL_WRITE)
           == -1)
    {
        return sbx_error(e, errno, SBX_E_INTERNAL,
                         "cannot write init's configuration");
    }

    return sbx_steal_fd(&fd);
}


static int
sbx_launch_clone(sbx_child_t *child, sbx_launched_t *out, sbx_error_t *e)
{
    int                pidfd;
    long               pid;
    sbx_auto_fd        group = -1;
    struct clone_args  args;

    /* entering by the clone spares a write that can wait for milliseconds */

    group = sbx_cgroup_init_dir(child->plan.launch->cgroup);
    if (group == -1) {
        return sbx_error(e, errno, SBX_E_INTERNAL,
                         "cannot open the cgroup of init");
    }

    child->core = sbx_cgroup_core(child->plan.launch->cgroup);
    pidfd = -1;

    memset(&args, 0, sizeof(args));
    args.flags = CLONE_NEWPID | CLONE_NEWNS | CLONE_NEWIPC | CLONE_NEWUTS
                 | CLONE_NEWNET | CLONE_PARENT | CLONE_PIDFD
                 | CLONE_CLEAR_SIGHAND | CLONE_INTO_CGROUP;
    args.pidfd = (uint64_t) (uintptr_t) &pidfd;
    args.cgroup = (uint64_t) group;

    /* exit_signal must be 0: the parent is told as of the caller's end */

    pid = syscall(SYS_clone3, &args, sizeof(args));

    if (pid == -1) {
        return sbx_error(e, errno, SBX_E_INTERNAL,
                         "cannot clone the session's first process");
    }

    if (pid == 0) {
        sbx_child_main(child);
    }

    out->pid = (pid_t) pid;
    out->pidfd = pidfd;

    return 0;
}


int
sbx_launch_event(sbx_launched_t *launched, sbx_error_t *e)
{
    int               fds[SBX_STATUS_FDS];
    ssize_t           n;
    unsigned          nfds;
    sbx_status_msg_t  msg;

    nfds = sbx_nelts(fds);
    n = sbx_wire_recv(launched->status, &msg, sizeof(msg), fds, &nfds,
                      MSG_DONTWAIT);

    if (n == -1) {
        if (errno == EAGAIN || errno == EINTR) {
            return 0;
        }

        return sbx_error(e, errno, SBX_E_INTERNAL,
                         "the status of a launch cannot be read");
    }

    if (n == 0) {
        return sbx_launch_over(launched, e);
    }

    sbx_launch_fds(launched, fds, nfds);

    if (n != sizeof(msg) || msg.magic != SBX_STATUS_MAGIC) {
        return sbx_error(e, 0, SBX_E_INTERNAL, "bad status of a launch");
    }

    switch ((sbx_status_type_t) msg.type) {

    case SBX_STATUS_MAPS:
        return sbx_launch_maps(launched, e);

    case SBX_STATUS_FAILED:
        msg.error.text[sizeof(msg.error.text) - 1] = '\0';

        return sbx_error(e, msg.error.err,
                         (msg.error.code > SBX_OK
                          && msg.error.code < SBX_E_MAX)
                             ? (sbx_code_t) msg.error.code : SBX_E_INTERNAL,
                         "%s", msg.error.text);
    }

    return sbx_error(e, 0, SBX_E_INTERNAL, "bad status of a launch");
}


/* The child has made the session's volume, and sends it with its request,
 * its network namespace, and what is kept of one that is launched ahead. */
static void
sbx_launch_fds(sbx_launched_t *launched, const int *fds, unsigned nfds)
{
    int       *place;
    unsigned   i;

    for (i = 0; i < nfds; i++) {
        switch (i) {
        case SBX_STATUS_FD_DISK:
            place = launched->disk;
            break;
        case SBX_STATUS_FD_NETNS:
            place = &launched->netns;
            break;
        default:
            place = &launched->kept[i - SBX_STATUS_FD_KEPT];
        }

        if (place == NULL || *place != -1) {
            (void) close(fds[i]);
            continue;
        }

        *place = fds[i];
    }
}


/* The socket closes by init's exec and by the child's death. */
static int
sbx_launch_over(sbx_launched_t *launched, sbx_error_t *e)
{
    struct pollfd  pfd = { .fd = launched->pidfd, .events = POLLIN };

    if (poll(&pfd, 1, 0) == 1) {
        return sbx_error(e, 0, SBX_E_UNAVAILABLE,
                         "the session's first process has died");
    }

    return 1;
}


static int
sbx_launch_maps(sbx_launched_t *launched, sbx_error_t *e)
{
    char           path[64], map[64];
    sbx_auto_fd    proc = -1;
    struct pollfd  pfd = { .fd = launched->pidfd, .events = POLLIN };

    (void) snprintf(path, sizeof(path), "/proc/%d", (int) launched->pid);
    (void) snprintf(map, sizeof(map), "0 %" PRIu64 " %d\n",
                    launched->uid_first, SBX_SESSION_IDS);

    proc = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

    /* the number is the child's as long as the child lives */

    if (proc == -1 || poll(&pfd, 1, 0) != 0) {
        return sbx_error(e, errno, SBX_E_UNAVAILABLE,
                         "the session's first process has died");
    }

    if (sbx_write_at(proc, "uid_map", map) == -1
        || sbx_write_at(proc, "gid_map", map) == -1)
    {
        return sbx_error(e, errno, SBX_E_INTERNAL,
                         "cannot write the session's id maps");
    }

    SBX_FAULT("broker-create-mapped");

    if (send(launched->status, "", 1, MSG_NOSIGNAL | MSG_DONTWAIT) != 1) {
        return sbx_error(e, errno, SBX_E_UNAVAILABLE,
                         "the session's first process has died");
    }

    return 0;
}


/*
 * ---- init's program --------------------------------------------------------
 */

int
sbx_init_exe(const char *path, int *fd, sbx_error_t *e)
{
    char         buf[65536];
    ssize_t      n;
    const char  *name;
    struct stat  st;
    sbx_auto_fd  file = -1, exe = -1;

    file = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);

    if (file == -1 || fstat(file, &st) == -1) {
        return sbx_error(e, errno, SBX_E_UNAVAILABLE,
                         "cannot open \"%.180s\": install it or set "
                         "sandbox_helper_dir", path);
    }

    if (!S_ISREG(st.st_mode) || st.st_uid != 0 || (st.st_mode & 022) != 0) {
        return sbx_error(e, 0, SBX_E_UNAVAILABLE,
                         "\"%.180s\" must be a file of root's that nobody "
                         "else may write", path);
    }

    name = strrchr(path, '/');
    name = name != NULL ? name + 1 : path;
    exe = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING | MFD_EXEC);

    if (exe == -1 && errno == EINVAL) {
        /* before Linux 6.3 every memfd could be executed */
        exe = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);
    }

    if (exe == -1) {
        return sbx_error(e, errno, SBX_E_UNAVAILABLE,
                         "no executable memfd can be made: see "
                         "vm.memfd_noexec");
    }

    while ((n = read(file, buf, sizeof(buf))) > 0) {
        if (sbx_write_all(exe, buf, (size_t) n) == -1) {
            n = -1;
            break;
        }
    }

    /* 0111: a program that cannot be read makes a process that nobody of
       the session can trace, whatever its capabilities */

    if (n == -1 || fchmod(exe, 0111) == -1
        || fcntl(exe, F_ADD_SEALS, F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW
                                   | F_SEAL_WRITE)
           == -1)
    {
        return sbx_error(e, errno, SBX_E_UNAVAILABLE,
                         "cannot copy \"%.180s\"", path);
    }

    *fd = sbx_steal_fd(&exe);

    return 0;
}
