/*
 * For tests of sandbox-init: this program plays the broker and the worker.
 * A session here is a small root of its own in a tmpfs, with namespaces for
 * users, processes, mounts, network, and the program under test as process
 * 1 of it; no cgroup, unless a test passes a group's files.
 */

#ifndef SBX_INIT_TEST_H
#define SBX_INIT_TEST_H

#include "sandbox_util.h"
#include "wire.h"

#include "tap.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <net/if.h>
#include <linux/capability.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>


/* No test uses all of it. */
#pragma GCC diagnostic ignored "-Wunused-function"

#define INIT_WAIT     30000          /* ms for what should come at once */
#define INIT_OUT      (4 * 1024 * 1024)


typedef struct {
    pid_t       pid;                 /* of process 1, seen from here */
    int         control;
    uint32_t    over;                /* records that have come */
    uint32_t    reaped;
    uint32_t    cut;
    uint32_t    ready;
    uint32_t    last_over;
    uint32_t    groups;              /* that were asked for */
    uint32_t    token;               /* of the last of those */
    uint32_t    warm;                /* records of that kind, */
    uint32_t    warm_reason;         /* and what the last one said */
    unsigned    held;                /* commands, */
    unsigned    kernels;             /* of which interpreters */
    uint32_t    held_all;            /* the token of the last answer */
    uint32_t    busy;                /* what the last one said */
} init_session_t;


static char                init_root[] = "/tmp/sbx-init-test-XXXXXX";
static sbx_init_config_t   init_config;
static const char         *init_env = "";      /* "K=V\0" ..., size below */
static size_t              init_env_size;
static const char         *init_languages = ""; /* a table, size below */
static size_t              init_languages_size;
static const void         *init_files_filter;  /* of servers, size below */
static size_t              init_files_filter_size;
static uint32_t            init_number;
static const char         *init_disk = "mode=0755,size=64m,nr_inodes=20000";


/*
 * ---- the session -----------------------------------------------------------
 */

static const char *
init_program(void)
{
    const char   *build;
    static char   path[4096];

    build = getenv("SANDBOX_BUILD");

#ifdef __SANITIZE_ADDRESS__
    (void) snprintf(path, sizeof(path), "%s/dynamic/sandbox-init",
                    build != NULL ? build : "build/asan");
#else
    (void) snprintf(path, sizeof(path), "%s/sandbox-init",
                    build != NULL ? build : "build");
#endif

    return access(path, X_OK) == 0 ? path : NULL;
}


static void
init_die(const char *what)
{
    (void) dprintf(STDERR_FILENO, "# %s: %s\n", what, strerror(errno));
    _exit(120);
}


static void
init_put_file(const char *path, const char *text, mode_t mode, uid_t uid)
{
    int  fd;

    fd = open(path, O_WRONLY|O_CREAT|O_TRUNC|O_CLOEXEC, mode);

    if (fd == -1 || sbx_write_all(fd, text, strlen(text)) == -1
        || fchmod(fd, mode) == -1 || fchown(fd, uid, uid) == -1)
    {
        init_die(path);
    }

    (void) close(fd);
}


