/*
 * The plane of sandboxes: its routes, and what is wrong in its own names.
 */

#include "ngx_http_sandbox_e2b_control.h"


#define ANY_METHOD                                                            \
    (NGX_HTTP_GET|NGX_HTTP_POST|NGX_HTTP_PUT|NGX_HTTP_PATCH|NGX_HTTP_DELETE)

#define LOOK(path, op, handler)                                               \
    { NGX_HTTP_GET, path, NGX_HTTP_SANDBOX_BODY_NONE, 0, op,                  \
      ngx_http_sandbox_e2b_ ## handler, 0 }
#define TELL(method, path, op, handler)                                       \
    { method, path, NGX_HTTP_SANDBOX_BODY_JSON, 0, op,                        \
      ngx_http_sandbox_e2b_ ## handler, 0 }
#define NO(path, handler)                                                     \
    { ANY_METHOD, path, NGX_HTTP_SANDBOX_BODY_NONE, 0, "not_implemented",     \
      ngx_http_sandbox_e2b_no_ ## handler, 0 }

/* The first of two that fit is the one. */

ngx_http_sandbox_route_t  ngx_http_sandbox_e2b_control_routes[] = {

    TELL(NGX_HTTP_POST, "v2/sandboxes", "create", create),
    TELL(NGX_HTTP_POST, "sandboxes", "create", create_old),

    LOOK("v2/sandboxes", "list", list),
    LOOK("sandboxes", "list", list_old),

    LOOK("sandboxes/metrics", "sandbox_metrics", metrics_many),

    LOOK("sandboxes/{id}", "get", get),

    { NGX_HTTP_DELETE, "sandboxes/{id}",
      NGX_HTTP_SANDBOX_BODY_NONE, 0, "destroy",
      ngx_http_sandbox_e2b_kill, 0 },

    TELL(NGX_HTTP_POST, "sandboxes/{id}/timeout", "patch", set_timeout),
    TELL(NGX_HTTP_POST, "sandboxes/{id}/refreshes", "patch", refresh),
    TELL(NGX_HTTP_POST, "sandboxes/{id}/pause", "pause", pause),
    TELL(NGX_HTTP_POST, "sandboxes/{id}/resume", "resume", resume),
    TELL(NGX_HTTP_POST, "sandboxes/{id}/connect", "resume", reconnect),
    TELL(NGX_HTTP_POST, "v2/sandboxes/{id}/connect", "resume", reconnect),
    TELL(NGX_HTTP_PUT, "sandboxes/{id}/network", "network", network),

    LOOK("sandboxes/{id}/metrics", "sandbox_metrics", metrics),
    LOOK("sandboxes/{id}/logs", "logs", logs_old),
    LOOK("v2/sandboxes/{id}/logs", "logs", logs),

    LOOK("templates", "templates", templates),
    LOOK("v2/templates", "templates", templates),
    LOOK("templates/aliases/{alias}", "templates", alias),

    { NGX_HTTP_DELETE, "templates/{template}",
      NGX_HTTP_SANDBOX_BODY_NONE, 0, "template_delete",
      ngx_http_sandbox_e2b_template_delete, 0 },

    LOOK("health", "health", control_health),

    /* what there is in the protocol, and not here */

    NO("sandboxes/{id}/fork", snapshots),
    NO("sandboxes/{id}/snapshots", snapshots),
    NO("snapshots", snapshots),
    NO("volumes", volumes),
    NO("volumes/{path}", volumes),
    NO("volumecontent/{path}", volumes),
    NO("secrets", secrets),
    NO("secrets/{path}", secrets),
    NO("templates", builds),
    NO("templates/{path}", builds),
    NO("v2/templates", builds),
    NO("v2/templates/{path}", builds),
    NO("v3/templates", builds),
    NO("v3/templates/{path}", builds),

    { 0, NULL, NGX_HTTP_SANDBOX_BODY_NONE, 0, NULL, NULL, 0 }
};


/* How the core calls what this API has other names for. */

static const struct {
    const char  *core;
    const char  *name;
} ngx_http_sandbox_e2b_words[] = {
    { "/manifest/on_timeout", "autoPause" },
    { "/manifest/network/allow", "network.allowOut" },
    { "/manifest/network/deny", "network.denyOut" },
    { "/manifest/network", "network" },
    { "/network/allow", "allowOut" },
    { "/network/deny", "denyOut" },
    { "/manifest/capabilities", "templateID" },
    { "/env/", "envVars." },
    { "/env", "envVars" },
    { "/metadata/", "metadata." },
    { "/", "" },
    { "timeout_s ", "timeout " },
    { NULL, NULL }
};


size_t
ngx_http_sandbox_e2b_names(u_char *dst, size_t size, const ngx_str_t *text)
{
    size_t       n;
    u_char      *p, *last;
    ngx_uint_t   i;
    const char  *core;

    last = dst + size;

    for (i = 0; ngx_http_sandbox_e2b_words[i].core != NULL; i++) {
        core = ngx_http_sandbox_e2b_words[i].core;
        n = ngx_strlen(core);

        if (text->len >= n && ngx_memcmp(text->data, core, n) == 0) {
            p = ngx_slprintf(dst, last, "%s%*s",
                             ngx_http_sandbox_e2b_words[i].name,
                             text->len - n, text->data + n);
            return p - dst;
        }
    }

    return ngx_slprintf(dst, last, "%V", text) - dst;
}


ngx_int_t
ngx_http_sandbox_e2b_fault(ngx_http_request_t *r, sbx_error_t *e)
{
    static const char  timeout[] = "/timeout: must be an integer";

    if (e->code == SBX_E_INVALID
        && ngx_strncmp(e->text, timeout, sizeof(timeout) - 1) == 0)
    {
        return ngx_http_sandbox_problem(r, NGX_HTTP_SANDBOX_INVALID_REQUEST,
                                        "Timeout must be greater than 0, and "
                                        "a whole number of seconds");
    }

    return ngx_http_sandbox_problem_core(r, e);
}


int
ngx_http_sandbox_e2b_seconds(ngx_http_request_t *r, const char *name,
    uint64_t seconds, uint64_t *ms, sbx_error_t *e)
{
    ngx_http_sandbox_main_conf_t  *smcf;

    smcf = ngx_http_get_module_main_conf(r, ngx_http_sandbox_module);

    if (seconds > smcf->max.timeout / 1000) {
        return sbx_error(e, 0, SBX_E_INVALID,
                         "%s asks for %llu seconds, but the most that is "
                         "allowed is %llu", name,
                         (unsigned long long) seconds,
                         (unsigned long long) smcf->max.timeout / 1000);
    }

    *ms = (seconds == 0) ? 1 : seconds * 1000;

    return 0;
}


ngx_int_t
ngx_http_sandbox_e2b_control_health(ngx_http_request_t *r)
{
    ngx_http_sandbox_json_t  j;

    /* of this server; whether sandboxes can be made /v1/health tells */

    ngx_http_sandbox_json_init(&j, r->pool);
    ngx_http_sandbox_json_raw(&j, "Health check successful");

    return ngx_http_sandbox_json_send_as(r, NGX_HTTP_OK, "text/plain", &j);
}
