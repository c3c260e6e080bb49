/* What the filter for commands answers, call by call, by number. */

#include "isolate.h"
#include "sandbox_wire.h"

#include "tap.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pty.h>
#include <sched.h>
#include <seccomp.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>


#define X32   0x40000000L

/* What became of a call. */
#define KILLED    (-1000)
#define ALLOWED   0


static void    *program;
static size_t   program_size;


typedef struct {
    long   nr;
    long   a[6];
} call_t;


static void
child_filter(void)
{
    struct rlimit  none = { 0, 0 };

    (void) setrlimit(RLIMIT_CORE, &none);

    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == -1
        || sbx_seccomp_load(program, program_size) == -1)
    {
        _exit(250);
    }
}


static int
child_status(pid_t pid)
{
    int  status;

    if (waitpid(pid, &status, 0) != pid) {
        return -1;
    }

    if (WIFSIGNALED(status)) {
        return (WTERMSIG(status) == SIGSYS || WTERMSIG(status) == SIGSEGV)
               ? KILLED : -1;
    }

    return WEXITSTATUS(status);
}


/* 0, or the errno, or KILLED.  In a child under the filter. */
static int
try_call(const call_t *c)
{
    pid_t  pid;

    pid = fork();

    if (pid == 0) {
        child_filter();

        if (syscall(c->nr, c->a[0], c->a[1], c->a[2], c->a[3], c->a[4],
                    c->a[5])
            == -1)
        {
            _exit(errno);
        }

        /* a fork's child ends here as well */
        _exit(0);
    }

    return child_status(pid);
}


static int
try_number(long nr)
{
    call_t  c = { .nr = nr, .a = { -1, -1, -1, -1, -1, -1 } };

    return try_call(&c);
}


#if defined(__x86_64__)

/* The 32-bit entry, whatever the number would mean there.  A kernel without
 * it kills as well, by SIGSEGV. */
static int
try_int80(long nr)
{
    long   rc;
    pid_t  pid;

    pid = fork();

    if (pid == 0) {
        (void) signal(SIGSEGV, SIG_DFL);
        child_filter();

        __asm__ volatile ("int $0x80" : "=a" (rc)
                          : "a" (nr), "b" (0), "c" (0), "d" (0)
                          : "memory", "r8", "r9", "r10", "r11");
        _exit(rc < 0 ? (int) -rc : 0);
    }

    return child_status(pid);
}

#endif


/*
 * What the filter itself says, without the kernel, whose own answer to an
 * odd argument may be the same: the program is run here.
 */
static uint32_t
filter_answer(const call_t *c)
{
    unsigned             pc;
    uint32_t             a, k;
    struct seccomp_data  data;

    const struct sock_filter  *code = program, *i;

    memset(&data, 0, sizeof(data));
    data.nr = (int) c->nr;
#if defined(__x86_64__)
    data.arch = AUDIT_ARCH_X86_64;
#else
    data.arch = AUDIT_ARCH_AARCH64;
#endif

    for (pc = 0; pc < 6; pc++) {
        data.args[pc] = (uint64_t) c->a[pc];
    }

    a = 0;

    for (pc = 0; pc < program_size / sizeof(struct sock_filter); pc++) {
        i = &code[pc];
        k = i->k;

        switch (i->code) {
        case BPF_LD | BPF_W | BPF_ABS:
            memcpy(&a, (const char *) &data + k, sizeof(a));
            break;
        case BPF_ALU | BPF_AND | BPF_K:
            a &= k;
            break;
        case BPF_JMP | BPF_JA:
            pc += k;
            break;
        case BPF_JMP | BPF_JEQ | BPF_K:
            pc += (a == k) ? i->jt : i->jf;
            break;
        case BPF_JMP | BPF_JGT | BPF_K:
            pc += (a > k) ? i->jt : i->jf;
            break;
        case BPF_JMP | BPF_JGE | BPF_K:
            pc += (a >= k) ? i->jt : i->jf;
            break;
        case BPF_JMP | BPF_JSET | BPF_K:
            pc += (a & k) ? i->jt : i->jf;
            break;
        case BPF_RET | BPF_K:
            return k;
        default:
            return UINT32_MAX;
        }
    }

    return UINT32_MAX;
}


#define HIGH   (1l << 32)

