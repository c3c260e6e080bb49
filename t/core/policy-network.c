/* Rules of networks, kinds of addresses, and lists of rules. */

#include "tap.h"

#include "sandbox_network.h"
#include "sandbox_util.h"

#include <arpa/inet.h>


#define BYTES(s)  s, sizeof(s) - 1


static void
address_of(const char *s, uint8_t address[16])
{
    memset(address, 0, 16);

    if (strchr(s, ':') != NULL) {
        if (inet_pton(AF_INET6, s, address) != 1) {
            abort();
        }

        return;
    }

    address[10] = address[11] = 0xff;

    if (inet_pton(AF_INET, s, address + 12) != 1) {
        abort();
    }
}


static sbx_network_rule_t
rule_of(const char *s)
{
    sbx_error_t         e;
    sbx_network_rule_t  rule;

    if (sbx_network_rule_parse(s, strlen(s), &rule, &e) != 0) {
        printf("# \"%s\" %s\n", s, e.text);
        abort();
    }

    return rule;
}


/*
 * ---- one rule ----------------------------------------------------------
 */

static void
rule_is(const char *s, int kind, const char *expected)
{
    int                 rc;
    char                buf[SBX_NETWORK_TEXT_MAX];
    size_t              n;
    sbx_error_t         e;
    sbx_network_rule_t  rule, again;

    rc = sbx_network_rule_parse(s, strlen(s), &rule, &e);

    if (!ok(rc == 0 && rule.kind == kind && !rule.deny, "\"%s\" is a rule",
            s))
    {
        printf("# %s\n", rc == 0 ? "of another kind" : e.text);
        return;
    }

    n = sbx_network_rule_print(&rule, buf);
    is_str(buf, expected, "in its one form");

    ok(n == strlen(buf)
       && sbx_network_rule_parse(buf, n, &again, &e) == 0
       && memcmp(&rule, &again, sizeof(rule)) == 0, "which is the same rule");
}


static void
rule_refused(const char *s, size_t len, const char *why)
{
    sbx_error_t         e;
    sbx_network_rule_t  rule;

    memset(&e, 0, sizeof(sbx_error_t));

    if (!ok(sbx_network_rule_parse(s, len, &rule, &e) == -1
            && e.code == SBX_E_INVALID && strstr(e.text, why) != NULL,
            "\"%.*s\" %s", (int) (len > 60 ? 60 : len), s, why))
    {
        printf("# %s\n", e.text);
    }
}


