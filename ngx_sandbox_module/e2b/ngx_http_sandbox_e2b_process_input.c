/*
 * What is written to a process: SendInput, CloseStdin, and what StreamInput
 * has in common with them.
 *
 *   PROCESS -> READY -> STDIN ... STDIN(0) -> END
 */

#include "ngx_http_sandbox_e2b_process.h"


static ngx_int_t ngx_http_sandbox_e2b_base64(ngx_pool_t *pool,
    const sbx_json_str_t *text, ngx_str_t *bytes);
static ngx_int_t ngx_http_sandbox_e2b_feed_once(
    ngx_http_sandbox_e2b_feed_t *feed, const ngx_str_t *bytes);
static ngx_int_t ngx_http_sandbox_e2b_feed_frame(
    ngx_http_sandbox_call_t *call, const sbx_frame_t *frame,
    const u_char *payload, ngx_fd_t fd);
static ngx_int_t ngx_http_sandbox_e2b_feed_refused(
    ngx_http_sandbox_call_t *call, const sbx_f_error_t *error);


#define DATA(field)  offsetof(ngx_http_sandbox_e2b_data_t, field)

static const sbx_json_field_t  ngx_http_sandbox_e2b_data_fields[] = {
    { .name = "pty", .type = SBX_JSON_STRING, .nullable = 1,
      .offset = DATA(pty), .seen = DATA(has_pty) },
    { .name = "stdin", .type = SBX_JSON_STRING, .nullable = 1,
      .offset = DATA(in), .seen = DATA(has_in) },
    NGX_HTTP_SANDBOX_E2B_LAX
};

#define SEND(field)  offsetof(ngx_http_sandbox_e2b_send_t, field)

const sbx_json_field_t  ngx_http_sandbox_e2b_send_fields[] = {
    NGX_HTTP_SANDBOX_E2B_SELECTOR(ngx_http_sandbox_e2b_send_t, process),
    { .name = "input", .type = SBX_JSON_OBJECT, .nullable = 1,
      .fields = ngx_http_sandbox_e2b_data_fields, .offset = SEND(input) },
    { .name = "data", .type = SBX_JSON_STRING, .nullable = 1,
      .offset = SEND(text), .seen = SEND(has_text) },
    NGX_HTTP_SANDBOX_E2B_LAX
};

const sbx_json_field_t  ngx_http_sandbox_e2b_close_fields[] = {
    NGX_HTTP_SANDBOX_E2B_SELECTOR(ngx_http_sandbox_e2b_close_t, process),
    NGX_HTTP_SANDBOX_E2B_LAX
};


/* ---- bytes -------------------------------------------------------------- */


/* Of either alphabet, padded or not.  NGX_OK, NGX_DECLINED: it is none,
 * NGX_ERROR: out of memory. */

static ngx_int_t
ngx_http_sandbox_e2b_base64(ngx_pool_t *pool, const sbx_json_str_t *text,
    ngx_str_t *bytes)
{
    size_t     i, len;
    u_char    *p;
    ngx_str_t  standard;

    len = text->len;

    while (len != 0 && text->len - len < 2 && text->data[len - 1] == '=') {
        len--;
    }

    if (len % 4 == 1 || (len != text->len && text->len % 4 != 0)) {
        return NGX_DECLINED;
    }

    p = ngx_pnalloc(pool, len + ngx_base64_decoded_length(len) + 1);

    if (p == NULL) {
        return NGX_ERROR;
    }

    for (i = 0; i < len; i++) {
        p[i] = (text->data[i] == '-') ? '+'
               : (text->data[i] == '_') ? '/' : (u_char) text->data[i];

        /* the decoder stops at it */

        if (p[i] == '=') {
            return NGX_DECLINED;
        }
    }

    standard.data = p;
    standard.len = len;
    bytes->data = p + len;

    return (ngx_decode_base64(bytes, &standard) == NGX_OK) ? NGX_OK
                                                           : NGX_DECLINED;
}


/* NGX_OK, or NGX_DECLINED: refused with *rc. */

