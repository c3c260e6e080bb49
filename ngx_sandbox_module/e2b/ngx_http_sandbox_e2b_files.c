/*
 * GET /files and POST /files/compose, and what POST /files begins with, too:
 * whose file it is, and which.
 */

#include "ngx_http_sandbox_e2b_files.h"


#define NGX_HTTP_SANDBOX_E2B_SOURCES      1000


typedef struct {
    ngx_http_sandbox_op_download_t    download;
    ngx_http_sandbox_e2b_file_t       file;
} ngx_http_sandbox_e2b_get_t;


typedef struct {
    sbx_json_list_t                   sources;
    sbx_json_str_t                    destination;
    sbx_json_str_t                    username;
    ngx_http_sandbox_e2b_file_t       file;
    ngx_uint_t                        there;
} ngx_http_sandbox_e2b_compose_t;


static int ngx_http_sandbox_e2b_file_query(ngx_http_sandbox_e2b_file_t *file,
    sbx_error_t *e);
static int ngx_http_sandbox_e2b_file_expiration(
    ngx_http_sandbox_e2b_file_t *file, const ngx_str_t *value,
    sbx_error_t *e);
static ngx_int_t ngx_http_sandbox_e2b_get_go(
    ngx_http_sandbox_e2b_file_t *file);
static void ngx_http_sandbox_e2b_get_type(ngx_http_request_t *r,
    const ngx_str_t *path, ngx_str_t *type);
static ngx_uint_t ngx_http_sandbox_e2b_identity_ok(ngx_http_request_t *r);
static void ngx_http_sandbox_e2b_codings(const ngx_str_t *value,
    ngx_int_t *identity, ngx_int_t *any);
static int ngx_http_sandbox_e2b_compose_sources(ngx_http_request_t *r,
    ngx_http_sandbox_e2b_compose_t *compose, ngx_str_t *out, sbx_error_t *e);
static ngx_int_t ngx_http_sandbox_e2b_compose_frame(
    ngx_http_sandbox_call_t *call, const sbx_frame_t *frame,
    const u_char *payload, ngx_fd_t fd);


#define COMPOSE(field)  offsetof(ngx_http_sandbox_e2b_compose_t, field)

static const sbx_json_field_t  ngx_http_sandbox_e2b_compose_fields[] = {
    { .name = "source_paths", .type = SBX_JSON_STRINGS,
      .max = NGX_HTTP_SANDBOX_E2B_SOURCES, .offset = COMPOSE(sources) },
    { .name = "destination", .type = SBX_JSON_STRING,
      .offset = COMPOSE(destination) },
    { .name = "username", .type = SBX_JSON_STRING, .nullable = 1,
      .offset = COMPOSE(username) },
    { .name = NULL, .type = SBX_JSON_ANY, .lax = 1 }
};


/* ---- whose file, and which ---------------------------------------------- */


ngx_int_t
ngx_http_sandbox_e2b_file_begin(ngx_http_sandbox_e2b_file_t *file)
{
    sbx_error_t              e;
    ngx_http_sandbox_ctx_t  *ctx;

    ctx = ngx_http_sandbox_ctx(file->request);

    ctx->data = file;
    ctx->refuse = ngx_http_sandbox_e2b_refuse_file;

    if (ngx_http_sandbox_e2b_file_query(file, &e) != 0) {
        return ngx_http_sandbox_problem_core(file->request, &e);
    }

    return ngx_http_sandbox_e2b_sign(file);
}


static int
ngx_http_sandbox_e2b_file_query(ngx_http_sandbox_e2b_file_t *file,
    sbx_error_t *e)
{
    ngx_str_t            expiration;
    ngx_http_request_t  *r;

    r = file->request;
    ngx_str_null(&expiration);

    if (ngx_http_sandbox_op_string(r, "path", &file->query, e) != 0
        || ngx_http_sandbox_op_string(r, "username", &file->name, e) != 0
        || ngx_http_sandbox_op_string(r, "signature", &file->signature, e)
           != 0
        || ngx_http_sandbox_op_string(r, "signature_expiration", &expiration,
                                      e)
           != 0)
    {
        return -1;
    }

    file->has_signature = (file->signature.data != NULL);
    file->has_path = (file->query.data != NULL);

    if (expiration.data != NULL
        && ngx_http_sandbox_e2b_file_expiration(file, &expiration, e) != 0)
    {
        return -1;
    }

    if (ngx_http_sandbox_e2b_user_of(&file->name, &file->user, e) != 0) {
        return -1;
    }

    return ngx_http_sandbox_e2b_file_path(r, file->user, file->query.data,
                                          file->query.len, &file->path, e);
}


