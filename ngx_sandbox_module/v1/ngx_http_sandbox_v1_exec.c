#include "ngx_http_sandbox_v1_exec.h"
#include "sandbox_fault.h"


#define NGX_HTTP_SANDBOX_V1_ARGUMENTS    65536


static int ngx_http_sandbox_v1_exec_check(
    const ngx_http_sandbox_v1_exec_t *body, sbx_error_t *e);
static int ngx_http_sandbox_v1_exec_words(
    const ngx_http_sandbox_v1_exec_t *body, sbx_f_exec_t *exec,
    ngx_http_sandbox_v1_command_t *command, sbx_error_t *e);
static int ngx_http_sandbox_v1_exec_strings(ngx_http_request_t *r,
    const ngx_http_sandbox_v1_exec_t *body, sbx_f_exec_t *exec,
    u_char **strings, sbx_error_t *e);
static int ngx_http_sandbox_v1_exec_stdin(ngx_http_request_t *r,
    const ngx_http_sandbox_v1_exec_t *body, ngx_str_t *in, sbx_error_t *e);
static void ngx_http_sandbox_v1_exec_limits(ngx_http_request_t *r,
    const ngx_http_sandbox_v1_exec_t *body, sbx_f_exec_t *exec,
    ngx_http_sandbox_v1_command_t *command);
static ngx_int_t ngx_http_sandbox_v1_exec_frame(
    ngx_http_sandbox_call_t *call, const sbx_frame_t *frame,
    const u_char *payload, ngx_fd_t fd);
static ngx_int_t ngx_http_sandbox_v1_exec_begun(
    ngx_http_sandbox_call_t *call);


#define EXEC(field)  offsetof(ngx_http_sandbox_v1_exec_t, field)

#define LIMIT(word, field)                                                    \
    { .name = word, .type = SBX_JSON_LIMIT, .limit = word,                    \
      .offset = offsetof(sbx_limits_t, field) }

static const sbx_json_field_t  ngx_http_sandbox_v1_exec_limit_fields[] = {
    LIMIT("memory", memory),
    LIMIT("cpus", cpus),
    LIMIT("cpu_seconds", cpu_seconds),
    LIMIT("processes", processes),
    LIMIT("max_file_size", max_file_size),
    LIMIT("open_files", open_files),
    LIMIT("stack", stack),

    /* known, so that who asks for them is told whose they are */
    { .name = "disk", .type = SBX_JSON_ANY,
      .seen = EXEC(has_disk) - EXEC(limits) },
    { .name = "inodes", .type = SBX_JSON_ANY,
      .seen = EXEC(has_inodes) - EXEC(limits) },

    { .name = NULL }
};


const sbx_json_field_t  ngx_http_sandbox_v1_exec_fields[] = {

    { .name = "cmd", .type = SBX_JSON_COMMAND, .required = 1,
      .max = NGX_HTTP_SANDBOX_V1_ARGUMENTS, .offset = EXEC(cmd) },

    { .name = "cwd", .type = SBX_JSON_STRING, .nullable = 1,
      .offset = EXEC(cwd) },

    { .name = "env", .type = SBX_JSON_MAP, .nullable = 1,
      .max = NGX_HTTP_SANDBOX_V1_ARGUMENTS, .offset = EXEC(env) },

    { .name = "stdin", .type = SBX_JSON_STRING, .nullable = 1,
      .offset = EXEC(in) },

    { .name = "stdin_base64", .type = SBX_JSON_STRING, .nullable = 1,
      .offset = EXEC(in_base64) },

    { .name = "timeout_s", .type = SBX_JSON_LIMIT, .nullable = 1,
      .limit = "exec_timeout_s", .offset = EXEC(limits.exec_timeout) },

    { .name = "max_output_bytes", .type = SBX_JSON_LIMIT,
      .limit = "max_output_bytes", .offset = EXEC(limits.max_output) },

    { .name = "encoding", .type = SBX_JSON_STRING,
      .offset = EXEC(encoding) },

    { .name = "user", .type = SBX_JSON_STRING, .offset = EXEC(user) },

    { .name = "stdin_open", .type = SBX_JSON_BOOL,
      .offset = EXEC(stdin_open) },

    { .name = "on_disconnect", .type = SBX_JSON_STRING,
      .offset = EXEC(on_disconnect) },

    { .name = "background", .type = SBX_JSON_BOOL,
      .offset = EXEC(background) },

    { .name = "tty", .type = SBX_JSON_BOOL, .offset = EXEC(tty) },

    { .name = "merge_stderr", .type = SBX_JSON_BOOL,
      .offset = EXEC(merge_stderr) },

    { .name = "tag", .type = SBX_JSON_STRING, .nullable = 1, .min = 1,
      .max = SBX_TAG_MAX, .offset = EXEC(tag) },

    { .name = "limits", .type = SBX_JSON_OBJECT,
      .fields = ngx_http_sandbox_v1_exec_limit_fields,
      .offset = EXEC(limits) },

    { .name = NULL }
};


