/*
 * What a session's network is tried with from inside: commands of
 * isolate-network.c that run in the session (see inside.h).
 */

#ifndef SBX_TEST_NETWORK_INSIDE_H
#define SBX_TEST_NETWORK_INSIDE_H

#include "inside.h"

#include <arpa/inet.h>
#include <linux/if_packet.h>
#include <linux/netfilter.h>
#include <linux/netfilter/nf_tables.h>
#include <linux/netfilter/nfnetlink.h>
#include <linux/rtnetlink.h>
#include <net/ethernet.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sched.h>
#include <sys/time.h>
#include <sys/un.h>
#include <time.h>


#define AT_ONCE     400      /* ms; what is lost is asked again after 1 s */


static double
now(void)
{
    struct timespec  ts;

    (void) clock_gettime(CLOCK_MONOTONIC, &ts);

    return (double) ts.tv_sec * 1e3 + (double) ts.tv_nsec / 1e6;
}


static const char *
errno_name(int err)
{
    switch (err) {
    case ENETUNREACH:
        return "ENETUNREACH";
    case ECONNREFUSED:
        return "ECONNREFUSED";
    case EHOSTUNREACH:
        return "EHOSTUNREACH";
    case EPERM:
        return "EPERM";
    case EACCES:
        return "EACCES";
    case ECONNRESET:
        return "ECONNRESET";
    case EADDRINUSE:
        return "EADDRINUSE";
    case EADDRNOTAVAIL:
        return "EADDRNOTAVAIL";
    case EINPROGRESS:
    case EAGAIN:
        return "lost";
    default:
        return strerror(err);
    }
}


/* "1.2.3.4", "2001:db8::1", "mapped:1.2.3.4" (through an IPv6 socket). */
static socklen_t
address(const char *text, const char *port, struct sockaddr_in6 *sa)
{
    char                 mapped[64];
    struct sockaddr_in  *in4;

    memset(sa, 0, sizeof(*sa));

    if (strncmp(text, "mapped:", 7) == 0) {
        (void) snprintf(mapped, sizeof(mapped), "::ffff:%.40s", text + 7);
        text = mapped;
    }

    if (strchr(text, ':') != NULL) {
        sa->sin6_family = AF_INET6;
        sa->sin6_port = htons((uint16_t) atoi(port));
        (void) inet_pton(AF_INET6, text, &sa->sin6_addr);
        return sizeof(*sa);
    }

    in4 = (struct sockaddr_in *) sa;
    in4->sin_family = AF_INET;
    in4->sin_port = htons((uint16_t) atoi(port));
    (void) inet_pton(AF_INET, text, &in4->sin_addr);
    return sizeof(*in4);
}


/* Prints what the other end says, or why there is none. */
static void
ask(int type, const char *to, const char *port, const char *from,
    const char *from_port)
{
    int                  fd, on = 1;
    char                 reply[128];
    double               began;
    ssize_t              n;
    socklen_t            len;
    struct timeval       wait = { 5, 0 };
    struct sockaddr_in6  sa, own;

    len = address(to, port, &sa);
    fd = socket(sa.sin6_family, type, 0);
    (void) setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &wait, sizeof(wait));
    (void) setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &wait, sizeof(wait));
    (void) setsockopt(fd, SOL_SOCKET, SO_BROADCAST, &on, sizeof(on));
    (void) setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
    began = now();

    if (from != NULL) {
        n = bind(fd, (struct sockaddr *) &own, address(from, from_port,
                                                       &own));
        if (n == -1) {
            printf("bind %s\n", errno_name(errno));
            return;
        }
    }

    if (connect(fd, (struct sockaddr *) &sa, len) == -1
        || (type == SOCK_DGRAM && send(fd, "?", 1, 0) == -1))
    {
        printf("%s", errno_name(errno));

    } else if ((n = recv(fd, reply, sizeof(reply) - 1, 0)) == -1) {
        printf("%s", errno_name(errno));

    } else {
        reply[n] = '\0';
        printf("%s", reply);
    }

    if (now() - began > AT_ONCE) {
        printf(", after %.0f ms", now() - began);
    }

    (void) putchar('\n');
    (void) close(fd);
}


