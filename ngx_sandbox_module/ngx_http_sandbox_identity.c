/*
 * Who asks, where sandbox_tenant and sandbox_user tell, or a key of
 * sandbox_keys.  What they tell goes into the request's context before any
 * handler runs, and from there into the header of every call: the broker
 * finds no session of anybody else for it.  Handlers have nothing to check
 * but the names that a body brings.
 */

#include "ngx_http_sandbox.h"


static ngx_int_t ngx_http_sandbox_identity(ngx_http_request_t *r,
    ngx_http_complex_value_t *cv, const char *what, ngx_str_t *name);
static ngx_uint_t ngx_http_sandbox_from_page(ngx_http_request_t *r);


/*
 * Runs when the access phase is over, so that what auth_request, a client
 * certificate or a password have told is there.
 */

ngx_int_t
ngx_http_sandbox_identify(ngx_http_request_t *r, ngx_http_sandbox_ctx_t *ctx)
{
    ngx_int_t                     rc;
    ngx_str_t                     key;
    ngx_http_sandbox_loc_conf_t  *slcf;

    slcf = ngx_http_get_module_loc_conf(r, ngx_http_sandbox_module);

    if (slcf->api == NGX_HTTP_SANDBOX_API_ADMIN) {

        if (ngx_http_sandbox_from_page(r)) {
            return ngx_http_sandbox_problem(r, NGX_HTTP_SANDBOX_FORBIDDEN,
                          "the admin API takes no changes from web pages");
        }

        ctx->who = r->connection->addr_text;

        return (slcf->user == NULL)
               ? NGX_OK
               : ngx_http_sandbox_identity(r, slcf->user, "user", &ctx->who);
    }

    /* an operator's, who may see all: guarded as a location is */

    if (slcf->api == NGX_HTTP_SANDBOX_API_METRICS
        || slcf->api == NGX_HTTP_SANDBOX_API_STATUS)
    {
        return NGX_OK;
    }

    /* what asks whether the server lives has nobody's name */

    if (ngx_strcmp(ctx->route->op, "health") == 0) {
        return NGX_OK;
    }

    if (slcf->keys != NULL) {
        return ngx_http_sandbox_keys_identify(r, ctx, slcf->keys);
    }

    if (slcf->tenant == NULL && slcf->api == NGX_HTTP_SANDBOX_API_E2B) {
        rc = ngx_http_sandbox_keys_presented(r, &key);

        if (rc != NGX_OK || r->header_sent) {
            return rc;
        }

        ngx_str_set(&ctx->tenant, NGX_HTTP_SANDBOX_DEFAULT_NAME);
        ctx->tenant_bound = 1;

        if (slcf->user == NULL) {
            ngx_str_set(&ctx->user, NGX_HTTP_SANDBOX_DEFAULT_NAME);
            ctx->user_bound = 1;
        }
    }

    if (slcf->tenant != NULL) {
        rc = ngx_http_sandbox_identity(r, slcf->tenant, "tenant",
                                       &ctx->tenant);

        if (rc != NGX_OK || r->header_sent) {
            return rc;
        }

        ctx->tenant_bound = 1;
    }

    if (slcf->user != NULL) {
        rc = ngx_http_sandbox_identity(r, slcf->user, "user", &ctx->user);

        if (rc != NGX_OK || r->header_sent) {
            return rc;
        }

        ctx->user_bound = 1;
    }

    return NGX_OK;
}


