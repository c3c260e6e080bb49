/*
 * The admin API: quotas, settings, sessions of all tenants, draining.  The
 * broker changes, keeps and logs; here is the JSON of it.
 */

#include "ngx_http_sandbox_v1.h"


typedef struct {
    sbx_f_quota_t              quota;
    sbx_f_setting_t            settings[SBX_SETTINGS];
    sbx_f_drain_t              drain;
    ngx_uint_t                 nsettings;
    ngx_uint_t                 has_quota;
    ngx_uint_t                 has_drain;
} ngx_http_sandbox_v1_admin_t;

typedef struct {
    uint32_t                   isolation;
    uint32_t                   isolation_seen;
    sbx_quota_t                quotas[SBX_SCOPES];
    sbx_json_list_t            reset;
} ngx_http_sandbox_v1_settings_t;


static ngx_int_t ngx_http_sandbox_v1_quota_get(ngx_http_request_t *r);
static ngx_int_t ngx_http_sandbox_v1_quota_put(ngx_http_request_t *r);
static ngx_int_t ngx_http_sandbox_v1_quota_delete(ngx_http_request_t *r);
static ngx_int_t ngx_http_sandbox_v1_settings_get(ngx_http_request_t *r);
static ngx_int_t ngx_http_sandbox_v1_settings_patch(ngx_http_request_t *r);
static int ngx_http_sandbox_v1_settings_reset(
    const ngx_http_sandbox_v1_settings_t *body, sbx_settings_set_t *set,
    sbx_error_t *e);
static ngx_int_t ngx_http_sandbox_v1_destroy_all(ngx_http_request_t *r);
static ngx_int_t ngx_http_sandbox_v1_drain(ngx_http_request_t *r);
static ngx_int_t ngx_http_sandbox_v1_undrain(ngx_http_request_t *r);
static int ngx_http_sandbox_v1_quota_names(ngx_http_request_t *r,
    sbx_error_t *e);
static ngx_int_t ngx_http_sandbox_v1_admin_call(ngx_http_request_t *r,
    sbx_op_t op, const void *body, size_t size);
static ngx_int_t ngx_http_sandbox_v1_admin_frame(
    ngx_http_sandbox_call_t *call, const sbx_frame_t *frame,
    const u_char *payload, ngx_fd_t fd);
static ngx_int_t ngx_http_sandbox_v1_admin_end(ngx_http_request_t *r,
    ngx_http_sandbox_v1_admin_t *admin, const sbx_f_end_t *end);


ngx_http_sandbox_route_t  ngx_http_sandbox_admin_routes[] = {

    { NGX_HTTP_GET, "settings",
      NGX_HTTP_SANDBOX_BODY_NONE, 0, "admin_settings",
      ngx_http_sandbox_v1_settings_get, 0 },

    { NGX_HTTP_PATCH, "settings",
      NGX_HTTP_SANDBOX_BODY_JSON, 0, "admin_settings_change",
      ngx_http_sandbox_v1_settings_patch, 0 },

    { NGX_HTTP_GET, "quotas",
      NGX_HTTP_SANDBOX_BODY_NONE, 0, "admin_quotas",
      ngx_http_sandbox_v1_quota_list, 0 },

    { NGX_HTTP_GET, "quotas/{path}",
      NGX_HTTP_SANDBOX_BODY_NONE, 0, "admin_quota",
      ngx_http_sandbox_v1_quota_get, 0 },

    { NGX_HTTP_PUT, "quotas/{path}",
      NGX_HTTP_SANDBOX_BODY_JSON, 0, "admin_quota_change",
      ngx_http_sandbox_v1_quota_put, 0 },

    { NGX_HTTP_DELETE, "quotas/{path}",
      NGX_HTTP_SANDBOX_BODY_NONE, 0, "admin_quota_remove",
      ngx_http_sandbox_v1_quota_delete, 0 },

    { NGX_HTTP_GET, "sessions",
      NGX_HTTP_SANDBOX_BODY_NONE, 0, "admin_sessions",
      ngx_http_sandbox_v1_list, 0 },

    { NGX_HTTP_DELETE, "sessions",
      NGX_HTTP_SANDBOX_BODY_NONE, 0, "admin_destroy",
      ngx_http_sandbox_v1_destroy_all, 0 },

    { NGX_HTTP_POST, "drain",
      NGX_HTTP_SANDBOX_BODY_JSON, 0, "admin_drain",
      ngx_http_sandbox_v1_drain, 0 },

    { NGX_HTTP_POST, "undrain",
      NGX_HTTP_SANDBOX_BODY_JSON, 0, "admin_undrain",
      ngx_http_sandbox_v1_undrain, 0 },

    { 0, NULL, NGX_HTTP_SANDBOX_BODY_NONE, 0, NULL, NULL, 0 }
};


