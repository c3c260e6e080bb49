/*
 * What a list of sandboxes is asked for.
 */

#ifndef _NGX_HTTP_SANDBOX_E2B_CONTROL_LIST_H_INCLUDED_
#define _NGX_HTTP_SANDBOX_E2B_CONTROL_LIST_H_INCLUDED_


#include "ngx_http_sandbox_e2b_control.h"


#define NGX_HTTP_SANDBOX_E2B_FILTERS       NGX_HTTP_SANDBOX_OP_META_PAIRS
#define NGX_HTTP_SANDBOX_E2B_PAGE_MAX      100
#define NGX_HTTP_SANDBOX_E2B_PAGE_MAX_OLD  1000


typedef struct {
    ngx_str_t     key;
    ngx_str_t     value;
} ngx_http_sandbox_e2b_filter_t;


typedef struct {
    ngx_str_t                        template;
    uint64_t                         limit;
    uint64_t                         offset;      /* matches to be skipped */
    uint64_t                         from;        /* the page's cursor: seq of
                                                     the last one; 0: none */
    int64_t                          started;     /* later than this, unix ms;
                                                     -1: any */
    ngx_uint_t                       states;      /* bit of sbx_status_t */
    ngx_uint_t                       asc;
    ngx_uint_t                       nfilters;
    ngx_http_sandbox_e2b_filter_t    filters[NGX_HTTP_SANDBOX_E2B_FILTERS];
} ngx_http_sandbox_e2b_query_t;


/* old: of the route without a version.  0 or -1. */
int ngx_http_sandbox_e2b_query(ngx_http_request_t *r, ngx_uint_t old,
    ngx_http_sandbox_e2b_query_t *query, sbx_error_t *e);

/* All that is asked for but the state.  NGX_OK, NGX_DECLINED, NGX_ERROR. */
ngx_int_t ngx_http_sandbox_e2b_query_match(ngx_http_request_t *r,
    const ngx_http_sandbox_e2b_query_t *query,
    const ngx_http_sandbox_op_session_t *session);

/* The cursor of the next page, as a header. */
ngx_int_t ngx_http_sandbox_e2b_query_next(ngx_http_request_t *r,
    const ngx_http_sandbox_e2b_query_t *query, uint64_t seq);


#endif /* _NGX_HTTP_SANDBOX_E2B_CONTROL_LIST_H_INCLUDED_ */