ngx_int_t
ngx_http_sandbox_e2b_input(ngx_http_request_t *r,
    const ngx_http_sandbox_e2b_data_t *data, ngx_pool_t *pool,
    ngx_str_t *bytes, uint32_t *flag, ngx_int_t *rc)
{
    *flag = data->has_pty ? SBX_PROCESS_TTY : SBX_PROCESS_PIPE;

    if (!data->has_pty && !data->has_in) {
        *rc = ngx_http_sandbox_problem(r, NGX_HTTP_SANDBOX_NOT_IMPLEMENTED,
                                       "invalid input type: there are stdin "
                                       "and pty");
        return NGX_DECLINED;
    }

    switch (ngx_http_sandbox_e2b_base64(pool, data->has_pty ? &data->pty
                                                            : &data->in,
                                        bytes))
    {

    case NGX_OK:
        return NGX_OK;

    case NGX_DECLINED:
        *rc = ngx_http_sandbox_problem(r, NGX_HTTP_SANDBOX_INVALID_REQUEST,
                                       "/input/%s: is not base64",
                                       data->has_pty ? "pty" : "stdin");
        return NGX_DECLINED;

    default:
        *rc = ngx_http_sandbox_problem(r, NGX_HTTP_SANDBOX_INTERNAL, NULL);
        return NGX_DECLINED;
    }
}


/* ---- SendInput, CloseStdin ---------------------------------------------- */


ngx_int_t
ngx_http_sandbox_e2b_process_send_input(ngx_http_request_t *r)
{
    ngx_int_t                     rc;
    ngx_str_t                     bytes;
    sbx_error_t                   e;
    ngx_http_sandbox_e2b_feed_t  *feed;
    ngx_http_sandbox_e2b_send_t   body;

    feed = ngx_http_sandbox_e2b_feed(r);

    if (feed == NULL) {
        return ngx_http_sandbox_problem(r, NGX_HTTP_SANDBOX_INTERNAL, NULL);
    }

    ngx_memzero(&body, sizeof(body));

    if (ngx_http_sandbox_e2b_bind(r, ngx_http_sandbox_e2b_send_fields, &body,
                                  &e)
        != 0)
    {
        return ngx_http_sandbox_problem_core(r, &e);
    }

    if (ngx_http_sandbox_e2b_select(r, &body.process, &feed->process, &rc)
        != NGX_OK)
    {
        return rc;
    }

    if (body.has_text) {

        /* as it is, to whatever the process reads */

        bytes.data = (u_char *) body.text.data;
        bytes.len = body.text.len;

    } else if (ngx_http_sandbox_e2b_input(r, &body.input, r->pool, &bytes,
                                         &feed->process.flags, &rc)
               != NGX_OK)
    {
        return rc;
    }

    return ngx_http_sandbox_e2b_feed_once(feed, &bytes);
}


ngx_int_t
ngx_http_sandbox_e2b_process_close_stdin(ngx_http_request_t *r)
{
    ngx_int_t                      rc;
    ngx_str_t                      nothing;
    sbx_error_t                    e;
    ngx_http_sandbox_e2b_feed_t   *feed;
    ngx_http_sandbox_e2b_close_t   body;

    feed = ngx_http_sandbox_e2b_feed(r);

    if (feed == NULL) {
        return ngx_http_sandbox_problem(r, NGX_HTTP_SANDBOX_INTERNAL, NULL);
    }

    ngx_memzero(&body, sizeof(body));

    if (ngx_http_sandbox_e2b_bind(r, ngx_http_sandbox_e2b_close_fields, &body,
                                  &e)
        != 0)
    {
        return ngx_http_sandbox_problem_core(r, &e);
    }

    if (ngx_http_sandbox_e2b_select(r, &body.process, &feed->process, &rc)
        != NGX_OK)
    {
        return rc;
    }

    feed->closes = 1;
    feed->process.flags = SBX_PROCESS_PIPE|SBX_PROCESS_EOF;
    ngx_str_null(&nothing);

    return ngx_http_sandbox_e2b_feed_once(feed, &nothing);
}


ngx_http_sandbox_e2b_feed_t *
ngx_http_sandbox_e2b_feed(ngx_http_request_t *r)
{
    ngx_http_sandbox_e2b_feed_t  *feed;

    feed = ngx_pcalloc(r->pool, sizeof(ngx_http_sandbox_e2b_feed_t));

    if (feed != NULL) {
        feed->request = r;
        feed->process.verb = SBX_PROCESS_STDIN;
        ngx_http_sandbox_ctx(r)->data = feed;
    }

    return feed;
}


ngx_int_t
ngx_http_sandbox_e2b_feed_open(ngx_http_sandbox_e2b_feed_t *feed)
{
    ngx_http_sandbox_call_t  *call;

    call = ngx_http_sandbox_e2b_process_call(feed->request, &feed->process,
                                             feed);

    if (call == NULL) {
        return NGX_ERROR;
    }

    call->frame = ngx_http_sandbox_e2b_feed_frame;
    feed->call = call;
    feed->fed = 0;
    feed->ending = 0;

    return NGX_OK;
}


