/*
 * Kinds of addresses.  What is not plainly public is special: a block of the
 * tables below.  IPv6 has forms that lead to an IPv4 address; whoever could
 * use one to reach a special address is told of by what is inside.
 */

#include "network_class.h"

#include <arpa/inet.h>
#include <string.h>


#define SBX_NETWORK_V4  96                /* bits before an IPv4 address */


typedef struct {
    uint8_t    class;                     /* sbx_network_class_t */
    uint8_t    bits;
    uint8_t    prefix[16];
} sbx_network_block_t;

/* Where an IPv4 address is within one of IPv6. */
typedef struct {
    uint8_t    bits;
    uint8_t    at;                        /* byte */
    uint8_t    flipped;                   /* each of its bits */
    uint8_t    public;                    /* if that one is */
    uint8_t    prefix[16];
} sbx_network_inside_t;


#define V4(a, b, c, d, n)                                                     \
    (n) + SBX_NETWORK_V4, { [10] = 0xff, 0xff, a, b, c, d }


/* The first that fits is it: single addresses before what they are in. */

static const sbx_network_block_t  sbx_network_blocks[] = {
    { SBX_NETWORK_METADATA,   V4(169, 254, 169, 254, 32) },
    { SBX_NETWORK_METADATA,   V4(169, 254, 170, 2, 32) },     /* ECS */
    { SBX_NETWORK_METADATA,   V4(169, 254, 170, 23, 32) },    /* EKS */
    { SBX_NETWORK_METADATA,   V4(100, 100, 100, 200, 32) },   /* Alibaba */
    { SBX_NETWORK_METADATA,   V4(192, 0, 0, 192, 32) },       /* Oracle */
    { SBX_NETWORK_METADATA,   V4(168, 63, 129, 16, 32) },     /* Azure */

    { SBX_NETWORK_RESERVED,   V4(0, 0, 0, 0, 8) },
    { SBX_NETWORK_PRIVATE,    V4(10, 0, 0, 0, 8) },
    { SBX_NETWORK_PRIVATE,    V4(100, 64, 0, 0, 10) },
    { SBX_NETWORK_LOOPBACK,   V4(127, 0, 0, 0, 8) },
    { SBX_NETWORK_LINK_LOCAL, V4(169, 254, 0, 0, 16) },
    { SBX_NETWORK_PRIVATE,    V4(172, 16, 0, 0, 12) },
    { SBX_NETWORK_RESERVED,   V4(192, 0, 0, 0, 24) },
    { SBX_NETWORK_RESERVED,   V4(192, 88, 99, 0, 24) },
    { SBX_NETWORK_PRIVATE,    V4(192, 168, 0, 0, 16) },
    { SBX_NETWORK_PRIVATE,    V4(198, 18, 0, 0, 15) },
    { SBX_NETWORK_MULTICAST,  V4(224, 0, 0, 0, 4) },
    { SBX_NETWORK_MULTICAST,  V4(255, 255, 255, 255, 32) },
    { SBX_NETWORK_RESERVED,   V4(240, 0, 0, 0, 4) },

    { SBX_NETWORK_METADATA,   128,                            /* EC2 */
      { 0xfd, 0x00, 0x0e, 0xc2, [14] = 0x02, 0x54 } },
    { SBX_NETWORK_METADATA,   128,                            /* EKS */
      { 0xfd, 0x00, 0x0e, 0xc2, [15] = 0x23 } },
    { SBX_NETWORK_METADATA,   128,                            /* Google */
      { 0xfd, 0x20, 0x00, 0xce, [14] = 0x02, 0x54 } },
    { SBX_NETWORK_METADATA,   128,                            /* Scaleway */
      { 0xfd, 0x00, 0x00, 0x42, [15] = 0x42 } },
    { SBX_NETWORK_METADATA,   128,                            /* OpenStack */
      { 0xfe, 0x80, [12] = 0xa9, 0xfe, 0xa9, 0xfe } },

    { SBX_NETWORK_RESERVED,   128, { 0 } },
    { SBX_NETWORK_LOOPBACK,   128, { [15] = 1 } },
    { SBX_NETWORK_PRIVATE,    7,   { 0xfc } },
    { SBX_NETWORK_LINK_LOCAL, 10,  { 0xfe, 0x80 } },
    { SBX_NETWORK_PRIVATE,    10,  { 0xfe, 0xc0 } },
    { SBX_NETWORK_MULTICAST,  8,   { 0xff } },
    { SBX_NETWORK_PRIVATE,    48,  { 0x20, 0x01, 0x00, 0x02 } },
    { SBX_NETWORK_RESERVED,   28,  { 0x20, 0x01, 0x00, 0x10 } }
};

static const sbx_network_inside_t  sbx_network_insides[] = {
    /* NAT64 */
    { 96, 12, 0, 1, { 0x00, 0x64, 0xff, 0x9b } },
    { 96, 12, 0, 1, { 0x00, 0x64, 0xff, 0x9b, 0x00, 0x01 } },
    /* "compatible" */
    { 96, 12, 0, 0, { 0 } },
    /* 6to4 */
    { 16, 2, 0, 1, { 0x20, 0x02 } },
    /* Teredo: its server, its client */
    { 32, 4, 0, 1, { 0x20, 0x01, 0x00, 0x00 } },
    { 32, 12, 1, 1, { 0x20, 0x01, 0x00, 0x00 } }
};

/* All but 2000::/3, where public addresses are. */

static const sbx_network_block_t  sbx_network_elsewhere[] = {
    { SBX_NETWORK_RESERVED,   3, { 0x00 } },
    { SBX_NETWORK_RESERVED,   2, { 0x40 } },
    { SBX_NETWORK_RESERVED,   1, { 0x80 } }
};

