/*
 * What sessions install packages from: the directives sandbox_package_index,
 * sandbox_package_wheels, sandbox_package_cache and sandbox_package.  They
 * become variables that every session begins with and directories that the
 * broker shows; what may be reached is the business of sandbox_egress alone.
 */

#include "ngx_http_sandbox_package.h"

#include "sandbox_network.h"
#include "sandbox_sha256.h"
#include "sandbox_util.h"

#include <arpa/inet.h>


#define NGX_HTTP_SANDBOX_PACKAGE_URL     512
#define NGX_HTTP_SANDBOX_PACKAGE_NAMES   4096


static ngx_http_sandbox_packages_t *ngx_http_sandbox_package_conf(
    ngx_conf_t *cf, ngx_http_sandbox_main_conf_t *smcf);
static char *ngx_http_sandbox_package_invalid(ngx_conf_t *cf,
    ngx_command_t *cmd, ngx_str_t *value, const char *must);
static char *ngx_http_sandbox_package_url(ngx_conf_t *cf, ngx_command_t *cmd,
    ngx_str_t *value, ngx_http_sandbox_package_index_t *index);
static ngx_int_t ngx_http_sandbox_package_host(ngx_pool_t *pool,
    ngx_http_sandbox_package_index_t *index, const ngx_str_t *host,
    const ngx_str_t *rest);
static char *ngx_http_sandbox_package_ca(ngx_conf_t *cf, ngx_command_t *cmd,
    ngx_str_t *path);
static ngx_int_t ngx_http_sandbox_package_variable(sbx_config_t *config,
    const char *fmt, ...);
static void ngx_http_sandbox_package_links(sbx_config_t *config,
    const ngx_str_t *dir, const char *shown, u_char *links, size_t size);


static const char  *ngx_http_sandbox_package_managers[] = { "pip", "npm" };


ngx_int_t
ngx_http_sandbox_package_manager(const void *name, size_t len)
{
    ngx_uint_t  i;

    for (i = 0; i < NGX_HTTP_SANDBOX_PACKAGE_MANAGERS; i++) {
        if (len == 3
            && ngx_memcmp(name, ngx_http_sandbox_package_managers[i], 3) == 0)
        {
            return (ngx_int_t) i;
        }
    }

    return NGX_DECLINED;
}


static ngx_http_sandbox_packages_t *
ngx_http_sandbox_package_conf(ngx_conf_t *cf,
    ngx_http_sandbox_main_conf_t *smcf)
{
    if (smcf->packages == NULL) {
        smcf->packages = ngx_pcalloc(cf->pool,
                                     sizeof(ngx_http_sandbox_packages_t));
    }

    return smcf->packages;
}


static char *
ngx_http_sandbox_package_invalid(ngx_conf_t *cf, ngx_command_t *cmd,
    ngx_str_t *value, const char *must)
{
    ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                       "invalid value \"%V\" in \"%V\" directive, it must be "
                       "%s", value, &cmd->name, must);

    return NGX_CONF_ERROR;
}


/* sandbox_package_index pip|npm URL [ca=FILE]; */

char *
ngx_http_sandbox_set_package_index(ngx_conf_t *cf, ngx_command_t *cmd,
    void *conf)
{
    ngx_http_sandbox_main_conf_t  *smcf = conf;

    char                              *rv;
    ngx_int_t                          manager;
    ngx_str_t                         *value;
    ngx_http_sandbox_packages_t       *packages;
    ngx_http_sandbox_package_index_t  *index;

    value = cf->args->elts;
    manager = ngx_http_sandbox_package_manager(value[1].data, value[1].len);

    if (manager == NGX_DECLINED) {
        return ngx_http_sandbox_package_invalid(cf, cmd, &value[1],
                                                "\"pip\" or \"npm\"");
    }

    packages = ngx_http_sandbox_package_conf(cf, smcf);

    if (packages == NULL) {
        return NGX_CONF_ERROR;
    }

    index = &packages->index[manager];

    if (index->url.data != NULL) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "duplicate \"%V\" in \"%V\" directive", &value[1],
                           &cmd->name);
        return NGX_CONF_ERROR;
    }

    rv = ngx_http_sandbox_package_url(cf, cmd, &value[2], index);

    if (rv != NGX_CONF_OK || cf->args->nelts == 3) {
        return rv;
    }

    if (ngx_strncmp(value[3].data, "ca=", 3) != 0) {
        return ngx_http_sandbox_package_invalid(cf, cmd, &value[3],
                                                "\"ca=\" and a file");
    }

    if (index->plain) {
        return ngx_http_sandbox_package_invalid(cf, cmd, &value[3],
                             "left out where the index is not \"https://\"");
    }

    index->ca.data = value[3].data + 3;
    index->ca.len = value[3].len - 3;

    return ngx_http_sandbox_package_ca(cf, cmd, &index->ca);
}