/* null is no limit; what is left out follows what is less particular. */

#define QUOTA(field)                                                          \
    { .name = #field, .type = SBX_JSON_LIMIT, .limit = "quota." #field,       \
      .offset = offsetof(sbx_quota_t, field), .nullable = 1 }

static const sbx_json_field_t  ngx_http_sandbox_v1_quota_fields[] = {
    QUOTA(sessions),
    QUOTA(memory),
    QUOTA(cpus),
    QUOTA(disk),
    QUOTA(commands),
    { .name = NULL }
};

#define SCOPE(word, scope)                                                    \
    { .name = word, .type = SBX_JSON_OBJECT,                                  \
      .fields = ngx_http_sandbox_v1_quota_fields,                             \
      .offset = (scope) * sizeof(sbx_quota_t) }

static const sbx_json_field_t  ngx_http_sandbox_v1_scope_fields[] = {
    SCOPE("node", SBX_SCOPE_NODE),
    SCOPE("organization", SBX_SCOPE_ORGANIZATION),
    SCOPE("user", SBX_SCOPE_USER),
    { .name = NULL }
};

#define SETTINGS(field)  offsetof(ngx_http_sandbox_v1_settings_t, field)

static const sbx_json_field_t  ngx_http_sandbox_v1_settings_fields[] = {

    { .name = "require_isolation", .type = SBX_JSON_BOOL,
      .offset = SETTINGS(isolation), .seen = SETTINGS(isolation_seen) },

    { .name = "quotas", .type = SBX_JSON_OBJECT,
      .fields = ngx_http_sandbox_v1_scope_fields,
      .offset = SETTINGS(quotas) },

    { .name = "reset", .type = SBX_JSON_STRINGS, .max = SBX_SETTINGS,
      .offset = SETTINGS(reset) },

    { .name = NULL }
};


/*
 * ---- quotas --------------------------------------------------------------
 */


static ngx_int_t
ngx_http_sandbox_v1_quota_get(ngx_http_request_t *r)
{
    sbx_error_t  e;

    if (ngx_http_sandbox_v1_quota_names(r, &e) != 0) {
        return ngx_http_sandbox_problem_core(r, &e);
    }

    return ngx_http_sandbox_v1_admin_call(r, SBX_OP_QUOTA_GET, NULL, 0);
}


static ngx_int_t
ngx_http_sandbox_v1_quota_put(ngx_http_request_t *r)
{
    sbx_error_t              e;
    sbx_quota_t              none;
    sbx_quota_set_t          set;
    ngx_http_sandbox_ctx_t  *ctx;

    ctx = ngx_http_sandbox_ctx(r);
    ngx_memzero(&set, sizeof(sbx_quota_set_t));
    sbx_quota_clear(&set.limits);
    sbx_quota_clear(&none);

    if (ngx_http_sandbox_v1_quota_names(r, &e) != 0
        || ngx_http_sandbox_op_bind(r, ngx_http_sandbox_v1_quota_fields,
                                    &set.limits, &e)
           != 0)
    {
        return ngx_http_sandbox_problem_core(r, &e);
    }

    if (ngx_memcmp(&set.limits, &none, sizeof(sbx_quota_t)) == 0) {
        return ngx_http_sandbox_problem(r, NGX_HTTP_SANDBOX_INVALID_REQUEST,
                   "the body names no resource; DELETE removes a quota");
    }

    (void) sbx_copy_string(set.by, sizeof(set.by), (char *) ctx->who.data,
                           ctx->who.len);

    return ngx_http_sandbox_v1_admin_call(r, SBX_OP_QUOTA_SET, &set,
                                          sizeof(sbx_quota_set_t));
}


