/*
 * What was looked up for a session: hosts, the addresses that each of them
 * was answered with, and for how long.  Both ways are hashed: a connection
 * comes with an address, what its client says comes with a host.
 *
 * A session chooses its names and, with a domain of its own, the addresses
 * too.  So hosts and pairs are bounded, the oldest make way, and a session can
 * make only itself forget.  That is 600 KB of one at most (1,024 names of 253
 * bytes, 2,048 addresses).
 */

#include "egress.h"
#include "table.h"

#include <string.h>


#define SBX_NAMES_HOSTS     1024
#define SBX_NAMES_PAIRS     2048
#define SBX_NAMES_OF_HOST   64
#define SBX_NAMES_LEAST     120        /* seconds */
#define SBX_NAMES_MOST      86400


typedef struct {
    sbx_eg_item_t    item;             /* by name */
    sbx_node_t       node;             /* the oldest is first */
    sbx_node_t       pairs;            /* so here */
    unsigned         n;
    char             name[];
} sbx_eg_host_t;

typedef struct {
    sbx_eg_item_t    item;             /* by address */
    sbx_node_t       node;             /* of all, the oldest is first */
    sbx_node_t       of_host;
    sbx_eg_host_t   *host;
    uint64_t         until;            /* microseconds, monotonic */
    uint8_t          address[16];
} sbx_eg_pair_t;

struct sbx_eg_names_s {
    sbx_eg_key_t     key;
    sbx_eg_table_t   by_name;
    sbx_eg_table_t   by_address;
    sbx_node_t       hosts;
    sbx_node_t       pairs;
};


static sbx_eg_host_t *sbx_eg_host_find(const sbx_eg_names_t *names,
    const char *host);
static sbx_eg_host_t *sbx_eg_host_make(sbx_eg_names_t *names,
    const char *host);
static void sbx_eg_host_drop(sbx_eg_names_t *names, sbx_eg_host_t *host);
static sbx_eg_pair_t *sbx_eg_pair_find(const sbx_eg_host_t *host,
    const uint8_t address[16]);
static sbx_eg_pair_t *sbx_eg_pair_make(sbx_eg_names_t *names,
    sbx_eg_host_t *host, const uint8_t address[16]);
static void sbx_eg_pair_drop(sbx_eg_names_t *names, sbx_eg_pair_t *pair);
static void sbx_eg_to_end(sbx_node_t *head, sbx_node_t *node);


#define sbx_eg_pair_of(p, member)                                            \
    sbx_node_of(p, sbx_eg_pair_t, member)


int
sbx_eg_names_open(sbx_eg_session_t *s)
{
    sbx_eg_names_t  *names;

    names = calloc(1, sizeof(sbx_eg_names_t));

    if (names == NULL) {
        return -1;
    }

    if (sbx_eg_key(&names->key) == -1) {
        free(names);
        return -1;
    }

    sbx_list_init(&names->hosts);
    sbx_list_init(&names->pairs);
    s->names = names;

    return 0;
}


void
sbx_eg_names_close(sbx_eg_session_t *s)
{
    sbx_eg_names_t  *names;

    names = s->names;

    if (names == NULL) {
        return;
    }

    while (!sbx_list_empty(&names->hosts)) {
        sbx_eg_host_drop(names, sbx_node_of(names->hosts.next, sbx_eg_host_t,
                                            node));
    }

    sbx_eg_table_free(&names->by_name);
    sbx_eg_table_free(&names->by_address);
    free(names);
    s->names = NULL;
}


void
sbx_eg_names_add(sbx_eg_session_t *s, const char *name,
    const uint8_t address[16], uint32_t ttl)
{
    uint64_t         until;
    sbx_eg_host_t   *host;
    sbx_eg_pair_t   *pair;
    sbx_eg_names_t  *names;

    names = s->names;

    if (names == NULL) {
        return;
    }

    host = sbx_eg_host_find(names, name);

    if (host == NULL) {
        host = sbx_eg_host_make(names, name);
    }

    if (host == NULL) {
        return;
    }

    sbx_eg_to_end(&names->hosts, &host->node);
    pair = sbx_eg_pair_find(host, address);

    if (pair == NULL) {
        pair = sbx_eg_pair_make(names, host, address);
    }

    if (pair == NULL) {

        if (host->n == 0) {
            sbx_eg_host_drop(names, host);
        }

        return;
    }

    if (ttl < SBX_NAMES_LEAST) {
        ttl = SBX_NAMES_LEAST;

    } else if (ttl > SBX_NAMES_MOST) {
        ttl = SBX_NAMES_MOST;
    }

    until = sbx_now_us() + (uint64_t) ttl * 1000000;

    /* what a session was told before may still be in use there */

    if (until > pair->until) {
        pair->until = until;
    }

    sbx_eg_to_end(&names->pairs, &pair->node);
    sbx_eg_to_end(&host->pairs, &pair->of_host);
}


