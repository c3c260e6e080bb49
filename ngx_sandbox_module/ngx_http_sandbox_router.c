/*
 * The content handler of a location with an API.
 *
 * Routes are matched on the raw URI, as the client sent it: a path of a
 * session may hold anything, and is decoded once, here.  The location was
 * chosen by nginx on the normalized URI; a raw one that does not begin with
 * the location's name is no route.
 *
 * Bodies are read without nginx's buffering, which would put them into files:
 * no more than the limit is ever held, whatever the client announces.
 */

#include "ngx_http_sandbox.h"

#include <ctype.h>


#define NGX_HTTP_SANDBOX_BODY_FIRST    4096


typedef struct {
    ngx_str_t                   raw;        /* without a leading slash */
    ngx_str_t                   session;
    ngx_str_t                   path;       /* still encoded */
    ngx_uint_t                  has_path;
    ngx_uint_t                  allowed;    /* methods of the path's routes */
    ngx_http_sandbox_route_t   *route;
} ngx_http_sandbox_match_t;


static ngx_int_t ngx_http_sandbox_route(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx);
static ngx_int_t ngx_http_sandbox_raw_path(ngx_http_request_t *r,
    ngx_str_t *raw);
static void ngx_http_sandbox_match(ngx_uint_t method,
    ngx_http_sandbox_match_t *match);
static ngx_uint_t ngx_http_sandbox_match_path(const char *path,
    ngx_http_sandbox_match_t *match);
static ngx_int_t ngx_http_sandbox_not_allowed(ngx_http_request_t *r,
    ngx_uint_t allowed);

static ngx_uint_t ngx_http_sandbox_escapes_ok(const ngx_str_t *s);
static size_t ngx_http_sandbox_unescape(u_char *dst, const ngx_str_t *src,
    ngx_uint_t plus);
static const u_char *ngx_http_sandbox_find_arg(const ngx_str_t *args,
    const char *name, const u_char *from, ngx_str_t *value);
static ngx_int_t ngx_http_sandbox_path(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx, ngx_http_sandbox_match_t *match);
static ngx_int_t ngx_http_sandbox_path_base64(ngx_http_request_t *r,
    ngx_str_t *value, ngx_str_t *path);

static ngx_int_t ngx_http_sandbox_dispatch(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx);
static ngx_uint_t ngx_http_sandbox_is_json(ngx_http_request_t *r);
static ngx_int_t ngx_http_sandbox_too_large(ngx_http_request_t *r,
    size_t max);
static void ngx_http_sandbox_body_start(ngx_http_request_t *r);
static void ngx_http_sandbox_body_read(ngx_http_request_t *r);
static void ngx_http_sandbox_body_pump(ngx_http_request_t *r);
static ngx_int_t ngx_http_sandbox_body_take(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx);
static ngx_int_t ngx_http_sandbox_body_add(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx, ngx_buf_t *b, size_t size);
static void ngx_http_sandbox_run(ngx_http_request_t *r);


static const struct {
    ngx_uint_t     method;
    const char    *name;
} ngx_http_sandbox_methods[] = {
    { NGX_HTTP_GET, "GET" },
    { NGX_HTTP_HEAD, "HEAD" },
    { NGX_HTTP_POST, "POST" },
    { NGX_HTTP_PUT, "PUT" },
    { NGX_HTTP_PATCH, "PATCH" },
    { NGX_HTTP_DELETE, "DELETE" },
    { 0, NULL }
};


ngx_int_t
ngx_http_sandbox_handler(ngx_http_request_t *r)
{
    ngx_int_t                rc;
    ngx_str_t                id;
    ngx_uint_t               again;
    ngx_http_sandbox_ctx_t  *ctx;

    if (r != r->main) {

        /* a subrequest has the raw URI of another request */

        return NGX_HTTP_NOT_FOUND;
    }

    again = (ngx_http_sandbox_ctx(r) != NULL);
    ctx = ngx_http_sandbox_ctx_create(r);

    if (ctx == NULL) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    if (!again) {
        ngx_http_sandbox_request_id(r, &id);

        if (ngx_http_sandbox_add_header(r, "X-Request-ID", &id) != NGX_OK) {
            return NGX_HTTP_INTERNAL_SERVER_ERROR;
        }
    }

    rc = ngx_http_sandbox_route(r, ctx);

    if (ctx->route == NULL || rc != NGX_OK || r->header_sent) {
        return rc;
    }

    return ngx_http_sandbox_dispatch(r, ctx);
}


