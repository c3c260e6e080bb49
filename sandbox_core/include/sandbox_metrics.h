/*
 * What the broker tells for metrics.  Included by sandbox_wire.h.
 */

#ifndef SANDBOX_METRICS_H
#define SANDBOX_METRICS_H

#include "sandbox_network.h"
#include "sandbox_pool.h"
#include "sandbox_quota.h"

#include <stdint.h>


typedef enum {
    SBX_STATE_CREATING,
    SBX_STATE_RUNNING,
    SBX_STATE_PAUSED,
    SBX_STATE_ENDING,
    SBX_STATES
} sbx_state_t;

#define SBX_METRICS_ENDED     8       /* by sbx_ended_t */
#define SBX_METRICS_REASONS   16      /* by sbx_reason_t */


/* After SBX_OP_METRICS.  Counters begin with the broker. */
typedef struct {
    uint64_t      sessions[SBX_STATES];
    uint64_t      ended[SBX_METRICS_ENDED];
    uint64_t      commands[SBX_METRICS_REASONS];    /* that have ended */
    uint64_t      cpu_us;                 /* of these */
    uint64_t      slots;                  /* sessions that user ids allow */
    uint64_t      calls;                  /* that are open */
    uint64_t      servers;                /* control connections */
    uint64_t      restarts;               /* of the broker by its keeper */
    int64_t       started;                /* unix ms */
    uint32_t      draining;
    uint32_t      pad;
    sbx_quota_t   used;                   /* of the node */
    sbx_quota_t   limits;
    sbx_pool_metrics_t  pools[SBX_POOLS_MAX];
    uint64_t      refused[SBX_REFUSED_REASONS];     /* by the egress */
    uint64_t      network_sent;           /* bytes: sessions that have ended,
                                             and those that there are */
    uint64_t      network_received;
    uint64_t      connections;            /* now */
    uint64_t      egress_restarts;
    uint32_t      egress_up;
    uint32_t      egress_pad;
} sbx_f_metrics_t;


const char *sbx_ended_word(unsigned ended);


#endif
