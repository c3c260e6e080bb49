/*
 * Judgement: what the operator's rules and a session's make of an address, a
 * port, the names that the session looked up, and those that it says.
 */

#include "conn.h"
#include "sandbox_limits.h"
#include "tap.h"

#include <arpa/inet.h>
#include <string.h>


#define REFUSED(why)   (-1 - (int) SBX_REFUSED_##why)
#define ALLOWED        ((int) SBX_EG_ALLOW)
#define BY_NAME        ((int) SBX_EG_BY_NAME)


static sbx_egress_t      eg;
static sbx_eg_session_t  s;
static sbx_eg_policy_t   policy;


static void
parse_address(const char *text, uint8_t address[16])
{
    memset(address, 0, 16);

    if (inet_pton(AF_INET, text, address + 12) == 1) {
        memset(address + 10, 0xff, 2);
        return;
    }

    if (inet_pton(AF_INET6, text, address) != 1) {
        printf("Bail out! %s\n", text);
        exit(1);
    }
}


/* "aRULE dRULE ...", "f" first. */

static void
parse_list(const char *text, sbx_network_list_t *list)
{
    char         rules[4096];
    size_t       n;
    sbx_error_t  e;

    sbx_network_list_free(list);

    n = strlen(text);
    memcpy(rules, text, n + 1);

    for (n = 0; rules[n] != '\0'; n++) {
        rules[n] = rules[n] == ' ' ? '\0' : rules[n];
    }

    if (n != 0 && sbx_network_list(rules, n + 1, list, &e) != 0) {
        printf("Bail out! %s: %s\n", text, e.text);
        exit(1);
    }
}


/* rules of the session: NULL, all that the operator allows. */

static void
rules(const char *operator, const char *session)
{
    /* the operator's are as a table's are: what no rule allows is refused */

    parse_list(operator, &policy.rules);
    parse_list(session == NULL ? "" : session, &s.rules);
    s.mode = session == NULL ? SBX_NETWORK_ALL : SBX_NETWORK_LISTS;
    policy.private = 0;
}


static void
looked_up(const char *host, const char *text)
{
    uint8_t  address[16];

    parse_address(text, address);
    sbx_eg_names_add(&s, host, address, 60);
}


static int
verdict(const char *text, unsigned port)
{
    uint8_t           address[16];
    sbx_refused_t     why;
    sbx_eg_verdict_t  v;

    parse_address(text, address);
    v = sbx_eg_decide(&s, address, port, &why);

    return v == SBX_EG_REFUSE ? -1 - (int) why : (int) v;
}


static int
named(const char *text, unsigned port, const char *host)
{
    uint8_t        address[16];
    sbx_refused_t  why;

    parse_address(text, address);

    return sbx_eg_decide_named(&s, address, port, host, &why) == 0
           ? 0 : -1 - (int) why;
}


static int
asked(const char *host)
{
    sbx_refused_t  why;

    return sbx_eg_decide_name(&s, host, 0, &why) == 0 ? 0 : -1 - (int) why;
}


static int
answer(const char *text)
{
    uint8_t  address[16];

    parse_address(text, address);

    return sbx_eg_decide_answer(&s, address);
}


