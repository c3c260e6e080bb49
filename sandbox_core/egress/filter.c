/*
 * Connections that are read: requests of HTTP, judged one by one, and TLS that
 * is opened for a header's sake.  What a filter has made and the other side
 * did not take is kept, at most one round's; till it is gone nothing more is
 * read.
 */

#include "conn.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>


#define SBX_EG_PAIR_CHUNK     16384
#define SBX_EG_PAIR_ROUNDS    16


static sbx_eg_filter_t *sbx_eg_filter_new(sbx_eg_conn_t *c);
static int sbx_eg_filter_host(void *data, const char *host, unsigned port,
    const sbx_eg_header_t **header);
static void sbx_eg_filter_pin(sbx_eg_conn_t *c);
static int sbx_eg_filter_flush(sbx_eg_conn_t *c, sbx_eg_end_t to);
static int sbx_eg_filter_send(sbx_eg_conn_t *c, sbx_eg_end_t to,
    const uint8_t *p, size_t n);
static int sbx_eg_filter_stuck(sbx_eg_conn_t *c, size_t n);
static int sbx_eg_filter_feed(sbx_eg_conn_t *c, sbx_eg_end_t from);
static int sbx_eg_filter_take(sbx_eg_conn_t *c, sbx_eg_end_t to);
static int sbx_eg_filter_failed(sbx_eg_conn_t *c);
static void sbx_eg_filter_discard(sbx_eg_filter_t *f, sbx_eg_end_t to);


static sbx_eg_filter_t *
sbx_eg_filter_new(sbx_eg_conn_t *c)
{
    sbx_eg_filter_t  *f;

    f = calloc(1, sizeof(sbx_eg_filter_t));

    if (f != NULL) {
        f->judge.host = sbx_eg_filter_host;
        f->judge.data = c;
        c->filter = f;
    }

    return f;
}


int
sbx_eg_filter_http(sbx_eg_conn_t *c)
{
    sbx_eg_filter_t  *f;

    f = sbx_eg_filter_new(c);

    if (f == NULL) {
        return -1;
    }

    f->http = sbx_http_open(&f->judge);

    return f->http == NULL ? -1 : 0;
}


int
sbx_eg_filter_greeting(sbx_eg_conn_t *c, const char *name)
{
    sbx_eg_filter_t  *f;

    f = sbx_eg_filter_new(c);

    if (f == NULL) {
        return -1;
    }

    f->greeting = sbx_greeting_open(name);

    return f->greeting == NULL ? -1 : 0;
}


int
sbx_eg_filter_tls(sbx_eg_conn_t *c, const char *host)
{
    sbx_error_t       e;
    sbx_eg_filter_t  *f;

    f = sbx_eg_filter_new(c);

    if (f == NULL) {
        return -1;
    }

    f->host = strdup(host);

    if (f->host == NULL) {
        return -1;
    }

    f->tls = sbx_tls_pair_open(c->session->egress, f->host, &f->judge, &e);

    return f->tls == NULL ? -1 : 0;
}


/* A request's host: judged as all names are, whenever one is named. */

static int
sbx_eg_filter_host(void *data, const char *host, unsigned port,
    const sbx_eg_header_t **header)
{
    int                free_way;
    sbx_refused_t      why;
    sbx_eg_conn_t     *c;
    sbx_eg_verdict_t   verdict;

    c = data;
    *header = NULL;

    /* where all may be said, what is odd is said without a header */

    verdict = sbx_eg_decide(c->session, c->address, c->port, &why);
    free_way = verdict == SBX_EG_ALLOW
               && sbx_eg_look_why(c, verdict) <= SBX_EG_LOOK_HEADER;

    if ((port != 0 && port != c->port)
        || (c->filter->host != NULL && strcmp(c->filter->host, host) != 0)
        || sbx_eg_look_named(c, host, &why) != 0)
    {
        /* in TLS the server is known as one host, and is that one's alone */

        if (free_way && c->filter->host == NULL) {
            return 0;
        }

        /* what is told of the refusal */

        (void) sbx_eg_named(c, host);

        return 1;
    }

    if (sbx_eg_named(c, host) != 0) {
        return 1;
    }

    *header = sbx_eg_look_header(c, host, c->filter->host != NULL);

    if (*header != NULL) {
        sbx_eg_filter_pin(c);
    }

    return 0;
}


