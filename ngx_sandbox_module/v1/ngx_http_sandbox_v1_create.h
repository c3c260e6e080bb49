#ifndef _NGX_HTTP_SANDBOX_V1_CREATE_H_INCLUDED_
#define _NGX_HTTP_SANDBOX_V1_CREATE_H_INCLUDED_


#include "ngx_http_sandbox_op_create.h"
#include "ngx_http_sandbox_v1_session.h"


/* Offsets are those of ngx_http_sandbox_op_create_t. */
extern const sbx_json_field_t  ngx_http_sandbox_v1_create_fields[];


#endif /* _NGX_HTTP_SANDBOX_V1_CREATE_H_INCLUDED_ */
