/*
 * The host's own addresses, those of its networks' broadcasts included, as the
 * kernel's table of local routes has them.  Read at the start and whenever the
 * kernel says that something of it changed; a change that was missed is seen
 * at the next.
 */

#include "egress.h"

#include <errno.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>


#define SBX_EG_OWN_MAX       65536
#define SBX_EG_NETLINK_SIZE  32768


typedef struct {
    uint8_t   address[16];
    uint8_t   bits;
} sbx_eg_own_t;

struct sbx_eg_addresses_s {
    sbx_egress_t   *egress;
    int             fd;              /* told of changes */
    int             ask;             /* asks for tables */
    sbx_event_t     event;
    sbx_eg_own_t   *own;
    size_t          n;
    size_t          size;
    uint32_t        seq;
    int             ipv6;            /* -1: not known */
    uint8_t         buf[SBX_EG_NETLINK_SIZE];
};


static int sbx_eg_addresses_socket(uint32_t groups);
static void sbx_eg_addresses_changed(sbx_event_t *ev, uint32_t events);
static int sbx_eg_addresses_read(sbx_eg_addresses_t *a);
static int sbx_eg_addresses_dump(sbx_eg_addresses_t *a, int type, int family);
static int sbx_eg_addresses_ask(sbx_eg_addresses_t *a, int type, int family);
static int sbx_eg_addresses_message(sbx_eg_addresses_t *a,
    struct nlmsghdr *head);
static int sbx_eg_addresses_route(sbx_eg_addresses_t *a,
    struct nlmsghdr *head);
static int sbx_eg_addresses_link(sbx_eg_addresses_t *a,
    struct nlmsghdr *head);
static int sbx_eg_addresses_add(sbx_eg_addresses_t *a, int family,
    const struct rtattr *attr, unsigned bits);


int
sbx_eg_addresses_open(sbx_egress_t *eg, sbx_error_t *e)
{
    sbx_eg_addresses_t  *a;

    a = calloc(1, sizeof(sbx_eg_addresses_t));

    if (a == NULL) {
        return sbx_error(e, errno, SBX_E_INTERNAL, "out of memory");
    }

    eg->addresses = a;
    a->egress = eg;
    a->ipv6 = -1;
    a->ask = -1;

    /* told first, then asked: nothing is missed between */

    a->fd = sbx_eg_addresses_socket(RTMGRP_IPV4_IFADDR|RTMGRP_IPV6_IFADDR
                                    |RTMGRP_IPV4_ROUTE|RTMGRP_IPV6_ROUTE);

    if (a->fd != -1) {
        a->ask = sbx_eg_addresses_socket(0);
    }

    a->event.handler = sbx_eg_addresses_changed;
    a->event.data = a;

    if (a->ask == -1 || sbx_eg_addresses_read(a) != 0
        || sbx_event_add(&eg->loop, &a->event, a->fd, EPOLLIN) != 0)
    {
        (void) sbx_error(e, errno, SBX_E_INTERNAL,
                         "the host's addresses cannot be read");
        sbx_eg_addresses_close(eg);
        return -1;
    }

    return 0;
}


static int
sbx_eg_addresses_socket(uint32_t groups)
{
    int                 fd, on;
    struct timeval      wait;
    struct sockaddr_nl  sa;

    fd = socket(AF_NETLINK, SOCK_RAW|SOCK_CLOEXEC, NETLINK_ROUTE);

    if (fd == -1) {
        return -1;
    }

    memset(&sa, 0, sizeof(sa));
    sa.nl_family = AF_NETLINK;
    sa.nl_groups = groups;
    on = 1;

    /* the kernel answers at once; a mistake must not wait for ever */

    wait.tv_sec = 2;
    wait.tv_usec = 0;
    (void) setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &wait, sizeof(wait));

    /* of routes the one table that is asked for, not all of them */

    (void) setsockopt(fd, SOL_NETLINK, NETLINK_GET_STRICT_CHK, &on,
                      sizeof(on));

    if (bind(fd, (struct sockaddr *) &sa, sizeof(sa)) == -1) {
        (void) close(fd);
        return -1;
    }

    return fd;
}


static void
sbx_eg_addresses_changed(sbx_event_t *ev, uint32_t events)
{
    ssize_t              n;
    sbx_eg_addresses_t  *a;

    (void) events;

    a = ev->data;

    do {
        n = recv(a->fd, a->buf, sizeof(a->buf), MSG_DONTWAIT);
    } while (n > 0 || (n == -1 && (errno == EINTR || errno == ENOBUFS)));

    a->ipv6 = -1;

    (void) sbx_eg_addresses_read(a);
}


/* -1: what was known stays. */

