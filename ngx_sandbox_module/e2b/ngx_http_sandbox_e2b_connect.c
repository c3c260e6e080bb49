/*
 * The Connect protocol, with JSON.  A unary call is one JSON text each way;
 * a stream is messages in envelopes: a byte of flags, the length in four
 * bytes, the text.  The last one tells how the stream ended, whatever the
 * status of the answer, which is 200 but where a proxy before us would have
 * answered.
 */

#include "ngx_http_sandbox_e2b.h"


#define NGX_HTTP_SANDBOX_E2B_HEAD       5
#define NGX_HTTP_SANDBOX_E2B_DIGITS     10      /* of Connect-Timeout-Ms */

/* seconds between keepalives */
#define NGX_HTTP_SANDBOX_E2B_ALIVE      90
#define NGX_HTTP_SANDBOX_E2B_ALIVE_MAX  3600

/* how long a stream may hold a worker that is to end; milliseconds */
#define NGX_HTTP_SANDBOX_E2B_STAY       (3600 * 1000)


typedef struct {
    ngx_event_t                     event;
    ngx_http_sandbox_stream_t      *stream;
    const char                     *keepalive;
} ngx_http_sandbox_e2b_stream_t;


static int ngx_http_sandbox_e2b_strip(ngx_http_request_t *r, sbx_error_t *e);
static ngx_int_t ngx_http_sandbox_e2b_send_unary(ngx_http_request_t *r,
    ngx_uint_t status, const char *code, const ngx_str_t *message,
    uint64_t retry_after);
static ngx_int_t ngx_http_sandbox_e2b_send_stream(ngx_http_request_t *r,
    const char *code, const ngx_str_t *message);
static void ngx_http_sandbox_e2b_error_json(ngx_http_sandbox_json_t *j,
    const char *code, const ngx_str_t *message);
static ngx_int_t ngx_http_sandbox_e2b_ping(ngx_http_sandbox_stream_t *s);
static void ngx_http_sandbox_e2b_leaving(ngx_http_sandbox_stream_t *s);
static void ngx_http_sandbox_e2b_late(ngx_event_t *ev);
static void ngx_http_sandbox_e2b_stream_cleanup(void *data);


/* The status of each code, in a unary answer. */

static const struct {
    const char  *code;
    ngx_uint_t   status;
} ngx_http_sandbox_e2b_statuses[] = {
    { "canceled", 499 },
    { "unknown", 500 },
    { "invalid_argument", 400 },
    { "deadline_exceeded", 504 },
    { "not_found", 404 },
    { "already_exists", 409 },
    { "permission_denied", 403 },
    { "resource_exhausted", 429 },
    { "failed_precondition", 400 },
    { "aborted", 409 },
    { "out_of_range", 400 },
    { "unimplemented", 501 },
    { "internal", 500 },
    { "unavailable", 503 },
    { "data_loss", 500 },
    { "unauthenticated", 401 },
    { NULL, 500 }
};


/* Calls that are answered by a stream. */

static ngx_int_t  (*const ngx_http_sandbox_e2b_streams[])(
    ngx_http_request_t *r) = {
    ngx_http_sandbox_e2b_process_start,
    ngx_http_sandbox_e2b_process_connect,
    ngx_http_sandbox_e2b_process_stream_input,
    ngx_http_sandbox_e2b_fs_watch
};


void
ngx_http_sandbox_e2b_rpc(ngx_http_sandbox_ctx_t *ctx)
{
    ngx_uint_t               i;
    ngx_http_sandbox_e2b_t  *e2b;

    e2b = ngx_http_sandbox_e2b(ctx);

    for (i = 0; i < sbx_nelts(ngx_http_sandbox_e2b_streams); i++) {
        if (ctx->route->handler == ngx_http_sandbox_e2b_streams[i]) {
            e2b->stream = 1;
        }
    }

    if (e2b->stream || ctx->route->body == NGX_HTTP_SANDBOX_BODY_RPC) {
        e2b->rpc = 1;
        ctx->refuse = ngx_http_sandbox_e2b_refuse_rpc;
    }
}


