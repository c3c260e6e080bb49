/*
 * Asks the kernel, from inside a session, what it refuses.  Each attempt runs
 * in a child of its own, since some end in a signal, and prints one line:
 *
 *     GROUP NAME RESULT
 *
 * where RESULT is the errno's name, "ok" for a call that went through, or the
 * name of the signal that ended the child.  Every call is given arguments
 * that an unfiltered kernel accepts from an unprivileged process (or refuses
 * with another error), so that a line tells the filter from luck.
 */

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>


#define X32_BIT        0x40000000
#define NEWUSER        0x10000000
#define NEWNS          0x00020000
#define NEWNET         0x40000000
#define NEWPID         0x20000000


typedef struct {
    const char   *name;
    long          number;           /* x86-64 */
    long          foreign;          /* i386, -1 where it is not tried */
    long        (*run)(long number);
} probe_t;


static char  probe_area[4096];


static long
probe_zero(long n)
{
    return syscall(n, 0, 0, 0, 0, 0, 0);
}


static long
probe_clone(long n)
{
    long  pid;

    pid = syscall(n, NEWUSER | SIGCHLD, 0, 0, 0, 0);

    if (pid == 0) {
        _exit(0);
    }

    return pid;
}


static long
probe_clone_net(long n)
{
    long  pid;

    pid = syscall(n, NEWUSER | NEWNET | NEWPID | SIGCHLD, 0, 0, 0, 0);

    if (pid == 0) {
        _exit(0);
    }

    return pid;
}


static long
probe_clone3(long n)
{
    long      pid;
    uint64_t  args[11];

    memset(args, 0, sizeof(args));
    args[0] = NEWUSER;
    args[4] = SIGCHLD;

    pid = syscall(n, args, sizeof(args));

    if (pid == 0) {
        _exit(0);
    }

    return pid;
}


static long
probe_unshare(long n)
{
    return syscall(n, NEWUSER);
}


static long
probe_unshare_ns(long n)
{
    return syscall(n, NEWUSER | NEWNS);
}


static long
probe_setns(long n)
{
    int  fd;

    fd = open("/proc/self/ns/uts", O_RDONLY);

    return syscall(n, fd, 0);
}


static long
probe_open_tree(long n)
{
    return syscall(n, AT_FDCWD, "/", 0);
}


static long
probe_fsopen(long n)
{
    return syscall(n, "tmpfs", 0);
}


static long
probe_move_mount(long n)
{
    return syscall(n, AT_FDCWD, "/tmp", AT_FDCWD, "/tmp", 0);
}


static long
probe_mount_setattr(long n)
{
    uint64_t  attr[4];

    memset(attr, 0, sizeof(attr));

    return syscall(n, AT_FDCWD, "/", 0, attr, sizeof(attr));
}


static long
probe_mount(long n)
{
    return syscall(n, "none", "/tmp", "tmpfs", 0, 0);
}


static long
probe_umount(long n)
{
    return syscall(n, "/proc", 2);
}


static long
probe_pivot_root(long n)
{
    return syscall(n, "/tmp", "/tmp");
}


static long
probe_keyctl(long n)
{
    return syscall(n, 0 /* GET_KEYRING_ID */, -3, 1);
}


static long
probe_add_key(long n)
{
    return syscall(n, "user", "probe", "x", 1, -2);
}


static long
probe_request_key(long n)
{
    return syscall(n, "user", "probe", 0, -2);
}


static long
probe_bpf(long n)
{
    uint32_t  attr[32];

    memset(attr, 0, sizeof(attr));
    attr[0] = 2;            /* BPF_MAP_TYPE_ARRAY */
    attr[1] = 4;
    attr[2] = 4;
    attr[3] = 1;

    return syscall(n, 0, attr, sizeof(attr));
}


static long
probe_perf(long n)
{
    uint64_t  attr[16];

    memset(attr, 0, sizeof(attr));
    attr[0] = 1 | ((uint64_t) sizeof(attr) << 32);   /* software, cpu clock */
    attr[5] = 1 << 5;                                /* exclude_kernel */

    return syscall(n, attr, 0, -1, -1, 0);
}


