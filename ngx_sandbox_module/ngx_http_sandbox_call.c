/*
 * A call to the core: a socketpair of its own, one end of which goes to the
 * broker in a datagram over the worker's control connection, and from there
 * perhaps to a session's init.  Frames go both ways over the pair.
 *
 * The door (the control connection) may be full for a moment, or the kernel
 * may hold too many descriptors in flight: then calls wait in one line for
 * each worker, by a timer, until each one's deadline.  Nothing here blocks.
 *
 * A call that ends before anything was answered has not happened and is sent
 * once more, with what was queued.
 */

#include "ngx_http_sandbox_call.h"
#include "ngx_http_sandbox_cost.h"
#include "ngx_http_sandbox_passed.h"
#include "sandbox_fault.h"


#define NGX_HTTP_SANDBOX_CALL_DATAGRAM  2048
#define NGX_HTTP_SANDBOX_CALL_TRIES     2

/* milliseconds */
#define NGX_HTTP_SANDBOX_CALL_DOOR      5000      /* in line for the door */
#define NGX_HTTP_SANDBOX_CALL_DOOR_STEP 50
#define NGX_HTTP_SANDBOX_CALL_FIRST     30000     /* until any frame */
/* a worker that is to end waits for timers, and for nothing else */
#define NGX_HTTP_SANDBOX_CALL_HOLD      (24 * 3600 * 1000)


/* The line for the door of this worker. */

typedef struct {
    ngx_queue_t       waiting;
    ngx_event_t       event;
    ngx_connection_t  dumb;           /* for what logs an event */
    ngx_msec_t        step;
} ngx_http_sandbox_door_t;


static void ngx_http_sandbox_call_cleanup(void *data);
static ngx_int_t ngx_http_sandbox_call_open(ngx_http_sandbox_call_t *call);
static void ngx_http_sandbox_call_drop(ngx_http_sandbox_call_t *call);

static void ngx_http_sandbox_call_knock(ngx_http_sandbox_call_t *call);
static ngx_int_t ngx_http_sandbox_call_send(ngx_http_sandbox_call_t *call);
static void ngx_http_sandbox_call_door_handler(ngx_event_t *ev);
static void ngx_http_sandbox_call_retry_handler(ngx_event_t *ev);


static ngx_http_sandbox_door_t  ngx_http_sandbox_door;


void
ngx_http_sandbox_call_init(ngx_cycle_t *cycle)
{
    ngx_http_sandbox_door_t  *door;

    door = &ngx_http_sandbox_door;

    ngx_memzero(door, sizeof(ngx_http_sandbox_door_t));
    ngx_queue_init(&door->waiting);

    door->dumb.fd = (ngx_socket_t) -1;
    door->event.handler = ngx_http_sandbox_call_door_handler;
    door->event.data = &door->dumb;
    door->event.log = cycle->log;
}


void
ngx_http_sandbox_call_exit(void)
{
    ngx_http_sandbox_call_free_spares();
}


ngx_http_sandbox_call_t *
ngx_http_sandbox_call_create(ngx_http_request_t *r, sbx_op_t op,
    const void *body, size_t body_size, ngx_fd_t blob)
{
    ngx_str_t                 id;
    ngx_pool_cleanup_t       *cln;
    ngx_http_sandbox_ctx_t   *ctx;
    ngx_http_sandbox_call_t  *call;

    call = ngx_pcalloc(r->pool, sizeof(ngx_http_sandbox_call_t));
    cln = ngx_pool_cleanup_add(r->pool, 0);
    ctx = ngx_http_sandbox_ctx(r);

    if (call == NULL || cln == NULL || ctx == NULL
        || body_size > NGX_HTTP_SANDBOX_CALL_DATAGRAM - sizeof(sbx_call_t))
    {
        if (blob != NGX_INVALID_FILE) {
            (void) close(blob);
        }

        return NULL;
    }

    call->request = r;
    call->spare = &ctx->blocks;
    call->body_size = body_size;
    call->blob = blob;
    call->peer = NGX_INVALID_FILE;
    call->passed = NGX_INVALID_FILE;
    call->socket = NGX_INVALID_FILE;

    call->retry.handler = ngx_http_sandbox_call_retry_handler;
    call->retry.data = call;
    call->retry.log = r->connection->log;

    cln->handler = ngx_http_sandbox_call_cleanup;
    cln->data = call;

    if (body_size != 0) {
        call->body = ngx_pnalloc(r->pool, body_size);

        if (call->body == NULL) {
            return NULL;
        }

        ngx_memcpy(call->body, body, body_size);
    }

    call->header.magic = SBX_WIRE_MAGIC;
    call->header.version = SBX_WIRE_VERSION;
    call->header.op = (uint16_t) op;
    call->header.size = (uint32_t) (sizeof(sbx_call_t) + body_size);

    if (ctx->session.len != 0 && (ctx->tenant.len == 0 || ctx->user.len == 0)
        && ngx_http_sandbox_audited(r, ctx))
    {
        call->header.flags = SBX_CALL_OWNER;
    }

    call->header.flags |= ctx->call_flags;
    call->header.needs = ctx->needs;
    call->header.bars = ctx->bars;

    ngx_http_sandbox_request_id(r, &id);

    /* all are shorter than their arrays, or they would not have got here */

    (void) ngx_snprintf((u_char *) call->header.request_id, SBX_REQUEST_ID,
                        "%V", &id);
    (void) ngx_snprintf((u_char *) call->header.session, SBX_ID_MAX, "%V",
                        &ctx->session);
    (void) ngx_snprintf((u_char *) call->header.tenant, SBX_NAME_MAX, "%V",
                        &ctx->tenant);
    (void) ngx_snprintf((u_char *) call->header.user, SBX_NAME_MAX, "%V",
                        &ctx->user);

    return call;
}


