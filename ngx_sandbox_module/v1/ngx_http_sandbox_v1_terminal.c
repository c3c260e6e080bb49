/*
 * A shell in a browser's window: a command with a terminal, whose bytes go
 * over a WebSocket.  Nothing is upgraded before the shell runs; what is wrong
 * until then is answered as any other request.
 *
 *   binary frames          bytes of the terminal, both ways
 *   text frames            {"type":"resize",...}, {"type":"signal",...}
 *   either side's close    the end of the other
 */

#include "ngx_http_sandbox_v1_exec.h"
#include "websocket.h"

#include <ngx_sha1.h>


#define NGX_HTTP_SANDBOX_V1_WINDOW       (64 * 1024)
#define NGX_HTTP_SANDBOX_V1_READ         4096
#define NGX_HTTP_SANDBOX_V1_READS        4        /* before others' turn */
#define NGX_HTTP_SANDBOX_V1_COST         4        /* its frames may be short */
#define NGX_HTTP_SANDBOX_V1_TEXT_MAX     1024     /* of a control message */
#define NGX_HTTP_SANDBOX_V1_PINGS        4        /* without an answer */


typedef struct {
    ngx_http_request_t              *request;
    ngx_http_sandbox_call_t         *call;
    ngx_http_sandbox_stream_t       *stream;
    ngx_str_t                        key;
    sbx_ws_t                         ws;
    u_char                          *text;        /* of a control message */
    size_t                           text_len;
    ngx_uint_t                       pings;
    unsigned                         open:1;
} ngx_http_sandbox_v1_terminal_t;

typedef struct {
    sbx_json_str_t                   type;
    uint64_t                         rows;
    uint64_t                         cols;
} ngx_http_sandbox_v1_window_t;


static int ngx_http_sandbox_v1_terminal_check(ngx_http_request_t *r,
    ngx_http_sandbox_v1_terminal_t *terminal, sbx_error_t *e);
static ngx_int_t ngx_http_sandbox_v1_terminal_refuse(ngx_http_request_t *r,
    const sbx_error_t *e);
static ngx_int_t ngx_http_sandbox_v1_terminal_start(ngx_http_request_t *r,
    ngx_http_sandbox_v1_terminal_t *terminal, sbx_f_exec_t *exec);
static ngx_int_t ngx_http_sandbox_v1_terminal_frame(
    ngx_http_sandbox_call_t *call, const sbx_frame_t *frame,
    const u_char *payload, ngx_fd_t fd);
static ngx_int_t ngx_http_sandbox_v1_terminal_open(
    ngx_http_sandbox_v1_terminal_t *terminal);
static ngx_int_t ngx_http_sandbox_v1_terminal_exit(
    ngx_http_sandbox_v1_terminal_t *terminal, const sbx_f_exit_t *end);
static ngx_int_t ngx_http_sandbox_v1_terminal_close(
    ngx_http_sandbox_v1_terminal_t *terminal, ngx_uint_t code,
    const char *reason);
static void ngx_http_sandbox_v1_terminal_failed(ngx_http_sandbox_call_t *call,
    ngx_http_sandbox_error_e error);
static void ngx_http_sandbox_v1_terminal_read(ngx_http_request_t *r);
static void ngx_http_sandbox_v1_terminal_writable(
    ngx_http_sandbox_call_t *call);
static ngx_int_t ngx_http_sandbox_v1_terminal_take(
    ngx_http_sandbox_v1_terminal_t *terminal, u_char *p, size_t len);
static ngx_int_t ngx_http_sandbox_v1_terminal_event(
    ngx_http_sandbox_v1_terminal_t *terminal, const sbx_ws_event_t *event);
static ngx_int_t ngx_http_sandbox_v1_terminal_text(
    ngx_http_sandbox_v1_terminal_t *terminal, const sbx_ws_event_t *event);
static int ngx_http_sandbox_v1_terminal_control(
    ngx_http_sandbox_v1_terminal_t *terminal, sbx_f_process_t *process,
    sbx_error_t *e);
static ngx_int_t ngx_http_sandbox_v1_terminal_ping(
    ngx_http_sandbox_stream_t *s);
static void ngx_http_sandbox_v1_terminal_cut(ngx_http_sandbox_stream_t *s);


/* The shell of the template, as at a login. */

