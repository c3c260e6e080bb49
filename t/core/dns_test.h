/*
 * An egress that has nothing but its DNS, in this process: a session's socket
 * and a client of it, and a name server on loopback that answers as a test
 * says.  All of it in one loop, which runs until what is waited for is there.
 *
 * What judges names and addresses is the tests' own: names at and below
 * "ok.test" are allowed, addresses of 10/8 and 127/8 are not.
 */

#ifndef SBX_DNS_TEST_H
#define SBX_DNS_TEST_H

#include "dns.h"
#include "tap.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <string.h>


#define DNS_GUARD     10000           /* ms for one event, at most */
#define DNS_ANSWERS   512


/* What a client was answered. */
typedef struct {
    unsigned   id;
    unsigned   flags;
    unsigned   code;
    unsigned   n;                     /* answers */
    unsigned   edns;
    uint32_t   ttl;                   /* of the first */
    char       address[64][INET6_ADDRSTRLEN];
    size_t     size;
    uint8_t    p[4096];
} answer_t;

/* What the name server was asked, and what it says. */
typedef struct {
    unsigned   id;
    unsigned   type;
    unsigned   opt;
    int        tcp;
    char       name[256];
    size_t     end;                   /* of the question */
    size_t     size;
    uint8_t    p[66000];
} asked_t;

typedef struct {
    sbx_eg_session_t   s;
    sbx_traffic_t      traffic;
    int                client;        /* a socket of a program in it */
    sbx_event_t        event;
    unsigned           port;          /* of the session's socket */
} session_t;


static sbx_egress_t    eg;
static session_t       one, two;
static sbx_timer_t     guard;
static int             guarded;       /* it has not come */

static unsigned        name_port;
static int             name_fds[2];
static sbx_event_t     name_events[2];
static unsigned        asked;         /* questions, ever */
static char            asked_last[256];

/* Writes the answer behind the question; 0: there is none. */
static int           (*say)(asked_t *a);

static answer_t        answers[DNS_ANSWERS];
static unsigned        nanswers, wanted, malformed;

static int             ipv6 = 1, loopback;
static const char     *denied = "";   /* of those that are allowed */
static unsigned        refusals[SBX_REFUSED_REASONS];
static char            refused_name[256], refused_address[64];


/*
 * ---- judgement -------------------------------------------------------------
 */

int
sbx_eg_decide_name(sbx_eg_session_t *s, const char *host, unsigned port,
    sbx_refused_t *why)
{
    size_t  len;

    (void) s;
    (void) port;

    *why = SBX_REFUSED_RULE;
    len = strlen(host);

    return strcmp(host, denied) == 0 || len < 7
           || strcmp(host + len - 7, "ok.test") != 0
           || (len > 7 && host[len - 8] != '.');
}


int
sbx_eg_decide_answer(sbx_eg_session_t *s, const uint8_t address[16])
{
    static const uint8_t  mapped[12] = {
        0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff
    };

    (void) s;

    if (memcmp(address, mapped, 12) == 0) {
        return address[12] != 10 && (address[12] != 127 || loopback);
    }

    return address[0] != 0xfd;
}


void
sbx_eg_refused(sbx_eg_session_t *s, sbx_refused_t why,
    const uint8_t *address, unsigned port, const char *name)
{
    (void) s;
    (void) port;

    refusals[why]++;
    refused_address[0] = '\0';
    (void) snprintf(refused_name, sizeof(refused_name), "%s", name);

    if (address) {
        (void) sbx_network_address_print(address, refused_address);
    }
}


int
sbx_eg_addresses_ipv6(sbx_egress_t *egress)
{
    (void) egress;

    return ipv6;
}


/*
 * ---- the name server -------------------------------------------------------
 */

static void
put(asked_t *a, const void *p, size_t n)
{
    memcpy(a->p + a->size, p, n);
    a->size += n;
}


static void
put16(asked_t *a, unsigned v)
{
    uint8_t  p[2] = { (uint8_t) (v >> 8), (uint8_t) v };

    put(a, p, 2);
}