static void
test_rules(void)
{
    char    name[512];
    size_t  i;

    static const struct {
        const char  *text;
        int          kind;
        const char  *form;
    } good[] = {
        { "index.org", SBX_NETWORK_HOST, "index.org" },
        { "Index.Org:443", SBX_NETWORK_HOST, "index.org:443" },
        { "localhost", SBX_NETWORK_HOST, "localhost" },
        { "_dmarc.example.org", SBX_NETWORK_HOST, "_dmarc.example.org" },
        { "xn--bcher-kva.example", SBX_NETWORK_HOST,
          "xn--bcher-kva.example" },
        { "1.example", SBX_NETWORK_HOST, "1.example" },
        { "1.2.3.4.example", SBX_NETWORK_HOST, "1.2.3.4.example" },
        { "*.Example.org", SBX_NETWORK_BELOW, "*.example.org" },
        { "*.example.org:8443", SBX_NETWORK_BELOW, "*.example.org:8443" },
        { "*", SBX_NETWORK_ANY, "*" },
        { "*:443", SBX_NETWORK_ANY, "*:443" },
        { "192.0.2.1", SBX_NETWORK_NET, "192.0.2.1" },
        { "192.0.2.1/32", SBX_NETWORK_NET, "192.0.2.1" },
        { "192.0.2.1:5432", SBX_NETWORK_NET, "192.0.2.1:5432" },
        { "198.51.100.0/24:5432", SBX_NETWORK_NET, "198.51.100.0/24:5432" },
        { "0.0.0.0/0", SBX_NETWORK_NET, "0.0.0.0/0" },
        { "::/0", SBX_NETWORK_NET, "::/0" },
        { "2001:DB8::1", SBX_NETWORK_NET, "2001:db8::1" },
        { "2001:db8:0:0::1/128", SBX_NETWORK_NET, "2001:db8::1" },
        { "[2001:db8::1]", SBX_NETWORK_NET, "2001:db8::1" },
        { "[2001:db8::1]:443", SBX_NETWORK_NET, "[2001:db8::1]:443" },
        { "2001:db8::/32", SBX_NETWORK_NET, "2001:db8::/32" },
        { "[2001:db8::]/32:443", SBX_NETWORK_NET, "[2001:db8::]/32:443" },
        { "::ffff:192.0.2.1", SBX_NETWORK_NET, "192.0.2.1" },
        { "[::ffff:192.0.2.0]/120:80", SBX_NETWORK_NET, "192.0.2.0/24:80" },
        { "::ffff:0:0/96", SBX_NETWORK_NET, "0.0.0.0/0" },
        { "index.org:1", SBX_NETWORK_HOST, "index.org:1" },
        { "index.org:65535", SBX_NETWORK_HOST, "index.org:65535" }
    };

    static const struct {
        const char  *text;
        const char  *why;
    } bad[] = {
        { "", "empty" },
        { "a b", "host name" },
        { "a\tb", "control" },
        { "a\x7f", "control" },
        { "b\xc3\xbc" "cher.example", "ASCII" },
        { "https://index.org", "URL" },
        { "index.org/simple", "\"/\"" },
        { "index.org/24", "\"/\"" },
        { "*/8", "\"/\"" },
        { "index.org:", "port" },
        { "index.org:0", "port" },
        { "index.org:65536", "port" },
        { "index.org:080", "port" },
        { "index.org:+80", "port" },
        { "index.org:80 ", "port" },
        { "index.org:http", "port" },
        { "index.org:443443", "port" },
        { ":443", "no host" },
        { "index.org.", "dot" },
        { "pypi..org", "host name" },
        { ".index.org", "host name" },
        { "-a.org", "host name" },
        { "a-.org", "host name" },
        { "a.b-", "host name" },
        { "*.", "\"*\"" },
        { "*.*.org", "\"*\"" },
        { "*index.org", "\"*\"" },
        { "a.*.org", "\"*\"" },
        { "**", "\"*\"" },
        { "1.2.3", "looks like an address" },
        { "127.1", "looks like an address" },
        { "0x7f.1", "looks like an address" },
        { "0x7f000001", "looks like an address" },
        { "a.0x7f", "looks like an address" },
        { "0x", "looks like an address" },
        { "2130706433", "looks like an address" },
        { "1.2.3.4.5", "looks like an address" },
        { "01.2.3.4", "looks like an address" },
        { "256.1.1.1", "looks like an address" },
        { "*.1.2.3.4", "looks like an address" },
        { "example.1", "looks like an address" },
        { "1.2.3.4.", "dot" },
        { "10.0.0.1/8", "\"10.0.0.0/8\" fits" },
        { "10.0.0.0/33", "prefix" },
        { "10.0.0.0/", "prefix" },
        { "10.0.0.0/-1", "prefix" },
        { "10.0.0.0/08", "prefix" },
        { "10.0.0.0/8/8", "prefix" },
        { "10.0.0/8", "\"/\"" },
        { "2001:db8::1/32", "\"2001:db8::/32\" fits" },
        { "2001:db8::/129", "prefix" },
        { "::ffff:0:0/95", "beyond" },
        { "2001:db8::/32:443", "brackets" },
        { "2001:db8::g", "IPv6" },
        { "fe80::1%lo", "IPv6" },
        { "1:2:3", "IPv6" },
        { "[2001:db8::1", "bracket" },
        { "[2001:db8::1]x", "bracket" },
        { "[2001:db8::1]:", "port" },
        { "[192.0.2.1]", "IPv6" },
        { "[index.org]:443", "IPv6" },
        { "[]", "IPv6" },
        { "a@index.org", "host name" },
        { "pypi,org", "host name" }
    };

    for (i = 0; i < sbx_nelts(good); i++) {
        rule_is(good[i].text, good[i].kind, good[i].form);
    }

    for (i = 0; i < sbx_nelts(bad); i++) {
        rule_refused(bad[i].text, strlen(bad[i].text), bad[i].why);
    }

    rule_refused(BYTES("pypi\0.org"), "control");

    memset(name, 'a', sizeof(name));
    rule_refused(name, 64, "host name");
    rule_refused(name, sizeof(name), "longer");

    for (i = 63; i < sizeof(name); i += 64) {
        name[i] = '.';
    }

    rule_refused(name, 254, "host name");
    name[253] = '\0';
    rule_is(name, SBX_NETWORK_HOST, name);
    memmove(name + 2, name, 254);
    memcpy(name, "*.", 2);
    rule_is(name, SBX_NETWORK_BELOW, name);
}


