/*
 * Paths and entries of files, as envd tells them: permissions are written as
 * Go writes them, and a link has the type and the mode of what it leads to.
 */

#include "ngx_http_sandbox_e2b_files.h"

#include <time.h>


/* seconds of the years 1 and 9999: what a Timestamp may be */
#define NGX_HTTP_SANDBOX_E2B_TIME_MIN    (-62135596800LL)
#define NGX_HTTP_SANDBOX_E2B_TIME_MAX    253402300799LL


/* By sbx_file_type_t. */

static const struct {
    const char  *type;
    const char  *letter;
} ngx_http_sandbox_e2b_types[] = {
    { "FILE_TYPE_FILE", "" },
    { "FILE_TYPE_DIRECTORY", "d" },
    { "FILE_TYPE_SYMLINK", "L" },
    { "FILE_TYPE_UNSPECIFIED", "p" },
    { "FILE_TYPE_UNSPECIFIED", "S" },
    { "FILE_TYPE_UNSPECIFIED", "D" },
    { "FILE_TYPE_UNSPECIFIED", "?" }
};


/* By sbx_change_t. */

static const char *const  ngx_http_sandbox_e2b_changes[] = {
    "EVENT_TYPE_CREATE", "EVENT_TYPE_WRITE", "EVENT_TYPE_REMOVE",
    "EVENT_TYPE_RENAME", "EVENT_TYPE_CHMOD"
};


int
ngx_http_sandbox_e2b_file_path(ngx_http_request_t *r, uint32_t user,
    const void *path, size_t len, ngx_str_t *out, sbx_error_t *e)
{
    u_char          *p, *to, *end, *part;
    size_t           n;
    sbx_json_str_t   s;

    s.data = path;
    s.len = len;

    if (ngx_http_sandbox_e2b_path(r, user, &s, out, e) != 0) {
        return -1;
    }

    p = out->data;
    end = p + out->len;
    to = p;

    while (p < end) {

        if (*p == '/') {
            p++;
            continue;
        }

        part = p;

        while (p < end && *p != '/') {
            p++;
        }

        n = p - part;

        if (n == 1 && part[0] == '.') {
            continue;
        }

        if (n == 2 && part[0] == '.' && part[1] == '.') {
            while (to > out->data && *--to != '/') {
                /* void */
            }

            continue;
        }

        *to++ = '/';
        to = ngx_movemem(to, part, n);
    }

    if (to == out->data) {
        *to++ = '/';
    }

    out->len = to - out->data;

    return 0;
}


ngx_http_sandbox_call_t *
ngx_http_sandbox_e2b_file_call(ngx_http_request_t *r,
    const sbx_f_file_t *file, const ngx_str_t *path, const ngx_str_t *path2,
    void *data)
{
    sbx_f_file_t  own;

    own = *file;

    if (own.user == SBX_USER_USER) {
        own.user = SBX_USER_ROOT;
        own.flags |= SBX_FILE_F_OWNED;
    }

    return ngx_http_sandbox_op_file_call(r, &own, path, path2, data);
}


void
ngx_http_sandbox_e2b_base(const ngx_str_t *path, ngx_str_t *name)
{
    u_char  *p;

    for (p = path->data + path->len; p > path->data; p--) {
        if (p[-1] == '/') {
            break;
        }
    }

    name->data = p;
    name->len = path->data + path->len - p;

    if (name->len == 0) {
        *name = *path;
    }
}


void
ngx_http_sandbox_e2b_said(const ngx_str_t *path, ngx_str_t *text,
    u_char *buf)
{
    ngx_str_t  rest;

    static const size_t  lead = sizeof("path: ") - 1;

    if (text->len <= lead || ngx_memcmp(text->data, "path: ", lead) != 0) {
        return;
    }

    rest.data = text->data + lead;
    rest.len = text->len - lead;

    text->len = ngx_snprintf(buf, NGX_HTTP_SANDBOX_E2B_SAID, "path '%V': %V",
                             path, &rest) - buf;
    text->data = buf;
}


static void
ngx_http_sandbox_e2b_permissions(ngx_http_sandbox_json_t *j,
    const sbx_f_entry_t *entry)
{
    u_char       text[16], *p;
    ngx_uint_t   i;

    static const u_char  rwx[] = "rwxrwxrwx";

    p = ngx_cpymem(text, ngx_http_sandbox_e2b_types[entry->type].letter,
                   ngx_strlen(ngx_http_sandbox_e2b_types[entry->type].letter));

    if (entry->mode & 04000) {
        *p++ = 'u';
    }

    if (entry->mode & 02000) {
        *p++ = 'g';
    }

    if (entry->mode & 01000) {
        *p++ = 't';
    }

    if (p == text) {
        *p++ = '-';
    }

    for (i = 0; i < 9; i++) {
        *p++ = (entry->mode & (0400 >> i)) ? rwx[i] : '-';
    }

    ngx_http_sandbox_json_string(j, text, p - text);
}


