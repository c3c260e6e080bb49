#ifndef _NGX_HTTP_SANDBOX_OP_RULES_H_INCLUDED_
#define _NGX_HTTP_SANDBOX_OP_RULES_H_INCLUDED_


#include "ngx_http_sandbox.h"


typedef struct {
    sbx_json_list_t               binds;
    sbx_json_list_t               writable;
    sbx_json_list_t               deny_write;
    sbx_json_list_t               deny_read;
} ngx_http_sandbox_op_filesystem_t;

extern const sbx_json_field_t  ngx_http_sandbox_op_filesystem_fields[];

/* Records of sandbox_rules.h in r's pool; NULL and 0 where there are none. */
int ngx_http_sandbox_op_rules(ngx_http_request_t *r,
    const ngx_http_sandbox_op_filesystem_t *filesystem, u_char **rules,
    size_t *size, sbx_error_t *e);


#endif /* _NGX_HTTP_SANDBOX_OP_RULES_H_INCLUDED_ */
