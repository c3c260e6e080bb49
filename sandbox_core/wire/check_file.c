/*
 * Checks of what file calls stream: changes and matches.
 */

#include "wire.h"

#include <string.h>


int
sbx_wire_check_change(const uint8_t *p, size_t n, sbx_f_change_t *change,
    const char **path)
{
    if (n < sizeof(sbx_f_change_t)) {
        return -1;
    }

    memcpy(change, p, sizeof(sbx_f_change_t));
    p += sizeof(sbx_f_change_t);
    n -= sizeof(sbx_f_change_t);

    if (change->change > SBX_CHANGE_OVERFLOW || change->path_len != n) {
        return -1;
    }

    *path = (const char *) p;

    return 0;
}


int
sbx_wire_check_match(const uint8_t *p, size_t n, sbx_f_match_t *match,
    const char **path, const char **text)
{
    if (n < sizeof(sbx_f_match_t)) {
        return -1;
    }

    memcpy(match, p, sizeof(sbx_f_match_t));
    p += sizeof(sbx_f_match_t);
    n -= sizeof(sbx_f_match_t);

    if (match->text_len > SBX_SEARCH_TEXT_MAX
        || match->path_len > SBX_FRAME_MAX
        || n != (size_t) match->path_len + match->text_len)
    {
        return -1;
    }

    *path = (const char *) p;
    *text = *path + match->path_len;

    return 0;
}
