/*
 * More for the standard input of a process.  The body is passed on as it
 * comes; while the process does not read, neither is the client.
 *
 *   PROCESS -> READY -> STDIN ... STDIN(0) -> END
 */

#include "ngx_http_sandbox_v1_exec.h"


#define NGX_HTTP_SANDBOX_V1_WINDOW        (256 * 1024)
#define NGX_HTTP_SANDBOX_V1_STDIN_TURN    (128 * 1024)


typedef struct {
    ngx_http_request_t        *request;
    ngx_http_sandbox_call_t   *call;
    off_t                      passed;
    unsigned                   ready:1;
    unsigned                   whole:1;       /* the last STDIN is queued */
} ngx_http_sandbox_v1_stdin_t;


static ngx_int_t ngx_http_sandbox_v1_stdin_frame(
    ngx_http_sandbox_call_t *call, const sbx_frame_t *frame,
    const u_char *payload, ngx_fd_t fd);
static ngx_int_t ngx_http_sandbox_v1_stdin_begin(
    ngx_http_sandbox_v1_stdin_t *in);
static ngx_int_t ngx_http_sandbox_v1_stdin_pump(
    ngx_http_sandbox_v1_stdin_t *in);
static void ngx_http_sandbox_v1_stdin_wait(ngx_http_sandbox_v1_stdin_t *in);
static ngx_int_t ngx_http_sandbox_v1_stdin_more(
    ngx_http_sandbox_v1_stdin_t *in);
static void ngx_http_sandbox_v1_stdin_read(ngx_http_request_t *r);
static void ngx_http_sandbox_v1_stdin_writable(ngx_http_sandbox_call_t *call);


ngx_int_t
ngx_http_sandbox_v1_process_stdin(ngx_http_request_t *r)
{
    ngx_uint_t                    eof;
    sbx_error_t                   e;
    sbx_f_process_t               process;
    ngx_http_sandbox_call_t      *call;
    ngx_http_sandbox_v1_stdin_t  *in;

    /* a refusal must not be preceded by "100 Continue" */

    r->expect_tested = 1;

    in = ngx_pcalloc(r->pool, sizeof(ngx_http_sandbox_v1_stdin_t));

    if (in == NULL) {
        return ngx_http_sandbox_problem(r, NGX_HTTP_SANDBOX_INTERNAL, NULL);
    }

    ngx_memzero(&process, sizeof(sbx_f_process_t));
    process.verb = SBX_PROCESS_STDIN;
    eof = 0;

    if (ngx_http_sandbox_v1_process_pid(r, &process, &e) != 0
        || ngx_http_sandbox_op_flag(r, "eof", &eof, &e) != 0)
    {
        return ngx_http_sandbox_problem_core(r, &e);
    }

    process.flags = eof ? SBX_PROCESS_EOF : 0;

    call = ngx_http_sandbox_v1_process_call(r, &process, in);

    if (call != NULL) {
        call->frame = ngx_http_sandbox_v1_stdin_frame;
        call->writable = ngx_http_sandbox_v1_stdin_writable;

        in->request = r;
        in->call = call;
        ngx_http_sandbox_ctx(r)->data = in;
    }

    return ngx_http_sandbox_op_start(r, call);
}


static ngx_int_t
ngx_http_sandbox_v1_stdin_frame(ngx_http_sandbox_call_t *call,
    const sbx_frame_t *frame, const u_char *payload, ngx_fd_t fd)
{
    ngx_int_t                     rc;
    ngx_http_sandbox_v1_stdin_t  *in;

    in = call->data;

    rc = ngx_http_sandbox_op_frame(call, frame, payload, fd);

    if (rc != NGX_DECLINED) {
        return rc;
    }

    if (frame->type == SBX_F_READY && !in->ready) {
        return ngx_http_sandbox_v1_stdin_begin(in);
    }

    if (frame->type == SBX_F_END && in->whole) {
        return ngx_http_sandbox_op_finish(call,
                            ngx_http_sandbox_op_no_content(call->request));
    }

    return ngx_http_sandbox_op_broken(call, "a wrong frame for stdin");
}