static int
sbx_eg_addresses_read(sbx_eg_addresses_t *a)
{
    size_t         n, size;
    sbx_eg_own_t  *own;

    own = a->own;
    n = a->n;
    size = a->size;
    a->own = NULL;
    a->n = 0;
    a->size = 0;

    if (sbx_eg_addresses_dump(a, RTM_GETADDR, AF_INET) == 0
        && sbx_eg_addresses_dump(a, RTM_GETADDR, AF_INET6) == 0
        && sbx_eg_addresses_dump(a, RTM_GETROUTE, AF_INET) == 0
        && sbx_eg_addresses_dump(a, RTM_GETROUTE, AF_INET6) == 0)
    {
        free(own);
        return 0;
    }

    free(a->own);
    a->own = own;
    a->n = n;
    a->size = size;

    return -1;
}


static int
sbx_eg_addresses_dump(sbx_eg_addresses_t *a, int type, int family)
{
    int               left, rc;
    ssize_t           n;
    struct nlmsghdr  *head;

    if (sbx_eg_addresses_ask(a, type, family) != 0) {
        /* a host without IPv6 has none of its addresses */
        return family == AF_INET6 ? 0 : -1;
    }

    for ( ;; ) {
        n = recv(a->ask, a->buf, sizeof(a->buf), 0);

        if (n == -1 && errno == EINTR) {
            continue;
        }

        if (n <= 0) {
            return -1;
        }

        left = (int) n;

        for (head = (struct nlmsghdr *) (void *) a->buf;
             NLMSG_OK(head, (unsigned) left);
             head = NLMSG_NEXT(head, left))
        {
            if (head->nlmsg_seq != a->seq) {
                continue;
            }

            rc = sbx_eg_addresses_message(a, head);

            if (rc != 0) {
                return rc > 0 ? 0 : family == AF_INET6 ? 0 : -1;
            }
        }
    }
}


static int
sbx_eg_addresses_ask(sbx_eg_addresses_t *a, int type, int family)
{
    struct {
        struct nlmsghdr       head;
        union {
            struct ifaddrmsg  address;
            struct rtmsg      route;
        };
    } ask;

    memset(&ask, 0, sizeof(ask));
    ask.head.nlmsg_type = (uint16_t) type;
    ask.head.nlmsg_flags = NLM_F_REQUEST|NLM_F_DUMP;
    ask.head.nlmsg_seq = ++a->seq;

    if (type == RTM_GETADDR) {
        ask.head.nlmsg_len = NLMSG_LENGTH(sizeof(struct ifaddrmsg));
        ask.address.ifa_family = (uint8_t) family;

    } else {
        ask.head.nlmsg_len = NLMSG_LENGTH(sizeof(struct rtmsg));
        ask.route.rtm_family = (uint8_t) family;
        ask.route.rtm_table = RT_TABLE_LOCAL;
    }

    return send(a->ask, &ask, ask.head.nlmsg_len, 0)
           == (ssize_t) ask.head.nlmsg_len ? 0 : -1;
}


/* 1: that was the last; -1: it cannot be read. */

static int
sbx_eg_addresses_message(sbx_eg_addresses_t *a, struct nlmsghdr *head)
{
    switch (head->nlmsg_type) {

    case NLMSG_DONE:
        return 1;

    case NLMSG_ERROR:
        return -1;

    case RTM_NEWROUTE:
        return sbx_eg_addresses_route(a, head);

    case RTM_NEWADDR:
        return sbx_eg_addresses_link(a, head);

    default:
        return 0;
    }
}


static int
sbx_eg_addresses_route(sbx_eg_addresses_t *a, struct nlmsghdr *head)
{
    unsigned        left;
    struct rtmsg   *route;
    struct rtattr  *attr;

    if (head->nlmsg_len < NLMSG_LENGTH(sizeof(struct rtmsg))) {
        return 0;
    }

    route = NLMSG_DATA(head);

    if (route->rtm_type != RTN_LOCAL && route->rtm_type != RTN_BROADCAST
        && route->rtm_type != RTN_ANYCAST)
    {
        return 0;
    }

    left = head->nlmsg_len - NLMSG_LENGTH(sizeof(struct rtmsg));

    for (attr = RTM_RTA(route); RTA_OK(attr, left);
         attr = RTA_NEXT(attr, left))
    {
        if (attr->rta_type == RTA_DST) {
            return sbx_eg_addresses_add(a, route->rtm_family, attr,
                                        route->rtm_dst_len);
        }
    }

    return 0;
}


/* Before an address of IPv6 has its route it is the host's already. */

