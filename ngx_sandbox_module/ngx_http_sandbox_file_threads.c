/*
 * Reads of sessions' files, and who may have how many at work.
 *
 * A session's code may hold the lock that a read of its file waits for, as
 * long as it likes.  So threads read, of a pool that nothing else uses; and
 * since they are few, one session has some of them at most, one tenant half,
 * one of its users half of those, and the more of them are taken the fewer who
 * has some already may have more.  What is beyond that waits in line, without
 * a thread, until a read ends.
 *
 * nginx's copy filter posts the reads, by a function that it leaves in its
 * context of a request; both ways to send a file, sendfile() and read(), come
 * by there.  The function is replaced by one that posts at once, by nginx's
 * own, or does all that nginx's own does but the posting, and has that done
 * when it is the read's turn.
 */

#include "ngx_http_sandbox_file_threads.h"


#if (NGX_THREADS)

#define NGX_HTTP_SANDBOX_FILE_THREADS    32
#define NGX_HTTP_SANDBOX_FILE_SESSION    4

#define NGX_HTTP_SANDBOX_FILE_NUMBER(n)  #n
#define NGX_HTTP_SANDBOX_FILE_PARAM(n)                                       \
    "threads=" NGX_HTTP_SANDBOX_FILE_NUMBER(n)


typedef enum {
    NGX_HTTP_SANDBOX_FILE_IDLE = 0,
    NGX_HTTP_SANDBOX_FILE_FIRST,         /* in line, of its session */
    NGX_HTTP_SANDBOX_FILE_BEHIND,        /* another of its session */
    NGX_HTTP_SANDBOX_FILE_WORKING,
    NGX_HTTP_SANDBOX_FILE_FAILED         /* could not be posted */
} ngx_http_sandbox_file_state_e;


/* The reads of a request: one at a time. */

typedef struct {
    ngx_queue_t                     queue;
    ngx_queue_t                     behind;   /* of the first */
    ngx_http_sandbox_file_state_e   state;
    ngx_http_request_t             *request;
    ngx_file_t                     *file;
    ngx_str_t                       session;
    ngx_str_t                       tenant;
    ngx_str_t                       user;
    uint32_t                        hash;     /* of the session */
    uint32_t                        owner;    /* of the other two */
    ngx_thread_task_t              *task;
    ngx_event_handler_pt            handler;  /* nginx's, of its end */
    ngx_event_t                     failed;
} ngx_http_sandbox_file_read_t;


static ngx_output_chain_ctx_t *ngx_http_sandbox_file_copy(
    ngx_http_request_t *r);
static ngx_int_t ngx_http_sandbox_file_thread(ngx_thread_task_t *task,
    ngx_file_t *file);
static ngx_http_sandbox_file_read_t *ngx_http_sandbox_file_find(
    ngx_http_request_t *r);
static ngx_int_t ngx_http_sandbox_file_post(
    ngx_http_sandbox_file_read_t *read);
static void ngx_http_sandbox_file_ended(ngx_event_t *ev);
static void ngx_http_sandbox_file_wait(ngx_http_sandbox_file_read_t *read);
static void ngx_http_sandbox_file_leave(ngx_http_sandbox_file_read_t *read);
static void ngx_http_sandbox_file_next(void);
static void ngx_http_sandbox_file_failed(ngx_event_t *ev);
static void ngx_http_sandbox_file_terminated(void *data);
static void ngx_http_sandbox_file_cleanup(void *data);
static ngx_uint_t ngx_http_sandbox_file_may(
    const ngx_http_sandbox_file_read_t *read, ngx_uint_t *owner);
static ngx_uint_t ngx_http_sandbox_file_same_session(
    const ngx_http_sandbox_file_read_t *a,
    const ngx_http_sandbox_file_read_t *b);
static ngx_uint_t ngx_http_sandbox_file_same_owner(
    const ngx_http_sandbox_file_read_t *a,
    const ngx_http_sandbox_file_read_t *b);
static ngx_uint_t ngx_http_sandbox_file_same(const ngx_str_t *a,
    const ngx_str_t *b);


extern ngx_module_t  ngx_thread_pool_module;
extern ngx_module_t  ngx_http_copy_filter_module;