/*
 * The address is as sessions are to use it: 127.0.0.0/8 of a session is its
 * own, and the host's is seen there as 240.0.0.0/8.
 */

static char *
ngx_http_sandbox_package_url(ngx_conf_t *cf, ngx_command_t *cmd,
    ngx_str_t *value, ngx_http_sandbox_package_index_t *index)
{
    size_t       i, scheme;
    u_char       ch;
    ngx_str_t    host, rest;
    const char  *must;

    must = "\"http://\" or \"https://\", a host, and no user name, query or "
           "white space";

    if (value->len > NGX_HTTP_SANDBOX_PACKAGE_URL) {
        return ngx_http_sandbox_package_invalid(cf, cmd, value,
                                                "at most 512 bytes long");
    }

    scheme = ngx_strncmp(value->data, "https://", 8) == 0 ? 8
             : ngx_strncmp(value->data, "http://", 7) == 0 ? 7 : 0;

    if (scheme == 0) {
        return ngx_http_sandbox_package_invalid(cf, cmd, value, must);
    }

    for (i = scheme; i < value->len; i++) {
        ch = value->data[i];

        if (ch <= 0x20 || ch >= 0x7f || ngx_strchr("@?#\"'\\<>`{|}^", ch)) {
            return ngx_http_sandbox_package_invalid(cf, cmd, value, must);
        }
    }

    index->plain = (scheme == 7);
    host.data = value->data + scheme;
    host.len = 0;

    if (host.data[0] == '[') {
        while (host.data[host.len] != ']' && host.data[host.len] != '\0') {
            host.len++;
        }

        host.len += (host.data[host.len] == ']');

    } else {
        while (host.data[host.len] != '\0' && host.data[host.len] != '/'
               && host.data[host.len] != ':')
        {
            host.len++;
        }
    }

    rest.data = host.data + host.len;
    rest.len = value->len - scheme - host.len;

    switch (ngx_http_sandbox_package_host(cf->pool, index, &host, &rest)) {

    case NGX_OK:
        return NGX_CONF_OK;

    case NGX_DECLINED:
        return ngx_http_sandbox_package_invalid(cf, cmd, value, must);

    case NGX_ABORT:
        return ngx_http_sandbox_package_invalid(cf, cmd, value,
                   "an address that sessions can reach: of the host's "
                   "loopback only 127.0.0.0/8");

    default:
        return NGX_CONF_ERROR;
    }
}