/* What a kernel might refuse, or do harm by, all by itself. */
static void
test_arguments(void)
{
    size_t    i;
    uint32_t  want;

    static const struct {
        const char  *name;
        call_t       call;
        int          err;               /* 0: done; -1: nothing done, told 0 */
    } rows[] = {
        { "a line discipline is set", { SYS_ioctl, { 0, 0x5423 } }, EPERM },
        { "with high bits", { SYS_ioctl, { 0, 0x5423 | HIGH } }, EPERM },
        { "one is asked for", { SYS_ioctl, { 0, 0x5424 } }, 0 },
        { "bridges are listed", { SYS_ioctl, { 3, 0x8940 } }, EPERM },
        { "bridges are changed", { SYS_ioctl, { 3, 0x8941 } }, EPERM },
        { "a bridge is made", { SYS_ioctl, { 3, 0x89a0 } }, EPERM },
        { "a bridge is removed", { SYS_ioctl, { 3, 0x89a1 } }, EPERM },
        { "a VLAN is asked for", { SYS_ioctl, { 3, 0x8982 } }, EPERM },
        { "a VLAN is made", { SYS_ioctl, { 3, 0x8983 | HIGH } }, EPERM },
        { "interfaces are listed", { SYS_ioctl, { 3, 0x8912 } }, 0 },

        { "TCP", { SYS_socket, { 2, 1, 6 } }, 0 },
        { "UDP over IPv6", { SYS_socket, { 10, 2, 17 } }, 0 },
        { "a stream of UDP", { SYS_socket, { 2, 1, 17 } }, EPROTONOSUPPORT },
        { "a stream of ICMP", { SYS_socket, { 2, 1, 1 } }, EPROTONOSUPPORT },
        { "TCP datagrams", { SYS_socket, { 10, 2, 6 } }, EPROTONOSUPPORT },
        { "ICMPv6 of IPv4", { SYS_socket, { 2, 2, 58 } }, EPROTONOSUPPORT },
        { "no type", { SYS_socket, { 2, 0, 0 } }, EPROTONOSUPPORT },
        { "raw, no protocol", { SYS_socket, { 2, 3, 0 } }, EPERM },
        { "raw ICMP", { SYS_socket, { 10, 3 | 02000000, 58 } }, EPERM },
        { "SEQPACKET", { SYS_socket, { 2, 5, 0 } }, EPROTONOSUPPORT },
        { "netlink's route", { SYS_socket, { 16, 3, 0 } }, 0 },
        { "unix, of any type", { SYS_socket, { 1, 5, 0 } }, 0 },

        { "socket filter", { SYS_setsockopt, { 3, 1, 26 } }, EPERM },
        { "the same, high bits", { SYS_setsockopt, { 3, 1 | HIGH, 26 } },
          EPERM },
        { "bpf socket filter", { SYS_setsockopt, { 3, 1, 50 } }, EPERM },
        { "reuseport filter", { SYS_setsockopt, { 3, 1, 51 } }, EPERM },
        { "TCP MD5 key", { SYS_setsockopt, { 3, 6, 14 } }, EPERM },
        { "TCP AO key", { SYS_setsockopt, { 3, 6, 38 } }, EPERM },
        { "TCP upper protocol", { SYS_setsockopt, { 3, 6, 31 } }, EPERM },
        { "IPv6 membership", { SYS_setsockopt, { 3, 41, 20 } }, EPERM },
        { "any group", { SYS_setsockopt, { 3, 41, 42 } }, EPERM },
        { "linger", { SYS_setsockopt, { 3, 1, 13 } }, -1 },
        { "linger, high bits", { SYS_setsockopt, { 3, 1, 13 | HIGH } }, -1 },
        { "reuse address", { SYS_setsockopt, { 3, 1, 2 } }, 0 },
        { "no delay", { SYS_setsockopt, { 3, 6, 1 } }, 0 },
        { "IPv6 only", { SYS_setsockopt, { 3, 41, 26 } }, 0 },

        { "sync", { SYS_sync, { 0 } }, -1 },
        { "cache dropped", { SYS_fadvise64, { 3, 0, 0, 4 } }, -1 },
        { "cache wanted", { SYS_fadvise64, { 3, 0, 0, 3 } }, 0 },
        { "small attribute", { SYS_setxattr, { 1, 1, 1, 64 } }, 0 },
        { "large attribute", { SYS_setxattr, { 1, 1, 1, 65 } }, EOPNOTSUPP },
        { "of a link", { SYS_lsetxattr, { 1, 1, 1, 65536 } }, EOPNOTSUPP },
        { "of a descriptor", { SYS_fsetxattr, { 1, 1, 1, -1 } }, EOPNOTSUPP },

        { "huge shared memory", { SYS_shmget, { 0, 4096, 04000 | 01000 } },
          ENOMEM },
        { "shared memory", { SYS_shmget, { 0, 4096, 01600 } }, 0 },
        { "merging", { SYS_madvise, { 0, 0, 12 } }, EINVAL },
        { "merging of others'", { SYS_process_madvise, { 0, 0, 0, 12 } },
          EINVAL },
        { "huge pages wished", { SYS_madvise, { 0, 0, 14 } }, 0 },
        { "core scheduling", { SYS_prctl, { 62, 1 } }, EPERM },
        { "a name", { SYS_prctl, { 15, 1 } }, 0 }
    };

    for (i = 0; i < sbx_nelts(rows); i++) {
        want = (rows[i].err == 0) ? SECCOMP_RET_ALLOW
               : SECCOMP_RET_ERRNO | (uint32_t) (rows[i].err == -1
                                                 ? 0 : rows[i].err);
        ok(filter_answer(&rows[i].call) == want, "%s: %s", rows[i].name,
           rows[i].err > 0 ? strerrorname_np(rows[i].err)
                           : rows[i].err == 0 ? "let through" : "idle");
    }
}


