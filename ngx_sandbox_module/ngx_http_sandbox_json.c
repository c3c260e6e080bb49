#include "ngx_http_sandbox.h"
#include "ngx_http_sandbox_stream.h"


#define NGX_HTTP_SANDBOX_JSON_FIRST    1024
#define NGX_HTTP_SANDBOX_JSON_BLOCK    65536

/* the longest that stands for one character: two escapes */
#define NGX_HTTP_SANDBOX_JSON_WIDEST   12

/* above which an answer goes out in pieces */
#define NGX_HTTP_SANDBOX_JSON_WHOLE    65536


static u_char *ngx_http_sandbox_json_reserve(ngx_http_sandbox_json_t *j,
    size_t least, size_t *room);
static u_char *ngx_http_sandbox_json_escape(
    const ngx_http_sandbox_json_t *j, u_char *to, const u_char *p,
    size_t len);
static u_char *ngx_http_sandbox_json_unit(u_char *to, uint32_t c);
static size_t ngx_http_sandbox_json_utf8(const u_char *p, size_t len,
    ngx_uint_t *valid);


/* What ASCII characters are in a string; NULL: themselves. */

static const char *const  ngx_http_sandbox_json_escapes[0x80] = {
    "\\u0000", "\\u0001", "\\u0002", "\\u0003",
    "\\u0004", "\\u0005", "\\u0006", "\\u0007",
    "\\b",     "\\t",     "\\n",     "\\u000b",
    "\\f",     "\\r",     "\\u000e", "\\u000f",
    "\\u0010", "\\u0011", "\\u0012", "\\u0013",
    "\\u0014", "\\u0015", "\\u0016", "\\u0017",
    "\\u0018", "\\u0019", "\\u001a", "\\u001b",
    "\\u001c", "\\u001d", "\\u001e", "\\u001f",
    ['"'] = "\\\"", ['\\'] = "\\\\"
};


void
ngx_http_sandbox_json_init(ngx_http_sandbox_json_t *j, ngx_pool_t *pool)
{
    j->pool = pool;
    j->out = NULL;
    j->last = &j->out;
    j->buf = NULL;
    j->size = 0;
    j->failed = 0;
    j->ascii = 0;
    j->later = 0;
}


/* Where to write, and how much fits, which is at least so much; NULL when out
 * of memory. */

static u_char *
ngx_http_sandbox_json_reserve(ngx_http_sandbox_json_t *j, size_t least,
    size_t *room)
{
    size_t        size;
    ngx_buf_t    *b;
    ngx_chain_t  *cl;

    b = j->buf;

    if (b == NULL || (size_t) (b->end - b->last) < least) {
        size = NGX_HTTP_SANDBOX_JSON_FIRST;

        if (b != NULL) {
            size = ngx_min(2 * (size_t) (b->end - b->start),
                           NGX_HTTP_SANDBOX_JSON_BLOCK);
            size = ngx_max(size, NGX_HTTP_SANDBOX_JSON_FIRST);
        }

        cl = ngx_alloc_chain_link(j->pool);
        b = ngx_create_temp_buf(j->pool, size);

        if (cl == NULL || b == NULL) {
            j->failed = 1;
            return NULL;
        }

        cl->buf = b;
        cl->next = NULL;

        *j->last = cl;
        j->last = &cl->next;
        j->buf = b;
    }

    *room = b->end - b->last;

    return b->last;
}


void
ngx_http_sandbox_json_raw(ngx_http_sandbox_json_t *j, const char *s)
{
    ngx_http_sandbox_json_raw_len(j, s, ngx_strlen(s));
}


void
ngx_http_sandbox_json_raw_len(ngx_http_sandbox_json_t *j, const void *s,
    size_t len)
{
    u_char        *p;
    size_t         n;
    const u_char  *from;

    from = s;

    while (len != 0 && !j->failed) {
        p = ngx_http_sandbox_json_reserve(j, 1, &n);

        if (p == NULL) {
            return;
        }

        n = ngx_min(n, len);
        j->buf->last = ngx_cpymem(p, from, n);
        j->size += n;

        from += n;
        len -= n;
    }
}


/*
 * The length of the UTF-8 sequence at p, which is not ASCII; of an invalid
 * one, that of its longest part that some valid sequence begins with.
 */

