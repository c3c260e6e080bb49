/*
 * code.CodeInterpreter: the same runs and contexts as calls of Connect, whose
 * answers come in one piece.
 */

#include "ngx_http_sandbox_e2b_code.h"


static ngx_int_t ngx_http_sandbox_e2b_rpc_begin(ngx_http_sandbox_call_t *call,
    const sbx_f_context_t *context);
static ngx_int_t ngx_http_sandbox_e2b_rpc_output(
    ngx_http_sandbox_call_t *call, ngx_uint_t n, const u_char *data,
    size_t len);
static ngx_int_t ngx_http_sandbox_e2b_rpc_result(
    ngx_http_sandbox_call_t *call);
static ngx_int_t ngx_http_sandbox_e2b_rpc_end(ngx_http_sandbox_call_t *call,
    sbx_f_ran_t *ran);
static ngx_int_t ngx_http_sandbox_e2b_rpc_refused(
    ngx_http_sandbox_call_t *call, const sbx_f_error_t *error);
static void ngx_http_sandbox_e2b_rpc_members(ngx_http_sandbox_json_t *j,
    const ngx_http_sandbox_op_code_t *code, const sbx_f_ran_t *ran);
static ngx_int_t ngx_http_sandbox_e2b_rpc_ask(ngx_http_request_t *r,
    sbx_code_verb_t verb, ngx_int_t (*answer)(ngx_http_request_t *r,
    ngx_http_sandbox_e2b_contexts_t *c));
static ngx_int_t ngx_http_sandbox_e2b_rpc_context(ngx_http_request_t *r,
    ngx_http_sandbox_e2b_contexts_t *c);
static ngx_int_t ngx_http_sandbox_e2b_rpc_contexts(ngx_http_request_t *r,
    ngx_http_sandbox_e2b_contexts_t *c);
static ngx_int_t ngx_http_sandbox_e2b_rpc_done(ngx_http_request_t *r,
    ngx_http_sandbox_e2b_contexts_t *c);


static const ngx_http_sandbox_op_code_form_t
    ngx_http_sandbox_e2b_rpc_form =
{
    0,                                        /* wait */
    0,                                        /* ascii */
    1,                                        /* files */
    ngx_http_sandbox_e2b_rpc_begin,
    ngx_http_sandbox_e2b_rpc_output,
    ngx_http_sandbox_e2b_code_field,
    ngx_http_sandbox_e2b_code_kept,
    ngx_http_sandbox_e2b_rpc_result,
    ngx_http_sandbox_e2b_rpc_end,
    ngx_http_sandbox_e2b_rpc_refused,
    ngx_http_sandbox_e2b_code_missing
};


#define CODE(field)  offsetof(ngx_http_sandbox_op_code_body_t, field)

#define CONTEXT_ID(word)                                                      \
    { .name = word, .type = SBX_JSON_STRING, .nullable = 1,                   \
      .offset = CODE(context) }

#define ENV(word)                                                             \
    { .name = word, .type = SBX_JSON_MAP, .nullable = 1,                      \
      .max = NGX_HTTP_SANDBOX_OP_CODE_ENV, .offset = CODE(env) }

static const sbx_json_field_t  ngx_http_sandbox_e2b_rpc_code_fields[] = {

    { .name = "code", .type = SBX_JSON_STRING, .required = 1,
      .max = NGX_HTTP_SANDBOX_OP_CODE_MAX, .offset = CODE(code) },

    { .name = "language", .type = SBX_JSON_STRING, .nullable = 1,
      .offset = CODE(language) },

    { .name = "timeout", .type = SBX_JSON_LIMIT, .nullable = 1,
      .limit = "exec_timeout_s", .offset = CODE(limits.exec_timeout) },

    CONTEXT_ID("contextId"),
    CONTEXT_ID("context_id"),
    ENV("envVars"),
    ENV("env_vars"),
    ENV("envs"),

    { .name = NULL, .type = SBX_JSON_ANY, .lax = 1 }
};


#define CONTEXT(word, field)                                                  \
    { .name = word, .type = SBX_JSON_STRING, .nullable = 1,                   \
      .offset = offsetof(ngx_http_sandbox_e2b_context_t, field) }

static const sbx_json_field_t  ngx_http_sandbox_e2b_rpc_context_fields[] = {
    CONTEXT("language", language),
    CONTEXT("cwd", cwd),
    CONTEXT("contextId", id),
    CONTEXT("context_id", id),
    CONTEXT("id", id),

    { .name = NULL, .type = SBX_JSON_ANY, .lax = 1 }
};


/* ---- runs --------------------------------------------------------------- */


