#include "broker.h"
#include "sandbox_fault.h"
#include "sandbox_rules.h"
#include "unkept.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>


#define SBX_CREATE_CAPABILITIES                                              \
    (SBX_CAP_SHELL|SBX_CAP_FILES|SBX_CAP_CODE|SBX_CAP_PORTS)
#define SBX_CREATE_SEALS  (F_SEAL_WRITE|F_SEAL_SHRINK|F_SEAL_GROW)


static int sbx_create_before(sbx_broker_t *b, sbx_call_out_t *call,
    const sbx_create_t *body);
static int sbx_create_by_key(sbx_broker_t *b, sbx_call_out_t *call,
    const sbx_create_t *body);
static int sbx_create_by_call(sbx_broker_t *b, sbx_call_out_t *call,
    const sbx_create_t *body);
static int sbx_create_check(sbx_broker_t *b, const sbx_call_t *head,
    sbx_create_t *body, sbx_error_t *e);
static int sbx_create_weak(sbx_broker_t *b, sbx_call_out_t *call,
    const sbx_create_t *body);
static void sbx_create_failed(sbx_call_out_t *call, const sbx_error_t *e);
static void sbx_create_admitted(sbx_broker_t *b, sbx_call_out_t *call,
    sbx_create_t *create, char **data);
static int sbx_create_blob(const sbx_create_t *body, int blob, char **data,
    sbx_error_t *e);
static int sbx_create_env(const char *env, size_t size, sbx_error_t *e);
static int sbx_create_rules(sbx_broker_t *b, const sbx_call_t *head,
    const sbx_create_t *body, const char *data, sbx_error_t *e);
static int sbx_create_network(sbx_broker_t *b, sbx_call_out_t *call,
    const sbx_create_t *body, const char *data);
static size_t sbx_create_size(const sbx_create_t *body);
static int sbx_create_session(sbx_broker_t *b, const sbx_call_t *head,
    const sbx_create_t *body, const char *data, sbx_session_t **session,
    sbx_error_t *e);


void
sbx_create(sbx_broker_t *b, sbx_call_out_t *call, const sbx_create_t *body,
    int blob)
{
    sbx_error_t         e;
    sbx_create_t        create;
    sbx_auto_free char *data = NULL;

    create = *body;

    if (!b->configured || b->ending) {
        sbx_call_error(call, &b->problem);
        return;
    }

    if (sbx_create_before(b, call, &create)) {
        return;
    }

    if (sbx_create_check(b, &call->head, &create, &e) != 0) {
        sbx_create_failed(call, &e);
        return;
    }

    if (!b->isolated && sbx_create_weak(b, call, &create) != 0) {
        return;
    }

    if (sbx_create_blob(&create, blob, &data, &e) != 0
        || sbx_create_rules(b, &call->head, &create, data, &e) != 0)
    {
        sbx_create_failed(call, &e);
        return;
    }

    if (sbx_create_network(b, call, &create, data) != 0) {
        return;
    }

    sbx_create_admitted(b, call, &create, &data);
}


void
sbx_create_again(sbx_broker_t *b, sbx_call_out_t *call, sbx_create_t *body,
    char **data)
{
    if (!b->configured || b->ending) {
        sbx_call_error(call, &b->problem);
        return;
    }

    /* another call may have come first with its key */

    if (!sbx_create_before(b, call, body)) {
        sbx_create_admitted(b, call, body, data);
    }
}


static void
sbx_create_admitted(sbx_broker_t *b, sbx_call_out_t *call,
    sbx_create_t *create, char **data)
{
    sbx_error_t     e;
    sbx_f_error_t   error;
    sbx_session_t  *s;

    if (b->quotas.draining.value) {
        (void) sbx_error(&e, 0, SBX_E_CAPACITY, "this node is draining");
        sbx_call_error(call, &e);
        return;
    }

    if (sbx_unkept_admit(b, &e) != 0) {
        sbx_create_failed(call, &e);
        return;
    }

    if (sbx_quota_admit(b, &call->head, &create->limits, &error) != 0) {
        sbx_call_fail(call, &error);
        return;
    }

    SBX_FAULT("broker-create-admitted");

    s = sbx_pool_take(b, &call->head, create, *data);

    if (s == NULL
        && sbx_create_session(b, &call->head, create, *data, &s, &e) != 0)
    {
        if (e.code != SBX_E_CAPACITY
            || !sbx_pool_yield(b, call, create, data))
        {
            sbx_create_failed(call, &e);
        }

        return;
    }

    sbx_call_wait(call, &s->creators);
}


