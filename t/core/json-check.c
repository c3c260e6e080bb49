/*
 * What may stand as a value in JSON of our own, written by a stranger: one
 * value, strictly, of a depth that is bounded, in whatever pieces it comes.
 */

#include "json.h"
#include "tap.h"


typedef struct {
    const char   *text;
    size_t        n;              /* 0: to its NUL */
    int           good;
    const char   *name;
} row_t;


/* As a whole, and cut at each place: all of these say the same. */

static int
check(const char *text, size_t n)
{
    int               whole;
    size_t            i;
    sbx_json_check_t  c;

    whole = sbx_json_check(text, n);

    for (i = 0; i <= n && n < 100; i++) {
        sbx_json_check_begin(&c);
        sbx_json_check_piece(&c, text, i);
        sbx_json_check_piece(&c, text + i, n - i);

        if (sbx_json_check_end(&c) != whole) {
            return -1;
        }
    }

    return whole == 0;
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
        { "1\"", 0, 0, "a string that begins after it" },
        { "{} tru", 0, 0, "or a word" },
        { "\f1", 0, 0, "a form feed, which is no white space" },
        { "1\v", 0, 0, "nor is a vertical tab" },
        { "NaN", 0, 0, "NaN" },
        { "-Infinity", 0, 0, "an infinity" },
        { "01", 0, 0, "a zero before a number" },
        { "-0.5E-07", 0, 1, "all that a number may have" },
        { "-", 0, 0, "a sign alone" },
        { "1.", 0, 0, "a point at the end" },
        { ".5", 0, 0, "or at the beginning" },
        { "1e", 0, 0, "no exponent" },
        { "1e+", 0, 0, "but its sign" },
        { "-x", 0, 0, "a sign of nothing" },
        { "[1-2]", 0, 0, "two numbers" },
        { "true", 0, 1, "a word" },
        { "tru", 0, 0, "a part of it" },
        { "truer", 0, 0, "more than it" },
        { "falsy", 0, 0, "another" },
        { "{\"a\":{},\"b\":[[],{}]}", 0, 1, "empty ones" },
        { "{\"a\"}", 0, 0, "a name without a value" },
        { "{\"a\" 1}", 0, 0, "or a colon" },
        { "{1:2}", 0, 0, "a name that is no string" },
        { "{\"a\":1,}", 0, 0, "a comma before the end" },
        { "{\"a\":1]", 0, 0, "another end than beginning" },
        { "[1}", 0, 0, "the other way" },
        { "]", 0, 0, "an end alone" },
        { "[1 2]", 0, 0, "no comma" },
        { "'a'", 0, 0, "other quotes" },
        { "/**/1", 0, 0, "a comment" },
        { "\"a\nb\"", 0, 0, "a line's end in a string" },
        { "\"\0\"", 3, 0, "a NUL in a string" },
        { "1\0", 2, 0, "a NUL after it" },
        { "\"\xff\"", 0, 0, "what is no UTF-8" },
        { "\"\xed\xa0\x80\"", 0, 0, "a surrogate in UTF-8" },
        { "\"\xc0\x80\"", 0, 0, "an overlong form" },
        { "\"\xe0\x9f\xbf\"", 0, 0, "of three bytes" },
        { "\"\xf0\x8f\xbf\xbf\"", 0, 0, "of four" },
        { "\"\xf4\x90\x80\x80\"", 0, 0, "more than there is" },
        { "\"\xf4\x8f\xbf\xbf\xed\x9f\xbf\"", 0, 1, "all there is" },
        { "\"\xe2\x82\"", 0, 0, "a part of a character" },
        { "\"\\\"\\\\\\/\\b\\f\\n\\r\\t\"", 0, 1, "each escape" },
        { "\"\\x\"", 0, 0, "another" },
        { "\"\\\0\"", 4, 0, "of a NUL" },
        { "\"\\u00g0\"", 0, 0, "a digit that is none" },
        { "\"\\ud83e\\u0041\"", 0, 0, "a pair of which one is none" },
        { "\"\\ud83ex\"", 0, 0, "half of one, and text" },
        { "\"\\ud83e\\n\"", 0, 0, "and another escape" },
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

    /* siblings are no depth */

    text[0] = '[';

    for (n = 1; n < 60000; n += 3) {
        memcpy(text + n, "[],", 3);
    }

    memcpy(text + n, "[]]", 3);
    ok(check(text, n + 3), "many side by side");
}


/* Whatever makes of it a double, or an integer, can. */

static void
test_numbers(void)
{
    size_t       i;
    static char  text[2000];

    static const row_t  rows[] = {
        { "1.7976931348623157e308", 0, 1, "the largest double" },
        { "-17976931348623157.0001E+292", 0, 1, "written otherwise" },
        { "1.7976931348623158e308", 0, 0, "one that is rounded to no other" },
        { "[2e308]", 0, 0, "more, in an array" },
        { "{\"a\":1e309}", 0, 0, "or in an object" },
        { "1e400", 0, 0, "far more" },
        { "9e307", 0, 1, "less" },
        { "5e-324", 0, 1, "the smallest" },
        { "1e-999", 0, 1, "one that is rounded to nothing" },
        { "1e-1000", 0, 0, "whose exponent is too long" },
        { "0e1000", 0, 0, "or that of nothing" },
        { "[1e308,2e308]", 0, 0, "the second of two" },
        { "[2e-308,1e308,17e307,0.1e308]", 0, 1, "several" }
    };

    for (i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        is_int(check(rows[i].text, strlen(rows[i].text)), rows[i].good,
               rows[i].name);
    }

    memset(text, '1', sizeof(text));
    ok(check(text, 309), "an integer as large");
    ok(!check(text, 310), "one that is larger");
    text[1] = '8';
    ok(!check(text, 309), "by what comes first");
    text[1] = '.';
    ok(check(text, 1001), "as many digits as there may be");
    ok(!check(text, 1002), "one more");
}


int
main(void)
{
    test_texts();
    test_depth();
    test_numbers();

    return done_testing();
}
