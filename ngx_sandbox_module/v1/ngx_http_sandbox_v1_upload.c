/*
 * Uploads.  The session's init is asked first; what it refuses is answered
 * before the client sends its body (100 Continue waits for READY).  Then the
 * body is passed on as it comes, unbuffered: no more than a window is queued,
 * and while it is full the client is not read.  The file takes its name only
 * when the empty DATA frame has come, which is sent after the whole body was
 * read: whatever ends the call before that leaves nothing.
 *
 *   PUT or UNPACK -> READY -> DATA ... DATA(0) -> END
 *
 * If-Match and If-None-Match go with the call: the session holds them against
 * the file in the moment in which it would be replaced.
 */

#include "ngx_http_sandbox_v1_files.h"
#include "sandbox_fault.h"


#define NGX_HTTP_SANDBOX_V1_UPLOAD_TURN   (128 * 1024)


typedef struct {
    ngx_http_request_t        *request;
    ngx_http_sandbox_call_t   *call;
    sbx_f_file_t               file;
    ngx_str_t                  path;
    ngx_str_t                  condition;     /* of both, as on the wire */
    off_t                      max;           /* 0: none */
    off_t                      received;
    ngx_event_t                stall;         /* the other side is stuck */
    unsigned                   ready:1;
    unsigned                   whole:1;       /* the last DATA is queued */
    unsigned                   new_only:1;    /* If-None-Match: * */
    unsigned                   unpack:1;
} ngx_http_sandbox_v1_upload_t;


static int ngx_http_sandbox_v1_upload_query(ngx_http_request_t *r,
    ngx_http_sandbox_v1_upload_t *upload, sbx_error_t *e);
static int ngx_http_sandbox_v1_upload_mode(ngx_http_request_t *r,
    sbx_f_file_t *file, sbx_error_t *e);
static int ngx_http_sandbox_v1_upload_conditions(ngx_http_request_t *r,
    ngx_http_sandbox_v1_upload_t *upload, sbx_error_t *e);
static int ngx_http_sandbox_v1_upload_size(ngx_http_request_t *r,
    ngx_http_sandbox_v1_upload_t *upload, sbx_error_t *e);
static int ngx_http_sandbox_v1_upload_too_large(off_t max, sbx_error_t *e);
static ngx_int_t ngx_http_sandbox_v1_upload_put(ngx_http_request_t *r,
    ngx_http_sandbox_v1_upload_t *upload);
static ngx_int_t ngx_http_sandbox_v1_upload_frame(
    ngx_http_sandbox_call_t *call, const sbx_frame_t *frame,
    const u_char *payload, ngx_fd_t fd);
static ngx_int_t ngx_http_sandbox_v1_upload_begin(
    ngx_http_sandbox_v1_upload_t *upload);
static ngx_int_t ngx_http_sandbox_v1_upload_pump(
    ngx_http_sandbox_v1_upload_t *upload);
static ngx_int_t ngx_http_sandbox_v1_upload_take(
    ngx_http_sandbox_v1_upload_t *upload);
static ngx_int_t ngx_http_sandbox_v1_upload_end(
    ngx_http_sandbox_v1_upload_t *upload, const sbx_f_end_t *end);
static void ngx_http_sandbox_v1_upload_read(ngx_http_request_t *r);
static void ngx_http_sandbox_v1_upload_writable(
    ngx_http_sandbox_call_t *call);
static void ngx_http_sandbox_v1_upload_stalled(ngx_event_t *ev);
static void ngx_http_sandbox_v1_upload_cleanup(void *data);


