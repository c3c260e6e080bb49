/*
 * A second hello: however the bytes of client and server are cut, what passes
 * is the same, and is what the client has sent.  The first byte chooses the
 * cut, the two after it how much of the rest is the server's.
 */

#include "inspect.h"

#include <stdlib.h>
#include <string.h>


#define OUT_MAX  (3 * SBX_EG_FIRST_MAX)


int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static size_t pass(const uint8_t *client, size_t n, const uint8_t *server,
    size_t ns, size_t step, int *end);


int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    int      whole_end, parts_end;
    size_t   n, step, whole, parts;

    if (size < 3 || size > SBX_EG_FIRST_MAX) {
        return 0;
    }

    step = (size_t) data[0] + 1;
    n = (size_t) data[1] << 8 | data[2];
    data += 3;
    size -= 3;
    n = n < size ? n : size;

    whole = pass(data + n, size - n, data, n, SIZE_MAX, &whole_end);
    parts = pass(data + n, size - n, data, n, step, &parts_end);

    if (whole != parts || whole_end != parts_end) {
        abort();
    }

    return 0;
}


/* The bytes that passed; *end: refused, watching, opaque. */

static size_t
pass(const uint8_t *client, size_t n, const uint8_t *server, size_t ns,
    size_t step, int *end)
{
    int              refused;
    size_t           part, at, used, made, passed;
    uint8_t         *copy;
    sbx_refused_t    why;
    sbx_greeting_t  *hello;

    static uint8_t  out[OUT_MAX];

    hello = sbx_greeting_open("a.example");

    if (hello == NULL) {
        abort();
    }

    passed = 0;
    refused = 0;

    for (at = 0; at < n && !refused; at += used) {
        part = n - at < step ? n - at : step;
        copy = malloc(part);

        if (copy == NULL) {
            abort();
        }

        memcpy(copy, client + at, part);
        refused = sbx_greeting_client(hello, copy, part, &used,
                                      out + passed, OUT_MAX - passed, &made,
                                      &why);
        free(copy);
        passed += made;

        if (used > part || passed > n || memcmp(out, client, passed) != 0) {
            abort();
        }

        if (used == 0 && made == 0 && !refused) {

            if (!sbx_greeting_watches(hello) || ns == 0) {
                break;
            }

            part = ns < step ? ns : step;
            sbx_greeting_server(hello, server, part);
            server += part;
            ns -= part;
        }
    }

    *end = refused + 2 * sbx_greeting_watches(hello)
           + 4 * sbx_greeting_opaque(hello);
    sbx_greeting_close(hello);

    return passed;
}