ngx_int_t
ngx_http_sandbox_call_start(ngx_http_sandbox_call_t *call)
{
    if (call->closed || call->connection != NULL) {
        return NGX_ERROR;
    }

    if (ngx_http_sandbox_call_open(call) != NGX_OK) {
        return NGX_ERROR;
    }

    SBX_FAULT("worker-call-opened");
    ngx_http_sandbox_call_knock(call);

    return NGX_OK;
}


/* A pair, our end of it with its events, and what was queued sent into it:
 * the other side finds it there together with the call. */

static ngx_int_t
ngx_http_sandbox_call_open(ngx_http_sandbox_call_t *call)
{
    int                s[2];
    ngx_log_t         *log;
    ngx_connection_t  *c;

    log = call->request->connection->log;
    call->costly = ngx_http_sandbox_cost_left(
                       ngx_http_sandbox_call_watched(call));

    if (call->costly) {
        return NGX_ERROR;
    }

    if (socketpair(AF_UNIX, SOCK_STREAM|SOCK_NONBLOCK|SOCK_CLOEXEC, 0, s)
        == -1)
    {
        ngx_log_error(NGX_LOG_ERR, log, ngx_socket_errno,
                      "socketpair() for a sandbox call failed");
        return NGX_ERROR;
    }

    call->refuses = call->brings == 0
                    && ngx_http_sandbox_passed_refuse(s[0]);
    call->full = !call->refuses && call->header.op >= SBX_OP_EXEC
                 && ngx_http_sandbox_passed_full(call->header.session);

    if (call->full) {
        ngx_log_error(NGX_LOG_ERR, log, 0,
                      "sandbox: too much that the session has passed is still "
                      "being closed for another call");
    }

    c = !call->full && ngx_http_sandbox_passed_inline(s[0]) == NGX_OK
        ? ngx_get_connection(s[0], log) : NULL;

    if (c == NULL) {
        (void) close(s[0]);
        (void) close(s[1]);
        return NGX_ERROR;
    }

    c->data = call;
    c->log = log;
    c->read->log = log;
    c->write->log = log;
    c->read->handler = ngx_http_sandbox_call_read_handler;
    c->write->handler = ngx_http_sandbox_call_write_handler;
    c->write->ready = 1;
    c->number = ngx_atomic_fetch_add(ngx_connection_counter, 1);

    call->connection = c;
    call->peer = s[1];
    call->sent = 0;
    call->mute = 0;
    call->deadline = ngx_current_msec + NGX_HTTP_SANDBOX_CALL_DOOR;
    call->tries++;

    if (ngx_handle_read_event(c->read, 0) != NGX_OK
        || ngx_http_sandbox_call_flush(call) != NGX_OK)
    {
        ngx_http_sandbox_call_drop(call);
        return NGX_ERROR;
    }

    ngx_http_sandbox_call_arm(call);

    return NGX_OK;
}


void
ngx_http_sandbox_call_arm(ngx_http_sandbox_call_t *call)
{
    ngx_msec_t  timer;

    timer = call->timeout;

    if (!call->answered
        && (timer == 0 || timer > NGX_HTTP_SANDBOX_CALL_FIRST))
    {
        timer = NGX_HTTP_SANDBOX_CALL_FIRST;
    }

    if (timer == 0) {
        timer = NGX_HTTP_SANDBOX_CALL_HOLD;
    }

    ngx_add_timer(call->connection->read, timer);
}


