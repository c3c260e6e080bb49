/* What a client says first, as it should and in all ways it should not. */

#include "tap.h"

#include "inspect.h"
#include "sandbox_util.h"

#include <time.h>


#define HELLO_MAX  70000


/* A ClientHello in the making. */
typedef struct {
    uint8_t  p[HELLO_MAX];
    size_t   n;
} bytes_t;

static bytes_t  hello;            /* without its record */
static bytes_t  wire;


static void
put(bytes_t *to, const void *p, size_t n)
{
    memcpy(to->p + to->n, p, n);
    to->n += n;
}


static void
put_number(bytes_t *to, size_t number, size_t bytes)
{
    while (bytes-- != 0) {
        to->p[to->n++] = (uint8_t) (number >> (bytes * 8));
    }
}


/* Extensions of the caller's, or none at all. */

static void
make_hello(const void *extensions, size_t n)
{
    size_t   length;
    uint8_t  random[32];

    memset(random, 0x5a, sizeof(random));
    hello.n = 0;

    length = 2 + 32 + 1 + 2 + 2 + 2 + (n != SIZE_MAX ? 2 + n : 0);

    put_number(&hello, 1, 1);
    put_number(&hello, length, 3);
    put_number(&hello, 0x0303, 2);
    put(&hello, random, sizeof(random));
    put_number(&hello, 0, 1);
    put_number(&hello, 2, 2);
    put_number(&hello, 0x1301, 2);
    put_number(&hello, 1, 1);
    put_number(&hello, 0, 1);

    if (n != SIZE_MAX) {
        put_number(&hello, n, 2);
        put(&hello, extensions, n);
    }
}


/* In records of step bytes. */

static void
make_records(size_t step)
{
    size_t  at, n;

    wire.n = 0;

    for (at = 0; at < hello.n; at += n) {
        n = hello.n - at < step ? hello.n - at : step;
        put_number(&wire, 22, 1);
        put_number(&wire, 0x0301, 2);
        put_number(&wire, n, 2);
        put(&wire, hello.p + at, n);
    }
}


static size_t
name_extension(uint8_t *to, const void *name, size_t n)
{
    static bytes_t  ext;

    ext.n = 0;
    put_number(&ext, 0, 2);
    put_number(&ext, n + 5, 2);
    put_number(&ext, n + 3, 2);
    put_number(&ext, 0, 1);
    put_number(&ext, n, 2);
    put(&ext, name, n);
    memcpy(to, ext.p, ext.n);

    return ext.n;
}


static void
make_named(const void *name, size_t n)
{
    uint8_t  ext[1024];

    make_hello(ext, name_extension(ext, name, n));
    make_records(16384);
}


static sbx_sniff_t
sniff(const void *p, size_t n, sbx_sniffed_t *out)
{
    uint8_t      *copy;
    sbx_sniff_t   what;

    /* its end is the end of memory that is ours */

    copy = malloc(n != 0 ? n : 1);
    memcpy(copy, p, n);
    what = sbx_sniff(copy, n, out);
    free(copy);

    return what;
}


static sbx_sniff_t
text(const char *s)
{
    sbx_sniffed_t  out;

    return sniff(s, strlen(s), &out);
}


static void
a_hello(void)
{
    size_t         i, wrong;
    uint8_t        ext[64];
    sbx_sniffed_t  out;

    make_named("Example.ORG", 11);
    is_int(sniff(wire.p, wire.n, &out), SBX_SNIFF_TLS, "a ClientHello");
    is_str(out.name, "example.org", "its name, in lower case");
    is_int(out.ech, 0, "without ECH");

    wrong = 0;

    for (i = 0; i < wire.n; i++) {
        wrong += (sniff(wire.p, i, &out) != SBX_SNIFF_MORE);
    }

    is_int((int64_t) wrong, 0, "nothing is said before it is whole");

    make_records(1);
    is_int(sniff(wire.p, wire.n, &out), SBX_SNIFF_TLS, "in records of a byte");
    is_str(out.name, "example.org", "its name too");

    put(&wire, "whatever", 8);
    is_int(sniff(wire.p, wire.n, &out), SBX_SNIFF_TLS,
           "what comes after it is not looked at");

    make_hello(NULL, SIZE_MAX);
    make_records(7);
    is_int(sniff(wire.p, wire.n, &out), SBX_SNIFF_TLS, "no extensions");
    is_str(out.name, "", "no name");

    i = name_extension(ext, "a.example", 9);
    memcpy(ext + i, "\xfe\x0d\0\0", 4);
    make_hello(ext, i + 4);
    make_records(5);
    is_int(sniff(wire.p, wire.n, &out), SBX_SNIFF_TLS, "with ECH");
    is_int(out.ech, 1, "which is told");

    memcpy(ext + i, "\xff\xce\0\0", 4);
    make_hello(ext, i + 4);
    make_records(5);
    (void) sniff(wire.p, wire.n, &out);
    is_int(out.ech, 1, "and so is what came before ECH");
}


