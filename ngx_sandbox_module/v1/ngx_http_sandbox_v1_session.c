#include "ngx_http_sandbox_v1_session.h"


static void ngx_http_sandbox_v1_session_resources(ngx_http_sandbox_json_t *j,
    const sbx_f_session_t *session);
static void ngx_http_sandbox_v1_session_enforcement(
    ngx_http_sandbox_json_t *j, const sbx_enforcement_t *enforcement);
static void ngx_http_sandbox_v1_session_usage(ngx_http_sandbox_json_t *j,
    const sbx_usage_t *usage);


static const struct {
    const char  *word;
    uint32_t     bit;
} ngx_http_sandbox_v1_capability_words[] = {
    { "shell", SBX_CAP_SHELL },
    { "files", SBX_CAP_FILES },
    { "code",  SBX_CAP_CODE },
    { "ports", SBX_CAP_PORTS },
    { NULL, 0 }
};


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


ngx_int_t
ngx_http_sandbox_v1_session_ask(ngx_http_request_t *r,
    ngx_int_t (*frame)(ngx_http_sandbox_call_t *call,
    const sbx_frame_t *frame, const u_char *payload, ngx_fd_t fd))
{
    ngx_http_sandbox_call_t        *call;
    ngx_http_sandbox_v1_session_t  *session;

    session = ngx_pcalloc(r->pool, sizeof(ngx_http_sandbox_v1_session_t));

    if (session == NULL) {
        return ngx_http_sandbox_problem(r, NGX_HTTP_SANDBOX_INTERNAL, NULL);
    }

    call = ngx_http_sandbox_v1_call(r, SBX_OP_GET, NULL, 0, NGX_INVALID_FILE,
                                    session);

    if (call != NULL) {
        call->frame = frame;
    }

    return ngx_http_sandbox_v1_start(r, call);
}


ngx_int_t
ngx_http_sandbox_v1_session_part(ngx_http_sandbox_call_t *call,
    const sbx_frame_t *frame, const u_char *payload, ngx_fd_t fd)
{
    ngx_int_t                       rc;
    ngx_http_sandbox_v1_session_t  *session;

    rc = ngx_http_sandbox_v1_frame(call, frame, payload, fd);

    if (rc != NGX_DECLINED) {
        return rc;
    }

    session = call->data;

    if (frame->type != SBX_F_END) {
        rc = ngx_http_sandbox_v1_session_frame(call->request, session, frame,
                                               payload);

        return (rc == NGX_OK || rc == NGX_AGAIN)
               ? NGX_OK
               : ngx_http_sandbox_v1_broken(call,
                                            "a wrong frame for a session");
    }

    if (!session->there || session->meta_len != session->session.meta_size) {
        return ngx_http_sandbox_v1_broken(call, "no session");
    }

    return NGX_DECLINED;
}


ngx_int_t
ngx_http_sandbox_v1_session_frame(ngx_http_request_t *r,
    ngx_http_sandbox_v1_session_t *s, const sbx_frame_t *frame,
    const u_char *payload)
{
    if (frame->type == SBX_F_SESSION) {

        if (s->there && s->meta_len != s->session.meta_size) {
            return NGX_DECLINED;
        }

        ngx_memcpy(&s->session, payload, sizeof(sbx_f_session_t));
        s->there = 1;
        s->meta_len = 0;

        if (s->session.meta_size > SBX_META_MAX) {
            return NGX_DECLINED;
        }

        if (s->session.meta_size == 0) {
            return NGX_OK;
        }

        if (s->meta == NULL) {
            s->meta = ngx_palloc(r->pool, SBX_META_MAX);

            if (s->meta == NULL) {
                return NGX_ERROR;
            }
        }

        return NGX_AGAIN;
    }

    if (frame->type != SBX_F_META
        || !s->there
        || frame->length == 0
        || frame->length > s->session.meta_size - s->meta_len)
    {
        return NGX_DECLINED;
    }

    ngx_memcpy(s->meta + s->meta_len, payload, frame->length);
    s->meta_len += frame->length;

    return (s->meta_len == s->session.meta_size) ? NGX_OK : NGX_AGAIN;
}


