/*
 * Bodies are read without nginx's buffering, which would put them into files:
 * no more than the limit is ever held, whatever the client announces, and a
 * body that a route has no use for is counted and dropped.  Then the route's
 * handler runs.
 */

#include "ngx_http_sandbox.h"


#define NGX_HTTP_SANDBOX_BODY_FIRST    4096
#define NGX_HTTP_SANDBOX_BODY_PIECE    16384
#define NGX_HTTP_SANDBOX_BODY_TURN     65536     /* of one, before others' */


static ngx_uint_t ngx_http_sandbox_body_type_ok(ngx_http_request_t *r);
static ngx_uint_t ngx_http_sandbox_media_type(ngx_http_request_t *r,
    const char *name);
static ngx_int_t ngx_http_sandbox_too_large(ngx_http_request_t *r,
    size_t max);
static void ngx_http_sandbox_body_start(ngx_http_request_t *r);
static void ngx_http_sandbox_body_read(ngx_http_request_t *r);
static void ngx_http_sandbox_body_pump(ngx_http_request_t *r);
static void ngx_http_sandbox_body_over(ngx_http_request_t *r);
static ngx_int_t ngx_http_sandbox_body_take(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx);
static ngx_int_t ngx_http_sandbox_body_add(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx, ngx_buf_t *b, size_t size);
static ngx_int_t ngx_http_sandbox_body_grow(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx, size_t size);
static void ngx_http_sandbox_run(ngx_http_request_t *r);
static void ngx_http_sandbox_body_came(ngx_http_request_t *r);
static ngx_int_t ngx_http_sandbox_body_piece(ngx_http_sandbox_call_t *call,
    sbx_frame_type_t type, ngx_buf_t *b, size_t size);


ngx_int_t
ngx_http_sandbox_read_body(ngx_http_request_t *r, ngx_http_sandbox_ctx_t *ctx)
{
    ngx_int_t                     rc;
    ngx_http_sandbox_loc_conf_t  *slcf;

    slcf = ngx_http_get_module_loc_conf(r, ngx_http_sandbox_module);

    if (ctx->route->body == NGX_HTTP_SANDBOX_BODY_STREAM) {
        r->main->count++;
        ngx_http_sandbox_run(r);

        return NGX_DONE;
    }

    /* an empty message of another encoding than JSON is one all the same */

    if ((r->headers_in.content_length_n > 0
         || (ctx->route->body == NGX_HTTP_SANDBOX_BODY_RPC
             && r->headers_in.content_type != NULL))
        && !ngx_http_sandbox_body_type_ok(r))
    {
        return ngx_http_sandbox_problem(r,
                                     NGX_HTTP_SANDBOX_UNSUPPORTED_MEDIA_TYPE,
                                     NULL);
    }

    if (r->headers_in.content_length_n > (off_t) slcf->max_json) {
        return ngx_http_sandbox_too_large(r, slcf->max_json);
    }

    if (ngx_http_sandbox_body_own(r) != NGX_OK) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    r->request_body_no_buffering = 1;

    rc = ngx_http_read_client_request_body(r, ngx_http_sandbox_body_start);

    return (rc >= NGX_HTTP_SPECIAL_RESPONSE) ? rc : NGX_DONE;
}


/* Whether the route takes a body of this type. */

static ngx_uint_t
ngx_http_sandbox_body_type_ok(ngx_http_request_t *r)
{
    ngx_http_sandbox_ctx_t  *ctx;

    ctx = ngx_http_sandbox_ctx(r);

    switch (ctx->route->body) {

    case NGX_HTTP_SANDBOX_BODY_JSON:
        return ngx_http_sandbox_media_type(r, "application/json");

    case NGX_HTTP_SANDBOX_BODY_RPC:
        return ngx_http_sandbox_media_type(r, "application/json")
               || ngx_http_sandbox_media_type(r, "application/connect+json");

    default:
        return 1;
    }
}


