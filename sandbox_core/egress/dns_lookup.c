/*
 * Lookups of sessions: an answer that is kept, one that is on its way already,
 * or a question of ours.
 *
 * A lookup lives until the resolver has answered or given up, which is longer
 * than a program waits: those who wait are told in time that it has failed,
 * and whoever asks after that gets the answer when it comes.  It may outlive
 * its session; then it has none.
 */

#include "dns.h"
#include "sandbox_fault.h"

#include <string.h>


#define SBX_DNS_WAIT         3500     /* ms: libc's second try is then over */
#define SBX_DNS_WAITING      64       /* queries, of a session */
#define SBX_DNS_LOOKUPS      64
#define SBX_DNS_NEW_RATE     20       /* names that are new, a second */
#define SBX_DNS_NEW_BURST    60


struct sbx_dns_lookup_s {
    sbx_node_t           node;
    sbx_eg_session_t    *session;     /* NULL: it has ended */
    sbx_node_t           waiters;
    sbx_timer_t          timer;       /* set while there are any */
    uint16_t             type;
    char                 name[SBX_NETWORK_HOST_MAX + 3];
};

typedef struct {
    sbx_node_t           node;
    sbx_dns_from_t       from;
    sbx_dns_query_t      query;
} sbx_dns_waiter_t;


static sbx_dns_lookup_t *sbx_dns_lookup_find(const sbx_eg_session_t *s,
    const sbx_dns_query_t *q);
static int sbx_dns_known(const sbx_eg_session_t *s, const char *name);
static sbx_dns_lookup_t *sbx_dns_lookup_make(sbx_eg_session_t *s,
    const sbx_dns_query_t *q);
static int sbx_dns_lookup_wait(sbx_dns_lookup_t *lookup,
    const sbx_dns_from_t *from, const sbx_dns_query_t *q);
static int sbx_dns_lookup_again(const sbx_dns_lookup_t *lookup,
    const sbx_dns_from_t *from, const sbx_dns_query_t *q);
static void sbx_dns_lookup_done(void *data, const uint8_t *p, size_t n);
static void sbx_dns_lookup_late(sbx_timer_t *timer);
static void sbx_dns_lookup_answer(sbx_dns_lookup_t *lookup,
    sbx_dns_code_t code, const sbx_dns_answer_t *answer);
static sbx_dns_code_t sbx_dns_given(sbx_eg_session_t *s, const char *name,
    unsigned type, const sbx_dns_answer_t *answer, sbx_dns_answer_t *given);
static int sbx_dns_give(sbx_eg_session_t *s, const uint8_t from[16],
    uint8_t to[16]);
static void sbx_dns_waiter_free(sbx_eg_session_t *s,
    sbx_dns_waiter_t *waiter);
static void sbx_dns_too_many(sbx_eg_session_t *s, const sbx_dns_from_t *from,
    const sbx_dns_query_t *q);


#define sbx_dns_waiter_of(p)   sbx_node_of(p, sbx_dns_waiter_t, node)
#define sbx_dns_lookup_of(p)   sbx_node_of(p, sbx_dns_lookup_t, node)


void
sbx_dns_lookup(sbx_eg_session_t *s, const sbx_dns_from_t *from,
    const sbx_dns_query_t *q)
{
    int                made;
    sbx_eg_dns_t      *dns;
    sbx_dns_code_t     code;
    sbx_dns_answer_t   answer, given;
    sbx_dns_lookup_t  *lookup;

    dns = s->dns;

    if (sbx_dns_cache_get(&dns->cache, q->name, q->type, &answer)) {
        code = sbx_dns_given(s, q->name, q->type, &answer, &given);
        sbx_dns_send(s, from, q, code, &given);
        return;
    }

    lookup = sbx_dns_lookup_find(s, q);

    if (lookup && sbx_dns_lookup_again(lookup, from, q)) {
        return;
    }

    if (dns->waiting >= SBX_DNS_WAITING) {
        sbx_dns_too_many(s, from, q);
        return;
    }

    made = lookup == NULL;

    if (made) {

        if (dns->nlookups >= SBX_DNS_LOOKUPS
            || (!sbx_dns_known(s, q->name)
                && !sbx_eg_bucket_take(&dns->names, SBX_DNS_NEW_RATE,
                                        SBX_DNS_NEW_BURST)))
        {
            sbx_dns_too_many(s, from, q);
            return;
        }

        lookup = sbx_dns_lookup_make(s, q);
    }

    if (lookup == NULL || sbx_dns_lookup_wait(lookup, from, q) == -1) {
        sbx_dns_send(s, from, q, SBX_DNS_SERVFAIL, NULL);
    }

    /* it may be over, and gone, when this returns */

    if (made && lookup) {
        sbx_eg_resolve(s->egress, lookup->name, lookup->type,
                       sbx_dns_lookup_done, lookup);
        SBX_FAULT("egress-dns-asked");
    }
}


