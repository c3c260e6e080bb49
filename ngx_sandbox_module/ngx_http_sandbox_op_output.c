/*
 * Output of what runs: how much of it is kept, and how long it may be silent.
 */

#include "ngx_http_sandbox_op.h"


/* how much longer than its command's time-out a call may be silent */
#define NGX_HTTP_SANDBOX_OP_GRACE        15000

/* whole groups of base64, so that each block is encoded by itself */
#define NGX_HTTP_SANDBOX_OP_OUTPUT_FIRST 6144
#define NGX_HTTP_SANDBOX_OP_OUTPUT_BLOCK 196608

/* up to which it is written into an answer at once */
#define NGX_HTTP_SANDBOX_OP_OUTPUT_SHORT 12288

#define NGX_HTTP_SANDBOX_OP_OWN          (1024 * 1024)
#define NGX_HTTP_SANDBOX_OP_SHARED       (256 * 1024 * 1024)


static void ngx_http_sandbox_op_unshare(void *data);
static size_t ngx_http_sandbox_op_output_room(ngx_http_request_t *r,
    ngx_http_sandbox_op_output_t *output, size_t len);
static ngx_int_t ngx_http_sandbox_op_output_block(ngx_pool_t *pool,
    ngx_http_sandbox_op_output_t *output);


/* This worker's. */

static size_t  ngx_http_sandbox_op_shared;


ngx_msec_t
ngx_http_sandbox_op_silence(ngx_http_sandbox_main_conf_t *smcf,
    uint64_t timeout)
{
    if (timeout == SBX_UNSET) {
        timeout = smcf->max.exec_timeout;
    }

    if (timeout >= SBX_UNLIMITED || timeout > smcf->max.timeout) {
        timeout = smcf->max.timeout;
    }

    /* the timers of nginx wrap; a day is what anything here lasts */

    if (timeout > 25 * 86400 * (uint64_t) 1000) {
        return 0;
    }

    return (ngx_msec_t) timeout + NGX_HTTP_SANDBOX_OP_GRACE;
}


ngx_int_t
ngx_http_sandbox_op_share(ngx_http_request_t *r, size_t **shared, size_t len)
{
    size_t               above, room;
    ngx_pool_cleanup_t  *cln;

    above = (len > NGX_HTTP_SANDBOX_OP_OWN) ? len - NGX_HTTP_SANDBOX_OP_OWN
                                            : 0;

    if (*shared == NULL) {

        if (above == 0) {
            return NGX_OK;
        }

        cln = ngx_pool_cleanup_add(r->pool, sizeof(size_t));

        if (cln == NULL) {
            return NGX_DECLINED;
        }

        *shared = cln->data;
        **shared = 0;
        cln->handler = ngx_http_sandbox_op_unshare;
    }

    room = NGX_HTTP_SANDBOX_OP_SHARED - ngx_http_sandbox_op_shared
           + **shared;

    if (above > room) {
        return NGX_DECLINED;
    }

    ngx_http_sandbox_op_shared -= **shared;
    ngx_http_sandbox_op_shared += above;
    **shared = above;

    return NGX_OK;
}


ngx_uint_t
ngx_http_sandbox_op_full(ngx_http_request_t *r, size_t size, size_t max)
{
    return size > max
           || ngx_http_sandbox_op_share(r, &ngx_http_sandbox_ctx(r)->listed,
                                        size)
              != NGX_OK;
}


ngx_int_t
ngx_http_sandbox_op_crowded(ngx_http_sandbox_call_t *call)
{
    return ngx_http_sandbox_op_finish(call,
               ngx_http_sandbox_problem(call->request,
                                        NGX_HTTP_SANDBOX_BROKER_UNAVAILABLE,
                                        "the worker holds as many answers "
                                        "that are not read yet as it may"));
}


/* Of what comes as much as there is room for. */

static size_t
ngx_http_sandbox_op_output_room(ngx_http_request_t *r,
    ngx_http_sandbox_op_output_t *output, size_t len)
{
    size_t  room;

    if (ngx_http_sandbox_op_share(r, &output->shared, output->len + len)
        == NGX_OK)
    {
        return len;
    }

    room = NGX_HTTP_SANDBOX_OP_OWN;

    if (output->shared != NULL) {
        room += NGX_HTTP_SANDBOX_OP_SHARED - ngx_http_sandbox_op_shared
                + *output->shared;
    }

    len = ngx_min(len, room - output->len);

    (void) ngx_http_sandbox_op_share(r, &output->shared, output->len + len);

    return len;
}


static void
ngx_http_sandbox_op_unshare(void *data)
{
    size_t  *shared = data;

    ngx_http_sandbox_op_shared -= *shared;
}


