/*
 * What a client says first: TLS, a request of HTTP, or something else.  What a
 * server would take for either must never pass for something else, as that is
 * not looked into: so whatever comes near to a request of HTTP without being
 * one as it should be is BAD, and so is a ClientHello with anything in it that
 * two servers might read in two ways.
 */

#include "inspect.h"

#include <string.h>
#include <strings.h>


#define SBX_SNIFF_BLANKS       64        /* before a request */
#define SBX_SNIFF_TOKEN        256       /* of what may be a method */

#define SBX_TLS_RECORD         5         /* bytes of a record's header */
#define SBX_TLS_RECORD_MAX     16384
#define SBX_TLS_RECORDS        2048      /* that a ClientHello may come in */
#define SBX_TLS_HANDSHAKE      22
#define SBX_TLS_HELLO          1
#define SBX_TLS_HELLO_HEADER   4
#define SBX_TLS_RANDOM         34        /* the version before it too */
#define SBX_TLS_SERVER_NAME    0
#define SBX_TLS_ESNI           0xffce    /* what came before ECH */


/* What is left of a message; every read is checked. */
typedef struct {
    const uint8_t  *p;
    size_t          n;
} sbx_sniff_part_t;


static sbx_sniff_t sbx_sniff_tls(const uint8_t *p, size_t n,
    sbx_sniffed_t *out);
static sbx_sniff_t sbx_sniff_records(const uint8_t *p, size_t n,
    uint8_t *to, size_t *len);
static sbx_sniff_t sbx_sniff_hello(const uint8_t *p, size_t n,
    sbx_sniffed_t *out);
static int sbx_sniff_extensions(sbx_sniff_part_t *part, sbx_sniffed_t *out);
static int sbx_sniff_server_name(sbx_sniff_part_t *part, sbx_sniffed_t *out);
static int sbx_sniff_number(sbx_sniff_part_t *part, size_t bytes,
    size_t *number);
static int sbx_sniff_vector(sbx_sniff_part_t *part, size_t bytes,
    sbx_sniff_part_t *inner);
static sbx_sniff_t sbx_sniff_text(const uint8_t *p, size_t n,
    sbx_sniffed_t *out);
static sbx_sniff_t sbx_sniff_line(const uint8_t *p, size_t n, size_t token,
    sbx_sniffed_t *out);
static int sbx_sniff_request(const uint8_t *p, size_t n, size_t token);
static int sbx_sniff_resembles(const uint8_t *p, size_t n, size_t token);
static int sbx_sniff_space(uint8_t ch);
static int sbx_sniff_blank(uint8_t ch);
static int sbx_sniff_word(uint8_t ch);
static int sbx_sniff_tchar(uint8_t ch);


/* The header of the PROXY protocol, after which another stream begins. */
static const uint8_t  sbx_sniff_proxy[] = "\r\n\r\n\0\r\nQUIT\n";

static const char * const  sbx_sniff_methods[] = {
    "GET", "HEAD", "POST", "PUT", "DELETE", "CONNECT", "OPTIONS", "TRACE",
    "PATCH", "PROXY"
};


sbx_sniff_t
sbx_sniff(const uint8_t *p, size_t n, sbx_sniffed_t *out)
{
    sbx_sniff_t  what;

    memset(out, 0, sizeof(*out));

    if (n == 0) {
        return SBX_SNIFF_MORE;
    }

    if (p[0] == SBX_TLS_HANDSHAKE) {
        what = sbx_sniff_tls(p, n, out);

    } else if (p[0] >= 20 && p[0] <= 24) {

        /* a record of TLS that nothing begins with */

        if (n == 1) {
            return SBX_SNIFF_MORE;
        }

        return p[1] == 3 ? SBX_SNIFF_BAD : SBX_SNIFF_OTHER;

    } else if (p[0] >= 0x80 && n < 3) {
        return SBX_SNIFF_MORE;

    } else if (p[0] >= 0x80 && p[2] == SBX_TLS_HELLO) {

        /* a hello of SSL 2, which some still read */

        return SBX_SNIFF_BAD;

    } else {
        what = sbx_sniff_text(p, n, out);
    }

    if (what == SBX_SNIFF_MORE && n >= SBX_EG_FIRST_MAX) {
        what = SBX_SNIFF_BAD;
    }

    if (what == SBX_SNIFF_BAD) {

        /* what it said before it went wrong was not said */

        memset(out, 0, sizeof(*out));
    }

    return what;
}


