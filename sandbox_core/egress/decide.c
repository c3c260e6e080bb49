/*
 * Judgement.  Both lists must allow: the operator's, where nothing is allowed
 * that is not on it, and the session's, which narrows it.  A list speaks of
 * addresses and of names; where its rules of addresses do not allow, a name
 * that the session looked up, and that has the address, may.
 *
 * Before both comes what no list opens by accident: addresses that are not
 * public need a rule that means them, the host's own one that names it.
 */

#include "conn.h"

#include <arpa/inet.h>
#include <string.h>


static int sbx_eg_decide_gate(sbx_eg_session_t *s, const uint8_t address[16],
    unsigned port);
static int sbx_eg_decide_exact(const sbx_network_list_t *list,
    const uint8_t address[16], unsigned port);
static int sbx_eg_decide_embedded(const uint8_t address[16], uint8_t v4[16]);
static sbx_network_say_t sbx_eg_decide_list(const sbx_network_list_t *list,
    const uint8_t *address, unsigned port, const char *host, int private);
static int sbx_eg_decide_any(const sbx_network_list_t *list, unsigned port);
static int sbx_eg_decide_both(sbx_eg_session_t *s, const uint8_t address[16],
    unsigned port, const char *host);
static int sbx_eg_decide_whose(sbx_eg_session_t *s,
    const uint8_t address[16], unsigned port, const char *host, int known,
    sbx_refused_t *why);
static int sbx_eg_decide_nets(const sbx_network_list_t *list);
static int sbx_eg_decide_list_denies(const sbx_network_list_t *list);
static int sbx_eg_decide_list_nets(const sbx_network_list_t *list,
    const uint8_t address[16], unsigned port);
static int sbx_eg_decide_literal(const char *host, uint8_t address[16]);


sbx_eg_verdict_t
sbx_eg_decide(sbx_eg_session_t *s, const uint8_t address[16], unsigned port,
    sbx_refused_t *why)
{
    const char  *name;

    return sbx_eg_decide_by(s, address, port, why, &name);
}


sbx_eg_verdict_t
sbx_eg_decide_by(sbx_eg_session_t *s, const uint8_t address[16],
    unsigned port, sbx_refused_t *why, const char **name)
{
    size_t  at;

    *name = NULL;
    *why = SBX_REFUSED_RULE;

    if (s->mode == SBX_NETWORK_NONE || s->policy == NULL) {
        return SBX_EG_REFUSE;
    }

    if (!sbx_eg_decide_gate(s, address, port)) {
        *why = SBX_REFUSED_ADDRESS;
        return SBX_EG_REFUSE;
    }

    if (sbx_eg_decide_both(s, address, port, NULL)) {
        return SBX_EG_ALLOW;
    }

    for (at = 0; /* void */ ; /* void */ ) {
        *name = sbx_eg_names_next(s, address, &at);

        if (*name == NULL) {
            return SBX_EG_REFUSE;
        }

        if (sbx_eg_decide_both(s, address, port, *name)) {
            return SBX_EG_BY_NAME;
        }
    }
}


/* 1: a list may allow it.  port 0: some port. */

static int
sbx_eg_decide_gate(sbx_eg_session_t *s, const uint8_t address[16],
    unsigned port)
{
    uint8_t              v4[16];
    sbx_egress_t        *eg;
    sbx_network_class_t  class;

    eg = s->egress;

    if (sbx_eg_addresses_own(eg, address)
        || (sbx_eg_decide_embedded(address, v4)
            && sbx_eg_addresses_own(eg, v4)))
    {
        return sbx_eg_decide_exact(&s->policy->rules, address, port);
    }

    class = sbx_network_class(address);

    return class == SBX_NETWORK_PUBLIC
           || (class == SBX_NETWORK_PRIVATE && s->policy->private)
           || sbx_network_means(&s->policy->rules, address, port);
}


static int
sbx_eg_decide_exact(const sbx_network_list_t *list,
    const uint8_t address[16], unsigned port)
{
    size_t                     i;
    const sbx_network_rule_t  *rule;

    for (i = 0; i < list->n; i++) {
        rule = &list->rules[i];

        if (rule->kind == SBX_NETWORK_NET && !rule->deny && rule->bits == 128
            && (rule->port == 0 || port == 0 || rule->port == port)
            && memcmp(rule->address, address, 16) == 0)
        {
            return 1;
        }
    }

    return 0;
}


/* What a translator on the way would make of it (NAT64, 6to4). */

