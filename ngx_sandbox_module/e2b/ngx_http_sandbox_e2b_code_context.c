/*
 * Contexts of the code interpreter.  Those of the languages that it begins
 * with are there before they are used for the first time.
 */

#include "ngx_http_sandbox_e2b_code.h"


/* milliseconds: the answer comes when the interpreter is ready */
#define NGX_HTTP_SANDBOX_E2B_CONTEXT_SLOW  90000


static ngx_http_sandbox_call_t *ngx_http_sandbox_e2b_contexts_call(
    ngx_http_request_t *r, ngx_http_sandbox_e2b_contexts_t *c);
static ngx_int_t ngx_http_sandbox_e2b_contexts_again(
    ngx_http_sandbox_call_t *call);
static ngx_int_t ngx_http_sandbox_e2b_contexts_frame(
    ngx_http_sandbox_call_t *call, const sbx_frame_t *frame,
    const u_char *payload, ngx_fd_t fd);
static ngx_int_t ngx_http_sandbox_e2b_contexts_add(
    ngx_http_sandbox_call_t *call, const u_char *payload, size_t len);
static void ngx_http_sandbox_e2b_contexts_json(
    ngx_http_sandbox_e2b_contexts_t *c, const ngx_str_t *id,
    const ngx_str_t *language, const char *cwd, size_t len);
static ngx_int_t ngx_http_sandbox_e2b_contexts_end(
    ngx_http_sandbox_call_t *call);
static ngx_int_t ngx_http_sandbox_e2b_contexts_default(const void *id,
    size_t len);


static const ngx_str_t  ngx_http_sandbox_e2b_defaults[] = {
    ngx_string("python"), ngx_string("javascript")
};


static const struct {
    ngx_str_t                       name;
    ngx_str_t                       language;
} ngx_http_sandbox_e2b_languages[] = {
    { ngx_string("js"), ngx_string("javascript") },
    { ngx_string("ts"), ngx_string("typescript") }
};


ngx_int_t
ngx_http_sandbox_e2b_code_language(ngx_pool_t *pool, sbx_json_str_t *language)
{
    size_t       i, len;
    u_char      *p;
    const char  *s;

    s = language->data;
    len = language->len;

    while (len != 0 && (u_char) *s <= ' ') {
        s++;
        len--;
    }

    while (len != 0 && (u_char) s[len - 1] <= ' ') {
        len--;
    }

    language->data = NULL;
    language->len = 0;

    if (len == 0) {
        return NGX_OK;
    }

    p = ngx_pnalloc(pool, len);

    if (p == NULL) {
        return NGX_ERROR;
    }

    ngx_strlow(p, (u_char *) s, len);

    language->data = (char *) p;
    language->len = len;

    for (i = 0; i < sbx_nelts(ngx_http_sandbox_e2b_languages); i++) {
        if (len == ngx_http_sandbox_e2b_languages[i].name.len
            && ngx_memcmp(p, ngx_http_sandbox_e2b_languages[i].name.data, len)
               == 0)
        {
            language->data =
                     (char *) ngx_http_sandbox_e2b_languages[i].language.data;
            language->len = ngx_http_sandbox_e2b_languages[i].language.len;
        }
    }

    ngx_http_sandbox_op_code_language(language);

    return NGX_OK;
}


ngx_int_t
ngx_http_sandbox_e2b_contexts_ask(ngx_http_request_t *r,
    sbx_code_verb_t verb, ngx_http_sandbox_e2b_context_t *body,
    ngx_int_t (*answer)(ngx_http_request_t *r,
    ngx_http_sandbox_e2b_contexts_t *c))
{
    ngx_str_t                         cwd;
    sbx_error_t                       e;
    ngx_http_sandbox_ctx_t           *ctx;
    ngx_http_sandbox_e2b_contexts_t  *c;

    if (body->cwd.len != 0) {

        if (ngx_http_sandbox_e2b_path(r, SBX_USER_USER, &body->cwd, &cwd, &e)
            != 0)
        {
            return ngx_http_sandbox_problem_core(r, &e);
        }

        body->cwd.data = (char *) cwd.data;
        body->cwd.len = cwd.len;
    }

    if (verb == SBX_CODE_RESTART || verb == SBX_CODE_DELETE) {

        if (!sbx_context_ok(body->id.data, body->id.len)) {
            return ngx_http_sandbox_e2b_code_missing(r, &body->id);
        }

        ctx = ngx_http_sandbox_ctx(r);
        ctx->context.data = (u_char *) body->id.data;
        ctx->context.len = body->id.len;

    } else {

        /* of no use, and nobody has looked at it */

        body->id.data = NULL;
        body->id.len = 0;
    }

    c = ngx_pcalloc(r->pool, sizeof(ngx_http_sandbox_e2b_contexts_t));

    if (c == NULL
        || ngx_http_sandbox_e2b_code_language(r->pool, &body->language)
           != NGX_OK)
    {
        return ngx_http_sandbox_problem(r, NGX_HTTP_SANDBOX_INTERNAL, NULL);
    }

    c->verb = verb;
    c->id = body->id;
    c->language = body->language;
    c->cwd = body->cwd;
    c->answer = answer;
    c->rpc = ngx_http_sandbox_e2b(ngx_http_sandbox_ctx(r))->rpc;
    ngx_http_sandbox_json_init(&c->json, r->pool);

    return ngx_http_sandbox_op_start(r,
                                     ngx_http_sandbox_e2b_contexts_call(r, c));
}


