/*
 * POST /files: the body, which is read as fast as what is in it is written.
 */

#include "ngx_http_sandbox_e2b_post.h"


/* bytes that one turn of the event loop goes through */
#define NGX_HTTP_SANDBOX_E2B_TURN         (128 * 1024)
/* what a byte that gzip brings out counts as, among those that only come */
#define NGX_HTTP_SANDBOX_E2B_INFLATED     4
/* of what comes before, between and after the parts of a form, besides what an
 * upload may have: as much as the heads of all of them */
#define NGX_HTTP_SANDBOX_E2B_AROUND                                           \
    ((off_t) SBX_MULTIPART_PARTS_MAX * SBX_MULTIPART_HEAD_MAX)
/* of gzip that brings nothing out: headers, empty blocks and members */
#define NGX_HTTP_SANDBOX_E2B_BARREN       (1024 * 1024)
/* of all paths of a form */
#define NGX_HTTP_SANDBOX_E2B_PATHS        (1024 * 1024)


static void ngx_http_sandbox_e2b_post_read(ngx_http_request_t *r);
static ngx_int_t ngx_http_sandbox_e2b_post_pause(
    ngx_http_sandbox_e2b_post_t *post);
static ngx_int_t ngx_http_sandbox_e2b_post_fill(
    ngx_http_sandbox_e2b_post_t *post);
static ngx_int_t ngx_http_sandbox_e2b_post_inflate(
    ngx_http_sandbox_e2b_post_t *post);
static ngx_int_t ngx_http_sandbox_e2b_post_slice(
    ngx_http_sandbox_e2b_post_t *post);
static ngx_int_t ngx_http_sandbox_e2b_post_consume(
    ngx_http_sandbox_e2b_post_t *post);
static ngx_int_t ngx_http_sandbox_e2b_post_part(
    ngx_http_sandbox_e2b_post_t *post);
static ngx_int_t ngx_http_sandbox_e2b_post_write(
    ngx_http_sandbox_e2b_post_t *post, const u_char *data, size_t len);
static ngx_int_t ngx_http_sandbox_e2b_post_close(
    ngx_http_sandbox_e2b_post_t *post);
static ngx_int_t ngx_http_sandbox_e2b_post_end(
    ngx_http_sandbox_e2b_post_t *post);


/* NGX_OK, or NGX_DONE: as all of what follows. */

ngx_int_t
ngx_http_sandbox_e2b_post_begin(ngx_http_sandbox_e2b_post_t *post)
{
    ngx_int_t            rc;
    ngx_http_request_t  *r;

    r = post->file.request;
    post->begun = 1;

    rc = ngx_http_sandbox_body_stream(r, ngx_http_sandbox_e2b_post_read);

    if (rc >= NGX_HTTP_SPECIAL_RESPONSE) {
        return ngx_http_sandbox_e2b_post_finish(post, rc);
    }

    return (rc == NGX_OK) ? ngx_http_sandbox_e2b_post_pump(post) : NGX_OK;
}


static void
ngx_http_sandbox_e2b_post_read(ngx_http_request_t *r)
{
    ngx_http_sandbox_ctx_t       *ctx;
    ngx_http_sandbox_e2b_post_t  *post;

    ctx = ngx_http_sandbox_ctx(r);
    post = (ngx_http_sandbox_e2b_post_t *)
               ((u_char *) ctx->data
                - offsetof(ngx_http_sandbox_e2b_post_t, file));

    if (post->more.posted) {
        return;
    }

    post->turn = 0;
    (void) ngx_http_sandbox_e2b_post_pump(post);
}


void
ngx_http_sandbox_e2b_post_writable(ngx_http_sandbox_call_t *call)
{
    ngx_http_sandbox_e2b_post_t  *post;

    post = call->data;

    if (post->state != NGX_HTTP_SANDBOX_E2B_WRITING || post->more.posted
        || !ngx_http_sandbox_body_there(post->file.request))
    {
        return;
    }

    if (post->stall.timer_set) {
        ngx_del_timer(&post->stall);
    }

    post->turn = 0;
    (void) ngx_http_sandbox_e2b_post_pump(post);
}


