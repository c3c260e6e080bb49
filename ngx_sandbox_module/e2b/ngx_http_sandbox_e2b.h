/*
 * The E2B protocol: what its files share.  Nothing outside this directory
 * knows a name of that protocol but for the functions of the first part.
 *
 * A request belongs to one plane: that of sandboxes (control), or of one
 * sandbox, of its envd, its code interpreter or one of its ports.  A sandbox
 * is told by the host's name, "<port>-<id>.<domain>", or by the headers
 * E2b-Sandbox-Id and E2b-Sandbox-Port, or by a path "envd/<id>/...".
 *
 * Every sandbox has an access token that is derived from its id with the
 * broker's key, and so has nothing to be kept.
 */

#ifndef _NGX_HTTP_SANDBOX_E2B_H_INCLUDED_
#define _NGX_HTTP_SANDBOX_E2B_H_INCLUDED_


#include "ngx_http_sandbox_op.h"
#include "ngx_http_sandbox_op_session.h"
#include "ngx_http_sandbox_stream.h"


/*
 * Which plane a request belongs to, with its routes or its port.  NGX_OK, or
 * NGX_DECLINED where there is no route; or it is answered, with what that
 * returned, NGX_OK too.
 */
ngx_int_t ngx_http_sandbox_e2b_match(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx, ngx_http_sandbox_match_t *match);

/* Whether the caller may: as ngx_http_sandbox_identify(). */
ngx_int_t ngx_http_sandbox_e2b_admit(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx);


/*
 * ---- shared by the files of this directory -------------------------------
 */

#define NGX_HTTP_SANDBOX_E2B_VERSION    "0.6.13"   /* of envd, as we tell */
#define NGX_HTTP_SANDBOX_E2B_ENVD       49983
#define NGX_HTTP_SANDBOX_E2B_CODE       49999

#define NGX_HTTP_SANDBOX_E2B_TOKEN      64         /* hexadecimal digits */


typedef enum {
    NGX_HTTP_SANDBOX_E2B_CONTROL,
    NGX_HTTP_SANDBOX_E2B_PLANE_ENVD,
    NGX_HTTP_SANDBOX_E2B_PLANE_CODE,
    NGX_HTTP_SANDBOX_E2B_PLANE_PORT
} ngx_http_sandbox_e2b_plane_e;


/* Of a request; ctx->e2b. */

typedef struct {
    ngx_http_sandbox_e2b_plane_e   plane;
    ngx_str_t                      id;        /* of the sandbox, as it was
                                                 given; empty: control, or
                                                 files by a signature */
    unsigned                       by_host:1;    /* its name told the id */
    unsigned                       token_ok:1;   /* the right one was sent */
    unsigned                       token_bad:1;  /* a wrong one was */

    /* Connect: an answer that is a stream tells errors in its last frame */
    unsigned                       stream:1;
    unsigned                       rpc:1;     /* errors have words for codes */
    void                          *alive;     /* of ..._e2b_stream() */
    void                          *data;      /* the handler's own */
} ngx_http_sandbox_e2b_t;

#define ngx_http_sandbox_e2b(ctx)  ((ngx_http_sandbox_e2b_t *) (ctx)->e2b)


/*
 * Tokens.  out has NGX_HTTP_SANDBOX_E2B_TOKEN bytes, no NUL: lower-case
 * hexadecimal digits of HMAC-SHA-256.
 */

typedef enum {
    NGX_HTTP_SANDBOX_E2B_TOKEN_ENVD,          /* X-Access-Token */
    NGX_HTTP_SANDBOX_E2B_TOKEN_TRAFFIC        /* E2B-Traffic-Access-Token */
} ngx_http_sandbox_e2b_token_e;

void ngx_http_sandbox_e2b_token(const ngx_http_sandbox_main_conf_t *smcf,
    ngx_http_sandbox_e2b_token_e kind, const void *id, size_t id_len,
    u_char *out);
/* In constant time. */
ngx_uint_t ngx_http_sandbox_e2b_token_is(
    const ngx_http_sandbox_main_conf_t *smcf,
    ngx_http_sandbox_e2b_token_e kind, const ngx_str_t *id,
    const ngx_str_t *token);
ngx_uint_t ngx_http_sandbox_e2b_same(const void *a, const void *b,
    size_t len);


/*
 * Errors, for ctx->refuse: each is the plane's form.  A handler refuses with
 * ngx_http_sandbox_problem() and its like as everywhere.
 */

ngx_int_t ngx_http_sandbox_e2b_refuse_control(ngx_http_request_t *r,
    const ngx_http_sandbox_refusal_t *refusal);
