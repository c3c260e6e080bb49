/*
 * What the files about code share: the call, its results, its answer.
 */

#ifndef _NGX_HTTP_SANDBOX_V1_CODE_H_INCLUDED_
#define _NGX_HTTP_SANDBOX_V1_CODE_H_INCLUDED_


#include "ngx_http_sandbox_v1_exec.h"


/* What a run may have a worker hold of results as JSON, where escapes take
 * more room than what they stand for. */
#define NGX_HTTP_SANDBOX_V1_RESULTS_MAX   (2 * SBX_RESULTS_MAX)
#define NGX_HTTP_SANDBOX_V1_CHANGED_MAX   (1024 * 1024)


/* A result that comes, field by field. */

typedef struct {
    ngx_pool_t                     *pool;         /* emptied for each */
    ngx_http_sandbox_json_t         json;         /* members, each with a
                                                     comma before it */
    ngx_http_sandbox_json_t         plain;        /* the main text, quoted */
    ngx_str_t                       names[SBX_RESULT_FIELDS_MAX];
    ngx_uint_t                      nnames;
    u_char                         *text;         /* of a field of JSON */
    size_t                          text_len;
    u_char                          tail[4];      /* of a character */
    size_t                          tail_len;
    uint64_t                        room;         /* bytes that may come */
    uint64_t                        left;         /* of the field */
    uint32_t                        kind;         /* sbx_result_kind_t */
    ngx_uint_t                      fields;       /* that have come */
    unsigned                        open:1;
    unsigned                        in_field:1;
    unsigned                        spoiled:1;    /* is read, and dropped */
    unsigned                        skip:1;       /* the field is */
    unsigned                        is_json:1;    /* the field */
    unsigned                        is_plain:1;
} ngx_http_sandbox_v1_result_t;


/* A piece of code whose answer is awaited: as one text, or as a stream. */

typedef struct {
    ngx_http_sandbox_v1_output_t    out;
    ngx_http_sandbox_v1_output_t    err;
    ngx_http_sandbox_stream_t      *stream;       /* NULL: one text */
    ngx_http_sandbox_text_t         text[2];      /* stdout, stderr */
    ngx_http_sandbox_v1_result_t    result;
    ngx_http_sandbox_json_t         results;      /* elements */
    ngx_http_sandbox_json_t         plain;        /* the main text, quoted */
    ngx_http_sandbox_json_t         error;        /* an object */
    ngx_http_sandbox_json_t         files;        /* elements */
    ngx_event_t                     waits;        /* for its turn */
    ngx_msec_t                      silence;      /* from its turn on */
    unsigned                        begun:1;      /* its turn has come */
    unsigned                        results_cut:1;
    unsigned                        files_cut:1;
} ngx_http_sandbox_v1_code_t;


/* Frames of a result: what frame() returns. */
ngx_int_t ngx_http_sandbox_v1_code_result(ngx_http_sandbox_call_t *call,
    const sbx_frame_t *frame, const u_char *payload);

/* Whole: the members, to be kept or sent.  As a stream's _send() returns. */
ngx_int_t ngx_http_sandbox_v1_code_keep(ngx_http_sandbox_call_t *call);

/* The other frames of a run, once it was accepted. */
ngx_int_t ngx_http_sandbox_v1_code_begin(ngx_http_sandbox_call_t *call,
    const u_char *payload, size_t len);
ngx_int_t ngx_http_sandbox_v1_code_output(ngx_http_sandbox_call_t *call,
    ngx_uint_t n, const u_char *data, size_t len);
ngx_int_t ngx_http_sandbox_v1_code_changed(ngx_http_sandbox_call_t *call,
    const u_char *payload, size_t len);
ngx_int_t ngx_http_sandbox_v1_code_end(ngx_http_sandbox_call_t *call,
    const u_char *payload);

/* An error after a stream's header: the run has not been. */
ngx_int_t ngx_http_sandbox_v1_code_refused(ngx_http_sandbox_call_t *call,
    const u_char *payload);

/* The stream's header, where it was not sent; as _open() returns. */
ngx_int_t ngx_http_sandbox_v1_code_open(ngx_http_sandbox_call_t *call);


/* "" for what was left out; 0 or -1: SBX_E_CONTEXT. */
int ngx_http_sandbox_v1_code_context(const sbx_json_str_t *id,
    sbx_error_t *e);
/* A name that no language has becomes one that the other side refuses, with
 * those that there are. */
void ngx_http_sandbox_v1_code_language(sbx_json_str_t *language);

/* A call with its CODE frame queued; NULL when out of memory. */
ngx_http_sandbox_call_t *ngx_http_sandbox_v1_code_call(ngx_http_request_t *r,
    sbx_f_code_t *code, const sbx_json_str_t *context,
    const sbx_json_str_t *language, const sbx_json_str_t *cwd, void *data);


#endif /* _NGX_HTTP_SANDBOX_V1_CODE_H_INCLUDED_ */