/* This worker's: those that have a thread, and the first of each session that
 * waits. */

static ngx_queue_t  ngx_http_sandbox_file_working = {
    &ngx_http_sandbox_file_working, &ngx_http_sandbox_file_working
};

static ngx_queue_t  ngx_http_sandbox_file_line = {
    &ngx_http_sandbox_file_line, &ngx_http_sandbox_file_line
};

static ngx_uint_t   ngx_http_sandbox_file_taken;

/* nginx's own. */

static ngx_int_t  (*ngx_http_sandbox_file_next_thread)(
    ngx_thread_task_t *task, ngx_file_t *file);


/*
 * Only nginx's pool "default" may be without a directive, and the structure is
 * nginx's own.  So this is the directive, once more.  It fails, unheard, where
 * the pool is said already: by the one who wrote the configuration, or by this
 * function for another location.
 */

ngx_thread_pool_t *
ngx_http_sandbox_file_pool(ngx_conf_t *cf)
{
    ngx_log_t       log;
    ngx_conf_t      own;
    ngx_array_t     args;
    ngx_command_t  *cmd;

    static ngx_str_t  value[] = {
        ngx_string("thread_pool"),
        ngx_string("sandbox_files"),
        ngx_string(NGX_HTTP_SANDBOX_FILE_PARAM(
                       NGX_HTTP_SANDBOX_FILE_THREADS))
    };

    log = *cf->log;
    log.log_level = 0;

    ngx_memzero(&args, sizeof(ngx_array_t));
    args.elts = value;
    args.nelts = sizeof(value) / sizeof(value[0]);
    args.size = sizeof(ngx_str_t);
    args.nalloc = args.nelts;
    args.pool = cf->pool;

    own = *cf;
    own.log = &log;
    own.args = &args;

    for (cmd = ngx_thread_pool_module.commands; cmd->name.len; cmd++) {
        if (ngx_http_sandbox_file_same(&cmd->name, &value[0])) {
            (void) cmd->set(&own, cmd, ngx_get_conf(cf->cycle->conf_ctx,
                                                    ngx_thread_pool_module));
        }
    }

    return ngx_thread_pool_get(cf->cycle, &value[1]);
}


ngx_int_t
ngx_http_sandbox_file_threads(ngx_http_request_t *r, ngx_file_t *file,
    const char *session)
{
    ngx_http_cleanup_t            *terminated;
    ngx_pool_cleanup_t            *cln;
    ngx_output_chain_ctx_t        *copy;
    ngx_http_sandbox_ctx_t        *ctx;
    ngx_http_core_loc_conf_t      *clcf;
    ngx_http_sandbox_file_read_t  *read;

    clcf = ngx_http_get_module_loc_conf(r, ngx_http_core_module);

    if (clcf->aio != NGX_HTTP_AIO_THREADS) {
        return NGX_OK;
    }

    copy = ngx_http_sandbox_file_copy(r);
    terminated = ngx_http_cleanup_add(r, 0);
    cln = ngx_pool_cleanup_add(r->pool, sizeof(ngx_http_sandbox_file_read_t));

    if (copy == NULL || terminated == NULL || cln == NULL) {
        return NGX_ERROR;
    }

    if (copy->thread_handler == NULL) {
        return NGX_OK;
    }

    ctx = ngx_http_sandbox_ctx(r);
    read = cln->data;
    ngx_memzero(read, sizeof(ngx_http_sandbox_file_read_t));

    read->request = r;
    read->file = file;
    read->session.data = (u_char *) session;
    read->session.len = ngx_strlen(session);
    read->hash = ngx_crc32_short(read->session.data, read->session.len);
    read->tenant = ctx->tenant;
    read->user = ctx->user;
    read->owner = ngx_crc32_short(read->tenant.data, read->tenant.len)
                  ^ ngx_crc32_short(read->user.data, read->user.len);
    read->failed.handler = ngx_http_sandbox_file_failed;
    read->failed.data = read;
    read->failed.log = r->connection->log;

    cln->handler = ngx_http_sandbox_file_cleanup;
    terminated->handler = ngx_http_sandbox_file_terminated;
    terminated->data = read;

    if (copy->thread_handler != ngx_http_sandbox_file_thread) {
        ngx_http_sandbox_file_next_thread = copy->thread_handler;
        copy->thread_handler = ngx_http_sandbox_file_thread;
    }

    return NGX_OK;
}


