/*
 * What the handlers of files share.
 */

#ifndef _NGX_HTTP_SANDBOX_V1_FILES_H_INCLUDED_
#define _NGX_HTTP_SANDBOX_V1_FILES_H_INCLUDED_


#include "ngx_http_sandbox_op_file.h"
#include "ngx_http_sandbox_v1.h"


/* The length of the request's path into file; 0, or -1 where there is none,
 * or it has a NUL or is too long. */
int ngx_http_sandbox_v1_file_path(ngx_http_request_t *r, sbx_f_file_t *file,
    sbx_error_t *e);

/* An ENTRY frame as an object; NGX_ERROR for one that cannot be. */
ngx_int_t ngx_http_sandbox_v1_file_entry(ngx_http_sandbox_json_t *j,
    const u_char *payload, size_t len);

/* limit= and cursor= of a list; 0 or -1. */
int ngx_http_sandbox_v1_file_page(ngx_http_request_t *r, sbx_f_file_t *file,
    sbx_error_t *e);

/* A list's call: ENTRY frames, then END; what a handler returns. */
ngx_int_t ngx_http_sandbox_v1_file_list(ngx_http_request_t *r,
    const sbx_f_file_t *file, const ngx_str_t *path, const ngx_str_t *path2);

/*
 * A path of a body, as text or as base64; the one that is given.  -1: both,
 * neither, or no path.
 */
int ngx_http_sandbox_v1_file_body_path(ngx_http_request_t *r,
    const char *name, const sbx_json_str_t *text,
    const sbx_json_str_t *base64, ngx_str_t *path, sbx_error_t *e);

/* "path":"..." and, where the text could not say it, "path_base64". */
void ngx_http_sandbox_v1_file_json(ngx_http_sandbox_json_t *j,
    const void *path, size_t len);


#endif /* _NGX_HTTP_SANDBOX_V1_FILES_H_INCLUDED_ */
