/* Hash tables with keyed hashes: see table.h. */

#include "table.h"

#include <endian.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>


#define SBX_EG_TABLE_FIRST   32


typedef struct {
    uint64_t  v0;
    uint64_t  v1;
    uint64_t  v2;
    uint64_t  v3;
} sbx_sip_t;


static void sbx_sip_mix(sbx_sip_t *s, uint64_t word);
static void sbx_sip_round(sbx_sip_t *s);
static uint64_t sbx_rotate(uint64_t x, unsigned bits);
static int sbx_eg_table_grow(sbx_eg_table_t *table);


int
sbx_eg_key(sbx_eg_key_t *key)
{
    ssize_t  n;

    n = getrandom(key, sizeof(sbx_eg_key_t), 0);

    return n == (ssize_t) sizeof(sbx_eg_key_t) ? 0 : -1;
}


/* SipHash-2-4. */

uint64_t
sbx_eg_hash(const sbx_eg_key_t *key, const void *data, size_t n)
{
    size_t          i;
    uint64_t        word;
    sbx_sip_t       s;
    const uint8_t  *p = data;

    s.v0 = key->k[0] ^ 0x736f6d6570736575u;
    s.v1 = key->k[1] ^ 0x646f72616e646f6du;
    s.v2 = key->k[0] ^ 0x6c7967656e657261u;
    s.v3 = key->k[1] ^ 0x7465646279746573u;

    for (i = 0; i + 8 <= n; i += 8) {
        memcpy(&word, p + i, 8);
        sbx_sip_mix(&s, le64toh(word));
    }

    word = (uint64_t) n << 56;

    for ( /* void */ ; i < n; i++) {
        word |= (uint64_t) p[i] << (8 * (i % 8));
    }

    sbx_sip_mix(&s, word);

    s.v2 ^= 0xff;

    for (i = 0; i < 4; i++) {
        sbx_sip_round(&s);
    }

    return s.v0 ^ s.v1 ^ s.v2 ^ s.v3;
}


static void
sbx_sip_mix(sbx_sip_t *s, uint64_t word)
{
    s->v3 ^= word;
    sbx_sip_round(s);
    sbx_sip_round(s);
    s->v0 ^= word;
}


static void
sbx_sip_round(sbx_sip_t *s)
{
    s->v0 += s->v1;
    s->v1 = sbx_rotate(s->v1, 13) ^ s->v0;
    s->v0 = sbx_rotate(s->v0, 32);

    s->v2 += s->v3;
    s->v3 = sbx_rotate(s->v3, 16) ^ s->v2;

    s->v0 += s->v3;
    s->v3 = sbx_rotate(s->v3, 21) ^ s->v0;

    s->v2 += s->v1;
    s->v1 = sbx_rotate(s->v1, 17) ^ s->v2;
    s->v2 = sbx_rotate(s->v2, 32);
}


static uint64_t
sbx_rotate(uint64_t x, unsigned bits)
{
    return (x << bits) | (x >> (64 - bits));
}


int
sbx_eg_table_add(sbx_eg_table_t *table, sbx_eg_item_t *item, uint64_t hash)
{
    sbx_eg_item_t  **slot;

    /* a table that could not grow is slower, not wrong */

    if (table->n >= table->size && sbx_eg_table_grow(table) == -1
        && table->size == 0)
    {
        return -1;
    }

    slot = &table->slots[hash & (table->size - 1)];

    item->hash = hash;
    item->next = *slot;
    *slot = item;
    table->n++;

    return 0;
}


static int
sbx_eg_table_grow(sbx_eg_table_t *table)
{
    size_t           i, size;
    sbx_eg_item_t   *item, *next, **last, **slots;

    size = table->size ? table->size * 2 : SBX_EG_TABLE_FIRST;
    slots = calloc(size, sizeof(sbx_eg_item_t *));

    if (slots == NULL) {
        return -1;
    }

    for (i = 0; i < table->size; i++) {

        for (item = table->slots[i]; item; item = next) {
            next = item->next;

            /* in the order that they had */

            for (last = &slots[item->hash & (size - 1)]; *last;
                 last = &(*last)->next)
            {
                /* void */
            }

            item->next = NULL;
            *last = item;
        }
    }

    free(table->slots);
    table->slots = slots;
    table->size = size;

    return 0;
}


void
sbx_eg_table_del(sbx_eg_table_t *table, sbx_eg_item_t *item)
{
    sbx_eg_item_t  **p;

    if (table->size == 0) {
        return;
    }

    for (p = &table->slots[item->hash & (table->size - 1)]; *p;
         p = &(*p)->next)
    {
        if (*p == item) {
            *p = item->next;
            table->n--;
            return;
        }
    }
}


sbx_eg_item_t *
sbx_eg_table_first(const sbx_eg_table_t *table, uint64_t hash)
{
    sbx_eg_item_t  *item;

    if (table->size == 0) {
        return NULL;
    }

    for (item = table->slots[hash & (table->size - 1)]; item;
         item = item->next)
    {
        if (item->hash == hash) {
            return item;
        }
    }

    return NULL;
}


sbx_eg_item_t *
sbx_eg_table_next(const sbx_eg_item_t *item)
{
    uint64_t        hash;
    sbx_eg_item_t  *next;

    hash = item->hash;

    for (next = item->next; next; next = next->next) {
        if (next->hash == hash) {
            return next;
        }
    }

    return NULL;
}


void
sbx_eg_table_free(sbx_eg_table_t *table)
{
    free(table->slots);
    memset(table, 0, sizeof(sbx_eg_table_t));
}