ngx_int_t ngx_http_sandbox_e2b_refuse_data(ngx_http_request_t *r,
    const ngx_http_sandbox_refusal_t *refusal);
ngx_int_t ngx_http_sandbox_e2b_refuse_code(ngx_http_request_t *r,
    const ngx_http_sandbox_refusal_t *refusal);
ngx_int_t ngx_http_sandbox_e2b_refuse_port(ngx_http_request_t *r,
    const ngx_http_sandbox_refusal_t *refusal);
/* Of a sandbox that runs no more: 502. */
ngx_int_t ngx_http_sandbox_e2b_refuse_gone(ngx_http_request_t *r,
    const ngx_http_sandbox_refusal_t *refusal);
ngx_int_t ngx_http_sandbox_e2b_refuse_rpc(ngx_http_request_t *r,
    const ngx_http_sandbox_refusal_t *refusal);

/* A text of the core in the names of this API, at most size bytes; their
 * number. */
size_t ngx_http_sandbox_e2b_names(u_char *dst, size_t size,
    const ngx_str_t *text);

/* {"code":status,"message":text}, with what refusals do before. */
ngx_int_t ngx_http_sandbox_e2b_say(ngx_http_request_t *r, ngx_uint_t status,
    const char *fmt, ...);


/*
 * Connect, of routes with NGX_HTTP_SANDBOX_BODY_RPC.
 *
 * A unary handler begins with _bind() and ends with _reply() or _empty(); a
 * streaming one with _bind_stream(), after which refusals go into the last
 * frame of a 200.  Both strip the envelope that a body may have.  -1: e says
 * why.  Tables of fields are lax (json.h), and have the names of proto3 JSON
 * in both spellings.
 */

int ngx_http_sandbox_e2b_bind(ngx_http_request_t *r,
    const sbx_json_field_t *fields, void *target, sbx_error_t *e);
int ngx_http_sandbox_e2b_bind_stream(ngx_http_request_t *r,
    const sbx_json_field_t *fields, void *target, sbx_error_t *e);

/* Of a route that has been found: refusals get Connect's form, if it is one of
 * Connect. */
void ngx_http_sandbox_e2b_rpc(ngx_http_sandbox_ctx_t *ctx);

/* The length in an envelope's head. */
#define ngx_http_sandbox_e2b_length(p)                                        \
    (((uint32_t) (p)[1] << 24) | ((uint32_t) (p)[2] << 16)                    \
     | ((uint32_t) (p)[3] << 8) | (p)[4])

/* For the finalizer. */
ngx_int_t ngx_http_sandbox_e2b_reply(ngx_http_request_t *r,
    ngx_http_sandbox_json_t *j);
ngx_int_t ngx_http_sandbox_e2b_empty(ngx_http_request_t *r);

/* Refuses a unary call, or a stream, with a code of Connect; for the
 * finalizer. */
ngx_int_t ngx_http_sandbox_e2b_error(ngx_http_request_t *r, const char *code,
    const char *fmt, ...);

/* The same with a status that even a stream gets, while it can; 0: the
 * code's.  retry_after is in seconds, 0 for none, and no stream's. */
ngx_int_t ngx_http_sandbox_e2b_error_as(ngx_http_request_t *r,
    ngx_uint_t status, const char *code, const ngx_str_t *message,
    uint64_t retry_after);

/*
 * A stream's answer; the caller sets .call and .data, opens it and sends
 * messages, each a whole JSON text:
 *
 *   s = ngx_http_sandbox_e2b_stream(r, "{\"keepalive\":{}}", ms);
 *   rc = ngx_http_sandbox_stream_open(s);
 *   j = ngx_http_sandbox_stream_event(s, NULL);  ...
 *   rc = ngx_http_sandbox_stream_send(s);
 *   rc = ngx_http_sandbox_stream_close(s);       with success, or
 *   rc = ngx_http_sandbox_e2b_error(r, ...);     whenever it is
 *
 * keepalive is sent after a silence, as the client asks for it.  After ms
 * (of _timeout(); 0: never) the stream ends by itself, and its call.  NULL
 * when out of memory.
 */
ngx_http_sandbox_stream_t *ngx_http_sandbox_e2b_stream(ngx_http_request_t *r,
    const char *keepalive, uint64_t ms);

/* What the caller allows a stream, of Connect-Timeout-Ms; 0: no limit.  -1:
 * it is no number. */
int ngx_http_sandbox_e2b_timeout(ngx_http_request_t *r, uint64_t *ms,
    sbx_error_t *e);

