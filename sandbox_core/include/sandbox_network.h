/*
 * What a session may reach: rules of the operator and of the session, how
 * both are written, checked and read.  Worker, broker and egress.
 *
 * A rule is "HOST[:PORT]", "*.HOST[:PORT]" (names below HOST, not HOST),
 * "*[:PORT]" (everything that is public), "ADDRESS[:PORT]" or
 * "ADDRESS/BITS[:PORT]"; an IPv6 address with a port stands in brackets.
 */

#ifndef SANDBOX_NETWORK_H
#define SANDBOX_NETWORK_H

#include "sandbox_error.h"

#include <stddef.h>


#define SBX_NETWORK_RULES_MAX    256      /* of a session */
#define SBX_NETWORK_SIZE         32768    /* bytes of a session's rules */
#define SBX_NETWORK_HOST_MAX     253      /* of a name, without its NUL */
#define SBX_NETWORK_TEXT_MAX     320      /* a rule as text, with its NUL */
#define SBX_EGRESS_SIZE          65536    /* bytes of the operator's table */
#define SBX_EGRESS_VALUES_MAX    32       /* headers with a value */
#define SBX_EGRESS_VALUE_MAX     8192     /* bytes of a value */


typedef enum {
    SBX_NETWORK_NONE,             /* lo alone */
    SBX_NETWORK_ALL,              /* whatever the operator allows */
    SBX_NETWORK_LISTS             /* that, narrowed by rules */
} sbx_network_mode_t;

typedef enum {
    SBX_NETWORK_HOST,             /* one name */
    SBX_NETWORK_BELOW,            /* names below one */
    SBX_NETWORK_ANY,              /* every name, every public address */
    SBX_NETWORK_NET               /* addresses */
} sbx_network_kind_t;

typedef struct {
    uint8_t    kind;              /* sbx_network_kind_t */
    uint8_t    deny;
    uint16_t   port;              /* host order; 0: every one */
    uint8_t    bits;              /* NET: of .address, 0 .. 128 */
    uint8_t    pad[3];
    uint8_t    address[16];       /* NET: IPv4 as ::ffff:a.b.c.d, its bits
                                     are 96 more; those past .bits are 0 */
    char       host[SBX_NETWORK_HOST_MAX + 3];   /* lower case, no dot at its
                                     end; of BELOW without "*." */
} sbx_network_rule_t;


/*
 * Reads one rule; .deny is 0.  Host names are ASCII ("xn--" for others), of
 * LDH labels and '_', 253 bytes at most; what looks like an address and is
 * none ("1.2.3", "0x7f.1", "127.1") is refused, and so are host bits beyond a
 * prefix.  -1: SBX_E_INVALID; the text says what is wrong and what fits, and
 * names no field.
 */
int sbx_network_rule_parse(const char *s, size_t len,
    sbx_network_rule_t *rule, sbx_error_t *e);
/* The one form that a rule has; its length.  buf: SBX_NETWORK_TEXT_MAX. */
size_t sbx_network_rule_print(const sbx_network_rule_t *rule, char *buf);
/* 1: all that inner names is named by outer too (.deny is not looked at). */
int sbx_network_rule_within(const sbx_network_rule_t *inner,
    const sbx_network_rule_t *outer);

/* A name as DNS has it, without a dot at its end: 1 if a rule may name it.
 * Writes it in lower case to out (SBX_NETWORK_HOST_MAX + 1), if not NULL. */
int sbx_network_host_ok(const char *s, size_t len, char *out);


/*
 * ---- a session's rules: records of 'a' (allow) or 'd' (deny), then the
 * rule's text with its NUL.  No allow: all that the operator allows.  An 'f'
 * with an empty text, first: what is allowed is an exception to what is
 * denied, and what neither names is as without rules (otherwise denials come
 * first, and what no allow names is refused).
 */

/* 0, or -1: SBX_E_INVALID for what no worker of ours has written. */
int sbx_network_check(const void *rules, size_t size, sbx_error_t *e);
/* 1, 0 at the end, -1 where what follows is no record.  *at begins at 0.
 * rule may be NULL.  text points into rules. */
int sbx_network_next(const void *rules, size_t size, size_t *at,
    char *type, const char **text, sbx_network_rule_t *rule);


typedef struct {
    sbx_network_rule_t  *rules;
    size_t               n;
    unsigned             allows:1;      /* what none allows is refused */
    unsigned             allow_first:1;
} sbx_network_list_t;

/* What rules say; checked before.  -1: out of memory. */
int sbx_network_list(const void *rules, size_t size,
    sbx_network_list_t *list, sbx_error_t *e);
void sbx_network_list_free(sbx_network_list_t *list);


typedef enum {
    SBX_NETWORK_SILENT,           /* no rule is about it */
    SBX_NETWORK_ALLOWED,
    SBX_NETWORK_DENIED
} sbx_network_say_t;

/* host is lower case without a dot at its end; port 0: some port (for DNS). */
sbx_network_say_t sbx_network_say_host(const sbx_network_list_t *list,
    const char *host, unsigned port);
/* By rules of addresses, and ANY: one that allows where the address is
 * public, one that denies always. */
sbx_network_say_t sbx_network_say_address(const sbx_network_list_t *list,
    const uint8_t address[16], unsigned port);
/* 1: a rule allows the address that lies, as a whole, within the special
 * block (sbx_network_class()) that the address is in: one that means it. */
int sbx_network_means(const sbx_network_list_t *list,
    const uint8_t address[16], unsigned port);


