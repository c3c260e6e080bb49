/* Requests through the filter: what passes, what is added, what is refused. */

#include "tap.h"

#include "http.h"
#include "sandbox_util.h"


#define OUT_MAX  (512 * 1024)


/* What was judged, and how it ended. */
typedef struct {
    sbx_http_t     *http;
    char            judged[1024];        /* "host:port " each */
    uint8_t         out[OUT_MAX];
    size_t          made;
    size_t          used;
    int             refused;
    sbx_refused_t   why;
} flow_t;

static flow_t           flow;
static char             secret[] = "Bearer s3cret";
static sbx_eg_header_t  header = {
    .host = "secret.example", .name = "Authorization", .value = secret,
    .size = sizeof(secret) - 1
};


static int
judge(void *data, const char *host, unsigned port,
    const sbx_eg_header_t **added)
{
    flow_t  *f;
    size_t   n;

    f = data;
    n = strlen(f->judged);
    (void) snprintf(f->judged + n, sizeof(f->judged) - n, "%s:%u ", host,
                    port);

    if (strcmp(host, header.host) == 0) {
        *added = &header;
    }

    return strcmp(host, "denied.example") == 0;
}


static void
start(void)
{
    sbx_http_judge_t  j;

    sbx_http_close(flow.http);
    memset(&flow, 0, sizeof(flow));

    j.host = judge;
    j.data = &flow;
    flow.http = sbx_http_open(&j);
}


/* Bytes of the client, step at a time, until they are not taken. */

static void
client(const void *p, size_t n, size_t step)
{
    size_t   part, used, made, left;
    uint8_t  *copy;

    static uint8_t  out[SBX_HTTP_ROOM];

    flow.used = 0;
    left = n;

    while (left != 0 && !flow.refused) {
        part = left < step ? left : step;
        copy = malloc(part);
        memcpy(copy, (const uint8_t *) p + n - left, part);

        flow.refused = sbx_http_client(flow.http, copy, part, &used, out,
                                       sizeof(out), &made, &flow.why);
        free(copy);

        if (flow.made + made > OUT_MAX) {
            ok(0, "no more comes out than went in");
            return;
        }

        memcpy(flow.out + flow.made, out, made);
        flow.made += made;
        flow.used += used;
        left -= used;

        if (used == 0 && made == 0) {
            break;
        }
    }
}


static void
say(const char *s, size_t step)
{
    client(s, strlen(s), step);
}


static int
is_out(const char *expected, const char *name)
{
    flow.out[flow.made < OUT_MAX ? flow.made : OUT_MAX - 1] = '\0';

    return is_str((char *) flow.out, expected, name);
}


/* However it is cut, it comes out as it is. */

static void
passes(const char *s, const char *judged, const char *name)
{
    size_t  step;

    for (step = 1; step <= strlen(s); step += strlen(s) > 20 ? 19 : 1) {
        start();
        client(s, strlen(s), step);

        if (flow.refused || strcmp(flow.judged, judged) != 0
            || flow.made != strlen(s) || memcmp(flow.out, s, flow.made) != 0)
        {
            ok(0, "%s", name);
            printf("# in parts of %zu: refused %d, judged \"%s\"\n# %.*s\n",
                   step, flow.refused, flow.judged, (int) flow.made,
                   (char *) flow.out);
            return;
        }
    }

    ok(1, "%s", name);
}


static void
refused_bytes(const char *s, size_t n, sbx_refused_t why, const char *name)
{
    int  whole;

    start();
    client(s, n, SIZE_MAX);
    whole = flow.refused && flow.why == why;

    start();
    client(s, n, 1);

    if (!ok(whole && flow.refused && flow.why == why && flow.made == 0,
            "refused: %s", name))
    {
        printf("# refused %d, why %d, made %zu\n", flow.refused, flow.why,
               flow.made);
    }
}


static void
refused_as(const char *s, sbx_refused_t why, const char *name)
{
    refused_bytes(s, strlen(s), why, name);
}


static void
refused(const char *s, const char *name)
{
    refused_as(s, SBX_REFUSED_PROTOCOL, name);
}


/* What comes after a request that is all right. */

