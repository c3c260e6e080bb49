/*
 * A command's output as a stream of events: of one that runs for this
 * request, or of a process that is looked at.
 */

#include "ngx_http_sandbox_v1_exec.h"
#include "sandbox_fault.h"


static ngx_int_t ngx_http_sandbox_v1_follow_open(
    ngx_http_sandbox_call_t *call);
static ngx_int_t ngx_http_sandbox_v1_follow_started(
    ngx_http_sandbox_call_t *call, int32_t pid);
static ngx_int_t ngx_http_sandbox_v1_follow_output(
    ngx_http_sandbox_call_t *call, const sbx_f_output_t *output);
static ngx_int_t ngx_http_sandbox_v1_follow_text(
    ngx_http_sandbox_call_t *call, ngx_uint_t n, const u_char *data,
    size_t len);
static ngx_int_t ngx_http_sandbox_v1_follow_exit(
    ngx_http_sandbox_call_t *call, const sbx_f_exit_t *end);
static void ngx_http_sandbox_v1_follow_leaving(ngx_http_sandbox_stream_t *s);


static const char *const  ngx_http_sandbox_v1_follow_types[] = {
    "stdout", "stderr"
};


ngx_int_t
ngx_http_sandbox_v1_exec_follow(ngx_http_sandbox_call_t *call,
    const sbx_frame_t *frame, const u_char *payload)
{
    ngx_int_t        rc;
    sbx_f_exit_t     end;
    sbx_f_output_t   output;
    sbx_f_started_t  started;

    switch (frame->type) {

    case SBX_F_STARTED:
        ngx_memcpy(&started, payload, sizeof(sbx_f_started_t));
        rc = ngx_http_sandbox_v1_follow_started(call, started.pid);
        break;

    case SBX_F_OUTPUT:
        ngx_memcpy(&output, payload, sizeof(sbx_f_output_t));
        rc = ngx_http_sandbox_v1_follow_output(call, &output);
        break;

    case SBX_F_STDOUT:
    case SBX_F_STDERR:
        rc = ngx_http_sandbox_v1_follow_text(call,
                                             frame->type == SBX_F_STDERR,
                                             payload, frame->length);
        break;

    case SBX_F_EXIT:
        ngx_memcpy(&end, payload, sizeof(sbx_f_exit_t));
        return ngx_http_sandbox_v1_follow_exit(call, &end);

    default:
        return NGX_DECLINED;
    }

    switch (rc) {

    case NGX_ERROR:
        return ngx_http_sandbox_op_finish(call, NGX_ERROR);

    case NGX_DONE:

        /* the header was all that was asked for */

        return ngx_http_sandbox_op_finish(call, NGX_OK);

    default:
        return rc;
    }
}


static ngx_int_t
ngx_http_sandbox_v1_follow_open(ngx_http_sandbox_call_t *call)
{
    ngx_http_sandbox_v1_command_t  *command;

    command = call->data;

    if (call->request->header_sent) {
        ngx_log_error(NGX_LOG_ERR, call->request->connection->log, 0,
                      "sandbox began a stream twice");
        return NGX_ERROR;
    }

    if (command->background || command->detach) {
        command->stream->cut = ngx_http_sandbox_v1_follow_leaving;
    }

    /* what is still to be read of its standard input would be lost */

    if (command->background || (command->detach && !command->fed)) {
        command->stream->leaving = ngx_http_sandbox_v1_follow_leaving;
    }

    return ngx_http_sandbox_stream_open(command->stream);
}


static ngx_int_t
ngx_http_sandbox_v1_follow_started(ngx_http_sandbox_call_t *call, int32_t pid)
{
    ngx_int_t                       rc;
    ngx_http_sandbox_json_t        *j;
    ngx_http_sandbox_v1_command_t  *command;

    command = call->data;
    command->pid = pid;
    ngx_http_sandbox_ctx(call->request)->pid = pid;

    rc = ngx_http_sandbox_v1_follow_open(call);

    if (rc != NGX_OK) {
        return rc;
    }

    j = ngx_http_sandbox_stream_event(command->stream, "start");
    ngx_http_sandbox_json_raw(j, ",\"pid\":");
    ngx_http_sandbox_json_int(j, pid);
    SBX_FAULT("worker-stream-started");

    return ngx_http_sandbox_stream_send(command->stream);
}


static ngx_int_t
ngx_http_sandbox_v1_follow_output(ngx_http_sandbox_call_t *call,
    const sbx_f_output_t *output)
{
    ngx_http_sandbox_v1_command_t  *command;

    command = call->data;

    command->text[0].offset = output->from[0];
    command->text[1].offset = output->from[1];

    return ngx_http_sandbox_v1_follow_open(call);
}


