/*
 * Connections through the egress, between a session and the world: who may
 * reach whom, what becomes of ends and resets, and what the egress makes of
 * tasks that are none.
 */

#include "egress_test.h"


#define SERVER    "198.51.100.7"
#define SERVER6   "2001:db8:2::7"


static et_t               t;
static sbx_egress_task_t  task;


static void
check_plain(const char *address, const char *name)
{
    int  listener, client, server;

    listener = et_listen(&t, t.world, address, 7);
    client = et_connect(&t, &t.one, address, 7);
    server = et_accept(listener);

    ok(et_talk(client, server) == 0, "%s: both hear each other", name);

    (void) close(client);
    is_int(et_says(server), 0, "and the client's end is the server's");
    (void) close(server);
    (void) close(listener);
    ok(et_soon(&t.one.traffic->connections, 0), "and nothing of it is left");
}


static void
check_halves(int listener)
{
    int   client, server;
    char  buf[8];

    client = et_connect(&t, &t.one, SERVER, 80);
    server = et_accept(listener);

    (void) shutdown(client, SHUT_WR);
    is_int(et_says(server), 0, "the server hears that the client has ended");
    (void) send(server, "still", 5, 0);
    ok(recv(client, buf, 5, MSG_WAITALL) == 5 && memcmp(buf, "still", 5) == 0,
       "and what it says then is heard");
    ok(!et_ready(client, POLLIN, 0), "and is not the end");
    (void) close(server);
    is_int(et_says(client), 0, "then it ends too");
    (void) close(client);

    client = et_connect(&t, &t.one, SERVER, 80);
    server = et_accept(listener);

    (void) shutdown(server, SHUT_WR);
    is_int(et_says(client), 0, "a server may end first");
    (void) send(client, "still", 5, 0);
    ok(recv(server, buf, 5, MSG_WAITALL) == 5 && memcmp(buf, "still", 5) == 0,
       "and hear what the client says");
    (void) close(client);
    is_int(et_says(server), 0, "and its end");
    (void) close(server);
    ok(et_soon(&t.one.traffic->connections, 0), "nothing is left of both");
}


static void
check_resets(int listener)
{
    int   client, server;
    char  c;

    client = et_connect(&t, &t.one, SERVER, 80);
    server = et_accept(listener);
    (void) et_talk(client, server);
    et_reset(client);
    is_int(et_says(server), -ECONNRESET, "a client's reset is one");
    (void) close(server);

    client = et_connect(&t, &t.one, SERVER, 80);
    server = et_accept(listener);
    (void) et_talk(client, server);
    et_reset(server);
    is_int(et_says(client), -ECONNRESET, "a server's too");
    (void) close(client);

    client = et_connect(&t, &t.one, SERVER, 80);
    server = et_accept(listener);
    (void) et_talk(client, server);
    (void) send(server, "x", 1, 0);
    et_reset(server);
    ok(recv(client, &c, 1, 0) == 1 && c == 'x',
       "what it said before is heard");
    is_int(et_says(client), -ECONNRESET, "before the reset");
    (void) close(client);

    client = et_connect(&t, &t.one, SERVER, 81);
    is_int(et_says(client), -ECONNRESET, "where nobody listens: a reset");
    (void) close(client);

    client = et_connect(&t, &t.one, "192.0.3.1", 80);
    is_int(et_says(client), -ECONNRESET, "where no way leads: a reset");
    (void) close(client);

    ok(et_soon(&t.one.traffic->connections, 0), "and nothing is left");

    /* nobody has that address, so that the connection is on its way */

    client = et_connect(&t, &t.one, "203.0.113.99", 80);
    ok(et_soon(&t.one.traffic->connections, 1), "one is on its way");
    et_reset(client);
    ok(et_soon(&t.one.traffic->connections, 0),
       "and given up with its client");
}


/* Where nothing of the session's own may lead: to the listener. */

