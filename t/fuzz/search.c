/*
 * A search for the caller's pattern in a file that is hostile.  The input is
 * a byte of how, one of how many lines at most, the pattern up to 0x1e, and
 * the file.
 *
 * Whatever they are: each line that is told is the file's, whole or cut where
 * it may be, under its number and in order, no more of them than were asked
 * for; of a fixed string they are all that have it; and it ends in time.
 */

#include "serve.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "../../sandbox_core/init/file_search.c"


#define HOW_FIXED   0x01
#define HOW_LONG    0x02               /* the last line goes on and on */
#define LONG        70000
#define END         0x1e


static sbx_init_serve_t   serve;
static sbx_init_list_t    list;
static sbx_init_search_t  search;
static uint8_t            file[(1 << 20) + LONG];
static size_t             file_len;
static uint64_t           told;        /* the last line's number */
static size_t             told_at;     /* where the next one begins */
static uint64_t           count;
static unsigned           all;         /* none may be left out */


int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    int             fd, rc;
    size_t          n, at;
    uint64_t        line;
    sbx_error_t     e;
    sbx_f_end_t     end;
    const uint8_t  *p, *next;

    if (size < 3 || size > (1 << 20)) {
        return 0;
    }

    memset(&serve.file, 0, sizeof(serve.file));
    memset(&search, 0, offsetof(sbx_init_search_t, buf));
    memset(&end, 0, sizeof(end));
    memset(&e, 0, sizeof(e));
    serve.file.flags = data[0] & HOW_FIXED ? SBX_FILE_F_FIXED : 0;
    serve.file.limit = data[1];
    p = memchr(data + 2, END, size - 2);
    n = p != NULL ? (size_t) (p - data - 2) : size - 2;
    n = n < SBX_PATH_MAX - 1 ? n : SBX_PATH_MAX - 1;
    memcpy(serve.path2, data + 2, n);
    serve.path2[n] = '\0';

    /* as it is checked before it comes here */

    if (memchr(serve.path2, '\0', n) != NULL) {
        return 0;
    }

    serve.file.path2_len = (uint32_t) n;
    file_len = p != NULL ? (size_t) (data + size - p - 1) : 0;

    if (file_len != 0) {
        memcpy(file, p + 1, file_len);
    }

    if (data[0] & HOW_LONG && file_len != 0) {
        memset(file + file_len, file[file_len - 1], LONG);
        file_len += LONG;
    }

    list.s = &serve;
    list.end = &end;
    list.e = &e;
    list.data = &search;
    list.full = 0;
    list.len = 2;
    memcpy(list.path, "/f", 3);
    search.deadline = sbx_now_us() + SBX_INIT_SEARCH_TIME;
    told = told_at = 0;
    count = 0;

    if (sbx_init_search_compile(&serve, &search, &e) != 0) {
        must(e.code == SBX_E_INVALID && e.text[0] != '\0');
        return 0;
    }

    fd = memfd_create("file", MFD_CLOEXEC);
    must(fd != -1 && write(fd, file, file_len) == (ssize_t) file_len
         && lseek(fd, 0, SEEK_SET) == 0);
    rc = sbx_init_search_file(&list, fd);
    (void) close(fd);
    must(rc == 0 && end.count == count && count <= data[1]);
    must(!list.full || end.truncated);

    if (data[0] & HOW_FIXED && memchr(file, '\0', file_len) == NULL) {

        /* the lines that have it, by another way */

        for (line = 0, at = 0; at < file_len; at += n + 1) {
            next = memchr(file + at, '\n', file_len - at);
            n = next != NULL ? (size_t) (next - file) - at : file_len - at;
            line += memmem(file + at,
                           n < SBX_INIT_SEARCH_LINE ? n
                                                    : SBX_INIT_SEARCH_LINE,
                           search.text, search.len) != NULL;
        }

        must(count == (line < data[1] ? line : data[1]));
        must(line <= data[1] || end.truncated);
    }

    pcre2_code_free(search.code);
    pcre2_code_free(search.slow);
    pcre2_match_data_free(search.match);
    pcre2_match_context_free(search.context);

    return 0;
}


/* A line that was found. */

int
sbx_init_serve_frame(sbx_init_serve_t *s, sbx_frame_type_t type,
    const void *payload, size_t size, sbx_error_t *e)
{
    size_t          n, len;
    const char     *path, *text;
    sbx_f_match_t   match;
    const uint8_t  *end;

    (void) e;
    must(s == &serve && type == SBX_F_MATCH && size <= SBX_FRAME_MAX);
    must(sbx_wire_check_match(payload, size, &match, &path, &text) == 0);
    must(match.path_len == 2 && memcmp(path, "/f", 2) == 0);
    must(match.line > told);

    for ( ;; ) {
        must(told_at < file_len);
        end = memchr(file + told_at, '\n', file_len - told_at);
        n = end != NULL ? (size_t) (end - file) - told_at
                        : file_len - told_at;

        if (++told == match.line) {
            break;
        }

        told_at += n + 1;
    }

    len = match.text_len;
    must(len <= n && len <= SBX_SEARCH_TEXT_MAX);
    must(memcmp(text, file + told_at, len) == 0);
    must(len == n || len >= SBX_SEARCH_TEXT_MAX - 4
         || (len + 1 == n && file[told_at + len] == '\r')
         || (n > SBX_INIT_SEARCH_LINE));
    told_at += n + 1;
    count++;

    return 0;
}


int
sbx_init_serve_next(sbx_init_serve_t *s, sbx_frame_t *frame,
    const uint8_t **payload, sbx_error_t *e)
{
    (void) s;
    (void) frame;
    (void) payload;
    (void) e;
    abort();
}
