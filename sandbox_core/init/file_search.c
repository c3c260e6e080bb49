/*
 * Searching the files below a path for a pattern.
 *
 * The pattern is the caller's, the text hostile: pcre2 runs here, in a
 * process of the session that no one else waits for, with a bound on its
 * steps and its memory for each line, and one on the time of the whole.
 * What a bound cuts off is told by end->truncated.
 *
 * pcre2 counts steps from each place of a line anew, and not what it passes
 * over in one.  So a line is matched with few steps from each place; one that
 * needs more, or is long, once more by a slower code that calls us before
 * each item of the pattern.
 */

#include "init_file.h"
#include "glob_match.h"

#define PCRE2_CODE_UNIT_WIDTH  8
#include <pcre2.h>

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>


#define SBX_INIT_SEARCH_TIME     20000000   /* us for the whole */
#define SBX_INIT_SEARCH_STEP     30         /* s for a piece of a file */
#define SBX_INIT_SEARCH_LINE     65536      /* bytes of a line that count */
#define SBX_INIT_SEARCH_STEPS    500000     /* of pcre2, from a place */
#define SBX_INIT_SEARCH_CALLS    5000000    /* of ours, for a line */
#define SBX_INIT_SEARCH_LOOK     256        /* calls between looks at time */
#define SBX_INIT_SEARCH_SHORT    4096       /* bytes of a line that is first
                                               matched without calls, */
#define SBX_INIT_SEARCH_FEW      20000000   /* with so many steps in all */
#define SBX_INIT_SEARCH_HEAP     8192       /* KiB */
#define SBX_INIT_SEARCH_LEVELS   200


typedef struct {
    const char          *text;              /* a fixed string, or */
    size_t               len;
    pcre2_code          *code;
    pcre2_code          *slow;              /* NULL until it is needed */
    pcre2_match_data    *match;
    pcre2_match_context *context;
    uint64_t             deadline;
    uint32_t             calls;             /* for this line */
    size_t               have;              /* bytes of the line in buf */
    unsigned             cut:1;             /* the rest of it is passed over */
    uint64_t             line;
    char                 buf[SBX_INIT_SEARCH_LINE];
} sbx_init_search_t;


static int sbx_init_search_compile(sbx_init_serve_t *s,
    sbx_init_search_t *search, sbx_error_t *e);
static pcre2_code *sbx_init_search_code(const sbx_init_search_t *search,
    uint32_t options, int *code, size_t *at);
static int sbx_init_search_glob(sbx_init_serve_t *s, sbx_glob_t **glob,
    sbx_error_t *e);
static int sbx_init_search_base(sbx_init_list_t *list, int *fd);
static int sbx_init_search_one(sbx_init_list_t *list);
static int sbx_init_search_emit(sbx_init_list_t *list, int fd,
    const char *name);
static int sbx_init_search_file(sbx_init_list_t *list, int fd);
static int sbx_init_search_piece(sbx_init_list_t *list, const char *p,
    size_t n);
static int sbx_init_search_line(sbx_init_list_t *list);
static int sbx_init_search_match(sbx_init_list_t *list, int *found);
static int sbx_init_search_bounded(sbx_init_search_t *search);
static int sbx_init_search_call(pcre2_callout_block *block, void *data);
static int sbx_init_search_send(sbx_init_list_t *list);


int
sbx_init_file_verb_search(sbx_init_serve_t *s, sbx_f_end_t *end,
    sbx_error_t *e)
{
    sbx_auto_fd               fd = -1;
    struct stat               st;
    sbx_glob_t               *glob;
    static sbx_init_list_t    list;
    static sbx_init_search_t  search;

    list.s = s;
    list.end = end;
    list.e = e;
    list.emit = sbx_init_search_emit;
    list.data = &search;
    search.deadline = sbx_now_us() + SBX_INIT_SEARCH_TIME;

    if (sbx_init_serve_kind(s, SBX_INIT_KIND_LONG, e) != 0
        || sbx_init_search_compile(s, &search, e) != 0
        || sbx_init_search_glob(s, &glob, e) != 0)
    {
        return -1;
    }

    list.glob = glob;

    fd = sbx_init_open(s, s->path, O_RDONLY|O_NONBLOCK|O_NOCTTY, e);

    if (fd == -1) {
        return -1;
    }

    if (fstat(fd, &st) == -1) {
        return sbx_init_errno(e, errno, "path");
    }

    if (S_ISREG(st.st_mode)) {
        return sbx_init_search_one(&list);
    }

    if (!sbx_init_search_base(&list, &fd)) {
        return 0;
    }

    return sbx_init_list_run(&list, fd, glob != NULL ? sbx_glob_start(glob)
                                                     : SBX_INIT_SEARCH_LEVELS);
}


