#include "ngx_http_sandbox_v1.h"


static ngx_int_t ngx_http_sandbox_v1_reserved(ngx_http_request_t *r);


ngx_http_sandbox_route_t  ngx_http_sandbox_v1_routes[] = {

    { NGX_HTTP_POST, "sessions",
      NGX_HTTP_SANDBOX_BODY_JSON, 0, "create",
      ngx_http_sandbox_v1_create, 0 },

    { NGX_HTTP_GET, "sessions",
      NGX_HTTP_SANDBOX_BODY_NONE, 0, "list",
      ngx_http_sandbox_v1_list, 0 },

    { NGX_HTTP_GET, "sessions/{id}",
      NGX_HTTP_SANDBOX_BODY_NONE, 0, "get",
      ngx_http_sandbox_v1_get, 0 },

    { NGX_HTTP_DELETE, "sessions/{id}",
      NGX_HTTP_SANDBOX_BODY_NONE, 0, "destroy",
      ngx_http_sandbox_v1_destroy, 0 },

    { NGX_HTTP_PATCH, "sessions/{id}",
      NGX_HTTP_SANDBOX_BODY_JSON, 0, "patch",
      ngx_http_sandbox_v1_patch, 0 },

    { NGX_HTTP_POST, "sessions/{id}/pause",
      NGX_HTTP_SANDBOX_BODY_JSON, 0, "pause",
      ngx_http_sandbox_v1_pause, 0 },

    { NGX_HTTP_POST, "sessions/{id}/resume",
      NGX_HTTP_SANDBOX_BODY_JSON, 0, "resume",
      ngx_http_sandbox_v1_resume, 0 },

    { NGX_HTTP_POST, "run",
      NGX_HTTP_SANDBOX_BODY_JSON, 0, "run",
      ngx_http_sandbox_v1_run, 0 },

    { NGX_HTTP_POST, "sessions/{id}/exec",
      NGX_HTTP_SANDBOX_BODY_JSON, SBX_CAP_SHELL, "exec",
      ngx_http_sandbox_v1_exec, 0 },

    { NGX_HTTP_POST, "sessions/{id}/install",
      NGX_HTTP_SANDBOX_BODY_JSON, SBX_CAP_SHELL, "install",
      ngx_http_sandbox_v1_install, 0 },

    { NGX_HTTP_POST, "sessions/{id}/code",
      NGX_HTTP_SANDBOX_BODY_JSON, SBX_CAP_CODE, "code",
      ngx_http_sandbox_v1_code, 0 },

    { NGX_HTTP_POST, "sessions/{id}/contexts",
      NGX_HTTP_SANDBOX_BODY_JSON, SBX_CAP_CODE, "context_create",
      ngx_http_sandbox_v1_context_create, 0 },

    { NGX_HTTP_GET, "sessions/{id}/contexts",
      NGX_HTTP_SANDBOX_BODY_NONE, SBX_CAP_CODE, "contexts",
      ngx_http_sandbox_v1_context_list, 0 },

    { NGX_HTTP_DELETE, "sessions/{id}/contexts/{cid}",
      NGX_HTTP_SANDBOX_BODY_NONE, SBX_CAP_CODE, "context_delete",
      ngx_http_sandbox_v1_context_delete, 0 },

    { NGX_HTTP_POST, "sessions/{id}/contexts/{cid}/restart",
      NGX_HTTP_SANDBOX_BODY_JSON, SBX_CAP_CODE, "context_restart",
      ngx_http_sandbox_v1_context_restart, 0 },

    { NGX_HTTP_GET, "sessions/{id}/processes",
      NGX_HTTP_SANDBOX_BODY_NONE, SBX_CAP_SHELL, "processes",
      ngx_http_sandbox_v1_process_list, 0 },

    { NGX_HTTP_GET, "sessions/{id}/processes/{pid}",
      NGX_HTTP_SANDBOX_BODY_NONE, SBX_CAP_SHELL, "process",
      ngx_http_sandbox_v1_process_get, 0 },

    { NGX_HTTP_GET, "sessions/{id}/processes/{pid}/output",
      NGX_HTTP_SANDBOX_BODY_NONE, SBX_CAP_SHELL, "output",
      ngx_http_sandbox_v1_process_output, 0 },

    { NGX_HTTP_POST, "sessions/{id}/processes/{pid}/stdin",
      NGX_HTTP_SANDBOX_BODY_STREAM, SBX_CAP_SHELL, "stdin",
      ngx_http_sandbox_v1_process_stdin, 0 },

    { NGX_HTTP_POST, "sessions/{id}/processes/{pid}/signal",
      NGX_HTTP_SANDBOX_BODY_JSON, SBX_CAP_SHELL, "signal",
      ngx_http_sandbox_v1_process_signal, 0 },

    { NGX_HTTP_POST, "sessions/{id}/processes/{pid}/resize",
      NGX_HTTP_SANDBOX_BODY_JSON, SBX_CAP_SHELL, "resize",
      ngx_http_sandbox_v1_process_resize, 0 },

    { NGX_HTTP_POST, "sessions/{id}/cancel",
      NGX_HTTP_SANDBOX_BODY_JSON, 0, "cancel",
      ngx_http_sandbox_v1_cancel, 0 },

    { NGX_HTTP_GET, "sessions/{id}/terminal",
      NGX_HTTP_SANDBOX_BODY_NONE, SBX_CAP_SHELL, "terminal",
      ngx_http_sandbox_v1_terminal, 0 },

    { NGX_HTTP_GET, "sessions/{id}/files",
      NGX_HTTP_SANDBOX_BODY_NONE, SBX_CAP_FILES, "files",
      ngx_http_sandbox_v1_files, 0 },

    { NGX_HTTP_HEAD, "sessions/{id}/files",
      NGX_HTTP_SANDBOX_BODY_NONE, SBX_CAP_FILES, "download",
      ngx_http_sandbox_v1_download, 0 },

    { NGX_HTTP_PUT, "sessions/{id}/files",
      NGX_HTTP_SANDBOX_BODY_STREAM, SBX_CAP_FILES, "upload",
      ngx_http_sandbox_v1_upload, 0 },

    { NGX_HTTP_DELETE, "sessions/{id}/files",
      NGX_HTTP_SANDBOX_BODY_NONE, SBX_CAP_FILES, "remove",
      ngx_http_sandbox_v1_remove, 0 },

    { NGX_HTTP_GET|NGX_HTTP_HEAD, "sessions/{id}/files/{path}",
      NGX_HTTP_SANDBOX_BODY_NONE, SBX_CAP_FILES, "download",
      ngx_http_sandbox_v1_download, 0 },

    { NGX_HTTP_PUT, "sessions/{id}/files/{path}",
      NGX_HTTP_SANDBOX_BODY_STREAM, SBX_CAP_FILES, "upload",
      ngx_http_sandbox_v1_upload, 0 },

    { NGX_HTTP_DELETE, "sessions/{id}/files/{path}",
      NGX_HTTP_SANDBOX_BODY_NONE, SBX_CAP_FILES, "remove",
      ngx_http_sandbox_v1_remove, 0 },

    { NGX_HTTP_GET, "sessions/{id}/stat",
      NGX_HTTP_SANDBOX_BODY_NONE, SBX_CAP_FILES, "stat",
      ngx_http_sandbox_v1_file_stat, 0 },

    { NGX_HTTP_GET, "sessions/{id}/stat/{path}",
      NGX_HTTP_SANDBOX_BODY_NONE, SBX_CAP_FILES, "stat",
      ngx_http_sandbox_v1_file_stat, 0 },

    { NGX_HTTP_GET, "sessions/{id}/list",
      NGX_HTTP_SANDBOX_BODY_NONE, SBX_CAP_FILES, "list",
      ngx_http_sandbox_v1_file_directory, 0 },

    { NGX_HTTP_GET, "sessions/{id}/list/{path}",
      NGX_HTTP_SANDBOX_BODY_NONE, SBX_CAP_FILES, "list",
      ngx_http_sandbox_v1_file_directory, 0 },

    { NGX_HTTP_POST, "sessions/{id}/mkdir",
      NGX_HTTP_SANDBOX_BODY_JSON, SBX_CAP_FILES, "mkdir",
      ngx_http_sandbox_v1_file_mkdir, 0 },

    { NGX_HTTP_POST, "sessions/{id}/move",
      NGX_HTTP_SANDBOX_BODY_JSON, SBX_CAP_FILES, "move",
      ngx_http_sandbox_v1_file_move, 0 },

    { NGX_HTTP_POST, "sessions/{id}/search",
      NGX_HTTP_SANDBOX_BODY_JSON, SBX_CAP_FILES, "search",
      ngx_http_sandbox_v1_file_search, 0 },

    { NGX_HTTP_GET, "sessions/{id}/archive",
      NGX_HTTP_SANDBOX_BODY_NONE, SBX_CAP_FILES, "pack",
      ngx_http_sandbox_v1_file_pack, 0 },

    { NGX_HTTP_PUT, "sessions/{id}/archive",
      NGX_HTTP_SANDBOX_BODY_STREAM, SBX_CAP_FILES, "unpack",
      ngx_http_sandbox_v1_upload, 0 },

    { NGX_HTTP_GET, "sessions/{id}/archive/{path}",
      NGX_HTTP_SANDBOX_BODY_NONE, SBX_CAP_FILES, "pack",
      ngx_http_sandbox_v1_file_pack, 0 },

    { NGX_HTTP_PUT, "sessions/{id}/archive/{path}",
      NGX_HTTP_SANDBOX_BODY_STREAM, SBX_CAP_FILES, "unpack",
      ngx_http_sandbox_v1_upload, 0 },

    { NGX_HTTP_GET, "sessions/{id}/watch",
      NGX_HTTP_SANDBOX_BODY_NONE, SBX_CAP_FILES, "watch",
      ngx_http_sandbox_v1_file_watch, 0 },

    { NGX_HTTP_GET, "sessions/{id}/watch/{path}",
      NGX_HTTP_SANDBOX_BODY_NONE, SBX_CAP_FILES, "watch",
      ngx_http_sandbox_v1_file_watch, 0 },

    { NGX_HTTP_GET, "sessions/{id}/commands",
      NGX_HTTP_SANDBOX_BODY_NONE, 0, "commands",
      ngx_http_sandbox_v1_reserved, 0 },

    { NGX_HTTP_POST, "sessions/{id}/commands/{path}",
      NGX_HTTP_SANDBOX_BODY_NONE, 0, "commands",
      ngx_http_sandbox_v1_reserved, 0 },

    { NGX_HTTP_GET, "sessions/{id}/endpoints",
      NGX_HTTP_SANDBOX_BODY_NONE, 0, "endpoints",
      ngx_http_sandbox_v1_reserved, 0 },

    { NGX_HTTP_GET, "health",
      NGX_HTTP_SANDBOX_BODY_NONE, 0, "health",
      ngx_http_sandbox_v1_health, 0 },

    { NGX_HTTP_GET, "doctor",
      NGX_HTTP_SANDBOX_BODY_NONE, 0, "doctor",
      ngx_http_sandbox_v1_doctor, 0 },

    { NGX_HTTP_GET, "capabilities",
      NGX_HTTP_SANDBOX_BODY_NONE, 0, "capabilities",
      ngx_http_sandbox_v1_capabilities, 0 },

    { NGX_HTTP_GET, "templates",
      NGX_HTTP_SANDBOX_BODY_NONE, 0, "templates",
      ngx_http_sandbox_v1_templates, 0 },

    { (ngx_uint_t) ~0, "sessions/{id}/ports/{port}",
      NGX_HTTP_SANDBOX_BODY_STREAM, SBX_CAP_PORTS, "port",
      ngx_http_sandbox_v1_port, 0 },

    { (ngx_uint_t) ~0, "sessions/{id}/ports/{port}/{rest}",
      NGX_HTTP_SANDBOX_BODY_STREAM, SBX_CAP_PORTS, "port",
      ngx_http_sandbox_v1_port, 0 },

    { 0, NULL, NGX_HTTP_SANDBOX_BODY_NONE, 0, NULL, NULL, 0 }
};


