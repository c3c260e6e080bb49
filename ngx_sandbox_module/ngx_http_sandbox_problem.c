#include "ngx_http_sandbox.h"


#define NGX_HTTP_SANDBOX_DETAIL_MAX   1024


typedef struct {
    ngx_http_sandbox_error_e    error;
    ngx_uint_t                  status;
    const char                 *code;
    const char                 *word;
    const char                 *title;
    const char                 *detail;
    const char                 *suggestion;
} ngx_http_sandbox_problem_t;


static const ngx_http_sandbox_problem_t *ngx_http_sandbox_problem_find(
    ngx_http_sandbox_error_e error);
static ngx_int_t ngx_http_sandbox_problem_refuse(ngx_http_request_t *r,
    const ngx_http_sandbox_problem_t *problem,
    ngx_http_sandbox_refusal_t *refusal);
static ngx_int_t ngx_http_sandbox_problem_send(ngx_http_request_t *r,
    const ngx_http_sandbox_refusal_t *refusal);
static void ngx_http_sandbox_problem_more(ngx_http_sandbox_json_t *j,
    const ngx_http_sandbox_refusal_t *refusal);
static ngx_int_t ngx_http_sandbox_problem_body(ngx_http_request_t *r);
static ngx_http_sandbox_error_e ngx_http_sandbox_problem_map(
    ngx_http_request_t *r, uint32_t code, ngx_err_t err, const char *text);


