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
 * Filters add up: init's is the one of commands but for clone3, by which a
 * process comes to life in its group.  No filter can look at what clone3 is
 * asked for; that no namespace can be made is seen to by the limits of the
 * user namespace.  Init's lets attributes of any size through, too.  What init
 * starts takes a second filter of a few lines, which takes clone3 away and
 * bounds attributes: for commands, or for who serves file calls.
 */

#include "isolate.h"
#include "sandbox_wire.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <linux/sockios.h>
#include <sched.h>
#include <seccomp.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/shm.h>
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
#define SBX_SECCOMP_RUNS     240
#define SBX_FILTER_MAX   (256 + 2 * SBX_SECCOMP_RUNS)

#define SBX_NAMESPACES   (CLONE_NEWNS | CLONE_NEWCGROUP | CLONE_NEWUTS        \
                          | CLONE_NEWIPC | CLONE_NEWUSER | CLONE_NEWPID       \
                          | CLONE_NEWNET | 0x80 /* CLONE_NEWTIME */)

#define SBX_SOCKET_TYPE  0xfu          /* the rest are flags */

/* Of an extended attribute's value.  The kernel counts the memory of an
 * access control list for nobody: 64 KB for each file would be gigabytes.  A
 * file server sets "user." alone, whose memory is counted. */
#define SBX_XATTR_MAX    64
#define SBX_XATTR_FILES  SBX_FILE_METADATA_MAX

#ifndef PR_SCHED_CORE
#define PR_SCHED_CORE    62
#endif
#ifndef MADV_MERGEABLE
#define MADV_MERGEABLE   12
#endif


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
    "symlinkat", "sync_file_range", "syncfs", "tee", "truncate",
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
 * Nothing is done, and said to be: sync() writes what everybody on the host
 * has in memory, and a session's own files are as safe without.
 */
static const char  *sbx_seccomp_idle[] = { "sync" };


/*
 * ---- arguments -----------------------------------------------------------
 */

typedef struct {
    struct sock_filter   code[SBX_FILTER_MAX];
    unsigned             n;
} sbx_filter_t;

/* What is refused of a call, by the low half of one argument. */
typedef enum {
    SBX_ARG_ONE_OF,               /* of the values */
    SBX_ARG_NONE_OF,
    SBX_ARG_BITS,                 /* any bit of the first value */
    SBX_ARG_ABOVE                 /* the first value */
} sbx_arg_test_t;

typedef struct {
    long              nr;
    const uint32_t   *values;
    unsigned          count;
    unsigned          arg;
    sbx_arg_test_t    test;
    uint32_t          err;        /* 0: nothing is done, and said to be */
} sbx_arg_rule_t;

typedef struct {
    const uint32_t   *names;
    unsigned          count;
    uint32_t          level;
    uint32_t          err;        /* as above */
} sbx_option_rule_t;

typedef struct {
    uint32_t   first;             /* up to the next run's */
    uint32_t   answer;            /* SECCOMP_RET_* */
} sbx_run_t;

typedef struct {
    sbx_run_t   run[SBX_SECCOMP_RUNS];
    unsigned    n;
} sbx_runs_t;


static void sbx_filter_arguments(sbx_filter_t *f);
static void sbx_filter_rules(sbx_filter_t *f, const sbx_arg_rule_t *rules,
    size_t n);
static int sbx_filter_second(const sbx_arg_rule_t *rules, size_t n,
    void **program, size_t *size, sbx_error_t *e);
static void sbx_filter_rule(sbx_filter_t *f, const sbx_arg_rule_t *rule);
static void sbx_filter_options(sbx_filter_t *f);
static void sbx_filter_socket(sbx_filter_t *f);
static int sbx_filter_build(void **program, size_t *size, int init,
    sbx_error_t *e);
static int sbx_filter_copy(const sbx_filter_t *f, void **program,
    size_t *size, sbx_error_t *e);
static int sbx_filter_list(sbx_filter_t *f, int clone3, sbx_error_t *e);
static int sbx_filter_answers(uint32_t *answers, sbx_error_t *e);
static void sbx_filter_search(sbx_filter_t *f, const sbx_runs_t *runs,
    unsigned from, unsigned to);


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


/*
 * TIOCSTI and TIOCLINUX type into terminals.  TIOCSETD gives a terminal a
 * line discipline, and the calls of bridges, VLANs and frame relay come
 * before any check of rights: each loads a module of the kernel's that has
 * nothing to do here.
 */
static const uint32_t  sbx_arg_ioctl[] = {
    TIOCSTI, 0x541c /* TIOCLINUX */, TIOCSETD,
    SIOCGIFBR, SIOCSIFBR, SIOCBRADDBR, SIOCBRDELBR, SIOCBRADDIF, SIOCBRDELIF,
    SIOCADDDLCI, SIOCDELDLCI, SIOCGIFVLAN, SIOCSIFVLAN
};

