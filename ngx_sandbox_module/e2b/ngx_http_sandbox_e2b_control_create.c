/*
 * A new sandbox.  What is asked for in the names of this API becomes what the
 * native API's create has, and is checked there; here is checked what has
 * other names or units, so that a refusal tells what the caller wrote.
 */

#include "ngx_http_sandbox_e2b_control.h"


#define NGX_HTTP_SANDBOX_E2B_ENV       65536     /* variables */
#define NGX_HTTP_SANDBOX_E2B_SIZE_MAX  (64 * 1024 * 1024)   /* megabytes */


typedef struct {
    uint32_t          pad;
    uint32_t          enabled;
} ngx_http_sandbox_e2b_resume_t;


typedef struct {
    uint32_t                    pad;
    uint32_t                    public;
    ngx_http_sandbox_e2b_out_t  out;
} ngx_http_sandbox_e2b_net_t;


typedef struct {
    uint32_t          pad;
    uint32_t          tokens;
    uint32_t          nothing;
} ngx_http_sandbox_e2b_iam_t;


typedef struct {
    uint32_t          nothing;
} ngx_http_sandbox_e2b_mount_t;


typedef struct {
    sbx_json_str_t                 template;
    uint64_t                       timeout;           /* seconds */
    uint32_t                       timeout_seen;
    uint32_t                       secure;
    sbx_json_map_t                 metadata;
    sbx_json_map_t                 env;
    sbx_json_map_t                 more_env;
    uint32_t                       pause;
    uint32_t                       pause_memory;
    uint32_t                       pause_memory_seen;
    uint32_t                       internet;
    uint32_t                       internet_seen;
    ngx_http_sandbox_e2b_resume_t  resume;
    ngx_http_sandbox_e2b_net_t     network;
    ngx_http_sandbox_e2b_iam_t     iam;
    sbx_json_objects_t             mounts;
    uint64_t                       cpus;              /* thousandths */
    uint64_t                       memory;            /* megabytes */
    uint64_t                       disk;
    uint32_t                       memory_seen;
    uint32_t                       disk_seen;
    uint32_t                       gpu;
    uint32_t                       nothing;
} ngx_http_sandbox_e2b_new_t;


static ngx_int_t ngx_http_sandbox_e2b_create_do(ngx_http_request_t *r,
    ngx_uint_t old);
static int ngx_http_sandbox_e2b_create_refuse(
    const ngx_http_sandbox_e2b_new_t *new, sbx_error_t *e);
static int ngx_http_sandbox_e2b_create_body(ngx_http_request_t *r,
    const ngx_http_sandbox_e2b_new_t *new, uint64_t seconds,
    ngx_http_sandbox_op_create_t *body, sbx_error_t *e);
static void ngx_http_sandbox_e2b_create_network(
    const ngx_http_sandbox_e2b_new_t *new,
    ngx_http_sandbox_op_manifest_t *manifest);
static int ngx_http_sandbox_e2b_create_limits(ngx_http_request_t *r,
    const ngx_http_sandbox_e2b_new_t *new, sbx_limits_t *limits,
    sbx_error_t *e);
static int ngx_http_sandbox_e2b_create_size(const char *name, uint64_t size,
    uint64_t max, uint64_t min, uint64_t *value, sbx_error_t *e);
static int ngx_http_sandbox_e2b_create_timeout(ngx_http_request_t *r,
    const ngx_http_sandbox_e2b_new_t *new, uint64_t seconds,
    sbx_limits_t *limits, sbx_error_t *e);
static int ngx_http_sandbox_e2b_create_env(ngx_http_request_t *r,
    const ngx_http_sandbox_e2b_new_t *new, sbx_json_map_t *env,
    sbx_error_t *e);
static int ngx_http_sandbox_e2b_create_capabilities(ngx_http_request_t *r,
    ngx_http_sandbox_op_create_t *body, sbx_error_t *e);
static ngx_int_t ngx_http_sandbox_e2b_create_frame(
    ngx_http_sandbox_call_t *call, const sbx_frame_t *frame,
    const u_char *payload, ngx_fd_t fd);


#define FLAG(word, of, field)                                                 \
    { .name = word, .type = SBX_JSON_BOOL, .nullable = 1,                     \
      .offset = offsetof(of, field) }
/* seen where it is not null */
#define SEEN(word, of, field)                                                 \
    { .name = word, .type = SBX_JSON_ANY, .nullable = 1,                      \
      .offset = offsetof(of, nothing), .seen = offsetof(of, field) }

