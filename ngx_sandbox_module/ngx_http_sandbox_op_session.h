/*
 * A session as the broker tells it.
 */

#ifndef _NGX_HTTP_SANDBOX_OP_SESSION_H_INCLUDED_
#define _NGX_HTTP_SANDBOX_OP_SESSION_H_INCLUDED_


#include "ngx_http_sandbox_op.h"


/* Gathers a SESSION frame, and the NETWORK and META frames after it. */

typedef struct {
    sbx_f_session_t   session;
    u_char           *meta;       /* room for SBX_META_MAX, once needed */
    size_t            meta_len;
    u_char           *rules;      /* of its network, once needed */
    size_t            rules_len;
    ngx_uint_t        there;      /* a SESSION frame has come */
} ngx_http_sandbox_op_session_t;


/* Asks for the session that the request names; frame() takes the answer. */
ngx_int_t ngx_http_sandbox_op_session_ask(ngx_http_request_t *r,
    ngx_int_t (*frame)(ngx_http_sandbox_call_t *call,
    const sbx_frame_t *frame, const u_char *payload, ngx_fd_t fd));

/*
 * What frame() begins with where call->data gathers a session.
 * NGX_DECLINED: that is whole, and the frame is the call's last; anything
 * else is to be returned.
 */
ngx_int_t ngx_http_sandbox_op_session_part(ngx_http_sandbox_call_t *call,
    const sbx_frame_t *frame, const u_char *payload, ngx_fd_t fd);

/*
 * NGX_OK: the session is whole; NGX_AGAIN: NETWORK or META frames are to
 * come; NGX_DECLINED: the frame does not belong here; NGX_ERROR: out of
 * memory.
 */
ngx_int_t ngx_http_sandbox_op_session_frame(ngx_http_request_t *r,
    ngx_http_sandbox_op_session_t *s, const sbx_frame_t *frame,
    const u_char *payload);

/* Its metadata; NGX_OK, NGX_ERROR. */
ngx_int_t ngx_http_sandbox_op_session_map(ngx_pool_t *pool,
    const ngx_http_sandbox_op_session_t *session, sbx_json_map_t *map);

/* "none", "restricted", "open". */
const char *ngx_http_sandbox_op_session_network(
    const sbx_f_session_t *session);

/* For the log variables, and the audit log. */
ngx_int_t ngx_http_sandbox_op_session_note(ngx_http_request_t *r,
    const ngx_http_sandbox_op_session_t *s);

/* What a session has whose manifest and template say nothing of it. */
#define NGX_HTTP_SANDBOX_OP_CAPABILITIES                                      \
    (SBX_CAP_SHELL|SBX_CAP_FILES|SBX_CAP_CODE)

/* The bit of a capability's word, 0 if there is none. */
uint32_t ngx_http_sandbox_op_capability(const sbx_json_str_t *word);

typedef struct {
    const char  *word;
    uint32_t     bit;
} ngx_http_sandbox_op_word_t;

/* Of capabilities; ends with NULL. */
extern const ngx_http_sandbox_op_word_t
    ngx_http_sandbox_op_capability_words[];


#endif /* _NGX_HTTP_SANDBOX_OP_SESSION_H_INCLUDED_ */
