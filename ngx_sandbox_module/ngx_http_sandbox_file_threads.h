/*
 * Threads that read files of sessions, and who has how many of them.
 */

#ifndef _NGX_HTTP_SANDBOX_FILE_THREADS_H_INCLUDED_
#define _NGX_HTTP_SANDBOX_FILE_THREADS_H_INCLUDED_


#include "ngx_http_sandbox.h"

#if (NGX_THREADS)
#include <ngx_thread_pool.h>


/* The pool of the configuration that is being read: made, unless it is there
 * already.  NULL on a failure. */
ngx_thread_pool_t *ngx_http_sandbox_file_pool(ngx_conf_t *cf);

#endif


/*
 * The file that r is about to send is the session's: reads of it get in line.
 * After the header, before any of the body; file and session live as long as
 * r.  NGX_OK, NGX_ERROR.
 */
ngx_int_t ngx_http_sandbox_file_threads(ngx_http_request_t *r,
    ngx_file_t *file, const char *session);


#endif /* _NGX_HTTP_SANDBOX_FILE_THREADS_H_INCLUDED_ */