static void
test_refused(void)
{
    int     nr, rc;
    size_t  i;

    static const char  *names[] = {
        "mount", "umount2", "pivot_root", "chroot", "setns", "unshare",
        "open_tree", "fsopen", "fsconfig", "fsmount", "fspick", "move_mount",
        "mount_setattr", "bpf", "perf_event_open", "userfaultfd", "keyctl",
        "add_key", "request_key", "name_to_handle_at", "open_by_handle_at",
        "process_vm_readv", "process_vm_writev", "pidfd_getfd", "kexec_load",
        "kexec_file_load", "init_module", "finit_module", "delete_module",
        "reboot", "swapon", "swapoff", "acct", "syslog", "settimeofday",
        "clock_settime", "sethostname", "setdomainname", "quotactl",
        "fanotify_init", "kcmp", "vhangup"
    };

    for (i = 0; i < sbx_nelts(names); i++) {
        nr = seccomp_syscall_resolve_name(names[i]);
        rc = try_number(nr);
        ok(rc == EPERM, "%s: EPERM", names[i]);

        if (rc != EPERM) {
            printf("# got %d (%s)\n", rc, strerror(rc));
        }
    }
}


static void
test_unknown(void)
{
    size_t  i;

    static const struct {
        long         nr;
        const char  *name;
    } calls[] = {
        { 425, "io_uring_setup" }, { 426, "io_uring_enter" },
        { 427, "io_uring_register" }, { 435, "clone3" },
        { SYS_io_setup, "io_setup" }, { 500, "what is not there yet" },
        { 511, "the last that is looked at" }, { 512, "the next" },
        { 100000, "a large number" }, { X32 - 1, "the largest before x32" },
        { -1, "the number that a tracer skips by" }
    };

    for (i = 0; i < sbx_nelts(calls); i++) {
        is_int(try_number(calls[i].nr), ENOSYS, calls[i].name);
    }
}


static void
test_foreign(void)
{
#if defined(__x86_64__)

    size_t  i;
    char    name[80];

    static const long  numbers[] = {
        SYS_getpid, SYS_read, SYS_mount, SYS_unshare, 425, 435, 512, 520, 547,
        1, 20
    };

    for (i = 0; i < sbx_nelts(numbers); i++) {
        (void) snprintf(name, sizeof(name), "x32 number %ld kills",
                        numbers[i]);
        is_int(try_number(numbers[i] | X32), KILLED, name);

        (void) snprintf(name, sizeof(name), "int 0x80 number %ld kills",
                        numbers[i]);
        is_int(try_int80(numbers[i]), KILLED, name);
    }

#else
    skip("no second entry on this architecture", "foreign calls");
#endif
}


