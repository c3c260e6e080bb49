/*
 * Looking at files, making directories, moving and searching.
 */

#include "ngx_http_sandbox_v1_files.h"


#define NGX_HTTP_SANDBOX_V1_DEPTH_MAX     200
#define NGX_HTTP_SANDBOX_V1_MATCHES       1000
#define NGX_HTTP_SANDBOX_V1_MATCHES_MAX   10000


/* A call that is answered by one entry. */

typedef struct {
    ngx_http_sandbox_json_t   json;
    unsigned                  there:1;
    unsigned                  mkdir:1;
} ngx_http_sandbox_v1_one_t;


typedef struct {
    sbx_json_str_t            path;
    sbx_json_str_t            path_base64;
    sbx_json_str_t            from;
    sbx_json_str_t            from_base64;
    sbx_json_str_t            to;
    sbx_json_str_t            to_base64;
    uint32_t                  overwrite;
} ngx_http_sandbox_v1_paths_t;


typedef struct {
    sbx_json_str_t            pattern;
    sbx_json_str_t            path;
    sbx_json_str_t            path_base64;
    sbx_json_str_t            glob;
    uint32_t                  regex;
    uint64_t                  limit;

    ngx_http_sandbox_json_t   json;
    uint64_t                  count;
} ngx_http_sandbox_v1_search_t;


static ngx_int_t ngx_http_sandbox_v1_one_call(ngx_http_request_t *r,
    const sbx_f_file_t *file, const ngx_str_t *path, const ngx_str_t *path2);
static ngx_int_t ngx_http_sandbox_v1_one_frame(ngx_http_sandbox_call_t *call,
    const sbx_frame_t *frame, const u_char *payload, ngx_fd_t fd);
static int ngx_http_sandbox_v1_search_check(ngx_http_request_t *r,
    ngx_http_sandbox_v1_search_t *search, sbx_f_file_t *file,
    ngx_str_t *path, ngx_str_t *path2, sbx_error_t *e);
static ngx_int_t ngx_http_sandbox_v1_search_frame(
    ngx_http_sandbox_call_t *call, const sbx_frame_t *frame,
    const u_char *payload, ngx_fd_t fd);
static ngx_int_t ngx_http_sandbox_v1_search_send(
    ngx_http_sandbox_call_t *call, ngx_uint_t truncated);


#define PATHS(field)   offsetof(ngx_http_sandbox_v1_paths_t, field)
#define SEARCH(field)  offsetof(ngx_http_sandbox_v1_search_t, field)

static const sbx_json_field_t  ngx_http_sandbox_v1_mkdir_fields[] = {
    { .name = "path", .type = SBX_JSON_STRING, .offset = PATHS(path) },
    { .name = "path_base64", .type = SBX_JSON_STRING,
      .offset = PATHS(path_base64) },
    { .name = NULL }
};


static const sbx_json_field_t  ngx_http_sandbox_v1_move_fields[] = {
    { .name = "from", .type = SBX_JSON_STRING, .offset = PATHS(from) },
    { .name = "from_base64", .type = SBX_JSON_STRING,
      .offset = PATHS(from_base64) },
    { .name = "to", .type = SBX_JSON_STRING, .offset = PATHS(to) },
    { .name = "to_base64", .type = SBX_JSON_STRING,
      .offset = PATHS(to_base64) },
    { .name = "overwrite", .type = SBX_JSON_BOOL,
      .offset = PATHS(overwrite) },
    { .name = NULL }
};


static const sbx_json_field_t  ngx_http_sandbox_v1_search_fields[] = {
    { .name = "pattern", .type = SBX_JSON_STRING, .required = 1, .min = 1,
      .offset = SEARCH(pattern) },
    { .name = "path", .type = SBX_JSON_STRING, .offset = SEARCH(path) },
    { .name = "path_base64", .type = SBX_JSON_STRING,
      .offset = SEARCH(path_base64) },
    { .name = "glob", .type = SBX_JSON_STRING, .nullable = 1,
      .offset = SEARCH(glob) },
    { .name = "regex", .type = SBX_JSON_BOOL, .offset = SEARCH(regex) },
    { .name = "limit", .type = SBX_JSON_COUNT, .min = 1,
      .max = NGX_HTTP_SANDBOX_V1_MATCHES_MAX, .offset = SEARCH(limit) },
    { .name = NULL }
};