static const char  ngx_http_sandbox_v1_terminal_strings[] =
    "\0"
    "/bin/sh\0"
    "-c\0"
    "test -x /bin/bash && exec /bin/bash -l; exec /bin/sh -l\0"
    "TERM=xterm-256color";


ngx_int_t
ngx_http_sandbox_v1_terminal(ngx_http_request_t *r)
{
    uint64_t                         rows, cols;
    sbx_error_t                      e;
    sbx_f_exec_t                     exec;
    ngx_http_sandbox_v1_terminal_t  *terminal;

    terminal = ngx_pcalloc(r->pool, sizeof(ngx_http_sandbox_v1_terminal_t));

    if (terminal == NULL) {
        return ngx_http_sandbox_problem(r, NGX_HTTP_SANDBOX_INTERNAL, NULL);
    }

    rows = 24;
    cols = 80;

    if (ngx_http_sandbox_v1_terminal_check(r, terminal, &e) != 0) {
        return ngx_http_sandbox_v1_terminal_refuse(r, &e);
    }

    if (ngx_http_sandbox_op_number(r, "rows", 1, 65535, &rows, &e) != 0
        || ngx_http_sandbox_op_number(r, "cols", 1, 65535, &cols, &e) != 0)
    {
        return ngx_http_sandbox_problem_core(r, &e);
    }

    ngx_memzero(&exec, sizeof(sbx_f_exec_t));

    exec.flags = SBX_EXEC_TTY | SBX_EXEC_STDIN_OPEN | SBX_EXEC_DEFAULT_CWD;
    exec.argc = 3;
    exec.envc = 1;
    exec.strings_size = sizeof(ngx_http_sandbox_v1_terminal_strings);
    exec.timeout = SBX_UNLIMITED;
    exec.max_output = SBX_UNSET;
    exec.cpu_seconds = SBX_UNSET;
    exec.max_file_size = SBX_UNSET;
    exec.open_files = SBX_UNSET;
    exec.stack = SBX_UNSET;
    exec.rows = (uint32_t) rows;
    exec.cols = (uint32_t) cols;

    return ngx_http_sandbox_v1_terminal_start(r, terminal, &exec);
}


/* ---- the handshake ------------------------------------------------------ */


/* Whether one of a header's words is this. */

static ngx_uint_t
ngx_http_sandbox_v1_terminal_word(ngx_http_request_t *r, const char *name,
    const char *word)
{
    size_t      n, len;
    u_char     *p, *end;
    ngx_str_t   value;

    if (ngx_http_sandbox_op_header(r, name, &value) != NGX_OK) {
        return 0;
    }

    p = value.data;
    end = p + value.len;
    len = ngx_strlen(word);

    while (p < end) {
        for (n = 0; p + n < end; n++) {
            if (p[n] == ',' || p[n] == ' ' || p[n] == '\t') {
                break;
            }
        }

        if (n == len && ngx_strncasecmp(p, (u_char *) word, len) == 0) {
            return 1;
        }

        p += n + 1;
    }

    return 0;
}


/* A page of another origin may open a WebSocket, and no browser asks. */

static ngx_uint_t
ngx_http_sandbox_v1_terminal_origin(ngx_http_request_t *r)
{
    u_char     *host;
    ngx_int_t   rc;
    ngx_str_t   origin;

    rc = ngx_http_sandbox_op_header(r, "origin", &origin);

    if (rc == NGX_DECLINED) {
        return 1;
    }

    if (rc != NGX_OK || r->headers_in.host == NULL) {
        return 0;
    }

    host = ngx_strnstr(origin.data, "://", origin.len);

    if (host == NULL) {
        return 0;
    }

    host += 3;
    origin.len -= host - origin.data;

    return origin.len == r->headers_in.host->value.len
           && ngx_strncasecmp(host, r->headers_in.host->value.data,
                              origin.len)
              == 0;
}