static int
ngx_http_sandbox_e2b_file_expiration(ngx_http_sandbox_e2b_file_t *file,
    const ngx_str_t *value, sbx_error_t *e)
{
    off_t        n;
    ngx_uint_t   minus;

    minus = (value->len > 1 && value->data[0] == '-');
    n = ngx_atoof(value->data + minus, value->len - minus);

    if (n == NGX_ERROR) {
        return sbx_error(e, 0, SBX_E_INVALID,
                         "signature_expiration must be a number of seconds");
    }

    file->expires = 1;
    file->expiration = minus ? -(int64_t) n : (int64_t) n;

    return 0;
}


ngx_int_t
ngx_http_sandbox_e2b_refuse_file(ngx_http_request_t *r,
    const ngx_http_sandbox_refusal_t *refusal)
{
    u_char                        text[NGX_HTTP_SANDBOX_E2B_SAID];
    ngx_http_sandbox_refusal_t    own;
    ngx_http_sandbox_e2b_file_t  *file;

    static const char  directory[] = "is a directory";

    file = ngx_http_sandbox_ctx(r)->data;
    own = *refusal;

    if (file->go == NULL) {

        /* of several files, the core's words tell which */

        if (refusal->error == NGX_HTTP_SANDBOX_WRONG_FILE_TYPE) {
            own.status = NGX_HTTP_BAD_REQUEST;
        }

        return ngx_http_sandbox_e2b_refuse_data(r, &own);
    }

    switch (refusal->error) {

    case NGX_HTTP_SANDBOX_UNAUTHENTICATED:

        if (file->refusal != NULL) {
            own.detail.data = (u_char *) file->refusal;
            own.detail.len = ngx_strlen(file->refusal);
        }

        break;

    case NGX_HTTP_SANDBOX_FILE_NOT_FOUND:
        own.detail.data = text;
        own.detail.len = ngx_snprintf(text, sizeof(text),
                                      "path '%V' does not exist",
                                      &file->path) - text;
        break;

    case NGX_HTTP_SANDBOX_WRONG_FILE_TYPE:
        own.status = NGX_HTTP_BAD_REQUEST;

        if (refusal->detail.len >= sizeof(directory) - 1
            && ngx_memcmp(refusal->detail.data + refusal->detail.len
                          - (sizeof(directory) - 1), directory,
                          sizeof(directory) - 1)
               == 0)
        {
            own.detail.data = text;
            own.detail.len = ngx_snprintf(text, sizeof(text),
                                          "path '%V' is a directory",
                                          &file->path) - text;
        }

        break;

    default:
        ngx_http_sandbox_e2b_said(&file->path, &own.detail, text);
        break;
    }

    return ngx_http_sandbox_e2b_refuse_data(r, &own);
}


/* ---- GET ---------------------------------------------------------------- */


ngx_int_t
ngx_http_sandbox_e2b_files_get(ngx_http_request_t *r)
{
    ngx_http_sandbox_e2b_get_t  *get;

    get = ngx_pcalloc(r->pool, sizeof(ngx_http_sandbox_e2b_get_t));

    if (get == NULL) {
        return ngx_http_sandbox_problem(r, NGX_HTTP_SANDBOX_INTERNAL, NULL);
    }

    get->file.request = r;
    get->file.go = ngx_http_sandbox_e2b_get_go;

    return ngx_http_sandbox_e2b_file_begin(&get->file);
}


static ngx_int_t
ngx_http_sandbox_e2b_get_go(ngx_http_sandbox_e2b_file_t *file)
{
    sbx_f_file_t                 open;
    ngx_http_request_t          *r;
    ngx_http_sandbox_call_t     *call;
    ngx_http_sandbox_e2b_get_t  *get;

    r = file->request;
    get = (ngx_http_sandbox_e2b_get_t *)
              ((u_char *) file - offsetof(ngx_http_sandbox_e2b_get_t, file));

    if (!ngx_http_sandbox_e2b_identity_ok(r)) {

        /* whether a filter would encode it is known too late */

        return ngx_http_sandbox_e2b_say(r, 406,
                                        "Accept-Encoding refuses identity, "
                                        "and this server promises nothing "
                                        "else");
    }

    ngx_http_sandbox_e2b_get_type(r, &file->path, &get->download.type);

    get->download.kind = "inline";
    get->download.name = file->path;
    get->download.vary = 1;

    ngx_memzero(&open, sizeof(sbx_f_file_t));
    open.verb = SBX_FILE_OPEN;
    open.user = file->user;
    open.path_len = (uint32_t) file->path.len;

    call = ngx_http_sandbox_e2b_file_call(r, &open, &file->path, NULL,
                                         &get->download);

    if (call != NULL) {
        call->frame = ngx_http_sandbox_op_download_frame;

#if (NGX_HTTP_GZIP)
        r->gzip_tested = 0;
#endif
    }

    return ngx_http_sandbox_op_start(r, call);
}


