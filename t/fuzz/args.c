/*
 * A request's query and path, as the module takes them apart.  Up to the
 * first newline the path, then the arguments.
 */

#include "worker.h"


static void fuzz_one(ngx_http_request_t *r, ngx_str_t *path);
static void fuzz_text(const ngx_str_t *s);


int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    u_char              *copy;
    ngx_str_t            path;
    ngx_http_request_t  *r;

    copy = malloc(size ? size : 1);
    must(copy != NULL);
    memcpy(copy, data, size);

    for (path.len = 0; path.len < size && copy[path.len] != '\n'; path.len++)
    {
        /* void */
    }

    path.data = copy;
    r = worker_request();
    r->args.data = copy + path.len + (path.len < size);
    r->args.len = size - (size_t) (r->args.data - copy);

    /* the router lets no argument by that is not well escaped */

    if (ngx_http_sandbox_escapes_ok(&r->args)) {
        fuzz_one(r, &path);
    }

    worker_request_free(r);
    free(copy);

    return 0;
}


static void
fuzz_one(ngx_http_request_t *r, ngx_str_t *path)
{
    uint64_t                 n;
    ngx_str_t                value;
    ngx_http_sandbox_ctx_t  *ctx;

    ctx = ngx_http_sandbox_ctx_create(r);
    must(ctx != NULL);

    if (ngx_http_sandbox_arg(r, "cursor", &value) == NGX_OK) {
        fuzz_text(&value);
        must(value.len <= r->args.len && value.data[value.len] == '\0');
    }

    if (ngx_http_sandbox_arg_number(r, "limit", 3, 500, &n) == NGX_OK) {
        must(n >= 3 && n <= 500);
    }

    /* a refusal is NGX_OK as well, once it has been sent */

    if (ngx_http_sandbox_path(r, ctx, path) == NGX_OK && ctx->has_path
        && !r->header_sent)
    {
        fuzz_text(&ctx->path);
        must(ctx->path.len < SBX_PATH_MAX);
        must(ctx->path.len == 0
             || memchr(ctx->path.data, '\0', ctx->path.len) == NULL);
    }

    if (r->header_sent) {
        return;
    }

    ctx->has_path = 0;

    if (ngx_http_sandbox_path(r, ctx, NULL) == NGX_OK && ctx->has_path
        && !r->header_sent)
    {
        fuzz_text(&ctx->path);
        must(ctx->path.len < SBX_PATH_MAX);
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
