/*
 * The content handler of a location with an API.
 *
 * Routes are matched on the raw URI, as the client sent it: a path of a
 * session may hold anything, and is decoded once, here.  The location was
 * chosen by nginx on the normalized URI; a raw one that does not begin with
 * the location's name is no route.
 */

#include "e2b/ngx_http_sandbox_e2b.h"


static ngx_int_t ngx_http_sandbox_begin(ngx_http_request_t *r);
static ngx_int_t ngx_http_sandbox_route(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx);
static ngx_int_t ngx_http_sandbox_raw_path(ngx_http_request_t *r,
    ngx_http_sandbox_match_t *match);
static ngx_int_t ngx_http_sandbox_port_name(ngx_http_request_t *r,
    const ngx_str_t *domain, ngx_http_sandbox_match_t *match);
static void ngx_http_sandbox_match(ngx_http_request_t *r,
    ngx_http_sandbox_match_t *match);
static ngx_uint_t ngx_http_sandbox_match_path(const char *path,
    ngx_http_sandbox_match_t *match);
static ngx_int_t ngx_http_sandbox_not_allowed(ngx_http_request_t *r,
    ngx_uint_t allowed);


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
    { NGX_HTTP_OPTIONS, "OPTIONS" },
    { 0, NULL }
};


ngx_int_t
ngx_http_sandbox_handler(ngx_http_request_t *r)
{
    if (r != r->main) {

        /* a subrequest has the raw URI of another request */

        return NGX_HTTP_NOT_FOUND;
    }

    return ngx_http_sandbox_turn_request(r, ngx_http_sandbox_begin);
}


static ngx_int_t
ngx_http_sandbox_begin(ngx_http_request_t *r)
{
    ngx_int_t                rc;
    ngx_str_t                id;
    ngx_uint_t               again;
    ngx_http_sandbox_ctx_t  *ctx;

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

    rc = (ctx->e2b == NULL) ? ngx_http_sandbox_identify(r, ctx)
                            : ngx_http_sandbox_e2b_admit(r, ctx);

    if (rc != NGX_OK || r->header_sent) {
        return rc;
    }

    return ngx_http_sandbox_read_body(r, ctx);
}


/* Finds the route and what the URI tells; without one, the answer is sent. */

