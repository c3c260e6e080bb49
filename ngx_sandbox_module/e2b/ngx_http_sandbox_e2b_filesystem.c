/*
 * The filesystem service, but for watching.
 */

#include "ngx_http_sandbox_e2b_files.h"


/* A call that is answered by entries. */

typedef struct {
    ngx_http_sandbox_json_t           json;
    ngx_str_t                         path;
    sbx_f_file_t                      file;
    uint64_t                          count;
    ngx_http_sandbox_e2b_fs_body_t    body;
} ngx_http_sandbox_e2b_fs_t;


static ngx_int_t ngx_http_sandbox_e2b_fs_begin(ngx_http_request_t *r,
    sbx_file_verb_t verb, ngx_http_sandbox_e2b_fs_t **fs, ngx_int_t *rc);
static ngx_int_t ngx_http_sandbox_e2b_fs_call(ngx_http_request_t *r,
    ngx_http_sandbox_e2b_fs_t *fs, const ngx_str_t *path2,
    ngx_int_t (*frame)(ngx_http_sandbox_call_t *call,
    const sbx_frame_t *frame, const u_char *payload, ngx_fd_t fd));
static ngx_int_t ngx_http_sandbox_e2b_fs_frame(ngx_http_sandbox_call_t *call,
    const sbx_frame_t *frame, const u_char *payload, ngx_fd_t fd);
static ngx_int_t ngx_http_sandbox_e2b_fs_one_frame(
    ngx_http_sandbox_call_t *call, const sbx_frame_t *frame,
    const u_char *payload, ngx_fd_t fd);
static ngx_int_t ngx_http_sandbox_e2b_fs_list_frame(
    ngx_http_sandbox_call_t *call, const sbx_frame_t *frame,
    const u_char *payload, ngx_fd_t fd);
static ngx_int_t ngx_http_sandbox_e2b_fs_remove_frame(
    ngx_http_sandbox_call_t *call, const sbx_frame_t *frame,
    const u_char *payload, ngx_fd_t fd);
static ngx_int_t ngx_http_sandbox_e2b_fs_too_many(
    ngx_http_sandbox_call_t *call);


#define BODY(field)  offsetof(ngx_http_sandbox_e2b_fs_body_t, field)

#define STRING(key, field)                                                    \
    { .name = key, .type = SBX_JSON_STRING, .nullable = 1,                    \
      .offset = BODY(field) }
#define BOOL(key, field)                                                      \
    { .name = key, .type = SBX_JSON_BOOL, .nullable = 1,                      \
      .offset = BODY(field) }

/* No two requests mean different things by one name. */

const sbx_json_field_t  ngx_http_sandbox_e2b_fs_fields[] = {
    STRING("path", path),
    STRING("source", path),
    STRING("destination", to),
    STRING("watcherId", watcher),
    STRING("watcher_id", watcher),
    BOOL("recursive", recursive),
    BOOL("includeEntry", entries),
    BOOL("include_entry", entries),
    { .name = "depth", .type = SBX_JSON_COUNT, .nullable = 1,
      .max = NGX_MAX_UINT32_VALUE, .offset = BODY(depth) },
    { .name = NULL, .type = SBX_JSON_ANY, .lax = 1 }
};


int
ngx_http_sandbox_e2b_fs_request(ngx_http_request_t *r,
    ngx_http_sandbox_e2b_fs_body_t *body, sbx_f_file_t *file,
    ngx_str_t *path, sbx_error_t *e)
{
    ngx_http_sandbox_ctx_t  *ctx;
    ngx_http_sandbox_e2b_t  *e2b;

    ctx = ngx_http_sandbox_ctx(r);
    e2b = ngx_http_sandbox_e2b(ctx);

    ngx_memzero(body, sizeof(ngx_http_sandbox_e2b_fs_body_t));

    if ((e2b->stream ? ngx_http_sandbox_e2b_bind_stream(r,
                           ngx_http_sandbox_e2b_fs_fields, body, e)
                     : ngx_http_sandbox_e2b_bind(r,
                           ngx_http_sandbox_e2b_fs_fields, body, e))
        != 0
        || ngx_http_sandbox_e2b_user(r, &file->user, e) != 0
        || ngx_http_sandbox_e2b_file_path(r, file->user, body->path.data,
                                          body->path.len, path, e)
           != 0)
    {
        return -1;
    }

    file->flags = SBX_FILE_F_MORE;
    file->path_len = (uint32_t) path->len;

    /* for the audit log */

    ctx->path = *path;
    ctx->has_path = (body->path.len != 0);

    return 0;
}


