/*
 * Connections: how they come, where they go, and how they end.  What a
 * session's program wanted to reach is what the kernel says that it did, never
 * what it says itself.
 */

#include "conn.h"
#include "sandbox_fault.h"
#include "sandbox_limits.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>


#define SBX_EG_ORIGINAL_DST   80        /* of IPv4 and of IPv6 */
#define SBX_EG_DNS_PORT       53

/*
 * What the kernel keeps for a peer that does not read: of what is to be sent
 * so much, of what has come as much as windows have grown to.  A session's
 * first few connections have room to be fast, and their servers' windows may
 * grow to some megabytes; those after have less, so that many together cannot
 * have much of the host's memory.
 */
#define SBX_EG_WIDE           16
#define SBX_EG_WIDE_UNSENT    (512 * 1024)
#define SBX_EG_WIDE_RECEIVE   (1024 * 1024)
#define SBX_EG_UNSENT         (128 * 1024)
#define SBX_EG_RECEIVE        (256 * 1024)

/* A peer that is gone without a word is found within five minutes. */
#define SBX_EG_KEEP_IDLE      120       /* seconds */
#define SBX_EG_KEEP_INTERVAL  30
#define SBX_EG_KEEP_COUNT     5


typedef union {
    struct sockaddr      any;
    struct sockaddr_in   in;
    struct sockaddr_in6  in6;
} sbx_eg_sockaddr_t;


static void sbx_eg_conn_accept(sbx_event_t *ev, uint32_t events);
static void sbx_eg_conn_taken(sbx_eg_session_t *s, int fd);
static int sbx_eg_conn_room(sbx_eg_session_t *s);
static int sbx_eg_conn_destination(int fd, uint8_t address[16],
    unsigned *port);
static void sbx_eg_conn_address(const sbx_eg_sockaddr_t *sa,
    uint8_t address[16], unsigned *port);
static int sbx_eg_conn_loopback(const uint8_t address[16]);
static void sbx_eg_conn_host_loopback(uint8_t address[16]);
static void sbx_eg_conn_close_fd(sbx_eg_session_t *s, int fd, int reset);
static void sbx_eg_conn_close_any(int fd, int reset);
static void sbx_eg_conn_listens(sbx_eg_session_t *s);
static void sbx_eg_conn_options(const sbx_eg_conn_t *c, sbx_eg_end_t end,
    int fd);
static int sbx_eg_conn_begin(sbx_eg_session_t *s, int fd,
    const uint8_t address[16], unsigned port, sbx_eg_verdict_t verdict,
    const char *name);
static int sbx_eg_conn_connect(sbx_eg_conn_t *c);
static void sbx_eg_conn_server(sbx_event_t *ev, uint32_t events);
static void sbx_eg_conn_late(sbx_timer_t *timer);
static int sbx_eg_conn_allowed(sbx_eg_conn_t *c, sbx_refused_t *why);
static int sbx_eg_conn_names_allowed(sbx_eg_conn_t *c);


int
sbx_eg_conn_listen(sbx_eg_session_t *s, sbx_error_t *e)
{
    unsigned  i;

    for (i = 0; i < SBX_EG_LISTENERS; i += 2) {
        if (s->fds[i] == -1) {
            continue;
        }

        s->events[i].handler = sbx_eg_conn_accept;
        s->events[i].data = s;

        if (sbx_event_add(&s->egress->loop, &s->events[i], s->fds[i],
                          s->cost.cut ? 0 : EPOLLIN)
            != 0)
        {
            return sbx_error(e, errno, SBX_E_INTERNAL,
                             "epoll_ctl() of a session's listener failed");
        }
    }

    return 0;
}


static void
sbx_eg_conn_accept(sbx_event_t *ev, uint32_t events)
{
    int                i, fd;
    sbx_egress_t      *eg;
    sbx_eg_session_t  *s;

    (void) events;

    s = ev->data;
    eg = s->egress;

    /* one session's many do not keep the others waiting */

    for (i = 0; i < SBX_EG_ACCEPTS && ev->active && !s->cost.cut; i++) {
        fd = accept4(ev->fd, NULL, NULL, SOCK_NONBLOCK|SOCK_CLOEXEC);

        if (fd != -1) {
            sbx_eg_conn_taken(s, fd);
            continue;
        }

        switch (errno) {

        case EINTR:
        case ECONNABORTED:
            continue;

        case EMFILE:
        case ENFILE:
        case ENOBUFS:
        case ENOMEM:
            /* what waits is still there when there is room again */

            sbx_event_set(&eg->loop, ev, 0);

            if (!eg->relay->pause.set) {
                sbx_timer_set(&eg->loop, &eg->relay->pause,
                              SBX_EG_ACCEPT_PAUSE);
            }

            return;

        default:
            return;
        }
    }
}