static void
put_name(asked_t *a, const char *name)
{
    size_t   len;
    uint8_t  c;

    for ( /* void */ ; *name; name += len + (name[len] == '.')) {
        len = strcspn(name, ".");
        c = (uint8_t) len;
        put(a, &c, 1);
        put(a, name, len);
    }

    put(a, "", 1);
}


/* The answer's head: flags has the code and TC. */
static void
say_head(asked_t *a, unsigned flags)
{
    a->size = a->end;
    memset(a->p + 6, 0, 6);
    a->p[2] = 0x81 | (uint8_t) (flags >> 8);
    a->p[3] = 0x80 | (uint8_t) flags;
}


/* section 6: an answer, 8: authority. */
static void
say_record(asked_t *a, size_t section, const char *name, unsigned type,
    uint32_t ttl, const void *data, size_t size)
{
    unsigned  n;

    put_name(a, name);
    put16(a, type);
    put16(a, 1);
    put16(a, ttl >> 16);
    put16(a, ttl & 0xffff);
    put16(a, size);
    put(a, data, size);

    n = ((unsigned) a->p[section] << 8 | a->p[section + 1]) + 1;
    a->p[section] = (uint8_t) (n >> 8);
    a->p[section + 1] = (uint8_t) n;
}


static void
say_address(asked_t *a, const char *name, uint32_t ttl, const char *text)
{
    uint8_t  address[16];

    if (inet_pton(AF_INET, text, address) == 1) {
        say_record(a, 6, name, SBX_DNS_A, ttl, address, 4);

    } else if (inet_pton(AF_INET6, text, address) == 1) {
        say_record(a, 6, name, SBX_DNS_AAAA, ttl, address, 16);
    }
}


static void
say_soa(asked_t *a, uint32_t ttl, uint32_t minimum)
{
    uint8_t  data[22];

    memset(data, 0, sizeof(data));
    data[18] = (uint8_t) (minimum >> 24);
    data[19] = (uint8_t) (minimum >> 16);
    data[20] = (uint8_t) (minimum >> 8);
    data[21] = (uint8_t) minimum;
    say_record(a, 8, "test", SBX_DNS_SOA, ttl, data, sizeof(data));
}


static int
say_nothing(asked_t *a)
{
    (void) a;

    return 0;
}


/* One address of the type, for five minutes. */
static int
say_one(asked_t *a)
{
    say_head(a, 0);
    say_address(a, a->name, 300, a->type == SBX_DNS_A ? "203.0.113.1"
                                                      : "2001:db8::1");
    return 1;
}


static void
name_question(asked_t *a, size_t n)
{
    size_t  i, len;

    a->id = (unsigned) a->p[0] << 8 | a->p[1];
    a->opt = a->p[11];
    len = 0;

    for (i = 12; i < n && a->p[i]; i += a->p[i] + 1) {

        if (len) {
            a->name[len++] = '.';
        }

        memcpy(a->name + len, a->p + i + 1, a->p[i]);
        len += a->p[i];
    }

    a->name[len] = '\0';
    a->type = (unsigned) a->p[i + 1] << 8 | a->p[i + 2];
    a->end = i + 5;
    a->size = a->end;

    asked++;
    (void) snprintf(asked_last, sizeof(asked_last), "%s", a->name);
}


static void
name_udp(sbx_event_t *ev, uint32_t events)
{
    ssize_t             n;
    socklen_t           len;
    asked_t            *a;
    struct sockaddr_in  peer;

    (void) events;

    len = sizeof(peer);
    a = calloc(1, sizeof(asked_t));
    n = recvfrom(ev->fd, a->p, 512, MSG_DONTWAIT, (struct sockaddr *) &peer,
                 &len);

    if (n > 16) {
        name_question(a, (size_t) n);

        if (say(a)) {
            (void) sendto(ev->fd, a->p, a->size, 0, (struct sockaddr *) &peer,
                          len);
        }
    }

    free(a);
}


