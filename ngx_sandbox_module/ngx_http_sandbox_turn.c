/*
 * Work that takes more than one turn of the worker's event loop.
 *
 * A turn serves all connections that have something, one after the other, and
 * whoever comes next waits for it.  So what is long is done in pieces: who has
 * done one and has more to do gets in line, and is called when it is its turn
 * again.  The line is worked off for a bounded time in each turn of the loop,
 * measured by the processor time of the worker, so that other processes of the
 * machine make no difference.
 *
 * What arrives, many calls may have at once: what they read without standing
 * in line is bounded, too, by its bytes.  So is how many requests begin: nginx
 * itself takes one after the other of a connection in one turn, as long as the
 * client has sent more and each is answered at once.
 */

#include "ngx_http_sandbox.h"


#define NGX_HTTP_SANDBOX_TURN_TIME     1500000   /* ns, of those in line */
#define NGX_HTTP_SANDBOX_TURN_BYTES    262144    /* of those who are not */
#define NGX_HTTP_SANDBOX_TURN_REQUEST  16384     /* what one counts as */
#define NGX_HTTP_SANDBOX_TURN_BEGUN    200000    /* ns */
#define NGX_HTTP_SANDBOX_TURN_SHORT    8192
#define NGX_HTTP_SANDBOX_TURN_LONG     65536
#define NGX_HTTP_SANDBOX_TURN_HOLD     60000     /* ms */


typedef struct {
    ngx_event_t             turn;
    ngx_http_request_t     *request;
    ngx_http_handler_pt     begin;
} ngx_http_sandbox_begin_t;


static void ngx_http_sandbox_turn_begin(ngx_event_t *ev);
static void ngx_http_sandbox_turn_cleanup(void *data);
static void ngx_http_sandbox_turn_run(ngx_event_t *ev);
static uint64_t ngx_http_sandbox_turn_time(void);


/* This worker's. */

static ngx_queue_t       ngx_http_sandbox_line;
static ngx_event_t       ngx_http_sandbox_runner;
static ngx_connection_t  ngx_http_sandbox_dumb;    /* for what logs it */
static size_t            ngx_http_sandbox_spent;
static ngx_uint_t        ngx_http_sandbox_running;
static ngx_uint_t        ngx_http_sandbox_stop;
static uint64_t          ngx_http_sandbox_begun;

/* Who is the first in line, and has not asked yet whether to go on, and to do
 * what is long. */

static ngx_uint_t        ngx_http_sandbox_first;
static ngx_uint_t        ngx_http_sandbox_alone;


void
ngx_http_sandbox_turn_init(ngx_cycle_t *cycle)
{
    ngx_queue_init(&ngx_http_sandbox_line);

    ngx_memzero(&ngx_http_sandbox_runner, sizeof(ngx_event_t));
    ngx_http_sandbox_runner.handler = ngx_http_sandbox_turn_run;
    ngx_http_sandbox_runner.data = &ngx_http_sandbox_dumb;
    ngx_http_sandbox_runner.log = cycle->log;
    ngx_http_sandbox_dumb.fd = (ngx_socket_t) -1;
}


/* A worker that is to end waits for timers, and for nothing else. */

void
ngx_http_sandbox_turn_wait(ngx_event_t *ev)
{
    ngx_add_timer(&ngx_http_sandbox_runner, NGX_HTTP_SANDBOX_TURN_HOLD);
    ngx_post_event(ev, &ngx_http_sandbox_line);
    ngx_post_event(&ngx_http_sandbox_runner, &ngx_posted_next_events);
}


void
ngx_http_sandbox_turn_spend(size_t bytes)
{
    ngx_http_sandbox_spent += bytes;
}


/* However slow the machine, the first of a line does something: it is let the
 * first time that it asks. */

ngx_uint_t
ngx_http_sandbox_turn_over(void)
{
    if (!ngx_http_sandbox_running) {
        return ngx_http_sandbox_spent >= NGX_HTTP_SANDBOX_TURN_BYTES;
    }

    if (ngx_http_sandbox_first) {
        ngx_http_sandbox_first = 0;
        return 0;
    }

    return ngx_http_sandbox_turn_time() - ngx_http_sandbox_begun
           >= NGX_HTTP_SANDBOX_TURN_TIME;
}


