/*
 * Quotas.  One thread runs all of this, so what is looked at and what is
 * taken in one go is one decision: of any number of creates at once, as many
 * succeed as there is room for.
 *
 * An organization or a user has an account while it has sessions, or a quota
 * of its own by the admin API.  Names that were merely asked for leave none.
 *
 * What holds of a resource, the first that says anything:
 *
 *   what the admin API gave the organization or user by name
 *   what configuration gives it by name
 *   the default of the admin API
 *   the default of configuration
 */

#include "broker.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>


#define SBX_QUOTA_WAIT       1        /* for a command to end */


static sbx_account_t **sbx_quota_bucket(sbx_broker_t *b, const char *tenant,
    const char *user);
static const sbx_quota_row_t *sbx_quota_row(const sbx_broker_t *b,
    const char *tenant, const char *user);
static int sbx_quota_check(sbx_broker_t *b, sbx_scope_t scope,
    const char *tenant, const char *user, const sbx_quota_t *asked,
    sbx_f_error_t *error);
static int sbx_quota_refuse(sbx_scope_t scope, const sbx_limit_t *row,
    uint64_t asked, uint64_t used, uint64_t limit, sbx_f_error_t *error);
static uint64_t sbx_quota_wait(const sbx_broker_t *b,
    const sbx_account_t *account, sbx_scope_t scope);
static void sbx_quota_move(sbx_session_t *s, const sbx_quota_t *q, int sign);


int
sbx_quota_row_ok(const sbx_quota_row_t *row)
{
    return memchr(row->tenant, '\0', sizeof(row->tenant)) != NULL
           && memchr(row->user, '\0', sizeof(row->user)) != NULL
           && sbx_name_ok(row->tenant, strlen(row->tenant))
           && (row->user[0] == '\0'
               || sbx_name_ok(row->user, strlen(row->user)))
           && sbx_quota_ok(&row->limits);
}


int
sbx_quota_config_ok(const sbx_quota_config_t *config)
{
    unsigned  i;

    if (config->count > SBX_QUOTA_ROWS) {
        return 0;
    }

    for (i = 0; i < SBX_SCOPES; i++) {
        if (!sbx_quota_ok(&config->defaults[i])) {
            return 0;
        }
    }

    for (i = 0; i < config->count; i++) {
        if (!sbx_quota_row_ok(&config->rows[i])) {
            return 0;
        }
    }

    return 1;
}


/*
 * ---- accounts ------------------------------------------------------------
 */


static sbx_account_t **
sbx_quota_bucket(sbx_broker_t *b, const char *tenant, const char *user)
{
    uint64_t  sum;

    /* NULs too, so that "a" of "b" is not "ab" */

    sum = sbx_record_sum(tenant, strlen(tenant) + 1, b->quotas.seed);
    sum = sbx_record_sum(user, strlen(user) + 1, sum);

    return &b->quotas.buckets[sum % SBX_ACCOUNT_BUCKETS];
}


sbx_account_t *
sbx_quota_account(sbx_broker_t *b, const char *tenant, const char *user,
    int make)
{
    sbx_account_t  *account, **bucket;

    bucket = sbx_quota_bucket(b, tenant, user);

    for (account = *bucket; account != NULL; account = account->next) {
        if (strcmp(account->tenant, tenant) == 0
            && strcmp(account->user, user) == 0)
        {
            return account;
        }
    }

    if (!make) {
        return NULL;
    }

    account = calloc(1, sizeof(sbx_account_t));

    if (account == NULL) {
        return NULL;
    }

    (void) sbx_copy_string(account->tenant, sizeof(account->tenant), tenant,
                           strlen(tenant));
    (void) sbx_copy_string(account->user, sizeof(account->user), user,
                           strlen(user));
    account->scope = user[0] != '\0' ? SBX_SCOPE_USER
                                     : SBX_SCOPE_ORGANIZATION;
    sbx_quota_clear(&account->live);
    sbx_list_init(&account->sessions);

    account->next = *bucket;
    *bucket = account;
    b->quotas.naccounts++;

    return account;
}


