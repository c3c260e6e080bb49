/*
 * The egress: the only way out of a session.  One unprivileged process of one
 * thread for all sessions of a node; sockets that are in the sessions' network
 * namespaces come to it from the broker, sockets to the world are its own.
 * Nothing here waits: not for a session, a server, a resolver or the broker.
 */

#ifndef SBX_EGRESS_H
#define SBX_EGRESS_H

#include "egress_wire.h"
#include "list.h"
#include "loop.h"
#include "trial.h"
#include "sandbox_util.h"


#define SBX_EG_BUCKETS       1024
#define SBX_EG_LISTENERS     4         /* TCP, UDP of IPv4; of IPv6 */
#define SBX_EG_FIRST_MAX     65536     /* bytes of a client that are held
                                          until its connection is judged */
#define SBX_EG_JUDGE_WAIT    10000     /* ms for them */


typedef struct sbx_egress_s      sbx_egress_t;
typedef struct sbx_eg_session_s  sbx_eg_session_t;
typedef struct sbx_eg_policy_s   sbx_eg_policy_t;
typedef struct sbx_eg_header_s   sbx_eg_header_t;
typedef struct sbx_eg_names_s    sbx_eg_names_t;      /* names.c */
typedef struct sbx_eg_dns_s      sbx_eg_dns_t;        /* dns.c */
typedef struct sbx_eg_resolver_s  sbx_eg_resolver_t;  /* resolve.c */
typedef struct sbx_eg_tls_s      sbx_eg_tls_t;        /* tls.c */
typedef struct sbx_eg_addresses_s  sbx_eg_addresses_t;  /* addresses.c */
typedef struct sbx_eg_relay_s    sbx_eg_relay_t;      /* relay.c */


/*
 * ---- what the operator says ---------------------------------------------
 */

struct sbx_eg_header_s {
    char       host[SBX_NETWORK_HOST_MAX + 3];    /* lower case */
    char       name[128];                         /* a header's */
    char      *value;             /* cleared before it is freed */
    size_t     size;
    unsigned   tls:1;             /* in TLS too */
};

/* Of a template; counted, as sessions and connections hold it. */
struct sbx_eg_policy_s {
    char                 template[SBX_TEMPLATE_MAX];    /* "": all others */
    unsigned             users;
    unsigned             private:1;     /* private addresses are as others */
    sbx_network_list_t   rules;
    sbx_eg_header_t     *headers;
    size_t               nheaders;
};


/*
 * ---- sessions ------------------------------------------------------------
 */

/* Of what is counted: so many a second. */
typedef struct {
    uint64_t             at;             /* us; 0: full */
    uint64_t             left;           /* millionths */
} sbx_eg_bucket_t;

/* What it costs to serve a session: see cost.c; all in us. */
typedef struct {
    sbx_timer_t          timer;          /* of what cut says */
    uint64_t             exact_until;
    uint64_t             since;          /* the window's begin */
    uint64_t             all;            /* of calls in it */
    uint64_t             excess;         /* of those that were slow */
    uint64_t             ended;          /* when it was left alone last */
    unsigned             slow;
    sbx_trial_t          trial;
    unsigned             level;
    unsigned             cut:1;          /* it is left alone */
    unsigned             told:1;         /* and that is told */
    unsigned             closed:1;       /* and has no connections */
} sbx_eg_cost_t;

typedef struct {
    uint64_t             at;
    uint64_t             waited;
    unsigned             exact:1;
} sbx_eg_span_t;

struct sbx_eg_session_s {
    sbx_egress_t        *egress;
    sbx_eg_session_t    *next;           /* same bucket */
    char                 id[SBX_ID_MAX + 8];
    char                 template[SBX_TEMPLATE_MAX];
    sbx_network_mode_t   mode;
    sbx_network_list_t   rules;          /* its own */
    sbx_eg_policy_t     *policy;         /* the operator's; NULL: nothing */
    uint64_t             connections;    /* limits */
    uint64_t             rate;
    uint64_t             bytes;
    sbx_traffic_t       *traffic;        /* shared with the broker */
    int                  fds[SBX_EG_LISTENERS];   /* -1 where there is none */
    sbx_event_t          events[SBX_EG_LISTENERS];
    sbx_node_t           conns;
    sbx_eg_names_t      *names;          /* dns.c's and names.c's */
    sbx_eg_dns_t        *dns;
    uint64_t             credit;         /* bytes that it may move now */
    uint64_t             credit_at;
    sbx_timer_t          credit_timer;
    sbx_node_t           waiting;        /* connections, for credit */
    unsigned             nwaiting;
    size_t               share;          /* of each, while they are served */
    sbx_eg_bucket_t      openings;       /* of TLS: see look.c */
    uint64_t             told_at;        /* refusals: see tell.c */
    unsigned             told;
    unsigned             untold;
    sbx_eg_cost_t        cost;
};

