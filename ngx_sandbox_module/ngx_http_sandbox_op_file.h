/*
 * Calls about files, and sending one, for the handlers of all APIs.
 */

#ifndef _NGX_HTTP_SANDBOX_OP_FILE_H_INCLUDED_
#define _NGX_HTTP_SANDBOX_OP_FILE_H_INCLUDED_


#include "ngx_http_sandbox_op.h"


/* bytes of an answer that is gathered before it is sent */
#define NGX_HTTP_SANDBOX_OP_LIST_MAX      (8 * 1024 * 1024)

/* bytes of an upload that are queued and not sent */
#define NGX_HTTP_SANDBOX_OP_WINDOW        (256 * 1024)
/* how long the core may take none of them, ms */
#define NGX_HTTP_SANDBOX_OP_STALL         60000

/* three numbers in hexadecimal, two dashes, two quotes */
#define NGX_HTTP_SANDBOX_OP_ETAG_MAX      (3 * 16 + 2 + 2)


/*
 * A call with its FILE frame queued; path2 may be NULL, or holds path2 and
 * then the metadata: their lengths are in file.  NULL when out of memory.
 */
ngx_http_sandbox_call_t *ngx_http_sandbox_op_file_call(ngx_http_request_t *r,
    const sbx_f_file_t *file, const ngx_str_t *path, const ngx_str_t *path2,
    void *data);

/*
 * Looks at a descriptor that a session passed: a regular file of a file
 * system that cannot make a worker wait, open for reading alone.  NGX_OK and
 * info, or NGX_DECLINED.
 */
ngx_int_t ngx_http_sandbox_op_file_info(ngx_fd_t fd, ngx_file_info_t *info);

/* Tells apart two files that nginx's own second and size cannot.  Returns
 * the end of what was written. */
u_char *ngx_http_sandbox_op_file_etag(u_char *buf, ngx_file_info_t *info);

/* Content-Disposition, "attachment" or "inline", with the name at path's
 * end. */
ngx_int_t ngx_http_sandbox_op_file_disposition(ngx_http_request_t *r,
    const char *kind, const ngx_str_t *path);

/* Whether a browser would run it, or take it apart, as the API's own page. */
ngx_uint_t ngx_http_sandbox_op_file_active(const ngx_str_t *type);


/* What an OPEN is answered with: call->data is this, call->frame the
 * function. */

typedef struct {
    ngx_str_t     type;
    const char   *kind;           /* of its disposition */
    ngx_str_t     name;           /* NULL: the file's own */
    unsigned      vary:1;         /* a filter may encode it */
    unsigned      sending:1;
} ngx_http_sandbox_op_download_t;

ngx_int_t ngx_http_sandbox_op_download_frame(ngx_http_sandbox_call_t *call,
    const sbx_frame_t *frame, const u_char *payload, ngx_fd_t fd);


#endif /* _NGX_HTTP_SANDBOX_OP_FILE_H_INCLUDED_ */
