/*
 * What the sockets cost a worker that sessions have the other ends of (see
 * costs.h of the core).  What is sent to one whose first process was taken
 * over may wake some hundred thousand watchers.
 */

#ifndef _NGX_HTTP_SANDBOX_COST_H_INCLUDED_
#define _NGX_HTTP_SANDBOX_COST_H_INCLUDED_


#include "ngx_http_sandbox.h"
#include "costs.h"


/* Around each use of such a socket; the session is "" for one of the
 * broker's. */
void ngx_http_sandbox_cost_begin(const char *session,
    sbx_costs_span_t *span);
void ngx_http_sandbox_cost_end(const char *session,
    const sbx_costs_span_t *span);

/* For so many seconds this worker leaves the session alone; 0: it does not. */
ngx_uint_t ngx_http_sandbox_cost_left(const char *session);

/* It had a slow call of late: of less at once, and by threads. */
ngx_uint_t ngx_http_sandbox_cost_suspect(const char *session);
/* And others have had much of this turn. */
ngx_uint_t ngx_http_sandbox_cost_over(const char *session);
/* Of so many bytes those that are for one call. */
size_t ngx_http_sandbox_cost_room(const char *session, size_t size);

/* What a call is answered that is not begun. */
ngx_int_t ngx_http_sandbox_cost_problem(ngx_http_request_t *r,
    ngx_uint_t seconds);

void ngx_http_sandbox_cost_init(void);
void ngx_http_sandbox_cost_exit(void);


#endif /* _NGX_HTTP_SANDBOX_COST_H_INCLUDED_ */
