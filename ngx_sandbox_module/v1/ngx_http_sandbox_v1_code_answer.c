/*
 * What is answered to code: kept until its end and told as one text, or told
 * as it comes.
 */

#include "ngx_http_sandbox_v1_code.h"


/* after which a stream that waits for its turn says so */
#define NGX_HTTP_SANDBOX_V1_CODE_WAIT     5000


static ngx_int_t ngx_http_sandbox_v1_code_begin(
    ngx_http_sandbox_call_t *call, const sbx_f_context_t *context);
static ngx_int_t ngx_http_sandbox_v1_code_output(
    ngx_http_sandbox_call_t *call, ngx_uint_t n, const u_char *data,
    size_t len);
static void ngx_http_sandbox_v1_code_field(ngx_http_sandbox_op_code_t *code,
    const ngx_str_t *name);
static ngx_int_t ngx_http_sandbox_v1_code_result(
    ngx_http_sandbox_call_t *call);
static ngx_int_t ngx_http_sandbox_v1_code_tell_error(
    ngx_http_sandbox_op_code_t *code);
static ngx_int_t ngx_http_sandbox_v1_code_end(ngx_http_sandbox_call_t *call,
    sbx_f_ran_t *ran);
static ngx_int_t ngx_http_sandbox_v1_code_refused(
    ngx_http_sandbox_call_t *call, const sbx_f_error_t *error);
static ngx_int_t ngx_http_sandbox_v1_code_died(
    ngx_http_sandbox_op_code_t *code, const sbx_f_ran_t *ran);
static ngx_int_t ngx_http_sandbox_v1_code_answer(
    ngx_http_sandbox_call_t *call, const sbx_f_ran_t *ran);
static ngx_int_t ngx_http_sandbox_v1_code_last(ngx_http_sandbox_call_t *call,
    const sbx_f_ran_t *ran);
static void ngx_http_sandbox_v1_code_members(ngx_http_sandbox_json_t *j,
    ngx_http_sandbox_call_t *call, const sbx_f_ran_t *ran);


static const char *const  ngx_http_sandbox_v1_code_types[] = {
    "stdout", "stderr"
};


const ngx_http_sandbox_op_code_form_t  ngx_http_sandbox_v1_code_form = {
    NGX_HTTP_SANDBOX_V1_CODE_WAIT,
    0,                                        /* ascii */
    1,                                        /* files */
    ngx_http_sandbox_v1_code_begin,
    ngx_http_sandbox_v1_code_output,
    ngx_http_sandbox_v1_code_field,
    NULL,                                     /* kept */
    ngx_http_sandbox_v1_code_result,
    ngx_http_sandbox_v1_code_end,
    ngx_http_sandbox_v1_code_refused,
    NULL                                      /* missing */
};


/* ---- its turn ----------------------------------------------------------- */


