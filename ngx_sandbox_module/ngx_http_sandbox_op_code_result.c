/*
 * Results of code: bundles of one value in several MIME types, and errors.
 * All of it is written by the code itself, if it likes.  A field's text goes
 * into JSON as it comes; a result is told of once it is whole, and what never
 * becomes so is dropped.
 *
 * Of some fields it is known at their end how they are told.  What is long of
 * those is written in turns of the worker, and the call waits.
 *
 * All of it is counted in what the worker may hold, until it is sent or
 * dropped.  What there is no room for is dropped at once; of an error the
 * beginning is told.
 */

#include "ngx_http_sandbox_op_code.h"


#define NGX_HTTP_SANDBOX_OP_RESULT_POOL  1024

/* of a text that is kept, what is written at once */
#define NGX_HTTP_SANDBOX_OP_RESULT_STEP  65536

/* of an error, what is told in any case */
#define NGX_HTTP_SANDBOX_OP_ERROR_LEAST  65536


static ngx_int_t ngx_http_sandbox_op_result_begin(
    ngx_http_sandbox_call_t *call, const sbx_f_result_t *frame);
static void ngx_http_sandbox_op_result_clear(
    ngx_http_sandbox_op_code_t *code);
static ngx_int_t ngx_http_sandbox_op_result_whole(
    ngx_http_sandbox_call_t *call);
static ngx_int_t ngx_http_sandbox_op_result_field(
    ngx_http_sandbox_call_t *call, const u_char *payload, size_t len);
static ngx_int_t ngx_http_sandbox_op_result_name(
    ngx_http_sandbox_call_t *call, const ngx_str_t *name, uint64_t size);
static ngx_uint_t ngx_http_sandbox_op_result_known(
    ngx_http_sandbox_op_result_t *result, const ngx_str_t *name);
static ngx_uint_t ngx_http_sandbox_op_result_is_json(const ngx_str_t *name);
static ngx_int_t ngx_http_sandbox_op_result_piece(
    ngx_http_sandbox_call_t *call, const u_char *data, size_t len);
static void ngx_http_sandbox_op_result_bound(ngx_http_sandbox_call_t *call);
static ngx_uint_t ngx_http_sandbox_op_result_fits(
    ngx_http_sandbox_call_t *call);
static void ngx_http_sandbox_op_result_text(
    ngx_http_sandbox_op_result_t *result, const u_char *data, size_t len,
    ngx_uint_t last);
static ngx_int_t ngx_http_sandbox_op_result_field_end(
    ngx_http_sandbox_call_t *call);
static ngx_uint_t ngx_http_sandbox_op_result_step(
    ngx_http_sandbox_call_t *call);
static ngx_int_t ngx_http_sandbox_op_result_field_over(
    ngx_http_sandbox_call_t *call);
static ngx_int_t ngx_http_sandbox_op_result_failed(
    ngx_http_sandbox_call_t *call);


ngx_int_t
ngx_http_sandbox_op_code_result(ngx_http_sandbox_call_t *call,
    const sbx_frame_t *frame, const u_char *payload)
{
    ngx_int_t       rc;
    sbx_f_result_t  result;

    switch (frame->type) {

    case SBX_F_RESULT:
        ngx_memcpy(&result, payload, sizeof(sbx_f_result_t));
        rc = ngx_http_sandbox_op_result_begin(call, &result);
        break;

    case SBX_F_FIELD:
        rc = ngx_http_sandbox_op_result_field(call, payload, frame->length);
        break;

    default:
        rc = ngx_http_sandbox_op_result_piece(call, payload, frame->length);
    }

    switch (rc) {

    case NGX_ABORT:
        return ngx_http_sandbox_op_broken(call, "a result that cannot be");

    case NGX_ERROR:
        return ngx_http_sandbox_op_result_failed(call);

    default:
        return rc;
    }
}


