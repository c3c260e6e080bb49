/*
 * The events of a process, as a stream of Connect: "start" first, then what
 * it writes, then "end".  The words for an end are those that Go has.
 */

#include "ngx_http_sandbox_e2b_process.h"


#define NGX_HTTP_SANDBOX_E2B_DATA     32768     /* bytes in an event */


typedef struct {
    ngx_http_sandbox_e2b_selector_t   process;
    uint32_t                          replay;
} ngx_http_sandbox_e2b_connect_t;


static ngx_int_t ngx_http_sandbox_e2b_connect_frame(
    ngx_http_sandbox_call_t *call, const sbx_frame_t *frame,
    const u_char *payload, ngx_fd_t fd);
static ngx_int_t ngx_http_sandbox_e2b_connect_output(
    ngx_http_sandbox_call_t *call, const sbx_f_output_t *output);
static void ngx_http_sandbox_e2b_end_json(ngx_http_sandbox_json_t *j,
    const sbx_f_exit_t *end);
static void ngx_http_sandbox_e2b_signal_text(u_char *text, size_t size,
    int32_t number);


static const char  ngx_http_sandbox_e2b_keepalive[] =
    "{\"event\":{\"keepalive\":{}}}";


/* As Go's syscall.Signal says them. */

static const char *const  ngx_http_sandbox_e2b_signals[] = {
    NULL, "hangup", "interrupt", "quit", "illegal instruction",
    "trace/breakpoint trap", "aborted", "bus error",
    "floating point exception", "killed", "user defined signal 1",
    "segmentation fault", "user defined signal 2", "broken pipe",
    "alarm clock", "terminated", "stack fault", "child exited", "continued",
    "stopped (signal)", "stopped", "stopped (tty input)",
    "stopped (tty output)", "urgent I/O condition",
    "CPU time limit exceeded", "file size limit exceeded",
    "virtual timer expired", "profiling timer expired", "window changed",
    "I/O possible", "power failure", "bad system call"
};


/* Why the core ended it; NULL: it did not. */

static const char *const  ngx_http_sandbox_e2b_reasons[SBX_REASON_MAX] = {
    [SBX_REASON_TIMEOUT] = "its time was over",
    [SBX_REASON_MEMORY] = "its memory limit was reached",
    [SBX_REASON_CPU_TIME] = "its limit of processor time was reached",
    [SBX_REASON_CANCELLED] = "all commands were cancelled",
    [SBX_REASON_DISCONNECTED] = "its client went away"
};


ngx_http_sandbox_e2b_events_t *
ngx_http_sandbox_e2b_events(ngx_http_request_t *r, uint64_t ms)
{
    ngx_http_sandbox_e2b_events_t  *events;

    events = ngx_pcalloc(r->pool, sizeof(ngx_http_sandbox_e2b_events_t));

    if (events == NULL) {
        return NULL;
    }

    events->stream = ngx_http_sandbox_e2b_stream(r,
                                        ngx_http_sandbox_e2b_keepalive, ms);

    if (events->stream == NULL) {
        return NULL;
    }

    events->stream->data = events;

    return events;
}


ngx_int_t
ngx_http_sandbox_e2b_event_start(ngx_http_sandbox_call_t *call, int32_t pid)
{
    ngx_int_t                       rc;
    ngx_http_sandbox_json_t        *j;
    ngx_http_sandbox_e2b_events_t  *events;

    events = call->data;

    if (call->request->header_sent) {
        ngx_log_error(NGX_LOG_ERR, call->request->connection->log, 0,
                      "sandbox began a stream twice");
        return NGX_ERROR;
    }

    ngx_http_sandbox_ctx(call->request)->pid = pid;

    /* from here on it is the process that takes its time */

    call->timeout = 0;

    rc = ngx_http_sandbox_stream_open(events->stream);

    if (rc != NGX_OK) {
        return rc;
    }

    j = ngx_http_sandbox_stream_event(events->stream, NULL);

    ngx_http_sandbox_json_raw(j, "{\"event\":{\"start\":{\"pid\":");
    ngx_http_sandbox_json_int(j, pid);
    ngx_http_sandbox_json_raw(j, "}}}");

    return ngx_http_sandbox_stream_send(events->stream);
}


