/*
 * Whom we ask: the operator's resolvers, or the host's, by c-ares.
 *
 * c-ares here sends, waits, asks again, goes on to the next server, and to
 * TCP where an answer is truncated.  It opens /dev/urandom when a channel is
 * made and nothing later, so all channels are made while the process still has
 * files; servers are set afterwards.  Messages are ours, and so are their ids,
 * which are random.
 *
 * c-ares closes its sockets when nothing is asked any more, and takes a port
 * anew for the next question.  So that one port is not asked from for long by
 * a node that never rests, a channel gets no more than so many questions
 * before it has had its rest; the others take turns meanwhile.
 */

#include "dns.h"

#include <ares.h>
#include <errno.h>
#include <string.h>
#include <sys/random.h>
#include <sys/time.h>


#define SBX_EG_CHANNELS      8
#define SBX_EG_SERVERS       8         /* the first ones that are named */
#define SBX_EG_ASKED         256       /* questions of one port */
#define SBX_EG_ASKING        4096      /* at a time, of all sessions */
#define SBX_EG_ASK_WAIT      1200      /* ms for an answer; then twice that */
#define SBX_EG_ASK_TRIES     2


typedef struct {
    sbx_eg_resolver_t           *resolver;
    ares_channel                 ares;
    sbx_timer_t                  timer;
    unsigned                     asking;
    unsigned                     asked;     /* since it asked nothing */
    sbx_event_t                  events[SBX_EG_SERVERS * 2];
} sbx_eg_channel_t;

typedef struct {
    sbx_node_t                   node;      /* of what is to be asked again */
    sbx_eg_resolver_t           *resolver;
    sbx_eg_channel_t            *channel;
    sbx_eg_resolved_t            handler;
    void                        *data;
    size_t                       size;
    uint8_t                      query[SBX_DNS_PLAIN];
} sbx_eg_ask_t;

struct sbx_eg_resolver_s {
    sbx_egress_t                *egress;
    sbx_eg_channel_t             channels[SBX_EG_CHANNELS];
    struct ares_addr_port_node   servers[SBX_EG_SERVERS];
    unsigned                     nservers;
    unsigned                     turn;
    unsigned                     asking;
    unsigned                     changing:1;
    sbx_node_t                   again;
};


static int sbx_eg_channel_open(sbx_eg_channel_t *channel);
static void sbx_eg_channel_close(sbx_eg_channel_t *channel);
static sbx_eg_channel_t *sbx_eg_channel_next(sbx_eg_resolver_t *r);
static void sbx_eg_channel_socket(void *data, ares_socket_t fd, int readable,
    int writable);
static void sbx_eg_channel_event(sbx_event_t *ev, uint32_t events);
static void sbx_eg_channel_expire(sbx_timer_t *timer);
static void sbx_eg_channel_wait(sbx_eg_channel_t *channel);
static void sbx_eg_ask_send(sbx_eg_ask_t *ask);
static void sbx_eg_ask_done(void *arg, int status, int timeouts,
    unsigned char *p, int n);
static unsigned sbx_eg_servers_of_table(const void *table, size_t size,
    struct ares_addr_port_node *servers);
static unsigned sbx_eg_servers_of_file(const char *p, size_t n,
    struct ares_addr_port_node *servers);
static int sbx_eg_server_parse(const char *text, size_t len,
    struct ares_addr_port_node *server);
static int sbx_eg_servers_same(const struct ares_addr_port_node *a,
    const struct ares_addr_port_node *b, unsigned n);
static int sbx_eg_servers_set(sbx_eg_resolver_t *r,
    struct ares_addr_port_node *servers, unsigned n);


int
sbx_eg_dns_open(sbx_egress_t *eg, sbx_error_t *e)
{
    int                 rc;
    unsigned            i;
    sbx_eg_resolver_t  *r;

    rc = ares_library_init(ARES_LIB_INIT_ALL);

    if (rc != ARES_SUCCESS) {
        return sbx_error(e, 0, SBX_E_INTERNAL, "ares_library_init() failed: "
                         "%s", ares_strerror(rc));
    }

    r = calloc(1, sizeof(sbx_eg_resolver_t));

    if (r == NULL) {
        ares_library_cleanup();
        return sbx_error(e, ENOMEM, SBX_E_INTERNAL, "no memory");
    }

    r->egress = eg;
    sbx_list_init(&r->again);
    eg->dns = r;

    for (i = 0; i < SBX_EG_CHANNELS; i++) {
        r->channels[i].resolver = r;
        rc = sbx_eg_channel_open(&r->channels[i]);

        if (rc != ARES_SUCCESS) {
            sbx_eg_dns_close(eg);
            return sbx_error(e, 0, SBX_E_INTERNAL, "ares_init_options() "
                             "failed: %s", ares_strerror(rc));
        }
    }

    return 0;
}


