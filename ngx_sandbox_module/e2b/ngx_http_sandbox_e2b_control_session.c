/*
 * A sandbox as this API tells it, and what is asked of one alone.
 */

#include "ngx_http_sandbox_e2b_control.h"


static void ngx_http_sandbox_e2b_session_url(ngx_http_request_t *r,
    ngx_http_sandbox_json_t *j, const char *id);
static void ngx_http_sandbox_e2b_session_host(ngx_http_request_t *r,
    ngx_http_sandbox_json_t *j);
static void ngx_http_sandbox_e2b_session_more(ngx_http_request_t *r,
    ngx_http_sandbox_json_t *j, const ngx_http_sandbox_op_session_t *s);
static void ngx_http_sandbox_e2b_session_token(ngx_http_request_t *r,
    ngx_http_sandbox_json_t *j, ngx_http_sandbox_e2b_token_e kind,
    const char *id);
static ngx_int_t ngx_http_sandbox_e2b_get_frame(
    ngx_http_sandbox_call_t *call, const sbx_frame_t *frame,
    const u_char *payload, ngx_fd_t fd);


int64_t
ngx_http_sandbox_e2b_cpus(const sbx_limits_t *limits)
{
    return (int64_t) ((limits->cpus + 999) / 1000);
}


int64_t
ngx_http_sandbox_e2b_megabytes(uint64_t bytes)
{
    return (bytes >= SBX_UNLIMITED) ? 0 : (int64_t) ((bytes + 1048575) >> 20);
}


void
ngx_http_sandbox_e2b_sandbox(ngx_http_request_t *r,
    ngx_http_sandbox_json_t *j, const ngx_http_sandbox_op_session_t *s,
    ngx_uint_t whole)
{
    const sbx_f_session_t        *session;
    ngx_http_sandbox_loc_conf_t  *slcf;

    session = &s->session;
    slcf = ngx_http_get_module_loc_conf(r, ngx_http_sandbox_module);

    ngx_http_sandbox_json_raw(j, "{\"sandboxID\":");
    ngx_http_sandbox_op_array(j, session->id);
    ngx_http_sandbox_json_raw(j, ",\"templateID\":");
    ngx_http_sandbox_op_array(j, session->template);
    ngx_http_sandbox_json_raw(j, ",\"alias\":");
    ngx_http_sandbox_op_array(j, session->template);
    ngx_http_sandbox_json_raw(j, ",\"clientID\":\"nginx\",\"envdVersion\":\""
                                 NGX_HTTP_SANDBOX_E2B_VERSION
                                 "\",\"startedAt\":");
    ngx_http_sandbox_json_time(j, session->created);
    ngx_http_sandbox_json_raw(j, ",\"endAt\":");
    ngx_http_sandbox_json_time(j, session->expires);
    ngx_http_sandbox_json_raw(j, ",\"state\":");
    ngx_http_sandbox_json_cstring(j, session->status == SBX_STATUS_PAUSED
                                     ? "paused" : "running");
    ngx_http_sandbox_json_raw(j, ",\"cpuCount\":");
    ngx_http_sandbox_json_int(j, ngx_http_sandbox_e2b_cpus(&session->limits));
    ngx_http_sandbox_json_raw(j, ",\"memoryMB\":");
    ngx_http_sandbox_json_int(j,
                    ngx_http_sandbox_e2b_megabytes(session->limits.memory));
    ngx_http_sandbox_json_raw(j, ",\"diskSizeMB\":");
    ngx_http_sandbox_json_int(j,
                      ngx_http_sandbox_e2b_megabytes(session->limits.disk));
    ngx_http_sandbox_json_raw(j, ",\"metadata\":");

    if (s->meta_len == 0) {
        ngx_http_sandbox_json_raw(j, "{}");

    } else {
        /* our own text of the create call, kept by the broker */
        ngx_http_sandbox_json_raw_len(j, s->meta, s->meta_len);
    }

    ngx_http_sandbox_json_raw(j, ",\"volumeMounts\":[],\"domain\":");

    if (slcf->e2b_domain.len == 0) {
        ngx_http_sandbox_json_raw(j, "null");

    } else {
        ngx_http_sandbox_json_string(j, slcf->e2b_domain.data,
                                     slcf->e2b_domain.len);
    }

    ngx_http_sandbox_json_raw(j, ",\"envdUrl\":");
    ngx_http_sandbox_e2b_session_url(r, j, session->id);

    if (whole) {
        ngx_http_sandbox_e2b_session_more(r, j, s);
    }

    ngx_http_sandbox_json_raw(j, "}");
}


