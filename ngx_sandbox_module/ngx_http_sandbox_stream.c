/*
 * Streams of events.  The text of what is being sent is in a pool of its
 * own, which is emptied whenever all of it has gone; until then nothing more
 * is read of the call that brings the events.
 *
 * A worker that is to end tells so by nginx's own event for idle connections,
 * as which the call's is marked while a stream wants to know.  Streams of
 * what goes on without them end then; what is left when
 * worker_shutdown_timeout is nearly over may say a last word.
 */

#include "ngx_http_sandbox_stream.h"


/* milliseconds */
#define NGX_HTTP_SANDBOX_STREAM_IDLE    10000     /* then a ping */
#define NGX_HTTP_SANDBOX_STREAM_LOOK    1000      /* whether one can be sent */
#define NGX_HTTP_SANDBOX_STREAM_EARLY   500       /* before all is cut */

#define NGX_HTTP_SANDBOX_STREAM_POOL    4096

/* of a long event, what is sent in a turn */
#define NGX_HTTP_SANDBOX_STREAM_PIECE   65536

/* of a message of Connect: flags, and the length of what follows */
#define NGX_HTTP_SANDBOX_STREAM_HEAD    5
#define NGX_HTTP_SANDBOX_STREAM_END     0x02


static ngx_int_t ngx_http_sandbox_stream_headers(
    ngx_http_sandbox_stream_t *s);
static ngx_int_t ngx_http_sandbox_stream_measure(
    ngx_http_sandbox_stream_t *s);
static ngx_int_t ngx_http_sandbox_stream_output(
    ngx_http_sandbox_stream_t *s, ngx_chain_t *out);
static ngx_int_t ngx_http_sandbox_stream_piece(ngx_http_sandbox_stream_t *s);
static void ngx_http_sandbox_stream_turn(ngx_event_t *ev);
static ngx_uint_t ngx_http_sandbox_stream_unsent(
    ngx_http_sandbox_stream_t *s);
static ngx_int_t ngx_http_sandbox_stream_wait(ngx_http_sandbox_stream_t *s);
static void ngx_http_sandbox_stream_writer(ngx_http_request_t *r);
static ngx_int_t ngx_http_sandbox_stream_settle(
    ngx_http_sandbox_stream_t *s);
static ngx_int_t ngx_http_sandbox_stream_ping(ngx_http_sandbox_stream_t *s);
static void ngx_http_sandbox_stream_timer(ngx_event_t *ev);
static void ngx_http_sandbox_stream_leaves(ngx_http_sandbox_stream_t *s);
static void ngx_http_sandbox_stream_cutter(ngx_event_t *ev);
static void ngx_http_sandbox_stream_over(ngx_http_sandbox_stream_t *s,
    ngx_int_t rc);
static void ngx_http_sandbox_stream_cleanup(void *data);


/* ---- a stream's life ---------------------------------------------------- */


ngx_http_sandbox_stream_t *
ngx_http_sandbox_stream_create(ngx_http_request_t *r,
    ngx_http_sandbox_stream_e form)
{
    ngx_pool_cleanup_t         *cln;
    ngx_http_sandbox_stream_t  *s;

    cln = ngx_pool_cleanup_add(r->pool, sizeof(ngx_http_sandbox_stream_t));

    if (cln == NULL) {
        return NULL;
    }

    s = cln->data;
    ngx_memzero(s, sizeof(ngx_http_sandbox_stream_t));

    cln->handler = ngx_http_sandbox_stream_cleanup;

    s->request = r;
    s->form = form;
    s->idle = NGX_HTTP_SANDBOX_STREAM_IDLE;
    s->ping = ngx_http_sandbox_stream_ping;

    s->turn.handler = ngx_http_sandbox_stream_turn;
    s->turn.data = s;
    s->turn.log = r->connection->log;

    s->timer.handler = ngx_http_sandbox_stream_timer;
    s->timer.data = s;
    s->timer.log = r->connection->log;

    s->cutter.handler = ngx_http_sandbox_stream_cutter;
    s->cutter.data = s;
    s->cutter.log = r->connection->log;

    return s;
}