ngx_int_t
ngx_http_sandbox_v1_exec(ngx_http_request_t *r)
{
    sbx_error_t                     e;
    ngx_http_sandbox_call_t        *call;
    ngx_http_sandbox_stream_e       form;
    ngx_http_sandbox_v1_exec_t      body;
    ngx_http_sandbox_v1_ready_t     ready;
    ngx_http_sandbox_v1_command_t  *command;

    ngx_memzero(&body, sizeof(body));
    sbx_limits_clear(&body.limits);

    command = ngx_pcalloc(r->pool, sizeof(ngx_http_sandbox_v1_command_t));

    if (command == NULL) {
        return ngx_http_sandbox_problem(r, NGX_HTTP_SANDBOX_INTERNAL, NULL);
    }

    if (ngx_http_sandbox_op_bind(r, ngx_http_sandbox_v1_exec_fields, &body, &e)
        != 0
        || ngx_http_sandbox_v1_exec_prepare(r, &body, command, &ready, &e)
           != 0)
    {
        return ngx_http_sandbox_problem_core(r, &e);
    }

    form = command->background ? NGX_HTTP_SANDBOX_STREAM_NONE
                               : ngx_http_sandbox_stream_asked(r);

    if (form != NGX_HTTP_SANDBOX_STREAM_NONE) {
        command->stream = ngx_http_sandbox_stream_create(r, form);

        if (command->stream == NULL) {
            return ngx_http_sandbox_problem(r, NGX_HTTP_SANDBOX_INTERNAL,
                                            NULL);
        }

        /* the cap is on what is kept */

        ready.exec.flags &= ~SBX_EXEC_CAP;
    }

    call = ngx_http_sandbox_v1_exec_call(r, &ready, command);

    if (call == NULL) {
        return ngx_http_sandbox_problem(r, NGX_HTTP_SANDBOX_INTERNAL, NULL);
    }

    call->frame = ngx_http_sandbox_v1_exec_frame;

    if (command->background) {
        call->timeout = NGX_HTTP_SANDBOX_OP_TIMEOUT;
    }

    if (command->stream != NULL) {
        command->stream->call = call;
        command->stream->data = command;
    }

    return ngx_http_sandbox_op_start(r, call);
}


int
ngx_http_sandbox_v1_exec_prepare(ngx_http_request_t *r,
    const ngx_http_sandbox_v1_exec_t *body,
    ngx_http_sandbox_v1_command_t *command,
    ngx_http_sandbox_v1_ready_t *ready, sbx_error_t *e)
{
    ngx_memzero(ready, sizeof(ngx_http_sandbox_v1_ready_t));
    ready->exec.flags = SBX_EXEC_CAP;

    if (ngx_http_sandbox_v1_exec_check(body, e) != 0
        || ngx_http_sandbox_v1_exec_words(body, &ready->exec, command, e)
           != 0
        || ngx_http_sandbox_v1_exec_strings(r, body, &ready->exec,
                                            &ready->strings, e)
           != 0
        || ngx_http_sandbox_v1_exec_stdin(r, body, &ready->in, e) != 0)
    {
        return -1;
    }

    ngx_http_sandbox_v1_exec_limits(r, body, &ready->exec, command);

    command->fed = ready->in.len != 0;
    ready->limits.memory = body->limits.memory;
    ready->limits.cpus = body->limits.cpus;
    ready->limits.processes = body->limits.processes;

    return 0;
}