/*
 * ---- TLS -------------------------------------------------------------------
 */

static sbx_sniff_t
sbx_sniff_tls(const uint8_t *p, size_t n, sbx_sniffed_t *out)
{
    size_t       len;
    sbx_sniff_t  what;

    /* one thread, and nothing of it is needed after the return */

    static uint8_t  hello[SBX_EG_FIRST_MAX];

    what = sbx_sniff_records(p, n, hello, &len);

    if (what != SBX_SNIFF_TLS) {
        return what;
    }

    return sbx_sniff_hello(hello + SBX_TLS_HELLO_HEADER,
                           len - SBX_TLS_HELLO_HEADER, out);
}


/*
 * Puts the message together that records begin with.  TLS: it is whole, and
 * the last record ends with it.
 */

static sbx_sniff_t
sbx_sniff_records(const uint8_t *p, size_t n, uint8_t *to, size_t *len)
{
    size_t  at, size, got, want, records;

    records = 0;
    got = 0;
    want = SBX_EG_FIRST_MAX;

    for (at = 0; at < n; at += size) {

        if (p[at] != SBX_TLS_HANDSHAKE
            || (n - at > 1 && p[at + 1] != 3)
            || (n - at > 2 && p[at + 2] > 4))
        {
            return SBX_SNIFF_BAD;
        }

        if (n - at < SBX_TLS_RECORD) {
            return SBX_SNIFF_MORE;
        }

        size = (size_t) p[at + 3] << 8 | p[at + 4];
        at += SBX_TLS_RECORD;

        if (++records > SBX_TLS_RECORDS || size == 0
            || size > SBX_TLS_RECORD_MAX || size > SBX_EG_FIRST_MAX - got)
        {
            return SBX_SNIFF_BAD;
        }

        memcpy(to + got, p + at, size < n - at ? size : n - at);

        /* what is there of an unfinished record tells enough to refuse it */

        if ((size < n - at ? size : n - at) != 0
            && to[0] != SBX_TLS_HELLO)
        {
            return SBX_SNIFF_BAD;
        }

        if (size > n - at) {
            return SBX_SNIFF_MORE;
        }

        got += size;

        if (got >= SBX_TLS_HELLO_HEADER) {
            want = SBX_TLS_HELLO_HEADER
                   + ((size_t) to[1] << 16 | (size_t) to[2] << 8 | to[3]);

            if (want > SBX_EG_FIRST_MAX || got > want) {
                return SBX_SNIFF_BAD;
            }
        }

        if (got == want) {
            *len = got;
            return SBX_SNIFF_TLS;
        }
    }

    return SBX_SNIFF_MORE;
}


static sbx_sniff_t
sbx_sniff_hello(const uint8_t *p, size_t n, sbx_sniffed_t *out)
{
    sbx_sniff_part_t  part, inner;

    part.p = p;
    part.n = n;

    if (part.n < SBX_TLS_RANDOM || p[0] != 3) {
        return SBX_SNIFF_BAD;
    }

    part.p += SBX_TLS_RANDOM;
    part.n -= SBX_TLS_RANDOM;

    if (sbx_sniff_vector(&part, 1, &inner) != 0 || inner.n > 32) {
        return SBX_SNIFF_BAD;
    }

    if (sbx_sniff_vector(&part, 2, &inner) != 0 || inner.n == 0
        || inner.n % 2 != 0)
    {
        return SBX_SNIFF_BAD;
    }

    if (sbx_sniff_vector(&part, 1, &inner) != 0 || inner.n == 0) {
        return SBX_SNIFF_BAD;
    }

    if (part.n == 0) {
        return SBX_SNIFF_TLS;
    }

    if (sbx_sniff_vector(&part, 2, &inner) != 0 || part.n != 0
        || sbx_sniff_extensions(&inner, out) != 0)
    {
        return SBX_SNIFF_BAD;
    }

    return SBX_SNIFF_TLS;
}


