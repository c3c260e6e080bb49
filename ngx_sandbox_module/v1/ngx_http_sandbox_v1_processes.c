/*
 * The processes of a session: commands, in the background or not, and what
 * ended ones left behind.
 */

#include "ngx_http_sandbox_v1_exec.h"


typedef struct {
    ngx_http_sandbox_json_t         json;
    ngx_uint_t                      count;
    unsigned                        list:1;
} ngx_http_sandbox_v1_processes_t;

typedef struct {
    uint64_t                        rows;
    uint64_t                        cols;
} ngx_http_sandbox_v1_size_t;


static ngx_int_t ngx_http_sandbox_v1_processes_ask(ngx_http_request_t *r,
    const sbx_f_process_t *process);
static ngx_int_t ngx_http_sandbox_v1_processes_frame(
    ngx_http_sandbox_call_t *call, const sbx_frame_t *frame,
    const u_char *payload, ngx_fd_t fd);
static ngx_int_t ngx_http_sandbox_v1_processes_add(
    ngx_http_sandbox_v1_processes_t *processes, const u_char *payload,
    size_t len);
static ngx_int_t ngx_http_sandbox_v1_process_output_frame(
    ngx_http_sandbox_call_t *call, const sbx_frame_t *frame,
    const u_char *payload, ngx_fd_t fd);
static ngx_int_t ngx_http_sandbox_v1_process_act(ngx_http_request_t *r,
    const sbx_f_process_t *process);
static ngx_int_t ngx_http_sandbox_v1_cancel_frame(
    ngx_http_sandbox_call_t *call, const sbx_frame_t *frame,
    const u_char *payload, ngx_fd_t fd);


/* By sbx_kind_t. */

static const char *const  ngx_http_sandbox_v1_kinds[] = {
    "command", "orphan", "terminal", "code"
};


int
ngx_http_sandbox_v1_process_pid(ngx_http_request_t *r,
    sbx_f_process_t *process, sbx_error_t *e)
{
    ngx_int_t                n;
    ngx_http_sandbox_ctx_t  *ctx;

    ctx = ngx_http_sandbox_ctx(r);
    n = ngx_atoi(ctx->item.data, ctx->item.len);

    if (n == NGX_ERROR || n < 1 || n > NGX_MAX_INT32_VALUE) {
        return sbx_error(e, 0, SBX_E_PROCESS, "there is no such process");
    }

    process->pid = (int32_t) n;

    return 0;
}


ngx_http_sandbox_call_t *
ngx_http_sandbox_v1_process_call(ngx_http_request_t *r,
    const sbx_f_process_t *process, void *data)
{
    ngx_http_sandbox_call_t  *call;

    call = ngx_http_sandbox_op_call(r, SBX_OP_PROCESS, NULL, 0,
                                    NGX_INVALID_FILE, data);

    if (call == NULL
        || ngx_http_sandbox_call_queue(call, SBX_F_PROCESS, process,
                                       sizeof(sbx_f_process_t))
           != NGX_OK)
    {
        return NULL;
    }

    return call;
}


/* ---- the table ---------------------------------------------------------- */


ngx_int_t
ngx_http_sandbox_v1_process_list(ngx_http_request_t *r)
{
    sbx_f_process_t  process;

    ngx_memzero(&process, sizeof(sbx_f_process_t));
    process.verb = SBX_PROCESS_LIST;

    return ngx_http_sandbox_v1_processes_ask(r, &process);
}


ngx_int_t
ngx_http_sandbox_v1_process_get(ngx_http_request_t *r)
{
    sbx_error_t      e;
    sbx_f_process_t  process;

    ngx_memzero(&process, sizeof(sbx_f_process_t));
    process.verb = SBX_PROCESS_GET;

    if (ngx_http_sandbox_v1_process_pid(r, &process, &e) != 0) {
        return ngx_http_sandbox_problem_core(r, &e);
    }

    return ngx_http_sandbox_v1_processes_ask(r, &process);
}


static ngx_int_t
ngx_http_sandbox_v1_processes_ask(ngx_http_request_t *r,
    const sbx_f_process_t *process)
{
    ngx_http_sandbox_call_t          *call;
    ngx_http_sandbox_v1_processes_t  *processes;

    processes = ngx_pcalloc(r->pool, sizeof(ngx_http_sandbox_v1_processes_t));

    if (processes == NULL) {
        return ngx_http_sandbox_problem(r, NGX_HTTP_SANDBOX_INTERNAL, NULL);
    }

    ngx_http_sandbox_json_init(&processes->json, r->pool);

    if (process->verb == SBX_PROCESS_LIST) {
        processes->list = 1;
        ngx_http_sandbox_json_raw(&processes->json, "{\"processes\":[");
    }

    call = ngx_http_sandbox_v1_process_call(r, process, processes);

    if (call != NULL) {
        call->frame = ngx_http_sandbox_v1_processes_frame;
    }

    return ngx_http_sandbox_op_start(r, call);
}


