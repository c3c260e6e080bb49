/* Bodies of forms, as clients write them and as none should. */

#include "tap.h"

#include "multipart.h"


#define TYPE  "multipart/form-data; boundary=b"
#define HEAD(name)                                                            \
    "Content-Disposition: form-data; name=\"file\"; filename=\"" name "\"\r\n"


typedef struct {
    const char  *body;
    const char  *expected;
    const char  *name;
} row_t;


static sbx_multipart_t  m;
static char             told[65536];


static void
tell(const char *s, size_t len)
{
    size_t  n;

    n = strlen(told);

    if (n + len < sizeof(told)) {
        memcpy(told + n, s, len);
        told[n + len] = '\0';
    }
}


/* "name=filename(content)" for each part, "." at the end, "!" for a fault. */

static const char *
parse(const char *type, const char *body, size_t size, size_t step)
{
    int                     rc;
    size_t                  n, len;
    const uint8_t          *p, *end, *data;
    sbx_multipart_event_t   event;

    told[0] = '\0';
    rc = sbx_multipart_init(&m, type, strlen(type));

    if (rc != 0) {
        return rc == 1 ? "other" : "bad";
    }

    for (n = 0; n < size; n += step) {
        p = (const uint8_t *) body + n;
        end = p + (size - n < step ? size - n : step);

        do {
            event = sbx_multipart_next(&m, &p, end, &data, &len);

            switch (event) {

            case SBX_MULTIPART_PART:
                tell(m.name.data ? m.name.data : "-",
                     m.name.data ? m.name.len : 1);
                tell("=", 1);
                tell(m.filename.data ? m.filename.data : "-",
                     m.filename.data ? m.filename.len : 1);
                tell("(", 1);
                break;

            case SBX_MULTIPART_DATA:
                tell((const char *) data, len);
                break;

            case SBX_MULTIPART_PART_END:
                tell(")", 1);
                break;

            case SBX_MULTIPART_END:
                tell(".", 1);
                break;

            case SBX_MULTIPART_BROKEN:
                tell("!", 1);
                return told;

            default:
                break;
            }

        } while (event != SBX_MULTIPART_MORE);
    }

    return told;
}


static const row_t  rows[] = {
    { "--b\r\n" HEAD("a") "\r\none\r\n--b--\r\n", "file=a(one).", "one" },
    { "preamble\r\n--b\r\n" HEAD("a") "\r\none\r\n--b--epilogue",
      "file=a(one).", "what is around it" },
    { "--b\r\n" HEAD("a") "\r\n1\r\n--b\r\n" HEAD("b") "\r\n2\r\n--b--",
      "file=a(1)file=b(2).", "two" },
    { "--b--\r\n", ".", "none" },
    { "--b\r\n" HEAD("a") "\r\n\r\n--b--", "file=a().", "an empty one" },
    { "--b\r\n" HEAD("a") "\r\n--b--", "file=a().",
      "an empty one without a line" },
    { "--b\r\n\r\nx\r\n--b--", "-=-(x).", "no headers" },
    { "--b\r\n" HEAD("a") "\r\n\r\r\n-\r\n--\r\n--c\r\n--bb\r\n--b-x\r\n--b--",
      "file=a(\r\r\n-\r\n--\r\n--c\r\n--bb\r\n--b-x).",
      "what only begins as a boundary" },
    { "--b\r\n" HEAD("a") "\r\n--x\r\n--b--", "file=a(--x).",
      "dashes at once" },
    { "--b \t\r\n" HEAD("a") "\r\nx\r\n--b  \r\n" HEAD("b") "\r\n\r\n--b--",
      "file=a(x)file=b().", "padding" },
    { "--b\r\n" HEAD("/t/\xc3\xa4 %22x%0d%0A%25") "\r\n\r\n--b--",
      "file=/t/\xc3\xa4 \"x\r\n%25().", "what forms escape" },
    { "--b\r\n" HEAD("a\\\"b\\\\c\\d") "\r\n\r\n--b--", "file=a\"b\\c\\d().",
      "quoted pairs" },
    { "--b\r\ncontent-disposition:FORM-DATA;filename=a.txt;NAME=file;\r\n"
      "X: y\r\nContent-Type: text/plain\r\n\r\n\r\n--b--", "file=a.txt().",
      "tokens, any case and order" },
    { "--b\r\nContent-Disposition: form-data; name=file; filename=\"x\"; "
      "filename*=utf-8'en'%C3%A4%2fb\r\n\r\n\r\n--b--", "file=\xc3\xa4/b().",
      "an extended name" },
    { "--b\r\nContent-Disposition: attachment; name=file; filename=a\r\n\r\n"
      "\r\n--b--", "-=-().", "another disposition" },
    { "--b\r\n" HEAD("a") "\r\none", "file=a(one", "cut in a part" },
    { "--b\r\n" HEAD("a") "\r\none\r\n--b", "file=a(one", "cut at the end" },
    { "", "", "nothing" },
    { "text", "", "no boundary" },

    { "--b x\r\n", "!", "text after a boundary" },
    { "--b\rx", "!", "no line's end after a boundary" },
    { "--b\r\n" HEAD("a") HEAD("b") "\r\n", "!", "two dispositions" },
    { "--b\r\nContent-Disposition: form-data; name=\"a\r\n\r\n", "!",
      "no closing quote" },
    { "--b\r\nContent-Disposition: form-data; name=a; name=b\r\n\r\n", "!",
      "two names" },
    { "--b\r\nContent-Disposition: form-data; filename*=latin1''a\r\n\r\n",
      "!", "another charset" },
    { "--b\r\nX: a\r\n b\r\n\r\n", "!", "a folded header" },
    { "--b\r\nX: a\nY: b\r\n\r\n", "!", "a bare line feed" },
    { "--b\r\nno header\r\n\r\n", "!", "a line that is no header" },
    { "--b\r\nContent-Transfer-Encoding: base64\r\n\r\n", "!",
      "a transfer encoding" }
};