static void
refused_after(const char *s, const char *name)
{
    char  buf[4096];

    (void) snprintf(buf, sizeof(buf),
                    "POST / HTTP/1.1\r\nHost: a.example\r\n%s", s);
    start();
    client(buf, strlen(buf), 1);
    ok(flow.refused && flow.why == SBX_REFUSED_PROTOCOL, "refused: %s", name);
}


static void
pass(void)
{
    passes("GET / HTTP/1.1\r\nHost: a.example\r\n\r\n", "a.example:0 ",
           "a request");
    passes("GET / HTTP/1.1\r\nHost: A.Example:8080\r\n\r\n",
           "a.example:8080 ", "a port");
    passes("GET / HTTP/1.1\r\nhOST:\t a.example. \r\n\r\n", "a.example:0 ",
           "a root's dot, and space around it");
    passes("GET / HTTP/1.1\r\nHost: 192.0.2.1:81\r\n\r\n", "192.0.2.1:81 ",
           "an address");
    passes("GET / HTTP/1.1\r\nHost: [2001:DB8:0::1]:81\r\n\r\n",
           "2001:db8::1:81 ", "an IPv6 address, as it is always written");
    passes("GET http://a.example/x HTTP/1.1\r\nHost: a.example\r\n\r\n",
           "a.example:0 ", "an absolute target");
    passes("GET HTTP://A.example:80?x HTTP/1.1\r\nHost: a.example\r\n\r\n",
           "a.example:0 ", "one with its port");
    passes("OPTIONS * HTTP/1.1\r\nHost: a.example\r\n\r\n", "a.example:0 ",
           "a server as a whole");
    passes("POST / HTTP/1.0\r\nHost: a.example\r\n\r\n", "a.example:0 ",
           "HTTP/1.0 without a length");
    passes("GET / HTTP/1.1\r\nHost: a.example\r\n\r\n"
           "GET /2 HTTP/1.1\r\nHost: b.example\r\n\r\n",
           "a.example:0 b.example:0 ", "two requests, both judged");
    passes("PUT / HTTP/1.1\r\nHost: a.example\r\nContent-Length: 30\r\n"
           "Expect: 100-continue\r\n\r\n"
           "GET / HTTP/1.1\r\nHost: b\r\n\r\nxx"
           "GET /2 HTTP/1.1\r\nHost: c.example\r\n\r\n",
           "a.example:0 c.example:0 ", "a body by its length");
    passes("PUT / HTTP/1.1\r\nHost: a.example\r\n"
           "Transfer-Encoding: chunked\r\n\r\n"
           "5\r\nhello\r\n00A;x=\"y\"\r\n0123456789\r\n"
           "0\r\n\r\nGET / HTTP/1.1\r\nHost: b.example\r\n\r\n",
           "a.example:0 b.example:0 ", "a body in chunks");
    passes("PUT / HTTP/1.1\r\nHost: a.example\r\n"
           "Transfer-Encoding: chunked\r\n\r\n"
           "1\r\nx\r\n0\r\nX-Sum: 1\r\nX-More: 2\r\n\r\n"
           "GET / HTTP/1.1\r\nHost: b.example\r\n\r\n",
           "a.example:0 b.example:0 ", "trailers");
    passes("GET /a%20b?c=\xc3\xa4#d HTTP/1.1\r\nHost: a.example\r\n"
           "X-Utf: \xc3\xa4\r\nConnection: keep-alive, TE\r\n"
           "Empty:\r\n\r\n", "a.example:0 ", "all else as it is");

    start();
    say("\r\n\r\nGET / HTTP/1.1\r\nHost: a.example\r\n\r\n", 1);
    is_out("GET / HTTP/1.1\r\nHost: a.example\r\n\r\n",
           "empty lines before a request go no further");
}


