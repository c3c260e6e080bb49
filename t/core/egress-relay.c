/*
 * What goes through a connection: all of it, in both directions, unchanged;
 * no more of it than is taken; and little where nothing goes.
 */

#include "egress_test.h"


#define SERVER    "198.51.100.7"
#define MANY      2000
#define STUCK     300               /* more than there are pipes */


/* One direction of a transfer: bytes that tell where they are. */
typedef struct {
    int       from;
    int       to;
    uint64_t  size;
    uint64_t  sent;
    uint64_t  got;
    unsigned  wrong;
    unsigned  chunk;
} stream_t;


static et_t               t;
static sbx_egress_task_t  task;
static int                listener;


/* Both sessions, which may go anywhere; 0 or -1. */

static int
begin(void)
{
    int  rc;

    static const char  *open_to_all[] = { "a*", NULL };

    (void) et_config(&t, open_to_all);
    et_task_of(&task, &t.one, 0);
    task.connections = 4000;
    rc = et_grant(&t, &t.one, &task, NULL);

    et_task_of(&task, &t.two, 0);

    return et_grant(&t, &t.two, &task, NULL) == 0 ? rc : -1;
}


static uint8_t
byte_at(uint64_t at, unsigned seed)
{
    uint64_t  n;

    n = (at >> 3) * 0x9e3779b97f4a7c15u + seed;

    return (uint8_t) (n >> ((at & 7) * 8));
}


static void
stream_send(stream_t *s, unsigned seed)
{
    size_t   i, n;
    uint8_t  buf[65536];
    ssize_t  sent;

    n = s->chunk < s->size - s->sent ? s->chunk : s->size - s->sent;

    for (i = 0; i < n; i++) {
        buf[i] = byte_at(s->sent + i, seed);
    }

    sent = send(s->from, buf, n, MSG_DONTWAIT|MSG_NOSIGNAL);
    s->sent += sent > 0 ? (uint64_t) sent : 0;

    if (s->sent == s->size) {
        (void) shutdown(s->from, SHUT_WR);
    }
}


/* 0: it goes on; 1: the end; -1. */

static int
stream_receive(stream_t *s, unsigned seed)
{
    ssize_t  i, n;
    uint8_t  buf[65536];

    n = recv(s->to, buf, sizeof(buf), MSG_DONTWAIT);

    if (n <= 0) {
        return n == 0 ? 1 : errno == EAGAIN ? 0 : -1;
    }

    for (i = 0; i < n; i++) {
        s->wrong += buf[i] != byte_at(s->got + (uint64_t) i, seed);
    }

    s->got += (uint64_t) n;

    return 0;
}


/* Both directions at once, each to its end; 0 or -1. */

static int
transfer(stream_t streams[2])
{
    int            i, ends[2];
    struct pollfd  p[4];

    ends[0] = 0;
    ends[1] = 0;

    for (i = 0; i < 2; i++) {
        if (streams[i].size == 0) {
            (void) shutdown(streams[i].from, SHUT_WR);
        }
    }

    while (!ends[0] || !ends[1]) {
        for (i = 0; i < 2; i++) {
            p[i].fd = ends[i] ? -1 : streams[i].to;
            p[i].events = POLLIN;
            p[i + 2].fd = streams[i].sent < streams[i].size
                          ? streams[i].from : -1;
            p[i + 2].events = POLLOUT;
        }

        if (poll(p, 4, ET_WAIT) <= 0) {
            return -1;
        }

        for (i = 0; i < 2; i++) {
            if (p[i].fd != -1 && p[i].revents != 0) {
                ends[i] = stream_receive(&streams[i], (unsigned) i);
            }

            if (ends[i] == -1) {
                return -1;
            }

            if (p[i + 2].fd != -1 && p[i + 2].revents != 0) {
                stream_send(&streams[i], (unsigned) i);
            }
        }
    }

    return 0;
}