ngx_int_t
ngx_http_sandbox_stream_open(ngx_http_sandbox_stream_t *s)
{
    ngx_int_t            rc;
    ngx_http_request_t  *r;

    r = s->request;

    if (s->form != NGX_HTTP_SANDBOX_STREAM_RAW
        && ngx_http_sandbox_stream_headers(s) != NGX_OK)
    {
        return NGX_ERROR;
    }

    rc = ngx_http_send_header(r);

    if (rc == NGX_ERROR || rc > NGX_OK) {
        return NGX_ERROR;
    }

    if (r->header_only) {
        return NGX_DONE;
    }

    r->write_event_handler = ngx_http_sandbox_stream_writer;
    ngx_http_sandbox_ctx(r)->stream = s;

    if (s->leaving != NULL || s->cut != NULL) {
        s->call->stream = s;
        s->call->connection->idle = 1;
        s->late = ngx_exiting ? 1 : 0;
    }

    s->last = ngx_current_msec;
    ngx_add_timer(&s->timer, s->late ? 1 : s->idle);

    /* a client may wait for this before it does what brings an event */

    rc = ngx_http_send_special(r, NGX_HTTP_FLUSH);

    return (rc == NGX_ERROR || ngx_http_sandbox_stream_wait(s) == NGX_ERROR)
           ? NGX_ERROR : NGX_OK;
}


static ngx_int_t
ngx_http_sandbox_stream_headers(ngx_http_sandbox_stream_t *s)
{
    ngx_uint_t           i;
    ngx_http_request_t  *r;

    static struct {
        const char   *name;
        ngx_str_t     value;
    } fixed[] = {
        { "Cache-Control", ngx_string("no-store") },
        { "X-Accel-Buffering", ngx_string("no") },
        { "X-Content-Type-Options", ngx_string("nosniff") }
    };

    r = s->request;

    for (i = 0; i < sizeof(fixed) / sizeof(fixed[0]); i++) {
        if (ngx_http_sandbox_add_header(r, fixed[i].name, &fixed[i].value)
            != NGX_OK)
        {
            return NGX_ERROR;
        }
    }

    if (s->form == NGX_HTTP_SANDBOX_STREAM_CONNECT) {
        ngx_str_set(&r->headers_out.content_type, "application/connect+json");

    } else {
        r->headers_out.content_type = ngx_http_sandbox_stream_type(s->form);
    }

    r->headers_out.status = NGX_HTTP_OK;
    r->headers_out.status_line.len = 0;
    r->headers_out.content_type_len = r->headers_out.content_type.len;
    r->headers_out.content_type_lowcase = NULL;
    ngx_http_clear_content_length(r);

    r->disable_not_modified = 1;

    return NGX_OK;
}


ngx_int_t
ngx_http_sandbox_stream_close(ngx_http_sandbox_stream_t *s)
{
    ngx_int_t  rc;

    if (s->form == NGX_HTTP_SANDBOX_STREAM_CONNECT && !s->ended) {
        ngx_http_sandbox_json_raw(ngx_http_sandbox_stream_trailer(s), "{}");

        if (ngx_http_sandbox_stream_send(s) == NGX_ERROR) {
            ngx_http_sandbox_stream_quiet(s);
            return NGX_ERROR;
        }
    }

    ngx_http_sandbox_stream_quiet(s);

    if (s->rest != NULL) {
        return ngx_http_sandbox_answer(s->request, s->rest);
    }

    rc = ngx_http_send_special(s->request, NGX_HTTP_LAST);

    /* what is still to be sent nginx sends by itself */

    return (rc == NGX_ERROR) ? NGX_ERROR : NGX_OK;
}


void
ngx_http_sandbox_stream_quiet(ngx_http_sandbox_stream_t *s)
{
    s->over = 1;

    if (s->turn.posted) {
        ngx_delete_posted_event(&s->turn);
    }

    if (s->timer.timer_set) {
        ngx_del_timer(&s->timer);
    }

    if (s->cutter.timer_set) {
        ngx_del_timer(&s->cutter);
    }
}


/* The stream cannot go on; nothing of it may be touched after this. */

static void
ngx_http_sandbox_stream_over(ngx_http_sandbox_stream_t *s, ngx_int_t rc)
{
    ngx_connection_t    *c;
    ngx_http_request_t  *r;

    r = s->request;
    c = r->connection;

    ngx_http_sandbox_stream_quiet(s);
    ngx_http_sandbox_call_close(s->call);

    ngx_http_finalize_request(r, rc);
    ngx_http_run_posted_requests(c);
}


static void
ngx_http_sandbox_stream_cleanup(void *data)
{
    ngx_http_sandbox_stream_t  *s = data;

    ngx_http_sandbox_stream_quiet(s);

    if (s->pool != NULL) {
        ngx_destroy_pool(s->pool);
        s->pool = NULL;
    }
}


/* ---- what goes ---------------------------------------------------------- */


