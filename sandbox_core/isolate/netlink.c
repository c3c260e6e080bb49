/*
 * Requests to the kernel over netlink: built with libmnl in a buffer of a
 * fixed size, sent as one, answered at once.
 */

#include "net_private.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>


static int sbx_netlink_open(const sbx_netlink_t *n, int bus);
static int sbx_netlink_answers(const sbx_netlink_t *n, int fd, int fine);


void
sbx_netlink_begin(sbx_netlink_t *n, uint16_t type, uint16_t flags)
{
    n->message = mnl_nlmsg_put_header(n->data + n->size);
    n->message->nlmsg_type = type;
    n->message->nlmsg_flags = (uint16_t) (NLM_F_REQUEST | flags);
    n->message->nlmsg_seq = ++n->seq;
}


void
sbx_netlink_end(sbx_netlink_t *n)
{
    n->size += MNL_ALIGN(n->message->nlmsg_len);
    n->message = NULL;
}


int
sbx_netlink_send(sbx_netlink_t *n, int bus, int fine)
{
    sbx_auto_fd  fd = -1;

    fd = sbx_netlink_open(n, bus);

    return fd == -1 ? -1 : sbx_netlink_answers(n, fd, fine);
}


const struct nlmsghdr *
sbx_netlink_get(const sbx_netlink_t *n, int bus, void *buf, size_t size)
{
    ssize_t                 got;
    sbx_auto_fd             fd = -1;
    const struct nlmsghdr  *head;

    fd = sbx_netlink_open(n, bus);
    got = (fd == -1) ? -1 : recv(fd, buf, size, 0);
    head = buf;

    if (got <= 0 || !mnl_nlmsg_ok(head, (int) got)
        || head->nlmsg_type < NLMSG_MIN_TYPE)
    {
        return NULL;
    }

    return head;
}


/* A socket, with the requests sent. */
static int
sbx_netlink_open(const sbx_netlink_t *n, int bus)
{
    sbx_auto_fd         fd = -1;
    struct sockaddr_nl  kernel;

    fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC | SOCK_NONBLOCK, bus);

    if (fd == -1) {
        return -1;
    }

    memset(&kernel, 0, sizeof(kernel));
    kernel.nl_family = AF_NETLINK;

    if (sendto(fd, n->data, n->size, 0, (struct sockaddr *) &kernel,
               sizeof(kernel))
        == -1)
    {
        return -1;
    }

    return sbx_steal_fd(&fd);
}


static int
sbx_netlink_answers(const sbx_netlink_t *n, int fd, int fine)
{
    int                     len;
    char                    buf[8192] __attribute__((aligned(8)));
    ssize_t                 got;
    struct nlmsgerr         error;
    const struct nlmsghdr  *head;

    for ( ;; ) {
        got = recv(fd, buf, sizeof(buf), 0);

        if (got <= 0) {
            return -1;
        }

        len = (int) got;

        for (head = (const struct nlmsghdr *) (const void *) buf;
             mnl_nlmsg_ok(head, len);
             head = mnl_nlmsg_next(head, &len))
        {
            if (head->nlmsg_type != NLMSG_ERROR
                || head->nlmsg_len < MNL_NLMSG_HDRLEN + sizeof(error))
            {
                continue;
            }

            memcpy(&error, mnl_nlmsg_get_payload(head), sizeof(error));

            if (error.error != 0 && error.error != -fine) {
                errno = -error.error;
                return -1;
            }

            if (head->nlmsg_seq == n->seq) {
                return 0;
            }
        }
    }
}