static void
sockets_of(const char *what, int family, int type, int protocol)
{
    int  fd;

    fd = socket(family, type, protocol);
    printf("%s: %s\n", what, fd == -1 ? "none" : "made");

    if (fd != -1) {
        (void) close(fd);
    }
}


static int
netlink_errno(int bus, const void *message, size_t size)
{
    int                  fd, rc;
    char                 buf[8192];
    ssize_t              n;
    struct nlmsgerr      error;
    struct nlmsghdr      head;
    struct sockaddr_nl   kernel = { .nl_family = AF_NETLINK };

    fd = socket(AF_NETLINK, SOCK_RAW, bus);

    if (fd == -1) {
        return errno;
    }

    if (sendto(fd, message, size, 0, (struct sockaddr *) &kernel,
               sizeof(kernel))
        == -1)
    {
        rc = errno;
        (void) close(fd);
        return rc;
    }

    n = recv(fd, buf, sizeof(buf), 0);
    (void) close(fd);

    if (n < (ssize_t) (sizeof(head) + sizeof(error))) {
        return n == -1 ? errno : 0;
    }

    memcpy(&head, buf, sizeof(head));

    if (head.nlmsg_type != NLMSG_ERROR) {
        return 0;
    }

    memcpy(&error, buf + NLMSG_HDRLEN, sizeof(error));
    return -error.error;
}


/* What root of the session might try on the kernel's own tables. */
static void
tamper(void)
{
    struct {
        struct nlmsghdr   head;
        struct nfgenmsg   gen;
    } nft = { { sizeof(nft), (NFNL_SUBSYS_NFTABLES << 8) | NFT_MSG_GETRULE,
                NLM_F_REQUEST | NLM_F_DUMP, 1, 0 }, { NFPROTO_INET, 0, 0 } };
    struct {
        struct nlmsghdr   head;
        struct rtmsg      route;
    } route = { { sizeof(route), RTM_DELROUTE, NLM_F_REQUEST | NLM_F_ACK, 1,
                  0 }, { .rtm_family = AF_INET, .rtm_table = RT_TABLE_MAIN,
                         .rtm_scope = RT_SCOPE_NOWHERE } };
    struct {
        struct nlmsghdr   head;
        struct ifinfomsg  link;
    } link = { { sizeof(link), RTM_NEWLINK, NLM_F_REQUEST | NLM_F_ACK, 1,
                 0 }, { .ifi_index = 1, .ifi_change = 1 } };
    int  fd, mark = 1;

    printf("rules: %s\n",
           errno_name(netlink_errno(NETLINK_NETFILTER, &nft, sizeof(nft))));
    printf("route: %s\n",
           errno_name(netlink_errno(NETLINK_ROUTE, &route, sizeof(route))));
    printf("lo: %s\n",
           errno_name(netlink_errno(NETLINK_ROUTE, &link, sizeof(link))));

    fd = socket(AF_INET, SOCK_STREAM, 0);
    printf("mark: %s\n", setsockopt(fd, SOL_SOCKET, SO_MARK, &mark,
                                    sizeof(mark)) == -1
                         ? errno_name(errno) : "set");
    printf("transparent: %s\n", setsockopt(fd, SOL_IP, 19, &mark,
                                           sizeof(mark)) == -1
                                ? errno_name(errno) : "set");
    printf("namespace: %s\n", unshare(CLONE_NEWUSER | CLONE_NEWNET) == -1
                              ? "none" : "made");
    (void) close(fd);
}


/* How many of n connections are answered, refused, and lost. */
static void
many(const char *to, const char *port, int n)
{
    int                  i, fd, rc, answered, refused, lost;
    char                 c;
    socklen_t            len;
    struct timeval       wait = { 5, 0 };
    struct sockaddr_in6  sa;

    answered = refused = lost = 0;
    len = address(to, port, &sa);

    for (i = 0; i < n; i++) {
        fd = socket(sa.sin6_family, SOCK_STREAM, 0);
        (void) setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &wait, sizeof(wait));
        rc = connect(fd, (struct sockaddr *) &sa, len);

        if (rc == -1) {
            refused += errno == ECONNREFUSED;
            lost += errno != ECONNREFUSED;

        } else {
            rc = recv(fd, &c, 1, 0) == 1;
            answered += rc;
            lost += !rc;
        }

        (void) close(fd);
    }

    printf("%d %d %d\n", answered, refused, lost);
}