static void
sbx_create_failed(sbx_call_out_t *call, const sbx_error_t *e)
{
    sbx_f_error_t  error;

    if (e->code == SBX_E_INTERNAL || e->code == SBX_E_UNAVAILABLE) {
        sbx_log_error(SBX_LOG_ERROR,
                      &(sbx_log_about_t) { call->head.request_id, NULL }, e,
                      "session cannot be created");
    }

    sbx_call_fill(&error, e);

    if (e->code == SBX_E_CAPACITY) {
        error.retry_after = SBX_QUOTA_WAIT_MAX;
    }

    sbx_call_fail(call, &error);
}


/* 1: the call has been answered, or waits for a session being made. */

static int
sbx_create_before(sbx_broker_t *b, sbx_call_out_t *call,
    const sbx_create_t *body)
{
    if (body->key[0] != '\0') {
        return sbx_create_by_key(b, call, body);
    }

    return (call->head.flags & SBX_CALL_AGAIN)
           ? sbx_create_by_call(b, call, body) : 0;
}


/* A broker that died may have made the session, which is in the store then,
 * and not have lived to answer. */

static int
sbx_create_by_call(sbx_broker_t *b, sbx_call_out_t *call,
    const sbx_create_t *body)
{
    sbx_node_t     *node;
    sbx_session_t  *s;

    static const uint8_t  none[sizeof(body->body_digest)];

    if (memcmp(body->body_digest, none, sizeof(none)) == 0) {
        return 0;
    }

    for (node = b->sessions.next; node != &b->sessions; node = node->next) {
        s = sbx_node_of(node, sbx_session_t, link);

        if (s->state == SBX_S_RUNNING && s->key[0] == '\0'
            && memcmp(s->digest, body->body_digest, sizeof(s->digest)) == 0
            && strcmp(s->info.tenant, call->head.tenant) == 0
            && strcmp(s->info.user, call->head.user) == 0)
        {
            sbx_call_wait(call, &s->creators);
            sbx_create_answer(s);
            return 1;
        }
    }

    return 0;
}


static int
sbx_create_by_key(sbx_broker_t *b, sbx_call_out_t *call,
    const sbx_create_t *body)
{
    sbx_node_t     *node;
    sbx_error_t     e;
    sbx_session_t  *s;

    s = NULL;

    for (node = b->sessions.next; node != &b->sessions; node = node->next) {
        s = sbx_node_of(node, sbx_session_t, link);

        if (s->keyed && strcmp(s->key, body->key) == 0
            && strcmp(s->info.tenant, call->head.tenant) == 0)
        {
            break;
        }
    }

    if (node == &b->sessions || s == NULL) {
        return 0;
    }

    if (memcmp(s->digest, body->body_digest, sizeof(s->digest)) != 0) {
        (void) sbx_error(&e, 0, SBX_E_CONFLICT,
                         "the Idempotency-Key belongs to a session that was "
                         "asked for with another body");
        sbx_call_error(call, &e);
        return 1;
    }

    if (s->state == SBX_S_CREATING) {
        sbx_call_wait(call, &s->creators);
        return 1;
    }

    if (sbx_service_session(call, s, NULL) == 0) {
        sbx_call_end(call, NULL);
    }

    return 1;
}


static int
sbx_create_configured(const sbx_broker_t *b, const char *name)
{
    size_t  i;

    for (i = 0; i < SBX_TEMPLATES_MAX; i++) {
        if (name[0] != '\0'
            && strncmp(b->config.templates[i], name, SBX_TEMPLATE_MAX) == 0)
        {
            return 1;
        }
    }

    return 0;
}


const char *
sbx_create_means(const sbx_broker_t *b, const char *name)
{
    return (!sbx_create_configured(b, name) && sbx_template_builtin(name))
           ? "base" : name;
}


/* A template without files of its own has those of the machine. */

const char *
sbx_create_root(const sbx_broker_t *b, const char *name)
{
    char         path[SBX_PATH_MAX + SBX_TEMPLATE_MAX + 16];
    struct stat  st;

    if (b->config.template_dir[0] == '\0') {
        return "base";
    }

    name = sbx_create_means(b, name);

    (void) snprintf(path, sizeof(path), "%s/%s/rootfs",
                    b->config.template_dir, name);

    return stat(path, &st) == 0 && S_ISDIR(st.st_mode) ? name : "base";
}