static void
types(void)
{
    char  type[256];

    is_str(parse("multipart/form-data; boundary=\"b\"", "--b--", 5, 5), ".",
           "a quoted boundary");
    is_str(parse("Multipart/Form-Data ;charset=x; Boundary=b", "--b--", 5, 5),
           ".", "any case");
    is_str(parse("multipart/form-datax; boundary=b", "", 0, 1), "other",
           "another type");
    is_str(parse("text/plain", "", 0, 1), "other", "and another");
    is_str(parse("multipart/form-data", "", 0, 1), "bad", "no boundary");
    is_str(parse("multipart/form-data; boundary=", "", 0, 1), "bad",
           "an empty one");
    is_str(parse("multipart/form-data; boundary=a; boundary=b", "", 0, 1),
           "bad", "two");
    is_str(parse("multipart/form-data; boundary=\"a ", "", 0, 1), "bad",
           "an open one");

    (void) snprintf(type, sizeof(type), "multipart/form-data; boundary=%.*s",
                    SBX_MULTIPART_BOUNDARY, "0123456789012345678901234567890"
                    "12345678901234567890123456789012345678901234567890");
    is_str(parse(type, "", 0, 1), "", "70 bytes");

    (void) strcat(type, "x");
    is_str(parse(type, "", 0, 1), "bad", "71 bytes");
}


static void
bounds(void)
{
    int           i;
    size_t        n;
    static char   body[SBX_MULTIPART_PARTS_MAX * 20];

    memset(body, 'x', sizeof(body));
    memcpy(body, "--b\r\nX: ", 8);
    n = 5 + SBX_MULTIPART_HEAD_MAX;
    memcpy(body + n - 4, "\r\n\r\n", 4);

    is_str(parse(TYPE, body, n, 100), "-=-(", "the longest headers");

    memset(body + n - 4, 'x', 4);
    is_str(parse(TYPE, body, n + 1, 100), "!", "longer ones");

    for (n = 0, i = 0; i <= SBX_MULTIPART_PARTS_MAX; i++, n += 7) {
        memcpy(body + n, "--b\r\n\r\n", 7);
    }

    n = strlen(parse(TYPE, body, n, 1000));
    is_int((int64_t) n, 5 * SBX_MULTIPART_PARTS_MAX + 1, "too many parts");
    ok(told[n - 1] == '!' && m.fault != NULL, "are refused");
}


int
main(void)
{
    size_t  i, step, size, same;
    char    whole[1024];

    for (i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        size = strlen(rows[i].body);

        is_str(parse(TYPE, rows[i].body, size, size + 1), rows[i].expected,
               rows[i].name);
        memcpy(whole, told, sizeof(whole));

        for (step = 1, same = 0; step <= size; step++) {
            same += (strcmp(parse(TYPE, rows[i].body, size, step), whole)
                     == 0);
        }

        is_int((int64_t) same, (int64_t) size, "however it is cut");
    }

    types();
    bounds();

    return done_testing();
}
