/*
 * The rules of a session's network namespace: one table of nftables, replaced
 * as a whole, in a namespace that belongs to the initial user namespace, so
 * that nobody inside can list or change it.
 *
 * There is no interface but lo: what these rules forget reaches nobody.  They
 * see to it that what may go out comes to the egress with its destination,
 * that nothing else comes there, and that all the rest is refused at once
 * rather than lost.  A packet of the session meets three chains in turn:
 *
 *   raw     what stays inside (between addresses of 127/8, ::1, or of the
 *           session's own) is not tracked: it costs nothing, and cannot fill
 *           the kernel's table.  But for port 53 of the session's own
 *           address, which is the egress's.
 *   judge   what belongs to a connection that was let out passes, and so do
 *           the answers of the egress and the refusals that the kernel makes
 *           here.  The egress's sockets cannot be reached by their own
 *           addresses.  New TCP connections and questions to port 53 are let
 *           out, so many a second.  All else is refused.
 *   nat     what is new is led to the sockets.
 *
 * The kernel takes the memory of what it tracks, about half a kilobyte for
 * each connection, from nobody's account.  A session can have as many entries
 * as connections are open (whose number the egress bounds), and for a few
 * seconds more those that have ended, see the timeouts in net_grant.c: 1,000
 * new ones a second for at most 10 seconds and 4,096 at a stroke, of DNS 500
 * for 15 seconds and 1,000 at a stroke, each for IPv4 and IPv6: less than
 * 50,000, or 25 MB, if it tries hard and has all of its connections fail.
 */

#include "net_private.h"

#include <arpa/inet.h>
#include <errno.h>
#include <linux/netfilter.h>
#include <linux/netfilter/nf_tables.h>
#include <linux/netfilter/nfnetlink.h>
#include <netinet/in.h>
#include <string.h>


#define SBX_NET_TABLE        "sandbox"
#define SBX_NET_MATCHES      5
#define SBX_NET_REGISTER     NFT_REG_1

/* of conntrack's states, as nft_ct has them */
#define SBX_CT_KNOWN         0x06u    /* established, related */
#define SBX_CT_NEW           0x08u
#define SBX_CT_UNTRACKED     0x40u


typedef enum {
    SBX_CHAIN_RAW,
    SBX_CHAIN_JUDGE,
    SBX_CHAIN_NAT,
    SBX_CHAIN_REFUSE,
    SBX_CHAINS
} sbx_net_chain_t;

typedef enum {
    SBX_MATCH_NONE,
    SBX_MATCH_FAMILY,
    SBX_MATCH_PROTOCOL,               /* behind IPv6's extension headers */
    SBX_MATCH_STATE,                  /* one of the bits */
    SBX_MATCH_NETWORK,                /* bytes of the header */
    SBX_MATCH_TRANSPORT,
    SBX_MATCH_LISTENER,               /* destination port of a socket of the
                                         egress; none: the rule is left out */
    SBX_MATCH_LIMIT
} sbx_net_what_t;

typedef struct {
    uint8_t              what;        /* sbx_net_what_t */
    uint8_t              not;
    uint8_t              at;          /* or which socket */
    uint8_t              size;
    uint8_t              value[16];
    uint8_t              mask[16];    /* zero: all of it */
    uint32_t             number;      /* of states, or a second */
    uint32_t             burst;
} sbx_net_match_t;

typedef enum {
    SBX_ACTION_ACCEPT,
    SBX_ACTION_UNTRACKED,
    SBX_ACTION_REFUSE,
    SBX_ACTION_RESET,
    SBX_ACTION_UNREACHABLE,
    SBX_ACTION_REDIRECT               /* to the socket of .target */
} sbx_net_action_t;

typedef struct {
    uint8_t              chain;       /* sbx_net_chain_t */
    uint8_t              action;      /* sbx_net_action_t */
    uint8_t              target;
    sbx_net_match_t      match[SBX_NET_MATCHES];
} sbx_net_rule_t;

/* What the namespace had before. */
typedef enum {
    SBX_HAD_NONE,
    SBX_HAD_OTHERS,
    SBX_HAD_SAME
} sbx_nft_had_t;


#define IPV4                                                                  \
    { .what = SBX_MATCH_FAMILY, .size = 1, .value = { NFPROTO_IPV4 } }
#define IPV6                                                                  \
    { .what = SBX_MATCH_FAMILY, .size = 1, .value = { NFPROTO_IPV6 } }