/* Finds the route and what the URI tells; without one, the answer is sent. */

static ngx_int_t
ngx_http_sandbox_route(ngx_http_request_t *r, ngx_http_sandbox_ctx_t *ctx)
{
    ngx_int_t                 rc;
    ngx_http_sandbox_match_t  match;

    ngx_memzero(&match, sizeof(ngx_http_sandbox_match_t));

    rc = ngx_http_sandbox_raw_path(r, &match.raw);

    if (rc == NGX_ERROR) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    if (rc == NGX_OK) {
        ngx_http_sandbox_match(r->method, &match);
    }

    if (match.allowed == 0) {
        return ngx_http_sandbox_problem(r, NGX_HTTP_SANDBOX_NOT_FOUND, NULL);
    }

    if (match.route == NULL) {
        return ngx_http_sandbox_not_allowed(r, match.allowed);
    }

    ctx->route = match.route;

    if (match.session.data != NULL) {
        if (!sbx_session_id_ok((char *) match.session.data,
                               match.session.len))
        {
            return ngx_http_sandbox_problem(r,
                                        NGX_HTTP_SANDBOX_SESSION_NOT_FOUND,
                                        NULL);
        }

        ctx->session = match.session;
    }

    if (!ngx_http_sandbox_escapes_ok(&r->args)) {
        return ngx_http_sandbox_problem(r, NGX_HTTP_SANDBOX_INVALID_REQUEST,
                                   "the query has a \"%%\" without two "
                                   "hexadecimal digits after it");
    }

    return ngx_http_sandbox_path(r, ctx, &match);
}


/*
 * What follows the location's name, up to the query.  Where a rewrite made
 * the URI, it is encoded again, so that there is one form to go on with.
 */

static ngx_int_t
ngx_http_sandbox_raw_path(ngx_http_request_t *r, ngx_str_t *raw)
{
    size_t                     i;
    u_char                    *p;
    uintptr_t                  escapes;
    ngx_str_t                  uri, *name;
    ngx_http_core_loc_conf_t  *clcf;

    uri = r->unparsed_uri;

    for (i = 0; i < uri.len; i++) {
        if (uri.data[i] == '?' || uri.data[i] == '#') {
            break;
        }
    }

    uri.len = i;

    if (!r->valid_unparsed_uri) {
        uri = r->uri;
        escapes = ngx_escape_uri(NULL, uri.data, uri.len, NGX_ESCAPE_URI);

        if (escapes != 0) {
            p = ngx_pnalloc(r->pool, uri.len + 2 * escapes);

            if (p == NULL) {
                return NGX_ERROR;
            }

            (void) ngx_escape_uri(p, uri.data, uri.len, NGX_ESCAPE_URI);

            uri.data = p;
            uri.len += 2 * escapes;
        }
    }

    clcf = ngx_http_get_module_loc_conf(r, ngx_http_core_module);
    name = &clcf->name;

    if (uri.len < name->len
        || ngx_memcmp(uri.data, name->data, name->len) != 0)
    {
        return NGX_DECLINED;
    }

    raw->data = uri.data + name->len;
    raw->len = uri.len - name->len;

    if (name->len != 0 && name->data[name->len - 1] == '/') {
        return NGX_OK;
    }

    if (raw->len == 0) {
        return NGX_OK;
    }

    if (raw->data[0] != '/') {
        return NGX_DECLINED;
    }

    raw->data++;
    raw->len--;

    return NGX_OK;
}


/* HEAD is answered by its own route, or else by GET's. */

static void
ngx_http_sandbox_match(ngx_uint_t method, ngx_http_sandbox_match_t *match)
{
    ngx_http_sandbox_route_t  *route;
    ngx_http_sandbox_match_t   found;

    found = *match;

    for (route = ngx_http_sandbox_v1_routes; route->path != NULL; route++) {

        if (!ngx_http_sandbox_match_path(route->path, &found)) {
            continue;
        }

        match->allowed |= route->methods;

        if (route->methods & NGX_HTTP_GET) {
            match->allowed |= NGX_HTTP_HEAD;
        }

        if ((route->methods & method)
            && (match->route == NULL || !(match->route->methods & method)))
        {
            match->route = route;

        } else if (method == NGX_HTTP_HEAD && match->route == NULL
                   && (route->methods & NGX_HTTP_GET))
        {
            match->route = route;

        } else {
            continue;
        }

        match->session = found.session;
        match->path = found.path;
        match->has_path = found.has_path;
    }
}


