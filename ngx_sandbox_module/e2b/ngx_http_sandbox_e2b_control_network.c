/*
 * A sandbox's network in the words of this API.  There all is open that
 * nobody closes, and what is allowed is an exception to what is denied; here
 * the most that there is is what the operator grants, which may be nothing.
 */

#include "ngx_http_sandbox_e2b_control.h"


/* Its name for everything. */
#define NGX_HTTP_SANDBOX_E2B_ALL  "0.0.0.0/0"


typedef struct {
    uint32_t                    internet;
    ngx_http_sandbox_e2b_out_t  out;
} ngx_http_sandbox_e2b_update_t;


static ngx_uint_t ngx_http_sandbox_e2b_network_all(
    const sbx_json_list_t *list);
static ngx_int_t ngx_http_sandbox_e2b_network_frame(
    ngx_http_sandbox_call_t *call, const sbx_frame_t *frame,
    const u_char *payload, ngx_fd_t fd);


#define UPDATE(field)  offsetof(ngx_http_sandbox_e2b_update_t, field)

static const sbx_json_field_t  ngx_http_sandbox_e2b_update_fields[] = {

    { .name = "allow_internet_access", .type = SBX_JSON_BOOL, .nullable = 1,
      .offset = UPDATE(internet) },

    { .name = "allowOut", .type = SBX_JSON_STRINGS, .nullable = 1,
      .max = NGX_HTTP_SANDBOX_E2B_OUT, .offset = UPDATE(out.allow) },

    { .name = "denyOut", .type = SBX_JSON_STRINGS, .nullable = 1,
      .max = NGX_HTTP_SANDBOX_E2B_OUT, .offset = UPDATE(out.deny) },

    { .name = "rules", .type = SBX_JSON_ANY, .nullable = 1,
      .offset = UPDATE(out.nothing), .seen = UPDATE(out.rules) },

    { .name = "egressProxy", .type = SBX_JSON_ANY, .nullable = 1,
      .offset = UPDATE(out.nothing), .seen = UPDATE(out.proxy) },

    NGX_HTTP_SANDBOX_E2B_LAX
};


ngx_uint_t
ngx_http_sandbox_e2b_network_asked(const ngx_http_sandbox_e2b_out_t *out,
    ngx_uint_t internet, sbx_json_network_t *network)
{
    ngx_memzero(network, sizeof(sbx_json_network_t));

    if (ngx_http_sandbox_e2b_network_all(&out->allow)) {
        network->mode = SBX_NETWORK_ALL;
        return 0;
    }

    if (!internet || ngx_http_sandbox_e2b_network_all(&out->deny)) {
        network->mode = (out->allow.nelts == 0) ? SBX_NETWORK_NONE
                                                : SBX_NETWORK_LISTS;
        network->allow = out->allow;
        return 0;
    }

    if (out->allow.nelts == 0 && out->deny.nelts == 0) {
        network->mode = SBX_NETWORK_ALL;
        return 0;
    }

    network->mode = SBX_NETWORK_LISTS;
    network->allow = out->allow;
    network->deny = out->deny;

    return 1;
}


static ngx_uint_t
ngx_http_sandbox_e2b_network_all(const sbx_json_list_t *list)
{
    size_t  i, len;

    len = sizeof(NGX_HTTP_SANDBOX_E2B_ALL) - 1;

    for (i = 0; i < list->nelts; i++) {
        if (list->elts[i].len == len
            && ngx_memcmp(list->elts[i].data, NGX_HTTP_SANDBOX_E2B_ALL, len)
               == 0)
        {
            return 1;
        }
    }

    return 0;
}


/* What was granted, whatever was asked for. */

void
ngx_http_sandbox_e2b_network_json(ngx_http_sandbox_json_t *j,
    const ngx_http_sandbox_op_session_t *s)
{
    char         type;
    size_t       at, k, n[2];
    ngx_uint_t   all;
    const char  *text;

    static const struct {
        char         type;
        const char  *name;
    } lists[] = {
        { 'a', "\"allowOut\":[" },
        { 'd', "],\"denyOut\":[" }
    };

    ngx_http_sandbox_json_raw(j, ",\"allowInternetAccess\":");
    ngx_http_sandbox_json_bool(j, s->session.network != SBX_NETWORK_NONE);
    ngx_http_sandbox_json_raw(j, ",\"network\":{");

    /* the answer to a create, say, comes without them */

    if (s->session.network == SBX_NETWORK_LISTS && s->rules_len == 0) {
        return;
    }

    /* a list that is no exception to another is all that there is */

    all = (s->rules_len == 0 || s->rules[0] != 'f');

    for (k = 0; k < 2; k++) {
        ngx_http_sandbox_json_raw(j, lists[k].name);
        at = 0;
        n[k] = 0;

        while (sbx_network_next(s->rules, s->rules_len, &at, &type, &text,
                                NULL)
               == 1)
        {
            if (type == lists[k].type) {
                ngx_http_sandbox_json_raw(j, n[k]++ ? "," : "");
                ngx_http_sandbox_json_cstring(j, text);
            }
        }
    }

    if (s->session.network == SBX_NETWORK_NONE || (all && n[0] != 0)) {
        ngx_http_sandbox_json_raw(j, n[1] ? "," : "");
        ngx_http_sandbox_json_cstring(j, NGX_HTTP_SANDBOX_E2B_ALL);
    }

    ngx_http_sandbox_json_raw(j, "],");
}