/*
 * The copy filter makes its context for the first of a body.  A buffer that
 * is none, as those that only pass a mark on, has it made without anything
 * read or sent.
 */

static ngx_output_chain_ctx_t *
ngx_http_sandbox_file_copy(ngx_http_request_t *r)
{
    ngx_buf_t    *b;
    ngx_chain_t   out;

    b = ngx_calloc_buf(r->pool);

    if (b == NULL) {
        return NULL;
    }

    b->sync = 1;
    out.buf = b;
    out.next = NULL;

    if (ngx_http_output_filter(r, &out) == NGX_ERROR) {
        return NULL;
    }

    /* what the filter notes of a first buffer that has something */

    r->request_output = 1;

    return ngx_http_get_module_ctx(r, ngx_http_copy_filter_module);
}


/* In place of nginx's: r->aio until its end. */

static ngx_int_t
ngx_http_sandbox_file_thread(ngx_thread_task_t *task, ngx_file_t *file)
{
    ngx_uint_t                     owner;
    ngx_http_request_t            *r;
    ngx_output_chain_ctx_t        *copy;
    ngx_http_sandbox_file_read_t  *read;

    r = file->thread_ctx;
    read = ngx_http_sandbox_file_find(r);

    /* a filter's own file; or nginx is to tell what a second read means */

    if (read == NULL || read->file != file || r->aio || task->event.active
        || read->state != NGX_HTTP_SANDBOX_FILE_IDLE)
    {
        return ngx_http_sandbox_file_next_thread(task, file);
    }

    read->task = task;

    if (ngx_http_sandbox_file_may(read, &owner)) {
        return ngx_http_sandbox_file_post(read);
    }

    ngx_http_sandbox_file_wait(read);

    copy = ngx_http_get_module_ctx(r, ngx_http_copy_filter_module);
    copy->aio = 1;

    task->event.active = 1;
    r->main->blocked++;
    r->aio = 1;

    ngx_log_debug1(NGX_LOG_DEBUG_HTTP, r->connection->log, 0,
                   "sandbox file: \"%V\" is in line", &r->uri);

    return NGX_OK;
}


static ngx_http_sandbox_file_read_t *
ngx_http_sandbox_file_find(ngx_http_request_t *r)
{
    ngx_pool_cleanup_t            *cln;
    ngx_http_sandbox_file_read_t  *read;

    for (cln = r->pool->cleanup; cln != NULL; cln = cln->next) {
        read = cln->data;

        if (cln->handler == ngx_http_sandbox_file_cleanup
            && read->request == r)
        {
            return read;
        }
    }

    return NULL;
}


static ngx_int_t
ngx_http_sandbox_file_post(ngx_http_sandbox_file_read_t *read)
{
    if (ngx_http_sandbox_file_next_thread(read->task, read->file) != NGX_OK) {
        return NGX_ERROR;
    }

    /* its end is told in this thread, in a later turn */

    read->handler = read->task->event.handler;
    read->task->event.handler = ngx_http_sandbox_file_ended;
    read->task->event.data = read;

    read->state = NGX_HTTP_SANDBOX_FILE_WORKING;
    ngx_queue_insert_tail(&ngx_http_sandbox_file_working, &read->queue);
    ngx_http_sandbox_file_taken++;

    return NGX_OK;
}


static void
ngx_http_sandbox_file_ended(ngx_event_t *ev)
{
    ngx_connection_t              *c;
    ngx_event_handler_pt           handler;
    ngx_http_sandbox_file_read_t  *read;

    read = ev->data;
    handler = read->handler;
    ev->data = read->request;

    if (!ev->complete) {

        /* a newer nginx complains that it takes long */

        handler(ev);
        ev->data = read;

        return;
    }

    ngx_http_sandbox_file_leave(read);
    ngx_http_sandbox_file_next();

    c = NULL;

#if (NGX_HTTP_V2)

    if (read->request->stream != NULL) {
        c = read->request->stream->connection->connection;
    }

#endif

    handler(ev);

    /*
     * A stream that was reset meanwhile does not go on; its buffer is in the
     * connection's queue, in front of all other streams'.
     */

    if (c != NULL && c->fd != (ngx_socket_t) -1) {
        ngx_post_event(c->write, &ngx_posted_events);
    }
}


