/*
 * A network for a session: made in its network namespace by the broker, whose
 * calling thread goes there for that and comes back.  Nothing here waits: the
 * kernel answers as it is asked.
 *
 * lo stays the only interface.  It gets an address more, from which
 * connections come, and a route by which every destination is reached through
 * it: a packet that leaves by lo comes in by lo, unless the rules of
 * net_rules.c lead it to the egress's sockets first.  For IPv6 the route has
 * to be a local one, as the kernel takes any other by lo for a refusal.
 *
 * The egress asks a connection for where it was to go (SO_ORIGINAL_DST).  One
 * to the socket's own address, had the rules let it pass, has no such answer.
 */

#include "net_private.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/rtnetlink.h>
#include <net/if.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>


#define SBX_NET_BACKLOG      1024

/* Ports are taken from here down: above those that the kernel gives to
 * programs, and where hardly one asks for one by its number. */
#define SBX_NET_PORT         65535
#define SBX_NET_TRIES        64

/* Seconds without a packet before a connection's other end is asked for.
 * Idle connections stay known for longer than that. */
#define SBX_NET_KEEPALIVE    900


static const struct {
    int  family;
    int  type;
} sbx_net_sockets[SBX_NET_FDS] = {
    [SBX_NET_TCP4] = { AF_INET,  SOCK_STREAM },
    [SBX_NET_UDP4] = { AF_INET,  SOCK_DGRAM },
    [SBX_NET_TCP6] = { AF_INET6, SOCK_STREAM },
    [SBX_NET_UDP6] = { AF_INET6, SOCK_DGRAM }
};

/*
 * Seconds for which the kernel knows a connection that nothing is heard of.
 * What is open or half closed is asked for within them (keepalive); what has
 * ended is forgotten soon, see net_rules.c for what that bounds.  A packet in
 * the midst of a connection that is not known begins none.
 */
static const struct {
    const char  *name;
    const char  *value;
} sbx_net_tracking[] = {
    { "nf_conntrack_tcp_loose",                "0" },
    { "nf_conntrack_tcp_be_liberal",           "1" },
    { "nf_conntrack_tcp_ignore_invalid_rst",   "1" },
    { "nf_conntrack_tcp_timeout_syn_sent",     "10" },
    { "nf_conntrack_tcp_timeout_syn_recv",     "10" },
    { "nf_conntrack_tcp_timeout_established",  "3600" },
    { "nf_conntrack_tcp_timeout_close_wait",   "3600" },
    { "nf_conntrack_tcp_timeout_fin_wait",     "3600" },
    { "nf_conntrack_tcp_timeout_last_ack",     "10" },
    { "nf_conntrack_tcp_timeout_time_wait",    "3" },
    { "nf_conntrack_tcp_timeout_close",        "3" },
    { "nf_conntrack_udp_timeout",              "15" },
    { "nf_conntrack_udp_timeout_stream",       "15" },
    { "nf_conntrack_generic_timeout",          "10" },
    { "nf_conntrack_icmp_timeout",             "10" },
    { "nf_conntrack_icmpv6_timeout",           "10" }
};


static int sbx_net_enter(int netns, int *home, sbx_error_t *e);
static void sbx_net_leave(int home);
static int sbx_net_close(sbx_error_t *e);
static int sbx_net_listen(sbx_net_fd_t which);
static int sbx_net_bind(int fd, int family);
static uint16_t sbx_net_port(int fd);
static int sbx_net_track(void);
static int sbx_net_address(int family);
static int sbx_net_route(int family, uint16_t type);


int
sbx_net_grant(int netns, int fds[SBX_NET_FDS], sbx_error_t *e)
{
    int          rc;
    unsigned     i;
    sbx_error_t  ignored;
    sbx_auto_fd  home = -1;

    for (i = 0; i < SBX_NET_FDS; i++) {
        fds[i] = -1;
    }

    if (sbx_net_enter(netns, &home, e) == -1) {
        return -1;
    }

    rc = sbx_net_make(fds, e);

    if (rc == -1) {
        (void) sbx_net_close(&ignored);
    }

    sbx_net_leave(home);

    for (i = 0; rc == -1 && i < SBX_NET_FDS; i++) {
        if (fds[i] != -1) {
            (void) close(fds[i]);
            fds[i] = -1;
        }
    }

    return rc;
}


int
sbx_net_revoke(int netns, sbx_error_t *e)
{
    int          rc;
    sbx_auto_fd  home = -1;

    if (sbx_net_enter(netns, &home, e) == -1) {
        return -1;
    }

    rc = sbx_net_close(e);
    sbx_net_leave(home);

    return rc;
}