static void
whom(void)
{
    refused_as("GET / HTTP/1.1\r\nHost: denied.example\r\n\r\n",
               SBX_REFUSED_NAME, "whom the judge refuses");
    refused_as("GET / HTTP/1.1\r\nAccept: *\r\n\r\n",
               SBX_REFUSED_HIDDEN, "no Host");
    refused_as("GET / HTTP/1.0\r\n\r\n", SBX_REFUSED_HIDDEN,
               "none in HTTP/1.0");

    start();
    say("GET / HTTP/1.1\r\nHost: a.example\r\n\r\n"
           "GET / HTTP/1.1\r\nHost: denied.example\r\n\r\n", SIZE_MAX);
    ok(flow.refused && flow.why == SBX_REFUSED_NAME, "a second that is not");
    is_out("GET / HTTP/1.1\r\nHost: a.example\r\n\r\n",
           "after the first, which went");

    refused("GET / HTTP/1.1\r\nHost: a.example\r\nHost: a.example\r\n\r\n",
            "two Hosts");
    refused("GET / HTTP/1.1\r\nHost: a.example\r\nhost: b.example\r\n\r\n",
            "two, of another spelling");
    refused("GET / HTTP/1.1\r\nHost: a.example,b.example\r\n\r\n",
            "two in one");
    refused("GET / HTTP/1.1\r\nHost: a.example b.example\r\n\r\n",
            "two with a space");
    refused("GET / HTTP/1.1\r\nHost:\r\n\r\n", "an empty Host");
    refused("GET / HTTP/1.1\r\nHost: .\r\n\r\n", "the root");
    refused("GET / HTTP/1.1\r\nHost: u@a.example\r\n\r\n", "a user in it");
    refused("GET / HTTP/1.1\r\nHost: a.example/\r\n\r\n", "a slash in it");
    refused("GET / HTTP/1.1\r\nHost: http://a.example\r\n\r\n",
            "a scheme in it");
    refused("GET / HTTP/1.1\r\nHost: a.example:\r\n\r\n", "half a port");
    refused("GET / HTTP/1.1\r\nHost: a.example:0\r\n\r\n", "port 0");
    refused("GET / HTTP/1.1\r\nHost: a.example:65536\r\n\r\n",
            "a port that is none");
    refused("GET / HTTP/1.1\r\nHost: a.example:80x\r\n\r\n",
            "a port with more");
    refused("GET / HTTP/1.1\r\nHost: a.example:80:80\r\n\r\n", "two ports");
    refused("GET / HTTP/1.1\r\nHost: [::1\r\n\r\n", "half an address");
    refused("GET / HTTP/1.1\r\nHost: [::1%lo]\r\n\r\n", "a zone");
    refused("GET / HTTP/1.1\r\nHost: [::1]x\r\n\r\n", "more than an address");
    refused("GET / HTTP/1.1\r\nHost: 127.1\r\n\r\n",
            "what some take for an address");
    refused("GET / HTTP/1.1\r\nHost: 0x7f000001\r\n\r\n", "and others");
    refused("GET http://b.example/ HTTP/1.1\r\nHost: a.example\r\n\r\n",
            "another target");
    refused("GET http://a.example:81/ HTTP/1.1\r\nHost: a.example\r\n\r\n",
            "another port");
    refused("GET http://a.example@b.example/ HTTP/1.1\r\nHost: a.example"
            "\r\n\r\n", "a user in the target");
    refused("GET http:///x HTTP/1.1\r\nHost: a.example\r\n\r\n",
            "a target of nobody");
    refused("GET ftp://a.example/ HTTP/1.1\r\nHost: a.example\r\n\r\n",
            "another scheme");
    refused("GET a.example HTTP/1.1\r\nHost: a.example\r\n\r\n",
            "a target that is none");
    refused("GET * HTTP/1.1\r\nHost: a.example\r\n\r\n", "an asterisk");
    refused("CONNECT a.example:443 HTTP/1.1\r\nHost: a.example\r\n\r\n",
            "CONNECT");
    refused("GET / HTTP/1.1\r\nHost: a.example\r\nConnection: close, Host"
            "\r\n\r\n", "a Host that is to be dropped");
    refused("GET / HTTP/1.1\r\nHost: a.example\r\nConnection: x;host\r\n\r\n",
            "however it is written");
}