/* All that there is goes with the question. */

static ngx_int_t
ngx_http_sandbox_e2b_feed_once(ngx_http_sandbox_e2b_feed_t *feed,
    const ngx_str_t *bytes)
{
    ngx_http_request_t  *r;

    r = feed->request;

    if (ngx_http_sandbox_e2b_feed_open(feed) != NGX_OK
        || ngx_http_sandbox_call_queue_bytes(feed->call, SBX_F_STDIN,
                                             bytes->data, bytes->len)
           != NGX_OK
        || ngx_http_sandbox_call_queue(feed->call, SBX_F_STDIN, NULL, 0)
           != NGX_OK)
    {
        return ngx_http_sandbox_problem(r, NGX_HTTP_SANDBOX_INTERNAL, NULL);
    }

    feed->ending = 1;
    feed->whole = 1;

    return ngx_http_sandbox_op_start(r, feed->call);
}


static ngx_int_t
ngx_http_sandbox_e2b_feed_frame(ngx_http_sandbox_call_t *call,
    const sbx_frame_t *frame, const u_char *payload, ngx_fd_t fd)
{
    ngx_int_t                     rc;
    ngx_http_sandbox_e2b_feed_t  *feed;

    feed = call->data;

    if (frame->type == SBX_F_ERROR) {
        return ngx_http_sandbox_e2b_feed_refused(call,
                                         (const sbx_f_error_t *) payload);
    }

    rc = ngx_http_sandbox_op_frame(call, frame, payload, fd);

    if (rc != NGX_DECLINED) {
        return rc;
    }

    if (frame->type == SBX_F_READY) {

        /* a process may leave its input alone for as long as it likes */

        call->timeout = 0;

        return NGX_OK;
    }

    if (frame->type != SBX_F_END || !feed->ending) {
        return ngx_http_sandbox_op_broken(call, "a wrong frame for stdin");
    }

    if (feed->whole) {
        return ngx_http_sandbox_op_finish(call,
                               ngx_http_sandbox_e2b_fed(feed->request));
    }

    /* a stream goes on with another process */

    ngx_http_sandbox_call_close(call);
    feed->call = NULL;
    feed->process = feed->next;
    feed->ending = 0;

    return (ngx_http_sandbox_e2b_pump(feed) == NGX_DONE) ? NGX_DONE : NGX_OK;
}


static ngx_int_t
ngx_http_sandbox_e2b_feed_refused(ngx_http_sandbox_call_t *call,
    const sbx_f_error_t *error)
{
    ngx_uint_t                    closed;
    ngx_http_request_t           *r;
    ngx_http_sandbox_e2b_feed_t  *feed;

    r = call->request;
    feed = call->data;

    closed = (error->code == SBX_E_CONFLICT && error->err == EPIPE);

    /* what is to be closed, or to be written nothing, may be closed */

    if (closed && feed->whole
        && (feed->closes || (feed->stream && !feed->fed)))
    {
        return ngx_http_sandbox_op_finish(call,
                                          ngx_http_sandbox_e2b_fed(r));
    }

    if (feed->closes) {
        return ngx_http_sandbox_op_finish(call,
                   ngx_http_sandbox_e2b_process_refuse(r, &feed->process,
                       error, "unknown", "error closing stdin"));
    }

    return ngx_http_sandbox_op_finish(call,
               ngx_http_sandbox_e2b_process_refuse(r, &feed->process, error,
                   "internal",
                   (feed->process.flags & SBX_PROCESS_TTY)
                   ? "error writing to tty" : "error writing to stdin"));
}


/* {}, as a message and an end where it is a stream. */

ngx_int_t
ngx_http_sandbox_e2b_fed(ngx_http_request_t *r)
{
    ngx_int_t                     rc;
    ngx_http_sandbox_stream_t    *s;
    ngx_http_sandbox_e2b_feed_t  *feed;

    feed = ngx_http_sandbox_ctx(r)->data;

    if (!feed->stream) {
        return ngx_http_sandbox_e2b_empty(r);
    }

    s = ngx_http_sandbox_stream_create(r, NGX_HTTP_SANDBOX_STREAM_CONNECT);

    if (s == NULL) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    rc = ngx_http_sandbox_stream_open(s);

    if (rc != NGX_OK) {
        return (rc == NGX_DONE) ? NGX_OK : rc;
    }

    ngx_http_sandbox_json_raw(ngx_http_sandbox_stream_event(s, NULL), "{}");

    return ngx_http_sandbox_stream_last(s);
}
