#include "ngx_http_sandbox.h"


/* What the core appends to a directory's path. */
#define NGX_HTTP_SANDBOX_PATH_ROOM   128

#define NGX_HTTP_SANDBOX_UID_SLOT    65536
/* Linux 6.1 takes no owner above the signed range for a devpts. */
#define NGX_HTTP_SANDBOX_UID_LAST    2147483647


static ngx_conf_enum_t  ngx_http_sandbox_apis[] = {
    { ngx_string("v1"), NGX_HTTP_SANDBOX_API_V1 },
    { ngx_string("admin"), NGX_HTTP_SANDBOX_API_ADMIN },
    { ngx_string("metrics"), NGX_HTTP_SANDBOX_API_METRICS },
    { ngx_string("status"), NGX_HTTP_SANDBOX_API_STATUS },
    { ngx_string("e2b"), NGX_HTTP_SANDBOX_API_E2B },
    { ngx_null_string, 0 }
};

static ngx_conf_enum_t  ngx_http_sandbox_storages[] = {
    { ngx_string("auto"), SBX_STORAGE_AUTO },
    { ngx_string("tmpfs"), SBX_STORAGE_TMPFS },
    { ngx_string("directory"), SBX_STORAGE_DIRECTORY },
    { ngx_string("image"), SBX_STORAGE_IMAGE },
    { ngx_null_string, 0 }
};


static uint64_t ngx_http_sandbox_parse_id(const u_char *p, size_t len);
static char *ngx_http_sandbox_set_limit(ngx_conf_t *cf, ngx_command_t *cmd,
    sbx_limits_t *limits, ngx_str_t *value);


char *
ngx_http_sandbox_set_api(ngx_conf_t *cf, ngx_command_t *cmd, void *conf)
{
    ngx_http_sandbox_loc_conf_t  *slcf = conf;

    ngx_str_t                     *value;
    ngx_uint_t                     i;
    ngx_http_core_loc_conf_t      *clcf;
    ngx_http_sandbox_main_conf_t  *smcf;

    if (slcf->api != NGX_HTTP_SANDBOX_API_OFF) {
        return "is duplicate";
    }

    if (slcf->port_host.data != NULL) {
        return "cannot be where \"sandbox_port_host\" is";
    }

    value = cf->args->elts;

    for (i = 0; ngx_http_sandbox_apis[i].name.len != 0; i++) {
        if (ngx_strcmp(ngx_http_sandbox_apis[i].name.data, value[1].data)
            == 0)
        {
            break;
        }
    }

    if (ngx_http_sandbox_apis[i].name.len == 0) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "invalid value \"%V\" in \"%V\" directive, "
                           "it must be \"v1\", \"e2b\", \"admin\", "
                           "\"metrics\" or \"status\"", &value[1],
                           &cmd->name);
        return NGX_CONF_ERROR;
    }

    clcf = ngx_http_conf_get_module_loc_conf(cf, ngx_http_core_module);

    if (clcf->named
#if (NGX_PCRE)
        || clcf->regex
#endif
       )
    {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "\"%V %V\" must be in a location given by a "
                           "prefix, not in \"%V\"", &cmd->name, &value[1],
                           &clcf->name);
        return NGX_CONF_ERROR;
    }

    clcf->handler = ngx_http_sandbox_handler;
    slcf->api = ngx_http_sandbox_apis[i].value;

    smcf = ngx_http_conf_get_module_main_conf(cf, ngx_http_sandbox_module);
    smcf->used = 1;

    if (slcf->api == NGX_HTTP_SANDBOX_API_ADMIN) {
        smcf->quotas->admin = 1;
    }

    return NGX_CONF_OK;
}


char *
ngx_http_sandbox_set_path(ngx_conf_t *cf, ngx_command_t *cmd, void *conf)
{
    char  *p = conf;

    ngx_str_t  *field, *value;

    field = (ngx_str_t *) (p + cmd->offset);

    if (field->data != NULL) {
        return "is duplicate";
    }

    value = cf->args->elts;

    if (value[1].len == 0) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "invalid value \"%V\" in \"%V\" directive, "
                           "it must be a path", &value[1], &cmd->name);
        return NGX_CONF_ERROR;
    }

    *field = value[1];

    if (ngx_http_sandbox_full_path(cf->cycle, field) != NGX_OK) {
        return NGX_CONF_ERROR;
    }

    if (field->len + NGX_HTTP_SANDBOX_PATH_ROOM > SBX_PATH_MAX) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "the path in \"%V\" directive is longer than %d "
                           "bytes: \"%V\"", &cmd->name,
                           SBX_PATH_MAX - NGX_HTTP_SANDBOX_PATH_ROOM,
                           &value[1]);
        return NGX_CONF_ERROR;
    }

    return NGX_CONF_OK;
}


