/*
 * What a session may have of the egress: connections, bytes a second, bytes in
 * all; what is cut when its rules change; and that none of it is another's.
 */

#include "egress_test.h"

#include <time.h>


#define SERVER    "198.51.100.7"
#define RATE      (2 * 1024 * 1024)
#define FEW       128              /* descriptors of the egress */


static et_t               t;
static sbx_egress_task_t  one, two;
static int                listener;


static double
now(void)
{
    struct timespec  ts;

    (void) clock_gettime(CLOCK_MONOTONIC, &ts);

    return (double) ts.tv_sec + (double) ts.tv_nsec / 1e9;
}


/* Reads and forgets up to n bytes of each of two; seconds.  got: of each. */

static double
drink(int fds[2], const int servers[2], size_t n, size_t got[2])
{
    int            i;
    double         begin;
    ssize_t        part;
    struct pollfd  p[4];

    static char    buf[65536];

    begin = now();
    got[0] = 0;
    got[1] = 0;

    while (got[0] + got[1] < n) {
        for (i = 0; i < 2; i++) {
            p[i].fd = fds[i];
            p[i].events = POLLIN;
            p[i + 2].fd = servers[i];
            p[i + 2].events = POLLOUT;
        }

        if (poll(p, 4, ET_WAIT) <= 0) {
            return -1;
        }

        for (i = 0; i < 2; i++) {
            if (p[i].revents != 0) {
                part = recv(fds[i], buf, sizeof(buf), MSG_DONTWAIT);

                if (part <= 0) {
                    return -1;
                }

                got[i] += (size_t) part;
            }

            if (p[i + 2].revents != 0) {
                (void) send(servers[i], buf, sizeof(buf),
                            MSG_DONTWAIT|MSG_NOSIGNAL);
            }
        }
    }

    return now() - begin;
}


static void
check_connections(void)
{
    int  i, clients[5], servers[5];

    one.connections = 3;
    et_change(&t, &one, NULL);

    for (i = 0; i < 3; i++) {
        clients[i] = et_connect(&t, &t.one, SERVER, 7);
        servers[i] = et_accept(listener);
    }

    ok(et_refused(&t, &t.one, SERVER, 7), "one more than it may have");
    is_int(et_reason(&t), SBX_REFUSED_LIMIT, "is refused as that");
    ok(et_talk(clients[2], servers[2]) == 0, "those that it has go on");
    clients[3] = et_connect(&t, &t.two, SERVER, 7);
    servers[3] = et_accept(listener);
    ok(et_talk(clients[3], servers[3]) == 0, "another's are its own");
    (void) close(clients[0]);
    (void) close(servers[0]);
    ok(et_soon(&t.one.traffic->connections, 2), "when one has ended");
    clients[0] = et_connect(&t, &t.one, SERVER, 7);
    servers[0] = et_accept(listener);
    ok(et_talk(clients[0], servers[0]) == 0, "there may be another");

    for (i = 0; i < 4; i++) {
        (void) close(clients[i]);
        (void) close(servers[i]);
    }

    one.connections = 256;
    et_change(&t, &one, NULL);
    (void) et_soon(&t.one.traffic->connections, 0);
    (void) et_soon(&t.two.traffic->connections, 0);
}


static void
check_rate(void)
{
    int     i, clients[2], servers[2];
    double  took, fair;
    size_t  got[2];

    one.rate = RATE;
    et_change(&t, &one, NULL);

    for (i = 0; i < 2; i++) {
        clients[i] = et_connect(&t, &t.one, SERVER, 7);
        servers[i] = et_accept(listener);
    }

    (void) drink(clients, servers, RATE / 4, got);
    took = drink(clients, servers, RATE * 2, got);
    fair = (double) got[0] / (double) (got[0] + got[1]);
    printf("# %.3f s of 2; shares %.3f\n", took, fair);
    ok(took > 1.85, "no more in a second than it may have");
    ok(took < 2.6, "and all of that");
    ok(fair > 0.4 && fair < 0.6, "which its connections share");

    one.rate = SBX_UNLIMITED;
    et_change(&t, &one, NULL);
    took = drink(clients, servers, RATE * 4, got);
    ok(took >= 0 && took < 2, "then all that it can");

    for (i = 0; i < 2; i++) {
        (void) close(clients[i]);
        (void) close(servers[i]);
    }

    (void) et_soon(&t.one.traffic->connections, 0);
}


