/*
 * The query of a list: what it may hold, and which sandboxes it means.
 */

#include "ngx_http_sandbox_e2b_control_list.h"

#include <time.h>


static int ngx_http_sandbox_e2b_query_states(ngx_http_request_t *r,
    const char *name, ngx_http_sandbox_e2b_query_t *query, sbx_error_t *e);
static int ngx_http_sandbox_e2b_query_order(ngx_http_request_t *r,
    ngx_http_sandbox_e2b_query_t *query, sbx_error_t *e);
static int ngx_http_sandbox_e2b_query_cursor(ngx_http_request_t *r,
    ngx_http_sandbox_e2b_query_t *query, sbx_error_t *e);
static int ngx_http_sandbox_e2b_query_started(ngx_http_request_t *r,
    ngx_http_sandbox_e2b_query_t *query, sbx_error_t *e);
static ngx_int_t ngx_http_sandbox_e2b_query_time(const ngx_str_t *text,
    int64_t *ms);
static int ngx_http_sandbox_e2b_query_metadata(ngx_http_request_t *r,
    ngx_http_sandbox_e2b_query_t *query, sbx_error_t *e);
static int ngx_http_sandbox_e2b_query_part(ngx_pool_t *pool, u_char *p,
    u_char *end, ngx_str_t *part, sbx_error_t *e);
static ngx_uint_t ngx_http_sandbox_e2b_query_has(const sbx_json_map_t *map,
    const ngx_http_sandbox_e2b_filter_t *filter);


int
ngx_http_sandbox_e2b_query(ngx_http_request_t *r, ngx_uint_t old,
    ngx_http_sandbox_e2b_query_t *query, sbx_error_t *e)
{
    uint64_t  most;

    most = old ? NGX_HTTP_SANDBOX_E2B_PAGE_MAX_OLD
               : NGX_HTTP_SANDBOX_E2B_PAGE_MAX;

    query->limit = most;
    query->started = -1;

    if (ngx_http_sandbox_op_number(r, "limit", 1, most, &query->limit, e) != 0
        || ngx_http_sandbox_e2b_query_order(r, query, e) != 0
        || ngx_http_sandbox_e2b_query_cursor(r, query, e) != 0
        || ngx_http_sandbox_e2b_query_started(r, query, e) != 0
        || ngx_http_sandbox_e2b_query_metadata(r, query, e) != 0
        || ngx_http_sandbox_op_string(r, "template", &query->template, e)
           != 0
        || ngx_http_sandbox_e2b_query_states(r, "state", query, e) != 0)
    {
        return -1;
    }

    if (old
        && (ngx_http_sandbox_op_number(r, "offset", 0, 1000000,
                                       &query->offset, e)
            != 0
            || ngx_http_sandbox_e2b_query_states(r, "status", query, e) != 0))
    {
        return -1;
    }

    if (query->asc && query->offset != 0) {
        return sbx_error(e, 0, SBX_E_INVALID,
                         "offset is for the order desc; use nextToken");
    }

    if (query->states == 0) {
        query->states = 1 << SBX_STATUS_RUNNING;

        if (!old) {
            query->states |= 1 << SBX_STATUS_PAUSED;
        }
    }

    return 0;
}


/* "running,paused", or the argument more than once. */

