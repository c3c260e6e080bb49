/*
 * Descriptions of languages, and the table that is made of them: for each its
 * name, three numbers, then arguments and variables, all of them strings.
 */

#include "sandbox_languages.h"
#include "sandbox_util.h"
#include "wire.h"

#include <stdio.h>
#include <string.h>


#define SBX_LANGUAGE_GRACE       5
#define SBX_LANGUAGE_GRACE_MAX   300


typedef struct {
    const char   *text;
    const char   *end;
    unsigned      number;
    const char   *word;
    size_t        word_len;
    const char   *rest;
    size_t        rest_len;
} sbx_language_line_t;

typedef struct {
    char          args[SBX_LANGUAGES_SIZE];
    char          env[SBX_LANGUAGES_SIZE];
    size_t        args_size;
    size_t        env_size;
    uint32_t      argc;
    uint32_t      envc;
    uint32_t      grace;
} sbx_language_draft_t;


static int sbx_language_line(sbx_language_line_t *line);
static int sbx_language_take(sbx_language_draft_t *draft,
    const sbx_language_line_t *line, const char *name, sbx_error_t *e);
static int sbx_language_put(char *to, size_t *used, const char *s,
    size_t len);
static const char *sbx_language_string(const char **p, const char *end);
static int sbx_language_number(const char **p, const char *end,
    uint32_t *number);


static const char  *sbx_language_words[] = {
    "command", "grace", "environment", "needs", "wants", "mend"
};


int
sbx_language_add(char table[SBX_LANGUAGES_SIZE], size_t *used,
    const char *name, const char *text, size_t size, sbx_error_t *e)
{
    char                   head[128];
    int                    n, rc;
    size_t                 len;
    sbx_language_t         other;
    sbx_language_line_t    line;
    sbx_language_draft_t  *draft;

    len = strlen(name);

    if (!sbx_language_ok(name, len)
        || sbx_language_find(table, *used, name, len, &other) != -1)
    {
        return sbx_error(e, 0, SBX_E_INVALID,
                         "\"%.64s\" is no name of a language, or there are "
                         "two of it", name);
    }

    draft = calloc(1, sizeof(sbx_language_draft_t));

    if (draft == NULL) {
        return sbx_error(e, 0, SBX_E_UNAVAILABLE, "out of memory");
    }

    draft->grace = SBX_LANGUAGE_GRACE;
    memset(&line, 0, sizeof(line));
    line.text = text;
    line.end = text + size;
    rc = 0;

    while (rc == 0 && sbx_language_line(&line)) {
        rc = sbx_language_take(draft, &line, name, e);
    }

    if (rc == 0 && draft->argc == 0) {
        rc = sbx_error(e, 0, SBX_E_INVALID,
                       "the language \"%s\" has no \"command\"", name);
    }

    n = snprintf(head, sizeof(head), "%s%c%u%c%u%c%u", name, 0,
                 draft->grace, 0, draft->argc, 0, draft->envc) + 1;

    if (rc == 0
        && *used + (size_t) n + draft->args_size + draft->env_size
           > SBX_LANGUAGES_SIZE)
    {
        rc = sbx_error(e, 0, SBX_E_INVALID,
                       "the descriptions of languages are too long");
    }

    if (rc == 0) {
        memcpy(table + *used, head, (size_t) n);
        *used += (size_t) n;
        memcpy(table + *used, draft->args, draft->args_size);
        *used += draft->args_size;
        memcpy(table + *used, draft->env, draft->env_size);
        *used += draft->env_size;
    }

    free(draft);

    return rc;
}


/* The next one that says something; 0: there is none. */

static int
sbx_language_line(sbx_language_line_t *line)
{
    const char  *p, *end;

    while (line->text < line->end) {
        p = line->text;
        end = memchr(p, '\n', (size_t) (line->end - p));
        end = end != NULL ? end : line->end;
        line->text = end < line->end ? end + 1 : end;
        line->number++;

        while (p < end && (*p == ' ' || *p == '\t')) {
            p++;
        }

        while (end > p && (end[-1] == ' ' || end[-1] == '\t'
                           || end[-1] == '\r'))
        {
            end--;
        }

        if (p == end || *p == '#') {
            continue;
        }

        line->word = p;

        while (p < end && *p != ' ' && *p != '\t') {
            p++;
        }

        line->word_len = (size_t) (p - line->word);

        while (p < end && (*p == ' ' || *p == '\t')) {
            p++;
        }

        line->rest = p;
        line->rest_len = (size_t) (end - p);

        return 1;
    }

    return 0;
}