ngx_int_t
ngx_http_sandbox_stream_room(ngx_http_sandbox_stream_t *s)
{
    if (s->pool == NULL) {
        s->pool = ngx_create_pool(NGX_HTTP_SANDBOX_STREAM_POOL,
                                  s->request->connection->log);
    }

    return (s->pool == NULL) ? NGX_ERROR : NGX_OK;
}


ngx_http_sandbox_json_t *
ngx_http_sandbox_stream_event(ngx_http_sandbox_stream_t *s, const char *type)
{
    ngx_http_sandbox_json_t  *j;

    static const u_char  head[NGX_HTTP_SANDBOX_STREAM_HEAD];

    j = &s->json;

    if (ngx_http_sandbox_stream_room(s) != NGX_OK) {

        /* the writer does nothing, and the sender tells of it */

        ngx_http_sandbox_json_init(j, NULL);
        j->failed = 1;

        return j;
    }

    ngx_http_sandbox_json_init(j, s->pool);

    if (s->form == NGX_HTTP_SANDBOX_STREAM_CONNECT) {
        ngx_http_sandbox_json_raw_len(j, head, sizeof(head));
        return j;
    }

    if (s->form == NGX_HTTP_SANDBOX_STREAM_SSE) {
        ngx_http_sandbox_json_raw(j, "event: ");
        ngx_http_sandbox_json_raw(j, type);
        ngx_http_sandbox_json_raw(j, "\ndata: ");
    }

    ngx_http_sandbox_json_raw(j, "{\"type\":");
    ngx_http_sandbox_json_cstring(j, type);

    return j;
}


ngx_http_sandbox_json_t *
ngx_http_sandbox_stream_trailer(ngx_http_sandbox_stream_t *s)
{
    ngx_http_sandbox_json_t  *j;

    j = ngx_http_sandbox_stream_event(s, NULL);

    if (!j->failed) {
        j->out->buf->pos[0] = NGX_HTTP_SANDBOX_STREAM_END;
        s->ended = 1;
    }

    return j;
}


/* The length of a message is known when all of it is written. */

static ngx_int_t
ngx_http_sandbox_stream_measure(ngx_http_sandbox_stream_t *s)
{
    off_t    len;
    u_char  *p;

    len = s->json.size - NGX_HTTP_SANDBOX_STREAM_HEAD;

    if (s->json.failed || len < 0 || len > NGX_MAX_INT32_VALUE) {
        return NGX_ERROR;
    }

    p = s->json.out->buf->pos + 1;

    *p++ = (u_char) (len >> 24);
    *p++ = (u_char) (len >> 16);
    *p++ = (u_char) (len >> 8);
    *p = (u_char) len;

    return NGX_OK;
}


ngx_int_t
ngx_http_sandbox_stream_send(ngx_http_sandbox_stream_t *s)
{
    ngx_http_sandbox_json_t  *j;

    j = &s->json;

    if (s->form == NGX_HTTP_SANDBOX_STREAM_CONNECT) {

        if (ngx_http_sandbox_stream_measure(s) != NGX_OK) {
            return NGX_ERROR;
        }

    } else {
        ngx_http_sandbox_json_raw(j, "}\n");
    }

    if (s->form == NGX_HTTP_SANDBOX_STREAM_SSE) {
        ngx_http_sandbox_json_raw(j, "\n");
    }

    if (j->failed) {
        return NGX_ERROR;
    }

    j->buf->flush = 1;

    return ngx_http_sandbox_stream_output(s, j->out);
}


ngx_int_t
ngx_http_sandbox_stream_bytes(ngx_http_sandbox_stream_t *s,
    const void *head, size_t head_len, const void *data, size_t len)
{
    ngx_buf_t    *b;
    ngx_chain_t  *out;

    if (head_len + len == 0) {
        return NGX_OK;
    }

    if (ngx_http_sandbox_stream_room(s) != NGX_OK) {
        return NGX_ERROR;
    }

    b = ngx_create_temp_buf(s->pool, head_len + len);
    out = ngx_alloc_chain_link(s->pool);

    if (b == NULL || out == NULL) {
        return NGX_ERROR;
    }

    if (head_len != 0) {
        b->last = ngx_cpymem(b->last, head, head_len);
    }

    if (len != 0) {
        b->last = ngx_cpymem(b->last, data, len);
    }

    b->flush = 1;
    out->buf = b;
    out->next = NULL;

    return ngx_http_sandbox_stream_output(s, out);
}