static int
ngx_http_sandbox_v1_terminal_check(ngx_http_request_t *r,
    ngx_http_sandbox_v1_terminal_t *terminal, sbx_error_t *e)
{
    u_char      decoded[18];
    ngx_str_t   version, key;

    if (r->http_version != NGX_HTTP_VERSION_11) {
        return sbx_error(e, 0, SBX_E_INVALID,
                         "a terminal is a WebSocket, and that needs "
                         "HTTP/1.1");
    }

    if (r->method != NGX_HTTP_GET
        || !ngx_http_sandbox_v1_terminal_word(r, "upgrade", "websocket")
        || !ngx_http_sandbox_v1_terminal_word(r, "connection", "upgrade"))
    {
        return sbx_error(e, 0, SBX_E_INVALID,
                         "a terminal is a WebSocket: send GET with "
                         "\"Connection: Upgrade\" and "
                         "\"Upgrade: websocket\"");
    }

    if (r->headers_in.content_length_n > 0 || r->headers_in.chunked) {
        return sbx_error(e, 0, SBX_E_INVALID,
                         "a WebSocket begins without a body");
    }

    if (ngx_http_sandbox_op_header(r, "sec-websocket-version", &version)
        != NGX_OK || !ngx_http_sandbox_op_is(&version, "13"))
    {
        return sbx_error(e, 0, SBX_E_INVALID,
                         "Sec-WebSocket-Version must be 13");
    }

    if (ngx_http_sandbox_op_header(r, "sec-websocket-key", &terminal->key)
        != NGX_OK || terminal->key.len != 24)
    {
        return sbx_error(e, 0, SBX_E_INVALID,
                         "Sec-WebSocket-Key must be 16 bytes in base64");
    }

    key.data = decoded;
    key.len = sizeof(decoded);

    if (ngx_decode_base64(&key, &terminal->key) != NGX_OK || key.len != 16) {
        return sbx_error(e, 0, SBX_E_INVALID,
                         "Sec-WebSocket-Key must be 16 bytes in base64");
    }

    if (!ngx_http_sandbox_v1_terminal_origin(r)) {
        return sbx_error(e, 0, SBX_E_DENIED, "Origin");
    }

    return 0;
}


static ngx_int_t
ngx_http_sandbox_v1_terminal_refuse(ngx_http_request_t *r,
    const sbx_error_t *e)
{
    ngx_uint_t  i;

    static struct {
        const char   *name;
        ngx_str_t     value;
    } wanted[] = {
        { "Upgrade", ngx_string("websocket") },
        { "Sec-WebSocket-Version", ngx_string("13") }
    };

    if (e->code == SBX_E_DENIED) {
        return ngx_http_sandbox_problem(r, NGX_HTTP_SANDBOX_FORBIDDEN,
                                        "Origin is not this server: a page "
                                        "of another site opens no terminal");
    }

    /* HTTP/2 has no header of a connection's */

    for (i = (r->http_version < NGX_HTTP_VERSION_20) ? 0 : 1;
         i < sbx_nelts(wanted);
         i++)
    {
        if (ngx_http_sandbox_add_header(r, wanted[i].name, &wanted[i].value)
            != NGX_OK)
        {
            return NGX_HTTP_INTERNAL_SERVER_ERROR;
        }
    }

    return ngx_http_sandbox_problem_core(r, e);
}


static ngx_int_t
ngx_http_sandbox_v1_terminal_start(ngx_http_request_t *r,
    ngx_http_sandbox_v1_terminal_t *terminal, sbx_f_exec_t *exec)
{
    sbx_exec_limits_t         limits;
    ngx_http_sandbox_call_t  *call;

    limits.memory = SBX_UNSET;
    limits.cpus = SBX_UNSET;
    limits.processes = SBX_UNSET;

    terminal->stream = ngx_http_sandbox_stream_create(r,
                                               NGX_HTTP_SANDBOX_STREAM_RAW);
    call = ngx_http_sandbox_op_call(r, SBX_OP_EXEC, &limits,
                                    sizeof(sbx_exec_limits_t),
                                    NGX_INVALID_FILE, terminal);

    if (call == NULL || terminal->stream == NULL
        || ngx_http_sandbox_call_queue(call, SBX_F_EXEC, exec,
                                       sizeof(sbx_f_exec_t)) != NGX_OK
        || ngx_http_sandbox_call_queue_bytes(call, SBX_F_STRINGS,
                                         ngx_http_sandbox_v1_terminal_strings,
                                         exec->strings_size) != NGX_OK)
    {
        return ngx_http_sandbox_problem(r, NGX_HTTP_SANDBOX_INTERNAL, NULL);
    }

    call->frame = ngx_http_sandbox_v1_terminal_frame;
    call->failed = ngx_http_sandbox_v1_terminal_failed;
    call->writable = ngx_http_sandbox_v1_terminal_writable;

    terminal->request = r;
    terminal->call = call;
    terminal->stream->call = call;
    terminal->stream->data = terminal;
    terminal->stream->ping = ngx_http_sandbox_v1_terminal_ping;
    terminal->stream->cut = ngx_http_sandbox_v1_terminal_cut;

    ngx_http_sandbox_ctx(r)->data = terminal;

    return ngx_http_sandbox_op_start(r, call);
}