static int
sbx_init_search_compile(sbx_init_serve_t *s, sbx_init_search_t *search,
    sbx_error_t *e)
{
    int          code;
    size_t       skip, at;
    PCRE2_UCHAR  text[120];

    skip = (size_t) s->file.size;

    if (s->file.size >= s->file.path2_len) {
        return sbx_error(e, 0, SBX_E_INVALID, "/pattern: is empty");
    }

    search->text = s->path2 + skip;
    search->len = s->file.path2_len - skip;

    if (s->file.flags & SBX_FILE_F_FIXED) {
        return 0;
    }

    search->code = sbx_init_search_code(search, 0, &code, &at);

    if (search->code == NULL && code == 0) {
        return sbx_init_errno(e, ENOMEM, "the pattern");
    }

    if (search->code == NULL) {
        (void) pcre2_get_error_message(code, text, sizeof(text));
        return sbx_error(e, 0, SBX_E_INVALID, "/pattern: at byte %zu: %s", at,
                         (char *) text);
    }

    search->match = pcre2_match_data_create(1, NULL);
    search->context = pcre2_match_context_create(NULL);

    if (search->match == NULL || search->context == NULL) {
        return sbx_init_errno(e, ENOMEM, "the pattern");
    }

    (void) pcre2_set_depth_limit(search->context, SBX_INIT_SEARCH_STEPS);
    (void) pcre2_set_heap_limit(search->context, SBX_INIT_SEARCH_HEAP);
    (void) pcre2_set_callout(search->context, sbx_init_search_call, search);

    return 0;
}


/* NULL: *code and *at say why, or 0 for no memory. */

static pcre2_code *
sbx_init_search_code(const sbx_init_search_t *search, uint32_t options,
    int *code, size_t *at)
{
    pcre2_code             *compiled;
    pcre2_compile_context  *compile;

    *code = 0;
    compile = pcre2_compile_context_create(NULL);

    if (compile == NULL) {
        return NULL;
    }

    (void) pcre2_set_parens_nest_limit(compile, 100);

    compiled = pcre2_compile((PCRE2_SPTR) search->text, search->len,
                             options|PCRE2_UTF|PCRE2_MATCH_INVALID_UTF
                             |PCRE2_NEVER_BACKSLASH_C,
                             code, at, compile);

    pcre2_compile_context_free(compile);

    return compiled;
}


/* One without a slash is of names, at whatever depth. */

static int
sbx_init_search_glob(sbx_init_serve_t *s, sbx_glob_t **glob, sbx_error_t *e)
{
    char    pattern[SBX_PATH_MAX + 4];
    size_t  len;

    *glob = NULL;
    len = (size_t) s->file.size;

    if (len == 0) {
        return 0;
    }

    (void) strcpy(pattern, memchr(s->path2, '/', len) ? "./" : "**/");
    (void) sbx_copy_string(pattern + strlen(pattern),
                           sizeof(pattern) - strlen(pattern), s->path2, len);

    if (pattern[0] == '.') {
        memmove(pattern, pattern + 2, strlen(pattern) - 1);

        if (pattern[0] == '/') {
            return sbx_error(e, 0, SBX_E_INVALID,
                             "/glob: is relative to the path");
        }
    }

    if (sbx_glob_compile(pattern, strlen(pattern), glob, e) != 0) {
        return -1;
    }

    return 0;
}


/* The walk begins at the literal beginning of the glob: 1 if it is there. */

static int
sbx_init_search_base(sbx_init_list_t *list, int *fd)
{
    const char  *base;

    if (list->glob == NULL || sbx_glob_base(list->glob)[0] == '\0') {
        return 1;
    }

    base = sbx_glob_base(list->glob);

    (void) close(*fd);
    *fd = -1;

    if (strlen(list->s->path) + strlen(base) + 2 > sizeof(list->s->path)) {
        return 0;
    }

    if (list->s->path[0] != '\0') {
        (void) strcat(list->s->path, "/");
    }

    (void) strcat(list->s->path, base);

    *fd = sbx_init_open(list->s, list->s->path, O_RDONLY|O_DIRECTORY, NULL);

    return *fd != -1;
}


