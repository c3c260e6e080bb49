/* Refusals. */

#include "egress.h"


void
sbx_eg_refused(sbx_eg_session_t *s, sbx_refused_t why, const uint8_t *address, unsigned port, const char *name)
{
    (void) s;
    (void) why;
    (void) address;
    (void) port;
    (void) name;
}
