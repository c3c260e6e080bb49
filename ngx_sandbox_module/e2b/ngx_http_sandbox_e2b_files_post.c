/*
 * POST /files: one file as the body, or several in a form, either of them
 * compressed.  What comes goes through in pieces, unbuffered,
 *
 *   client -> [gunzip] -> [form] -> PUT -> READY, DATA ... DATA(0) -> END
 *
 * one file after the other, each by a call of its own; while a file is being
 * opened or ended, or has as much queued as it may, the client is not read.
 * A file takes its name when all of it has come: whatever ends the request
 * before leaves what was there.  The files before it stay written.
 */

#include "ngx_http_sandbox_e2b_post.h"


/* a user attribute's name has 255 bytes, with "user." and "e2b." */
#define NGX_HTTP_SANDBOX_E2B_KEY_MAX      246


static ngx_int_t ngx_http_sandbox_e2b_post_go(
    ngx_http_sandbox_e2b_file_t *file);
static ngx_int_t ngx_http_sandbox_e2b_post_type(
    ngx_http_sandbox_e2b_post_t *post, sbx_error_t *e);
static int ngx_http_sandbox_e2b_post_coding(ngx_http_sandbox_e2b_post_t *post,
    sbx_error_t *e);
static int ngx_http_sandbox_e2b_post_meta(ngx_http_sandbox_e2b_post_t *post,
    sbx_error_t *e);
static ngx_int_t ngx_http_sandbox_e2b_post_frame(
    ngx_http_sandbox_call_t *call, const sbx_frame_t *frame,
    const u_char *payload, ngx_fd_t fd);
static ngx_http_sandbox_call_t *ngx_http_sandbox_e2b_post_ask(
    ngx_http_sandbox_e2b_post_t *post);
static ngx_int_t ngx_http_sandbox_e2b_post_ask_frame(
    ngx_http_sandbox_call_t *call, const sbx_frame_t *frame,
    const u_char *payload, ngx_fd_t fd);


ngx_int_t
ngx_http_sandbox_e2b_files_post(ngx_http_request_t *r)
{
    ngx_pool_cleanup_t           *cln;
    ngx_http_sandbox_e2b_post_t  *post;

    /* a refusal must not be preceded by "100 Continue" */

    r->expect_tested = 1;

    post = ngx_pcalloc(r->pool, sizeof(ngx_http_sandbox_e2b_post_t));
    cln = ngx_pool_cleanup_add(r->pool, 0);

    if (post == NULL || cln == NULL
        || ngx_array_init(&post->paths, r->pool, 4, sizeof(ngx_str_t))
           != NGX_OK)
    {
        return ngx_http_sandbox_problem(r, NGX_HTTP_SANDBOX_INTERNAL, NULL);
    }

    post->file.request = r;
    post->file.go = ngx_http_sandbox_e2b_post_go;

    post->stall.handler = ngx_http_sandbox_e2b_post_stalled;
    post->stall.data = post;
    post->stall.log = r->connection->log;

    post->more.handler = ngx_http_sandbox_e2b_post_more;
    post->more.data = post;
    post->more.log = r->connection->log;

    cln->handler = ngx_http_sandbox_e2b_post_cleanup;
    cln->data = post;

    return ngx_http_sandbox_e2b_file_begin(&post->file);
}