static void
check_addresses(void)
{
    unsigned  i;

    static const struct {
        const char  *operator;
        const char  *session;
        const char  *address;
        unsigned     port;
        int          expected;
    } table[] = {
        { "", NULL, "8.8.8.8", 80, REFUSED(RULE) },
        { "a*", NULL, "8.8.8.8", 80, ALLOWED },
        { "a*", NULL, "2606:4700::1", 80, ALLOWED },
        { "a*", "", "8.8.8.8", 80, ALLOWED },
        { "a*:443", NULL, "8.8.8.8", 443, ALLOWED },
        { "a*:443", NULL, "8.8.8.8", 80, REFUSED(RULE) },
        { "a8.8.8.0/24", NULL, "8.8.8.8", 80, ALLOWED },
        { "a8.8.8.0/24", NULL, "8.8.9.8", 80, REFUSED(RULE) },
        { "a* d8.8.8.8", NULL, "8.8.8.8", 80, REFUSED(RULE) },
        { "a* d8.8.8.8:25", NULL, "8.8.8.8", 80, ALLOWED },
        { "a* d*:25", NULL, "8.8.8.8", 25, REFUSED(RULE) },
        { "a*", "a8.8.8.8", "8.8.8.8", 80, ALLOWED },
        { "a*", "a8.8.8.8", "8.8.4.4", 80, REFUSED(RULE) },
        { "a*", "a8.8.8.8:53", "8.8.8.8", 80, REFUSED(RULE) },
        { "a*", "d8.8.8.0/24", "8.8.8.8", 80, REFUSED(RULE) },
        { "a*", "d8.8.8.0/24", "8.8.4.4", 80, ALLOWED },
        { "a8.8.8.8", "a*", "8.8.4.4", 80, REFUSED(RULE) },
        { "d8.8.8.8 a*", "a8.8.8.8", "8.8.8.8", 80, REFUSED(RULE) },

        /* exceptions */
        { "a*", "f a8.8.8.8 d0.0.0.0/0", "8.8.8.8", 80, ALLOWED },
        { "a*", "f a8.8.8.8 d0.0.0.0/0", "8.8.4.4", 80, REFUSED(RULE) },
        { "a*", "f a8.8.8.8", "8.8.4.4", 80, ALLOWED },
        { "a8.8.8.8", "f a8.8.4.4", "8.8.4.4", 80, REFUSED(RULE) },

        /* what is not public needs a rule that means it */
        { "a*", NULL, "10.0.0.1", 80, REFUSED(ADDRESS) },
        { "a*", NULL, "172.16.9.9", 80, REFUSED(ADDRESS) },
        { "a*", NULL, "192.168.1.1", 80, REFUSED(ADDRESS) },
        { "a*", NULL, "100.64.0.1", 80, REFUSED(ADDRESS) },
        { "a*", NULL, "127.0.0.1", 80, REFUSED(ADDRESS) },
        { "a*", NULL, "169.254.1.1", 80, REFUSED(ADDRESS) },
        { "a*", NULL, "169.254.169.254", 80, REFUSED(ADDRESS) },
        { "a*", NULL, "224.0.0.1", 80, REFUSED(ADDRESS) },
        { "a*", NULL, "255.255.255.255", 80, REFUSED(ADDRESS) },
        { "a*", NULL, "0.0.0.0", 80, REFUSED(ADDRESS) },
        { "a*", NULL, "0.1.2.3", 80, REFUSED(ADDRESS) },
        { "a*", NULL, "240.0.0.1", 80, REFUSED(ADDRESS) },
        { "a*", NULL, "192.0.0.8", 80, REFUSED(ADDRESS) },
        { "a*", NULL, "::", 80, REFUSED(ADDRESS) },
        { "a*", NULL, "::1", 80, REFUSED(ADDRESS) },
        { "a*", NULL, "fe80::1", 80, REFUSED(ADDRESS) },
        { "a*", NULL, "fd00:ec2::254", 80, REFUSED(ADDRESS) },
        { "a*", NULL, "fc00::1", 80, REFUSED(ADDRESS) },
        { "a*", NULL, "ff02::1", 80, REFUSED(ADDRESS) },
        { "a*", NULL, "::ffff:10.0.0.1", 80, REFUSED(ADDRESS) },
        { "a*", NULL, "::10.0.0.1", 80, REFUSED(ADDRESS) },
        { "a*", NULL, "64:ff9b::10.0.0.1", 80, REFUSED(ADDRESS) },
        { "a*", NULL, "64:ff9b::169.254.169.254", 80, REFUSED(ADDRESS) },
        { "a*", NULL, "64:ff9b::8.8.8.8", 80, ALLOWED },
        { "a*", NULL, "2002:a00:1::1", 80, REFUSED(ADDRESS) },
        { "a0.0.0.0/0", NULL, "10.0.0.1", 80, REFUSED(ADDRESS) },
        { "a0.0.0.0/0", NULL, "8.8.8.8", 80, ALLOWED },
        { "a10.0.0.0/8", NULL, "10.0.0.1", 80, ALLOWED },
        { "a10.1.0.0/16", NULL, "10.0.0.1", 80, REFUSED(ADDRESS) },
        { "a10.0.0.0/8:443", NULL, "10.0.0.1", 80, REFUSED(ADDRESS) },
        { "a169.254.0.0/16", NULL, "169.254.169.254", 80, REFUSED(ADDRESS) },
        { "a169.254.169.254", NULL, "169.254.169.254", 80, ALLOWED },
        { "a127.0.0.1:80", NULL, "127.0.0.1", 80, ALLOWED },
        { "a127.0.0.1:80", NULL, "127.0.0.1", 81, REFUSED(ADDRESS) },
        { "a10.0.0.0/8 a*", "a*", "10.0.0.1", 80, REFUSED(RULE) },
        { "a10.0.0.0/8 a*", "a10.0.0.1", "10.0.0.1", 80, ALLOWED },
        { "a10.0.0.0/8 a*", "d*", "10.0.0.1", 80, REFUSED(RULE) }
    };

    for (i = 0; i < sbx_nelts(table); i++) {
        char  name[256];

        rules(table[i].operator, table[i].session);
        (void) snprintf(name, sizeof(name), "\"%s\", then \"%s\": %s port %u",
                        table[i].operator,
                        table[i].session != NULL ? table[i].session : "all",
                        table[i].address, table[i].port);
        is_int(verdict(table[i].address, table[i].port), table[i].expected,
               name);
    }

    rules("a*", NULL);
    policy.private = 1;
    is_int(verdict("10.0.0.1", 80), ALLOWED, "private ones are as others");
    is_int(verdict("127.0.0.1", 80), REFUSED(ADDRESS), "no loopback");
    is_int(verdict("169.254.169.254", 80), REFUSED(ADDRESS), "no metadata");
    rules("a*", "a*:80");
    policy.private = 1;
    is_int(verdict("10.0.0.1", 81), REFUSED(RULE), "by the session's rules");

    s.mode = SBX_NETWORK_NONE;
    is_int(verdict("8.8.8.8", 80), REFUSED(RULE), "without a network none");
    rules("a*", NULL);
    s.policy = NULL;
    is_int(verdict("8.8.8.8", 80), REFUSED(RULE), "nor without the operator");
    is_int(asked("a.test"), REFUSED(QUERY), "no name either");
    s.policy = &policy;
}


