/* The operator's table of what leads out, and sessions against it. */

#include "tap.h"

#include "sandbox_network.h"
#include "sandbox_util.h"


#define BYTES(s)  s, sizeof(s) - 1


static void
table_is(const char *table, size_t size, const char *why, const char *name)
{
    int          rc;
    sbx_error_t  e;

    memset(&e, 0, sizeof(sbx_error_t));
    rc = sbx_egress_table_check(table, size, &e);

    if (why == NULL) {
        ok(rc == 0, "%s%s%s", name, rc ? " # " : "", e.text);
        return;
    }

    ok(rc == -1 && e.code == SBX_E_INVALID && strstr(e.text, why) != NULL,
       "%s: %s", name, e.text);
}


static void
test_table(void)
{
    char      many[4096];
    size_t    n;
    unsigned  i;

    static char  large[SBX_EGRESS_SIZE + 1];

    table_is("", 0, NULL, "an empty table");
    table_is(BYTES("r192.0.2.1\0r[2001:db8::1]:5353\0C/etc/ca.pem\0a*\0"
                   "d10.0.0.0/8\0p"
                   "ha.org\0X-Key\0/etc/k\0sb.org\0Authorization\0/etc/l\0"
                   "Tbase\0aa.org\0pTother\0p"), NULL, "a whole table");

    table_is(BYTES("x"), "malformed", "another type");
    table_is(BYTES("aa.org"), "malformed", "no NUL");
    table_is(BYTES("T"), "malformed", "nothing after a type");
    table_is(BYTES("ha.org\0X\0"), "malformed", "a header of two strings");
    table_is(BYTES("aA.org\0"), "one form", "another form");
    table_is(BYTES("a1.2\0"), "address", "no rule");
    table_is(BYTES("d\0"), "empty", "an empty rule");
    table_is(BYTES("pp"), "'p'", "private twice");
    table_is(BYTES("Tx\0r192.0.2.1\0"), "'r'", "a resolver of a template");
    table_is(BYTES("Tx\0C/x\0"), "'C'", "certificates of a template");
    table_is(BYTES("C/x\0C/y\0"), "'C'", "certificates twice");
    table_is(BYTES("Cx\0"), "'C'", "certificates by no path");
    table_is(BYTES("rdns.org\0"), "'r'", "a resolver's name");
    table_is(BYTES("r192.0.2.0/24\0"), "'r'", "a resolver's network");
    table_is(BYTES("T\0"), "template", "a template without a name");
    table_is(BYTES("Tx\0Ty\0Tx\0"), "twice", "a template twice");
    table_is(BYTES("h*.a.org\0X\0/x\0"), "host", "a header for a wildcard");
    table_is(BYTES("h192.0.2.1\0X\0/x\0"), "host", "a header for an address");
    table_is(BYTES("ha.org\0X Y\0/x\0"), "name", "a header with a space");
    table_is(BYTES("ha.org\0\0/x\0"), "name", "a header without a name");
    table_is(BYTES("ha.org\0host\0/x\0"), "name", "Host");
    table_is(BYTES("ha.org\0Content-length\0/x\0"), "name",
             "Content-Length");
    table_is(BYTES("ha.org\0X\0x\0"), "file", "a header's value by no path");

    for (n = 0, i = 0; i < SBX_EGRESS_VALUES_MAX + 1; i++) {
        memcpy(many + n, "ha.org\0X\0/x\0", 12);
        n += 12;
    }

    table_is(many, n - 12, NULL, "as many headers as there may be");
    table_is(many, n, "more than", "one more");

    memset(large, 'a', sizeof(large));
    table_is(large, sizeof(large), "too long", "too many bytes");

    memset(large, 'x', sizeof(large));
    large[0] = 'T';
    large[64] = '\0';
    table_is(large, 65, NULL, "a template's longest name");
    large[64] = 'x';
    large[65] = '\0';
    table_is(large, 66, "template", "one that is longer");
}


#define TABLE  "aa.org\0a*.b.org:443\0a198.51.100.0/24\0a10.1.0.0/16\0"       \
               "a0.0.0.0/1\0dx.b.org\0d198.51.100.7\0"                        \
               "Tnone\0d*\0"                                                  \
               "Tall\0a*\0"                                                   \
               "Tprivate\0a*\0psc.org\0X\0/x\0"                               \
               "Tnarrow\0a*\0d*:25\0"


static void
narrows_is(const char *template, int mode, const char *rules, size_t size,
    const char *why, const char *name)
{
    int          rc;
    sbx_error_t  e;

    memset(&e, 0, sizeof(sbx_error_t));

    rc = sbx_network_narrows(BYTES(TABLE), template, mode, rules, size,
                             "/manifest/network", &e);

    if (why == NULL) {
        ok(rc == 0, "%s: %s%s%s", template, name, rc ? " # " : "", e.text);
        return;
    }

    if (!ok(rc == -1 && e.code == SBX_E_MANIFEST
            && strstr(e.text, why) != NULL, "%s: %s, %s", template, name,
            why))
    {
        printf("# %d %u %s\n", rc, e.code, e.text);
    }
}


