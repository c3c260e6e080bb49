/*
 * What the handlers of all APIs share.  A handler checks its request, starts a
 * call and returns; the call's frames come as events and the last one answers.
 */

#ifndef _NGX_HTTP_SANDBOX_OP_H_INCLUDED_
#define _NGX_HTTP_SANDBOX_OP_H_INCLUDED_


#include "ngx_http_sandbox.h"
#include "sandbox_util.h"


#define NGX_HTTP_SANDBOX_OP_WORKSPACE     "/home/user"

/* what the core may take to answer anything that is not a command */
#define NGX_HTTP_SANDBOX_OP_TIMEOUT       30000


/* The body by its table of fields; 0 or -1. */
int ngx_http_sandbox_op_bind(ngx_http_request_t *r,
    const sbx_json_field_t *fields, void *target, sbx_error_t *e);

/* Of a route that has no fields: nothing, or {}. */
int ngx_http_sandbox_op_bind_none(ngx_http_request_t *r, sbx_error_t *e);

/* Allocates from a pool, for sbx_json_bind(). */
sbx_json_alloc_t ngx_http_sandbox_op_allocator(ngx_pool_t *pool);

/*
 * Starts a call and watches the client, whose going away ends it.  Returns
 * what a handler returns; call may be NULL.
 */
ngx_int_t ngx_http_sandbox_op_start(ngx_http_request_t *r,
    ngx_http_sandbox_call_t *call);
void ngx_http_sandbox_op_watch(ngx_http_request_t *r);

/* A call with the usual time-out and failed(); NULL when out of memory. */
ngx_http_sandbox_call_t *ngx_http_sandbox_op_call(ngx_http_request_t *r,
    sbx_op_t op, const void *body, size_t size, ngx_fd_t blob, void *data);

/*
 * What every frame() begins with.  NGX_DECLINED: the frame is the callee's
 * own; anything else is to be returned.
 */
ngx_int_t ngx_http_sandbox_op_frame(ngx_http_sandbox_call_t *call,
    const sbx_frame_t *frame, const u_char *payload, ngx_fd_t fd);

/* What a frame() returns that has sent a piece of a stream, with rc; of a HEAD
 * there is no more to send. */
ngx_int_t ngx_http_sandbox_op_sent(ngx_http_sandbox_call_t *call,
    ngx_int_t rc);

/* frame() of a call that is answered by its end alone: 204. */
ngx_int_t ngx_http_sandbox_op_end_frame(ngx_http_sandbox_call_t *call,
    const sbx_frame_t *frame, const u_char *payload, ngx_fd_t fd);

/*
 * Closes the call and finalizes its request: neither may be touched after
 * it.  NGX_DONE, for frame() to return.
 */
ngx_int_t ngx_http_sandbox_op_finish(ngx_http_sandbox_call_t *call,
    ngx_int_t rc);
/* The other side broke the protocol: logged, 500. */
ngx_int_t ngx_http_sandbox_op_broken(ngx_http_sandbox_call_t *call,
    const char *what);
void ngx_http_sandbox_op_failed(ngx_http_sandbox_call_t *call,
    ngx_http_sandbox_error_e error);

/* 204, for the finalizer. */
ngx_int_t ngx_http_sandbox_op_no_content(ngx_http_request_t *r);

/*
 * NGX_OK and the value, NGX_DECLINED if it is not there, NGX_ABORT if it is
 * there more than once.  name in lower case.
 */
ngx_int_t ngx_http_sandbox_op_header(ngx_http_request_t *r, const char *name,
    ngx_str_t *value);

/*
 * The query; 0 or -1.  *value is left as it is where the argument is left
 * out; a flag is "0" or "1".
 */
int ngx_http_sandbox_op_number(ngx_http_request_t *r, const char *name,
    uint64_t min, uint64_t max, uint64_t *value, sbx_error_t *e);
int ngx_http_sandbox_op_flag(ngx_http_request_t *r, const char *name,
    ngx_uint_t *flag, sbx_error_t *e);
int ngx_http_sandbox_op_string(ngx_http_request_t *r, const char *name,
    ngx_str_t *value, sbx_error_t *e);

/*
 * Checks an environment and packs it as "K=V\0" ... of *size bytes, NULL if
 * it is empty.  -1: SBX_E_INVALID names the variable.
 */