static int
ngx_http_sandbox_e2b_query_states(ngx_http_request_t *r, const char *name,
    ngx_http_sandbox_e2b_query_t *query, sbx_error_t *e)
{
    size_t      len;
    u_char     *p, *s, *end, *last;
    ngx_str_t   args, word;

    len = ngx_strlen(name);

    args.data = ngx_pnalloc(r->pool, r->args.len + 1);

    if (args.data == NULL) {
        return sbx_error(e, 0, SBX_E_INTERNAL, "out of memory");
    }

    last = r->args.data + r->args.len;

    for (p = r->args.data; p < last; p = end + 1) {
        end = ngx_strlchr(p, last, '&');

        if (end == NULL) {
            end = last;
        }

        if ((size_t) (end - p) <= len || ngx_memcmp(p, name, len) != 0
            || p[len] != '=')
        {
            continue;
        }

        s = p + len + 1;
        word.data = args.data;
        ngx_unescape_uri(&args.data, &s, end - s, 0);
        s = word.data;
        word.data = args.data;

        /* from s on is the value, decoded; args.data is its end */

        for ( /* void */ ; s < args.data; s = word.data + 1) {
            word.data = ngx_strlchr(s, args.data, ',');

            if (word.data == NULL) {
                word.data = args.data;
            }

            word.len = word.data - s;

            if (word.len == 7 && ngx_memcmp(s, "running", 7) == 0) {
                query->states |= 1 << SBX_STATUS_RUNNING;

            } else if (word.len == 6 && ngx_memcmp(s, "paused", 6) == 0) {
                query->states |= 1 << SBX_STATUS_PAUSED;

            } else if (word.len != 0) {
                return sbx_error(e, 0, SBX_E_INVALID,
                                 "%s must be running or paused", name);
            }
        }
    }

    return 0;
}


static int
ngx_http_sandbox_e2b_query_order(ngx_http_request_t *r,
    ngx_http_sandbox_e2b_query_t *query, sbx_error_t *e)
{
    ngx_str_t  order;

    ngx_str_null(&order);

    if (ngx_http_sandbox_op_string(r, "order", &order, e) != 0) {
        return -1;
    }

    if (order.len == 0 || ngx_http_sandbox_op_is(&order, "desc")) {
        return 0;
    }

    if (ngx_http_sandbox_op_is(&order, "asc")) {
        query->asc = 1;
        return 0;
    }

    return sbx_error(e, 0, SBX_E_INVALID, "order must be asc or desc");
}


/* "d", or "a" where the list goes up, and the order of the page's last
 * session in hexadecimal. */

static int
ngx_http_sandbox_e2b_query_cursor(ngx_http_request_t *r,
    ngx_http_sandbox_e2b_query_t *query, sbx_error_t *e)
{
    ngx_int_t  n;
    ngx_str_t  token;

    ngx_str_null(&token);

    if (ngx_http_sandbox_op_string(r, "nextToken", &token, e) != 0) {
        return -1;
    }

    if (token.len == 0) {
        return 0;
    }

    if (token.len >= 2 && token.len <= 16
        && token.data[0] == (query->asc ? 'a' : 'd'))
    {
        n = ngx_hextoi(token.data + 1, token.len - 1);

        if (n > 0) {
            query->from = (uint64_t) n;
            return 0;
        }
    }

    return sbx_error(e, 0, SBX_E_INVALID,
                     "nextToken is none that a list of this order has given");
}


ngx_int_t
ngx_http_sandbox_e2b_query_next(ngx_http_request_t *r,
    const ngx_http_sandbox_e2b_query_t *query, uint64_t seq)
{
    ngx_str_t  value;

    value.data = ngx_pnalloc(r->pool, 1 + NGX_INT64_LEN);

    if (value.data == NULL) {
        return NGX_ERROR;
    }

    value.len = ngx_sprintf(value.data, "%c%xL", query->asc ? 'a' : 'd',
                            (int64_t) seq)
                - value.data;

    return ngx_http_sandbox_add_header(r, "X-Next-Token", &value);
}


static int
ngx_http_sandbox_e2b_query_started(ngx_http_request_t *r,
    ngx_http_sandbox_e2b_query_t *query, sbx_error_t *e)
{
    ngx_str_t  text;

    ngx_str_null(&text);

    if (ngx_http_sandbox_op_string(r, "startedAfter", &text, e) != 0) {
        return -1;
    }

    if (text.len != 0
        && ngx_http_sandbox_e2b_query_time(&text, &query->started) != NGX_OK)
    {
        return sbx_error(e, 0, SBX_E_INVALID,
                         "startedAfter must be a time of RFC 3339");
    }

    return 0;
}


