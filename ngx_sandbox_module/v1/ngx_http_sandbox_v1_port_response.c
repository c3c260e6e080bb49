/*
 * What a program in a session answers.  It is a stranger's: its framing is
 * read strictly and told anew, and what it says of the origin, which on the
 * API's own address is the API's, is taken out.
 */

#include "ngx_http_sandbox_v1_port.h"


#define NGX_HTTP_SANDBOX_V1_PORT_ANSWERED   256    /* headers */


static ngx_int_t ngx_http_sandbox_v1_port_header(ngx_http_request_t *r);
static ngx_int_t ngx_http_sandbox_v1_port_line(ngx_http_request_t *r,
    ngx_http_sandbox_v1_port_t *port);
static ngx_int_t ngx_http_sandbox_v1_port_framing(ngx_http_request_t *r,
    ngx_http_sandbox_v1_port_t *port, const ngx_table_elt_t *h);
static ngx_int_t ngx_http_sandbox_v1_port_whole(ngx_http_request_t *r,
    ngx_http_sandbox_v1_port_t *port);
static ngx_int_t ngx_http_sandbox_v1_port_add(ngx_http_request_t *r,
    const ngx_table_elt_t *header);
static ngx_int_t ngx_http_sandbox_v1_port_location(ngx_http_request_t *r,
    ngx_http_sandbox_v1_port_t *port, ngx_table_elt_t *header);
static ngx_int_t ngx_http_sandbox_v1_port_guard(ngx_http_request_t *r);
static ngx_int_t ngx_http_sandbox_v1_port_plain(
    ngx_http_sandbox_v1_port_t *port, ssize_t bytes);
static ngx_int_t ngx_http_sandbox_v1_port_chunks(
    ngx_http_sandbox_v1_port_t *port, ssize_t bytes);
static ngx_buf_t *ngx_http_sandbox_v1_port_out(
    ngx_http_sandbox_v1_port_t *port, u_char *pos, u_char *last);


/* Of this hop, of nginx itself, or orders to nginx. */

static const char *const  ngx_http_sandbox_v1_port_own[] = {
    "connection", "keep-alive", "proxy-*", "te", "trailer",
    "transfer-encoding", "content-length", "x-accel-*", "date", "server",
    "status", "alt-svc", "x-request-id", NULL
};

/* Orders to a browser that would hold for the API's whole origin. */

static const char *const  ngx_http_sandbox_v1_port_origin[] = {
    "set-cookie", "set-cookie2", "service-worker-allowed",
    "access-control-*", "cross-origin-*", "clear-site-data",
    "strict-transport-security", "public-key-pins", "nel", "report-to",
    "reporting-endpoints", "www-authenticate", "link", "refresh",
    "origin-agent-cluster", "x-content-type-options", "speculation-rules",
    "no-vary-search", NULL
};


static ngx_int_t
ngx_http_sandbox_v1_port_bad(ngx_http_request_t *r, const char *what)
{
    /* a tenant can make as many of these as it likes: no errors of ours */

    ngx_log_error(NGX_LOG_INFO, r->connection->log, 0,
                  "sandbox port sent %s", what);

    return NGX_HTTP_UPSTREAM_INVALID_HEADER;
}


ngx_int_t
ngx_http_sandbox_v1_port_status_line(ngx_http_request_t *r)
{
    ngx_int_t                    rc;
    ngx_http_upstream_t         *u;
    ngx_http_sandbox_v1_port_t  *port;

    port = ngx_http_sandbox_ctx(r)->data;
    u = r->upstream;

    rc = ngx_http_parse_status_line(r, &u->buffer, &port->status);

    if (rc == NGX_AGAIN) {
        return rc;
    }

    if (rc == NGX_ERROR || port->status.code < 100 || port->status.code > 599)
    {
        return ngx_http_sandbox_v1_port_bad(r, "no status line");
    }

    ngx_memzero(&port->words, sizeof(ngx_http_sandbox_v1_port_words_t));
    port->length = 0;
    port->chunked = 0;
    u->headers_in.content_length_n = -1;
    u->headers_in.chunked = 0;
    u->headers_in.status_n = port->status.code;

    if (u->state != NULL && u->state->status == 0) {
        u->state->status = port->status.code;
    }

    if (ngx_array_init(&port->headers, r->pool, 16, sizeof(ngx_table_elt_t))
        != NGX_OK)
    {
        return NGX_ERROR;
    }

    /* the words after the number may hold anything; nginx has its own */

    ngx_str_null(&u->headers_in.status_line);

    if (port->status.code == NGX_HTTP_SWITCHING_PROTOCOLS) {
        ngx_str_set(&u->headers_in.status_line, "101 Switching Protocols");
    }

    u->process_header = ngx_http_sandbox_v1_port_header;

    return ngx_http_sandbox_v1_port_header(r);
}


