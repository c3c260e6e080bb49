#include "ngx_http_sandbox_v1_session.h"

#include "ngx_http_sandbox_op_network.h"


static void ngx_http_sandbox_v1_session_resources(ngx_http_sandbox_json_t *j,
    const sbx_f_session_t *session);
static void ngx_http_sandbox_v1_session_enforcement(
    ngx_http_sandbox_json_t *j, const sbx_enforcement_t *enforcement);
static void ngx_http_sandbox_v1_session_usage(ngx_http_sandbox_json_t *j,
    const sbx_usage_t *usage);


#define ENFORCED(f)  { #f, offsetof(sbx_enforcement_t, f) }

static const struct {
    const char  *name;
    size_t       offset;
} ngx_http_sandbox_v1_enforced[] = {
    ENFORCED(memory),
    ENFORCED(swap),
    ENFORCED(cpus),
    ENFORCED(cpu_seconds),
    ENFORCED(processes),
    ENFORCED(max_file_size),
    ENFORCED(open_files),
    ENFORCED(stack),
    ENFORCED(disk),
    ENFORCED(inodes),
    { NULL, 0 }
};


void
ngx_http_sandbox_v1_session_json(ngx_http_sandbox_json_t *j,
    const ngx_http_sandbox_op_session_t *s)
{
    ngx_uint_t              i, n;
    const sbx_f_session_t  *session;

    session = &s->session;

    ngx_http_sandbox_json_raw(j, "{\"session_id\":");
    ngx_http_sandbox_op_array(j, session->id);
    ngx_http_sandbox_json_raw(j, ",\"tenant_id\":");
    ngx_http_sandbox_op_array(j, session->tenant);
    ngx_http_sandbox_json_raw(j, ",\"user_id\":");
    ngx_http_sandbox_op_array(j, session->user);
    ngx_http_sandbox_json_raw(j, ",\"template\":");
    ngx_http_sandbox_op_array(j, session->template);
    ngx_http_sandbox_json_raw(j, ",\"status\":");
    ngx_http_sandbox_json_cstring(j, session->status == SBX_STATUS_PAUSED
                                     ? "paused" : "running");
    ngx_http_sandbox_json_raw(j, ",\"created_at\":");
    ngx_http_sandbox_json_time(j, session->created);
    ngx_http_sandbox_json_raw(j, ",\"expires_at\":");
    ngx_http_sandbox_json_time(j, session->expires);
    ngx_http_sandbox_json_raw(j, ",\"workspace\":");
    ngx_http_sandbox_json_cstring(j, NGX_HTTP_SANDBOX_OP_WORKSPACE);
    ngx_http_sandbox_json_raw(j, ",\"metadata\":");

    if (s->meta_len == 0) {
        ngx_http_sandbox_json_raw(j, "{}");

    } else {
        /* our own text of the create call, kept by the broker */
        ngx_http_sandbox_json_raw_len(j, s->meta, s->meta_len);
    }

    ngx_http_sandbox_json_raw(j, ",\"capabilities\":[");

    for (i = 0, n = 0; ngx_http_sandbox_op_capability_words[i].word; i++) {
        if (session->capabilities
            & ngx_http_sandbox_op_capability_words[i].bit)
        {
            ngx_http_sandbox_json_raw(j, n++ ? "," : "");
            ngx_http_sandbox_json_cstring(j,
                               ngx_http_sandbox_op_capability_words[i].word);
        }
    }

    ngx_http_sandbox_json_raw(j, "],\"network\":");
    ngx_http_sandbox_json_cstring(j, ngx_http_sandbox_op_session_network(
                                         session));

    if (s->rules_len != 0) {
        ngx_http_sandbox_json_raw(j, ",\"network_rules\":");
        ngx_http_sandbox_op_network_json(j, s->rules, s->rules_len);
    }

    ngx_http_sandbox_json_raw(j, ",\"isolated\":");
    ngx_http_sandbox_json_bool(j, session->isolated != 0);

    ngx_http_sandbox_v1_session_resources(j, session);
    ngx_http_sandbox_v1_session_enforcement(j, &session->enforcement);

    if (session->has_usage) {
        ngx_http_sandbox_v1_session_usage(j, &session->usage);
    }

    ngx_http_sandbox_json_raw(j, "}");
}