/* One question, which comes in one piece; one answer, and the end. */
static void
name_talk(sbx_event_t *ev, uint32_t events)
{
    int       fd;
    ssize_t   n;
    asked_t  *a;
    uint8_t   len[2];

    (void) events;

    fd = ev->fd;
    a = calloc(1, sizeof(asked_t));
    a->tcp = 1;

    if (sbx_read_full(fd, len, 2) == 2) {
        n = sbx_read_full(fd, a->p, (size_t) len[0] << 8 | len[1]);

        if (n > 16) {
            name_question(a, (size_t) n);

            if (say(a)) {
                len[0] = (uint8_t) (a->size >> 8);
                len[1] = (uint8_t) a->size;
                (void) sbx_write_all(fd, len, 2);
                (void) sbx_write_all(fd, a->p, a->size);
            }
        }
    }

    free(a);
    sbx_event_del(&eg.loop, ev);
    (void) close(fd);
    sbx_loop_free(&eg.loop, ev);
}


static void
name_tcp(sbx_event_t *ev, uint32_t events)
{
    int           fd;
    sbx_event_t  *talk;

    (void) events;

    fd = accept4(ev->fd, NULL, NULL, SOCK_CLOEXEC);

    if (fd == -1) {
        return;
    }

    talk = calloc(1, sizeof(sbx_event_t));
    talk->handler = name_talk;

    if (sbx_event_add(&eg.loop, talk, fd, EPOLLIN) == -1) {
        (void) close(fd);
        free(talk);
    }
}


/* A socket of loopback, and its port. */
static int
bound(int type, unsigned *port)
{
    int                 fd;
    socklen_t           len;
    struct sockaddr_in  in;

    memset(&in, 0, sizeof(in));
    in.sin_family = AF_INET;
    in.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    in.sin_port = htons(*port);
    len = sizeof(in);

    fd = socket(AF_INET, type|SOCK_CLOEXEC|SOCK_NONBLOCK, 0);

    if (fd == -1 || bind(fd, (struct sockaddr *) &in, len) == -1
        || getsockname(fd, (struct sockaddr *) &in, &len) == -1
        || (type == SOCK_STREAM && listen(fd, 64) == -1))
    {
        (void) close(fd);
        return -1;
    }

    *port = ntohs(in.sin_port);

    return fd;
}


static int
name_open(void)
{
    unsigned  i;

    for (i = 0; i < 50; i++) {
        name_port = 0;
        name_fds[0] = bound(SOCK_DGRAM, &name_port);
        name_fds[1] = bound(SOCK_STREAM, &name_port);

        if (name_fds[1] != -1) {
            break;
        }

        (void) close(name_fds[0]);
    }

    name_events[0].handler = name_udp;
    name_events[1].handler = name_tcp;

    return name_fds[1] == -1
           || sbx_event_add(&eg.loop, &name_events[0], name_fds[0], EPOLLIN)
              == -1
           || sbx_event_add(&eg.loop, &name_events[1], name_fds[1], EPOLLIN)
              == -1;
}


/* "127.0.0.1:PORT" as rows of the table, up to two. */
static int
name_use(unsigned port, unsigned next)
{
    int          n;
    char         table[128];
    sbx_error_t  e;

    n = snprintf(table, sizeof(table), "r127.0.0.1:%u%c", port, '\0');

    if (next) {
        n += snprintf(table + n, sizeof(table) - (size_t) n,
                      "r127.0.0.1:%u%c", next, '\0');
    }

    return sbx_eg_dns_configure(&eg, table, (size_t) n, "", 0, &e);
}


/*
 * ---- a program in a session ------------------------------------------------
 */

