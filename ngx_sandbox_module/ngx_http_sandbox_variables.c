#include "ngx_http_sandbox.h"


static void ngx_http_sandbox_ctx_cleanup(void *data);
static ngx_int_t ngx_http_sandbox_variable_string(ngx_http_request_t *r,
    ngx_http_variable_value_t *v, uintptr_t data);
static ngx_int_t ngx_http_sandbox_variable_request_id(ngx_http_request_t *r,
    ngx_http_variable_value_t *v, uintptr_t data);
static ngx_int_t ngx_http_sandbox_variable_op(ngx_http_request_t *r,
    ngx_http_variable_value_t *v, uintptr_t data);
static ngx_int_t ngx_http_sandbox_variable_reason(ngx_http_request_t *r,
    ngx_http_variable_value_t *v, uintptr_t data);
static ngx_int_t ngx_http_sandbox_variable_error(ngx_http_request_t *r,
    ngx_http_variable_value_t *v, uintptr_t data);
static ngx_int_t ngx_http_sandbox_variable_quota(ngx_http_request_t *r,
    ngx_http_variable_value_t *v, uintptr_t data);
static ngx_int_t ngx_http_sandbox_variable_exit(ngx_http_request_t *r,
    ngx_http_variable_value_t *v, uintptr_t data);
static ngx_int_t ngx_http_sandbox_variable_ms(ngx_http_request_t *r,
    ngx_http_variable_value_t *v, uintptr_t data);
static ngx_int_t ngx_http_sandbox_variable_bytes(ngx_http_request_t *r,
    ngx_http_variable_value_t *v, uintptr_t data);
static ngx_int_t ngx_http_sandbox_variable_number(ngx_http_request_t *r,
    ngx_http_variable_value_t *v, int64_t n);


static ngx_http_variable_t  ngx_http_sandbox_variables[] = {

    { ngx_string("sandbox_session"), NULL, ngx_http_sandbox_variable_string,
      offsetof(ngx_http_sandbox_ctx_t, session), NGX_HTTP_VAR_NOCACHEABLE,
      0 },

    { ngx_string("sandbox_tenant"), NULL, ngx_http_sandbox_variable_string,
      offsetof(ngx_http_sandbox_ctx_t, tenant), NGX_HTTP_VAR_NOCACHEABLE, 0 },

    { ngx_string("sandbox_user"), NULL, ngx_http_sandbox_variable_string,
      offsetof(ngx_http_sandbox_ctx_t, user), NGX_HTTP_VAR_NOCACHEABLE, 0 },

    { ngx_string("sandbox_request_id"), NULL,
      ngx_http_sandbox_variable_request_id,
      0, NGX_HTTP_VAR_NOCACHEABLE, 0 },

    { ngx_string("sandbox_op"), NULL, ngx_http_sandbox_variable_op,
      0, NGX_HTTP_VAR_NOCACHEABLE, 0 },

    { ngx_string("sandbox_exit"), NULL, ngx_http_sandbox_variable_exit,
      0, NGX_HTTP_VAR_NOCACHEABLE, 0 },

    { ngx_string("sandbox_reason"), NULL, ngx_http_sandbox_variable_reason,
      0, NGX_HTTP_VAR_NOCACHEABLE, 0 },

    { ngx_string("sandbox_error"), NULL, ngx_http_sandbox_variable_error,
      0, NGX_HTTP_VAR_NOCACHEABLE, 0 },

    { ngx_string("sandbox_quota"), NULL, ngx_http_sandbox_variable_quota,
      0, NGX_HTTP_VAR_NOCACHEABLE, 0 },

    { ngx_string("sandbox_cpu_ms"), NULL, ngx_http_sandbox_variable_ms,
      offsetof(ngx_http_sandbox_ctx_t, cpu_us), NGX_HTTP_VAR_NOCACHEABLE, 0 },

    { ngx_string("sandbox_wall_ms"), NULL, ngx_http_sandbox_variable_ms,
      offsetof(ngx_http_sandbox_ctx_t, wall_us), NGX_HTTP_VAR_NOCACHEABLE,
      0 },

    { ngx_string("sandbox_memory_peak"), NULL,
      ngx_http_sandbox_variable_bytes,
      offsetof(ngx_http_sandbox_ctx_t, memory_peak),
      NGX_HTTP_VAR_NOCACHEABLE, 0 },

      ngx_http_null_variable
};


/* Runs before the configuration is read. */