ngx_int_t
ngx_http_sandbox_e2b_fs_failed(ngx_http_sandbox_call_t *call,
    const ngx_str_t *path, const u_char *payload)
{
    u_char               buf[NGX_HTTP_SANDBOX_E2B_SAID];
    ngx_int_t            rc;
    ngx_str_t            text;
    sbx_f_error_t        error;
    ngx_http_request_t  *r;

    r = call->request;
    ngx_memcpy(&error, payload, sizeof(sbx_f_error_t));

    if (error.code == SBX_E_FILE) {
        rc = ngx_http_sandbox_e2b_error(r, "not_found",
                                        "path '%V' does not exist", path);

    } else if (error.err == ELOOP) {
        rc = ngx_http_sandbox_e2b_error(r, "failed_precondition",
                                        "path '%V' goes through too many "
                                        "links, or links in a circle", path);

    } else {
        text.data = (u_char *) error.text;
        text.len = ngx_strnlen(text.data, sizeof(error.text));
        ngx_http_sandbox_e2b_said(path, &text, buf);

        if (text.data == buf) {
            text.len = ngx_min(text.len, sizeof(error.text) - 1);
            ngx_memcpy(error.text, buf, text.len);
            error.text[text.len] = '\0';
        }

        rc = ngx_http_sandbox_problem_wire(r, &error);
    }

    return ngx_http_sandbox_op_finish(call, rc);
}


/* NGX_OK; or *rc is what the handler returns. */

static ngx_int_t
ngx_http_sandbox_e2b_fs_begin(ngx_http_request_t *r, sbx_file_verb_t verb,
    ngx_http_sandbox_e2b_fs_t **fs, ngx_int_t *rc)
{
    sbx_error_t                 e;
    ngx_http_sandbox_e2b_fs_t  *own;

    own = ngx_pcalloc(r->pool, sizeof(ngx_http_sandbox_e2b_fs_t));

    if (own == NULL) {
        *rc = ngx_http_sandbox_problem(r, NGX_HTTP_SANDBOX_INTERNAL, NULL);
        return NGX_ERROR;
    }

    own->file.verb = verb;
    ngx_http_sandbox_json_init(&own->json, r->pool);

    if (ngx_http_sandbox_e2b_fs_request(r, &own->body, &own->file,
                                        &own->path, &e)
        != 0)
    {
        *rc = ngx_http_sandbox_problem_core(r, &e);
        return NGX_ERROR;
    }

    *fs = own;

    return NGX_OK;
}


static ngx_int_t
ngx_http_sandbox_e2b_fs_call(ngx_http_request_t *r,
    ngx_http_sandbox_e2b_fs_t *fs, const ngx_str_t *path2,
    ngx_int_t (*frame)(ngx_http_sandbox_call_t *call,
    const sbx_frame_t *frame, const u_char *payload, ngx_fd_t fd))
{
    ngx_http_sandbox_call_t  *call;

    call = ngx_http_sandbox_e2b_file_call(r, &fs->file, &fs->path, path2, fs);

    if (call != NULL) {
        call->frame = frame;
    }

    return ngx_http_sandbox_op_start(r, call);
}


/* What the frames of these calls have in common, as op_frame(). */

static ngx_int_t
ngx_http_sandbox_e2b_fs_frame(ngx_http_sandbox_call_t *call,
    const sbx_frame_t *frame, const u_char *payload, ngx_fd_t fd)
{
    ngx_http_sandbox_e2b_fs_t  *fs;

    fs = call->data;

    if (frame->type == SBX_F_ERROR) {
        return ngx_http_sandbox_e2b_fs_failed(call, &fs->path, payload);
    }

    return ngx_http_sandbox_op_frame(call, frame, payload, fd);
}


/* ---- one entry ---------------------------------------------------------- */


ngx_int_t
ngx_http_sandbox_e2b_fs_stat(ngx_http_request_t *r)
{
    ngx_int_t                   rc;
    ngx_http_sandbox_e2b_fs_t  *fs;

    if (ngx_http_sandbox_e2b_fs_begin(r, SBX_FILE_STAT, &fs, &rc) != NGX_OK) {
        return rc;
    }

    return ngx_http_sandbox_e2b_fs_call(r, fs, NULL,
                                        ngx_http_sandbox_e2b_fs_one_frame);
}


