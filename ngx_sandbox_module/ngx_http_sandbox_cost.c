/*
 * What the sockets cost this worker that sessions have the other ends of.
 *
 * A call that was slow is the last of its turn: who else uses such a socket
 * gets in line.  So does what controls take count as bytes that were read.
 */

#include "ngx_http_sandbox_cost.h"
#include "sandbox_util.h"


#define NGX_HTTP_SANDBOX_COST_TURN  (1024 * 1024)  /* more than one has */
#define NGX_HTTP_SANDBOX_COST_US    64             /* bytes for one */


static sbx_costs_t  ngx_http_sandbox_costs;


void
ngx_http_sandbox_cost_init(void)
{
    sbx_costs_open(&ngx_http_sandbox_costs);
}


void
ngx_http_sandbox_cost_exit(void)
{
    sbx_costs_close(&ngx_http_sandbox_costs);
}


void
ngx_http_sandbox_cost_begin(const char *session, sbx_costs_span_t *span)
{
    if (session[0] != '\0') {
        sbx_costs_begin(&ngx_http_sandbox_costs, session, span);
    }
}


void
ngx_http_sandbox_cost_end(const char *session, const sbx_costs_span_t *span)
{
    ngx_err_t             err;
    sbx_costs_verdict_t   verdict;

    if (session[0] == '\0') {
        return;
    }

    verdict = sbx_costs_end(&ngx_http_sandbox_costs, session, span);

    if (verdict == SBX_COSTS_FINE) {
        return;
    }

    err = ngx_errno;

    if (verdict == SBX_COSTS_TRIED) {
        ngx_http_sandbox_turn_spend((sbx_now_us() - span->at)
                                    * NGX_HTTP_SANDBOX_COST_US);

    } else {
        ngx_http_sandbox_turn_spend(NGX_HTTP_SANDBOX_COST_TURN);
    }

    if (verdict == SBX_COSTS_IS_GUILTY) {
        ngx_log_error(NGX_LOG_ERR, ngx_cycle->log, 0,
                      "sandbox: session \"%s\" costs too much, as its first "
                      "process watches its sockets too often: this worker "
                      "makes no calls to it for %ui seconds", session,
                      ngx_http_sandbox_cost_left(session));
    }

    ngx_set_errno(err);
}


ngx_uint_t
ngx_http_sandbox_cost_left(const char *session)
{
    return sbx_costs_left(&ngx_http_sandbox_costs, session);
}


ngx_uint_t
ngx_http_sandbox_cost_suspect(const char *session)
{
    return sbx_costs_suspect(&ngx_http_sandbox_costs, session);
}


ngx_uint_t
ngx_http_sandbox_cost_over(const char *session)
{
    return sbx_costs_suspect(&ngx_http_sandbox_costs, session)
           && ngx_http_sandbox_turn_over();
}


size_t
ngx_http_sandbox_cost_room(const char *session, size_t size)
{
    return sbx_costs_room(&ngx_http_sandbox_costs, session, size);
}


ngx_int_t
ngx_http_sandbox_cost_problem(ngx_http_request_t *r, ngx_uint_t seconds)
{
    sbx_f_error_t  error;

    ngx_memzero(&error, sizeof(sbx_f_error_t));

    error.code = SBX_E_UNAVAILABLE;
    error.retry_after = (uint32_t) seconds;
    (void) ngx_snprintf((u_char *) error.text, sizeof(error.text) - 1,
                        "the session's first process has made calls to it "
                        "cost too much: this worker makes none for %ui "
                        "seconds", seconds);

    return ngx_http_sandbox_problem_wire(r, &error);
}
