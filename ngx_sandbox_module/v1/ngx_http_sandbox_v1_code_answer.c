/*
 * What is answered to code: kept until its end and told as one text, or told
 * as it comes.
 */

#include "ngx_http_sandbox_v1_code.h"


/* above which a result's memory is kept as it is, and not copied */
#define NGX_HTTP_SANDBOX_V1_RESULT_LARGE  65536


static ngx_int_t ngx_http_sandbox_v1_code_keep_error(
    ngx_http_sandbox_call_t *call);
static ngx_int_t ngx_http_sandbox_v1_code_tell_error(
    ngx_http_sandbox_v1_code_t *code);
static ngx_int_t ngx_http_sandbox_v1_code_keep_large(
    ngx_http_sandbox_call_t *call);
static ngx_int_t ngx_http_sandbox_v1_code_no_kernel(
    ngx_http_sandbox_call_t *call, const u_char *text, size_t len);
static ngx_int_t ngx_http_sandbox_v1_code_died(ngx_http_sandbox_call_t *call,
    const sbx_f_ran_t *ran);
static void ngx_http_sandbox_v1_code_members(ngx_http_sandbox_json_t *j,
    ngx_http_sandbox_call_t *call, const sbx_f_ran_t *ran);
static ngx_int_t ngx_http_sandbox_v1_code_answer(
    ngx_http_sandbox_call_t *call, const sbx_f_ran_t *ran);
static ngx_int_t ngx_http_sandbox_v1_code_last(ngx_http_sandbox_call_t *call,
    const sbx_f_ran_t *ran);
static void ngx_http_sandbox_v1_code_note(ngx_http_request_t *r,
    const ngx_http_sandbox_v1_code_t *code, const sbx_f_ran_t *ran);
static void ngx_http_sandbox_v1_code_free(void *data);


static const char *const  ngx_http_sandbox_v1_code_types[] = {
    "stdout", "stderr"
};


/* By sbx_reason_t: what an interpreter died of, and what to do. */

static const char *const  ngx_http_sandbox_v1_code_deaths[] = {
    "it exited, as code can make it do",
    "it was ended by a signal, as a fault of native code does",
    "its time was over and an interrupt did not stop it; give it more time, "
    "or let it handle interrupts",
    "its memory was used up; use less at once, or create a session with more",
    "its processor time was used up; create a session with more",
    "its context was restarted or deleted, or its run cancelled and an "
    "interrupt did not stop it",
    "its client went away and an interrupt did not stop it",
    "its session ended",
    "it could not be started; the doctor tells what the machine lacks"
};


/* ---- its turn ----------------------------------------------------------- */


ngx_int_t
ngx_http_sandbox_v1_code_begin(ngx_http_sandbox_call_t *call,
    const u_char *payload, size_t len)
{
    u_char                      *p;
    ngx_int_t                    rc;
    const char                  *id, *language, *cwd;
    sbx_f_context_t              context;
    ngx_http_request_t          *r;
    ngx_http_sandbox_ctx_t      *ctx;
    ngx_http_sandbox_json_t     *j;
    ngx_http_sandbox_v1_code_t  *code;

    r = call->request;
    code = call->data;
    ctx = ngx_http_sandbox_ctx(r);

    if (sbx_wire_check_context(payload, len, &context, &id, &language, &cwd)
        != 0)
    {
        return ngx_http_sandbox_op_broken(call, "a context that cannot be");
    }

    p = ngx_pnalloc(r->pool, context.id_len + context.language_len);

    if (p == NULL) {
        return ngx_http_sandbox_op_broken(call, "more than memory holds");
    }

    ngx_memcpy(p, id, context.id_len + context.language_len);

    ctx->context.data = p;
    ctx->context.len = context.id_len;
    ctx->language.data = p + context.id_len;
    ctx->language.len = context.language_len;
    ctx->outcome = NGX_HTTP_SANDBOX_CODE_LOST;
    ctx->pid = context.pid;

    code->begun = 1;
    call->timeout = code->silence;

    if (code->stream == NULL) {
        return NGX_OK;
    }

    rc = ngx_http_sandbox_v1_code_open(call);

    if (rc == NGX_OK) {
        j = ngx_http_sandbox_stream_event(code->stream, "start");
        ngx_http_sandbox_json_raw(j, ",\"context_id\":");
        ngx_http_sandbox_json_string(j, ctx->context.data, ctx->context.len);
        ngx_http_sandbox_json_raw(j, ",\"language\":");
        ngx_http_sandbox_json_string(j, ctx->language.data,
                                     ctx->language.len);

        rc = ngx_http_sandbox_stream_send(code->stream);
    }

    return ngx_http_sandbox_op_sent(call, rc);
}