void
sbx_eg_dns_close(sbx_egress_t *eg)
{
    unsigned  i;

    if (eg->dns == NULL) {
        return;
    }

    for (i = 0; i < SBX_EG_CHANNELS; i++) {
        sbx_eg_channel_close(&eg->dns->channels[i]);
    }

    free(eg->dns);
    eg->dns = NULL;
    ares_library_cleanup();
}


/* Every option that would be read from a file or the environment is set. */

static int
sbx_eg_channel_open(sbx_eg_channel_t *channel)
{
    int                  mask;
    char                 lookups[] = "b";
    struct ares_options  options;

    memset(&options, 0, sizeof(struct ares_options));

    options.flags = ARES_FLAG_NOSEARCH|ARES_FLAG_NOALIASES|ARES_FLAG_EDNS;
    options.timeout = SBX_EG_ASK_WAIT;
    options.tries = SBX_EG_ASK_TRIES;
    options.ndots = 1;
    options.ednspsz = SBX_DNS_EDNS;
    options.lookups = lookups;
    options.sock_state_cb = sbx_eg_channel_socket;
    options.sock_state_cb_data = channel;

    mask = ARES_OPT_FLAGS|ARES_OPT_TIMEOUTMS|ARES_OPT_TRIES|ARES_OPT_NDOTS
           |ARES_OPT_EDNSPSZ|ARES_OPT_SERVERS|ARES_OPT_DOMAINS
           |ARES_OPT_LOOKUPS|ARES_OPT_SORTLIST|ARES_OPT_SOCK_STATE_CB
           |ARES_OPT_NOROTATE;

    channel->timer.handler = sbx_eg_channel_expire;
    channel->timer.data = channel;

    return ares_init_options(&channel->ares, &options, mask);
}


static void
sbx_eg_channel_close(sbx_eg_channel_t *channel)
{
    if (channel->ares) {
        ares_destroy(channel->ares);
        channel->ares = NULL;
    }

    sbx_timer_del(&channel->resolver->egress->loop, &channel->timer);
}


void
sbx_eg_resolve(sbx_egress_t *eg, const char *name, unsigned type,
    sbx_eg_resolved_t handler, void *data)
{
    uint16_t            id;
    sbx_eg_ask_t       *ask;
    sbx_eg_resolver_t  *r;

    r = eg->dns;

    if (r == NULL || r->nservers == 0 || r->changing
        || r->asking >= SBX_EG_ASKING
        || getrandom(&id, sizeof(id), 0) != sizeof(id))
    {
        handler(data, NULL, 0);
        return;
    }

    ask = malloc(sizeof(sbx_eg_ask_t));

    if (ask == NULL) {
        handler(data, NULL, 0);
        return;
    }

    ask->resolver = r;
    ask->handler = handler;
    ask->data = data;
    ask->size = sbx_dns_ask(name, type, id, ask->query);

    r->asking++;
    sbx_eg_ask_send(ask);
}


static void
sbx_eg_ask_send(sbx_eg_ask_t *ask)
{
    sbx_eg_channel_t  *channel;

    channel = sbx_eg_channel_next(ask->resolver);

    ask->channel = channel;
    channel->asking++;
    channel->asked++;

    /* ask may be gone after it */

    ares_send(channel->ares, ask->query, (int) ask->size, sbx_eg_ask_done,
              ask);

    sbx_eg_channel_wait(channel);
}


