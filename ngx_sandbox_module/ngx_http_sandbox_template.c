/*
 * Templates of the configuration: blocks "sandbox_template NAME { ... }", and
 * <sandbox_template_dir>/<NAME>/template.json.  A template gives defaults to
 * the sessions that name it; sandbox_max bounds them as it bounds a caller.
 * All of it is read with the configuration, so that "nginx -t" finds what is
 * wrong, and a session keeps what it was created with.
 */

#include "ngx_http_sandbox.h"

#include "sandbox_sha256.h"
#include "sandbox_util.h"

#include "v1/ngx_http_sandbox_v1_session.h"


#define NGX_HTTP_SANDBOX_TEMPLATE_FILE   65536     /* bytes of the JSON */
#define NGX_HTTP_SANDBOX_TEMPLATE_TEXT   159       /* of a description */
#define NGX_HTTP_SANDBOX_TEMPLATE_ENV    1024      /* variables */
#define NGX_HTTP_SANDBOX_TEMPLATE_PRELOAD  64      /* names */
#define NGX_HTTP_SANDBOX_TEMPLATE_MODULE   128     /* bytes of one */


typedef struct {
    sbx_json_str_t     description;
    sbx_limits_t       limits;
    sbx_json_map_t     env;
    sbx_json_list_t    capabilities;
    uint32_t           capabilities_seen;
    sbx_json_list_t    preload;
    sbx_json_network_t network;
    uint32_t           network_seen;
} ngx_http_sandbox_template_json_t;


static ngx_http_sandbox_template_t *ngx_http_sandbox_template_add(
    ngx_conf_t *cf, ngx_http_sandbox_main_conf_t *smcf, ngx_str_t *name);
static char *ngx_http_sandbox_template_line(ngx_conf_t *cf,
    ngx_command_t *dummy, void *conf);
static char *ngx_http_sandbox_template_env(ngx_conf_t *cf,
    ngx_http_sandbox_template_t *template);
static char *ngx_http_sandbox_template_words(ngx_conf_t *cf,
    ngx_http_sandbox_template_t *template);
static char *ngx_http_sandbox_template_preload(ngx_conf_t *cf,
    ngx_http_sandbox_template_t *template);
static char *ngx_http_sandbox_template_network(ngx_conf_t *cf,
    ngx_http_sandbox_template_t *template);
static ngx_int_t ngx_http_sandbox_template_import(ngx_pool_t *pool,
    ngx_str_t *preload, const void *data, size_t len);
static ngx_int_t ngx_http_sandbox_template_file(ngx_conf_t *cf,
    ngx_http_sandbox_main_conf_t *smcf, ngx_str_t *name);
static ngx_int_t ngx_http_sandbox_template_bind(ngx_conf_t *cf,
    ngx_http_sandbox_template_t *template, const ngx_str_t *text,
    sbx_error_t *e);
static ngx_int_t ngx_http_sandbox_template_check(ngx_conf_t *cf,
    ngx_http_sandbox_main_conf_t *smcf,
    ngx_http_sandbox_template_t *template);


#define TEMPLATE(field)  offsetof(ngx_http_sandbox_template_json_t, field)

static const sbx_json_field_t  ngx_http_sandbox_template_fields[] = {

    { .name = "description", .type = SBX_JSON_STRING,
      .max = NGX_HTTP_SANDBOX_TEMPLATE_TEXT,
      .offset = TEMPLATE(description) },

    { .name = "timeout_s", .type = SBX_JSON_LIMIT, .limit = "timeout_s",
      .offset = TEMPLATE(limits.timeout) },

    { .name = "resources", .type = SBX_JSON_OBJECT,
      .fields = ngx_http_sandbox_v1_resource_fields,
      .offset = TEMPLATE(limits) },

    { .name = "env", .type = SBX_JSON_MAP,
      .max = NGX_HTTP_SANDBOX_TEMPLATE_ENV, .offset = TEMPLATE(env) },

    { .name = "capabilities", .type = SBX_JSON_STRINGS, .max = 16,
      .offset = TEMPLATE(capabilities),
      .seen = TEMPLATE(capabilities_seen) },

    { .name = "preload", .type = SBX_JSON_STRINGS,
      .max = NGX_HTTP_SANDBOX_TEMPLATE_PRELOAD,
      .offset = TEMPLATE(preload) },

    { .name = "network", .type = SBX_JSON_NETWORK,
      .offset = TEMPLATE(network), .seen = TEMPLATE(network_seen) },

    { .name = NULL }
};