static void
test_clone(void)
{
    size_t  i;
    char    name[80];

    static const unsigned long  flags[] = {
        CLONE_NEWNS, CLONE_NEWCGROUP, CLONE_NEWUTS, CLONE_NEWIPC,
        CLONE_NEWUSER, CLONE_NEWPID, CLONE_NEWNET, 0x80,
        CLONE_NEWUSER | CLONE_NEWNS | CLONE_VM, CLONE_NEWUSER | (1ul << 32)
    };

    for (i = 0; i < sbx_nelts(flags); i++) {
        call_t  c = { .nr = SYS_clone,
                      .a = { (long) (flags[i] | SIGCHLD), 0, 0, 0, 0 } };

        (void) snprintf(name, sizeof(name), "clone with %#lx: EPERM",
                        flags[i]);
        is_int(try_call(&c), EPERM, name);
    }

    {
        call_t  c = { .nr = SYS_clone, .a = { SIGCHLD, 0, 0, 0, 0 } };

        is_int(try_call(&c), ALLOWED, "clone as fork does it");
    }
}


static void
test_ioctl(void)
{
    int     master, slave;
    size_t  i;
    char    byte, name[80];

    static const struct {
        unsigned long   request;
        int             expected;
    } rows[] = {
        { 0x5412, EPERM }, { 0x5412 | (1ul << 32), EPERM },
        { 0x5412 | (0xfffffffful << 32), EPERM },
        { 0x541c, EPERM }, { 0x541c | (1ul << 63), EPERM },
        { 0x5413, ALLOWED }                      /* TIOCGWINSZ */
    };

    if (openpty(&master, &slave, NULL, NULL, NULL) == -1) {
        skip("no terminal to be had", "ioctl");
        return;
    }

    for (i = 0; i < sbx_nelts(rows); i++) {
        char    space[64];
        call_t  c = { .nr = SYS_ioctl,
                      .a = { slave, (long) rows[i].request,
                             (long) (i == 5 ? space : &byte) } };

        byte = 'x';
        (void) snprintf(name, sizeof(name), "ioctl %#lx", rows[i].request);
        is_int(try_call(&c), rows[i].expected, name);
    }

    (void) close(master);
    (void) close(slave);
}


static void
test_socket(void)
{
    size_t  i;
    char    name[80];

    static const struct {
        long   family;
        long   type;
        long   protocol;
        int    expected;
    } rows[] = {
        { AF_UNIX, SOCK_STREAM, 0, ALLOWED },
        { AF_UNIX, SOCK_SEQPACKET, 0, ALLOWED },
        { AF_INET, SOCK_STREAM, 0, ALLOWED },
        { AF_INET, SOCK_STREAM, 6, ALLOWED },
        { AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 17, ALLOWED },
        { AF_NETLINK, SOCK_RAW, 0, ALLOWED },
        { AF_NETLINK, SOCK_RAW, 12 /* netfilter */, EPERM },
        { AF_NETLINK, SOCK_RAW, 9 /* audit */, EPERM },
        { AF_INET, SOCK_STREAM, 132 /* SCTP */, EPROTONOSUPPORT },
        { AF_INET, SOCK_STREAM, 33 /* DCCP */, EPROTONOSUPPORT },
        { AF_INET6, SOCK_STREAM, 262 /* MPTCP */, EPROTONOSUPPORT },
        { AF_INET, SOCK_RAW, 255, EPERM },
        { AF_INET, 6 /* SOCK_DCCP */, 0, EPROTONOSUPPORT },
        { AF_INET6, 6 | SOCK_CLOEXEC, 0, EPROTONOSUPPORT },
        { AF_INET, SOCK_SEQPACKET, 0, EPROTONOSUPPORT },
        { 17 /* AF_PACKET */, SOCK_RAW, 0, EPERM },
        { 38 /* AF_ALG */, SOCK_SEQPACKET, 0, EPERM },
        { 40 /* AF_VSOCK */, SOCK_STREAM, 0, EPERM },
        { 40 | (1l << 32), SOCK_STREAM, 0, EPERM },
        { 29 /* AF_CAN */, SOCK_RAW, 1, EPERM },
        { 44 /* AF_XDP */, SOCK_RAW, 0, EPERM },
        { 0, SOCK_STREAM, 0, EPERM },
        { 3, SOCK_DGRAM, 0, EPERM },
        { 200, SOCK_STREAM, 0, EPERM }
    };

    for (i = 0; i < sbx_nelts(rows); i++) {
        call_t  c = { .nr = SYS_socket,
                      .a = { rows[i].family, rows[i].type,
                             rows[i].protocol } };

        (void) snprintf(name, sizeof(name), "socket(%#lx, %ld, %ld)",
                        rows[i].family, rows[i].type, rows[i].protocol);
        is_int(try_call(&c), rows[i].expected, name);
    }

    {
        int     pair[2];
        call_t  c = { .nr = SYS_socketpair,
                      .a = { AF_UNIX, SOCK_STREAM, 0, (long) pair } };

        is_int(try_call(&c), ALLOWED, "a pair of unix sockets");
        c.a[0] = 30;
        is_int(try_call(&c), EPERM, "a pair of TIPC sockets");
    }
}


