/*
 * Languages: the description of one, and the table of all as init is given
 * it.  The first byte chooses.  What is taken is in the table once, as it was
 * said, and a table that is read to its end is within itself.
 */

#include "fuzz.h"
#include "sandbox_languages.h"
#include "wire.h"


static void check_text(const char *p, size_t n);
static void check_table(const char *p, size_t n);


int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char  *copy;

    if (size == 0) {
        return 0;
    }

    copy = malloc(size - 1 ? size - 1 : 1);

    if (copy == NULL) {
        return 0;
    }

    memcpy(copy, data + 1, size - 1);

    if (data[0] & 1) {
        check_table(copy, size - 1);

    } else {
        check_text(copy, size - 1);
    }

    free(copy);

    return 0;
}


static void
check_text(const char *p, size_t n)
{
    char             rest[64], again[SBX_LANGUAGES_SIZE];
    size_t           used, before;
    unsigned         i;
    sbx_error_t      e;
    sbx_language_t   language;

    static char  table[SBX_LANGUAGES_SIZE];

    for (i = 0; sbx_language_line_of(p, n, "wants", i, rest, sizeof(rest))
                == 0 && i < 100; i++)
    {
        must(memchr(rest, '\0', sizeof(rest)) != NULL
             && strchr(rest, '\n') == NULL);
    }

    used = 0;
    must(sbx_language_add(table, &used, "first", "command x\n", 10, &e)
         == 0);
    before = used;

    if (sbx_language_add(table, &used, "other", p, n, &e) != 0) {
        must(used == before && e.code == SBX_E_INVALID);
        return;
    }

    must(used > before && used <= SBX_LANGUAGES_SIZE);
    must(sbx_language_get(table, used, 1, &language) == 0);
    must(strcmp(language.name, "other") == 0 && language.argc != 0
         && language.grace != 0 && language.grace <= 300);
    must(sbx_language_get(table, used, 2, &language) == -1);
    must(sbx_language_find(table, used, "other", 5, &language) == 1);
    must(sbx_language_find(table, used, "first", 5, &language) == 0);

    /* a name is there once */

    memcpy(again, table, used);
    before = used;
    must(sbx_language_add(again, &used, "other", p, n, &e) != 0
         && used == before);
}


static void
check_strings(const char *s, uint32_t n, const char *end)
{
    for ( /* void */ ; n != 0; n--) {
        must(s < end);
        s += strlen(s) + 1;
    }

    must(s <= end);
}


static void
check_table(const char *p, size_t n)
{
    unsigned         i;
    sbx_language_t   language;

    for (i = 0; i < 64 && sbx_language_get(p, n, i, &language) == 0; i++) {
        check_strings(language.args, language.argc, p + n);
        check_strings(language.env, language.envc, p + n);
        must(language.name >= p && strlen(language.name) < n);
    }

    (void) sbx_language_find(p, n, "python", 6, &language);
}