static int
ngx_http_sandbox_v1_exec_check(const ngx_http_sandbox_v1_exec_t *body,
    sbx_error_t *e)
{
    size_t  i;

    if (body->has_disk || body->has_inodes) {
        return sbx_error(e, 0, SBX_E_INVALID,
                         "/limits/%s: is the session's alone and cannot be "
                         "a command's; ask for it in the manifest's "
                         "resources", body->has_disk ? "disk" : "inodes");
    }

    for (i = 0; i < body->tag.len; i++) {
        if ((u_char) body->tag.data[i] < 0x20 || body->tag.data[i] == 0x7f) {
            return sbx_error(e, 0, SBX_E_INVALID,
                             "/tag: must have no control characters");
        }
    }

    return ngx_http_sandbox_op_cwd(&body->cwd, e);
}


static int
ngx_http_sandbox_v1_exec_words(const ngx_http_sandbox_v1_exec_t *body,
    sbx_f_exec_t *exec, ngx_http_sandbox_v1_command_t *command,
    sbx_error_t *e)
{
    size_t    i;
    uint32_t  user, detach, base64;

    const struct {
        const sbx_json_str_t  *given;
        const char            *name;
        const char            *usual;
        const char            *other;
        uint32_t              *is_other;
    } words[] = {
        { &body->user, "user", "user", "root", &user },
        { &body->on_disconnect, "on_disconnect", "kill", "detach", &detach },
        { &body->encoding, "encoding", "utf-8", "base64", &base64 }
    };

    user = 0;
    detach = 0;
    base64 = 0;

    for (i = 0; i < sbx_nelts(words); i++) {

        if (words[i].given->data == NULL
            || (ngx_strlen(words[i].usual) == words[i].given->len
                && ngx_memcmp(words[i].usual, words[i].given->data,
                              words[i].given->len) == 0))
        {
            continue;
        }

        if (ngx_strlen(words[i].other) != words[i].given->len
            || ngx_memcmp(words[i].other, words[i].given->data,
                          words[i].given->len) != 0)
        {
            return sbx_error(e, 0, SBX_E_INVALID,
                             "/%s: must be \"%s\" or \"%s\"", words[i].name,
                             words[i].usual, words[i].other);
        }

        *words[i].is_other = 1;
    }

    exec->user = user ? SBX_USER_ROOT : SBX_USER_USER;
    exec->flags |= detach ? SBX_EXEC_DETACH : 0;
    exec->flags |= body->merge_stderr ? SBX_EXEC_MERGE : 0;
    exec->flags |= body->stdin_open ? SBX_EXEC_STDIN_OPEN : 0;
    exec->flags |= body->background ? SBX_EXEC_BACKGROUND : 0;
    exec->flags |= body->tty ? SBX_EXEC_TTY : 0;
    exec->flags |= (body->cwd.data == NULL) ? SBX_EXEC_DEFAULT_CWD : 0;
    command->base64 = base64;
    command->background = body->background;
    command->detach = detach;

    if (body->tag.len != 0) {
        ngx_memcpy(exec->tag, body->tag.data, body->tag.len);
    }

    return 0;
}


/* The table of strings: working directory, arguments, environment. */

