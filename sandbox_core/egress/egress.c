/* The egress. */

#include "egress.h"


int
sbx_egress_run(int control, int ca, int cert)
{
    (void) control;
    (void) ca;
    (void) cert;

    return -1;
}


sbx_eg_session_t *
sbx_eg_session_find(sbx_egress_t *eg, const char *id)
{
    (void) eg;
    (void) id;

    return NULL;
}
