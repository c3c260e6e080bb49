/*
 * nftables, asked over netlink: one transaction with a table and a chain at
 * a hook, in the network namespace that the caller has made for this alone.
 */

#include "isolate_private.h"

#include <arpa/inet.h>
#include <errno.h>
#include <linux/netfilter.h>
#include <linux/netfilter/nf_tables.h>
#include <linux/netfilter/nfnetlink.h>
#include <linux/netlink.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>


#define SBX_NFT_TABLE   "sandbox"
#define SBX_NFT_CHAIN   "probe"


typedef struct {
    uint8_t    data[512];
    size_t     size;
    uint32_t   seq;
} sbx_nft_t;


static size_t sbx_nft_begin(sbx_nft_t *b, uint16_t type, uint16_t flags,
    uint8_t family, uint16_t resource);
static void sbx_nft_end(sbx_nft_t *b, size_t at);
static size_t sbx_nft_attr(sbx_nft_t *b, uint16_t type, const void *data,
    size_t size);
static void sbx_nft_nest_end(sbx_nft_t *b, size_t at);
static int sbx_nft_answers(int fd, unsigned wanted);


int
sbx_probe_nftables(void)
{
    size_t              at, nest;
    uint32_t            hook, priority;
    sbx_auto_fd         fd = -1;
    sbx_nft_t           b;
    struct sockaddr_nl  kernel;

    fd = socket(AF_NETLINK, SOCK_RAW|SOCK_CLOEXEC, NETLINK_NETFILTER);

    if (fd == -1) {
        return -1;
    }

    memset(&b, 0, sizeof(sbx_nft_t));

    at = sbx_nft_begin(&b, NFNL_MSG_BATCH_BEGIN, NLM_F_REQUEST, AF_UNSPEC,
                       NFNL_SUBSYS_NFTABLES);
    sbx_nft_end(&b, at);

    at = sbx_nft_begin(&b, (NFNL_SUBSYS_NFTABLES << 8) | NFT_MSG_NEWTABLE,
                       NLM_F_REQUEST|NLM_F_CREATE|NLM_F_ACK, NFPROTO_INET, 0);
    (void) sbx_nft_attr(&b, NFTA_TABLE_NAME, SBX_NFT_TABLE,
                        sizeof(SBX_NFT_TABLE));
    sbx_nft_end(&b, at);

    hook = htonl(NF_INET_LOCAL_OUT);
    priority = htonl(0);

    at = sbx_nft_begin(&b, (NFNL_SUBSYS_NFTABLES << 8) | NFT_MSG_NEWCHAIN,
                       NLM_F_REQUEST|NLM_F_CREATE|NLM_F_ACK, NFPROTO_INET, 0);
    (void) sbx_nft_attr(&b, NFTA_CHAIN_TABLE, SBX_NFT_TABLE,
                        sizeof(SBX_NFT_TABLE));
    (void) sbx_nft_attr(&b, NFTA_CHAIN_NAME, SBX_NFT_CHAIN,
                        sizeof(SBX_NFT_CHAIN));
    (void) sbx_nft_attr(&b, NFTA_CHAIN_TYPE, "filter", sizeof("filter"));
    nest = sbx_nft_attr(&b, NFTA_CHAIN_HOOK | NLA_F_NESTED, NULL, 0);
    (void) sbx_nft_attr(&b, NFTA_HOOK_HOOKNUM, &hook, sizeof(hook));
    (void) sbx_nft_attr(&b, NFTA_HOOK_PRIORITY, &priority, sizeof(priority));
    sbx_nft_nest_end(&b, nest);
    sbx_nft_end(&b, at);

    at = sbx_nft_begin(&b, NFNL_MSG_BATCH_END, NLM_F_REQUEST, AF_UNSPEC,
                       NFNL_SUBSYS_NFTABLES);
    sbx_nft_end(&b, at);

    memset(&kernel, 0, sizeof(struct sockaddr_nl));
    kernel.nl_family = AF_NETLINK;

    if (sendto(fd, b.data, b.size, 0, (struct sockaddr *) &kernel,
               sizeof(struct sockaddr_nl))
        == -1)
    {
        return -1;
    }

    return sbx_nft_answers(fd, 2);
}


/* Two acknowledgements; a kernel without nftables refuses the first. */

static int
sbx_nft_answers(int fd, unsigned wanted)
{
    int                     len;
    uint32_t                buf[1024];
    ssize_t                 n;
    struct timeval          second = { 1, 0 };
    struct nlmsgerr         error;
    const struct nlmsghdr  *head;

    (void) setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &second, sizeof(second));

    while (wanted != 0) {
        n = recv(fd, buf, sizeof(buf), 0);

        if (n <= 0) {
            return -1;
        }

        len = (int) n;

        for (head = (const struct nlmsghdr *) (const void *) buf;
             NLMSG_OK(head, (uint32_t) len);
             head = NLMSG_NEXT(head, len))
        {
            if (head->nlmsg_type != NLMSG_ERROR
                || head->nlmsg_len < NLMSG_LENGTH(sizeof(error)))
            {
                continue;
            }

            memcpy(&error, NLMSG_DATA(head), sizeof(error));

            if (error.error != 0) {
                errno = -error.error;
                return -1;
            }

            wanted -= wanted != 0;
        }
    }

    return 0;
}


static size_t
sbx_nft_begin(sbx_nft_t *b, uint16_t type, uint16_t flags, uint8_t family,
    uint16_t resource)
{
    size_t            at;
    struct nlmsghdr   head;
    struct nfgenmsg   gen;

    memset(&head, 0, sizeof(head));
    memset(&gen, 0, sizeof(gen));

    at = b->size;
    head.nlmsg_type = type;
    head.nlmsg_flags = flags;
    head.nlmsg_seq = ++b->seq;
    gen.nfgen_family = family;
    gen.version = NFNETLINK_V0;
    gen.res_id = htons(resource);

    memcpy(b->data + at, &head, sizeof(head));
    memcpy(b->data + at + NLMSG_HDRLEN, &gen, sizeof(gen));
    b->size = at + NLMSG_HDRLEN + NLMSG_ALIGN(sizeof(gen));

    return at;
}


static void
sbx_nft_end(sbx_nft_t *b, size_t at)
{
    uint32_t  len;

    len = (uint32_t) (b->size - at);
    memcpy(b->data + at + offsetof(struct nlmsghdr, nlmsg_len), &len,
           sizeof(len));
}


static size_t
sbx_nft_attr(sbx_nft_t *b, uint16_t type, const void *data, size_t size)
{
    size_t         at;
    struct nlattr  attr;

    at = b->size;
    attr.nla_type = type;
    attr.nla_len = (uint16_t) (NLA_HDRLEN + size);

    memcpy(b->data + at, &attr, sizeof(attr));

    if (size != 0) {
        memcpy(b->data + at + NLA_HDRLEN, data, size);
    }

    b->size = at + NLA_HDRLEN + NLA_ALIGN(size);

    return at;
}


static void
sbx_nft_nest_end(sbx_nft_t *b, size_t at)
{
    uint16_t  len;

    len = (uint16_t) (b->size - at);
    memcpy(b->data + at + offsetof(struct nlattr, nla_len), &len,
           sizeof(len));
}
