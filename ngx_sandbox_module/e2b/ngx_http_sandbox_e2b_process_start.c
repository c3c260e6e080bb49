/*
 * process.Process/Start.  The command outlives its stream: what ends it is
 * its own end, a signal, the time that the call was given, or the session's
 * end.
 */

#include "ngx_http_sandbox_e2b_process.h"


#define NGX_HTTP_SANDBOX_E2B_ARGS     65536

/* how much longer than its command a stream waits for its end; ms */
#define NGX_HTTP_SANDBOX_E2B_GRACE    15000

#define NGX_HTTP_SANDBOX_E2B_SANDBOX  "E2B_SANDBOX=true"
#define NGX_HTTP_SANDBOX_E2B_ID       "E2B_SANDBOX_ID="


typedef struct {
    sbx_json_str_t                    cmd;
    sbx_json_list_t                   args;
    sbx_json_map_t                    envs;
    sbx_json_map_t                    env_vars;   /* another client's name */
    sbx_json_str_t                    cwd;
} ngx_http_sandbox_e2b_config_t;

typedef struct {
    ngx_http_sandbox_e2b_config_t     process;
    ngx_http_sandbox_e2b_size_t       size;
    sbx_json_str_t                    tag;
    uint32_t                          has_pty;
    uint32_t                          in;         /* "stdin" */
} ngx_http_sandbox_e2b_start_t;


static int ngx_http_sandbox_e2b_start_check(
    ngx_http_sandbox_e2b_start_t *body, sbx_error_t *e);
static void ngx_http_sandbox_e2b_start_flags(
    const ngx_http_sandbox_e2b_start_t *body, uint64_t ms,
    sbx_f_exec_t *exec);
static int ngx_http_sandbox_e2b_start_cwd(ngx_http_request_t *r,
    const ngx_http_sandbox_e2b_start_t *body, uint32_t user, ngx_str_t *cwd,
    sbx_error_t *e);
static int ngx_http_sandbox_e2b_start_strings(ngx_http_request_t *r,
    const ngx_http_sandbox_e2b_start_t *body, const ngx_str_t *cwd,
    sbx_f_exec_t *exec, u_char **strings, sbx_error_t *e);
static ngx_int_t ngx_http_sandbox_e2b_start_call(ngx_http_request_t *r,
    const sbx_f_exec_t *exec, const u_char *strings, uint64_t ms,
    const ngx_str_t *cwd);
static ngx_int_t ngx_http_sandbox_e2b_start_frame(
    ngx_http_sandbox_call_t *call, const sbx_frame_t *frame,
    const u_char *payload, ngx_fd_t fd);
static ngx_int_t ngx_http_sandbox_e2b_start_refuse(
    ngx_http_sandbox_call_t *call, const sbx_f_error_t *error);
static ngx_int_t ngx_http_sandbox_e2b_start_output(
    ngx_http_sandbox_call_t *call, ngx_uint_t is_stderr, const u_char *data,
    size_t len);
static ngx_int_t ngx_http_sandbox_e2b_start_exit(
    ngx_http_sandbox_call_t *call, const sbx_f_exit_t *end);


#define CONFIG(field)  offsetof(ngx_http_sandbox_e2b_config_t, field)

static const sbx_json_field_t  ngx_http_sandbox_e2b_config_fields[] = {
    { .name = "cmd", .type = SBX_JSON_STRING, .nullable = 1,
      .offset = CONFIG(cmd) },
    { .name = "args", .type = SBX_JSON_STRINGS, .nullable = 1,
      .max = NGX_HTTP_SANDBOX_E2B_ARGS, .offset = CONFIG(args) },
    { .name = "envs", .type = SBX_JSON_MAP, .nullable = 1,
      .max = NGX_HTTP_SANDBOX_E2B_ARGS, .offset = CONFIG(envs) },
    { .name = "envVars", .type = SBX_JSON_MAP, .nullable = 1,
      .max = NGX_HTTP_SANDBOX_E2B_ARGS, .offset = CONFIG(env_vars) },
    { .name = "env_vars", .type = SBX_JSON_MAP, .nullable = 1,
      .max = NGX_HTTP_SANDBOX_E2B_ARGS, .offset = CONFIG(env_vars) },
    { .name = "cwd", .type = SBX_JSON_STRING, .nullable = 1,
      .offset = CONFIG(cwd) },
    NGX_HTTP_SANDBOX_E2B_LAX
};

#define START(field)  offsetof(ngx_http_sandbox_e2b_start_t, field)

