/*
 * DNS of sessions: what is malformed, floods, what a session may have at a
 * time, and connections over TCP.
 */

#include "dns_test.h"

#include <sys/resource.h>
#include <sys/socket.h>


typedef struct {
    int           fd;                 /* of a program in the session */
    sbx_event_t   event;
    size_t        len;
    int           ended;
    uint8_t       p[65536];
} stream_t;


static stream_t  streams[9];


static int
say_none(asked_t *a)
{
    say_head(a, SBX_DNS_NXDOMAIN);
    say_soa(a, 300, 300);

    return 1;
}


/*
 * ---- a connection of a program in a session --------------------------------
 */

static void
stream_read(sbx_event_t *ev, uint32_t events)
{
    ssize_t    n;
    stream_t  *stream = ev->data;

    (void) events;

    n = recv(ev->fd, stream->p + stream->len, sizeof(stream->p) - stream->len,
             MSG_DONTWAIT);

    if (n > 0) {
        stream->len += (size_t) n;

    } else {
        stream->ended = n == 0 ? 1 : errno;
        sbx_event_del(&eg.loop, ev);
    }

    sbx_loop_stop(&eg.loop);
}


/* A connection of the session's to port 53 of somewhere. */
static stream_t *
stream_open(session_t *session, unsigned i)
{
    int        fds[2];
    stream_t  *stream;

    stream = &streams[i];
    memset(stream, 0, sizeof(stream_t));

    if (socketpair(AF_UNIX, SOCK_STREAM|SOCK_NONBLOCK|SOCK_CLOEXEC, 0, fds)
        == -1)
    {
        return stream;
    }

    stream->fd = fds[0];
    stream->event.handler = stream_read;
    stream->event.data = stream;
    (void) sbx_event_add(&eg.loop, &stream->event, fds[0], EPOLLIN);
    sbx_eg_dns_accept(&session->s, fds[1]);

    return stream;
}


static void
stream_close(stream_t *stream)
{
    sbx_event_del(&eg.loop, &stream->event);
    (void) close(stream->fd);
    stream->fd = -1;
}


/* n whole answers, or the end. */
static unsigned
stream_answers(stream_t *stream, unsigned n)
{
    size_t    at, len;
    unsigned  found;

    for ( ;; ) {
        found = 0;

        for (at = 0; at + 2 <= stream->len; at += 2 + len) {
            len = (size_t) stream->p[at] << 8 | stream->p[at + 1];

            if (at + 2 + len > stream->len) {
                break;
            }

            answers[found].size = len;
            memcpy(answers[found].p, stream->p + at + 2, len);
            answer_read(&answers[found++]);
        }

        if (found >= n || stream->ended || !run()) {
            return found;
        }
    }
}


static size_t
framed(uint8_t *p, unsigned id, const char *name, unsigned type)
{
    size_t  n;

    n = question(p + 2, id, name, type, 0);
    p[0] = (uint8_t) (n >> 8);
    p[1] = (uint8_t) n;

    return n + 2;
}


/*
 * ---- over UDP --------------------------------------------------------------
 */

/* The code that a message is answered with. */
static unsigned
told(const void *p, size_t n)
{
    nanswers = 0;
    (void) send(one.client, p, n, 0);

    return await(1) ? answers[0].code : 99;
}


/* 1: it is not answered, as what is sent after it is. */
static int
untold(const void *p, size_t n)
{
    nanswers = 0;
    (void) send(one.client, p, n, 0);
    send_question(&one, 4242, "localhost", SBX_DNS_A, 0);

    return await(1) && answers[0].id == 4242;
}


#define is_told(bytes, code, name)                                           \
    is_int(told(bytes, sizeof(bytes) - 1), code, name)

#define is_untold(bytes, name)                                               \
    is_int(untold(bytes, sizeof(bytes) - 1), 1, name)

#define HEAD   "\0\1\1\0\0\1\0\0\0\0\0\0"
#define NAME   "\1a\2ok\4test\0"


