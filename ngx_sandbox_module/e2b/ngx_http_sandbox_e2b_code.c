#include "ngx_http_sandbox_e2b.h"


ngx_http_sandbox_route_t  ngx_http_sandbox_e2b_code_routes[] = {

    { NGX_HTTP_GET, "health",
      NGX_HTTP_SANDBOX_BODY_NONE, 0, "sandbox_health",
      ngx_http_sandbox_e2b_code_health, NGX_HTTP_SANDBOX_ACCESS_ANY },

    { NGX_HTTP_POST, "execute",
      NGX_HTTP_SANDBOX_BODY_JSON, SBX_CAP_CODE, "code",
      ngx_http_sandbox_e2b_code_execute, NGX_HTTP_SANDBOX_ACCESS_TOKEN },

    /* clients send no token with these */

    { NGX_HTTP_GET, "contexts",
      NGX_HTTP_SANDBOX_BODY_NONE, SBX_CAP_CODE, "contexts",
      ngx_http_sandbox_e2b_code_contexts, NGX_HTTP_SANDBOX_ACCESS_ANY },

    { NGX_HTTP_POST, "contexts",
      NGX_HTTP_SANDBOX_BODY_JSON, SBX_CAP_CODE, "context_create",
      ngx_http_sandbox_e2b_code_create, NGX_HTTP_SANDBOX_ACCESS_ANY },

    { NGX_HTTP_POST, "contexts/{cid}/restart",
      NGX_HTTP_SANDBOX_BODY_NONE, SBX_CAP_CODE, "context_restart",
      ngx_http_sandbox_e2b_code_restart, NGX_HTTP_SANDBOX_ACCESS_ANY },

    { NGX_HTTP_DELETE, "contexts/{cid}",
      NGX_HTTP_SANDBOX_BODY_NONE, SBX_CAP_CODE, "context_delete",
      ngx_http_sandbox_e2b_code_remove, NGX_HTTP_SANDBOX_ACCESS_ANY },

    { 0, NULL, NGX_HTTP_SANDBOX_BODY_NONE, 0, NULL, NULL, 0 }
};


ngx_int_t
ngx_http_sandbox_e2b_code_health(ngx_http_request_t *r)
{
    return ngx_http_sandbox_problem(r, NGX_HTTP_SANDBOX_NOT_IMPLEMENTED,
                                    NULL);
}


ngx_int_t
ngx_http_sandbox_e2b_code_execute(ngx_http_request_t *r)
{
    return ngx_http_sandbox_problem(r, NGX_HTTP_SANDBOX_NOT_IMPLEMENTED,
                                    NULL);
}


ngx_int_t
ngx_http_sandbox_e2b_code_contexts(ngx_http_request_t *r)
{
    return ngx_http_sandbox_problem(r, NGX_HTTP_SANDBOX_NOT_IMPLEMENTED,
                                    NULL);
}


ngx_int_t
ngx_http_sandbox_e2b_code_create(ngx_http_request_t *r)
{
    return ngx_http_sandbox_problem(r, NGX_HTTP_SANDBOX_NOT_IMPLEMENTED,
                                    NULL);
}


ngx_int_t
ngx_http_sandbox_e2b_code_restart(ngx_http_request_t *r)
{
    return ngx_http_sandbox_problem(r, NGX_HTTP_SANDBOX_NOT_IMPLEMENTED,
                                    NULL);
}


ngx_int_t
ngx_http_sandbox_e2b_code_remove(ngx_http_request_t *r)
{
    return ngx_http_sandbox_problem(r, NGX_HTTP_SANDBOX_NOT_IMPLEMENTED,
                                    NULL);
}
