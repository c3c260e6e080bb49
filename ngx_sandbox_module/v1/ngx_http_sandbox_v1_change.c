/*
 * Changing a session that there is: its time, metadata and network, pause and
 * resume.
 * All of them are answered with the session, once the broker has it on disk.
 */

#include "ngx_http_sandbox_v1_create.h"


typedef struct {
    uint64_t          timeout;
    uint32_t          pad;
    uint32_t          timeout_seen;
    uint32_t          metadata_seen;
    uint32_t          network_seen;
    sbx_json_map_t    metadata;
    sbx_json_network_t  network;
} ngx_http_sandbox_v1_patch_t;


static int ngx_http_sandbox_v1_patch_check(ngx_http_request_t *r,
    const ngx_http_sandbox_v1_patch_t *body, sbx_patch_t *patch,
    sbx_error_t *e);
static ngx_int_t ngx_http_sandbox_v1_change(ngx_http_request_t *r,
    sbx_op_t op, const sbx_patch_t *patch, ngx_fd_t blob);


#define PATCH(field)  offsetof(ngx_http_sandbox_v1_patch_t, field)

static const sbx_json_field_t  ngx_http_sandbox_v1_patch_fields[] = {

    { .name = "timeout_s", .type = SBX_JSON_LIMIT, .limit = "timeout_s",
      .offset = PATCH(timeout), .seen = PATCH(timeout_seen) },

    { .name = "metadata", .type = SBX_JSON_MAP,
      .max = NGX_HTTP_SANDBOX_OP_META_PAIRS,
      .offset = PATCH(metadata), .seen = PATCH(metadata_seen) },

    { .name = "network", .type = SBX_JSON_NETWORK,
      .offset = PATCH(network), .seen = PATCH(network_seen) },

    { .name = NULL }
};


ngx_int_t
ngx_http_sandbox_v1_patch(ngx_http_request_t *r)
{
    sbx_error_t                    e;
    sbx_patch_t                    patch;
    sbx_auto_fd                    blob = -1;
    ngx_http_sandbox_v1_patch_t    body;
    ngx_http_sandbox_op_network_t  network;

    ngx_memzero(&body, sizeof(body));
    ngx_memzero(&patch, sizeof(patch));

    if (ngx_http_sandbox_op_bind(r, ngx_http_sandbox_v1_patch_fields, &body,
                                 &e)
        != 0
        || ngx_http_sandbox_v1_patch_check(r, &body, &patch, &e) != 0
        || ngx_http_sandbox_op_network(r->pool, &body.network, 0, "/network",
                                       &network, &e)
           != 0
        || ngx_http_sandbox_op_patch_blob(r, body.metadata_seen
                                             ? &body.metadata : NULL,
                                          body.network_seen ? &network : NULL,
                                          &patch, &blob, &e)
           != 0)
    {
        return ngx_http_sandbox_problem_core(r, &e);
    }

    return ngx_http_sandbox_v1_change(r, SBX_OP_PATCH, &patch,
                                      sbx_steal_fd(&blob));
}


static int
ngx_http_sandbox_v1_patch_check(ngx_http_request_t *r,
    const ngx_http_sandbox_v1_patch_t *body, sbx_patch_t *patch,
    sbx_error_t *e)
{
    sbx_error_t                    inner;
    sbx_limits_t                   limits;
    ngx_http_sandbox_main_conf_t  *smcf;

    if (body->timeout_seen) {
        smcf = ngx_http_get_module_main_conf(r, ngx_http_sandbox_module);

        sbx_limits_clear(&limits);
        limits.timeout = body->timeout;

        if (sbx_limits_settle(&limits, &smcf->max, &smcf->max, &inner) != 0) {
            return sbx_error(e, 0, inner.code, "/timeout_s: %s", inner.text);
        }

        patch->timeout = body->timeout;
        patch->flags |= SBX_PATCH_TIMEOUT;
    }

    return ngx_http_sandbox_op_metadata(&body->metadata, e);
}


ngx_int_t
ngx_http_sandbox_v1_pause(ngx_http_request_t *r)
{
    sbx_error_t  e;

    if (ngx_http_sandbox_op_bind_none(r, &e) != 0) {
        return ngx_http_sandbox_problem_core(r, &e);
    }

    return ngx_http_sandbox_v1_change(r, SBX_OP_PAUSE, NULL,
                                      NGX_INVALID_FILE);
}


ngx_int_t
ngx_http_sandbox_v1_resume(ngx_http_request_t *r)
{
    sbx_error_t  e;
    sbx_patch_t  patch;

    if (ngx_http_sandbox_op_bind_none(r, &e) != 0) {
        return ngx_http_sandbox_problem_core(r, &e);
    }

    ngx_memzero(&patch, sizeof(sbx_patch_t));

    return ngx_http_sandbox_v1_change(r, SBX_OP_RESUME, &patch,
                                      NGX_INVALID_FILE);
}


static ngx_int_t
ngx_http_sandbox_v1_change(ngx_http_request_t *r, sbx_op_t op,
    const sbx_patch_t *patch, ngx_fd_t blob)
{
    ngx_http_sandbox_call_t        *call;
    ngx_http_sandbox_op_session_t  *session;

    session = ngx_pcalloc(r->pool, sizeof(ngx_http_sandbox_op_session_t));

    if (session == NULL) {

        if (blob != NGX_INVALID_FILE) {
            (void) close(blob);
        }

        return ngx_http_sandbox_problem(r, NGX_HTTP_SANDBOX_INTERNAL, NULL);
    }

    call = ngx_http_sandbox_op_call(r, op, patch,
                                    (patch == NULL) ? 0 : sizeof(sbx_patch_t),
                                    blob, session);

    if (call != NULL) {
        call->frame = ngx_http_sandbox_v1_get_frame;
    }

    return ngx_http_sandbox_op_start(r, call);
}
