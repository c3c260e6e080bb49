#include "ngx_http_sandbox_op_network.h"


static int ngx_http_sandbox_op_network_list(const sbx_json_list_t *list,
    char type, const char *at, ngx_http_sandbox_op_network_t *network,
    sbx_error_t *e);
static int ngx_http_sandbox_op_network_add(
    ngx_http_sandbox_op_network_t *network, char type, const char *text,
    size_t len);


int
ngx_http_sandbox_op_network(ngx_pool_t *pool, const sbx_json_network_t *asked,
    ngx_uint_t first, const char *at, ngx_http_sandbox_op_network_t *network,
    sbx_error_t *e)
{
    size_t  n;

    ngx_memzero(network, sizeof(ngx_http_sandbox_op_network_t));
    network->mode = asked->mode;

    if (asked->mode != SBX_NETWORK_LISTS) {
        return 0;
    }

    n = asked->allow.nelts + asked->deny.nelts;

    if (asked->allow.nelts == 0 && asked->allow_seen) {
        network->mode = SBX_NETWORK_NONE;

    } else if (n == 0) {
        network->mode = SBX_NETWORK_ALL;
    }

    if (n == 0) {
        return 0;
    }

    if (n > SBX_NETWORK_RULES_MAX) {
        return sbx_error(e, 0, SBX_E_INVALID,
                         "%s: has %zu rules, more than the %d that fit", at,
                         n, SBX_NETWORK_RULES_MAX);
    }

    network->rules = ngx_pnalloc(pool, SBX_NETWORK_SIZE);

    if (network->rules == NULL) {
        return sbx_error(e, 0, SBX_E_INTERNAL, "out of memory");
    }

    if (first) {
        (void) ngx_http_sandbox_op_network_add(network, 'f', "", 0);
    }

    if (ngx_http_sandbox_op_network_list(&asked->allow, 'a', at, network, e)
        != 0
        || ngx_http_sandbox_op_network_list(&asked->deny, 'd', at, network,
                                            e)
           != 0)
    {
        return -1;
    }

    if (network->mode == SBX_NETWORK_NONE) {
        network->size = 0;
        return 0;
    }

    /* once more and as a whole, as the broker will */

    return sbx_network_check(network->rules, network->size, e);
}


static int
ngx_http_sandbox_op_network_list(const sbx_json_list_t *list, char type,
    const char *at, ngx_http_sandbox_op_network_t *network, sbx_error_t *e)
{
    char                 text[SBX_NETWORK_TEXT_MAX];
    size_t               i, len;
    sbx_error_t          inner;
    sbx_network_rule_t   rule;

    for (i = 0; i < list->nelts; i++) {
        if (sbx_network_rule_parse(list->elts[i].data, list->elts[i].len,
                                   &rule, &inner)
            != 0)
        {
            return sbx_error(e, 0, SBX_E_INVALID, "%s/%s/%zu: %s", at,
                             type == 'a' ? "allow" : "deny", i, inner.text);
        }

        len = sbx_network_rule_print(&rule, text);

        if (ngx_http_sandbox_op_network_add(network, type, text, len) != 0) {
            return sbx_error(e, 0, SBX_E_INVALID,
                             "%s: takes more than %d bytes", at,
                             SBX_NETWORK_SIZE);
        }
    }

    return 0;
}


static int
ngx_http_sandbox_op_network_add(ngx_http_sandbox_op_network_t *network,
    char type, const char *text, size_t len)
{
    u_char  *p;

    if (len + 2 > SBX_NETWORK_SIZE - network->size) {
        return -1;
    }

    p = network->rules + network->size;
    *p++ = (u_char) type;
    p = ngx_cpymem(p, text, len);
    *p = '\0';

    network->size += (uint32_t) len + 2;

    return 0;
}


void
ngx_http_sandbox_op_network_json(ngx_http_sandbox_json_t *j,
    const u_char *rules, size_t size)
{
    char         type;
    size_t       at, n, k;
    const char  *text;

    static const struct {
        char         type;
        const char  *name;
    } lists[] = {
        { 'a', "{\"allow\":[" },
        { 'd', "],\"deny\":[" }
    };

    for (k = 0; k < 2; k++) {
        ngx_http_sandbox_json_raw(j, lists[k].name);
        at = 0;
        n = 0;

        while (sbx_network_next(rules, size, &at, &type, &text, NULL) == 1) {
            if (type == lists[k].type) {
                ngx_http_sandbox_json_raw(j, n++ ? "," : "");
                ngx_http_sandbox_json_cstring(j, text);
            }
        }
    }

    ngx_http_sandbox_json_raw(j, "]}");
}
