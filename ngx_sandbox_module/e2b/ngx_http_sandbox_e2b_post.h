/*
 * POST /files: what its two halves share, the request and its body.
 */

#ifndef _NGX_HTTP_SANDBOX_E2B_POST_H_INCLUDED_
#define _NGX_HTTP_SANDBOX_E2B_POST_H_INCLUDED_


#include "ngx_http_sandbox_e2b_files.h"
#include "multipart.h"


#define NGX_HTTP_SANDBOX_E2B_PIECE        16384


typedef enum {
    NGX_HTTP_SANDBOX_E2B_IDLE,            /* no file, or a part that is none */
    NGX_HTTP_SANDBOX_E2B_OPENING,
    NGX_HTTP_SANDBOX_E2B_WRITING,
    NGX_HTTP_SANDBOX_E2B_ENDING
} ngx_http_sandbox_e2b_post_e;


typedef struct {
    ngx_http_sandbox_e2b_file_t       file;
    ngx_http_sandbox_call_t          *call;
    ngx_http_sandbox_e2b_post_e       state;
    ngx_http_sandbox_e2b_gunzip_t    *gunzip;     /* NULL: it is not */
    sbx_multipart_t                  *form;       /* NULL: one file */
    ngx_str_t                         meta;       /* as on the wire */
    ngx_array_t                       paths;      /* ngx_str_t, of files */
    size_t                            paths_size;
    off_t                             max;        /* 0: none */
    off_t                             received;   /* of content, inflated */
    off_t                             around;     /* of a form, besides */
    off_t                             barren;     /* gzip for nothing */

    u_char                           *piece;      /* of a body in a file */
    u_char                           *inflated;
    u_char                           *raw;        /* what has come */
    u_char                           *raw_last;
    u_char                           *pos;        /* what is to be taken */
    u_char                           *last;

    ngx_event_t                       stall;      /* the core is stuck */
    ngx_event_t                       more;       /* the next turn */
    size_t                            turn;       /* bytes of this one */
    unsigned                          begun:1;    /* reading the body */
    unsigned                          over:1;     /* the form is */
} ngx_http_sandbox_e2b_post_t;


ngx_int_t ngx_http_sandbox_e2b_post_put(
    ngx_http_sandbox_e2b_post_t *post);
ngx_int_t ngx_http_sandbox_e2b_post_begin(
    ngx_http_sandbox_e2b_post_t *post);
void ngx_http_sandbox_e2b_post_writable(
    ngx_http_sandbox_call_t *call);
void ngx_http_sandbox_e2b_post_more(ngx_event_t *ev);
void ngx_http_sandbox_e2b_post_stalled(ngx_event_t *ev);
void ngx_http_sandbox_e2b_post_cleanup(void *data);
ngx_int_t ngx_http_sandbox_e2b_post_pump(
    ngx_http_sandbox_e2b_post_t *post);
ngx_int_t ngx_http_sandbox_e2b_post_nobody(
    ngx_http_sandbox_e2b_post_t *post);
ngx_int_t ngx_http_sandbox_e2b_post_answer(
    ngx_http_sandbox_e2b_post_t *post);
ngx_int_t ngx_http_sandbox_e2b_post_bad(
    ngx_http_sandbox_e2b_post_t *post, const char *what);
ngx_int_t ngx_http_sandbox_e2b_post_error(
    ngx_http_sandbox_e2b_post_t *post, const sbx_error_t *e);
ngx_int_t ngx_http_sandbox_e2b_post_finish(
    ngx_http_sandbox_e2b_post_t *post, ngx_int_t rc);



#endif /* _NGX_HTTP_SANDBOX_E2B_POST_H_INCLUDED_ */
