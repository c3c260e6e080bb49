/*
 * DNS messages: a session's question, our answer to it, our question to a
 * resolver, its answer.  Nothing that comes is believed: names end within
 * their message, pointers point back, a question is one name of letters,
 * digits, '-' and '_' without any pointer, and an answer is to what was asked.
 */

#include "dns.h"

#include <string.h>


#define SBX_DNS_HEAD       12
#define SBX_DNS_IN         1
#define SBX_DNS_RECORDS    1024       /* that are looked at */
#define SBX_DNS_JUMPS      64         /* of a name */
#define SBX_DNS_OPT_SIZE   11

#define SBX_DNS_QR         0x8000
#define SBX_DNS_OPCODE     0x7800
#define SBX_DNS_TC         0x0200
#define SBX_DNS_RD         0x0100
#define SBX_DNS_RA         0x0080
#define SBX_DNS_CD         0x0010


/* A name as messages have it: without pointers, in lower case. */
typedef struct {
    size_t     len;
    uint8_t    p[SBX_DNS_WIRE_MAX];
} sbx_dns_name_t;

/* Where an answer has led to. */
typedef struct {
    sbx_dns_name_t   owner;
    unsigned         links;           /* CNAMEs on the way */
} sbx_dns_chain_t;

typedef struct {
    sbx_dns_name_t   name;
    unsigned         type;
    unsigned         class;
    uint32_t         ttl;
    size_t           data;            /* its offset */
    size_t           size;
} sbx_dns_record_t;


static int sbx_dns_query_question(const uint8_t *p, size_t n, size_t *at,
    sbx_dns_query_t *q);
static int sbx_dns_query_name(const uint8_t *p, size_t n, size_t *at,
    char *name);
static int sbx_dns_query_options(const uint8_t *p, size_t n, size_t at,
    unsigned records, sbx_dns_query_t *q);
static int sbx_dns_char(uint8_t c);
static int sbx_dns_answer_head(const uint8_t *p, size_t n, size_t *at,
    const sbx_dns_name_t *asked, unsigned type);
static int sbx_dns_answer_take(const uint8_t *p, size_t n,
    const sbx_dns_record_t *record, unsigned type, sbx_dns_chain_t *chain,
    sbx_dns_answer_t *answer);
static void sbx_dns_answer_address(const uint8_t *data, unsigned type,
    sbx_dns_answer_t *answer);
static int sbx_dns_negative(const uint8_t *p, size_t n, size_t *at,
    sbx_dns_answer_t *answer);
static int sbx_dns_record(const uint8_t *p, size_t n, size_t *at,
    sbx_dns_record_t *record);
static int sbx_dns_name(const uint8_t *p, size_t n, size_t *at,
    sbx_dns_name_t *name);
static size_t sbx_dns_wire(const char *name, uint8_t *p);
static int sbx_dns_same(const sbx_dns_name_t *a, const sbx_dns_name_t *b);
static unsigned sbx_dns_16(const uint8_t *p);
static uint32_t sbx_dns_32(const uint8_t *p);
static uint8_t *sbx_dns_put16(uint8_t *p, unsigned v);
static uint8_t *sbx_dns_put32(uint8_t *p, uint32_t v);


int
sbx_dns_query_parse(const uint8_t *p, size_t n, sbx_dns_query_t *q)
{
    int       rc;
    size_t    at;
    unsigned  flags;

    memset(q, 0, sizeof(sbx_dns_query_t));

    if (n < SBX_DNS_HEAD) {
        return -1;
    }

    flags = sbx_dns_16(p + 2);

    if (flags & SBX_DNS_QR) {
        return -1;
    }

    q->id = sbx_dns_16(p);
    q->flags = flags & (SBX_DNS_OPCODE | SBX_DNS_RD | SBX_DNS_CD);
    q->size = SBX_DNS_PLAIN;

    if (flags & SBX_DNS_OPCODE) {
        return SBX_DNS_NOTIMP;
    }

    /* one question, no answers, no authority */

    if (sbx_dns_16(p + 4) != 1 || sbx_dns_32(p + 6) != 0) {
        return SBX_DNS_FORMERR;
    }

    at = SBX_DNS_HEAD;
    rc = sbx_dns_query_question(p, n, &at, q);

    if (rc != 0) {
        return rc;
    }

    return sbx_dns_query_options(p, n, at, sbx_dns_16(p + 10), q);
}


