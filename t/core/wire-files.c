/*
 * Frames of watches and searches: lengths that do not fit are refused.
 */

#include "tap.h"
#include "wire.h"

#include <string.h>


static uint8_t  buf[sizeof(sbx_f_match_t) + 4096];


static int
change(uint32_t kind, uint32_t told, size_t n)
{
    const char      *path;
    sbx_f_change_t   head = { .change = kind, .path_len = told };

    memcpy(buf, &head, sizeof(head));

    return sbx_wire_check_change(buf, n, &head, &path);
}


static int
match(uint32_t path_len, uint32_t text_len, size_t n)
{
    const char     *path, *text;
    sbx_f_match_t   head = { .line = 1, .path_len = path_len,
                             .text_len = text_len };

    memcpy(buf, &head, sizeof(head));

    return sbx_wire_check_match(buf, n, &head, &path, &text);
}


int
main(void)
{
    size_t  c = sizeof(sbx_f_change_t), m = sizeof(sbx_f_match_t);

    is_int(change(SBX_CHANGE_CREATE, 5, c + 5), 0, "a change");
    is_int(change(SBX_CHANGE_OVERFLOW, 0, c), 0, "an overflow");
    is_int(change(SBX_CHANGE_OVERFLOW + 1, 0, c), -1, "an unknown one");
    is_int(change(SBX_CHANGE_CREATE, 6, c + 5), -1, "a path that is longer");
    is_int(change(SBX_CHANGE_CREATE, 4, c + 5), -1, "one that is shorter");
    is_int(change(SBX_CHANGE_CREATE, UINT32_MAX, c + 5), -1, "far longer");
    is_int(change(SBX_CHANGE_CREATE, 0, c - 1), -1, "half of a change");

    is_int(match(5, 3, m + 8), 0, "a match");
    is_int(match(5, 4, m + 8), -1, "a text that is longer");
    is_int(match(6, 3, m + 8), -1, "a path that is longer");
    is_int(match(UINT32_MAX, 9, m + 8), -1, "lengths whose sum wraps");
    is_int(match(8, UINT32_MAX, m + 7), -1, "in either");
    is_int(match(0, SBX_SEARCH_TEXT_MAX + 1, m + SBX_SEARCH_TEXT_MAX + 1), -1,
           "a text of more than may be");
    is_int(match(0, 0, m - 1), -1, "half of a match");

    return done_testing();
}