/* ---- requests ----------------------------------------------------------- */


int
ngx_http_sandbox_e2b_bind(ngx_http_request_t *r,
    const sbx_json_field_t *fields, void *target, sbx_error_t *e)
{
    return (ngx_http_sandbox_e2b_strip(r, e) == 0)
           ? ngx_http_sandbox_op_bind(r, fields, target, e) : -1;
}


int
ngx_http_sandbox_e2b_bind_stream(ngx_http_request_t *r,
    const sbx_json_field_t *fields, void *target, sbx_error_t *e)
{
    ngx_http_sandbox_ctx_t  *ctx;
    ngx_http_sandbox_e2b_t  *e2b;

    ctx = ngx_http_sandbox_ctx(r);
    e2b = ngx_http_sandbox_e2b(ctx);

    e2b->rpc = 1;
    e2b->stream = 1;
    ctx->refuse = ngx_http_sandbox_e2b_refuse_rpc;

    return ngx_http_sandbox_e2b_bind(r, fields, target, e);
}


/*
 * The envelope of a body that has one: no JSON text begins with a byte that
 * flags may be.
 */

static int
ngx_http_sandbox_e2b_strip(ngx_http_request_t *r, sbx_error_t *e)
{
    u_char     *p;
    uint64_t    len;
    ngx_str_t  *body;

    body = &ngx_http_sandbox_ctx(r)->body;
    p = body->data;

    if (body->len == 0 || p[0] == '\t' || p[0] == '\n' || p[0] == '\r'
        || p[0] >= ' ')
    {
        return 0;
    }

    if (p[0] & 0x01) {
        return sbx_error(e, 0, SBX_E_INVALID,
                         "the message is compressed, which was not agreed");
    }

    if (p[0] != 0) {
        return sbx_error(e, 0, SBX_E_INVALID,
                         "the message has the unknown flags 0x%02x", p[0]);
    }

    if (body->len < NGX_HTTP_SANDBOX_E2B_HEAD) {
        return sbx_error(e, 0, SBX_E_INVALID,
                         "the envelope is cut off after %zu bytes",
                         body->len);
    }

    len = ngx_http_sandbox_e2b_length(p);

    if (len != body->len - NGX_HTTP_SANDBOX_E2B_HEAD) {
        return sbx_error(e, 0, SBX_E_INVALID,
                         "the envelope tells of %llu bytes, and %zu follow: "
                         "it must be one whole message",
                         (unsigned long long) len,
                         body->len - NGX_HTTP_SANDBOX_E2B_HEAD);
    }

    body->data += NGX_HTTP_SANDBOX_E2B_HEAD;
    body->len -= NGX_HTTP_SANDBOX_E2B_HEAD;

    return 0;
}


int
ngx_http_sandbox_e2b_timeout(ngx_http_request_t *r, uint64_t *ms,
    sbx_error_t *e)
{
    ngx_int_t  n, rc;
    ngx_str_t  value;

    *ms = 0;
    rc = ngx_http_sandbox_op_header(r, "connect-timeout-ms", &value);

    if (rc == NGX_DECLINED) {
        return 0;
    }

    n = NGX_ERROR;

    if (rc == NGX_OK && value.len <= NGX_HTTP_SANDBOX_E2B_DIGITS) {
        n = ngx_atoi(value.data, value.len);
    }

    if (n == NGX_ERROR) {
        return sbx_error(e, 0, SBX_E_INVALID,
                         "Connect-Timeout-Ms must be a number of at most %d "
                         "digits, once", NGX_HTTP_SANDBOX_E2B_DIGITS);
    }

    *ms = (uint64_t) n;

    return 0;
}


/* Anything else than Basic is no user's name, and stays what it is. */

