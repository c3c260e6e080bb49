/*
 * Sessions that are made ahead.
 *
 * Each template that has a pool is to have so many sessions that are ready:
 * launched, recorded, with a spare group, and with the interpreters that it
 * names running in them.  One is made at a time, in steps of the loop, and
 * only while no call has come for a moment; after each the broker rests for a
 * part of the time that it took.  Where one cannot be made, the next attempt
 * waits longer each time, and the log has one line about it.
 *
 * Such a session is nobody's (.pooled): in a list of its own, where no call
 * finds it, no quota counts it and no grave is dug for it.  The keeper does
 * not have it either, so it ends with the broker that made it, and what is
 * left of it is swept by the next.  It becomes a session like any other in
 * pool_take.c, once and for all.
 */

#include "broker.h"
#include "sandbox_fault.h"
#include "sandbox_languages.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>


#define SBX_POOL_QUIET         3          /* ms without a call */
#define SBX_POOL_REST          4          /* part of the time that one took */
#define SBX_POOL_WARM_WAIT     90000      /* ms for one interpreter */
#define SBX_POOL_BACKOFF_MIN   1000       /* ms */
#define SBX_POOL_BACKOFF_MAX   60000
#define SBX_POOL_SEALS         (F_SEAL_WRITE|F_SEAL_SHRINK|F_SEAL_GROW)


static sbx_pool_t *sbx_pool_make(sbx_broker_t *b,
    const sbx_pool_config_t *config, const char *strings);
static int sbx_pool_same(const sbx_pool_t *pool, const sbx_pool_t *other);
static void sbx_pool_root(const sbx_broker_t *b, const char *template,
    uint64_t root[2]);
static void sbx_pool_free(sbx_pool_t *pool);
static int sbx_pool_wanted(const sbx_broker_t *b);
static void sbx_pool_tick(sbx_timer_t *timer);
static int sbx_pool_busy(const sbx_broker_t *b);
static sbx_pool_t *sbx_pool_choose(sbx_broker_t *b, uint64_t now,
    uint64_t *again);
static int sbx_pool_begin(sbx_pool_t *pool, sbx_error_t *e);
static void sbx_pool_launch(sbx_session_t *s);
static void sbx_pool_warm(sbx_session_t *s);
static int sbx_pool_ask(sbx_session_t *s, const char *name, sbx_error_t *e);
static int sbx_pool_language(const sbx_broker_t *b, const char *name);
static int sbx_pool_preload(const sbx_pool_t *pool, int *fd);
static void sbx_pool_lacks(sbx_session_t *s, const char *why);
static unsigned sbx_pool_kernels(const sbx_session_t *s);
static void sbx_pool_failed(sbx_pool_t *pool, const sbx_error_t *e);
static void sbx_pool_over(sbx_broker_t *b);


void
sbx_pool_open(sbx_broker_t *b)
{
    sbx_list_init(&b->pools.sessions);
    sbx_list_init(&b->pools.waiting);
    b->pools.timer.handler = sbx_pool_tick;
    b->pools.timer.data = b;
    b->pools.room.handler = sbx_pool_room;
    b->pools.room.data = b;
}


void
sbx_pool_close(sbx_broker_t *b)
{
    sbx_timer_del(&b->loop, &b->pools.timer);
    sbx_timer_del(&b->loop, &b->pools.room);

    while (b->pools.count != 0) {
        sbx_pool_free(b->pools.pool[--b->pools.count]);
    }
}


/*
 * ---- configuration -------------------------------------------------------
 */


/* What is as it was keeps its sessions; numbers are kept by the name. */

