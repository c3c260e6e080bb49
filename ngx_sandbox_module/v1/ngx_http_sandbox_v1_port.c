/*
 * Ports of a session.  The broker makes a link between the worker and init,
 * which connects, inside, and says so; from there on nginx's upstream module
 * goes about it as about any other server, unbuffered both ways.  There is one
 * server and one try: what fails after the link has been accepted is the
 * program's.
 *
 * The call stays open while the link is used.  An end of the link of which the
 * call has not said that it is the program's is none: the session is over, or
 * the connection cut off, and then the client is cut, as a download is.
 */

#include "ngx_http_sandbox_v1_port.h"
#include "ngx_http_sandbox_cost.h"
#include "ngx_http_sandbox_passed.h"
#include "sandbox_fault.h"


#define NGX_HTTP_SANDBOX_V1_PORT_TURN   16     /* pieces before others' */


static ngx_uint_t ngx_http_sandbox_v1_port_number(const ngx_str_t *s);
static ngx_int_t ngx_http_sandbox_v1_port_frame(
    ngx_http_sandbox_call_t *call, const sbx_frame_t *frame,
    const u_char *payload, ngx_fd_t fd);
static void ngx_http_sandbox_v1_port_failed(ngx_http_sandbox_call_t *call,
    ngx_http_sandbox_error_e error);
static ngx_int_t ngx_http_sandbox_v1_port_over(ngx_http_sandbox_call_t *call);
static ngx_int_t ngx_http_sandbox_v1_port_refused(
    ngx_http_sandbox_call_t *call, const sbx_f_error_t *error);
static ngx_int_t ngx_http_sandbox_v1_port_accepted(
    ngx_http_sandbox_v1_port_t *port);
static ngx_int_t ngx_http_sandbox_v1_port_begin(
    ngx_http_sandbox_v1_port_t *port);
static ngx_uint_t ngx_http_sandbox_v1_port_whole(
    ngx_http_sandbox_v1_port_t *port);
static ngx_int_t ngx_http_sandbox_v1_port_peer_init(ngx_http_request_t *r,
    ngx_http_upstream_srv_conf_t *us);
static ngx_int_t ngx_http_sandbox_v1_port_peer_get(ngx_peer_connection_t *pc,
    void *data);
static void ngx_http_sandbox_v1_port_peer_free(ngx_peer_connection_t *pc,
    void *data, ngx_uint_t state);
static ngx_uint_t ngx_http_sandbox_v1_port_turn(ngx_uint_t *n,
    ngx_event_t *ev);
static ssize_t ngx_http_sandbox_v1_port_recv(ngx_connection_t *c,
    u_char *buf, size_t size);
static ssize_t ngx_http_sandbox_v1_port_send(ngx_connection_t *c,
    u_char *buf, size_t size);
static ngx_chain_t *ngx_http_sandbox_v1_port_send_chain(ngx_connection_t *c,
    ngx_chain_t *in, off_t limit);
static void ngx_http_sandbox_v1_port_abort(ngx_http_request_t *r);
static void ngx_http_sandbox_v1_port_finalize(ngx_http_request_t *r,
    ngx_int_t rc);
static void ngx_http_sandbox_v1_port_cleanup(void *data);
static void ngx_http_sandbox_v1_port_part(
    const ngx_http_sandbox_v1_port_t *port, const ngx_connection_t *c);


/* All ports are of one upstream, which is in no configuration. */

static ngx_http_upstream_srv_conf_t  ngx_http_sandbox_v1_port_upstream = {
    .peer = { .init_upstream = NULL,
              .init = ngx_http_sandbox_v1_port_peer_init,
              .data = NULL }
};

/* What is not to be seen never gets as far as nginx's own list. */

static ngx_str_t  ngx_http_sandbox_v1_port_hide[] = {
    ngx_string("X-Accel-Redirect"),
    ngx_null_string
};


