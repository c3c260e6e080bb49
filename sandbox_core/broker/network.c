/*
 * A session's way out: what the broker makes in its network namespace, what
 * the egress is to know of it, and what it has used.
 *
 * The record of a session says what it may reach.  The namespace has a way out
 * (sockets that only the egress serves) before that is written, and the
 * egress is told after it: a session reaches nothing that its record does not
 * say.  An egress that is gone takes its sockets with it, and so every
 * connection is refused until another one is there.
 */

#include "broker.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>


#define SBX_WAY_REVOKED_MAX   4096
#define SBX_WAY_LINES         20          /* of the log, in a second */
#define SBX_WAY_TOLD          1000        /* refusals told, in a second */
#define SBX_WAY_BEHIND        65536       /* bytes not yet taken by who is
                                             told */
#define SBX_WAY_BYTES_MAX     (INT64_C(1) << 53)  /* of a session; what
                                                     numbers of JSON hold */
#define SBX_WAY_SEALS         (F_SEAL_SHRINK|F_SEAL_GROW|F_SEAL_SEAL)


static void sbx_way_close_fds(sbx_session_t *s);
static void sbx_way_queue(sbx_session_t *s, sbx_egress_op_t op);
static int sbx_way_read(sbx_session_t *s);
static void sbx_way_most(uint64_t *seen, uint64_t now);
static void sbx_way_add(uint64_t *sum, uint64_t more);
static int sbx_way_told_enough(sbx_session_t *s, uint32_t more);
static uint32_t sbx_way_more(uint32_t a, uint32_t b);
static void sbx_way_log(sbx_broker_t *b, const sbx_session_t *s,
    const sbx_f_refusal_t *refusal);


void
sbx_way_open(sbx_session_t *s)
{
    size_t  i;

    sbx_list_init(&s->way.todo);
    s->way.traffic = -1;

    for (i = 0; i < SBX_NET_FDS; i++) {
        s->way.fds[i] = -1;
    }
}


/* Of every session, as it is in the keeper's store from the beginning.  The
 * egress writes to it by a mapping, which nobody is to make too short. */

int
sbx_way_page(sbx_session_t *s, sbx_error_t *e)
{
    sbx_auto_fd  fd = -1;

    fd = memfd_create("traffic", MFD_CLOEXEC|MFD_ALLOW_SEALING);

    if (fd == -1 || ftruncate(fd, sizeof(sbx_traffic_t)) == -1
        || fcntl(fd, F_ADD_SEALS, SBX_WAY_SEALS) == -1)
    {
        return sbx_error(e, errno, SBX_E_UNAVAILABLE,
                         "memfd_create() failed");
    }

    s->way.traffic = sbx_steal_fd(&fd);

    return 0;
}


void
sbx_way_close(sbx_session_t *s)
{
    sbx_way_cut(s);

    if (sbx_way_read(s) == 0) {
        sbx_way_add(&s->broker->outlet.sent, s->way.seen.sent);
        sbx_way_add(&s->broker->outlet.received, s->way.seen.received);
    }

    if (s->way.traffic != -1) {
        (void) close(s->way.traffic);
        s->way.traffic = -1;
    }

    if (s->launched.netns != -1) {
        (void) close(s->launched.netns);
        s->launched.netns = -1;
    }

    free(s->way.rules);
    s->way.rules = NULL;
}


static void
sbx_way_close_fds(sbx_session_t *s)
{
    size_t  i;

    for (i = 0; i < SBX_NET_FDS; i++) {
        if (s->way.fds[i] != -1) {
            (void) close(s->way.fds[i]);
            s->way.fds[i] = -1;
        }
    }
}


/*
 * ---- what is asked for ---------------------------------------------------
 */

const char *
sbx_way_lacks(const sbx_broker_t *b, uint32_t mode)
{
    size_t                     i;
    const sbx_f_capability_t  *row;

    static const sbx_layer_t  needed[] = {
        SBX_LAYER_NETWORK_GRANTS, SBX_LAYER_NETWORK_CONNTRACK
    };

    for (i = 0; mode != SBX_NETWORK_NONE && i < sbx_nelts(needed); i++) {
        row = &b->layers.row[needed[i]];

        if (!row->enforced) {
            return row->mend;
        }
    }

    return NULL;
}


