#include "ngx_http_sandbox_file_threads.h"
#include "ngx_http_sandbox_package.h"


#ifndef SBX_HELPER_DIR
#define SBX_HELPER_DIR  "/usr/lib/nginx/sandbox"
#endif


static void *ngx_http_sandbox_create_main_conf(ngx_conf_t *cf);
static char *ngx_http_sandbox_init_main_conf(ngx_conf_t *cf, void *conf);
static void *ngx_http_sandbox_create_loc_conf(ngx_conf_t *cf);
static char *ngx_http_sandbox_merge_loc_conf(ngx_conf_t *cf, void *parent,
    void *child);
static char *ngx_http_sandbox_check_identity(ngx_conf_t *cf,
    const ngx_http_sandbox_loc_conf_t *conf, ngx_uint_t own);
static ngx_int_t ngx_http_sandbox_set_threads(ngx_conf_t *cf,
    const ngx_http_sandbox_loc_conf_t *conf, ngx_http_core_loc_conf_t *clcf);
static ngx_int_t ngx_http_sandbox_postconfiguration(ngx_conf_t *cf);


/* What is below holds no useful request, what is above would fill a worker. */

static ngx_http_sandbox_size_bounds_t  ngx_http_sandbox_json_bounds = {
    1024, 1024 * 1024 * 1024, 0
};

static ngx_http_sandbox_size_bounds_t  ngx_http_sandbox_upload_bounds = {
    0, NGX_MAX_OFF_T_VALUE, 1
};


/* Of milliseconds. */

static ngx_conf_num_bounds_t  ngx_http_sandbox_port_timeout_bounds = {
    ngx_conf_check_num_bounds, 1, -1
};


