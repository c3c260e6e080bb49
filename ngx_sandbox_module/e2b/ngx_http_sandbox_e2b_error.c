/*
 * Refusals in the forms of the E2B protocol.  What the native API says goes
 * out with other words around it; a refusal means the same in both.
 */

#include "ngx_http_sandbox_e2b.h"


static ngx_int_t ngx_http_sandbox_e2b_send_error(ngx_http_request_t *r,
    ngx_uint_t status, const ngx_str_t *message);
static ngx_uint_t ngx_http_sandbox_e2b_gone(
    const ngx_http_sandbox_refusal_t *refusal);
static uint64_t ngx_http_sandbox_e2b_retry(
    const ngx_http_sandbox_refusal_t *refusal);


/*
 * A client of this protocol that is told when to come back does so by itself,
 * three times, and says nothing of it: of a quota it would wait in vain.
 */

static uint64_t
ngx_http_sandbox_e2b_retry(const ngx_http_sandbox_refusal_t *refusal)
{
    return (refusal->status == 429) ? 0 : refusal->retry_after;
}


ngx_int_t
ngx_http_sandbox_e2b_refuse_control(ngx_http_request_t *r,
    const ngx_http_sandbox_refusal_t *refusal)
{
    u_char     text[NGX_MAX_ERROR_STR];
    ngx_int_t  rc;
    ngx_str_t  message;

    if (r->header_sent) {
        return NGX_ERROR;
    }

    rc = ngx_http_sandbox_problem_prepare(r,
                                         ngx_http_sandbox_e2b_retry(refusal));

    if (rc != NGX_OK) {
        return rc;
    }

    message.data = text;
    message.len = ngx_http_sandbox_e2b_names(text, sizeof(text),
                                             &refusal->detail);

    if (refusal->error == NGX_HTTP_SANDBOX_SESSION_NOT_FOUND) {
        ngx_str_set(&message, "The sandbox was not found");
    }

    return ngx_http_sandbox_e2b_send_error(r, refusal->status, &message);
}


static ngx_int_t
ngx_http_sandbox_e2b_send_error(ngx_http_request_t *r, ngx_uint_t status,
    const ngx_str_t *message)
{
    ngx_http_sandbox_json_t  j;

    ngx_http_sandbox_json_init(&j, r->pool);
    ngx_http_sandbox_json_raw(&j, "{\"code\":");
    ngx_http_sandbox_json_int(&j, (int64_t) status);
    ngx_http_sandbox_json_raw(&j, ",\"message\":");
    ngx_http_sandbox_json_string(&j, message->data, message->len);
    ngx_http_sandbox_json_raw(&j, "}");

    return ngx_http_sandbox_json_send(r, status, &j);
}


ngx_int_t
ngx_http_sandbox_e2b_say(ngx_http_request_t *r, ngx_uint_t status,
    const char *fmt, ...)
{
    u_char     text[NGX_MAX_ERROR_STR];
    va_list    args;
    ngx_int_t  rc;
    ngx_str_t  message;

    if (r->header_sent) {
        return NGX_ERROR;
    }

    va_start(args, fmt);
    message.data = text;
    message.len = ngx_vslprintf(text, text + sizeof(text), fmt, args) - text;
    va_end(args);

    rc = ngx_http_sandbox_problem_prepare(r, 0);

    return (rc == NGX_OK)
           ? ngx_http_sandbox_e2b_send_error(r, status, &message) : rc;
}


/* Of a sandbox that runs no more, its own plane answers as a proxy does. */

static ngx_uint_t
ngx_http_sandbox_e2b_gone(const ngx_http_sandbox_refusal_t *refusal)
{
    return refusal->error == NGX_HTTP_SANDBOX_SESSION_NOT_FOUND
           || refusal->error == NGX_HTTP_SANDBOX_SESSION_PAUSED;
}


ngx_int_t
ngx_http_sandbox_e2b_refuse_data(ngx_http_request_t *r,
    const ngx_http_sandbox_refusal_t *refusal)
{
    if (!r->header_sent && ngx_http_sandbox_e2b_gone(refusal)) {
        return ngx_http_sandbox_e2b_refuse_gone(r, refusal);
    }

    return ngx_http_sandbox_e2b_refuse_control(r, refusal);
}


/* The code interpreter's own are plain text. */