/* Where the sandbox's envd is, for a client that makes no host of it. */

static void
ngx_http_sandbox_e2b_session_url(ngx_http_request_t *r,
    ngx_http_sandbox_json_t *j, const char *id)
{
    size_t                        len;
    ngx_http_core_loc_conf_t     *clcf;
    ngx_http_sandbox_loc_conf_t  *slcf;

    slcf = ngx_http_get_module_loc_conf(r, ngx_http_sandbox_module);
    clcf = ngx_http_get_module_loc_conf(r, ngx_http_core_module);

    if (slcf->e2b_domain.len != 0) {
        ngx_http_sandbox_json_raw(j, "\"https://49983-");
        ngx_http_sandbox_json_raw(j, id);
        ngx_http_sandbox_json_raw(j, ".");
        ngx_http_sandbox_json_raw_len(j, slcf->e2b_domain.data,
                                      slcf->e2b_domain.len);
        ngx_http_sandbox_json_raw(j, "\"");

        return;
    }

#if (NGX_HTTP_SSL)
    ngx_http_sandbox_json_raw(j, r->connection->ssl ? "\"https://"
                                                    : "\"http://");
#else
    ngx_http_sandbox_json_raw(j, "\"http://");
#endif

    ngx_http_sandbox_e2b_session_host(r, j);

    len = clcf->name.len;

    if (len != 0 && clcf->name.data[len - 1] == '/') {
        len--;
    }

    ngx_http_sandbox_json_chars(j, clcf->name.data, len);
    ngx_http_sandbox_json_raw(j, "/envd/");
    ngx_http_sandbox_json_raw(j, id);
    ngx_http_sandbox_json_raw(j, "\"");
}


/* As the client has it: it may know us by another name and port. */

static void
ngx_http_sandbox_e2b_session_host(ngx_http_request_t *r,
    ngx_http_sandbox_json_t *j)
{
    u_char     text[NGX_SOCKADDR_STRLEN];
    ngx_str_t  addr;

    if (r->headers_in.host != NULL && r->headers_in.host->value.len != 0) {
        ngx_http_sandbox_json_chars(j, r->headers_in.host->value.data,
                                    r->headers_in.host->value.len);
        return;
    }

    addr.data = text;
    addr.len = sizeof(text);

    if (ngx_connection_local_sockaddr(r->connection, &addr, 1) == NGX_OK) {
        ngx_http_sandbox_json_chars(j, addr.data, addr.len);
    }
}