static ngx_int_t
ngx_http_sandbox_v1_terminal_accept(ngx_http_request_t *r,
    const ngx_str_t *key)
{
    u_char       digest[20];
    ngx_str_t    value, plain;
    ngx_sha1_t   sha1;

    static const u_char  guid[] = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11";

    ngx_sha1_init(&sha1);
    ngx_sha1_update(&sha1, key->data, key->len);
    ngx_sha1_update(&sha1, guid, sizeof(guid) - 1);
    ngx_sha1_final(digest, &sha1);

    plain.data = digest;
    plain.len = sizeof(digest);

    value.data = ngx_pnalloc(r->pool, ngx_base64_encoded_length(plain.len));

    if (value.data == NULL) {
        return NGX_ERROR;
    }

    ngx_encode_base64(&value, &plain);

    if (ngx_http_sandbox_add_header(r, "Sec-WebSocket-Accept", &value)
        != NGX_OK)
    {
        return NGX_ERROR;
    }

    ngx_str_set(&value, "websocket");

    return ngx_http_sandbox_add_header(r, "Upgrade", &value);
}


/* ---- to the client ------------------------------------------------------ */


static ngx_int_t
ngx_http_sandbox_v1_terminal_send(ngx_http_sandbox_v1_terminal_t *terminal,
    sbx_ws_opcode_t opcode, const void *data, size_t len)
{
    u_char  head[SBX_WS_HEADER_MAX];

    return ngx_http_sandbox_stream_bytes(terminal->stream, head,
                                         sbx_ws_header(head, opcode, len),
                                         data, len);
}


static ngx_int_t
ngx_http_sandbox_v1_terminal_frame(ngx_http_sandbox_call_t *call,
    const sbx_frame_t *frame, const u_char *payload, ngx_fd_t fd)
{
    ngx_int_t                        rc;
    sbx_f_exit_t                     end;
    sbx_f_started_t                  started;
    ngx_http_sandbox_v1_terminal_t  *terminal;

    terminal = call->data;

    if (frame->type == SBX_F_ERROR && terminal->open) {
        return ngx_http_sandbox_v1_terminal_close(terminal, SBX_WS_INTERNAL,
                                                  "the session failed");
    }

    rc = ngx_http_sandbox_op_frame(call, frame, payload, fd);

    if (rc != NGX_DECLINED) {
        return rc;
    }

    switch (frame->type) {

    case SBX_F_STARTED:
        if (terminal->open) {
            return ngx_http_sandbox_op_broken(call, "a second start");
        }

        ngx_memcpy(&started, payload, sizeof(sbx_f_started_t));
        ngx_http_sandbox_ctx(call->request)->pid = started.pid;

        return ngx_http_sandbox_v1_terminal_open(terminal);

    case SBX_F_STDOUT:
    case SBX_F_STDERR:

        /* why there is no shell is told by its end */

        if (!terminal->open || frame->length == 0) {
            return NGX_OK;
        }

        rc = ngx_http_sandbox_v1_terminal_send(terminal, SBX_WS_BINARY,
                                               payload, frame->length);

        return (rc == NGX_ERROR) ? ngx_http_sandbox_op_finish(call, NGX_ERROR)
                                 : rc;

    case SBX_F_EXIT:
        ngx_memcpy(&end, payload, sizeof(sbx_f_exit_t));
        return ngx_http_sandbox_v1_terminal_exit(terminal, &end);

    default:
        return ngx_http_sandbox_op_broken(call, "a wrong frame for exec");
    }
}


