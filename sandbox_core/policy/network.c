/*
 * Rules of networks: their texts, and one against another.  Addresses of the
 * two families are apart: a prefix of IPv6, short as it may be, has none of
 * IPv4 in it.
 */

#include "network_class.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <string.h>


#define SBX_NETWORK_LABEL_MAX  63


/* A rule's text, taken apart. */
typedef struct {
    const char   *host;
    size_t        host_len;
    const char   *bits;                   /* NULL: none */
    size_t        bits_len;
    const char   *port;                   /* NULL: none */
    size_t        port_len;
    unsigned      brackets:1;
} sbx_network_parts_t;


static int sbx_network_odd(const char *s, size_t len, sbx_error_t *e);
static int sbx_network_split(const char *s, size_t len,
    sbx_network_parts_t *parts, sbx_error_t *e);
static int sbx_network_number(const char *s, size_t len, unsigned min,
    unsigned max, unsigned *n);
static int sbx_network_parse_address(const sbx_network_parts_t *parts,
    sbx_network_rule_t *rule, sbx_error_t *e);
static int sbx_network_parse_bits(const sbx_network_parts_t *parts,
    sbx_network_rule_t *rule, sbx_error_t *e);
static int sbx_network_parse_host(const sbx_network_parts_t *parts,
    sbx_network_rule_t *rule, sbx_error_t *e);
static int sbx_network_numeric(const char *s, size_t len);


/*
 * ---- a rule's text -------------------------------------------------------
 */

int
sbx_network_rule_parse(const char *s, size_t len, sbx_network_rule_t *rule,
    sbx_error_t *e)
{
    int                  rc;
    unsigned             port;
    sbx_network_parts_t  parts;

    memset(rule, 0, sizeof(sbx_network_rule_t));

    if (sbx_network_odd(s, len, e) != 0
        || sbx_network_split(s, len, &parts, e) != 0)
    {
        return -1;
    }

    if (parts.port != NULL) {
        if (sbx_network_number(parts.port, parts.port_len, 1, 65535, &port)
            != 0)
        {
            return sbx_error(e, 0, SBX_E_INVALID,
                             "has a port that is not 1 to 65535");
        }

        rule->port = (uint16_t) port;
    }

    if (parts.host_len == 1 && parts.host[0] == '*' && parts.bits == NULL) {
        rule->kind = SBX_NETWORK_ANY;
        return 0;
    }

    rc = sbx_network_parse_address(&parts, rule, e);

    if (rc == 0) {
        return sbx_network_parse_host(&parts, rule, e);
    }

    return (rc == 1) ? 0 : -1;
}


/* What is nothing of a rule's, told by what it seems to be. */

static int
sbx_network_odd(const char *s, size_t len, sbx_error_t *e)
{
    size_t  i;

    if (len == 0) {
        return sbx_error(e, 0, SBX_E_INVALID, "is empty");
    }

    for (i = 0; i < len; i++) {
        if ((unsigned char) s[i] < 0x20 || s[i] == 0x7f) {
            return sbx_error(e, 0, SBX_E_INVALID,
                             "holds a control character");
        }

        if ((unsigned char) s[i] > 0x7f) {
            return sbx_error(e, 0, SBX_E_INVALID,
                             "is not ASCII: such names are written as "
                             "\"xn--...\"");
        }
    }

    if (memmem(s, len, "://", 3) != NULL) {
        return sbx_error(e, 0, SBX_E_INVALID,
                         "is a URL: a host, with \":PORT\" if need be, fits");
    }

    if (len >= SBX_NETWORK_TEXT_MAX) {
        return sbx_error(e, 0, SBX_E_INVALID, "is longer than a host's name");
    }

    return 0;
}


static int
sbx_network_split(const char *s, size_t len, sbx_network_parts_t *parts,
    sbx_error_t *e)
{
    const char  *p, *end, *slash;

    memset(parts, 0, sizeof(sbx_network_parts_t));

    p = s;
    end = s + len;

    if (*p == '[') {
        parts->brackets = 1;
        parts->host = ++p;
        p = memchr(p, ']', (size_t) (end - p));

        if (p == NULL || (p + 1 < end && p[1] != ':' && p[1] != '/')) {
            return sbx_error(e, 0, SBX_E_INVALID,
                             "has a bracket that is not an IPv6 address's");
        }

        parts->host_len = (size_t) (p++ - parts->host);

    } else {
        parts->host = p;

        while (p < end && *p != '/' && *p != ':') {
            p++;
        }

        /* two colons: of IPv6, all of them */

        if (p < end && *p == ':'
            && memchr(p + 1, ':', (size_t) (end - p) - 1) != NULL)
        {
            slash = memchr(p, '/', (size_t) (end - p));
            p = (slash == NULL) ? end : slash;
        }

        parts->host_len = (size_t) (p - parts->host);
    }

    if (p < end && *p == '/') {
        parts->bits = ++p;

        while (p < end && *p != ':') {
            p++;
        }

        parts->bits_len = (size_t) (p - parts->bits);
    }

    if (p < end) {
        parts->port = p + 1;
        parts->port_len = (size_t) (end - parts->port);
    }

    if (parts->port != NULL && !parts->brackets
        && memchr(parts->host, ':', parts->host_len) != NULL)
    {
        return sbx_error(e, 0, SBX_E_INVALID,
                         "has a port after an IPv6 address without brackets");
    }

    return 0;
}


