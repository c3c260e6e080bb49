/*
 * What the egress refuses sessions has lines in the audit log, though no
 * request is there that could write them: the first worker keeps a call open
 * over which the broker tells of each.  It belongs to no request, is opened
 * again where the broker was away, and ends with its worker; what is refused
 * between two calls is counted by the broker, in "more" of the next line.
 */

#include "ngx_http_sandbox.h"

#include <sys/socket.h>


#define NGX_HTTP_SANDBOX_REFUSALS_FRAME                                       \
    (sizeof(sbx_frame_t) + sizeof(sbx_f_refusal_t))
#define NGX_HTTP_SANDBOX_REFUSALS_BUFFER                                      \
    (4 * NGX_HTTP_SANDBOX_REFUSALS_FRAME)
#define NGX_HTTP_SANDBOX_REFUSALS_TURNS   16      /* reads, and then others */

/* milliseconds until the next call */
#define NGX_HTTP_SANDBOX_REFUSALS_SOON    50
#define NGX_HTTP_SANDBOX_REFUSALS_LATE    5000


typedef struct {
    ngx_http_sandbox_main_conf_t  *smcf;
    ngx_connection_t              *connection;
    ngx_event_t                    again;
    ngx_connection_t               dumb;     /* for what logs an event */
    ngx_msec_t                     pause;
    sbx_wire_t                     wire;
    u_char                         buf[NGX_HTTP_SANDBOX_REFUSALS_BUFFER];
} ngx_http_sandbox_refusals_t;


static void ngx_http_sandbox_refusals_open(
    ngx_http_sandbox_refusals_t *refusals);
static ngx_int_t ngx_http_sandbox_refusals_send(
    ngx_http_sandbox_refusals_t *refusals, ngx_fd_t peer);
static void ngx_http_sandbox_refusals_again(ngx_event_t *ev);
static void ngx_http_sandbox_refusals_later(
    ngx_http_sandbox_refusals_t *refusals);
static void ngx_http_sandbox_refusals_close(
    ngx_http_sandbox_refusals_t *refusals);
static void ngx_http_sandbox_refusals_read(ngx_event_t *rev);
static ngx_int_t ngx_http_sandbox_refusals_fill(
    ngx_http_sandbox_refusals_t *refusals);
static ngx_int_t ngx_http_sandbox_refusals_take(
    ngx_http_sandbox_refusals_t *refusals);
static void ngx_http_sandbox_refusals_mute(ngx_event_t *wev);


/* This worker's. */

static ngx_http_sandbox_refusals_t  ngx_http_sandbox_refusals;


void
ngx_http_sandbox_refusals_init(ngx_cycle_t *cycle,
    ngx_http_sandbox_main_conf_t *smcf)
{
    ngx_http_sandbox_refusals_t  *refusals;

    refusals = &ngx_http_sandbox_refusals;

    ngx_memzero(refusals, sizeof(ngx_http_sandbox_refusals_t));

    if (!smcf->used || smcf->audit == NULL
        || smcf->control == NGX_INVALID_FILE || ngx_worker != 0
        || (ngx_process != NGX_PROCESS_WORKER
            && ngx_process != NGX_PROCESS_SINGLE))
    {
        return;
    }

    refusals->smcf = smcf;
    refusals->pause = NGX_HTTP_SANDBOX_REFUSALS_SOON;
    refusals->dumb.fd = (ngx_socket_t) -1;

    /* a worker that is to end does not wait for it */

    refusals->again.handler = ngx_http_sandbox_refusals_again;
    refusals->again.data = &refusals->dumb;
    refusals->again.log = cycle->log;
    refusals->again.cancelable = 1;

    ngx_http_sandbox_refusals_open(refusals);
}


void
ngx_http_sandbox_refusals_exit(void)
{
    ngx_http_sandbox_refusals_close(&ngx_http_sandbox_refusals);
}


static void
ngx_http_sandbox_refusals_open(ngx_http_sandbox_refusals_t *refusals)
{
    int                s[2];
    ngx_int_t          rc;
    ngx_log_t         *log;
    ngx_connection_t  *c;

    log = refusals->again.log;

    if (socketpair(AF_UNIX, SOCK_STREAM|SOCK_NONBLOCK|SOCK_CLOEXEC, 0, s)
        == -1)
    {
        ngx_log_error(NGX_LOG_ERR, log, ngx_socket_errno,
                      "socketpair() for refusals failed");
        ngx_http_sandbox_refusals_later(refusals);
        return;
    }

    c = ngx_get_connection(s[0], log);

    if (c == NULL) {
        (void) close(s[0]);
        (void) close(s[1]);
        ngx_http_sandbox_refusals_later(refusals);
        return;
    }

    c->data = refusals;
    c->log = log;
    c->read->log = log;
    c->write->log = log;
    c->read->handler = ngx_http_sandbox_refusals_read;
    c->write->handler = ngx_http_sandbox_refusals_mute;

    refusals->connection = c;
    sbx_wire_init(&refusals->wire, refusals->buf, sizeof(refusals->buf));

    rc = ngx_handle_read_event(c->read, 0);

    if (rc == NGX_OK) {
        rc = ngx_http_sandbox_refusals_send(refusals, s[1]);
    }

    (void) close(s[1]);

    if (rc != NGX_OK) {
        ngx_http_sandbox_refusals_close(refusals);
        ngx_http_sandbox_refusals_later(refusals);
        return;
    }

    /* the worker tells its idle connections that it is to end */

    c->idle = 1;
}


