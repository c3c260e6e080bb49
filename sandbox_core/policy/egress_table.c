/*
 * The operator's table: what the sessions of each template may reach at most,
 * and what a session asks for against it.
 */

#include "network_class.h"

#include "sandbox_wire.h"

#include <arpa/inet.h>
#include <string.h>


#define SBX_EGRESS_HEADER_MAX   127       /* bytes of a header's name */
#define SBX_EGRESS_TOLD_MAX     80        /* of a rule in a text */


/* How many strings a record of a type has. */

static const struct {
    char      type;
    unsigned  n;
} sbx_egress_types[] = {
    { SBX_EGRESS_TEMPLATE,   1 },
    { SBX_EGRESS_ALLOW,      1 },
    { SBX_EGRESS_DENY,       1 },
    { SBX_EGRESS_PRIVATE,    0 },
    { SBX_EGRESS_HEADER,     3 },
    { SBX_EGRESS_TLS_HEADER, 3 },
    { SBX_EGRESS_RESOLVER,   1 },
    { SBX_EGRESS_CA,         1 }
};


/* What is counted while a table is checked. */
typedef struct {
    unsigned   headers;
    unsigned   cas;
    unsigned   privates;          /* of the template */
    unsigned   templates;
} sbx_egress_seen_t;


static int sbx_egress_check_row(const void *table, size_t size,
    const sbx_egress_row_t *row, sbx_egress_seen_t *seen, sbx_error_t *e);
static int sbx_egress_check_template(const void *table, size_t size,
    const sbx_egress_row_t *row, sbx_error_t *e);
static int sbx_egress_check_rule(const char *text, sbx_error_t *e);
static int sbx_egress_check_header(const sbx_egress_row_t *row,
    sbx_error_t *e);
static int sbx_egress_row_is(const sbx_egress_row_t *row, char type,
    const char *text);
static int sbx_egress_section(const void *table, size_t size,
    const char *template, sbx_egress_row_t *row);
static int sbx_egress_row_of(const void *table, size_t size,
    sbx_egress_row_t *row);
static int sbx_egress_has(const void *table, size_t size,
    const char *template, char type);
static const char *sbx_egress_refuses(const void *table, size_t size,
    const char *template, const sbx_network_rule_t *rule);
static int sbx_egress_covers(const sbx_network_rule_t *rule,
    const sbx_network_rule_t *outer, int private);


int
sbx_egress_row_next(const void *table, size_t size, sbx_egress_row_t *row)
{
    size_t       at, len;
    unsigned     i, k;
    const char  *p;

    at = row->next;

    if (at >= size) {
        return (at == size) ? 0 : -1;
    }

    p = table;

    for (i = 0; i < sbx_nelts(sbx_egress_types); i++) {
        if (p[at] == sbx_egress_types[i].type) {
            break;
        }
    }

    if (i == sbx_nelts(sbx_egress_types)) {
        return -1;
    }

    memset(row, 0, sizeof(sbx_egress_row_t));
    row->type = p[at++];

    for (k = 0; k < sbx_egress_types[i].n; k++) {
        len = strnlen(p + at, size - at);

        if (len == size - at) {
            return -1;
        }

        row->text[k] = p + at;
        at += len + 1;
    }

    row->next = at;

    return 1;
}


int
sbx_egress_table_check(const void *table, size_t size, sbx_error_t *e)
{
    int                rc;
    sbx_egress_row_t   row;
    sbx_egress_seen_t  seen;

    if (size > SBX_EGRESS_SIZE) {
        return sbx_error(e, 0, SBX_E_INVALID, "the egress table is too long");
    }

    memset(&row, 0, sizeof(sbx_egress_row_t));
    memset(&seen, 0, sizeof(sbx_egress_seen_t));

    while ((rc = sbx_egress_row_next(table, size, &row)) == 1) {
        if (sbx_egress_check_row(table, size, &row, &seen, e) != 0) {
            return -1;
        }
    }

    if (rc == -1) {
        return sbx_error(e, 0, SBX_E_INVALID, "the egress table is malformed");
    }

    return 0;
}


