/*
 * Requests through the filter: however a client's bytes are cut, what comes
 * out and whom it was judged for is the same; what comes out passes a second
 * time as it is; and no header of the client's has the name of ours.  The
 * first byte chooses the cut.
 */

#include "http.h"

#include <stdlib.h>
#include <string.h>


int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* What one pass gives. */
typedef struct {
    uint8_t   *out;
    size_t     made;
    int        refused;
    uint64_t   hosts;
    unsigned   added;             /* times */
} pass_t;

static void pass(const uint8_t *data, size_t size, size_t step, int adds,
    pass_t *result);
static int judge(void *data, const char *host, unsigned port,
    const sbx_eg_header_t **header);
static unsigned count(const uint8_t *p, size_t n, const char *word);

static int              adding;
static char             value[] = "our own";
static sbx_eg_header_t  ours = {
    .host = "a.example", .name = "X-Key", .value = value,
    .size = sizeof(value) - 1
};


int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    pass_t  whole, parts, again;

    if (size == 0 || size > 100000) {
        return 0;
    }

    pass(data + 1, size - 1, SIZE_MAX, 1, &whole);
    pass(data + 1, size - 1, (size_t) data[0] + 1, 1, &parts);

    if (whole.refused != parts.refused || whole.hosts != parts.hosts
        || whole.made != parts.made
        || memcmp(whole.out, parts.out, whole.made) != 0)
    {
        abort();
    }

    /* as it is: it was a stream of requests, and the same ones */

    pass(whole.out, whole.made, SIZE_MAX, 0, &again);

    if (again.refused || again.made > whole.made
        || memcmp(again.out, whole.out, again.made) != 0
        || (!whole.refused && again.hosts != whole.hosts))
    {
        abort();
    }

    if (!whole.refused
        && count(whole.out, whole.made, "\r\nX-Key: our own\r\n")
           < whole.added)
    {
        abort();
    }

    free(whole.out);
    free(parts.out);
    free(again.out);

    return 0;
}


static void
pass(const uint8_t *data, size_t size, size_t step, int adds, pass_t *result)
{
    size_t             n, used, made;
    uint8_t           *copy;
    sbx_http_t        *http;
    sbx_refused_t      why;
    sbx_http_judge_t   j;

    static uint8_t  out[SBX_HTTP_ROOM];

    memset(result, 0, sizeof(*result));
    result->out = malloc(size * 4 + SBX_HTTP_ROOM);

    j.host = judge;
    j.data = result;
    adding = adds;
    http = sbx_http_open(&j);

    if (http == NULL || result->out == NULL) {
        abort();
    }

    while (size != 0 && !result->refused) {
        n = size < step ? size : step;
        copy = malloc(n);

        if (copy == NULL) {
            abort();
        }

        memcpy(copy, data, n);
        result->refused = sbx_http_client(http, copy, n, &used, out,
                                          sizeof(out), &made, &why);
        free(copy);

        memcpy(result->out + result->made, out, made);
        result->made += made;
        data += used;
        size -= used;

        if (used > n || made > sizeof(out)) {
            abort();
        }

        if (sbx_http_watches(http)) {
            sbx_http_server(http, (const uint8_t *) "HTTP/1.1 400 \r\n", 15);

        } else if (used == 0 && made == 0 && !result->refused) {
            abort();
        }
    }

    sbx_http_close(http);
}


static int
judge(void *data, const char *host, unsigned port,
    const sbx_eg_header_t **header)
{
    pass_t  *result;

    result = data;

    if (strlen(host) > SBX_NETWORK_HOST_MAX || port > 65535) {
        abort();
    }

    while (*host != '\0') {
        result->hosts = (result->hosts ^ (uint8_t) *host++)
                        * 1099511628211u;
    }

    result->hosts = (result->hosts ^ port) * 1099511628211u;

    if (adding && result->hosts % 2 == 0 && result->added < 16) {
        *header = &ours;
        result->added++;
    }

    return 0;
}


static unsigned
count(const uint8_t *p, size_t n, const char *word)
{
    unsigned        times;
    const uint8_t  *at;

    times = 0;

    while ((at = memmem(p, n, word, strlen(word))) != NULL) {
        times++;
        n -= (size_t) (at + 1 - p);
        p = at + 1;
    }

    return times;
}
