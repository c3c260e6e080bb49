/*
 * The filters: first a part for calls that depend on an argument, then a
 * search through all numbers.  libseccomp knows the numbers; the program is
 * our own, because its rules cannot say "all but these, on the low 32 bits",
 * which is all that the kernel reads of ioctl's request, clone's flags and a
 * socket's family: a comparison of 64 bits would be walked around.
 *
 * Answers: EPERM for what is known and refused, ENOSYS for all that is not
 * on the list (clone3, io_uring and whatever is newer: libraries then fall
 * back), death for a foreign architecture and for x32 numbers, whose calls
 * would mean something else.
 *
 * Filters add up, so init's must let through what a command may do.
 */

#include "isolate.h"

#include <errno.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <seccomp.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>


#if defined(__x86_64__)
#define SBX_AUDIT_ARCH   AUDIT_ARCH_X86_64
#elif defined(__aarch64__)
#define SBX_AUDIT_ARCH   AUDIT_ARCH_AARCH64
#else
#error "this architecture has not been looked at"
#endif

#define SBX_CALLS_MAX    512           /* numbers that are looked at */
#define SBX_X32_BIT      0x40000000u

/* A jump reaches 255 instructions and a run takes at most two, so that half
 * of the runs may be jumped over. */
#define SBX_RUNS_MAX     240
#define SBX_FILTER_MAX   (128 + 2 * SBX_RUNS_MAX)

#define SBX_NAMESPACES   (CLONE_NEWNS | CLONE_NEWCGROUP | CLONE_NEWUTS        \
                          | CLONE_NEWIPC | CLONE_NEWUSER | CLONE_NEWPID       \
                          | CLONE_NEWNET | 0x80 /* CLONE_NEWTIME */)

#define SBX_SOCKET_PROTOCOLS   5
#define SBX_SOCKET_TYPE        0xfu    /* the rest are flags */


/*
 * Allowed: what interpreters, compilers, shells, databases and debuggers of
 * the same user call.  Names that this machine's libseccomp does not know
 * are left out, and answered ENOSYS.
 */
