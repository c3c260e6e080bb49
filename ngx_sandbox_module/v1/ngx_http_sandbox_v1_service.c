#include "ngx_http_sandbox_v1.h"


/* What came until the last frame; the answer's text so far. */

typedef struct {
    ngx_http_sandbox_json_t    json;
    ngx_uint_t                 n;         /* elements */
    ngx_uint_t                 faulty;    /* required checks not ok */
} ngx_http_sandbox_v1_service_t;


static ngx_int_t ngx_http_sandbox_v1_service(ngx_http_request_t *r,
    sbx_op_t op, ngx_int_t (*frame)(ngx_http_sandbox_call_t *call,
    const sbx_frame_t *frame, const u_char *payload, ngx_fd_t fd));
static ngx_int_t ngx_http_sandbox_v1_health_frame(
    ngx_http_sandbox_call_t *call, const sbx_frame_t *frame,
    const u_char *payload, ngx_fd_t fd);
static ngx_int_t ngx_http_sandbox_v1_doctor_frame(
    ngx_http_sandbox_call_t *call, const sbx_frame_t *frame,
    const u_char *payload, ngx_fd_t fd);
static ngx_int_t ngx_http_sandbox_v1_capabilities_frame(
    ngx_http_sandbox_call_t *call, const sbx_frame_t *frame,
    const u_char *payload, ngx_fd_t fd);
static ngx_int_t ngx_http_sandbox_v1_templates_frame(
    ngx_http_sandbox_call_t *call, const sbx_frame_t *frame,
    const u_char *payload, ngx_fd_t fd);


ngx_int_t
ngx_http_sandbox_v1_health(ngx_http_request_t *r)
{
    return ngx_http_sandbox_v1_service(r, SBX_OP_HEALTH,
                                       ngx_http_sandbox_v1_health_frame);
}


ngx_int_t
ngx_http_sandbox_v1_doctor(ngx_http_request_t *r)
{
    return ngx_http_sandbox_v1_service(r, SBX_OP_DOCTOR,
                                       ngx_http_sandbox_v1_doctor_frame);
}


ngx_int_t
ngx_http_sandbox_v1_capabilities(ngx_http_request_t *r)
{
    return ngx_http_sandbox_v1_service(r, SBX_OP_CAPABILITIES,
                                    ngx_http_sandbox_v1_capabilities_frame);
}


ngx_int_t
ngx_http_sandbox_v1_templates(ngx_http_request_t *r)
{
    return ngx_http_sandbox_v1_service(r, SBX_OP_TEMPLATES,
                                       ngx_http_sandbox_v1_templates_frame);
}


static ngx_int_t
ngx_http_sandbox_v1_service(ngx_http_request_t *r, sbx_op_t op,
    ngx_int_t (*frame)(ngx_http_sandbox_call_t *call,
    const sbx_frame_t *frame, const u_char *payload, ngx_fd_t fd))
{
    ngx_http_sandbox_call_t        *call;
    ngx_http_sandbox_v1_service_t  *service;

    service = ngx_pcalloc(r->pool, sizeof(ngx_http_sandbox_v1_service_t));

    if (service == NULL) {
        return ngx_http_sandbox_problem(r, NGX_HTTP_SANDBOX_INTERNAL, NULL);
    }

    ngx_http_sandbox_json_init(&service->json, r->pool);

    call = ngx_http_sandbox_op_call(r, op, NULL, 0, NGX_INVALID_FILE,
                                    service);

    if (call != NULL) {
        call->frame = frame;
    }

    return ngx_http_sandbox_op_start(r, call);
}


