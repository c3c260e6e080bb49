/*
 * Downloads: the session's init opens the file inside, as the session's user,
 * and passes the descriptor; the worker looks at what it got and sends it as
 * nginx sends static files.  The call stays open meanwhile: its end says that
 * the session is being destroyed, and then the client's connection is cut,
 * since an open file keeps the whole file system of a session.
 */

#include "ngx_http_sandbox_op_file.h"
#include "ngx_http_sandbox_file_threads.h"
#include "ngx_http_sandbox_passed.h"
#include "sandbox_fault.h"

#include <ctype.h>
#include <sys/vfs.h>

#include <linux/magic.h>


/* not in every linux/magic.h */
#define NGX_HTTP_SANDBOX_OP_FUSE          0x65735546


typedef struct {
    ngx_fd_t                        fd;
    char                            session[SBX_ID_MAX + 8];
} ngx_http_sandbox_op_opened_t;


static ngx_int_t ngx_http_sandbox_op_download_send(
    ngx_http_sandbox_call_t *call, ngx_fd_t fd, const ngx_str_t *path);
static void ngx_http_sandbox_op_download_close(void *data);
static ngx_int_t ngx_http_sandbox_op_download_headers(ngx_http_request_t *r,
    ngx_file_info_t *info, const ngx_http_sandbox_op_download_t *download,
    const ngx_str_t *path);
static ngx_int_t ngx_http_sandbox_op_download_body(ngx_http_request_t *r,
    const ngx_http_sandbox_op_opened_t *opened, ngx_file_info_t *info,
    u_char *name);


/* What a browser would run, or take apart, as the API's own pages. */

static const char *const  ngx_http_sandbox_op_active_types[] = {
    "html", "xml", "svg", "script", "xsl", "multipart", "message", "mhtml",
    "manifest", "wasm", "flash", NULL
};


ngx_http_sandbox_call_t *
ngx_http_sandbox_op_file_call(ngx_http_request_t *r,
    const sbx_f_file_t *file, const ngx_str_t *path, const ngx_str_t *path2,
    void *data)
{
    size_t                    size, len;
    u_char                   *frame, *p;
    ngx_http_sandbox_call_t  *call;

    len = (size_t) file->path2_len + file->metadata_len;
    size = sizeof(sbx_f_file_t) + file->path_len + len;
    frame = ngx_pnalloc(r->pool, size);

    if (frame == NULL) {
        return NULL;
    }

    p = ngx_cpymem(frame, file, sizeof(sbx_f_file_t));

    if (path != NULL && file->path_len != 0) {
        p = ngx_cpymem(p, path->data, file->path_len);
    }

    if (path2 != NULL && len != 0) {
        ngx_memcpy(p, path2->data, len);
    }

    call = ngx_http_sandbox_op_call(r, SBX_OP_FILE, NULL, 0,
                                    NGX_INVALID_FILE, data);

    if (call == NULL) {
        return NULL;
    }

    if (file->verb == SBX_FILE_OPEN) {
        call->brings = SBX_F_OPENED;

        /* threads read it, of which each owner has his share */

        if (call->header.tenant[0] == '\0'
            || call->header.user[0] == '\0')
        {
            call->header.flags |= SBX_CALL_OWNER;
        }
    }

    if (ngx_http_sandbox_call_queue(call, SBX_F_FILE, frame, size)
        != NGX_OK)
    {
        ngx_http_sandbox_call_close(call);
        return NULL;
    }

    /* of use where it is a large block */

    (void) ngx_pfree(r->pool, frame);

    return call;
}


ngx_int_t
ngx_http_sandbox_op_file_info(ngx_fd_t fd, ngx_file_info_t *info)
{
    int            flags;
    ngx_uint_t     i;
    struct statfs  fs;

    /* files that only seem to be: their sizes are made up, or another
     * process answers the read */

    static const long  refused[] = {
        PROC_SUPER_MAGIC, SYSFS_MAGIC, CGROUP_SUPER_MAGIC,
        CGROUP2_SUPER_MAGIC, DEBUGFS_MAGIC, TRACEFS_MAGIC, SECURITYFS_MAGIC,
        NGX_HTTP_SANDBOX_OP_FUSE
    };

    flags = fcntl(fd, F_GETFL);

    if (flags == -1 || (flags & O_ACCMODE) != O_RDONLY || (flags & O_PATH)
        || ngx_fd_info(fd, info) == NGX_FILE_ERROR
        || !ngx_is_file(info)
        || fstatfs(fd, &fs) == -1)
    {
        return NGX_DECLINED;
    }

    for (i = 0; i < sbx_nelts(refused); i++) {
        if ((long) fs.f_type == refused[i]) {
            return NGX_DECLINED;
        }
    }

    return NGX_OK;
}


