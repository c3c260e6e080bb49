#include "ngx_http_sandbox_v1_files.h"


#define NGX_HTTP_SANDBOX_V1_ENTRIES       1000
#define NGX_HTTP_SANDBOX_V1_ENTRIES_MAX   10000


typedef struct {
    ngx_http_sandbox_json_t    json;
    sbx_f_file_t               file;
    uint64_t                   count;
} ngx_http_sandbox_v1_glob_t;


static ngx_int_t ngx_http_sandbox_v1_glob(ngx_http_request_t *r);
static int ngx_http_sandbox_v1_glob_query(ngx_http_request_t *r,
    sbx_f_file_t *file, ngx_str_t *pattern, sbx_error_t *e);
static ngx_int_t ngx_http_sandbox_v1_glob_frame(
    ngx_http_sandbox_call_t *call, const sbx_frame_t *frame,
    const u_char *payload, ngx_fd_t fd);


/* By sbx_file_type_t. */

static const char *const  ngx_http_sandbox_v1_file_types[] = {
    "file", "directory", "link", "fifo", "socket", "device"
};


int
ngx_http_sandbox_v1_file_path(ngx_http_request_t *r, sbx_f_file_t *file,
    sbx_error_t *e)
{
    ngx_http_sandbox_ctx_t  *ctx;

    ctx = ngx_http_sandbox_ctx(r);

    if (!ctx->has_path) {
        return sbx_error(e, 0, SBX_E_PATH,
                         "no path is given, neither in the address nor by "
                         "?path=");
    }

    if (ctx->path.len >= SBX_PATH_MAX) {
        return sbx_error(e, 0, SBX_E_PATH,
                         "the path is longer than %d bytes",
                         SBX_PATH_MAX - 1);
    }

    if (ctx->path.len != 0
        && memchr(ctx->path.data, '\0', ctx->path.len) != NULL)
    {
        return sbx_error(e, 0, SBX_E_PATH, "the path has a NUL");
    }

    file->path_len = (uint32_t) ctx->path.len;

    return 0;
}


void
ngx_http_sandbox_v1_file_json(ngx_http_sandbox_json_t *j, const void *path,
    size_t len)
{
    size_t         i, n;
    const u_char  *p;

    ngx_http_sandbox_json_raw(j, "\"path\":");
    ngx_http_sandbox_json_string(j, path, len);

    p = path;

    for (i = 0; i < len; i += n) {
        n = sbx_utf8_sequence(p + i, len - i);

        if (n == 0) {
            ngx_http_sandbox_json_raw(j, ",\"path_base64\":");
            ngx_http_sandbox_json_base64(j, path, len);
            return;
        }
    }
}


ngx_int_t
ngx_http_sandbox_v1_remove(ngx_http_request_t *r)
{
    ngx_uint_t                recursive;
    sbx_error_t               e;
    sbx_f_file_t              file;
    ngx_http_sandbox_ctx_t   *ctx;
    ngx_http_sandbox_call_t  *call;

    ngx_memzero(&file, sizeof(sbx_f_file_t));
    file.verb = SBX_FILE_DELETE;
    file.user = SBX_USER_USER;

    recursive = 0;

    if (ngx_http_sandbox_op_flag(r, "recursive", &recursive, &e) != 0
        || ngx_http_sandbox_v1_file_path(r, &file, &e) != 0)
    {
        return ngx_http_sandbox_problem_core(r, &e);
    }

    if (recursive) {
        file.flags |= SBX_FILE_F_RECURSIVE;
    }

    ctx = ngx_http_sandbox_ctx(r);
    call = ngx_http_sandbox_op_file_call(r, &file, &ctx->path, NULL, NULL);

    if (call != NULL) {
        call->frame = ngx_http_sandbox_op_end_frame;
    }

    return ngx_http_sandbox_op_start(r, call);
}


/* Without a path it is the list that a glob selects. */

