#define PCRE2_CODE_UNIT_WIDTH  8

#include "glob_match.h"

#include <pcre2.h>
#include <stdlib.h>
#include <string.h>


#define SBX_GLOB_BRACES       8           /* one within another */
#define SBX_GLOB_MATCH_LIMIT  200000
#define SBX_GLOB_DEPTH_LIMIT  2000
#define SBX_GLOB_HEAP_LIMIT   1024        /* KiB */
#define SBX_GLOB_EXPANSION    24          /* bytes of regex for one of glob */


typedef struct {
    pcre2_code   *text;                   /* for names that are UTF-8 */
    pcre2_code   *bytes;
    unsigned      any:1;                  /* "**" */
} sbx_glob_segment_t;


struct sbx_glob_s {
    char                   *base;
    unsigned                n;
    unsigned                directories:1;
    pcre2_match_data       *match;
    pcre2_match_context    *limits;
    sbx_glob_segment_t      segments[SBX_GLOB_SEGMENTS + 1];
};


/* A segment on its way to a regular expression. */
typedef struct {
    const char   *p;
    const char   *end;
    char         *out;
    unsigned      depth;                  /* of braces */
    unsigned      start:1;                /* nothing precedes in the name */
    unsigned      atomic:1;
    unsigned      opened:1;               /* an atomic group is open */
    unsigned      saved[SBX_GLOB_BRACES]; /* .start, for each brace */
} sbx_glob_writer_t;


static int sbx_glob_literal(const char *p, size_t len);
static const char *sbx_glob_split(const char *pattern, size_t len,
    sbx_glob_t *glob);
static int sbx_glob_segment(sbx_glob_t *glob, const char *p, size_t len,
    sbx_error_t *e);
static int sbx_glob_program(sbx_glob_segment_t *segment, const char *regex,
    size_t len, sbx_error_t *e);
static int sbx_glob_write(const char *p, size_t len, char *regex,
    size_t *size, sbx_error_t *e);
static void sbx_glob_wildcard(sbx_glob_writer_t *w);
static void sbx_glob_plain(sbx_glob_writer_t *w, char c);
static int sbx_glob_set(sbx_glob_writer_t *w);
static int sbx_glob_brace(const char *p, const char *end);
static int sbx_glob_match_name(const sbx_glob_t *glob,
    const sbx_glob_segment_t *segment, const char *name, size_t len,
    sbx_error_t *e);
static uint64_t sbx_glob_close(const sbx_glob_t *glob, uint64_t states);


int
sbx_glob_compile(const char *pattern, size_t len, sbx_glob_t **out,
    sbx_error_t *e)
{
    size_t       n;
    sbx_glob_t  *glob;
    const char  *p, *end;

    if (len == 0 || memchr(pattern, '\0', len) != NULL) {
        return sbx_error(e, 0, SBX_E_INVALID,
                         "the pattern is empty or has a NUL");
    }

    glob = calloc(1, sizeof(sbx_glob_t));

    if (glob == NULL) {
        return sbx_error(e, 0, SBX_E_UNAVAILABLE, "out of memory");
    }

    glob->limits = pcre2_match_context_create(NULL);
    glob->match = pcre2_match_data_create(1, NULL);
    glob->base = malloc(len + 1);

    if (glob->limits == NULL || glob->match == NULL || glob->base == NULL) {
        (void) sbx_error(e, 0, SBX_E_UNAVAILABLE, "out of memory");
        goto failed;
    }

    (void) pcre2_set_match_limit(glob->limits, SBX_GLOB_MATCH_LIMIT);
    (void) pcre2_set_depth_limit(glob->limits, SBX_GLOB_DEPTH_LIMIT);
    (void) pcre2_set_heap_limit(glob->limits, SBX_GLOB_HEAP_LIMIT);

    p = sbx_glob_split(pattern, len, glob);
    end = pattern + len;

    for ( ;; ) {
        while (p < end && *p == '/') {
            p++;
        }

        if (p == end) {
            break;
        }

        for (n = 0; p + n < end && p[n] != '/'; n++) { /* void */ }

        if (sbx_glob_segment(glob, p, n, e) != 0) {
            goto failed;
        }

        p += n;
    }

    /* "a/" + "**": all that is below, at any depth */

    if (glob->n == 0 || glob->segments[glob->n - 1].any) {
        if (sbx_glob_segment(glob, "*", 1, e) != 0) {
            goto failed;
        }
    }

    glob->directories = pattern[len - 1] == '/';
    *out = glob;

    return 0;

failed:

    sbx_glob_free(glob);

    return -1;
}