static size_t
record_at(const uint8_t *p, size_t n, size_t at, unsigned *type,
    uint32_t *ttl, const uint8_t **data, size_t *size)
{
    while (at < n && p[at] && p[at] < 0xc0) {
        at += p[at] + 1;
    }

    at += at < n && p[at] ? 2 : 1;

    if (at + 10 > n) {
        return n + 1;
    }

    *type = (unsigned) p[at] << 8 | p[at + 1];
    *ttl = (uint32_t) p[at + 4] << 24 | (uint32_t) p[at + 5] << 16
           | (uint32_t) p[at + 6] << 8 | p[at + 7];
    *size = (size_t) p[at + 8] << 8 | p[at + 9];
    *data = p + at + 10;

    return at + 10 + *size;
}


static void
answer_read(answer_t *answer)
{
    size_t          at, size;
    uint32_t        ttl;
    unsigned        i, n, type;
    const uint8_t  *p, *data;

    p = answer->p;
    answer->id = (unsigned) p[0] << 8 | p[1];
    answer->flags = (unsigned) p[2] << 8 | p[3];
    answer->code = p[3] & 0x0f;
    answer->n = p[7];
    n = answer->n + p[11];
    at = 12;

    if (p[5]) {

        while (at < answer->size && p[at]) {
            at += p[at] + 1;
        }

        at += 5;
    }

    for (i = 0; i < n && at < answer->size; i++) {
        at = record_at(p, answer->size, at, &type, &ttl, &data, &size);

        if (at > answer->size) {
            break;
        }

        if (type == SBX_DNS_OPT) {
            answer->edns = 1;

        } else if (i < 64) {
            (void) inet_ntop(size == 4 ? AF_INET : AF_INET6, data,
                             answer->address[i], INET6_ADDRSTRLEN);
            answer->ttl = i ? answer->ttl : ttl;
        }
    }

    if (at != answer->size || i != n) {
        malformed++;
    }
}


static void
client_read(sbx_event_t *ev, uint32_t events)
{
    ssize_t    n;
    answer_t  *answer;

    (void) events;

    for ( ;; ) {
        answer = &answers[nanswers % DNS_ANSWERS];
        memset(answer, 0, sizeof(answer_t));
        n = recv(ev->fd, answer->p, sizeof(answer->p), MSG_DONTWAIT);

        if (n < 12) {
            return;
        }

        answer->size = (size_t) n;
        answer_read(answer);
        nanswers++;

        if (nanswers >= wanted) {
            sbx_loop_stop(&eg.loop);
        }
    }
}


static void
guard_over(sbx_timer_t *timer)
{
    (void) timer;

    guarded = 1;
    sbx_loop_stop(&eg.loop);
}


/* Until somebody stops the loop: 1, or 0 where nobody does. */
static int
run(void)
{
    sbx_error_t  e;

    guarded = 0;
    eg.loop.stop = 0;
    guard.handler = guard_over;
    sbx_timer_set(&eg.loop, &guard, DNS_GUARD);
    (void) sbx_loop_run(&eg.loop, &e);
    sbx_timer_del(&eg.loop, &guard);

    return !guarded;
}


static void
turn_over(sbx_timer_t *timer)
{
    (void) timer;

    sbx_loop_stop(&eg.loop);
}


/* What is there now is dealt with; nothing is waited for. */
static void
turns(unsigned n)
{
    sbx_timer_t  turn;

    memset(&turn, 0, sizeof(turn));
    turn.handler = turn_over;

    while (n--) {
        eg.loop.stop = 0;
        sbx_timer_set(&eg.loop, &turn, 1);
        (void) sbx_loop_run(&eg.loop, NULL);
        sbx_timer_del(&eg.loop, &turn);
    }
}


static void
timers_over(sbx_timer_t *timer)
{
    for ( /* void */ ; timer != NULL; timer = timer->next) {
        timer->at = 0;
        timers_over(timer->child);
    }
}


/* Every timer's time has come. */
static void
time_over(void)
{
    timers_over(eg.loop.first);
    turns(2);
}