ngx_int_t
ngx_http_sandbox_v1_files(ngx_http_request_t *r)
{
    ngx_http_sandbox_ctx_t  *ctx;

    ctx = ngx_http_sandbox_ctx(r);

    return ctx->has_path ? ngx_http_sandbox_v1_download(r)
                         : ngx_http_sandbox_v1_glob(r);
}


static ngx_int_t
ngx_http_sandbox_v1_glob(ngx_http_request_t *r)
{
    ngx_str_t     pattern;
    sbx_error_t   e;
    sbx_f_file_t  file;

    ngx_memzero(&file, sizeof(sbx_f_file_t));
    file.verb = SBX_FILE_GLOB;
    file.user = SBX_USER_USER;

    if (ngx_http_sandbox_v1_glob_query(r, &file, &pattern, &e) != 0) {
        return ngx_http_sandbox_problem_core(r, &e);
    }

    return ngx_http_sandbox_v1_file_list(r, &file, NULL, &pattern);
}


ngx_int_t
ngx_http_sandbox_v1_file_list(ngx_http_request_t *r,
    const sbx_f_file_t *file, const ngx_str_t *path, const ngx_str_t *path2)
{
    ngx_http_sandbox_call_t     *call;
    ngx_http_sandbox_v1_glob_t  *glob;

    glob = ngx_pcalloc(r->pool, sizeof(ngx_http_sandbox_v1_glob_t));

    if (glob == NULL) {
        return ngx_http_sandbox_problem(r, NGX_HTTP_SANDBOX_INTERNAL, NULL);
    }

    glob->file = *file;

    ngx_http_sandbox_json_init(&glob->json, r->pool);
    ngx_http_sandbox_json_raw(&glob->json, "{\"entries\":[");

    call = ngx_http_sandbox_op_file_call(r, file, path, path2, glob);

    if (call != NULL) {
        call->frame = ngx_http_sandbox_v1_glob_frame;
    }

    return ngx_http_sandbox_op_start(r, call);
}


static int
ngx_http_sandbox_v1_glob_query(ngx_http_request_t *r, sbx_f_file_t *file,
    ngx_str_t *pattern, sbx_error_t *e)
{
    ngx_str_set(pattern, "*");

    if (ngx_http_sandbox_op_string(r, "glob", pattern, e) != 0) {
        return -1;
    }

    if (pattern->len == 0 || pattern->len >= SBX_PATH_MAX
        || memchr(pattern->data, '\0', pattern->len) != NULL)
    {
        return sbx_error(e, 0, SBX_E_INVALID,
                         "glob is empty, has a NUL or is longer than %d "
                         "bytes", SBX_PATH_MAX - 1);
    }

    file->path2_len = (uint32_t) pattern->len;

    return ngx_http_sandbox_v1_file_page(r, file, e);
}


int
ngx_http_sandbox_v1_file_page(ngx_http_request_t *r, sbx_f_file_t *file,
    sbx_error_t *e)
{
    ngx_int_t  skip;
    ngx_str_t  cursor;

    ngx_str_null(&cursor);
    file->limit = NGX_HTTP_SANDBOX_V1_ENTRIES;

    if (ngx_http_sandbox_op_string(r, "cursor", &cursor, e) != 0
        || ngx_http_sandbox_op_number(r, "limit", 1,
                                      NGX_HTTP_SANDBOX_V1_ENTRIES_MAX,
                                      &file->limit, e) != 0)
    {
        return -1;
    }

    if (cursor.data == NULL) {
        return 0;
    }

    skip = (cursor.len >= 2 && cursor.len <= 13 && cursor.data[0] == 'g')
           ? ngx_hextoi(cursor.data + 1, cursor.len - 1) : NGX_ERROR;

    if (skip <= 0) {
        return sbx_error(e, 0, SBX_E_INVALID,
                         "cursor is none that a list has given");
    }

    file->skip = (uint64_t) skip;

    return 0;
}


