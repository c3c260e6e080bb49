/*
 * Which plane a request of the E2B protocol belongs to.
 */

#include "ngx_http_sandbox_e2b.h"


static ngx_int_t ngx_http_sandbox_e2b_host(ngx_http_request_t *r,
    ngx_str_t *port, ngx_str_t *id);
static ngx_int_t ngx_http_sandbox_e2b_headers(ngx_http_request_t *r,
    ngx_str_t *port, ngx_str_t *id);
static ngx_int_t ngx_http_sandbox_e2b_prefix(ngx_http_sandbox_match_t *match,
    ngx_str_t *id);
static ngx_uint_t ngx_http_sandbox_e2b_is_files(const ngx_str_t *raw);
static ngx_int_t ngx_http_sandbox_e2b_data(ngx_http_request_t *r,
    ngx_http_sandbox_match_t *match, ngx_http_sandbox_e2b_t *e2b,
    ngx_str_t *port);
static ngx_int_t ngx_http_sandbox_e2b_cors(ngx_http_request_t *r,
    ngx_uint_t preflight);


static const ngx_str_t  ngx_http_sandbox_e2b_envd_port =
    ngx_string("49983");

/* What tells a sandbox, and shows a right to it, is not for its programs. */

static const char *const  ngx_http_sandbox_e2b_port_kept[] = {
    "e2b-*", NULL
};


ngx_int_t
ngx_http_sandbox_e2b_match(ngx_http_request_t *r, ngx_http_sandbox_ctx_t *ctx,
    ngx_http_sandbox_match_t *match)
{
    ngx_int_t                rc;
    ngx_str_t                port, id;
    ngx_http_sandbox_e2b_t  *e2b;

    e2b = ngx_pcalloc(r->pool, sizeof(ngx_http_sandbox_e2b_t));

    if (e2b == NULL) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    ctx->e2b = e2b;
    ctx->refuse = ngx_http_sandbox_e2b_refuse_control;

    /* a client reads each answer as it comes, and what a program behind a
     * port says is its own: files alone may be encoded */

#if (NGX_HTTP_GZIP)
    r->gzip_tested = 1;
    r->gzip_ok = 0;
#endif

    rc = ngx_http_sandbox_e2b_host(r, &port, &id);
    e2b->by_host = (rc == NGX_OK);

    if (rc == NGX_DECLINED) {
        rc = ngx_http_sandbox_e2b_headers(r, &port, &id);
    }

    if (rc == NGX_ABORT) {
        return ngx_http_sandbox_e2b_say(r, 400,
                             "E2b-Sandbox-Id and E2b-Sandbox-Port must both "
                             "be there, once each");
    }

    if (rc == NGX_DECLINED) {
        rc = ngx_http_sandbox_e2b_prefix(match, &id);
        port = ngx_http_sandbox_e2b_envd_port;
    }

    if (rc == NGX_OK) {
        e2b->id = id;

        return ngx_http_sandbox_e2b_data(r, match, e2b, &port);
    }

    if (ngx_http_sandbox_e2b_is_files(&match->raw)) {
        return ngx_http_sandbox_e2b_data(r, match, e2b, &port);
    }

    match->routes = ngx_http_sandbox_e2b_control_routes;

    return NGX_OK;
}


/* "<port>-<id>.<domain>", whatever the domain. */

static ngx_int_t
ngx_http_sandbox_e2b_host(ngx_http_request_t *r, ngx_str_t *port,
    ngx_str_t *id)
{
    u_char     *p, *end;
    ngx_str_t  *host;

    host = &r->headers_in.server;
    p = host->data;
    end = ngx_strlchr(p, p + host->len, '.');

    if (end == NULL) {
        return NGX_DECLINED;
    }

    while (p < end && *p >= '0' && *p <= '9') {
        p++;
    }

    if (p == host->data || p == end || *p != '-'
        || !sbx_session_id_ok((char *) p + 1, end - p - 1))
    {
        return NGX_DECLINED;
    }

    port->data = host->data;
    port->len = p - host->data;
    id->data = p + 1;
    id->len = end - p - 1;

    return NGX_OK;
}


static ngx_int_t
ngx_http_sandbox_e2b_headers(ngx_http_request_t *r, ngx_str_t *port,
    ngx_str_t *id)
{
    ngx_int_t  with_port, with_id;

    with_port = ngx_http_sandbox_op_header(r, "e2b-sandbox-port", port);
    with_id = ngx_http_sandbox_op_header(r, "e2b-sandbox-id", id);

    if (with_port == NGX_DECLINED && with_id == NGX_DECLINED) {
        return NGX_DECLINED;
    }

    return (with_port == NGX_OK && with_id == NGX_OK) ? NGX_OK : NGX_ABORT;
}


/* The address that we tell whoever does not send headers. */