static ngx_int_t
ngx_http_sandbox_v1_health_frame(ngx_http_sandbox_call_t *call,
    const sbx_frame_t *frame, const u_char *payload, ngx_fd_t fd)
{
    ngx_int_t                       rc;
    sbx_f_health_t                  health;
    ngx_http_request_t             *r;
    ngx_http_sandbox_json_t        *j;
    ngx_http_sandbox_v1_service_t  *service;

    rc = ngx_http_sandbox_op_frame(call, frame, payload, fd);

    if (rc != NGX_DECLINED) {
        return rc;
    }

    r = call->request;
    service = call->data;
    j = &service->json;

    if (frame->type == SBX_F_END && service->n == 1) {
        return ngx_http_sandbox_op_finish(call,
                           ngx_http_sandbox_json_send(r, NGX_HTTP_OK, j));
    }

    if (frame->type != SBX_F_HEALTH || service->n != 0) {
        return ngx_http_sandbox_op_broken(call, "a wrong frame for health");
    }

    ngx_memcpy(&health, payload, sizeof(sbx_f_health_t));

    if (!health.ok) {
        health.text[sizeof(health.text) - 1] = '\0';

        return ngx_http_sandbox_op_finish(call,
                   ngx_http_sandbox_problem(r,
                                         NGX_HTTP_SANDBOX_BROKER_UNAVAILABLE,
                                         health.text[0] ? "%s" : NULL,
                                         health.text));
    }

    service->n = 1;

    ngx_http_sandbox_json_raw(j, "{\"status\":\"ok\",\"version\":");
    ngx_http_sandbox_json_cstring(j, NGX_HTTP_SANDBOX_VERSION);
    ngx_http_sandbox_json_raw(j, ",\"sessions\":");
    ngx_http_sandbox_json_int(j, health.sessions);
    ngx_http_sandbox_json_raw(j, ",\"lacking\":");

    health.text[sizeof(health.text) - 1] = '\0';

    if (health.text[0] == '\0') {
        ngx_http_sandbox_json_raw(j, "null");

    } else {
        ngx_http_sandbox_json_cstring(j, health.text);
    }

    ngx_http_sandbox_json_raw(j, "}");

    return NGX_OK;
}


static ngx_int_t
ngx_http_sandbox_v1_doctor_frame(ngx_http_sandbox_call_t *call,
    const sbx_frame_t *frame, const u_char *payload, ngx_fd_t fd)
{
    ngx_int_t                       rc;
    sbx_f_check_t                   check;
    ngx_http_sandbox_json_t        *j;
    ngx_http_sandbox_v1_service_t  *service;

    rc = ngx_http_sandbox_op_frame(call, frame, payload, fd);

    if (rc != NGX_DECLINED) {
        return rc;
    }

    service = call->data;
    j = &service->json;

    if (frame->type == SBX_F_END) {
        ngx_http_sandbox_json_raw(j, service->n ? "" : "{\"checks\":[");
        ngx_http_sandbox_json_raw(j, "],\"ok\":");
        ngx_http_sandbox_json_bool(j, service->faulty == 0);
        ngx_http_sandbox_json_raw(j, "}");

        return ngx_http_sandbox_op_finish(call,
                ngx_http_sandbox_json_send(call->request, NGX_HTTP_OK, j));
    }

    if (frame->type != SBX_F_CHECK) {
        return ngx_http_sandbox_op_broken(call, "a wrong frame for doctor");
    }

    ngx_memcpy(&check, payload, sizeof(sbx_f_check_t));

    ngx_http_sandbox_json_raw(j, service->n++ ? "," : "{\"checks\":[");
    ngx_http_sandbox_json_raw(j, "{\"name\":");
    ngx_http_sandbox_op_array(j, check.name);
    ngx_http_sandbox_json_raw(j, ",\"ok\":");
    ngx_http_sandbox_json_bool(j, check.ok != 0);
    ngx_http_sandbox_json_raw(j, ",\"required\":");
    ngx_http_sandbox_json_bool(j, check.required != 0);
    ngx_http_sandbox_json_raw(j, ",\"found\":");
    ngx_http_sandbox_op_array(j, check.found);
    ngx_http_sandbox_json_raw(j, ",\"mend\":");

    if (check.mend[0] == '\0') {
        ngx_http_sandbox_json_raw(j, "null");

    } else {
        ngx_http_sandbox_op_array(j, check.mend);
    }

    ngx_http_sandbox_json_raw(j, "}");

    if (!check.ok && check.required) {
        service->faulty++;
    }

    return NGX_OK;
}


