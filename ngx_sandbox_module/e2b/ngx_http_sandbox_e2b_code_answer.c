/*
 * What is answered to code: lines of JSON, each sent at once, that have
 * nothing but ASCII, since clients decode each piece that arrives by itself.
 * An error waits for the end, which may know more of it.
 */

#include "ngx_http_sandbox_e2b_code.h"


/* milliseconds of silence, after which a line says that all is well */
#define NGX_HTTP_SANDBOX_E2B_CODE_IDLE    5000

/* how long a run may hold a worker that is to end; milliseconds */
#define NGX_HTTP_SANDBOX_E2B_CODE_STAY    (3600 * 1000)

/* milliseconds that the beginning of a line waits for its end */
#define NGX_HTTP_SANDBOX_E2B_CODE_MOMENT  50


/* Of stdout and stderr, what has not been told. */

typedef struct {
    u_char                          text[2][1024];
    size_t                          len[2];
} ngx_http_sandbox_e2b_own_t;


static ngx_int_t ngx_http_sandbox_e2b_code_begin(
    ngx_http_sandbox_call_t *call, const sbx_f_context_t *context);
static ngx_int_t ngx_http_sandbox_e2b_code_number(
    ngx_http_sandbox_op_code_t *code, uint64_t n);
static ngx_int_t ngx_http_sandbox_e2b_code_output(
    ngx_http_sandbox_call_t *call, ngx_uint_t n, const u_char *data,
    size_t len);
static ngx_int_t ngx_http_sandbox_e2b_code_text(
    ngx_http_sandbox_op_code_t *code, ngx_uint_t n, const u_char *data,
    size_t len, ngx_uint_t last);
static ngx_int_t ngx_http_sandbox_e2b_code_flush(
    ngx_http_sandbox_op_code_t *code, ngx_uint_t n);
static ngx_int_t ngx_http_sandbox_e2b_code_line(
    ngx_http_sandbox_op_code_t *code, ngx_uint_t n, const u_char *data,
    size_t len);
static ngx_int_t ngx_http_sandbox_e2b_code_flush_all(
    ngx_http_sandbox_op_code_t *code);
static void ngx_http_sandbox_e2b_code_moment(ngx_event_t *ev);
static ngx_int_t ngx_http_sandbox_e2b_code_ping(ngx_http_sandbox_stream_t *s);
static void ngx_http_sandbox_e2b_code_cut(ngx_http_sandbox_stream_t *s);
static ngx_int_t ngx_http_sandbox_e2b_code_result(
    ngx_http_sandbox_call_t *call);
static ngx_int_t ngx_http_sandbox_e2b_code_end(ngx_http_sandbox_call_t *call,
    sbx_f_ran_t *ran);
static ngx_int_t ngx_http_sandbox_e2b_code_refused(
    ngx_http_sandbox_call_t *call, const sbx_f_error_t *error);
static ngx_int_t ngx_http_sandbox_e2b_code_last(
    ngx_http_sandbox_op_code_t *code, const sbx_f_ran_t *ran);


static const char *const  ngx_http_sandbox_e2b_code_types[] = {
    "stdout", "stderr"
};


static const struct {
    ngx_str_t                       type;
    const char                     *member;
} ngx_http_sandbox_e2b_code_members[] = {
    { ngx_string("text/html"), ",\"html\":" },
    { ngx_string("text/markdown"), ",\"markdown\":" },
    { ngx_string("image/svg+xml"), ",\"svg\":" },
    { ngx_string("image/png"), ",\"png\":" },
    { ngx_string("image/jpeg"), ",\"jpeg\":" },
    { ngx_string("application/pdf"), ",\"pdf\":" },
    { ngx_string("text/latex"), ",\"latex\":" },
    { ngx_string("application/json"), ",\"json\":" },
    { ngx_string("application/javascript"), ",\"javascript\":" },
    { ngx_string("application/vnd.sandbox.data+json"), ",\"data\":" },
    { ngx_string("application/vnd.sandbox.chart+json"), ",\"chart\":" }
};


