/*
 * What is kept of code until its end, and what its end means.
 */

#include "ngx_http_sandbox_op_code.h"


/* above which a result's memory is kept as it is, and not copied */
#define NGX_HTTP_SANDBOX_OP_RESULT_LARGE  65536


static ngx_int_t ngx_http_sandbox_op_code_keep_pool(
    ngx_http_sandbox_op_code_t *code, ngx_http_request_t *r);
static void ngx_http_sandbox_op_code_free(void *data);


/* By sbx_reason_t: what an interpreter died of, and what to do. */

static const char *const  ngx_http_sandbox_op_code_deaths[] = {
    "it exited, as code can make it do",
    "it was ended by a signal, as a fault of native code does",
    "its time was over and an interrupt did not stop it; give it more time, "
    "or let it handle interrupts",
    "its memory was used up; use less at once, or create a session with more",
    "its processor time was used up; create a session with more",
    "its context was restarted or deleted, or its run cancelled and an "
    "interrupt did not stop it",
    "its client went away and an interrupt did not stop it",
    "its session ended",
    "it could not be started; the doctor tells what the machine lacks"
};


ngx_int_t
ngx_http_sandbox_op_code_keep(ngx_http_sandbox_op_code_t *code,
    ngx_http_request_t *r)
{
    off_t                          size;
    ngx_http_sandbox_json_t       *j;
    ngx_http_sandbox_op_result_t  *result;

    result = &code->result;
    j = &code->results;
    size = result->json.size + result->plain.size;

    if (j->size + code->plain.size + size > NGX_HTTP_SANDBOX_OP_RESULTS_MAX
        || ngx_http_sandbox_op_share(r, &code->shared,
                                     ngx_http_sandbox_op_code_kept(code)
                                     + (size_t) size)
           != NGX_OK)
    {
        code->results_cut = 1;
        return NGX_OK;
    }

    /* over the first one's comma */

    ngx_http_sandbox_json_raw(j, (j->size == 0) ? "{" : ",{");
    result->json.out->buf->pos++;
    result->json.size--;
    ngx_http_sandbox_json_raw(&result->json, "}");

    if (size > NGX_HTTP_SANDBOX_OP_RESULT_LARGE) {

        if (ngx_http_sandbox_op_code_keep_pool(code, r) != NGX_OK) {
            return NGX_ERROR;
        }

        ngx_http_sandbox_json_join(j, &result->json);
        ngx_http_sandbox_json_join(&code->plain, &result->plain);

    } else {
        ngx_http_sandbox_json_copy(j, &result->json, 0);
        ngx_http_sandbox_json_copy(&code->plain, &result->plain, 0);
    }

    return (j->failed || code->plain.failed) ? NGX_ERROR : NGX_OK;
}


/* The result's memory is the request's from now on. */

static ngx_int_t
ngx_http_sandbox_op_code_keep_pool(ngx_http_sandbox_op_code_t *code,
    ngx_http_request_t *r)
{
    ngx_pool_cleanup_t  *cln;

    cln = ngx_pool_cleanup_add(r->pool, 0);

    if (cln == NULL) {
        return NGX_ERROR;
    }

    cln->handler = ngx_http_sandbox_op_code_free;
    cln->data = code->result.pool;
    code->result.pool = NULL;

    return NGX_OK;
}


static void
ngx_http_sandbox_op_code_free(void *data)
{
    ngx_destroy_pool(data);
}


