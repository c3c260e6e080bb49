/*
 * Code for an interpreter that remembers.
 */

#include "ngx_http_sandbox_v1_code.h"


#define CODE(field)  offsetof(ngx_http_sandbox_op_code_body_t, field)

static const sbx_json_field_t  ngx_http_sandbox_v1_code_fields[] = {

    { .name = "code", .type = SBX_JSON_STRING, .required = 1,
      .max = NGX_HTTP_SANDBOX_OP_CODE_MAX, .offset = CODE(code) },

    { .name = "language", .type = SBX_JSON_STRING, .nullable = 1,
      .offset = CODE(language) },

    { .name = "context_id", .type = SBX_JSON_STRING, .nullable = 1,
      .offset = CODE(context) },

    { .name = "timeout_s", .type = SBX_JSON_LIMIT, .nullable = 1,
      .limit = "exec_timeout_s", .offset = CODE(limits.exec_timeout) },

    { .name = "max_output_bytes", .type = SBX_JSON_LIMIT,
      .limit = "max_output_bytes", .offset = CODE(limits.max_output) },

    { .name = "env", .type = SBX_JSON_MAP, .nullable = 1,
      .max = NGX_HTTP_SANDBOX_OP_CODE_ENV, .offset = CODE(env) },

    { .name = NULL }
};


ngx_int_t
ngx_http_sandbox_v1_code(ngx_http_request_t *r)
{
    ngx_int_t                         rc;
    sbx_error_t                       e;
    ngx_http_sandbox_stream_e         form;
    ngx_http_sandbox_op_code_t       *code;
    ngx_http_sandbox_op_code_body_t   body;

    ngx_memzero(&body, sizeof(body));
    sbx_limits_clear(&body.limits);

    if (ngx_http_sandbox_op_bind(r, ngx_http_sandbox_v1_code_fields, &body,
                                 &e)
        != 0)
    {
        return ngx_http_sandbox_problem_core(r, &e);
    }

    code = ngx_http_sandbox_op_code_create(r, &ngx_http_sandbox_v1_code_form);

    if (code == NULL) {
        return ngx_http_sandbox_problem(r, NGX_HTTP_SANDBOX_INTERNAL, NULL);
    }

    form = ngx_http_sandbox_stream_asked(r);

    if (form != NGX_HTTP_SANDBOX_STREAM_NONE) {
        code->stream = ngx_http_sandbox_stream_create(r, form);

        if (code->stream == NULL) {
            return ngx_http_sandbox_problem(r, NGX_HTTP_SANDBOX_INTERNAL,
                                            NULL);
        }
    }

    if (ngx_http_sandbox_op_code_start(r, code, &body, &rc, &e) != 0) {
        return ngx_http_sandbox_problem_core(r, &e);
    }

    return rc;
}
