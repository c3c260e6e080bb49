/*
 * Giving out a session that was made ahead.
 *
 * It may be had by a create that it can become: of the same template, with
 * the same files, disk and inodes, that sees as many processors, and has
 * limits that are not below what it uses already.  All else is set as it is
 * given out: whose it is, environment, capabilities, limits, times.  Init is
 * told first, on the socket that every later call takes; then the record is
 * written; then who asked is answered, all as for a session that was launched
 * just now, which it is in every state from here on.
 */

#include "broker.h"
#include "packages.h"
#include "sandbox_fault.h"

#include <errno.h>
#include <string.h>


#define SBX_POOL_RESERVE    (4 * 1024 * 1024)  /* bytes beside what it uses */
#define SBX_POOL_WAIT       30000              /* ms for its record */


/* A create that waits for a session to go. */

typedef struct {
    sbx_node_t     link;
    sbx_node_t     caller;            /* the call, unless it has gone */
    sbx_create_t   body;
    char          *data;
} sbx_wait_t;


static sbx_miss_t sbx_pool_fits(const sbx_pool_t *pool,
    const sbx_session_t *s, const sbx_create_t *body, const char *env);
static int sbx_pool_raised(const sbx_pool_t *pool, const sbx_limits_t *own,
    const sbx_limits_t *asked);
static int sbx_pool_env_fits(const sbx_pool_t *pool, const char *env,
    size_t size);
static int sbx_pool_variable(const char *pair, size_t len);
static int sbx_pool_has(const sbx_pool_t *pool, const char *pair,
    size_t len);
static int sbx_pool_hand_over(sbx_session_t *s, const sbx_call_t *head,
    const sbx_create_t *body, const char *data);
static int sbx_pool_tell(sbx_session_t *s, const sbx_create_t *body,
    const char *env);
static int sbx_pool_change(sbx_session_t *s, const sbx_create_t *body);
static void sbx_pool_wait_left(sbx_broker_t *b);
static void sbx_pool_wait_free(sbx_wait_t *wait);


sbx_session_t *
sbx_pool_take(sbx_broker_t *b, const sbx_call_t *head,
    const sbx_create_t *body, const char *data)
{
    sbx_miss_t      miss;
    sbx_pool_t     *pool;
    sbx_session_t  *s;

    pool = sbx_pool_find(b, sbx_create_means(b, body->template));

    if (pool == NULL) {
        return NULL;
    }

    if (!sbx_pool_current(pool)) {
        sbx_pool_configure(b);
        pool = sbx_pool_find(b, sbx_create_means(b, body->template));

        if (pool == NULL) {
            return NULL;
        }
    }

    miss = SBX_MISS_EMPTY;

    while (!sbx_list_empty(&pool->ready)) {
        s = sbx_node_of(pool->ready.next, sbx_session_t, pooling);
        miss = sbx_pool_fits(pool, s, body,
                             data != NULL ? data + body->meta_size : NULL);

        if (miss != SBX_MISSES) {
            break;
        }

        if (sbx_pool_hand_over(s, head, body, data) == 0) {
            pool->hits++;
            sbx_pool_soon(b);
            return s;
        }

        miss = SBX_MISS_LOST;
        sbx_session_end(s, SBX_ENDED_DESTROYED, 1);
    }

    pool->misses[miss]++;

    return NULL;
}


/* SBX_MISSES: it can become what is asked for. */

static sbx_miss_t
sbx_pool_fits(const sbx_pool_t *pool, const sbx_session_t *s,
    const sbx_create_t *body, const char *env)
{
    const sbx_limits_t  *own, *asked;

    own = &s->info.limits;
    asked = &body->limits;

    if (body->rules_size != 0) {
        return SBX_MISS_FILES;
    }

    if (body->flags & SBX_CREATE_MEMORY_RLIMIT) {
        return SBX_MISS_MEMORY;
    }

    if (asked->disk != own->disk || asked->inodes != own->inodes) {
        return SBX_MISS_STORAGE;
    }

    if (asked->memory < s->warm.memory + SBX_POOL_RESERVE
        || asked->processes <= s->warm.processes
        || sbx_launch_cpus_seen(asked->cpus)
           != sbx_launch_cpus_seen(own->cpus)
        || sbx_pool_raised(pool, own, asked))
    {
        return SBX_MISS_LIMITS;
    }

    return sbx_pool_env_fits(pool, env, body->env_size) ? SBX_MISSES
                                                        : SBX_MISS_ENV;
}


/* Nor can the limits of an interpreter that runs be raised: they are hard. */

