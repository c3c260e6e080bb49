/*
 * What a client says first, where that matters.  The bytes stay in the socket
 * until they are judged (MSG_PEEK, SO_RCVLOWAT), so that nothing is held for
 * clients that say little, or nothing.
 */

#include "conn.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>


static int sbx_eg_look_more(sbx_eg_conn_t *c, size_t n, int grown);
static int sbx_eg_look_judge(sbx_eg_conn_t *c, sbx_sniff_t what,
    const sbx_sniffed_t *sniffed);
static int sbx_eg_look_tls(sbx_eg_conn_t *c, const sbx_sniffed_t *sniffed);
static int sbx_eg_look_greeting(sbx_eg_conn_t *c, const char *name);
static int sbx_eg_look_http(sbx_eg_conn_t *c);
static int sbx_eg_look_other(sbx_eg_conn_t *c, const sbx_sniffed_t *sniffed);
static int sbx_eg_look_pass(sbx_eg_conn_t *c);
static int sbx_eg_look_plain_port(unsigned port);
static int sbx_eg_look_tls_port(unsigned port);


sbx_eg_look_t
sbx_eg_look_why(sbx_eg_conn_t *c, sbx_eg_verdict_t verdict)
{
    size_t             at;
    const char        *name;
    sbx_eg_session_t  *s;

    s = c->session;

    if (verdict == SBX_EG_BY_NAME) {
        return SBX_EG_LOOK_NAME;
    }

    if (sbx_eg_decide_denies(s)) {
        return SBX_EG_LOOK_DENIED;
    }

    if (s->policy == NULL || s->policy->nheaders == 0) {
        return SBX_EG_LOOK_NOT;
    }

    for (at = 0; /* void */ ; /* void */ ) {
        name = sbx_eg_names_next(s, c->address, &at);

        if (name == NULL) {
            return SBX_EG_LOOK_NOT;
        }

        if (sbx_eg_header(s, name, 0) != NULL
            || sbx_eg_header(s, name, 1) != NULL)
        {
            return SBX_EG_LOOK_HEADER;
        }
    }
}


int
sbx_eg_look(sbx_eg_conn_t *c)
{
    ssize_t         n;
    sbx_sniff_t     what;
    sbx_sniffed_t   sniffed;
    sbx_eg_side_t  *side;
    sbx_eg_relay_t *relay;

    side = &c->side[SBX_EG_CLIENT];
    relay = c->session->egress->relay;

    n = recv(side->fd, relay->in, SBX_EG_FIRST_MAX, MSG_PEEK|MSG_DONTWAIT);

    if (n == -1) {
        return (errno == EAGAIN || errno == EINTR) ? 0 : -1;
    }

    if (n == 0) {
        /* it ends without a word: that may pass */
        return sbx_eg_look_pass(c);
    }

    /* servers of TLS and of HTTP do not speak first */

    if (c->spoke && c->judge_by == 0 && !sbx_eg_look_plain_port(c->port)
        && !sbx_eg_look_tls_port(c->port))
    {
        return sbx_eg_look_pass(c);
    }

    if ((size_t) n == c->looked && !side->ended) {
        return sbx_eg_look_more(c, (size_t) n, 0);
    }

    memset(&sniffed, 0, sizeof(sniffed));
    what = sbx_sniff(relay->in, (size_t) n, &sniffed);

    if (what == SBX_SNIFF_MORE && n < SBX_EG_FIRST_MAX && !side->ended) {
        return sbx_eg_look_more(c, (size_t) n, 1);
    }

    return sbx_eg_look_judge(c, what, &sniffed);
}


/* Many small pieces are not looked at one by one for ever. */

