/*
 * process.Process: what is asked about processes and done to them.  Those of
 * one sandbox are the same for every API.
 */

#include "ngx_http_sandbox_e2b_process.h"


#define NGX_HTTP_SANDBOX_E2B_LIST_MAX   (16 * 1024 * 1024)


typedef struct {
    ngx_http_sandbox_json_t           json;
    ngx_uint_t                        count;
} ngx_http_sandbox_e2b_list_t;

/* An act is answered by its end alone. */

typedef struct {
    sbx_f_process_t                   process;
    const char                       *code;      /* of what cannot be done */
    const char                       *what;
} ngx_http_sandbox_e2b_act_t;

typedef struct {
    ngx_http_sandbox_e2b_selector_t   process;
    sbx_json_str_t                    signal;
} ngx_http_sandbox_e2b_signal_t;

typedef struct {
    ngx_http_sandbox_e2b_selector_t   process;
    ngx_http_sandbox_e2b_size_t       size;
} ngx_http_sandbox_e2b_update_t;


static ngx_int_t ngx_http_sandbox_e2b_list_frame(
    ngx_http_sandbox_call_t *call, const sbx_frame_t *frame,
    const u_char *payload, ngx_fd_t fd);
static ngx_int_t ngx_http_sandbox_e2b_list_add(
    ngx_http_sandbox_e2b_list_t *list, const u_char *payload, size_t len);
static void ngx_http_sandbox_e2b_list_envs(ngx_http_sandbox_json_t *j,
    const char *env, uint32_t n);
static ngx_uint_t ngx_http_sandbox_e2b_list_own(const char *variable);
static ngx_int_t ngx_http_sandbox_e2b_act(ngx_http_request_t *r,
    const sbx_f_process_t *process, const char *code, const char *what);
static ngx_int_t ngx_http_sandbox_e2b_act_frame(
    ngx_http_sandbox_call_t *call, const sbx_frame_t *frame,
    const u_char *payload, ngx_fd_t fd);
static int32_t ngx_http_sandbox_e2b_signal_number(const sbx_json_str_t *s);


#define SELECTOR(field)  offsetof(ngx_http_sandbox_e2b_selector_t, field)

const sbx_json_field_t  ngx_http_sandbox_e2b_selector_fields[] = {
    { .name = "pid", .type = SBX_JSON_COUNT, .nullable = 1,
      .max = NGX_MAX_UINT32_VALUE, .offset = SELECTOR(pid),
      .seen = SELECTOR(has_pid) },
    { .name = "tag", .type = SBX_JSON_STRING, .nullable = 1,
      .offset = SELECTOR(tag), .seen = SELECTOR(has_tag) },
    NGX_HTTP_SANDBOX_E2B_LAX
};


/* ---- which one ---------------------------------------------------------- */


ngx_int_t
ngx_http_sandbox_e2b_select(ngx_http_request_t *r,
    const ngx_http_sandbox_e2b_selector_t *selector,
    sbx_f_process_t *process, ngx_int_t *rc)
{
    if (selector->has_pid) {

        if (selector->pid == 0 || selector->pid > NGX_MAX_INT32_VALUE) {
            *rc = ngx_http_sandbox_problem(r,
                                        NGX_HTTP_SANDBOX_PROCESS_NOT_FOUND,
                                        "process with pid %uL not found",
                                        selector->pid);
            return NGX_DECLINED;
        }

        process->pid = (int32_t) selector->pid;
        ngx_http_sandbox_ctx(r)->pid = process->pid;

        return NGX_OK;
    }

    if (!selector->has_tag) {
        *rc = ngx_http_sandbox_problem(r, NGX_HTTP_SANDBOX_NOT_IMPLEMENTED,
                                       "a process is selected by its pid or "
                                       "its tag");
        return NGX_DECLINED;
    }

    if (selector->tag.len == 0 || selector->tag.len > SBX_TAG_MAX
        || memchr(selector->tag.data, '\0', selector->tag.len) != NULL)
    {
        *rc = ngx_http_sandbox_problem(r, NGX_HTTP_SANDBOX_PROCESS_NOT_FOUND,
                                       "process with tag %*s not found",
                                       (size_t) ngx_min(selector->tag.len,
                                                        SBX_TAG_MAX),
                                       selector->tag.data);
        return NGX_DECLINED;
    }

    ngx_memcpy(process->tag, selector->tag.data, selector->tag.len);

    return NGX_OK;
}