static void
check_listener(void)
{
    int  client;

    static const char  *addresses[] = {
        "127.0.0.1", "192.0.0.8", "0.0.0.0"
    };
    unsigned  i;

    for (i = 0; i < sbx_nelts(addresses); i++) {
        client = et_connect(&t, &t.one, addresses[i], t.one.port);

        ok(client == -1 || et_says(client) == -ECONNRESET,
           "the egress's own listener by %s", addresses[i]);

        if (client != -1) {
            (void) close(client);
        }
    }

    is_int((int64_t) t.one.traffic->opened, 0, "no connection was one");
    et_forget(&t);
}


static void
check_own(void)
{
    int  listener;

    static const char  *net[] = { "a*", "a203.0.113.0/24", NULL };
    static const char  *one[] = { "a*", "a203.0.113.1", "a203.0.113.1:99",
                                  NULL };

    listener = et_listen(&t, t.host, "203.0.113.1", 90);

    ok(et_refused(&t, &t.one, "203.0.113.1", 90), "the host's own address");
    is_int(et_reason(&t), SBX_REFUSED_ADDRESS, "is told as one");
    ok(et_refused(&t, &t.one, "203.0.113.255", 90), "and its broadcast");
    is_int(et_reason(&t), SBX_REFUSED_ADDRESS, "is too");

    if (t.one.ipv6) {
        ok(et_refused(&t, &t.one, "2001:db8:1::1", 90), "and that of IPv6");
        ok(et_refused(&t, &t.one, "64:ff9b::cb00:7101", 90),
           "and what a translator would make it of");
    }

    (void) et_config(&t, net);
    ok(et_refused(&t, &t.one, "203.0.113.1", 90),
       "a rule of the network does not mean it");
    (void) et_config(&t, one);
    (void) close(et_connect(&t, &t.one, "203.0.113.1", 90));
    ok(et_ready(listener, POLLIN, ET_WAIT), "a rule of the address does");
    (void) close(listener);

    /* an address that the host is given later */

    listener = et_listen(&t, t.world, "198.51.100.77", 90);
    (void) close(et_connect(&t, &t.one, "198.51.100.77", 90));
    ok(et_ready(listener, POLLIN, ET_WAIT), "an address of the world's");
    (void) close(listener);
    (void) et_ip(t.host, "addr add 198.51.100.77/32 dev out\n");
    et_sync(&t);
    ok(et_refused(&t, &t.one, "198.51.100.77", 90),
       "which then is the host's");
    (void) et_ip(t.host, "addr del 198.51.100.77/32 dev out\n");
    et_sync(&t);
}


static void
check_loopback(void)
{
    int  listener, client, server;

    static const char  *rows[] = { "a*", "a127.0.0.1:91", NULL };

    (void) et_ip(t.host, "link set lo up\n");
    listener = et_listen(&t, t.host, "127.0.0.1", 91);

    ok(et_refused(&t, &t.one, "240.0.0.1", 91), "the host's loopback");
    is_int(et_reason(&t), SBX_REFUSED_ADDRESS, "is no public address");
    (void) et_config(&t, rows);
    client = et_connect(&t, &t.one, "240.0.0.1", 91);
    server = et_accept(listener);
    ok(et_talk(client, server) == 0, "a rule may mean it");
    ok(et_refused(&t, &t.one, "240.0.0.1", 92), "one port of it");
    ok(et_refused(&t, &t.one, "240.0.0.2", 91), "one address");
    (void) close(client);
    (void) close(server);
    (void) close(listener);
}


static void
check_dns_port(void)
{
    int  listener, client;

    listener = et_listen(&t, t.world, SERVER, 53);
    client = et_connect(&t, &t.one, SERVER, 53);
    (void) send(client, "\0\1x", 3, MSG_NOSIGNAL);
    (void) et_says(client);
    ok(!et_ready(listener, POLLIN, 0),
       "a connection to port 53 goes nowhere but to the egress's DNS");
    (void) close(client);
    (void) close(listener);
}