static ngx_int_t
ngx_http_sandbox_v1_stdin_begin(ngx_http_sandbox_v1_stdin_t *in)
{
    ngx_int_t            rc;
    ngx_http_request_t  *r;

    r = in->request;

    in->ready = 1;

    /* a process may leave its input alone for as long as it likes */

    in->call->timeout = 0;

    rc = ngx_http_sandbox_body_stream(r, ngx_http_sandbox_v1_stdin_read);

    if (rc >= NGX_HTTP_SPECIAL_RESPONSE) {
        return ngx_http_sandbox_op_finish(in->call, rc);
    }

    return (rc == NGX_OK) ? ngx_http_sandbox_v1_stdin_pump(in) : NGX_OK;
}


/*
 * Moves what can be moved.  NGX_OK, or NGX_DONE when the request is over and
 * nothing of it may be touched.
 */

static ngx_int_t
ngx_http_sandbox_v1_stdin_pump(ngx_http_sandbox_v1_stdin_t *in)
{
    off_t      begun;
    ngx_int_t  rc;

    for (begun = in->passed; /* void */; /* void */) {
        if (in->passed - begun >= NGX_HTTP_SANDBOX_V1_STDIN_TURN
            || ngx_http_sandbox_turn_over())
        {
            in->request->read_event_handler = ngx_http_sandbox_v1_stdin_read;
            ngx_http_sandbox_turn_wait(in->request->connection->read);
            return NGX_OK;
        }

        rc = ngx_http_sandbox_body_pass(in->call, SBX_F_STDIN,
                                        NGX_HTTP_SANDBOX_V1_WINDOW,
                                        &in->passed);

        if (rc == NGX_ERROR) {
            return ngx_http_sandbox_op_broken(in->call,
                                              "more than memory holds");
        }

        if (rc == NGX_AGAIN) {
            ngx_http_sandbox_v1_stdin_wait(in);
            return NGX_OK;
        }

        rc = ngx_http_sandbox_v1_stdin_more(in);

        if (rc != NGX_AGAIN) {
            return rc;
        }
    }
}


/* NGX_AGAIN: there is more to take. */

static ngx_int_t
ngx_http_sandbox_v1_stdin_more(ngx_http_sandbox_v1_stdin_t *in)
{
    ngx_int_t            rc;
    ngx_http_request_t  *r;

    r = in->request;

    if (!r->reading_body) {
        in->whole = 1;

        if (ngx_http_sandbox_call_queue(in->call, SBX_F_STDIN, NULL, 0)
            != NGX_OK)
        {
            return ngx_http_sandbox_op_broken(in->call,
                                              "more than memory holds");
        }

        ngx_http_sandbox_op_watch(r);

        return NGX_OK;
    }

    if (ngx_http_sandbox_call_queued(in->call) > NGX_HTTP_SANDBOX_V1_WINDOW) {
        ngx_http_sandbox_v1_stdin_wait(in);
        return NGX_OK;
    }

    r->read_event_handler = ngx_http_sandbox_v1_stdin_read;

    rc = ngx_http_read_unbuffered_request_body(r);

    if (rc >= NGX_HTTP_SPECIAL_RESPONSE) {
        return ngx_http_sandbox_op_finish(in->call, rc);
    }

    return (rc == NGX_AGAIN && r->request_body->bufs == NULL) ? NGX_OK
                                                              : NGX_AGAIN;
}


/* It is not the client who is late; but it may go away. */

static void
ngx_http_sandbox_v1_stdin_wait(ngx_http_sandbox_v1_stdin_t *in)
{
    ngx_event_t  *rev;

    rev = in->request->connection->read;

    if (rev->timer_set) {
        ngx_del_timer(rev);
    }

    ngx_http_sandbox_op_watch(in->request);
}


static void
ngx_http_sandbox_v1_stdin_read(ngx_http_request_t *r)
{
    /* it may be nginx's first word of a body, and no event */

    r->read_event_handler = ngx_http_sandbox_v1_stdin_read;

    if (ngx_http_sandbox_turn_yield(r->connection)) {
        return;
    }

    (void) ngx_http_sandbox_v1_stdin_pump(ngx_http_sandbox_ctx(r)->data);
}


static void
ngx_http_sandbox_v1_stdin_writable(ngx_http_sandbox_call_t *call)
{
    ngx_http_sandbox_v1_stdin_t  *in;

    in = call->data;

    if (ngx_http_sandbox_body_there(in->request) && !in->whole) {
        (void) ngx_http_sandbox_v1_stdin_pump(in);
    }
}