static void
names(void)
{
    int            passed;
    char           name[300];
    size_t         i;
    uint8_t        ext[1024];
    sbx_sniffed_t  out;

    static const struct {
        const char  *name;
        size_t       n;
        const char  *what;
    } bad[] = {
        { "", 0, "an empty name" },
        { "a.example\0.b", 12, "a NUL in it" },
        { "a.example.", 10, "a dot at its end" },
        { "192.0.2.1", 9, "an address" },
        { "127.1", 5, "half an address" },
        { "2001:db8::1", 11, "an IPv6 address" },
        { "[::1]", 5, "one in brackets" },
        { "a example", 9, "a space" },
        { "a/b", 3, "a slash" },
        { "*.example", 9, "a wildcard" },
        { "a..example", 10, "an empty label" },
        { "\xc3\xa4.example", 10, "what is not ASCII" }
    };

    for (i = 0; i < sbx_nelts(bad); i++) {
        make_named(bad[i].name, bad[i].n);
        passed = sniff(wire.p, wire.n, &out) == SBX_SNIFF_BAD
                 && out.name[0] == '\0';
        ok(passed, "SNI: %s is refused", bad[i].what);
    }

    memset(name, 'a', sizeof(name));

    for (i = 50; i < 250; i += 50) {
        name[i] = '.';
    }

    make_named(name, 253);
    is_int(sniff(wire.p, wire.n, &out), SBX_SNIFF_TLS, "the longest name");
    make_named(name, 254);
    is_int(sniff(wire.p, wire.n, &out), SBX_SNIFF_BAD, "one too long");

    i = name_extension(ext, "a.example", 9);
    i += name_extension(ext + i, "a.example", 9);
    make_hello(ext, i);
    make_records(16384);
    is_int(sniff(wire.p, wire.n, &out), SBX_SNIFF_BAD, "the extension twice");

    make_hello("\0\0\0\x0e\0\x0c\0\0\3a.b\0\0\3c.d", 18);
    make_records(16384);
    is_int(sniff(wire.p, wire.n, &out), SBX_SNIFF_BAD, "two names in a list");

    make_hello("\0\0\0\x08\0\x06\1\0\3a.b", 12);
    make_records(16384);
    is_int(sniff(wire.p, wire.n, &out), SBX_SNIFF_BAD, "a name of no kind");

    make_hello("\0\0\0\0", 4);
    make_records(16384);
    is_int(sniff(wire.p, wire.n, &out), SBX_SNIFF_BAD, "no list");

    make_hello("\0\0\0\x09\0\x06\0\0\3a.bx", 13);
    make_records(16384);
    is_int(sniff(wire.p, wire.n, &out), SBX_SNIFF_BAD, "more than the list");
}


/* Every length that lies, by one more and by one less. */

static void
lengths(void)
{
    size_t         i, wrong;
    uint8_t        was;
    sbx_sniffed_t  out;

    /* in hello: of the message, the session id, ciphers, compression, all
     * extensions, the extension, the list, the name */

    static const size_t  at[] = { 3, 38, 40, 43, 46, 50, 52, 55 };

    wrong = 0;

    for (i = 0; i < 2 * sbx_nelts(at); i++) {
        make_named("a.example", 9);
        was = hello.p[at[i / 2]];
        hello.p[at[i / 2]] = (uint8_t) (was + (i % 2 ? 1 : -1));
        make_records(16384);

        /* a message that is longer than its record goes on in the next */

        if (sniff(wire.p, wire.n, &out)
            != (i == 1 ? SBX_SNIFF_MORE : SBX_SNIFF_BAD))
        {
            printf("# length at %zu, %zu\n", at[i / 2], i % 2);
            wrong++;
        }
    }

    is_int((int64_t) wrong, 0, "no length lies");

    make_named("a.example", 9);
    wire.p[1] = 2;
    is_int(sniff(wire.p, wire.n, &out), SBX_SNIFF_BAD, "no version of TLS");

    make_named("a.example", 9);
    wire.p[3] = 0x40;
    wire.p[4] = 0x01;
    is_int(sniff(wire.p, wire.n, &out), SBX_SNIFF_BAD, "too large a record");

    make_named("a.example", 9);
    make_records(20);
    wire.p[25 + 3] = 0;
    wire.p[25 + 4] = 0;
    is_int(sniff(wire.p, wire.n, &out), SBX_SNIFF_BAD, "a record of nothing");

    make_records(20);
    wire.p[25] = 23;
    is_int(sniff(wire.p, wire.n, &out), SBX_SNIFF_BAD,
           "another record within a message");

    make_named("a.example", 9);
    put_number(&hello, 0, 1);
    make_records(16384);
    is_int(sniff(wire.p, wire.n, &out), SBX_SNIFF_BAD,
           "another message in its last record");

    hello.p[0] = 2;
    make_records(16384);
    is_int(sniff(wire.p, 6, &out), SBX_SNIFF_BAD, "no ClientHello");

    make_named("a.example", 9);
    hello.p[1] = 1;
    hello.p[2] = 0;
    make_records(16384);
    is_int(sniff(wire.p, wire.n, &out), SBX_SNIFF_BAD,
           "a message that is never taken in");
}