uint32_t
ngx_http_sandbox_v1_capability(const sbx_json_str_t *word)
{
    ngx_uint_t   i;
    const char  *name;

    for (i = 0; ngx_http_sandbox_v1_capability_words[i].word; i++) {
        name = ngx_http_sandbox_v1_capability_words[i].word;

        if (ngx_strlen(name) == word->len
            && ngx_memcmp(name, word->data, word->len) == 0)
        {
            return ngx_http_sandbox_v1_capability_words[i].bit;
        }
    }

    return 0;
}


void
ngx_http_sandbox_v1_session_json(ngx_http_sandbox_json_t *j,
    const ngx_http_sandbox_v1_session_t *s)
{
    ngx_uint_t              i, n;
    const sbx_f_session_t  *session;

    session = &s->session;

    ngx_http_sandbox_json_raw(j, "{\"session_id\":");
    ngx_http_sandbox_v1_array(j, session->id);
    ngx_http_sandbox_json_raw(j, ",\"tenant_id\":");
    ngx_http_sandbox_v1_array(j, session->tenant);
    ngx_http_sandbox_json_raw(j, ",\"user_id\":");
    ngx_http_sandbox_v1_array(j, session->user);
    ngx_http_sandbox_json_raw(j, ",\"template\":");
    ngx_http_sandbox_v1_array(j, session->template);
    ngx_http_sandbox_json_raw(j, ",\"status\":");
    ngx_http_sandbox_json_cstring(j, session->status == SBX_STATUS_PAUSED
                                     ? "paused" : "running");
    ngx_http_sandbox_json_raw(j, ",\"created_at\":");
    ngx_http_sandbox_json_time(j, session->created);
    ngx_http_sandbox_json_raw(j, ",\"expires_at\":");
    ngx_http_sandbox_json_time(j, session->expires);
    ngx_http_sandbox_json_raw(j, ",\"workspace\":");
    ngx_http_sandbox_json_cstring(j, NGX_HTTP_SANDBOX_V1_WORKSPACE);
    ngx_http_sandbox_json_raw(j, ",\"metadata\":");

    if (s->meta_len == 0) {
        ngx_http_sandbox_json_raw(j, "{}");

    } else {
        /* our own text of the create call, kept by the broker */
        ngx_http_sandbox_json_raw_len(j, s->meta, s->meta_len);
    }

    ngx_http_sandbox_json_raw(j, ",\"capabilities\":[");

    for (i = 0, n = 0; ngx_http_sandbox_v1_capability_words[i].word; i++) {
        if (session->capabilities
            & ngx_http_sandbox_v1_capability_words[i].bit)
        {
            ngx_http_sandbox_json_raw(j, n++ ? "," : "");
            ngx_http_sandbox_json_cstring(j,
                               ngx_http_sandbox_v1_capability_words[i].word);
        }
    }

    ngx_http_sandbox_json_raw(j, "],\"network\":\"none\",\"isolated\":");
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
    ngx_http_sandbox_json_raw(j, "}");
}


static ngx_int_t
ngx_http_sandbox_v1_session_keep(ngx_pool_t *pool, ngx_str_t *to,
    const char *s, size_t size)
{
    to->len = ngx_strnlen((u_char *) s, size);
    to->data = ngx_pnalloc(pool, to->len + 1);

    if (to->data == NULL) {
        to->len = 0;
        return NGX_ERROR;
    }

    (void) ngx_cpystrn(to->data, (u_char *) s, to->len + 1);

    return NGX_OK;
}


ngx_int_t
ngx_http_sandbox_v1_session_note(ngx_http_request_t *r,
    const ngx_http_sandbox_v1_session_t *s)
{
    const sbx_f_session_t   *session;
    ngx_http_sandbox_ctx_t  *ctx;

    ctx = ngx_http_sandbox_ctx(r);
    session = &s->session;

    if (ngx_http_sandbox_v1_session_keep(r->pool, &ctx->session, session->id,
                                         sizeof(session->id))
        != NGX_OK
        || ngx_http_sandbox_v1_session_keep(r->pool, &ctx->tenant,
                                            session->tenant,
                                            sizeof(session->tenant))
           != NGX_OK)
    {
        return NGX_ERROR;
    }

    return ngx_http_sandbox_v1_session_keep(r->pool, &ctx->user,
                                            session->user,
                                            sizeof(session->user));
}
