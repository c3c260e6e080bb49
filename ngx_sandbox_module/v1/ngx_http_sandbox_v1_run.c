/*
 * One call for a session's whole life: create, files, commands, destroy.  It
 * goes from state to state by the calls that the single routes make:
 *
 *   CREATE       tied: the session ends when this call is closed, and so
 *                whatever becomes of the client, the worker or the request
 *   FILES        PUT, one after the other
 *   STEPS        EXEC, while each exits 0
 *   DESTROY      so that all of it is given back before the answer
 *
 * The body is checked as a whole before anything is made.  What goes wrong
 * later ends in DESTROY too, and is answered then.
 */

#include "ngx_http_sandbox_v1_create.h"
#include "ngx_http_sandbox_v1_exec.h"
#include "ngx_http_sandbox_v1_files.h"
#include "ngx_http_sandbox_passed.h"


#define NGX_HTTP_SANDBOX_V1_RUN_FILES    1024
#define NGX_HTTP_SANDBOX_V1_RUN_STEPS    64
#define NGX_HTTP_SANDBOX_V1_RUN_FIELDS   24


/* The fields of a create come first, at the same offsets. */

typedef struct {
    ngx_http_sandbox_op_create_t    create;
    sbx_json_map_t                  files;
    sbx_json_map_t                  files_base64;
    sbx_json_objects_t              steps;
} ngx_http_sandbox_v1_run_body_t;

typedef struct {
    const char                     *field;
    sbx_json_str_t                  name;
    ngx_str_t                       bytes;
} ngx_http_sandbox_v1_run_file_t;

typedef struct {
    ngx_http_sandbox_v1_ready_t     ready;
    ngx_http_sandbox_v1_command_t   command;
    ngx_str_t                       argv;         /* for the audit log */
} ngx_http_sandbox_v1_run_step_t;

typedef struct {
    ngx_http_request_t             *request;
    ngx_http_sandbox_call_t        *tie;          /* the CREATE */
    ngx_http_sandbox_op_session_t   session;
    ngx_http_sandbox_v1_run_file_t *files;
    ngx_http_sandbox_v1_run_step_t *steps;
    ngx_uint_t                      nfiles;
    ngx_uint_t                      nsteps;
    ngx_uint_t                      file;         /* next, or under way */
    ngx_uint_t                      step;
    uint64_t                        left[2];      /* of output to keep */
    ngx_http_sandbox_json_t         json;
    sbx_f_error_t                   error;        /* code SBX_OK: none */
    unsigned                        created:1;
    unsigned                        over:1;       /* no further step */
} ngx_http_sandbox_v1_run_t;


static int ngx_http_sandbox_v1_run_bind(ngx_http_request_t *r,
    ngx_http_sandbox_v1_run_body_t *body, sbx_error_t *e);
static int ngx_http_sandbox_v1_run_files(ngx_http_sandbox_v1_run_t *run,
    const char *field, const sbx_json_map_t *map, ngx_uint_t base64,
    sbx_error_t *e);
static int ngx_http_sandbox_v1_run_steps(ngx_http_sandbox_v1_run_t *run,
    const sbx_json_objects_t *steps, sbx_error_t *e);
static ngx_int_t ngx_http_sandbox_v1_run_tie_frame(
    ngx_http_sandbox_call_t *call, const sbx_frame_t *frame,
    const u_char *payload, ngx_fd_t fd);
static void ngx_http_sandbox_v1_run_tie_failed(ngx_http_sandbox_call_t *call,
    ngx_http_sandbox_error_e error);
static ngx_int_t ngx_http_sandbox_v1_run_next(ngx_http_sandbox_v1_run_t *run,
    ngx_http_sandbox_call_t *done);
static ngx_http_sandbox_call_t *ngx_http_sandbox_v1_run_file(
    ngx_http_sandbox_v1_run_t *run);
