/*
 * Addresses of files that are signed with the token of a sandbox.
 *
 * Where the address, its host and its headers tell no sandbox, it is the one
 * with whose token the signature comes out: those that live are gone through,
 * as many in one turn as a call delivers frames.  What was found, and what was
 * not, is remembered for a while, and all lookups of a worker together may go
 * through so many sandboxes a second and no more.
 *
 * Whether a sandbox asks for a token at all is the broker's to say: why a
 * caller has none that is right is kept until it does.
 */

#include "ngx_http_sandbox_e2b_files.h"

#include "sandbox_sha256.h"


/* "v1_" and 32 bytes in base64 without its padding */
#define NGX_HTTP_SANDBOX_E2B_SIGNED       (3 + 43)

/* sandboxes that lookups of a worker may go through */
#define NGX_HTTP_SANDBOX_E2B_BURST        40000
#define NGX_HTTP_SANDBOX_E2B_RATE         20        /* in a millisecond */
#define NGX_HTTP_SANDBOX_E2B_COST         200       /* of a lookup at least */

#define NGX_HTTP_SANDBOX_E2B_UNKNOWN      512       /* remembered, each */
#define NGX_HTTP_SANDBOX_E2B_KNOWN        256
#define NGX_HTTP_SANDBOX_E2B_UNKNOWN_AGE  3000      /* ms */
#define NGX_HTTP_SANDBOX_E2B_KNOWN_AGE    60000


typedef struct {
    uint8_t                        digest[SBX_SHA256_SIZE];
    ngx_msec_t                     until;
    size_t                         id_len;          /* 0: there is none */
    u_char                         id[SBX_ID_MAX];
} ngx_http_sandbox_e2b_known_t;


typedef struct {
    ngx_http_sandbox_e2b_file_t   *file;
    uint8_t                        digest[SBX_SHA256_SIZE];
    sbx_list_t                     ask;
} ngx_http_sandbox_e2b_lookup_t;


static void ngx_http_sandbox_e2b_sign_text(
    const ngx_http_sandbox_e2b_file_t *file, const ngx_str_t *id,
    u_char *out);
static ngx_uint_t ngx_http_sandbox_e2b_signed(
    const ngx_http_sandbox_e2b_file_t *file, const ngx_str_t *id);
static ngx_int_t ngx_http_sandbox_e2b_lookup(
    ngx_http_sandbox_e2b_file_t *file);
static void ngx_http_sandbox_e2b_lookup_digest(
    const ngx_http_sandbox_e2b_file_t *file, uint8_t *digest);
static ngx_uint_t ngx_http_sandbox_e2b_lookup_allowed(void);
static ngx_int_t ngx_http_sandbox_e2b_lookup_frame(
    ngx_http_sandbox_call_t *call, const sbx_frame_t *frame,
    const u_char *payload, ngx_fd_t fd);
static ngx_int_t ngx_http_sandbox_e2b_lookup_found(
    ngx_http_sandbox_e2b_lookup_t *lookup, const ngx_str_t *id);
static ngx_int_t ngx_http_sandbox_e2b_lookup_none(
    ngx_http_sandbox_e2b_lookup_t *lookup);
static ngx_http_sandbox_e2b_known_t *ngx_http_sandbox_e2b_known_slot(
    const uint8_t *digest, ngx_uint_t unknown);
static ngx_http_sandbox_e2b_known_t *ngx_http_sandbox_e2b_known_find(
    const uint8_t *digest, ngx_uint_t unknown);


/* This worker's. */

static ngx_http_sandbox_e2b_known_t
    ngx_http_sandbox_e2b_known[NGX_HTTP_SANDBOX_E2B_KNOWN];
static ngx_http_sandbox_e2b_known_t
    ngx_http_sandbox_e2b_unknown[NGX_HTTP_SANDBOX_E2B_UNKNOWN];

static ngx_int_t   ngx_http_sandbox_e2b_budget = NGX_HTTP_SANDBOX_E2B_BURST;
static ngx_msec_t  ngx_http_sandbox_e2b_budget_at;


