/*
 * File rules of a session, and the host directories that its operator
 * offers: how both are written, checked and read.  Worker and broker.
 */

#ifndef SANDBOX_RULES_H
#define SANDBOX_RULES_H

#include <stddef.h>

#include "sandbox_error.h"
#include "sandbox_wire.h"


#define SBX_WORKSPACE         "/home/user"
#define SBX_BINDS_DIR         "/mnt"

/* Of what does not exist and of what is another tenant's. */
#define SBX_BIND_REFUSED      "no directory of this name is offered"


/*
 * Rules are records without a length: a byte of sbx_rule_kind_t, then a path
 * or a name with its NUL.  Their order within a kind is the manifest's.
 */
typedef enum {
    SBX_RULE_WRITABLE   = 'w',
    SBX_RULE_BIND       = 'B',
    SBX_RULE_DENY_WRITE = 'W',
    SBX_RULE_DENY_READ  = 'R'
} sbx_rule_kind_t;

#define SBX_RULE_KINDS  4

typedef struct {
    const char   *next;
    const char   *end;
    unsigned      count[SBX_RULE_KINDS];

    /* the record that sbx_rule_next() has found */
    unsigned      order;          /* in which kinds are applied, from 0 */
    unsigned      index;          /* in the manifest's list */
    const char   *text;
    const char   *list;           /* "deny_read" */
} sbx_rule_t;

void sbx_rule_first(sbx_rule_t *rule, const void *rules, size_t size);
/* 1, 0 at the end, -1 where what follows is no record. */
int sbx_rule_next(sbx_rule_t *rule);
/* -1, with SBX_E_MANIFEST and a JSON Pointer to the rule's entry. */
int sbx_rule_refuse(const sbx_rule_t *rule, int err, const char *why,
    sbx_error_t *e);

/*
 * Writes the one form that a rule's path has: absolute (a relative one is
 * below the workspace), "." and "//" gone, a "/" at its end kept.  NULL, or
 * why it is refused: "..", control characters, "/", what is too long, and
 * all below /proc, /sys and /dev.
 */
const char *sbx_rule_path(const char *s, size_t len,
    char path[SBX_PATH_MAX]);
/* 1 if path is dir (without "/" at its end) or below. */
int sbx_rule_below(const char *path, const char *dir);

/* Everything that can be said of rules without a session.  SBX_E_MANIFEST,
 * or SBX_E_INVALID for what no worker of ours has written. */
int sbx_rules_check(const void *rules, size_t size, sbx_error_t *e);


/*
 * The table of host directories: a byte 'r' or 'w', then name, path and
 * tenants, each with its NUL, then one more NUL.  No tenants: for all.
 */
typedef struct {
    const char   *name;
    const char   *path;
    const char   *tenants;        /* NULs between, an empty one last */
    unsigned      writable;
} sbx_bind_t;

/* As above; *table goes on to what follows. */
int sbx_bind_next(const char **table, const char *end, sbx_bind_t *bind);
/* 0, or -1 where it is not offered to the tenant. */
int sbx_bind_find(const char *table, size_t size, const char *name,
    const char *tenant, sbx_bind_t *bind);
/* [a-z0-9][a-z0-9._-]{0,63} */
int sbx_bind_name_ok(const char *s, size_t len);


#endif