static ngx_int_t
ngx_http_sandbox_op_result_failed(ngx_http_sandbox_call_t *call)
{
    return ngx_http_sandbox_op_finish(call,
               call->request->header_sent ? NGX_ERROR
               : ngx_http_sandbox_problem(call->request,
                                          NGX_HTTP_SANDBOX_INTERNAL, NULL));
}


/* One that was not whole is dropped. */

static ngx_int_t
ngx_http_sandbox_op_result_begin(ngx_http_sandbox_call_t *call,
    const sbx_f_result_t *frame)
{
    ngx_http_sandbox_op_code_t    *code;
    ngx_http_sandbox_op_result_t  *result;

    code = call->data;
    result = &code->result;

    if (frame->kind > SBX_RESULT_ERROR || frame->fields != 0) {
        return NGX_ABORT;
    }

    if (result->pool == NULL) {
        result->pool = ngx_create_pool(NGX_HTTP_SANDBOX_OP_RESULT_POOL,
                                       call->request->connection->log);

        if (result->pool == NULL) {
            return NGX_ERROR;
        }
    }

    ngx_http_sandbox_op_code_drop(code, call->request);

    result->kind = frame->kind;
    result->room = SBX_RESULTS_MAX;
    result->fields = 0;
    result->open = 1;
    result->in_field = 0;
    result->spoiled = 0;
    result->cut = 0;

    return NGX_OK;
}


/* There is nothing of a result, and room for one. */

static void
ngx_http_sandbox_op_result_clear(ngx_http_sandbox_op_code_t *code)
{
    ngx_http_sandbox_op_result_t  *result;

    result = &code->result;

    if (result->pool != NULL) {
        ngx_reset_pool(result->pool);
    }

    ngx_http_sandbox_json_init(&result->json, result->pool);
    ngx_http_sandbox_json_init(&result->more, result->pool);
    ngx_http_sandbox_json_init(&result->plain, result->pool);

    result->to = &result->json;
    result->json.ascii = code->form->ascii;
    result->more.ascii = code->form->ascii;

    result->nnames = 0;
    result->text = NULL;
    result->text_len = 0;
    result->text_at = 0;
    result->text_size = 0;
    result->told = 0;
}


void
ngx_http_sandbox_op_code_drop(ngx_http_sandbox_op_code_t *code,
    ngx_http_request_t *r)
{
    ngx_http_sandbox_op_result_clear(code);

    /* less than before, which always fits */

    (void) ngx_http_sandbox_op_share(r, &code->shared,
                                     ngx_http_sandbox_op_code_kept(code));
}


size_t
ngx_http_sandbox_op_code_kept(const ngx_http_sandbox_op_code_t *code)
{
    return (size_t) (code->results.size + code->plain.size
                     + code->error.size);
}


void
ngx_http_sandbox_op_code_gone(ngx_http_sandbox_stream_t *s)
{
    ngx_http_sandbox_op_code_t  *code;

    code = s->data;

    if (code->result.told) {
        ngx_http_sandbox_op_code_drop(code, s->request);
    }
}


static ngx_int_t
ngx_http_sandbox_op_result_field(ngx_http_sandbox_call_t *call,
    const u_char *payload, size_t len)
{
    ngx_str_t                      name;
    const char                    *text;
    sbx_f_field_t                  field;
    ngx_http_sandbox_op_code_t    *code;
    ngx_http_sandbox_op_result_t  *result;

    code = call->data;
    result = &code->result;

    if (!result->open
        || sbx_wire_check_field(payload, len, &field, &text) != 0)
    {
        return NGX_ABORT;
    }

    if (result->in_field || field.size > result->room) {
        result->spoiled = 1;
        code->results_cut |= (field.size > result->room);
        ngx_http_sandbox_op_code_drop(code, call->request);
    }

    if (field.name_len == 0) {
        result->open = 0;
        result->in_field = 0;

        return ngx_http_sandbox_op_result_whole(call);
    }

    if (result->fields++ == SBX_RESULT_FIELDS_MAX) {
        return NGX_ABORT;
    }

    name.data = (u_char *) text;
    name.len = field.name_len;

    result->in_field = 1;
    result->left = field.size;
    result->room -= ngx_min(field.size, result->room);
    result->tail_len = 0;
    result->is_json = 0;
    result->is_kept = 0;
    result->is_plain = 0;
    result->skip = result->spoiled || result->cut
                   || !ngx_http_sandbox_op_result_known(result, &name);

    if (!result->skip
        && ngx_http_sandbox_op_result_name(call, &name, field.size) != NGX_OK)
    {
        return NGX_ERROR;
    }

    return (field.size == 0) ? ngx_http_sandbox_op_result_field_end(call)
                             : NGX_OK;
}