/*
 * By the name's extension, as nginx knows it.  What a browser would run is
 * shown as text: on this host it would be a page of the API.
 */

static void
ngx_http_sandbox_e2b_get_type(ngx_http_request_t *r, const ngx_str_t *path,
    ngx_str_t *type)
{
    size_t                     i;
    u_char                    *p, *lower;
    ngx_str_t                  name, *found;
    ngx_uint_t                 key;
    ngx_http_core_loc_conf_t  *clcf;

    ngx_str_set(type, "application/octet-stream");

    ngx_http_sandbox_e2b_base(path, &name);

    for (p = name.data + name.len; p > name.data; p--) {
        if (p[-1] == '.') {
            break;
        }
    }

    if (p == name.data) {
        return;
    }

    name.len -= p - name.data;
    name.data = p;
    lower = ngx_pnalloc(r->pool, name.len + 1);

    if (name.len == 0 || lower == NULL) {
        return;
    }

    for (key = 0, i = 0; i < name.len; i++) {
        lower[i] = ngx_tolower(name.data[i]);
        key = ngx_hash(key, lower[i]);
    }

    clcf = ngx_http_get_module_loc_conf(r, ngx_http_core_module);
    found = ngx_hash_find(&clcf->types_hash, key, lower, name.len);

    if (found == NULL) {
        return;
    }

    *type = *found;

    if (ngx_http_sandbox_op_file_active(type)) {
        ngx_str_set(type, "text/plain");
    }
}


static ngx_uint_t
ngx_http_sandbox_e2b_identity_ok(ngx_http_request_t *r)
{
    ngx_int_t         identity, any;
    ngx_uint_t        i;
    ngx_list_part_t  *part;
    ngx_table_elt_t  *header;

    identity = -1;
    any = -1;

    for (part = &r->headers_in.headers.part; part; part = part->next) {
        header = part->elts;

        for (i = 0; i < part->nelts; i++) {
            if (header[i].key.len == sizeof("accept-encoding") - 1
                && ngx_strncasecmp(header[i].key.data,
                                   (u_char *) "accept-encoding",
                                   sizeof("accept-encoding") - 1)
                   == 0)
            {
                ngx_http_sandbox_e2b_codings(&header[i].value, &identity,
                                             &any);
            }
        }
    }

    return (identity != -1) ? identity != 0 : any != 0;
}


/* -1: not named, 0: refused, 1: taken; each. */

static void
ngx_http_sandbox_e2b_codings(const ngx_str_t *value, ngx_int_t *identity,
    ngx_int_t *any)
{
    u_char     *p, *end, *stop, *q;
    size_t      len;
    ngx_int_t   taken;

    end = value->data + value->len;

    for (p = value->data; p < end; p = stop + 1) {
        stop = ngx_strlchr(p, end, ',');

        if (stop == NULL) {
            stop = end;
        }

        while (p < stop && (*p == ' ' || *p == '\t')) {
            p++;
        }

        for (len = 0; p + len < stop; len++) {
            if (p[len] == ';' || p[len] == ' ' || p[len] == '\t') {
                break;
            }
        }

        taken = 1;
        q = ngx_strlchr(p + len, stop, '=');

        if (q != NULL && q > p + len && (q[-1] | 0x20) == 'q') {
            taken = 0;

            while (++q < stop) {
                if (*q >= '1' && *q <= '9') {
                    taken = 1;
                    break;
                }
            }
        }

        if (len == 1 && *p == '*') {
            *any = taken;

        } else if (len == sizeof("identity") - 1
                   && ngx_strncasecmp(p, (u_char *) "identity", len) == 0)
        {
            *identity = taken;
        }
    }
}


/* ---- POST /files/compose ------------------------------------------------ */