ngx_int_t
ngx_http_sandbox_e2b_sign(ngx_http_sandbox_e2b_file_t *file)
{
    ngx_http_request_t      *r;
    ngx_http_sandbox_ctx_t  *ctx;
    ngx_http_sandbox_e2b_t  *e2b;

    r = file->request;
    ctx = ngx_http_sandbox_ctx(r);
    e2b = ngx_http_sandbox_e2b(ctx);

    if (e2b->token_ok) {
        return file->go(file);
    }

    if (e2b->token_bad) {
        file->refusal = "access token present in header but does not match";

    } else if (!file->has_signature) {
        file->refusal = "missing signature query parameter";

    } else if (e2b->id.len == 0) {
        return ngx_http_sandbox_e2b_lookup(file);

    } else if (!ngx_http_sandbox_e2b_signed(file, &e2b->id)) {
        file->refusal = "invalid signature";

    } else if (file->expires && file->expiration < (int64_t) ngx_time()) {
        file->refusal = "signature is already expired";

    } else {
        ctx->needs = 0;
    }

    if (e2b->id.len == 0) {
        return ngx_http_sandbox_problem(r, NGX_HTTP_SANDBOX_UNAUTHENTICATED,
                                        NULL);
    }

    return file->go(file);
}


/* What the signature must be; NGX_HTTP_SANDBOX_E2B_SIGNED bytes. */

static void
ngx_http_sandbox_e2b_sign_text(const ngx_http_sandbox_e2b_file_t *file,
    const ngx_str_t *id, u_char *out)
{
    u_char                         token[NGX_HTTP_SANDBOX_E2B_TOKEN];
    u_char                         text[64];
    uint8_t                        digest[SBX_SHA256_SIZE];
    ngx_str_t                      from, to;
    sbx_sha256_t                   sha;
    ngx_http_sandbox_main_conf_t  *smcf;

    smcf = ngx_http_get_module_main_conf(file->request,
                                         ngx_http_sandbox_module);

    ngx_http_sandbox_e2b_token(smcf, NGX_HTTP_SANDBOX_E2B_TOKEN_ENVD,
                               id->data, id->len, token);

    sbx_sha256_init(&sha);
    sbx_sha256_update(&sha, file->query.data, file->query.len);

    if (file->request->method == NGX_HTTP_POST) {
        sbx_sha256_update(&sha, ":write:", 7);

    } else {
        sbx_sha256_update(&sha, ":read:", 6);
    }

    sbx_sha256_update(&sha, file->name.data, file->name.len);
    sbx_sha256_update(&sha, ":", 1);
    sbx_sha256_update(&sha, token, sizeof(token));

    if (file->expires) {
        sbx_sha256_update(&sha, text,
                          ngx_sprintf(text, ":%L", file->expiration) - text);
    }

    sbx_sha256_final(&sha, digest);

    from.data = digest;
    from.len = sizeof(digest);
    to.data = text;
    ngx_encode_base64(&to, &from);

    /* the last of them is the padding */

    out = ngx_cpymem(out, "v1_", 3);
    ngx_memcpy(out, text, NGX_HTTP_SANDBOX_E2B_SIGNED - 3);
}


static ngx_uint_t
ngx_http_sandbox_e2b_signed(const ngx_http_sandbox_e2b_file_t *file,
    const ngx_str_t *id)
{
    u_char  right[NGX_HTTP_SANDBOX_E2B_SIGNED];

    ngx_http_sandbox_e2b_sign_text(file, id, right);

    return file->signature.len == sizeof(right)
           && ngx_http_sandbox_e2b_same(right, file->signature.data,
                                        sizeof(right));
}


/* ---- which sandbox it is ------------------------------------------------ */


