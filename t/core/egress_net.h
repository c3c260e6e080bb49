/*
 * Network namespaces for an egress of the test's own: one for the host that it
 * runs on, one for the world, one for each session, and the test in all of
 * them, as sockets stay where they were made.
 *
 *   session  what sbx_net_grant() makes of it
 *   host     203.0.113.1, 2001:db8:1::1; its way out is the world
 *   world    203.0.113.2, 2001:db8:1::2, and whatever is in 198.51.100.0/24,
 *            192.0.2.0/24, 10.0.0.0/8, 169.254.0.0/16, 100.64.0.0/10 and
 *            2001:db8:2::/48, 64:ff9b::/96, fd00:10::/32; no way leads to
 *            192.0.3.0/24
 */

#ifndef SBX_EGRESS_NET_H
#define SBX_EGRESS_NET_H

#include "egress.h"
#include "isolate.h"
#include "sandbox_limits.h"
#include "wire.h"
#include "tap.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sched.h>
#include <stdarg.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>


/* No test uses all of it. */
#pragma GCC diagnostic ignored "-Wunused-function"

#define ET_WAIT     30000         /* ms, for anything */
#define ET_ID       "itest0000000000000000000001"
#define ET_ID_TWO   "itest0000000000000000000002"


typedef struct {
    int             netns;
    char            id[SBX_ID_MAX + 8];
    int             traffic_fd;
    sbx_traffic_t  *traffic;
    int             ipv6;
    unsigned        port;                 /* its listener's, of IPv4 */
} et_session_t;

typedef struct {
    int             host, world, home;    /* network namespaces */
    pid_t           egress;
    pid_t           dns;
    int             dns_pipe;             /* its end ends it */
    int             control;
    const char    **rows;                 /* of the last configuration */
    const char    **values;
    et_session_t    one, two;
} et_t;

/* "name address" ..., each as often as it has addresses. */
typedef struct {
    const char  *name;
    const char  *address;
    unsigned     ttl;
} et_name_t;

typedef union {
    struct sockaddr      any;
    struct sockaddr_in   in;
    struct sockaddr_in6  in6;
} et_sockaddr_t;


static void
et_die(const char *what)
{
    printf("Bail out! %s: %s\n", what, strerror(errno));
    exit(1);
}


/*
 * ---- namespaces ----------------------------------------------------------
 */

static void
et_enter(int netns)
{
    if (setns(netns, CLONE_NEWNET) == -1) {
        et_die("setns");
    }
}


static int
et_netns(void)
{
    return open("/proc/thread-self/ns/net", O_RDONLY|O_CLOEXEC);
}


static int
et_netns_new(et_t *t)
{
    int  fd;

    if (unshare(CLONE_NEWNET) == -1) {
        return -1;
    }

    fd = et_netns();
    et_enter(t->home);

    return fd;
}


/* Lines of ip -batch, in a namespace. */

static int
et_ip(int netns, const char *lines)
{
    int    fds[2], status;
    pid_t  pid;

    if (pipe2(fds, O_CLOEXEC) == -1) {
        return -1;
    }

    pid = fork();

    if (pid == 0) {
        (void) dup2(fds[0], 0);
        et_enter(netns);
        (void) execlp("ip", "ip", "-force", "-batch", "-", (char *) NULL);
        _exit(127);
    }

    (void) close(fds[0]);
    (void) sbx_write_all(fds[1], lines, strlen(lines));
    (void) close(fds[1]);

    if (pid == -1 || waitpid(pid, &status, 0) == -1) {
        return -1;
    }

    return WIFEXITED(status) && WEXITSTATUS(status) == 0 ? 0 : -1;
}


