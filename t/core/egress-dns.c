/* DNS of sessions over UDP: what is answered, to whom, and from where. */

#include "dns_test.h"


static unsigned  turn;


/*
 * ---- what the name server says ---------------------------------------------
 */

static void
say_cname(asked_t *a, const char *name, uint32_t ttl, const char *target)
{
    size_t    before, len;
    asked_t  *b;

    /* its wire form, in a place of its own */

    b = calloc(1, sizeof(asked_t));
    before = b->size;
    put_name(b, target);
    len = b->size - before;
    say_record(a, 6, name, SBX_DNS_CNAME, ttl, b->p, len);
    free(b);
}


static int
say_none(asked_t *a)
{
    say_head(a, SBX_DNS_NXDOMAIN);
    say_soa(a, 300, 300);

    return 1;
}


static int
say_none_untold(asked_t *a)
{
    say_head(a, SBX_DNS_NXDOMAIN);

    return 1;
}


static int
say_empty(asked_t *a)
{
    say_head(a, 0);
    say_soa(a, 300, 300);

    return 1;
}


/* Public first, then the network that the host is in; not to be kept. */
static int
say_rebinding(asked_t *a)
{
    say_head(a, 0);
    say_address(a, a->name, 0, turn++ ? "10.0.0.1" : "203.0.113.9");

    return 1;
}


static int
say_mixed(asked_t *a)
{
    say_head(a, 0);

    if (a->type == SBX_DNS_A) {
        say_address(a, a->name, 9, "10.0.0.1");
        say_address(a, a->name, 9, "203.0.113.2");
        say_address(a, a->name, 9, "127.0.0.1");
        say_address(a, a->name, 9, "203.0.113.2");
        say_address(a, a->name, 9, "240.0.0.7");
        say_address(a, "other.ok.test", 9, "203.0.113.3");

    } else {
        say_address(a, a->name, 9, "fd00::1");
        say_address(a, a->name, 9, "::1");
    }

    return 1;
}


static int
say_local(asked_t *a)
{
    say_head(a, 0);
    say_address(a, a->name, 9, "127.1.2.3");

    return 1;
}


static int
say_chain(asked_t *a)
{
    say_head(a, 0);
    say_cname(a, a->name, 50, "a.cdn.example");
    say_cname(a, "A.cdn.Example", 7, "b.cdn.example");
    say_address(a, "b.CDN.example", 90, "203.0.113.4");
    say_address(a, "a.cdn.example", 90, "203.0.113.5");

    return 1;
}


/* turn links, and then an address. */
static int
say_links(asked_t *a)
{
    char      name[256], next[256];
    unsigned  i;

    say_head(a, 0);
    (void) snprintf(name, sizeof(name), "%s", a->name);

    for (i = 0; i < turn; i++) {
        (void) snprintf(next, sizeof(next), "l%u.example", i);
        say_cname(a, name, 60, next);
        memcpy(name, next, sizeof(name));
    }

    say_address(a, name, 60, "203.0.113.6");

    return 1;
}


static int
say_loop(asked_t *a)
{
    unsigned  i;

    say_head(a, 0);

    for (i = 0; i < 30; i++) {
        say_cname(a, a->name, 60, a->name);
    }

    return 1;
}


static int
say_huge(asked_t *a)
{
    unsigned  i;
    char      text[INET6_ADDRSTRLEN];

    say_head(a, a->tcp ? 0 : 0x0200);

    for (i = 1; i <= 1000 && a->tcp; i++) {
        (void) snprintf(text, sizeof(text), a->type == SBX_DNS_A
                        ? "198.51.%u.%u" : "2001:db8:%x::%x", i / 250,
                        i % 250);
        say_address(a, a->name, 60, text);
    }

    return 1;
}


static int
say_cut(asked_t *a)
{
    say_head(a, 0x0200);

    return !a->tcp;
}


static int
say_code(asked_t *a)
{
    say_head(a, turn);

    return 1;
}


