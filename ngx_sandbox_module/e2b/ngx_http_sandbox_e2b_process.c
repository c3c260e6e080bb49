#include "ngx_http_sandbox_e2b.h"


ngx_int_t
ngx_http_sandbox_e2b_process_list(ngx_http_request_t *r)
{
    return ngx_http_sandbox_problem(r, NGX_HTTP_SANDBOX_NOT_IMPLEMENTED,
                                    NULL);
}


ngx_int_t
ngx_http_sandbox_e2b_process_start(ngx_http_request_t *r)
{
    return ngx_http_sandbox_problem(r, NGX_HTTP_SANDBOX_NOT_IMPLEMENTED,
                                    NULL);
}


ngx_int_t
ngx_http_sandbox_e2b_process_connect(ngx_http_request_t *r)
{
    return ngx_http_sandbox_problem(r, NGX_HTTP_SANDBOX_NOT_IMPLEMENTED,
                                    NULL);
}


ngx_int_t
ngx_http_sandbox_e2b_process_update(ngx_http_request_t *r)
{
    return ngx_http_sandbox_problem(r, NGX_HTTP_SANDBOX_NOT_IMPLEMENTED,
                                    NULL);
}


ngx_int_t
ngx_http_sandbox_e2b_process_send_input(ngx_http_request_t *r)
{
    return ngx_http_sandbox_problem(r, NGX_HTTP_SANDBOX_NOT_IMPLEMENTED,
                                    NULL);
}


ngx_int_t
ngx_http_sandbox_e2b_process_stream_input(ngx_http_request_t *r)
{
    return ngx_http_sandbox_problem(r, NGX_HTTP_SANDBOX_NOT_IMPLEMENTED,
                                    NULL);
}


ngx_int_t
ngx_http_sandbox_e2b_process_send_signal(ngx_http_request_t *r)
{
    return ngx_http_sandbox_problem(r, NGX_HTTP_SANDBOX_NOT_IMPLEMENTED,
                                    NULL);
}


ngx_int_t
ngx_http_sandbox_e2b_process_close_stdin(ngx_http_request_t *r)
{
    return ngx_http_sandbox_problem(r, NGX_HTTP_SANDBOX_NOT_IMPLEMENTED,
                                    NULL);
}
