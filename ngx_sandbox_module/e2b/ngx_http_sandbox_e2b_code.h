/*
 * What the files about code share.
 */

#ifndef _NGX_HTTP_SANDBOX_E2B_CODE_H_INCLUDED_
#define _NGX_HTTP_SANDBOX_E2B_CODE_H_INCLUDED_


#include "ngx_http_sandbox_e2b.h"
#include "ngx_http_sandbox_op_code.h"


/* As NDJSON, each line at once. */
extern const ngx_http_sandbox_op_code_form_t  ngx_http_sandbox_e2b_code_form;

/* Its stream; NGX_ERROR: out of memory. */
ngx_int_t ngx_http_sandbox_e2b_code_lines(ngx_http_sandbox_op_code_t *code,
    ngx_http_request_t *r);

/* Of forms: fields of results under the names that they have here. */
void ngx_http_sandbox_e2b_code_field(ngx_http_sandbox_op_code_t *code,
    const ngx_str_t *name);
void ngx_http_sandbox_e2b_code_kept(ngx_http_sandbox_op_code_t *code);
/* What is missing of a whole result's members. */
void ngx_http_sandbox_e2b_code_whole(ngx_http_sandbox_op_code_t *code);
/* A context that is not there is told by its name. */
ngx_int_t ngx_http_sandbox_e2b_code_missing(ngx_http_request_t *r,
    const sbx_json_str_t *id);
/* What the end makes of the run's error. */
void ngx_http_sandbox_e2b_code_settle(ngx_http_sandbox_op_code_t *code,
    const sbx_f_ran_t *ran);

/* Checks what is asked for and starts it: what a handler returns. */
ngx_int_t ngx_http_sandbox_e2b_code_start(ngx_http_request_t *r,
    ngx_http_sandbox_op_code_t *code, ngx_http_sandbox_op_code_body_t *body);

/* The words for a language; NGX_ERROR: out of memory. */
ngx_int_t ngx_http_sandbox_e2b_code_language(ngx_pool_t *pool,
    sbx_json_str_t *language);


/*
 * Contexts.  answer() gets the text of all that was asked for, to finalize
 * with what it returns.
 */

typedef struct {
    sbx_json_str_t                  id;
    sbx_json_str_t                  language;
    sbx_json_str_t                  cwd;
} ngx_http_sandbox_e2b_context_t;

typedef struct ngx_http_sandbox_e2b_contexts_s
    ngx_http_sandbox_e2b_contexts_t;

struct ngx_http_sandbox_e2b_contexts_s {
    ngx_http_sandbox_json_t         json;         /* objects */
    ngx_uint_t                      count;
    sbx_code_verb_t                 verb;
    sbx_json_str_t                  id;
    ngx_uint_t                      defaults;     /* that are there: bits */
    ngx_uint_t                      rpc;
    sbx_json_str_t                  language;
    sbx_json_str_t                  cwd;
    ngx_int_t                     (*answer)(ngx_http_request_t *r,
                                      ngx_http_sandbox_e2b_contexts_t *c);
};

ngx_int_t ngx_http_sandbox_e2b_contexts_ask(ngx_http_request_t *r,
    sbx_code_verb_t verb, ngx_http_sandbox_e2b_context_t *body,
    ngx_int_t (*answer)(ngx_http_request_t *r,
    ngx_http_sandbox_e2b_contexts_t *c));


#endif /* _NGX_HTTP_SANDBOX_E2B_CODE_H_INCLUDED_ */