static ngx_command_t  ngx_http_sandbox_commands[] = {

    { ngx_string("sandbox_api"),
      NGX_HTTP_LOC_CONF|NGX_CONF_TAKE1,
      ngx_http_sandbox_set_api,
      NGX_HTTP_LOC_CONF_OFFSET,
      offsetof(ngx_http_sandbox_loc_conf_t, api),
      NULL },

    { ngx_string("sandbox_state_dir"),
      NGX_HTTP_MAIN_CONF|NGX_CONF_TAKE1,
      ngx_http_sandbox_set_path,
      NGX_HTTP_MAIN_CONF_OFFSET,
      offsetof(ngx_http_sandbox_main_conf_t, state_dir),
      NULL },

    { ngx_string("sandbox_template_dir"),
      NGX_HTTP_MAIN_CONF|NGX_CONF_TAKE1,
      ngx_http_sandbox_set_path,
      NGX_HTTP_MAIN_CONF_OFFSET,
      offsetof(ngx_http_sandbox_main_conf_t, template_dir),
      NULL },

    { ngx_string("sandbox_helper_dir"),
      NGX_HTTP_MAIN_CONF|NGX_CONF_TAKE1,
      ngx_http_sandbox_set_path,
      NGX_HTTP_MAIN_CONF_OFFSET,
      offsetof(ngx_http_sandbox_main_conf_t, helper_dir),
      NULL },

    { ngx_string("sandbox_uid_range"),
      NGX_HTTP_MAIN_CONF|NGX_CONF_TAKE1,
      ngx_http_sandbox_set_uid_range,
      NGX_HTTP_MAIN_CONF_OFFSET,
      0,
      NULL },

    { ngx_string("sandbox_cgroup"),
      NGX_HTTP_MAIN_CONF|NGX_CONF_TAKE1,
      ngx_http_sandbox_set_cgroup,
      NGX_HTTP_MAIN_CONF_OFFSET,
      offsetof(ngx_http_sandbox_main_conf_t, cgroup),
      NULL },

    { ngx_string("sandbox_storage"),
      NGX_HTTP_MAIN_CONF|NGX_CONF_TAKE12,
      ngx_http_sandbox_set_storage,
      NGX_HTTP_MAIN_CONF_OFFSET,
      offsetof(ngx_http_sandbox_main_conf_t, storage_dir),
      NULL },

    { ngx_string("sandbox_default"),
      NGX_HTTP_MAIN_CONF|NGX_CONF_1MORE,
      ngx_http_sandbox_set_limits,
      NGX_HTTP_MAIN_CONF_OFFSET,
      offsetof(ngx_http_sandbox_main_conf_t, def),
      NULL },

    { ngx_string("sandbox_max"),
      NGX_HTTP_MAIN_CONF|NGX_CONF_1MORE,
      ngx_http_sandbox_set_limits,
      NGX_HTTP_MAIN_CONF_OFFSET,
      offsetof(ngx_http_sandbox_main_conf_t, max),
      NULL },

    { ngx_string("sandbox_bind"),
      NGX_HTTP_MAIN_CONF|NGX_CONF_2MORE,
      ngx_http_sandbox_set_bind,
      NGX_HTTP_MAIN_CONF_OFFSET,
      0,
      NULL },

    /* what may be reached */

    { ngx_string("sandbox_egress"),
      NGX_HTTP_MAIN_CONF|NGX_CONF_2MORE,
      ngx_http_sandbox_set_egress,
      NGX_HTTP_MAIN_CONF_OFFSET,
      0,
      NULL },

    { ngx_string("sandbox_egress_private"),
      NGX_HTTP_MAIN_CONF|NGX_CONF_TAKE1,
      ngx_http_sandbox_set_egress,
      NGX_HTTP_MAIN_CONF_OFFSET,
      0,
      NULL },

    { ngx_string("sandbox_egress_header"),
      NGX_HTTP_MAIN_CONF|NGX_CONF_TAKE3|NGX_CONF_TAKE4,
      ngx_http_sandbox_set_egress,
      NGX_HTTP_MAIN_CONF_OFFSET,
      0,
      NULL },

    { ngx_string("sandbox_egress_resolver"),
      NGX_HTTP_MAIN_CONF|NGX_CONF_1MORE,
      ngx_http_sandbox_set_egress_resolver,
      NGX_HTTP_MAIN_CONF_OFFSET,
      0,
      NULL },

    { ngx_string("sandbox_egress_ca"),
      NGX_HTTP_MAIN_CONF|NGX_CONF_TAKE1,
      ngx_http_sandbox_set_egress_ca,
      NGX_HTTP_MAIN_CONF_OFFSET,
      offsetof(ngx_http_sandbox_main_conf_t, egress_ca),
      NULL },

    { ngx_string("sandbox_exec_timeout"),
      NGX_HTTP_MAIN_CONF|NGX_CONF_TAKE1,
      ngx_http_sandbox_set_exec_timeout,
      NGX_HTTP_MAIN_CONF_OFFSET,
      offsetof(ngx_http_sandbox_main_conf_t, def),
      NULL },

    { ngx_string("sandbox_require_isolation"),
      NGX_HTTP_MAIN_CONF|NGX_CONF_FLAG,
      ngx_conf_set_flag_slot,
      NGX_HTTP_MAIN_CONF_OFFSET,
      offsetof(ngx_http_sandbox_main_conf_t, require_isolation),
      NULL },

    { ngx_string("sandbox_max_json"),
      NGX_HTTP_MAIN_CONF|NGX_HTTP_SRV_CONF|NGX_HTTP_LOC_CONF|NGX_CONF_TAKE1,
      ngx_http_sandbox_set_size,
      NGX_HTTP_LOC_CONF_OFFSET,
      offsetof(ngx_http_sandbox_loc_conf_t, max_json),
      &ngx_http_sandbox_json_bounds },

    { ngx_string("sandbox_max_upload"),
      NGX_HTTP_MAIN_CONF|NGX_HTTP_SRV_CONF|NGX_HTTP_LOC_CONF|NGX_CONF_TAKE1,
      ngx_http_sandbox_set_size,
      NGX_HTTP_LOC_CONF_OFFSET,
      offsetof(ngx_http_sandbox_loc_conf_t, max_upload),
      &ngx_http_sandbox_upload_bounds },

    /* quotas and identity */

    { ngx_string("sandbox_quota"),
      NGX_HTTP_MAIN_CONF|NGX_CONF_2MORE,
      ngx_http_sandbox_set_quota,
      NGX_HTTP_MAIN_CONF_OFFSET,
      0,
      NULL },

    { ngx_string("sandbox_tenant"),
      NGX_HTTP_MAIN_CONF|NGX_HTTP_SRV_CONF|NGX_HTTP_LOC_CONF|NGX_CONF_TAKE1,
      ngx_http_set_complex_value_slot,
      NGX_HTTP_LOC_CONF_OFFSET,
      offsetof(ngx_http_sandbox_loc_conf_t, tenant),
      NULL },

    { ngx_string("sandbox_user"),
      NGX_HTTP_MAIN_CONF|NGX_HTTP_SRV_CONF|NGX_HTTP_LOC_CONF|NGX_CONF_TAKE1,
      ngx_http_set_complex_value_slot,
      NGX_HTTP_LOC_CONF_OFFSET,
      offsetof(ngx_http_sandbox_loc_conf_t, user),
      NULL },

    { ngx_string("sandbox_keys"),
      NGX_HTTP_MAIN_CONF|NGX_HTTP_SRV_CONF|NGX_HTTP_LOC_CONF|NGX_CONF_TAKE1,
      ngx_http_sandbox_set_keys,
      NGX_HTTP_LOC_CONF_OFFSET,
      0,
      NULL },

    { ngx_string("sandbox_e2b_domain"),
      NGX_HTTP_MAIN_CONF|NGX_HTTP_SRV_CONF|NGX_HTTP_LOC_CONF|NGX_CONF_TAKE1,
      ngx_http_sandbox_set_e2b_domain,
      NGX_HTTP_LOC_CONF_OFFSET,
      0,
      NULL },

    /* ports */

    { ngx_string("sandbox_port_host"),
      NGX_HTTP_LOC_CONF|NGX_CONF_TAKE1,
      ngx_http_sandbox_set_port_host,
      NGX_HTTP_LOC_CONF_OFFSET,
      offsetof(ngx_http_sandbox_loc_conf_t, port_host),
      NULL },

    { ngx_string("sandbox_port_timeout"),
      NGX_HTTP_MAIN_CONF|NGX_HTTP_SRV_CONF|NGX_HTTP_LOC_CONF|NGX_CONF_TAKE1,
      ngx_conf_set_msec_slot,
      NGX_HTTP_LOC_CONF_OFFSET,
      offsetof(ngx_http_sandbox_loc_conf_t, port_timeout),
      &ngx_http_sandbox_port_timeout_bounds },

    /* seeing */

    { ngx_string("sandbox_audit_log"),
      NGX_HTTP_MAIN_CONF|NGX_CONF_TAKE12,
      ngx_http_sandbox_set_audit,
      NGX_HTTP_MAIN_CONF_OFFSET,
      0,
      NULL },

    { ngx_string("sandbox_template"),
      NGX_HTTP_MAIN_CONF|NGX_CONF_BLOCK|NGX_CONF_TAKE1,
      ngx_http_sandbox_set_template,
      NGX_HTTP_MAIN_CONF_OFFSET,
      0,
      NULL },

    { ngx_string("sandbox_pool"),
      NGX_HTTP_MAIN_CONF|NGX_CONF_TAKE23,
      ngx_http_sandbox_set_pool,
      NGX_HTTP_MAIN_CONF_OFFSET,
      0,
      NULL },

    /* packages */

    { ngx_string("sandbox_package_index"),
      NGX_HTTP_MAIN_CONF|NGX_CONF_TAKE23,
      ngx_http_sandbox_set_package_index,
      NGX_HTTP_MAIN_CONF_OFFSET,
      0,
      NULL },

    { ngx_string("sandbox_package_wheels"),
      NGX_HTTP_MAIN_CONF|NGX_CONF_TAKE1,
      ngx_http_sandbox_set_package_dir,
      NGX_HTTP_MAIN_CONF_OFFSET,
      0,
      (void *) offsetof(ngx_http_sandbox_packages_t, wheels) },

    { ngx_string("sandbox_package_cache"),
      NGX_HTTP_MAIN_CONF|NGX_CONF_TAKE1,
      ngx_http_sandbox_set_package_dir,
      NGX_HTTP_MAIN_CONF_OFFSET,
      0,
      (void *) offsetof(ngx_http_sandbox_packages_t, cache) },

    { ngx_string("sandbox_package"),
      NGX_HTTP_MAIN_CONF|NGX_CONF_2MORE,
      ngx_http_sandbox_set_package,
      NGX_HTTP_MAIN_CONF_OFFSET,
      0,
      NULL },

      ngx_null_command
};


