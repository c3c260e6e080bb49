/*
 * What the files about a session's network share: netlink, and the rules.
 */

#ifndef SBX_NET_PRIVATE_H
#define SBX_NET_PRIVATE_H

#include "isolate_private.h"

#include <libmnl/libmnl.h>


/* All of the rules take a third of it. */
#define SBX_NETLINK_SIZE     32768

/* Requests that are sent as one, in the order in which they were begun. */
typedef struct {
    char               data[SBX_NETLINK_SIZE];
    size_t             size;          /* of those that have ended */
    uint32_t           seq;           /* of the last of them */
    struct nlmsghdr   *message;       /* that is being written */
} sbx_netlink_t;

void sbx_netlink_begin(sbx_netlink_t *n, uint16_t type, uint16_t flags);
void sbx_netlink_end(sbx_netlink_t *n);
/*
 * Sends them over a socket of its own and reads the kernel's answers, which
 * are there as soon as they are sent: the last request asks for one
 * (NLM_F_ACK), others are answered where they fail.  0, or -1 with the first
 * error that is not "fine" (0: every one counts).
 */
int sbx_netlink_send(sbx_netlink_t *n, int bus, int fine);
/* The same of one request for one thing: its message, in buf, or NULL. */
const struct nlmsghdr *sbx_netlink_get(const sbx_netlink_t *n, int bus,
    void *buf, size_t size);


/* Ports of the egress's sockets, 0 where there is none. */
typedef struct {
    uint16_t           port[SBX_NET_FDS];
    unsigned           judge_only:1;  /* what needs no translation of
                                         addresses, to try it out */
} sbx_net_rules_t;

/* net_rules.c: the rules of the caller's network namespace become these, if
 * they are not.  0, or -1 with errno. */
int sbx_net_rules(const sbx_net_rules_t *rules);

/* net_grant.c: sbx_net_grant() in the caller's network namespace; fds are -1,
 * and the caller's whatever comes of it. */
int sbx_net_make(int fds[SBX_NET_FDS], sbx_error_t *e);


#endif