ngx_int_t
ngx_http_sandbox_v1_upload(ngx_http_request_t *r)
{
    sbx_error_t                    e;
    ngx_pool_cleanup_t            *cln;
    ngx_http_sandbox_ctx_t        *ctx;
    ngx_http_sandbox_v1_upload_t  *upload;

    /* a refusal must not be preceded by "100 Continue" */

    r->expect_tested = 1;

    upload = ngx_pcalloc(r->pool, sizeof(ngx_http_sandbox_v1_upload_t));
    cln = ngx_pool_cleanup_add(r->pool, 0);

    if (upload == NULL || cln == NULL) {
        return ngx_http_sandbox_problem(r, NGX_HTTP_SANDBOX_INTERNAL, NULL);
    }

    ctx = ngx_http_sandbox_ctx(r);

    ctx->data = upload;

    upload->request = r;
    upload->path = ctx->path;
    upload->unpack = (ngx_strcmp(ctx->route->op, "unpack") == 0);
    upload->file.verb = upload->unpack ? SBX_FILE_UNPACK : SBX_FILE_PUT;
    upload->file.user = SBX_USER_USER;
    upload->stall.handler = ngx_http_sandbox_v1_upload_stalled;
    upload->stall.data = upload;
    upload->stall.log = r->connection->log;

    cln->handler = ngx_http_sandbox_v1_upload_cleanup;
    cln->data = upload;

    if (ngx_http_sandbox_v1_upload_query(r, upload, &e) != 0) {
        return ngx_http_sandbox_problem_core(r, &e);
    }

    return ngx_http_sandbox_v1_upload_put(r, upload);
}


static int
ngx_http_sandbox_v1_upload_query(ngx_http_request_t *r,
    ngx_http_sandbox_v1_upload_t *upload, sbx_error_t *e)
{
    ngx_uint_t  overwrite;

    overwrite = 1;

    if (upload->unpack) {

        /* without a path it is unpacked into the workspace */

        upload->file.path_len = (uint32_t) upload->path.len;

        return ngx_http_sandbox_v1_upload_size(r, upload, e);
    }

    if (ngx_http_sandbox_v1_file_path(r, &upload->file, e) != 0
        || ngx_http_sandbox_op_flag(r, "overwrite", &overwrite, e) != 0
        || ngx_http_sandbox_v1_upload_mode(r, &upload->file, e) != 0
        || ngx_http_sandbox_v1_upload_conditions(r, upload, e) != 0)
    {
        return -1;
    }

    if (!overwrite) {
        upload->file.flags |= SBX_FILE_F_NO_REPLACE;
    }

    return ngx_http_sandbox_v1_upload_size(r, upload, e);
}


static int
ngx_http_sandbox_v1_upload_mode(ngx_http_request_t *r, sbx_f_file_t *file,
    sbx_error_t *e)
{
    size_t     i;
    ngx_str_t  mode;

    ngx_str_null(&mode);

    if (ngx_http_sandbox_op_string(r, "mode", &mode, e) != 0) {
        return -1;
    }

    if (mode.data == NULL) {
        return 0;
    }

    for (i = 0; i < mode.len && mode.len <= 4; i++) {
        if (mode.data[i] < '0' || mode.data[i] > '7') {
            break;
        }

        file->mode = file->mode * 8 + (mode.data[i] - '0');
    }

    if (mode.len == 0 || i < mode.len || file->mode > 0777) {
        return sbx_error(e, 0, SBX_E_INVALID,
                         "mode must be octal, from 0 to 0777");
    }

    file->flags |= SBX_FILE_F_MODE;

    return 0;
}


static int
ngx_http_sandbox_v1_upload_conditions(ngx_http_request_t *r,
    ngx_http_sandbox_v1_upload_t *upload, sbx_error_t *e)
{
    u_char     *p;
    ngx_int_t   match, none;
    ngx_str_t   if_match, if_none_match;

    ngx_str_set(&if_match, "");
    ngx_str_set(&if_none_match, "");

    match = ngx_http_sandbox_op_header(r, "if-match", &if_match);
    none = ngx_http_sandbox_op_header(r, "if-none-match", &if_none_match);

    if (match == NGX_ABORT || none == NGX_ABORT) {
        return sbx_error(e, 0, SBX_E_INVALID,
                         "If-Match and If-None-Match can each be given once");
    }

    if (none == NGX_OK && ngx_http_sandbox_op_is(&if_none_match, "*")) {

        /* this one the kernel can keep, in one step */

        upload->new_only = 1;
        upload->file.flags |= SBX_FILE_F_NO_REPLACE;
        ngx_str_set(&if_none_match, "");
        none = NGX_DECLINED;
    }

    if (match != NGX_OK && none != NGX_OK) {
        return 0;
    }

    upload->condition.len = if_match.len + 1 + if_none_match.len;

    if (upload->condition.len >= SBX_PATH_MAX
        || (match == NGX_OK && if_match.len == 0))
    {
        return sbx_error(e, 0, SBX_E_INVALID,
                         "If-Match or If-None-Match is empty or too long");
    }

    p = ngx_pnalloc(r->pool, upload->condition.len);

    if (p == NULL) {
        return sbx_error(e, 0, SBX_E_INTERNAL, "out of memory");
    }

    upload->condition.data = p;
    p = ngx_cpymem(p, if_match.data, if_match.len);
    *p++ = '\n';
    ngx_memcpy(p, if_none_match.data, if_none_match.len);

    upload->file.flags |= SBX_FILE_F_CONDITION;
    upload->file.path2_len = (uint32_t) upload->condition.len;

    return 0;
}


