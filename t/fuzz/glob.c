/*
 * A pattern, a newline, and paths of which each is on a line: what a caller's
 * pattern costs and says of names that its session has chosen.
 */

#include "glob_match.h"

#include <stdlib.h>
#include <string.h>


int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void walk(const sbx_glob_t *glob, const char *path, size_t len);


int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char         *pattern;
    size_t        len, n;
    const char   *p, *end;
    sbx_glob_t   *glob;
    sbx_error_t   e;

    end = memchr(data, '\n', size);
    len = end != NULL ? (size_t) (end - (const char *) data) : size;
    pattern = malloc(len + 1);

    if (pattern == NULL) {
        return 0;
    }

    /* no NUL is promised after it */

    memcpy(pattern, data, len);
    pattern = realloc(pattern, len ? len : 1);

    if (sbx_glob_compile(pattern, len, &glob, &e) != 0) {
        if (e.code != SBX_E_INVALID) {
            abort();
        }

        free(pattern);
        return 0;
    }

    free(pattern);

    (void) strlen(sbx_glob_base(glob));
    (void) sbx_glob_directories(glob);

    p = (const char *) data + len;
    end = (const char *) data + size;

    while (p < end) {
        p++;

        for (n = 0; p + n < end && p[n] != '\n'; n++) { /* void */ }

        walk(glob, p, n);
        p += n;
    }

    sbx_glob_free(glob);

    return 0;
}


static void
walk(const sbx_glob_t *glob, const char *path, size_t len)
{
    char         *name;
    size_t        n;
    uint64_t      states;
    sbx_error_t   e;

    states = sbx_glob_start(glob);

    while (len != 0 && sbx_glob_goes_on(glob, states)) {
        for (n = 0; n < len && path[n] != '/'; n++) { /* void */ }

        if (n == 0) {
            path++;
            len--;
            continue;
        }

        name = malloc(n);

        if (name == NULL) {
            return;
        }

        memcpy(name, path, n);

        if (sbx_glob_step(glob, states, name, n, n < len, &states, &e) != 0) {
            if (e.code != SBX_E_INVALID) {
                abort();
            }

            free(name);
            return;
        }

        free(name);
        path += n;
        len -= n;
        (void) sbx_glob_accepts(glob, states);
    }
}
