/*
 * Packages: the manager is run as a command of the session's user, with the
 * session's limits and what the session may reach, by a program of ours that
 * is shown in it and tells what there is afterwards.
 *
 * Where the operator has lists of names there are two rounds, the first of
 * which installs nothing: what is asked for must be allowed before anything
 * runs, and what that brings along before anything is installed.  All that
 * is read of a round has been in the session's hands.
 */

#include "../ngx_http_sandbox_package.h"
#include "ngx_http_sandbox_v1_exec.h"
#include "ngx_http_sandbox_v1_session.h"


#define NGX_HTTP_SANDBOX_V1_PACKAGES      256
#define NGX_HTTP_SANDBOX_V1_INSTALLED     4096
#define NGX_HTTP_SANDBOX_V1_RESULT_MAX    (1024 * 1024)
#define NGX_HTTP_SANDBOX_V1_RESULT_TIME   10000      /* ms */

#define NGX_HTTP_SANDBOX_V1_RUNNERS       "/run/sandbox/kernels/_packages/"


typedef struct {
    sbx_json_list_t   packages;
    sbx_json_str_t    manager;
    uint64_t          timeout;
} ngx_http_sandbox_v1_install_body_t;


typedef struct {
    sbx_json_str_t    name;
    sbx_json_str_t    version;
} ngx_http_sandbox_v1_installed_t;


typedef enum {
    NGX_HTTP_SANDBOX_V1_INSTALL_PLAN,
    NGX_HTTP_SANDBOX_V1_INSTALL_PLANNED,
    NGX_HTTP_SANDBOX_V1_INSTALL_RUN,
    NGX_HTTP_SANDBOX_V1_INSTALL_TOLD
} ngx_http_sandbox_v1_install_step_e;


typedef struct {
    ngx_http_request_t                  *request;
    ngx_http_sandbox_main_conf_t        *smcf;
    ngx_http_sandbox_v1_install_body_t   body;
    ngx_uint_t                           manager;
    sbx_json_str_t                      *names;    /* of body.packages */
    ngx_http_sandbox_v1_install_step_e   step;
    ngx_http_sandbox_v1_command_t        command;  /* of the step */
    sbx_f_exit_t                         end;      /* of the manager */
    ngx_http_sandbox_op_output_t         out;      /* of it */
    ngx_http_sandbox_op_output_t         err;
    ngx_str_t                            argv;     /* of it, for the log */
    uint64_t                             took;     /* us */
    uint64_t                             time;     /* ms, of all steps */
    ngx_msec_t                           start;
    sbx_json_str_t                      *exact;    /* what has been planned */
    size_t                               nexact;
    unsigned                             offline:1;
    unsigned                             planned:1;
} ngx_http_sandbox_v1_install_t;


static ngx_int_t ngx_http_sandbox_v1_install_frame(
    ngx_http_sandbox_call_t *call, const sbx_frame_t *frame,
    const u_char *payload, ngx_fd_t fd);
static ngx_int_t ngx_http_sandbox_v1_install_begin(
    ngx_http_sandbox_call_t *call, const sbx_f_session_t *session);
static int ngx_http_sandbox_v1_install_bind(ngx_http_request_t *r,
    ngx_http_sandbox_v1_install_t *install, sbx_error_t *e);
static int ngx_http_sandbox_v1_install_time(
    ngx_http_sandbox_v1_install_t *install, const sbx_limits_t *limits,
    sbx_error_t *e);
static ngx_int_t ngx_http_sandbox_v1_install_next(
    ngx_http_sandbox_v1_install_t *install, ngx_http_sandbox_call_t *done);
static ngx_http_sandbox_call_t *ngx_http_sandbox_v1_install_call(
    ngx_http_sandbox_v1_install_t *install, sbx_error_t *e);
static int ngx_http_sandbox_v1_install_argv(
    ngx_http_sandbox_v1_install_t *install, sbx_json_list_t *argv);
static ngx_int_t ngx_http_sandbox_v1_install_step_frame(
    ngx_http_sandbox_call_t *call, const sbx_frame_t *frame,
    const u_char *payload, ngx_fd_t fd);