#define PROTOCOL(n)                                                           \
    { .what = SBX_MATCH_PROTOCOL, .size = 1, .value = { n } }
#define STATE(bits)                                                           \
    { .what = SBX_MATCH_STATE, .size = 4, .number = bits }
#define LISTENER(socket)                                                      \
    { .what = SBX_MATCH_LISTENER, .at = socket, .size = 2 }
#define PORT_OF_NAMES                                                         \
    { .what = SBX_MATCH_TRANSPORT, .at = 2, .size = 2, .value = { 0, 53 } }
#define AT_MOST(n, at_a_stroke)                                               \
    { .what = SBX_MATCH_LIMIT, .number = n, .burst = at_a_stroke }

#define HEADER(offset, length, ...)                                           \
    { .what = SBX_MATCH_NETWORK, .at = offset, .size = length, __VA_ARGS__ }

#define LOOP4                .value = { 127 }, .mask = { 255 }
#define OWN4                 .value = { 192, 0, 0, 8 }
#define LOOP6                .value = { [15] = 1 }
#define OWN6                 .value = { 0xfd, 0, 0, 0x5b, [15] = 1 }
#define FROM4(...)           HEADER(12, 4, __VA_ARGS__)
#define TO4(...)             HEADER(16, 4, __VA_ARGS__)
#define FROM6(...)           HEADER(8, 16, __VA_ARGS__)
#define TO6(...)             HEADER(24, 16, __VA_ARGS__)

/* without options, without extension headers */
#define PLAIN4(protocol)     HEADER(9, 1, .value = { protocol })
#define PLAIN6(protocol)     HEADER(6, 1, .value = { protocol })
#define OPTIONS4             HEADER(0, 1, .value = { 0x45 }, .not = 1)

