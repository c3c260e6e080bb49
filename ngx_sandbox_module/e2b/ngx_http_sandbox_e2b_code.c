/*
 * The code interpreter: its routes, and runs of code.
 */

#include "ngx_http_sandbox_e2b_code.h"


static ngx_int_t ngx_http_sandbox_e2b_code_healthy(
    ngx_http_sandbox_call_t *call, const sbx_frame_t *frame,
    const u_char *payload, ngx_fd_t fd);
static ngx_int_t ngx_http_sandbox_e2b_code_env(ngx_http_request_t *r,
    sbx_json_map_t *env);
static ngx_int_t ngx_http_sandbox_e2b_code_null(ngx_http_request_t *r,
    ngx_http_sandbox_e2b_contexts_t *c);
static ngx_int_t ngx_http_sandbox_e2b_code_one(ngx_http_request_t *r,
    ngx_http_sandbox_e2b_contexts_t *c);
static ngx_int_t ngx_http_sandbox_e2b_code_list(ngx_http_request_t *r,
    ngx_http_sandbox_e2b_contexts_t *c);
static ngx_int_t ngx_http_sandbox_e2b_code_of(ngx_http_request_t *r,
    sbx_code_verb_t verb);


ngx_http_sandbox_route_t  ngx_http_sandbox_e2b_code_routes[] = {

    { NGX_HTTP_GET, "health",
      NGX_HTTP_SANDBOX_BODY_NONE, 0, "sandbox_health",
      ngx_http_sandbox_e2b_code_health, NGX_HTTP_SANDBOX_ACCESS_ANY },

    { NGX_HTTP_POST, "execute",
      NGX_HTTP_SANDBOX_BODY_JSON, SBX_CAP_CODE, "code",
      ngx_http_sandbox_e2b_code_execute, NGX_HTTP_SANDBOX_ACCESS_TOKEN },

    /* clients send the token of traffic with these, and no other */

    { NGX_HTTP_GET, "contexts",
      NGX_HTTP_SANDBOX_BODY_NONE, SBX_CAP_CODE, "contexts",
      ngx_http_sandbox_e2b_code_contexts, NGX_HTTP_SANDBOX_ACCESS_TRAFFIC },

    { NGX_HTTP_POST, "contexts",
      NGX_HTTP_SANDBOX_BODY_JSON, SBX_CAP_CODE, "context_create",
      ngx_http_sandbox_e2b_code_create, NGX_HTTP_SANDBOX_ACCESS_TRAFFIC },

    { NGX_HTTP_POST, "contexts/{cid}/restart",
      NGX_HTTP_SANDBOX_BODY_NONE, SBX_CAP_CODE, "context_restart",
      ngx_http_sandbox_e2b_code_restart, NGX_HTTP_SANDBOX_ACCESS_TRAFFIC },

    { NGX_HTTP_DELETE, "contexts/{cid}",
      NGX_HTTP_SANDBOX_BODY_NONE, SBX_CAP_CODE, "context_delete",
      ngx_http_sandbox_e2b_code_remove, NGX_HTTP_SANDBOX_ACCESS_TRAFFIC },

    { 0, NULL, NGX_HTTP_SANDBOX_BODY_NONE, 0, NULL, NULL, 0 }
};


#define CODE(field)  offsetof(ngx_http_sandbox_op_code_body_t, field)

static const sbx_json_field_t  ngx_http_sandbox_e2b_code_fields[] = {

    { .name = "code", .type = SBX_JSON_STRING, .required = 1,
      .max = NGX_HTTP_SANDBOX_OP_CODE_MAX, .offset = CODE(code) },

    { .name = "context_id", .type = SBX_JSON_STRING, .nullable = 1,
      .offset = CODE(context) },

    { .name = "language", .type = SBX_JSON_STRING, .nullable = 1,
      .offset = CODE(language) },

    { .name = "env_vars", .type = SBX_JSON_MAP, .nullable = 1,
      .max = NGX_HTTP_SANDBOX_OP_CODE_ENV, .offset = CODE(env) },

    { .name = NULL, .type = SBX_JSON_ANY, .lax = 1 }
};


#define CONTEXT(field)  offsetof(ngx_http_sandbox_e2b_context_t, field)

static const sbx_json_field_t  ngx_http_sandbox_e2b_context_fields[] = {

    { .name = "language", .type = SBX_JSON_STRING, .nullable = 1,
      .offset = CONTEXT(language) },

    { .name = "cwd", .type = SBX_JSON_STRING, .nullable = 1,
      .offset = CONTEXT(cwd) },

    { .name = NULL, .type = SBX_JSON_ANY, .lax = 1 }
};