static const ngx_http_sandbox_problem_t  ngx_http_sandbox_problems[] = {

    { NGX_HTTP_SANDBOX_UNAUTHENTICATED, 401, "E1001", "unauthenticated",
      "Unauthenticated", "this server asks for an identity",
      "Send the credentials that the operator gave you." },

    { NGX_HTTP_SANDBOX_FORBIDDEN, 403, "E1002", "forbidden",
      "Forbidden", "this identity may not do that",
      "Act as the identity that owns it, or ask the operator." },

    { NGX_HTTP_SANDBOX_TEMPLATE_NOT_FOUND, 404, "E2001",
      "template_not_found",
      "Template not found", "there is no such template",
      "Choose one of GET /templates." },

    { NGX_HTTP_SANDBOX_INVALID_MANIFEST, 400, "E2002", "invalid_manifest",
      "Invalid manifest", "it asks for what this server cannot give",
      "Ask for no more than the detail allows." },

    { NGX_HTTP_SANDBOX_QUOTA_EXCEEDED, 429, "E2003", "quota_exceeded",
      "Quota exceeded", "a limit is reached",
      "Free what counts against the limit, or wait." },

    { NGX_HTTP_SANDBOX_CAPACITY_EXHAUSTED, 503, "E2004",
      "capacity_exhausted",
      "Capacity exhausted", "this node has no room",
      "Try again later, or on another node." },

    { NGX_HTTP_SANDBOX_SESSION_NOT_FOUND, 404, "E2009", "session_not_found",
      "Session not found", "there is no such session",
      "Create a session with POST /sessions." },

    { NGX_HTTP_SANDBOX_SESSION_PAUSED, 409, "E2010", "session_paused",
      "Session paused", "the session is paused",
      "Resume the session first." },

    { NGX_HTTP_SANDBOX_CONFLICT, 409, "E2011", "conflict",
      "Conflict", "the state of things does not allow that",
      "Look at the state, then decide again." },

    { NGX_HTTP_SANDBOX_INVALID_REQUEST, 400, "E3001", "invalid_request",
      "Invalid request", "the request is not what the route takes",
      "Correct the field that the detail names." },

    { NGX_HTTP_SANDBOX_PROCESS_NOT_FOUND, 404, "E3002", "process_not_found",
      "Process not found", "there is no such process",
      "List the processes of the session." },

    { NGX_HTTP_SANDBOX_NETWORK_NOT_PERMITTED, 403, "E3003",
      "network_not_permitted",
      "Network not permitted", "the manifest grants no such network access",
      "Create a session whose manifest grants it." },

    { NGX_HTTP_SANDBOX_CAPABILITY_NOT_SUPPORTED, 403, "E3004",
      "capability_not_supported",
      "Capability not supported",
      "the template or the manifest lacks the capability",
      "Create a session that has the capability." },

    { NGX_HTTP_SANDBOX_CONTEXT_NOT_FOUND, 404, "E3005", "context_not_found",
      "Context not found", "there is no such context",
      "List the contexts of the session." },

    { NGX_HTTP_SANDBOX_COMMAND_NOT_FOUND, 404, "E3006", "command_not_found",
      "Command not found", "there is no such named command",
      "List the commands of the session." },

    { NGX_HTTP_SANDBOX_INSTALL_FAILED, 422, "E3007", "install_failed",
      "Install failed", "the package manager failed",
      "Read its output." },

    { NGX_HTTP_SANDBOX_OFFSET_GONE, 410, "E3008", "offset_gone",
      "Offset gone", "output at that offset is no longer kept",
      "Go on from the oldest offset there is." },

    { NGX_HTTP_SANDBOX_NOT_FOUND, 404, "E3009", "not_found",
      "Not found", "there is no such route",
      "Check the path against the API's reference." },

    { NGX_HTTP_SANDBOX_METHOD_NOT_ALLOWED, 405, "E3010",
      "method_not_allowed",
      "Method not allowed", "the route does not take this method",
      "Use a method that the Allow header names." },

    { NGX_HTTP_SANDBOX_UNSUPPORTED_MEDIA_TYPE, 415, "E3011",
      "unsupported_media_type",
      "Unsupported media type", "the body must be application/json",
      "Send \"Content-Type: application/json\"." },

    { NGX_HTTP_SANDBOX_FILE_NOT_FOUND, 404, "E4001", "file_not_found",
      "File not found", "there is no such file",
      "List the files of the session." },

    { NGX_HTTP_SANDBOX_INVALID_PATH, 400, "E4002", "invalid_path",
      "Invalid path", "the path cannot be one",
      "Send a path without NUL of at most 4095 bytes." },

    { NGX_HTTP_SANDBOX_PATH_NOT_ALLOWED, 403, "E4003", "path_not_allowed",
      "Path not allowed", "policy or permission denies the path",
      "Use a path that the session's user may use." },

    { NGX_HTTP_SANDBOX_WRONG_FILE_TYPE, 409, "E4004", "wrong_file_type",
      "Wrong file type", "it is not of the type that the call needs",
      "Name a regular file, or a directory where one is needed." },

    { NGX_HTTP_SANDBOX_PAYLOAD_TOO_LARGE, 413, "E4005", "payload_too_large",
      "Payload too large", "the body is larger than this server takes",
      "Send less at once." },

    { NGX_HTTP_SANDBOX_NO_SPACE, 507, "E4006", "no_space",
      "No space", "the session's disk or inodes are used up",
      "Delete files, or create a session with more disk." },

    { NGX_HTTP_SANDBOX_ALREADY_EXISTS, 409, "E4007", "already_exists",
      "Already exists", "it is already there",
      "Allow overwriting, or choose another name." },

    { NGX_HTTP_SANDBOX_PRECONDITION_FAILED, 412, "E4008",
      "precondition_failed",
      "Precondition failed", "the file is not the one that you expected",
      "Read the file again, and use its new ETag." },

    { NGX_HTTP_SANDBOX_BROKER_UNAVAILABLE, 503, "E5001",
      "broker_unavailable",
      "Broker unavailable", "the sandbox core did not answer",
      "Try again in a second." },

    { NGX_HTTP_SANDBOX_BAD_GATEWAY, 502, "E5002", "internal",
      "Bad gateway", "nothing answers behind this route",
      "Start the service in the session first." },

    { NGX_HTTP_SANDBOX_GATEWAY_TIMEOUT, 504, "E5002", "internal",
      "Gateway timeout",
      "what is behind this route did not answer in time",
      "Send it again, or look at what the service does." },

    { NGX_HTTP_SANDBOX_INTERNAL, 500, "E5002", "internal",
      "Internal error", "the server failed; its log says why",
      "Report it with the X-Request-ID of this answer." },

    { NGX_HTTP_SANDBOX_NOT_IMPLEMENTED, 501, "E5003", "not_implemented",
      "Not implemented", "the route is reserved",
      "Do without it." },

    { 0, 0, NULL, NULL, NULL, NULL, NULL }
};


