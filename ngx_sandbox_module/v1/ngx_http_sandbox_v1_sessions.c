#include "ngx_http_sandbox_v1_session.h"


#define NGX_HTTP_SANDBOX_V1_FILTERS     16
#define NGX_HTTP_SANDBOX_V1_PAGE        100
#define NGX_HTTP_SANDBOX_V1_PAGE_MAX    1000

/* sessions looked at for one answer; what is beyond comes with the cursor */
#define NGX_HTTP_SANDBOX_V1_SEEN_MAX    4096


typedef struct {
    ngx_str_t                       key;
    ngx_str_t                       value;
} ngx_http_sandbox_v1_filter_t;


typedef struct {
    ngx_http_sandbox_op_session_t   session;      /* the one being read */
    ngx_http_sandbox_json_t         json;
    uint64_t                        limit;
    uint64_t                        count;
    uint64_t                        seen;
    uint64_t                        last;         /* seq of the last one
                                                     looked at */
    ngx_uint_t                      nfilters;
    ngx_http_sandbox_v1_filter_t    filters[NGX_HTTP_SANDBOX_V1_FILTERS];
} ngx_http_sandbox_v1_list_t;


static int ngx_http_sandbox_v1_grace(ngx_http_request_t *r, uint64_t *grace,
    sbx_error_t *e);
static int ngx_http_sandbox_v1_list_query(ngx_http_request_t *r,
    ngx_http_sandbox_v1_list_t *list, sbx_list_t *ask, sbx_error_t *e);
static int ngx_http_sandbox_v1_list_name(ngx_http_request_t *r,
    const char *name, ngx_str_t *value, sbx_error_t *e);
static int ngx_http_sandbox_v1_list_cursor(ngx_http_request_t *r,
    sbx_list_t *ask, sbx_error_t *e);
static int ngx_http_sandbox_v1_list_filters(ngx_http_request_t *r,
    ngx_http_sandbox_v1_list_t *list, sbx_error_t *e);
static ngx_int_t ngx_http_sandbox_v1_list_frame(
    ngx_http_sandbox_call_t *call, const sbx_frame_t *frame,
    const u_char *payload, ngx_fd_t fd);
static ngx_int_t ngx_http_sandbox_v1_list_add(ngx_http_sandbox_call_t *call);
static ngx_int_t ngx_http_sandbox_v1_list_match(ngx_http_request_t *r,
    const ngx_http_sandbox_v1_list_t *list);


ngx_int_t
ngx_http_sandbox_v1_get(ngx_http_request_t *r)
{
    return ngx_http_sandbox_op_session_ask(r,
                                       ngx_http_sandbox_v1_get_frame);
}


ngx_int_t
ngx_http_sandbox_v1_get_frame(ngx_http_sandbox_call_t *call,
    const sbx_frame_t *frame, const u_char *payload, ngx_fd_t fd)
{
    ngx_int_t                       rc;
    ngx_http_request_t             *r;
    ngx_http_sandbox_json_t         j;
    ngx_http_sandbox_op_session_t  *session;

    rc = ngx_http_sandbox_op_session_part(call, frame, payload, fd);

    if (rc != NGX_DECLINED) {
        return rc;
    }

    r = call->request;
    session = call->data;

    if (ngx_http_sandbox_op_session_note(r, session) != NGX_OK) {
        return ngx_http_sandbox_op_broken(call, "more than memory holds");
    }

    ngx_http_sandbox_json_init(&j, r->pool);
    ngx_http_sandbox_v1_session_json(&j, session);

    return ngx_http_sandbox_op_finish(call,
                             ngx_http_sandbox_json_send(r, NGX_HTTP_OK, &j));
}


ngx_int_t
ngx_http_sandbox_v1_destroy(ngx_http_request_t *r)
{
    sbx_end_t                 end;
    sbx_error_t               e;
    ngx_http_sandbox_call_t  *call;

    if (ngx_http_sandbox_v1_grace(r, &end.grace, &e) != 0) {
        return ngx_http_sandbox_problem_core(r, &e);
    }

    if (end.grace == 0) {
        call = ngx_http_sandbox_op_call(r, SBX_OP_DESTROY, NULL, 0,
                                        NGX_INVALID_FILE, NULL);

    } else {
        call = ngx_http_sandbox_op_call(r, SBX_OP_END, &end,
                                        sizeof(sbx_end_t), NGX_INVALID_FILE,
                                        NULL);
    }

    if (call != NULL) {
        call->frame = ngx_http_sandbox_op_end_frame;
        call->timeout += (ngx_msec_t) end.grace;
    }

    return ngx_http_sandbox_op_start(r, call);
}


