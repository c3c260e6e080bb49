/*
 * DNS of sessions.
 *
 * Whatever address a program in a session sends a question to, it comes here:
 * over UDP to a socket of the session's (redirected, so an answer from that
 * socket has the address that was asked), over TCP as a connection.  A session
 * has no other resolver, and what it may look up, and what it is told, is
 * decided here:
 *
 *   - a name that no rule allows does not exist, at once;
 *   - A and AAAA of the others are asked for; HTTPS and SVCB have no answer,
 *     PTR no name, every other type is refused.  So little else than names
 *     goes out, and nothing but addresses comes in;
 *   - addresses that the session may not reach are left out, each time anew;
 *   - what is given is noted (names.c): connections are judged by it.
 *
 * Names go out, so names that a session makes up are a way to tell somebody
 * something.  Rules without wildcards leave none; below a wildcard, names that
 * are new are counted apart, and they are few.
 *
 * Nothing is shared among sessions: not an answer, and not the time it takes.
 * One that floods its socket is refused at first, which costs as much as an
 * answer; then it is not read for a while, and the kernel drops what is too
 * much.
 */

#include "dns.h"
#include "sandbox_fault.h"

#include <errno.h>
#include <string.h>


#define SBX_DNS_RATE         100      /* queries a second */
#define SBX_DNS_BURST        200
#define SBX_DNS_EXCESS       500      /* more, a second, that are refused */
#define SBX_DNS_REST         100      /* ms, for who asks on */
#define SBX_DNS_ROUND        64       /* datagrams of one event */
#define SBX_DNS_LOCAL_TTL    60


static void sbx_dns_listen_close(sbx_eg_session_t *s, unsigned i);
static void sbx_dns_read(sbx_event_t *ev, uint32_t events);
static void sbx_dns_listen(sbx_eg_session_t *s, uint32_t events);
static void sbx_dns_rested(sbx_timer_t *timer);
static int sbx_dns_excess(sbx_eg_session_t *s, const sbx_dns_from_t *from,
    const sbx_dns_query_t *q);
static void sbx_dns_judge(sbx_eg_session_t *s, const sbx_dns_from_t *from,
    const sbx_dns_query_t *q);
static int sbx_dns_local(const char *name);
static void sbx_dns_local_send(sbx_eg_session_t *s,
    const sbx_dns_from_t *from, const sbx_dns_query_t *q);
static void sbx_dns_type(sbx_eg_session_t *s, const sbx_dns_from_t *from,
    const sbx_dns_query_t *q);
static int sbx_dns_spent(const sbx_eg_session_t *s);
static void sbx_dns_refuse(sbx_eg_session_t *s, const sbx_dns_from_t *from,
    const sbx_dns_query_t *q, sbx_dns_code_t code, sbx_refused_t why);


int
sbx_eg_dns_session_open(sbx_eg_session_t *s, sbx_error_t *e)
{
    unsigned       i;
    sbx_event_t   *ev;
    sbx_eg_dns_t  *dns;

    dns = calloc(1, sizeof(sbx_eg_dns_t));

    if (dns == NULL) {
        return sbx_error(e, ENOMEM, SBX_E_INTERNAL, "no memory");
    }

    if (sbx_dns_cache_open(&dns->cache) == -1) {
        free(dns);
        return sbx_error(e, errno, SBX_E_INTERNAL, "getrandom() failed");
    }

    sbx_list_init(&dns->lookups);
    sbx_list_init(&dns->conns);
    dns->rest.handler = sbx_dns_rested;
    dns->rest.data = s;
    s->dns = dns;

    for (i = 1; i < SBX_EG_LISTENERS; i += 2) {
        ev = &s->events[i];

        if (s->fds[i] == -1) {
            continue;
        }

        ev->handler = sbx_dns_read;
        ev->data = s;

        if (sbx_event_add(&s->egress->loop, ev, s->fds[i],
                          s->cost.cut ? 0 : EPOLLIN)
            == -1)
        {
            (void) sbx_error(e, errno, SBX_E_INTERNAL, "epoll_ctl() failed");
            sbx_eg_dns_session_close(s);
            return -1;
        }
    }

    return 0;
}


void
sbx_eg_dns_session_close(sbx_eg_session_t *s)
{
    unsigned  i;

    if (s->dns == NULL) {
        return;
    }

    for (i = 1; i < SBX_EG_LISTENERS; i += 2) {
        sbx_dns_listen_close(s, i);
    }

    sbx_timer_del(&s->egress->loop, &s->dns->rest);
    sbx_dns_lookups_close(s);
    sbx_dns_conns_close(s);
    sbx_dns_cache_close(&s->dns->cache);

    free(s->dns);
    s->dns = NULL;
}


