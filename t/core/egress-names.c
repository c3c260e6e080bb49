/*
 * What was looked up for a session, and answers that are kept: how long, how
 * many, and which make way.  The clock is the test's.
 */

#include "dns.h"
#include "tap.h"

#include <string.h>


static uint64_t  clock_us = 1000000;
static uint64_t  test_now(void);


#define sbx_now_us  test_now

#include "names.c"
#include "dns_cache.c"

#undef sbx_now_us


static sbx_eg_session_t  s;


static uint64_t
test_now(void)
{
    return clock_us;
}


static void
later(unsigned seconds)
{
    clock_us += (uint64_t) seconds * 1000000;
}


static const uint8_t *
address_of(unsigned n)
{
    static uint8_t  address[16];

    memset(address, 0, 16);
    memset(address + 10, 0xff, 2);
    address[12] = 203;
    address[13] = (uint8_t) (n >> 16);
    address[14] = (uint8_t) (n >> 8);
    address[15] = (uint8_t) n;

    return address;
}


static unsigned
names_of(unsigned n)
{
    size_t    at;
    unsigned  found;

    at = 0;
    found = 0;

    while (sbx_eg_names_next(&s, address_of(n), &at)) {
        found++;
    }

    return found;
}


static void
test_names(void)
{
    size_t       at;
    const char  *name;

    (void) sbx_eg_names_open(&s);
    is_int(names_of(1), 0, "nothing was looked up");
    ok(!sbx_eg_names_has(&s, "a.test", address_of(1)), "no name has it");

    sbx_eg_names_add(&s, "a.test", address_of(1), 10);
    sbx_eg_names_add(&s, "b.test", address_of(1), 10);
    sbx_eg_names_add(&s, "a.test", address_of(2), 300);

    ok(sbx_eg_names_has(&s, "a.test", address_of(1)), "a name has an address");
    ok(sbx_eg_names_has(&s, "a.test", address_of(2)), "and another one");
    ok(!sbx_eg_names_has(&s, "b.test", address_of(2)), "that is not b's");
    is_int(names_of(1), 2, "an address has two names");
    is_int(names_of(2), 1, "or one");
    is_int(names_of(3), 0, "or none");

    at = 0;
    name = sbx_eg_names_next(&s, address_of(2), &at);
    is_str(name, "a.test", "which is told");
    ok(sbx_eg_names_next(&s, address_of(2), &at) == NULL, "once");

    later(119);
    ok(sbx_eg_names_has(&s, "a.test", address_of(1)),
       "for two minutes at least");
    later(2);
    ok(!sbx_eg_names_has(&s, "a.test", address_of(1)), "and not for longer");
    is_int(names_of(1), 0, "so it has no names");
    ok(sbx_eg_names_has(&s, "a.test", address_of(2)),
       "or for as long as it was said");

    sbx_eg_names_add(&s, "a.test", address_of(2), 1);
    later(150);
    ok(sbx_eg_names_has(&s, "a.test", address_of(2)),
       "a later answer takes none of it away");
    later(40);
    is_int(names_of(2), 0, "it ends");
    sbx_eg_names_add(&s, "a.test", address_of(2), 1);
    is_int(names_of(2), 1, "and may begin anew");

    sbx_eg_names_close(&s);
    is_int(names_of(2), 0, "a session that is closed has none");
    sbx_eg_names_add(&s, "a.test", address_of(2), 1);
    ok(!sbx_eg_names_has(&s, "a.test", address_of(2)), "nor is given any");
}