static void
sbx_eg_conn_taken(sbx_eg_session_t *s, int fd)
{
    unsigned          port;
    uint8_t           address[16];
    const char       *name;
    sbx_refused_t     why;
    sbx_eg_verdict_t  verdict;

    SBX_FAULT("egress-conn-accepted");

    if (sbx_eg_conn_destination(fd, address, &port) != 0) {
        sbx_eg_conn_close_fd(s, fd, 1);
        return;
    }

    /* the session's own is never led here: it asks for the listener */

    if (sbx_eg_conn_loopback(address)) {
        sbx_eg_refused(s, SBX_REFUSED_ADDRESS, address, port, NULL);
        sbx_eg_conn_close_fd(s, fd, 1);
        return;
    }

    if (port == SBX_EG_DNS_PORT) {
        sbx_eg_dns_accept(s, fd);
        return;
    }

    sbx_eg_conn_host_loopback(address);

    verdict = sbx_eg_decide_by(s, address, port, &why, &name);

    if (verdict != SBX_EG_REFUSE && !sbx_eg_conn_room(s)) {
        verdict = SBX_EG_REFUSE;
        why = SBX_REFUSED_LIMIT;
    }

    if (verdict == SBX_EG_REFUSE) {
        sbx_eg_refused(s, why, address, port, NULL);
        sbx_eg_conn_close_fd(s, fd, 1);
        return;
    }

    if (sbx_eg_conn_begin(s, fd, address, port, verdict, name) != 0) {
        sbx_eg_conn_close_fd(s, fd, 1);
    }
}


/* 1: the session may have one more. */

static int
sbx_eg_conn_room(sbx_eg_session_t *s)
{
    const sbx_eg_relay_t  *relay;

    relay = s->egress->relay;

    return relay->nconns < relay->max
           && s->traffic->connections < s->connections
           && (s->bytes == SBX_UNLIMITED
               || s->traffic->sent + s->traffic->received < s->bytes);
}


static int
sbx_eg_conn_destination(int fd, uint8_t address[16], unsigned *port)
{
    socklen_t          len;
    sbx_eg_sockaddr_t  local, original;

    len = sizeof(local);
    memset(&local, 0, sizeof(local));

    if (getsockname(fd, &local.any, &len) == -1) {
        return -1;
    }

    len = sizeof(original);
    memset(&original, 0, sizeof(original));

    if (local.any.sa_family == AF_INET
        && getsockopt(fd, SOL_IP, SBX_EG_ORIGINAL_DST, &original, &len) == 0
        && original.any.sa_family == AF_INET)
    {
        sbx_eg_conn_address(&original, address, port);
        return 0;
    }

    len = sizeof(original);

    if (local.any.sa_family == AF_INET6
        && getsockopt(fd, SOL_IPV6, SBX_EG_ORIGINAL_DST, &original, &len) == 0
        && original.any.sa_family == AF_INET6)
    {
        sbx_eg_conn_address(&original, address, port);
        return 0;
    }

    /* it was not led here: then it is what it says */

    if (local.any.sa_family != AF_INET && local.any.sa_family != AF_INET6) {
        return -1;
    }

    sbx_eg_conn_address(&local, address, port);

    return 0;
}


static void
sbx_eg_conn_address(const sbx_eg_sockaddr_t *sa, uint8_t address[16],
    unsigned *port)
{
    if (sa->any.sa_family == AF_INET6) {
        memcpy(address, &sa->in6.sin6_addr, 16);
        *port = ntohs(sa->in6.sin6_port);
        return;
    }

    memset(address, 0, 10);
    memset(address + 10, 0xff, 2);
    memcpy(address + 12, &sa->in.sin_addr, 4);
    *port = ntohs(sa->in.sin_port);
}


static int
sbx_eg_conn_loopback(const uint8_t address[16])
{
    static const uint8_t  any[16];

    if (IN6_IS_ADDR_V4MAPPED((const struct in6_addr *) (const void *) address))
    {
        return address[12] == 127 || address[12] == 0;
    }

    return memcmp(address, &in6addr_loopback, 16) == 0
           || memcmp(address, any, 16) == 0;
}


/* The host's loopback is seen from a session at 240/8. */

static void
sbx_eg_conn_host_loopback(uint8_t address[16])
{
    if (IN6_IS_ADDR_V4MAPPED((const struct in6_addr *) (const void *) address)
        && address[12] == 240)
    {
        address[12] = 127;
    }
}


/* One that was accepted: it tells the session. */