/* Seconds, fractions too, as milliseconds; 0 where it is left out. */

static int
ngx_http_sandbox_v1_grace(ngx_http_request_t *r, uint64_t *grace,
    sbx_error_t *e)
{
    ngx_str_t     text;
    sbx_error_t   ignored;

    *grace = 0;
    ngx_str_null(&text);

    if (ngx_http_sandbox_op_string(r, "grace_s", &text, e) != 0) {
        return -1;
    }

    if (text.data == NULL || ngx_http_sandbox_op_is(&text, "0")) {
        return 0;
    }

    if (sbx_limit_parse(sbx_limit_find("timeout", 7, 0), (char *) text.data,
                        text.len, grace, &ignored)
        != 0
        || *grace > SBX_GRACE_MAX)
    {
        return sbx_error(e, 0, SBX_E_INVALID,
                         "grace_s must be seconds, from 0 to %d",
                         SBX_GRACE_MAX / 1000);
    }

    return 0;
}


ngx_int_t
ngx_http_sandbox_v1_list(ngx_http_request_t *r)
{
    sbx_list_t                  *ask;
    sbx_error_t                  e;
    ngx_str_t                    tenant, user;
    ngx_http_sandbox_call_t     *call;
    ngx_http_sandbox_v1_list_t  *list;

    ask = ngx_pcalloc(r->pool, sizeof(sbx_list_t));
    list = ngx_pcalloc(r->pool, sizeof(ngx_http_sandbox_v1_list_t));

    if (ask == NULL || list == NULL) {
        return ngx_http_sandbox_problem(r, NGX_HTTP_SANDBOX_INTERNAL, NULL);
    }

    if (ngx_http_sandbox_v1_list_name(r, "tenant_id", &tenant, &e) != 0
        || ngx_http_sandbox_v1_list_name(r, "user_id", &user, &e) != 0
        || ngx_http_sandbox_v1_list_query(r, list, ask, &e) != 0)
    {
        return ngx_http_sandbox_problem_core(r, &e);
    }

    ngx_http_sandbox_json_init(&list->json, r->pool);
    ngx_http_sandbox_json_raw(&list->json, "{\"sessions\":[");

    if (!ngx_http_sandbox_may_see(r, &tenant, &user)) {
        ngx_http_sandbox_json_raw(&list->json, "],\"next_cursor\":null}");
        return ngx_http_sandbox_json_send(r, NGX_HTTP_OK, &list->json);
    }

    call = ngx_http_sandbox_op_call(r, SBX_OP_LIST, ask, sizeof(sbx_list_t),
                                    NGX_INVALID_FILE, list);

    if (call != NULL) {
        call->frame = ngx_http_sandbox_v1_list_frame;

        if (tenant.len != 0) {
            (void) sbx_copy_string(call->header.tenant,
                                   sizeof(call->header.tenant),
                                   (char *) tenant.data, tenant.len);
        }

        if (user.len != 0) {
            (void) sbx_copy_string(call->header.user,
                                   sizeof(call->header.user),
                                   (char *) user.data, user.len);
        }
    }

    return ngx_http_sandbox_op_start(r, call);
}


/* Empty where it is left out. */

static int
ngx_http_sandbox_v1_list_name(ngx_http_request_t *r, const char *name,
    ngx_str_t *value, sbx_error_t *e)
{
    ngx_str_null(value);

    if (ngx_http_sandbox_op_string(r, name, value, e) != 0) {
        return -1;
    }

    if (value->data != NULL
        && !sbx_name_ok((char *) value->data, value->len))
    {
        return sbx_error(e, 0, SBX_E_INVALID, "%s is no such name", name);
    }

    return 0;
}


