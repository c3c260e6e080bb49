/*
 * Descriptions of languages, and frames of calls that run code.
 */

#include "sandbox_languages.h"
#include "sandbox_util.h"
#include "wire.h"

#include "tap.h"


static char         table[SBX_LANGUAGES_SIZE];
static size_t       used;
static sbx_error_t  e;


static int
add(const char *name, const char *text)
{
    return sbx_language_add(table, &used, name, text, strlen(text), &e);
}


static void
test_table(void)
{
    char            line[64];
    sbx_language_t  l;

    static const char  text[] =
        "# a comment\n\n"
        "  command   /usr/bin/thing with spaces  \n"
        "command @/driver\r\n"
        "grace 12\n"
        "environment A=1 2\n"
        "environment B=\n"
        "needs /usr/bin/thing\n"
        "wants one true\nwants two false\n"
        "mend install it";

    ok(add("thing", text) == 0 && add("plain", "command x") == 0,
       "descriptions are taken");

    ok(sbx_language_get(table, used, 0, &l) == 0
       && strcmp(l.name, "thing") == 0 && l.argc == 2 && l.envc == 2
       && l.grace == 12, "the first one");
    is_str(l.args, "/usr/bin/thing with spaces", "its program");
    is_str(l.args + strlen(l.args) + 1, "@/driver", "its argument");
    is_str(l.env, "A=1 2", "its environment");
    is_str(l.env + strlen(l.env) + 1, "B=", "also empty");
    ok(sbx_language_find(table, used, "plain", 5, &l) == 1 && l.grace == 5
       && l.argc == 1 && l.envc == 0, "the second one by its name");
    is_int(sbx_language_find(table, used, "plai", 4, &l), -1,
           "not by a part of it");
    is_int(sbx_language_get(table, used, 2, &l), -1, "there is no third");

    ok(sbx_language_line_of(text, sizeof(text) - 1, "wants", 1, line,
                            sizeof(line))
       == 0, "lines for the doctor are found");
    is_str(line, "two false", "by their number");
    is_int(sbx_language_line_of(text, sizeof(text) - 1, "wants", 2, line,
                                sizeof(line)), -1, "if they are there");
    is_int(sbx_language_line_of(text, sizeof(text) - 1, "command", 0, line,
                                8), -1, "and fit");
}


static void
test_mistakes(void)
{
    size_t  i, before;
    char   *big;

    static const struct {
        const char  *name;
        const char  *text;
        const char  *says;
    } wrong[] = {
        { "a", "", "no \"command\"" },
        { "a", "grace 5\n", "no \"command\"" },
        { "a", "command\n", "line 1" },
        { "a", "command x\nnonsense y\n", "line 2" },
        { "a", "command x\n\n#\ngrace 0\n", "line 4" },
        { "a", "command x\ngrace 301\n", "line 2" },
        { "a", "command x\ngrace 5x\n", "line 2" },
        { "a", "command x\nenvironment =1\n", "line 2" },
        { "a", "command x\nenvironment A\n", "line 2" },
        { "A", "command x\n", "no name" },
        { "", "command x\n", "no name" },
        { "a-b", "command x\n", "no name" },
        { "thing", "command x\n", "two of it" }
    };

    before = used;

    for (i = 0; i < sbx_nelts(wrong); i++) {
        ok(add(wrong[i].name, wrong[i].text) == -1
           && e.code == SBX_E_INVALID
           && strstr(e.text, wrong[i].says) != NULL, "refused: %s", e.text);
    }

    big = malloc(SBX_LANGUAGES_SIZE + 32);
    memcpy(big, "command ", 8);
    memset(big + 8, 'x', SBX_LANGUAGES_SIZE + 16);
    big[SBX_LANGUAGES_SIZE + 24] = '\0';
    ok(add("big", big) == -1, "what is too long");
    big[SBX_LANGUAGES_SIZE - 10] = '\0';
    ok(add("big", big) == -1, "also with the others");
    ok(used == before, "and nothing is left of any");
    free(big);
}


/* The table itself is init's to check. */

static void
test_damaged(void)
{
    size_t          i, n, k;
    sbx_language_t  l;
    char            copy[SBX_LANGUAGES_SIZE];

    for (i = 0, n = 0; i < used; i++) {
        for (k = 0; k < 8 && sbx_language_get(table, i, (unsigned) k, &l)
                             == 0; k++)
        { /* void */ }

        n += k < 2;
    }

    is_int((int64_t) n, (int64_t) used, "a table that is cut has no more");

    for (i = 0; i < used; i++) {
        memcpy(copy, table, used);
        copy[i] = (char) 0xff;

        for (k = 0; k < 64 && sbx_language_get(copy, used, (unsigned) k, &l)
                              == 0; k++)
        { /* void */ }
    }

    ok(1, "a damaged one is read to its end at most");
}