static void
sbx_dns_listen_close(sbx_eg_session_t *s, unsigned i)
{
    /* an event of somebody else's, or of none, is not ours to delete */

    if (s->events[i].active && s->events[i].handler == sbx_dns_read) {
        sbx_event_del(&s->egress->loop, &s->events[i]);
    }
}


static void
sbx_dns_read(sbx_event_t *ev, uint32_t events)
{
    int                err;
    ssize_t            n;
    uint8_t            buf[SBX_DNS_QUERY_MAX];
    unsigned           i;
    socklen_t          len;
    sbx_dns_from_t     from;
    sbx_eg_session_t  *s = ev->data;

    if (events & EPOLLERR) {

        /* an answer that nobody waited for; reading it clears it */

        len = sizeof(int);
        (void) getsockopt(ev->fd, SOL_SOCKET, SO_ERROR, &err, &len);
    }

    memset(&from, 0, sizeof(sbx_dns_from_t));
    from.fd = ev->fd;

    for (i = 0; i < SBX_DNS_ROUND && !s->dns->rest.set && !s->cost.cut; i++) {
        from.len = sizeof(from.peer);
        n = recvfrom(from.fd, buf, sizeof(buf), MSG_DONTWAIT|MSG_TRUNC,
                     &from.peer.any, &from.len);

        if (n == -1) {
            return;
        }

        if ((size_t) n <= sizeof(buf)) {
            (void) sbx_dns_take(s, &from, buf, (size_t) n);
        }
    }
}


static void
sbx_dns_listen(sbx_eg_session_t *s, uint32_t events)
{
    unsigned  i;

    for (i = 1; i < SBX_EG_LISTENERS; i += 2) {

        if (s->events[i].handler == sbx_dns_read) {
            sbx_event_set(&s->egress->loop, &s->events[i], events);
        }
    }
}


static void
sbx_dns_rested(sbx_timer_t *timer)
{
    sbx_eg_dns_session_listen(timer->data);
}


void
sbx_eg_dns_session_listen(sbx_eg_session_t *s)
{
    if (s->dns == NULL) {
        return;
    }

    if (s->cost.cut) {
        sbx_dns_conns_close(s);
    }

    sbx_dns_listen(s, s->cost.cut || s->dns->rest.set ? 0 : EPOLLIN);
}


int
sbx_dns_take(sbx_eg_session_t *s, const sbx_dns_from_t *from,
    const uint8_t *p, size_t n)
{
    int              rc;
    sbx_dns_query_t  q;

    SBX_FAULT("egress-dns-taken");
    s->traffic->queries++;
    rc = sbx_dns_query_parse(p, n, &q);

    if (rc == -1) {

        if (from->conn) {
            sbx_eg_refused(s, SBX_REFUSED_PROTOCOL, NULL, SBX_DNS_PORT, "");
        }

        return -1;
    }

    if (!sbx_eg_bucket_take(&s->dns->queries, SBX_DNS_RATE,
                             SBX_DNS_BURST))
    {
        return sbx_dns_excess(s, from, &q);
    }

    if (sbx_dns_spent(s)) {
        sbx_dns_refuse(s, from, &q, SBX_DNS_REFUSED, SBX_REFUSED_LIMIT);
        return 0;
    }

    switch (rc) {

    case 0:
        sbx_dns_judge(s, from, &q);
        break;

    case SBX_DNS_REFUSED:
        sbx_dns_refuse(s, from, &q, SBX_DNS_REFUSED, SBX_REFUSED_QUERY);
        break;

    default:
        sbx_dns_refuse(s, from, &q, (sbx_dns_code_t) rc,
                       SBX_REFUSED_PROTOCOL);
        break;
    }

    return 0;
}


static int
sbx_dns_excess(sbx_eg_session_t *s, const sbx_dns_from_t *from,
    const sbx_dns_query_t *q)
{
    if (!sbx_eg_bucket_take(&s->dns->excess, SBX_DNS_EXCESS,
                             SBX_DNS_EXCESS))
    {
        sbx_eg_refused(s, SBX_REFUSED_LIMIT, NULL, SBX_DNS_PORT, q->name);

        sbx_timer_set(&s->egress->loop, &s->dns->rest, SBX_DNS_REST);
        sbx_dns_listen(s, 0);

        return -1;
    }

    sbx_dns_refuse(s, from, q, SBX_DNS_REFUSED, SBX_REFUSED_LIMIT);

    return 0;
}