static const sbx_json_field_t  ngx_http_sandbox_e2b_resume_fields[] = {
    FLAG("enabled", ngx_http_sandbox_e2b_resume_t, enabled),
    NGX_HTTP_SANDBOX_E2B_LAX
};


#define NET(field)  offsetof(ngx_http_sandbox_e2b_net_t, field)
#define OUT(word, field)                                                      \
    { .name = word, .type = SBX_JSON_ANY, .nullable = 1,                      \
      .offset = NET(out.nothing), .seen = NET(out.field) }

static const sbx_json_field_t  ngx_http_sandbox_e2b_net_fields[] = {

    { .name = "allowOut", .type = SBX_JSON_STRINGS, .nullable = 1,
      .max = NGX_HTTP_SANDBOX_E2B_OUT, .offset = NET(out.allow) },

    { .name = "denyOut", .type = SBX_JSON_STRINGS, .nullable = 1,
      .max = NGX_HTTP_SANDBOX_E2B_OUT, .offset = NET(out.deny) },

    FLAG("allowPublicTraffic", ngx_http_sandbox_e2b_net_t, public),
    OUT("maskRequestHost", mask),
    OUT("rules", rules),
    OUT("egressProxy", proxy),

    NGX_HTTP_SANDBOX_E2B_LAX
};


static const sbx_json_field_t  ngx_http_sandbox_e2b_iam_fields[] = {
    SEEN("tokens", ngx_http_sandbox_e2b_iam_t, tokens),
    NGX_HTTP_SANDBOX_E2B_LAX
};


static const sbx_json_field_t  ngx_http_sandbox_e2b_mount_fields[] = {
    NGX_HTTP_SANDBOX_E2B_LAX
};


#define NEW(field)  offsetof(ngx_http_sandbox_e2b_new_t, field)
#define TEMPLATE(word)                                                        \
    { .name = word, .type = SBX_JSON_STRING, .nullable = 1, .min = 1,         \
      .max = SBX_TEMPLATE_MAX - 1, .offset = NEW(template) }

static const sbx_json_field_t  ngx_http_sandbox_e2b_new_fields[] = {

    TEMPLATE("templateID"),
    TEMPLATE("templateId"),
    TEMPLATE("template"),

    { .name = "timeout", .type = SBX_JSON_COUNT, .nullable = 1,
      .offset = NEW(timeout), .seen = NEW(timeout_seen) },

    FLAG("secure", ngx_http_sandbox_e2b_new_t, secure),

    { .name = "metadata", .type = SBX_JSON_MAP, .nullable = 1,
      .max = NGX_HTTP_SANDBOX_OP_META_PAIRS, .offset = NEW(metadata) },

    { .name = "envVars", .type = SBX_JSON_MAP, .nullable = 1,
      .max = NGX_HTTP_SANDBOX_E2B_ENV, .offset = NEW(env) },

    { .name = "envs", .type = SBX_JSON_MAP, .nullable = 1,
      .max = NGX_HTTP_SANDBOX_E2B_ENV, .offset = NEW(more_env) },

    FLAG("autoPause", ngx_http_sandbox_e2b_new_t, pause),

    { .name = "autoPauseMemory", .type = SBX_JSON_BOOL, .nullable = 1,
      .offset = NEW(pause_memory), .seen = NEW(pause_memory_seen) },

    { .name = "autoResume", .type = SBX_JSON_OBJECT, .nullable = 1,
      .fields = ngx_http_sandbox_e2b_resume_fields, .offset = NEW(resume) },

    { .name = "allow_internet_access", .type = SBX_JSON_BOOL, .nullable = 1,
      .offset = NEW(internet), .seen = NEW(internet_seen) },

    { .name = "network", .type = SBX_JSON_OBJECT, .nullable = 1,
      .fields = ngx_http_sandbox_e2b_net_fields, .offset = NEW(network) },

    { .name = "iam", .type = SBX_JSON_OBJECT, .nullable = 1,
      .fields = ngx_http_sandbox_e2b_iam_fields, .offset = NEW(iam) },

    { .name = "volumeMounts", .type = SBX_JSON_OBJECTS, .nullable = 1,
      .fields = ngx_http_sandbox_e2b_mount_fields,
      .size = sizeof(ngx_http_sandbox_e2b_mount_t), .max = 64,
      .offset = NEW(mounts) },

    { .name = "cpuCount", .type = SBX_JSON_LIMIT, .limit = "cpus",
      .nullable = 1, .offset = NEW(cpus) },

    { .name = "memoryMB", .type = SBX_JSON_COUNT, .nullable = 1,
      .offset = NEW(memory), .seen = NEW(memory_seen) },

    { .name = "diskSizeMB", .type = SBX_JSON_COUNT, .nullable = 1,
      .offset = NEW(disk), .seen = NEW(disk_seen) },

    SEEN("gpu", ngx_http_sandbox_e2b_new_t, gpu),

    NGX_HTTP_SANDBOX_E2B_LAX
};