static int
sbx_eg_look_more(sbx_eg_conn_t *c, size_t n, int grown)
{
    uint64_t        ms, now, left;
    sbx_eg_side_t  *side;

    side = &c->side[SBX_EG_CLIENT];
    now = sbx_now_us();

    if (c->judge_by == 0) {
        c->judge_by = now + (uint64_t) SBX_EG_JUDGE_WAIT * 1000;
    }

    if (now >= c->judge_by) {
        return c->look == SBX_EG_LOOK_HEADER
               ? sbx_eg_look_pass(c)
               : sbx_eg_conn_refuse(c, SBX_REFUSED_HIDDEN, NULL);
    }

    if (grown) {
        c->looks += c->looks < UINT16_MAX;
        sbx_eg_relay_beyond(c, n);
    }

    left = (c->judge_by - now) / 1000 + 1;
    ms = left;

    if (!grown || c->looks > SBX_EG_LOOKS_FAST) {
        side->blocked = 1;
        ms = left < SBX_EG_LOOK_PACE ? left : SBX_EG_LOOK_PACE;
    }

    sbx_timer_set(&c->session->egress->loop, &c->timer, ms);

    return 0;
}


void
sbx_eg_look_timer(sbx_eg_conn_t *c)
{
    if (c->side[SBX_EG_CLIENT].mode != SBX_EG_MODE_LOOK) {
        return;
    }

    c->side[SBX_EG_CLIENT].blocked = 0;
    sbx_eg_relay_go(c);
}


static int
sbx_eg_look_judge(sbx_eg_conn_t *c, sbx_sniff_t what,
    const sbx_sniffed_t *sniffed)
{
    switch (what) {

    case SBX_SNIFF_TLS:
        return sbx_eg_look_tls(c, sniffed);

    case SBX_SNIFF_HTTP:
        return sbx_eg_look_http(c);

    case SBX_SNIFF_OTHER:
        return sbx_eg_look_other(c, sniffed);

    case SBX_SNIFF_MORE:
    case SBX_SNIFF_BAD:
        break;
    }

    return c->look == SBX_EG_LOOK_HEADER
           ? sbx_eg_look_pass(c)
           : sbx_eg_conn_refuse(c, SBX_REFUSED_PROTOCOL, NULL);
}


static int
sbx_eg_look_tls(sbx_eg_conn_t *c, const sbx_sniffed_t *sniffed)
{
    const char     *name;
    sbx_refused_t   why;

    name = sniffed->name[0] != '\0' ? sniffed->name : NULL;

    if (c->look == SBX_EG_LOOK_NAME && sbx_eg_look_plain_port(c->port)) {
        return sbx_eg_conn_refuse(c, SBX_REFUSED_PROTOCOL, name);
    }

    if (c->look != SBX_EG_LOOK_HEADER) {
        if (sniffed->ech) {
            return sbx_eg_conn_refuse(c, SBX_REFUSED_HIDDEN, name);
        }

        if (name == NULL
            && (c->look == SBX_EG_LOOK_NAME
                || sbx_eg_decide_bare(c->session, c->address, c->port) != 0))
        {
            return sbx_eg_conn_refuse(c, SBX_REFUSED_HIDDEN, NULL);
        }

        if (name != NULL && sbx_eg_look_named(c, name, &why) != 0) {
            return sbx_eg_conn_refuse(c, why, name);
        }
    }

    if (name == NULL || sniffed->ech) {
        return sbx_eg_look_greeting(c, "");
    }

    if (sbx_eg_named(c, name) != 0) {
        return -1;
    }

    if (sbx_eg_look_header(c, name, 1) == NULL) {
        return sbx_eg_look_greeting(c, name);
    }

    /* a server that has spoken first does not speak TLS */

    if (c->spoke) {
        return sbx_eg_conn_refuse(c, SBX_REFUSED_PROTOCOL, name);
    }

    /* two handshakes are work for all who wait for this process */

    if (!sbx_eg_bucket_take(&c->session->openings, SBX_EG_OPENINGS,
                            SBX_EG_OPENINGS_BURST))
    {
        return sbx_eg_conn_refuse(c, SBX_REFUSED_LIMIT, name);
    }

    if (sbx_eg_filter_tls(c, name) != 0) {
        return -1;
    }

    (void) sbx_eg_look_pass(c);
    c->side[SBX_EG_CLIENT].mode = SBX_EG_MODE_TLS;
    c->side[SBX_EG_SERVER].mode = SBX_EG_MODE_TLS;

    return 0;
}


