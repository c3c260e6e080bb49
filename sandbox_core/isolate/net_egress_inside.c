/*
 * What the egress does without once it has started: a filter that lets pass
 * what it calls to move bytes, and ends the process for all else.
 *
 * libseccomp compares whole registers, of which the kernel reads the low half
 * of what is an int: as only what is listed passes, a comparison that is
 * stricter than the kernel's is no way around it.  Bits that must not be set
 * are masked out of the low half.
 */

#include "isolate_private.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/netlink.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <seccomp.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>


#ifndef F_GET_SEALS
#define F_GET_SEALS          1034
#endif

/* gcc says that it sanitizes by one name, clang by another. */
#if defined(__SANITIZE_ADDRESS__)
#define SBX_EGRESS_SANITIZED  1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define SBX_EGRESS_SANITIZED  1
#endif
#endif

#ifndef SBX_EGRESS_SANITIZED
#define SBX_EGRESS_SANITIZED  0
#endif


static const char  *sbx_egress_calls[] = {
    /* bytes */
    "read", "write", "readv", "writev", "pread64", "lseek",
    "recvfrom", "recvmsg", "recvmmsg", "sendto", "sendmsg", "sendmmsg",
    "splice", "pipe2", "close", "fstat",

    /* sockets */
    "connect", "accept4", "shutdown", "getsockname", "getpeername",
    "getsockopt",

    /* waiting and time */
    "epoll_create1", "epoll_ctl", "epoll_wait", "epoll_pwait",
    "epoll_pwait2", "poll", "ppoll", "clock_gettime", "clock_getres",
    "clock_nanosleep", "nanosleep", "gettimeofday", "time", "getrandom",
    "restart_syscall",

    /* memory, and what libc does of itself */
    "brk", "munmap", "mremap", "madvise", "futex", "rt_sigaction",
    "rt_sigprocmask", "rt_sigreturn", "sigaltstack", "sched_yield", "getpid",
    "gettid", "getuid", "geteuid", "getgid", "getegid", "getrlimit",
    "getrusage", "uname", "exit", "exit_group"
};

/* Passes where one argument is one of these. */
typedef struct {
    const char  *call;
    unsigned     argument;
    size_t       n;
    int          value[12];
} sbx_egress_one_of_t;

static const sbx_egress_one_of_t  sbx_egress_one_of[] = {
    { "fcntl", 1, 5, { F_GETFL, F_GETFD, F_SETFD, F_GET_SEALS,
                       F_SETPIPE_SZ } },
    /* the latter: of stdio, of a log that is a device */
    { "ioctl", 1, 2, { FIONREAD, TCGETS } },
    /* fstat() of a libc that has no call of that name; it opens nothing */
    { "newfstatat", 3, 1, { AT_EMPTY_PATH } },
    { "prlimit64", 0, 1, { 0 } }
};

/* Options of sockets that may be set; none brings a program to the kernel. */
typedef struct {
    int          level;
    size_t       n;
    int          name[12];
} sbx_egress_options_t;

static const sbx_egress_options_t  sbx_egress_options[] = {
    { SOL_SOCKET, 8, { SO_LINGER, SO_KEEPALIVE, SO_SNDBUF, SO_RCVBUF,
                       SO_RCVLOWAT, SO_REUSEADDR, SO_OOBINLINE,
                       SO_PRIORITY } },
    { IPPROTO_TCP, 11, { TCP_NODELAY, TCP_KEEPIDLE, TCP_KEEPINTVL,
                         TCP_KEEPCNT, TCP_USER_TIMEOUT, TCP_SYNCNT,
                         TCP_QUICKACK, TCP_CORK, TCP_FASTOPEN_CONNECT,
                         TCP_NOTSENT_LOWAT, TCP_CONGESTION } },
    { IPPROTO_IP, 3, { IP_RECVERR, IP_MTU_DISCOVER,
                       IP_BIND_ADDRESS_NO_PORT } },
    { IPPROTO_IPV6, 3, { IPV6_V6ONLY, IPV6_RECVERR, IPV6_MTU_DISCOVER } }
};


static int sbx_egress_filter(scmp_filter_ctx filter);
static int sbx_egress_filter_sockets(scmp_filter_ctx filter);
static int sbx_egress_filter_memory(scmp_filter_ctx filter);
static int sbx_egress_filter_allow(scmp_filter_ctx filter, const char *call,
    unsigned n, const struct scmp_arg_cmp *arg);


int
sbx_egress_confine(sbx_error_t *e)
{
    int              rc;
    struct rlimit    one = { 0, 0 };
    scmp_filter_ctx  filter;

    /* a sanitizer's own calls are not those of the program, and the search
       for leaks starts a thread that looks at this one as a debugger does */

    if (SBX_EGRESS_SANITIZED) {
        (void) prctl(PR_SET_DUMPABLE, 1, 0, 0, 0);
        return 0;
    }

    if (prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) == -1
        || prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == -1
        || setrlimit(RLIMIT_NPROC, &one) == -1)
    {
        return sbx_error(e, errno, SBX_E_INTERNAL,
                         "the egress cannot be confined");
    }

    filter = seccomp_init(SCMP_ACT_KILL_PROCESS);

    if (filter == NULL) {
        return sbx_error(e, ENOMEM, SBX_E_INTERNAL, "no memory");
    }

    rc = sbx_egress_filter(filter);

    if (rc == 0) {
        rc = seccomp_load(filter);
    }

    seccomp_release(filter);

    if (rc != 0) {
        return sbx_error(e, -rc, SBX_E_UNAVAILABLE,
                         "the filter of the egress cannot be loaded");
    }

    return 0;
}