static ngx_int_t
ngx_http_sandbox_v1_processes_frame(ngx_http_sandbox_call_t *call,
    const sbx_frame_t *frame, const u_char *payload, ngx_fd_t fd)
{
    ngx_int_t                         rc;
    ngx_http_sandbox_v1_processes_t  *processes;

    processes = call->data;

    rc = ngx_http_sandbox_op_frame(call, frame, payload, fd);

    if (rc != NGX_DECLINED) {
        return rc;
    }

    if (frame->type == SBX_F_STATE
        && (processes->list || processes->count == 0))
    {
        if (ngx_http_sandbox_op_full(call->request, processes->json.size,
                                     NGX_HTTP_SANDBOX_V1_LIST_MAX))
        {
            return ngx_http_sandbox_op_crowded(call);
        }

        if (ngx_http_sandbox_v1_processes_add(processes, payload,
                                              frame->length)
            == NGX_OK)
        {
            return NGX_OK;
        }

        return ngx_http_sandbox_op_broken(call, "a process that cannot be");
    }

    if (frame->type != SBX_F_END
        || (!processes->list && processes->count != 1))
    {
        return ngx_http_sandbox_op_broken(call, "a wrong frame for process");
    }

    if (processes->list) {
        ngx_http_sandbox_json_raw(&processes->json, "]}");
    }

    return ngx_http_sandbox_op_finish(call,
               ngx_http_sandbox_json_send(call->request, NGX_HTTP_OK,
                                          &processes->json));
}


static void
ngx_http_sandbox_v1_process_command(ngx_http_sandbox_json_t *j,
    const sbx_f_state_t *state, const char *args)
{
    size_t    len;
    uint32_t  i;

    ngx_http_sandbox_json_raw(j, ",\"cmd\":[");

    for (i = 0; i < state->argc; i++) {
        len = ngx_strlen(args);

        ngx_http_sandbox_json_raw(j, (i == 0) ? "" : ",");
        ngx_http_sandbox_json_string(j, args, len);

        args += len + 1;
    }

    ngx_http_sandbox_json_raw(j, "]");
}


static ngx_int_t
ngx_http_sandbox_v1_processes_add(ngx_http_sandbox_v1_processes_t *processes,
    const u_char *payload, size_t len)
{
    const char               *cwd, *tag, *args, *word;
    ngx_uint_t                over;
    sbx_f_state_t             state;
    ngx_http_sandbox_json_t  *j;

    if (sbx_wire_check_state(payload, len, &state, &cwd, &tag, &args) != 0) {
        return NGX_ERROR;
    }

    over = (state.flags & SBX_STATE_EXITED) && state.kind != SBX_KIND_ORPHAN;

    if (over && (sbx_reason_word(state.exit.reason) == NULL
                 || state.exit.signal < 0 || state.exit.signal > 64))
    {
        return NGX_ERROR;
    }

    j = &processes->json;

    ngx_http_sandbox_json_raw(j, (processes->count++ == 0) ? "{\"pid\":"
                                                           : ",{\"pid\":");
    ngx_http_sandbox_json_int(j, state.pid);
    ngx_http_sandbox_v1_process_command(j, &state, args);
    ngx_http_sandbox_op_cwd_json(j, cwd, state.cwd_len);
    ngx_http_sandbox_json_raw(j, state.user == SBX_USER_ROOT
                                 ? ",\"user\":\"root\",\"tag\":"
                                 : ",\"user\":\"user\",\"tag\":");

    if (state.tag_len != 0) {
        ngx_http_sandbox_json_string(j, tag, state.tag_len);

    } else {
        ngx_http_sandbox_json_raw(j, "null");
    }

    word = (state.flags & SBX_STATE_EXITED) ? "exited"
           : (state.flags & SBX_STATE_PAUSED) ? "paused" : "running";

    ngx_http_sandbox_json_raw(j, ",\"kind\":");
    ngx_http_sandbox_json_cstring(j, ngx_http_sandbox_v1_kinds[state.kind]);
    ngx_http_sandbox_json_raw(j, ",\"state\":");
    ngx_http_sandbox_json_cstring(j, word);
    ngx_http_sandbox_json_raw(j, ",\"started_at\":");
    ngx_http_sandbox_json_time(j, state.started);
    ngx_http_sandbox_json_raw(j, ",");

    if (!over) {
        ngx_http_sandbox_json_raw(j, "\"exit_code\":null");

    } else if (processes->list) {
        ngx_http_sandbox_json_raw(j, "\"exit_code\":");
        ngx_http_sandbox_json_int(j, state.exit.exit_code);

    } else {
        ngx_http_sandbox_v1_exec_members(j, &state.exit, NULL);
    }

    ngx_http_sandbox_json_raw(j, "}");

    return NGX_OK;
}