ngx_int_t
ngx_http_sandbox_e2b_create(ngx_http_request_t *r)
{
    return ngx_http_sandbox_e2b_create_do(r, 0);
}


ngx_int_t
ngx_http_sandbox_e2b_create_old(ngx_http_request_t *r)
{
    return ngx_http_sandbox_e2b_create_do(r, 1);
}


static ngx_int_t
ngx_http_sandbox_e2b_create_do(ngx_http_request_t *r, ngx_uint_t old)
{
    uint32_t                        flags;
    uint64_t                        seconds;
    sbx_error_t                     e;
    ngx_http_sandbox_call_t        *call;
    ngx_http_sandbox_e2b_new_t      new;
    ngx_http_sandbox_op_create_t    body;
    ngx_http_sandbox_op_session_t  *session;

    ngx_memzero(&new, sizeof(new));
    new.internet = 1;
    new.network.public = 1;
    new.cpus = SBX_UNSET;

    session = ngx_pcalloc(r->pool, sizeof(ngx_http_sandbox_op_session_t));

    if (session == NULL) {
        return ngx_http_sandbox_problem(r, NGX_HTTP_SANDBOX_INTERNAL, NULL);
    }

    seconds = old ? NGX_HTTP_SANDBOX_E2B_TIMEOUT_OLD
                  : NGX_HTTP_SANDBOX_E2B_TIMEOUT;

    if (ngx_http_sandbox_op_bind(r, ngx_http_sandbox_e2b_new_fields, &new, &e)
        != 0
        || ngx_http_sandbox_e2b_create_refuse(&new, &e) != 0
        || ngx_http_sandbox_e2b_create_body(r, &new, seconds, &body, &e) != 0)
    {
        return ngx_http_sandbox_e2b_fault(r, &e);
    }

    flags = 0;

    if (new.pause) {
        flags |= SBX_CREATE_ON_TIMEOUT_PAUSE;
    }

    if (new.resume.enabled) {
        flags |= SBX_CREATE_AUTO_RESUME;
    }

    if (old && !new.secure) {
        flags |= SBX_CREATE_NO_TOKEN;
    }

    if (!new.network.public) {
        flags |= SBX_CREATE_PORT_TOKEN;
    }

    if (ngx_http_sandbox_op_create_call(r, &body, flags, session, &call, &e)
        != 0)
    {
        return ngx_http_sandbox_e2b_fault(r, &e);
    }

    call->frame = ngx_http_sandbox_e2b_create_frame;

    return ngx_http_sandbox_op_start(r, call);
}


/* What would be given in name alone is not taken. */

static int
ngx_http_sandbox_e2b_create_refuse(const ngx_http_sandbox_e2b_new_t *new,
    sbx_error_t *e)
{
    ngx_uint_t  i;

    const struct {
        ngx_uint_t   asked;
        const char  *why;
    } table[] = {
        { new->template.data == NULL, "templateID: is missing" },
        { new->timeout_seen && new->timeout == 0,
          "Timeout must be greater than 0" },
        { new->pause_memory_seen && !new->pause_memory,
          "autoPauseMemory: a pause of this server always keeps memory and "
          "processes; leave it out or set it to true" },
        { new->iam.tokens, "iam: there is no such thing on this server; "
          "leave it out" },
        { new->mounts.nelts != 0,
          "volumeMounts: there are no volumes on this server; leave it out" },
        { new->gpu, "gpu: this server gives no GPU; leave it out" }
    };

    for (i = 0; i < sizeof(table) / sizeof(table[0]); i++) {
        if (table[i].asked) {
            return sbx_error(e, 0, SBX_E_INVALID, "%s", table[i].why);
        }
    }

    return ngx_http_sandbox_e2b_network_refuse(&new->network.out, "network.",
                                               e);
}


