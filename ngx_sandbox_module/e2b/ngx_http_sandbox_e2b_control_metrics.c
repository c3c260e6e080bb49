/*
 * What sandboxes used, of the samples that the broker takes.
 */

#include "ngx_http_sandbox_e2b_control.h"


#define NGX_HTTP_SANDBOX_E2B_MANY      100
#define NGX_HTTP_SANDBOX_E2B_LAST_DAY  253402300799     /* of year 9999 */


typedef struct {
    ngx_http_sandbox_op_session_t   session;
    ngx_http_sandbox_json_t         json;
    sbx_f_sample_t                  sample;       /* the newest */
    ngx_uint_t                      n;

    /* of several sandboxes: one after the other */
    ngx_str_t                      *ids;
    ngx_uint_t                      nids;
    ngx_uint_t                      next;
    ngx_uint_t                      told;
} ngx_http_sandbox_e2b_metrics_t;


static ngx_http_sandbox_call_t *ngx_http_sandbox_e2b_metrics_call(
    ngx_http_request_t *r, const sbx_samples_t *ask,
    ngx_http_sandbox_e2b_metrics_t *metrics);
static ngx_int_t ngx_http_sandbox_e2b_metrics_frame(
    ngx_http_sandbox_call_t *call, const sbx_frame_t *frame,
    const u_char *payload, ngx_fd_t fd);
static void ngx_http_sandbox_e2b_metrics_json(ngx_http_sandbox_json_t *j,
    const sbx_f_session_t *session, const sbx_f_sample_t *sample);
static int ngx_http_sandbox_e2b_metrics_ids(ngx_http_request_t *r,
    ngx_http_sandbox_e2b_metrics_t *metrics, sbx_error_t *e);
static ngx_int_t ngx_http_sandbox_e2b_many_next(ngx_http_request_t *r,
    ngx_http_sandbox_e2b_metrics_t *metrics,
    ngx_http_sandbox_call_t **started);
static ngx_int_t ngx_http_sandbox_e2b_many_go_on(
    ngx_http_sandbox_call_t *call);
static ngx_int_t ngx_http_sandbox_e2b_many_frame(
    ngx_http_sandbox_call_t *call, const sbx_frame_t *frame,
    const u_char *payload, ngx_fd_t fd);


ngx_uint_t
ngx_http_sandbox_e2b_cpu_used(const sbx_f_session_t *session,
    const sbx_f_sample_t *sample)
{
    double  used, most;

    most = (double) sample->span * (double) session->limits.cpus / 1000;

    if (most <= 0) {
        return 0;
    }

    used = (double) sample->cpu_us * 10000 / most;

    return (used > 10000) ? 10000 : (ngx_uint_t) used;
}


uint64_t
ngx_http_sandbox_e2b_memory_used(const sbx_f_sample_t *sample)
{
    return sample->memory - ngx_min(sample->memory, sample->memory_cache);
}


void
ngx_http_sandbox_e2b_percent(ngx_http_sandbox_json_t *j,
    ngx_uint_t hundredths)
{
    u_char  text[NGX_INT_T_LEN + 4], *p;

    p = ngx_sprintf(text, "%ui.%02ui", hundredths / 100, hundredths % 100);
    ngx_http_sandbox_json_raw_len(j, text, p - text);
}


ngx_int_t
ngx_http_sandbox_e2b_metrics(ngx_http_request_t *r)
{
    uint64_t                         start, end;
    sbx_error_t                      e;
    sbx_samples_t                    ask;
    ngx_http_sandbox_e2b_metrics_t  *metrics;

    metrics = ngx_pcalloc(r->pool, sizeof(ngx_http_sandbox_e2b_metrics_t));

    if (metrics == NULL) {
        return ngx_http_sandbox_problem(r, NGX_HTTP_SANDBOX_INTERNAL, NULL);
    }

    start = 0;
    end = NGX_HTTP_SANDBOX_E2B_LAST_DAY;

    if (ngx_http_sandbox_op_number(r, "start", 0,
                                   NGX_HTTP_SANDBOX_E2B_LAST_DAY, &start, &e)
        != 0
        || ngx_http_sandbox_op_number(r, "end", 0,
                                      NGX_HTTP_SANDBOX_E2B_LAST_DAY, &end, &e)
           != 0)
    {
        return ngx_http_sandbox_e2b_fault(r, &e);
    }

    if (start > end) {
        return ngx_http_sandbox_problem(r, NGX_HTTP_SANDBOX_INVALID_REQUEST,
                                        "start must not be after end");
    }

    ngx_memzero(&ask, sizeof(sbx_samples_t));
    ask.start = (int64_t) start * 1000;
    ask.end = (int64_t) end * 1000 + 999;
    ask.last = SBX_SAMPLES_MAX;

    ngx_http_sandbox_json_init(&metrics->json, r->pool);
    ngx_http_sandbox_json_raw(&metrics->json, "[");

    return ngx_http_sandbox_op_start(r,
                        ngx_http_sandbox_e2b_metrics_call(r, &ask, metrics));
}