void
sbx_quota_settle(sbx_broker_t *b, sbx_account_t *account)
{
    sbx_account_t  **at;

    if (account->is_live || !sbx_list_empty(&account->sessions)) {
        return;
    }

    at = sbx_quota_bucket(b, account->tenant, account->user);

    while (*at != account) {
        at = &(*at)->next;
    }

    *at = account->next;
    b->quotas.naccounts--;
    free(account);
}


/*
 * ---- limits --------------------------------------------------------------
 */


static const sbx_quota_row_t *
sbx_quota_row(const sbx_broker_t *b, const char *tenant, const char *user)
{
    uint32_t                   i;
    const sbx_quota_config_t  *config;

    config = &b->config.quotas;

    for (i = 0; config->set && i < config->count; i++) {
        if (strcmp(config->rows[i].tenant, tenant) == 0
            && strcmp(config->rows[i].user, user) == 0)
        {
            return &config->rows[i];
        }
    }

    return NULL;
}


uint64_t
sbx_setting_configured(const sbx_broker_t *b, unsigned i)
{
    uint64_t     value;
    sbx_scope_t  scope;

    if (i == SBX_SETTING_ISOLATION) {
        return b->config.require_isolation;
    }

    if (!b->config.quotas.set) {
        return SBX_UNLIMITED;
    }

    scope = (i - SBX_SETTING_QUOTAS) / SBX_QUOTA_RESOURCES;
    value = *sbx_quota_field(&b->config.quotas.defaults[scope],
                             sbx_setting_row(i));

    return value == SBX_UNSET ? SBX_UNLIMITED : value;
}


/* Isolation is only ever made stricter than configuration has it. */

uint64_t
sbx_setting_value(const sbx_broker_t *b, unsigned i)
{
    uint64_t  value;

    value = b->quotas.settings[i].value;

    if (value == SBX_UNSET) {
        return sbx_setting_configured(b, i);
    }

    return i == SBX_SETTING_ISOLATION
           ? value | sbx_setting_configured(b, i) : value;
}


void
sbx_quota_limits(const sbx_broker_t *b, sbx_scope_t scope,
    const char *tenant, const char *user, int with_live, sbx_quota_t *q)
{
    unsigned                i, setting;
    uint64_t               *field;
    const sbx_account_t    *account;
    const sbx_limit_t      *row;
    const sbx_quota_row_t  *named;

    account = NULL;
    named = NULL;
    sbx_quota_clear(q);

    if (scope != SBX_SCOPE_NODE) {
        /* finds, and makes nothing */
        account = sbx_quota_account((sbx_broker_t *) (uintptr_t) b, tenant,
                                    user, 0);
        named = sbx_quota_row(b, tenant, user);
    }

    for (i = 0; i < SBX_QUOTA_RESOURCES; i++) {
        row = &sbx_quota_table[i];
        field = sbx_quota_field(q, row);
        setting = SBX_SETTING_QUOTAS + scope * SBX_QUOTA_RESOURCES + i;

        if (with_live && account != NULL && account->is_live) {
            *field = *sbx_quota_field(&account->live, row);
        }

        if (*field == SBX_UNSET && named != NULL) {
            *field = *sbx_quota_field(&named->limits, row);
        }

        if (*field == SBX_UNSET) {
            *field = with_live ? sbx_setting_value(b, setting)
                               : sbx_setting_configured(b, setting);
        }
    }
}


/*
 * ---- taking and giving ---------------------------------------------------
 */


static void
sbx_quota_asked(const sbx_limits_t *limits, sbx_quota_t *q)
{
    q->sessions = 1;
    q->memory = limits->memory;
    q->cpus = limits->cpus;
    q->disk = limits->disk;
    q->commands = 0;
}


