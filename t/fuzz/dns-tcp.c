/*
 * DNS over TCP: a connection of a session's, whose bytes come in whatever
 * pieces, whose questions are answered at once, late or never, and whose
 * client reads or does not.  The input is a list of steps: a byte of what is
 * done, one of how much, and for bytes of the client these.
 *
 * Whatever comes: questions are what the stream says, in its order, one at a
 * time, none before its bytes are all there; each answer is told whole and in
 * its order; nothing turns in circles; and of a connection that is over
 * nothing is left.
 */

#include "fuzz.h"

#include <errno.h>
#include <sys/socket.h>
#include <unistd.h>

static ssize_t here_recv(int fd, void *buf, size_t size, int flags);
static ssize_t here_send(int fd, const void *buf, size_t n, int flags);
static int here_close(int fd);

#define recv   here_recv
#define send   here_send
#define close  here_close
#include "../../sandbox_core/egress/dns_tcp.c"
#undef recv
#undef send
#undef close


#define DNS_FD        1000000          /* of nothing */
#define DNS_STREAM    65536
#define DNS_ROUNDS    4096             /* of one step */

/* what is done with a question */
enum { DNS_AT_ONCE, DNS_LATER, DNS_NEVER, DNS_HANG_UP };


static void check_step(unsigned what, unsigned n);
static void check_turns(void);
static void check_answer(void);


static sbx_egress_t      eg;
static sbx_eg_session_t  session;
static sbx_eg_dns_t      dns;
static sbx_dns_conn_t   *conn;         /* NULL: it is over */
static void             *garbage;
static unsigned          closed;       /* times that its socket was */
static unsigned          asked;        /* a question has no answer yet */
static unsigned          how;          /* with the next ones */
static size_t            size_of;      /* of the next answers */

static uint8_t   in[DNS_STREAM];       /* of the client */
static size_t    in_len, in_read, in_taken;
static unsigned  in_ended;
static uint8_t   out[DNS_STREAM * 2];  /* to it: what is due */
static size_t    out_len, out_sent, out_room;


int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    size_t    n;
    unsigned  what;

    memset(&session, 0, sizeof(session));
    memset(&dns, 0, sizeof(dns));
    sbx_list_init(&dns.conns);
    session.egress = &eg;
    session.dns = &dns;
    asked = closed = in_ended = 0;
    how = DNS_AT_ONCE;
    size_of = 12;
    in_len = in_read = in_taken = 0;
    out_len = out_sent = 0;
    out_room = 65535;

    sbx_eg_dns_accept(&session, DNS_FD);
    must(dns.nconns == 1 && !sbx_list_empty(&dns.conns));
    conn = sbx_node_of(dns.conns.next, sbx_dns_conn_t, node);

    while (size >= 2 && conn != NULL) {
        what = data[0] & 7;
        n = data[1];
        data += 2;
        size -= 2;

        if (what == 0) {
            n = n < size ? n : size;

            if (!in_ended && n <= sizeof(in) - in_len) {
                memcpy(in + in_len, data, n);
                in_len += n;
            }

            data += n;
            size -= n;
        }

        check_step(what, (unsigned) n);
        check_turns();
    }

    if (conn != NULL) {

        /* all that was said has been heard, or it waits for the client */

        must(asked || out_sent < out_len || in_read == in_len
             || in_read - in_taken == 2 + SBX_DNS_QUERY_MAX);
        sbx_dns_conns_close(&session);
        check_turns();
    }

    must(conn == NULL && closed == 1 && dns.nconns == 0 && !asked);
    must(sbx_list_empty(&dns.conns));

    return 0;
}


static void
check_step(unsigned what, unsigned n)
{
    uint32_t  was;

    switch (what) {

    case 0:
        break;

    case 1:
        in_ended = 1;
        break;

    case 2:
        out_room += n;
        break;

    case 3:
        out_room = n;                  /* the client reads no more */
        break;

    case 4:
        if (asked) {
            check_answer();
        }

        break;

    case 5:
        how = n & 3;
        size_of = 12 + n * 5 % (SBX_DNS_REPLY_MAX - 11);
        break;

    case 6:
        if (n & 1) {
            must(conn->timer.set);
            conn->timer.set = 0;
            conn->timer.handler(&conn->timer);
        }

        break;

    case 7:
        was = n & 1 ? EPOLLHUP : EPOLLERR;

        if (n & 2) {
            was |= conn->event.events;
        }

        conn->event.handler(&conn->event, was);
        break;
    }
}


/* As the kernel tells what can be done, for as long as anything is. */

