/*
 * What the handlers of the native API share.  A handler checks its request,
 * starts a call and returns; the call's frames come as events and the last
 * one answers.
 */

#ifndef _NGX_HTTP_SANDBOX_V1_H_INCLUDED_
#define _NGX_HTTP_SANDBOX_V1_H_INCLUDED_


#include "ngx_http_sandbox.h"
#include "sandbox_util.h"


#define NGX_HTTP_SANDBOX_V1_WORKSPACE     "/home/user"

/* what the core may take to answer anything that is not a command */
#define NGX_HTTP_SANDBOX_V1_TIMEOUT       30000

/* a list's text in memory; what is beyond comes with the next cursor */
#define NGX_HTTP_SANDBOX_V1_LIST_MAX      (8 * 1024 * 1024)


/* One handler for each route, by file. */

ngx_int_t ngx_http_sandbox_v1_create(ngx_http_request_t *r);
ngx_int_t ngx_http_sandbox_v1_list(ngx_http_request_t *r);
ngx_int_t ngx_http_sandbox_v1_get(ngx_http_request_t *r);
ngx_int_t ngx_http_sandbox_v1_destroy(ngx_http_request_t *r);

ngx_int_t ngx_http_sandbox_v1_patch(ngx_http_request_t *r);
ngx_int_t ngx_http_sandbox_v1_pause(ngx_http_request_t *r);
ngx_int_t ngx_http_sandbox_v1_resume(ngx_http_request_t *r);
ngx_int_t ngx_http_sandbox_v1_run(ngx_http_request_t *r);

ngx_int_t ngx_http_sandbox_v1_exec(ngx_http_request_t *r);
ngx_int_t ngx_http_sandbox_v1_install(ngx_http_request_t *r);

ngx_int_t ngx_http_sandbox_v1_code(ngx_http_request_t *r);
ngx_int_t ngx_http_sandbox_v1_context_create(ngx_http_request_t *r);
ngx_int_t ngx_http_sandbox_v1_context_list(ngx_http_request_t *r);
ngx_int_t ngx_http_sandbox_v1_context_delete(ngx_http_request_t *r);
ngx_int_t ngx_http_sandbox_v1_context_restart(ngx_http_request_t *r);

ngx_int_t ngx_http_sandbox_v1_process_list(ngx_http_request_t *r);
ngx_int_t ngx_http_sandbox_v1_process_get(ngx_http_request_t *r);
ngx_int_t ngx_http_sandbox_v1_process_output(ngx_http_request_t *r);
ngx_int_t ngx_http_sandbox_v1_process_stdin(ngx_http_request_t *r);
ngx_int_t ngx_http_sandbox_v1_process_signal(ngx_http_request_t *r);
ngx_int_t ngx_http_sandbox_v1_process_resize(ngx_http_request_t *r);
ngx_int_t ngx_http_sandbox_v1_cancel(ngx_http_request_t *r);
ngx_int_t ngx_http_sandbox_v1_terminal(ngx_http_request_t *r);

ngx_int_t ngx_http_sandbox_v1_download(ngx_http_request_t *r);
ngx_int_t ngx_http_sandbox_v1_upload(ngx_http_request_t *r);
ngx_int_t ngx_http_sandbox_v1_remove(ngx_http_request_t *r);
ngx_int_t ngx_http_sandbox_v1_files(ngx_http_request_t *r);
ngx_int_t ngx_http_sandbox_v1_file_stat(ngx_http_request_t *r);
ngx_int_t ngx_http_sandbox_v1_file_directory(ngx_http_request_t *r);
ngx_int_t ngx_http_sandbox_v1_file_mkdir(ngx_http_request_t *r);
ngx_int_t ngx_http_sandbox_v1_file_move(ngx_http_request_t *r);
ngx_int_t ngx_http_sandbox_v1_file_search(ngx_http_request_t *r);
ngx_int_t ngx_http_sandbox_v1_file_pack(ngx_http_request_t *r);
ngx_int_t ngx_http_sandbox_v1_file_watch(ngx_http_request_t *r);

ngx_int_t ngx_http_sandbox_v1_port(ngx_http_request_t *r);

ngx_int_t ngx_http_sandbox_v1_quota_list(ngx_http_request_t *r);

ngx_int_t ngx_http_sandbox_v1_health(ngx_http_request_t *r);
ngx_int_t ngx_http_sandbox_v1_doctor(ngx_http_request_t *r);
ngx_int_t ngx_http_sandbox_v1_capabilities(ngx_http_request_t *r);
ngx_int_t ngx_http_sandbox_v1_templates(ngx_http_request_t *r);


/* Metrics as JSON, for the status page. */
ngx_int_t ngx_http_sandbox_v1_status_data(ngx_http_request_t *r);


/* The body by its table of fields; 0 or -1. */
int ngx_http_sandbox_v1_bind(ngx_http_request_t *r,
    const sbx_json_field_t *fields, void *target, sbx_error_t *e);