static ngx_int_t
ngx_http_sandbox_e2b_post_go(ngx_http_sandbox_e2b_file_t *file)
{
    ngx_int_t                     rc;
    sbx_error_t                   e;
    ngx_http_request_t           *r;
    ngx_http_sandbox_loc_conf_t  *slcf;
    ngx_http_sandbox_e2b_post_t  *post;

    r = file->request;
    post = (ngx_http_sandbox_e2b_post_t *)
               ((u_char *) file
                - offsetof(ngx_http_sandbox_e2b_post_t, file));

    slcf = ngx_http_get_module_loc_conf(r, ngx_http_sandbox_module);
    post->max = slcf->max_upload;

    rc = ngx_http_sandbox_e2b_post_type(post, &e);

    if (rc != NGX_OK
        || ngx_http_sandbox_e2b_post_coding(post, &e) != 0
        || ngx_http_sandbox_e2b_post_meta(post, &e) != 0)
    {
        return ngx_http_sandbox_problem_core(r, &e);
    }

    if (post->form == NULL) {
        return ngx_http_sandbox_e2b_post_put(post);
    }

    if (ngx_http_sandbox_ctx(r)->needs != 0) {

        /* a body of somebody who may do nothing is not worth a look */

        return ngx_http_sandbox_op_start(r,
                                         ngx_http_sandbox_e2b_post_ask(post));
    }

    /* it may end the request at once, of which nothing may be left then, and
     * whoever called this still has it */

    ngx_post_event(&post->more, &ngx_posted_events);

    return NGX_DONE;
}


static ngx_int_t
ngx_http_sandbox_e2b_post_type(ngx_http_sandbox_e2b_post_t *post,
    sbx_error_t *e)
{
    int                  rc;
    ngx_str_t            type;
    ngx_http_request_t  *r;

    static const u_char  raw[] = "application/octet-stream";

    r = post->file.request;
    ngx_str_set(&type, "");

    if (r->headers_in.content_type != NULL) {
        type = r->headers_in.content_type->value;
    }

    if (type.len >= sizeof(raw) - 1
        && ngx_strncasecmp(type.data, (u_char *) raw, sizeof(raw) - 1) == 0
        && (type.len == sizeof(raw) - 1
            || ngx_strchr("; \t", type.data[sizeof(raw) - 1]) != NULL))
    {
        if (post->file.query.len == 0) {
            return sbx_error(e, 0, SBX_E_INVALID,
                             "the query has no path, which the upload of a "
                             "single file needs");
        }

        return NGX_OK;
    }

    post->form = ngx_palloc(r->pool, sizeof(sbx_multipart_t));

    if (post->form == NULL) {
        return sbx_error(e, 0, SBX_E_INTERNAL, "out of memory");
    }

    rc = sbx_multipart_init(post->form, type.data, type.len);

    if (rc == 1) {
        return sbx_error(e, 0, SBX_E_INVALID,
                         "unsupported content type: %.*s, expected "
                         "multipart/form-data or application/octet-stream",
                         (int) ngx_min(type.len, 100), type.data);
    }

    if (rc == -1) {
        return sbx_error(e, 0, SBX_E_INVALID,
                         "the content type has no boundary of at most %d "
                         "bytes", SBX_MULTIPART_BOUNDARY);
    }

    return NGX_OK;
}


static int
ngx_http_sandbox_e2b_post_coding(ngx_http_sandbox_e2b_post_t *post,
    sbx_error_t *e)
{
    off_t                length;
    ngx_int_t            rc;
    ngx_str_t            value;
    ngx_http_request_t  *r;

    r = post->file.request;
    ngx_str_set(&value, "");

    rc = ngx_http_sandbox_op_header(r, "content-encoding", &value);

    if (rc == NGX_ABORT
        || (value.len != 0
            && (value.len != 4
                || ngx_strncasecmp(value.data, (u_char *) "gzip", 4) != 0)
            && (value.len != 8
                || ngx_strncasecmp(value.data, (u_char *) "identity", 8)
                   != 0)))
    {
        return sbx_error(e, 0, SBX_E_INVALID,
                         "the only Content-Encoding that is taken is gzip");
    }

    length = r->headers_in.content_length_n;

    if (value.len != 4) {

        if (post->max > 0 && post->form == NULL && length > post->max) {
            return sbx_error(e, 0, SBX_E_TOO_LARGE,
                             "an upload is limited to %lld bytes",
                             (long long) post->max);
        }

        return 0;
    }

    post->gunzip = ngx_http_sandbox_e2b_gunzip_create(r);
    post->inflated = ngx_palloc(r->pool, NGX_HTTP_SANDBOX_E2B_PIECE);

    if (post->gunzip == NULL || post->inflated == NULL) {
        return sbx_error(e, 0, SBX_E_INTERNAL, "out of memory");
    }

    return 0;
}