/* ---- what comes --------------------------------------------------------- */


ngx_int_t
ngx_http_sandbox_v1_code_output(ngx_http_sandbox_call_t *call, ngx_uint_t n,
    const u_char *data, size_t len)
{
    ngx_http_sandbox_v1_code_t  *code;

    code = call->data;

    if (code->stream != NULL) {
        return ngx_http_sandbox_op_sent(call,
                   ngx_http_sandbox_stream_text(code->stream,
                                            ngx_http_sandbox_v1_code_types[n],
                                            &code->text[n], 0, data, len, 0));
    }

    if (ngx_http_sandbox_v1_exec_output(call->request,
                                        n ? &code->err : &code->out, data,
                                        len)
        != NGX_OK)
    {
        return ngx_http_sandbox_op_broken(call, "more than memory holds");
    }

    return NGX_OK;
}


ngx_int_t
ngx_http_sandbox_v1_code_keep(ngx_http_sandbox_call_t *call)
{
    off_t                          size;
    const char                    *word;
    ngx_http_sandbox_json_t       *j;
    ngx_http_sandbox_v1_code_t    *code;
    ngx_http_sandbox_v1_result_t  *result;

    code = call->data;
    result = &code->result;

    if (result->kind == SBX_RESULT_ERROR) {
        return ngx_http_sandbox_v1_code_keep_error(call);
    }

    word = (result->kind == SBX_RESULT_MAIN) ? ",\"is_main_result\":true"
                                             : ",\"is_main_result\":false";
    ngx_http_sandbox_json_raw(&result->json, word);

    if (code->stream != NULL) {
        j = ngx_http_sandbox_stream_event(code->stream, "result");
        ngx_http_sandbox_json_join(j, &result->json);

        return ngx_http_sandbox_stream_send(code->stream);
    }

    j = &code->results;
    size = result->json.size + result->plain.size;

    if (j->size + code->plain.size + size > NGX_HTTP_SANDBOX_V1_RESULTS_MAX) {
        code->results_cut = 1;
        return NGX_OK;
    }

    /* over the first one's comma */

    ngx_http_sandbox_json_raw(j, (j->size == 0) ? "{" : ",{");
    result->json.out->buf->pos++;
    result->json.size--;
    ngx_http_sandbox_json_raw(&result->json, "}");

    if (size > NGX_HTTP_SANDBOX_V1_RESULT_LARGE) {
        return ngx_http_sandbox_v1_code_keep_large(call);
    }

    ngx_http_sandbox_json_copy(j, &result->json, 0);
    ngx_http_sandbox_json_copy(&code->plain, &result->plain, 0);

    return (j->failed || code->plain.failed) ? NGX_ERROR : NGX_OK;
}


static ngx_int_t
ngx_http_sandbox_v1_code_keep_large(ngx_http_sandbox_call_t *call)
{
    ngx_pool_cleanup_t            *cln;
    ngx_http_sandbox_v1_code_t    *code;
    ngx_http_sandbox_v1_result_t  *result;

    code = call->data;
    result = &code->result;

    cln = ngx_pool_cleanup_add(call->request->pool, 0);

    if (cln == NULL) {
        return NGX_ERROR;
    }

    cln->handler = ngx_http_sandbox_v1_code_free;
    cln->data = result->pool;
    result->pool = NULL;

    ngx_http_sandbox_json_join(&code->results, &result->json);
    ngx_http_sandbox_json_join(&code->plain, &result->plain);

    return (code->results.failed || code->plain.failed) ? NGX_ERROR : NGX_OK;
}


static void
ngx_http_sandbox_v1_code_free(void *data)
{
    ngx_destroy_pool(data);
}


/* The first one counts, and has all of its members. */

static ngx_int_t
ngx_http_sandbox_v1_code_keep_error(ngx_http_sandbox_call_t *call)
{
    size_t                         i;
    ngx_uint_t                     n;
    ngx_http_sandbox_json_t       *j;
    ngx_http_sandbox_v1_code_t    *code;
    ngx_http_sandbox_v1_result_t  *result;

    static const ngx_str_t  all[] = {
        ngx_string("name"), ngx_string("value"), ngx_string("traceback")
    };

    code = call->data;
    result = &code->result;
    j = &code->error;

    if (j->size != 0) {
        return NGX_OK;
    }

    ngx_http_sandbox_json_copy(j, &result->json, 0);

    for (i = 0; i < sbx_nelts(all); i++) {

        for (n = 0; n < result->nnames; n++) {
            if (result->names[n].len == all[i].len
                && ngx_memcmp(result->names[n].data, all[i].data, all[i].len)
                   == 0)
            {
                break;
            }
        }

        if (n == result->nnames) {
            ngx_http_sandbox_json_raw(j, ",\"");
            ngx_http_sandbox_json_raw_len(j, all[i].data, all[i].len);
            ngx_http_sandbox_json_raw(j, "\":\"\"");
        }
    }

    return ngx_http_sandbox_v1_code_tell_error(code);
}