static int
sbx_dns_query_question(const uint8_t *p, size_t n, size_t *at,
    sbx_dns_query_t *q)
{
    int     rc;
    size_t  first;

    first = *at;
    rc = sbx_dns_query_name(p, n, at, q->name);

    if (rc == SBX_DNS_FORMERR) {
        return rc;
    }

    if (n - *at < 4) {
        return SBX_DNS_FORMERR;
    }

    q->type = sbx_dns_16(p + *at);
    q->class = sbx_dns_16(p + *at + 2);
    *at += 4;

    q->len = *at - first;
    memcpy(q->question, p + first, q->len);

    return rc != 0 ? rc : q->class == SBX_DNS_IN ? 0 : SBX_DNS_REFUSED;
}


/* REFUSED: it is a name, but no host's; the name is then empty. */

static int
sbx_dns_query_name(const uint8_t *p, size_t n, size_t *at, char *name)
{
    int      rc, letters;
    size_t   i, len, last;
    uint8_t  c;

    rc = 0;
    len = 0;
    letters = 0;

    for (i = *at; /* void */ ; i = last) {

        if (i >= n || p[i] > 63 || n - i <= p[i]) {
            return SBX_DNS_FORMERR;
        }

        last = i + p[i] + 1;

        if (last - *at > SBX_DNS_WIRE_MAX) {
            return SBX_DNS_FORMERR;
        }

        if (p[i] == 0) {
            *at = last;
            break;
        }

        if (len) {
            name[len++] = '.';
        }

        letters = 0;

        while (++i < last) {
            c = p[i] >= 'A' && p[i] <= 'Z' ? p[i] | 0x20 : p[i];

            if (!sbx_dns_char(c)) {
                rc = SBX_DNS_REFUSED;
            }

            letters |= c < '0' || c > '9';
            name[len++] = (char) c;
        }
    }

    /* the root; what ends like an address in digits */

    if (len == 0 || !letters) {
        rc = SBX_DNS_REFUSED;
    }

    name[rc == 0 ? len : 0] = '\0';

    return rc;
}


static int
sbx_dns_char(uint8_t c)
{
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-'
           || c == '_';
}


/* OPT alone may follow; what is in it does not matter. */

static int
sbx_dns_query_options(const uint8_t *p, size_t n, size_t at,
    unsigned records, sbx_dns_query_t *q)
{
    unsigned  size;

    if (records == 0) {
        return at == n ? 0 : SBX_DNS_FORMERR;
    }

    if (records != 1 || n - at < SBX_DNS_OPT_SIZE || p[at] != 0
        || sbx_dns_16(p + at + 1) != SBX_DNS_OPT || p[at + 6] != 0
        || n - at - SBX_DNS_OPT_SIZE != sbx_dns_16(p + at + 9))
    {
        return SBX_DNS_FORMERR;
    }

    size = sbx_dns_16(p + at + 3);

    if (size > SBX_DNS_EDNS) {
        size = SBX_DNS_EDNS;
    }

    if (size > SBX_DNS_PLAIN) {
        q->size = size;
    }

    q->edns = 1;

    return 0;
}