/* "X-Metadata-KEY: VALUE" of the headers, the first of several. */

static int
ngx_http_sandbox_e2b_post_meta(ngx_http_sandbox_e2b_post_t *post,
    sbx_error_t *e)
{
    u_char           *p, *q, *key, *end;
    size_t            k, len;
    ngx_str_t        *value;
    ngx_uint_t        i;
    ngx_list_part_t  *part;
    ngx_table_elt_t  *header;

    static const u_char  name[] = "x-metadata-";
    static const u_char  lead[] = NGX_HTTP_SANDBOX_E2B_META;

    p = NULL;
    end = NULL;
    part = &post->file.request->headers_in.headers.part;

    for ( /* void */ ; part; part = part->next) {
        header = part->elts;

        for (i = 0; i < part->nelts; i++) {
            len = sizeof(name) - 1;

            if (header[i].key.len <= len
                || ngx_strncasecmp(header[i].key.data, (u_char *) name, len)
                   != 0)
            {
                continue;
            }

            key = header[i].key.data + len;
            len = header[i].key.len - len;
            value = &header[i].value;

            if (len > NGX_HTTP_SANDBOX_E2B_KEY_MAX) {
                return sbx_error(e, 0, SBX_E_INVALID,
                                 "a metadata key has more than %d bytes",
                                 NGX_HTTP_SANDBOX_E2B_KEY_MAX);
            }

            for (k = 0; k < len + value->len; k++) {
                q = (k < len) ? key + k : value->data + k - len;

                if (*q < ' ' || *q > 0x7e) {
                    return sbx_error(e, 0, SBX_E_INVALID,
                                     "metadata must be printable ASCII");
                }
            }

            if (p == NULL) {
                p = ngx_pnalloc(post->file.request->pool,
                                SBX_FILE_METADATA_MAX);

                if (p == NULL) {
                    return sbx_error(e, 0, SBX_E_INTERNAL, "out of memory");
                }

                post->meta.data = p;
                end = p + SBX_FILE_METADATA_MAX;
            }

            if ((size_t) (end - p)
                < sizeof(lead) - 1 + len + 1 + value->len + 1)
            {
                return sbx_error(e, 0, SBX_E_INVALID,
                                 "metadata have more than %d bytes in all",
                                 SBX_FILE_METADATA_MAX);
            }

            q = ngx_cpymem(p, lead, sizeof(lead) - 1);
            ngx_strlow(q, key, len);
            q[len] = '\0';

            for (k = 0; k < post->meta.len; k += ngx_strlen(key) + 1) {
                key = post->meta.data + k;

                if (ngx_strcmp(key, p) == 0) {
                    break;
                }

                k += ngx_strlen(key) + 1;
                key = post->meta.data + k;
            }

            if (k < post->meta.len) {
                continue;
            }

            p = ngx_cpymem(q + len + 1, value->data, value->len);
            *p++ = '\0';
            post->meta.len = p - post->meta.data;
        }
    }

    return 0;
}


/* ---- one file ----------------------------------------------------------- */


/* Opens file.path; returns what a handler returns. */