static ngx_uint_t
ngx_http_sandbox_media_type(ngx_http_request_t *r, const char *name)
{
    size_t      len;
    ngx_str_t  *type;

    if (r->headers_in.content_type == NULL) {
        return 0;
    }

    type = &r->headers_in.content_type->value;
    len = ngx_strlen(name);

    if (type->len < len
        || ngx_strncasecmp(type->data, (u_char *) name, len) != 0)
    {
        return 0;
    }

    return type->len == len || type->data[len] == ';'
           || type->data[len] == ' ' || type->data[len] == '\t';
}


static ngx_int_t
ngx_http_sandbox_too_large(ngx_http_request_t *r, size_t max)
{
    return ngx_http_sandbox_problem(r, NGX_HTTP_SANDBOX_PAYLOAD_TOO_LARGE,
                                    "the body of this route is limited to "
                                    "%uz bytes", max);
}


static void
ngx_http_sandbox_body_start(ngx_http_request_t *r)
{
    if (r->reading_body) {
        r->read_event_handler = ngx_http_sandbox_body_read;
    }

    ngx_http_sandbox_body_pump(r);
}


static void
ngx_http_sandbox_body_read(ngx_http_request_t *r)
{
    ngx_connection_t        *c;
    ngx_http_sandbox_ctx_t  *ctx;

    c = r->connection;
    ctx = ngx_http_sandbox_ctx(r);

    if (c->read->timedout) {
        c->timedout = 1;
        ngx_http_finalize_request(r, NGX_HTTP_REQUEST_TIME_OUT);
        return;
    }

    if (ngx_http_sandbox_turn_yield(c)) {
        return;
    }

    if (ctx->body_whole) {
        ngx_http_sandbox_body_over(r);
        return;
    }

    ngx_http_sandbox_body_pump(r);
}


static void
ngx_http_sandbox_body_pump(ngx_http_request_t *r)
{
    size_t                   len, begun;
    ngx_int_t                rc;
    ngx_http_sandbox_ctx_t  *ctx;

    ctx = ngx_http_sandbox_ctx(r);
    begun = ctx->body.len;

    for ( ;; ) {
        len = ctx->body.len;
        rc = ngx_http_sandbox_body_take(r, ctx);

        if (rc != NGX_OK || r->header_sent) {
            ngx_http_finalize_request(r, rc);
            return;
        }

        ngx_http_sandbox_turn_spend(ctx->body.len - len);

        if (!r->reading_body) {
            break;
        }

        if (ctx->body.len - begun >= NGX_HTTP_SANDBOX_BODY_TURN
            || ngx_http_sandbox_turn_over())
        {
            r->read_event_handler = ngx_http_sandbox_body_read;
            ngx_http_sandbox_turn_wait(r->connection->read);
            return;
        }

        rc = ngx_http_read_unbuffered_request_body(r);

        if (rc >= NGX_HTTP_SPECIAL_RESPONSE) {
            ngx_http_finalize_request(r, rc);
            return;
        }

        if (rc == NGX_AGAIN && r->request_body->bufs == NULL) {
            return;
        }
    }

    ngx_http_sandbox_body_over(r);
}


/* What is long is parsed in its turn. */

static void
ngx_http_sandbox_body_over(ngx_http_request_t *r)
{
    ngx_event_t             *rev;
    ngx_http_sandbox_ctx_t  *ctx;

    rev = r->connection->read;
    ctx = ngx_http_sandbox_ctx(r);

    /* nobody waits for the client any more */

    if (rev->timer_set) {
        ngx_del_timer(rev);
    }

    if (ctx->route->body != NGX_HTTP_SANDBOX_BODY_NONE
        && !ngx_http_sandbox_turn_may(rev, ctx->body.len))
    {
        ctx->body_whole = 1;
        r->read_event_handler = ngx_http_sandbox_body_read;
        ngx_http_sandbox_turn_wait(r->connection->read);
        return;
    }

    r->read_event_handler = ngx_http_block_reading;

    ngx_http_sandbox_run(r);
}


/* NGX_OK, or what to finalize with: then an answer has been sent. */

