/*
 * What the files of process.Process share.
 */

#ifndef _NGX_HTTP_SANDBOX_E2B_PROCESS_H_INCLUDED_
#define _NGX_HTTP_SANDBOX_E2B_PROCESS_H_INCLUDED_


#include "ngx_http_sandbox_e2b.h"


/* Which process: by its number or its tag. */

typedef struct {
    uint64_t                        pid;
    sbx_json_str_t                  tag;
    uint32_t                        has_pid;
    uint32_t                        has_tag;
} ngx_http_sandbox_e2b_selector_t;

extern const sbx_json_field_t  ngx_http_sandbox_e2b_selector_fields[];

/* Rows of a table of target: {"process":{...}}, and the same two
 * names beside it, as another client has them. */
#define NGX_HTTP_SANDBOX_E2B_SELECTOR(target, member)                         \
    { .name = "process", .type = SBX_JSON_OBJECT, .nullable = 1,              \
      .fields = ngx_http_sandbox_e2b_selector_fields,                         \
      .offset = offsetof(target, member) },                                   \
    { .name = "pid", .type = SBX_JSON_COUNT, .nullable = 1,                   \
      .max = NGX_MAX_UINT32_VALUE,                                            \
      .offset = offsetof(target, member.pid),                                 \
      .seen = offsetof(target, member.has_pid) },                             \
    { .name = "tag", .type = SBX_JSON_STRING, .nullable = 1,                  \
      .offset = offsetof(target, member.tag),                                 \
      .seen = offsetof(target, member.has_tag) }

/* The end of a table: what is not known is skipped. */
#define NGX_HTTP_SANDBOX_E2B_LAX                                              \
    { .name = NULL, .type = SBX_JSON_ANY, .lax = 1 }


/* {"size":{"rows","cols"}} */

typedef struct {
    uint64_t                        rows;
    uint64_t                        cols;
    uint32_t                        has_rows;
    uint32_t                        has_cols;
} ngx_http_sandbox_e2b_size_t;

extern const sbx_json_field_t  ngx_http_sandbox_e2b_pty_fields[];


/* NGX_OK and the frame's .pid or .tag; or it is refused, with what that
 * returned in *rc. */
ngx_int_t ngx_http_sandbox_e2b_select(ngx_http_request_t *r,
    const ngx_http_sandbox_e2b_selector_t *selector,
    sbx_f_process_t *process, ngx_int_t *rc);

/* A call with its PROCESS frame queued; NULL when out of memory. */
ngx_http_sandbox_call_t *ngx_http_sandbox_e2b_process_call(
    ngx_http_request_t *r, const sbx_f_process_t *process, void *data);

/*
 * An error of the core, told as this service tells it: for the finalizer.
 * What is refused because of how the process is made gets the given code.
 */
ngx_int_t ngx_http_sandbox_e2b_process_refuse(ngx_http_request_t *r,
    const sbx_f_process_t *process, const sbx_f_error_t *error,
    const char *code, const char *what);


/* What is written to a process. */

typedef struct {
    sbx_json_str_t                    in;         /* "stdin", base64 */
    sbx_json_str_t                    pty;        /* base64 */
    uint32_t                          has_in;
    uint32_t                          has_pty;
} ngx_http_sandbox_e2b_data_t;

typedef struct {
    ngx_http_sandbox_e2b_selector_t   process;
    ngx_http_sandbox_e2b_data_t       input;
    sbx_json_str_t                    text;       /* another client's */
    uint32_t                          has_text;
} ngx_http_sandbox_e2b_send_t;

typedef struct {
    ngx_http_sandbox_e2b_selector_t   process;
} ngx_http_sandbox_e2b_close_t;

extern const sbx_json_field_t  ngx_http_sandbox_e2b_send_fields[];
extern const sbx_json_field_t  ngx_http_sandbox_e2b_close_fields[];


/* A call that writes, or the calls of StreamInput, one after another. */

#define NGX_HTTP_SANDBOX_E2B_ENVELOPE   5

typedef struct {
    ngx_http_request_t               *request;
    ngx_http_sandbox_call_t          *call;       /* NULL: none is open */
    sbx_f_process_t                   process;    /* of the call */
    sbx_f_process_t                   next;       /* of that after it */
    u_char                            head[NGX_HTTP_SANDBOX_E2B_ENVELOPE];
    size_t                            head_len;
    u_char                           *message;
    size_t                            room;
    size_t                            size;       /* what it will have */
    size_t                            len;        /* what it has */
    ngx_event_t                       more;       /* the next turn */
    size_t                            turn;       /* what this one took */
    ngx_uint_t                        starts;
    unsigned                          closes:1;   /* CloseStdin */
    unsigned                          stream:1;   /* StreamInput */
    unsigned                          selected:1;
    unsigned                          fed:1;      /* something was written */
    unsigned                          ending:1;   /* the last STDIN is queued:
                                                     END is awaited */
    unsigned                          whole:1;    /* and nothing follows */
} ngx_http_sandbox_e2b_feed_t;


/* It is ctx->data; NULL when out of memory. */
ngx_http_sandbox_e2b_feed_t *ngx_http_sandbox_e2b_feed(
    ngx_http_request_t *r);

/* Makes the call, which is not started yet. */
ngx_int_t ngx_http_sandbox_e2b_feed_open(ngx_http_sandbox_e2b_feed_t *feed);

/* NGX_OK, the bytes in the pool and the process's SBX_PROCESS_* flag; or
 * NGX_DECLINED: it is refused, with what that returned in *rc. */
ngx_int_t ngx_http_sandbox_e2b_input(ngx_http_request_t *r,
    const ngx_http_sandbox_e2b_data_t *data, ngx_pool_t *pool,
    ngx_str_t *bytes, uint32_t *flag, ngx_int_t *rc);

/* {}, as a message and an end where it is a stream; for the finalizer. */
ngx_int_t ngx_http_sandbox_e2b_fed(ngx_http_request_t *r);

/* StreamInput goes on.  NGX_OK, or NGX_DONE when the request is over and
 * nothing of it may be touched. */
ngx_int_t ngx_http_sandbox_e2b_pump(ngx_http_sandbox_e2b_feed_t *feed);


/* The events of a process, sent as they come. */

typedef struct {
    ngx_http_sandbox_stream_t      *stream;
    ngx_str_t                       why;          /* it did not start */
    ngx_str_t                       cwd;          /* of Start, resolved */
    sbx_f_process_t                 process;      /* Connect */
    unsigned                        started:1;    /* by this call */
    unsigned                        tty:1;
} ngx_http_sandbox_e2b_events_t;

/* NGX_OK, or what frame() returns with ngx_http_sandbox_op_sent(). */
ngx_int_t ngx_http_sandbox_e2b_event_start(ngx_http_sandbox_call_t *call,
    int32_t pid);
ngx_int_t ngx_http_sandbox_e2b_event_data(ngx_http_sandbox_call_t *call,
    ngx_uint_t is_stderr, const u_char *data, size_t len);
/* Ends the stream and the call: what frame() returns. */
ngx_int_t ngx_http_sandbox_e2b_event_end(ngx_http_sandbox_call_t *call,
    const sbx_f_exit_t *end);

/* A stream for call, with what its header fields ask for; NULL when out of
 * memory. */
ngx_http_sandbox_e2b_events_t *ngx_http_sandbox_e2b_events(
    ngx_http_request_t *r, uint64_t ms);


#endif /* _NGX_HTTP_SANDBOX_E2B_PROCESS_H_INCLUDED_ */
