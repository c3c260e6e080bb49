/*
 * process.Process/StreamInput: messages in a body that has no end until its
 * client says so.  No more is read of it than the process takes: one message
 * is held at a time, and its bytes wait in the call's queue.
 */

#include "ngx_http_sandbox_e2b_process.h"


#define NGX_HTTP_SANDBOX_E2B_WINDOW     (256 * 1024)

/* bytes that one turn of the event loop goes through, and how many of them a
 * message stands for besides its own: most of its cost is not for those */
#define NGX_HTTP_SANDBOX_E2B_FEED_TURN  (128 * 1024)
#define NGX_HTTP_SANDBOX_E2B_FEED_COST  512

/* in a stream: each has a call, and the request's pool keeps it */
#define NGX_HTTP_SANDBOX_E2B_STARTS     256


/* A message of StreamInput. */

typedef struct {
    ngx_http_sandbox_e2b_close_t      start;
    ngx_http_sandbox_e2b_send_t       data;
    uint32_t                          has_start;
    uint32_t                          has_data;
    uint32_t                          has_keepalive;
} ngx_http_sandbox_e2b_message_t;


static ngx_int_t ngx_http_sandbox_e2b_pump_over(
    ngx_http_sandbox_e2b_feed_t *feed, ngx_int_t rc);
static void ngx_http_sandbox_e2b_pump_wait(
    ngx_http_sandbox_e2b_feed_t *feed);
static ngx_int_t ngx_http_sandbox_e2b_take(
    ngx_http_sandbox_e2b_feed_t *feed);
static ngx_int_t ngx_http_sandbox_e2b_take_head(
    ngx_http_sandbox_e2b_feed_t *feed);
static ngx_int_t ngx_http_sandbox_e2b_message(
    ngx_http_sandbox_e2b_feed_t *feed);
static ngx_int_t ngx_http_sandbox_e2b_message_act(
    ngx_http_sandbox_e2b_feed_t *feed, ngx_pool_t *pool, ngx_int_t *rc);
static ngx_int_t ngx_http_sandbox_e2b_message_start(
    ngx_http_sandbox_e2b_feed_t *feed,
    const ngx_http_sandbox_e2b_close_t *start, ngx_int_t *rc);
static ngx_int_t ngx_http_sandbox_e2b_message_data(
    ngx_http_sandbox_e2b_feed_t *feed,
    const ngx_http_sandbox_e2b_send_t *data, ngx_pool_t *pool,
    ngx_int_t *rc);
static ngx_int_t ngx_http_sandbox_e2b_feed_start(
    ngx_http_sandbox_e2b_feed_t *feed, ngx_int_t *rc);
static ngx_int_t ngx_http_sandbox_e2b_feed_last(
    ngx_http_sandbox_e2b_feed_t *feed, ngx_int_t *rc);
static ngx_int_t ngx_http_sandbox_e2b_read(
    ngx_http_sandbox_e2b_feed_t *feed);
static ngx_int_t ngx_http_sandbox_e2b_read_end(
    ngx_http_sandbox_e2b_feed_t *feed);
static void ngx_http_sandbox_e2b_read_event(ngx_http_request_t *r);
static void ngx_http_sandbox_e2b_writable(ngx_http_sandbox_call_t *call);
static void ngx_http_sandbox_e2b_pump_more(ngx_event_t *ev);
static void ngx_http_sandbox_e2b_feed_cleanup(void *data);


#define MESSAGE(field)  offsetof(ngx_http_sandbox_e2b_message_t, field)

static const sbx_json_field_t  ngx_http_sandbox_e2b_message_fields[] = {
    { .name = "start", .type = SBX_JSON_OBJECT, .nullable = 1,
      .fields = ngx_http_sandbox_e2b_close_fields,
      .offset = MESSAGE(start), .seen = MESSAGE(has_start) },
    { .name = "data", .type = SBX_JSON_OBJECT, .nullable = 1,
      .fields = ngx_http_sandbox_e2b_send_fields,
      .offset = MESSAGE(data), .seen = MESSAGE(has_data) },
    { .name = "keepalive", .type = SBX_JSON_ANY,
      .seen = MESSAGE(has_keepalive) },
    NGX_HTTP_SANDBOX_E2B_LAX
};


