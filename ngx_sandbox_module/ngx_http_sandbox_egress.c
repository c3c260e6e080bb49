/*
 * Directives of the egress: what sessions may reach at most, as the table
 * that the broker hands on.  Values of headers are looked at here, so that
 * "nginx -t" finds what is wrong with them, and not kept: the table has the
 * paths of their files, which the broker opens.
 */

#include "ngx_http_sandbox_op_network.h"

#include "sandbox_util.h"


#define NGX_HTTP_SANDBOX_EGRESS_CA_MAX     (1024 * 1024)
#define NGX_HTTP_SANDBOX_EGRESS_RESOLVERS  8


typedef struct {
    const char                   *word;
    ngx_uint_t                    min;          /* arguments */
    ngx_uint_t                    max;          /* 0: any number */
    const char                   *needs;
    char                       *(*set)(ngx_conf_t *cf,
                                    ngx_http_sandbox_egress_t *egress);
} ngx_http_sandbox_egress_word_t;


static const ngx_http_sandbox_egress_word_t *ngx_http_sandbox_egress_word(
    const char *word);
static char *ngx_http_sandbox_egress_rules(ngx_conf_t *cf,
    ngx_http_sandbox_egress_t *egress);
static char *ngx_http_sandbox_egress_private(ngx_conf_t *cf,
    ngx_http_sandbox_egress_t *egress);
static char *ngx_http_sandbox_egress_header(ngx_conf_t *cf,
    ngx_http_sandbox_egress_t *egress);
static char *ngx_http_sandbox_egress_header_twice(ngx_conf_t *cf,
    const ngx_http_sandbox_egress_t *egress, const char *host);
static char *ngx_http_sandbox_egress_value(ngx_conf_t *cf, ngx_str_t *path);
static char *ngx_http_sandbox_egress_file(ngx_conf_t *cf, ngx_str_t *path,
    off_t max, u_char **text, size_t *size);
static char *ngx_http_sandbox_egress_invalid(ngx_conf_t *cf,
    const ngx_str_t *value, const char *why);
static char *ngx_http_sandbox_egress_row(ngx_conf_t *cf, ngx_array_t **rows,
    char type, const char *text);
static char *ngx_http_sandbox_egress_put(ngx_conf_t *cf, ngx_array_t **rows,
    const void *data, size_t len);
static ngx_int_t ngx_http_sandbox_egress_section(ngx_conf_t *cf,
    sbx_config_t *config, const char *template, const ngx_array_t *rows);
static ngx_int_t ngx_http_sandbox_egress_add(ngx_conf_t *cf,
    sbx_config_t *config, const void *data, size_t len);
static ngx_int_t ngx_http_sandbox_egress_templates(ngx_conf_t *cf,
    ngx_http_sandbox_main_conf_t *smcf, const sbx_config_t *config);


static const ngx_http_sandbox_egress_word_t
    ngx_http_sandbox_egress_words[] = {

    { "egress", 2, 0, "\"allow\" or \"deny\", and what",
      ngx_http_sandbox_egress_rules },

    { "egress_private", 1, 1, "\"on\" or \"off\"",
      ngx_http_sandbox_egress_private },

    { "egress_header", 3, 4,
      "a host, the name of a header, a file with its value, and perhaps "
      "\"tls\"",
      ngx_http_sandbox_egress_header },

    { NULL, 0, 0, NULL, NULL }
};


char *
ngx_http_sandbox_set_egress(ngx_conf_t *cf, ngx_command_t *cmd, void *conf)
{
    ngx_http_sandbox_main_conf_t  *smcf = conf;

    return ngx_http_sandbox_egress_line(cf, (char *) cmd->name.data
                                            + sizeof("sandbox_") - 1,
                                        &smcf->egress);
}


static const ngx_http_sandbox_egress_word_t *
ngx_http_sandbox_egress_word(const char *word)
{
    const ngx_http_sandbox_egress_word_t  *w;

    for (w = ngx_http_sandbox_egress_words; w->word != NULL; w++) {
        if (ngx_strcmp(w->word, word) == 0) {
            return w;
        }
    }

    return NULL;
}


ngx_uint_t
ngx_http_sandbox_egress_is(const char *word)
{
    return ngx_http_sandbox_egress_word(word) != NULL;
}