void
ngx_http_sandbox_e2b_post_more(ngx_event_t *ev)
{
    ngx_connection_t             *c;
    ngx_http_sandbox_e2b_post_t  *post;

    post = ev->data;
    c = post->file.request->connection;

    if (post->stall.timer_set) {
        ngx_del_timer(&post->stall);
    }

    if (post->state != NGX_HTTP_SANDBOX_E2B_IDLE && post->call->closed) {

        /* it has been refused meanwhile */

        return;
    }

    post->turn = 0;

    (void) (post->begun ? ngx_http_sandbox_e2b_post_pump(post)
                        : ngx_http_sandbox_e2b_post_begin(post));

    ngx_http_run_posted_requests(c);
}


void
ngx_http_sandbox_e2b_post_stalled(ngx_event_t *ev)
{
    ngx_http_request_t           *r;
    ngx_http_sandbox_e2b_post_t  *post;

    post = ev->data;
    r = post->file.request;

    if (post->call == NULL || post->call->closed) {
        return;
    }

    ngx_log_error(NGX_LOG_ERR, r->connection->log, NGX_ETIMEDOUT,
                  "sandbox took no more of an upload");

    (void) ngx_http_sandbox_op_finish(post->call,
               ngx_http_sandbox_problem(r,
                                        NGX_HTTP_SANDBOX_BROKER_UNAVAILABLE,
                                        NULL));
}


void
ngx_http_sandbox_e2b_post_cleanup(void *data)
{
    ngx_http_sandbox_e2b_post_t  *post = data;

    if (post->stall.timer_set) {
        ngx_del_timer(&post->stall);
    }

    if (post->more.posted) {
        ngx_delete_posted_event(&post->more);
    }
}


/*
 * Moves what can be moved.  NGX_OK, or NGX_DONE when the request is over and
 * nothing of it may be touched.
 */

ngx_int_t
ngx_http_sandbox_e2b_post_pump(ngx_http_sandbox_e2b_post_t *post)
{
    ngx_int_t  rc;

    for ( ;; ) {
        if (post->state == NGX_HTTP_SANDBOX_E2B_OPENING
            || post->state == NGX_HTTP_SANDBOX_E2B_ENDING
            || (post->state == NGX_HTTP_SANDBOX_E2B_WRITING
                && ngx_http_sandbox_call_queued(post->call)
                   > NGX_HTTP_SANDBOX_OP_WINDOW))
        {
            return ngx_http_sandbox_e2b_post_pause(post);
        }

        if (post->turn > NGX_HTTP_SANDBOX_E2B_TURN
            || ngx_http_sandbox_turn_over())
        {
            /* its timer keeps a worker that is to end from doing so */

            (void) ngx_http_sandbox_e2b_post_pause(post);

            ngx_http_sandbox_turn_wait(&post->more);

            return NGX_OK;
        }

        rc = (post->pos == post->last) ? ngx_http_sandbox_e2b_post_fill(post)
                                       : NGX_OK;

        switch (rc) {

        case NGX_OK:
            break;

        case NGX_BUSY:
            continue;

        case NGX_DECLINED:
            return ngx_http_sandbox_e2b_post_end(post);

        case NGX_AGAIN:

            /* the client is to send more */

            return NGX_OK;

        default:
            return NGX_DONE;
        }

        rc = ngx_http_sandbox_e2b_post_consume(post);

        if (rc != NGX_OK) {
            return NGX_DONE;
        }
    }
}


/* It is not the client who is late. */

static ngx_int_t
ngx_http_sandbox_e2b_post_pause(ngx_http_sandbox_e2b_post_t *post)
{
    ngx_http_request_t  *r;

    r = post->file.request;

    if (r->connection->read->timer_set) {
        ngx_del_timer(r->connection->read);
    }

    if (post->state != NGX_HTTP_SANDBOX_E2B_OPENING) {

        /* opening has a time of its own */

        ngx_add_timer(&post->stall, NGX_HTTP_SANDBOX_OP_STALL);
        r->read_event_handler = ngx_http_block_reading;
    }

    return NGX_OK;
}