/* Of the calling thread alone: /proc/self is the first thread's. */
static int
sbx_net_enter(int netns, int *home, sbx_error_t *e)
{
    *home = open("/proc/thread-self/ns/net", O_RDONLY | O_CLOEXEC);

    if (*home == -1) {
        return sbx_error(e, errno, SBX_E_INTERNAL,
                         "cannot open the network namespace");
    }

    if (setns(netns, CLONE_NEWNET) == -1) {
        return sbx_error(e, errno, SBX_E_INTERNAL,
                         "cannot enter the session's network namespace");
    }

    return 0;
}


/* What went on from here would be in the session's hands. */
static void
sbx_net_leave(int home)
{
    if (setns(home, CLONE_NEWNET) == -1) {
        abort();
    }
}


/* The route comes last: without it there is no way out. */
int
sbx_net_make(int fds[SBX_NET_FDS], sbx_error_t *e)
{
    unsigned         i;
    sbx_net_rules_t  rules;

    memset(&rules, 0, sizeof(rules));

    for (i = 0; i < SBX_NET_FDS; i++) {
        fds[i] = sbx_net_listen((sbx_net_fd_t) i);

        if (fds[i] != -1) {
            rules.port[i] = sbx_net_port(fds[i]);

        } else if (sbx_net_sockets[i].family == AF_INET) {
            return sbx_error(e, errno, SBX_E_INTERNAL,
                             "cannot make a socket in the session's network");
        }
    }

    /* there is IPv6 or there is none */

    if (fds[SBX_NET_TCP6] == -1 || fds[SBX_NET_UDP6] == -1
        || sbx_net_address(AF_INET6) == -1)
    {
        for (i = SBX_NET_TCP6; i < SBX_NET_FDS; i++) {
            if (fds[i] != -1) {
                (void) close(fds[i]);
            }

            fds[i] = -1;
            rules.port[i] = 0;
        }
    }

    if (sbx_net_rules(&rules) == -1) {
        return sbx_error(e, errno, SBX_E_UNAVAILABLE,
                         "the session's network cannot be led to the egress: "
                         "see the layer \"network_grants\" of GET "
                         "/capabilities");
    }

    if (sbx_net_track() == -1) {
        return sbx_error(e, errno, SBX_E_UNAVAILABLE,
                         "cannot set the timeouts of the session's "
                         "connections");
    }

    if (sbx_net_address(AF_INET) == -1
        || sbx_net_route(AF_INET, RTM_NEWROUTE) == -1
        || (fds[SBX_NET_TCP6] != -1
            && sbx_net_route(AF_INET6, RTM_NEWROUTE) == -1))
    {
        return sbx_error(e, errno, SBX_E_INTERNAL,
                         "cannot make the session's route");
    }

    return 0;
}


/*
 * The routes go.  The rules and the address stay, by which the egress can
 * still end what is open, so that no program waits for an answer that cannot
 * come; it closes its sockets, and what comes to them is refused.
 */
static int
sbx_net_close(sbx_error_t *e)
{
    int  rc, err;

    rc = sbx_net_route(AF_INET, RTM_DELROUTE);
    err = errno;

    /* where there is no IPv6 there is nothing to remove */

    if (sbx_net_route(AF_INET6, RTM_DELROUTE) == -1 && errno != EAFNOSUPPORT
        && errno != EOPNOTSUPP && rc == 0)
    {
        rc = -1;
        err = errno;
    }

    if (rc == -1) {
        return sbx_error(e, err, SBX_E_INTERNAL,
                         "cannot remove the session's route");
    }

    return 0;
}


static int
sbx_net_listen(sbx_net_fd_t which)
{
    int          on, idle, family, type;
    sbx_auto_fd  fd = -1;

    family = sbx_net_sockets[which].family;
    type = sbx_net_sockets[which].type;

    fd = socket(family, type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

    if (fd == -1) {
        return -1;
    }

    on = 1;
    idle = SBX_NET_KEEPALIVE;

    if (family == AF_INET6
        && setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &on, sizeof(on)) == -1)
    {
        return -1;
    }

    /*
     * Connections of an egress that has ended may still be at the port, which
     * is to be had again.  Nobody shares it for that: a socket that listens
     * is alone.
     */

    if (type == SOCK_STREAM
        && setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)) == -1)
    {
        return -1;
    }

    if (sbx_net_bind(fd, family) == -1) {
        return -1;
    }

    /* those that are accepted have it from the one that listens */

    if (type == SOCK_STREAM
        && (setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof(on)) == -1
            || setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle, sizeof(idle))
               == -1
            || listen(fd, SBX_NET_BACKLOG) == -1))
    {
        return -1;
    }

    return sbx_steal_fd(&fd);
}


