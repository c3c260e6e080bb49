/*
 * The broker's own numbers, for whoever watches the node.
 */

#include "broker.h"

#include <string.h>
#include <unistd.h>


static long sbx_metrics_processors(void);


static sbx_state_t
sbx_metrics_state(const sbx_session_t *s)
{
    if (s->state == SBX_S_CREATING) {
        return SBX_STATE_CREATING;
    }

    if (s->state != SBX_S_RUNNING) {
        return SBX_STATE_ENDING;
    }

    return s->info.status == SBX_STATUS_PAUSED ? SBX_STATE_PAUSED
                                               : SBX_STATE_RUNNING;
}


void
sbx_metrics_call(sbx_broker_t *b, sbx_call_out_t *call, const void *body)
{
    sbx_node_t       *node;
    sbx_f_metrics_t   m;

    (void) body;

    memset(&m, 0, sizeof(sbx_f_metrics_t));

    for (node = b->sessions.next; node != &b->sessions; node = node->next) {
        m.sessions[sbx_metrics_state(sbx_node_of(node, sbx_session_t,
                                                 link))]++;
    }

    memcpy(m.ended, b->ended, sizeof(m.ended));
    memcpy(m.commands, b->over, sizeof(m.commands));
    m.cpu_us = b->over_cpu_us;
    m.slots = b->config.uid_count >> 16;
    m.calls = b->ncalls;
    m.servers = b->ncontrols;
    m.restarts = b->restarts;
    m.started = b->started_ms;
    m.draining = (uint32_t) b->quotas.draining.value;
    m.used = b->quotas.used;
    sbx_quota_limits(b, SBX_SCOPE_NODE, "", "", 1, &m.limits);
    sbx_pool_metrics(b, m.pools);
    sbx_way_metrics(b, &m);

    (void) sbx_call_frame(call, SBX_F_METRICS, &m, sizeof(sbx_f_metrics_t),
                          NULL, 0);
    sbx_call_end(call, NULL);
}


/* Init's word, which may be a lie: no command has used more than all
 * processors since its session began. */

void
sbx_metrics_command(const sbx_session_t *s, uint32_t reason, uint64_t cpu_us)
{
    uint64_t       most;
    sbx_broker_t  *b;

    if (reason >= SBX_REASON_MAX) {
        return;
    }

    b = s->broker;
    most = (sbx_now_us() - s->born) * (uint64_t) sbx_metrics_processors();

    b->over[reason]++;
    b->over_cpu_us += cpu_us < most ? cpu_us : most;
}


static long
sbx_metrics_processors(void)
{
    long  n;

    static long  processors;

    if (processors == 0) {
        n = sysconf(_SC_NPROCESSORS_CONF);
        processors = n > 0 ? n : 1;
    }

    return processors;
}


void
sbx_metrics_ended(sbx_broker_t *b, unsigned why)
{
    if (why < SBX_METRICS_ENDED) {
        b->ended[why]++;
    }
}