static ngx_int_t
ngx_http_sandbox_v1_quota_delete(ngx_http_request_t *r)
{
    sbx_error_t              e;
    sbx_quota_set_t          set;
    ngx_http_sandbox_ctx_t  *ctx;

    ctx = ngx_http_sandbox_ctx(r);
    ngx_memzero(&set, sizeof(sbx_quota_set_t));
    set.remove = 1;

    if (ngx_http_sandbox_v1_quota_names(r, &e) != 0) {
        return ngx_http_sandbox_problem_core(r, &e);
    }

    (void) sbx_copy_string(set.by, sizeof(set.by), (char *) ctx->who.data,
                           ctx->who.len);

    return ngx_http_sandbox_v1_admin_call(r, SBX_OP_QUOTA_SET, &set,
                                          sizeof(sbx_quota_set_t));
}


/* "{tenant}" or "{tenant}/{user}"; neither can have a slash. */

static int
ngx_http_sandbox_v1_quota_names(ngx_http_request_t *r, sbx_error_t *e)
{
    u_char                  *slash, *end;
    ngx_http_sandbox_ctx_t  *ctx;

    ctx = ngx_http_sandbox_ctx(r);
    end = ctx->path.data + ctx->path.len;
    slash = ngx_strlchr(ctx->path.data, end, '/');

    ctx->tenant.data = ctx->path.data;
    ctx->tenant.len = ((slash == NULL) ? end : slash) - ctx->path.data;

    if (slash != NULL) {
        ctx->user.data = slash + 1;
        ctx->user.len = end - ctx->user.data;
    }

    if (sbx_name_ok((char *) ctx->tenant.data, ctx->tenant.len)
        && (slash == NULL
            || sbx_name_ok((char *) ctx->user.data, ctx->user.len)))
    {
        return 0;
    }

    ngx_str_null(&ctx->tenant);
    ngx_str_null(&ctx->user);

    return sbx_error(e, 0, SBX_E_INVALID,
                     "what follows quotas/ must be a tenant, or a tenant, "
                     "\"/\" and a user");
}


static void
ngx_http_sandbox_v1_quota_json(ngx_http_sandbox_json_t *j, const char *name,
    const sbx_quota_t *q, ngx_uint_t own)
{
    char                buf[32];
    uint64_t            value;
    const char         *separator;
    const sbx_limit_t  *row;

    separator = "{";
    ngx_http_sandbox_json_raw(j, ",\"");
    ngx_http_sandbox_json_raw(j, name);
    ngx_http_sandbox_json_raw(j, "\":");

    for (row = sbx_quota_table; row->name != NULL; row++) {
        value = *sbx_quota_field(q, row);

        if (own && value == SBX_UNSET) {
            continue;
        }

        ngx_http_sandbox_json_raw(j, separator);
        ngx_http_sandbox_json_cstring(j, row->name);
        ngx_http_sandbox_json_raw(j, ":");
        ngx_http_sandbox_json_raw_len(j, buf,
                                      sbx_limit_print(row, value, buf));
        separator = ",";
    }

    ngx_http_sandbox_json_raw(j, "}");
}


static void
ngx_http_sandbox_v1_changed_json(ngx_http_sandbox_json_t *j, int64_t changed,
    const char *by)
{
    ngx_http_sandbox_json_raw(j, ",\"changed_by\":");

    if (changed == 0) {
        ngx_http_sandbox_json_raw(j, "null,\"changed_at\":null}");
        return;
    }

    ngx_http_sandbox_json_cstring(j, by);
    ngx_http_sandbox_json_raw(j, ",\"changed_at\":");
    ngx_http_sandbox_json_time(j, changed);
    ngx_http_sandbox_json_raw(j, "}");
}