static void
test_malformed(void)
{
    char      p[600];
    size_t    n;
    unsigned  i;

    forget();
    say = say_one;

    is_told(HEAD NAME "\0\1\0\1", 0, "a query that is well formed");
    is_untold("", "nothing is not answered");
    is_untold("\0\1\1\0\0\1\0\0\0\0\0", "nor is a part of a head");
    is_untold("\0\1\x81\0\0\1\0\0\0\0\0\0" NAME "\0\1\0\1",
              "nor is an answer");
    is_told("\0\1\x28\0\0\1\0\0\0\0\0\0" NAME "\0\6\0\1", SBX_DNS_NOTIMP,
            "an update is not implemented");
    is_told("\0\1\x10\0\0\1\0\0\0\0\0\0" NAME "\0\1\0\1", SBX_DNS_NOTIMP,
            "nor is a question of state");
    is_told("\0\1\1\0\0\0\0\0\0\0\0\0", SBX_DNS_FORMERR, "no question");
    is_told("\0\1\1\0\0\2\0\0\0\0\0\0" NAME "\0\1\0\1" NAME "\0\1\0\1",
            SBX_DNS_FORMERR, "two questions");
    is_told("\0\1\1\0\0\1\0\1\0\0\0\0" NAME "\0\1\0\1" NAME
            "\0\1\0\1\0\0\0\0\0\4abcd", SBX_DNS_FORMERR, "an answer in it");
    is_told(HEAD NAME "\0\1\0", SBX_DNS_FORMERR, "a class that is cut");
    is_told(HEAD "\1a\2ok\4tes", SBX_DNS_FORMERR, "a name that is cut");
    is_told(HEAD "\1a\xc0\x0c\0\1\0\1", SBX_DNS_FORMERR, "a pointer");
    is_told(HEAD "\x41" "a\0\0\1\0\1", SBX_DNS_FORMERR, "a label of no kind");
    is_told(HEAD NAME "\0\1\0\1x", SBX_DNS_FORMERR, "a byte too many");
    is_told(HEAD NAME "\0\1\0\3", SBX_DNS_REFUSED, "another class");
    is_told(HEAD NAME "\0\1\0\xff", SBX_DNS_REFUSED, "any class");
    is_told(HEAD "\0\0\1\0\1", SBX_DNS_REFUSED, "the root");
    is_told(HEAD "\1a\3o.k\4test\0\0\1\0\1", SBX_DNS_REFUSED,
            "a dot in a label");
    is_told(HEAD "\2a \2ok\4test\0\0\1\0\1", SBX_DNS_REFUSED, "a space");
    is_told(HEAD "\2a\0\2ok\4test\0\0\1\0\1", SBX_DNS_REFUSED, "a NUL");
    is_told(HEAD "\2\xc3\xa4\2ok\4test\0\0\1\0\1", SBX_DNS_REFUSED,
            "a letter of no alphabet");
    is_told(HEAD "\1""1\1""2\1""3\1""4\0\0\1\0\1", SBX_DNS_REFUSED,
            "an address");
    is_int(refusals[SBX_REFUSED_QUERY], 8, "names that are none are told");
    is_int(refusals[SBX_REFUSED_PROTOCOL], 10, "what is no DNS too");

    /* OPT, and what looks like it */

    is_told("\0\1\1\0\0\1\0\0\0\0\0\1" NAME "\0\1\0\1"
            "\0\0\x29\x10\0\0\0\0\0\0\6\0\x0a\0\2xy", 0, "options");
    is_told("\0\1\1\0\0\1\0\0\0\0\0\1" NAME "\0\1\0\1"
            "\0\0\x29\x10\0\0\0\0\0\0\7\0\x0a\0\2xy", SBX_DNS_FORMERR,
            "options that are cut");
    is_told("\0\1\1\0\0\1\0\0\0\0\0\1" NAME "\0\1\0\1"
            "\0\0\x29\x10\0\0\1\0\0\0\0", SBX_DNS_FORMERR,
            "a later EDNS");
    is_told("\0\1\1\0\0\1\0\0\0\0\0\1" NAME "\0\1\0\1"
            "\0\0\xfa\0\xff\0\0\0\0\0\0", SBX_DNS_FORMERR, "a signature");
    is_told("\0\1\1\0\0\1\0\0\0\0\0\1" NAME "\0\1\0\1", SBX_DNS_FORMERR,
            "options that are not there");

    /* 255 bytes of a name are the most */

    for (i = 0; i < 2; i++) {
        n = sizeof(HEAD) - 1;
        memcpy(p, HEAD, n);

        while (n < sizeof(HEAD) - 1 + 244) {
            p[n++] = '\3';
            memcpy(p + n, "abc", 3);
            n += 3;
        }

        p[n++] = (char) (1 + i);
        memcpy(p + n, "zz", 1 + i);
        n += 1 + i;
        memcpy(p + n, "\2ok\4test\0\0\1\0\1", 13);
        n += 13;

        is_int(told(p, n), i ? SBX_DNS_FORMERR : 0,
               i ? "a name of 256 bytes" : "a name of 255 bytes");
    }

    is_int((int) strlen(asked_last), 253, "it is asked for as a whole");
}


