/*
 * Sockets for connections to what listens in a session.  A socket belongs to
 * the network namespace in which it was made, whoever connects it later: so
 * the broker makes it there, and no process of the session ever has it.
 *
 * Where such a connection comes from is a port of the session's, too, and
 * connect() would look for a free one through all of them, which the session
 * may have taken: the time is that of whoever connects.  So a socket has a few
 * to choose from, that nobody can foresee; on kernels that know no such range,
 * one.
 */

#include "net_private.h"

#include <errno.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>


#ifndef IP_LOCAL_PORT_RANGE
#define IP_LOCAL_PORT_RANGE  51        /* Linux 6.3 */
#endif

/* What a new network has for connections, and how many of them a socket. */
#define SBX_NET_PORT_FIRST   32768
#define SBX_NET_PORT_LAST    60999
#define SBX_NET_PORT_CHOICE  64
#define SBX_NET_PORT_TRIES   64

/* Bytes that either side may have on its way: nobody's limit counts them. */
#define SBX_NET_PORT_BUFFER  (256 * 1024)


static int sbx_net_port_make(int family);
static int sbx_net_port_from(int fd, int family);
static int sbx_net_port_bind(int fd, int family);
static int sbx_net_port_draw(unsigned n);


int
sbx_net_port_sockets(int netns, int fds[SBX_NET_FAMILIES], sbx_error_t *e)
{
    int          err;
    sbx_auto_fd  home = -1;

    fds[0] = -1;
    fds[1] = -1;

    if (sbx_net_enter(netns, &home, e) == -1) {
        return -1;
    }

    err = 0;
    fds[0] = sbx_net_port_make(AF_INET);

    if (fds[0] == -1) {
        err = errno;

    } else {
        fds[1] = sbx_net_port_make(AF_INET6);
        err = fds[1] == -1 && errno != EAFNOSUPPORT ? errno : 0;
    }

    sbx_net_leave(home);

    if (err == 0) {
        return 0;
    }

    if (fds[0] != -1) {
        (void) close(fds[0]);
        fds[0] = -1;
    }

    if (err == EADDRINUSE) {
        return sbx_error(e, err, SBX_E_UNAVAILABLE,
                         "the session has too many ports in use for a "
                         "connection from outside");
    }

    return sbx_error(e, err, SBX_E_INTERNAL,
                     "cannot make a socket in the session's network");
}


static int
sbx_net_port_make(int family)
{
    int          size;
    sbx_auto_fd  fd = -1;

    fd = socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

    if (fd == -1) {
        return -1;
    }

    size = SBX_NET_PORT_BUFFER;

    if (setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &size, sizeof(size)) == -1
        || setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &size, sizeof(size)) == -1
        || sbx_net_port_from(fd, family) == -1)
    {
        return -1;
    }

    return sbx_steal_fd(&fd);
}


static int
sbx_net_port_from(int fd, int family)
{
    int       first;
    uint32_t  range;

    first = sbx_net_port_draw(SBX_NET_PORT_CHOICE);

    if (first == -1) {
        return -1;
    }

    range = (uint32_t) (first + SBX_NET_PORT_CHOICE - 1) << 16
            | (uint32_t) first;

    if (setsockopt(fd, SOL_IP, IP_LOCAL_PORT_RANGE, &range, sizeof(range))
        == 0)
    {
        return 0;
    }

    return errno == ENOPROTOOPT ? sbx_net_port_bind(fd, family) : -1;
}


/* Connections of before that are only waited for are no hindrance. */

static int
sbx_net_port_bind(int fd, int family)
{
    int       on, port;
    unsigned  i;

    union {
        struct sockaddr      any;
        struct sockaddr_in   in;
        struct sockaddr_in6  in6;
    } address;

    on = 1;

    if (setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)) == -1) {
        return -1;
    }

    for (i = 0; i < SBX_NET_PORT_TRIES; i++) {
        port = sbx_net_port_draw(1);

        if (port == -1) {
            return -1;
        }

        memset(&address, 0, sizeof(address));
        address.any.sa_family = (sa_family_t) family;

        if (family == AF_INET) {
            address.in.sin_port = htons((in_port_t) port);

        } else {
            address.in6.sin6_port = htons((in_port_t) port);
        }

        if (bind(fd, &address.any, sizeof(address)) == 0) {
            return 0;
        }

        if (errno != EADDRINUSE) {
            return -1;
        }
    }

    return -1;
}


/* The first of n numbers, or -1. */

static int
sbx_net_port_draw(unsigned n)
{
    uint32_t  random;

    if (getrandom(&random, sizeof(random), 0) != sizeof(random)) {
        return -1;
    }

    return SBX_NET_PORT_FIRST
           + (int) (random % (SBX_NET_PORT_LAST - SBX_NET_PORT_FIRST + 2 - n));
}