static ngx_http_sandbox_call_t *
ngx_http_sandbox_e2b_metrics_call(ngx_http_request_t *r,
    const sbx_samples_t *ask, ngx_http_sandbox_e2b_metrics_t *metrics)
{
    ngx_http_sandbox_call_t  *call;

    call = ngx_http_sandbox_op_call(r, SBX_OP_SAMPLES, ask,
                                    sizeof(sbx_samples_t), NGX_INVALID_FILE,
                                    metrics);

    if (call != NULL) {
        call->frame = ngx_http_sandbox_e2b_metrics_frame;
    }

    return call;
}


/* The sandbox or a sample.  NGX_DECLINED: the last frame. */

static ngx_int_t
ngx_http_sandbox_e2b_metrics_part(ngx_http_sandbox_call_t *call,
    const sbx_frame_t *frame, const u_char *payload)
{
    ngx_int_t                        rc;
    ngx_http_sandbox_e2b_metrics_t  *metrics;

    metrics = call->data;

    switch (frame->type) {

    case SBX_F_SAMPLE:

        if (!metrics->session.there || metrics->n++ >= SBX_SAMPLES_MAX) {
            break;
        }

        ngx_memcpy(&metrics->sample, payload, sizeof(sbx_f_sample_t));
        return NGX_AGAIN;

    case SBX_F_END:

        if (!metrics->session.there) {
            break;
        }

        return NGX_DECLINED;

    default:
        rc = ngx_http_sandbox_op_session_frame(call->request,
                                               &metrics->session, frame,
                                               payload);

        if (rc != NGX_OK && rc != NGX_AGAIN) {
            break;
        }

        return NGX_OK;
    }

    return ngx_http_sandbox_op_broken(call, "a wrong frame for samples");
}


static ngx_int_t
ngx_http_sandbox_e2b_metrics_frame(ngx_http_sandbox_call_t *call,
    const sbx_frame_t *frame, const u_char *payload, ngx_fd_t fd)
{
    ngx_int_t                        rc;
    ngx_http_request_t              *r;
    ngx_http_sandbox_e2b_metrics_t  *metrics;

    rc = ngx_http_sandbox_op_frame(call, frame, payload, fd);

    if (rc != NGX_DECLINED) {
        return rc;
    }

    metrics = call->data;
    rc = ngx_http_sandbox_e2b_metrics_part(call, frame, payload);

    if (rc == NGX_AGAIN) {
        ngx_http_sandbox_json_raw(&metrics->json, metrics->n > 1 ? "," : "");
        ngx_http_sandbox_e2b_metrics_json(&metrics->json,
                                          &metrics->session.session,
                                          &metrics->sample);
        return NGX_OK;
    }

    if (rc != NGX_DECLINED) {
        return rc;
    }

    r = call->request;

    if (ngx_http_sandbox_op_session_note(r, &metrics->session) != NGX_OK) {
        return ngx_http_sandbox_op_broken(call, "more than memory holds");
    }

    ngx_http_sandbox_json_raw(&metrics->json, "]");

    return ngx_http_sandbox_op_finish(call,
                  ngx_http_sandbox_json_send(r, NGX_HTTP_OK, &metrics->json));
}


