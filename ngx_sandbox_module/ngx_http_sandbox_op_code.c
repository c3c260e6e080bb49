/*
 * Runs of code: what is asked for, and its frames.
 */

#include "ngx_http_sandbox_op_code.h"


#define NGX_HTTP_SANDBOX_OP_CHANGED_MAX   (1024 * 1024)

static int ngx_http_sandbox_op_code_check(
    ngx_http_sandbox_op_code_body_t *body, sbx_error_t *e);
static ngx_int_t ngx_http_sandbox_op_code_queue(ngx_http_sandbox_call_t *call,
    const ngx_http_sandbox_op_code_body_t *body, const u_char *env,
    size_t env_size);
static ngx_int_t ngx_http_sandbox_op_code_accepted(
    ngx_http_sandbox_call_t *call);
static ngx_int_t ngx_http_sandbox_op_code_begin(
    ngx_http_sandbox_call_t *call, const u_char *payload, size_t len);
static ngx_int_t ngx_http_sandbox_op_code_changed(
    ngx_http_sandbox_call_t *call, const u_char *payload, size_t len);
static ngx_int_t ngx_http_sandbox_op_code_end(ngx_http_sandbox_call_t *call,
    const u_char *payload);
static void ngx_http_sandbox_op_code_waits(ngx_event_t *ev);
static void ngx_http_sandbox_op_code_cleanup(void *data);


ngx_http_sandbox_op_code_t *
ngx_http_sandbox_op_code_create(ngx_http_request_t *r,
    const ngx_http_sandbox_op_code_form_t *form)
{
    ngx_pool_cleanup_t          *cln;
    ngx_http_sandbox_op_code_t  *code;

    cln = ngx_pool_cleanup_add(r->pool, sizeof(ngx_http_sandbox_op_code_t));

    if (cln == NULL) {
        return NULL;
    }

    code = cln->data;
    ngx_memzero(code, sizeof(ngx_http_sandbox_op_code_t));

    cln->handler = ngx_http_sandbox_op_code_cleanup;

    code->form = form;

    ngx_http_sandbox_json_init(&code->results, r->pool);
    ngx_http_sandbox_json_init(&code->plain, r->pool);
    ngx_http_sandbox_json_init(&code->error, r->pool);
    ngx_http_sandbox_json_init(&code->files, r->pool);

    code->waits.handler = ngx_http_sandbox_op_code_waits;
    code->waits.log = r->connection->log;

    code->turn.handler = ngx_http_sandbox_op_code_result_turn;
    code->turn.log = r->connection->log;

    return code;
}


static void
ngx_http_sandbox_op_code_cleanup(void *data)
{
    ngx_http_sandbox_op_code_t  *code = data;

    if (code->waits.timer_set) {
        ngx_del_timer(&code->waits);
    }

    if (code->turn.posted) {
        ngx_delete_posted_event(&code->turn);
    }

    if (code->result.pool != NULL) {
        ngx_destroy_pool(code->result.pool);
        code->result.pool = NULL;
    }
}


/* ---- what is asked for -------------------------------------------------- */


