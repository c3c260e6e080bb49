/*
 * Code for an interpreter: what the APIs share of it.  A run waits for its
 * turn in its context; what it writes comes before what it shows after that.
 * What is told of all this, and when, is a form's, of which each API has its
 * own.
 */

#ifndef _NGX_HTTP_SANDBOX_OP_CODE_H_INCLUDED_
#define _NGX_HTTP_SANDBOX_OP_CODE_H_INCLUDED_


#include "ngx_http_sandbox_op.h"
#include "ngx_http_sandbox_stream.h"


#define NGX_HTTP_SANDBOX_OP_CODE_MAX      (1024 * 1024)
#define NGX_HTTP_SANDBOX_OP_CODE_ENV      65536     /* variables */

/* milliseconds: an interpreter may take long to begin, and to be stopped */
#define NGX_HTTP_SANDBOX_OP_CODE_SLOW     90000

/* What a run may have a worker hold of results as JSON, where escapes take
 * more room than what they stand for. */
#define NGX_HTTP_SANDBOX_OP_RESULTS_MAX   (2 * SBX_RESULTS_MAX)


/* A result that comes, field by field. */

typedef struct {
    ngx_pool_t                     *pool;         /* emptied for each */
    ngx_http_sandbox_json_t         json;         /* members, each with a
                                                     comma before it */
    ngx_http_sandbox_json_t         more;         /* the form's, as that */
    ngx_http_sandbox_json_t         plain;        /* the main text, quoted */
    ngx_http_sandbox_json_t        *to;           /* where the field goes */
    ngx_str_t                       names[SBX_RESULT_FIELDS_MAX];
    ngx_uint_t                      nnames;
    u_char                         *text;         /* of a field of JSON, or
                                                     that is kept */
    size_t                          text_len;
    size_t                          text_at;      /* what is written of it */
    size_t                          text_size;    /* its memory */
    sbx_json_check_t                check;
    u_char                          tail[4];      /* of a character */
    size_t                          tail_len;
    uint64_t                        room;         /* bytes that may come */
    uint64_t                        left;         /* of the field */
    uint32_t                        kind;         /* sbx_result_kind_t */
    ngx_uint_t                      fields;       /* that have come */
    unsigned                        open:1;
    unsigned                        in_field:1;
    unsigned                        spoiled:1;    /* is read, and dropped */
    unsigned                        cut:1;        /* so is what comes */
    unsigned                        told:1;       /* a stream sends it */
    unsigned                        skip:1;       /* the field is */
    unsigned                        is_json:1;    /* the field */
    unsigned                        is_kept:1;
    unsigned                        is_plain:1;
    unsigned                        is_string:1;
} ngx_http_sandbox_op_result_t;


typedef struct ngx_http_sandbox_op_code_s  ngx_http_sandbox_op_code_t;

/* What returns ngx_int_t returns what frame() does, but for two. */

typedef struct {
    ngx_msec_t                      wait;         /* until a stream that waits
                                                     for its turn has its
                                                     header; 0: at once */
    ngx_uint_t                      ascii;        /* of the text of results */
    ngx_uint_t                      files;        /* that have changed are
                                                     wanted */

    /* Its turn has come; ctx->context and ctx->language are known. */
    ngx_int_t                     (*begin)(ngx_http_sandbox_call_t *call,
                                      const sbx_f_context_t *context);
    ngx_int_t                     (*output)(ngx_http_sandbox_call_t *call,
                                      ngx_uint_t n, const u_char *data,
                                      size_t len);
    /*
     * A field of code->result begins: writes its name to where it goes and
     * sets .to.  It is written as a string, or as JSON with .is_json, and to
     * .plain as well with .is_plain; with .is_kept once all of it is in .text,
     * of which kept() may leave out ends.
     */
    void                          (*field)(ngx_http_sandbox_op_code_t *code,
                                      const ngx_str_t *name);
    void                          (*kept)(ngx_http_sandbox_op_code_t *code);
    /* It is whole: as a stream's _send() returns.  A stream that is given its
     * memory sets .told first. */
    ngx_int_t                     (*result)(ngx_http_sandbox_call_t *call);
    ngx_int_t                     (*end)(ngx_http_sandbox_call_t *call,
                                      sbx_f_ran_t *ran);
    /* An error after a stream's header: the run has not been. */
    ngx_int_t                     (*refused)(ngx_http_sandbox_call_t *call,
                                      const sbx_f_error_t *error);
    /* There is no such context; for the finalizer.  NULL: as any error. */
    ngx_int_t                     (*missing)(ngx_http_request_t *r,
                                      const sbx_json_str_t *id);
} ngx_http_sandbox_op_code_form_t;


/* A piece of code whose answer is awaited: as one text, or as a stream. */