const ngx_http_sandbox_op_code_form_t  ngx_http_sandbox_e2b_code_form = {
    0,                                        /* wait */
    1,                                        /* ascii */
    0,                                        /* files */
    ngx_http_sandbox_e2b_code_begin,
    ngx_http_sandbox_e2b_code_output,
    ngx_http_sandbox_e2b_code_field,
    ngx_http_sandbox_e2b_code_kept,
    ngx_http_sandbox_e2b_code_result,
    ngx_http_sandbox_e2b_code_end,
    ngx_http_sandbox_e2b_code_refused,
    ngx_http_sandbox_e2b_code_missing
};


static ngx_int_t
ngx_http_sandbox_e2b_code_begin(ngx_http_sandbox_call_t *call,
    const sbx_f_context_t *context)
{
    return ngx_http_sandbox_op_sent(call,
                          ngx_http_sandbox_e2b_code_number(call->data,
                                                  context->executions + 1));
}


static ngx_int_t
ngx_http_sandbox_e2b_code_number(ngx_http_sandbox_op_code_t *code, uint64_t n)
{
    ngx_http_sandbox_json_t  *j;

    code->count = n;

    j = ngx_http_sandbox_stream_event(code->stream, "number_of_executions");
    ngx_http_sandbox_json_raw(j, ",\"execution_count\":");
    ngx_http_sandbox_json_int(j, (int64_t) n);

    return ngx_http_sandbox_stream_send(code->stream);
}


/* ---- output ------------------------------------------------------------- */


static ngx_int_t
ngx_http_sandbox_e2b_code_output(ngx_http_sandbox_call_t *call, ngx_uint_t n,
    const u_char *data, size_t len)
{
    return ngx_http_sandbox_op_sent(call,
                     ngx_http_sandbox_e2b_code_text(call->data, n, data, len,
                                                    0));
}


/* What does not end a line waits a moment for what may: a client is called
 * for each piece, and many programs write a line and its end separately. */

static ngx_int_t
ngx_http_sandbox_e2b_code_text(ngx_http_sandbox_op_code_t *code, ngx_uint_t n,
    const u_char *data, size_t len, ngx_uint_t last)
{
    ngx_http_sandbox_e2b_own_t  *own;

    own = code->data;

    if (ngx_http_sandbox_e2b_code_flush(code, !n) == NGX_ERROR
        || ngx_http_sandbox_stream_whole(code->stream, &code->text[n], &data,
                                         &len, last)
           != NGX_OK)
    {
        return NGX_ERROR;
    }

    if (last || len == 0 || data[len - 1] == '\n'
        || len > sizeof(own->text[n]) - own->len[n])
    {
        return ngx_http_sandbox_e2b_code_line(code, n, data, len);
    }

    ngx_memcpy(own->text[n] + own->len[n], data, len);
    own->len[n] += len;

    if (!code->waits.timer_set) {
        ngx_add_timer(&code->waits, NGX_HTTP_SANDBOX_E2B_CODE_MOMENT);
    }

    return ngx_http_sandbox_stream_behind(code->stream) ? NGX_AGAIN : NGX_OK;
}


static ngx_int_t
ngx_http_sandbox_e2b_code_flush(ngx_http_sandbox_op_code_t *code,
    ngx_uint_t n)
{
    ngx_http_sandbox_e2b_own_t  *own;

    own = code->data;

    return (own->len[n] == 0)
           ? NGX_OK : ngx_http_sandbox_e2b_code_line(code, n, NULL, 0);
}


/* What was kept, and what comes. */

