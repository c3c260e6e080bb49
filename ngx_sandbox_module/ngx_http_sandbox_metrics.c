/*
 * What the workers count, in memory that they share and that a reload keeps.
 * Each counter is an atomic of its own, so that no worker waits for another;
 * a scrape may see one of two that belong together.
 *
 * Labels are words of this program and nothing that a caller chose: there are
 * as many series as there were at the start.
 */

#include "ngx_http_sandbox.h"


#define NGX_HTTP_SANDBOX_METRICS_OPS       96
#define NGX_HTTP_SANDBOX_METRICS_CLASSES   5         /* 1xx ... 5xx */
#define NGX_HTTP_SANDBOX_METRICS_ERRORS    64
#define NGX_HTTP_SANDBOX_METRICS_ZONE      (64 * 1024)


enum {
    NGX_HTTP_SANDBOX_CREATED,
    NGX_HTTP_SANDBOX_REPEATED,
    NGX_HTTP_SANDBOX_REFUSED,
    NGX_HTTP_SANDBOX_FAILED,
    NGX_HTTP_SANDBOX_RESULTS
};

static const char *const  ngx_http_sandbox_results[] = {
    "created", "repeated", "refused", "failed"
};


/* By ngx_http_sandbox_code_e, from the second on; a language that this program
 * does not know is "other". */

static const char *const  ngx_http_sandbox_outcomes[] = {
    "unfinished", "ok", "error", "timeout", "cancelled", "died"
};

static const char *const  ngx_http_sandbox_languages[] = {
    "python", "javascript", "bash", "other"
};

#define NGX_HTTP_SANDBOX_OUTCOMES                                             \
    (sizeof(ngx_http_sandbox_outcomes) / sizeof(char *))
#define NGX_HTTP_SANDBOX_LANGUAGES                                            \
    (sizeof(ngx_http_sandbox_languages) / sizeof(char *))


/* Upper bounds in milliseconds; one more bucket has what is above. */

static const ngx_uint_t  ngx_http_sandbox_bounds[] = {
    1, 5, 10, 25, 50, 100, 250, 500, 1000, 2500, 5000, 10000, 30000, 60000,
    300000
};

#define NGX_HTTP_SANDBOX_BOUNDS                                               \
    (sizeof(ngx_http_sandbox_bounds) / sizeof(ngx_uint_t))

static const char *const  ngx_http_sandbox_timed[] = {
    "create", "exec", "code", "run", "destroy"
};

#define NGX_HTTP_SANDBOX_TIMED                                                \
    (sizeof(ngx_http_sandbox_timed) / sizeof(char *))


typedef struct {
    ngx_atomic_t    buckets[NGX_HTTP_SANDBOX_BOUNDS + 1];
    ngx_atomic_t    sum;                              /* milliseconds */
} ngx_http_sandbox_histogram_t;

typedef struct {
    ngx_atomic_t    requests[NGX_HTTP_SANDBOX_METRICS_OPS]
                            [NGX_HTTP_SANDBOX_METRICS_CLASSES];
    ngx_atomic_t    creates[NGX_HTTP_SANDBOX_RESULTS];
    ngx_atomic_t    code[NGX_HTTP_SANDBOX_LANGUAGES]
                        [NGX_HTTP_SANDBOX_OUTCOMES];
    ngx_atomic_t    errors[NGX_HTTP_SANDBOX_METRICS_ERRORS];
    ngx_atomic_t    quotas[SBX_SCOPES][SBX_QUOTA_RESOURCES];
    ngx_atomic_t    in;
    ngx_atomic_t    out;
    ngx_atomic_t    audit;
    ngx_atomic_t    audit_lost;
    ngx_http_sandbox_histogram_t
                    times[NGX_HTTP_SANDBOX_TIMED];
} ngx_http_sandbox_metrics_t;


static ngx_int_t ngx_http_sandbox_metrics_init(ngx_shm_zone_t *zone,
    void *data);
static ngx_http_sandbox_metrics_t *ngx_http_sandbox_metrics(
    ngx_http_request_t *r);
static ngx_uint_t ngx_http_sandbox_metrics_op(const char *op);
static void ngx_http_sandbox_metrics_create(ngx_http_sandbox_metrics_t *m,
    const ngx_http_sandbox_ctx_t *ctx, ngx_uint_t status);
static void ngx_http_sandbox_metrics_code(ngx_http_sandbox_metrics_t *m,
    const ngx_http_sandbox_ctx_t *ctx);
