/*
 * "sandbox_api metrics": what the workers counted and what the broker says,
 * as Prometheus reads it.  Where the broker is silent, the rest is told.
 */

#include "ngx_http_sandbox_v1.h"


static ngx_int_t ngx_http_sandbox_v1_metrics(ngx_http_request_t *r);
static ngx_int_t ngx_http_sandbox_v1_metrics_frame(
    ngx_http_sandbox_call_t *call, const sbx_frame_t *frame,
    const u_char *payload, ngx_fd_t fd);
static void ngx_http_sandbox_v1_metrics_failed(ngx_http_sandbox_call_t *call,
    ngx_http_sandbox_error_e error);
static ngx_int_t ngx_http_sandbox_v1_metrics_send(ngx_http_request_t *r,
    const sbx_f_metrics_t *m);
static void ngx_http_sandbox_v1_metrics_broker(ngx_http_sandbox_json_t *j,
    const sbx_f_metrics_t *m);
static void ngx_http_sandbox_v1_metrics_node(ngx_http_sandbox_json_t *j,
    const sbx_f_metrics_t *m);
static void ngx_http_sandbox_v1_metrics_network(ngx_http_sandbox_json_t *j,
    const sbx_f_metrics_t *m);
static void ngx_http_sandbox_v1_metrics_pools(ngx_http_sandbox_json_t *j,
    const sbx_f_metrics_t *m);
static void ngx_http_sandbox_v1_status_json(ngx_http_request_t *r,
    ngx_http_sandbox_json_t *j, const sbx_f_metrics_t *m);
static void ngx_http_sandbox_v1_status_pools(ngx_http_sandbox_json_t *j,
    const sbx_f_metrics_t *m);


ngx_http_sandbox_route_t  ngx_http_sandbox_metrics_routes[] = {

    { NGX_HTTP_GET, "",
      NGX_HTTP_SANDBOX_BODY_NONE, 0, "metrics",
      ngx_http_sandbox_v1_metrics, 0 },

    { 0, NULL, NGX_HTTP_SANDBOX_BODY_NONE, 0, NULL, NULL, 0 }
};


static const char *const  ngx_http_sandbox_v1_states[] = {
    "creating", "running", "paused", "ending"
};


#define print(j, ...)                                                         \
    do {                                                                      \
        u_char  line_[256];                                                   \
        ngx_http_sandbox_json_raw_len(j, line_,                               \
            ngx_snprintf(line_, sizeof(line_), __VA_ARGS__) - line_);         \
    } while (0)


static ngx_int_t
ngx_http_sandbox_v1_metrics(ngx_http_request_t *r)
{
    ngx_int_t                 rc;
    sbx_f_metrics_t          *m;
    ngx_http_sandbox_call_t  *call;

    m = ngx_pcalloc(r->pool, sizeof(sbx_f_metrics_t));

    if (m == NULL) {
        return ngx_http_sandbox_problem(r, NGX_HTTP_SANDBOX_INTERNAL, NULL);
    }

    call = ngx_http_sandbox_op_call(r, SBX_OP_METRICS, NULL, 0,
                                    NGX_INVALID_FILE, m);

    if (call == NULL || ngx_http_sandbox_call_start(call) != NGX_OK) {

        if (call != NULL) {
            ngx_http_sandbox_call_close(call);
        }

        rc = ngx_http_sandbox_v1_metrics_send(r, NULL);

        return rc;
    }

    call->frame = ngx_http_sandbox_v1_metrics_frame;
    call->failed = ngx_http_sandbox_v1_metrics_failed;
    ngx_http_sandbox_op_watch(r);

    return NGX_DONE;
}


/* The status page's data are the same numbers. */

ngx_int_t
ngx_http_sandbox_v1_status_data(ngx_http_request_t *r)
{
    return ngx_http_sandbox_v1_metrics(r);
}


static ngx_int_t
ngx_http_sandbox_v1_metrics_frame(ngx_http_sandbox_call_t *call,
    const sbx_frame_t *frame, const u_char *payload, ngx_fd_t fd)
{
    ngx_int_t  rc;

    rc = ngx_http_sandbox_op_frame(call, frame, payload, fd);

    if (rc != NGX_DECLINED) {
        return rc;
    }

    if (frame->type == SBX_F_METRICS) {
        ngx_memcpy(call->data, payload, sizeof(sbx_f_metrics_t));
        return NGX_OK;
    }

    if (frame->type == SBX_F_END) {
        return ngx_http_sandbox_op_finish(call,
                   ngx_http_sandbox_v1_metrics_send(call->request,
                                                    call->data));
    }

    return ngx_http_sandbox_op_broken(call, "a wrong frame for metrics");
}