static ngx_int_t
ngx_http_sandbox_e2b_code_line(ngx_http_sandbox_op_code_t *code, ngx_uint_t n,
    const u_char *data, size_t len)
{
    ngx_time_t                  *tp;
    ngx_http_sandbox_json_t     *j;
    ngx_http_sandbox_e2b_own_t  *own;

    own = code->data;

    if (own->len[n] + len == 0) {
        return ngx_http_sandbox_stream_behind(code->stream) ? NGX_AGAIN
                                                            : NGX_OK;
    }

    tp = ngx_timeofday();

    j = ngx_http_sandbox_stream_event(code->stream,
                                      ngx_http_sandbox_e2b_code_types[n]);
    j->ascii = 1;

    ngx_http_sandbox_json_raw(j, ",\"text\":\"");
    ngx_http_sandbox_json_chars(j, own->text[n], own->len[n]);
    ngx_http_sandbox_json_chars(j, data, len);
    ngx_http_sandbox_json_raw(j, "\",\"timestamp\":");
    ngx_http_sandbox_json_time(j, (int64_t) tp->sec * 1000
                                  + (int64_t) tp->msec);

    own->len[n] = 0;

    return ngx_http_sandbox_stream_send(code->stream);
}


static ngx_int_t
ngx_http_sandbox_e2b_code_flush_all(ngx_http_sandbox_op_code_t *code)
{
    ngx_uint_t  n;

    for (n = 0; n < 2; n++) {
        if (ngx_http_sandbox_e2b_code_flush(code, n) == NGX_ERROR) {
            return NGX_ERROR;
        }
    }

    return ngx_http_sandbox_stream_behind(code->stream) ? NGX_AGAIN : NGX_OK;
}


static void
ngx_http_sandbox_e2b_code_moment(ngx_event_t *ev)
{
    ngx_int_t                    rc;
    ngx_http_sandbox_call_t     *call;
    ngx_http_sandbox_op_code_t  *code;

    call = ev->data;
    code = call->data;

    if (call->closed) {
        return;
    }

    if (ngx_http_sandbox_stream_behind(code->stream)) {
        ngx_add_timer(ev, NGX_HTTP_SANDBOX_E2B_CODE_MOMENT);
        return;
    }

    rc = ngx_http_sandbox_e2b_code_flush_all(code);

    if (rc == NGX_AGAIN) {
        call->stopped = 1;

    } else if (rc != NGX_OK) {
        (void) ngx_http_sandbox_op_finish(call, rc);
    }
}


ngx_int_t
ngx_http_sandbox_e2b_code_lines(ngx_http_sandbox_op_code_t *code,
    ngx_http_request_t *r)
{
    code->data = ngx_pcalloc(r->pool, sizeof(ngx_http_sandbox_e2b_own_t));
    code->stream = ngx_http_sandbox_stream_create(r,
                                              NGX_HTTP_SANDBOX_STREAM_NDJSON);

    if (code->data == NULL || code->stream == NULL) {
        return NGX_ERROR;
    }

    code->waits.handler = ngx_http_sandbox_e2b_code_moment;

    code->stream->idle = NGX_HTTP_SANDBOX_E2B_CODE_IDLE;
    code->stream->stay = NGX_HTTP_SANDBOX_E2B_CODE_STAY;
    code->stream->ping = ngx_http_sandbox_e2b_code_ping;
    code->stream->cut = ngx_http_sandbox_e2b_code_cut;

    return NGX_OK;
}


static ngx_int_t
ngx_http_sandbox_e2b_code_ping(ngx_http_sandbox_stream_t *s)
{
    (void) ngx_http_sandbox_stream_event(s, "keepalive");

    return ngx_http_sandbox_stream_send(s);
}


/* The worker is to end, which interrupts the run. */

static void
ngx_http_sandbox_e2b_code_cut(ngx_http_sandbox_stream_t *s)
{
    sbx_f_ran_t                  ran;
    ngx_http_sandbox_op_code_t  *code;

    static const ngx_str_t  text =
        ngx_string("the server was told to end, and the run is interrupted");

    code = s->data;

    ngx_memzero(&ran, sizeof(sbx_f_ran_t));
    ngx_http_sandbox_op_code_fail(code, "UnexpectedEndOfExecution", text.data,
                                  text.len);

    (void) ngx_http_sandbox_op_finish(s->call,
                                  ngx_http_sandbox_e2b_code_last(code, &ran));
}


/* ---- results ------------------------------------------------------------ */


