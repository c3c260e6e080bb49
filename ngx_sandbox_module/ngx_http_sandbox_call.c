/*
 * A call to the core: a socketpair of its own, one end of which goes to the
 * broker in a datagram over the worker's control connection, and from there
 * perhaps to a session's init.  Frames go both ways over the pair.
 *
 * The door (the control connection) may be full for a moment, or the kernel
 * may hold too many descriptors in flight: then calls wait in one line for
 * each worker, by a timer, until each one's deadline.  Nothing here blocks.
 *
 * What the other side says is hostile: a frame is delivered only with the
 * length that its type has, a descriptor only with the one frame that brings
 * it, and only if it is a regular file open for reading.  A call reads so
 * many frames at once and then lets others run.
 *
 * A call that ends before anything was answered has not happened and is sent
 * once more, with what was queued: until then sent bytes are kept.
 *
 * Callbacks may end the request and with it the call; who calls them looks
 * at call->dead before touching anything.
 */

#include "ngx_http_sandbox.h"

#include <sys/socket.h>


#define NGX_HTTP_SANDBOX_CALL_FRAMES    32        /* read at once */
#define NGX_HTTP_SANDBOX_CALL_BLOCK     16384     /* of the queue */
#define NGX_HTTP_SANDBOX_CALL_IOVS      16
#define NGX_HTTP_SANDBOX_CALL_DATAGRAM  2048
#define NGX_HTTP_SANDBOX_CALL_TRIES     2
#define NGX_HTTP_SANDBOX_CALL_SLACK     (1024 * 1024)
#define NGX_HTTP_SANDBOX_CALL_BUFFER    (sizeof(sbx_frame_t) + SBX_FRAME_MAX)
#define NGX_HTTP_SANDBOX_CALL_SPARE     8         /* buffers that are kept */
#define NGX_HTTP_SANDBOX_CALL_FIXED     1280      /* largest fixed payload */

/* milliseconds */
#define NGX_HTTP_SANDBOX_CALL_DOOR      5000      /* in line for the door */
#define NGX_HTTP_SANDBOX_CALL_DOOR_STEP 50
#define NGX_HTTP_SANDBOX_CALL_FIRST     30000     /* until any frame */
/* a worker that is to end waits for timers, and for nothing else */
#define NGX_HTTP_SANDBOX_CALL_HOLD      (24 * 3600 * 1000)


typedef struct {
    uint16_t          type;
    uint16_t          entry;          /* sbx_f_entry_t and strings */
    uint32_t          min;
    uint32_t          max;
} ngx_http_sandbox_shape_t;


/* The line for the door, and spare buffers, of this worker. */

typedef struct {
    ngx_queue_t       waiting;
    ngx_event_t       event;
    ngx_connection_t  dumb;           /* for what logs an event */
    ngx_msec_t        step;
    ngx_log_t        *log;
    u_char           *spare[NGX_HTTP_SANDBOX_CALL_SPARE];
    ngx_uint_t        spares;
} ngx_http_sandbox_door_t;


static void ngx_http_sandbox_call_cleanup(void *data);
static ngx_int_t ngx_http_sandbox_call_open(ngx_http_sandbox_call_t *call);
static void ngx_http_sandbox_call_drop(ngx_http_sandbox_call_t *call);
static void ngx_http_sandbox_call_fail(ngx_http_sandbox_call_t *call,
    ngx_http_sandbox_error_e error);
static void ngx_http_sandbox_call_arm(ngx_http_sandbox_call_t *call);

static void ngx_http_sandbox_call_knock(ngx_http_sandbox_call_t *call);
static ngx_int_t ngx_http_sandbox_call_send(ngx_http_sandbox_call_t *call);
static void ngx_http_sandbox_call_door_handler(ngx_event_t *ev);
static void ngx_http_sandbox_call_retry_handler(ngx_event_t *ev);

static void ngx_http_sandbox_call_read_handler(ngx_event_t *rev);
static void ngx_http_sandbox_call_read(ngx_http_sandbox_call_t *call);
static ngx_int_t ngx_http_sandbox_call_fill(ngx_http_sandbox_call_t *call);
static ngx_int_t ngx_http_sandbox_call_wait(ngx_http_sandbox_call_t *call);
static ngx_int_t ngx_http_sandbox_call_deliver(ngx_http_sandbox_call_t *call,
    const sbx_frame_t *frame, const u_char *payload);