ngx_int_t
ngx_http_sandbox_e2b_process_stream_input(ngx_http_request_t *r)
{
    ngx_int_t                     rc;
    ngx_str_t                    *type;
    ngx_pool_cleanup_t           *cln;
    ngx_http_sandbox_e2b_feed_t  *feed;

    static const char  connect[] = "application/connect+json";
    static const size_t  len = sizeof(connect) - 1;

    /* a refusal must not be preceded by "100 Continue" */

    r->expect_tested = 1;

    type = (r->headers_in.content_type == NULL)
           ? NULL : &r->headers_in.content_type->value;

    if (type == NULL || type->len < len
        || ngx_strncasecmp(type->data, (u_char *) connect, len) != 0
        || (type->len > len && type->data[len] != ';'
            && type->data[len] != ' '))
    {
        return ngx_http_sandbox_problem(r,
                                     NGX_HTTP_SANDBOX_UNSUPPORTED_MEDIA_TYPE,
                                     "a stream of messages is "
                                     "application/connect+json");
    }

    feed = ngx_http_sandbox_e2b_feed(r);
    cln = ngx_pool_cleanup_add(r->pool, 0);

    if (feed == NULL || cln == NULL) {
        return ngx_http_sandbox_problem(r, NGX_HTTP_SANDBOX_INTERNAL, NULL);
    }

    feed->stream = 1;

    feed->more.handler = ngx_http_sandbox_e2b_pump_more;
    feed->more.data = feed;
    feed->more.log = r->connection->log;

    cln->handler = ngx_http_sandbox_e2b_feed_cleanup;
    cln->data = feed;

    rc = ngx_http_sandbox_body_stream(r, ngx_http_sandbox_e2b_read_event);

    if (rc >= NGX_HTTP_SPECIAL_RESPONSE) {
        return rc;
    }

    /* it may end the request at once, of which nothing may be left then, and
     * whoever called this still has it */

    if (rc == NGX_OK) {
        ngx_post_event(&feed->more, &ngx_posted_events);
    }

    return NGX_DONE;
}


/*
 * Moves what can be moved.  NGX_OK, or NGX_DONE when the request is over and
 * nothing of it may be touched.
 */

ngx_int_t
ngx_http_sandbox_e2b_pump(ngx_http_sandbox_e2b_feed_t *feed)
{
    ngx_int_t  rc;

    for (feed->turn = 0; /* void */; /* void */) {

        if (feed->turn > NGX_HTTP_SANDBOX_E2B_FEED_TURN
            || ngx_http_sandbox_turn_over())
        {
            /* whoever sends faster than this reads is not the only one */

            ngx_http_sandbox_turn_wait(&feed->more);
            ngx_http_sandbox_e2b_pump_wait(feed);

            return NGX_OK;
        }

        if (feed->ending
            || (feed->call != NULL
                && ngx_http_sandbox_call_queued(feed->call)
                   > NGX_HTTP_SANDBOX_E2B_WINDOW))
        {
            ngx_http_sandbox_e2b_pump_wait(feed);
            return NGX_OK;
        }

        rc = ngx_http_sandbox_e2b_take(feed);

        if (rc == NGX_OK) {
            if (!ngx_http_sandbox_turn_may(&feed->more, feed->size)) {
                ngx_http_sandbox_e2b_pump_wait(feed);
                return NGX_OK;
            }

            feed->turn += feed->size + NGX_HTTP_SANDBOX_E2B_FEED_COST;
            ngx_http_sandbox_turn_spend(NGX_HTTP_SANDBOX_E2B_FEED_COST);
            rc = ngx_http_sandbox_e2b_message(feed);

        } else if (rc == NGX_AGAIN) {
            rc = ngx_http_sandbox_e2b_read(feed);

            if (rc == NGX_AGAIN) {
                return NGX_OK;
            }
        }

        if (rc != NGX_OK) {
            return NGX_DONE;
        }
    }
}


/* Ends the request with rc; NGX_DONE. */

static ngx_int_t
ngx_http_sandbox_e2b_pump_over(ngx_http_sandbox_e2b_feed_t *feed,
    ngx_int_t rc)
{
    ngx_connection_t  *c;

    if (feed->call != NULL) {
        return ngx_http_sandbox_op_finish(feed->call, rc);
    }

    c = feed->request->connection;

    ngx_http_finalize_request(feed->request, rc);
    ngx_http_run_posted_requests(c);

    return NGX_DONE;
}


/* It is not the client who is late; but it may go away. */

static void
ngx_http_sandbox_e2b_pump_wait(ngx_http_sandbox_e2b_feed_t *feed)
{
    ngx_event_t  *rev;

    rev = feed->request->connection->read;

    if (rev->timer_set) {
        ngx_del_timer(rev);
    }

    ngx_http_sandbox_op_watch(feed->request);
}


/* A message out of what was read.  NGX_OK: it is whole; NGX_AGAIN; NGX_DONE:
 * the request is over. */