static ngx_int_t
ngx_http_sandbox_refusals_send(ngx_http_sandbox_refusals_t *refusals,
    ngx_fd_t peer)
{
    ssize_t     n;
    sbx_call_t  call;

    ngx_memzero(&call, sizeof(sbx_call_t));

    call.magic = SBX_WIRE_MAGIC;
    call.version = SBX_WIRE_VERSION;
    call.op = SBX_OP_REFUSALS;
    call.size = sizeof(sbx_call_t);

    n = sbx_wire_send(refusals->smcf->control, &call, sizeof(sbx_call_t),
                      &peer, 1, MSG_DONTWAIT);

    return (n == (ssize_t) sizeof(sbx_call_t)) ? NGX_OK : NGX_ERROR;
}


static void
ngx_http_sandbox_refusals_again(ngx_event_t *ev)
{
    ngx_http_sandbox_refusals_open(&ngx_http_sandbox_refusals);
}


static void
ngx_http_sandbox_refusals_later(ngx_http_sandbox_refusals_t *refusals)
{
    if (ngx_exiting || ngx_quit || ngx_terminate) {
        return;
    }

    ngx_add_timer(&refusals->again, refusals->pause);
    refusals->pause = ngx_min(2 * refusals->pause,
                              NGX_HTTP_SANDBOX_REFUSALS_LATE);
}


static void
ngx_http_sandbox_refusals_close(ngx_http_sandbox_refusals_t *refusals)
{
    if (refusals->connection != NULL) {
        ngx_close_connection(refusals->connection);
        refusals->connection = NULL;
    }

    if (refusals->again.timer_set) {
        ngx_del_timer(&refusals->again);
    }
}


static void
ngx_http_sandbox_refusals_read(ngx_event_t *rev)
{
    ngx_int_t                     rc;
    ngx_uint_t                    n;
    ngx_connection_t             *c;
    ngx_http_sandbox_refusals_t  *refusals;

    c = rev->data;
    refusals = c->data;

    if (c->close) {
        ngx_http_sandbox_refusals_close(refusals);
        return;
    }

    rc = NGX_OK;

    for (n = 0; n < NGX_HTTP_SANDBOX_REFUSALS_TURNS && rc == NGX_OK; n++) {
        rc = ngx_http_sandbox_refusals_take(refusals);

        if (rc == NGX_OK) {
            rc = ngx_http_sandbox_refusals_fill(refusals);
        }
    }

    if (rc == NGX_OK) {
        ngx_post_event(rev, &ngx_posted_next_events);
        return;
    }

    if (rc == NGX_AGAIN && ngx_handle_read_event(rev, 0) == NGX_OK) {
        return;
    }

    ngx_http_sandbox_refusals_close(refusals);
    ngx_http_sandbox_refusals_later(refusals);
}


/* NGX_OK, NGX_AGAIN, NGX_ERROR at the end too. */

static ngx_int_t
ngx_http_sandbox_refusals_fill(ngx_http_sandbox_refusals_t *refusals)
{
    ssize_t            n;
    unsigned           nfds;
    sbx_wire_t        *wire;
    ngx_connection_t  *c;

    c = refusals->connection;
    wire = &refusals->wire;
    nfds = 0;

    /* descriptors are not taken: none has a place here */

    n = sbx_wire_recv(c->fd, wire->buf + wire->end, wire->size - wire->end,
                      NULL, &nfds, MSG_DONTWAIT);

    if (n == -1 && ngx_socket_errno == NGX_EAGAIN) {
        c->read->ready = 0;
        return NGX_AGAIN;
    }

    if (n <= 0) {
        return NGX_ERROR;
    }

    wire->end += (size_t) n;

    return NGX_OK;
}


/* All frames that are whole: NGX_OK; NGX_ERROR for what is none of these. */

static ngx_int_t
ngx_http_sandbox_refusals_take(ngx_http_sandbox_refusals_t *refusals)
{
    int               got;
    sbx_frame_t       frame;
    const uint8_t    *payload;
    sbx_f_refusal_t   refusal;

    for ( ;; ) {
        got = sbx_wire_next(&refusals->wire, &frame, &payload);

        if (got == 0 && refusals->wire.end < NGX_HTTP_SANDBOX_REFUSALS_FRAME)
        {
            return NGX_OK;
        }

        if (got == 1 && frame.type == SBX_F_ACCEPTED && frame.length == 0) {
            refusals->pause = NGX_HTTP_SANDBOX_REFUSALS_SOON;
            continue;
        }

        /* a broker that takes no such call says so */

        if (got != 1 || frame.type != SBX_F_REFUSAL
            || frame.length != sizeof(sbx_f_refusal_t))
        {
            return NGX_ERROR;
        }

        ngx_memcpy(&refusal, payload, sizeof(sbx_f_refusal_t));

        refusal.session[sizeof(refusal.session) - 1] = '\0';
        refusal.tenant[sizeof(refusal.tenant) - 1] = '\0';
        refusal.user[sizeof(refusal.user) - 1] = '\0';
        refusal.address[sizeof(refusal.address) - 1] = '\0';
        refusal.name[sizeof(refusal.name) - 1] = '\0';

        ngx_http_sandbox_audit_refusal(refusals->smcf, refusals->again.log,
                                       &refusal);
    }
}


/* Nothing is ever written. */

static void
ngx_http_sandbox_refusals_mute(ngx_event_t *wev)
{
}
