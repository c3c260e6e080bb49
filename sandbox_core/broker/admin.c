/*
 * Calls of the admin API.  They are answered only where the configuration
 * says that some location has that API.  A change holds at once and is
 * answered when it is safe; each is one line in the log.
 */

#include "broker.h"

#include <stdio.h>
#include <string.h>


#define SBX_ADMIN_TEXT   256


typedef void (*sbx_admin_pt)(sbx_broker_t *b, sbx_call_out_t *call,
    const void *body);


static void sbx_admin_quota_get(sbx_broker_t *b, sbx_call_out_t *call,
    const void *body);
static void sbx_admin_quota_set(sbx_broker_t *b, sbx_call_out_t *call,
    const void *body);
static void sbx_admin_settings_get(sbx_broker_t *b, sbx_call_out_t *call,
    const void *body);
static void sbx_admin_settings_set(sbx_broker_t *b, sbx_call_out_t *call,
    const void *body);
static void sbx_admin_drain(sbx_broker_t *b, sbx_call_out_t *call,
    const void *body);
static void sbx_admin_destroy_all(sbx_broker_t *b, sbx_call_out_t *call,
    const void *body);
static void sbx_admin_log(const sbx_call_out_t *call, const char *by,
    const char *what, const char *value);
static void sbx_admin_print(const sbx_quota_t *q, char *text, size_t size);
static void sbx_admin_change(sbx_broker_t *b, sbx_call_out_t *call,
    unsigned i, uint64_t value, const char *by);


typedef struct {
    uint16_t        op;
    sbx_admin_pt    handler;
    sbx_admin_pt    answer;           /* once a change is safe */
} sbx_admin_t;

static const sbx_admin_t  sbx_admin_calls[] = {
    { SBX_OP_QUOTA_GET, sbx_admin_quota_get, NULL },
    { SBX_OP_QUOTA_SET, sbx_admin_quota_set, sbx_admin_quota_get },
    { SBX_OP_QUOTA_LIST, sbx_quota_list, NULL },
    { SBX_OP_SETTINGS_GET, sbx_admin_settings_get, NULL },
    { SBX_OP_SETTINGS_SET, sbx_admin_settings_set, sbx_admin_settings_get },
    { SBX_OP_DRAIN, sbx_admin_drain, sbx_admin_drain },
    { SBX_OP_DESTROY_ALL, sbx_admin_destroy_all, NULL },
    { 0, NULL, NULL }
};


static const sbx_admin_t *
sbx_admin_find(uint16_t op)
{
    const sbx_admin_t  *row;

    for (row = sbx_admin_calls; row->op != 0 && row->op != op; row++) {
        /* void */
    }

    return row;
}


void
sbx_admin_call(sbx_broker_t *b, sbx_call_out_t *call, const void *body)
{
    sbx_error_t         e;
    const sbx_admin_t  *row;

    row = sbx_admin_find(call->head.op);

    if (!b->configured || b->ending) {
        sbx_call_error(call, &b->problem);
        return;
    }

    if (!b->config.quotas.admin || row->handler == NULL) {
        (void) sbx_error(&e, 0, SBX_E_FORBIDDEN,
                         "no location of this server has the admin API");
        sbx_call_error(call, &e);
        return;
    }

    row->handler(b, call, body);
}


void
sbx_admin_answer(sbx_broker_t *b, sbx_call_out_t *call, int err)
{
    sbx_error_t         e;
    const sbx_admin_t  *row;

    row = sbx_admin_find(call->head.op);

    if (err != 0 || row->answer == NULL) {
        (void) sbx_error(&e, err, SBX_E_INTERNAL,
                         "the change holds, but could not be written");
        sbx_call_error(call, &e);
        return;
    }

    row->answer(b, call, NULL);
}


static void
sbx_admin_log(const sbx_call_out_t *call, const char *by, const char *what,
    const char *value)
{
    sbx_log(SBX_LOG_NOTICE,
            &(sbx_log_about_t) { call->head.request_id, NULL }, 0,
            "admin: %s: %s, by %s", what, value, by[0] ? by : "nobody");
}