int
ngx_http_sandbox_op_code_start(ngx_http_request_t *r,
    ngx_http_sandbox_op_code_t *code, ngx_http_sandbox_op_code_body_t *body,
    ngx_int_t *rc, sbx_error_t *e)
{
    size_t                         env_size;
    u_char                        *env;
    sbx_f_code_t                   wire;
    ngx_http_sandbox_call_t       *call;
    ngx_http_sandbox_main_conf_t  *smcf;

    if (ngx_http_sandbox_op_code_check(body, e) != 0
        || ngx_http_sandbox_op_env(r->pool, &body->env, &env, &env_size, e)
           != 0)
    {
        return -1;
    }

    if (body->code.len + env_size > SBX_CODE_STRINGS_MAX) {
        return sbx_error(e, 0, SBX_E_INVALID,
                         "/code: takes %zu bytes with its environment, more "
                         "than the %d that fit", body->code.len + env_size,
                         SBX_CODE_STRINGS_MAX);
    }

    smcf = ngx_http_get_module_main_conf(r, ngx_http_sandbox_module);

    ngx_memzero(&wire, sizeof(sbx_f_code_t));
    wire.verb = SBX_CODE_RUN;
    wire.envc = (uint32_t) body->env.nelts;
    wire.code_size = (uint32_t) body->code.len;
    wire.strings_size = (uint32_t) (body->code.len + env_size);
    wire.timeout = body->limits.exec_timeout;
    wire.max_output = body->limits.max_output;

    /* the cap is on what is kept */

    if (code->stream == NULL) {
        wire.flags = SBX_CODE_F_CAP;
    }

    code->out.max = (wire.max_output == SBX_UNSET) ? smcf->max.max_output
                                                   : wire.max_output;
    code->err.max = code->out.max;

    code->silence = ngx_http_sandbox_op_silence(smcf, wire.timeout);

    if (code->silence != 0) {
        code->silence += NGX_HTTP_SANDBOX_OP_CODE_SLOW;
    }

    call = ngx_http_sandbox_op_code_call(r, &wire, &body->context,
                                         &body->language, NULL, code);

    if (call == NULL
        || ngx_http_sandbox_op_code_queue(call, body, env, env_size)
           != NGX_OK)
    {
        *rc = ngx_http_sandbox_problem(r, NGX_HTTP_SANDBOX_INTERNAL, NULL);
        return 0;
    }

    call->frame = ngx_http_sandbox_op_code_frame;
    code->waits.data = call;
    code->turn.data = call;
    code->asked = body->context;

    if (code->stream != NULL) {
        code->stream->call = call;
        code->stream->data = code;
        code->stream->gone = ngx_http_sandbox_op_code_gone;
    }

    *rc = ngx_http_sandbox_op_start(r, call);

    return 0;
}


static int
ngx_http_sandbox_op_code_check(ngx_http_sandbox_op_code_body_t *body,
    sbx_error_t *e)
{
    if (body->code.len != 0
        && memchr(body->code.data, '\0', body->code.len) != NULL)
    {
        return sbx_error(e, 0, SBX_E_INVALID, "/code: must have no NUL");
    }

    ngx_http_sandbox_op_code_language(&body->language);

    return ngx_http_sandbox_op_code_context(&body->context, e);
}


int
ngx_http_sandbox_op_code_context(const sbx_json_str_t *id, sbx_error_t *e)
{
    if (id->data == NULL || sbx_context_ok(id->data, id->len)) {
        return 0;
    }

    return sbx_error(e, 0, SBX_E_CONTEXT, "there is no such context");
}


void
ngx_http_sandbox_op_code_language(sbx_json_str_t *language)
{
    if (language->data != NULL
        && !sbx_language_ok(language->data, language->len))
    {
        language->data = "_";
        language->len = 1;
    }
}


static ngx_int_t
ngx_http_sandbox_op_code_queue(ngx_http_sandbox_call_t *call,
    const ngx_http_sandbox_op_code_body_t *body, const u_char *env,
    size_t env_size)
{
    if (ngx_http_sandbox_call_queue_bytes(call, SBX_F_STRINGS,
                                          body->code.data, body->code.len)
        != NGX_OK
        || ngx_http_sandbox_call_queue_bytes(call, SBX_F_STRINGS, env,
                                             env_size)
           != NGX_OK)
    {
        ngx_http_sandbox_call_close(call);
        return NGX_ERROR;
    }

    return NGX_OK;
}


ngx_http_sandbox_call_t *
ngx_http_sandbox_op_code_call(ngx_http_request_t *r, sbx_f_code_t *code,
    const sbx_json_str_t *context, const sbx_json_str_t *language,
    const sbx_json_str_t *cwd, void *data)
{
    size_t                    i;
    u_char                   *p;
    ngx_http_sandbox_call_t  *call;

    const struct {
        const sbx_json_str_t  *name;
        size_t                 max;
        uint32_t              *len;
    } names[] = {
        { context, SBX_CONTEXT_MAX, &code->context_len },
        { language, SBX_LANGUAGE_MAX, &code->language_len },
        { cwd, SBX_PATH_MAX, &code->cwd_len }
    };

    u_char  frame[sizeof(sbx_f_code_t) + SBX_CONTEXT_MAX + SBX_LANGUAGE_MAX
                  + SBX_PATH_MAX];

    p = frame + sizeof(sbx_f_code_t);

    for (i = 0; i < sbx_nelts(names); i++) {
        if (names[i].name != NULL && names[i].name->len != 0) {

            /* callers have checked them: the frame holds no more */

            if (names[i].name->len > names[i].max) {
                return NULL;
            }

            *names[i].len = (uint32_t) names[i].name->len;
            p = ngx_cpymem(p, names[i].name->data, names[i].name->len);
        }
    }

    ngx_memcpy(frame, code, sizeof(sbx_f_code_t));

    call = ngx_http_sandbox_op_call(r, SBX_OP_CODE, NULL, 0,
                                    NGX_INVALID_FILE, data);

    if (call == NULL
        || ngx_http_sandbox_call_queue(call, SBX_F_CODE, frame, p - frame)
           != NGX_OK)
    {
        return NULL;
    }

    return call;
}