/* The prefix itself may be relative: "nginx -p dir". */

ngx_int_t
ngx_http_sandbox_full_path(ngx_cycle_t *cycle, ngx_str_t *path)
{
    size_t   len;
    u_char  *p, cwd[NGX_MAX_PATH];

    if (ngx_conf_full_name(cycle, path, 0) != NGX_OK) {
        return NGX_ERROR;
    }

    if (path->data[0] == '/') {
        return NGX_OK;
    }

    if (ngx_getcwd(cwd, NGX_MAX_PATH) == 0) {
        ngx_log_error(NGX_LOG_EMERG, cycle->log, ngx_errno,
                      ngx_getcwd_n " failed");
        return NGX_ERROR;
    }

    len = ngx_strlen(cwd);
    p = ngx_pnalloc(cycle->pool, len + path->len + 2);

    if (p == NULL) {
        return NGX_ERROR;
    }

    *ngx_sprintf(p, "%*s/%V", len, cwd, path) = '\0';

    path->data = p;
    path->len += len + 1;

    return NGX_OK;
}


char *
ngx_http_sandbox_set_cgroup(ngx_conf_t *cf, ngx_command_t *cmd, void *conf)
{
    ngx_http_sandbox_main_conf_t  *smcf = conf;

    ngx_str_t  *value;

    if (smcf->cgroup.data != NULL) {
        return "is duplicate";
    }

    value = cf->args->elts;

    if (ngx_strcmp(value[1].data, "auto") == 0) {
        ngx_str_set(&smcf->cgroup, "");
        return NGX_CONF_OK;
    }

    if (value[1].data[0] != '/'
        || value[1].len + NGX_HTTP_SANDBOX_PATH_ROOM > SBX_PATH_MAX
        || ngx_strstr(value[1].data, "/../") != NULL
        || (value[1].len >= 3
            && ngx_strcmp(value[1].data + value[1].len - 3, "/..") == 0))
    {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "invalid value \"%V\" in \"%V\" directive, it "
                           "must be \"auto\" or a group's path, as "
                           "\"/sandbox\"", &value[1], &cmd->name);
        return NGX_CONF_ERROR;
    }

    smcf->cgroup = value[1];

    return NGX_CONF_OK;
}


char *
ngx_http_sandbox_set_storage(ngx_conf_t *cf, ngx_command_t *cmd, void *conf)
{
    ngx_http_sandbox_main_conf_t  *smcf = conf;

    ngx_str_t   *value;
    ngx_uint_t   i;

    if (smcf->storage != NGX_CONF_UNSET_UINT) {
        return "is duplicate";
    }

    value = cf->args->elts;

    for (i = 0; ngx_http_sandbox_storages[i].name.len != 0; i++) {
        if (ngx_strcmp(ngx_http_sandbox_storages[i].name.data, value[1].data)
            == 0)
        {
            smcf->storage = ngx_http_sandbox_storages[i].value;
            break;
        }
    }

    if (smcf->storage == NGX_CONF_UNSET_UINT) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "invalid value \"%V\" in \"%V\" directive, it "
                           "must be \"auto\", \"tmpfs\", \"directory\" or "
                           "\"image\"", &value[1], &cmd->name);
        return NGX_CONF_ERROR;
    }

    if (cf->args->nelts == 2) {
        return NGX_CONF_OK;
    }

    if (smcf->storage == SBX_STORAGE_TMPFS) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "\"%V tmpfs\" has no directory, but \"%V\" is "
                           "given", &cmd->name, &value[2]);
        return NGX_CONF_ERROR;
    }

    /* the path's setter takes the first argument */

    value[1] = value[2];

    return ngx_http_sandbox_set_path(cf, cmd, conf);
}


/* UINT64_MAX for what is no id. */

static uint64_t
ngx_http_sandbox_parse_id(const u_char *p, size_t len)
{
    size_t    i;
    uint64_t  n;

    if (len == 0 || len > 10) {
        return UINT64_MAX;
    }

    n = 0;

    for (i = 0; i < len; i++) {
        if (p[i] < '0' || p[i] > '9') {
            return UINT64_MAX;
        }

        n = n * 10 + (p[i] - '0');
    }

    return n;
}