static void
check_bytes(void)
{
    int            client, server, other[2];
    char           buf[65536];
    ssize_t        n;
    size_t         got;
    uint64_t       used;
    et_sockaddr_t  sa;

    sbx_egress_record_t  record;

    used = t.one.traffic->sent + t.one.traffic->received;
    one.bytes = used + 300000;
    et_change(&t, &one, NULL);

    client = et_connect(&t, &t.one, SERVER, 7);
    server = et_accept(listener);
    other[0] = et_connect(&t, &t.two, SERVER, 7);
    other[1] = et_accept(listener);
    memset(buf, 'x', sizeof(buf));
    got = 0;

    for ( ;; ) {
        (void) send(server, buf, sizeof(buf), MSG_DONTWAIT|MSG_NOSIGNAL);

        if (!et_ready(client, POLLIN, ET_WAIT)) {
            break;
        }

        n = recv(client, buf, sizeof(buf), MSG_DONTWAIT);

        if (n <= 0) {
            break;
        }

        got += (size_t) n;
    }

    ok(got <= 300000, "no more than it may have in all");
    ok(got > 200000, "but most of that");
    is_int((int64_t) (t.one.traffic->sent + t.one.traffic->received),
           (int64_t) one.bytes, "that is counted");
    ok(et_record(&t, &record, ET_WAIT)
       && record.reason == SBX_REFUSED_LIMIT, "and told");
    ok(record.port == 7 && et_address(&sa, SERVER, 7) != 0
       && memcmp(record.address + 12, &sa.in.sin_addr, 4) == 0,
       "with where it led");
    ok(et_refused(&t, &t.one, SERVER, 7), "nothing new comes");
    is_int(et_reason(&t), SBX_REFUSED_LIMIT, "for the same reason");
    ok(et_talk(other[0], other[1]) == 0, "another's goes on");
    (void) close(client);
    (void) close(server);
    (void) close(other[0]);
    (void) close(other[1]);

    /* as an egress that is started anew has it: nothing yet, all moved */

    et_revoke(&t, &t.one);
    (void) et_grant(&t, &t.one, &one, NULL);
    ok(et_refused(&t, &t.one, SERVER, 7), "nor where it is granted anew");

    one.bytes = SBX_UNLIMITED;
    et_change(&t, &one, NULL);
    client = et_connect(&t, &t.one, SERVER, 7);
    server = et_accept(listener);
    ok(et_talk(client, server) == 0, "when it may have more it goes on");
    (void) close(client);
    (void) close(server);
    (void) et_soon(&t.one.traffic->connections, 0);
}


/*
 * ---- what changes cut ------------------------------------------------------
 */

static const char  *only_a[] = { "aa.test", NULL };
static const char  *only_c[] = { "ac.test", NULL };
static const char  *not_7[] = { "d*:7", NULL };
static const char  *not_a[] = { "da.test", NULL };


