/*
 * The directive sandbox_pool: how many sessions of a template are made ahead.
 * Its template may come later in the configuration, so what a session of the
 * pool has is settled when all of that has been read.  The broker makes them.
 */

#include "ngx_http_sandbox.h"

#include "v1/ngx_http_sandbox_v1_session.h"


static ngx_http_sandbox_pool_t *ngx_http_sandbox_pool_add(ngx_conf_t *cf,
    ngx_http_sandbox_main_conf_t *smcf, ngx_str_t *name);
static char *ngx_http_sandbox_pool_kernels(ngx_conf_t *cf,
    ngx_command_t *cmd, ngx_http_sandbox_pool_t *pool, ngx_str_t *value);
static ngx_int_t ngx_http_sandbox_pool_settle(ngx_conf_t *cf,
    ngx_http_sandbox_main_conf_t *smcf, ngx_http_sandbox_pool_t *pool,
    sbx_pools_config_t *pools);
static ngx_int_t ngx_http_sandbox_pool_strings(sbx_pools_config_t *pools,
    const u_char *p, size_t size);
static ngx_int_t ngx_http_sandbox_pool_own(ngx_conf_t *cf,
    ngx_http_sandbox_main_conf_t *smcf, ngx_http_sandbox_pool_t *pool);
static ngx_int_t ngx_http_sandbox_pool_fault(ngx_conf_t *cf,
    const ngx_http_sandbox_pool_t *pool, const char *what);


char *
ngx_http_sandbox_set_pool(ngx_conf_t *cf, ngx_command_t *cmd, void *conf)
{
    ngx_http_sandbox_main_conf_t  *smcf = conf;

    char                     *rv;
    ngx_int_t                 n;
    ngx_str_t                *value;
    ngx_uint_t                i;
    ngx_http_sandbox_pool_t  *pool;

    value = cf->args->elts;
    pool = ngx_http_sandbox_pool_add(cf, smcf, &value[1]);

    if (pool == NULL) {
        return NGX_CONF_ERROR;
    }

    for (i = 2; i < cf->args->nelts; i++) {

        if (ngx_strncmp(value[i].data, "sessions=", 9) == 0) {

            if (pool->config.sessions != 0) {
                goto duplicate;
            }

            n = ngx_atoi(value[i].data + 9, value[i].len - 9);

            if (n == NGX_ERROR || n < 1 || n > SBX_POOL_SESSIONS_MAX) {
                ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                                   "invalid parameter \"%V\" in \"%V\" "
                                   "directive, it must be a number from 1 to "
                                   "%d", &value[i], &cmd->name,
                                   SBX_POOL_SESSIONS_MAX);
                return NGX_CONF_ERROR;
            }

            pool->config.sessions = (uint32_t) n;
            continue;
        }

        if (ngx_strncmp(value[i].data, "kernels=", 8) == 0) {

            if (pool->config.kernels[0] != '\0') {
                goto duplicate;
            }

            rv = ngx_http_sandbox_pool_kernels(cf, cmd, pool, &value[i]);

            if (rv != NGX_CONF_OK) {
                return rv;
            }

            continue;
        }

        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "invalid parameter \"%V\" in \"%V\" directive, it "
                           "must be \"sessions=NUMBER\" or "
                           "\"kernels=NAME,...\"", &value[i], &cmd->name);
        return NGX_CONF_ERROR;

    duplicate:

        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "duplicate parameter \"%V\" in \"%V\" directive",
                           &value[i], &cmd->name);
        return NGX_CONF_ERROR;
    }

    if (pool->config.sessions == 0) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "\"%V\" directive needs \"sessions=NUMBER\"",
                           &cmd->name);
        return NGX_CONF_ERROR;
    }

    return NGX_CONF_OK;
}


static ngx_http_sandbox_pool_t *
ngx_http_sandbox_pool_add(ngx_conf_t *cf, ngx_http_sandbox_main_conf_t *smcf,
    ngx_str_t *name)
{
    ngx_uint_t                i;
    ngx_http_sandbox_pool_t  *pool;

    if (smcf->pools == NULL) {
        smcf->pools = ngx_array_create(cf->pool, 2,
                                       sizeof(ngx_http_sandbox_pool_t));

        if (smcf->pools == NULL) {
            return NULL;
        }
    }

    pool = smcf->pools->elts;

    for (i = 0; i < smcf->pools->nelts; i++) {
        if (pool[i].name.len == name->len
            && ngx_memcmp(pool[i].name.data, name->data, name->len) == 0)
        {
            ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                               "template \"%V\" has two \"sandbox_pool\" "
                               "directives", name);
            return NULL;
        }
    }

    if (i == SBX_POOLS_MAX) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "more than %d \"sandbox_pool\" directives",
                           SBX_POOLS_MAX);
        return NULL;
    }

    pool = ngx_array_push(smcf->pools);

    if (pool == NULL) {
        return NULL;
    }

    ngx_memzero(pool, sizeof(ngx_http_sandbox_pool_t));
    pool->name = *name;
    pool->file = cf->conf_file->file.name;
    pool->line = cf->conf_file->line;

    return pool;
}


/* Which languages the machine has is the broker's to find out. */