static ngx_int_t
ngx_http_sandbox_identity(ngx_http_request_t *r, ngx_http_complex_value_t *cv,
    const char *what, ngx_str_t *name)
{
    u_char     clean[SBX_NAME_MAX + 1];
    ngx_str_t  value;

    if (ngx_http_complex_value(r, cv, &value) != NGX_OK) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    if (value.len == 0) {
        return ngx_http_sandbox_problem(r, NGX_HTTP_SANDBOX_UNAUTHENTICATED,
                   "nothing in the request tells which %s it is from", what);
    }

    if (!sbx_name_ok((char *) value.data, value.len)) {
        ngx_http_sandbox_printable(clean, sizeof(clean), value.data,
                                   value.len);
        ngx_log_error(NGX_LOG_WARN, r->connection->log, 0,
                      "sandbox: the %s \"%s\" is no name", what, clean);

        return ngx_http_sandbox_problem(r, NGX_HTTP_SANDBOX_UNAUTHENTICATED,
                   "the %s that the request is from has a name that none can "
                   "have: 1 to 128 of A-Z a-z 0-9 . _ @ : + - are allowed, "
                   "the first a letter or digit", what);
    }

    *name = value;

    return NGX_OK;
}


/* A browser sends Origin with whatever a page makes it ask, but for GET. */

static ngx_uint_t
ngx_http_sandbox_from_page(ngx_http_request_t *r)
{
    ngx_uint_t        i;
    ngx_list_part_t  *part;
    ngx_table_elt_t  *header;

    if (r->method & (NGX_HTTP_GET|NGX_HTTP_HEAD)) {
        return 0;
    }

    for (part = &r->headers_in.headers.part; part; part = part->next) {
        header = part->elts;

        for (i = 0; i < part->nelts; i++) {
            if (header[i].key.len == sizeof("Origin") - 1
                && ngx_strncasecmp(header[i].key.data, (u_char *) "origin",
                                   sizeof("Origin") - 1)
                   == 0)
            {
                return 1;
            }
        }
    }

    return 0;
}


static int
ngx_http_sandbox_own_name(const ngx_str_t *bound, const char *what,
    sbx_json_str_t *name, sbx_error_t *e)
{
    if (bound != NULL) {

        if (name->data != NULL
            && (name->len != bound->len
                || ngx_memcmp(name->data, bound->data, bound->len) != 0))
        {
            return sbx_error(e, 0, SBX_E_FORBIDDEN,
                             "/%s: you are \"%.*s\" and cannot act for "
                             "another", what, (int) bound->len, bound->data);
        }

        name->data = (char *) bound->data;
        name->len = bound->len;

        return 0;
    }

    if (name->data == NULL) {
        return sbx_error(e, 0, SBX_E_INVALID, "/%s: is missing", what);
    }

    if (!sbx_name_ok(name->data, name->len)) {
        return sbx_error(e, 0, SBX_E_INVALID,
                         "/%s: must be 1 to 128 of A-Z a-z 0-9 . _ @ : + - "
                         "and begin with a letter or digit", what);
    }

    return 0;
}


int
ngx_http_sandbox_own_names(ngx_http_request_t *r, sbx_json_str_t *tenant,
    sbx_json_str_t *user, sbx_error_t *e)
{
    ngx_http_sandbox_ctx_t  *ctx;

    ctx = ngx_http_sandbox_ctx(r);

    if (ngx_http_sandbox_own_name(ctx->tenant_bound ? &ctx->tenant : NULL,
                                  "tenant_id", tenant, e)
        != 0)
    {
        return -1;
    }

    return ngx_http_sandbox_own_name(ctx->user_bound ? &ctx->user : NULL,
                                     "user_id", user, e);
}


static ngx_uint_t
ngx_http_sandbox_same(const ngx_str_t *bound, const ngx_str_t *asked)
{
    return asked->len == 0
           || (asked->len == bound->len
               && ngx_memcmp(asked->data, bound->data, bound->len) == 0);
}


ngx_uint_t
ngx_http_sandbox_may_see(ngx_http_request_t *r, const ngx_str_t *tenant,
    const ngx_str_t *user)
{
    ngx_http_sandbox_ctx_t  *ctx;

    ctx = ngx_http_sandbox_ctx(r);

    return (!ctx->tenant_bound || ngx_http_sandbox_same(&ctx->tenant, tenant))
           && (!ctx->user_bound || ngx_http_sandbox_same(&ctx->user, user));
}