static void ngx_http_sandbox_metrics_time(ngx_http_sandbox_metrics_t *m,
    const char *op, ngx_msec_t ms);
static void ngx_http_sandbox_metrics_errors(ngx_http_sandbox_json_t *j,
    ngx_http_sandbox_metrics_t *m);
static void ngx_http_sandbox_metrics_histogram(ngx_http_sandbox_json_t *j,
    const char *op, const ngx_http_sandbox_histogram_t *h);


static const char  *ngx_http_sandbox_ops[NGX_HTTP_SANDBOX_METRICS_OPS];
static ngx_uint_t   ngx_http_sandbox_nops;

#define add(counter, n)  (void) ngx_atomic_fetch_add(&(counter), n)


/* The names of operations are those of the routes, each once. */

static void
ngx_http_sandbox_metrics_ops(const ngx_http_sandbox_route_t *route)
{
    for ( /* void */ ; route->path != NULL; route++) {
        if (ngx_http_sandbox_metrics_op(route->op) == ngx_http_sandbox_nops
            && ngx_http_sandbox_nops < NGX_HTTP_SANDBOX_METRICS_OPS)
        {
            ngx_http_sandbox_ops[ngx_http_sandbox_nops++] = route->op;
        }
    }
}


static ngx_uint_t
ngx_http_sandbox_metrics_op(const char *op)
{
    ngx_uint_t  i;

    for (i = 0; i < ngx_http_sandbox_nops; i++) {
        if (ngx_strcmp(ngx_http_sandbox_ops[i], op) == 0) {
            break;
        }
    }

    return i;
}


ngx_int_t
ngx_http_sandbox_metrics_zone(ngx_conf_t *cf,
    ngx_http_sandbox_main_conf_t *smcf)
{
    static ngx_str_t  name = ngx_string("sandbox_metrics");

    if (!smcf->used) {
        return NGX_OK;
    }

    ngx_http_sandbox_nops = 0;
    ngx_http_sandbox_metrics_ops(ngx_http_sandbox_v1_routes);
    ngx_http_sandbox_metrics_ops(ngx_http_sandbox_admin_routes);
    ngx_http_sandbox_metrics_ops(ngx_http_sandbox_metrics_routes);
    ngx_http_sandbox_metrics_ops(ngx_http_sandbox_status_routes);
    ngx_http_sandbox_metrics_ops(ngx_http_sandbox_e2b_control_routes);
    ngx_http_sandbox_metrics_ops(ngx_http_sandbox_e2b_envd_routes);
    ngx_http_sandbox_metrics_ops(ngx_http_sandbox_e2b_code_routes);

    smcf->metrics = ngx_shared_memory_add(cf, &name,
                                          NGX_HTTP_SANDBOX_METRICS_ZONE,
                                          &ngx_http_sandbox_module);

    if (smcf->metrics == NULL) {
        return NGX_ERROR;
    }

    smcf->metrics->init = ngx_http_sandbox_metrics_init;

    return NGX_OK;
}


static ngx_int_t
ngx_http_sandbox_metrics_init(ngx_shm_zone_t *zone, void *data)
{
    ngx_slab_pool_t             *pool;
    ngx_http_sandbox_metrics_t  *m;

    if (data != NULL) {
        zone->data = data;
        return NGX_OK;
    }

    pool = (ngx_slab_pool_t *) zone->shm.addr;

    if (zone->shm.exists) {
        zone->data = pool->data;
        return NGX_OK;
    }

    m = ngx_slab_calloc(pool, sizeof(ngx_http_sandbox_metrics_t));

    if (m == NULL) {
        return NGX_ERROR;
    }

    pool->data = m;
    zone->data = m;

    return NGX_OK;
}


static ngx_http_sandbox_metrics_t *
ngx_http_sandbox_metrics(ngx_http_request_t *r)
{
    ngx_http_sandbox_main_conf_t  *smcf;

    smcf = ngx_http_get_module_main_conf(r, ngx_http_sandbox_module);

    return (smcf->metrics == NULL) ? NULL : smcf->metrics->data;
}


/*
 * ---- counting ------------------------------------------------------------
 */


ngx_uint_t
ngx_http_sandbox_status(ngx_http_request_t *r)
{
    return r->err_status ? r->err_status : r->headers_out.status;
}


ngx_msec_t
ngx_http_sandbox_took(ngx_http_request_t *r)
{
    ngx_time_t      *tp;
    ngx_msec_int_t   ms;

    tp = ngx_timeofday();
    ms = (ngx_msec_int_t) ((tp->sec - r->start_sec) * 1000
                           + (ngx_msec_int_t) (tp->msec - r->start_msec));

    return (ngx_msec_t) ngx_max(ms, 0);
}