static int
ngx_http_sandbox_v1_upload_size(ngx_http_request_t *r,
    ngx_http_sandbox_v1_upload_t *upload, sbx_error_t *e)
{
    off_t                          length;
    ngx_http_sandbox_loc_conf_t   *slcf;

    slcf = ngx_http_get_module_loc_conf(r, ngx_http_sandbox_module);

    length = r->headers_in.content_length_n;
    upload->max = slcf->max_upload;

    if (upload->max > 0 && length > upload->max) {
        return ngx_http_sandbox_v1_upload_too_large(upload->max, e);
    }

    if (length >= 0) {
        upload->file.size = (uint64_t) length;

    } else {
        upload->file.size = r->headers_in.chunked ? SBX_UNSET : 0;
    }

    upload->file.max = (upload->max > 0) ? (uint64_t) upload->max : SBX_UNSET;

    return 0;
}


static int
ngx_http_sandbox_v1_upload_too_large(off_t max, sbx_error_t *e)
{
    return sbx_error(e, 0, SBX_E_TOO_LARGE,
                     "an upload is limited to %lld bytes", (long long) max);
}


static ngx_int_t
ngx_http_sandbox_v1_upload_put(ngx_http_request_t *r,
    ngx_http_sandbox_v1_upload_t *upload)
{
    ngx_http_sandbox_call_t  *call;

    call = ngx_http_sandbox_op_file_call(r, &upload->file, &upload->path,
                                         &upload->condition, upload);

    if (call != NULL) {
        call->frame = ngx_http_sandbox_v1_upload_frame;
        call->writable = ngx_http_sandbox_v1_upload_writable;
        upload->call = call;
    }

    return ngx_http_sandbox_op_start(r, call);
}


static ngx_int_t
ngx_http_sandbox_v1_upload_frame(ngx_http_sandbox_call_t *call,
    const sbx_frame_t *frame, const u_char *payload, ngx_fd_t fd)
{
    ngx_int_t                      rc;
    sbx_f_end_t                    end;
    sbx_f_error_t                  error;
    ngx_http_sandbox_v1_upload_t  *upload;

    upload = call->data;

    if (frame->type == SBX_F_ERROR && upload->new_only) {
        ngx_memcpy(&error, payload, sizeof(sbx_f_error_t));

        if (error.code == SBX_E_EXISTS) {
            return ngx_http_sandbox_op_finish(call,
                       ngx_http_sandbox_problem(call->request,
                                        NGX_HTTP_SANDBOX_PRECONDITION_FAILED,
                                        NULL));
        }
    }

    rc = ngx_http_sandbox_op_frame(call, frame, payload, fd);

    if (rc != NGX_DECLINED) {
        return rc;
    }

    if (frame->type == SBX_F_READY && !upload->ready) {
        return ngx_http_sandbox_v1_upload_begin(upload);
    }

    if (frame->type == SBX_F_END && upload->whole) {
        ngx_memcpy(&end, payload, sizeof(sbx_f_end_t));
        SBX_FAULT("worker-upload-over");
        return ngx_http_sandbox_v1_upload_end(upload, &end);
    }

    return ngx_http_sandbox_op_broken(call, "a wrong frame for upload");
}