static ngx_int_t
ngx_http_sandbox_v1_terminal_open(ngx_http_sandbox_v1_terminal_t *terminal)
{
    size_t               len;
    ngx_int_t            rc;
    ngx_buf_t           *b;
    ngx_http_request_t  *r;

    r = terminal->request;

    terminal->open = 1;

    /* it lasts as long as both sides want */

    terminal->call->timeout = 0;

    r->headers_out.status = NGX_HTTP_SWITCHING_PROTOCOLS;
    ngx_str_set(&r->headers_out.status_line, "101 Switching Protocols");
    ngx_http_clear_content_length(r);
    r->keepalive = 0;

    if (ngx_http_sandbox_v1_terminal_accept(r, &terminal->key) != NGX_OK) {
        return ngx_http_sandbox_op_broken(terminal->call,
                                          "more than memory holds");
    }

    rc = ngx_http_sandbox_stream_open(terminal->stream);

    if (rc != NGX_OK) {
        return ngx_http_sandbox_op_finish(terminal->call, NGX_ERROR);
    }

    /* what came with the request's header, and then what comes */

    r->read_event_handler = ngx_http_sandbox_v1_terminal_read;

    b = r->header_in;
    len = b->last - b->pos;
    b->pos = b->last;

    rc = ngx_http_sandbox_v1_terminal_take(terminal, b->last - len, len);

    if (rc == NGX_OK && r->connection->read->ready) {
        ngx_post_event(r->connection->read, &ngx_posted_events);
    }

    return rc;
}


static ngx_int_t
ngx_http_sandbox_v1_terminal_exit(ngx_http_sandbox_v1_terminal_t *terminal,
    const sbx_f_exit_t *end)
{
    char  reason[64];

    if (ngx_http_sandbox_op_exit(terminal->request, end) != NGX_OK) {
        return ngx_http_sandbox_op_broken(terminal->call,
                                          "an end that cannot be");
    }

    if (!terminal->open) {
        return ngx_http_sandbox_op_finish(terminal->call,
                   ngx_http_sandbox_problem(terminal->request,
                                            NGX_HTTP_SANDBOX_CONFLICT,
                                            "the session has no shell that "
                                            "can be started"));
    }

    *ngx_snprintf((u_char *) reason, sizeof(reason) - 1, "%s %d",
                  sbx_reason_word(end->reason), (int) end->exit_code) = '\0';

    return ngx_http_sandbox_v1_terminal_close(terminal, SBX_WS_NORMAL,
                                              reason);
}


/* Says so to the client, and is over.  NGX_DONE. */

static ngx_int_t
ngx_http_sandbox_v1_terminal_close(ngx_http_sandbox_v1_terminal_t *terminal,
    ngx_uint_t code, const char *reason)
{
    u_char     text[SBX_WS_CONTROL_MAX];
    size_t     len;
    ngx_int_t  rc;

    len = 0;

    if (code != 0) {
        text[0] = (u_char) (code >> 8);
        text[1] = (u_char) code;
        len = ngx_min(ngx_strlen(reason), sizeof(text) - 2);

        /* no part of a character at its end */

        while (len != 0 && ((u_char) reason[len] & 0xc0) == 0x80) {
            len--;
        }

        ngx_memcpy(text + 2, reason, len);
        len += 2;
    }

    rc = ngx_http_sandbox_v1_terminal_send(terminal, SBX_WS_CLOSE, text, len);

    if (rc != NGX_ERROR) {
        rc = ngx_http_sandbox_stream_close(terminal->stream);
    }

    /* what the client still sends must not reset what it has yet to read */

    terminal->request->lingering_close = 1;

    return ngx_http_sandbox_op_finish(terminal->call, rc);
}


static void
ngx_http_sandbox_v1_terminal_failed(ngx_http_sandbox_call_t *call,
    ngx_http_sandbox_error_e error)
{
    ngx_http_sandbox_v1_terminal_t  *terminal;

    terminal = call->data;

    if (!terminal->open) {
        ngx_http_sandbox_op_failed(call, error);
        return;
    }

    (void) ngx_http_sandbox_v1_terminal_close(terminal, SBX_WS_INTERNAL,
                                              "the session is gone");
}


static ngx_int_t
ngx_http_sandbox_v1_terminal_ping(ngx_http_sandbox_stream_t *s)
{
    ngx_http_sandbox_v1_terminal_t  *terminal;

    terminal = s->data;

    if (terminal->pings++ == NGX_HTTP_SANDBOX_V1_PINGS) {
        ngx_log_error(NGX_LOG_INFO, terminal->request->connection->log, 0,
                      "client of a terminal answers no ping");
        return NGX_ERROR;
    }

    return ngx_http_sandbox_v1_terminal_send(terminal, SBX_WS_PING, NULL, 0);
}


/* The time of a worker that is to end is over. */