static ngx_http_module_t  ngx_http_sandbox_module_ctx = {
    ngx_http_sandbox_add_variables,        /* preconfiguration */
    ngx_http_sandbox_postconfiguration,    /* postconfiguration */

    ngx_http_sandbox_create_main_conf,     /* create main configuration */
    ngx_http_sandbox_init_main_conf,       /* init main configuration */

    NULL,                                  /* create server configuration */
    NULL,                                  /* merge server configuration */

    ngx_http_sandbox_create_loc_conf,      /* create location configuration */
    ngx_http_sandbox_merge_loc_conf        /* merge location configuration */
};


ngx_module_t  ngx_http_sandbox_module = {
    NGX_MODULE_V1,
    &ngx_http_sandbox_module_ctx,          /* module context */
    ngx_http_sandbox_commands,             /* module directives */
    NGX_HTTP_MODULE,                       /* module type */
    NULL,                                  /* init master */
    ngx_http_sandbox_init_module,          /* init module */
    ngx_http_sandbox_init_process,         /* init process */
    NULL,                                  /* init thread */
    NULL,                                  /* exit thread */
    ngx_http_sandbox_exit_process,         /* exit process */
    NULL,                                  /* exit master */
    NGX_MODULE_V1_PADDING
};


static void *
ngx_http_sandbox_create_main_conf(ngx_conf_t *cf)
{
    ngx_uint_t                     i;
    ngx_http_sandbox_main_conf_t  *smcf;

    smcf = ngx_pcalloc(cf->pool, sizeof(ngx_http_sandbox_main_conf_t));

    if (smcf == NULL) {
        return NULL;
    }

    smcf->quotas = ngx_pcalloc(cf->pool, sizeof(sbx_quota_config_t));

    if (smcf->quotas == NULL) {
        return NULL;
    }

    smcf->quotas->set = 1;

    for (i = 0; i < SBX_SCOPES; i++) {
        sbx_quota_clear(&smcf->quotas->defaults[i]);
    }

    /*
     * set by ngx_pcalloc():
     *
     *     smcf->state_dir = { 0, NULL };
     *     smcf->template_dir = { 0, NULL };
     *     smcf->helper_dir = { 0, NULL };
     *     smcf->cgroup = { 0, NULL };
     *     smcf->storage_dir = { 0, NULL };
     *     smcf->uid_count = 0;
     *     smcf->binds = NULL;
     *     smcf->binds_size = 0;
     *     smcf->egress = { NULL, 0 };
     *     smcf->egress_resolvers = NULL;
     *     smcf->egress_ca = { 0, NULL };
     *     smcf->config = NULL;
     *     smcf->used = 0;
     *     smcf->nobody = 0;
     *     smcf->audit = NULL;
     *     smcf->audit_set = 0;
     *     smcf->audit_hash = 0;
     *     smcf->metrics = NULL;
     *     smcf->templates = NULL;
     *     smcf->packages = NULL;
     */

    smcf->require_isolation = NGX_CONF_UNSET;
    smcf->storage = NGX_CONF_UNSET_UINT;
    smcf->control = NGX_INVALID_FILE;
    smcf->request_id = NGX_CONF_UNSET;

    sbx_limits_clear(&smcf->def);
    sbx_limits_clear(&smcf->max);

    return smcf;
}