/* The path is a file's: the glob does not count. */

static int
sbx_init_search_one(sbx_init_list_t *list)
{
    char         path[SBX_PATH_MAX + 64];
    sbx_auto_fd  fd = -1;

    fd = sbx_init_open(list->s, list->s->path,
                       O_RDONLY|O_NONBLOCK|O_NOCTTY, list->e);

    if (fd == -1 || sbx_init_real(fd, path, sizeof(path), list->e) != 0) {
        return -1;
    }

    list->len = strlen(path);
    (void) sbx_copy_string(list->path, sizeof(list->path), path, list->len);

    return sbx_init_search_file(list, fd);
}


static int
sbx_init_search_emit(sbx_init_list_t *list, int fd, const char *name)
{
    struct stat         st;
    sbx_auto_fd         file = -1;
    sbx_init_search_t  *search;

    search = list->data;

    sbx_init_serve_alarm(list->s, SBX_INIT_SEARCH_STEP);

    if (sbx_now_us() >= search->deadline) {
        list->end->truncated = 1;
        list->full = 1;
        return 0;
    }

    /* what cannot be read has no lines for this user */

    if (fstatat(fd, name, &st, AT_SYMLINK_NOFOLLOW) == -1) {
        return 0;
    }

    if (S_ISDIR(st.st_mode) && list->glob == NULL
        && list->depth + 1 >= SBX_INIT_SEARCH_LEVELS)
    {
        list->end->truncated = 1;
    }

    if (!S_ISREG(st.st_mode)) {
        return 0;
    }

    file = sbx_init_open_at(fd, name,
                            O_RDONLY|O_NONBLOCK|O_NOCTTY|O_NOFOLLOW);

    if (file == -1 || fstat(file, &st) == -1 || !S_ISREG(st.st_mode)
        || sbx_init_foreign(file))
    {
        return 0;
    }

    return sbx_init_search_file(list, file);
}


static int
sbx_init_search_file(sbx_init_list_t *list, int fd)
{
    char                buf[32768];
    ssize_t             n;
    sbx_init_search_t  *search;

    search = list->data;
    search->have = 0;
    search->cut = 0;
    search->line = 1;

    for ( ;; ) {
        n = read(fd, buf, sizeof(buf));

        if (n == -1 && errno == EINTR && sbx_init_serve_late(list->e) == 0) {
            continue;
        }

        if (n <= 0) {
            break;
        }

        /* a file with a NUL is no text, and is not looked at further */

        if (memchr(buf, '\0', (size_t) n) != NULL) {
            return 0;
        }

        if (sbx_init_search_piece(list, buf, (size_t) n) != 0) {
            return -1;
        }

        if (list->full) {
            return 0;
        }
    }

    return search->have != 0 ? sbx_init_search_line(list) : 0;
}


static int
sbx_init_search_piece(sbx_init_list_t *list, const char *p, size_t n)
{
    size_t              len, room;
    const char         *end;
    sbx_init_search_t  *search;

    search = list->data;

    /* the time for a step is for those without a match as well */

    sbx_init_serve_alarm(list->s, SBX_INIT_SEARCH_STEP);

    while (n != 0 && !list->full) {

        if (sbx_now_us() >= search->deadline) {
            list->end->truncated = 1;
            list->full = 1;
            return 0;
        }

        end = memchr(p, '\n', n);
        len = end != NULL ? (size_t) (end - p) : n;
        room = sizeof(search->buf) - search->have;

        if (len > room) {
            memcpy(search->buf + search->have, p, room);
            search->have += room;
            search->cut = 1;

        } else {
            memcpy(search->buf + search->have, p, len);
            search->have += len;
        }

        if (end == NULL) {
            return 0;
        }

        if (sbx_init_search_line(list) != 0) {
            return -1;
        }

        search->have = 0;
        search->cut = 0;
        search->line++;
        p = end + 1;
        n -= len + 1;
    }

    return 0;
}