static int
sbx_eg_addresses_link(sbx_eg_addresses_t *a, struct nlmsghdr *head)
{
    unsigned           left;
    struct rtattr     *attr;
    struct ifaddrmsg  *link;

    if (head->nlmsg_len < NLMSG_LENGTH(sizeof(struct ifaddrmsg))) {
        return 0;
    }

    link = NLMSG_DATA(head);
    left = head->nlmsg_len - NLMSG_LENGTH(sizeof(struct ifaddrmsg));

    for (attr = IFA_RTA(link); RTA_OK(attr, left);
         attr = RTA_NEXT(attr, left))
    {
        /* of a point-to-point link IFA_ADDRESS is the other's */

        if (attr->rta_type == IFA_LOCAL
            || (attr->rta_type == IFA_ADDRESS
                && link->ifa_family == AF_INET6))
        {
            if (sbx_eg_addresses_add(a, link->ifa_family, attr,
                                     link->ifa_family == AF_INET ? 32 : 128)
                != 0)
            {
                return -1;
            }
        }
    }

    return 0;
}


static int
sbx_eg_addresses_add(sbx_eg_addresses_t *a, int family,
    const struct rtattr *attr, unsigned bits)
{
    size_t         i, size;
    sbx_eg_own_t   own, *list;

    memset(&own, 0, sizeof(own));

    if (family == AF_INET && RTA_PAYLOAD(attr) == 4 && bits <= 32) {
        memset(own.address + 10, 0xff, 2);
        memcpy(own.address + 12, RTA_DATA(attr), 4);
        own.bits = (uint8_t) (bits + 96);

        /* the loopback network has its own kind, and rules that mean it */

        if (own.address[12] == 127) {
            return 0;
        }

    } else if (family == AF_INET6 && RTA_PAYLOAD(attr) == 16 && bits <= 128) {
        memcpy(own.address, RTA_DATA(attr), 16);
        own.bits = (uint8_t) bits;

        if (memcmp(own.address, &in6addr_loopback, 16) == 0) {
            return 0;
        }

    } else {
        return 0;
    }

    for (i = 0; i < a->n; i++) {
        if (memcmp(&a->own[i], &own, sizeof(own)) == 0) {
            return 0;
        }
    }

    if (a->n == a->size) {
        size = a->size ? a->size * 2 : 32;

        if (size > SBX_EG_OWN_MAX) {
            return -1;
        }

        list = realloc(a->own, size * sizeof(sbx_eg_own_t));

        if (list == NULL) {
            return -1;
        }

        a->own = list;
        a->size = size;
    }

    a->own[a->n++] = own;

    return 0;
}


int
sbx_eg_addresses_own(sbx_egress_t *eg, const uint8_t address[16])
{
    size_t                     i;
    unsigned                   bytes, mask;
    const sbx_eg_own_t        *own;
    const sbx_eg_addresses_t  *a;

    a = eg->addresses;

    for (i = 0; a != NULL && i < a->n; i++) {
        own = &a->own[i];
        bytes = own->bits / 8;
        mask = (0xff00u >> (own->bits % 8)) & 0xff;

        if (memcmp(own->address, address, bytes) == 0
            && (mask == 0
                || ((own->address[bytes] ^ address[bytes]) & mask) == 0))
        {
            return 1;
        }
    }

    return 0;
}


int
sbx_eg_addresses_ipv6(sbx_egress_t *eg)
{
    int                   fd;
    sbx_eg_addresses_t   *a;
    struct sockaddr_in6   sa;

    a = eg->addresses;

    if (a == NULL) {
        return 0;
    }

    if (a->ipv6 != -1) {
        return a->ipv6;
    }

    /* a route is looked up, nothing is sent */

    memset(&sa, 0, sizeof(sa));
    sa.sin6_family = AF_INET6;
    sa.sin6_port = htons(53);
    sa.sin6_addr.s6_addr[0] = 0x20;
    sa.sin6_addr.s6_addr[1] = 0x01;
    sa.sin6_addr.s6_addr[2] = 0x05;
    sa.sin6_addr.s6_addr[4] = 0x00;
    sa.sin6_addr.s6_addr[5] = 0x2f;
    sa.sin6_addr.s6_addr[15] = 0x0f;

    a->ipv6 = 0;
    fd = socket(AF_INET6, SOCK_DGRAM|SOCK_CLOEXEC, 0);

    if (fd != -1) {
        a->ipv6 = connect(fd, (struct sockaddr *) &sa, sizeof(sa)) == 0;
        (void) close(fd);
    }

    return a->ipv6;
}


void
sbx_eg_addresses_close(sbx_egress_t *eg)
{
    sbx_eg_addresses_t  *a;

    a = eg->addresses;

    if (a == NULL) {
        return;
    }

    sbx_event_del(&eg->loop, &a->event);

    if (a->fd != -1) {
        (void) close(a->fd);
    }

    if (a->ask != -1) {
        (void) close(a->ask);
    }

    free(a->own);
    free(a);
    eg->addresses = NULL;
}