/* An interpreter's death is the error, whatever it said before. */

static ngx_int_t
ngx_http_sandbox_v1_code_died(ngx_http_sandbox_call_t *call,
    const sbx_f_ran_t *ran)
{
    u_char  text[512], *last;

    last = ngx_snprintf(text, sizeof(text), "the interpreter died (%s): %s; "
                        "what it held is lost, and the next run begins with "
                        "a new one", sbx_reason_word(ran->reason),
                        ngx_http_sandbox_v1_code_deaths[ran->reason]);

    return ngx_http_sandbox_v1_code_no_kernel(call, text, last - text);
}


static ngx_int_t
ngx_http_sandbox_v1_code_no_kernel(ngx_http_sandbox_call_t *call,
    const u_char *text, size_t len)
{
    ngx_http_sandbox_json_t     *j;
    ngx_http_sandbox_v1_code_t  *code;

    code = call->data;
    j = &code->error;

    ngx_http_sandbox_json_init(j, call->request->pool);
    ngx_http_sandbox_json_raw(j, ",\"name\":\"KernelDied\",\"value\":");
    ngx_http_sandbox_json_string(j, text, len);
    ngx_http_sandbox_json_raw(j, ",\"traceback\":\"\"");

    return ngx_http_sandbox_v1_code_tell_error(code);
}


ngx_int_t
ngx_http_sandbox_v1_code_refused(ngx_http_sandbox_call_t *call,
    const u_char *payload)
{
    ngx_int_t      rc;
    sbx_f_ran_t    ran;
    sbx_f_error_t  error;

    static const ngx_str_t  other = ngx_string("the server's log says why");

    ngx_memcpy(&error, payload, sizeof(sbx_f_error_t));
    ngx_memzero(&ran, sizeof(sbx_f_ran_t));

    ran.exit_code = 126;
    ran.reason = SBX_REASON_NOT_STARTED;

    ngx_log_error(NGX_LOG_ERR, call->request->connection->log, 0,
                  "sandbox refused code after its stream had begun, error "
                  "%uD", error.code);

    rc = (error.code == SBX_E_INTERNAL)
         ? ngx_http_sandbox_v1_code_no_kernel(call, other.data, other.len)
         : ngx_http_sandbox_v1_code_no_kernel(call, (u_char *) error.text,
                                              ngx_strlen(error.text));

    if (rc == NGX_ERROR) {
        return ngx_http_sandbox_op_finish(call, NGX_ERROR);
    }

    ngx_http_sandbox_v1_code_note(call->request, call->data, &ran);

    return ngx_http_sandbox_op_finish(call,
                                 ngx_http_sandbox_v1_code_last(call, &ran));
}


static ngx_int_t
ngx_http_sandbox_v1_code_tell_error(ngx_http_sandbox_v1_code_t *code)
{
    ngx_http_sandbox_json_t  *j;

    if (code->error.failed) {
        return NGX_ERROR;
    }

    if (code->stream == NULL) {
        return NGX_OK;
    }

    j = ngx_http_sandbox_stream_event(code->stream, "error");
    ngx_http_sandbox_json_copy(j, &code->error, 0);

    return ngx_http_sandbox_stream_send(code->stream);
}