int
ngx_http_sandbox_e2b_user(ngx_http_request_t *r, uint32_t *user,
    sbx_error_t *e)
{
    u_char     *colon;
    ngx_str_t   value, text;

    static const size_t  scheme = sizeof("Basic ") - 1;

    *user = SBX_USER_USER;

    if (ngx_http_sandbox_op_header(r, "authorization", &value) != NGX_OK
        || value.len <= scheme
        || ngx_strncasecmp(value.data, (u_char *) "Basic ", scheme) != 0)
    {
        return 0;
    }

    value.data += scheme;
    value.len -= scheme;

    while (value.len != 0 && value.data[0] == ' ') {
        value.data++;
        value.len--;
    }

    text.data = ngx_pnalloc(r->pool, ngx_base64_decoded_length(value.len));

    if (text.data == NULL) {
        return sbx_error(e, 0, SBX_E_INTERNAL, "out of memory");
    }

    if (ngx_decode_base64(&text, &value) != NGX_OK) {
        return 0;
    }

    colon = ngx_strlchr(text.data, text.data + text.len, ':');

    if (colon == NULL) {
        return 0;
    }

    text.len = colon - text.data;

    return ngx_http_sandbox_e2b_user_of(&text, user, e);
}


int
ngx_http_sandbox_e2b_user_of(const ngx_str_t *name, uint32_t *user,
    sbx_error_t *e)
{
    *user = SBX_USER_USER;

    if (name->len == 0 || ngx_http_sandbox_op_is(name, "user")) {
        return 0;
    }

    if (ngx_http_sandbox_op_is(name, "root")) {
        *user = SBX_USER_ROOT;
        return 0;
    }

    return sbx_error(e, 0, SBX_E_TOKEN,
                     "error looking up user '%.*s': there are \"user\" and "
                     "\"root\"", (int) ngx_min(name->len, 64), name->data);
}


int
ngx_http_sandbox_e2b_path(ngx_http_request_t *r, uint32_t user,
    const sbx_json_str_t *path, ngx_str_t *out, sbx_error_t *e)
{
    size_t       len;
    u_char      *p;
    ngx_str_t    home;
    const char  *s;

    s = path->data;
    len = path->len;

    if (len != 0 && memchr(s, '\0', len) != NULL) {
        return sbx_error(e, 0, SBX_E_PATH, "the path has a NUL");
    }

    if (len != 0 && s[0] == '/') {
        ngx_str_null(&home);

    } else if (user == SBX_USER_ROOT) {
        ngx_str_set(&home, "/root");

    } else {
        ngx_str_set(&home, NGX_HTTP_SANDBOX_OP_WORKSPACE);
    }

    if (len != 0 && s[0] == '~') {

        if (len > 1 && s[1] != '/') {
            return sbx_error(e, 0, SBX_E_PATH,
                             "a path that begins with another user's home "
                             "is not known");
        }

        while (len > 1 && s[1] == '/') {
            s++;
            len--;
        }

        s++;
        len--;
    }

    if (home.len + 1 + len >= SBX_PATH_MAX) {
        return sbx_error(e, 0, SBX_E_PATH,
                         "the path is longer than %d bytes",
                         SBX_PATH_MAX - 1);
    }

    p = ngx_pnalloc(r->pool, home.len + 1 + len + 1);

    if (p == NULL) {
        return sbx_error(e, 0, SBX_E_INTERNAL, "out of memory");
    }

    out->data = p;

    if (home.len != 0) {
        p = ngx_cpymem(p, home.data, home.len);

        if (len != 0) {
            *p++ = '/';
        }
    }

    if (len != 0) {
        p = ngx_cpymem(p, s, len);
    }

    *p = '\0';
    out->len = p - out->data;

    return 0;
}


/* ---- answers ------------------------------------------------------------ */


ngx_int_t
ngx_http_sandbox_e2b_reply(ngx_http_request_t *r, ngx_http_sandbox_json_t *j)
{
    return ngx_http_sandbox_json_send(r, NGX_HTTP_OK, j);
}


