/*
 * Hash tables of what strangers choose the keys of: SipHash under a key of
 * the table's own, so that nobody can make chains long.
 */

#ifndef SBX_EG_TABLE_H
#define SBX_EG_TABLE_H

#include <stddef.h>
#include <stdint.h>


typedef struct sbx_eg_item_s  sbx_eg_item_t;

/* Within what is kept. */
struct sbx_eg_item_s {
    sbx_eg_item_t   *next;
    uint64_t         hash;
};

typedef struct {
    sbx_eg_item_t  **slots;
    size_t           size;            /* 0, or a power of two */
    size_t           n;
} sbx_eg_table_t;

typedef struct {
    uint64_t         k[2];
} sbx_eg_key_t;


/* 0, or -1: the kernel gives no random bytes. */
int sbx_eg_key(sbx_eg_key_t *key);
uint64_t sbx_eg_hash(const sbx_eg_key_t *key, const void *p, size_t n);

/* An empty table is all zero.  -1: out of memory, and item is not in it. */
int sbx_eg_table_add(sbx_eg_table_t *table, sbx_eg_item_t *item,
    uint64_t hash);
void sbx_eg_table_del(sbx_eg_table_t *table, sbx_eg_item_t *item);
/* Items of that hash, the newest first; NULL: no more. */
sbx_eg_item_t *sbx_eg_table_first(const sbx_eg_table_t *table, uint64_t hash);
sbx_eg_item_t *sbx_eg_table_next(const sbx_eg_item_t *item);
/* Frees the slots; items are their owners'. */
void sbx_eg_table_free(sbx_eg_table_t *table);


#endif
