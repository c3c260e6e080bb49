/*
 * The manifest's "filesystem" as the records that the broker takes.
 */

#include "ngx_http_sandbox_op_rules.h"

#include "sandbox_rules.h"
#include "sandbox_util.h"


static int ngx_http_sandbox_op_rules_add(sbx_rule_kind_t kind,
    const char *list, size_t index, const sbx_json_str_t *text, u_char *out,
    size_t *size, sbx_error_t *e);


#define PATHS(list)                                                           \
    { .name = #list, .type = SBX_JSON_STRINGS, .max = SBX_RULES_KIND_MAX,     \
      .offset = offsetof(ngx_http_sandbox_op_filesystem_t, list) }

const sbx_json_field_t  ngx_http_sandbox_op_filesystem_fields[] = {
    PATHS(binds),
    PATHS(writable),
    PATHS(deny_write),
    PATHS(deny_read),
    { .name = NULL }
};


int
ngx_http_sandbox_op_rules(ngx_http_request_t *r,
    const ngx_http_sandbox_op_filesystem_t *filesystem, u_char **rules,
    size_t *size, sbx_error_t *e)
{
    u_char      *out;
    size_t       i, k, n;

    const struct {
        sbx_rule_kind_t         kind;
        const char             *name;
        const sbx_json_list_t  *list;
    } lists[] = {
        { SBX_RULE_BIND, "binds", &filesystem->binds },
        { SBX_RULE_WRITABLE, "writable", &filesystem->writable },
        { SBX_RULE_DENY_WRITE, "deny_write", &filesystem->deny_write },
        { SBX_RULE_DENY_READ, "deny_read", &filesystem->deny_read }
    };

    *rules = NULL;
    *size = 0;
    n = 0;

    for (k = 0; k < sbx_nelts(lists); k++) {
        n += lists[k].list->nelts;
    }

    if (n == 0) {
        return 0;
    }

    out = ngx_pnalloc(r->pool, SBX_RULES_MAX);

    if (out == NULL) {
        return sbx_error(e, 0, SBX_E_INTERNAL, "out of memory");
    }

    *rules = out;

    for (k = 0; k < sbx_nelts(lists); k++) {
        for (i = 0; i < lists[k].list->nelts; i++) {
            if (ngx_http_sandbox_op_rules_add(lists[k].kind, lists[k].name,
                                              i, &lists[k].list->elts[i],
                                              out, size, e)
                != 0)
            {
                return -1;
            }
        }
    }

    /* once more and as a whole, as the broker will */

    return sbx_rules_check(out, *size, e);
}


static int
ngx_http_sandbox_op_rules_add(sbx_rule_kind_t kind, const char *list,
    size_t index, const sbx_json_str_t *text, u_char *out, size_t *size,
    sbx_error_t *e)
{
    char         path[SBX_PATH_MAX];
    size_t       len;
    const char  *why, *data;

    data = text->data;
    len = text->len;
    why = NULL;

    if (kind == SBX_RULE_BIND) {
        if (!sbx_bind_name_ok(data, len)) {
            why = SBX_BIND_REFUSED;
        }

    } else {
        why = sbx_rule_path(data, len, path);
        data = path;
        len = (why == NULL) ? ngx_strlen(path) : 0;
    }

    if (why != NULL) {
        return sbx_error(e, 0, SBX_E_MANIFEST, "/manifest/filesystem/%s/%zu: "
                         "%s", list, index, why);
    }

    if (len + 2 > SBX_RULES_MAX - *size) {
        return sbx_error(e, 0, SBX_E_MANIFEST,
                         "/manifest/filesystem: takes more than %d bytes",
                         SBX_RULES_MAX);
    }

    out[(*size)++] = (u_char) kind;
    ngx_memcpy(out + *size, data, len);
    *size += len;
    out[(*size)++] = '\0';

    return 0;
}