static const uint32_t  sbx_arg_clone[] = { SBX_NAMESPACES };
static const uint32_t  sbx_arg_map_huge[] = { MAP_HUGETLB };
static const uint32_t  sbx_arg_memfd_huge[] = { MFD_HUGETLB };
static const uint32_t  sbx_arg_shm_huge[] = { SHM_HUGETLB };
static const uint32_t  sbx_arg_personality[] = {
    0, 0x8, 0x20000, 0x20008, 0xffffffff
};
static const uint32_t  sbx_arg_pair[] = { AF_UNIX };
static const uint32_t  sbx_arg_xattr[] = { SBX_XATTR_MAX };
static const uint32_t  sbx_arg_xattr_files[] = { SBX_XATTR_FILES };
static const uint32_t  sbx_arg_prctl[] = { PR_SCHED_CORE };
static const uint32_t  sbx_arg_madvise[] = { MADV_MERGEABLE };
static const uint32_t  sbx_arg_fadvise[] = { POSIX_FADV_DONTNEED };
static const uint32_t  sbx_arg_fcntl[] = { F_NOTIFY };

#define SBX_ARG(nr, arg, test, err, values)                                  \
    { SYS_ ## nr, values, sbx_nelts(values), arg, SBX_ARG_ ## test, err }

static const sbx_arg_rule_t  sbx_arg_rules[] = {
    SBX_ARG(ioctl, 1, ONE_OF, EPERM, sbx_arg_ioctl),
    SBX_ARG(clone, 0, BITS, EPERM, sbx_arg_clone),

    /* huge pages are the machine's, and no group's memory counts them */
    SBX_ARG(mmap, 3, BITS, ENOMEM, sbx_arg_map_huge),
    SBX_ARG(memfd_create, 1, BITS, ENOMEM, sbx_arg_memfd_huge),
    SBX_ARG(shmget, 2, BITS, ENOMEM, sbx_arg_shm_huge),

    /* one page for two tenants tells each what the other has in it */
    SBX_ARG(madvise, 2, ONE_OF, EINVAL, sbx_arg_madvise),
    SBX_ARG(process_madvise, 3, ONE_OF, EINVAL, sbx_arg_madvise),

    /* programs of the host would leave the memory that all share */
    SBX_ARG(fadvise64, 3, ONE_OF, 0, sbx_arg_fadvise),

    SBX_ARG(personality, 0, NONE_OF, EPERM, sbx_arg_personality),

    /* a processor's other threads would be kept idle, at nobody's expense */
    SBX_ARG(prctl, 0, ONE_OF, EPERM, sbx_arg_prctl),

    /* watches of a directory, as many as there are descriptors: who reads
     * below it pays for all of them.  inotify, which has replaced it, has one
     * for each directory, and few instances. */
    SBX_ARG(fcntl, 1, ONE_OF, EINVAL, sbx_arg_fcntl),

    SBX_ARG(socketpair, 0, NONE_OF, EPERM, sbx_arg_pair)
};

static const sbx_arg_rule_t  sbx_arg_command[] = {
    SBX_ARG(setxattr, 3, ABOVE, EOPNOTSUPP, sbx_arg_xattr),
    SBX_ARG(lsetxattr, 3, ABOVE, EOPNOTSUPP, sbx_arg_xattr),
    SBX_ARG(fsetxattr, 3, ABOVE, EOPNOTSUPP, sbx_arg_xattr)
};

static const sbx_arg_rule_t  sbx_arg_files[] = {
    SBX_ARG(setxattr, 3, ABOVE, EOPNOTSUPP, sbx_arg_xattr_files),
    SBX_ARG(lsetxattr, 3, ABOVE, EOPNOTSUPP, sbx_arg_xattr_files),
    SBX_ARG(fsetxattr, 3, ABOVE, EOPNOTSUPP, sbx_arg_xattr_files)
};


/*
 * Options of sockets that take memory of the kernel's which no group counts
 * (filters, whose machine code is limited for the whole host at once, so
 * that others could have none; keys; memberships), or whose protocol is a
 * module of its own.
 */
static const uint32_t  sbx_option_socket[] = {
    SO_ATTACH_FILTER, 50 /* SO_ATTACH_BPF */,
    51 /* SO_ATTACH_REUSEPORT_CBPF */, 52 /* SO_ATTACH_REUSEPORT_EBPF */
};
static const uint32_t  sbx_option_tcp[] = {
    14 /* TCP_MD5SIG */, 31 /* TCP_ULP */, 32 /* TCP_MD5SIG_EXT */,
    38 /* TCP_AO_ADD_KEY */
};
static const uint32_t  sbx_option_ipv6[] = {
    20 /* IPV6_ADD_MEMBERSHIP */, 27 /* IPV6_JOIN_ANYCAST */,
    42 /* MCAST_JOIN_GROUP */, 46 /* MCAST_JOIN_SOURCE_GROUP */,
    48 /* MCAST_MSFILTER */
};

/*
 * Who closes the last descriptor of a socket that lingers waits, whoever set
 * it: a worker that was passed one, even if it only closes what it came by.
 * So nobody inside sets it, and is told he did.
 */
static const uint32_t  sbx_option_linger[] = { SO_LINGER };

static const sbx_option_rule_t  sbx_option_rules[] = {
    { sbx_option_socket, sbx_nelts(sbx_option_socket), SOL_SOCKET, EPERM },
    { sbx_option_linger, sbx_nelts(sbx_option_linger), SOL_SOCKET, 0 },
    { sbx_option_tcp,    sbx_nelts(sbx_option_tcp),    6 /* SOL_TCP */,
      EPERM },
    { sbx_option_ipv6,   sbx_nelts(sbx_option_ipv6),   41 /* SOL_IPV6 */,
      EPERM }
};


static void
sbx_filter_arguments(sbx_filter_t *f)
{
    sbx_filter_add(f, BPF_LD | BPF_W | BPF_ABS,
                   offsetof(struct seccomp_data, arch), 0, 0);
    sbx_filter_add(f, BPF_JMP | BPF_JEQ | BPF_K, SBX_AUDIT_ARCH, 1, 0);
    sbx_filter_return(f, SECCOMP_RET_KILL_PROCESS);

    sbx_filter_rules(f, sbx_arg_rules, sbx_nelts(sbx_arg_rules));
    sbx_filter_options(f);
    sbx_filter_socket(f);
}


static void
sbx_filter_rules(sbx_filter_t *f, const sbx_arg_rule_t *rules, size_t n)
{
    size_t  i;

    for (i = 0; i < n; i++) {
        sbx_filter_rule(f, &rules[i]);
    }
}


static void
sbx_filter_rule(sbx_filter_t *f, const sbx_arg_rule_t *rule)
{
    unsigned  begin;

    begin = sbx_filter_begin(f, (uint32_t) rule->nr);
    sbx_filter_load_arg(f, rule->arg);

    switch (rule->test) {

    case SBX_ARG_ONE_OF:
    case SBX_ARG_NONE_OF:
        sbx_filter_any(f, rule->values, rule->count,
                       rule->test == SBX_ARG_ONE_OF, rule->err);
        break;

    case SBX_ARG_BITS:
        sbx_filter_add(f, BPF_JMP | BPF_JSET | BPF_K, rule->values[0], 0, 1);
        sbx_filter_return(f, SECCOMP_RET_ERRNO | rule->err);
        break;

    case SBX_ARG_ABOVE:
        sbx_filter_add(f, BPF_JMP | BPF_JGT | BPF_K, rule->values[0], 0, 1);
        sbx_filter_return(f, SECCOMP_RET_ERRNO | rule->err);
        break;
    }

    sbx_filter_end(f, begin);
}


static void
sbx_filter_options(sbx_filter_t *f)
{
    size_t                    i;
    unsigned                  begin, other;
    const sbx_option_rule_t  *rule;

    begin = sbx_filter_begin(f, SYS_setsockopt);

    for (i = 0; i < sbx_nelts(sbx_option_rules); i++) {
        rule = &sbx_option_rules[i];

        sbx_filter_load_arg(f, 1);
        other = f->n;
        sbx_filter_add(f, BPF_JMP | BPF_JEQ | BPF_K, rule->level, 0, 0);
        sbx_filter_load_arg(f, 2);
        sbx_filter_any(f, rule->names, rule->count, 1, rule->err);
        f->code[other].jf = (uint8_t) (f->n - other - 1);
    }

    sbx_filter_end(f, begin);
}


/*
 * Unix, IPv4 and IPv6 sockets, and netlink's route family, by which libc
 * lists interfaces.  Of types and protocols only the pairs that are always
 * there: asking for another starts the host's modprobe, as its root.
 */
static void
sbx_filter_socket(sbx_filter_t *f)
{
    unsigned               begin, netlink, unix_socket, end;
    static const uint32_t  route[] = { 0 };
    static const uint32_t  tcp[] = { 0, 6 };
    static const uint32_t  udp[] = { 0, 17 };

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

    sbx_filter_add(f, BPF_JMP | BPF_JEQ | BPF_K, SOCK_RAW, 0, 1);
    sbx_filter_return(f, SECCOMP_RET_ERRNO | EPERM);

    sbx_filter_add(f, BPF_JMP | BPF_JEQ | BPF_K, SOCK_STREAM, 0,
                   sbx_nelts(tcp) + 3);
    sbx_filter_load_arg(f, 2);
    sbx_filter_any(f, tcp, sbx_nelts(tcp), 0, EPROTONOSUPPORT);
    end = f->n;
    sbx_filter_add(f, BPF_JMP | BPF_JA, 0, 0, 0);

    sbx_filter_add(f, BPF_JMP | BPF_JEQ | BPF_K, SOCK_DGRAM, 1, 0);
    sbx_filter_return(f, SECCOMP_RET_ERRNO | EPROTONOSUPPORT);
    sbx_filter_load_arg(f, 2);
    sbx_filter_any(f, udp, sbx_nelts(udp), 0, EPROTONOSUPPORT);
    sbx_filter_add(f, BPF_JMP | BPF_JA, 3, 0, 0);

    f->code[netlink].jt = (uint8_t) (f->n - netlink - 1);
    sbx_filter_load_arg(f, 2);
    sbx_filter_any(f, route, sbx_nelts(route), 0, EPERM);

    f->code[unix_socket].jt = (uint8_t) (f->n - unix_socket - 1);
    f->code[end].k = f->n - end - 1;
    sbx_filter_end(f, begin);
}


/*
 * ---- the list ------------------------------------------------------------
 */

int
sbx_seccomp_command(void **program, size_t *size, sbx_error_t *e)
{
    return sbx_filter_build(program, size, 0, e);
}


/*
 * Everything init starts inherits init's filter, which therefore cannot be
 * narrower; init itself gets along with what a command may do, because all
 * that needs more rights has been done before it runs.
 */
int
sbx_seccomp_init(void **program, size_t *size, sbx_error_t *e)
{
    return sbx_filter_build(program, size, 1, e);
}


int
sbx_seccomp_rest(void **program, size_t *size, sbx_error_t *e)
{
    return sbx_filter_second(sbx_arg_command, sbx_nelts(sbx_arg_command),
                             program, size, e);
}


int
sbx_seccomp_files(void **program, size_t *size, sbx_error_t *e)
{
    return sbx_filter_second(sbx_arg_files, sbx_nelts(sbx_arg_files),
                             program, size, e);
}


static int
sbx_filter_second(const sbx_arg_rule_t *rules, size_t n, void **program,
    size_t *size, sbx_error_t *e)
{
    unsigned      begin;
    sbx_filter_t  f = { .n = 0 };

    begin = sbx_filter_begin(&f, SYS_clone3);
    sbx_filter_return(&f, SECCOMP_RET_ERRNO | ENOSYS);
    sbx_filter_end(&f, begin);

    sbx_filter_rules(&f, rules, n);
    sbx_filter_return(&f, SECCOMP_RET_ALLOW);

    return sbx_filter_copy(&f, program, size, e);
}


static int
sbx_filter_build(void **program, size_t *size, int init, sbx_error_t *e)
{
    sbx_filter_t  f = { .n = 0 };

    sbx_filter_arguments(&f);

    if (!init) {
        sbx_filter_rules(&f, sbx_arg_command, sbx_nelts(sbx_arg_command));
    }

    if (sbx_filter_list(&f, init, e) == -1) {
        return -1;
    }

    return sbx_filter_copy(&f, program, size, e);
}


static int
sbx_filter_copy(const sbx_filter_t *f, void **program, size_t *size,
    sbx_error_t *e)
{
    *size = f->n * sizeof(struct sock_filter);
    *program = malloc(*size);

    if (*program == NULL) {
        return sbx_error(e, errno, SBX_E_INTERNAL, "no memory");
    }

    memcpy(*program, f->code, *size);

    return 0;
}


/*
 * The numbers as runs of one answer, and a binary search through them: a
 * quarter of the instructions that an entry for each call would take, which
 * counts because every command loads the filter anew.
 */
static int
sbx_filter_list(sbx_filter_t *f, int clone3, sbx_error_t *e)
{
    uint32_t     answers[SBX_CALLS_MAX];
    uint32_t     nr;
    sbx_run_t   *run;
    sbx_runs_t   runs = { .n = 0 };

    if (sbx_filter_answers(answers, e) == -1) {
        return -1;
    }

    if (clone3) {
        answers[SYS_clone3] = SECCOMP_RET_ALLOW;
    }

    for (nr = 0; nr < SBX_CALLS_MAX; nr++) {
        if (nr != 0 && runs.run[runs.n - 1].answer == answers[nr]) {
            continue;
        }

        if (runs.n == SBX_SECCOMP_RUNS - 3) {
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
          SECCOMP_RET_ERRNO | EPERM },
        { sbx_seccomp_idle, sbx_nelts(sbx_seccomp_idle), SECCOMP_RET_ERRNO }
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