/*
 * NGX_OK: there is something to be taken; NGX_AGAIN: not yet; NGX_BUSY: it is
 * the others' turn; NGX_DECLINED: the body is over; NGX_DONE: the request is.
 */

static ngx_int_t
ngx_http_sandbox_e2b_post_fill(ngx_http_sandbox_e2b_post_t *post)
{
    ngx_int_t            rc;
    ngx_http_request_t  *r;

    r = post->file.request;

    for ( ;; ) {

        if (post->gunzip != NULL) {
            rc = ngx_http_sandbox_e2b_post_inflate(post);

            if (rc != NGX_AGAIN) {
                return rc;
            }

            if (post->turn > NGX_HTTP_SANDBOX_E2B_TURN) {
                return NGX_BUSY;
            }

            if (post->max > 0 && post->barren > NGX_HTTP_SANDBOX_E2B_BARREN) {
                return ngx_http_sandbox_e2b_post_bad(post, "the body is gzip "
                                                     "with nothing in it");
            }
        }

        rc = ngx_http_sandbox_e2b_post_slice(post);

        if (rc == NGX_ERROR) {
            return ngx_http_sandbox_e2b_post_finish(post,
                                              NGX_HTTP_INTERNAL_SERVER_ERROR);
        }

        if (rc == NGX_OK) {

            if (post->gunzip != NULL) {
                post->barren += post->raw_last - post->raw;
                continue;
            }

            post->pos = post->raw;
            post->last = post->raw_last;
            post->raw = post->raw_last;

            return NGX_OK;
        }

        if (!r->reading_body) {
            return NGX_DECLINED;
        }

        r->read_event_handler = ngx_http_sandbox_e2b_post_read;

        rc = ngx_http_read_unbuffered_request_body(r);

        if (rc >= NGX_HTTP_SPECIAL_RESPONSE) {
            return ngx_http_sandbox_e2b_post_finish(post, rc);
        }

        if (rc == NGX_AGAIN && r->request_body->bufs == NULL) {
            return NGX_AGAIN;
        }
    }
}


/* NGX_OK, NGX_AGAIN: there is nothing more in what came; NGX_DONE. */

static ngx_int_t
ngx_http_sandbox_e2b_post_inflate(ngx_http_sandbox_e2b_post_t *post)
{
    size_t     n;
    ngx_int_t  rc;

    rc = ngx_http_sandbox_e2b_gunzip(post->gunzip, &post->raw,
                                     post->raw_last, post->inflated,
                                     NGX_HTTP_SANDBOX_E2B_PIECE, &n);

    switch (rc) {

    case NGX_OK:
        post->pos = post->inflated;
        post->last = post->inflated + n;
        post->turn += n;
        ngx_http_sandbox_turn_spend(n * NGX_HTTP_SANDBOX_E2B_INFLATED);
        post->barren -= ngx_min(post->barren, (off_t) (n + n / 64));
        return NGX_OK;

    case NGX_AGAIN:
        return NGX_AGAIN;

    case NGX_ABORT:
        return ngx_http_sandbox_e2b_post_finish(post,
                                              NGX_HTTP_INTERNAL_SERVER_ERROR);

    default:
        return ngx_http_sandbox_e2b_post_bad(post, "the body is not gzip, or "
                                             "something follows its end");
    }
}


/*
 * The next bytes of the body.  NGX_OK, NGX_DECLINED: there are none; NGX_ERROR
 * where they are in a file, since another module had nginx read them.
 */

