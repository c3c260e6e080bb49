/*
 * Contexts: interpreters of a session, each with what it remembers.
 */

#include "ngx_http_sandbox_v1_code.h"


/* milliseconds: the answer comes when the interpreter is ready */
#define NGX_HTTP_SANDBOX_V1_CONTEXT_SLOW  90000


typedef struct {
    sbx_json_str_t                  language;
    sbx_json_str_t                  cwd;
} ngx_http_sandbox_v1_context_t;

/* What is answered: a list, or one context. */

typedef struct {
    ngx_http_sandbox_json_t         json;
    ngx_uint_t                      count;
    sbx_code_verb_t                 verb;
} ngx_http_sandbox_v1_contexts_t;


static ngx_int_t ngx_http_sandbox_v1_contexts_ask(ngx_http_request_t *r,
    sbx_code_verb_t verb, const sbx_json_str_t *id,
    const ngx_http_sandbox_v1_context_t *body);
static ngx_int_t ngx_http_sandbox_v1_contexts_of(ngx_http_request_t *r,
    sbx_code_verb_t verb);
static ngx_int_t ngx_http_sandbox_v1_contexts_frame(
    ngx_http_sandbox_call_t *call, const sbx_frame_t *frame,
    const u_char *payload, ngx_fd_t fd);
static ngx_int_t ngx_http_sandbox_v1_contexts_add(
    ngx_http_sandbox_call_t *call, const u_char *payload, size_t len);
static ngx_int_t ngx_http_sandbox_v1_contexts_end(
    ngx_http_sandbox_call_t *call);


/* By sbx_context_state_t. */

static const char *const  ngx_http_sandbox_v1_context_states[] = {
    "starting", "idle", "running"
};


#define CONTEXT(field)  offsetof(ngx_http_sandbox_v1_context_t, field)

static const sbx_json_field_t  ngx_http_sandbox_v1_context_fields[] = {

    { .name = "language", .type = SBX_JSON_STRING, .nullable = 1,
      .offset = CONTEXT(language) },

    { .name = "cwd", .type = SBX_JSON_STRING, .nullable = 1,
      .offset = CONTEXT(cwd) },

    { .name = NULL }
};


ngx_int_t
ngx_http_sandbox_v1_context_create(ngx_http_request_t *r)
{
    sbx_error_t                     e;
    ngx_http_sandbox_v1_context_t   body;

    ngx_memzero(&body, sizeof(body));

    if (ngx_http_sandbox_op_bind(r, ngx_http_sandbox_v1_context_fields, &body,
                                 &e)
        != 0
        || ngx_http_sandbox_op_cwd(&body.cwd, &e) != 0)
    {
        return ngx_http_sandbox_problem_core(r, &e);
    }

    ngx_http_sandbox_op_code_language(&body.language);

    return ngx_http_sandbox_v1_contexts_ask(r, SBX_CODE_CREATE, NULL, &body);
}


ngx_int_t
ngx_http_sandbox_v1_context_list(ngx_http_request_t *r)
{
    return ngx_http_sandbox_v1_contexts_ask(r, SBX_CODE_LIST, NULL, NULL);
}


ngx_int_t
ngx_http_sandbox_v1_context_delete(ngx_http_request_t *r)
{
    return ngx_http_sandbox_v1_contexts_of(r, SBX_CODE_DELETE);
}


ngx_int_t
ngx_http_sandbox_v1_context_restart(ngx_http_request_t *r)
{
    sbx_error_t  e;

    if (ngx_http_sandbox_op_bind_none(r, &e) != 0) {
        return ngx_http_sandbox_problem_core(r, &e);
    }

    return ngx_http_sandbox_v1_contexts_of(r, SBX_CODE_RESTART);
}


static ngx_int_t
ngx_http_sandbox_v1_contexts_of(ngx_http_request_t *r, sbx_code_verb_t verb)
{
    sbx_error_t              e;
    sbx_json_str_t           id;
    ngx_http_sandbox_ctx_t  *ctx;

    ctx = ngx_http_sandbox_ctx(r);

    id.data = (char *) ctx->item.data;
    id.len = ctx->item.len;

    if (ngx_http_sandbox_op_code_context(&id, &e) != 0) {
        return ngx_http_sandbox_problem_core(r, &e);
    }

    ctx->context = ctx->item;

    return ngx_http_sandbox_v1_contexts_ask(r, verb, &id, NULL);
}