static void
check_names(void)
{
    rules("aa.test a*.b.test:443", NULL);
    looked_up("a.test", "198.51.100.1");
    looked_up("x.b.test", "198.51.100.2");
    looked_up("other.test", "198.51.100.1");
    looked_up("other.test", "198.51.100.3");
    looked_up("a.test", "10.0.0.1");

    is_int(verdict("198.51.100.1", 80), BY_NAME, "a name that was looked up");
    is_int(verdict("198.51.100.2", 443), BY_NAME, "one below a name");
    is_int(verdict("198.51.100.2", 80), REFUSED(RULE), "not at its port");
    is_int(verdict("198.51.100.3", 80), REFUSED(RULE), "a name that is not "
           "allowed");
    is_int(verdict("198.51.100.9", 80), REFUSED(RULE), "none");
    is_int(verdict("10.0.0.1", 80), REFUSED(ADDRESS),
           "a name that leads to a private address");

    is_int(named("198.51.100.1", 80, "a.test"), 0, "its client names it");
    is_int(named("198.51.100.1", 80, "other.test"), REFUSED(NAME),
           "or another that is not allowed");
    is_int(named("198.51.100.1", 80, "x.b.test"), REFUSED(NAME),
           "or one that is, but not there");
    is_int(named("198.51.100.2", 443, "y.b.test"), REFUSED(NAME),
           "or that was not looked up");
    is_int(named("198.51.100.1", 80, "198.51.100.1"), REFUSED(NAME),
           "or the address");
    is_int(named("10.0.0.1", 80, "a.test"), REFUSED(NAME),
           "and nothing that leads there");

    is_int(asked("a.test"), 0, "it may ask for that");
    is_int(asked("x.b.test"), 0, "that is allowed at a port");
    is_int(asked("b.test"), REFUSED(QUERY), "above it");
    is_int(asked("nota.test"), REFUSED(QUERY), "beside it");
    is_int(asked("other.test"), REFUSED(QUERY), "else");

    rules("a10.0.0.0/8 aa.test", NULL);
    is_int(verdict("10.0.0.1", 80), ALLOWED, "by its address too");
    is_int(named("10.0.0.1", 80, "whatever.test"), 0,
           "whatever its client names");
    is_int(asked("whatever.test"), 0, "and names lead to addresses");

    rules("a*", "aa.test");
    is_int(verdict("198.51.100.1", 80), BY_NAME, "a session's name");
    is_int(verdict("198.51.100.3", 80), REFUSED(RULE), "no other");
    is_int(named("198.51.100.1", 80, "other.test"), REFUSED(NAME),
           "nor the other there");
    is_int(asked("other.test"), REFUSED(QUERY), "nor asked for");

    rules("a10.0.0.0/8 a*", "aa.test");
    is_int(verdict("10.0.0.1", 80), BY_NAME,
           "an address of the operator's by a name of the session's");

    rules("a* dother.test", NULL);
    is_int(verdict("198.51.100.3", 80), ALLOWED, "where a name is denied");
    is_int(named("198.51.100.3", 80, "other.test"), REFUSED(NAME),
           "its client may not name it");
    is_int(named("198.51.100.3", 80, "a.test"), 0, "but another");
    is_int(named("198.51.100.3", 80, "198.51.100.3"), 0, "or the address");
    is_int(named("198.51.100.3", 80, "198.51.100.4"), REFUSED(NAME),
           "not another address");
    is_int(asked("other.test"), REFUSED(QUERY), "nor ask for it");
    ok(sbx_eg_decide_denies(&s), "that has to be looked at");

    rules("a*", "f aa.test d*");
    is_int(verdict("198.51.100.1", 80), BY_NAME, "an exception by name");
    is_int(verdict("198.51.100.3", 80), REFUSED(RULE), "no other");
    is_int(named("198.51.100.1", 80, "a.test"), 0, "its client names it");
    is_int(named("198.51.100.1", 80, "other.test"), REFUSED(NAME),
           "or not");
    is_int(asked("a.test"), 0, "it may ask for it");
    is_int(asked("other.test"), REFUSED(QUERY), "alone");
    rules("a*", "f aa.test d0.0.0.0/0 d::/0");
    is_int(verdict("198.51.100.1", 80), BY_NAME, "where addresses are denied");
    is_int(answer("198.51.100.1"), 1, "its answer is given");
}


