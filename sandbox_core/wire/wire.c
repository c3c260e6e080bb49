#include "wire.h"
#include "sandbox_util.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>


#define SBX_WIRE_FDS_MAX  (SBX_TASK_FDS_MAX + 16)


static void sbx_wire_close(int *fds, unsigned nfds);
static unsigned sbx_wire_collect(struct msghdr *msg, int *fds);


void
sbx_wire_init(sbx_wire_t *w, void *buf, size_t size)
{
    w->buf = buf;
    w->size = size;
    w->start = 0;
    w->end = 0;
}


int
sbx_wire_next(sbx_wire_t *w, sbx_frame_t *frame, const uint8_t **payload)
{
    size_t  have;

    have = w->end - w->start;

    if (have >= sizeof(sbx_frame_t)) {
        memcpy(frame, w->buf + w->start, sizeof(sbx_frame_t));

        if (frame->length > SBX_FRAME_MAX) {
            return -1;
        }

        if (have - sizeof(sbx_frame_t) >= frame->length) {
            *payload = w->buf + w->start + sizeof(sbx_frame_t);
            w->start += sizeof(sbx_frame_t) + frame->length;

            return 1;
        }
    }

    if (w->start != 0) {
        memmove(w->buf, w->buf + w->start, have);
        w->start = 0;
        w->end = have;
    }

    return 0;
}


size_t
sbx_wire_header(void *buf, sbx_frame_type_t type, size_t length)
{
    sbx_frame_t  frame;

    frame.length = (uint32_t) length;
    frame.type = (uint16_t) type;
    frame.flags = 0;

    memcpy(buf, &frame, sizeof(sbx_frame_t));

    return sizeof(sbx_frame_t);
}


ssize_t
sbx_wire_send(int fd, const void *buf, size_t n, const int *fds,
    unsigned nfds, int flags)
{
    ssize_t          rc;
    struct iovec     iov;
    struct msghdr    msg;
    struct cmsghdr  *cmsg;

    union {
        struct cmsghdr  align;
        char            space[CMSG_SPACE(SBX_WIRE_FDS_MAX * sizeof(int))];
    } control;

    if (nfds > SBX_WIRE_FDS_MAX) {
        errno = EMSGSIZE;
        return -1;
    }

    iov.iov_base = (void *) (uintptr_t) buf;
    iov.iov_len = n;

    memset(&msg, 0, sizeof(struct msghdr));
    msg.msg_iov = &iov;
    msg.msg_iovlen = 1;

    if (nfds != 0) {
        memset(&control, 0, sizeof(control));
        msg.msg_control = &control;
        msg.msg_controllen = CMSG_SPACE(nfds * sizeof(int));

        cmsg = CMSG_FIRSTHDR(&msg);
        cmsg->cmsg_level = SOL_SOCKET;
        cmsg->cmsg_type = SCM_RIGHTS;
        cmsg->cmsg_len = CMSG_LEN(nfds * sizeof(int));
        memcpy(CMSG_DATA(cmsg), fds, nfds * sizeof(int));
    }

    do {
        rc = sendmsg(fd, &msg, flags | MSG_NOSIGNAL);
    } while (rc == -1 && errno == EINTR);

    return rc;
}


static void
sbx_wire_close(int *fds, unsigned nfds)
{
    unsigned  i;

    for (i = 0; i < nfds; i++) {
        (void) close(fds[i]);
        fds[i] = -1;
    }
}


static unsigned
sbx_wire_collect(struct msghdr *msg, int *fds)
{
    size_t           n;
    unsigned         count;
    struct cmsghdr  *cmsg;

    count = 0;

    for (cmsg = CMSG_FIRSTHDR(msg);
         cmsg != NULL;
         cmsg = CMSG_NXTHDR(msg, cmsg))
    {
        if (cmsg->cmsg_level != SOL_SOCKET || cmsg->cmsg_type != SCM_RIGHTS) {
            continue;
        }

        /* what there is room for is no more than what fds has */

        n = (cmsg->cmsg_len - CMSG_LEN(0)) / sizeof(int);

        if (n > SBX_WIRE_FDS_ALL - count) {
            n = SBX_WIRE_FDS_ALL - count;
        }

        memcpy(fds + count, CMSG_DATA(cmsg), n * sizeof(int));
        count += (unsigned) n;
    }

    return count;
}


ssize_t
sbx_wire_recv(int fd, void *buf, size_t size, int *fds, unsigned *nfds,
    int flags)
{
    int       all[SBX_WIRE_FDS_ALL], err;
    ssize_t   rc;
    unsigned  count, max;

    max = *nfds;
    *nfds = 0;

    rc = sbx_wire_recv_all(fd, buf, size, all, &count, flags);
    err = errno;

    if (rc != -1 && count > max) {
        rc = -1;
        err = EMSGSIZE;
    }

    if (rc == -1) {
        sbx_wire_close(all, count);
        errno = err;
        return -1;
    }

    if (count != 0) {
        memcpy(fds, all, count * sizeof(int));
    }

    *nfds = count;

    return rc;
}


ssize_t
sbx_wire_recv_all(int fd, void *buf, size_t size, int fds[SBX_WIRE_FDS_ALL],
    unsigned *nfds, int flags)
{
    ssize_t        rc;
    struct iovec   iov;
    struct msghdr  msg;

    union {
        struct cmsghdr  align;
        char            space[CMSG_SPACE(SBX_WIRE_FDS_ALL * sizeof(int))];
    } control;

    *nfds = 0;

    iov.iov_base = buf;
    iov.iov_len = size;

    memset(&msg, 0, sizeof(struct msghdr));
    msg.msg_iov = &iov;
    msg.msg_iovlen = 1;
    msg.msg_control = &control;
    msg.msg_controllen = sizeof(control);

    do {
        rc = recvmsg(fd, &msg, flags | MSG_CMSG_CLOEXEC);
    } while (rc == -1 && errno == EINTR);

    if (rc == -1) {
        return -1;
    }

    *nfds = sbx_wire_collect(&msg, fds);

    if (msg.msg_flags & (MSG_TRUNC|MSG_CTRUNC)) {
        errno = EMSGSIZE;
        return -1;
    }

    return rc;
}


/*
 * A look that ends with the bytes of one message goes on into the next one,
 * for no byte of it but for its descriptors.  A read does not.  Without room
 * for descriptors it says whether it has dropped some.
 */

ssize_t
sbx_wire_recv_looked(int fd, void *buf, size_t size,
    int fds[SBX_WIRE_FDS_ALL], unsigned *nfds, int *ours)
{
    ssize_t        n, rc;
    struct iovec   iov;
    struct msghdr  msg;

    *ours = 1;

    n = sbx_wire_recv_all(fd, buf, size, fds, nfds, MSG_DONTWAIT|MSG_PEEK);

    if (n <= 0) {
        return n;
    }

    iov.iov_base = buf;
    iov.iov_len = (size_t) n;

    memset(&msg, 0, sizeof(struct msghdr));
    msg.msg_iov = &iov;
    msg.msg_iovlen = 1;

    do {
        rc = recvmsg(fd, &msg, MSG_DONTWAIT);
    } while (rc == -1 && errno == EINTR);

    if (rc != n) {
        errno = EMSGSIZE;
        return -1;
    }

    *ours = (msg.msg_flags & MSG_CTRUNC) != 0;

    return n;
}