static void
test_hosts(void)
{
    char  out[SBX_NETWORK_HOST_MAX + 1];

    ok(sbx_network_host_ok(BYTES("WWW.Example.ORG"), out), "a name");
    is_str(out, "www.example.org", "in lower case");
    ok(sbx_network_host_ok(BYTES("a"), NULL), "of one label");
    ok(!sbx_network_host_ok(BYTES("a."), out), "none with a dot at its end");
    ok(!sbx_network_host_ok(BYTES("a\0b"), out), "none with a NUL");
    ok(!sbx_network_host_ok(BYTES(""), out), "none that is empty");
    ok(!sbx_network_host_ok(BYTES("*.a"), out), "no wildcard");
    ok(!sbx_network_host_ok(BYTES("127.0.0.1"), out), "no address");
    ok(!sbx_network_host_ok(BYTES("[::1]"), out), "nor one in brackets");
    ok(!sbx_network_host_ok(BYTES("a.b:80"), out), "no port");
}


static void
within(const char *inner, const char *outer, int expected)
{
    sbx_network_rule_t  a, b;

    a = rule_of(inner);
    b = rule_of(outer);

    ok(sbx_network_rule_within(&a, &b) == expected, "\"%s\" is %swithin "
       "\"%s\"", inner, expected ? "" : "not ", outer);
}


static void
test_within(void)
{
    size_t  i;

    static const struct {
        const char  *inner;
        const char  *outer;
        int          is;
    } cases[] = {
        { "a.org", "a.org", 1 },
        { "a.org:443", "a.org", 1 },
        { "a.org:443", "a.org:443", 1 },
        { "a.org", "a.org:443", 0 },
        { "a.org:80", "a.org:443", 0 },
        { "b.org", "a.org", 0 },
        { "x.a.org", "*.a.org", 1 },
        { "x.y.a.org", "*.a.org", 1 },
        { "a.org", "*.a.org", 0 },
        { "xa.org", "*.a.org", 0 },
        { "*.a.org", "*.a.org", 1 },
        { "*.x.a.org", "*.a.org", 1 },
        { "*.a.org", "*.x.a.org", 0 },
        { "*.a.org", "a.org", 0 },
        { "a.org", "*", 1 },
        { "*.a.org:443", "*", 1 },
        { "*", "*", 1 },
        { "*", "*:443", 0 },
        { "*:443", "*", 1 },
        { "*", "*.a.org", 0 },
        { "*", "0.0.0.0/0", 0 },
        { "a.org", "0.0.0.0/0", 0 },
        { "192.0.2.1", "a.org", 0 },
        { "192.0.2.1", "*", 1 },
        { "0.0.0.0/0", "*", 1 },
        { "::/0", "*", 1 },
        { "10.0.0.1", "*", 0 },
        { "10.0.0.0/8", "*", 0 },
        { "10.0.0.0/7", "*", 1 },
        { "8.0.0.0/6", "*", 1 },
        { "169.254.169.254", "*", 0 },
        { "169.254.168.0/23", "*", 0 },
        { "fd00::/8", "*", 0 },
        { "::1", "*", 0 },
        { "64:ff9b::10.0.0.1", "*", 0 },
        { "64:ff9b::a00:0/104", "*", 0 },
        { "64:ff9b::/96", "*", 1 },
        { "192.0.2.1", "192.0.2.0/24", 1 },
        { "192.0.2.0/25", "192.0.2.0/24", 1 },
        { "192.0.2.0/23", "192.0.2.0/24", 0 },
        { "192.0.3.1", "192.0.2.0/24", 0 },
        { "192.0.2.1", "0.0.0.0/0", 1 },
        { "192.0.2.1", "::/0", 0 },
        { "0.0.0.0/0", "::/0", 0 },
        { "2001:db8::1", "0.0.0.0/0", 0 },
        { "2001:db8::1", "::/0", 1 },
        { "2001:db8::/33", "2001:db8::/32", 1 },
        { "2001:db8:8000::/33", "2001:db8::/33", 0 }
    };

    for (i = 0; i < sbx_nelts(cases); i++) {
        within(cases[i].inner, cases[i].outer, cases[i].is);
    }
}


