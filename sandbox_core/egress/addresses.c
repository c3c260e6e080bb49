/* The host's own addresses. */

#include "egress.h"


int
sbx_eg_addresses_open(sbx_egress_t *eg, sbx_error_t *e)
{
    (void) eg;
    (void) e;

    return -1;
}


int
sbx_eg_addresses_own(sbx_egress_t *eg, const uint8_t address[16])
{
    (void) eg;
    (void) address;

    return -1;
}


int
sbx_eg_addresses_ipv6(sbx_egress_t *eg)
{
    (void) eg;

    return -1;
}


void
sbx_eg_addresses_close(sbx_egress_t *eg)
{
    (void) eg;
}
