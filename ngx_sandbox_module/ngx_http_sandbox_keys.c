/*
 * API keys: a file of digests, and whose each is.  The file is read with the
 * configuration, by the master; workers know digests alone.  What a request
 * presents is hashed and compared with all of them, so that the time which
 * that takes tells nothing.
 */

#include "ngx_http_sandbox_op.h"

#include "sandbox_sha256.h"
#include "sandbox_util.h"

#include <fcntl.h>


#define NGX_HTTP_SANDBOX_KEYS_MAX    16384
#define NGX_HTTP_SANDBOX_KEYS_FILE   (16 * 1024 * 1024)
#define NGX_HTTP_SANDBOX_KEY_MAX     512         /* bytes of a key */
#define NGX_HTTP_SANDBOX_KEY_WORDS   3
#define NGX_HTTP_SANDBOX_KEY_HEX     (2 * SBX_SHA256_SIZE)


typedef struct {
    uint64_t      digest[SBX_SHA256_SIZE / sizeof(uint64_t)];
    ngx_str_t     tenant;
    ngx_str_t     user;
    ngx_uint_t    line;
} ngx_http_sandbox_key_t;


struct ngx_http_sandbox_keys_s {
    ngx_str_t                file;
    ngx_uint_t               nelts;
    ngx_http_sandbox_key_t  *elts;               /* by digest */
};


static ngx_int_t ngx_http_sandbox_keys_read(ngx_conf_t *cf, ngx_str_t *file,
    ngx_str_t *text);
static ngx_int_t ngx_http_sandbox_keys_parse(ngx_conf_t *cf,
    ngx_http_sandbox_keys_t *keys, ngx_str_t *text);
static const char *ngx_http_sandbox_keys_line(ngx_pool_t *pool,
    ngx_http_sandbox_key_t *key, u_char *p, u_char *end);
static ngx_int_t ngx_http_sandbox_keys_sort(ngx_conf_t *cf,
    ngx_http_sandbox_keys_t *keys);
static const ngx_http_sandbox_key_t *ngx_http_sandbox_keys_find(
    const ngx_http_sandbox_keys_t *keys, const ngx_str_t *key);
static ngx_int_t ngx_http_sandbox_keys_bearer(ngx_http_request_t *r,
    ngx_str_t *key);
static ngx_int_t ngx_http_sandbox_keys_refuse(ngx_http_request_t *r,
    const char *why);


char *
ngx_http_sandbox_set_keys(ngx_conf_t *cf, ngx_command_t *cmd, void *conf)
{
    ngx_http_sandbox_loc_conf_t  *slcf = conf;

    ngx_str_t                *value, text;
    ngx_http_sandbox_keys_t  *keys;

    if (slcf->keys != NGX_CONF_UNSET_PTR) {
        return "is duplicate";
    }

    value = cf->args->elts;

    if (ngx_strcmp(value[1].data, "off") == 0) {
        slcf->keys = NULL;
        return NGX_CONF_OK;
    }

    if (value[1].len == 0) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "invalid value \"%V\" in \"%V\" directive, it "
                           "must be a file, or off", &value[1], &cmd->name);
        return NGX_CONF_ERROR;
    }

    keys = ngx_pcalloc(cf->pool, sizeof(ngx_http_sandbox_keys_t));

    if (keys == NULL) {
        return NGX_CONF_ERROR;
    }

    keys->file = value[1];

    if (ngx_http_sandbox_full_path(cf->cycle, &keys->file) != NGX_OK
        || ngx_http_sandbox_keys_read(cf, &keys->file, &text) != NGX_OK
        || ngx_http_sandbox_keys_parse(cf, keys, &text) != NGX_OK
        || ngx_http_sandbox_keys_sort(cf, keys) != NGX_OK)
    {
        return NGX_CONF_ERROR;
    }

    if (keys->nelts == 0) {
        ngx_conf_log_error(NGX_LOG_WARN, cf, 0,
                           "\"%V\" has no key: nobody will be let in",
                           &keys->file);
    }

    slcf->keys = keys;

    return NGX_CONF_OK;
}