static void
test_narrows(void)
{
    enum { NONE = SBX_NETWORK_NONE, ALL = SBX_NETWORK_ALL,
           LISTS = SBX_NETWORK_LISTS };

    narrows_is("none", NONE, "", 0, NULL, "none");
    narrows_is("none", ALL, "", 0, "/manifest/network: template \"none\"",
               "all");
    narrows_is("none", LISTS, BYTES("aa.org\0"), "/manifest/network: ",
               "lists");
    narrows_is("base", ALL, "", 0, NULL, "all");
    narrows_is("base", LISTS, "", 0, NULL, "empty lists");
    narrows_is("base", LISTS, BYTES("dz.org\0"), NULL, "denials alone");
    narrows_is("base", LISTS, BYTES("aa.org\0ay.b.org:443\0"), NULL,
               "what is allowed");
    narrows_is("base", LISTS, BYTES("f\0aa.org:1\0d*\0"), NULL,
               "one port of it");
    narrows_is("base", LISTS, BYTES("dq.org\0aa.org\0aq.org\0"),
               "/manifest/network/allow/1: \"q.org\" is not within",
               "another name");
    narrows_is("base", LISTS, BYTES("ay.b.org\0"), "/allow/0:", "every port");
    narrows_is("base", LISTS, BYTES("ax.b.org:443\0"),
               "/allow/0: \"x.b.org:443\" is denied", "what is denied");
    narrows_is("base", LISTS, BYTES("a*\0"), "/allow/0: \"*\" is not within",
               "everything");
    narrows_is("base", LISTS, BYTES("a198.51.100.0/25\0"), NULL,
               "a part of a network");
    narrows_is("base", LISTS, BYTES("a198.51.100.7\0"), "denied",
               "an address that is denied");
    narrows_is("base", LISTS, BYTES("a10.1.2.3\0"), NULL,
               "a private address that is meant");
    narrows_is("base", LISTS, BYTES("a10.2.2.3\0"), "not within",
               "one that is covered alone");
    narrows_is("base", LISTS, BYTES("a8.8.8.8\0"), NULL, "a public one");
    narrows_is("base", LISTS, BYTES("a127.0.0.1\0"), "not within", "loopback");

    narrows_is("all", LISTS, BYTES("aq.org\0a*:443\0a0.0.0.0/0\0a::/0\0"
                                   "a2600::1\0"), NULL, "public ones");
    narrows_is("all", LISTS, BYTES("a10.1.2.3\0"), "not within",
               "a private address");
    narrows_is("all", LISTS, BYTES("a169.254.169.254\0"), "not within",
               "metadata");

    narrows_is("private", LISTS, BYTES("a10.1.2.3\0afd00::1\0"), NULL,
               "private addresses");
    narrows_is("private", LISTS, BYTES("a127.0.0.1\0"), "not within",
               "loopback");
    narrows_is("private", LISTS, BYTES("a169.254.169.254\0"), "not within",
               "metadata");

    narrows_is("narrow", LISTS, BYTES("aa.org\0"), NULL,
               "with a port that is denied");
    narrows_is("narrow", LISTS, BYTES("aa.org:25\0"), "denied", "that port");
    narrows_is("narrow", LISTS, BYTES("a10.0.0.1:25\0"), "not within",
               "that port of an address that is not allowed at all");

    ok(sbx_network_narrows(BYTES(TABLE), "all", SBX_NETWORK_LISTS,
                           BYTES("ax"), "/n", NULL)
       == -1, "what is malformed is refused");
}


static void
test_grants(void)
{
    ok(sbx_egress_table_grants(BYTES(TABLE), "base"), "as all templates");
    ok(!sbx_egress_table_grants(BYTES(TABLE), "none"), "nothing allowed");
    ok(sbx_egress_table_grants(BYTES(TABLE), "narrow"), "of its own");
    ok(!sbx_egress_table_grants("", 0, "base"), "an empty table");
    ok(!sbx_egress_table_grants(BYTES("Tx\0a*\0"), "base"),
       "another template's");

    ok(sbx_egress_table_tls(BYTES(TABLE), "private"), "headers in TLS");
    ok(!sbx_egress_table_tls(BYTES(TABLE), "narrow"), "none");
    ok(!sbx_egress_table_tls(BYTES(TABLE), "base"), "none outside");

#define OPEN(template, mode, rules)                                           \
    sbx_network_open(BYTES(TABLE), template, SBX_NETWORK_ ## mode,            \
                     BYTES(rules))

    ok(OPEN("all", ALL, ""), "all of all is open");
    ok(OPEN("private", ALL, ""), "with private addresses, too");
    ok(OPEN("all", LISTS, ""), "lists that say nothing are open");
    ok(OPEN("all", LISTS, "a*\0"), "and so is all by a list");
    ok(!OPEN("all", LISTS, "aa.org\0"), "not with a name");
    ok(!OPEN("all", LISTS, "a*:443\0"), "nor with a port");
    ok(!OPEN("all", LISTS, "da.org\0"), "nor with a denial");
    ok(!OPEN("all", NONE, ""), "nor none");
    ok(!OPEN("narrow", ALL, ""), "nor with the operator's denial");
    ok(!OPEN("base", ALL, ""), "nor with the operator's list");
}


int
main(void)
{
    test_table();
    test_narrows();
    test_grants();

    return done_testing();
}