static void
init_build_root(void)
{
    size_t  i;

    static const char *const  dirs[] = {
        "usr", "etc", "dev", "proc", "tmp", "home", "home/user", "root", "old"
    };
    static const char *const  links[] = { "bin", "sbin", "lib", "lib64" };
    static const char *const  nodes[] = { "null", "zero", "full", "urandom",
                                         "tty" };

    if (mount(NULL, "/", NULL, MS_REC|MS_PRIVATE, NULL) == -1
        || mount("tmpfs", init_root, "tmpfs", 0, init_disk) == -1
        || chdir(init_root) == -1)
    {
        init_die("root");
    }

    (void) umask(0);

    for (i = 0; i < sbx_nelts(dirs); i++) {
        if (mkdir(dirs[i], 0755) == -1) {
            init_die(dirs[i]);
        }
    }

    for (i = 0; i < sbx_nelts(links); i++) {
        char  target[64];

        (void) snprintf(target, sizeof(target), "usr/%s", links[i]);

        if (symlink(target, links[i]) == -1) {
            init_die(links[i]);
        }
    }

    /* file systems of its own, as in a real session */

    if (mount("tmpfs", "dev", "tmpfs", 0, "mode=0755") == -1
        || mkdir("dev/pts", 0755) == -1
        || mount("devpts", "dev/pts", "devpts", MS_NOSUID|MS_NOEXEC,
                 "newinstance,ptmxmode=0666,mode=0620,gid=5,max=64") == -1)
    {
        init_die("dev");
    }

    for (i = 0; i < sbx_nelts(nodes); i++) {
        char  from[64], to[64];

        (void) snprintf(from, sizeof(from), "/dev/%s", nodes[i]);
        (void) snprintf(to, sizeof(to), "dev/%s", nodes[i]);
        init_put_file(to, "", 0666, 0);

        if (mount(from, to, NULL, MS_BIND, NULL) == -1) {
            init_die(to);
        }
    }

    if (symlink("/proc/self/fd", "dev/fd") == -1
        || symlink("/proc/self/fd/0", "dev/stdin") == -1
        || symlink("/proc/self/fd/1", "dev/stdout") == -1
        || symlink("/proc/self/fd/2", "dev/stderr") == -1
        || chmod("tmp", 01777) == -1 || chmod("root", 0700) == -1
        || chown("home/user", 1000, 1000) == -1
        || mount("/usr", "usr", NULL, MS_BIND|MS_REC, NULL) == -1
        || mount(NULL, "usr", NULL, MS_BIND|MS_REMOUNT|MS_RDONLY, NULL) == -1
        || mount("proc", "proc", "proc", MS_NOSUID|MS_NODEV|MS_NOEXEC, NULL)
           == -1)
    {
        init_die("root");
    }

    init_put_file("etc/passwd", "root:x:0:0::/root:/bin/sh\n"
                  "user:x:1000:1000::/home/user:/bin/sh\n", 0644, 0);
    init_put_file("etc/group", "root:x:0:\nuser:x:1000:\n", 0644, 0);

    if (syscall(SYS_pivot_root, ".", "old") == -1 || chdir("/") == -1
        || umount2("/old", MNT_DETACH) == -1 || rmdir("/old") == -1)
    {
        init_die("pivot_root");
    }
}


static void
init_loopback(void)
{
    int           fd;
    struct ifreq  lo;

    memset(&lo, 0, sizeof(lo));
    memcpy(lo.ifr_name, "lo", sizeof("lo"));
    lo.ifr_flags = IFF_UP | IFF_LOOPBACK | IFF_RUNNING;

    fd = socket(AF_INET, SOCK_DGRAM|SOCK_CLOEXEC, 0);

    if (fd == -1 || ioctl(fd, SIOCSIFFLAGS, &lo) == -1) {
        init_die("lo");
    }

    (void) close(fd);
}


static int
init_make_config(void)
{
    int  fd;

    init_config.magic = SBX_WIRE_MAGIC;
    init_config.version = SBX_WIRE_VERSION;
    init_config.env_size = (uint32_t) init_env_size;
    init_config.languages_size = (uint32_t) init_languages_size;
    init_config.files_filter_size = (uint32_t) init_files_filter_size;

    fd = memfd_create("config", MFD_CLOEXEC);

    if (fd == -1
        || sbx_write_all(fd, &init_config, sizeof(init_config)) == -1
        || sbx_write_all(fd, init_env, init_env_size) == -1
        || sbx_write_all(fd, init_files_filter, init_files_filter_size) == -1
        || sbx_write_all(fd, init_languages, init_languages_size) == -1)
    {
        init_die("config");
    }

    return fd;
}


