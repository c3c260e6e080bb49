/*
 * What the files about cgroups share.  Every controller lives in a "tree":
 * on v2 all roles share one, on a hybrid machine each v1 controller has its
 * own and a cgroup2 without controllers serves the core's role.
 */

#ifndef SBX_CGROUP_PRIVATE_H
#define SBX_CGROUP_PRIVATE_H

#include "isolate.h"


#define SBX_CGROUP_LEAF       "broker"
#define SBX_CGROUP_NAME_MAX   64
#define SBX_CGROUP_PATH_MAX   160

#define SBX_INIT_MEMORY       (64u * 1024 * 1024)
#define SBX_INIT_PROCESSES    128         /* with those that are on their
                                             way to another group */
#define SBX_FILES_PROCESSES   40
#define SBX_CPU_PERIOD_US     100000
#define SBX_CPU_WEIGHT        100         /* of v2; the kernel's own */
#define SBX_CPU_SHARES        1024        /* the same of v1 */
#define SBX_CPU_AHEAD         10          /* times */
#define SBX_SOCKETS_SHARE     4           /* of the memory, at most */


typedef enum {
    SBX_ROLE_CORE,        /* kill, freeze, populated, cpu.stat: cgroup2 */
    SBX_ROLE_MEMORY,
    SBX_ROLE_PIDS,
    SBX_ROLE_CPU,
    SBX_ROLE_MAX
} sbx_role_t;

/* Files that have a name of their own in each version. */
typedef enum {
    SBX_FILE_ATTACH,
    SBX_FILE_MEMORY_MAX,
    SBX_FILE_MEMORY_SWAP,
    SBX_FILE_MEMORY_NOW,
    SBX_FILE_MEMORY_PEAK,
    SBX_FILE_OOM,
    SBX_FILE_PIDS_MAX,
    SBX_FILE_PIDS_NOW,
    SBX_FILE_PIDS_PEAK,
    SBX_FILE_PIDS_EVENTS,
    SBX_FILE_CPU_MAX,
    SBX_FILE_CPU_WEIGHT,
    SBX_FILE_THROTTLE,
    SBX_FILE_MAX
} sbx_cgroup_file_t;


_Static_assert(SBX_ROLE_MAX == SBX_CGROUP_TREES, "a tree for each role");


typedef struct {
    int        parent;            /* directory that holds the branch */
    int        branch;            /* "<parent>/<name>" */
    unsigned   v2:1;
    unsigned   leaf:1;            /* v2: the broker lives in branch/broker
                                     because parent was its own group */
    char       controllers[64];   /* v1: as the kernel lists them;
                                     v2: "+memory +pids", may be "" */
    char       path[SBX_CGROUP_OWN_MAX];    /* of parent, or "" */
} sbx_tree_t;

struct sbx_cgroup_s {
    sbx_tree_t   tree[SBX_ROLE_MAX];
    unsigned     ntrees;
    uint8_t      role[SBX_ROLE_MAX];           /* index of the tree */
    uint32_t     missing;                      /* SBX_TASK_FD_* */
    unsigned     has_swap:1;
    unsigned     has_cpus:1;
    unsigned     no_cpu:1;                     /* no controller is used */
    unsigned     has_freeze:1;
    char         name[SBX_CGROUP_NAME_MAX];
};

struct sbx_cgroup_session_s {
    sbx_cgroup_t   *cg;
    sbx_limits_t    limits;
    int             init_fds[SBX_ROLE_MAX];
    int             files_fds[SBX_ROLE_MAX];
    uint64_t        owner;                     /* of init, or 0 */
    char            id[SBX_ID_MAX + 1];
};

struct sbx_cgroup_command_s {
    sbx_cgroup_session_t  *cs;
    char                   path[SBX_CGROUP_PATH_MAX];
};


const char *sbx_cgroup_file(const sbx_cgroup_t *cg, sbx_role_t role,
    sbx_cgroup_file_t file);
int sbx_cgroup_role_dir(const sbx_cgroup_t *cg, sbx_role_t role);

/* Opens "<path>/<file of the role>" or any core file, close-on-exec. */
int sbx_cgroup_open_file(const sbx_cgroup_t *cg, sbx_role_t role,
    const char *path, const char *file, int flags);
int sbx_cgroup_write(const sbx_cgroup_t *cg, sbx_role_t role,
    const char *path, const char *file, const char *text);
/* One number of a one-number file, or of the line that begins with key. */
int sbx_cgroup_read_number(const sbx_cgroup_t *cg, sbx_role_t role,
    const char *path, const char *file, const char *key, uint64_t *value);

/* mkdir and rmdir in every tree; _enable is a no-op on v1. */
int sbx_cgroup_make(const sbx_cgroup_t *cg, const char *path);
int sbx_cgroup_enable(const sbx_cgroup_t *cg, const char *path);
/* 0 gone in every tree, 1 busy, -1 with errno. */
int sbx_cgroup_unmake(const sbx_cgroup_t *cg, const char *path);
/* The same for a whole subtree of which only the top is known. */
int sbx_cgroup_unmake_tree(const sbx_cgroup_t *cg, const char *path);
int sbx_cgroup_kill(const sbx_cgroup_t *cg, const char *path);

/* Limits in the units of sbx_limits_t; unlimited is left alone. */
int sbx_cgroup_set_memory(const sbx_cgroup_t *cg, const char *path,
    uint64_t bytes);
/* The same of a group that has such a limit. */
int sbx_cgroup_change_memory(const sbx_cgroup_t *cg, const char *path,
    uint64_t bytes);
/* v1 counts what sockets hold apart, and only in groups that have a limit for
 * it: memory is the group's.  A no-op on v2, whose memory.max covers it. */
int sbx_cgroup_set_sockets(const sbx_cgroup_t *cg, const char *path,
    uint64_t memory);
/* v2: where the kernel kills one process of the group it kills them all.  A
 * no-op on v1, which knows no such thing. */
int sbx_cgroup_set_oom_group(const sbx_cgroup_t *cg, const char *path);
int sbx_cgroup_set_pids(const sbx_cgroup_t *cg, const char *path,
    uint64_t count);
int sbx_cgroup_set_cpus(const sbx_cgroup_t *cg, const char *path,
    uint64_t thousandths);
/* Times the weight that a new group has. */
int sbx_cgroup_set_weight(const sbx_cgroup_t *cg, const char *path,
    unsigned times);

/* Finding the place of the branch, cgroup_place.c. */
int sbx_cgroup_place(sbx_cgroup_t *cg, const char *base,
    const sbx_cgroup_known_t *known, sbx_error_t *e);
void sbx_cgroup_unplace(sbx_cgroup_t *cg);

/* Directory of init's group in the cgroup2 tree for CLONE_INTO_CGROUP; the
 * caller closes.  Attach files may be dropped after a launch; they are opened
 * again when they are asked for. */
int sbx_cgroup_init_dir(sbx_cgroup_session_t *cs);
int sbx_cgroup_files_dir(sbx_cgroup_session_t *cs);
void sbx_cgroup_fds_drop(sbx_cgroup_session_t *cs);


#endif