static ngx_int_t ngx_http_sandbox_v1_run_file_frame(
    ngx_http_sandbox_call_t *call, const sbx_frame_t *frame,
    const u_char *payload, ngx_fd_t fd);
static ngx_http_sandbox_call_t *ngx_http_sandbox_v1_run_step(
    ngx_http_sandbox_v1_run_t *run);
static ngx_int_t ngx_http_sandbox_v1_run_step_frame(
    ngx_http_sandbox_call_t *call, const sbx_frame_t *frame,
    const u_char *payload, ngx_fd_t fd);
static ngx_int_t ngx_http_sandbox_v1_run_exit(ngx_http_sandbox_v1_run_t *run,
    ngx_http_sandbox_call_t *call, const sbx_f_exit_t *end);
static ngx_int_t ngx_http_sandbox_v1_run_end_frame(
    ngx_http_sandbox_call_t *call, const sbx_frame_t *frame,
    const u_char *payload, ngx_fd_t fd);
static void ngx_http_sandbox_v1_run_failed(ngx_http_sandbox_call_t *call,
    ngx_http_sandbox_error_e error);
static ngx_int_t ngx_http_sandbox_v1_run_error(ngx_http_sandbox_v1_run_t *run,
    ngx_http_sandbox_call_t *call, const u_char *payload, const char *base,
    const sbx_json_str_t *key);
static ngx_int_t ngx_http_sandbox_v1_run_answer(
    ngx_http_sandbox_v1_run_t *run, ngx_http_sandbox_call_t *call);


#define RUN(field)  offsetof(ngx_http_sandbox_v1_run_body_t, field)

static ngx_http_sandbox_v1_exec_t  ngx_http_sandbox_v1_run_default;

static const sbx_json_field_t  ngx_http_sandbox_v1_run_fields[] = {

    { .name = "files", .type = SBX_JSON_MAP,
      .max = NGX_HTTP_SANDBOX_V1_RUN_FILES, .offset = RUN(files) },

    { .name = "files_base64", .type = SBX_JSON_MAP,
      .max = NGX_HTTP_SANDBOX_V1_RUN_FILES, .offset = RUN(files_base64) },

    { .name = "steps", .type = SBX_JSON_OBJECTS, .required = 1,
      .max = NGX_HTTP_SANDBOX_V1_RUN_STEPS, .offset = RUN(steps),
      .fields = ngx_http_sandbox_v1_exec_fields,
      .element = &ngx_http_sandbox_v1_run_default,
      .size = sizeof(ngx_http_sandbox_v1_exec_t) },

    { .name = NULL }
};


ngx_int_t
ngx_http_sandbox_v1_run(ngx_http_request_t *r)
{
    sbx_error_t                      e;
    ngx_http_sandbox_v1_run_t       *run;
    ngx_http_sandbox_main_conf_t    *smcf;
    ngx_http_sandbox_v1_run_body_t   body;

    run = ngx_pcalloc(r->pool, sizeof(ngx_http_sandbox_v1_run_t));

    if (run == NULL) {
        return ngx_http_sandbox_problem(r, NGX_HTTP_SANDBOX_INTERNAL, NULL);
    }

    smcf = ngx_http_get_module_main_conf(r, ngx_http_sandbox_module);

    run->request = r;
    run->left[0] = smcf->max.max_output;
    run->left[1] = smcf->max.max_output;

    if (ngx_http_sandbox_v1_run_bind(r, &body, &e) != 0
        || ngx_http_sandbox_v1_run_files(run, "/files", &body.files, 0, &e)
           != 0
        || ngx_http_sandbox_v1_run_files(run, "/files_base64",
                                         &body.files_base64, 1, &e)
           != 0
        || ngx_http_sandbox_v1_run_steps(run, &body.steps, &e) != 0
        || ngx_http_sandbox_op_create_call(r, &body.create,
                                           SBX_CREATE_TIED
                                           |SBX_CREATE_PORT_TOKEN,
                                           run, &run->tie, &e)
           != 0)
    {
        return ngx_http_sandbox_problem_core(r, &e);
    }

    ngx_http_sandbox_json_init(&run->json, r->pool);
    ngx_http_sandbox_json_raw(&run->json, "{\"steps\":[");

    run->tie->frame = ngx_http_sandbox_v1_run_tie_frame;
    run->tie->failed = ngx_http_sandbox_v1_run_tie_failed;

    return ngx_http_sandbox_op_start(r, run->tie);
}


