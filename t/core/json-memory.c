/*
 * The JSON binder takes memory from its caller alone, lives with a lack of
 * it at any point, and asks for an amount in proportion to the text.
 */

#include "json.h"
#include "tap.h"

#include <time.h>


#define ARENA  (64 * 1024 * 1024)

typedef struct {
    uint8_t   *start;
    size_t     used;
    size_t     calls;
    size_t     fail_at;           /* this call and all after it; 0: none */
} arena_t;

typedef struct {
    uint32_t          pad;
    sbx_json_str_t    text;
    sbx_json_map_t    map;
    sbx_json_list_t   list;
} target_t;


static const sbx_json_field_t  fields[] = {
    { .name = "text", .type = SBX_JSON_STRING,
      .offset = offsetof(target_t, text) },
    { .name = "map", .type = SBX_JSON_MAP,
      .offset = offsetof(target_t, map) },
    { .name = "list", .type = SBX_JSON_STRINGS,
      .offset = offsetof(target_t, list) },
    { .name = NULL }
};


static void *
arena_alloc(void *ctx, size_t size)
{
    void     *m;
    arena_t  *arena;

    arena = ctx;
    arena->calls++;
    size = (size + 15) & ~(size_t) 15;

    if ((arena->fail_at != 0 && arena->calls >= arena->fail_at)
        || size > ARENA - arena->used)
    {
        return NULL;
    }

    m = arena->start + arena->used;
    arena->used += size;

    return m;
}


static int
bind_in(arena_t *arena, const char *text, size_t n, target_t *t,
    sbx_error_t *e)
{
    sbx_json_alloc_t  alloc;

    alloc.alloc = arena_alloc;
    alloc.ctx = arena;
    arena->used = 0;
    arena->calls = 0;
    memset(t, 0, sizeof(*t));

    return sbx_json_bind(text, n, fields, t, &alloc, e);
}


static void
test_lack(arena_t *arena)
{
    size_t       calls, i, refused;
    target_t     t;
    sbx_error_t  e;

    static const char  text[] =
        "{\"text\":\"\\u00e9escaped \\n, so that it is decoded\","
        "\"map\":{\"a\":\"1\",\"b\":\"2\",\"c\":\"3\"},"
        "\"list\":[\"1\",\"2\",\"3\",\"4\",\"5\",\"6\",\"7\",\"8\",\"9\"]}";

    arena->fail_at = 0;
    ok(bind_in(arena, text, sizeof(text) - 1, &t, &e) == 0,
       "the text is fine when there is memory");

    calls = arena->calls;
    refused = 0;

    for (i = 1; i <= calls; i++) {
        arena->fail_at = i;

        if (bind_in(arena, text, sizeof(text) - 1, &t, &e) == -1
            && e.code == SBX_E_INTERNAL)
        {
            refused++;
        }
    }

    is_int((int64_t) refused, (int64_t) calls,
           "a failure of any allocation is an error and no crash");

    arena->fail_at = 0;
}


static void
test_proportion(arena_t *arena)
{
    char         *text;
    size_t        n, i, size;
    target_t      t;
    sbx_error_t   e;

    size = 4 * 1024 * 1024;
    text = malloc(size + 64);

    /* one long string that has to be decoded */

    n = (size_t) sprintf(text, "{\"text\":\"");

    for (i = 0; i < size / 2; i++) {
        memcpy(text + n, "\\n", 2);
        n += 2;
    }

    n += (size_t) sprintf(text + n, "\"}");

    ok(bind_in(arena, text, n, &t, &e) == 0 && t.text.len == size / 2,
       "a long escaped string is decoded");
    ok(arena->used < 4 * size, "it takes less than four times its text");

    /* many short ones */

    n = (size_t) sprintf(text, "{\"list\":[\"\"");

    for (i = 0; i < 32000; i++) {
        memcpy(text + n, ",\"\"", 3);
        n += 3;
    }

    n += (size_t) sprintf(text + n, "]}");

    ok(bind_in(arena, text, n, &t, &e) == 0 && t.list.nelts == 32001,
       "tens of thousands of empty strings are read");
    ok(arena->used < 24 * n, "they take less than 24 times their text");

    free(text);
}


/* Keys that would share a bucket, or a long prefix, of anything. */

static void
test_many_keys(arena_t *arena)
{
    char             *text;
    size_t            n, i, keys;
    target_t          t;
    sbx_error_t       e;
    struct timespec   from, to;

    keys = 16000;
    text = malloc(keys * 80 + 64);
    n = (size_t) sprintf(text, "{\"map\":{");

    for (i = 0; i < keys; i++) {
        n += (size_t) sprintf(text + n, "%s\"the same long beginning of each"
                              " key %010zu\":\"\"", i ? "," : "",
                              (i * 7919) % keys);
    }

    n += (size_t) sprintf(text + n, "}}");

    (void) clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &from);

    ok(bind_in(arena, text, n, &t, &e) == 0 && t.map.nelts == keys,
       "sixteen thousand keys are told apart");

    (void) clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &to);

    ok((to.tv_sec - from.tv_sec) * 1000
       + (to.tv_nsec - from.tv_nsec) / 1000000 < 1000,
       "in less than a second of processor time");

    n -= 2;
    n += (size_t) sprintf(text + n, ",\"the same long beginning of each key"
                          " %010d\":\"\"}}", 4711);

    ok(bind_in(arena, text, n, &t, &e) == -1
       && strstr(e.text, "0000004711: is given twice") != NULL,
       "the one that comes twice is found and named");

    free(text);
}


int
main(void)
{
    arena_t  arena;

    memset(&arena, 0, sizeof(arena));
    arena.start = malloc(ARENA);

    test_lack(&arena);
    test_proportion(&arena);
    test_many_keys(&arena);

    free(arena.start);

    return done_testing();
}