/* "sessions/{id}/files/{path}": one segment, and all that is left. */

static ngx_uint_t
ngx_http_sandbox_match_path(const char *path,
    ngx_http_sandbox_match_t *match)
{
    size_t   len;
    u_char  *p, *s, *end;

    p = match->raw.data;
    end = p + match->raw.len;

    ngx_str_null(&match->session);
    ngx_str_null(&match->path);
    match->has_path = 0;

    for ( ;; ) {
        if (ngx_strcmp(path, "{path}") == 0) {
            match->path.data = p;
            match->path.len = end - p;
            match->has_path = 1;

            return 1;
        }

        s = ngx_strlchr(p, end, '/');

        if (s == NULL) {
            s = end;
        }

        len = strcspn(path, "/");

        if (len == 4 && ngx_strncmp(path, "{id}", 4) == 0) {

            if (s == p) {
                return 0;
            }

            match->session.data = p;
            match->session.len = s - p;

        } else if ((size_t) (s - p) != len || ngx_memcmp(p, path, len) != 0) {
            return 0;
        }

        path += len;
        p = s;

        if (*path == '\0') {
            return p == end;
        }

        if (p == end) {
            return 0;
        }

        path++;
        p++;
    }
}


static ngx_int_t
ngx_http_sandbox_not_allowed(ngx_http_request_t *r, ngx_uint_t allowed)
{
    u_char      *p;
    ngx_str_t    value;
    ngx_uint_t   i;

    static const size_t  size = sizeof("GET, HEAD, POST, PUT, PATCH, DELETE");

    p = ngx_pnalloc(r->pool, size);

    if (p == NULL) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    value.data = p;

    for (i = 0; ngx_http_sandbox_methods[i].name != NULL; i++) {
        if (allowed & ngx_http_sandbox_methods[i].method) {
            p = ngx_sprintf(p, "%s%s", (p == value.data) ? "" : ", ",
                            ngx_http_sandbox_methods[i].name);
        }
    }

    value.len = p - value.data;

    if (ngx_http_sandbox_add_header(r, "Allow", &value) != NGX_OK) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    return ngx_http_sandbox_problem(r, NGX_HTTP_SANDBOX_METHOD_NOT_ALLOWED,
                                    "the route takes %V", &value);
}


/* ---- the query and the path --------------------------------------------- */


static ngx_uint_t
ngx_http_sandbox_escapes_ok(const ngx_str_t *s)
{
    size_t  i;

    for (i = 0; i < s->len; i++) {
        if (s->data[i] != '%') {
            continue;
        }

        if (s->len - i < 3 || !isxdigit(s->data[i + 1])
            || !isxdigit(s->data[i + 2]))
        {
            return 0;
        }
    }

    return 1;
}


static ngx_uint_t
ngx_http_sandbox_hex(u_char ch)
{
    return (ch <= '9') ? ch - '0' : (ch | 0x20) - 'a' + 10;
}


/* dst has src->len bytes; escapes have been checked. */

static size_t
ngx_http_sandbox_unescape(u_char *dst, const ngx_str_t *src, ngx_uint_t plus)
{
    size_t   i;
    u_char  *p;

    p = dst;

    for (i = 0; i < src->len; i++) {
        switch (src->data[i]) {

        case '%':
            *p++ = (u_char) (ngx_http_sandbox_hex(src->data[i + 1]) << 4
                             | ngx_http_sandbox_hex(src->data[i + 2]));
            i += 2;
            break;

        case '+':
            *p++ = plus ? ' ' : '+';
            break;

        default:
            *p++ = src->data[i];
            break;
        }
    }

    return p - dst;
}


/* The next argument of the name, still encoded; where to look on, or NULL. */

static const u_char *
ngx_http_sandbox_find_arg(const ngx_str_t *args, const char *name,
    const u_char *from, ngx_str_t *value)
{
    size_t   len;
    u_char  *p, *s, *end;

    len = ngx_strlen(name);
    end = args->data + args->len;

    for (p = (u_char *) from; p < end; p = s + 1) {
        s = ngx_strlchr(p, end, '&');

        if (s == NULL) {
            s = end;
        }

        if ((size_t) (s - p) < len || ngx_memcmp(p, name, len) != 0) {
            continue;
        }

        if (p + len == s) {
            ngx_str_set(value, "");
            return s;
        }

        if (p[len] == '=') {
            value->data = p + len + 1;
            value->len = s - value->data;
            return s;
        }
    }

    return NULL;
}


