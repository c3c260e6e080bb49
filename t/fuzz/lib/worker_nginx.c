/*
 * What the worker's requests meet of nginx where it is not nginx's own: pools
 * whose every block has an end that is watched, a log whose lines are looked
 * at, a client that is not there, and an answer that is checked instead of
 * sent.
 */

#include "worker_state.h"

#include <ngx_thread_pool.h>


static void worker_line(ngx_uint_t level, const u_char *p,
    const u_char *end);
static void worker_header(const ngx_str_t *s);
static ngx_int_t worker_thread(ngx_thread_task_t *task, ngx_file_t *file);


extern ngx_module_t  ngx_http_copy_filter_module;


/* ---- memory ------------------------------------------------------------- */


/* The node is a block of the pool's own, so that it goes with it. */

void *
ngx_palloc(ngx_pool_t *pool, size_t size)
{
    void              *p, *node;
    ngx_pool_large_t  *large;

    p = malloc(size ? size : 1);
    node = ngx_alloc_chain_link(pool);

    if (p == NULL || node == NULL) {
        abort();
    }

    /* a chain link has room for it: two pointers */

    large = node;
    large->alloc = p;
    large->next = pool->large;
    pool->large = large;

    return p;
}


void *
ngx_pnalloc(ngx_pool_t *pool, size_t size)
{
    return ngx_palloc(pool, size);
}


void *
ngx_pcalloc(ngx_pool_t *pool, size_t size)
{
    return memset(ngx_palloc(pool, size), 0, size);
}


/* ---- the log ------------------------------------------------- */


/* No line of it is ended by what a stranger has said. */

static void
worker_line(ngx_uint_t level, const u_char *p, const u_char *end)
{
    worker.logged |= (ngx_uint_t) 1 << level;

    for ( /* void */ ; p < end; p++) {
        must(*p >= ' ' && *p != 0x7f);
    }
}


void
ngx_log_error_core(ngx_uint_t level, ngx_log_t *log, ngx_err_t err,
    const char *fmt, ...)
{
    u_char   text[NGX_MAX_ERROR_STR], *p;
    va_list  args;

    va_start(args, fmt);
    p = ngx_vslprintf(text, text + sizeof(text), fmt, args);
    va_end(args);
    worker_line(level, text, p);
}


void
ngx_conf_log_error(ngx_uint_t level, ngx_conf_t *cf, ngx_err_t err,
    const char *fmt, ...)
{
    u_char   text[NGX_MAX_CONF_ERRSTR], *p;
    va_list  args;

    va_start(args, fmt);
    p = ngx_vslprintf(text, text + sizeof(text), fmt, args);
    va_end(args);
    (void) p;
    worker.logged |= (ngx_uint_t) 1 << level;
}


ngx_uint_t
worker_logged(void)
{
    ngx_uint_t  was;

    was = worker.logged;
    worker.logged = 0;

    return was;
}


static void
worker_writer(ngx_log_t *log, ngx_uint_t level, u_char *buf, size_t len)
{
    /* void */
}


/* ---- the answer ---------------------------------------------- */


static void
worker_header(const ngx_str_t *s)
{
    size_t  i;

    for (i = 0; i < s->len; i++) {
        must(s->data[i] != '\r' && s->data[i] != '\n' && s->data[i] != '\0');
    }
}


ngx_int_t
ngx_http_send_header(ngx_http_request_t *r)
{
    ngx_uint_t        i;
    ngx_list_part_t  *part;
    ngx_table_elt_t  *h;

    must(r == worker.request && !r->header_sent);
    r->header_sent = 1;
    r->header_only = (r->method == NGX_HTTP_HEAD);
    worker.header_only = r->header_only;
    worker.status = r->headers_out.status;
    must(worker.status >= 100 && worker.status <= 599);

    part = &r->headers_out.headers.part;
    h = part->elts;

    for (i = 0; /* void */; i++) {
        if (i >= part->nelts) {
            if (part->next == NULL) {
                break;
            }

            part = part->next;
            h = part->elts;
            i = 0;
        }

        if (h[i].hash != 0) {
            must(h[i].key.len != 0);
            worker_header(&h[i].key);
            worker_header(&h[i].value);
        }
    }

    worker_header(&r->headers_out.content_type);
    worker_header(&r->headers_out.status_line);
    (void) snprintf(worker.type, sizeof(worker.type), "%.*s",
                    (int) r->headers_out.content_type.len,
                    r->headers_out.content_type.data);

    return NGX_OK;
}


/* Nothing is read here. */

static ngx_int_t
worker_thread(ngx_thread_task_t *task, ngx_file_t *file)
{
    must(task == NULL && file == NULL);

    return NGX_ERROR;
}


/* All of it is taken at once, by the filter that reads files. */

