/*
 * A request's query and path, as the module takes them apart.  Up to the
 * first newline the path, then the arguments.
 */

#include "../../ngx_sandbox_module/ngx_http_sandbox_args.c"

#include <stdlib.h>


#define FUZZ_PIECES  64


int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void fuzz_text(const ngx_str_t *s);
static void fuzz_one(ngx_str_t *path, ngx_str_t *args);


static void   *pieces[FUZZ_PIECES];
static size_t  npieces;


int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    u_char     *copy;
    ngx_str_t   path, args;

    copy = malloc(size ? size : 1);

    if (copy == NULL) {
        return 0;
    }

    memcpy(copy, data, size);

    for (path.len = 0; path.len < size && copy[path.len] != '\n'; path.len++)
    {
        /* void */
    }

    path.data = copy;
    args.data = copy + path.len + (path.len < size);
    args.len = size - (size_t) (args.data - copy);

    /* the router lets no argument by that is not well escaped */

    if (ngx_http_sandbox_escapes_ok(&args)) {
        fuzz_one(&path, &args);
    }

    free(copy);

    return 0;
}


static void
fuzz_one(ngx_str_t *path, ngx_str_t *args)
{
    uint64_t                 n;
    ngx_str_t                value;
    ngx_http_request_t       r;
    ngx_http_sandbox_ctx_t   ctx;

    memset(&r, 0, sizeof(r));
    memset(&ctx, 0, sizeof(ctx));
    r.args = *args;

    if (ngx_http_sandbox_arg(&r, "cursor", &value) == NGX_OK) {
        fuzz_text(&value);
    }

    if (ngx_http_sandbox_arg_number(&r, "limit", 3, 500, &n) == NGX_OK
        && (n < 3 || n > 500))
    {
        abort();
    }

    if (ngx_http_sandbox_path(&r, &ctx, path) == NGX_OK && ctx.has_path) {
        fuzz_text(&ctx.path);

        if (ctx.path.len >= SBX_PATH_MAX) {
            abort();
        }
    }

    memset(&ctx, 0, sizeof(ctx));

    if (ngx_http_sandbox_path(&r, &ctx, NULL) == NGX_OK && ctx.has_path) {
        fuzz_text(&ctx.path);
    }

    while (npieces != 0) {
        free(pieces[--npieces]);
    }
}


static void
fuzz_text(const ngx_str_t *s)
{
    size_t            i;
    volatile u_char   sink;

    for (i = 0; i < s->len; i++) {
        sink = s->data[i];
        (void) sink;
    }
}


/* What of nginx and of the module the source calls. */

void *
ngx_pnalloc(ngx_pool_t *pool, size_t size)
{
    void  *p;

    p = npieces < FUZZ_PIECES ? malloc(size ? size : 1) : NULL;

    if (p != NULL) {
        pieces[npieces++] = p;
    }

    return p;
}


/* It writes as much as nginx's own, whose source may not be here. */

ngx_int_t
ngx_decode_base64(ngx_str_t *dst, ngx_str_t *src)
{
    dst->len = src->len / 4 * 3 + (src->len % 4 ? src->len % 4 - 1 : 0);
    memset(dst->data, src->len ? src->data[0] : 0, dst->len);

    return src->len % 4 == 1 ? NGX_ERROR : NGX_OK;
}


ngx_int_t
ngx_http_sandbox_problem(ngx_http_request_t *r,
    ngx_http_sandbox_error_e error, const char *detail_fmt, ...)
{
    return NGX_HTTP_BAD_REQUEST;
}