struct sbx_egress_s {
    sbx_loop_t           loop;
    int                  control;
    sbx_event_t          control_event;
    sbx_eg_session_t    *buckets[SBX_EG_BUCKETS];
    size_t               nsessions;
    sbx_eg_policy_t    **policies;
    size_t               npolicies;
    sbx_eg_resolver_t   *dns;            /* whom we ask */
    sbx_eg_tls_t        *tls;
    sbx_eg_addresses_t  *addresses;
    sbx_eg_relay_t      *relay;
    int                  waited;         /* a file; 0, -1: none */
    sbx_trial_probe_t    probe;
    sbx_egress_record_t  configured;     /* an answer that waits for room */
};


/*
 * ---- judgement: decide.c ---------------------------------------------------
 */

typedef enum {
    SBX_EG_REFUSE,
    SBX_EG_ALLOW,                 /* whatever is said there */
    SBX_EG_BY_NAME                /* if what it names, where it names
                                     something, is allowed and was looked up */
} sbx_eg_verdict_t;

/* Before a connection is made; why is set where it is refused. */
sbx_eg_verdict_t sbx_eg_decide(sbx_eg_session_t *s, const uint8_t address[16],
    unsigned port, sbx_refused_t *why);
/* Whether a name may be looked up, or be what a TLS or HTTP client names (port
 * 0: looked up).  0, or 1 and why. */
int sbx_eg_decide_name(sbx_eg_session_t *s, const char *host, unsigned port,
    sbx_refused_t *why);
/*
 * Of a connection BY_NAME, and of every one whose session has rules that deny
 * names: what its client has named.  0 allowed; 1 and why.
 */
int sbx_eg_decide_named(sbx_eg_session_t *s, const uint8_t address[16],
    unsigned port, const char *host, sbx_refused_t *why);
/* An answer of a resolver: whether the session may be given the address. */
int sbx_eg_decide_answer(sbx_eg_session_t *s, const uint8_t address[16]);
/* The header that requests to host get; tls: within TLS. */
const sbx_eg_header_t *sbx_eg_header(const sbx_eg_session_t *s,
    const char *host, int tls);

/* addresses.c: the host's own, kept current. */
int sbx_eg_addresses_open(sbx_egress_t *eg, sbx_error_t *e);
int sbx_eg_addresses_own(sbx_egress_t *eg, const uint8_t address[16]);
/* 1: there is a way to public IPv6 addresses. */
int sbx_eg_addresses_ipv6(sbx_egress_t *eg);
void sbx_eg_addresses_close(sbx_egress_t *eg);


/*
 * ---- names: names.c -------------------------------------------------------
 *
 * What was looked up for a session: names and the addresses that its answers
 * had.  An address is a name's for as long as the answer said, and for two
 * minutes at least (programs keep what they were told).
 */

int sbx_eg_names_open(sbx_eg_session_t *s);
void sbx_eg_names_close(sbx_eg_session_t *s);
/* An answer that the session gets; ttl in seconds. */
void sbx_eg_names_add(sbx_eg_session_t *s, const char *host,
    const uint8_t address[16], uint32_t ttl);
/* The names that an address has now, one after the other; *at begins at 0;
 * NULL: no more. */
const char *sbx_eg_names_next(sbx_eg_session_t *s, const uint8_t address[16],
    size_t *at);
/* 1: host was looked up and has that address. */
int sbx_eg_names_has(sbx_eg_session_t *s, const char *host,
    const uint8_t address[16]);


