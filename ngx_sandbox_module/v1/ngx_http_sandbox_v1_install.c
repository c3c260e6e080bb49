#include "ngx_http_sandbox_v1_session.h"


#define NGX_HTTP_SANDBOX_V1_PACKAGES      256
#define NGX_HTTP_SANDBOX_V1_PACKAGE_MAX   1024


typedef struct {
    sbx_json_list_t   packages;
    sbx_json_str_t    manager;
    uint64_t          timeout;
} ngx_http_sandbox_v1_install_t;


static ngx_int_t ngx_http_sandbox_v1_install_frame(
    ngx_http_sandbox_call_t *call, const sbx_frame_t *frame,
    const u_char *payload, ngx_fd_t fd);
static ngx_int_t ngx_http_sandbox_v1_install_answer(ngx_http_request_t *r,
    const sbx_f_session_t *session);
static int ngx_http_sandbox_v1_install_check(
    const ngx_http_sandbox_v1_install_t *body, sbx_error_t *e);
static const char *ngx_http_sandbox_v1_install_fault(
    const sbx_json_str_t *package);


#define INSTALL(field)  offsetof(ngx_http_sandbox_v1_install_t, field)

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
    ngx_http_request_t             *r;
    ngx_http_sandbox_op_session_t  *session;

    rc = ngx_http_sandbox_op_session_part(call, frame, payload, fd);

    if (rc != NGX_DECLINED) {
        return rc;
    }

    r = call->request;
    session = call->data;

    if (ngx_http_sandbox_op_session_note(r, session) != NGX_OK) {
        return ngx_http_sandbox_op_broken(call, "more than memory holds");
    }

    return ngx_http_sandbox_op_finish(call,
                ngx_http_sandbox_v1_install_answer(r, &session->session));
}


static ngx_int_t
ngx_http_sandbox_v1_install_answer(ngx_http_request_t *r,
    const sbx_f_session_t *session)
{
    sbx_error_t                    e;
    ngx_http_sandbox_v1_install_t  body;

    if (session->status == SBX_STATUS_PAUSED) {
        return ngx_http_sandbox_problem(r, NGX_HTTP_SANDBOX_SESSION_PAUSED,
                                        NULL);
    }

    ngx_memzero(&body, sizeof(body));

    if (ngx_http_sandbox_op_bind(r, ngx_http_sandbox_v1_install_fields, &body,
                                 &e)
        != 0
        || ngx_http_sandbox_v1_install_check(&body, &e) != 0)
    {
        return ngx_http_sandbox_problem_core(r, &e);
    }

    /* no session of this version has a network to install from */

    return ngx_http_sandbox_problem(r,
                                    NGX_HTTP_SANDBOX_NETWORK_NOT_PERMITTED,
                                    "the session's manifest grants no "
                                    "network to install packages from");
}


static int
ngx_http_sandbox_v1_install_check(const ngx_http_sandbox_v1_install_t *body,
    sbx_error_t *e)
{
    size_t       i;
    const char  *fault;

    if (body->manager.data != NULL
        && !ngx_http_sandbox_op_is(&body->manager, "pip")
        && !ngx_http_sandbox_op_is(&body->manager, "npm"))
    {
        return sbx_error(e, 0, SBX_E_INVALID,
                         "/manager: must be \"pip\" or \"npm\"");
    }

    if (body->packages.nelts == 0) {
        return sbx_error(e, 0, SBX_E_INVALID,
                         "/packages: must name at least one");
    }

    for (i = 0; i < body->packages.nelts; i++) {
        fault = ngx_http_sandbox_v1_install_fault(&body->packages.elts[i]);

        if (fault != NULL) {
            return sbx_error(e, 0, SBX_E_INVALID, "/packages/%zu: %s", i,
                             fault);
        }
    }

    return 0;
}


/*
 * A requirement is a name, with extras, versions and markers; npm's may have
 * a scope.  What a package manager would take for an option, a path or an
 * address is none.
 */

static const char *
ngx_http_sandbox_v1_install_fault(const sbx_json_str_t *package)
{
    u_char   ch;
    size_t   i, slashes;

    if (package->len == 0 || package->len > NGX_HTTP_SANDBOX_V1_PACKAGE_MAX) {
        return "must be 1 to 1024 bytes long";
    }

    ch = (u_char) package->data[0];

    if (ch == '-') {
        return "begins with '-': options are not accepted";
    }

    if (ch == '.' || ch == '/' || ch == '~' || ch == ' ') {
        return "must begin with a package's name: paths are not accepted";
    }

    slashes = 0;

    for (i = 0; i < package->len; i++) {
        ch = (u_char) package->data[i];

        if (ch < 0x20 || ch == 0x7f) {
            return "must have no control characters";
        }

        if (ch == ':' || ch == '\\') {
            return "must be a name: addresses and paths are not accepted";
        }

        slashes += (ch == '/');
    }

    if (slashes > 1 || (slashes == 1 && package->data[0] != '@')) {
        return "must be a name: addresses and paths are not accepted";
    }

    return NULL;
}