ngx_int_t
ngx_http_sandbox_arg(ngx_http_request_t *r, const char *name,
    ngx_str_t *value)
{
    u_char     *p;
    ngx_str_t   raw;

    if (ngx_http_sandbox_find_arg(&r->args, name, r->args.data, &raw)
        == NULL)
    {
        return NGX_DECLINED;
    }

    p = ngx_pnalloc(r->pool, raw.len + 1);

    if (p == NULL) {
        return NGX_ERROR;
    }

    value->data = p;
    value->len = ngx_http_sandbox_unescape(p, &raw, 1);
    p[value->len] = '\0';

    return NGX_OK;
}


ngx_int_t
ngx_http_sandbox_arg_number(ngx_http_request_t *r, const char *name,
    uint64_t min, uint64_t max, uint64_t *value)
{
    size_t     i;
    uint64_t   n;
    ngx_int_t  rc;
    ngx_str_t  text;

    rc = ngx_http_sandbox_arg(r, name, &text);

    if (rc != NGX_OK) {
        return rc;
    }

    if (text.len == 0 || text.len > 20) {
        return NGX_ABORT;
    }

    n = 0;

    for (i = 0; i < text.len; i++) {
        if (text.data[i] < '0' || text.data[i] > '9'
            || n > (UINT64_MAX - (text.data[i] - '0')) / 10)
        {
            return NGX_ABORT;
        }

        n = n * 10 + (text.data[i] - '0');
    }

    if (n < min || n > max) {
        return NGX_ABORT;
    }

    *value = n;

    return NGX_OK;
}


/* NGX_OK, or the answer to a path that cannot be one has been sent. */

static ngx_int_t
ngx_http_sandbox_path(ngx_http_request_t *r, ngx_http_sandbox_ctx_t *ctx,
    ngx_http_sandbox_match_t *match)
{
    u_char        *p;
    ngx_int_t      rc;
    ngx_str_t      value, source;
    ngx_uint_t     i, n, base64;
    const u_char  *next;

    static const char *const  names[] = { "path", "path_base64" };

    n = 0;
    base64 = 0;
    source = match->path;

    for (i = 0; i < 2; i++) {
        next = r->args.data;

        for ( ;; ) {
            next = ngx_http_sandbox_find_arg(&r->args, names[i], next,
                                             &value);

            if (next == NULL) {
                break;
            }

            next++;
            n++;
            base64 = i;
            source = value;
        }
    }

    if (n > 1) {
        return ngx_http_sandbox_problem(r, NGX_HTTP_SANDBOX_INVALID_REQUEST,
                                   "the query gives more than one path");
    }

    if (n == 0 && !match->has_path) {
        return NGX_OK;
    }

    if (!ngx_http_sandbox_escapes_ok(&source)) {
        return ngx_http_sandbox_problem(r, NGX_HTTP_SANDBOX_INVALID_REQUEST,
                                   "the path has a \"%%\" without two "
                                   "hexadecimal digits after it");
    }

    p = ngx_pnalloc(r->pool, source.len + 1);

    if (p == NULL) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    /* a plus sign is one in a path, and in base64 */

    ctx->has_path = 1;
    ctx->path.data = p;
    ctx->path.len = ngx_http_sandbox_unescape(p, &source,
                                              n != 0 && !base64);

    if (base64) {
        value = ctx->path;
        rc = ngx_http_sandbox_path_base64(r, &value, &ctx->path);

        if (rc == NGX_DECLINED) {
            return ngx_http_sandbox_problem(r,
                                         NGX_HTTP_SANDBOX_INVALID_REQUEST,
                                         "path_base64 is not base64");
        }

        if (rc != NGX_OK) {
            return NGX_HTTP_INTERNAL_SERVER_ERROR;
        }
    }

    if (ctx->path.len >= SBX_PATH_MAX
        || ngx_strlchr(ctx->path.data, ctx->path.data + ctx->path.len, '\0')
           != NULL)
    {
        return ngx_http_sandbox_problem(r, NGX_HTTP_SANDBOX_INVALID_PATH,
                                        NULL);
    }

    return NGX_OK;
}


