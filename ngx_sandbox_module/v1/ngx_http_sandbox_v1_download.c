/*
 * Downloads.  The session's init opens the file inside, as the session's
 * user, and passes the descriptor; the worker looks at what it got and sends
 * it as nginx sends static files.  The call stays open meanwhile: its end
 * says that the session is being destroyed, and then the client's connection
 * is cut, since an open file keeps the whole file system of a session.
 */

#include "ngx_http_sandbox_v1_files.h"

#include <ctype.h>


typedef struct {
    ngx_str_t     type;           /* asked for by ?content_type= */
    unsigned      sending:1;
} ngx_http_sandbox_v1_download_t;


static int ngx_http_sandbox_v1_download_type(ngx_http_request_t *r,
    ngx_str_t *type, sbx_error_t *e);
static ngx_uint_t ngx_http_sandbox_v1_download_type_ok(const ngx_str_t *type);
static ngx_int_t ngx_http_sandbox_v1_download_frame(
    ngx_http_sandbox_call_t *call, const sbx_frame_t *frame,
    const u_char *payload, ngx_fd_t fd);
static ngx_int_t ngx_http_sandbox_v1_download_send(
    ngx_http_sandbox_call_t *call, ngx_fd_t fd, const ngx_str_t *path);
static ngx_int_t ngx_http_sandbox_v1_download_headers(ngx_http_request_t *r,
    ngx_file_info_t *info, const ngx_str_t *type, const ngx_str_t *path);
static ngx_int_t ngx_http_sandbox_v1_download_body(ngx_http_request_t *r,
    ngx_fd_t fd, ngx_file_info_t *info, u_char *name);


/* What a browser would run, or take apart, as the API's own pages. */

static const char *const  ngx_http_sandbox_v1_active_types[] = {
    "html", "xml", "svg", "script", "xsl", "multipart", "message", "mhtml",
    "manifest", "wasm", "flash", NULL
};