static ngx_int_t ngx_http_sandbox_call_check(ngx_http_sandbox_call_t *call,
    const sbx_frame_t *frame, const u_char *payload);
static ngx_int_t ngx_http_sandbox_call_check_file(
    ngx_http_sandbox_call_t *call);
static void ngx_http_sandbox_call_eof(ngx_http_sandbox_call_t *call);

static void ngx_http_sandbox_call_write_handler(ngx_event_t *wev);
static ngx_int_t ngx_http_sandbox_call_append(ngx_http_sandbox_call_t *call,
    const void *data, size_t size);
static ngx_int_t ngx_http_sandbox_call_flush(ngx_http_sandbox_call_t *call);
static ngx_uint_t ngx_http_sandbox_call_iovs(ngx_http_sandbox_call_t *call,
    struct iovec *iovs);
static void ngx_http_sandbox_call_sent(ngx_http_sandbox_call_t *call,
    size_t n);
static void ngx_http_sandbox_call_recycle(ngx_http_sandbox_call_t *call);
static void ngx_http_sandbox_call_rewind(ngx_http_sandbox_call_t *call);

static u_char *ngx_http_sandbox_call_buffer(ngx_http_sandbox_call_t *call);
static void ngx_http_sandbox_call_release(ngx_http_sandbox_call_t *call);


#define FIXED(frame, type)  { frame, 0, sizeof(type), sizeof(type) }

/* What the core may say to a worker; what is not here is refused. */

static const ngx_http_sandbox_shape_t  ngx_http_sandbox_shapes[] = {
    FIXED(SBX_F_ERROR, sbx_f_error_t),
    { SBX_F_ACCEPTED, 0, 0, 0 },
    FIXED(SBX_F_END, sbx_f_end_t),
    FIXED(SBX_F_SESSION, sbx_f_session_t),
    { SBX_F_META, 0, 0, SBX_FRAME_MAX },
    FIXED(SBX_F_HEALTH, sbx_f_health_t),
    FIXED(SBX_F_CHECK, sbx_f_check_t),
    FIXED(SBX_F_CAPABILITY, sbx_f_capability_t),
    FIXED(SBX_F_TEMPLATE, sbx_f_template_t),
    FIXED(SBX_F_STARTED, sbx_f_started_t),
    { SBX_F_STDOUT, 0, 0, SBX_FRAME_MAX },
    { SBX_F_STDERR, 0, 0, SBX_FRAME_MAX },
    FIXED(SBX_F_EXIT, sbx_f_exit_t),
    { SBX_F_ENTRY, 1, sizeof(sbx_f_entry_t), SBX_FRAME_MAX },
    { SBX_F_OPENED, 1, sizeof(sbx_f_entry_t), SBX_FRAME_MAX },
    { SBX_F_READY, 0, 0, 0 },
    { 0, 0, 0, 0 }
};


#define STRING(frame, type, field)                                            \
    { frame, offsetof(type, field) + sizeof(((type *) 0)->field) - 1 }

/* Last bytes of strings in fixed payloads: each is made to end there. */

