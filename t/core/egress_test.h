/*
 * An egress without a broker: three network namespaces of the test's own, one
 * for the host that it runs on, one for the world, one for a session, and the
 * test in all of them, as sockets stay where they were made.
 *
 *   session  what sbx_net_grant() makes of it
 *   host     203.0.113.1, 2001:db8:1::1; its way out is the world
 *   world    203.0.113.2, 2001:db8:1::2, and whatever is in 198.51.100.0/24,
 *            192.0.2.0/24, 10.0.0.0/8, 169.254.0.0/16, 100.64.0.0/10 and
 *            2001:db8:2::/48, 64:ff9b::/96, fd00:10::/32; no way leads to
 *            192.0.3.0/24
 *
 * A process in the world answers questions of DNS by a list that the test
 * gives; the test plays the broker over the egress's control socket.
 */

#ifndef SBX_EGRESS_TEST_H
#define SBX_EGRESS_TEST_H

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

#define ET_WAIT     10000         /* ms, for anything */
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
 * ---- namespaces --------------------------------------------------------------
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
 * ---- sockets -------------------------------------------------------------------
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


/*
 * ---- the broker's part -----------------------------------------------------------
 */

static int
et_memfd(const void *data, size_t size)
{
    int  fd;

    fd = memfd_create("test", MFD_CLOEXEC|MFD_ALLOW_SEALING);

    if (fd == -1 || sbx_write_all(fd, data, size) != 0
        || fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK|F_SEAL_GROW|F_SEAL_WRITE)
           == -1)
    {
        et_die("memfd");
    }

    return fd;
}


/* The next record; 0: there is none within ms. */

static int
et_record(et_t *t, sbx_egress_record_t *record, int ms)
{
    memset(record, 0, sizeof(*record));

    return et_ready(t->control, POLLIN, ms)
           && recv(t->control, record, sizeof(*record), 0)
              == (ssize_t) sizeof(*record)
           && record->magic == SBX_EGRESS_MAGIC;
}


/* The next refusal's reason; -1: there is none. */

static int
et_reason(et_t *t)
{
    sbx_egress_record_t  record;

    return et_record(t, &record, ET_WAIT)
           && record.type == SBX_EGRESS_REFUSED ? (int) record.reason : -1;
}


/* What was told and not looked at. */

static void
et_forget(et_t *t)
{
    sbx_egress_record_t  record;

    while (et_record(t, &record, 0)) {
        /* void */
    }
}


static void
et_task_of(sbx_egress_task_t *task, const et_session_t *s, unsigned op)
{
    memset(task, 0, sizeof(*task));
    task->magic = SBX_EGRESS_MAGIC;
    task->version = SBX_WIRE_VERSION;
    task->op = (uint16_t) op;
    task->mode = SBX_NETWORK_ALL;
    task->connections = 256;
    task->rate = SBX_UNLIMITED;
    task->bytes = SBX_UNLIMITED;
    memcpy(task->template, "base", 5);

    if (s != NULL) {
        memcpy(task->session, s->id, sizeof(task->session));
    }
}


/* rules: "aRULE" and "dRULE" ("f" first), one after the other, NULL at the
 * end. */

static size_t
et_rules(char *buf, const char **rules)
{
    size_t  n, len;

    for (n = 0; rules != NULL && *rules != NULL; rules++) {
        len = strlen(*rules) + 1;
        memcpy(buf + n, *rules, len);
        n += len;
    }

    return n;
}


static int
et_send(et_t *t, const sbx_egress_task_t *task, const void *rules,
    size_t size, const int *fds, unsigned nfds)
{
    uint8_t  buf[sizeof(*task) + SBX_NETWORK_SIZE];

    memcpy(buf, task, sizeof(*task));

    if (size != 0) {
        memcpy(buf + sizeof(*task), rules, size);
    }

    return sbx_wire_send(t->control, buf, sizeof(*task) + size, fds, nfds, 0)
           == (ssize_t) (sizeof(*task) + size) ? 0 : -1;
}


/*
 * The operator's table: records of sbx_egress_table_check(), each a string with
 * its type before it ("a*", "p", "Tname"), NULL at the end; values: of 'C', 'h'
 * and 's' in their order ("hHOST\0NAME\0PATH" is given with \1 for each NUL).
 * Resolvers: the world's process.  0, or the record's err.
 */