static void
ngx_http_sandbox_v1_metrics_failed(ngx_http_sandbox_call_t *call,
    ngx_http_sandbox_error_e error)
{
    (void) ngx_http_sandbox_op_finish(call,
               ngx_http_sandbox_v1_metrics_send(call->request, NULL));
}


static ngx_int_t
ngx_http_sandbox_v1_metrics_send(ngx_http_request_t *r,
    const sbx_f_metrics_t *m)
{
    ngx_http_sandbox_ctx_t   *ctx;
    ngx_http_sandbox_json_t   j;

    ctx = ngx_http_sandbox_ctx(r);
    ngx_http_sandbox_json_init(&j, r->pool);

    if (ctx->route->handler != ngx_http_sandbox_v1_metrics) {
        ngx_http_sandbox_v1_status_json(r, &j, m);
        return ngx_http_sandbox_json_send(r, NGX_HTTP_OK, &j);
    }

    ngx_http_sandbox_metrics_family(&j, "build_info", "gauge",
                                    "Always 1; the versions are labels.");
    print(&j, "sandbox_build_info{version=\"%s\",nginx=\"%s\"} 1\n",
          NGX_HTTP_SANDBOX_VERSION, NGINX_VERSION);

    ngx_http_sandbox_metrics_family(&j, "broker_up", "gauge",
                                    "Whether the broker answered.");
    print(&j, "sandbox_broker_up %d\n", m != NULL);

    if (m != NULL) {
        ngx_http_sandbox_v1_metrics_broker(&j, m);
        ngx_http_sandbox_v1_metrics_node(&j, m);
        ngx_http_sandbox_v1_metrics_network(&j, m);
        ngx_http_sandbox_v1_metrics_pools(&j, m);
    }

    ngx_http_sandbox_metrics_text(r, &j);

    return ngx_http_sandbox_json_send_as(r, NGX_HTTP_OK,
                            "text/plain; version=0.0.4; charset=utf-8", &j);
}


static void
ngx_http_sandbox_v1_metrics_one(ngx_http_sandbox_json_t *j, const char *name,
    const char *type, const char *help, uint64_t n)
{
    ngx_http_sandbox_metrics_family(j, name, type, help);
    print(j, "sandbox_%s %uL\n", name, n);
}


static void
ngx_http_sandbox_v1_metrics_broker(ngx_http_sandbox_json_t *j,
    const sbx_f_metrics_t *m)
{
    ngx_uint_t  i;

    ngx_http_sandbox_metrics_family(j, "sessions", "gauge",
                                    "Sessions by state.");

    for (i = 0; i < SBX_STATES; i++) {
        print(j, "sandbox_sessions{state=\"%s\"} %uL\n",
              ngx_http_sandbox_v1_states[i], m->sessions[i]);
    }

    ngx_http_sandbox_metrics_family(j, "sessions_ended_total", "counter",
                                    "Sessions that ended, by reason.");

    for (i = 0; i < SBX_METRICS_ENDED; i++) {
        if (sbx_ended_word(i) != NULL) {
            print(j, "sandbox_sessions_ended_total{reason=\"%s\"} %uL\n",
                  sbx_ended_word(i), m->ended[i]);
        }
    }

    ngx_http_sandbox_metrics_family(j, "execs_total", "counter",
                                "Commands that ended, by what ended them.");

    for (i = 0; i < SBX_METRICS_REASONS && sbx_reason_word(i) != NULL; i++) {
        print(j, "sandbox_execs_total{reason=\"%s\"} %uL\n",
              sbx_reason_word(i), m->commands[i]);
    }

    ngx_http_sandbox_metrics_family(j, "command_cpu_seconds_total", "counter",
                                    "Processor time of ended commands.");
    ngx_http_sandbox_json_raw(j, "sandbox_command_cpu_seconds_total ");
    ngx_http_sandbox_json_seconds(j, m->cpu_us);
    ngx_http_sandbox_json_raw(j, "\n");

    ngx_http_sandbox_v1_metrics_one(j, "session_slots", "gauge",
                      "Sessions that the range of user ids has room for.",
                      m->slots);
    ngx_http_sandbox_v1_metrics_one(j, "commands_running", "gauge",
                                    "Commands that run.", m->used.commands);
    ngx_http_sandbox_v1_metrics_one(j, "calls_open", "gauge",
                                    "Calls that the broker has not answered.",
                                    m->calls);
    ngx_http_sandbox_v1_metrics_one(j, "broker_servers", "gauge",
                              "Control connections of nginx to the broker.",
                              m->servers);
    ngx_http_sandbox_v1_metrics_one(j, "broker_restarts_total", "counter",
                              "Times that the broker died and was started "
                              "again.", m->restarts);
    ngx_http_sandbox_v1_metrics_one(j, "draining", "gauge",
                                    "1 while the node takes no sessions.",
                                    m->draining != 0);

    ngx_http_sandbox_metrics_family(j, "broker_start_time_seconds", "gauge",
                                    "Unix time of the broker's start.");
    ngx_http_sandbox_json_raw(j, "sandbox_broker_start_time_seconds ");
    ngx_http_sandbox_json_seconds(j, (uint64_t) m->started * 1000);
    ngx_http_sandbox_json_raw(j, "\n");
}