static size_t
ngx_http_sandbox_json_utf8(const u_char *p, size_t len, ngx_uint_t *valid)
{
    size_t      i, n;
    u_char      low, high;
    ngx_uint_t  k;

    static const struct {
        u_char  first;
        u_char  last;
        u_char  low;           /* bounds of the second byte */
        u_char  high;
        u_char  size;
    } leads[] = {
        { 0xc2, 0xdf, 0x80, 0xbf, 2 },
        { 0xe0, 0xe0, 0xa0, 0xbf, 3 },
        { 0xe1, 0xec, 0x80, 0xbf, 3 },
        { 0xed, 0xed, 0x80, 0x9f, 3 },
        { 0xee, 0xef, 0x80, 0xbf, 3 },
        { 0xf0, 0xf0, 0x90, 0xbf, 4 },
        { 0xf1, 0xf3, 0x80, 0xbf, 4 },
        { 0xf4, 0xf4, 0x80, 0x8f, 4 },
        { 0, 0, 0, 0, 0 }
    };

    *valid = 0;

    for (k = 0; leads[k].size != 0; k++) {
        if (p[0] >= leads[k].first && p[0] <= leads[k].last) {
            break;
        }
    }

    if (leads[k].size == 0) {
        return 1;
    }

    low = leads[k].low;
    high = leads[k].high;
    n = ngx_min(len, leads[k].size);

    for (i = 1; i < n; i++) {
        if (p[i] < low || p[i] > high) {
            return i;
        }

        low = 0x80;
        high = 0xbf;
    }

    *valid = (n == leads[k].size);

    return n;
}


void
ngx_http_sandbox_json_string(ngx_http_sandbox_json_t *j, const void *s,
    size_t len)
{
    ngx_http_sandbox_json_raw_len(j, "\"", 1);
    ngx_http_sandbox_json_chars(j, s, len);
    ngx_http_sandbox_json_raw_len(j, "\"", 1);
}


void
ngx_http_sandbox_json_chars(ngx_http_sandbox_json_t *j, const void *s,
    size_t len)
{
    size_t         n;
    u_char        *to, *begin, *end;
    ngx_uint_t     valid;
    const char    *escape;
    const u_char  *p;

    p = s;

    while (len != 0 && !j->failed) {
        begin = ngx_http_sandbox_json_reserve(j,
                                       NGX_HTTP_SANDBOX_JSON_WIDEST, &n);

        if (begin == NULL) {
            return;
        }

        to = begin;
        end = begin + n - NGX_HTTP_SANDBOX_JSON_WIDEST;

        while (len != 0 && to <= end) {
            n = 1;

            if (*p >= 0x80) {
                n = ngx_http_sandbox_json_utf8(p, len, &valid);
                to = valid ? ngx_http_sandbox_json_escape(j, to, p, n)
                           : ngx_http_sandbox_json_escape(j, to,
                                              (u_char *) "\xef\xbf\xbd", 3);

            } else {
                escape = ngx_http_sandbox_json_escapes[*p];

                if (escape == NULL) {
                    *to++ = *p;

                } else {
                    do {
                        *to++ = (u_char) *escape++;
                    } while (*escape != '\0');
                }
            }

            p += n;
            len -= n;
        }

        j->buf->last = to;
        j->size += to - begin;
    }
}


/* One character that is not ASCII, of a string: the end of what is written,
 * which is no more than JSON_WIDEST. */

static u_char *
ngx_http_sandbox_json_escape(const ngx_http_sandbox_json_t *j, u_char *to,
    const u_char *p, size_t len)
{
    size_t    i;
    uint32_t  c;

    if (!j->ascii) {
        return ngx_cpymem(to, p, len);
    }

    c = p[0] & (0xff >> (len + 1));

    for (i = 1; i < len; i++) {
        c = c << 6 | (p[i] & 0x3f);
    }

    if (c > 0xffff) {
        c -= 0x10000;
        to = ngx_http_sandbox_json_unit(to, 0xd800 | c >> 10);
        c = 0xdc00 | (c & 0x3ff);
    }

    return ngx_http_sandbox_json_unit(to, c);
}


static u_char *
ngx_http_sandbox_json_unit(u_char *to, uint32_t c)
{
    ngx_uint_t  shift;

    static const u_char  hex[] = "0123456789abcdef";

    *to++ = '\\';
    *to++ = 'u';

    for (shift = 16; shift != 0; shift -= 4) {
        *to++ = hex[c >> (shift - 4) & 0xf];
    }

    return to;
}


/* Only white space of its own may break a line, and only its strings have
 * what is not ASCII. */