void
sbx_dns_lookups_close(sbx_eg_session_t *s)
{
    sbx_node_t        *node;
    sbx_dns_lookup_t  *lookup;

    while (!sbx_list_empty(&s->dns->lookups)) {
        lookup = sbx_dns_lookup_of(s->dns->lookups.next);
        sbx_timer_del(&s->egress->loop, &lookup->timer);

        while (!sbx_list_empty(&lookup->waiters)) {
            node = lookup->waiters.next;
            sbx_dns_waiter_free(s, sbx_dns_waiter_of(node));
        }

        sbx_list_remove(&lookup->node);
        lookup->session = NULL;
    }

    s->dns->nlookups = 0;
}


void
sbx_dns_lookup_forget(sbx_eg_session_t *s, const sbx_dns_conn_t *conn)
{
    sbx_node_t        *node, *wait, *next;
    sbx_dns_lookup_t  *lookup;
    sbx_dns_waiter_t  *waiter;

    for (node = s->dns->lookups.next; node != &s->dns->lookups;
         node = node->next)
    {
        lookup = sbx_dns_lookup_of(node);

        for (wait = lookup->waiters.next; wait != &lookup->waiters;
             wait = next)
        {
            next = wait->next;
            waiter = sbx_dns_waiter_of(wait);

            if (waiter->from.conn == conn) {
                sbx_dns_waiter_free(s, waiter);
            }
        }
    }
}


static sbx_dns_lookup_t *
sbx_dns_lookup_find(const sbx_eg_session_t *s, const sbx_dns_query_t *q)
{
    sbx_node_t        *node;
    sbx_dns_lookup_t  *lookup;

    for (node = s->dns->lookups.next; node != &s->dns->lookups;
         node = node->next)
    {
        lookup = sbx_dns_lookup_of(node);

        if (lookup->type == q->type && strcmp(lookup->name, q->name) == 0) {
            return lookup;
        }
    }

    return NULL;
}


/* Asked for before; of another type, perhaps, and a moment ago. */

static int
sbx_dns_known(const sbx_eg_session_t *s, const char *name)
{
    sbx_node_t  *node;

    for (node = s->dns->lookups.next; node != &s->dns->lookups;
         node = node->next)
    {
        if (strcmp(sbx_dns_lookup_of(node)->name, name) == 0) {
            return 1;
        }
    }

    return sbx_dns_cache_knows(&s->dns->cache, name);
}


static sbx_dns_lookup_t *
sbx_dns_lookup_make(sbx_eg_session_t *s, const sbx_dns_query_t *q)
{
    sbx_dns_lookup_t  *lookup;

    lookup = calloc(1, sizeof(sbx_dns_lookup_t));

    if (lookup == NULL) {
        return NULL;
    }

    lookup->session = s;
    lookup->type = q->type;
    memcpy(lookup->name, q->name, sizeof(lookup->name));
    sbx_list_init(&lookup->waiters);
    lookup->timer.handler = sbx_dns_lookup_late;
    lookup->timer.data = lookup;

    sbx_list_append(&s->dns->lookups, &lookup->node);
    s->dns->nlookups++;

    return lookup;
}


static int
sbx_dns_lookup_wait(sbx_dns_lookup_t *lookup, const sbx_dns_from_t *from,
    const sbx_dns_query_t *q)
{
    sbx_eg_session_t  *s;
    sbx_dns_waiter_t  *waiter;

    s = lookup->session;
    waiter = malloc(sizeof(sbx_dns_waiter_t));

    if (waiter == NULL) {
        return -1;
    }

    if (sbx_list_empty(&lookup->waiters)) {
        sbx_timer_set(&s->egress->loop, &lookup->timer, SBX_DNS_WAIT);
    }

    waiter->from = *from;
    waiter->query = *q;
    sbx_list_append(&lookup->waiters, &waiter->node);
    s->dns->waiting++;

    return 0;
}


/* 1: the very query that is waiting, sent once more. */

static int
sbx_dns_lookup_again(const sbx_dns_lookup_t *lookup,
    const sbx_dns_from_t *from, const sbx_dns_query_t *q)
{
    sbx_node_t              *node;
    const sbx_dns_waiter_t  *waiter;

    for (node = lookup->waiters.next; node != &lookup->waiters;
         node = node->next)
    {
        waiter = sbx_dns_waiter_of(node);

        if (waiter->query.id == q->id && from->conn == NULL
            && waiter->from.conn == NULL && waiter->from.fd == from->fd
            && waiter->from.len == from->len
            && memcmp(&waiter->from.peer, &from->peer, from->len) == 0)
        {
            return 1;
        }
    }

    return 0;
}