/*
 * ---- kinds of addresses ---------------------------------------------------
 */

static void
test_class(void)
{
    size_t               i;
    uint8_t              address[16];
    sbx_network_class_t  class;

    static const struct {
        const char           *address;
        sbx_network_class_t   class;
    } cases[] = {
        { "8.8.8.8", SBX_NETWORK_PUBLIC },
        { "1.0.0.0", SBX_NETWORK_PUBLIC },
        { "0.255.255.255", SBX_NETWORK_RESERVED },
        { "9.255.255.255", SBX_NETWORK_PUBLIC },
        { "10.0.0.0", SBX_NETWORK_PRIVATE },
        { "10.255.255.255", SBX_NETWORK_PRIVATE },
        { "11.0.0.0", SBX_NETWORK_PUBLIC },
        { "100.63.255.255", SBX_NETWORK_PUBLIC },
        { "100.64.0.0", SBX_NETWORK_PRIVATE },
        { "100.127.255.255", SBX_NETWORK_PRIVATE },
        { "100.128.0.0", SBX_NETWORK_PUBLIC },
        { "100.100.100.200", SBX_NETWORK_METADATA },
        { "127.0.0.1", SBX_NETWORK_LOOPBACK },
        { "127.255.255.255", SBX_NETWORK_LOOPBACK },
        { "128.0.0.1", SBX_NETWORK_PUBLIC },
        { "168.63.129.16", SBX_NETWORK_METADATA },
        { "168.63.129.17", SBX_NETWORK_PUBLIC },
        { "169.253.255.255", SBX_NETWORK_PUBLIC },
        { "169.254.0.1", SBX_NETWORK_LINK_LOCAL },
        { "169.254.169.254", SBX_NETWORK_METADATA },
        { "169.254.170.2", SBX_NETWORK_METADATA },
        { "169.254.170.23", SBX_NETWORK_METADATA },
        { "172.15.255.255", SBX_NETWORK_PUBLIC },
        { "172.16.0.0", SBX_NETWORK_PRIVATE },
        { "172.31.255.255", SBX_NETWORK_PRIVATE },
        { "172.32.0.0", SBX_NETWORK_PUBLIC },
        { "192.0.0.8", SBX_NETWORK_RESERVED },
        { "192.0.0.192", SBX_NETWORK_METADATA },
        { "192.0.1.1", SBX_NETWORK_PUBLIC },
        { "192.88.99.1", SBX_NETWORK_RESERVED },
        { "192.167.255.255", SBX_NETWORK_PUBLIC },
        { "192.168.0.1", SBX_NETWORK_PRIVATE },
        { "192.169.0.1", SBX_NETWORK_PUBLIC },
        { "198.17.255.255", SBX_NETWORK_PUBLIC },
        { "198.18.0.1", SBX_NETWORK_PRIVATE },
        { "198.19.255.255", SBX_NETWORK_PRIVATE },
        { "198.20.0.0", SBX_NETWORK_PUBLIC },
        { "223.255.255.255", SBX_NETWORK_PUBLIC },
        { "224.0.0.1", SBX_NETWORK_MULTICAST },
        { "239.255.255.255", SBX_NETWORK_MULTICAST },
        { "240.0.0.1", SBX_NETWORK_RESERVED },
        { "255.255.255.254", SBX_NETWORK_RESERVED },
        { "255.255.255.255", SBX_NETWORK_MULTICAST },

        { "2606:4700::1111", SBX_NETWORK_PUBLIC },
        { "2000::1", SBX_NETWORK_PUBLIC },
        { "3fff:ffff::1", SBX_NETWORK_PUBLIC },
        { "::", SBX_NETWORK_RESERVED },
        { "::1", SBX_NETWORK_LOOPBACK },
        { "::2", SBX_NETWORK_RESERVED },
        { "100::1", SBX_NETWORK_RESERVED },
        { "1fff::1", SBX_NETWORK_RESERVED },
        { "4000::1", SBX_NETWORK_RESERVED },
        { "5f00::1", SBX_NETWORK_RESERVED },
        { "8000::1", SBX_NETWORK_RESERVED },
        { "fbff::1", SBX_NETWORK_RESERVED },
        { "fc00::1", SBX_NETWORK_PRIVATE },
        { "fdff::1", SBX_NETWORK_PRIVATE },
        { "fe00::1", SBX_NETWORK_RESERVED },
        { "fe7f::1", SBX_NETWORK_RESERVED },
        { "fe80::1", SBX_NETWORK_LINK_LOCAL },
        { "febf::1", SBX_NETWORK_LINK_LOCAL },
        { "fec0::1", SBX_NETWORK_PRIVATE },
        { "feff::1", SBX_NETWORK_PRIVATE },
        { "ff02::1", SBX_NETWORK_MULTICAST },
        { "fd00:ec2::254", SBX_NETWORK_METADATA },
        { "fd00:ec2::23", SBX_NETWORK_METADATA },
        { "fd00:ec2::255", SBX_NETWORK_PRIVATE },
        { "fd20:ce::254", SBX_NETWORK_METADATA },
        { "fd00:42::42", SBX_NETWORK_METADATA },
        { "fe80::a9fe:a9fe", SBX_NETWORK_METADATA },
        { "2001:2::1", SBX_NETWORK_PRIVATE },
        { "2001:10::1", SBX_NETWORK_RESERVED },

        /* mapped, "compatible" */
        { "::ffff:8.8.8.8", SBX_NETWORK_PUBLIC },
        { "::ffff:127.0.0.1", SBX_NETWORK_LOOPBACK },
        { "::ffff:169.254.169.254", SBX_NETWORK_METADATA },
        { "::127.0.0.1", SBX_NETWORK_LOOPBACK },
        { "::10.0.0.1", SBX_NETWORK_PRIVATE },
        { "::8.8.8.8", SBX_NETWORK_RESERVED },

        /* NAT64 */
        { "64:ff9b::8.8.8.8", SBX_NETWORK_PUBLIC },
        { "64:ff9b::127.0.0.1", SBX_NETWORK_LOOPBACK },
        { "64:ff9b::10.1.2.3", SBX_NETWORK_PRIVATE },
        { "64:ff9b::169.254.169.254", SBX_NETWORK_METADATA },
        { "64:ff9b::1:0:0", SBX_NETWORK_RESERVED },
        { "64:ff9b:1::8.8.8.8", SBX_NETWORK_PUBLIC },
        { "64:ff9b:1::192.168.0.1", SBX_NETWORK_PRIVATE },
        { "64:ff9b:1:a00:0:100::", SBX_NETWORK_RESERVED },
        { "64:ff9b:1:0:a:0:800:0", SBX_NETWORK_RESERVED },
        { "64:ff9b:2::8.8.8.8", SBX_NETWORK_RESERVED },

        /* 6to4 */
        { "2002:808:808::1", SBX_NETWORK_PUBLIC },
        { "2002:7f00:1::1", SBX_NETWORK_LOOPBACK },
        { "2002:a00:1::1", SBX_NETWORK_PRIVATE },
        { "2002:a9fe:a9fe::", SBX_NETWORK_METADATA },
        { "2002:c000:204::1", SBX_NETWORK_PUBLIC },

        /* Teredo: 8.8.8.8 and 192.0.2.45, then one of them not public */
        { "2001:0:808:808:8000:63bf:3fff:fdd2", SBX_NETWORK_PUBLIC },
        { "2001:0:a00:1:8000:63bf:3fff:fdd2", SBX_NETWORK_PRIVATE },
        { "2001:0:808:808:8000:63bf:80ff:fffe", SBX_NETWORK_LOOPBACK },

        /* ISATAP */
        { "2600::5efe:8.8.8.8", SBX_NETWORK_PUBLIC },
        { "2600::5efe:10.0.0.1", SBX_NETWORK_PRIVATE },
        { "2600::200:5efe:127.0.0.1", SBX_NETWORK_LOOPBACK },
        { "2600::100:5efe:127.0.0.1", SBX_NETWORK_PUBLIC },
        { "fe80::5efe:8.8.8.8", SBX_NETWORK_LINK_LOCAL }
    };

    for (i = 0; i < sbx_nelts(cases); i++) {
        address_of(cases[i].address, address);
        class = sbx_network_class(address);

        ok(class == cases[i].class, "%s is %s%s%s", cases[i].address,
           sbx_network_class_word(cases[i].class),
           class == cases[i].class ? "" : " # is ",
           class == cases[i].class ? "" : sbx_network_class_word(class));
    }

    is_str(sbx_network_class_word(SBX_NETWORK_LINK_LOCAL), "link-local",
           "a kind's word");
    is_str(sbx_network_class_word(99), "unknown", "of no kind");
}


