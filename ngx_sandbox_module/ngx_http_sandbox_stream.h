/*
 * Streams of events.
 *
 * An answer that comes as it happens: a line of JSON for each event, or
 * Server-Sent Events.  Each is sent at once, and what is long of one in turns
 * of the worker.  While the client does not take what was sent, stream->call
 * is not read, so that whoever makes the events waits; memory holds the events
 * of one frame.  A stream that is idle pings.
 *
 *   s = ngx_http_sandbox_stream_create(r, form);  s->call = call;
 *   rc = ngx_http_sandbox_stream_open(s);
 *   j = ngx_http_sandbox_stream_event(s, "write");
 *   ngx_http_sandbox_json_raw(j, ",\"path\":");  ...
 *   return ngx_http_sandbox_stream_send(s);        in frame()
 *   rc = ngx_http_sandbox_stream_close(s);         to finalize with
 */

#ifndef _NGX_HTTP_SANDBOX_STREAM_H_INCLUDED_
#define _NGX_HTTP_SANDBOX_STREAM_H_INCLUDED_


#include "ngx_http_sandbox.h"


typedef enum {
    NGX_HTTP_SANDBOX_STREAM_NONE,
    NGX_HTTP_SANDBOX_STREAM_NDJSON,
    NGX_HTTP_SANDBOX_STREAM_SSE,
    NGX_HTTP_SANDBOX_STREAM_CONNECT, /* messages with their lengths before
                                        them: JSON text as the caller has it */
    NGX_HTTP_SANDBOX_STREAM_RAW      /* a connection that was upgraded */
} ngx_http_sandbox_stream_e;

typedef struct ngx_http_sandbox_stream_s  ngx_http_sandbox_stream_t;

struct ngx_http_sandbox_stream_s {
    ngx_http_request_t           *request;
    ngx_http_sandbox_call_t      *call;         /* the caller sets it */
    ngx_http_sandbox_stream_e     form;
    void                         *data;         /* the caller's own */

    /* This worker is to end: the callee closes the stream, its call, and
     * finalizes.  NULL: the stream goes on. */
    void                        (*leaving)(ngx_http_sandbox_stream_t *s);
    /* The same a little before worker_shutdown_timeout cuts what goes on;
     * NULL: it is cut. */
    void                        (*cut)(ngx_http_sandbox_stream_t *s);
    /* Says something when nothing was said for a while, and returns as
     * _send() does; set by _create(), for RAW by the caller. */
    ngx_int_t                   (*ping)(ngx_http_sandbox_stream_t *s);
    /* All that was sent has gone, before the call is read again; NULL: nobody
     * wants to know. */
    void                        (*gone)(ngx_http_sandbox_stream_t *s);
    ngx_msec_t                    idle;         /* that while; _create()'s */
    ngx_msec_t                    stay;         /* the worker's time to end,
                                                   for cut(), where there is
                                                   none; 0: none */

    /* what follows is the stream's own */
    ngx_buf_t                     nothing;
    ngx_chain_t                  *rest;         /* of a long event */
    ngx_event_t                   turn;         /* to send more of it */
    ngx_pool_t                   *pool;         /* of what is being sent */
    ngx_http_sandbox_json_t       json;
    ngx_event_t                   timer;
    ngx_event_t                   cutter;
    ngx_msec_t                    last;         /* when something was sent */
    unsigned                      late:1;       /* the worker is to end */
    unsigned                      over:1;
    unsigned                      ended:1;      /* CONNECT: its last message
                                                   is written */
};

/* What the request's Accept prefers of what it names; NONE is JSON, or
 * nothing of these. */
ngx_http_sandbox_stream_e ngx_http_sandbox_stream_asked(
    ngx_http_request_t *r);
/* The media type of NDJSON and SSE. */
ngx_str_t ngx_http_sandbox_stream_type(ngx_http_sandbox_stream_e form);

/* NULL when out of memory. */
ngx_http_sandbox_stream_t *ngx_http_sandbox_stream_create(
    ngx_http_request_t *r, ngx_http_sandbox_stream_e form);

/* Sends the header.  NGX_OK; NGX_DONE where it was all (HEAD): to be
 * finalized with NGX_OK; NGX_ERROR. */
ngx_int_t ngx_http_sandbox_stream_open(ngx_http_sandbox_stream_t *s);

/* Begins an event, up to its type; members follow, with a comma before each,
 * and no brace.  It is _send()'s after that.  CONNECT has no type: all of the
 * text follows, with its braces. */
ngx_http_sandbox_json_t *ngx_http_sandbox_stream_event(
    ngx_http_sandbox_stream_t *s, const char *type);

/* The same for the last message of CONNECT, which _close() else writes: it
 * tells how all ended. */
ngx_http_sandbox_json_t *ngx_http_sandbox_stream_trailer(
    ngx_http_sandbox_stream_t *s);

/* NGX_OK; NGX_AGAIN: the client is behind, and call is to be stopped, as
 * frame() does by returning it; NGX_ERROR: to be finalized with. */
ngx_int_t ngx_http_sandbox_stream_send(ngx_http_sandbox_stream_t *s);

/* The same with bytes as they are, for RAW.  They are copied. */
ngx_int_t ngx_http_sandbox_stream_bytes(ngx_http_sandbox_stream_t *s,
    const void *head, size_t head_len, const void *data, size_t len);

/* For the call: this worker is to end. */
void ngx_http_sandbox_stream_leave(ngx_http_sandbox_stream_t *s);

/* Its request is about to be finalized: no timer of it does so again. */
void ngx_http_sandbox_stream_quiet(ngx_http_sandbox_stream_t *s);

/* Whether the client has yet to take something. */
ngx_uint_t ngx_http_sandbox_stream_behind(ngx_http_sandbox_stream_t *s);

/* Makes the stream's pool, for what goes with the next event. */
ngx_int_t ngx_http_sandbox_stream_room(ngx_http_sandbox_stream_t *s);

/* _send() and _close() in one. */
ngx_int_t ngx_http_sandbox_stream_last(ngx_http_sandbox_stream_t *s);

/* Ends the body; what to finalize with.  Call it once. */
ngx_int_t ngx_http_sandbox_stream_close(ngx_http_sandbox_stream_t *s);


/*
 * A text that comes in pieces which may end within a character: that part is
 * kept for the next piece.
 */

typedef struct {
    uint64_t                      offset;       /* of what comes next */
    u_char                        tail[4];
    size_t                        tail_len;     /* before .offset */
} ngx_http_sandbox_text_t;

/* How many bytes at the end may be the beginning of a character. */
size_t ngx_http_sandbox_text_tail(const u_char *p, size_t len);

/* Of what was kept and what comes now, the whole characters, or all of it;
 * they are there until the next event. */
ngx_int_t ngx_http_sandbox_stream_whole(ngx_http_sandbox_stream_t *s,
    ngx_http_sandbox_text_t *text, const u_char **data, size_t *len,
    ngx_uint_t all);

/*
 * An event of what can be told by now, {"type","data","offset"}; with "last"
 * of all.  Returns as _send(); NGX_OK where there is nothing to tell.
 */
ngx_int_t ngx_http_sandbox_stream_text(ngx_http_sandbox_stream_t *s,
    const char *type, ngx_http_sandbox_text_t *text, ngx_uint_t base64,
    const u_char *data, size_t len, ngx_uint_t last);


#endif /* _NGX_HTTP_SANDBOX_STREAM_H_INCLUDED_ */