ngx_int_t
ngx_http_sandbox_e2b_empty(ngx_http_request_t *r)
{
    ngx_http_sandbox_json_t  j;

    ngx_http_sandbox_json_init(&j, r->pool);
    ngx_http_sandbox_json_raw(&j, "{}");

    return ngx_http_sandbox_e2b_reply(r, &j);
}


ngx_int_t
ngx_http_sandbox_e2b_error(ngx_http_request_t *r, const char *code,
    const char *fmt, ...)
{
    u_char      text[NGX_MAX_ERROR_STR];
    va_list     args;
    ngx_str_t   message;

    va_start(args, fmt);
    message.data = text;
    message.len = ngx_vslprintf(text, text + sizeof(text), fmt, args) - text;
    va_end(args);

    return ngx_http_sandbox_e2b_error_as(r, 0, code, &message, 0);
}


ngx_int_t
ngx_http_sandbox_e2b_error_as(ngx_http_request_t *r, ngx_uint_t status,
    const char *code, const ngx_str_t *message, uint64_t retry_after)
{
    ngx_uint_t               i;
    ngx_http_sandbox_e2b_t  *e2b;

    e2b = ngx_http_sandbox_e2b(ngx_http_sandbox_ctx(r));

    if (e2b->stream && (status == 0 || r->header_sent)) {
        return ngx_http_sandbox_e2b_send_stream(r, code, message);
    }

    if (status == 0) {
        for (i = 0; ngx_http_sandbox_e2b_statuses[i].code != NULL; i++) {
            if (ngx_strcmp(ngx_http_sandbox_e2b_statuses[i].code, code)
                == 0)
            {
                break;
            }
        }

        status = ngx_http_sandbox_e2b_statuses[i].status;
    }

    return ngx_http_sandbox_e2b_send_unary(r, status, code, message,
                                           retry_after);
}


static ngx_int_t
ngx_http_sandbox_e2b_send_unary(ngx_http_request_t *r, ngx_uint_t status,
    const char *code, const ngx_str_t *message, uint64_t retry_after)
{
    ngx_int_t                rc;
    ngx_http_sandbox_json_t  j;

    if (r->header_sent) {
        return NGX_ERROR;
    }

    rc = ngx_http_sandbox_problem_prepare(r, retry_after);

    if (rc != NGX_OK) {
        return rc;
    }

    ngx_http_sandbox_json_init(&j, r->pool);
    ngx_http_sandbox_e2b_error_json(&j, code, message);

    return ngx_http_sandbox_json_send(r, status, &j);
}


/* The last message of a stream, which may be its only one; its head says 200,
 * and nothing of when to come back. */

static ngx_int_t
ngx_http_sandbox_e2b_send_stream(ngx_http_request_t *r, const char *code,
    const ngx_str_t *message)
{
    ngx_int_t                   rc;
    ngx_http_sandbox_json_t    *j;
    ngx_http_sandbox_stream_t  *s;

    s = ngx_http_sandbox_ctx(r)->stream;

    if (!r->header_sent) {
        rc = ngx_http_sandbox_problem_prepare(r, 0);

        if (rc != NGX_OK) {
            return rc;
        }

        s = ngx_http_sandbox_stream_create(r,
                                           NGX_HTTP_SANDBOX_STREAM_CONNECT);

        if (s == NULL || ngx_http_sandbox_stream_open(s) == NGX_ERROR) {
            return NGX_ERROR;
        }
    }

    if (s == NULL || s->over || s->ended) {
        return NGX_ERROR;
    }

    j = ngx_http_sandbox_stream_trailer(s);

    ngx_http_sandbox_json_raw(j, "{\"error\":");
    ngx_http_sandbox_e2b_error_json(j, code, message);
    ngx_http_sandbox_json_raw(j, "}");

    return ngx_http_sandbox_stream_last(s);
}


static void
ngx_http_sandbox_e2b_error_json(ngx_http_sandbox_json_t *j, const char *code,
    const ngx_str_t *message)
{
    ngx_http_sandbox_json_raw(j, "{\"code\":");
    ngx_http_sandbox_json_cstring(j, code);
    ngx_http_sandbox_json_raw(j, ",\"message\":");
    ngx_http_sandbox_json_string(j, message->data, message->len);
    ngx_http_sandbox_json_raw(j, "}");
}


