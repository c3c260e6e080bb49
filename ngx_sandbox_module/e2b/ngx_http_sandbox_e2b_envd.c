/*
 * The routes of envd, and what it tells of a sandbox as a whole.
 */

#include "ngx_http_sandbox_e2b_control.h"


#define NGX_HTTP_SANDBOX_E2B_ENVS   (SBX_ENV_MAX + SBX_FRAME_MAX)


typedef struct {
    ngx_http_sandbox_op_session_t   session;      /* first: call->data */
    sbx_f_sample_t                  sample;
    ngx_uint_t                      there;
} ngx_http_sandbox_e2b_sample_t;


typedef struct {
    u_char                         *data;
    size_t                          len;
} ngx_http_sandbox_e2b_envs_t;


static ngx_int_t ngx_http_sandbox_e2b_health_frame(
    ngx_http_sandbox_call_t *call, const sbx_frame_t *frame,
    const u_char *payload, ngx_fd_t fd);
static ngx_int_t ngx_http_sandbox_e2b_metrics_frame(
    ngx_http_sandbox_call_t *call, const sbx_frame_t *frame,
    const u_char *payload, ngx_fd_t fd);
static ngx_int_t ngx_http_sandbox_e2b_metrics_send(ngx_http_request_t *r,
    const ngx_http_sandbox_e2b_sample_t *sample);
static ngx_int_t ngx_http_sandbox_e2b_envs_frame(
    ngx_http_sandbox_call_t *call, const sbx_frame_t *frame,
    const u_char *payload, ngx_fd_t fd);
static ngx_int_t ngx_http_sandbox_e2b_envs_send(ngx_http_request_t *r,
    const ngx_http_sandbox_e2b_envs_t *envs);


