/*
 * Output of what runs: how much of it is kept, and how long it may be silent.
 */

#include "ngx_http_sandbox_op.h"


/* how much longer than its command's time-out a call may be silent */
#define NGX_HTTP_SANDBOX_OP_GRACE        15000

#define NGX_HTTP_SANDBOX_OP_OUTPUT_FIRST 8192


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


/* Room doubles up to the cap; large blocks of a pool can be given back. */

ngx_int_t
ngx_http_sandbox_op_output(ngx_http_request_t *r,
    ngx_http_sandbox_op_output_t *output, const u_char *data, size_t len)
{
    size_t   room;
    u_char  *p;

    if (len > output->max - output->len) {
        len = (size_t) (output->max - output->len);
        output->over = 1;
    }

    if (len == 0) {
        return NGX_OK;
    }

    if (len > output->room - output->len) {
        room = ngx_max(2 * output->room, NGX_HTTP_SANDBOX_OP_OUTPUT_FIRST);
        room = ngx_max(room, output->len + len);
        room = (size_t) ngx_min((uint64_t) room, output->max);

        p = ngx_pnalloc(r->pool, room);

        if (p == NULL) {
            return NGX_ERROR;
        }

        if (output->data != NULL) {
            ngx_memcpy(p, output->data, output->len);
            (void) ngx_pfree(r->pool, output->data);
        }

        output->data = p;
        output->room = room;
    }

    ngx_memcpy(output->data + output->len, data, len);
    output->len += len;

    return NGX_OK;
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