char *
ngx_http_sandbox_egress_line(ngx_conf_t *cf, const char *word,
    ngx_http_sandbox_egress_t *egress)
{
    ngx_str_t                             *value;
    ngx_uint_t                             n;
    const ngx_http_sandbox_egress_word_t  *w;

    w = ngx_http_sandbox_egress_word(word);

    if (w == NULL) {
        return NGX_CONF_ERROR;
    }

    value = cf->args->elts;
    n = cf->args->nelts - 1;

    if (n < w->min || (w->max != 0 && n > w->max)) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "\"%V\" directive needs %s", &value[0], w->needs);
        return NGX_CONF_ERROR;
    }

    return w->set(cf, egress);
}


/*
 * ---- lines -----------------------------------------------------------------
 */

static char *
ngx_http_sandbox_egress_rules(ngx_conf_t *cf,
    ngx_http_sandbox_egress_t *egress)
{
    char                 type, text[SBX_NETWORK_TEXT_MAX];
    ngx_str_t           *value;
    ngx_uint_t           i;
    sbx_error_t          e;
    sbx_network_rule_t   rule;

    value = cf->args->elts;

    if (ngx_strcmp(value[1].data, "allow") == 0) {
        type = SBX_EGRESS_ALLOW;

    } else if (ngx_strcmp(value[1].data, "deny") == 0) {
        type = SBX_EGRESS_DENY;

    } else {
        return ngx_http_sandbox_egress_invalid(cf, &value[1],
                                               "is not \"allow\" or "
                                               "\"deny\"");
    }

    for (i = 2; i < cf->args->nelts; i++) {
        if (sbx_network_rule_parse((char *) value[i].data, value[i].len,
                                   &rule, &e)
            != 0)
        {
            return ngx_http_sandbox_egress_invalid(cf, &value[i], e.text);
        }

        (void) sbx_network_rule_print(&rule, text);

        if (ngx_http_sandbox_egress_row(cf, &egress->rows, type, text)
            != NGX_CONF_OK)
        {
            return NGX_CONF_ERROR;
        }
    }

    return NGX_CONF_OK;
}


static char *
ngx_http_sandbox_egress_private(ngx_conf_t *cf,
    ngx_http_sandbox_egress_t *egress)
{
    char        type;
    ngx_str_t  *value;

    if (egress->private_set) {
        return "is duplicate";
    }

    egress->private_set = 1;
    value = cf->args->elts;

    if (ngx_strcasecmp(value[1].data, (u_char *) "on") == 0) {
        type = SBX_EGRESS_PRIVATE;

        return ngx_http_sandbox_egress_put(cf, &egress->rows, &type, 1);
    }

    if (ngx_strcasecmp(value[1].data, (u_char *) "off") == 0) {

        /* a template that says so has a table of its own, too */

        return ngx_http_sandbox_egress_put(cf, &egress->rows, NULL, 0);
    }

    return ngx_http_sandbox_egress_invalid(cf, &value[1],
                                           "is not \"on\" or \"off\"");
}


static char *
ngx_http_sandbox_egress_header(ngx_conf_t *cf,
    ngx_http_sandbox_egress_t *egress)
{
    char        type, host[SBX_NETWORK_HOST_MAX + 1];
    ngx_str_t  *value;

    value = cf->args->elts;
    type = SBX_EGRESS_HEADER;

    if (!sbx_network_host_ok((char *) value[1].data, value[1].len, host)) {
        return ngx_http_sandbox_egress_invalid(cf, &value[1],
                                               "is no host's name: an "
                                               "address, a port or a \"*\" "
                                               "does not do");
    }

    if (!sbx_egress_header_ok((char *) value[2].data, value[2].len)) {
        return ngx_http_sandbox_egress_invalid(cf, &value[2],
                                               "is no name of a header, or "
                                               "one that HTTP itself needs");
    }

    if (cf->args->nelts == 5) {
        if (ngx_strcmp(value[4].data, "tls") != 0) {
            return ngx_http_sandbox_egress_invalid(cf, &value[4],
                                                   "is not \"tls\"");
        }

        type = SBX_EGRESS_TLS_HEADER;
    }

    if (ngx_http_sandbox_egress_header_twice(cf, egress, host) != NGX_CONF_OK
        || ngx_http_sandbox_egress_value(cf, &value[3]) != NGX_CONF_OK
        || ngx_http_sandbox_egress_row(cf, &egress->rows, type, host)
           != NGX_CONF_OK
        || ngx_http_sandbox_egress_put(cf, &egress->rows, value[2].data,
                                       value[2].len + 1)
           != NGX_CONF_OK)
    {
        return NGX_CONF_ERROR;
    }

    return ngx_http_sandbox_egress_put(cf, &egress->rows, value[3].data,
                                       value[3].len + 1);
}