void
sbx_pool_configure(sbx_broker_t *b)
{
    size_t                     used;
    uint32_t                   i, k, n;
    sbx_pool_t                *pool, *old, *was[SBX_POOLS_MAX];
    sbx_pools_t               *pools;
    const sbx_pools_config_t  *config;

    pools = &b->pools;
    config = &b->config.pools;
    n = pools->count;
    memcpy(was, pools->pool, sizeof(was));
    pools->count = 0;

    for (i = 0, used = 0; i < config->count; i++) {
        pool = sbx_pool_make(b, &config->pools[i], config->strings + used);
        used += (size_t) config->pools[i].env_size
                + config->pools[i].preload_size;

        if (pool == NULL) {
            sbx_log(SBX_LOG_ERROR, NULL, ENOMEM, "there is no pool of \"%s\"",
                    config->pools[i].template);
            continue;
        }

        for (k = 0; k < n; k++) {
            old = was[k];

            if (old == NULL || strcmp(old->config.template,
                                      pool->config.template) != 0)
            {
                continue;
            }

            if (sbx_pool_same(pool, old)) {
                old->config.sessions = pool->config.sessions;
                sbx_pool_free(pool);
                pool = old;
                was[k] = NULL;

            } else {
                pool->hits = old->hits;
                pool->failures = old->failures;
                memcpy(pool->misses, old->misses, sizeof(pool->misses));
            }

            break;
        }

        pool->again = 0;
        pools->pool[pools->count++] = pool;
    }

    for (k = 0; k < n; k++) {
        if (was[k] != NULL) {
            sbx_pool_empty(was[k]);
            sbx_pool_free(was[k]);
        }
    }

    for (i = 0; i < pools->count; i++) {
        pool = pools->pool[i];

        if (!sbx_pool_wanted(b)) {
            sbx_pool_empty(pool);
        }

        while (pool->nready > pool->config.sessions) {
            sbx_session_end(sbx_node_of(pool->ready.prev, sbx_session_t,
                                        pooling),
                            SBX_ENDED_DESTROYED, 1);
        }
    }

    sbx_pool_soon(b);
}


static sbx_pool_t *
sbx_pool_make(sbx_broker_t *b, const sbx_pool_config_t *config,
    const char *strings)
{
    size_t       size;
    sbx_pool_t  *pool;

    size = (size_t) config->env_size + config->preload_size;
    pool = calloc(1, sizeof(sbx_pool_t));

    if (pool == NULL) {
        return NULL;
    }

    pool->env = malloc(size + 1);

    if (pool->env == NULL) {
        free(pool);
        return NULL;
    }

    memcpy(pool->env, strings, size);
    pool->preload = pool->env + config->env_size;
    pool->broker = b;
    pool->config = *config;
    pool->backoff = SBX_POOL_BACKOFF_MIN;
    sbx_list_init(&pool->ready);
    sbx_pool_root(b, config->template, pool->root);

    return pool;
}


static int
sbx_pool_same(const sbx_pool_t *pool, const sbx_pool_t *other)
{
    sbx_pool_config_t  config;

    config = other->config;
    config.sessions = pool->config.sessions;

    return memcmp(&config, &pool->config, sizeof(config)) == 0
           && memcmp(pool->root, other->root, sizeof(pool->root)) == 0
           && memcmp(pool->env, other->env, (size_t) config.env_size
                                            + config.preload_size) == 0;
}


/* A template without files of its own has those of the machine. */

static void
sbx_pool_root(const sbx_broker_t *b, const char *template, uint64_t root[2])
{
    char         path[SBX_PATH_MAX + SBX_TEMPLATE_MAX + 16];
    struct stat  st;

    (void) snprintf(path, sizeof(path), "%s/%s/rootfs",
                    b->config.template_dir, template);

    memset(&st, 0, sizeof(struct stat));

    if (b->config.template_dir[0] != '\0') {
        (void) stat(path, &st);
    }

    root[0] = st.st_dev;
    root[1] = st.st_ino;
}


int
sbx_pool_current(const sbx_pool_t *pool)
{
    uint64_t  root[2];

    sbx_pool_root(pool->broker, pool->config.template, root);

    return memcmp(root, pool->root, sizeof(root)) == 0;
}


