/*
 * A session's network, seen from inside: nothing leads anywhere until it is
 * granted, then everything that may go out comes to the sockets that were
 * made for the egress, and nothing but that; the rest is refused at once.
 *
 * The egress's stand-in is a process that answers each connection and each
 * datagram with where it was to go.
 */

#include "network_inside.h"

#include "sandbox_util.h"

#include <dirent.h>
#include <linux/netfilter_ipv4.h>


#define ID          "itest0000000000000000000041"


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
    inside_is(s, "@options 203.0.113.1 443", "ECONNREFUSED\n",
              "nothing with options of IP");
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