ngx_int_t
ngx_http_sandbox_add_variables(ngx_conf_t *cf)
{
    ngx_http_variable_t  *var, *v;

    for (v = ngx_http_sandbox_variables; v->name.len != 0; v++) {
        var = ngx_http_add_variable(cf, &v->name, v->flags);

        if (var == NULL) {
            return NGX_ERROR;
        }

        var->get_handler = v->get_handler;
        var->data = v->data;
    }

    return NGX_OK;
}


ngx_http_sandbox_ctx_t *
ngx_http_sandbox_ctx_create(ngx_http_request_t *r)
{
    ngx_pool_cleanup_t      *cln;
    ngx_http_sandbox_ctx_t  *ctx;

    cln = ngx_pool_cleanup_add(r->pool, sizeof(ngx_http_sandbox_ctx_t));

    if (cln == NULL) {
        return NULL;
    }

    ctx = cln->data;
    ngx_memzero(ctx, sizeof(ngx_http_sandbox_ctx_t));

    ctx->exit = -1;
    ctx->cpu_us = -1;
    ctx->wall_us = -1;
    ctx->memory_peak = -1;

    cln->handler = ngx_http_sandbox_ctx_cleanup;
    ngx_http_set_ctx(r, ctx, ngx_http_sandbox_module);

    return ctx;
}


static void
ngx_http_sandbox_ctx_cleanup(void *data)
{
    /* it only marks the context, which is found by it */
}


ngx_http_sandbox_ctx_t *
ngx_http_sandbox_ctx(ngx_http_request_t *r)
{
    ngx_pool_cleanup_t      *cln;
    ngx_http_sandbox_ctx_t  *ctx;

    ctx = ngx_http_get_module_ctx(r, ngx_http_sandbox_module);

    if (ctx != NULL || (!r->internal && !r->filter_finalize)) {
        return ctx;
    }

    /* an internal redirect, as to an error page, forgets all contexts */

    for (cln = r->pool->cleanup; cln != NULL; cln = cln->next) {
        if (cln->handler == ngx_http_sandbox_ctx_cleanup) {
            return cln->data;
        }
    }

    return NULL;
}


static ngx_int_t
ngx_http_sandbox_variable_string(ngx_http_request_t *r,
    ngx_http_variable_value_t *v, uintptr_t data)
{
    ngx_str_t               *s;
    ngx_http_sandbox_ctx_t  *ctx;

    ctx = ngx_http_sandbox_ctx(r);
    s = (ctx == NULL) ? NULL : (ngx_str_t *) ((char *) ctx + data);

    if (s == NULL || s->len == 0) {
        v->not_found = 1;
        return NGX_OK;
    }

    v->data = s->data;
    v->len = s->len;
    v->valid = 1;
    v->no_cacheable = 0;
    v->not_found = 0;

    return NGX_OK;
}


static ngx_int_t
ngx_http_sandbox_variable_word(ngx_http_variable_value_t *v,
    const char *word)
{
    if (word == NULL) {
        v->not_found = 1;
        return NGX_OK;
    }

    v->data = (u_char *) word;
    v->len = ngx_strlen(word);
    v->valid = 1;
    v->no_cacheable = 0;
    v->not_found = 0;

    return NGX_OK;
}


/*
 * For error pages: nothing where the answer has the API's header, which may
 * outlive the redirect to the page, or be wiped by who refuses an answer that
 * the API has begun.
 */

static ngx_int_t
ngx_http_sandbox_variable_request_id(ngx_http_request_t *r,
    ngx_http_variable_value_t *v, uintptr_t data)
{
    ngx_str_t         id;
    ngx_uint_t        i;
    ngx_list_part_t  *part;
    ngx_table_elt_t  *header;

    (void) data;

    part = &r->headers_out.headers.part;

    do {
        header = part->elts;

        for (i = 0; i < part->nelts; i++) {
            if (header[i].hash != 0
                && header[i].key.len == sizeof("X-Request-ID") - 1
                && ngx_strncasecmp(header[i].key.data,
                                   (u_char *) "X-Request-ID",
                                   sizeof("X-Request-ID") - 1)
                   == 0)
            {
                v->not_found = 1;
                return NGX_OK;
            }
        }

        part = part->next;
    } while (part != NULL);

    ngx_http_sandbox_request_id(r, &id);

    v->data = id.data;
    v->len = id.len;
    v->valid = 1;
    v->no_cacheable = 1;
    v->not_found = 0;

    return NGX_OK;
}