/* All of it has come: what is neither being sent nor kept is dropped. */

static ngx_int_t
ngx_http_sandbox_op_result_whole(ngx_http_sandbox_call_t *call)
{
    ngx_int_t                      rc;
    ngx_http_sandbox_op_code_t    *code;
    ngx_http_sandbox_op_result_t  *result;

    code = call->data;
    result = &code->result;

    rc = (result->spoiled || result->nnames == 0) ? NGX_OK
                                                  : code->form->result(call);

    if (!result->told) {
        ngx_http_sandbox_op_code_drop(code, call->request);
    }

    return rc;
}


static ngx_int_t
ngx_http_sandbox_op_result_name(ngx_http_sandbox_call_t *call,
    const ngx_str_t *name, uint64_t size)
{
    ngx_http_sandbox_op_code_t    *code;
    ngx_http_sandbox_op_result_t  *result;

    code = call->data;
    result = &code->result;

    result->is_json = ngx_http_sandbox_op_result_is_json(name)
                      && result->kind != SBX_RESULT_ERROR
                      && size != 0;

    code->form->field(code, name);

    if ((result->is_json || result->is_kept) && size != 0) {
        result->text_size = (size_t) size;
        ngx_http_sandbox_op_result_bound(call);

        if (result->spoiled) {
            return NGX_OK;
        }

        result->text = ngx_pnalloc(result->pool, result->text_size);

        if (result->text == NULL) {
            return NGX_ERROR;
        }
    }

    result->is_string = !result->is_json && !result->is_kept;

    if (result->is_string) {
        ngx_http_sandbox_json_raw(result->to, "\"");
    }

    if (result->is_json) {
        sbx_json_check_begin(&result->check);
    }

    if (result->is_plain) {
        ngx_http_sandbox_json_raw(&result->plain, "\"");
    }

    return NGX_OK;
}


/*
 * Each name once, and only such as an answer has room for: of a bundle those
 * that have a slash, as every MIME type has and no member of ours.
 */

static ngx_uint_t
ngx_http_sandbox_op_result_known(ngx_http_sandbox_op_result_t *result,
    const ngx_str_t *name)
{
    u_char      *p;
    ngx_uint_t   i;

    if (result->kind == SBX_RESULT_ERROR) {
        if (!ngx_http_sandbox_op_is(name, "name")
            && !ngx_http_sandbox_op_is(name, "value")
            && !ngx_http_sandbox_op_is(name, "traceback"))
        {
            return 0;
        }

    } else if (ngx_strlchr(name->data, name->data + name->len, '/') == NULL) {
        return 0;
    }

    for (i = 0; i < result->nnames; i++) {
        if (result->names[i].len == name->len
            && ngx_memcmp(result->names[i].data, name->data, name->len) == 0)
        {
            return 0;
        }
    }

    p = ngx_pnalloc(result->pool, name->len);

    if (p == NULL) {
        result->json.failed = 1;
        return 0;
    }

    ngx_memcpy(p, name->data, name->len);

    result->names[i].data = p;
    result->names[i].len = name->len;
    result->nnames++;

    return 1;
}