/* "2026-11-30T09:00:00.5Z", or with an offset, whose "+" is a space in a
 * query that was not encoded. */

static ngx_int_t
ngx_http_sandbox_e2b_query_time(const ngx_str_t *text, int64_t *ms)
{
    int64_t      unit, offset;
    u_char      *p, *end;
    ngx_int_t    field[6], hours, minutes;
    ngx_uint_t   i;
    struct tm    tm;

    static const u_char  shape[] = "0000-00-00T00:00:00";
    static const u_char  where[] = { 0, 5, 8, 11, 14, 17 };
    static const u_char  digits[] = { 4, 2, 2, 2, 2, 2 };

    if (text->len < sizeof(shape) || text->len > 64) {
        return NGX_ERROR;
    }

    p = text->data;
    end = p + text->len;

    for (i = 0; i < sizeof(shape) - 1; i++) {
        if (shape[i] != '0' && p[i] != shape[i]
            && !(shape[i] == 'T' && (p[i] == 't' || p[i] == ' ')))
        {
            return NGX_ERROR;
        }
    }

    for (i = 0; i < 6; i++) {
        field[i] = ngx_atoi(p + where[i], digits[i]);

        if (field[i] == NGX_ERROR) {
            return NGX_ERROR;
        }
    }

    if (field[0] < 1970 || field[1] < 1 || field[1] > 12 || field[2] < 1
        || field[2] > 31 || field[3] > 23 || field[4] > 59 || field[5] > 60)
    {
        return NGX_ERROR;
    }

    ngx_memzero(&tm, sizeof(tm));
    tm.tm_year = field[0] - 1900;
    tm.tm_mon = field[1] - 1;
    tm.tm_mday = field[2];
    tm.tm_hour = field[3];
    tm.tm_min = field[4];
    tm.tm_sec = field[5];

    *ms = (int64_t) timegm(&tm) * 1000;
    p += sizeof(shape) - 1;

    if (*p == '.') {
        for (p++, unit = 100; p < end && *p >= '0' && *p <= '9'; p++) {
            *ms += unit * (*p - '0');
            unit /= 10;
        }
    }

    if (p + 1 == end && (*p == 'Z' || *p == 'z')) {
        return NGX_OK;
    }

    if (end - p != 6 || (*p != '+' && *p != '-' && *p != ' ') || p[3] != ':')
    {
        return NGX_ERROR;
    }

    hours = ngx_atoi(p + 1, 2);
    minutes = ngx_atoi(p + 4, 2);

    if (hours == NGX_ERROR || minutes == NGX_ERROR || minutes > 59) {
        return NGX_ERROR;
    }

    offset = ((int64_t) hours * 60 + minutes) * 60000;
    *ms += (*p == '-') ? offset : -offset;

    if (*ms < 0) {
        *ms = 0;
    }

    return NGX_OK;
}


/*
 * "a=b&c=d", of which each part was encoded twice before it was put together
 * and encoded as an argument.
 */

static int
ngx_http_sandbox_e2b_query_metadata(ngx_http_request_t *r,
    ngx_http_sandbox_e2b_query_t *query, sbx_error_t *e)
{
    u_char                         *p, *equal, *end, *last;
    ngx_str_t                       text;
    ngx_http_sandbox_e2b_filter_t  *filter;

    ngx_str_null(&text);

    if (ngx_http_sandbox_op_string(r, "metadata", &text, e) != 0) {
        return -1;
    }

    last = text.data + text.len;

    for (p = text.data; p < last; p = end + 1) {
        end = ngx_strlchr(p, last, '&');

        if (end == NULL) {
            end = last;
        }

        if (p == end) {
            continue;
        }

        if (query->nfilters == NGX_HTTP_SANDBOX_E2B_FILTERS) {
            return sbx_error(e, 0, SBX_E_INVALID,
                             "metadata has more than %d pairs",
                             NGX_HTTP_SANDBOX_E2B_FILTERS);
        }

        equal = ngx_strlchr(p, end, '=');

        if (equal == NULL || equal == p) {
            return sbx_error(e, 0, SBX_E_INVALID,
                             "metadata must be KEY=VALUE, joined by \"&\"");
        }

        filter = &query->filters[query->nfilters++];

        if (ngx_http_sandbox_e2b_query_part(r->pool, p, equal, &filter->key,
                                            e)
            != 0
            || ngx_http_sandbox_e2b_query_part(r->pool, equal + 1, end,
                                               &filter->value, e)
               != 0)
        {
            return -1;
        }
    }

    return 0;
}