static ngx_int_t
ngx_http_sandbox_v1_port_header(ngx_http_request_t *r)
{
    ngx_int_t                    rc;
    ngx_http_upstream_t         *u;
    ngx_http_sandbox_v1_port_t  *port;

    port = ngx_http_sandbox_ctx(r)->data;
    u = r->upstream;

    for ( ;; ) {
        rc = ngx_http_parse_header_line(r, &u->buffer, 1);

        if (rc == NGX_OK) {
            rc = ngx_http_sandbox_v1_port_line(r, port);

            if (rc != NGX_OK) {
                return rc;
            }

            continue;
        }

        if (rc == NGX_AGAIN) {
            return rc;
        }

        if (rc != NGX_HTTP_PARSE_HEADER_DONE) {
            return ngx_http_sandbox_v1_port_bad(r, "a malformed header");
        }

        if (u->headers_in.status_n >= 200
            || u->headers_in.status_n == NGX_HTTP_SWITCHING_PROTOCOLS)
        {
            return ngx_http_sandbox_v1_port_whole(r, port);
        }

        /* "100 Continue" and its like: the answer is still to come */

        ngx_memzero(&port->status, sizeof(ngx_http_status_t));
        u->state->status = 0;
        r->state = 0;
        u->process_header = ngx_http_sandbox_v1_port_status_line;

        return ngx_http_sandbox_v1_port_status_line(r);
    }
}


static ngx_int_t
ngx_http_sandbox_v1_port_line(ngx_http_request_t *r,
    ngx_http_sandbox_v1_port_t *port)
{
    size_t            len;
    u_char           *p;
    ngx_table_elt_t  *h;

    if (r->invalid_header) {

        /* a name that no other server might read in the same way */

        return NGX_OK;
    }

    if (port->headers.nelts == NGX_HTTP_SANDBOX_V1_PORT_ANSWERED) {
        return ngx_http_sandbox_v1_port_bad(r, "too many headers");
    }

    h = ngx_array_push(&port->headers);

    if (h == NULL) {
        return NGX_ERROR;
    }

    ngx_memzero(h, sizeof(ngx_table_elt_t));

    h->hash = r->header_hash;
    h->key.len = r->header_name_end - r->header_name_start;
    h->value.len = r->header_end - r->header_start;

    len = h->key.len + 1 + h->value.len + 1 + h->key.len;
    p = ngx_pnalloc(r->pool, len);

    if (p == NULL) {
        return NGX_ERROR;
    }

    h->key.data = p;
    p = ngx_cpymem(p, r->header_name_start, h->key.len);
    *p++ = '\0';
    h->value.data = p;
    p = ngx_cpymem(p, r->header_start, h->value.len);
    *p++ = '\0';
    h->lowcase_key = p;
    ngx_strlow(h->lowcase_key, h->key.data, h->key.len);

    return ngx_http_sandbox_v1_port_framing(r, port, h);
}


/* Where the answer ends is for nobody to doubt. */

static ngx_int_t
ngx_http_sandbox_v1_port_framing(ngx_http_request_t *r,
    ngx_http_sandbox_v1_port_t *port, const ngx_table_elt_t *h)
{
    off_t                 length;
    ngx_http_upstream_t  *u;

    u = r->upstream;

    if (h->key.len == 0 || ngx_strlen(h->value.data) != h->value.len) {
        return ngx_http_sandbox_v1_port_bad(r, "a NUL in a header");
    }

    if (h->key.len == sizeof("content-length") - 1
        && ngx_memcmp(h->lowcase_key, "content-length", h->key.len) == 0)
    {
        length = ngx_atoof(h->value.data, h->value.len);

        if (port->length || port->chunked || length == NGX_ERROR) {
            return ngx_http_sandbox_v1_port_bad(r, "a wrong Content-Length");
        }

        port->length = 1;
        u->headers_in.content_length_n = length;
    }

    if (h->key.len == sizeof("transfer-encoding") - 1
        && ngx_memcmp(h->lowcase_key, "transfer-encoding", h->key.len) == 0)
    {
        if (port->length || port->chunked
            || port->status.http_version < NGX_HTTP_VERSION_11
            || h->value.len != sizeof("chunked") - 1
            || ngx_strncasecmp(h->value.data, (u_char *) "chunked",
                               h->value.len) != 0)
        {
            return ngx_http_sandbox_v1_port_bad(r,
                                               "a wrong Transfer-Encoding");
        }

        port->chunked = 1;
        u->headers_in.chunked = 1;
    }

    if (h->key.len == sizeof("connection") - 1
        && ngx_memcmp(h->lowcase_key, "connection", h->key.len) == 0
        && ngx_http_sandbox_v1_port_words(&port->words, &h->value) != NGX_OK)
    {
        return ngx_http_sandbox_v1_port_bad(r, "too much in Connection");
    }

    return NGX_OK;
}