void
ngx_http_sandbox_call_busy(ngx_http_sandbox_call_t *call)
{
    call->busy = 1;
}


void
ngx_http_sandbox_call_idle(ngx_http_sandbox_call_t *call)
{
    if (call->closed || !call->busy) {
        return;
    }

    call->busy = 0;

    ngx_http_sandbox_call_arm(call);
    ngx_post_event(call->connection->read, &ngx_posted_events);
}


/* The connection and its peer, without which a call may be opened again. */

static void
ngx_http_sandbox_call_drop(ngx_http_sandbox_call_t *call)
{
    if (call->waiting) {
        ngx_queue_remove(&call->wait);
        call->waiting = 0;
    }

    if (call->connection != NULL) {
        ngx_http_sandbox_passed_close_call(call->connection,
                                           call->header.session,
                                       ngx_http_sandbox_call_watched(call));
        call->connection = NULL;
    }

    if (call->peer != NGX_INVALID_FILE) {
        (void) close(call->peer);
        call->peer = NGX_INVALID_FILE;
    }

    if (call->passed != NGX_INVALID_FILE) {
        ngx_http_sandbox_passed_close(call->header.session, call->passed);
        call->passed = NGX_INVALID_FILE;
    }

    if (call->socket != NGX_INVALID_FILE) {
        ngx_http_sandbox_passed_close(call->header.session, call->socket);
        call->socket = NGX_INVALID_FILE;
    }

    call->settled = 0;

    ngx_http_sandbox_call_release(call);
}


void
ngx_http_sandbox_call_close(ngx_http_sandbox_call_t *call)
{
    if (call->closed) {
        return;
    }

    call->closed = 1;

    ngx_http_sandbox_call_drop(call);

    if (call->retry.posted) {
        ngx_delete_posted_event(&call->retry);
    }

    if (call->blob != NGX_INVALID_FILE) {
        (void) close(call->blob);
        call->blob = NGX_INVALID_FILE;
    }

    ngx_http_sandbox_call_leave_blocks(call);
}


void
ngx_http_sandbox_call_told(ngx_http_sandbox_call_t *call)
{
    ssize_t      n;
    sbx_frame_t  frame;

    if ((call->header.flags & SBX_CALL_TELLS) == 0
        || call->connection == NULL)
    {
        return;
    }

    SBX_FAULT("worker-create-told");

    ngx_memzero(&frame, sizeof(sbx_frame_t));
    frame.type = SBX_F_END;

    /* a broker that has died needs not be told: its successor keeps what
     * has been answered */

    n = send(call->connection->fd, &frame, sizeof(sbx_frame_t),
             MSG_DONTWAIT|MSG_NOSIGNAL);
    (void) n;
}


const char *
ngx_http_sandbox_call_watched(const ngx_http_sandbox_call_t *call)
{
    return call->header.op >= SBX_OP_EXEC ? call->header.session : "";
}


static void
ngx_http_sandbox_call_cleanup(void *data)
{
    ngx_http_sandbox_call_t  *call = data;

    ngx_http_sandbox_call_close(call);

    if (call->dead != NULL) {
        *call->dead = 1;
    }
}


void
ngx_http_sandbox_call_fail(ngx_http_sandbox_call_t *call,
    ngx_http_sandbox_error_e error)
{
    ngx_connection_t  *client;

    client = call->request->connection;

    call->dead = NULL;
    ngx_http_sandbox_call_close(call);

    if (call->failed != NULL) {
        call->failed(call, error);
        ngx_http_run_posted_requests(client);
    }
}


void
ngx_http_sandbox_call_lost(ngx_http_sandbox_call_t *call)
{
    ngx_uint_t  level;

    if (call->answered || call->tries >= NGX_HTTP_SANDBOX_CALL_TRIES) {
        /* a stream may go on until its session ends */

        level = (call->stream != NULL) ? NGX_LOG_INFO : NGX_LOG_ERR;
        ngx_log_error(level, call->request->connection->log, 0,
                      "sandbox call was cut off");
        ngx_http_sandbox_call_fail(call, NGX_HTTP_SANDBOX_BROKER_UNAVAILABLE);
        return;
    }

    ngx_log_error(NGX_LOG_WARN, call->request->connection->log, 0,
                  "sandbox call was lost and is sent again");

    ngx_http_sandbox_call_drop(call);
    ngx_http_sandbox_call_rewind(call);
    call->header.flags |= SBX_CALL_AGAIN;

    if (ngx_http_sandbox_call_open(call) != NGX_OK) {
        ngx_http_sandbox_call_fail(call, NGX_HTTP_SANDBOX_BROKER_UNAVAILABLE);
        return;
    }

    ngx_http_sandbox_call_knock(call);
}


