/*
 * What a program in a session gets to read.  Of the client's headers those
 * that are meant for this hop stay here, and so do those that would give the
 * caller's standing with the API to a stranger's program.
 */

#include "ngx_http_sandbox_v1_port.h"


#define NGX_HTTP_SANDBOX_V1_PORT_HEADERS   256


static ngx_uint_t ngx_http_sandbox_v1_port_passes(
    ngx_http_sandbox_v1_port_t *port, const ngx_table_elt_t *header);
static size_t ngx_http_sandbox_v1_port_room(
    ngx_http_sandbox_v1_port_t *port, off_t length);
static u_char *ngx_http_sandbox_v1_port_head(
    ngx_http_sandbox_v1_port_t *port, u_char *p, off_t length);
static u_char *ngx_http_sandbox_v1_port_forwarded(
    ngx_http_sandbox_v1_port_t *port, u_char *p);
static u_char *ngx_http_sandbox_v1_port_pass(
    ngx_http_sandbox_v1_port_t *port, u_char *p);
static ngx_int_t ngx_http_sandbox_v1_port_body(void *data, ngx_chain_t *in);
static ngx_int_t ngx_http_sandbox_v1_port_chunk(
    ngx_http_sandbox_v1_port_t *port, ngx_chain_t ***last, const char *fmt,
    off_t size);


/* Of this hop, or said anew; and who the caller is to the API. */

static const char *const  ngx_http_sandbox_v1_port_kept[] = {
    "connection", "keep-alive", "proxy-*", "te", "trailer",
    "transfer-encoding", "upgrade", "http2-settings", "host",
    "content-length", "expect", "forwarded", "via", "x-forwarded-*",
    "x-real-ip", "x-accel-*", "authorization", "x-api-key",
    "x-access-token", "x-port-authorization", NULL
};

static const char *const  ngx_http_sandbox_v1_port_kept_path[] = {
    "cookie", NULL
};


ngx_int_t
ngx_http_sandbox_v1_port_words(ngx_http_sandbox_v1_port_words_t *words,
    const ngx_str_t *value)
{
    u_char  *p, *start, *end;

    p = value->data;
    end = p + value->len;

    while (p < end) {
        while (p < end && (*p == ' ' || *p == '\t' || *p == ',')) {
            p++;
        }

        for (start = p; p < end && *p != ',' && *p != ' ' && *p != '\t'; p++)
        {
            /* void */
        }

        if (p == start) {
            break;
        }

        if (words->nelts == NGX_HTTP_SANDBOX_V1_PORT_WORDS) {
            return NGX_DECLINED;
        }

        words->word[words->nelts].data = start;
        words->word[words->nelts].len = p - start;
        words->nelts++;
    }

    return NGX_OK;
}


ngx_uint_t
ngx_http_sandbox_v1_port_has_word(
    const ngx_http_sandbox_v1_port_words_t *words, const u_char *name,
    size_t len)
{
    ngx_uint_t  i;

    for (i = 0; i < words->nelts; i++) {
        if (words->word[i].len == len
            && ngx_strncasecmp(words->word[i].data, (u_char *) name, len)
               == 0)
        {
            return 1;
        }
    }

    return 0;
}


ngx_uint_t
ngx_http_sandbox_v1_port_listed(const char *const *list, const u_char *name,
    size_t len)
{
    size_t  n;

    for ( /* void */ ; *list != NULL; list++) {
        n = ngx_strlen(*list);

        if ((*list)[n - 1] == '*') {
            n--;

            if (len >= n
                && ngx_strncasecmp((u_char *) *list, (u_char *) name, n) == 0)
            {
                return 1;
            }

        } else if (n == len
                   && ngx_strncasecmp((u_char *) *list, (u_char *) name, n)
                      == 0)
        {
            return 1;
        }
    }

    return 0;
}


/* What would end the request's first line; a rewrite may have put it in. */

static ngx_uint_t
ngx_http_sandbox_v1_port_is_word(const ngx_str_t *s)
{
    size_t  i;

    for (i = 0; i < s->len; i++) {
        if (s->data[i] <= ' ' || s->data[i] == 0x7f) {
            return 0;
        }
    }

    return 1;
}


/* What the client says of its connection; NGX_DECLINED: it says too much. */