static int
ngx_http_sandbox_v1_list_query(ngx_http_request_t *r,
    ngx_http_sandbox_v1_list_t *list, sbx_list_t *ask, sbx_error_t *e)
{
    ngx_str_t  template, status;

    if (ngx_http_sandbox_v1_list_name(r, "template", &template, e) != 0
        || ngx_http_sandbox_v1_list_name(r, "status", &status, e) != 0
        || ngx_http_sandbox_v1_list_cursor(r, ask, e) != 0
        || ngx_http_sandbox_v1_list_filters(r, list, e) != 0)
    {
        return -1;
    }

    if (template.len != 0
        && sbx_copy_string(ask->template, sizeof(ask->template),
                           (char *) template.data, template.len)
           != 0)
    {
        return sbx_error(e, 0, SBX_E_INVALID, "template is no such name");
    }

    if (status.len != 0) {

        if (ngx_http_sandbox_op_is(&status, "running")) {
            ask->status = SBX_STATUS_RUNNING + 1;

        } else if (ngx_http_sandbox_op_is(&status, "paused")) {
            ask->status = SBX_STATUS_PAUSED + 1;

        } else {
            return sbx_error(e, 0, SBX_E_INVALID,
                             "status must be running or paused");
        }
    }

    list->limit = NGX_HTTP_SANDBOX_V1_PAGE;

    if (ngx_http_sandbox_op_number(r, "limit", 1,
                                   NGX_HTTP_SANDBOX_V1_PAGE_MAX, &list->limit,
                                   e)
        != 0)
    {
        return -1;
    }

    /* metadata is filtered here, so that the broker reads no JSON: then it
     * tells of all, until enough have matched */

    ask->limit = (list->nfilters == 0) ? list->limit : 0;

    return 0;
}


/* "s" and the order of the session to go on below, in hexadecimal. */

static int
ngx_http_sandbox_v1_list_cursor(ngx_http_request_t *r, sbx_list_t *ask,
    sbx_error_t *e)
{
    ngx_int_t  n;
    ngx_str_t  cursor;

    ngx_str_null(&cursor);

    if (ngx_http_sandbox_op_string(r, "cursor", &cursor, e) != 0) {
        return -1;
    }

    if (cursor.data == NULL) {
        return 0;
    }

    if (cursor.len >= 2 && cursor.len <= 16 && cursor.data[0] == 's') {
        n = ngx_hextoi(cursor.data + 1, cursor.len - 1);

        if (n > 0) {
            ask->before = (uint64_t) n;
            return 0;
        }
    }

    return sbx_error(e, 0, SBX_E_INVALID,
                     "cursor is none that a list has given");
}


/* One side of "name=value", + and %XX decoded. */

static int
ngx_http_sandbox_v1_list_decode(ngx_pool_t *pool, const u_char *s,
    const u_char *end, ngx_str_t *value)
{
    u_char  *p, *src, *dst;

    p = ngx_pnalloc(pool, end - s + 1);

    if (p == NULL) {
        return -1;
    }

    for (dst = p; s < end; s++) {
        *dst++ = (*s == '+') ? ' ' : *s;
    }

    src = p;
    value->len = dst - p;
    value->data = p;

    dst = p;
    ngx_unescape_uri(&dst, &src, value->len, 0);
    value->len = dst - p;

    return 0;
}


static int
ngx_http_sandbox_v1_list_filters(ngx_http_request_t *r,
    ngx_http_sandbox_v1_list_t *list, sbx_error_t *e)
{
    u_char                        *p, *end, *last, *equal;
    ngx_http_sandbox_v1_filter_t  *filter;

    static const u_char            prefix[] = "metadata.";
    const size_t                   n = sizeof(prefix) - 1;

    p = r->args.data;
    last = p + r->args.len;

    for ( /* void */ ; p < last; p = end + 1) {
        end = ngx_strlchr(p, last, '&');

        if (end == NULL) {
            end = last;
        }

        if ((size_t) (end - p) < n || ngx_memcmp(p, prefix, n) != 0) {
            continue;
        }

        if (list->nfilters == NGX_HTTP_SANDBOX_V1_FILTERS) {
            return sbx_error(e, 0, SBX_E_INVALID,
                             "at most %d metadata.KEY=VALUE can be asked for",
                             NGX_HTTP_SANDBOX_V1_FILTERS);
        }

        equal = ngx_strlchr(p, end, '=');

        if (equal == NULL || equal == p + n) {
            return sbx_error(e, 0, SBX_E_INVALID,
                             "metadata is filtered by metadata.KEY=VALUE");
        }

        filter = &list->filters[list->nfilters++];

        if (ngx_http_sandbox_v1_list_decode(r->pool, p + n, equal,
                                            &filter->key)
            != 0
            || ngx_http_sandbox_v1_list_decode(r->pool, equal + 1, end,
                                               &filter->value)
               != 0)
        {
            return sbx_error(e, 0, SBX_E_INTERNAL, "out of memory");
        }
    }

    return 0;
}