static ngx_int_t
ngx_http_sandbox_keys_read(ngx_conf_t *cf, ngx_str_t *file, ngx_str_t *text)
{
    ssize_t          n;
    sbx_auto_fd      fd = -1;
    ngx_file_info_t  fi;

    /* a pipe in its place would hold up the master */

    fd = open((char *) file->data, O_RDONLY|O_CLOEXEC|O_NONBLOCK);

    if (fd == -1 || ngx_fd_info(fd, &fi) == NGX_FILE_ERROR) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, ngx_errno,
                           "the file of keys \"%V\" cannot be read", file);
        return NGX_ERROR;
    }

    if (!ngx_is_file(&fi) || ngx_file_size(&fi) > NGX_HTTP_SANDBOX_KEYS_FILE)
    {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "\"%V\" is no file of at most %d bytes", file,
                           NGX_HTTP_SANDBOX_KEYS_FILE);
        return NGX_ERROR;
    }

    if (ngx_file_access(&fi) & S_IROTH) {
        ngx_conf_log_error(NGX_LOG_WARN, cf, 0,
                           "the file of keys \"%V\" can be read by others: "
                           "\"chmod o= %V\" would change that", file, file);
    }

    text->len = (size_t) ngx_file_size(&fi);
    text->data = ngx_pnalloc(cf->temp_pool, text->len + 1);

    if (text->data == NULL) {
        return NGX_ERROR;
    }

    n = sbx_read_full(fd, text->data, text->len);

    if (n == -1) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, ngx_errno,
                           "the file of keys \"%V\" cannot be read", file);
        return NGX_ERROR;
    }

    text->len = (size_t) n;

    return NGX_OK;
}


static ngx_int_t
ngx_http_sandbox_keys_parse(ngx_conf_t *cf, ngx_http_sandbox_keys_t *keys,
    ngx_str_t *text)
{
    u_char                  *p, *eol, *end;
    ngx_uint_t               line;
    const char              *fault;
    ngx_array_t              list;
    ngx_http_sandbox_key_t  *key, found;

    if (ngx_array_init(&list, cf->pool, 16, sizeof(ngx_http_sandbox_key_t))
        != NGX_OK)
    {
        return NGX_ERROR;
    }

    p = text->data;
    end = p + text->len;

    for (line = 1; p < end; p = eol + 1, line++) {
        eol = ngx_strlchr(p, end, '\n');

        if (eol == NULL) {
            eol = end;
        }

        ngx_memzero(&found, sizeof(ngx_http_sandbox_key_t));
        found.line = line;
        fault = ngx_http_sandbox_keys_line(cf->pool, &found, p, eol);

        if (fault == NULL && found.tenant.data != NULL
            && list.nelts == NGX_HTTP_SANDBOX_KEYS_MAX)
        {
            fault = "there are more than 16384 keys";
        }

        if (fault != NULL) {
            ngx_conf_log_error(NGX_LOG_EMERG, cf, 0, "%s in %V:%ui", fault,
                               &keys->file, line);
            return NGX_ERROR;
        }

        if (found.tenant.data == NULL) {
            continue;
        }

        key = ngx_array_push(&list);

        if (key == NULL) {
            return NGX_ERROR;
        }

        *key = found;
    }

    keys->elts = list.elts;
    keys->nelts = list.nelts;

    return NGX_OK;
}


/* "sha256:<hex> tenant user"; key stays empty where the line is.  What is
 * wrong with it, or NULL. */

