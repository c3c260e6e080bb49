#include "json_parser.h"

#include <string.h>


/*
 * Keys of free objects are sorted at the end of the object and neighbours
 * compared: n log n whatever the keys are, where a hash table could be made
 * quadratic by its caller.
 */

static int
sbx_json_key_order(const sbx_json_pair_t *a, const sbx_json_pair_t *b)
{
    int     rc;
    size_t  n;

    if (a->key.len != b->key.len) {
        return a->key.len < b->key.len ? -1 : 1;
    }

    n = a->key.len;
    rc = (n == 0) ? 0 : memcmp(a->key.data, b->key.data, n);

    return rc;
}


/* Merges sorted runs of width from one array of pointers into the other. */

static void
sbx_json_merge(const sbx_json_pair_t **from, const sbx_json_pair_t **to,
    size_t n, size_t width)
{
    size_t  start, a, b, a_end, b_end, i;

    for (start = 0; start < n; start += 2 * width) {
        a = start;
        a_end = (n - start < width) ? n : start + width;
        b = a_end;
        b_end = (n - a_end < width) ? n : a_end + width;

        for (i = start; i < b_end; i++) {
            if (a < a_end
                && (b == b_end || sbx_json_key_order(from[a], from[b]) <= 0))
            {
                to[i] = from[a++];

            } else {
                to[i] = from[b++];
            }
        }
    }
}


int
sbx_json_keys_unique(sbx_json_parser_t *p, sbx_json_frame_t *frame)
{
    size_t                   i, n, width;
    const sbx_json_pair_t   *pairs;
    const sbx_json_pair_t  **from, **to, **other;

    n = frame->nelts;

    if (n < 2) {
        return 1;
    }

    from = sbx_json_palloc(p, 2 * n * sizeof(sbx_json_pair_t *));
    to = from + n;
    pairs = frame->elts;

    for (i = 0; i < n; i++) {
        from[i] = &pairs[i];
    }

    for (width = 1; width < n; width *= 2) {
        sbx_json_merge(from, to, n, width);

        other = from;
        from = to;
        to = other;
    }

    for (i = 1; i < n; i++) {
        if (sbx_json_key_order(from[i - 1], from[i]) == 0) {
            frame->key = from[i]->key;
            frame->keyed = 1;
            return sbx_json_fail(p, "is given twice");
        }
    }

    return 1;
}
