/*
 * Sockets for connections to what listens in a session.  A socket belongs to
 * the network namespace in which it was made, whoever connects it later: so
 * the broker makes it there, and no process of the session ever has it.
 */

#include "net_private.h"

#include <errno.h>
#include <sys/socket.h>


/* Bytes that either side may have on its way: nobody's limit counts them. */
#define SBX_NET_PORT_BUFFER  (256 * 1024)


static int sbx_net_port_make(int family);


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
        || setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &size, sizeof(size)) == -1)
    {
        return -1;
    }

    return sbx_steal_fd(&fd);
}
