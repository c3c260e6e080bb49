/*
 * What a program in a session answers over a port: however it is cut, the
 * same goes on to the client, and of the framing, of nginx's own orders and,
 * but for a name of its own, of what holds for an origin nothing does.  The
 * first byte chooses the cut, the second whose address it is (bit 0), whether
 * an upgrade was asked for (bit 1) and whether it was a HEAD (bit 2).
 */

#include "worker.h"

#include "v1/ngx_http_sandbox_v1_port.h"


#define PORT_MIX     1099511628211u
#define PORT_NAME    0x01
#define PORT_UPGRADE 0x02
#define PORT_HEAD    0x04


typedef struct {
    ngx_int_t   head;                  /* what became of it */
    ngx_int_t   body;
    uint64_t    sum;
    size_t      passed;
} port_pass_t;


static void pass(const uint8_t *data, size_t size, size_t step, unsigned how,
    port_pass_t *result);
static ngx_http_sandbox_v1_port_t *begin(ngx_http_request_t *r,
    unsigned how);
static void check_head(ngx_http_request_t *r, ngx_list_t *list,
    unsigned how, port_pass_t *result);
static void body(ngx_http_request_t *r, const uint8_t *p, size_t n,
    port_pass_t *result);
static void mix(port_pass_t *result, const void *p, size_t n);


/* Of no answer. */

static const char *const  never[] = {
    "connection", "keep-alive", "te", "trailer", "transfer-encoding",
    "content-length", "date", "server", "status", "alt-svc", "x-request-id",
    NULL
};

/* Of none at the API's own address. */

static const char *const  origin[] = {
    "set-cookie", "set-cookie2", "clear-site-data",
    "strict-transport-security", "www-authenticate", "link", "refresh",
    "service-worker-allowed", NULL
};


int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    port_pass_t  whole, parts;

    if (size < 2) {
        return 0;
    }

    pass(data + 2, size - 2, SIZE_MAX, data[1], &whole);
    pass(data + 2, size - 2, (size_t) data[0] + 1, data[1], &parts);

    must(whole.head == parts.head);

    if (whole.head == NGX_OK) {
        must(whole.body == parts.body);
        must(whole.body == NGX_ERROR
             || (whole.sum == parts.sum && whole.passed == parts.passed));
    }

    return 0;
}


static void
mix(port_pass_t *result, const void *p, size_t n)
{
    const uint8_t  *s;

    for (s = p; n != 0; n--, s++) {
        result->sum = (result->sum ^ *s) * PORT_MIX;
    }
}


static ngx_http_sandbox_v1_port_t *
begin(ngx_http_request_t *r, unsigned how)
{
    ngx_http_upstream_t         *u;
    ngx_http_sandbox_ctx_t      *ctx;
    ngx_http_sandbox_v1_port_t  *port;

    ctx = ngx_http_sandbox_ctx_create(r);
    port = ngx_pcalloc(r->pool, sizeof(ngx_http_sandbox_v1_port_t));
    u = ngx_pcalloc(r->pool, sizeof(ngx_http_upstream_t));
    u->state = ngx_pcalloc(r->pool, sizeof(ngx_http_upstream_state_t));
    must(ngx_list_init(&u->headers_in.headers, r->pool, 8,
                       sizeof(ngx_table_elt_t)) == NGX_OK);

    r->upstream = u;
    r->method = how & PORT_HEAD ? NGX_HTTP_HEAD : NGX_HTTP_GET;
    ctx->data = port;
    ngx_str_set(&ctx->prefix, "/v1/sessions/i/ports/8080");
    port->request = r;
    port->port = 8080;
    port->by_name = (how & PORT_NAME) != 0;

    if (how & PORT_UPGRADE) {
        ngx_str_set(&port->upgrade, "websocket");
    }

    u->process_header = ngx_http_sandbox_v1_port_status_line;

    return port;
}