typedef enum {
    SBX_NETWORK_PUBLIC,
    SBX_NETWORK_PRIVATE,          /* 10/8, 172.16/12, 192.168/16, 100.64/10,
                                     fc00::/7, fec0::/10, 198.18/15 */
    SBX_NETWORK_LOOPBACK,         /* 127/8, ::1 */
    SBX_NETWORK_LINK_LOCAL,       /* 169.254/16, fe80::/10 */
    SBX_NETWORK_METADATA,         /* of clouds: 169.254.169.254,
                                     fd00:ec2::254 and their kind */
    SBX_NETWORK_MULTICAST,        /* 224/4, ff00::/8, broadcast */
    SBX_NETWORK_RESERVED          /* 0/8, 240/4, 192.0.0/24, ::, ... */
} sbx_network_class_t;

/*
 * What kind of address it is, and, where an IPv4 address is inside (mapped,
 * compatible, NAT64 64:ff9b::/96 and 64:ff9b:1::/48, 6to4, Teredo, ISATAP),
 * what kind that one is if it is not public.
 */
sbx_network_class_t sbx_network_class(const uint8_t address[16]);
/* "private", "loopback" ... */
const char *sbx_network_class_word(sbx_network_class_t class);
/* "192.0.2.1", "2001:db8::1".  buf: 46 bytes. */
const char *sbx_network_address_print(const uint8_t address[16], char *buf);


/*
 * ---- the operator's table: records of a type, then its strings, each with
 * its NUL:
 *
 *   'T' template      what follows is this template's; before the first,
 *                     what templates without a record of their own have
 *   'a' rule, 'd' rule
 *   'p'               private addresses (SBX_NETWORK_PRIVATE alone) are as
 *                     public ones
 *   'h' host name path     a header for requests to host (no wildcard); its
 *                     value is the file's contents without its last newline
 *   's' host name path     the same, in TLS too
 *   'r' address       a resolver, "192.0.2.1", "192.0.2.1:5353", "[::1]:53";
 *                     none: the host's own
 *   'C' path          certificates that TLS to hosts of 's' is checked by;
 *                     none: the host's
 *
 * 'r' and 'C' come before the first 'T'.
 */

#define SBX_EGRESS_TEMPLATE   'T'
#define SBX_EGRESS_ALLOW      'a'
#define SBX_EGRESS_DENY       'd'
#define SBX_EGRESS_PRIVATE    'p'
#define SBX_EGRESS_HEADER     'h'
#define SBX_EGRESS_TLS_HEADER 's'
#define SBX_EGRESS_RESOLVER   'r'
#define SBX_EGRESS_CA         'C'

typedef struct {
    char          type;
    const char   *text[3];        /* NULL where it has fewer */
    size_t        next;           /* of the next record; begins at 0 */
} sbx_egress_row_t;

/* 1, 0 at the end, -1. */
int sbx_egress_row_next(const void *table, size_t size,
    sbx_egress_row_t *row);
/* Everything that can be said of it without opening a file. */
int sbx_egress_table_check(const void *table, size_t size, sbx_error_t *e);
/* 1: the template's sessions may be given a network. */
int sbx_egress_table_grants(const void *table, size_t size,
    const char *template);
/* 1: its sessions are to trust the egress's own certificates. */
int sbx_egress_table_tls(const void *table, size_t size,
    const char *template);

/* 1: the name of a header that may be added to a request. */
int sbx_egress_header_ok(const char *s, size_t len);
/* Reads an 'r': rule->address, and its port or 0. */
int sbx_egress_resolver(const char *s, size_t len, sbx_network_rule_t *rule,
    sbx_error_t *e);

/*
 * What a session asks for against the operator's: 0, or -1 with
 * SBX_E_MANIFEST; the text begins with at (a JSON Pointer) and names the
 * entry that asks for more, or says that the template has no network.
 */
int sbx_network_narrows(const void *table, size_t size, const char *template,
    sbx_network_mode_t mode, const void *rules, size_t rules_size,
    const char *at, sbx_error_t *e);
/* 1: nothing that is public is refused. */
int sbx_network_open(const void *table, size_t size, const char *template,
    sbx_network_mode_t mode, const void *rules, size_t rules_size);


/*
 * ---- what a session has used: a page of its own that the egress writes and
 * the broker reads, never the other way about.
 */
typedef struct {
    uint64_t   connections;       /* now */
    uint64_t   opened;            /* ever */
    uint64_t   refused;           /* connections and names */
    uint64_t   queries;           /* of DNS */
    uint64_t   sent;              /* bytes, by the session */
    uint64_t   received;
} sbx_traffic_t;

typedef enum {
    SBX_REFUSED_RULE,             /* not on the list, or denied by it */
    SBX_REFUSED_ADDRESS,          /* private, loopback, the host's own ... */
    SBX_REFUSED_NAME,             /* what TLS or HTTP name is not what was
                                     looked up, or not allowed */
    SBX_REFUSED_HIDDEN,           /* no name where one is needed, ECH */
    SBX_REFUSED_QUERY,            /* DNS: the name, or the type */
    SBX_REFUSED_LIMIT,            /* connections, bytes, queries */
    SBX_REFUSED_PROTOCOL,         /* what TLS, HTTP or DNS does not allow */
    SBX_REFUSED_REASONS
} sbx_refused_t;

const char *sbx_refused_word(unsigned reason);    /* "rule" ... */


#endif