static int
sbx_sniff_extensions(sbx_sniff_part_t *part, sbx_sniffed_t *out)
{
    int                named;
    size_t             type;
    sbx_sniff_part_t   inner;

    named = 0;

    while (part->n != 0) {

        if (sbx_sniff_number(part, 2, &type) != 0
            || sbx_sniff_vector(part, 2, &inner) != 0)
        {
            return -1;
        }

        /* drafts had the numbers below ECH's */

        if ((type >= 0xfe00 && type <= 0xfe0f) || type == SBX_TLS_ESNI) {
            out->ech = 1;
        }

        if (type != SBX_TLS_SERVER_NAME) {
            continue;
        }

        if (named || sbx_sniff_server_name(&inner, out) != 0) {
            return -1;
        }

        named = 1;
    }

    return 0;
}


/* A list that holds one name of a host. */

static int
sbx_sniff_server_name(sbx_sniff_part_t *part, sbx_sniffed_t *out)
{
    size_t            type;
    sbx_sniff_part_t  list, name;

    if (sbx_sniff_vector(part, 2, &list) != 0 || part->n != 0
        || sbx_sniff_number(&list, 1, &type) != 0 || type != 0
        || sbx_sniff_vector(&list, 2, &name) != 0 || list.n != 0)
    {
        return -1;
    }

    if (name.n == 0 || name.n > SBX_NETWORK_HOST_MAX
        || sbx_network_host_ok((const char *) name.p, name.n, out->name) != 1)
    {
        out->name[0] = '\0';
        return -1;
    }

    return 0;
}


static int
sbx_sniff_number(sbx_sniff_part_t *part, size_t bytes, size_t *number)
{
    if (part->n < bytes) {
        return -1;
    }

    *number = part->p[0];

    if (bytes == 2) {
        *number = *number << 8 | part->p[1];
    }

    part->p += bytes;
    part->n -= bytes;

    return 0;
}


static int
sbx_sniff_vector(sbx_sniff_part_t *part, size_t bytes,
    sbx_sniff_part_t *inner)
{
    size_t  size;

    if (sbx_sniff_number(part, bytes, &size) != 0 || size > part->n) {
        return -1;
    }

    inner->p = part->p;
    inner->n = size;
    part->p += size;
    part->n -= size;

    return 0;
}


/*
 * ---- HTTP ------------------------------------------------------------------
 */

static sbx_sniff_t
sbx_sniff_text(const uint8_t *p, size_t n, sbx_sniffed_t *out)
{
    int             spaces;
    size_t          at, token;
    const uint8_t  *end;

    at = sizeof(sbx_sniff_proxy) - 1;

    if (memcmp(p, sbx_sniff_proxy, n < at ? n : at) == 0) {
        return n < at ? SBX_SNIFF_MORE : SBX_SNIFF_BAD;
    }

    /* some servers take words for what they are, whatever is between them */

    spaces = 0;

    for (at = 0; at < n && sbx_sniff_blank(p[at]); at++) {

        if (at == SBX_SNIFF_BLANKS) {
            return SBX_SNIFF_BAD;
        }

        spaces |= sbx_sniff_space(p[at]);
    }

    p += at;
    n -= at;

    if (n != 0 && !sbx_sniff_tchar(p[0])) {
        return SBX_SNIFF_OTHER;
    }

    for (token = 0; token < n && sbx_sniff_word(p[token]); token++) {

        if (token == SBX_SNIFF_TOKEN) {
            return SBX_SNIFF_BAD;
        }
    }

    if (token == n) {
        return SBX_SNIFF_MORE;
    }

    if (!sbx_sniff_space(p[token])) {
        return SBX_SNIFF_OTHER;
    }

    end = memchr(p + token, '\n', n - token);

    if (end == NULL) {
        return SBX_SNIFF_MORE;
    }

    n = (size_t) (end - p) + 1;

    if (spaces) {
        return sbx_sniff_resembles(p, n, token) ? SBX_SNIFF_BAD
                                                : SBX_SNIFF_OTHER;
    }

    return sbx_sniff_line(p, n, token, out);
}