/* The session's user that Authorization: Basic, or a query, names: empty is
 * "user".  -1: SBX_E_TOKEN, there is none of that name. */
int ngx_http_sandbox_e2b_user(ngx_http_request_t *r, uint32_t *user,
    sbx_error_t *e);
int ngx_http_sandbox_e2b_user_of(const ngx_str_t *name, uint32_t *user,
    sbx_error_t *e);

/*
 * A path of a request as the core takes it: "~" and what is relative is
 * below the user's home.  -1: SBX_E_PATH.
 */
int ngx_http_sandbox_e2b_path(ngx_http_request_t *r, uint32_t user,
    const sbx_json_str_t *path, ngx_str_t *out, sbx_error_t *e);


/* Handlers, by file: process */

ngx_int_t ngx_http_sandbox_e2b_process_list(ngx_http_request_t *r);
ngx_int_t ngx_http_sandbox_e2b_process_start(ngx_http_request_t *r);
ngx_int_t ngx_http_sandbox_e2b_process_connect(ngx_http_request_t *r);
ngx_int_t ngx_http_sandbox_e2b_process_update(ngx_http_request_t *r);
ngx_int_t ngx_http_sandbox_e2b_process_send_input(ngx_http_request_t *r);
ngx_int_t ngx_http_sandbox_e2b_process_stream_input(ngx_http_request_t *r);
ngx_int_t ngx_http_sandbox_e2b_process_send_signal(ngx_http_request_t *r);
ngx_int_t ngx_http_sandbox_e2b_process_close_stdin(ngx_http_request_t *r);

/* filesystem */

ngx_int_t ngx_http_sandbox_e2b_fs_stat(ngx_http_request_t *r);
ngx_int_t ngx_http_sandbox_e2b_fs_mkdir(ngx_http_request_t *r);
ngx_int_t ngx_http_sandbox_e2b_fs_move(ngx_http_request_t *r);
ngx_int_t ngx_http_sandbox_e2b_fs_list(ngx_http_request_t *r);
ngx_int_t ngx_http_sandbox_e2b_fs_remove(ngx_http_request_t *r);
ngx_int_t ngx_http_sandbox_e2b_fs_watch(ngx_http_request_t *r);
ngx_int_t ngx_http_sandbox_e2b_fs_watcher(ngx_http_request_t *r);
ngx_int_t ngx_http_sandbox_e2b_fs_events(ngx_http_request_t *r);
ngx_int_t ngx_http_sandbox_e2b_fs_unwatch(ngx_http_request_t *r);

/* files */

ngx_int_t ngx_http_sandbox_e2b_files_get(ngx_http_request_t *r);
ngx_int_t ngx_http_sandbox_e2b_files_post(ngx_http_request_t *r);
ngx_int_t ngx_http_sandbox_e2b_files_compose(ngx_http_request_t *r);

/* envd: what tells of the sandbox as a whole */

ngx_int_t ngx_http_sandbox_e2b_envd_health(ngx_http_request_t *r);
ngx_int_t ngx_http_sandbox_e2b_envd_metrics(ngx_http_request_t *r);
ngx_int_t ngx_http_sandbox_e2b_envd_envs(ngx_http_request_t *r);
ngx_int_t ngx_http_sandbox_e2b_envd_forbidden(ngx_http_request_t *r);

/* code */

ngx_int_t ngx_http_sandbox_e2b_code_health(ngx_http_request_t *r);
ngx_int_t ngx_http_sandbox_e2b_code_execute(ngx_http_request_t *r);
ngx_int_t ngx_http_sandbox_e2b_code_contexts(ngx_http_request_t *r);
ngx_int_t ngx_http_sandbox_e2b_code_create(ngx_http_request_t *r);
ngx_int_t ngx_http_sandbox_e2b_code_restart(ngx_http_request_t *r);
ngx_int_t ngx_http_sandbox_e2b_code_remove(ngx_http_request_t *r);

/* code.CodeInterpreter, which another client speaks */

ngx_int_t ngx_http_sandbox_e2b_rpc_execute(ngx_http_request_t *r);
ngx_int_t ngx_http_sandbox_e2b_rpc_create(ngx_http_request_t *r);
ngx_int_t ngx_http_sandbox_e2b_rpc_list(ngx_http_request_t *r);
ngx_int_t ngx_http_sandbox_e2b_rpc_restart(ngx_http_request_t *r);
ngx_int_t ngx_http_sandbox_e2b_rpc_remove(ngx_http_request_t *r);


#endif /* _NGX_HTTP_SANDBOX_E2B_H_INCLUDED_ */
