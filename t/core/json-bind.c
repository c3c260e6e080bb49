/*
 * What the JSON binder takes, what it refuses, and how it names the place.
 */

#include "json.h"
#include "tap.h"


typedef struct {
    uint32_t            there;            /* never a seen offset: it is 0 */
    uint32_t            inner_seen;
    sbx_json_str_t      word;
    uint64_t            bytes;
} inner_t;

typedef struct {
    uint32_t            pad;
    uint32_t            flag;
    uint32_t            flag_seen;
    uint32_t            limit_seen;
    sbx_json_str_t      name;
    sbx_json_str_t      scalar;
    uint64_t            count;
    uint64_t            memory;
    uint64_t            cpus;
    uint64_t            seconds;
    uint64_t            timeout;
    sbx_json_list_t     list;
    sbx_json_map_t      map;
    sbx_json_command_t  command;
    sbx_json_network_t  network;
    inner_t             inner;
} target_t;


static const sbx_json_field_t  inner_fields[] = {
    { .name = "word", .type = SBX_JSON_STRING,
      .offset = offsetof(inner_t, word), .required = 1,
      .seen = offsetof(inner_t, inner_seen) },
    { .name = "memory", .type = SBX_JSON_LIMIT, .limit = "memory",
      .offset = offsetof(inner_t, bytes) },
    { .name = NULL }
};

static const sbx_json_field_t  fields[] = {
    { .name = "name", .type = SBX_JSON_STRING, .min = 1, .max = 8,
      .offset = offsetof(target_t, name), .nullable = 1 },
    { .name = "flag", .type = SBX_JSON_BOOL,
      .offset = offsetof(target_t, flag), .nullable = 1,
      .seen = offsetof(target_t, flag_seen) },
    { .name = "count", .type = SBX_JSON_COUNT, .min = 1, .max = 1000,
      .offset = offsetof(target_t, count) },
    { .name = "memory", .type = SBX_JSON_LIMIT, .limit = "memory",
      .offset = offsetof(target_t, memory), .nullable = 1,
      .seen = offsetof(target_t, limit_seen) },
    { .name = "cpus", .type = SBX_JSON_LIMIT, .limit = "cpus",
      .offset = offsetof(target_t, cpus) },
    { .name = "cpu_seconds", .type = SBX_JSON_LIMIT, .limit = "cpu_seconds",
      .offset = offsetof(target_t, seconds), .nullable = 1 },
    { .name = "exec_timeout_s", .type = SBX_JSON_LIMIT,
      .limit = "exec_timeout_s", .offset = offsetof(target_t, timeout) },
    { .name = "list", .type = SBX_JSON_STRINGS, .max = 3,
      .offset = offsetof(target_t, list) },
    { .name = "map", .type = SBX_JSON_MAP, .max = 4,
      .offset = offsetof(target_t, map) },
    { .name = "cmd", .type = SBX_JSON_COMMAND, .max = 4,
      .offset = offsetof(target_t, command) },
    { .name = "network", .type = SBX_JSON_NETWORK,
      .offset = offsetof(target_t, network) },
    { .name = "inner", .type = SBX_JSON_OBJECT, .fields = inner_fields,
      .offset = offsetof(target_t, inner) },
    { .name = "scalar", .type = SBX_JSON_SCALAR, .max = 6,
      .offset = offsetof(target_t, scalar), .nullable = 1 },
    { .name = "any", .type = SBX_JSON_ANY },
    { .name = "a/b~c", .type = SBX_JSON_ANY },
    { .name = NULL }
};


/* Each block by malloc(), so that a sanitizer sees every overrun. */

#define BLOCKS  4096

static void    *blocks[BLOCKS];
static size_t   nblocks;


static void *
test_alloc(void *ctx, size_t size)
{
    (void) ctx;

    if (nblocks == BLOCKS) {
        return NULL;
    }

    blocks[nblocks] = malloc(size);

    return blocks[nblocks++];
}


static void
test_free(void)
{
    while (nblocks > 0) {
        free(blocks[--nblocks]);
    }
}


static const sbx_json_alloc_t  test_allocator = { test_alloc, NULL };


static int
bind_text(const char *text, size_t n, target_t *t, sbx_error_t *e)
{
    int    rc;
    void  *copy;

    /* without a NUL after it, so that reading on is seen */

    copy = malloc(n == 0 ? 1 : n);
    memcpy(copy, text, n);
    memset(t, 0, sizeof(*t));
    memset(e, 0, sizeof(*e));

    rc = sbx_json_bind(copy, n, fields, t, &test_allocator, e);

    free(copy);

    return rc;
}