void
ngx_http_sandbox_template_fault(ngx_conf_t *cf,
    const ngx_http_sandbox_template_t *template, const char *what)
{
    if (template->line != 0) {
        ngx_log_error(NGX_LOG_EMERG, cf->log, 0,
                      "template \"%V\": %s in %V:%ui", &template->name, what,
                      &template->file, template->line);

    } else {
        ngx_log_error(NGX_LOG_EMERG, cf->log, 0,
                      "template \"%V\": %s in %V", &template->name, what,
                      &template->file);
    }
}


ngx_http_sandbox_template_t *
ngx_http_sandbox_template_find(const ngx_http_sandbox_main_conf_t *smcf,
    const void *name, size_t len)
{
    ngx_uint_t                    i;
    ngx_http_sandbox_template_t  *t;

    t = (smcf->templates == NULL) ? NULL : smcf->templates->elts;

    for (i = 0; t != NULL && i < smcf->templates->nelts; i++) {
        if (t[i].name.len == len && ngx_memcmp(t[i].name.data, name, len) == 0)
        {
            return &t[i];
        }
    }

    return NULL;
}


ngx_http_sandbox_template_t *
ngx_http_sandbox_template_of(const ngx_http_sandbox_main_conf_t *smcf,
    const void *name, size_t len)
{
    ngx_http_sandbox_template_t  *template;

    static const ngx_str_t  alias = ngx_string("code-interpreter-v1");

    template = ngx_http_sandbox_template_find(smcf, name, len);

    if (template == NULL && len == alias.len
        && ngx_memcmp(name, alias.data, len) == 0)
    {
        template = ngx_http_sandbox_template_find(smcf, "base", 4);
    }

    return template;
}


static ngx_http_sandbox_template_t *
ngx_http_sandbox_template_add(ngx_conf_t *cf,
    ngx_http_sandbox_main_conf_t *smcf, ngx_str_t *name)
{
    ngx_http_sandbox_template_t  *template;

    if (smcf->templates == NULL) {
        smcf->templates = ngx_array_create(cf->pool, 4,
                                     sizeof(ngx_http_sandbox_template_t));

        if (smcf->templates == NULL) {
            return NULL;
        }
    }

    template = ngx_array_push(smcf->templates);

    if (template == NULL) {
        return NULL;
    }

    ngx_memzero(template, sizeof(ngx_http_sandbox_template_t));
    template->name = *name;
    sbx_limits_clear(&template->limits);

    return template;
}


char *
ngx_http_sandbox_set_template(ngx_conf_t *cf, ngx_command_t *cmd, void *conf)
{
    ngx_http_sandbox_main_conf_t  *smcf = conf;

    char                         *rv;
    ngx_str_t                    *value;
    ngx_conf_t                    save;
    ngx_http_sandbox_template_t  *template;

    value = cf->args->elts;

    if (!sbx_name_ok((char *) value[1].data, value[1].len)
        || value[1].len >= SBX_TEMPLATE_MAX)
    {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "invalid name \"%V\" in \"%V\" directive, it must "
                           "be 1 to %d of A-Z a-z 0-9 . _ @ : + - and begin "
                           "with a letter or digit", &value[1], &cmd->name,
                           SBX_TEMPLATE_MAX - 1);
        return NGX_CONF_ERROR;
    }

    if (ngx_http_sandbox_template_find(smcf, value[1].data, value[1].len)) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "duplicate name \"%V\" in \"%V\" directive",
                           &value[1], &cmd->name);
        return NGX_CONF_ERROR;
    }

    template = ngx_http_sandbox_template_add(cf, smcf, &value[1]);

    if (template == NULL) {
        return NGX_CONF_ERROR;
    }

    template->file = cf->conf_file->file.name;
    template->line = cf->conf_file->line;

    save = *cf;
    cf->handler = ngx_http_sandbox_template_line;
    cf->handler_conf = (void *) template;

    rv = ngx_conf_parse(cf, NULL);

    *cf = save;

    return rv;
}