ngx_int_t
ngx_http_sandbox_v1_code_changed(ngx_http_sandbox_call_t *call,
    const u_char *payload, size_t len)
{
    const char                  *path, *owner, *group, *target;
    sbx_f_entry_t                entry;
    ngx_http_sandbox_json_t     *j;
    ngx_http_sandbox_v1_code_t  *code;

    code = call->data;
    j = &code->files;

    if (sbx_wire_check_entry(payload, len, &entry, &path, &owner, &group,
                             &target)
        != 0)
    {
        return ngx_http_sandbox_op_broken(call, "a file that cannot be");
    }

    if (j->size > NGX_HTTP_SANDBOX_V1_CHANGED_MAX) {
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


/* ---- its end ------------------------------------------------------------ */


ngx_int_t
ngx_http_sandbox_v1_code_end(ngx_http_sandbox_call_t *call,
    const u_char *payload)
{
    sbx_f_ran_t                  ran;
    ngx_http_request_t          *r;
    ngx_http_sandbox_v1_code_t  *code;

    r = call->request;
    code = call->data;

    if (sbx_wire_check_ran(payload, sizeof(sbx_f_ran_t), &ran) != 0) {
        return ngx_http_sandbox_op_broken(call, "an end that cannot be");
    }

    ran.flags |= (code->out.over ? SBX_RAN_OUT_TRUNCATED : 0)
                 | (code->err.over ? SBX_RAN_ERR_TRUNCATED : 0)
                 | (code->results_cut ? SBX_RAN_RESULTS_CUT : 0)
                 | (code->files_cut ? SBX_RAN_FILES_CUT : 0);

    ngx_http_sandbox_v1_code_note(r, code, &ran);

    if (code->out.over || code->err.over) {
        ngx_log_error(NGX_LOG_ERR, r->connection->log, 0,
                      "sandbox sent more output than was asked for");
    }

    return ngx_http_sandbox_op_finish(call,
               (code->stream == NULL)
               ? ngx_http_sandbox_v1_code_answer(call, &ran)
               : ngx_http_sandbox_v1_code_last(call, &ran));
}


/* For the log variables, the audit log and metrics. */

static void
ngx_http_sandbox_v1_code_note(ngx_http_request_t *r,
    const ngx_http_sandbox_v1_code_t *code, const sbx_f_ran_t *ran)
{
    ngx_http_sandbox_ctx_t  *ctx;

    ctx = ngx_http_sandbox_ctx(r);

    ctx->exit = ran->exit_code;
    ctx->reason = sbx_reason_word(ran->reason);
    ctx->wall_us = (int64_t) ran->duration_us;

    ctx->outcome = (ran->flags & SBX_RAN_DIED) ? NGX_HTTP_SANDBOX_CODE_DIED
                   : (ran->flags & SBX_RAN_TIMED_OUT)
                     ? NGX_HTTP_SANDBOX_CODE_TIMEOUT
                   : (ran->flags & SBX_RAN_CANCELLED)
                     ? NGX_HTTP_SANDBOX_CODE_CANCELLED
                   : (code->error.size != 0) ? NGX_HTTP_SANDBOX_CODE_ERROR
                                             : NGX_HTTP_SANDBOX_CODE_OK;
}


static ngx_int_t
ngx_http_sandbox_v1_code_answer(ngx_http_sandbox_call_t *call,
    const sbx_f_ran_t *ran)
{
    ngx_http_request_t          *r;
    ngx_http_sandbox_json_t      j;
    ngx_http_sandbox_v1_code_t  *code;

    r = call->request;
    code = call->data;

    if ((ran->flags & SBX_RAN_DIED)
        && ngx_http_sandbox_v1_code_died(call, ran) != NGX_OK)
    {
        return ngx_http_sandbox_problem(r, NGX_HTTP_SANDBOX_INTERNAL, NULL);
    }

    ngx_http_sandbox_json_init(&j, r->pool);
    ngx_http_sandbox_json_raw(&j, "{\"text\":");

    if (code->plain.size == 0) {
        ngx_http_sandbox_json_raw(&j, "null");

    } else {
        ngx_http_sandbox_json_join(&j, &code->plain);
    }

    ngx_http_sandbox_json_raw(&j, ",\"stdout\":");
    ngx_http_sandbox_json_string(&j, code->out.data, code->out.len);
    ngx_http_sandbox_json_raw(&j, ",\"stderr\":");
    ngx_http_sandbox_json_string(&j, code->err.data, code->err.len);
    ngx_http_sandbox_json_raw(&j, ",\"results\":[");
    ngx_http_sandbox_json_join(&j, &code->results);
    ngx_http_sandbox_json_raw(&j, "],");
    ngx_http_sandbox_v1_code_members(&j, call, ran);
    ngx_http_sandbox_json_raw(&j, "}");

    return ngx_http_sandbox_json_send(r, NGX_HTTP_OK, &j);
}


/* Of a run that was cancelled before its turn there is no start. */

static ngx_int_t
ngx_http_sandbox_v1_code_last(ngx_http_sandbox_call_t *call,
    const sbx_f_ran_t *ran)
{
    ngx_int_t                    rc;
    ngx_uint_t                   n;
    ngx_http_sandbox_json_t     *j;
    ngx_http_sandbox_v1_code_t  *code;

    code = call->data;
    rc = ngx_http_sandbox_v1_code_open(call);

    for (n = 0; n < 2 && rc != NGX_ERROR && rc != NGX_DONE; n++) {
        rc = ngx_http_sandbox_stream_text(code->stream,
                                          ngx_http_sandbox_v1_code_types[n],
                                          &code->text[n], 0, NULL, 0, 1);
    }

    if (rc != NGX_ERROR && rc != NGX_DONE && (ran->flags & SBX_RAN_DIED)) {
        rc = ngx_http_sandbox_v1_code_died(call, ran);
    }

    if (rc == NGX_ERROR || rc == NGX_DONE) {
        return (rc == NGX_DONE) ? NGX_OK : rc;
    }

    j = ngx_http_sandbox_stream_event(code->stream, "end");
    ngx_http_sandbox_json_raw(j, ",");
    ngx_http_sandbox_v1_code_members(j, call, ran);

    return ngx_http_sandbox_stream_last(code->stream);
}


static void
ngx_http_sandbox_v1_code_members(ngx_http_sandbox_json_t *j,
    ngx_http_sandbox_call_t *call, const sbx_f_ran_t *ran)
{
    ngx_uint_t                   i;
    ngx_http_sandbox_ctx_t      *ctx;
    ngx_http_sandbox_v1_code_t  *code;

    const struct {
        const char  *name;
        ngx_uint_t   value;
    } flags[] = {
        { ",\"timed_out\":", ran->flags & SBX_RAN_TIMED_OUT },
        { ",\"cancelled\":", ran->flags & SBX_RAN_CANCELLED },
        { ",\"oom_killed\":", ran->flags & SBX_RAN_OOM_KILLED },
        { ",\"restarted\":", ran->flags & SBX_RAN_DIED },
        { ",\"stdout_truncated\":", ran->flags & SBX_RAN_OUT_TRUNCATED },
        { ",\"stderr_truncated\":", ran->flags & SBX_RAN_ERR_TRUNCATED },
        { ",\"results_truncated\":", ran->flags & SBX_RAN_RESULTS_CUT },
        { ",\"output_files_truncated\":", ran->flags & SBX_RAN_FILES_CUT }
    };

    code = call->data;
    ctx = ngx_http_sandbox_ctx(call->request);

    ngx_http_sandbox_json_raw(j, "\"error\":");

    if (code->error.size == 0) {
        ngx_http_sandbox_json_raw(j, "null");

    } else {
        ngx_http_sandbox_json_raw(j, "{");
        ngx_http_sandbox_json_copy(j, &code->error, 1);
        ngx_http_sandbox_json_raw(j, "}");
    }

    ngx_http_sandbox_json_raw(j, ",\"execution_count\":");
    ngx_http_sandbox_json_int(j, (int64_t) ran->execution);
    ngx_http_sandbox_json_raw(j, ",\"exit_code\":");
    ngx_http_sandbox_json_int(j, ran->exit_code);
    ngx_http_sandbox_json_raw(j, ",\"signal\":");
    ngx_http_sandbox_v1_signal_json(j, ran->signal);
    ngx_http_sandbox_json_raw(j, ",\"reason\":");
    ngx_http_sandbox_json_cstring(j, sbx_reason_word(ran->reason));
    ngx_http_sandbox_json_raw(j, ",\"duration_s\":");
    ngx_http_sandbox_json_seconds(j, ran->duration_us);
    ngx_http_sandbox_json_raw(j, ",\"startup_s\":");
    ngx_http_sandbox_json_seconds(j, ran->started_us);
    ngx_http_sandbox_json_raw(j, ",\"output_files\":[");
    ngx_http_sandbox_json_copy(j, &code->files, 0);
    ngx_http_sandbox_json_raw(j, "]");

    for (i = 0; i < sbx_nelts(flags); i++) {
        ngx_http_sandbox_json_raw(j, flags[i].name);
        ngx_http_sandbox_json_bool(j, flags[i].value);
    }

    ngx_http_sandbox_json_raw(j, ",\"stdout_bytes\":");
    ngx_http_sandbox_json_int(j, (int64_t) ran->stdout_bytes);
    ngx_http_sandbox_json_raw(j, ",\"stderr_bytes\":");
    ngx_http_sandbox_json_int(j, (int64_t) ran->stderr_bytes);
    ngx_http_sandbox_json_raw(j, ",\"context_id\":");

    if (ctx->context.len == 0) {
        ngx_http_sandbox_json_raw(j, "null,\"language\":null");
        return;
    }

    ngx_http_sandbox_json_string(j, ctx->context.data, ctx->context.len);
    ngx_http_sandbox_json_raw(j, ",\"language\":");
    ngx_http_sandbox_json_string(j, ctx->language.data, ctx->language.len);
}