static ngx_int_t
ngx_http_sandbox_route(ngx_http_request_t *r, ngx_http_sandbox_ctx_t *ctx)
{
    ngx_int_t                     rc;
    ngx_http_sandbox_match_t      match;
    ngx_http_sandbox_loc_conf_t  *slcf;

    ngx_memzero(&match, sizeof(ngx_http_sandbox_match_t));

    slcf = ngx_http_get_module_loc_conf(r, ngx_http_sandbox_module);

    if (slcf->port_host.len != 0) {
        rc = ngx_http_sandbox_port_name(r, &slcf->port_host, &match);

    } else {
        rc = ngx_http_sandbox_raw_path(r, &match);
    }

    if (rc == NGX_ERROR) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    if (rc == NGX_OK && slcf->api == NGX_HTTP_SANDBOX_API_E2B) {
        rc = ngx_http_sandbox_e2b_match(r, ctx, &match);

        if ((rc != NGX_OK && rc != NGX_DECLINED) || r->header_sent) {
            return rc;
        }
    }

    if (rc == NGX_OK && match.route == NULL) {
        ngx_http_sandbox_match(r, &match);
    }

    if (match.bound.data != NULL) {
        match.session = match.bound;
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

    ctx->item = match.item;

    if (match.item.data != NULL) {
        ctx->prefix.data = match.base;
        ctx->prefix.len = match.item.data + match.item.len - match.base;
    }

    if (match.route->handler == ngx_http_sandbox_v1_port_route.handler) {

        /* path and query are another server's */

        ctx->rest = match.rest;

        return NGX_OK;
    }

    if (!ngx_http_sandbox_escapes_ok(&r->args)) {
        return ngx_http_sandbox_problem(r, NGX_HTTP_SANDBOX_INVALID_REQUEST,
                                   "the query has a \"%%\" without two "
                                   "hexadecimal digits after it");
    }

    /* handlers of this one look for their own paths */

    if (slcf->api == NGX_HTTP_SANDBOX_API_E2B) {
        return NGX_OK;
    }

    return ngx_http_sandbox_path(r, ctx, match.has_path ? &match.path : NULL);
}


/* Up to the query.  Where a rewrite made it, it is encoded again, so that
 * there is one form to go on with. */

ngx_int_t
ngx_http_sandbox_raw_uri(ngx_http_request_t *r, ngx_str_t *uri)
{
    size_t      i;
    u_char     *p;
    uintptr_t   escapes;

    *uri = r->unparsed_uri;

    for (i = 0; i < uri->len; i++) {
        if (uri->data[i] == '?' || uri->data[i] == '#') {
            break;
        }
    }

    uri->len = i;

    if (r->valid_unparsed_uri) {
        return NGX_OK;
    }

    *uri = r->uri;
    escapes = ngx_escape_uri(NULL, uri->data, uri->len, NGX_ESCAPE_URI);

    if (escapes == 0) {
        return NGX_OK;
    }

    p = ngx_pnalloc(r->pool, uri->len + 2 * escapes);

    if (p == NULL) {
        return NGX_ERROR;
    }

    (void) ngx_escape_uri(p, uri->data, uri->len, NGX_ESCAPE_URI);

    uri->data = p;
    uri->len += 2 * escapes;

    return NGX_OK;
}


/*
 * "<port>-<session>.<domain>": the whole URI is the program's.  A name of
 * another form is no route.
 */

static ngx_int_t
ngx_http_sandbox_port_name(ngx_http_request_t *r, const ngx_str_t *domain,
    ngx_http_sandbox_match_t *match)
{
    u_char     *dash, *end;
    ngx_str_t   uri, *host;

    host = &r->headers_in.server;

    if (host->len <= domain->len + 1
        || ngx_strncasecmp(host->data + host->len - domain->len,
                           domain->data, domain->len)
           != 0
        || host->data[host->len - domain->len - 1] != '.')
    {
        return NGX_DECLINED;
    }

    end = host->data + host->len - domain->len - 1;
    dash = ngx_strlchr(host->data, end, '-');

    if (dash == NULL || dash == host->data || dash + 1 == end) {
        return NGX_DECLINED;
    }

    if (ngx_http_sandbox_raw_uri(r, &uri) != NGX_OK) {
        return NGX_ERROR;
    }

    match->item.data = host->data;
    match->item.len = dash - host->data;
    match->base = match->item.data + match->item.len;
    match->session.data = dash + 1;
    match->session.len = end - dash - 1;
    match->rest = uri;
    match->route = &ngx_http_sandbox_v1_port_route;
    match->allowed = match->route->methods;

    return NGX_OK;
}


/* What follows the location's name. */

static ngx_int_t
ngx_http_sandbox_raw_path(ngx_http_request_t *r,
    ngx_http_sandbox_match_t *match)
{
    ngx_str_t                  uri, *name, *raw;
    ngx_http_core_loc_conf_t  *clcf;

    if (ngx_http_sandbox_raw_uri(r, &uri) != NGX_OK) {
        return NGX_ERROR;
    }

    raw = &match->raw;
    match->base = uri.data;

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


static ngx_http_sandbox_route_t *
ngx_http_sandbox_routes(ngx_uint_t api)
{
    switch (api) {

    case NGX_HTTP_SANDBOX_API_ADMIN:
        return ngx_http_sandbox_admin_routes;

    case NGX_HTTP_SANDBOX_API_METRICS:
        return ngx_http_sandbox_metrics_routes;

    case NGX_HTTP_SANDBOX_API_STATUS:
        return ngx_http_sandbox_status_routes;

    default:
        return ngx_http_sandbox_v1_routes;
    }
}


/* HEAD is answered by its own route, or else by GET's. */

static void
ngx_http_sandbox_match(ngx_http_request_t *r,
    ngx_http_sandbox_match_t *match)
{
    ngx_uint_t                    method;
    ngx_http_sandbox_route_t     *route;
    ngx_http_sandbox_match_t      found;
    ngx_http_sandbox_loc_conf_t  *slcf;

    slcf = ngx_http_get_module_loc_conf(r, ngx_http_sandbox_module);
    method = r->method;
    found = *match;

    if (match->routes == NULL) {
        match->routes = ngx_http_sandbox_routes(slcf->api);
    }

    for (route = match->routes;
         route->path != NULL;
         route++)
    {

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
        match->item = found.item;
        match->path = found.path;
        match->has_path = found.has_path;
        match->rest = found.rest;
    }
}


/*
 * "sessions/{id}/files/{path}": the session, and all that is left; {rest} is
 * the same, never decoded.  Any other word in braces is one segment.
 */

static ngx_uint_t
ngx_http_sandbox_match_path(const char *path,
    ngx_http_sandbox_match_t *match)
{
    size_t   len;
    u_char  *p, *s, *end;

    p = match->raw.data;
    end = p + match->raw.len;

    ngx_str_null(&match->session);
    ngx_str_null(&match->item);
    ngx_str_null(&match->path);
    ngx_str_null(&match->rest);
    match->has_path = 0;

    for ( ;; ) {
        if (ngx_strcmp(path, "{path}") == 0) {
            match->path.data = p;
            match->path.len = end - p;
            match->has_path = 1;

            return 1;
        }

        if (ngx_strcmp(path, "{rest}") == 0) {

            /* with the slash before it */

            match->rest.data = p - 1;
            match->rest.len = end - p + 1;

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

        } else if (*path == '{') {

            if (s == p) {
                return 0;
            }

            match->item.data = p;
            match->item.len = s - p;

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

    static const size_t  size =
        sizeof("GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS");

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