int
ngx_http_sandbox_v1_file_body_path(ngx_http_request_t *r, const char *name,
    const sbx_json_str_t *text, const sbx_json_str_t *base64,
    ngx_str_t *path, sbx_error_t *e)
{
    ngx_str_t  value;

    if ((text->data != NULL) == (base64->data != NULL)) {
        return sbx_error(e, 0, SBX_E_INVALID,
                         "/%s: must be given, as it is or as %s_base64", name,
                         name);
    }

    if (text->data != NULL) {
        path->data = (u_char *) text->data;
        path->len = text->len;

    } else {
        value.data = (u_char *) base64->data;
        value.len = base64->len;
        path->data = ngx_pnalloc(r->pool,
                                 ngx_base64_decoded_length(value.len) + 1);

        if (path->data == NULL) {
            return sbx_error(e, 0, SBX_E_INTERNAL, "out of memory");
        }

        path->len = 0;

        if (value.len != 0 && ngx_decode_base64(path, &value) != NGX_OK) {
            return sbx_error(e, 0, SBX_E_INVALID,
                             "/%s_base64: is not base64", name);
        }
    }

    if (path->len >= SBX_PATH_MAX
        || (path->len != 0
            && memchr(path->data, '\0', path->len) != NULL))
    {
        return sbx_error(e, 0, SBX_E_PATH,
                         "/%s: has a NUL or is longer than %d bytes", name,
                         SBX_PATH_MAX - 1);
    }

    return 0;
}


static ngx_int_t
ngx_http_sandbox_v1_one_call(ngx_http_request_t *r, const sbx_f_file_t *file,
    const ngx_str_t *path, const ngx_str_t *path2)
{
    ngx_http_sandbox_call_t    *call;
    ngx_http_sandbox_v1_one_t  *one;

    one = ngx_pcalloc(r->pool, sizeof(ngx_http_sandbox_v1_one_t));

    if (one == NULL) {
        return ngx_http_sandbox_problem(r, NGX_HTTP_SANDBOX_INTERNAL, NULL);
    }

    one->mkdir = (file->verb == SBX_FILE_MKDIR);
    ngx_http_sandbox_json_init(&one->json, r->pool);

    call = ngx_http_sandbox_op_file_call(r, file, path, path2, one);

    if (call != NULL) {
        call->frame = ngx_http_sandbox_v1_one_frame;
    }

    return ngx_http_sandbox_op_start(r, call);
}


static ngx_int_t
ngx_http_sandbox_v1_one_frame(ngx_http_sandbox_call_t *call,
    const sbx_frame_t *frame, const u_char *payload, ngx_fd_t fd)
{
    ngx_int_t                   rc;
    sbx_f_end_t                 end;
    ngx_http_sandbox_v1_one_t  *one;

    rc = ngx_http_sandbox_op_frame(call, frame, payload, fd);

    if (rc != NGX_DECLINED) {
        return rc;
    }

    one = call->data;

    if (frame->type == SBX_F_ENTRY && !one->there) {
        one->there = 1;

        if (ngx_http_sandbox_v1_file_entry(&one->json, payload,
                                           frame->length)
            != NGX_OK)
        {
            return ngx_http_sandbox_op_broken(call,
                                              "an entry that cannot be");
        }

        return NGX_OK;
    }

    if (frame->type != SBX_F_END || !one->there) {
        return ngx_http_sandbox_op_broken(call, "a wrong frame for an entry");
    }

    ngx_memcpy(&end, payload, sizeof(sbx_f_end_t));

    return ngx_http_sandbox_op_finish(call,
               ngx_http_sandbox_json_send(call->request,
                                          one->mkdir && end.created
                                          ? NGX_HTTP_CREATED : NGX_HTTP_OK,
                                          &one->json));
}


ngx_int_t
ngx_http_sandbox_v1_file_stat(ngx_http_request_t *r)
{
    sbx_error_t              e;
    sbx_f_file_t             file;
    ngx_http_sandbox_ctx_t  *ctx;

    ngx_memzero(&file, sizeof(sbx_f_file_t));
    file.verb = SBX_FILE_STAT;
    file.user = SBX_USER_USER;

    if (ngx_http_sandbox_v1_file_path(r, &file, &e) != 0) {
        return ngx_http_sandbox_problem_core(r, &e);
    }

    ctx = ngx_http_sandbox_ctx(r);

    return ngx_http_sandbox_v1_one_call(r, &file, &ctx->path, NULL);
}


/* Without a path it is the workspace's. */