char *
ngx_http_sandbox_set_uid_range(ngx_conf_t *cf, ngx_command_t *cmd,
    void *conf)
{
    ngx_http_sandbox_main_conf_t  *smcf = conf;

    u_char     *dash, *end;
    uint64_t    first, last;
    ngx_str_t  *value;

    if (smcf->uid_count != 0) {
        return "is duplicate";
    }

    value = cf->args->elts;
    end = value[1].data + value[1].len;
    dash = ngx_strlchr(value[1].data, end, '-');

    if (dash == NULL) {
        goto invalid;
    }

    first = ngx_http_sandbox_parse_id(value[1].data, dash - value[1].data);
    last = ngx_http_sandbox_parse_id(dash + 1, end - dash - 1);

    if (first > NGX_HTTP_SANDBOX_UID_LAST
        || last > NGX_HTTP_SANDBOX_UID_LAST
        || first < NGX_HTTP_SANDBOX_UID_SLOT
        || first % NGX_HTTP_SANDBOX_UID_SLOT != 0
        || last < first + NGX_HTTP_SANDBOX_UID_SLOT - 1)
    {
        goto invalid;
    }

    smcf->uid_first = first;
    smcf->uid_count = last - first + 1;

    return NGX_CONF_OK;

invalid:

    ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                       "invalid value \"%V\" in \"%V\" directive, it must be "
                       "FIRST-LAST with at least %d ids, FIRST a multiple "
                       "of %d", &value[1], &cmd->name,
                       NGX_HTTP_SANDBOX_UID_SLOT, NGX_HTTP_SANDBOX_UID_SLOT);

    return NGX_CONF_ERROR;
}


char *
ngx_http_sandbox_set_limits(ngx_conf_t *cf, ngx_command_t *cmd, void *conf)
{
    char  *p = conf;

    char        *rv;
    ngx_str_t   *value;
    ngx_uint_t   i;

    value = cf->args->elts;

    for (i = 1; i < cf->args->nelts; i++) {
        rv = ngx_http_sandbox_set_limit(cf, cmd,
                                        (sbx_limits_t *) (p + cmd->offset),
                                        &value[i]);

        if (rv != NGX_CONF_OK) {
            return rv;
        }
    }

    return NGX_CONF_OK;
}


static char *
ngx_http_sandbox_set_limit(ngx_conf_t *cf, ngx_command_t *cmd,
    sbx_limits_t *limits, ngx_str_t *value)
{
    u_char             *p, *end;
    uint64_t           *field;
    sbx_error_t         e;
    const sbx_limit_t  *limit;

    end = value->data + value->len;
    p = ngx_strlchr(value->data, end, '=');
    limit = NULL;

    if (p != NULL) {
        limit = sbx_limit_find((char *) value->data, p - value->data, 0);
    }

    if (limit == NULL) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "invalid parameter \"%V\" in \"%V\" directive, it "
                           "must be NAME=VALUE with the name of a limit",
                           value, &cmd->name);
        return NGX_CONF_ERROR;
    }

    if (limit->max_only && ngx_strcmp(cmd->name.data, "sandbox_max") != 0) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "invalid parameter \"%V\" in \"%V\" directive, it "
                           "is for \"sandbox_max\" alone",
                           value, &cmd->name);
        return NGX_CONF_ERROR;
    }

    field = sbx_limit_field(limits, limit);

    if (*field != SBX_UNSET) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "duplicate parameter \"%V\" in \"%V\" directive",
                           value, &cmd->name);
        return NGX_CONF_ERROR;
    }

    p++;

    if (sbx_limit_parse(limit, (char *) p, end - p, field, &e) != 0) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "invalid parameter \"%V\" in \"%V\" directive, it "
                           "%s%s", value, &cmd->name, e.text,
                           limit->unlimited_ok ? ", or none" : "");
        return NGX_CONF_ERROR;
    }

    return NGX_CONF_OK;
}