static const struct {
    uint32_t                    code;
    ngx_http_sandbox_error_e    error;
} ngx_http_sandbox_core_errors[] = {
    { SBX_E_INTERNAL, NGX_HTTP_SANDBOX_INTERNAL },
    { SBX_E_UNAVAILABLE, NGX_HTTP_SANDBOX_BROKER_UNAVAILABLE },
    { SBX_E_INVALID, NGX_HTTP_SANDBOX_INVALID_REQUEST },
    { SBX_E_MANIFEST, NGX_HTTP_SANDBOX_INVALID_MANIFEST },
    { SBX_E_TEMPLATE, NGX_HTTP_SANDBOX_TEMPLATE_NOT_FOUND },
    { SBX_E_SESSION, NGX_HTTP_SANDBOX_SESSION_NOT_FOUND },
    { SBX_E_PAUSED, NGX_HTTP_SANDBOX_SESSION_PAUSED },
    { SBX_E_CONFLICT, NGX_HTTP_SANDBOX_CONFLICT },
    { SBX_E_QUOTA, NGX_HTTP_SANDBOX_QUOTA_EXCEEDED },
    { SBX_E_CAPACITY, NGX_HTTP_SANDBOX_CAPACITY_EXHAUSTED },
    { SBX_E_PROCESS, NGX_HTTP_SANDBOX_PROCESS_NOT_FOUND },
    { SBX_E_FILE, NGX_HTTP_SANDBOX_FILE_NOT_FOUND },
    { SBX_E_PATH, NGX_HTTP_SANDBOX_INVALID_PATH },
    { SBX_E_DENIED, NGX_HTTP_SANDBOX_PATH_NOT_ALLOWED },
    { SBX_E_FILE_TYPE, NGX_HTTP_SANDBOX_WRONG_FILE_TYPE },
    { SBX_E_NO_SPACE, NGX_HTTP_SANDBOX_NO_SPACE },
    { SBX_E_EXISTS, NGX_HTTP_SANDBOX_ALREADY_EXISTS },
    { SBX_E_PRECONDITION, NGX_HTTP_SANDBOX_PRECONDITION_FAILED },
    { SBX_E_TOO_LARGE, NGX_HTTP_SANDBOX_PAYLOAD_TOO_LARGE },
    { SBX_E_FORBIDDEN, NGX_HTTP_SANDBOX_FORBIDDEN },
    { SBX_E_TOKEN, NGX_HTTP_SANDBOX_UNAUTHENTICATED },
    { SBX_E_CONTEXT, NGX_HTTP_SANDBOX_CONTEXT_NOT_FOUND },
    { SBX_E_CAPABILITY, NGX_HTTP_SANDBOX_CAPABILITY_NOT_SUPPORTED },
    { SBX_E_OFFSET, NGX_HTTP_SANDBOX_OFFSET_GONE },
    { SBX_OK, NGX_HTTP_SANDBOX_INTERNAL }
};


/* By sbx_ended_t. */

static const char *const  ngx_http_sandbox_ended_words[] = {
    NULL, "destroyed", "expired", "idle", "admin", "node_restart"
};


const char *
ngx_http_sandbox_problem_code(ngx_uint_t i)
{
    return ngx_http_sandbox_problems[i].code;
}


static const ngx_http_sandbox_problem_t *
ngx_http_sandbox_problem_find(ngx_http_sandbox_error_e error)
{
    const ngx_http_sandbox_problem_t  *problem, *internal;

    internal = NULL;

    for (problem = ngx_http_sandbox_problems;
         problem->code != NULL;
         problem++)
    {
        if (problem->error == error) {
            return problem;
        }

        if (problem->error == NGX_HTTP_SANDBOX_INTERNAL) {
            internal = problem;
        }
    }

    return internal;
}


ngx_int_t
ngx_http_sandbox_problem(ngx_http_request_t *r,
    ngx_http_sandbox_error_e error, const char *detail_fmt, ...)
{
    u_char                             detail[NGX_HTTP_SANDBOX_DETAIL_MAX];
    u_char                            *last;
    va_list                            args;
    ngx_http_sandbox_refusal_t         refusal;

    ngx_memzero(&refusal, sizeof(ngx_http_sandbox_refusal_t));

    last = detail;

    if (detail_fmt != NULL) {
        va_start(args, detail_fmt);
        last = ngx_vslprintf(detail, detail + sizeof(detail), detail_fmt,
                             args);
        va_end(args);
    }

    refusal.detail.data = detail;
    refusal.detail.len = last - detail;

    return ngx_http_sandbox_problem_refuse(r,
                                 ngx_http_sandbox_problem_find(error),
                                 &refusal);
}