static void
form(void)
{
    static const char  nul[] =
        "GET / HTTP/1.1\r\nHost: a.example\0\r\n\r\n";

    refused("GET / HTTP/1.1\nHost: a.example\n\n", "lines without CR");
    refused("GET / HTTP/1.1\r\nHost: a.example\n\r\n", "one without CR");
    refused("GET / HTTP/1.1\r\nX: y\rHost: b\r\nHost: a.example\r\n\r\n",
            "a CR within");
    refused("GET / HTTP/1.1\r\n X: y\r\nHost: a.example\r\n\r\n",
            "a fold at the beginning");
    refused("GET / HTTP/1.1\r\nX: y\r\n\tz\r\nHost: a.example\r\n\r\n",
            "a fold");
    refused("GET / HTTP/1.1\r\nHost : a.example\r\n\r\n",
            "a space before the colon");
    refused("GET / HTTP/1.1\r\nHost: a.example\r\nX\r\n\r\n", "no colon");
    refused("GET / HTTP/1.1\r\nHost: a.example\r\n: x\r\n\r\n", "no name");
    refused("GET / HTTP/1.1\r\nHost: a.example\r\nX(: x\r\n\r\n",
            "a name that is none");
    refused("GET / HTTP/1.1\r\nHost: a.example\r\nX: \x01\r\n\r\n",
            "a control");
    refused_bytes(nul, sizeof(nul) - 1, SBX_REFUSED_PROTOCOL, "a NUL");
    refused("get / HTTP/1.1\r\nHost: a.example\r\n\r\n",
            "a method in lower case");
    refused("GET / HTTP/1.1 \r\nHost: a.example\r\n\r\n", "a space after it");
    refused("GET  / HTTP/1.1\r\nHost: a.example\r\n\r\n", "two spaces");
    refused("GET\t/ HTTP/1.1\r\nHost: a.example\r\n\r\n", "a tab");
    refused("GET / HTTP/1.2\r\nHost: a.example\r\n\r\n", "another version");
    refused("GET / HTTP/2.0\r\nHost: a.example\r\n\r\n", "HTTP/2");
    refused("PRI * HTTP/2.0\r\n\r\n", "HTTP/2 at once");
    refused("GET /\r\n\r\n", "HTTP/0.9");
    refused("\r\n\r\n\r\n\r\n\r\n\r\n\r\n\r\n\r\n", "nothing but lines");
}


static void
framing(void)
{
    refused_after("Content-Length: 1\r\nContent-Length: 1\r\n\r\n",
                  "two lengths");
    refused_after("Content-Length: 1, 1\r\n\r\n", "two in one");
    refused_after("Content-Length: +1\r\n\r\n", "a sign");
    refused_after("Content-Length: 0x1\r\n\r\n", "another base");
    refused_after("Content-Length:\r\n\r\n", "no length");
    refused_after("Content-Length: 99999999999999999999\r\n\r\n",
                  "a length beyond all");
    refused_after("Content_Length: 1\r\n\r\n", "one that is to some");
    refused_after("Transfer_Encoding: chunked\r\n\r\n", "and so an encoding");
    refused_after("Content-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
                  "a length and an encoding");
    refused_after("Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked"
                  "\r\n\r\n", "two encodings");
    refused_after("Transfer-Encoding: gzip, chunked\r\n\r\n",
                  "two in one");
    refused_after("Transfer-Encoding: xchunked\r\n\r\n", "another");
    refused_after("Transfer-Encoding: chunked;x\r\n\r\n",
                  "one with a parameter");
    refused_after("Transfer-Encoding: \x0b""chunked\r\n\r\n",
                  "one behind a control");
    refused_after("Expect: 100-continue\r\nExpect: 100-continue\r\n\r\n",
                  "two expectations");
    refused_after("Expect: y 100-continue\r\n\r\n", "another expectation");
    refused_after("Connection: Content-Length\r\nContent-Length: 1\r\n\r\n",
                  "a length that is to be dropped");

    start();
    say("POST / HTTP/1.0\r\nHost: a.example\r\n"
           "Transfer-Encoding: chunked\r\n\r\n", SIZE_MAX);
    is_int(flow.refused, 1, "refused: chunks in HTTP/1.0");
}