static char *
ngx_http_sandbox_init_main_conf(ngx_conf_t *cf, void *conf)
{
    ngx_http_sandbox_main_conf_t  *smcf = conf;

    sbx_config_t  *config;

    ngx_conf_init_value(smcf->require_isolation, 1);
    ngx_conf_init_uint_value(smcf->storage, SBX_STORAGE_AUTO);

    if (smcf->state_dir.data == NULL) {
        ngx_str_set(&smcf->state_dir, "sandbox");
    }

    if (smcf->helper_dir.data == NULL) {
        ngx_str_set(&smcf->helper_dir, SBX_HELPER_DIR);
    }

    if (ngx_http_sandbox_full_path(cf->cycle, &smcf->state_dir) != NGX_OK
        || ngx_http_sandbox_full_path(cf->cycle, &smcf->helper_dir) != NGX_OK)
    {
        return NGX_CONF_ERROR;
    }

    if (smcf->uid_count == 0) {
        smcf->uid_first = 1879048192;
        smcf->uid_count = 2147418111 - 1879048192 + 1;
    }

    if (ngx_http_sandbox_settle_limits(cf, smcf) != NGX_CONF_OK) {
        return NGX_CONF_ERROR;
    }

    config = ngx_pcalloc(cf->pool, sizeof(sbx_config_t));

    if (config == NULL) {
        return NGX_CONF_ERROR;
    }

    config->uid_first = smcf->uid_first;
    config->uid_count = smcf->uid_count;
    config->max = smcf->max;
    config->require_isolation = (uint32_t) smcf->require_isolation;
    config->storage = (uint32_t) smcf->storage;

    /* the setters hold all to less than these arrays */

    (void) ngx_snprintf((u_char *) config->template_dir,
                        sizeof(config->template_dir) - 1, "%V",
                        &smcf->template_dir);
    (void) ngx_snprintf((u_char *) config->cgroup,
                        sizeof(config->cgroup) - 1, "%V", &smcf->cgroup);
    (void) ngx_snprintf((u_char *) config->storage_dir,
                        sizeof(config->storage_dir) - 1, "%V",
                        &smcf->storage_dir);

    if (smcf->binds_size != 0) {
        ngx_memcpy(config->binds, smcf->binds, smcf->binds_size);
        config->binds_size = (uint32_t) smcf->binds_size;
    }

    config->quotas = *smcf->quotas;

    if (ngx_http_sandbox_templates_settle(cf, smcf, config) != NGX_OK
        || ngx_http_sandbox_packages_settle(cf, smcf, config) != NGX_OK
        || ngx_http_sandbox_pools_settle(cf, smcf, config) != NGX_OK)
    {
        return NGX_CONF_ERROR;
    }

    smcf->config = config;

    return NGX_CONF_OK;
}