static int
et_networks(et_t *t)
{
    char  line[256];

    t->home = et_netns();
    t->host = et_netns_new(t);
    t->world = et_netns_new(t);

    if (t->host == -1 || t->world == -1) {
        return -1;
    }

    /* the other end goes by a descriptor of this process */

    (void) snprintf(line, sizeof(line),
                    "link set lo up\n"
                    "link add out type veth peer name in netns "
                    "/proc/%d/fd/%d\n", (int) getpid(), t->world);

    /* both ends are up before they have addresses, which then are good at
     * once */

    if (et_ip(t->host, line) != 0
        || et_ip(t->world, "link set lo up\nlink set in up\n") != 0
        || et_ip(t->host,
                 "link set out up\n"
                 "addr add 203.0.113.1/24 dev out\n"
                 "addr add 2001:db8:1::1/64 dev out nodad\n"
                 "route add default via 203.0.113.2\n"
                 "route add unreachable 192.0.3.0/24\n"
                 "route add default via 2001:db8:1::2\n") != 0
        || et_ip(t->world,
                 "addr add 203.0.113.2/24 dev in\n"
                 "addr add 2001:db8:1::2/64 dev in nodad\n"
                 "route add local 198.51.100.0/24 dev lo\n"
                 "route add local 192.0.2.0/24 dev lo\n"
                 "route add local 10.0.0.0/8 dev lo\n"
                 "route add local 169.254.0.0/16 dev lo\n"
                 "route add local 100.64.0.0/10 dev lo\n"
                 "route add local 2001:db8:2::/48 dev lo\n"
                 "route add local 64:ff9b::/96 dev lo\n"
                 "route add local fd00:10::/32 dev lo\n") != 0)
    {
        return -1;
    }

    return 0;
}


/*
 * ---- sockets -------------------------------------------------------------
 */

static socklen_t
et_address(et_sockaddr_t *sa, const char *address, unsigned port)
{
    memset(sa, 0, sizeof(*sa));

    if (inet_pton(AF_INET, address, &sa->in.sin_addr) == 1) {
        sa->any.sa_family = AF_INET;
        sa->in.sin_port = htons((uint16_t) port);
        return sizeof(sa->in);
    }

    if (inet_pton(AF_INET6, address, &sa->in6.sin6_addr) != 1) {
        et_die(address);
    }

    sa->any.sa_family = AF_INET6;
    sa->in6.sin6_port = htons((uint16_t) port);

    return sizeof(sa->in6);
}


static int
et_socket(et_t *t, int netns, int family, int type)
{
    int  fd;

    et_enter(netns);
    fd = socket(family, type|SOCK_CLOEXEC, 0);
    et_enter(t->home);

    if (fd == -1) {
        et_die("socket");
    }

    return fd;
}


/* A server of the world's; port 0: the kernel's choice, told in *port. */

static int
et_listen(et_t *t, int netns, const char *address, unsigned port)
{
    int            fd, on;
    socklen_t      len;
    et_sockaddr_t  sa;

    len = et_address(&sa, address, port);
    fd = et_socket(t, netns, sa.any.sa_family, SOCK_STREAM);
    on = 1;
    (void) setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
    (void) setsockopt(fd, SOL_IP, IP_FREEBIND, &on, sizeof(on));

    if (bind(fd, &sa.any, len) == -1 || listen(fd, 4096) == -1) {
        et_die("listen");
    }

    return fd;
}


/* fd is ready for events within ms. */

static int
et_ready(int fd, int events, int ms)
{
    int            rc;
    struct pollfd  p;

    p.fd = fd;
    p.events = (short) events;

    do {
        rc = poll(&p, 1, ms);
    } while (rc == -1 && errno == EINTR);

    return rc == 1;
}


static int
et_accept(int fd)
{
    return et_ready(fd, POLLIN, ET_WAIT)
           ? accept4(fd, NULL, NULL, SOCK_CLOEXEC) : -1;
}


/* A session's client; -1 with errno.  Reads and writes of it wait no longer
 * than ET_WAIT. */

static int
et_connect(et_t *t, const et_session_t *s, const char *address, unsigned port)
{
    int             fd, err;
    socklen_t       len;
    et_sockaddr_t   sa;
    struct timeval  wait;

    len = et_address(&sa, address, port);
    fd = et_socket(t, s->netns, sa.any.sa_family, SOCK_STREAM);

    wait.tv_sec = ET_WAIT / 1000;
    wait.tv_usec = 0;
    (void) setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &wait, sizeof(wait));
    (void) setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &wait, sizeof(wait));

    if (connect(fd, &sa.any, len) == -1) {
        err = errno;
        (void) close(fd);
        errno = err;
        return -1;
    }

    return fd;
}