ngx_int_t
ngx_http_sandbox_problem_with(ngx_http_request_t *r,
    ngx_http_sandbox_error_e error, const ngx_str_t *detail,
    ngx_http_sandbox_json_t *members)
{
    ngx_http_sandbox_refusal_t  refusal;

    ngx_memzero(&refusal, sizeof(ngx_http_sandbox_refusal_t));

    refusal.detail = *detail;
    refusal.members = members;

    return ngx_http_sandbox_problem_refuse(r,
                                 ngx_http_sandbox_problem_find(error),
                                 &refusal);
}


ngx_int_t
ngx_http_sandbox_problem_core(ngx_http_request_t *r,
    const sbx_error_t *error)
{
    sbx_f_error_t  wire;

    ngx_memzero(&wire, sizeof(sbx_f_error_t));

    wire.code = error->code;
    wire.err = error->err;
    (void) ngx_cpystrn((u_char *) wire.text, (u_char *) error->text,
                       ngx_min(sizeof(wire.text), sizeof(error->text)));

    return ngx_http_sandbox_problem_wire(r, &wire);
}


/* How the limit is printed: processors are decimals. */

static const sbx_limit_t *
ngx_http_sandbox_problem_row(const sbx_f_error_t *error)
{
    const sbx_limit_t  *row;

    row = sbx_quota_find(error->resource,
                         strnlen(error->resource, sizeof(error->resource)),
                         0);

    return (row == NULL) ? sbx_quota_table : row;
}


/* Which quota it was, in words of our own. */

static void
ngx_http_sandbox_problem_quota(ngx_http_request_t *r,
    const sbx_f_error_t *error)
{
    ngx_uint_t               i;
    const sbx_limit_t       *row;
    ngx_http_sandbox_ctx_t  *ctx;

    ctx = ngx_http_sandbox_ctx(r);
    row = sbx_quota_find(error->resource,
                         strnlen(error->resource, sizeof(error->resource)),
                         0);

    for (i = 0; ctx != NULL && row != NULL && i < SBX_SCOPES; i++) {
        if (ngx_strncmp(error->scope, sbx_scope_word(i),
                        sizeof(error->scope))
            == 0)
        {
            ctx->quota_scope = sbx_scope_word(i);
            ctx->quota_resource = row->name;
        }
    }
}


ngx_int_t
ngx_http_sandbox_problem_wire(ngx_http_request_t *r,
    const sbx_f_error_t *error)
{
    u_char                      text[sizeof(error->text)];
    ngx_http_sandbox_error_e    e;
    ngx_http_sandbox_refusal_t  refusal;

    ngx_memzero(&refusal, sizeof(ngx_http_sandbox_refusal_t));

    /* it may come from a session, strings without their ends */

    (void) ngx_cpystrn(text, (u_char *) error->text, sizeof(text));

    e = ngx_http_sandbox_problem_map(r, error->code, error->err,
                                     (char *) text);

    refusal.core = error;
    refusal.retry_after = error->retry_after;
    refusal.detail.data = text;
    refusal.detail.len = ngx_strlen(text);

    if (e == NGX_HTTP_SANDBOX_INTERNAL) {

        /* what went wrong on the host is for its log only */

        refusal.detail.len = 0;
    }

    if (e == NGX_HTTP_SANDBOX_INVALID_MANIFEST) {

        /* what mends the machine, of the broker's own refusals alone */

        refusal.suggestion.data = (u_char *) error->mend;
        refusal.suggestion.len = strnlen(error->mend, sizeof(error->mend));
    }

    if (e == NGX_HTTP_SANDBOX_QUOTA_EXCEEDED
        || e == NGX_HTTP_SANDBOX_CAPACITY_EXHAUSTED)
    {
        ngx_http_sandbox_problem_quota(r, error);
    }

    return ngx_http_sandbox_problem_refuse(r,
                                           ngx_http_sandbox_problem_find(e),
                                           &refusal);
}