char *
ngx_http_sandbox_set_port_host(ngx_conf_t *cf, ngx_command_t *cmd,
    void *conf)
{
    ngx_http_sandbox_loc_conf_t  *slcf = conf;

    ngx_str_t                     *value;
    ngx_http_core_loc_conf_t      *clcf;
    ngx_http_sandbox_main_conf_t  *smcf;

    if (slcf->port_host.data != NULL) {
        return "is duplicate";
    }

    if (slcf->api != NGX_HTTP_SANDBOX_API_OFF) {
        return "cannot be where \"sandbox_api\" is";
    }

    value = cf->args->elts;

    if (value[1].len == 0 || value[1].data[0] == '.'
        || value[1].len > 253
        || strspn((char *) value[1].data,
                  "abcdefghijklmnopqrstuvwxyz0123456789.-")
           != value[1].len)
    {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "invalid value \"%V\" in \"%V\" directive, it "
                           "must be a domain in lower case", &value[1],
                           &cmd->name);
        return NGX_CONF_ERROR;
    }

    slcf->port_host = value[1];

    clcf = ngx_http_conf_get_module_loc_conf(cf, ngx_http_core_module);
    clcf->handler = ngx_http_sandbox_handler;

    smcf = ngx_http_conf_get_module_main_conf(cf, ngx_http_sandbox_module);
    smcf->used = 1;

    return NGX_CONF_OK;
}


void
ngx_http_sandbox_port_create_conf(ngx_http_sandbox_loc_conf_t *slcf)
{
    slcf->port_timeout = NGX_CONF_UNSET_MSEC;
    slcf->port_upstream.hide_headers = NGX_CONF_UNSET_PTR;
    slcf->port_upstream.pass_headers = NGX_CONF_UNSET_PTR;
}


char *
ngx_http_sandbox_port_merge_conf(ngx_conf_t *cf,
    ngx_http_sandbox_loc_conf_t *prev, ngx_http_sandbox_loc_conf_t *conf)
{
    ngx_hash_init_t            hash;
    ngx_http_upstream_conf_t  *ucf;
    ngx_http_core_loc_conf_t  *clcf;

    ngx_conf_merge_msec_value(conf->port_timeout, prev->port_timeout, 60000);

    clcf = ngx_http_conf_get_module_loc_conf(cf, ngx_http_core_module);

    if ((clcf->noname || clcf->lmt_excpt) && conf->port_host.data == NULL) {
        conf->port_host = prev->port_host;

        if (clcf->lmt_excpt && clcf->handler == NULL
            && conf->port_host.data != NULL)
        {
            clcf->handler = ngx_http_sandbox_handler;
        }
    }

    ucf = &conf->port_upstream;
    ucf->upstream = &ngx_http_sandbox_v1_port_upstream;
    ucf->connect_timeout = conf->port_timeout;
    ucf->send_timeout = conf->port_timeout;
    ucf->read_timeout = conf->port_timeout;
    ucf->buffer_size = 16 * 1024;
    ucf->next_upstream = NGX_HTTP_UPSTREAM_FT_OFF;
    ucf->ignore_headers = NGX_CONF_BITMASK_SET
                          |NGX_HTTP_UPSTREAM_IGN_XA_REDIRECT
                          |NGX_HTTP_UPSTREAM_IGN_XA_EXPIRES
                          |NGX_HTTP_UPSTREAM_IGN_XA_LIMIT_RATE
                          |NGX_HTTP_UPSTREAM_IGN_XA_BUFFERING
                          |NGX_HTTP_UPSTREAM_IGN_XA_CHARSET;
    ngx_str_set(&ucf->module, "sandbox_port");

    ngx_memzero(&hash, sizeof(ngx_hash_init_t));
    hash.max_size = 512;
    hash.bucket_size = ngx_align(64, ngx_cacheline_size);
    hash.name = "sandbox_port_headers_hash";

    if (ngx_http_upstream_hide_headers_hash(cf, ucf, &prev->port_upstream,
                                            ngx_http_sandbox_v1_port_hide,
                                            &hash)
        != NGX_OK)
    {
        return NGX_CONF_ERROR;
    }

    return NGX_CONF_OK;
}