ngx_int_t
ngx_http_sandbox_e2b_post_put(ngx_http_sandbox_e2b_post_t *post)
{
    ngx_str_t                *path;
    sbx_f_file_t              put;
    ngx_http_request_t       *r;
    ngx_http_sandbox_ctx_t   *ctx;
    ngx_http_sandbox_call_t  *call;

    r = post->file.request;
    path = &post->file.path;

    /* for the audit log: of several, the last */

    ctx = ngx_http_sandbox_ctx(r);
    ctx->path = *path;
    ctx->has_path = 1;

    ngx_memzero(&put, sizeof(sbx_f_file_t));
    put.verb = SBX_FILE_PUT;
    put.user = post->file.user;
    put.path_len = (uint32_t) path->len;
    put.metadata_len = (uint32_t) post->meta.len;
    put.flags = (post->meta.len != 0) ? SBX_FILE_F_METADATA : 0;
    put.size = SBX_UNSET;
    put.max = SBX_UNSET;

    if (post->form == NULL && post->gunzip == NULL
        && !r->headers_in.chunked)
    {
        put.size = (uint64_t) ngx_max(r->headers_in.content_length_n, 0);
    }

    if (post->max > 0) {
        put.max = (uint64_t) (post->max - post->received);
    }

    call = ngx_http_sandbox_e2b_file_call(r, &put, path, &post->meta, post);

    post->call = call;
    post->state = NGX_HTTP_SANDBOX_E2B_OPENING;

    if (call != NULL) {
        call->frame = ngx_http_sandbox_e2b_post_frame;
        call->writable = ngx_http_sandbox_e2b_post_writable;
    }

    return ngx_http_sandbox_op_start(r, call);
}


static ngx_int_t
ngx_http_sandbox_e2b_post_frame(ngx_http_sandbox_call_t *call,
    const sbx_frame_t *frame, const u_char *payload, ngx_fd_t fd)
{
    ngx_int_t                     rc;
    ngx_str_t                    *path;
    ngx_http_sandbox_e2b_post_t  *post;

    rc = ngx_http_sandbox_op_frame(call, frame, payload, fd);

    if (rc != NGX_DECLINED) {
        return rc;
    }

    post = call->data;

    if (frame->type == SBX_F_READY
        && post->state == NGX_HTTP_SANDBOX_E2B_OPENING)
    {
        post->state = NGX_HTTP_SANDBOX_E2B_WRITING;

        /* from here on it is the body that takes time, or the stall timer */

        call->timeout = 0;
        post->turn = 0;

        return post->begun ? ngx_http_sandbox_e2b_post_pump(post)
                           : ngx_http_sandbox_e2b_post_begin(post);
    }

    if (frame->type != SBX_F_END
        || post->state != NGX_HTTP_SANDBOX_E2B_ENDING)
    {
        return ngx_http_sandbox_op_broken(call, "a wrong frame for upload");
    }

    path = ngx_array_push(&post->paths);

    if (path == NULL) {
        return ngx_http_sandbox_op_broken(call, "more than memory holds");
    }

    *path = post->file.path;

    post->state = NGX_HTTP_SANDBOX_E2B_IDLE;
    post->turn = 0;
    ngx_http_sandbox_call_close(call);

    if (post->stall.timer_set) {
        ngx_del_timer(&post->stall);
    }

    (void) ((post->form == NULL) ? ngx_http_sandbox_e2b_post_answer(post)
                                 : ngx_http_sandbox_e2b_post_pump(post));

    return NGX_DONE;
}


/* Whether there is a session, and whether the caller may do anything in it. */

static ngx_http_sandbox_call_t *
ngx_http_sandbox_e2b_post_ask(ngx_http_sandbox_e2b_post_t *post)
{
    ngx_str_t                 root;
    sbx_f_file_t              stat;
    ngx_http_sandbox_call_t  *call;

    ngx_str_set(&root, "/");

    ngx_memzero(&stat, sizeof(sbx_f_file_t));
    stat.verb = SBX_FILE_STAT;
    stat.user = post->file.user;
    stat.path_len = (uint32_t) root.len;

    call = ngx_http_sandbox_e2b_file_call(post->file.request, &stat, &root,
                                         NULL, post);

    post->call = call;

    if (call != NULL) {
        call->frame = ngx_http_sandbox_e2b_post_ask_frame;
    }

    return call;
}


/* A form without a file: it has still to be said. */