static int
ngx_http_sandbox_v1_exec_argv(const ngx_http_sandbox_v1_exec_t *body,
    size_t *size, sbx_error_t *e)
{
    size_t                 i;
    const sbx_json_str_t  *s;

    if (!body->cmd.is_array) {
        s = &body->cmd.shell;
        *size += sizeof("/bin/sh") + sizeof("-c") + s->len + 1;

        if (ngx_strlen(s->data) != s->len) {
            return sbx_error(e, 0, SBX_E_INVALID, "/cmd: must have no NUL");
        }

        if (s->len == 0) {
            return sbx_error(e, 0, SBX_E_INVALID, "/cmd: must not be empty");
        }

        return 0;
    }

    for (i = 0; i < body->cmd.argv.nelts; i++) {
        s = &body->cmd.argv.elts[i];
        *size += s->len + 1;

        if (ngx_strlen(s->data) != s->len) {
            return sbx_error(e, 0, SBX_E_INVALID,
                             "/cmd/%zu: must have no NUL", i);
        }
    }

    if (body->cmd.argv.elts[0].len == 0) {
        return sbx_error(e, 0, SBX_E_INVALID, "/cmd/0: must not be empty");
    }

    return 0;
}


static int
ngx_http_sandbox_v1_exec_strings(ngx_http_request_t *r,
    const ngx_http_sandbox_v1_exec_t *body, sbx_f_exec_t *exec,
    u_char **strings, sbx_error_t *e)
{
    size_t                   i, size, env_size;
    u_char                  *p, *env;
    ngx_http_sandbox_ctx_t  *ctx;

    size = body->cwd.len + 1;

    if (ngx_http_sandbox_op_env(r->pool, &body->env, &env, &env_size, e) != 0
        || ngx_http_sandbox_v1_exec_argv(body, &size, e) != 0)
    {
        return -1;
    }

    size += env_size;

    if (size > SBX_STRINGS_MAX) {
        return sbx_error(e, 0, SBX_E_INVALID,
                         "/cmd: takes %zu bytes with its environment, more "
                         "than the %d that fit", size, SBX_STRINGS_MAX);
    }

    p = ngx_pnalloc(r->pool, size);

    if (p == NULL) {
        return sbx_error(e, 0, SBX_E_INTERNAL, "out of memory");
    }

    *strings = p;

    if (body->cwd.len != 0) {
        p = ngx_cpymem(p, body->cwd.data, body->cwd.len);
    }

    *p++ = '\0';

    ctx = ngx_http_sandbox_ctx(r);
    ctx->argv.data = p;

    if (body->cmd.is_array) {
        for (i = 0; i < body->cmd.argv.nelts; i++) {
            p = ngx_cpymem(p, body->cmd.argv.elts[i].data,
                           body->cmd.argv.elts[i].len + 1);
        }

    } else {
        i = 3;
        p = ngx_cpymem(p, "/bin/sh", sizeof("/bin/sh"));
        p = ngx_cpymem(p, "-c", sizeof("-c"));
        p = ngx_cpymem(p, body->cmd.shell.data, body->cmd.shell.len + 1);
    }

    ctx->argv.len = p - ctx->argv.data;

    if (env_size != 0) {
        ngx_memcpy(p, env, env_size);
    }

    exec->argc = (uint32_t) i;
    exec->envc = (uint32_t) body->env.nelts;
    exec->strings_size = (uint32_t) size;

    return 0;
}


static int
ngx_http_sandbox_v1_exec_stdin(ngx_http_request_t *r,
    const ngx_http_sandbox_v1_exec_t *body, ngx_str_t *in, sbx_error_t *e)
{
    in->data = (u_char *) body->in.data;
    in->len = body->in.len;

    if (body->in_base64.data == NULL) {
        return 0;
    }

    if (body->in.data != NULL) {
        return sbx_error(e, 0, SBX_E_INVALID,
                         "/stdin_base64: stdin is given as well");
    }

    switch (ngx_http_sandbox_v1_base64(r->pool, &body->in_base64, in)) {

    case NGX_OK:
        return 0;

    case NGX_DECLINED:
        return sbx_error(e, 0, SBX_E_INVALID,
                         "/stdin_base64: is not base64");

    default:
        return sbx_error(e, 0, SBX_E_INTERNAL, "out of memory");
    }
}


