/* Arrays of objects, and how a place in them is named. */

#include "json.h"
#include "sandbox_util.h"
#include "tap.h"


typedef struct {
    uint64_t            size;
    sbx_json_str_t      name;
    sbx_json_list_t     words;
} element_t;

typedef struct {
    uint32_t            pad;
    uint32_t            seen;
    sbx_json_objects_t  items;
} target_t;


static const element_t  usual = { .size = 7 };

static const sbx_json_field_t  element_fields[] = {
    { .name = "name", .type = SBX_JSON_STRING, .required = 1,
      .offset = offsetof(element_t, name) },
    { .name = "size", .type = SBX_JSON_COUNT, .max = 100,
      .offset = offsetof(element_t, size) },
    { .name = "words", .type = SBX_JSON_STRINGS,
      .offset = offsetof(element_t, words) },
    { .name = NULL }
};

static const sbx_json_field_t  fields[] = {
    { .name = "items", .type = SBX_JSON_OBJECTS, .max = 20,
      .offset = offsetof(target_t, items), .fields = element_fields,
      .seen = offsetof(target_t, seen),
      .element = &usual, .size = sizeof(element_t) },
    { .name = "any", .type = SBX_JSON_ANY },
    { .name = NULL }
};


/* Given back at the end of the test, as a pool does. */

#define BLOCKS  4096

static void    *blocks[BLOCKS];
static size_t   nblocks;

static void *
take(void *ctx, size_t size)
{
    (void) ctx;

    if (nblocks == BLOCKS) {
        return NULL;
    }

    blocks[nblocks] = malloc(size);

    return blocks[nblocks++];
}


static int
bind(const char *text, target_t *t, sbx_error_t *e)
{
    const sbx_json_alloc_t  alloc = { take, NULL };

    memset(t, 0, sizeof(target_t));
    memset(e, 0, sizeof(sbx_error_t));

    return sbx_json_bind(text, strlen(text), fields, t, &alloc, e);
}


static void
test_values(void)
{
    char         text[4096];
    size_t       i, n;
    target_t     t;
    element_t   *elts;
    sbx_error_t  e;

    ok(bind("{\"items\":[]}", &t, &e) == 0 && t.items.nelts == 0
       && t.seen == 1, "none");

    ok(bind("{\"items\":[{\"name\":\"a\"},{\"size\":3,\"name\":\"b\","
            "\"words\":[\"x\",\"y\"]}],\"any\":[{\"items\":[{}]}]}", &t, &e)
       == 0, "two");
    elts = t.items.elts;
    is_int((int64_t) t.items.nelts, 2, "are counted");
    is_str(elts[0].name.data, "a", "the first's name");
    is_int((int64_t) elts[0].size, 7, "and what it left out");
    is_str(elts[1].name.data, "b", "the second's");
    is_int((int64_t) elts[1].size, 3, "with what it said");
    ok(elts[0].words.nelts == 0 && elts[1].words.nelts == 2
       && strcmp(elts[1].words.elts[1].data, "y") == 0,
       "each has its own list");

    n = (size_t) snprintf(text, sizeof(text), "{\"items\":[");

    for (i = 0; i < 20; i++) {
        n += (size_t) snprintf(text + n, sizeof(text) - n,
                               "%s{\"name\":\"n%zu\",\"size\":%zu}",
                               i ? "," : "", i, i);
    }

    (void) snprintf(text + n, sizeof(text) - n, "]}");
    ok(bind(text, &t, &e) == 0 && t.items.nelts == 20, "as many as may be");
    elts = t.items.elts;

    for (i = 0; i < t.items.nelts; i++) {
        if (elts[i].size != i || elts[i].name.data[0] != 'n') {
            break;
        }
    }

    is_int((int64_t) i, 20, "and each is whole, wherever it was moved to");

    (void) snprintf(text + n, sizeof(text) - n, ",{\"name\":\"x\"}]}");
    ok(bind(text, &t, &e) == -1
       && strncmp(e.text, "/items: has more than 20", 24) == 0, "no more");
}


static const struct {
    const char  *text;
    const char  *says;
} refusals[] = {
    { "{\"items\":{}}", "/items: must be an array of objects" },
    { "{\"items\":null}", "/items: must be an array of objects" },
    { "{\"items\":\"x\"}", "/items: must be an array of objects" },
    { "{\"items\":[1]}", "/items/0: must be an object" },
    { "{\"items\":[{\"name\":\"a\"},\"x\"]}", "/items/1: must be an object" },
    { "{\"items\":[{\"name\":\"a\"},null]}", "/items/1: must be an object" },
    { "{\"items\":[[]]}", "/items/0: must be an object" },
    { "{\"items\":[{\"name\":\"a\"},{}]}", "/items/1/name: is required" },
    { "{\"items\":[{\"name\":1}]}", "/items/0/name: must be a string" },
    { "{\"items\":[{\"nme\":1}]}", "/items/0/nme: is not a field" },
    { "{\"items\":[{\"name\":\"a\",\"name\":\"b\"}]}",
      "/items/0/name: is given twice" },
    { "{\"items\":[{\"name\":\"a\",\"words\":[\"x\",2]}]}",
      "/items/0/words/1: must be a string" },
    { "{\"items\":[{\"name\":\"a\"}],\"items\":[]}",
      "/items: is given twice" },
    { "{\"items\":[{\"name\":\"a\"", ": is not JSON" },
};


static void
test_refusals(void)
{
    size_t       i;
    target_t     t;
    sbx_error_t  e;

    for (i = 0; i < sbx_nelts(refusals); i++) {
        if (!ok(bind(refusals[i].text, &t, &e) == -1
                && strncmp(e.text, refusals[i].says,
                           strlen(refusals[i].says)) == 0,
                "%s", refusals[i].text))
        {
            printf("# %s\n", e.text);
        }
    }
}


int
main(void)
{
    test_values();
    test_refusals();

    while (nblocks != 0) {
        free(blocks[--nblocks]);
    }

    return done_testing();
}
