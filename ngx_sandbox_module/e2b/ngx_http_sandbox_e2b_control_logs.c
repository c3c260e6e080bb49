/*
 * The log of a sandbox: what its first process has kept of it.  All of it
 * comes with one call and is bounded, so the filters are here.
 */

#include "ngx_http_sandbox_e2b_control.h"


#define NGX_HTTP_SANDBOX_E2B_MS_MAX   253402300799999


typedef struct {
    int64_t                         time;
    ngx_uint_t                      level;
    ngx_str_t                       message;
    ngx_str_t                       fields;       /* "KEY=VALUE\0" ... */
} ngx_http_sandbox_e2b_line_t;


typedef struct {
    ngx_uint_t                      old;
    ngx_uint_t                      backward;
    uint64_t                        cursor;
    uint64_t                        limit;
    ngx_uint_t                      level;        /* at least */
    ngx_str_t                       search;
    ngx_uint_t                      nlines;
    size_t                          size;
    ngx_http_sandbox_e2b_line_t    *lines;
} ngx_http_sandbox_e2b_logs_t;


static int ngx_http_sandbox_e2b_logs_query(ngx_http_request_t *r,
    ngx_http_sandbox_e2b_logs_t *logs, sbx_error_t *e);
static ngx_int_t ngx_http_sandbox_e2b_logs_do(ngx_http_request_t *r,
    ngx_uint_t old);
static ngx_int_t ngx_http_sandbox_e2b_logs_frame(
    ngx_http_sandbox_call_t *call, const sbx_frame_t *frame,
    const u_char *payload, ngx_fd_t fd);
static ngx_int_t ngx_http_sandbox_e2b_logs_add(ngx_http_request_t *r,
    ngx_http_sandbox_e2b_logs_t *logs, const u_char *payload, size_t len);
static ngx_int_t ngx_http_sandbox_e2b_logs_send(ngx_http_request_t *r,
    ngx_http_sandbox_e2b_logs_t *logs);
static void ngx_http_sandbox_e2b_logs_pass(ngx_http_sandbox_json_t *j,
    const ngx_http_sandbox_e2b_logs_t *logs, ngx_uint_t plain);
static void ngx_http_sandbox_e2b_logs_line(ngx_http_sandbox_json_t *j,
    const ngx_http_sandbox_e2b_line_t *line);
static void ngx_http_sandbox_e2b_logs_entry(ngx_http_sandbox_json_t *j,
    const ngx_http_sandbox_e2b_line_t *line);


/* By sbx_line_level_t. */

static const char *const  ngx_http_sandbox_e2b_levels[] = {
    "debug", "info", "warn", "error"
};

#define NGX_HTTP_SANDBOX_E2B_LEVELS                                           \
    (sizeof(ngx_http_sandbox_e2b_levels) / sizeof(char *))


ngx_int_t
ngx_http_sandbox_e2b_logs(ngx_http_request_t *r)
{
    return ngx_http_sandbox_e2b_logs_do(r, 0);
}


ngx_int_t
ngx_http_sandbox_e2b_logs_old(ngx_http_request_t *r)
{
    return ngx_http_sandbox_e2b_logs_do(r, 1);
}


static ngx_int_t
ngx_http_sandbox_e2b_logs_do(ngx_http_request_t *r, ngx_uint_t old)
{
    sbx_error_t                   e;
    ngx_http_sandbox_call_t      *call;
    ngx_http_sandbox_e2b_logs_t  *logs;

    logs = ngx_pcalloc(r->pool, sizeof(ngx_http_sandbox_e2b_logs_t));

    if (logs == NULL) {
        return ngx_http_sandbox_problem(r, NGX_HTTP_SANDBOX_INTERNAL, NULL);
    }

    logs->old = old;
    logs->lines = ngx_palloc(r->pool, SBX_LINES_MAX
                                      * sizeof(ngx_http_sandbox_e2b_line_t));

    if (logs->lines == NULL) {
        return ngx_http_sandbox_problem(r, NGX_HTTP_SANDBOX_INTERNAL, NULL);
    }

    if (ngx_http_sandbox_e2b_logs_query(r, logs, &e) != 0) {
        return ngx_http_sandbox_e2b_fault(r, &e);
    }

    call = ngx_http_sandbox_op_call(r, SBX_OP_LOG, NULL, 0, NGX_INVALID_FILE,
                                    logs);

    if (call != NULL) {
        call->frame = ngx_http_sandbox_e2b_logs_frame;
    }

    return ngx_http_sandbox_op_start(r, call);
}