ngx_int_t
ngx_http_sandbox_e2b_event_data(ngx_http_sandbox_call_t *call,
    ngx_uint_t is_stderr, const u_char *data, size_t len)
{
    size_t                          n;
    ngx_int_t                       rc;
    ngx_http_sandbox_json_t        *j;
    ngx_http_sandbox_e2b_events_t  *events;

    events = call->data;

    for (rc = NGX_OK; len != 0 && rc != NGX_ERROR; data += n, len -= n) {
        n = ngx_min(len, NGX_HTTP_SANDBOX_E2B_DATA);
        j = ngx_http_sandbox_stream_event(events->stream, NULL);

        ngx_http_sandbox_json_raw(j, "{\"event\":{\"data\":{");
        ngx_http_sandbox_json_raw(j, events->tty ? "\"pty\":"
                                     : is_stderr ? "\"stderr\":"
                                     : "\"stdout\":");
        ngx_http_sandbox_json_base64(j, data, n);
        ngx_http_sandbox_json_raw(j, "}}}");

        rc = ngx_http_sandbox_stream_send(events->stream);
    }

    return rc;
}


ngx_int_t
ngx_http_sandbox_e2b_event_end(ngx_http_sandbox_call_t *call,
    const sbx_f_exit_t *end)
{
    ngx_int_t                       rc;
    ngx_http_request_t             *r;
    ngx_http_sandbox_json_t        *j;
    ngx_http_sandbox_e2b_events_t  *events;

    r = call->request;
    events = call->data;

    if (ngx_http_sandbox_op_exit(r, end) != NGX_OK) {
        return ngx_http_sandbox_op_broken(call, "an end that cannot be");
    }

    if (end->reason == SBX_REASON_SESSION_ENDED) {

        /* an end would be that of the process, and there is more to it */

        return ngx_http_sandbox_op_finish(call,
                   r->header_sent ? NGX_ERROR
                   : ngx_http_sandbox_problem(r,
                                          NGX_HTTP_SANDBOX_SESSION_NOT_FOUND,
                                          NULL));
    }

    if (events->started && end->reason == SBX_REASON_TIMEOUT) {
        return ngx_http_sandbox_op_finish(call,
                   ngx_http_sandbox_e2b_error(r, "deadline_exceeded",
                                              "the time of process %D is "
                                              "over", end->pid));
    }

    rc = NGX_OK;

    if (!r->header_sent) {
        rc = ngx_http_sandbox_e2b_event_start(call, end->pid);
    }

    if (rc == NGX_OK || rc == NGX_AGAIN) {
        j = ngx_http_sandbox_stream_event(events->stream, NULL);
        ngx_http_sandbox_e2b_end_json(j, end);
        rc = ngx_http_sandbox_stream_send(events->stream);
    }

    if (rc == NGX_OK || rc == NGX_AGAIN) {
        rc = ngx_http_sandbox_stream_close(events->stream);
    }

    return ngx_http_sandbox_op_finish(call, (rc == NGX_DONE) ? NGX_OK : rc);
}


static void
ngx_http_sandbox_e2b_end_json(ngx_http_sandbox_json_t *j,
    const sbx_f_exit_t *end)
{
    u_char       status[64];
    ngx_uint_t   exited;
    const char  *reason;

    exited = (end->signal == 0 && end->reason == SBX_REASON_EXITED);
    reason = ngx_http_sandbox_e2b_reasons[end->reason];

    if (exited) {
        *ngx_snprintf(status, sizeof(status) - 1, "exit status %D",
                      end->exit_code) = '\0';

    } else {
        ngx_http_sandbox_e2b_signal_text(status, sizeof(status),
                                         end->signal ? end->signal : 9);
    }

    ngx_http_sandbox_json_raw(j, "{\"event\":{\"end\":{\"exitCode\":");
    ngx_http_sandbox_json_int(j, exited ? end->exit_code : -1);
    ngx_http_sandbox_json_raw(j, ",\"exited\":");
    ngx_http_sandbox_json_bool(j, exited);
    ngx_http_sandbox_json_raw(j, ",\"status\":");
    ngx_http_sandbox_json_cstring(j, (char *) status);

    if (!exited || end->exit_code != 0) {
        ngx_http_sandbox_json_raw(j, ",\"error\":\"");
        ngx_http_sandbox_json_raw(j, (char *) status);

        if (reason != NULL) {
            ngx_http_sandbox_json_raw(j, ": ");
            ngx_http_sandbox_json_raw(j, reason);
        }

        ngx_http_sandbox_json_raw(j, "\"");
    }

    ngx_http_sandbox_json_raw(j, "}}}");
}


static void
ngx_http_sandbox_e2b_signal_text(u_char *text, size_t size, int32_t number)
{
    if (number < (int32_t) sbx_nelts(ngx_http_sandbox_e2b_signals)) {
        *ngx_snprintf(text, size - 1, "signal: %s",
                      ngx_http_sandbox_e2b_signals[number]) = '\0';
        return;
    }

    *ngx_snprintf(text, size - 1, "signal: signal %D", number) = '\0';
}


