/*
 * What goes over a call's own socket: a queue of blocks, sent when the socket
 * takes it.  Until the call was answered, blocks that were sent stay in the
 * queue, since the call may have to be sent again; then they are used anew,
 * so that an upload of any size lives in a few of them.
 */

#include "ngx_http_sandbox_call.h"
#include "ngx_http_sandbox_cost.h"


#define NGX_HTTP_SANDBOX_CALL_BLOCK     16384
#define NGX_HTTP_SANDBOX_CALL_IOVS      16
#define NGX_HTTP_SANDBOX_CALL_SLACK     (1024 * 1024)


static ngx_int_t ngx_http_sandbox_call_append(ngx_http_sandbox_call_t *call,
    const void *data, size_t size);
static ngx_chain_t *ngx_http_sandbox_call_block(
    ngx_http_sandbox_call_t *call);
static ngx_uint_t ngx_http_sandbox_call_iovs(ngx_http_sandbox_call_t *call,
    struct iovec *iovs, size_t room);
static void ngx_http_sandbox_call_sent(ngx_http_sandbox_call_t *call,
    size_t n);


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


void
ngx_http_sandbox_call_part(ngx_http_sandbox_call_t *call,
    sbx_frame_type_t type, const void *data, size_t size)
{
    if (call->connection != NULL
        && ngx_http_sandbox_call_queue(call, type, data, size) == NGX_OK)
    {
        (void) ngx_http_sandbox_call_flush(call);
    }
}


static ngx_int_t
ngx_http_sandbox_call_append(ngx_http_sandbox_call_t *call, const void *data,
    size_t size)
{
    size_t         n;
    ngx_buf_t     *b;
    ngx_chain_t   *cl;
    const u_char  *p;

    p = data;

    while (size != 0) {
        cl = call->queue_tail;

        if (cl == NULL || cl->buf->last == cl->buf->end) {
            cl = ngx_http_sandbox_call_block(call);

            if (cl == NULL) {
                return NGX_ERROR;
            }
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


/* One more at the queue's end. */

static ngx_chain_t *
ngx_http_sandbox_call_block(ngx_http_sandbox_call_t *call)
{
    ngx_pool_t   *pool;
    ngx_chain_t  *cl;

    pool = call->request->pool;
    cl = call->queue_free;

    if (cl != NULL) {
        call->queue_free = cl->next;

    } else if (*call->spare != NULL) {
        cl = *call->spare;
        *call->spare = cl->next;

    } else {
        cl = ngx_alloc_chain_link(pool);

        if (cl == NULL) {
            return NULL;
        }

        cl->buf = ngx_create_temp_buf(pool, NGX_HTTP_SANDBOX_CALL_BLOCK);

        if (cl->buf == NULL) {
            return NULL;
        }
    }

    cl->next = NULL;

    if (call->queue_tail == NULL) {
        call->queue = cl;

    } else {
        call->queue_tail->next = cl;
    }

    call->queue_tail = cl;

    return cl;
}


void
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


ngx_int_t
ngx_http_sandbox_call_flush(ngx_http_sandbox_call_t *call)
{
    ssize_t            n;
    ngx_err_t          err;
    struct iovec       iovs[NGX_HTTP_SANDBOX_CALL_IOVS];
    struct msghdr      msg;
    const char        *session;
    ngx_connection_t  *c;
    sbx_costs_span_t   span;

    c = call->connection;

    /* nobody has the other end yet of one that waits for the door */

    session = call->sent ? ngx_http_sandbox_call_watched(call) : "";

    while (call->queued != 0 && !call->mute) {

        if (ngx_http_sandbox_cost_left(session)) {

            /* the reader ends it */

            call->mute = 1;
            ngx_post_event(c->read, &ngx_posted_events);
            break;
        }

        if (ngx_http_sandbox_cost_over(session)) {
            ngx_http_sandbox_turn_wait(c->write);
            break;
        }

        ngx_memzero(&msg, sizeof(struct msghdr));
        msg.msg_iov = iovs;
        msg.msg_iovlen = ngx_http_sandbox_call_iovs(call, iovs,
                             ngx_http_sandbox_cost_room(session,
                                                        call->queued));

        ngx_http_sandbox_cost_begin(session, &span);
        n = sendmsg(c->fd, &msg, MSG_NOSIGNAL|MSG_DONTWAIT);
        ngx_http_sandbox_cost_end(session, &span);

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


/* Of so many bytes at most. */

static ngx_uint_t
ngx_http_sandbox_call_iovs(ngx_http_sandbox_call_t *call,
    struct iovec *iovs, size_t room)
{
    ngx_buf_t    *b;
    ngx_uint_t    n;
    ngx_chain_t  *cl;

    n = 0;

    for (cl = call->queue; cl != NULL && room != 0; cl = cl->next) {
        b = cl->buf;

        if (b->pos == b->last) {
            continue;
        }

        iovs[n].iov_base = b->pos;
        iovs[n].iov_len = ngx_min(room, (size_t) (b->last - b->pos));
        room -= iovs[n].iov_len;

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


void
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


void
ngx_http_sandbox_call_rewind(ngx_http_sandbox_call_t *call)
{
    ngx_chain_t  *cl;

    for (cl = call->queue; cl != NULL; cl = cl->next) {
        cl->buf->pos = cl->buf->start;
    }

    call->queued = call->held;
}


/* A request may make a thousand calls, one after the other. */

void
ngx_http_sandbox_call_leave_blocks(ngx_http_sandbox_call_t *call)
{
    ngx_uint_t    i;
    ngx_buf_t    *b;
    ngx_chain_t  *cl, *next, *lists[2];

    lists[0] = call->queue;
    lists[1] = call->queue_free;

    for (i = 0; i < 2; i++) {
        for (cl = lists[i]; cl != NULL; cl = next) {
            next = cl->next;
            b = cl->buf;

            b->pos = b->start;
            b->last = b->start;

            cl->next = *call->spare;
            *call->spare = cl;
        }
    }

    call->queue = NULL;
    call->queue_tail = NULL;
    call->queue_free = NULL;
    call->queued = 0;
    call->held = 0;
}