static void
test_print(void)
{
    char     buf[46];
    uint8_t  address[16];

    address_of("192.0.2.1", address);
    is_str(sbx_network_address_print(address, buf), "192.0.2.1", "IPv4");
    address_of("2001:db8:0:0::1", address);
    is_str(sbx_network_address_print(address, buf), "2001:db8::1", "IPv6");
    address_of("ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", address);
    ok(strlen(sbx_network_address_print(address, buf)) < sizeof(buf),
       "the longest");
}


/*
 * ---- lists ----------------------------------------------------------------
 */

static void
check_is(const char *rules, size_t size, int expected, const char *name)
{
    sbx_error_t  e;

    memset(&e, 0, sizeof(sbx_error_t));

    ok(sbx_network_check(rules, size, &e) == expected
       && (expected == 0 || e.code == SBX_E_INVALID), "%s%s%s", name,
       expected ? ": " : "", e.text);
}


static void
test_check(void)
{
    char      many[SBX_NETWORK_SIZE + 64];
    size_t    n;
    unsigned  i;

    check_is("", 0, 0, "no rules");
    check_is(NULL, 0, 0, "nothing");
    check_is(BYTES("aa.org\0"), 0, "one rule");
    check_is(BYTES("aa.org:443\0d*.b.org\0a10.0.0.0/8\0"), 0, "three rules");
    check_is(BYTES("f\0aa.org\0"), 0, "allow first");
    check_is(BYTES("aa.org\0f\0"), -1, "that not first");
    check_is(BYTES("f\0f\0"), -1, "that twice");
    check_is(BYTES("fx\0"), -1, "that with a text");
    check_is(BYTES("aa.org"), -1, "no NUL");
    check_is(BYTES("a"), -1, "a type alone");
    check_is(BYTES("a\0"), -1, "an empty rule");
    check_is(BYTES("xa.org\0"), -1, "another type");
    check_is(BYTES("aA.org\0"), -1, "upper case");
    check_is(BYTES("a192.0.2.1/32\0"), -1, "another form");
    check_is(BYTES("aa.org\0\0"), -1, "more after it");

    for (n = 0, i = 0; i < SBX_NETWORK_RULES_MAX + 1; i++) {
        memcpy(many + n, "aa.org\0", 7);
        n += 7;
    }

    check_is(many, n - 7, 0, "as many as there may be");
    check_is(many, n, -1, "one more");
    memmove(many + 2, many, n - 7);
    memcpy(many, "f\0", 2);
    check_is(many, n - 5, 0, "what is allowed first is no rule more");
    check_is(many, sizeof(many), -1, "too many bytes");
}