static int
sbx_network_number(const char *s, size_t len, unsigned min, unsigned max,
    unsigned *n)
{
    size_t  i;

    *n = 0;

    if (len == 0 || len > 5 || (len > 1 && s[0] == '0')) {
        return -1;
    }

    for (i = 0; i < len; i++) {
        if (s[i] < '0' || s[i] > '9') {
            return -1;
        }

        *n = *n * 10 + (unsigned) (s[i] - '0');
    }

    return (*n < min || *n > max) ? -1 : 0;
}


/* 1, 0 if it is none, -1. */

static int
sbx_network_parse_address(const sbx_network_parts_t *parts,
    sbx_network_rule_t *rule, sbx_error_t *e)
{
    char            text[INET6_ADDRSTRLEN];
    struct in_addr  v4;

    if (parts->host_len < sizeof(text)) {
        memcpy(text, parts->host, parts->host_len);
        text[parts->host_len] = '\0';

        if (!parts->brackets && inet_pton(AF_INET, text, &v4) == 1) {
            rule->kind = SBX_NETWORK_NET;
            rule->bits = 128;
            rule->address[10] = rule->address[11] = 0xff;
            memcpy(rule->address + 12, &v4, 4);

        } else if (inet_pton(AF_INET6, text, rule->address) == 1) {
            rule->kind = SBX_NETWORK_NET;
            rule->bits = 128;
        }
    }

    if (rule->kind == SBX_NETWORK_NET) {
        return (parts->bits == NULL)
               ? 1 : sbx_network_parse_bits(parts, rule, e);
    }

    if (parts->brackets || memchr(parts->host, ':', parts->host_len) != NULL) {
        return sbx_error(e, 0, SBX_E_INVALID, "is no IPv6 address");
    }

    if (parts->bits != NULL) {
        return sbx_error(e, 0, SBX_E_INVALID,
                         "has a \"/\", and no IPv4 or IPv6 address before it");
    }

    return 0;
}


static int
sbx_network_parse_bits(const sbx_network_parts_t *parts,
    sbx_network_rule_t *rule, sbx_error_t *e)
{
    char                text[SBX_NETWORK_TEXT_MAX];
    unsigned            bits, max, i;
    sbx_network_rule_t  fits;

    /* as it is written: "::ffff:192.0.2.0/120" is of 128 bits */

    max = (memchr(parts->host, ':', parts->host_len) == NULL) ? 32 : 128;

    if (sbx_network_number(parts->bits, parts->bits_len, 0, max, &bits)
        != 0)
    {
        return sbx_error(e, 0, SBX_E_INVALID,
                         "has a prefix that is not 0 to %u", max);
    }

    fits = *rule;
    fits.bits = (uint8_t) (128 - max + bits);

    for (i = fits.bits; i < 128; i++) {
        fits.address[i / 8] &= (uint8_t) ~(0x80u >> (i % 8));
    }

    if (memcmp(fits.address, rule->address, 16) != 0) {
        (void) sbx_network_rule_print(&fits, text);

        return sbx_error(e, 0, SBX_E_INVALID,
                         "has bits beyond its prefix: \"%s\" fits", text);
    }

    *rule = fits;

    return 1;
}


static int
sbx_network_parse_host(const sbx_network_parts_t *parts,
    sbx_network_rule_t *rule, sbx_error_t *e)
{
    size_t       len;
    const char  *s;

    s = parts->host;
    len = parts->host_len;

    if (len > 2 && s[0] == '*' && s[1] == '.') {
        rule->kind = SBX_NETWORK_BELOW;
        s += 2;
        len -= 2;

    } else {
        rule->kind = SBX_NETWORK_HOST;
    }

    if (sbx_network_host_ok(s, len, rule->host)) {
        return 0;
    }

    if (len == 0) {
        return sbx_error(e, 0, SBX_E_INVALID, "has no host");
    }

    if (memchr(s, '*', len) != NULL) {
        return sbx_error(e, 0, SBX_E_INVALID,
                         "has a \"*\" that is neither all nor \"*.\" before "
                         "a name");
    }

    if (s[len - 1] == '.') {
        return sbx_error(e, 0, SBX_E_INVALID, "has a dot at its end");
    }

    if (sbx_network_numeric(s, len)) {
        return sbx_error(e, 0, SBX_E_INVALID,
                         "looks like an address and is none: \"192.0.2.1\" "
                         "or \"192.0.2.0/24\" would fit");
    }

    return sbx_error(e, 0, SBX_E_INVALID,
                     "is no host name (letters, digits, \"-\" and \"_\", 63 "
                     "in a label, %d in all)", SBX_NETWORK_HOST_MAX);
}