int
sbx_way_admit(const sbx_broker_t *b, const char *template, uint32_t mode,
    const void *rules, size_t size, const char *at, sbx_error_t *e)
{
    const char  *lacks;

    if (mode > SBX_NETWORK_LISTS
        || (size != 0 && (mode != SBX_NETWORK_LISTS || rules == NULL)))
    {
        return sbx_error(e, 0, SBX_E_INVALID, "the network is malformed");
    }

    if (mode == SBX_NETWORK_NONE) {
        return 0;
    }

    lacks = sbx_way_lacks(b, mode);

    if (lacks != NULL) {
        return sbx_error(e, 0, SBX_E_MANIFEST,
                         "%s: this machine cannot give a session a network: "
                         "%s", at, lacks);
    }

    if (size > SBX_NETWORK_SIZE) {
        return sbx_error(e, 0, SBX_E_MANIFEST,
                         "%s: takes more than %d bytes", at,
                         SBX_NETWORK_SIZE);
    }

    if (size != 0 && sbx_network_check(rules, size, e) != 0) {
        return -1;
    }

    return sbx_network_narrows(b->config.egress, b->config.egress_size,
                               sbx_create_means(b, template),
                               (sbx_network_mode_t) mode, rules, size, at, e);
}


/*
 * ---- the namespace -------------------------------------------------------
 */

int
sbx_way_make(sbx_session_t *s, sbx_error_t *e)
{
    size_t  i;

    sbx_way_close_fds(s);

    /* one that is being replaced will serve it soon */

    if (s->broker->outlet.failing) {
        return sbx_error(e, 0, SBX_E_UNAVAILABLE,
                         "the egress cannot be started, so no session can be "
                         "given a network");
    }

    (void) sbx_error(e, 0, SBX_E_UNAVAILABLE,
                     "the session cannot be given a network");

    if (s->launched.netns == -1
        || sbx_net_grant(s->launched.netns, s->way.fds, e) != 0)
    {
        for (i = 0; i < SBX_NET_FDS; i++) {
            s->way.fds[i] = -1;
        }

        return -1;
    }

    s->way.routed = 1;

    return 0;
}


/* Later than a caller could be told. */

int
sbx_way_remake(sbx_session_t *s)
{
    sbx_error_t  e;

    if (sbx_way_make(s, &e) == 0) {
        return 0;
    }

    sbx_log_error(SBX_LOG_ERROR,
                  &(sbx_log_about_t) { s->request, s->info.id }, &e,
                  "session is without its network");

    return -1;
}


void
sbx_way_unmake(sbx_session_t *s)
{
    sbx_error_t  e;

    sbx_way_close_fds(s);
    memset(&e, 0, sizeof(sbx_error_t));

    /* nobody serves what stays of it */

    if (s->launched.netns != -1 && sbx_net_revoke(s->launched.netns, &e) != 0)
    {
        sbx_log_error(SBX_LOG_ERROR,
                      &(sbx_log_about_t) { s->request, s->info.id }, &e,
                      "what was a session's network stays");
    }
}


/*
 * ---- what the egress is to know ------------------------------------------
 */

void
sbx_way_follow(sbx_session_t *s, uint32_t before)
{
    sbx_broker_t  *b;

    b = s->broker;

    if (s->info.network != SBX_NETWORK_NONE) {
        if (sbx_outlet_resolv_changed(b)) {
            b->outlet.configure = 1;
        }

        /* one that is still to be sent says as much */

        sbx_way_queue(s, s->way.fds[SBX_NET_TCP4] != -1 || !s->way.told
                         || s->way.op == SBX_EGRESS_GRANT
                         ? SBX_EGRESS_GRANT : SBX_EGRESS_CHANGE);

    } else if (before != SBX_NETWORK_NONE) {
        sbx_way_unmake(s);
        sbx_way_queue(s, SBX_EGRESS_REVOKE);
    }

    if (before != s->info.network) {
        sbx_way_tell(s);
    }

    sbx_outlet_send(b);
}


static void
sbx_way_queue(sbx_session_t *s, sbx_egress_op_t op)
{
    sbx_list_remove(&s->way.todo);
    s->way.op = op;

    /* without an egress there is nothing to be revoked; the next one is told
     * of all sessions that have a network */

    if (s->broker->outlet.pid != 0) {
        sbx_list_append(&s->broker->outlet.todo, &s->way.todo);
    }
}


void
sbx_way_sent(sbx_session_t *s)
{
    sbx_list_remove(&s->way.todo);
    sbx_way_close_fds(s);
    s->way.op = 0;
}


void
sbx_way_adopt(sbx_session_t *s)
{
    if (s->info.network != SBX_NETWORK_NONE) {
        sbx_way_queue(s, SBX_EGRESS_GRANT);

    } else if (s->way.routed) {
        sbx_way_unmake(s);
        sbx_way_queue(s, SBX_EGRESS_REVOKE);
    }

    sbx_way_tell(s);
    sbx_outlet_soon(s->broker);
}


