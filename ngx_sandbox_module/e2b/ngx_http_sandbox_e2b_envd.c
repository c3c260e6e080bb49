/*
 * The routes of envd, and what it tells of a sandbox as a whole.
 */

#include "ngx_http_sandbox_e2b.h"


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


ngx_int_t
ngx_http_sandbox_e2b_envd_health(ngx_http_request_t *r)
{
    return ngx_http_sandbox_problem(r, NGX_HTTP_SANDBOX_NOT_IMPLEMENTED,
                                    NULL);
}


ngx_int_t
ngx_http_sandbox_e2b_envd_metrics(ngx_http_request_t *r)
{
    return ngx_http_sandbox_problem(r, NGX_HTTP_SANDBOX_NOT_IMPLEMENTED,
                                    NULL);
}


ngx_int_t
ngx_http_sandbox_e2b_envd_envs(ngx_http_request_t *r)
{
    return ngx_http_sandbox_problem(r, NGX_HTTP_SANDBOX_NOT_IMPLEMENTED,
                                    NULL);
}


ngx_int_t
ngx_http_sandbox_e2b_envd_forbidden(ngx_http_request_t *r)
{
    return ngx_http_sandbox_problem(r, NGX_HTTP_SANDBOX_NOT_IMPLEMENTED,
                                    NULL);
}