static ngx_int_t
ngx_http_sandbox_v1_glob_frame(ngx_http_sandbox_call_t *call,
    const sbx_frame_t *frame, const u_char *payload, ngx_fd_t fd)
{
    ngx_int_t                    rc;
    sbx_f_end_t                  end;
    ngx_http_sandbox_v1_glob_t  *glob;

    rc = ngx_http_sandbox_op_frame(call, frame, payload, fd);

    if (rc != NGX_DECLINED) {
        return rc;
    }

    glob = call->data;

    if (frame->type == SBX_F_END) {
        ngx_memcpy(&end, payload, sizeof(sbx_f_end_t));
        return ngx_http_sandbox_v1_list_end(call, &glob->json, 'g', end.next,
                                            end.truncated != 0);
    }

    if (frame->type != SBX_F_ENTRY || glob->count == glob->file.limit) {
        return ngx_http_sandbox_op_broken(call, "a wrong frame for glob");
    }

    if (ngx_http_sandbox_op_full(call->request, glob->json.size,
                                 NGX_HTTP_SANDBOX_V1_LIST_MAX))
    {
        return ngx_http_sandbox_v1_list_end(call, &glob->json, 'g',
                                            glob->file.skip + glob->count, 0);
    }

    ngx_http_sandbox_json_raw(&glob->json, glob->count++ ? "," : "");

    if (ngx_http_sandbox_v1_file_entry(&glob->json, payload, frame->length)
        != NGX_OK)
    {
        return ngx_http_sandbox_op_broken(call, "an entry that cannot be");
    }

    return NGX_OK;
}


ngx_int_t
ngx_http_sandbox_v1_file_entry(ngx_http_sandbox_json_t *j,
    const u_char *payload, size_t len)
{
    u_char          mode[NGX_INT_T_LEN + 1];
    const char     *path, *owner, *group, *target, *name;
    sbx_f_entry_t   entry;

    if (sbx_wire_check_entry(payload, len, &entry, &path, &owner, &group,
                             &target)
        != 0
        || entry.type >= sbx_nelts(ngx_http_sandbox_v1_file_types))
    {
        return NGX_ERROR;
    }

    for (name = path + entry.path_len; name > path; name--) {
        if (name[-1] == '/') {
            break;
        }
    }

    (void) snprintf((char *) mode, sizeof(mode), "%04o", entry.mode & 07777);

    ngx_http_sandbox_json_raw(j, "{");
    ngx_http_sandbox_v1_file_json(j, path, entry.path_len);
    ngx_http_sandbox_json_raw(j, ",\"name\":");
    ngx_http_sandbox_json_string(j, name, path + entry.path_len - name);
    ngx_http_sandbox_json_raw(j, ",\"type\":");
    ngx_http_sandbox_json_cstring(j,
                                  ngx_http_sandbox_v1_file_types[entry.type]);
    ngx_http_sandbox_json_raw(j, ",\"size\":");
    ngx_http_sandbox_json_int(j, (int64_t) entry.size);
    ngx_http_sandbox_json_raw(j, ",\"mode\":");
    ngx_http_sandbox_json_cstring(j, (char *) mode);
    ngx_http_sandbox_json_raw(j, ",\"owner\":");
    ngx_http_sandbox_json_string(j, owner, entry.owner_len);
    ngx_http_sandbox_json_raw(j, ",\"group\":");
    ngx_http_sandbox_json_string(j, group, entry.group_len);
    ngx_http_sandbox_json_raw(j, ",\"modified_at\":");
    ngx_http_sandbox_json_time(j, entry.mtime_ns / 1000000);
    ngx_http_sandbox_json_raw(j, ",\"target\":");

    if (entry.type == SBX_TYPE_LINK) {
        ngx_http_sandbox_json_string(j, target, entry.target_len);

    } else {
        ngx_http_sandbox_json_raw(j, "null");
    }

    ngx_http_sandbox_json_raw(j, "}");

    return NGX_OK;
}