static ngx_int_t
ngx_http_sandbox_v1_upload_begin(ngx_http_sandbox_v1_upload_t *upload)
{
    ngx_int_t            rc;
    ngx_http_request_t  *r;

    r = upload->request;

    upload->ready = 1;
    SBX_FAULT("worker-upload-ready");

    /* from here on it is the body that takes time, or the stall timer */

    upload->call->timeout = 0;

    rc = ngx_http_sandbox_body_stream(r, ngx_http_sandbox_v1_upload_read);

    if (rc >= NGX_HTTP_SPECIAL_RESPONSE) {
        return ngx_http_sandbox_op_finish(upload->call, rc);
    }

    return (rc == NGX_OK) ? ngx_http_sandbox_v1_upload_pump(upload) : NGX_OK;
}


/*
 * Moves what can be moved.  NGX_OK, or NGX_DONE when the request is over and
 * nothing of it may be touched.
 */

static ngx_int_t
ngx_http_sandbox_v1_upload_pump(ngx_http_sandbox_v1_upload_t *upload)
{
    off_t                     begun;
    ngx_int_t                 rc;
    ngx_http_request_t       *r;
    ngx_http_sandbox_call_t  *call;

    r = upload->request;
    call = upload->call;
    begun = upload->received;

    for ( ;; ) {
        rc = ngx_http_sandbox_v1_upload_take(upload);

        if (rc == NGX_DONE) {
            return NGX_DONE;
        }

        if (rc == NGX_OK && !r->reading_body) {
            upload->whole = 1;

            if (ngx_http_sandbox_call_queue(call, SBX_F_DATA, NULL, 0)
                != NGX_OK)
            {
                return ngx_http_sandbox_op_broken(call,
                                                  "more than memory holds");
            }

            SBX_FAULT("worker-upload-sent");
            ngx_add_timer(&upload->stall, NGX_HTTP_SANDBOX_OP_STALL);
            ngx_http_sandbox_op_watch(r);

            return NGX_OK;
        }

        if (rc == NGX_AGAIN
            || ngx_http_sandbox_call_queued(call)
               > NGX_HTTP_SANDBOX_OP_WINDOW)
        {
            /* it is not the client who is late */

            if (r->connection->read->timer_set) {
                ngx_del_timer(r->connection->read);
            }

            ngx_add_timer(&upload->stall, NGX_HTTP_SANDBOX_OP_STALL);
            r->read_event_handler = ngx_http_block_reading;

            return NGX_OK;
        }

        r->read_event_handler = ngx_http_sandbox_v1_upload_read;

        if (upload->received - begun >= NGX_HTTP_SANDBOX_V1_UPLOAD_TURN
            || ngx_http_sandbox_turn_over())
        {
            ngx_http_sandbox_turn_wait(r->connection->read);
            return NGX_OK;
        }

        rc = ngx_http_read_unbuffered_request_body(r);

        if (rc >= NGX_HTTP_SPECIAL_RESPONSE) {
            return ngx_http_sandbox_op_finish(call, rc);
        }

        if (rc == NGX_AGAIN && r->request_body->bufs == NULL) {
            return NGX_OK;
        }
    }
}


/* NGX_AGAIN: there is more than the window has room for. */

static ngx_int_t
ngx_http_sandbox_v1_upload_take(ngx_http_sandbox_v1_upload_t *upload)
{
    ngx_int_t                 rc;
    sbx_error_t               e;
    ngx_http_sandbox_call_t  *call;

    call = upload->call;

    rc = ngx_http_sandbox_body_pass(call, SBX_F_DATA,
                                    NGX_HTTP_SANDBOX_OP_WINDOW,
                                    &upload->received);

    if (upload->received != 0) {
        SBX_FAULT("worker-upload-passed");
    }

    if (upload->max > 0 && upload->received > upload->max) {
        (void) ngx_http_sandbox_v1_upload_too_large(upload->max, &e);
        return ngx_http_sandbox_op_finish(call,
                          ngx_http_sandbox_problem_core(upload->request, &e));
    }

    return (rc != NGX_ERROR) ? rc
           : ngx_http_sandbox_op_broken(call, "more than memory holds");
}