static int
ngx_http_sandbox_v1_run_bind(ngx_http_request_t *r,
    ngx_http_sandbox_v1_run_body_t *body, sbx_error_t *e)
{
    ngx_uint_t        i, n;
    ngx_str_t         key;
    sbx_json_field_t  fields[NGX_HTTP_SANDBOX_V1_RUN_FIELDS];

    ngx_memzero(body, sizeof(ngx_http_sandbox_v1_run_body_t));
    sbx_limits_clear(&body->create.manifest.limits);
    sbx_limits_clear(&ngx_http_sandbox_v1_run_default.limits);

    for (n = 0; ngx_http_sandbox_v1_create_fields[n].name != NULL; n++) {
        fields[n] = ngx_http_sandbox_v1_create_fields[n];
    }

    for (i = 0; i < sbx_nelts(ngx_http_sandbox_v1_run_fields); i++) {
        fields[n + i] = ngx_http_sandbox_v1_run_fields[i];
    }

    if (ngx_http_sandbox_op_bind(r, fields, body, e) != 0) {
        return -1;
    }

    if (body->create.manifest.on_timeout.data != NULL
        && ngx_http_sandbox_op_is(&body->create.manifest.on_timeout, "pause"))
    {
        return sbx_error(e, 0, SBX_E_MANIFEST,
                         "/manifest/on_timeout: a run's session ends with it "
                         "and is never paused");
    }

    if (ngx_http_sandbox_op_header(r, "idempotency-key", &key)
        != NGX_DECLINED)
    {
        return sbx_error(e, 0, SBX_E_INVALID,
                         "Idempotency-Key: a run cannot be asked for again");
    }

    return 0;
}


static int
ngx_http_sandbox_v1_run_files(ngx_http_sandbox_v1_run_t *run,
    const char *field, const sbx_json_map_t *map, ngx_uint_t base64,
    sbx_error_t *e)
{
    size_t                           i;
    ngx_pool_t                      *pool;
    const sbx_json_pair_t           *pair;
    ngx_http_sandbox_v1_run_file_t  *files, *file;

    pool = run->request->pool;

    if (map->nelts == 0) {
        return 0;
    }

    files = ngx_palloc(pool, (run->nfiles + map->nelts)
                             * sizeof(ngx_http_sandbox_v1_run_file_t));

    if (files == NULL) {
        return sbx_error(e, 0, SBX_E_INTERNAL, "out of memory");
    }

    if (run->nfiles != 0) {
        ngx_memcpy(files, run->files,
                   run->nfiles * sizeof(ngx_http_sandbox_v1_run_file_t));
    }

    run->files = files;

    for (i = 0; i < map->nelts; i++) {
        pair = &map->elts[i];
        file = &files[run->nfiles++];

        file->field = field;
        file->name = pair->key;
        file->bytes.data = (u_char *) pair->value.data;
        file->bytes.len = pair->value.len;

        if (pair->key.len == 0 || pair->key.len >= SBX_PATH_MAX
            || memchr(pair->key.data, '\0', pair->key.len) != NULL)
        {
            (void) sbx_json_refuse(e, field, &pair->key,
                                   "a path is not empty, has no NUL and at "
                                   "most 4095 bytes");
            e->code = SBX_E_PATH;
            return -1;
        }

        if (!base64) {
            continue;
        }

        switch (ngx_http_sandbox_v1_base64(pool, &pair->value, &file->bytes))
        {
        case NGX_OK:
            break;

        case NGX_DECLINED:
            return sbx_json_refuse(e, field, &pair->key, "is not base64");

        default:
            return sbx_error(e, 0, SBX_E_INTERNAL, "out of memory");
        }
    }

    return 0;
}


