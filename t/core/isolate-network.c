/*
 * A session's network, seen from inside: nothing leads anywhere until it is
 * granted, then everything that may go out comes to the sockets that were
 * made for the egress, and nothing but that; the rest is refused at once.
 *
 * The egress's stand-in is a process that answers each connection and each
 * datagram with where it was to go.
 */

#include "inside.h"

#include "sandbox_util.h"

#include <arpa/inet.h>
#include <ctype.h>
#include <dirent.h>
#include <linux/if_packet.h>
#include <linux/netfilter/nf_tables.h>
#include <linux/netfilter/nfnetlink.h>
#include <linux/netfilter_ipv4.h>
#include <linux/rtnetlink.h>
#include <net/ethernet.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sched.h>
#include <sys/time.h>
#include <sys/un.h>
#include <time.h>


#define ID          "itest0000000000000000000041"
#define AT_ONCE     400      /* ms; what is lost is asked again after 1 s */


/*
 * ---- inside ----------------------------------------------------------------
 */

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


/*
 * ---- the egress's stand-in -------------------------------------------------
 */

static size_t
tell(const struct sockaddr_in6 *sa, char *buf, size_t size)
{
    char                       text[64];
    const struct sockaddr_in  *in4;

    if (sa->sin6_family == AF_INET6) {
        (void) inet_ntop(AF_INET6, &sa->sin6_addr, text, sizeof(text));
    } else {
        in4 = (const struct sockaddr_in *) sa;
        (void) inet_ntop(AF_INET, &in4->sin_addr, text, sizeof(text));
    }

    return (size_t) snprintf(buf, size, "%s %u", text, ntohs(sa->sin6_port));
}


static void
answer_tcp(int listener, int level)
{
    int                  fd;
    char                 buf[128];
    size_t               n;
    socklen_t            len;
    struct sockaddr_in6  sa;

    fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);

    if (fd == -1) {
        return;
    }

    len = sizeof(sa);
    memset(&sa, 0, sizeof(sa));

    n = getsockopt(fd, level, SO_ORIGINAL_DST, &sa, &len) == 0
        ? tell(&sa, buf, sizeof(buf))
        : (size_t) snprintf(buf, sizeof(buf), "no destination");

    (void) send(fd, buf, n, MSG_NOSIGNAL);
    (void) close(fd);
}


static void
answer_udp(int fd)
{
    char                 buf[128];
    ssize_t              n;
    socklen_t            len;
    struct sockaddr_in6  sa;

    len = sizeof(sa);
    n = recvfrom(fd, buf, sizeof(buf), 0, (struct sockaddr *) &sa, &len);

    if (n >= 0) {
        (void) sendto(fd, "answer", 6, 0, (struct sockaddr *) &sa, len);
    }
}


static pid_t
egress(const int fds[SBX_NET_FDS])
{
    int            i;
    pid_t          pid;
    struct pollfd  pfd[SBX_NET_FDS];

    pid = fork();

    if (pid != 0) {
        return pid;
    }

    (void) prctl(PR_SET_PDEATHSIG, SIGKILL);

    for (i = 0; i < SBX_NET_FDS; i++) {
        pfd[i].fd = fds[i];
        pfd[i].events = POLLIN;
    }

    while (poll(pfd, SBX_NET_FDS, -1) > 0) {
        if (pfd[SBX_NET_TCP4].revents) {
            answer_tcp(fds[SBX_NET_TCP4], SOL_IP);
        }

        if (pfd[SBX_NET_TCP6].revents) {
            answer_tcp(fds[SBX_NET_TCP6], SOL_IPV6);
        }

        if (pfd[SBX_NET_UDP4].revents) {
            answer_udp(fds[SBX_NET_UDP4]);
        }

        if (pfd[SBX_NET_UDP6].revents) {
            answer_udp(fds[SBX_NET_UDP6]);
        }
    }

    _exit(0);
}


static void
egress_end(pid_t pid)
{
    (void) kill(pid, SIGKILL);
    (void) waitpid(pid, NULL, 0);
}


