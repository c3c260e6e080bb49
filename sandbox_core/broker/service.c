#include "broker.h"
#include "sandbox_fault.h"

#include <stdio.h>
#include <string.h>


#define SBX_SERVICE_BATCH   65536     /* bytes of a LIST queued at a time */


typedef void (*sbx_service_pt)(sbx_broker_t *b, sbx_call_out_t *call,
    const void *body);


static void sbx_service_health(sbx_broker_t *b, sbx_call_out_t *call,
    const void *body);
static void sbx_service_doctor(sbx_broker_t *b, sbx_call_out_t *call,
    const void *body);
static void sbx_service_check(const sbx_f_check_t *check, void *data);
static void sbx_service_capabilities(sbx_broker_t *b, sbx_call_out_t *call,
    const void *body);
static void sbx_service_capability(const sbx_f_capability_t *capability,
    void *data);
static void sbx_service_templates(sbx_broker_t *b, sbx_call_out_t *call,
    const void *body);
static void sbx_service_get(sbx_broker_t *b, sbx_call_out_t *call,
    const void *body);
static void sbx_service_list_start(sbx_broker_t *b, sbx_call_out_t *call,
    const void *body);
static int sbx_service_listed(const sbx_call_out_t *call,
    const sbx_session_t *s);
static void sbx_service_destroy(sbx_broker_t *b, sbx_call_out_t *call,
    const void *body);


typedef struct {
    uint16_t        op;
    sbx_service_pt  handler;
} sbx_service_t;

static const sbx_service_t  sbx_services[] = {
    { SBX_OP_HEALTH, sbx_service_health },
    { SBX_OP_DOCTOR, sbx_service_doctor },
    { SBX_OP_CAPABILITIES, sbx_service_capabilities },
    { SBX_OP_TEMPLATES, sbx_service_templates },
    { SBX_OP_GET, sbx_service_get },
    { SBX_OP_LIST, sbx_service_list_start },
    { SBX_OP_DESTROY, sbx_service_destroy },
    { SBX_OP_QUOTA_GET, sbx_admin_call },
    { SBX_OP_QUOTA_SET, sbx_admin_call },
    { SBX_OP_QUOTA_LIST, sbx_admin_call },
    { SBX_OP_SETTINGS_GET, sbx_admin_call },
    { SBX_OP_SETTINGS_SET, sbx_admin_call },
    { SBX_OP_DRAIN, sbx_admin_call },
    { SBX_OP_DESTROY_ALL, sbx_admin_call },
    { SBX_OP_END, sbx_service_destroy },
    { SBX_OP_SAMPLES, sbx_samples_call },
    { SBX_OP_METRICS, sbx_metrics_call },
    { SBX_OP_REFUSALS, sbx_way_listen },
    { 0, NULL }
};

static const sbx_f_template_t  sbx_service_base = {
    "base", "code-interpreter-v1",
    "the machine's own programs and languages, read-only"
};


void
sbx_service_call(sbx_broker_t *b, sbx_call_out_t *call, const void *body)
{
    sbx_error_t           e;
    const sbx_service_t  *service;

    for (service = sbx_services; service->handler != NULL; service++) {
        if (service->op == call->head.op) {
            service->handler(b, call, body);
            return;
        }
    }

    (void) sbx_error(&e, 0, SBX_E_INVALID, "op %u is no call",
                     call->head.op);
    sbx_call_error(call, &e);
}


static void
sbx_service_health(sbx_broker_t *b, sbx_call_out_t *call, const void *body)
{
    size_t          n;
    sbx_error_t     e;
    sbx_doctor_t    d;
    sbx_f_health_t  health;

    (void) body;

    memset(&health, 0, sizeof(sbx_f_health_t));
    health.sessions = b->nrunning;
    e = b->problem;

    if (b->configured && !b->ending) {
        sbx_setup_doctor(b, &d);
        health.ok = sbx_doctor_health(&d, &e) == 0;

        if (health.ok && b->quotas.draining.value) {
            health.ok = 0;
            (void) sbx_error(&e, 0, SBX_E_CAPACITY, "this node is draining");
        }
    }

    if (health.ok) {
        sbx_layers_names(sbx_layers_weak(&b->layers), health.text,
                         sizeof(health.text));

        if (sbx_outlet_lacking(b)) {
            n = strlen(health.text);
            (void) snprintf(health.text + n, sizeof(health.text) - n,
                            "%segress", n != 0 ? ", " : "");
        }

    } else {
        memcpy(health.text, e.text, sizeof(health.text));
    }

    (void) sbx_call_frame(call, SBX_F_HEALTH, &health,
                          sizeof(sbx_f_health_t), NULL, 0);
    sbx_call_end(call, NULL);
}