static void
ngx_http_sandbox_v1_terminal_cut(ngx_http_sandbox_stream_t *s)
{
    (void) ngx_http_sandbox_v1_terminal_close(s->data, SBX_WS_AWAY,
                                              "the server ends");
}


/* ---- from the client ---------------------------------------------------- */


static void
ngx_http_sandbox_v1_terminal_read(ngx_http_request_t *r)
{
    u_char                           buf[NGX_HTTP_SANDBOX_V1_READ];
    ssize_t                          n;
    ngx_uint_t                       reads;
    ngx_connection_t                *c;
    ngx_http_sandbox_v1_terminal_t  *terminal;

    c = r->connection;
    terminal = ngx_http_sandbox_ctx(r)->data;

    if (ngx_http_sandbox_turn_yield(c)) {
        return;
    }

    for (reads = 0; /* void */ ; reads++) {

        if (ngx_http_sandbox_call_queued(terminal->call)
            > NGX_HTTP_SANDBOX_V1_WINDOW)
        {
            break;              /* _writable() goes on */
        }

        if (reads == NGX_HTTP_SANDBOX_V1_READS) {
            ngx_http_sandbox_turn_wait(c->read);
            return;
        }

        n = c->recv(c, buf, sizeof(buf));

        if (n == NGX_AGAIN) {
            break;
        }

        if (n == 0 || n == NGX_ERROR) {
            (void) ngx_http_sandbox_op_finish(terminal->call, NGX_ERROR);
            return;
        }

        ngx_http_sandbox_turn_spend(NGX_HTTP_SANDBOX_V1_COST * (size_t) n);

        if (ngx_http_sandbox_v1_terminal_take(terminal, buf, (size_t) n)
            != NGX_OK)
        {
            return;
        }
    }

    if (ngx_handle_read_event(c->read, 0) != NGX_OK) {
        (void) ngx_http_sandbox_op_finish(terminal->call, NGX_ERROR);
    }
}


static void
ngx_http_sandbox_v1_terminal_writable(ngx_http_sandbox_call_t *call)
{
    ngx_http_sandbox_v1_terminal_t  *terminal;

    terminal = call->data;

    if (terminal->open) {
        ngx_http_sandbox_v1_terminal_read(terminal->request);
    }
}


/* NGX_OK, or NGX_DONE when the request is over. */

static ngx_int_t
ngx_http_sandbox_v1_terminal_take(ngx_http_sandbox_v1_terminal_t *terminal,
    u_char *p, size_t len)
{
    int              got;
    u_char          *end;
    ngx_int_t        rc;
    sbx_ws_event_t   event;

    end = p + len;
    terminal->pings = 0;

    for ( ;; ) {
        got = sbx_ws_next(&terminal->ws, &p, end, &event);

        if (got == 0) {
            return NGX_OK;
        }

        if (got == -1) {
            return ngx_http_sandbox_v1_terminal_close(terminal, event.code,
                                                      "not a WebSocket's");
        }

        rc = ngx_http_sandbox_v1_terminal_event(terminal, &event);

        if (rc == NGX_ERROR) {
            return ngx_http_sandbox_op_finish(terminal->call, NGX_ERROR);
        }

        if (rc == NGX_DONE) {
            return NGX_DONE;
        }
    }
}


static ngx_int_t
ngx_http_sandbox_v1_terminal_event(ngx_http_sandbox_v1_terminal_t *terminal,
    const sbx_ws_event_t *event)
{
    ngx_int_t  rc;

    switch (event->opcode) {

    case SBX_WS_BINARY:
        return (event->len == 0) ? NGX_OK
               : ngx_http_sandbox_call_queue_bytes(terminal->call,
                                                   SBX_F_STDIN, event->data,
                                                   event->len);

    case SBX_WS_TEXT:
        return ngx_http_sandbox_v1_terminal_text(terminal, event);

    case SBX_WS_PING:

        /* who does not read its answers gets no more of them */

        if (ngx_http_sandbox_stream_behind(terminal->stream)) {
            return NGX_OK;
        }

        rc = ngx_http_sandbox_v1_terminal_send(terminal, SBX_WS_PONG,
                                               event->data, event->len);

        if (rc == NGX_AGAIN) {
            terminal->call->stopped = 1;
        }

        return (rc == NGX_ERROR) ? NGX_ERROR : NGX_OK;

    case SBX_WS_CLOSE:
        return ngx_http_sandbox_v1_terminal_close(terminal, event->code, "");

    default:
        return NGX_OK;
    }
}