static int
ngx_http_sandbox_e2b_create_body(ngx_http_request_t *r,
    const ngx_http_sandbox_e2b_new_t *new, uint64_t seconds,
    ngx_http_sandbox_op_create_t *body, sbx_error_t *e)
{
    ngx_http_sandbox_ctx_t  *ctx;

    ngx_memzero(body, sizeof(ngx_http_sandbox_op_create_t));
    sbx_limits_clear(&body->manifest.limits);

    body->template = new->template;
    body->metadata = new->metadata;
    ngx_http_sandbox_e2b_create_network(new, &body->manifest);

    /* a body of this API has no names: one tenant's users may be one */

    ctx = ngx_http_sandbox_ctx(r);

    if (!ctx->user_bound) {
        body->user.data = NGX_HTTP_SANDBOX_DEFAULT_NAME;
        body->user.len = sizeof(NGX_HTTP_SANDBOX_DEFAULT_NAME) - 1;
    }

    if (ngx_http_sandbox_e2b_create_env(r, new, &body->env, e) != 0
        || ngx_http_sandbox_e2b_create_limits(r, new, &body->manifest.limits,
                                              e)
           != 0
        || ngx_http_sandbox_e2b_create_timeout(r, new, seconds,
                                               &body->manifest.limits, e)
           != 0)
    {
        return -1;
    }

    return ngx_http_sandbox_e2b_create_capabilities(r, body, e);
}


/* Who asks for nothing of his own takes what his template says, or what the
 * operator grants, be it nothing. */

static void
ngx_http_sandbox_e2b_create_network(const ngx_http_sandbox_e2b_new_t *new,
    ngx_http_sandbox_op_manifest_t *manifest)
{
    manifest->network_first = ngx_http_sandbox_e2b_network_asked(
                                  &new->network.out, new->internet,
                                  &manifest->network);
    manifest->network_soft = 1;
    manifest->network_seen = new->internet_seen
                             || new->network.out.allow.nelts != 0
                             || new->network.out.deny.nelts != 0;
}


static int
ngx_http_sandbox_e2b_create_limits(ngx_http_request_t *r,
    const ngx_http_sandbox_e2b_new_t *new, sbx_limits_t *limits,
    sbx_error_t *e)
{
    char                           asked[32], most[32];
    const sbx_limit_t             *row;
    ngx_http_sandbox_main_conf_t  *smcf;

    smcf = ngx_http_get_module_main_conf(r, ngx_http_sandbox_module);

    if (new->cpus != SBX_UNSET) {

        if (new->cpus > smcf->max.cpus) {
            row = sbx_limit_find("cpus", 4, 0);
            asked[sbx_limit_print(row, new->cpus, asked)] = '\0';
            most[sbx_limit_print(row, smcf->max.cpus, most)] = '\0';

            return sbx_error(e, 0, SBX_E_INVALID,
                             "cpuCount asks for %s, but the most that is "
                             "allowed is %s", asked, most);
        }

        limits->cpus = new->cpus;
    }

    row = sbx_limit_find("memory", 6, 0);

    if (new->memory_seen
        && ngx_http_sandbox_e2b_create_size("memoryMB", new->memory,
                                            smcf->max.memory, row->min,
                                            &limits->memory, e)
           != 0)
    {
        return -1;
    }

    row = sbx_limit_find("disk", 4, 0);

    if (new->disk_seen
        && ngx_http_sandbox_e2b_create_size("diskSizeMB", new->disk,
                                            smcf->max.disk, row->min,
                                            &limits->disk, e)
           != 0)
    {
        return -1;
    }

    return 0;
}


static int
ngx_http_sandbox_e2b_create_size(const char *name, uint64_t size,
    uint64_t max, uint64_t min, uint64_t *value, sbx_error_t *e)
{
    max = ngx_min(max >> 20, NGX_HTTP_SANDBOX_E2B_SIZE_MAX);

    if (size > max) {
        return sbx_error(e, 0, SBX_E_INVALID,
                         "%s asks for %llu, but the most that is allowed is "
                         "%llu", name, (unsigned long long) size,
                         (unsigned long long) max);
    }

    *value = size << 20;

    if (*value < min) {
        return sbx_error(e, 0, SBX_E_INVALID, "%s must be at least %llu",
                         name, (unsigned long long) (min + 1048575) >> 20);
    }

    return 0;
}


/* The API's own default, but for a template that has one, and below what is
 * allowed. */