ngx_int_t
ngx_http_sandbox_log_handler(ngx_http_request_t *r)
{
    ngx_http_sandbox_ctx_t  *ctx;

    ctx = ngx_http_sandbox_ctx(r);

    if (r != r->main || ctx == NULL || ctx->route == NULL) {
        return NGX_OK;
    }

    ngx_http_sandbox_metrics_count(r, ctx);
    ngx_http_sandbox_audit(r, ctx);

    return NGX_OK;
}


void
ngx_http_sandbox_metrics_count(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx)
{
    ngx_uint_t                   i, op, status;
    ngx_http_sandbox_metrics_t  *m;

    m = ngx_http_sandbox_metrics(r);

    if (m == NULL) {
        return;
    }

    status = ngx_http_sandbox_status(r);
    op = ngx_http_sandbox_metrics_op(ctx->route->op);

    if (op < ngx_http_sandbox_nops && status >= 100 && status < 600) {
        add(m->requests[op][status / 100 - 1], 1);
    }

    add(m->in, (ngx_atomic_int_t) r->request_length);
    add(m->out, (ngx_atomic_int_t) r->connection->sent);

    if (ngx_strcmp(ctx->route->op, "create") == 0) {
        ngx_http_sandbox_metrics_create(m, ctx, status);

    } else if (ngx_strcmp(ctx->route->op, "run") == 0) {
        ngx_http_sandbox_metrics_create(m, ctx, ctx->created
                                                ? NGX_HTTP_CREATED : status);
    }

    if (ctx->outcome != NGX_HTTP_SANDBOX_CODE_NONE) {
        ngx_http_sandbox_metrics_code(m, ctx);
    }

    for (i = 0; ctx->error != NULL && i < NGX_HTTP_SANDBOX_METRICS_ERRORS
                && ngx_http_sandbox_problem_code(i) != NULL; i++)
    {
        if (ngx_strcmp(ctx->error, ngx_http_sandbox_problem_code(i)) == 0) {
            add(m->errors[i], 1);
        }
    }

    for (i = 0; ctx->quota_scope != NULL
                && i < SBX_SCOPES * SBX_QUOTA_RESOURCES; i++)
    {
        if (ctx->quota_scope == sbx_scope_word(i / SBX_QUOTA_RESOURCES)
            && ctx->quota_resource
               == sbx_quota_table[i % SBX_QUOTA_RESOURCES].name)
        {
            add(m->quotas[i / SBX_QUOTA_RESOURCES][i % SBX_QUOTA_RESOURCES],
                1);
        }
    }

    ngx_http_sandbox_metrics_time(m, ctx->route->op,
                                  ngx_http_sandbox_took(r));
}


/* A node that is full or drains is none that fails, though it says 503. */

static void
ngx_http_sandbox_metrics_create(ngx_http_sandbox_metrics_t *m,
    const ngx_http_sandbox_ctx_t *ctx, ngx_uint_t status)
{
    ngx_uint_t  result;

    if (status == NGX_HTTP_CREATED) {
        result = NGX_HTTP_SANDBOX_CREATED;

    } else if (status == NGX_HTTP_OK) {
        result = NGX_HTTP_SANDBOX_REPEATED;

    } else if (status < 500
               || (ctx->error != NULL && ngx_strcmp(ctx->error, "E2004") == 0))
    {
        result = NGX_HTTP_SANDBOX_REFUSED;

    } else {
        result = NGX_HTTP_SANDBOX_FAILED;
    }

    add(m->creates[result], 1);
}


static void
ngx_http_sandbox_metrics_code(ngx_http_sandbox_metrics_t *m,
    const ngx_http_sandbox_ctx_t *ctx)
{
    ngx_uint_t  i;

    for (i = 0; i < NGX_HTTP_SANDBOX_LANGUAGES - 1; i++) {
        if (ctx->language.len == ngx_strlen(ngx_http_sandbox_languages[i])
            && ngx_strncmp(ctx->language.data, ngx_http_sandbox_languages[i],
                           ctx->language.len)
               == 0)
        {
            break;
        }
    }

    add(m->code[i][ctx->outcome - NGX_HTTP_SANDBOX_CODE_LOST], 1);
}


