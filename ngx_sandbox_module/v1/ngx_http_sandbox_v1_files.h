/*
 * What the handlers of files share.
 */

#ifndef _NGX_HTTP_SANDBOX_V1_FILES_H_INCLUDED_
#define _NGX_HTTP_SANDBOX_V1_FILES_H_INCLUDED_


#include "ngx_http_sandbox_v1.h"


/* three numbers in hexadecimal, two dashes, two quotes */
#define NGX_HTTP_SANDBOX_V1_ETAG_MAX      (3 * 16 + 2 + 2)


/* The length of the request's path into file; 0, or -1 where there is none,
 * or it has a NUL or is too long. */
int ngx_http_sandbox_v1_file_path(ngx_http_request_t *r, sbx_f_file_t *file,
    sbx_error_t *e);

/*
 * A call with its FILE frame queued; path2 may be NULL, its length is in
 * file.  NULL when out of memory.
 */
ngx_http_sandbox_call_t *ngx_http_sandbox_v1_file_call(ngx_http_request_t *r,
    const sbx_f_file_t *file, const ngx_str_t *path, const ngx_str_t *path2,
    void *data);

/*
 * Looks at a descriptor that a session passed: a regular file of a file
 * system that cannot make a worker wait, open for reading alone.  NGX_OK and
 * info, or NGX_DECLINED.
 */
ngx_int_t ngx_http_sandbox_v1_file_info(ngx_fd_t fd, ngx_file_info_t *info);

/* Tells apart two files that nginx's own second and size cannot.  Returns
 * the end of what was written. */
u_char *ngx_http_sandbox_v1_file_etag(u_char *buf, ngx_file_info_t *info);

/* "path":"..." and, where the text could not say it, "path_base64". */
void ngx_http_sandbox_v1_file_json(ngx_http_sandbox_json_t *j,
    const void *path, size_t len);


#endif /* _NGX_HTTP_SANDBOX_V1_FILES_H_INCLUDED_ */
