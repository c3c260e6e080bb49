/*
 * Names of packages: which there may be, what may be asked for, and what the
 * lists of sandbox_package let through.  What a manager would take for an
 * option, a file, an address or another package's name is refused: nothing
 * but names from where the operator lets sessions install is meant.
 */

#include "ngx_http_sandbox_package.h"


static ngx_uint_t
ngx_http_sandbox_package_part_ok(const u_char *p, size_t len)
{
    size_t  i;

    if (len == 0 || p[0] == '.' || p[0] == '-') {
        return 0;
    }

    for (i = 0; i < len; i++) {
        if (!((p[i] >= 'a' && p[i] <= 'z') || (p[i] >= 'A' && p[i] <= 'Z')
              || (p[i] >= '0' && p[i] <= '9') || p[i] == '.' || p[i] == '_'
              || p[i] == '-'))
        {
            return 0;
        }
    }

    return 1;
}


ngx_uint_t
ngx_http_sandbox_package_name_ok(ngx_uint_t manager, const u_char *name,
    size_t len, ngx_uint_t pattern)
{
    const u_char  *slash;

    if (pattern && len != 0 && name[len - 1] == '*') {
        len--;

        if (len == 0) {
            return 1;
        }

        if (manager == NGX_HTTP_SANDBOX_PACKAGE_NPM && name[0] == '@'
            && name[len - 1] == '/')
        {
            return ngx_http_sandbox_package_part_ok(name + 1, len - 2);
        }
    }

    if (len == 0 || len > NGX_HTTP_SANDBOX_PACKAGE_NAME) {
        return 0;
    }

    if (manager == NGX_HTTP_SANDBOX_PACKAGE_NPM && name[0] == '@') {
        slash = memchr(name, '/', len);

        return slash != NULL
               && ngx_http_sandbox_package_part_ok(name + 1,
                                                   slash - name - 1)
               && ngx_http_sandbox_package_part_ok(slash + 1,
                                                   name + len - slash - 1);
    }

    return ngx_http_sandbox_package_part_ok(name, len);
}


size_t
ngx_http_sandbox_package_normal(ngx_uint_t manager, const u_char *name,
    size_t len, u_char *out)
{
    u_char  ch;
    size_t  i, n;

    for (i = 0, n = 0; i < len; i++) {
        ch = ngx_tolower(name[i]);

        if (manager == NGX_HTTP_SANDBOX_PACKAGE_PIP
            && (ch == '.' || ch == '_' || ch == '-'))
        {
            if (n != 0 && out[n - 1] == '-') {
                continue;
            }

            ch = '-';
        }

        out[n++] = ch;
    }

    return n;
}


/*
 * ---- what is asked for ---------------------------------------------------
 */


/* What a manager would take for a file that lies about. */

static ngx_uint_t
ngx_http_sandbox_package_archive(const u_char *p, size_t len)
{
    size_t      n;
    ngx_uint_t  i;

    static const char  *endings[] = {
        ".whl", ".zip", ".tar", ".tgz", ".tbz", ".txz", ".tlz", ".tar.gz",
        ".tar.bz2", ".tar.xz", ".tar.lz", ".tar.lzma"
    };

    for (i = 0; i < sizeof(endings) / sizeof(endings[0]); i++) {
        n = ngx_strlen(endings[i]);

        if (len >= n
            && ngx_strncasecmp((u_char *) p + len - n, (u_char *) endings[i],
                               n)
               == 0)
        {
            return 1;
        }
    }

    return 0;
}


static ngx_uint_t
ngx_http_sandbox_package_word(u_char ch, const char *more)
{
    return (ch >= 'a' && ch <= 'z') || (ch >= 'A' && ch <= 'Z')
           || (ch >= '0' && ch <= '9')
           || (ch != '\0' && strchr(more, ch) != NULL);
}


static size_t
ngx_http_sandbox_package_span(const u_char *p, size_t len, const char *more)
{
    size_t  i;

    for (i = 0; i < len && ngx_http_sandbox_package_word(p[i], more); i++) {
        /* void */
    }

    return i;
}


