/*
 * Files of the configuration: keys, and a template's manifest.  The first
 * byte chooses.  What is taken is what can be asked for; what is not is said
 * in a line of the log.
 */

#include "worker.h"

#include "../../ngx_sandbox_module/ngx_http_sandbox_keys.c"
#include "../../ngx_sandbox_module/ngx_http_sandbox_template.c"


static void check_keys(ngx_conf_t *cf, u_char *p, size_t n);
static void check_template(ngx_conf_t *cf, u_char *p, size_t n);


int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    u_char      *copy;
    ngx_conf_t   cf;

    if (size == 0) {
        return 0;
    }

    copy = malloc(size);
    must(copy != NULL);
    memcpy(copy, data + 1, size - 1);
    cf = *worker_conf();
    cf.pool = ngx_create_pool(1024, cf.log);
    must(cf.pool != NULL);
    (void) worker_logged();

    if (data[0] & 1) {
        check_template(&cf, copy, size - 1);

    } else {
        check_keys(&cf, copy, size - 1);
    }

    ngx_destroy_pool(cf.pool);
    free(copy);

    return 0;
}


static void
check_keys(ngx_conf_t *cf, u_char *p, size_t n)
{
    ngx_str_t                 text, none;
    ngx_uint_t                i;
    ngx_http_sandbox_keys_t   keys;
    ngx_http_sandbox_key_t   *k;

    ngx_memzero(&keys, sizeof(keys));
    ngx_str_set(&keys.file, "keys");
    text.data = p;
    text.len = n;

    if (ngx_http_sandbox_keys_parse(cf, &keys, &text) != NGX_OK
        || ngx_http_sandbox_keys_sort(cf, &keys) != NGX_OK)
    {
        must(worker_logged() & (1 << NGX_LOG_EMERG));
        return;
    }

    must(keys.nelts <= n / NGX_HTTP_SANDBOX_KEY_HEX);

    for (i = 0; i < keys.nelts; i++) {
        k = &keys.elts[i];
        must(sbx_name_ok((char *) k->tenant.data, k->tenant.len));
        must(sbx_name_ok((char *) k->user.data, k->user.len));
        must(i == 0 || memcmp(keys.elts[i - 1].digest, k->digest,
                              sizeof(k->digest)) < 0);
    }

    /* one that is in no file that the fuzzer writes */

    ngx_str_set(&none, "a key of nobody");
    must(ngx_http_sandbox_keys_find(&keys, &none) == NULL);
}


static void
check_template(ngx_conf_t *cf, u_char *p, size_t n)
{
    size_t                        i;
    u_char                       *c;
    ngx_str_t                     text;
    sbx_error_t                   e;
    sbx_json_map_t                env;
    sbx_limits_t                  limits;
    ngx_http_sandbox_template_t   t;
    ngx_http_sandbox_main_conf_t *smcf;

    smcf = ngx_http_conf_get_module_main_conf(cf, ngx_http_sandbox_module);
    ngx_memzero(&t, sizeof(t));
    ngx_str_set(&t.name, "fuzz");
    ngx_str_set(&t.file, "template.json");
    text.data = p;
    text.len = n;

    if (ngx_http_sandbox_template_bind(cf, &t, &text, &e) != NGX_OK) {
        must(e.text[0] != '\0'
             && memchr(e.text, '\0', sizeof(e.text)) != NULL);
        return;
    }

    must(t.description.len <= NGX_HTTP_SANDBOX_TEMPLATE_TEXT);
    must((t.capabilities & ~(uint32_t) (SBX_CAP_SHELL|SBX_CAP_FILES
                                        |SBX_CAP_CODE|SBX_CAP_PORTS)) == 0);

    /* names, each with its NUL */

    for (c = t.preload.data, i = 0; i < t.preload.len; i++) {
        must(c[i] != '\0' || (i != 0 && c[i - 1] != '\0'));
    }

    must(t.preload.len == 0 || c[t.preload.len - 1] == '\0');

    if (ngx_http_sandbox_template_check(cf, smcf, &t) != NGX_OK) {
        must(worker_logged() & (1 << NGX_LOG_EMERG));
        return;
    }

    /* a caller who asks for nothing gets it, and it is within bounds */

    sbx_limits_clear(&limits);
    ngx_http_sandbox_template_limits(&t, &limits);
    must(sbx_limits_settle(&limits, &smcf->def, &smcf->max, &e) == 0);
    ngx_memzero(&env, sizeof(env));
    must(ngx_http_sandbox_template_merge(cf->pool, &t, &env) == NGX_OK);
    must(env.nelts == t.env.nelts);
}
