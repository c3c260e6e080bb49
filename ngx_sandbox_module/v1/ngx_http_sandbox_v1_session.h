/*
 * A session as the API prints it.
 */

#ifndef _NGX_HTTP_SANDBOX_V1_SESSION_H_INCLUDED_
#define _NGX_HTTP_SANDBOX_V1_SESSION_H_INCLUDED_


#include "ngx_http_sandbox_op_session.h"
#include "ngx_http_sandbox_v1.h"


void ngx_http_sandbox_v1_session_json(ngx_http_sandbox_json_t *j,
    const ngx_http_sandbox_op_session_t *s);

/* Answers 200 with the one session that a call tells; data is a
 * ngx_http_sandbox_op_session_t. */
ngx_int_t ngx_http_sandbox_v1_get_frame(ngx_http_sandbox_call_t *call,
    const sbx_frame_t *frame, const u_char *payload, ngx_fd_t fd);


#endif /* _NGX_HTTP_SANDBOX_V1_SESSION_H_INCLUDED_ */
