/*
 * An egress without a broker, in networks of the test's own (egress_net.h):
 * the test plays the broker over the egress's control socket, and has a name
 * server in the world that answers by a list.
 */

#ifndef SBX_EGRESS_TEST_H
#define SBX_EGRESS_TEST_H

#include "egress_net.h"


/*
 * ---- the broker's part ---------------------------------------------------
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
 * The operator's table: records of sbx_egress_table_check(), each a string
 * with its type before it ("a*", "p", "Tname"), NULL at the end; values: of
 * 'C', 'h' and 's' in their order ("hHOST\0NAME\0PATH" is given with
 * \1 for each NUL).
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

    memset(&sa, 0, sizeof(sa));
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
 * ---- the world's name server ---------------------------------------------
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
 * ---- all of it -----------------------------------------------------------
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
