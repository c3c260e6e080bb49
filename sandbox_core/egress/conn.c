/* Connections. */

#include "egress.h"


int
sbx_eg_conn_listen(sbx_eg_session_t *s, sbx_error_t *e)
{
    (void) s;
    (void) e;

    return -1;
}


void
sbx_eg_conn_close_all(sbx_eg_session_t *s)
{
    (void) s;
}


void
sbx_eg_conn_review(sbx_eg_session_t *s)
{
    (void) s;
}


size_t
sbx_eg_conn_credit(sbx_eg_session_t *s, size_t wanted)
{
    (void) s;
    (void) wanted;

    return 0;
}


void
sbx_eg_conn_spend(sbx_eg_session_t *s, size_t n, int sent)
{
    (void) s;
    (void) n;
    (void) sent;
}
