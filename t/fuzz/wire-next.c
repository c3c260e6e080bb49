/*
 * The incremental decoder: however a peer's bytes are cut, the frames are the
 * same and lie within the buffer.  The first byte chooses the cut.
 */

#include "wire.h"

#include <stdlib.h>
#include <string.h>


#define FUZZ_SIZE   (sizeof(sbx_frame_t) + SBX_FRAME_MAX)


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
    int             rc;
    size_t          n;
    uint32_t        i;
    uint64_t        sum;
    uint8_t        *buf;
    sbx_wire_t      w;
    sbx_frame_t     frame;
    const uint8_t  *payload;

    buf = malloc(FUZZ_SIZE);

    if (buf == NULL) {
        return 0;
    }

    sbx_wire_init(&w, buf, FUZZ_SIZE);
    sum = 14695981039346656037u;
    rc = 0;

    while (size > 0 && rc != -1) {
        n = w.size - w.end;
        n = n < step ? n : step;
        n = n < size ? n : size;

        if (n == 0) {
            abort();
        }

        memcpy(w.buf + w.end, data, n);
        w.end += n;
        data += n;
        size -= n;

        while ((rc = sbx_wire_next(&w, &frame, &payload)) == 1) {
            sum = (sum ^ frame.type) * 1099511628211u;

            for (i = 0; i < frame.length; i++) {
                sum = (sum ^ payload[i]) * 1099511628211u;
            }
        }
    }

    free(buf);

    return rc == -1 ? sum ^ 1 : sum;
}