static int
ngx_http_sandbox_e2b_logs_query(ngx_http_request_t *r,
    ngx_http_sandbox_e2b_logs_t *logs, sbx_error_t *e)
{
    ngx_str_t   word;
    ngx_uint_t  i;

    logs->limit = SBX_LINES_MAX;
    logs->cursor = 0;

    if (ngx_http_sandbox_op_number(r, "limit", 0, SBX_LINES_MAX, &logs->limit,
                                   e)
        != 0)
    {
        return -1;
    }

    if (logs->old) {
        return ngx_http_sandbox_op_number(r, "start", 0,
                                          NGX_HTTP_SANDBOX_E2B_MS_MAX,
                                          &logs->cursor, e);
    }

    ngx_str_null(&word);

    if (ngx_http_sandbox_op_string(r, "direction", &word, e) != 0) {
        return -1;
    }

    if (word.len != 0) {
        logs->backward = ngx_http_sandbox_op_is(&word, "backward");

        if (!logs->backward && !ngx_http_sandbox_op_is(&word, "forward")) {
            return sbx_error(e, 0, SBX_E_INVALID,
                             "direction must be forward or backward");
        }
    }

    logs->cursor = logs->backward ? NGX_HTTP_SANDBOX_E2B_MS_MAX : 0;
    ngx_str_null(&word);

    if (ngx_http_sandbox_op_number(r, "cursor", 0,
                                   NGX_HTTP_SANDBOX_E2B_MS_MAX, &logs->cursor,
                                   e)
        != 0
        || ngx_http_sandbox_op_string(r, "search", &logs->search, e) != 0
        || ngx_http_sandbox_op_string(r, "level", &word, e) != 0)
    {
        return -1;
    }

    if (word.len == 0) {
        return 0;
    }

    for (i = 0; i < NGX_HTTP_SANDBOX_E2B_LEVELS; i++) {
        if (ngx_strlen(ngx_http_sandbox_e2b_levels[i]) == word.len
            && ngx_memcmp(ngx_http_sandbox_e2b_levels[i], word.data, word.len)
               == 0)
        {
            logs->level = i;
            return 0;
        }
    }

    return sbx_error(e, 0, SBX_E_INVALID,
                     "level must be debug, info, warn or error");
}


static ngx_int_t
ngx_http_sandbox_e2b_logs_frame(ngx_http_sandbox_call_t *call,
    const sbx_frame_t *frame, const u_char *payload, ngx_fd_t fd)
{
    ngx_int_t                     rc;
    ngx_http_sandbox_e2b_logs_t  *logs;

    rc = ngx_http_sandbox_op_frame(call, frame, payload, fd);

    if (rc != NGX_DECLINED) {
        return rc;
    }

    logs = call->data;

    switch (frame->type) {

    case SBX_F_LINE:
        rc = ngx_http_sandbox_e2b_logs_add(call->request, logs, payload,
                                           frame->length);

        return (rc == NGX_OK)
               ? NGX_OK
               : ngx_http_sandbox_op_broken(call, "a log that has no end");

    case SBX_F_END:
        return ngx_http_sandbox_op_finish(call,
                      ngx_http_sandbox_e2b_logs_send(call->request, logs));

    default:
        return ngx_http_sandbox_op_broken(call, "a wrong frame for a log");
    }
}


static ngx_int_t
ngx_http_sandbox_e2b_logs_add(ngx_http_request_t *r,
    ngx_http_sandbox_e2b_logs_t *logs, const u_char *payload, size_t len)
{
    u_char                       *p;
    const char                   *message, *fields;
    sbx_f_line_t                  head;
    ngx_http_sandbox_e2b_line_t  *line;

    if (sbx_wire_check_line(payload, len, &head, &message, &fields) != 0
        || logs->nlines == SBX_LINES_MAX
        || logs->size + len > 2 * SBX_LINES_SIZE)
    {
        return NGX_ERROR;
    }

    logs->size += len;
    line = &logs->lines[logs->nlines++];

    line->time = head.time;
    line->level = ngx_min(head.level, NGX_HTTP_SANDBOX_E2B_LEVELS - 1);
    line->message.len = head.message_len;
    line->fields.len = head.fields_len;

    p = ngx_pnalloc(r->pool, head.message_len + head.fields_len + 1);

    if (p == NULL) {
        return NGX_ERROR;
    }

    line->message.data = p;
    line->fields.data = ngx_cpymem(p, message, head.message_len);
    *ngx_cpymem(line->fields.data, fields, head.fields_len) = '\0';

    return NGX_OK;
}