static void
init_become(int exe, int control, int config)
{
    int                              i;
    char                             name[] = "sandbox-init";
    char                            *argv[] = { name, NULL };
    char                            *envp[] = { NULL };
    uint64_t                         fresh[4];
    struct __user_cap_header_struct  header;
    struct __user_cap_data_struct    data[2];

    memset(data, 0, sizeof(data));
    header.version = _LINUX_CAPABILITY_VERSION_3;
    header.pid = 0;
    data[0].permitted = (1u << CAP_CHOWN) | (1u << CAP_DAC_OVERRIDE)
                        | (1u << CAP_FOWNER) | (1u << CAP_SETUID)
                        | (1u << CAP_SETGID) | (1u << CAP_KILL)
                        | (1u << CAP_SETPCAP);
    data[0].effective = data[0].permitted;
    data[0].inheritable = 0;

    for (i = 0; i < 64; i++) {
        if ((data[0].permitted & (1u << (i & 31))) == 0 || i > 31) {
            (void) prctl(PR_CAPBSET_DROP, i, 0, 0, 0);
        }
    }

    if (setgroups(0, NULL) == -1 || setresgid(0, 0, 0) == -1
        || setresuid(0, 0, 0) == -1
        || prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == -1
        || syscall(SYS_capset, &header, data) == -1)
    {
        init_die("capabilities");
    }

    /* out of the way, then into place */

    control = fcntl(control, F_DUPFD, 100);
    config = fcntl(config, F_DUPFD, 100);
    exe = fcntl(exe, F_DUPFD, 100);

    if (dup2(control, 3) == -1 || dup2(config, 4) == -1) {
        init_die("dup2");
    }

    (void) syscall(SYS_close_range, 5, 99, 0);
    (void) close(control);
    (void) close(config);
    (void) fcntl(exe, F_SETFD, FD_CLOEXEC);

    /* who runs the tests may ignore signals */

    memset(fresh, 0, sizeof(fresh));

    for (i = 1; i < NSIG; i++) {
        /* the kernel's own call: libc keeps two signals to itself */
        (void) syscall(SYS_rt_sigaction, i, fresh, NULL, 8);
    }

    (void) syscall(SYS_execveat, exe, "", argv, envp, AT_EMPTY_PATH);
    init_die("exec");
}


static void
init_child(int exe, int control, int config, int sync)
{
    char   go;
    pid_t  pid;

    if (unshare(CLONE_NEWPID|CLONE_NEWNS|CLONE_NEWNET|CLONE_NEWIPC
                |CLONE_NEWUTS)
        == -1)
    {
        init_die("unshare");
    }

    pid = fork();

    if (pid == -1) {
        init_die("fork");
    }

    if (pid != 0) {
        /* keeps no descriptor that init's end must be the last of */
        (void) syscall(SYS_close_range, 3, ~0u, 0);
        (void) waitpid(pid, NULL, 0);
        _exit(0);
    }

    (void) prctl(PR_SET_PDEATHSIG, SIGKILL);
    init_loopback();
    init_build_root();

    if (unshare(CLONE_NEWUSER) == -1 || write(sync, "u", 1) != 1
        || read(sync, &go, 1) != 1)
    {
        init_die("user namespace");
    }

    (void) close(sync);
    init_become(exe, control, config);
}


static void
init_map(pid_t pid)
{
    char         path[64];
    const char  *map = "0 0 65536\n";

    (void) snprintf(path, sizeof(path), "/proc/%d/uid_map", pid);

    if (sbx_write_at(AT_FDCWD, path, map) == -1) {
        init_die("uid_map");
    }

    (void) snprintf(path, sizeof(path), "/proc/%d/gid_map", pid);

    if (sbx_write_at(AT_FDCWD, path, map) == -1) {
        init_die("gid_map");
    }
}


/* The one child of a process. */

static pid_t
init_only_child(pid_t pid)
{
    char  path[64], buf[64];

    (void) snprintf(path, sizeof(path), "/proc/%d/task/%d/children", pid,
                    pid);

    if (sbx_read_at(AT_FDCWD, path, buf, sizeof(buf)) <= 0) {
        return -1;
    }

    return atoi(buf);
}


static void
init_defaults(void)
{
    sbx_limits_t  *l;

    memset(&init_config, 0, sizeof(init_config));
    l = &init_config.limits;
    l->memory = 256 << 20;
    l->cpus = 1000;
    l->cpu_seconds = SBX_UNLIMITED;
    l->processes = 128;
    l->max_file_size = 32 << 20;
    l->open_files = 256;
    l->stack = 8 << 20;
    l->disk = 64 << 20;
    l->inodes = 20000;
    l->exec_timeout = 20000;
    l->max_output = 1 << 20;
    l->timeout = 300000;

    init_config.uid = 1000;
    init_config.gid = 1000;
    init_config.capabilities = SBX_CAP_SHELL|SBX_CAP_FILES;
    (void) strcpy(init_config.workspace, "/home/user");
    (void) strcpy(init_config.home, "/home/user");
    (void) strcpy(init_config.path, "/usr/local/bin:/usr/bin:/bin");
}


