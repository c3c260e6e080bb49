/*
 * Descriptors that a session's first process has passed.
 *
 * What the last close() of one does, nobody knows: it frees a large file that
 * was removed meanwhile, or takes something apart that was made for this to
 * take long.  The same goes for what is still in the queue of a call's socket
 * when that is closed.  So threads close them.
 *
 * Whoever passed one may keep another of the same open file, and with it what
 * the two share: O_NONBLOCK, SO_LINGER, what is queued.  None of these can be
 * looked at once and relied on afterwards.  So nothing here asks them: each
 * call says MSG_DONTWAIT, and a socket is disconnected before it is closed.
 */

#include "ngx_http_sandbox_passed.h"
#include "closer.h"

#include <linux/sockios.h>
#include <sys/ioctl.h>


#define NGX_HTTP_SANDBOX_PASSED_TRIES    8
#define NGX_HTTP_SANDBOX_PASSED_CLOSERS  2
#define NGX_HTTP_SANDBOX_PASSED_OWN      128
#define NGX_HTTP_SANDBOX_PASSED_FULL     512

#ifndef SO_PASSRIGHTS
#define SO_PASSRIGHTS                    83
#endif


/* A session of whose descriptors some are not closed yet; or none are, and
 * the next one takes its place. */

typedef struct ngx_http_sandbox_passer_s  ngx_http_sandbox_passer_t;

struct ngx_http_sandbox_passer_s {
    ngx_http_sandbox_passer_t  *next;
    unsigned                    pending;
    char                        session[SBX_ID_MAX + 8];
};


static unsigned *ngx_http_sandbox_passed_count(const char *session);
static ngx_http_sandbox_passer_t *ngx_http_sandbox_passer(
    const char *session);
static void ngx_http_sandbox_passed_quiet(ngx_fd_t fd);
static ssize_t ngx_http_sandbox_passed_sendv(ngx_connection_t *c,
    struct iovec *iovs, ngx_uint_t n, size_t size);


/* This worker's. */

static sbx_closer_t               *ngx_http_sandbox_closer;
static ngx_http_sandbox_passer_t  *ngx_http_sandbox_passers;


void
ngx_http_sandbox_passed_init(ngx_cycle_t *cycle)
{
    sbx_error_t  e;

    ngx_http_sandbox_closer = sbx_closer_open(NGX_HTTP_SANDBOX_PASSED_CLOSERS,
                                              0, &e);

    if (ngx_http_sandbox_closer == NULL) {
        ngx_log_error(NGX_LOG_ERR, cycle->log, e.err,
                      "sandbox: %s: what sessions pass is closed by the "
                      "worker itself, which may have to wait for it", e.text);
    }
}


/* The threads run what is unloaded with the module. */

void
ngx_http_sandbox_passed_exit(void)
{
    ngx_http_sandbox_passer_t  *passer;

    if (ngx_http_sandbox_closer == NULL) {
        return;
    }

    sbx_closer_done(ngx_http_sandbox_closer, 1);
    ngx_http_sandbox_closer = NULL;

    while (ngx_http_sandbox_passers != NULL) {
        passer = ngx_http_sandbox_passers;
        ngx_http_sandbox_passers = passer->next;
        ngx_free(passer);
    }
}


void
ngx_http_sandbox_passed_close(const char *session, ngx_fd_t fd)
{
    sbx_closer_close(ngx_http_sandbox_closer, fd,
                     ngx_http_sandbox_passed_count(session));
}


static unsigned *
ngx_http_sandbox_passed_count(const char *session)
{
    ngx_http_sandbox_passer_t  *passer;

    if (ngx_http_sandbox_closer == NULL || session[0] == '\0') {
        return NULL;
    }

    passer = ngx_http_sandbox_passer(session);

    if (passer != NULL) {
        return &passer->pending;
    }

    passer = ngx_http_sandbox_passer(NULL);

    if (passer == NULL) {
        passer = ngx_calloc(sizeof(ngx_http_sandbox_passer_t),
                            ngx_cycle->log);

        if (passer == NULL) {
            return NULL;
        }

        passer->next = ngx_http_sandbox_passers;
        ngx_http_sandbox_passers = passer;
    }

    (void) ngx_cpystrn((u_char *) passer->session, (u_char *) session,
                       sizeof(passer->session));

    return &passer->pending;
}


/* NULL: nothing of it waits.  Without a session one of which nothing does. */