static int
et_config_values(et_t *t, const char **rows, const char **values)
{
    int                   fds[SBX_EGRESS_FILES_MAX];
    char                  table[SBX_EGRESS_SIZE], *p;
    size_t                n;
    unsigned              nfds;
    sbx_egress_task_t     task;
    sbx_egress_record_t   record;

    static const char     resolv[] = "nameserver 203.0.113.2\n";

    p = table;
    t->rows = rows;
    t->values = values;

    for ( /* void */ ; *rows != NULL; rows++) {
        n = strlen(*rows) + 1;
        memcpy(p, *rows, n);

        for ( /* void */ ; n > 0; n--, p++) {
            *p = *p == '\1' ? '\0' : *p;
        }
    }

    et_task_of(&task, NULL, SBX_EGRESS_CONFIG);
    task.size = (uint32_t) (p - table);
    task.extra = sizeof(resolv) - 1;
    fds[0] = et_memfd(table, task.size);
    fds[1] = et_memfd(resolv, sizeof(resolv) - 1);

    for (nfds = 2; values != NULL && *values != NULL; values++, nfds++) {
        fds[nfds] = et_memfd(*values, strlen(*values));
    }

    if (et_send(t, &task, NULL, 0, fds, nfds) != 0) {
        et_die("CONFIG");
    }

    while (nfds > 0) {
        (void) close(fds[--nfds]);
    }

    do {
        if (!et_record(t, &record, ET_WAIT)) {
            et_die("CONFIGURED");
        }
    } while (record.type != SBX_EGRESS_CONFIGURED);

    return (int) record.err;
}


/* Everything that was sent before is done; what was told is forgotten. */

static void
et_sync(et_t *t)
{
    if (et_config_values(t, t->rows, t->values) != 0) {
        et_die("the same configuration again");
    }
}


static int
et_config(et_t *t, const char **rows)
{
    return et_config_values(t, rows, NULL);
}


/* CHANGE, and it is done. */

static void
et_change(et_t *t, const sbx_egress_task_t *task, const char **rules)
{
    char    buf[SBX_NETWORK_SIZE];
    size_t  n;
    sbx_egress_task_t  change;

    change = *task;
    n = et_rules(buf, rules);
    change.size = (uint32_t) n;
    change.op = SBX_EGRESS_CHANGE;

    if (n != 0) {
        change.mode = SBX_NETWORK_LISTS;
    }

    if (et_send(t, &change, buf, n, NULL, 0) != 0) {
        et_die("CHANGE");
    }

    et_sync(t);
}


/* New sockets in the session, and the egress has them. */

static int
et_grant(et_t *t, et_session_t *s, const sbx_egress_task_t *task,
    const char **rules)
{
    int                fds[SBX_NET_FDS + 1], order[5];
    char               buf[SBX_NETWORK_SIZE];
    size_t             n;
    unsigned           i, nfds;
    socklen_t          len;
    sbx_error_t        e;
    et_sockaddr_t      sa;
    sbx_egress_task_t  grant;

    if (sbx_net_grant(s->netns, fds, &e) != 0) {
        printf("# %s\n", e.text);
        return -1;
    }

    len = sizeof(sa);
    s->port = getsockname(fds[SBX_NET_TCP4], &sa.any, &len) == 0
              ? ntohs(sa.in.sin_port) : 0;
    s->ipv6 = fds[SBX_NET_TCP6] != -1;
    nfds = s->ipv6 ? 4 : 2;
    order[0] = fds[SBX_NET_TCP4];
    order[1] = fds[SBX_NET_UDP4];
    order[2] = fds[SBX_NET_TCP6];
    order[3] = fds[SBX_NET_UDP6];
    order[nfds] = s->traffic_fd;

    grant = *task;
    n = et_rules(buf, rules);
    grant.op = SBX_EGRESS_GRANT;
    grant.size = (uint32_t) n;
    grant.extra = (uint32_t) s->ipv6;

    if (n != 0) {
        grant.mode = SBX_NETWORK_LISTS;
    }

    if (et_send(t, &grant, buf, n, order, nfds + 1) != 0) {
        et_die("GRANT");
    }

    for (i = 0; i < nfds; i++) {
        (void) close(order[i]);
    }

    et_sync(t);

    return 0;
}


static void
et_revoke(et_t *t, const et_session_t *s)
{
    sbx_egress_task_t  task;

    et_task_of(&task, s, SBX_EGRESS_REVOKE);

    if (et_send(t, &task, NULL, 0, NULL, 0) != 0) {
        et_die("REVOKE");
    }

    et_sync(t);
}