static void
sbx_service_doctor(sbx_broker_t *b, sbx_call_out_t *call, const void *body)
{
    sbx_doctor_t   d;
    sbx_f_check_t  check;

    (void) body;

    sbx_setup_doctor(b, &d);
    sbx_doctor(&d, sbx_service_check, call);

    if (b->storage != NULL) {
        sbx_storage_check(b->storage, &check);
        sbx_service_check(&check, call);
    }

    if (b->outlet.wanted) {
        sbx_outlet_check(b, &check);
        sbx_service_check(&check, call);
    }

    sbx_languages_checks(b, sbx_service_check, call);

    sbx_call_end(call, NULL);
}


static void
sbx_service_check(const sbx_f_check_t *check, void *data)
{
    (void) sbx_call_frame(data, SBX_F_CHECK, check, sizeof(sbx_f_check_t),
                          NULL, 0);
}


static void
sbx_service_capabilities(sbx_broker_t *b, sbx_call_out_t *call,
    const void *body)
{
    (void) body;

    if (!b->configured) {
        sbx_call_error(call, &b->problem);
        return;
    }

    sbx_capabilities(&b->layers, sbx_service_capability, call);
    sbx_call_end(call, NULL);
}


static void
sbx_service_capability(const sbx_f_capability_t *capability, void *data)
{
    (void) sbx_call_frame(data, SBX_F_CAPABILITY, capability,
                          sizeof(sbx_f_capability_t), NULL, 0);
}


static void
sbx_service_templates(sbx_broker_t *b, sbx_call_out_t *call,
    const void *body)
{
    (void) b;
    (void) body;

    (void) sbx_call_frame(call, SBX_F_TEMPLATE, &sbx_service_base,
                          sizeof(sbx_f_template_t), NULL, 0);
    sbx_call_end(call, NULL);
}


int
sbx_service_session(sbx_call_out_t *call, sbx_session_t *s,
    const sbx_usage_t *usage)
{
    size_t                n, sent;
    const char           *means;
    sbx_f_session_t       info;
    const sbx_config_t   *config;

    info = s->info;
    config = &call->broker->config;

    /* what it will have goes on not to be used */

    if (info.status == SBX_STATUS_PAUSED) {
        info.expires = sbx_broker_clock_ms() + (int64_t) info.left;
    }

    means = sbx_create_means(call->broker, info.template);

    /* it asked for a network when the configuration granted one */

    if (!sbx_egress_table_grants(config->egress, config->egress_size, means)) {
        info.network = SBX_NETWORK_NONE;
        info.network_size = 0;
    }

    info.network_open = sbx_network_open(
        config->egress, config->egress_size, means,
        (sbx_network_mode_t) info.network, s->way.rules, info.network_size)
        == 1;

    if (usage != NULL) {
        info.usage = *usage;
        info.has_usage = 1;
    }

    if (sbx_call_frame(call, SBX_F_SESSION, &info, sizeof(sbx_f_session_t),
                       NULL, 0)
        != 0)
    {
        return -1;
    }

    if (usage != NULL && info.network_size != 0
        && sbx_call_frame(call, SBX_F_NETWORK, s->way.rules,
                          info.network_size, NULL, 0)
           != 0)
    {
        return -1;
    }

    for (sent = 0; sent < info.meta_size; sent += n) {
        n = info.meta_size - sent;

        if (n > SBX_FRAME_MAX) {
            n = SBX_FRAME_MAX;
        }

        if (sbx_call_frame(call, SBX_F_META, s->meta + sent, n, NULL, 0)
            != 0)
        {
            return -1;
        }
    }

    return 0;
}


sbx_session_t *
sbx_service_find(sbx_broker_t *b, sbx_call_out_t *call)
{
    sbx_f_error_t   error;
    sbx_session_t  *s;

    s = sbx_session_of_call(b, &call->head);

    if (s == NULL) {
        sbx_call_session_error(b, &call->head, &error);
        sbx_call_fail(call, &error);
    }

    return s;
}