void
sbx_way_cut(sbx_session_t *s)
{
    sbx_outlet_t   *o;
    sbx_revoked_t  *gone;

    o = &s->broker->outlet;
    sbx_list_remove(&s->way.todo);
    sbx_way_close_fds(s);

    if (!s->way.told) {
        return;
    }

    s->way.told = 0;
    gone = o->nrevoked < SBX_WAY_REVOKED_MAX ? malloc(sizeof(sbx_revoked_t))
                                             : NULL;

    if (gone == NULL) {
        sbx_outlet_kill(s->broker, "it cannot be told what is over");
        return;
    }

    memcpy(gone->id, s->info.id, sizeof(gone->id));
    sbx_list_append(&o->revoked, &gone->link);
    o->nrevoked++;
    sbx_outlet_send(s->broker);
}


/* The egress is gone, and what it knew with it. */

void
sbx_way_lost(sbx_broker_t *b)
{
    sbx_node_t     *node;
    sbx_outlet_t   *o;
    sbx_revoked_t  *gone;

    o = &b->outlet;

    while (!sbx_list_empty(&o->revoked)) {
        gone = sbx_node_of(o->revoked.next, sbx_revoked_t, link);
        sbx_list_remove(&gone->link);
        free(gone);
    }

    o->nrevoked = 0;

    for (node = b->sessions.next; node != &b->sessions; node = node->next) {
        sbx_node_of(node, sbx_session_t, link)->way.told = 0;
    }

    while (!sbx_list_empty(&o->todo)) {
        sbx_list_remove(o->todo.next);
    }
}


void
sbx_way_renew(sbx_broker_t *b)
{
    sbx_node_t     *node;
    sbx_session_t  *s;

    for (node = b->sessions.next; node != &b->sessions; node = node->next) {
        s = sbx_node_of(node, sbx_session_t, link);

        if (s->state == SBX_S_RUNNING
            && s->info.network != SBX_NETWORK_NONE)
        {
            sbx_way_queue(s, SBX_EGRESS_GRANT);
        }
    }
}


void
sbx_way_tell(sbx_session_t *s)
{
    s->way.untold = 0;

    if (sbx_command_send_with(s, SBX_OP_NETWORK, s->info.network, -1) != 0
        && s->control != -1)
    {
        s->way.untold = 1;
        sbx_command_retry(s);
    }
}


/*
 * ---- what has been used --------------------------------------------------
 */

/* The page is the egress's to write: what it counts grows, and no sum of it
 * turns over, whatever is there. */

static int
sbx_way_read(sbx_session_t *s)
{
    uint64_t        max;
    sbx_traffic_t   traffic, *seen;

    if (!s->way.routed || s->way.traffic == -1
        || pread(s->way.traffic, &traffic, sizeof(sbx_traffic_t), 0)
           != (ssize_t) sizeof(sbx_traffic_t))
    {
        return -1;
    }

    seen = &s->way.seen;
    max = s->info.limits.connections;
    seen->connections = traffic.connections < max ? traffic.connections : max;
    sbx_way_most(&seen->sent, traffic.sent);
    sbx_way_most(&seen->received, traffic.received);
    sbx_way_most(&seen->refused, traffic.refused);

    return 0;
}


static void
sbx_way_most(uint64_t *seen, uint64_t now)
{
    if (now > SBX_WAY_BYTES_MAX) {
        now = SBX_WAY_BYTES_MAX;
    }

    if (now > *seen) {
        *seen = now;
    }
}


static void
sbx_way_add(uint64_t *sum, uint64_t more)
{
    *sum = more < INT64_MAX - *sum ? *sum + more : INT64_MAX;
}


void
sbx_way_usage(sbx_session_t *s, sbx_usage_t *usage)
{
    if (sbx_way_read(s) != 0) {
        return;
    }

    /* one that is gone has not counted the ends of its connections */

    usage->connections = s->way.told ? s->way.seen.connections : 0;
    usage->network_sent = s->way.seen.sent;
    usage->network_received = s->way.seen.received;
    usage->network_refused = s->way.seen.refused;
}


void
sbx_way_metrics(const sbx_broker_t *b, sbx_f_metrics_t *m)
{
    sbx_usage_t          usage;
    sbx_node_t          *node;
    const sbx_outlet_t  *o;

    o = &b->outlet;
    m->network_sent = o->sent;
    m->network_received = o->received;
    m->egress_restarts = o->restarts;
    m->egress_up = o->ready;
    memcpy(m->refused, o->refused, sizeof(m->refused));

    for (node = b->sessions.next; node != &b->sessions; node = node->next) {
        memset(&usage, 0, sizeof(sbx_usage_t));
        sbx_way_usage(sbx_node_of(node, sbx_session_t, link), &usage);
        sbx_way_add(&m->network_sent, usage.network_sent);
        sbx_way_add(&m->network_received, usage.network_received);
        m->connections += usage.connections;
    }

    /* calls that never end are nobody's load */

    for (node = o->listeners.next; node != &o->listeners; node = node->next) {
        m->calls--;
    }
}


/*
 * ---- what is refused -----------------------------------------------------
 */

