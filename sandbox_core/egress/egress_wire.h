/*
 * What the broker and the egress say to each other: SEQPACKET, fixed layouts,
 * as sandbox_wire.h.  The broker's end is in the keeper's store: the egress
 * outlives a broker, and ends when nobody has that end.
 *
 * The egress is unprivileged and talks to strangers: what it says is taken
 * only whole and in its place.
 */

#ifndef SBX_EGRESS_WIRE_H
#define SBX_EGRESS_WIRE_H

#include "sandbox_network.h"
#include "sandbox_wire.h"


#define SBX_EGRESS_MAGIC     0x45584253u     /* "SBXE" */

#define SBX_EGRESS_FILES_MAX (SBX_EGRESS_VALUES_MAX + 3)  /* of a CONFIG */

#define SBX_EGRESS_FD        3     /* control, at exec */
#define SBX_EGRESS_CA_FD     4     /* O_RDWR, root's 0600: key and certificate
                                      as PEM; empty: the egress makes them */
#define SBX_EGRESS_CERT_FD   5     /* O_RDWR: the certificate alone, as PEM,
                                      for sessions; written with the other */

typedef enum {
    /* broker to egress */
    SBX_EGRESS_CONFIG = 1,    /* fds: sealed memfd of the table (.size bytes),
                                 of the host's resolv.conf (.extra bytes),
                                 then a file for each 'C', 'h' and 's' row, in
                                 their order.  An empty table grants nothing.
                                 Sessions are judged by it from now on.
                                 Answered: CONFIGURED */
    SBX_EGRESS_GRANT,         /* fds: the sockets in the session (those of
                                 IPv4, and of IPv6 if .extra is 1: TCP, UDP
                                 each), then a memfd of a sbx_traffic_t.  Of a
                                 session that is there: in place of what it
                                 had, and its connections go on */
    SBX_EGRESS_CHANGE,        /* rules and limits; no fds */
    SBX_EGRESS_REVOKE,        /* its connections are cut */
    SBX_EGRESS_ASK            /* whether it is there.  Answered: HERE, or
                                 anything else that is under way */
} sbx_egress_op_t;

/* .size bytes follow: a session's rules (GRANT, CHANGE). */
typedef struct {
    uint32_t   magic;
    uint16_t   version;                   /* SBX_WIRE_VERSION */
    uint16_t   op;                        /* sbx_egress_op_t */
    uint32_t   size;
    uint32_t   extra;
    char       session[SBX_ID_MAX + 8];
    char       template[SBX_TEMPLATE_MAX];
    uint32_t   mode;                      /* sbx_network_mode_t */
    uint32_t   pad;
    uint64_t   connections;               /* limits; SBX_UNLIMITED */
    uint64_t   rate;                      /* bytes a second, both ways */
    uint64_t   bytes;                     /* in all, both ways */
} sbx_egress_task_t;

typedef enum {
    SBX_EGRESS_READY = 1,     /* it runs; once */
    SBX_EGRESS_CONFIGURED,    /* .err 0, or .name says what is wrong: what
                                 held before holds */
    SBX_EGRESS_REFUSED,       /* .session; at most 100 a second of one */
    SBX_EGRESS_HERE
} sbx_egress_say_t;

typedef struct {
    uint32_t   magic;
    uint32_t   type;                      /* sbx_egress_say_t */
    char       session[SBX_ID_MAX + 8];
    uint32_t   reason;                    /* sbx_refused_t */
    uint32_t   port;
    uint32_t   err;
    uint32_t   more;                      /* that were not told before it */
    uint8_t    address[16];               /* zero: none */
    char       name[SBX_NETWORK_HOST_MAX + 3];   /* printable; "" none */
} sbx_egress_record_t;


#endif