static void
check_grants(int listener)
{
    int  client, server, late;

    client = et_connect(&t, &t.one, SERVER, 80);
    server = et_accept(listener);

    ok(et_grant(&t, &t.one, &task, NULL) == 0, "it is granted again");
    ok(et_talk(client, server) == 0, "what was open goes on");
    is_int((int64_t) t.one.traffic->connections, 1, "and is counted");
    late = et_connect(&t, &t.one, SERVER, 80);
    (void) close(et_accept(listener));
    is_int(et_says(late), 0, "new ones come by the new sockets");
    (void) close(late);

    et_revoke(&t, &t.one);
    is_int(et_says(client), -ECONNRESET, "what is taken away is cut");
    is_int(et_says(server), -ECONNRESET, "at both ends");
    ok(et_refused(&t, &t.one, SERVER, 80), "and nothing new comes");
    (void) close(client);
    (void) close(server);

    et_revoke(&t, &t.one);
    ok(et_grant(&t, &t.one, &task, NULL) == 0, "and given anew");
    check_plain(SERVER, "again");
}


/*
 * ---- tasks that are none ---------------------------------------------------
 */

static void
garbage(const char *name, const void *data, size_t size, const int *fds,
    unsigned nfds)
{
    (void) name;

    if (sbx_wire_send(t.control, data, size, fds, nfds, 0) == -1) {
        et_die(name);
    }
}


static void
check_garbage(void)
{
    int                pair[2], loose, small, udp, n[5], i;
    char               big[40000];
    unsigned           before;
    sbx_egress_task_t  bad;

    et_sync(&t);
    before = et_descriptors(t.egress);

    if (socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == -1) {
        et_die("socketpair");
    }

    loose = memfd_create("loose", MFD_CLOEXEC|MFD_ALLOW_SEALING);
    small = et_memfd("x", 1);
    udp = et_socket(&t, t.host, AF_INET, SOCK_DGRAM);
    (void) ftruncate(loose, sizeof(sbx_traffic_t));

    memset(big, 'x', sizeof(big));
    garbage("one byte", big, 1, pair, 1);
    garbage("too much", big, sizeof(big), pair, 2);

    for (i = 0; i < 8; i++) {
        et_task_of(&bad, &t.two, SBX_EGRESS_GRANT);
        bad.magic ^= i == 0;
        bad.version ^= i == 1;
        bad.op = (uint16_t) (i == 2 ? 0 : i == 3 ? 5 : bad.op);
        bad.size = i == 4 ? 1 : i == 5 ? UINT32_MAX : 0;
        bad.mode = i == 6 ? 77 : bad.mode;

        if (i == 7) {
            memset(bad.session, 'i', sizeof(bad.session));
        }

        garbage("a field", &bad, sizeof(bad), pair, 1);
    }

    et_task_of(&bad, &t.two, SBX_EGRESS_GRANT);
    memset(bad.template, 'x', sizeof(bad.template));
    garbage("a template without an end", &bad, sizeof(bad), NULL, 0);
    et_task_of(&bad, &t.two, SBX_EGRESS_GRANT);
    bad.session[0] = '/';
    garbage("an id that is none", &bad, sizeof(bad), NULL, 0);

    /* sockets that are none, or others */

    et_task_of(&bad, &t.two, SBX_EGRESS_GRANT);
    garbage("no sockets", &bad, sizeof(bad), NULL, 0);
    n[0] = pair[0];
    n[1] = pair[1];
    n[2] = t.two.traffic_fd;
    garbage("of another family", &bad, sizeof(bad), n, 3);
    n[0] = udp;
    n[1] = udp;
    garbage("of another type", &bad, sizeof(bad), n, 3);
    n[0] = small;
    garbage("a file", &bad, sizeof(bad), n, 3);
    n[0] = et_listen(&t, t.host, "203.0.113.1", 95);
    garbage("one that waits", &bad, sizeof(bad), n, 3);
    (void) fcntl(n[0], F_SETFL, O_NONBLOCK);
    (void) fcntl(udp, F_SETFL, O_NONBLOCK);
    n[2] = loose;
    garbage("a page that may shrink", &bad, sizeof(bad), n, 3);
    n[2] = small;
    garbage("a page that is too small", &bad, sizeof(bad), n, 3);
    n[2] = pair[0];
    garbage("a page that is none", &bad, sizeof(bad), n, 3);
    n[2] = t.two.traffic_fd;
    bad.extra = 1;
    garbage("too few", &bad, sizeof(bad), n, 3);
    bad.extra = 0;
    bad.size = 4;
    memcpy(big, &bad, sizeof(bad));
    memcpy(big + sizeof(bad), "zzz", 4);
    garbage("rules that are none", big, sizeof(bad) + 4, n, 3);
    (void) close(n[0]);

    et_task_of(&bad, &t.two, SBX_EGRESS_CHANGE);
    garbage("of a session that is not there", &bad, sizeof(bad), NULL, 0);
    bad.op = SBX_EGRESS_REVOKE;
    garbage("taken from it", &bad, sizeof(bad), pair, 2);

    et_sync(&t);
    ok(et_descriptors_soon(t.egress, before),
       "of tasks that are none nothing stays");

    (void) close(pair[0]);
    (void) close(pair[1]);
    (void) close(loose);
    (void) close(small);
    (void) close(udp);
}