void
sbx_way_refused(sbx_broker_t *b, const sbx_egress_record_t *record)
{
    size_t            i;
    sbx_session_t    *s;
    sbx_call_out_t   *call;
    sbx_f_refusal_t   refusal;

    static const uint8_t  none[16];

    sbx_way_add(&b->outlet.refused[record->reason],
                (uint64_t) record->more + 1);
    s = sbx_session_find(b, record->session);

    if (s == NULL || s->pooled || sbx_way_told_enough(s, record->more)) {
        return;
    }

    memset(&refusal, 0, sizeof(sbx_f_refusal_t));
    refusal.at = sbx_broker_clock_ms();
    refusal.reason = record->reason;
    refusal.port = record->port;
    refusal.more = s->way.more;
    s->way.more = 0;
    memcpy(refusal.session, s->info.id, sizeof(refusal.session));
    memcpy(refusal.tenant, s->info.tenant, sizeof(refusal.tenant));
    memcpy(refusal.user, s->info.user, sizeof(refusal.user));

    if (memcmp(record->address, none, sizeof(none)) != 0) {
        (void) sbx_network_address_print(record->address, refusal.address);
    }

    for (i = 0; record->name[i] != '\0'; i++) {
        refusal.name[i] = record->name[i] > ' ' && record->name[i] < 0x7f
                          ? record->name[i] : '?';
    }

    sbx_way_log(b, s, &refusal);

    refusal.more = sbx_way_more(refusal.more, s->way.unheard);

    while (!sbx_list_empty(&b->outlet.listeners)) {
        call = sbx_node_of(b->outlet.listeners.next, sbx_call_out_t, wait);

        /* one that is behind is told of these by a later one */

        if (call->end - call->start > SBX_WAY_BEHIND) {
            break;
        }

        /* one that cannot be told has been closed: the next oldest */

        if (sbx_call_frame(call, SBX_F_REFUSAL, &refusal,
                           sizeof(sbx_f_refusal_t), NULL, 0)
            == 0)
        {
            sbx_call_push(call);
            s->way.unheard = 0;
            return;
        }
    }

    s->way.unheard = sbx_way_more(refusal.more, 1);
}


static uint32_t
sbx_way_more(uint32_t a, uint32_t b)
{
    return a > UINT32_MAX - b ? UINT32_MAX : a + b;
}


/*
 * Each is a line of workers' logs: past so many, a second has one of each
 * session, and the rest is told with the session's next one.
 */

static int
sbx_way_told_enough(sbx_session_t *s, uint32_t more)
{
    uint64_t       now;
    sbx_way_t     *way;
    sbx_outlet_t  *o;

    way = &s->way;
    o = &s->broker->outlet;
    now = sbx_now_us() / 1000000;
    way->more = sbx_way_more(way->more, more);

    if (now != o->second) {
        o->second = now;
        o->told = 0;
    }

    if (o->told >= SBX_WAY_TOLD && now == way->second) {
        way->more = sbx_way_more(way->more, 1);
        return 1;
    }

    o->told++;
    way->second = now;

    return 0;
}


static void
sbx_way_log(sbx_broker_t *b, const sbx_session_t *s,
    const sbx_f_refusal_t *refusal)
{
    char           where[SBX_NETWORK_HOST_MAX + 80], more[48];
    uint64_t       now;
    sbx_outlet_t  *o;

    o = &b->outlet;
    now = sbx_now_us();

    if (now - o->lines_at >= 1000000) {
        if (o->unlogged != 0) {
            sbx_log(SBX_LOG_NOTICE, NULL, 0,
                    "%u refusals of the egress are not in this log",
                    o->unlogged);
        }

        o->lines_at = now;
        o->lines = 0;
        o->unlogged = 0;
    }

    if (o->lines >= SBX_WAY_LINES) {
        o->unlogged++;
        return;
    }

    o->lines++;
    (void) snprintf(where, sizeof(where), "%s%s%s%s", refusal->name,
                    refusal->name[0] && refusal->address[0] ? " (" : "",
                    refusal->address,
                    refusal->name[0] && refusal->address[0] ? ")" : "");

    more[0] = '\0';

    if (refusal->more != 0) {
        (void) snprintf(more, sizeof(more), ", %u more before it",
                        refusal->more);
    }

    sbx_log(SBX_LOG_NOTICE, &(sbx_log_about_t) { NULL, s->info.id }, 0,
            "the egress refuses %s port %u: %s%s",
            where[0] != '\0' ? where : "a connection", refusal->port,
            sbx_refused_word(refusal->reason), more);
}


void
sbx_way_listen(sbx_broker_t *b, sbx_call_out_t *call, const void *body)
{
    (void) body;

    if (sbx_call_frame(call, SBX_F_ACCEPTED, NULL, 0, NULL, 0) == 0) {
        sbx_call_wait(call, &b->outlet.listeners);
        sbx_call_push(call);
    }
}