/*
 * ---- tests -----------------------------------------------------------------
 */

static int  ipv6;                     /* the session has it */


static const char *
lookup_at_once(void)
{
    return getenv("SANDBOX_TEST_SLOW") ? "@lookup example.org 500"
                                       : "@lookup example.org 50";
}


static unsigned
port_of(int fd)
{
    socklen_t            len;
    struct sockaddr_in6  sa;

    len = sizeof(sa);
    memset(&sa, 0, sizeof(sa));
    (void) getsockname(fd, (struct sockaddr *) &sa, &len);

    return ntohs(sa.sin6_port);
}


static unsigned
descriptors(void)
{
    DIR       *dir;
    unsigned   n;

    n = 0;
    dir = opendir("/proc/self/fd");

    while (dir != NULL && readdir(dir) != NULL) {
        n++;
    }

    if (dir != NULL) {
        (void) closedir(dir);
    }

    return n;
}


static void
test_off(inside_session_t *s, const char *when)
{
    unsigned  i;
    char      name[128];

    static const struct {
        const char  *command;
        const char  *name;
    } rows[] = {
        { "@tcp 203.0.113.1 443", "TCP" },
        { "@tcp 2001:db8::1 443", "TCP over IPv6" },
        { "@udp 203.0.113.1 53", "UDP" },
        { "@udp 2001:db8::1 53", "UDP over IPv6" },
        { "@tcp mapped:203.0.113.1 443", "TCP of an IPv6 socket" }
    };

    for (i = 0; i < sbx_nelts(rows); i++) {
        (void) snprintf(name, sizeof(name), "%s: no way for %s", when,
                        rows[i].name);
        inside_is(s, rows[i].command, "ENETUNREACH\n", name);
    }

    (void) snprintf(name, sizeof(name), "%s: a name is not found, at once",
                    when);
    inside_is(s, lookup_at_once(), "not found\n", name);
}


static void
test_sockets(const int fds[SBX_NET_FDS])
{
    int            i, n, flags, value;
    socklen_t      len;

    n = ipv6 ? SBX_NET_FDS : SBX_NET_TCP6;

    for (i = 0; i < n; i++) {
        flags = fcntl(fds[i], F_GETFL);
        ok(flags != -1 && (flags & O_NONBLOCK)
           && (fcntl(fds[i], F_GETFD) & FD_CLOEXEC)
           && port_of(fds[i]) > 1024,
           "socket %d is bound, does not block, and is closed on exec", i);

        len = sizeof(value);
        value = -1;
        (void) getsockopt(fds[i], SOL_SOCKET, SO_ACCEPTCONN, &value, &len);
        is_int(value, i == SBX_NET_TCP4 || i == SBX_NET_TCP6,
               "and it listens if it is of TCP");
    }
}


/* What goes out comes to the sockets with where it was to go. */
static void
test_out(inside_session_t *s)
{
    inside_is(s, "@tcp 203.0.113.1 443", "203.0.113.1 443\n",
              "a connection comes with its destination");
    inside_is(s, "@tcp 10.0.0.1 1", "10.0.0.1 1\n", "to a private address");
    inside_is(s, "@tcp 240.0.0.1 8080", "240.0.0.1 8080\n",
              "and to one that stands for the host");
    inside_is(s, "@tcp 169.254.169.254 80", "169.254.169.254 80\n",
              "and to a link-local one");
    inside_is(s, "@tcp mapped:203.0.113.1 443", "203.0.113.1 443\n",
              "through a socket of IPv6 as well");
    inside_is(s, "@two", "203.0.113.1 443\n203.0.113.2 443\n",
              "two from one port are told apart");
    inside_is(s, "@udp 203.0.113.1 53", "answer\n",
              "a question to any server of names is answered");
    inside_is(s, "@udp " SBX_NET_ADDRESS4 " 53", "answer\n",
              "and to the session's own");
    inside_is(s, "@tcp " SBX_NET_ADDRESS4 " 53", SBX_NET_ADDRESS4 " 53\n",
              "over TCP too");

    if (!ipv6) {
        (void) skip("the machine has none", "IPv6");
        return;
    }

    inside_is(s, "@tcp 2001:db8::1 443", "2001:db8::1 443\n",
              "IPv6: a connection comes with its destination");
    inside_is(s, "@tcp fe80::1 443", "Invalid argument\n",
              "none to an address of a link without its name");
    inside_is(s, "@udp 2001:db8::1 53", "answer\n",
              "a question is answered");
    inside_is(s, "@tcp " SBX_NET_ADDRESS6 " 53", SBX_NET_ADDRESS6 " 53\n",
              "by the session's own address as well");
}