static void
sbx_dns_lookup_done(void *data, const uint8_t *p, size_t n)
{
    sbx_dns_code_t     code;
    sbx_dns_answer_t   answer, given;
    sbx_eg_session_t  *s;
    sbx_dns_lookup_t  *lookup = data;

    s = lookup->session;
    SBX_FAULT("egress-dns-answered");

    if (s == NULL) {
        free(lookup);
        return;
    }

    /* what is asked from here on is another lookup */

    sbx_list_remove(&lookup->node);
    s->dns->nlookups--;
    sbx_timer_del(&s->egress->loop, &lookup->timer);

    if (p == NULL
        || sbx_dns_answer_parse(p, n, lookup->name, lookup->type, &answer)
           == -1)
    {
        sbx_dns_lookup_answer(lookup, SBX_DNS_SERVFAIL, NULL);

    } else {
        sbx_dns_cache_put(&s->dns->cache, lookup->name, lookup->type,
                          &answer);

        /* asked for before rules have changed, perhaps */

        if (!sbx_list_empty(&lookup->waiters)) {
            code = sbx_dns_given(s, lookup->name, lookup->type, &answer,
                                 &given);
            sbx_dns_lookup_answer(lookup, code, &given);
        }
    }

    free(lookup);
}


static void
sbx_dns_lookup_late(sbx_timer_t *timer)
{
    sbx_dns_lookup_answer(timer->data, SBX_DNS_SERVFAIL, NULL);
}


/*
 * A connection that gets its answer may ask the next at once, and go: what
 * waits is taken off one by one.
 */

static void
sbx_dns_lookup_answer(sbx_dns_lookup_t *lookup, sbx_dns_code_t code,
    const sbx_dns_answer_t *answer)
{
    sbx_node_t         waiters, *node;
    sbx_eg_session_t  *s;
    sbx_dns_waiter_t  *waiter;

    s = lookup->session;
    sbx_list_init(&waiters);

    while (!sbx_list_empty(&lookup->waiters)) {
        node = lookup->waiters.next;
        sbx_list_remove(node);
        sbx_list_append(&waiters, node);
    }

    while (!sbx_list_empty(&waiters)) {
        waiter = sbx_dns_waiter_of(waiters.next);
        sbx_dns_send(s, &waiter->from, &waiter->query, code, answer);
        sbx_dns_waiter_free(s, waiter);
    }
}


/*
 * What a session is given of an answer, and is noted to have been given.  A
 * name whose addresses are all out of reach does not exist; but that its IPv6
 * addresses are must not hide those of IPv4 from libraries that take it so.
 */

static sbx_dns_code_t
sbx_dns_given(sbx_eg_session_t *s, const char *name, unsigned type,
    const sbx_dns_answer_t *answer, sbx_dns_answer_t *given)
{
    unsigned       i;
    sbx_refused_t  why;

    given->n = 0;
    given->ttl = answer->ttl;
    given->code = answer->code;

    if (answer->n == 0) {
        return (sbx_dns_code_t) answer->code;
    }

    if (sbx_eg_decide_name(s, name, 0, &why) != 0) {
        return SBX_DNS_NXDOMAIN;
    }

    for (i = 0; i < answer->n; i++) {

        if (sbx_dns_give(s, answer->address[i], given->address[given->n])) {
            given->n++;
            sbx_eg_names_add(s, name, answer->address[i], answer->ttl);
        }
    }

    if (given->n) {
        return SBX_DNS_NOERROR;
    }

    sbx_eg_refused(s, SBX_REFUSED_ADDRESS, answer->address[0], 0, name);

    return type == SBX_DNS_A ? SBX_DNS_NXDOMAIN : SBX_DNS_NOERROR;
}


/*
 * 127/8 is the session's own in a session: the host's is seen at 240/8, which
 * is nobody else's.  ::1 is nowhere.
 */

static int
sbx_dns_give(sbx_eg_session_t *s, const uint8_t from[16], uint8_t to[16])
{
    static const uint8_t  mapped[12] = {
        0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff
    };
    static const uint8_t  loopback6[16] = {
        0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1
    };

    memcpy(to, from, 16);

    if (memcmp(from, loopback6, 16) == 0) {
        return 0;
    }

    if (memcmp(from, mapped, 12) == 0) {

        if (from[12] >= 240) {
            return 0;
        }

        if (from[12] == 127) {
            to[12] = 240;
        }
    }

    return sbx_eg_decide_answer(s, from) == 1;
}


static void
sbx_dns_waiter_free(sbx_eg_session_t *s, sbx_dns_waiter_t *waiter)
{
    sbx_list_remove(&waiter->node);
    s->dns->waiting--;
    free(waiter);
}


static void
sbx_dns_too_many(sbx_eg_session_t *s, const sbx_dns_from_t *from,
    const sbx_dns_query_t *q)
{
    sbx_eg_refused(s, SBX_REFUSED_LIMIT, NULL, SBX_DNS_PORT, q->name);
    sbx_dns_send(s, from, q, SBX_DNS_REFUSED, NULL);
}