static ngx_int_t
ngx_http_sandbox_v1_port_hop(ngx_http_request_t *r,
    ngx_http_sandbox_v1_port_words_t *words, ngx_str_t *upgrade,
    ngx_uint_t *count)
{
    ngx_uint_t        i;
    ngx_list_part_t  *part;
    ngx_table_elt_t  *header;

    static const char *const  protocol[] = { "upgrade", NULL };
    static const char *const  connection[] = { "connection", NULL };

    for (part = &r->headers_in.headers.part; part; part = part->next) {
        header = part->elts;
        *count += part->nelts;

        for (i = 0; i < part->nelts; i++) {

            if (ngx_http_sandbox_v1_port_listed(protocol,
                                                header[i].key.data,
                                                header[i].key.len))
            {
                *upgrade = header[i].value;
            }

            if (ngx_http_sandbox_v1_port_listed(connection,
                                                header[i].key.data,
                                                header[i].key.len)
                && ngx_http_sandbox_v1_port_words(words, &header[i].value)
                   != NGX_OK)
            {
                return NGX_DECLINED;
            }
        }
    }

    return NGX_OK;
}


ngx_int_t
ngx_http_sandbox_v1_port_check(ngx_http_sandbox_v1_port_t *port,
    sbx_error_t *e)
{
    ngx_str_t            upgrade, version;
    ngx_uint_t           n, modern;
    ngx_http_request_t  *r;

    n = 0;
    r = port->request;
    modern = (r->http_version == NGX_HTTP_VERSION_11);
    ngx_str_null(&upgrade);

    if (!ngx_http_sandbox_v1_port_is_word(&r->method_name)
        || !ngx_http_sandbox_v1_port_is_word(
                                          &ngx_http_sandbox_ctx(r)->rest)
        || !ngx_http_sandbox_v1_port_is_word(&r->args))
    {
        (void) sbx_error(e, 0, SBX_E_INVALID,
                         "a space or control character is in the URI");
        return NGX_DECLINED;
    }

    if (ngx_http_sandbox_v1_port_hop(r, &port->words, &upgrade, &n)
        != NGX_OK)
    {
        (void) sbx_error(e, 0, SBX_E_INVALID,
                         "Connection names more than %d headers",
                         NGX_HTTP_SANDBOX_V1_PORT_WORDS);
        return NGX_DECLINED;
    }

    if (n > NGX_HTTP_SANDBOX_V1_PORT_HEADERS) {
        (void) sbx_error(e, 0, SBX_E_INVALID,
                         "a port takes %d headers at most",
                         NGX_HTTP_SANDBOX_V1_PORT_HEADERS);
        return NGX_DECLINED;
    }

    /* HTTP/2 has no Upgrade, but a WebSocket is asked for in more words */

    if (!modern
        && (upgrade.len != 0
            || ngx_http_sandbox_op_header(r, "sec-websocket-version",
                                          &version) != NGX_DECLINED))
    {
        (void) sbx_error(e, 0, SBX_E_INVALID,
                         "WebSocket and other upgrades need HTTP/1.1");
        return NGX_DECLINED;
    }

    /* an upgrade may be ignored, and one with a body or to HTTP/2 is */

    if (upgrade.len != 0
        && ngx_http_sandbox_v1_port_has_word(&port->words,
                                             (u_char *) "upgrade", 7)
        && r->headers_in.content_length_n <= 0 && !r->headers_in.chunked
        && !(upgrade.len >= 3
             && ngx_strncasecmp(upgrade.data, (u_char *) "h2c", 3) == 0))
    {
        port->upgrade = upgrade;
    }

    return NGX_OK;
}


ngx_int_t
ngx_http_sandbox_v1_port_create_request(ngx_http_request_t *r)
{
    off_t                        length;
    u_char                      *end;
    ngx_buf_t                   *b;
    ngx_chain_t                 *head, *body, *cl;
    ngx_http_upstream_t         *u;
    ngx_http_sandbox_v1_port_t  *port;

    port = ngx_http_sandbox_ctx(r)->data;
    u = r->upstream;
    body = NULL;

    /* -1: in chunks, as it comes */

    if (r->request_body_no_buffering) {
        length = r->headers_in.chunked ? -1 : r->headers_in.content_length_n;

    } else {
        body = u->request_bufs;

        for (length = 0, cl = body; cl != NULL; cl = cl->next) {
            length += ngx_buf_size(cl->buf);
        }

        if (length == 0 && r->headers_in.content_length_n < 0
            && !r->headers_in.chunked)
        {
            length = -2;
        }
    }

    if (length == -1 && r->request_body_no_buffering) {
        u->output.output_filter = ngx_http_sandbox_v1_port_body;
        u->output.filter_ctx = r;
    }

    b = ngx_create_temp_buf(r->pool,
                            ngx_http_sandbox_v1_port_room(port, length));
    head = ngx_alloc_chain_link(r->pool);

    if (b == NULL || head == NULL) {
        return NGX_ERROR;
    }

    end = ngx_http_sandbox_v1_port_head(port, b->last, length);
    b->last = end;
    b->flush = 1;

    head->buf = b;
    head->next = body;
    u->request_bufs = head;

    return NGX_OK;
}


