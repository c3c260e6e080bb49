#include "sandbox_rules.h"

#include <string.h>

#include "sandbox_util.h"


#define SBX_RULE_COMPONENT_MAX   255


/* In the order in which they are applied: what comes later wins. */

static const struct {
    char         kind;
    const char  *list;
} sbx_rule_kinds[SBX_RULE_KINDS] = {
    { SBX_RULE_WRITABLE,   "writable" },
    { SBX_RULE_BIND,       "binds" },
    { SBX_RULE_DENY_WRITE, "deny_write" },
    { SBX_RULE_DENY_READ,  "deny_read" }
};

/* The kernel's; nothing there can be a rule's. */

static const char  *sbx_rule_kernel[] = { "/proc", "/sys", "/dev" };


static int sbx_rules_check_one(const sbx_rule_t *rule, const void *rules,
    sbx_error_t *e);


void
sbx_rule_first(sbx_rule_t *rule, const void *rules, size_t size)
{
    memset(rule, 0, sizeof(sbx_rule_t));
    rule->next = (rules == NULL) ? "" : rules;
    rule->end = rule->next + size;
}


int
sbx_rule_next(sbx_rule_t *rule)
{
    size_t       len;
    unsigned     i;
    const char  *p;

    if (rule->next == rule->end) {
        return 0;
    }

    for (i = 0; i < SBX_RULE_KINDS; i++) {
        if (*rule->next == sbx_rule_kinds[i].kind) {
            break;
        }
    }

    p = rule->next + 1;
    len = strnlen(p, (size_t) (rule->end - p));

    if (i == SBX_RULE_KINDS || len == (size_t) (rule->end - p)) {
        return -1;
    }

    rule->order = i;
    rule->index = rule->count[i]++;
    rule->list = sbx_rule_kinds[i].list;
    rule->text = p;
    rule->next = p + len + 1;

    return 1;
}


int
sbx_rule_refuse(const sbx_rule_t *rule, int err, const char *why,
    sbx_error_t *e)
{
    return sbx_error(e, err, SBX_E_MANIFEST,
                     "/manifest/filesystem/%s/%u: %s", rule->list,
                     rule->index, why);
}


const char *
sbx_rule_path(const char *s, size_t len, char path[SBX_PATH_MAX])
{
    size_t       i, n, m;
    const char  *p, *end, *slash;

    if (len == 0) {
        return "is empty";
    }

    for (i = 0; i < len; i++) {
        if ((unsigned char) s[i] < ' ' || s[i] == 0x7f) {
            return "holds a control character";
        }
    }

    n = 0;
    end = s + len;

    if (s[0] != '/') {
        n = strlen(SBX_WORKSPACE);
        memcpy(path, SBX_WORKSPACE, n);
    }

    for (p = s; p < end; p += m) {
        slash = memchr(p, '/', (size_t) (end - p));
        m = (size_t) ((slash == NULL ? end : slash) - p);

        if (m == 0) {
            m = 1;
            continue;
        }

        if (m == 1 && p[0] == '.') {
            continue;
        }

        if (m == 2 && p[0] == '.' && p[1] == '.') {
            return "holds \"..\", which links could give another meaning";
        }

        /* room for a "/" before and one at the end, and the NUL */

        if (m > SBX_RULE_COMPONENT_MAX || n + m + 3 > SBX_PATH_MAX) {
            return "is too long, or a name in it is";
        }

        path[n++] = '/';
        memcpy(path + n, p, m);
        n += m;
    }

    path[n] = '\0';

    if (n == 0) {
        return "is the root";
    }

    for (i = 0; i < sbx_nelts(sbx_rule_kernel); i++) {
        if (sbx_rule_below(path, sbx_rule_kernel[i])) {
            return "is the kernel's: /proc, /sys and /dev take no rules";
        }
    }

    if (end[-1] == '/') {
        path[n++] = '/';
        path[n] = '\0';
    }

    return NULL;
}


int
sbx_rule_below(const char *path, const char *dir)
{
    size_t  len;

    len = strlen(dir);

    return strncmp(path, dir, len) == 0
           && (path[len] == '/' || path[len] == '\0');
}