static void
chunks(void)
{
    size_t  i;
    char    buf[512];

    static const struct {
        const char  *chunk;
        const char  *what;
    } bad[] = {
        { "\r\n", "no size" },
        { "g\r\n", "no digit" },
        { "0x5\r\nhello\r\n", "another base" },
        { " 5\r\nhello\r\n", "a space before it" },
        { "5 \r\nhello\r\n", "one after it" },
        { "-5\r\nhello\r\n", "a sign" },
        { "5\nhello\r\n", "no CR" },
        { "5\r\nhello\n", "none after the data" },
        { "5\r\nhelloX\r\n", "more than its size" },
        { "5;a\nb\r\nhello\r\n", "a LF in an extension" },
        { "5;a\rb\r\nhello\r\n", "a CR in one" },
        { "fffffffffffffffff\r\n", "a size beyond all" },
        { "00000000000000005\r\n", "digits without end" },
        { "0\r\nX y: z\r\n\r\n", "a trailer that is none" },
        { "0\r\n X: z\r\n\r\n", "a folded trailer" },
        { "0\r\nX: z\n\r\n", "a trailer without CR" },
        { "0\r\nHost: b.example\r\n\r\n", "a Host among trailers" },
        { "0\r\nContent-Length: 5\r\n\r\n", "a length among them" },
        { "0\r\nTransfer_Encoding: x\r\n\r\n", "an encoding" }
    };

    for (i = 0; i < sbx_nelts(bad); i++) {
        (void) snprintf(buf, sizeof(buf),
                        "Transfer-Encoding: chunked\r\n\r\n%s", bad[i].chunk);
        refused_after(buf, bad[i].what);
    }
}


static void
bounds(void)
{
    char    *buf;
    size_t   n, i;

    buf = malloc(OUT_MAX);

    n = (size_t) sprintf(buf, "GET / HTTP/1.1\r\nHost: a.example\r\n");

    for (i = 1; i < SBX_HTTP_HEADERS; i++) {
        n += (size_t) sprintf(buf + n, "X-%zu: y\r\n", i);
    }

    (void) sprintf(buf + n, "\r\n");
    start();
    client(buf, n + 2, SIZE_MAX);
    ok(!flow.refused && flow.made == n + 2, "as many headers as may be");

    (void) sprintf(buf + n, "X: y\r\n\r\n");
    refused(buf, "one more");

    n = (size_t) sprintf(buf, "GET / HTTP/1.1\r\nHost: a.example\r\nX: ");
    memset(buf + n, 'x', SBX_HTTP_HEAD_MAX);
    memcpy(buf + SBX_HTTP_HEAD_MAX - 4, "\r\n\r\n", 5);
    start();
    client(buf, SBX_HTTP_HEAD_MAX, 1000);
    ok(!flow.refused && flow.made == SBX_HTTP_HEAD_MAX,
       "as long a head as may be");

    memset(buf + n, 'x', SBX_HTTP_HEAD_MAX);
    memcpy(buf + SBX_HTTP_HEAD_MAX - 3, "\r\n\r\n", 5);
    refused(buf, "one byte more");

    n = (size_t) sprintf(buf, "PUT / HTTP/1.1\r\nHost: a.example\r\n"
                              "Transfer-Encoding: chunked\r\n\r\n1;");
    memset(buf + n, 'x', 20000);
    start();
    client(buf, n + 20000, SIZE_MAX);
    is_int(flow.refused, 1, "refused: extensions without end");

    n = (size_t) sprintf(buf, "PUT / HTTP/1.1\r\nHost: a.example\r\n"
                              "Transfer-Encoding: chunked\r\n\r\n0\r\nX:");
    memset(buf + n, 'x', 70000);
    start();
    client(buf, n + 70000, SIZE_MAX);
    is_int(flow.refused, 1, "refused: trailers without end");

    /* more at once than there is room for */

    n = (size_t) sprintf(buf, "PUT / HTTP/1.1\r\nHost: a.example\r\n"
                              "Content-Length: 300000\r\n\r\n");
    memset(buf + n, 'x', 300000);
    n += 300000;
    n += (size_t) sprintf(buf + n, "GET / HTTP/1.1\r\nHost: b.example\r\n"
                                   "\r\n");
    start();
    client(buf, n, SIZE_MAX);
    ok(!flow.refused && flow.made == n && memcmp(flow.out, buf, n) == 0,
       "a body that is larger than the room");
    is_str(flow.judged, "a.example:0 b.example:0 ", "and what follows it");

    free(buf);
}


/* Heads that never end, of very many connections. */