ngx_int_t
ngx_http_sandbox_e2b_files_compose(ngx_http_request_t *r)
{
    ngx_str_t                        sources, name;
    sbx_error_t                      e;
    sbx_f_file_t                     file;
    ngx_http_sandbox_ctx_t          *ctx;
    ngx_http_sandbox_call_t         *call;
    ngx_http_sandbox_loc_conf_t     *slcf;
    ngx_http_sandbox_e2b_compose_t  *compose;

    slcf = ngx_http_get_module_loc_conf(r, ngx_http_sandbox_module);
    compose = ngx_pcalloc(r->pool, sizeof(ngx_http_sandbox_e2b_compose_t));

    if (compose == NULL) {
        return ngx_http_sandbox_problem(r, NGX_HTTP_SANDBOX_INTERNAL, NULL);
    }

    ctx = ngx_http_sandbox_ctx(r);

    ctx->data = &compose->file;
    ctx->refuse = ngx_http_sandbox_e2b_refuse_file;

    if (ngx_http_sandbox_op_bind(r, ngx_http_sandbox_e2b_compose_fields,
                                 compose, &e)
        != 0)
    {
        return ngx_http_sandbox_problem_core(r, &e);
    }

    name.data = (u_char *) compose->username.data;
    name.len = compose->username.len;

    if (ngx_http_sandbox_e2b_user_of(&name, &compose->file.user, &e) != 0
        || ngx_http_sandbox_e2b_compose_sources(r, compose, &sources, &e)
           != 0)
    {
        return ngx_http_sandbox_problem_core(r, &e);
    }

    ctx->path = compose->file.path;
    ctx->has_path = 1;

    ngx_memzero(&file, sizeof(sbx_f_file_t));
    file.verb = SBX_FILE_COMPOSE;
    file.user = compose->file.user;
    file.flags = SBX_FILE_F_MORE;
    file.size = SBX_UNSET;
    file.max = (slcf->max_upload > 0) ? (uint64_t) slcf->max_upload
                                      : SBX_UNSET;
    file.path_len = (uint32_t) compose->file.path.len;
    file.path2_len = (uint32_t) sources.len;

    call = ngx_http_sandbox_e2b_file_call(r, &file, &compose->file.path,
                                         &sources, compose);

    if (call != NULL) {
        call->frame = ngx_http_sandbox_e2b_compose_frame;
    }

    return ngx_http_sandbox_op_start(r, call);
}


/* The paths, as they go over the wire. */

static int
ngx_http_sandbox_e2b_compose_sources(ngx_http_request_t *r,
    ngx_http_sandbox_e2b_compose_t *compose, ngx_str_t *out, sbx_error_t *e)
{
    u_char          *p;
    size_t           i;
    ngx_str_t        path, *to;
    sbx_json_str_t  *source;

    if (compose->sources.nelts == 0) {
        return sbx_error(e, 0, SBX_E_INVALID,
                         "source_paths must not be empty");
    }

    if (compose->destination.len == 0) {
        return sbx_error(e, 0, SBX_E_INVALID, "destination is required");
    }

    to = &compose->file.path;

    if (ngx_http_sandbox_e2b_file_path(r, compose->file.user,
                                       compose->destination.data,
                                       compose->destination.len, to, e)
        != 0)
    {
        return -1;
    }

    p = ngx_pnalloc(r->pool, SBX_FILE_SOURCES_MAX);

    if (p == NULL) {
        return sbx_error(e, 0, SBX_E_INTERNAL, "out of memory");
    }

    out->data = p;

    for (i = 0; i < compose->sources.nelts; i++) {
        source = &compose->sources.elts[i];

        if (ngx_http_sandbox_e2b_file_path(r, compose->file.user,
                                           source->data, source->len, &path,
                                           e)
            != 0)
        {
            return -1;
        }

        if (path.len == to->len
            && ngx_memcmp(path.data, to->data, path.len) == 0)
        {
            return sbx_error(e, 0, SBX_E_INVALID,
                             "source path %zu is the destination, too", i);
        }

        if (path.len >= (size_t) (out->data + SBX_FILE_SOURCES_MAX - p)) {
            return sbx_error(e, 0, SBX_E_INVALID,
                             "source_paths have more than %d bytes in all",
                             SBX_FILE_SOURCES_MAX);
        }

        p = ngx_cpymem(p, path.data, path.len);
        *p++ = '\0';
    }

    out->len = p - out->data;

    return 0;
}


static ngx_int_t
ngx_http_sandbox_e2b_compose_frame(ngx_http_sandbox_call_t *call,
    const sbx_frame_t *frame, const u_char *payload, ngx_fd_t fd)
{
    ngx_int_t                        rc;
    ngx_str_t                        name, *path;
    ngx_http_sandbox_json_t          j;
    ngx_http_sandbox_e2b_compose_t  *compose;

    rc = ngx_http_sandbox_op_frame(call, frame, payload, fd);

    if (rc != NGX_DECLINED) {
        return rc;
    }

    compose = call->data;

    if (frame->type == SBX_F_ENTRY && !compose->there) {
        compose->there = 1;
        return NGX_OK;
    }

    if (frame->type != SBX_F_END || !compose->there) {
        return ngx_http_sandbox_op_broken(call, "a wrong frame for an entry");
    }

    path = &compose->file.path;
    ngx_http_sandbox_e2b_base(path, &name);

    ngx_http_sandbox_json_init(&j, call->request->pool);
    ngx_http_sandbox_json_raw(&j, "{\"path\":");
    ngx_http_sandbox_json_string(&j, path->data, path->len);
    ngx_http_sandbox_json_raw(&j, ",\"name\":");
    ngx_http_sandbox_json_string(&j, name.data, name.len);
    ngx_http_sandbox_json_raw(&j, ",\"type\":\"file\"}");

    return ngx_http_sandbox_op_finish(call,
              ngx_http_sandbox_json_send(call->request, NGX_HTTP_OK, &j));
}
