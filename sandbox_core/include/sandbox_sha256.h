/*
 * SHA-256 (FIPS 180-4), for names of things that must not be shown.
 */

#ifndef SANDBOX_SHA256_H
#define SANDBOX_SHA256_H

#include <stddef.h>
#include <stdint.h>


#define SBX_SHA256_SIZE   32


typedef struct {
    uint32_t   state[8];
    uint64_t   size;
    uint8_t    block[64];
} sbx_sha256_t;


void sbx_sha256_init(sbx_sha256_t *s);
void sbx_sha256_update(sbx_sha256_t *s, const void *data, size_t len);
void sbx_sha256_final(sbx_sha256_t *s, uint8_t digest[SBX_SHA256_SIZE]);


#endif