size_t
sbx_dns_reply(const sbx_dns_query_t *q, sbx_dns_code_t code,
    const sbx_dns_answer_t *answer, uint8_t *buf, size_t size)
{
    size_t    i, n, each, room;
    uint8_t  *p;
    unsigned  flags;

    n = answer ? answer->n : 0;
    each = q->type == SBX_DNS_AAAA ? 28 : 16;
    room = SBX_DNS_HEAD + q->len + (q->edns ? SBX_DNS_OPT_SIZE : 0);
    flags = SBX_DNS_QR | SBX_DNS_RA | q->flags | code;

    if (room > size) {
        room = SBX_DNS_HEAD;
        n = 0;
    }

    if (n > (size - room) / each) {
        n = (size - room) / each;
        flags |= SBX_DNS_TC;
    }

    p = sbx_dns_put16(buf, q->id);
    p = sbx_dns_put16(p, flags);
    p = sbx_dns_put16(p, room > SBX_DNS_HEAD && q->len ? 1 : 0);
    p = sbx_dns_put16(p, n);
    p = sbx_dns_put16(p, 0);
    p = sbx_dns_put16(p, room > SBX_DNS_HEAD && q->edns ? 1 : 0);

    if (room == SBX_DNS_HEAD) {
        return SBX_DNS_HEAD;
    }

    memcpy(p, q->question, q->len);
    p += q->len;

    for (i = 0; i < n; i++) {
        p = sbx_dns_put16(p, 0xc000 | SBX_DNS_HEAD);
        p = sbx_dns_put16(p, q->type);
        p = sbx_dns_put16(p, SBX_DNS_IN);
        p = sbx_dns_put32(p, answer->ttl);
        p = sbx_dns_put16(p, each - 12);

        memcpy(p, answer->address[i] + (28 - each), each - 12);
        p += each - 12;
    }

    if (q->edns) {
        *p++ = 0;
        p = sbx_dns_put16(p, SBX_DNS_OPT);
        p = sbx_dns_put16(p, SBX_DNS_EDNS);
        p = sbx_dns_put32(p, 0);
        p = sbx_dns_put16(p, 0);
    }

    return p - buf;
}


size_t
sbx_dns_ask(const char *name, unsigned type, unsigned id, uint8_t *buf)
{
    uint8_t  *p;

    p = sbx_dns_put16(buf, id);
    p = sbx_dns_put16(p, SBX_DNS_RD);
    p = sbx_dns_put16(p, 1);
    p = sbx_dns_put32(p, 0);
    p = sbx_dns_put16(p, 1);

    p += sbx_dns_wire(name, p);
    p = sbx_dns_put16(p, type);
    p = sbx_dns_put16(p, SBX_DNS_IN);

    *p++ = 0;
    p = sbx_dns_put16(p, SBX_DNS_OPT);
    p = sbx_dns_put16(p, SBX_DNS_EDNS);
    p = sbx_dns_put32(p, 0);
    p = sbx_dns_put16(p, 0);

    return p - buf;
}


int
sbx_dns_answer_parse(const uint8_t *p, size_t n, const char *name,
    unsigned type, sbx_dns_answer_t *answer)
{
    int               rc;
    size_t            at;
    unsigned          i, records;
    sbx_dns_chain_t   chain;
    sbx_dns_record_t  record;

    memset(answer, 0, sizeof(sbx_dns_answer_t));
    answer->ttl = SBX_DNS_TTL;

    memset(&chain, 0, sizeof(sbx_dns_chain_t));
    chain.owner.len = sbx_dns_wire(name, chain.owner.p);

    rc = sbx_dns_answer_head(p, n, &at, &chain.owner, type);

    if (rc < 0) {
        return -1;
    }

    answer->code = rc;
    records = sbx_dns_16(p + 6);

    for (i = 0; i < records; i++) {

        if (i == SBX_DNS_RECORDS || answer->n == SBX_DNS_ADDRESSES) {
            break;
        }

        if (sbx_dns_record(p, n, &at, &record) == -1
            || sbx_dns_answer_take(p, n, &record, type, &chain, answer) == -1)
        {
            return -1;
        }
    }

    if (answer->n) {

        /* an answer of addresses that says there is no such name */

        return answer->code == SBX_DNS_NOERROR ? 0 : -1;
    }

    answer->ttl = 0;

    return i < records ? 0 : sbx_dns_negative(p, n, &at, answer);
}