ngx_http_sandbox_route_t  ngx_http_sandbox_v1_port_route = {
    (ngx_uint_t) ~0, "ports", NGX_HTTP_SANDBOX_BODY_STREAM, SBX_CAP_PORTS,
    "port", ngx_http_sandbox_v1_port, 0
};


static ngx_int_t
ngx_http_sandbox_v1_reserved(ngx_http_request_t *r)
{
    return ngx_http_sandbox_problem(r, NGX_HTTP_SANDBOX_NOT_IMPLEMENTED,
                                    NULL);
}


ngx_int_t
ngx_http_sandbox_v1_list_end(ngx_http_sandbox_call_t *call,
    ngx_http_sandbox_json_t *j, u_char kind, uint64_t next,
    ngx_uint_t truncated)
{
    u_char  cursor[sizeof("x") + NGX_INT64_LEN];

    ngx_http_sandbox_json_raw(j, "],\"next_cursor\":");

    if (next == 0) {
        ngx_http_sandbox_json_raw(j, "null");

    } else {
        *ngx_sprintf(cursor, "%c%xL", kind, (int64_t) next) = '\0';
        ngx_http_sandbox_json_cstring(j, (char *) cursor);
    }

    /* a tree of more names than anybody lists */

    ngx_http_sandbox_json_raw(j, truncated ? ",\"truncated\":true}" : "}");

    return ngx_http_sandbox_op_finish(call,
                ngx_http_sandbox_json_send(call->request, NGX_HTTP_OK, j));
}


/* The collection's own address and the id: right for any location. */

ngx_int_t
ngx_http_sandbox_v1_location(ngx_http_request_t *r, const ngx_str_t *id)
{
    size_t      len, escapes;
    u_char     *p;
    ngx_str_t   value;

    len = r->uri.len;

    while (len > 0 && r->uri.data[len - 1] == '/') {
        len--;
    }

    escapes = ngx_escape_uri(NULL, r->uri.data, len, NGX_ESCAPE_URI);

    p = ngx_pnalloc(r->pool, len + 2 * escapes + 1 + id->len);

    if (p == NULL) {
        return NGX_ERROR;
    }

    value.data = p;
    p = (u_char *) ngx_escape_uri(p, r->uri.data, len, NGX_ESCAPE_URI);
    *p++ = '/';
    p = ngx_cpymem(p, id->data, id->len);
    value.len = p - value.data;

    return ngx_http_sandbox_add_header(r, "Location", &value);
}
