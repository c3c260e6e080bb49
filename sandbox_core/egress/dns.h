/*
 * DNS, within the egress: messages (message.c), answers that are kept
 * (dns_cache.c), whom we ask (resolve.c), what is asked (dns_lookup.c) and how
 * it comes and goes (dns.c, dns_tcp.c).
 */

#ifndef SBX_EG_DNS_H
#define SBX_EG_DNS_H

#include "egress.h"
#include "table.h"

#include <netinet/in.h>
#include <sys/socket.h>


#define SBX_DNS_PORT         53
#define SBX_DNS_ADDRESSES    32       /* of one answer */
#define SBX_DNS_CHAIN        16       /* CNAMEs of one */
#define SBX_DNS_TTL          3600     /* seconds, at most */
#define SBX_DNS_NEGATIVE     60
#define SBX_DNS_PLAIN        512      /* bytes over UDP */
#define SBX_DNS_EDNS         1232     /* with EDNS0 */
#define SBX_DNS_WIRE_MAX     255      /* of a name in a message */
#define SBX_DNS_QUERY_MAX    2048     /* of a session's, with all options */
#define SBX_DNS_REPLY_MAX    1280     /* holds every answer, whole */


typedef enum {
    SBX_DNS_A = 1,
    SBX_DNS_CNAME = 5,
    SBX_DNS_SOA = 6,
    SBX_DNS_PTR = 12,
    SBX_DNS_AAAA = 28,
    SBX_DNS_OPT = 41,
    SBX_DNS_SVCB = 64,
    SBX_DNS_HTTPS = 65
} sbx_dns_type_t;

typedef enum {
    SBX_DNS_NOERROR = 0,
    SBX_DNS_FORMERR,
    SBX_DNS_SERVFAIL,
    SBX_DNS_NXDOMAIN,
    SBX_DNS_NOTIMP,
    SBX_DNS_REFUSED
} sbx_dns_code_t;


/*
 * ---- messages: message.c ---------------------------------------------------
 */

typedef struct {
    uint16_t   id;
    uint16_t   flags;                 /* opcode, RD, CD */
    uint16_t   type;
    uint16_t   class;
    uint16_t   size;                  /* of an answer over UDP */
    uint16_t   len;                   /* of .question; 0: there is none */
    uint8_t    edns;
    uint8_t    question[SBX_DNS_WIRE_MAX + 5];      /* as it was asked */
    char       name[SBX_NETWORK_HOST_MAX + 3];      /* lower case */
} sbx_dns_query_t;

typedef struct {
    uint8_t    code;                  /* NOERROR, NXDOMAIN */
    uint16_t   n;
    uint32_t   ttl;                   /* of them, or of there being none */
    uint8_t    address[SBX_DNS_ADDRESSES][16];
} sbx_dns_answer_t;

/* 0; a code that it is to be answered with; -1: not to be answered. */
int sbx_dns_query_parse(const uint8_t *p, size_t n, sbx_dns_query_t *q);
/* The answer's bytes, at most size (12 at least); what does not fit is cut
 * and TC set.  answer may be NULL. */
size_t sbx_dns_reply(const sbx_dns_query_t *q, sbx_dns_code_t code,
    const sbx_dns_answer_t *answer, uint8_t *buf, size_t size);

/* What we ask; buf: SBX_DNS_PLAIN.  name is one of a query. */
size_t sbx_dns_ask(const char *name, unsigned type, unsigned id,
    uint8_t *buf);
/*
 * What a resolver says to that: follows its CNAMEs in their order.  -1: it is
 * none, or a failure.
 */
int sbx_dns_answer_parse(const uint8_t *p, size_t n, const char *name,
    unsigned type, sbx_dns_answer_t *answer);


/*
 * ---- what is kept of a session's answers: dns_cache.c ----------------------
 */

typedef struct {
    sbx_eg_key_t     key;
    sbx_eg_table_t   table;
    sbx_node_t       used;            /* the one that is not, for longest, is
                                         first */
} sbx_dns_cache_t;

int sbx_dns_cache_open(sbx_dns_cache_t *cache);
void sbx_dns_cache_close(sbx_dns_cache_t *cache);
void sbx_dns_cache_put(sbx_dns_cache_t *cache, const char *name,
    unsigned type, const sbx_dns_answer_t *answer);
/* 1: answer is filled, its ttl is what is left. */
int sbx_dns_cache_get(sbx_dns_cache_t *cache, const char *name,
    unsigned type, sbx_dns_answer_t *answer);
/* 1: the name has been asked for, whether its answer still holds or not. */
int sbx_dns_cache_knows(const sbx_dns_cache_t *cache, const char *name);


/*
 * ---- whom we ask: resolve.c ------------------------------------------------
 */

typedef void (*sbx_eg_resolved_t)(void *data, const uint8_t *p, size_t n);

/* handler is called once, perhaps before this returns; p is NULL where there
 * is no answer. */
void sbx_eg_resolve(sbx_egress_t *eg, const char *name, unsigned type,
    sbx_eg_resolved_t handler, void *data);


/*
 * ---- sessions: dns.c, dns_lookup.c, dns_tcp.c ------------------------------
 */

typedef struct sbx_dns_conn_s    sbx_dns_conn_t;
typedef struct sbx_dns_lookup_s  sbx_dns_lookup_t;

/* Whom an answer goes to. */
typedef struct {
    sbx_dns_conn_t      *conn;        /* NULL: UDP */
    int                  fd;
    socklen_t            len;
    union {
        struct sockaddr      any;
        struct sockaddr_in   in;
        struct sockaddr_in6  in6;
    }                    peer;
} sbx_dns_from_t;

struct sbx_eg_dns_s {
    sbx_dns_cache_t      cache;
    sbx_eg_bucket_t      queries;
    sbx_eg_bucket_t      names;
    sbx_eg_bucket_t      excess;      /* queries that are refused for it */
    sbx_timer_t          rest;        /* set: its sockets are not read */
    sbx_node_t           lookups;
    unsigned             nlookups;
    unsigned             waiting;     /* for their answers */
    sbx_node_t           conns;
    unsigned             nconns;
};

/* A message of a session.  0: it is answered, or will be; -1: never. */
int sbx_dns_take(sbx_eg_session_t *s, const sbx_dns_from_t *from,
    const uint8_t *p, size_t n);
void sbx_dns_send(sbx_eg_session_t *s, const sbx_dns_from_t *from,
    const sbx_dns_query_t *q, sbx_dns_code_t code,
    const sbx_dns_answer_t *answer);

/* An allowed name's A or AAAA. */
void sbx_dns_lookup(sbx_eg_session_t *s, const sbx_dns_from_t *from,
    const sbx_dns_query_t *q);
void sbx_dns_lookups_close(sbx_eg_session_t *s);
/* A connection goes: nothing is to be sent to it any more. */
void sbx_dns_lookup_forget(sbx_eg_session_t *s, const sbx_dns_conn_t *conn);

void sbx_dns_conn_reply(sbx_dns_conn_t *conn, const uint8_t *p, size_t n);
void sbx_dns_conns_close(sbx_eg_session_t *s);


#endif