static char *
ngx_http_sandbox_pool_kernels(ngx_conf_t *cf, ngx_command_t *cmd,
    ngx_http_sandbox_pool_t *pool, ngx_str_t *value)
{
    size_t   len;
    u_char  *p, *comma, *end;
    char    *out, *known, *room;

    p = value->data + 8;
    end = value->data + value->len;
    out = pool->config.kernels;

    /* the table ends with an empty name */

    room = pool->config.kernels + sizeof(pool->config.kernels) - 1;

    for ( ;; ) {
        comma = ngx_strlchr(p, end, ',');
        len = (size_t) ((comma == NULL ? end : comma) - p);

        if (!sbx_language_ok((char *) p, len) || out + len + 1 > room)
        {
            goto invalid;
        }

        for (known = pool->config.kernels; known < out;
             known += ngx_strlen(known) + 1)
        {
            if (ngx_strlen(known) == len && ngx_memcmp(known, p, len) == 0) {
                goto invalid;
            }
        }

        out = (char *) ngx_cpymem(out, p, len);
        *out++ = '\0';

        if (comma == NULL) {
            return NGX_CONF_OK;
        }

        p = comma + 1;
    }

invalid:

    ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                       "invalid parameter \"%V\" in \"%V\" directive, it must "
                       "name languages, each once: \"kernels=python,bash\"",
                       value, &cmd->name);

    return NGX_CONF_ERROR;
}


/* Runs when templates are settled. */

ngx_int_t
ngx_http_sandbox_pools_settle(ngx_conf_t *cf,
    ngx_http_sandbox_main_conf_t *smcf, sbx_config_t *config)
{
    ngx_uint_t                i;
    ngx_http_sandbox_pool_t  *pool;

    if (smcf->pools == NULL) {
        return NGX_OK;
    }

    pool = smcf->pools->elts;

    for (i = 0; i < smcf->pools->nelts; i++) {
        if (ngx_http_sandbox_pool_own(cf, smcf, &pool[i]) != NGX_OK
            || ngx_http_sandbox_pool_settle(cf, smcf, &pool[i],
                                            &config->pools)
               != NGX_OK)
        {
            return NGX_ERROR;
        }
    }

    return NGX_OK;
}


/* The built-in template has two names, unless configuration has the other one
 * for one of its own. */

static ngx_int_t
ngx_http_sandbox_pool_own(ngx_conf_t *cf, ngx_http_sandbox_main_conf_t *smcf,
    ngx_http_sandbox_pool_t *pool)
{
    ngx_uint_t                i;
    ngx_http_sandbox_pool_t  *all;

    if (ngx_strcmp(pool->name.data, "code-interpreter-v1") == 0
        && ngx_http_sandbox_template_find(smcf, pool->name.data,
                                          pool->name.len)
           == NULL)
    {
        ngx_str_set(&pool->name, "base");
    }

    all = smcf->pools->elts;

    for (i = 0; &all[i] != pool; i++) {
        if (ngx_strcmp(all[i].name.data, pool->name.data) == 0) {
            ngx_log_error(NGX_LOG_EMERG, cf->log, 0,
                          "template \"%V\" has two \"sandbox_pool\" "
                          "directives, the second in %V:%ui", &pool->name,
                          &pool->file, pool->line);
            return NGX_ERROR;
        }
    }

    return NGX_OK;
}


/* What a create has that names the template and asks for nothing else. */

static ngx_int_t
ngx_http_sandbox_pool_settle(ngx_conf_t *cf,
    ngx_http_sandbox_main_conf_t *smcf, ngx_http_sandbox_pool_t *pool,
    sbx_pools_config_t *pools)
{
    size_t                        size;
    u_char                       *env;
    sbx_error_t                   e;
    sbx_pool_config_t            *config;
    ngx_http_sandbox_template_t  *template;

    config = &pool->config;
    template = ngx_http_sandbox_template_find(smcf, pool->name.data,
                                              pool->name.len);

    if (template == NULL && ngx_strcmp(pool->name.data, "base") != 0) {
        return ngx_http_sandbox_pool_fault(cf, pool,
                                           "there is no such template");
    }

    (void) sbx_copy_string(config->template, sizeof(config->template),
                           (char *) pool->name.data, pool->name.len);

    sbx_limits_clear(&config->limits);
    config->capabilities = NGX_HTTP_SANDBOX_OP_CAPABILITIES;

    if (template != NULL) {
        ngx_http_sandbox_template_limits(template, &config->limits);

        if (template->has_capabilities) {
            config->capabilities &= template->capabilities;
        }

        if (ngx_http_sandbox_op_env(cf->pool, &template->env, &env, &size,
                                    &e)
            != 0
            || ngx_http_sandbox_pool_strings(pools, env, size) != NGX_OK
            || ngx_http_sandbox_pool_strings(pools, template->preload.data,
                                             template->preload.len)
               != NGX_OK)
        {
            return ngx_http_sandbox_pool_fault(cf, pool,
                       "variables and \"preload\" of all templates with a "
                       "pool have more than 32768 bytes");
        }

        config->env_size = (uint32_t) size;
        config->preload_size = (uint32_t) template->preload.len;
    }

    if (sbx_limits_settle(&config->limits, &smcf->def, &smcf->max, &e) != 0)
    {
        return ngx_http_sandbox_pool_fault(cf, pool, e.text);
    }

    pools->pools[pools->count++] = *config;

    return NGX_OK;
}


static ngx_int_t
ngx_http_sandbox_pool_strings(sbx_pools_config_t *pools, const u_char *p,
    size_t size)
{
    if (size > sizeof(pools->strings) - pools->strings_size) {
        return NGX_ERROR;
    }

    if (size != 0) {
        ngx_memcpy(pools->strings + pools->strings_size, p, size);
        pools->strings_size += (uint32_t) size;
    }

    return NGX_OK;
}


static ngx_int_t
ngx_http_sandbox_pool_fault(ngx_conf_t *cf,
    const ngx_http_sandbox_pool_t *pool, const char *what)
{
    ngx_log_error(NGX_LOG_EMERG, cf->log, 0,
                  "\"sandbox_pool %V\": %s in %V:%ui", &pool->name, what,
                  &pool->file, pool->line);

    return NGX_ERROR;
}