static void
ngx_http_sandbox_e2b_metrics_json(ngx_http_sandbox_json_t *j,
    const sbx_f_session_t *session, const sbx_f_sample_t *sample)
{
    ngx_http_sandbox_json_raw(j, "{\"timestamp\":");
    ngx_http_sandbox_json_time(j, sample->time);
    ngx_http_sandbox_json_raw(j, ",\"timestampUnix\":");
    ngx_http_sandbox_json_int(j, sample->time / 1000);
    ngx_http_sandbox_json_raw(j, ",\"cpuCount\":");
    ngx_http_sandbox_json_int(j, ngx_http_sandbox_e2b_cpus(&session->limits));
    ngx_http_sandbox_json_raw(j, ",\"cpuUsedPct\":");
    ngx_http_sandbox_e2b_percent(j, ngx_http_sandbox_e2b_cpu_used(session,
                                                                  sample));
    ngx_http_sandbox_json_raw(j, ",\"memUsed\":");
    ngx_http_sandbox_json_int(j,
                      (int64_t) ngx_http_sandbox_e2b_memory_used(sample));
    ngx_http_sandbox_json_raw(j, ",\"memTotal\":");
    ngx_http_sandbox_json_int(j, (int64_t) session->limits.memory);
    ngx_http_sandbox_json_raw(j, ",\"memCache\":");
    ngx_http_sandbox_json_int(j, (int64_t) sample->memory_cache);
    ngx_http_sandbox_json_raw(j, ",\"diskUsed\":");
    ngx_http_sandbox_json_int(j, (int64_t) sample->disk);
    ngx_http_sandbox_json_raw(j, ",\"diskTotal\":");
    ngx_http_sandbox_json_int(j, (int64_t) sample->disk_total);
    ngx_http_sandbox_json_raw(j, "}");
}


ngx_int_t
ngx_http_sandbox_e2b_metrics_many(ngx_http_request_t *r)
{
    sbx_error_t                      e;
    ngx_http_sandbox_call_t         *call;
    ngx_http_sandbox_e2b_metrics_t  *metrics;

    metrics = ngx_pcalloc(r->pool, sizeof(ngx_http_sandbox_e2b_metrics_t));

    if (metrics == NULL) {
        return ngx_http_sandbox_problem(r, NGX_HTTP_SANDBOX_INTERNAL, NULL);
    }

    if (ngx_http_sandbox_e2b_metrics_ids(r, metrics, &e) != 0) {
        return ngx_http_sandbox_e2b_fault(r, &e);
    }

    ngx_http_sandbox_json_init(&metrics->json, r->pool);
    ngx_http_sandbox_json_raw(&metrics->json, "{\"sandboxes\":{");

    if (metrics->nids == 0) {
        ngx_http_sandbox_json_raw(&metrics->json, "}}");

        return ngx_http_sandbox_json_send(r, NGX_HTTP_OK, &metrics->json);
    }

    if (ngx_http_sandbox_e2b_many_next(r, metrics, &call) != NGX_OK) {
        return ngx_http_sandbox_problem(r,
                                        NGX_HTTP_SANDBOX_BROKER_UNAVAILABLE,
                                        NULL);
    }

    ngx_http_sandbox_op_watch(r);

    return NGX_DONE;
}


/* "a,b", each once; what cannot be one is none of ours. */

static int
ngx_http_sandbox_e2b_metrics_ids(ngx_http_request_t *r,
    ngx_http_sandbox_e2b_metrics_t *metrics, sbx_error_t *e)
{
    u_char      *p, *end, *last;
    ngx_str_t    text, *id;
    ngx_uint_t   i, n;

    ngx_str_null(&text);

    if (ngx_http_sandbox_op_string(r, "sandbox_ids", &text, e) != 0) {
        return -1;
    }

    metrics->ids = ngx_palloc(r->pool, NGX_HTTP_SANDBOX_E2B_MANY
                                       * sizeof(ngx_str_t));

    if (metrics->ids == NULL) {
        return sbx_error(e, 0, SBX_E_INTERNAL, "out of memory");
    }

    n = 0;
    last = text.data + text.len;

    for (p = text.data; p < last; p = end + 1) {
        end = ngx_strlchr(p, last, ',');

        if (end == NULL) {
            end = last;
        }

        if (n++ == NGX_HTTP_SANDBOX_E2B_MANY) {
            return sbx_error(e, 0, SBX_E_INVALID,
                             "sandbox_ids has more than %d of them",
                             NGX_HTTP_SANDBOX_E2B_MANY);
        }

        if (!sbx_session_id_ok((char *) p, end - p)) {
            continue;
        }

        for (i = 0; i < metrics->nids; i++) {
            if (metrics->ids[i].len == (size_t) (end - p)
                && ngx_memcmp(metrics->ids[i].data, p, end - p) == 0)
            {
                break;
            }
        }

        if (i == metrics->nids) {
            id = &metrics->ids[metrics->nids++];
            id->data = p;
            id->len = end - p;
        }
    }

    if (text.len == 0) {
        return sbx_error(e, 0, SBX_E_INVALID, "sandbox_ids is missing");
    }

    return 0;
}


