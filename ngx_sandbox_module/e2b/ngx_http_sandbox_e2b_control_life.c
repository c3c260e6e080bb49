/*
 * How long a sandbox has, and whether it runs.
 */

#include "ngx_http_sandbox_e2b_control.h"


#define NGX_HTTP_SANDBOX_E2B_REFRESH_MIN   15
#define NGX_HTTP_SANDBOX_E2B_REFRESH_MAX   3600


typedef struct {
    uint64_t   seconds;
    uint32_t   seconds_seen;
    uint32_t   memory;
    uint32_t   memory_seen;
} ngx_http_sandbox_e2b_life_t;


/* What is answered with the call's last frame. */

typedef struct {
    ngx_http_sandbox_op_session_t   session;      /* first: call->data */
    ngx_uint_t                      changed;      /* status where it was */
    ngx_uint_t                      same;         /* and where it was not */
    const char                     *conflict;     /* what 409 says */
} ngx_http_sandbox_e2b_life_call_t;


static int ngx_http_sandbox_e2b_life_bind(ngx_http_request_t *r,
    const sbx_json_field_t *fields, ngx_http_sandbox_e2b_life_t *body,
    sbx_error_t *e);
static ngx_int_t ngx_http_sandbox_e2b_life_start(ngx_http_request_t *r,
    sbx_op_t op, const sbx_patch_t *patch, ngx_uint_t changed,
    ngx_uint_t same, const char *conflict);
static ngx_int_t ngx_http_sandbox_e2b_life_frame(
    ngx_http_sandbox_call_t *call, const sbx_frame_t *frame,
    const u_char *payload, ngx_fd_t fd);


#define LIFE(field)  offsetof(ngx_http_sandbox_e2b_life_t, field)

static const sbx_json_field_t  ngx_http_sandbox_e2b_timeout_fields[] = {

    { .name = "timeout", .type = SBX_JSON_COUNT, .nullable = 1,
      .offset = LIFE(seconds), .seen = LIFE(seconds_seen) },

    { .name = "memory", .type = SBX_JSON_BOOL, .nullable = 1,
      .offset = LIFE(memory), .seen = LIFE(memory_seen) },

    NGX_HTTP_SANDBOX_E2B_LAX
};


static const sbx_json_field_t  ngx_http_sandbox_e2b_refresh_fields[] = {

    { .name = "duration", .type = SBX_JSON_COUNT, .nullable = 1,
      .max = NGX_HTTP_SANDBOX_E2B_REFRESH_MAX,
      .offset = LIFE(seconds), .seen = LIFE(seconds_seen) },

    NGX_HTTP_SANDBOX_E2B_LAX
};


static int
ngx_http_sandbox_e2b_life_bind(ngx_http_request_t *r,
    const sbx_json_field_t *fields, ngx_http_sandbox_e2b_life_t *body,
    sbx_error_t *e)
{
    ngx_memzero(body, sizeof(ngx_http_sandbox_e2b_life_t));

    return ngx_http_sandbox_op_bind(r, fields, body, e);
}


ngx_int_t
ngx_http_sandbox_e2b_set_timeout(ngx_http_request_t *r)
{
    sbx_error_t                  e;
    sbx_patch_t                  patch;
    ngx_http_sandbox_e2b_life_t  body;

    ngx_memzero(&patch, sizeof(sbx_patch_t));
    patch.flags = SBX_PATCH_TIMEOUT;

    if (ngx_http_sandbox_e2b_life_bind(r, ngx_http_sandbox_e2b_timeout_fields,
                                       &body, &e)
        != 0)
    {
        return ngx_http_sandbox_e2b_fault(r, &e);
    }

    if (!body.seconds_seen) {
        return ngx_http_sandbox_problem(r, NGX_HTTP_SANDBOX_INVALID_REQUEST,
                                        "timeout is missing");
    }

    if (ngx_http_sandbox_e2b_seconds(r, "timeout", body.seconds,
                                     &patch.timeout, &e)
        != 0)
    {
        return ngx_http_sandbox_e2b_fault(r, &e);
    }

    return ngx_http_sandbox_e2b_life_start(r, SBX_OP_PATCH, &patch,
                                           NGX_HTTP_NO_CONTENT,
                                           NGX_HTTP_NO_CONTENT, NULL);
}


ngx_int_t
ngx_http_sandbox_e2b_refresh(ngx_http_request_t *r)
{
    sbx_error_t                    e;
    sbx_patch_t                    patch;
    ngx_http_sandbox_e2b_life_t    body;
    ngx_http_sandbox_main_conf_t  *smcf;

    ngx_memzero(&patch, sizeof(sbx_patch_t));
    patch.flags = SBX_PATCH_TIMEOUT|SBX_PATCH_EXTEND;

    if (ngx_http_sandbox_e2b_life_bind(r, ngx_http_sandbox_e2b_refresh_fields,
                                       &body, &e)
        != 0)
    {
        return ngx_http_sandbox_e2b_fault(r, &e);
    }

    smcf = ngx_http_get_module_main_conf(r, ngx_http_sandbox_module);

    if (body.seconds < NGX_HTTP_SANDBOX_E2B_REFRESH_MIN) {
        body.seconds = ngx_min(NGX_HTTP_SANDBOX_E2B_REFRESH_MIN,
                               smcf->max.timeout / 1000);
    }

    if (ngx_http_sandbox_e2b_seconds(r, "duration", body.seconds,
                                     &patch.timeout, &e)
        != 0)
    {
        return ngx_http_sandbox_e2b_fault(r, &e);
    }

    return ngx_http_sandbox_e2b_life_start(r, SBX_OP_PATCH, &patch,
                                           NGX_HTTP_NO_CONTENT,
                                           NGX_HTTP_NO_CONTENT, NULL);
}


