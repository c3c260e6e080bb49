/*
 * The directive sandbox_quota: what organizations, users and the node may
 * have at once.  The broker counts.
 */

#include "ngx_http_sandbox.h"


static char *ngx_http_sandbox_quota_invalid(ngx_conf_t *cf,
    ngx_command_t *cmd, ngx_str_t *value);
static sbx_quota_t *ngx_http_sandbox_quota_of(ngx_conf_t *cf,
    ngx_command_t *cmd, sbx_quota_config_t *quotas, ngx_str_t *value);
static char *ngx_http_sandbox_quota_limit(ngx_conf_t *cf,
    ngx_command_t *cmd, sbx_quota_t *quota, ngx_str_t *value);


char *
ngx_http_sandbox_set_quota(ngx_conf_t *cf, ngx_command_t *cmd, void *conf)
{
    ngx_http_sandbox_main_conf_t  *smcf = conf;

    char         *rv;
    ngx_str_t    *value;
    ngx_uint_t    i;
    sbx_quota_t  *quota;

    value = cf->args->elts;
    quota = ngx_http_sandbox_quota_of(cf, cmd, smcf->quotas, &value[1]);

    if (quota == NULL) {
        return NGX_CONF_ERROR;
    }

    for (i = 2; i < cf->args->nelts; i++) {
        rv = ngx_http_sandbox_quota_limit(cf, cmd, quota, &value[i]);

        if (rv != NGX_CONF_OK) {
            return rv;
        }
    }

    return NGX_CONF_OK;
}


static char *
ngx_http_sandbox_quota_invalid(ngx_conf_t *cf, ngx_command_t *cmd,
    ngx_str_t *value)
{
    ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                       "invalid value \"%V\" in \"%V\" directive, it must be "
                       "\"node\", \"organization\", \"user\", "
                       "\"organization=TENANT\" or \"user=TENANT/USER\"",
                       value, &cmd->name);

    return NGX_CONF_ERROR;
}


/* A scope's default, or the row of a name, made where there is none. */

static sbx_quota_t *
ngx_http_sandbox_quota_of(ngx_conf_t *cf, ngx_command_t *cmd,
    sbx_quota_config_t *quotas, ngx_str_t *value)
{
    size_t            len;
    u_char           *end, *equal, *slash;
    ngx_str_t         tenant, user;
    ngx_uint_t        i, scope;
    sbx_quota_row_t  *row;

    end = value->data + value->len;
    equal = ngx_strlchr(value->data, end, '=');
    len = (equal == NULL) ? value->len : (size_t) (equal - value->data);

    for (scope = 0; scope < SBX_SCOPES; scope++) {
        if (ngx_strlen(sbx_scope_word(scope)) == len
            && ngx_memcmp(sbx_scope_word(scope), value->data, len) == 0)
        {
            break;
        }
    }

    if (scope == SBX_SCOPES || (scope == SBX_SCOPE_NODE && equal != NULL)) {
        (void) ngx_http_sandbox_quota_invalid(cf, cmd, value);
        return NULL;
    }

    if (equal == NULL) {
        return &quotas->defaults[scope];
    }

    tenant.data = equal + 1;
    tenant.len = end - tenant.data;
    ngx_str_set(&user, "");

    if (scope == SBX_SCOPE_USER) {
        slash = ngx_strlchr(tenant.data, end, '/');

        if (slash == NULL) {
            (void) ngx_http_sandbox_quota_invalid(cf, cmd, value);
            return NULL;
        }

        tenant.len = slash - tenant.data;
        user.data = slash + 1;
        user.len = end - user.data;
    }

    if (!sbx_name_ok((char *) tenant.data, tenant.len)
        || (scope == SBX_SCOPE_USER
            && !sbx_name_ok((char *) user.data, user.len)))
    {
        (void) ngx_http_sandbox_quota_invalid(cf, cmd, value);
        return NULL;
    }

    for (i = 0; i < quotas->count; i++) {
        row = &quotas->rows[i];

        if (ngx_strlen(row->tenant) == tenant.len
            && ngx_strncmp(row->tenant, tenant.data, tenant.len) == 0
            && ngx_strlen(row->user) == user.len
            && ngx_strncmp(row->user, user.data, user.len) == 0)
        {
            return &row->limits;
        }
    }

    if (quotas->count == SBX_QUOTA_ROWS) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "more than %d \"%V\" directives name an "
                           "organization or a user: give the others theirs "
                           "by the admin API", SBX_QUOTA_ROWS, &cmd->name);
        return NULL;
    }

    row = &quotas->rows[quotas->count++];
    ngx_memcpy(row->tenant, tenant.data, tenant.len);
    ngx_memcpy(row->user, user.data, user.len);
    sbx_quota_clear(&row->limits);

    return &row->limits;
}


static char *
ngx_http_sandbox_quota_limit(ngx_conf_t *cf, ngx_command_t *cmd,
    sbx_quota_t *quota, ngx_str_t *value)
{
    u_char             *p, *end;
    uint64_t           *field;
    sbx_error_t         e;
    const sbx_limit_t  *row;

    end = value->data + value->len;
    p = ngx_strlchr(value->data, end, '=');
    row = NULL;

    if (p != NULL) {
        row = sbx_quota_find((char *) value->data, p - value->data, 0);
    }

    if (row == NULL) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "invalid parameter \"%V\" in \"%V\" directive, it "
                           "must be NAME=VALUE with one of sessions, memory, "
                           "cpus, disk and commands", value, &cmd->name);
        return NGX_CONF_ERROR;
    }

    field = sbx_quota_field(quota, row);

    if (*field != SBX_UNSET) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "duplicate parameter \"%V\" in \"%V\" directive",
                           value, &cmd->name);
        return NGX_CONF_ERROR;
    }

    p++;

    if (sbx_limit_parse(row, (char *) p, end - p, field, &e) != 0) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "invalid parameter \"%V\" in \"%V\" directive, it "
                           "%s", value, &cmd->name, e.text);
        return NGX_CONF_ERROR;
    }

    return NGX_CONF_OK;
}