/* What is left out is cleared, as if nobody had ever asked for it. */

ngx_int_t
ngx_http_sandbox_e2b_network(ngx_http_request_t *r)
{
    ngx_fd_t                        blob;
    ngx_uint_t                      first;
    sbx_error_t                     e;
    sbx_patch_t                     patch;
    sbx_json_network_t              asked;
    ngx_http_sandbox_call_t        *call;
    ngx_http_sandbox_main_conf_t   *smcf;
    ngx_http_sandbox_e2b_update_t   body;
    ngx_http_sandbox_op_network_t   network;
    ngx_http_sandbox_op_session_t  *session;

    ngx_memzero(&body, sizeof(body));
    ngx_memzero(&patch, sizeof(patch));
    body.internet = 1;
    blob = NGX_INVALID_FILE;

    if (ngx_http_sandbox_op_bind(r, ngx_http_sandbox_e2b_update_fields, &body,
                                 &e)
        != 0
        || ngx_http_sandbox_e2b_network_refuse(&body.out, "", &e) != 0)
    {
        return ngx_http_sandbox_e2b_fault(r, &e);
    }

    first = ngx_http_sandbox_e2b_network_asked(&body.out, body.internet,
                                               &asked);

    if (ngx_http_sandbox_op_network(r->pool, &asked, first, "/network",
                                    &network, &e)
        != 0)
    {
        return ngx_http_sandbox_e2b_fault(r, &e);
    }

    smcf = ngx_http_get_module_main_conf(r, ngx_http_sandbox_module);

    if (asked.allow.nelts == 0 && smcf->config->egress_size == 0) {
        ngx_memzero(&network, sizeof(network));
    }

    if (ngx_http_sandbox_op_patch_blob(r, NULL, &network, &patch, &blob, &e)
        != 0)
    {
        return ngx_http_sandbox_e2b_fault(r, &e);
    }

    session = ngx_pcalloc(r->pool, sizeof(ngx_http_sandbox_op_session_t));
    call = ngx_http_sandbox_op_call(r, SBX_OP_PATCH, &patch, sizeof(patch),
                                    blob, session);

    if (session == NULL || call == NULL) {
        return ngx_http_sandbox_problem(r, NGX_HTTP_SANDBOX_INTERNAL, NULL);
    }

    call->frame = ngx_http_sandbox_e2b_network_frame;

    return ngx_http_sandbox_op_start(r, call);
}


int
ngx_http_sandbox_e2b_network_refuse(const ngx_http_sandbox_e2b_out_t *out,
    const char *in, sbx_error_t *e)
{
    ngx_uint_t  i;

    const struct {
        ngx_uint_t   asked;
        const char  *name;
        const char  *why;
    } table[] = {
        { out->mask, "maskRequestHost", "there is no such thing on this "
          "server" },
        { out->rules, "rules", "sandboxes' requests are changed by this "
          "server's operator alone" },
        { out->proxy, "egressProxy", "sandboxes have no proxy of their own "
          "on this server" }
    };

    for (i = 0; i < sizeof(table) / sizeof(table[0]); i++) {
        if (table[i].asked) {
            return sbx_error(e, 0, SBX_E_INVALID, "%s%s: %s; leave it out",
                             in, table[i].name, table[i].why);
        }
    }

    return 0;
}


static ngx_int_t
ngx_http_sandbox_e2b_network_frame(ngx_http_sandbox_call_t *call,
    const sbx_frame_t *frame, const u_char *payload, ngx_fd_t fd)
{
    ngx_int_t            rc;
    ngx_http_request_t  *r;

    rc = ngx_http_sandbox_op_session_part(call, frame, payload, fd);

    if (rc != NGX_DECLINED) {
        return rc;
    }

    r = call->request;

    if (ngx_http_sandbox_op_session_note(r, call->data) != NGX_OK) {
        return ngx_http_sandbox_op_broken(call, "more than memory holds");
    }

    return ngx_http_sandbox_op_finish(call,
                                      ngx_http_sandbox_op_no_content(r));
}