static int
sbx_create_check(sbx_broker_t *b, const sbx_call_t *head, sbx_create_t *body,
    sbx_error_t *e)
{
    if (!sbx_name_ok(head->tenant, strlen(head->tenant))) {
        return sbx_error(e, 0, SBX_E_INVALID, "tenant_id is missing");
    }

    if (!sbx_name_ok(head->user, strlen(head->user))) {
        return sbx_error(e, 0, SBX_E_INVALID, "user_id is missing");
    }

    /* the session is told by the name that was asked for */

    if (!sbx_template_builtin(body->template)
        && !sbx_create_configured(b, body->template))
    {
        return sbx_error(e, 0, SBX_E_TEMPLATE,
                         "there is no template \"%s\"", body->template);
    }

    if ((body->capabilities & ~(uint32_t) SBX_CREATE_CAPABILITIES) != 0
        || (body->flags & ~(uint32_t) SBX_CREATE_FLAGS) != 0)
    {
        return sbx_error(e, 0, SBX_E_INVALID,
                         "capabilities or flags hold unknown bits");
    }

    if ((body->flags & SBX_CREATE_ON_TIMEOUT_PAUSE)
        && !b->layers.row[SBX_LAYER_PAUSE].enforced)
    {
        return sbx_error(e, 0, SBX_E_MANIFEST,
                         "/manifest/on_timeout: this machine cannot pause a "
                         "session: %s", b->layers.row[SBX_LAYER_PAUSE].mend);
    }

    if ((body->flags & SBX_CREATE_TIED) && body->key[0] != '\0') {
        return sbx_error(e, 0, SBX_E_INVALID,
                         "one that is tied to its call has no key");
    }

    if (body->idle_timeout >= SBX_UNLIMITED) {
        return sbx_error(e, 0, SBX_E_INVALID, "idle_timeout is too long");
    }

    return sbx_create_limits(b, body, e);
}


/* The machine lacks a layer.  -1: the call has been refused by its name. */

static int
sbx_create_weak(sbx_broker_t *b, sbx_call_out_t *call,
    const sbx_create_t *body)
{
    char           names[128];
    uint64_t       weak;
    sbx_error_t    e;
    sbx_f_error_t  error;

    weak = sbx_layers_weak(&b->layers);
    sbx_layers_names(weak, names, sizeof(names));

    if (!sbx_setting_value(b, SBX_SETTING_ISOLATION)
        && (body->flags & SBX_CREATE_WEAK_OK))
    {
        sbx_log(SBX_LOG_WARN,
                &(sbx_log_about_t) { call->head.request_id, NULL }, 0,
                "a session is made that is not isolated by: %s", names);
        return 0;
    }

    (void) sbx_error(&e, 0, SBX_E_MANIFEST,
                     "require_isolation is set, and this machine lacks: %s",
                     names);

    sbx_call_fill(&error, &e);
    (void) snprintf(error.mend, sizeof(error.mend), "%s",
                    sbx_layers_mend(&b->layers, weak));
    sbx_call_fail(call, &error);

    return -1;
}


int
sbx_create_limits(sbx_broker_t *b, sbx_create_t *body, sbx_error_t *e)
{
    sbx_limits_t        limits;
    const sbx_limit_t  *limit;

    if (body->limits.disk == SBX_UNSET) {
        body->limits.disk = sbx_storage_default_disk(b->storage,
                                                     body->limits.memory);

        if (body->limits.disk > b->config.max.disk) {
            body->limits.disk = b->config.max.disk;
        }
    }

    limits = body->limits;

    if (sbx_limits_settle(&body->limits, &limits, &b->config.max, e) != 0) {
        return -1;
    }

    if (body->limits.open_files > b->open_files) {
        return sbx_error(e, 0, SBX_E_MANIFEST,
                         "open_files asks for %llu, but the broker's own "
                         "hard limit is %llu",
                         (unsigned long long) body->limits.open_files,
                         (unsigned long long) b->open_files);
    }

    /* what a worker leaves out has no default here */

    for (limit = sbx_limit_table; limit->name != NULL; limit++) {
        if (*sbx_limit_field(&body->limits, limit) == SBX_UNSET) {
            return sbx_error(e, 0, SBX_E_INVALID, "limits are not settled");
        }
    }

    if (body->limits.memory >= SBX_UNLIMITED
        || body->limits.processes >= SBX_UNLIMITED
        || body->limits.disk >= SBX_UNLIMITED
        || body->limits.timeout >= SBX_UNLIMITED)
    {
        return sbx_error(e, 0, SBX_E_INVALID, "limits are not settled");
    }

    return sbx_storage_admit(b->storage, &body->limits, e);
}