static int
sbx_pool_raised(const sbx_pool_t *pool, const sbx_limits_t *own,
    const sbx_limits_t *asked)
{
    return pool->config.kernels[0] != '\0'
           && (asked->open_files > own->open_files
               || asked->max_file_size > own->max_file_size
               || asked->stack > own->stack);
}


/* An interpreter that runs cannot be told what it would have read when it was
 * started. */

static int
sbx_pool_env_fits(const sbx_pool_t *pool, const char *env, size_t size)
{
    size_t       len;
    const char  *p;

    if (pool->config.kernels[0] == '\0' || env == NULL) {
        return 1;
    }

    for (p = env; p < env + size; p += len + 1) {
        len = strlen(p);

        if (sbx_pool_variable(p, len) && !sbx_pool_has(pool, p, len)) {
            return 0;
        }
    }

    return 1;
}


static int
sbx_pool_variable(const char *pair, size_t len)
{
    size_t  i, n;

    /* those that end with "=" are whole names */

    static const char  *names[] = {
        "BASH", "ENV=", "GLIBC_", "HOME=", "IPYTHON", "JUPYTER", "LANG=",
        "LANGUAGE=", "LC_", "LD_", "MALLOC_", "MKL_", "MPL", "NODE_",
        "NUMEXPR_", "OMP_", "OPENBLAS_", "PATH=", "PYTHON", "SHELL=",
        "SSL_", "TMPDIR=", "TZ", "XDG_"
    };

    for (i = 0; i < sbx_nelts(names); i++) {
        n = strlen(names[i]);

        if (n <= len && memcmp(pair, names[i], n) == 0) {
            return 1;
        }
    }

    return 0;
}


static int
sbx_pool_has(const sbx_pool_t *pool, const char *pair, size_t len)
{
    const char  *p, *end;

    end = pool->env + pool->config.env_size;

    for (p = pool->env; p < end; p += strlen(p) + 1) {
        if (strlen(p) == len && memcmp(p, pair, len) == 0) {
            return 1;
        }
    }

    return 0;
}


/* -1: it is of no use to anybody any more. */

static int
sbx_pool_hand_over(sbx_session_t *s, const sbx_call_t *head,
    const sbx_create_t *body, const char *data)
{
    sbx_broker_t  *b;

    b = s->broker;

    if (sbx_create_keep(s, body, data, &s->error) != 0) {
        return -1;
    }

    if (sbx_pool_tell(s, body, data != NULL ? data + body->meta_size : NULL)
        != 0
        || sbx_pool_change(s, body) != 0)
    {
        return -1;
    }

    SBX_FAULT("broker-take-changed");

    sbx_pool_let_go(s);
    sbx_list_remove(&s->pooling);
    s->pool->nready--;
    s->pool = NULL;
    s->pooled = 0;

    sbx_list_remove(&s->link);
    sbx_list_append(&b->sessions, &s->link);

    s->state = SBX_S_CREATING;
    s->recorded = 0;
    sbx_create_info(s, head, body);
    s->info.usage.cpu_us = s->warm.cpu_us;
    sbx_timer_set(&b->loop, &s->timer, SBX_POOL_WAIT);

    SBX_FAULT("broker-take-owned");

    if (sbx_quota_take(s, &s->error) != 0
        || sbx_create_record(s, &s->error) != 0)
    {
        return -1;
    }

    SBX_FAULT("broker-take-recorded");

    sbx_credit_open(s);
    sbx_credit_begin(s);

    return 0;
}


/* It replaces what init was given when it was launched. */

static int
sbx_pool_tell(sbx_session_t *s, const sbx_create_t *body, const char *env)
{
    size_t               trust_size;
    sbx_error_t          e;
    sbx_auto_fd          fd = -1;
    sbx_launch_t         launch;
    sbx_auto_free char  *trust = NULL;
    sbx_packages_own_t   own = { NULL, NULL };

    if (sbx_outlet_trust(s->broker, s->info.template, &trust, &trust_size,
                         &s->error)
        != 0)
    {
        return -1;
    }

    memset(&launch, 0, sizeof(sbx_launch_t));
    launch.limits = body->limits;
    launch.capabilities = body->capabilities;
    launch.create_flags = body->flags;
    launch.network = body->network;
    launch.trust = trust;
    launch.trust_size = trust_size;
    launch.cgroup = s->cgroup;
    launch.env = env;
    launch.env_size = body->env_size;

    if (sbx_packages_launch(s->broker,
                            sbx_create_means(s->broker, s->info.template),
                            &launch, &own, &e)
        == 0)
    {
        fd = sbx_launch_hand_over(&launch, &e);
    }

    sbx_packages_own_free(&own);

    if (fd == -1) {
        s->error = e;
        return -1;
    }

    if (sbx_command_send_with(s, SBX_OP_HAND_OVER, 0, fd) != 0) {
        return sbx_error(&s->error, errno, SBX_E_UNAVAILABLE,
                         "init does not take what it is to be");
    }

    SBX_FAULT("broker-take-told");

    return 0;
}