static ngx_int_t
ngx_http_sandbox_e2b_post_slice(ngx_http_sandbox_e2b_post_t *post)
{
    off_t                     size;
    ngx_buf_t                *b;
    ngx_chain_t              *cl;
    ngx_http_request_t       *r;
    ngx_http_request_body_t  *body;

    r = post->file.request;
    body = r->request_body;

    for (cl = body->bufs; cl != NULL; cl = body->bufs) {
        b = cl->buf;
        size = ngx_buf_special(b) ? 0 : ngx_buf_size(b);

        if (size == 0) {
            body->bufs = cl->next;
            ngx_free_chain(r->pool, cl);
            continue;
        }

        size = ngx_min(size, NGX_HTTP_SANDBOX_E2B_PIECE);
        post->turn += (size_t) size;
        ngx_http_sandbox_turn_spend((size_t) size);

        if (ngx_buf_in_memory(b)) {
            post->raw = b->pos;
            b->pos += size;
            post->raw_last = b->pos;

            return NGX_OK;
        }

        if (post->piece == NULL) {
            post->piece = ngx_palloc(r->pool, NGX_HTTP_SANDBOX_E2B_PIECE);
        }

        if (post->piece == NULL
            || ngx_read_file(b->file, post->piece, (size_t) size,
                             b->file_pos)
               != (ssize_t) size)
        {
            return NGX_ERROR;
        }

        b->file_pos += size;
        post->raw = post->piece;
        post->raw_last = post->piece + size;

        return NGX_OK;
    }

    return NGX_DECLINED;
}


/* ---- what is in it ------------------------------------------------------ */


static ngx_int_t
ngx_http_sandbox_e2b_post_consume(ngx_http_sandbox_e2b_post_t *post)
{
    size_t                  len;
    ngx_int_t               rc;
    const uint8_t          *p, *data;
    sbx_multipart_event_t   event;

    if (post->form == NULL) {
        p = post->pos;
        post->pos = post->last;

        return ngx_http_sandbox_e2b_post_write(post, p, post->last - p);
    }

    p = post->pos;
    event = sbx_multipart_next(post->form, &p, post->last, &data, &len);

    post->around += p - post->pos;
    post->pos = post->last - (post->last - p);

    if (event == SBX_MULTIPART_DATA) {
        post->around -= ngx_min(post->around, (off_t) len);
    }

    if (post->max > 0
        && post->around > post->max + NGX_HTTP_SANDBOX_E2B_AROUND)
    {
        return ngx_http_sandbox_e2b_post_bad(post, "there is too much around "
                                             "what the form holds");
    }

    switch (event) {

    case SBX_MULTIPART_PART:
        rc = ngx_http_sandbox_e2b_post_part(post);
        break;

    case SBX_MULTIPART_DATA:
        rc = ngx_http_sandbox_e2b_post_write(post, data, len);
        break;

    case SBX_MULTIPART_PART_END:
        rc = (post->state == NGX_HTTP_SANDBOX_E2B_WRITING)
             ? ngx_http_sandbox_e2b_post_close(post) : NGX_OK;
        break;

    case SBX_MULTIPART_END:
        post->over = 1;
        rc = NGX_OK;
        break;

    case SBX_MULTIPART_BROKEN:
        rc = ngx_http_sandbox_e2b_post_bad(post, post->form->fault);
        break;

    default:
        rc = NGX_OK;
        break;
    }

    return rc;
}


/* A part that is none of ours is read and dropped. */

