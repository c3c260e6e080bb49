/*
 * Quotas, as the broker counts them: what each account, organization or user,
 * and the node hold, and what the admin API has set.  Included by broker.h.
 */

#ifndef SBX_BROKER_QUOTA_H
#define SBX_BROKER_QUOTA_H

#include "link.h"
#include "list.h"
#include "loop.h"
#include "network.h"
#include "sandbox_quota.h"


#define SBX_ACCOUNT_BUCKETS     4096
#define SBX_QUOTA_FILE          "quotas"
#define SBX_QUOTA_WAIT_MAX      60       /* seconds, of Retry-After */


/*
 * What a session, made or being made, holds of its quotas, from before there
 * is anything of it until nothing is left.
 */

typedef struct sbx_account_s  sbx_account_t;

typedef struct {
    sbx_account_t   *accounts[SBX_SCOPES];  /* none of the node */
    sbx_node_t       links[SBX_SCOPES];     /* in theirs */
    sbx_quota_t      taken;
    unsigned         held:1;
} sbx_hold_t;


/* Of an organization or a user; there as long as it has sessions or what the
 * admin API gave it. */

struct sbx_account_s {
    sbx_account_t   *next;            /* same bucket */
    sbx_node_t       sessions;        /* .hold.links */
    sbx_scope_t      scope;
    sbx_quota_t      used;
    sbx_quota_t      live;
    uint32_t         is_live;
    int64_t          changed;
    char             by[SBX_BY_MAX + 8];
    char             tenant[SBX_NAME_MAX + 8];
    char             user[SBX_NAME_MAX + 8];
};

typedef struct {
    uint64_t         value;           /* SBX_UNSET: as configured */
    uint64_t         previous;
    int64_t          changed;         /* unix ms; 0: never */
    char             by[SBX_BY_MAX + 8];
} sbx_setting_t;

typedef struct {
    sbx_account_t   *buckets[SBX_ACCOUNT_BUCKETS];
    uint64_t         seed;
    uint32_t         naccounts;
    uint32_t         nlive;
    sbx_quota_t      used;            /* of the node */
    sbx_setting_t    settings[SBX_SETTINGS];
    sbx_setting_t    draining;
    sbx_node_t       saved;           /* calls: this file, and the next */
    sbx_node_t       waiting;
    sbx_node_t       sweeps;          /* DESTROY_ALL */
    sbx_timer_t      again;           /* what could not be written */
    unsigned         saving:1;
    unsigned         dirty:1;
} sbx_quotas_t;


/* quota.c */
int sbx_quota_row_ok(const sbx_quota_row_t *row);
int sbx_quota_config_ok(const sbx_quota_config_t *config);
/*
 * Whether a session with such limits would be within every quota; -1 fills
 * error.  Nothing may come between it and sbx_quota_take().
 */
int sbx_quota_admit(sbx_broker_t *b, const sbx_call_t *head,
    const sbx_limits_t *limits, sbx_f_error_t *error);
/* By s->info; -1: out of memory.  Of an adopted session without asking. */
int sbx_quota_take(sbx_session_t *s, sbx_error_t *e);
void sbx_quota_give(sbx_session_t *s);
/* A command begins; -1 fills error. */
int sbx_quota_command(sbx_session_t *s, sbx_f_error_t *error);
/* By s: how many run has changed. */
void sbx_quota_commands(sbx_session_t *s, int n);
sbx_account_t *sbx_quota_account(sbx_broker_t *b, const char *tenant,
    const char *user, int make);
/* Frees it unless something still needs it. */
void sbx_quota_settle(sbx_broker_t *b, sbx_account_t *account);
/* What holds of each resource; with_live 0: by configuration alone. */
void sbx_quota_limits(const sbx_broker_t *b, sbx_scope_t scope,
    const char *tenant, const char *user, int with_live, sbx_quota_t *q);
uint64_t sbx_setting_configured(const sbx_broker_t *b, unsigned i);
uint64_t sbx_setting_value(const sbx_broker_t *b, unsigned i);

/* What holds for a name, and what is used. */
void sbx_quota_tell(sbx_broker_t *b, const char *tenant, const char *user,
    sbx_f_quota_t *quota);

/* quota_list.c: a page of what the admin API has set */
void sbx_quota_list(sbx_broker_t *b, sbx_call_out_t *call, const void *body);

/* quota_file.c: what the admin API has set, kept over restarts */
int sbx_quota_open(sbx_broker_t *b, sbx_error_t *e);
/* Answers the call once what holds now is safe. */
void sbx_quota_save(sbx_broker_t *b, sbx_call_out_t *call);
void sbx_quota_saved(sbx_broker_t *b, int err);
void sbx_quota_close(sbx_broker_t *b);


#endif
