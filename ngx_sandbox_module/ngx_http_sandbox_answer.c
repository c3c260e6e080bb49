/*
 * The body of a long answer: a chain of what is written and of what is yet to
 * be escaped, sent in pieces.  The next one is made when the client has taken
 * the one before and the worker has served others, so that memory holds what
 * there is to tell and one piece, and no answer has a worker to itself.
 */

#include "ngx_http_sandbox.h"


#define NGX_HTTP_SANDBOX_ANSWER_POOL     4096
#define NGX_HTTP_SANDBOX_ANSWER_PIECE    65536

/* what is escaped at once: whole groups of base64 */
#define NGX_HTTP_SANDBOX_ANSWER_STEP     12288


/* A buffer of a chain that is told by its tag. */

typedef struct {
    ngx_buf_t                       buf;
    ngx_uint_t                      base64;
    ngx_uint_t                      free;
    ngx_uint_t                      last;         /* of the string */
} ngx_http_sandbox_later_t;

typedef struct {
    ngx_http_request_t             *request;
    ngx_chain_t                    *next;         /* what is left */
    ngx_http_sandbox_json_tail_t    tail;
    ngx_pool_t                     *pool;         /* of the piece */
    ngx_event_t                     turn;
    ngx_buf_t                       nothing;
} ngx_http_sandbox_answer_t;


static void ngx_http_sandbox_answer_turn(ngx_event_t *ev);
static ngx_int_t ngx_http_sandbox_answer_piece(
    ngx_http_sandbox_answer_t *a);
static ngx_int_t ngx_http_sandbox_answer_write(
    ngx_http_sandbox_answer_t *a, ngx_http_sandbox_json_t *j);
static void ngx_http_sandbox_answer_later(ngx_http_sandbox_answer_t *a,
    ngx_http_sandbox_json_t *j, ngx_http_sandbox_later_t *later);
static ngx_int_t ngx_http_sandbox_answer_whole(ngx_http_sandbox_answer_t *a,
    ngx_http_sandbox_json_t *j, ngx_buf_t *b);
static void ngx_http_sandbox_answer_timer(ngx_http_request_t *r);
static ngx_int_t ngx_http_sandbox_answer_wait(ngx_http_sandbox_answer_t *a);
static void ngx_http_sandbox_answer_writer(ngx_http_request_t *r);
static ngx_int_t ngx_http_sandbox_answer_settle(
    ngx_http_sandbox_answer_t *a);
static ngx_uint_t ngx_http_sandbox_answer_behind(ngx_http_request_t *r);
static void ngx_http_sandbox_answer_cleanup(void *data);


static const char  ngx_http_sandbox_answer_tag[] = "later";

#define NGX_HTTP_SANDBOX_LATER  ((ngx_buf_tag_t) &ngx_http_sandbox_answer_tag)


void
ngx_http_sandbox_json_later(ngx_http_sandbox_json_t *j,
    const ngx_chain_t *chain, size_t len, ngx_uint_t base64, ngx_uint_t free)
{
    size_t                     n;
    ngx_chain_t               *cl;
    ngx_http_sandbox_later_t  *later;

    ngx_http_sandbox_json_raw_len(j, "\"", 1);

    for ( /* void */ ; len != 0 && !j->failed; chain = chain->next) {
        n = ngx_min(len, (size_t) (chain->buf->last - chain->buf->pos));
        len -= n;

        later = ngx_pcalloc(j->pool, sizeof(ngx_http_sandbox_later_t));
        cl = ngx_alloc_chain_link(j->pool);

        if (later == NULL || cl == NULL) {
            j->failed = 1;
            return;
        }

        later->buf.start = chain->buf->start;
        later->buf.pos = chain->buf->pos;
        later->buf.last = chain->buf->pos + n;
        later->buf.end = later->buf.last;      /* no room */
        later->buf.tag = NGX_HTTP_SANDBOX_LATER;
        later->base64 = base64;
        later->free = free;
        later->last = (len == 0);

        cl->buf = &later->buf;
        cl->next = NULL;

        *j->last = cl;
        j->last = &cl->next;
        j->buf = cl->buf;
        j->later = 1;
    }

    ngx_http_sandbox_json_raw_len(j, "\"", 1);
}


