/*
 * What a session asks to reach, as the records that the core takes.
 */

#ifndef _NGX_HTTP_SANDBOX_OP_NETWORK_H_INCLUDED_
#define _NGX_HTTP_SANDBOX_OP_NETWORK_H_INCLUDED_


#include "ngx_http_sandbox.h"


typedef struct {
    uint32_t   mode;              /* sbx_network_mode_t */
    uint32_t   size;              /* LISTS: bytes of rules */
    u_char    *rules;
} ngx_http_sandbox_op_network_t;


/*
 * Brings what was asked for into its one form; at is its JSON Pointer.
 * first: what is allowed comes before what is denied.  -1: SBX_E_INVALID for
 * what is no rule; whether configuration allows it all is not asked here.
 */
int ngx_http_sandbox_op_network(ngx_pool_t *pool,
    const sbx_json_network_t *asked, ngx_uint_t first, const char *at,
    ngx_http_sandbox_op_network_t *network, sbx_error_t *e);

/* {"allow":[...],"deny":[...]} of rules that are checked. */
void ngx_http_sandbox_op_network_json(ngx_http_sandbox_json_t *j,
    const u_char *rules, size_t size);


#endif /* _NGX_HTTP_SANDBOX_OP_NETWORK_H_INCLUDED_ */
