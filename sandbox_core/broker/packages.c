/*
 * What configuration gives sessions to install packages with: variables that
 * come before the session's own, so that these win, certificates, and
 * directories that are shown.  None of it lets anybody out: that is the
 * egress's.
 */

#include "packages.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>


/* Where a session trusts more than its machine does: every program that
 * comes with certificates of its own is told of the session's bundle. */
static const char  sbx_packages_trust[] =
    "SSL_CERT_FILE=/etc/ssl/certs/ca-certificates.crt\0"
    "REQUESTS_CA_BUNDLE=/etc/ssl/certs/ca-certificates.crt\0"
    "CURL_CA_BUNDLE=/etc/ssl/certs/ca-certificates.crt\0"
    "GIT_SSL_CAINFO=/etc/ssl/certs/ca-certificates.crt\0"
    "PIP_CERT=/etc/ssl/certs/ca-certificates.crt\0"
    "NODE_EXTRA_CA_CERTS=/etc/ssl/certs/sandbox-egress.pem";

_Static_assert(sizeof(sbx_packages_trust) <= SBX_OWN_ENV_MAX,
               "init takes twice that before a session's own");


static int sbx_packages_certificates(const sbx_config_t *config,
    sbx_launch_t *launch, sbx_packages_own_t *own, sbx_error_t *e);
static size_t sbx_packages_file(const char *path, char *buf, size_t size);


int
sbx_packages_config_ok(const sbx_config_t *config)
{
    size_t       i, len;
    const char  *p, *end;

    const struct {
        const char  *path;
        size_t       size;
    } paths[] = {
        { config->packages, sizeof(config->packages) },
        { config->package_cache, sizeof(config->package_cache) },
        { config->trust[0], sizeof(config->trust[0]) },
        { config->trust[1], sizeof(config->trust[1]) }
    };

    for (i = 0; i < sbx_nelts(paths); i++) {
        if (memchr(paths[i].path, '\0', paths[i].size) == NULL
            || (paths[i].path[0] != '\0' && paths[i].path[0] != '/'))
        {
            return 0;
        }
    }

    if (config->env_size > sizeof(config->env)
        || (config->env_size != 0
            && config->env[config->env_size - 1] != '\0'))
    {
        return 0;
    }

    end = config->env + config->env_size;

    for (p = config->env; p < end; p += len + 1) {
        len = strlen(p);

        if (p[0] == '=' || memchr(p, '=', len) == NULL) {
            return 0;
        }
    }

    return 1;
}


int
sbx_packages_change(sbx_config_t *own, const sbx_config_t *config)
{
    int  other;

    other = strcmp(own->packages, config->packages) != 0
            || strcmp(own->package_cache, config->package_cache) != 0
            || strcmp(own->trust[0], config->trust[0]) != 0
            || strcmp(own->trust[1], config->trust[1]) != 0
            || own->env_size != config->env_size
            || memcmp(own->env, config->env, config->env_size) != 0;

    memcpy(own->packages, config->packages, sizeof(own->packages));
    memcpy(own->package_cache, config->package_cache,
           sizeof(own->package_cache));
    memcpy(own->trust, config->trust, sizeof(own->trust));
    memcpy(own->env, config->env, sizeof(own->env));
    own->env_size = config->env_size;

    return other;
}


int
sbx_packages_launch(const sbx_broker_t *b, const char *template,
    sbx_launch_t *launch, sbx_packages_own_t *own, sbx_error_t *e)
{
    char                *p;
    size_t               told, env;
    const sbx_config_t  *config;

    config = &b->config;
    told = (config->trust[0][0] != '\0' || config->trust[1][0] != '\0')
           ? sizeof(sbx_packages_trust) : 0;

    if (sbx_egress_table_tls(config->egress, config->egress_size,
                             sbx_create_means(b, template)))
    {
        told = sizeof(sbx_packages_trust);

    } else {
        launch->trust_size = 0;
    }

    if (config->packages[0] != '\0') {
        launch->packages = config->packages;
    }

    if (config->package_cache[0] != '\0') {
        launch->package_cache = config->package_cache;
    }

    if (told != 0
        && sbx_packages_certificates(config, launch, own, e) != 0)
    {
        return -1;
    }

    env = told + config->env_size;

    if (env == 0) {
        return 0;
    }

    own->env = malloc(env + launch->env_size);

    if (own->env == NULL) {
        return sbx_error(e, 0, SBX_E_UNAVAILABLE, "out of memory");
    }

    p = own->env;
    memcpy(p, sbx_packages_trust, told);
    p += told;
    memcpy(p, config->env, config->env_size);
    p += config->env_size;

    if (launch->env_size != 0) {
        memcpy(p, launch->env, launch->env_size);
    }

    launch->env = own->env;
    launch->env_size += env;

    return 0;
}


/* Behind what the caller has set: each ends with a newline. */
static int
sbx_packages_certificates(const sbx_config_t *config, sbx_launch_t *launch,
    sbx_packages_own_t *own, sbx_error_t *e)
{
    size_t  i, used;

    own->trust = malloc(launch->trust_size + 1 + 2 * (SBX_TRUST_MAX + 1));

    if (own->trust == NULL) {
        return sbx_error(e, 0, SBX_E_UNAVAILABLE, "out of memory");
    }

    used = launch->trust_size;

    if (used != 0) {
        memcpy(own->trust, launch->trust, used);
        own->trust[used++] = '\n';
    }

    for (i = 0; i < sbx_nelts(config->trust); i++) {
        if (config->trust[i][0] != '\0') {
            used += sbx_packages_file(config->trust[i], own->trust + used,
                                      SBX_TRUST_MAX + 1);
        }
    }

    launch->trust = own->trust;
    launch->trust_size = used;

    return 0;
}


/* What it has now, or nothing: then what it is for fails, and says so. */
static size_t
sbx_packages_file(const char *path, char *buf, size_t size)
{
    ssize_t      n;
    struct stat  st;
    sbx_auto_fd  fd = -1;

    fd = open(path, O_RDONLY|O_NONBLOCK|O_NOCTTY|O_CLOEXEC);

    if (fd == -1 || fstat(fd, &st) == -1 || !S_ISREG(st.st_mode)
        || st.st_size >= (off_t) size)
    {
        return 0;
    }

    n = sbx_read_full(fd, buf, size - 1);

    if (n <= 0) {
        return 0;
    }

    buf[n] = '\n';

    return (size_t) n + 1;
}


void
sbx_packages_own_free(sbx_packages_own_t *own)
{
    free(own->env);
    free(own->trust);
}
