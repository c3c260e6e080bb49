/*
 * Answers that a session was given, kept for as long as they hold: of each
 * session apart, as what another has asked is not its business.
 *
 * An answer is kept as it came, and judged each time that it is given: rules
 * may have changed.  Answers that no longer hold stay until others need their
 * room: the name is then known, which a session that makes up names cannot
 * say of its own.  400 KB of one session at most (512 answers of 32 addresses
 * and names of 253 bytes).
 */

#include "dns.h"

#include <string.h>


#define SBX_DNS_KEPT   512


typedef struct {
    sbx_eg_item_t   item;
    sbx_node_t      node;
    uint64_t        until;             /* microseconds, monotonic */
    uint16_t        type;
    uint16_t        n;
    uint8_t         code;
    uint8_t         len;               /* of the name */
    uint8_t         data[];            /* addresses, the name without a NUL */
} sbx_dns_kept_t;


static sbx_dns_kept_t *sbx_dns_cache_find(const sbx_dns_cache_t *cache,
    const char *name, unsigned type);
static void sbx_dns_cache_drop(sbx_dns_cache_t *cache, sbx_dns_kept_t *kept);


#define sbx_dns_kept_of(p, member)                                           \
    sbx_node_of(p, sbx_dns_kept_t, member)


int
sbx_dns_cache_open(sbx_dns_cache_t *cache)
{
    memset(cache, 0, sizeof(sbx_dns_cache_t));
    sbx_list_init(&cache->used);

    return sbx_eg_key(&cache->key);
}


void
sbx_dns_cache_close(sbx_dns_cache_t *cache)
{
    while (!sbx_list_empty(&cache->used)) {
        sbx_dns_cache_drop(cache, sbx_dns_kept_of(cache->used.next, node));
    }

    sbx_eg_table_free(&cache->table);
}


void
sbx_dns_cache_put(sbx_dns_cache_t *cache, const char *name, unsigned type,
    const sbx_dns_answer_t *answer)
{
    size_t           len, size;
    sbx_dns_kept_t  *kept;

    kept = sbx_dns_cache_find(cache, name, type);

    if (kept) {
        sbx_dns_cache_drop(cache, kept);

    } else if (cache->table.n >= SBX_DNS_KEPT) {
        sbx_dns_cache_drop(cache, sbx_dns_kept_of(cache->used.next, node));
    }

    len = strlen(name);
    size = (size_t) answer->n * 16;

    kept = malloc(sizeof(sbx_dns_kept_t) + size + len);

    if (kept == NULL) {
        return;
    }

    kept->until = sbx_now_us() + (uint64_t) answer->ttl * 1000000;
    kept->type = type;
    kept->n = answer->n;
    kept->code = answer->code;
    kept->len = len;

    memcpy(kept->data, answer->address, size);
    memcpy(kept->data + size, name, len);

    if (sbx_eg_table_add(&cache->table, &kept->item,
                         sbx_eg_hash(&cache->key, name, len))
        == -1)
    {
        free(kept);
        return;
    }

    sbx_list_append(&cache->used, &kept->node);
}


int
sbx_dns_cache_get(sbx_dns_cache_t *cache, const char *name, unsigned type,
    sbx_dns_answer_t *answer)
{
    uint64_t         now;
    sbx_dns_kept_t  *kept;

    kept = sbx_dns_cache_find(cache, name, type);

    if (kept == NULL) {
        return 0;
    }

    sbx_list_remove(&kept->node);
    sbx_list_append(&cache->used, &kept->node);

    now = sbx_now_us();

    if (kept->until <= now) {
        return 0;
    }

    /* up: what holds for half a second more is not said to be over */

    answer->ttl = (kept->until - now + 999999) / 1000000;
    answer->code = kept->code;
    answer->n = kept->n;
    memcpy(answer->address, kept->data, (size_t) kept->n * 16);

    return 1;
}


int
sbx_dns_cache_knows(const sbx_dns_cache_t *cache, const char *name)
{
    return sbx_dns_cache_find(cache, name, 0) != NULL;
}


/* type 0: any. */

static sbx_dns_kept_t *
sbx_dns_cache_find(const sbx_dns_cache_t *cache, const char *name,
    unsigned type)
{
    size_t           len;
    uint64_t         hash;
    sbx_eg_item_t   *item;
    sbx_dns_kept_t  *kept;

    len = strlen(name);
    hash = sbx_eg_hash(&cache->key, name, len);

    for (item = sbx_eg_table_first(&cache->table, hash); item;
         item = sbx_eg_table_next(item))
    {
        kept = sbx_dns_kept_of(item, item);

        if ((type == 0 || kept->type == type) && kept->len == len
            && memcmp(kept->data + (size_t) kept->n * 16, name, len) == 0)
        {
            return kept;
        }
    }

    return NULL;
}


static void
sbx_dns_cache_drop(sbx_dns_cache_t *cache, sbx_dns_kept_t *kept)
{
    sbx_eg_table_del(&cache->table, &kept->item);
    sbx_list_remove(&kept->node);
    free(kept);
}