static ngx_int_t
ngx_http_sandbox_e2b_post_part(ngx_http_sandbox_e2b_post_t *post)
{
    ngx_int_t               rc;
    ngx_str_t              *path, *other;
    ngx_uint_t              i;
    sbx_error_t             e;
    sbx_multipart_text_t   *name;

    name = &post->form->name;

    if (name->len != sizeof("file") - 1
        || ngx_memcmp(name->data, "file", sizeof("file") - 1) != 0)
    {
        return NGX_OK;
    }

    path = &post->file.path;

    if (post->file.query.len == 0) {
        name = &post->form->filename;

        if (name->len == 0) {
            return ngx_http_sandbox_e2b_post_bad(post,
                                 "a file has no path, neither in the query "
                                 "nor as its filename");
        }

        if (ngx_http_sandbox_e2b_file_path(post->file.request,
                                           post->file.user, name->data,
                                           name->len, path, &e)
            != 0)
        {
            return ngx_http_sandbox_e2b_post_error(post, &e);
        }
    }

    other = post->paths.elts;

    for (i = 0; i < post->paths.nelts; i++) {
        if (other[i].len == path->len
            && ngx_memcmp(other[i].data, path->data, path->len) == 0)
        {
            (void) sbx_error(&e, 0, SBX_E_INVALID,
                             "two files have the path '%.*s': only the first "
                             "was written", (int) ngx_min(path->len, 160),
                             path->data);

            return ngx_http_sandbox_e2b_post_error(post, &e);
        }
    }

    post->paths_size += path->len;

    if (post->paths_size > NGX_HTTP_SANDBOX_E2B_PATHS) {
        return ngx_http_sandbox_e2b_post_bad(post,
                                             "the paths of all files are too "
                                             "long");
    }

    rc = ngx_http_sandbox_e2b_post_put(post);

    return (rc == NGX_DONE) ? NGX_OK
                            : ngx_http_sandbox_e2b_post_finish(post, rc);
}


static ngx_int_t
ngx_http_sandbox_e2b_post_write(ngx_http_sandbox_e2b_post_t *post,
    const u_char *data, size_t len)
{
    sbx_error_t  e;

    post->received += len;

    if (post->max > 0 && post->received > post->max) {
        (void) sbx_error(&e, 0, SBX_E_TOO_LARGE,
                         "an upload is limited to %lld bytes",
                         (long long) post->max);

        return ngx_http_sandbox_e2b_post_error(post, &e);
    }

    if (post->state != NGX_HTTP_SANDBOX_E2B_WRITING
        || ngx_http_sandbox_call_queue_bytes(post->call, SBX_F_DATA, data,
                                             len)
           == NGX_OK)
    {
        return NGX_OK;
    }

    return ngx_http_sandbox_e2b_post_finish(post,
                                            NGX_HTTP_INTERNAL_SERVER_ERROR);
}


/* All of the file has come. */

static ngx_int_t
ngx_http_sandbox_e2b_post_close(ngx_http_sandbox_e2b_post_t *post)
{
    if (ngx_http_sandbox_call_queue(post->call, SBX_F_DATA, NULL, 0)
        != NGX_OK)
    {
        return ngx_http_sandbox_e2b_post_finish(post,
                                              NGX_HTTP_INTERNAL_SERVER_ERROR);
    }

    post->state = NGX_HTTP_SANDBOX_E2B_ENDING;

    return NGX_OK;
}


/* The body is over. */

static ngx_int_t
ngx_http_sandbox_e2b_post_end(ngx_http_sandbox_e2b_post_t *post)
{
    size_t                len;
    const uint8_t        *p, *data;
    ngx_http_request_t   *r;

    r = post->file.request;

    if (post->gunzip != NULL
        && !ngx_http_sandbox_e2b_gunzip_whole(post->gunzip))
    {
        return ngx_http_sandbox_e2b_post_bad(post, "the gzip body is cut off");
    }

    if (post->form == NULL) {

        if (ngx_http_sandbox_e2b_post_close(post) != NGX_OK) {
            return NGX_DONE;
        }

        ngx_add_timer(&post->stall, NGX_HTTP_SANDBOX_OP_STALL);
        ngx_http_sandbox_op_watch(r);

        return NGX_OK;
    }

    p = NULL;

    if (!post->over
        && sbx_multipart_next(post->form, &p, p, &data, &len)
           != SBX_MULTIPART_END)
    {
        return ngx_http_sandbox_e2b_post_bad(post, "the form ends before its "
                                             "last boundary");
    }

    return (post->paths.nelts == 0) ? ngx_http_sandbox_e2b_post_nobody(post)
                                    : ngx_http_sandbox_e2b_post_answer(post);
}