static void init_records(init_session_t *s, int ms);


/* The mounts were in namespaces of their own: here it is empty. */

static void
init_clean(void)
{
    (void) rmdir(init_root);
}


/* A root for another session, once one has ended. */

static void
init_again(void)
{
    init_clean();
    (void) strcpy(strrchr(init_root, '-'), "-XXXXXX");
}


static void
init_start(init_session_t *s)
{
    int            control[2], sync[2], exe, config;
    char           byte;
    pid_t          pid;
    struct rlimit  files = { 4096, 4096 };

    memset(s, 0, sizeof(init_session_t));

    if (mkdtemp(init_root) == NULL || atexit(init_clean) != 0) {
        init_die(init_root);
    }

    (void) setrlimit(RLIMIT_NOFILE, &files);
    (void) signal(SIGPIPE, SIG_IGN);

    exe = open(init_program(), O_RDONLY|O_CLOEXEC);
    config = init_make_config();

    if (exe == -1
        || socketpair(AF_UNIX, SOCK_SEQPACKET|SOCK_CLOEXEC, 0, control) == -1
        || socketpair(AF_UNIX, SOCK_STREAM|SOCK_CLOEXEC, 0, sync) == -1)
    {
        init_die("session");
    }

    pid = fork();

    if (pid == -1) {
        init_die("fork");
    }

    if (pid == 0) {
        (void) close(sync[0]);
        (void) close(control[0]);
        init_child(exe, control[1], config, sync[1]);
    }

    (void) close(control[1]);
    (void) close(sync[1]);
    (void) close(exe);
    (void) close(config);

    if (read(sync[0], &byte, 1) != 1) {
        init_die("the session's process");
    }

    s->pid = init_only_child(pid);
    init_map(s->pid);

    if (write(sync[0], "g", 1) != 1) {
        init_die("the session's process");
    }

    (void) close(sync[0]);
    s->control = control[0];

    while (!s->ready) {
        init_records(s, INIT_WAIT);
    }
}


/* Takes what records there are, or waits for one. */

static void
init_records(init_session_t *s, int ms)
{
    ssize_t        n;
    sbx_record_t   record;
    struct pollfd  pfd;

    pfd.fd = s->control;
    pfd.events = POLLIN;

    if (poll(&pfd, 1, ms) != 1) {
        if (ms == INIT_WAIT) {
            printf("Bail out! no record came\n");
            exit(1);
        }

        return;
    }

    n = recv(s->control, &record, sizeof(record), MSG_DONTWAIT);

    if (n != sizeof(record) || record.magic != SBX_WIRE_MAGIC) {
        if (ms == INIT_WAIT) {
            printf("Bail out! the session has ended\n");
            exit(1);
        }

        return;
    }

    switch (record.type) {
    case SBX_R_READY:
        s->ready++;
        break;
    case SBX_R_COMMAND_OVER:
        s->over++;
        s->last_over = record.command;
        break;
    case SBX_R_REAPED:
        s->reaped++;
        break;
    case SBX_R_CUT:
        s->cut++;
        break;
    case SBX_R_GROUP:
        s->groups++;
        s->token = record.command;
        break;
    case SBX_R_WARM:
        s->warm++;
        s->warm_reason = record.reason;
        break;
    case SBX_R_BUSY:
        s->busy = record.command;
        break;
    case SBX_R_HELD:
        s->held++;
        s->kernels += record.reason != 0;
        break;
    case SBX_R_HELD_ALL:
        s->held_all = record.command;
        break;
    }
}


/* Ends it as the end of broker and keeper does; 1 if it is gone then. */

static int
init_stop(init_session_t *s)
{
    int    status;
    pid_t  pid;

    (void) close(s->control);
    pid = wait(&status);

    return pid > 0;
}


#include "init_calls.h"

#endif
