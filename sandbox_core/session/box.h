/*
 * What the library and its helper program say to each other, and what the
 * helper's files share.
 *
 * The helper's descriptor 3 is a SEQPACKET socket.  The library sends one
 * request with descriptors: a memfd of strings, and for a run standard input
 * (if there is any), output and error.  The helper answers once.  A further
 * byte from the library cancels; the end of the socket ends everything.
 */

#ifndef SBX_BOX_H
#define SBX_BOX_H

#include "isolate_private.h"
#include "sandbox_session.h"

#include <limits.h>
#include <sys/socket.h>


#define SBX_BOX_MAGIC         0x53424f58u
#define SBX_BOX_VERSION       2
#define SBX_BOX_SOCKET        3
#define SBX_BOX_STRINGS_MAX   (4u << 20)
#define SBX_BOX_LIST_MAX      256           /* paths of a kind */

#define SBX_BOX_UID_BASE      2147483648u   /* host ids of runs by root: this
                                               and the helper's pid */
#define SBX_BOX_UID           1000          /* what they are called inside */
#define SBX_BOX_GROUP         "sandbox-run"


typedef enum {
    SBX_BOX_KEEP  = 1,    /* makes a private workspace and holds it */
    SBX_BOX_RUN   = 2,
    SBX_BOX_PROBE = 3     /* builds the sandbox and runs nothing */
} sbx_box_op_t;

#define SBX_BOX_NETWORK       0x01
#define SBX_BOX_REQUIRE       0x02
#define SBX_BOX_PRIVATE       0x04          /* the workspace has a keeper */
#define SBX_BOX_INPUT         0x08

/* Strings, each with its NUL, in this order; then the lists. */
typedef enum {
    SBX_BOX_WORKSPACE,    /* KEEP: where to make it */
    SBX_BOX_CWD,
    SBX_BOX_HOME,         /* the caller's */
    SBX_BOX_NSTRINGS
} sbx_box_string_t;

typedef enum {
    SBX_BOX_WRITABLE,
    SBX_BOX_DENY_WRITE,
    SBX_BOX_DENY_READ,
    SBX_BOX_ARGV,
    SBX_BOX_ENV,
    SBX_BOX_NLISTS
} sbx_box_list_t;

typedef struct {
    uint32_t       magic;
    uint32_t       version;
    uint32_t       op;
    uint32_t       flags;
    uint32_t       backend;
    uint32_t       memory_strategy;
    uint32_t       count[SBX_BOX_NLISTS];
    uint32_t       strings_size;
    sbx_limits_t   limits;
} sbx_box_request_t;

typedef enum {
    SBX_BOX_FAILED = 1,
    SBX_BOX_KEPT   = 2,   /* text: the directory */
    SBX_BOX_RESULT = 3
} sbx_box_answer_type_t;

typedef struct {
    uint32_t            magic;
    uint32_t            type;
    sbx_error_t         error;
    sbx_f_exit_t        exit;
    sbx_enforcement_t   enforcement;
    uint32_t            isolated;
    uint32_t            backend;
    uint32_t            measured;     /* SBX_BY_CGROUP_*, or by processes */
    char                note[248];
    char                text[PATH_MAX];
} sbx_box_answer_t;


/*
 * ---- paths ---------------------------------------------------------------
 *
 * Everything that is mounted into the new root beside the read-only view of
 * the host, as one sorted list: whoever comes later is nearer.
 */

typedef enum {
    SBX_SPOT_HIDE,        /* a credential: nobody reads it */
    SBX_SPOT_COVER,       /* a directory that the run's id may not search, but
                             that has something writable below it */
    SBX_SPOT_SCRATCH,     /* of the run's own: /tmp and the like */
    SBX_SPOT_WRITABLE
} sbx_spot_kind_t;

typedef struct {
    sbx_spot_kind_t   kind;
    unsigned          is_dir:1;
    unsigned          below:1;        /* something writable is below it */
    int               tree;           /* detached mount, or -1 */
    int               cover;          /* its tmpfs, to be closed off last */
    dev_t             dev;            /* of a writable directory */
    ino_t             ino;
    const char       *source;         /* scratch: name in the scratch tmpfs */
    char             *path;           /* canonical */
} sbx_spot_t;

typedef struct {
    sbx_spot_t  *elts;
    size_t       nelts;
    size_t       room;
} sbx_spots_t;

typedef struct {
    char       *path;                 /* canonical */
    unsigned    read:1;               /* nor read */
    unsigned    exists:1;
    unsigned    is_dir:1;
    int         writable;             /* the spot that it lies in, or -1 */
} sbx_deny_t;


typedef struct {
    sbx_box_request_t   request;
    char               *strings;
    const char         *string[SBX_BOX_NSTRINGS];
    char              **list[SBX_BOX_NLISTS];      /* NULL-terminated */

    int                 stdio[3];                  /* [0] -1: no input */
    int                 root;                      /* the caller is root */
    uid_t               uid;                       /* on the host */
    gid_t               gid;
    uid_t               inner_uid;
    gid_t               inner_gid;
    int                 nobody;                    /* a user namespace that
                                                      maps no id of a file, or
                                                      -1 */

    sbx_spots_t         spots;
    sbx_deny_t         *denies;
    size_t              ndenies;

    sbx_cgroup_t          *cg;                     /* or NULL */
    sbx_cgroup_session_t  *cs;
    sbx_cgroup_command_t  *cc;
    int                    files[SBX_TASK_FDS_MAX];
    uint32_t               files_mask;
    unsigned               nfiles;
    unsigned               nattach;

    unsigned            rlimit_memory:1;
    unsigned            count:1;                   /* by looking at /proc */
    struct sbx_inner_msg_s  *seen;                 /* shared with inner: what
                                                      a killed one saw last */

    void               *filter;
    size_t              filter_size;

    int                 status;                    /* inner's end */
    char                note[248];
} sbx_box_t;


