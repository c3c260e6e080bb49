/*
 * DNS of sessions over TCP: messages with their length before them, any number
 * in a connection, one after the other.  The next is read when the answer to
 * the one before has been taken by the socket, so a connection holds one of
 * each, and a client that does not read is not read from.
 */

#include "dns.h"

#include <errno.h>
#include <string.h>


#define SBX_DNS_CONNS        8        /* of a session */
#define SBX_DNS_IDLE         10000    /* ms between whole messages */


struct sbx_dns_conn_s {
    sbx_node_t           node;
    sbx_eg_session_t    *session;
    sbx_event_t          event;
    sbx_timer_t          timer;
    int                  fd;
    unsigned             busy:1;      /* an answer is on its way */
    unsigned             in_turn:1;   /* its messages are being read */
    unsigned             ended:1;     /* the client's side */
    unsigned             closed:1;
    size_t               in_len;
    size_t               out_len;
    size_t               out_sent;
    uint8_t              in[2 + SBX_DNS_QUERY_MAX];
    uint8_t              out[2 + SBX_DNS_REPLY_MAX];
};


static void sbx_dns_close(sbx_eg_session_t *s, int fd, int reset);
static void sbx_dns_conn_event(sbx_event_t *ev, uint32_t events);
static void sbx_dns_conn_idle(sbx_timer_t *timer);
static void sbx_dns_conn_turn(sbx_dns_conn_t *conn);
static int sbx_dns_conn_next(sbx_dns_conn_t *conn);
static int sbx_dns_conn_read(sbx_dns_conn_t *conn);
static int sbx_dns_conn_write(sbx_dns_conn_t *conn);
static void sbx_dns_conn_close(sbx_dns_conn_t *conn);


void
sbx_eg_dns_accept(sbx_eg_session_t *s, int fd)
{
    sbx_dns_conn_t  *conn;

    if (s->dns == NULL) {
        sbx_dns_close(s, fd, 1);
        return;
    }

    if (s->dns->nconns >= SBX_DNS_CONNS) {
        sbx_eg_refused(s, SBX_REFUSED_LIMIT, NULL, SBX_DNS_PORT, "");
        sbx_dns_close(s, fd, 1);
        return;
    }

    conn = calloc(1, sizeof(sbx_dns_conn_t));

    if (conn == NULL) {
        sbx_dns_close(s, fd, 1);
        return;
    }

    conn->session = s;
    conn->fd = fd;
    conn->event.handler = sbx_dns_conn_event;
    conn->event.data = conn;
    conn->timer.handler = sbx_dns_conn_idle;
    conn->timer.data = conn;

    if (sbx_event_add(&s->egress->loop, &conn->event, fd, EPOLLIN) == -1) {
        free(conn);
        sbx_dns_close(s, fd, 1);
        return;
    }

    sbx_list_append(&s->dns->conns, &conn->node);
    s->dns->nconns++;

    sbx_timer_set(&s->egress->loop, &conn->timer, SBX_DNS_IDLE);
}


void
sbx_dns_conns_close(sbx_eg_session_t *s)
{
    while (!sbx_list_empty(&s->dns->conns)) {
        sbx_dns_conn_close(sbx_node_of(s->dns->conns.next, sbx_dns_conn_t,
                                       node));
    }
}


static void
sbx_dns_close(sbx_eg_session_t *s, int fd, int reset)
{
    sbx_eg_span_t  span;
    struct linger  linger = { 1, 0 };

    span = sbx_eg_cost_begin(s);

    if (reset) {
        (void) setsockopt(fd, SOL_SOCKET, SO_LINGER, &linger, sizeof(linger));
    }

    (void) close(fd);
    sbx_eg_cost_end(s, &span, 0);
}


static void
sbx_dns_conn_event(sbx_event_t *ev, uint32_t events)
{
    sbx_dns_conn_t  *conn = ev->data;

    if (conn->session->cost.cut) {
        /* it is closed in a moment */
        return;
    }

    /* both directions are over: nobody reads an answer */

    if (events & (EPOLLERR|EPOLLHUP)) {
        sbx_dns_conn_close(conn);
        return;
    }

    if (events & EPOLLOUT && sbx_dns_conn_write(conn) == -1) {
        sbx_dns_conn_close(conn);
        return;
    }

    if (events & EPOLLIN && sbx_dns_conn_read(conn) == -1) {
        sbx_dns_conn_close(conn);
        return;
    }

    sbx_dns_conn_turn(conn);
}


static void
sbx_dns_conn_idle(sbx_timer_t *timer)
{
    sbx_dns_conn_close(timer->data);
}