static char *
ngx_http_sandbox_template_again(ngx_conf_t *cf,
    const ngx_http_sandbox_template_t *template)
{
    ngx_str_t  *value;

    value = cf->args->elts;

    ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                       "\"%V\" of template \"%V\" is duplicate",
                       (cf->args->nelts == 3
                        && ngx_strcmp(value[0].data, "env") == 0)
                       ? &value[1] : &value[0], &template->name);

    return NGX_CONF_ERROR;
}


static char *
ngx_http_sandbox_template_line(ngx_conf_t *cf, ngx_command_t *dummy,
    void *conf)
{
    ngx_http_sandbox_template_t  *template = conf;

    char               *rv;
    uint64_t           *field;
    ngx_str_t          *value;
    sbx_error_t         e;
    const sbx_limit_t  *limit;

    value = cf->args->elts;

    if (ngx_strcmp(value[0].data, "env") == 0) {
        return ngx_http_sandbox_template_env(cf, template);
    }

    if (ngx_strcmp(value[0].data, "capabilities") == 0) {
        return ngx_http_sandbox_template_words(cf, template);
    }

    if (ngx_strcmp(value[0].data, "preload") == 0) {
        return ngx_http_sandbox_template_preload(cf, template);
    }

    if (ngx_http_sandbox_egress_is((char *) value[0].data)) {
        rv = ngx_http_sandbox_egress_line(cf, (char *) value[0].data,
                                          &template->egress);

        return (rv == NGX_CONF_OK || rv == NGX_CONF_ERROR)
               ? rv : ngx_http_sandbox_template_again(cf, template);
    }

    if (cf->args->nelts != 2) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "\"%V\" of template \"%V\" needs one value",
                           &value[0], &template->name);
        return NGX_CONF_ERROR;
    }

    if (ngx_strcmp(value[0].data, "description") == 0) {

        if (template->description.data != NULL) {
            return ngx_http_sandbox_template_again(cf, template);
        }

        template->description = value[1];
        return NGX_CONF_OK;
    }

    if (ngx_strcmp(value[0].data, "network") == 0) {
        return ngx_http_sandbox_template_network(cf, template);
    }

    limit = sbx_limit_find((char *) value[0].data, value[0].len, 0);

    if (limit == NULL) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "unknown \"%V\" in template \"%V\": it has the "
                           "names of limits, \"env\", \"capabilities\", "
                           "\"preload\", \"network\", \"egress\", "
                           "\"egress_private\", \"egress_header\" and "
                           "\"description\"", &value[0], &template->name);
        return NGX_CONF_ERROR;
    }

    field = sbx_limit_field(&template->limits, limit);

    if (*field != SBX_UNSET) {
        return ngx_http_sandbox_template_again(cf, template);
    }

    if (sbx_limit_parse(limit, (char *) value[1].data, value[1].len, field,
                        &e)
        != 0)
    {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "invalid \"%V %V\" in template \"%V\", it %s",
                           &value[0], &value[1], &template->name, e.text);
        return NGX_CONF_ERROR;
    }

    return NGX_CONF_OK;
}