static void
heads(void)
{
    char             *buf;
    size_t            i, n, used, made;
    sbx_http_t       *many[1024];
    sbx_refused_t     why;
    sbx_http_judge_t  j;

    static uint8_t    out[SBX_HTTP_ROOM];
    static const char  head[] = "GET / HTTP/1.1\r\nHost: a.example\r\nX: ";

    buf = malloc(40000);
    memcpy(buf, head, sizeof(head) - 1);
    memset(buf + sizeof(head) - 1, 'x', 40000 - sizeof(head) + 1);

    j.host = judge;
    j.data = &flow;

    for (n = 0; n < sbx_nelts(many); n++) {
        many[n] = sbx_http_open(&j);

        if (sbx_http_client(many[n], (uint8_t *) buf, 40000, &used, out,
                            sizeof(out), &made, &why)
            != 0)
        {
            n++;
            break;
        }
    }

    ok(n > 100 && n < sbx_nelts(many) && why == SBX_REFUSED_LIMIT,
       "large heads of all connections have a bound");
    passes("GET / HTTP/1.1\r\nHost: a.example\r\n\r\n", "a.example:0 ",
           "usual ones do not count");

    for (i = 0; i < n; i++) {
        sbx_http_close(many[i]);
    }

    start();
    client(buf, 40000, SIZE_MAX);
    ok(!flow.refused, "and when they are gone there is room again");
    free(buf);
}


static void
added(void)
{
    int            rc;
    size_t         used, made;
    uint8_t        out[1024];
    sbx_refused_t  why;

    static const char  two[] =
        "GET / HTTP/1.1\r\nauthorization: a\r\nHost: secret.example\r\n"
        "Authorization: b\r\nAUTHORIZATION: c\r\nX: y\r\n\r\n"
        "GET /2 HTTP/1.1\r\nHost: secret.example\r\n\r\n"
        "GET / HTTP/1.1\r\nHost: a.example\r\nAuthorization: mine\r\n\r\n";
    static const char  mixed[] =
        "GET / HTTP/1.1\r\nHost: a.example\r\nAuthorization: mine\r\n\r\n"
        "GET / HTTP/1.1\r\nHost: secret.example\r\n\r\n";

    start();
    client(two, sizeof(two) - 1, 3);
    is_out("GET / HTTP/1.1\r\nAuthorization: Bearer s3cret\r\n"
           "Host: secret.example\r\nX: y\r\n\r\n"
           "GET /2 HTTP/1.1\r\nAuthorization: Bearer s3cret\r\n"
           "Host: secret.example\r\n\r\n"
           "GET / HTTP/1.1\r\nHost: a.example\r\nAuthorization: mine\r\n\r\n",
           "a header for one host, in place of the client's own");

    start();
    client(mixed, sizeof(mixed) - 1, 3);
    ok(flow.refused && flow.why == SBX_REFUSED_NAME,
       "refused: a header behind a request for another host");
    is_out("GET / HTTP/1.1\r\nHost: a.example\r\nAuthorization: mine\r\n\r\n",
           "which had none");

    refused("TRACE / HTTP/1.1\r\nHost: secret.example\r\n\r\n",
            "TRACE where a header is added");
    refused("TRACK / HTTP/1.1\r\nHost: secret.example\r\n\r\n", "TRACK");
    passes("TRACE / HTTP/1.1\r\nHost: a.example\r\n\r\n", "a.example:0 ",
           "TRACE where none is");
    refused("GET / HTTP/1.1\r\nHost: secret.example\r\n"
            "Connection: close, authorization\r\n\r\n",
            "a header that is to be dropped");
    refused("GET / HTTP/1.1\r\nHost: secret.example\r\n"
            "Connection: x, \"Authorization\"\r\n\r\n", "in quotes too");

    start();
    say("PUT / HTTP/1.1\r\nHost: secret.example\r\n"
           "Transfer-Encoding: chunked\r\n\r\n0\r\nAuthorization: x\r\n\r\n",
        SIZE_MAX);
    is_int(flow.refused, 1, "refused: the header among trailers");

    memcpy(secret, "a\r\nHost: x.ex", sizeof(secret) - 1);
    refused("GET / HTTP/1.1\r\nHost: secret.example\r\n\r\n",
            "a value that is more than one");
    memcpy(secret, "Bearer s3cret", sizeof(secret) - 1);

    /* nothing is judged, and nothing added, before there is room for it */

    start();
    rc = sbx_http_client(flow.http, (const uint8_t *) two, sizeof(two) - 1,
                         &used, out, sizeof(out), &made, &why);
    ok(rc == 0 && made == 0 && flow.judged[0] == '\0', "no room, no request");
}