ngx_int_t
ngx_http_sandbox_op_output(ngx_http_request_t *r,
    ngx_http_sandbox_op_output_t *output, const u_char *data, size_t len)
{
    size_t      n;
    ngx_buf_t  *b;

    if (len > output->max - output->len) {
        len = (size_t) (output->max - output->len);
        output->over = 1;
    }

    n = ngx_http_sandbox_op_output_room(r, output, len);

    if (n < len) {

        /* there is to be no gap in it */

        len = n;
        output->max = output->len + n;
        output->over = 1;
    }

    while (len != 0) {
        b = (output->block == NULL) ? NULL : output->block->buf;

        if (b == NULL || b->last == b->end) {
            if (ngx_http_sandbox_op_output_block(r->pool, output) != NGX_OK) {
                return NGX_ERROR;
            }

            b = output->block->buf;
        }

        n = ngx_min(len, (size_t) (b->end - b->last));
        b->last = ngx_cpymem(b->last, data, n);

        output->len += n;
        data += n;
        len -= n;
    }

    return NGX_OK;
}


/* Each is twice as large as the one before, up to a bound. */

static ngx_int_t
ngx_http_sandbox_op_output_block(ngx_pool_t *pool,
    ngx_http_sandbox_op_output_t *output)
{
    size_t        size;
    ngx_buf_t    *b;
    ngx_chain_t  *cl;

    size = NGX_HTTP_SANDBOX_OP_OUTPUT_FIRST;

    b = (output->block != NULL) ? output->block->buf : NULL;

    if (b != NULL) {
        size = ngx_min(2 * (size_t) (b->end - b->start),
                       NGX_HTTP_SANDBOX_OP_OUTPUT_BLOCK);
    }

    size = (size_t) ngx_min((uint64_t) size, output->max - output->len);

    cl = ngx_alloc_chain_link(pool);
    b = ngx_create_temp_buf(pool, size);

    if (cl == NULL || b == NULL) {
        return NGX_ERROR;
    }

    cl->buf = b;
    cl->next = NULL;

    if (output->block == NULL) {
        output->blocks = cl;

    } else {
        output->block->next = cl;
    }

    output->block = cl;

    return NGX_OK;
}


ngx_int_t
ngx_http_sandbox_op_output_text(ngx_pool_t *pool,
    const ngx_http_sandbox_op_output_t *output, ngx_str_t *text)
{
    u_char             *p;
    const ngx_chain_t  *cl;

    p = ngx_pnalloc(pool, output->len);

    if (p == NULL) {
        return NGX_ERROR;
    }

    text->data = p;
    text->len = output->len;

    for (cl = output->blocks; cl != NULL; cl = cl->next) {
        p = ngx_cpymem(p, cl->buf->pos, cl->buf->last - cl->buf->pos);
    }

    return NGX_OK;
}


void
ngx_http_sandbox_op_output_json(ngx_http_sandbox_json_t *j,
    const ngx_http_sandbox_op_output_t *output, size_t len,
    ngx_http_sandbox_op_output_e as)
{
    size_t                         n;
    ngx_uint_t                     base64;
    const ngx_chain_t             *cl;
    ngx_http_sandbox_json_tail_t   tail;

    base64 = (as == NGX_HTTP_SANDBOX_OP_OUTPUT_BASE64);

    if (output->len > NGX_HTTP_SANDBOX_OP_OUTPUT_SHORT) {
        ngx_http_sandbox_json_later(j, output->blocks, len, base64,
                                    as != NGX_HTTP_SANDBOX_OP_OUTPUT_AGAIN);
        return;
    }

    tail.len = 0;

    ngx_http_sandbox_json_raw(j, "\"");

    for (cl = output->blocks; len != 0; cl = cl->next) {
        n = ngx_min(len, (size_t) (cl->buf->last - cl->buf->pos));
        len -= n;

        if (base64) {
            ngx_http_sandbox_json_base64_piece(j, cl->buf->pos, n);

        } else {
            ngx_http_sandbox_json_piece(j, &tail, cl->buf->pos, n, len == 0);
        }
    }

    ngx_http_sandbox_json_raw(j, "\"");
}


ngx_int_t
ngx_http_sandbox_op_output_frame(ngx_http_sandbox_call_t *call,
    ngx_http_sandbox_op_output_t *output, const u_char *data, size_t len)
{
    if (ngx_http_sandbox_op_output(call->request, output, data, len)
        != NGX_OK)
    {
        return ngx_http_sandbox_op_broken(call, "more than memory holds");
    }

    return NGX_OK;
}