#define RAW(action, ...)                                                      \
    { SBX_CHAIN_RAW, SBX_ACTION_ ## action, 0, { __VA_ARGS__ } }
#define JUDGE(action, ...)                                                    \
    { SBX_CHAIN_JUDGE, SBX_ACTION_ ## action, 0, { __VA_ARGS__ } }
#define LEAD(socket, ...)                                                     \
    { SBX_CHAIN_NAT, SBX_ACTION_REDIRECT, socket, { __VA_ARGS__ } }

static const sbx_net_rule_t  sbx_net_table[] = {

    RAW(ACCEPT,    IPV4, TO4(OWN4), PROTOCOL(IPPROTO_TCP), PORT_OF_NAMES),
    RAW(ACCEPT,    IPV4, TO4(OWN4), PROTOCOL(IPPROTO_UDP), PORT_OF_NAMES),
    RAW(UNTRACKED, IPV4, FROM4(OWN4), TO4(OWN4)),
    RAW(UNTRACKED, IPV4, FROM4(LOOP4), TO4(LOOP4)),

    RAW(ACCEPT,    IPV6, TO6(OWN6), PROTOCOL(IPPROTO_TCP), PORT_OF_NAMES),
    RAW(ACCEPT,    IPV6, TO6(OWN6), PROTOCOL(IPPROTO_UDP), PORT_OF_NAMES),
    RAW(UNTRACKED, IPV6, FROM6(OWN6), TO6(OWN6)),
    RAW(UNTRACKED, IPV6, FROM6(LOOP6), TO6(LOOP6)),

    JUDGE(ACCEPT,  STATE(SBX_CT_KNOWN)),

    JUDGE(REFUSE,  IPV4, TO4(LOOP4), PROTOCOL(IPPROTO_TCP),
                   LISTENER(SBX_NET_TCP4)),
    JUDGE(REFUSE,  IPV4, TO4(LOOP4), PROTOCOL(IPPROTO_UDP),
                   LISTENER(SBX_NET_UDP4)),
    JUDGE(REFUSE,  IPV6, TO6(LOOP6), PROTOCOL(IPPROTO_TCP),
                   LISTENER(SBX_NET_TCP6)),
    JUDGE(REFUSE,  IPV6, TO6(LOOP6), PROTOCOL(IPPROTO_UDP),
                   LISTENER(SBX_NET_UDP6)),

    JUDGE(ACCEPT,  STATE(SBX_CT_UNTRACKED)),

    JUDGE(REFUSE,  IPV4, OPTIONS4),
    JUDGE(REFUSE,  IPV4, FROM4(OWN4, .not = 1)),
    JUDGE(REFUSE,  IPV4, TO4(LOOP4)),
    /* multicast and broadcast; the rest of 240/4 is the egress's to judge */
    JUDGE(REFUSE,  IPV4, TO4(.value = { 224 }, .mask = { 240 })),
    JUDGE(REFUSE,  IPV4, TO4(.value = { 255, 255, 255, 255 })),

    JUDGE(REFUSE,  IPV6, FROM6(OWN6, .not = 1)),
    JUDGE(REFUSE,  IPV6, TO6(LOOP6)),
    JUDGE(REFUSE,  IPV6, TO6(.value = { 255 }, .mask = { 255 })),

    JUDGE(ACCEPT,  IPV4, PLAIN4(IPPROTO_TCP), STATE(SBX_CT_NEW),
                   AT_MOST(1000, 4096)),
    JUDGE(ACCEPT,  IPV4, PLAIN4(IPPROTO_UDP), PORT_OF_NAMES,
                   STATE(SBX_CT_NEW), AT_MOST(500, 1000)),
    JUDGE(ACCEPT,  IPV6, PLAIN6(IPPROTO_TCP), STATE(SBX_CT_NEW),
                   AT_MOST(1000, 4096)),
    JUDGE(ACCEPT,  IPV6, PLAIN6(IPPROTO_UDP), PORT_OF_NAMES,
                   STATE(SBX_CT_NEW), AT_MOST(500, 1000)),

    JUDGE(REFUSE,  { .what = SBX_MATCH_NONE }),

    LEAD(SBX_NET_TCP4, IPV4, PLAIN4(IPPROTO_TCP)),
    LEAD(SBX_NET_UDP4, IPV4, PLAIN4(IPPROTO_UDP), PORT_OF_NAMES),
    LEAD(SBX_NET_TCP6, IPV6, PLAIN6(IPPROTO_TCP)),
    LEAD(SBX_NET_UDP6, IPV6, PLAIN6(IPPROTO_UDP), PORT_OF_NAMES),

    { SBX_CHAIN_REFUSE, SBX_ACTION_RESET, 0, { PROTOCOL(IPPROTO_TCP) } },
    { SBX_CHAIN_REFUSE, SBX_ACTION_UNREACHABLE, 0,
      { { .what = SBX_MATCH_NONE } } }
};

/* The first is a chain that others lead to. */
static const struct {
    const char  *name;
    const char  *type;
    int          priority;
} sbx_net_chains[SBX_CHAINS] = {
    [SBX_CHAIN_RAW]    = { "raw",    "filter", -300 },
    [SBX_CHAIN_JUDGE]  = { "judge",  "filter", -150 },
    [SBX_CHAIN_NAT]    = { "nat",    "nat",    -100 },
    [SBX_CHAIN_REFUSE] = { "refuse", NULL,     0 }
};


static sbx_nft_had_t sbx_nft_had(const sbx_net_rules_t *rules);
static int sbx_nft_send(const sbx_net_rules_t *rules, sbx_nft_had_t had);
static void sbx_nft_begin(sbx_netlink_t *n, uint16_t type, uint16_t flags);
static void sbx_nft_batch(sbx_netlink_t *n, uint16_t type);
static void sbx_nft_table(sbx_netlink_t *n, uint16_t type, uint16_t flags,
    const sbx_net_rules_t *rules);
static void sbx_nft_chain(sbx_netlink_t *n, sbx_net_chain_t chain);
static void sbx_nft_rule(sbx_netlink_t *n, const sbx_net_rules_t *rules,
    const sbx_net_rule_t *rule, uint16_t flags);
static int sbx_nft_left_out(const sbx_net_rules_t *rules,
    const sbx_net_rule_t *rule);
static void sbx_nft_match(sbx_netlink_t *n, const sbx_net_rules_t *rules,
    const sbx_net_match_t *m);
static void sbx_nft_load(sbx_netlink_t *n, const sbx_net_match_t *m);
static void sbx_nft_mask(sbx_netlink_t *n, const void *mask, size_t size);
static void sbx_nft_compare(sbx_netlink_t *n, unsigned differs,
    const void *value, size_t size);
static void sbx_nft_limit(sbx_netlink_t *n, const sbx_net_match_t *m);
static void sbx_nft_action(sbx_netlink_t *n, const sbx_net_rules_t *rules,
    const sbx_net_rule_t *rule);
static void sbx_nft_verdict(sbx_netlink_t *n, int verdict,
    const char *chain);
static void sbx_nft_reject(sbx_netlink_t *n, unsigned type, unsigned code);
static void sbx_nft_redirect(sbx_netlink_t *n, uint16_t port);


/*
 * The first are made in a third of a millisecond.  In place of others they
 * take ten, as the kernel waits until nobody looks at those any more: so the
 * table says which it has, and the same are not made again.
 */
int
sbx_net_rules(const sbx_net_rules_t *rules)
{
    sbx_nft_had_t  had;

    had = sbx_nft_had(rules);

    return had == SBX_HAD_SAME ? 0 : sbx_nft_send(rules, had);
}


static sbx_nft_had_t
sbx_nft_had(const sbx_net_rules_t *rules)
{
    char                    buf[4096] __attribute__((aligned(8)));
    sbx_netlink_t           n;
    const struct nlattr    *a;
    const struct nlmsghdr  *answer;

    n.size = 0;
    n.seq = 0;

    sbx_nft_begin(&n, NFT_MSG_GETTABLE, 0);
    mnl_attr_put_strz(n.message, NFTA_TABLE_NAME, SBX_NET_TABLE);
    sbx_netlink_end(&n);

    answer = sbx_netlink_get(&n, NETLINK_NETFILTER, buf, sizeof(buf));

    if (answer == NULL) {
        return SBX_HAD_NONE;
    }

    mnl_attr_for_each(a, answer, sizeof(struct nfgenmsg)) {
        if (mnl_attr_get_type(a) == NFTA_TABLE_USERDATA
            && mnl_attr_get_payload_len(a) == sizeof(rules->port)
            && memcmp(mnl_attr_get_payload(a), rules->port,
                      sizeof(rules->port))
               == 0)
        {
            return SBX_HAD_SAME;
        }
    }

    return SBX_HAD_OTHERS;
}


static int
sbx_nft_send(const sbx_net_rules_t *rules, sbx_nft_had_t had)
{
    size_t         i, last;
    unsigned       chain;
    sbx_netlink_t  n;

    n.size = 0;
    n.seq = 0;

    sbx_nft_batch(&n, NFNL_MSG_BATCH_BEGIN);

    if (had == SBX_HAD_OTHERS) {
        sbx_nft_table(&n, NFT_MSG_DELTABLE, 0, NULL);
    }

    sbx_nft_table(&n, NFT_MSG_NEWTABLE, NLM_F_CREATE, rules);

    for (chain = 0; chain < SBX_CHAINS; chain++) {
        if (chain != SBX_CHAIN_NAT || !rules->judge_only) {
            sbx_nft_chain(&n, (sbx_net_chain_t) chain);
        }
    }

    last = sbx_nelts(sbx_net_table) - 1;

    for (i = 0; i <= last; i++) {
        if (!sbx_nft_left_out(rules, &sbx_net_table[i])) {
            sbx_nft_rule(&n, rules, &sbx_net_table[i],
                         i == last ? NLM_F_ACK : 0);
        }
    }

    /* the end of a batch is no request that is answered */

    sbx_nft_batch(&n, NFNL_MSG_BATCH_END);
    n.seq--;

    return sbx_netlink_send(&n, NETLINK_NETFILTER, 0);
}


/*
 * ---- messages ------------------------------------------------------------
 */

static void
sbx_nft_begin(sbx_netlink_t *n, uint16_t type, uint16_t flags)
{
    struct nfgenmsg  *gen;

    sbx_netlink_begin(n, (uint16_t) ((NFNL_SUBSYS_NFTABLES << 8) | type),
                      flags);

    gen = mnl_nlmsg_put_extra_header(n->message, sizeof(struct nfgenmsg));
    gen->nfgen_family = NFPROTO_INET;
    gen->version = NFNETLINK_V0;
    gen->res_id = 0;
}


static void
sbx_nft_batch(sbx_netlink_t *n, uint16_t type)
{
    struct nfgenmsg  *gen;

    sbx_netlink_begin(n, type, 0);

    gen = mnl_nlmsg_put_extra_header(n->message, sizeof(struct nfgenmsg));
    gen->nfgen_family = AF_UNSPEC;
    gen->version = NFNETLINK_V0;
    gen->res_id = htons(NFNL_SUBSYS_NFTABLES);

    sbx_netlink_end(n);
}


static void
sbx_nft_table(sbx_netlink_t *n, uint16_t type, uint16_t flags,
    const sbx_net_rules_t *rules)
{
    sbx_nft_begin(n, type, flags);
    mnl_attr_put_strz(n->message, NFTA_TABLE_NAME, SBX_NET_TABLE);

    if (rules != NULL) {
        mnl_attr_put(n->message, NFTA_TABLE_USERDATA, sizeof(rules->port),
                     rules->port);
    }

    sbx_netlink_end(n);
}


static void
sbx_nft_chain(sbx_netlink_t *n, sbx_net_chain_t chain)
{
    struct nlattr  *hook;

    sbx_nft_begin(n, NFT_MSG_NEWCHAIN, NLM_F_CREATE);
    mnl_attr_put_strz(n->message, NFTA_CHAIN_TABLE, SBX_NET_TABLE);
    mnl_attr_put_strz(n->message, NFTA_CHAIN_NAME,
                      sbx_net_chains[chain].name);

    if (sbx_net_chains[chain].type != NULL) {
        mnl_attr_put_strz(n->message, NFTA_CHAIN_TYPE,
                          sbx_net_chains[chain].type);

        hook = mnl_attr_nest_start(n->message, NFTA_CHAIN_HOOK);
        mnl_attr_put_u32(n->message, NFTA_HOOK_HOOKNUM,
                         htonl(NF_INET_LOCAL_OUT));
        mnl_attr_put_u32(n->message, NFTA_HOOK_PRIORITY,
                         htonl((uint32_t) sbx_net_chains[chain].priority));
        mnl_attr_nest_end(n->message, hook);
    }

    sbx_netlink_end(n);
}


/* Of a socket that is not there. */
static int
sbx_nft_left_out(const sbx_net_rules_t *rules, const sbx_net_rule_t *rule)
{
    unsigned  i;

    if (rule->action == SBX_ACTION_REDIRECT
        && (rules->judge_only || rules->port[rule->target] == 0))
    {
        return 1;
    }

    for (i = 0; i < SBX_NET_MATCHES; i++) {
        if (rule->match[i].what == SBX_MATCH_LISTENER
            && rules->port[rule->match[i].at] == 0)
        {
            return 1;
        }
    }

    return 0;
}


static void
sbx_nft_rule(sbx_netlink_t *n, const sbx_net_rules_t *rules,
    const sbx_net_rule_t *rule, uint16_t flags)
{
    unsigned        i;
    struct nlattr  *list;

    sbx_nft_begin(n, NFT_MSG_NEWRULE,
                  (uint16_t) (NLM_F_CREATE | NLM_F_APPEND | flags));
    mnl_attr_put_strz(n->message, NFTA_RULE_TABLE, SBX_NET_TABLE);
    mnl_attr_put_strz(n->message, NFTA_RULE_CHAIN,
                      sbx_net_chains[rule->chain].name);

    list = mnl_attr_nest_start(n->message, NFTA_RULE_EXPRESSIONS);

    for (i = 0; i < SBX_NET_MATCHES; i++) {
        sbx_nft_match(n, rules, &rule->match[i]);
    }

    sbx_nft_action(n, rules, rule);

    mnl_attr_nest_end(n->message, list);
    sbx_netlink_end(n);
}


/*
 * ---- expressions ---------------------------------------------------------
 */

typedef struct {
    struct nlattr  *element;
    struct nlattr  *data;
} sbx_nft_expression_t;


static sbx_nft_expression_t
sbx_nft_expression(sbx_netlink_t *n, const char *name)
{
    sbx_nft_expression_t  x;

    x.element = mnl_attr_nest_start(n->message, NFTA_LIST_ELEM);
    mnl_attr_put_strz(n->message, NFTA_EXPR_NAME, name);
    x.data = mnl_attr_nest_start(n->message, NFTA_EXPR_DATA);

    return x;
}


static void
sbx_nft_expression_end(sbx_netlink_t *n, sbx_nft_expression_t x)
{
    mnl_attr_nest_end(n->message, x.data);
    mnl_attr_nest_end(n->message, x.element);
}


static void
sbx_nft_value(sbx_netlink_t *n, uint16_t type, const void *value,
    size_t size)
{
    struct nlattr  *nest;

    nest = mnl_attr_nest_start(n->message, type);
    mnl_attr_put(n->message, NFTA_DATA_VALUE, size, value);
    mnl_attr_nest_end(n->message, nest);
}


static void
sbx_nft_match(sbx_netlink_t *n, const sbx_net_rules_t *rules,
    const sbx_net_match_t *m)
{
    uint16_t              port;
    static const uint8_t  zero[16];

    switch ((sbx_net_what_t) m->what) {

    case SBX_MATCH_NONE:
        return;

    case SBX_MATCH_LIMIT:
        sbx_nft_limit(n, m);
        return;

    case SBX_MATCH_STATE:
        sbx_nft_load(n, m);
        sbx_nft_mask(n, &m->number, sizeof(m->number));
        sbx_nft_compare(n, 1, zero, sizeof(m->number));
        return;

    case SBX_MATCH_LISTENER:
        port = htons(rules->port[m->at]);
        sbx_nft_load(n, m);
        sbx_nft_compare(n, 0, &port, sizeof(port));
        return;

    case SBX_MATCH_FAMILY:
    case SBX_MATCH_PROTOCOL:
    case SBX_MATCH_NETWORK:
    case SBX_MATCH_TRANSPORT:
        break;
    }

    sbx_nft_load(n, m);

    if (memcmp(m->mask, zero, sizeof(zero)) != 0) {
        sbx_nft_mask(n, m->mask, m->size);
    }

    sbx_nft_compare(n, m->not, m->value, m->size);
}


/* What is to be looked at comes into the register. */
static void
sbx_nft_load(sbx_netlink_t *n, const sbx_net_match_t *m)
{
    sbx_nft_expression_t  x;

    switch ((sbx_net_what_t) m->what) {

    case SBX_MATCH_FAMILY:
    case SBX_MATCH_PROTOCOL:
        x = sbx_nft_expression(n, "meta");
        mnl_attr_put_u32(n->message, NFTA_META_DREG, htonl(SBX_NET_REGISTER));
        mnl_attr_put_u32(n->message, NFTA_META_KEY,
                         htonl(m->what == SBX_MATCH_FAMILY
                               ? NFT_META_NFPROTO : NFT_META_L4PROTO));
        break;

    case SBX_MATCH_STATE:
        x = sbx_nft_expression(n, "ct");
        mnl_attr_put_u32(n->message, NFTA_CT_DREG, htonl(SBX_NET_REGISTER));
        mnl_attr_put_u32(n->message, NFTA_CT_KEY, htonl(NFT_CT_STATE));
        break;

    default:
        x = sbx_nft_expression(n, "payload");
        mnl_attr_put_u32(n->message, NFTA_PAYLOAD_DREG,
                         htonl(SBX_NET_REGISTER));
        mnl_attr_put_u32(n->message, NFTA_PAYLOAD_BASE,
                         htonl(m->what == SBX_MATCH_NETWORK
                               ? NFT_PAYLOAD_NETWORK_HEADER
                               : NFT_PAYLOAD_TRANSPORT_HEADER));
        /* a listener's port is where a destination's is: bytes 2 and 3 */
        mnl_attr_put_u32(n->message, NFTA_PAYLOAD_OFFSET,
                         htonl(m->what == SBX_MATCH_LISTENER ? 2 : m->at));
        mnl_attr_put_u32(n->message, NFTA_PAYLOAD_LEN, htonl(m->size));
    }

    sbx_nft_expression_end(n, x);
}


static void
sbx_nft_mask(sbx_netlink_t *n, const void *mask, size_t size)
{
    sbx_nft_expression_t   x;
    static const uint8_t   zero[16];

    x = sbx_nft_expression(n, "bitwise");
    mnl_attr_put_u32(n->message, NFTA_BITWISE_SREG, htonl(SBX_NET_REGISTER));
    mnl_attr_put_u32(n->message, NFTA_BITWISE_DREG, htonl(SBX_NET_REGISTER));
    mnl_attr_put_u32(n->message, NFTA_BITWISE_LEN, htonl((uint32_t) size));
    sbx_nft_value(n, NFTA_BITWISE_MASK, mask, size);
    sbx_nft_value(n, NFTA_BITWISE_XOR, zero, size);
    sbx_nft_expression_end(n, x);
}


static void
sbx_nft_compare(sbx_netlink_t *n, unsigned differs, const void *value,
    size_t size)
{
    sbx_nft_expression_t  x;

    x = sbx_nft_expression(n, "cmp");
    mnl_attr_put_u32(n->message, NFTA_CMP_SREG, htonl(SBX_NET_REGISTER));
    mnl_attr_put_u32(n->message, NFTA_CMP_OP,
                     htonl(differs ? NFT_CMP_NEQ : NFT_CMP_EQ));
    sbx_nft_value(n, NFTA_CMP_DATA, value, size);
    sbx_nft_expression_end(n, x);
}


static void
sbx_nft_limit(sbx_netlink_t *n, const sbx_net_match_t *m)
{
    sbx_nft_expression_t  x;

    x = sbx_nft_expression(n, "limit");
    mnl_attr_put_u64(n->message, NFTA_LIMIT_RATE, htobe64(m->number));
    mnl_attr_put_u64(n->message, NFTA_LIMIT_UNIT, htobe64(1));
    mnl_attr_put_u32(n->message, NFTA_LIMIT_BURST, htonl(m->burst));
    mnl_attr_put_u32(n->message, NFTA_LIMIT_TYPE, htonl(NFT_LIMIT_PKTS));
    sbx_nft_expression_end(n, x);
}


static void
sbx_nft_action(sbx_netlink_t *n, const sbx_net_rules_t *rules,
    const sbx_net_rule_t *rule)
{
    switch ((sbx_net_action_t) rule->action) {

    case SBX_ACTION_ACCEPT:
        sbx_nft_verdict(n, NF_ACCEPT, NULL);
        return;

    case SBX_ACTION_UNTRACKED:
        sbx_nft_expression_end(n, sbx_nft_expression(n, "notrack"));
        return;

    case SBX_ACTION_REFUSE:
        sbx_nft_verdict(n, NFT_GOTO, sbx_net_chains[SBX_CHAIN_REFUSE].name);
        return;

    case SBX_ACTION_RESET:
        sbx_nft_reject(n, NFT_REJECT_TCP_RST, 0);
        return;

    case SBX_ACTION_UNREACHABLE:
        sbx_nft_reject(n, NFT_REJECT_ICMPX_UNREACH,
                       NFT_REJECT_ICMPX_PORT_UNREACH);
        return;

    case SBX_ACTION_REDIRECT:
        sbx_nft_redirect(n, rules->port[rule->target]);
        return;
    }
}


static void
sbx_nft_verdict(sbx_netlink_t *n, int verdict, const char *chain)
{
    struct nlattr         *data, *nest;
    sbx_nft_expression_t   x;

    x = sbx_nft_expression(n, "immediate");
    mnl_attr_put_u32(n->message, NFTA_IMMEDIATE_DREG,
                     htonl(NFT_REG_VERDICT));

    data = mnl_attr_nest_start(n->message, NFTA_IMMEDIATE_DATA);
    nest = mnl_attr_nest_start(n->message, NFTA_DATA_VERDICT);
    mnl_attr_put_u32(n->message, NFTA_VERDICT_CODE,
                     htonl((uint32_t) verdict));

    if (chain != NULL) {
        mnl_attr_put_strz(n->message, NFTA_VERDICT_CHAIN, chain);
    }

    mnl_attr_nest_end(n->message, nest);
    mnl_attr_nest_end(n->message, data);
    sbx_nft_expression_end(n, x);
}


static void
sbx_nft_reject(sbx_netlink_t *n, unsigned type, unsigned code)
{
    sbx_nft_expression_t  x;

    x = sbx_nft_expression(n, "reject");
    mnl_attr_put_u32(n->message, NFTA_REJECT_TYPE, htonl(type));
    mnl_attr_put_u8(n->message, NFTA_REJECT_ICMP_CODE, (uint8_t) code);
    sbx_nft_expression_end(n, x);
}


static void
sbx_nft_redirect(sbx_netlink_t *n, uint16_t port)
{
    uint16_t              be;
    sbx_nft_expression_t  x;

    be = htons(port);

    x = sbx_nft_expression(n, "immediate");
    mnl_attr_put_u32(n->message, NFTA_IMMEDIATE_DREG,
                     htonl(SBX_NET_REGISTER));
    sbx_nft_value(n, NFTA_IMMEDIATE_DATA, &be, sizeof(be));
    sbx_nft_expression_end(n, x);

    x = sbx_nft_expression(n, "redir");
    mnl_attr_put_u32(n->message, NFTA_REDIR_REG_PROTO_MIN,
                     htonl(SBX_NET_REGISTER));
    sbx_nft_expression_end(n, x);
}
