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

#include "ngx_http_sandbox_v1_install.h"
#include "ngx_http_sandbox_v1_session.h"


#define NGX_HTTP_SANDBOX_V1_PACKAGES      256
#define NGX_HTTP_SANDBOX_V1_RESULT_MAX    (1024 * 1024)
#define NGX_HTTP_SANDBOX_V1_RESULT_TIME   10000      /* ms */

#define NGX_HTTP_SANDBOX_V1_RUNNERS       "/run/sandbox/kernels/_packages/"


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
static ngx_int_t ngx_http_sandbox_v1_install_pin(
    ngx_http_sandbox_v1_install_t *install,
    const ngx_http_sandbox_v1_installed_t *packages, size_t n);


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
        return ngx_http_sandbox_op_output_frame(call,
                                        frame->type == SBX_F_STDOUT
                                        ? &command->out : &command->err,
                                        payload, frame->length);

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

    /* npm is not told exactly: it cannot do without its own look */

    install->planned = (install->manager == NGX_HTTP_SANDBOX_PACKAGE_PIP);

    if (install->planned && result.nelts != 0
        && ngx_http_sandbox_v1_install_pin(install, packages, result.nelts)
           != NGX_OK)
    {
        return ngx_http_sandbox_op_broken(call, "more than memory holds");
    }

    install->step++;

    return ngx_http_sandbox_v1_install_next(install, call);
}


/* What was allowed is what is installed, whatever an index says by now. */

static ngx_int_t
ngx_http_sandbox_v1_install_pin(ngx_http_sandbox_v1_install_t *install,
    const ngx_http_sandbox_v1_installed_t *packages, size_t n)
{
    size_t           i, len;
    u_char          *p;
    sbx_json_str_t  *exact;

    exact = ngx_palloc(install->request->pool, n * sizeof(sbx_json_str_t));

    if (exact == NULL) {
        return NGX_ERROR;
    }

    for (i = 0; i < n; i++) {
        len = packages[i].name.len + 2 + packages[i].version.len;
        p = ngx_pnalloc(install->request->pool, len + 1);

        if (p == NULL) {
            return NGX_ERROR;
        }

        exact[i].data = (char *) p;
        exact[i].len = len;
        p = ngx_cpymem(p, packages[i].name.data, packages[i].name.len);
        p = ngx_cpymem(p, "==", 2);
        p = ngx_cpymem(p, packages[i].version.data, packages[i].version.len);
        *p = '\0';
    }

    install->exact = exact;
    install->nexact = n;

    return NGX_OK;
}