/* Decoded twice, in a place of its own. */

static int
ngx_http_sandbox_e2b_query_part(ngx_pool_t *pool, u_char *p, u_char *end,
    ngx_str_t *part, sbx_error_t *e)
{
    u_char      *src, *dst, *s;
    ngx_uint_t   i;

    part->len = end - p;
    part->data = ngx_pnalloc(pool, part->len + 1);

    if (part->data == NULL) {
        return sbx_error(e, 0, SBX_E_INTERNAL, "out of memory");
    }

    ngx_memcpy(part->data, p, part->len);

    for (i = 0; i < 2; i++) {

        if (!ngx_http_sandbox_escapes_ok(part)) {
            return sbx_error(e, 0, SBX_E_INVALID,
                             "metadata has a \"%%\" without two hexadecimal "
                             "digits after it");
        }

        for (s = part->data; s < part->data + part->len; s++) {
            if (*s == '+') {
                *s = ' ';
            }
        }

        src = part->data;
        dst = part->data;
        ngx_unescape_uri(&dst, &src, part->len, 0);
        part->len = dst - part->data;
    }

    return 0;
}


static ngx_uint_t
ngx_http_sandbox_e2b_query_has(const sbx_json_map_t *map,
    const ngx_http_sandbox_e2b_filter_t *filter)
{
    size_t                  i;
    const sbx_json_pair_t  *pair;

    for (i = 0; i < map->nelts; i++) {
        pair = &map->elts[i];

        if (pair->key.len == filter->key.len
            && pair->value.len == filter->value.len
            && ngx_memcmp(pair->key.data, filter->key.data, filter->key.len)
               == 0
            && ngx_memcmp(pair->value.data, filter->value.data,
                          filter->value.len)
               == 0)
        {
            return 1;
        }
    }

    return 0;
}


ngx_int_t
ngx_http_sandbox_e2b_query_match(ngx_http_request_t *r,
    const ngx_http_sandbox_e2b_query_t *query,
    const ngx_http_sandbox_op_session_t *session)
{
    ngx_int_t        rc;
    ngx_pool_t      *pool;
    ngx_uint_t       i;
    sbx_json_map_t   map;

    if (query->template.len != 0
        && (query->template.len != ngx_strlen(session->session.template)
            || ngx_memcmp(query->template.data, session->session.template,
                          query->template.len)
               != 0))
    {
        return NGX_DECLINED;
    }

    if (session->session.created <= query->started) {
        return NGX_DECLINED;
    }

    if (query->nfilters == 0) {
        return NGX_OK;
    }

    /* of its own for each session: the request's would grow with them */

    pool = ngx_create_pool(NGX_DEFAULT_POOL_SIZE, r->connection->log);

    if (pool == NULL) {
        return NGX_ERROR;
    }

    rc = ngx_http_sandbox_op_session_map(pool, session, &map);

    for (i = 0; rc == NGX_OK && i < query->nfilters; i++) {
        if (!ngx_http_sandbox_e2b_query_has(&map, &query->filters[i])) {
            rc = NGX_DECLINED;
        }
    }

    ngx_destroy_pool(pool);

    return rc;
}