static ngx_uint_t
ngx_http_sandbox_op_result_is_json(const ngx_str_t *name)
{
    static const char  suffix[] = "+json";

    return ngx_http_sandbox_op_is(name, "application/json")
           || (name->len > sizeof(suffix) - 1
               && ngx_memcmp(name->data + name->len - (sizeof(suffix) - 1),
                             suffix, sizeof(suffix) - 1)
                  == 0);
}


static ngx_int_t
ngx_http_sandbox_op_result_piece(ngx_http_sandbox_call_t *call,
    const u_char *data, size_t len)
{
    ngx_http_sandbox_op_code_t    *code;
    ngx_http_sandbox_op_result_t  *result;

    code = call->data;
    result = &code->result;

    if (!result->in_field || len > result->left) {
        return NGX_ABORT;
    }

    result->left -= len;

    if (!result->skip && !result->spoiled && !result->cut) {
        if (result->is_json || result->is_kept) {
            ngx_memcpy(result->text + result->text_len, data, len);
            result->text_len += len;

            if (result->is_json) {
                sbx_json_check_piece(&result->check, data, len);
            }

        } else {
            ngx_http_sandbox_op_result_text(result, data, len,
                                            result->left == 0);
        }

        ngx_http_sandbox_op_result_bound(call);
    }

    return (result->left == 0) ? ngx_http_sandbox_op_result_field_end(call)
                               : NGX_OK;
}


/* What came last may be too much. */

static void
ngx_http_sandbox_op_result_bound(ngx_http_sandbox_call_t *call)
{
    ngx_http_sandbox_op_code_t    *code;
    ngx_http_sandbox_op_result_t  *result;

    code = call->data;
    result = &code->result;

    if (ngx_http_sandbox_op_result_fits(call)) {
        return;
    }

    code->results_cut = 1;

    if (result->kind == SBX_RESULT_ERROR) {
        result->cut = 1;
        return;
    }

    result->spoiled = 1;
    ngx_http_sandbox_op_code_drop(code, call->request);
}


/* Escapes take more room than what they stand for. */

static ngx_uint_t
ngx_http_sandbox_op_result_fits(ngx_http_sandbox_call_t *call)
{
    size_t                         size;
    ngx_http_sandbox_op_code_t    *code;
    ngx_http_sandbox_op_result_t  *result;

    code = call->data;
    result = &code->result;

    size = (size_t) (result->json.size + result->more.size);

    if (size > NGX_HTTP_SANDBOX_OP_RESULTS_MAX) {
        return 0;
    }

    if (ngx_http_sandbox_op_share(call->request, &code->shared,
                                  ngx_http_sandbox_op_code_kept(code) + size
                                  + (size_t) result->plain.size
                                  + result->text_size)
        == NGX_OK)
    {
        return 1;
    }

    return result->kind == SBX_RESULT_ERROR
           && size < NGX_HTTP_SANDBOX_OP_ERROR_LEAST;
}


/* A character that is in two pieces waits for the second. */

static void
ngx_http_sandbox_op_result_text(ngx_http_sandbox_op_result_t *result,
    const u_char *data, size_t len, ngx_uint_t last)
{
    u_char      joined[8];
    size_t      n, tail;
    ngx_uint_t  i;

    ngx_http_sandbox_json_t  *to[2];

    to[0] = result->to;
    to[1] = result->is_plain ? &result->plain : NULL;

    while (result->tail_len != 0 && len != 0) {

        /* byte by byte, until it is a whole one or none */

        result->tail[result->tail_len++] = *data++;
        len--;
        n = result->tail_len;
        ngx_memcpy(joined, result->tail, n);

        tail = (last && len == 0) ? 0 : ngx_http_sandbox_text_tail(joined, n);

        for (i = 0; i < 2 && n != tail; i++) {
            if (to[i] != NULL) {
                ngx_http_sandbox_json_chars(to[i], joined, n - tail);
            }
        }

        ngx_memcpy(result->tail, joined + n - tail, tail);
        result->tail_len = tail;
    }

    tail = last ? 0 : ngx_http_sandbox_text_tail(data, len);

    for (i = 0; i < 2 && len != tail; i++) {
        if (to[i] != NULL) {
            ngx_http_sandbox_json_chars(to[i], data, len - tail);
        }
    }

    if (tail != 0) {
        ngx_memcpy(result->tail, data + len - tail, tail);
        result->tail_len = tail;
    }
}