ngx_int_t
ngx_http_sandbox_v1_download(ngx_http_request_t *r)
{
    sbx_error_t                      e;
    sbx_f_file_t                     file;
    ngx_http_sandbox_ctx_t          *ctx;
    ngx_http_sandbox_call_t         *call;
    ngx_http_sandbox_v1_download_t  *download;

    download = ngx_pcalloc(r->pool, sizeof(ngx_http_sandbox_v1_download_t));

    if (download == NULL) {
        return ngx_http_sandbox_problem(r, NGX_HTTP_SANDBOX_INTERNAL, NULL);
    }

    ngx_memzero(&file, sizeof(sbx_f_file_t));
    file.verb = SBX_FILE_OPEN;
    file.user = SBX_USER_USER;

    if (ngx_http_sandbox_v1_file_path(r, &file, &e) != 0
        || ngx_http_sandbox_v1_download_type(r, &download->type, &e) != 0)
    {
        return ngx_http_sandbox_problem_core(r, &e);
    }

    ctx = ngx_http_sandbox_ctx(r);
    call = ngx_http_sandbox_v1_file_call(r, &file, &ctx->path, NULL,
                                         download);

    if (call != NULL) {
        call->frame = ngx_http_sandbox_v1_download_frame;
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
ngx_http_sandbox_v1_download_token(const u_char *p, const u_char *end)
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
    ngx_uint_t     i;
    const u_char  *p, *token, *end;

    static const u_char  charset[] = "charset=";

    if (type->len == 0 || type->len > 127) {
        return 0;
    }

    p = type->data;
    end = p + type->len;

    token = p;
    p = ngx_http_sandbox_v1_download_token(p, end);

    if (p == token || p == end || *p++ != '/') {
        return 0;
    }

    token = p;
    p = ngx_http_sandbox_v1_download_token(p, end);

    if (p == token) {
        return 0;
    }

    for (i = 0; ngx_http_sandbox_v1_active_types[i] != NULL; i++) {
        if (ngx_strlcasestrn(type->data, (u_char *) p,
                        (u_char *) ngx_http_sandbox_v1_active_types[i],
                        ngx_strlen(ngx_http_sandbox_v1_active_types[i]) - 1)
            != NULL)
        {
            return 0;
        }
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

    return ngx_http_sandbox_v1_download_token(p, end) == end;
}


static ngx_int_t
ngx_http_sandbox_v1_download_frame(ngx_http_sandbox_call_t *call,
    const sbx_frame_t *frame, const u_char *payload, ngx_fd_t fd)
{
    ngx_int_t                        rc;
    ngx_str_t                        path;
    const char                      *name, *owner, *group, *target;
    sbx_f_entry_t                    entry;
    ngx_http_sandbox_v1_download_t  *download;

    download = call->data;

    if (download->sending) {

        /* nothing is to come but the end, and that means to stop */

        if (fd != NGX_INVALID_FILE) {
            (void) ngx_close_file(fd);
        }

        return ngx_http_sandbox_op_finish(call, NGX_ERROR);
    }

    rc = ngx_http_sandbox_op_frame(call, frame, payload, fd);

    if (rc != NGX_DECLINED) {
        return rc;
    }

    if (frame->type != SBX_F_OPENED || fd == NGX_INVALID_FILE) {
        return ngx_http_sandbox_op_broken(call, "a wrong frame for open");
    }

    if (sbx_wire_check_entry(payload, frame->length, &entry, &name, &owner,
                             &group, &target)
        != 0)
    {
        (void) ngx_close_file(fd);
        return ngx_http_sandbox_op_broken(call, "an entry that cannot be");
    }

    path.data = (u_char *) name;
    path.len = entry.path_len;

    return ngx_http_sandbox_v1_download_send(call, fd, &path);
}


static ngx_int_t
ngx_http_sandbox_v1_download_send(ngx_http_sandbox_call_t *call, ngx_fd_t fd,
    const ngx_str_t *path)
{
    u_char                          *name;
    ngx_int_t                        rc;
    ngx_file_info_t                  info;
    ngx_pool_cleanup_t              *cln;
    ngx_http_request_t              *r;
    ngx_pool_cleanup_file_t         *clnf;
    ngx_http_sandbox_v1_download_t  *download;

    r = call->request;
    download = call->data;

    cln = ngx_pool_cleanup_add(r->pool, sizeof(ngx_pool_cleanup_file_t));
    name = ngx_pnalloc(r->pool, path->len + 1);

    if (cln == NULL || name == NULL) {
        (void) ngx_close_file(fd);
        return ngx_http_sandbox_op_broken(call, "more than memory holds");
    }

    (void) ngx_cpystrn(name, path->data, path->len + 1);

    cln->handler = ngx_pool_cleanup_file;
    clnf = cln->data;
    clnf->fd = fd;
    clnf->name = name;
    clnf->log = r->pool->log;

    if (ngx_http_sandbox_v1_file_info(fd, &info) != NGX_OK) {
        return ngx_http_sandbox_op_finish(call,
                   ngx_http_sandbox_problem(r,
                                           NGX_HTTP_SANDBOX_WRONG_FILE_TYPE,
                                           "not a regular file"));
    }

    if (ngx_http_sandbox_v1_download_headers(r, &info, &download->type, path)
        != NGX_OK)
    {
        return ngx_http_sandbox_op_broken(call, "more than memory holds");
    }

    download->sending = 1;
    call->timeout = 0;

    rc = ngx_http_sandbox_v1_download_body(r, fd, &info, name);

    if (rc == NGX_AGAIN
        || (rc == NGX_OK && (r->buffered || r->connection->buffered)))
    {
        /* nginx goes on by itself, and frees the call with the request */

        ngx_http_finalize_request(r, rc);

        return NGX_OK;
    }

    return ngx_http_sandbox_op_finish(call, rc);
}


static ngx_int_t
ngx_http_sandbox_v1_download_headers(ngx_http_request_t *r,
    ngx_file_info_t *info, const ngx_str_t *type, const ngx_str_t *path)
{
    ngx_uint_t        i;
    ngx_table_elt_t  *etag;

    static struct {
        const char   *name;
        ngx_str_t     value;
    } fixed[] = {
        { "X-Content-Type-Options", ngx_string("nosniff") },
        { "Content-Security-Policy",
          ngx_string("sandbox; default-src 'none'") }
    };

    r->headers_out.status = NGX_HTTP_OK;
    r->headers_out.content_length_n = ngx_file_size(info);
    r->headers_out.last_modified_time = ngx_file_mtime(info);
    r->headers_out.content_type = *type;
    r->headers_out.content_type_len = type->len;
    r->headers_out.content_type_lowcase = NULL;

    etag = ngx_list_push(&r->headers_out.headers);

    if (etag == NULL) {
        return NGX_ERROR;
    }

    ngx_memzero(etag, sizeof(ngx_table_elt_t));
    etag->hash = 1;
    ngx_str_set(&etag->key, "ETag");

    etag->value.data = ngx_pnalloc(r->pool, NGX_HTTP_SANDBOX_V1_ETAG_MAX);

    if (etag->value.data == NULL) {
        etag->hash = 0;
        return NGX_ERROR;
    }

    etag->value.len = ngx_http_sandbox_v1_file_etag(etag->value.data, info)
                      - etag->value.data;
    r->headers_out.etag = etag;

    for (i = 0; i < sbx_nelts(fixed); i++) {
        if (ngx_http_sandbox_add_header(r, fixed[i].name, &fixed[i].value)
            != NGX_OK)
        {
            return NGX_ERROR;
        }
    }

    r->allow_ranges = 1;
    r->disable_not_modified = 0;

    return ngx_http_sandbox_v1_file_disposition(r, path);
}


/*
 * The name twice: plain ASCII for old clients, then as UTF-8 in percent
 * escapes.  Neither form lets a byte of the name end the header.
 */

ngx_int_t
ngx_http_sandbox_v1_file_disposition(ngx_http_request_t *r,
    const ngx_str_t *path)
{
    size_t          i, k, n, len;
    u_char         *p, ch;
    ngx_str_t       value;
    const u_char   *name;

    static const u_char  lead[] = "attachment; filename=\"";
    static const u_char  star[] = "\"; filename*=UTF-8''";
    static const u_char  hex[] = "0123456789ABCDEF";
    static const u_char  unknown[] = "%EF%BF%BD";

    for (len = 0; len < path->len; len++) {
        if (path->data[path->len - len - 1] == '/') {
            break;
        }
    }

    name = path->data + path->len - len;

    p = ngx_pnalloc(r->pool, sizeof(lead) + sizeof(star)
                             + len * (1 + sizeof(unknown)));

    if (p == NULL) {
        return NGX_ERROR;
    }

    value.data = p;
    p = ngx_cpymem(p, lead, sizeof(lead) - 1);

    for (i = 0; i < len; i++) {
        ch = name[i];
        *p++ = (ch < 0x20 || ch >= 0x7f || ch == '"' || ch == '\\'
                || ch == '%') ? '_' : ch;
    }

    p = ngx_cpymem(p, star, sizeof(star) - 1);

    for (i = 0; i < len; i += n) {
        n = sbx_utf8_sequence(name + i, len - i);

        if (n == 0) {
            n = 1;
            p = ngx_cpymem(p, unknown, sizeof(unknown) - 1);
            continue;
        }

        if (n == 1 && (isalnum(name[i]) || name[i] == '.'
                       || name[i] == '-' || name[i] == '_'))
        {
            *p++ = name[i];
            continue;
        }

        for (k = i; k < i + n; k++) {
            *p++ = '%';
            *p++ = hex[name[k] >> 4];
            *p++ = hex[name[k] & 15];
        }
    }

    value.len = p - value.data;

    return ngx_http_sandbox_add_header(r, "Content-Disposition", &value);
}


static ngx_int_t
ngx_http_sandbox_v1_download_body(ngx_http_request_t *r, ngx_fd_t fd,
    ngx_file_info_t *info, u_char *name)
{
    ngx_int_t     rc;
    ngx_buf_t    *b;
    ngx_chain_t   out;

    b = ngx_calloc_buf(r->pool);

    if (b == NULL) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    b->file = ngx_pcalloc(r->pool, sizeof(ngx_file_t));

    if (b->file == NULL) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    rc = ngx_http_send_header(r);

    if (rc == NGX_ERROR || rc > NGX_OK || r->header_only) {
        return rc;
    }

    b->file_pos = 0;
    b->file_last = ngx_file_size(info);
    b->in_file = (b->file_last != 0);
    b->last_buf = 1;
    b->last_in_chain = 1;

    b->file->fd = fd;
    b->file->name.data = name;
    b->file->name.len = ngx_strlen(name);
    b->file->log = r->connection->log;

    out.buf = b;
    out.next = NULL;

    return ngx_http_output_filter(r, &out);
}