static const char  *sbx_seccomp_allowed[] = {
    /* files */
    "access", "chdir", "chmod", "chown", "close", "close_range",
    "copy_file_range", "creat", "dup", "dup2", "dup3", "faccessat",
    "faccessat2", "fadvise64", "fallocate", "fchdir", "fchmod", "fchmodat",
    "fchmodat2", "fchown", "fchownat", "fcntl", "fdatasync", "fgetxattr",
    "flistxattr", "flock", "fremovexattr", "fsetxattr", "fstat", "fstatfs",
    "fsync", "ftruncate", "futimesat", "getcwd", "getdents", "getdents64",
    "getxattr", "inotify_add_watch", "inotify_init", "inotify_init1",
    "inotify_rm_watch", "ioctl", "lchown", "lgetxattr", "link", "linkat",
    "listxattr", "llistxattr", "lremovexattr", "lseek", "lsetxattr", "lstat",
    "mkdir", "mkdirat", "mknod", "mknodat", "newfstatat", "open", "openat",
    "openat2", "pipe", "pipe2", "pread64", "preadv", "preadv2", "pwrite64",
    "pwritev", "pwritev2", "read", "readahead", "readlink", "readlinkat",
    "readv", "removexattr", "rename", "renameat", "renameat2", "rmdir",
    "sendfile", "setxattr", "splice", "stat", "statfs", "statx", "symlink",
    "symlinkat", "sync", "sync_file_range", "syncfs", "tee", "truncate",
    "umask", "unlink", "unlinkat", "utime", "utimensat", "utimes",
    "vmsplice", "write", "writev",

    /* memory */
    "brk", "cachestat", "get_mempolicy", "madvise", "membarrier",
    "memfd_create", "mincore", "mlock", "mlock2", "mlockall", "mmap",
    "mprotect", "mremap", "mseal", "msync", "munlock", "munlockall",
    "munmap", "pkey_alloc", "pkey_free", "pkey_mprotect",
    "process_madvise", "remap_file_pages",

    /* processes, threads, identities */
    "arch_prctl", "capget", "capset", "clone", "execve", "execveat", "exit",
    "exit_group", "fork", "get_robust_list", "get_thread_area", "getcpu",
    "getegid", "geteuid", "getgid", "getgroups", "getitimer", "getpgid",
    "getpgrp", "getpid", "getppid", "getpriority", "getrandom", "getresgid",
    "getresuid", "getrlimit", "getrusage", "getsid", "gettid", "getuid",
    "ioprio_get", "ioprio_set", "kill", "landlock_add_rule",
    "landlock_create_ruleset", "landlock_restrict_self", "personality",
    "pidfd_open", "pidfd_send_signal", "prctl", "prlimit64",
    /* reach only as far as pid namespace, identities and dumpability do,
       and a debugger of one's own processes is an honest use */
    "ptrace",
    "rseq", "sched_get_priority_max", "sched_get_priority_min",
    "sched_getaffinity", "sched_getattr", "sched_getparam",
    "sched_getscheduler", "sched_rr_get_interval", "sched_setaffinity",
    "sched_setattr", "sched_setparam", "sched_setscheduler", "sched_yield",
    /* can only take more away */
    "seccomp",
    "set_robust_list", "set_thread_area", "set_tid_address", "setfsgid",
    "setfsuid", "setgid", "setgroups", "setitimer", "setpgid", "setpriority",
    "setregid", "setresgid", "setresuid", "setreuid", "setrlimit", "setsid",
    "setuid", "sysinfo", "tgkill", "time", "times", "tkill", "uname", "vfork",
    "wait4", "waitid", "waitpid",

    /* signals, time, waiting */
    "alarm", "clock_getres", "clock_gettime", "clock_nanosleep",
    "epoll_create", "epoll_create1", "epoll_ctl", "epoll_ctl_old",
    "epoll_pwait", "epoll_pwait2", "epoll_wait", "epoll_wait_old", "eventfd",
    "eventfd2", "futex", "futex_requeue", "futex_wait", "futex_waitv",
    "futex_wake", "gettimeofday", "nanosleep", "pause", "poll", "ppoll",
    "pselect6", "restart_syscall", "rt_sigaction", "rt_sigpending",
    "rt_sigprocmask", "rt_sigqueueinfo", "rt_sigreturn", "rt_sigsuspend",
    "rt_sigtimedwait", "rt_tgsigqueueinfo", "select", "sigaltstack",
    "signalfd", "signalfd4", "timer_create", "timer_delete",
    "timer_getoverrun", "timer_gettime", "timer_settime", "timerfd_create",
    "timerfd_gettime", "timerfd_settime",

    /* sockets */
    "accept", "accept4", "bind", "connect", "getpeername", "getsockname",
    "getsockopt", "listen", "recvfrom", "recvmmsg", "recvmsg", "sendmmsg",
    "sendmsg", "sendto", "setsockopt", "shutdown", "socket", "socketpair",

    /* System V and POSIX objects: an IPC namespace of the session's own */
    "mq_getsetattr", "mq_notify", "mq_open", "mq_timedreceive",
    "mq_timedsend", "mq_unlink", "msgctl", "msgget", "msgrcv", "msgsnd",
    "semctl", "semget", "semop", "semtimedop", "shmat", "shmctl", "shmdt",
    "shmget"
};


/*
 * Refused by name with EPERM, not ENOSYS: a program is told that it may not,
 * rather than look for another way.  What is on neither list (io_setup and
 * its like, whose contexts all tenants share; modify_ldt; io_uring) is ENOSYS.
 */
static const char  *sbx_seccomp_refused[] = {
    "acct", "add_key", "adjtimex", "bpf", "chroot", "clock_adjtime",
    "clock_settime", "delete_module", "fanotify_init", "fanotify_mark",
    "finit_module", "fsconfig", "fsmount", "fsopen", "fspick",
    "init_module", "ioperm", "iopl", "kcmp", "kexec_file_load", "kexec_load",
    "keyctl", "lookup_dcookie", "mbind", "migrate_pages", "mount",
    "mount_setattr", "move_mount", "move_pages", "name_to_handle_at",
    "open_by_handle_at", "open_tree", "perf_event_open", "pidfd_getfd",
    "pivot_root", "process_mrelease", "process_vm_readv",
    "process_vm_writev", "quotactl", "quotactl_fd", "reboot", "request_key",
    "set_mempolicy", "set_mempolicy_home_node", "setdomainname", "setns",
    "sethostname", "settimeofday", "swapoff", "swapon", "sysfs", "syslog",
    "umount", "umount2", "unshare", "userfaultfd", "vhangup"
};


/*
 * ---- arguments -----------------------------------------------------------
 */