static void
sbx_dns_judge(sbx_eg_session_t *s, const sbx_dns_from_t *from,
    const sbx_dns_query_t *q)
{
    sbx_refused_t  why;

    if (sbx_dns_local(q->name)) {
        sbx_dns_local_send(s, from, q);
        return;
    }

    if (q->type == SBX_DNS_PTR) {

        /* asked for by many programs, for no good: not told */

        sbx_dns_send(s, from, q, SBX_DNS_NXDOMAIN, NULL);
        return;
    }

    if (sbx_eg_decide_name(s, q->name, 0, &why) != 0) {
        sbx_dns_refuse(s, from, q, SBX_DNS_NXDOMAIN, SBX_REFUSED_QUERY);
        return;
    }

    sbx_dns_type(s, from, q);
}


/* Of an allowed name. */

static void
sbx_dns_type(sbx_eg_session_t *s, const sbx_dns_from_t *from,
    const sbx_dns_query_t *q)
{
    switch (q->type) {

    case SBX_DNS_A:
        sbx_dns_lookup(s, from, q);
        return;

    case SBX_DNS_AAAA:

        if (sbx_eg_addresses_ipv6(s->egress) > 0) {
            sbx_dns_lookup(s, from, q);
            return;
        }

        sbx_dns_send(s, from, q, SBX_DNS_NOERROR, NULL);
        return;

    case SBX_DNS_HTTPS:
    case SBX_DNS_SVCB:
        sbx_dns_send(s, from, q, SBX_DNS_NOERROR, NULL);
        return;

    default:
        sbx_dns_refuse(s, from, q, SBX_DNS_REFUSED, SBX_REFUSED_QUERY);
        return;
    }
}


/* "localhost" and what is below it are the session's own, by RFC 6761. */

static int
sbx_dns_local(const char *name)
{
    size_t  len;

    len = strlen(name);

    return len >= 9 && strcmp(name + len - 9, "localhost") == 0
           && (len == 9 || name[len - 10] == '.');
}


static void
sbx_dns_local_send(sbx_eg_session_t *s, const sbx_dns_from_t *from,
    const sbx_dns_query_t *q)
{
    sbx_dns_answer_t      answer;
    static const uint8_t  loopback4[16] = {
        0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 127, 0, 0, 1
    };

    memset(&answer, 0, sizeof(sbx_dns_answer_t));
    answer.ttl = SBX_DNS_LOCAL_TTL;

    if (q->type == SBX_DNS_A) {
        answer.n = 1;
        memcpy(answer.address[0], loopback4, 16);

    } else if (q->type == SBX_DNS_AAAA) {
        answer.n = 1;
        answer.address[0][15] = 1;
    }

    sbx_dns_send(s, from, q, SBX_DNS_NOERROR, &answer);
}


/* Of bytes: names would go on going out. */

static int
sbx_dns_spent(const sbx_eg_session_t *s)
{
    uint64_t  sent, received;

    sent = s->traffic->sent;
    received = s->traffic->received;

    return s->bytes != SBX_UNLIMITED
           && (sent >= s->bytes || received >= s->bytes - sent);
}


static void
sbx_dns_refuse(sbx_eg_session_t *s, const sbx_dns_from_t *from,
    const sbx_dns_query_t *q, sbx_dns_code_t code, sbx_refused_t why)
{
    sbx_eg_refused(s, why, NULL, SBX_DNS_PORT, q->name);
    sbx_dns_send(s, from, q, code, NULL);
}


void
sbx_dns_send(sbx_eg_session_t *s, const sbx_dns_from_t *from,
    const sbx_dns_query_t *q, sbx_dns_code_t code,
    const sbx_dns_answer_t *answer)
{
    size_t         n;
    ssize_t        sent;
    uint8_t        buf[SBX_DNS_REPLY_MAX];
    sbx_eg_span_t  span;

    if (from->conn) {
        n = sbx_dns_reply(q, code, answer, buf, sizeof(buf));
        sbx_dns_conn_reply(from->conn, buf, n);
        return;
    }

    n = sbx_dns_reply(q, code, answer, buf, q->size);

    if (s->cost.cut) {
        return;
    }

    /* what does not fit into the session's socket is asked for again */

    span = sbx_eg_cost_begin(s);
    sent = sendto(from->fd, buf, n, MSG_DONTWAIT|MSG_NOSIGNAL,
                  &from->peer.any, from->len);
    sbx_eg_cost_end(s, &span, sent);
}