ngx_int_t
ngx_http_sandbox_e2b_post_nobody(ngx_http_sandbox_e2b_post_t *post)
{
    ngx_int_t  rc;

    rc = ngx_http_sandbox_op_start(post->file.request,
                                   ngx_http_sandbox_e2b_post_ask(post));

    return (rc == NGX_DONE) ? NGX_OK
                            : ngx_http_sandbox_e2b_post_finish(post, rc);
}


static ngx_int_t
ngx_http_sandbox_e2b_post_ask_frame(ngx_http_sandbox_call_t *call,
    const sbx_frame_t *frame, const u_char *payload, ngx_fd_t fd)
{
    ngx_int_t                     rc;
    ngx_http_sandbox_e2b_post_t  *post;

    rc = ngx_http_sandbox_op_frame(call, frame, payload, fd);

    if (rc != NGX_DECLINED) {
        return rc;
    }

    post = call->data;

    switch (frame->type) {

    case SBX_F_ENTRY:
        return NGX_OK;

    case SBX_F_END:
        if (post->begun) {
            return ngx_http_sandbox_e2b_post_answer(post);
        }

        ngx_http_sandbox_call_close(call);

        return ngx_http_sandbox_e2b_post_begin(post);

    default:
        return ngx_http_sandbox_op_broken(call, "a wrong frame for an entry");
    }
}


ngx_int_t
ngx_http_sandbox_e2b_post_answer(ngx_http_sandbox_e2b_post_t *post)
{
    ngx_str_t                *path, name;
    ngx_uint_t                i;
    ngx_http_sandbox_json_t   j;

    path = post->paths.elts;

    ngx_http_sandbox_json_init(&j, post->file.request->pool);
    ngx_http_sandbox_json_raw(&j, "[");

    for (i = 0; i < post->paths.nelts; i++) {
        ngx_http_sandbox_e2b_base(&path[i], &name);

        ngx_http_sandbox_json_raw(&j, i ? ",{\"path\":" : "{\"path\":");
        ngx_http_sandbox_json_string(&j, path[i].data, path[i].len);
        ngx_http_sandbox_json_raw(&j, ",\"name\":");
        ngx_http_sandbox_json_string(&j, name.data, name.len);
        ngx_http_sandbox_json_raw(&j, ",\"type\":\"file\"");
        ngx_http_sandbox_e2b_entry_meta(&j, (char *) post->meta.data,
                                        post->meta.len);
        ngx_http_sandbox_json_raw(&j, "}");
    }

    ngx_http_sandbox_json_raw(&j, "]");

    return ngx_http_sandbox_e2b_post_finish(post,
               ngx_http_sandbox_json_send(post->file.request, NGX_HTTP_OK,
                                          &j));
}


/* ---- the end ------------------------------------------------------------ */


ngx_int_t
ngx_http_sandbox_e2b_post_bad(ngx_http_sandbox_e2b_post_t *post,
    const char *what)
{
    return ngx_http_sandbox_e2b_post_finish(post,
               ngx_http_sandbox_problem(post->file.request,
                                        NGX_HTTP_SANDBOX_INVALID_REQUEST,
                                        "%s", what));
}


ngx_int_t
ngx_http_sandbox_e2b_post_error(ngx_http_sandbox_e2b_post_t *post,
    const sbx_error_t *e)
{
    return ngx_http_sandbox_e2b_post_finish(post,
               ngx_http_sandbox_problem_core(post->file.request, e));
}


/* NGX_DONE: nothing of the request may be touched after it.  Requests that
 * are posted are run by whoever has the event: this may be a handler. */

ngx_int_t
ngx_http_sandbox_e2b_post_finish(ngx_http_sandbox_e2b_post_t *post,
    ngx_int_t rc)
{
    if (post->call != NULL) {
        ngx_http_sandbox_call_close(post->call);
    }

    if (post->stall.timer_set) {
        ngx_del_timer(&post->stall);
    }

    if (post->more.posted) {
        ngx_delete_posted_event(&post->more);
    }

    ngx_http_finalize_request(post->file.request, rc);

    return NGX_DONE;
}
