#include "ngx_http_sandbox_e2b.h"


ngx_int_t
ngx_http_sandbox_e2b_fs_stat(ngx_http_request_t *r)
{
    return ngx_http_sandbox_problem(r, NGX_HTTP_SANDBOX_NOT_IMPLEMENTED,
                                    NULL);
}


ngx_int_t
ngx_http_sandbox_e2b_fs_mkdir(ngx_http_request_t *r)
{
    return ngx_http_sandbox_problem(r, NGX_HTTP_SANDBOX_NOT_IMPLEMENTED,
                                    NULL);
}


ngx_int_t
ngx_http_sandbox_e2b_fs_move(ngx_http_request_t *r)
{
    return ngx_http_sandbox_problem(r, NGX_HTTP_SANDBOX_NOT_IMPLEMENTED,
                                    NULL);
}


ngx_int_t
ngx_http_sandbox_e2b_fs_list(ngx_http_request_t *r)
{
    return ngx_http_sandbox_problem(r, NGX_HTTP_SANDBOX_NOT_IMPLEMENTED,
                                    NULL);
}


ngx_int_t
ngx_http_sandbox_e2b_fs_remove(ngx_http_request_t *r)
{
    return ngx_http_sandbox_problem(r, NGX_HTTP_SANDBOX_NOT_IMPLEMENTED,
                                    NULL);
}


ngx_int_t
ngx_http_sandbox_e2b_fs_watch(ngx_http_request_t *r)
{
    return ngx_http_sandbox_problem(r, NGX_HTTP_SANDBOX_NOT_IMPLEMENTED,
                                    NULL);
}


ngx_int_t
ngx_http_sandbox_e2b_fs_watcher(ngx_http_request_t *r)
{
    return ngx_http_sandbox_problem(r, NGX_HTTP_SANDBOX_NOT_IMPLEMENTED,
                                    NULL);
}


ngx_int_t
ngx_http_sandbox_e2b_fs_events(ngx_http_request_t *r)
{
    return ngx_http_sandbox_problem(r, NGX_HTTP_SANDBOX_NOT_IMPLEMENTED,
                                    NULL);
}


ngx_int_t
ngx_http_sandbox_e2b_fs_unwatch(ngx_http_request_t *r)
{
    return ngx_http_sandbox_problem(r, NGX_HTTP_SANDBOX_NOT_IMPLEMENTED,
                                    NULL);
}