static void
test_list(void)
{
    sbx_error_t         e;
    sbx_network_list_t  list;

    ok(sbx_network_list("", 0, &list, &e) == 0 && list.n == 0
       && !list.allows && !list.allow_first, "an empty list");
    sbx_network_list_free(&list);

    ok(sbx_network_list(BYTES("da.org\0"), &list, &e) == 0 && list.n == 1
       && list.rules[0].deny && !list.allows, "one that denies");
    sbx_network_list_free(&list);
    ok(list.rules == NULL && list.n == 0, "is gone");

    ok(sbx_network_list(BYTES("da.org\0ab.org\0"), &list, &e) == 0
       && list.allows && !list.allow_first, "one that allows");
    sbx_network_list_free(&list);

    ok(sbx_network_list(BYTES("f\0ax.org:1\0d10.0.0.0/8\0"), &list, &e) == 0
       && list.n == 2 && !list.allows && list.allow_first
       && !list.rules[0].deny && list.rules[0].port == 1
       && strcmp(list.rules[0].host, "x.org") == 0 && list.rules[1].deny
       && list.rules[1].bits == 104, "one whose allows are exceptions");
    sbx_network_list_free(&list);

    ok(sbx_network_list(BYTES("ax.org\0a!\0"), &list, &e) == -1
       && list.rules == NULL, "what is malformed is none");
}