static void
check_transfer(uint64_t up, uint64_t down, unsigned chunk, const char *name)
{
    int       client, server;
    uint64_t  sent, received;
    stream_t  streams[2];

    client = et_connect(&t, &t.one, SERVER, 7);
    server = et_accept(listener);
    sent = t.one.traffic->sent;
    received = t.one.traffic->received;

    memset(streams, 0, sizeof(streams));
    streams[0].from = client;
    streams[0].to = server;
    streams[0].size = up;
    streams[0].chunk = chunk;
    streams[1].from = server;
    streams[1].to = client;
    streams[1].size = down;
    streams[1].chunk = chunk;

    is_int(transfer(streams), 0, name);
    is_int((int64_t) streams[0].got, (int64_t) up, "all of it, up");
    is_int((int64_t) streams[1].got, (int64_t) down, "and down");
    is_int(streams[0].wrong + streams[1].wrong, 0, "as it was sent");
    is_int((int64_t) (t.one.traffic->sent - sent), (int64_t) up,
           "what was sent is counted");
    is_int((int64_t) (t.one.traffic->received - received), (int64_t) down,
           "and what was received");

    (void) close(client);
    (void) close(server);
}


/* A server sends what a client does not take: how much goes. */

static uint64_t
fill(int server, uint64_t max)
{
    stream_t  s;

    memset(&s, 0, sizeof(s));
    s.from = server;
    s.size = max;
    s.chunk = 65536;

    while (s.sent < max && et_ready(server, POLLOUT, 100)) {
        stream_send(&s, 1);
    }

    return s.sent;
}


static void
check_slow(void)
{
    int       client, server, size;
    long      before, after;
    uint64_t  sent;
    stream_t  s;

    client = et_connect(&t, &t.one, SERVER, 7);
    server = et_accept(listener);

    /* its own buffer may grow to whatever the host says */

    size = 1 << 20;
    (void) setsockopt(client, SOL_SOCKET, SO_RCVBUF, &size, sizeof(size));

    before = et_memory(t.egress);
    sent = fill(server, 128u << 20);
    after = et_memory(t.egress);

    ok(sent < 24u << 20, "what is not read is not sent for ever");
    printf("# %llu bytes were, for nobody\n", (unsigned long long) sent);
    ok(after - before < 1024, "and the egress keeps none of it");

    (void) shutdown(server, SHUT_WR);
    memset(&s, 0, sizeof(s));
    s.to = client;

    while (et_ready(client, POLLIN, ET_WAIT) && stream_receive(&s, 1) == 0) {
        /* void */
    }

    is_int((int64_t) s.got, (int64_t) sent, "all of it is there when it is");
    is_int(s.wrong, 0, "as it was");

    (void) close(client);
    (void) close(server);
}


/* Urgent bytes are as all others, in their place. */

static void
check_urgent(void)
{
    int   client, server;
    char  buf[8];

    client = et_connect(&t, &t.one, SERVER, 7);
    server = et_accept(listener);
    (void) send(client, "ab", 2, 0);
    (void) send(client, "c", 1, MSG_OOB);
    (void) send(client, "de", 2, 0);
    memset(buf, 0, sizeof(buf));
    ok(et_read(server, buf, 5) == 5
       && memcmp(buf, "abcde", 5) == 0, "an urgent byte is one of them");
    ok(et_talk(client, server) == 0, "and nothing stops at it");
    (void) close(client);
    (void) close(server);
}


/* One that is read by nobody, and whose server is gone for good. */

static void
check_dead(void)
{
    int  client, server;

    client = et_connect(&t, &t.one, SERVER, 7);
    server = et_accept(listener);
    (void) fill(server, 32u << 20);
    et_reset(client);
    is_int(et_says(server), -ECONNRESET, "a client that is full and gone");
    (void) close(server);
    ok(et_soon(&t.one.traffic->connections, 0), "is gone");
}


static void
check_idle(void)
{
    int       i, bad, clients[MANY], servers[MANY];
    long      before, after;

    (void) close(et_connect(&t, &t.one, SERVER, 7));
    (void) close(et_accept(listener));
    (void) et_soon(&t.one.traffic->connections, 0);
    before = et_memory(t.egress);

    for (i = 0; i < MANY; i++) {
        clients[i] = et_connect(&t, &t.one, SERVER, 7);
        servers[i] = et_accept(listener);
    }

    after = et_memory(t.egress);
    printf("# %d idle connections: %ld KiB, %ld bytes each\n", MANY,
           after - before, (after - before) * 1024 / MANY);
    ok((after - before) * 1024 / MANY < 1024, "an idle one costs little");

    bad = 0;

    for (i = 0; i < MANY; i++) {
        bad += et_talk(clients[i], servers[i]) != 0;
    }

    is_int(bad, 0, "and each of them works");
    is_int((int64_t) t.one.traffic->connections, MANY, "they are counted");

    for (i = 0; i < MANY; i++) {
        (void) close(clients[i]);
        (void) close(servers[i]);
    }

    ok(et_soon(&t.one.traffic->connections, 0), "and gone when they are");
}