ngx_int_t
ngx_http_sandbox_v1_port(ngx_http_request_t *r)
{
    sbx_error_t                   e;
    sbx_f_port_t                  ask;
    ngx_pool_cleanup_t           *cln;
    ngx_http_sandbox_ctx_t       *ctx;
    ngx_http_sandbox_call_t      *call;
    ngx_http_sandbox_v1_port_t   *port;
    ngx_http_sandbox_loc_conf_t  *slcf;

    ctx = ngx_http_sandbox_ctx(r);
    slcf = ngx_http_get_module_loc_conf(r, ngx_http_sandbox_module);

    port = ngx_pcalloc(r->pool, sizeof(ngx_http_sandbox_v1_port_t));
    cln = ngx_pool_cleanup_add(r->pool, 0);

    if (port == NULL || cln == NULL) {
        return ngx_http_sandbox_problem(r, NGX_HTTP_SANDBOX_INTERNAL, NULL);
    }

    cln->handler = ngx_http_sandbox_v1_port_cleanup;
    cln->data = port;

    port->request = r;
    port->by_name = (slcf->port_host.len != 0 || ctx->by_name);
    port->port = ngx_http_sandbox_v1_port_number(&ctx->item);

    if (port->port == 0) {
        return ngx_http_sandbox_problem(r, NGX_HTTP_SANDBOX_INVALID_REQUEST,
                                        "a port is a number from 1 to 65535");
    }

    if (ngx_http_sandbox_v1_port_check(port, &e) != NGX_OK) {
        return ngx_http_sandbox_problem_core(r, &e);
    }

    port->name.data = ngx_pnalloc(r->pool, sizeof("port 65535 of ")
                                           + ctx->session.len);
    call = ngx_http_sandbox_op_call(r, SBX_OP_PORT, NULL, 0, NGX_INVALID_FILE,
                                    port);

    ngx_memzero(&ask, sizeof(sbx_f_port_t));
    ask.port = (uint32_t) port->port;

    if (port->name.data == NULL || call == NULL
        || ngx_http_sandbox_call_queue(call, SBX_F_PORT, &ask,
                                       sizeof(sbx_f_port_t))
           != NGX_OK)
    {
        return ngx_http_sandbox_problem(r, NGX_HTTP_SANDBOX_INTERNAL, NULL);
    }

    port->name.len = ngx_sprintf(port->name.data, "port %ui of %V",
                                 port->port, &ctx->session)
                     - port->name.data;

    call->brings = SBX_F_SOCKET;
    call->frame = ngx_http_sandbox_v1_port_frame;
    call->failed = ngx_http_sandbox_v1_port_failed;
    port->call = call;
    ctx->data = port;

    return ngx_http_sandbox_op_start(r, call);
}


/* 0: none. */

static ngx_uint_t
ngx_http_sandbox_v1_port_number(const ngx_str_t *s)
{
    ngx_int_t  n;

    if (s->len == 0 || s->len > 5 || s->data[0] == '0') {
        return 0;
    }

    n = ngx_atoi(s->data, s->len);

    return (n < 1 || n > 65535) ? 0 : (ngx_uint_t) n;
}


static ngx_int_t
ngx_http_sandbox_v1_port_frame(ngx_http_sandbox_call_t *call,
    const sbx_frame_t *frame, const u_char *payload, ngx_fd_t fd)
{
    sbx_f_error_t                error;
    ngx_http_sandbox_v1_port_t  *port;

    port = call->data;

    if (port->begun) {

        if (frame->type == SBX_F_END && !port->ended) {
            port->ended = 1;
            return NGX_OK;
        }

        return ngx_http_sandbox_v1_port_over(call);
    }

    if (frame->type == SBX_F_ACCEPTED && call->settled) {
        return ngx_http_sandbox_v1_port_accepted(port);
    }

    if (frame->type != SBX_F_ERROR) {
        return ngx_http_sandbox_op_broken(call, "a wrong frame for a port");
    }

    ngx_memcpy(&error, payload, sizeof(sbx_f_error_t));

    if (error.code == SBX_E_UNAVAILABLE
        && (error.err == ECONNREFUSED || error.err == ETIMEDOUT))
    {
        return ngx_http_sandbox_v1_port_refused(call, &error);
    }

    return ngx_http_sandbox_op_frame(call, frame, payload, fd);
}