ngx_int_t
ngx_http_sandbox_v1_port_reinit_request(ngx_http_request_t *r)
{
    /* there is but one try */

    return NGX_ERROR;
}


/* The most that the head may take. */

static size_t
ngx_http_sandbox_v1_port_room(ngx_http_sandbox_v1_port_t *port, off_t length)
{
    size_t                   size;
    ngx_uint_t               i;
    ngx_list_part_t         *part;
    ngx_table_elt_t         *header;
    ngx_http_request_t      *r;
    ngx_http_sandbox_ctx_t  *ctx;

    r = port->request;
    ctx = ngx_http_sandbox_ctx(r);

    /* the module's own lines, without what is from the request in them */

    size = 1024;
    size += r->method_name.len + ctx->rest.len + r->args.len
            + 2 * ctx->prefix.len + port->upgrade.len
            + r->connection->addr_text.len + r->headers_in.server.len;

    for (part = &r->headers_in.headers.part; part; part = part->next) {
        header = part->elts;

        for (i = 0; i < part->nelts; i++) {
            size += header[i].key.len + header[i].value.len
                    + sizeof(": " CRLF);
        }
    }

    return size;
}


static u_char *
ngx_http_sandbox_v1_port_head(ngx_http_sandbox_v1_port_t *port, u_char *p,
    off_t length)
{
    ngx_http_request_t      *r;
    ngx_http_sandbox_ctx_t  *ctx;

    r = port->request;
    ctx = ngx_http_sandbox_ctx(r);

    p = ngx_sprintf(p, "%V %s%V", &r->method_name,
                    (ctx->rest.len != 0 && ctx->rest.data[0] == '/') ? ""
                                                                     : "/",
                    &ctx->rest);

    if (r->args.len != 0) {
        p = ngx_sprintf(p, "?%V", &r->args);
    }

    p = ngx_sprintf(p, " HTTP/1.1" CRLF "Host: localhost:%ui" CRLF,
                    port->port);

    if (port->upgrade.len != 0) {
        p = ngx_sprintf(p, "Connection: Upgrade" CRLF "Upgrade: %V" CRLF,
                        &port->upgrade);

    } else {
        p = ngx_sprintf(p, "Connection: close" CRLF);
    }

    if (length >= 0) {
        p = ngx_sprintf(p, "Content-Length: %O" CRLF, length);

    } else if (r->upstream->output.output_filter
               == ngx_http_sandbox_v1_port_body)
    {
        p = ngx_sprintf(p, "Transfer-Encoding: chunked" CRLF);
    }

    p = ngx_http_sandbox_v1_port_forwarded(port, p);
    p = ngx_http_sandbox_v1_port_pass(port, p);

    return ngx_cpymem(p, CRLF, sizeof(CRLF) - 1);
}


/* What came before is not believed. */

static u_char *
ngx_http_sandbox_v1_port_forwarded(ngx_http_sandbox_v1_port_t *port,
    u_char *p)
{
    ngx_uint_t               secure;
    ngx_http_request_t      *r;
    ngx_http_sandbox_ctx_t  *ctx;

    r = port->request;
    ctx = ngx_http_sandbox_ctx(r);
    secure = 0;

#if (NGX_HTTP_SSL)
    secure = (r->connection->ssl != NULL);
#endif

    p = ngx_sprintf(p, "X-Forwarded-For: %V" CRLF
                    "X-Forwarded-Proto: %s" CRLF,
                    &r->connection->addr_text, secure ? "https" : "http");

    if (r->headers_in.host != NULL) {
        p = ngx_sprintf(p, "X-Forwarded-Host: %V" CRLF,
                        &r->headers_in.host->value);

    } else if (r->headers_in.server.len != 0) {
        p = ngx_sprintf(p, "X-Forwarded-Host: %V" CRLF,
                        &r->headers_in.server);
    }

    if (!port->by_name) {
        p = ngx_sprintf(p, "X-Forwarded-Prefix: %V" CRLF, &ctx->prefix);
    }

    return p;
}


static u_char *
ngx_http_sandbox_v1_port_pass(ngx_http_sandbox_v1_port_t *port, u_char *p)
{
    ngx_str_t         asked;
    ngx_uint_t        i;
    ngx_list_part_t  *part;
    ngx_table_elt_t  *header;

    part = &port->request->headers_in.headers.part;

    for ( /* void */ ; part; part = part->next) {
        header = part->elts;

        for (i = 0; i < part->nelts; i++) {
            if (ngx_http_sandbox_v1_port_passes(port, &header[i])) {
                p = ngx_sprintf(p, "%V: %V" CRLF, &header[i].key,
                                &header[i].value);
            }
        }
    }

    /* what the caller means for the program, and says so */

    if (ngx_http_sandbox_op_header(port->request, "x-port-authorization",
                                   &asked)
        == NGX_OK)
    {
        p = ngx_sprintf(p, "Authorization: %V" CRLF, &asked);
    }

    return p;
}