static int
bind(const char *text, target_t *t)
{
    sbx_error_t  e;

    if (bind_text(text, strlen(text), t, &e) == 0) {
        return 1;
    }

    printf("# %s: %s\n", text, e.text);

    return 0;
}


static void
test_values(void)
{
    target_t  t;

    ok(bind("{}", &t) && t.flag_seen == 0, "an empty object sets nothing");

    ok(bind(" { \"name\" : \"a\\u00e9\\n\" , \"flag\":true,"
            " \"count\":1000 }\n", &t)
       && t.name.len == 4 && memcmp(t.name.data, "a\xc3\xa9\n", 5) == 0
       && t.flag == 1 && t.flag_seen == 1 && t.count == 1000,
       "string, bool and count");

    ok(bind("{\"name\":\"a\\u0000b\"}", &t) && t.name.len == 3
       && memcmp(t.name.data, "a\0b", 4) == 0,
       "an escaped NUL is kept and counted");

    ok(bind("{\"name\":\"\\ud83d\\ude00\"}", &t)
       && strcmp(t.name.data, "\xf0\x9f\x98\x80") == 0,
       "a surrogate pair is one character");

    ok(bind("{\"memory\":\"512MB\",\"cpus\":0.5,\"cpu_seconds\":1.5,"
            "\"exec_timeout_s\":60}", &t)
       && t.memory == 536870912 && t.cpus == 500 && t.seconds == 1500
       && t.timeout == 60000 && t.limit_seen == 1,
       "limits by their units");

    ok(bind("{\"memory\":33554432}", &t) && t.memory == 33554432,
       "bytes as a number");

    ok(bind("{\"memory\":null,\"cpu_seconds\":null,\"flag\":null,"
            "\"name\":null}", &t)
       && t.memory == 0 && t.limit_seen == 0 && t.seconds == SBX_UNLIMITED
       && t.flag_seen == 0 && t.name.data == NULL,
       "null is left out, or no limit where there may be none");

    ok(bind("{\"list\":[\"a\",\"\",\"c\"],\"map\":{\"k\":\"v\",\"\":\"\"}}",
            &t)
       && t.list.nelts == 3 && strcmp(t.list.elts[2].data, "c") == 0
       && t.list.elts[1].len == 0
       && t.map.nelts == 2 && strcmp(t.map.elts[0].value.data, "v") == 0
       && t.map.elts[1].key.len == 0,
       "lists and maps, in their order");

    ok(bind("{\"cmd\":\"echo $x\"}", &t) && t.command.is_array == 0
       && strcmp(t.command.shell.data, "echo $x") == 0,
       "a command as a string");

    ok(bind("{\"cmd\":[\"a\",\"b c\"]}", &t) && t.command.is_array == 1
       && t.command.argv.nelts == 2,
       "a command as an array");

    ok(bind("{\"network\":false}", &t) && t.network.mode == SBX_NETWORK_NONE
       && bind("{\"network\":true}", &t)
       && t.network.mode == SBX_NETWORK_ALL
       && bind("{\"network\":{\"allow\":[\"x\"]}}", &t)
       && t.network.mode == SBX_NETWORK_LISTS && t.network.allow.nelts == 1
       && t.network.deny.nelts == 0,
       "the three forms of network");

    ok(bind("{\"inner\":{\"word\":\"w\",\"memory\":\"1GB\"},\"count\":2}", &t)
       && t.inner.inner_seen == 1 && t.inner.bytes == 1073741824
       && strcmp(t.inner.word.data, "w") == 0 && t.count == 2,
       "an inner object lands in its place");

    ok(bind("{\"scalar\":\"a b\"}", &t) && strcmp(t.scalar.data, "a b") == 0
       && bind("{\"scalar\":-1.5e3}", &t)
       && strcmp(t.scalar.data, "-1.5e3") == 0
       && bind("{\"scalar\":null}", &t) && t.scalar.data == NULL,
       "a string or the text of a number");

    ok(bind("{\"any\":[{\"a\":[1,null,true,{}]},2.5e3,\"x\"]}", &t)
       && bind("{\"any\":null}", &t) && bind("{\"any\":{\"a\":1}}", &t),
       "anything is skipped where anything may be");

    ok(bind("{\"any\":{\"a\":1,\"a\":2}}", &t),
       "and no name of it is kept");

    ok(bind("{\"c\\u006dd\":\"\\u0041\\b\\f\\n\\r\\t\\/\\\"\\\\\\u00e9\\u20ac"
            "\\ud83e\\udd23\\u000a.\"}", &t)
       && strcmp(t.command.shell.data, "A\b\f\n\r\t/\"\\\xc3\xa9\xe2\x82\xac"
                                "\xf0\x9f\xa4\xa3\n.") == 0,
       "each escape is the character that it stands for");
}