static size_t
ngx_http_sandbox_package_blanks(const u_char *p, size_t len)
{
    size_t  i;

    for (i = 0; i < len && p[i] == ' '; i++) { /* void */ }

    return i;
}


/* "[extra, ...]"; 0: is none. */

static size_t
ngx_http_sandbox_package_extras(const u_char *p, size_t len)
{
    size_t  i, n;

    for (i = 1; i < len; i++) {
        i += ngx_http_sandbox_package_blanks(p + i, len - i);
        n = ngx_http_sandbox_package_span(p + i, len - i, "._-");
        i += n;
        i += ngx_http_sandbox_package_blanks(p + i, len - i);

        if (n == 0 || i == len || (p[i] != ',' && p[i] != ']')) {
            return 0;
        }

        if (p[i] == ']') {
            return i + 1;
        }
    }

    return 0;
}


/* "==1.2, !=1.3 ..." up to a marker; its length, or -1. */

static ssize_t
ngx_http_sandbox_package_versions(const u_char *p, size_t len)
{
    size_t  i, n, o;

    static const char  *operators[] = {
        "===", "==", "!=", "~=", "<=", ">=", "<", ">"
    };

    for (i = 0; i < len && p[i] != ';'; /* void */) {

        for (o = 0; o < sizeof(operators) / sizeof(operators[0]); o++) {
            n = ngx_strlen(operators[o]);

            if (len - i > n && ngx_memcmp(p + i, operators[o], n) == 0) {
                break;
            }
        }

        if (o == sizeof(operators) / sizeof(operators[0])) {
            return -1;
        }

        i += n;
        i += ngx_http_sandbox_package_blanks(p + i, len - i);
        n = ngx_http_sandbox_package_span(p + i, len - i, ".*+!_-");

        if (n == 0) {
            return -1;
        }

        i += n;
        i += ngx_http_sandbox_package_blanks(p + i, len - i);

        if (i < len && p[i] == ',') {
            i++;
            i += ngx_http_sandbox_package_blanks(p + i, len - i);

            if (i == len || p[i] == ';') {
                return -1;
            }

        } else if (i < len && p[i] != ';') {
            return -1;
        }
    }

    return (ssize_t) i;
}


/* PEP 508, but for addresses. */

static const char *
ngx_http_sandbox_package_pip(const u_char *p, size_t len, size_t *name)
{
    size_t   i, n;
    ssize_t  versions;

    n = ngx_http_sandbox_package_span(p, len, "._-");

    if (!ngx_http_sandbox_package_name_ok(NGX_HTTP_SANDBOX_PACKAGE_PIP, p, n,
                                          0)
        || !ngx_http_sandbox_package_word(p[0], "")
        || !ngx_http_sandbox_package_word(p[n - 1], ""))
    {
        return "must begin with a package's name: paths are not accepted";
    }

    if (ngx_http_sandbox_package_archive(p, n)
        || ngx_http_sandbox_package_archive(p, len))
    {
        return "must be a name: files are not accepted";
    }

    *name = n;
    i = n;
    i += ngx_http_sandbox_package_blanks(p + i, len - i);

    if (i < len && p[i] == '[') {
        n = ngx_http_sandbox_package_extras(p + i, len - i);

        if (n == 0) {
            return "has no good list of extras after its name";
        }

        i += n;
        i += ngx_http_sandbox_package_blanks(p + i, len - i);
    }

    if (i < len && p[i] == '@') {
        return "must be a name: addresses and paths are not accepted";
    }

    versions = ngx_http_sandbox_package_versions(p + i, len - i);

    if (versions == -1) {
        return "has no good version after its name, such as \"==1.2\"";
    }

    i += (size_t) versions;

    if (i < len) {
        i++;
        n = ngx_http_sandbox_package_span(p + i, len - i,
                                          " _.,<>=!~'\"()+*-");

        if (n == 0 || n != len - i) {
            return "has no good marker after \";\"";
        }
    }

    return NULL;
}


/* NAME or @SCOPE/NAME, and "@" with a version, a range or a tag. */

