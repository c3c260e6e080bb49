/*
 * DNS: what a session asks, and what a resolver answers.  The first byte
 * chooses; of an answer the second is its type, and its question is put right:
 * nothing behind it would be reached else.  What is made of either is read
 * again, or is in bounds.
 */

#include "dns.h"

#include <stdlib.h>
#include <string.h>


int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_query(const uint8_t *p, size_t n);
static void check_answer(const uint8_t *p, size_t n);
static void check_reply(const sbx_dns_query_t *q, size_t size,
    const sbx_dns_answer_t *answer);


int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    uint8_t  *copy;

    if (size == 0) {
        return 0;
    }

    /* of its very size, so that a byte beyond it is noticed */

    copy = malloc(size - 1 ? size - 1 : 1);

    if (copy == NULL) {
        return 0;
    }

    memcpy(copy, data + 1, size - 1);

    if (data[0] & 1) {
        check_answer(copy, size - 1);

    } else {
        check_query(copy, size - 1);
    }

    free(copy);

    return 0;
}


static void
check_query(const uint8_t *p, size_t n)
{
    int               rc;
    size_t            i, len;
    uint8_t           buf[SBX_DNS_PLAIN];
    sbx_dns_query_t   q, again;
    sbx_dns_answer_t  answer;

    rc = sbx_dns_query_parse(p, n, &q);

    if (rc == -1) {
        return;
    }

    memset(&answer, 7, sizeof(answer));
    answer.n = SBX_DNS_ADDRESSES;

    check_reply(&q, q.size, NULL);
    check_reply(&q, q.size, &answer);
    check_reply(&q, 12, &answer);
    check_reply(&q, SBX_DNS_REPLY_MAX, &answer);

    if (rc != 0) {
        return;
    }

    len = strlen(q.name);

    if (len == 0 || len > SBX_NETWORK_HOST_MAX) {
        abort();
    }

    for (i = 0; i < len; i++) {

        if (strchr("abcdefghijklmnopqrstuvwxyz0123456789-_.", q.name[i])
            == NULL)
        {
            abort();
        }
    }

    /* what we ask then is the same */

    len = sbx_dns_ask(q.name, q.type, q.id, buf);

    if (len > sizeof(buf) || sbx_dns_query_parse(buf, len, &again) != 0
        || strcmp(q.name, again.name) != 0 || again.type != q.type)
    {
        abort();
    }
}


static void
check_reply(const sbx_dns_query_t *q, size_t size,
    const sbx_dns_answer_t *answer)
{
    size_t    n;
    uint8_t  *buf;

    buf = malloc(size);

    if (buf == NULL) {
        return;
    }

    n = sbx_dns_reply(q, SBX_DNS_NOERROR, answer, buf, size);

    if (n < 12 || n > size) {
        abort();
    }

    if (q->len && size >= SBX_DNS_REPLY_MAX && answer
        && buf[7] != SBX_DNS_ADDRESSES)
    {
        abort();
    }

    free(buf);
}


static void
check_answer(const uint8_t *p, size_t n)
{
    size_t             head;
    uint8_t           *copy, ask[SBX_DNS_PLAIN];
    unsigned           type;
    sbx_dns_answer_t   answer;

    if (n < 1) {
        return;
    }

    type = p[0] & 1 ? SBX_DNS_A : SBX_DNS_AAAA;
    head = sbx_dns_ask("a.ok.test", type, 1, ask) - 11;
    copy = malloc(n - 1 + head);

    if (copy == NULL) {
        return;
    }

    memcpy(copy, ask, head);
    memcpy(copy + head, p + 1, n - 1);
    copy[2] = 0x81;
    copy[3] = p[0] & 2 ? SBX_DNS_NXDOMAIN : SBX_DNS_NOERROR;
    copy[7] = p[0] >> 4;
    copy[9] = (p[0] >> 2) & 3;
    copy[11] = 0;

    if (sbx_dns_answer_parse(copy, n - 1 + head, "a.ok.test", type, &answer)
        == 0
        && (answer.n > SBX_DNS_ADDRESSES || answer.ttl > SBX_DNS_TTL
            || (answer.n == 0 && answer.ttl > SBX_DNS_NEGATIVE)))
    {
        abort();
    }

    free(copy);

    /* and as it comes */

    (void) sbx_dns_answer_parse(p, n, "a.ok.test", type, &answer);
}
