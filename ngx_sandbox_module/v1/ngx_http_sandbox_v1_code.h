/*
 * What the files about code share.
 */

#ifndef _NGX_HTTP_SANDBOX_V1_CODE_H_INCLUDED_
#define _NGX_HTTP_SANDBOX_V1_CODE_H_INCLUDED_


#include "ngx_http_sandbox_v1_exec.h"
#include "ngx_http_sandbox_op_code.h"


/* How this API tells of a run. */
extern const ngx_http_sandbox_op_code_form_t  ngx_http_sandbox_v1_code_form;


#endif /* _NGX_HTTP_SANDBOX_V1_CODE_H_INCLUDED_ */
