#include "ngx_http_sandbox_op.h"
#include "ngx_http_sandbox_cost.h"
#include "ngx_http_sandbox_passed.h"
#include "ngx_http_sandbox_stream.h"


static void *ngx_http_sandbox_op_alloc(void *ctx, size_t size);


static void *
ngx_http_sandbox_op_alloc(void *ctx, size_t size)
{
    return ngx_palloc(ctx, size);
}


sbx_json_alloc_t
ngx_http_sandbox_op_allocator(ngx_pool_t *pool)
{
    sbx_json_alloc_t  alloc;

    alloc.alloc = ngx_http_sandbox_op_alloc;
    alloc.ctx = pool;

    return alloc;
}


int
ngx_http_sandbox_op_bind(ngx_http_request_t *r,
    const sbx_json_field_t *fields, void *target, sbx_error_t *e)
{
    ngx_str_t                text;
    sbx_error_t              inner;
    sbx_json_alloc_t         alloc;
    ngx_http_sandbox_ctx_t  *ctx;

    static const ngx_str_t   empty = ngx_string("{}");

    ctx = ngx_http_sandbox_ctx(r);
    text = (ctx->body.len == 0) ? empty : ctx->body;
    alloc = ngx_http_sandbox_op_allocator(r->pool);

    if (sbx_json_bind(text.data, text.len, fields, target, &alloc, &inner)
        == 0)
    {
        return 0;
    }

    /* the pointer to the whole document is an empty string */

    return sbx_error(e, inner.err, inner.code, "%s%s",
                     inner.text[0] == ':' ? "the body" : "",
                     inner.text + (inner.text[0] == ':'));
}


int
ngx_http_sandbox_op_bind_none(ngx_http_request_t *r, sbx_error_t *e)
{
    char  nothing;

    static const sbx_json_field_t  none[] = { { .name = NULL } };

    return ngx_http_sandbox_op_bind(r, none, &nothing, e);
}


ngx_http_sandbox_call_t *
ngx_http_sandbox_op_call(ngx_http_request_t *r, sbx_op_t op,
    const void *body, size_t size, ngx_fd_t blob, void *data)
{
    ngx_http_sandbox_call_t  *call;

    call = ngx_http_sandbox_call_create(r, op, body, size, blob);

    if (call == NULL) {
        return NULL;
    }

    /* If-Match and its like are about files; nginx would hold them against
     * any 200, and answer 412 to an upload that they allowed */

    r->disable_not_modified = 1;

    call->data = data;
    call->failed = ngx_http_sandbox_op_failed;
    call->timeout = NGX_HTTP_SANDBOX_OP_TIMEOUT;

    return call;
}


ngx_int_t
ngx_http_sandbox_op_start(ngx_http_request_t *r,
    ngx_http_sandbox_call_t *call)
{
    if (call == NULL) {
        return ngx_http_sandbox_problem(r, NGX_HTTP_SANDBOX_INTERNAL, NULL);
    }

    if (ngx_http_sandbox_call_start(call) != NGX_OK) {
        ngx_http_sandbox_call_close(call);

        if (call->costly) {
            return ngx_http_sandbox_cost_problem(r, call->costly);
        }

        return ngx_http_sandbox_problem(r,
                                        NGX_HTTP_SANDBOX_BROKER_UNAVAILABLE,
                                        call->full ? "much that the session "
                                        "has passed is still being closed"
                                        : NULL);
    }

    ngx_http_sandbox_op_watch(r);

    return NGX_DONE;
}


void
ngx_http_sandbox_op_watch(ngx_http_request_t *r)
{
    ngx_event_t  *rev;

    rev = r->connection->read;

    r->read_event_handler = ngx_http_test_reading;

    /* what arrived before is told of by no further event */

    if (rev->ready || rev->pending_eof) {
        ngx_post_event(rev, &ngx_posted_events);
    }
}


ngx_int_t
ngx_http_sandbox_op_frame(ngx_http_sandbox_call_t *call,
    const sbx_frame_t *frame, const u_char *payload, ngx_fd_t fd)
{
    sbx_f_error_t  error;

    if (fd != NGX_INVALID_FILE && frame->type != call->brings) {
        ngx_http_sandbox_passed_close(call->header.session, fd);
        return ngx_http_sandbox_op_broken(call, "an unasked descriptor");
    }

    switch (frame->type) {

    case SBX_F_ACCEPTED:
        return NGX_OK;

    case SBX_F_ERROR:
        ngx_memcpy(&error, payload, sizeof(sbx_f_error_t));
        return ngx_http_sandbox_op_finish(call,
                        ngx_http_sandbox_problem_wire(call->request, &error));

    default:
        return NGX_DECLINED;
    }
}