/* A header lives as long as its policy, which may be replaced meanwhile. */

static void
sbx_eg_filter_pin(sbx_eg_conn_t *c)
{
    sbx_eg_policy_t  *policy;

    policy = c->session->policy;

    if (policy == c->filter->policy || policy == NULL) {
        return;
    }

    if (c->filter->policy != NULL) {
        sbx_eg_policy_release(c->filter->policy);
    }

    policy->users++;
    c->filter->policy = policy;
}


int
sbx_eg_filter_client(sbx_eg_conn_t *c)
{
    int               rc;
    size_t            used, made;
    ssize_t           n;
    unsigned          i;
    sbx_refused_t     why;
    sbx_eg_side_t    *side;
    sbx_eg_relay_t   *relay;
    sbx_eg_filter_t  *f;

    f = c->filter;
    side = &c->side[SBX_EG_CLIENT];
    relay = c->session->egress->relay;

    for (i = 0; i < SBX_EG_ROUNDS; i++) {
        rc = sbx_eg_filter_flush(c, SBX_EG_SERVER);

        if (rc != 0 || side->full || side->ended) {
            return rc;
        }

        if (f->greeting != NULL ? sbx_greeting_opaque(f->greeting)
                                : sbx_http_opaque(f->http))
        {
            sbx_eg_relay_beyond(c, 0);
            sbx_eg_filter_close(c);
            side->mode = SBX_EG_MODE_SPLICE;
            return 0;
        }

        /* what is read as a whole is read on credit */

        if (sbx_eg_credit(c, SBX_EG_CLIENT, 1) == 0) {
            return 0;
        }

        n = sbx_eg_relay_peek(c, SBX_EG_CLIENT, relay->in, sizeof(relay->in));

        if (n <= 0) {
            return (int) n;
        }

        why = SBX_REFUSED_PROTOCOL;
        used = 0;
        made = 0;

        if (f->greeting != NULL) {
            rc = sbx_greeting_client(f->greeting, relay->in, (size_t) n,
                                     &used, relay->out, sizeof(relay->out),
                                     &made, &why);

        } else {
            rc = sbx_http_client(f->http, relay->in, (size_t) n, &used,
                                 relay->out, sizeof(relay->out), &made, &why);
        }

        if (rc != 0) {
            return sbx_eg_conn_refuse(c, why, c->name);
        }

        if (used != 0) {
            sbx_eg_relay_drop(c, SBX_EG_CLIENT, used);
        }

        if (made != 0) {
            rc = sbx_eg_filter_send(c, SBX_EG_SERVER, relay->out, made);

            if (f->policy != NULL) {
                /* there may be a credential in it */
                explicit_bzero(relay->out, made);
            }

            if (rc != 0) {
                return -1;
            }
        }

        if (used == 0 && made == 0) {
            return sbx_eg_filter_stuck(c, (size_t) n);
        }
    }

    return 0;
}


/* It waits for the server, or for more than there is. */

static int
sbx_eg_filter_stuck(sbx_eg_conn_t *c, size_t n)
{
    if (sbx_eg_filter_watches(c)) {
        c->side[SBX_EG_CLIENT].blocked = 1;
        return 0;
    }

    /* nor does more come */

    if (n == c->looked || n == sizeof(c->session->egress->relay->in)) {
        return sbx_eg_conn_refuse(c, SBX_REFUSED_PROTOCOL, c->name);
    }

    sbx_eg_relay_beyond(c, n);

    return 0;
}


int
sbx_eg_filter_watches(const sbx_eg_conn_t *c)
{
    const sbx_eg_filter_t  *f;

    f = c->filter;

    if (f == NULL) {
        return 0;
    }

    return (f->http != NULL && sbx_http_watches(f->http))
           || (f->greeting != NULL && sbx_greeting_watches(f->greeting));
}