static int
sbx_egress_check_row(const void *table, size_t size,
    const sbx_egress_row_t *row, sbx_egress_seen_t *seen, sbx_error_t *e)
{
    sbx_network_rule_t  rule;

    switch (row->type) {

    case SBX_EGRESS_TEMPLATE:
        seen->templates++;
        seen->privates = 0;
        return sbx_egress_check_template(table, size, row, e);

    case SBX_EGRESS_ALLOW:
    case SBX_EGRESS_DENY:
        return sbx_egress_check_rule(row->text[0], e);

    case SBX_EGRESS_PRIVATE:
        if (seen->privates++ == 0) {
            return 0;
        }

        break;

    case SBX_EGRESS_HEADER:
    case SBX_EGRESS_TLS_HEADER:
        if (++seen->headers > SBX_EGRESS_VALUES_MAX) {
            return sbx_error(e, 0, SBX_E_INVALID,
                             "the egress has more than %d headers",
                             SBX_EGRESS_VALUES_MAX);
        }

        return sbx_egress_check_header(row, e);

    case SBX_EGRESS_RESOLVER:
        if (seen->templates == 0
            && sbx_egress_resolver(row->text[0], strlen(row->text[0]), &rule,
                                   e)
               == 0)
        {
            return 0;
        }

        break;

    case SBX_EGRESS_CA:
        if (seen->templates == 0 && seen->cas++ == 0
            && row->text[0][0] == '/')
        {
            return 0;
        }

        break;

    default:
        break;
    }

    return sbx_error(e, 0, SBX_E_INVALID,
                     "the egress table has a record of '%c' that does not "
                     "belong there", row->type);
}


static int
sbx_egress_check_template(const void *table, size_t size,
    const sbx_egress_row_t *row, sbx_error_t *e)
{
    size_t            len;
    sbx_egress_row_t  other;

    len = strlen(row->text[0]);

    if (len == 0 || len >= SBX_TEMPLATE_MAX) {
        return sbx_error(e, 0, SBX_E_INVALID,
                         "the egress table has no name for a template");
    }

    memset(&other, 0, sizeof(sbx_egress_row_t));

    while (sbx_egress_row_next(table, size, &other) == 1
           && other.next < row->next)
    {
        if (sbx_egress_row_is(&other, SBX_EGRESS_TEMPLATE, row->text[0])) {
            return sbx_error(e, 0, SBX_E_INVALID,
                             "the egress table has a template twice");
        }
    }

    return 0;
}


static int
sbx_egress_check_rule(const char *text, sbx_error_t *e)
{
    char                buf[SBX_NETWORK_TEXT_MAX];
    sbx_network_rule_t  rule;

    if (sbx_network_rule_parse(text, strlen(text), &rule, e) != 0) {
        return -1;
    }

    (void) sbx_network_rule_print(&rule, buf);

    if (strcmp(buf, text) != 0) {
        return sbx_error(e, 0, SBX_E_INVALID,
                         "a rule of the egress is not in its one form");
    }

    return 0;
}


static int
sbx_egress_check_header(const sbx_egress_row_t *row, sbx_error_t *e)
{
    char  host[SBX_NETWORK_HOST_MAX + 1];

    if (!sbx_network_host_ok(row->text[0], strlen(row->text[0]), host)
        || strcmp(host, row->text[0]) != 0)
    {
        return sbx_error(e, 0, SBX_E_INVALID,
                         "a header of the egress is for no host's name");
    }

    if (!sbx_egress_header_ok(row->text[1], strlen(row->text[1]))) {
        return sbx_error(e, 0, SBX_E_INVALID,
                         "a header of the egress has a name that is none, or "
                         "one that HTTP itself needs");
    }

    if (row->text[2][0] != '/') {
        return sbx_error(e, 0, SBX_E_INVALID,
                         "a header of the egress has no file");
    }

    return 0;
}