static void
sbx_eg_ask_done(void *arg, int status, int timeouts, unsigned char *p, int n)
{
    sbx_eg_ask_t       *ask = arg;
    sbx_eg_resolver_t  *r;

    (void) timeouts;

    r = ask->resolver;

    if (--ask->channel->asking == 0) {
        ask->channel->asked = 0;
    }

    if (status == ARES_ECANCELLED && r->changing) {
        sbx_list_append(&r->again, &ask->node);
        return;
    }

    r->asking--;

    if (status == ARES_SUCCESS && p != NULL && n > 0) {
        ask->handler(ask->data, p, (size_t) n);

    } else {
        ask->handler(ask->data, NULL, 0);
    }

    free(ask);
}


static sbx_eg_channel_t *
sbx_eg_channel_next(sbx_eg_resolver_t *r)
{
    unsigned           i;
    sbx_eg_channel_t  *channel;

    for (i = 0; i < SBX_EG_CHANNELS; i++) {
        channel = &r->channels[(r->turn + i) % SBX_EG_CHANNELS];

        if (channel->asked < SBX_EG_ASKED) {
            r->turn = (r->turn + i) % SBX_EG_CHANNELS;
            return channel;
        }
    }

    /* all are busy */

    r->turn = (r->turn + 1) % SBX_EG_CHANNELS;

    return &r->channels[r->turn];
}


static void
sbx_eg_channel_socket(void *data, ares_socket_t fd, int readable,
    int writable)
{
    unsigned           i;
    uint32_t           events;
    sbx_loop_t        *loop;
    sbx_event_t       *ev, *unused;
    sbx_eg_channel_t  *channel = data;

    loop = &channel->resolver->egress->loop;
    events = (readable ? EPOLLIN : 0) | (writable ? EPOLLOUT : 0);
    unused = NULL;

    for (i = 0; i < sbx_nelts(channel->events); i++) {
        ev = &channel->events[i];

        if (!ev->active) {
            unused = ev;
            continue;
        }

        if (ev->fd != fd) {
            continue;
        }

        if (events) {
            sbx_event_set(loop, ev, events);

        } else {
            sbx_event_del(loop, ev);
        }

        return;
    }

    /* one that is not watched is heard of when its time is over */

    if (events && unused) {
        unused->handler = sbx_eg_channel_event;
        unused->data = channel;
        (void) sbx_event_add(loop, unused, fd, events);
    }
}


static void
sbx_eg_channel_event(sbx_event_t *ev, uint32_t events)
{
    int                fd;
    sbx_eg_channel_t  *channel = ev->data;

    fd = ev->fd;

    ares_process_fd(channel->ares,
                    events & ~(uint32_t) EPOLLOUT ? fd : ARES_SOCKET_BAD,
                    events & EPOLLOUT ? fd : ARES_SOCKET_BAD);

    sbx_eg_channel_wait(channel);
}


static void
sbx_eg_channel_expire(sbx_timer_t *timer)
{
    sbx_eg_channel_t  *channel = timer->data;

    ares_process_fd(channel->ares, ARES_SOCKET_BAD, ARES_SOCKET_BAD);
    sbx_eg_channel_wait(channel);
}


static void
sbx_eg_channel_wait(sbx_eg_channel_t *channel)
{
    uint64_t         ms;
    sbx_loop_t      *loop;
    struct timeval   tv, *next;

    loop = &channel->resolver->egress->loop;
    next = ares_timeout(channel->ares, NULL, &tv);

    if (next == NULL) {
        sbx_timer_del(loop, &channel->timer);
        return;
    }

    ms = (uint64_t) next->tv_sec * 1000 + next->tv_usec / 1000 + 1;
    sbx_timer_set(loop, &channel->timer, ms);
}


int
sbx_eg_dns_configure(sbx_egress_t *eg, const void *table, size_t size,
    const char *resolv_conf, size_t resolv_size, sbx_error_t *e)
{
    unsigned                     n;
    struct ares_addr_port_node   servers[SBX_EG_SERVERS];

    memset(servers, 0, sizeof(servers));
    n = sbx_eg_servers_of_table(table, size, servers);

    if (n == 0) {
        n = sbx_eg_servers_of_file(resolv_conf, resolv_size, servers);
    }

    if (n == 0) {

        /* as libc does */

        (void) sbx_eg_server_parse("127.0.0.1", 9, &servers[n++]);
    }

    if (sbx_eg_servers_set(eg->dns, servers, n) == -1) {
        return sbx_error(e, ENOMEM, SBX_E_INTERNAL, "resolvers cannot be set");
    }

    return 0;
}