const char *
sbx_eg_names_next(sbx_eg_session_t *s, const uint8_t address[16], size_t *at)
{
    uint64_t         now;
    sbx_eg_item_t   *item;
    sbx_eg_pair_t   *pair;
    sbx_eg_names_t  *names;

    names = s->names;

    if (names == NULL) {
        return NULL;
    }

    /*
     * *at is the pair that was told last: nothing is added or dropped while
     * one connection is judged.
     */

    if (*at == 0) {
        item = sbx_eg_table_first(&names->by_address,
                                  sbx_eg_hash(&names->key, address, 16));

    } else {
        item = sbx_eg_table_next((sbx_eg_item_t *) *at);
    }

    now = sbx_now_us();

    for ( /* void */ ; item; item = sbx_eg_table_next(item)) {
        pair = sbx_node_of(item, sbx_eg_pair_t, item);

        if (pair->until > now && memcmp(pair->address, address, 16) == 0) {
            *at = (size_t) item;
            return pair->host->name;
        }
    }

    return NULL;
}


int
sbx_eg_names_has(sbx_eg_session_t *s, const char *name,
    const uint8_t address[16])
{
    sbx_eg_host_t  *host;
    sbx_eg_pair_t  *pair;

    if (s->names == NULL) {
        return 0;
    }

    host = sbx_eg_host_find(s->names, name);

    if (host == NULL) {
        return 0;
    }

    pair = sbx_eg_pair_find(host, address);

    return pair != NULL && pair->until > sbx_now_us();
}


static sbx_eg_host_t *
sbx_eg_host_find(const sbx_eg_names_t *names, const char *name)
{
    uint64_t        hash;
    sbx_eg_item_t  *item;
    sbx_eg_host_t  *host;

    hash = sbx_eg_hash(&names->key, name, strlen(name));

    for (item = sbx_eg_table_first(&names->by_name, hash); item;
         item = sbx_eg_table_next(item))
    {
        host = sbx_node_of(item, sbx_eg_host_t, item);

        if (strcmp(host->name, name) == 0) {
            return host;
        }
    }

    return NULL;
}


static sbx_eg_host_t *
sbx_eg_host_make(sbx_eg_names_t *names, const char *name)
{
    size_t          len;
    sbx_eg_host_t  *host;

    if (names->by_name.n >= SBX_NAMES_HOSTS) {
        sbx_eg_host_drop(names, sbx_node_of(names->hosts.next, sbx_eg_host_t,
                                            node));
    }

    len = strlen(name);
    host = calloc(1, sizeof(sbx_eg_host_t) + len + 1);

    if (host == NULL) {
        return NULL;
    }

    memcpy(host->name, name, len);

    if (sbx_eg_table_add(&names->by_name, &host->item,
                         sbx_eg_hash(&names->key, name, len))
        == -1)
    {
        free(host);
        return NULL;
    }

    sbx_list_init(&host->pairs);
    sbx_list_append(&names->hosts, &host->node);

    return host;
}


static void
sbx_eg_host_drop(sbx_eg_names_t *names, sbx_eg_host_t *host)
{
    sbx_node_t  *node, *next;

    for (node = host->pairs.next; node != &host->pairs; node = next) {
        next = node->next;
        sbx_eg_pair_drop(names, sbx_eg_pair_of(node, of_host));
    }

    sbx_eg_table_del(&names->by_name, &host->item);
    sbx_list_remove(&host->node);
    free(host);
}


static sbx_eg_pair_t *
sbx_eg_pair_find(const sbx_eg_host_t *host, const uint8_t address[16])
{
    sbx_node_t     *node;
    sbx_eg_pair_t  *pair;

    for (node = host->pairs.next; node != &host->pairs; node = node->next) {
        pair = sbx_eg_pair_of(node, of_host);

        if (memcmp(pair->address, address, 16) == 0) {
            return pair;
        }
    }

    return NULL;
}


static sbx_eg_pair_t *
sbx_eg_pair_make(sbx_eg_names_t *names, sbx_eg_host_t *host,
    const uint8_t address[16])
{
    sbx_eg_pair_t  *pair, *old;

    pair = calloc(1, sizeof(sbx_eg_pair_t));

    if (pair == NULL) {
        return NULL;
    }

    memcpy(pair->address, address, 16);
    pair->host = host;

    if (sbx_eg_table_add(&names->by_address, &pair->item,
                         sbx_eg_hash(&names->key, address, 16))
        == -1)
    {
        free(pair);
        return NULL;
    }

    sbx_list_append(&names->pairs, &pair->node);
    sbx_list_append(&host->pairs, &pair->of_host);
    host->n++;

    if (host->n > SBX_NAMES_OF_HOST) {
        sbx_eg_pair_drop(names, sbx_eg_pair_of(host->pairs.next, of_host));
    }

    if (names->by_address.n > SBX_NAMES_PAIRS) {
        old = sbx_eg_pair_of(names->pairs.next, node);

        if (old->host->n == 1) {
            sbx_eg_host_drop(names, old->host);

        } else {
            sbx_eg_pair_drop(names, old);
        }
    }

    return pair;
}


static void
sbx_eg_pair_drop(sbx_eg_names_t *names, sbx_eg_pair_t *pair)
{
    sbx_eg_table_del(&names->by_address, &pair->item);
    sbx_list_remove(&pair->node);
    sbx_list_remove(&pair->of_host);
    pair->host->n--;
    free(pair);
}


static void
sbx_eg_to_end(sbx_node_t *head, sbx_node_t *node)
{
    sbx_list_remove(node);
    sbx_list_append(head, node);
}