ngx_int_t
ngx_http_sandbox_e2b_fs_mkdir(ngx_http_request_t *r)
{
    ngx_int_t                   rc;
    ngx_http_sandbox_e2b_fs_t  *fs;

    if (ngx_http_sandbox_e2b_fs_begin(r, SBX_FILE_MKDIR, &fs, &rc)
        != NGX_OK)
    {
        return rc;
    }

    return ngx_http_sandbox_e2b_fs_call(r, fs, NULL,
                                        ngx_http_sandbox_e2b_fs_one_frame);
}


ngx_int_t
ngx_http_sandbox_e2b_fs_move(ngx_http_request_t *r)
{
    ngx_int_t                   rc;
    ngx_str_t                   to;
    sbx_error_t                 e;
    ngx_http_sandbox_e2b_fs_t  *fs;

    if (ngx_http_sandbox_e2b_fs_begin(r, SBX_FILE_MOVE, &fs, &rc) != NGX_OK) {
        return rc;
    }

    if (ngx_http_sandbox_e2b_file_path(r, fs->file.user, fs->body.to.data,
                                       fs->body.to.len, &to, &e)
        != 0)
    {
        return ngx_http_sandbox_problem_core(r, &e);
    }

    fs->file.path2_len = (uint32_t) to.len;

    return ngx_http_sandbox_e2b_fs_call(r, fs, &to,
                                        ngx_http_sandbox_e2b_fs_one_frame);
}


static ngx_int_t
ngx_http_sandbox_e2b_fs_one_frame(ngx_http_sandbox_call_t *call,
    const sbx_frame_t *frame, const u_char *payload, ngx_fd_t fd)
{
    ngx_int_t                   rc;
    sbx_f_end_t                 end;
    ngx_http_sandbox_json_t    *j;
    ngx_http_sandbox_e2b_fs_t  *fs;

    rc = ngx_http_sandbox_e2b_fs_frame(call, frame, payload, fd);

    if (rc != NGX_DECLINED) {
        return rc;
    }

    fs = call->data;
    j = &fs->json;

    if (frame->type == SBX_F_ENTRY && fs->count++ == 0) {

        /* a client that is not of this protocol's makers reads "result" */

        ngx_http_sandbox_json_raw(j, "{\"entry\":");
        rc = ngx_http_sandbox_e2b_entry(j, payload, frame->length);

        if (rc == NGX_OK && fs->file.verb == SBX_FILE_STAT) {
            ngx_http_sandbox_json_raw(j, ",\"result\":");
            rc = ngx_http_sandbox_e2b_entry(j, payload, frame->length);
        }

        ngx_http_sandbox_json_raw(j, "}");

        return (rc == NGX_OK) ? NGX_OK
               : ngx_http_sandbox_op_broken(call, "an entry that cannot be");
    }

    if (frame->type != SBX_F_END || fs->count != 1) {
        return ngx_http_sandbox_op_broken(call, "a wrong frame for an entry");
    }

    ngx_memcpy(&end, payload, sizeof(sbx_f_end_t));

    if (fs->file.verb == SBX_FILE_MKDIR && !end.created) {
        return ngx_http_sandbox_op_finish(call,
                   ngx_http_sandbox_e2b_error(call->request, "already_exists",
                                              "directory already exists: %V",
                                              &fs->path));
    }

    return ngx_http_sandbox_op_finish(call,
                              ngx_http_sandbox_e2b_reply(call->request, j));
}


/* ---- lists -------------------------------------------------------------- */


ngx_int_t
ngx_http_sandbox_e2b_fs_list(ngx_http_request_t *r)
{
    ngx_int_t                   rc;
    ngx_http_sandbox_e2b_fs_t  *fs;

    if (ngx_http_sandbox_e2b_fs_begin(r, SBX_FILE_LIST, &fs, &rc) != NGX_OK) {
        return rc;
    }

    fs->file.limit = NGX_HTTP_SANDBOX_E2B_ENTRIES;
    fs->file.limit2 = ngx_min(ngx_max(fs->body.depth, 1),
                              NGX_HTTP_SANDBOX_E2B_DEPTH_MAX);

    ngx_http_sandbox_json_raw(&fs->json, "{\"entries\":[");

    return ngx_http_sandbox_e2b_fs_call(r, fs, NULL,
                                        ngx_http_sandbox_e2b_fs_list_frame);
}