/* A control message, which may come in parts. */

static ngx_int_t
ngx_http_sandbox_v1_terminal_text(ngx_http_sandbox_v1_terminal_t *terminal,
    const sbx_ws_event_t *event)
{
    sbx_error_t          e;
    sbx_f_process_t      process;
    ngx_http_request_t  *r;

    r = terminal->request;

    if (event->len > NGX_HTTP_SANDBOX_V1_TEXT_MAX - terminal->text_len) {
        return ngx_http_sandbox_v1_terminal_close(terminal, SBX_WS_TOO_BIG,
                                                  "a text frame is control, "
                                                  "and that is short");
    }

    if (terminal->text == NULL) {
        terminal->text = ngx_pnalloc(r->pool, NGX_HTTP_SANDBOX_V1_TEXT_MAX);

        if (terminal->text == NULL) {
            return NGX_ERROR;
        }
    }

    if (event->len != 0) {
        ngx_memcpy(terminal->text + terminal->text_len, event->data,
                   event->len);
        terminal->text_len += event->len;
    }

    if (!event->fin) {
        return NGX_OK;
    }

    ngx_memzero(&process, sizeof(sbx_f_process_t));

    if (ngx_http_sandbox_v1_terminal_control(terminal, &process, &e) != 0) {
        return ngx_http_sandbox_v1_terminal_close(terminal, SBX_WS_POLICY,
                                                  e.text);
    }

    terminal->text_len = 0;

    return ngx_http_sandbox_call_queue(terminal->call, SBX_F_PROCESS,
                                       &process, sizeof(sbx_f_process_t));
}


/* A pool of its own: there may be any number of these. */

static int
ngx_http_sandbox_v1_terminal_control(ngx_http_sandbox_v1_terminal_t *terminal,
    sbx_f_process_t *process, sbx_error_t *e)
{
    int                            rc;
    ngx_str_t                      text;
    ngx_pool_t                    *pool;
    sbx_error_t                    why;
    sbx_json_alloc_t               alloc;
    ngx_http_sandbox_v1_signal_t   signal;

    ngx_http_sandbox_v1_window_t   size;

    static const char  field[] = "/signal:";

    #define SIZE(field)  offsetof(ngx_http_sandbox_v1_window_t, field)

    static const sbx_json_field_t  fields[] = {
        { .name = "type", .type = SBX_JSON_STRING, .required = 1,
          .offset = SIZE(type) },
        { .name = "rows", .type = SBX_JSON_COUNT, .required = 1,
          .min = 1, .max = 65535, .offset = SIZE(rows) },
        { .name = "cols", .type = SBX_JSON_COUNT, .required = 1,
          .min = 1, .max = 65535, .offset = SIZE(cols) },
        { .name = NULL }
    };

    pool = ngx_create_pool(1024, terminal->request->connection->log);

    if (pool == NULL) {
        return sbx_error(e, 0, SBX_E_INTERNAL, "out of memory");
    }

    text.data = terminal->text;
    text.len = terminal->text_len;

    if (ngx_http_sandbox_v1_signal_bind(pool, &text, &signal, &why) == 0
        && ngx_http_sandbox_op_is(&signal.type, "signal"))
    {
        process->verb = SBX_PROCESS_SIGNAL;
        process->flags = SBX_PROCESS_FOREGROUND;
        process->signal = (int32_t) signal.number;

        ngx_destroy_pool(pool);
        return 0;
    }

    alloc = ngx_http_sandbox_op_allocator(pool);
    ngx_memzero(&size, sizeof(size));

    rc = sbx_json_bind(text.data, text.len, fields, &size, &alloc, e);

    /* a signal that there is not is no unknown field */

    if (rc != 0 && ngx_strncmp(e->text, field, sizeof(field) - 1) == 0) {
        *e = why;
    }

    if (rc == 0 && !ngx_http_sandbox_op_is(&size.type, "resize")) {
        rc = sbx_error(e, 0, SBX_E_INVALID,
                       "/type: must be \"resize\" or \"signal\"");
    }

    process->verb = SBX_PROCESS_RESIZE;
    process->rows = (uint32_t) size.rows;
    process->cols = (uint32_t) size.cols;

    ngx_destroy_pool(pool);

    return rc;
}