void
sbx_eg_filter_server(sbx_eg_conn_t *c, const uint8_t *p, size_t n)
{
    if (!sbx_eg_filter_watches(c)) {
        return;
    }

    if (c->filter->greeting != NULL) {
        sbx_greeting_server(c->filter->greeting, p, n);

    } else {
        sbx_http_server(c->filter->http, p, n);
    }

    c->side[SBX_EG_CLIENT].blocked = 0;
}


int
sbx_eg_filter_pending(const sbx_eg_conn_t *c, sbx_eg_end_t to)
{
    return c->filter != NULL && c->filter->pending[to].data != NULL;
}


/* side[!to].full: something is left. */

static int
sbx_eg_filter_flush(sbx_eg_conn_t *c, sbx_eg_end_t to)
{
    ssize_t           n;
    sbx_eg_filter_t  *f;

    f = c->filter;

    if (f->pending[to].data == NULL) {
        return 0;
    }

    n = sbx_eg_relay_send(c, to, f->pending[to].data + f->pending[to].sent,
                          f->pending[to].size - f->pending[to].sent);

    if (n == -1) {
        if (errno != EAGAIN && errno != EINTR) {
            return -1;
        }

        n = 0;
    }

    f->pending[to].sent += (size_t) n;

    if (f->pending[to].sent == f->pending[to].size) {
        sbx_eg_filter_discard(f, to);
        return 0;
    }

    c->side[!to].full = 1;

    return 0;
}


static int
sbx_eg_filter_send(sbx_eg_conn_t *c, sbx_eg_end_t to, const uint8_t *p,
    size_t n)
{
    ssize_t           sent;
    sbx_eg_filter_t  *f;

    f = c->filter;
    sent = sbx_eg_relay_send(c, to, p, n);

    if (sent == -1) {
        if (errno != EAGAIN && errno != EINTR) {
            return -1;
        }

        sent = 0;
    }

    if ((size_t) sent == n) {
        return 0;
    }

    n -= (size_t) sent;
    f->pending[to].data = malloc(n);

    if (f->pending[to].data == NULL) {
        return -1;
    }

    memcpy(f->pending[to].data, p + sent, n);
    f->pending[to].size = n;
    f->pending[to].sent = 0;
    c->side[!to].full = 1;

    return 0;
}


/* TLS, both ways at once: what comes from one side may be for the same. */

int
sbx_eg_filter_pair(sbx_eg_conn_t *c)
{
    int       rc, moved;
    unsigned  i;

    for (i = 0; i < SBX_EG_PAIR_ROUNDS; i++) {
        if (sbx_eg_filter_flush(c, SBX_EG_CLIENT) != 0
            || sbx_eg_filter_flush(c, SBX_EG_SERVER) != 0)
        {
            return -1;
        }

        rc = sbx_eg_filter_feed(c, SBX_EG_CLIENT);

        if (rc == -1) {
            return -1;
        }

        moved = rc;
        rc = sbx_eg_filter_feed(c, SBX_EG_SERVER);

        if (rc == -1) {
            return -1;
        }

        moved |= rc;
        rc = sbx_eg_filter_take(c, SBX_EG_SERVER);

        if (rc == -1) {
            return -1;
        }

        moved |= rc;
        rc = sbx_eg_filter_take(c, SBX_EG_CLIENT);

        if (rc == -1) {
            return -1;
        }

        moved |= rc;
        rc = sbx_eg_filter_failed(c);

        if (rc != 0) {
            return -1;
        }

        if (!moved) {
            return 0;
        }
    }

    return 0;
}


/* 1: it took something. */

