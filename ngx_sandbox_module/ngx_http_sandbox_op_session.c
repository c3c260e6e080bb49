#include "ngx_http_sandbox_op_session.h"


static ngx_uint_t ngx_http_sandbox_op_session_whole(
    const ngx_http_sandbox_op_session_t *s);
static ngx_int_t ngx_http_sandbox_op_session_room(ngx_http_request_t *r,
    ngx_http_sandbox_op_session_t *s);


const ngx_http_sandbox_op_word_t  ngx_http_sandbox_op_capability_words[] = {
    { "shell", SBX_CAP_SHELL },
    { "files", SBX_CAP_FILES },
    { "code",  SBX_CAP_CODE },
    { "ports", SBX_CAP_PORTS },
    { NULL, 0 }
};


ngx_int_t
ngx_http_sandbox_op_session_ask(ngx_http_request_t *r,
    ngx_int_t (*frame)(ngx_http_sandbox_call_t *call,
    const sbx_frame_t *frame, const u_char *payload, ngx_fd_t fd))
{
    ngx_http_sandbox_call_t        *call;
    ngx_http_sandbox_op_session_t  *session;

    session = ngx_pcalloc(r->pool, sizeof(ngx_http_sandbox_op_session_t));

    if (session == NULL) {
        return ngx_http_sandbox_problem(r, NGX_HTTP_SANDBOX_INTERNAL, NULL);
    }

    call = ngx_http_sandbox_op_call(r, SBX_OP_GET, NULL, 0, NGX_INVALID_FILE,
                                    session);

    if (call != NULL) {
        call->frame = frame;
    }

    return ngx_http_sandbox_op_start(r, call);
}


ngx_int_t
ngx_http_sandbox_op_session_part(ngx_http_sandbox_call_t *call,
    const sbx_frame_t *frame, const u_char *payload, ngx_fd_t fd)
{
    ngx_int_t                       rc;
    ngx_http_sandbox_op_session_t  *session;

    rc = ngx_http_sandbox_op_frame(call, frame, payload, fd);

    if (rc != NGX_DECLINED) {
        return rc;
    }

    session = call->data;

    if (frame->type != SBX_F_END) {
        rc = ngx_http_sandbox_op_session_frame(call->request, session, frame,
                                               payload);

        return (rc == NGX_OK || rc == NGX_AGAIN)
               ? NGX_OK
               : ngx_http_sandbox_op_broken(call,
                                            "a wrong frame for a session");
    }

    if (!session->there || !ngx_http_sandbox_op_session_whole(session)) {
        return ngx_http_sandbox_op_broken(call, "no session");
    }

    return NGX_DECLINED;
}


/* Bytes of rules that are to come with a session. */

static size_t
ngx_http_sandbox_op_session_rules(const ngx_http_sandbox_op_session_t *s)
{
    return s->session.has_usage ? s->session.network_size : 0;
}


static ngx_uint_t
ngx_http_sandbox_op_session_whole(const ngx_http_sandbox_op_session_t *s)
{
    return s->meta_len == s->session.meta_size
           && s->rules_len == ngx_http_sandbox_op_session_rules(s);
}


ngx_int_t
ngx_http_sandbox_op_session_frame(ngx_http_request_t *r,
    ngx_http_sandbox_op_session_t *s, const sbx_frame_t *frame,
    const u_char *payload)
{
    if (frame->type == SBX_F_SESSION) {

        if (s->there && !ngx_http_sandbox_op_session_whole(s)) {
            return NGX_DECLINED;
        }

        ngx_memcpy(&s->session, payload, sizeof(sbx_f_session_t));
        s->there = 1;
        s->meta_len = 0;
        s->rules_len = 0;

        return ngx_http_sandbox_op_session_room(r, s);
    }

    if (!s->there || frame->length == 0) {
        return NGX_DECLINED;
    }

    switch (frame->type) {

    case SBX_F_NETWORK:
        if (s->meta_len != 0
            || frame->length > ngx_http_sandbox_op_session_rules(s)
                               - s->rules_len)
        {
            return NGX_DECLINED;
        }

        ngx_memcpy(s->rules + s->rules_len, payload, frame->length);
        s->rules_len += frame->length;

        if (s->rules_len == ngx_http_sandbox_op_session_rules(s)
            && sbx_network_check(s->rules, s->rules_len, NULL) != 0)
        {
            return NGX_DECLINED;
        }

        break;

    case SBX_F_META:
        if (s->rules_len != ngx_http_sandbox_op_session_rules(s)
            || frame->length > s->session.meta_size - s->meta_len)
        {
            return NGX_DECLINED;
        }

        ngx_memcpy(s->meta + s->meta_len, payload, frame->length);
        s->meta_len += frame->length;
        break;

    default:
        return NGX_DECLINED;
    }

    return ngx_http_sandbox_op_session_whole(s) ? NGX_OK : NGX_AGAIN;
}


