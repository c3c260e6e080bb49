/*
 * Which form of a stream a request asks for.
 */

#include "ngx_http_sandbox_stream.h"


static const struct {
    ngx_str_t                    type;
    ngx_http_sandbox_stream_e    form;
} ngx_http_sandbox_stream_types[] = {
    { ngx_string("application/x-ndjson"), NGX_HTTP_SANDBOX_STREAM_NDJSON },
    { ngx_string("text/event-stream"), NGX_HTTP_SANDBOX_STREAM_SSE },
    { ngx_string("application/json"), NGX_HTTP_SANDBOX_STREAM_NONE },
    { ngx_string("application/*"), NGX_HTTP_SANDBOX_STREAM_NONE },
    { ngx_string("*/*"), NGX_HTTP_SANDBOX_STREAM_NONE },
    { ngx_null_string, NGX_HTTP_SANDBOX_STREAM_NONE }
};


/* The weight of a range in thousandths, from its parameters. */

static ngx_uint_t
ngx_http_sandbox_stream_weight(const u_char *p, const u_char *end)
{
    ngx_uint_t  q, unit;

    for ( /* void */ ; p < end; p++) {

        if (end - p < 3 || *p != ';') {
            continue;
        }

        do {
            p++;
        } while (p < end && (*p == ' ' || *p == '\t'));

        if (end - p < 3 || (p[0] | 0x20) != 'q' || p[1] != '=') {
            p--;
            continue;
        }

        p += 2;
        q = (*p == '1') ? 1000 : 0;

        if (++p < end && *p == '.' && q == 0) {
            for (unit = 100, p++;
                 p < end && *p >= '0' && *p <= '9';
                 p++, unit /= 10)
            {
                q += unit * (*p - '0');
            }
        }

        return q;
    }

    return 1000;
}


/* One header's ranges; of equals the first counts. */

static void
ngx_http_sandbox_stream_ranges(const ngx_str_t *accept, ngx_uint_t *best,
    ngx_http_sandbox_stream_e *form)
{
    size_t      len, i;
    u_char     *p, *end, *stop;
    ngx_uint_t  q;

    p = accept->data;
    end = p + accept->len;

    for ( /* void */ ; p < end; p = stop + 1) {

        while (p < end && (*p == ' ' || *p == '\t')) {
            p++;
        }

        stop = ngx_strlchr(p, end, ',');

        if (stop == NULL) {
            stop = end;
        }

        for (len = 0; p + len < stop; len++) {
            if (p[len] == ';' || p[len] == ' ' || p[len] == '\t') {
                break;
            }
        }

        for (i = 0; ngx_http_sandbox_stream_types[i].type.len != 0; i++) {
            if (ngx_http_sandbox_stream_types[i].type.len != len
                || ngx_strncasecmp(ngx_http_sandbox_stream_types[i].type.data,
                                   p, len)
                   != 0)
            {
                continue;
            }

            q = ngx_http_sandbox_stream_weight(p + len, stop);

            if (q > *best) {
                *best = q;
                *form = ngx_http_sandbox_stream_types[i].form;
            }
        }
    }
}


ngx_http_sandbox_stream_e
ngx_http_sandbox_stream_asked(ngx_http_request_t *r)
{
    ngx_uint_t                 i, best;
    ngx_list_part_t           *part;
    ngx_table_elt_t           *header;
    ngx_http_sandbox_stream_e  form;

    best = 0;
    form = NGX_HTTP_SANDBOX_STREAM_NONE;

    for (part = &r->headers_in.headers.part; part; part = part->next) {
        header = part->elts;

        for (i = 0; i < part->nelts; i++) {
            if (header[i].key.len == sizeof("accept") - 1
                && ngx_strncasecmp(header[i].key.data, (u_char *) "accept",
                                   sizeof("accept") - 1)
                   == 0)
            {
                ngx_http_sandbox_stream_ranges(&header[i].value, &best,
                                               &form);
            }
        }
    }

    return form;
}


ngx_str_t
ngx_http_sandbox_stream_type(ngx_http_sandbox_stream_e form)
{
    ngx_uint_t  i;

    for (i = 0; ngx_http_sandbox_stream_types[i].form != form; i++) {
        /* void */
    }

    return ngx_http_sandbox_stream_types[i].type;
}