/* ---- the door ----------------------------------------------------------- */


static void
ngx_http_sandbox_call_knock(ngx_http_sandbox_call_t *call)
{
    ngx_int_t                 rc;
    ngx_http_sandbox_door_t  *door;

    door = &ngx_http_sandbox_door;
    rc = NGX_AGAIN;

    if (ngx_queue_empty(&door->waiting)) {
        rc = ngx_http_sandbox_call_send(call);
    }

    switch (rc) {

    case NGX_OK:
        return;

    case NGX_ERROR:
        ngx_post_event(&call->retry, &ngx_posted_events);
        return;

    default:
        break;
    }

    ngx_queue_insert_tail(&door->waiting, &call->wait);
    call->waiting = 1;

    if (!door->event.timer_set) {
        door->step = 1;
        ngx_add_timer(&door->event, door->step);
    }
}


/* A door that is closed is told of when the caller has returned. */

static void
ngx_http_sandbox_call_retry_handler(ngx_event_t *ev)
{
    ngx_http_sandbox_call_fail(ev->data, NGX_HTTP_SANDBOX_BROKER_UNAVAILABLE);
}


static ngx_int_t
ngx_http_sandbox_call_send(ngx_http_sandbox_call_t *call)
{
    int                            fds[2];
    u_char                         datagram[NGX_HTTP_SANDBOX_CALL_DATAGRAM];
    size_t                         size;
    ssize_t                        n;
    ngx_err_t                      err;
    unsigned                       nfds;
    ngx_http_sandbox_main_conf_t  *smcf;

    smcf = ngx_http_get_module_main_conf(call->request,
                                         ngx_http_sandbox_module);

    size = sizeof(sbx_call_t);
    ngx_memcpy(datagram, &call->header, size);

    if (call->body_size != 0) {
        ngx_memcpy(datagram + size, call->body, call->body_size);
        size += call->body_size;
    }

    fds[0] = call->peer;
    fds[1] = call->blob;
    nfds = (call->blob == NGX_INVALID_FILE) ? 1 : 2;

    n = sbx_wire_send(smcf->control, datagram, size, fds, nfds, MSG_DONTWAIT);

    if (n == (ssize_t) size) {
        (void) close(call->peer);
        call->peer = NGX_INVALID_FILE;
        call->sent = 1;
        SBX_FAULT("worker-call-sent");

        return NGX_OK;
    }

    err = (n == -1) ? ngx_socket_errno : 0;

    switch (err) {

    case EAGAIN:
    case ENOBUFS:
    case ENOMEM:
    case ETOOMANYREFS:
        return NGX_AGAIN;

    default:
        ngx_log_error(NGX_LOG_ERR, call->request->connection->log, err,
                      "sandbox broker takes no call");
        return NGX_ERROR;
    }
}


/* First come, first served: one that still cannot be sent holds the line. */

static void
ngx_http_sandbox_call_door_handler(ngx_event_t *ev)
{
    ngx_int_t                 rc;
    ngx_queue_t              *q;
    ngx_http_sandbox_door_t  *door;
    ngx_http_sandbox_call_t  *call;

    door = &ngx_http_sandbox_door;

    while (!ngx_queue_empty(&door->waiting)) {
        q = ngx_queue_head(&door->waiting);
        call = ngx_queue_data(q, ngx_http_sandbox_call_t, wait);

        rc = ngx_http_sandbox_call_send(call);

        if (rc == NGX_AGAIN
            && (ngx_msec_int_t) (call->deadline - ngx_current_msec) > 0)
        {
            door->step = ngx_min(2 * door->step,
                                 NGX_HTTP_SANDBOX_CALL_DOOR_STEP);
            ngx_add_timer(&door->event, door->step);

            return;
        }

        ngx_queue_remove(q);
        call->waiting = 0;

        if (rc == NGX_OK) {
            door->step = 1;
            continue;
        }

        if (rc == NGX_AGAIN) {
            ngx_log_error(NGX_LOG_ERR, call->request->connection->log,
                          NGX_ETIMEDOUT, "sandbox broker takes no call");
        }

        ngx_http_sandbox_call_fail(call,
                                   NGX_HTTP_SANDBOX_BROKER_UNAVAILABLE);
    }
}