/* A moment later the bucket is full again. */
static void
rested(session_t *session)
{
    session->s.dns->queries.at = 0;
    session->s.dns->names.at = 0;
    session->s.dns->excess.at = 0;
}


static void
test_flood(void)
{
    unsigned  i, refused, early, again;
    uint64_t  began;

    forget();
    rested(&one);
    nanswers = 0;
    refused = 0;
    early = 0;
    began = sbx_now_us();

    for (i = 0; i < 300; i++) {
        send_question(&one, i, "localhost", SBX_DNS_A, 0);

        if (i % 50 == 49) {
            (void) await(i + 1);
        }
    }

    ok(await(300), "every query of a flood is answered");

    again = 1 + (unsigned) ((sbx_now_us() - began) / 10000);

    for (i = 0; i < 300; i++) {
        refused += answers[i].code == SBX_DNS_REFUSED;
        early += i < 200 && answers[i].code != 0;
    }

    is_int(early, 0, "the first two hundred as always");

    ok(refused + again >= 100 && refused <= 100,
       "%u, past the limit, are refused", refused);
    is_int(refusals[SBX_REFUSED_LIMIT], refused, "as the limit's");

    rested(&one);
    is_int(ask(&two, "localhost", SBX_DNS_A)->code, 0,
           "another session does not notice");
}


/* 1: a query over TCP is answered by the connection's end. */
static int
cut_off(void)
{
    int        cut;
    uint8_t    p[64];
    stream_t  *stream;

    stream = stream_open(&one, 0);
    (void) send(stream->fd, p, framed(p, 1, "localhost", SBX_DNS_A), 0);
    one.s.dns->queries.at = one.s.dns->excess.at = sbx_now_us();
    one.s.dns->queries.left = one.s.dns->excess.left = 0;
    (void) run();
    cut = stream->ended && stream->len == 0;
    stream_close(stream);

    while (one.s.dns->nconns) {
        turns(1);
    }

    return cut;
}


/* More than that, for as long as it likes. */
static void
test_excess(void)
{
    unsigned  i, sent;
    uint64_t  before;

    forget();
    rested(&one);
    nanswers = 0;
    wanted = UINT32_MAX;

    for (sent = 0; sent < 5000 && !one.s.dns->rest.set; sent++) {
        send_question(&one, 1, "localhost", SBX_DNS_A, 0);

        if (sent % 50 == 49) {
            turns(1);
        }
    }

    ok(sent < 5000, "who asks on, after %u, is not read", sent);
    ok(nanswers >= 650, "after so many answers");

    sbx_timer_set(&eg.loop, &one.s.dns->rest, 60000);
    before = one.traffic.queries;

    for (i = 0; i < 100; i++) {
        send_question(&one, 2, "localhost", SBX_DNS_A, 0);
    }

    turns(3);
    ok(one.traffic.queries == before, "what is sent then stays where it is");

    /* a machine that is busy may give it time enough for one */

    for (i = 0; i < 50 && !cut_off(); i++) {
        /* void */
    }

    ok(i < 50, "a connection is closed without an answer");

    before = one.traffic.queries;
    rested(&one);
    time_over();

    while (one.traffic.queries - before < 100) {
        turns(1);
    }

    is_int(one.s.dns->rest.set, 0, "after a while it is read again");
    rested(&one);
    is_int(ask(&one, "localhost", SBX_DNS_A)->code, 0, "and answered");
}


/* Not a socket more for the process. */
static void
test_sockets(void)
{
    int            fd;
    struct rlimit  limit, none;

    forget();
    rested(&one);
    say = say_one;

    fd = dup(0);
    (void) close(fd);
    (void) getrlimit(RLIMIT_NOFILE, &limit);
    none = limit;
    none.rlim_cur = (rlim_t) fd;
    (void) setrlimit(RLIMIT_NOFILE, &none);
    is_int(ask(&one, "socket.ok.test", SBX_DNS_A)->code, SBX_DNS_SERVFAIL,
           "without a socket a lookup fails");
    (void) setrlimit(RLIMIT_NOFILE, &limit);
    is_int(ask(&one, "socket.ok.test", SBX_DNS_A)->n, 1,
           "and the next does not");
}


