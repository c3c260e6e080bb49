/*
 * Packages that sessions install: what configuration says of them, and which
 * names it lets through.
 */

#ifndef _NGX_HTTP_SANDBOX_PACKAGE_H_INCLUDED_
#define _NGX_HTTP_SANDBOX_PACKAGE_H_INCLUDED_


#include "ngx_http_sandbox.h"


#define NGX_HTTP_SANDBOX_PACKAGE_PIP        0
#define NGX_HTTP_SANDBOX_PACKAGE_NPM        1
#define NGX_HTTP_SANDBOX_PACKAGE_MANAGERS   2

#define NGX_HTTP_SANDBOX_PACKAGE_NAME         214      /* npm's longest */
#define NGX_HTTP_SANDBOX_PACKAGE_VERSION      128
#define NGX_HTTP_SANDBOX_PACKAGE_REQUIREMENT  1024


typedef struct {
    ngx_str_t                          url;     /* as sessions use it */
    ngx_str_t                          host;    /* of it, with its port */
    ngx_str_t                          ca;
    ngx_uint_t                         plain;   /* without TLS */
} ngx_http_sandbox_package_index_t;

struct ngx_http_sandbox_packages_s {
    /* by manager */
    ngx_http_sandbox_package_index_t   index[2];
    ngx_array_t                       *allow[2];   /* of ngx_str_t, in their */
    ngx_array_t                       *deny[2];    /* one form */

    ngx_str_t                          wheels;
    ngx_str_t                          cache;
};


char *ngx_http_sandbox_set_package_index(ngx_conf_t *cf, ngx_command_t *cmd,
    void *conf);
char *ngx_http_sandbox_set_package_dir(ngx_conf_t *cf, ngx_command_t *cmd,
    void *conf);
char *ngx_http_sandbox_set_package(ngx_conf_t *cf, ngx_command_t *cmd,
    void *conf);
/* Runs after the templates'.  NGX_ERROR is logged. */
ngx_int_t ngx_http_sandbox_packages_settle(ngx_conf_t *cf,
    ngx_http_sandbox_main_conf_t *smcf, sbx_config_t *config);

/* NGX_DECLINED: there is no such manager. */
ngx_int_t ngx_http_sandbox_package_manager(const void *name, size_t len);
/* Whether a package may be called so; pattern: "*" may end it. */
ngx_uint_t ngx_http_sandbox_package_name_ok(ngx_uint_t manager,
    const u_char *name, size_t len, ngx_uint_t pattern);
/* One form of all that a manager takes for the same; its length.  out has
 * room for all of name. */
size_t ngx_http_sandbox_package_normal(ngx_uint_t manager,
    const u_char *name, size_t len, u_char *out);
ngx_uint_t ngx_http_sandbox_package_version_ok(const u_char *p, size_t len);
/* What is wrong with a requirement that is asked for; NULL: nothing, and
 * *name bytes of it are the name. */
const char *ngx_http_sandbox_package_fault(ngx_uint_t manager,
    const u_char *p, size_t len, size_t *name);
/* Whether there is anything that names are held against; and whether one
 * may be installed. */
ngx_uint_t ngx_http_sandbox_package_lists(
    const ngx_http_sandbox_main_conf_t *smcf, ngx_uint_t manager);
ngx_uint_t ngx_http_sandbox_package_allowed(
    const ngx_http_sandbox_main_conf_t *smcf, ngx_uint_t manager,
    const u_char *name, size_t len);


#endif /* _NGX_HTTP_SANDBOX_PACKAGE_H_INCLUDED_ */