static ngx_int_t ngx_http_sandbox_v1_install_exit(
    ngx_http_sandbox_v1_install_t *install, ngx_http_sandbox_call_t *call,
    const sbx_f_exit_t *end);
static ngx_int_t ngx_http_sandbox_v1_install_planned(
    ngx_http_sandbox_v1_install_t *install, ngx_http_sandbox_call_t *call);
static int ngx_http_sandbox_v1_install_result(
    ngx_http_sandbox_v1_install_t *install, sbx_json_objects_t *result);
static ngx_int_t ngx_http_sandbox_v1_install_answer(
    ngx_http_sandbox_v1_install_t *install, ngx_http_sandbox_call_t *call);
static void ngx_http_sandbox_v1_install_members(ngx_http_sandbox_json_t *j,
    const ngx_http_sandbox_v1_install_t *install);
static ngx_int_t ngx_http_sandbox_v1_install_failed(
    ngx_http_sandbox_v1_install_t *install, const char *fmt, ...);
static ngx_int_t ngx_http_sandbox_v1_install_denied(
    ngx_http_sandbox_v1_install_t *install, const sbx_json_str_t *name,
    const char *fmt);


#define INSTALL(field)  offsetof(ngx_http_sandbox_v1_install_body_t, field)

static const sbx_json_field_t  ngx_http_sandbox_v1_install_fields[] = {

    { .name = "packages", .type = SBX_JSON_STRINGS, .required = 1,
      .max = NGX_HTTP_SANDBOX_V1_PACKAGES, .offset = INSTALL(packages) },

    { .name = "manager", .type = SBX_JSON_STRING,
      .offset = INSTALL(manager) },

    { .name = "timeout_s", .type = SBX_JSON_LIMIT, .nullable = 1,
      .limit = "exec_timeout_s", .offset = INSTALL(timeout) },

    { .name = NULL }
};


#define INSTALLED(field)  offsetof(ngx_http_sandbox_v1_installed_t, field)

static const sbx_json_field_t  ngx_http_sandbox_v1_installed_fields[] = {

    { .name = "name", .type = SBX_JSON_STRING, .required = 1,
      .max = NGX_HTTP_SANDBOX_PACKAGE_NAME, .offset = INSTALLED(name) },

    { .name = "version", .type = SBX_JSON_STRING, .required = 1,
      .max = NGX_HTTP_SANDBOX_PACKAGE_VERSION,
      .offset = INSTALLED(version) },

    { .name = NULL }
};


static ngx_http_sandbox_v1_installed_t  ngx_http_sandbox_v1_installed_none;

static const sbx_json_field_t  ngx_http_sandbox_v1_result_fields[] = {

    { .name = "packages", .type = SBX_JSON_OBJECTS, .required = 1,
      .max = NGX_HTTP_SANDBOX_V1_INSTALLED, .offset = 0,
      .fields = ngx_http_sandbox_v1_installed_fields,
      .element = &ngx_http_sandbox_v1_installed_none,
      .size = sizeof(ngx_http_sandbox_v1_installed_t) },

    { .name = NULL }
};


/* The session first: a dead one is told before a bad body is. */

ngx_int_t
ngx_http_sandbox_v1_install(ngx_http_request_t *r)
{
    return ngx_http_sandbox_op_session_ask(r,
                                       ngx_http_sandbox_v1_install_frame);
}


static ngx_int_t
ngx_http_sandbox_v1_install_frame(ngx_http_sandbox_call_t *call,
    const sbx_frame_t *frame, const u_char *payload, ngx_fd_t fd)
{
    ngx_int_t                       rc;
    ngx_http_sandbox_op_session_t  *session;

    rc = ngx_http_sandbox_op_session_part(call, frame, payload, fd);

    if (rc != NGX_DECLINED) {
        return rc;
    }

    session = call->data;

    if (ngx_http_sandbox_op_session_note(call->request, session) != NGX_OK) {
        return ngx_http_sandbox_op_broken(call, "more than memory holds");
    }

    return ngx_http_sandbox_v1_install_begin(call, &session->session);
}


