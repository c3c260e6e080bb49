/*
 * A tree as an archive, as it is made: PACK -> READY, DATA ..., END.  What
 * fails before READY is answered as any error; after it the connection is
 * cut, so that half an archive cannot be taken for a whole one.  (Unpacking
 * is an upload.)
 */

#include "ngx_http_sandbox_v1_files.h"
#include "ngx_http_sandbox_stream.h"


/* init ends a server that makes no progress before this */
#define NGX_HTTP_SANDBOX_V1_PACK_TIMEOUT  120000


typedef struct {
    ngx_http_sandbox_stream_t  *stream;
    ngx_str_t                   path;
    unsigned                    gzip:1;
    unsigned                    open:1;
} ngx_http_sandbox_v1_pack_t;


static int ngx_http_sandbox_v1_pack_format(ngx_http_request_t *r,
    ngx_http_sandbox_v1_pack_t *pack, sbx_error_t *e);
static ngx_int_t ngx_http_sandbox_v1_pack_frame(
    ngx_http_sandbox_call_t *call, const sbx_frame_t *frame,
    const u_char *payload, ngx_fd_t fd);
static ngx_int_t ngx_http_sandbox_v1_pack_open(
    ngx_http_sandbox_call_t *call);
static ngx_int_t ngx_http_sandbox_v1_pack_name(ngx_http_request_t *r,
    const ngx_http_sandbox_v1_pack_t *pack);
static ngx_int_t ngx_http_sandbox_v1_pack_ping(ngx_http_sandbox_stream_t *s);


ngx_int_t
ngx_http_sandbox_v1_file_pack(ngx_http_request_t *r)
{
    sbx_error_t                  e;
    sbx_f_file_t                 file;
    ngx_http_sandbox_ctx_t      *ctx;
    ngx_http_sandbox_call_t     *call;
    ngx_http_sandbox_v1_pack_t  *pack;

    pack = ngx_pcalloc(r->pool, sizeof(ngx_http_sandbox_v1_pack_t));

    if (pack == NULL) {
        return ngx_http_sandbox_problem(r, NGX_HTTP_SANDBOX_INTERNAL, NULL);
    }

    if (ngx_http_sandbox_v1_pack_format(r, pack, &e) != 0) {
        return ngx_http_sandbox_problem_core(r, &e);
    }

    pack->stream = ngx_http_sandbox_stream_create(r,
                                                NGX_HTTP_SANDBOX_STREAM_RAW);

    if (pack->stream == NULL) {
        return ngx_http_sandbox_problem(r, NGX_HTTP_SANDBOX_INTERNAL, NULL);
    }

    ctx = ngx_http_sandbox_ctx(r);
    pack->path = ctx->path;
    pack->stream->ping = ngx_http_sandbox_v1_pack_ping;

    ngx_memzero(&file, sizeof(sbx_f_file_t));
    file.verb = SBX_FILE_PACK;
    file.user = SBX_USER_USER;
    file.flags = pack->gzip ? SBX_FILE_F_GZIP : 0;
    file.path_len = (uint32_t) ctx->path.len;

    call = ngx_http_sandbox_op_file_call(r, &file, &ctx->path, NULL, pack);

    if (call != NULL) {
        call->frame = ngx_http_sandbox_v1_pack_frame;
        call->timeout = NGX_HTTP_SANDBOX_V1_PACK_TIMEOUT;
        pack->stream->call = call;
    }

    return ngx_http_sandbox_op_start(r, call);
}


static int
ngx_http_sandbox_v1_pack_format(ngx_http_request_t *r,
    ngx_http_sandbox_v1_pack_t *pack, sbx_error_t *e)
{
    ngx_str_t  format;

    ngx_str_set(&format, "tar");

    if (ngx_http_sandbox_op_string(r, "format", &format, e) != 0) {
        return -1;
    }

    pack->gzip = ngx_http_sandbox_op_is(&format, "tar.gz");

    if (!pack->gzip && !ngx_http_sandbox_op_is(&format, "tar")) {
        return sbx_error(e, 0, SBX_E_INVALID,
                         "format must be \"tar\" or \"tar.gz\"");
    }

    return 0;
}


