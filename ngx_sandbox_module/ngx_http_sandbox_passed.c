/*
 * Descriptors that a session's first process has passed.
 *
 * What the last close() of one does, nobody knows: it frees a large file that
 * was removed meanwhile, or takes something apart that was made for this to
 * take long.  The same goes for what is still in the queue of a call's socket
 * when that is closed.  So threads close them.
 */

#include "ngx_http_sandbox_passed.h"
#include "ngx_http_sandbox_cost.h"
#include "closer.h"

#include <linux/sockios.h>
#include <sys/ioctl.h>


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


static ngx_uint_t ngx_http_sandbox_passed_empty(ngx_fd_t fd,
    const char *watched);
static unsigned *ngx_http_sandbox_passed_count(const char *session);
static ngx_http_sandbox_passer_t *ngx_http_sandbox_passer(
    const char *session);


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


/* What was only shown is in the queue still, and comes again. */

ssize_t
ngx_http_sandbox_passed_receive(ngx_fd_t fd, u_char *buf, size_t size,
    int fds[SBX_WIRE_FDS_ALL], unsigned *nfds, const char *session)
{
    int        ours;
    ssize_t    n;
    ngx_err_t  err;

    n = sbx_wire_recv_looked(fd, buf, size, fds, nfds, &ours);
    err = ngx_errno;

    while (!ours && *nfds != 0) {
        ngx_http_sandbox_passed_close(session, fds[--*nfds]);
    }

    ngx_set_errno(err);

    return n;
}


/*
 * Nothing more comes into it after the shutdown; most are empty then, and
 * closed at once.  The shutdown wakes whoever watches the other end, and so
 * does the close: a session that has had a slow call has both done by a
 * thread.
 */

static ngx_uint_t
ngx_http_sandbox_passed_empty(ngx_fd_t fd, const char *watched)
{
    int               unread;
    ngx_uint_t        empty;
    sbx_costs_span_t  span;

    if (ngx_http_sandbox_cost_suspect(watched)) {
        return 0;
    }

    ngx_http_sandbox_cost_begin(watched, &span);
    empty = shutdown(fd, SHUT_RD) == 0 && ioctl(fd, SIOCINQ, &unread) == 0
            && unread == 0;
    ngx_http_sandbox_cost_end(watched, &span);

    return empty && !ngx_http_sandbox_cost_suspect(watched);
}


/* One that is not empty outlives its connection, whose events must not. */

void
ngx_http_sandbox_passed_close_call(ngx_connection_t *c, const char *session,
    const char *watched)
{
    ngx_fd_t  fd;

    fd = c->fd;

    if (ngx_http_sandbox_passed_empty(fd, watched)) {
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


/* With another of the same open file, the next close is not the last. */

void
ngx_http_sandbox_passed_part(ngx_fd_t fd, const char *session)
{
    ngx_fd_t  other;

    if (ngx_http_sandbox_passed_empty(fd, session)) {
        return;
    }

    other = fcntl(fd, F_DUPFD_CLOEXEC, 0);

    if (other != -1) {
        ngx_http_sandbox_passed_close(session, other);
    }
}


ssize_t
ngx_http_sandbox_passed_recv(ngx_connection_t *c, u_char *buf, size_t size,
    const char *session)
{
    int        fds[SBX_WIRE_FDS_ALL];
    ssize_t    n;
    unsigned   nfds;
    ngx_err_t  err;

    n = ngx_http_sandbox_passed_receive(c->fd, buf, size, fds, &nfds,
                                        session);
    err = (n == -1) ? ngx_socket_errno : 0;

    if (nfds != 0) {
        while (nfds != 0) {
            ngx_http_sandbox_passed_close(session, fds[--nfds]);
        }

        ngx_log_error(NGX_LOG_ERR, c->log, 0,
                      "sandbox port brought a descriptor");
        n = -1;
        err = NGX_ECONNRESET;
    }

    if (n > 0) {

        /* with less than asked for, an end of it may be there already */

        if ((size_t) n < size && !c->read->pending_eof) {
            c->read->ready = 0;
        }

        return n;
    }

    c->read->ready = 0;

    if (n == 0) {
        c->read->eof = 1;
        return 0;
    }

    if (err == NGX_EAGAIN) {
        return NGX_AGAIN;
    }

    c->read->error = 1;

    return ngx_connection_error(c, err, "recv() from a port failed");
}