#define RPC(path, op, capability, handler)                                    \
    { NGX_HTTP_POST, path, NGX_HTTP_SANDBOX_BODY_RPC, capability, op,         \
      ngx_http_sandbox_e2b_ ## handler, NGX_HTTP_SANDBOX_ACCESS_TOKEN }

ngx_http_sandbox_route_t  ngx_http_sandbox_e2b_envd_routes[] = {

    RPC("process.Process/List", "processes", SBX_CAP_SHELL, process_list),
    RPC("process.Process/Start", "exec", SBX_CAP_SHELL, process_start),
    RPC("process.Process/Connect", "output", SBX_CAP_SHELL,
        process_connect),
    RPC("process.Process/Update", "resize", SBX_CAP_SHELL, process_update),
    RPC("process.Process/SendInput", "stdin", SBX_CAP_SHELL,
        process_send_input),
    RPC("process.Process/SendSignal", "signal", SBX_CAP_SHELL,
        process_send_signal),
    RPC("process.Process/CloseStdin", "stdin", SBX_CAP_SHELL,
        process_close_stdin),

    { NGX_HTTP_POST, "process.Process/StreamInput",
      NGX_HTTP_SANDBOX_BODY_STREAM, SBX_CAP_SHELL, "stdin",
      ngx_http_sandbox_e2b_process_stream_input,
      NGX_HTTP_SANDBOX_ACCESS_TOKEN },

    RPC("filesystem.Filesystem/Stat", "stat", SBX_CAP_FILES, fs_stat),
    RPC("filesystem.Filesystem/MakeDir", "mkdir", SBX_CAP_FILES, fs_mkdir),
    RPC("filesystem.Filesystem/Move", "move", SBX_CAP_FILES, fs_move),
    RPC("filesystem.Filesystem/ListDir", "list", SBX_CAP_FILES, fs_list),
    RPC("filesystem.Filesystem/Remove", "remove", SBX_CAP_FILES, fs_remove),
    RPC("filesystem.Filesystem/WatchDir", "watch", SBX_CAP_FILES, fs_watch),
    RPC("filesystem.Filesystem/CreateWatcher", "watch", SBX_CAP_FILES,
        fs_watcher),
    RPC("filesystem.Filesystem/GetWatcherEvents", "watch", SBX_CAP_FILES,
        fs_events),
    RPC("filesystem.Filesystem/RemoveWatcher", "watch", SBX_CAP_FILES,
        fs_unwatch),

    RPC("code.CodeInterpreter/Execute", "code", SBX_CAP_CODE, rpc_execute),
    RPC("code.CodeInterpreter/CreateContext", "context_create", SBX_CAP_CODE,
        rpc_create),
    RPC("code.CodeInterpreter/ListContexts", "contexts", SBX_CAP_CODE,
        rpc_list),
    RPC("code.CodeInterpreter/RestartContext", "context_restart",
        SBX_CAP_CODE, rpc_restart),
    RPC("code.CodeInterpreter/RemoveContext", "context_delete", SBX_CAP_CODE,
        rpc_remove),

    { NGX_HTTP_GET, "health",
      NGX_HTTP_SANDBOX_BODY_NONE, 0, "sandbox_health",
      ngx_http_sandbox_e2b_envd_health, NGX_HTTP_SANDBOX_ACCESS_ANY },

    { NGX_HTTP_GET, "metrics",
      NGX_HTTP_SANDBOX_BODY_NONE, 0, "sandbox_metrics",
      ngx_http_sandbox_e2b_envd_metrics, NGX_HTTP_SANDBOX_ACCESS_TOKEN },

    { NGX_HTTP_GET, "envs",
      NGX_HTTP_SANDBOX_BODY_NONE, 0, "envs",
      ngx_http_sandbox_e2b_envd_envs, NGX_HTTP_SANDBOX_ACCESS_TOKEN },

    { NGX_HTTP_GET, "files",
      NGX_HTTP_SANDBOX_BODY_NONE, SBX_CAP_FILES, "download",
      ngx_http_sandbox_e2b_files_get, NGX_HTTP_SANDBOX_ACCESS_OWN },

    { NGX_HTTP_POST, "files",
      NGX_HTTP_SANDBOX_BODY_STREAM, SBX_CAP_FILES, "upload",
      ngx_http_sandbox_e2b_files_post, NGX_HTTP_SANDBOX_ACCESS_OWN },

    { NGX_HTTP_POST, "files/compose",
      NGX_HTTP_SANDBOX_BODY_JSON, SBX_CAP_FILES, "compose",
      ngx_http_sandbox_e2b_files_compose, NGX_HTTP_SANDBOX_ACCESS_TOKEN },

    /* the host's own, whoever asks */

    { NGX_HTTP_POST, "{command}",
      NGX_HTTP_SANDBOX_BODY_NONE, 0, "envd",
      ngx_http_sandbox_e2b_envd_forbidden, NGX_HTTP_SANDBOX_ACCESS_TOKEN },

    { 0, NULL, NGX_HTTP_SANDBOX_BODY_NONE, 0, NULL, NULL, 0 }
};


/* Whether it runs: one that is paused does not. */

ngx_int_t
ngx_http_sandbox_e2b_envd_health(ngx_http_request_t *r)
{
    return ngx_http_sandbox_op_session_ask(r,
                                           ngx_http_sandbox_e2b_health_frame);
}


static ngx_int_t
ngx_http_sandbox_e2b_health_frame(ngx_http_sandbox_call_t *call,
    const sbx_frame_t *frame, const u_char *payload, ngx_fd_t fd)
{
    ngx_int_t                       rc;
    ngx_http_request_t             *r;
    ngx_http_sandbox_op_session_t  *session;

    rc = ngx_http_sandbox_op_session_part(call, frame, payload, fd);

    if (rc != NGX_DECLINED) {
        return rc;
    }

    r = call->request;
    session = call->data;

    if (ngx_http_sandbox_op_session_note(r, session) != NGX_OK) {
        return ngx_http_sandbox_op_broken(call, "more than memory holds");
    }

    return ngx_http_sandbox_op_finish(call,
               (session->session.status == SBX_STATUS_PAUSED)
               ? ngx_http_sandbox_problem(r, NGX_HTTP_SANDBOX_SESSION_PAUSED,
                                          NULL)
               : ngx_http_sandbox_op_no_content(r));
}


ngx_int_t
ngx_http_sandbox_e2b_envd_metrics(ngx_http_request_t *r)
{
    sbx_samples_t                   ask;
    ngx_http_sandbox_call_t        *call;
    ngx_http_sandbox_e2b_sample_t  *sample;

    sample = ngx_pcalloc(r->pool, sizeof(ngx_http_sandbox_e2b_sample_t));

    if (sample == NULL) {
        return ngx_http_sandbox_problem(r, NGX_HTTP_SANDBOX_INTERNAL, NULL);
    }

    ngx_memzero(&ask, sizeof(sbx_samples_t));
    ask.end = INT64_MAX;
    ask.last = 1;

    call = ngx_http_sandbox_op_call(r, SBX_OP_SAMPLES, &ask,
                                    sizeof(sbx_samples_t), NGX_INVALID_FILE,
                                    sample);

    if (call != NULL) {
        call->frame = ngx_http_sandbox_e2b_metrics_frame;
    }

    return ngx_http_sandbox_op_start(r, call);
}


static ngx_int_t
ngx_http_sandbox_e2b_metrics_frame(ngx_http_sandbox_call_t *call,
    const sbx_frame_t *frame, const u_char *payload, ngx_fd_t fd)
{
    ngx_int_t                       rc;
    ngx_http_sandbox_e2b_sample_t  *sample;

    sample = call->data;

    if (frame->type == SBX_F_SAMPLE && fd == NGX_INVALID_FILE
        && sample->session.there && !sample->there)
    {
        ngx_memcpy(&sample->sample, payload, sizeof(sbx_f_sample_t));
        sample->there = 1;

        return NGX_OK;
    }

    rc = ngx_http_sandbox_op_session_part(call, frame, payload, fd);

    if (rc != NGX_DECLINED) {
        return rc;
    }

    if (!sample->there) {
        return ngx_http_sandbox_op_broken(call, "no sample");
    }

    if (ngx_http_sandbox_op_session_note(call->request, &sample->session)
        != NGX_OK)
    {
        return ngx_http_sandbox_op_broken(call, "more than memory holds");
    }

    return ngx_http_sandbox_op_finish(call,
                 ngx_http_sandbox_e2b_metrics_send(call->request, sample));
}


static ngx_int_t
ngx_http_sandbox_e2b_metrics_send(ngx_http_request_t *r,
    const ngx_http_sandbox_e2b_sample_t *sample)
{
    ngx_uint_t               i;
    ngx_http_sandbox_json_t  j;

    const struct {
        const char  *name;
        uint64_t     value;
    } table[] = {
        { "{\"ts\":", (uint64_t) sample->sample.time / 1000 },
        { ",\"cpu_count\":",
          ngx_http_sandbox_e2b_cpus(&sample->session.session.limits) },
        { ",\"mem_total\":", sample->session.session.limits.memory },
        { ",\"mem_used\":",
          ngx_http_sandbox_e2b_memory_used(&sample->sample) },
        { ",\"mem_cache\":", sample->sample.memory_cache },
        { ",\"mem_total_mib\":",
          sample->session.session.limits.memory >> 20 },
        { ",\"mem_used_mib\":",
          ngx_http_sandbox_e2b_memory_used(&sample->sample) >> 20 },
        { ",\"disk_used\":", sample->sample.disk },
        { ",\"disk_total\":", sample->sample.disk_total }
    };

    ngx_http_sandbox_json_init(&j, r->pool);

    for (i = 0; i < sizeof(table) / sizeof(table[0]); i++) {
        ngx_http_sandbox_json_raw(&j, table[i].name);
        ngx_http_sandbox_json_int(&j, (int64_t) table[i].value);
    }

    ngx_http_sandbox_json_raw(&j, ",\"cpu_used_pct\":");
    ngx_http_sandbox_e2b_percent(&j,
                  ngx_http_sandbox_e2b_cpu_used(&sample->session.session,
                                                &sample->sample));
    ngx_http_sandbox_json_raw(&j, "}");

    return ngx_http_sandbox_json_send(r, NGX_HTTP_OK, &j);
}


ngx_int_t
ngx_http_sandbox_e2b_envd_envs(ngx_http_request_t *r)
{
    ngx_http_sandbox_call_t      *call;
    ngx_http_sandbox_e2b_envs_t  *envs;

    envs = ngx_pcalloc(r->pool, sizeof(ngx_http_sandbox_e2b_envs_t));

    if (envs == NULL) {
        return ngx_http_sandbox_problem(r, NGX_HTTP_SANDBOX_INTERNAL, NULL);
    }

    call = ngx_http_sandbox_op_call(r, SBX_OP_ENV, NULL, 0, NGX_INVALID_FILE,
                                    envs);

    if (call != NULL) {
        call->frame = ngx_http_sandbox_e2b_envs_frame;
    }

    return ngx_http_sandbox_op_start(r, call);
}


/* Variables may be split between frames, so all of them are gathered. */

static ngx_int_t
ngx_http_sandbox_e2b_envs_frame(ngx_http_sandbox_call_t *call,
    const sbx_frame_t *frame, const u_char *payload, ngx_fd_t fd)
{
    ngx_int_t                     rc;
    ngx_http_request_t           *r;
    ngx_http_sandbox_e2b_envs_t  *envs;

    rc = ngx_http_sandbox_op_frame(call, frame, payload, fd);

    if (rc != NGX_DECLINED) {
        return rc;
    }

    r = call->request;
    envs = call->data;

    if (frame->type == SBX_F_END) {
        return ngx_http_sandbox_op_finish(call,
                                     ngx_http_sandbox_e2b_envs_send(r, envs));
    }

    if (frame->type != SBX_F_STRINGS
        || frame->length > NGX_HTTP_SANDBOX_E2B_ENVS - envs->len)
    {
        return ngx_http_sandbox_op_broken(call, "a wrong environment");
    }

    if (envs->data == NULL) {
        envs->data = ngx_palloc(r->pool, NGX_HTTP_SANDBOX_E2B_ENVS);

        if (envs->data == NULL) {
            return ngx_http_sandbox_op_broken(call, "more than memory holds");
        }
    }

    ngx_memcpy(envs->data + envs->len, payload, frame->length);
    envs->len += frame->length;

    return NGX_OK;
}


static ngx_uint_t
ngx_http_sandbox_e2b_envs_own(const u_char *name, size_t len)
{
    static const ngx_str_t  flag = ngx_string("E2B_SANDBOX");
    static const ngx_str_t  id = ngx_string("E2B_SANDBOX_ID");

    return (len == flag.len && ngx_memcmp(name, flag.data, len) == 0)
           || (len == id.len && ngx_memcmp(name, id.data, len) == 0);
}


/* With the two that every command of this API has besides. */

static ngx_int_t
ngx_http_sandbox_e2b_envs_send(ngx_http_request_t *r,
    const ngx_http_sandbox_e2b_envs_t *envs)
{
    u_char                   *p, *end, *nul, *equal;
    ngx_str_t                *id;
    ngx_http_sandbox_json_t   j;

    id = &ngx_http_sandbox_ctx(r)->session;

    ngx_http_sandbox_json_init(&j, r->pool);
    ngx_http_sandbox_json_raw(&j, "{\"E2B_SANDBOX\":\"true\","
                                  "\"E2B_SANDBOX_ID\":");
    ngx_http_sandbox_json_string(&j, id->data, id->len);

    end = envs->data + envs->len;

    for (p = envs->data; p < end; p = nul + 1) {
        nul = ngx_strlchr(p, end, '\0');

        if (nul == NULL) {
            nul = end;
        }

        equal = ngx_strlchr(p, nul, '=');

        if (equal == NULL || ngx_http_sandbox_e2b_envs_own(p, equal - p)) {
            continue;
        }

        ngx_http_sandbox_json_raw(&j, ",");
        ngx_http_sandbox_json_string(&j, p, equal - p);
        ngx_http_sandbox_json_raw(&j, ":");
        ngx_http_sandbox_json_string(&j, equal + 1, nul - equal - 1);
    }

    ngx_http_sandbox_json_raw(&j, "}");

    return ngx_http_sandbox_json_send(r, NGX_HTTP_OK, &j);
}


ngx_int_t
ngx_http_sandbox_e2b_envd_forbidden(ngx_http_request_t *r)
{
    return ngx_http_sandbox_problem(r, NGX_HTTP_SANDBOX_FORBIDDEN,
                                    "that is the host's own to ask for");
}