ngx_int_t
ngx_http_sandbox_v1_file_directory(ngx_http_request_t *r)
{
    sbx_error_t              e;
    sbx_f_file_t             file;
    ngx_http_sandbox_ctx_t  *ctx;

    ctx = ngx_http_sandbox_ctx(r);

    ngx_memzero(&file, sizeof(sbx_f_file_t));
    file.verb = SBX_FILE_LIST;
    file.user = SBX_USER_USER;
    file.limit2 = 1;
    file.path_len = (uint32_t) ctx->path.len;

    if (ngx_http_sandbox_op_number(r, "depth", 1,
                                   NGX_HTTP_SANDBOX_V1_DEPTH_MAX,
                                   &file.limit2, &e)
        != 0
        || ngx_http_sandbox_v1_file_page(r, &file, &e) != 0)
    {
        return ngx_http_sandbox_problem_core(r, &e);
    }

    return ngx_http_sandbox_v1_file_list(r, &file, &ctx->path, NULL);
}


ngx_int_t
ngx_http_sandbox_v1_file_mkdir(ngx_http_request_t *r)
{
    ngx_str_t                    path;
    sbx_error_t                  e;
    sbx_f_file_t                 file;
    ngx_http_sandbox_v1_paths_t  body;

    ngx_memzero(&body, sizeof(body));
    ngx_memzero(&file, sizeof(sbx_f_file_t));
    file.verb = SBX_FILE_MKDIR;
    file.user = SBX_USER_USER;

    if (ngx_http_sandbox_op_bind(r, ngx_http_sandbox_v1_mkdir_fields, &body,
                                 &e)
        != 0
        || ngx_http_sandbox_v1_file_body_path(r, "path", &body.path,
                                              &body.path_base64, &path, &e)
           != 0)
    {
        return ngx_http_sandbox_problem_core(r, &e);
    }

    file.path_len = (uint32_t) path.len;

    return ngx_http_sandbox_v1_one_call(r, &file, &path, NULL);
}


ngx_int_t
ngx_http_sandbox_v1_file_move(ngx_http_request_t *r)
{
    ngx_str_t                    from, to;
    sbx_error_t                  e;
    sbx_f_file_t                 file;
    ngx_http_sandbox_v1_paths_t  body;

    ngx_memzero(&body, sizeof(body));
    ngx_memzero(&file, sizeof(sbx_f_file_t));
    file.verb = SBX_FILE_MOVE;
    file.user = SBX_USER_USER;

    if (ngx_http_sandbox_op_bind(r, ngx_http_sandbox_v1_move_fields, &body,
                                 &e)
        != 0
        || ngx_http_sandbox_v1_file_body_path(r, "from", &body.from,
                                              &body.from_base64, &from, &e)
           != 0
        || ngx_http_sandbox_v1_file_body_path(r, "to", &body.to,
                                              &body.to_base64, &to, &e)
           != 0)
    {
        return ngx_http_sandbox_problem_core(r, &e);
    }

    file.path_len = (uint32_t) from.len;
    file.path2_len = (uint32_t) to.len;
    file.flags = body.overwrite ? 0 : SBX_FILE_F_NO_REPLACE;

    return ngx_http_sandbox_v1_one_call(r, &file, &from, &to);
}


ngx_int_t
ngx_http_sandbox_v1_file_search(ngx_http_request_t *r)
{
    ngx_str_t                      path, path2;
    sbx_error_t                    e;
    sbx_f_file_t                   file;
    ngx_http_sandbox_call_t       *call;
    ngx_http_sandbox_v1_search_t  *search;

    search = ngx_pcalloc(r->pool, sizeof(ngx_http_sandbox_v1_search_t));

    if (search == NULL) {
        return ngx_http_sandbox_problem(r, NGX_HTTP_SANDBOX_INTERNAL, NULL);
    }

    search->regex = 1;
    search->limit = NGX_HTTP_SANDBOX_V1_MATCHES;
    ngx_memzero(&file, sizeof(sbx_f_file_t));

    if (ngx_http_sandbox_op_bind(r, ngx_http_sandbox_v1_search_fields, search,
                                 &e)
        != 0
        || ngx_http_sandbox_v1_search_check(r, search, &file, &path, &path2,
                                            &e)
           != 0)
    {
        return ngx_http_sandbox_problem_core(r, &e);
    }

    ngx_http_sandbox_json_init(&search->json, r->pool);
    ngx_http_sandbox_json_raw(&search->json, "{\"matches\":[");

    call = ngx_http_sandbox_op_file_call(r, &file, &path, &path2, search);

    if (call != NULL) {
        call->frame = ngx_http_sandbox_v1_search_frame;
    }

    return ngx_http_sandbox_op_start(r, call);
}


