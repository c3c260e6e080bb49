/*
 * The plane of sandboxes: what its files share.
 */

#ifndef _NGX_HTTP_SANDBOX_E2B_CONTROL_H_INCLUDED_
#define _NGX_HTTP_SANDBOX_E2B_CONTROL_H_INCLUDED_


#include "ngx_http_sandbox_e2b.h"
#include "ngx_http_sandbox_op_create.h"
#include "ngx_http_sandbox_op_network.h"


/* seconds; the newer routes have the longer one */
#define NGX_HTTP_SANDBOX_E2B_TIMEOUT       300
#define NGX_HTTP_SANDBOX_E2B_TIMEOUT_OLD   15

/* What ends a table of fields: others are skipped. */
#define NGX_HTTP_SANDBOX_E2B_LAX                                              \
    { .name = NULL, .type = SBX_JSON_ANY, .lax = 1 }


#define NGX_HTTP_SANDBOX_E2B_OUT           1024    /* destinations */

/* What a create and an update have of networks, beside "internet". */
typedef struct {
    uint32_t          pad;
    sbx_json_list_t   allow;
    sbx_json_list_t   deny;
    uint32_t          mask;              /* each: it is there */
    uint32_t          rules;
    uint32_t          proxy;
    uint32_t          nothing;
} ngx_http_sandbox_e2b_out_t;

/* As the native API asks for it; 1: what is allowed is an exception to what
 * is denied. */
ngx_uint_t ngx_http_sandbox_e2b_network_asked(
    const ngx_http_sandbox_e2b_out_t *out, ngx_uint_t internet,
    sbx_json_network_t *network);
/* What this server does not have; in: the fields' parent with its dot. */
int ngx_http_sandbox_e2b_network_refuse(const ngx_http_sandbox_e2b_out_t *out,
    const char *in, sbx_error_t *e);
/* "allowInternetAccess", and "network" up to what is not of destinations. */
void ngx_http_sandbox_e2b_network_json(ngx_http_sandbox_json_t *j,
    const ngx_http_sandbox_op_session_t *s);


/* Refuses with what is wrong; for the finalizer. */
ngx_int_t ngx_http_sandbox_e2b_fault(ngx_http_request_t *r, sbx_error_t *e);

/* Of a route of this API's that tells nothing but when the sandbox ends: the
 * seconds asked for as milliseconds, 0 as the least.  -1: more than the
 * maximum. */
int ngx_http_sandbox_e2b_seconds(ngx_http_request_t *r, const char *name,
    uint64_t seconds, uint64_t *ms, sbx_error_t *e);

/* A sandbox as the API prints it; whole: with what only its own routes tell,
 * tokens too. */
void ngx_http_sandbox_e2b_sandbox(ngx_http_request_t *r,
    ngx_http_sandbox_json_t *j, const ngx_http_sandbox_op_session_t *s,
    ngx_uint_t whole);

/* Sends the sandbox that a call has told, after its last frame; NGX_DONE. */
ngx_int_t ngx_http_sandbox_e2b_sandbox_finish(ngx_http_sandbox_call_t *call,
    ngx_uint_t status);

/* Processors and megabytes, as whole numbers of at least what there is. */
int64_t ngx_http_sandbox_e2b_cpus(const sbx_limits_t *limits);
int64_t ngx_http_sandbox_e2b_megabytes(uint64_t bytes);

/* Percent of the processors that the session may use, in hundredths. */
ngx_uint_t ngx_http_sandbox_e2b_cpu_used(const sbx_f_session_t *session,
    const sbx_f_sample_t *sample);
/* Memory without the pages of files. */
uint64_t ngx_http_sandbox_e2b_memory_used(const sbx_f_sample_t *sample);
void ngx_http_sandbox_e2b_percent(ngx_http_sandbox_json_t *j,
    ngx_uint_t hundredths);


/* Handlers, by file: create, session, life */

ngx_int_t ngx_http_sandbox_e2b_create(ngx_http_request_t *r);
ngx_int_t ngx_http_sandbox_e2b_create_old(ngx_http_request_t *r);

ngx_int_t ngx_http_sandbox_e2b_get(ngx_http_request_t *r);
ngx_int_t ngx_http_sandbox_e2b_kill(ngx_http_request_t *r);

ngx_int_t ngx_http_sandbox_e2b_set_timeout(ngx_http_request_t *r);
ngx_int_t ngx_http_sandbox_e2b_refresh(ngx_http_request_t *r);
ngx_int_t ngx_http_sandbox_e2b_pause(ngx_http_request_t *r);
ngx_int_t ngx_http_sandbox_e2b_resume(ngx_http_request_t *r);
ngx_int_t ngx_http_sandbox_e2b_reconnect(ngx_http_request_t *r);

/* network */

ngx_int_t ngx_http_sandbox_e2b_network(ngx_http_request_t *r);

/* list */

ngx_int_t ngx_http_sandbox_e2b_list(ngx_http_request_t *r);
ngx_int_t ngx_http_sandbox_e2b_list_old(ngx_http_request_t *r);

/* metrics, logs */

ngx_int_t ngx_http_sandbox_e2b_metrics(ngx_http_request_t *r);
ngx_int_t ngx_http_sandbox_e2b_metrics_many(ngx_http_request_t *r);
ngx_int_t ngx_http_sandbox_e2b_logs(ngx_http_request_t *r);
ngx_int_t ngx_http_sandbox_e2b_logs_old(ngx_http_request_t *r);

/* templates */

ngx_int_t ngx_http_sandbox_e2b_templates(ngx_http_request_t *r);
ngx_int_t ngx_http_sandbox_e2b_alias(ngx_http_request_t *r);
ngx_int_t ngx_http_sandbox_e2b_template_delete(ngx_http_request_t *r);
ngx_int_t ngx_http_sandbox_e2b_no_builds(ngx_http_request_t *r);
ngx_int_t ngx_http_sandbox_e2b_no_snapshots(ngx_http_request_t *r);
ngx_int_t ngx_http_sandbox_e2b_no_volumes(ngx_http_request_t *r);
ngx_int_t ngx_http_sandbox_e2b_no_secrets(ngx_http_request_t *r);
ngx_int_t ngx_http_sandbox_e2b_control_health(ngx_http_request_t *r);


#endif /* _NGX_HTTP_SANDBOX_E2B_CONTROL_H_INCLUDED_ */