static ngx_int_t
ngx_http_sandbox_e2b_prefix(ngx_http_sandbox_match_t *match, ngx_str_t *id)
{
    u_char  *p, *end;

    p = match->raw.data;
    end = p + match->raw.len;

    if (match->raw.len < 5 || ngx_memcmp(p, "envd/", 5) != 0) {
        return NGX_DECLINED;
    }

    id->data = p + 5;
    p = ngx_strlchr(id->data, end, '/');

    if (p == NULL) {
        p = end;
    }

    id->len = p - id->data;

    if (p < end) {
        p++;
    }

    match->raw.len = end - p;
    match->raw.data = p;

    return NGX_OK;
}


/* Signed addresses of files tell no sandbox. */

static ngx_uint_t
ngx_http_sandbox_e2b_is_files(const ngx_str_t *raw)
{
    return raw->len == 5 && ngx_memcmp(raw->data, "files", 5) == 0;
}


static ngx_int_t
ngx_http_sandbox_e2b_data(ngx_http_request_t *r,
    ngx_http_sandbox_match_t *match, ngx_http_sandbox_e2b_t *e2b,
    ngx_str_t *port)
{
    ngx_int_t                n;
    ngx_http_sandbox_ctx_t  *ctx;

    ctx = ngx_http_sandbox_ctx(r);
    n = NGX_HTTP_SANDBOX_E2B_ENVD;

    if (e2b->id.len != 0) {
        n = ngx_atoi(port->data, port->len);
        match->bound = e2b->id;
        ctx->call_flags = SBX_CALL_RESUME;
    }

    if (n == NGX_HTTP_SANDBOX_E2B_ENVD || n == NGX_HTTP_SANDBOX_E2B_CODE) {

        /* clients add their path to an address that may end with a slash */

        while (match->raw.len != 0 && match->raw.data[0] == '/') {
            match->raw.data++;
            match->raw.len--;
        }
    }

    switch (n) {

    case NGX_HTTP_SANDBOX_E2B_ENVD:
        e2b->plane = NGX_HTTP_SANDBOX_E2B_PLANE_ENVD;
        ctx->refuse = ngx_http_sandbox_e2b_refuse_data;
        match->routes = ngx_http_sandbox_e2b_envd_routes;
        break;

    case NGX_HTTP_SANDBOX_E2B_CODE:
        e2b->plane = NGX_HTTP_SANDBOX_E2B_PLANE_CODE;
        ctx->refuse = ngx_http_sandbox_e2b_refuse_code;
        match->routes = ngx_http_sandbox_e2b_code_routes;
        break;

    default:
        e2b->plane = NGX_HTTP_SANDBOX_E2B_PLANE_PORT;
        ctx->refuse = ngx_http_sandbox_e2b_refuse_port;
        ctx->port_kept = ngx_http_sandbox_e2b_port_kept;
        ctx->by_name = e2b->by_host;
        ctx->port_auth = e2b->by_host;

        match->item = *port;
        match->base = match->item.data + match->item.len;
        match->rest.data = match->raw.data;
        match->rest.len = match->raw.len;

        if (match->rest.data > r->unparsed_uri.data
            && match->rest.data[-1] == '/')
        {
            match->rest.data--;
            match->rest.len++;
        }

        match->route = &ngx_http_sandbox_v1_port_route;
        match->allowed = match->route->methods;

        return NGX_OK;
    }

    /* a page may ask what it has a token for */

    if (r->method == NGX_HTTP_OPTIONS) {
        return ngx_http_sandbox_e2b_cors(r, 1);
    }

    return ngx_http_sandbox_e2b_cors(r, 0);
}


static ngx_int_t
ngx_http_sandbox_e2b_cors(ngx_http_request_t *r, ngx_uint_t preflight)
{
    ngx_uint_t  i;
    ngx_str_t   value;

    static const struct {
        const char  *name;
        ngx_str_t    value;
        ngx_uint_t   preflight;
    } table[] = {
        { "Access-Control-Allow-Origin", ngx_string("*"), 0 },
        { "Access-Control-Expose-Headers", ngx_string("*"), 0 },
        { "Access-Control-Allow-Methods",
          ngx_string("HEAD, GET, POST, PUT, PATCH, DELETE"), 1 },
        { "Access-Control-Allow-Headers", ngx_string("*"), 1 },
        { "Access-Control-Max-Age", ngx_string("7200"), 1 }
    };

    for (i = 0; i < sizeof(table) / sizeof(table[0]); i++) {
        if (table[i].preflight && !preflight) {
            continue;
        }

        value = table[i].value;

        if (ngx_http_sandbox_add_header(r, table[i].name, &value) != NGX_OK) {
            return NGX_HTTP_INTERNAL_SERVER_ERROR;
        }
    }

    return preflight ? ngx_http_sandbox_op_no_content(r) : NGX_OK;
}