static long
probe_userfaultfd(long n)
{
    return syscall(n, O_CLOEXEC | 1 /* UFFD_USER_MODE_ONLY */);
}


static long
probe_uring(long n)
{
    return syscall(n, 8, memset(probe_area, 0, 256));
}


static long
probe_vm_readv(long n)
{
    char          to[4];
    struct iovec  local, remote;

    local.iov_base = to;
    local.iov_len = sizeof(to);
    remote.iov_base = probe_area;
    remote.iov_len = sizeof(to);

    return syscall(n, (long) getpid(), &local, 1, &remote, 1, 0);
}


static long
probe_pidfd_getfd(long n)
{
    long  fd;

    fd = syscall(SYS_pidfd_open, getpid(), 0);

    return syscall(n, fd, 1, 0);
}


static long
probe_name_to_handle(long n)
{
    int  mount_id;

    memset(probe_area, 0, sizeof(probe_area));
    *(unsigned *) (void *) probe_area = 128;

    return syscall(n, AT_FDCWD, "/tmp", probe_area, &mount_id, 0);
}


static long
probe_open_handle(long n)
{
    memset(probe_area, 0, sizeof(probe_area));
    *(unsigned *) (void *) probe_area = 8;
    ((unsigned *) (void *) probe_area)[1] = 1;

    return syscall(n, AT_FDCWD, probe_area, O_RDONLY);
}


static long
probe_tiocsti(long n)
{
    return syscall(n, 0, 0x5412UL, "x");
}


static long
probe_tiocsti_high(long n)
{
    return syscall(n, 0, 0x5412UL + (1UL << 32), "x");
}


static long
probe_tioclinux(long n)
{
    return syscall(n, 0, 0x541cUL, "\2");
}


static long
probe_tioclinux_high(long n)
{
    return syscall(n, 0, 0x541cUL | (0xffUL << 32), "\2");
}


static long
probe_vsock(long n)
{
    return syscall(n, 40, SOCK_STREAM, 0);
}


static long
probe_alg(long n)
{
    return syscall(n, 38, SOCK_SEQPACKET, 0);
}


static long
probe_packet(long n)
{
    return syscall(n, 17, SOCK_RAW, 0x0300);
}


static long
probe_raw(long n)
{
    return syscall(n, AF_INET, SOCK_RAW, 1);
}


static long
probe_quotactl(long n)
{
    return syscall(n, 0x800004UL << 8, "none", 0, 0);
}


static long
probe_syslog(long n)
{
    return syscall(n, 3, probe_area, sizeof(probe_area));
}


/* What must answer "not known", so that a libc takes the older call. */

static const probe_t  probe_unknown[] = {
    { "clone3", 435, 435, probe_clone3 },
    { "io_uring_setup", 425, 425, probe_uring },
    { "io_uring_enter", 426, 426, probe_zero },
    { "io_uring_register", 427, 427, probe_zero },
    { "newer_600", 600, 600, probe_zero },
    { "newer_9999", 9999, 9999, probe_zero },
    { NULL, 0, 0, NULL }
};


