#include "link.h"
#include "sandbox_util.h"
#include "wire.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/socket.h>


unsigned
sbx_link_fds(sbx_keep_t kind)
{
    switch (kind) {

    case SBX_KEEP_CONFIG:
    case SBX_KEEP_IDS:
    case SBX_KEEP_CONTROL:
        return 1;

    case SBX_KEEP_EGRESS:
        return 2;

    case SBX_KEEP_SESSION:
        return 6;

    case SBX_KEEP_NONE:
        break;
    }

    return 0;
}


int
sbx_link_send(int fd, const sbx_link_t *msg, const int *fds, unsigned nfds)
{
    ssize_t  n;

    n = sbx_wire_send(fd, msg, sizeof(sbx_link_t), fds, nfds, MSG_DONTWAIT);

    return n == -1 ? -1 : 0;
}


int
sbx_link_write(int file, const sbx_link_t *msg, const int *fds)
{
    int         err;
    off_t       at;
    unsigned    i;
    sbx_link_t  copy;

    copy = *msg;
    copy.magic = SBX_LINK_MAGIC;
    copy.type = SBX_LINK_STORE;

    /* all of them, or nothing of it */

    at = lseek(file, 0, SEEK_CUR);

    for (i = 0; i < sbx_link_fds(msg->kind); i++) {
        /* as many as the kind has:
           NOLINTNEXTLINE(clang-analyzer-core.uninitialized.Assign) */
        copy.fds[i] = fds[i];

        if (fcntl(fds[i], F_GETFD) == -1) {
            return -1;
        }
    }

    for (i = 0; i < sbx_link_fds(msg->kind); i++) {
        (void) fcntl(copy.fds[i], F_SETFD, 0);
    }

    if (sbx_write_all(file, &copy, sizeof(sbx_link_t)) == 0) {
        return 0;
    }

    /* half a record would make all that follow unreadable */

    err = errno;

    if (ftruncate(file, at) == 0) {
        (void) lseek(file, at, SEEK_SET);
    }

    errno = err;

    return -1;
}


int
sbx_link_read(int file, sbx_link_t *msg, int fds[SBX_LINK_FDS])
{
    ssize_t   n;
    unsigned  i;

    n = sbx_read_full(file, msg, sizeof(sbx_link_t));

    if (n == 0) {
        return 0;
    }

    if (n != sizeof(sbx_link_t) || msg->magic != SBX_LINK_MAGIC
        || memchr(msg->id, '\0', sizeof(msg->id)) == NULL)
    {
        errno = n == -1 ? errno : EPROTO;
        return -1;
    }

    for (i = 0; i < sbx_link_fds(msg->kind); i++) {
        fds[i] = msg->fds[i];

        if (fcntl(fds[i], F_SETFD, FD_CLOEXEC) == -1) {
            return -1;
        }
    }

    return 1;
}


int
sbx_link_recv(int fd, sbx_link_t *msg, int fds[SBX_LINK_FDS])
{
    ssize_t   n;
    unsigned  i, nfds, wanted;

    nfds = SBX_LINK_FDS;
    memset(msg, 0, sizeof(sbx_link_t));

    n = sbx_wire_recv(fd, msg, sizeof(sbx_link_t), fds, &nfds, MSG_DONTWAIT);

    if (n == 0) {
        return 0;
    }

    if (n == -1 && errno == EMSGSIZE && msg->magic == SBX_LINK_MAGIC
        && msg->type == SBX_LINK_STORE
        && memchr(msg->id, '\0', sizeof(msg->id)) != NULL)
    {
        return 2;
    }

    if (n == -1) {
        /* a peer that died with unread messages */
        return errno == ECONNRESET ? 0 : -1;
    }

    wanted = 0;

    if (n == sizeof(sbx_link_t) && msg->type == SBX_LINK_STORE) {
        wanted = sbx_link_fds(msg->kind);
    }

    if (n != sizeof(sbx_link_t) || msg->magic != SBX_LINK_MAGIC
        || nfds != wanted
        || memchr(msg->id, '\0', sizeof(msg->id)) == NULL)
    {
        for (i = 0; i < nfds; i++) {
            (void) close(fds[i]);
        }

        errno = EPROTO;
        return -1;
    }

    return 1;
}