static ngx_http_sandbox_passer_t *
ngx_http_sandbox_passer(const char *session)
{
    unsigned                    pending;
    ngx_http_sandbox_passer_t  *passer;

    for (passer = ngx_http_sandbox_passers;
         passer != NULL;
         passer = passer->next)
    {
        pending = __atomic_load_n(&passer->pending, __ATOMIC_ACQUIRE);

        if (session == NULL
            ? pending == 0
            : pending != 0 && ngx_strcmp(passer->session, session) == 0)
        {
            return passer;
        }
    }

    return NULL;
}


/* One of which nothing waits has its call, whatever others have done. */

ngx_uint_t
ngx_http_sandbox_passed_full(const char *session)
{
    ngx_http_sandbox_passer_t  *passer;

    passer = ngx_http_sandbox_passer(session);

    return passer != NULL
           && (__atomic_load_n(&passer->pending, __ATOMIC_ACQUIRE)
               > NGX_HTTP_SANDBOX_PASSED_OWN
               || sbx_closer_pending(ngx_http_sandbox_closer)
                  > NGX_HTTP_SANDBOX_PASSED_FULL);
}


/* The kernel drops a byte out of band for whoever reads beyond it, and closes
 * what was passed with it, in the middle of recvmsg(). */

ngx_int_t
ngx_http_sandbox_passed_inline(ngx_fd_t fd)
{
    int  yes = 1;

    return setsockopt(fd, SOL_SOCKET, SO_OOBINLINE, &yes, sizeof(yes)) == 0
           ? NGX_OK : NGX_ERROR;
}


ngx_uint_t
ngx_http_sandbox_passed_refuse(ngx_fd_t fd)
{
    int  no = 0;

    return setsockopt(fd, SOL_SOCKET, SO_PASSRIGHTS, &no, sizeof(no)) == 0;
}


/*
 * What there are no numbers for is closed by recvmsg() itself.  So it is
 * looked at first: what is closed then has another in the queue.
 */

ssize_t
ngx_http_sandbox_passed_receive(ngx_fd_t fd, u_char *buf, size_t size,
    int fds[SBX_WIRE_FDS_ALL], unsigned *nfds)
{
    ssize_t  n;

    n = sbx_wire_recv_all(fd, buf, size, fds, nfds, MSG_DONTWAIT|MSG_PEEK);

    if (n <= 0) {
        return n;
    }

    if (recv(fd, buf, n, MSG_DONTWAIT) != n) {
        ngx_set_socket_errno(EMSGSIZE);
        return -1;
    }

    return n;
}


/*
 * Nothing more comes into it after the shutdown; most are empty then, and
 * closed at once.  One that is not outlives its connection, whose events must
 * not.
 */

void
ngx_http_sandbox_passed_close_call(ngx_connection_t *c, const char *session)
{
    int       unread;
    ngx_fd_t  fd;

    fd = c->fd;

    if (shutdown(fd, SHUT_RD) == 0 && ioctl(fd, SIOCINQ, &unread) == 0
        && unread == 0)
    {
        ngx_close_connection(c);
        return;
    }

    if (ngx_del_conn != NULL) {
        (void) ngx_del_conn(c, 0);

    } else {
        if (c->read->active || c->read->disabled) {
            (void) ngx_del_event(c->read, NGX_READ_EVENT, 0);
        }

        if (c->write->active || c->write->disabled) {
            (void) ngx_del_event(c->write, NGX_WRITE_EVENT, 0);
        }
    }

    c->shared = 1;
    ngx_close_connection(c);
    ngx_http_sandbox_passed_close(session, fd);
}


/*
 * A close() of a socket with SO_LINGER waits for what is not sent yet, even
 * where O_NONBLOCK is set.  One with nothing to send is closed as usual, so
 * that a program that has read all of it sees an end and no reset.
 */

void
ngx_http_sandbox_passed_calm(ngx_fd_t fd)
{
    int              unsent;
    struct linger    linger;
    ngx_file_info_t  info;

    if (ngx_fd_info(fd, &info) == NGX_FILE_ERROR || !S_ISSOCK(info.st_mode)) {
        return;
    }

    if (ioctl(fd, SIOCOUTQ, &unsent) == -1 || unsent != 0) {
        ngx_http_sandbox_passed_quiet(fd);
    }

    ngx_memzero(&linger, sizeof(struct linger));

    (void) setsockopt(fd, SOL_SOCKET, SO_LINGER, &linger,
                      sizeof(struct linger));
}


/* Some kernels refuse to disconnect while somebody waits in the socket. */