ngx_int_t
ngx_http_sandbox_v1_base64(ngx_pool_t *pool, const sbx_json_str_t *s,
    ngx_str_t *bytes)
{
    size_t     text;
    ngx_str_t  encoded;

    encoded.data = (u_char *) s->data;
    encoded.len = s->len;

    bytes->data = ngx_pnalloc(pool, ngx_base64_decoded_length(encoded.len));

    if (bytes->data == NULL) {
        return NGX_ERROR;
    }

    /* the decoder stops at the padding; what is after it must be padding */

    for (text = 0; text < encoded.len; text++) {
        if (encoded.data[text] == '=') {
            break;
        }
    }

    if (ngx_decode_base64(bytes, &encoded) != NGX_OK
        || (text < encoded.len
            && (encoded.len % 4 != 0 || encoded.len - text > 2
                || encoded.data[encoded.len - 1] != '=')))
    {
        return NGX_DECLINED;
    }

    return NGX_OK;
}


/* What is left out stays SBX_UNSET: the session's own limit, which only the
 * other side knows, as it knows whether more is asked than that. */

static void
ngx_http_sandbox_v1_exec_limits(ngx_http_request_t *r,
    const ngx_http_sandbox_v1_exec_t *body, sbx_f_exec_t *exec,
    ngx_http_sandbox_v1_command_t *command)
{
    uint64_t                       max;
    ngx_http_sandbox_main_conf_t  *smcf;

    smcf = ngx_http_get_module_main_conf(r, ngx_http_sandbox_module);

    exec->timeout = body->limits.exec_timeout;

    if (body->background && exec->timeout == SBX_UNSET) {
        exec->timeout = SBX_UNLIMITED;
    }

    exec->max_output = body->limits.max_output;
    exec->cpu_seconds = body->limits.cpu_seconds;
    exec->max_file_size = body->limits.max_file_size;
    exec->open_files = body->limits.open_files;
    exec->stack = body->limits.stack;

    max = exec->max_output;

    if (max == SBX_UNSET) {
        max = smcf->max.max_output;
    }

    command->out.max = max;
    command->err.max = max;
}


/*
 * The other side ends the command in time and tells so.  One that is silent
 * for longer is broken; without a time-out it is the session's end that ends
 * the call.
 */

ngx_http_sandbox_call_t *
ngx_http_sandbox_v1_exec_call(ngx_http_request_t *r,
    const ngx_http_sandbox_v1_ready_t *ready, void *data)
{
    ngx_http_sandbox_call_t       *call;
    ngx_http_sandbox_main_conf_t  *smcf;

    smcf = ngx_http_get_module_main_conf(r, ngx_http_sandbox_module);

    call = ngx_http_sandbox_op_call(r, SBX_OP_EXEC, &ready->limits,
                                    sizeof(sbx_exec_limits_t),
                                    NGX_INVALID_FILE, data);

    if (call == NULL) {
        return NULL;
    }

    call->timeout = ngx_http_sandbox_op_silence(smcf,
                                                     ready->exec.timeout);

    if (ngx_http_sandbox_call_queue(call, SBX_F_EXEC, &ready->exec,
                                    sizeof(sbx_f_exec_t)) != NGX_OK
        || ngx_http_sandbox_call_queue_bytes(call, SBX_F_STRINGS,
                                             ready->strings,
                                             ready->exec.strings_size)
           != NGX_OK
        || (ready->in.len != 0
            && ngx_http_sandbox_call_queue_bytes(call, SBX_F_STDIN,
                                                 ready->in.data,
                                                 ready->in.len) != NGX_OK)
        || ngx_http_sandbox_call_queue(call, SBX_F_STDIN, NULL, 0) != NGX_OK)
    {
        ngx_http_sandbox_call_close(call);
        return NULL;
    }

    return call;
}