/* What the first process of a run tells its maker. */
typedef enum {
    SBX_INNER_MAPS   = 1,             /* asks for its id maps */
    SBX_INNER_READY  = 2,             /* asks for leave to begin */
    SBX_INNER_FAILED = 3,
    SBX_INNER_UNABLE = 4,             /* failed: no isolation to be had */
    SBX_INNER_OVER   = 5
} sbx_inner_type_t;

typedef struct sbx_inner_msg_s {
    uint32_t      type;
    uint32_t      cpu_time;           /* it ended the command for that */
    int32_t       pid;
    int32_t       status;             /* as of waitpid() */
    int32_t       failed;             /* errno of an exec */
    uint32_t      pad;
    uint64_t      user_us;
    uint64_t      system_us;
    uint64_t      memory_peak;
    uint64_t      processes_peak;
    uint64_t      read_bytes;
    uint64_t      written_bytes;
    sbx_error_t   error;
} sbx_inner_msg_t;


/* box_paths.c: in the helper, with the caller's rights. */
int sbx_box_paths(sbx_box_t *box, sbx_error_t *e);
/* 1 if path is dir or below it. */
int sbx_path_within(const char *path, const char *dir);
/* 1 if it is in something that is writable. */
int sbx_path_writable(const sbx_spots_t *spots, const char *path);
sbx_spot_t *sbx_spot_add(sbx_spots_t *spots, sbx_spot_kind_t kind,
    const char *path, sbx_error_t *e);

typedef struct {
    char        path[PATH_MAX];
    unsigned    exists:1;
    unsigned    is_dir:1;
    unsigned    through_link:1;       /* a link inside something writable */
} sbx_where_t;

/* Follows links by itself; spots may be NULL.  With EACCES, where->path is the
 * directory that could not be searched. */
int sbx_box_resolve(const sbx_spots_t *spots, const char *path,
    sbx_where_t *where, sbx_error_t *e);

/* box_secrets.c: the masks of credentials, and of sockets that listen. */
int sbx_box_secrets(sbx_box_t *box, sbx_error_t *e);
/* Calls back for each mount of this namespace, until that returns -1. */
int sbx_box_mounts(int (*mount)(const char *path, const char *type,
    void *data, sbx_error_t *e), void *data, sbx_error_t *e);

/* box_ids.c: root's choice of a host id, and idmapped writable trees. */
int sbx_box_ids(sbx_box_t *box, sbx_error_t *e);

/* box_group.c */
int sbx_box_group_open(sbx_box_t *box, sbx_error_t *e);
void sbx_box_group_close(sbx_box_t *box);
void sbx_box_enforcement(const sbx_box_t *box, sbx_enforcement_t *enf);
sbx_enforce_t sbx_box_measured(const sbx_box_t *box);
/* A counter of the group is missing. */
int sbx_box_group_blind(const sbx_box_t *box);
uint64_t sbx_box_group_cpu(const sbx_box_t *box);      /* us */
/* Overwrites what the group knows better. */
void sbx_box_group_usage(const sbx_box_t *box, sbx_f_exit_t *x);

/* box_root.c: in the first process, from a fresh mount namespace. */
int sbx_box_root(sbx_box_t *box, int proc, sbx_error_t *e);

/* box_inner.c: the first process of the run. */
void sbx_box_inner(sbx_box_t *box) __attribute__((noreturn));

/* box_command.c: between fork and exec. */
void sbx_box_command(const sbx_box_t *box, int report)
    __attribute__((noreturn));

/* Where it failed, the first of two words that it reports. */
#define SBX_COMMAND_SETUP   1
#define SBX_COMMAND_CWD     2
#define SBX_COMMAND_EXEC    3

int sbx_box_limits_check(const sbx_box_t *box, sbx_error_t *e);
/* box_scope.c: abstract sockets of others are out of reach, where the kernel
 * can. */
void sbx_box_scope(void);
int sbx_box_scope_known(void);

/* box_run.c */
void sbx_box_run(sbx_box_t *box, sbx_box_answer_t *answer);
/* box_plain.c: without isolation. */
void sbx_box_plain(sbx_box_t *box, sbx_box_answer_t *answer);
/* Both: what the caller says; 1: the run is to end, and why. */
int sbx_box_asked(sbx_reason_t *reason);
void sbx_box_status(sbx_f_exit_t *x, int status);
/* A program that could not be run: the line that a shell would print. */
void sbx_box_excuse(const sbx_box_t *box, sbx_f_exit_t *x, int failed);
/* Milliseconds for poll() until then, rounded up; UINT64_MAX: never. */
int sbx_box_wait(uint64_t until);

/* box_keep.c */
void sbx_box_keep(const sbx_box_t *box);


#endif