typedef struct {
    struct sock_filter   code[SBX_FILTER_MAX];
    unsigned             n;
} sbx_filter_t;

typedef struct {
    uint32_t   first;             /* up to the next run's */
    uint32_t   answer;            /* SECCOMP_RET_* */
} sbx_run_t;

typedef struct {
    sbx_run_t   run[SBX_RUNS_MAX];
    unsigned    n;
} sbx_runs_t;


static void sbx_filter_arguments(sbx_filter_t *f);
static void sbx_filter_socket(sbx_filter_t *f);
static int sbx_filter_list(sbx_filter_t *f, sbx_error_t *e);
static int sbx_filter_answers(uint32_t *answers, sbx_error_t *e);
static void sbx_filter_search(sbx_filter_t *f, const sbx_runs_t *runs,
    unsigned from, unsigned to);
static int sbx_filter_build(void **program, size_t *size, sbx_error_t *e);


static void
sbx_filter_add(sbx_filter_t *f, uint16_t code, uint32_t k, uint8_t jt,
    uint8_t jf)
{
    struct sock_filter  *insn;

    insn = &f->code[f->n++];
    insn->code = code;
    insn->k = k;
    insn->jt = jt;
    insn->jf = jf;
}


/* The low half of an argument: little endian, as both architectures are. */
static void
sbx_filter_load_arg(sbx_filter_t *f, unsigned arg)
{
    sbx_filter_add(f, BPF_LD | BPF_W | BPF_ABS,
                   (uint32_t) (offsetof(struct seccomp_data, args)
                               + arg * sizeof(uint64_t)),
                   0, 0);
}


static void
sbx_filter_return(sbx_filter_t *f, uint32_t action)
{
    sbx_filter_add(f, BPF_RET | BPF_K, action, 0, 0);
}


/* Begins the part for one call; what is returned goes to _end(), which
 * makes other calls jump over the part. */
static unsigned
sbx_filter_begin(sbx_filter_t *f, uint32_t nr)
{
    sbx_filter_add(f, BPF_LD | BPF_W | BPF_ABS,
                   offsetof(struct seccomp_data, nr), 0, 0);
    sbx_filter_add(f, BPF_JMP | BPF_JEQ | BPF_K, nr, 0, 0);

    return f->n - 1;
}


static void
sbx_filter_end(sbx_filter_t *f, unsigned begin)
{
    f->code[begin].jf = (uint8_t) (f->n - begin - 1);
}


/*
 * "Refuse if the value is any of these" and "unless it is any of these", on
 * the low half of one argument.
 */
static void
sbx_filter_any(sbx_filter_t *f, const uint32_t *values, unsigned count,
    int refuse, uint32_t err)
{
    unsigned  i;

    for (i = 0; i < count; i++) {
        /* a match jumps over one instruction after the list: over the jump
           to the return, or over the return */
        sbx_filter_add(f, BPF_JMP | BPF_JEQ | BPF_K, values[i],
                       (uint8_t) (count - i), 0);
    }

    if (refuse) {
        sbx_filter_add(f, BPF_JMP | BPF_JA, 1, 0, 0);
    }

    sbx_filter_return(f, SECCOMP_RET_ERRNO | err);
}