static ngx_int_t
ngx_http_sandbox_v1_exec_exit(ngx_http_sandbox_call_t *call,
    const sbx_f_exit_t *end)
{
    ngx_http_request_t             *r;
    ngx_http_sandbox_json_t         j;
    ngx_http_sandbox_v1_command_t  *command;

    r = call->request;
    command = call->data;

    if (ngx_http_sandbox_op_exit(r, end) != NGX_OK) {
        return ngx_http_sandbox_op_broken(call, "an end that cannot be");
    }

    if (command->out.over || command->err.over) {
        ngx_log_error(NGX_LOG_ERR, r->connection->log, 0,
                      "sandbox sent more output than was asked for");
    }

    ngx_http_sandbox_json_init(&j, r->pool);
    ngx_http_sandbox_v1_exec_json(&j, end, command);

    return ngx_http_sandbox_op_finish(call,
                             ngx_http_sandbox_json_send(r, NGX_HTTP_OK, &j));
}


void
ngx_http_sandbox_v1_exec_json(ngx_http_sandbox_json_t *j,
    const sbx_f_exit_t *end, const ngx_http_sandbox_v1_command_t *command)
{
    ngx_http_sandbox_json_raw(j, "{\"pid\":");
    ngx_http_sandbox_json_int(j, end->pid);
    ngx_http_sandbox_json_raw(j, ",");
    ngx_http_sandbox_v1_exec_members(j, end, command);
    ngx_http_sandbox_json_raw(j, "}");
}


/* A command in the background has begun. */

static ngx_int_t
ngx_http_sandbox_v1_exec_begun(ngx_http_sandbox_call_t *call)
{
    ngx_http_sandbox_json_t         j;
    ngx_http_sandbox_v1_command_t  *command;

    command = call->data;

    ngx_http_sandbox_json_init(&j, call->request->pool);
    ngx_http_sandbox_json_raw(&j, "{\"pid\":");
    ngx_http_sandbox_json_int(&j, command->pid);
    ngx_http_sandbox_json_raw(&j, "}");

    return ngx_http_sandbox_op_finish(call,
               ngx_http_sandbox_json_send(call->request, NGX_HTTP_ACCEPTED,
                                          &j));
}


static ngx_int_t
ngx_http_sandbox_v1_exec_frame(ngx_http_sandbox_call_t *call,
    const sbx_frame_t *frame, const u_char *payload, ngx_fd_t fd)
{
    ngx_int_t                       rc;
    sbx_f_exit_t                    end;
    sbx_f_started_t                 started;
    ngx_http_sandbox_v1_command_t  *command;

    rc = ngx_http_sandbox_op_frame(call, frame, payload, fd);

    if (rc != NGX_DECLINED) {
        return rc;
    }

    command = call->data;

    if (command->stream != NULL) {
        rc = ngx_http_sandbox_v1_exec_follow(call, frame, payload);

        return (rc == NGX_DECLINED)
               ? ngx_http_sandbox_op_broken(call, "a wrong frame for exec")
               : rc;
    }

    switch (frame->type) {

    case SBX_F_STARTED:
        ngx_memcpy(&started, payload, sizeof(sbx_f_started_t));
        command->pid = started.pid;
        ngx_http_sandbox_ctx(call->request)->pid = started.pid;
        SBX_FAULT("worker-exec-started");
        return NGX_OK;

    case SBX_F_END:
        if (command->background && command->pid > 0) {
            return ngx_http_sandbox_v1_exec_begun(call);
        }

        return ngx_http_sandbox_op_broken(call, "an end of nothing");

    case SBX_F_STDOUT:
        rc = ngx_http_sandbox_op_output(call->request, &command->out,
                                             payload, frame->length);
        break;

    case SBX_F_STDERR:
        rc = ngx_http_sandbox_op_output(call->request, &command->err,
                                             payload, frame->length);
        break;

    case SBX_F_EXIT:
        ngx_memcpy(&end, payload, sizeof(sbx_f_exit_t));
        SBX_FAULT("worker-exec-over");
        return ngx_http_sandbox_v1_exec_exit(call, &end);

    default:
        return ngx_http_sandbox_op_broken(call, "a wrong frame for exec");
    }

    return (rc == NGX_OK) ? NGX_OK
                          : ngx_http_sandbox_op_broken(call,
                                                 "more than memory holds");
}