/* Where the name mattered, a second one does. */

static int
sbx_eg_look_greeting(sbx_eg_conn_t *c, const char *name)
{
    if (c->look == SBX_EG_LOOK_HEADER) {
        return sbx_eg_look_pass(c);
    }

    if (sbx_eg_filter_greeting(c, name) != 0) {
        return -1;
    }

    (void) sbx_eg_look_pass(c);
    c->side[SBX_EG_CLIENT].mode = SBX_EG_MODE_HTTP;

    return 0;
}


static int
sbx_eg_look_http(sbx_eg_conn_t *c)
{
    if (sbx_eg_filter_http(c) != 0) {
        return -1;
    }

    (void) sbx_eg_look_pass(c);
    c->side[SBX_EG_CLIENT].mode = SBX_EG_MODE_HTTP;

    return 0;
}


static int
sbx_eg_look_other(sbx_eg_conn_t *c, const sbx_sniffed_t *sniffed)
{
    /* HTTP/2 names its hosts where nobody here reads them */

    if (c->look != SBX_EG_LOOK_HEADER && sniffed->h2) {
        return sbx_eg_conn_refuse(c, SBX_REFUSED_PROTOCOL, NULL);
    }

    if (c->look == SBX_EG_LOOK_NAME
        && (sbx_eg_look_plain_port(c->port) || sbx_eg_look_tls_port(c->port)))
    {
        return sbx_eg_conn_refuse(c, SBX_REFUSED_PROTOCOL, NULL);
    }

    return sbx_eg_look_pass(c);
}


static int
sbx_eg_look_pass(sbx_eg_conn_t *c)
{
    sbx_timer_del(&c->session->egress->loop, &c->timer);

    sbx_eg_relay_beyond(c, 0);

    c->side[SBX_EG_CLIENT].ended = 0;
    c->side[SBX_EG_CLIENT].blocked = 0;
    c->side[SBX_EG_CLIENT].mode = SBX_EG_MODE_SPLICE;

    return 0;
}


static int
sbx_eg_look_plain_port(unsigned port)
{
    return port == 80 || port == 8000 || port == 8080;
}


static int
sbx_eg_look_tls_port(unsigned port)
{
    return port == 443 || port == 8443;
}


int
sbx_eg_look_named(sbx_eg_conn_t *c, const char *host, sbx_refused_t *why)
{
    if (c->known && strcmp(c->name, host) == 0) {
        return sbx_eg_decide_known(c->session, c->address, c->port, host,
                                   why);
    }

    return sbx_eg_decide_named(c->session, c->address, c->port, host, why);
}


/* A credential goes where the name leads, not where a client says that it
 * does. */

const sbx_eg_header_t *
sbx_eg_look_header(sbx_eg_conn_t *c, const char *host, int tls)
{
    if (!(c->known && strcmp(c->name, host) == 0)
        && !sbx_eg_names_has(c->session, host, c->address))
    {
        return NULL;
    }

    return sbx_eg_header(c->session, host, tls);
}


int
sbx_eg_named(sbx_eg_conn_t *c, const char *host)
{
    char  *name;

    c->named = 1;

    if (c->name != NULL && strcmp(c->name, host) == 0) {
        c->known |= sbx_eg_names_has(c->session, host, c->address);
        return 0;
    }

    name = strdup(host);

    if (name == NULL) {
        return -1;
    }

    free(c->name);
    c->name = name;
    c->known = sbx_eg_names_has(c->session, host, c->address);

    return 0;
}