void
sbx_pool_empty(sbx_pool_t *pool)
{
    sbx_session_t  *s;

    while (!sbx_list_empty(&pool->ready)) {
        s = sbx_node_of(pool->ready.next, sbx_session_t, pooling);
        sbx_session_end(s, SBX_ENDED_DESTROYED, 1);
    }

    s = pool->broker->pools.filling;

    if (s != NULL && s->pool == pool) {
        s->pool = NULL;
        sbx_session_end(s, SBX_ENDED_DESTROYED, 1);
    }
}


/* It has no sessions any more. */

static void
sbx_pool_free(sbx_pool_t *pool)
{
    free(pool->env);
    free(pool);
}


sbx_pool_t *
sbx_pool_find(const sbx_broker_t *b, const char *template)
{
    uint32_t  i;

    for (i = 0; i < b->pools.count; i++) {
        if (strcmp(b->pools.pool[i]->config.template, template) == 0) {
            return b->pools.pool[i];
        }
    }

    return NULL;
}


/* Where no session would be given out, none is kept. */

static int
sbx_pool_wanted(const sbx_broker_t *b)
{
    return b->configured && !b->ending && !b->quotas.draining.value
           && (b->isolated || !sbx_setting_value(b, SBX_SETTING_ISOLATION));
}


/*
 * ---- when there is time --------------------------------------------------
 */


void
sbx_pool_touch(sbx_broker_t *b)
{
    b->pools.touched = sbx_now_us();
}


void
sbx_pool_soon(sbx_broker_t *b)
{
    if (b->pools.count != 0 && !b->pools.timer.set) {
        sbx_timer_set(&b->loop, &b->pools.timer, SBX_POOL_QUIET);
    }
}


static void
sbx_pool_tick(sbx_timer_t *timer)
{
    uint64_t       now, again;
    sbx_error_t    e;
    sbx_pool_t    *pool;
    sbx_pools_t   *pools;
    sbx_broker_t  *b;

    b = timer->data;
    pools = &b->pools;
    now = sbx_now_us();

    if (pools->filling != NULL && !pools->half) {
        /* its own events tell when it is ready */
        return;
    }

    if (now < pools->rest) {
        sbx_timer_set(&b->loop, timer, (pools->rest - now) / 1000 + 1);
        return;
    }

    if (sbx_pool_busy(b)) {
        sbx_timer_set(&b->loop, timer, SBX_POOL_QUIET);
        return;
    }

    if (pools->filling != NULL) {
        pools->half = 0;
        sbx_pool_launch(pools->filling);
        return;
    }

    pool = sbx_pool_choose(b, now, &again);

    if (pool == NULL) {
        if (again != 0) {
            sbx_timer_set(&b->loop, timer, (again - now) / 1000 + 1);
        }

        return;
    }

    pools->began = now;

    if (sbx_pool_begin(pool, &e) != 0) {
        sbx_pool_failed(pool, &e);
        sbx_pool_over(b);
        return;
    }

    SBX_FAULT("broker-pool-begun");
    pools->half = 1;
    sbx_timer_set(&b->loop, timer, 1);
}


/* A call has come a moment ago, or a session is being made for one. */

static int
sbx_pool_busy(const sbx_broker_t *b)
{
    const sbx_node_t     *node;
    const sbx_session_t  *s;

    if (sbx_now_us() - b->pools.touched < SBX_POOL_QUIET * 1000) {
        return 1;
    }

    /* they are in the order of their making */

    node = b->sessions.prev;

    if (node == &b->sessions) {
        return 0;
    }

    s = sbx_node_of(node, sbx_session_t, link);

    return s->state == SBX_S_CREATING;
}


/* The next that lacks one, in turn; *again: when one may be tried. */

static sbx_pool_t *
sbx_pool_choose(sbx_broker_t *b, uint64_t now, uint64_t *again)
{
    uint32_t      i;
    sbx_pool_t   *pool;
    sbx_pools_t  *pools;

    pools = &b->pools;
    *again = 0;

    for (i = 0; sbx_pool_wanted(b) && i < pools->count; i++) {
        pool = pools->pool[(pools->next + i) % pools->count];

        if (pool->nready >= pool->config.sessions) {
            continue;
        }

        if (pool->again > now) {
            *again = *again == 0 || pool->again < *again ? pool->again
                                                         : *again;
            continue;
        }

        pools->next = (pools->next + i + 1) % pools->count;

        return pool;
    }

    return NULL;
}