void
sbx_glob_free(sbx_glob_t *glob)
{
    unsigned  i;

    if (glob == NULL) {
        return;
    }

    for (i = 0; i < glob->n; i++) {
        pcre2_code_free(glob->segments[i].text);
        pcre2_code_free(glob->segments[i].bytes);
    }

    pcre2_match_data_free(glob->match);
    pcre2_match_context_free(glob->limits);
    free(glob->base);
    free(glob);
}


static int
sbx_glob_literal(const char *p, size_t len)
{
    size_t  i;

    for (i = 0; i < len; i++) {
        if (strchr("*?[{\\", p[i]) != NULL) {
            return 0;
        }
    }

    return 1;
}


/*
 * Copies the literal beginning into glob->base, all but the last name, which
 * is matched like any other.  Returns where the rest begins.
 */

static const char *
sbx_glob_split(const char *pattern, size_t len, sbx_glob_t *glob)
{
    size_t       n;
    const char  *p, *end, *next;

    p = pattern;
    end = pattern + len;

    while (p < end && *p == '/') {
        p++;
    }

    for ( ;; ) {
        for (n = 0; p + n < end && p[n] != '/'; n++) { /* void */ }

        for (next = p + n; next < end && *next == '/'; next++) { /* void */ }

        if (next == end || !sbx_glob_literal(p, n)) {
            break;
        }

        p = next;
    }

    n = (size_t) (p - pattern);

    /* "a/b/" -> "a/b", but "/" is the root */

    while (n > 1 && pattern[n - 1] == '/') {
        n--;
    }

    memcpy(glob->base, pattern, n);
    glob->base[n] = '\0';

    return p;
}


static int
sbx_glob_segment(sbx_glob_t *glob, const char *p, size_t len, sbx_error_t *e)
{
    int                  rc;
    char                *regex;
    size_t               size;
    sbx_glob_segment_t  *segment;

    if (len == 1 && p[0] == '.') {
        return 0;
    }

    if (len == 2 && p[0] == '.' && p[1] == '.') {
        return sbx_error(e, 0, SBX_E_INVALID,
                         "the pattern has a \"..\" after a wildcard");
    }

    if (glob->n == SBX_GLOB_SEGMENTS) {
        return sbx_error(e, 0, SBX_E_INVALID,
                         "the pattern has more than %d names after its "
                         "first wildcard", SBX_GLOB_SEGMENTS - 1);
    }

    if (len > 1024) {
        return sbx_error(e, 0, SBX_E_INVALID,
                         "a name in the pattern is too long");
    }

    segment = &glob->segments[glob->n];

    if (len == 2 && p[0] == '*' && p[1] == '*') {

        if (glob->n != 0 && glob->segments[glob->n - 1].any) {
            return 0;
        }

        segment->any = 1;
        glob->n++;

        return 0;
    }

    regex = malloc(len * SBX_GLOB_EXPANSION + 64);

    if (regex == NULL) {
        return sbx_error(e, 0, SBX_E_UNAVAILABLE, "out of memory");
    }

    rc = sbx_glob_write(p, len, regex, &size, e);

    if (rc == 0) {
        rc = sbx_glob_program(segment, regex, size, e);
        glob->n++;
    }

    free(regex);

    return rc;
}


static int
sbx_glob_program(sbx_glob_segment_t *segment, const char *regex, size_t len,
    sbx_error_t *e)
{
    int         err;
    uint32_t    options;
    PCRE2_SIZE  offset;

    options = PCRE2_DOTALL|PCRE2_ANCHORED|PCRE2_ENDANCHORED
              |PCRE2_DOLLAR_ENDONLY|PCRE2_NO_AUTO_CAPTURE;

    /* NULL where the pattern itself is not UTF-8 */

    segment->text = pcre2_compile((PCRE2_SPTR) regex, len,
                                  options|PCRE2_UTF, &err, &offset, NULL);
    segment->bytes = pcre2_compile((PCRE2_SPTR) regex, len,
                                   options|PCRE2_NEVER_UTF, &err, &offset,
                                   NULL);

    if (segment->bytes == NULL) {
        return sbx_error(e, 0, SBX_E_INVALID,
                         "a set or range in the pattern is wrong");
    }

    return 0;
}