static ngx_int_t
ngx_http_sandbox_e2b_take(ngx_http_sandbox_e2b_feed_t *feed)
{
    u_char                   *p;
    size_t                    n;
    ngx_int_t                 rc;
    ngx_buf_t                *b;
    ngx_chain_t              *cl;
    ngx_http_request_body_t  *body;

    body = feed->request->request_body;

    for ( ;; ) {

        if (feed->head_len == sizeof(feed->head) && feed->len == feed->size)
        {
            return NGX_OK;
        }

        cl = (body == NULL) ? NULL : body->bufs;

        if (cl == NULL) {
            return NGX_AGAIN;
        }

        b = cl->buf;

        if (ngx_buf_special(b) || ngx_buf_size(b) == 0) {
            body->bufs = cl->next;
            ngx_free_chain(feed->request->pool, cl);
            continue;
        }

        if (!ngx_buf_in_memory(b)) {

            /* another module had nginx read it, into a file */

            return ngx_http_sandbox_e2b_pump_over(feed,
                       ngx_http_sandbox_problem(feed->request,
                                            NGX_HTTP_SANDBOX_INTERNAL, NULL));
        }

        if (feed->head_len < sizeof(feed->head)) {
            p = feed->head + feed->head_len;
            n = ngx_min(sizeof(feed->head) - feed->head_len,
                        (size_t) (b->last - b->pos));
            feed->head_len += n;

        } else {
            p = feed->message + feed->len;
            n = ngx_min(feed->size - feed->len,
                        (size_t) (b->last - b->pos));
            feed->len += n;
        }

        ngx_memcpy(p, b->pos, n);
        b->pos += n;

        if (feed->len == 0 && feed->head_len == sizeof(feed->head)) {
            rc = ngx_http_sandbox_e2b_take_head(feed);

            if (rc != NGX_OK) {
                return rc;
            }
        }
    }
}


static ngx_int_t
ngx_http_sandbox_e2b_take_head(ngx_http_sandbox_e2b_feed_t *feed)
{
    size_t                        size;
    ngx_http_request_t           *r;
    ngx_http_sandbox_loc_conf_t  *slcf;

    r = feed->request;
    slcf = ngx_http_get_module_loc_conf(r, ngx_http_sandbox_module);

    if (feed->head[0] != 0) {
        return ngx_http_sandbox_e2b_pump_over(feed,
                   ngx_http_sandbox_problem(r,
                                     NGX_HTTP_SANDBOX_INVALID_REQUEST,
                                     "the message has the flags 0x%02xd, and "
                                     "none were agreed",
                                     (int) feed->head[0]));
    }

    size = ngx_http_sandbox_e2b_length(feed->head);

    if (size > slcf->max_json) {
        return ngx_http_sandbox_e2b_pump_over(feed,
                   ngx_http_sandbox_problem(r,
                                     NGX_HTTP_SANDBOX_PAYLOAD_TOO_LARGE,
                                     "a message has at most %uz bytes",
                                     slcf->max_json));
    }

    feed->size = size;

    if (size <= feed->room) {
        return NGX_OK;
    }

    if (feed->message != NULL) {
        (void) ngx_pfree(r->pool, feed->message);
    }

    /* large enough for a block of its own, which can be given back */

    feed->room = ngx_max(size, 2 * ngx_pagesize);
    feed->message = ngx_palloc(r->pool, feed->room);

    if (feed->message == NULL) {
        return ngx_http_sandbox_e2b_pump_over(feed,
                   ngx_http_sandbox_problem(r, NGX_HTTP_SANDBOX_INTERNAL,
                                            NULL));
    }

    return NGX_OK;
}


/* NGX_OK, or NGX_DONE. */

static ngx_int_t
ngx_http_sandbox_e2b_message(ngx_http_sandbox_e2b_feed_t *feed)
{
    ngx_int_t            rc, act;
    ngx_pool_t          *pool;

    feed->head_len = 0;
    feed->len = 0;

    /* a stream has any number of messages, and the request's pool would keep
     * what each of them took */

    pool = ngx_create_pool(NGX_DEFAULT_POOL_SIZE, ngx_cycle->log);

    if (pool == NULL) {
        return ngx_http_sandbox_e2b_pump_over(feed,
                   ngx_http_sandbox_problem(feed->request,
                                            NGX_HTTP_SANDBOX_INTERNAL, NULL));
    }

    act = ngx_http_sandbox_e2b_message_act(feed, pool, &rc);

    ngx_destroy_pool(pool);

    return (act == NGX_OK) ? NGX_OK
                           : ngx_http_sandbox_e2b_pump_over(feed, rc);
}