static ngx_int_t
ngx_http_sandbox_v1_contexts_ask(ngx_http_request_t *r, sbx_code_verb_t verb,
    const sbx_json_str_t *id, const ngx_http_sandbox_v1_context_t *body)
{
    sbx_f_code_t                     code;
    ngx_http_sandbox_call_t         *call;
    ngx_http_sandbox_v1_contexts_t  *contexts;

    contexts = ngx_pcalloc(r->pool, sizeof(ngx_http_sandbox_v1_contexts_t));

    if (contexts == NULL) {
        return ngx_http_sandbox_problem(r, NGX_HTTP_SANDBOX_INTERNAL, NULL);
    }

    contexts->verb = verb;
    ngx_http_sandbox_json_init(&contexts->json, r->pool);

    if (verb == SBX_CODE_LIST) {
        ngx_http_sandbox_json_raw(&contexts->json, "{\"contexts\":[");
    }

    ngx_memzero(&code, sizeof(sbx_f_code_t));
    code.verb = verb;

    call = ngx_http_sandbox_op_code_call(r, &code, id,
                                         body ? &body->language : NULL,
                                         body ? &body->cwd : NULL, contexts);

    if (call != NULL) {
        call->frame = (verb == SBX_CODE_DELETE)
                      ? ngx_http_sandbox_op_end_frame
                      : ngx_http_sandbox_v1_contexts_frame;

        if (verb != SBX_CODE_LIST) {
            call->timeout = NGX_HTTP_SANDBOX_V1_CONTEXT_SLOW;
        }
    }

    return ngx_http_sandbox_op_start(r, call);
}


static ngx_int_t
ngx_http_sandbox_v1_contexts_frame(ngx_http_sandbox_call_t *call,
    const sbx_frame_t *frame, const u_char *payload, ngx_fd_t fd)
{
    ngx_int_t                        rc;
    ngx_http_sandbox_v1_contexts_t  *contexts;

    contexts = call->data;

    rc = ngx_http_sandbox_op_frame(call, frame, payload, fd);

    if (rc != NGX_DECLINED) {
        return rc;
    }

    switch (frame->type) {

    case SBX_F_CONTEXT:
        if (contexts->count < (contexts->verb == SBX_CODE_LIST
                               ? SBX_CONTEXTS_MAX : 1)
            && ngx_http_sandbox_v1_contexts_add(call, payload, frame->length)
               == NGX_OK)
        {
            return NGX_OK;
        }

        return ngx_http_sandbox_op_broken(call, "a context that cannot be");

    case SBX_F_END:
        if (contexts->verb == SBX_CODE_LIST || contexts->count == 1) {
            return ngx_http_sandbox_v1_contexts_end(call);
        }

        /* fall through */

    default:
        return ngx_http_sandbox_op_broken(call, "a wrong frame for contexts");
    }
}


static ngx_int_t
ngx_http_sandbox_v1_contexts_add(ngx_http_sandbox_call_t *call,
    const u_char *payload, size_t len)
{
    const char                      *id, *language, *cwd;
    sbx_f_context_t                  context;
    ngx_http_sandbox_json_t         *j;
    ngx_http_sandbox_v1_contexts_t  *contexts;

    contexts = call->data;
    j = &contexts->json;

    if (sbx_wire_check_context(payload, len, &context, &id, &language, &cwd)
        != 0)
    {
        return NGX_ERROR;
    }

    ngx_http_sandbox_json_raw(j, (contexts->count++ == 0)
                                 ? "{\"context_id\":" : ",{\"context_id\":");
    ngx_http_sandbox_json_string(j, id, context.id_len);
    ngx_http_sandbox_json_raw(j, ",\"language\":");
    ngx_http_sandbox_json_string(j, language, context.language_len);
    ngx_http_sandbox_op_cwd_json(j, cwd, context.cwd_len);
    ngx_http_sandbox_json_raw(j, ",\"state\":");
    ngx_http_sandbox_json_cstring(j,
                           ngx_http_sandbox_v1_context_states[context.state]);
    ngx_http_sandbox_json_raw(j, ",\"pid\":");

    if (context.pid != 0) {
        ngx_http_sandbox_json_int(j, context.pid);

    } else {
        ngx_http_sandbox_json_raw(j, "null");
    }

    ngx_http_sandbox_json_raw(j, ",\"waiting\":");
    ngx_http_sandbox_json_int(j, context.waiting);
    ngx_http_sandbox_json_raw(j, ",\"execution_count\":");
    ngx_http_sandbox_json_int(j, (int64_t) context.executions);
    ngx_http_sandbox_json_raw(j, "}");

    if (contexts->verb == SBX_CODE_LIST) {
        return NGX_OK;
    }

    return ngx_http_sandbox_op_code_named(call->request, &context, id,
                                          language);
}


static ngx_int_t
ngx_http_sandbox_v1_contexts_end(ngx_http_sandbox_call_t *call)
{
    ngx_uint_t                       status;
    ngx_http_request_t              *r;
    ngx_http_sandbox_v1_contexts_t  *contexts;

    r = call->request;
    contexts = call->data;
    status = NGX_HTTP_OK;

    if (contexts->verb == SBX_CODE_LIST) {
        ngx_http_sandbox_json_raw(&contexts->json, "]}");
    }

    if (contexts->verb == SBX_CODE_CREATE) {
        status = NGX_HTTP_CREATED;

        if (ngx_http_sandbox_v1_location(r,
                                         &ngx_http_sandbox_ctx(r)->context)
            != NGX_OK)
        {
            return ngx_http_sandbox_op_broken(call, "more than memory holds");
        }
    }

    return ngx_http_sandbox_op_finish(call,
               ngx_http_sandbox_json_send(r, status, &contexts->json));
}