int
sbx_rules_check(const void *rules, size_t size, sbx_error_t *e)
{
    int          rc;
    size_t       names;
    sbx_rule_t   rule;
    const char  *p;

    names = 0;
    sbx_rule_first(&rule, rules, size);

    while ((rc = sbx_rule_next(&rule)) == 1) {
        if (sbx_rules_check_one(&rule, rules, e) != 0) {
            return -1;
        }

        for (p = rule.text; (p = strchr(p, '/')) != NULL; p++) {
            names++;
        }
    }

    if (names > SBX_RULES_NAMES_MAX) {
        return sbx_error(e, 0, SBX_E_MANIFEST,
                         "/manifest/filesystem: its paths have more than %d "
                         "names", SBX_RULES_NAMES_MAX);
    }

    if (rc == -1) {
        return sbx_error(e, 0, SBX_E_INVALID, "file rules are malformed");
    }

    return 0;
}


static int
sbx_rules_check_one(const sbx_rule_t *rule, const void *rules,
    sbx_error_t *e)
{
    char         path[SBX_PATH_MAX];
    sbx_rule_t   other;
    const char  *why;

    if (rule->index >= SBX_RULES_KIND_MAX) {
        return sbx_error(e, 0, SBX_E_MANIFEST,
                         "/manifest/filesystem/%s: holds more than %d",
                         rule->list, SBX_RULES_KIND_MAX);
    }

    if (sbx_rule_kinds[rule->order].kind != SBX_RULE_BIND) {
        why = sbx_rule_path(rule->text, strlen(rule->text), path);

        if (why != NULL) {
            return sbx_rule_refuse(rule, 0, why, e);
        }

        if (strcmp(path, rule->text) != 0) {
            return sbx_error(e, 0, SBX_E_INVALID,
                             "a file rule is not in its one form");
        }

        return 0;
    }

    if (!sbx_bind_name_ok(rule->text, strlen(rule->text))) {
        return sbx_rule_refuse(rule, 0, SBX_BIND_REFUSED, e);
    }

    sbx_rule_first(&other, rules, (size_t) (rule->text - 1
                                            - (const char *) rules));

    while (sbx_rule_next(&other) == 1) {
        if (other.order == rule->order
            && strcmp(other.text, rule->text) == 0)
        {
            return sbx_rule_refuse(rule, 0, "is asked for twice", e);
        }
    }

    return 0;
}


int
sbx_bind_next(const char **table, const char *end, sbx_bind_t *bind)
{
    unsigned     i;
    const char  *p, *nul, *part[2];

    p = *table;

    if (p == end) {
        return 0;
    }

    if (*p != 'r' && *p != 'w') {
        return -1;
    }

    bind->writable = (*p++ == 'w');

    for (i = 0; i < 2; i++) {
        nul = memchr(p, '\0', (size_t) (end - p));

        if (nul == NULL) {
            return -1;
        }

        part[i] = p;
        p = nul + 1;
    }

    bind->name = part[0];
    bind->path = part[1];
    bind->tenants = p;

    do {
        nul = memchr(p, '\0', (size_t) (end - p));

        if (nul == NULL) {
            return -1;
        }

        i = (nul == p);
        p = nul + 1;

    } while (!i);

    *table = p;

    return 1;
}


int
sbx_bind_find(const char *table, size_t size, const char *name,
    const char *tenant, sbx_bind_t *bind)
{
    const char  *p, *t;

    p = table;

    while (sbx_bind_next(&p, table + size, bind) == 1) {

        if (strcmp(bind->name, name) != 0) {
            continue;
        }

        if (bind->tenants[0] == '\0') {
            return 0;
        }

        for (t = bind->tenants; *t != '\0'; t += strlen(t) + 1) {
            if (strcmp(t, tenant) == 0) {
                return 0;
            }
        }

        break;
    }

    return -1;
}


int
sbx_bind_name_ok(const char *s, size_t len)
{
    size_t  i;

    if (len == 0 || len > SBX_BIND_NAME_MAX) {
        return 0;
    }

    for (i = 0; i < len; i++) {
        if ((s[i] >= 'a' && s[i] <= 'z') || (s[i] >= '0' && s[i] <= '9')) {
            continue;
        }

        if (i == 0 || (s[i] != '.' && s[i] != '_' && s[i] != '-')) {
            return 0;
        }
    }

    return 1;
}