/* The rest is refused at once, and what stays inside is not touched. */
static void
test_refused(inside_session_t *s, const int fds[SBX_NET_FDS])
{
    char  command[128];

    inside_is(s, "@udp 203.0.113.1 443", "EPERM\n", "no QUIC");
    inside_is(s, "@udp 203.0.113.1 5353", "EPERM\n", "no UDP but to 53");
    inside_is(s, "@udp 224.0.0.251 53", "EPERM\n", "no multicast");
    inside_is(s, "@udp 255.255.255.255 53", "EPERM\n", "no broadcast");
    inside_is(s, "@tcp 203.0.113.1 443 127.0.0.1 0", "ECONNREFUSED\n",
              "nothing goes out from a loopback address");
    inside_is(s, "@tcp 127.0.0.1 22 " SBX_NET_ADDRESS4 " 0",
              "ECONNREFUSED\n", "and from outside nothing comes to one");
    inside_is(s, "@tcp 127.0.0.1 22", "ECONNREFUSED\n",
              "the session's own loopback is its own");
    inside_is(s, "@tcp " SBX_NET_ADDRESS4 " 22", "ECONNREFUSED\n",
              "its own address too");
    inside_is(s, "@tcp 0.0.0.0 22", "ECONNREFUSED\n", "and no address");
    inside_is(s, "@udp 127.0.0.1 53", "ECONNREFUSED\n",
              "a server of names on the loopback would be its own");

    (void) snprintf(command, sizeof(command), "@tcp 127.0.0.1 %u",
                    port_of(fds[SBX_NET_TCP4]));
    inside_is(s, command, "ECONNREFUSED\n",
              "the egress's socket cannot be reached by its address");
    (void) snprintf(command, sizeof(command), "@tcp 0.0.0.0 %u",
                    port_of(fds[SBX_NET_TCP4]));
    inside_is(s, command, "ECONNREFUSED\n", "nor by none");
    (void) snprintf(command, sizeof(command), "@tcp %s %u", SBX_NET_ADDRESS4,
                    port_of(fds[SBX_NET_TCP4]));
    inside_is(s, command, "ECONNREFUSED\n", "nor by the session's");
    (void) snprintf(command, sizeof(command),
                    "@tcp 127.0.0.1 %u " SBX_NET_ADDRESS4 " 0",
                    port_of(fds[SBX_NET_TCP4]));
    inside_is(s, command, "ECONNREFUSED\n", "from there neither");
    (void) snprintf(command, sizeof(command), "@udp 127.0.0.1 %u",
                    port_of(fds[SBX_NET_UDP4]));
    inside_is(s, command, "EPERM\n", "nor that of names");
    (void) snprintf(command, sizeof(command),
                    "@tcp 203.0.113.1 443 127.0.0.1 %u",
                    port_of(fds[SBX_NET_TCP4]));
    inside_is(s, command, "bind EADDRINUSE\n",
              "nobody can take the port from it");
    (void) snprintf(command, sizeof(command),
                    "@tcp 203.0.113.1 443 0.0.0.0 %u",
                    port_of(fds[SBX_NET_TCP4]));
    inside_is(s, command, "bind EADDRINUSE\n", "at no address");

    if (!ipv6) {
        return;
    }

    inside_is(s, "@udp 2001:db8::1 443", "EPERM\n", "IPv6: no QUIC");
    inside_is(s, "@tcp ::1 22", "ECONNREFUSED\n",
              "the session's own loopback is its own");
    inside_is(s, "@tcp :: 22", "ECONNREFUSED\n", "and no address");
    inside_is(s, "@tcp 2001:db8::1 443 ::1 0", "ECONNREFUSED\n",
              "nothing goes out from it");
    inside_is(s, "@tcp 2001:db8::1 443 2001:db8::7 0",
              "bind EADDRNOTAVAIL\n", "nobody has an address of the world");
    (void) snprintf(command, sizeof(command), "@tcp ::1 %u",
                    port_of(fds[SBX_NET_TCP6]));
    inside_is(s, command, "ECONNREFUSED\n",
              "the egress's socket cannot be reached by its address");
    (void) snprintf(command, sizeof(command), "@udp ::1 %u",
                    port_of(fds[SBX_NET_UDP6]));
    inside_is(s, command, "EPERM\n", "nor that of names");
}