/* What the name says is wrong with it. */
static int
say_wrong(asked_t *a)
{
    if (strncmp(a->name, "id.", 3) == 0) {
        say_one(a);
        a->p[1]++;

    } else if (strncmp(a->name, "question.", 9) == 0) {
        say_one(a);
        a->p[13] = 'x';

    } else if (strncmp(a->name, "garbage.", 8) == 0) {
        memset(a->p + 2, 0xff, 300);
        a->size = 300;

    } else if (strncmp(a->name, "short.", 6) == 0) {
        say_one(a);
        a->size -= 3;

    } else if (strncmp(a->name, "pointer.", 8) == 0) {
        say_head(a, 0);
        a->p[7] = 1;
        put16(a, 0xc000 | a->size);
        a->size += 20;

    } else if (strncmp(a->name, "size.", 5) == 0) {
        say_head(a, 0);
        say_record(a, 6, a->name, SBX_DNS_A, 60, "12345", 5);

    } else if (strncmp(a->name, "echo.", 5) == 0) {
        a->size = a->end;

    } else if (strncmp(a->name, "zero.", 5) == 0) {
        a->size = 0;

    } else if (strncmp(a->name, "both.", 5) == 0) {
        say_head(a, SBX_DNS_NXDOMAIN);
        say_address(a, a->name, 9, "203.0.113.1");

    } else {
        return 0;
    }

    return 1;
}


/* One that knows no EDNS0. */
static int
say_old(asked_t *a)
{
    if (a->opt == 0) {
        return say_one(a);
    }

    say_head(a, SBX_DNS_FORMERR);

    return 1;
}


/*
 * ---- tests -----------------------------------------------------------------
 */

static int
noted(session_t *session, const char *name, const char *text)
{
    uint8_t  address[16];

    memset(address, 0, 16);

    if (inet_pton(AF_INET6, text, address) != 1) {
        memset(address + 10, 0xff, 2);
        (void) inet_pton(AF_INET, text, address + 12);
    }

    return sbx_eg_names_has(&session->s, name, address);
}


static void
test_allowed(void)
{
    answer_t  *answer;

    forget();
    say = say_one;
    answer = ask(&one, "A.oK.test", SBX_DNS_A);

    is_int(answer->code, SBX_DNS_NOERROR, "an allowed name is answered");
    is_str(answer->address[0], "203.0.113.1", "with its address");
    is_int(answer->ttl, 300, "and for how long it holds");
    ok(memcmp(answer->p + 12, "\1A\2oK\4test", 11) == 0,
       "the question is told as it was asked");
    is_str(asked_last, "a.ok.test", "the resolver is asked in lower case");
    ok(noted(&one, "a.ok.test", "203.0.113.1"), "what is given is noted");
    ok(!noted(&one, "a.ok.test", "203.0.113.2"), "other addresses are not");
    is_int(answer->edns, 0, "no EDNS0 where none is offered");
    is_int(one.traffic.queries, 1, "a query is counted");

    answer = ask(&one, "a.ok.test", SBX_DNS_AAAA);
    is_str(answer->address[0], "2001:db8::1", "an address of IPv6");
    ok(noted(&one, "a.ok.test", "2001:db8::1"), "is noted as well");

    ipv6 = 0;
    asked = 0;
    answer = ask(&one, "six.ok.test", SBX_DNS_AAAA);
    ok(answer->code == 0 && answer->n == 0 && asked == 0,
       "there are none where the host has no IPv6");
    ipv6 = 1;
}


static void
test_denied(void)
{
    unsigned   i;
    answer_t  *answer;
    static const unsigned  types[] = {
        SBX_DNS_A, SBX_DNS_AAAA, SBX_DNS_HTTPS, 16, 255
    };

    forget();
    say = say_one;

    for (i = 0; i < sbx_nelts(types); i++) {
        answer = ask(&one, "secret.evil.example", types[i]);
        is_int(answer->code, SBX_DNS_NXDOMAIN, "a denied name is none");
    }

    is_int(asked, 0, "no resolver hears of it");
    is_int(refusals[SBX_REFUSED_QUERY], 5, "each is told of");
    is_str(refused_name, "secret.evil.example", "by its name");

    answer = ask(&one, "notok.test", SBX_DNS_A);
    is_int(answer->code, SBX_DNS_NXDOMAIN, "so is one that ends alike");
}