/* ---- Connect ------------------------------------------------------------ */


ngx_int_t
ngx_http_sandbox_e2b_process_connect(ngx_http_request_t *r)
{
    uint64_t                        ms;
    ngx_int_t                       rc;
    sbx_error_t                     e;
    sbx_f_process_t                *process;
    ngx_http_sandbox_call_t        *call;
    ngx_http_sandbox_e2b_events_t  *events;
    ngx_http_sandbox_e2b_connect_t  body;

    static const sbx_json_field_t  fields[] = {
        NGX_HTTP_SANDBOX_E2B_SELECTOR(ngx_http_sandbox_e2b_connect_t,
                                      process),
        { .name = "replay", .type = SBX_JSON_BOOL, .nullable = 1,
          .offset = offsetof(ngx_http_sandbox_e2b_connect_t, replay) },
        NGX_HTTP_SANDBOX_E2B_LAX
    };

    ngx_memzero(&body, sizeof(body));

    if (ngx_http_sandbox_e2b_bind_stream(r, fields, &body, &e) != 0
        || ngx_http_sandbox_e2b_timeout(r, &ms, &e) != 0)
    {
        return ngx_http_sandbox_problem_core(r, &e);
    }

    events = ngx_http_sandbox_e2b_events(r, ms);

    if (events == NULL) {
        return ngx_http_sandbox_problem(r, NGX_HTTP_SANDBOX_INTERNAL, NULL);
    }

    process = &events->process;

    if (ngx_http_sandbox_e2b_select(r, &body.process, process, &rc)
        != NGX_OK)
    {
        return rc;
    }

    process->verb = SBX_PROCESS_OUTPUT;
    process->flags = body.replay ? 0 : SBX_PROCESS_LIVE;
    process->from[0] = SBX_UNSET;
    process->from[1] = SBX_UNSET;

    call = ngx_http_sandbox_e2b_process_call(r, process, events);

    if (call != NULL) {
        events->stream->call = call;
        call->frame = ngx_http_sandbox_e2b_connect_frame;
    }

    return ngx_http_sandbox_op_start(r, call);
}


static ngx_int_t
ngx_http_sandbox_e2b_connect_frame(ngx_http_sandbox_call_t *call,
    const sbx_frame_t *frame, const u_char *payload, ngx_fd_t fd)
{
    ngx_int_t                       rc;
    sbx_f_exit_t                    end;
    sbx_f_output_t                  output;
    ngx_http_request_t             *r;
    ngx_http_sandbox_e2b_events_t  *events;

    r = call->request;
    events = call->data;

    if (frame->type == SBX_F_ERROR && !r->header_sent) {
        return ngx_http_sandbox_op_finish(call,
                   ngx_http_sandbox_e2b_process_refuse(r, &events->process,
                                       (const sbx_f_error_t *) payload,
                                       "failed_precondition",
                                       "error connecting to the process"));
    }

    rc = ngx_http_sandbox_op_frame(call, frame, payload, fd);

    if (rc != NGX_DECLINED) {
        return rc;
    }

    if (r->header_sent == (frame->type == SBX_F_OUTPUT)) {
        return ngx_http_sandbox_op_broken(call, "a wrong frame for output");
    }

    switch (frame->type) {

    case SBX_F_OUTPUT:
        ngx_memcpy(&output, payload, sizeof(sbx_f_output_t));
        rc = ngx_http_sandbox_e2b_connect_output(call, &output);
        break;

    case SBX_F_STDOUT:
    case SBX_F_STDERR:
        rc = ngx_http_sandbox_e2b_event_data(call,
                                             frame->type == SBX_F_STDERR,
                                             payload, frame->length);
        break;

    case SBX_F_EXIT:
        ngx_memcpy(&end, payload, sizeof(sbx_f_exit_t));
        return ngx_http_sandbox_e2b_event_end(call, &end);

    default:
        return ngx_http_sandbox_op_broken(call, "a wrong frame for output");
    }

    return ngx_http_sandbox_op_sent(call, rc);
}


static ngx_int_t
ngx_http_sandbox_e2b_connect_output(ngx_http_sandbox_call_t *call,
    const sbx_f_output_t *output)
{
    ngx_http_sandbox_e2b_events_t  *events;

    events = call->data;
    events->tty = (output->flags & SBX_STATE_TTY) != 0;

    return ngx_http_sandbox_e2b_event_start(call, output->pid);
}