/* Of either alphabet, padded or not.  NGX_DECLINED: it is something else. */

static ngx_int_t
ngx_http_sandbox_path_base64(ngx_http_request_t *r, ngx_str_t *value,
    ngx_str_t *path)
{
    size_t  i, len;

    for (len = value->len; len != 0; len--) {
        if (value->data[len - 1] != '=') {
            break;
        }
    }

    if (value->len - len > 2 || len % 4 == 1
        || (value->len != len && value->len % 4 != 0))
    {
        return NGX_DECLINED;
    }

    for (i = 0; i < len; i++) {
        switch (value->data[i]) {

        case '-':
            value->data[i] = '+';
            break;

        case '_':
            value->data[i] = '/';
            break;

        case '=':
            return NGX_DECLINED;

        default:
            break;
        }
    }

    value->len = len;
    path->data = ngx_pnalloc(r->pool, ngx_base64_decoded_length(len) + 1);

    if (path->data == NULL) {
        return NGX_ERROR;
    }

    path->len = 0;

    if (len == 0) {
        return NGX_OK;
    }

    return (ngx_decode_base64(path, value) == NGX_OK) ? NGX_OK : NGX_DECLINED;
}


/* ---- the body ----------------------------------------------------------- */


static ngx_int_t
ngx_http_sandbox_dispatch(ngx_http_request_t *r, ngx_http_sandbox_ctx_t *ctx)
{
    ngx_int_t                     rc;
    ngx_http_sandbox_loc_conf_t  *slcf;

    slcf = ngx_http_get_module_loc_conf(r, ngx_http_sandbox_module);

    if (ctx->route->body == NGX_HTTP_SANDBOX_BODY_STREAM) {
        r->main->count++;
        ngx_http_sandbox_run(r);

        return NGX_DONE;
    }

    if (ctx->route->body == NGX_HTTP_SANDBOX_BODY_JSON
        && r->headers_in.content_length_n > 0
        && !ngx_http_sandbox_is_json(r))
    {
        return ngx_http_sandbox_problem(r,
                                     NGX_HTTP_SANDBOX_UNSUPPORTED_MEDIA_TYPE,
                                     NULL);
    }

    if (r->headers_in.content_length_n > (off_t) slcf->max_json) {
        return ngx_http_sandbox_too_large(r, slcf->max_json);
    }

    r->request_body_no_buffering = 1;

    rc = ngx_http_read_client_request_body(r, ngx_http_sandbox_body_start);

    return (rc >= NGX_HTTP_SPECIAL_RESPONSE) ? rc : NGX_DONE;
}


static ngx_uint_t
ngx_http_sandbox_is_json(ngx_http_request_t *r)
{
    size_t      len;
    ngx_str_t  *type;

    static u_char  json[] = "application/json";

    if (r->headers_in.content_type == NULL) {
        return 0;
    }

    type = &r->headers_in.content_type->value;
    len = sizeof(json) - 1;

    if (type->len < len || ngx_strncasecmp(type->data, json, len) != 0) {
        return 0;
    }

    return type->len == len || type->data[len] == ';'
           || type->data[len] == ' ' || type->data[len] == '\t';
}


static ngx_int_t
ngx_http_sandbox_too_large(ngx_http_request_t *r, size_t max)
{
    return ngx_http_sandbox_problem(r, NGX_HTTP_SANDBOX_PAYLOAD_TOO_LARGE,
                                    "the body of this route is limited to "
                                    "%uz bytes", max);
}


static void
ngx_http_sandbox_body_start(ngx_http_request_t *r)
{
    if (r->reading_body) {
        r->read_event_handler = ngx_http_sandbox_body_read;
    }

    ngx_http_sandbox_body_pump(r);
}


static void
ngx_http_sandbox_body_read(ngx_http_request_t *r)
{
    ngx_connection_t  *c;

    c = r->connection;

    if (c->read->timedout) {
        c->timedout = 1;
        ngx_http_finalize_request(r, NGX_HTTP_REQUEST_TIME_OUT);
        return;
    }

    ngx_http_sandbox_body_pump(r);
}