/*
 * ---- quotas --------------------------------------------------------------
 */


static int
sbx_admin_named(sbx_call_out_t *call)
{
    sbx_error_t  e;

    if (call->head.tenant[0] != '\0') {
        return 1;
    }

    (void) sbx_error(&e, 0, SBX_E_INVALID, "the tenant's name is missing");
    sbx_call_error(call, &e);

    return 0;
}


static void
sbx_admin_quota_get(sbx_broker_t *b, sbx_call_out_t *call, const void *body)
{
    sbx_f_quota_t  quota;

    (void) body;

    if (!sbx_admin_named(call)) {
        return;
    }

    sbx_quota_tell(b, call->head.tenant, call->head.user, &quota);
    (void) sbx_call_frame(call, SBX_F_QUOTA, &quota, sizeof(sbx_f_quota_t),
                          NULL, 0);
    sbx_call_end(call, NULL);
}


static void
sbx_admin_print(const sbx_quota_t *q, char *text, size_t size)
{
    char                value[32];
    size_t              n;
    uint64_t            v;
    const sbx_limit_t  *row;

    text[0] = '\0';
    n = 0;

    for (row = sbx_quota_table; row->name != NULL; row++) {
        v = *sbx_quota_field(q, row);

        if (v == SBX_UNSET) {
            continue;
        }

        value[sbx_limit_print(row, v, value)] = '\0';
        n += (size_t) snprintf(text + n, size - n, "%s%s=%s",
                               n != 0 ? " " : "", row->name,
                               v == SBX_UNLIMITED ? "none" : value);
    }
}


static void
sbx_admin_quota_set(sbx_broker_t *b, sbx_call_out_t *call, const void *body)
{
    char                what[320], text[SBX_ADMIN_TEXT];
    sbx_error_t         e;
    sbx_account_t      *account;
    sbx_quota_set_t     set;
    const sbx_call_t   *head;

    head = &call->head;
    memcpy(&set, body, sizeof(sbx_quota_set_t));

    if (!sbx_admin_named(call)) {
        return;
    }

    if (!set.remove && !sbx_quota_ok(&set.limits)) {
        (void) sbx_error(&e, 0, SBX_E_INVALID, "a quota is out of range");
        sbx_call_error(call, &e);
        return;
    }

    account = sbx_quota_account(b, head->tenant, head->user, !set.remove);

    if (!set.remove
        && (account == NULL
            || (!account->is_live && b->quotas.nlive == SBX_QUOTA_LIVE)))
    {
        (void) sbx_error(&e, 0, account == NULL ? SBX_E_UNAVAILABLE
                                                : SBX_E_CONFLICT,
                         account == NULL
                         ? "out of memory"
                         : "%d organizations and users have quotas of their "
                           "own already: remove some", SBX_QUOTA_LIVE);

        if (account != NULL) {
            sbx_quota_settle(b, account);
        }

        sbx_call_error(call, &e);
        return;
    }

    (void) snprintf(what, sizeof(what), "quota of %s %s%s%s",
                    head->user[0] ? "user" : "organization", head->tenant,
                    head->user[0] ? "/" : "", head->user);

    if (!set.remove) {
        b->quotas.nlive += !account->is_live;
        account->is_live = 1;
        account->live = set.limits;
        account->changed = sbx_broker_clock_ms();
        memcpy(account->by, set.by, sizeof(account->by));
        sbx_admin_print(&set.limits, text, sizeof(text));

    } else {
        if (account != NULL && account->is_live) {
            b->quotas.nlive--;
            account->is_live = 0;
            sbx_quota_clear(&account->live);
            sbx_quota_settle(b, account);
        }

        (void) strcpy(text, "as configured");
    }

    sbx_admin_log(call, set.by, what, text);
    sbx_quota_save(b, call);
}


/*
 * ---- settings ------------------------------------------------------------
 */


