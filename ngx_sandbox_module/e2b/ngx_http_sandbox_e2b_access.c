/*
 * Tokens of sandboxes, and who may do what.
 *
 * Who sends a sandbox's token has its rights, whoever he is; the broker is
 * asked to refuse the call of one who does not, unless the sandbox was made
 * to ask for none.
 */

#include "ngx_http_sandbox_e2b.h"

#include "sandbox_sha256.h"

#include <fcntl.h>
#include <sys/random.h>


#define NGX_HTTP_SANDBOX_E2B_KEY    32


static ngx_int_t ngx_http_sandbox_e2b_key(ngx_cycle_t *cycle,
    const char *path, u_char *key);
static ngx_int_t ngx_http_sandbox_e2b_key_make(ngx_cycle_t *cycle,
    const char *path, u_char *key);
static void ngx_http_sandbox_e2b_hmac(const u_char *key, const void *head,
    size_t head_len, const void *data, size_t len, uint8_t *digest);


ngx_int_t
ngx_http_sandbox_e2b_init(ngx_cycle_t *cycle,
    ngx_http_sandbox_main_conf_t *smcf)
{
    u_char  *key, *path;

    key = ngx_palloc(cycle->pool, NGX_HTTP_SANDBOX_E2B_KEY);
    path = ngx_pnalloc(cycle->pool, smcf->state_dir.len
                                    + sizeof("/token.key"));

    if (key == NULL || path == NULL) {
        return NGX_ERROR;
    }

    *ngx_sprintf(path, "%V/token.key", &smcf->state_dir) = '\0';

    if (ngx_http_sandbox_e2b_key(cycle, (char *) path, key) != NGX_OK) {
        return NGX_ERROR;
    }

    smcf->token_key = key;

    return NGX_OK;
}


static ngx_int_t
ngx_http_sandbox_e2b_key(ngx_cycle_t *cycle, const char *path, u_char *key)
{
    ssize_t      n;
    ngx_uint_t   tries;
    sbx_auto_fd  fd = -1;

    for (tries = 0; tries < 3; tries++) {
        fd = open(path, O_RDONLY|O_CLOEXEC|O_NOFOLLOW);

        if (fd != -1) {
            n = read(fd, key, NGX_HTTP_SANDBOX_E2B_KEY);

            if (n == NGX_HTTP_SANDBOX_E2B_KEY) {
                return NGX_OK;
            }

            ngx_log_error(NGX_LOG_EMERG, cycle->log, 0,
                          "sandbox: \"%s\" is no key of %d bytes", path,
                          NGX_HTTP_SANDBOX_E2B_KEY);

            return NGX_ERROR;
        }

        if (ngx_errno != ENOENT) {
            break;
        }

        if (ngx_http_sandbox_e2b_key_make(cycle, path, key) != NGX_OK) {
            return NGX_ERROR;
        }
    }

    ngx_log_error(NGX_LOG_EMERG, cycle->log, ngx_errno,
                  "sandbox: open(\"%s\") failed", path);

    return NGX_ERROR;
}


/* Whole under its name, or not there: another master may make it, too. */

static ngx_int_t
ngx_http_sandbox_e2b_key_make(ngx_cycle_t *cycle, const char *path,
    u_char *key)
{
    u_char       temp[NGX_MAX_PATH];
    sbx_auto_fd  fd = -1;

    *ngx_snprintf(temp, sizeof(temp) - 1, "%s.%P", path, ngx_getpid()) = '\0';

    fd = open((char *) temp, O_WRONLY|O_CREAT|O_TRUNC|O_CLOEXEC|O_NOFOLLOW,
              0600);

    if (fd == -1
        || getrandom(key, NGX_HTTP_SANDBOX_E2B_KEY, 0)
           != NGX_HTTP_SANDBOX_E2B_KEY
        || sbx_write_all(fd, key, NGX_HTTP_SANDBOX_E2B_KEY) != 0
        || (link((char *) temp, path) == -1 && ngx_errno != EEXIST))
    {
        ngx_log_error(NGX_LOG_EMERG, cycle->log, ngx_errno,
                      "sandbox: could not make \"%s\"", path);
        (void) unlink((char *) temp);

        return NGX_ERROR;
    }

    (void) unlink((char *) temp);

    return NGX_OK;
}


/* RFC 2104; the message is head and data, one after the other. */

static void
ngx_http_sandbox_e2b_hmac(const u_char *key, const void *head,
    size_t head_len, const void *data, size_t len, uint8_t *digest)
{
    size_t        i;
    uint8_t       pad[64];
    sbx_sha256_t  sha;

    for (i = 0; i < sizeof(pad); i++) {
        pad[i] = (i < NGX_HTTP_SANDBOX_E2B_KEY ? key[i] : 0) ^ 0x36;
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


ngx_int_t
ngx_http_sandbox_e2b_admit(ngx_http_request_t *r, ngx_http_sandbox_ctx_t *ctx)
{
    ngx_int_t                      rc;
    ngx_str_t                      token;
    ngx_http_sandbox_e2b_t        *e2b;
    ngx_http_sandbox_e2b_token_e   kind;
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

    kind = NGX_HTTP_SANDBOX_E2B_TOKEN_ENVD;
    rc = ngx_http_sandbox_op_header(r, "x-access-token", &token);

    if (e2b->plane == NGX_HTTP_SANDBOX_E2B_PLANE_PORT
        || (e2b->plane == NGX_HTTP_SANDBOX_E2B_PLANE_CODE
            && rc == NGX_DECLINED))
    {
        kind = NGX_HTTP_SANDBOX_E2B_TOKEN_TRAFFIC;
        rc = ngx_http_sandbox_op_header(r, "e2b-traffic-access-token",
                                        &token);
    }

    if (rc != NGX_DECLINED) {
        e2b->token_ok = (rc == NGX_OK
                         && ngx_http_sandbox_e2b_token_is(smcf, kind, &e2b->id,
                                                          &token));
        e2b->token_bad = !e2b->token_ok;
    }

    if (e2b->token_ok) {
        return NGX_OK;
    }

    if (e2b->plane == NGX_HTTP_SANDBOX_E2B_PLANE_PORT) {
        ctx->bars = SBX_CREATE_PORT_TOKEN;

    } else if (ctx->route->access != NGX_HTTP_SANDBOX_ACCESS_ANY
               || e2b->token_bad)
    {
        ctx->needs = SBX_CREATE_NO_TOKEN;
    }

    return NGX_OK;
}