static void
test_types(void)
{
    unsigned   i;
    answer_t  *answer;
    static const unsigned  types[] = {
        2, 5, 6, 10, 15, 16, 33, 35, 43, 48, 99, 251, 252, 255, 65280
    };

    forget();
    say = say_one;

    for (i = 0; i < sbx_nelts(types); i++) {
        answer = ask(&one, "a.ok.test", types[i]);
        ok(answer->code == SBX_DNS_REFUSED, "type %u is refused", types[i]);
    }

    is_int(refusals[SBX_REFUSED_QUERY], (int) sbx_nelts(types),
           "they are told of");

    answer = ask(&one, "a.ok.test", SBX_DNS_HTTPS);
    ok(answer->code == 0 && answer->n == 0, "HTTPS has no answer");
    answer = ask(&one, "a.ok.test", SBX_DNS_SVCB);
    ok(answer->code == 0 && answer->n == 0, "nor has SVCB");

    forget();
    answer = ask(&one, "1.113.0.203.in-addr.arpa", SBX_DNS_PTR);
    is_int(answer->code, SBX_DNS_NXDOMAIN, "an address has no name");
    is_int(refusals[SBX_REFUSED_QUERY], 0, "which is not told");
    is_int(asked, 0, "the resolver is asked for none of them");

    answer = ask(&one, "localhost", SBX_DNS_A);
    is_str(answer->address[0], "127.0.0.1", "localhost is the session's own");
    answer = ask(&one, "db.localhost", SBX_DNS_AAAA);
    is_str(answer->address[0], "::1", "of IPv6 too, and what is below it");
    answer = ask(&one, "localhost", SBX_DNS_HTTPS);
    ok(answer->code == 0 && answer->n == 0, "with addresses alone");
    is_int(asked, 0, "nobody is asked for it");
    answer = ask(&one, "mylocalhost", SBX_DNS_A);
    is_int(answer->code, SBX_DNS_NXDOMAIN, "mylocalhost is not");
}


static void
test_kept(void)
{
    answer_t  *answer;

    forget();
    say = say_one;

    (void) ask(&one, "kept.ok.test", SBX_DNS_A);
    answer = ask(&one, "KEPT.ok.test", SBX_DNS_A);
    is_int(asked, 1, "an answer is kept");
    ok(answer->n == 1 && answer->ttl > 290 && answer->ttl <= 300,
       "it holds for what is left");

    denied = "kept.ok.test";
    answer = ask(&one, "kept.ok.test", SBX_DNS_A);
    is_int(answer->code, SBX_DNS_NXDOMAIN,
           "a kept answer is no answer once its name is denied");
    denied = "";

    (void) ask(&two, "kept.ok.test", SBX_DNS_A);
    is_int(asked, 2, "another session's is not seen");
    ok(!noted(&two, "a.ok.test", "203.0.113.1"), "nor what it was given");
    ok(noted(&two, "kept.ok.test", "203.0.113.1"), "it has its own");

    say = say_none;
    answer = ask(&one, "none.ok.test", SBX_DNS_A);
    is_int(answer->code, SBX_DNS_NXDOMAIN, "a name that is not there");
    answer = ask(&one, "none.ok.test", SBX_DNS_A);
    is_int(answer->code, SBX_DNS_NXDOMAIN, "is none when asked again");
    is_int(asked, 3, "which is kept");

    say = say_empty;
    answer = ask(&one, "empty.ok.test", SBX_DNS_A);
    ok(answer->code == 0 && answer->n == 0, "a name without addresses");
    (void) ask(&one, "empty.ok.test", SBX_DNS_A);
    is_int(asked, 4, "is kept as one");

    say = say_none_untold;
    (void) ask(&one, "untold.ok.test", SBX_DNS_A);
    (void) ask(&one, "untold.ok.test", SBX_DNS_A);
    is_int(asked, 6, "without an SOA nothing is");
}


static void
test_addresses(void)
{
    answer_t  *answer;

    forget();
    say = say_rebinding;
    turn = 0;

    answer = ask(&one, "re.ok.test", SBX_DNS_A);
    is_str(answer->address[0], "203.0.113.9", "an answer that cannot be kept");
    answer = ask(&one, "re.ok.test", SBX_DNS_A);
    is_int(asked, 2, "is asked for again");
    ok(answer->code == SBX_DNS_NXDOMAIN && answer->n == 0,
       "an address that may not be reached makes the name none");
    is_int(refusals[SBX_REFUSED_ADDRESS], 1, "it is told of");
    is_str(refused_address, "10.0.0.1", "by its address");
    ok(!noted(&one, "re.ok.test", "10.0.0.1"), "and is not noted");
    ok(noted(&one, "re.ok.test", "203.0.113.9"), "the first still is");

    say = say_mixed;
    answer = ask(&one, "mixed.ok.test", SBX_DNS_A);
    is_int(answer->n, 1, "of several, what may be reached is given, once");
    is_str(answer->address[0], "203.0.113.2", "and is that one");
    ok(!noted(&one, "mixed.ok.test", "203.0.113.3"), "others' do not count");
    answer = ask(&one, "mixed.ok.test", SBX_DNS_AAAA);
    ok(answer->code == 0 && answer->n == 0,
       "that IPv6's are out of reach does not hide IPv4's");

    loopback = 1;
    say = say_local;
    answer = ask(&one, "local.ok.test", SBX_DNS_A);
    is_str(answer->address[0], "240.1.2.3", "the host's loopback is at 240/8");
    ok(noted(&one, "local.ok.test", "127.1.2.3"), "noted as what it is");
    answer = ask(&one, "mixed.ok.test", SBX_DNS_A);
    is_int(answer->n, 2, "what is kept is judged anew");
    loopback = 0;
    answer = ask(&one, "local.ok.test", SBX_DNS_A);
    is_int(answer->code, SBX_DNS_NXDOMAIN, "both ways");
}