ngx_int_t
ngx_http_sandbox_e2b_code_health(ngx_http_request_t *r)
{
    return ngx_http_sandbox_op_session_ask(r,
                                           ngx_http_sandbox_e2b_code_healthy);
}


static ngx_int_t
ngx_http_sandbox_e2b_code_healthy(ngx_http_sandbox_call_t *call,
    const sbx_frame_t *frame, const u_char *payload, ngx_fd_t fd)
{
    ngx_int_t                rc;
    ngx_http_request_t      *r;
    ngx_http_sandbox_json_t  j;

    rc = ngx_http_sandbox_op_session_part(call, frame, payload, fd);

    if (rc != NGX_DECLINED) {
        return rc;
    }

    r = call->request;

    ngx_http_sandbox_json_init(&j, r->pool);
    ngx_http_sandbox_json_raw(&j, "\"OK\"");

    return ngx_http_sandbox_op_finish(call,
                                      ngx_http_sandbox_json_send(r, 200, &j));
}


/* ---- runs --------------------------------------------------------------- */


ngx_int_t
ngx_http_sandbox_e2b_code_execute(ngx_http_request_t *r)
{
    sbx_error_t                       e;
    ngx_http_sandbox_op_code_t       *code;
    ngx_http_sandbox_op_code_body_t   body;

    ngx_memzero(&body, sizeof(body));
    sbx_limits_clear(&body.limits);

    if (ngx_http_sandbox_op_bind(r, ngx_http_sandbox_e2b_code_fields, &body,
                                 &e)
        != 0)
    {
        return ngx_http_sandbox_problem_core(r, &e);
    }

    code = ngx_http_sandbox_op_code_create(r,
                                           &ngx_http_sandbox_e2b_code_form);

    if (code == NULL
        || ngx_http_sandbox_e2b_code_lines(code, r) != NGX_OK)
    {
        return ngx_http_sandbox_problem(r, NGX_HTTP_SANDBOX_INTERNAL, NULL);
    }

    /* who waits no more goes away, which ends it */

    body.limits.exec_timeout = SBX_UNLIMITED;

    return ngx_http_sandbox_e2b_code_start(r, code, &body);
}


ngx_int_t
ngx_http_sandbox_e2b_code_start(ngx_http_request_t *r,
    ngx_http_sandbox_op_code_t *code, ngx_http_sandbox_op_code_body_t *body)
{
    ngx_int_t    rc;
    sbx_error_t  e;

    if (ngx_http_sandbox_e2b_code_language(r->pool, &body->language) != NGX_OK
        || ngx_http_sandbox_e2b_code_env(r, &body->env) != NGX_OK)
    {
        return ngx_http_sandbox_problem(r, NGX_HTTP_SANDBOX_INTERNAL, NULL);
    }

    if (body->context.len == 0) {
        body->context.data = NULL;

    } else if (body->language.len != 0) {
        return ngx_http_sandbox_problem(r, NGX_HTTP_SANDBOX_INVALID_REQUEST,
                                        "Only one of context_id and language "
                                        "can be given");
    }

    if (ngx_http_sandbox_op_code_start(r, code, body, &rc, &e) == 0) {
        return rc;
    }

    return (e.code == SBX_E_CONTEXT)
           ? ngx_http_sandbox_e2b_code_missing(r, &body->context)
           : ngx_http_sandbox_problem_core(r, &e);
}


/* What every program of a sandbox is told of it, unless the caller says
 * something else. */