void
ngx_http_sandbox_json_value(ngx_http_sandbox_json_t *j, const void *text,
    size_t len)
{
    size_t         i, n;
    ngx_uint_t     valid;
    const u_char  *p;

    p = text;

    while (len != 0 && !j->failed) {

        for (i = 0; i < len; i++) {
            if (p[i] == '\n' || p[i] == '\r' || (p[i] >= 0x80 && j->ascii)) {
                break;
            }
        }

        ngx_http_sandbox_json_raw_len(j, p, i);

        p += i;
        len -= i;

        if (len == 0) {
            return;
        }

        n = 1;

        if (*p >= 0x80) {
            n = ngx_http_sandbox_json_utf8(p, len, &valid);
            ngx_http_sandbox_json_chars(j, p, n);
        }

        p += n;
        len -= n;
    }
}


void
ngx_http_sandbox_json_copy(ngx_http_sandbox_json_t *j,
    const ngx_http_sandbox_json_t *from, size_t skip)
{
    size_t              n;
    const ngx_chain_t  *cl;

    for (cl = from->out; cl != NULL; cl = cl->next) {
        n = cl->buf->last - cl->buf->pos;

        if (n > skip) {
            ngx_http_sandbox_json_raw_len(j, cl->buf->pos + skip, n - skip);
        }

        skip -= ngx_min(n, skip);
    }

    j->failed |= from->failed;
}


void
ngx_http_sandbox_json_refer(ngx_http_sandbox_json_t *j,
    const ngx_http_sandbox_json_t *from, size_t skip)
{
    size_t              n;
    ngx_buf_t          *b;
    ngx_chain_t        *cl;
    const ngx_chain_t  *next;

    if (from->size <= NGX_HTTP_SANDBOX_JSON_WHOLE) {
        ngx_http_sandbox_json_copy(j, from, skip);
        return;
    }

    for (next = from->out; next != NULL && !j->failed; next = next->next) {
        n = next->buf->last - next->buf->pos;

        if (n <= skip) {
            skip -= n;
            continue;
        }

        b = ngx_calloc_buf(j->pool);
        cl = ngx_alloc_chain_link(j->pool);

        if (b == NULL || cl == NULL) {
            j->failed = 1;
            return;
        }

        b->pos = next->buf->pos + skip;
        b->last = next->buf->last;
        b->start = b->pos;
        b->end = b->last;                      /* no room */
        b->memory = 1;

        cl->buf = b;
        cl->next = NULL;

        *j->last = cl;
        j->last = &cl->next;
        j->buf = b;
        j->size += n - skip;
        skip = 0;
    }

    j->failed |= from->failed;
}


void
ngx_http_sandbox_json_join(ngx_http_sandbox_json_t *j,
    ngx_http_sandbox_json_t *from)
{
    j->failed |= from->failed;

    if (from->out != NULL) {
        *j->last = from->out;
        j->last = from->last;
        j->buf = from->buf;
        j->size += from->size;
        j->later |= from->later;
    }
}


void
ngx_http_sandbox_json_cstring(ngx_http_sandbox_json_t *j, const char *s)
{
    ngx_http_sandbox_json_string(j, s, ngx_strlen(s));
}


void
ngx_http_sandbox_json_base64(ngx_http_sandbox_json_t *j, const void *s,
    size_t len)
{
    ngx_http_sandbox_json_raw_len(j, "\"", 1);
    ngx_http_sandbox_json_base64_piece(j, s, len);
    ngx_http_sandbox_json_raw_len(j, "\"", 1);
}


void
ngx_http_sandbox_json_base64_piece(ngx_http_sandbox_json_t *j, const void *s,
    size_t len)
{
    u_char         buf[1024];
    size_t         n;
    ngx_str_t      from, to;
    const u_char  *p;

    p = s;

    while (len != 0 && !j->failed) {

        /* multiples of three bytes need no padding */

        n = ngx_min(len, 3 * sizeof(buf) / 4);

        from.data = (u_char *) p;
        from.len = n;
        to.data = buf;

        ngx_encode_base64(&to, &from);
        ngx_http_sandbox_json_raw_len(j, to.data, to.len);

        p += n;
        len -= n;
    }
}


void
ngx_http_sandbox_json_piece(ngx_http_sandbox_json_t *j,
    ngx_http_sandbox_json_tail_t *tail, const u_char *data, size_t len,
    ngx_uint_t last)
{
    size_t  n, kept;

    while (tail->len != 0 && len != 0) {

        /* byte by byte, until it is a whole one or none */

        tail->bytes[tail->len++] = *data++;
        len--;
        n = tail->len;

        kept = (last && len == 0) ? 0
               : ngx_http_sandbox_text_tail(tail->bytes, n);

        ngx_http_sandbox_json_chars(j, tail->bytes, n - kept);
        ngx_memmove(tail->bytes, tail->bytes + n - kept, kept);
        tail->len = kept;
    }

    kept = last ? 0 : ngx_http_sandbox_text_tail(data, len);

    ngx_http_sandbox_json_chars(j, data, len - kept);

    if (kept != 0) {
        ngx_memcpy(tail->bytes, data + len - kept, kept);
        tail->len = kept;
    }
}