/* ---- output ------------------------------------------------------------- */


ngx_int_t
ngx_http_sandbox_v1_process_output(ngx_http_request_t *r)
{
    ngx_str_t                       encoding;
    sbx_error_t                     e;
    sbx_f_process_t                 process;
    ngx_http_sandbox_call_t        *call;
    ngx_http_sandbox_stream_e       form;
    ngx_http_sandbox_v1_command_t  *command;

    command = ngx_pcalloc(r->pool, sizeof(ngx_http_sandbox_v1_command_t));

    if (command == NULL) {
        return ngx_http_sandbox_problem(r, NGX_HTTP_SANDBOX_INTERNAL, NULL);
    }

    ngx_memzero(&process, sizeof(sbx_f_process_t));
    process.verb = SBX_PROCESS_OUTPUT;
    process.from[0] = SBX_UNSET;
    process.from[1] = SBX_UNSET;

    ngx_str_set(&encoding, "utf-8");

    if (ngx_http_sandbox_v1_process_pid(r, &process, &e) != 0
        || ngx_http_sandbox_op_number(r, "stdout_from", 0, INT64_MAX,
                                      &process.from[0], &e) != 0
        || ngx_http_sandbox_op_number(r, "stderr_from", 0, INT64_MAX,
                                      &process.from[1], &e) != 0
        || ngx_http_sandbox_op_string(r, "encoding", &encoding, &e) != 0)
    {
        return ngx_http_sandbox_problem_core(r, &e);
    }

    command->base64 = ngx_http_sandbox_op_is(&encoding, "base64");

    if (!command->base64 && !ngx_http_sandbox_op_is(&encoding, "utf-8")) {
        (void) sbx_error(&e, 0, SBX_E_INVALID,
                         "encoding must be \"utf-8\" or \"base64\"");
        return ngx_http_sandbox_problem_core(r, &e);
    }

    form = ngx_http_sandbox_stream_asked(r);

    if (form == NGX_HTTP_SANDBOX_STREAM_NONE) {
        form = NGX_HTTP_SANDBOX_STREAM_NDJSON;
    }

    command->background = 1;
    command->pid = process.pid;
    command->stream = ngx_http_sandbox_stream_create(r, form);
    call = ngx_http_sandbox_v1_process_call(r, &process, command);

    if (call == NULL || command->stream == NULL) {
        return ngx_http_sandbox_problem(r, NGX_HTTP_SANDBOX_INTERNAL, NULL);
    }

    command->stream->call = call;
    command->stream->data = command;
    call->frame = ngx_http_sandbox_v1_process_output_frame;

    return ngx_http_sandbox_op_start(r, call);
}


static ngx_int_t
ngx_http_sandbox_v1_process_output_frame(ngx_http_sandbox_call_t *call,
    const sbx_frame_t *frame, const u_char *payload, ngx_fd_t fd)
{
    ngx_int_t  rc;

    rc = ngx_http_sandbox_op_frame(call, frame, payload, fd);

    if (rc != NGX_DECLINED) {
        return rc;
    }

    if (frame->type == SBX_F_OUTPUT) {

        /* from here on it is the process that takes its time */

        call->timeout = 0;

    } else if (!call->request->header_sent || frame->type == SBX_F_STARTED) {
        return ngx_http_sandbox_op_broken(call, "a wrong frame for output");
    }

    rc = ngx_http_sandbox_v1_exec_follow(call, frame, payload);

    return (rc == NGX_DECLINED)
           ? ngx_http_sandbox_op_broken(call, "a wrong frame for output")
           : rc;
}


/* ---- signals and sizes -------------------------------------------------- */