ngx_int_t
ngx_http_sandbox_e2b_refuse_code(ngx_http_request_t *r,
    const ngx_http_sandbox_refusal_t *refusal)
{
    ngx_int_t                rc;
    ngx_http_sandbox_json_t  j;

    if (r->header_sent) {
        return NGX_ERROR;
    }

    if (ngx_http_sandbox_e2b_gone(refusal)) {
        return ngx_http_sandbox_e2b_refuse_gone(r, refusal);
    }

    rc = ngx_http_sandbox_problem_prepare(r,
                                         ngx_http_sandbox_e2b_retry(refusal));

    if (rc != NGX_OK) {
        return rc;
    }

    ngx_http_sandbox_json_init(&j, r->pool);
    ngx_http_sandbox_json_raw_len(&j, refusal->detail.data,
                                  refusal->detail.len);

    return ngx_http_sandbox_json_send_as(r, refusal->status, "text/plain",
                                         &j);
}


/* By what the refusal is; a status has one code of Connect that is its own. */

static const struct {
    ngx_http_sandbox_error_e   error;
    const char                *code;
} ngx_http_sandbox_e2b_codes[] = {
    { NGX_HTTP_SANDBOX_UNAUTHENTICATED, "unauthenticated" },
    { NGX_HTTP_SANDBOX_FORBIDDEN, "permission_denied" },
    { NGX_HTTP_SANDBOX_QUOTA_EXCEEDED, "resource_exhausted" },
    { NGX_HTTP_SANDBOX_CAPACITY_EXHAUSTED, "unavailable" },
    { NGX_HTTP_SANDBOX_CONFLICT, "failed_precondition" },
    { NGX_HTTP_SANDBOX_INVALID_REQUEST, "invalid_argument" },
    { NGX_HTTP_SANDBOX_INVALID_MANIFEST, "invalid_argument" },
    { NGX_HTTP_SANDBOX_PROCESS_NOT_FOUND, "not_found" },
    { NGX_HTTP_SANDBOX_CAPABILITY_NOT_SUPPORTED, "permission_denied" },
    { NGX_HTTP_SANDBOX_CONTEXT_NOT_FOUND, "not_found" },
    { NGX_HTTP_SANDBOX_NOT_FOUND, "unimplemented" },
    { NGX_HTTP_SANDBOX_METHOD_NOT_ALLOWED, "unimplemented" },
    { NGX_HTTP_SANDBOX_UNSUPPORTED_MEDIA_TYPE, "invalid_argument" },
    { NGX_HTTP_SANDBOX_FILE_NOT_FOUND, "not_found" },
    { NGX_HTTP_SANDBOX_INVALID_PATH, "invalid_argument" },
    { NGX_HTTP_SANDBOX_PATH_NOT_ALLOWED, "permission_denied" },
    { NGX_HTTP_SANDBOX_WRONG_FILE_TYPE, "invalid_argument" },
    { NGX_HTTP_SANDBOX_PAYLOAD_TOO_LARGE, "resource_exhausted" },
    { NGX_HTTP_SANDBOX_NO_SPACE, "resource_exhausted" },
    { NGX_HTTP_SANDBOX_ALREADY_EXISTS, "already_exists" },
    { NGX_HTTP_SANDBOX_BROKER_UNAVAILABLE, "unavailable" },
    { NGX_HTTP_SANDBOX_NOT_IMPLEMENTED, "unimplemented" },
    { NGX_HTTP_SANDBOX_INTERNAL, NULL }
};


ngx_int_t
ngx_http_sandbox_e2b_refuse_rpc(ngx_http_request_t *r,
    const ngx_http_sandbox_refusal_t *refusal)
{
    ngx_uint_t   i, status;
    const char  *code;

    if (!r->header_sent && ngx_http_sandbox_e2b_gone(refusal)) {
        return ngx_http_sandbox_e2b_refuse_gone(r, refusal);
    }

    /* what goes away without a word is most often the whole sandbox: its
     * clients ask about that if the stream breaks, and only then */

    if (r->header_sent
        && refusal->error == NGX_HTTP_SANDBOX_BROKER_UNAVAILABLE)
    {
        return NGX_ERROR;
    }

    for (i = 0; ngx_http_sandbox_e2b_codes[i].code != NULL; i++) {
        if (ngx_http_sandbox_e2b_codes[i].error == refusal->error) {
            break;
        }
    }

    code = ngx_http_sandbox_e2b_codes[i].code;

    /* a stream has these statuses, too: who sends no right token, or does not
     * speak Connect, may be no client of it */

    status = (refusal->error == NGX_HTTP_SANDBOX_UNAUTHENTICATED
              || refusal->error == NGX_HTTP_SANDBOX_UNSUPPORTED_MEDIA_TYPE)
             ? refusal->status : 0;

    return ngx_http_sandbox_e2b_error_as(r, status,
                                         code ? code : "internal",
                                         &refusal->detail,
                                         ngx_http_sandbox_e2b_retry(refusal));
}