static void
test_tampering(inside_session_t *s)
{
    int                 fd;
    char                command[128], name[64];
    struct sockaddr_un  un;

    /* first as every command is, then with nothing but the kernel's own
       rights in the way */

    for (inside_nofilter = 0; inside_nofilter < 2; inside_nofilter++) {
        inside_run_as(s, SBX_USER_ROOT, NULL, "@sockets");
        is_str(inside_reply.out, "raw: none\nraw6: none\npacket: none\n"
                                 "ping: none\nping6: none\n",
               "root has no sockets that go past TCP and UDP");

        inside_run_as(s, SBX_USER_ROOT, NULL, "@tamper");
        ok(strstr(inside_reply.out, "rules: EPERM\n") != NULL,
           "cannot list the rules");
        ok(strstr(inside_reply.out, "route: EPERM\n") != NULL
           && strstr(inside_reply.out, "lo: EPERM\n") != NULL,
           "cannot change routes and interfaces");
        ok(strstr(inside_reply.out, "mark: EPERM\n") != NULL
           && strstr(inside_reply.out, "transparent: EPERM\n") != NULL
           && strstr(inside_reply.out, "namespace: none\n") != NULL,
           "nor mark its packets, nor make a namespace");

        if (tap_failed) {
            printf("# %s\n", inside_reply.out);
        }
    }

    inside_nofilter = 0;

    inside_run_as(s, SBX_USER_ROOT, NULL,
                  "cd /proc/sys/net; echo 1 > ipv4/ip_forward"
                  " || echo 1 > ipv4/ip_nonlocal_bind"
                  " || echo 9 > netfilter/nf_conntrack_udp_timeout"
                  " || echo none");
    ok(strstr(inside_reply.out, "none\n") != NULL,
       "nothing of /proc/sys/net can be written");

    inside_run_as(s, SBX_USER_ROOT, NULL,
                  "grep -c : /proc/net/dev; cat /proc/net/arp | wc -l;"
                  " ls /proc/net/nf_conntrack 2>/dev/null");
    ok(strncmp(inside_reply.out, "1\n1\n", 4) == 0,
       "/proc/net shows lo alone");

    fd = socket(AF_UNIX, SOCK_STREAM, 0);
    memset(&un, 0, sizeof(un));
    un.sun_family = AF_UNIX;
    (void) snprintf(name, sizeof(name), "sbx-test-%d", (int) getpid());
    (void) snprintf(un.sun_path + 1, sizeof(un.sun_path) - 1, "%s", name);

    if (bind(fd, (struct sockaddr *) &un, sizeof(un)) == -1
        || listen(fd, 1) == -1)
    {
        ok(0, "an abstract socket of the host: %s", strerror(errno));
    }

    (void) snprintf(command, sizeof(command), "@abstract %s", name);
    inside_is(s, command, "ECONNREFUSED\n",
              "an abstract socket of the host is out of reach");
    (void) close(fd);
}


/* Of 6,000 at a stroke the first 4,096 and those of the time pass; the others
 * are refused, and nothing is kept of them all. */