static void
sbx_admin_settings_get(sbx_broker_t *b, sbx_call_out_t *call,
    const void *body)
{
    unsigned              i;
    sbx_f_drain_t         drain;
    sbx_f_setting_t       frame;
    const sbx_setting_t  *setting;

    (void) body;

    for (i = 0; i < SBX_SETTINGS; i++) {
        setting = &b->quotas.settings[i];
        memset(&frame, 0, sizeof(sbx_f_setting_t));
        frame.index = i;
        frame.value = sbx_setting_value(b, i);
        frame.configured = sbx_setting_configured(b, i);
        frame.previous = setting->previous;
        frame.changed = setting->changed;
        memcpy(frame.by, setting->by, sizeof(frame.by));

        (void) sbx_call_frame(call, SBX_F_SETTING, &frame,
                              sizeof(sbx_f_setting_t), NULL, 0);
    }

    memset(&drain, 0, sizeof(sbx_f_drain_t));
    drain.draining = (uint32_t) b->quotas.draining.value;
    drain.sessions = b->nrunning;
    drain.changed = b->quotas.draining.changed;
    memcpy(drain.by, b->quotas.draining.by, sizeof(drain.by));

    (void) sbx_call_frame(call, SBX_F_DRAIN, &drain, sizeof(sbx_f_drain_t),
                          NULL, 0);
    sbx_call_end(call, NULL);
}


static void
sbx_admin_settings_set(sbx_broker_t *b, sbx_call_out_t *call,
    const void *body)
{
    unsigned             i;
    uint64_t             value;
    sbx_error_t          e;
    const sbx_limit_t   *row;
    sbx_settings_set_t   set;

    memcpy(&set, body, sizeof(sbx_settings_set_t));

    for (i = 0; i < SBX_SETTINGS; i++) {
        row = sbx_setting_row(i);
        value = set.values[i];

        if (!(set.mask & (1u << i)) || value == SBX_UNSET
            || (row != NULL && (value == SBX_UNLIMITED || value <= row->max))
            || (row == NULL && value <= 1
                && value >= b->config.require_isolation))
        {
            continue;
        }

        (void) sbx_error(&e, 0, row != NULL ? SBX_E_INVALID
                                            : SBX_E_CONFLICT,
                         row != NULL
                         ? "a quota is out of range"
                         : "/require_isolation: configuration insists on it, "
                           "and can only be made stricter from here");
        sbx_call_error(call, &e);
        return;
    }

    for (i = 0; i < SBX_SETTINGS; i++) {
        if (set.mask & (1u << i)) {
            sbx_admin_change(b, call, i, set.values[i], set.by);
        }
    }

    sbx_quota_save(b, call);
}


static void
sbx_admin_change(sbx_broker_t *b, sbx_call_out_t *call, unsigned i,
    uint64_t value, const char *by)
{
    char                name[48], text[32];
    sbx_setting_t      *setting;
    const sbx_limit_t  *row;

    setting = &b->quotas.settings[i];
    setting->previous = sbx_setting_value(b, i);
    setting->value = value;
    setting->changed = sbx_broker_clock_ms();
    (void) sbx_copy_string(setting->by, sizeof(setting->by), by, strlen(by));

    sbx_setting_name(i, name);
    row = sbx_setting_row(i);

    if (value == SBX_UNSET) {
        (void) strcpy(text, "as configured");

    } else if (row == NULL) {
        (void) strcpy(text, value ? "on" : "off");

    } else if (value == SBX_UNLIMITED) {
        (void) strcpy(text, "none");

    } else {
        text[sbx_limit_print(row, value, text)] = '\0';
    }

    sbx_admin_log(call, by, name, text);
}


/*
 * ---- sessions ------------------------------------------------------------
 */


/* Running sessions go on unless they are to end: then by SIGTERM, and two
 * seconds later by force. */