static ngx_int_t
ngx_http_sandbox_v1_port_whole(ngx_http_request_t *r,
    ngx_http_sandbox_v1_port_t *port)
{
    ngx_uint_t            i, upgraded;
    ngx_table_elt_t      *h;
    ngx_http_upstream_t  *u;

    u = r->upstream;
    h = port->headers.elts;
    upgraded = (u->headers_in.status_n == NGX_HTTP_SWITCHING_PROTOCOLS);

    if (upgraded
        && (port->upgrade.len == 0 || port->chunked
            || u->headers_in.content_length_n > 0))
    {
        return ngx_http_sandbox_v1_port_bad(r, "an upgrade, unasked");
    }

    if (upgraded || u->headers_in.status_n == NGX_HTTP_NO_CONTENT) {
        u->headers_in.content_length_n = -1;
    }

    for (i = 0; i < port->headers.nelts; i++) {

        if (h[i].key.len == sizeof("upgrade") - 1
            && ngx_memcmp(h[i].lowcase_key, "upgrade", h[i].key.len) == 0)
        {
            if (!upgraded) {
                continue;
            }

        } else if (ngx_http_sandbox_v1_port_listed(
                       ngx_http_sandbox_v1_port_own, h[i].key.data,
                       h[i].key.len)
                   || ngx_http_sandbox_v1_port_has_word(&port->words,
                                             h[i].key.data, h[i].key.len)
                   || (!port->by_name
                       && ngx_http_sandbox_v1_port_listed(
                              ngx_http_sandbox_v1_port_origin,
                              h[i].key.data, h[i].key.len)))
        {
            continue;
        }

        if (ngx_http_sandbox_v1_port_location(r, port, &h[i]) != NGX_OK
            || ngx_http_sandbox_v1_port_add(r, &h[i]) != NGX_OK)
        {
            return NGX_ERROR;
        }
    }

    u->keepalive = 0;
    u->upgrade = upgraded;

    return port->by_name ? NGX_OK : ngx_http_sandbox_v1_port_guard(r);
}


static ngx_int_t
ngx_http_sandbox_v1_port_add(ngx_http_request_t *r,
    const ngx_table_elt_t *header)
{
    ngx_table_elt_t                 *h;
    ngx_http_upstream_header_t      *hh;
    ngx_http_upstream_main_conf_t   *umcf;

    umcf = ngx_http_get_module_main_conf(r, ngx_http_upstream_module);

    h = ngx_list_push(&r->upstream->headers_in.headers);

    if (h == NULL) {
        return NGX_ERROR;
    }

    *h = *header;

    hh = ngx_hash_find(&umcf->headers_in_hash, h->hash, h->lowcase_key,
                       h->key.len);

    if (hh == NULL) {
        return NGX_OK;
    }

    return (hh->handler(r, h, hh->offset) == NGX_OK) ? NGX_OK : NGX_ERROR;
}


/* The program knows itself as localhost, and its own root as "/". */

static ngx_int_t
ngx_http_sandbox_v1_port_location(ngx_http_request_t *r,
    ngx_http_sandbox_v1_port_t *port, ngx_table_elt_t *header)
{
    u_char                  *p, *end, own[sizeof("http://127.0.0.1:65535")];
    ngx_str_t                path;
    ngx_uint_t               i;
    ngx_http_sandbox_ctx_t  *ctx;

    static const char *const  names[] = { "localhost", "127.0.0.1", "[::1]" };

    if (header->key.len != sizeof("location") - 1
        || ngx_memcmp(header->lowcase_key, "location", header->key.len) != 0)
    {
        return NGX_OK;
    }

    ctx = ngx_http_sandbox_ctx(r);
    path = header->value;

    for (i = 0; i < sbx_nelts(names); i++) {
        end = ngx_sprintf(own, "http://%s:%ui", names[i], port->port);

        if (path.len > (size_t) (end - own)
            && ngx_strncasecmp(path.data, own, end - own) == 0
            && path.data[end - own] == '/')
        {
            path.data += end - own;
            path.len -= end - own;
            break;
        }
    }

    if (path.len == 0 || path.data[0] != '/'
        || (path.len > 1 && path.data[1] == '/'))
    {
        return NGX_OK;
    }

    if (port->by_name) {
        header->value = path;
        return NGX_OK;
    }

    p = ngx_pnalloc(r->pool, ctx->prefix.len + path.len + 1);

    if (p == NULL) {
        return NGX_ERROR;
    }

    end = ngx_sprintf(p, "%V%V", &ctx->prefix, &path);
    *end = '\0';
    header->value.data = p;
    header->value.len = end - p;

    return NGX_OK;
}


/* A page at the API's own address has no origin, and runs nothing. */