static const struct {
    const char  *text;
    const char  *error;           /* how it begins */
} refusals[] = {

    { "", ": is not JSON" },
    { "   ", ": is not JSON" },
    { "[]", ": must be an object" },
    { "12", ": must be an object" },
    { "null", ": must be an object" },
    { "\"x\"", ": must be an object" },
    { "{} {}", ": is not JSON" },
    { "{}x", ": is not JSON" },
    { "{\"name\":\"x\"}\"", ": is not JSON" },
    { "{\"name\":\"x\"} tru", ": is not JSON" },
    { "{\"name\":\"x\"}\n-", ": is not JSON" },
    { "{", ": is not JSON" },
    { "{\"name\":\"x\"", ": is not JSON" },
    { "{\"name\":\"x", ": is not JSON" },
    { "{\"name\":'x'}", ": is not JSON" },
    { "{name:1}", ": is not JSON" },
    { "{\"flag\":true,}", ": is not JSON" },
    { "{\"any\":012}", ": is not JSON" },
    { "{\"any\":0x10}", ": is not JSON" },
    { "{\"count\":+1}", ": is not JSON" },
    { "{\"count\":.5}", ": is not JSON" },
    { "{\"count\":NaN}", ": is not JSON" },
    { "/* c */ {}", ": is not JSON" },
    { "\xef\xbb\xbf{}", ": is not JSON" },
    { "{\"name\":\"a\nb\"}", ": is not JSON" },
    { "{\"name\":\"\\x41\"}", ": is not JSON" },
    { "{\"name\":\"\\u12g4\"}", ": is not JSON" },

    { "{\"nope\":1}", "/nope: is not a field" },
    { "{\"\":1}", "/: is not a field" },
    { "{\"x/y~z\":1}", "/x~1y~0z: is not a field" },
    { "{\"Name\":\"x\"}", "/Name: is not a field" },
    { "{\"name\\u0000\":\"x\"}", "/name?: is not a field" },
    { "{\"inner\":{\"nope\":1}}", "/inner/nope: is not a field" },
    { "{\"network\":{\"nope\":1}}", "/network/nope: is not a field" },

    { "{\"flag\":true,\"flag\":true}", "/flag: is given twice" },
    { "{\"name\":null,\"name\":\"x\"}", "/name: is given twice" },
    { "{\"fl\\u0061g\":true,\"flag\":true}", "/flag: is given twice" },
    { "{\"map\":{\"a\":\"1\",\"b\":\"2\",\"a\":\"3\"}}",
      "/map/a: is given twice" },
    { "{\"a/b~c\":1,\"a/b~c\":1}", "/a~1b~0c: is given twice" },

    { "{\"scalar\":true}", "/scalar: must be a string or a number" },
    { "{\"scalar\":[1]}", "/scalar: must be a string or a number" },
    { "{\"scalar\":{}}", "/scalar: must be a string or a number" },
    { "{\"scalar\":1234567}", "/scalar: must be at most 6 bytes long" },
    { "{\"name\":1}", "/name: must be a string" },
    { "{\"name\":[]}", "/name: must be a string" },
    { "{\"name\":{}}", "/name: must be a string" },
    { "{\"name\":true}", "/name: must be a string" },
    { "{\"name\":\"\"}", "/name: must not be empty" },
    { "{\"name\":\"123456789\"}", "/name: must be at most 8 bytes" },
    { "{\"flag\":1}", "/flag: must be true or false" },
    { "{\"flag\":\"true\"}", "/flag: must be true or false" },
    { "{\"count\":0}", "/count: must be an integer from 1 to 1000" },
    { "{\"count\":1001}", "/count: must be an integer from 1 to 1000" },
    { "{\"count\":-1}", "/count: must be an integer" },
    { "{\"count\":1.0}", "/count: must be an integer" },
    { "{\"count\":1e2}", "/count: must be an integer" },
    { "{\"count\":\"5\"}", "/count: must be an integer" },
    { "{\"count\":null}", "/count: must be an integer, not null" },
    { "{\"count\":18446744073709551617}", "/count: must be an integer" },
    { "{\"count\":99999999999999999999999999}", "/count: must be an int" },

    { "{\"memory\":\"12 parsecs\"}", "/memory: " },
    { "{\"memory\":\"none\"}", "/memory: must be bytes" },
    { "{\"memory\":\"\"}", "/memory: must be bytes" },
    { "{\"memory\":\" 512MB\"}", "/memory: must be bytes" },
    { "{\"memory\":1.5}", "/memory: " },
    { "{\"memory\":1e9}", "/memory: " },
    { "{\"memory\":-1}", "/memory: " },
    { "{\"memory\":1}", "/memory: must be at least" },
    { "{\"memory\":true}", "/memory: must be bytes" },
    { "{\"memory\":\"99999999999999999999GB\"}", "/memory: " },
    { "{\"cpus\":\"1\"}", "/cpus: must be a number" },
    { "{\"cpus\":-1}", "/cpus: must be a number, from 0.01 to 4096" },
    { "{\"cpus\":1e9}", "/cpus: must be at least 0.01 and at most 4096" },
    { "{\"cpus\":1e999999999999999999999}", "/cpus: must be a number, fr" },
    { "{\"cpus\":0.004}", "/cpus: must be at least" },
    { "{\"cpus\":0}", "/cpus: must be at least" },
    { "{\"cpus\":null}", "/cpus: must be a number, not null" },
    { "{\"cpu_seconds\":\"none\"}", "/cpu_seconds: must be a number" },

    { "{\"list\":\"a\"}", "/list: must be an array" },
    { "{\"list\":{}}", "/list: must be an array" },
    { "{\"list\":[\"a\",1]}", "/list/1: must be a string" },
    { "{\"list\":[\"a\",[\"b\"]]}", "/list/1: must be a string" },
    { "{\"list\":[null]}", "/list/0: must be a string" },
    { "{\"list\":[\"1\",\"2\",\"3\",\"4\"]}", "/list: has more than 3" },
    { "{\"map\":[]}", "/map: must be an object" },
    { "{\"map\":{\"k\":1}}", "/map/k: must be a string" },
    { "{\"map\":{\"k\":null}}", "/map/k: must be a string" },
    { "{\"map\":{\"k\":{}}}", "/map/k: must be a string" },
    { "{\"map\":{\"1\":\"\",\"2\":\"\",\"3\":\"\",\"4\":\"\",\"5\":\"\"}}",
      "/map: has more than 4" },
    { "{\"cmd\":[]}", "/cmd: must have at least one" },
    { "{\"cmd\":1}", "/cmd: must be a string or an array" },
    { "{\"cmd\":{}}", "/cmd: must be a string or an array" },
    { "{\"cmd\":[\"a\",2]}", "/cmd/1: must be a string" },
    { "{\"cmd\":[\"a\",\"b\",\"c\",\"d\",\"e\"]}", "/cmd: has more than 4" },
    { "{\"network\":\"all\"}", "/network: must be true, false or" },
    { "{\"network\":[]}", "/network: must be true, false or" },
    { "{\"network\":{\"allow\":\"x\"}}", "/network/allow: must be an arr" },
    { "{\"inner\":\"x\"}", "/inner: must be an object" },
    { "{\"inner\":{}}", "/inner/word: is required" },
    { "{\"inner\":null}", "/inner: must be an object, not null" },

    { NULL, NULL }
};


