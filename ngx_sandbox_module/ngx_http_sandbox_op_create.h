/*
 * What a new session is asked for, for whoever makes one or changes it.
 */

#ifndef _NGX_HTTP_SANDBOX_OP_CREATE_H_INCLUDED_
#define _NGX_HTTP_SANDBOX_OP_CREATE_H_INCLUDED_


#include "ngx_http_sandbox_op_network.h"
#include "ngx_http_sandbox_op_rules.h"
#include "ngx_http_sandbox_op_session.h"


#define NGX_HTTP_SANDBOX_OP_META_PAIRS    64


typedef struct {
    sbx_json_network_t             network;
    uint32_t                       network_seen;
    uint32_t                       network_first;  /* allow before deny */
    uint32_t                       network_soft;   /* where nothing is granted
                                                      and nothing in
                                                      particular asked for:
                                                      none, without an error */
    sbx_limits_t                   limits;
    ngx_http_sandbox_op_filesystem_t
                                   filesystem;
    sbx_json_list_t                capabilities;
    uint32_t                       capabilities_seen;
    sbx_json_str_t                 memory_strategy;
    sbx_json_str_t                 on_timeout;
    uint32_t                       require_isolation;
    uint32_t                       require_isolation_seen;
    uint64_t                       idle_timeout;
} ngx_http_sandbox_op_manifest_t;


typedef struct {
    sbx_json_str_t                 tenant;
    sbx_json_str_t                 user;
    sbx_json_str_t                 template;
    sbx_json_map_t                 env;
    sbx_json_map_t                 metadata;
    ngx_http_sandbox_op_manifest_t manifest;
} ngx_http_sandbox_op_create_t;


/*
 * Checks what was asked for and makes its CREATE call, with flags as well
 * (SBX_CREATE_*); frame() is the caller's to set.
 */
int ngx_http_sandbox_op_create_call(ngx_http_request_t *r,
    ngx_http_sandbox_op_create_t *body, uint32_t flags, void *data,
    ngx_http_sandbox_call_t **created, sbx_error_t *e);

int ngx_http_sandbox_op_metadata(const sbx_json_map_t *metadata,
    sbx_error_t *e);
/*
 * For SBX_OP_PATCH: what of metadata and network is not NULL is to be changed.
 * Sets flags, sizes and *blob, which is the caller's, or -1.
 */
int ngx_http_sandbox_op_patch_blob(ngx_http_request_t *r,
    const sbx_json_map_t *metadata,
    const ngx_http_sandbox_op_network_t *network, sbx_patch_t *patch,
    ngx_fd_t *blob, sbx_error_t *e);


#endif /* _NGX_HTTP_SANDBOX_OP_CREATE_H_INCLUDED_ */