int ngx_http_sandbox_op_env(ngx_pool_t *pool, const sbx_json_map_t *env,
    u_char **packed, size_t *size, sbx_error_t *e);

/* Of a command: NGX_OK and what the log variables show; NGX_ERROR for an end
 * that cannot be. */
ngx_int_t ngx_http_sandbox_op_exit(ngx_http_request_t *r,
    const sbx_f_exit_t *end);

/* A working directory that was given, or NULL data; 0 or -1: SBX_E_PATH. */
int ngx_http_sandbox_op_cwd(const sbx_json_str_t *cwd, sbx_error_t *e);

/* A member, "cwd", of what is absolute or relative to the workspace. */
void ngx_http_sandbox_op_cwd_json(ngx_http_sandbox_json_t *j,
    const char *cwd, size_t len);

/* One stream of a command: its head, up to the cap, in blocks that are filled
 * one after the other, so that what is there is never moved. */

typedef struct {
    ngx_chain_t                    *blocks;
    ngx_chain_t                    *block;        /* the last of them */
    size_t                          len;
    uint64_t                        max;
    size_t                         *shared;       /* of _op_share() */
    unsigned                        over:1;       /* more came than asked */
} ngx_http_sandbox_op_output_t;

/*
 * What a worker holds for answers and streams, of all requests together, is
 * bounded: each may hold 1 MB of a kind, and what is above comes out of 256 MB
 * of all.  len is what is held of a kind from now on, more or less than
 * before; NGX_DECLINED: there is no room for so much, and what was counted
 * stays so.  The end of the request gives it all back.  *shared is NULL at
 * first.
 */
ngx_int_t ngx_http_sandbox_op_share(ngx_http_request_t *r, size_t **shared,
    size_t len);

/* Whether a list of so many bytes goes no further: it has more than max, or
 * all that is held more than there is room for. */
ngx_uint_t ngx_http_sandbox_op_full(ngx_http_request_t *r, size_t size,
    size_t max);
/* What a call's frame() returns for a list that cannot end before its end. */
ngx_int_t ngx_http_sandbox_op_crowded(ngx_http_sandbox_call_t *call);

/* Keeps what a frame brought, up to the cap; NGX_ERROR: out of memory. */
ngx_int_t ngx_http_sandbox_op_output(ngx_http_request_t *r,
    ngx_http_sandbox_op_output_t *output, const u_char *data, size_t len);
/* The same within a call's frame(): what that returns. */
ngx_int_t ngx_http_sandbox_op_output_frame(ngx_http_sandbox_call_t *call,
    ngx_http_sandbox_op_output_t *output, const u_char *data, size_t len);
/* All of it as one; NGX_OK, NGX_ERROR. */
ngx_int_t ngx_http_sandbox_op_output_text(ngx_pool_t *pool,
    const ngx_http_sandbox_op_output_t *output, ngx_str_t *text);

typedef enum {
    NGX_HTTP_SANDBOX_OP_OUTPUT_TEXT,
    NGX_HTTP_SANDBOX_OP_OUTPUT_BASE64,
    NGX_HTTP_SANDBOX_OP_OUTPUT_AGAIN              /* as text, and once more
                                                     after that */
} ngx_http_sandbox_op_output_e;

/* The first len bytes of it as a string of an answer, whose memory goes as it
 * is sent: the output is not to be used after it, but by AGAIN. */
void ngx_http_sandbox_op_output_json(ngx_http_sandbox_json_t *j,
    const ngx_http_sandbox_op_output_t *output, size_t len,
    ngx_http_sandbox_op_output_e as);

/* How long a call may be silent whose command has this time-out; 0: for
 * ever. */
ngx_msec_t ngx_http_sandbox_op_silence(
    ngx_http_sandbox_main_conf_t *smcf, uint64_t timeout);

/* A fixed array of the wire as a JSON string, NUL terminated or not. */
#define ngx_http_sandbox_op_array(j, a)                                       \
    ngx_http_sandbox_json_string(j, a, ngx_strnlen((u_char *) (a), sizeof(a)))

/* memcmp of a JSON string with a literal */
#define ngx_http_sandbox_op_is(s, word)                                       \
    ((s)->len == sizeof(word) - 1                                             \
     && ngx_memcmp((s)->data, word, sizeof(word) - 1) == 0)


#endif /* _NGX_HTTP_SANDBOX_OP_H_INCLUDED_ */