/* NGX_OK, or NGX_DECLINED: the request is over with *rc. */

static ngx_int_t
ngx_http_sandbox_e2b_message_act(ngx_http_sandbox_e2b_feed_t *feed,
    ngx_pool_t *pool, ngx_int_t *rc)
{
    sbx_error_t                      e;
    ngx_http_request_t              *r;
    sbx_json_alloc_t                 alloc;
    ngx_http_sandbox_e2b_message_t   message;

    static u_char  empty[] = "{}";

    r = feed->request;
    alloc = ngx_http_sandbox_op_allocator(pool);

    ngx_memzero(&message, sizeof(message));

    if (sbx_json_bind(feed->size ? feed->message : empty,
                      feed->size ? feed->size : sizeof(empty) - 1,
                      ngx_http_sandbox_e2b_message_fields, &message, &alloc,
                      &e)
        != 0)
    {
        *rc = ngx_http_sandbox_problem_core(r, &e);
        return NGX_DECLINED;
    }

    if (message.has_start) {
        return ngx_http_sandbox_e2b_message_start(feed, &message.start, rc);
    }

    if (message.has_data) {
        return ngx_http_sandbox_e2b_message_data(feed, &message.data, pool,
                                                 rc);
    }

    if (message.has_keepalive) {
        return NGX_OK;
    }

    *rc = ngx_http_sandbox_problem(r, NGX_HTTP_SANDBOX_NOT_IMPLEMENTED,
                                   "invalid event type: there are start, "
                                   "data and keepalive");

    return NGX_DECLINED;
}


/* What was begun with another process is ended first. */

static ngx_int_t
ngx_http_sandbox_e2b_message_start(ngx_http_sandbox_e2b_feed_t *feed,
    const ngx_http_sandbox_e2b_close_t *start, ngx_int_t *rc)
{
    if (feed->starts++ == NGX_HTTP_SANDBOX_E2B_STARTS) {
        *rc = ngx_http_sandbox_e2b_error(feed->request, "resource_exhausted",
                                         "a stream of input has at most %d "
                                         "starts",
                                         NGX_HTTP_SANDBOX_E2B_STARTS);
        return NGX_DECLINED;
    }

    ngx_memzero(&feed->next, sizeof(sbx_f_process_t));
    feed->next.verb = SBX_PROCESS_STDIN;

    if (ngx_http_sandbox_e2b_select(feed->request, &start->process,
                                    &feed->next, rc)
        != NGX_OK)
    {
        return NGX_DECLINED;
    }

    feed->selected = 1;

    if (feed->call == NULL) {
        feed->process = feed->next;
        return NGX_OK;
    }

    return ngx_http_sandbox_e2b_feed_last(feed, rc);
}


static ngx_int_t
ngx_http_sandbox_e2b_message_data(ngx_http_sandbox_e2b_feed_t *feed,
    const ngx_http_sandbox_e2b_send_t *data, ngx_pool_t *pool, ngx_int_t *rc)
{
    uint32_t             flag;
    ngx_str_t            bytes;
    ngx_http_request_t  *r;

    r = feed->request;

    if (!feed->selected) {
        *rc = ngx_http_sandbox_problem(r, NGX_HTTP_SANDBOX_INVALID_REQUEST,
                                       "a stream begins with a start");
        return NGX_DECLINED;
    }

    if (ngx_http_sandbox_e2b_input(r, &data->input, pool, &bytes, &flag, rc)
        != NGX_OK)
    {
        return NGX_DECLINED;
    }

    if (feed->call != NULL && feed->process.flags != flag) {
        *rc = ngx_http_sandbox_e2b_error(r, "internal",
                                         "a process has either a stdin or a "
                                         "pty to be written to");
        return NGX_DECLINED;
    }

    feed->process.flags = flag;

    if (ngx_http_sandbox_e2b_feed_start(feed, rc) != NGX_OK) {
        return NGX_DECLINED;
    }

    if (ngx_http_sandbox_call_queue_bytes(feed->call, SBX_F_STDIN,
                                          bytes.data, bytes.len)
        != NGX_OK)
    {
        *rc = ngx_http_sandbox_problem(r, NGX_HTTP_SANDBOX_INTERNAL, NULL);
        return NGX_DECLINED;
    }

    feed->fed = 1;

    return NGX_OK;
}


/* A call that goes on, unless there is one; as _message_act(). */