static char *
ngx_http_sandbox_template_env(ngx_conf_t *cf,
    ngx_http_sandbox_template_t *template)
{
    size_t            i;
    ngx_str_t        *value;
    sbx_json_pair_t  *pair;

    value = cf->args->elts;

    if (cf->args->nelts != 3) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "\"env\" of template \"%V\" needs a name and a "
                           "value", &template->name);
        return NGX_CONF_ERROR;
    }

    if (template->env.elts == NULL) {
        template->env.elts = ngx_pcalloc(cf->pool,
                     NGX_HTTP_SANDBOX_TEMPLATE_ENV * sizeof(sbx_json_pair_t));

        if (template->env.elts == NULL) {
            return NGX_CONF_ERROR;
        }
    }

    if (template->env.nelts == NGX_HTTP_SANDBOX_TEMPLATE_ENV) {
        return "has too many variables";
    }

    for (i = 0; i < template->env.nelts; i++) {
        pair = &template->env.elts[i];

        if (pair->key.len == value[1].len
            && ngx_memcmp(pair->key.data, value[1].data, value[1].len) == 0)
        {
            return ngx_http_sandbox_template_again(cf, template);
        }
    }

    pair = &template->env.elts[template->env.nelts++];
    pair->key.data = (char *) value[1].data;
    pair->key.len = value[1].len;
    pair->value.data = (char *) value[2].data;
    pair->value.len = value[2].len;

    return NGX_CONF_OK;
}


static char *
ngx_http_sandbox_template_words(ngx_conf_t *cf,
    ngx_http_sandbox_template_t *template)
{
    uint32_t         bit;
    ngx_str_t       *value;
    ngx_uint_t       i;
    sbx_json_str_t   word;

    if (template->has_capabilities) {
        return ngx_http_sandbox_template_again(cf, template);
    }

    value = cf->args->elts;
    template->has_capabilities = 1;

    for (i = 1; i < cf->args->nelts; i++) {
        word.data = (char *) value[i].data;
        word.len = value[i].len;
        bit = ngx_http_sandbox_op_capability(&word);

        if (bit == 0) {
            ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                               "unknown capability \"%V\" in template "
                               "\"%V\", it must be one of shell, files, "
                               "code, ports", &value[i], &template->name);
            return NGX_CONF_ERROR;
        }

        template->capabilities |= bit;
    }

    return NGX_CONF_OK;
}


static char *
ngx_http_sandbox_template_preload(ngx_conf_t *cf,
    ngx_http_sandbox_template_t *template)
{
    ngx_str_t   *value;
    ngx_uint_t   i;

    if (template->preload.len != 0) {
        return ngx_http_sandbox_template_again(cf, template);
    }

    value = cf->args->elts;

    if (cf->args->nelts == 1
        || cf->args->nelts > NGX_HTTP_SANDBOX_TEMPLATE_PRELOAD + 1)
    {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "\"preload\" of template \"%V\" needs 1 to %d "
                           "names", &template->name,
                           NGX_HTTP_SANDBOX_TEMPLATE_PRELOAD);
        return NGX_CONF_ERROR;
    }

    for (i = 1; i < cf->args->nelts; i++) {
        switch (ngx_http_sandbox_template_import(cf->pool,
                                                 &template->preload,
                                                 value[i].data,
                                                 value[i].len))
        {

        case NGX_OK:
            break;

        case NGX_DECLINED:
            ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                               "invalid \"preload %V\" in template \"%V\", "
                               "it must be a module's name", &value[i],
                               &template->name);

            /* fall through */

        default:
            return NGX_CONF_ERROR;
        }
    }

    return NGX_CONF_OK;
}


static char *
ngx_http_sandbox_template_network(ngx_conf_t *cf,
    ngx_http_sandbox_template_t *template)
{
    ngx_str_t  *value;

    if (template->has_network) {
        return ngx_http_sandbox_template_again(cf, template);
    }

    value = cf->args->elts;
    template->has_network = 1;

    if (ngx_strcasecmp(value[1].data, (u_char *) "on") == 0) {
        template->network.mode = SBX_NETWORK_ALL;
        return NGX_CONF_OK;
    }

    if (ngx_strcasecmp(value[1].data, (u_char *) "off") == 0) {
        template->network.mode = SBX_NETWORK_NONE;
        return NGX_CONF_OK;
    }

    ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                       "invalid \"network %V\" in template \"%V\", it must "
                       "be \"on\" or \"off\"", &value[1], &template->name);

    return NGX_CONF_ERROR;
}