/* Of a route that has no fields: nothing, or {}. */
int ngx_http_sandbox_v1_bind_none(ngx_http_request_t *r, sbx_error_t *e);

/* Allocates from a pool, for sbx_json_bind(). */
sbx_json_alloc_t ngx_http_sandbox_v1_allocator(ngx_pool_t *pool);

/*
 * Starts a call and watches the client, whose going away ends it.  Returns
 * what a handler returns; call may be NULL.
 */
ngx_int_t ngx_http_sandbox_v1_start(ngx_http_request_t *r,
    ngx_http_sandbox_call_t *call);
void ngx_http_sandbox_v1_watch(ngx_http_request_t *r);

/* A call with the usual time-out and failed(); NULL when out of memory. */
ngx_http_sandbox_call_t *ngx_http_sandbox_v1_call(ngx_http_request_t *r,
    sbx_op_t op, const void *body, size_t size, ngx_fd_t blob, void *data);

/*
 * What every frame() begins with.  NGX_DECLINED: the frame is the callee's
 * own; anything else is to be returned.
 */
ngx_int_t ngx_http_sandbox_v1_frame(ngx_http_sandbox_call_t *call,
    const sbx_frame_t *frame, const u_char *payload, ngx_fd_t fd);

/* What a frame() returns that has sent a piece of a stream, with rc; of a HEAD
 * there is no more to send. */
ngx_int_t ngx_http_sandbox_v1_sent(ngx_http_sandbox_call_t *call,
    ngx_int_t rc);

/* frame() of a call that is answered by its end alone: 204. */
ngx_int_t ngx_http_sandbox_v1_end_frame(ngx_http_sandbox_call_t *call,
    const sbx_frame_t *frame, const u_char *payload, ngx_fd_t fd);

/*
 * Closes the call and finalizes its request: neither may be touched after
 * it.  NGX_DONE, for frame() to return.
 */
ngx_int_t ngx_http_sandbox_v1_finish(ngx_http_sandbox_call_t *call,
    ngx_int_t rc);
/* The other side broke the protocol: logged, 500. */
ngx_int_t ngx_http_sandbox_v1_broken(ngx_http_sandbox_call_t *call,
    const char *what);
void ngx_http_sandbox_v1_failed(ngx_http_sandbox_call_t *call,
    ngx_http_sandbox_error_e error);

/*
 * Answers with a list, of which "]" and the next cursor are still to be
 * written: the kind's letter and where to go on, or null where that is 0, and
 * whether there is more than can be listed.
 */
ngx_int_t ngx_http_sandbox_v1_list_end(ngx_http_sandbox_call_t *call,
    ngx_http_sandbox_json_t *j, u_char kind, uint64_t next,
    ngx_uint_t truncated);

/* A quota by name, as the admin API tells of it. */
void ngx_http_sandbox_v1_quota_object(ngx_http_sandbox_json_t *j,
    const sbx_f_quota_t *quota);

/* 204, for the finalizer. */
ngx_int_t ngx_http_sandbox_v1_no_content(ngx_http_request_t *r);

/* Location: of what was made in the collection that the request is to. */
ngx_int_t ngx_http_sandbox_v1_location(ngx_http_request_t *r,
    const ngx_str_t *id);

/*
 * NGX_OK and the value, NGX_DECLINED if it is not there, NGX_ABORT if it is
 * there more than once.  name in lower case.
 */
ngx_int_t ngx_http_sandbox_v1_header(ngx_http_request_t *r, const char *name,
    ngx_str_t *value);

/*
 * The query; 0 or -1.  *value is left as it is where the argument is left
 * out; a flag is "0" or "1".
 */
int ngx_http_sandbox_v1_number(ngx_http_request_t *r, const char *name,
    uint64_t min, uint64_t max, uint64_t *value, sbx_error_t *e);
int ngx_http_sandbox_v1_flag(ngx_http_request_t *r, const char *name,
    ngx_uint_t *flag, sbx_error_t *e);
int ngx_http_sandbox_v1_string(ngx_http_request_t *r, const char *name,
    ngx_str_t *value, sbx_error_t *e);

/*
 * Checks an environment and packs it as "K=V\0" ... of *size bytes, NULL if
 * it is empty.  -1: SBX_E_INVALID names the variable.
 */
int ngx_http_sandbox_v1_env(ngx_pool_t *pool, const sbx_json_map_t *env,
    u_char **packed, size_t *size, sbx_error_t *e);

/* A fixed array of the wire as a JSON string, NUL terminated or not. */
#define ngx_http_sandbox_v1_array(j, a)                                       \
    ngx_http_sandbox_json_string(j, a, ngx_strnlen((u_char *) (a), sizeof(a)))

/* memcmp of a JSON string with a literal */
#define ngx_http_sandbox_v1_is(s, word)                                       \
    ((s)->len == sizeof(word) - 1                                             \
     && ngx_memcmp((s)->data, word, sizeof(word) - 1) == 0)


#endif /* _NGX_HTTP_SANDBOX_V1_H_INCLUDED_ */