ngx_int_t
ngx_http_sandbox_stream_last(ngx_http_sandbox_stream_t *s)
{
    if (ngx_http_sandbox_stream_send(s) == NGX_ERROR) {
        return NGX_ERROR;
    }

    return ngx_http_sandbox_stream_close(s);
}


/* After what is left of the event before, if anything is. */

static ngx_int_t
ngx_http_sandbox_stream_output(ngx_http_sandbox_stream_t *s, ngx_chain_t *out)
{
    ngx_chain_t  **last;

    s->last = ngx_current_msec;

    /* a session that speaks before its call was accepted: the client would
     * take what it says for the answer's head */

    if (!s->request->header_sent) {
        return NGX_ERROR;
    }

    if (s->rest != NULL) {
        for (last = &s->rest; *last != NULL; last = &(*last)->next) {
            /* void */
        }

        *last = out;

        return NGX_AGAIN;
    }

    s->rest = out;

    return ngx_http_sandbox_stream_piece(s);
}


static ngx_int_t
ngx_http_sandbox_stream_piece(ngx_http_sandbox_stream_t *s)
{
    size_t        size;
    ngx_chain_t  *out, *cl;

    size = 0;
    out = s->rest;

    for (cl = out; /* void */ ; cl = cl->next) {
        size += cl->buf->last - cl->buf->pos;

        if (cl->next == NULL || size >= NGX_HTTP_SANDBOX_STREAM_PIECE) {
            break;
        }
    }

    s->rest = cl->next;
    cl->next = NULL;
    cl->buf->flush = 1;

    s->last = ngx_current_msec;

    if (ngx_http_output_filter(s->request, out) == NGX_ERROR) {
        return NGX_ERROR;
    }

    return ngx_http_sandbox_stream_wait(s);
}


static void
ngx_http_sandbox_stream_turn(ngx_event_t *ev)
{
    ngx_connection_t           *c;
    ngx_http_sandbox_stream_t  *s;

    s = ev->data;
    c = s->request->connection;

    ngx_http_set_log_request(c->log, s->request);

    switch (ngx_http_sandbox_stream_piece(s)) {

    case NGX_OK:
        ngx_http_sandbox_call_resume(s->call);
        break;

    case NGX_AGAIN:
        break;

    default:
        ngx_http_sandbox_stream_over(s, NGX_ERROR);
        return;
    }

    ngx_http_run_posted_requests(c);
}


ngx_uint_t
ngx_http_sandbox_stream_behind(ngx_http_sandbox_stream_t *s)
{
    return s->rest != NULL || ngx_http_sandbox_stream_unsent(s);
}


static ngx_uint_t
ngx_http_sandbox_stream_unsent(ngx_http_sandbox_stream_t *s)
{
    ngx_http_request_t  *r;

    r = s->request;

    return r->out != NULL || r->buffered || r->postponed != NULL
           || r->connection->buffered;
}


/* NGX_OK: all has gone; NGX_AGAIN: the writer is told when, or its turn comes
 * to send more. */

static ngx_int_t
ngx_http_sandbox_stream_wait(ngx_http_sandbox_stream_t *s)
{
    ngx_event_t               *wev;
    ngx_http_request_t        *r;
    ngx_http_core_loc_conf_t  *clcf;

    r = s->request;
    wev = r->connection->write;

    if (r->connection->error) {
        return NGX_ERROR;
    }

    if (!ngx_http_sandbox_stream_unsent(s)) {

        if (wev->timer_set && !wev->delayed) {
            ngx_del_timer(wev);
        }

        if (s->rest != NULL) {
            ngx_http_sandbox_turn_wait(&s->turn);
            return NGX_AGAIN;
        }

        if (s->pool != NULL) {
            ngx_reset_pool(s->pool);
        }

        if (s->gone != NULL) {
            s->gone(s);
        }

        return NGX_OK;
    }

    clcf = ngx_http_get_module_loc_conf(r, ngx_http_core_module);

    if (!wev->delayed) {
        ngx_add_timer(wev, clcf->send_timeout);
    }

    if (ngx_handle_write_event(wev, clcf->send_lowat) != NGX_OK) {
        return NGX_ERROR;
    }

    return NGX_AGAIN;
}