static void
test_many(inside_session_t *s, int netns)
{
    int     home, answered, refused, lost, slow;
    char    text[32];
    double  began;

    answered = refused = lost = -1;
    slow = getenv("SANDBOX_TEST_SLOW") != NULL;
    began = now();
    inside_run(s, slow ? "@many 203.0.113.1 80 300"
                       : "@many 203.0.113.1 80 6000");
    began = now() - began;

    (void) sscanf(inside_reply.out, "%d %d %d", &answered, &refused, &lost);
    ok(answered >= (slow ? 300 : 4000) && lost == 0
       && answered + refused == (slow ? 300 : 6000),
       "what is too much is refused: %d, %d, %d in %.0f ms", answered,
       refused, lost, began);

    if (!slow && began < 1500) {
        ok(refused > 0, "and some is");
    } else {
        (void) skip("the machine is slow", "some are too much");
    }

    home = open("/proc/thread-self/ns/net", O_RDONLY | O_CLOEXEC);

    if (setns(netns, CLONE_NEWNET) == 0) {
        (void) sbx_read_at(AT_FDCWD,
                           "/proc/sys/net/netfilter/nf_conntrack_count", text,
                           sizeof(text));
        (void) setns(home, CLONE_NEWNET);
    }

    (void) close(home);
    ok(atoi(text) > 0 && atoi(text) <= answered + 100,
       "the kernel knows no more than was let out: %d", atoi(text));
}


static void
test_again(inside_session_t *s, int netns)
{
    int          fds[SBX_NET_FDS], old[SBX_NET_FDS], i;
    pid_t        pid;
    sbx_error_t  e;

    /* none reads the first: the second takes its place */

    if (!ok(sbx_net_grant(netns, old, &e) == 0
            && sbx_net_grant(netns, fds, &e) == 0, "granted again"))
    {
        printf("# %s\n", e.text);
        return;
    }

    pid = egress(fds);
    inside_is(s, "@tcp 203.0.113.1 443", "203.0.113.1 443\n",
              "the new sockets are used");
    inside_is(s, "@udp 203.0.113.1 53", "answer\n", "for names as well");
    egress_end(pid);

    for (i = 0; i < SBX_NET_FDS; i++) {
        if (fds[i] != -1) {
            (void) close(fds[i]);
            (void) close(old[i]);
        }
    }

    inside_is(s, "@tcp 203.0.113.1 443", "ECONNREFUSED\n",
              "without an egress everything is refused");
    inside_is(s, "@udp 203.0.113.1 53", "ECONNREFUSED\n",
              "names too");
}


static void
test_revoked(inside_session_t *s, int netns)
{
    sbx_error_t  e;

    if (!ok(sbx_net_revoke(netns, &e) == 0, "revoked")) {
        printf("# %s (%s)\n", e.text, strerror(e.err));
    }

    inside_is(s, "@tcp 203.0.113.1 443", "ENETUNREACH\n",
              "then there is no way");
    inside_is(s, "@udp 203.0.113.1 53", "ENETUNREACH\n", "for names neither");

    if (ipv6) {
        inside_is(s, "@tcp 2001:db8::1 443", "ENETUNREACH\n",
                  "nor over IPv6");
    }

    inside_is(s, "@tcp " SBX_NET_ADDRESS4 " 53", "ECONNREFUSED\n",
              "nor to the session's own server of names");
    inside_is(s, lookup_at_once(), "not found\n",
              "a name is not found, at once");
    ok(sbx_net_revoke(netns, &e) == 0, "it can be revoked again");
}