static void
sbx_eg_conn_close_fd(sbx_eg_session_t *s, int fd, int reset)
{
    sbx_eg_span_t  span;

    span = sbx_eg_cost_begin(s);
    sbx_eg_conn_close_any(fd, reset);
    sbx_eg_cost_end(s, &span, 0);
}


static void
sbx_eg_conn_close_any(int fd, int reset)
{
    struct linger  linger;

    linger.l_onoff = 1;
    linger.l_linger = 0;

    if (reset) {
        (void) setsockopt(fd, SOL_SOCKET, SO_LINGER, &linger, sizeof(linger));
    }

    (void) close(fd);
}


static void
sbx_eg_conn_options(const sbx_eg_conn_t *c, sbx_eg_end_t end, int fd)
{
    int       wide, unsent, receive;
    unsigned  i;

    static const struct {
        int  level;
        int  name;
        int  value;
    } options[] = {
        { SOL_SOCKET,  SO_KEEPALIVE,  1 },
        { SOL_SOCKET,  SO_OOBINLINE,  1 },
        { IPPROTO_TCP, TCP_KEEPIDLE,  SBX_EG_KEEP_IDLE },
        { IPPROTO_TCP, TCP_KEEPINTVL, SBX_EG_KEEP_INTERVAL },
        { IPPROTO_TCP, TCP_KEEPCNT,   SBX_EG_KEEP_COUNT },
        { IPPROTO_TCP, TCP_NODELAY,   1 }
    };

    for (i = 0; i < sbx_nelts(options); i++) {
        (void) setsockopt(fd, options[i].level, options[i].name,
                          &options[i].value, sizeof(int));
    }

    wide = c->session->traffic->connections <= SBX_EG_WIDE;
    unsent = wide ? SBX_EG_WIDE_UNSENT : SBX_EG_UNSENT;
    receive = wide ? SBX_EG_WIDE_RECEIVE : SBX_EG_RECEIVE;

    if (wide && end == SBX_EG_SERVER) {
        receive = c->session->egress->relay->window;
    }

    (void) setsockopt(fd, IPPROTO_TCP, TCP_NOTSENT_LOWAT, &unsent,
                      sizeof(int));

    if (receive != 0) {
        (void) setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &receive, sizeof(int));
    }

    /* nothing is lost within the host, and to pace what is sent costs much */

    if (end == SBX_EG_SERVER
        && sbx_eg_addresses_own(c->session->egress, c->address))
    {
        (void) setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, "reno", 4);
    }
}


/* 0: fd is taken over, and may be closed already. */

static int
sbx_eg_conn_begin(sbx_eg_session_t *s, int fd, const uint8_t address[16],
    unsigned port, sbx_eg_verdict_t verdict, const char *name)
{
    sbx_egress_t   *eg;
    sbx_eg_conn_t  *c;

    c = calloc(1, sizeof(sbx_eg_conn_t));

    if (c == NULL) {
        return -1;
    }

    if (name != NULL) {
        c->known = 1;
        c->name = strdup(name);

        if (c->name == NULL) {
            free(c);
            return -1;
        }
    }

    eg = s->egress;
    c->session = s;
    c->side[SBX_EG_CLIENT].fd = fd;
    c->side[SBX_EG_SERVER].fd = -1;
    c->side[SBX_EG_CLIENT].event.data = c;
    c->side[SBX_EG_SERVER].event.data = c;
    c->side[SBX_EG_CLIENT].event.handler = sbx_eg_relay_event;
    c->side[SBX_EG_SERVER].event.handler = sbx_eg_conn_server;
    c->timer.handler = sbx_eg_conn_late;
    c->timer.data = c;
    c->connecting = 1;
    c->port = (uint16_t) port;
    memcpy(c->address, address, 16);
    sbx_list_init(&c->waiting);
    sbx_list_append(&s->conns, &c->node);
    c->look = (uint8_t) sbx_eg_look_why(c, verdict);

    s->traffic->connections++;
    s->traffic->opened++;
    eg->relay->nconns++;

    sbx_eg_conn_options(c, SBX_EG_CLIENT, fd);

    /* of the client only whether it is gone */

    if (sbx_event_add(&eg->loop, &c->side[SBX_EG_CLIENT].event, fd, 0) != 0
        || sbx_eg_conn_connect(c) != 0)
    {
        sbx_eg_conn_close(c, 1);
    }

    return 0;
}