static const sbx_json_field_t  ngx_http_sandbox_e2b_start_fields[] = {
    { .name = "process", .type = SBX_JSON_OBJECT, .nullable = 1,
      .fields = ngx_http_sandbox_e2b_config_fields,
      .offset = START(process) },
    { .name = "pty", .type = SBX_JSON_OBJECT, .nullable = 1,
      .fields = ngx_http_sandbox_e2b_pty_fields,
      .offset = START(size), .seen = START(has_pty) },
    { .name = "tag", .type = SBX_JSON_STRING, .nullable = 1,
      .max = SBX_TAG_MAX, .offset = START(tag) },
    { .name = "stdin", .type = SBX_JSON_BOOL, .nullable = 1,
      .offset = START(in) },

    /* another client's: beside "process" */
    { .name = "envVars", .type = SBX_JSON_MAP, .nullable = 1,
      .max = NGX_HTTP_SANDBOX_E2B_ARGS, .offset = START(process.env_vars) },

    NGX_HTTP_SANDBOX_E2B_LAX
};


ngx_int_t
ngx_http_sandbox_e2b_process_start(ngx_http_request_t *r)
{
    u_char                        *strings;
    uint64_t                       ms;
    ngx_str_t                      cwd;
    sbx_error_t                    e;
    sbx_f_exec_t                   exec;
    ngx_http_sandbox_e2b_start_t   body;

    ngx_memzero(&body, sizeof(body));
    ngx_memzero(&exec, sizeof(sbx_f_exec_t));
    body.in = 1;
    strings = NULL;

    if (ngx_http_sandbox_e2b_bind_stream(r, ngx_http_sandbox_e2b_start_fields,
                                         &body, &e)
        != 0
        || ngx_http_sandbox_e2b_timeout(r, &ms, &e) != 0
        || ngx_http_sandbox_e2b_user(r, &exec.user, &e) != 0
        || ngx_http_sandbox_e2b_start_check(&body, &e) != 0
        || ngx_http_sandbox_e2b_start_cwd(r, &body, exec.user, &cwd, &e) != 0
        || ngx_http_sandbox_e2b_start_strings(r, &body, &cwd, &exec, &strings,
                                              &e)
           != 0)
    {
        return ngx_http_sandbox_problem_core(r, &e);
    }

    ngx_http_sandbox_e2b_start_flags(&body, ms, &exec);

    return ngx_http_sandbox_e2b_start_call(r, &exec, strings, ms, &cwd);
}


static int
ngx_http_sandbox_e2b_start_check(ngx_http_sandbox_e2b_start_t *body,
    sbx_error_t *e)
{
    size_t                 i;
    const sbx_json_str_t  *s;

    if (body->process.cmd.len == 0) {
        return sbx_error(e, 0, SBX_E_INVALID, "/process/cmd: is empty");
    }

    if (ngx_strlen(body->process.cmd.data) != body->process.cmd.len) {
        return sbx_error(e, 0, SBX_E_INVALID,
                         "/process/cmd: must have no NUL");
    }

    for (i = 0; i < body->process.args.nelts; i++) {
        s = &body->process.args.elts[i];

        if (ngx_strlen(s->data) != s->len) {
            return sbx_error(e, 0, SBX_E_INVALID,
                             "/process/args/%zu: must have no NUL", i);
        }
    }

    for (i = 0; i < body->tag.len; i++) {
        if ((u_char) body->tag.data[i] < 0x20 || body->tag.data[i] == 0x7f) {
            return sbx_error(e, 0, SBX_E_INVALID,
                             "/tag: must have no control characters");
        }
    }

    if (body->process.envs.nelts == 0) {
        body->process.envs = body->process.env_vars;
    }

    return 0;
}


static void
ngx_http_sandbox_e2b_start_flags(const ngx_http_sandbox_e2b_start_t *body,
    uint64_t ms, sbx_f_exec_t *exec)
{
    exec->flags = SBX_EXEC_DETACH|SBX_EXEC_LONG;

    if (body->process.cwd.len == 0) {
        exec->flags |= SBX_EXEC_DEFAULT_CWD;
    }

    if (body->has_pty) {
        exec->flags |= SBX_EXEC_TTY|SBX_EXEC_STDIN_OPEN;
        exec->rows = (uint32_t) body->size.rows;
        exec->cols = (uint32_t) body->size.cols;

    } else if (body->in) {
        exec->flags |= SBX_EXEC_STDIN_OPEN;
    }

    exec->timeout = (ms == 0) ? SBX_UNLIMITED : ms;
    exec->max_output = SBX_UNSET;
    exec->cpu_seconds = SBX_UNSET;
    exec->max_file_size = SBX_UNSET;
    exec->open_files = SBX_UNSET;
    exec->stack = SBX_UNSET;

    if (body->tag.len != 0) {
        ngx_memcpy(exec->tag, body->tag.data, body->tag.len);
    }
}


