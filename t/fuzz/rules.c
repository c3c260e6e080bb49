/*
 * File rules as one process hands them to another, the table of directories
 * that are offered, and the path of one rule as a manifest has it.  The first
 * byte chooses.
 */

#include "sandbox_rules.h"

#include <stdlib.h>
#include <string.h>


int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_rules(const char *p, size_t n);
static void check_binds(const char *p, size_t n);
static void check_path(const char *p, size_t n);


static void (*const checks[])(const char *p, size_t n) = {
    check_rules, check_binds, check_path
};


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
    checks[data[0] % 3](copy, size - 1);
    free(copy);

    return 0;
}


static void
check_rules(const char *p, size_t n)
{
    int          rc;
    size_t       seen;
    sbx_rule_t   rule;
    sbx_error_t  e;

    rc = sbx_rules_check(p, n, &e);

    if (rc != 0) {
        if (e.code != SBX_E_MANIFEST && e.code != SBX_E_INVALID) {
            abort();
        }

        return;
    }

    seen = 0;
    sbx_rule_first(&rule, p, n);

    while ((rc = sbx_rule_next(&rule)) == 1) {
        seen += strlen(rule.text) + 2;
        (void) strlen(rule.list);
    }

    /* what was checked is read to its end */

    if (rc != 0 || seen != n) {
        abort();
    }
}


static void
check_binds(const char *p, size_t n)
{
    const char  *table, *end, *tenant;
    sbx_bind_t   bind;

    table = p;
    end = p + n;

    while (sbx_bind_next(&table, end, &bind) == 1) {
        (void) strlen(bind.name);
        (void) strlen(bind.path);

        for (tenant = bind.tenants; *tenant != '\0';
             tenant += strlen(tenant) + 1)
        {
            if (tenant >= end) {
                abort();
            }
        }
    }

    (void) sbx_bind_find(p, n, "data", "acme", &bind);
}


static void
check_path(const char *p, size_t n)
{
    char  path[SBX_PATH_MAX], again[SBX_PATH_MAX];

    (void) sbx_bind_name_ok(p, n);

    if (sbx_rule_path(p, n, path) != NULL) {
        return;
    }

    /* the one form is its own */

    if (path[0] != '/' || strstr(path, "/../") != NULL
        || strstr(path, "//") != NULL || sbx_rule_below(path, "/proc")
        || sbx_rule_path(path, strlen(path), again) != NULL
        || strcmp(path, again) != 0)
    {
        abort();
    }
}