ngx_int_t
ngx_http_sandbox_op_code_keep_error(ngx_http_sandbox_op_code_t *code,
    ngx_http_request_t *r)
{
    size_t                         i;
    ngx_uint_t                     n;
    ngx_http_sandbox_json_t       *j;
    ngx_http_sandbox_op_result_t  *result;

    static const ngx_str_t  all[] = {
        ngx_string("name"), ngx_string("value"), ngx_string("traceback")
    };

    result = &code->result;
    j = &code->error;

    if (j->size != 0) {
        return NGX_OK;
    }

    if (result->json.size > NGX_HTTP_SANDBOX_OP_RESULT_LARGE) {

        if (ngx_http_sandbox_op_code_keep_pool(code, r) != NGX_OK) {
            return NGX_ERROR;
        }

        ngx_http_sandbox_json_join(j, &result->json);

    } else {
        ngx_http_sandbox_json_copy(j, &result->json, 0);
    }

    for (i = 0; i < sbx_nelts(all); i++) {

        for (n = 0; n < result->nnames; n++) {
            if (result->names[n].len == all[i].len
                && ngx_memcmp(result->names[n].data, all[i].data, all[i].len)
                   == 0)
            {
                break;
            }
        }

        if (n == result->nnames) {
            ngx_http_sandbox_json_raw(j, ",\"");
            ngx_http_sandbox_json_raw_len(j, all[i].data, all[i].len);
            ngx_http_sandbox_json_raw(j, "\":\"\"");
        }
    }

    return j->failed ? NGX_ERROR : NGX_OK;
}


void
ngx_http_sandbox_op_code_fail(ngx_http_sandbox_op_code_t *code,
    const char *name, const u_char *text, size_t len)
{
    ngx_http_sandbox_json_t  *j;

    j = &code->error;

    ngx_http_sandbox_json_init(j, j->pool);
    j->ascii = code->form->ascii;

    ngx_http_sandbox_json_raw(j, ",\"name\":");
    ngx_http_sandbox_json_cstring(j, name);
    ngx_http_sandbox_json_raw(j, ",\"value\":");
    ngx_http_sandbox_json_string(j, text, len);
    ngx_http_sandbox_json_raw(j, ",\"traceback\":\"\"");
}


u_char *
ngx_http_sandbox_op_code_death(const sbx_f_ran_t *ran, u_char *text,
    size_t size)
{
    return ngx_snprintf(text, size, "the interpreter died (%s): %s; what it "
                        "held is lost, and the next run begins with a new "
                        "one", sbx_reason_word(ran->reason),
                        ngx_http_sandbox_op_code_deaths[ran->reason]);
}


const char *
ngx_http_sandbox_op_code_refusal(ngx_http_sandbox_call_t *call,
    const sbx_f_error_t *error, sbx_f_ran_t *ran)
{
    ngx_memzero(ran, sizeof(sbx_f_ran_t));

    ran->exit_code = 126;
    ran->reason = SBX_REASON_NOT_STARTED;

    ngx_log_error(NGX_LOG_ERR, call->request->connection->log, 0,
                  "sandbox refused code after its stream had begun, error "
                  "%uD", error->code);

    return (error->code == SBX_E_INTERNAL) ? "the server's log says why"
                                           : error->text;
}


/* For the log variables, the audit log and metrics. */

void
ngx_http_sandbox_op_code_note(ngx_http_request_t *r,
    const ngx_http_sandbox_op_code_t *code, const sbx_f_ran_t *ran)
{
    ngx_http_sandbox_ctx_t  *ctx;

    ctx = ngx_http_sandbox_ctx(r);

    ctx->exit = ran->exit_code;
    ctx->reason = sbx_reason_word(ran->reason);
    ctx->wall_us = (int64_t) ran->duration_us;

    ctx->outcome = (ran->flags & SBX_RAN_DIED) ? NGX_HTTP_SANDBOX_CODE_DIED
                   : (ran->flags & SBX_RAN_TIMED_OUT)
                     ? NGX_HTTP_SANDBOX_CODE_TIMEOUT
                   : (ran->flags & SBX_RAN_CANCELLED)
                     ? NGX_HTTP_SANDBOX_CODE_CANCELLED
                   : (code->error.size != 0) ? NGX_HTTP_SANDBOX_CODE_ERROR
                                             : NGX_HTTP_SANDBOX_CODE_OK;
}