/* What needs somebody who comes back to it has no place in a run. */

static const char *
ngx_http_sandbox_v1_run_misplaced(const ngx_http_sandbox_v1_exec_t *step)
{
    return step->background ? "background"
           : step->stdin_open ? "stdin_open"
           : step->tty ? "tty"
           : NULL;
}


static int
ngx_http_sandbox_v1_run_steps(ngx_http_sandbox_v1_run_t *run,
    const sbx_json_objects_t *steps, sbx_error_t *e)
{
    size_t                             i;
    const char                        *field;
    sbx_error_t                        inner;
    ngx_http_sandbox_v1_run_step_t    *step;
    ngx_http_sandbox_ctx_t            *ctx;
    const ngx_http_sandbox_v1_exec_t  *asked;

    ctx = ngx_http_sandbox_ctx(run->request);

    if (steps->nelts == 0) {
        return sbx_error(e, 0, SBX_E_INVALID,
                         "/steps: must have at least one element");
    }

    run->steps = ngx_pcalloc(run->request->pool,
                        steps->nelts * sizeof(ngx_http_sandbox_v1_run_step_t));

    if (run->steps == NULL) {
        return sbx_error(e, 0, SBX_E_INTERNAL, "out of memory");
    }

    run->nsteps = steps->nelts;
    asked = steps->elts;

    for (i = 0; i < steps->nelts; i++) {
        step = &run->steps[i];
        field = ngx_http_sandbox_v1_run_misplaced(&asked[i]);

        if (field != NULL) {
            return sbx_error(e, 0, SBX_E_INVALID,
                             "/steps/%zu/%s: is not for a run", i, field);
        }

        if (ngx_http_sandbox_v1_exec_prepare(run->request, &asked[i],
                                             &step->command, &step->ready,
                                             &inner)
            != 0)
        {
            return inner.text[0] == '/'
                   ? sbx_error(e, inner.err, inner.code, "/steps/%zu%s", i,
                               inner.text)
                   : sbx_error(e, inner.err, inner.code, "%s", inner.text);
        }

        step->argv = ctx->argv;
    }

    ngx_str_null(&ctx->argv);

    return 0;
}


/* The call that made the session, and keeps it. */

static ngx_int_t
ngx_http_sandbox_v1_run_tie_frame(ngx_http_sandbox_call_t *call,
    const sbx_frame_t *frame, const u_char *payload, ngx_fd_t fd)
{
    ngx_int_t                   rc;
    ngx_http_sandbox_v1_run_t  *run;

    run = call->data;

    if (run->created) {

        if (fd == NGX_INVALID_FILE && frame->type == SBX_F_ACCEPTED) {
            return NGX_OK;
        }

        if (fd != NGX_INVALID_FILE) {
            ngx_http_sandbox_passed_close(call->header.session, fd);
        }

        /* The session has ended, or the broker says what it never does: the
         * call that is under way is told, and it alone answers. */

        ngx_http_sandbox_call_close(call);
        return NGX_DONE;
    }

    rc = ngx_http_sandbox_op_frame(call, frame, payload, fd);

    if (rc != NGX_DECLINED) {
        return rc;
    }

    rc = ngx_http_sandbox_op_session_frame(call->request, &run->session,
                                           frame, payload);

    if (rc == NGX_AGAIN) {
        return NGX_OK;
    }

    if (rc != NGX_OK
        || ngx_http_sandbox_op_session_note(call->request, &run->session)
           != NGX_OK)
    {
        return ngx_http_sandbox_op_broken(call, "a wrong frame for create");
    }

    run->created = 1;
    ngx_http_sandbox_ctx(call->request)->created = 1;
    call->timeout = 0;

    return ngx_http_sandbox_v1_run_next(run, NULL);
}