static ngx_int_t
ngx_http_sandbox_package_host(ngx_pool_t *pool,
    ngx_http_sandbox_package_index_t *index, const ngx_str_t *host,
    const ngx_str_t *rest)
{
    u_char              *p, text[64];
    size_t               len, port;
    ngx_str_t            seen;
    sbx_error_t          e;
    sbx_network_rule_t   rule;
    struct in_addr       in;
    struct in6_addr      in6;

    for (port = 0; port < rest->len && rest->data[port] != '/'; port++) {
        if (port != 0 && (rest->data[port] < '0' || rest->data[port] > '9')) {
            return NGX_DECLINED;
        }
    }

    if (port != 0
        && (rest->data[0] != ':' || ngx_atoi(rest->data + 1, port - 1) < 1
            || ngx_atoi(rest->data + 1, port - 1) > 65535))
    {
        return NGX_DECLINED;
    }

    seen = *host;
    len = ngx_min(host->len, sizeof(text) - 1);
    ngx_memcpy(text, host->data, len);
    text[len] = '\0';

    if (host->len == sizeof("localhost") - 1
        && ngx_strncasecmp(host->data, (u_char *) "localhost", host->len)
           == 0)
    {
        ngx_str_set(&seen, "240.0.0.1");

    } else if (len == host->len && inet_pton(AF_INET, (char *) text, &in)) {

        if (ngx_strncmp(text, "127.", 4) == 0) {
            seen.data = ngx_pnalloc(pool, len);

            if (seen.data == NULL) {
                return NGX_ERROR;
            }

            ngx_memcpy(seen.data, text, len);
            ngx_memcpy(seen.data, "240", 3);
        }

    } else if (host->len > 2 && host->data[0] == '[') {
        text[len - 1] = '\0';

        if (len != host->len || host->data[len - 1] != ']'
            || !inet_pton(AF_INET6, (char *) text + 1, &in6))
        {
            return NGX_DECLINED;
        }

        if (IN6_IS_ADDR_LOOPBACK(&in6) || IN6_IS_ADDR_V4MAPPED(&in6)) {
            return NGX_ABORT;
        }

    } else if (sbx_network_rule_parse((char *) host->data, host->len, &rule,
                                      &e)
               != 0
               || rule.kind != SBX_NETWORK_HOST)
    {
        return NGX_DECLINED;
    }

    index->host.len = seen.len + port;
    index->host.data = ngx_pnalloc(pool, index->host.len);
    index->url.data = ngx_pnalloc(pool, sizeof("https://") + seen.len
                                        + rest->len);

    if (index->host.data == NULL || index->url.data == NULL) {
        return NGX_ERROR;
    }

    p = ngx_cpymem(index->host.data, seen.data, seen.len);
    ngx_memcpy(p, rest->data, port);

    p = ngx_cpymem(index->url.data, index->plain ? "http://" : "https://",
                   index->plain ? 7 : 8);
    p = ngx_cpymem(p, seen.data, seen.len);
    p = ngx_cpymem(p, rest->data, rest->len);
    index->url.len = p - index->url.data;

    return NGX_OK;
}


static char *
ngx_http_sandbox_package_ca(ngx_conf_t *cf, ngx_command_t *cmd,
    ngx_str_t *path)
{
    char         text[SBX_TRUST_MAX + 1];
    ssize_t      n;
    sbx_auto_fd  fd = -1;

    if (path->len == 0
        || ngx_conf_full_name(cf->cycle, path, 1) != NGX_OK
        || path->len >= SBX_PACKAGES_PATH)
    {
        return "needs a file after \"ca=\" whose name is not too long";
    }

    fd = open((char *) path->data, O_RDONLY|O_NONBLOCK|O_NOCTTY|O_CLOEXEC);
    n = (fd == -1) ? -1 : sbx_read_full(fd, text, sizeof(text));

    if (n == -1) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, ngx_errno,
                           "cannot read \"%V\" in \"%V\" directive", path,
                           &cmd->name);
        return NGX_CONF_ERROR;
    }

    if (n == sizeof(text)
        || memmem(text, (size_t) n, "-----BEGIN CERTIFICATE-----", 27)
           == NULL)
    {
        return ngx_http_sandbox_package_invalid(cf, cmd, path,
                   "a file of certificates (PEM) of at most 16 KB");
    }

    return NGX_CONF_OK;
}


/* sandbox_package_wheels DIR; sandbox_package_cache DIR; */