static void
ngx_http_sandbox_e2b_session_more(ngx_http_request_t *r,
    ngx_http_sandbox_json_t *j, const ngx_http_sandbox_op_session_t *s)
{
    uint32_t                flags;
    const sbx_f_session_t  *session;

    session = &s->session;
    flags = session->flags;

    if (!(flags & SBX_CREATE_NO_TOKEN)) {
        ngx_http_sandbox_json_raw(j, ",\"envdAccessToken\":");
        ngx_http_sandbox_e2b_session_token(r, j,
                                           NGX_HTTP_SANDBOX_E2B_TOKEN_ENVD,
                                           session->id);
    }

    ngx_http_sandbox_json_raw(j, ",\"trafficAccessToken\":");

    /* clients send this one alone with calls about contexts of code */

    if ((flags & SBX_CREATE_PORT_TOKEN) || !(flags & SBX_CREATE_NO_TOKEN)) {
        ngx_http_sandbox_e2b_session_token(r, j,
                                        NGX_HTTP_SANDBOX_E2B_TOKEN_TRAFFIC,
                                        session->id);

    } else {
        ngx_http_sandbox_json_raw(j, "null");
    }

    ngx_http_sandbox_e2b_network_json(j, s);
    ngx_http_sandbox_json_raw(j, "\"allowPublicTraffic\":");
    ngx_http_sandbox_json_bool(j, !(flags & SBX_CREATE_PORT_TOKEN));
    ngx_http_sandbox_json_raw(j, "},\"lifecycle\":{\"onTimeout\":");
    ngx_http_sandbox_json_cstring(j, (flags & SBX_CREATE_ON_TIMEOUT_PAUSE)
                                     ? "pause" : "kill");
    ngx_http_sandbox_json_raw(j, ",\"autoResume\":");
    ngx_http_sandbox_json_bool(j, (flags & SBX_CREATE_AUTO_RESUME) != 0);
    ngx_http_sandbox_json_raw(j, "}");
}


static void
ngx_http_sandbox_e2b_session_token(ngx_http_request_t *r,
    ngx_http_sandbox_json_t *j, ngx_http_sandbox_e2b_token_e kind,
    const char *id)
{
    u_char                         token[NGX_HTTP_SANDBOX_E2B_TOKEN];
    ngx_http_sandbox_main_conf_t  *smcf;

    smcf = ngx_http_get_module_main_conf(r, ngx_http_sandbox_module);

    if (smcf->token_key == NULL) {

        /* a configuration that has never reached a broker */

        j->failed = 1;
        return;
    }

    ngx_http_sandbox_e2b_token(smcf, kind, id, ngx_strlen(id), token);
    ngx_http_sandbox_json_string(j, token, sizeof(token));
}


ngx_int_t
ngx_http_sandbox_e2b_sandbox_finish(ngx_http_sandbox_call_t *call,
    ngx_uint_t status)
{
    ngx_http_request_t             *r;
    ngx_http_sandbox_json_t         j;
    ngx_http_sandbox_op_session_t  *session;

    r = call->request;
    session = call->data;

    if (ngx_http_sandbox_op_session_note(r, session) != NGX_OK) {
        return ngx_http_sandbox_op_broken(call, "more than memory holds");
    }

    ngx_http_sandbox_json_init(&j, r->pool);
    ngx_http_sandbox_e2b_sandbox(r, &j, session, 1);

    return ngx_http_sandbox_op_finish(call,
                                  ngx_http_sandbox_json_send(r, status, &j));
}


ngx_int_t
ngx_http_sandbox_e2b_get(ngx_http_request_t *r)
{
    return ngx_http_sandbox_op_session_ask(r, ngx_http_sandbox_e2b_get_frame);
}


static ngx_int_t
ngx_http_sandbox_e2b_get_frame(ngx_http_sandbox_call_t *call,
    const sbx_frame_t *frame, const u_char *payload, ngx_fd_t fd)
{
    ngx_int_t  rc;

    rc = ngx_http_sandbox_op_session_part(call, frame, payload, fd);

    return (rc != NGX_DECLINED)
           ? rc : ngx_http_sandbox_e2b_sandbox_finish(call, NGX_HTTP_OK);
}


ngx_int_t
ngx_http_sandbox_e2b_kill(ngx_http_request_t *r)
{
    ngx_http_sandbox_call_t  *call;

    call = ngx_http_sandbox_op_call(r, SBX_OP_DESTROY, NULL, 0,
                                    NGX_INVALID_FILE, NULL);

    if (call != NULL) {
        call->frame = ngx_http_sandbox_op_end_frame;
    }

    return ngx_http_sandbox_op_start(r, call);
}
