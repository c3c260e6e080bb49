/*
 * Downloads: what they may ask for.
 */

#include "ngx_http_sandbox_v1_files.h"


static int ngx_http_sandbox_v1_download_type(ngx_http_request_t *r,
    ngx_str_t *type, sbx_error_t *e);
static ngx_uint_t ngx_http_sandbox_v1_download_type_ok(const ngx_str_t *type);


ngx_int_t
ngx_http_sandbox_v1_download(ngx_http_request_t *r)
{
    sbx_error_t                      e;
    sbx_f_file_t                     file;
    ngx_http_sandbox_ctx_t          *ctx;
    ngx_http_sandbox_call_t         *call;
    ngx_http_sandbox_op_download_t  *download;

    download = ngx_pcalloc(r->pool, sizeof(ngx_http_sandbox_op_download_t));

    if (download == NULL) {
        return ngx_http_sandbox_problem(r, NGX_HTTP_SANDBOX_INTERNAL, NULL);
    }

    download->kind = "attachment";

    ngx_memzero(&file, sizeof(sbx_f_file_t));
    file.verb = SBX_FILE_OPEN;
    file.user = SBX_USER_USER;

    if (ngx_http_sandbox_v1_file_path(r, &file, &e) != 0
        || ngx_http_sandbox_v1_download_type(r, &download->type, &e) != 0)
    {
        return ngx_http_sandbox_problem_core(r, &e);
    }

    ctx = ngx_http_sandbox_ctx(r);
    call = ngx_http_sandbox_op_file_call(r, &file, &ctx->path, NULL,
                                         download);

    if (call != NULL) {
        call->frame = ngx_http_sandbox_op_download_frame;
    }

    return ngx_http_sandbox_op_start(r, call);
}


static int
ngx_http_sandbox_v1_download_type(ngx_http_request_t *r, ngx_str_t *type,
    sbx_error_t *e)
{
    ngx_str_set(type, "application/octet-stream");

    if (ngx_http_sandbox_op_string(r, "content_type", type, e) != 0) {
        return -1;
    }

    if (!ngx_http_sandbox_v1_download_type_ok(type)) {
        return sbx_error(e, 0, SBX_E_INVALID,
                         "content_type must be TYPE/SUBTYPE, with a charset "
                         "at most, and nothing that a browser runs");
    }

    return 0;
}


/* Characters of a token; the end of it. */

static const u_char *
ngx_http_sandbox_op_download_token(const u_char *p, const u_char *end)
{
    for ( /* void */ ; p < end; p++) {
        if ((*p >= 'a' && *p <= 'z') || (*p >= 'A' && *p <= 'Z')
            || (*p >= '0' && *p <= '9')
            || (*p != '\0' && ngx_strchr("!#$&^_.+-", *p) != NULL))
        {
            continue;
        }

        break;
    }

    return p;
}


static ngx_uint_t
ngx_http_sandbox_v1_download_type_ok(const ngx_str_t *type)
{
    ngx_str_t      media;
    const u_char  *p, *token, *end;

    static const u_char  charset[] = "charset=";

    if (type->len == 0 || type->len > 127) {
        return 0;
    }

    p = type->data;
    end = p + type->len;

    token = p;
    p = ngx_http_sandbox_op_download_token(p, end);

    if (p == token || p == end || *p++ != '/') {
        return 0;
    }

    token = p;
    p = ngx_http_sandbox_op_download_token(p, end);

    if (p == token) {
        return 0;
    }

    media.data = type->data;
    media.len = p - type->data;

    if (ngx_http_sandbox_op_file_active(&media)) {
        return 0;
    }

    if (p == end) {
        return 1;
    }

    if (*p++ != ';') {
        return 0;
    }

    while (p < end && *p == ' ') {
        p++;
    }

    if ((size_t) (end - p) < sizeof(charset)
        || ngx_strncasecmp((u_char *) p, (u_char *) charset,
                           sizeof(charset) - 1) != 0)
    {
        return 0;
    }

    p += sizeof(charset) - 1;

    return ngx_http_sandbox_op_download_token(p, end) == end;
}