static void
upgrades(void)
{
    size_t  i;

    static const char  socket[] =
        "GET / HTTP/1.1\r\nHost: a.example\r\nUpgrade: websocket\r\n"
        "Connection: Upgrade\r\n\r\nGET / HTTP/1.1\r\nHost: denied.example"
        "\r\n\r\n";
    static const char  early[] = "HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n";
    static const char  h2c[] =
        "GET / HTTP/1.1\r\nHost: a.example\r\nConnection: Upgrade, "
        "HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABk\r\n\r\n";
    static const char * const  answers[] = {
        "HTTP/1.1 200 OK\r\n", "HTTP/1.1 426 Upgrade Required\r\n",
        "HTTP/1.1 1010 Y\r\n", "HTTP/2.0 101 X\r\n", "101 is no status\r\n",
        "HTTP/1.1 99 X101 \r\n", "HTTP/1.1 100 Go\r\n\r\nHTTP/1.1 200 OK\r\n",
        "HTTP/1.1 100 \r\nHTTP/1.1 101 \r\n\r\nHTTP/1.1 404 \r\n"
    };

    start();
    client(socket, sizeof(socket) - 1, SIZE_MAX);
    ok(!flow.refused && sbx_http_watches(flow.http)
       && flow.used < sizeof(socket) - 1,
       "after an upgrade nothing passes before its answer");

    sbx_http_server(flow.http, (const uint8_t *) early, sizeof(early) - 1);
    is_int(sbx_http_watches(flow.http), 1, "which is not what comes early");

    for (i = 0; i < 13; i++) {
        sbx_http_server(flow.http, (const uint8_t *) "HTTP/1.1 101 " + i, 1);
    }

    is_int(sbx_http_opaque(flow.http), 1, "101 makes the rest opaque");
    client(socket, sizeof(socket) - 1, SIZE_MAX);
    is_int((int64_t) flow.used, sizeof(socket) - 1, "all of which passes");

    for (i = 0; i < sbx_nelts(answers); i++) {
        start();
        client(socket, sizeof(socket) - 1, SIZE_MAX);
        sbx_http_server(flow.http, (const uint8_t *) answers[i],
                        strlen(answers[i]));
        is_int(sbx_http_watches(flow.http) || sbx_http_opaque(flow.http), 0,
               "another answer is none to an upgrade");
        client(socket + flow.used, sizeof(socket) - 1 - flow.used, SIZE_MAX);
        ok(flow.refused, "and what follows is judged");
    }

    start();
    client(h2c, sizeof(h2c) - 1, 7);
    is_out("GET / HTTP/1.1\r\nHost: a.example\r\nConnection: Upgrade, "
           "HTTP2-Settings\r\n\r\n", "HTTP/2 is not asked for");
    is_int(sbx_http_watches(flow.http), 0, "and nobody waits for it");

    start();
    say("GET / HTTP/1.1\r\nHost: a.example\r\n\r\n", SIZE_MAX);
    flow.made = 0;
    client(socket, (size_t) (strstr(socket, "\r\n\r\n") - socket) + 4,
           SIZE_MAX);
    is_out("GET / HTTP/1.1\r\nHost: a.example\r\nConnection: Upgrade\r\n\r\n",
           "nor is anything, but by a first request");

    start();
    say("PUT / HTTP/1.1\r\nHost: a.example\r\nUpgrade: websocket\r\n"
           "Content-Length: 1\r\n\r\nx", SIZE_MAX);
    is_out("PUT / HTTP/1.1\r\nHost: a.example\r\nContent-Length: 1\r\n\r\nx",
           "and without a body");
}


int
main(void)
{
    pass();
    whom();
    form();
    framing();
    chunks();
    bounds();
    heads();
    added();
    upgrades();

    sbx_http_close(flow.http);

    return done_testing();
}
