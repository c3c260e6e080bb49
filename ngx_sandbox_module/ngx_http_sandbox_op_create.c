#include "ngx_http_sandbox_op_create.h"

#include <sys/mman.h>
#include <sys/random.h>

#include <ngx_md5.h>


#define NGX_HTTP_SANDBOX_OP_META_KEY      128
#define NGX_HTTP_SANDBOX_OP_META_VALUE    1024


static int ngx_http_sandbox_op_create_check(ngx_http_request_t *r,
    ngx_http_sandbox_op_create_t *body, sbx_create_t *create,
    sbx_error_t *e);
static int ngx_http_sandbox_op_create_template(ngx_http_request_t *r,
    ngx_http_sandbox_op_create_t *body, sbx_create_t *create,
    sbx_error_t *e);
static int ngx_http_sandbox_op_create_manifest(ngx_http_request_t *r,
    ngx_http_sandbox_op_manifest_t *manifest, sbx_create_t *create,
    sbx_error_t *e);
static int ngx_http_sandbox_op_create_words(
    const ngx_http_sandbox_op_manifest_t *manifest, uint32_t *flags,
    sbx_error_t *e);
static int ngx_http_sandbox_op_create_capabilities(
    const ngx_http_sandbox_op_manifest_t *manifest, uint32_t *bits,
    sbx_error_t *e);
static int ngx_http_sandbox_op_create_key(ngx_http_request_t *r,
    sbx_create_t *create, sbx_error_t *e);
static int ngx_http_sandbox_op_create_network(ngx_http_request_t *r,
    const ngx_http_sandbox_op_create_t *body,
    ngx_http_sandbox_op_network_t *network, sbx_error_t *e);
static int ngx_http_sandbox_op_blob(ngx_http_request_t *r,
    const sbx_json_map_t *metadata, const ngx_str_t *parts, ngx_uint_t n,
    uint32_t *meta_size, ngx_fd_t *blob, sbx_error_t *e);
static int ngx_http_sandbox_op_create_blob(ngx_http_request_t *r,
    const ngx_http_sandbox_op_create_t *body,
    const ngx_http_sandbox_op_network_t *network, sbx_create_t *create,
    ngx_fd_t *blob, sbx_error_t *e);


int
ngx_http_sandbox_op_create_call(ngx_http_request_t *r,
    ngx_http_sandbox_op_create_t *body, uint32_t flags, void *data,
    ngx_http_sandbox_call_t **created, sbx_error_t *e)
{
    sbx_create_t                    create;
    sbx_auto_fd                     blob = -1;
    ngx_http_sandbox_ctx_t         *ctx;
    ngx_http_sandbox_call_t        *call;
    ngx_http_sandbox_op_network_t   network;

    ngx_memzero(&create, sizeof(sbx_create_t));
    create.flags = flags;

    if (ngx_http_sandbox_op_create_check(r, body, &create, e) != 0
        || ngx_http_sandbox_op_create_network(r, body, &network, e) != 0
        || ngx_http_sandbox_op_create_blob(r, body, &network, &create, &blob,
                                           e)
           != 0)
    {
        return -1;
    }

    ctx = ngx_http_sandbox_ctx(r);
    ctx->tenant.data = (u_char *) body->tenant.data;
    ctx->tenant.len = body->tenant.len;
    ctx->user.data = (u_char *) body->user.data;
    ctx->user.len = body->user.len;

    call = ngx_http_sandbox_op_call(r, SBX_OP_CREATE, &create,
                                    sizeof(sbx_create_t), sbx_steal_fd(&blob),
                                    data);

    if (call == NULL) {
        return sbx_error(e, 0, SBX_E_INTERNAL, "out of memory");
    }

    if (create.key[0] == '\0' && (flags & SBX_CREATE_TIED) == 0) {
        call->header.flags |= SBX_CALL_TELLS;
    }

    /* both fit: the pattern of names bounds them */

    (void) sbx_copy_string(call->header.tenant,
                           sizeof(call->header.tenant), body->tenant.data,
                           body->tenant.len);
    (void) sbx_copy_string(call->header.user, sizeof(call->header.user),
                           body->user.data, body->user.len);

    *created = call;

    return 0;
}