/* An answer that was forgotten since. */

static void
check_known(void)
{
    uint8_t        address[16];
    sbx_refused_t  why;

    parse_address("198.51.100.200", address);
    rules("aa.test dx.test", NULL);
    is_int(verdict("198.51.100.200", 80), REFUSED(RULE), "what is forgotten");
    is_int(sbx_eg_decide_known(&s, address, 80, "a.test", &why), 0,
           "is still what led there");
    ok(sbx_eg_decide_known(&s, address, 80, "x.test", &why) != 0,
       "but not if it is denied");
    ok(sbx_eg_decide_known(&s, address, 80, "b.test", &why) != 0,
       "or not allowed");
    parse_address("10.0.0.1", address);
    ok(sbx_eg_decide_known(&s, address, 80, "a.test", &why) != 0,
       "or leads where nothing may");
}


static void
check_bare(void)
{
    uint8_t  address[16];

    parse_address("198.51.100.3", address);
    rules("a* dother.test", NULL);
    ok(sbx_eg_decide_bare(&s, address, 443) != 0,
       "where names are denied, who names nothing is refused");
    rules("a198.51.100.0/24 a* dother.test", NULL);
    is_int(sbx_eg_decide_bare(&s, address, 443), 0,
           "but not where the address is meant");
    rules("a198.51.100.0/24:80 a* dother.test", NULL);
    ok(sbx_eg_decide_bare(&s, address, 443) != 0, "at its port");
    rules("a*", "dother.test");
    ok(sbx_eg_decide_bare(&s, address, 443) != 0, "by the session's too");
    rules("a*", NULL);
    is_int(sbx_eg_decide_bare(&s, address, 443), 0, "no name is denied");
    ok(!sbx_eg_decide_denies(&s), "and nothing to be looked at");
}


static void
check_answers(void)
{
    rules("aa.test", NULL);
    is_int(answer("198.51.100.1"), 1, "a public address");
    is_int(answer("10.0.0.1"), 0, "a private one");
    is_int(answer("127.0.0.1"), 0, "the host itself");
    is_int(answer("64:ff9b::a00:1"), 0, "one behind a translator");
    rules("aa.test a10.0.0.0/8:80", NULL);
    is_int(answer("10.0.0.1"), 1, "one that a rule means at some port");
    rules("a* d198.51.100.0/24", NULL);
    is_int(answer("198.51.100.1"), 0, "one that is denied");
    rules("a* d198.51.100.0/24:80", NULL);
    is_int(answer("198.51.100.1"), 1, "or at a port alone");
    rules("a*", "d198.51.100.0/24");
    is_int(answer("198.51.100.1"), 0, "or by the session");
}


static void
check_headers(void)
{
    sbx_eg_header_t  headers[2];

    memset(headers, 0, sizeof(headers));
    memcpy(headers[0].host, "a.test", 7);
    memcpy(headers[1].host, "b.test", 7);
    headers[1].tls = 1;
    policy.headers = headers;
    policy.nheaders = 2;

    ok(sbx_eg_header(&s, "a.test", 0) == &headers[0], "a host's header");
    ok(sbx_eg_header(&s, "a.test", 1) == NULL, "not in TLS");
    ok(sbx_eg_header(&s, "b.test", 0) == &headers[1], "another's");
    ok(sbx_eg_header(&s, "b.test", 1) == &headers[1], "in TLS too");
    ok(sbx_eg_header(&s, "x.a.test", 0) == NULL, "no host's below it");

    policy.headers = NULL;
    policy.nheaders = 0;
}


int
main(void)
{
    s.egress = &eg;
    s.policy = &policy;
    policy.users = 2;
    memcpy(s.id, "itest0000000000000000000001", 28);
    sbx_list_init(&s.conns);
    sbx_list_init(&s.waiting);

    if (sbx_eg_names_open(&s) != 0) {
        printf("Bail out! names\n");
        return 1;
    }

    check_addresses();
    check_names();
    check_known();
    check_bare();
    check_answers();
    check_headers();

    sbx_eg_names_close(&s);
    sbx_network_list_free(&s.rules);
    sbx_network_list_free(&policy.rules);

    return done_testing();
}