static ngx_int_t
ngx_http_sandbox_v1_install_begin(ngx_http_sandbox_call_t *call,
    const sbx_f_session_t *session)
{
    size_t                          i;
    sbx_error_t                     e;
    ngx_http_request_t             *r;
    ngx_http_sandbox_packages_t    *packages;
    ngx_http_sandbox_v1_install_t  *install;

    r = call->request;

    if (session->status == SBX_STATUS_PAUSED) {
        return ngx_http_sandbox_op_finish(call,
                   ngx_http_sandbox_problem(r, NGX_HTTP_SANDBOX_SESSION_PAUSED,
                                            NULL));
    }

    install = ngx_pcalloc(r->pool, sizeof(ngx_http_sandbox_v1_install_t));

    if (install == NULL) {
        return ngx_http_sandbox_op_broken(call, "more than memory holds");
    }

    install->request = r;
    install->smcf = ngx_http_get_module_main_conf(r, ngx_http_sandbox_module);
    install->start = ngx_current_msec;

    if (ngx_http_sandbox_v1_install_bind(r, install, &e) != 0
        || ngx_http_sandbox_v1_install_time(install, &session->limits, &e)
           != 0)
    {
        return ngx_http_sandbox_op_finish(call,
                                      ngx_http_sandbox_problem_core(r, &e));
    }

    packages = install->smcf->packages;
    install->offline = (session->network == SBX_NETWORK_NONE);

    if (install->offline
        && (packages == NULL
            || (packages->wheels.len == 0 && packages->cache.len == 0)))
    {
        return ngx_http_sandbox_op_finish(call,
                   ngx_http_sandbox_problem(r,
                                    NGX_HTTP_SANDBOX_NETWORK_NOT_PERMITTED,
                                    "the session's manifest grants no "
                                    "network to install packages from"));
    }

    for (i = 0; i < install->body.packages.nelts; i++) {
        if (!ngx_http_sandbox_package_allowed(install->smcf,
                                              install->manager,
                                              (u_char *)
                                                  install->names[i].data,
                                              install->names[i].len))
        {
            return ngx_http_sandbox_op_finish(call,
                       ngx_http_sandbox_v1_install_denied(install,
                           &install->names[i],
                           "the package \"%*s\" is not one that this server "
                           "lets sessions install"));
        }
    }

    install->step = ngx_http_sandbox_package_lists(install->smcf,
                                                   install->manager)
                    ? NGX_HTTP_SANDBOX_V1_INSTALL_PLAN
                    : NGX_HTTP_SANDBOX_V1_INSTALL_RUN;

    return ngx_http_sandbox_v1_install_next(install, call);
}


static int
ngx_http_sandbox_v1_install_bind(ngx_http_request_t *r,
    ngx_http_sandbox_v1_install_t *install, sbx_error_t *e)
{
    size_t                               i, name;
    ngx_int_t                            manager;
    const char                          *fault;
    sbx_json_str_t                      *package;
    ngx_http_sandbox_v1_install_body_t  *body;

    body = &install->body;
    body->timeout = SBX_UNSET;

    if (ngx_http_sandbox_op_bind(r, ngx_http_sandbox_v1_install_fields, body,
                                 e)
        != 0)
    {
        return -1;
    }

    manager = NGX_HTTP_SANDBOX_PACKAGE_PIP;

    if (body->manager.data != NULL) {
        manager = ngx_http_sandbox_package_manager(body->manager.data,
                                                   body->manager.len);
    }

    if (manager == NGX_DECLINED) {
        return sbx_error(e, 0, SBX_E_INVALID,
                         "/manager: must be \"pip\" or \"npm\"");
    }

    if (body->packages.nelts == 0) {
        return sbx_error(e, 0, SBX_E_INVALID,
                         "/packages: must name at least one");
    }

    install->manager = (ngx_uint_t) manager;
    install->names = ngx_palloc(r->pool, body->packages.nelts
                                         * sizeof(sbx_json_str_t));

    if (install->names == NULL) {
        return sbx_error(e, 0, SBX_E_INTERNAL, "out of memory");
    }

    for (i = 0; i < body->packages.nelts; i++) {
        package = &body->packages.elts[i];
        name = 0;
        fault = ngx_http_sandbox_package_fault(install->manager,
                                               (u_char *) package->data,
                                               package->len, &name);

        if (fault != NULL) {
            return sbx_error(e, 0, SBX_E_INVALID, "/packages/%zu: %s", i,
                             fault);
        }

        install->names[i].data = package->data;
        install->names[i].len = name;
    }

    return 0;
}