ngx_int_t
ngx_http_sandbox_op_code_named(ngx_http_request_t *r,
    const sbx_f_context_t *context, const char *id, const char *language)
{
    u_char                  *p;
    ngx_http_sandbox_ctx_t  *ctx;

    ctx = ngx_http_sandbox_ctx(r);

    /* one after the other, as they are in the frame */

    p = ngx_pnalloc(r->pool, context->id_len + context->language_len);

    if (p == NULL) {
        return NGX_ERROR;
    }

    ngx_memcpy(p, id, context->id_len);
    ngx_memcpy(p + context->id_len, language, context->language_len);

    ctx->context.data = p;
    ctx->context.len = context->id_len;
    ctx->language.data = p + context->id_len;
    ctx->language.len = context->language_len;

    return NGX_OK;
}


/* ---- what comes --------------------------------------------------------- */


ngx_int_t
ngx_http_sandbox_op_code_frame(ngx_http_sandbox_call_t *call,
    const sbx_frame_t *frame, const u_char *payload, ngx_fd_t fd)
{
    ngx_int_t                    rc;
    sbx_f_error_t                error;
    ngx_http_sandbox_op_code_t  *code;

    code = call->data;

    if (frame->type == SBX_F_ERROR) {
        ngx_memcpy(&error, payload, sizeof(sbx_f_error_t));

        if (call->request->header_sent) {
            return code->form->refused(call, &error);
        }

        if (error.code == SBX_E_CONTEXT && code->form->missing != NULL) {
            return ngx_http_sandbox_op_finish(call,
                             code->form->missing(call->request, &code->asked));
        }
    }

    rc = ngx_http_sandbox_op_frame(call, frame, payload, fd);

    if (rc == NGX_OK) {
        return ngx_http_sandbox_op_code_accepted(call);
    }

    if (rc != NGX_DECLINED) {
        return rc;
    }

    if (frame->type == SBX_F_RAN) {
        return ngx_http_sandbox_op_code_end(call, payload);
    }

    if ((frame->type == SBX_F_CONTEXT) == code->begun || !call->accepted) {
        return ngx_http_sandbox_op_broken(call, "a wrong frame for code");
    }

    switch (frame->type) {

    case SBX_F_CONTEXT:
        return ngx_http_sandbox_op_code_begin(call, payload, frame->length);

    case SBX_F_STDOUT:
    case SBX_F_STDERR:
        return code->form->output(call, frame->type == SBX_F_STDERR, payload,
                                  frame->length);

    case SBX_F_RESULT:
    case SBX_F_FIELD:
    case SBX_F_PIECE:
        return ngx_http_sandbox_op_code_result(call, frame, payload);

    case SBX_F_ENTRY:
        return ngx_http_sandbox_op_code_changed(call, payload, frame->length);

    default:
        return ngx_http_sandbox_op_broken(call, "a wrong frame for code");
    }
}


/* Whose turn comes after others' is silent for as long as those take. */

static ngx_int_t
ngx_http_sandbox_op_code_accepted(ngx_http_sandbox_call_t *call)
{
    ngx_http_sandbox_op_code_t    *code;
    ngx_http_sandbox_main_conf_t  *smcf;

    code = call->data;

    if (code->begun) {
        return NGX_OK;
    }

    smcf = ngx_http_get_module_main_conf(call->request,
                                         ngx_http_sandbox_module);

    call->timeout = ngx_http_sandbox_op_silence(smcf, SBX_UNLIMITED);

    if (code->stream == NULL || code->waits.timer_set
        || call->request->header_sent)
    {
        return NGX_OK;
    }

    if (code->form->wait == 0) {
        return ngx_http_sandbox_op_sent(call,
                                        ngx_http_sandbox_op_code_open(call));
    }

    ngx_add_timer(&code->waits, code->form->wait);

    return NGX_OK;
}