static void
check_turns(void)
{
    uint32_t  events;
    unsigned  i;

    for (i = 0; i < DNS_ROUNDS; i++) {

        if (garbage != NULL) {
            must(closed == 1);
            free(garbage);
            garbage = NULL;
            conn = NULL;
        }

        if (conn == NULL) {
            return;
        }

        must(conn->event.active && conn->timer.set);
        events = 0;

        if (in_read < in_len || in_ended) {
            events |= EPOLLIN;
        }

        if (out_room != 0) {
            events |= EPOLLOUT;
        }

        events &= conn->event.events;

        if (events == 0) {
            return;
        }

        conn->event.handler(&conn->event, events);
    }

    abort();
}


static void
check_answer(void)
{
    size_t   i, n;
    uint8_t  reply[SBX_DNS_REPLY_MAX];

    n = size_of;
    must(n <= sizeof(reply) && out_len + 2 + n <= sizeof(out));

    for (i = 0; i < n; i++) {
        reply[i] = (uint8_t) (i + in_taken);
    }

    out[out_len] = (uint8_t) (n >> 8);
    out[out_len + 1] = (uint8_t) n;
    memcpy(out + out_len + 2, reply, n);
    out_len += 2 + n;
    asked = 0;
    sbx_dns_conn_reply(conn, reply, n);
}


/* ---- what it calls ------------------------------------------------------ */


/* The next question of the stream, all of it, and the one before is over. */

int
sbx_dns_take(sbx_eg_session_t *s, const sbx_dns_from_t *from,
    const uint8_t *p, size_t n)
{
    must(s == &session && from->conn == conn && from->fd == -1);
    must(!asked && out_sent == out_len && closed == 0);
    must(n <= SBX_DNS_QUERY_MAX && in_taken + 2 + n <= in_read);
    must(n == ((size_t) in[in_taken] << 8 | in[in_taken + 1]));
    must(memcmp(p, in + in_taken + 2, n) == 0);
    in_taken += 2 + n;
    asked = 1;

    switch (how) {

    case DNS_AT_ONCE:
        check_answer();
        return 0;

    case DNS_HANG_UP:
        asked = 0;
        return -1;
    }

    return 0;
}


void
sbx_eg_refused(sbx_eg_session_t *s, sbx_refused_t why,
    const uint8_t address[16], unsigned port, const char *name)
{
    (void) address;
    (void) name;

    /* a length that no question has */

    must(s == &session && why == SBX_REFUSED_PROTOCOL
         && port == SBX_DNS_PORT);
    must(((size_t) in[in_taken] << 8 | in[in_taken + 1])
         > SBX_DNS_QUERY_MAX);
}


void
sbx_dns_lookup_forget(sbx_eg_session_t *s, const sbx_dns_conn_t *c)
{
    must(s == &session && c == conn);
    asked = 0;
}


static ssize_t
here_recv(int fd, void *buf, size_t size, int flags)
{
    must(fd == DNS_FD && flags == MSG_DONTWAIT && size != 0);

    if (in_read == in_len) {
        errno = EAGAIN;
        return in_ended ? 0 : -1;
    }

    size = size < in_len - in_read ? size : in_len - in_read;
    memcpy(buf, in + in_read, size);
    in_read += size;

    return (ssize_t) size;
}


static ssize_t
here_send(int fd, const void *buf, size_t n, int flags)
{
    must(fd == DNS_FD && (flags & MSG_NOSIGNAL) && n != 0);

    if (out_room == 0) {
        errno = EAGAIN;
        return -1;
    }

    n = n < out_room ? n : out_room;
    must(n <= out_len - out_sent && memcmp(buf, out + out_sent, n) == 0);
    out_sent += n;
    out_room -= n;

    return (ssize_t) n;
}


static int
here_close(int fd)
{
    must(fd == DNS_FD);
    closed++;

    return 0;
}


int
sbx_event_add(sbx_loop_t *loop, sbx_event_t *ev, int fd, uint32_t events)
{
    must(loop == &eg.loop && fd == DNS_FD && !ev->active);
    ev->fd = fd;
    ev->events = events;
    ev->active = 1;

    return 0;
}


void
sbx_event_set(sbx_loop_t *loop, sbx_event_t *ev, uint32_t events)
{
    must(loop == &eg.loop && ev->active && closed == 0);
    ev->events = events;
}


void
sbx_event_del(sbx_loop_t *loop, sbx_event_t *ev)
{
    must(loop == &eg.loop && ev->active && closed == 0);
    ev->active = 0;
}


void
sbx_timer_set(sbx_loop_t *loop, sbx_timer_t *timer, uint64_t ms)
{
    must(loop == &eg.loop && ms == SBX_DNS_IDLE && closed == 0);
    timer->set = 1;
}


void
sbx_timer_del(sbx_loop_t *loop, sbx_timer_t *timer)
{
    must(loop == &eg.loop);
    timer->set = 0;
}


void
sbx_loop_free(sbx_loop_t *loop, void *p)
{
    must(loop == &eg.loop && p == conn && garbage == NULL);
    garbage = p;
}