static ngx_int_t
ngx_http_sandbox_e2b_feed_start(ngx_http_sandbox_e2b_feed_t *feed,
    ngx_int_t *rc)
{
    if (feed->call != NULL) {
        return NGX_OK;
    }

    if (ngx_http_sandbox_e2b_feed_open(feed) != NGX_OK) {
        *rc = ngx_http_sandbox_problem(feed->request,
                                       NGX_HTTP_SANDBOX_INTERNAL, NULL);
        return NGX_DECLINED;
    }

    feed->call->writable = ngx_http_sandbox_e2b_writable;

    if (ngx_http_sandbox_call_start(feed->call) == NGX_OK) {
        return NGX_OK;
    }

    *rc = ngx_http_sandbox_problem(feed->request,
                                   NGX_HTTP_SANDBOX_BROKER_UNAVAILABLE, NULL);

    return NGX_DECLINED;
}


static ngx_int_t
ngx_http_sandbox_e2b_feed_last(ngx_http_sandbox_e2b_feed_t *feed,
    ngx_int_t *rc)
{
    feed->ending = 1;

    if (ngx_http_sandbox_call_queue(feed->call, SBX_F_STDIN, NULL, 0)
        == NGX_OK)
    {
        return NGX_OK;
    }

    *rc = ngx_http_sandbox_problem(feed->request, NGX_HTTP_SANDBOX_INTERNAL,
                                   NULL);

    return NGX_DECLINED;
}


/* NGX_OK: there is more to take; NGX_AGAIN: an event tells of it; NGX_DONE. */

static ngx_int_t
ngx_http_sandbox_e2b_read(ngx_http_sandbox_e2b_feed_t *feed)
{
    ngx_int_t            rc;
    ngx_http_request_t  *r;

    r = feed->request;

    if (!r->reading_body) {
        return ngx_http_sandbox_e2b_read_end(feed);
    }

    r->read_event_handler = ngx_http_sandbox_e2b_read_event;

    rc = ngx_http_read_unbuffered_request_body(r);

    if (rc >= NGX_HTTP_SPECIAL_RESPONSE) {
        return ngx_http_sandbox_e2b_pump_over(feed, rc);
    }

    return (rc == NGX_AGAIN && r->request_body->bufs == NULL) ? NGX_AGAIN
                                                              : NGX_OK;
}


static ngx_int_t
ngx_http_sandbox_e2b_read_end(ngx_http_sandbox_e2b_feed_t *feed)
{
    ngx_int_t            rc;
    ngx_http_request_t  *r;

    r = feed->request;

    if (feed->head_len != 0) {
        return ngx_http_sandbox_e2b_pump_over(feed,
                   ngx_http_sandbox_problem(r,
                                            NGX_HTTP_SANDBOX_INVALID_REQUEST,
                                            "the body ends within a "
                                            "message"));
    }

    if (!feed->selected) {
        return ngx_http_sandbox_e2b_pump_over(feed,
                                             ngx_http_sandbox_e2b_fed(r));
    }

    /* without data, whether there is such a process */

    feed->whole = 1;

    if (ngx_http_sandbox_e2b_feed_start(feed, &rc) != NGX_OK
        || ngx_http_sandbox_e2b_feed_last(feed, &rc) != NGX_OK)
    {
        return ngx_http_sandbox_e2b_pump_over(feed, rc);
    }

    ngx_http_sandbox_op_watch(r);

    return NGX_AGAIN;
}


static void
ngx_http_sandbox_e2b_read_event(ngx_http_request_t *r)
{
    (void) ngx_http_sandbox_e2b_pump(ngx_http_sandbox_ctx(r)->data);
}


static void
ngx_http_sandbox_e2b_writable(ngx_http_sandbox_call_t *call)
{
    ngx_http_sandbox_e2b_feed_t  *feed;

    feed = call->data;

    if (!feed->ending) {
        (void) ngx_http_sandbox_e2b_pump(feed);
    }
}


static void
ngx_http_sandbox_e2b_pump_more(ngx_event_t *ev)
{
    ngx_connection_t             *c;
    ngx_http_sandbox_e2b_feed_t  *feed;

    feed = ev->data;
    c = feed->request->connection;

    if (feed->request->header_sent) {

        /* it has been answered meanwhile */

        return;
    }

    (void) ngx_http_sandbox_e2b_pump(feed);

    ngx_http_run_posted_requests(c);
}


static void
ngx_http_sandbox_e2b_feed_cleanup(void *data)
{
    ngx_http_sandbox_e2b_feed_t  *feed = data;

    if (feed->more.timer_set) {
        ngx_del_timer(&feed->more);
    }

    if (feed->more.posted) {
        ngx_delete_posted_event(&feed->more);
    }
}