/* What is open when the network is taken can still be ended by the egress. */
static void
test_cut(inside_session_t *s, int netns)
{
    int            fds[SBX_NET_FDS], i, fd, status;
    pid_t          pid;
    sbx_error_t    e;
    struct linger  reset = { 1, 0 };
    struct pollfd  pfd;

    if (!ok(sbx_net_grant(netns, fds, &e) == 0, "granted again")) {
        return;
    }

    pid = fork();

    if (pid == 0) {
        inside_run(s, "@tcp 203.0.113.1 443");
        _exit(strncmp(inside_reply.out, "ECONNRESET", 10) != 0);
    }

    pfd.fd = fds[SBX_NET_TCP4];
    pfd.events = POLLIN;
    fd = -1;

    if (poll(&pfd, 1, INSIDE_WAIT) == 1) {
        fd = accept4(fds[SBX_NET_TCP4], NULL, NULL, SOCK_CLOEXEC);
    }

    ok(fd != -1 && sbx_net_revoke(netns, &e) == 0,
       "revoked while a connection is open");

    (void) setsockopt(fd, SOL_SOCKET, SO_LINGER, &reset, sizeof(reset));
    (void) close(fd);

    status = -1;
    (void) waitpid(pid, &status, 0);
    is_int(status, 0, "its end is told of it at once");

    for (i = 0; i < SBX_NET_FDS; i++) {
        if (fds[i] != -1) {
            (void) close(fds[i]);
        }
    }
}


static void
test_time(int netns)
{
    int          fds[SBX_NET_FDS], i, k;
    double       began, best, took;
    sbx_error_t  e;

    best = 1e9;

    for (k = 0; k < 20; k++) {
        began = now();

        if (sbx_net_grant(netns, fds, &e) == -1) {
            ok(0, "granted: %s", e.text);
            return;
        }

        took = now() - began;
        best = took < best ? took : best;

        for (i = 0; i < SBX_NET_FDS; i++) {
            if (fds[i] != -1) {
                (void) close(fds[i]);
            }
        }
    }

    printf("# a grant takes %.2f ms\n", best);
    ok(best < (getenv("SANDBOX_TEST_SLOW") ? 50 : 3),
       "a grant takes a moment");
}


static void
test_errors(inside_session_t *s, int netns)
{
    int          fds[SBX_NET_FDS], other;
    struct stat  before, after;
    sbx_error_t  e;

    (void) stat("/proc/thread-self/ns/net", &before);

    other = open("/dev/null", O_RDONLY | O_CLOEXEC);
    ok(sbx_net_grant(other, fds, &e) == -1 && fds[0] == -1
       && sbx_net_revoke(other, &e) == -1,
       "what is no network namespace is refused");
    (void) close(other);

    (void) stat("/proc/thread-self/ns/net", &after);
    ok(before.st_ino == after.st_ino, "the caller is where it was");

    (void) s;
    (void) netns;
}


static int
network_test(void)
{
    int               fds[SBX_NET_FDS], i, netns;
    pid_t             pid;
    unsigned          open_before;
    sbx_error_t       e;
    sbx_limits_t      limits;
    inside_session_t  s;

    inside_setup();
    inside_limits(&limits);
    open_before = descriptors();

    if (inside_launch(&s, ID, &limits, "base", &e) == -1
        || s.launched.netns == -1)
    {
        ok(0, "a session starts: %s", e.text);
        (void) inside_end(&s);
        inside_done();
        return done_testing();
    }

    netns = s.launched.netns;
    test_off(&s, "at first");

    if (sbx_net_grant(netns, fds, &e) == -1) {
        ok(0, "granted: %s (%s)", e.text, strerror(e.err));
        (void) inside_end(&s);
        inside_done();
        return done_testing();
    }

    ipv6 = fds[SBX_NET_TCP6] != -1;
    test_sockets(fds);

    pid = egress(fds);
    test_out(&s);
    test_refused(&s, fds);
    test_tampering(&s);
    test_many(&s, netns);
    egress_end(pid);

    for (i = 0; i < SBX_NET_FDS; i++) {
        if (fds[i] != -1) {
            (void) close(fds[i]);
        }
    }

    test_again(&s, netns);
    test_revoked(&s, netns);
    test_cut(&s, netns);
    test_time(netns);
    test_errors(&s, netns);

    ok(inside_end(&s) == 0, "nothing of the session is left");
    is_int(descriptors(), open_before, "nor a descriptor");
    inside_done();

    return done_testing();
}


int
main(int argc, char **argv)
{
    (void) argc;

    return inside_test(argv, network_test);
}
