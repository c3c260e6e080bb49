/*
 * What the handlers of files share, of both kinds.
 */

#ifndef _NGX_HTTP_SANDBOX_E2B_FILES_H_INCLUDED_
#define _NGX_HTTP_SANDBOX_E2B_FILES_H_INCLUDED_


#include "ngx_http_sandbox_e2b.h"
#include "ngx_http_sandbox_op_file.h"


#define NGX_HTTP_SANDBOX_E2B_DEPTH_MAX    200
#define NGX_HTTP_SANDBOX_E2B_ENTRIES      20000     /* of a list */

/* of names that are attributes of a file */
#define NGX_HTTP_SANDBOX_E2B_META         "e2b."


/*
 * A path of a request, absolute and without ".", ".." and empty parts, which
 * go as text, whatever links there are.  0 or -1.
 */
int ngx_http_sandbox_e2b_file_path(ngx_http_request_t *r, uint32_t user,
    const void *path, size_t len, ngx_str_t *out, sbx_error_t *e);

/*
 * As op_file_call().  The service works as root, and gives what it makes to
 * the user whom it works for.
 */
ngx_http_sandbox_call_t *ngx_http_sandbox_e2b_file_call(
    ngx_http_request_t *r, const sbx_f_file_t *file, const ngx_str_t *path,
    const ngx_str_t *path2, void *data);

/* What the core says of "path", as said of this one; buf has
 * NGX_HTTP_SANDBOX_E2B_SAID bytes.  Else the same. */
#define NGX_HTTP_SANDBOX_E2B_SAID         (SBX_PATH_MAX + 256)

void ngx_http_sandbox_e2b_said(const ngx_str_t *path, ngx_str_t *text,
    u_char *buf);

/* What is after the last slash; of "/" that itself. */
void ngx_http_sandbox_e2b_base(const ngx_str_t *path, ngx_str_t *name);

/* An ENTRY frame as EntryInfo; NGX_ERROR for one that cannot be. */
ngx_int_t ngx_http_sandbox_e2b_entry(ngx_http_sandbox_json_t *j,
    const u_char *payload, size_t len);

/* ,"metadata":{...} of "KEY\0VALUE\0" ..., or nothing. */
void ngx_http_sandbox_e2b_entry_meta(ngx_http_sandbox_json_t *j,
    const char *p, size_t len);


/* Fields of a request of the filesystem service. */

typedef struct {
    sbx_json_str_t   path;
    sbx_json_str_t   to;
    sbx_json_str_t   watcher;
    uint64_t         depth;
    uint32_t         recursive;
    uint32_t         entries;
} ngx_http_sandbox_e2b_fs_body_t;

extern const sbx_json_field_t  ngx_http_sandbox_e2b_fs_fields[];

/* Binds them, and fills user, path and path_len of file: 0 or -1. */
int ngx_http_sandbox_e2b_fs_request(ngx_http_request_t *r,
    ngx_http_sandbox_e2b_fs_body_t *body, sbx_f_file_t *file,
    ngx_str_t *path, sbx_error_t *e);

/* Refuses a call of the service by an error of the core. */
ngx_int_t ngx_http_sandbox_e2b_fs_failed(ngx_http_sandbox_call_t *call,
    const ngx_str_t *path, const u_char *payload);

/* The rest of an event, from its name and type on; entry may be NULL. */
void ngx_http_sandbox_e2b_event(ngx_http_sandbox_json_t *j,
    const u_char *name, size_t len, uint32_t change);

/* What is left of a path below the first root_len bytes. */
void ngx_http_sandbox_e2b_below(const char *path, size_t len,
    size_t root_len, ngx_str_t *name);


/*
 * ---- GET and POST /files -------------------------------------------------
 */

/* A request of these; what a handler has is after it. */

typedef struct ngx_http_sandbox_e2b_file_s  ngx_http_sandbox_e2b_file_t;

struct ngx_http_sandbox_e2b_file_s {
    ngx_http_request_t   *request;
    uint32_t              user;
    ngx_str_t             path;         /* absolute; empty: none was given */
    ngx_str_t             query;        /* as it was given */
    ngx_str_t             name;         /* of the user, likewise */
    ngx_uint_t            has_path;
    const char           *refusal;      /* why its caller may not */

    ngx_str_t             signature;
    ngx_uint_t            has_signature;
    ngx_uint_t            expires;      /* it does */
    int64_t               expiration;

    /* Once it is known whose files they are; as a route's handler. */
    ngx_int_t           (*go)(ngx_http_sandbox_e2b_file_t *file);
};

/*
 * Reads the query, looks whether the caller may, and calls go().  Returns what
 * a handler returns.
 */
ngx_int_t ngx_http_sandbox_e2b_file_begin(ngx_http_sandbox_e2b_file_t *file);

/*
 * Whether the caller may, or which sandbox is meant, where the address has
 * only a signature; then go().
 */
ngx_int_t ngx_http_sandbox_e2b_sign(ngx_http_sandbox_e2b_file_t *file);

/* For ctx->refuse; ctx->data is the file. */
ngx_int_t ngx_http_sandbox_e2b_refuse_file(ngx_http_request_t *r,
    const ngx_http_sandbox_refusal_t *refusal);


/*
 * ---- gzip ----------------------------------------------------------------
 */

typedef struct ngx_http_sandbox_e2b_gunzip_s  ngx_http_sandbox_e2b_gunzip_t;

/* In the request's pool; NULL when out of memory. */
ngx_http_sandbox_e2b_gunzip_t *ngx_http_sandbox_e2b_gunzip_create(
    ngx_http_request_t *r);

/*
 * Takes from *p ... last, which it moves, and puts at most size bytes into
 * out.  NGX_OK: *n of them; NGX_AGAIN: all is taken, and there are none;
 * NGX_ERROR: it is not gzip; NGX_ABORT: out of memory.
 */
ngx_int_t ngx_http_sandbox_e2b_gunzip(ngx_http_sandbox_e2b_gunzip_t *gunzip,
    u_char **p, u_char *last, u_char *out, size_t size, size_t *n);

/* Whether what has come is whole. */
ngx_uint_t ngx_http_sandbox_e2b_gunzip_whole(
    const ngx_http_sandbox_e2b_gunzip_t *gunzip);


#endif /* _NGX_HTTP_SANDBOX_E2B_FILES_H_INCLUDED_ */