/* ---- streams ------------------------------------------------------------ */


ngx_http_sandbox_stream_t *
ngx_http_sandbox_e2b_stream(ngx_http_request_t *r, const char *keepalive,
    uint64_t ms)
{
    ngx_int_t                       n;
    ngx_str_t                       value;
    ngx_pool_cleanup_t             *cln;
    ngx_http_sandbox_stream_t      *s;
    ngx_http_sandbox_e2b_stream_t  *own;

    s = ngx_http_sandbox_stream_create(r, NGX_HTTP_SANDBOX_STREAM_CONNECT);
    cln = ngx_pool_cleanup_add(r->pool,
                               sizeof(ngx_http_sandbox_e2b_stream_t));

    if (s == NULL || cln == NULL) {
        return NULL;
    }

    own = cln->data;
    ngx_memzero(own, sizeof(ngx_http_sandbox_e2b_stream_t));

    own->stream = s;
    own->keepalive = keepalive;
    own->event.handler = ngx_http_sandbox_e2b_late;
    own->event.data = own;
    own->event.log = r->connection->log;

    cln->handler = ngx_http_sandbox_e2b_stream_cleanup;

    n = NGX_ERROR;

    if (ngx_http_sandbox_op_header(r, "keepalive-ping-interval", &value)
        == NGX_OK)
    {
        n = ngx_atoi(value.data, value.len);
    }

    if (n == NGX_ERROR) {
        n = NGX_HTTP_SANDBOX_E2B_ALIVE;
    }

    n = ngx_max(n, 1);
    n = ngx_min(n, NGX_HTTP_SANDBOX_E2B_ALIVE_MAX);

    s->idle = (ngx_msec_t) n * 1000;
    s->stay = NGX_HTTP_SANDBOX_E2B_STAY;
    s->ping = ngx_http_sandbox_e2b_ping;
    s->cut = ngx_http_sandbox_e2b_leaving;

    ngx_http_sandbox_e2b(ngx_http_sandbox_ctx(r))->alive = own;

    if (ms != 0) {
        ngx_add_timer(&own->event, (ngx_msec_t) ms);
    }

    return s;
}


static ngx_int_t
ngx_http_sandbox_e2b_ping(ngx_http_sandbox_stream_t *s)
{
    ngx_http_sandbox_e2b_stream_t  *own;

    own = ngx_http_sandbox_e2b(ngx_http_sandbox_ctx(s->request))->alive;

    ngx_http_sandbox_json_raw(ngx_http_sandbox_stream_event(s, NULL),
                              own->keepalive);

    return ngx_http_sandbox_stream_send(s);
}


/*
 * What the stream tells of goes on; its client has no word for "come back",
 * but may do so.
 */

static void
ngx_http_sandbox_e2b_leaving(ngx_http_sandbox_stream_t *s)
{
    (void) ngx_http_sandbox_op_finish(s->call,
               ngx_http_sandbox_e2b_error(s->request, "aborted",
                                          "the server is being replaced; "
                                          "what ran goes on, connect to it "
                                          "again"));
}


static void
ngx_http_sandbox_e2b_late(ngx_event_t *ev)
{
    ngx_http_request_t             *r;
    ngx_http_sandbox_e2b_stream_t  *own;

    own = ev->data;
    r = own->stream->request;

    if (own->stream->over || own->stream->call == NULL
        || own->stream->call->closed)
    {
        return;
    }

    (void) ngx_http_sandbox_op_finish(own->stream->call,
               ngx_http_sandbox_e2b_error(r, "deadline_exceeded",
                                          "the time that the call had is "
                                          "over"));
}


static void
ngx_http_sandbox_e2b_stream_cleanup(void *data)
{
    ngx_http_sandbox_e2b_stream_t  *own = data;

    if (own->event.timer_set) {
        ngx_del_timer(&own->event);
    }
}
