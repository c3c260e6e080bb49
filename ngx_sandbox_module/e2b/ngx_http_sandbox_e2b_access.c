/*
 * Tokens of sandboxes, and who may do what.
 *
 * Who sends a sandbox's token has its rights, whoever he is; the broker is
 * asked to refuse the call of one who does not, unless the sandbox was made
 * to ask for none.
 */

#include "ngx_http_sandbox_e2b.h"

#include "sandbox_sha256.h"


static void ngx_http_sandbox_e2b_hmac(const u_char *key, const void *head,
    size_t head_len, const void *data, size_t len, uint8_t *digest);
static ngx_int_t ngx_http_sandbox_e2b_shown(ngx_http_request_t *r,
    const char *name, ngx_http_sandbox_e2b_token_e kind);


/* RFC 2104; the message is head and data, one after the other. */

static void
ngx_http_sandbox_e2b_hmac(const u_char *key, const void *head,
    size_t head_len, const void *data, size_t len, uint8_t *digest)
{
    size_t        i;
    uint8_t       pad[64];
    sbx_sha256_t  sha;

    for (i = 0; i < sizeof(pad); i++) {
        pad[i] = (i < SBX_TOKEN_KEY ? key[i] : 0) ^ 0x36;
    }

    sbx_sha256_init(&sha);
    sbx_sha256_update(&sha, pad, sizeof(pad));
    sbx_sha256_update(&sha, head, head_len);
    sbx_sha256_update(&sha, data, len);
    sbx_sha256_final(&sha, digest);

    for (i = 0; i < sizeof(pad); i++) {
        pad[i] ^= 0x36 ^ 0x5c;
    }

    sbx_sha256_init(&sha);
    sbx_sha256_update(&sha, pad, sizeof(pad));
    sbx_sha256_update(&sha, digest, SBX_SHA256_SIZE);
    sbx_sha256_final(&sha, digest);
}


void
ngx_http_sandbox_e2b_token(const ngx_http_sandbox_main_conf_t *smcf,
    ngx_http_sandbox_e2b_token_e kind, const void *id, size_t id_len,
    u_char *out)
{
    uint8_t      digest[SBX_SHA256_SIZE];
    const char  *head;

    head = (kind == NGX_HTTP_SANDBOX_E2B_TOKEN_ENVD) ? "envd " : "traffic ";

    ngx_http_sandbox_e2b_hmac(smcf->token_key, head, ngx_strlen(head), id,
                              id_len, digest);

    (void) ngx_hex_dump(out, digest, sizeof(digest));
}


ngx_uint_t
ngx_http_sandbox_e2b_token_is(const ngx_http_sandbox_main_conf_t *smcf,
    ngx_http_sandbox_e2b_token_e kind, const ngx_str_t *id,
    const ngx_str_t *token)
{
    u_char  right[NGX_HTTP_SANDBOX_E2B_TOKEN];

    ngx_http_sandbox_e2b_token(smcf, kind, id->data, id->len, right);

    return token->len == sizeof(right)
           && ngx_http_sandbox_e2b_same(right, token->data, sizeof(right));
}


ngx_uint_t
ngx_http_sandbox_e2b_same(const void *a, const void *b, size_t len)
{
    size_t                  i;
    volatile u_char         differ;
    const volatile u_char  *p, *q;

    p = a;
    q = b;
    differ = 0;

    for (i = 0; i < len; i++) {
        differ |= p[i] ^ q[i];
    }

    return differ == 0;
}


/* Whether there is a header of that name, and it has the token: NGX_OK,
 * NGX_DECLINED where there is none, NGX_ABORT where it is wrong. */

static ngx_int_t
ngx_http_sandbox_e2b_shown(ngx_http_request_t *r, const char *name,
    ngx_http_sandbox_e2b_token_e kind)
{
    ngx_int_t                      rc;
    ngx_str_t                      token;
    ngx_http_sandbox_e2b_t        *e2b;
    ngx_http_sandbox_main_conf_t  *smcf;

    rc = ngx_http_sandbox_op_header(r, name, &token);

    if (rc != NGX_OK) {
        return rc;
    }

    e2b = ngx_http_sandbox_e2b(ngx_http_sandbox_ctx(r));
    smcf = ngx_http_get_module_main_conf(r, ngx_http_sandbox_module);

    return ngx_http_sandbox_e2b_token_is(smcf, kind, &e2b->id, &token)
           ? NGX_OK : NGX_ABORT;
}


/*
 * Envd and the code interpreter ask for the sandbox's own token; ports for
 * that of traffic, if they are not public, and the interpreter is a port as
 * well.  That of traffic may be given to others: it must not run anything.
 */

ngx_int_t
ngx_http_sandbox_e2b_admit(ngx_http_request_t *r, ngx_http_sandbox_ctx_t *ctx)
{
    ngx_int_t                      rc;
    ngx_http_sandbox_e2b_t        *e2b;
    ngx_http_sandbox_access_e      access;
    ngx_http_sandbox_main_conf_t  *smcf;

    e2b = ngx_http_sandbox_e2b(ctx);

    if (e2b->plane == NGX_HTTP_SANDBOX_E2B_CONTROL) {
        return ngx_http_sandbox_identify(r, ctx);
    }

    ngx_http_sandbox_e2b_rpc(ctx);

    smcf = ngx_http_get_module_main_conf(r, ngx_http_sandbox_module);

    if (smcf->token_key == NULL) {
        return ngx_http_sandbox_problem(r, NGX_HTTP_SANDBOX_INTERNAL, NULL);
    }

    if (e2b->id.len == 0) {

        /* by a signature, of which the handler knows */

        ctx->needs = SBX_CREATE_NO_TOKEN;

        return NGX_OK;
    }

    access = ctx->route->access;

    if (e2b->plane != NGX_HTTP_SANDBOX_E2B_PLANE_PORT) {
        rc = ngx_http_sandbox_e2b_shown(r, "x-access-token",
                                        NGX_HTTP_SANDBOX_E2B_TOKEN_ENVD);
        e2b->token_ok = (rc == NGX_OK);
        e2b->token_bad = (rc == NGX_ABORT);

        if (e2b->token_ok) {
            return NGX_OK;
        }
    }

    if (e2b->plane != NGX_HTTP_SANDBOX_E2B_PLANE_ENVD) {
        rc = ngx_http_sandbox_e2b_shown(r, "e2b-traffic-access-token",
                                        NGX_HTTP_SANDBOX_E2B_TOKEN_TRAFFIC);

        if (rc != NGX_OK) {
            ctx->bars = SBX_CREATE_PORT_TOKEN;

        } else if (access == NGX_HTTP_SANDBOX_ACCESS_TRAFFIC) {
            access = NGX_HTTP_SANDBOX_ACCESS_ANY;
        }
    }

    if (e2b->plane != NGX_HTTP_SANDBOX_E2B_PLANE_PORT
        && (access != NGX_HTTP_SANDBOX_ACCESS_ANY || e2b->token_bad))
    {
        ctx->needs = SBX_CREATE_NO_TOKEN;
    }

    return NGX_OK;
}
