/*
 * The first bytes of a client: what is said of all of them is not taken back
 * when more come, a name is one that a rule may have, and what is a request to
 * the filter never is something else.
 */

#include "inspect.h"

#include <stdlib.h>
#include <string.h>


int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static sbx_sniff_t sniff(const uint8_t *data, size_t size,
    sbx_sniffed_t *out);
static int is_request(const uint8_t *data, size_t size);
static int judge(void *data, const char *host, unsigned port,
    const sbx_eg_header_t **header);


int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    size_t         n;
    sbx_sniff_t    whole, part;
    sbx_sniffed_t  out, early;

    if (size > SBX_EG_FIRST_MAX) {
        return 0;
    }

    whole = sniff(data, size, &out);

    if (out.name[0] != '\0'
        && (whole != SBX_SNIFF_TLS
            || sbx_network_host_ok(out.name, strlen(out.name), NULL) != 1))
    {
        abort();
    }

    for (n = 0; n < size; n += 1 + size / 64) {
        part = sniff(data, n, &early);

        if (part != SBX_SNIFF_MORE
            && (part != whole || strcmp(early.name, out.name) != 0
                || early.ech != out.ech || early.h2 != out.h2))
        {
            abort();
        }
    }

    if ((whole == SBX_SNIFF_OTHER || whole == SBX_SNIFF_TLS)
        && is_request(data, size))
    {
        abort();
    }

    return 0;
}


static sbx_sniff_t
sniff(const uint8_t *data, size_t size, sbx_sniffed_t *out)
{
    uint8_t      *buf;
    sbx_sniff_t   what;

    buf = malloc(size != 0 ? size : 1);

    if (buf == NULL) {
        abort();
    }

    memcpy(buf, data, size);
    what = sbx_sniff(buf, size, out);
    free(buf);

    return what;
}


/* 1: the filter lets something of it through. */

static int
is_request(const uint8_t *data, size_t size)
{
    size_t             used, made;
    sbx_http_t        *http;
    sbx_refused_t      why;
    sbx_http_judge_t   j;

    static uint8_t  out[SBX_HTTP_ROOM];

    j.host = judge;
    j.data = NULL;
    http = sbx_http_open(&j);

    if (http == NULL) {
        return 0;
    }

    (void) sbx_http_client(http, data, size, &used, out, sizeof(out), &made,
                           &why);
    sbx_http_close(http);

    return made != 0;
}


static int
judge(void *data, const char *host, unsigned port,
    const sbx_eg_header_t **header)
{
    (void) data;
    (void) host;
    (void) port;
    (void) header;

    return 0;
}