static void
ngx_http_sandbox_v1_metrics_amount(ngx_http_sandbox_json_t *j,
    const char *what, const sbx_limit_t *row, uint64_t n)
{
    char  buf[32];

    print(j, "sandbox_node_%s{resource=\"%s\"} ", what, row->name);
    ngx_http_sandbox_json_raw_len(j, buf, sbx_limit_print(row, n, buf));
    ngx_http_sandbox_json_raw(j, "\n");
}


static void
ngx_http_sandbox_v1_metrics_node(ngx_http_sandbox_json_t *j,
    const sbx_f_metrics_t *m)
{
    ngx_uint_t          i;
    uint64_t            used, limit;
    const sbx_limit_t  *row;

    static const char *const  what[] = { "used", "limit", "free" };
    static const char *const  help[] = {
        "What the limits of all sessions add up to, of each resource.",
        "The node's limit of it, where it has one.",
        "What is left below that."
    };

    for (i = 0; i < 3; i++) {
        ngx_http_sandbox_metrics_family(j, i == 0 ? "node_used" : i == 1
                                           ? "node_limit" : "node_free",
                                        "gauge", help[i]);

        for (row = sbx_quota_table; row->name != NULL; row++) {
            used = *sbx_quota_field(&m->used, row);
            limit = *sbx_quota_field(&m->limits, row);

            if (i == 0) {
                ngx_http_sandbox_v1_metrics_amount(j, what[i], row, used);

            } else if (limit < SBX_UNLIMITED) {
                ngx_http_sandbox_v1_metrics_amount(j, what[i], row,
                    i == 1 ? limit : limit - ngx_min(used, limit));
            }
        }
    }
}


/* Where no configuration has granted a network, no egress was started. */

static void
ngx_http_sandbox_v1_metrics_network(ngx_http_sandbox_json_t *j,
    const sbx_f_metrics_t *m)
{
    ngx_uint_t  i;

    ngx_http_sandbox_v1_metrics_one(j, "egress_up", "gauge",
                                    "Whether the egress runs.",
                                    m->egress_up != 0);
    ngx_http_sandbox_v1_metrics_one(j, "egress_restarts_total", "counter",
                              "Times that the egress died and was started "
                              "again.", m->egress_restarts);
    ngx_http_sandbox_v1_metrics_one(j, "network_connections", "gauge",
                              "Connections of sessions through the egress.",
                              m->connections);

    ngx_http_sandbox_metrics_family(j, "network_bytes_total", "counter",
                      "Bytes that sessions sent and received through it.");
    print(j, "sandbox_network_bytes_total{direction=\"sent\"} %uL\n",
          m->network_sent);
    print(j, "sandbox_network_bytes_total{direction=\"received\"} %uL\n",
          m->network_received);

    ngx_http_sandbox_metrics_family(j, "network_refused_total", "counter",
                      "Connections and names that it refused, by why.");

    for (i = 0; i < SBX_REFUSED_REASONS; i++) {
        print(j, "sandbox_network_refused_total{reason=\"%s\"} %uL\n",
              sbx_refused_word(i), m->refused[i]);
    }
}


/* A template's name is of the characters that need no quoting. */