static int
ngx_http_sandbox_op_create_check(ngx_http_request_t *r,
    ngx_http_sandbox_op_create_t *body, sbx_create_t *create, sbx_error_t *e)
{
    if (ngx_http_sandbox_own_names(r, &body->tenant, &body->user, e) != 0) {
        return -1;
    }

    if (body->template.data == NULL) {
        body->template.data = "base";
        body->template.len = 4;
    }

    if (!sbx_name_ok(body->template.data, body->template.len)) {
        return sbx_error(e, 0, SBX_E_TEMPLATE,
                         "no template can have such a name");
    }

    (void) sbx_copy_string(create->template, sizeof(create->template),
                           body->template.data, body->template.len);

    if (ngx_http_sandbox_op_metadata(&body->metadata, e) != 0) {
        return -1;
    }

    if (ngx_http_sandbox_op_create_key(r, create, e) != 0) {
        return -1;
    }

    return ngx_http_sandbox_op_create_template(r, body, create, e);
}


/* What the caller leaves out comes from the template, and what it may choose
 * is what that allows. */

static int
ngx_http_sandbox_op_create_template(ngx_http_request_t *r,
    ngx_http_sandbox_op_create_t *body, sbx_create_t *create, sbx_error_t *e)
{
    ngx_http_sandbox_template_t     *template;
    ngx_http_sandbox_main_conf_t    *smcf;
    ngx_http_sandbox_op_manifest_t  *manifest;

    manifest = &body->manifest;
    smcf = ngx_http_get_module_main_conf(r, ngx_http_sandbox_module);
    template = ngx_http_sandbox_template_of(smcf, body->template.data,
                                            body->template.len);

    if (template == NULL) {
        return ngx_http_sandbox_op_create_manifest(r, manifest, create, e);
    }

    ngx_http_sandbox_template_limits(template, &manifest->limits);

    if (template->has_network && !manifest->network_seen) {
        manifest->network = template->network;
    }

    if (ngx_http_sandbox_template_merge(r->pool, template, &body->env)
        != NGX_OK)
    {
        return sbx_error(e, 0, SBX_E_INTERNAL, "out of memory");
    }

    if (ngx_http_sandbox_op_create_manifest(r, manifest, create, e) != 0) {
        return -1;
    }

    if (!template->has_capabilities) {
        return 0;
    }

    if (manifest->capabilities_seen
        && (create->capabilities & ~template->capabilities) != 0)
    {
        return sbx_error(e, 0, SBX_E_CAPABILITY,
                         "/manifest/capabilities: asks for more than the "
                         "template \"%s\" allows", create->template);
    }

    create->capabilities &= template->capabilities;

    return 0;
}


static int
ngx_http_sandbox_op_create_manifest(ngx_http_request_t *r,
    ngx_http_sandbox_op_manifest_t *manifest, sbx_create_t *create,
    sbx_error_t *e)
{
    ngx_uint_t                     strict;
    ngx_http_sandbox_main_conf_t  *smcf;

    smcf = ngx_http_get_module_main_conf(r, ngx_http_sandbox_module);

    create->idle_timeout = manifest->idle_timeout;

    if (ngx_http_sandbox_op_create_words(manifest, &create->flags, e) != 0
        || ngx_http_sandbox_op_create_capabilities(manifest,
                                                   &create->capabilities, e)
           != 0)
    {
        return -1;
    }

    /* a manifest can ask for more isolation than configuration does, and
     * has no say where configuration insists */

    strict = smcf->require_isolation
             || (manifest->require_isolation_seen
                 && manifest->require_isolation);

    if (!strict) {
        create->flags |= SBX_CREATE_WEAK_OK;
    }

    if (sbx_limits_settle(&manifest->limits, &smcf->def, &smcf->max, e)
        != 0)
    {
        return -1;
    }

    create->limits = manifest->limits;

    return 0;
}