/* Packages take longer than commands do: it is sandbox_max that bounds them,
 * and the session's own time-out is what they have where none is asked for. */

static int
ngx_http_sandbox_v1_install_time(ngx_http_sandbox_v1_install_t *install,
    const sbx_limits_t *limits, sbx_error_t *e)
{
    char                text[32];
    size_t              len;
    uint64_t            max;
    const sbx_limit_t  *row;

    install->time = install->body.timeout;

    if (install->time == SBX_UNSET) {
        install->time = limits->exec_timeout;
        return 0;
    }

    max = install->smcf->max.exec_timeout;

    if (install->time > max && max < SBX_UNLIMITED
        && install->time != SBX_UNLIMITED)
    {
        row = sbx_limit_find("exec_timeout", sizeof("exec_timeout") - 1, 0);
        len = (row == NULL) ? 0 : sbx_limit_print(row, max, text);

        return sbx_error(e, 0, SBX_E_MANIFEST,
                         "/timeout_s: is more than the %.*s that this server "
                         "allows", (int) len, text);
    }

    return 0;
}


/*
 * ---- the steps -----------------------------------------------------------
 */


/* The step's call, in place of the one that is done. */

static ngx_int_t
ngx_http_sandbox_v1_install_next(ngx_http_sandbox_v1_install_t *install,
    ngx_http_sandbox_call_t *done)
{
    ngx_int_t                 rc;
    sbx_error_t               e;
    ngx_http_sandbox_call_t  *call;

    ngx_http_sandbox_call_close(done);

    e.code = SBX_OK;
    call = ngx_http_sandbox_v1_install_call(install, &e);

    if (call != NULL) {
        call->frame = ngx_http_sandbox_v1_install_step_frame;

        if (ngx_http_sandbox_call_start(call) == NGX_OK) {
            return NGX_DONE;
        }

        ngx_http_sandbox_call_close(call);
        rc = ngx_http_sandbox_problem(install->request,
                                      NGX_HTTP_SANDBOX_BROKER_UNAVAILABLE,
                                      NULL);

    } else if (e.code != SBX_OK) {
        rc = ngx_http_sandbox_problem_core(install->request, &e);

    } else {
        rc = ngx_http_sandbox_problem(install->request,
                                      NGX_HTTP_SANDBOX_INTERNAL, NULL);
    }

    return ngx_http_sandbox_op_finish(done, rc);
}


static ngx_http_sandbox_call_t *
ngx_http_sandbox_v1_install_call(ngx_http_sandbox_v1_install_t *install,
    sbx_error_t *e)
{
    uint64_t                     gone;
    ngx_uint_t                   runs;
    ngx_http_sandbox_v1_exec_t   body;
    ngx_http_sandbox_v1_ready_t  ready;

    ngx_memzero(&body, sizeof(body));
    ngx_memzero(&install->command, sizeof(install->command));
    sbx_limits_clear(&body.limits);

    runs = (install->step == NGX_HTTP_SANDBOX_V1_INSTALL_PLAN
            || install->step == NGX_HTTP_SANDBOX_V1_INSTALL_RUN);

    if (!runs) {
        body.limits.exec_timeout = NGX_HTTP_SANDBOX_V1_RESULT_TIME;

    } else if (install->time >= SBX_UNLIMITED) {
        body.limits.exec_timeout = SBX_UNLIMITED;

    } else {
        gone = ngx_current_msec - install->start;
        body.limits.exec_timeout = (gone < install->time)
                                   ? install->time - gone : 1;
    }

    body.cmd.is_array = 1;

    if (ngx_http_sandbox_v1_install_argv(install, &body.cmd.argv) != 0) {
        (void) sbx_error(e, 0, SBX_E_INTERNAL, "out of memory");
        return NULL;
    }

    if (ngx_http_sandbox_v1_exec_prepare(install->request, &body,
                                         &install->command, &ready, e)
        != 0)
    {
        return NULL;
    }

    ready.exec.flags |= SBX_EXEC_LONG;

    if (!runs) {
        ready.exec.flags &= ~SBX_EXEC_CAP;
        install->command.out.max = NGX_HTTP_SANDBOX_V1_RESULT_MAX;
        install->command.err.max = NGX_HTTP_SANDBOX_V1_RESULT_MAX;

    } else {
        install->argv = ngx_http_sandbox_ctx(install->request)->argv;
    }

    return ngx_http_sandbox_v1_exec_call(install->request, &ready, install);
}