static void
ngx_http_sandbox_stream_writer(ngx_http_request_t *r)
{
    ngx_event_t                *wev;
    ngx_http_sandbox_stream_t  *s;

    wev = r->connection->write;
    s = ngx_http_sandbox_ctx(r)->stream;

    if (wev->timedout) {
        ngx_log_error(NGX_LOG_INFO, r->connection->log, NGX_ETIMEDOUT,
                      "client takes no more of a stream");

        r->connection->timedout = 1;
        ngx_http_sandbox_stream_over(s, NGX_HTTP_REQUEST_TIME_OUT);

        return;
    }

    if (!ngx_http_sandbox_stream_unsent(s)) {
        return;
    }

    if (wev->delayed) {
        (void) ngx_http_sandbox_stream_wait(s);
        return;
    }

    if (ngx_http_output_filter(r, NULL) == NGX_ERROR
        || ngx_http_sandbox_stream_settle(s) == NGX_ERROR)
    {
        ngx_http_sandbox_stream_over(s, NGX_ERROR);
        return;
    }

    switch (ngx_http_sandbox_stream_wait(s)) {

    case NGX_OK:
        ngx_http_sandbox_call_resume(s->call);
        return;

    case NGX_AGAIN:
        return;

    default:
        ngx_http_sandbox_stream_over(s, NGX_ERROR);
    }
}


/*
 * All has gone; but a filter that was given it (of chunks, of ranges) may
 * list it until it is given something else, and would look at memory that is
 * used anew by then.
 */

static ngx_int_t
ngx_http_sandbox_stream_settle(ngx_http_sandbox_stream_t *s)
{
    ngx_chain_t  out;

    if (ngx_http_sandbox_stream_unsent(s)) {
        return NGX_OK;
    }

    ngx_memzero(&s->nothing, sizeof(ngx_buf_t));
    s->nothing.flush = 1;

    out.buf = &s->nothing;
    out.next = NULL;

    return ngx_http_output_filter(s->request, &out);
}


static ngx_int_t
ngx_http_sandbox_stream_ping(ngx_http_sandbox_stream_t *s)
{
    (void) ngx_http_sandbox_stream_event(s, "ping");

    return ngx_http_sandbox_stream_send(s);
}


/*
 * nginx tells of it between two rounds of events, and exits before the next
 * one if there is no timer: what is posted now, as HTTP/2 does at the end of
 * a request, would never be done.
 */

void
ngx_http_sandbox_stream_leave(ngx_http_sandbox_stream_t *s)
{
    if (!s->over) {
        s->late = 1;
        ngx_add_timer(&s->timer, 1);
    }
}


static void
ngx_http_sandbox_stream_leaves(ngx_http_sandbox_stream_t *s)
{
    ngx_msec_t        timeout;
    ngx_core_conf_t  *ccf;

    if (s->leaving != NULL) {
        s->leaving(s);
        return;
    }

    ccf = (ngx_core_conf_t *) ngx_get_conf(ngx_cycle->conf_ctx,
                                           ngx_core_module);
    timeout = ccf->shutdown_timeout;

    if (timeout == 0) {
        timeout = s->stay;
    }

    if (timeout != 0 && !s->cutter.timer_set) {
        ngx_add_timer(&s->cutter, timeout - ngx_min(timeout / 4,
                                             NGX_HTTP_SANDBOX_STREAM_EARLY));
    }
}


static void
ngx_http_sandbox_stream_cutter(ngx_event_t *ev)
{
    ngx_connection_t           *c;
    ngx_http_sandbox_stream_t  *s;

    s = ev->data;
    c = s->request->connection;

    s->cut(s);
    ngx_http_run_posted_requests(c);
}


static void
ngx_http_sandbox_stream_timer(ngx_event_t *ev)
{
    ngx_msec_t                  quiet;
    ngx_uint_t                  behind;
    ngx_connection_t           *c;
    ngx_http_sandbox_stream_t  *s;

    s = ev->data;
    c = s->request->connection;

    if (s->late) {
        s->late = 0;
        ngx_add_timer(&s->timer, s->idle);
        ngx_http_sandbox_stream_leaves(s);
        ngx_http_run_posted_requests(c);
        return;
    }

    quiet = ngx_current_msec - s->last;

    if (quiet < s->idle) {
        ngx_add_timer(&s->timer, s->idle - quiet);
        return;
    }

    behind = ngx_http_sandbox_stream_behind(s);
    ngx_add_timer(&s->timer, behind ? NGX_HTTP_SANDBOX_STREAM_LOOK
                                    : s->idle);

    if (behind) {
        return;
    }

    /* a client that takes no ping is not served until it does */

    switch (s->ping(s)) {

    case NGX_OK:
        return;

    case NGX_AGAIN:
        s->call->stopped = 1;
        return;

    default:
        ngx_http_sandbox_stream_over(s, NGX_ERROR);
    }
}