static void
ngx_http_sandbox_e2b_timestamp(ngx_http_sandbox_json_t *j, int64_t ns)
{
    u_char     text[64], *p;
    time_t     sec;
    int64_t    part;
    struct tm  tm;

    sec = (time_t) (ns / 1000000000);
    part = ns % 1000000000;

    if (part < 0) {
        part += 1000000000;
        sec--;
    }

    sec = ngx_max(sec, NGX_HTTP_SANDBOX_E2B_TIME_MIN);
    sec = ngx_min(sec, NGX_HTTP_SANDBOX_E2B_TIME_MAX);

    if (gmtime_r(&sec, &tm) == NULL) {
        ngx_memzero(&tm, sizeof(tm));
        tm.tm_year = 70;
        tm.tm_mday = 1;
    }

    p = ngx_sprintf(text, "%04d-%02d-%02dT%02d:%02d:%02d", tm.tm_year + 1900,
                    tm.tm_mon + 1, tm.tm_mday, tm.tm_hour, tm.tm_min,
                    tm.tm_sec);

    if (part != 0) {
        p = ngx_sprintf(p, ".%09L", part);
    }

    *p++ = 'Z';

    ngx_http_sandbox_json_string(j, text, p - text);
}


ngx_int_t
ngx_http_sandbox_e2b_entry(ngx_http_sandbox_json_t *j, const u_char *payload,
    size_t len)
{
    u_char          size[NGX_INT64_LEN + 2];
    uint32_t        type, mode;
    ngx_str_t       path, name;
    const char     *s, *owner, *group, *target;
    sbx_f_entry_t   entry;

    if (sbx_wire_check_entry(payload, len, &entry, &s, &owner, &group,
                             &target)
        != 0
        || entry.type >= SBX_TYPE_NONE
        || entry.target_type > SBX_TYPE_NONE)
    {
        return NGX_ERROR;
    }

    path.data = (u_char *) s;
    path.len = entry.path_len;
    ngx_http_sandbox_e2b_base(&path, &name);

    type = entry.type;
    mode = entry.mode;

    if (type == SBX_TYPE_LINK) {
        type = entry.target_type;
        mode = entry.target_mode;
    }

    ngx_http_sandbox_json_raw(j, "{\"name\":");
    ngx_http_sandbox_json_string(j, name.data, name.len);
    ngx_http_sandbox_json_raw(j, ",\"type\":");
    ngx_http_sandbox_json_cstring(j, ngx_http_sandbox_e2b_types[type].type);
    ngx_http_sandbox_json_raw(j, ",\"path\":");
    ngx_http_sandbox_json_string(j, path.data, path.len);
    ngx_http_sandbox_json_raw(j, ",\"size\":");
    ngx_http_sandbox_json_string(j, size,
                    ngx_sprintf(size, "%uL", entry.size) - size);
    ngx_http_sandbox_json_raw(j, ",\"mode\":");
    ngx_http_sandbox_json_int(j, mode & 0777);
    ngx_http_sandbox_json_raw(j, ",\"permissions\":");
    ngx_http_sandbox_e2b_permissions(j, &entry);
    ngx_http_sandbox_json_raw(j, ",\"owner\":");
    ngx_http_sandbox_json_string(j, owner, entry.owner_len);
    ngx_http_sandbox_json_raw(j, ",\"group\":");
    ngx_http_sandbox_json_string(j, group, entry.group_len);
    ngx_http_sandbox_json_raw(j, ",\"modifiedTime\":");
    ngx_http_sandbox_e2b_timestamp(j, entry.mtime_ns);

    if (entry.type == SBX_TYPE_LINK) {
        ngx_http_sandbox_json_raw(j, ",\"symlinkTarget\":");
        ngx_http_sandbox_json_string(j, target, entry.target_len);
    }

    ngx_http_sandbox_e2b_entry_meta(j,
                                    sbx_wire_entry_metadata(&entry, target),
                                    entry.metadata_len);
    ngx_http_sandbox_json_raw(j, "}");

    return NGX_OK;
}


/* Its form has been checked; other attributes are not this API's. */

void
ngx_http_sandbox_e2b_entry_meta(ngx_http_sandbox_json_t *j, const char *p,
    size_t len)
{
    ngx_uint_t   n;
    const char  *key, *value, *end;

    static const size_t  prefix = sizeof(NGX_HTTP_SANDBOX_E2B_META) - 1;

    n = 0;

    for (end = p + len; p < end; p = value + ngx_strlen(value) + 1) {
        key = p;
        value = key + ngx_strlen(key) + 1;

        if (ngx_strncmp(key, NGX_HTTP_SANDBOX_E2B_META, prefix) != 0
            || key[prefix] == '\0')
        {
            continue;
        }

        ngx_http_sandbox_json_raw(j, n++ ? "," : ",\"metadata\":{");
        ngx_http_sandbox_json_cstring(j, key + prefix);
        ngx_http_sandbox_json_raw(j, ":");
        ngx_http_sandbox_json_cstring(j, value);
    }

    if (n != 0) {
        ngx_http_sandbox_json_raw(j, "}");
    }
}


void
ngx_http_sandbox_e2b_event(ngx_http_sandbox_json_t *j, const u_char *name,
    size_t len, uint32_t change)
{
    ngx_http_sandbox_json_raw(j, "{\"name\":");
    ngx_http_sandbox_json_string(j, name, len);
    ngx_http_sandbox_json_raw(j, ",\"type\":");
    ngx_http_sandbox_json_cstring(j, ngx_http_sandbox_e2b_changes[change]);
}


void
ngx_http_sandbox_e2b_below(const char *path, size_t len, size_t root_len,
    ngx_str_t *name)
{
    name->data = (u_char *) path;
    name->len = len;

    if (root_len < len && (path[root_len] == '/'
                           || (root_len != 0 && path[root_len - 1] == '/')))
    {
        name->data += root_len;
        name->len -= root_len;

    } else if (root_len == len) {

        /* what is watched itself */

        ngx_str_set(name, ".");
    }

    while (name->len > 1 && name->data[0] == '/') {
        name->data++;
        name->len--;
    }
}