static void
ngx_http_sandbox_v1_install_word(sbx_json_list_t *argv, const char *word)
{
    argv->elts[argv->nelts].data = (char *) word;
    argv->elts[argv->nelts].len = ngx_strlen(word);
    argv->nelts++;
}


static int
ngx_http_sandbox_v1_install_argv(ngx_http_sandbox_v1_install_t *install,
    sbx_json_list_t *argv)
{
    char                  *result, *name;
    size_t                 i, n;
    ngx_str_t              id;
    ngx_pool_t            *pool;
    const sbx_json_str_t  *wanted;

    static const struct {
        const char  *words[3];
    } runners[NGX_HTTP_SANDBOX_PACKAGE_MANAGERS] = {
        { { "python3", "-I", NGX_HTTP_SANDBOX_V1_RUNNERS "pip.py" } },
        { { "node", NGX_HTTP_SANDBOX_V1_RUNNERS "npm.js", NULL } }
    };

    pool = install->request->pool;
    ngx_http_sandbox_request_id(install->request, &id);

    wanted = (install->exact != NULL) ? install->exact
                                      : install->body.packages.elts;
    n = (install->exact != NULL) ? install->nexact
                                 : install->body.packages.nelts;

    result = ngx_pnalloc(pool, sizeof("/tmp/.install-") + id.len + 2);
    argv->nelts = 0;
    argv->elts = ngx_palloc(pool, (8 + install->body.packages.nelts + n)
                                  * sizeof(sbx_json_str_t));

    if (id.len == 0 || result == NULL || argv->elts == NULL) {
        return -1;
    }

    (void) ngx_sprintf((u_char *) result, "/tmp/.install-%V.%d%Z", &id,
                       install->step >= NGX_HTTP_SANDBOX_V1_INSTALL_RUN);

    if (install->step == NGX_HTTP_SANDBOX_V1_INSTALL_PLANNED
        || install->step == NGX_HTTP_SANDBOX_V1_INSTALL_TOLD)
    {
        ngx_http_sandbox_v1_install_word(argv, "/bin/sh");
        ngx_http_sandbox_v1_install_word(argv, "-c");
        ngx_http_sandbox_v1_install_word(argv, "cat \"$0\"; rm -f \"$0\"");
        ngx_http_sandbox_v1_install_word(argv, result);
        return 0;
    }

    for (i = 0; i < 3; i++) {
        if (runners[install->manager].words[i] != NULL) {
            ngx_http_sandbox_v1_install_word(argv,
                                       runners[install->manager].words[i]);
        }
    }

    ngx_http_sandbox_v1_install_word(argv, result);
    ngx_http_sandbox_v1_install_word(argv,
        install->step == NGX_HTTP_SANDBOX_V1_INSTALL_PLAN ? "plan"
        : install->planned ? "exact" : "install");
    ngx_http_sandbox_v1_install_word(argv,
                                  install->offline ? "offline" : "online");

    for (i = 0; i < install->body.packages.nelts; i++) {
        name = ngx_pnalloc(pool, install->names[i].len + 1);

        if (name == NULL) {
            return -1;
        }

        (void) ngx_cpystrn((u_char *) name, (u_char *) install->names[i].data,
                           install->names[i].len + 1);
        ngx_http_sandbox_v1_install_word(argv, name);
    }

    ngx_http_sandbox_v1_install_word(argv, "--");

    for (i = 0; i < n; i++) {
        argv->elts[argv->nelts++] = wanted[i];
    }

    return 0;
}


