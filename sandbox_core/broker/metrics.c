/*
 * The broker's own numbers, for whoever watches the node.
 */

#include "broker.h"

#include <string.h>


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


/*
 * Init's word, which may be a lie: all commands together have used no more
 * than their session has, by its group.  A group's time is in its session's
 * by the time that init has read it, so an honest one loses nothing.
 */

void
sbx_metrics_command(sbx_session_t *s, uint32_t reason, uint64_t cpu_us)
{
    uint64_t       used, left;
    sbx_broker_t  *b;

    if (reason >= SBX_REASON_MAX) {
        return;
    }

    b = s->broker;
    b->over[reason]++;

    if (cpu_us == 0 || s->cgroup == NULL
        || sbx_cgroup_session_cpu(s->cgroup, &used) != 0
        || used < s->cpu_told)
    {
        return;
    }

    left = used - s->cpu_told;
    cpu_us = cpu_us < left ? cpu_us : left;
    s->cpu_told += cpu_us;
    b->over_cpu_us += cpu_us;
}


void
sbx_metrics_ended(sbx_broker_t *b, unsigned why)
{
    if (why < SBX_METRICS_ENDED) {
        b->ended[why]++;
    }
}
