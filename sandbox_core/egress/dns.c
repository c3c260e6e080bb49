/* What sessions ask. */

#include "egress.h"


int
sbx_eg_dns_open(sbx_egress_t *eg, sbx_error_t *e)
{
    (void) eg;
    (void) e;

    return -1;
}


int
sbx_eg_dns_configure(sbx_egress_t *eg, const void *table, size_t size, const char *resolv_conf, size_t resolv_size, sbx_error_t *e)
{
    (void) eg;
    (void) table;
    (void) size;
    (void) resolv_conf;
    (void) resolv_size;
    (void) e;

    return -1;
}


int
sbx_eg_dns_session_open(sbx_eg_session_t *s, sbx_error_t *e)
{
    (void) s;
    (void) e;

    return -1;
}


void
sbx_eg_dns_session_close(sbx_eg_session_t *s)
{
    (void) s;
}


void
sbx_eg_dns_accept(sbx_eg_session_t *s, int fd)
{
    (void) s;
    (void) fd;
}


void
sbx_eg_dns_close(sbx_egress_t *eg)
{
    (void) eg;
}
