/*
 * Rules of networks: one as a manifest has it, a session's as one process
 * hands them to another, and the operator's table.  The first byte chooses.
 */

#include "sandbox_network.h"

#include <stdlib.h>
#include <string.h>


int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_rule(const char *p, size_t n);
static void check_rules(const char *p, size_t n);
static void check_table(const char *p, size_t n);
static void check_addresses(const char *p, size_t n);
static void check_narrows(const char *p, size_t n);
static void must(int is);


static void (*const checks[])(const char *p, size_t n) = {
    check_rule, check_rules, check_table, check_addresses, check_narrows
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
    checks[data[0] % 5](copy, size - 1);
    free(copy);

    return 0;
}


static void
must(int is)
{
    if (!is) {
        abort();
    }
}


/* What is accepted has one form, which is its own, and is within itself. */

static void
check_rule(const char *p, size_t n)
{
    int                  wide;
    char                 text[SBX_NETWORK_TEXT_MAX], host[256];
    size_t               len;
    sbx_error_t          e;
    sbx_network_rule_t   rule, again, any;
    sbx_network_list_t   list;

    if (sbx_network_host_ok(p, n, host)) {
        must(strlen(host) == n && n <= SBX_NETWORK_HOST_MAX);
        must(sbx_network_rule_parse(p, n, &rule, &e) == 0
             && rule.kind == SBX_NETWORK_HOST
             && strcmp(rule.host, host) == 0);
    }

    (void) sbx_egress_header_ok(p, n);

    if (sbx_network_rule_parse(p, n, &rule, &e) != 0) {
        must(e.code == SBX_E_INVALID);
        return;
    }

    len = sbx_network_rule_print(&rule, text);
    must(len == strlen(text) && len < sizeof(text));
    must(sbx_network_rule_parse(text, len, &again, &e) == 0);
    must(memcmp(&rule, &again, sizeof(rule)) == 0);
    must(sbx_network_rule_within(&rule, &rule));

    memset(&any, 0, sizeof(any));
    any.kind = SBX_NETWORK_ANY;
    wide = sbx_network_rule_within(&rule, &any);
    must(wide || rule.kind == SBX_NETWORK_NET);

    /* a rule of one name or address is about it */

    list.rules = &rule;
    list.n = 1;
    list.allows = 1;
    list.allow_first = 0;

    if (rule.kind == SBX_NETWORK_HOST) {
        must(sbx_network_say_host(&list, rule.host, rule.port)
             == SBX_NETWORK_ALLOWED);
    }

    if (rule.kind == SBX_NETWORK_NET) {
        must(sbx_network_say_address(&list, rule.address, rule.port)
             == SBX_NETWORK_ALLOWED);
        must(rule.bits != 128
             || sbx_network_means(&list, rule.address, rule.port));
    }
}


static void
check_rules(const char *p, size_t n)
{
    char                 type;
    size_t               at;
    sbx_error_t          e;
    const char          *text;
    sbx_network_rule_t   rule;
    sbx_network_list_t   list;

    static const uint8_t  address[16] = { [10] = 0xff, 0xff, 10, 0, 0, 1 };

    if (sbx_network_check(p, n, &e) != 0) {
        must(e.code == SBX_E_INVALID);
        return;
    }

    must(sbx_network_list(p, n, &list, &e) == 0);
    must(list.n <= SBX_NETWORK_RULES_MAX);

    at = 0;

    while (sbx_network_next(p, n, &at, &type, &text, &rule) == 1) {
        must(type != 'f' || list.allow_first);
    }

    /* what was checked is read to its end */

    must(at == n);

    (void) sbx_network_say_host(&list, "www.example.org", 443);
    (void) sbx_network_say_host(&list, "www.example.org", 0);
    (void) sbx_network_say_address(&list, address, 443);
    (void) sbx_network_means(&list, address, 0);
    sbx_network_list_free(&list);
}


static void
check_table(const char *p, size_t n)
{
    int                rc;
    unsigned           i;
    sbx_error_t        e;
    sbx_egress_row_t   row;

    rc = sbx_egress_table_check(p, n, &e);
    must(rc == 0 || e.code == SBX_E_INVALID);

    memset(&row, 0, sizeof(row));

    while (sbx_egress_row_next(p, n, &row) == 1) {
        for (i = 0; i < 3 && row.text[i] != NULL; i++) {
            must(row.text[i] + strlen(row.text[i]) < p + n);
        }
    }

    must(rc != 0 || row.next == n);

    (void) sbx_egress_table_grants(p, n, "base");
    (void) sbx_egress_table_tls(p, n, "x");
    (void) sbx_network_open(p, n, "base", SBX_NETWORK_ALL, "", 0);
}


static void
check_addresses(const char *p, size_t n)
{
    char      text[46];
    uint8_t   address[16];

    if (n < sizeof(address)) {
        return;
    }

    memcpy(address, p, sizeof(address));

    must(sbx_network_class(address) <= SBX_NETWORK_RESERVED);
    must(strlen(sbx_network_address_print(address, text)) < sizeof(text));
}


/* Rules, a newline, a table. */

static void
check_narrows(const char *p, size_t n)
{
    size_t        rules;
    sbx_error_t   e;
    const char   *table;

    table = memmem(p, n, "\n", 1);

    if (table == NULL) {
        return;
    }

    rules = (size_t) (table - p);
    table++;
    n -= rules + 1;

    if (sbx_network_check(p, rules, &e) != 0
        || sbx_egress_table_check(table, n, &e) != 0)
    {
        return;
    }

    if (sbx_network_narrows(table, n, "base", SBX_NETWORK_LISTS, p, rules,
                            "/network", &e)
        == 0)
    {
        must(sbx_egress_table_grants(table, n, "base"));
        return;
    }

    must(e.code == SBX_E_MANIFEST);
    must(strncmp(e.text, "/network", 8) == 0);
}