static void
ngx_http_sandbox_v1_run_tie_failed(ngx_http_sandbox_call_t *call,
    ngx_http_sandbox_error_e error)
{
    ngx_http_sandbox_v1_run_t  *run;

    run = call->data;

    if (!run->created) {
        ngx_http_sandbox_op_failed(call, error);
    }

    /* the broker has gone, and its successor ends what was tied to it; what
     * is under way is told by the session's end */
}


/*
 * The next call, in place of the one that is done (NULL: of none).  Returns
 * what a frame() does.
 */

static ngx_int_t
ngx_http_sandbox_v1_run_next(ngx_http_sandbox_v1_run_t *run,
    ngx_http_sandbox_call_t *done)
{
    sbx_error_t               e;
    ngx_http_sandbox_call_t  *call;

    if (done != NULL) {
        ngx_http_sandbox_call_close(done);
    }

    for ( ;; ) {

        if (run->error.code == SBX_OK && run->file < run->nfiles) {
            call = ngx_http_sandbox_v1_run_file(run);

        } else if (run->error.code == SBX_OK && !run->over
                   && run->step < run->nsteps)
        {
            call = ngx_http_sandbox_v1_run_step(run);

        } else {
            call = ngx_http_sandbox_op_call(run->request, SBX_OP_DESTROY,
                                            NULL, 0, NGX_INVALID_FILE, run);

            if (call != NULL) {
                call->frame = ngx_http_sandbox_v1_run_end_frame;
            }
        }

        if (call != NULL) {
            call->failed = ngx_http_sandbox_v1_run_failed;

            if (ngx_http_sandbox_call_start(call) == NGX_OK) {
                return done != NULL ? NGX_DONE : NGX_OK;
            }

            ngx_http_sandbox_call_close(call);
        }

        if (run->error.code != SBX_OK) {

            /* nor can it be destroyed by a call: the tie does that */

            return ngx_http_sandbox_v1_run_answer(run, run->tie);
        }

        run->error.code = SBX_E_UNAVAILABLE;
        run->error.retry_after = 1;
        (void) sbx_error(&e, 0, SBX_E_UNAVAILABLE,
                         "the broker does not take the call");
        ngx_memcpy(run->error.text, e.text, sizeof(run->error.text));
    }
}


static ngx_http_sandbox_call_t *
ngx_http_sandbox_v1_run_file(ngx_http_sandbox_v1_run_t *run)
{
    ngx_str_t                        path;
    sbx_f_file_t                     file;
    ngx_http_sandbox_call_t         *call;
    ngx_http_sandbox_v1_run_file_t  *put;

    put = &run->files[run->file];

    path.data = (u_char *) put->name.data;
    path.len = put->name.len;

    ngx_memzero(&file, sizeof(sbx_f_file_t));
    file.verb = SBX_FILE_PUT;
    file.user = SBX_USER_USER;
    file.size = put->bytes.len;
    file.max = SBX_UNSET;
    file.path_len = (uint32_t) path.len;

    call = ngx_http_sandbox_op_file_call(run->request, &file, &path, NULL,
                                         run);

    if (call != NULL) {
        call->frame = ngx_http_sandbox_v1_run_file_frame;
    }

    return call;
}


static ngx_int_t
ngx_http_sandbox_v1_run_file_frame(ngx_http_sandbox_call_t *call,
    const sbx_frame_t *frame, const u_char *payload, ngx_fd_t fd)
{
    ngx_int_t                        rc;
    ngx_http_sandbox_v1_run_t       *run;
    ngx_http_sandbox_v1_run_file_t  *file;

    run = call->data;
    file = &run->files[run->file];

    if (frame->type == SBX_F_ERROR && fd == NGX_INVALID_FILE) {
        return ngx_http_sandbox_v1_run_error(run, call, payload, file->field,
                                             &file->name);
    }

    rc = ngx_http_sandbox_op_frame(call, frame, payload, fd);

    if (rc != NGX_DECLINED) {
        return rc;
    }

    if (frame->type == SBX_F_END) {
        run->file++;
        return ngx_http_sandbox_v1_run_next(run, call);
    }

    if (frame->type != SBX_F_READY) {
        return ngx_http_sandbox_op_broken(call, "a wrong frame for upload");
    }

    if ((file->bytes.len != 0
         && ngx_http_sandbox_call_queue_bytes(call, SBX_F_DATA,
                                              file->bytes.data,
                                              file->bytes.len)
            != NGX_OK)
        || ngx_http_sandbox_call_queue(call, SBX_F_DATA, NULL, 0) != NGX_OK)
    {
        return ngx_http_sandbox_op_broken(call, "more than memory holds");
    }

    return NGX_OK;
}


