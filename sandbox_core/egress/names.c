/* Names that were looked up. */

#include "egress.h"


int
sbx_eg_names_open(sbx_eg_session_t *s)
{
    (void) s;

    return -1;
}


void
sbx_eg_names_close(sbx_eg_session_t *s)
{
    (void) s;
}


void
sbx_eg_names_add(sbx_eg_session_t *s, const char *host, const uint8_t address[16], uint32_t ttl)
{
    (void) s;
    (void) host;
    (void) address;
    (void) ttl;
}


const char *
sbx_eg_names_next(sbx_eg_session_t *s, const uint8_t address[16], size_t *at)
{
    (void) s;
    (void) address;
    (void) at;

    return "";
}


int
sbx_eg_names_has(sbx_eg_session_t *s, const char *host, const uint8_t address[16])
{
    (void) s;
    (void) host;
    (void) address;

    return -1;
}