static void
test_names(void)
{
    char      name[64];
    unsigned  i, refused, again;
    uint64_t  began;

    forget();
    say = say_none;
    rested(&one);
    nanswers = 0;
    refused = 0;

    began = sbx_now_us();

    for (i = 0; i < 90; i++) {
        (void) snprintf(name, sizeof(name), "new%u.ok.test", i);
        send_question(&one, i, name, SBX_DNS_A, 0);

        if (i % 30 == 29) {
            (void) await(i + 1);
        }
    }

    ok(await(90), "names that are made up are answered");

    again = 1 + (unsigned) ((sbx_now_us() - began) / 50000);

    for (i = 0; i < 90; i++) {
        refused += answers[i].code == SBX_DNS_REFUSED;
    }

    ok(refused + again >= 30 && refused <= 30, "%u of ninety are refused",
       refused);
    is_int(asked, 90 - refused, "the resolver hears of the others");

    /* what is known is not new, nor are its other addresses */

    is_int(ask(&one, "new0.ok.test", SBX_DNS_AAAA)->code, SBX_DNS_NXDOMAIN,
           "a name that is known is still asked for");

    /* a machine that is busy may give it time enough for one */

    for (i = 100; i < 150; i++) {
        (void) snprintf(name, sizeof(name), "new%u.ok.test", i);
        one.s.dns->names.at = sbx_now_us();
        one.s.dns->names.left = 0;

        if (ask(&one, name, SBX_DNS_A)->code == SBX_DNS_REFUSED) {
            break;
        }
    }

    ok(i < 150, "one that is new is not");
    is_int(ask(&two, name, SBX_DNS_A)->code, SBX_DNS_NXDOMAIN,
           "another session may");
}


static void
test_waiting(void)
{
    char      name[64];
    unsigned  i, refused;

    forget();
    say = say_nothing;
    rested(&one);
    nanswers = 0;
    refused = 0;

    for (i = 0; i < 66; i++) {
        (void) snprintf(name, sizeof(name), "wait%u.ok.test", i / 2);
        send_question(&one, i, name, i % 2 ? SBX_DNS_AAAA : SBX_DNS_A, 0);
    }

    ok(await(2), "some of many queries are answered at once");

    for (i = 0; i < 2; i++) {
        refused += answers[i].code == SBX_DNS_REFUSED && answers[i].id >= 64;
    }

    is_int(refused, 2, "those that are more than a session may have");
    is_int(one.s.dns->waiting, 64, "the others wait");

    time_over();
    ok(await(66), "until their time is over");
    is_int(one.s.dns->waiting, 0, "none does any more");

    nanswers = 0;
    send_question(&one, 1, "wait99.ok.test", SBX_DNS_A, 0);
    ok(await(1) && answers[0].code == SBX_DNS_REFUSED,
       "what the resolver has not given up counts");
    say = say_one;

    while (one.s.dns->nlookups) {
        turns(1);
    }

    is_int(ask(&one, "wait99.ok.test", SBX_DNS_A)->n, 1,
           "when it has answered there is room again");
}


static void
test_spent(void)
{
    forget();
    rested(&one);
    say = say_one;
    one.s.bytes = 1000;
    one.traffic.sent = 400;
    one.traffic.received = 599;
    is_int(ask(&one, "spent.ok.test", SBX_DNS_A)->code, 0,
           "a session that has bytes left");
    one.traffic.received = 600;
    is_int(ask(&one, "spent.ok.test", SBX_DNS_A)->code, SBX_DNS_REFUSED,
           "one that has none looks nothing up");
    is_int(refusals[SBX_REFUSED_LIMIT], 1, "which is told");
    one.s.bytes = SBX_UNLIMITED;
}


/*
 * ---- over TCP --------------------------------------------------------------
 */

static void
test_tcp(void)
{
    size_t     i, n;
    uint8_t    p[4096];
    stream_t  *stream;

    forget();
    rested(&one);
    say = say_one;
    stream = stream_open(&one, 0);

    /* byte by byte, then several at once */

    n = framed(p, 1, "tcp.ok.test", SBX_DNS_A);

    for (i = 0; i < n; i++) {
        (void) send(stream->fd, p + i, 1, 0);
        turns(1);
    }

    is_int(stream_answers(stream, 1), 1, "a query over TCP");
    is_str(answers[0].address[0], "203.0.113.1", "is answered");

    n = framed(p, 2, "tcp.ok.test", SBX_DNS_A);
    n += framed(p + n, 3, "tcp2.ok.test", SBX_DNS_A);
    n += framed(p + n, 4, "evil.example", SBX_DNS_A);
    n += framed(p + n, 5, "tcp3.ok.test", SBX_DNS_AAAA);
    (void) send(stream->fd, p, n, 0);
    (void) shutdown(stream->fd, SHUT_WR);

    is_int(stream_answers(stream, 5), 5, "several in one go are as well");

    for (i = 1; i < 5; i++) {
        is_int(answers[i].id, (int) i + 1, "in their order");
    }

    is_int(answers[3].code, SBX_DNS_NXDOMAIN, "each as it is to be");

    while (!stream->ended && run()) {
        /* void */
    }

    is_int(stream->ended, 1, "what the client has ended is ended");
    is_int(one.s.dns->nconns, 0, "and is gone");
    stream_close(stream);
}