static int
sbx_eg_conn_connect(sbx_eg_conn_t *c)
{
    int                fd, rc;
    socklen_t          len;
    sbx_loop_t        *loop;
    sbx_eg_sockaddr_t  sa;

    loop = &c->session->egress->loop;
    memset(&sa, 0, sizeof(sa));

    if (IN6_IS_ADDR_V4MAPPED((const struct in6_addr *) (void *) c->address)) {
        sa.in.sin_family = AF_INET;
        sa.in.sin_port = htons(c->port);
        memcpy(&sa.in.sin_addr, c->address + 12, 4);
        len = sizeof(sa.in);

    } else {
        sa.in6.sin6_family = AF_INET6;
        sa.in6.sin6_port = htons(c->port);
        memcpy(&sa.in6.sin6_addr, c->address, 16);
        len = sizeof(sa.in6);
    }

    fd = socket(sa.any.sa_family, SOCK_STREAM|SOCK_NONBLOCK|SOCK_CLOEXEC, 0);

    if (fd == -1) {
        return -1;
    }

    c->side[SBX_EG_SERVER].fd = fd;
    sbx_eg_conn_options(c, SBX_EG_SERVER, fd);

    do {
        rc = connect(fd, &sa.any, len);
    } while (rc == -1 && errno == EINTR);

    if (rc == -1 && errno != EINPROGRESS) {
        return -1;
    }

    sbx_timer_set(loop, &c->timer, SBX_EG_CONNECT_WAIT);

    SBX_FAULT("egress-conn-connecting");

    return sbx_event_add(loop, &c->side[SBX_EG_SERVER].event, fd, EPOLLOUT);
}


static void
sbx_eg_conn_server(sbx_event_t *ev, uint32_t events)
{
    int             err;
    socklen_t       len;
    sbx_eg_conn_t  *c;

    (void) events;

    c = ev->data;
    err = 0;
    len = sizeof(err);

    if (getsockopt(ev->fd, SOL_SOCKET, SO_ERROR, &err, &len) == -1
        || err != 0)
    {
        sbx_eg_conn_close(c, 1);
        return;
    }

    SBX_FAULT("egress-conn-connected");
    sbx_timer_del(&c->session->egress->loop, &c->timer);

    c->connecting = 0;
    ev->handler = sbx_eg_relay_event;
    c->side[SBX_EG_SERVER].mode = SBX_EG_MODE_SPLICE;
    c->side[SBX_EG_CLIENT].mode = c->look == SBX_EG_LOOK_NOT
                                  ? SBX_EG_MODE_SPLICE : SBX_EG_MODE_LOOK;

    sbx_eg_relay_go(c);
}


static void
sbx_eg_conn_late(sbx_timer_t *timer)
{
    sbx_eg_conn_t  *c;

    c = timer->data;

    if (c->connecting) {
        sbx_eg_conn_close(c, 1);
        return;
    }

    sbx_eg_look_timer(c);
}


int
sbx_eg_conn_refuse(sbx_eg_conn_t *c, sbx_refused_t why, const char *name)
{
    sbx_eg_refused(c->session, why, c->address, c->port, name);

    return -1;
}


void
sbx_eg_conn_close(sbx_eg_conn_t *c, int reset)
{
    unsigned           i;
    sbx_egress_t      *eg;
    sbx_eg_side_t     *side;
    sbx_eg_session_t  *s;

    if (c->closed) {
        return;
    }

    s = c->session;
    eg = s->egress;
    c->closed = 1;

    sbx_timer_del(&eg->loop, &c->timer);
    sbx_eg_credit_leave(c);
    sbx_eg_filter_close(c);

    for (i = 0; i < 2; i++) {
        side = &c->side[i];
        sbx_event_del(&eg->loop, &side->event);

        if (side->pipe != NULL) {
            sbx_eg_relay_pipe_free(eg, side->pipe, side->held == 0);
            side->pipe = NULL;
        }

        if (side->fd == -1) {
            continue;
        }

        if (i == SBX_EG_CLIENT) {
            sbx_eg_conn_close_fd(s, side->fd, reset);

        } else {
            sbx_eg_conn_close_any(side->fd, reset);
        }

        side->fd = -1;
    }

    sbx_list_remove(&c->node);
    s->traffic->connections--;
    eg->relay->nconns--;

    free(c->name);
    sbx_loop_free(&eg->loop, c);
}


void
sbx_eg_conn_close_all(sbx_eg_session_t *s)
{
    while (!sbx_list_empty(&s->conns)) {
        sbx_eg_conn_close(sbx_node_of(s->conns.next, sbx_eg_conn_t, node), 1);
    }
}


/*
 * A session that costs too much: its connections are closed, a few at a time
 * as each may cost as much once more, and then nothing is taken from its
 * listeners.  New connections and questions wait in its own kernel's queues:
 * to refuse one would send something too.
 */

