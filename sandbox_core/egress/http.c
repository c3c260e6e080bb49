/* HTTP/1. */

#include "inspect.h"


sbx_http_t *
sbx_http_open(const sbx_http_judge_t *judge)
{
    (void) judge;

    return NULL;
}


void
sbx_http_close(sbx_http_t *http)
{
    (void) http;
}


int
sbx_http_client(sbx_http_t *http, const uint8_t *in, size_t n, size_t *used, uint8_t *out, size_t size, size_t *made, sbx_refused_t *why)
{
    (void) http;
    (void) in;
    (void) n;
    (void) used;
    (void) out;
    (void) size;
    (void) made;
    (void) why;

    return -1;
}


int
sbx_http_watches(const sbx_http_t *http)
{
    (void) http;

    return -1;
}


void
sbx_http_server(sbx_http_t *http, const uint8_t *in, size_t n)
{
    (void) http;
    (void) in;
    (void) n;
}


int
sbx_http_opaque(const sbx_http_t *http)
{
    (void) http;

    return -1;
}