static ngx_http_sandbox_call_t *
ngx_http_sandbox_e2b_contexts_call(ngx_http_request_t *r,
    ngx_http_sandbox_e2b_contexts_t *c)
{
    sbx_f_code_t              wire;
    ngx_http_sandbox_call_t  *call;

    ngx_memzero(&wire, sizeof(sbx_f_code_t));
    wire.verb = c->verb;

    call = ngx_http_sandbox_op_code_call(r, &wire, &c->id, &c->language,
                                         &c->cwd, c);

    if (call != NULL) {
        call->frame = ngx_http_sandbox_e2b_contexts_frame;

        if (c->verb != SBX_CODE_LIST) {
            call->timeout = NGX_HTTP_SANDBOX_E2B_CONTEXT_SLOW;
        }
    }

    return call;
}


/* Clients know no error of a directory: the context begins at home then, and
 * says so. */

static ngx_int_t
ngx_http_sandbox_e2b_contexts_again(ngx_http_sandbox_call_t *call)
{
    ngx_http_request_t               *r;
    ngx_http_sandbox_call_t          *next;
    ngx_http_sandbox_e2b_contexts_t  *c;

    r = call->request;
    c = call->data;

    c->cwd.len = 0;
    next = ngx_http_sandbox_e2b_contexts_call(r, c);

    if (next != NULL) {
        ngx_http_sandbox_call_close(call);

        if (ngx_http_sandbox_call_start(next) == NGX_OK) {
            return NGX_DONE;
        }

        call = next;
    }

    return ngx_http_sandbox_op_finish(call,
               ngx_http_sandbox_problem(r, NGX_HTTP_SANDBOX_BROKER_UNAVAILABLE,
                                        NULL));
}


static ngx_int_t
ngx_http_sandbox_e2b_contexts_frame(ngx_http_sandbox_call_t *call,
    const sbx_frame_t *frame, const u_char *payload, ngx_fd_t fd)
{
    ngx_int_t                         rc;
    sbx_f_error_t                     error;
    ngx_http_request_t               *r;
    ngx_http_sandbox_e2b_contexts_t  *c;

    r = call->request;
    c = call->data;

    if (frame->type == SBX_F_ERROR) {
        ngx_memcpy(&error, payload, sizeof(sbx_f_error_t));

        if (error.code == SBX_E_CONTEXT && c->id.len != 0) {

            /* what has not begun is as if it had just begun anew */

            rc = (ngx_http_sandbox_e2b_contexts_default(c->id.data, c->id.len)
                  != NGX_ERROR)
                 ? c->answer(r, c)
                 : ngx_http_sandbox_e2b_code_missing(r, &c->id);

            return ngx_http_sandbox_op_finish(call, rc);
        }

        if (c->verb == SBX_CODE_CREATE && c->cwd.len != 0
            && (error.code == SBX_E_FILE || error.code == SBX_E_DENIED))
        {
            return ngx_http_sandbox_e2b_contexts_again(call);
        }
    }

    rc = ngx_http_sandbox_op_frame(call, frame, payload, fd);

    if (rc != NGX_DECLINED) {
        return rc;
    }

    switch (frame->type) {

    case SBX_F_CONTEXT:
        if (c->verb != SBX_CODE_DELETE
            && c->count < (c->verb == SBX_CODE_LIST ? SBX_CONTEXTS_MAX : 1)
            && ngx_http_sandbox_e2b_contexts_add(call, payload, frame->length)
               == NGX_OK)
        {
            return NGX_OK;
        }

        return ngx_http_sandbox_op_broken(call, "a context that cannot be");

    case SBX_F_END:
        if (c->count == 1 || c->verb == SBX_CODE_LIST
            || c->verb == SBX_CODE_DELETE)
        {
            return ngx_http_sandbox_e2b_contexts_end(call);
        }

        /* fall through */

    default:
        return ngx_http_sandbox_op_broken(call, "a wrong frame for contexts");
    }
}