static int
sbx_eg_decide_embedded(const uint8_t address[16], uint8_t v4[16])
{
    unsigned  from;

    static const uint8_t  nat64[12] = { 0x00, 0x64, 0xff, 0x9b };
    static const uint8_t  sixto4[2] = { 0x20, 0x02 };
    static const uint8_t  compatible[12];

    if (memcmp(address, nat64, 12) == 0
        || memcmp(address, compatible, 12) == 0)
    {
        from = 12;

    } else if (memcmp(address, sixto4, 2) == 0) {
        from = 2;

    } else {
        return 0;
    }

    memset(v4, 0, 10);
    memset(v4 + 10, 0xff, 2);
    memcpy(v4 + 12, address + from, 4);

    return 1;
}


/* address and host may be NULL. */

static sbx_network_say_t
sbx_eg_decide_list(const sbx_network_list_t *list, const uint8_t *address,
    unsigned port, const char *host, int private)
{
    sbx_network_say_t  by_address, by_host;

    by_address = SBX_NETWORK_SILENT;
    by_host = SBX_NETWORK_SILENT;

    if (address != NULL) {
        by_address = sbx_network_say_address(list, address, port);

        if (by_address == SBX_NETWORK_SILENT && private
            && sbx_network_class(address) == SBX_NETWORK_PRIVATE
            && sbx_eg_decide_any(list, port))
        {
            by_address = SBX_NETWORK_ALLOWED;
        }
    }

    if (host != NULL) {
        by_host = sbx_network_say_host(list, host, port);
    }

    if ((by_address == SBX_NETWORK_DENIED || by_host == SBX_NETWORK_DENIED)
        && !(list->allow_first
             && (by_address == SBX_NETWORK_ALLOWED
                 || by_host == SBX_NETWORK_ALLOWED)))
    {
        return SBX_NETWORK_DENIED;
    }

    return by_address == SBX_NETWORK_ALLOWED ? by_address : by_host;
}


static int
sbx_eg_decide_any(const sbx_network_list_t *list, unsigned port)
{
    size_t                     i;
    const sbx_network_rule_t  *rule;

    for (i = 0; i < list->n; i++) {
        rule = &list->rules[i];

        if (rule->kind == SBX_NETWORK_ANY && !rule->deny
            && (rule->port == 0 || port == 0 || rule->port == port))
        {
            return 1;
        }
    }

    return 0;
}


/* 1: both lists allow. */

static int
sbx_eg_decide_both(sbx_eg_session_t *s, const uint8_t address[16],
    unsigned port, const char *host)
{
    int                private;
    sbx_network_say_t  say;

    private = s->policy->private;

    if (sbx_eg_decide_list(&s->policy->rules, address, port, host, private)
        != SBX_NETWORK_ALLOWED)
    {
        return 0;
    }

    if (s->mode != SBX_NETWORK_LISTS) {
        return 1;
    }

    say = sbx_eg_decide_list(&s->rules, address, port, host, private);

    return say == SBX_NETWORK_ALLOWED
           || (say == SBX_NETWORK_SILENT && !s->rules.allows);
}


int
sbx_eg_decide_name(sbx_eg_session_t *s, const char *host, unsigned port,
    sbx_refused_t *why)
{
    sbx_network_say_t  say;

    *why = port == 0 ? SBX_REFUSED_QUERY : SBX_REFUSED_NAME;

    if (s->mode == SBX_NETWORK_NONE || s->policy == NULL) {
        return 1;
    }

    /* where addresses are allowed names are needed to find them */

    say = sbx_network_say_host(&s->policy->rules, host, port);

    if (say == SBX_NETWORK_DENIED
        || (say == SBX_NETWORK_SILENT
            && !sbx_eg_decide_nets(&s->policy->rules)))
    {
        return 1;
    }

    if (s->mode != SBX_NETWORK_LISTS) {
        return 0;
    }

    say = sbx_network_say_host(&s->rules, host, port);

    return say == SBX_NETWORK_DENIED
           || (say == SBX_NETWORK_SILENT && s->rules.allows
               && !sbx_eg_decide_nets(&s->rules));
}


/* 1: it allows addresses. */

static int
sbx_eg_decide_nets(const sbx_network_list_t *list)
{
    size_t  i;

    for (i = 0; i < list->n; i++) {
        if (list->rules[i].kind == SBX_NETWORK_NET && !list->rules[i].deny) {
            return 1;
        }
    }

    return 0;
}


int
sbx_eg_decide_named(sbx_eg_session_t *s, const uint8_t address[16],
    unsigned port, const char *host, sbx_refused_t *why)
{
    int  known;

    known = sbx_eg_names_has(s, host, address);

    return sbx_eg_decide_whose(s, address, port, host, known, why);
}


int
sbx_eg_decide_known(sbx_eg_session_t *s, const uint8_t address[16],
    unsigned port, const char *host, sbx_refused_t *why)
{
    return sbx_eg_decide_whose(s, address, port, host, 1, why);
}


