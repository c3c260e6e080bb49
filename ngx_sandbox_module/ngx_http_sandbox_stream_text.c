/*
 * Text of a stream's events, which comes in pieces.
 */

#include "ngx_http_sandbox_stream.h"


size_t
ngx_http_sandbox_text_tail(const u_char *p, size_t len)
{
    u_char  lead, low, high;
    size_t  n, size;

    for (n = 1; n <= 3 && n <= len; n++) {
        lead = p[len - n];

        if ((lead & 0xc0) == 0x80) {
            continue;
        }

        if (lead < 0xc2 || lead > 0xf4) {
            return 0;
        }

        size = (lead < 0xe0) ? 2 : (lead < 0xf0) ? 3 : 4;
        low = (lead == 0xe0) ? 0xa0 : (lead == 0xf0) ? 0x90 : 0x80;
        high = (lead == 0xed) ? 0x9f : (lead == 0xf4) ? 0x8f : 0xbf;

        if (n >= size
            || (n > 1 && (p[len - n + 1] < low || p[len - n + 1] > high)))
        {
            return 0;
        }

        return n;
    }

    return 0;
}


ngx_int_t
ngx_http_sandbox_stream_whole(ngx_http_sandbox_stream_t *s,
    ngx_http_sandbox_text_t *text, const u_char **data, size_t *len,
    ngx_uint_t all)
{
    u_char  *joined;
    size_t   tail;

    text->offset += *len;

    if (text->tail_len != 0) {

        if (ngx_http_sandbox_stream_room(s) != NGX_OK) {
            return NGX_ERROR;
        }

        joined = ngx_pnalloc(s->pool, text->tail_len + *len);

        if (joined == NULL) {
            return NGX_ERROR;
        }

        ngx_memcpy(joined, text->tail, text->tail_len);

        if (*len != 0) {
            ngx_memcpy(joined + text->tail_len, *data, *len);
        }

        *data = joined;
        *len += text->tail_len;
    }

    tail = all ? 0 : ngx_http_sandbox_text_tail(*data, *len);
    *len -= tail;

    if (tail != 0) {
        ngx_memcpy(text->tail, *data + *len, tail);
    }

    text->tail_len = tail;

    return NGX_OK;
}


ngx_int_t
ngx_http_sandbox_stream_text(ngx_http_sandbox_stream_t *s, const char *type,
    ngx_http_sandbox_text_t *text, ngx_uint_t base64, const u_char *data,
    size_t len, ngx_uint_t last)
{
    uint64_t                  offset;
    ngx_http_sandbox_json_t  *j;

    offset = text->offset - text->tail_len;

    if (ngx_http_sandbox_stream_whole(s, text, &data, &len, base64 || last)
        != NGX_OK)
    {
        return NGX_ERROR;
    }

    if (len == 0) {
        return NGX_OK;
    }

    j = ngx_http_sandbox_stream_event(s, type);

    ngx_http_sandbox_json_raw(j, ",\"data\":");

    if (base64) {
        ngx_http_sandbox_json_base64(j, data, len);

    } else {
        ngx_http_sandbox_json_string(j, data, len);
    }

    ngx_http_sandbox_json_raw(j, ",\"offset\":");
    ngx_http_sandbox_json_int(j, (int64_t) offset);

    return ngx_http_sandbox_stream_send(s);
}