static const probe_t  probe_refused[] = {
    { "unshare", 272, 310, probe_unshare },
    { "unshare_mount", 272, -1, probe_unshare_ns },
    { "clone_newuser", 56, 120, probe_clone },
    { "clone_newnet", 56, -1, probe_clone_net },
    { "setns", 308, 346, probe_setns },
    { "open_tree", 428, 428, probe_open_tree },
    { "move_mount", 429, 429, probe_move_mount },
    { "fsopen", 430, 430, probe_fsopen },
    { "fsconfig", 431, 431, probe_zero },
    { "fsmount", 432, 432, probe_zero },
    { "fspick", 433, 433, probe_open_tree },
    { "mount_setattr", 442, 442, probe_mount_setattr },
    { "mount", 165, 21, probe_mount },
    { "umount2", 166, 52, probe_umount },
    { "pivot_root", 155, 217, probe_pivot_root },
    { "keyctl", 250, 288, probe_keyctl },
    { "add_key", 248, 286, probe_add_key },
    { "request_key", 249, 287, probe_request_key },
    { "bpf", 321, 357, probe_bpf },
    { "perf_event_open", 298, 336, probe_perf },
    { "userfaultfd", 323, 374, probe_userfaultfd },
    { "process_vm_readv", 310, 347, probe_vm_readv },
    { "process_vm_writev", 311, 348, probe_vm_readv },
    { "pidfd_getfd", 438, 438, probe_pidfd_getfd },
    { "name_to_handle_at", 303, 341, probe_name_to_handle },
    { "open_by_handle_at", 304, 342, probe_open_handle },
    { "kexec_load", 246, 283, probe_zero },
    { "kexec_file_load", 320, -1, probe_zero },
    { "init_module", 175, 128, probe_zero },
    { "finit_module", 313, 350, probe_zero },
    { "delete_module", 176, 129, probe_zero },
    { "swapon", 167, 87, probe_zero },
    { "reboot", 169, 88, probe_zero },
    { "acct", 163, 51, probe_zero },
    { "quotactl", 179, 131, probe_quotactl },
    { "syslog", 103, 103, probe_syslog },
    { "iopl", 172, 110, probe_zero },
    { "fanotify_init", 300, 338, probe_zero },
    { "lookup_dcookie", 212, 253, probe_zero },
    { NULL, 0, 0, NULL }
};


static const probe_t  probe_terminal[] = {
    { "tiocsti", 16, -1, probe_tiocsti },
    { "tiocsti_high", 16, -1, probe_tiocsti_high },
    { "tioclinux", 16, -1, probe_tioclinux },
    { "tioclinux_high", 16, -1, probe_tioclinux_high },
    { NULL, 0, 0, NULL }
};


static const probe_t  probe_sockets[] = {
    { "vsock", 41, -1, probe_vsock },
    { "alg", 41, -1, probe_alg },
    { "packet", 41, -1, probe_packet },
    { "raw", 41, -1, probe_raw },
    { NULL, 0, 0, NULL }
};


#if defined(__x86_64__)

static long
probe_int80(long n)
{
    long  result;

    __asm__ volatile ("int $0x80"
                      : "=a" (result)
                      : "a" (n), "b" (0L), "c" (0L), "d" (0L)
                      : "memory", "r8", "r9", "r10", "r11");

    if (result < 0 && result > -4096) {
        errno = (int) -result;
        return -1;
    }

    return result;
}

#endif


static void
probe_child(const char *group, const char *name, long number,
    long (*run)(long n))
{
    int    status;
    long   rc;
    pid_t  pid;

    (void) fflush(stdout);
    pid = fork();

    if (pid == 0) {
        errno = 0;
        rc = run(number);
        printf("%s %s %s\n", group, name,
               rc == -1 ? strerrorname_np(errno) : "ok");
        (void) fflush(stdout);
        _exit(0);
    }

    if (pid == -1 || waitpid(pid, &status, 0) != pid) {
        printf("%s %s no-child\n", group, name);
        return;
    }

    if (WIFSIGNALED(status)) {
        printf("%s %s SIG%s\n", group, name, sigabbrev_np(WTERMSIG(status)));
    }
}


static void
probe_table(const char *group, const probe_t *table)
{
    const probe_t  *p;

    for (p = table; p->name != NULL; p++) {
        probe_child(group, p->name, p->number, p->run);
    }
}


static void
probe_foreign(const probe_t *table)
{
    const probe_t  *p;

    for (p = table; p->name != NULL; p++) {
#if defined(__x86_64__)
        if (p->foreign != -1) {
            probe_child("int80", p->name, p->foreign, probe_int80);
        }
#endif
        probe_child("x32", p->name, p->number | X32_BIT, p->run);
    }
}


int
main(void)
{
    probe_table("unknown", probe_unknown);
    probe_table("refused", probe_refused);
    probe_table("terminal", probe_terminal);
    probe_table("socket", probe_sockets);

#if defined(__x86_64__)
    probe_child("int80", "getpid", 20, probe_int80);
    probe_child("x32", "getpid", 39 | X32_BIT, probe_zero);
#endif

    probe_foreign(probe_unknown);
    probe_foreign(probe_refused);

    printf("done\n");

    return 0;
}
