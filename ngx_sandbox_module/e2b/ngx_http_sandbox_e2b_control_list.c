/*
 * Lists of sandboxes.
 *
 * The broker tells the newest first, and filters nothing that is JSON.  A page
 * of that order takes from the stream until it is full; on the first one the
 * rest is counted, up to a bound.  The other order begins where that stream
 * ends: a first call goes through all and keeps of the oldest only what they
 * are and how long, a second one asks for the page, which is turned round.  So
 * memory is that of a page, whatever there is.
 */

#include "ngx_http_sandbox_e2b_control_list.h"


/* sessions looked at for one page of the first order */
#define NGX_HTTP_SANDBOX_E2B_SEEN_MAX   4096
#define NGX_HTTP_SANDBOX_E2B_LIST_MAX   (8 * 1024 * 1024)

#define NGX_HTTP_SANDBOX_E2B_RING                                             \
    (NGX_HTTP_SANDBOX_E2B_PAGE_MAX_OLD + 1)

/* what a sandbox takes besides its metadata, about */
#define NGX_HTTP_SANDBOX_E2B_LISTED     1024


typedef struct {
    uint64_t                        seq;
    uint32_t                        size;
} ngx_http_sandbox_e2b_seen_t;


typedef struct {
    ngx_http_sandbox_op_session_t   session;      /* the one being read */
    ngx_http_sandbox_e2b_query_t    query;
    ngx_http_sandbox_json_t        *items;
    uint64_t                        nitems;
    uint64_t                        size;         /* of items */
    uint64_t                        skip;
    uint64_t                        seen;
    uint64_t                        last;         /* seq, of what was seen */
    uint64_t                        next;         /* where there is more */
    uint64_t                        running;
    ngx_uint_t                      full;
    ngx_uint_t                      unknown;      /* running is not all */

    /* of the other order */
    ngx_http_sandbox_e2b_seen_t    *ring;
    uint64_t                        nring;        /* ever put into it */
    uint64_t                        high;         /* of the page */
} ngx_http_sandbox_e2b_list_t;


static ngx_int_t ngx_http_sandbox_e2b_list_do(ngx_http_request_t *r,
    ngx_uint_t old);
static ngx_http_sandbox_call_t *ngx_http_sandbox_e2b_list_call(
    ngx_http_request_t *r, ngx_http_sandbox_e2b_list_t *list,
    uint64_t before);
static ngx_int_t ngx_http_sandbox_e2b_list_frame(
    ngx_http_sandbox_call_t *call, const sbx_frame_t *frame,
    const u_char *payload, ngx_fd_t fd);
static ngx_int_t ngx_http_sandbox_e2b_list_match(
    ngx_http_sandbox_call_t *call);
static ngx_int_t ngx_http_sandbox_e2b_list_down(
    ngx_http_sandbox_call_t *call);
static ngx_int_t ngx_http_sandbox_e2b_list_up(ngx_http_sandbox_call_t *call);
static ngx_int_t ngx_http_sandbox_e2b_list_page(
    ngx_http_sandbox_call_t *call);
static ngx_int_t ngx_http_sandbox_e2b_list_add(ngx_http_sandbox_call_t *call);
static ngx_int_t ngx_http_sandbox_e2b_list_turn(
    ngx_http_sandbox_call_t *call);
static ngx_int_t ngx_http_sandbox_e2b_list_end(ngx_http_sandbox_call_t *call);
static ngx_int_t ngx_http_sandbox_e2b_list_send(ngx_http_request_t *r,
    ngx_http_sandbox_e2b_list_t *list);


ngx_int_t
ngx_http_sandbox_e2b_list(ngx_http_request_t *r)
{
    return ngx_http_sandbox_e2b_list_do(r, 0);
}


ngx_int_t
ngx_http_sandbox_e2b_list_old(ngx_http_request_t *r)
{
    return ngx_http_sandbox_e2b_list_do(r, 1);
}


static ngx_int_t
ngx_http_sandbox_e2b_list_do(ngx_http_request_t *r, ngx_uint_t old)
{
    uint64_t                      before;
    sbx_error_t                   e;
    ngx_http_sandbox_e2b_list_t  *list;

    list = ngx_pcalloc(r->pool, sizeof(ngx_http_sandbox_e2b_list_t));

    if (list == NULL) {
        return ngx_http_sandbox_problem(r, NGX_HTTP_SANDBOX_INTERNAL, NULL);
    }

    if (ngx_http_sandbox_e2b_query(r, old, &list->query, &e) != 0) {
        return ngx_http_sandbox_e2b_fault(r, &e);
    }

    list->skip = list->query.offset;
    list->items = ngx_palloc(r->pool, list->query.limit
                                      * sizeof(ngx_http_sandbox_json_t));

    if (list->query.asc) {
        list->ring = ngx_palloc(r->pool, NGX_HTTP_SANDBOX_E2B_RING
                                       * sizeof(ngx_http_sandbox_e2b_seen_t));
    }

    if (list->items == NULL || (list->query.asc && list->ring == NULL)) {
        return ngx_http_sandbox_problem(r, NGX_HTTP_SANDBOX_INTERNAL, NULL);
    }

    before = list->query.asc ? 0 : list->query.from;

    return ngx_http_sandbox_op_start(r,
                          ngx_http_sandbox_e2b_list_call(r, list, before));
}