static int
ngx_http_sandbox_v1_search_check(ngx_http_request_t *r,
    ngx_http_sandbox_v1_search_t *search, sbx_f_file_t *file,
    ngx_str_t *path, ngx_str_t *path2, sbx_error_t *e)
{
    u_char  *p;

    ngx_str_set(path, ".");

    if ((search->path.data != NULL || search->path_base64.data != NULL)
        && ngx_http_sandbox_v1_file_body_path(r, "path", &search->path,
                                              &search->path_base64, path, e)
           != 0)
    {
        return -1;
    }

    if (search->glob.data != NULL && search->glob.len == 0) {
        return sbx_error(e, 0, SBX_E_INVALID, "/glob: is empty");
    }

    path2->len = search->glob.len + search->pattern.len;

    if (path2->len >= SBX_PATH_MAX) {
        return sbx_error(e, 0, SBX_E_INVALID,
                         "/pattern: it and the glob have more than %d bytes",
                         SBX_PATH_MAX - 1);
    }

    path2->data = ngx_pnalloc(r->pool, path2->len + 1);

    if (path2->data == NULL) {
        return sbx_error(e, 0, SBX_E_INTERNAL, "out of memory");
    }

    p = path2->data;

    if (search->glob.data != NULL) {
        p = ngx_cpymem(p, search->glob.data, search->glob.len);
    }

    ngx_memcpy(p, search->pattern.data, search->pattern.len);

    p = memchr(path2->data, '\0', path2->len);

    if (p != NULL) {
        return sbx_error(e, 0, SBX_E_INVALID, "/%s: has a NUL",
                         p < path2->data + search->glob.len ? "glob"
                                                            : "pattern");
    }

    file->verb = SBX_FILE_SEARCH;
    file->user = SBX_USER_USER;
    file->flags = search->regex ? 0 : SBX_FILE_F_FIXED;
    file->size = search->glob.len;
    file->limit = search->limit;
    file->path_len = (uint32_t) path->len;
    file->path2_len = (uint32_t) path2->len;

    return 0;
}


static ngx_int_t
ngx_http_sandbox_v1_search_frame(ngx_http_sandbox_call_t *call,
    const sbx_frame_t *frame, const u_char *payload, ngx_fd_t fd)
{
    ngx_int_t                      rc;
    const char                    *path, *text;
    sbx_f_end_t                    end;
    sbx_f_match_t                  match;
    ngx_http_sandbox_json_t       *j;
    ngx_http_sandbox_v1_search_t  *search;

    rc = ngx_http_sandbox_op_frame(call, frame, payload, fd);

    if (rc != NGX_DECLINED) {
        return rc;
    }

    search = call->data;
    j = &search->json;

    if (frame->type == SBX_F_END) {
        ngx_memcpy(&end, payload, sizeof(sbx_f_end_t));
        return ngx_http_sandbox_v1_search_send(call, end.truncated != 0);
    }

    if (frame->type != SBX_F_MATCH || search->count == search->limit
        || sbx_wire_check_match(payload, frame->length, &match, &path, &text)
           != 0)
    {
        return ngx_http_sandbox_op_broken(call, "a wrong frame for search");
    }

    if (ngx_http_sandbox_op_full(call->request, j->size,
                                 NGX_HTTP_SANDBOX_V1_LIST_MAX))
    {
        return ngx_http_sandbox_v1_search_send(call, 1);
    }

    ngx_http_sandbox_json_raw(j, search->count++ ? ",{" : "{");
    ngx_http_sandbox_v1_file_json(j, path, match.path_len);
    ngx_http_sandbox_json_raw(j, ",\"line\":");
    ngx_http_sandbox_json_int(j, (int64_t) match.line);
    ngx_http_sandbox_json_raw(j, ",\"text\":");
    ngx_http_sandbox_json_string(j, text, match.text_len);
    ngx_http_sandbox_json_raw(j, "}");

    return NGX_OK;
}


static ngx_int_t
ngx_http_sandbox_v1_search_send(ngx_http_sandbox_call_t *call,
    ngx_uint_t truncated)
{
    ngx_http_sandbox_v1_search_t  *search;

    search = call->data;

    ngx_http_sandbox_json_raw(&search->json, "],\"truncated\":");
    ngx_http_sandbox_json_bool(&search->json, truncated);
    ngx_http_sandbox_json_raw(&search->json, "}");

    return ngx_http_sandbox_op_finish(call,
               ngx_http_sandbox_json_send(call->request, NGX_HTTP_OK,
                                          &search->json));
}