static int
ngx_http_sandbox_e2b_start_cwd(ngx_http_request_t *r,
    const ngx_http_sandbox_e2b_start_t *body, uint32_t user, ngx_str_t *cwd,
    sbx_error_t *e)
{
    if (body->process.cwd.len == 0) {
        ngx_str_set(cwd, "");
        return 0;
    }

    return ngx_http_sandbox_e2b_path(r, user, &body->process.cwd, cwd, e);
}


/* The working directory, the arguments, the variables: our two, then those
 * of the caller, who has the last word. */

static int
ngx_http_sandbox_e2b_start_strings(ngx_http_request_t *r,
    const ngx_http_sandbox_e2b_start_t *body, const ngx_str_t *cwd,
    sbx_f_exec_t *exec, u_char **strings, sbx_error_t *e)
{
    size_t                                i, size, env_size;
    u_char                               *p, *env;
    ngx_http_sandbox_ctx_t               *ctx;
    const ngx_http_sandbox_e2b_config_t  *config;

    static const u_char  sandbox[] = NGX_HTTP_SANDBOX_E2B_SANDBOX;
    static const u_char  id[] = NGX_HTTP_SANDBOX_E2B_ID;

    ctx = ngx_http_sandbox_ctx(r);
    config = &body->process;

    if (ngx_http_sandbox_op_env(r->pool, &config->envs, &env, &env_size, e)
        != 0)
    {
        return -1;
    }

    size = cwd->len + 1 + config->cmd.len + 1 + env_size
           + sizeof(sandbox) + sizeof(id) + ctx->session.len;

    for (i = 0; i < config->args.nelts; i++) {
        size += config->args.elts[i].len + 1;
    }

    if (size > SBX_STRINGS_MAX) {
        return sbx_error(e, 0, SBX_E_INVALID,
                         "/process: takes %zu bytes with its environment, "
                         "more than the %d that fit", size, SBX_STRINGS_MAX);
    }

    p = ngx_pnalloc(r->pool, size);

    if (p == NULL) {
        return sbx_error(e, 0, SBX_E_INTERNAL, "out of memory");
    }

    *strings = p;

    p = ngx_cpymem(p, cwd->data, cwd->len);
    *p++ = '\0';

    ctx->argv.data = p;
    p = ngx_cpymem(p, config->cmd.data, config->cmd.len + 1);

    for (i = 0; i < config->args.nelts; i++) {
        p = ngx_cpymem(p, config->args.elts[i].data,
                       config->args.elts[i].len + 1);
    }

    ctx->argv.len = p - ctx->argv.data;

    p = ngx_cpymem(p, sandbox, sizeof(sandbox));
    p = ngx_cpymem(p, id, sizeof(id) - 1);
    p = ngx_cpymem(p, ctx->session.data, ctx->session.len);
    *p++ = '\0';

    if (env_size != 0) {
        ngx_memcpy(p, env, env_size);
    }

    exec->argc = (uint32_t) config->args.nelts + 1;
    exec->envc = (uint32_t) config->envs.nelts + 2;
    exec->strings_size = (uint32_t) size;

    return 0;
}


static ngx_int_t
ngx_http_sandbox_e2b_start_call(ngx_http_request_t *r,
    const sbx_f_exec_t *exec, const u_char *strings, uint64_t ms,
    const ngx_str_t *cwd)
{
    sbx_exec_limits_t               limits;
    ngx_http_sandbox_call_t        *call;
    ngx_http_sandbox_e2b_events_t  *events;

    limits.memory = SBX_UNSET;
    limits.cpus = SBX_UNSET;
    limits.processes = SBX_UNSET;

    /* the core ends it in time and tells so; this is for when it does not */

    events = ngx_http_sandbox_e2b_events(r,
                       (ms == 0) ? 0 : ms + NGX_HTTP_SANDBOX_E2B_GRACE);

    if (events == NULL) {
        return ngx_http_sandbox_problem(r, NGX_HTTP_SANDBOX_INTERNAL, NULL);
    }

    call = ngx_http_sandbox_op_call(r, SBX_OP_EXEC, &limits,
                                    sizeof(sbx_exec_limits_t),
                                    NGX_INVALID_FILE, events);

    if (call == NULL
        || ngx_http_sandbox_call_queue(call, SBX_F_EXEC, exec,
                                       sizeof(sbx_f_exec_t))
           != NGX_OK
        || ngx_http_sandbox_call_queue_bytes(call, SBX_F_STRINGS, strings,
                                             exec->strings_size)
           != NGX_OK
        || ngx_http_sandbox_call_queue(call, SBX_F_STDIN, NULL, 0) != NGX_OK)
    {
        return ngx_http_sandbox_problem(r, NGX_HTTP_SANDBOX_INTERNAL, NULL);
    }

    events->started = 1;
    events->tty = (exec->flags & SBX_EXEC_TTY) != 0;
    events->cwd = *cwd;
    events->stream->call = call;
    call->frame = ngx_http_sandbox_e2b_start_frame;

    return ngx_http_sandbox_op_start(r, call);
}