static ngx_int_t
ngx_http_sandbox_v1_pack_frame(ngx_http_sandbox_call_t *call,
    const sbx_frame_t *frame, const u_char *payload, ngx_fd_t fd)
{
    ngx_int_t                    rc;
    ngx_http_sandbox_v1_pack_t  *pack;

    pack = call->data;

    if (frame->type == SBX_F_ERROR && pack->open) {
        return ngx_http_sandbox_op_broken(call, "no end of an archive");
    }

    rc = ngx_http_sandbox_op_frame(call, frame, payload, fd);

    if (rc != NGX_DECLINED) {
        return rc;
    }

    if (frame->type == SBX_F_READY && !pack->open) {
        pack->open = 1;
        rc = ngx_http_sandbox_v1_pack_open(call);

    } else if (frame->type == SBX_F_DATA && pack->open) {
        rc = ngx_http_sandbox_stream_bytes(pack->stream, NULL, 0, payload,
                                           frame->length);

    } else if (frame->type == SBX_F_END && pack->open) {
        return ngx_http_sandbox_op_finish(call,
                                ngx_http_sandbox_stream_close(pack->stream));

    } else {
        return ngx_http_sandbox_op_broken(call,
                                          "a wrong frame for an archive");
    }

    return ngx_http_sandbox_op_sent(call, rc);
}


static ngx_int_t
ngx_http_sandbox_v1_pack_open(ngx_http_sandbox_call_t *call)
{
    ngx_uint_t                   i;
    ngx_http_request_t          *r;
    ngx_http_sandbox_v1_pack_t  *pack;

    static struct {
        const char   *name;
        ngx_str_t     value;
    } fixed[] = {
        { "Cache-Control", ngx_string("no-store") },
        { "X-Accel-Buffering", ngx_string("no") },
        { "X-Content-Type-Options", ngx_string("nosniff") },
        { "Content-Security-Policy",
          ngx_string("sandbox; default-src 'none'") }
    };

    r = call->request;
    pack = call->data;

    call->timeout = 0;

    r->headers_out.status = NGX_HTTP_OK;
    ngx_http_clear_content_length(r);

    if (pack->gzip) {
        ngx_str_set(&r->headers_out.content_type, "application/gzip");

    } else {
        ngx_str_set(&r->headers_out.content_type, "application/x-tar");
    }

    r->headers_out.content_type_len = r->headers_out.content_type.len;
    r->headers_out.content_type_lowcase = NULL;

    for (i = 0; i < sbx_nelts(fixed); i++) {
        if (ngx_http_sandbox_add_header(r, fixed[i].name, &fixed[i].value)
            != NGX_OK)
        {
            return NGX_ERROR;
        }
    }

    if (ngx_http_sandbox_v1_pack_name(r, pack) != NGX_OK) {
        return NGX_ERROR;
    }

    return ngx_http_sandbox_stream_open(pack->stream);
}


static ngx_int_t
ngx_http_sandbox_v1_pack_name(ngx_http_request_t *r,
    const ngx_http_sandbox_v1_pack_t *pack)
{
    size_t     len;
    u_char    *p;
    ngx_str_t  name;

    len = pack->path.len;

    while (len != 0 && (pack->path.data[len - 1] == '/'
                        || pack->path.data[len - 1] == '.'))
    {
        len--;
    }

    name.data = ngx_pnalloc(r->pool, len + sizeof("archive.tar.gz"));

    if (name.data == NULL) {
        return NGX_ERROR;
    }

    p = len != 0 ? ngx_cpymem(name.data, pack->path.data, len)
                 : ngx_cpymem(name.data, "archive", sizeof("archive") - 1);
    p = ngx_cpymem(p, ".tar.gz", pack->gzip ? 7 : 4);

    name.len = p - name.data;

    return ngx_http_sandbox_op_file_disposition(r, "attachment", &name);
}


/* Nothing can be said in an archive. */

static ngx_int_t
ngx_http_sandbox_v1_pack_ping(ngx_http_sandbox_stream_t *s)
{
    return NGX_OK;
}