static int
sbx_pool_change(sbx_session_t *s, const sbx_create_t *body)
{
    int                  fewer;
    sbx_broker_t        *b;
    sbx_limits_t         group;
    const sbx_limits_t  *own, *asked;

    b = s->broker;
    own = &s->info.limits;
    asked = &body->limits;

    if (own->memory == asked->memory && own->cpus == asked->cpus
        && own->processes == asked->processes)
    {
        return 0;
    }

    sbx_create_group(b, asked, &group);
    fewer = asked->cpus < own->cpus;

    if ((own->memory != asked->memory
         && sbx_launch_change(s->launched.kept, b->storage, asked, &s->error)
            != 0)
        || (fewer && sbx_command_change(s, asked, &s->error) != 0)
        || sbx_cgroup_session_change(s->cgroup, &group, &s->error) != 0)
    {
        return -1;
    }

    return fewer ? 0 : sbx_command_change(s, asked, &s->error);
}


/*
 * ---- room ----------------------------------------------------------------
 */


int
sbx_pool_yield(sbx_broker_t *b, sbx_call_out_t *call,
    const sbx_create_t *body, char **data)
{
    sbx_node_t     *node;
    sbx_wait_t     *wait;
    sbx_session_t  *s;

    if (sbx_list_empty(&b->pools.sessions)) {
        return 0;
    }

    sbx_pool_wait_left(b);
    wait = calloc(1, sizeof(sbx_wait_t));

    if (wait == NULL) {
        return 0;
    }

    wait->body = *body;
    wait->data = *data;
    *data = NULL;
    sbx_list_init(&wait->link);
    sbx_list_init(&wait->caller);
    sbx_list_append(&b->pools.waiting, &wait->link);
    sbx_call_wait(call, &wait->caller);

    /* the oldest that is not on its way out */

    for (node = b->pools.sessions.next; node != &b->pools.sessions;
         node = node->next)
    {
        s = sbx_node_of(node, sbx_session_t, link);

        if (s->state < SBX_S_TERMINATING) {
            sbx_session_end(s, SBX_ENDED_DESTROYED, 1);
            break;
        }
    }

    return 1;
}


/* Each that finds no room this time waits for the next one to go. */

void
sbx_pool_gone(sbx_broker_t *b)
{
    /* not now: who ends a session may hold a pool, which a create may free */

    sbx_timer_set(&b->loop, &b->pools.room, 0);
}


void
sbx_pool_room(sbx_timer_t *timer)
{
    sbx_broker_t    *b;
    sbx_node_t       waiting;
    sbx_wait_t      *wait;
    sbx_call_out_t  *call;

    b = timer->data;
    sbx_list_init(&waiting);

    while (!sbx_list_empty(&b->pools.waiting)) {
        wait = sbx_node_of(b->pools.waiting.next, sbx_wait_t, link);
        sbx_list_remove(&wait->link);
        sbx_list_append(&waiting, &wait->link);
    }

    while (!sbx_list_empty(&waiting)) {
        wait = sbx_node_of(waiting.next, sbx_wait_t, link);

        if (!sbx_list_empty(&wait->caller)) {
            call = sbx_node_of(wait->caller.next, sbx_call_out_t, wait);
            sbx_list_remove(&call->wait);
            sbx_create_again(b, call, &wait->body, &wait->data);
        }

        sbx_pool_wait_free(wait);
    }

    sbx_pool_soon(b);
}


/* Those whose caller has left: so no more wait than there are callers. */

static void
sbx_pool_wait_left(sbx_broker_t *b)
{
    sbx_node_t  *node, *next;
    sbx_wait_t  *wait;

    for (node = b->pools.waiting.next; node != &b->pools.waiting;
         node = next)
    {
        next = node->next;
        wait = sbx_node_of(node, sbx_wait_t, link);

        if (sbx_list_empty(&wait->caller)) {
            sbx_pool_wait_free(wait);
        }
    }
}


static void
sbx_pool_wait_free(sbx_wait_t *wait)
{
    sbx_list_remove(&wait->link);
    free(wait->data);
    free(wait);
}