static void
test_bounds(void)
{
    char      name[64];
    unsigned  i, n;

    (void) sbx_eg_names_open(&s);

    /* addresses of one name */

    for (i = 0; i < 100; i++) {
        sbx_eg_names_add(&s, "many.test", address_of(i), 300);
    }

    for (i = 0, n = 0; i < 100; i++) {
        n += sbx_eg_names_has(&s, "many.test", address_of(i)) != 0;
    }

    is_int(n, SBX_NAMES_OF_HOST, "a name has so many addresses");
    ok(sbx_eg_names_has(&s, "many.test", address_of(99))
       && !sbx_eg_names_has(&s, "many.test", address_of(0)),
       "the oldest make way");

    /* names */

    for (i = 0; i < SBX_NAMES_HOSTS - 1; i++) {
        (void) snprintf(name, sizeof(name), "n%u.test", i);
        sbx_eg_names_add(&s, name, address_of(1000 + i), 300);
    }

    ok(sbx_eg_names_has(&s, "many.test", address_of(99)), "as many names");
    sbx_eg_names_add(&s, "n0.test", address_of(1000), 300);
    sbx_eg_names_add(&s, "x.test", address_of(5000), 300);
    sbx_eg_names_add(&s, "y.test", address_of(5000), 300);
    is_int(s.names->by_name.n, SBX_NAMES_HOSTS, "there are no more of them");
    ok(!sbx_eg_names_has(&s, "many.test", address_of(99)),
       "the oldest goes, with its addresses");
    ok(!sbx_eg_names_has(&s, "n1.test", address_of(1001)), "then the next");
    ok(sbx_eg_names_has(&s, "n0.test", address_of(1000)),
       "not one that was just asked for");
    is_int(names_of(99), 0, "what has gone is no address's name");

    /* and addresses in all: those of names that are old */

    for (i = 0; i < SBX_NAMES_PAIRS; i++) {
        (void) snprintf(name, sizeof(name), "p%u.test", i / 60);
        sbx_eg_names_add(&s, name, address_of(10000 + i), 300);
    }

    is_int(s.names->by_address.n, SBX_NAMES_PAIRS, "addresses are bounded");
    ok(!sbx_eg_names_has(&s, "x.test", address_of(5000)), "the oldest go");
    ok(sbx_eg_names_has(&s, "p0.test", address_of(10000)), "the new stay");
    is_int(s.names->by_name.n, SBX_NAMES_PAIRS / 60 + 1,
           "a name without addresses is none");

    /* a thousand names for one address, each of which is found */

    sbx_eg_names_close(&s);
    (void) sbx_eg_names_open(&s);

    for (i = 0; i < SBX_NAMES_HOSTS; i++) {
        (void) snprintf(name, sizeof(name), "n%u.test", i);
        sbx_eg_names_add(&s, name, address_of(7), 300);
    }

    is_int(names_of(7), SBX_NAMES_HOSTS, "an address may have many names");
    sbx_eg_names_close(&s);
}


static void
test_cache(void)
{
    char              name[64];
    unsigned          i;
    sbx_dns_cache_t   cache;
    sbx_dns_answer_t  answer, got;

    (void) sbx_dns_cache_open(&cache);
    memset(&answer, 0, sizeof(answer));
    answer.n = 2;
    answer.ttl = 10;
    memcpy(answer.address[1], address_of(2), 16);

    ok(!sbx_dns_cache_get(&cache, "a.test", SBX_DNS_A, &got), "none is kept");
    ok(!sbx_dns_cache_knows(&cache, "a.test"), "nor known");

    sbx_dns_cache_put(&cache, "a.test", SBX_DNS_A, &answer);
    ok(sbx_dns_cache_get(&cache, "a.test", SBX_DNS_A, &got)
       && got.n == 2 && got.code == 0 && got.ttl == 10
       && memcmp(got.address[1], address_of(2), 16) == 0,
       "what is kept is what was answered");
    ok(!sbx_dns_cache_get(&cache, "a.test", SBX_DNS_AAAA, &got),
       "of its type");
    ok(!sbx_dns_cache_get(&cache, "a.tes", SBX_DNS_A, &got), "of its name");

    later(4);
    ok(sbx_dns_cache_get(&cache, "a.test", SBX_DNS_A, &got) && got.ttl == 6,
       "for what is left");
    later(6);
    ok(!sbx_dns_cache_get(&cache, "a.test", SBX_DNS_A, &got),
       "and then no more");
    ok(sbx_dns_cache_knows(&cache, "a.test"), "though it is known");

    answer.n = 1;
    answer.ttl = 0;
    sbx_dns_cache_put(&cache, "a.test", SBX_DNS_A, &answer);
    ok(!sbx_dns_cache_get(&cache, "a.test", SBX_DNS_A, &got),
       "an answer of the moment is none of the next");
    is_int(cache.table.n, 1, "it takes the place of the one before");

    answer.ttl = 3000;

    for (i = 0; i < SBX_DNS_KEPT; i++) {
        (void) snprintf(name, sizeof(name), "n%u.test", i);
        sbx_dns_cache_put(&cache, name, SBX_DNS_A, &answer);

        if (i == SBX_DNS_KEPT - 2) {
            (void) sbx_dns_cache_get(&cache, "a.test", SBX_DNS_A, &got);
        }
    }

    is_int(cache.table.n, SBX_DNS_KEPT, "answers are bounded");
    ok(sbx_dns_cache_knows(&cache, "a.test")
       && !sbx_dns_cache_knows(&cache, "n0.test"),
       "those that are not used make way");

    sbx_dns_cache_close(&cache);
}


/* The reference's own example: bytes 0 .. 15 as key, 0 .. 14 as text. */

static void
test_hash(void)
{
    unsigned      i;
    uint8_t       text[15];
    sbx_eg_key_t  key;

    for (i = 0; i < 16; i++) {
        ((uint8_t *) &key)[i] = (uint8_t) i;
        text[i % 15] = (uint8_t) (i % 15);
    }

    is_int((int64_t) sbx_eg_hash(&key, text, 15),
           (int64_t) 0xa129ca6149be45e5, "SipHash as its authors have it");
}


int
main(void)
{
    test_hash();
    test_names();
    test_bounds();
    test_cache();

    return done_testing();
}