/*
 * ---- making one ----------------------------------------------------------
 */


static int
sbx_pool_begin(sbx_pool_t *pool, sbx_error_t *e)
{
    sbx_call_t      head;
    sbx_create_t    body;
    sbx_broker_t   *b;
    sbx_session_t  *s;

    b = pool->broker;

    memset(&head, 0, sizeof(sbx_call_t));
    memset(&body, 0, sizeof(sbx_create_t));
    memcpy(body.template, pool->config.template, sizeof(body.template));
    body.limits = pool->config.limits;
    body.capabilities = pool->config.capabilities;
    body.flags = b->isolated ? 0 : SBX_CREATE_WEAK_OK;

    if (sbx_create_limits(b, &body, e) != 0) {
        return -1;
    }

    s = sbx_session_make(b);

    if (s == NULL) {
        return sbx_error(e, ENOMEM, SBX_E_UNAVAILABLE, "out of memory");
    }

    s->pooled = 1;
    sbx_create_info(s, &head, &body);

    if (sbx_ids_take(b, s, e) != 0 || sbx_ids_name(b, s->info.id, e) != 0
        || sbx_create_dir(s, e) != 0)
    {
        sbx_session_free(s);
        return -1;
    }

    s->pool = pool;
    b->pools.filling = s;

    if (sbx_create_groups(s, e) == 0) {

        if ((uint64_t) s->dir < b->open_files / 2) {
            return 0;
        }

        (void) sbx_error(e, EMFILE, SBX_E_CAPACITY,
                         "half of the broker's descriptors are in use");
    }

    s->pool = NULL;
    b->pools.filling = NULL;
    sbx_session_end(s, SBX_ENDED_DESTROYED, 1);

    return -1;
}


static void
sbx_pool_launch(sbx_session_t *s)
{
    sbx_pool_t  *pool;

    pool = s->pool;

    if (sbx_create_launch(s, pool->env, pool->config.env_size, NULL, 0,
                          &s->error)
        != 0)
    {
        sbx_session_end(s, SBX_ENDED_DESTROYED, 1);
    }

    SBX_FAULT("broker-pool-launched");
}


/* Init is there, and so is the record. */

void
sbx_pool_started(sbx_session_t *s)
{
    sbx_loop_t  *loop;

    loop = &s->broker->loop;
    s->state = SBX_S_RUNNING;
    s->kernel = s->pool->config.kernels;
    sbx_timer_del(loop, &s->timer);
    sbx_timer_set(loop, &s->groups, 0);
    SBX_FAULT("broker-pool-started");
    sbx_pool_warm(s);
}


/* One interpreter after the other. */

static void
sbx_pool_warm(sbx_session_t *s)
{
    sbx_error_t  e;

    while (s->kernel[0] != '\0') {
        if (sbx_pool_ask(s, s->kernel, &e) == 0) {
            SBX_FAULT("broker-pool-asked");
            sbx_timer_set(&s->broker->loop, &s->timer, SBX_POOL_WARM_WAIT);
            return;
        }

        sbx_pool_lacks(s, e.text);
        s->kernel += strlen(s->kernel) + 1;
    }

    sbx_timer_del(&s->broker->loop, &s->timer);
    s->kernel = NULL;
    sbx_pool_settle(s);
}


static int
sbx_pool_ask(sbx_session_t *s, const char *name, sbx_error_t *e)
{
    int          token;
    sbx_auto_fd  preload = -1;

    token = sbx_pool_language(s->broker, name);

    if (token == -1) {
        return sbx_error(e, 0, SBX_E_UNAVAILABLE,
                         "this machine has no such language");
    }

    if (sbx_pool_preload(s->pool, &preload) != 0
        || sbx_command_send_with(s, SBX_OP_WARM, (uint32_t) token, preload)
           != 0)
    {
        return sbx_error(e, errno, SBX_E_UNAVAILABLE, "init is not told");
    }

    return 0;
}