int
sbx_quota_admit(sbx_broker_t *b, const sbx_call_t *head,
    const sbx_limits_t *limits, sbx_f_error_t *error)
{
    sbx_quota_t  asked;

    sbx_quota_asked(limits, &asked);

    if (sbx_quota_check(b, SBX_SCOPE_ORGANIZATION, head->tenant, "", &asked,
                        error) != 0
        || sbx_quota_check(b, SBX_SCOPE_USER, head->tenant, head->user,
                           &asked, error) != 0)
    {
        return -1;
    }

    return sbx_quota_check(b, SBX_SCOPE_NODE, "", "", &asked, error);
}


static int
sbx_quota_check(sbx_broker_t *b, sbx_scope_t scope, const char *tenant,
    const char *user, const sbx_quota_t *asked, sbx_f_error_t *error)
{
    uint64_t              more, used, limit;
    sbx_quota_t           limits;
    sbx_account_t        *account;
    const sbx_limit_t    *row;

    sbx_quota_limits(b, scope, tenant, user, 1, &limits);
    account = scope == SBX_SCOPE_NODE
              ? NULL : sbx_quota_account(b, tenant, user, 0);

    for (row = sbx_quota_table; row->name != NULL; row++) {
        more = *sbx_quota_field(asked, row);
        limit = *sbx_quota_field(&limits, row);
        used = 0;

        if (scope == SBX_SCOPE_NODE) {
            used = *sbx_quota_field(&b->quotas.used, row);

        } else if (account != NULL) {
            used = *sbx_quota_field(&account->used, row);
        }

        if (more == 0 || limit >= SBX_UNLIMITED
            || (used <= limit && more <= limit - used))
        {
            continue;
        }

        (void) sbx_quota_refuse(scope, row, more, used, limit, error);

        if (more <= limit) {
            error->retry_after = asked->commands != 0
                                 ? SBX_QUOTA_WAIT
                                 : sbx_quota_wait(b, account, scope);
        }

        return -1;
    }

    return 0;
}


static int
sbx_quota_refuse(sbx_scope_t scope, const sbx_limit_t *row, uint64_t asked,
    uint64_t used, uint64_t limit, sbx_f_error_t *error)
{
    char         more[32], now[32], most[32];
    sbx_error_t  e;

    static const char  *whose[] = {
        "this node", "the organization", "the user"
    };

    more[sbx_limit_print(row, asked, more)] = '\0';
    now[sbx_limit_print(row, used, now)] = '\0';
    most[sbx_limit_print(row, limit, most)] = '\0';

    (void) sbx_error(&e, 0, scope == SBX_SCOPE_NODE ? SBX_E_CAPACITY
                                                    : SBX_E_QUOTA,
                     "%s has %s of its %s %s in use, and %s more is asked "
                     "for", whose[scope], now, most, row->name, more);

    sbx_call_fill(error, &e);
    (void) snprintf(error->scope, sizeof(error->scope), "%s",
                    sbx_scope_word(scope));
    (void) snprintf(error->resource, sizeof(error->resource), "%s",
                    row->name);
    error->limit = limit;

    return -1;
}


/* When it ends by itself, unless its time is made longer. */

static int64_t
sbx_quota_end(const sbx_session_t *s)
{
    if (s->info.status == SBX_STATUS_PAUSED) {
        return s->info.paused + (int64_t) s->info.limits.paused;
    }

    if (s->info.flags & SBX_CREATE_ON_TIMEOUT_PAUSE) {
        return s->info.expires + (int64_t) s->info.limits.paused;
    }

    return s->info.expires;
}


/* Seconds until the first session ends by itself; it may well end before. */

static uint64_t
sbx_quota_wait(const sbx_broker_t *b, const sbx_account_t *account,
    sbx_scope_t scope)
{
    int64_t                now, left;
    uint64_t               wait;
    const sbx_node_t      *node, *head;
    const sbx_session_t   *s;

    wait = SBX_QUOTA_WAIT_MAX;

    if (account == NULL) {
        /* the node's are too many to be looked at for each refusal */
        return scope == SBX_SCOPE_NODE && b->nsessions != 0 ? wait : 0;
    }

    head = &account->sessions;

    if (sbx_list_empty(head)) {
        return 0;
    }

    now = sbx_broker_clock_ms();

    for (node = head->next; node != head; node = node->next) {
        s = sbx_node_of(node, sbx_session_t, hold.links[account->scope]);
        left = sbx_quota_end(s) - now;

        if (left < (int64_t) wait * 1000) {
            wait = left < 1000 ? 1 : (uint64_t) (left + 999) / 1000;
        }
    }

    return wait;
}