char *
ngx_http_sandbox_set_package_dir(ngx_conf_t *cf, ngx_command_t *cmd,
    void *conf)
{
    ngx_http_sandbox_main_conf_t  *smcf = conf;

    ngx_str_t                    *value, *dir;
    struct stat                   st;
    ngx_http_sandbox_packages_t  *packages;
    char SBX_CLEANUP(sbx_cleanup_free)
                                 *real = NULL;

    value = cf->args->elts;
    packages = ngx_http_sandbox_package_conf(cf, smcf);

    if (packages == NULL) {
        return NGX_CONF_ERROR;
    }

    dir = (ngx_str_t *) ((char *) packages + (uintptr_t) cmd->post);

    if (dir->data != NULL) {
        return "is duplicate";
    }

    if (value[1].len == 0 || value[1].data[0] != '/') {
        return ngx_http_sandbox_package_invalid(cf, cmd, &value[1],
                                                "an absolute path");
    }

    real = realpath((char *) value[1].data, NULL);

    if (real == NULL || stat(real, &st) == -1 || !S_ISDIR(st.st_mode)) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, real == NULL ? ngx_errno : 0,
                           "\"%V\" in \"%V\" directive is no directory",
                           &value[1], &cmd->name);
        return NGX_CONF_ERROR;
    }

    if (ngx_strcmp(real, "/") == 0 || ngx_strlen(real) >= SBX_PACKAGES_PATH)
    {
        return ngx_http_sandbox_package_invalid(cf, cmd, &value[1],
                   "a directory below the root, of at most 1023 bytes");
    }

    if ((st.st_mode & (S_IROTH|S_IXOTH)) != (S_IROTH|S_IXOTH)) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "\"%V\" in \"%V\" directive cannot be read by "
                           "sessions: chmod it to 0755, and its files to "
                           "0644", &value[1], &cmd->name);
        return NGX_CONF_ERROR;
    }

    dir->len = ngx_strlen(real);
    dir->data = ngx_pnalloc(cf->pool, dir->len + 1);

    if (dir->data == NULL) {
        return NGX_CONF_ERROR;
    }

    ngx_memcpy(dir->data, real, dir->len + 1);

    return NGX_CONF_OK;
}


/* sandbox_package allow|deny pip|npm NAME...; */

char *
ngx_http_sandbox_set_package(ngx_conf_t *cf, ngx_command_t *cmd, void *conf)
{
    ngx_http_sandbox_main_conf_t  *smcf = conf;

    ngx_int_t                     manager;
    ngx_str_t                    *value, *name, normal;
    ngx_uint_t                    i, deny;
    ngx_array_t                 **list;
    ngx_http_sandbox_packages_t  *packages;

    value = cf->args->elts;
    deny = (ngx_strcmp(value[1].data, "deny") == 0);

    if (!deny && ngx_strcmp(value[1].data, "allow") != 0) {
        return ngx_http_sandbox_package_invalid(cf, cmd, &value[1],
                                                "\"allow\" or \"deny\"");
    }

    manager = ngx_http_sandbox_package_manager(value[2].data, value[2].len);

    if (manager == NGX_DECLINED) {
        return ngx_http_sandbox_package_invalid(cf, cmd, &value[2],
                                                "\"pip\" or \"npm\"");
    }

    if (cf->args->nelts == 3) {
        return "needs the name of a package";
    }

    packages = ngx_http_sandbox_package_conf(cf, smcf);

    if (packages == NULL) {
        return NGX_CONF_ERROR;
    }

    list = deny ? &packages->deny[manager] : &packages->allow[manager];

    if (*list == NULL) {
        *list = ngx_array_create(cf->pool, 8, sizeof(ngx_str_t));

        if (*list == NULL) {
            return NGX_CONF_ERROR;
        }
    }

    for (i = 3; i < cf->args->nelts; i++) {

        if ((*list)->nelts == NGX_HTTP_SANDBOX_PACKAGE_NAMES) {
            return "names too many packages";
        }

        normal.data = ngx_pnalloc(cf->pool, value[i].len + 1);

        if (normal.data == NULL) {
            return NGX_CONF_ERROR;
        }

        if (!ngx_http_sandbox_package_name_ok(manager, value[i].data,
                                              value[i].len, 1))
        {
            return ngx_http_sandbox_package_invalid(cf, cmd, &value[i],
                       "the name of a package, or the beginning of one and "
                       "\"*\"");
        }

        normal.len = ngx_http_sandbox_package_normal(manager, value[i].data,
                                                     value[i].len,
                                                     normal.data);
        name = ngx_array_push(*list);

        if (name == NULL) {
            return NGX_CONF_ERROR;
        }

        *name = normal;
    }

    return NGX_CONF_OK;
}


/*
 * ---- what sessions and the broker are told -------------------------------
 */