/* NOERROR or NXDOMAIN, else -1. */

static int
sbx_dns_answer_head(const uint8_t *p, size_t n, size_t *at,
    const sbx_dns_name_t *asked, unsigned type)
{
    unsigned        flags, code;
    sbx_dns_name_t  name;

    if (n < SBX_DNS_HEAD) {
        return -1;
    }

    flags = sbx_dns_16(p + 2);
    code = flags & 0x0f;

    if (!(flags & SBX_DNS_QR) || (flags & SBX_DNS_OPCODE)
        || sbx_dns_16(p + 4) != 1
        || (code != SBX_DNS_NOERROR && code != SBX_DNS_NXDOMAIN))
    {
        return -1;
    }

    *at = SBX_DNS_HEAD;

    if (sbx_dns_name(p, n, at, &name) == -1 || n - *at < 4
        || !sbx_dns_same(&name, asked) || sbx_dns_16(p + *at) != type
        || sbx_dns_16(p + *at + 2) != SBX_DNS_IN)
    {
        return -1;
    }

    *at += 4;

    return (int) code;
}


/*
 * A record that is not of the chain does not matter: it is never passed on,
 * nor is the chain itself.
 */

static int
sbx_dns_answer_take(const uint8_t *p, size_t n,
    const sbx_dns_record_t *record, unsigned type, sbx_dns_chain_t *chain,
    sbx_dns_answer_t *answer)
{
    size_t          at;
    sbx_dns_name_t  target;

    if (record->class != SBX_DNS_IN
        || !sbx_dns_same(&record->name, &chain->owner))
    {
        return 0;
    }

    if (record->type == SBX_DNS_CNAME) {
        at = record->data;

        /* an owner of addresses is no alias as well */

        if (answer->n || ++chain->links > SBX_DNS_CHAIN
            || sbx_dns_name(p, n, &at, &target) == -1
            || at != record->data + record->size)
        {
            return -1;
        }

        chain->owner = target;

    } else if (record->type == type) {

        if (record->size != (type == SBX_DNS_A ? 4 : 16)) {
            return -1;
        }

        sbx_dns_answer_address(p + record->data, type, answer);

    } else {
        return 0;
    }

    if (record->ttl < answer->ttl) {
        answer->ttl = record->ttl;
    }

    return 0;
}


static void
sbx_dns_answer_address(const uint8_t *data, unsigned type,
    sbx_dns_answer_t *answer)
{
    size_t    i;
    uint8_t  *address;

    address = answer->address[answer->n];

    if (type == SBX_DNS_A) {
        memset(address, 0, 10);
        memset(address + 10, 0xff, 2);
        memcpy(address + 12, data, 4);

    } else {
        memcpy(address, data, 16);
    }

    for (i = 0; i < answer->n; i++) {

        if (memcmp(answer->address[i], address, 16) == 0) {
            return;
        }
    }

    answer->n++;
}


/* How long it holds is said by an SOA; without one it is not kept. */

static int
sbx_dns_negative(const uint8_t *p, size_t n, size_t *at,
    sbx_dns_answer_t *answer)
{
    size_t            data;
    uint32_t          ttl;
    unsigned          i, records;
    sbx_dns_name_t    name;
    sbx_dns_record_t  record;

    records = sbx_dns_16(p + 8);

    for (i = 0; i < records && i < SBX_DNS_CHAIN; i++) {

        if (sbx_dns_record(p, n, at, &record) == -1) {
            return -1;
        }

        if (record.type != SBX_DNS_SOA) {
            continue;
        }

        data = record.data;

        if (sbx_dns_name(p, n, &data, &name) == -1
            || sbx_dns_name(p, n, &data, &name) == -1
            || data + 20 != record.data + record.size)
        {
            return -1;
        }

        ttl = sbx_dns_32(p + data + 16);

        if (ttl > record.ttl) {
            ttl = record.ttl;
        }

        answer->ttl = ttl > SBX_DNS_NEGATIVE ? SBX_DNS_NEGATIVE : ttl;
        break;
    }

    return 0;
}