static int
ngx_http_sandbox_e2b_create_timeout(ngx_http_request_t *r,
    const ngx_http_sandbox_e2b_new_t *new, uint64_t seconds,
    sbx_limits_t *limits, sbx_error_t *e)
{
    ngx_http_sandbox_template_t   *template;
    ngx_http_sandbox_main_conf_t  *smcf;

    if (new->timeout_seen) {
        return ngx_http_sandbox_e2b_seconds(r, "timeout", new->timeout,
                                            &limits->timeout, e);
    }

    smcf = ngx_http_get_module_main_conf(r, ngx_http_sandbox_module);
    template = ngx_http_sandbox_template_of(smcf, new->template.data,
                                            new->template.len);

    if (template == NULL || template->limits.timeout == SBX_UNSET) {
        limits->timeout = ngx_min(seconds * 1000, smcf->max.timeout);
    }

    return 0;
}


/* One table of both; where both have a variable, "envs" wins. */

static int
ngx_http_sandbox_e2b_create_env(ngx_http_request_t *r,
    const ngx_http_sandbox_e2b_new_t *new, sbx_json_map_t *env,
    sbx_error_t *e)
{
    size_t                  i, k;
    sbx_json_pair_t        *pair;
    const sbx_json_pair_t  *more;

    *env = new->env;

    if (new->more_env.nelts == 0) {
        return 0;
    }

    if (new->env.nelts == 0) {
        *env = new->more_env;
        return 0;
    }

    /* nobody sends both; the bound is on what the two loops may take */

    if (new->env.nelts > 1024 || new->more_env.nelts > 1024) {
        return sbx_error(e, 0, SBX_E_INVALID,
                         "envs: has more than 1024 variables beside envVars");
    }

    pair = ngx_palloc(r->pool, (new->env.nelts + new->more_env.nelts)
                               * sizeof(sbx_json_pair_t));

    if (pair == NULL) {
        return sbx_error(e, 0, SBX_E_INTERNAL, "out of memory");
    }

    ngx_memcpy(pair, new->env.elts, new->env.nelts * sizeof(sbx_json_pair_t));
    env->elts = pair;

    for (i = 0; i < new->more_env.nelts; i++) {
        more = &new->more_env.elts[i];

        for (k = 0; k < new->env.nelts; k++) {
            if (pair[k].key.len == more->key.len
                && ngx_memcmp(pair[k].key.data, more->key.data,
                              more->key.len)
                   == 0)
            {
                break;
            }
        }

        if (k == new->env.nelts) {
            k = env->nelts++;
        }

        pair[k] = *more;
    }

    return 0;
}


/* All that there are, unless the template has fewer. */

static int
ngx_http_sandbox_e2b_create_capabilities(ngx_http_request_t *r,
    ngx_http_sandbox_op_create_t *body, sbx_error_t *e)
{
    uint32_t                           bits;
    ngx_uint_t                         i, n;
    sbx_json_str_t                    *word;
    ngx_http_sandbox_template_t       *template;
    ngx_http_sandbox_main_conf_t      *smcf;
    const ngx_http_sandbox_op_word_t  *words;

    smcf = ngx_http_get_module_main_conf(r, ngx_http_sandbox_module);
    template = ngx_http_sandbox_template_of(smcf, body->template.data,
                                            body->template.len);
    bits = (template != NULL && template->has_capabilities)
           ? template->capabilities : (uint32_t) ~0;

    words = ngx_http_sandbox_op_capability_words;

    for (n = 0; words[n].word != NULL; n++) {
        /* void */
    }

    word = ngx_palloc(r->pool, n * sizeof(sbx_json_str_t));

    if (word == NULL) {
        return sbx_error(e, 0, SBX_E_INTERNAL, "out of memory");
    }

    body->manifest.capabilities.elts = word;
    body->manifest.capabilities_seen = 1;

    for (i = 0; i < n; i++) {
        if (words[i].bit & bits) {
            word->data = words[i].word;
            word->len = ngx_strlen(words[i].word);
            word++;
        }
    }

    body->manifest.capabilities.nelts = word
                                        - body->manifest.capabilities.elts;

    return 0;
}


static ngx_int_t
ngx_http_sandbox_e2b_create_frame(ngx_http_sandbox_call_t *call,
    const sbx_frame_t *frame, const u_char *payload, ngx_fd_t fd)
{
    ngx_int_t  rc;

    rc = ngx_http_sandbox_op_session_part(call, frame, payload, fd);

    return (rc != NGX_DECLINED)
           ? rc : ngx_http_sandbox_e2b_sandbox_finish(call, NGX_HTTP_CREATED);
}