static ngx_int_t
ngx_http_sandbox_v1_install_step_frame(ngx_http_sandbox_call_t *call,
    const sbx_frame_t *frame, const u_char *payload, ngx_fd_t fd)
{
    ngx_int_t                       rc;
    sbx_f_exit_t                    end;
    sbx_f_started_t                 started;
    ngx_http_sandbox_v1_install_t  *install;
    ngx_http_sandbox_v1_command_t  *command;

    rc = ngx_http_sandbox_op_frame(call, frame, payload, fd);

    if (rc != NGX_DECLINED) {
        return rc;
    }

    install = call->data;
    command = &install->command;

    switch (frame->type) {

    case SBX_F_STARTED:
        ngx_memcpy(&started, payload, sizeof(sbx_f_started_t));
        command->pid = started.pid;
        return NGX_OK;

    case SBX_F_STDOUT:
    case SBX_F_STDERR:
        rc = ngx_http_sandbox_op_output(call->request,
                                        frame->type == SBX_F_STDOUT
                                        ? &command->out : &command->err,
                                        payload, frame->length);

        return (rc == NGX_OK) ? NGX_OK
               : ngx_http_sandbox_op_broken(call, "more than memory holds");

    case SBX_F_EXIT:
        ngx_memcpy(&end, payload, sizeof(sbx_f_exit_t));
        return ngx_http_sandbox_v1_install_exit(install, call, &end);

    default:
        return ngx_http_sandbox_op_broken(call, "a wrong frame for exec");
    }
}


static ngx_int_t
ngx_http_sandbox_v1_install_exit(ngx_http_sandbox_v1_install_t *install,
    ngx_http_sandbox_call_t *call, const sbx_f_exit_t *end)
{
    ngx_http_sandbox_ctx_t  *ctx, before;

    ctx = ngx_http_sandbox_ctx(call->request);
    before = *ctx;

    if (ngx_http_sandbox_op_exit(call->request, end) != NGX_OK) {
        return ngx_http_sandbox_op_broken(call, "an end that cannot be");
    }

    ctx->cpu_us += ngx_max(before.cpu_us, 0);
    ctx->wall_us += ngx_max(before.wall_us, 0);
    ctx->memory_peak = ngx_max(ctx->memory_peak, before.memory_peak);
    ctx->argv = install->argv;

    switch (install->step) {

    case NGX_HTTP_SANDBOX_V1_INSTALL_PLANNED:
        return ngx_http_sandbox_v1_install_planned(install, call);

    case NGX_HTTP_SANDBOX_V1_INSTALL_TOLD:
        ctx->exit = before.exit;
        ctx->reason = before.reason;
        return ngx_http_sandbox_v1_install_answer(install, call);

    default:
        break;
    }

    install->end = *end;
    install->out = install->command.out;
    install->err = install->command.err;
    install->took += end->duration_us;

    if (end->reason == SBX_REASON_EXITED && end->exit_code == 0) {
        install->step++;
        return ngx_http_sandbox_v1_install_next(install, call);
    }

    if (end->reason == SBX_REASON_EXITED) {
        return ngx_http_sandbox_op_finish(call,
                   ngx_http_sandbox_v1_install_failed(install,
                       "the package manager exited with status %d",
                       end->exit_code));
    }

    return ngx_http_sandbox_op_finish(call,
               ngx_http_sandbox_v1_install_failed(install,
                   "the package manager was ended: %s",
                   sbx_reason_word(end->reason)));
}


/* What the asked ones bring along is known, and none of it is there yet. */