static void
ngx_http_sandbox_metrics_time(ngx_http_sandbox_metrics_t *m, const char *op,
    ngx_msec_t ms)
{
    ngx_uint_t                     i, n;
    ngx_http_sandbox_histogram_t  *h;

    for (n = 0; n < NGX_HTTP_SANDBOX_TIMED; n++) {
        if (ngx_strcmp(ngx_http_sandbox_timed[n], op) == 0) {
            break;
        }
    }

    if (n == NGX_HTTP_SANDBOX_TIMED) {
        return;
    }

    h = &m->times[n];

    for (i = 0; i < NGX_HTTP_SANDBOX_BOUNDS; i++) {
        if (ms <= ngx_http_sandbox_bounds[i]) {
            break;
        }
    }

    add(h->buckets[i], 1);
    add(h->sum, (ngx_atomic_int_t) ms);
}


void
ngx_http_sandbox_metrics_audit(const ngx_http_sandbox_main_conf_t *smcf,
    ngx_uint_t written)
{
    ngx_http_sandbox_metrics_t  *m;

    m = (smcf->metrics == NULL) ? NULL : smcf->metrics->data;

    if (m != NULL) {
        add(*(written ? &m->audit : &m->audit_lost), 1);
    }
}


/*
 * ---- telling -------------------------------------------------------------
 */


#define print(j, ...)                                                         \
    do {                                                                      \
        u_char  line_[256];                                                   \
        ngx_http_sandbox_json_raw_len(j, line_,                               \
            ngx_snprintf(line_, sizeof(line_), __VA_ARGS__) - line_);         \
    } while (0)


void
ngx_http_sandbox_metrics_family(ngx_http_sandbox_json_t *j, const char *name,
    const char *type, const char *help)
{
    print(j, "# HELP sandbox_%s %s\n# TYPE sandbox_%s %s\n", name, help,
          name, type);
}


static void
ngx_http_sandbox_metrics_single(ngx_http_sandbox_json_t *j, const char *name,
    const char *help, ngx_atomic_uint_t n)
{
    ngx_http_sandbox_metrics_family(j, name, "counter", help);
    print(j, "sandbox_%s %uA\n", name, n);
}


static void
ngx_http_sandbox_metrics_words(ngx_http_sandbox_json_t *j,
    ngx_http_sandbox_metrics_t *m)
{
    ngx_uint_t  i, n;

    ngx_http_sandbox_metrics_family(j, "creates_total", "counter",
                                    "Requests to create a session.");

    for (i = 0; i < NGX_HTTP_SANDBOX_RESULTS; i++) {
        print(j, "sandbox_creates_total{result=\"%s\"} %uA\n",
              ngx_http_sandbox_results[i], m->creates[i]);
    }

    ngx_http_sandbox_metrics_family(j, "code_runs_total", "counter",
                                    "Pieces of code, by how they ended.");

    for (i = 0; i < NGX_HTTP_SANDBOX_LANGUAGES; i++) {
        for (n = 0; n < NGX_HTTP_SANDBOX_OUTCOMES; n++) {
            print(j, "sandbox_code_runs_total{language=\"%s\","
                  "outcome=\"%s\"} %uA\n", ngx_http_sandbox_languages[i],
                  ngx_http_sandbox_outcomes[n], m->code[i][n]);
        }
    }

    ngx_http_sandbox_metrics_family(j, "errors_total", "counter",
                                    "Answers with an error, by its code.");
    ngx_http_sandbox_metrics_errors(j, m);
}


/* Errors that share a code, as those of a port do, are one row: each of
 * them has counted it. */
static void
ngx_http_sandbox_metrics_errors(ngx_http_sandbox_json_t *j,
    ngx_http_sandbox_metrics_t *m)
{
    ngx_uint_t   i, first;
    const char  *code;

    for (i = 0; i < NGX_HTTP_SANDBOX_METRICS_ERRORS; i++) {
        code = ngx_http_sandbox_problem_code(i);
        if (code == NULL) {
            break;
        }

        for (first = 0; first < i; first++) {
            if (ngx_strcmp(code, ngx_http_sandbox_problem_code(first)) == 0) {
                break;
            }
        }

        if (first == i) {
            print(j, "sandbox_errors_total{code=\"%s\"} %uA\n", code,
                  m->errors[i]);
        }
    }
}