/*
 * ---- DNS: dns.c (what sessions ask), resolve.c (whom we ask) -------------
 */

int sbx_eg_dns_open(sbx_egress_t *eg, sbx_error_t *e);
/* The operator's resolvers, or those of a resolv.conf.  0 or -1: what is in
 * use stays so. */
int sbx_eg_dns_configure(sbx_egress_t *eg, const void *table, size_t size,
    const char *resolv_conf, size_t resolv_size, sbx_error_t *e);
/* s->fds[1] and s->fds[3] (UDP); their events are dns.c's. */
int sbx_eg_dns_session_open(sbx_eg_session_t *s, sbx_error_t *e);
void sbx_eg_dns_session_close(sbx_eg_session_t *s);
/* Its questions are taken, or wait in its sockets: s->cost.cut says so.  What
 * is open over TCP is closed where they wait. */
void sbx_eg_dns_session_listen(sbx_eg_session_t *s);
/* A connection to port 53, whoever is at the other end of it; fd is taken
 * over. */
void sbx_eg_dns_accept(sbx_eg_session_t *s, int fd);
void sbx_eg_dns_close(sbx_egress_t *eg);


/*
 * ---- what goes by: conn.c, relay.c ----------------------------------------
 */

/* s->fds[0] and s->fds[2] (TCP). */
int sbx_eg_conn_listen(sbx_eg_session_t *s, sbx_error_t *e);
void sbx_eg_conn_close_all(sbx_eg_session_t *s);
/* Judges all of a session's connections again and cuts what is refused. */
void sbx_eg_conn_review(sbx_eg_session_t *s);
/* cost.timer's handler. */
void sbx_eg_conn_costs(sbx_timer_t *timer);
/* Connections of the session, now. */
size_t sbx_eg_conn_count(const sbx_eg_session_t *s);
/*
 * Bytes that the session may move now, 0: none before s->credit_timer, or
 * ever.  What was moved is taken by _spend() (sent: by the session).
 */
size_t sbx_eg_conn_credit(sbx_eg_session_t *s, size_t wanted);
void sbx_eg_conn_spend(sbx_eg_session_t *s, size_t n, int sent);
/* 1: one more. */
int sbx_eg_bucket_take(sbx_eg_bucket_t *bucket, unsigned rate,
    unsigned burst);

/*
 * cost.c.  Around each call that may send something to a session; errno stays
 * what the call made it.  bytes: that it has moved, or what else it returned.
 * Beyond what is bearable cost.cut is set, and cost.timer, whose handler is
 * the connections': nothing is to be sent to the session any more.
 */
void sbx_eg_cost_open(sbx_egress_t *eg);
void sbx_eg_cost_close(sbx_egress_t *eg);
sbx_eg_span_t sbx_eg_cost_begin(const sbx_eg_session_t *s);
void sbx_eg_cost_end(sbx_eg_session_t *s, const sbx_eg_span_t *span,
    ssize_t bytes);
/* It is to be left alone: for so many ms. */
uint64_t sbx_eg_cost_cut(sbx_eg_cost_t *cost);
void sbx_eg_cost_over(sbx_eg_cost_t *cost);

/* tell.c: a refusal, to the traffic page, the log and the broker. */
void sbx_eg_refused(sbx_eg_session_t *s, sbx_refused_t why,
    const uint8_t *address, unsigned port, const char *name);


/* config.c: fds stay the caller's. */
int sbx_eg_config(sbx_egress_t *eg, const sbx_egress_task_t *task, int *fds,
    unsigned nfds, char name[SBX_NETWORK_HOST_MAX + 3], sbx_error_t *e);
sbx_eg_policy_t *sbx_eg_policy_of(sbx_egress_t *eg, const char *template);
void sbx_eg_policy_release(sbx_eg_policy_t *policy);

/*
 * egress.c: until nobody has the other end of control; the exit status.  ca
 * and cert are closed once they are read.  confine (NULL: none) is called when
 * everything is open that has to be opened, before anybody is told that it
 * runs.
 */
int sbx_egress_run(int control, int ca, int cert,
    int (*confine)(sbx_error_t *e));
sbx_eg_session_t *sbx_eg_session_find(sbx_egress_t *eg, const char *id);


#endif
