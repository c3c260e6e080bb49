/*
 * JSON from the network, bound by a table that has every type in it.
 */

#include "json.h"

#include <stdlib.h>
#include <string.h>


#define FUZZ_ARENA   (1024 * 1024)


typedef struct {
    uint32_t             any_seen;
    sbx_json_str_t       string;
    uint32_t             flag;
    uint64_t             count;
    uint64_t             memory;
    uint64_t             timeout;
    sbx_json_list_t      strings;
    sbx_json_map_t       map;
    sbx_json_command_t   command;
    sbx_json_network_t   network;
} fuzz_target_t;

typedef struct {
    char     *base;
    size_t    used;
} fuzz_arena_t;


int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);


#define AT(field)  offsetof(fuzz_target_t, field)

static const sbx_json_field_t  fuzz_inner[] = {
    { .name = "memory", .type = SBX_JSON_LIMIT, .offset = AT(memory),
      .limit = "memory" },
    { .name = "exec_timeout_s", .type = SBX_JSON_LIMIT,
      .offset = AT(timeout), .limit = "exec_timeout_s", .nullable = 1 },
    { .name = NULL }
};

static const sbx_json_field_t  fuzz_fields[] = {
    { .name = "string", .type = SBX_JSON_STRING, .offset = AT(string),
      .max = 100 },
    { .name = "bool", .type = SBX_JSON_BOOL, .offset = AT(flag) },
    { .name = "count", .type = SBX_JSON_COUNT, .offset = AT(count),
      .min = 3, .max = 1000000 },
    { .name = "strings", .type = SBX_JSON_STRINGS, .offset = AT(strings),
      .max = 8 },
    { .name = "map", .type = SBX_JSON_MAP, .offset = AT(map), .max = 8 },
    { .name = "resources", .type = SBX_JSON_OBJECT, .fields = fuzz_inner },
    { .name = "cmd", .type = SBX_JSON_COMMAND, .offset = AT(command),
      .max = 64 },
    { .name = "network", .type = SBX_JSON_NETWORK, .offset = AT(network),
      .max = 16 },
    { .name = "any", .type = SBX_JSON_ANY, .seen = AT(flag),
      .nullable = 1 },
    { .name = NULL }
};


static void *
fuzz_alloc(void *ctx, size_t size)
{
    void          *p;
    fuzz_arena_t  *arena;

    arena = ctx;

    if (size > FUZZ_ARENA || arena->used + size + 16 > FUZZ_ARENA) {
        return NULL;
    }

    p = arena->base + arena->used;
    arena->used += (size + 15) & ~(size_t) 15;

    return p;
}


static void
fuzz_string(const sbx_json_str_t *s)
{
    /* the byte after the text is promised */

    if (s->data != NULL && s->data[s->len] != '\0') {
        abort();
    }
}


static void
fuzz_list(const sbx_json_list_t *list)
{
    size_t  i;

    for (i = 0; i < list->nelts; i++) {
        fuzz_string(&list->elts[i]);
    }
}


int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    size_t            i;
    sbx_error_t       e;
    fuzz_arena_t      arena;
    fuzz_target_t     target;
    sbx_json_alloc_t  alloc;

    memset(&target, 0, sizeof(fuzz_target_t));
    arena.used = 0;
    arena.base = malloc(FUZZ_ARENA);

    if (arena.base == NULL) {
        return 0;
    }

    alloc.alloc = fuzz_alloc;
    alloc.ctx = &arena;

    if (sbx_json_bind(data, size, fuzz_fields, &target, &alloc, &e) == 0) {
        fuzz_string(&target.string);
        fuzz_string(&target.command.shell);
        fuzz_list(&target.strings);
        fuzz_list(&target.command.argv);
        fuzz_list(&target.network.allow);
        fuzz_list(&target.network.deny);

        for (i = 0; i < target.map.nelts; i++) {
            fuzz_string(&target.map.elts[i].key);
            fuzz_string(&target.map.elts[i].value);
        }

    } else if (e.code != SBX_E_INVALID && e.code != SBX_E_INTERNAL
               && e.code != SBX_E_TOO_LARGE && e.code != SBX_E_UNAVAILABLE)
    {
        abort();
    }

    free(arena.base);

    return 0;
}