static ngx_int_t
ngx_http_sandbox_v1_port_refused(ngx_http_sandbox_call_t *call,
    const sbx_f_error_t *error)
{
    ngx_http_request_t          *r;
    ngx_http_sandbox_v1_port_t  *port;

    r = call->request;
    port = call->data;

    if (error->err == ETIMEDOUT) {
        return ngx_http_sandbox_op_finish(call,
                  ngx_http_sandbox_problem(r,
                                           NGX_HTTP_SANDBOX_GATEWAY_TIMEOUT,
                                           "what listens on port %ui of the "
                                           "session takes no connection",
                                           port->port));
    }

    return ngx_http_sandbox_op_finish(call,
              ngx_http_sandbox_problem(r, NGX_HTTP_SANDBOX_BAD_GATEWAY,
                                       "nothing listens on port %ui of the "
                                       "session", port->port));
}


static ngx_int_t
ngx_http_sandbox_v1_port_accepted(ngx_http_sandbox_v1_port_t *port)
{
    ngx_connection_t         *c;
    ngx_http_sandbox_call_t  *call;

    call = port->call;

    SBX_FAULT("worker-port-accepted");

    c = ngx_get_connection(call->socket, port->request->connection->log);

    if (c == NULL) {
        /* upstream has no answer for a worker that has none left */

        return ngx_http_sandbox_op_finish(call,
                  ngx_http_sandbox_problem(port->request,
                                           NGX_HTTP_SANDBOX_BROKER_UNAVAILABLE,
                                           NULL));
    }

    port->refuses = ngx_http_sandbox_passed_refuse(call->socket);
    port->socket = c;
    call->socket = NGX_INVALID_FILE;
    call->timeout = 0;

    return ngx_http_sandbox_v1_port_begin(port);
}


static void
ngx_http_sandbox_v1_port_failed(ngx_http_sandbox_call_t *call,
    ngx_http_sandbox_error_e error)
{
    ngx_http_sandbox_v1_port_t  *port;

    port = call->data;

    if (!port->begun) {
        ngx_http_sandbox_op_failed(call, error);
        return;
    }

    (void) ngx_http_sandbox_v1_port_over(call);
}


/* The session is over, or the program has cut the connection off: the link's
 * end tells, after what has been said before. */

static ngx_int_t
ngx_http_sandbox_v1_port_over(ngx_http_sandbox_call_t *call)
{
    ngx_http_sandbox_call_close(call);

    return NGX_DONE;
}


/* ---- the upstream ------------------------------------------------------- */


static ngx_int_t
ngx_http_sandbox_v1_port_begin(ngx_http_sandbox_v1_port_t *port)
{
    ngx_int_t                     rc;
    ngx_http_request_t           *r;
    ngx_http_upstream_t          *u;
    ngx_http_sandbox_loc_conf_t  *slcf;

    r = port->request;

    port->begun = 1;

    if (ngx_http_upstream_create(r) != NGX_OK
        || ngx_http_sandbox_body_own(r) != NGX_OK)
    {
        return ngx_http_sandbox_op_finish(port->call,
                                          NGX_HTTP_INTERNAL_SERVER_ERROR);
    }

    slcf = ngx_http_get_module_loc_conf(r, ngx_http_sandbox_module);

    u = r->upstream;
    ngx_str_set(&u->schema, "http://");
    u->output.tag = (ngx_buf_tag_t) &ngx_http_sandbox_module;
    u->conf = &slcf->port_upstream;
    u->create_request = ngx_http_sandbox_v1_port_create_request;
    u->reinit_request = ngx_http_sandbox_v1_port_reinit_request;
    u->process_header = ngx_http_sandbox_v1_port_status_line;
    u->abort_request = ngx_http_sandbox_v1_port_abort;
    u->finalize_request = ngx_http_sandbox_v1_port_finalize;
    u->input_filter_init = ngx_http_sandbox_v1_port_filter_init;
    u->input_filter = ngx_http_sandbox_v1_port_filter;
    u->input_filter_ctx = port;
    u->buffering = 0;

    r->request_body_no_buffering = 1;

    /* this takes the place of the router's reference */

    r->main->count--;

    rc = ngx_http_read_client_request_body(r, ngx_http_upstream_init);

    if (rc >= NGX_HTTP_SPECIAL_RESPONSE) {
        r->main->count++;
        return ngx_http_sandbox_op_finish(port->call, rc);
    }

    /* the request may be gone */

    return NGX_OK;
}