/* The last try leaves the port to the kernel. */
static int
sbx_net_bind(int fd, int family)
{
    int                  rc, i;
    uint16_t             port;
    struct sockaddr_in   in4;
    struct sockaddr_in6  in6;

    memset(&in4, 0, sizeof(in4));
    in4.sin_family = AF_INET;
    in4.sin_addr.s_addr = htonl(INADDR_LOOPBACK);

    memset(&in6, 0, sizeof(in6));
    in6.sin6_family = AF_INET6;
    in6.sin6_addr = in6addr_loopback;

    for (i = 0; i <= SBX_NET_TRIES; i++) {
        port = htons((uint16_t) (i < SBX_NET_TRIES ? SBX_NET_PORT - i : 0));

        if (family == AF_INET) {
            in4.sin_port = port;
            rc = bind(fd, (struct sockaddr *) &in4, sizeof(in4));
        } else {
            in6.sin6_port = port;
            rc = bind(fd, (struct sockaddr *) &in6, sizeof(in6));
        }

        if (rc == 0 || errno != EADDRINUSE) {
            return rc;
        }
    }

    return -1;
}


/* Both kinds of address have the port in the same place. */
static uint16_t
sbx_net_port(int fd)
{
    socklen_t            len;
    struct sockaddr_in6  address;

    len = sizeof(address);
    memset(&address, 0, sizeof(address));

    if (getsockname(fd, (struct sockaddr *) &address, &len) == -1) {
        return 0;
    }

    return ntohs(address.sin6_port);
}


/* /proc/sys/net shows the namespace of who looks at it. */
static int
sbx_net_track(void)
{
    size_t       i;
    sbx_auto_fd  dir = -1;

    dir = open("/proc/sys/net/netfilter",
               O_PATH | O_DIRECTORY | O_CLOEXEC);

    if (dir == -1) {
        return -1;
    }

    for (i = 0; i < sbx_nelts(sbx_net_tracking); i++) {
        if (sbx_write_at(dir, sbx_net_tracking[i].name,
                         sbx_net_tracking[i].value)
            == -1 && errno != ENOENT)
        {
            return -1;
        }
    }

    return 0;
}


/*
 * ---- lo --------------------------------------------------------------------
 */

static size_t
sbx_net_own(int family, void *address)
{
    (void) inet_pton(family, family == AF_INET ? SBX_NET_ADDRESS4
                                               : SBX_NET_ADDRESS6,
                     address);

    return family == AF_INET ? sizeof(struct in_addr)
                             : sizeof(struct in6_addr);
}


static int
sbx_net_address(int family)
{
    size_t             size;
    uint8_t            own[sizeof(struct in6_addr)];
    sbx_netlink_t      n;
    struct ifaddrmsg  *address;

    n.size = 0;
    n.seq = 0;
    size = sbx_net_own(family, own);

    sbx_netlink_begin(&n, RTM_NEWADDR,
                      NLM_F_CREATE | NLM_F_REPLACE | NLM_F_ACK);

    address = mnl_nlmsg_put_extra_header(n.message, sizeof(*address));
    address->ifa_family = (uint8_t) family;
    address->ifa_prefixlen = (uint8_t) (8 * size);
    address->ifa_flags = (family == AF_INET6) ? IFA_F_NODAD : 0;
    address->ifa_scope = RT_SCOPE_UNIVERSE;
    address->ifa_index = if_nametoindex("lo");

    mnl_attr_put(n.message, IFA_LOCAL, size, own);
    mnl_attr_put(n.message, IFA_ADDRESS, size, own);
    sbx_netlink_end(&n);

    return sbx_netlink_send(&n, NETLINK_ROUTE, EEXIST);
}


static int
sbx_net_route(int family, uint16_t type)
{
    size_t          size;
    uint8_t         own[sizeof(struct in6_addr)];
    struct rtmsg   *route;
    sbx_netlink_t   n;

    n.size = 0;
    n.seq = 0;
    size = sbx_net_own(family, own);

    sbx_netlink_begin(&n, type,
                      (uint16_t) (NLM_F_ACK
                                  | (type == RTM_NEWROUTE
                                     ? NLM_F_CREATE | NLM_F_REPLACE : 0)));

    route = mnl_nlmsg_put_extra_header(n.message, sizeof(*route));
    route->rtm_family = (uint8_t) family;
    route->rtm_table = (family == AF_INET6) ? RT_TABLE_LOCAL : RT_TABLE_MAIN;
    route->rtm_protocol = RTPROT_STATIC;
    route->rtm_scope = (family == AF_INET6) ? RT_SCOPE_UNIVERSE
                                            : RT_SCOPE_LINK;
    route->rtm_type = (family == AF_INET6) ? RTN_LOCAL : RTN_UNICAST;

    mnl_attr_put_u32(n.message, RTA_OIF, if_nametoindex("lo"));

    if (type == RTM_NEWROUTE) {
        mnl_attr_put(n.message, RTA_PREFSRC, size, own);
    }

    sbx_netlink_end(&n);

    return sbx_netlink_send(&n, NETLINK_ROUTE,
                            type == RTM_DELROUTE ? ESRCH : 0);
}