int
sbx_quota_take(sbx_session_t *s, sbx_error_t *e)
{
    unsigned       i;
    sbx_hold_t    *hold;
    sbx_broker_t  *b;

    b = s->broker;
    hold = &s->hold;

    for (i = SBX_SCOPE_ORGANIZATION; i < SBX_SCOPES; i++) {
        hold->accounts[i] =
            sbx_quota_account(b, s->info.tenant,
                              i == SBX_SCOPE_USER ? s->info.user : "", 1);

        if (hold->accounts[i] == NULL) {
            if (i == SBX_SCOPE_USER) {
                sbx_quota_settle(b, hold->accounts[SBX_SCOPE_ORGANIZATION]);
            }

            return sbx_error(e, ENOMEM, SBX_E_UNAVAILABLE, "out of memory");
        }
    }

    for (i = SBX_SCOPE_ORGANIZATION; i < SBX_SCOPES; i++) {
        sbx_list_append(&hold->accounts[i]->sessions, &hold->links[i]);
    }

    hold->held = 1;
    sbx_quota_asked(&s->info.limits, &hold->taken);
    sbx_quota_move(s, &hold->taken, 1);

    return 0;
}


void
sbx_quota_give(sbx_session_t *s)
{
    unsigned       i;
    sbx_quota_t    taken;
    sbx_broker_t  *b;

    b = s->broker;

    if (!s->hold.held) {
        return;
    }

    taken = s->hold.taken;
    sbx_quota_move(s, &taken, -1);
    s->hold.held = 0;

    for (i = SBX_SCOPE_ORGANIZATION; i < SBX_SCOPES; i++) {
        sbx_list_remove(&s->hold.links[i]);
        sbx_quota_settle(b, s->hold.accounts[i]);
        s->hold.accounts[i] = NULL;
    }
}


/* On every account at once. */

static void
sbx_quota_move(sbx_session_t *s, const sbx_quota_t *q, int sign)
{
    unsigned            i;
    uint64_t            n;
    sbx_quota_t        *used;
    const sbx_limit_t  *row;

    for (i = 0; i < SBX_SCOPES; i++) {
        used = i == SBX_SCOPE_NODE ? &s->broker->quotas.used
                                   : &s->hold.accounts[i]->used;

        for (row = sbx_quota_table; row->name != NULL; row++) {
            n = *sbx_quota_field(q, row);
            *sbx_quota_field(used, row) += sign < 0 ? 0 - n : n;
        }
    }
}


/*
 * ---- commands ------------------------------------------------------------
 */


int
sbx_quota_command(sbx_session_t *s, sbx_f_error_t *error)
{
    sbx_quota_t             asked;
    const sbx_f_session_t  *info;

    memset(&asked, 0, sizeof(sbx_quota_t));
    asked.commands = 1;
    info = &s->info;

    if (sbx_quota_check(s->broker, SBX_SCOPE_ORGANIZATION, info->tenant, "",
                        &asked, error) != 0
        || sbx_quota_check(s->broker, SBX_SCOPE_USER, info->tenant,
                           info->user, &asked, error) != 0)
    {
        return -1;
    }

    return sbx_quota_check(s->broker, SBX_SCOPE_NODE, "", "", &asked, error);
}


void
sbx_quota_commands(sbx_session_t *s, int n)
{
    sbx_quota_t  q;

    if (!s->hold.held || n == 0
        || (n < 0 && s->hold.taken.commands < (uint64_t) -n))
    {
        return;
    }

    memset(&q, 0, sizeof(sbx_quota_t));
    q.commands = (uint64_t) (n < 0 ? -n : n);
    s->hold.taken.commands += (uint64_t) (int64_t) n;
    sbx_quota_move(s, &q, n);
}