static void
ngx_http_sandbox_op_code_waits(ngx_event_t *ev)
{
    ngx_int_t                    rc;
    ngx_http_sandbox_call_t     *call;
    ngx_http_sandbox_op_code_t  *code;

    call = ev->data;
    code = call->data;

    if (call->closed) {
        return;
    }

    rc = ngx_http_sandbox_op_code_open(call);

    if (rc == NGX_OK) {
        rc = code->stream->ping(code->stream);
    }

    if (rc == NGX_AGAIN) {
        call->stopped = 1;

    } else if (rc != NGX_OK) {
        (void) ngx_http_sandbox_op_finish(call, rc);
    }
}


ngx_int_t
ngx_http_sandbox_op_code_open(ngx_http_sandbox_call_t *call)
{
    ngx_http_sandbox_op_code_t  *code;

    code = call->data;

    if (code->waits.timer_set) {
        ngx_del_timer(&code->waits);
    }

    return call->request->header_sent
           ? NGX_OK : ngx_http_sandbox_stream_open(code->stream);
}


static ngx_int_t
ngx_http_sandbox_op_code_begin(ngx_http_sandbox_call_t *call,
    const u_char *payload, size_t len)
{
    const char                  *id, *language, *cwd;
    sbx_f_context_t              context;
    ngx_http_sandbox_ctx_t      *ctx;
    ngx_http_sandbox_op_code_t  *code;

    code = call->data;

    if (sbx_wire_check_context(payload, len, &context, &id, &language, &cwd)
        != 0)
    {
        return ngx_http_sandbox_op_broken(call, "a context that cannot be");
    }

    if (ngx_http_sandbox_op_code_named(call->request, &context, id, language)
        != NGX_OK)
    {
        return ngx_http_sandbox_op_broken(call, "more than memory holds");
    }

    ctx = ngx_http_sandbox_ctx(call->request);
    ctx->outcome = NGX_HTTP_SANDBOX_CODE_LOST;
    ctx->pid = context.pid;

    code->begun = 1;
    call->timeout = code->silence;

    return code->form->begin(call, &context);
}


static ngx_int_t
ngx_http_sandbox_op_code_changed(ngx_http_sandbox_call_t *call,
    const u_char *payload, size_t len)
{
    const char                  *path, *owner, *group, *target;
    sbx_f_entry_t                entry;
    ngx_http_sandbox_json_t     *j;
    ngx_http_sandbox_op_code_t  *code;

    code = call->data;
    j = &code->files;

    if (sbx_wire_check_entry(payload, len, &entry, &path, &owner, &group,
                             &target)
        != 0)
    {
        return ngx_http_sandbox_op_broken(call, "a file that cannot be");
    }

    if (!code->form->files) {
        return NGX_OK;
    }

    if (j->size > NGX_HTTP_SANDBOX_OP_CHANGED_MAX) {
        code->files_cut = 1;
        return NGX_OK;
    }

    ngx_http_sandbox_json_raw(j, (j->size == 0) ? "{\"path\":"
                                                : ",{\"path\":");
    ngx_http_sandbox_json_string(j, path, entry.path_len);
    ngx_http_sandbox_json_raw(j, ",\"size\":");
    ngx_http_sandbox_json_int(j, (int64_t) entry.size);
    ngx_http_sandbox_json_raw(j, "}");

    return NGX_OK;
}


static ngx_int_t
ngx_http_sandbox_op_code_end(ngx_http_sandbox_call_t *call,
    const u_char *payload)
{
    sbx_f_ran_t                  ran;
    ngx_http_sandbox_op_code_t  *code;

    code = call->data;

    if (sbx_wire_check_ran(payload, sizeof(sbx_f_ran_t), &ran) != 0) {
        return ngx_http_sandbox_op_broken(call, "an end that cannot be");
    }

    ran.flags |= (code->out.over ? SBX_RAN_OUT_TRUNCATED : 0)
                 | (code->err.over ? SBX_RAN_ERR_TRUNCATED : 0)
                 | (code->results_cut ? SBX_RAN_RESULTS_CUT : 0)
                 | (code->files_cut ? SBX_RAN_FILES_CUT : 0);

    ngx_http_sandbox_op_code_note(call->request, code, &ran);

    if (code->out.over || code->err.over) {
        ngx_log_error(NGX_LOG_ERR, call->request->connection->log, 0,
                      "sandbox sent more output than was asked for");
    }

    return code->form->end(call, &ran);
}
