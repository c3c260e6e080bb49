/*
 * A session's first process that passes its enemies what takes long to be
 * closed: a socket, in whose queue are many that watch files.
 *
 *     GET .../processes     with a frame that brings none
 *     GET .../files/bad     with a frame that brings one, of the wrong kind
 *     GET .../files/late    behind a frame that ends the call
 *     GET .../files/oob     with a byte out of band
 *     GET .../files/many    with a frame that brings many, of what is in it
 *     POST .../exec         with nothing, and the call is closed
 *
 * Where the kernel lets nothing be passed, it says "refused".
 */

#include "../../../sandbox_core/include/sandbox_task.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/socket.h>
#include <unistd.h>


#define CONTROL    3
#define MANY       60


static ssize_t
pass(int to, const void *bytes, size_t size, const int *fds, size_t n,
    int flags)
{
    char             space[CMSG_SPACE(MANY * sizeof(int))];
    struct iovec     iov;
    struct msghdr    msg;
    struct cmsghdr  *cmsg;

    memset(&msg, 0, sizeof(msg));
    memset(space, 0, sizeof(space));
    iov.iov_base = (void *) (uintptr_t) bytes;
    iov.iov_len = size;
    msg.msg_iov = &iov;
    msg.msg_iovlen = 1;
    msg.msg_control = space;
    msg.msg_controllen = CMSG_SPACE(n * sizeof(int));
    cmsg = CMSG_FIRSTHDR(&msg);
    cmsg->cmsg_level = SOL_SOCKET;
    cmsg->cmsg_type = SCM_RIGHTS;
    cmsg->cmsg_len = CMSG_LEN(n * sizeof(int));
    memcpy(CMSG_DATA(cmsg), fds, n * sizeof(int));

    return sendmsg(to, &msg, MSG_NOSIGNAL|MSG_DONTWAIT|flags);
}


/* The end of each waits for a thread of the kernel's. */

static int
watches(int fds[MANY])
{
    unsigned  i;

    for (i = 0; i < MANY; i++) {
        fds[i] = inotify_init1(IN_CLOEXEC);

        if (fds[i] == -1
            || inotify_add_watch(fds[i], "/tmp", IN_CREATE) == -1)
        {
            return -1;
        }
    }

    return 0;
}


static int
heavy(const int fds[MANY])
{
    int       pair[2];
    unsigned  i;

    if (socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == -1) {
        return -1;
    }

    for (i = 0; i < MANY; i++) {
        if (pass(pair[0], "x", 1, &fds[i], 1, 0) == -1) {
            return -1;
        }
    }

    (void) close(pair[0]);

    return pair[1];
}


static void
say(int call, const char *text)
{
    struct {
        sbx_frame_t    head;
        sbx_f_error_t  error;
    } frame;

    memset(&frame, 0, sizeof(frame));
    frame.head.type = SBX_F_ERROR;
    frame.head.length = sizeof(frame.error);
    frame.error.code = SBX_E_UNAVAILABLE;
    (void) snprintf(frame.error.text, sizeof(frame.error.text), "%s", text);
    (void) send(call, &frame, sizeof(frame), MSG_NOSIGNAL);
}


static void
serve(int call, unsigned op)
{
    int           fd, fds[MANY];
    char          asked[4096];
    size_t        i;
    ssize_t       n;
    sbx_frame_t   head, bad;

    if (watches(fds) == -1) {
        say(call, "nothing to pass");
        return;
    }

    fd = heavy(fds);

    if (fd == -1) {
        say(call, "nothing to pass");
        return;
    }

    memset(&head, 0, sizeof(head));
    memset(&bad, 0xff, sizeof(bad));
    head.type = SBX_F_ACCEPTED;

    (void) poll(&(struct pollfd) { call, POLLIN, 0 }, 1,
                op == SBX_OP_FILE ? 10000 : 0);
    n = recv(call, asked, sizeof(asked), MSG_DONTWAIT);

    if (op == SBX_OP_FILE && n > 0 && memmem(asked, n, "late", 4) != NULL) {
        (void) send(call, &bad, sizeof(bad), MSG_NOSIGNAL);
        n = pass(call, &head, sizeof(head), &fd, 1, 0);

    } else if (op == SBX_OP_FILE && n > 0 && memmem(asked, n, "oob", 3)) {
        n = pass(call, &head, 1, &fd, 1, MSG_OOB);

    } else if (op == SBX_OP_FILE && n > 0 && memmem(asked, n, "many", 4)) {
        n = pass(call, &head, sizeof(head), fds, MANY, 0);

    } else if (op == SBX_OP_EXEC) {
        /* by a session that ends in the middle */
        n = pass(call, &head, 1, &fd, 1, 0);

    } else {
        n = pass(call, &head, sizeof(head), &fd, 1, 0);
    }

    /* none of them is open here when the call's other end looks */

    for (i = 0; i < MANY; i++) {
        (void) close(fds[i]);
    }

    if (n == -1 && errno == EPERM) {
        say(call, "refused");
    }

    (void) close(fd);
}


int
main(void)
{
    char             space[8192];
    int              fds[64];
    size_t           i, n;
    ssize_t          size;
    sbx_task_t       task;
    struct iovec     iov;
    struct msghdr    msg;
    sbx_record_t     ready;
    struct cmsghdr  *cmsg;

    memset(&ready, 0, sizeof(ready));
    ready.magic = SBX_WIRE_MAGIC;
    ready.type = SBX_R_READY;
    (void) send(CONTROL, &ready, sizeof(ready), MSG_NOSIGNAL);

    for ( ;; ) {
        memset(&msg, 0, sizeof(msg));
        iov.iov_base = &task;
        iov.iov_len = sizeof(task);
        msg.msg_iov = &iov;
        msg.msg_iovlen = 1;
        msg.msg_control = space;
        msg.msg_controllen = sizeof(space);
        (void) poll(&(struct pollfd) { CONTROL, POLLIN, 0 }, 1, -1);
        size = recvmsg(CONTROL, &msg, MSG_CMSG_CLOEXEC|MSG_DONTWAIT);

        if (size == 0) {
            return 0;
        }

        n = 0;

        for (cmsg = size > 0 ? CMSG_FIRSTHDR(&msg) : NULL; cmsg != NULL;
             cmsg = CMSG_NXTHDR(&msg, cmsg))
        {
            n = (cmsg->cmsg_len - CMSG_LEN(0)) / sizeof(int);
            memcpy(fds, CMSG_DATA(cmsg), n * sizeof(int));
        }

        if (n != 0) {
            serve(fds[0], task.op);
        }

        for (i = 0; i < n; i++) {
            (void) close(fds[i]);
        }
    }
}
