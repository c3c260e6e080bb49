/*
 * A form's body: however it is cut, what is taken from it is the same, and
 * lies within what came or in the parser.  The first byte chooses the cut;
 * a Content-Type follows, up to a NUL.
 */

#include "multipart.h"

#include <stdlib.h>
#include <string.h>


int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static uint64_t parse(const uint8_t *type, size_t type_len,
    const uint8_t *data, size_t size, size_t step);


int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    size_t          step, len;
    const uint8_t  *end;

    if (size < 2) {
        return 0;
    }

    step = (size_t) data[0] + 1;
    data++;
    size--;
    end = memchr(data, '\0', size);

    if (end == NULL) {
        return 0;
    }

    len = (size_t) (end - data);

    if (parse(data, len, end + 1, size - len - 1, step)
        != parse(data, len, end + 1, size - len - 1, SIZE_MAX))
    {
        abort();
    }

    return 0;
}


static uint64_t
add(uint64_t sum, const void *data, size_t len)
{
    size_t          i;
    const uint8_t  *p;

    p = data;

    for (i = 0; i < len; i++) {
        sum = (sum ^ p[i]) * 1099511628211u;
    }

    return sum;
}


static uint64_t
parse(const uint8_t *type, size_t type_len, const uint8_t *data, size_t size,
    size_t step)
{
    size_t                  n, len;
    uint8_t                *buf;
    uint64_t                sum;
    const uint8_t          *p, *piece;
    sbx_multipart_event_t   event;

    static sbx_multipart_t  m;

    sum = 14695981039346656037u;
    event = SBX_MULTIPART_MORE;

    if (sbx_multipart_init(&m, type, type_len) != 0) {
        return 0;
    }

    while (size > 0 && event != SBX_MULTIPART_BROKEN) {
        n = size < step ? size : step;
        buf = malloc(n);

        if (buf == NULL) {
            return 0;
        }

        memcpy(buf, data, n);
        data += n;
        size -= n;
        p = buf;

        do {
            event = sbx_multipart_next(&m, &p, buf + n, &piece, &len);

            switch (event) {

            case SBX_MULTIPART_PART:
                sum = add(sum, m.name.data, m.name.len);
                sum = add(sum, m.filename.data, m.filename.len);
                break;

            case SBX_MULTIPART_DATA:
                if (len == 0) {
                    abort();
                }

                sum = add(sum, piece, len);
                break;

            case SBX_MULTIPART_MORE:
                if (p != buf + n) {
                    abort();
                }

                break;

            default:
                sum = (sum ^ event) * 1099511628211u;
                break;
            }

        } while (event != SBX_MULTIPART_MORE
                 && event != SBX_MULTIPART_BROKEN);

        free(buf);
    }

    return sum;
}
