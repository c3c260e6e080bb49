/*
 * The directive sandbox_bind: a table of host directories, written as the
 * broker reads it, which alone decides what a session is given.
 */

#include "ngx_http_sandbox.h"

#include "sandbox_rules.h"
#include "sandbox_util.h"


static char *ngx_http_sandbox_bind_invalid(ngx_conf_t *cf,
    ngx_command_t *cmd, ngx_str_t *value, const char *must);
static char *ngx_http_sandbox_bind_directory(ngx_conf_t *cf,
    ngx_command_t *cmd, ngx_str_t *path, ngx_uint_t writable);
static char *ngx_http_sandbox_bind_add(ngx_conf_t *cf, ngx_command_t *cmd,
    ngx_http_sandbox_main_conf_t *smcf, const void *data, size_t len);


char *
ngx_http_sandbox_set_bind(ngx_conf_t *cf, ngx_command_t *cmd, void *conf)
{
    ngx_http_sandbox_main_conf_t  *smcf = conf;

    char        *rv;
    size_t       i;
    ngx_str_t   *value;
    sbx_bind_t   bind;
    ngx_uint_t   writable;
    const char  *p;

    value = cf->args->elts;

    if (cf->args->nelts < 4) {
        return "needs a name, a directory, and \"ro\" or \"rw\"";
    }

    if (!sbx_bind_name_ok((char *) value[1].data, value[1].len)) {
        return ngx_http_sandbox_bind_invalid(cf, cmd, &value[1],
                   "a name of 1 to 64 of a-z 0-9 . _ - that begins with a "
                   "letter or digit");
    }

    if (smcf->binds == NULL) {
        smcf->binds = ngx_pnalloc(cf->pool, SBX_BINDS_SIZE);

        if (smcf->binds == NULL) {
            return NGX_CONF_ERROR;
        }
    }

    p = (char *) smcf->binds;

    while (sbx_bind_next(&p, (char *) smcf->binds + smcf->binds_size, &bind)
           == 1)
    {
        if (ngx_strcmp(bind.name, value[1].data) == 0) {
            ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                               "duplicate name \"%V\" in \"%V\" directive",
                               &value[1], &cmd->name);
            return NGX_CONF_ERROR;
        }
    }

    writable = (ngx_strcmp(value[3].data, "rw") == 0);

    if (!writable && ngx_strcmp(value[3].data, "ro") != 0) {
        return ngx_http_sandbox_bind_invalid(cf, cmd, &value[3],
                                             "\"ro\" or \"rw\"");
    }

    rv = ngx_http_sandbox_bind_directory(cf, cmd, &value[2], writable);

    if (rv != NGX_CONF_OK
        || (rv = ngx_http_sandbox_bind_add(cf, cmd, smcf,
                                           writable ? "w" : "r", 1))
           != NGX_CONF_OK
        || (rv = ngx_http_sandbox_bind_add(cf, cmd, smcf, value[1].data,
                                           value[1].len + 1))
           != NGX_CONF_OK
        || (rv = ngx_http_sandbox_bind_add(cf, cmd, smcf, value[2].data,
                                           value[2].len + 1))
           != NGX_CONF_OK)
    {
        return rv;
    }

    for (i = 4; i < cf->args->nelts; i++) {
        if (ngx_strncmp(value[i].data, "tenant=", 7) != 0
            || !sbx_name_ok((char *) value[i].data + 7, value[i].len - 7))
        {
            return ngx_http_sandbox_bind_invalid(cf, cmd, &value[i],
                                                 "\"tenant=\" and the id of "
                                                 "a tenant");
        }

        rv = ngx_http_sandbox_bind_add(cf, cmd, smcf, value[i].data + 7,
                                       value[i].len - 7 + 1);

        if (rv != NGX_CONF_OK) {
            return rv;
        }
    }

    return ngx_http_sandbox_bind_add(cf, cmd, smcf, "", 1);
}


static char *
ngx_http_sandbox_bind_invalid(ngx_conf_t *cf, ngx_command_t *cmd,
    ngx_str_t *value, const char *must)
{
    ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                       "invalid value \"%V\" in \"%V\" directive, it must be "
                       "%s", value, &cmd->name, must);

    return NGX_CONF_ERROR;
}


/* Links are followed now and never again: path becomes what has none. */

static char *
ngx_http_sandbox_bind_directory(ngx_conf_t *cf, ngx_command_t *cmd,
    ngx_str_t *path, ngx_uint_t writable)
{
    u_char        *p;
    struct stat    st;
    char SBX_CLEANUP(sbx_cleanup_free)
                  *real = NULL;

    if (path->data[0] != '/') {
        return ngx_http_sandbox_bind_invalid(cf, cmd, path,
                                             "an absolute path");
    }

    real = realpath((char *) path->data, NULL);

    if (real == NULL || stat(real, &st) == -1 || !S_ISDIR(st.st_mode)) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf,
                           real == NULL ? ngx_errno : 0,
                           "\"%V\" in \"%V\" directive is no directory",
                           path, &cmd->name);
        return NGX_CONF_ERROR;
    }

    if (ngx_strcmp(real, "/") == 0 || ngx_strlen(real) >= SBX_PATH_MAX) {
        return ngx_http_sandbox_bind_invalid(cf, cmd, path,
                                             "a directory below the root");
    }

    if (writable && (st.st_uid == 0 || st.st_gid == 0)) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "\"%V\" in \"%V\" directive belongs to user or "
                           "group root, whom no session may be: give it to "
                           "a user of its own, or offer it with \"ro\"",
                           path, &cmd->name);
        return NGX_CONF_ERROR;
    }

    path->len = ngx_strlen(real);
    p = ngx_pnalloc(cf->pool, path->len + 1);

    if (p == NULL) {
        return NGX_CONF_ERROR;
    }

    ngx_memcpy(p, real, path->len + 1);
    path->data = p;

    return NGX_CONF_OK;
}


static char *
ngx_http_sandbox_bind_add(ngx_conf_t *cf, ngx_command_t *cmd,
    ngx_http_sandbox_main_conf_t *smcf, const void *data, size_t len)
{
    if (len > SBX_BINDS_SIZE - smcf->binds_size) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "all \"%V\" directives together take more than "
                           "%d bytes", &cmd->name, SBX_BINDS_SIZE);
        return NGX_CONF_ERROR;
    }

    ngx_memcpy(smcf->binds + smcf->binds_size, data, len);
    smcf->binds_size += len;

    return NGX_CONF_OK;
}