static void
ngx_http_sandbox_file_wait(ngx_http_sandbox_file_read_t *read)
{
    ngx_queue_t                   *q;
    ngx_http_sandbox_file_read_t  *first;

    for (q = ngx_queue_head(&ngx_http_sandbox_file_line);
         q != ngx_queue_sentinel(&ngx_http_sandbox_file_line);
         q = ngx_queue_next(q))
    {
        first = ngx_queue_data(q, ngx_http_sandbox_file_read_t, queue);

        if (ngx_http_sandbox_file_same_session(first, read)) {
            read->state = NGX_HTTP_SANDBOX_FILE_BEHIND;
            ngx_queue_insert_tail(&first->behind, &read->queue);
            return;
        }
    }

    read->state = NGX_HTTP_SANDBOX_FILE_FIRST;
    ngx_queue_init(&read->behind);
    ngx_queue_insert_tail(&ngx_http_sandbox_file_line, &read->queue);
}


/* From where it is; who was behind it gets in line, behind other sessions. */

static void
ngx_http_sandbox_file_leave(ngx_http_sandbox_file_read_t *read)
{
    ngx_queue_t                   *q;
    ngx_http_sandbox_file_read_t  *next;

    ngx_queue_remove(&read->queue);

    if (read->state == NGX_HTTP_SANDBOX_FILE_WORKING) {
        ngx_http_sandbox_file_taken--;

    } else if (read->state == NGX_HTTP_SANDBOX_FILE_FIRST
               && !ngx_queue_empty(&read->behind))
    {
        q = ngx_queue_head(&read->behind);
        ngx_queue_remove(q);

        next = ngx_queue_data(q, ngx_http_sandbox_file_read_t, queue);
        next->state = NGX_HTTP_SANDBOX_FILE_FIRST;
        ngx_queue_init(&next->behind);

        if (!ngx_queue_empty(&read->behind)) {
            ngx_queue_add(&next->behind, &read->behind);
        }

        ngx_queue_insert_tail(&ngx_http_sandbox_file_line, &next->queue);
    }

    read->state = NGX_HTTP_SANDBOX_FILE_IDLE;
}


/* A read has ended: whoever may goes on, the one that waits longest first. */

static void
ngx_http_sandbox_file_next(void)
{
    ngx_uint_t                     owner;
    ngx_queue_t                   *q, *prev;
    ngx_http_request_t            *r;
    ngx_http_sandbox_file_read_t  *read, *full;

    full = NULL;
    prev = ngx_queue_sentinel(&ngx_http_sandbox_file_line);

    while (ngx_http_sandbox_file_taken < NGX_HTTP_SANDBOX_FILE_THREADS) {
        q = ngx_queue_next(prev);

        if (q == ngx_queue_sentinel(&ngx_http_sandbox_file_line)) {
            break;
        }

        read = ngx_queue_data(q, ngx_http_sandbox_file_read_t, queue);

        /* many sessions of one owner may wait for the same */

        if (full != NULL && ngx_http_sandbox_file_same_owner(full, read)) {
            prev = q;
            continue;
        }

        if (!ngx_http_sandbox_file_may(read, &owner)) {
            full = owner ? full : read;
            prev = q;
            continue;
        }

        ngx_http_sandbox_file_leave(read);

        r = read->request;
        read->task->event.active = 0;
        r->aio = 0;

        if (ngx_http_sandbox_file_post(read) == NGX_OK) {
            r->main->blocked--;
            continue;
        }

        read->state = NGX_HTTP_SANDBOX_FILE_FAILED;
        r->aio = 1;
        ngx_post_event(&read->failed, &ngx_posted_events);
    }
}


/* The request tries for itself, and fails as it would have. */