static void
test_huge_pages(void)
{
    call_t  map = { .nr = SYS_mmap,
                    .a = { 0, 1 << 21, PROT_READ,
                           MAP_PRIVATE | MAP_ANONYMOUS, -1, 0 } };
    call_t  file = { .nr = SYS_memfd_create, .a = { (long) "huge", 0 } };

    is_int(try_call(&map), ALLOWED, "memory is mapped");
    is_int(try_call(&file), ALLOWED, "a memfd is made");

    /* what the kernel finds wrong with these it tells by another number */

    map.a[1] = 0;
    map.a[3] |= MAP_HUGETLB;
    is_int(try_call(&map), ENOMEM, "no huge pages are mapped");
    file.a[0] = 0;
    file.a[1] = MFD_HUGETLB;
    is_int(try_call(&file), ENOMEM, "no memfd of huge pages is made");
}


static void
test_personality(void)
{
    size_t  i;
    char    name[80];

    static const struct {
        long   persona;
        int    expected;
    } rows[] = {
        { 0, ALLOWED }, { 0x20000, ALLOWED }, { 0xffffffffl, ALLOWED },
        { 0x0040000, EPERM }, { 0x0400000, EPERM },
        { 0x0040000 | (1l << 32), EPERM }
    };

    for (i = 0; i < sbx_nelts(rows); i++) {
        call_t  c = { .nr = SYS_personality, .a = { rows[i].persona } };

        (void) snprintf(name, sizeof(name), "personality(%#lx)",
                        rows[i].persona);
        is_int(try_call(&c), rows[i].expected, name);
    }
}


/* Nothing of the list of calls that programs need is refused. */
static void
test_allowed(void)
{
    int     nr, rc;
    size_t  i;

    static const char  *names[] = {
        "read", "write", "openat", "openat2", "statx", "newfstatat", "pipe2",
        "dup3", "fcntl", "getdents64", "renameat2", "copy_file_range",
        "splice", "inotify_init1", "epoll_create1", "eventfd2",
        "signalfd4", "timerfd_create", "memfd_create", "membarrier", "rseq",
        "sched_getaffinity", "sched_yield", "sched_setscheduler", "getcpu",
        "getrandom", "set_robust_list", "prctl", "prlimit64",
        "pidfd_open", "pidfd_send_signal", "waitid", "ptrace", "capget",
        "semget", "shmget", "msgget", "mq_open", "setgroups", "close_range",
        "faccessat2", "landlock_create_ruleset", "getxattr", "mlock",
        "madvise", "clock_gettime", "clock_nanosleep", "seccomp"
    };

    for (i = 0; i < sbx_nelts(names); i++) {
        nr = seccomp_syscall_resolve_name(names[i]);
        rc = try_number(nr);

        ok(rc != ENOSYS && rc != KILLED && (rc != EPERM
           || strcmp(names[i], "ptrace") == 0
           || strcmp(names[i], "rseq") == 0), "%s is let through", names[i]);
    }
}


/* Init's filter is the wider one, and what it starts loads a second. */