void
sbx_dns_conn_reply(sbx_dns_conn_t *conn, const uint8_t *p, size_t n)
{
    conn->busy = 0;
    conn->out[0] = (uint8_t) (n >> 8);
    conn->out[1] = (uint8_t) n;
    memcpy(conn->out + 2, p, n);
    conn->out_len = 2 + n;
    conn->out_sent = 0;

    if (sbx_dns_conn_write(conn) == -1) {
        sbx_dns_conn_close(conn);
        return;
    }

    /* within its turn the loop there goes on */

    if (!conn->in_turn) {
        sbx_dns_conn_turn(conn);
    }
}


/* Takes what messages are there for as long as each is answered at once. */

static void
sbx_dns_conn_turn(sbx_dns_conn_t *conn)
{
    int          rc;
    sbx_loop_t  *loop;

    conn->in_turn = 1;

    do {
        rc = conn->closed ? -1 : sbx_dns_conn_next(conn);
    } while (rc == 1);

    conn->in_turn = 0;

    if (conn->closed) {
        return;
    }

    if (rc == -1 || (conn->ended && !conn->busy && conn->out_len == 0)) {
        sbx_dns_conn_close(conn);
        return;
    }

    loop = &conn->session->egress->loop;

    if (conn->out_len) {
        sbx_event_set(loop, &conn->event, EPOLLOUT);

    } else if (conn->busy || conn->ended) {
        sbx_event_set(loop, &conn->event, 0);

    } else {
        sbx_event_set(loop, &conn->event, EPOLLIN);
    }
}


/* 1: one was taken; 0: it is not the time, or there is none; -1: it ends. */

static int
sbx_dns_conn_next(sbx_dns_conn_t *conn)
{
    size_t             n;
    sbx_dns_from_t     from;
    sbx_eg_session_t  *s;

    if (conn->busy || conn->out_len || conn->in_len < 2) {
        return 0;
    }

    s = conn->session;
    n = (size_t) conn->in[0] << 8 | conn->in[1];

    if (n > SBX_DNS_QUERY_MAX) {
        sbx_eg_refused(s, SBX_REFUSED_PROTOCOL, NULL, SBX_DNS_PORT, "");
        return -1;
    }

    if (conn->in_len < 2 + n) {
        return 0;
    }

    memset(&from, 0, sizeof(sbx_dns_from_t));
    from.conn = conn;
    from.fd = -1;

    conn->busy = 1;

    if (sbx_dns_take(s, &from, conn->in + 2, n) == -1 || conn->closed) {
        return -1;
    }

    conn->in_len -= 2 + n;
    memmove(conn->in, conn->in + 2 + n, conn->in_len);

    sbx_timer_set(&s->egress->loop, &conn->timer, SBX_DNS_IDLE);

    return 1;
}


static int
sbx_dns_conn_read(sbx_dns_conn_t *conn)
{
    ssize_t        n;
    sbx_eg_span_t  span;

    if (conn->in_len == sizeof(conn->in)) {
        return 0;
    }

    span = sbx_eg_cost_begin(conn->session);
    n = recv(conn->fd, conn->in + conn->in_len,
             sizeof(conn->in) - conn->in_len, MSG_DONTWAIT);
    sbx_eg_cost_end(conn->session, &span, n);

    if (n == 0) {
        conn->ended = 1;
        return 0;
    }

    if (n == -1) {
        return errno == EAGAIN || errno == EINTR ? 0 : -1;
    }

    conn->in_len += (size_t) n;

    return 0;
}


static int
sbx_dns_conn_write(sbx_dns_conn_t *conn)
{
    ssize_t        n;
    sbx_eg_span_t  span;

    while (conn->out_sent < conn->out_len) {
        span = sbx_eg_cost_begin(conn->session);
        n = send(conn->fd, conn->out + conn->out_sent,
                 conn->out_len - conn->out_sent, MSG_DONTWAIT|MSG_NOSIGNAL);
        sbx_eg_cost_end(conn->session, &span, n);

        if (n == -1) {
            return errno == EAGAIN || errno == EINTR ? 0 : -1;
        }

        conn->out_sent += (size_t) n;
    }

    conn->out_len = 0;

    return 0;
}


static void
sbx_dns_conn_close(sbx_dns_conn_t *conn)
{
    sbx_loop_t        *loop;
    sbx_eg_session_t  *s;

    if (conn->closed) {
        return;
    }

    s = conn->session;
    loop = &s->egress->loop;

    conn->closed = 1;
    sbx_dns_lookup_forget(s, conn);
    sbx_timer_del(loop, &conn->timer);
    sbx_event_del(loop, &conn->event);
    sbx_dns_close(s, conn->fd, 0);
    sbx_list_remove(&conn->node);
    s->dns->nconns--;

    /* whoever has called may still look at it */

    sbx_loop_free(loop, conn);
}