/* Metadata, environment, file rules, rules of the network.  Sealed, it cannot
 * change under our eyes. */

static int
sbx_create_blob(const sbx_create_t *body, int blob, char **data,
    sbx_error_t *e)
{
    size_t  size;

    if (body->meta_size > SBX_META_MAX) {
        return sbx_error(e, 0, SBX_E_TOO_LARGE, "metadata is over %d bytes",
                         SBX_META_MAX);
    }

    if (body->env_size > SBX_ENV_MAX) {
        return sbx_error(e, 0, SBX_E_TOO_LARGE, "env is over %d bytes",
                         SBX_ENV_MAX);
    }

    if (body->rules_size > SBX_RULES_MAX) {
        return sbx_error(e, 0, SBX_E_MANIFEST,
                         "/manifest/filesystem: takes more than %d bytes",
                         SBX_RULES_MAX);
    }

    if (body->network_size > SBX_NETWORK_SIZE) {
        return sbx_error(e, 0, SBX_E_MANIFEST,
                         "/manifest/network: takes more than %d bytes",
                         SBX_NETWORK_SIZE);
    }

    size = sbx_create_size(body) + body->network_size;

    if ((size != 0) != (blob != -1)) {
        return sbx_error(e, 0, SBX_E_INVALID, "the blob is missing");
    }

    if (size == 0) {
        return 0;
    }

    if (sbx_create_read(blob, size, data, e) != 0) {
        return -1;
    }

    return sbx_create_env(*data + body->meta_size, body->env_size, e);
}


int
sbx_create_read(int blob, size_t size, char **data, sbx_error_t *e)
{
    int          seals;
    struct stat  st;

    seals = fcntl(blob, F_GET_SEALS);

    if (seals == -1 || (seals & SBX_CREATE_SEALS) != SBX_CREATE_SEALS
        || fstat(blob, &st) == -1 || st.st_size != (off_t) size)
    {
        return sbx_error(e, 0, SBX_E_INVALID,
                         "the blob is not sealed or not of its size");
    }

    *data = malloc(size);

    if (*data == NULL) {
        return sbx_error(e, ENOMEM, SBX_E_UNAVAILABLE, "out of memory");
    }

    if (pread(blob, *data, size, 0) != (ssize_t) size) {
        return sbx_error(e, errno, SBX_E_INTERNAL, "cannot read the blob");
    }

    return 0;
}


static int
sbx_create_env(const char *env, size_t size, sbx_error_t *e)
{
    size_t       len;
    const char  *p, *end, *c;

    end = env + size;

    for (p = env; p < end; p += len + 1) {
        len = strnlen(p, (size_t) (end - p));

        if (len == (size_t) (end - p)) {
            return sbx_error(e, 0, SBX_E_INVALID, "env is not terminated");
        }

        for (c = p; *c != '=' && (unsigned char) *c > ' ' && *c != 0x7f;
             c++)
        {
            /* void */
        }

        if (*c != '=' || c == p) {
            return sbx_error(e, 0, SBX_E_INVALID,
                             "env holds a malformed name");
        }
    }

    return 0;
}


/* Which directories a tenant is offered is decided here, not by a worker. */

static int
sbx_create_rules(sbx_broker_t *b, const sbx_call_t *head,
    const sbx_create_t *body, const char *data, sbx_error_t *e)
{
    sbx_bind_t   bind;
    sbx_rule_t   rule;
    const char  *rules;

    if (body->rules_size == 0 || data == NULL) {
        return 0;
    }

    rules = data + body->meta_size + body->env_size;

    if (sbx_rules_check(rules, body->rules_size, e) != 0) {
        return -1;
    }

    sbx_rule_first(&rule, rules, body->rules_size);

    while (sbx_rule_next(&rule) == 1) {
        if (rule.text[-1] == SBX_RULE_BIND
            && sbx_bind_find(b->config.binds, b->config.binds_size,
                             rule.text, head->tenant, &bind)
               != 0)
        {
            return sbx_rule_refuse(&rule, 0, SBX_BIND_REFUSED, e);
        }
    }

    return 0;
}