static ngx_int_t
ngx_http_sandbox_v1_install_planned(ngx_http_sandbox_v1_install_t *install,
    ngx_http_sandbox_call_t *call)
{
    size_t                            i;
    u_char                           *p;
    sbx_json_str_t                   *exact;
    sbx_json_objects_t                result;
    ngx_http_sandbox_v1_installed_t  *packages;

    if (ngx_http_sandbox_v1_install_result(install, &result) != 0) {
        return ngx_http_sandbox_op_finish(call,
                   ngx_http_sandbox_v1_install_failed(install,
                       "what the packages bring along could not be learned"));
    }

    packages = result.elts;

    for (i = 0; i < result.nelts; i++) {
        if (!ngx_http_sandbox_package_allowed(install->smcf,
                                              install->manager,
                                              (u_char *)
                                                  packages[i].name.data,
                                              packages[i].name.len))
        {
            return ngx_http_sandbox_op_finish(call,
                       ngx_http_sandbox_v1_install_denied(install,
                           &packages[i].name,
                           "the package \"%*s\", which is needed by what was "
                           "asked for, is not one that this server lets "
                           "sessions install"));
        }
    }

    install->planned = (install->manager == NGX_HTTP_SANDBOX_PACKAGE_PIP);

    if (install->planned && result.nelts != 0) {
        exact = ngx_palloc(install->request->pool,
                           result.nelts * sizeof(sbx_json_str_t));

        for (i = 0; exact != NULL && i < result.nelts; i++) {
            p = ngx_pnalloc(install->request->pool,
                            packages[i].name.len + packages[i].version.len
                            + sizeof("=="));

            if (p == NULL) {
                exact = NULL;
                break;
            }

            exact[i].data = (char *) p;
            exact[i].len = packages[i].name.len + 2 + packages[i].version.len;
            p = ngx_cpymem(p, packages[i].name.data, packages[i].name.len);
            p = ngx_cpymem(p, "==", 2);
            p = ngx_cpymem(p, packages[i].version.data,
                           packages[i].version.len);
            *p = '\0';
        }

        if (exact == NULL) {
            return ngx_http_sandbox_op_broken(call, "more than memory holds");
        }

        install->exact = exact;
        install->nexact = result.nelts;
    }

    install->step++;

    return ngx_http_sandbox_v1_install_next(install, call);
}


/* As strict as a request: whoever wrote it may be anybody in the session. */

static int
ngx_http_sandbox_v1_install_result(ngx_http_sandbox_v1_install_t *install,
    sbx_json_objects_t *result)
{
    size_t                            i;
    sbx_error_t                       e;
    sbx_json_alloc_t                  alloc;
    ngx_http_sandbox_op_output_t     *out;
    ngx_http_sandbox_v1_installed_t  *packages;

    out = &install->command.out;
    ngx_memzero(result, sizeof(sbx_json_objects_t));

    if (out->len == 0 || out->over) {
        return -1;
    }

    alloc = ngx_http_sandbox_op_allocator(install->request->pool);

    if (sbx_json_bind(out->data, out->len, ngx_http_sandbox_v1_result_fields,
                      result, &alloc, &e)
        != 0)
    {
        result->nelts = 0;
        return -1;
    }

    packages = result->elts;

    for (i = 0; i < result->nelts; i++) {
        if (!ngx_http_sandbox_package_name_ok(install->manager,
                                              (u_char *)
                                                  packages[i].name.data,
                                              packages[i].name.len, 0)
            || !ngx_http_sandbox_package_version_ok((u_char *)
                                                  packages[i].version.data,
                                                packages[i].version.len))
        {
            result->nelts = 0;
            return -1;
        }
    }

    return 0;
}


/*
 * ---- answers -------------------------------------------------------------
 */


static ngx_int_t
ngx_http_sandbox_v1_install_answer(ngx_http_sandbox_v1_install_t *install,
    ngx_http_sandbox_call_t *call)
{
    size_t                            i;
    ngx_http_sandbox_json_t           j;
    sbx_json_objects_t                result;
    ngx_http_sandbox_v1_installed_t  *packages;

    (void) ngx_http_sandbox_v1_install_result(install, &result);

    packages = result.elts;

    ngx_http_sandbox_json_init(&j, install->request->pool);
    ngx_http_sandbox_json_raw(&j, "{\"installed\":[");

    for (i = 0; i < result.nelts; i++) {
        ngx_http_sandbox_json_raw(&j, i ? ",{\"name\":" : "{\"name\":");
        ngx_http_sandbox_json_string(&j, packages[i].name.data,
                                     packages[i].name.len);
        ngx_http_sandbox_json_raw(&j, ",\"version\":");
        ngx_http_sandbox_json_string(&j, packages[i].version.data,
                                     packages[i].version.len);
        ngx_http_sandbox_json_raw(&j, "}");
    }

    ngx_http_sandbox_json_raw(&j, "]");
    ngx_http_sandbox_v1_install_members(&j, install);
    ngx_http_sandbox_json_raw(&j, ",\"exit_code\":0}");

    return ngx_http_sandbox_op_finish(call,
               ngx_http_sandbox_json_send(install->request, NGX_HTTP_OK, &j));
}