/* All steps keep no more than one command may: it is all in one answer. */

static ngx_http_sandbox_call_t *
ngx_http_sandbox_v1_run_step(ngx_http_sandbox_v1_run_t *run)
{
    ngx_http_sandbox_call_t         *call;
    ngx_http_sandbox_v1_run_step_t  *step;

    step = &run->steps[run->step];
    step->command.out.max = ngx_min(step->command.out.max, run->left[0]);
    step->command.err.max = ngx_min(step->command.err.max, run->left[1]);

    call = ngx_http_sandbox_v1_exec_call(run->request, &step->ready, run);

    if (call != NULL) {
        call->frame = ngx_http_sandbox_v1_run_step_frame;
    }

    return call;
}


static ngx_int_t
ngx_http_sandbox_v1_run_step_frame(ngx_http_sandbox_call_t *call,
    const sbx_frame_t *frame, const u_char *payload, ngx_fd_t fd)
{
    char                            number[NGX_INT_T_LEN + 1];
    ngx_int_t                       rc;
    sbx_f_exit_t                    end;
    sbx_json_str_t                  key;
    ngx_http_sandbox_v1_run_t      *run;
    ngx_http_sandbox_v1_command_t  *command;

    run = call->data;
    command = &run->steps[run->step].command;

    if (frame->type == SBX_F_ERROR && fd == NGX_INVALID_FILE) {
        key.len = ngx_sprintf((u_char *) number, "%ui", run->step)
                  - (u_char *) number;
        key.data = number;

        return ngx_http_sandbox_v1_run_error(run, call, payload, "/steps",
                                             &key);
    }

    rc = ngx_http_sandbox_op_frame(call, frame, payload, fd);

    if (rc != NGX_DECLINED) {
        return rc;
    }

    switch (frame->type) {

    case SBX_F_STARTED:
        return NGX_OK;

    case SBX_F_STDOUT:
    case SBX_F_STDERR:
        return ngx_http_sandbox_op_output_frame(call,
                                    frame->type == SBX_F_STDOUT
                                    ? &command->out : &command->err,
                                    payload, frame->length);

    case SBX_F_EXIT:
        ngx_memcpy(&end, payload, sizeof(sbx_f_exit_t));
        return ngx_http_sandbox_v1_run_exit(run, call, &end);

    default:
        return ngx_http_sandbox_op_broken(call, "a wrong frame for exec");
    }
}


static ngx_int_t
ngx_http_sandbox_v1_run_exit(ngx_http_sandbox_v1_run_t *run,
    ngx_http_sandbox_call_t *call, const sbx_f_exit_t *end)
{
    ngx_http_sandbox_ctx_t  *ctx, before, step;

    ctx = ngx_http_sandbox_ctx(call->request);
    before = *ctx;

    if (ngx_http_sandbox_op_exit(call->request, end) != NGX_OK) {
        return ngx_http_sandbox_op_broken(call, "an end that cannot be");
    }

    step = *ctx;
    step.argv = run->steps[run->step].argv;
    ngx_http_sandbox_audit_step(call->request, &step, run->step);

    /* the run is all of them, and ends as the last one did */

    ctx->pid = 0;
    ctx->cpu_us += ngx_max(before.cpu_us, 0);
    ctx->wall_us += ngx_max(before.wall_us, 0);
    ctx->memory_peak = ngx_max(ctx->memory_peak, before.memory_peak);

    ngx_http_sandbox_json_raw(&run->json, run->step ? "," : "");
    ngx_http_sandbox_v1_exec_json(&run->json, end,
                                  &run->steps[run->step].command);

    run->left[0] -= run->steps[run->step].command.out.len;
    run->left[1] -= run->steps[run->step].command.err.len;

    run->step++;
    run->over = end->exit_code != 0 || end->reason != SBX_REASON_EXITED;

    return ngx_http_sandbox_v1_run_next(run, call);
}


