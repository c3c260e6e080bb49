/*
 * Templates, and what this server has not.
 */

#include "ngx_http_sandbox_e2b_control.h"


static const char *const  ngx_http_sandbox_e2b_builtin[] = {
    "base", "code-interpreter-v1", NULL
};


static ngx_uint_t
ngx_http_sandbox_e2b_is_builtin(const u_char *name, size_t len)
{
    ngx_uint_t  i;

    for (i = 0; ngx_http_sandbox_e2b_builtin[i] != NULL; i++) {
        if (ngx_strlen(ngx_http_sandbox_e2b_builtin[i]) == len
            && ngx_memcmp(ngx_http_sandbox_e2b_builtin[i], name, len) == 0)
        {
            return 1;
        }
    }

    return 0;
}


static void
ngx_http_sandbox_e2b_template_json(ngx_http_request_t *r,
    ngx_http_sandbox_json_t *j, const u_char *name, size_t len)
{
    sbx_limits_t                   limits;
    ngx_http_sandbox_template_t   *template;
    ngx_http_sandbox_main_conf_t  *smcf;

    smcf = ngx_http_get_module_main_conf(r, ngx_http_sandbox_module);
    template = ngx_http_sandbox_template_of(smcf, name, len);

    sbx_limits_clear(&limits);

    if (template != NULL) {
        ngx_http_sandbox_template_limits(template, &limits);
    }

    if (limits.memory == SBX_UNSET) {
        limits.memory = smcf->def.memory;
    }

    if (limits.cpus == SBX_UNSET) {
        limits.cpus = smcf->def.cpus;
    }

    if (limits.disk == SBX_UNSET) {
        limits.disk = smcf->def.disk;
    }

    ngx_http_sandbox_json_raw(j, "{\"templateID\":");
    ngx_http_sandbox_json_string(j, name, len);
    ngx_http_sandbox_json_raw(j, ",\"buildID\":");
    ngx_http_sandbox_json_string(j, name, len);
    ngx_http_sandbox_json_raw(j, ",\"names\":[");
    ngx_http_sandbox_json_string(j, name, len);
    ngx_http_sandbox_json_raw(j, "],\"aliases\":[");
    ngx_http_sandbox_json_string(j, name, len);
    ngx_http_sandbox_json_raw(j, "],\"public\":true,\"cpuCount\":");
    ngx_http_sandbox_json_int(j, ngx_http_sandbox_e2b_cpus(&limits));
    ngx_http_sandbox_json_raw(j, ",\"memoryMB\":");
    ngx_http_sandbox_json_int(j,
                              ngx_http_sandbox_e2b_megabytes(limits.memory));
    ngx_http_sandbox_json_raw(j, ",\"diskSizeMB\":");
    ngx_http_sandbox_json_int(j, ngx_http_sandbox_e2b_megabytes(limits.disk));

    /* configuration keeps no time of its own making */

    ngx_http_sandbox_json_raw(j, ",\"createdAt\":\"1970-01-01T00:00:00.000Z\","
                             "\"updatedAt\":\"1970-01-01T00:00:00.000Z\","
                             "\"createdBy\":null,\"lastSpawnedAt\":null,"
                             "\"spawnCount\":0,\"buildCount\":1,"
                             "\"buildStatus\":\"ready\",\"envdVersion\":\""
                             NGX_HTTP_SANDBOX_E2B_VERSION "\"}");
}


