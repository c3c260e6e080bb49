#include "sandbox_sha256.h"

#include <string.h>


static void sbx_sha256_block(sbx_sha256_t *s, const uint8_t *p);


static const uint32_t  sbx_sha256_k[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1,
    0x923f82a4, 0xab1c5ed5, 0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3,
    0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174, 0xe49b69c1, 0xefbe4786,
    0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147,
    0x06ca6351, 0x14292967, 0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13,
    0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85, 0xa2bfe8a1, 0xa81a664b,
    0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a,
    0x5b9cca4f, 0x682e6ff3, 0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208,
    0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2
};


void
sbx_sha256_init(sbx_sha256_t *s)
{
    static const uint32_t  first[8] = {
        0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
        0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19
    };

    memcpy(s->state, first, sizeof(first));
    s->size = 0;
}


void
sbx_sha256_update(sbx_sha256_t *s, const void *data, size_t len)
{
    size_t          n, used;
    const uint8_t  *p;

    p = data;

    while (len != 0) {
        used = s->size % sizeof(s->block);
        n = sizeof(s->block) - used;

        if (n > len) {
            n = len;
        }

        memcpy(s->block + used, p, n);
        s->size += n;
        p += n;
        len -= n;

        if (used + n == sizeof(s->block)) {
            sbx_sha256_block(s, s->block);
        }
    }
}


void
sbx_sha256_final(sbx_sha256_t *s, uint8_t digest[SBX_SHA256_SIZE])
{
    unsigned  i;
    uint8_t   end[72];
    uint64_t  bits;
    size_t    n;

    bits = s->size * 8;
    n = (s->size % 64 < 56 ? 56 : 120) - s->size % 64;

    memset(end, 0, sizeof(end));
    end[0] = 0x80;

    for (i = 0; i < 8; i++) {
        end[n + i] = (uint8_t) (bits >> (56 - 8 * i));
    }

    sbx_sha256_update(s, end, n + 8);

    for (i = 0; i < SBX_SHA256_SIZE; i++) {
        digest[i] = (uint8_t) (s->state[i / 4] >> (24 - 8 * (i % 4)));
    }
}


static uint32_t
sbx_sha256_rotate(uint32_t x, unsigned n)
{
    return (x >> n) | (x << (32 - n));
}


static void
sbx_sha256_block(sbx_sha256_t *s, const uint8_t *p)
{
    unsigned  i;
    uint32_t  w[64], v[8], a, b;

#define R(x, n)  sbx_sha256_rotate(x, n)

    for (i = 0; i < 16; i++, p += 4) {
        w[i] = (uint32_t) p[0] << 24 | (uint32_t) p[1] << 16
               | (uint32_t) p[2] << 8 | p[3];
    }

    for ( /* void */ ; i < 64; i++) {
        a = R(w[i - 15], 7) ^ R(w[i - 15], 18) ^ (w[i - 15] >> 3);
        b = R(w[i - 2], 17) ^ R(w[i - 2], 19) ^ (w[i - 2] >> 10);
        w[i] = w[i - 16] + a + w[i - 7] + b;
    }

    memcpy(v, s->state, sizeof(v));

    for (i = 0; i < 64; i++) {
        a = v[7] + (R(v[4], 6) ^ R(v[4], 11) ^ R(v[4], 25))
            + ((v[4] & v[5]) ^ (~v[4] & v[6])) + sbx_sha256_k[i] + w[i];
        b = (R(v[0], 2) ^ R(v[0], 13) ^ R(v[0], 22))
            + ((v[0] & v[1]) ^ (v[0] & v[2]) ^ (v[1] & v[2]));
        memmove(v + 1, v, 7 * sizeof(v[0]));
        v[4] += a;
        v[0] = a + b;
    }

#undef R

    for (i = 0; i < 8; i++) {
        s->state[i] += v[i];
    }
}
