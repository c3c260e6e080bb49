/*
 * Sessions that are made ahead, by template, and what is told of them.
 * Included by sandbox_wire.h.
 */

#ifndef SANDBOX_POOL_H
#define SANDBOX_POOL_H

#include "sandbox_error.h"
#include "sandbox_limits.h"

#include <stdint.h>


#define SBX_POOLS_MAX           16
#define SBX_POOL_SESSIONS_MAX   1024      /* of one pool */
#define SBX_POOL_KERNELS        256       /* bytes of their names */
#define SBX_POOL_STRINGS        32768     /* bytes of all pools' strings */


/* What a session of the pool is made with: what a create gets that asks for
 * nothing but the template. */
typedef struct {
    char          template[64];
    char          kernels[SBX_POOL_KERNELS];  /* "NAME\0"..., then "" */
    sbx_limits_t  limits;                 /* settled */
    uint32_t      sessions;
    uint32_t      capabilities;           /* SBX_CAP_* */
    uint32_t      env_size;               /* "K=V\0"..., in the strings */
    uint32_t      preload_size;           /* "NAME\0"..., behind it */
} sbx_pool_config_t;

/* A part of sbx_config_t; the strings of each pool follow one another. */
typedef struct {
    uint32_t           count;
    uint32_t           strings_size;      /* in use */
    sbx_pool_config_t  pools[SBX_POOLS_MAX];
    char               strings[SBX_POOL_STRINGS];
} sbx_pools_config_t;

/* Sizes, terminators and bounds; what a name means is not looked at. */
int sbx_pools_config_ok(const sbx_pools_config_t *config);


/* Why a create of a template that has a pool was not given one of it. */
typedef enum {
    SBX_MISS_EMPTY,                       /* none was ready */
    SBX_MISS_STORAGE,                     /* another disk or inodes */
    SBX_MISS_FILES,                       /* file rules or binds */
    SBX_MISS_LIMITS,                      /* what is seen of memory or cpus
                                             would be wrong, or less than
                                             what it uses already */
    SBX_MISS_MEMORY,                      /* memory_strategy "rlimit" */
    SBX_MISS_ENV,                         /* a variable that its interpreters
                                             would have read at their start */
    SBX_MISS_LOST,                        /* it ended as it was given out */
    SBX_MISSES
} sbx_miss_t;

const char *sbx_miss_word(sbx_miss_t miss);

/* A part of sbx_f_metrics_t. */
typedef struct {
    char          template[64];           /* "": there are no more */
    uint64_t      sessions;               /* that are wanted */
    uint64_t      ready;
    uint64_t      filling;
    uint64_t      memory;                 /* bytes, of those that are ready */
    uint64_t      hits;
    uint64_t      misses[SBX_MISSES];
    uint64_t      failures;               /* to make one, or its kernels */
} sbx_pool_metrics_t;


#endif