static ngx_int_t
ngx_http_sandbox_e2b_fs_list_frame(ngx_http_sandbox_call_t *call,
    const sbx_frame_t *frame, const u_char *payload, ngx_fd_t fd)
{
    ngx_int_t                   rc;
    sbx_f_end_t                 end;
    ngx_http_sandbox_json_t    *j;
    ngx_http_sandbox_e2b_fs_t  *fs;

    rc = ngx_http_sandbox_e2b_fs_frame(call, frame, payload, fd);

    if (rc != NGX_DECLINED) {
        return rc;
    }

    fs = call->data;
    j = &fs->json;

    if (frame->type == SBX_F_END) {
        ngx_memcpy(&end, payload, sizeof(sbx_f_end_t));

        if (end.next != 0 || end.truncated) {
            return ngx_http_sandbox_e2b_fs_too_many(call);
        }

        ngx_http_sandbox_json_raw(j, "]}");

        return ngx_http_sandbox_op_finish(call,
                              ngx_http_sandbox_e2b_reply(call->request, j));
    }

    if (frame->type != SBX_F_ENTRY) {
        return ngx_http_sandbox_op_broken(call, "a wrong frame for a list");
    }

    if (fs->count == fs->file.limit
        || j->size > NGX_HTTP_SANDBOX_OP_LIST_MAX)
    {
        return ngx_http_sandbox_e2b_fs_too_many(call);
    }

    if (ngx_http_sandbox_op_full(call->request, j->size,
                                 NGX_HTTP_SANDBOX_OP_LIST_MAX))
    {
        return ngx_http_sandbox_op_crowded(call);
    }

    ngx_http_sandbox_json_raw(j, fs->count++ ? "," : "");

    if (ngx_http_sandbox_e2b_entry(j, payload, frame->length) != NGX_OK) {
        return ngx_http_sandbox_op_broken(call, "an entry that cannot be");
    }

    return NGX_OK;
}


/* This protocol has no pages, and half a list does not look like one. */

static ngx_int_t
ngx_http_sandbox_e2b_fs_too_many(ngx_http_sandbox_call_t *call)
{
    return ngx_http_sandbox_op_finish(call,
               ngx_http_sandbox_e2b_error(call->request,
                                          "resource_exhausted",
                                          "the list has more than the %d "
                                          "entries or %d bytes that one may "
                                          "have: ask for a smaller depth or "
                                          "another directory",
                                          NGX_HTTP_SANDBOX_E2B_ENTRIES,
                                          NGX_HTTP_SANDBOX_OP_LIST_MAX));
}


/* ---- removal ------------------------------------------------------------ */


ngx_int_t
ngx_http_sandbox_e2b_fs_remove(ngx_http_request_t *r)
{
    ngx_int_t                   rc;
    ngx_http_sandbox_e2b_fs_t  *fs;

    if (ngx_http_sandbox_e2b_fs_begin(r, SBX_FILE_DELETE, &fs, &rc)
        != NGX_OK)
    {
        return rc;
    }

    fs->file.flags = SBX_FILE_F_RECURSIVE;

    return ngx_http_sandbox_e2b_fs_call(r, fs, NULL,
                                        ngx_http_sandbox_e2b_fs_remove_frame);
}


static ngx_int_t
ngx_http_sandbox_e2b_fs_remove_frame(ngx_http_sandbox_call_t *call,
    const sbx_frame_t *frame, const u_char *payload, ngx_fd_t fd)
{
    ngx_int_t      rc;
    sbx_f_error_t  error;

    if (frame->type == SBX_F_ERROR) {
        ngx_memcpy(&error, payload, sizeof(sbx_f_error_t));

        if (error.code == SBX_E_FILE) {

            /* what is not there need not be removed */

            return ngx_http_sandbox_op_finish(call,
                                 ngx_http_sandbox_e2b_empty(call->request));
        }
    }

    rc = ngx_http_sandbox_e2b_fs_frame(call, frame, payload, fd);

    if (rc != NGX_DECLINED) {
        return rc;
    }

    if (frame->type != SBX_F_END) {
        return ngx_http_sandbox_op_broken(call, "another frame than its end");
    }

    return ngx_http_sandbox_op_finish(call,
                                 ngx_http_sandbox_e2b_empty(call->request));
}