static ngx_int_t
ngx_http_sandbox_v1_port_peer_init(ngx_http_request_t *r,
    ngx_http_upstream_srv_conf_t *us)
{
    ngx_peer_connection_t       *pc;
    ngx_http_sandbox_v1_port_t  *port;

    port = ngx_http_sandbox_ctx(r)->data;
    pc = &r->upstream->peer;

    pc->get = ngx_http_sandbox_v1_port_peer_get;
    pc->free = ngx_http_sandbox_v1_port_peer_free;
    pc->data = port;
    pc->name = &port->name;
    pc->tries = 1;

    return NGX_OK;
}


/* As a connection that was kept alive would be given. */

static ngx_int_t
ngx_http_sandbox_v1_port_peer_get(ngx_peer_connection_t *pc, void *data)
{
    ngx_connection_t            *c;
    ngx_http_sandbox_v1_port_t  *port;

    port = data;

    c = port->socket;

    if (c == NULL) {
        return NGX_ERROR;
    }

    port->socket = NULL;

    c->type = SOCK_STREAM;
    c->recv = ngx_http_sandbox_v1_port_recv;
    c->send = ngx_http_sandbox_v1_port_send;
    c->recv_chain = NULL;
    c->send_chain = ngx_http_sandbox_v1_port_send_chain;
    c->tcp_nopush = NGX_TCP_NOPUSH_DISABLED;
    c->tcp_nodelay = NGX_TCP_NODELAY_DISABLED;
    c->log_error = pc->log_error;
    c->log = pc->log;
    c->read->log = pc->log;
    c->write->log = pc->log;
    c->number = ngx_atomic_fetch_add(ngx_connection_counter, 1);
    c->start_time = ngx_current_msec;

    if (ngx_add_conn != NULL) {
        if (ngx_add_conn(c) == NGX_ERROR) {
            ngx_close_connection(c);
            return NGX_ERROR;
        }

    } else if (ngx_handle_read_event(c->read, 0) != NGX_OK) {
        ngx_close_connection(c);
        return NGX_ERROR;
    }

    c->write->ready = 1;

    pc->connection = c;
    pc->cached = 0;

    return NGX_DONE;
}


static void
ngx_http_sandbox_v1_port_peer_free(ngx_peer_connection_t *pc, void *data,
    ngx_uint_t state)
{
    pc->tries = 0;
}


/*
 * nginx moves bytes for as long as one side has some and the other takes
 * them, and here both sides may be hostile and fast: after some pieces, or
 * when others have had much of this turn, the socket is as if it were not
 * ready, and goes on in its turn.
 */

static ngx_uint_t
ngx_http_sandbox_v1_port_turn(ngx_uint_t *n, ngx_event_t *ev)
{
    if (*n < NGX_HTTP_SANDBOX_V1_PORT_TURN && !ngx_http_sandbox_turn_over()) {
        return 1;
    }

    *n = 0;
    ngx_http_sandbox_turn_wait(ev);

    return 0;
}


static ssize_t
ngx_http_sandbox_v1_port_recv(ngx_connection_t *c, u_char *buf, size_t size)
{
    ssize_t                      n;
    const char                  *session;
    sbx_costs_span_t             span;
    ngx_http_sandbox_v1_port_t  *port;

    port = ngx_http_sandbox_ctx((ngx_http_request_t *) c->data)->data;

    if (!ngx_http_sandbox_v1_port_turn(&port->received, c->read)) {
        return NGX_AGAIN;
    }

    session = port->call->header.session;

    if (ngx_http_sandbox_cost_left(session)) {
        c->read->error = 1;
        return NGX_ERROR;
    }

    size = ngx_http_sandbox_cost_room(session, size);

    ngx_http_sandbox_cost_begin(session, &span);
    n = port->refuses ? ngx_recv(c, buf, size)
                      : ngx_http_sandbox_passed_recv(c, buf, size, session);
    ngx_http_sandbox_cost_end(session, &span);

    if (n > 0) {
        port->received++;
        ngx_http_sandbox_turn_spend((size_t) n);

        return n;
    }

    port->received = 0;

    if (n == 0 && !ngx_http_sandbox_v1_port_whole(port)) {
        c->read->eof = 0;
        c->read->error = 1;

        return NGX_ERROR;
    }

    return n;
}


/* Whether the link's end is that of what the program has said: init says so
 * before it. */