int
sbx_egress_header_ok(const char *s, size_t len)
{
    size_t    i;
    unsigned  k;

    /* of the connection, and what says where a request ends */

    static const char  *kept[] = {
        "Host", "Content-Length", "Transfer-Encoding", "Connection",
        "Keep-Alive", "Proxy-Connection", "TE", "Trailer", "Upgrade",
        "Expect"
    };

    if (len == 0 || len > SBX_EGRESS_HEADER_MAX) {
        return 0;
    }

    for (i = 0; i < len; i++) {
        if ((s[i] < 'a' || s[i] > 'z') && (s[i] < 'A' || s[i] > 'Z')
            && (s[i] < '0' || s[i] > '9')
            && (s[i] == '\0' || strchr("!#$%&'*+-.^_`|~", s[i]) == NULL))
        {
            return 0;
        }
    }

    for (k = 0; k < sbx_nelts(kept); k++) {
        if (len == strlen(kept[k]) && strncasecmp(s, kept[k], len) == 0) {
            return 0;
        }
    }

    return 1;
}


int
sbx_egress_resolver(const char *s, size_t len, sbx_network_rule_t *rule,
    sbx_error_t *e)
{
    if (sbx_network_rule_parse(s, len, rule, e) != 0) {
        return -1;
    }

    if (rule->kind != SBX_NETWORK_NET || rule->bits != 128) {
        return sbx_error(e, 0, SBX_E_INVALID, "is no address of a resolver");
    }

    return 0;
}


/*
 * ---- what a template has -------------------------------------------------
 */

static int
sbx_egress_row_is(const sbx_egress_row_t *row, char type, const char *text)
{
    return row->type == type && row->text[0] != NULL
           && strcmp(row->text[0], text) == 0;
}


/* Puts row before the template's first record, or the first of all. */

static int
sbx_egress_section(const void *table, size_t size, const char *template,
    sbx_egress_row_t *row)
{
    memset(row, 0, sizeof(sbx_egress_row_t));

    while (sbx_egress_row_next(table, size, row) == 1) {
        if (sbx_egress_row_is(row, SBX_EGRESS_TEMPLATE, template)) {
            return 1;
        }
    }

    memset(row, 0, sizeof(sbx_egress_row_t));

    return 0;
}


/* The next of the same template. */

static int
sbx_egress_row_of(const void *table, size_t size, sbx_egress_row_t *row)
{
    return sbx_egress_row_next(table, size, row) == 1
           && row->type != SBX_EGRESS_TEMPLATE;
}


static int
sbx_egress_has(const void *table, size_t size, const char *template,
    char type)
{
    sbx_egress_row_t  row;

    (void) sbx_egress_section(table, size, template, &row);

    while (sbx_egress_row_of(table, size, &row)) {
        if (row.type == type) {
            return 1;
        }
    }

    return 0;
}


int
sbx_egress_table_grants(const void *table, size_t size, const char *template)
{
    return sbx_egress_has(table, size, template, SBX_EGRESS_ALLOW);
}


int
sbx_egress_table_tls(const void *table, size_t size, const char *template)
{
    return sbx_egress_has(table, size, template, SBX_EGRESS_TLS_HEADER);
}


/*
 * ---- what a session asks for ---------------------------------------------
 */