static ngx_int_t
ngx_http_sandbox_v1_follow_text(ngx_http_sandbox_call_t *call, ngx_uint_t n,
    const u_char *data, size_t len)
{
    ngx_http_request_t             *r;
    ngx_http_sandbox_v1_command_t  *command;

    r = call->request;
    command = call->data;

    if (r->header_sent) {
        SBX_FAULT("worker-stream-output");
        return ngx_http_sandbox_stream_text(command->stream,
                                       ngx_http_sandbox_v1_follow_types[n],
                                       &command->text[n], command->base64,
                                       data, len, 0);
    }

    /* why a command did not start comes before what tells its pid */

    if (n == 0 || command->fault.data != NULL || len == 0) {
        ngx_log_error(NGX_LOG_ERR, r->connection->log, 0,
                      "sandbox sent output of nothing");
        return NGX_ERROR;
    }

    command->fault.data = ngx_pnalloc(r->pool, len);

    if (command->fault.data == NULL) {
        return NGX_ERROR;
    }

    ngx_memcpy(command->fault.data, data, len);
    command->fault.len = len;

    return NGX_OK;
}


static ngx_int_t
ngx_http_sandbox_v1_follow_exit(ngx_http_sandbox_call_t *call,
    const sbx_f_exit_t *end)
{
    ngx_int_t                       rc;
    ngx_uint_t                      n;
    ngx_http_request_t             *r;
    ngx_http_sandbox_json_t        *j;
    ngx_http_sandbox_v1_command_t  *command;

    r = call->request;
    command = call->data;
    SBX_FAULT("worker-stream-over");

    if (ngx_http_sandbox_op_exit(r, end) != NGX_OK) {
        return ngx_http_sandbox_op_broken(call, "an end that cannot be");
    }

    rc = r->header_sent ? NGX_OK
                        : ngx_http_sandbox_v1_follow_started(call, end->pid);

    for (n = 0; n < 2 && rc != NGX_ERROR && rc != NGX_DONE; n++) {
        rc = ngx_http_sandbox_stream_text(command->stream,
                                       ngx_http_sandbox_v1_follow_types[n],
                                       &command->text[n], command->base64,
                                       n ? command->fault.data : NULL,
                                       n ? command->fault.len : 0, 1);
    }

    if (rc != NGX_ERROR && rc != NGX_DONE) {
        j = ngx_http_sandbox_stream_event(command->stream, "exit");
        ngx_http_sandbox_json_raw(j, ",\"pid\":");
        ngx_http_sandbox_json_int(j, end->pid);
        ngx_http_sandbox_json_raw(j, ",");
        ngx_http_sandbox_v1_exec_members(j, end, NULL);

        rc = ngx_http_sandbox_stream_send(command->stream);
    }

    if (rc == NGX_OK || rc == NGX_AGAIN) {
        rc = ngx_http_sandbox_stream_close(command->stream);
    }

    return ngx_http_sandbox_op_finish(call, (rc == NGX_DONE) ? NGX_OK : rc);
}


/* The process goes on, and so does its output, in another worker. */

static void
ngx_http_sandbox_v1_follow_leaving(ngx_http_sandbox_stream_t *s)
{
    ngx_uint_t                      n;
    sbx_f_process_t                 leave;
    ngx_http_sandbox_json_t        *j;
    ngx_http_sandbox_v1_command_t  *command;

    command = s->data;

    ngx_memzero(&leave, sizeof(sbx_f_process_t));
    leave.verb = SBX_PROCESS_LEAVE;
    leave.pid = command->pid;

    for (n = 0; n < 2; n++) {
        leave.from[n] = command->text[n].offset - command->text[n].tail_len;
    }

    /* before the client can be back */

    ngx_http_sandbox_call_part(s->call, SBX_F_PROCESS, &leave,
                               sizeof(sbx_f_process_t));

    j = ngx_http_sandbox_stream_event(s, "resume");
    ngx_http_sandbox_json_raw(j, ",\"pid\":");
    ngx_http_sandbox_json_int(j, command->pid);
    ngx_http_sandbox_json_raw(j, ",\"stdout_from\":");
    ngx_http_sandbox_json_int(j, (int64_t) leave.from[0]);
    ngx_http_sandbox_json_raw(j, ",\"stderr_from\":");
    ngx_http_sandbox_json_int(j, (int64_t) leave.from[1]);

    (void) ngx_http_sandbox_op_finish(s->call,
                                      ngx_http_sandbox_stream_last(s));
}