static const struct {
    uint16_t    type;
    size_t      last;
} ngx_http_sandbox_strings[] = {
    STRING(SBX_F_ERROR, sbx_f_error_t, text),
    STRING(SBX_F_ERROR, sbx_f_error_t, scope),
    STRING(SBX_F_ERROR, sbx_f_error_t, resource),
    STRING(SBX_F_SESSION, sbx_f_session_t, id),
    STRING(SBX_F_SESSION, sbx_f_session_t, tenant),
    STRING(SBX_F_SESSION, sbx_f_session_t, user),
    STRING(SBX_F_SESSION, sbx_f_session_t, template),
    STRING(SBX_F_HEALTH, sbx_f_health_t, text),
    STRING(SBX_F_CHECK, sbx_f_check_t, name),
    STRING(SBX_F_CHECK, sbx_f_check_t, found),
    STRING(SBX_F_CHECK, sbx_f_check_t, mend),
    STRING(SBX_F_CAPABILITY, sbx_f_capability_t, name),
    STRING(SBX_F_CAPABILITY, sbx_f_capability_t, by),
    STRING(SBX_F_TEMPLATE, sbx_f_template_t, name),
    STRING(SBX_F_TEMPLATE, sbx_f_template_t, alias),
    STRING(SBX_F_TEMPLATE, sbx_f_template_t, description),
    { 0, 0 }
};


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
    ngx_http_sandbox_door_t  *door;

    door = &ngx_http_sandbox_door;

    while (door->spares != 0) {
        ngx_free(door->spare[--door->spares]);
    }
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
    call->body_size = body_size;
    call->blob = blob;
    call->peer = NGX_INVALID_FILE;
    call->passed = NGX_INVALID_FILE;

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

    if (socketpair(AF_UNIX, SOCK_STREAM|SOCK_NONBLOCK|SOCK_CLOEXEC, 0, s)
        == -1)
    {
        ngx_log_error(NGX_LOG_ERR, log, ngx_socket_errno,
                      "socketpair() for a sandbox call failed");
        return NGX_ERROR;
    }

    c = ngx_get_connection(s[0], log);

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


static void
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


/* The connection and its peer, without which a call may be opened again. */

