/* TLS. */

#include "inspect.h"


int
sbx_eg_tls_open(sbx_egress_t *eg, int ca, int cert, sbx_error_t *e)
{
    (void) eg;
    (void) ca;
    (void) cert;
    (void) e;

    return -1;
}


int
sbx_eg_tls_trust(sbx_egress_t *eg, const char *pem, size_t size, sbx_error_t *e)
{
    (void) eg;
    (void) pem;
    (void) size;
    (void) e;

    return -1;
}


void
sbx_eg_tls_close(sbx_egress_t *eg)
{
    (void) eg;
}


sbx_tls_pair_t *
sbx_tls_pair_open(sbx_egress_t *eg, const char *host, const sbx_http_judge_t *judge, sbx_error_t *e)
{
    (void) eg;
    (void) host;
    (void) judge;
    (void) e;

    return NULL;
}


void
sbx_tls_pair_close(sbx_tls_pair_t *pair)
{
    (void) pair;
}


int
sbx_tls_pair_feed(sbx_tls_pair_t *pair, sbx_tls_side_t side, const uint8_t *in, size_t n, size_t *used)
{
    (void) pair;
    (void) side;
    (void) in;
    (void) n;
    (void) used;

    return -1;
}


size_t
sbx_tls_pair_take(sbx_tls_pair_t *pair, sbx_tls_side_t side, uint8_t *out, size_t size, int *end)
{
    (void) pair;
    (void) side;
    (void) out;
    (void) size;
    (void) end;

    return 0;
}


int
sbx_tls_pair_failed(const sbx_tls_pair_t *pair, sbx_refused_t *why, const char **text)
{
    (void) pair;
    (void) why;
    (void) text;

    return -1;
}