void
ngx_http_sandbox_printable(u_char *dst, size_t size, const u_char *src,
    size_t len)
{
    size_t  i;

    len = ngx_min(len, size - 1);

    for (i = 0; i < len; i++) {
        dst[i] = (src[i] < 0x20 || src[i] == 0x7f) ? '?' : src[i];
    }

    dst[len] = '\0';
}


static ngx_http_sandbox_error_e
ngx_http_sandbox_problem_map(ngx_http_request_t *r, uint32_t code,
    ngx_err_t err, const char *text)
{
    u_char                    clean[sizeof(((sbx_f_error_t *) 0)->text)];
    ngx_uint_t                i;
    ngx_http_sandbox_error_e  e;

    for (i = 0; ngx_http_sandbox_core_errors[i].code != SBX_OK; i++) {
        if (ngx_http_sandbox_core_errors[i].code == code) {
            break;
        }
    }

    e = ngx_http_sandbox_core_errors[i].error;

    if (e == NGX_HTTP_SANDBOX_INTERNAL
        || e == NGX_HTTP_SANDBOX_BROKER_UNAVAILABLE)
    {
        ngx_http_sandbox_printable(clean, sizeof(clean), (u_char *) text,
                                   ngx_strlen(text));
        ngx_log_error(NGX_LOG_ERR, r->connection->log, err, "sandbox: %s",
                      clean);
    }

    return e;
}


/* Fills in what the table has, and answers in the form of the API. */

static ngx_int_t
ngx_http_sandbox_problem_refuse(ngx_http_request_t *r,
    const ngx_http_sandbox_problem_t *problem,
    ngx_http_sandbox_refusal_t *refusal)
{
    ngx_http_sandbox_ctx_t  *ctx;

    refusal->error = problem->error;
    refusal->status = problem->status;
    refusal->code = problem->code;
    refusal->word = problem->word;
    refusal->title = problem->title;

    /* what is away for the moment is worth another try, whoever tells */

    if (refusal->error == NGX_HTTP_SANDBOX_BROKER_UNAVAILABLE) {
        refusal->retry_after = ngx_max(refusal->retry_after, 1);
    }

    if (refusal->detail.len == 0) {
        refusal->detail.data = (u_char *) problem->detail;
        refusal->detail.len = ngx_strlen(problem->detail);
    }

    if (refusal->suggestion.len == 0
        && refusal->error == NGX_HTTP_SANDBOX_BROKER_UNAVAILABLE
        && refusal->retry_after > 1)
    {
        ngx_str_set(&refusal->suggestion,
                    "Try again in as many seconds as Retry-After says.");
    }

    if (refusal->suggestion.len == 0) {
        refusal->suggestion.data = (u_char *) problem->suggestion;
        refusal->suggestion.len = ngx_strlen(problem->suggestion);
    }

    ctx = ngx_http_sandbox_ctx(r);

    if (ctx != NULL) {
        ctx->error = problem->code;

        if (ctx->refuse != NULL) {
            return ctx->refuse(r, refusal);
        }
    }

    return ngx_http_sandbox_problem_send(r, refusal);
}


static ngx_int_t
ngx_http_sandbox_problem_send(ngx_http_request_t *r,
    const ngx_http_sandbox_refusal_t *refusal)
{
    ngx_int_t                rc;
    ngx_http_sandbox_json_t  j;

    if (r->header_sent) {
        return NGX_ERROR;
    }

    rc = ngx_http_sandbox_problem_prepare(r, refusal->retry_after);

    if (rc != NGX_OK) {
        return rc;
    }

    ngx_http_sandbox_json_init(&j, r->pool);

    ngx_http_sandbox_json_raw(&j, "{\"status\":");
    ngx_http_sandbox_json_int(&j, (int64_t) refusal->status);
    ngx_http_sandbox_json_raw(&j, ",\"title\":");
    ngx_http_sandbox_json_cstring(&j, refusal->title);
    ngx_http_sandbox_json_raw(&j, ",\"error\":");
    ngx_http_sandbox_json_cstring(&j, refusal->word);
    ngx_http_sandbox_json_raw(&j, ",\"code\":");
    ngx_http_sandbox_json_cstring(&j, refusal->code);
    ngx_http_sandbox_json_raw(&j, ",\"detail\":");
    ngx_http_sandbox_json_string(&j, refusal->detail.data,
                                 refusal->detail.len);
    ngx_http_sandbox_json_raw(&j, ",\"suggestion\":");
    ngx_http_sandbox_json_string(&j, refusal->suggestion.data,
                                 refusal->suggestion.len);

    if (refusal->core != NULL) {
        ngx_http_sandbox_problem_more(&j, refusal);
    }

    if (refusal->members != NULL) {
        ngx_http_sandbox_json_join(&j, refusal->members);
    }

    ngx_http_sandbox_json_raw(&j, "}");

    return ngx_http_sandbox_json_send_as(r, refusal->status,
                                         "application/problem+json", &j);
}