static ngx_uint_t
ngx_http_sandbox_v1_port_whole(ngx_http_sandbox_v1_port_t *port)
{
    sbx_frame_t  frame;

    if (port->ended) {
        return 1;
    }

    return !port->call->closed
           && recv(port->call->connection->fd, &frame, sizeof(sbx_frame_t),
                   MSG_PEEK|MSG_DONTWAIT)
              == sizeof(sbx_frame_t)
           && frame.type == SBX_F_END;
}


static ssize_t
ngx_http_sandbox_v1_port_send(ngx_connection_t *c, u_char *buf, size_t size)
{
    ssize_t                      n;
    const char                  *session;
    sbx_costs_span_t             span;
    ngx_http_sandbox_v1_port_t  *port;

    port = ngx_http_sandbox_ctx((ngx_http_request_t *) c->data)->data;
    session = port->call->header.session;

    if (!ngx_http_sandbox_v1_port_turn(&port->sent, c->write)) {
        return NGX_AGAIN;
    }

    if (ngx_http_sandbox_cost_left(session)) {
        c->write->error = 1;
        return NGX_ERROR;
    }

    ngx_http_sandbox_cost_begin(session, &span);
    n = ngx_send(c, buf, ngx_http_sandbox_cost_room(session, size));
    ngx_http_sandbox_cost_end(session, &span);

    port->sent = (n > 0) ? port->sent + 1 : 0;

    return n;
}


static ngx_chain_t *
ngx_http_sandbox_v1_port_send_chain(ngx_connection_t *c, ngx_chain_t *in,
    off_t limit)
{
    size_t                       room;
    const char                  *session;
    sbx_costs_span_t             span;
    ngx_http_sandbox_v1_port_t  *port;

    port = ngx_http_sandbox_ctx((ngx_http_request_t *) c->data)->data;
    session = port->call->header.session;

    if (!ngx_http_sandbox_v1_port_turn(&port->sent, c->write)) {
        return in;
    }

    if (ngx_http_sandbox_cost_left(session)) {
        c->write->error = 1;
        return NGX_CHAIN_ERROR;
    }

    room = ngx_http_sandbox_cost_room(session, NGX_MAX_SIZE_T_VALUE);

    if (room != NGX_MAX_SIZE_T_VALUE
        && (limit == 0 || limit > (off_t) room))
    {
        limit = (off_t) room;
    }

    ngx_http_sandbox_cost_begin(session, &span);
    in = ngx_send_chain(c, in, limit);
    ngx_http_sandbox_cost_end(session, &span);

    port->sent = (in == NULL) ? port->sent + 1 : 0;

    /* nothing else would tell of what there was no room for */

    if (in != NULL && in != NGX_CHAIN_ERROR && c->write->ready) {
        ngx_http_sandbox_turn_wait(c->write);
    }

    return in;
}


static void
ngx_http_sandbox_v1_port_abort(ngx_http_request_t *r)
{
    /* never called by nginx, which wants it set */
}


static void
ngx_http_sandbox_v1_port_finalize(ngx_http_request_t *r, ngx_int_t rc)
{
    ngx_http_sandbox_v1_port_t  *port;

    /* nobody is to hear of the session's end any more */

    port = ngx_http_sandbox_ctx(r)->data;
    ngx_http_sandbox_call_close(port->call);

    /* nginx closes it next */

    if (r->upstream->peer.connection != NULL) {
        ngx_http_sandbox_v1_port_part(port, r->upstream->peer.connection);
    }
}


static void
ngx_http_sandbox_v1_port_cleanup(void *data)
{
    ngx_http_sandbox_v1_port_t  *port;

    port = data;

    /* not upstream's yet */

    if (port->socket == NULL) {
        return;
    }

    ngx_http_sandbox_v1_port_part(port, port->socket);

    ngx_close_connection(port->socket);
    port->socket = NULL;
}


static void
ngx_http_sandbox_v1_port_part(const ngx_http_sandbox_v1_port_t *port,
    const ngx_connection_t *c)
{
    const char  *session;

    session = port->call->header.session;

    if (!port->refuses || ngx_http_sandbox_cost_suspect(session)) {
        ngx_http_sandbox_passed_part(c->fd, session);
    }
}