struct ngx_http_sandbox_op_code_s {
    const ngx_http_sandbox_op_code_form_t
                                   *form;
    ngx_http_sandbox_op_output_t    out;
    ngx_http_sandbox_op_output_t    err;
    ngx_http_sandbox_stream_t      *stream;       /* NULL: one text */
    ngx_http_sandbox_text_t         text[2];      /* stdout, stderr */
    ngx_http_sandbox_op_result_t    result;
    ngx_http_sandbox_json_t         results;      /* elements */
    ngx_http_sandbox_json_t         plain;        /* the main text, quoted */
    ngx_http_sandbox_json_t         error;        /* an object's members */
    ngx_http_sandbox_json_t         files;        /* elements */
    ngx_event_t                     waits;        /* for its turn; the form's
                                                     where that is not told */
    ngx_event_t                     turn;         /* to write more of a text */
    ngx_msec_t                      silence;      /* from its turn on */
    ngx_uint_t                      count;        /* which run it is */
    sbx_json_str_t                  asked;        /* the context's id, or "" */
    void                           *data;         /* the form's own */
    size_t                         *shared;       /* of _op_share() */
    unsigned                        begun:1;      /* its turn has come */
    unsigned                        results_cut:1;
    unsigned                        files_cut:1;
};


/* What is asked for; members are the caller's to fill. */

typedef struct {
    sbx_json_str_t                  code;
    sbx_json_str_t                  language;
    sbx_json_str_t                  context;
    sbx_json_map_t                  env;
    sbx_limits_t                    limits;       /* cleared by default */
} ngx_http_sandbox_op_code_body_t;


/* NULL when out of memory. */
ngx_http_sandbox_op_code_t *ngx_http_sandbox_op_code_create(
    ngx_http_request_t *r, const ngx_http_sandbox_op_code_form_t *form);

/*
 * Checks what is asked for, and starts the call.  With code->stream the
 * output is not capped.  -1: e says why; else *rc is what a handler returns.
 */
int ngx_http_sandbox_op_code_start(ngx_http_request_t *r,
    ngx_http_sandbox_op_code_t *code, ngx_http_sandbox_op_code_body_t *body,
    ngx_int_t *rc, sbx_error_t *e);

/* frame() of a run. */
ngx_int_t ngx_http_sandbox_op_code_frame(ngx_http_sandbox_call_t *call,
    const sbx_frame_t *frame, const u_char *payload, ngx_fd_t fd);

/* Frames of a result: what frame() returns. */
ngx_int_t ngx_http_sandbox_op_code_result(ngx_http_sandbox_call_t *call,
    const sbx_frame_t *frame, const u_char *payload);
/* What a long field of it takes, turn after turn. */
void ngx_http_sandbox_op_code_result_turn(ngx_event_t *ev);
/* Forgets the result that comes, or has come, with its memory. */
void ngx_http_sandbox_op_code_drop(ngx_http_sandbox_op_code_t *code,
    ngx_http_request_t *r);
/* A stream's gone(): so is a result that it told of. */
void ngx_http_sandbox_op_code_gone(ngx_http_sandbox_stream_t *s);
/* How much is kept until the end, of results and the error. */
size_t ngx_http_sandbox_op_code_kept(const ngx_http_sandbox_op_code_t *code);

/* The stream's header, where it was not sent; as _open() returns. */
ngx_int_t ngx_http_sandbox_op_code_open(ngx_http_sandbox_call_t *call);

/* Adds a result that is whole to code->results, as an object of its members;
 * what is too much is dropped and told. */
ngx_int_t ngx_http_sandbox_op_code_keep(ngx_http_sandbox_op_code_t *code,
    ngx_http_request_t *r);

/* The same for an error, of which the first one counts; it has all of its
 * members. */
ngx_int_t ngx_http_sandbox_op_code_keep_error(
    ngx_http_sandbox_op_code_t *code, ngx_http_request_t *r);

/* Another error in its place. */
void ngx_http_sandbox_op_code_fail(ngx_http_sandbox_op_code_t *code,
    const char *name, const u_char *text, size_t len);

/* Why an interpreter died and what to do about it, in at most size bytes. */
u_char *ngx_http_sandbox_op_code_death(const sbx_f_ran_t *ran, u_char *text,
    size_t size);

/* The same of a run that was refused after its stream had begun; logged. */
const char *ngx_http_sandbox_op_code_refusal(ngx_http_sandbox_call_t *call,
    const sbx_f_error_t *error, sbx_f_ran_t *ran);

/* For the log variables, the audit log and metrics. */
void ngx_http_sandbox_op_code_note(ngx_http_request_t *r,
    const ngx_http_sandbox_op_code_t *code, const sbx_f_ran_t *ran);


/* "" for what was left out; 0 or -1: SBX_E_CONTEXT. */
int ngx_http_sandbox_op_code_context(const sbx_json_str_t *id,
    sbx_error_t *e);
/* A name that no language has becomes one that the other side refuses, with
 * those that there are. */
void ngx_http_sandbox_op_code_language(sbx_json_str_t *language);

/* A call with its CODE frame queued; NULL when out of memory. */
ngx_http_sandbox_call_t *ngx_http_sandbox_op_code_call(ngx_http_request_t *r,
    sbx_f_code_t *code, const sbx_json_str_t *context,
    const sbx_json_str_t *language, const sbx_json_str_t *cwd, void *data);

/* Of a call about a context, which ctx then names; NGX_ERROR: out of
 * memory. */
ngx_int_t ngx_http_sandbox_op_code_named(ngx_http_request_t *r,
    const sbx_f_context_t *context, const char *id, const char *language);


#endif /* _NGX_HTTP_SANDBOX_OP_CODE_H_INCLUDED_ */
