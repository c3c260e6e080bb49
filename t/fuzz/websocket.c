/*
 * WebSocket's frames: however a peer's bytes are cut, what they say is the
 * same, and lies within what came.  The first byte chooses the cut.
 */

#include "websocket.h"

#include <stdlib.h>
#include <string.h>


int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static uint64_t decode(const uint8_t *data, size_t size, size_t step);


int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    size_t  step;

    if (size == 0) {
        return 0;
    }

    step = (size_t) data[0] + 1;

    if (decode(data + 1, size - 1, step)
        != decode(data + 1, size - 1, SIZE_MAX))
    {
        abort();
    }

    return 0;
}


static uint64_t
decode(const uint8_t *data, size_t size, size_t step)
{
    int              rc;
    size_t           n, i;
    uint8_t         *buf, *p;
    uint64_t         sum;
    sbx_ws_t         ws;
    sbx_ws_event_t   event;

    memset(&ws, 0, sizeof(ws));
    sum = 14695981039346656037u;
    rc = 0;

    while (size > 0 && rc != -1) {
        n = size < step ? size : step;
        buf = malloc(n);

        if (buf == NULL) {
            return 0;
        }

        memcpy(buf, data, n);
        data += n;
        size -= n;
        p = buf;

        while ((rc = sbx_ws_next(&ws, &p, buf + n, &event)) == 1) {

            for (i = 0; i < event.len; i++) {
                sum = (sum ^ event.data[i]) * 1099511628211u;
            }

            /* parts of a message are cut as the bytes are */

            if (event.opcode >= SBX_WS_CLOSE || event.fin) {
                sum = (sum ^ event.opcode ^ event.code) * 1099511628211u;
            }
        }

        if (rc == 0 && p != buf + n) {
            abort();
        }

        sum = (rc == -1) ? sum ^ event.code : sum;
        free(buf);
    }

    return sum;
}