static void
ngx_http_sandbox_metrics_requests(ngx_http_sandbox_json_t *j,
    ngx_http_sandbox_metrics_t *m)
{
    ngx_uint_t  i, class;

    ngx_http_sandbox_metrics_family(j, "requests_total", "counter",
                            "Requests by operation and class of status.");

    for (i = 0; i < ngx_http_sandbox_nops; i++) {
        for (class = 1; class < NGX_HTTP_SANDBOX_METRICS_CLASSES; class++) {
            print(j, "sandbox_requests_total{op=\"%s\",class=\"%uixx\"} "
                  "%uA\n", ngx_http_sandbox_ops[i], class + 1,
                  m->requests[i][class]);
        }
    }
}


static void
ngx_http_sandbox_metrics_seconds(ngx_http_sandbox_json_t *j, uint64_t ms)
{
    ngx_http_sandbox_json_seconds(j, ms * 1000);
}


static void
ngx_http_sandbox_metrics_histogram(ngx_http_sandbox_json_t *j, const char *op,
    const ngx_http_sandbox_histogram_t *h)
{
    ngx_uint_t         i;
    ngx_atomic_uint_t  n;

    static const char  name[] = "sandbox_request_duration_seconds";

    /* the count is the last bucket's, whatever is counted meanwhile */

    for (i = 0, n = 0; i < NGX_HTTP_SANDBOX_BOUNDS; i++) {
        n += h->buckets[i];
        print(j, "%s_bucket{op=\"%s\",le=\"", name, op);
        ngx_http_sandbox_metrics_seconds(j, ngx_http_sandbox_bounds[i]);
        print(j, "\"} %uA\n", n);
    }

    n += h->buckets[i];
    print(j, "%s_bucket{op=\"%s\",le=\"+Inf\"} %uA\n", name, op, n);
    print(j, "%s_sum{op=\"%s\"} ", name, op);
    ngx_http_sandbox_metrics_seconds(j, h->sum);
    print(j, "\n%s_count{op=\"%s\"} %uA\n", name, op, n);
}


void
ngx_http_sandbox_metrics_text(ngx_http_request_t *r,
    ngx_http_sandbox_json_t *j)
{
    ngx_uint_t                   i, n;
    ngx_http_sandbox_metrics_t  *m;

    m = ngx_http_sandbox_metrics(r);

    if (m == NULL) {
        return;
    }

    ngx_http_sandbox_metrics_requests(j, m);
    ngx_http_sandbox_metrics_words(j, m);

    ngx_http_sandbox_metrics_family(j, "quota_refusals_total", "counter",
                          "Refusals by a quota or a limit of the node.");

    for (i = 0; i < SBX_SCOPES; i++) {
        for (n = 0; n < SBX_QUOTA_RESOURCES; n++) {
            print(j, "sandbox_quota_refusals_total{scope=\"%s\","
                  "resource=\"%s\"} %uA\n", sbx_scope_word(i),
                  sbx_quota_table[n].name, m->quotas[i][n]);
        }
    }

    ngx_http_sandbox_metrics_family(j, "request_duration_seconds",
                                    "histogram",
                                    "From a request's first byte to its "
                                    "answer's last.");

    for (i = 0; i < NGX_HTTP_SANDBOX_TIMED; i++) {
        ngx_http_sandbox_metrics_histogram(j, ngx_http_sandbox_timed[i],
                                           &m->times[i]);
    }

    ngx_http_sandbox_metrics_single(j, "received_bytes_total",
                                    "Bytes of requests.", m->in);
    ngx_http_sandbox_metrics_single(j, "sent_bytes_total",
                                    "Bytes of answers.", m->out);
    ngx_http_sandbox_metrics_single(j, "audit_lines_total",
                                    "Lines of the audit log.", m->audit);
    ngx_http_sandbox_metrics_single(j, "audit_lost_total",
                      "Lines that the audit log did not take.",
                      m->audit_lost);
}


void
ngx_http_sandbox_metrics_refusals(ngx_http_request_t *r,
    ngx_http_sandbox_json_t *j)
{
    ngx_uint_t                   i, n;
    const char                  *separator;
    ngx_http_sandbox_metrics_t  *m;

    m = ngx_http_sandbox_metrics(r);
    separator = "";

    ngx_http_sandbox_json_raw(j, "[");

    for (i = 0; m != NULL && i < SBX_SCOPES; i++) {
        for (n = 0; n < SBX_QUOTA_RESOURCES; n++) {
            if (m->quotas[i][n] != 0) {
                print(j, "%s{\"scope\":\"%s\",\"resource\":\"%s\","
                      "\"count\":%uA}", separator, sbx_scope_word(i),
                      sbx_quota_table[n].name, m->quotas[i][n]);
                separator = ",";
            }
        }
    }

    ngx_http_sandbox_json_raw(j, "]");
}