static ngx_int_t
ngx_http_sandbox_e2b_code_env(ngx_http_request_t *r, sbx_json_map_t *env)
{
    size_t                   i, n, m;
    sbx_json_pair_t         *pairs;
    ngx_http_sandbox_ctx_t  *ctx;
    sbx_json_pair_t          own[3];

    ctx = ngx_http_sandbox_ctx(r);

    own[0].key.data = "E2B_SANDBOX";
    own[0].key.len = sizeof("E2B_SANDBOX") - 1;
    own[0].value.data = "true";
    own[0].value.len = sizeof("true") - 1;
    own[1].key.data = "E2B_SANDBOX_ID";
    own[1].key.len = sizeof("E2B_SANDBOX_ID") - 1;
    own[1].value.data = (char *) ctx->session.data;
    own[1].value.len = ctx->session.len;

    /* for the interpreter: these callers expect a notebook's comforts */

    own[2].key.data = "SANDBOX_NOTEBOOK";
    own[2].key.len = sizeof("SANDBOX_NOTEBOOK") - 1;
    own[2].value.data = "1";
    own[2].value.len = 1;

    pairs = ngx_palloc(r->pool, (env->nelts + sbx_nelts(own))
                                * sizeof(sbx_json_pair_t));

    if (pairs == NULL) {
        return NGX_ERROR;
    }

    n = 0;

    for (i = 0; i < sbx_nelts(own); i++) {

        for (m = 0; m < env->nelts; m++) {
            if (env->elts[m].key.len == own[i].key.len
                && ngx_memcmp(env->elts[m].key.data, own[i].key.data,
                              own[i].key.len)
                   == 0)
            {
                break;
            }
        }

        if (m == env->nelts) {
            pairs[n++] = own[i];
        }
    }

    if (env->nelts != 0) {
        ngx_memcpy(pairs + n, env->elts,
                   env->nelts * sizeof(sbx_json_pair_t));
    }

    env->elts = pairs;
    env->nelts += n;

    return NGX_OK;
}


/* ---- contexts ----------------------------------------------------------- */


ngx_int_t
ngx_http_sandbox_e2b_code_create(ngx_http_request_t *r)
{
    sbx_error_t                     e;
    ngx_http_sandbox_e2b_context_t  body;

    ngx_memzero(&body, sizeof(body));

    if (ngx_http_sandbox_op_bind(r, ngx_http_sandbox_e2b_context_fields,
                                 &body, &e)
        != 0)
    {
        return ngx_http_sandbox_problem_core(r, &e);
    }

    return ngx_http_sandbox_e2b_contexts_ask(r, SBX_CODE_CREATE, &body,
                                             ngx_http_sandbox_e2b_code_one);
}


ngx_int_t
ngx_http_sandbox_e2b_code_contexts(ngx_http_request_t *r)
{
    ngx_http_sandbox_e2b_context_t  body;

    ngx_memzero(&body, sizeof(body));

    return ngx_http_sandbox_e2b_contexts_ask(r, SBX_CODE_LIST, &body,
                                             ngx_http_sandbox_e2b_code_list);
}


ngx_int_t
ngx_http_sandbox_e2b_code_restart(ngx_http_request_t *r)
{
    return ngx_http_sandbox_e2b_code_of(r, SBX_CODE_RESTART);
}


ngx_int_t
ngx_http_sandbox_e2b_code_remove(ngx_http_request_t *r)
{
    return ngx_http_sandbox_e2b_code_of(r, SBX_CODE_DELETE);
}


static ngx_int_t
ngx_http_sandbox_e2b_code_of(ngx_http_request_t *r, sbx_code_verb_t verb)
{
    ngx_http_sandbox_ctx_t          *ctx;
    ngx_http_sandbox_e2b_context_t   body;

    ctx = ngx_http_sandbox_ctx(r);

    ngx_memzero(&body, sizeof(body));
    body.id.data = (char *) ctx->item.data;
    body.id.len = ctx->item.len;

    return ngx_http_sandbox_e2b_contexts_ask(r, verb, &body,
                                             ngx_http_sandbox_e2b_code_null);
}


static ngx_int_t
ngx_http_sandbox_e2b_code_one(ngx_http_request_t *r,
    ngx_http_sandbox_e2b_contexts_t *c)
{
    return ngx_http_sandbox_json_send(r, NGX_HTTP_OK, &c->json);
}


static ngx_int_t
ngx_http_sandbox_e2b_code_list(ngx_http_request_t *r,
    ngx_http_sandbox_e2b_contexts_t *c)
{
    ngx_http_sandbox_json_t  j;

    ngx_http_sandbox_json_init(&j, r->pool);
    ngx_http_sandbox_json_raw(&j, "[");
    ngx_http_sandbox_json_copy(&j, &c->json, 0);
    ngx_http_sandbox_json_raw(&j, "]");

    return ngx_http_sandbox_json_send(r, NGX_HTTP_OK, &j);
}


static ngx_int_t
ngx_http_sandbox_e2b_code_null(ngx_http_request_t *r,
    ngx_http_sandbox_e2b_contexts_t *c)
{
    ngx_http_sandbox_json_t  j;

    ngx_http_sandbox_json_init(&j, r->pool);
    ngx_http_sandbox_json_raw(&j, "null");

    return ngx_http_sandbox_json_send(r, NGX_HTTP_OK, &j);
}
