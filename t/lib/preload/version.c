/*
 * Loaded into a server: it says hello to its broker as one of the version
 * before would.  Loaded into a broker: every server seems to it to be one of
 * the version before.
 */

#include <dlfcn.h>
#include <stdint.h>
#include <string.h>
#include <sys/socket.h>


#define MAGIC  0x31584253u
#define HELLO  3                  /* the last kind of it */


typedef struct {
    uint32_t  magic;
    uint16_t  version;
    uint16_t  op;
} head_t;


/* What begins so is a greeting. */

static int
is_hello(const void *p, size_t n, head_t *head)
{
    if (n < sizeof(head_t)) {
        return 0;
    }

    memcpy(head, p, sizeof(head_t));

    return head->magic == MAGIC && head->op >= 1 && head->op <= HELLO;
}


ssize_t
sendmsg(int fd, const struct msghdr *msg, int flags)
{
    head_t          head;
    char            copy[65536 * 4];
    struct iovec    one;
    struct msghdr   changed;
    static ssize_t  (*next)(int, const struct msghdr *, int);

    if (next == NULL) {
        next = (ssize_t (*)(int, const struct msghdr *, int))
               dlsym(RTLD_NEXT, "sendmsg");
    }

    if (msg->msg_iovlen != 1 || msg->msg_iov[0].iov_len > sizeof(copy)
        || !is_hello(msg->msg_iov[0].iov_base, msg->msg_iov[0].iov_len,
                     &head))
    {
        return next(fd, msg, flags);
    }

    one = msg->msg_iov[0];
    memcpy(copy, one.iov_base, one.iov_len);
    head.version--;
    memcpy(copy, &head, sizeof(head_t));
    one.iov_base = copy;
    changed = *msg;
    changed.msg_iov = &one;

    return next(fd, &changed, flags);
}


ssize_t
recvmsg(int fd, struct msghdr *msg, int flags)
{
    head_t          head;
    ssize_t         n;
    static ssize_t  (*next)(int, struct msghdr *, int);

    if (next == NULL) {
        next = (ssize_t (*)(int, struct msghdr *, int))
               dlsym(RTLD_NEXT, "recvmsg");
    }

    n = next(fd, msg, flags);

    if (n > 0 && msg->msg_iovlen == 1 && !(flags & MSG_PEEK)
        && is_hello(msg->msg_iov[0].iov_base, (size_t) n, &head))
    {
        head.version--;
        memcpy(msg->msg_iov[0].iov_base, &head, sizeof(head_t));
    }

    return n;
}