static void
ngx_http_sandbox_file_failed(ngx_event_t *ev)
{
    ngx_connection_t              *c;
    ngx_http_request_t            *r;
    ngx_http_sandbox_file_read_t  *read;

    read = ev->data;
    read->state = NGX_HTTP_SANDBOX_FILE_IDLE;

    r = read->request;
    c = r->connection;

    ngx_http_set_log_request(c->log, r);

    r->main->blocked--;
    r->aio = 0;

    r->write_event_handler(r);
    ngx_http_run_posted_requests(c);
}


/*
 * Before nginx looks whether anything keeps the request: what only waits does
 * not.  A stream's buffers may be in its connection's queue; there it gets its
 * turn.
 */

static void
ngx_http_sandbox_file_terminated(void *data)
{
    ngx_http_sandbox_file_read_t  *read = data;

    ngx_http_request_t  *r;

    r = read->request;

#if (NGX_HTTP_V2)

    if (r->stream != NULL) {
        return;
    }

#endif

    if (read->state == NGX_HTTP_SANDBOX_FILE_FIRST
        || read->state == NGX_HTTP_SANDBOX_FILE_BEHIND)
    {
        ngx_http_sandbox_file_leave(read);

        read->task->event.active = 0;
        r->main->blocked--;
        r->aio = 0;
    }
}


/* Whatever may have happened, nothing leads to what is free. */

static void
ngx_http_sandbox_file_cleanup(void *data)
{
    ngx_http_sandbox_file_read_t  *read = data;

    if (read->failed.posted) {
        ngx_delete_posted_event(&read->failed);

    } else if (read->state != NGX_HTTP_SANDBOX_FILE_IDLE) {
        ngx_http_sandbox_file_leave(read);
    }
}


/*
 * The tenant stops where it has as many as are left, so with half of all if it
 * is alone; room is how many more that makes.  A user of it stops where he has
 * as many as that, a session, besides, at a quarter of it.  Who has none gets
 * one as long as there is any for them.  owner: whether another session of
 * the same may.
 */

static ngx_uint_t
ngx_http_sandbox_file_may(const ngx_http_sandbox_file_read_t *read,
    ngx_uint_t *owner)
{
    ngx_uint_t                           left, room, tenant, user, session;
    ngx_queue_t                         *q;
    const ngx_http_sandbox_file_read_t  *other;

    tenant = 0;
    user = 0;
    session = 0;

    for (q = ngx_queue_head(&ngx_http_sandbox_file_working);
         q != ngx_queue_sentinel(&ngx_http_sandbox_file_working);
         q = ngx_queue_next(q))
    {
        other = ngx_queue_data(q, ngx_http_sandbox_file_read_t, queue);

        tenant += ngx_http_sandbox_file_same(&other->tenant, &read->tenant);
        user += ngx_http_sandbox_file_same_owner(other, read);
        session += ngx_http_sandbox_file_same_session(other, read);
    }

    left = NGX_HTTP_SANDBOX_FILE_THREADS - ngx_http_sandbox_file_taken;
    room = (tenant < left) ? (left - tenant + 1) / 2 : 0;

    *owner = user < room;

    return *owner && session < NGX_HTTP_SANDBOX_FILE_SESSION
           && NGX_HTTP_SANDBOX_FILE_SESSION * session < room;
}


static ngx_uint_t
ngx_http_sandbox_file_same_session(const ngx_http_sandbox_file_read_t *a,
    const ngx_http_sandbox_file_read_t *b)
{
    return a->hash == b->hash
           && ngx_http_sandbox_file_same(&a->session, &b->session);
}


static ngx_uint_t
ngx_http_sandbox_file_same_owner(const ngx_http_sandbox_file_read_t *a,
    const ngx_http_sandbox_file_read_t *b)
{
    return a->owner == b->owner
           && ngx_http_sandbox_file_same(&a->tenant, &b->tenant)
           && ngx_http_sandbox_file_same(&a->user, &b->user);
}


static ngx_uint_t
ngx_http_sandbox_file_same(const ngx_str_t *a, const ngx_str_t *b)
{
    return a->len == b->len && ngx_memcmp(a->data, b->data, a->len) == 0;
}

#else

ngx_int_t
ngx_http_sandbox_file_threads(ngx_http_request_t *r, ngx_file_t *file,
    const char *session)
{
    return NGX_OK;
}

#endif
