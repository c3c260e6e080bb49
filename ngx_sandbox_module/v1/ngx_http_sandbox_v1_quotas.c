/*
 * GET /quotas of the admin API: what it has set, page by page.  A cursor is
 * the name of the last one told, and not a place: those that are set or
 * removed meanwhile neither repeat nor hide others.
 */

#include "ngx_http_sandbox_v1.h"


#define NGX_HTTP_SANDBOX_V1_QUOTAS  100


typedef struct {
    ngx_http_sandbox_json_t  json;
    sbx_f_quota_t            last;
    ngx_uint_t               count;
} ngx_http_sandbox_v1_quotas_t;


static int ngx_http_sandbox_v1_quotas_query(ngx_http_request_t *r,
    sbx_quota_list_t *ask, sbx_error_t *e);
static int ngx_http_sandbox_v1_quotas_after(ngx_http_request_t *r,
    const ngx_str_t *cursor, sbx_quota_list_t *ask);
static ngx_int_t ngx_http_sandbox_v1_quotas_frame(
    ngx_http_sandbox_call_t *call, const sbx_frame_t *frame,
    const u_char *payload, ngx_fd_t fd);
static ngx_int_t ngx_http_sandbox_v1_quotas_end(
    ngx_http_sandbox_call_t *call, ngx_http_sandbox_v1_quotas_t *list,
    ngx_uint_t more);


ngx_int_t
ngx_http_sandbox_v1_quota_list(ngx_http_request_t *r)
{
    sbx_error_t                    e;
    sbx_quota_list_t               ask;
    ngx_http_sandbox_call_t       *call;
    ngx_http_sandbox_v1_quotas_t  *list;

    if (ngx_http_sandbox_v1_quotas_query(r, &ask, &e) != 0) {
        return ngx_http_sandbox_problem_core(r, &e);
    }

    list = ngx_pcalloc(r->pool, sizeof(ngx_http_sandbox_v1_quotas_t));

    if (list == NULL) {
        return ngx_http_sandbox_problem(r, NGX_HTTP_SANDBOX_INTERNAL, NULL);
    }

    ngx_http_sandbox_json_init(&list->json, r->pool);
    ngx_http_sandbox_json_raw(&list->json, "{\"quotas\":[");

    call = ngx_http_sandbox_op_call(r, SBX_OP_QUOTA_LIST, &ask,
                                    sizeof(sbx_quota_list_t),
                                    NGX_INVALID_FILE, list);

    if (call != NULL) {
        call->frame = ngx_http_sandbox_v1_quotas_frame;
    }

    return ngx_http_sandbox_op_start(r, call);
}


static int
ngx_http_sandbox_v1_quotas_query(ngx_http_request_t *r,
    sbx_quota_list_t *ask, sbx_error_t *e)
{
    uint64_t                 limit;
    ngx_str_t                tenant, cursor;
    ngx_http_sandbox_ctx_t  *ctx;

    ctx = ngx_http_sandbox_ctx(r);
    ngx_memzero(ask, sizeof(sbx_quota_list_t));
    ngx_str_null(&tenant);
    ngx_str_null(&cursor);
    limit = NGX_HTTP_SANDBOX_V1_QUOTAS;

    if (ngx_http_sandbox_op_string(r, "tenant_id", &tenant, e) != 0
        || ngx_http_sandbox_op_string(r, "cursor", &cursor, e) != 0
        || ngx_http_sandbox_op_number(r, "limit", 1, SBX_QUOTA_PAGE, &limit,
                                      e)
           != 0)
    {
        return -1;
    }

    ask->limit = (uint32_t) limit;

    if (tenant.data != NULL) {
        if (!sbx_name_ok((char *) tenant.data, tenant.len)) {
            return sbx_error(e, 0, SBX_E_INVALID,
                             "tenant_id is no such name");
        }

        ctx->tenant = tenant;
    }

    if (cursor.data != NULL
        && ngx_http_sandbox_v1_quotas_after(r, &cursor, ask) != 0)
    {
        return sbx_error(e, 0, SBX_E_INVALID,
                         "cursor is none that a list has given");
    }

    return 0;
}