void
ngx_http_sandbox_v1_quota_object(ngx_http_sandbox_json_t *j,
    const sbx_f_quota_t *quota)
{
    ngx_http_sandbox_json_raw(j, "{\"tenant_id\":");
    ngx_http_sandbox_op_array(j, quota->tenant);
    ngx_http_sandbox_json_raw(j, ",\"user_id\":");

    if (quota->user[0] != '\0') {
        ngx_http_sandbox_op_array(j, quota->user);

    } else {
        ngx_http_sandbox_json_raw(j, "null");
    }

    ngx_http_sandbox_v1_quota_json(j, "limits", &quota->limits, 0);
    ngx_http_sandbox_v1_quota_json(j, "configured", &quota->configured, 0);
    ngx_http_sandbox_v1_quota_json(j, "used", &quota->used, 0);

    if (quota->live) {
        ngx_http_sandbox_v1_quota_json(j, "override", &quota->override, 1);

    } else {
        ngx_http_sandbox_json_raw(j, ",\"override\":null");
    }

    ngx_http_sandbox_v1_changed_json(j, quota->changed, quota->by);
}


static ngx_int_t
ngx_http_sandbox_v1_quota_answer(ngx_http_request_t *r,
    ngx_http_sandbox_v1_admin_t *admin)
{
    ngx_http_sandbox_json_t  j;

    ngx_http_sandbox_json_init(&j, r->pool);
    ngx_http_sandbox_v1_quota_object(&j, &admin->quota);

    return ngx_http_sandbox_json_send(r, NGX_HTTP_OK, &j);
}


/*
 * ---- settings ------------------------------------------------------------
 */


static ngx_int_t
ngx_http_sandbox_v1_settings_get(ngx_http_request_t *r)
{
    return ngx_http_sandbox_v1_admin_call(r, SBX_OP_SETTINGS_GET, NULL, 0);
}


static ngx_int_t
ngx_http_sandbox_v1_settings_patch(ngx_http_request_t *r)
{
    uint64_t                         value;
    ngx_uint_t                       i;
    sbx_error_t                      e;
    sbx_settings_set_t               set;
    ngx_http_sandbox_ctx_t          *ctx;
    ngx_http_sandbox_v1_settings_t   body;

    ctx = ngx_http_sandbox_ctx(r);
    ngx_memzero(&set, sizeof(sbx_settings_set_t));
    ngx_memzero(&body, sizeof(ngx_http_sandbox_v1_settings_t));

    for (i = 0; i < SBX_SCOPES; i++) {
        sbx_quota_clear(&body.quotas[i]);
    }

    if (ngx_http_sandbox_op_bind(r, ngx_http_sandbox_v1_settings_fields,
                                 &body, &e)
        != 0)
    {
        return ngx_http_sandbox_problem_core(r, &e);
    }

    for (i = 0; i < SBX_SETTINGS; i++) {

        if (i == SBX_SETTING_ISOLATION) {
            value = body.isolation_seen ? body.isolation : SBX_UNSET;

        } else {
            value = *sbx_quota_field(&body.quotas[(i - SBX_SETTING_QUOTAS)
                                                  / SBX_QUOTA_RESOURCES],
                                     sbx_setting_row(i));
        }

        set.values[i] = value;
        set.mask |= (value != SBX_UNSET) ? 1u << i : 0;
    }

    if (ngx_http_sandbox_v1_settings_reset(&body, &set, &e) != 0) {
        return ngx_http_sandbox_problem_core(r, &e);
    }

    if (set.mask == 0) {
        return ngx_http_sandbox_problem(r, NGX_HTTP_SANDBOX_INVALID_REQUEST,
                                        "the body names no setting");
    }

    (void) sbx_copy_string(set.by, sizeof(set.by), (char *) ctx->who.data,
                           ctx->who.len);

    return ngx_http_sandbox_v1_admin_call(r, SBX_OP_SETTINGS_SET, &set,
                                          sizeof(sbx_settings_set_t));
}