/* What ends in a number is an address to many programs, whatever form they
 * give to it. */

static int
sbx_network_numeric(const char *s, size_t len)
{
    size_t       n;
    const char  *p;

    p = memrchr(s, '.', len);
    p = (p == NULL) ? s : p + 1;
    n = (size_t) (s + len - p);

    if (n >= 2 && p[0] == '0' && (p[1] | 0x20) == 'x') {
        p += 2;
        n -= 2;

        while (n != 0 && strchr("0123456789abcdefABCDEF", *p) != NULL) {
            p++;
            n--;
        }

        return n == 0;
    }

    while (n != 0 && *p >= '0' && *p <= '9') {
        p++;
        n--;
    }

    return n == 0;
}


int
sbx_network_host_ok(const char *s, size_t len, char *out)
{
    char    c;
    size_t  i, label;

    if (len == 0 || len > SBX_NETWORK_HOST_MAX
        || memchr(s, '\0', len) != NULL || sbx_network_numeric(s, len))
    {
        return 0;
    }

    label = 0;

    for (i = 0; i <= len; i++) {
        if (i == len || s[i] == '.') {
            if (label == 0 || label > SBX_NETWORK_LABEL_MAX
                || s[i - 1] == '-' || s[i - label] == '-')
            {
                return 0;
            }

            label = 0;
            continue;
        }

        c = s[i];

        if ((c < 'a' || c > 'z') && (c < 'A' || c > 'Z')
            && (c < '0' || c > '9') && c != '-' && c != '_')
        {
            return 0;
        }

        label++;
    }

    if (out != NULL) {
        for (i = 0; i < len; i++) {
            out[i] = (s[i] >= 'A' && s[i] <= 'Z') ? (char) (s[i] | 0x20)
                                                  : s[i];
        }

        out[len] = '\0';
    }

    return 1;
}


size_t
sbx_network_rule_print(const sbx_network_rule_t *rule, char *buf)
{
    int       v6;
    char      address[INET6_ADDRSTRLEN];
    size_t    n;
    unsigned  full, bits;

    n = 0;
    buf[0] = '\0';

    switch (rule->kind) {

    case SBX_NETWORK_HOST:
        n = (size_t) sprintf(buf, "%s", rule->host);
        break;

    case SBX_NETWORK_BELOW:
        n = (size_t) sprintf(buf, "*.%s", rule->host);
        break;

    case SBX_NETWORK_ANY:
        n = (size_t) sprintf(buf, "*");
        break;

    case SBX_NETWORK_NET:
        v6 = !sbx_network_v4(rule->address, rule->bits);
        full = v6 ? 128 : 32;
        bits = v6 ? rule->bits : rule->bits - 96u;

        (void) inet_ntop(v6 ? AF_INET6 : AF_INET,
                         rule->address + (v6 ? 0 : 12), address,
                         sizeof(address));

        n = (size_t) sprintf(buf, (v6 && rule->port) ? "[%s]" : "%s",
                             address);

        if (bits != full) {
            n += (size_t) sprintf(buf + n, "/%u", bits);
        }

        break;
    }

    if (rule->port != 0) {
        n += (size_t) sprintf(buf + n, ":%u", rule->port);
    }

    return n;
}


/*
 * ---- one rule against another ------------------------------------------
 */

int
sbx_network_rule_within(const sbx_network_rule_t *inner,
    const sbx_network_rule_t *outer)
{
    sbx_network_class_t  class;

    if (outer->port != 0 && outer->port != inner->port) {
        return 0;
    }

    switch (outer->kind) {

    case SBX_NETWORK_ANY:
        return inner->kind != SBX_NETWORK_NET
               || sbx_network_special(inner->address, inner->bits, &class)
                  == 0;

    case SBX_NETWORK_HOST:
        return inner->kind == SBX_NETWORK_HOST
               && strcmp(inner->host, outer->host) == 0;

    case SBX_NETWORK_BELOW:
        if (inner->kind == SBX_NETWORK_BELOW
            && strcmp(inner->host, outer->host) == 0)
        {
            return 1;
        }

        return (inner->kind == SBX_NETWORK_HOST
                || inner->kind == SBX_NETWORK_BELOW)
               && sbx_network_below(inner->host, outer->host);

    case SBX_NETWORK_NET:
        return inner->kind == SBX_NETWORK_NET
               && inner->bits >= outer->bits
               && sbx_network_v4(inner->address, inner->bits)
                  == sbx_network_v4(outer->address, outer->bits)
               && sbx_network_same(inner->address, outer->address,
                                   outer->bits);
    }

    return 0;
}


int
sbx_network_below(const char *host, const char *above)
{
    size_t  n, m;

    n = strlen(host);
    m = strlen(above);

    return n > m + 1 && host[n - m - 1] == '.'
           && memcmp(host + n - m, above, m) == 0;
}