/* The bound is of the whole, wherever they are. */

static void
test_tokens(void)
{
    char         *text;
    size_t        n, i;
    target_t      t;
    sbx_error_t   e;

    text = malloc(2 * 40000 + 64);
    n = (size_t) sprintf(text, "{\"any\":[");

    /* the name, the list, and the rest */

    for (i = 0; i < 32768 - 2; i++) {
        n += (size_t) sprintf(text + n, i ? ",1" : "1");
    }

    (void) sprintf(text + n, "]}");
    ok(bind(text, &t), "32768 names and values are read");

    (void) sprintf(text + n, ",1]}");
    ok(bind_text(text, strlen(text), &t, &e) == -1
       && strncmp(e.text, ": has more than 32768 names and values", 38) == 0,
       "one more is not");

    free(text);
}


static void
test_refusals(void)
{
    size_t       i;
    target_t     t;
    sbx_error_t  e;

    for (i = 0; refusals[i].text != NULL; i++) {
        memset(&e, 0, sizeof(e));

        if (!ok(bind_text(refusals[i].text, strlen(refusals[i].text), &t, &e)
                == -1
                && e.code == SBX_E_INVALID
                && strncmp(e.text, refusals[i].error,
                           strlen(refusals[i].error)) == 0,
                "refused: %.60s", refusals[i].text))
        {
            printf("# got \"%s\"\n", e.text);
        }
    }
}