static ngx_int_t
ngx_http_sandbox_body_take(ngx_http_request_t *r, ngx_http_sandbox_ctx_t *ctx)
{
    off_t                         size;
    ngx_int_t                     rc;
    ngx_buf_t                    *b;
    ngx_chain_t                  *cl, *next;
    ngx_http_sandbox_loc_conf_t  *slcf;

    slcf = ngx_http_get_module_loc_conf(r, ngx_http_sandbox_module);

    if (r->request_body == NULL) {
        return NGX_OK;
    }

    for (cl = r->request_body->bufs; cl != NULL; cl = next) {
        next = cl->next;
        b = cl->buf;
        size = ngx_buf_special(b) ? 0 : ngx_buf_size(b);

        if (size != 0 && !ngx_http_sandbox_body_type_ok(r)) {
            return ngx_http_sandbox_problem(r,
                                     NGX_HTTP_SANDBOX_UNSUPPORTED_MEDIA_TYPE,
                                     NULL);
        }

        if (size > (off_t) (slcf->max_json - ctx->body.len)) {
            return ngx_http_sandbox_too_large(r, slcf->max_json);
        }

        rc = ngx_http_sandbox_body_add(r, ctx, b, (size_t) size);

        if (rc != NGX_OK) {
            return rc;
        }

        b->pos = b->last;
        b->file_pos = b->file_last;

        ngx_free_chain(r->pool, cl);
    }

    r->request_body->bufs = NULL;

    return NGX_OK;
}


/* A body that is thrown away is counted all the same. */

