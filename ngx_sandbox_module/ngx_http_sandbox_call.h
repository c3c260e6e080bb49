/*
 * What the files of the calls share: ngx_http_sandbox_call.c has a call's
 * life and the way to the broker, _call_read.c what comes, _call_socket.c the
 * socket among that, _call_write.c what goes.
 */

#ifndef _NGX_HTTP_SANDBOX_CALL_H_INCLUDED_
#define _NGX_HTTP_SANDBOX_CALL_H_INCLUDED_


#include "ngx_http_sandbox.h"
#include "sandbox_fault.h"

#include <sys/socket.h>


/* Nothing of the call or of its request may be touched after it. */
void ngx_http_sandbox_call_fail(ngx_http_sandbox_call_t *call,
    ngx_http_sandbox_error_e error);

/* Waits for frames as long as the call's time-out says. */
void ngx_http_sandbox_call_arm(ngx_http_sandbox_call_t *call);

/* The session whose first process may have the other end; or "". */
const char *ngx_http_sandbox_call_watched(
    const ngx_http_sandbox_call_t *call);

/* The other side is gone without a word: sends the call again, once. */
void ngx_http_sandbox_call_lost(ngx_http_sandbox_call_t *call);


void ngx_http_sandbox_call_read_handler(ngx_event_t *rev);
/* Gives the buffer back, unless a frame in it is being delivered. */
void ngx_http_sandbox_call_release(ngx_http_sandbox_call_t *call);
void ngx_http_sandbox_call_free_spares(void);

/* A frame of type SOCKET: NGX_OK or NGX_ERROR; takes what it has brought. */
ngx_int_t ngx_http_sandbox_call_check_socket(ngx_http_sandbox_call_t *call,
    const u_char *payload, size_t len);
ngx_int_t ngx_http_sandbox_call_socket(ngx_http_sandbox_call_t *call);


void ngx_http_sandbox_call_write_handler(ngx_event_t *wev);
/* NGX_OK: all or what is possible now is sent, or nobody takes it. */
ngx_int_t ngx_http_sandbox_call_flush(ngx_http_sandbox_call_t *call);
/* What was sent will not be sent again: its blocks are free. */
void ngx_http_sandbox_call_recycle(ngx_http_sandbox_call_t *call);
/* All of it will. */
void ngx_http_sandbox_call_rewind(ngx_http_sandbox_call_t *call);
/* Nothing will be: its blocks are those of the request's next call. */
void ngx_http_sandbox_call_leave_blocks(ngx_http_sandbox_call_t *call);


#endif /* _NGX_HTTP_SANDBOX_CALL_H_INCLUDED_ */