void
ngx_http_sandbox_e2b_code_field(ngx_http_sandbox_op_code_t *code,
    const ngx_str_t *name)
{
    ngx_uint_t                     i;
    ngx_http_sandbox_op_result_t  *result;

    result = &code->result;
    result->to = &result->json;

    if (ngx_http_sandbox_op_is(name, "text/plain")) {
        ngx_http_sandbox_json_raw(result->to, ",\"text\":");
        result->is_kept = 1;
        return;
    }

    for (i = 0; i < sbx_nelts(ngx_http_sandbox_e2b_code_members); i++) {
        if (ngx_http_sandbox_e2b_code_members[i].type.len == name->len
            && ngx_memcmp(ngx_http_sandbox_e2b_code_members[i].type.data,
                          name->data, name->len)
               == 0)
        {
            ngx_http_sandbox_json_raw(result->to,
                                 ngx_http_sandbox_e2b_code_members[i].member);
            return;
        }
    }

    /* what has no member of its own */

    if (result->kind != SBX_RESULT_ERROR) {
        result->to = &result->more;
    }

    ngx_http_sandbox_json_raw(result->to, ",");
    ngx_http_sandbox_json_string(result->to, name->data, name->len);
    ngx_http_sandbox_json_raw(result->to, ":");
}


/* A text that is one quoted string is told without its quotes. */

void
ngx_http_sandbox_e2b_code_kept(ngx_http_sandbox_op_code_t *code)
{
    size_t                         len;
    u_char                        *p;
    ngx_http_sandbox_op_result_t  *result;

    result = &code->result;
    p = result->text;
    len = result->text_len;

    if (len >= 2 && (p[0] == '\'' || p[0] == '"') && p[len - 1] == p[0]) {
        result->text_at = 1;
        result->text_len--;
    }
}


void
ngx_http_sandbox_e2b_code_whole(ngx_http_sandbox_op_code_t *code)
{
    ngx_http_sandbox_op_result_t  *result;

    result = &code->result;

    if (result->more.size != 0) {
        ngx_http_sandbox_json_raw(&result->json, ",\"extra\":{");

        /* but for its first comma */

        result->more.out->buf->pos++;
        result->more.size--;
        ngx_http_sandbox_json_join(&result->json, &result->more);
        ngx_http_sandbox_json_raw(&result->json, "}");
    }

    ngx_http_sandbox_json_raw(&result->json, ",\"is_main_result\":");
    ngx_http_sandbox_json_bool(&result->json,
                               result->kind == SBX_RESULT_MAIN);
}


static ngx_int_t
ngx_http_sandbox_e2b_code_result(ngx_http_sandbox_call_t *call)
{
    ngx_http_sandbox_json_t     *j;
    ngx_http_sandbox_op_code_t  *code;

    code = call->data;

    if (code->result.kind == SBX_RESULT_ERROR) {
        return ngx_http_sandbox_op_code_keep_error(code, call->request);
    }

    if (ngx_http_sandbox_e2b_code_flush_all(code) == NGX_ERROR) {
        return NGX_ERROR;
    }

    ngx_http_sandbox_e2b_code_whole(code);

    code->result.told = 1;

    j = ngx_http_sandbox_stream_event(code->stream, "result");
    ngx_http_sandbox_json_join(j, &code->result.json);

    return ngx_http_sandbox_stream_send(code->stream);
}


/* ---- its end ------------------------------------------------------------ */


/*
 * An interpreter's death is the error, whatever it said before, and so is
 * that a run has never begun.
 */