/* Whether configuration gives what is asked for. */

static int
ngx_http_sandbox_op_create_network(ngx_http_request_t *r,
    const ngx_http_sandbox_op_create_t *body,
    ngx_http_sandbox_op_network_t *network, sbx_error_t *e)
{
    char                                   template[SBX_TEMPLATE_MAX];
    const sbx_config_t                    *config;
    ngx_http_sandbox_main_conf_t          *smcf;
    const ngx_http_sandbox_op_manifest_t  *manifest;

    manifest = &body->manifest;
    smcf = ngx_http_get_module_main_conf(r, ngx_http_sandbox_module);
    config = smcf->config;

    (void) sbx_copy_string(template, sizeof(template), body->template.data,
                           body->template.len);

    if (ngx_http_sandbox_op_network(r->pool, &manifest->network,
                                    manifest->network_first,
                                    "/manifest/network", network, e)
        != 0)
    {
        return -1;
    }

    if (manifest->network_soft && manifest->network.allow.nelts == 0
        && !sbx_egress_table_grants(config->egress, config->egress_size,
                                    template))
    {
        network->mode = SBX_NETWORK_NONE;
        network->size = 0;
    }

    return sbx_network_narrows(config->egress, config->egress_size, template,
                               network->mode, network->rules, network->size,
                               "/manifest/network", e);
}


static int
ngx_http_sandbox_op_create_words(
    const ngx_http_sandbox_op_manifest_t *manifest, uint32_t *flags,
    sbx_error_t *e)
{
    const sbx_json_str_t  *word;

    word = &manifest->memory_strategy;

    if (word->data != NULL) {

        if (ngx_http_sandbox_op_is(word, "rlimit")) {
            *flags |= SBX_CREATE_MEMORY_RLIMIT;

        } else if (!ngx_http_sandbox_op_is(word, "auto")
                   && !ngx_http_sandbox_op_is(word, "cgroup"))
        {
            return sbx_error(e, 0, SBX_E_INVALID,
                             "/manifest/memory_strategy: must be \"auto\", "
                             "\"cgroup\" or \"rlimit\"");
        }
    }

    word = &manifest->on_timeout;

    if (word->data != NULL) {

        if (ngx_http_sandbox_op_is(word, "pause")) {
            *flags |= SBX_CREATE_ON_TIMEOUT_PAUSE;

        } else if (!ngx_http_sandbox_op_is(word, "destroy")) {
            return sbx_error(e, 0, SBX_E_INVALID,
                             "/manifest/on_timeout: must be \"destroy\" or "
                             "\"pause\"");
        }
    }

    return 0;
}


static int
ngx_http_sandbox_op_create_capabilities(
    const ngx_http_sandbox_op_manifest_t *manifest, uint32_t *bits,
    sbx_error_t *e)
{
    size_t    i;
    uint32_t  bit;

    if (!manifest->capabilities_seen) {
        *bits = NGX_HTTP_SANDBOX_OP_CAPABILITIES;
        return 0;
    }

    for (i = 0; i < manifest->capabilities.nelts; i++) {
        bit = ngx_http_sandbox_op_capability(&manifest->capabilities.elts[i]);

        if (bit == 0) {
            return sbx_error(e, 0, SBX_E_INVALID,
                             "/manifest/capabilities/%zu: must be one of "
                             "shell, files, code, ports", i);
        }

        *bits |= bit;
    }

    return 0;
}


