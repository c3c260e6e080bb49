/*
 * What rules.c (what a rule does) and rules_path.c (where its path leads)
 * share; both run in the child that builds a session's root.
 */

#ifndef SBX_RULES_PRIVATE_H
#define SBX_RULES_PRIVATE_H

#include "isolate_private.h"

#include <sys/stat.h>


typedef struct {
    const sbx_plan_t   *plan;
    int                 root;            /* of the session */
    uid_t               user;            /* host ids */
    unsigned            own;             /* overlays made */
    unsigned            masked:1;        /* the masks are there */
} sbx_rules_t;

/* Where a path leads. */
typedef struct {
    const sbx_rule_t   *rule;
    int                 fd;              /* of path; O_PATH */
    unsigned            pin:1;           /* names must stay */
    unsigned            links;           /* followed */
    size_t              len;
    struct stat         st;              /* of fd */
    char                path[SBX_PATH_MAX];   /* without a link; "" is "/" */
    char                rest[SBX_PATH_MAX];   /* what is not there of it */
} sbx_place_t;


/*
 * Follows the rule's path as far as it goes.  Afterwards place->fd is of
 * place->path, and place->rest is what was not found there, or "".
 */
int sbx_rules_walk(sbx_rules_t *r, sbx_place_t *place, sbx_error_t *e);
/* To a path that has no link; "" is the root. */
int sbx_rules_up(sbx_rules_t *r, sbx_place_t *place, const char *path,
    sbx_error_t *e);
/*
 * Makes what is not there, in the session's own storage: for a deny rule an
 * empty placeholder, a directory where the rule ends in "/"; for a writable
 * one its directory.
 */
int sbx_rules_make(sbx_rules_t *r, sbx_place_t *place, sbx_error_t *e);
/* 1: it is on a mount that cannot be written. */
int sbx_rules_readonly(int fd);
/* sbx_rule_refuse() with errno. */
int sbx_rules_failed(const sbx_rule_t *rule, const char *what,
    sbx_error_t *e);


#endif