static ngx_int_t
ngx_http_sandbox_body_add(ngx_http_request_t *r, ngx_http_sandbox_ctx_t *ctx,
    ngx_buf_t *b, size_t size)
{
    u_char  *p;

    if (size == 0) {
        return NGX_OK;
    }

    if (ctx->route->body == NGX_HTTP_SANDBOX_BODY_NONE) {
        ctx->body.len += size;
        return NGX_OK;
    }

    if (ngx_http_sandbox_body_grow(r, ctx, size) != NGX_OK) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    p = ctx->body.data + ctx->body.len;

    if (ngx_buf_in_memory(b)) {
        ngx_memcpy(p, b->pos, size);

    } else if (ngx_read_file(b->file, p, size, b->file_pos)
               != (ssize_t) size)
    {
        /* another module had nginx read it, into a file */

        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    ctx->body.len += size;

    return NGX_OK;
}


/* Room doubles; large blocks of a pool can be given back. */

static ngx_int_t
ngx_http_sandbox_body_grow(ngx_http_request_t *r, ngx_http_sandbox_ctx_t *ctx,
    size_t size)
{
    size_t   room;
    u_char  *p;

    if (size <= ctx->body_room - ctx->body.len) {
        return NGX_OK;
    }

    room = ngx_max(2 * ctx->body_room, NGX_HTTP_SANDBOX_BODY_FIRST);
    room = ngx_max(room, ctx->body.len + size);

    p = ngx_pnalloc(r->pool, room);

    if (p == NULL) {
        return NGX_ERROR;
    }

    if (ctx->body.data != NULL) {
        ngx_memcpy(p, ctx->body.data, ctx->body.len);
        (void) ngx_pfree(r->pool, ctx->body.data);
    }

    ctx->body.data = p;
    ctx->body_room = room;

    return NGX_OK;
}


static void
ngx_http_sandbox_run(ngx_http_request_t *r)
{
    ngx_int_t                rc;
    ngx_http_sandbox_ctx_t  *ctx;

    ctx = ngx_http_sandbox_ctx(r);

    if (ctx->route->body == NGX_HTTP_SANDBOX_BODY_NONE) {
        ngx_str_null(&ctx->body);
    }

    rc = ctx->route->handler(r);

    if (rc != NGX_DONE) {
        ngx_http_finalize_request(r, rc);
    }
}


/*
 * nginx calls back at once, but for a body of HTTP/2 that has ended before it
 * is read: then a little later, and what there is of it is not to be seen
 * until then.
 */

ngx_int_t
ngx_http_sandbox_body_stream(ngx_http_request_t *r,
    ngx_http_client_body_handler_pt pump)
{
    ngx_int_t                rc;
    ngx_http_sandbox_ctx_t  *ctx;

    ctx = ngx_http_sandbox_ctx(r);

    if (ngx_http_sandbox_body_own(r) != NGX_OK) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    r->expect_tested = 0;
    r->request_body_no_buffering = 1;

    rc = ngx_http_read_client_request_body(r, ngx_http_sandbox_body_came);

    if (rc >= NGX_HTTP_SPECIAL_RESPONSE) {
        return rc;
    }

    /* the reference that this took; the request has the router's */

    r->main->count--;

    if (ctx->body_there) {
        return NGX_OK;
    }

    ctx->body_pump = pump;

    return NGX_AGAIN;
}


static void
ngx_http_sandbox_body_came(ngx_http_request_t *r)
{
    ngx_http_sandbox_ctx_t  *ctx;

    ctx = ngx_http_sandbox_ctx(r);
    ctx->body_there = 1;

    if (ctx->body_pump != NULL) {
        ctx->body_pump(r);
    }
}


/*
 * A body that another module had nginx read, as "mirror" does, is that
 * module's as well: what is taken is taken from a list of our own.
 */

ngx_int_t
ngx_http_sandbox_body_own(ngx_http_request_t *r)
{
    ngx_buf_t                *b;
    ngx_chain_t              *cl, *in, **last;
    ngx_http_request_body_t  *body;

    if (r->request_body == NULL) {
        return NGX_OK;
    }

    body = ngx_palloc(r->pool, sizeof(ngx_http_request_body_t));

    if (body == NULL) {
        return NGX_ERROR;
    }

    *body = *r->request_body;
    last = &body->bufs;

    for (in = r->request_body->bufs; in != NULL; in = in->next) {
        cl = ngx_alloc_chain_link(r->pool);
        b = ngx_palloc(r->pool, sizeof(ngx_buf_t));

        if (cl == NULL || b == NULL) {
            return NGX_ERROR;
        }

        *b = *in->buf;
        cl->buf = b;
        *last = cl;
        last = &cl->next;
    }

    *last = NULL;
    r->request_body = body;

    return NGX_OK;
}


/*
 * Pieces may be as large as client_body_buffer_size, or a file where another
 * module had nginx read the body: what the window has no room for stays.
 */

ngx_int_t
ngx_http_sandbox_body_pass(ngx_http_sandbox_call_t *call,
    sbx_frame_type_t type, size_t window, off_t *passed)
{
    off_t                     size;
    ngx_buf_t                *b;
    ngx_chain_t              *cl;
    ngx_http_request_t       *r;
    ngx_http_request_body_t  *body;

    r = call->request;
    body = r->request_body;

    while (body->bufs != NULL) {
        cl = body->bufs;
        b = cl->buf;
        size = ngx_buf_special(b) ? 0 : ngx_buf_size(b);

        if (size == 0) {
            body->bufs = cl->next;
            ngx_free_chain(r->pool, cl);
            continue;
        }

        if (ngx_http_sandbox_call_queued(call) > window) {
            return NGX_AGAIN;
        }

        size = ngx_min(size, NGX_HTTP_SANDBOX_BODY_PIECE);

        if (ngx_http_sandbox_body_piece(call, type, b, (size_t) size)
            != NGX_OK)
        {
            return NGX_ERROR;
        }

        *passed += size;
        ngx_http_sandbox_turn_spend((size_t) size);
    }

    return NGX_OK;
}


static ngx_int_t
ngx_http_sandbox_body_piece(ngx_http_sandbox_call_t *call,
    sbx_frame_type_t type, ngx_buf_t *b, size_t size)
{
    u_char  piece[NGX_HTTP_SANDBOX_BODY_PIECE];

    if (ngx_buf_in_memory(b)) {
        b->pos += size;

        return ngx_http_sandbox_call_queue(call, type, b->pos - size, size);
    }

    if (ngx_read_file(b->file, piece, size, b->file_pos) != (ssize_t) size) {
        return NGX_ERROR;
    }

    b->file_pos += size;

    return ngx_http_sandbox_call_queue(call, type, piece, size);
}