static int
ngx_http_sandbox_v1_settings_reset(
    const ngx_http_sandbox_v1_settings_t *body, sbx_settings_set_t *set,
    sbx_error_t *e)
{
    char                   name[48];
    size_t                 i;
    ngx_uint_t             n;
    const sbx_json_str_t  *word;

    for (i = 0; i < body->reset.nelts; i++) {
        word = &body->reset.elts[i];

        for (n = 0; n < SBX_SETTINGS; n++) {
            sbx_setting_name(n, name);

            if (ngx_strlen(name) == word->len
                && ngx_memcmp(name, word->data, word->len) == 0)
            {
                break;
            }
        }

        if (n == SBX_SETTINGS) {
            return sbx_error(e, 0, SBX_E_INVALID,
                             "/reset/%zu: there is no such setting; one is "
                             "\"quotas.user.sessions\"", i);
        }

        if (set->mask & (1u << n)) {
            return sbx_error(e, 0, SBX_E_INVALID,
                             "/reset/%zu: the body sets it, too", i);
        }

        set->mask |= 1u << n;
    }

    return 0;
}


static void
ngx_http_sandbox_v1_setting_value(ngx_http_sandbox_json_t *j, ngx_uint_t i,
    const char *name, uint64_t value)
{
    char                buf[32];
    const sbx_limit_t  *row;

    row = sbx_setting_row(i);
    ngx_http_sandbox_json_raw(j, name);

    if (row == NULL) {
        ngx_http_sandbox_json_bool(j, value != 0);
        return;
    }

    ngx_http_sandbox_json_raw_len(j, buf, sbx_limit_print(row, value, buf));
}


static void
ngx_http_sandbox_v1_setting_json(ngx_http_sandbox_json_t *j,
    const sbx_f_setting_t *setting)
{
    ngx_uint_t  i;

    i = setting->index;

    ngx_http_sandbox_v1_setting_value(j, i, "{\"value\":", setting->value);
    ngx_http_sandbox_v1_setting_value(j, i, ",\"configured\":",
                                      setting->configured);

    if (setting->changed != 0) {
        ngx_http_sandbox_v1_setting_value(j, i, ",\"previous\":",
                                          setting->previous);

    } else {
        ngx_http_sandbox_json_raw(j, ",\"previous\":null");
    }

    ngx_http_sandbox_v1_changed_json(j, setting->changed, setting->by);
}


static ngx_int_t
ngx_http_sandbox_v1_settings_answer(ngx_http_request_t *r,
    ngx_http_sandbox_v1_admin_t *admin)
{
    ngx_uint_t                 i, scope;
    ngx_http_sandbox_json_t    j;
    const sbx_limit_t         *row;

    ngx_http_sandbox_json_init(&j, r->pool);
    ngx_http_sandbox_json_raw(&j, "{\"draining\":{\"value\":");
    ngx_http_sandbox_json_bool(&j, admin->drain.draining != 0);
    ngx_http_sandbox_v1_changed_json(&j, admin->drain.changed,
                                     admin->drain.by);
    ngx_http_sandbox_json_raw(&j, ",\"require_isolation\":");
    ngx_http_sandbox_v1_setting_json(&j,
                                  &admin->settings[SBX_SETTING_ISOLATION]);
    ngx_http_sandbox_json_raw(&j, ",\"quotas\":");

    for (scope = 0; scope < SBX_SCOPES; scope++) {
        ngx_http_sandbox_json_raw(&j, scope ? "," : "{");
        ngx_http_sandbox_json_cstring(&j, sbx_scope_word(scope));
        ngx_http_sandbox_json_raw(&j, ":");

        for (i = 0; i < SBX_QUOTA_RESOURCES; i++) {
            row = &sbx_quota_table[i];
            ngx_http_sandbox_json_raw(&j, i ? "," : "{");
            ngx_http_sandbox_json_cstring(&j, row->name);
            ngx_http_sandbox_json_raw(&j, ":");
            ngx_http_sandbox_v1_setting_json(&j,
                &admin->settings[SBX_SETTING_QUOTAS
                                 + scope * SBX_QUOTA_RESOURCES + i]);
        }

        ngx_http_sandbox_json_raw(&j, "}");
    }

    ngx_http_sandbox_json_raw(&j, "}}");

    return ngx_http_sandbox_json_send(r, NGX_HTTP_OK, &j);
}