int
sbx_network_narrows(const void *table, size_t size, const char *template,
    sbx_network_mode_t mode, const void *rules, size_t rules_size,
    const char *at, sbx_error_t *e)
{
    int                  rc;
    char                 type;
    size_t               next;
    unsigned             n;
    const char          *text, *why;
    sbx_network_rule_t   rule;

    if (mode == SBX_NETWORK_NONE) {
        return 0;
    }

    if (!sbx_egress_table_grants(table, size, template)) {
        return sbx_error(e, 0, SBX_E_MANIFEST,
                         "%s: template \"%.64s\" is given no network by "
                         "configuration", at, template);
    }

    if (mode == SBX_NETWORK_ALL) {
        return 0;
    }

    next = 0;
    n = 0;

    while ((rc = sbx_network_next(rules, rules_size, &next, &type, &text,
                                  &rule))
           == 1)
    {
        if (type != 'a') {
            continue;
        }

        why = sbx_egress_refuses(table, size, template, &rule);

        if (why != NULL) {
            return sbx_error(e, 0, SBX_E_MANIFEST, "%s/allow/%u: \"%.*s\" %s",
                             at, n, SBX_EGRESS_TOLD_MAX, text, why);
        }

        n++;
    }

    if (rc == -1) {
        return sbx_error(e, 0, SBX_E_INVALID, "network rules are malformed");
    }

    return 0;
}


static const char *
sbx_egress_refuses(const void *table, size_t size, const char *template,
    const sbx_network_rule_t *rule)
{
    int                 private, covered;
    sbx_egress_row_t    row;
    sbx_network_rule_t  outer;

    private = sbx_egress_has(table, size, template, SBX_EGRESS_PRIVATE);
    covered = 0;

    (void) sbx_egress_section(table, size, template, &row);

    while (sbx_egress_row_of(table, size, &row)) {
        if ((row.type != SBX_EGRESS_ALLOW && row.type != SBX_EGRESS_DENY)
            || sbx_network_rule_parse(row.text[0], strlen(row.text[0]),
                                      &outer, NULL)
               != 0)
        {
            continue;
        }

        if (row.type == SBX_EGRESS_ALLOW) {
            covered |= sbx_egress_covers(rule, &outer, private);

        } else if (sbx_network_rule_within(rule, &outer)) {
            return "is denied by configuration";
        }
    }

    return covered ? NULL : "is not within what configuration allows";
}


/* Special addresses are allowed by a rule that means them (or all are as
 * others): one that happens to have them in it does not do. */

static int
sbx_egress_covers(const sbx_network_rule_t *rule,
    const sbx_network_rule_t *outer, int private)
{
    unsigned             bits;
    sbx_network_rule_t   any;
    sbx_network_class_t  class;

    if (rule->kind != SBX_NETWORK_NET) {
        return sbx_network_rule_within(rule, outer);
    }

    bits = sbx_network_special(rule->address, rule->bits, &class);

    if (private && class == SBX_NETWORK_PRIVATE) {
        bits = 0;
    }

    if (outer->kind == SBX_NETWORK_ANY && bits == 0) {
        any = *rule;
        any.kind = SBX_NETWORK_ANY;

        return sbx_network_rule_within(&any, outer);
    }

    return sbx_network_rule_within(rule, outer) && outer->bits >= bits;
}


int
sbx_network_open(const void *table, size_t size, const char *template,
    sbx_network_mode_t mode, const void *rules, size_t rules_size)
{
    int                  all;
    char                 type;
    size_t               next;
    const char          *text;
    sbx_egress_row_t     row;

    if (mode == SBX_NETWORK_NONE) {
        return 0;
    }

    all = 0;
    (void) sbx_egress_section(table, size, template, &row);

    while (sbx_egress_row_of(table, size, &row)) {
        if (row.type == SBX_EGRESS_DENY) {
            return 0;
        }

        all |= sbx_egress_row_is(&row, SBX_EGRESS_ALLOW, "*");
    }

    if (!all || mode == SBX_NETWORK_ALL) {
        return all;
    }

    /* as long as no rule of its own is about less */

    next = 0;

    while (sbx_network_next(rules, rules_size, &next, &type, &text, NULL)
           == 1)
    {
        if (type == 'd' || (type == 'a' && strcmp(text, "*") != 0)) {
            return 0;
        }
    }

    return 1;
}