ngx_int_t
ngx_http_sandbox_answer(ngx_http_request_t *r, ngx_chain_t *body)
{
    ngx_pool_cleanup_t         *cln;
    ngx_http_sandbox_answer_t  *a;

    cln = ngx_pool_cleanup_add(r->pool, sizeof(ngx_http_sandbox_answer_t));

    if (cln == NULL) {
        return NGX_ERROR;
    }

    a = cln->data;
    ngx_memzero(a, sizeof(ngx_http_sandbox_answer_t));

    cln->handler = ngx_http_sandbox_answer_cleanup;

    a->request = r;
    a->next = body;
    a->turn.handler = ngx_http_sandbox_answer_turn;
    a->turn.data = a;
    a->turn.log = r->connection->log;

    a->pool = ngx_create_pool(NGX_HTTP_SANDBOX_ANSWER_POOL,
                              r->connection->log);

    if (a->pool == NULL) {
        return NGX_ERROR;
    }

    ngx_http_sandbox_ctx(r)->answer = a;

    r->write_event_handler = ngx_http_sandbox_answer_writer;
    r->main->count++;

    ngx_http_sandbox_answer_timer(r);
    ngx_http_sandbox_turn_wait(&a->turn);

    return NGX_DONE;
}


static void
ngx_http_sandbox_answer_turn(ngx_event_t *ev)
{
    ngx_int_t                   rc;
    ngx_connection_t           *c;
    ngx_http_request_t         *r;
    ngx_http_sandbox_answer_t  *a;

    a = ev->data;
    r = a->request;
    c = r->connection;

    ngx_http_set_log_request(c->log, r);

    rc = ngx_http_sandbox_answer_piece(a);

    if (rc != NGX_AGAIN || a->next == NULL) {

        /* what is still to be sent nginx sends by itself */

        ngx_http_finalize_request(r, rc);

    } else if (ngx_http_sandbox_answer_wait(a) == NGX_ERROR) {
        ngx_http_finalize_request(r, NGX_ERROR);
    }

    ngx_http_run_posted_requests(c);
}


/* NGX_AGAIN: there is more, or it has not gone; else what to finalize with. */

static ngx_int_t
ngx_http_sandbox_answer_piece(ngx_http_sandbox_answer_t *a)
{
    ngx_int_t                rc;
    ngx_http_sandbox_json_t  j;

    ngx_reset_pool(a->pool);
    ngx_http_sandbox_json_init(&j, a->pool);

    while (a->next != NULL && j.size < NGX_HTTP_SANDBOX_ANSWER_PIECE) {
        if (ngx_http_sandbox_answer_write(a, &j) != NGX_OK) {
            return NGX_ERROR;
        }
    }

    if (j.failed || j.out == NULL) {
        return NGX_ERROR;
    }

    j.buf->flush = 1;
    j.buf->last_buf = (a->next == NULL);
    j.buf->last_in_chain = (a->next == NULL);

    rc = ngx_http_output_filter(a->request, j.out);

    return (rc == NGX_OK && a->next != NULL) ? NGX_AGAIN : rc;
}


static ngx_int_t
ngx_http_sandbox_answer_write(ngx_http_sandbox_answer_t *a,
    ngx_http_sandbox_json_t *j)
{
    ngx_buf_t  *b;

    b = a->next->buf;

    if (b->tag != NGX_HTTP_SANDBOX_LATER) {
        a->next = a->next->next;
        return ngx_http_sandbox_answer_whole(a, j, b);
    }

    ngx_http_sandbox_answer_later(a, j, (ngx_http_sandbox_later_t *) b);

    if (b->pos == b->last) {
        a->next = a->next->next;

        if (((ngx_http_sandbox_later_t *) b)->free) {
            (void) ngx_pfree(a->request->pool, b->start);
        }
    }

    return NGX_OK;
}


static void
ngx_http_sandbox_answer_later(ngx_http_sandbox_answer_t *a,
    ngx_http_sandbox_json_t *j, ngx_http_sandbox_later_t *later)
{
    size_t      n;
    u_char     *p;
    ngx_uint_t  last;

    p = later->buf.pos;
    n = ngx_min(NGX_HTTP_SANDBOX_ANSWER_STEP,
                (size_t) (later->buf.last - p));

    later->buf.pos += n;
    last = later->last && later->buf.pos == later->buf.last;

    if (later->base64) {
        ngx_http_sandbox_json_base64_piece(j, p, n);

    } else {
        ngx_http_sandbox_json_piece(j, &a->tail, p, n, last);
    }
}