static const char  *sbx_network_class_words[] = {
    [SBX_NETWORK_PUBLIC]     = "public",
    [SBX_NETWORK_PRIVATE]    = "private",
    [SBX_NETWORK_LOOPBACK]   = "loopback",
    [SBX_NETWORK_LINK_LOCAL] = "link-local",
    [SBX_NETWORK_METADATA]   = "metadata",
    [SBX_NETWORK_MULTICAST]  = "multicast",
    [SBX_NETWORK_RESERVED]   = "reserved"
};


static const sbx_network_block_t *sbx_network_block(
    const uint8_t address[16], unsigned bits);
static unsigned sbx_network_inside(const uint8_t address[16], unsigned bits,
    sbx_network_class_t *class, int *public);
static unsigned sbx_network_inside_one(const uint8_t *v4, int flipped,
    unsigned at, unsigned bits, sbx_network_class_t *class);


unsigned
sbx_network_special(const uint8_t address[16], unsigned bits,
    sbx_network_class_t *class)
{
    int                         public;
    unsigned                    n, i;
    const sbx_network_block_t  *block;

    block = sbx_network_block(address, bits);

    if (block != NULL) {
        *class = block->class;
        return block->bits;
    }

    *class = SBX_NETWORK_PUBLIC;

    if (sbx_network_v4(address, bits)) {
        return 0;
    }

    n = sbx_network_inside(address, bits, class, &public);

    if (n != 0 || public) {
        return n;
    }

    for (i = 0; i < sbx_nelts(sbx_network_elsewhere); i++) {
        block = &sbx_network_elsewhere[i];

        if (block->bits <= bits
            && sbx_network_same(address, block->prefix, block->bits))
        {
            *class = block->class;
            return block->bits;
        }
    }

    return 0;
}


static const sbx_network_block_t *
sbx_network_block(const uint8_t address[16], unsigned bits)
{
    unsigned                    i;
    const sbx_network_block_t  *block;

    for (i = 0; i < sbx_nelts(sbx_network_blocks); i++) {
        block = &sbx_network_blocks[i];

        if (block->bits <= bits
            && sbx_network_same(address, block->prefix, block->bits))
        {
            return block;
        }
    }

    return NULL;
}


/* Of what an address of IPv6 leads to; 0 where that is public, or where there
 * is nothing inside. */

static unsigned
sbx_network_inside(const uint8_t address[16], unsigned bits,
    sbx_network_class_t *class, int *public)
{
    unsigned                     n, i;
    const sbx_network_inside_t  *in;

    *public = 0;

    for (i = 0; i < sbx_nelts(sbx_network_insides); i++) {
        in = &sbx_network_insides[i];

        if (bits < in->bits
            || !sbx_network_same(address, in->prefix, in->bits))
        {
            continue;
        }

        n = sbx_network_inside_one(address + in->at, in->flipped, in->at,
                                   bits, class);

        if (n != 0) {
            return n;
        }

        *public |= in->public;
    }

    /* ISATAP: in whatever network, by the interface's part */

    if (bits >= 96 && (address[8] & 0xfd) == 0 && address[9] == 0
        && address[10] == 0x5e && address[11] == 0xfe)
    {
        return sbx_network_inside_one(address + 12, 0, 12, bits, class);
    }

    return 0;
}


static unsigned
sbx_network_inside_one(const uint8_t *v4, int flipped, unsigned at,
    unsigned bits, sbx_network_class_t *class)
{
    uint8_t                     address[16];
    unsigned                    known, i;
    const sbx_network_block_t  *block;

    memset(address, 0, sizeof(address));
    address[10] = address[11] = 0xff;

    for (i = 0; i < 4; i++) {
        address[12 + i] = flipped ? (uint8_t) ~v4[i] : v4[i];
    }

    if (bits <= at * 8) {
        return 0;
    }

    known = bits - at * 8;
    block = sbx_network_block(address, SBX_NETWORK_V4
                                       + (known > 32 ? 32 : known));

    if (block == NULL) {
        return 0;
    }

    *class = block->class;

    return at * 8 + block->bits - SBX_NETWORK_V4;
}


sbx_network_class_t
sbx_network_class(const uint8_t address[16])
{
    sbx_network_class_t  class;

    (void) sbx_network_special(address, 128, &class);

    return class;
}


const char *
sbx_network_class_word(sbx_network_class_t class)
{
    if ((unsigned) class >= sbx_nelts(sbx_network_class_words)) {
        return "unknown";
    }

    return sbx_network_class_words[class];
}


const char *
sbx_network_address_print(const uint8_t address[16], char *buf)
{
    if (sbx_network_v4(address, 128)) {
        return inet_ntop(AF_INET, address + 12, buf, INET6_ADDRSTRLEN);
    }

    return inet_ntop(AF_INET6, address, buf, INET6_ADDRSTRLEN);
}


int
sbx_network_same(const uint8_t a[16], const uint8_t b[16], unsigned bits)
{
    unsigned  bytes, mask;

    bytes = bits / 8;

    if (memcmp(a, b, bytes) != 0) {
        return 0;
    }

    if (bits % 8 == 0) {
        return 1;
    }

    mask = 0xff00u >> (bits % 8);

    return ((a[bytes] ^ b[bytes]) & mask & 0xff) == 0;
}


int
sbx_network_v4(const uint8_t address[16], unsigned bits)
{
    static const uint8_t  mapped[16] = { [10] = 0xff, 0xff };

    return bits >= SBX_NETWORK_V4
           && sbx_network_same(address, mapped, SBX_NETWORK_V4);
}