static void
lookup(const char *name, double at_once)
{
    double            began;
    struct addrinfo  *list;

    /* libraries are found, which takes a while on an emulated machine */

    if (getaddrinfo("localhost", "80", NULL, &list) == 0) {
        freeaddrinfo(list);
    }

    began = now();

    if (getaddrinfo(name, "80", NULL, &list) == 0) {
        printf("found");
        freeaddrinfo(list);
    } else {
        printf("not found");
    }

    printf("%s\n", now() - began > at_once ? ", late" : "");
}


static int
inside_builtin(const char *name, const char *argument)
{
    int                  fd;
    char                 a[5][64];
    int                  n;
    struct sockaddr_un   un;
    struct sockaddr_in6  sa;

    memset(a, 0, sizeof(a));
    n = sscanf(argument, "%63s %63s %63s %63s", a[0], a[1], a[2], a[3]);

    if (strcmp(name, "tcp") == 0) {
        ask(SOCK_STREAM, a[0], a[1], n == 4 ? a[2] : NULL, a[3]);
        return 0;
    }

    if (strcmp(name, "udp") == 0) {
        ask(SOCK_DGRAM, a[0], a[1], n == 4 ? a[2] : NULL, a[3]);
        return 0;
    }

    if (strcmp(name, "two") == 0) {
        /* both from one port: the kernel has to tell them apart */
        ask(SOCK_STREAM, "203.0.113.1", "443", "0.0.0.0", "41999");
        ask(SOCK_STREAM, "203.0.113.2", "443", "0.0.0.0", "41999");
        return 0;
    }

    if (strcmp(name, "options") == 0) {
        /* of IP, which everybody may set: four that mean nothing */
        fd = socket(AF_INET, SOCK_STREAM, 0);
        (void) address(a[0], a[1], &sa);

        if (setsockopt(fd, IPPROTO_IP, IP_OPTIONS, "\1\1\1\1", 4) == -1) {
            printf("no options\n");
            return 0;
        }

        printf("%s\n", connect(fd, (struct sockaddr *) &sa,
                               sizeof(struct sockaddr_in)) == -1
                       ? errno_name(errno) : "connected");
        return 0;
    }

    if (strcmp(name, "many") == 0) {
        many(a[0], a[1], atoi(a[2]));
        return 0;
    }

    if (strcmp(name, "lookup") == 0) {
        lookup(a[0], atof(a[1]));
        return 0;
    }

    if (strcmp(name, "sockets") == 0) {
        sockets_of("raw", AF_INET, SOCK_RAW, IPPROTO_ICMP);
        sockets_of("raw6", AF_INET6, SOCK_RAW, IPPROTO_ICMPV6);
        sockets_of("packet", AF_PACKET, SOCK_RAW, htons(ETH_P_ALL));
        sockets_of("ping", AF_INET, SOCK_DGRAM, IPPROTO_ICMP);
        sockets_of("ping6", AF_INET6, SOCK_DGRAM, IPPROTO_ICMPV6);
        return 0;
    }

    if (strcmp(name, "tamper") == 0) {
        tamper();
        return 0;
    }

    if (strcmp(name, "abstract") == 0) {
        fd = socket(AF_UNIX, SOCK_STREAM, 0);
        memset(&un, 0, sizeof(un));
        un.sun_family = AF_UNIX;
        (void) snprintf(un.sun_path + 1, sizeof(un.sun_path) - 1, "%s", a[0]);
        printf("%s\n", connect(fd, (struct sockaddr *) &un, sizeof(un)) == -1
                       ? errno_name(errno) : "reached");
        return 0;
    }

    return 1;
}


#endif
