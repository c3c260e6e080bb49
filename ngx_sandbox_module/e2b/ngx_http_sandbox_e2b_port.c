/*
 * Refusals of a sandbox's ports, as a proxy in front of it has them: JSON with
 * the sandbox's id, or a page for a browser.
 */

#include "ngx_http_sandbox_e2b.h"


static ngx_uint_t ngx_http_sandbox_e2b_browser(ngx_http_request_t *r);
static ngx_int_t ngx_http_sandbox_e2b_page(ngx_http_request_t *r,
    ngx_uint_t status, const char *title, const char *message);
static ngx_int_t ngx_http_sandbox_e2b_port_send(ngx_http_request_t *r,
    ngx_uint_t status, const u_char *message, size_t len, ngx_int_t port);


ngx_int_t
ngx_http_sandbox_e2b_refuse_gone(ngx_http_request_t *r,
    const ngx_http_sandbox_refusal_t *refusal)
{
    ngx_int_t    rc;
    const char  *message;

    message = (refusal->error == NGX_HTTP_SANDBOX_SESSION_PAUSED)
              ? "The sandbox is paused" : "The sandbox was not found";

    rc = ngx_http_sandbox_problem_prepare(r, 0);

    if (rc != NGX_OK) {
        return rc;
    }

    if (ngx_http_sandbox_e2b_browser(r)) {
        return ngx_http_sandbox_e2b_page(r, NGX_HTTP_BAD_GATEWAY,
                                         "Sandbox Not Found", message);
    }

    return ngx_http_sandbox_e2b_port_send(r, NGX_HTTP_BAD_GATEWAY,
                                          (u_char *) message,
                                          ngx_strlen(message), 0);
}


ngx_int_t
ngx_http_sandbox_e2b_refuse_port(ngx_http_request_t *r,
    const ngx_http_sandbox_refusal_t *refusal)
{
    ngx_int_t                rc, port;
    ngx_str_t                message;
    ngx_uint_t               status;
    ngx_http_sandbox_ctx_t  *ctx;

    if (r->header_sent) {
        return NGX_ERROR;
    }

    if (refusal->error == NGX_HTTP_SANDBOX_SESSION_NOT_FOUND
        || refusal->error == NGX_HTTP_SANDBOX_SESSION_PAUSED)
    {
        return ngx_http_sandbox_e2b_refuse_gone(r, refusal);
    }

    rc = ngx_http_sandbox_problem_prepare(r, refusal->retry_after);

    if (rc != NGX_OK) {
        return rc;
    }

    port = 0;
    status = refusal->status;
    message = refusal->detail;

    if (refusal->error == NGX_HTTP_SANDBOX_BAD_GATEWAY) {
        ngx_str_set(&message, "The sandbox is running but port is not open");

        ctx = ngx_http_sandbox_ctx(r);
        port = ngx_atoi(ctx->item.data, ctx->item.len);

        if (ngx_http_sandbox_e2b_browser(r)) {
            return ngx_http_sandbox_e2b_page(r, status, "Closed Port Error",
                                             (char *) message.data);
        }

    } else if (refusal->error == NGX_HTTP_SANDBOX_UNAUTHENTICATED) {
        status = NGX_HTTP_FORBIDDEN;
        ngx_str_set(&message, "the ports of this sandbox ask for "
                              "e2b-traffic-access-token");
    }

    return ngx_http_sandbox_e2b_port_send(r, status, message.data,
                                          message.len, port);
}


static ngx_int_t
ngx_http_sandbox_e2b_port_send(ngx_http_request_t *r, ngx_uint_t status,
    const u_char *message, size_t len, ngx_int_t port)
{
    ngx_http_sandbox_e2b_t  *e2b;
    ngx_http_sandbox_json_t  j;

    e2b = ngx_http_sandbox_e2b(ngx_http_sandbox_ctx(r));

    ngx_http_sandbox_json_init(&j, r->pool);
    ngx_http_sandbox_json_raw(&j, "{\"sandboxId\":");
    ngx_http_sandbox_json_string(&j, e2b->id.data, e2b->id.len);
    ngx_http_sandbox_json_raw(&j, ",\"message\":");
    ngx_http_sandbox_json_string(&j, message, len);

    if (port > 0) {
        ngx_http_sandbox_json_raw(&j, ",\"port\":");
        ngx_http_sandbox_json_int(&j, port);
    }

    ngx_http_sandbox_json_raw(&j, ",\"code\":");
    ngx_http_sandbox_json_int(&j, (int64_t) status);
    ngx_http_sandbox_json_raw(&j, "}");

    return ngx_http_sandbox_json_send(r, status, &j);
}


/* A page is for who came by a sandbox's own name: the API has none. */

static ngx_uint_t
ngx_http_sandbox_e2b_browser(ngx_http_request_t *r)
{
    ngx_str_t                agent;
    ngx_http_sandbox_e2b_t  *e2b;

    e2b = ngx_http_sandbox_e2b(ngx_http_sandbox_ctx(r));

    return e2b->by_host
           && e2b->plane == NGX_HTTP_SANDBOX_E2B_PLANE_PORT
           && ngx_http_sandbox_op_header(r, "user-agent", &agent) == NGX_OK
           && agent.len > 8
           && ngx_strncmp(agent.data, "Mozilla/", 8) == 0;
}


/* Title and message are words of ours. */

static ngx_int_t
ngx_http_sandbox_e2b_page(ngx_http_request_t *r, ngx_uint_t status,
    const char *title, const char *message)
{
    ngx_http_sandbox_json_t  j;

    ngx_http_sandbox_json_init(&j, r->pool);
    ngx_http_sandbox_json_raw(&j, "<!DOCTYPE html>\n<html lang=\"en\"><head>"
                                  "<meta charset=\"utf-8\"><title>");
    ngx_http_sandbox_json_raw(&j, title);
    ngx_http_sandbox_json_raw(&j, "</title></head><body><h1>");
    ngx_http_sandbox_json_raw(&j, title);
    ngx_http_sandbox_json_raw(&j, "</h1><p>");
    ngx_http_sandbox_json_raw(&j, message);
    ngx_http_sandbox_json_raw(&j, ".</p></body></html>\n");

    return ngx_http_sandbox_json_send_as(r, status, "text/html", &j);
}