static char *
ngx_http_sandbox_egress_header_twice(ngx_conf_t *cf,
    const ngx_http_sandbox_egress_t *egress, const char *host)
{
    ngx_str_t         *value;
    sbx_egress_row_t   row;

    if (egress->rows == NULL) {
        return NGX_CONF_OK;
    }

    value = cf->args->elts;
    ngx_memzero(&row, sizeof(sbx_egress_row_t));

    while (sbx_egress_row_next(egress->rows->elts, egress->rows->nelts, &row)
           == 1)
    {
        if ((row.type == SBX_EGRESS_HEADER
             || row.type == SBX_EGRESS_TLS_HEADER)
            && row.text[0] != NULL && ngx_strcmp(row.text[0], host) == 0)
        {
            return ngx_http_sandbox_egress_invalid(cf, &value[1],
                                                   "has a header already");
        }
    }

    return NGX_CONF_OK;
}


/* Makes path what it stands for, and looks at what is there. */

static char *
ngx_http_sandbox_egress_value(ngx_conf_t *cf, ngx_str_t *path)
{
    char            *rv;
    size_t           size, i;
    u_char          *text;
    ngx_file_info_t  fi;

    rv = ngx_http_sandbox_egress_file(cf, path, SBX_EGRESS_VALUE_MAX + 1,
                                      &text, &size);

    if (rv != NGX_CONF_OK) {
        return rv;
    }

    if (size != 0 && text[size - 1] == '\n') {
        size--;
    }

    for (i = 0; i < size; i++) {
        if (text[i] < 0x20 || text[i] == 0x7f) {
            break;
        }
    }

    explicit_bzero(text, SBX_EGRESS_VALUE_MAX + 2);

    if (i < size) {
        return ngx_http_sandbox_egress_invalid(cf, path,
                                               "is a file with more than a "
                                               "line, or with a control "
                                               "character");
    }

    if (size == 0 || size > SBX_EGRESS_VALUE_MAX) {
        return ngx_http_sandbox_egress_invalid(cf, path,
                                               "is a file that is empty, or "
                                               "has more than 8192 bytes");
    }

    if (ngx_file_info(path->data, &fi) != NGX_FILE_ERROR
        && (ngx_file_access(&fi) & S_IROTH))
    {
        ngx_conf_log_error(NGX_LOG_WARN, cf, 0,
                           "\"%V\" can be read by others: \"chmod o= %V\" "
                           "would change that", path, path);
    }

    return NGX_CONF_OK;
}


/* Reads a file of at most max bytes.  Links are followed now and never
 * again: path becomes what has none.  text has room for max + 1 bytes. */

static char *
ngx_http_sandbox_egress_file(ngx_conf_t *cf, ngx_str_t *path, off_t max,
    u_char **text, size_t *size)
{
    ssize_t       n;
    sbx_auto_fd   fd = -1;
    struct stat   st;
    char SBX_CLEANUP(sbx_cleanup_free)
                 *real = NULL;

    if (path->len == 0 || ngx_strlen(path->data) != path->len) {
        return ngx_http_sandbox_egress_invalid(cf, path, "is no path");
    }

    if (ngx_conf_full_name(cf->cycle, path, 1) != NGX_OK) {
        return NGX_CONF_ERROR;
    }

    real = realpath((char *) path->data, NULL);

    if (real != NULL) {
        fd = open(real, O_RDONLY|O_CLOEXEC|O_NONBLOCK|O_NOCTTY);
    }

    if (fd == -1 || fstat(fd, &st) == -1) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, ngx_errno,
                           "cannot open \"%V\"", path);
        return NGX_CONF_ERROR;
    }

    if (!S_ISREG(st.st_mode) || st.st_size > max) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "\"%V\" is no regular file of at most %O bytes",
                           path, max);
        return NGX_CONF_ERROR;
    }

    *text = ngx_pnalloc(cf->temp_pool, (size_t) max + 1);
    path->len = ngx_strlen(real);
    path->data = ngx_pnalloc(cf->pool, path->len + 1);

    if (*text == NULL || path->data == NULL) {
        return NGX_CONF_ERROR;
    }

    ngx_memcpy(path->data, real, path->len + 1);

    n = sbx_read_full(fd, *text, (size_t) max);

    if (n == -1) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, ngx_errno,
                           "cannot read \"%V\"", path);
        return NGX_CONF_ERROR;
    }

    (*text)[n] = '\0';
    *size = (size_t) n;

    return NGX_CONF_OK;
}