static void
ngx_http_sandbox_body_pump(ngx_http_request_t *r)
{
    ngx_int_t                rc;
    ngx_http_sandbox_ctx_t  *ctx;

    ctx = ngx_http_sandbox_ctx(r);

    for ( ;; ) {
        rc = ngx_http_sandbox_body_take(r, ctx);

        if (rc != NGX_OK || r->header_sent) {
            ngx_http_finalize_request(r, rc);
            return;
        }

        if (!r->reading_body) {
            break;
        }

        rc = ngx_http_read_unbuffered_request_body(r);

        if (rc >= NGX_HTTP_SPECIAL_RESPONSE) {
            ngx_http_finalize_request(r, rc);
            return;
        }

        if (rc == NGX_AGAIN && r->request_body->bufs == NULL) {
            return;
        }
    }

    r->read_event_handler = ngx_http_block_reading;

    ngx_http_sandbox_run(r);
}


/* NGX_OK, or what to finalize with: then an answer has been sent. */

static ngx_int_t
ngx_http_sandbox_body_take(ngx_http_request_t *r, ngx_http_sandbox_ctx_t *ctx)
{
    off_t                         size;
    ngx_int_t                     rc;
    ngx_buf_t                    *b;
    ngx_chain_t                  *cl, *next;
    ngx_http_sandbox_loc_conf_t  *slcf;

    slcf = ngx_http_get_module_loc_conf(r, ngx_http_sandbox_module);

    if (r->request_body == NULL) {
        return NGX_OK;
    }

    for (cl = r->request_body->bufs; cl != NULL; cl = next) {
        next = cl->next;
        b = cl->buf;
        size = ngx_buf_special(b) ? 0 : ngx_buf_size(b);

        if (size != 0 && ctx->route->body == NGX_HTTP_SANDBOX_BODY_JSON
            && !ngx_http_sandbox_is_json(r))
        {
            return ngx_http_sandbox_problem(r,
                                     NGX_HTTP_SANDBOX_UNSUPPORTED_MEDIA_TYPE,
                                     NULL);
        }

        if (size > (off_t) (slcf->max_json - ctx->body.len)) {
            return ngx_http_sandbox_too_large(r, slcf->max_json);
        }

        rc = ngx_http_sandbox_body_add(r, ctx, b, (size_t) size);

        if (rc != NGX_OK) {
            return rc;
        }

        b->pos = b->last;
        b->file_pos = b->file_last;

        ngx_free_chain(r->pool, cl);
    }

    r->request_body->bufs = NULL;

    return NGX_OK;
}


/* A body that is thrown away is counted all the same. */

static ngx_int_t
ngx_http_sandbox_body_add(ngx_http_request_t *r, ngx_http_sandbox_ctx_t *ctx,
    ngx_buf_t *b, size_t size)
{
    size_t   room;
    u_char  *p;

    if (size == 0) {
        return NGX_OK;
    }

    if (ctx->route->body == NGX_HTTP_SANDBOX_BODY_NONE) {
        ctx->body.len += size;
        return NGX_OK;
    }

    if (size > ctx->body_room - ctx->body.len) {
        room = ngx_max(2 * ctx->body_room, NGX_HTTP_SANDBOX_BODY_FIRST);
        room = ngx_max(room, ctx->body.len + size);

        p = ngx_pnalloc(r->pool, room);

        if (p == NULL) {
            return NGX_HTTP_INTERNAL_SERVER_ERROR;
        }

        if (ctx->body.data != NULL) {
            ngx_memcpy(p, ctx->body.data, ctx->body.len);
            (void) ngx_pfree(r->pool, ctx->body.data);
        }

        ctx->body.data = p;
        ctx->body_room = room;
    }

    p = ctx->body.data + ctx->body.len;

    if (ngx_buf_in_memory(b)) {
        ngx_memcpy(p, b->pos, size);

    } else if (ngx_read_file(b->file, p, size, b->file_pos)
               != (ssize_t) size)
    {
        /* another module had nginx read it, into a file */

        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    ctx->body.len += size;

    return NGX_OK;
}


static void
ngx_http_sandbox_run(ngx_http_request_t *r)
{
    ngx_int_t                rc;
    ngx_http_sandbox_ctx_t  *ctx;

    ctx = ngx_http_sandbox_ctx(r);

    if (ctx->route->body == NGX_HTTP_SANDBOX_BODY_NONE) {
        ngx_str_null(&ctx->body);
    }

    rc = ctx->route->handler(r);

    if (rc != NGX_DONE) {
        ngx_http_finalize_request(r, rc);
    }
}