static const struct {
    const char  *name;
    const char  *bytes;
    size_t       n;
} bad_text[] = {
    { "a lone high surrogate", "\\ud83d", 6 },
    { "a lone low surrogate", "\\ude00", 6 },
    { "a reversed pair", "\\ude00\\ud83d", 12 },
    { "a high surrogate before a letter", "\\ud83dx", 7 },
    { "a high surrogate before another escape", "\\ud83d\\n", 8 },
    { "two high surrogates", "\\uD83D\\uD83D", 12 },
    { "a stray continuation byte", "a\x80", 2 },
    { "an overlong slash", "\xc0\xaf", 2 },
    { "an overlong NUL", "\xc0\x80", 2 },
    { "an overlong three-byte form", "\xe0\x80\xaf", 3 },
    { "a surrogate in UTF-8", "\xed\xa0\xbd", 3 },
    { "a code beyond Unicode", "\xf4\x90\x80\x80", 4 },
    { "0xff", "\xff", 1 },
    { "a cut sequence", "\xe2\x82", 2 },
    { NULL, NULL, 0 }
};


static void
test_text(void)
{
    char         text[128];
    size_t       i, n;
    target_t     t;
    sbx_error_t  e;

    for (i = 0; bad_text[i].name != NULL; i++) {
        n = (size_t) snprintf(text, sizeof(text), "{\"flag\":true,\"any\":\"");
        memcpy(text + n, bad_text[i].bytes, bad_text[i].n);
        n += bad_text[i].n;
        memcpy(text + n, "\"}", 2);

        if (!ok(bind_text(text, n + 2, &t, &e) == -1
                && strncmp(e.text, "/any: ", 6) == 0,
                "%s in a value is refused where it is", bad_text[i].name))
        {
            printf("# got \"%s\"\n", e.text);
        }

        n = (size_t) snprintf(text, sizeof(text), "{\"map\":{\"");
        memcpy(text + n, bad_text[i].bytes, bad_text[i].n);
        n += bad_text[i].n;
        memcpy(text + n, "\":\"\"}}", 6);

        ok(bind_text(text, n + 6, &t, &e) == -1
           && strncmp(e.text, "/map: ", 6) == 0,
           "%s in a key is refused too", bad_text[i].name);
    }

    ok(bind_text("{}\0", 3, &t, &e) == -1, "a NUL after the text is refused");
    ok(bind_text("{\"name\":\"a\0b\"}", 14, &t, &e) == -1,
       "a bare NUL in a string is refused");
    ok(bind_text("{\"\\\\ud83d\":1}", 13, &t, &e) == -1
       && strcmp(e.text, "/\\ud83d: is not a field of this object") == 0,
       "an escaped backslash begins no surrogate");
}


static void
test_depth(void)
{
    char         text[256];
    size_t       n, i;
    target_t     t;
    sbx_error_t  e;

    n = (size_t) snprintf(text, sizeof(text), "{\"any\":");

    for (i = 0; i < 15; i++) {
        text[n++] = '[';
    }

    for (i = 0; i < 15; i++) {
        text[n++] = ']';
    }

    text[n++] = '}';
    ok(bind_text(text, n, &t, &e) == 0, "sixteen levels are taken");

    n = (size_t) snprintf(text, sizeof(text), "{\"any\":");
    memset(text + n, '[', 100);
    ok(bind_text(text, n + 100, &t, &e) == -1
       && strstr(e.text, "nested deeper than 16") != NULL,
       "a seventeenth is refused before the text is read to its end");
}


static void
test_long_names(void)
{
    char         text[4096];
    size_t       n;
    target_t     t;
    sbx_error_t  e;

    n = (size_t) snprintf(text, sizeof(text), "{\"");
    memset(text + n, 'k', 3000);
    n += 3000;
    n += (size_t) snprintf(text + n, sizeof(text) - n, "\":1}");

    ok(bind_text(text, n, &t, &e) == -1
       && strstr(e.text, "...: is not a field") != NULL
       && strlen(e.text) < sizeof(e.text),
       "a long name is cut in the message");
}


int
main(void)
{
    test_values();
    test_tokens();
    test_refusals();
    test_text();
    test_depth();
    test_long_names();
    test_free();

    return done_testing();
}
