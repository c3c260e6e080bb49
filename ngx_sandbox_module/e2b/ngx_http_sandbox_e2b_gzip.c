/*
 * Bodies that come as gzip.  One may be several members, one after the other;
 * whatever else follows a member's end is no gzip.
 */

#include "ngx_http_sandbox_e2b_files.h"

#include <zlib.h>


struct ngx_http_sandbox_e2b_gunzip_s {
    z_stream       z;
    ngx_pool_t    *pool;
    unsigned       begun:1;        /* a member has, and has not ended */
    unsigned       whole:1;        /* one has ended */
};


static void *ngx_http_sandbox_e2b_gunzip_alloc(void *opaque, u_int items,
    u_int size);
static void ngx_http_sandbox_e2b_gunzip_free(void *opaque, void *address);


ngx_http_sandbox_e2b_gunzip_t *
ngx_http_sandbox_e2b_gunzip_create(ngx_http_request_t *r)
{
    ngx_http_sandbox_e2b_gunzip_t  *gunzip;

    gunzip = ngx_pcalloc(r->pool, sizeof(ngx_http_sandbox_e2b_gunzip_t));

    if (gunzip == NULL) {
        return NULL;
    }

    gunzip->pool = r->pool;
    gunzip->z.zalloc = ngx_http_sandbox_e2b_gunzip_alloc;
    gunzip->z.zfree = ngx_http_sandbox_e2b_gunzip_free;
    gunzip->z.opaque = gunzip;

    /* 16: with gzip's header and checksum, and nothing else */

    return (inflateInit2(&gunzip->z, MAX_WBITS + 16) == Z_OK) ? gunzip
                                                              : NULL;
}


/* All of it goes with the pool. */

static void *
ngx_http_sandbox_e2b_gunzip_alloc(void *opaque, u_int items, u_int size)
{
    ngx_http_sandbox_e2b_gunzip_t  *gunzip = opaque;

    return ngx_palloc(gunzip->pool, (size_t) items * size);
}


static void
ngx_http_sandbox_e2b_gunzip_free(void *opaque, void *address)
{
    /* void */
}


ngx_int_t
ngx_http_sandbox_e2b_gunzip(ngx_http_sandbox_e2b_gunzip_t *gunzip,
    u_char **p, u_char *last, u_char *out, size_t size, size_t *n)
{
    int        rc;
    z_stream  *z;

    z = &gunzip->z;
    *n = 0;

    while (*n == 0) {

        if (!gunzip->begun) {

            if (*p == last) {
                return NGX_AGAIN;
            }

            if (gunzip->whole && inflateReset(z) != Z_OK) {
                return NGX_ERROR;
            }

            gunzip->begun = 1;
        }

        z->next_in = *p;
        z->avail_in = (u_int) (last - *p);
        z->next_out = out;
        z->avail_out = (u_int) size;

        rc = inflate(z, Z_NO_FLUSH);

        *p = z->next_in;
        *n = size - z->avail_out;

        switch (rc) {

        case Z_OK:
            break;

        case Z_STREAM_END:
            gunzip->begun = 0;
            gunzip->whole = 1;
            break;

        case Z_BUF_ERROR:

            /* nothing to be done with what there is */

            return NGX_AGAIN;

        case Z_MEM_ERROR:
            return NGX_ABORT;

        default:
            return NGX_ERROR;
        }
    }

    return NGX_OK;
}


ngx_uint_t
ngx_http_sandbox_e2b_gunzip_whole(const ngx_http_sandbox_e2b_gunzip_t *gunzip)
{
    return gunzip->whole && !gunzip->begun;
}