/* Adds a name; NGX_DECLINED: it is none. */

static ngx_int_t
ngx_http_sandbox_template_import(ngx_pool_t *pool, ngx_str_t *preload,
    const void *data, size_t len)
{
    size_t         i;
    u_char         c, *p;
    const u_char  *name;

    name = data;

    if (len == 0 || len > NGX_HTTP_SANDBOX_TEMPLATE_MODULE) {
        return NGX_DECLINED;
    }

    for (i = 0; i < len; i++) {
        c = name[i];

        if (!((c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || c == '_'
              || (i != 0 && ((c >= '0' && c <= '9') || c == '.'))))
        {
            return NGX_DECLINED;
        }
    }

    p = ngx_pnalloc(pool, preload->len + len + 1);

    if (p == NULL) {
        return NGX_ERROR;
    }

    if (preload->len != 0) {
        ngx_memcpy(p, preload->data, preload->len);
    }

    ngx_memcpy(p + preload->len, name, len);
    p[preload->len + len] = '\0';

    preload->data = p;
    preload->len += len + 1;

    return NGX_OK;
}


/*
 * ---- template.json -------------------------------------------------------
 */


static ngx_int_t
ngx_http_sandbox_template_dir(ngx_conf_t *cf,
    ngx_http_sandbox_main_conf_t *smcf)
{
    ngx_int_t  rc;
    ngx_str_t  name;
    ngx_dir_t  dir;

    if (smcf->template_dir.data == NULL
        || ngx_open_dir(&smcf->template_dir, &dir) == NGX_ERROR)
    {
        /* whether it must be there is for the doctor to say */
        return NGX_OK;
    }

    rc = NGX_OK;

    while (rc == NGX_OK && ngx_read_dir(&dir) == NGX_OK) {
        name.len = ngx_de_namelen(&dir);
        name.data = ngx_de_name(&dir);

        if (sbx_name_ok((char *) name.data, name.len)
            && name.len < SBX_TEMPLATE_MAX)
        {
            rc = ngx_http_sandbox_template_file(cf, smcf, &name);
        }
    }

    (void) ngx_close_dir(&dir);

    return rc;
}


static ngx_int_t
ngx_http_sandbox_template_read(ngx_conf_t *cf,
    const ngx_http_sandbox_template_t *template, ngx_str_t *text)
{
    ssize_t          n;
    sbx_auto_fd      fd = -1;
    ngx_file_info_t  info;

    fd = open((char *) template->file.data, O_RDONLY|O_CLOEXEC|O_NONBLOCK);

    if (fd == -1) {
        return (ngx_errno == NGX_ENOENT || ngx_errno == NGX_ENOTDIR)
               ? NGX_DECLINED : NGX_ERROR;
    }

    text->data = ngx_pnalloc(cf->pool, NGX_HTTP_SANDBOX_TEMPLATE_FILE);

    if (text->data == NULL || ngx_fd_info(fd, &info) == NGX_FILE_ERROR
        || !ngx_is_file(&info)
        || ngx_file_size(&info) >= NGX_HTTP_SANDBOX_TEMPLATE_FILE)
    {
        return NGX_ERROR;
    }

    n = ngx_read_fd(fd, text->data, NGX_HTTP_SANDBOX_TEMPLATE_FILE);
    text->len = (n == -1) ? 0 : (size_t) n;

    return (n == -1) ? NGX_ERROR : NGX_OK;
}


static ngx_int_t
ngx_http_sandbox_template_file(ngx_conf_t *cf,
    ngx_http_sandbox_main_conf_t *smcf, ngx_str_t *name)
{
    ngx_int_t                     rc;
    ngx_str_t                     text;
    sbx_error_t                   e;
    ngx_http_sandbox_template_t   about, *template;

    ngx_memzero(&about, sizeof(ngx_http_sandbox_template_t));

    about.name.data = ngx_pnalloc(cf->pool, name->len + 1);
    about.name.len = name->len;
    about.file.data = ngx_pnalloc(cf->pool, smcf->template_dir.len
                                  + name->len + sizeof("//template.json"));

    if (about.name.data == NULL || about.file.data == NULL) {
        return NGX_ERROR;
    }

    (void) ngx_cpystrn(about.name.data, name->data, name->len + 1);

    about.file.len = ngx_sprintf(about.file.data, "%V/%V/template.json%Z",
                                 &smcf->template_dir, name)
                     - about.file.data - 1;

    rc = ngx_http_sandbox_template_read(cf, &about, &text);

    if (rc == NGX_DECLINED) {
        return NGX_OK;
    }

    if (rc != NGX_OK) {
        ngx_http_sandbox_template_fault(cf, &about,
                       "no file that can be read and is below 64 KB");
        return NGX_ERROR;
    }

    if (ngx_http_sandbox_template_find(smcf, name->data, name->len)) {
        ngx_http_sandbox_template_fault(cf, &about,
                                        "is in a \"sandbox_template\" too,");
        return NGX_ERROR;
    }

    template = ngx_http_sandbox_template_add(cf, smcf, &about.name);

    if (template == NULL) {
        return NGX_ERROR;
    }

    template->file = about.file;

    if (ngx_http_sandbox_template_bind(cf, template, &text, &e) != NGX_OK) {
        ngx_http_sandbox_template_fault(cf, template, e.text);
        return NGX_ERROR;
    }

    return NGX_OK;
}


static ngx_int_t
ngx_http_sandbox_template_bind(ngx_conf_t *cf,
    ngx_http_sandbox_template_t *template, const ngx_str_t *text,
    sbx_error_t *e)
{
    size_t                             i;
    uint32_t                           bit;
    sbx_json_alloc_t                   alloc;
    ngx_http_sandbox_template_json_t   body;

    ngx_memzero(&body, sizeof(body));
    sbx_limits_clear(&body.limits);
    alloc = ngx_http_sandbox_op_allocator(cf->pool);

    if (sbx_json_bind(text->data, text->len,
                      ngx_http_sandbox_template_fields, &body, &alloc, e)
        != 0)
    {
        return NGX_ERROR;
    }

    template->limits = body.limits;
    template->env = body.env;
    template->description.data = (u_char *) body.description.data;
    template->description.len = body.description.len;
    template->has_capabilities = body.capabilities_seen;
    template->network = body.network;
    template->has_network = body.network_seen;

    for (i = 0; i < body.capabilities.nelts; i++) {
        bit = ngx_http_sandbox_op_capability(&body.capabilities.elts[i]);

        if (bit == 0) {
            (void) sbx_error(e, 0, SBX_E_INVALID,
                             "/capabilities/%zu: must be one of shell, "
                             "files, code, ports", i);
            return NGX_ERROR;
        }

        template->capabilities |= bit;
    }

    for (i = 0; i < body.preload.nelts; i++) {
        if (ngx_http_sandbox_template_import(cf->pool, &template->preload,
                                             body.preload.elts[i].data,
                                             body.preload.elts[i].len)
            != NGX_OK)
        {
            (void) sbx_error(e, 0, SBX_E_INVALID,
                             "/preload/%zu: must be a module's name", i);
            return NGX_ERROR;
        }
    }

    return NGX_OK;
}


/*
 * ---- all of them ---------------------------------------------------------
 */


/* Runs when maxima are settled. */

ngx_int_t
ngx_http_sandbox_templates_settle(ngx_conf_t *cf,
    ngx_http_sandbox_main_conf_t *smcf, sbx_config_t *config)
{
    ngx_uint_t                    i;
    sbx_sha256_t                  s;
    ngx_http_sandbox_template_t  *t;

    sbx_sha256_init(&s);
    sbx_sha256_update(&s, &smcf->def, sizeof(sbx_limits_t));

    if (smcf->used && ngx_http_sandbox_template_dir(cf, smcf) != NGX_OK) {
        return NGX_ERROR;
    }

    t = (smcf->templates == NULL) ? NULL : smcf->templates->elts;

    for (i = 0; t != NULL && i < smcf->templates->nelts; i++) {

        if (ngx_http_sandbox_template_check(cf, smcf, &t[i]) != NGX_OK) {
            return NGX_ERROR;
        }

        if (i == SBX_TEMPLATES_MAX) {
            ngx_http_sandbox_template_fault(cf, &t[i],
                                            "is one more than the 64 there "
                                            "may be,");
            return NGX_ERROR;
        }

        (void) sbx_copy_string(config->templates[i],
                               sizeof(config->templates[i]),
                               (char *) t[i].name.data, t[i].name.len);

        sbx_sha256_update(&s, &t[i].limits, sizeof(sbx_limits_t));
        sbx_sha256_update(&s, &t[i].capabilities, sizeof(uint32_t));
    }


    if (ngx_http_sandbox_egress_settle(cf, smcf, config) != NGX_OK) {
        return NGX_ERROR;
    }

    sbx_sha256_update(&s, config->egress, config->egress_size);
    sbx_sha256_final(&s, config->defaults);

    return NGX_OK;
}


static ngx_int_t
ngx_http_sandbox_template_check(ngx_conf_t *cf,
    ngx_http_sandbox_main_conf_t *smcf, ngx_http_sandbox_template_t *template)
{
    size_t        size;
    u_char       *packed;
    sbx_error_t   e;
    sbx_limits_t  limits;

    limits = template->limits;

    if (sbx_limits_settle(&limits, &smcf->def, &smcf->max, &e) != 0
        || ngx_http_sandbox_op_env(cf->pool, &template->env, &packed, &size,
                                   &e)
           != 0)
    {
        ngx_http_sandbox_template_fault(cf, template, e.text);
        return NGX_ERROR;
    }

    if (template->description.len > NGX_HTTP_SANDBOX_TEMPLATE_TEXT) {
        ngx_http_sandbox_template_fault(cf, template,
                       "/description: has more than 159 bytes");
        return NGX_ERROR;
    }

    return NGX_OK;
}


/* What the caller has not asked for comes from the template. */

void
ngx_http_sandbox_template_limits(const ngx_http_sandbox_template_t *template,
    sbx_limits_t *limits)
{
    uint64_t            *field;
    sbx_limits_t         own;
    const sbx_limit_t   *row;

    own = template->limits;

    for (row = sbx_limit_table; row->name != NULL; row++) {
        field = sbx_limit_field(limits, row);

        if (*field == SBX_UNSET) {
            *field = *sbx_limit_field(&own, row);
        }
    }
}


/* The template's variables, but for those that the caller sets. */

ngx_int_t
ngx_http_sandbox_template_merge(ngx_pool_t *pool,
    const ngx_http_sandbox_template_t *template, sbx_json_map_t *env)
{
    size_t                  i, n, k;
    sbx_json_pair_t        *pairs;
    const sbx_json_pair_t  *pair;

    if (template->env.nelts == 0) {
        return NGX_OK;
    }

    pairs = ngx_palloc(pool, (template->env.nelts + env->nelts)
                             * sizeof(sbx_json_pair_t));

    if (pairs == NULL) {
        return NGX_ERROR;
    }

    for (i = 0, n = 0; i < template->env.nelts; i++) {
        pair = &template->env.elts[i];

        for (k = 0; k < env->nelts; k++) {
            if (env->elts[k].key.len == pair->key.len
                && ngx_memcmp(env->elts[k].key.data, pair->key.data,
                              pair->key.len) == 0)
            {
                break;
            }
        }

        if (k == env->nelts) {
            pairs[n++] = *pair;
        }
    }

    if (env->nelts != 0) {
        ngx_memcpy(&pairs[n], env->elts,
                   env->nelts * sizeof(sbx_json_pair_t));
    }

    env->elts = pairs;
    env->nelts += n;

    return NGX_OK;
}