/* "{tenant}/{user}", the user empty for an organization's. */

static int
ngx_http_sandbox_v1_quotas_after(ngx_http_request_t *r,
    const ngx_str_t *cursor, sbx_quota_list_t *ask)
{
    u_char     *slash, *end;
    ngx_str_t   name, src;

    src = *cursor;
    name.data = ngx_pnalloc(r->pool, ngx_base64_decoded_length(src.len));

    if (name.data == NULL || ngx_decode_base64url(&name, &src) != NGX_OK) {
        return -1;
    }

    end = name.data + name.len;
    slash = ngx_strlchr(name.data, end, '/');

    if (slash == NULL
        || !sbx_name_ok((char *) name.data, slash - name.data)
        || (slash + 1 != end
            && !sbx_name_ok((char *) slash + 1, end - slash - 1)))
    {
        return -1;
    }

    (void) sbx_copy_string(ask->tenant, sizeof(ask->tenant),
                           (char *) name.data, slash - name.data);
    (void) sbx_copy_string(ask->user, sizeof(ask->user), (char *) slash + 1,
                           end - slash - 1);

    return 0;
}


static ngx_int_t
ngx_http_sandbox_v1_quotas_frame(ngx_http_sandbox_call_t *call,
    const sbx_frame_t *frame, const u_char *payload, ngx_fd_t fd)
{
    ngx_int_t                      rc;
    sbx_f_end_t                    end;
    ngx_http_sandbox_v1_quotas_t  *list;

    rc = ngx_http_sandbox_op_frame(call, frame, payload, fd);

    if (rc != NGX_DECLINED) {
        return rc;
    }

    list = call->data;

    switch (frame->type) {

    case SBX_F_QUOTA:

        if (list->count == SBX_QUOTA_PAGE) {
            break;
        }

        ngx_memcpy(&list->last, payload, sizeof(sbx_f_quota_t));
        ngx_http_sandbox_json_raw(&list->json, list->count++ ? "," : "");
        ngx_http_sandbox_v1_quota_object(&list->json, &list->last);

        return NGX_OK;

    case SBX_F_END:
        ngx_memcpy(&end, payload, sizeof(sbx_f_end_t));

        return ngx_http_sandbox_v1_quotas_end(call, list, end.next != 0);

    default:
        break;
    }

    return ngx_http_sandbox_op_broken(call, "a wrong frame for quotas");
}


static ngx_int_t
ngx_http_sandbox_v1_quotas_end(ngx_http_sandbox_call_t *call,
    ngx_http_sandbox_v1_quotas_t *list, ngx_uint_t more)
{
    u_char               name[2 * (SBX_NAME_MAX + 8)];
    u_char               buf[ngx_base64_encoded_length(sizeof(name))];
    ngx_str_t            src, dst;
    ngx_http_request_t  *r;

    r = call->request;

    if (!more || list->count == 0) {
        ngx_http_sandbox_json_raw(&list->json, "],\"next_cursor\":null}");

    } else {
        src.data = name;
        src.len = ngx_snprintf(name, sizeof(name), "%s/%s",
                               list->last.tenant, list->last.user)
                  - name;
        dst.data = buf;
        ngx_encode_base64url(&dst, &src);

        ngx_http_sandbox_json_raw(&list->json, "],\"next_cursor\":\"");
        ngx_http_sandbox_json_raw_len(&list->json, (char *) dst.data,
                                      dst.len);
        ngx_http_sandbox_json_raw(&list->json, "\"}");
    }

    return ngx_http_sandbox_op_finish(call,
                ngx_http_sandbox_json_send(r, NGX_HTTP_OK, &list->json));
}
