/*
 * The link of a call to a port, over which init relays what the program says.
 * The worker has its end before init has the call: what comes then is of init,
 * and brings nothing.
 */

#include "broker.h"
#include "sandbox_fault.h"

#include <errno.h>
#include <linux/sockios.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>


#define SBX_COMMAND_UNREAD  8192            /* bytes in a call's socket */
/* that one side may have on its way: nobody's limit counts them */
#define SBX_COMMAND_LINK    (128 * 1024)

#ifndef SO_PASSRIGHTS
#define SO_PASSRIGHTS       83
#endif


static int sbx_command_pair(int fds[2], sbx_error_t *e);


/*
 * Nobody has written to a call so far but the broker, and that little.  One
 * that holds more is no call of a worker's, and would hold sockets that no
 * limit counts.
 */

int
sbx_command_link(int fd, int *link, sbx_error_t *e)
{
    int      rc, err, unread, fds[2];
    uint8_t  frame[sizeof(sbx_frame_t)];

    *link = -1;

    if (ioctl(fd, SIOCOUTQ, &unread) == -1 || unread > SBX_COMMAND_UNREAD) {
        return sbx_error(e, 0, SBX_E_INVALID, "the call's socket is in use");
    }

    if (sbx_command_pair(fds, e) != 0) {
        return -1;
    }

    SBX_FAULT("broker-port-linked");

    (void) sbx_wire_header(frame, SBX_F_SOCKET, 0);
    rc = sbx_wire_send(fd, frame, sizeof(frame), &fds[0], 1, MSG_DONTWAIT)
         == (ssize_t) sizeof(frame);
    err = errno;
    (void) close(fds[0]);

    if (rc) {
        *link = fds[1];
        return 0;
    }

    (void) close(fds[1]);

    return sbx_error(e, err, SBX_E_INTERNAL,
                     "cannot pass a link to the session's port");
}


static int
sbx_command_pair(int fds[2], sbx_error_t *e)
{
    int  i, no, yes, size;

    if (socketpair(AF_UNIX, SOCK_STREAM|SOCK_NONBLOCK|SOCK_CLOEXEC, 0, fds)
        == -1)
    {
        return sbx_error(e, errno, SBX_E_INTERNAL,
                         "cannot make a link to the session's port");
    }

    no = 0;
    yes = 1;
    size = SBX_COMMAND_LINK;

    for (i = 0; i < 2; i++) {

        /* before Linux 6.16 the worker sees to what is passed all the same */

        (void) setsockopt(fds[i], SOL_SOCKET, SO_PASSRIGHTS, &no,
                          sizeof(no));

        if (setsockopt(fds[i], SOL_SOCKET, SO_OOBINLINE, &yes, sizeof(yes))
                == -1
            || setsockopt(fds[i], SOL_SOCKET, SO_SNDBUF, &size, sizeof(size))
               == -1)
        {
            (void) sbx_error(e, errno, SBX_E_INTERNAL,
                             "cannot set up a link to the session's port");
            (void) close(fds[0]);
            (void) close(fds[1]);
            return -1;
        }
    }

    return 0;
}