static void
test_frames(void)
{
    uint8_t          buf[sizeof(sbx_f_code_t) + 64];
    const char      *s1, *s2, *s3;
    sbx_f_ran_t      ran;
    sbx_f_code_t     code, got;
    sbx_f_field_t    field;
    sbx_f_result_t   result;
    sbx_f_context_t  context;

    memset(&code, 0, sizeof(code));
    code.verb = SBX_CODE_RUN;
    code.context_len = 3;
    code.language_len = 6;
    code.cwd_len = 4;
    code.code_size = 5;
    code.strings_size = 9;
    code.envc = 2;
    memcpy(buf, &code, sizeof(code));
    memcpy(buf + sizeof(code), "c-Apython/tmp", 13);

#define CHECK()                                                              \
    sbx_wire_check_code(buf, sizeof(code) + 13, &got, &s1, &s2, &s3)

    ok(CHECK() == 0 && memcmp(s1, "c-A", 3) == 0
       && memcmp(s2, "python", 6) == 0 && memcmp(s3, "/tmp", 4) == 0,
       "the frame of a call");
    is_int(sbx_wire_check_code(buf, sizeof(code) + 12, &got, &s1, &s2, &s3),
           -1, "cut");
    is_int(sbx_wire_check_code(buf, 10, &got, &s1, &s2, &s3), -1, "short");

#define WRONG(field, value)                                                  \
    do {                                                                     \
        got = code;                                                          \
        got.field = value;                                                   \
        memcpy(buf, &got, sizeof(got));                                      \
        is_int(CHECK(), -1, #field " is checked");                           \
        memcpy(buf, &code, sizeof(code));                                    \
    } while (0)

    WRONG(context_len, SBX_CONTEXT_MAX + 1);
    WRONG(context_len, 4);
    WRONG(language_len, UINT32_MAX);
    WRONG(cwd_len, SBX_PATH_MAX);
    WRONG(strings_size, SBX_CODE_STRINGS_MAX + 1);
    WRONG(code_size, 10);
    WRONG(envc, 5);

    buf[sizeof(code)] = '/';
    is_int(CHECK(), -1, "a context's name");
    buf[sizeof(code)] = 'c';
    buf[sizeof(code) + 3] = 'P';
    is_int(CHECK(), -1, "a language's");
    buf[sizeof(code) + 3] = 'p';
    buf[sizeof(code) + 12] = '\0';
    is_int(CHECK(), -1, "a directory's");

    memset(&context, 0, sizeof(context));
    context.id_len = 1;
    context.language_len = 1;
    context.cwd_len = 1;
    memcpy(buf, &context, sizeof(context));
    memcpy(buf + sizeof(context), "ab/", 3);
    is_int(sbx_wire_check_context(buf, sizeof(context) + 3, &context, &s1,
                                  &s2, &s3), 0, "a context");
    is_int(sbx_wire_check_context(buf, sizeof(context) + 2, &context, &s1,
                                  &s2, &s3), -1, "cut");

    result.kind = SBX_RESULT_ERROR;
    result.fields = 0;
    is_int(sbx_wire_check_result((uint8_t *) &result, sizeof(result),
                                 &result), 0, "a result");
    result.kind = SBX_RESULT_ERROR + 1;
    is_int(sbx_wire_check_result((uint8_t *) &result, sizeof(result),
                                 &result), -1, "of no kind");

    memset(&field, 0, sizeof(field));
    field.size = 5;
    field.name_len = 3;
    memcpy(buf, &field, sizeof(field));
    memcpy(buf + sizeof(field), "a/b", 3);
    is_int(sbx_wire_check_field(buf, sizeof(field) + 3, &field, &s1), 0,
           "a field");
    buf[sizeof(field)] = ' ';
    is_int(sbx_wire_check_field(buf, sizeof(field) + 3, &field, &s1), -1,
           "its name");
    field.name_len = 0;
    is_int(sbx_wire_check_field((uint8_t *) &field, sizeof(field), &field,
                                &s1), -1, "the last one has no size");
    field.size = 0;
    is_int(sbx_wire_check_field((uint8_t *) &field, sizeof(field), &field,
                                &s1), 0, "the last one");

    memset(&ran, 0, sizeof(ran));
    is_int(sbx_wire_check_ran((uint8_t *) &ran, sizeof(ran), &ran), 0,
           "the end of a run");
    ran.reason = SBX_REASON_MAX;
    is_int(sbx_wire_check_ran((uint8_t *) &ran, sizeof(ran), &ran), -1,
           "for a reason");
}


int
main(void)
{
    test_table();
    test_mistakes();
    test_damaged();
    test_frames();

    return done_testing();
}