static void
others(void)
{
    uint8_t        buf[SBX_EG_FIRST_MAX];
    sbx_sniffed_t  out;

    is_int(sniff("\x15\x03\x01\0\2\2\x28", 7, &out), SBX_SNIFF_BAD,
           "an alert first");
    is_int(sniff("\x17\x03\x03", 3, &out), SBX_SNIFF_BAD, "data first");
    is_int(sniff("\x80\x2e\x01\x03\x01\0\x15", 7, &out), SBX_SNIFF_BAD,
           "SSL 2");
    is_int(sniff("\x80\x2e\x04\x00\x01\0\x15", 7, &out), SBX_SNIFF_OTHER,
           "not SSL 2");
    is_int(sniff("\0\0\0\x08\x04\xd2\x16\x2f", 8, &out), SBX_SNIFF_OTHER,
           "a database's");
    is_int(text("SSH-2.0-OpenSSH_9.2p1 Debian-2\r\n"), SBX_SNIFF_OTHER,
           "a banner");
    is_int(text("EHLO mail.example\r\n"), SBX_SNIFF_OTHER, "mail");
    is_int(text("NICK somebody\r\n"), SBX_SNIFF_OTHER, "chat");
    is_int(text("*1\r\n$4\r\nPING\r\n"), SBX_SNIFF_OTHER, "a store");
    is_int(text("get key\r\n"), SBX_SNIFF_OTHER, "a cache");
    is_int(text("AMQP"), SBX_SNIFF_MORE, "a word that goes on");
    is_int(sniff("AMQP\0\0\x09\x01", 8, &out), SBX_SNIFF_OTHER, "a queue");
    is_int(text("<?xml version='1.0'?>"), SBX_SNIFF_OTHER, "a stream");

    is_int(text("PRI * HTTP/2.0\r\n"), SBX_SNIFF_OTHER, "HTTP/2");
    (void) sniff("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 24, &out);
    is_int(out.h2, 1, "which is told");

    is_int(sniff("\r\n\r\n\0\r\nQUIT\n", 12, &out), SBX_SNIFF_BAD,
           "another address in front");
    is_int(text("PROXY TCP4 192.0.2.1 192.0.2.2 1 2\r\n"), SBX_SNIFF_BAD,
           "and so in words");

    memset(buf, 'A', sizeof(buf));
    buf[3] = ' ';
    is_int(sniff(buf, sizeof(buf) - 1, &out), SBX_SNIFF_MORE,
           "a line may be long");
    is_int(sniff(buf, sizeof(buf), &out), SBX_SNIFF_BAD, "but has an end");
}


static void
requests(void)
{
    size_t  i;

    static const struct {
        sbx_sniff_t   what;
        const char   *text;
    } lines[] = {
        { SBX_SNIFF_MORE, "GET" },
        { SBX_SNIFF_MORE, "GET / HTTP/1.1\r" },
        { SBX_SNIFF_HTTP, "GET / HTTP/1.1\r\n" },
        { SBX_SNIFF_HTTP, "GET / HTTP/1.0\r\n" },
        { SBX_SNIFF_HTTP, "\r\n\nGET / HTTP/1.1\r\n" },
        { SBX_SNIFF_HTTP, "M-SEARCH * HTTP/1.1\r\n" },
        { SBX_SNIFF_HTTP, "GET http://a.example/ HTTP/1.1\r\n" },
        { SBX_SNIFF_HTTP, "CONNECT a.example:443 HTTP/1.1\r\n" },
        { SBX_SNIFF_HTTP, "GET /\xc3\xa4 HTTP/1.1\r\n" },
        { SBX_SNIFF_BAD, "get / HTTP/1.1\r\n" },
        { SBX_SNIFF_BAD, "Get / HTTP/1.1\r\n" },
        { SBX_SNIFF_BAD, "gEt /\r\n" },
        { SBX_SNIFF_BAD, "GET\t/ HTTP/1.1\r\n" },
        { SBX_SNIFF_BAD, "GET  / HTTP/1.1\r\n" },
        { SBX_SNIFF_BAD, "GET /  HTTP/1.1\r\n" },
        { SBX_SNIFF_BAD, "GET / HTTP/1.1 \r\n" },
        { SBX_SNIFF_BAD, "GET / HTTP/1.1\n" },
        { SBX_SNIFF_BAD, "GET / HTTP/1.1\rHost: a\r\n" },
        { SBX_SNIFF_BAD, "GET / http/1.1\r\n" },
        { SBX_SNIFF_BAD, "GET / HTTP/1.2\r\n" },
        { SBX_SNIFF_BAD, "GET / HTTP/0.9\r\n" },
        { SBX_SNIFF_BAD, "GET / HTTP/2.0\r\n" },
        { SBX_SNIFF_BAD, "GET / HTTP/11\r\n" },
        { SBX_SNIFF_BAD, "GET /\r\n" },
        { SBX_SNIFF_BAD, "GET /\n" },
        { SBX_SNIFF_BAD, "GET http://a.example/\r\n" },
        { SBX_SNIFF_BAD, "GET foo\r\n" },
        { SBX_SNIFF_BAD, "FOO / HTP/1.1\r\n" },
        { SBX_SNIFF_BAD, "FOO bar HTTP/1.1 HTTP/1.1\r\n" },
        { SBX_SNIFF_BAD, "FOO http://a.example/ RTSP/1.0\r\n" },
        { SBX_SNIFF_BAD, " GET / HTTP/1.1\r\n" },
        { SBX_SNIFF_BAD, "\tGET / HTTP/1.1\r\n" },
        { SBX_SNIFF_BAD, "\r\n GET / HTTP/1.1\r\n" },
        { SBX_SNIFF_BAD, " \r\nGET / HTTP/1.1\r\n" },
        { SBX_SNIFF_BAD, "\x0cGET / HTTP/1.1\r\n" },
        { SBX_SNIFF_BAD, "\x1cGET / HTTP/1.1\r\n" },
        { SBX_SNIFF_BAD, "\xa0GET / HTTP/1.1\r\n" },
        { SBX_SNIFF_BAD, "\x85GET\x85/\x85HTTP/1.1\r\n" },
        { SBX_SNIFF_BAD, "GET\x0b/ HTTP/1.1\r\n" },
        { SBX_SNIFF_BAD, "GET\xa0/ HTTP/1.1\r\n" },
        { SBX_SNIFF_BAD, "G(ET / HTTP/1.1\r\n" },
        { SBX_SNIFF_BAD, "GET /\x01 HTTP/1.1\r\n" },
        { SBX_SNIFF_BAD, "PRI * HTTP/2.0\n" },
        { SBX_SNIFF_BAD, "OPTIONS * RTSP/1.0\r\n" }
    };

    for (i = 0; i < sbx_nelts(lines); i++) {

        if (!ok(text(lines[i].text) == lines[i].what, "a line (%zu)", i + 1)) {
            printf("# %s", lines[i].text);
        }
    }
}


/* A client may send a byte at a time, and each time all is looked at. */

static void
cost(void)
{
    size_t         i;
    double         seconds;
    clock_t        from;
    sbx_sniffed_t  out;

    static uint8_t  buf[SBX_EG_FIRST_MAX];

    memset(buf, 'x', sizeof(buf));
    memcpy(buf, "GET /", 5);
    from = clock();

    for (i = 1; i <= sizeof(buf); i++) {
        (void) sbx_sniff(buf, i, &out);
    }

    seconds = (double) (clock() - from) / CLOCKS_PER_SEC;
    ok(seconds < 3.0, "64 KiB, a byte at a time, cost little");
    printf("# %.3f s\n", seconds);

    memset(buf, 0, sizeof(buf));
    make_hello(buf, 4000);
    make_records(1);
    from = clock();

    for (i = 1; i <= wire.n; i++) {
        (void) sbx_sniff(wire.p, i, &out);
    }

    seconds = (double) (clock() - from) / CLOCKS_PER_SEC;
    ok(seconds < 3.0, "records of a byte too");
    printf("# %.3f s\n", seconds);

    is_int(sniff(wire.p, wire.n, &out), SBX_SNIFF_BAD,
           "of which there are not too many");
}


int
main(void)
{
    a_hello();
    names();
    lengths();
    others();
    requests();
    cost();

    return done_testing();
}