static ngx_int_t
ngx_http_sandbox_variable_op(ngx_http_request_t *r,
    ngx_http_variable_value_t *v, uintptr_t data)
{
    ngx_http_sandbox_ctx_t  *ctx;

    ctx = ngx_http_sandbox_ctx(r);

    return ngx_http_sandbox_variable_word(v,
               (ctx == NULL || ctx->route == NULL) ? NULL : ctx->route->op);
}


static ngx_int_t
ngx_http_sandbox_variable_reason(ngx_http_request_t *r,
    ngx_http_variable_value_t *v, uintptr_t data)
{
    ngx_http_sandbox_ctx_t  *ctx;

    ctx = ngx_http_sandbox_ctx(r);

    return ngx_http_sandbox_variable_word(v,
                                          (ctx == NULL) ? NULL : ctx->reason);
}


static ngx_int_t
ngx_http_sandbox_variable_error(ngx_http_request_t *r,
    ngx_http_variable_value_t *v, uintptr_t data)
{
    ngx_http_sandbox_ctx_t  *ctx;

    ctx = ngx_http_sandbox_ctx(r);

    return ngx_http_sandbox_variable_word(v,
                                          (ctx == NULL) ? NULL : ctx->error);
}


/* "user/sessions": whose quota refused, and of what. */

static ngx_int_t
ngx_http_sandbox_variable_quota(ngx_http_request_t *r,
    ngx_http_variable_value_t *v, uintptr_t data)
{
    size_t                   size;
    u_char                  *p;
    ngx_http_sandbox_ctx_t  *ctx;

    ctx = ngx_http_sandbox_ctx(r);

    if (ctx == NULL || ctx->quota_scope == NULL) {
        v->not_found = 1;
        return NGX_OK;
    }

    size = ngx_strlen(ctx->quota_scope) + ngx_strlen(ctx->quota_resource) + 2;
    p = ngx_pnalloc(r->pool, size);

    if (p == NULL) {
        return NGX_ERROR;
    }

    (void) ngx_sprintf(p, "%s/%s%Z", ctx->quota_scope, ctx->quota_resource);

    return ngx_http_sandbox_variable_word(v, (char *) p);
}


static ngx_int_t
ngx_http_sandbox_variable_exit(ngx_http_request_t *r,
    ngx_http_variable_value_t *v, uintptr_t data)
{
    ngx_http_sandbox_ctx_t  *ctx;

    ctx = ngx_http_sandbox_ctx(r);

    return ngx_http_sandbox_variable_number(r, v,
                                            (ctx == NULL) ? -1 : ctx->exit);
}


static ngx_int_t
ngx_http_sandbox_variable_ms(ngx_http_request_t *r,
    ngx_http_variable_value_t *v, uintptr_t data)
{
    int64_t                  us;
    ngx_http_sandbox_ctx_t  *ctx;

    ctx = ngx_http_sandbox_ctx(r);
    us = (ctx == NULL) ? -1 : *(int64_t *) ((char *) ctx + data);

    return ngx_http_sandbox_variable_number(r, v, (us < 0) ? -1 : us / 1000);
}


static ngx_int_t
ngx_http_sandbox_variable_bytes(ngx_http_request_t *r,
    ngx_http_variable_value_t *v, uintptr_t data)
{
    ngx_http_sandbox_ctx_t  *ctx;

    ctx = ngx_http_sandbox_ctx(r);

    return ngx_http_sandbox_variable_number(r, v,
               (ctx == NULL) ? -1 : *(int64_t *) ((char *) ctx + data));
}


static ngx_int_t
ngx_http_sandbox_variable_number(ngx_http_request_t *r,
    ngx_http_variable_value_t *v, int64_t n)
{
    u_char  *p;

    if (n < 0) {
        v->not_found = 1;
        return NGX_OK;
    }

    p = ngx_pnalloc(r->pool, NGX_INT64_LEN);

    if (p == NULL) {
        return NGX_ERROR;
    }

    v->data = p;
    v->len = ngx_sprintf(p, "%uL", (uint64_t) n) - p;
    v->valid = 1;
    v->no_cacheable = 0;
    v->not_found = 0;

    return NGX_OK;
}


void
ngx_http_sandbox_request_id(ngx_http_request_t *r, ngx_str_t *id)
{
    ngx_http_variable_value_t     *vv;
    ngx_http_sandbox_main_conf_t  *smcf;

    smcf = ngx_http_get_module_main_conf(r, ngx_http_sandbox_module);
    vv = ngx_http_get_indexed_variable(r, (ngx_uint_t) smcf->request_id);

    if (vv == NULL || vv->not_found) {
        ngx_str_null(id);
        return;
    }

    id->data = vv->data;
    id->len = vv->len;
}