static int
sbx_dns_record(const uint8_t *p, size_t n, size_t *at,
    sbx_dns_record_t *record)
{
    if (sbx_dns_name(p, n, at, &record->name) == -1 || n - *at < 10) {
        return -1;
    }

    record->type = sbx_dns_16(p + *at);
    record->class = sbx_dns_16(p + *at + 2);
    record->ttl = sbx_dns_32(p + *at + 4);
    record->size = sbx_dns_16(p + *at + 8);
    record->data = *at + 10;

    if (n - record->data < record->size) {
        return -1;
    }

    if (record->ttl > INT32_MAX) {
        record->ttl = 0;
    }

    *at = record->data + record->size;

    return 0;
}


/* Each pointer points to before the one that led to it: there is no loop. */

static int
sbx_dns_name(const uint8_t *p, size_t n, size_t *at, sbx_dns_name_t *name)
{
    size_t    i, j, low, to;
    unsigned  jumps;

    i = *at;
    low = i;
    jumps = 0;
    name->len = 0;

    for ( ;; ) {

        if (i >= n) {
            return -1;
        }

        if ((p[i] & 0xc0) == 0xc0) {

            if (n - i < 2) {
                return -1;
            }

            to = sbx_dns_16(p + i) & 0x3fff;

            if (to >= low || to < SBX_DNS_HEAD || jumps == SBX_DNS_JUMPS) {
                return -1;
            }

            if (jumps++ == 0) {
                *at = i + 2;
            }

            i = low = to;
            continue;
        }

        if (p[i] > 63 || n - i <= p[i]
            || name->len + p[i] + 1 > SBX_DNS_WIRE_MAX)
        {
            return -1;
        }

        name->p[name->len++] = p[i];

        for (j = i + 1; j <= i + p[i]; j++) {
            name->p[name->len++] = p[j] >= 'A' && p[j] <= 'Z' ? p[j] | 0x20
                                                              : p[j];
        }

        if (p[i] == 0) {
            break;
        }

        i += p[i] + 1;
    }

    if (jumps == 0) {
        *at = i + 1;
    }

    return 0;
}


/* Of a query's name, which has no empty label and none over 63 bytes. */

static size_t
sbx_dns_wire(const char *name, uint8_t *p)
{
    size_t    len, n;
    uint8_t  *first = p;

    for (n = 0; *name && n + 2 < SBX_DNS_WIRE_MAX; n += len + 1) {
        len = strcspn(name, ".");

        if (len > 63 || n + len + 2 > SBX_DNS_WIRE_MAX) {
            break;
        }

        *p++ = (uint8_t) len;
        memcpy(p, name, len);
        p += len;
        name += len + (name[len] == '.');
    }

    *p++ = 0;

    return p - first;
}


static int
sbx_dns_same(const sbx_dns_name_t *a, const sbx_dns_name_t *b)
{
    return a->len == b->len && memcmp(a->p, b->p, a->len) == 0;
}


static unsigned
sbx_dns_16(const uint8_t *p)
{
    return (unsigned) p[0] << 8 | p[1];
}


static uint32_t
sbx_dns_32(const uint8_t *p)
{
    return (uint32_t) sbx_dns_16(p) << 16 | sbx_dns_16(p + 2);
}


static uint8_t *
sbx_dns_put16(uint8_t *p, unsigned v)
{
    p[0] = (uint8_t) (v >> 8);
    p[1] = (uint8_t) v;

    return p + 2;
}


static uint8_t *
sbx_dns_put32(uint8_t *p, uint32_t v)
{
    p = sbx_dns_put16(p, v >> 16);

    return sbx_dns_put16(p, v & 0xffff);
}