static int
sbx_language_take(sbx_language_draft_t *draft,
    const sbx_language_line_t *line, const char *name, sbx_error_t *e)
{
    size_t       i, k;
    uint32_t     grace;
    const char  *equals;

    for (i = 0; i < sbx_nelts(sbx_language_words); i++) {
        if (strlen(sbx_language_words[i]) == line->word_len
            && memcmp(sbx_language_words[i], line->word, line->word_len)
               == 0)
        {
            break;
        }
    }

    if (i == sbx_nelts(sbx_language_words) || line->rest_len == 0
        || memchr(line->rest, '\0', line->rest_len) != NULL)
    {
        goto invalid;
    }

    switch (i) {

    case 0:
        if (draft->argc == SBX_LANGUAGE_ARGS_MAX
            || sbx_language_put(draft->args, &draft->args_size, line->rest,
                                line->rest_len) == -1)
        {
            goto invalid;
        }

        draft->argc++;
        break;

    case 1:
        for (grace = 0, k = 0; k < line->rest_len && k < 4; k++) {
            if (line->rest[k] < '0' || line->rest[k] > '9') {
                goto invalid;
            }

            grace = grace * 10 + (uint32_t) (line->rest[k] - '0');
        }

        if (k < line->rest_len || grace == 0
            || grace > SBX_LANGUAGE_GRACE_MAX)
        {
            goto invalid;
        }

        draft->grace = grace;
        break;

    case 2:
        equals = memchr(line->rest, '=', line->rest_len);

        if (equals == NULL || equals == line->rest
            || draft->envc == SBX_LANGUAGE_ARGS_MAX
            || sbx_language_put(draft->env, &draft->env_size, line->rest,
                                line->rest_len) == -1)
        {
            goto invalid;
        }

        draft->envc++;
        break;

    default:
        /* for the doctor */
        break;
    }

    return 0;

invalid:

    return sbx_error(e, 0, SBX_E_INVALID,
                     "line %u of the language \"%s\" is wrong: \"%.*s\"",
                     line->number, name,
                     line->word_len < 64 ? (int) line->word_len : 64,
                     line->word);
}


static int
sbx_language_put(char *to, size_t *used, const char *s, size_t len)
{
    if (len >= SBX_LANGUAGES_SIZE - *used) {
        return -1;
    }

    memcpy(to + *used, s, len);
    to[*used + len] = '\0';
    *used += len + 1;

    return 0;
}


int
sbx_language_line_of(const char *text, size_t size, const char *word,
    unsigned n, char *rest, size_t rest_size)
{
    sbx_language_line_t  line;

    memset(&line, 0, sizeof(line));
    line.text = text;
    line.end = text + size;

    while (sbx_language_line(&line)) {
        if (strlen(word) != line.word_len
            || memcmp(word, line.word, line.word_len) != 0)
        {
            continue;
        }

        if (n-- == 0) {
            return sbx_copy_string(rest, rest_size, line.rest,
                                   line.rest_len);
        }
    }

    return -1;
}


int
sbx_language_get(const char *table, size_t size, unsigned i,
    sbx_language_t *language)
{
    uint32_t     k;
    const char  *p, *end;

    p = table;
    end = table + size;

    for ( ;; ) {
        memset(language, 0, sizeof(sbx_language_t));
        language->name = sbx_language_string(&p, end);

        if (language->name == NULL
            || sbx_language_number(&p, end, &language->grace) == -1
            || sbx_language_number(&p, end, &language->argc) == -1
            || sbx_language_number(&p, end, &language->envc) == -1
            || language->argc == 0 || language->argc > SBX_LANGUAGE_ARGS_MAX
            || language->envc > SBX_LANGUAGE_ARGS_MAX)
        {
            return -1;
        }

        language->args = p;

        for (k = 0; k < language->argc; k++) {
            if (sbx_language_string(&p, end) == NULL) {
                return -1;
            }
        }

        language->env = p;

        for (k = 0; k < language->envc; k++) {
            if (sbx_language_string(&p, end) == NULL) {
                return -1;
            }
        }

        if (i-- == 0) {
            return 0;
        }
    }
}


int
sbx_language_find(const char *table, size_t size, const char *name,
    size_t len, sbx_language_t *language)
{
    unsigned  i;

    for (i = 0; sbx_language_get(table, size, i, language) == 0; i++) {
        if (strlen(language->name) == len
            && memcmp(language->name, name, len) == 0)
        {
            return (int) i;
        }
    }

    return -1;
}


static const char *
sbx_language_string(const char **p, const char *end)
{
    const char  *s, *nul;

    s = *p;
    nul = s < end ? memchr(s, '\0', (size_t) (end - s)) : NULL;

    if (nul == NULL) {
        return NULL;
    }

    *p = nul + 1;

    return s;
}


static int
sbx_language_number(const char **p, const char *end, uint32_t *number)
{
    char        *last;
    const char  *s;

    s = sbx_language_string(p, end);

    if (s == NULL || *s < '0' || *s > '9') {
        return -1;
    }

    *number = (uint32_t) strtoul(s, &last, 10);

    return *last == '\0' ? 0 : -1;
}