ngx_int_t
ngx_http_sandbox_op_sent(ngx_http_sandbox_call_t *call, ngx_int_t rc)
{
    switch (rc) {

    case NGX_ERROR:
        return ngx_http_sandbox_op_finish(call, NGX_ERROR);

    case NGX_DONE:

        /* HEAD */

        return ngx_http_sandbox_op_finish(call, NGX_OK);

    default:
        return rc;
    }
}


ngx_int_t
ngx_http_sandbox_op_end_frame(ngx_http_sandbox_call_t *call,
    const sbx_frame_t *frame, const u_char *payload, ngx_fd_t fd)
{
    ngx_int_t  rc;

    rc = ngx_http_sandbox_op_frame(call, frame, payload, fd);

    if (rc != NGX_DECLINED) {
        return rc;
    }

    if (frame->type != SBX_F_END) {
        return ngx_http_sandbox_op_broken(call, "another frame than its end");
    }

    return ngx_http_sandbox_op_finish(call,
                            ngx_http_sandbox_op_no_content(call->request));
}


ngx_int_t
ngx_http_sandbox_op_finish(ngx_http_sandbox_call_t *call, ngx_int_t rc)
{
    ngx_connection_t    *c;
    ngx_http_request_t  *r;

    r = call->request;
    c = r->connection;

    /* its timers would finalize once more where the request stays a while */

    if (rc == NGX_ERROR && call->stream != NULL) {
        ngx_http_sandbox_stream_quiet(call->stream);
    }

    if ((rc == NGX_OK || rc == NGX_AGAIN) && !c->error
        && r->headers_out.status < NGX_HTTP_SPECIAL_RESPONSE)
    {
        ngx_http_sandbox_call_told(call);
    }

    ngx_http_sandbox_call_close(call);

    ngx_http_finalize_request(r, rc);
    ngx_http_run_posted_requests(c);

    return NGX_DONE;
}


ngx_int_t
ngx_http_sandbox_op_broken(ngx_http_sandbox_call_t *call, const char *what)
{
    ngx_http_request_t  *r;

    r = call->request;

    ngx_log_error(NGX_LOG_ERR, r->connection->log, 0,
                  "sandbox call was answered with %s", what);

    return ngx_http_sandbox_op_finish(call,
              ngx_http_sandbox_problem(r, NGX_HTTP_SANDBOX_INTERNAL, NULL));
}


void
ngx_http_sandbox_op_failed(ngx_http_sandbox_call_t *call,
    ngx_http_sandbox_error_e error)
{
    /* half an answer does not look like a whole one: that is NGX_ERROR */

    (void) ngx_http_sandbox_op_finish(call,
                        ngx_http_sandbox_problem(call->request, error, NULL));
}


ngx_int_t
ngx_http_sandbox_op_no_content(ngx_http_request_t *r)
{
    ngx_int_t  rc;

    r->headers_out.status = NGX_HTTP_NO_CONTENT;
    r->header_only = 1;

    rc = ngx_http_send_header(r);

    return (rc > NGX_OK) ? NGX_OK : rc;
}


ngx_int_t
ngx_http_sandbox_op_header(ngx_http_request_t *r, const char *name,
    ngx_str_t *value)
{
    size_t            len;
    ngx_int_t         rc;
    ngx_uint_t        i;
    ngx_list_part_t  *part;
    ngx_table_elt_t  *header;

    rc = NGX_DECLINED;
    len = ngx_strlen(name);

    for (part = &r->headers_in.headers.part; part; part = part->next) {
        header = part->elts;

        for (i = 0; i < part->nelts; i++) {
            if (header[i].key.len != len
                || ngx_strncasecmp(header[i].key.data, (u_char *) name, len)
                   != 0)
            {
                continue;
            }

            if (rc == NGX_OK) {
                return NGX_ABORT;
            }

            *value = header[i].value;
            rc = NGX_OK;
        }
    }

    return rc;
}


int
ngx_http_sandbox_op_number(ngx_http_request_t *r, const char *name,
    uint64_t min, uint64_t max, uint64_t *value, sbx_error_t *e)
{
    uint64_t  n;

    switch (ngx_http_sandbox_arg_number(r, name, min, max, &n)) {

    case NGX_OK:
        *value = n;
        return 0;

    case NGX_DECLINED:
        return 0;

    case NGX_ABORT:
        return sbx_error(e, 0, SBX_E_INVALID,
                         "%s must be a number from %llu to %llu", name,
                         (unsigned long long) min, (unsigned long long) max);

    default:
        return sbx_error(e, 0, SBX_E_INTERNAL, "out of memory");
    }
}


int
ngx_http_sandbox_op_flag(ngx_http_request_t *r, const char *name,
    ngx_uint_t *flag, sbx_error_t *e)
{
    uint64_t  n;

    n = *flag;

    if (ngx_http_sandbox_op_number(r, name, 0, 1, &n, e) != 0) {
        return -1;
    }

    *flag = (ngx_uint_t) n;

    return 0;
}