static ngx_int_t
ngx_http_sandbox_e2b_many_next(ngx_http_request_t *r,
    ngx_http_sandbox_e2b_metrics_t *metrics,
    ngx_http_sandbox_call_t **started)
{
    sbx_samples_t             ask;
    ngx_http_sandbox_ctx_t   *ctx;
    ngx_http_sandbox_call_t  *call;

    metrics->n = 0;
    metrics->session.there = 0;
    metrics->session.meta_len = 0;

    ngx_memzero(&ask, sizeof(sbx_samples_t));
    ask.end = INT64_MAX;
    ask.last = 1;

    /* the request is about none of them alone */

    ctx = ngx_http_sandbox_ctx(r);
    ctx->session = metrics->ids[metrics->next++];
    call = ngx_http_sandbox_e2b_metrics_call(r, &ask, metrics);
    ngx_str_null(&ctx->session);

    if (call == NULL) {
        return NGX_ERROR;
    }

    call->frame = ngx_http_sandbox_e2b_many_frame;

    if (ngx_http_sandbox_call_start(call) != NGX_OK) {
        ngx_http_sandbox_call_close(call);
        return NGX_ERROR;
    }

    *started = call;

    return NGX_OK;
}


static ngx_int_t
ngx_http_sandbox_e2b_many_go_on(ngx_http_sandbox_call_t *call)
{
    ngx_http_request_t              *r;
    ngx_http_sandbox_call_t         *next;
    ngx_http_sandbox_e2b_metrics_t  *metrics;

    r = call->request;
    metrics = call->data;

    if (metrics->next == metrics->nids) {
        ngx_http_sandbox_json_raw(&metrics->json, "}}");

        return ngx_http_sandbox_op_finish(call,
                  ngx_http_sandbox_json_send(r, NGX_HTTP_OK, &metrics->json));
    }

    if (ngx_http_sandbox_e2b_many_next(r, metrics, &next) != NGX_OK) {
        return ngx_http_sandbox_op_finish(call,
               ngx_http_sandbox_problem(r,
                                        NGX_HTTP_SANDBOX_BROKER_UNAVAILABLE,
                                        NULL));
    }

    ngx_http_sandbox_call_close(call);

    return NGX_DONE;
}


static ngx_int_t
ngx_http_sandbox_e2b_many_frame(ngx_http_sandbox_call_t *call,
    const sbx_frame_t *frame, const u_char *payload, ngx_fd_t fd)
{
    ngx_int_t                        rc;
    sbx_f_error_t                    error;
    ngx_http_sandbox_json_t         *j;
    ngx_http_sandbox_e2b_metrics_t  *metrics;

    if (frame->type == SBX_F_ERROR && fd == NGX_INVALID_FILE) {
        ngx_memcpy(&error, payload, sizeof(sbx_f_error_t));

        /* there is none of that id, for this caller */

        if (error.code == SBX_E_SESSION) {
            return ngx_http_sandbox_e2b_many_go_on(call);
        }
    }

    rc = ngx_http_sandbox_op_frame(call, frame, payload, fd);

    if (rc != NGX_DECLINED) {
        return rc;
    }

    rc = ngx_http_sandbox_e2b_metrics_part(call, frame, payload);

    if (rc == NGX_AGAIN) {
        return NGX_OK;
    }

    if (rc != NGX_DECLINED) {
        return rc;
    }

    metrics = call->data;
    j = &metrics->json;

    if (metrics->n != 0) {
        ngx_http_sandbox_json_raw(j, metrics->told++ ? "," : "");
        ngx_http_sandbox_op_array(j, metrics->session.session.id);
        ngx_http_sandbox_json_raw(j, ":");
        ngx_http_sandbox_e2b_metrics_json(j, &metrics->session.session,
                                          &metrics->sample);
    }

    return ngx_http_sandbox_e2b_many_go_on(call);
}