static void
check_changes(void)
{
    int   client, server, named[2], late[2], greeting;
    char  address[INET6_ADDRSTRLEN], buf[256];

    /* not looked at: what it may have meant is what was looked up */

    client = et_connect(&t, &t.one, SERVER, 7);
    server = et_accept(listener);
    et_change(&t, &one, not_7);
    is_int(et_says(client), -ECONNRESET, "what is denied is cut");
    is_int(et_says(server), -ECONNRESET, "on both sides");
    (void) close(client);
    (void) close(server);

    et_change(&t, &one, only_a);
    is_int(et_lookup(&t, &t.one, "a.test", 1, address), 0, "a name");
    is_str(address, SERVER, "has its address");
    is_int(et_lookup(&t, &t.one, "c.test", 1, address), 3, "no other has");

    client = et_connect(&t, &t.one, SERVER, 7);
    server = et_accept(listener);
    ok(et_talk(client, server) == 0, "what is neither TLS nor HTTP passes");

    late[0] = et_connect(&t, &t.one, SERVER, 7);
    late[1] = et_accept(listener);
    (void) send(late[1], "hello", 5, 0);
    ok(recv(late[0], buf, 5, MSG_WAITALL) == 5,
       "a server may speak before its client has");
    (void) send(late[0], "EHLO x", 6, 0);
    ok(recv(late[1], buf, 6, MSG_WAITALL) == 6, "and is no HTTP then");
    (void) close(late[0]);
    (void) close(late[1]);

    greeting = et_listen(&t, t.world, SERVER, 80);
    named[0] = et_connect(&t, &t.one, SERVER, 80);
    named[1] = et_accept(greeting);
    (void) send(named[0], "GET / HTTP/1.1\r\nHost: a.test\r\n\r\n", 32, 0);
    ok(et_ready(named[1], POLLIN, ET_WAIT)
       && recv(named[1], buf, sizeof(buf), 0) == 32, "a request");

    et_change(&t, &one, only_a);
    ok(et_talk(client, server) == 0, "what is still allowed goes on");
    (void) send(named[0], "GET / HTTP/1.1\r\nHost: a.test\r\n\r\n", 32, 0);
    ok(et_ready(named[1], POLLIN, ET_WAIT)
       && recv(named[1], buf, sizeof(buf), 0) == 32, "both do");

    et_change(&t, &one, not_a);
    is_int(et_says(named[0]), -ECONNRESET, "who named what is denied is cut");
    (void) close(named[0]);
    (void) close(named[1]);
    (void) close(client);
    (void) close(server);

    et_change(&t, &one, only_a);
    client = et_connect(&t, &t.one, SERVER, 7);
    server = et_accept(listener);
    (void) et_talk(client, server);
    et_change(&t, &one, only_c);
    is_int(et_says(client), -ECONNRESET,
           "and who came by a name that is not allowed any more");
    (void) close(client);
    (void) close(server);

    et_change(&t, &one, only_a);
    ok(et_refused(&t, &t.one, "198.51.100.8", 7), "a bare address");
    is_int(et_reason(&t), SBX_REFUSED_RULE, "is by no rule");

    named[0] = et_connect(&t, &t.one, SERVER, 80);
    named[1] = et_accept(greeting);
    (void) send(named[0], "GET / HTTP/1.1\r\nHost: c.test\r\n\r\n", 32, 0);
    is_int(et_says(named[0]), -ECONNRESET, "a request of another's");
    is_int(et_reason(&t), SBX_REFUSED_NAME, "is told as one");
    is_int(et_says(named[1]), -ECONNRESET, "and nothing of it has passed");
    (void) close(named[0]);
    (void) close(named[1]);

    named[0] = et_connect(&t, &t.one, SERVER, 80);
    named[1] = et_accept(greeting);
    (void) send(named[0], "SSH-2.0-x\r\n", 11, 0);
    is_int(et_says(named[0]), -ECONNRESET, "what is no HTTP on its port");
    is_int(et_reason(&t), SBX_REFUSED_PROTOCOL, "is that");
    (void) close(named[0]);
    (void) close(named[1]);
    (void) close(greeting);

    et_change(&t, &one, NULL);
    (void) et_soon(&t.one.traffic->connections, 0);
}


/*
 * ---- floods ----------------------------------------------------------------
 */

static void
check_flood(void)
{
    int       i, client, server, bad;
    uint64_t  refused;
    double    begin, worst, took;

    static const char  *none[] = { "d*", NULL };

    et_change(&t, &one, none);
    client = et_connect(&t, &t.two, SERVER, 7);
    server = et_accept(listener);
    refused = t.one.traffic->refused;
    worst = 0;
    bad = 0;

    for (i = 0; i < 1000; i++) {
        (void) close(et_connect(&t, &t.one, SERVER, 7));

        if (i % 100 == 0) {
            begin = now();
            bad += et_talk(client, server) != 0;
            took = now() - begin;
            worst = took > worst ? took : worst;
        }
    }

    is_int(bad, 0, "while one session is refused again and again");
    ok(worst < 1, "another's bytes go through at once");
    printf("# %.3f ms at worst\n", worst * 1e3);
    ok(et_soon(&t.one.traffic->refused, refused + 1000),
       "each of them is counted");
    (void) close(client);
    (void) close(server);
    et_change(&t, &one, NULL);
}


