/* What rules need to know of addresses and names; policy/ alone. */

#ifndef SBX_NETWORK_CLASS_H
#define SBX_NETWORK_CLASS_H

#include "sandbox_network.h"
#include "sandbox_util.h"


/*
 * Whether all addresses that have the first bits of address are within one
 * special block: its bits, and *class; else 0 (and SBX_NETWORK_PUBLIC).
 */
unsigned sbx_network_special(const uint8_t address[16], unsigned bits,
    sbx_network_class_t *class);
/* 1: their first bits are the same. */
int sbx_network_same(const uint8_t a[16], const uint8_t b[16], unsigned bits);
/* 1: addresses of IPv4, all of them. */
int sbx_network_v4(const uint8_t address[16], unsigned bits);
/* 1: host is a name below above. */
int sbx_network_below(const char *host, const char *above);


#endif