static void
test_chains(void)
{
    answer_t  *answer;

    forget();
    say = say_chain;

    answer = ask(&one, "chain.ok.test", SBX_DNS_A);
    is_int(answer->n, 1, "aliases are followed to where they end");
    is_str(answer->address[0], "203.0.113.4", "to the address there");
    is_int(answer->ttl, 7, "which holds as long as each of them");
    ok(noted(&one, "chain.ok.test", "203.0.113.4"), "by the name asked for");
    ok(!noted(&one, "b.cdn.example", "203.0.113.4"), "not by the others");

    say = say_links;
    turn = 16;
    answer = ask(&one, "l16.ok.test", SBX_DNS_A);
    is_int(answer->n, 1, "sixteen aliases are followed");
    turn = 17;
    answer = ask(&one, "l17.ok.test", SBX_DNS_A);
    is_int(answer->code, SBX_DNS_SERVFAIL, "seventeen are not");

    say = say_loop;
    answer = ask(&one, "loop.ok.test", SBX_DNS_A);
    is_int(answer->code, SBX_DNS_SERVFAIL, "nor are those in a circle");
}


static void
test_sizes(void)
{
    answer_t  *answer;

    forget();
    say = say_huge;

    answer = ask_edns(&one, "huge.ok.test", SBX_DNS_A, 4096);
    is_int(asked, 2, "what is cut off is asked for over TCP");
    is_int(answer->n, 32, "of a thousand addresses some are given");
    is_int(answer->flags & 0x0200, 0, "as a whole answer");
    is_int(answer->edns, 1, "EDNS0 is answered with EDNS0");

    answer = ask(&one, "huge.ok.test", SBX_DNS_A);
    ok(answer->size <= 512 && (answer->flags & 0x0200) && answer->n == 30,
       "without it an answer has 512 bytes, and says that it is cut");
    answer = ask_edns(&one, "huge.ok.test", SBX_DNS_A, 100);
    ok(answer->size <= 512, "a smaller size than that is none");

    answer = ask_edns(&one, "huge.ok.test", SBX_DNS_AAAA, 1232);
    ok(answer->n == 32 && answer->size <= 1232, "IPv6's fit with EDNS0");
    answer = ask_edns(&one, "huge.ok.test", SBX_DNS_AAAA, 600);
    ok(answer->size <= 600 && (answer->flags & 0x0200),
       "in no more than is offered");

    say = say_cut;
    answer = ask(&one, "cut.ok.test", SBX_DNS_A);
    is_int(answer->code, SBX_DNS_SERVFAIL,
           "a resolver that closes over TCP has failed");

    say = say_old;
    answer = ask(&one, "old.ok.test", SBX_DNS_A);
    is_int(answer->n, 1, "a resolver without EDNS0 is asked without");
}


/*
 * Answers to something else are not heard, so their queries wait together; the
 * clock is put forward.
 */
static void
test_wrong(void)
{
    unsigned  i;
    static const char *const  at_once[] = {
        "short.ok.test", "pointer.ok.test", "size.ok.test", "both.ok.test",
        "echo.ok.test"
    };
    static const char *const  unheard[] = {
        "id.ok.test", "question.ok.test", "garbage.ok.test", "zero.ok.test",
        "silent.ok.test"
    };

    forget();
    say = say_wrong;

    for (i = 0; i < sbx_nelts(at_once); i++) {
        ok(ask(&one, at_once[i], SBX_DNS_A)->code == SBX_DNS_SERVFAIL,
           "%s fails at once", at_once[i]);
    }

    nanswers = 0;
    asked = 0;

    for (i = 0; i < sbx_nelts(unheard); i++) {
        send_question(&one, i, unheard[i], SBX_DNS_A, 0);
    }

    while (asked < sbx_nelts(unheard)) {
        turns(1);
    }

    turns(2);
    is_int(nanswers, 0, "answers to something else are not heard");

    time_over();
    ok(await(sbx_nelts(unheard)), "when the time is over, they are answered");

    for (i = 0; i < sbx_nelts(unheard); i++) {
        is_int(answers[i].code, SBX_DNS_SERVFAIL, "that it has failed");
    }

    is_int(one.s.dns->waiting, 0, "nobody waits any more");
    ok(one.s.dns->nlookups != 0, "the resolver may still answer");

    /* the real ones: what is asked from now on joins them */

    say = say_one;
    nanswers = 0;
    send_question(&one, 77, "silent.ok.test", SBX_DNS_A, 0);
    ok(await(1) && answers[0].n == 1, "an answer that is late is given");

    say = say_code;

    for (turn = 1; turn <= 5; turn++) {

        if (turn != SBX_DNS_NXDOMAIN) {
            ok(ask(&one, "code.ok.test", SBX_DNS_A)->code
               == SBX_DNS_SERVFAIL, "code %u of a resolver", turn);
        }
    }
}


