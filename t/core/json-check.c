/*
 * What may stand as a value in JSON of our own, written by a stranger: one
 * value, strictly, of a depth and in memory that are bounded.
 */

#include "json.h"
#include "tap.h"


#define ARENA  (1024 * 1024)

typedef struct {
    const char   *text;
    size_t        n;              /* 0: to its NUL */
    int           good;
    const char   *name;
} row_t;


static uint8_t  arena[ARENA];
static size_t   used;
static size_t   calls;
static size_t   fail_at;


static void *
arena_alloc(void *ctx, size_t size)
{
    void  *m;

    (void) ctx;
    calls++;
    size = (size + 15) & ~(size_t) 15;

    if (size > ARENA - used || (fail_at != 0 && calls >= fail_at)) {
        return NULL;
    }

    m = arena + used;
    used += size;

    return m;
}


static int
check(const char *text, size_t n)
{
    sbx_json_alloc_t  alloc;

    alloc.alloc = arena_alloc;
    alloc.ctx = NULL;
    used = 0;
    calls = 0;

    return sbx_json_check(text, n, &alloc) == 0;
}


static void
test_texts(void)
{
    size_t  i;

    static const row_t  rows[] = {
        { "{\"a\":[1,-2.5e3,true,null,\"\\n\\u00e9\"]}", 0, 1, "an object" },
        { " [ ]\n", 0, 1, "white space around it" },
        { "7", 0, 1, "a number alone" },
        { "\"\\ud83e\\udd23\"", 0, 1, "a pair of surrogates" },
        { "\"\xf0\x9f\xa4\xa3\"", 0, 1, "a character of four bytes" },
        { "", 0, 0, "nothing" },
        { " ", 0, 0, "white space alone" },
        { "{", 0, 0, "half an object" },
        { "[1,]", 0, 0, "a comma too many" },
        { "{}{}", 0, 0, "two values" },
        { "1 x", 0, 0, "something after it" },
        { "NaN", 0, 0, "NaN" },
        { "-Infinity", 0, 0, "an infinity" },
        { "01", 0, 0, "a zero before a number" },
        { "'a'", 0, 0, "other quotes" },
        { "/**/1", 0, 0, "a comment" },
        { "\"a\nb\"", 0, 0, "a line's end in a string" },
        { "\"\0\"", 3, 0, "a NUL in a string" },
        { "1\0", 2, 0, "a NUL after it" },
        { "\"\xff\"", 0, 0, "what is no UTF-8" },
        { "\"\xed\xa0\x80\"", 0, 0, "a surrogate in UTF-8" },
        { "\"\\ud83e\"", 0, 0, "half a pair" },
        { "\"\\udd23\\ud83e\"", 0, 0, "a pair the wrong way" }
    };

    for (i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        is_int(check(rows[i].text,
                     rows[i].n ? rows[i].n : strlen(rows[i].text)),
               rows[i].good, rows[i].name);
    }
}


static void
test_depth(void)
{
    size_t       n;
    static char  text[2 * 100000];

    for (n = SBX_JSON_CHECK_DEPTH; n <= SBX_JSON_CHECK_DEPTH + 1; n++) {
        memset(text, '[', n);
        memset(text + n, ']', n);
        is_int(check(text, 2 * n), n == SBX_JSON_CHECK_DEPTH,
               n == SBX_JSON_CHECK_DEPTH ? "as deep as it may be"
                                         : "one deeper");
    }

    memset(text, '[', 100000);
    memset(text + 100000, ']', 100000);
    ok(!check(text, sizeof(text)), "far too deep");
    ok(used < 65536, "which takes no memory: %zu bytes", used);

    /* siblings are no depth */

    text[0] = '[';

    for (n = 1; n < 60000; n += 3) {
        memcpy(text + n, "[],", 3);
    }

    memcpy(text + n, "[]]", 3);
    ok(check(text, n + 3), "many side by side");
    ok(used < 65536, "which take none either: %zu bytes", used);
}


static void
test_lack(void)
{
    size_t  i, n, refused;

    static const char  text[] = "{\"a\":[[[[1]]]]}";

    ok(check(text, sizeof(text) - 1), "the text is fine");
    n = calls;
    refused = 0;

    for (i = 1; i <= n; i++) {
        fail_at = i;
        refused += !check(text, sizeof(text) - 1);
    }

    fail_at = 0;
    is_int((int64_t) refused, (int64_t) n, "a lack of memory is a refusal");
}


int
main(void)
{
    test_texts();
    test_depth();
    test_lack();

    return done_testing();
}
