#include "ngx_http_sandbox_e2b.h"


ngx_http_sandbox_route_t  ngx_http_sandbox_e2b_control_routes[] = {

    { 0, NULL, NGX_HTTP_SANDBOX_BODY_NONE, 0, NULL, NULL, 0 }
};


ngx_int_t
ngx_http_sandbox_e2b_reserved(ngx_http_request_t *r)
{
    return ngx_http_sandbox_problem(r, NGX_HTTP_SANDBOX_NOT_IMPLEMENTED,
                                    NULL);
}