static void
et_session(et_t *t, et_session_t *s, const char *id)
{
    memcpy(s->id, id, strlen(id) + 1);
    s->netns = et_netns_new(t);

    if (s->netns == -1 || et_ip(s->netns, "link set lo up\n") != 0) {
        et_die("a session's network");
    }

    s->traffic_fd = memfd_create("traffic", MFD_CLOEXEC|MFD_ALLOW_SEALING);

    if (s->traffic_fd == -1
        || ftruncate(s->traffic_fd, sizeof(sbx_traffic_t)) == -1
        || fcntl(s->traffic_fd, F_ADD_SEALS, F_SEAL_SHRINK|F_SEAL_GROW) == -1)
    {
        et_die("the page of traffic");
    }

    s->traffic = mmap(NULL, sizeof(sbx_traffic_t), PROT_READ|PROT_WRITE,
                      MAP_SHARED, s->traffic_fd, 0);

    if (s->traffic == MAP_FAILED) {
        et_die("mmap");
    }
}


/*
 * ---- the world's name server -------------------------------------------------
 */

static void
et_dns_answer(int fd, const et_name_t *names)
{
    char                 name[256];
    size_t               n, at, out, size, answers, known;
    ssize_t              got;
    uint8_t              p[2048];
    unsigned             type;
    socklen_t            len;
    et_sockaddr_t        from;
    struct in6_addr      address;
    const et_name_t     *it;

    len = sizeof(from);
    got = recvfrom(fd, p, 512, 0, &from.any, &len);

    if (got < 17) {
        return;
    }

    for (at = 12, n = 0; at < (size_t) got && p[at] != 0
                         && at + p[at] < (size_t) got; at += p[at] + 1u)
    {
        memcpy(name + n, p + at + 1, p[at]);
        n += p[at];
        name[n++] = '.';
    }

    name[n == 0 ? 0 : n - 1] = '\0';
    at += 5;

    if (at > (size_t) got) {
        return;
    }

    type = p[at - 3];
    known = 0;
    answers = 0;
    out = at;

    for (it = names; it->name != NULL; it++) {
        if (strcasecmp(it->name, name) != 0) {
            continue;
        }

        known = 1;
        size = strchr(it->address, ':') != NULL ? 16 : 4;

        if ((size == 16) != (type == 28)
            || inet_pton(size == 16 ? AF_INET6 : AF_INET, it->address,
                         &address) != 1)
        {
            continue;
        }

        memcpy(p + out, "\xc0\x0c\0\0\0\1\0\0\0\0\0\0", 12);
        p[out + 3] = (uint8_t) type;
        p[out + 9] = (uint8_t) (it->ttl & 0xff);
        p[out + 11] = (uint8_t) size;
        memcpy(p + out + 12, &address, size);
        out += 12 + size;
        answers++;
    }

    p[2] = 0x81;
    p[3] = known ? 0x80 : 0x83;
    memset(p + 4, 0, 8);
    p[5] = 1;
    p[7] = (uint8_t) answers;

    (void) sendto(fd, p, out, 0, &from.any, len);
}


static void
et_dns(et_t *t, const et_name_t *names)
{
    int            fd, fds[2];
    socklen_t      len;
    et_sockaddr_t  sa;

    if (names == NULL) {
        return;
    }

    len = et_address(&sa, "203.0.113.2", 53);
    fd = et_socket(t, t->world, AF_INET, SOCK_DGRAM);

    if (bind(fd, &sa.any, len) == -1 || pipe2(fds, O_CLOEXEC) == -1) {
        et_die("the name server");
    }

    t->dns = fork();

    if (t->dns == 0) {
        (void) close(fds[1]);

        while (!et_ready(fds[0], POLLIN, 0)) {
            struct pollfd  p[2] = {
                { .fd = fd, .events = POLLIN }, { .fd = fds[0] }
            };

            if (poll(p, 2, -1) == -1 || p[1].revents != 0) {
                break;
            }

            et_dns_answer(fd, names);
        }

        _exit(0);
    }

    (void) close(fds[0]);
    (void) close(fd);
    t->dns_pipe = fds[1];
}


/* A session's program looks a name up: the response code, and the first
 * address; -1: no answer. */