/* The buffer itself, in a link of the piece's pool. */

static ngx_int_t
ngx_http_sandbox_answer_whole(ngx_http_sandbox_answer_t *a,
    ngx_http_sandbox_json_t *j, ngx_buf_t *b)
{
    ngx_chain_t  *cl;

    cl = ngx_alloc_chain_link(a->pool);

    if (cl == NULL) {
        return NGX_ERROR;
    }

    cl->buf = b;
    cl->next = NULL;

    *j->last = cl;
    j->last = &cl->next;
    j->buf = b;
    j->size += b->last - b->pos;

    /* and nothing is written into what may be sent later than its piece */

    b->end = b->last;

    return NGX_OK;
}


/* Of what waits in line, too: nginx ends, when it is told to, once no timer is
 * left. */

static void
ngx_http_sandbox_answer_timer(ngx_http_request_t *r)
{
    ngx_http_core_loc_conf_t  *clcf;

    clcf = ngx_http_get_module_loc_conf(r, ngx_http_core_module);

    if (!r->connection->write->delayed) {
        ngx_add_timer(r->connection->write, clcf->send_timeout);
    }
}


/* The next piece, in line or when the client has taken this one. */

static ngx_int_t
ngx_http_sandbox_answer_wait(ngx_http_sandbox_answer_t *a)
{
    ngx_event_t               *wev;
    ngx_http_request_t        *r;
    ngx_http_core_loc_conf_t  *clcf;

    r = a->request;
    wev = r->connection->write;

    if (r->connection->error) {
        return NGX_ERROR;
    }

    ngx_http_sandbox_answer_timer(r);

    if (!ngx_http_sandbox_answer_behind(r)) {
        ngx_http_sandbox_turn_wait(&a->turn);
        return NGX_OK;
    }

    clcf = ngx_http_get_module_loc_conf(r, ngx_http_core_module);

    return (ngx_handle_write_event(wev, clcf->send_lowat) == NGX_OK)
           ? NGX_AGAIN : NGX_ERROR;
}


static void
ngx_http_sandbox_answer_writer(ngx_http_request_t *r)
{
    ngx_event_t                *wev;
    ngx_http_sandbox_answer_t  *a;

    wev = r->connection->write;
    a = ngx_http_sandbox_ctx(r)->answer;

    if (wev->timedout) {
        ngx_log_error(NGX_LOG_INFO, r->connection->log, NGX_ETIMEDOUT,
                      "client takes no more of an answer");

        r->connection->timedout = 1;
        ngx_http_finalize_request(r, NGX_HTTP_REQUEST_TIME_OUT);
        return;
    }

    if (a->turn.posted) {
        return;
    }

    if (wev->delayed) {
        if (ngx_http_sandbox_answer_wait(a) == NGX_ERROR) {
            ngx_http_finalize_request(r, NGX_ERROR);
        }

        return;
    }

    if ((ngx_http_sandbox_answer_behind(r)
         && ngx_http_output_filter(r, NULL) == NGX_ERROR)
        || ngx_http_sandbox_answer_settle(a) == NGX_ERROR
        || ngx_http_sandbox_answer_wait(a) == NGX_ERROR)
    {
        ngx_http_finalize_request(r, NGX_ERROR);
    }
}


/* As of a stream: filters are to list nothing that has gone. */

static ngx_int_t
ngx_http_sandbox_answer_settle(ngx_http_sandbox_answer_t *a)
{
    ngx_chain_t  out;

    if (ngx_http_sandbox_answer_behind(a->request)) {
        return NGX_OK;
    }

    ngx_memzero(&a->nothing, sizeof(ngx_buf_t));
    a->nothing.flush = 1;

    out.buf = &a->nothing;
    out.next = NULL;

    return ngx_http_output_filter(a->request, &out);
}


static ngx_uint_t
ngx_http_sandbox_answer_behind(ngx_http_request_t *r)
{
    return r->out != NULL || r->buffered || r->postponed != NULL
           || r->connection->buffered;
}


static void
ngx_http_sandbox_answer_cleanup(void *data)
{
    ngx_http_sandbox_answer_t  *a = data;

    if (a->turn.posted) {
        ngx_delete_posted_event(&a->turn);
    }

    if (a->pool != NULL) {
        ngx_destroy_pool(a->pool);
    }
}