static ngx_uint_t
ngx_http_sandbox_v1_port_passes(ngx_http_sandbox_v1_port_t *port,
    const ngx_table_elt_t *header)
{
    const ngx_str_t         *key;
    ngx_http_sandbox_ctx_t  *ctx;

    key = &header->key;
    ctx = ngx_http_sandbox_ctx(port->request);

    if (header == port->request->headers_in.authorization && ctx->port_auth
        && port->request->headers_in.user.data == NULL)
    {
        return 1;
    }

    if (ctx->port_kept != NULL
        && ngx_http_sandbox_v1_port_listed(ctx->port_kept, key->data,
                                           key->len))
    {
        return 0;
    }

    if (key->len == 0
        || ngx_http_sandbox_v1_port_listed(ngx_http_sandbox_v1_port_kept,
                                           key->data, key->len)
        || ngx_http_sandbox_v1_port_has_word(&port->words, key->data,
                                             key->len))
    {
        return 0;
    }

    return port->by_name
           || !ngx_http_sandbox_v1_port_listed(
                                       ngx_http_sandbox_v1_port_kept_path,
                                       key->data, key->len);
}


/* ---- a body in chunks --------------------------------------------------- */


/* An output filter: the head as it is, and after it chunks. */

static ngx_int_t
ngx_http_sandbox_v1_port_body(void *data, ngx_chain_t *in)
{
    off_t                        size;
    ngx_int_t                    rc;
    ngx_uint_t                   end;
    ngx_chain_t                  head, *out, *cl, **last, **first;
    ngx_http_request_t          *r;
    ngx_http_sandbox_v1_port_t  *port;

    r = data;
    port = ngx_http_sandbox_ctx(r)->data;

    out = NULL;
    last = &out;
    size = 0;
    end = 0;

    if (in != NULL && !port->head_sent) {
        port->head_sent = 1;

        head.buf = in->buf;
        head.next = NULL;

        if (ngx_chain_add_copy(r->pool, &out, &head) != NGX_OK) {
            return NGX_ERROR;
        }

        last = &out->next;
        in = in->next;
    }

    for (cl = in; cl != NULL; cl = cl->next) {
        size += ngx_buf_size(cl->buf);
        end |= cl->buf->last_buf;
    }

    if (size != 0) {
        if (ngx_http_sandbox_v1_port_chunk(port, &last, "%xO" CRLF, size)
            != NGX_OK)
        {
            return NGX_ERROR;
        }

        first = last;

        if (ngx_chain_add_copy(r->pool, first, in) != NGX_OK) {
            return NGX_ERROR;
        }

        while (*last != NULL) {
            last = &(*last)->next;
        }
    }

    if ((size != 0 || end)
        && ngx_http_sandbox_v1_port_chunk(port, &last,
               !end ? CRLF : size != 0 ? CRLF "0" CRLF CRLF : "0" CRLF CRLF,
               0)
           != NGX_OK)
    {
        return NGX_ERROR;
    }

    rc = ngx_chain_writer(&r->upstream->writer, out);

    ngx_chain_update_chains(r->pool, &port->free, &port->busy, &out,
                            (ngx_buf_tag_t) ngx_http_sandbox_v1_port_body);

    return rc;
}


/* A few bytes between the client's. */

static ngx_int_t
ngx_http_sandbox_v1_port_chunk(ngx_http_sandbox_v1_port_t *port,
    ngx_chain_t ***last, const char *fmt, off_t size)
{
    ngx_buf_t    *b;
    ngx_chain_t  *cl;

    static const size_t  room = sizeof("ffffffffffffffff" CRLF);

    cl = ngx_chain_get_free_buf(port->request->pool, &port->free);

    if (cl == NULL) {
        return NGX_ERROR;
    }

    b = cl->buf;

    if (b->start == NULL) {
        b->start = ngx_palloc(port->request->pool, room);

        if (b->start == NULL) {
            return NGX_ERROR;
        }

        b->end = b->start + room;
        b->temporary = 1;
        b->tag = (ngx_buf_tag_t) ngx_http_sandbox_v1_port_body;
    }

    b->pos = b->start;
    b->last = ngx_slprintf(b->start, b->end, fmt, size);
    b->flush = 1;

    **last = cl;
    *last = &cl->next;
    cl->next = NULL;

    return NGX_OK;
}