void
sbx_eg_conn_costs(sbx_timer_t *timer)
{
    uint64_t           until, ms;
    sbx_eg_conn_t     *c;
    sbx_eg_session_t  *s;

    s = timer->data;

    if (s->cost.closed) {
        sbx_eg_cost_over(&s->cost);
        sbx_eg_conn_listens(s);
        return;
    }

    if (!s->cost.told) {
        s->cost.told = 1;
        sbx_eg_refused(s, SBX_REFUSED_LIMIT, NULL, 0, NULL);
        sbx_eg_conn_listens(s);
    }

    until = sbx_now_us() + SBX_EG_CUT_ROUND;

    while (!sbx_list_empty(&s->conns)) {
        if (sbx_now_us() > until) {
            sbx_timer_set(&s->egress->loop, timer, 0);
            return;
        }

        c = sbx_node_of(s->conns.next, sbx_eg_conn_t, node);
        (void) sbx_eg_conn_refuse(c, SBX_REFUSED_LIMIT, c->name);
        sbx_eg_conn_close(c, 1);
    }

    ms = sbx_eg_cost_cut(&s->cost);
    s->cost.closed = 1;
    sbx_timer_set(&s->egress->loop, timer, ms);

    (void) dprintf(STDERR_FILENO, "sandbox-egress: session \"%s\" has no "
                   "network for %llu seconds: %u packets for it took %llu ms, "
                   "as its programs watch their sockets too often\n", s->id,
                   (unsigned long long) ms / 1000, s->cost.slow,
                   (unsigned long long) s->cost.excess / 1000);
}


static void
sbx_eg_conn_listens(sbx_eg_session_t *s)
{
    unsigned  i;

    for (i = 0; i < SBX_EG_LISTENERS; i += 2) {
        sbx_event_set(&s->egress->loop, &s->events[i],
                      s->cost.cut ? 0 : EPOLLIN);
    }

    sbx_eg_dns_session_listen(s);
}


size_t
sbx_eg_conn_count(const sbx_eg_session_t *s)
{
    return (size_t) s->traffic->connections;
}


void
sbx_eg_conn_review(sbx_eg_session_t *s)
{
    sbx_node_t     *node, *next;
    sbx_refused_t   why;
    sbx_eg_conn_t  *c;

    for (node = s->conns.next; node != &s->conns; node = next) {
        next = node->next;
        c = sbx_node_of(node, sbx_eg_conn_t, node);
        why = SBX_REFUSED_RULE;

        if (!sbx_eg_conn_allowed(c, &why)) {
            (void) sbx_eg_conn_refuse(c, why, c->name);
            sbx_eg_conn_close(c, 1);
        }
    }

    sbx_eg_credit_reset(s);
}


/* By what is known of it, which may be less than is asked of a new one. */

static int
sbx_eg_conn_allowed(sbx_eg_conn_t *c, sbx_refused_t *why)
{
    sbx_eg_look_t      look;
    sbx_refused_t      other;
    sbx_eg_verdict_t   verdict;
    sbx_eg_session_t  *s;

    s = c->session;
    verdict = sbx_eg_decide(s, c->address, c->port, why);

    if (verdict == SBX_EG_REFUSE) {

        /* the answer that led there may be forgotten by now */

        if (!c->known
            || sbx_eg_decide_known(s, c->address, c->port, c->name, &other)
               != 0)
        {
            return 0;
        }

        verdict = SBX_EG_BY_NAME;
    }

    look = sbx_eg_look_why(c, verdict);

    if (c->connecting || c->side[SBX_EG_CLIENT].mode == SBX_EG_MODE_LOOK) {

        /* it will be judged by what holds then */

        if (look > c->look) {
            c->look = (uint8_t) look;
        }

        return 1;
    }

    if (look <= SBX_EG_LOOK_HEADER) {
        return 1;
    }

    if (c->named) {
        return sbx_eg_look_named(c, c->name, why) == 0;
    }

    /* as much was looked at, and nothing was named; or it was not, and its
     * client may have meant any of the names that lead there */

    return c->look >= look || sbx_eg_conn_names_allowed(c);
}


static int
sbx_eg_conn_names_allowed(sbx_eg_conn_t *c)
{
    size_t             at;
    const char        *name;
    sbx_refused_t      why;
    sbx_eg_session_t  *s;

    at = 0;
    s = c->session;

    for ( ;; ) {
        name = sbx_eg_names_next(s, c->address, &at);

        if (name == NULL) {
            return 1;
        }

        if (sbx_eg_decide_named(s, c->address, c->port, name, &why) != 0) {
            return 0;
        }
    }
}