static int
et_lookup(et_t *t, const et_session_t *s, const char *name, unsigned type,
    char address[INET6_ADDRSTRLEN])
{
    int            fd;
    size_t         n, len;
    ssize_t        got;
    uint8_t        p[2048];
    const char    *dot;
    et_sockaddr_t  sa;

    static uint8_t  id;

    memset(p, 0, sizeof(p));
    p[1] = ++id;
    p[2] = 1;
    p[5] = 1;

    for (n = 12; *name != '\0'; name = *dot == '.' ? dot + 1 : dot) {
        dot = strchrnul(name, '.');
        len = (size_t) (dot - name);
        p[n++] = (uint8_t) len;
        memcpy(p + n, name, len);
        n += len;
    }

    p[n + 2] = (uint8_t) type;
    p[n + 4] = 1;
    n += 5;

    fd = et_socket(t, s->netns, AF_INET, SOCK_DGRAM);
    len = et_address(&sa, SBX_NET_ADDRESS4, 53);
    address[0] = '\0';
    got = -1;

    if (connect(fd, &sa.any, (socklen_t) len) == 0
        && send(fd, p, n, 0) == (ssize_t) n && et_ready(fd, POLLIN, ET_WAIT))
    {
        got = recv(fd, p, sizeof(p), 0);
    }

    (void) close(fd);

    if (got < (ssize_t) n || p[1] != id) {
        return -1;
    }

    if (p[7] != 0) {
        n += 12;

        if ((size_t) got >= n + 4) {
            (void) inet_ntop(p[n - 1] == 16 ? AF_INET6 : AF_INET, p + n,
                             address, INET6_ADDRSTRLEN);
        }
    }

    return p[3] & 15;
}


/*
 * ---- all of it ------------------------------------------------------------------
 */

/* nofile: of the egress; 0: the test's. */

static void
et_start(et_t *t, rlim_t nofile)
{
    int                   fds[2], ca, cert;
    struct rlimit         limit;
    sbx_egress_record_t   record;

    if (socketpair(AF_UNIX, SOCK_SEQPACKET|SOCK_CLOEXEC, 0, fds) == -1) {
        et_die("socketpair");
    }

    ca = memfd_create("ca", MFD_CLOEXEC);
    cert = memfd_create("cert", MFD_CLOEXEC);

    (void) fflush(stdout);
    t->egress = fork();

    if (t->egress == 0) {
        (void) close(fds[0]);
        (void) prctl(PR_SET_PDEATHSIG, SIGKILL);

        if (nofile != 0) {
            limit.rlim_cur = nofile;
            limit.rlim_max = nofile;
            (void) setrlimit(RLIMIT_NOFILE, &limit);
        }

        /* what it says of tasks that are none; SBX_TEST_LOG shows it */

        if (getenv("SBX_TEST_LOG") == NULL) {
            (void) dup2(open("/dev/null", O_WRONLY|O_CLOEXEC), STDERR_FILENO);
        }

        et_enter(t->host);
        exit(sbx_egress_run(fds[1], ca, cert, sbx_egress_confine));
    }

    (void) close(fds[1]);
    (void) close(ca);
    (void) close(cert);
    t->control = fds[0];

    if (!et_record(t, &record, ET_WAIT) || record.type != SBX_EGRESS_READY) {
        et_die("the egress is not ready");
    }
}


/* 0, or -1 and why this machine does not do. */

static const char *
et_open(et_t *t, const et_name_t *names)
{
    memset(t, 0, sizeof(et_t));
    t->dns_pipe = -1;

    if (geteuid() != 0) {
        return "not root";
    }

    (void) signal(SIGPIPE, SIG_IGN);

    if (et_networks(t) != 0) {
        return "no network namespaces, veth or ip here";
    }

    et_dns(t, names);
    et_session(t, &t->one, ET_ID);
    et_session(t, &t->two, ET_ID_TWO);
    et_start(t, 0);

    return NULL;
}


/* The egress ends when its control does; its exit status. */

static int
et_stop(et_t *t)
{
    int  status;

    (void) close(t->control);

    if (waitpid(t->egress, &status, 0) != t->egress) {
        return -1;
    }

    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}


static int
et_close(et_t *t)
{
    int  rc, status;

    rc = et_stop(t);

    if (t->dns > 0) {
        (void) close(t->dns_pipe);
        (void) waitpid(t->dns, &status, 0);
    }

    return rc;
}


#endif