static void
test_resolvers(void)
{
    int          fd;
    unsigned     closed;
    answer_t    *answer;
    sbx_error_t  e;
    char         text[256];

    closed = 0;
    fd = bound(SOCK_DGRAM, &closed);
    (void) close(fd);

    forget();
    say = say_one;
    (void) name_use(closed, 0);
    answer = ask(&one, "dead.ok.test", SBX_DNS_A);
    is_int(answer->code, SBX_DNS_SERVFAIL, "a resolver that is not there");

    (void) name_use(closed, name_port);
    answer = ask(&one, "next.ok.test", SBX_DNS_A);
    is_int(answer->n, 1, "the next one is asked");

    /* asked of one that is silent, answered by the one that is put there */

    say = say_nothing;
    (void) name_use(name_port, 0);
    nanswers = 0;
    asked = 0;
    send_question(&one, 5, "moved.ok.test", SBX_DNS_A, 0);

    while (asked == 0) {
        turns(1);
    }

    say = say_one;
    (void) name_use(name_port, closed);
    ok(await(1) && answers[0].n == 1, "what is asked goes on to new ones");

    /* port 53 of loopback is not ours to serve: that it is taken is enough */

    (void) snprintf(text, sizeof(text), "# nameserver 192.0.2.1\n"
                    "search x.example\nnameserver fe80::1%%eth0\n"
                    "nameserver\nnameserver \t127.0.0.1 # it\noptions a");
    is_int(sbx_eg_dns_configure(&eg, "", 0, text, strlen(text), &e), 0,
           "a resolv.conf is read");
    is_int(sbx_eg_dns_configure(&eg, "", 0, NULL, 0, &e), 0,
           "an empty one too");

    (void) name_use(name_port, 0);
    answer = ask(&one, "back.ok.test", SBX_DNS_A);
    is_int(answer->n, 1, "an operator's resolver is in its place");
}


static void
test_joined(void)
{
    forget();
    say = say_nothing;
    nanswers = 0;
    send_question(&one, 1, "join.ok.test", SBX_DNS_A, 0);
    send_question(&one, 2, "JOIN.ok.test", SBX_DNS_A, 0);
    send_question(&one, 1, "join.ok.test", SBX_DNS_A, 0);

    while (asked == 0 || one.s.dns->waiting < 2) {
        turns(1);
    }

    say = say_one;
    ok(await(2), "two queries for one name are answered");
    turns(3);
    is_int(nanswers, 2, "and one that was sent again, once");
    ok(answers[0].id + answers[1].id == 3 && answers[0].n == 1
       && answers[1].n == 1, "each with its id");
    is_int(asked, 2, "by the one question, which was asked twice");
}


/* Before its answer is there. */
static void
test_ended(void)
{
    session_t  three;

    forget();
    say = say_nothing;
    session_open(&three, "three");
    send_question(&three, 1, "gone.ok.test", SBX_DNS_A, 0);

    while (asked == 0) {
        turns(1);
    }

    say = say_one;
    session_close(&three);

    while (asked == 1) {
        turns(1);
    }

    turns(2);
    ok(1, "a session may end while it waits");
}


int
main(void)
{
    if (dns_start() == -1) {
        ok(0, "it starts");
        return done_testing();
    }

    session_open(&one, "one");
    session_open(&two, "two");

    test_allowed();
    test_denied();
    test_types();
    test_kept();
    test_addresses();
    test_chains();
    test_sizes();
    test_joined();
    test_resolvers();
    test_ended();
    test_wrong();

    session_close(&one);
    session_close(&two);
    dns_stop();

    return done_testing();
}
