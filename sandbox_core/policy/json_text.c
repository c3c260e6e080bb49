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


/* Values of digits, each and one more: 0 is none. */

static const uint8_t  sbx_json_digits[0x100] = {
    ['0'] = 1, ['1'] = 2, ['2'] = 3, ['3'] = 4, ['4'] = 5,
    ['5'] = 6, ['6'] = 7, ['7'] = 8, ['8'] = 9, ['9'] = 10,
    ['a'] = 11, ['b'] = 12, ['c'] = 13, ['d'] = 14, ['e'] = 15, ['f'] = 16,
    ['A'] = 11, ['B'] = 12, ['C'] = 13, ['D'] = 14, ['E'] = 15, ['F'] = 16
};


/* The four digits after \u, or -1. */

static int
sbx_json_hex(const uint8_t *s, size_t n)
{
    int  a, b, c, d;

    if (n < 4) {
        return -1;
    }

    a = sbx_json_digits[s[0]];
    b = sbx_json_digits[s[1]];
    c = sbx_json_digits[s[2]];
    d = sbx_json_digits[s[3]];

    if (a == 0 || b == 0 || c == 0 || d == 0) {
        return -1;
    }

    return (a - 1) << 12 | (b - 1) << 8 | (c - 1) << 4 | (d - 1);
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
        return (code == -1) ? 2 : 6;
    }

    if (code > 0xdbff || n < 8 || s[6] != '\\' || s[7] != 'u') {
        return 0;
    }

    code = sbx_json_hex(s + 8, n - 8);

    return (code >= 0xdc00 && code <= 0xdfff) ? 12 : 0;
}


/* How many bytes from s on are ASCII, and no quote or backslash: by eights, as
 * most of a text is. */

static size_t
sbx_json_plain(const uint8_t *s, size_t n)
{
    size_t    i;
    uint64_t  w, quote, escape;

    static const uint64_t  ones = UINT64_C(0x0101010101010101);

    for (i = 0; n - i >= sizeof(w); i += sizeof(w)) {
        memcpy(&w, s + i, sizeof(w));

        quote = w ^ (ones * '"');
        escape = w ^ (ones * '\\');

        /* a byte that was zero borrows from its highest bit */

        if ((w | ((quote - ones) & ~quote) | ((escape - ones) & ~escape))
            & (ones * 0x80))
        {
            break;
        }
    }

    return i;
}


/* The one or two escapes at s, of k bytes, in the copy; what is none is left
 * for yajl to refuse. */

static void
sbx_json_mark(uint8_t *s, size_t k, size_t n)
{
    if (n < 2) {
        return;
    }

    switch (s[1]) {

    case 'b': case 'f': case 'n': case 'r': case 't': case '/':
        break;

    case '"':
        s[1] = 'q';
        break;

    case '\\':
        s[1] = 's';
        break;

    case 'u':
        if (k == 2) {
            return;                           /* without its digits */
        }

        if (k == 12) {
            s[6] = SBX_JSON_MARK;
        }

        break;

    default:
        return;
    }

    s[0] = SBX_JSON_MARK;
}


void
sbx_json_scan(sbx_json_parser_t *p, const uint8_t *s, size_t n,
    uint8_t *marked)
{
    size_t    i, k;
    unsigned  quoted;

    quoted = 0;

    for (i = 0; i < n; i += k) {

        if (quoted && s[i] == '\\') {
            k = sbx_json_escape(s + i, n - i);
            p->why = "has half of a surrogate pair";

            if (k != 0 && marked != NULL) {
                sbx_json_mark(marked + i, k, n - i);
            }

        } else if (s[i] == '"') {
            k = 1;
            quoted ^= 1;

        } else {
            k = sbx_json_plain(s + i, n - i);

            if (k == 0) {
                k = sbx_utf8_sequence(s + i, n - i);
                p->why = "is not valid UTF-8";
            }
        }

        if (k == 0) {
            break;
        }
    }

    p->bad = (i < n) ? i : n;
}


/* Writes a character, whose escape was longer; its end. */

static uint8_t *
sbx_json_character(uint8_t *to, uint32_t code)
{
    if (code < 0x80) {
        *to++ = (uint8_t) code;
        return to;
    }

    if (code < 0x800) {
        *to++ = (uint8_t) (0xc0 | code >> 6);

    } else {

        if (code < 0x10000) {
            *to++ = (uint8_t) (0xe0 | code >> 12);

        } else {
            *to++ = (uint8_t) (0xf0 | code >> 18);
            *to++ = (uint8_t) (0x80 | (code >> 12 & 0x3f));
        }

        *to++ = (uint8_t) (0x80 | (code >> 6 & 0x3f));
    }

    *to++ = (uint8_t) (0x80 | (code & 0x3f));

    return to;
}


size_t
sbx_json_unmark(uint8_t *s, size_t len)
{
    uint8_t        *to;
    uint32_t        code;
    const uint8_t  *p, *end;

    to = s;
    end = s + len;

    for (p = s; p < end; /* void */ ) {

        if (*p != SBX_JSON_MARK) {
            *to++ = *p++;
            continue;
        }

        switch (p[1]) {

        case 'u':
            code = (uint32_t) sbx_json_hex(p + 2, 4);
            p += 6;

            if (code >= 0xd800 && code <= 0xdbff) {
                code = 0x10000 + ((code & 0x3ff) << 10)
                       + ((uint32_t) sbx_json_hex(p + 2, 4) & 0x3ff);
                p += 6;
            }

            to = sbx_json_character(to, code);
            continue;

        case 'b': *to++ = '\b'; break;
        case 'f': *to++ = '\f'; break;
        case 'n': *to++ = '\n'; break;
        case 'r': *to++ = '\r'; break;
        case 't': *to++ = '\t'; break;
        case 'q': *to++ = '"'; break;
        case 's': *to++ = '\\'; break;
        default: *to++ = p[1];
        }

        p += 2;
    }

    return (size_t) (to - s);
}