/*
 * ---- one name's pattern as a regular expression ------------------------
 */

static int
sbx_glob_write(const char *p, size_t len, char *regex, size_t *size,
    sbx_error_t *e)
{
    char               c;
    sbx_glob_writer_t  w;

    memset(&w, 0, sizeof(sbx_glob_writer_t));
    w.p = p;
    w.end = p + len;
    w.out = regex;
    w.start = 1;
    /* with alternatives the first fit need not be the right one */
    w.atomic = memchr(p, '{', len) == NULL;

    while (w.p < w.end) {
        c = *w.p++;

        switch (c) {

        case '*':
        case '?':
            w.p--;
            sbx_glob_wildcard(&w);
            continue;

        case '[':
            if (sbx_glob_set(&w)) {
                continue;
            }
            break;

        case '{':
            if (w.depth == SBX_GLOB_BRACES) {
                return sbx_error(e, 0, SBX_E_INVALID,
                                 "the pattern's braces are too deep");
            }

            if (sbx_glob_brace(w.p, w.end)) {
                w.saved[w.depth++] = w.start;
                memcpy(w.out, "(?:", 3);
                w.out += 3;
                continue;
            }
            break;

        case ',':
            if (w.depth != 0) {
                *w.out++ = '|';
                w.start = w.saved[w.depth - 1] != 0;
                continue;
            }
            break;

        case '}':
            if (w.depth != 0) {
                w.depth--;
                *w.out++ = ')';
                w.start = 0;
                continue;
            }
            break;

        case '\\':
            if (w.p < w.end) {
                c = *w.p++;
            }
            break;

        default:
            break;
        }

        sbx_glob_plain(&w, c);
    }

    if (w.opened) {
        *w.out++ = ')';
    }

    *size = (size_t) (w.out - regex);

    return 0;
}


/*
 * A run of "*" and "?".  The part between two stars is given its first
 * place, for good ("(?>"): a later one could only leave less for the rest.
 */

static void
sbx_glob_wildcard(sbx_glob_writer_t *w)
{
    int  star;

    star = 0;

    if (w->start) {
        memcpy(w->out, "(?!\\.)", 6);
        w->out += 6;
        w->start = 0;
    }

    for ( /* void */ ; w->p < w->end; w->p++) {
        if (*w->p == '?') {
            if (star) {
                break;
            }

            *w->out++ = '.';

        } else if (*w->p == '*') {
            star = 1;

        } else {
            break;
        }
    }

    if (!star) {
        return;
    }

    if (!w->atomic) {
        memcpy(w->out, ".*", 2);
        w->out += 2;
        return;
    }

    if (w->opened) {
        *w->out++ = ')';
        w->opened = 0;
    }

    if (memchr(w->p, '*', (size_t) (w->end - w->p)) != NULL) {
        memcpy(w->out, "(?>.*?", 6);
        w->out += 6;
        w->opened = 1;

    } else {
        memcpy(w->out, ".*", 2);
        w->out += 2;
    }
}


static void
sbx_glob_plain(sbx_glob_writer_t *w, char c)
{
    /* all that is special to a regular expression is ASCII punctuation */

    if ((c >= '!' && c <= '/') || (c >= ':' && c <= '@')
        || (c >= '[' && c <= '`') || (c >= '{' && c <= '~'))
    {
        *w->out++ = '\\';
    }

    *w->out++ = c;
    w->start = 0;
}


/* 0: no set, the bracket is one.  w->p is after it. */