u_char *
ngx_http_sandbox_op_file_etag(u_char *buf, ngx_file_info_t *info)
{
    uint64_t  mtime;

    mtime = (uint64_t) info->st_mtim.tv_sec * 1000000000
            + (uint64_t) info->st_mtim.tv_nsec;

    return ngx_sprintf(buf, "\"%xL-%xO-%xL\"", (int64_t) mtime,
                       ngx_file_size(info), (int64_t) info->st_ino);
}


ngx_uint_t
ngx_http_sandbox_op_file_active(const ngx_str_t *type)
{
    ngx_uint_t   i;
    const char  *word;

    for (i = 0; ngx_http_sandbox_op_active_types[i] != NULL; i++) {
        word = ngx_http_sandbox_op_active_types[i];

        if (ngx_strlcasestrn(type->data, type->data + type->len,
                             (u_char *) word, ngx_strlen(word) - 1)
            != NULL)
        {
            return 1;
        }
    }

    return 0;
}


ngx_int_t
ngx_http_sandbox_op_download_frame(ngx_http_sandbox_call_t *call,
    const sbx_frame_t *frame, const u_char *payload, ngx_fd_t fd)
{
    ngx_int_t                        rc;
    ngx_str_t                        path;
    const char                      *name, *owner, *group, *target;
    sbx_f_entry_t                    entry;
    ngx_http_sandbox_op_download_t  *download;

    download = call->data;

    if (download->sending) {

        /* nothing is to come but the end, and that means to stop */

        if (fd != NGX_INVALID_FILE) {
            ngx_http_sandbox_passed_close(call->header.session, fd);
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
        ngx_http_sandbox_passed_close(call->header.session, fd);
        return ngx_http_sandbox_op_broken(call, "an entry that cannot be");
    }

    path.data = (u_char *) name;
    path.len = entry.path_len;
    SBX_FAULT("worker-download-opened");

    return ngx_http_sandbox_op_download_send(call, fd, &path);
}


static ngx_int_t
ngx_http_sandbox_op_download_send(ngx_http_sandbox_call_t *call, ngx_fd_t fd,
    const ngx_str_t *path)
{
    u_char                          *name;
    ngx_int_t                        rc;
    ngx_file_info_t                  info;
    ngx_pool_cleanup_t              *cln;
    ngx_http_request_t              *r;
    ngx_http_sandbox_op_opened_t    *opened;
    ngx_http_sandbox_op_download_t  *download;

    r = call->request;
    download = call->data;

    cln = ngx_pool_cleanup_add(r->pool,
                               sizeof(ngx_http_sandbox_op_opened_t));
    name = ngx_pnalloc(r->pool, path->len + 1);

    if (cln == NULL || name == NULL) {
        ngx_http_sandbox_passed_close(call->header.session, fd);
        return ngx_http_sandbox_op_broken(call, "more than memory holds");
    }

    (void) ngx_cpystrn(name, path->data, path->len + 1);

    cln->handler = ngx_http_sandbox_op_download_close;

    opened = cln->data;
    opened->fd = fd;
    ngx_memcpy(opened->session, call->header.session,
               sizeof(opened->session));

    if (ngx_http_sandbox_op_file_info(fd, &info) != NGX_OK) {
        return ngx_http_sandbox_op_finish(call,
                   ngx_http_sandbox_problem(r,
                                           NGX_HTTP_SANDBOX_WRONG_FILE_TYPE,
                                           "not a regular file"));
    }

    if (ngx_http_sandbox_op_download_headers(r, &info, download, path)
        != NGX_OK)
    {
        return ngx_http_sandbox_op_broken(call, "more than memory holds");
    }

    download->sending = 1;
    call->timeout = 0;

    rc = ngx_http_sandbox_op_download_body(r, opened, &info, name);
    SBX_FAULT("worker-download-sending");

    if (rc == NGX_AGAIN
        || (rc == NGX_OK && (r->buffered || r->connection->buffered)))
    {
        /* nginx goes on by itself, and frees the call with the request */

        ngx_http_finalize_request(r, rc);

        return NGX_OK;
    }

    return ngx_http_sandbox_op_finish(call, rc);
}


static void
ngx_http_sandbox_op_download_close(void *data)
{
    ngx_http_sandbox_op_opened_t  *opened = data;

    ngx_http_sandbox_passed_close(opened->session, opened->fd);
}


static ngx_int_t
ngx_http_sandbox_op_download_headers(ngx_http_request_t *r,
    ngx_file_info_t *info, const ngx_http_sandbox_op_download_t *download,
    const ngx_str_t *path)
{
    ngx_uint_t        i;
    ngx_table_elt_t  *etag;

    static struct {
        const char   *name;
        ngx_str_t     value;
    } fixed[] = {
        { "Vary", ngx_string("Accept-Encoding") },
        { "X-Content-Type-Options", ngx_string("nosniff") },
        { "Content-Security-Policy",
          ngx_string("sandbox; default-src 'none'") }
    };

    r->headers_out.status = NGX_HTTP_OK;
    r->headers_out.content_length_n = ngx_file_size(info);
    r->headers_out.last_modified_time = ngx_file_mtime(info);
    r->headers_out.content_type = download->type;
    r->headers_out.content_type_len = download->type.len;
    r->headers_out.content_type_lowcase = NULL;

    etag = ngx_list_push(&r->headers_out.headers);

    if (etag == NULL) {
        return NGX_ERROR;
    }

    ngx_memzero(etag, sizeof(ngx_table_elt_t));
    etag->hash = 1;
    ngx_str_set(&etag->key, "ETag");

    etag->value.data = ngx_pnalloc(r->pool, NGX_HTTP_SANDBOX_OP_ETAG_MAX);

    if (etag->value.data == NULL) {
        etag->hash = 0;
        return NGX_ERROR;
    }

    etag->value.len = ngx_http_sandbox_op_file_etag(etag->value.data, info)
                      - etag->value.data;
    r->headers_out.etag = etag;

    for (i = download->vary ? 0 : 1; i < sbx_nelts(fixed); i++) {
        if (ngx_http_sandbox_add_header(r, fixed[i].name, &fixed[i].value)
            != NGX_OK)
        {
            return NGX_ERROR;
        }
    }

    r->allow_ranges = 1;
    r->disable_not_modified = 0;

    return ngx_http_sandbox_op_file_disposition(r, download->kind,
                                                (download->name.data != NULL)
                                                ? &download->name : path);
}


/*
 * The name twice: plain ASCII for old clients, then as UTF-8 in percent
 * escapes.  Neither form lets a byte of the name end the header.
 */

ngx_int_t
ngx_http_sandbox_op_file_disposition(ngx_http_request_t *r,
    const char *kind, const ngx_str_t *path)
{
    size_t          i, k, n, len;
    u_char         *p, ch;
    ngx_str_t       value;
    const u_char   *name;

    static const u_char  lead[] = "; filename=\"";
    static const u_char  star[] = "\"; filename*=UTF-8''";
    static const u_char  hex[] = "0123456789ABCDEF";
    static const u_char  unknown[] = "%EF%BF%BD";

    for (len = 0; len < path->len; len++) {
        if (path->data[path->len - len - 1] == '/') {
            break;
        }
    }

    name = path->data + path->len - len;

    p = ngx_pnalloc(r->pool, ngx_strlen(kind) + sizeof(lead) + sizeof(star)
                             + len * (1 + sizeof(unknown)));

    if (p == NULL) {
        return NGX_ERROR;
    }

    value.data = p;
    p = ngx_cpymem(p, kind, ngx_strlen(kind));
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
ngx_http_sandbox_op_download_body(ngx_http_request_t *r,
    const ngx_http_sandbox_op_opened_t *opened, ngx_file_info_t *info,
    u_char *name)
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

    b->file->fd = opened->fd;
    b->file->name.data = name;
    b->file->name.len = ngx_strlen(name);
    b->file->log = r->connection->log;

    if (ngx_http_sandbox_file_threads(r, b->file, opened->session)
        != NGX_OK)
    {
        return NGX_ERROR;
    }

    out.buf = b;
    out.next = NULL;

    return ngx_http_output_filter(r, &out);
}
