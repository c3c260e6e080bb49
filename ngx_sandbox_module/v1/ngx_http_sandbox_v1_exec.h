/*
 * What exec, the processes and the terminal share.
 */

#ifndef _NGX_HTTP_SANDBOX_V1_EXEC_H_INCLUDED_
#define _NGX_HTTP_SANDBOX_V1_EXEC_H_INCLUDED_


#include "ngx_http_sandbox_v1.h"
#include "ngx_http_sandbox_stream.h"


/* A command whose answer is awaited: as one text, or as a stream. */

typedef struct {
    ngx_http_sandbox_op_output_t    out;
    ngx_http_sandbox_op_output_t    err;
    ngx_str_t                       fault;        /* why it did not start */
    ngx_http_sandbox_stream_t      *stream;       /* NULL: one text */
    ngx_http_sandbox_text_t         text[2];      /* stdout, stderr */
    int32_t                         pid;          /* 0 until it is known */
    unsigned                        base64:1;
    unsigned                        background:1;
    unsigned                        detach:1;
    unsigned                        fed:1;        /* has standard input */
} ngx_http_sandbox_v1_command_t;


typedef struct {
    sbx_json_command_t              cmd;
    sbx_json_str_t                  cwd;
    sbx_json_map_t                  env;
    sbx_json_str_t                  in;           /* stdin, as text */
    sbx_json_str_t                  in_base64;
    sbx_json_str_t                  encoding;
    sbx_json_str_t                  user;
    sbx_json_str_t                  on_disconnect;
    sbx_json_str_t                  tag;
    uint32_t                        stdin_open;
    uint32_t                        background;
    uint32_t                        tty;
    uint32_t                        merge_stderr;
    sbx_limits_t                    limits;
    uint32_t                        has_disk;     /* among the limits */
    uint32_t                        has_inodes;
} ngx_http_sandbox_v1_exec_t;


/* A command that has been checked. */

typedef struct {
    sbx_f_exec_t                    exec;
    sbx_exec_limits_t               limits;
    u_char                         *strings;
    ngx_str_t                       in;
} ngx_http_sandbox_v1_ready_t;


/* Of a ngx_http_sandbox_v1_exec_t, whose limits are cleared by default. */
extern const sbx_json_field_t  ngx_http_sandbox_v1_exec_fields[];

/* Checks what was asked for; 0 or -1. */
int ngx_http_sandbox_v1_exec_prepare(ngx_http_request_t *r,
    const ngx_http_sandbox_v1_exec_t *body,
    ngx_http_sandbox_v1_command_t *command,
    ngx_http_sandbox_v1_ready_t *ready, sbx_error_t *e);

/* Its call, with all frames queued; frame() is the caller's to set.  NULL
 * when out of memory. */
ngx_http_sandbox_call_t *ngx_http_sandbox_v1_exec_call(ngx_http_request_t *r,
    const ngx_http_sandbox_v1_ready_t *ready, void *data);

/* The whole answer of a command. */
void ngx_http_sandbox_v1_exec_json(ngx_http_sandbox_json_t *j,
    const sbx_f_exit_t *end, const ngx_http_sandbox_v1_command_t *command);

/* NGX_OK, NGX_DECLINED for what is no base64, NGX_ERROR. */
ngx_int_t ngx_http_sandbox_v1_base64(ngx_pool_t *pool,
    const sbx_json_str_t *s, ngx_str_t *bytes);


/*
 * The frames of a command that is streamed, from OUTPUT or STARTED on; what
 * frame() returns.  NGX_DECLINED: none of these.
 */
ngx_int_t ngx_http_sandbox_v1_exec_follow(ngx_http_sandbox_call_t *call,
    const sbx_frame_t *frame, const u_char *payload);

/* "exit_code": ... "usage":{...}: members, without the pid; command brings
 * the texts, NULL: without them. */
void ngx_http_sandbox_v1_exec_members(ngx_http_sandbox_json_t *j,
    const sbx_f_exit_t *end, const ngx_http_sandbox_v1_command_t *command);


/* The number of a signal's name, "SIGTERM" or "SIGRTMIN+3"; 0 if there is
 * none. */
int32_t ngx_http_sandbox_v1_signal_number(const char *name, size_t len);
void ngx_http_sandbox_v1_signal_json(ngx_http_sandbox_json_t *j,
    ngx_int_t n);

typedef struct {
    sbx_json_str_t                  type;         /* of a terminal's frame */
    sbx_json_str_t                  name;
    uint64_t                        number;
} ngx_http_sandbox_v1_signal_t;

/* {"signal": a name or a number}; 0, with the number, or -1. */
int ngx_http_sandbox_v1_signal_bind(ngx_pool_t *pool, const ngx_str_t *text,
    ngx_http_sandbox_v1_signal_t *signal, sbx_error_t *e);


/* The pid that the address names; 0, or -1: SBX_E_PROCESS. */
int ngx_http_sandbox_v1_process_pid(ngx_http_request_t *r,
    sbx_f_process_t *process, sbx_error_t *e);

/* A call with its PROCESS frame queued; NULL when out of memory. */
ngx_http_sandbox_call_t *ngx_http_sandbox_v1_process_call(
    ngx_http_request_t *r, const sbx_f_process_t *process, void *data);


#endif /* _NGX_HTTP_SANDBOX_V1_EXEC_H_INCLUDED_ */