/* More that stand still than there are pipes. */

static void
check_stuck(void)
{
    int        i, bad, client, server, clients[STUCK], servers[STUCK];
    int        small;
    stream_t   s;

    small = 65536;
    bad = 0;

    for (i = 0; i < STUCK; i++) {
        clients[i] = et_connect(&t, &t.one, SERVER, 7);
        servers[i] = et_accept(listener);
        (void) setsockopt(clients[i], SOL_SOCKET, SO_RCVBUF, &small,
                          sizeof(small));
        (void) setsockopt(servers[i], SOL_SOCKET, SO_SNDBUF, &small,
                          sizeof(small));
    }

    for (i = 0; i < STUCK; i++) {
        memset(&s, 0, sizeof(s));
        s.from = servers[i];
        s.size = 16u << 20;
        s.chunk = 65536;

        while (et_ready(servers[i], POLLOUT, 2)) {
            stream_send(&s, 1);
        }
    }

    client = et_connect(&t, &t.two, SERVER, 7);
    server = et_accept(listener);
    ok(et_talk(client, server) == 0, "another session's goes on");
    (void) close(client);
    (void) close(server);

    for (i = 0; i < STUCK; i++) {
        (void) shutdown(servers[i], SHUT_WR);
        memset(&s, 0, sizeof(s));
        s.to = clients[i];

        while (et_ready(clients[i], POLLIN, ET_WAIT)
               && stream_receive(&s, 1) == 0)
        {
            /* void */
        }

        bad += s.got == 0 || s.wrong != 0;
        (void) close(clients[i]);
        (void) close(servers[i]);
    }

    is_int(bad, 0, "and all that stood still go on when they may");
}


/* Where the host lets windows grow far the egress does not. */

static void
check_window(void)
{
    int       fd, client, server, size;
    ssize_t   n;
    uint64_t  sent;

    static const char  rmem[] = "4096 67108864 134217728";

    is_int(et_stop(&t), 0, "the egress ends");

    et_enter(t.host);
    fd = open("/proc/sys/net/ipv4/tcp_rmem", O_WRONLY|O_CLOEXEC);
    n = write(fd, rmem, sizeof(rmem) - 1);
    (void) close(fd);
    et_enter(t.home);

    is_int(n, sizeof(rmem) - 1, "a host with windows of 64 MB");

    et_start(&t, 0);
    is_int(begin(), 0, "and an egress that starts there");

    client = et_connect(&t, &t.one, SERVER, 7);
    server = et_accept(listener);
    size = 65536;
    (void) setsockopt(client, SOL_SOCKET, SO_RCVBUF, &size, sizeof(size));
    (void) setsockopt(server, SOL_SOCKET, SO_SNDBUF, &size, sizeof(size));

    sent = fill(server, 128u << 20);
    printf("# %llu bytes were, for nobody\n", (unsigned long long) sent);
    ok(sent < 12u << 20, "what is not read is not sent for ever there");

    (void) close(client);
    (void) close(server);
}


int
main(void)
{
    const char  *why;

    why = et_open(&t, NULL);

    if (why != NULL) {
        return skip_all(why);
    }

    if (begin() != 0) {
        return skip_all("no network can be granted here");
    }

    listener = et_listen(&t, t.world, SERVER, 7);

    check_transfer(48u << 20, 48u << 20, 65536, "much, both ways at once");
    check_transfer(3000, 5000, 1, "little by little");
    check_transfer(0, 1u << 20, 30000, "nothing one way");
    check_slow();
    check_dead();
    check_urgent();
    check_idle();
    check_stuck();
    check_window();

    is_int(et_close(&t), 0, "the egress ends");

    return done_testing();
}