static ngx_int_t
ngx_http_sandbox_v1_capabilities_frame(ngx_http_sandbox_call_t *call,
    const sbx_frame_t *frame, const u_char *payload, ngx_fd_t fd)
{
    ngx_int_t                       rc;
    sbx_f_capability_t              capability;
    ngx_http_sandbox_json_t        *j;
    ngx_http_sandbox_v1_service_t  *service;

    rc = ngx_http_sandbox_op_frame(call, frame, payload, fd);

    if (rc != NGX_DECLINED) {
        return rc;
    }

    service = call->data;
    j = &service->json;

    if (frame->type == SBX_F_END) {
        ngx_http_sandbox_json_raw(j, service->n ? "}" : "{}");

        return ngx_http_sandbox_op_finish(call,
                ngx_http_sandbox_json_send(call->request, NGX_HTTP_OK, j));
    }

    if (frame->type != SBX_F_CAPABILITY) {
        return ngx_http_sandbox_op_broken(call,
                                          "a wrong frame for capabilities");
    }

    ngx_memcpy(&capability, payload, sizeof(sbx_f_capability_t));

    ngx_http_sandbox_json_raw(j, service->n++ ? "," : "{");
    ngx_http_sandbox_op_array(j, capability.name);
    ngx_http_sandbox_json_raw(j, ":{\"enforced\":");
    ngx_http_sandbox_json_bool(j, capability.enforced != 0);
    ngx_http_sandbox_json_raw(j, ",\"by\":");
    ngx_http_sandbox_op_array(j, capability.by);

    if (capability.mend[0] != '\0') {
        ngx_http_sandbox_json_raw(j, ",\"mend\":");
        ngx_http_sandbox_op_array(j, capability.mend);
    }

    ngx_http_sandbox_json_raw(j, "}");

    return NGX_OK;
}


/* Those of the configuration, but for what the broker has told of. */

static void
ngx_http_sandbox_v1_templates_more(ngx_http_request_t *r,
    ngx_http_sandbox_v1_service_t *service)
{
    ngx_uint_t                     i;
    ngx_http_sandbox_json_t       *j;
    ngx_http_sandbox_template_t   *t;
    ngx_http_sandbox_main_conf_t  *smcf;

    smcf = ngx_http_get_module_main_conf(r, ngx_http_sandbox_module);
    t = (smcf->templates == NULL) ? NULL : smcf->templates->elts;
    j = &service->json;

    for (i = 0; t != NULL && i < smcf->templates->nelts; i++) {

        if (ngx_strcmp(t[i].name.data, "base") == 0
            || ngx_strcmp(t[i].name.data, "code-interpreter-v1") == 0)
        {
            continue;
        }

        ngx_http_sandbox_json_raw(j, service->n++ ? "," : "{\"templates\":[");
        ngx_http_sandbox_json_raw(j, "{\"name\":");
        ngx_http_sandbox_json_string(j, t[i].name.data, t[i].name.len);
        ngx_http_sandbox_json_raw(j, ",\"alias\":null,\"description\":");
        ngx_http_sandbox_json_string(j, t[i].description.data,
                                     t[i].description.len);
        ngx_http_sandbox_json_raw(j, "}");
    }
}


static ngx_int_t
ngx_http_sandbox_v1_templates_frame(ngx_http_sandbox_call_t *call,
    const sbx_frame_t *frame, const u_char *payload, ngx_fd_t fd)
{
    ngx_int_t                       rc;
    sbx_f_template_t                template;
    ngx_http_sandbox_json_t        *j;
    ngx_http_sandbox_v1_service_t  *service;

    rc = ngx_http_sandbox_op_frame(call, frame, payload, fd);

    if (rc != NGX_DECLINED) {
        return rc;
    }

    service = call->data;
    j = &service->json;

    if (frame->type == SBX_F_END) {
        ngx_http_sandbox_v1_templates_more(call->request, service);
        ngx_http_sandbox_json_raw(j, service->n ? "]}" : "{\"templates\":[]}");

        return ngx_http_sandbox_op_finish(call,
                ngx_http_sandbox_json_send(call->request, NGX_HTTP_OK, j));
    }

    if (frame->type != SBX_F_TEMPLATE) {
        return ngx_http_sandbox_op_broken(call,
                                          "a wrong frame for templates");
    }

    ngx_memcpy(&template, payload, sizeof(sbx_f_template_t));

    ngx_http_sandbox_json_raw(j, service->n++ ? "," : "{\"templates\":[");
    ngx_http_sandbox_json_raw(j, "{\"name\":");
    ngx_http_sandbox_op_array(j, template.name);
    ngx_http_sandbox_json_raw(j, ",\"alias\":");

    if (template.alias[0] == '\0') {
        ngx_http_sandbox_json_raw(j, "null");

    } else {
        ngx_http_sandbox_op_array(j, template.alias);
    }

    ngx_http_sandbox_json_raw(j, ",\"description\":");
    ngx_http_sandbox_op_array(j, template.description);
    ngx_http_sandbox_json_raw(j, "}");

    return NGX_OK;
}