static void
test_tcp_bad(void)
{
    unsigned   i;
    uint8_t    p[4096];
    stream_t  *stream;
    static const char *const  bad[] = {
        "\0\0", "\0\3abc", "\x08\x01", "\xff\xff",
        "\0\14\0\1\x81\0\0\0\0\0\0\0\0\0"
    };
    static const size_t  sizes[] = { 2, 5, 2, 2, 14 };

    forget();
    rested(&one);

    for (i = 0; i < sbx_nelts(bad); i++) {
        stream = stream_open(&one, 0);
        (void) send(stream->fd, bad[i], sizes[i], 0);

        while (!stream->ended && run()) {
            /* void */
        }

        ok(stream->ended && stream->len == 0, "no DNS is no connection: %u",
           i);
        stream_close(stream);
    }

    is_int(refusals[SBX_REFUSED_PROTOCOL], 5, "which is told");

    /* in the middle of a message; while it waits */

    stream = stream_open(&one, 0);
    (void) send(stream->fd, "\0\x20" "abc", 5, 0);
    turns(1);
    stream_close(stream);

    say = say_nothing;
    asked = 0;
    stream = stream_open(&one, 0);
    (void) send(stream->fd, p, framed(p, 1, "left.ok.test", SBX_DNS_A), 0);

    while (asked == 0) {
        turns(1);
    }

    is_int(one.s.dns->waiting, 1, "a connection waits");
    stream_close(stream);

    while (one.s.dns->nconns) {
        turns(1);
    }

    is_int(one.s.dns->waiting, 0, "one that is gone does not");

    /* nothing is said for too long */

    stream = stream_open(&one, 0);
    turns(1);
    is_int(one.s.dns->nconns, 1, "a connection that is idle");
    time_over();
    is_int(one.s.dns->nconns, 0, "is closed after a while");
    stream_close(stream);
}


/* A client that asks, and does not read. */
static void
test_tcp_slow(void)
{
    int        size;
    size_t     n;
    unsigned   i;
    uint64_t   before;
    uint8_t    p[256];
    stream_t  *stream;

    forget();
    rested(&one);
    stream = stream_open(&one, 0);
    sbx_event_del(&eg.loop, &stream->event);

    size = 1;
    (void) setsockopt(stream->fd, SOL_SOCKET, SO_RCVBUF, &size, sizeof(size));
    before = one.traffic.queries;
    n = framed(p, 1, "localhost", SBX_DNS_A);

    for (i = 0; i < 5000; i++) {

        if (send(stream->fd, p, n, MSG_DONTWAIT) == -1) {
            break;
        }

        rested(&one);

        if (i % 20 == 19) {
            turns(1);
        }
    }

    ok(i < 5000, "who does not read is not read from");
    ok(one.traffic.queries - before < 5000, "nor answered for ever");
    (void) sbx_event_add(&eg.loop, &stream->event, stream->fd, EPOLLIN);
    ok(stream_answers(stream, 1) != 0, "reading on, it is answered");
    stream_close(stream);

    while (one.s.dns->nconns) {
        turns(1);
    }
}


static void
test_tcp_many(void)
{
    unsigned  i;

    forget();

    for (i = 0; i < 9; i++) {
        (void) stream_open(&one, i);
    }

    is_int(one.s.dns->nconns, 8, "a session has eight connections");

    while (!streams[8].ended && run()) {
        /* void */
    }

    ok(streams[8].ended, "one more is closed at once");
    is_int(refusals[SBX_REFUSED_LIMIT], 1, "which is told");
    stream_close(&streams[8]);
    stream_close(&streams[0]);

    while (one.s.dns->nconns == 8) {
        turns(1);
    }

    (void) stream_open(&one, 0);
    is_int(one.s.dns->nconns, 8, "when one is gone, another may come");
}


int
main(void)
{
    unsigned  i;

    if (dns_start() == -1) {
        ok(0, "it starts");
        return done_testing();
    }

    session_open(&one, "one");
    session_open(&two, "two");

    test_malformed();
    test_flood();
    test_excess();
    test_sockets();
    test_names();
    test_waiting();
    test_spent();
    test_tcp();
    test_tcp_bad();
    test_tcp_slow();
    test_tcp_many();

    /* with connections and lookups that are not over */

    session_close(&one);
    session_close(&two);

    for (i = 0; i < 8; i++) {
        stream_close(&streams[i]);
    }

    dns_stop();

    return done_testing();
}