int
ngx_http_sandbox_op_metadata(const sbx_json_map_t *metadata,
    sbx_error_t *e)
{
    size_t                  i;
    const sbx_json_pair_t  *pair;

    for (i = 0; i < metadata->nelts; i++) {
        pair = &metadata->elts[i];

        if (pair->key.len == 0
            || pair->key.len > NGX_HTTP_SANDBOX_OP_META_KEY)
        {
            return sbx_json_refuse(e, "/metadata", &pair->key,
                                   "a key has 1 to 128 bytes");
        }

        if (pair->value.len > NGX_HTTP_SANDBOX_OP_META_VALUE) {
            return sbx_json_refuse(e, "/metadata", &pair->key,
                                   "a value has at most 1024 bytes");
        }
    }

    return 0;
}


static int
ngx_http_sandbox_op_create_key(ngx_http_request_t *r, sbx_create_t *create,
    sbx_error_t *e)
{
    size_t                   i;
    ngx_int_t                rc;
    ngx_md5_t                md5;
    ngx_str_t                key;
    ngx_http_sandbox_ctx_t  *ctx;

    rc = ngx_http_sandbox_op_header(r, "idempotency-key", &key);

    if (rc == NGX_DECLINED) {
        return getrandom(create->body_digest, sizeof(create->body_digest), 0)
               == (ssize_t) sizeof(create->body_digest)
               ? 0 : sbx_error(e, ngx_errno, SBX_E_INTERNAL,
                               "getrandom() failed");
    }

    if (rc != NGX_OK) {
        return sbx_error(e, 0, SBX_E_INVALID,
                         "Idempotency-Key is given more than once");
    }

    for (i = 0; i < key.len; i++) {
        if (key.data[i] <= 0x20 || key.data[i] >= 0x7f) {
            break;
        }
    }

    if (key.len == 0 || key.len > SBX_KEY_MAX || i < key.len) {
        return sbx_error(e, 0, SBX_E_INVALID,
                         "Idempotency-Key must be 1 to %d visible ASCII "
                         "characters", SBX_KEY_MAX);
    }

    (void) sbx_copy_string(create->key, sizeof(create->key),
                           (char *) key.data, key.len);

    /*
     * The digest tells a retry from a mistake of the same tenant, who gains
     * nothing by forging a collision with a body of its own.
     */

    ctx = ngx_http_sandbox_ctx(r);

    ngx_md5_init(&md5);
    ngx_md5_update(&md5, ctx->body.data, ctx->body.len);
    ngx_md5_final(create->body_digest, &md5);

    return 0;
}


/* Metadata is written anew, so that what the broker keeps and gives back is
 * JSON of our own making, in one form. */

static void
ngx_http_sandbox_op_metadata_json(ngx_http_sandbox_json_t *j,
    const sbx_json_map_t *metadata)
{
    size_t                  i;
    const sbx_json_pair_t  *pair;

    for (i = 0; i < metadata->nelts; i++) {
        pair = &metadata->elts[i];

        ngx_http_sandbox_json_raw(j, i ? "," : "{");
        ngx_http_sandbox_json_string(j, pair->key.data, pair->key.len);
        ngx_http_sandbox_json_raw(j, ":");
        ngx_http_sandbox_json_string(j, pair->value.data, pair->value.len);
    }

    if (i != 0) {
        ngx_http_sandbox_json_raw(j, "}");
    }
}


/* Fills a memfd and seals it; 0 or -1. */

static int
ngx_http_sandbox_op_blob_write(ngx_fd_t fd,
    const ngx_http_sandbox_json_t *j, const ngx_str_t *parts, ngx_uint_t n)
{
    ngx_buf_t    *b;
    ngx_uint_t    i;
    ngx_chain_t  *cl;

    for (cl = j->out; cl != NULL; cl = cl->next) {
        b = cl->buf;

        if (sbx_write_all(fd, b->pos, b->last - b->pos) != 0) {
            return -1;
        }
    }

    for (i = 0; i < n; i++) {
        if (parts[i].len != 0
            && sbx_write_all(fd, parts[i].data, parts[i].len) != 0)
        {
            return -1;
        }
    }

    return fcntl(fd, F_ADD_SEALS,
                 F_SEAL_WRITE|F_SEAL_SHRINK|F_SEAL_GROW|F_SEAL_SEAL);
}