ngx_int_t
ngx_http_sandbox_v1_process_signal(ngx_http_request_t *r)
{
    ngx_str_t                      text;
    sbx_error_t                    e;
    sbx_f_process_t                process;
    ngx_http_sandbox_v1_signal_t   signal;

    ngx_memzero(&process, sizeof(sbx_f_process_t));
    process.verb = SBX_PROCESS_SIGNAL;

    text = ngx_http_sandbox_ctx(r)->body;

    if (text.len == 0) {
        ngx_str_set(&text, "{}");
    }

    if (ngx_http_sandbox_v1_process_pid(r, &process, &e) != 0
        || ngx_http_sandbox_v1_signal_bind(r->pool, &text, &signal, &e) != 0)
    {
        return ngx_http_sandbox_problem_core(r, &e);
    }

    if (signal.type.data != NULL) {
        (void) sbx_error(&e, 0, SBX_E_INVALID, "/type: is not known here");
        return ngx_http_sandbox_problem_core(r, &e);
    }

    process.signal = (int32_t) signal.number;

    return ngx_http_sandbox_v1_process_act(r, &process);
}


ngx_int_t
ngx_http_sandbox_v1_process_resize(ngx_http_request_t *r)
{
    sbx_error_t                 e;
    sbx_f_process_t             process;
    ngx_http_sandbox_v1_size_t  size;

    #define SIZE(field)  offsetof(ngx_http_sandbox_v1_size_t, field)

    static const sbx_json_field_t  fields[] = {
        { .name = "rows", .type = SBX_JSON_COUNT, .required = 1,
          .min = 1, .max = 65535, .offset = SIZE(rows) },
        { .name = "cols", .type = SBX_JSON_COUNT, .required = 1,
          .min = 1, .max = 65535, .offset = SIZE(cols) },
        { .name = NULL }
    };

    ngx_memzero(&size, sizeof(size));
    ngx_memzero(&process, sizeof(sbx_f_process_t));
    process.verb = SBX_PROCESS_RESIZE;

    if (ngx_http_sandbox_v1_process_pid(r, &process, &e) != 0
        || ngx_http_sandbox_op_bind(r, fields, &size, &e) != 0)
    {
        return ngx_http_sandbox_problem_core(r, &e);
    }

    process.rows = (uint32_t) size.rows;
    process.cols = (uint32_t) size.cols;

    return ngx_http_sandbox_v1_process_act(r, &process);
}


static ngx_int_t
ngx_http_sandbox_v1_process_act(ngx_http_request_t *r,
    const sbx_f_process_t *process)
{
    ngx_http_sandbox_call_t  *call;

    call = ngx_http_sandbox_v1_process_call(r, process, NULL);

    if (call != NULL) {
        call->frame = ngx_http_sandbox_op_end_frame;
    }

    return ngx_http_sandbox_op_start(r, call);
}


/* ---- cancel ------------------------------------------------------------- */


ngx_int_t
ngx_http_sandbox_v1_cancel(ngx_http_request_t *r)
{
    sbx_error_t               e;
    ngx_http_sandbox_call_t  *call;

    if (ngx_http_sandbox_op_bind_none(r, &e) != 0) {
        return ngx_http_sandbox_problem_core(r, &e);
    }

    call = ngx_http_sandbox_op_call(r, SBX_OP_CANCEL, NULL, 0,
                                    NGX_INVALID_FILE, NULL);

    if (call != NULL) {
        call->frame = ngx_http_sandbox_v1_cancel_frame;
    }

    return ngx_http_sandbox_op_start(r, call);
}


static ngx_int_t
ngx_http_sandbox_v1_cancel_frame(ngx_http_sandbox_call_t *call,
    const sbx_frame_t *frame, const u_char *payload, ngx_fd_t fd)
{
    ngx_int_t                rc;
    sbx_f_end_t              end;
    ngx_http_sandbox_json_t  j;

    rc = ngx_http_sandbox_op_frame(call, frame, payload, fd);

    if (rc != NGX_DECLINED) {
        return rc;
    }

    if (frame->type != SBX_F_END) {
        return ngx_http_sandbox_op_broken(call, "a wrong frame for cancel");
    }

    ngx_memcpy(&end, payload, sizeof(sbx_f_end_t));

    ngx_http_sandbox_json_init(&j, call->request->pool);
    ngx_http_sandbox_json_raw(&j, "{\"cancelled\":");
    ngx_http_sandbox_json_int(&j, (int64_t) end.count);
    ngx_http_sandbox_json_raw(&j, "}");

    return ngx_http_sandbox_op_finish(call,
               ngx_http_sandbox_json_send(call->request, NGX_HTTP_OK, &j));
}