int
ngx_http_sandbox_op_string(ngx_http_request_t *r, const char *name,
    ngx_str_t *value, sbx_error_t *e)
{
    ngx_str_t  found;

    switch (ngx_http_sandbox_arg(r, name, &found)) {

    case NGX_OK:
        *value = found;
        return 0;

    case NGX_DECLINED:
        return 0;

    default:
        return sbx_error(e, 0, SBX_E_INTERNAL, "out of memory");
    }
}


ngx_int_t
ngx_http_sandbox_op_exit(ngx_http_request_t *r, const sbx_f_exit_t *end)
{
    ngx_http_sandbox_ctx_t  *ctx;

    if (sbx_reason_word(end->reason) == NULL || end->signal < 0
        || end->signal > 64)
    {
        return NGX_ERROR;
    }

    ctx = ngx_http_sandbox_ctx(r);

    ctx->pid = end->pid;
    ctx->exit = end->exit_code;
    ctx->reason = sbx_reason_word(end->reason);
    ctx->cpu_us = (int64_t) (end->cpu_user_us + end->cpu_system_us);
    ctx->wall_us = (int64_t) end->duration_us;
    ctx->memory_peak = (int64_t) end->memory_peak;

    return NGX_OK;
}


/* A name that could be taken for another, or end early, on its way. */

static const char *
ngx_http_sandbox_op_env_fault(const sbx_json_pair_t *pair)
{
    u_char  ch;
    size_t  i;

    if (pair->key.len == 0) {
        return "a variable needs a name";
    }

    for (i = 0; i < pair->key.len; i++) {
        ch = (u_char) pair->key.data[i];

        if (ch == '=' || ch <= ' ' || ch == 0x7f) {
            return "a variable's name has no '=', space or control character";
        }
    }

    if (pair->value.len != 0
        && memchr(pair->value.data, '\0', pair->value.len) != NULL)
    {
        return "a variable's value has no NUL";
    }

    return NULL;
}


int
ngx_http_sandbox_op_env(ngx_pool_t *pool, const sbx_json_map_t *env,
    u_char **packed, size_t *size, sbx_error_t *e)
{
    size_t                  i, n;
    u_char                 *p;
    const char             *fault;
    const sbx_json_pair_t  *pair;

    n = 0;

    for (i = 0; i < env->nelts; i++) {
        pair = &env->elts[i];
        fault = ngx_http_sandbox_op_env_fault(pair);

        if (fault != NULL) {
            return sbx_json_refuse(e, "/env", &pair->key, fault);
        }

        n += pair->key.len + pair->value.len + 2;
    }

    *packed = NULL;
    *size = n;

    if (n > SBX_ENV_MAX) {
        return sbx_error(e, 0, SBX_E_INVALID,
                         "/env: takes %zu bytes, more than the %d that fit",
                         n, SBX_ENV_MAX);
    }

    if (n == 0) {
        return 0;
    }

    p = ngx_pnalloc(pool, n);

    if (p == NULL) {
        return sbx_error(e, 0, SBX_E_INTERNAL, "out of memory");
    }

    *packed = p;

    for (i = 0; i < env->nelts; i++) {
        pair = &env->elts[i];

        p = ngx_cpymem(p, pair->key.data, pair->key.len);
        *p++ = '=';
        p = ngx_cpymem(p, pair->value.data, pair->value.len);
        *p++ = '\0';
    }

    return 0;
}


int
ngx_http_sandbox_op_cwd(const sbx_json_str_t *cwd, sbx_error_t *e)
{
    if (cwd->data != NULL
        && (cwd->len == 0 || cwd->len >= SBX_PATH_MAX
            || ngx_strlen(cwd->data) != cwd->len))
    {
        return sbx_error(e, 0, SBX_E_PATH,
                         "/cwd: is empty, has a NUL or is longer than %d "
                         "bytes", SBX_PATH_MAX - 1);
    }

    return 0;
}


/* As it was asked for; what is relative begins at the workspace. */

void
ngx_http_sandbox_op_cwd_json(ngx_http_sandbox_json_t *j, const char *cwd,
    size_t len)
{
    size_t  n;
    u_char  path[sizeof(NGX_HTTP_SANDBOX_OP_WORKSPACE) + SBX_PATH_MAX];

    static const char  workspace[] = NGX_HTTP_SANDBOX_OP_WORKSPACE "/";

    n = 0;

    if (len == 0 || cwd[0] != '/') {
        n = sizeof(workspace) - (len == 0 ? 2 : 1);
        ngx_memcpy(path, workspace, n);
    }

    if (len != 0) {
        ngx_memcpy(path + n, cwd, len);
        n += len;
    }

    ngx_http_sandbox_json_raw(j, ",\"cwd\":");
    ngx_http_sandbox_json_string(j, path, n);
}
