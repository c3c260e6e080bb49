#include "sandbox_quota.h"

#include <stddef.h>
#include <stdio.h>
#include <string.h>


#define FIELD(f)  offsetof(sbx_quota_t, f)
#define TB        ((uint64_t) 1 << 40)

#define ROW(word, what, most)                                                \
    { .name = #word, .json = "quota." #word, .unit = what,                   \
      .offset = FIELD(word), .max = most, .fallback = SBX_UNSET,             \
      .cap = SBX_UNSET, .unlimited_ok = 1 }

const sbx_limit_t  sbx_quota_table[] = {
    ROW(sessions, SBX_UNIT_COUNT, 1000000),
    ROW(memory, SBX_UNIT_BYTES, 4096 * TB),
    ROW(cpus, SBX_UNIT_MILLI, 1000000000),
    ROW(disk, SBX_UNIT_BYTES, 4096 * TB),
    ROW(commands, SBX_UNIT_COUNT, 1000000),
    { .name = NULL }
};


static const char  *sbx_scope_words[] = { "node", "organization", "user" };


const char *
sbx_scope_word(sbx_scope_t scope)
{
    return scope < SBX_SCOPES ? sbx_scope_words[scope] : "";
}


const sbx_limit_t *
sbx_quota_find(const char *name, size_t len, int json)
{
    const char         *s;
    const sbx_limit_t  *row;

    for (row = sbx_quota_table; row->name != NULL; row++) {
        s = json ? row->json : row->name;

        if (strlen(s) == len && memcmp(s, name, len) == 0) {
            return row;
        }
    }

    return NULL;
}


uint64_t *
sbx_quota_field(const sbx_quota_t *q, const sbx_limit_t *row)
{
    return (uint64_t *) ((uintptr_t) q + row->offset);
}


void
sbx_quota_clear(sbx_quota_t *q)
{
    /* every byte set makes every field SBX_UNSET */

    memset(q, 0xff, sizeof(sbx_quota_t));
}


int
sbx_quota_ok(const sbx_quota_t *q)
{
    uint64_t            value;
    const sbx_limit_t  *row;

    for (row = sbx_quota_table; row->name != NULL; row++) {
        value = *sbx_quota_field(q, row);

        if (value < SBX_UNLIMITED && value > row->max) {
            return 0;
        }
    }

    return 1;
}


const sbx_limit_t *
sbx_setting_row(unsigned i)
{
    if (i < SBX_SETTING_QUOTAS || i >= SBX_SETTINGS) {
        return NULL;
    }

    return &sbx_quota_table[(i - SBX_SETTING_QUOTAS) % SBX_QUOTA_RESOURCES];
}


void
sbx_setting_name(unsigned i, char name[48])
{
    const sbx_limit_t  *row;

    row = sbx_setting_row(i);

    if (row == NULL) {
        (void) snprintf(name, 48, "require_isolation");
        return;
    }

    (void) snprintf(name, 48, "quotas.%s.%s",
                    sbx_scope_word((i - SBX_SETTING_QUOTAS)
                                   / SBX_QUOTA_RESOURCES), row->name);
}