/* What only some errors of the core tell. */

static void
ngx_http_sandbox_problem_more(ngx_http_sandbox_json_t *j,
    const ngx_http_sandbox_refusal_t *refusal)
{
    char                  limit[32];
    const sbx_f_error_t  *error;

    static const ngx_uint_t  words =
        sizeof(ngx_http_sandbox_ended_words) / sizeof(char *);

    error = refusal->core;

    switch (refusal->error) {

    case NGX_HTTP_SANDBOX_QUOTA_EXCEEDED:
        ngx_http_sandbox_json_raw(j, ",\"scope\":");
        ngx_http_sandbox_json_string(j, error->scope,
                            strnlen(error->scope, sizeof(error->scope)));
        ngx_http_sandbox_json_raw(j, ",\"resource\":");
        ngx_http_sandbox_json_string(j, error->resource,
                            strnlen(error->resource,
                                    sizeof(error->resource)));
        ngx_http_sandbox_json_raw(j, ",\"limit\":");
        ngx_http_sandbox_json_raw_len(j, limit,
            sbx_limit_print(ngx_http_sandbox_problem_row(error),
                            error->limit, limit));
        break;

    case NGX_HTTP_SANDBOX_OFFSET_GONE:
        ngx_http_sandbox_json_raw(j, ",\"stdout_oldest\":");
        ngx_http_sandbox_json_int(j, (int64_t) error->oldest[0]);
        ngx_http_sandbox_json_raw(j, ",\"stderr_oldest\":");
        ngx_http_sandbox_json_int(j, (int64_t) error->oldest[1]);
        break;

    case NGX_HTTP_SANDBOX_SESSION_NOT_FOUND:

        if (error->ended != SBX_ENDED_NOT && error->ended < words) {
            ngx_http_sandbox_json_raw(j, ",\"ended\":");
            ngx_http_sandbox_json_cstring(j,
                             ngx_http_sandbox_ended_words[error->ended]);
            ngx_http_sandbox_json_raw(j, ",\"ended_at\":");
            ngx_http_sandbox_json_time(j, error->ended_at);
        }

        break;

    default:
        break;
    }
}


ngx_int_t
ngx_http_sandbox_problem_prepare(ngx_http_request_t *r, uint64_t retry_after)
{
    u_char     *p;
    ngx_int_t   rc;
    ngx_str_t   value;

    rc = ngx_http_sandbox_problem_body(r);

    if (rc != NGX_OK || retry_after == 0) {
        return rc;
    }

    p = ngx_pnalloc(r->pool, NGX_INT64_LEN);

    if (p == NULL) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    value.data = p;
    value.len = ngx_sprintf(p, "%uL", retry_after) - p;

    return (ngx_http_sandbox_add_header(r, "Retry-After", &value) == NGX_OK)
           ? NGX_OK : NGX_HTTP_INTERNAL_SERVER_ERROR;
}


/* What the client still sends, or waits to send, is not the next request. */

static ngx_int_t
ngx_http_sandbox_problem_body(ngx_http_request_t *r)
{
    if (r->reading_body) {
        r->keepalive = 0;
        r->lingering_close = 1;

        return NGX_OK;
    }

    if (r->request_body != NULL) {
        return NGX_OK;
    }

    if (r->headers_in.expect != NULL
        && (r->headers_in.content_length_n > 0 || r->headers_in.chunked))
    {
        /* the refusal takes the place of "100 Continue" */

        r->expect_tested = 1;
        r->keepalive = 0;
        r->lingering_close = 1;

        return NGX_OK;
    }

    return ngx_http_discard_request_body(r);
}