void
ngx_http_sandbox_v1_exec_members(ngx_http_sandbox_json_t *j,
    const sbx_f_exit_t *end, const ngx_http_sandbox_v1_command_t *command)
{
    ngx_http_sandbox_op_output_e  as;

    ngx_http_sandbox_json_raw(j, "\"exit_code\":");
    ngx_http_sandbox_json_int(j, end->exit_code);
    ngx_http_sandbox_json_raw(j, ",\"signal\":");
    ngx_http_sandbox_v1_signal_json(j, end->signal);
    ngx_http_sandbox_json_raw(j, ",\"reason\":");
    ngx_http_sandbox_json_cstring(j, sbx_reason_word(end->reason));
    ngx_http_sandbox_json_raw(j, ",\"timed_out\":");
    ngx_http_sandbox_json_bool(j, end->flags & SBX_EXIT_TIMED_OUT);
    ngx_http_sandbox_json_raw(j, ",\"oom_killed\":");
    ngx_http_sandbox_json_bool(j, end->flags & SBX_EXIT_OOM_KILLED);
    ngx_http_sandbox_json_raw(j, ",\"cancelled\":");
    ngx_http_sandbox_json_bool(j, end->flags & SBX_EXIT_CANCELLED);

    if (command != NULL) {
        as = command->base64 ? NGX_HTTP_SANDBOX_OP_OUTPUT_BASE64
                             : NGX_HTTP_SANDBOX_OP_OUTPUT_TEXT;

        ngx_http_sandbox_json_raw(j, ",\"stdout\":");
        ngx_http_sandbox_op_output_json(j, &command->out, command->out.len,
                                        as);
        ngx_http_sandbox_json_raw(j, ",\"stderr\":");
        ngx_http_sandbox_op_output_json(j, &command->err, command->err.len,
                                        as);
    }

    ngx_http_sandbox_json_raw(j, ",\"stdout_truncated\":");
    ngx_http_sandbox_json_bool(j, (command != NULL && command->out.over)
                                  || (end->flags & SBX_EXIT_OUT_TRUNCATED));
    ngx_http_sandbox_json_raw(j, ",\"stderr_truncated\":");
    ngx_http_sandbox_json_bool(j, (command != NULL && command->err.over)
                                  || (end->flags & SBX_EXIT_ERR_TRUNCATED));
    ngx_http_sandbox_json_raw(j, ",\"stdout_bytes\":");
    ngx_http_sandbox_json_int(j, (int64_t) end->stdout_bytes);
    ngx_http_sandbox_json_raw(j, ",\"stderr_bytes\":");
    ngx_http_sandbox_json_int(j, (int64_t) end->stderr_bytes);
    ngx_http_sandbox_json_raw(j, ",\"duration_s\":");
    ngx_http_sandbox_json_seconds(j, end->duration_us);
    ngx_http_sandbox_json_raw(j, ",\"usage\":{\"cpu_user_s\":");
    ngx_http_sandbox_json_seconds(j, end->cpu_user_us);
    ngx_http_sandbox_json_raw(j, ",\"cpu_system_s\":");
    ngx_http_sandbox_json_seconds(j, end->cpu_system_us);
    ngx_http_sandbox_json_raw(j, ",\"memory_peak\":");
    ngx_http_sandbox_json_int(j, (int64_t) end->memory_peak);
    ngx_http_sandbox_json_raw(j, ",\"processes_peak\":");
    ngx_http_sandbox_json_int(j, (int64_t) end->processes_peak);
    ngx_http_sandbox_json_raw(j, ",\"read_bytes\":");
    ngx_http_sandbox_json_int(j, (int64_t) end->read_bytes);
    ngx_http_sandbox_json_raw(j, ",\"written_bytes\":");
    ngx_http_sandbox_json_int(j, (int64_t) end->written_bytes);
    ngx_http_sandbox_json_raw(j, ",\"throttled_s\":");
    ngx_http_sandbox_json_seconds(j, end->throttled_us);
    ngx_http_sandbox_json_raw(j, "}");
}