static void
ngx_http_sandbox_call_drop(ngx_http_sandbox_call_t *call)
{
    if (call->waiting) {
        ngx_queue_remove(&call->wait);
        call->waiting = 0;
    }

    if (call->connection != NULL) {
        ngx_close_connection(call->connection);
        call->connection = NULL;
    }

    if (call->peer != NGX_INVALID_FILE) {
        (void) close(call->peer);
        call->peer = NGX_INVALID_FILE;
    }

    if (call->passed != NGX_INVALID_FILE) {
        (void) close(call->passed);
        call->passed = NGX_INVALID_FILE;
    }

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

    call->queued = 0;
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


/* Nothing of the call or of its request may be touched after it. */

static void
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


/* ---- reading ------------------------------------------------------------ */


static void
ngx_http_sandbox_call_read_handler(ngx_event_t *rev)
{
    ngx_connection_t         *c, *client;
    ngx_http_sandbox_call_t  *call;

    c = rev->data;
    call = c->data;
    client = call->request->connection;

    if (c->close) {

        /* the worker's time to end is over */

        ngx_http_sandbox_call_fail(call, NGX_HTTP_SANDBOX_BROKER_UNAVAILABLE);
        return;
    }

    if (rev->timedout) {
        rev->timedout = 0;

        if (call->stopped || (call->answered && call->timeout == 0)) {
            ngx_http_sandbox_call_arm(call);
            return;
        }

        ngx_log_error(NGX_LOG_ERR, c->log, NGX_ETIMEDOUT,
                      "sandbox call was not answered in time");

        ngx_http_sandbox_call_fail(call, NGX_HTTP_SANDBOX_BROKER_UNAVAILABLE);
        return;
    }

    ngx_http_sandbox_call_read(call);
    ngx_http_run_posted_requests(client);
}


static void
ngx_http_sandbox_call_read(ngx_http_sandbox_call_t *call)
{
    int             got;
    ngx_int_t       rc;
    ngx_uint_t      dead, n;
    sbx_frame_t     frame;
    const uint8_t  *payload;

    rc = NGX_OK;
    dead = 0;
    call->dead = &dead;

    for (n = 0; n < NGX_HTTP_SANDBOX_CALL_FRAMES; n++) {

        if (call->stopped) {
            rc = NGX_AGAIN;
            break;
        }

        got = 0;

        if (call->wire.buf != NULL) {
            got = sbx_wire_next(&call->wire, &frame, &payload);
        }

        if (got == 1) {
            rc = ngx_http_sandbox_call_deliver(call, &frame, payload);

            if (dead) {
                return;
            }

            if (call->closed) {
                break;
            }

            if (rc == NGX_AGAIN) {
                call->stopped = 1;
                rc = NGX_OK;
            }

            ngx_http_sandbox_call_arm(call);

        } else {
            rc = (got == 0) ? ngx_http_sandbox_call_fill(call) : NGX_ABORT;
        }

        if (rc != NGX_OK) {
            break;
        }
    }

    call->dead = NULL;

    if (call->closed) {
        return;
    }

    switch (rc) {

    case NGX_OK:
        ngx_post_event(call->connection->read, &ngx_posted_next_events);
        return;

    case NGX_AGAIN:
        if (ngx_http_sandbox_call_wait(call) == NGX_OK) {
            return;
        }

        break;

    case NGX_DONE:
        ngx_http_sandbox_call_close(call);
        return;

    case NGX_DECLINED:
        ngx_http_sandbox_call_eof(call);
        return;

    default:
        break;
    }

    ngx_http_sandbox_call_fail(call, NGX_HTTP_SANDBOX_INTERNAL);
}


/* NGX_OK, NGX_AGAIN, NGX_DECLINED at the end, NGX_ABORT. */

static ngx_int_t
ngx_http_sandbox_call_fill(ngx_http_sandbox_call_t *call)
{
    int                fd;
    ssize_t            n;
    unsigned           nfds;
    ngx_err_t          err;
    sbx_wire_t        *wire;
    ngx_connection_t  *c;

    c = call->connection;
    wire = &call->wire;

    /* what was passed belongs to a frame of the same piece */

    if (call->passed != NGX_INVALID_FILE && wire->end == 0) {
        ngx_log_error(NGX_LOG_ERR, c->log, 0,
                      "sandbox call brought a descriptor without a frame");
        return NGX_ABORT;
    }

    if (!c->read->ready) {
        return NGX_AGAIN;
    }

    if (wire->buf == NULL && ngx_http_sandbox_call_buffer(call) == NULL) {
        return NGX_ABORT;
    }

    nfds = 1;
    fd = NGX_INVALID_FILE;

    n = sbx_wire_recv(c->fd, wire->buf + wire->end, wire->size - wire->end,
                      &fd, &nfds, MSG_DONTWAIT);

    if (n == -1) {
        err = ngx_socket_errno;

        switch (err) {

        case EAGAIN:
            c->read->ready = 0;
            return NGX_AGAIN;

        case ECONNRESET:
            return NGX_DECLINED;

        default:
            ngx_log_error(NGX_LOG_ERR, c->log, err,
                          "sandbox call cannot be read");
            return NGX_ABORT;
        }
    }

    if (n == 0) {
        return NGX_DECLINED;
    }

    wire->end += n;

    if (nfds == 0) {
        return NGX_OK;
    }

    if (call->passed != NGX_INVALID_FILE) {
        (void) close(fd);
        ngx_log_error(NGX_LOG_ERR, c->log, 0,
                      "sandbox call brought a second descriptor");
        return NGX_ABORT;
    }

    call->passed = fd;

    return NGX_OK;
}


static ngx_int_t
ngx_http_sandbox_call_wait(ngx_http_sandbox_call_t *call)
{
    if (call->wire.buf != NULL && call->wire.start == call->wire.end) {
        ngx_http_sandbox_call_release(call);
    }

    return ngx_handle_read_event(call->connection->read, 0);
}


static ngx_int_t
ngx_http_sandbox_call_deliver(ngx_http_sandbox_call_t *call,
    const sbx_frame_t *frame, const u_char *payload)
{
    u_char     *p;
    ngx_fd_t    fd;
    ngx_int_t   rc;
    ngx_uint_t  i;
    uint64_t    fixed[NGX_HTTP_SANDBOX_CALL_FIXED / sizeof(uint64_t)];

    if (ngx_http_sandbox_call_check(call, frame, payload) != NGX_OK) {
        ngx_log_error(NGX_LOG_ERR, call->connection->log, 0,
                      "sandbox call brought a bad frame, type %ui, %uz bytes",
                      (ngx_uint_t) frame->type, (size_t) frame->length);
        return NGX_ABORT;
    }

    if (!call->answered) {
        call->answered = 1;

        if (call->blob != NGX_INVALID_FILE) {
            (void) close(call->blob);
            call->blob = NGX_INVALID_FILE;
        }

        ngx_http_sandbox_call_recycle(call);
    }

    if (frame->type == SBX_F_ACCEPTED) {
        call->accepted = 1;
    }

    fd = NGX_INVALID_FILE;

    if (frame->type == SBX_F_OPENED) {
        fd = call->passed;
        call->passed = NGX_INVALID_FILE;
    }

    /* a structure may be read where it is: aligned, its strings ended */

    if (frame->length <= sizeof(fixed)) {
        p = (u_char *) fixed;
        ngx_memcpy(p, payload, frame->length);

        for (i = 0; ngx_http_sandbox_strings[i].type != 0; i++) {
            if (ngx_http_sandbox_strings[i].type == frame->type) {
                p[ngx_http_sandbox_strings[i].last] = '\0';
            }
        }

        payload = p;
    }

    rc = call->frame(call, frame, payload, fd);

    if (rc == NGX_OK || rc == NGX_AGAIN) {

        /* the callee may have closed it, or the request may be gone */

        return rc;
    }

    return NGX_DONE;
}


static ngx_int_t
ngx_http_sandbox_call_check(ngx_http_sandbox_call_t *call,
    const sbx_frame_t *frame, const u_char *payload)
{
    const char                      *path, *owner, *group, *target;
    sbx_f_entry_t                    entry;
    const ngx_http_sandbox_shape_t  *shape;

    for (shape = ngx_http_sandbox_shapes; shape->type != 0; shape++) {
        if (shape->type == frame->type) {
            break;
        }
    }

    if (shape->type == 0 || frame->length < shape->min
        || frame->length > shape->max)
    {
        return NGX_ERROR;
    }

    if (shape->entry
        && sbx_wire_check_entry(payload, frame->length, &entry, &path, &owner,
                                &group, &target)
           != 0)
    {
        return NGX_ERROR;
    }

    if (frame->type == SBX_F_OPENED) {
        return ngx_http_sandbox_call_check_file(call);
    }

    return NGX_OK;
}


/* Anything but a regular file could hold the worker up. */

static ngx_int_t
ngx_http_sandbox_call_check_file(ngx_http_sandbox_call_t *call)
{
    int              flags;
    ngx_file_info_t  info;

    if (call->passed == NGX_INVALID_FILE) {
        return NGX_ERROR;
    }

    flags = fcntl(call->passed, F_GETFL);

    if (flags == -1 || (flags & O_ACCMODE) != O_RDONLY || (flags & O_PATH)) {
        return NGX_ERROR;
    }

    if (ngx_fd_info(call->passed, &info) == NGX_FILE_ERROR
        || !ngx_is_file(&info))
    {
        return NGX_ERROR;
    }

    return NGX_OK;
}


static void
ngx_http_sandbox_call_eof(ngx_http_sandbox_call_t *call)
{
    if (call->answered || call->tries >= NGX_HTTP_SANDBOX_CALL_TRIES) {
        ngx_log_error(NGX_LOG_ERR, call->request->connection->log, 0,
                      "sandbox call was cut off");
        ngx_http_sandbox_call_fail(call, NGX_HTTP_SANDBOX_BROKER_UNAVAILABLE);
        return;
    }

    ngx_log_error(NGX_LOG_WARN, call->request->connection->log, 0,
                  "sandbox call was lost and is sent again");

    ngx_http_sandbox_call_drop(call);
    ngx_http_sandbox_call_rewind(call);

    if (ngx_http_sandbox_call_open(call) != NGX_OK) {
        ngx_http_sandbox_call_fail(call, NGX_HTTP_SANDBOX_BROKER_UNAVAILABLE);
        return;
    }

    ngx_http_sandbox_call_knock(call);
}


void
ngx_http_sandbox_call_resume(ngx_http_sandbox_call_t *call)
{
    if (call->closed || !call->stopped) {
        return;
    }

    call->stopped = 0;

    ngx_http_sandbox_call_arm(call);
    ngx_post_event(call->connection->read, &ngx_posted_events);
}


/* ---- writing ------------------------------------------------------------ */


ngx_int_t
ngx_http_sandbox_call_queue(ngx_http_sandbox_call_t *call,
    sbx_frame_type_t type, const void *data, size_t size)
{
    u_char                        header[sizeof(sbx_frame_t)];
    size_t                        limit;
    ngx_http_sandbox_loc_conf_t  *slcf;

    if (call->closed || size > SBX_FRAME_MAX) {
        return NGX_ERROR;
    }

    if (call->mute && call->answered) {

        /* nobody reads it; what the other side said of that is on its way */

        return NGX_OK;
    }

    slcf = ngx_http_get_module_loc_conf(call->request,
                                        ngx_http_sandbox_module);

    limit = SBX_STRINGS_MAX + slcf->max_json + NGX_HTTP_SANDBOX_CALL_SLACK;

    if (call->held + sizeof(header) + size > limit) {
        ngx_log_error(NGX_LOG_ERR, call->request->connection->log, 0,
                      "sandbox call would queue more than %uz bytes", limit);
        return NGX_ERROR;
    }

    (void) sbx_wire_header(header, type, size);

    if (ngx_http_sandbox_call_append(call, header, sizeof(header)) != NGX_OK
        || ngx_http_sandbox_call_append(call, data, size) != NGX_OK)
    {
        return NGX_ERROR;
    }

    /* several frames that are queued at once go out in one piece */

    if (call->connection != NULL && call->connection->write->ready) {
        ngx_post_event(call->connection->write, &ngx_posted_events);
    }

    return NGX_OK;
}


ngx_int_t
ngx_http_sandbox_call_queue_bytes(ngx_http_sandbox_call_t *call,
    sbx_frame_type_t type, const void *data, size_t size)
{
    size_t         n;
    const u_char  *p;

    p = data;

    while (size != 0) {
        n = ngx_min(size, SBX_FRAME_MAX);

        if (ngx_http_sandbox_call_queue(call, type, p, n) != NGX_OK) {
            return NGX_ERROR;
        }

        p += n;
        size -= n;
    }

    return NGX_OK;
}


static ngx_int_t
ngx_http_sandbox_call_append(ngx_http_sandbox_call_t *call, const void *data,
    size_t size)
{
    size_t         n;
    ngx_buf_t     *b;
    ngx_pool_t    *pool;
    ngx_chain_t   *cl;
    const u_char  *p;

    p = data;
    pool = call->request->pool;

    while (size != 0) {
        cl = call->queue_tail;

        if (cl == NULL || cl->buf->last == cl->buf->end) {
            cl = call->queue_free;

            if (cl != NULL) {
                call->queue_free = cl->next;

            } else {
                cl = ngx_alloc_chain_link(pool);
                b = ngx_create_temp_buf(pool, NGX_HTTP_SANDBOX_CALL_BLOCK);

                if (cl == NULL || b == NULL) {
                    return NGX_ERROR;
                }

                cl->buf = b;
            }

            cl->next = NULL;

            if (call->queue_tail == NULL) {
                call->queue = cl;

            } else {
                call->queue_tail->next = cl;
            }

            call->queue_tail = cl;
        }

        b = cl->buf;
        n = ngx_min(size, (size_t) (b->end - b->last));
        b->last = ngx_cpymem(b->last, p, n);

        p += n;
        size -= n;
        call->queued += n;
        call->held += n;
    }

    return NGX_OK;
}


static void
ngx_http_sandbox_call_write_handler(ngx_event_t *wev)
{
    ngx_connection_t         *c, *client;
    ngx_http_sandbox_call_t  *call;

    c = wev->data;
    call = c->data;
    client = call->request->connection;

    if (c->close || call->queued == 0) {
        return;
    }

    if (ngx_http_sandbox_call_flush(call) != NGX_OK) {
        ngx_http_sandbox_call_fail(call, NGX_HTTP_SANDBOX_INTERNAL);
        return;
    }

    if (call->queued == 0 && call->writable != NULL) {
        call->writable(call);
        ngx_http_run_posted_requests(client);
    }
}


/* NGX_OK: all or what is possible now is sent, or nobody takes it. */

static ngx_int_t
ngx_http_sandbox_call_flush(ngx_http_sandbox_call_t *call)
{
    ssize_t            n;
    ngx_err_t          err;
    struct iovec       iovs[NGX_HTTP_SANDBOX_CALL_IOVS];
    struct msghdr      msg;
    ngx_connection_t  *c;

    c = call->connection;

    while (call->queued != 0 && !call->mute) {
        ngx_memzero(&msg, sizeof(struct msghdr));
        msg.msg_iov = iovs;
        msg.msg_iovlen = ngx_http_sandbox_call_iovs(call, iovs);

        n = sendmsg(c->fd, &msg, MSG_NOSIGNAL|MSG_DONTWAIT);

        if (n >= 0) {
            ngx_http_sandbox_call_sent(call, (size_t) n);
            continue;
        }

        err = ngx_socket_errno;

        if (err == NGX_EINTR) {
            continue;
        }

        if (err == NGX_EAGAIN) {
            c->write->ready = 0;
            break;
        }

        /* the end, and what was said before it, is for the reader */

        call->mute = 1;
        ngx_post_event(c->read, &ngx_posted_events);
    }

    if (call->mute && call->answered) {
        call->queued = 0;
        call->held = 0;
        call->queue = NULL;
        call->queue_tail = NULL;
    }

    if (call->answered) {
        ngx_http_sandbox_call_recycle(call);
    }

    return ngx_handle_write_event(c->write, 0);
}


static ngx_uint_t
ngx_http_sandbox_call_iovs(ngx_http_sandbox_call_t *call,
    struct iovec *iovs)
{
    ngx_buf_t    *b;
    ngx_uint_t    n;
    ngx_chain_t  *cl;

    n = 0;

    for (cl = call->queue; cl != NULL; cl = cl->next) {
        b = cl->buf;

        if (b->pos == b->last) {
            continue;
        }

        iovs[n].iov_base = b->pos;
        iovs[n].iov_len = b->last - b->pos;

        if (++n == NGX_HTTP_SANDBOX_CALL_IOVS) {
            break;
        }
    }

    return n;
}


static void
ngx_http_sandbox_call_sent(ngx_http_sandbox_call_t *call, size_t n)
{
    size_t        size;
    ngx_buf_t    *b;
    ngx_chain_t  *cl;

    call->queued -= n;

    for (cl = call->queue; n != 0; cl = cl->next) {
        b = cl->buf;
        size = ngx_min(n, (size_t) (b->last - b->pos));

        b->pos += size;
        n -= size;
    }
}


/* What was sent will not be sent again: its blocks are free. */

static void
ngx_http_sandbox_call_recycle(ngx_http_sandbox_call_t *call)
{
    ngx_buf_t    *b;
    ngx_chain_t  *cl;

    for (cl = call->queue; cl != NULL; cl = call->queue) {
        b = cl->buf;

        if (b->pos != b->last) {
            break;
        }

        call->queue = cl->next;

        if (call->queue == NULL) {
            call->queue_tail = NULL;
        }

        b->pos = b->start;
        b->last = b->start;

        cl->next = call->queue_free;
        call->queue_free = cl;
    }

    call->held = call->queued;
}


static void
ngx_http_sandbox_call_rewind(ngx_http_sandbox_call_t *call)
{
    ngx_chain_t  *cl;

    for (cl = call->queue; cl != NULL; cl = cl->next) {
        cl->buf->pos = cl->buf->start;
    }

    call->queued = call->held;
}


/* ---- buffers ------------------------------------------------------------ */


static u_char *
ngx_http_sandbox_call_buffer(ngx_http_sandbox_call_t *call)
{
    u_char                   *p;
    ngx_http_sandbox_door_t  *door;

    door = &ngx_http_sandbox_door;

    if (door->spares != 0) {
        p = door->spare[--door->spares];

    } else {
        p = ngx_alloc(NGX_HTTP_SANDBOX_CALL_BUFFER,
                      call->request->connection->log);
    }

    if (p != NULL) {
        sbx_wire_init(&call->wire, p, NGX_HTTP_SANDBOX_CALL_BUFFER);
    }

    return p;
}


static void
ngx_http_sandbox_call_release(ngx_http_sandbox_call_t *call)
{
    ngx_http_sandbox_door_t  *door;

    door = &ngx_http_sandbox_door;

    if (call->wire.buf == NULL) {
        return;
    }

    if (door->spares < NGX_HTTP_SANDBOX_CALL_SPARE) {
        door->spare[door->spares++] = call->wire.buf;

    } else {
        ngx_free(call->wire.buf);
    }

    ngx_memzero(&call->wire, sizeof(sbx_wire_t));
}