static int
sbx_eg_decide_whose(sbx_eg_session_t *s, const uint8_t address[16],
    unsigned port, const char *host, int known, sbx_refused_t *why)
{
    uint8_t            literal[16];
    sbx_network_say_t  say;

    *why = SBX_REFUSED_NAME;

    if (s->mode == SBX_NETWORK_NONE || s->policy == NULL
        || !sbx_eg_decide_gate(s, address, port))
    {
        return 1;
    }

    if (sbx_eg_decide_literal(host, literal)) {
        return memcmp(literal, address, 16) != 0
               || !sbx_eg_decide_both(s, address, port, NULL);
    }

    /* what is denied by name is not allowed by its address either */

    say = sbx_network_say_host(&s->policy->rules, host, port);

    if (say == SBX_NETWORK_DENIED) {
        return 1;
    }

    if (s->mode == SBX_NETWORK_LISTS) {
        say = sbx_eg_decide_list(&s->rules, address, port, host,
                                 s->policy->private);

        if (say == SBX_NETWORK_DENIED) {
            return 1;
        }
    }

    if (sbx_eg_decide_both(s, address, port, NULL)) {
        return 0;
    }

    return !known || !sbx_eg_decide_both(s, address, port, host);
}


int
sbx_eg_decide_answer(sbx_eg_session_t *s, const uint8_t address[16])
{
    int  private;

    if (s->mode == SBX_NETWORK_NONE || s->policy == NULL
        || !sbx_eg_decide_gate(s, address, 0))
    {
        return 0;
    }

    /* what lists allow by name is not known by addresses; what they deny is */

    private = s->policy->private;

    if (sbx_eg_decide_list(&s->policy->rules, address, 0, NULL, private)
        == SBX_NETWORK_DENIED
        && !s->policy->rules.allow_first)
    {
        return 0;
    }

    return s->mode != SBX_NETWORK_LISTS || s->rules.allow_first
           || sbx_eg_decide_list(&s->rules, address, 0, NULL, private)
              != SBX_NETWORK_DENIED;
}


int
sbx_eg_decide_denies(const sbx_eg_session_t *s)
{
    return (s->policy != NULL && sbx_eg_decide_list_denies(&s->policy->rules))
           || (s->mode == SBX_NETWORK_LISTS
               && sbx_eg_decide_list_denies(&s->rules));
}


static int
sbx_eg_decide_list_denies(const sbx_network_list_t *list)
{
    size_t  i;

    for (i = 0; i < list->n; i++) {
        if (list->rules[i].deny
            && (list->rules[i].kind == SBX_NETWORK_HOST
                || list->rules[i].kind == SBX_NETWORK_BELOW))
        {
            return 1;
        }
    }

    return 0;
}


int
sbx_eg_decide_bare(sbx_eg_session_t *s, const uint8_t address[16],
    unsigned port)
{
    if (s->policy == NULL) {
        return 1;
    }

    if (sbx_eg_decide_list_denies(&s->policy->rules)
        && !sbx_eg_decide_list_nets(&s->policy->rules, address, port))
    {
        return 1;
    }

    return s->mode == SBX_NETWORK_LISTS
           && sbx_eg_decide_list_denies(&s->rules)
           && !sbx_eg_decide_list_nets(&s->rules, address, port);
}


/* 1: a rule of addresses allows it. */

static int
sbx_eg_decide_list_nets(const sbx_network_list_t *list,
    const uint8_t address[16], unsigned port)
{
    size_t              i;
    sbx_network_rule_t  rule;

    memset(&rule, 0, sizeof(rule));
    rule.kind = SBX_NETWORK_NET;
    rule.bits = 128;
    rule.port = (uint16_t) port;
    memcpy(rule.address, address, 16);

    for (i = 0; i < list->n; i++) {
        if (list->rules[i].kind == SBX_NETWORK_NET && !list->rules[i].deny
            && sbx_network_rule_within(&rule, &list->rules[i]))
        {
            return 1;
        }
    }

    return 0;
}


/* An address where a name would be, as a session writes it. */

static int
sbx_eg_decide_literal(const char *host, uint8_t address[16])
{
    if (inet_pton(AF_INET6, host, address) == 1) {
        return 1;
    }

    memset(address, 0, 10);
    memset(address + 10, 0xff, 2);

    if (inet_pton(AF_INET, host, address + 12) != 1) {
        return 0;
    }

    if (address[12] == 240) {
        address[12] = 127;
    }

    return 1;
}


const sbx_eg_header_t *
sbx_eg_header(const sbx_eg_session_t *s, const char *host, int tls)
{
    size_t                  i;
    const sbx_eg_header_t  *header;

    if (s->policy == NULL) {
        return NULL;
    }

    for (i = 0; i < s->policy->nheaders; i++) {
        header = &s->policy->headers[i];

        if ((header->tls || !tls) && strcmp(header->host, host) == 0) {
            return header;
        }
    }

    return NULL;
}