/* A whole line, its end included, that begins with a word of token bytes. */

static sbx_sniff_t
sbx_sniff_line(const uint8_t *p, size_t n, size_t token, sbx_sniffed_t *out)
{
    static const char  h2[] = "PRI * HTTP/2.0\r\n";

    if (n == sizeof(h2) - 1 && memcmp(p, h2, n) == 0) {
        out->h2 = 1;
        return SBX_SNIFF_OTHER;
    }

    if (sbx_sniff_request(p, n, token)) {
        return SBX_SNIFF_HTTP;
    }

    return sbx_sniff_resembles(p, n, token) ? SBX_SNIFF_BAD
                                            : SBX_SNIFF_OTHER;
}


/* "METHOD target HTTP/1.x", one space between words. */

static int
sbx_sniff_request(const uint8_t *p, size_t n, size_t token)
{
    size_t  at, len;

    static const char  version[] = " HTTP/1.";

    len = sizeof(version) - 1;

    if (n < token + 1 + 1 + len + 3 || p[n - 2] != '\r' || p[token] != ' ') {
        return 0;
    }

    n -= 3;

    if (p[n] != '0' && p[n] != '1') {
        return 0;
    }

    n -= len;

    if (memcmp(p + n, version, len) != 0) {
        return 0;
    }

    for (at = 0; at < token; at++) {

        if (!sbx_sniff_tchar(p[at]) || (p[at] >= 'a' && p[at] <= 'z')) {
            return 0;
        }
    }

    for (at = token + 1; at < n; at++) {

        if (p[at] <= ' ' || p[at] == 0x7f) {
            return 0;
        }
    }

    return 1;
}


/*
 * Whether a line that is no request as it should be may be one to somebody: it
 * has a version, a method that all know, or what may be a path or an address
 * after its first word.
 */

static int
sbx_sniff_resembles(const uint8_t *p, size_t n, size_t token)
{
    size_t  i, at;

    for (i = 0; i < sbx_nelts(sbx_sniff_methods); i++) {

        if (strlen(sbx_sniff_methods[i]) == token
            && memcmp(p, sbx_sniff_methods[i], token) == 0)
        {
            return 1;
        }
    }

    for (at = token; at < n && sbx_sniff_space(p[at]); at++) { /* void */ }

    if (at < n && p[at] == '/') {
        return 1;
    }

    for (/* void */; at < n; at++) {

        if ((n - at >= 3 && memcmp(p + at, "://", 3) == 0)
            || (n - at >= 5
                && strncasecmp((const char *) p + at, "HTTP/", 5) == 0))
        {
            return 1;
        }
    }

    return 0;
}


/* White space of one or the other server; line ends are not in it. */

static int
sbx_sniff_space(uint8_t ch)
{
    return ch == ' ' || ch == '\t' || ch == '\v' || ch == '\f'
           || (ch >= 0x1c && ch <= 0x1f) || ch == 0x85 || ch == 0xa0;
}


static int
sbx_sniff_blank(uint8_t ch)
{
    return ch == '\r' || ch == '\n' || sbx_sniff_space(ch);
}


static int
sbx_sniff_word(uint8_t ch)
{
    return ch > ' ' && ch != 0x7f && !sbx_sniff_space(ch);
}


static int
sbx_sniff_tchar(uint8_t ch)
{
    return (ch >= 'a' && ch <= 'z') || (ch >= 'A' && ch <= 'Z')
           || (ch >= '0' && ch <= '9')
           || (ch != '\0' && strchr("!#$%&'*+-.^_`|~", ch) != NULL);
}