static int
sbx_glob_set(sbx_glob_writer_t *w)
{
    int          escape;
    const char  *p, *close;

    p = w->p;

    if (p < w->end && (*p == '!' || *p == '^')) {
        p++;
    }

    /* a "]" that comes first is a member */

    for (close = p;
         close < w->end && (*close != ']' || close == p);
         close++)
    {
        if (*close == '\\' && close + 1 < w->end) {
            close++;

        } else if (*close == '[' && close + 1 < w->end && close[1] == ':') {
            /* "[:alpha:]" */
            close = memchr(close, ']', (size_t) (w->end - close));

            if (close == NULL) {
                return 0;
            }
        }
    }

    if (close >= w->end) {
        return 0;
    }

    if (w->start) {
        memcpy(w->out, "(?!\\.)", 6);
        w->out += 6;
        w->start = 0;
    }

    *w->out++ = '[';

    if (p != w->p) {
        *w->out++ = '^';
    }

    for ( /* void */ ; p < close; p++) {

        if (*p == '[' && p[1] == ':') {
            while (*p != ']') {
                *w->out++ = *p++;
            }

            *w->out++ = ']';
            continue;
        }

        escape = *p == '[' || *p == ']' || *p == '^' || *p == '\\';

        if (*p == '\\' && p + 1 < close) {
            p++;
            /* with a letter it would be a class of regular expressions */
            escape = strchr("\\[]^-!", *p) != NULL;
        }

        if (escape) {
            *w->out++ = '\\';
        }

        *w->out++ = *p;
    }

    *w->out++ = ']';
    w->p = close + 1;

    return 1;
}


/* 1: alternatives, closed in this name; p is after the opening brace. */

static int
sbx_glob_brace(const char *p, const char *end)
{
    int       comma;
    unsigned  depth;

    comma = 0;
    depth = 1;

    for ( /* void */ ; p < end; p++) {
        switch (*p) {

        case '\\':
            p++;
            break;

        case '{':
            depth++;
            break;

        case '}':
            if (--depth == 0) {
                return comma;
            }
            break;

        case ',':
            comma |= depth == 1;
            break;

        default:
            break;
        }
    }

    return 0;
}


/*
 * ---- matching ----------------------------------------------------------
 */

const char *
sbx_glob_base(const sbx_glob_t *glob)
{
    return glob->base;
}


/* "**" may stand for nothing: where it is, what follows it is too. */

static uint64_t
sbx_glob_close(const sbx_glob_t *glob, uint64_t states)
{
    unsigned  i;

    for (i = 0; i < glob->n; i++) {
        if ((states & ((uint64_t) 1 << i)) && glob->segments[i].any) {
            states |= (uint64_t) 1 << (i + 1);
        }
    }

    return states;
}


uint64_t
sbx_glob_start(const sbx_glob_t *glob)
{
    return sbx_glob_close(glob, 1);
}


int
sbx_glob_step(const sbx_glob_t *glob, uint64_t states, const char *name,
    size_t len, int through, uint64_t *next, sbx_error_t *e)
{
    int       rc;
    unsigned  i;

    *next = 0;

    for (i = 0; i < glob->n; i++) {
        if (!(states & ((uint64_t) 1 << i))) {
            continue;
        }

        if (glob->segments[i].any) {
            if (through && name[0] != '.') {
                *next |= (uint64_t) 1 << i;
            }

            continue;
        }

        rc = sbx_glob_match_name(glob, &glob->segments[i], name, len, e);

        if (rc == -1) {
            return -1;
        }

        if (rc == 1) {
            *next |= (uint64_t) 1 << (i + 1);
        }
    }

    *next = sbx_glob_close(glob, *next);

    return 0;
}


static int
sbx_glob_match_name(const sbx_glob_t *glob,
    const sbx_glob_segment_t *segment, const char *name, size_t len,
    sbx_error_t *e)
{
    int  rc;

    rc = PCRE2_ERROR_UTF8_ERR1;

    if (segment->text != NULL) {
        rc = pcre2_match(segment->text, (PCRE2_SPTR) name, len, 0, 0,
                         glob->match, glob->limits);
    }

    if (rc <= PCRE2_ERROR_UTF8_ERR1 && rc >= PCRE2_ERROR_UTF8_ERR21) {
        rc = pcre2_match(segment->bytes, (PCRE2_SPTR) name, len, 0, 0,
                         glob->match, glob->limits);
    }

    if (rc >= 0) {
        return 1;
    }

    if (rc == PCRE2_ERROR_NOMATCH) {
        return 0;
    }

    return sbx_error(e, 0, SBX_E_INVALID, "the pattern is too complex");
}


int
sbx_glob_accepts(const sbx_glob_t *glob, uint64_t states)
{
    return (states & ((uint64_t) 1 << glob->n)) != 0;
}


int
sbx_glob_goes_on(const sbx_glob_t *glob, uint64_t states)
{
    return (states & (((uint64_t) 1 << glob->n) - 1)) != 0;
}


int
sbx_glob_directories(const sbx_glob_t *glob)
{
    return glob->directories;
}
