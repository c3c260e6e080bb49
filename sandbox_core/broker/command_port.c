/*
 * The sockets of a call to a port.  They come before init has the call: what
 * comes then is of init, and brings none.  No process of the session shares
 * them, so that none can hold up who uses them.
 */

#include "broker.h"
#include "sandbox_fault.h"

#include <errno.h>
#include <linux/sockios.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>


#define SBX_COMMAND_UNREAD  8192      /* bytes in a call's socket */


/*
 * Nobody has written to a call so far but the broker, and that little.  One
 * that holds more is no call of a worker's, and would hold sockets that no
 * limit counts.
 */

int
sbx_command_sockets(const sbx_session_t *s, int fd, sbx_error_t *e)
{
    int             rc, err, unread, fds[SBX_NET_FAMILIES];
    size_t          size;
    unsigned        i, n;
    sbx_f_socket_t  socket;
    uint8_t         frame[sizeof(sbx_frame_t) + sizeof(sbx_f_socket_t)];

    static const uint32_t  families[] = { AF_INET, AF_INET6 };

    if (ioctl(fd, SIOCOUTQ, &unread) == -1 || unread > SBX_COMMAND_UNREAD) {
        return sbx_error(e, 0, SBX_E_INVALID, "the call's socket is in use");
    }

    if (sbx_net_port_sockets(s->launched.netns, fds, e) != 0) {
        return -1;
    }

    SBX_FAULT("broker-port-sockets");

    rc = 0;
    err = 0;
    n = fds[1] != -1 ? 2 : 1;

    for (i = 0; i < n; i++) {
        memset(&socket, 0, sizeof(sbx_f_socket_t));
        socket.left = n - i - 1;
        socket.family = families[i];
        size = sbx_wire_header(frame, SBX_F_SOCKET, sizeof(sbx_f_socket_t));
        memcpy(frame + size, &socket, sizeof(sbx_f_socket_t));

        if (rc == 0
            && sbx_wire_send(fd, frame, sizeof(frame), &fds[i], 1,
                             MSG_DONTWAIT)
               != (ssize_t) sizeof(frame))
        {
            rc = -1;
            err = errno;
        }

        (void) close(fds[i]);
    }

    return rc == 0 ? 0 : sbx_error(e, err, SBX_E_INTERNAL,
                                   "cannot pass a socket of the session's");
}