static int
sbx_eg_filter_feed(sbx_eg_conn_t *c, sbx_eg_end_t from)
{
    size_t           used;
    ssize_t          n;
    sbx_eg_side_t   *side;
    sbx_eg_relay_t  *relay;
    sbx_tls_side_t   end;

    side = &c->side[from];
    relay = c->session->egress->relay;
    end = from == SBX_EG_CLIENT ? SBX_TLS_CLIENT : SBX_TLS_SERVER;

    if (side->ended || side->full || side->starved) {
        return 0;
    }

    if (sbx_eg_credit(c, from, 1) == 0) {
        return 0;
    }

    n = sbx_eg_relay_peek(c, from, relay->in, sizeof(relay->in));

    if (n < 0) {
        return -1;
    }

    if (n == 0 && !side->ended) {
        side->blocked = 0;
        return 0;
    }

    used = 0;

    if (sbx_tls_pair_feed(c->filter->tls, end, relay->in, (size_t) n, &used)
        != 0)
    {
        return sbx_eg_filter_failed(c) != 0 ? -1 : 0;
    }

    if (used != 0) {
        sbx_eg_relay_drop(c, from, used);
    }

    /* it has no room before the other side has taken what there is */

    side->blocked = n != 0 && used == 0;

    return n == 0 || used != 0;
}


static int
sbx_eg_filter_take(sbx_eg_conn_t *c, sbx_eg_end_t to)
{
    int              end;
    size_t           n;
    sbx_eg_relay_t  *relay;

    relay = c->session->egress->relay;

    if (c->side[!to].passed || sbx_eg_filter_pending(c, to)) {
        return 0;
    }

    end = 0;
    n = sbx_tls_pair_take(c->filter->tls,
                          to == SBX_EG_CLIENT ? SBX_TLS_CLIENT
                                              : SBX_TLS_SERVER,
                          relay->out, SBX_EG_PAIR_CHUNK, &end);

    if (n != 0) {
        if (sbx_eg_filter_send(c, to, relay->out, n) != 0) {
            return -1;
        }

        c->side[to].blocked = 0;
        c->side[!to].blocked = 0;

        return 1;
    }

    if (end) {
        if (shutdown(c->side[to].fd, SHUT_WR) == -1) {
            return -1;
        }

        c->side[!to].passed = 1;
    }

    return 0;
}


/* -1: it is over, and its client was told by an alert if one was made. */

static int
sbx_eg_filter_failed(sbx_eg_conn_t *c)
{
    int             end;
    size_t          n;
    const char     *text;
    sbx_refused_t   why;
    sbx_eg_relay_t *relay;

    relay = c->session->egress->relay;

    if (!sbx_tls_pair_failed(c->filter->tls, &why, &text)) {
        return 0;
    }

    if (!sbx_eg_filter_pending(c, SBX_EG_CLIENT)) {
        n = sbx_tls_pair_take(c->filter->tls, SBX_TLS_CLIENT, relay->out,
                              SBX_EG_PAIR_CHUNK, &end);

        if (n != 0) {
            (void) sbx_eg_relay_send(c, SBX_EG_CLIENT, relay->out, n);
        }
    }

    return sbx_eg_conn_refuse(c, why, c->name);
}


static void
sbx_eg_filter_discard(sbx_eg_filter_t *f, sbx_eg_end_t to)
{
    /* there may be a credential in it */

    if (f->pending[to].data != NULL) {
        explicit_bzero(f->pending[to].data, f->pending[to].size);
        free(f->pending[to].data);
        f->pending[to].data = NULL;
    }
}


void
sbx_eg_filter_close(sbx_eg_conn_t *c)
{
    sbx_eg_filter_t  *f;

    f = c->filter;

    if (f == NULL) {
        return;
    }

    if (f->http != NULL) {
        sbx_http_close(f->http);
    }

    if (f->greeting != NULL) {
        sbx_greeting_close(f->greeting);
    }

    if (f->tls != NULL) {
        sbx_tls_pair_close(f->tls);
    }

    if (f->policy != NULL) {
        sbx_eg_policy_release(f->policy);
    }

    sbx_eg_filter_discard(f, SBX_EG_CLIENT);
    sbx_eg_filter_discard(f, SBX_EG_SERVER);
    free(f->host);
    free(f);
    c->filter = NULL;
}