static ngx_int_t
ngx_http_sandbox_package_variable(sbx_config_t *config, const char *fmt, ...)
{
    u_char   *p, *last;
    va_list   args;

    p = (u_char *) config->env + config->env_size;
    last = (u_char *) config->env + sizeof(config->env) - 1;

    if (p >= last) {
        return NGX_ERROR;
    }

    va_start(args, fmt);
    p = ngx_vslprintf(p, last, fmt, args);
    va_end(args);

    *p++ = '\0';
    config->env_size = (uint32_t) (p - (u_char *) config->env);

    return (p >= last) ? NGX_ERROR : NGX_OK;
}


/* Where both managers have a directory each, pip is not led to the other's. */

static void
ngx_http_sandbox_package_links(sbx_config_t *config, const ngx_str_t *dir,
    const char *shown, u_char *links, size_t size)
{
    u_char       *p, *last, path[SBX_PACKAGES_PATH + 8];
    struct stat   st;

    if (dir->len == 0) {
        return;
    }

    (void) ngx_sprintf(path, "%V/pip%Z", dir);

    p = links + ngx_strlen(links);
    last = links + size - 1;
    p = ngx_slprintf(p, last, "%s%s%s", p == links ? "" : " ", shown,
                     stat((char *) path, &st) == 0 && S_ISDIR(st.st_mode)
                     ? "/pip" : "");
    *p = '\0';
}


ngx_int_t
ngx_http_sandbox_packages_settle(ngx_conf_t *cf,
    ngx_http_sandbox_main_conf_t *smcf, sbx_config_t *config)
{
    u_char                              links[128];
    ngx_int_t                           rc;
    ngx_uint_t                          i;
    sbx_sha256_t                        s;
    ngx_http_sandbox_packages_t        *packages;
    ngx_http_sandbox_package_index_t   *index;

    static const char  *variables[] = { "PIP_INDEX_URL=%V",
                                        "npm_config_registry=%V" };

    packages = smcf->packages;

    if (packages == NULL) {
        return NGX_OK;
    }

    rc = NGX_OK;

    for (i = 0; i < NGX_HTTP_SANDBOX_PACKAGE_MANAGERS; i++) {
        index = &packages->index[i];

        if (index->url.data == NULL) {
            continue;
        }

        rc |= ngx_http_sandbox_package_variable(config, variables[i],
                                                &index->url);

        if (index->plain && i == NGX_HTTP_SANDBOX_PACKAGE_PIP) {
            rc |= ngx_http_sandbox_package_variable(config,
                                                    "PIP_TRUSTED_HOST=%V",
                                                    &index->host);
        }

        (void) sbx_copy_string(config->trust[i], sizeof(config->trust[i]),
                               (char *) index->ca.data, index->ca.len);
    }

    (void) sbx_copy_string(config->packages, sizeof(config->packages),
                           (char *) packages->wheels.data,
                           packages->wheels.len);
    (void) sbx_copy_string(config->package_cache,
                           sizeof(config->package_cache),
                           (char *) packages->cache.data,
                           packages->cache.len);

    links[0] = '\0';
    ngx_http_sandbox_package_links(config, &packages->wheels, SBX_PACKAGES,
                                   links, sizeof(links));
    ngx_http_sandbox_package_links(config, &packages->cache,
                                   SBX_PACKAGE_CACHE, links, sizeof(links));

    if (links[0] != '\0') {
        rc |= ngx_http_sandbox_package_variable(config, "PIP_FIND_LINKS=%s",
                                                links);
    }

    if (rc != NGX_OK) {
        ngx_log_error(NGX_LOG_EMERG, cf->log, 0,
                      "what \"sandbox_package_index\" says is too long");
        return NGX_ERROR;
    }

    /* sessions that were made ahead have what held before */

    sbx_sha256_init(&s);
    sbx_sha256_update(&s, config->defaults, sizeof(config->defaults));
    sbx_sha256_update(&s, config->env, config->env_size);
    sbx_sha256_update(&s, config->packages, sizeof(config->packages));
    sbx_sha256_update(&s, config->package_cache,
                      sizeof(config->package_cache));
    sbx_sha256_update(&s, config->trust, sizeof(config->trust));
    sbx_sha256_final(&s, config->defaults);

    return NGX_OK;
}