/*
 * ---- sessions ------------------------------------------------------------
 */


static ngx_int_t
ngx_http_sandbox_v1_destroy_all(ngx_http_request_t *r)
{
    sbx_error_t              e;
    sbx_destroy_all_t        ask;
    ngx_http_sandbox_ctx_t  *ctx;

    ctx = ngx_http_sandbox_ctx(r);
    ngx_memzero(&ask, sizeof(sbx_destroy_all_t));

    if (ngx_http_sandbox_op_string(r, "tenant_id", &ctx->tenant, &e) != 0) {
        return ngx_http_sandbox_problem_core(r, &e);
    }

    if (!sbx_name_ok((char *) ctx->tenant.data, ctx->tenant.len)) {
        ngx_str_null(&ctx->tenant);
        return ngx_http_sandbox_problem(r, NGX_HTTP_SANDBOX_INVALID_REQUEST,
                   "tenant_id must name the organization whose sessions are "
                   "to be destroyed");
    }

    (void) sbx_copy_string(ask.by, sizeof(ask.by), (char *) ctx->who.data,
                           ctx->who.len);

    return ngx_http_sandbox_v1_admin_call(r, SBX_OP_DESTROY_ALL, &ask,
                                          sizeof(sbx_destroy_all_t));
}


static ngx_int_t
ngx_http_sandbox_v1_drain_call(ngx_http_request_t *r, ngx_uint_t on,
    ngx_uint_t end)
{
    sbx_drain_t              ask;
    ngx_http_sandbox_ctx_t  *ctx;

    ctx = ngx_http_sandbox_ctx(r);
    ngx_memzero(&ask, sizeof(sbx_drain_t));
    ask.on = (uint32_t) on;
    ask.end = (uint32_t) end;
    (void) sbx_copy_string(ask.by, sizeof(ask.by), (char *) ctx->who.data,
                           ctx->who.len);

    return ngx_http_sandbox_v1_admin_call(r, SBX_OP_DRAIN, &ask,
                                          sizeof(sbx_drain_t));
}


static ngx_int_t
ngx_http_sandbox_v1_drain(ngx_http_request_t *r)
{
    ngx_uint_t   end;
    sbx_error_t  e;

    end = 0;

    if (ngx_http_sandbox_op_bind_none(r, &e) != 0
        || ngx_http_sandbox_op_flag(r, "end", &end, &e) != 0)
    {
        return ngx_http_sandbox_problem_core(r, &e);
    }

    return ngx_http_sandbox_v1_drain_call(r, 1, end);
}


static ngx_int_t
ngx_http_sandbox_v1_undrain(ngx_http_request_t *r)
{
    sbx_error_t  e;

    if (ngx_http_sandbox_op_bind_none(r, &e) != 0) {
        return ngx_http_sandbox_problem_core(r, &e);
    }

    return ngx_http_sandbox_v1_drain_call(r, 0, 0);
}


static ngx_int_t
ngx_http_sandbox_v1_drain_answer(ngx_http_request_t *r,
    ngx_http_sandbox_v1_admin_t *admin)
{
    ngx_http_sandbox_json_t  j;

    ngx_http_sandbox_json_init(&j, r->pool);
    ngx_http_sandbox_json_raw(&j, "{\"draining\":");
    ngx_http_sandbox_json_bool(&j, admin->drain.draining != 0);
    ngx_http_sandbox_json_raw(&j, ",\"sessions\":");
    ngx_http_sandbox_json_int(&j, (int64_t) admin->drain.sessions);
    ngx_http_sandbox_json_raw(&j, ",\"ended\":");
    ngx_http_sandbox_json_int(&j, (int64_t) admin->drain.ended);
    ngx_http_sandbox_json_raw(&j, "}");

    return ngx_http_sandbox_json_send(r, NGX_HTTP_OK, &j);
}