void
ngx_http_sandbox_json_int(ngx_http_sandbox_json_t *j, int64_t n)
{
    u_char  buf[NGX_INT64_LEN], *p;

    p = ngx_sprintf(buf, "%L", n);
    ngx_http_sandbox_json_raw_len(j, buf, p - buf);
}


void
ngx_http_sandbox_json_bool(ngx_http_sandbox_json_t *j, ngx_uint_t b)
{
    ngx_http_sandbox_json_raw(j, b ? "true" : "false");
}


void
ngx_http_sandbox_json_seconds(ngx_http_sandbox_json_t *j, uint64_t us)
{
    u_char  buf[NGX_INT64_LEN + 8], *p;

    p = ngx_sprintf(buf, "%uL.%06uL", us / 1000000, us % 1000000);

    while (p[-1] == '0') {
        p--;
    }

    if (p[-1] == '.') {
        p--;
    }

    ngx_http_sandbox_json_raw_len(j, buf, p - buf);
}


void
ngx_http_sandbox_json_time(ngx_http_sandbox_json_t *j, int64_t ms)
{
    u_char    buf[NGX_INT64_LEN + sizeof("\"-00-00T00:00:00.000Z\"")], *p;
    ngx_tm_t  tm;

    /* a file's time may be before 1970, which is told as that */

    if (ms < 0) {
        ms = 0;
    }

    ngx_gmtime((time_t) (ms / 1000), &tm);

    p = ngx_sprintf(buf, "\"%4d-%02d-%02dT%02d:%02d:%02d.%03dZ\"",
                    tm.ngx_tm_year, tm.ngx_tm_mon, tm.ngx_tm_mday,
                    tm.ngx_tm_hour, tm.ngx_tm_min, tm.ngx_tm_sec,
                    (int) (ms % 1000));

    ngx_http_sandbox_json_raw_len(j, buf, p - buf);
}


ngx_int_t
ngx_http_sandbox_json_send(ngx_http_request_t *r, ngx_uint_t status,
    ngx_http_sandbox_json_t *j)
{
    return ngx_http_sandbox_json_send_as(r, status, "application/json", j);
}


ngx_int_t
ngx_http_sandbox_json_send_as(ngx_http_request_t *r, ngx_uint_t status,
    const char *type, ngx_http_sandbox_json_t *j)
{
    ngx_int_t   rc;
    ngx_str_t   value;

    if (r->header_sent) {
        return NGX_ERROR;
    }

    ngx_str_set(&value, "no-store");

    if (j->failed
        || ngx_http_sandbox_add_header(r, "Cache-Control", &value) != NGX_OK)
    {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    /* conditions of the request are about files, not about this text */

    r->disable_not_modified = 1;

    r->headers_out.status = status;
    r->headers_out.status_line.len = 0;
    r->headers_out.content_length_n = j->later ? -1 : j->size;
    r->headers_out.content_type.data = (u_char *) type;
    r->headers_out.content_type.len = ngx_strlen(type);
    r->headers_out.content_type_len = r->headers_out.content_type.len;
    r->headers_out.content_type_lowcase = NULL;

    if (j->out == NULL) {
        r->header_only = 1;
    }

    rc = ngx_http_send_header(r);

    if (rc == NGX_ERROR || rc > NGX_OK || r->header_only) {
        return rc;
    }

    if (j->later || j->size > NGX_HTTP_SANDBOX_JSON_WHOLE) {
        return ngx_http_sandbox_answer(r, j->out);
    }

    j->buf->last_buf = 1;
    j->buf->last_in_chain = 1;

    return ngx_http_output_filter(r, j->out);
}


ngx_int_t
ngx_http_sandbox_add_header(ngx_http_request_t *r, const char *key,
    ngx_str_t *value)
{
    ngx_table_elt_t  *h;

    h = ngx_list_push(&r->headers_out.headers);

    if (h == NULL) {
        return NGX_ERROR;
    }

    ngx_memzero(h, sizeof(ngx_table_elt_t));

    h->hash = 1;
    h->key.data = (u_char *) key;
    h->key.len = ngx_strlen(key);
    h->value = *value;

    return NGX_OK;
}