static void
sbx_filter_arguments(sbx_filter_t *f)
{
    unsigned               begin;
    static const uint32_t  requests[] = { TIOCSTI, 0x541c /* TIOCLINUX */ };
    static const uint32_t  personas[] = { 0, 0x8, 0x20000, 0x20008,
                                          0xffffffff };
    static const uint32_t  pair[] = { AF_UNIX };

    sbx_filter_add(f, BPF_LD | BPF_W | BPF_ABS,
                   offsetof(struct seccomp_data, arch), 0, 0);
    sbx_filter_add(f, BPF_JMP | BPF_JEQ | BPF_K, SBX_AUDIT_ARCH, 1, 0);
    sbx_filter_return(f, SECCOMP_RET_KILL_PROCESS);

    begin = sbx_filter_begin(f, SYS_ioctl);
    sbx_filter_load_arg(f, 1);
    sbx_filter_any(f, requests, sbx_nelts(requests), 1, EPERM);
    sbx_filter_end(f, begin);

    begin = sbx_filter_begin(f, SYS_clone);
    sbx_filter_load_arg(f, 0);
    sbx_filter_add(f, BPF_JMP | BPF_JSET | BPF_K, SBX_NAMESPACES, 0, 1);
    sbx_filter_return(f, SECCOMP_RET_ERRNO | EPERM);
    sbx_filter_end(f, begin);

    /* huge pages are the machine's, and no group's memory counts them */

    begin = sbx_filter_begin(f, SYS_mmap);
    sbx_filter_load_arg(f, 3);
    sbx_filter_add(f, BPF_JMP | BPF_JSET | BPF_K, MAP_HUGETLB, 0, 1);
    sbx_filter_return(f, SECCOMP_RET_ERRNO | ENOMEM);
    sbx_filter_end(f, begin);

    begin = sbx_filter_begin(f, SYS_memfd_create);
    sbx_filter_load_arg(f, 1);
    sbx_filter_add(f, BPF_JMP | BPF_JSET | BPF_K, MFD_HUGETLB, 0, 1);
    sbx_filter_return(f, SECCOMP_RET_ERRNO | ENOMEM);
    sbx_filter_end(f, begin);

    begin = sbx_filter_begin(f, SYS_personality);
    sbx_filter_load_arg(f, 0);
    sbx_filter_any(f, personas, sbx_nelts(personas), 0, EPERM);
    sbx_filter_end(f, begin);

    begin = sbx_filter_begin(f, SYS_socketpair);
    sbx_filter_load_arg(f, 0);
    sbx_filter_any(f, pair, sbx_nelts(pair), 0, EPERM);
    sbx_filter_end(f, begin);

    sbx_filter_socket(f);
}


/*
 * Unix, IPv4 and IPv6 sockets, and netlink's route family, by which libc
 * lists interfaces.  Of protocols and types only those that are always
 * there: asking for another loads a kernel module.
 */
static void
sbx_filter_socket(sbx_filter_t *f)
{
    unsigned               begin, netlink, unix_socket;
    static const uint32_t  protocols[SBX_SOCKET_PROTOCOLS] = {
        0, 1 /* ICMP */, 6 /* TCP */, 17 /* UDP */, 58 /* ICMPv6 */
    };
    static const uint32_t  route[] = { 0 };

    begin = sbx_filter_begin(f, SYS_socket);
    sbx_filter_load_arg(f, 0);

    unix_socket = f->n;
    sbx_filter_add(f, BPF_JMP | BPF_JEQ | BPF_K, AF_UNIX, 0, 0);
    netlink = f->n;
    sbx_filter_add(f, BPF_JMP | BPF_JEQ | BPF_K, AF_NETLINK, 0, 0);

    sbx_filter_add(f, BPF_JMP | BPF_JEQ | BPF_K, AF_INET, 2, 0);
    sbx_filter_add(f, BPF_JMP | BPF_JEQ | BPF_K, AF_INET6, 1, 0);
    sbx_filter_return(f, SECCOMP_RET_ERRNO | EPERM);

    sbx_filter_load_arg(f, 1);
    sbx_filter_add(f, BPF_ALU | BPF_AND | BPF_K, SBX_SOCKET_TYPE, 0, 0);
    sbx_filter_add(f, BPF_JMP | BPF_JGT | BPF_K, SOCK_RAW, 0, 1);
    sbx_filter_return(f, SECCOMP_RET_ERRNO | EPROTONOSUPPORT);

    sbx_filter_load_arg(f, 2);
    sbx_filter_any(f, protocols, SBX_SOCKET_PROTOCOLS, 0, EPROTONOSUPPORT);
    sbx_filter_add(f, BPF_JMP | BPF_JA, 3, 0, 0);

    f->code[netlink].jt = (uint8_t) (f->n - netlink - 1);
    sbx_filter_load_arg(f, 2);
    sbx_filter_any(f, route, sbx_nelts(route), 0, EPERM);

    f->code[unix_socket].jt = (uint8_t) (f->n - unix_socket - 1);
    sbx_filter_end(f, begin);
}


/*
 * ---- the list ------------------------------------------------------------
 */

int
sbx_seccomp_command(void **program, size_t *size, sbx_error_t *e)
{
    return sbx_filter_build(program, size, e);
}


/*
 * Everything init starts inherits init's filter, which therefore cannot be
 * narrower; init itself gets along with what a command may do, because all
 * that needs more rights has been done before it runs.
 */
int
sbx_seccomp_init(void **program, size_t *size, sbx_error_t *e)
{
    return sbx_filter_build(program, size, e);
}


