/*
 * Sizes, times and counts as directives and JSON give them: what is accepted
 * lies within its row, and what is printed of it is short.  The first byte
 * chooses the row.
 */

#include "sandbox_limits.h"

#include <stdlib.h>
#include <string.h>


int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);


int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char                out[32];
    size_t              rows, len;
    uint64_t            value;
    sbx_error_t         e;
    const char         *s;
    const sbx_limit_t  *limit;

    if (size == 0) {
        return 0;
    }

    rows = 0;

    while (sbx_limit_table[rows].name != NULL) {
        rows++;
    }

    limit = &sbx_limit_table[data[0] % rows];
    s = (const char *) data + 1;
    len = size - 1;

    (void) sbx_size_parse(s, len, &value, &e);
    (void) sbx_limit_find(s, len, 0);
    (void) sbx_limit_find(s, len, 1);

    if (sbx_limit_parse(limit, s, len, &value, &e) != 0) {
        return 0;
    }

    if (value == SBX_UNLIMITED ? !limit->unlimited_ok
        : value < limit->min || value > limit->max)
    {
        abort();
    }

    if (sbx_limit_print(limit, value, out) >= sizeof(out)) {
        abort();
    }

    return 0;
}