static const char *
ngx_http_sandbox_package_npm(const u_char *p, size_t len, size_t *name)
{
    size_t  i, n;

    i = (p[0] == '@');
    n = i + ngx_http_sandbox_package_span(p + i, len - i, "._-/");

    if (!ngx_http_sandbox_package_name_ok(NGX_HTTP_SANDBOX_PACKAGE_NPM, p, n,
                                          0)
        || p[0] == '_')
    {
        return "must begin with a package's name: addresses and paths are "
               "not accepted";
    }

    if (ngx_http_sandbox_package_archive(p, n)
        || ngx_http_sandbox_package_archive(p, len))
    {
        return "must be a name: files are not accepted";
    }

    *name = n;

    if (n == len) {
        return NULL;
    }

    i = n + 1;

    if (p[n] != '@' || i == len || p[i] == '.' || p[i] == '-'
        || ngx_http_sandbox_package_span(p + i, len - i, " ._^~<>=|*+-")
           != len - i)
    {
        return "has no good version after its name, such as \"@^1.2\"";
    }

    return NULL;
}


const char *
ngx_http_sandbox_package_fault(ngx_uint_t manager, const u_char *p,
    size_t len, size_t *name)
{
    size_t  i;

    if (len == 0 || len > NGX_HTTP_SANDBOX_PACKAGE_REQUIREMENT) {
        return "must be 1 to 1024 bytes long";
    }

    if (p[0] == '-') {
        return "begins with '-': options are not accepted";
    }

    for (i = 0; i < len; i++) {
        if (p[i] < 0x20 || p[i] == 0x7f) {
            return "must have no control characters";
        }

        if (p[i] == ':' || p[i] == '\\') {
            return "must be a name: addresses and paths are not accepted";
        }
    }

    return (manager == NGX_HTTP_SANDBOX_PACKAGE_NPM)
           ? ngx_http_sandbox_package_npm(p, len, name)
           : ngx_http_sandbox_package_pip(p, len, name);
}


ngx_uint_t
ngx_http_sandbox_package_version_ok(const u_char *p, size_t len)
{
    return len != 0 && len <= NGX_HTTP_SANDBOX_PACKAGE_VERSION
           && ngx_http_sandbox_package_span(p, len, ".+!_-") == len;
}


/*
 * ---- what may be installed -----------------------------------------------
 */


static ngx_uint_t
ngx_http_sandbox_package_listed(const ngx_array_t *list, const u_char *name,
    size_t len)
{
    size_t            part;
    ngx_uint_t        i;
    const ngx_str_t  *row;

    row = (list == NULL) ? NULL : list->elts;

    for (i = 0; row != NULL && i < list->nelts; i++) {

        if (row[i].data[row[i].len - 1] == '*') {
            part = row[i].len - 1;

            if (len >= part && ngx_memcmp(row[i].data, name, part) == 0) {
                return 1;
            }

        } else if (len == row[i].len
                   && ngx_memcmp(row[i].data, name, len) == 0)
        {
            return 1;
        }
    }

    return 0;
}


ngx_uint_t
ngx_http_sandbox_package_lists(const ngx_http_sandbox_main_conf_t *smcf,
    ngx_uint_t manager)
{
    return smcf->packages != NULL
           && (smcf->packages->allow[manager] != NULL
               || smcf->packages->deny[manager] != NULL);
}


ngx_uint_t
ngx_http_sandbox_package_allowed(const ngx_http_sandbox_main_conf_t *smcf,
    ngx_uint_t manager, const u_char *name, size_t len)
{
    u_char                              normal[NGX_HTTP_SANDBOX_PACKAGE_NAME];
    const ngx_http_sandbox_packages_t  *packages;

    packages = smcf->packages;

    if (!ngx_http_sandbox_package_lists(smcf, manager)) {
        return 1;
    }

    if (len > sizeof(normal)) {
        return 0;
    }

    len = ngx_http_sandbox_package_normal(manager, name, len, normal);

    if (ngx_http_sandbox_package_listed(packages->deny[manager], normal,
                                        len))
    {
        return 0;
    }

    return packages->allow[manager] == NULL
           || ngx_http_sandbox_package_listed(packages->allow[manager],
                                              normal, len);
}