static ngx_int_t
ngx_http_sandbox_e2b_lookup(ngx_http_sandbox_e2b_file_t *file)
{
    ngx_str_t                       id;
    ngx_http_request_t             *r;
    ngx_http_sandbox_call_t        *call;
    ngx_http_sandbox_e2b_known_t   *known;
    ngx_http_sandbox_e2b_lookup_t  *lookup;

    r = file->request;
    lookup = ngx_pcalloc(r->pool, sizeof(ngx_http_sandbox_e2b_lookup_t));

    if (lookup == NULL) {
        return ngx_http_sandbox_problem(r, NGX_HTTP_SANDBOX_INTERNAL, NULL);
    }

    lookup->file = file;

    if (file->signature.len != NGX_HTTP_SANDBOX_E2B_SIGNED) {
        return ngx_http_sandbox_e2b_lookup_none(lookup);
    }

    ngx_http_sandbox_e2b_lookup_digest(file, lookup->digest);

    known = ngx_http_sandbox_e2b_known_find(lookup->digest, 0);

    if (known != NULL) {
        id.data = known->id;
        id.len = known->id_len;

        if (ngx_http_sandbox_e2b_signed(file, &id)) {
            return ngx_http_sandbox_e2b_lookup_found(lookup, &id);
        }
    }

    if (ngx_http_sandbox_e2b_known_find(lookup->digest, 1) != NULL) {
        return ngx_http_sandbox_e2b_lookup_none(lookup);
    }

    if (!ngx_http_sandbox_e2b_lookup_allowed()) {
        return ngx_http_sandbox_problem(r, NGX_HTTP_SANDBOX_QUOTA_EXCEEDED,
                                   "too many signed addresses are looked up; "
                                   "name the sandbox by E2b-Sandbox-Id and "
                                   "E2b-Sandbox-Port, or by the host");
    }

    call = ngx_http_sandbox_op_call(r, SBX_OP_LIST, &lookup->ask,
                                    sizeof(sbx_list_t), NGX_INVALID_FILE,
                                    lookup);

    if (call != NULL) {
        call->frame = ngx_http_sandbox_e2b_lookup_frame;
        call->header.needs = 0;
    }

    return ngx_http_sandbox_op_start(r, call);
}


/* Of all that the signature is of, and itself. */

static void
ngx_http_sandbox_e2b_lookup_digest(const ngx_http_sandbox_e2b_file_t *file,
    uint8_t *digest)
{
    struct {
        uint64_t                   lens[2];
        int64_t                    expiration;
        uint32_t                   write;
        uint32_t                   expires;
    } fixed;
    sbx_sha256_t                   sha;

    ngx_memzero(&fixed, sizeof(fixed));
    fixed.lens[0] = file->query.len;
    fixed.lens[1] = file->name.len;
    fixed.expiration = file->expiration;
    fixed.write = (file->request->method == NGX_HTTP_POST);
    fixed.expires = (uint32_t) file->expires;

    sbx_sha256_init(&sha);
    sbx_sha256_update(&sha, &fixed, sizeof(fixed));
    sbx_sha256_update(&sha, file->query.data, file->query.len);
    sbx_sha256_update(&sha, file->name.data, file->name.len);
    sbx_sha256_update(&sha, file->signature.data, file->signature.len);
    sbx_sha256_final(&sha, digest);
}


static ngx_uint_t
ngx_http_sandbox_e2b_lookup_allowed(void)
{
    ngx_msec_t  passed;

    passed = ngx_current_msec - ngx_http_sandbox_e2b_budget_at;
    passed = ngx_min(passed, 2 * NGX_HTTP_SANDBOX_E2B_BURST
                             / NGX_HTTP_SANDBOX_E2B_RATE);

    ngx_http_sandbox_e2b_budget_at = ngx_current_msec;
    ngx_http_sandbox_e2b_budget += passed * NGX_HTTP_SANDBOX_E2B_RATE;
    ngx_http_sandbox_e2b_budget = ngx_min(ngx_http_sandbox_e2b_budget,
                                          NGX_HTTP_SANDBOX_E2B_BURST);

    if (ngx_http_sandbox_e2b_budget < NGX_HTTP_SANDBOX_E2B_COST) {
        return 0;
    }

    ngx_http_sandbox_e2b_budget -= NGX_HTTP_SANDBOX_E2B_COST;

    return 1;
}


static ngx_int_t
ngx_http_sandbox_e2b_lookup_frame(ngx_http_sandbox_call_t *call,
    const sbx_frame_t *frame, const u_char *payload, ngx_fd_t fd)
{
    ngx_int_t                       rc;
    ngx_str_t                       id;
    sbx_f_session_t                 session;
    ngx_connection_t               *c;
    ngx_http_request_t             *r;
    ngx_http_sandbox_e2b_lookup_t  *lookup;

    rc = ngx_http_sandbox_op_frame(call, frame, payload, fd);

    if (rc != NGX_DECLINED) {
        return rc;
    }

    lookup = call->data;

    switch (frame->type) {

    case SBX_F_META:
        return NGX_OK;

    case SBX_F_SESSION:
        ngx_http_sandbox_e2b_budget--;
        ngx_memcpy(&session, payload, sizeof(sbx_f_session_t));

        id.data = (u_char *) session.id;
        id.len = ngx_strnlen(id.data, SBX_ID_MAX);

        if (!ngx_http_sandbox_e2b_signed(lookup->file, &id)) {
            return NGX_OK;
        }

        break;

    case SBX_F_END:
        id.len = 0;
        break;

    default:
        return ngx_http_sandbox_op_broken(call, "a wrong frame for a list");
    }

    r = call->request;
    c = r->connection;

    ngx_http_sandbox_call_close(call);

    rc = (id.len != 0) ? ngx_http_sandbox_e2b_lookup_found(lookup, &id)
                       : ngx_http_sandbox_e2b_lookup_none(lookup);

    if (rc != NGX_DONE) {
        ngx_http_finalize_request(r, rc);
        ngx_http_run_posted_requests(c);
    }

    return NGX_DONE;
}


