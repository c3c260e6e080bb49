#include "ngx_http_sandbox.h"

#include <ctype.h>


static size_t ngx_http_sandbox_unescape(u_char *dst, const ngx_str_t *src,
    ngx_uint_t plus);
static const u_char *ngx_http_sandbox_find_arg(const ngx_str_t *args,
    const char *name, const u_char *from, ngx_str_t *value);
static ngx_int_t ngx_http_sandbox_path_base64(ngx_http_request_t *r,
    ngx_str_t *value, ngx_str_t *path);


ngx_uint_t
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


ngx_int_t
ngx_http_sandbox_path(ngx_http_request_t *r, ngx_http_sandbox_ctx_t *ctx,
    const ngx_str_t *raw)
{
    u_char        *p;
    ngx_int_t      rc;
    ngx_str_t      value, source;
    ngx_uint_t     i, n, query, base64;
    const u_char  *next;

    static const char *const  names[] = { "path", "path_base64" };

    n = 0;
    query = 0;
    base64 = 0;
    ngx_str_null(&source);

    /* an empty one is the workspace, or a route that the query completes */

    if (raw != NULL) {
        n = (raw->len != 0);
        source = *raw;
    }

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
            query = 1;
            base64 = i;
            source = value;
        }
    }

    if (n > 1) {
        return ngx_http_sandbox_problem(r, NGX_HTTP_SANDBOX_INVALID_REQUEST,
                                   "the URI gives more than one path");
    }

    if (n == 0 && raw == NULL) {
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
                                              query && !base64);

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