static void
check_configurations(int listener)
{
    unsigned  i;

    static const char  *good[] = { "a*", NULL };
    static const char  *value[] = { "hx.test\1X-Key\1/key", NULL };
    static const char  *values[] = { "one\ntwo\n", NULL };
    static const char  *empty[] = { "\n", NULL };
    static const char  *fine[] = { "secret\n", NULL };
    static const char  *bad[][2] = {
        { "z", NULL }, { "anot a rule", NULL }, { "r1.2.3.4.5", NULL },
        { "hx.test\1X-Key", NULL }
    };
    static const char  *nothing[] = { NULL };

    (void) et_config(&t, good);

    for (i = 0; i < sbx_nelts(bad); i++) {
        ok(et_config(&t, bad[i]) != 0, "a table that is none: %s", bad[i][0]);
    }

    ok(et_config(&t, value) != 0, "a header without its file");
    ok(et_config_values(&t, value, values) != 0, "a value of two lines");
    ok(et_config_values(&t, value, empty) != 0, "a value of none");
    ok(et_config_values(&t, good, fine) != 0, "a file that nobody names");

    (void) close(et_connect(&t, &t.one, SERVER, 80));
    (void) close(et_accept(listener));
    ok(1, "what held before holds");

    is_int(et_config_values(&t, value, fine), 0, "a value");
    is_int(et_config(&t, nothing), 0, "an empty table");
    ok(et_refused(&t, &t.one, SERVER, 80), "which grants nothing");
    is_int(et_reason(&t), SBX_REFUSED_RULE, "and that is why");
    (void) et_config(&t, good);
}


/* The broker sees that it is there. */

static void
check_asked(void)
{
    sbx_egress_task_t    ask;
    sbx_egress_record_t  record;

    et_task_of(&ask, NULL, SBX_EGRESS_ASK);
    et_sync(&t);
    ok(et_send(&t, &ask, NULL, 0, NULL, 0) == 0
       && et_record(&t, &record, ET_WAIT)
       && record.type == SBX_EGRESS_HERE, "it answers whoever asks for it");
}


int
main(void)
{
    int          listener;
    unsigned     before;
    const char  *why;

    static const char  *open_to_all[] = { "a*", NULL };

    why = et_open(&t, NULL);

    if (why != NULL) {
        return skip_all(why);
    }

    is_int(et_config(&t, open_to_all), 0, "the operator's table is taken");
    et_task_of(&task, &t.one, 0);

    if (et_grant(&t, &t.one, &task, NULL) != 0) {
        return skip_all("no network can be granted here");
    }

    check_listener();
    check_plain(SERVER, "IPv4");
    before = et_descriptors(t.egress);

    if (t.one.ipv6) {
        check_plain(SERVER6, "IPv6");
    }

    listener = et_listen(&t, t.world, SERVER, 80);

    check_halves(listener);
    check_resets(listener);
    check_own();
    (void) et_config(&t, open_to_all);
    check_loopback();
    (void) et_config(&t, open_to_all);
    check_dns_port();
    check_grants(listener);
    check_garbage();
    check_asked();
    check_configurations(listener);

    ok(et_soon(&t.one.traffic->connections, 0), "no connection is left");
    ok(et_descriptors_soon(t.egress, before + 4), "and no descriptor");

    is_int(et_close(&t), 0, "the egress ends with its control");

    return done_testing();
}