static ngx_int_t
ngx_http_sandbox_v1_list_frame(ngx_http_sandbox_call_t *call,
    const sbx_frame_t *frame, const u_char *payload, ngx_fd_t fd)
{
    ngx_int_t                    rc;
    sbx_f_end_t                  end;
    ngx_http_sandbox_v1_list_t  *list;

    rc = ngx_http_sandbox_op_frame(call, frame, payload, fd);

    if (rc != NGX_DECLINED) {
        return rc;
    }

    list = call->data;

    if (frame->type == SBX_F_END) {
        ngx_memcpy(&end, payload, sizeof(sbx_f_end_t));
        return ngx_http_sandbox_v1_list_end(call, &list->json, 's', end.next,
                                            0);
    }

    switch (ngx_http_sandbox_op_session_frame(call->request, &list->session,
                                              frame, payload))
    {
    case NGX_OK:
        return ngx_http_sandbox_v1_list_add(call);

    case NGX_AGAIN:
        return NGX_OK;

    default:
        return ngx_http_sandbox_op_broken(call, "a wrong frame for list");
    }
}


static ngx_int_t
ngx_http_sandbox_v1_list_add(ngx_http_sandbox_call_t *call)
{
    ngx_int_t                    rc;
    ngx_http_sandbox_v1_list_t  *list;

    list = call->data;

    if (list->seen++ == NGX_HTTP_SANDBOX_V1_SEEN_MAX) {
        return ngx_http_sandbox_v1_list_end(call, &list->json, 's',
                                            list->last, 0);
    }

    rc = ngx_http_sandbox_v1_list_match(call->request, list);

    if (rc == NGX_ERROR) {
        return ngx_http_sandbox_op_broken(call, "metadata that is not JSON");
    }

    if (rc != NGX_OK) {
        list->last = list->session.session.seq;
        return NGX_OK;
    }

    if (list->count == list->limit
        || ngx_http_sandbox_op_full(call->request, list->json.size,
                                    NGX_HTTP_SANDBOX_V1_LIST_MAX))
    {
        return ngx_http_sandbox_v1_list_end(call, &list->json, 's',
                                            list->last, 0);
    }

    ngx_http_sandbox_json_raw(&list->json, list->count++ ? "," : "");
    ngx_http_sandbox_v1_session_json(&list->json, &list->session);

    list->last = list->session.session.seq;

    return NGX_OK;
}


static ngx_uint_t
ngx_http_sandbox_v1_list_has(const sbx_json_map_t *map,
    const ngx_http_sandbox_v1_filter_t *filter)
{
    size_t                  i;
    const sbx_json_pair_t  *pair;

    for (i = 0; i < map->nelts; i++) {
        pair = &map->elts[i];

        if (pair->key.len == filter->key.len
            && ngx_memcmp(pair->key.data, filter->key.data, filter->key.len)
               == 0)
        {
            return pair->value.len == filter->value.len
                   && ngx_memcmp(pair->value.data, filter->value.data,
                                 filter->value.len)
                      == 0;
        }
    }

    return 0;
}


static ngx_int_t
ngx_http_sandbox_v1_list_match(ngx_http_request_t *r,
    const ngx_http_sandbox_v1_list_t *list)
{
    ngx_int_t        rc;
    ngx_pool_t      *pool;
    ngx_uint_t       i;
    sbx_json_map_t   map;

    if (list->nfilters == 0) {
        return NGX_OK;
    }

    /* of its own for each session: the request's would grow with them */

    pool = ngx_create_pool(NGX_DEFAULT_POOL_SIZE, r->connection->log);

    if (pool == NULL) {
        return NGX_ERROR;
    }

    rc = ngx_http_sandbox_op_session_map(pool, &list->session, &map);

    for (i = 0; rc == NGX_OK && i < list->nfilters; i++) {
        if (!ngx_http_sandbox_v1_list_has(&map, &list->filters[i])) {
            rc = NGX_DECLINED;
        }
    }

    ngx_destroy_pool(pool);

    return rc;
}