static ngx_int_t
ngx_http_sandbox_e2b_contexts_add(ngx_http_sandbox_call_t *call,
    const u_char *payload, size_t len)
{
    ngx_int_t                         n;
    ngx_str_t                         id, language;
    const char                       *p, *p2, *cwd;
    sbx_f_context_t                   context;
    ngx_http_sandbox_e2b_contexts_t  *c;

    c = call->data;

    if (sbx_wire_check_context(payload, len, &context, &p, &p2, &cwd) != 0) {
        return NGX_ERROR;
    }

    id.data = (u_char *) p;
    id.len = context.id_len;
    language.data = (u_char *) p2;
    language.len = context.language_len;

    ngx_http_sandbox_e2b_contexts_json(c, &id, &language, cwd,
                                       context.cwd_len);

    if (c->verb != SBX_CODE_LIST) {
        return ngx_http_sandbox_op_code_named(call->request, &context, p, p2);
    }

    n = ngx_http_sandbox_e2b_contexts_default(p, context.id_len);

    if (n != NGX_ERROR) {
        c->defaults |= 1U << n;
    }

    return NGX_OK;
}


static void
ngx_http_sandbox_e2b_contexts_json(ngx_http_sandbox_e2b_contexts_t *c,
    const ngx_str_t *id, const ngx_str_t *language, const char *cwd,
    size_t len)
{
    ngx_http_sandbox_json_t  *j;

    j = &c->json;

    ngx_http_sandbox_json_raw(j, (c->count++ == 0) ? "{\"id\":"
                                                   : ",{\"id\":");
    ngx_http_sandbox_json_string(j, id->data, id->len);

    if (c->rpc) {
        ngx_http_sandbox_json_raw(j, ",\"contextId\":");
        ngx_http_sandbox_json_string(j, id->data, id->len);
    }

    ngx_http_sandbox_json_raw(j, ",\"language\":");
    ngx_http_sandbox_json_string(j, language->data, language->len);
    ngx_http_sandbox_op_cwd_json(j, cwd, len);
    ngx_http_sandbox_json_raw(j, "}");
}


/* A client may look for what it has made at the end of the list. */

static ngx_int_t
ngx_http_sandbox_e2b_contexts_end(ngx_http_sandbox_call_t *call)
{
    ngx_uint_t                        i;
    ngx_http_request_t               *r;
    ngx_http_sandbox_json_t           rest;
    ngx_http_sandbox_e2b_contexts_t  *c;

    r = call->request;
    c = call->data;

    if (c->verb == SBX_CODE_LIST) {
        rest = c->json;
        c->count = 0;
        ngx_http_sandbox_json_init(&c->json, r->pool);

        for (i = 0; i < sbx_nelts(ngx_http_sandbox_e2b_defaults); i++) {
            if ((c->defaults & (1U << i)) == 0) {
                ngx_http_sandbox_e2b_contexts_json(c,
                                            &ngx_http_sandbox_e2b_defaults[i],
                                            &ngx_http_sandbox_e2b_defaults[i],
                                            NULL, 0);
            }
        }

        if (c->count != 0 && rest.size != 0) {
            ngx_http_sandbox_json_raw(&c->json, ",");
        }

        ngx_http_sandbox_json_copy(&c->json, &rest, 0);
    }

    return ngx_http_sandbox_op_finish(call, c->answer(r, c));
}


static ngx_int_t
ngx_http_sandbox_e2b_contexts_default(const void *id, size_t len)
{
    ngx_uint_t  i;

    for (i = 0; i < sbx_nelts(ngx_http_sandbox_e2b_defaults); i++) {
        if (len == ngx_http_sandbox_e2b_defaults[i].len
            && ngx_memcmp(id, ngx_http_sandbox_e2b_defaults[i].data, len)
               == 0)
        {
            return i;
        }
    }

    return NGX_ERROR;
}


ngx_int_t
ngx_http_sandbox_e2b_code_missing(ngx_http_request_t *r,
    const sbx_json_str_t *id)
{
    ngx_str_t  name;

    name.data = (u_char *) id->data;
    name.len = ngx_min(id->len, SBX_CONTEXT_MAX);

    return ngx_http_sandbox_problem(r, NGX_HTTP_SANDBOX_CONTEXT_NOT_FOUND,
                                    "Context %V not found", &name);
}