static void
ngx_http_sandbox_v1_metrics_pools(ngx_http_sandbox_json_t *j,
    const sbx_f_metrics_t *m)
{
    ngx_uint_t                 i, k;
    const sbx_pool_metrics_t  *p;

    static const struct {
        const char  *name;
        const char  *type;
        const char  *help;
        size_t       offset;
    } rows[] = {
        { "pool_sessions_wanted", "gauge",
          "Sessions that the pool is to have ready.",
          offsetof(sbx_pool_metrics_t, sessions) },
        { "pool_memory_bytes", "gauge",
          "Memory of the sessions that are ready, as they became it.",
          offsetof(sbx_pool_metrics_t, memory) },
        { "pool_hits_total", "counter",
          "Sessions that were given out of the pool.",
          offsetof(sbx_pool_metrics_t, hits) },
        { "pool_failures_total", "counter",
          "Sessions that could not be made ready or did not stay it.",
          offsetof(sbx_pool_metrics_t, failures) }
    };

    p = m->pools;

    if (p[0].template[0] == '\0') {
        return;
    }

    ngx_http_sandbox_metrics_family(j, "pool_sessions", "gauge",
                    "Sessions that were made ahead and are nobody's yet.");

    for (i = 0; i < SBX_POOLS_MAX && p[i].template[0] != '\0'; i++) {
        print(j, "sandbox_pool_sessions{template=\"%s\",state=\"ready\"} "
              "%uL\n", p[i].template, p[i].ready);
        print(j, "sandbox_pool_sessions{template=\"%s\",state=\"filling\"} "
              "%uL\n", p[i].template, p[i].filling);
    }

    for (k = 0; k < sbx_nelts(rows); k++) {
        ngx_http_sandbox_metrics_family(j, rows[k].name, rows[k].type,
                                        rows[k].help);

        for (i = 0; i < SBX_POOLS_MAX && p[i].template[0] != '\0'; i++) {
            print(j, "sandbox_%s{template=\"%s\"} %uL\n", rows[k].name,
                  p[i].template,
                  *(const uint64_t *) ((const char *) &p[i]
                                       + rows[k].offset));
        }
    }

    ngx_http_sandbox_metrics_family(j, "pool_misses_total", "counter",
                    "Sessions that were made when asked for, by why the pool "
                    "had none for them.");

    for (i = 0; i < SBX_POOLS_MAX && p[i].template[0] != '\0'; i++) {
        for (k = 0; k < SBX_MISSES; k++) {
            print(j, "sandbox_pool_misses_total{template=\"%s\","
                  "reason=\"%s\"} %uL\n", p[i].template,
                  sbx_miss_word((sbx_miss_t) k), p[i].misses[k]);
        }
    }
}


static void
ngx_http_sandbox_v1_status_quota(ngx_http_sandbox_json_t *j, const char *name,
    const sbx_quota_t *q)
{
    char                buf[32];
    const char         *separator;
    const sbx_limit_t  *row;

    ngx_http_sandbox_json_raw(j, name);
    separator = "{";

    for (row = sbx_quota_table; row->name != NULL; row++) {
        print(j, "%s\"%s\":", separator, row->name);
        ngx_http_sandbox_json_raw_len(j, buf,
            sbx_limit_print(row, *sbx_quota_field(q, row), buf));
        separator = ",";
    }

    ngx_http_sandbox_json_raw(j, "}");
}


static void
ngx_http_sandbox_v1_status_json(ngx_http_request_t *r,
    ngx_http_sandbox_json_t *j, const sbx_f_metrics_t *m)
{
    ngx_uint_t  i;

    print(j, "{\"version\":\"%s\",\"broker\":%s,\"refusals\":",
          NGX_HTTP_SANDBOX_VERSION, m != NULL ? "true" : "false");
    ngx_http_sandbox_metrics_refusals(r, j);

    if (m != NULL) {
        ngx_http_sandbox_json_raw(j, ",\"sessions\":");

        for (i = 0; i < SBX_STATES; i++) {
            print(j, "%s\"%s\":%uL", i ? "," : "{",
                  ngx_http_sandbox_v1_states[i], m->sessions[i]);
        }

        ngx_http_sandbox_v1_status_quota(j, "},\"used\":", &m->used);
        ngx_http_sandbox_v1_status_quota(j, ",\"limits\":", &m->limits);
        print(j, ",\"restarts\":%uL,\"draining\":%s,\"started\":",
              m->restarts, m->draining ? "true" : "false");
        ngx_http_sandbox_json_time(j, m->started);
        ngx_http_sandbox_v1_status_pools(j, m);
    }

    ngx_http_sandbox_json_raw(j, "}");
}


static void
ngx_http_sandbox_v1_status_pools(ngx_http_sandbox_json_t *j,
    const sbx_f_metrics_t *m)
{
    ngx_uint_t                 i;
    const sbx_pool_metrics_t  *p;

    ngx_http_sandbox_json_raw(j, ",\"pools\":[");

    for (i = 0; i < SBX_POOLS_MAX && m->pools[i].template[0] != '\0'; i++) {
        p = &m->pools[i];
        print(j, "%s{\"template\":\"%s\",\"wanted\":%uL,\"ready\":%uL,"
              "\"filling\":%uL,\"memory\":%uL,\"hits\":%uL}",
              i ? "," : "", p->template, p->sessions, p->ready, p->filling,
              p->memory, p->hits);
    }

    ngx_http_sandbox_json_raw(j, "]");
}