static int
sbx_init_search_line(sbx_init_list_t *list)
{
    int                 found;
    sbx_init_search_t  *search;

    search = list->data;

    if (sbx_init_search_match(list, &found) != 0) {
        return -1;
    }

    if (!found && search->cut) {
        list->end->truncated = 1;
    }

    if (found) {
        if (list->end->count == list->s->file.limit) {
            list->end->truncated = 1;
            list->full = 1;
            return 0;
        }

        list->end->count++;
        return sbx_init_search_send(list);
    }

    return 0;
}


static int
sbx_init_search_match(sbx_init_list_t *list, int *found)
{
    int                 rc;
    sbx_init_search_t  *search;

    search = list->data;

    if (search->code == NULL) {
        *found = memmem(search->buf, search->have, search->text, search->len)
                 != NULL;
        return 0;
    }

    rc = sbx_init_search_bounded(search);

    *found = (rc >= 0);

    if (rc >= 0 || rc == PCRE2_ERROR_NOMATCH) {
        return 0;
    }

    /* it costs more than a line may: whether it matches is not known */

    list->end->truncated = 1;

    if (sbx_now_us() >= search->deadline) {
        list->full = 1;
    }

    return 0;
}


/* As pcre2_match(). */

static int
sbx_init_search_bounded(sbx_init_search_t *search)
{
    int       rc, code;
    size_t    at;
    uint32_t  steps;

    search->calls = 0;

    if (search->have <= SBX_INIT_SEARCH_SHORT) {
        steps = SBX_INIT_SEARCH_FEW / ((uint32_t) search->have + 1);
        steps = steps < SBX_INIT_SEARCH_STEPS ? steps : SBX_INIT_SEARCH_STEPS;
        (void) pcre2_set_match_limit(search->context, steps);

        rc = pcre2_match(search->code, (PCRE2_SPTR) search->buf, search->have,
                         0, 0, search->match, search->context);

        if (rc != PCRE2_ERROR_MATCHLIMIT || steps == SBX_INIT_SEARCH_STEPS) {
            return rc;
        }
    }

    if (search->slow == NULL) {
        search->slow = sbx_init_search_code(search, PCRE2_AUTO_CALLOUT, &code,
                                            &at);
    }

    if (search->slow == NULL) {
        return PCRE2_ERROR_NOMEMORY;
    }

    (void) pcre2_set_match_limit(search->context, SBX_INIT_SEARCH_STEPS);

    return pcre2_match(search->slow, (PCRE2_SPTR) search->buf, search->have,
                       0, 0, search->match, search->context);
}


static int
sbx_init_search_call(pcre2_callout_block *block, void *data)
{
    sbx_init_search_t  *search;

    (void) block;

    search = data;
    search->calls++;

    return search->calls > SBX_INIT_SEARCH_CALLS
           || (search->calls % SBX_INIT_SEARCH_LOOK == 0
               && sbx_now_us() >= search->deadline)
           ? PCRE2_ERROR_MATCHLIMIT : 0;
}


static int
sbx_init_search_send(sbx_init_list_t *list)
{
    size_t              len;
    sbx_f_match_t       match;
    sbx_init_search_t  *search;
    static uint8_t      buf[SBX_FRAME_MAX];

    search = list->data;
    len = search->have;

    if (len != 0 && search->buf[len - 1] == '\r') {
        len--;
    }

    if (len > SBX_SEARCH_TEXT_MAX) {
        len = SBX_SEARCH_TEXT_MAX;

        /* no half of a character */

        while (len > SBX_SEARCH_TEXT_MAX - 4
               && ((uint8_t) search->buf[len] & 0xc0) == 0x80)
        {
            len--;
        }
    }

    memset(&match, 0, sizeof(sbx_f_match_t));
    match.line = search->line;
    match.path_len = (uint32_t) list->len;
    match.text_len = (uint32_t) len;

    memcpy(buf, &match, sizeof(sbx_f_match_t));
    memcpy(buf + sizeof(sbx_f_match_t), list->path, list->len);
    memcpy(buf + sizeof(sbx_f_match_t) + list->len, search->buf, len);

    return sbx_init_serve_frame(list->s, SBX_F_MATCH, buf,
                                sizeof(sbx_f_match_t) + list->len + len,
                                list->e);
}