ngx_int_t
ngx_http_output_filter(ngx_http_request_t *r, ngx_chain_t *in)
{
    size_t                   n;
    ngx_buf_t               *b;
    ngx_output_chain_ctx_t  *copy;

    must(r == worker.request && r->header_sent);

    if (ngx_http_get_module_ctx(r, ngx_http_copy_filter_module) == NULL) {
        copy = ngx_pcalloc(r->pool, sizeof(ngx_output_chain_ctx_t));
        copy->thread_handler = worker_thread;
        ngx_http_set_ctx(r, copy, ngx_http_copy_filter_module);
    }

    for ( /* void */ ; in != NULL; in = in->next) {
        b = in->buf;

        if (ngx_buf_in_memory(b)) {
            n = (size_t) (b->last - b->pos);

            if (n > WORKER_BODY - worker.answer_len) {
                worker.answer_lost = 1;
                n = 0;
            }

            ngx_memcpy(worker.answer + worker.answer_len, b->pos, n);
            worker.answer_len += n;

        } else if (b->in_file) {
            worker.answer_lost = 1;
        }

        worker.whole |= b->last_buf;
        b->pos = b->last;
        b->file_pos = b->file_last;
    }

    return NGX_OK;
}


ngx_int_t
ngx_http_send_special(ngx_http_request_t *r, ngx_uint_t flags)
{
    must(r == worker.request && r->header_sent);
    worker.whole |= (flags & NGX_HTTP_LAST) != 0;

    return NGX_OK;
}


ngx_int_t
ngx_http_discard_request_body(ngx_http_request_t *r)
{
    must(r == worker.request);

    return NGX_OK;
}


void
ngx_http_run_posted_requests(ngx_connection_t *c)
{
    must(c == &worker.client);
}


/* As nginx counts: with the last reference all of the request goes. */

void
ngx_http_finalize_request(ngx_http_request_t *r, ngx_int_t rc)
{
    must(r == worker.request && r->count != 0 && rc != NGX_DECLINED);

    if (rc != NGX_DONE) {
        worker.finals++;
        worker.final = rc;

        /* an answer has been sent, or nginx sends one for what it is given */

        must(r->header_sent || rc == NGX_ERROR
             || rc >= NGX_HTTP_SPECIAL_RESPONSE);
    }

    if (rc == NGX_ERROR || rc == NGX_HTTP_REQUEST_TIME_OUT
        || rc == NGX_HTTP_CLIENT_CLOSED_REQUEST)
    {
        r->count = 1;
    }

    if (--r->count == 0) {
        worker_over(r);
    }
}


void
worker_over(ngx_http_request_t *r)
{
    worker.over = 1;
    worker.request = NULL;
    ngx_destroy_pool(r->pool);
    free(r->ctx);
    free(r->header_in);
    free(r);
}


/* $request_id is all that is asked for. */

ngx_http_variable_value_t *
ngx_http_get_indexed_variable(ngx_http_request_t *r, ngx_uint_t index)
{
    static ngx_http_variable_value_t  value;

    value.valid = 1;
    value.len = 32;
    value.data = (u_char *) "0123456789abcdef0123456789abcdef";

    return &value;
}


/* ---- events -------------------------------------------------- */


static ngx_int_t
worker_event_add(ngx_event_t *ev, ngx_int_t event, ngx_uint_t flags)
{
    ev->active = 1;

    return NGX_OK;
}


static ngx_int_t
worker_event_del(ngx_event_t *ev, ngx_int_t event, ngx_uint_t flags)
{
    ev->active = 0;

    return NGX_OK;
}


static ngx_int_t
worker_conn_del(ngx_connection_t *c, ngx_uint_t flags)
{
    c->read->active = 0;
    c->write->active = 0;

    return NGX_OK;
}


static ssize_t
worker_recv(ngx_connection_t *c, u_char *buf, size_t size)
{
    if (worker.said_len == 0) {
        c->read->ready = 0;
        return NGX_AGAIN;
    }

    size = ngx_min(size, worker.said_len);
    ngx_memcpy(buf, worker.said, size);
    worker.said += size;
    worker.said_len -= size;

    return (ssize_t) size;
}


void
worker_events(void)
{
    ngx_event_flags = NGX_USE_CLEAR_EVENT|NGX_USE_GREEDY_EVENT
                      |NGX_USE_EPOLL_EVENT;
    ngx_event_actions.add = worker_event_add;
    ngx_event_actions.del = worker_event_del;
    ngx_event_actions.enable = worker_event_add;
    ngx_event_actions.disable = worker_event_del;
    ngx_event_actions.del_conn = worker_conn_del;
    ngx_io = ngx_os_io;
    ngx_http_top_request_body_filter = ngx_http_request_body_save_filter;
    worker.client.recv = worker_recv;
    worker.log.writer = worker_writer;
}


/* ---- what it says ------------------------------------------------------- */


int
worker_json(const void *text, size_t n)
{
    return sbx_json_check(text, n);
}


void
worker_check_answer(void)
{

    /* for who writes seeds */

    if (getenv("WORKER_SHOW") != NULL) {
        (void) fprintf(stderr, "%d %u %s\n%.*s\n", (int) worker.final,
                       (unsigned) worker.status, worker.type,
                       (int) worker.answer_len, worker.answer);
    }

    if (worker.status == 0 || worker.answer_lost || worker.told > 1
        || worker.header_only || !worker.whole
        || worker.final == NGX_ERROR
        || (strncmp(worker.type, "application/json", 16) != 0
            && strncmp(worker.type, "application/problem+json", 24) != 0))
    {
        return;
    }

    must(worker_json(worker.answer, worker.answer_len) == 0);
}