char *
ngx_http_sandbox_set_egress_resolver(ngx_conf_t *cf, ngx_command_t *cmd,
    void *conf)
{
    ngx_http_sandbox_main_conf_t  *smcf = conf;

    char                 text[SBX_NETWORK_TEXT_MAX];
    ngx_str_t           *value;
    ngx_uint_t           i;
    sbx_error_t          e;
    sbx_network_rule_t   rule;

    if (smcf->egress_resolvers != NULL) {
        return "is duplicate";
    }

    value = cf->args->elts;

    if (cf->args->nelts > NGX_HTTP_SANDBOX_EGRESS_RESOLVERS + 1) {
        return "has more than 8 addresses";
    }

    for (i = 1; i < cf->args->nelts; i++) {
        if (sbx_egress_resolver((char *) value[i].data, value[i].len, &rule,
                                &e)
            != 0)
        {
            return ngx_http_sandbox_egress_invalid(cf, &value[i], e.text);
        }

        (void) sbx_network_rule_print(&rule, text);

        if (ngx_http_sandbox_egress_row(cf, &smcf->egress_resolvers,
                                        SBX_EGRESS_RESOLVER, text)
            != NGX_CONF_OK)
        {
            return NGX_CONF_ERROR;
        }
    }

    return NGX_CONF_OK;
}


char *
ngx_http_sandbox_set_egress_ca(ngx_conf_t *cf, ngx_command_t *cmd,
    void *conf)
{
    ngx_http_sandbox_main_conf_t  *smcf = conf;

    char       *rv;
    size_t      size;
    u_char     *text;
    ngx_str_t  *value;

    if (smcf->egress_ca.data != NULL) {
        return "is duplicate";
    }

    value = cf->args->elts;

    rv = ngx_http_sandbox_egress_file(cf, &value[1],
                                      NGX_HTTP_SANDBOX_EGRESS_CA_MAX, &text,
                                      &size);

    if (rv != NGX_CONF_OK) {
        return rv;
    }

    if (ngx_strnstr(text, "-----BEGIN CERTIFICATE-----", size) == NULL) {
        return ngx_http_sandbox_egress_invalid(cf, &value[1],
                                               "is a file without a "
                                               "certificate as PEM");
    }

    smcf->egress_ca = value[1];

    return NGX_CONF_OK;
}


static char *
ngx_http_sandbox_egress_invalid(ngx_conf_t *cf, const ngx_str_t *value,
    const char *why)
{
    ngx_str_t  *args;

    args = cf->args->elts;

    ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                       "invalid value \"%V\" in \"%V\" directive: it %s",
                       value, &args[0], why);

    return NGX_CONF_ERROR;
}


static char *
ngx_http_sandbox_egress_row(ngx_conf_t *cf, ngx_array_t **rows, char type,
    const char *text)
{
    if (ngx_http_sandbox_egress_put(cf, rows, &type, 1) != NGX_CONF_OK) {
        return NGX_CONF_ERROR;
    }

    return ngx_http_sandbox_egress_put(cf, rows, text, ngx_strlen(text) + 1);
}


static char *
ngx_http_sandbox_egress_put(ngx_conf_t *cf, ngx_array_t **rows,
    const void *data, size_t len)
{
    u_char  *p;

    if (*rows == NULL) {
        *rows = ngx_array_create(cf->pool, 256, 1);

        if (*rows == NULL) {
            return NGX_CONF_ERROR;
        }
    }

    if (len == 0) {
        return NGX_CONF_OK;
    }

    p = ngx_array_push_n(*rows, len);

    if (p == NULL) {
        return NGX_CONF_ERROR;
    }

    ngx_memcpy(p, data, len);

    return NGX_CONF_OK;
}


/*
 * ---- all of them -----------------------------------------------------------
 */

/* Runs when all templates are there. */