/* Its number in the table that inits have, or -1. */

static int
sbx_pool_language(const sbx_broker_t *b, const char *name)
{
    sbx_language_t  language;

    return b->languages == NULL
           ? -1 : sbx_language_find(b->languages->table, b->languages->size,
                                    name, strlen(name), &language);
}


static int
sbx_pool_preload(const sbx_pool_t *pool, int *preload)
{
    sbx_auto_fd  fd = -1;

    if (pool->config.preload_size == 0) {
        return 0;
    }

    fd = memfd_create("preload", MFD_CLOEXEC|MFD_ALLOW_SEALING);

    if (fd == -1
        || sbx_write_all(fd, pool->preload, pool->config.preload_size) != 0
        || fcntl(fd, F_ADD_SEALS, SBX_POOL_SEALS) == -1)
    {
        return -1;
    }

    *preload = sbx_steal_fd(&fd);

    return 0;
}


int
sbx_pool_warmed(sbx_session_t *s, const sbx_record_t *record)
{
    char  text[64];

    if (!s->pooled || s->state != SBX_S_RUNNING || s->kernel == NULL
        || (int) record->command != sbx_pool_language(s->broker, s->kernel))
    {
        /* of one that has been given up, or given out */
        return 0;
    }

    if (record->reason != 0) {
        (void) snprintf(text, sizeof(text), "it ended by reason %u",
                        record->reason);
        sbx_pool_lacks(s, text);

    } else {
        s->nwarm++;
    }

    s->kernel += strlen(s->kernel) + 1;
    SBX_FAULT("broker-pool-warmed");
    sbx_pool_warm(s);

    return 0;
}


/* A session without an interpreter is of use all the same. */

static void
sbx_pool_lacks(sbx_session_t *s, const char *why)
{
    sbx_pool_t  *pool;

    pool = s->pool;
    pool->failures++;

    if (!pool->lacking) {
        pool->lacking = 1;
        sbx_log(SBX_LOG_WARN, NULL, 0,
                "sessions of the pool \"%s\" have no interpreter of \"%s\" "
                "ready: %s", pool->config.template, s->kernel, why);
    }
}


void
sbx_pool_late(sbx_session_t *s)
{
    if (!s->pooled || s->kernel == NULL) {
        return;
    }

    (void) sbx_error(&s->error, 0, SBX_E_UNAVAILABLE,
                     "its interpreter of \"%s\" was not ready in time",
                     s->kernel);
    sbx_session_end(s, SBX_ENDED_DESTROYED, 1);
}


/* One that was ready is no more, and another takes its place: not at once, as
 * that may do the same. */

void
sbx_pool_cold(sbx_session_t *s)
{
    sbx_pool_t  *pool;

    if (!s->pooled || sbx_list_empty(&s->pooling)) {
        return;
    }

    pool = s->pool;
    pool->failures++;
    pool->again = sbx_now_us() + SBX_POOL_BACKOFF_MIN * 1000;
    sbx_session_end(s, SBX_ENDED_DESTROYED, 1);
}


/* Whether it is ready. */

void
sbx_pool_settle(sbx_session_t *s)
{
    uint64_t       now, took;
    sbx_pool_t    *pool;
    sbx_error_t    e;
    sbx_pools_t   *pools;

    if (!s->pooled || s->state != SBX_S_RUNNING || s->pool == NULL
        || s->kernel != NULL || s->spare == NULL
        || !sbx_list_empty(&s->pooling))
    {
        return;
    }

    pool = s->pool;
    pools = &s->broker->pools;

    if (sbx_pool_kernels(s) < s->nwarm) {
        (void) sbx_error(&s->error, 0, SBX_E_UNAVAILABLE,
                         "an interpreter of it ended before it was ready");
        sbx_session_end(s, SBX_ENDED_DESTROYED, 1);
        return;
    }

    if (sbx_cgroup_session_usage(s->cgroup, &s->warm, &e) != 0) {
        s->error = e;
        sbx_session_end(s, SBX_ENDED_DESTROYED, 1);
        return;
    }

    sbx_list_append(&pool->ready, &s->pooling);
    pool->nready++;
    SBX_FAULT("broker-pool-ready");
    pool->backoff = SBX_POOL_BACKOFF_MIN;

    if (pool->noted) {
        pool->noted = 0;
        sbx_log(SBX_LOG_NOTICE, NULL, 0, "the pool \"%s\" is filled again",
                pool->config.template);
    }

    now = sbx_now_us();
    took = now - pools->began;
    pools->rest = now + took / SBX_POOL_REST;
    pools->filling = NULL;
    sbx_pool_over(s->broker);
}