ngx_int_t
ngx_http_sandbox_e2b_rpc_execute(ngx_http_request_t *r)
{
    sbx_error_t                       e;
    ngx_http_sandbox_op_code_t       *code;
    ngx_http_sandbox_op_code_body_t   body;

    ngx_memzero(&body, sizeof(body));
    sbx_limits_clear(&body.limits);

    if (ngx_http_sandbox_e2b_bind(r, ngx_http_sandbox_e2b_rpc_code_fields,
                                  &body, &e)
        != 0)
    {
        return ngx_http_sandbox_problem_core(r, &e);
    }

    /* this client names the language of a context, too */

    if (body.context.len != 0) {
        body.language.len = 0;
    }

    code = ngx_http_sandbox_op_code_create(r, &ngx_http_sandbox_e2b_rpc_form);

    if (code != NULL) {
        code->data = ngx_pcalloc(r->pool, sizeof(size_t));
    }

    if (code == NULL || code->data == NULL) {
        return ngx_http_sandbox_problem(r, NGX_HTTP_SANDBOX_INTERNAL, NULL);
    }

    return ngx_http_sandbox_e2b_code_start(r, code, &body);
}


static ngx_int_t
ngx_http_sandbox_e2b_rpc_begin(ngx_http_sandbox_call_t *call,
    const sbx_f_context_t *context)
{
    return NGX_OK;
}


static ngx_int_t
ngx_http_sandbox_e2b_rpc_output(ngx_http_sandbox_call_t *call, ngx_uint_t n,
    const u_char *data, size_t len)
{
    size_t                       before, blank;
    ngx_int_t                    rc;
    ngx_http_sandbox_op_code_t  *code;

    code = call->data;

    if (n != 0) {
        return ngx_http_sandbox_op_output_frame(call, &code->err, data, len);
    }

    before = code->out.len;
    rc = ngx_http_sandbox_op_output_frame(call, &code->out, data, len);

    if (rc != NGX_OK) {
        return rc;
    }

    /* where the output ends but for white space, which may be all there is
     * of it: so it is not looked for at the end */

    for (blank = code->out.len - before; blank != 0; blank--) {
        if (ngx_strchr(" \t\r\n\f\v", data[blank - 1]) == NULL) {
            *(size_t *) code->data = before + blank;
            break;
        }
    }

    return NGX_OK;
}


static ngx_int_t
ngx_http_sandbox_e2b_rpc_result(ngx_http_sandbox_call_t *call)
{
    ngx_http_sandbox_op_code_t  *code;

    code = call->data;

    if (code->result.kind == SBX_RESULT_ERROR) {
        return ngx_http_sandbox_op_code_keep_error(code, call->request);
    }

    ngx_http_sandbox_e2b_code_whole(code);

    return ngx_http_sandbox_op_code_keep(code, call->request);
}


/* Not before a stream's header, and there is none. */

static ngx_int_t
ngx_http_sandbox_e2b_rpc_refused(ngx_http_sandbox_call_t *call,
    const sbx_f_error_t *error)
{
    return ngx_http_sandbox_op_finish(call, NGX_ERROR);
}


static ngx_int_t
ngx_http_sandbox_e2b_rpc_end(ngx_http_sandbox_call_t *call, sbx_f_ran_t *ran)
{
    ngx_http_sandbox_json_t      j;
    ngx_http_sandbox_op_code_t  *code;

    code = call->data;

    if (ran->reason == SBX_REASON_SESSION_ENDED) {
        return ngx_http_sandbox_op_finish(call,
                   ngx_http_sandbox_problem(call->request,
                                            NGX_HTTP_SANDBOX_SESSION_NOT_FOUND,
                                            NULL));
    }

    ngx_http_sandbox_e2b_code_settle(code, ran);

    ngx_http_sandbox_json_init(&j, call->request->pool);
    ngx_http_sandbox_json_raw(&j, "{\"text\":");

    /* its end, as this client has it, is that of the output */

    ngx_http_sandbox_op_output_json(&j, &code->out, *(size_t *) code->data,
                                    NGX_HTTP_SANDBOX_OP_OUTPUT_AGAIN);
    ngx_http_sandbox_json_raw(&j, ",\"stdout\":");
    ngx_http_sandbox_op_output_json(&j, &code->out, code->out.len,
                                    NGX_HTTP_SANDBOX_OP_OUTPUT_TEXT);
    ngx_http_sandbox_json_raw(&j, ",\"stderr\":");
    ngx_http_sandbox_op_output_json(&j, &code->err, code->err.len,
                                    NGX_HTTP_SANDBOX_OP_OUTPUT_TEXT);
    ngx_http_sandbox_json_raw(&j, ",\"results\":[");
    ngx_http_sandbox_json_join(&j, &code->results);
    ngx_http_sandbox_json_raw(&j, "],\"error\":");

    if (code->error.size == 0) {
        ngx_http_sandbox_json_raw(&j, "null");

    } else {
        ngx_http_sandbox_json_raw(&j, "{");
        ngx_http_sandbox_json_refer(&j, &code->error, 1);
        ngx_http_sandbox_json_raw(&j, "}");
    }

    ngx_http_sandbox_e2b_rpc_members(&j, code, ran);
    ngx_http_sandbox_json_raw(&j, "}");

    return ngx_http_sandbox_op_finish(call,
                             ngx_http_sandbox_e2b_reply(call->request, &j));
}