static void
ngx_http_sandbox_v1_upload_read(ngx_http_request_t *r)
{
    ngx_http_sandbox_ctx_t  *ctx;

    /* it may be nginx's first word of a body, and no event */

    r->read_event_handler = ngx_http_sandbox_v1_upload_read;

    if (ngx_http_sandbox_turn_yield(r->connection)) {
        return;
    }

    ctx = ngx_http_sandbox_ctx(r);

    (void) ngx_http_sandbox_v1_upload_pump(ctx->data);
}


static void
ngx_http_sandbox_v1_upload_writable(ngx_http_sandbox_call_t *call)
{
    ngx_http_sandbox_v1_upload_t  *upload;

    upload = call->data;

    if (!ngx_http_sandbox_body_there(upload->request) || upload->whole) {
        return;
    }

    if (upload->stall.timer_set) {
        ngx_del_timer(&upload->stall);
    }

    upload->request->read_event_handler = ngx_http_sandbox_v1_upload_read;

    if (!ngx_http_sandbox_turn_yield(upload->request->connection)) {
        (void) ngx_http_sandbox_v1_upload_pump(upload);
    }
}


static void
ngx_http_sandbox_v1_upload_stalled(ngx_event_t *ev)
{
    ngx_http_request_t            *r;
    ngx_http_sandbox_v1_upload_t  *upload;

    upload = ev->data;
    r = upload->request;

    if (upload->call->closed) {

        /* answered; the connection lingers for what the client still sends */

        return;
    }

    ngx_log_error(NGX_LOG_ERR, r->connection->log, NGX_ETIMEDOUT,
                  "sandbox took no more of an upload");

    (void) ngx_http_sandbox_op_finish(upload->call,
               ngx_http_sandbox_problem(r,
                                        NGX_HTTP_SANDBOX_BROKER_UNAVAILABLE,
                                        NULL));
}


static void
ngx_http_sandbox_v1_upload_cleanup(void *data)
{
    ngx_http_sandbox_v1_upload_t  *upload = data;

    if (upload->stall.timer_set) {
        ngx_del_timer(&upload->stall);
    }
}


static ngx_int_t
ngx_http_sandbox_v1_upload_end(ngx_http_sandbox_v1_upload_t *upload,
    const sbx_f_end_t *end)
{
    u_char                   *path, *p;
    size_t                    len;
    ngx_http_request_t       *r;
    ngx_http_sandbox_json_t   j;

    static const u_char       workspace[] = NGX_HTTP_SANDBOX_OP_WORKSPACE "/";

    r = upload->request;

    len = sizeof(workspace) - 1 + upload->path.len;
    path = ngx_pnalloc(r->pool, len);

    if (path == NULL) {
        return ngx_http_sandbox_op_broken(upload->call,
                                          "more than memory holds");
    }

    p = path;

    if (upload->path.len == 0 || upload->path.data[0] != '/') {
        p = ngx_cpymem(p, workspace, sizeof(workspace) - 1);
    }

    p = ngx_cpymem(p, upload->path.data, upload->path.len);

    /* "dir/" with nothing after it is the directory */

    while (p - path > 1 && p[-1] == '/') {
        p--;
    }

    ngx_http_sandbox_json_init(&j, r->pool);
    ngx_http_sandbox_json_raw(&j, "{");
    ngx_http_sandbox_v1_file_json(&j, path, p - path);

    if (upload->unpack) {
        ngx_http_sandbox_json_raw(&j, ",\"entries\":");
        ngx_http_sandbox_json_int(&j, (int64_t) end->count);
    }

    ngx_http_sandbox_json_raw(&j, ",\"size\":");
    ngx_http_sandbox_json_int(&j, (int64_t) end->size);
    ngx_http_sandbox_json_raw(&j, "}");

    return ngx_http_sandbox_op_finish(upload->call,
               ngx_http_sandbox_json_send(r, end->created && !upload->unpack
                                             ? NGX_HTTP_CREATED : NGX_HTTP_OK,
                                          &j));
}