static ngx_int_t
ngx_http_sandbox_e2b_start_frame(ngx_http_sandbox_call_t *call,
    const sbx_frame_t *frame, const u_char *payload, ngx_fd_t fd)
{
    ngx_int_t        rc;
    sbx_f_exit_t     end;
    sbx_f_started_t  started;

    if (frame->type == SBX_F_ERROR) {
        return ngx_http_sandbox_e2b_start_refuse(call,
                                         (const sbx_f_error_t *) payload);
    }

    rc = ngx_http_sandbox_op_frame(call, frame, payload, fd);

    if (rc != NGX_DECLINED) {
        return rc;
    }

    switch (frame->type) {

    case SBX_F_STARTED:
        ngx_memcpy(&started, payload, sizeof(sbx_f_started_t));
        rc = ngx_http_sandbox_e2b_event_start(call, started.pid);
        break;

    case SBX_F_STDOUT:
    case SBX_F_STDERR:
        rc = ngx_http_sandbox_e2b_start_output(call,
                                               frame->type == SBX_F_STDERR,
                                               payload, frame->length);
        break;

    case SBX_F_EXIT:
        ngx_memcpy(&end, payload, sizeof(sbx_f_exit_t));
        return ngx_http_sandbox_e2b_start_exit(call, &end);

    default:
        return ngx_http_sandbox_op_broken(call, "a wrong frame for exec");
    }

    return ngx_http_sandbox_op_sent(call, rc);
}


/* Errors of files are about the working directory. */

static ngx_int_t
ngx_http_sandbox_e2b_start_refuse(ngx_http_sandbox_call_t *call,
    const sbx_f_error_t *error)
{
    ngx_int_t                       rc;
    ngx_http_request_t             *r;
    ngx_http_sandbox_e2b_events_t  *events;

    r = call->request;
    events = call->data;

    switch (error->code) {

    case SBX_E_FILE:
        rc = ngx_http_sandbox_problem(r, NGX_HTTP_SANDBOX_INVALID_REQUEST,
                                      "cwd '%V' does not exist",
                                      &events->cwd);
        break;

    case SBX_E_FILE_TYPE:
    case SBX_E_PATH:
    case SBX_E_DENIED:
        rc = ngx_http_sandbox_problem(r, NGX_HTTP_SANDBOX_INVALID_REQUEST,
                                      "cwd '%V': %s", &events->cwd,
                                      error->text);
        break;

    default:
        rc = ngx_http_sandbox_problem_wire(r, error);
        break;
    }

    return ngx_http_sandbox_op_finish(call, rc);
}


/* Why a command did not start comes before what tells its pid. */

static ngx_int_t
ngx_http_sandbox_e2b_start_output(ngx_http_sandbox_call_t *call,
    ngx_uint_t is_stderr, const u_char *data, size_t len)
{
    ngx_str_t                       *why;
    ngx_http_request_t              *r;
    ngx_http_sandbox_e2b_events_t   *events;

    r = call->request;
    events = call->data;
    why = &events->why;

    if (r->header_sent) {
        return ngx_http_sandbox_e2b_event_data(call, is_stderr, data, len);
    }

    if (!is_stderr || why->data != NULL || len == 0) {
        ngx_log_error(NGX_LOG_ERR, r->connection->log, 0,
                      "sandbox sent output of nothing");
        return NGX_ERROR;
    }

    why->data = ngx_pnalloc(r->pool, len);

    if (why->data == NULL) {
        return NGX_ERROR;
    }

    ngx_memcpy(why->data, data, len);
    why->len = len;

    while (why->len != 0 && why->data[why->len - 1] == '\n') {
        why->len--;
    }

    return NGX_OK;
}


static ngx_int_t
ngx_http_sandbox_e2b_start_exit(ngx_http_sandbox_call_t *call,
    const sbx_f_exit_t *end)
{
    ngx_http_request_t             *r;
    ngx_http_sandbox_e2b_events_t  *events;

    r = call->request;
    events = call->data;

    if (end->reason != SBX_REASON_NOT_STARTED || r->header_sent) {
        return ngx_http_sandbox_e2b_event_end(call, end);
    }

    if (ngx_http_sandbox_op_exit(r, end) != NGX_OK) {
        return ngx_http_sandbox_op_broken(call, "an end that cannot be");
    }

    return ngx_http_sandbox_op_finish(call,
               ngx_http_sandbox_problem(r, NGX_HTTP_SANDBOX_INVALID_REQUEST,
                                        "error starting process: %V",
                                        &events->why));
}