static const char *
ngx_http_sandbox_keys_line(ngx_pool_t *pool, ngx_http_sandbox_key_t *key,
    u_char *p, u_char *end)
{
    u_char      *digest;
    ngx_int_t    n;
    ngx_str_t    word[NGX_HTTP_SANDBOX_KEY_WORDS];
    ngx_uint_t   i, nwords;

    static const char   wanted[] = "must be \"sha256:<64 hexadecimal digits> "
                                   "TENANT USER\"";
    static const u_char prefix[] = "sha256:";

    for (nwords = 0; /* void */; nwords++) {

        while (p < end && (*p == ' ' || *p == '\t' || *p == '\r')) {
            p++;
        }

        if (p == end || *p == '#') {
            break;
        }

        if (nwords == NGX_HTTP_SANDBOX_KEY_WORDS) {
            return wanted;
        }

        word[nwords].data = p;

        while (p < end && *p != ' ' && *p != '\t' && *p != '\r') {
            p++;
        }

        word[nwords].len = p - word[nwords].data;
    }

    if (nwords == 0) {
        return NULL;
    }

    if (nwords != NGX_HTTP_SANDBOX_KEY_WORDS
        || word[0].len != sizeof(prefix) - 1 + NGX_HTTP_SANDBOX_KEY_HEX
        || ngx_memcmp(word[0].data, prefix, sizeof(prefix) - 1) != 0)
    {
        return wanted;
    }

    digest = (u_char *) key->digest;

    for (i = 0; i < SBX_SHA256_SIZE; i++) {
        n = ngx_hextoi(word[0].data + sizeof(prefix) - 1 + 2 * i, 2);

        if (n == NGX_ERROR) {
            return wanted;
        }

        digest[i] = (u_char) n;
    }

    for (i = 1; i < NGX_HTTP_SANDBOX_KEY_WORDS; i++) {
        if (!sbx_name_ok((char *) word[i].data, word[i].len)) {
            return "a tenant or user must be 1 to 128 of A-Z a-z 0-9 . _ @ : "
                   "+ - and begin with a letter or digit";
        }
    }

    key->user.data = ngx_pstrdup(pool, &word[2]);
    key->user.len = word[2].len;
    key->tenant.data = ngx_pstrdup(pool, &word[1]);
    key->tenant.len = word[1].len;

    return (key->user.data == NULL || key->tenant.data == NULL)
           ? "out of memory" : NULL;
}


static int
ngx_http_sandbox_keys_compare(const void *one, const void *two)
{
    int                            rc;
    const ngx_http_sandbox_key_t  *a, *b;

    a = one;
    b = two;
    rc = ngx_memcmp(a->digest, b->digest, sizeof(a->digest));

    return rc != 0 ? rc : (a->line > b->line) - (a->line < b->line);
}


/* Sorted only to find what is there twice. */

static ngx_int_t
ngx_http_sandbox_keys_sort(ngx_conf_t *cf, ngx_http_sandbox_keys_t *keys)
{
    ngx_uint_t  i;

    qsort(keys->elts, keys->nelts, sizeof(ngx_http_sandbox_key_t),
          ngx_http_sandbox_keys_compare);

    for (i = 1; i < keys->nelts; i++) {
        if (ngx_memcmp(keys->elts[i - 1].digest, keys->elts[i].digest,
                       SBX_SHA256_SIZE)
            == 0)
        {
            ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                               "the key of line %ui is there again in %V:%ui",
                               keys->elts[i - 1].line, &keys->file,
                               keys->elts[i].line);
            return NGX_ERROR;
        }
    }

    return NGX_OK;
}


/* Looks at each, with no branch that depends on a digest. */

static const ngx_http_sandbox_key_t *
ngx_http_sandbox_keys_find(const ngx_http_sandbox_keys_t *keys,
    const ngx_str_t *key)
{
    uint64_t                       digest[4], differ, same, found;
    ngx_uint_t                     i;
    sbx_sha256_t                   sha;
    const ngx_http_sandbox_key_t  *k;

    sbx_sha256_init(&sha);
    sbx_sha256_update(&sha, key->data, key->len);
    sbx_sha256_final(&sha, (uint8_t *) digest);

    found = 0;

    for (i = 0; i < keys->nelts; i++) {
        k = &keys->elts[i];

        differ = (k->digest[0] ^ digest[0]) | (k->digest[1] ^ digest[1])
                 | (k->digest[2] ^ digest[2]) | (k->digest[3] ^ digest[3]);

        /* all ones where nothing differs */

        same = ((differ | (0 - differ)) >> 63) - 1;
        found |= same & (uint64_t) (i + 1);
    }

    return (found == 0) ? NULL : &keys->elts[found - 1];
}