ngx_int_t
ngx_http_sandbox_turn_request(ngx_http_request_t *r,
    ngx_http_handler_pt begin)
{
    ngx_pool_cleanup_t        *cln;
    ngx_http_sandbox_begin_t  *b;

    if (!ngx_http_sandbox_turn_over()) {
        ngx_http_sandbox_turn_spend(NGX_HTTP_SANDBOX_TURN_REQUEST);
        return begin(r);
    }

    cln = ngx_pool_cleanup_add(r->pool, sizeof(ngx_http_sandbox_begin_t));

    if (cln == NULL) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    b = cln->data;
    ngx_memzero(b, sizeof(ngx_http_sandbox_begin_t));

    b->turn.handler = ngx_http_sandbox_turn_begin;
    b->turn.data = b;
    b->turn.log = r->connection->log;
    b->request = r;
    b->begin = begin;

    cln->handler = ngx_http_sandbox_turn_cleanup;

    r->main->count++;
    ngx_http_sandbox_turn_wait(&b->turn);

    return NGX_DONE;
}


static void
ngx_http_sandbox_turn_begin(ngx_event_t *ev)
{
    ngx_connection_t          *c;
    ngx_http_request_t        *r;
    ngx_http_sandbox_begin_t  *b;

    b = ev->data;
    r = b->request;
    c = r->connection;

    ngx_http_set_log_request(c->log, r);

    ngx_http_finalize_request(r, b->begin(r));
    ngx_http_run_posted_requests(c);
}


static void
ngx_http_sandbox_turn_cleanup(void *data)
{
    ngx_http_sandbox_begin_t  *b = data;

    if (b->turn.posted) {
        ngx_delete_posted_event(&b->turn);
    }
}


ngx_uint_t
ngx_http_sandbox_turn_yield(ngx_connection_t *c)
{
    if (!c->read->posted && !ngx_http_sandbox_turn_over()) {
        return 0;
    }

    ngx_http_sandbox_turn_wait(c->read);

    return 1;
}


/* One that takes long is the first of its turn. */

ngx_uint_t
ngx_http_sandbox_turn_may(ngx_event_t *ev, size_t bytes)
{
    if (!ngx_http_sandbox_running) {
        if (bytes <= NGX_HTTP_SANDBOX_TURN_SHORT
            && !ngx_http_sandbox_turn_over())
        {
            ngx_http_sandbox_turn_spend(bytes);
            return 1;
        }

        ngx_http_sandbox_turn_wait(ev);

        return 0;
    }

    if (bytes <= NGX_HTTP_SANDBOX_TURN_LONG || ngx_http_sandbox_alone
        || ngx_http_sandbox_turn_time() - ngx_http_sandbox_begun
           < NGX_HTTP_SANDBOX_TURN_BEGUN)
    {
        ngx_http_sandbox_alone = 0;
        return 1;
    }

    if (ev->posted) {
        ngx_delete_posted_event(ev);
    }

    ev->posted = 1;
    ngx_queue_insert_head(&ngx_http_sandbox_line, &ev->queue);
    ngx_http_sandbox_stop = 1;

    return 0;
}


static void
ngx_http_sandbox_turn_run(ngx_event_t *ev)
{
    ngx_queue_t  *q;
    ngx_event_t  *next;

    ngx_http_sandbox_begun = ngx_http_sandbox_turn_time();
    ngx_http_sandbox_running = 1;
    ngx_http_sandbox_stop = 0;
    ngx_http_sandbox_first = 1;
    ngx_http_sandbox_alone = 1;

    while (!ngx_queue_empty(&ngx_http_sandbox_line)) {
        q = ngx_queue_head(&ngx_http_sandbox_line);
        next = ngx_queue_data(q, ngx_event_t, queue);

        ngx_delete_posted_event(next);
        next->handler(next);
        ngx_http_sandbox_first = 0;
        ngx_http_sandbox_alone = 0;

        if (ngx_http_sandbox_stop
            || ngx_http_sandbox_turn_time() - ngx_http_sandbox_begun
               >= NGX_HTTP_SANDBOX_TURN_TIME)
        {
            break;
        }
    }

    ngx_http_sandbox_running = 0;
    ngx_http_sandbox_spent = 0;

    if (!ngx_queue_empty(&ngx_http_sandbox_line)) {
        ngx_post_event(ev, &ngx_posted_next_events);

    } else if (ev->timer_set) {
        ngx_del_timer(ev);
    }
}


static uint64_t
ngx_http_sandbox_turn_time(void)
{
    struct timespec  t;

    (void) clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);

    return (uint64_t) t.tv_sec * 1000000000 + (uint64_t) t.tv_nsec;
}