static void *
ngx_http_sandbox_create_loc_conf(ngx_conf_t *cf)
{
    ngx_http_sandbox_loc_conf_t  *slcf;

    slcf = ngx_pcalloc(cf->pool, sizeof(ngx_http_sandbox_loc_conf_t));

    if (slcf == NULL) {
        return NULL;
    }

    /*
     * set by ngx_pcalloc():
     *
     *     slcf->api = NGX_HTTP_SANDBOX_API_OFF;
     *     slcf->e2b_domain = { 0, NULL };
     */

    slcf->max_json = NGX_CONF_UNSET_SIZE;
    slcf->max_upload = NGX_CONF_UNSET;
    slcf->tenant = NGX_CONF_UNSET_PTR;
    slcf->user = NGX_CONF_UNSET_PTR;
    slcf->keys = NGX_CONF_UNSET_PTR;

    ngx_http_sandbox_port_create_conf(slcf);

    return slcf;
}


static char *
ngx_http_sandbox_merge_loc_conf(ngx_conf_t *cf, void *parent, void *child)
{
    ngx_http_sandbox_loc_conf_t  *prev = parent;
    ngx_http_sandbox_loc_conf_t  *conf = child;

    ngx_uint_t                     own;
    ngx_http_core_loc_conf_t      *clcf;

    own = (conf->keys != NGX_CONF_UNSET_PTR);

    ngx_conf_merge_ptr_value(conf->tenant, prev->tenant, NULL);
    ngx_conf_merge_ptr_value(conf->user, prev->user, NULL);
    ngx_conf_merge_ptr_value(conf->keys, prev->keys, NULL);
    ngx_conf_merge_str_value(conf->e2b_domain, prev->e2b_domain, "");
    ngx_conf_merge_size_value(conf->max_json, prev->max_json,
                              1024 * 1024);
    ngx_conf_merge_off_value(conf->max_upload, prev->max_upload,
                             (off_t) 1024 * 1024 * 1024);

    if (ngx_http_sandbox_port_merge_conf(cf, prev, conf) != NGX_CONF_OK) {
        return NGX_CONF_ERROR;
    }

    /*
     * As a handler, an API is its location's own and not inherited, but the
     * blocks "if" and "limit_except" are parts of the location.
     */

    clcf = ngx_http_conf_get_module_loc_conf(cf, ngx_http_core_module);

    if (clcf->noname || clcf->lmt_excpt) {
        conf->api = prev->api;
    }

    if (clcf->lmt_excpt && clcf->handler == NULL
        && conf->api != NGX_HTTP_SANDBOX_API_OFF)
    {
        clcf->handler = ngx_http_sandbox_handler;
    }

    if (ngx_http_sandbox_set_threads(cf, conf, clcf) != NGX_OK) {
        return NGX_CONF_ERROR;
    }

    return ngx_http_sandbox_check_identity(cf, conf, own);
}