static ngx_http_sandbox_call_t *
ngx_http_sandbox_e2b_list_call(ngx_http_request_t *r,
    ngx_http_sandbox_e2b_list_t *list, uint64_t before)
{
    sbx_list_t                ask;
    ngx_http_sandbox_call_t  *call;

    ngx_memzero(&ask, sizeof(sbx_list_t));
    ask.before = before;

    call = ngx_http_sandbox_op_call(r, SBX_OP_LIST, &ask, sizeof(sbx_list_t),
                                    NGX_INVALID_FILE, list);

    if (call != NULL) {
        call->frame = ngx_http_sandbox_e2b_list_frame;
    }

    return call;
}


static ngx_int_t
ngx_http_sandbox_e2b_list_frame(ngx_http_sandbox_call_t *call,
    const sbx_frame_t *frame, const u_char *payload, ngx_fd_t fd)
{
    ngx_int_t                     rc;
    ngx_http_sandbox_e2b_list_t  *list;

    rc = ngx_http_sandbox_op_frame(call, frame, payload, fd);

    if (rc != NGX_DECLINED) {
        return rc;
    }

    list = call->data;

    if (frame->type == SBX_F_END) {
        return (list->query.asc && list->high == 0)
               ? ngx_http_sandbox_e2b_list_turn(call)
               : ngx_http_sandbox_e2b_list_end(call);
    }

    switch (ngx_http_sandbox_op_session_frame(call->request, &list->session,
                                              frame, payload))
    {
    case NGX_OK:
        return ngx_http_sandbox_e2b_list_match(call);

    case NGX_AGAIN:
        return NGX_OK;

    default:
        return ngx_http_sandbox_op_broken(call, "a wrong frame for list");
    }
}


static ngx_int_t
ngx_http_sandbox_e2b_list_match(ngx_http_sandbox_call_t *call)
{
    ngx_int_t                     rc;
    const sbx_f_session_t        *session;
    ngx_http_sandbox_e2b_list_t  *list;

    list = call->data;
    session = &list->session.session;

    if (!list->query.asc && list->seen++ == NGX_HTTP_SANDBOX_E2B_SEEN_MAX) {

        list->unknown = 1;

        if (!list->full) {
            list->next = list->last;
        }

        return ngx_http_sandbox_e2b_list_end(call);
    }

    if (list->query.asc && list->high != 0
        && session->seq <= list->query.from)
    {
        return ngx_http_sandbox_e2b_list_end(call);
    }

    rc = ngx_http_sandbox_e2b_query_match(call->request, &list->query,
                                          &list->session);

    if (rc == NGX_ERROR) {
        return ngx_http_sandbox_op_broken(call, "metadata that is not JSON");
    }

    if (rc == NGX_OK && list->high == 0
        && session->status == SBX_STATUS_RUNNING)
    {
        list->running++;
    }

    if (rc == NGX_OK && session->status <= SBX_STATUS_PAUSED
        && (list->query.states & (1 << session->status)))
    {
        rc = list->query.asc ? (list->high ? ngx_http_sandbox_e2b_list_page
                                           : ngx_http_sandbox_e2b_list_up)
                               (call)
                             : ngx_http_sandbox_e2b_list_down(call);

        if (rc != NGX_OK) {
            return rc;
        }
    }

    list->last = session->seq;

    return NGX_OK;
}


/* The newest first. */

static ngx_int_t
ngx_http_sandbox_e2b_list_down(ngx_http_sandbox_call_t *call)
{
    ngx_http_sandbox_e2b_list_t  *list;

    list = call->data;

    if (list->skip != 0) {
        list->skip--;
        return NGX_OK;
    }

    if (list->full) {
        return NGX_OK;
    }

    if (list->nitems < list->query.limit
        && !ngx_http_sandbox_op_full(call->request, list->size,
                                     NGX_HTTP_SANDBOX_E2B_LIST_MAX))
    {
        return ngx_http_sandbox_e2b_list_add(call);
    }

    /* one more than fits: the page is full, and not the last */

    list->full = 1;
    list->next = list->last;

    /* how many run is told once, with the first page */

    return (list->query.from == 0)
           ? NGX_OK : ngx_http_sandbox_e2b_list_end(call);
}


/* The oldest are those that came last: what is put in first goes first. */