static ngx_uint_t
ngx_http_sandbox_e2b_logs_wanted(const ngx_http_sandbox_e2b_logs_t *logs,
    const ngx_http_sandbox_e2b_line_t *line)
{
    size_t   i, n;
    int64_t  cursor;

    cursor = (int64_t) logs->cursor;

    if (logs->backward ? line->time > cursor : line->time < cursor) {
        return 0;
    }

    if (line->level < logs->level) {
        return 0;
    }

    n = logs->search.len;

    if (n == 0) {
        return 1;
    }

    for (i = 0; i + n <= line->message.len; i++) {
        if (ngx_strncasecmp(line->message.data + i, logs->search.data, n)
            == 0)
        {
            return 1;
        }
    }

    return 0;
}


static ngx_int_t
ngx_http_sandbox_e2b_logs_send(ngx_http_request_t *r,
    ngx_http_sandbox_e2b_logs_t *logs)
{
    ngx_http_sandbox_json_t  j;

    ngx_http_sandbox_json_init(&j, r->pool);
    ngx_http_sandbox_json_raw(&j, "{\"logs\":[");
    ngx_http_sandbox_e2b_logs_pass(&j, logs, logs->old);

    if (logs->old) {
        ngx_http_sandbox_json_raw(&j, "],\"logEntries\":[");
        ngx_http_sandbox_e2b_logs_pass(&j, logs, 0);
    }

    ngx_http_sandbox_json_raw(&j, "]}");

    return ngx_http_sandbox_json_send(r, NGX_HTTP_OK, &j);
}


static void
ngx_http_sandbox_e2b_logs_pass(ngx_http_sandbox_json_t *j,
    const ngx_http_sandbox_e2b_logs_t *logs, ngx_uint_t plain)
{
    uint64_t                            n;
    ngx_uint_t                          i;
    const ngx_http_sandbox_e2b_line_t  *line;

    n = 0;

    for (i = 0; i < logs->nlines && n < logs->limit; i++) {
        line = &logs->lines[logs->backward ? logs->nlines - 1 - i : i];

        if (!ngx_http_sandbox_e2b_logs_wanted(logs, line)) {
            continue;
        }

        ngx_http_sandbox_json_raw(j, n++ ? ",{\"timestamp\":"
                                         : "{\"timestamp\":");
        ngx_http_sandbox_json_time(j, line->time);

        if (plain) {
            ngx_http_sandbox_e2b_logs_line(j, line);

        } else {
            ngx_http_sandbox_e2b_logs_entry(j, line);
        }

        ngx_http_sandbox_json_raw(j, "}");
    }
}


/* The whole as one text. */

static void
ngx_http_sandbox_e2b_logs_line(ngx_http_sandbox_json_t *j,
    const ngx_http_sandbox_e2b_line_t *line)
{
    size_t   n;
    u_char  *p, *end;

    ngx_http_sandbox_json_raw(j, ",\"line\":\"");
    ngx_http_sandbox_json_chars(j, line->message.data, line->message.len);

    p = line->fields.data;
    end = p + line->fields.len;

    for ( /* void */ ; p < end; p += n + 1) {
        n = ngx_strlen(p);

        ngx_http_sandbox_json_raw(j, " ");
        ngx_http_sandbox_json_chars(j, p, n);
    }

    ngx_http_sandbox_json_raw(j, "\"");
}


static void
ngx_http_sandbox_e2b_logs_entry(ngx_http_sandbox_json_t *j,
    const ngx_http_sandbox_e2b_line_t *line)
{
    size_t       n;
    u_char      *p, *end, *equal;
    ngx_uint_t   more;

    ngx_http_sandbox_json_raw(j, ",\"level\":");
    ngx_http_sandbox_json_cstring(j,
                                 ngx_http_sandbox_e2b_levels[line->level]);
    ngx_http_sandbox_json_raw(j, ",\"message\":");
    ngx_http_sandbox_json_string(j, line->message.data, line->message.len);
    ngx_http_sandbox_json_raw(j, ",\"fields\":{");

    more = 0;
    p = line->fields.data;
    end = p + line->fields.len;

    for ( /* void */ ; p < end; p += n + 1) {
        n = ngx_strlen(p);
        equal = ngx_strlchr(p, p + n, '=');

        if (equal == NULL) {
            continue;
        }

        ngx_http_sandbox_json_raw(j, more++ ? "," : "");
        ngx_http_sandbox_json_string(j, p, equal - p);
        ngx_http_sandbox_json_raw(j, ":");
        ngx_http_sandbox_json_string(j, equal + 1, p + n - equal - 1);
    }

    ngx_http_sandbox_json_raw(j, "}");
}