ngx_int_t
ngx_http_sandbox_e2b_templates(ngx_http_request_t *r)
{
    ngx_uint_t                     i;
    const char                    *name;
    ngx_http_sandbox_json_t        j;
    ngx_http_sandbox_template_t   *t;
    ngx_http_sandbox_main_conf_t  *smcf;

    smcf = ngx_http_get_module_main_conf(r, ngx_http_sandbox_module);
    t = (smcf->templates == NULL) ? NULL : smcf->templates->elts;

    ngx_http_sandbox_json_init(&j, r->pool);

    for (i = 0; ngx_http_sandbox_e2b_builtin[i] != NULL; i++) {
        name = ngx_http_sandbox_e2b_builtin[i];

        ngx_http_sandbox_json_raw(&j, i ? "," : "[");
        ngx_http_sandbox_e2b_template_json(r, &j, (u_char *) name,
                                           ngx_strlen(name));
    }

    for (i = 0; t != NULL && i < smcf->templates->nelts; i++) {

        if (ngx_http_sandbox_e2b_is_builtin(t[i].name.data, t[i].name.len)) {
            continue;
        }

        ngx_http_sandbox_json_raw(&j, ",");
        ngx_http_sandbox_e2b_template_json(r, &j, t[i].name.data,
                                           t[i].name.len);
    }

    ngx_http_sandbox_json_raw(&j, "]");

    return ngx_http_sandbox_json_send(r, NGX_HTTP_OK, &j);
}


static ngx_uint_t
ngx_http_sandbox_e2b_template_known(ngx_http_request_t *r,
    const ngx_str_t *name)
{
    ngx_http_sandbox_main_conf_t  *smcf;

    smcf = ngx_http_get_module_main_conf(r, ngx_http_sandbox_module);

    return ngx_http_sandbox_e2b_is_builtin(name->data, name->len)
           || ngx_http_sandbox_template_find(smcf, name->data, name->len)
              != NULL;
}


ngx_int_t
ngx_http_sandbox_e2b_alias(ngx_http_request_t *r)
{
    ngx_str_t                name;
    ngx_http_sandbox_json_t  j;

    name = ngx_http_sandbox_ctx(r)->item;

    if (!ngx_http_sandbox_e2b_template_known(r, &name)) {
        return ngx_http_sandbox_problem(r,
                                       NGX_HTTP_SANDBOX_TEMPLATE_NOT_FOUND,
                                       NULL);
    }

    ngx_http_sandbox_json_init(&j, r->pool);
    ngx_http_sandbox_json_raw(&j, "{\"templateID\":");
    ngx_http_sandbox_json_string(&j, name.data, name.len);
    ngx_http_sandbox_json_raw(&j, ",\"public\":true}");

    return ngx_http_sandbox_json_send(r, NGX_HTTP_OK, &j);
}


/* A snapshot is deleted so, too: there is none. */

ngx_int_t
ngx_http_sandbox_e2b_template_delete(ngx_http_request_t *r)
{
    ngx_str_t  name;

    name = ngx_http_sandbox_ctx(r)->item;

    if (ngx_http_sandbox_e2b_template_known(r, &name)) {
        return ngx_http_sandbox_e2b_no_builds(r);
    }

    return ngx_http_sandbox_problem(r, NGX_HTTP_SANDBOX_TEMPLATE_NOT_FOUND,
                                    "there is no such template or snapshot");
}


ngx_int_t
ngx_http_sandbox_e2b_no_builds(ngx_http_request_t *r)
{
    return ngx_http_sandbox_problem(r, NGX_HTTP_SANDBOX_NOT_IMPLEMENTED,
               "templates are not built here: they are the operator's, in "
               "sandbox_template_dir and sandbox_template; GET /templates "
               "lists them");
}


ngx_int_t
ngx_http_sandbox_e2b_no_snapshots(ngx_http_request_t *r)
{
    return ngx_http_sandbox_problem(r, NGX_HTTP_SANDBOX_NOT_IMPLEMENTED,
               "there are no snapshots and forks here: pause a sandbox to "
               "keep it, or create another and copy files into it");
}


ngx_int_t
ngx_http_sandbox_e2b_no_volumes(ngx_http_request_t *r)
{
    return ngx_http_sandbox_problem(r, NGX_HTTP_SANDBOX_NOT_IMPLEMENTED,
               "there are no volumes here: pause a sandbox to keep its files, "
               "or download them; the operator can show directories of the "
               "host by sandbox_bind");
}


ngx_int_t
ngx_http_sandbox_e2b_no_secrets(ngx_http_request_t *r)
{
    return ngx_http_sandbox_problem(r, NGX_HTTP_SANDBOX_NOT_IMPLEMENTED,
               "no secrets are kept here: give them as envVars of a sandbox, "
               "or as envs of a command");
}