static int
sbx_egress_filter(scmp_filter_ctx filter)
{
    int                   rc;
    size_t                i, k;
    struct scmp_arg_cmp   arg, flags[2];

    /* a search rather than a walk, as every byte passes here */

    (void) seccomp_attr_set(filter, SCMP_FLTATR_CTL_OPTIMIZE, 2);

    for (i = 0; i < sbx_nelts(sbx_egress_calls); i++) {
        rc = sbx_egress_filter_allow(filter, sbx_egress_calls[i], 0, NULL);

        if (rc != 0) {
            return rc;
        }
    }

    for (i = 0; i < sbx_nelts(sbx_egress_one_of); i++) {
        for (k = 0; k < sbx_egress_one_of[i].n; k++) {
            arg = SCMP_CMP(sbx_egress_one_of[i].argument, SCMP_CMP_EQ,
                           (scmp_datum_t) sbx_egress_one_of[i].value[k]);

            rc = sbx_egress_filter_allow(filter, sbx_egress_one_of[i].call, 1,
                                         &arg);
            if (rc != 0) {
                return rc;
            }
        }
    }

    /* what is written to the log stays appended to it */

    flags[0] = SCMP_A0(SCMP_CMP_GT, STDERR_FILENO);
    flags[1] = SCMP_A1(SCMP_CMP_EQ, F_SETFL);

    rc = sbx_egress_filter_allow(filter, "fcntl", 2, flags);

    if (rc != 0) {
        return rc;
    }

    rc = sbx_egress_filter_sockets(filter);

    return rc != 0 ? rc : sbx_egress_filter_memory(filter);
}


/*
 * Streams and datagrams of IPv4 and IPv6, and netlink's route family; options
 * of them that are listed.
 */
static int
sbx_egress_filter_sockets(scmp_filter_ctx filter)
{
    int                   rc;
    size_t                i, k;
    struct scmp_arg_cmp   arg[2];

    static const struct {
        int       family;
        unsigned  argument;
        int       mask;
        int       value;
    } made[] = {
        { AF_INET,    1, 0xf, SOCK_STREAM },
        { AF_INET,    1, 0xf, SOCK_DGRAM },
        { AF_INET6,   1, 0xf, SOCK_STREAM },
        { AF_INET6,   1, 0xf, SOCK_DGRAM },
        { AF_NETLINK, 2, -1,  NETLINK_ROUTE }
    };

    for (i = 0; i < sbx_nelts(made); i++) {
        arg[0] = SCMP_A0(SCMP_CMP_EQ, (scmp_datum_t) made[i].family);
        arg[1] = SCMP_CMP(made[i].argument, SCMP_CMP_MASKED_EQ,
                          (scmp_datum_t) (unsigned) made[i].mask,
                          (scmp_datum_t) made[i].value);

        rc = sbx_egress_filter_allow(filter, "socket", 2, arg);

        if (rc != 0) {
            return rc;
        }
    }

    for (i = 0; i < sbx_nelts(sbx_egress_options); i++) {
        for (k = 0; k < sbx_egress_options[i].n; k++) {
            arg[0] = SCMP_A1(SCMP_CMP_EQ,
                             (scmp_datum_t) sbx_egress_options[i].level);
            arg[1] = SCMP_A2(SCMP_CMP_EQ,
                             (scmp_datum_t) sbx_egress_options[i].name[k]);

            rc = sbx_egress_filter_allow(filter, "setsockopt", 2, arg);

            if (rc != 0) {
                return rc;
            }
        }
    }

    return 0;
}


/* None that can be executed. */
static int
sbx_egress_filter_memory(scmp_filter_ctx filter)
{
    int                   rc;
    struct scmp_arg_cmp   arg;

    arg = SCMP_A2(SCMP_CMP_MASKED_EQ, PROT_EXEC, 0);
    rc = sbx_egress_filter_allow(filter, "mmap", 1, &arg);

    return rc != 0 ? rc
                   : sbx_egress_filter_allow(filter, "mprotect", 1, &arg);
}


/* A call that this architecture or this library does not know is let be. */
static int
sbx_egress_filter_allow(scmp_filter_ctx filter, const char *call, unsigned n,
    const struct scmp_arg_cmp *arg)
{
    int  nr;

    nr = seccomp_syscall_resolve_name(call);

    if (nr == __NR_SCMP_ERROR || nr < 0) {
        return 0;
    }

    return seccomp_rule_add_array(filter, SCMP_ACT_ALLOW, nr, n, arg);
}