static void
check_told(void)
{
    int                   i;
    unsigned              told, others;
    uint64_t              more;
    sbx_egress_record_t   record;

    static const char  *none[] = { "d*", NULL };

    et_change(&t, &one, none);

    for (i = 0; i < 300; i++) {
        (void) et_refused(&t, &t.one, SERVER, 7);
    }

    told = 0;
    others = 0;
    more = 0;

    while (et_record(&t, &record, 0)) {
        told += record.type == SBX_EGRESS_REFUSED;
        others += strcmp(record.session, t.one.id) != 0;
        more += record.more;
    }

    ok(told >= 50 && told <= 200, "of many refusals the first are told");
    is_int(others, 0, "as the session's");
    printf("# %u told, %llu left out between\n", told,
           (unsigned long long) more);
    et_change(&t, &one, NULL);
}


/* What cannot be done of a session leaves it with nothing. */

static void
check_fault(void)
{
    int                client;
    sbx_egress_task_t  change;

    client = et_connect(&t, &t.two, SERVER, 7);
    (void) close(et_accept(listener));
    (void) close(client);

    change = two;
    change.op = SBX_EGRESS_CHANGE;
    change.mode = SBX_NETWORK_LISTS;
    change.size = 4;

    if (et_send(&t, &change, "d/0", 4, NULL, 0) != 0) {
        et_die("CHANGE");
    }

    et_sync(&t);
    client = et_connect(&t, &t.two, SERVER, 7);
    ok(client == -1 || et_says(client) != 0,
       "rules that cannot be read take the network away");
    (void) close(client);
    is_int(et_ready(listener, POLLIN, 0), 0, "and nobody is reached");
}


/* The egress itself has no descriptors left: a second one, with few. */

static void
check_descriptors(void)
{
    int       i, n, clients[FEW], client, server;
    uint64_t  opened;

    (void) et_stop(&t);
    t.one.traffic->connections = 99;
    et_start(&t, FEW);
    (void) et_config(&t, t.rows);

    if (et_grant(&t, &t.one, &one, NULL) != 0
        || et_grant(&t, &t.two, &two, NULL) != 0)
    {
        et_die("grant");
    }

    is_int((int64_t) t.one.traffic->connections, 0,
           "what an egress that is gone had is not counted");

    for (i = 0; i < FEW; i++) {
        clients[i] = et_connect(&t, &t.one, SERVER, 7);
    }

    /* the last of them is judged, and so are all before it */

    (void) et_says(clients[FEW - 1]);
    n = 0;

    for (i = 0; i < FEW; i++) {
        n += clients[i] != -1 && !et_ready(clients[i], POLLIN, 0);
    }

    ok(n > 10 && n < FEW / 2, "as many as there are descriptors for");
    printf("# %d of %d descriptors\n", n, FEW);

    for (i = 0; i < FEW; i++) {
        (void) close(clients[i]);
    }

    while (et_ready(listener, POLLIN, 0)) {
        (void) close(et_accept(listener));
    }

    ok(et_soon(&t.one.traffic->connections, 0), "and all of them end");

    opened = t.one.traffic->opened;
    client = et_connect(&t, &t.one, SERVER, 7);
    server = et_accept(listener);
    ok(et_talk(client, server) == 0, "then there is room again");
    is_int((int64_t) (t.one.traffic->opened - opened), 1, "for one");
    (void) close(client);
    (void) close(server);
}


int
main(void)
{
    const char  *why;

    static const char  *open_to_all[] = { "a*", NULL };

    static const et_name_t  names[] = {
        { "a.test", SERVER, 60 },
        { "c.test", SERVER, 60 },
        { NULL, NULL, 0 }
    };

    why = et_open(&t, names);

    if (why != NULL) {
        return skip_all(why);
    }

    (void) et_config(&t, open_to_all);
    et_task_of(&one, &t.one, 0);
    et_task_of(&two, &t.two, 0);

    if (et_grant(&t, &t.one, &one, NULL) != 0) {
        return skip_all("no network can be granted here");
    }

    (void) et_grant(&t, &t.two, &two, NULL);

    listener = et_listen(&t, t.world, SERVER, 7);

    check_connections();
    check_rate();
    check_bytes();
    check_changes();
    check_told();
    check_flood();
    check_fault();
    check_descriptors();

    is_int(et_close(&t), 0, "the egress ends");

    return done_testing();
}