static void
ngx_http_sandbox_e2b_rpc_members(ngx_http_sandbox_json_t *j,
    const ngx_http_sandbox_op_code_t *code, const sbx_f_ran_t *ran)
{
    ngx_uint_t  i;

    const struct {
        const char  *name;
        ngx_uint_t   value;
    } flags[] = {
        { ",\"timedOut\":", ran->flags & SBX_RAN_TIMED_OUT },
        { ",\"restarted\":", ran->flags & SBX_RAN_DIED },
        { ",\"stdoutTruncated\":", ran->flags & SBX_RAN_OUT_TRUNCATED },
        { ",\"stderrTruncated\":", ran->flags & SBX_RAN_ERR_TRUNCATED },
        { ",\"resultsTruncated\":", ran->flags & SBX_RAN_RESULTS_CUT },
        { ",\"outputFilesTruncated\":", ran->flags & SBX_RAN_FILES_CUT }
    };

    ngx_http_sandbox_json_raw(j, ",\"exitCode\":");
    ngx_http_sandbox_json_int(j, ran->exit_code);
    ngx_http_sandbox_json_raw(j, ",\"executionTime\":");
    ngx_http_sandbox_json_seconds(j, ran->duration_us);
    ngx_http_sandbox_json_raw(j, ",\"executionCount\":");
    ngx_http_sandbox_json_int(j, (int64_t) ran->execution);
    ngx_http_sandbox_json_raw(j, ",\"outputFiles\":[");
    ngx_http_sandbox_json_refer(j, &code->files, 0);
    ngx_http_sandbox_json_raw(j, "]");

    for (i = 0; i < sbx_nelts(flags); i++) {
        ngx_http_sandbox_json_raw(j, flags[i].name);
        ngx_http_sandbox_json_bool(j, flags[i].value);
    }
}


/* ---- contexts ----------------------------------------------------------- */


ngx_int_t
ngx_http_sandbox_e2b_rpc_create(ngx_http_request_t *r)
{
    return ngx_http_sandbox_e2b_rpc_ask(r, SBX_CODE_CREATE,
                                        ngx_http_sandbox_e2b_rpc_context);
}


ngx_int_t
ngx_http_sandbox_e2b_rpc_list(ngx_http_request_t *r)
{
    return ngx_http_sandbox_e2b_rpc_ask(r, SBX_CODE_LIST,
                                        ngx_http_sandbox_e2b_rpc_contexts);
}


ngx_int_t
ngx_http_sandbox_e2b_rpc_restart(ngx_http_request_t *r)
{
    return ngx_http_sandbox_e2b_rpc_ask(r, SBX_CODE_RESTART,
                                        ngx_http_sandbox_e2b_rpc_done);
}


ngx_int_t
ngx_http_sandbox_e2b_rpc_remove(ngx_http_request_t *r)
{
    return ngx_http_sandbox_e2b_rpc_ask(r, SBX_CODE_DELETE,
                                        ngx_http_sandbox_e2b_rpc_done);
}


static ngx_int_t
ngx_http_sandbox_e2b_rpc_ask(ngx_http_request_t *r, sbx_code_verb_t verb,
    ngx_int_t (*answer)(ngx_http_request_t *r,
    ngx_http_sandbox_e2b_contexts_t *c))
{
    sbx_error_t                     e;
    ngx_http_sandbox_e2b_context_t  body;

    ngx_memzero(&body, sizeof(body));

    if (ngx_http_sandbox_e2b_bind(r, ngx_http_sandbox_e2b_rpc_context_fields,
                                  &body, &e)
        != 0)
    {
        return ngx_http_sandbox_problem_core(r, &e);
    }

    return ngx_http_sandbox_e2b_contexts_ask(r, verb, &body, answer);
}


static ngx_int_t
ngx_http_sandbox_e2b_rpc_context(ngx_http_request_t *r,
    ngx_http_sandbox_e2b_contexts_t *c)
{
    return ngx_http_sandbox_e2b_reply(r, &c->json);
}


static ngx_int_t
ngx_http_sandbox_e2b_rpc_contexts(ngx_http_request_t *r,
    ngx_http_sandbox_e2b_contexts_t *c)
{
    ngx_http_sandbox_json_t  j;

    ngx_http_sandbox_json_init(&j, r->pool);
    ngx_http_sandbox_json_raw(&j, "{\"contexts\":[");
    ngx_http_sandbox_json_copy(&j, &c->json, 0);
    ngx_http_sandbox_json_raw(&j, "]}");

    return ngx_http_sandbox_e2b_reply(r, &j);
}


static ngx_int_t
ngx_http_sandbox_e2b_rpc_done(ngx_http_request_t *r,
    ngx_http_sandbox_e2b_contexts_t *c)
{
    return ngx_http_sandbox_e2b_empty(r);
}