static ngx_int_t
ngx_http_sandbox_e2b_lookup_found(ngx_http_sandbox_e2b_lookup_t *lookup,
    const ngx_str_t *id)
{
    ngx_http_request_t            *r;
    ngx_http_sandbox_ctx_t        *ctx;
    ngx_http_sandbox_e2b_t        *e2b;
    ngx_http_sandbox_e2b_file_t   *file;
    ngx_http_sandbox_e2b_known_t  *known;

    file = lookup->file;
    r = file->request;
    ctx = ngx_http_sandbox_ctx(r);
    e2b = ngx_http_sandbox_e2b(ctx);

    if (file->expires && file->expiration < (int64_t) ngx_time()) {
        file->refusal = "signature is already expired";

        return ngx_http_sandbox_problem(r, NGX_HTTP_SANDBOX_UNAUTHENTICATED,
                                        NULL);
    }

    e2b->id.len = id->len;
    e2b->id.data = ngx_pstrdup(r->pool, (ngx_str_t *) id);

    if (e2b->id.data == NULL) {
        return ngx_http_sandbox_problem(r, NGX_HTTP_SANDBOX_INTERNAL, NULL);
    }

    known = ngx_http_sandbox_e2b_known_slot(lookup->digest, 0);

    ngx_memcpy(known->digest, lookup->digest, sizeof(known->digest));
    ngx_memmove(known->id, id->data, id->len);
    known->id_len = id->len;
    known->until = ngx_current_msec + NGX_HTTP_SANDBOX_E2B_KNOWN_AGE;

    ctx->session = e2b->id;
    ctx->call_flags = SBX_CALL_RESUME;
    ctx->needs = 0;

    return file->go(file);
}


static ngx_int_t
ngx_http_sandbox_e2b_lookup_none(ngx_http_sandbox_e2b_lookup_t *lookup)
{
    ngx_http_sandbox_e2b_file_t   *file;
    ngx_http_sandbox_e2b_known_t  *known;

    file = lookup->file;
    file->refusal = "invalid signature";

    if (file->signature.len == NGX_HTTP_SANDBOX_E2B_SIGNED
        && ngx_http_sandbox_e2b_known_find(lookup->digest, 1) == NULL)
    {
        known = ngx_http_sandbox_e2b_known_slot(lookup->digest, 1);

        ngx_memcpy(known->digest, lookup->digest, sizeof(known->digest));
        known->until = ngx_current_msec + NGX_HTTP_SANDBOX_E2B_UNKNOWN_AGE;
    }

    return ngx_http_sandbox_problem(file->request,
                                    NGX_HTTP_SANDBOX_UNAUTHENTICATED, NULL);
}


/* Where it is remembered, in place of whatever is. */

static ngx_http_sandbox_e2b_known_t *
ngx_http_sandbox_e2b_known_slot(const uint8_t *digest, ngx_uint_t unknown)
{
    ngx_uint_t  n;

    n = digest[0] | ((ngx_uint_t) digest[1] << 8);

    return unknown
           ? &ngx_http_sandbox_e2b_unknown[n % NGX_HTTP_SANDBOX_E2B_UNKNOWN]
           : &ngx_http_sandbox_e2b_known[n % NGX_HTTP_SANDBOX_E2B_KNOWN];
}


/* NULL: it is not, or is too old. */

static ngx_http_sandbox_e2b_known_t *
ngx_http_sandbox_e2b_known_find(const uint8_t *digest, ngx_uint_t unknown)
{
    ngx_http_sandbox_e2b_known_t  *known;

    known = ngx_http_sandbox_e2b_known_slot(digest, unknown);

    return ((ngx_msec_int_t) (known->until - ngx_current_msec) > 0
            && ngx_memcmp(known->digest, digest, SBX_SHA256_SIZE) == 0)
           ? known : NULL;
}