void
ngx_http_sandbox_e2b_code_settle(ngx_http_sandbox_op_code_t *code,
    const sbx_f_ran_t *ran)
{
    u_char       text[512], *last;
    const char  *name;

    static const ngx_str_t  never =
        ngx_string("the run was cancelled, or its context restarted or "
                   "removed, before its turn came");
    static const ngx_str_t  late =
        ngx_string("the time that a run may take here was over");
    static const ngx_str_t  stopped =
        ngx_string("the run was cancelled");

    if (!code->begun) {
        ngx_http_sandbox_op_code_fail(code, "ExecutionAborted", never.data,
                                      never.len);
        return;
    }

    if (ran->flags & SBX_RAN_DIED) {
        name = (ran->reason == SBX_REASON_CANCELLED)
               ? "UnexpectedEndOfExecution" : "ContextRestarting";

        last = ngx_http_sandbox_op_code_death(ran, text, sizeof(text));
        ngx_http_sandbox_op_code_fail(code, name, text, last - text);
        return;
    }

    if (ran->flags & SBX_RAN_TIMED_OUT) {
        ngx_http_sandbox_op_code_fail(code, "KeyboardInterrupt", late.data,
                                      late.len);
        return;
    }

    if ((ran->flags & SBX_RAN_CANCELLED) && code->error.size == 0) {
        ngx_http_sandbox_op_code_fail(code, "KeyboardInterrupt",
                                      stopped.data, stopped.len);
    }
}


static ngx_int_t
ngx_http_sandbox_e2b_code_end(ngx_http_sandbox_call_t *call, sbx_f_ran_t *ran)
{
    ngx_http_sandbox_op_code_t  *code;

    code = call->data;

    /* a client that finds no end asks whether the sandbox is still there */

    if (ran->reason == SBX_REASON_SESSION_ENDED) {
        return ngx_http_sandbox_op_finish(call, NGX_ERROR);
    }

    ngx_http_sandbox_e2b_code_settle(code, ran);

    return ngx_http_sandbox_op_finish(call,
                                   ngx_http_sandbox_e2b_code_last(code, ran));
}


static ngx_int_t
ngx_http_sandbox_e2b_code_refused(ngx_http_sandbox_call_t *call,
    const sbx_f_error_t *error)
{
    const char                  *text;
    sbx_f_ran_t                  ran;
    ngx_http_sandbox_op_code_t  *code;

    code = call->data;

    if (error->code == SBX_E_SESSION) {
        return ngx_http_sandbox_op_finish(call, NGX_ERROR);
    }

    text = ngx_http_sandbox_op_code_refusal(call, error, &ran);
    ngx_http_sandbox_op_code_fail(code, "UnexpectedEndOfExecution",
                                  (u_char *) text, ngx_strlen(text));
    ngx_http_sandbox_op_code_note(call->request, code, &ran);

    return ngx_http_sandbox_op_finish(call,
                                  ngx_http_sandbox_e2b_code_last(code, &ran));
}


/* A client that is behind gets the last lines all the same. */

static ngx_int_t
ngx_http_sandbox_e2b_code_last(ngx_http_sandbox_op_code_t *code,
    const sbx_f_ran_t *ran)
{
    ngx_int_t                 rc;
    ngx_uint_t                n;
    ngx_http_sandbox_json_t  *j;

    static const ngx_str_t  cut =
        ngx_string("\n(results of more than 10 MiB, or what could not be "
                   "told, were left out)\n");

    rc = ngx_http_sandbox_op_code_open(code->stream->call);

    for (n = 0; n < 2 && rc != NGX_ERROR; n++) {
        rc = ngx_http_sandbox_e2b_code_text(code, n, NULL, 0, 1);
    }

    if (rc != NGX_ERROR && (ran->flags & SBX_RAN_RESULTS_CUT)) {
        rc = ngx_http_sandbox_e2b_code_text(code, 1, cut.data, cut.len, 1);
    }

    if (rc != NGX_ERROR && ran->execution != 0
        && ran->execution != code->count)
    {
        rc = ngx_http_sandbox_e2b_code_number(code, ran->execution);
    }

    if (code->error.failed) {
        rc = NGX_ERROR;
    }

    if (rc != NGX_ERROR && code->error.size != 0) {
        j = ngx_http_sandbox_stream_event(code->stream, "error");
        ngx_http_sandbox_json_refer(j, &code->error, 0);
        rc = ngx_http_sandbox_stream_send(code->stream);
    }

    if (rc == NGX_ERROR) {
        return NGX_ERROR;
    }

    (void) ngx_http_sandbox_stream_event(code->stream, "end_of_execution");

    return ngx_http_sandbox_stream_last(code->stream);
}