static void
session_open(session_t *session, const char *id)
{
    unsigned            i, port;
    struct sockaddr_in  in;

    memset(session, 0, sizeof(session_t));
    (void) snprintf(session->s.id, sizeof(session->s.id), "%s", id);
    session->s.egress = &eg;
    session->s.traffic = &session->traffic;
    session->s.bytes = SBX_UNLIMITED;

    for (i = 0; i < SBX_EG_LISTENERS; i++) {
        session->s.fds[i] = -1;
    }

    session->port = 0;
    session->s.fds[1] = bound(SOCK_DGRAM, &session->port);

    ok(sbx_eg_names_open(&session->s) == 0
       && sbx_eg_dns_session_open(&session->s, NULL) == 0,
       "a session opens");

    memset(&in, 0, sizeof(in));
    in.sin_family = AF_INET;
    in.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    in.sin_port = htons(session->port);

    port = 0;
    session->client = bound(SOCK_DGRAM, &port);
    (void) connect(session->client, (struct sockaddr *) &in, sizeof(in));
    session->event.handler = client_read;
    (void) sbx_event_add(&eg.loop, &session->event, session->client, EPOLLIN);
}


static void
session_close(session_t *session)
{
    sbx_eg_dns_session_close(&session->s);
    sbx_eg_names_close(&session->s);
    sbx_event_del(&eg.loop, &session->event);
    (void) close(session->s.fds[1]);
    (void) close(session->client);
}


/* A question; edns: the size that is offered, 0 none.  Its bytes. */
static size_t
question(uint8_t *p, unsigned id, const char *name, unsigned type,
    unsigned edns)
{
    asked_t  *a;
    size_t    size;

    a = calloc(1, sizeof(asked_t));
    put16(a, id);
    put16(a, 0x0100);
    put16(a, 1);
    put16(a, 0);
    put16(a, 0);
    put16(a, edns != 0);
    put_name(a, name);
    put16(a, type);
    put16(a, 1);

    if (edns) {
        put(a, "", 1);
        put16(a, SBX_DNS_OPT);
        put16(a, edns);
        put16(a, 0);
        put16(a, 0);
        put16(a, 0);
    }

    size = a->size;
    memcpy(p, a->p, size);
    free(a);

    return size;
}


static void
send_question(session_t *session, unsigned id, const char *name,
    unsigned type, unsigned edns)
{
    size_t   n;
    uint8_t  p[600];

    n = question(p, id, name, type, edns);
    (void) send(session->client, p, n, 0);
}


/* n answers, from here on. */
static int
await(unsigned n)
{
    wanted = n;

    return nanswers >= n || run();
}


static answer_t *
ask_edns(session_t *session, const char *name, unsigned type, unsigned edns)
{
    static unsigned  id;

    id = (id + 1) & 0xffff;
    nanswers = 0;
    memset(&answers[0], 0, sizeof(answer_t));
    send_question(session, id, name, type, edns);

    if (!await(1) || answers[0].id != id || !(answers[0].flags & 0x8000)) {
        answers[0].code = 99;
    }

    return &answers[0];
}


static answer_t *
ask(session_t *session, const char *name, unsigned type)
{
    return ask_edns(session, name, type, 0);
}


static void
forget(void)
{
    asked = 0;
    asked_last[0] = '\0';
    memset(refusals, 0, sizeof(refusals));
    refused_name[0] = '\0';
    refused_address[0] = '\0';
}


static int
dns_start(void)
{
    sbx_error_t  e;

    say = say_nothing;

    if (sbx_loop_init(&eg.loop, &e) == -1 || sbx_eg_dns_open(&eg, &e) == -1
        || name_open() != 0)
    {
        printf("# %s\n", e.text);
        return -1;
    }

    return name_use(name_port, 0);
}


/* Nothing of it is left: a sanitizer's to say. */
static void
dns_stop(void)
{
    is_int(malformed, 0, "every answer was as long as it said");
    sbx_eg_dns_close(&eg);
    sbx_event_del(&eg.loop, &name_events[0]);
    sbx_event_del(&eg.loop, &name_events[1]);
    (void) close(name_fds[0]);
    (void) close(name_fds[1]);
    sbx_loop_done(&eg.loop);
}


#endif