/* Makes room for what a session says that it has; returns as _frame(). */

static ngx_int_t
ngx_http_sandbox_op_session_room(ngx_http_request_t *r,
    ngx_http_sandbox_op_session_t *s)
{
    size_t  rules;

    rules = ngx_http_sandbox_op_session_rules(s);

    if (s->session.meta_size > SBX_META_MAX || rules > SBX_NETWORK_SIZE) {
        return NGX_DECLINED;
    }

    if (s->session.meta_size != 0 && s->meta == NULL) {
        s->meta = ngx_palloc(r->pool, SBX_META_MAX);

        if (s->meta == NULL) {
            return NGX_ERROR;
        }
    }

    if (rules != 0 && s->rules == NULL) {
        s->rules = ngx_palloc(r->pool, SBX_NETWORK_SIZE);

        if (s->rules == NULL) {
            return NGX_ERROR;
        }
    }

    return ngx_http_sandbox_op_session_whole(s) ? NGX_OK : NGX_AGAIN;
}


uint32_t
ngx_http_sandbox_op_capability(const sbx_json_str_t *word)
{
    ngx_uint_t   i;
    const char  *name;

    for (i = 0; ngx_http_sandbox_op_capability_words[i].word; i++) {
        name = ngx_http_sandbox_op_capability_words[i].word;

        if (ngx_strlen(name) == word->len
            && ngx_memcmp(name, word->data, word->len) == 0)
        {
            return ngx_http_sandbox_op_capability_words[i].bit;
        }
    }

    return 0;
}


static ngx_int_t
ngx_http_sandbox_op_session_keep(ngx_pool_t *pool, ngx_str_t *to,
    const char *s, size_t size)
{
    to->len = ngx_strnlen((u_char *) s, size);
    to->data = ngx_pnalloc(pool, to->len + 1);

    if (to->data == NULL) {
        to->len = 0;
        return NGX_ERROR;
    }

    (void) ngx_cpystrn(to->data, (u_char *) s, to->len + 1);

    return NGX_OK;
}


const char *
ngx_http_sandbox_op_session_network(const sbx_f_session_t *session)
{
    if (session->network == SBX_NETWORK_NONE) {
        return "none";
    }

    return session->network_open ? "open" : "restricted";
}


ngx_int_t
ngx_http_sandbox_op_session_note(ngx_http_request_t *r,
    const ngx_http_sandbox_op_session_t *s)
{
    const sbx_f_session_t   *session;
    ngx_http_sandbox_ctx_t  *ctx;

    ctx = ngx_http_sandbox_ctx(r);
    session = &s->session;
    ctx->network = ngx_http_sandbox_op_session_network(session);

    if (ngx_http_sandbox_op_session_keep(r->pool, &ctx->session, session->id,
                                         sizeof(session->id))
        != NGX_OK
        || ngx_http_sandbox_op_session_keep(r->pool, &ctx->tenant,
                                            session->tenant,
                                            sizeof(session->tenant))
           != NGX_OK)
    {
        return NGX_ERROR;
    }

    return ngx_http_sandbox_op_session_keep(r->pool, &ctx->user,
                                            session->user,
                                            sizeof(session->user));
}


/* A session's metadata as a map, the way a body is bound. */

ngx_int_t
ngx_http_sandbox_op_session_map(ngx_pool_t *pool,
    const ngx_http_sandbox_op_session_t *session, sbx_json_map_t *map)
{
    u_char            *text, *p;
    size_t             len;
    sbx_error_t        e;
    sbx_json_alloc_t   alloc;

    static const sbx_json_field_t  fields[] = {
        { .name = "m", .type = SBX_JSON_MAP, .offset = 0 },
        { .name = NULL }
    };

    map->nelts = 0;

    if (session->meta_len == 0) {
        return NGX_OK;
    }

    len = sizeof("{\"m\":}") - 1 + session->meta_len;
    text = ngx_pnalloc(pool, len);

    if (text == NULL) {
        return NGX_ERROR;
    }

    p = ngx_cpymem(text, "{\"m\":", sizeof("{\"m\":") - 1);
    p = ngx_cpymem(p, session->meta, session->meta_len);
    *p = '}';

    alloc = ngx_http_sandbox_op_allocator(pool);

    return sbx_json_bind(text, len, fields, map, &alloc, &e) == 0 ? NGX_OK
                                                                  : NGX_ERROR;
}