static void
ngx_http_sandbox_passed_quiet(ngx_fd_t fd)
{
    ngx_uint_t       i;
    struct sockaddr  none;

    ngx_memzero(&none, sizeof(struct sockaddr));
    none.sa_family = AF_UNSPEC;

    for (i = 0; i < NGX_HTTP_SANDBOX_PASSED_TRIES; i++) {
        if (connect(fd, &none, sizeof(struct sockaddr)) == 0
            || ngx_socket_errno != EBUSY)
        {
            return;
        }

        (void) shutdown(fd, SHUT_RDWR);
    }
}


ssize_t
ngx_http_sandbox_passed_recv(ngx_connection_t *c, u_char *buf, size_t size)
{
    ssize_t       n;
    ngx_err_t     err;
    ngx_event_t  *rev;

    rev = c->read;

    do {
        n = recv(c->fd, buf, size, MSG_DONTWAIT);
        err = (n == -1) ? ngx_socket_errno : 0;
    } while (err == NGX_EINTR);

    /* as ngx_recv() tells it */

    ngx_log_debug3(NGX_LOG_DEBUG_EVENT, c->log, err,
                   "recv: fd:%d %z of %uz", c->fd, n, size);

    if (n > 0) {

        /* with less than asked for, an end of it may be there already */

        if ((size_t) n < size && !rev->pending_eof) {
            rev->ready = 0;
        }

        return n;
    }

    rev->ready = 0;

    if (n == 0) {
        rev->eof = 1;
        return 0;
    }

    if (err == NGX_EAGAIN) {
        return NGX_AGAIN;
    }

    rev->error = 1;

    return ngx_connection_error(c, err, "recv() from a port failed");
}


ssize_t
ngx_http_sandbox_passed_send(ngx_connection_t *c, u_char *buf, size_t size)
{
    struct iovec  iov;

    iov.iov_base = buf;
    iov.iov_len = size;

    return ngx_http_sandbox_passed_sendv(c, &iov, 1, size);
}


ngx_chain_t *
ngx_http_sandbox_passed_send_chain(ngx_connection_t *c, ngx_chain_t *in,
    off_t limit)
{
    ssize_t       n;
    ngx_iovec_t   vec;
    ngx_chain_t  *cl;
    struct iovec  iovs[NGX_IOVS_PREALLOCATE];

    vec.iovs = iovs;
    vec.nalloc = NGX_IOVS_PREALLOCATE;

    if (limit == 0 || limit > (off_t) (NGX_MAX_SIZE_T_VALUE - ngx_pagesize))
    {
        limit = NGX_MAX_SIZE_T_VALUE - ngx_pagesize;
    }

    while (in != NULL && c->write->ready) {

        cl = ngx_output_chain_to_iovec(&vec, in, limit, c->log);

        if (cl == NGX_CHAIN_ERROR) {
            return NGX_CHAIN_ERROR;
        }

        /* upstream copies what is in files, as this takes no sendfile */

        if (cl != NULL && cl->buf->in_file && !ngx_buf_in_memory(cl->buf)) {
            return NGX_CHAIN_ERROR;
        }

        n = ngx_http_sandbox_passed_sendv(c, vec.iovs, vec.count, vec.size);

        if (n == NGX_ERROR) {
            return NGX_CHAIN_ERROR;
        }

        if (n == NGX_AGAIN) {
            return in;
        }

        in = ngx_chain_update_sent(in, n);
        limit -= n;

        if (limit <= 0) {
            break;
        }
    }

    return in;
}


static ssize_t
ngx_http_sandbox_passed_sendv(ngx_connection_t *c, struct iovec *iovs,
    ngx_uint_t n, size_t size)
{
    ssize_t        sent;
    ngx_err_t      err;
    struct msghdr  msg;

    ngx_memzero(&msg, sizeof(struct msghdr));
    msg.msg_iov = iovs;
    msg.msg_iovlen = n;

    do {
        sent = sendmsg(c->fd, &msg, MSG_DONTWAIT|MSG_NOSIGNAL);
        err = (sent == -1) ? ngx_socket_errno : 0;
    } while (err == NGX_EINTR);

    if (sent >= 0) {
        c->sent += sent;

        if ((size_t) sent < size) {
            c->write->ready = 0;
        }

        return sent;
    }

    c->write->ready = 0;

    if (err == NGX_EAGAIN) {
        return NGX_AGAIN;
    }

    c->write->error = 1;

    return ngx_connection_error(c, err, "send() to a port failed");
}