/* Metadata, its size in *meta_size, and what follows it. */

static int
ngx_http_sandbox_op_blob(ngx_http_request_t *r,
    const sbx_json_map_t *metadata, const ngx_str_t *parts, ngx_uint_t n,
    uint32_t *meta_size, ngx_fd_t *blob, sbx_error_t *e)
{
    size_t                    size;
    ngx_uint_t                i;
    sbx_auto_fd               fd = -1;
    ngx_http_sandbox_json_t   j;

    ngx_http_sandbox_json_init(&j, r->pool);

    if (metadata != NULL) {
        ngx_http_sandbox_op_metadata_json(&j, metadata);
    }

    if (j.failed) {
        return sbx_error(e, 0, SBX_E_INTERNAL, "out of memory");
    }

    if (j.size > SBX_META_MAX) {
        return sbx_error(e, 0, SBX_E_INVALID,
                         "/metadata: takes %zu bytes as JSON, more than the "
                         "%d that fit", (size_t) j.size, SBX_META_MAX);
    }

    *meta_size = (uint32_t) j.size;
    size = (size_t) j.size;

    for (i = 0; i < n; i++) {
        size += parts[i].len;
    }

    if (size == 0) {
        return 0;
    }

    fd = memfd_create("sandbox", MFD_CLOEXEC|MFD_ALLOW_SEALING);

    if (fd == -1 || ngx_http_sandbox_op_blob_write(fd, &j, parts, n) != 0) {
        ngx_log_error(NGX_LOG_ERR, r->connection->log, ngx_errno,
                      "sandbox could not write the blob of a session");
        return sbx_error(e, ngx_errno, SBX_E_INTERNAL,
                         "no memory file for what belongs to a session");
    }

    *blob = sbx_steal_fd(&fd);

    return 0;
}


static int
ngx_http_sandbox_op_create_blob(ngx_http_request_t *r,
    const ngx_http_sandbox_op_create_t *body,
    const ngx_http_sandbox_op_network_t *network, sbx_create_t *create,
    ngx_fd_t *blob, sbx_error_t *e)
{
    ngx_str_t  parts[3];

    if (ngx_http_sandbox_op_env(r->pool, &body->env, &parts[0].data,
                                &parts[0].len, e)
        != 0
        || ngx_http_sandbox_op_rules(r, &body->manifest.filesystem,
                                     &parts[1].data, &parts[1].len, e)
           != 0)
    {
        return -1;
    }

    parts[2].data = network->rules;
    parts[2].len = network->size;

    create->env_size = (uint32_t) parts[0].len;
    create->rules_size = (uint32_t) parts[1].len;
    create->network = network->mode;
    create->network_size = network->size;

    return ngx_http_sandbox_op_blob(r, &body->metadata, parts, 3,
                                    &create->meta_size, blob, e);
}


int
ngx_http_sandbox_op_patch_blob(ngx_http_request_t *r,
    const sbx_json_map_t *metadata,
    const ngx_http_sandbox_op_network_t *network, sbx_patch_t *patch,
    ngx_fd_t *blob, sbx_error_t *e)
{
    ngx_str_t  rules;

    *blob = NGX_INVALID_FILE;
    ngx_str_null(&rules);

    if (metadata != NULL) {
        patch->flags |= SBX_PATCH_META;
    }

    if (network != NULL) {
        patch->flags |= SBX_PATCH_NETWORK;
        patch->network = network->mode;
        patch->network_size = network->size;
        rules.data = network->rules;
        rules.len = network->size;
    }

    return ngx_http_sandbox_op_blob(r, metadata, &rules, 1,
                                    &patch->meta_size, blob, e);
}