static void
say_host(const char *rules, size_t size, const char *host, unsigned port,
    sbx_network_say_t expected)
{
    sbx_error_t         e;
    sbx_network_list_t  list;

    if (sbx_network_list(rules, size, &list, &e) != 0) {
        abort();
    }

    ok(sbx_network_say_host(&list, host, port) == expected,
       "%s:%u is %d", host, port, expected);
    sbx_network_list_free(&list);
}


static void
test_say_host(void)
{
    say_host("", 0, "a.org", 443, SBX_NETWORK_SILENT);
    say_host(BYTES("aa.org\0"), "a.org", 443, SBX_NETWORK_ALLOWED);
    say_host(BYTES("aa.org\0"), "x.a.org", 443, SBX_NETWORK_SILENT);
    say_host(BYTES("aa.org\0"), "a.orgx", 443, SBX_NETWORK_SILENT);
    say_host(BYTES("aa.org:443\0"), "a.org", 443, SBX_NETWORK_ALLOWED);
    say_host(BYTES("aa.org:443\0"), "a.org", 80, SBX_NETWORK_SILENT);
    say_host(BYTES("aa.org:443\0"), "a.org", 0, SBX_NETWORK_ALLOWED);
    say_host(BYTES("a*.a.org\0"), "x.a.org", 1, SBX_NETWORK_ALLOWED);
    say_host(BYTES("a*.a.org\0"), "x.y.a.org", 1, SBX_NETWORK_ALLOWED);
    say_host(BYTES("a*.a.org\0"), "a.org", 1, SBX_NETWORK_SILENT);
    say_host(BYTES("a*.a.org\0"), "xa.org", 1, SBX_NETWORK_SILENT);
    say_host(BYTES("a*.a.org\0"), ".a.org", 1, SBX_NETWORK_SILENT);
    say_host(BYTES("a*\0"), "x", 1, SBX_NETWORK_ALLOWED);
    say_host(BYTES("a192.0.2.0/24\0"), "x", 1, SBX_NETWORK_SILENT);

    say_host(BYTES("a*\0da.org\0"), "a.org", 1, SBX_NETWORK_DENIED);
    say_host(BYTES("da.org\0a*\0"), "a.org", 1, SBX_NETWORK_DENIED);
    say_host(BYTES("da.org\0a*\0"), "b.org", 1, SBX_NETWORK_ALLOWED);
    say_host(BYTES("da.org:80\0a*\0"), "a.org", 80, SBX_NETWORK_DENIED);
    say_host(BYTES("da.org:80\0a*\0"), "a.org", 443, SBX_NETWORK_ALLOWED);
    say_host(BYTES("da.org:80\0a*\0"), "a.org", 0, SBX_NETWORK_ALLOWED);
    say_host(BYTES("da.org\0a*\0"), "a.org", 0, SBX_NETWORK_DENIED);
    say_host(BYTES("d*\0aa.org\0"), "a.org", 0, SBX_NETWORK_DENIED);

    say_host(BYTES("f\0d*\0aa.org\0"), "a.org", 1, SBX_NETWORK_ALLOWED);
    say_host(BYTES("f\0d*\0aa.org\0"), "b.org", 1, SBX_NETWORK_DENIED);
    say_host(BYTES("f\0aa.org\0"), "b.org", 1, SBX_NETWORK_SILENT);
}


static void
say_address(const char *rules, size_t size, const char *s, unsigned port,
    sbx_network_say_t expected, int means)
{
    uint8_t             address[16];
    sbx_error_t         e;
    sbx_network_list_t  list;

    if (sbx_network_list(rules, size, &list, &e) != 0) {
        abort();
    }

    address_of(s, address);

    ok(sbx_network_say_address(&list, address, port) == expected,
       "%s:%u is %d", s, port, expected);
    ok(sbx_network_means(&list, address, port) == means, "and is%s meant",
       means ? "" : " not");
    sbx_network_list_free(&list);
}


