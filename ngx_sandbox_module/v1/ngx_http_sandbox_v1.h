/*
 * What the handlers of the native API share.  A handler checks its request,
 * starts a call and returns; the call's frames come as events and the last
 * one answers.
 */

#ifndef _NGX_HTTP_SANDBOX_V1_H_INCLUDED_
#define _NGX_HTTP_SANDBOX_V1_H_INCLUDED_


#include "ngx_http_sandbox_op.h"


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

/* Location: of what was made in the collection that the request is to. */
ngx_int_t ngx_http_sandbox_v1_location(ngx_http_request_t *r,
    const ngx_str_t *id);


#endif /* _NGX_HTTP_SANDBOX_V1_H_INCLUDED_ */
