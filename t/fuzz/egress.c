/*
 * What the egress is told: messages with their descriptors, of the right kind
 * and number or not, over its own socket.  A message of the input is a byte
 * of its kind, one of its descriptors, two of its length, and what is in it:
 * of a configuration the table, a resolv.conf and the files of its rows, with
 * 0x1e between them; of a grant and a change a byte of the session and the
 * mode, then rules; of any other kind the whole datagram.
 *
 * Whatever comes: it answers as it may, goes on, and when all is revoked
 * nothing of it is left, no descriptor either.
 */

#include "fuzz.h"

#define dprintf(...)  0
#include "../../sandbox_core/egress/egress.c"
#undef dprintf

#include <arpa/inet.h>


#define TASKS_MAX     8                /* of one input */
#define TASK_FIXED    4
#define TASK_FDS      40               /* as many as sbx_wire_send() takes */
#define PART_END      0x1e


static void begin(void);
static void turn(void);
static void told(void);
static size_t task_of(uint8_t *out, unsigned op, const uint8_t *p, size_t n);
static unsigned task_fds(int *fds, unsigned op, unsigned how,
    const uint8_t *p, size_t n);
static unsigned task_files(int *fds, const uint8_t *p, size_t n);
static void task_send(const uint8_t *p, size_t n, const int *fds,
    unsigned nfds);
static void task_revoke(unsigned which);
static void stop(sbx_timer_t *timer);


static sbx_egress_t  *eg;
static int            peer;
static int            sockets[SBX_EG_LISTENERS];
static int            page;
static sbx_timer_t    timer;

static const char  *const ids[] = {
    "i00000000000000000000", "izzzzzzzzzzzzzzzzzzzz"
};


int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    int            before, fds[TASK_FDS];
    size_t         n, len;
    unsigned       i, op, nfds, many;

    static uint8_t  buf[SBX_EGRESS_TASK_MAX + 64];

    if (eg == NULL) {
        begin();
    }

    before = dup(page);
    must(before != -1);
    (void) close(before);

    for (many = 0; size >= TASK_FIXED && many < TASKS_MAX; many++) {
        op = data[0] & 7;
        len = (size_t) data[2] | (size_t) data[3] << 8;
        len = len < size - TASK_FIXED ? len : size - TASK_FIXED;
        n = task_of(buf, op, data + TASK_FIXED, len);
        nfds = task_fds(fds, op, data[1], data + TASK_FIXED, len);
        task_send(buf, n, fds, nfds);

        for (i = 0; i < nfds; i++) {
            (void) close(fds[i]);
        }

        turn();
        must(!eg->loop.stop);
        data += TASK_FIXED + len;
        size -= TASK_FIXED + len;
    }

    for (i = 0; i < 2; i++) {
        task_revoke(i);
    }

    /* a configuration that grants nothing, then nothing is there */

    n = task_of(buf, SBX_EGRESS_CONFIG, (const uint8_t *) "\x1e", 1);
    nfds = task_files(fds, (const uint8_t *) "\x1e", 1);
    task_send(buf, n, fds, nfds);

    for (i = 0; i < nfds; i++) {
        (void) close(fds[i]);
    }

    turn();
    must(eg->npolicies == 0);

    for (i = 0; i < SBX_EG_BUCKETS; i++) {
        while (eg->buckets[i] != NULL) {
            sbx_egress_revoke(eg->buckets[i]);
        }
    }

    turn();
    must(eg->nsessions == 0);

    i = (unsigned) dup(page);
    must(i == (unsigned) before);
    (void) close((int) i);

    return 0;
}


static void
stop(sbx_timer_t *t)
{
    (void) t;
    sbx_loop_stop(&eg->loop);
}


/* One round of the loop, in which all is read that has been sent. */

static void
turn(void)
{
    sbx_error_t  e;

    sbx_timer_set(&eg->loop, &timer, 0);
    must(sbx_loop_run(&eg->loop, &e) == 0);
    eg->loop.stop = 0;
    told();
}


/* What it may say, and nothing else. */

static void
told(void)
{
    size_t                i;
    ssize_t               n;
    sbx_egress_record_t   record;

    for ( ;; ) {
        n = recv(peer, &record, sizeof(record), MSG_DONTWAIT|MSG_TRUNC);

        if (n == -1) {
            return;
        }

        must(n == sizeof(record) && record.magic == SBX_EGRESS_MAGIC);
        must(record.type == SBX_EGRESS_CONFIGURED
             || record.type == SBX_EGRESS_HERE
             || record.type == SBX_EGRESS_READY);
        must(memchr(record.name, '\0', sizeof(record.name)) != NULL);

        for (i = 0; record.name[i] != '\0'; i++) {
            must(record.name[i] > ' ' && record.name[i] < 0x7f);
        }

        must(record.name[0] == '\0' || record.err != 0);
    }
}


static int
file(const void *p, size_t n, int seal)
{
    int  fd;

    fd = memfd_create("fuzz", MFD_CLOEXEC|MFD_ALLOW_SEALING);
    must(fd != -1 && (n == 0 || pwrite(fd, p, n, 0) == (ssize_t) n));
    must(!seal || fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK|F_SEAL_GROW) == 0);

    return fd;
}