static unsigned
sbx_pool_kernels(const sbx_session_t *s)
{
    unsigned           n;
    const sbx_node_t  *node;

    n = 0;

    for (node = s->kernels.next; node != &s->kernels; node = node->next) {
        n++;
    }

    return n;
}


/*
 * ---- the end of one ------------------------------------------------------
 */


void
sbx_pool_out(sbx_session_t *s)
{
    sbx_pool_t    *pool;
    sbx_broker_t  *b;

    b = s->broker;
    pool = s->pool;
    s->pool = NULL;
    sbx_pool_let_go(s);

    if (!sbx_list_empty(&s->pooling)) {
        sbx_list_remove(&s->pooling);
        pool->nready--;
    }

    if (b->pools.filling == s) {
        b->pools.filling = NULL;
        b->pools.half = 0;

        if (pool != NULL) {
            if (s->error.code == SBX_OK) {
                (void) sbx_error(&s->error, 0, SBX_E_UNAVAILABLE,
                                 "it ended before it was ready");
            }

            sbx_pool_failed(pool, &s->error);
        }
    }

    sbx_pool_soon(b);
}


/* What was kept of it to be changed. */

void
sbx_pool_let_go(sbx_session_t *s)
{
    unsigned  i;

    for (i = 0; i < SBX_LAUNCH_KEPT; i++) {
        if (s->launched.kept[i] != -1) {
            (void) close(s->launched.kept[i]);
            s->launched.kept[i] = -1;
        }
    }
}


static void
sbx_pool_failed(sbx_pool_t *pool, const sbx_error_t *e)
{
    pool->failures++;
    pool->again = sbx_now_us() + (uint64_t) pool->backoff * 1000;
    pool->backoff = pool->backoff * 2 < SBX_POOL_BACKOFF_MAX
                    ? pool->backoff * 2 : SBX_POOL_BACKOFF_MAX;

    if (!pool->noted) {
        pool->noted = 1;
        sbx_log(SBX_LOG_WARN, NULL, e->err,
                "no session can be made for the pool \"%s\", which is tried "
                "again from time to time: %s", pool->config.template,
                e->text);
    }
}


/* With one of them, for better or for worse. */

static void
sbx_pool_over(sbx_broker_t *b)
{
    sbx_timer_del(&b->loop, &b->pools.timer);
    sbx_pool_soon(b);
}


void
sbx_pool_metrics(const sbx_broker_t *b, sbx_pool_metrics_t *m)
{
    uint32_t           i;
    const sbx_node_t  *node;
    const sbx_pool_t  *pool;

    for (i = 0; i < b->pools.count; i++) {
        pool = b->pools.pool[i];
        memcpy(m[i].template, pool->config.template, sizeof(m[i].template));
        m[i].sessions = pool->config.sessions;
        m[i].ready = pool->nready;
        m[i].filling = b->pools.filling != NULL
                       && b->pools.filling->pool == pool;
        m[i].hits = pool->hits;
        m[i].failures = pool->failures;
        memcpy(m[i].misses, pool->misses, sizeof(m[i].misses));

        for (node = pool->ready.next; node != &pool->ready;
             node = node->next)
        {
            m[i].memory += sbx_node_of(node, sbx_session_t, pooling)
                           ->warm.memory;
        }
    }
}