static void
ngx_http_sandbox_v1_session_resources(ngx_http_sandbox_json_t *j,
    const sbx_f_session_t *session)
{
    char                buf[32];
    size_t              len;
    uint64_t            value;
    const char         *separator;
    const sbx_limit_t  *limit;

    separator = ",\"resources\":{\"";

    for (limit = sbx_limit_table; limit->name != NULL; limit++) {

        if (!limit->in_manifest) {
            continue;
        }

        value = *sbx_limit_field((sbx_limits_t *) &session->limits, limit);
        len = sbx_limit_print(limit, value, buf);

        ngx_http_sandbox_json_raw(j, separator);
        ngx_http_sandbox_json_raw(j, limit->json);
        ngx_http_sandbox_json_raw(j, "\":");
        ngx_http_sandbox_json_raw_len(j, buf, len);

        separator = ",\"";
    }

    ngx_http_sandbox_json_raw(j, "}");
}


static void
ngx_http_sandbox_v1_session_enforcement(ngx_http_sandbox_json_t *j,
    const sbx_enforcement_t *enforcement)
{
    uint8_t      by;
    ngx_uint_t   i;
    const char  *separator;

    separator = ",\"enforcement\":{\"";

    for (i = 0; ngx_http_sandbox_v1_enforced[i].name; i++) {
        by = *((const uint8_t *) enforcement
               + ngx_http_sandbox_v1_enforced[i].offset);

        ngx_http_sandbox_json_raw(j, separator);
        ngx_http_sandbox_json_raw(j, ngx_http_sandbox_v1_enforced[i].name);
        ngx_http_sandbox_json_raw(j, "\":");
        ngx_http_sandbox_json_cstring(j, sbx_enforce_word(by));

        separator = ",\"";
    }

    ngx_http_sandbox_json_raw(j, ",\"seccomp\":");
    ngx_http_sandbox_json_bool(j, enforcement->seccomp != SBX_BY_NONE);
    ngx_http_sandbox_json_raw(j, ",\"user_namespace\":");
    ngx_http_sandbox_json_bool(j, enforcement->userns != SBX_BY_NONE);
    ngx_http_sandbox_json_raw(j, ",\"cgroup_namespace\":");
    ngx_http_sandbox_json_bool(j, enforcement->cgroupns != SBX_BY_NONE);
    ngx_http_sandbox_json_raw(j, "}");
}


static void
ngx_http_sandbox_v1_session_usage(ngx_http_sandbox_json_t *j,
    const sbx_usage_t *usage)
{
    ngx_http_sandbox_json_raw(j, ",\"usage\":{\"memory\":");
    ngx_http_sandbox_json_int(j, (int64_t) usage->memory);
    ngx_http_sandbox_json_raw(j, ",\"memory_cache\":");
    ngx_http_sandbox_json_int(j, (int64_t) usage->memory_cache);
    ngx_http_sandbox_json_raw(j, ",\"memory_peak\":");
    ngx_http_sandbox_json_int(j, (int64_t) usage->memory_peak);
    ngx_http_sandbox_json_raw(j, ",\"cpu_seconds\":");
    ngx_http_sandbox_json_seconds(j, usage->cpu_us);
    ngx_http_sandbox_json_raw(j, ",\"processes\":");
    ngx_http_sandbox_json_int(j, (int64_t) usage->processes);
    ngx_http_sandbox_json_raw(j, ",\"disk\":");
    ngx_http_sandbox_json_int(j, (int64_t) usage->disk);
    ngx_http_sandbox_json_raw(j, ",\"inodes\":");
    ngx_http_sandbox_json_int(j, (int64_t) usage->inodes);
    ngx_http_sandbox_json_raw(j, ",\"connections\":");
    ngx_http_sandbox_json_int(j, (int64_t) usage->connections);
    ngx_http_sandbox_json_raw(j, ",\"network_sent\":");
    ngx_http_sandbox_json_int(j, (int64_t) usage->network_sent);
    ngx_http_sandbox_json_raw(j, ",\"network_received\":");
    ngx_http_sandbox_json_int(j, (int64_t) usage->network_received);
    ngx_http_sandbox_json_raw(j, ",\"network_refused\":");
    ngx_http_sandbox_json_int(j, (int64_t) usage->network_refused);
    ngx_http_sandbox_json_raw(j, "}");
}