static void
begin(void)
{
    int                  control[2], i, ca, cert, on;
    socklen_t            len;
    sbx_error_t          e;
    struct sockaddr_in   in;
    struct sockaddr_in6  in6;

    static const uint8_t  traffic[sizeof(sbx_traffic_t)];

    eg = calloc(1, sizeof(sbx_egress_t));
    must(eg != NULL && socketpair(AF_UNIX, SOCK_SEQPACKET|SOCK_CLOEXEC, 0,
                                  control) == 0);
    eg->control = control[0];
    peer = control[1];

    /* as much as the broker's has room for: what is sent is all read */

    on = 4 * (int) SBX_EGRESS_TASK_MAX;
    (void) setsockopt(peer, SOL_SOCKET, SO_SNDBUF, &on, sizeof(on));

    ca = file("", 0, 0);
    cert = file("", 0, 0);
    must(sbx_egress_open(eg, ca, cert, &e) == 0);
    timer.handler = stop;

    page = file(traffic, sizeof(traffic), 1);
    memset(&in, 0, sizeof(in));
    memset(&in6, 0, sizeof(in6));
    in.sin_family = AF_INET;
    in.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    in6.sin6_family = AF_INET6;
    in6.sin6_addr = in6addr_loopback;

    for (i = 0; i < SBX_EG_LISTENERS; i++) {
        sockets[i] = socket(i < 2 ? AF_INET : AF_INET6,
                            (i % 2 ? SOCK_DGRAM : SOCK_STREAM)
                            |SOCK_CLOEXEC|SOCK_NONBLOCK, 0);
        len = i < 2 ? sizeof(in) : sizeof(in6);

        /* a machine without IPv6 has none of it to offer */

        (void) bind(sockets[i], i < 2 ? (struct sockaddr *) &in
                                      : (struct sockaddr *) &in6, len);

        if (i % 2 == 0) {
            (void) listen(sockets[i], 8);
        }
    }

    turn();
}


/* The datagram; its length. */

static size_t
task_of(uint8_t *out, unsigned op, const uint8_t *p, size_t n)
{
    size_t              size;
    const uint8_t      *end;
    sbx_egress_task_t   task;

    if (op < SBX_EGRESS_CONFIG || op > SBX_EGRESS_ASK) {
        memcpy(out, p, n);
        return n;
    }

    memset(&task, 0, sizeof(task));
    task.magic = SBX_EGRESS_MAGIC;
    task.version = SBX_WIRE_VERSION;
    task.op = (uint16_t) op;
    size = 0;

    switch (op) {

    case SBX_EGRESS_CONFIG:
        end = n ? memchr(p, PART_END, n) : NULL;
        task.size = end != NULL ? (uint32_t) (end - p) : (uint32_t) n;

        if (end != NULL) {
            n -= (size_t) (end + 1 - p);
            p = end + 1;
            end = n ? memchr(p, PART_END, n) : NULL;
            task.extra = end != NULL ? (uint32_t) (end - p) : (uint32_t) n;
        }

        break;

    case SBX_EGRESS_GRANT:
    case SBX_EGRESS_CHANGE:
    case SBX_EGRESS_REVOKE:
        memcpy(task.session, ids[n ? p[0] & 1 : 0], strlen(ids[0]));

        if (n == 0) {
            break;
        }

        task.mode = (p[0] >> 1) & 3;
        task.extra = (p[0] >> 3) & 3;
        task.connections = p[0] & 0x80 ? 1 : SBX_UNLIMITED;
        task.rate = SBX_UNLIMITED;
        task.bytes = SBX_UNLIMITED;
        memcpy(task.template, p[0] & 0x40 ? "other" : "base", 5);
        task.template[5] = '\0';

        if (op != SBX_EGRESS_REVOKE) {
            size = n - 1;
            task.size = (uint32_t) size;
            memcpy(out + sizeof(task), p + 1, size);
        }

        break;
    }

    memcpy(out, &task, sizeof(task));

    return sizeof(task) + size;
}


/* how: 0 right; else one more, one less, all of one kind, none. */

static unsigned
task_fds(int *fds, unsigned op, unsigned how, const uint8_t *p, size_t n)
{
    unsigned  i, nfds;

    nfds = 0;

    if (op == SBX_EGRESS_CONFIG) {
        nfds = task_files(fds, p, n);

    } else if (op == SBX_EGRESS_GRANT) {
        i = n && ((p[0] >> 3) & 3) == 1 ? SBX_EG_LISTENERS : 2;

        for (nfds = 0; nfds < i; nfds++) {
            fds[nfds] = dup(sockets[how & 16 ? 0 : nfds]);
        }

        fds[nfds++] = dup(how & 32 ? peer : page);
    }

    if ((how & 1) && nfds < TASK_FDS) {
        fds[nfds++] = dup(how & 4 ? sockets[0] : page);
    }

    if ((how & 2) && nfds != 0) {
        (void) close(fds[--nfds]);
    }

    while ((how & 8) && nfds < TASK_FDS) {
        fds[nfds++] = dup(page);
    }

    return nfds;
}


static unsigned
task_files(int *fds, const uint8_t *p, size_t n)
{
    size_t          len;
    unsigned        nfds;
    const uint8_t  *end;

    for (nfds = 0; nfds < 16; nfds++) {
        end = n ? memchr(p, PART_END, n) : NULL;
        len = end != NULL ? (size_t) (end - p) : n;
        fds[nfds] = file(p, len, 1);

        if (end == NULL) {
            return nfds + 1;
        }

        p += len + 1;
        n -= len + 1;
    }

    return nfds;
}


static void
task_send(const uint8_t *p, size_t n, const int *fds, unsigned nfds)
{
    /* an empty datagram is as the end */

    if (n != 0) {
        must(sbx_wire_send(peer, p, n, fds, nfds, MSG_DONTWAIT)
             == (ssize_t) n);
    }
}


static void
task_revoke(unsigned which)
{
    uint8_t  buf[sizeof(sbx_egress_task_t)], id;

    id = (uint8_t) which;
    task_send(buf, task_of(buf, SBX_EGRESS_REVOKE, &id, 1), NULL, 0);
    turn();
}