/* Closed with a reset. */

static void
et_reset(int fd)
{
    struct linger  linger;

    linger.l_onoff = 1;
    linger.l_linger = 0;
    (void) setsockopt(fd, SOL_SOCKET, SO_LINGER, &linger, sizeof(linger));
    (void) close(fd);
}


/* What a read of fd says in the end: 0 an end, > 0 bytes, or -errno. */

static int
et_says(int fd)
{
    char     c;
    ssize_t  n;

    if (!et_ready(fd, POLLIN, ET_WAIT)) {
        return -ETIMEDOUT;
    }

    n = recv(fd, &c, 1, MSG_DONTWAIT);

    return n == -1 ? -errno : (int) n;
}


/* 1: value is what it should be, soon. */

static int
et_soon(const volatile uint64_t *value, uint64_t expected)
{
    int  ms;

    for (ms = 0; *value != expected; ms++) {
        if (ms == ET_WAIT) {
            return 0;
        }

        (void) poll(NULL, 0, 1);
    }

    return 1;
}


/* Descriptors of a process. */

static unsigned
et_descriptors(pid_t pid)
{
    char            path[64];
    DIR            *dir;
    unsigned        n;
    struct dirent  *entry;

    (void) snprintf(path, sizeof(path), "/proc/%d/fd", (int) pid);
    dir = opendir(path);

    if (dir == NULL) {
        return 0;
    }

    for (n = 0; (entry = readdir(dir)) != NULL; /* void */ ) {
        n += entry->d_name[0] != '.';
    }

    (void) closedir(dir);

    return n;
}


/* 1: a process has no more than that many, soon. */

static int
et_descriptors_soon(pid_t pid, unsigned max)
{
    int  ms;

    for (ms = 0; et_descriptors(pid) > max; ms++) {
        if (ms == ET_WAIT) {
            return 0;
        }

        (void) poll(NULL, 0, 1);
    }

    return 1;
}


/* KiB that a process has in memory. */

static long
et_memory(pid_t pid)
{
    long   kb;
    char   path[64], line[256];
    FILE  *f;

    (void) snprintf(path, sizeof(path), "/proc/%d/status", (int) pid);
    f = fopen(path, "r");
    kb = -1;

    while (f != NULL && fgets(line, sizeof(line), f) != NULL) {
        if (sscanf(line, "VmRSS: %ld", &kb) == 1) {
            break;
        }
    }

    if (f != NULL) {
        (void) fclose(f);
    }

    return kb;
}


/* 1: what a connects to is refused, with a reset and at once. */

static int
et_refused(et_t *t, const et_session_t *s, const char *address, unsigned port)
{
    int  fd, rc;

    fd = et_connect(t, s, address, port);

    if (fd == -1) {
        return errno == ECONNREFUSED || errno == ECONNRESET;
    }

    rc = et_says(fd);
    (void) close(fd);

    return rc == -ECONNRESET;
}


/* n bytes of fd, or what there is of them when nothing more comes. */

static size_t
et_read(int fd, char *buf, size_t n)
{
    size_t   have;
    ssize_t  got;

    for (have = 0; have < n && et_ready(fd, POLLIN, ET_WAIT); /* void */ ) {
        got = recv(fd, buf + have, n - have, MSG_DONTWAIT);

        if (got <= 0) {
            break;
        }

        have += (size_t) got;
    }

    return have;
}


/* Both ways through: client and server that are connected to each other; 0 or
 * -1.  No text: what begins as a word may yet be HTTP. */

static int
et_talk(int client, int server)
{
    char  buf[8];

    return send(client, "\1ing", 4, MSG_NOSIGNAL) == 4
           && et_ready(server, POLLIN, ET_WAIT)
           && recv(server, buf, 4, MSG_WAITALL) == 4
           && memcmp(buf, "\1ing", 4) == 0
           && send(server, "\1ong", 4, MSG_NOSIGNAL) == 4
           && et_ready(client, POLLIN, ET_WAIT)
           && recv(client, buf, 4, MSG_WAITALL) == 4
           && memcmp(buf, "\1ong", 4) == 0 ? 0 : -1;
}


#endif
