#include "json_parser.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>


/* Saying what is wrong, and where. */

static size_t
sbx_json_pointer_token(char *buf, size_t n, size_t size, const char *s,
    size_t len)
{
    size_t       i, k, part;
    const char  *put;

    if (n + 4 >= size) {
        return n;
    }

    buf[n++] = '/';

    for (i = 0; i < len; i += k) {
        k = sbx_utf8_sequence(s + i, len - i);
        put = s + i;
        part = k;

        if (k == 0 || (uint8_t) s[i] < 0x20 || s[i] == 0x7f) {
            k = 1;
            put = "?";
            part = 1;

        } else if (s[i] == '~') {
            put = "~0";
            part = 2;

        } else if (s[i] == '/') {
            put = "~1";
            part = 2;
        }

        if (n + part + 4 >= size) {
            memcpy(buf + n, "...", 3);
            return n + 3;
        }

        memcpy(buf + n, put, part);
        n += part;
    }

    return n;
}


static size_t
sbx_json_pointer(const sbx_json_parser_t *p, char *buf, size_t size)
{
    char                     index[24];
    size_t                   n;
    unsigned                 i;
    const sbx_json_frame_t  *frame;

    n = 0;

    for (i = 0; i < p->depth; i++) {
        frame = &p->frames[i];

        if (frame->in == SBX_JSON_IN_LIST
            || frame->in == SBX_JSON_IN_OBJECTS
            || frame->in == SBX_JSON_IN_SKIPPED_LIST)
        {
            (void) snprintf(index, sizeof(index), "%zu", frame->nelts);
            n = sbx_json_pointer_token(buf, n, size, index, strlen(index));

        } else if (frame->keyed) {
            n = sbx_json_pointer_token(buf, n, size, frame->key.data,
                                       frame->key.len);
        }
    }

    buf[n] = '\0';

    return n;
}


int
sbx_json_fail(sbx_json_parser_t *p, const char *fmt, ...)
{
    char     pointer[SBX_JSON_POINTER_MAX], what[128];
    va_list  args;

    if (p->failed) {
        return 0;
    }

    p->failed = 1;

    va_start(args, fmt);
    (void) vsnprintf(what, sizeof(what), fmt, args);
    va_end(args);

    (void) sbx_json_pointer(p, pointer, sizeof(pointer));
    (void) sbx_error(p->error, 0, SBX_E_INVALID, "%s: %s", pointer, what);

    return 0;
}


int
sbx_json_refuse(sbx_error_t *e, const char *base, const sbx_json_str_t *key,
    const char *what)
{
    char    pointer[SBX_JSON_POINTER_MAX];
    size_t  n;

    n = strlen(base);

    if (n > sizeof(pointer) / 2) {
        n = sizeof(pointer) / 2;
    }

    memcpy(pointer, base, n);
    n = sbx_json_pointer_token(pointer, n, sizeof(pointer), key->data,
                               key->len);
    pointer[n] = '\0';

    return sbx_error(e, 0, SBX_E_INVALID, "%s: %s", pointer, what);
}


/*
 * Before yajl: it lets overlong forms and surrogates pass as UTF-8, turns a
 * lone \ud83d into "?" and a lone \udc00 into bytes that are no UTF-8.  The
 * first such place is remembered, and refused when the value is reached.
 */

size_t
sbx_utf8_sequence(const void *s, size_t n)
{
    size_t          i, len;
    uint32_t        code;
    const uint8_t  *u;

    static const uint32_t  least[] = { 0, 0, 0x80, 0x800, 0x10000 };

    if (n == 0) {
        return 0;
    }

    u = s;

    if (u[0] < 0x80) {
        return 1;
    }

    len = (u[0] >= 0xf0) ? 4 : (u[0] >= 0xe0) ? 3 : 2;

    if (u[0] < 0xc2 || u[0] > 0xf4 || n < len) {
        return 0;
    }

    code = u[0] & (0xffu >> (len + 1));

    for (i = 1; i < len; i++) {
        if ((u[i] & 0xc0) != 0x80) {
            return 0;
        }

        code = (code << 6) | (u[i] & 0x3f);
    }

    if (code < least[len] || code > 0x10ffff
        || (code >= 0xd800 && code <= 0xdfff))
    {
        return 0;
    }

    return len;
}


/* The four digits after \u, or -1. */

static int
sbx_json_hex(const uint8_t *s, size_t n)
{
    int      code;
    size_t   i;
    uint8_t  c;

    if (n < 4) {
        return -1;
    }

    code = 0;

    for (i = 0; i < 4; i++) {
        c = s[i];

        if (c >= '0' && c <= '9') {
            c = (uint8_t) (c - '0');

        } else {
            c |= 0x20;

            if (c < 'a' || c > 'f') {
                return -1;
            }

            c = (uint8_t) (c - 'a' + 10);
        }

        code = (code << 4) | c;
    }

    return code;
}


/* Bytes of the escape at s, which begins with a backslash; 0: half a pair. */

static size_t
sbx_json_escape(const uint8_t *s, size_t n)
{
    int  code;

    if (n < 2 || s[1] != 'u') {
        return 2;
    }

    code = sbx_json_hex(s + 2, n - 2);

    if (code < 0xd800 || code > 0xdfff) {
        return 2;
    }

    if (code > 0xdbff || n < 8 || s[6] != '\\' || s[7] != 'u') {
        return 0;
    }

    code = sbx_json_hex(s + 8, n - 8);

    return (code >= 0xdc00 && code <= 0xdfff) ? 12 : 0;
}


void
sbx_json_scan(sbx_json_parser_t *p, const uint8_t *s, size_t n)
{
    size_t    i, k;
    unsigned  quoted;

    quoted = 0;

    for (i = 0; i < n; i += k) {

        if (quoted && s[i] == '\\') {
            k = sbx_json_escape(s + i, n - i);
            p->why = "has half of a surrogate pair";

        } else {
            k = sbx_utf8_sequence(s + i, n - i);
            p->why = "is not valid UTF-8";
            quoted ^= (s[i] == '"');
        }

        if (k == 0) {
            break;
        }
    }

    p->bad = (i < n) ? i : n;
}
