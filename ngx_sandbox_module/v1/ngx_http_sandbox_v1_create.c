#include "ngx_http_sandbox_v1_create.h"


#define NGX_HTTP_SANDBOX_V1_ENV_PAIRS     65536


static ngx_int_t ngx_http_sandbox_v1_create_frame(
    ngx_http_sandbox_call_t *call, const sbx_frame_t *frame,
    const u_char *payload, ngx_fd_t fd);


/* The limits that a manifest names are those of the table of limits. */

#define RESOURCE(word, field)                                                 \
    { .name = word, .type = SBX_JSON_LIMIT, .limit = word,                    \
      .offset = offsetof(sbx_limits_t, field) }
#define RESOURCE_OR_NULL(word, field)                                         \
    { .name = word, .type = SBX_JSON_LIMIT, .limit = word,                    \
      .offset = offsetof(sbx_limits_t, field), .nullable = 1 }

const sbx_json_field_t  ngx_http_sandbox_v1_resource_fields[] = {
    RESOURCE("memory", memory),
    RESOURCE("cpus", cpus),
    RESOURCE_OR_NULL("cpu_seconds", cpu_seconds),
    RESOURCE("processes", processes),
    RESOURCE("max_file_size", max_file_size),
    RESOURCE("open_files", open_files),
    RESOURCE("stack", stack),
    RESOURCE("disk", disk),
    RESOURCE("inodes", inodes),
    RESOURCE_OR_NULL("exec_timeout_s", exec_timeout),
    RESOURCE("max_output_bytes", max_output),
    RESOURCE("connections", connections),
    RESOURCE_OR_NULL("network_rate", network_rate),
    RESOURCE_OR_NULL("network_bytes", network_bytes),
    { .name = NULL }
};


#define MANIFEST(field)  offsetof(ngx_http_sandbox_op_manifest_t, field)

static const sbx_json_field_t  ngx_http_sandbox_v1_manifest_fields[] = {

    { .name = "network", .type = SBX_JSON_NETWORK,
      .offset = MANIFEST(network), .seen = MANIFEST(network_seen) },

    { .name = "resources", .type = SBX_JSON_OBJECT,
      .fields = ngx_http_sandbox_v1_resource_fields,
      .offset = MANIFEST(limits) },

    { .name = "filesystem", .type = SBX_JSON_OBJECT,
      .fields = ngx_http_sandbox_op_filesystem_fields,
      .offset = MANIFEST(filesystem) },

    { .name = "capabilities", .type = SBX_JSON_STRINGS, .max = 16,
      .offset = MANIFEST(capabilities),
      .seen = MANIFEST(capabilities_seen) },

    { .name = "memory_strategy", .type = SBX_JSON_STRING,
      .offset = MANIFEST(memory_strategy) },

    { .name = "require_isolation", .type = SBX_JSON_BOOL,
      .offset = MANIFEST(require_isolation),
      .seen = MANIFEST(require_isolation_seen) },

    { .name = "on_timeout", .type = SBX_JSON_STRING,
      .offset = MANIFEST(on_timeout) },

    { .name = "idle_timeout_s", .type = SBX_JSON_LIMIT,
      .limit = "timeout_s", .nullable = 1,
      .offset = MANIFEST(idle_timeout) },

    { .name = NULL }
};


#define CREATE(field)  offsetof(ngx_http_sandbox_op_create_t, field)

const sbx_json_field_t  ngx_http_sandbox_v1_create_fields[] = {

    { .name = "tenant_id", .type = SBX_JSON_STRING,
      .offset = CREATE(tenant) },

    { .name = "user_id", .type = SBX_JSON_STRING,
      .offset = CREATE(user) },

    { .name = "template", .type = SBX_JSON_STRING, .nullable = 1,
      .min = 1, .max = SBX_TEMPLATE_MAX - 1,
      .offset = CREATE(template) },

    { .name = "timeout_s", .type = SBX_JSON_LIMIT, .limit = "timeout_s",
      .offset = CREATE(manifest.limits.timeout) },

    { .name = "env", .type = SBX_JSON_MAP,
      .max = NGX_HTTP_SANDBOX_V1_ENV_PAIRS,
      .offset = CREATE(env) },

    { .name = "metadata", .type = SBX_JSON_MAP,
      .max = NGX_HTTP_SANDBOX_OP_META_PAIRS,
      .offset = CREATE(metadata) },

    { .name = "manifest", .type = SBX_JSON_OBJECT, .nullable = 1,
      .fields = ngx_http_sandbox_v1_manifest_fields,
      .offset = CREATE(manifest) },

    { .name = NULL }
};


ngx_int_t
ngx_http_sandbox_v1_create(ngx_http_request_t *r)
{
    sbx_error_t                     e;
    ngx_http_sandbox_call_t        *call;
    ngx_http_sandbox_op_create_t    body;
    ngx_http_sandbox_op_session_t  *session;

    ngx_memzero(&body, sizeof(body));
    sbx_limits_clear(&body.manifest.limits);

    session = ngx_pcalloc(r->pool, sizeof(ngx_http_sandbox_op_session_t));

    if (session == NULL) {
        return ngx_http_sandbox_problem(r, NGX_HTTP_SANDBOX_INTERNAL, NULL);
    }

    /* its id is no secret: nobody else's protocol opens its ports by that */

    if (ngx_http_sandbox_op_bind(r, ngx_http_sandbox_v1_create_fields, &body,
                                 &e)
        != 0
        || ngx_http_sandbox_op_create_call(r, &body, SBX_CREATE_PORT_TOKEN,
                                           session, &call, &e)
           != 0)
    {
        return ngx_http_sandbox_problem_core(r, &e);
    }

    call->frame = ngx_http_sandbox_v1_create_frame;

    return ngx_http_sandbox_op_start(r, call);
}


static ngx_int_t
ngx_http_sandbox_v1_create_frame(ngx_http_sandbox_call_t *call,
    const sbx_frame_t *frame, const u_char *payload, ngx_fd_t fd)
{
    ngx_int_t                       rc;
    sbx_f_end_t                     end;
    ngx_http_request_t             *r;
    ngx_http_sandbox_json_t         j;
    ngx_http_sandbox_op_session_t  *session;

    rc = ngx_http_sandbox_op_session_part(call, frame, payload, fd);

    if (rc != NGX_DECLINED) {
        return rc;
    }

    r = call->request;
    session = call->data;

    ngx_memcpy(&end, payload, sizeof(sbx_f_end_t));

    if (ngx_http_sandbox_op_session_note(r, session) != NGX_OK
        || ngx_http_sandbox_v1_location(r, &ngx_http_sandbox_ctx(r)->session)
           != NGX_OK)
    {
        return ngx_http_sandbox_op_broken(call, "more than memory holds");
    }

    ngx_http_sandbox_json_init(&j, r->pool);
    ngx_http_sandbox_v1_session_json(&j, session);

    return ngx_http_sandbox_op_finish(call,
              ngx_http_sandbox_json_send(r, end.created ? NGX_HTTP_CREATED
                                                        : NGX_HTTP_OK, &j));
}