static void
test_second(void)
{
    int          err;
    size_t       i, k, size;
    void        *command;
    uint32_t     answer;
    sbx_error_t  e;

    static const call_t  attribute[] = {
        { SYS_fsetxattr, { 1, 1, 1, 64 } },
        { SYS_fsetxattr, { 1, 1, 1, 65 } },
        { SYS_setxattr, { 1, 1, 1, SBX_FILE_METADATA_MAX } },
        { SYS_lsetxattr, { 1, 1, 1, SBX_FILE_METADATA_MAX + 1 } }
    };
    static const struct {
        const char  *name;
        int        (*make)(void **program, size_t *size, sbx_error_t *e);
        int          err[4];
    } filters[] = {
        { "init's", sbx_seccomp_init, { 0, 0, 0, 0 } },
        { "a command's", sbx_seccomp_rest,
          { 0, EOPNOTSUPP, EOPNOTSUPP, EOPNOTSUPP } },
        { "a file server's", sbx_seccomp_files, { 0, 0, 0, EOPNOTSUPP } }
    };
    static const call_t  clone = { SYS_clone3, { 0, 0 } };

    command = program;
    size = program_size;

    for (i = 0; i < sbx_nelts(filters); i++) {
        if (!ok(filters[i].make(&program, &program_size, &e) == 0,
                "%s filter", filters[i].name))
        {
            continue;
        }

        for (k = 0; k < sbx_nelts(attribute); k++) {
            answer = filter_answer(&attribute[k]);
            err = answer == SECCOMP_RET_ALLOW
                  ? 0 : (int) (answer & SECCOMP_RET_DATA);

            ok(err == filters[i].err[k], "%s: attribute of %ld bytes: %d",
               filters[i].name, attribute[k].a[3], err);
        }

        ok((filter_answer(&clone) == SECCOMP_RET_ALLOW) == (i == 0),
           "%s: clone3", filters[i].name);
        free(program);
    }

    program = command;
    program_size = size;
}


static void
test_stacked(void)
{
    int          rc;
    pid_t        pid;
    void        *init;
    size_t       size;
    sbx_error_t  e;

    ok(sbx_seccomp_init(&init, &size, &e) == 0, "init's filter");

    pid = fork();

    if (pid == 0) {
        if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == -1
            || sbx_seccomp_load(init, size) == -1)
        {
            _exit(1);
        }

        child_filter();

        _exit(syscall(SYS_getpid) > 0
              && syscall(SYS_unshare, CLONE_NEWUSER) == -1 && errno == EPERM
              && syscall(435, 0, 0) == -1 && errno == ENOSYS ? 0 : 2);
    }

    rc = child_status(pid);
    is_int(rc, 0, "a command's filter is loaded on top of init's");
    free(init);
}


/* For a test of the whole: the answer to each number up to the last. */
static int
print_answers(long last)
{
    long         nr;
    uint32_t     answer;
    sbx_error_t  e;

    if (sbx_seccomp_command(&program, &program_size, &e) == -1) {
        return 1;
    }

    for (nr = 0; nr <= last; nr++) {
        call_t  c = { .nr = nr };

        if (nr == SYS_socket || nr == SYS_socketpair) {
            c.a[0] = AF_UNIX;
        }

        answer = filter_answer(&c);

        printf("%ld %s\n", nr,
               answer == SECCOMP_RET_ALLOW ? "allowed"
               : answer == SECCOMP_RET_ERRNO ? "0"
               : (answer & SECCOMP_RET_ACTION_FULL) == SECCOMP_RET_ERRNO
                 ? strerrorname_np((int) (answer & SECCOMP_RET_DATA))
                 : "killed");
    }

    free(program);

    return 0;
}


int
main(int argc, char **argv)
{
    sbx_error_t  e;

    if (argc == 3 && strcmp(argv[1], "answers") == 0) {
        return print_answers(strtol(argv[2], NULL, 10));
    }

    if (!ok(sbx_seccomp_command(&program, &program_size, &e) == 0,
            "the filter for commands is compiled"))
    {
        printf("# %s\n", e.text);
        return done_testing();
    }

    ok(program_size % 8 == 0 && program_size / 8 < 400,
       "it is %zu instructions", program_size / 8);

    test_arguments();
    test_refused();
    test_unknown();
    test_foreign();
    test_clone();
    test_ioctl();
    test_socket();
    test_huge_pages();
    test_personality();
    test_allowed();
    test_second();
    test_stacked();

    free(program);

    return done_testing();
}