static int
sbx_filter_build(void **program, size_t *size, sbx_error_t *e)
{
    sbx_filter_t  f = { .n = 0 };

    sbx_filter_arguments(&f);

    if (sbx_filter_list(&f, e) == -1) {
        return -1;
    }

    *size = f.n * sizeof(struct sock_filter);
    *program = malloc(*size);

    if (*program == NULL) {
        return sbx_error(e, errno, SBX_E_INTERNAL, "no memory");
    }

    memcpy(*program, f.code, *size);

    return 0;
}


/*
 * The numbers as runs of one answer, and a binary search through them: a
 * quarter of the instructions that an entry for each call would take, which
 * counts because every command loads the filter anew.
 */
static int
sbx_filter_list(sbx_filter_t *f, sbx_error_t *e)
{
    uint32_t     answers[SBX_CALLS_MAX];
    uint32_t     nr;
    sbx_run_t   *run;
    sbx_runs_t   runs = { .n = 0 };

    if (sbx_filter_answers(answers, e) == -1) {
        return -1;
    }

    for (nr = 0; nr < SBX_CALLS_MAX; nr++) {
        if (nr != 0 && runs.run[runs.n - 1].answer == answers[nr]) {
            continue;
        }

        if (runs.n == SBX_RUNS_MAX - 3) {
            return sbx_error(e, 0, SBX_E_INTERNAL, "the filter is too long");
        }

        run = &runs.run[runs.n++];
        run->first = nr;
        run->answer = answers[nr];
    }

    /* x32 on x86-64; no other architecture has such numbers.  -1 is how a
       tracer skips a call. */

    runs.run[runs.n].first = SBX_X32_BIT;
    runs.run[runs.n++].answer = SECCOMP_RET_KILL_PROCESS;
    runs.run[runs.n].first = UINT32_MAX;
    runs.run[runs.n++].answer = SECCOMP_RET_ERRNO | ENOSYS;

    sbx_filter_add(f, BPF_LD | BPF_W | BPF_ABS,
                   offsetof(struct seccomp_data, nr), 0, 0);
    sbx_filter_search(f, &runs, 0, runs.n);

    return 0;
}


static int
sbx_filter_answers(uint32_t *answers, sbx_error_t *e)
{
    int     nr;
    size_t  i, k;

    static const struct {
        const char  **names;
        size_t        count;
        uint32_t      answer;
    } lists[] = {
        { sbx_seccomp_allowed, sbx_nelts(sbx_seccomp_allowed),
          SECCOMP_RET_ALLOW },
        { sbx_seccomp_refused, sbx_nelts(sbx_seccomp_refused),
          SECCOMP_RET_ERRNO | EPERM }
    };

    for (i = 0; i < SBX_CALLS_MAX; i++) {
        answers[i] = SECCOMP_RET_ERRNO | ENOSYS;
    }

    for (k = 0; k < sbx_nelts(lists); k++) {
        for (i = 0; i < lists[k].count; i++) {
            nr = seccomp_syscall_resolve_name(lists[k].names[i]);

            /* unknown to the library, or not of this architecture */

            if (nr < 0) {
                continue;
            }

            if (nr >= SBX_CALLS_MAX) {
                return sbx_error(e, 0, SBX_E_INTERNAL,
                                 "the number of %s is too large",
                                 lists[k].names[i]);
            }

            answers[nr] = lists[k].answer;
        }
    }

    return 0;
}


static void
sbx_filter_search(sbx_filter_t *f, const sbx_runs_t *runs, unsigned from,
    unsigned to)
{
    unsigned  middle, jump;

    if (to - from == 1) {
        sbx_filter_return(f, runs->run[from].answer);
        return;
    }

    middle = from + (to - from) / 2;

    jump = f->n;
    sbx_filter_add(f, BPF_JMP | BPF_JGE | BPF_K, runs->run[middle].first, 0,
                   0);
    sbx_filter_search(f, runs, from, middle);
    f->code[jump].jt = (uint8_t) (f->n - jump - 1);
    sbx_filter_search(f, runs, middle, to);
}


int
sbx_seccomp_load(const void *program, size_t size)
{
    struct sock_fprog  prog;

    prog.len = (unsigned short) (size / sizeof(struct sock_filter));
    prog.filter = (struct sock_filter *) (uintptr_t) program;

    return (int) syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &prog);
}
