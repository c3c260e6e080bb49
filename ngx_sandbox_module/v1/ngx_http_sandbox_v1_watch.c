/*
 * What happens to files, as a stream of events: WATCH -> READY, CHANGE ...,
 * and END once the watched directory itself is gone.
 */

#include "ngx_http_sandbox_v1_files.h"
#include "ngx_http_sandbox_stream.h"


static ngx_int_t ngx_http_sandbox_v1_watch_frame(
    ngx_http_sandbox_call_t *call, const sbx_frame_t *frame,
    const u_char *payload, ngx_fd_t fd);
static ngx_int_t ngx_http_sandbox_v1_watch_ready(
    ngx_http_sandbox_call_t *call);
static ngx_int_t ngx_http_sandbox_v1_watch_change(
    ngx_http_sandbox_call_t *call, const u_char *payload, size_t len);
static void ngx_http_sandbox_v1_watch_leaving(ngx_http_sandbox_stream_t *s);


/* By sbx_change_t. */

static const char *const  ngx_http_sandbox_v1_changes[] = {
    "create", "write", "remove", "rename", "chmod", "overflow"
};


ngx_int_t
ngx_http_sandbox_v1_file_watch(ngx_http_request_t *r)
{
    ngx_uint_t                  recursive;
    sbx_error_t                 e;
    sbx_f_file_t                file;
    ngx_http_sandbox_ctx_t     *ctx;
    ngx_http_sandbox_call_t    *call;
    ngx_http_sandbox_stream_t  *stream;
    ngx_http_sandbox_stream_e   form;

    recursive = 0;

    if (ngx_http_sandbox_op_flag(r, "recursive", &recursive, &e) != 0) {
        return ngx_http_sandbox_problem_core(r, &e);
    }

    form = ngx_http_sandbox_stream_asked(r);

    if (form == NGX_HTTP_SANDBOX_STREAM_NONE) {
        form = NGX_HTTP_SANDBOX_STREAM_NDJSON;
    }

    stream = ngx_http_sandbox_stream_create(r, form);

    if (stream == NULL) {
        return ngx_http_sandbox_problem(r, NGX_HTTP_SANDBOX_INTERNAL, NULL);
    }

    ctx = ngx_http_sandbox_ctx(r);

    ngx_memzero(&file, sizeof(sbx_f_file_t));
    file.verb = SBX_FILE_WATCH;
    file.user = SBX_USER_USER;
    file.flags = recursive ? SBX_FILE_F_RECURSIVE : 0;
    file.path_len = (uint32_t) ctx->path.len;

    call = ngx_http_sandbox_op_file_call(r, &file, &ctx->path, NULL, stream);

    if (call != NULL) {
        call->frame = ngx_http_sandbox_v1_watch_frame;
        stream->call = call;
    }

    return ngx_http_sandbox_op_start(r, call);
}


static ngx_int_t
ngx_http_sandbox_v1_watch_frame(ngx_http_sandbox_call_t *call,
    const sbx_frame_t *frame, const u_char *payload, ngx_fd_t fd)
{
    ngx_int_t            rc;
    ngx_http_request_t  *r;

    r = call->request;

    if (frame->type == SBX_F_ERROR && r->header_sent) {
        return ngx_http_sandbox_op_broken(call, "no end of a watch");
    }

    rc = ngx_http_sandbox_op_frame(call, frame, payload, fd);

    if (rc != NGX_DECLINED) {
        return rc;
    }

    if (frame->type == SBX_F_READY && !r->header_sent) {
        rc = ngx_http_sandbox_v1_watch_ready(call);

    } else if (frame->type == SBX_F_CHANGE && r->header_sent) {
        rc = ngx_http_sandbox_v1_watch_change(call, payload, frame->length);

    } else if (frame->type == SBX_F_END && r->header_sent) {
        return ngx_http_sandbox_op_finish(call,
                                   ngx_http_sandbox_stream_close(call->data));

    } else {
        return ngx_http_sandbox_op_broken(call, "a wrong frame for a watch");
    }

    return ngx_http_sandbox_op_sent(call, rc);
}


static ngx_int_t
ngx_http_sandbox_v1_watch_ready(ngx_http_sandbox_call_t *call)
{
    ngx_int_t                   rc;
    ngx_http_sandbox_stream_t  *stream;

    stream = call->data;
    stream->leaving = ngx_http_sandbox_v1_watch_leaving;

    /* nothing may happen for hours */

    call->timeout = 0;

    rc = ngx_http_sandbox_stream_open(stream);

    if (rc != NGX_OK) {
        return rc;
    }

    (void) ngx_http_sandbox_stream_event(stream, "ready");

    return ngx_http_sandbox_stream_send(stream);
}


static ngx_int_t
ngx_http_sandbox_v1_watch_change(ngx_http_sandbox_call_t *call,
    const u_char *payload, size_t len)
{
    const char                 *path;
    sbx_f_change_t              change;
    ngx_http_sandbox_json_t    *j;
    ngx_http_sandbox_stream_t  *stream;

    stream = call->data;

    if (sbx_wire_check_change(payload, len, &change, &path) != 0
        || change.change >= sbx_nelts(ngx_http_sandbox_v1_changes))
    {
        return NGX_ERROR;
    }

    j = ngx_http_sandbox_stream_event(stream,
                               ngx_http_sandbox_v1_changes[change.change]);

    if (change.change != SBX_CHANGE_OVERFLOW) {
        ngx_http_sandbox_json_raw(j, ",");
        ngx_http_sandbox_v1_file_json(j, path, change.path_len);
    }

    return ngx_http_sandbox_stream_send(stream);
}


/* The client watches again, in another worker. */

static void
ngx_http_sandbox_v1_watch_leaving(ngx_http_sandbox_stream_t *s)
{
    (void) ngx_http_sandbox_stream_event(s, "resume");
    (void) ngx_http_sandbox_op_finish(s->call,
                                      ngx_http_sandbox_stream_last(s));
}