/*
 * A file of a session is read for as long as the session likes: its code may
 * hold the lock that sendfile() and read() wait for.  So threads do that, as
 * by "aio threads", and other threads than those of locations that say just
 * this.  Core's own part has been merged before.
 */

static ngx_int_t
ngx_http_sandbox_set_threads(ngx_conf_t *cf,
    const ngx_http_sandbox_loc_conf_t *conf, ngx_http_core_loc_conf_t *clcf)
{
#if (NGX_THREADS)

    static ngx_str_t  name = ngx_string("default");

    if (conf->api == NGX_HTTP_SANDBOX_API_OFF) {
        return NGX_OK;
    }

    if (clcf->aio == NGX_HTTP_AIO_THREADS
        && (clcf->thread_pool == NULL
            || clcf->thread_pool != ngx_thread_pool_get(cf->cycle, &name)))
    {
        return NGX_OK;
    }

    clcf->aio = NGX_HTTP_AIO_THREADS;
    clcf->thread_pool_value = NULL;
    clcf->thread_pool = ngx_http_sandbox_file_pool(cf);

    return (clcf->thread_pool != NULL) ? NGX_OK : NGX_ERROR;

#else

    return NGX_OK;

#endif
}


/* own: the keys are said of this block itself. */

static char *
ngx_http_sandbox_check_identity(ngx_conf_t *cf,
    const ngx_http_sandbox_loc_conf_t *conf, ngx_uint_t own)
{
    ngx_http_core_loc_conf_t      *clcf;
    ngx_http_sandbox_main_conf_t  *smcf;

    clcf = ngx_http_conf_get_module_loc_conf(cf, ngx_http_core_module);
    smcf = ngx_http_conf_get_module_main_conf(cf, ngx_http_sandbox_module);

    switch (conf->api) {

    case NGX_HTTP_SANDBOX_API_V1:
        smcf->nobody |= (conf->tenant == NULL && conf->keys == NULL);
        break;

    case NGX_HTTP_SANDBOX_API_E2B:
        smcf->anybody |= (conf->tenant == NULL && conf->keys == NULL);
        break;

    case NGX_HTTP_SANDBOX_API_OFF:

        if (conf->port_host.len != 0) {
            break;
        }

        return NGX_CONF_OK;

    default:

        /* who has a key is somebody's user, and no operator */

        if (own && conf->keys != NULL) {
            ngx_log_error(NGX_LOG_EMERG, cf->log, 0,
                          "\"sandbox_keys\" is for the APIs \"v1\" and "
                          "\"e2b\", and guards nothing in location \"%V\"",
                          &clcf->name);
            return NGX_CONF_ERROR;
        }

        return NGX_CONF_OK;
    }

    if (conf->keys != NULL && (conf->tenant != NULL || conf->user != NULL)) {
        ngx_log_error(NGX_LOG_EMERG, cf->log, 0,
                      "\"sandbox_keys\" and \"%s\" both tell who asks in "
                      "location \"%V\": leave one of them out, or say "
                      "\"sandbox_keys off\" there",
                      conf->tenant != NULL ? "sandbox_tenant"
                                           : "sandbox_user", &clcf->name);
        return NGX_CONF_ERROR;
    }

    return NGX_CONF_OK;
}


static ngx_int_t
ngx_http_sandbox_postconfiguration(ngx_conf_t *cf)
{
    ngx_http_handler_pt           *h;
    ngx_http_core_main_conf_t     *cmcf;
    ngx_http_sandbox_main_conf_t  *smcf;

    static ngx_str_t  name = ngx_string("request_id");

    smcf = ngx_http_conf_get_module_main_conf(cf, ngx_http_sandbox_module);

    /* only an indexed variable keeps the value that it once had */

    smcf->request_id = ngx_http_get_variable_index(cf, &name);

    if (smcf->request_id == NGX_ERROR
        || ngx_http_sandbox_metrics_zone(cf, smcf) != NGX_OK)
    {
        return NGX_ERROR;
    }

    cmcf = ngx_http_conf_get_module_main_conf(cf, ngx_http_core_module);
    h = ngx_array_push(&cmcf->phases[NGX_HTTP_LOG_PHASE].handlers);

    if (h == NULL) {
        return NGX_ERROR;
    }

    *h = ngx_http_sandbox_log_handler;

    return NGX_OK;
}