/*
 * ---- calls ---------------------------------------------------------------
 */


static ngx_int_t
ngx_http_sandbox_v1_admin_call(ngx_http_request_t *r, sbx_op_t op,
    const void *body, size_t size)
{
    ngx_http_sandbox_call_t      *call;
    ngx_http_sandbox_v1_admin_t  *admin;

    admin = ngx_pcalloc(r->pool, sizeof(ngx_http_sandbox_v1_admin_t));

    if (admin == NULL) {
        return ngx_http_sandbox_problem(r, NGX_HTTP_SANDBOX_INTERNAL, NULL);
    }

    call = ngx_http_sandbox_op_call(r, op, body, size, NGX_INVALID_FILE,
                                    admin);

    if (call != NULL) {
        call->frame = ngx_http_sandbox_v1_admin_frame;
    }

    return ngx_http_sandbox_op_start(r, call);
}


static ngx_int_t
ngx_http_sandbox_v1_admin_frame(ngx_http_sandbox_call_t *call,
    const sbx_frame_t *frame, const u_char *payload, ngx_fd_t fd)
{
    ngx_int_t                     rc;
    sbx_f_end_t                   end;
    sbx_f_setting_t              *setting;
    ngx_http_sandbox_v1_admin_t  *admin;

    rc = ngx_http_sandbox_op_frame(call, frame, payload, fd);

    if (rc != NGX_DECLINED) {
        return rc;
    }

    admin = call->data;

    switch (frame->type) {

    case SBX_F_QUOTA:
        ngx_memcpy(&admin->quota, payload, sizeof(sbx_f_quota_t));
        admin->has_quota = 1;
        return NGX_OK;

    case SBX_F_DRAIN:
        ngx_memcpy(&admin->drain, payload, sizeof(sbx_f_drain_t));
        admin->has_drain = 1;
        return NGX_OK;

    case SBX_F_SETTING:

        /* each once, in their order */

        if (admin->nsettings == SBX_SETTINGS) {
            break;
        }

        setting = &admin->settings[admin->nsettings];
        ngx_memcpy(setting, payload, sizeof(sbx_f_setting_t));

        if (setting->index != admin->nsettings++) {
            break;
        }

        return NGX_OK;

    case SBX_F_END:
        ngx_memcpy(&end, payload, sizeof(sbx_f_end_t));
        rc = ngx_http_sandbox_v1_admin_end(call->request, admin, &end);

        if (rc == NGX_DECLINED) {
            break;
        }

        return ngx_http_sandbox_op_finish(call, rc);

    default:
        break;
    }

    return ngx_http_sandbox_op_broken(call, "a wrong frame for admin");
}


static ngx_int_t
ngx_http_sandbox_v1_admin_end(ngx_http_request_t *r,
    ngx_http_sandbox_v1_admin_t *admin, const sbx_f_end_t *end)
{
    ngx_http_sandbox_ctx_t   *ctx;
    ngx_http_sandbox_json_t   j;

    ctx = ngx_http_sandbox_ctx(r);

    if (ctx->route->handler == ngx_http_sandbox_v1_destroy_all) {
        ngx_http_sandbox_json_init(&j, r->pool);
        ngx_http_sandbox_json_raw(&j, "{\"destroyed\":");
        ngx_http_sandbox_json_int(&j, (int64_t) end->count);
        ngx_http_sandbox_json_raw(&j, "}");

        return ngx_http_sandbox_json_send(r, NGX_HTTP_OK, &j);
    }

    if (admin->nsettings == SBX_SETTINGS) {
        return ngx_http_sandbox_v1_settings_answer(r, admin);
    }

    if (admin->has_drain) {
        return ngx_http_sandbox_v1_drain_answer(r, admin);
    }

    if (!admin->has_quota) {
        return NGX_DECLINED;
    }

    if (ctx->route->handler == ngx_http_sandbox_v1_quota_delete) {
        return ngx_http_sandbox_op_no_content(r);
    }

    return ngx_http_sandbox_v1_quota_answer(r, admin);
}