static ngx_int_t
ngx_http_sandbox_v1_code_begin(ngx_http_sandbox_call_t *call,
    const sbx_f_context_t *context)
{
    ngx_int_t                    rc;
    ngx_http_sandbox_ctx_t      *ctx;
    ngx_http_sandbox_json_t     *j;
    ngx_http_sandbox_op_code_t  *code;

    code = call->data;

    if (code->stream == NULL) {
        return NGX_OK;
    }

    ctx = ngx_http_sandbox_ctx(call->request);
    rc = ngx_http_sandbox_op_code_open(call);

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


static ngx_int_t
ngx_http_sandbox_v1_code_output(ngx_http_sandbox_call_t *call, ngx_uint_t n,
    const u_char *data, size_t len)
{
    ngx_http_sandbox_op_code_t  *code;

    code = call->data;

    if (code->stream != NULL) {
        return ngx_http_sandbox_op_sent(call,
                   ngx_http_sandbox_stream_text(code->stream,
                                            ngx_http_sandbox_v1_code_types[n],
                                            &code->text[n], 0, data, len, 0));
    }

    return ngx_http_sandbox_op_output_frame(call,
                                            n ? &code->err : &code->out,
                                            data, len);
}


static void
ngx_http_sandbox_v1_code_field(ngx_http_sandbox_op_code_t *code,
    const ngx_str_t *name)
{
    ngx_http_sandbox_op_result_t  *result;

    result = &code->result;

    result->is_plain = ngx_http_sandbox_op_is(name, "text/plain")
                       && result->kind == SBX_RESULT_MAIN
                       && code->stream == NULL
                       && code->plain.size == 0;

    ngx_http_sandbox_json_raw(result->to, ",");
    ngx_http_sandbox_json_string(result->to, name->data, name->len);
    ngx_http_sandbox_json_raw(result->to, ":");
}


static ngx_int_t
ngx_http_sandbox_v1_code_result(ngx_http_sandbox_call_t *call)
{
    const char                    *word;
    ngx_http_sandbox_json_t       *j;
    ngx_http_sandbox_op_code_t    *code;
    ngx_http_sandbox_op_result_t  *result;

    code = call->data;
    result = &code->result;

    if (result->kind == SBX_RESULT_ERROR) {

        if (code->error.size != 0) {
            return NGX_OK;
        }

        if (ngx_http_sandbox_op_code_keep_error(code, call->request)
            != NGX_OK)
        {
            return NGX_ERROR;
        }

        return ngx_http_sandbox_v1_code_tell_error(code);
    }

    word = (result->kind == SBX_RESULT_MAIN) ? ",\"is_main_result\":true"
                                             : ",\"is_main_result\":false";
    ngx_http_sandbox_json_raw(&result->json, word);

    if (code->stream == NULL) {
        return ngx_http_sandbox_op_code_keep(code, call->request);
    }

    result->told = 1;

    j = ngx_http_sandbox_stream_event(code->stream, "result");
    ngx_http_sandbox_json_join(j, &result->json);

    return ngx_http_sandbox_stream_send(code->stream);
}


static ngx_int_t
ngx_http_sandbox_v1_code_tell_error(ngx_http_sandbox_op_code_t *code)
{
    ngx_http_sandbox_json_t  *j;

    if (code->error.failed) {
        return NGX_ERROR;
    }

    if (code->stream == NULL) {
        return NGX_OK;
    }

    j = ngx_http_sandbox_stream_event(code->stream, "error");
    ngx_http_sandbox_json_refer(j, &code->error, 0);

    return ngx_http_sandbox_stream_send(code->stream);
}


/* An interpreter's death is the error, whatever it said before. */

static ngx_int_t
ngx_http_sandbox_v1_code_died(ngx_http_sandbox_op_code_t *code,
    const sbx_f_ran_t *ran)
{
    u_char  text[512], *last;

    last = ngx_http_sandbox_op_code_death(ran, text, sizeof(text));
    ngx_http_sandbox_op_code_fail(code, "KernelDied", text, last - text);

    return ngx_http_sandbox_v1_code_tell_error(code);
}


static ngx_int_t
ngx_http_sandbox_v1_code_refused(ngx_http_sandbox_call_t *call,
    const sbx_f_error_t *error)
{
    const char                  *text;
    sbx_f_ran_t                  ran;
    ngx_http_sandbox_op_code_t  *code;

    code = call->data;

    text = ngx_http_sandbox_op_code_refusal(call, error, &ran);
    ngx_http_sandbox_op_code_fail(code, "KernelDied", (u_char *) text,
                                  ngx_strlen(text));

    if (ngx_http_sandbox_v1_code_tell_error(code) == NGX_ERROR) {
        return ngx_http_sandbox_op_finish(call, NGX_ERROR);
    }

    ngx_http_sandbox_op_code_note(call->request, code, &ran);

    return ngx_http_sandbox_op_finish(call,
                                 ngx_http_sandbox_v1_code_last(call, &ran));
}


/* ---- its end ------------------------------------------------------------ */


static ngx_int_t
ngx_http_sandbox_v1_code_end(ngx_http_sandbox_call_t *call, sbx_f_ran_t *ran)
{
    ngx_http_sandbox_op_code_t  *code;

    code = call->data;

    return ngx_http_sandbox_op_finish(call,
               (code->stream == NULL)
               ? ngx_http_sandbox_v1_code_answer(call, ran)
               : ngx_http_sandbox_v1_code_last(call, ran));
}


static ngx_int_t
ngx_http_sandbox_v1_code_answer(ngx_http_sandbox_call_t *call,
    const sbx_f_ran_t *ran)
{
    ngx_http_request_t          *r;
    ngx_http_sandbox_json_t      j;
    ngx_http_sandbox_op_code_t  *code;

    r = call->request;
    code = call->data;

    if ((ran->flags & SBX_RAN_DIED)
        && ngx_http_sandbox_v1_code_died(code, ran) != NGX_OK)
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
    ngx_http_sandbox_op_output_json(&j, &code->out, code->out.len,
                                    NGX_HTTP_SANDBOX_OP_OUTPUT_TEXT);
    ngx_http_sandbox_json_raw(&j, ",\"stderr\":");
    ngx_http_sandbox_op_output_json(&j, &code->err, code->err.len,
                                    NGX_HTTP_SANDBOX_OP_OUTPUT_TEXT);
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
    ngx_http_sandbox_op_code_t  *code;

    code = call->data;
    rc = ngx_http_sandbox_op_code_open(call);

    for (n = 0; n < 2 && rc != NGX_ERROR && rc != NGX_DONE; n++) {
        rc = ngx_http_sandbox_stream_text(code->stream,
                                          ngx_http_sandbox_v1_code_types[n],
                                          &code->text[n], 0, NULL, 0, 1);
    }

    if (rc != NGX_ERROR && rc != NGX_DONE && (ran->flags & SBX_RAN_DIED)) {
        rc = ngx_http_sandbox_v1_code_died(code, ran);
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
    ngx_http_sandbox_op_code_t  *code;

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
        ngx_http_sandbox_json_refer(j, &code->error, 1);
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
    ngx_http_sandbox_json_refer(j, &code->files, 0);
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