static void
test_say_address(void)
{
    const sbx_network_say_t  S = SBX_NETWORK_SILENT,
                             A = SBX_NETWORK_ALLOWED,
                             D = SBX_NETWORK_DENIED;

    say_address("", 0, "8.8.8.8", 53, S, 0);
    say_address(BYTES("aa.org\0"), "8.8.8.8", 53, S, 0);
    say_address(BYTES("a*\0"), "8.8.8.8", 53, A, 0);
    say_address(BYTES("a*:443\0"), "8.8.8.8", 53, S, 0);
    say_address(BYTES("a*:443\0"), "8.8.8.8", 443, A, 0);
    say_address(BYTES("a*\0"), "2600::1", 53, A, 0);
    say_address(BYTES("a*\0"), "10.0.0.1", 53, S, 0);
    say_address(BYTES("a*\0"), "64:ff9b::10.0.0.1", 53, S, 0);
    say_address(BYTES("d*\0"), "10.0.0.1", 53, D, 0);
    say_address(BYTES("a10.0.0.0/8\0d*:25\0"), "10.0.0.1", 25, D, 1);

    say_address(BYTES("a8.8.8.0/24\0"), "8.8.8.8", 53, A, 1);
    say_address(BYTES("a8.8.8.0/24\0"), "8.8.9.8", 53, S, 0);
    say_address(BYTES("a8.8.8.8:53\0"), "8.8.8.8", 54, S, 0);
    say_address(BYTES("a8.8.8.8:53\0"), "8.8.8.8", 0, A, 1);
    say_address(BYTES("a8.0.0.0/5\0d8.8.8.8\0"), "8.8.8.8", 53, D, 1);
    say_address(BYTES("f\0a8.8.8.8\0d0.0.0.0/0\0"), "8.8.8.8", 53, A, 1);
    say_address(BYTES("f\0a8.8.8.8\0d0.0.0.0/0\0"), "8.8.4.4", 53, D, 0);

    /* the families are apart */
    say_address(BYTES("a::/0\0"), "8.8.8.8", 53, S, 0);
    say_address(BYTES("a::/0\0"), "2600::1", 53, A, 1);
    say_address(BYTES("a0.0.0.0/0\0"), "2600::1", 53, S, 0);
    say_address(BYTES("a0.0.0.0/0\0"), "8.8.8.8", 53, A, 1);

    /* what is special is meant by what lies within its block */
    say_address(BYTES("a0.0.0.0/0\0"), "10.0.0.1", 53, A, 0);
    say_address(BYTES("a10.0.0.0/7\0"), "10.0.0.1", 53, A, 0);
    say_address(BYTES("a10.0.0.0/8\0"), "10.0.0.1", 53, A, 1);
    say_address(BYTES("a10.0.0.1\0"), "10.0.0.1", 53, A, 1);
    say_address(BYTES("a10.0.0.1:80\0"), "10.0.0.1", 53, S, 0);
    say_address(BYTES("d10.0.0.1\0"), "10.0.0.1", 53, D, 0);
    say_address(BYTES("a169.254.0.0/16\0"), "169.254.1.1", 80, A, 1);
    say_address(BYTES("a169.254.0.0/16\0"), "169.254.169.254", 80, A, 0);
    say_address(BYTES("a169.254.169.254\0"), "169.254.169.254", 80, A, 1);
    say_address(BYTES("afc00::/7\0"), "fd00:ec2::254", 80, A, 0);
    say_address(BYTES("a127.0.0.0/8\0"), "127.0.0.1", 80, A, 1);
    say_address(BYTES("a127.0.0.0/8\0"), "64:ff9b::127.0.0.1", 80, S, 0);
    say_address(BYTES("a64:ff9b::/96\0"), "64:ff9b::127.0.0.1", 80, A, 0);
    say_address(BYTES("a64:ff9b::7f00:0/104\0"), "64:ff9b::127.0.0.1", 80, A,
                1);
    say_address(BYTES("a2002::/16\0"), "2002:a00:1::1", 80, A, 0);
    say_address(BYTES("a2002:a00::/24\0"), "2002:a00:1::1", 80, A, 1);
}


static void
test_words(void)
{
    unsigned  i;

    for (i = 0; i < SBX_REFUSED_REASONS; i++) {
        ok(strlen(sbx_refused_word(i)) > 3
           && strcmp(sbx_refused_word(i), "unknown") != 0, "%s",
           sbx_refused_word(i));
    }

    is_str(sbx_refused_word(i), "unknown", "a reason that is none");
}


int
main(void)
{
    test_rules();
    test_hosts();
    test_within();
    test_class();
    test_print();
    test_check();
    test_list();
    test_say_host();
    test_say_address();
    test_words();

    return done_testing();
}