/* The session has gone, by this call or before it. */

static ngx_int_t
ngx_http_sandbox_v1_run_end_frame(ngx_http_sandbox_call_t *call,
    const sbx_frame_t *frame, const u_char *payload, ngx_fd_t fd)
{
    sbx_f_error_t               error;
    ngx_http_sandbox_v1_run_t  *run;

    run = call->data;

    if (fd == NGX_INVALID_FILE && frame->type == SBX_F_ACCEPTED) {
        return NGX_OK;
    }

    if (fd == NGX_INVALID_FILE && frame->type == SBX_F_ERROR) {
        ngx_memcpy(&error, payload, sizeof(sbx_f_error_t));

        if (error.code != SBX_E_SESSION) {
            ngx_log_error(NGX_LOG_ERR, call->request->connection->log, 0,
                          "sandbox session of a run was not destroyed: %s",
                          error.text);
        }

        return ngx_http_sandbox_v1_run_answer(run, call);
    }

    if (fd != NGX_INVALID_FILE || frame->type != SBX_F_END) {

        if (fd != NGX_INVALID_FILE) {
            ngx_http_sandbox_passed_close(call->header.session, fd);
        }

        return ngx_http_sandbox_op_broken(call, "a wrong frame for destroy");
    }

    return ngx_http_sandbox_v1_run_answer(run, call);
}


/* A file's, a step's or the last call has been lost. */

static void
ngx_http_sandbox_v1_run_failed(ngx_http_sandbox_call_t *call,
    ngx_http_sandbox_error_e error)
{
    ngx_http_sandbox_op_failed(call, error);
}


/* What a call was refused with, by the place in the body that asked for it;
 * answered once the session has gone. */

static ngx_int_t
ngx_http_sandbox_v1_run_error(ngx_http_sandbox_v1_run_t *run,
    ngx_http_sandbox_call_t *call, const u_char *payload, const char *base,
    const sbx_json_str_t *key)
{
    sbx_error_t  e;

    ngx_memcpy(&run->error, payload, sizeof(sbx_f_error_t));
    run->error.text[sizeof(run->error.text) - 1] = '\0';

    if (run->error.code == SBX_OK) {
        return ngx_http_sandbox_op_broken(call, "an error that is none");
    }

    (void) sbx_json_refuse(&e, base, key, run->error.text);
    ngx_memcpy(run->error.text, e.text, ngx_min(sizeof(run->error.text),
                                                sizeof(e.text)));
    run->error.text[sizeof(run->error.text) - 1] = '\0';

    return ngx_http_sandbox_v1_run_next(run, call);
}


static ngx_int_t
ngx_http_sandbox_v1_run_answer(ngx_http_sandbox_v1_run_t *run,
    ngx_http_sandbox_call_t *call)
{
    ngx_int_t            rc;
    ngx_http_request_t  *r;

    r = run->request;

    ngx_http_sandbox_call_close(run->tie);

    if (run->error.code != SBX_OK) {
        rc = ngx_http_sandbox_problem_wire(r, &run->error);

    } else {
        ngx_http_sandbox_json_raw(&run->json, "]}");
        rc = ngx_http_sandbox_json_send(r, NGX_HTTP_OK, &run->json);
    }

    return ngx_http_sandbox_op_finish(call, rc);
}
