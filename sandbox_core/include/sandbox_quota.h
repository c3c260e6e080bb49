/*
 * Quotas of organizations, users and the node, and what the admin API says
 * to the broker.  Included by sandbox_wire.h.
 */

#ifndef SANDBOX_QUOTA_H
#define SANDBOX_QUOTA_H

#include "sandbox_error.h"
#include "sandbox_limits.h"

#include <stdint.h>


#define SBX_BY_MAX            128     /* who changed it */
#define SBX_QUOTA_ROWS        128     /* named overrides of configuration */
#define SBX_QUOTA_LIVE        4096    /* those of the admin API */


/* What is counted: a session's own limits, not its use.  SBX_UNLIMITED: no
 * limit; SBX_UNSET: whatever is less particular holds. */
typedef struct {
    uint64_t      sessions;
    uint64_t      memory;                 /* bytes */
    uint64_t      cpus;                   /* thousandths */
    uint64_t      disk;                   /* bytes */
    uint64_t      commands;               /* that run */
} sbx_quota_t;

typedef enum {
    SBX_SCOPE_NODE,
    SBX_SCOPE_ORGANIZATION,
    SBX_SCOPE_USER,
    SBX_SCOPES
} sbx_scope_t;

const char *sbx_scope_word(sbx_scope_t scope);

/* Rows of sbx_quota_t: .name is the directive's and the answer's, .json is
 * "quota." and that, for tables of fields.  Ends with name == NULL. */
extern const sbx_limit_t  sbx_quota_table[];
#define SBX_QUOTA_RESOURCES   5

const sbx_limit_t *sbx_quota_find(const char *name, size_t len, int json);
uint64_t *sbx_quota_field(const sbx_quota_t *q, const sbx_limit_t *row);
/* Every field SBX_UNSET. */
void sbx_quota_clear(sbx_quota_t *q);
/* Every field is unset, unlimited, or what its row allows. */
int sbx_quota_ok(const sbx_quota_t *q);


typedef struct {
    char          tenant[136];
    char          user[136];              /* "": the organization */
    sbx_quota_t   limits;
} sbx_quota_row_t;

/* A part of sbx_config_t.  set 0: nothing is limited. */
typedef struct {
    uint32_t         set;
    uint32_t         admin;               /* some location has the admin API */
    uint32_t         count;               /* of rows */
    uint32_t         pad;
    sbx_quota_t      defaults[SBX_SCOPES];
    sbx_quota_row_t  rows[SBX_QUOTA_ROWS];
} sbx_quota_config_t;


/*
 * Settings that are changed live: require_isolation, then the defaults of
 * quotas by scope and resource.
 */
#define SBX_SETTING_ISOLATION 0
#define SBX_SETTING_QUOTAS    1
#define SBX_SETTINGS          (1 + SBX_SCOPES * SBX_QUOTA_RESOURCES)

/* "require_isolation", "quotas.node.sessions" ... */
void sbx_setting_name(unsigned i, char name[48]);
/* NULL for require_isolation */
const sbx_limit_t *sbx_setting_row(unsigned i);


/* Bodies of calls; head.tenant and head.user tell whose the quota is. */

typedef struct {
    sbx_quota_t   limits;
    uint32_t      remove;                 /* what is live of it */
    uint32_t      pad;
    char          by[SBX_BY_MAX + 8];
} sbx_quota_set_t;

typedef struct {
    uint64_t      values[SBX_SETTINGS];   /* SBX_UNSET: as configured */
    uint32_t      mask;                   /* of those that are meant */
    uint32_t      pad;
    char          by[SBX_BY_MAX + 8];
} sbx_settings_set_t;

typedef struct {
    uint32_t      on;
    uint32_t      end;                    /* sessions too */
    char          by[SBX_BY_MAX + 8];
} sbx_drain_t;

typedef struct {
    char          by[SBX_BY_MAX + 8];
} sbx_destroy_all_t;

#define SBX_QUOTA_PAGE        500

/* Those that the admin API has set. */
typedef struct {
    char          tenant[136];            /* above this, and the user */
    char          user[136];
    uint32_t      limit;                  /* to SBX_QUOTA_PAGE */
    uint32_t      pad;
} sbx_quota_list_t;


/* Frames. */

typedef struct {
    char          tenant[136];
    char          user[136];
    uint32_t      live;                   /* .override holds */
    uint32_t      pad;
    sbx_quota_t   limits;                 /* what counts now */
    sbx_quota_t   configured;             /* what would without the admin */
    sbx_quota_t   override;
    sbx_quota_t   used;
    int64_t       changed;                /* unix ms; 0: never */
    char          by[SBX_BY_MAX + 8];
} sbx_f_quota_t;

typedef struct {
    uint32_t      index;
    uint32_t      pad;
    uint64_t      value;                  /* what counts now */
    uint64_t      configured;
    uint64_t      previous;               /* before the last change */
    int64_t       changed;                /* unix ms; 0: never */
    char          by[SBX_BY_MAX + 8];
} sbx_f_setting_t;

typedef struct {
    uint32_t      draining;
    uint32_t      pad;
    uint64_t      sessions;               /* that run */
    uint64_t      ended;                  /* by this call */
    int64_t       changed;
    char          by[SBX_BY_MAX + 8];
} sbx_f_drain_t;


#endif