/* NGX_OK, NGX_DECLINED where there is none, NGX_ABORT where there are more. */

static ngx_int_t
ngx_http_sandbox_keys_bearer(ngx_http_request_t *r, ngx_str_t *key)
{
    ngx_int_t  rc;
    ngx_str_t  value;

    static const u_char  scheme[] = "bearer ";
    const size_t         n = sizeof(scheme) - 1;

    rc = ngx_http_sandbox_op_header(r, "authorization", &value);

    if (rc != NGX_OK) {
        return rc;
    }

    if (value.len < n
        || ngx_strncasecmp(value.data, (u_char *) scheme, n) != 0)
    {
        return NGX_DECLINED;
    }

    key->data = value.data + n;
    key->len = value.len - n;

    while (key->len != 0 && key->data[0] == ' ') {
        key->data++;
        key->len--;
    }

    return NGX_OK;
}


ngx_int_t
ngx_http_sandbox_keys_presented(ngx_http_request_t *r, ngx_str_t *key)
{
    size_t     i;
    ngx_int_t  plain, bearer;
    ngx_str_t  other;

    ngx_str_null(key);
    ngx_str_null(&other);

    plain = ngx_http_sandbox_op_header(r, "x-api-key", key);
    bearer = ngx_http_sandbox_keys_bearer(r, &other);

    if (plain == NGX_DECLINED && bearer == NGX_DECLINED) {
        return ngx_http_sandbox_keys_refuse(r,
                       "an API key is needed: send it as X-API-Key, or as "
                       "Authorization: Bearer");
    }

    if (plain == NGX_ABORT || bearer == NGX_ABORT) {
        return ngx_http_sandbox_keys_refuse(r,
                                            "a header with an API key is "
                                            "there more than once");
    }

    if (plain != NGX_OK) {
        *key = other;

    } else if (bearer == NGX_OK
               && (key->len != other.len
                   || ngx_memcmp(key->data, other.data, key->len) != 0))
    {
        return ngx_http_sandbox_keys_refuse(r,
                                            "X-API-Key and Authorization "
                                            "have different keys");
    }

    for (i = 0; i < key->len; i++) {
        if (key->data[i] < 0x20 || key->data[i] == 0x7f) {
            break;
        }
    }

    if (key->len == 0 || key->len > NGX_HTTP_SANDBOX_KEY_MAX || i < key->len)
    {
        return ngx_http_sandbox_keys_refuse(r,
                                            "an API key has 1 to 512 bytes, "
                                            "and no control characters");
    }

    return NGX_OK;
}


ngx_int_t
ngx_http_sandbox_keys_identify(ngx_http_request_t *r,
    ngx_http_sandbox_ctx_t *ctx, const ngx_http_sandbox_keys_t *keys)
{
    ngx_int_t                      rc;
    ngx_str_t                      presented;
    const ngx_http_sandbox_key_t  *key;

    rc = ngx_http_sandbox_keys_presented(r, &presented);

    if (rc != NGX_OK || r->header_sent) {
        return rc;
    }

    key = ngx_http_sandbox_keys_find(keys, &presented);

    if (key == NULL) {
        return ngx_http_sandbox_keys_refuse(r, "there is no such API key");
    }

    ctx->tenant = key->tenant;
    ctx->tenant_bound = 1;
    ctx->user = key->user;
    ctx->user_bound = 1;

    return NGX_OK;
}


static ngx_int_t
ngx_http_sandbox_keys_refuse(ngx_http_request_t *r, const char *why)
{
    ngx_str_t  value;

    ngx_str_set(&value, "Bearer");

    if (ngx_http_sandbox_add_header(r, "WWW-Authenticate", &value) != NGX_OK)
    {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    return ngx_http_sandbox_problem(r, NGX_HTTP_SANDBOX_UNAUTHENTICATED, "%s",
                                    why);
}