static void
ngx_http_sandbox_v1_install_members(ngx_http_sandbox_json_t *j,
    const ngx_http_sandbox_v1_install_t *install)
{
    ngx_http_sandbox_json_raw(j, ",\"stdout\":");
    ngx_http_sandbox_json_string(j, install->out.data, install->out.len);
    ngx_http_sandbox_json_raw(j, ",\"stderr\":");
    ngx_http_sandbox_json_string(j, install->err.data, install->err.len);
    ngx_http_sandbox_json_raw(j, ",\"stdout_truncated\":");
    ngx_http_sandbox_json_bool(j, install->out.over
                                  || (install->end.flags
                                      & SBX_EXIT_OUT_TRUNCATED));
    ngx_http_sandbox_json_raw(j, ",\"stderr_truncated\":");
    ngx_http_sandbox_json_bool(j, install->err.over
                                  || (install->end.flags
                                      & SBX_EXIT_ERR_TRUNCATED));
    ngx_http_sandbox_json_raw(j, ",\"duration_s\":");
    ngx_http_sandbox_json_seconds(j, install->took);
}


static ngx_int_t
ngx_http_sandbox_v1_install_failed(ngx_http_sandbox_v1_install_t *install,
    const char *fmt, ...)
{
    u_char                   text[128];
    va_list                  args;
    ngx_str_t                detail;
    ngx_http_sandbox_json_t  j;

    va_start(args, fmt);
    detail.data = text;
    detail.len = ngx_vslprintf(text, text + sizeof(text), fmt, args) - text;
    va_end(args);

    ngx_http_sandbox_json_init(&j, install->request->pool);
    ngx_http_sandbox_v1_install_members(&j, install);
    ngx_http_sandbox_json_raw(&j, ",\"exit_code\":");
    ngx_http_sandbox_json_int(&j, install->end.exit_code);
    ngx_http_sandbox_json_raw(&j, ",\"reason\":");
    ngx_http_sandbox_json_cstring(&j, sbx_reason_word(install->end.reason));
    ngx_http_sandbox_json_raw(&j, ",\"timed_out\":");
    ngx_http_sandbox_json_bool(&j, install->end.flags & SBX_EXIT_TIMED_OUT);
    ngx_http_sandbox_json_raw(&j, ",\"oom_killed\":");
    ngx_http_sandbox_json_bool(&j, install->end.flags & SBX_EXIT_OOM_KILLED);

    return ngx_http_sandbox_problem_with(install->request,
                                         NGX_HTTP_SANDBOX_INSTALL_FAILED,
                                         &detail, &j);
}


/* fmt takes the name's length and bytes.  Nothing was installed. */

static ngx_int_t
ngx_http_sandbox_v1_install_denied(ngx_http_sandbox_v1_install_t *install,
    const sbx_json_str_t *name, const char *fmt)
{
    u_char                   text[NGX_HTTP_SANDBOX_PACKAGE_NAME + 128];
    ngx_str_t                detail;
    ngx_http_sandbox_json_t  j;

    detail.data = text;
    detail.len = ngx_slprintf(text, text + sizeof(text), fmt, name->len,
                              name->data)
                 - text;

    ngx_http_sandbox_json_init(&j, install->request->pool);
    ngx_http_sandbox_json_raw(&j, ",\"package\":");
    ngx_http_sandbox_json_string(&j, name->data, name->len);
    ngx_http_sandbox_v1_install_members(&j, install);
    ngx_http_sandbox_json_raw(&j, ",\"exit_code\":null");

    return ngx_http_sandbox_problem_with(install->request,
                                         NGX_HTTP_SANDBOX_INSTALL_FAILED,
                                         &detail, &j);
}