static ngx_int_t
ngx_http_sandbox_v1_port_guard(ngx_http_request_t *r)
{
    ngx_uint_t  i;

    static struct {
        const char   *name;
        ngx_str_t     value;
    } fixed[] = {
        { "Content-Security-Policy", ngx_string("sandbox") },
        { "X-Content-Type-Options", ngx_string("nosniff") }
    };

    for (i = 0; i < sbx_nelts(fixed); i++) {
        if (ngx_http_sandbox_add_header(r, fixed[i].name, &fixed[i].value)
            != NGX_OK)
        {
            return NGX_ERROR;
        }
    }

    return NGX_OK;
}


/* ---- the body ----------------------------------------------------------- */


ngx_int_t
ngx_http_sandbox_v1_port_filter_init(void *data)
{
    ngx_http_upstream_t         *u;
    ngx_http_sandbox_v1_port_t  *port;

    port = data;
    u = port->request->upstream;

    if (u->headers_in.status_n == NGX_HTTP_NO_CONTENT
        || u->headers_in.status_n == NGX_HTTP_NOT_MODIFIED
        || port->request->method == NGX_HTTP_HEAD)
    {
        u->length = 0;

    } else if (u->headers_in.chunked) {

        /* that there is more, until the last chunk has come */

        u->length = 1;

    } else {
        u->length = u->headers_in.content_length_n;
    }

    return NGX_OK;
}


ngx_int_t
ngx_http_sandbox_v1_port_filter(void *data, ssize_t bytes)
{
    ngx_http_sandbox_v1_port_t  *port;

    port = data;

    if (port->request->upstream->headers_in.chunked) {
        return ngx_http_sandbox_v1_port_chunks(port, bytes);
    }

    return ngx_http_sandbox_v1_port_plain(port, bytes);
}


static ngx_int_t
ngx_http_sandbox_v1_port_plain(ngx_http_sandbox_v1_port_t *port,
    ssize_t bytes)
{
    u_char               *start;
    ngx_http_upstream_t  *u;

    u = port->request->upstream;
    start = u->buffer.last;
    u->buffer.last += bytes;

    if (u->length == 0) {
        return NGX_OK;
    }

    if (u->length != -1 && bytes > u->length) {
        bytes = (ssize_t) u->length;
    }

    if (ngx_http_sandbox_v1_port_out(port, start, start + bytes) == NULL) {
        return NGX_ERROR;
    }

    if (u->length != -1) {
        u->length -= bytes;
    }

    return NGX_OK;
}


static ngx_int_t
ngx_http_sandbox_v1_port_chunks(ngx_http_sandbox_v1_port_t *port,
    ssize_t bytes)
{
    off_t                 size;
    u_char               *start;
    ngx_int_t             rc;
    ngx_buf_t            *b, *out;
    ngx_http_upstream_t  *u;

    u = port->request->upstream;
    b = &u->buffer;
    out = NULL;

    b->pos = b->last;
    b->last += bytes;

    if (u->length == 0) {
        return NGX_OK;
    }

    for ( ;; ) {
        rc = ngx_http_parse_chunked(port->request, b, &port->chunks);

        switch (rc) {

        case NGX_OK:
            size = ngx_min(b->last - b->pos, port->chunks.size);
            start = b->pos;
            b->pos += size;
            port->chunks.size -= size;

            if (size == 0) {
                break;
            }

            /* one piece for all chunks, however small they were made */

            if (out != NULL) {
                out->last = ngx_movemem(out->last, start, size);
                break;
            }

            out = ngx_http_sandbox_v1_port_out(port, start, b->pos);

            if (out == NULL) {
                return NGX_ERROR;
            }

            break;

        case NGX_AGAIN:
            return NGX_OK;

        case NGX_DONE:
            u->length = 0;
            return NGX_OK;

        default:
            ngx_log_error(NGX_LOG_INFO, port->request->connection->log, 0,
                          "sandbox port sent a malformed chunk");
            return NGX_ERROR;
        }
    }
}


/* A piece of the upstream's buffer for the client. */

static ngx_buf_t *
ngx_http_sandbox_v1_port_out(ngx_http_sandbox_v1_port_t *port, u_char *pos,
    u_char *last)
{
    ngx_buf_t            *b;
    ngx_chain_t          *cl, **end;
    ngx_http_upstream_t  *u;

    u = port->request->upstream;

    for (end = &u->out_bufs; *end != NULL; end = &(*end)->next) {
        /* void */
    }

    cl = ngx_chain_get_free_buf(port->request->pool, &u->free_bufs);

    if (cl == NULL) {
        return NULL;
    }

    *end = cl;
    cl->next = NULL;

    b = cl->buf;
    b->flush = 1;
    b->memory = 1;
    b->pos = pos;
    b->last = last;
    b->tag = u->output.tag;

    return b;
}