static void
pass(const uint8_t *data, size_t size, size_t step, unsigned how,
    port_pass_t *result)
{
    size_t                       n;
    u_char                      *buf;
    ngx_http_upstream_t         *u;
    ngx_http_request_t          *r;
    ngx_http_sandbox_v1_port_t  *port;

    memset(result, 0, sizeof(port_pass_t));
    result->sum = 14695981039346656037u;
    r = worker_request();
    port = begin(r, how);
    u = r->upstream;
    buf = malloc(size ? size : 1);
    must(buf != NULL);
    u->buffer.start = u->buffer.pos = u->buffer.last = buf;
    u->buffer.end = buf + size;
    u->buffer.temporary = 1;
    result->head = NGX_AGAIN;

    while (size != 0 && result->head == NGX_AGAIN) {
        n = ngx_min(size, step);
        u->buffer.last = ngx_cpymem(u->buffer.last, data, n);
        data += n;
        size -= n;
        result->head = u->process_header(r);
        must(u->buffer.pos <= u->buffer.last);
    }

    if (result->head == NGX_OK) {
        check_head(r, &u->headers_in.headers, how, result);
        mix(result, &u->headers_in.status_n, sizeof(u->headers_in.status_n));
        must(u->upgrade == (u->headers_in.status_n == 101));
        must(!u->upgrade || (how & PORT_UPGRADE));
        must(ngx_http_sandbox_v1_port_filter_init(port) == NGX_OK);

        /* what has come with the head, then the rest */

        n = (size_t) (u->buffer.last - u->buffer.pos);

        if (n != 0) {
            u->buffer.last = u->buffer.pos;
            result->body = ngx_http_sandbox_v1_port_filter(port,
                                                           (ssize_t) n);
            body(r, NULL, 0, result);
        }

        while (size != 0 && result->body == NGX_OK) {
            n = ngx_min(size, step);
            body(r, data, n, result);
            data += n;
            size -= n;
        }
    }

    free(buf);
    worker_request_free(r);
}


static int
is(const ngx_table_elt_t *h, const char *name)
{
    return h->key.len == strlen(name)
           && strncasecmp((char *) h->key.data, name, h->key.len) == 0;
}


static void
check_head(ngx_http_request_t *r, ngx_list_t *list, unsigned how,
    port_pass_t *result)
{
    size_t            k;
    ngx_uint_t        i, total;
    ngx_list_part_t  *part;
    ngx_table_elt_t  *h;

    total = 0;

    for (part = &list->part; part != NULL; part = part->next) {
        h = part->elts;

        for (i = 0; i < part->nelts; i++) {
            for (k = 0; never[k] != NULL; k++) {
                must(!is(&h[i], never[k]));
            }

            for (k = 0; origin[k] != NULL && !(how & PORT_NAME); k++) {
                must(!is(&h[i], origin[k]));
            }

            must(strncasecmp((char *) h[i].key.data, "x-accel-", 8) != 0);
            must(memchr(h[i].value.data, '\0', h[i].value.len) == NULL);
            must(memchr(h[i].value.data, '\n', h[i].value.len) == NULL);
            must(memchr(h[i].value.data, '\r', h[i].value.len) == NULL);
            mix(result, h[i].key.data, h[i].key.len);
            mix(result, h[i].value.data, h[i].value.len);
            total++;
        }
    }

    must(total <= 256);

    /* a page there has no origin, and runs nothing */

    total = 0;

    for (part = &r->headers_out.headers.part; part != NULL; part = part->next)
    {
        h = part->elts;

        for (i = 0; i < part->nelts; i++) {
            total += is(&h[i], "content-security-policy");
        }
    }

    must(total == !(how & PORT_NAME));
}


/* A piece from the socket; what of it is for the client is taken at once. */

static void
body(ngx_http_request_t *r, const uint8_t *p, size_t n, port_pass_t *result)
{
    u_char                      *buf;
    ngx_chain_t                 *cl;
    ngx_http_upstream_t         *u;
    ngx_http_sandbox_v1_port_t  *port;

    u = r->upstream;
    port = ngx_http_sandbox_ctx(r)->data;
    buf = NULL;

    if (n != 0) {
        buf = malloc(n);
        must(buf != NULL);
        memcpy(buf, p, n);
        u->buffer.start = u->buffer.pos = u->buffer.last = buf;
        u->buffer.end = buf + n;
        result->body = ngx_http_sandbox_v1_port_filter(port, (ssize_t) n);
    }

    while (u->out_bufs != NULL) {
        cl = u->out_bufs;
        u->out_bufs = cl->next;
        must(cl->buf->pos <= cl->buf->last);
        must(n == 0 || (cl->buf->pos >= buf && cl->buf->last <= buf + n));
        mix(result, cl->buf->pos, (size_t) (cl->buf->last - cl->buf->pos));
        result->passed += (size_t) (cl->buf->last - cl->buf->pos);
        cl->next = u->free_bufs;
        u->free_bufs = cl;
    }

    must(u->headers_in.chunked || u->headers_in.content_length_n == -1
         || result->passed <= (size_t) u->headers_in.content_length_n);
    free(buf);
}
