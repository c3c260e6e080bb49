/* Judgement. */

#include "egress.h"


sbx_eg_verdict_t
sbx_eg_decide(sbx_eg_session_t *s, const uint8_t address[16], unsigned port, sbx_refused_t *why)
{
    (void) s;
    (void) address;
    (void) port;
    (void) why;

    return (sbx_eg_verdict_t) 0;
}


int
sbx_eg_decide_name(sbx_eg_session_t *s, const char *host, unsigned port, sbx_refused_t *why)
{
    (void) s;
    (void) host;
    (void) port;
    (void) why;

    return -1;
}


int
sbx_eg_decide_named(sbx_eg_session_t *s, const uint8_t address[16], unsigned port, const char *host, sbx_refused_t *why)
{
    (void) s;
    (void) address;
    (void) port;
    (void) host;
    (void) why;

    return -1;
}


int
sbx_eg_decide_answer(sbx_eg_session_t *s, const uint8_t address[16])
{
    (void) s;
    (void) address;

    return -1;
}


const sbx_eg_header_t *
sbx_eg_header(const sbx_eg_session_t *s, const char *host, int tls)
{
    (void) s;
    (void) host;
    (void) tls;

    return NULL;
}
