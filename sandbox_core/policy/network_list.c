/* Lists of rules: as records of bytes, and what they say. */

#include "network_class.h"

#include <string.h>


static int sbx_network_fits(const sbx_network_rule_t *rule,
    const uint8_t address[16]);
static sbx_network_say_t sbx_network_settle(const sbx_network_list_t *list,
    int allowed, int denied);


int
sbx_network_next(const void *rules, size_t size, size_t *at, char *type,
    const char **text, sbx_network_rule_t *rule)
{
    size_t       left, len;
    const char  *p;

    if (*at >= size) {
        return (*at == size) ? 0 : -1;
    }

    p = (const char *) rules + *at;
    left = size - *at - 1;
    len = strnlen(p + 1, left);

    if (len == left) {
        return -1;
    }

    switch (*p) {

    case 'a':
    case 'd':
        if (rule != NULL) {
            if (sbx_network_rule_parse(p + 1, len, rule, NULL) != 0) {
                return -1;
            }

            rule->deny = (*p == 'd');
        }

        break;

    case 'f':
        if (*at != 0 || len != 0) {
            return -1;
        }

        if (rule != NULL) {
            memset(rule, 0, sizeof(sbx_network_rule_t));
        }

        break;

    default:
        return -1;
    }

    *type = *p;
    *text = p + 1;
    *at += len + 2;

    return 1;
}


int
sbx_network_check(const void *rules, size_t size, sbx_error_t *e)
{
    int                  rc;
    char                 type, buf[SBX_NETWORK_TEXT_MAX];
    size_t               at;
    unsigned             n;
    const char          *text;
    sbx_network_rule_t   rule;

    if (size > SBX_NETWORK_SIZE) {
        return sbx_error(e, 0, SBX_E_INVALID, "network rules are too long");
    }

    at = 0;
    n = 0;

    while ((rc = sbx_network_next(rules, size, &at, &type, &text, &rule))
           == 1)
    {
        if (type == 'f') {
            continue;
        }

        (void) sbx_network_rule_print(&rule, buf);

        if (strcmp(buf, text) != 0) {
            return sbx_error(e, 0, SBX_E_INVALID,
                             "a network rule is not in its one form");
        }

        if (++n > SBX_NETWORK_RULES_MAX) {
            return sbx_error(e, 0, SBX_E_INVALID,
                             "there are more than %d network rules",
                             SBX_NETWORK_RULES_MAX);
        }
    }

    if (rc == -1) {
        return sbx_error(e, 0, SBX_E_INVALID, "network rules are malformed");
    }

    return 0;
}


int
sbx_network_list(const void *rules, size_t size, sbx_network_list_t *list,
    sbx_error_t *e)
{
    int                  rc;
    char                 type;
    size_t               at, n;
    const char          *text;
    sbx_network_rule_t   rule;

    memset(list, 0, sizeof(sbx_network_list_t));

    at = 0;
    n = 0;

    while (sbx_network_next(rules, size, &at, &type, &text, NULL) == 1) {
        n++;
    }

    if (n == 0) {
        return 0;
    }

    list->rules = calloc(n, sizeof(sbx_network_rule_t));

    if (list->rules == NULL) {
        return sbx_error(e, 0, SBX_E_UNAVAILABLE, "out of memory");
    }

    at = 0;

    while ((rc = sbx_network_next(rules, size, &at, &type, &text, &rule))
           == 1)
    {
        if (type == 'f') {
            list->allow_first = 1;
            continue;
        }

        list->allows |= !rule.deny && !list->allow_first;
        list->rules[list->n++] = rule;
    }

    if (rc == -1) {
        sbx_network_list_free(list);

        return sbx_error(e, 0, SBX_E_INVALID, "network rules are malformed");
    }

    return 0;
}


void
sbx_network_list_free(sbx_network_list_t *list)
{
    free(list->rules);
    memset(list, 0, sizeof(sbx_network_list_t));
}


sbx_network_say_t
sbx_network_say_host(const sbx_network_list_t *list, const char *host,
    unsigned port)
{
    int                        said, allowed, denied;
    size_t                     i;
    const sbx_network_rule_t  *rule;

    allowed = 0;
    denied = 0;

    for (i = 0; i < list->n; i++) {
        rule = &list->rules[i];

        /* where any port will do, one that is denied does not matter */

        if (rule->port != 0 && rule->port != port
            && (port != 0 || rule->deny))
        {
            continue;
        }

        said = rule->kind == SBX_NETWORK_ANY
               || (rule->kind == SBX_NETWORK_HOST
                   && strcmp(host, rule->host) == 0)
               || (rule->kind == SBX_NETWORK_BELOW
                   && sbx_network_below(host, rule->host));

        allowed |= said && !rule->deny;
        denied |= said && rule->deny;
    }

    return sbx_network_settle(list, allowed, denied);
}


sbx_network_say_t
sbx_network_say_address(const sbx_network_list_t *list,
    const uint8_t address[16], unsigned port)
{
    int                        said, public, allowed, denied;
    size_t                     i;
    const sbx_network_rule_t  *rule;

    public = (sbx_network_class(address) == SBX_NETWORK_PUBLIC);
    allowed = 0;
    denied = 0;

    for (i = 0; i < list->n; i++) {
        rule = &list->rules[i];

        if (rule->port != 0 && rule->port != port
            && (port != 0 || rule->deny))
        {
            continue;
        }

        /* what is denied as a whole is denied, be it public or not */

        said = (rule->kind == SBX_NETWORK_ANY && (public || rule->deny))
               || (rule->kind == SBX_NETWORK_NET
                   && sbx_network_fits(rule, address));

        allowed |= said && !rule->deny;
        denied |= said && rule->deny;
    }

    return sbx_network_settle(list, allowed, denied);
}


static int
sbx_network_fits(const sbx_network_rule_t *rule, const uint8_t address[16])
{
    return sbx_network_same(address, rule->address, rule->bits)
           && sbx_network_v4(address, 128)
              == sbx_network_v4(rule->address, rule->bits);
}


static sbx_network_say_t
sbx_network_settle(const sbx_network_list_t *list, int allowed, int denied)
{
    if (denied && !(allowed && list->allow_first)) {
        return SBX_NETWORK_DENIED;
    }

    return allowed ? SBX_NETWORK_ALLOWED : SBX_NETWORK_SILENT;
}


int
sbx_network_means(const sbx_network_list_t *list, const uint8_t address[16],
    unsigned port)
{
    size_t                     i;
    unsigned                   bits;
    sbx_network_class_t        class;
    const sbx_network_rule_t  *rule;

    bits = sbx_network_special(address, 128, &class);

    for (i = 0; i < list->n; i++) {
        rule = &list->rules[i];

        if (rule->kind == SBX_NETWORK_NET && !rule->deny
            && rule->bits >= bits
            && (rule->port == 0 || rule->port == port || port == 0)
            && sbx_network_fits(rule, address))
        {
            return 1;
        }
    }

    return 0;
}


const char *
sbx_refused_word(unsigned reason)
{
    static const char  *words[SBX_REFUSED_REASONS] = {
        [SBX_REFUSED_RULE]     = "rule",
        [SBX_REFUSED_ADDRESS]  = "address",
        [SBX_REFUSED_NAME]     = "name",
        [SBX_REFUSED_HIDDEN]   = "hidden",
        [SBX_REFUSED_QUERY]    = "query",
        [SBX_REFUSED_LIMIT]    = "limit",
        [SBX_REFUSED_PROTOCOL] = "protocol"
    };

    return (reason < SBX_REFUSED_REASONS) ? words[reason] : "unknown";
}