static void
sbx_admin_drain(sbx_broker_t *b, sbx_call_out_t *call, const void *body)
{
    char             text[64];
    sbx_node_t      *node, *next;
    sbx_drain_t      ask;
    sbx_f_drain_t    drain;
    sbx_setting_t   *draining;
    sbx_session_t   *s;

    draining = &b->quotas.draining;

    if (body == NULL) {
        memset(&drain, 0, sizeof(sbx_f_drain_t));
        drain.draining = (uint32_t) draining->value;
        drain.sessions = b->nrunning;
        drain.ended = call->left;
        drain.changed = draining->changed;
        memcpy(drain.by, draining->by, sizeof(drain.by));
        (void) sbx_call_frame(call, SBX_F_DRAIN, &drain,
                              sizeof(sbx_f_drain_t), NULL, 0);
        sbx_call_end(call, NULL);
        return;
    }

    memcpy(&ask, body, sizeof(sbx_drain_t));
    draining->previous = draining->value;
    draining->value = ask.on != 0;
    draining->changed = sbx_broker_clock_ms();
    memcpy(draining->by, ask.by, sizeof(draining->by));

    sbx_pool_configure(b);

    for (node = b->sessions.next;
         ask.on && ask.end && node != &b->sessions;
         node = next)
    {
        next = node->next;
        s = sbx_node_of(node, sbx_session_t, link);

        if (s->state == SBX_S_RUNNING) {
            call->left++;
            sbx_session_end(s, SBX_ENDED_ADMIN, 0);
        }
    }

    (void) snprintf(text, sizeof(text), "%s, %llu sessions ended",
                    ask.on ? "on" : "off", (unsigned long long) call->left);
    sbx_admin_log(call, ask.by, "draining", text);
    sbx_quota_save(b, call);
}


/*
 * Answered when the last of them is gone.  What is made meanwhile has a
 * higher number and is not meant; .filter keeps that and what was ended,
 * .left what is still there.
 */

static void
sbx_admin_destroy_all(sbx_broker_t *b, sbx_call_out_t *call,
    const void *body)
{
    char                 text[64];
    sbx_f_end_t          end;
    sbx_node_t          *node, *next;
    sbx_session_t       *s;
    sbx_destroy_all_t    ask;

    memcpy(&ask, body, sizeof(sbx_destroy_all_t));

    if (!sbx_admin_named(call)) {
        return;
    }

    call->filter.before = b->seq + 1;
    sbx_call_wait(call, &b->quotas.sweeps);

    for (node = b->sessions.next; node != &b->sessions; node = node->next) {
        s = sbx_node_of(node, sbx_session_t, link);

        if (strcmp(s->info.tenant, call->head.tenant) == 0) {
            call->left++;
            call->filter.limit += s->state < SBX_S_TERMINATING;
        }
    }

    (void) snprintf(text, sizeof(text), "%llu are destroyed",
                    (unsigned long long) call->filter.limit);
    sbx_admin_log(call, ask.by, "sessions of an organization", text);

    if (call->left == 0) {
        memset(&end, 0, sizeof(sbx_f_end_t));
        sbx_list_remove(&call->wait);
        sbx_call_end(call, &end);
        return;
    }

    for (node = b->sessions.next; node != &b->sessions; node = next) {
        next = node->next;
        s = sbx_node_of(node, sbx_session_t, link);

        if (strcmp(s->info.tenant, call->head.tenant) == 0) {
            /* a call that was answered is freed by the loop alone */
            sbx_session_end(s, SBX_ENDED_ADMIN, 1);
        }
    }
}


void
sbx_admin_gone(sbx_broker_t *b, const sbx_session_t *s)
{
    sbx_node_t      *node, *next;
    sbx_f_end_t      end;
    sbx_call_out_t  *call;

    for (node = b->quotas.sweeps.next;
         node != &b->quotas.sweeps;
         node = next)
    {
        next = node->next;
        call = sbx_node_of(node, sbx_call_out_t, wait);

        if (s->info.seq >= call->filter.before
            || strcmp(s->info.tenant, call->head.tenant) != 0
            || --call->left != 0)
        {
            continue;
        }

        memset(&end, 0, sizeof(sbx_f_end_t));
        end.count = call->filter.limit;
        sbx_list_remove(&call->wait);
        sbx_call_end(call, &end);
    }
}