/* Where the rules of the network begin. */

static size_t
sbx_create_size(const sbx_create_t *body)
{
    return (size_t) body->meta_size + body->env_size + body->rules_size;
}


/* What the worker has checked as well.  -1: the call has been refused. */

static int
sbx_create_network(sbx_broker_t *b, sbx_call_out_t *call,
    const sbx_create_t *body, const char *data)
{
    const char     *mend;
    sbx_error_t     e;
    sbx_f_error_t   error;

    if (sbx_way_admit(b, body->template, body->network,
                      data != NULL ? data + sbx_create_size(body) : NULL,
                      body->network_size, "/manifest/network", &e)
        == 0)
    {
        return 0;
    }

    mend = sbx_way_lacks(b, body->network);
    sbx_call_fill(&error, &e);
    (void) snprintf(error.mend, sizeof(error.mend), "%s",
                    mend != NULL ? mend : "");
    sbx_call_fail(call, &error);

    return -1;
}


int
sbx_create_keep(sbx_session_t *s, const sbx_create_t *body, const char *data,
    sbx_error_t *e)
{
    if (data == NULL) {
        return 0;
    }

    return sbx_create_copy(data, body->meta_size, &s->meta, e) == 0
           && sbx_create_copy(data + sbx_create_size(body),
                              body->network_size, &s->way.rules, e) == 0
           ? 0 : -1;
}


int
sbx_create_copy(const char *from, size_t size, char **to, sbx_error_t *e)
{
    if (size == 0) {
        return 0;
    }

    *to = malloc(size);

    if (*to == NULL) {
        return sbx_error(e, ENOMEM, SBX_E_UNAVAILABLE, "out of memory");
    }

    memcpy(*to, from, size);

    return 0;
}


static int
sbx_create_session(sbx_broker_t *b, const sbx_call_t *head,
    const sbx_create_t *body, const char *data, sbx_session_t **session,
    sbx_error_t *e)
{
    const char     *env, *rules;
    sbx_session_t  *s;

    s = sbx_session_make(b);

    if (s == NULL) {
        return sbx_error(e, ENOMEM, SBX_E_UNAVAILABLE, "out of memory");
    }

    env = data == NULL ? NULL : data + body->meta_size;
    rules = data == NULL ? NULL : env + body->env_size;

    if (sbx_create_keep(s, body, data, e) != 0) {
        sbx_session_free(s);
        return -1;
    }

    if (sbx_ids_take(b, s, e) != 0
        || sbx_ids_name(b, s->info.id, e) != 0)
    {
        sbx_session_free(s);
        return -1;
    }

    sbx_create_info(s, head, body);

    if (sbx_quota_take(s, e) != 0 || sbx_create_dir(s, e) != 0) {
        sbx_session_free(s);
        return -1;
    }

    SBX_FAULT("broker-create-taken");

    if (sbx_create_groups(s, &s->error) == 0
        && sbx_create_launch(s, env, body->env_size, rules, body->rules_size,
                             &s->error) == 0)
    {
        SBX_FAULT("broker-create-launched");
        *session = s;
        return 0;
    }

    /* what there is of it goes the way of every session */

    *e = s->error;
    sbx_session_end(s, SBX_ENDED_DESTROYED, 1);

    return -1;
}


int
sbx_create_dir(sbx_session_t *s, sbx_error_t *e)
{
    if (mkdirat(s->broker->sessions_dir, s->info.id, 0700) == -1) {
        return sbx_error(e, errno, SBX_E_UNAVAILABLE,
                         "cannot make the session's directory");
    }

    sbx_session_insert(s);

    return 0;
}


/* What its groups limit: of its files, those in memory. */

void
sbx_create_group(const sbx_broker_t *b, const sbx_limits_t *limits,
    sbx_limits_t *group)
{
    *group = *limits;
    group->disk = sbx_storage_in_memory(b->storage, limits);
}