static ngx_int_t
ngx_http_sandbox_e2b_list_up(ngx_http_sandbox_call_t *call)
{
    ngx_http_sandbox_e2b_list_t  *list;
    ngx_http_sandbox_e2b_seen_t  *seen;

    list = call->data;

    if (list->session.session.seq <= list->query.from) {
        return NGX_OK;
    }

    seen = &list->ring[list->nring++ % NGX_HTTP_SANDBOX_E2B_RING];
    seen->seq = list->session.session.seq;
    seen->size = list->session.session.meta_size
                 + NGX_HTTP_SANDBOX_E2B_LISTED;

    return NGX_OK;
}


/* All have been seen: the page's bounds, and the call for it. */

static ngx_int_t
ngx_http_sandbox_e2b_list_turn(ngx_http_sandbox_call_t *call)
{
    uint64_t                      n, size, kept;
    ngx_http_request_t           *r;
    ngx_http_sandbox_e2b_list_t  *list;
    ngx_http_sandbox_e2b_seen_t  *seen;

    r = call->request;
    list = call->data;

    kept = ngx_min(list->nring, NGX_HTTP_SANDBOX_E2B_RING);

    if (kept == 0) {
        return ngx_http_sandbox_e2b_list_end(call);
    }

    size = 0;

    /* from the oldest up */

    for (n = 0; n < kept && n < list->query.limit; n++) {
        seen = &list->ring[(list->nring - 1 - n) % NGX_HTTP_SANDBOX_E2B_RING];
        size += seen->size;

        if (n != 0 && size > NGX_HTTP_SANDBOX_E2B_LIST_MAX) {
            break;
        }

        list->high = seen->seq;
    }

    if (n < kept) {
        list->next = list->high;
    }

    list->query.limit = n;

    ngx_http_sandbox_call_close(call);

    call = ngx_http_sandbox_e2b_list_call(r, list, list->high + 1);

    if (call == NULL || ngx_http_sandbox_call_start(call) != NGX_OK) {

        if (call != NULL) {
            ngx_http_sandbox_call_close(call);
        }

        ngx_http_finalize_request(r,
               ngx_http_sandbox_problem(r,
                                        NGX_HTTP_SANDBOX_BROKER_UNAVAILABLE,
                                        NULL));
    }

    return NGX_DONE;
}


static ngx_int_t
ngx_http_sandbox_e2b_list_page(ngx_http_sandbox_call_t *call)
{
    ngx_http_sandbox_e2b_list_t  *list;

    list = call->data;

    if (list->nitems == list->query.limit) {
        return ngx_http_sandbox_e2b_list_end(call);
    }

    /* the page's bounds are set, and what comes last is its beginning */

    return ngx_http_sandbox_op_full(call->request, list->size,
                                    NGX_MAX_SIZE_T_VALUE)
           ? ngx_http_sandbox_op_crowded(call)
           : ngx_http_sandbox_e2b_list_add(call);
}


static ngx_int_t
ngx_http_sandbox_e2b_list_add(ngx_http_sandbox_call_t *call)
{
    ngx_http_request_t           *r;
    ngx_http_sandbox_json_t      *j;
    ngx_http_sandbox_e2b_list_t  *list;

    r = call->request;
    list = call->data;
    j = &list->items[list->nitems++];

    ngx_http_sandbox_json_init(j, r->pool);
    ngx_http_sandbox_e2b_sandbox(r, j, &list->session, 0);

    list->size += j->size;

    return NGX_OK;
}


static ngx_int_t
ngx_http_sandbox_e2b_list_end(ngx_http_sandbox_call_t *call)
{
    return ngx_http_sandbox_op_finish(call,
                ngx_http_sandbox_e2b_list_send(call->request, call->data));
}


static ngx_int_t
ngx_http_sandbox_e2b_list_send(ngx_http_request_t *r,
    ngx_http_sandbox_e2b_list_t *list)
{
    uint64_t                  i, k;
    ngx_str_t                 value;
    ngx_http_sandbox_json_t   j;

    if (list->next != 0
        && ngx_http_sandbox_e2b_query_next(r, &list->query, list->next)
           != NGX_OK)
    {
        return NGX_ERROR;
    }

    if (list->query.from == 0 && !list->unknown) {
        value.data = ngx_pnalloc(r->pool, NGX_INT64_LEN);

        if (value.data == NULL) {
            return NGX_ERROR;
        }

        value.len = ngx_sprintf(value.data, "%uL", list->running)
                    - value.data;

        if (ngx_http_sandbox_add_header(r, "X-Total-Running", &value)
            != NGX_OK)
        {
            return NGX_ERROR;
        }
    }

    ngx_http_sandbox_json_init(&j, r->pool);
    ngx_http_sandbox_json_raw(&j, "[");

    for (i = 0; i < list->nitems; i++) {
        k = list->query.asc ? list->nitems - 1 - i : i;

        ngx_http_sandbox_json_raw(&j, i ? "," : "");
        ngx_http_sandbox_json_join(&j, &list->items[k]);
    }

    ngx_http_sandbox_json_raw(&j, "]");

    return ngx_http_sandbox_json_send(r, NGX_HTTP_OK, &j);
}