ngx_int_t
ngx_http_sandbox_e2b_pause(ngx_http_request_t *r)
{
    sbx_error_t                  e;
    ngx_http_sandbox_e2b_life_t  body;

    if (ngx_http_sandbox_e2b_life_bind(r, ngx_http_sandbox_e2b_timeout_fields,
                                       &body, &e)
        != 0)
    {
        return ngx_http_sandbox_e2b_fault(r, &e);
    }

    if (body.memory_seen && !body.memory) {
        return ngx_http_sandbox_problem(r, NGX_HTTP_SANDBOX_INVALID_REQUEST,
                                        "memory: a pause of this server "
                                        "always keeps memory and processes; "
                                        "leave it out or set it to true");
    }

    return ngx_http_sandbox_e2b_life_start(r, SBX_OP_PAUSE, NULL,
                                           NGX_HTTP_NO_CONTENT,
                                           NGX_HTTP_CONFLICT,
                                           "the sandbox is already paused");
}


/*
 * What is resumed has at least the time that is asked for, in one change with
 * its resuming: it cannot end in between.
 */

static ngx_int_t
ngx_http_sandbox_e2b_life_resume(ngx_http_request_t *r, uint64_t seconds,
    ngx_uint_t same, const char *conflict)
{
    sbx_error_t                    e;
    sbx_patch_t                    patch;
    ngx_http_sandbox_e2b_life_t    body;
    ngx_http_sandbox_main_conf_t  *smcf;

    ngx_memzero(&patch, sizeof(sbx_patch_t));
    patch.flags = SBX_PATCH_TIMEOUT|SBX_PATCH_EXTEND;

    if (ngx_http_sandbox_e2b_life_bind(r, ngx_http_sandbox_e2b_timeout_fields,
                                       &body, &e)
        != 0)
    {
        return ngx_http_sandbox_e2b_fault(r, &e);
    }

    smcf = ngx_http_get_module_main_conf(r, ngx_http_sandbox_module);

    if (!body.seconds_seen) {
        body.seconds = ngx_min(seconds, smcf->max.timeout / 1000);
    }

    if (ngx_http_sandbox_e2b_seconds(r, "timeout", body.seconds,
                                     &patch.timeout, &e)
        != 0)
    {
        return ngx_http_sandbox_e2b_fault(r, &e);
    }

    return ngx_http_sandbox_e2b_life_start(r, SBX_OP_RESUME, &patch,
                                           NGX_HTTP_CREATED, same, conflict);
}


ngx_int_t
ngx_http_sandbox_e2b_resume(ngx_http_request_t *r)
{
    return ngx_http_sandbox_e2b_life_resume(r,
                                           NGX_HTTP_SANDBOX_E2B_TIMEOUT_OLD,
                                           NGX_HTTP_CONFLICT,
                                           "the sandbox is already running");
}


ngx_int_t
ngx_http_sandbox_e2b_reconnect(ngx_http_request_t *r)
{
    return ngx_http_sandbox_e2b_life_resume(r, NGX_HTTP_SANDBOX_E2B_TIMEOUT,
                                            NGX_HTTP_OK, NULL);
}


static ngx_int_t
ngx_http_sandbox_e2b_life_start(ngx_http_request_t *r, sbx_op_t op,
    const sbx_patch_t *patch, ngx_uint_t changed, ngx_uint_t same,
    const char *conflict)
{
    ngx_http_sandbox_call_t           *call;
    ngx_http_sandbox_e2b_life_call_t  *life;

    life = ngx_pcalloc(r->pool, sizeof(ngx_http_sandbox_e2b_life_call_t));

    if (life == NULL) {
        return ngx_http_sandbox_problem(r, NGX_HTTP_SANDBOX_INTERNAL, NULL);
    }

    life->changed = changed;
    life->same = same;
    life->conflict = conflict;

    call = ngx_http_sandbox_op_call(r, op, patch,
                                    (patch == NULL) ? 0 : sizeof(sbx_patch_t),
                                    NGX_INVALID_FILE, life);

    if (call != NULL) {
        call->frame = ngx_http_sandbox_e2b_life_frame;
    }

    return ngx_http_sandbox_op_start(r, call);
}


static ngx_int_t
ngx_http_sandbox_e2b_life_frame(ngx_http_sandbox_call_t *call,
    const sbx_frame_t *frame, const u_char *payload, ngx_fd_t fd)
{
    ngx_int_t                          rc;
    ngx_uint_t                         status;
    sbx_f_end_t                        end;
    ngx_http_request_t                *r;
    ngx_http_sandbox_e2b_life_call_t  *life;

    rc = ngx_http_sandbox_op_session_part(call, frame, payload, fd);

    if (rc != NGX_DECLINED) {
        return rc;
    }

    r = call->request;
    life = call->data;

    ngx_memcpy(&end, payload, sizeof(sbx_f_end_t));
    status = end.count ? life->changed : life->same;

    if (ngx_http_sandbox_op_session_note(r, &life->session) != NGX_OK) {
        return ngx_http_sandbox_op_broken(call, "more than memory holds");
    }

    switch (status) {

    case NGX_HTTP_NO_CONTENT:
        return ngx_http_sandbox_op_finish(call,
                                          ngx_http_sandbox_op_no_content(r));

    case NGX_HTTP_CONFLICT:
        return ngx_http_sandbox_op_finish(call,
                   ngx_http_sandbox_problem(r, NGX_HTTP_SANDBOX_CONFLICT,
                                            "%s", life->conflict));

    default:
        return ngx_http_sandbox_e2b_sandbox_finish(call, status);
    }
}