char *
ngx_http_sandbox_set_exec_timeout(ngx_conf_t *cf, ngx_command_t *cmd,
    void *conf)
{
    ngx_http_sandbox_main_conf_t  *smcf = conf;

    ngx_int_t   ms;
    ngx_str_t  *value;

    /* "sandbox_default exec_timeout=" is the same value */

    if (smcf->def.exec_timeout != SBX_UNSET) {
        return "is duplicate";
    }

    value = cf->args->elts;
    ms = ngx_parse_time(&value[1], 0);

    if (ms == NGX_ERROR || ms == 0) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "invalid value \"%V\" in \"%V\" directive, it "
                           "must be a time, as \"60s\"", &value[1],
                           &cmd->name);
        return NGX_CONF_ERROR;
    }

    smcf->def.exec_timeout = (uint64_t) ms;

    return NGX_CONF_OK;
}


char *
ngx_http_sandbox_set_size(ngx_conf_t *cf, ngx_command_t *cmd, void *conf)
{
    char  *p = conf;

    off_t                            n, *offset;
    size_t                          *size;
    ngx_str_t                       *value;
    ngx_http_sandbox_size_bounds_t  *bounds = cmd->post;

    size = (size_t *) (p + cmd->offset);
    offset = (off_t *) (p + cmd->offset);

    if (bounds->offset ? *offset != NGX_CONF_UNSET
                       : *size != NGX_CONF_UNSET_SIZE)
    {
        return "is duplicate";
    }

    value = cf->args->elts;
    n = ngx_parse_offset(&value[1]);

    if (n == (off_t) NGX_ERROR || n < bounds->min || n > bounds->max) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "invalid value \"%V\" in \"%V\" directive, it "
                           "must be a size from %O to %O bytes", &value[1],
                           &cmd->name, bounds->min, bounds->max);
        return NGX_CONF_ERROR;
    }

    if (bounds->offset) {
        *offset = n;

    } else {
        *size = (size_t) n;
    }

    return NGX_CONF_OK;
}


/*
 * A maximum that was not given is the built-in one.  A default that was not
 * given gives way to a lower maximum; one that was given must be below it.
 * SBX_UNSET stays where it has a meaning of its own (max_file_size).
 */

char *
ngx_http_sandbox_settle_limits(ngx_conf_t *cf,
    ngx_http_sandbox_main_conf_t *smcf)
{
    char                above[32], below[32];
    uint64_t           *def, *max;
    const sbx_limit_t  *limit;

    for (limit = sbx_limit_table; limit->name != NULL; limit++) {
        def = sbx_limit_field(&smcf->def, limit);
        max = sbx_limit_field(&smcf->max, limit);

        if (*max == SBX_UNSET) {
            *max = limit->cap;
        }

        if (limit->max_only) {
            *def = *max;
            continue;
        }

        if (*def == SBX_UNSET) {
            *def = limit->fallback;

            if (*def != SBX_UNSET && *max < SBX_UNLIMITED && *def > *max) {
                *def = *max;
            }

            continue;
        }

        if (*max >= SBX_UNLIMITED || *def <= *max) {
            continue;
        }

        above[sbx_limit_print(limit, *def, above)] = '\0';
        below[sbx_limit_print(limit, *max, below)] = '\0';

        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "the default \"%s=%s\" is above its maximum "
                           "\"%s=%s\", raise it with \"sandbox_max\"",
                           limit->name,
                           *def == SBX_UNLIMITED ? "none" : above,
                           limit->name, below);

        return NGX_CONF_ERROR;
    }

    return NGX_CONF_OK;
}


/* A host's name, with a port if need be: it is told as it stands. */

char *
ngx_http_sandbox_set_e2b_domain(ngx_conf_t *cf, ngx_command_t *cmd,
    void *conf)
{
    ngx_http_sandbox_loc_conf_t  *slcf = conf;

    u_char      ch;
    size_t      i;
    ngx_str_t  *value;

    if (slcf->e2b_domain.data != NULL) {
        return "is duplicate";
    }

    value = cf->args->elts;

    for (i = 0; i < value[1].len; i++) {
        ch = ngx_tolower(value[1].data[i]);

        if ((ch < 'a' || ch > 'z') && (ch < '0' || ch > '9')
            && ch != '-' && ((ch != '.' && ch != ':') || i == 0))
        {
            break;
        }

        value[1].data[i] = ch;
    }

    if (value[1].len == 0 || i < value[1].len) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "invalid value \"%V\" in \"%V\" directive, it "
                           "must be a domain, as \"sandbox.example.com\"",
                           &value[1], &cmd->name);
        return NGX_CONF_ERROR;
    }

    slcf->e2b_domain = value[1];

    return NGX_CONF_OK;
}