static int
sbx_eg_servers_same(const struct ares_addr_port_node *a,
    const struct ares_addr_port_node *b, unsigned n)
{
    unsigned  i;

    for (i = 0; i < n; i++) {

        if (a[i].family != b[i].family || a[i].udp_port != b[i].udp_port
            || memcmp(a[i].addr.addr6._S6_un._S6_u8,
                      b[i].addr.addr6._S6_un._S6_u8, 16)
               != 0)
        {
            return 0;
        }
    }

    return 1;
}


/* What is being asked is asked anew. */

static int
sbx_eg_servers_set(sbx_eg_resolver_t *r, struct ares_addr_port_node *servers,
    unsigned n)
{
    int            rc;
    unsigned       i;
    sbx_node_t    *node;
    sbx_eg_ask_t  *ask;

    if (n == r->nservers && sbx_eg_servers_same(servers, r->servers, n)) {
        return 0;
    }

    memcpy(r->servers, servers, sizeof(r->servers));

    for (i = 0; i + 1 < n; i++) {
        servers[i].next = &servers[i + 1];
    }

    r->changing = 1;
    r->nservers = n;
    rc = 0;

    for (i = 0; i < SBX_EG_CHANNELS; i++) {
        ares_cancel(r->channels[i].ares);

        if (ares_set_servers_ports(r->channels[i].ares, servers)
            != ARES_SUCCESS)
        {
            /* set again by the next one; a channel without servers fails */

            r->nservers = 0;
            rc = -1;
        }
    }

    r->changing = 0;

    while (!sbx_list_empty(&r->again)) {
        node = r->again.next;
        ask = sbx_node_of(node, sbx_eg_ask_t, node);
        sbx_list_remove(node);
        sbx_eg_ask_send(ask);
    }

    return rc;
}


static unsigned
sbx_eg_servers_of_table(const void *table, size_t size,
    struct ares_addr_port_node *servers)
{
    unsigned          n;
    sbx_egress_row_t  row;

    memset(&row, 0, sizeof(sbx_egress_row_t));
    n = 0;

    while (n < SBX_EG_SERVERS && sbx_egress_row_next(table, size, &row) == 1) {

        if (row.type == SBX_EGRESS_RESOLVER && row.text[0]
            && sbx_eg_server_parse(row.text[0], strlen(row.text[0]),
                                   &servers[n])
               == 0)
        {
            n++;
        }
    }

    return n;
}


static unsigned
sbx_eg_servers_of_file(const char *p, size_t n,
    struct ares_addr_port_node *servers)
{
    size_t       len, word;
    unsigned     found;
    const char  *end, *line;

    found = 0;

    while (n && found < SBX_EG_SERVERS) {
        line = p;
        end = memchr(p, '\n', n);
        len = end ? (size_t) (end - p) : n;
        p += len + (end != NULL);
        n -= len + (end != NULL);

        if (len < 12 || memcmp(line, "nameserver", 10) != 0
            || (line[10] != ' ' && line[10] != '\t'))
        {
            continue;
        }

        line += 10;
        len -= 10;

        while (len && (*line == ' ' || *line == '\t')) {
            line++;
            len--;
        }

        for (word = 0; word < len; word++) {

            if (strchr(" \t\r#;", line[word])) {
                break;
            }
        }

        /* not one with a scope ("fe80::1%eth0"), which c-ares has none of */

        if (sbx_eg_server_parse(line, word, &servers[found]) == 0) {
            found++;
        }
    }

    return found;
}


static int
sbx_eg_server_parse(const char *text, size_t len,
    struct ares_addr_port_node *server)
{
    sbx_error_t         e;
    struct in6_addr     address;
    sbx_network_rule_t  rule;

    if (sbx_egress_resolver(text, len, &rule, &e) == -1) {
        return -1;
    }

    server->udp_port = rule.port ? rule.port : SBX_DNS_PORT;
    server->tcp_port = server->udp_port;

    memcpy(&address, rule.address, sizeof(struct in6_addr));

    if (IN6_IS_ADDR_V4MAPPED(&address)) {
        server->family = AF_INET;
        memcpy(&server->addr.addr4, rule.address + 12, 4);

    } else {
        server->family = AF_INET6;
        memcpy(&server->addr.addr6, rule.address, 16);
    }

    return 0;
}