/* What is no JSON after all is a string. */

static ngx_int_t
ngx_http_sandbox_op_result_field_end(ngx_http_sandbox_call_t *call)
{
    ngx_http_sandbox_op_code_t    *code;
    ngx_http_sandbox_op_result_t  *result;

    code = call->data;
    result = &code->result;

    result->in_field = 0;

    if (!result->skip && !result->spoiled && !result->is_string) {

        if (result->is_kept) {
            code->form->kept(code);
        }

        if (result->is_kept || sbx_json_check_end(&result->check) != 0) {
            result->is_string = 1;
            ngx_http_sandbox_json_raw(result->to, "\"");
        }

        if (ngx_http_sandbox_op_result_step(call)) {
            ngx_http_sandbox_call_busy(call);
            ngx_http_sandbox_turn_wait(&code->turn);

            return NGX_OK;
        }
    }

    return ngx_http_sandbox_op_result_field_over(call);
}


void
ngx_http_sandbox_op_code_result_turn(ngx_event_t *ev)
{
    ngx_connection_t         *client;
    ngx_http_sandbox_call_t  *call;

    call = ev->data;

    if (call->closed) {
        return;
    }

    if (ngx_http_sandbox_op_result_step(call)) {
        ngx_http_sandbox_turn_wait(ev);
        return;
    }

    if (ngx_http_sandbox_op_result_field_over(call) == NGX_OK) {
        ngx_http_sandbox_call_idle(call);
        return;
    }

    client = call->request->connection;

    (void) ngx_http_sandbox_op_result_failed(call);
    ngx_http_run_posted_requests(client);
}


/* Whether there is more to write; no piece ends within a character. */

static ngx_uint_t
ngx_http_sandbox_op_result_step(ngx_http_sandbox_call_t *call)
{
    size_t                         n, left;
    u_char                        *p;
    ngx_http_sandbox_op_code_t    *code;
    ngx_http_sandbox_op_result_t  *result;

    code = call->data;
    result = &code->result;
    left = result->text_len - result->text_at;

    if (left == 0) {
        return 0;
    }

    p = result->text + result->text_at;
    n = ngx_min(left, NGX_HTTP_SANDBOX_OP_RESULT_STEP);

    if (n < left) {
        n -= ngx_http_sandbox_text_tail(p, n);
    }

    if (result->is_string) {
        ngx_http_sandbox_json_chars(result->to, p, n);

    } else {
        ngx_http_sandbox_json_value(result->to, p, n);
    }

    result->text_at += n;

    ngx_http_sandbox_op_result_bound(call);

    return n < left && !result->spoiled && !result->to->failed;
}


static ngx_int_t
ngx_http_sandbox_op_result_field_over(ngx_http_sandbox_call_t *call)
{
    ngx_http_sandbox_op_code_t    *code;
    ngx_http_sandbox_op_result_t  *result;

    code = call->data;
    result = &code->result;

    if (!result->skip && !result->spoiled) {

        if (result->is_string) {
            ngx_http_sandbox_json_raw(result->to, "\"");
        }

        if (result->is_plain) {
            ngx_http_sandbox_json_raw(&result->plain, "\"");
        }
    }

    if (result->json.failed || result->more.failed || result->plain.failed) {
        return NGX_ERROR;
    }

    if (result->text != NULL) {
        (void) ngx_pfree(result->pool, result->text);

        result->text = NULL;
        result->text_len = 0;
        result->text_at = 0;
        result->text_size = 0;
    }

    if (!result->skip && !result->spoiled) {
        ngx_http_sandbox_op_result_bound(call);
    }

    return NGX_OK;
}
