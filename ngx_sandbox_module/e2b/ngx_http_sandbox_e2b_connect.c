#include "ngx_http_sandbox_e2b.h"


int
ngx_http_sandbox_e2b_bind(ngx_http_request_t *r,
    const sbx_json_field_t *fields, void *target, sbx_error_t *e)
{
    return ngx_http_sandbox_op_bind(r, fields, target, e);
}


int
ngx_http_sandbox_e2b_bind_stream(ngx_http_request_t *r,
    const sbx_json_field_t *fields, void *target, sbx_error_t *e)
{
    return ngx_http_sandbox_op_bind(r, fields, target, e);
}


ngx_int_t
ngx_http_sandbox_e2b_reply(ngx_http_request_t *r, ngx_http_sandbox_json_t *j)
{
    return ngx_http_sandbox_json_send(r, NGX_HTTP_OK, j);
}


ngx_int_t
ngx_http_sandbox_e2b_empty(ngx_http_request_t *r)
{
    ngx_http_sandbox_json_t  j;

    ngx_http_sandbox_json_init(&j, r->pool);
    ngx_http_sandbox_json_raw(&j, "{}");

    return ngx_http_sandbox_e2b_reply(r, &j);
}


ngx_int_t
ngx_http_sandbox_e2b_error(ngx_http_request_t *r, const char *code,
    const char *fmt, ...)
{
    return ngx_http_sandbox_e2b_say(r, 500, "%s", code);
}


int
ngx_http_sandbox_e2b_timeout(ngx_http_request_t *r, uint64_t *ms,
    sbx_error_t *e)
{
    *ms = 0;

    return 0;
}


int
ngx_http_sandbox_e2b_user(ngx_http_request_t *r, uint32_t *user,
    sbx_error_t *e)
{
    *user = SBX_USER_USER;

    return 0;
}


int
ngx_http_sandbox_e2b_user_of(const ngx_str_t *name, uint32_t *user,
    sbx_error_t *e)
{
    *user = SBX_USER_USER;

    return 0;
}


int
ngx_http_sandbox_e2b_path(ngx_http_request_t *r, uint32_t user,
    const sbx_json_str_t *path, ngx_str_t *out, sbx_error_t *e)
{
    out->data = (u_char *) path->data;
    out->len = path->len;

    return 0;
}