int
sbx_create_groups(sbx_session_t *s, sbx_error_t *e)
{
    sbx_broker_t  *b;
    sbx_limits_t   group;

    b = s->broker;

    sbx_create_group(b, &s->info.limits, &group);

    s->dir = openat(b->sessions_dir, s->info.id,
                    O_RDONLY|O_DIRECTORY|O_CLOEXEC|O_NOFOLLOW);

    if (s->dir == -1) {
        return sbx_error(e, errno, SBX_E_UNAVAILABLE,
                         "cannot open the session's directory");
    }

    if (sbx_control_crowded(b, s->dir, 2)) {
        return sbx_error(e, 0, SBX_E_CAPACITY,
                         "the broker may open %llu files, which leaves no "
                         "room for another session",
                         (unsigned long long) b->open_files);
    }

    if (sbx_cgroup_session_create(b->cgroup, s->info.id, &group, 0,
                                  &s->cgroup, e)
        != 0)
    {
        return -1;
    }

    SBX_FAULT("broker-create-grouped");

    if (sbx_cgroup_session_owner(s->cgroup, s->uid_first, 0, e) != 0) {
        return -1;
    }

    s->killer = sbx_cgroup_session_killer(s->cgroup);

    return s->killer == -1
           ? sbx_error(e, errno, SBX_E_UNAVAILABLE,
                       "the session's groups cannot be opened") : 0;
}


int
sbx_create_launch(sbx_session_t *s, const char *env, size_t env_size,
    const char *rules, size_t rules_size, sbx_error_t *e)
{
    if (sbx_session_launch(s, env, env_size, rules, rules_size, e) != 0) {
        return -1;
    }

    SBX_FAULT("broker-create-cloned");

    return sbx_create_record(s, e);
}


void
sbx_create_info(sbx_session_t *s, const sbx_call_t *head,
    const sbx_create_t *body)
{
    sbx_broker_t     *b;
    sbx_f_session_t  *info;

    b = s->broker;
    info = &s->info;

    memcpy(info->tenant, head->tenant, sizeof(info->tenant));
    memcpy(info->user, head->user, sizeof(info->user));
    memcpy(info->template, body->template, sizeof(info->template));
    info->seq = s->pooled ? 0 : ++b->seq;
    info->created = sbx_broker_clock_ms();
    info->expires = info->created + (int64_t) body->limits.timeout;
    info->status = SBX_STATUS_RUNNING;
    info->capabilities = body->capabilities;
    info->flags = body->flags;
    info->isolated = b->isolated;
    info->meta_size = body->meta_size;
    info->limits = body->limits;
    info->idle_timeout = body->idle_timeout;
    info->network = body->network;
    info->network_size = body->network_size;
    info->enforcement = b->enforcement;

    if (body->flags & SBX_CREATE_MEMORY_RLIMIT) {
        info->enforcement.memory = SBX_BY_RLIMIT;
    }

    memcpy(s->request, head->request_id, sizeof(s->request));

    memcpy(s->key, body->key, sizeof(s->key));
    memcpy(s->digest, body->body_digest, sizeof(s->digest));
    s->keyed = body->key[0] != '\0';
}


int
sbx_create_record(sbx_session_t *s, sbx_error_t *e)
{
    s->job = sbx_change_record(s, &s->info, s->meta, s->way.rules);

    if (s->job == NULL) {
        return sbx_error(e, errno, SBX_E_UNAVAILABLE,
                         "cannot write the session's record");
    }

    s->job->lazy = 1;
    sbx_record_queue(&s->broker->writer, s->job);

    return 0;
}


void
sbx_create_answer(sbx_session_t *s)
{
    sbx_f_end_t      end;
    sbx_call_out_t  *call;

    memset(&end, 0, sizeof(sbx_f_end_t));
    end.created = 1;
    sbx_pool_touch(s->broker);

    while (!sbx_list_empty(&s->creators)) {
        call = sbx_node_of(s->creators.next, sbx_call_out_t, wait);
        sbx_list_remove(&call->wait);

        if (s->state != SBX_S_RUNNING) {
            sbx_call_error(call, &s->error);
            continue;
        }

        sbx_session_told(s);

        if (sbx_service_session(call, s, NULL) != 0) {
            continue;
        }

        /* one that never reads its answer leaves nothing behind */

        if (end.created && !s->keyed) {
            call->created = s;
        }

        if (call->created != NULL && (s->info.flags & SBX_CREATE_TIED)) {
            sbx_call_push(call);
            continue;
        }

        sbx_call_end(call, &end);
        end.created = 0;
    }

    SBX_FAULT("broker-create-answered");
}
