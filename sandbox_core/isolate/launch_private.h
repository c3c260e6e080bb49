/*
 * What the two sides of a launch share: the broker's (launch.c) and that of
 * the process that it clones (launch_child.c).
 */

#ifndef SBX_LAUNCH_PRIVATE_H
#define SBX_LAUNCH_PRIVATE_H

#include "isolate_private.h"


#define SBX_STATUS_MAGIC     0x53544154u


typedef enum {
    SBX_STATUS_MAPS = 1,              /* the maps are wanted */
    SBX_STATUS_FAILED
} sbx_status_type_t;

typedef struct {
    uint32_t      magic;
    uint32_t      type;               /* sbx_status_type_t */
    sbx_error_t   error;
} sbx_status_msg_t;

/* Descriptors that come with SBX_STATUS_MAPS: these, then what is kept of a
 * session that is launched ahead (SBX_KEPT_*, as many as there are). */
enum {
    SBX_STATUS_FD_DISK,
    SBX_STATUS_FD_NETNS,
    SBX_STATUS_FD_KEPT,
    SBX_STATUS_FDS = SBX_STATUS_FD_KEPT + SBX_LAUNCH_KEPT
};


/* The child's side of what the parent has opened. */
typedef struct {
    sbx_plan_t    plan;
    const int    *init_fds;           /* attach files of init's group */
    unsigned      ninit_fds;
    unsigned      core;               /* of them: entered by the clone */
    const int    *files_fds;
    unsigned      nfiles_fds;
    int           files_dir;
    int           control;
    int           status;
    int           parents[2];         /* the other ends of these */
    int           config;
    int           namespaces;         /* /proc/sys/user, or -1 */
    int           netns;              /* its network namespace */
} sbx_child_t;


/* All that is left to do before init; it ends in an exec or in _exit(). */
void sbx_child_main(sbx_child_t *child) __attribute__((noreturn));


#endif