ngx_int_t
ngx_http_sandbox_egress_settle(ngx_conf_t *cf,
    ngx_http_sandbox_main_conf_t *smcf, sbx_config_t *config)
{
    ngx_uint_t                    i;
    sbx_error_t                   e;
    ngx_http_sandbox_template_t  *t;

    static const char             alias[] = "code-interpreter-v1";

    if (smcf->egress_ca.len != 0
        && (ngx_http_sandbox_egress_add(cf, config, "C", 1) != NGX_OK
            || ngx_http_sandbox_egress_add(cf, config, smcf->egress_ca.data,
                                           smcf->egress_ca.len + 1)
               != NGX_OK))
    {
        return NGX_ERROR;
    }

    if (ngx_http_sandbox_egress_section(cf, config, NULL,
                                        smcf->egress_resolvers)
        != NGX_OK
        || ngx_http_sandbox_egress_section(cf, config, NULL,
                                           smcf->egress.rows)
           != NGX_OK)
    {
        return NGX_ERROR;
    }

    t = (smcf->templates == NULL) ? NULL : smcf->templates->elts;

    for (i = 0; t != NULL && i < smcf->templates->nelts; i++) {
        if (t[i].egress.rows == NULL) {
            continue;
        }

        if (ngx_http_sandbox_egress_section(cf, config,
                                            (char *) t[i].name.data,
                                            t[i].egress.rows)
            != NGX_OK)
        {
            return NGX_ERROR;
        }

        /* the built-in template has two names */

        if (ngx_strcmp(t[i].name.data, "base") == 0
            && ngx_http_sandbox_template_find(smcf, alias,
                                              sizeof(alias) - 1)
               == NULL
            && ngx_http_sandbox_egress_section(cf, config, alias,
                                               t[i].egress.rows)
               != NGX_OK)
        {
            return NGX_ERROR;
        }
    }

    if (sbx_egress_table_check(config->egress, config->egress_size, &e) != 0)
    {
        ngx_log_error(NGX_LOG_EMERG, cf->log, 0,
                      "directives of the egress: %s", e.text);
        return NGX_ERROR;
    }

    return ngx_http_sandbox_egress_templates(cf, smcf, config);
}


static ngx_int_t
ngx_http_sandbox_egress_section(ngx_conf_t *cf, sbx_config_t *config,
    const char *template, const ngx_array_t *rows)
{
    if (rows == NULL) {
        return NGX_OK;
    }

    if (template != NULL
        && (ngx_http_sandbox_egress_add(cf, config, "T", 1) != NGX_OK
            || ngx_http_sandbox_egress_add(cf, config, template,
                                           ngx_strlen(template) + 1)
               != NGX_OK))
    {
        return NGX_ERROR;
    }

    return ngx_http_sandbox_egress_add(cf, config, rows->elts, rows->nelts);
}


static ngx_int_t
ngx_http_sandbox_egress_add(ngx_conf_t *cf, sbx_config_t *config,
    const void *data, size_t len)
{
    if (len > SBX_EGRESS_SIZE - config->egress_size) {
        ngx_log_error(NGX_LOG_EMERG, cf->log, 0,
                      "all directives of the egress together take more than "
                      "%d bytes", SBX_EGRESS_SIZE);
        return NGX_ERROR;
    }

    ngx_memcpy(config->egress + config->egress_size, data, len);
    config->egress_size += (uint32_t) len;

    return NGX_OK;
}


/* What a template gives to who asks for nothing is within what it allows. */

static ngx_int_t
ngx_http_sandbox_egress_templates(ngx_conf_t *cf,
    ngx_http_sandbox_main_conf_t *smcf, const sbx_config_t *config)
{
    ngx_uint_t                       i;
    sbx_error_t                      e;
    ngx_http_sandbox_template_t     *t;
    ngx_http_sandbox_op_network_t    network;

    t = (smcf->templates == NULL) ? NULL : smcf->templates->elts;

    for (i = 0; t != NULL && i < smcf->templates->nelts; i++) {
        if (!t[i].has_network) {
            continue;
        }

        if (ngx_http_sandbox_op_network(cf->pool, &t[i].network, 0,
                                        "/network", &network, &e)
            != 0
            || sbx_network_narrows(config->egress, config->egress_size,
                                   (char *) t[i].name.data, network.mode,
                                   network.rules, network.size, "/network",
                                   &e)
               != 0)
        {
            ngx_http_sandbox_template_fault(cf, &t[i], e.text);
            return NGX_ERROR;
        }
    }

    return NGX_OK;
}