static void
sbx_service_get(sbx_broker_t *b, sbx_call_out_t *call, const void *body)
{
    sbx_error_t     e;
    sbx_usage_t     usage;
    sbx_session_t  *s;

    (void) body;

    s = sbx_service_find(b, call);

    if (s == NULL) {
        return;
    }

    memset(&usage, 0, sizeof(sbx_usage_t));

    /* a directory without a quota is not counted */

    if (sbx_cgroup_session_usage(s->cgroup, &usage, &e) != 0
        || (s->info.enforcement.disk != SBX_BY_NONE
            && sbx_disk_usage(s->disk, &usage, &e) != 0))
    {
        sbx_call_error(call, &e);
        return;
    }

    sbx_way_usage(s, &usage);

    /* what it used while it was nobody's is not its owner's */

    usage.cpu_us -= usage.cpu_us < s->info.usage.cpu_us
                    ? usage.cpu_us : s->info.usage.cpu_us;

    if (sbx_service_session(call, s, &usage) == 0) {
        sbx_call_end(call, NULL);
    }
}


static void
sbx_service_list_start(sbx_broker_t *b, sbx_call_out_t *call,
    const void *body)
{
    sbx_node_t     *node;
    sbx_session_t  *s;

    memcpy(&call->filter, body, sizeof(sbx_list_t));
    call->left = call->filter.limit ? call->filter.limit : UINT64_MAX;
    call->listing = 1;

    for (node = b->sessions.prev; node != &b->sessions; node = node->prev) {
        s = sbx_node_of(node, sbx_session_t, link);

        if (call->filter.before == 0 || s->info.seq < call->filter.before) {
            call->cursor = s;
            break;
        }
    }

    sbx_service_list(call);
}


/*
 * A batch; the rest when the peer has taken it.  The session that is next is
 * kept in .cursor, which moves on when that session goes meanwhile.
 */

void
sbx_service_list(sbx_call_out_t *call)
{
    sbx_node_t     *node;
    sbx_f_end_t     end;
    sbx_broker_t   *b;
    sbx_session_t  *s;

    b = call->broker;
    memset(&end, 0, sizeof(sbx_f_end_t));

    while (call->cursor != NULL) {
        s = call->cursor;

        if (sbx_service_listed(call, s)) {

            if (call->left == 0) {
                end.next = s->info.seq + 1;
                break;
            }

            if (call->end > SBX_SERVICE_BATCH) {
                sbx_event_set(&b->loop, &call->event, EPOLLRDHUP|EPOLLOUT);
                return;
            }

            call->left--;

            if (sbx_service_session(call, s, NULL) != 0) {
                return;
            }
        }

        node = s->link.prev;
        call->cursor = node == &b->sessions
                       ? NULL : sbx_node_of(node, sbx_session_t, link);
    }

    call->cursor = NULL;
    sbx_call_end(call, &end);
}


static int
sbx_service_listed(const sbx_call_out_t *call, const sbx_session_t *s)
{
    const sbx_call_t       *head;
    const sbx_list_t       *filter;
    const sbx_f_session_t  *info;

    head = &call->head;
    filter = &call->filter;
    info = &s->info;

    return s->state == SBX_S_RUNNING
           && (!head->tenant[0] || strcmp(head->tenant, info->tenant) == 0)
           && (!head->user[0] || strcmp(head->user, info->user) == 0)
           && (!filter->template[0]
               || strcmp(filter->template, info->template) == 0)
           && (filter->status == 0 || filter->status == info->status + 1);
}


static void
sbx_service_destroy(sbx_broker_t *b, sbx_call_out_t *call, const void *body)
{
    sbx_end_t       end;
    sbx_f_error_t   error;
    sbx_session_t  *s;

    end.grace = 0;

    if (call->head.op == SBX_OP_END) {
        memcpy(&end, body, sizeof(sbx_end_t));
    }

    s = sbx_session_of_call(b, &call->head);

    if (s == NULL) {
        sbx_call_session_error(b, &call->head, &error);

        if ((call->head.flags & SBX_CALL_AGAIN)
            && error.ended == SBX_ENDED_DESTROYED)
        {
            sbx_call_end(call, NULL);

        } else {
            sbx_call_fail(call, &error);
        }

        return;
    }

    sbx_session_hear(s);
    sbx_call_wait(call, &s->destroyers);
    SBX_FAULT("broker-destroy-asked");
    sbx_log(SBX_LOG_INFO,
            &(sbx_log_about_t) { call->head.request_id, s->info.id }, 0,
            "session is to be destroyed");

    s->grace = end.grace < SBX_GRACE_MAX ? end.grace : SBX_GRACE_MAX;

    /* one that is ending may be made to end sooner */

    if (s->state == SBX_S_TERMINATING
        && s->timer.at > sbx_now_us() + s->grace * 1000)
    {
        sbx_timer_set(&b->loop, &s->timer, s->grace);
    }

    sbx_session_end(s, SBX_ENDED_DESTROYED, s->grace == 0);
}