ngx_http_sandbox_call_t *
ngx_http_sandbox_e2b_process_call(ngx_http_request_t *r,
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


ngx_int_t
ngx_http_sandbox_e2b_process_refuse(ngx_http_request_t *r,
    const sbx_f_process_t *process, const sbx_f_error_t *error,
    const char *code, const char *what)
{
    if (error->code == SBX_E_CONFLICT
        && (error->err == ENOTTY || error->err == EPIPE))
    {
        return ngx_http_sandbox_e2b_error(r, code, "%s: %s", what,
                                          error->text);
    }

    /* what has ended is no more there than what never was */

    if (error->code == SBX_E_PROCESS || error->code == SBX_E_CONFLICT) {
        return (process->pid != 0)
               ? ngx_http_sandbox_problem(r,
                                          NGX_HTTP_SANDBOX_PROCESS_NOT_FOUND,
                                          "process with pid %D not found",
                                          process->pid)
               : ngx_http_sandbox_problem(r,
                                          NGX_HTTP_SANDBOX_PROCESS_NOT_FOUND,
                                          "process with tag %s not found",
                                          process->tag);
    }

    return ngx_http_sandbox_problem_wire(r, error);
}


/* ---- List --------------------------------------------------------------- */


ngx_int_t
ngx_http_sandbox_e2b_process_list(ngx_http_request_t *r)
{
    char                          nothing;
    sbx_error_t                   e;
    sbx_f_process_t               process;
    ngx_http_sandbox_call_t      *call;
    ngx_http_sandbox_e2b_list_t  *list;

    static const sbx_json_field_t  fields[] = { NGX_HTTP_SANDBOX_E2B_LAX };

    if (ngx_http_sandbox_e2b_bind(r, fields, &nothing, &e) != 0) {
        return ngx_http_sandbox_problem_core(r, &e);
    }

    list = ngx_pcalloc(r->pool, sizeof(ngx_http_sandbox_e2b_list_t));

    if (list == NULL) {
        return ngx_http_sandbox_problem(r, NGX_HTTP_SANDBOX_INTERNAL, NULL);
    }

    ngx_http_sandbox_json_init(&list->json, r->pool);
    ngx_http_sandbox_json_raw(&list->json, "{\"processes\":[");

    ngx_memzero(&process, sizeof(sbx_f_process_t));
    process.verb = SBX_PROCESS_LIST;

    call = ngx_http_sandbox_e2b_process_call(r, &process, list);

    if (call != NULL) {
        call->frame = ngx_http_sandbox_e2b_list_frame;
    }

    return ngx_http_sandbox_op_start(r, call);
}


static ngx_int_t
ngx_http_sandbox_e2b_list_frame(ngx_http_sandbox_call_t *call,
    const sbx_frame_t *frame, const u_char *payload, ngx_fd_t fd)
{
    ngx_int_t                     rc;
    ngx_http_sandbox_e2b_list_t  *list;

    list = call->data;

    rc = ngx_http_sandbox_op_frame(call, frame, payload, fd);

    if (rc != NGX_DECLINED) {
        return rc;
    }

    switch (frame->type) {

    case SBX_F_STATE:
        if (ngx_http_sandbox_op_full(call->request, list->json.size,
                                     NGX_HTTP_SANDBOX_E2B_LIST_MAX))
        {
            return ngx_http_sandbox_op_crowded(call);
        }

        return (ngx_http_sandbox_e2b_list_add(list, payload, frame->length)
                == NGX_OK)
               ? NGX_OK
               : ngx_http_sandbox_op_broken(call, "a process that cannot be");

    case SBX_F_END:
        ngx_http_sandbox_json_raw(&list->json, "]}");

        return ngx_http_sandbox_op_finish(call,
                   ngx_http_sandbox_e2b_reply(call->request, &list->json));

    default:
        return ngx_http_sandbox_op_broken(call, "a wrong frame for a list");
    }
}


static ngx_int_t
ngx_http_sandbox_e2b_list_add(ngx_http_sandbox_e2b_list_t *list,
    const u_char *payload, size_t len)
{
    uint32_t                  i;
    const char               *cwd, *tag, *args, *env;
    sbx_f_state_t             state;
    ngx_http_sandbox_json_t  *j;

    if (sbx_wire_check_state(payload, len, &state, &cwd, &tag, &args) != 0) {
        return NGX_ERROR;
    }

    if ((state.flags & SBX_STATE_EXITED)
        || (state.kind != SBX_KIND_COMMAND
            && state.kind != SBX_KIND_TERMINAL))
    {
        return NGX_OK;
    }

    j = &list->json;
    env = sbx_wire_state_env(&state, args);

    ngx_http_sandbox_json_raw(j, (list->count++ == 0) ? "{" : ",{");
    ngx_http_sandbox_json_raw(j, "\"config\":{\"cmd\":");
    ngx_http_sandbox_json_cstring(j, (state.argc != 0) ? args : "");
    ngx_http_sandbox_json_raw(j, ",\"args\":[");

    for (i = 1; i < state.argc; i++) {
        args += ngx_strlen(args) + 1;

        ngx_http_sandbox_json_raw(j, (i == 1) ? "" : ",");
        ngx_http_sandbox_json_cstring(j, args);
    }

    ngx_http_sandbox_json_raw(j, "],\"envs\":{");
    ngx_http_sandbox_e2b_list_envs(j, env, state.envc);
    ngx_http_sandbox_json_raw(j, "},\"cwd\":");
    ngx_http_sandbox_json_string(j, cwd, state.cwd_len);
    ngx_http_sandbox_json_raw(j, "},\"pid\":");
    ngx_http_sandbox_json_int(j, state.pid);

    if (state.tag_len != 0) {
        ngx_http_sandbox_json_raw(j, ",\"tag\":");
        ngx_http_sandbox_json_string(j, tag, state.tag_len);
    }

    ngx_http_sandbox_json_raw(j, "}");

    return NGX_OK;
}


static void
ngx_http_sandbox_e2b_list_envs(ngx_http_sandbox_json_t *j, const char *env,
    uint32_t n)
{
    ngx_uint_t   first;
    const char  *equals;

    for (first = 1; n != 0; n--, env += ngx_strlen(env) + 1) {
        equals = strchr(env, '=');

        if (equals == NULL || ngx_http_sandbox_e2b_list_own(env)) {
            continue;
        }

        ngx_http_sandbox_json_raw(j, first ? "" : ",");
        ngx_http_sandbox_json_string(j, env, equals - env);
        ngx_http_sandbox_json_raw(j, ":");
        ngx_http_sandbox_json_cstring(j, equals + 1);

        first = 0;
    }
}


/* Those that Start adds by itself. */

static ngx_uint_t
ngx_http_sandbox_e2b_list_own(const char *variable)
{
    return ngx_strncmp(variable, "E2B_SANDBOX=",
                       sizeof("E2B_SANDBOX=") - 1) == 0
           || ngx_strncmp(variable, "E2B_SANDBOX_ID=",
                          sizeof("E2B_SANDBOX_ID=") - 1) == 0;
}


/* ---- SendSignal, Update ------------------------------------------------- */


ngx_int_t
ngx_http_sandbox_e2b_process_send_signal(ngx_http_request_t *r)
{
    ngx_int_t                      rc;
    sbx_error_t                    e;
    sbx_f_process_t                process;
    ngx_http_sandbox_e2b_signal_t  body;

    static const sbx_json_field_t  fields[] = {
        NGX_HTTP_SANDBOX_E2B_SELECTOR(ngx_http_sandbox_e2b_signal_t, process),
        { .name = "signal", .type = SBX_JSON_SCALAR, .nullable = 1,
          .offset = offsetof(ngx_http_sandbox_e2b_signal_t, signal) },
        NGX_HTTP_SANDBOX_E2B_LAX
    };

    ngx_memzero(&body, sizeof(body));
    ngx_memzero(&process, sizeof(sbx_f_process_t));

    if (ngx_http_sandbox_e2b_bind(r, fields, &body, &e) != 0) {
        return ngx_http_sandbox_problem_core(r, &e);
    }

    if (ngx_http_sandbox_e2b_select(r, &body.process, &process, &rc)
        != NGX_OK)
    {
        return rc;
    }

    process.verb = SBX_PROCESS_SIGNAL;
    process.signal = ngx_http_sandbox_e2b_signal_number(&body.signal);

    if (process.signal == 0) {
        return ngx_http_sandbox_problem(r, NGX_HTTP_SANDBOX_NOT_IMPLEMENTED,
                                        "invalid signal: there are "
                                        "SIGNAL_SIGTERM and SIGNAL_SIGKILL");
    }

    return ngx_http_sandbox_e2b_act(r, &process, "internal",
                                    "error sending signal");
}


static int32_t
ngx_http_sandbox_e2b_signal_number(const sbx_json_str_t *s)
{
    ngx_uint_t  i;

    static const struct {
        const char  *name;
        int32_t      number;
    } names[] = {
        { "SIGNAL_SIGKILL", 9 },
        { "SIGNAL_SIGTERM", 15 },
        { "SIGKILL", 9 },
        { "SIGTERM", 15 },
        { "9", 9 },
        { "15", 15 }
    };

    for (i = 0; i < sbx_nelts(names); i++) {
        if (ngx_strlen(names[i].name) == s->len
            && ngx_memcmp(names[i].name, s->data, s->len) == 0)
        {
            return names[i].number;
        }
    }

    return 0;
}


#define SIZE(field)  offsetof(ngx_http_sandbox_e2b_size_t, field)

static const sbx_json_field_t  ngx_http_sandbox_e2b_size_fields[] = {
    { .name = "rows", .type = SBX_JSON_COUNT, .nullable = 1, .max = 65535,
      .offset = SIZE(rows), .seen = SIZE(has_rows) },
    { .name = "cols", .type = SBX_JSON_COUNT, .nullable = 1, .max = 65535,
      .offset = SIZE(cols), .seen = SIZE(has_cols) },
    NGX_HTTP_SANDBOX_E2B_LAX
};

const sbx_json_field_t  ngx_http_sandbox_e2b_pty_fields[] = {
    { .name = "size", .type = SBX_JSON_OBJECT, .nullable = 1,
      .fields = ngx_http_sandbox_e2b_size_fields },
    NGX_HTTP_SANDBOX_E2B_LAX
};


ngx_int_t
ngx_http_sandbox_e2b_process_update(ngx_http_request_t *r)
{
    ngx_int_t                      rc;
    sbx_error_t                    e;
    sbx_f_process_t                process;
    ngx_http_sandbox_e2b_update_t  body;

    #define UPDATE(field)  offsetof(ngx_http_sandbox_e2b_update_t, field)

    static const sbx_json_field_t  fields[] = {
        NGX_HTTP_SANDBOX_E2B_SELECTOR(ngx_http_sandbox_e2b_update_t, process),
        { .name = "pty", .type = SBX_JSON_OBJECT, .nullable = 1,
          .fields = ngx_http_sandbox_e2b_pty_fields,
          .offset = UPDATE(size) },

        /* another client's */
        { .name = "size", .type = SBX_JSON_OBJECT, .nullable = 1,
          .fields = ngx_http_sandbox_e2b_size_fields,
          .offset = UPDATE(size) },
        { .name = "rows", .type = SBX_JSON_COUNT, .nullable = 1,
          .max = 65535, .offset = UPDATE(size.rows),
          .seen = UPDATE(size.has_rows) },
        { .name = "cols", .type = SBX_JSON_COUNT, .nullable = 1,
          .max = 65535, .offset = UPDATE(size.cols),
          .seen = UPDATE(size.has_cols) },

        NGX_HTTP_SANDBOX_E2B_LAX
    };

    ngx_memzero(&body, sizeof(body));
    ngx_memzero(&process, sizeof(sbx_f_process_t));

    if (ngx_http_sandbox_e2b_bind(r, fields, &body, &e) != 0) {
        return ngx_http_sandbox_problem_core(r, &e);
    }

    if (ngx_http_sandbox_e2b_select(r, &body.process, &process, &rc)
        != NGX_OK)
    {
        return rc;
    }

    process.verb = SBX_PROCESS_GET;

    if (body.size.has_rows || body.size.has_cols) {

        if (body.size.rows == 0 || body.size.cols == 0) {
            return ngx_http_sandbox_problem(r,
                                            NGX_HTTP_SANDBOX_INVALID_REQUEST,
                                            "pty.size: rows and cols are "
                                            "from 1 to 65535");
        }

        process.verb = SBX_PROCESS_RESIZE;
        process.flags = SBX_PROCESS_TTY;
        process.rows = (uint32_t) body.size.rows;
        process.cols = (uint32_t) body.size.cols;
    }

    return ngx_http_sandbox_e2b_act(r, &process, "internal",
                                    "error resizing tty");
}


static ngx_int_t
ngx_http_sandbox_e2b_act(ngx_http_request_t *r,
    const sbx_f_process_t *process, const char *code, const char *what)
{
    ngx_http_sandbox_call_t     *call;
    ngx_http_sandbox_e2b_act_t  *act;

    act = ngx_palloc(r->pool, sizeof(ngx_http_sandbox_e2b_act_t));

    if (act == NULL) {
        return ngx_http_sandbox_problem(r, NGX_HTTP_SANDBOX_INTERNAL, NULL);
    }

    act->process = *process;
    act->code = code;
    act->what = what;

    call = ngx_http_sandbox_e2b_process_call(r, process, act);

    if (call != NULL) {
        call->frame = ngx_http_sandbox_e2b_act_frame;
    }

    return ngx_http_sandbox_op_start(r, call);
}


static ngx_int_t
ngx_http_sandbox_e2b_act_frame(ngx_http_sandbox_call_t *call,
    const sbx_frame_t *frame, const u_char *payload, ngx_fd_t fd)
{
    ngx_int_t                    rc;
    ngx_http_request_t          *r;
    ngx_http_sandbox_e2b_act_t  *act;

    r = call->request;
    act = call->data;

    if (frame->type == SBX_F_ERROR) {
        return ngx_http_sandbox_op_finish(call,
                   ngx_http_sandbox_e2b_process_refuse(r, &act->process,
                                       (const sbx_f_error_t *) payload,
                                       act->code, act->what));
    }

    rc = ngx_http_sandbox_op_frame(call, frame, payload, fd);

    if (rc != NGX_DECLINED) {
        return rc;
    }

    switch (frame->type) {

    case SBX_F_STATE:
        return NGX_OK;

    case SBX_F_END:
        return ngx_http_sandbox_op_finish(call,
                                          ngx_http_sandbox_e2b_empty(r));

    default:
        return ngx_http_sandbox_op_broken(call,
                                          "a wrong frame for a process");
    }
}
