/*
 * Building a session's isolation.  Used by the broker (and, later, by a tool
 * without any server).  Nothing here knows nginx or HTTP.
 */

#ifndef SBX_ISOLATE_H
#define SBX_ISOLATE_H

#include "sandbox_util.h"
#include "sandbox_task.h"
#include "storage.h"


/*
 * ---- cgroups: one interface, v2 and v1 (hybrid) behind it ---------------
 */

typedef struct sbx_cgroup_s          sbx_cgroup_t;          /* per broker */
typedef struct sbx_cgroup_session_s  sbx_cgroup_session_t;
typedef struct sbx_cgroup_command_s  sbx_cgroup_command_t;

/*
 * Finds out what this machine has and makes "<base>/<name>", the broker's own
 * branch, in each hierarchy.  base NULL or "": below the caller's own group
 * (on v2 the calling process then moves into a leaf "broker" first).
 * -1: SBX_E_UNAVAILABLE, the text says what is missing and how to mend it.
 */
int sbx_cgroup_open(const char *base, const char *name, sbx_cgroup_t **cg,
    sbx_error_t *e);

/*
 * The place of an earlier broker's branch, which the next one takes wherever
 * it has been started or moved to: what the first one made is found there
 * alone.  e->err is ENOENT where it is gone, and all that was in it.
 */

#define SBX_CGROUP_TREES      4
#define SBX_CGROUP_OWN_MAX    1024      /* longer ones are not known */

typedef struct {
    uint32_t      set;
    uint32_t      leaf;           /* on v2: with the leaf "broker" */
    uint32_t      no_cpu;         /* no limit of processors */
    uint32_t      pad;
    char          parent[SBX_CGROUP_TREES][SBX_CGROUP_OWN_MAX];
} sbx_cgroup_known_t;

void sbx_cgroup_known(const sbx_cgroup_t *cg, sbx_cgroup_known_t *known);
int sbx_cgroup_again(const char *base, const char *name,
    const sbx_cgroup_known_t *known, sbx_cgroup_t **cg, sbx_error_t *e);
/* Removes the branch if empty; frees. */
void sbx_cgroup_close(sbx_cgroup_t *cg);
sbx_enforce_t sbx_cgroup_version(const sbx_cgroup_t *cg);
/* How each limit is enforced here ("cgroup v2 memory.max"). */
void sbx_cgroup_enforcement(const sbx_cgroup_t *cg, sbx_enforcement_t *enf);

/* Calls back with the id of every session group found in the branch. */
int sbx_cgroup_list(sbx_cgroup_t *cg,
    void (*found)(const char *id, void *data), void *data, sbx_error_t *e);
/* Kills what is in a session's groups and removes them, by id.  0 when all
 * is gone, 1 when something is still dying (call again), -1 error. */
int sbx_cgroup_sweep(sbx_cgroup_t *cg, const char *id, sbx_error_t *e);
/* The first id of the session that the groups were made for, as told to
 * sbx_cgroup_session_owner(); 0: none, and no process of it; -1: errno. */
int sbx_cgroup_owner(const sbx_cgroup_t *cg, const char *id,
    uint64_t *owner);

/*
 * <session>/init, <session>/work/files, <session>/work/run/<n>.  A small
 * memory limit of its own on init; memory + disk on work, so that at the
 * session's limit the kernel kills there and never init; pids on run, an
 * allowance of its own on files; cpus on work.  adopt: the groups are there.
 */
int sbx_cgroup_session_create(sbx_cgroup_t *cg, const char *id,
    const sbx_limits_t *limits, int adopt, sbx_cgroup_session_t **cs,
    sbx_error_t *e);
void sbx_cgroup_session_free(sbx_cgroup_session_t *cs);  /* keeps groups */
/* A descriptor: whoever has it ends everything in the groups by writing "1",
 * with whatever rights; -1: errno. */
int sbx_cgroup_session_killer(const sbx_cgroup_session_t *cs);
/* Memory, processes and cpus become those of limits. */
int sbx_cgroup_session_change(sbx_cgroup_session_t *cs,
    const sbx_limits_t *limits, sbx_error_t *e);
/* As sbx_cgroup_sweep. */
int sbx_cgroup_session_remove(sbx_cgroup_session_t *cs, sbx_error_t *e);
/* SIGKILL to every process of work and files (not init), at once. */
int sbx_cgroup_session_kill(sbx_cgroup_session_t *cs, sbx_error_t *e);
/* The same, init included. */
int sbx_cgroup_session_end(sbx_cgroup_session_t *cs, sbx_error_t *e);
/* Stops what kill would kill, soon after it returns; init goes on. */
int sbx_cgroup_session_freeze(sbx_cgroup_session_t *cs, int frozen,
    sbx_error_t *e);
/* A descriptor, the caller's, on which EPOLLPRI says that something has
 * changed since it was read; -1: errno. */
int sbx_cgroup_session_events(const sbx_cgroup_session_t *cs);
/* Reads it: 1 all that was to stop has stopped, 0 not yet, -1 errno. */
int sbx_cgroup_frozen(int events);
/*
 * Init, of this host id, may clone into the session's groups: the kernel
 * wants it to own the file that it would otherwise write to.  No path leads
 * there from inside, and init holds the descriptors of its session alone.
 */
int sbx_cgroup_session_owner(sbx_cgroup_session_t *cs, uint64_t owner,
    int adopt, sbx_error_t *e);
/* Fills all but disk and inodes. */
int sbx_cgroup_session_usage(sbx_cgroup_session_t *cs, sbx_usage_t *usage,
    sbx_error_t *e);
/* Memory and memory_cache alone. */
int sbx_cgroup_session_memory(sbx_cgroup_session_t *cs, sbx_usage_t *usage,
    sbx_error_t *e);
/* Microseconds of all its processes, those that have ended too; -1: errno. */
int sbx_cgroup_session_cpu(sbx_cgroup_session_t *cs, uint64_t *us);
/*
 * Ten times the weight of other sessions where processors are short, or their
 * weight again.  -1: errno; 0 without a controller, where nothing is done.
 */
int sbx_cgroup_session_ahead(sbx_cgroup_session_t *cs, int ahead);
/* Attach files of init's group and of the group "files", O_WRONLY |
 * O_CLOEXEC, owned by cs.  Returns how many. */
unsigned sbx_cgroup_init_fds(sbx_cgroup_session_t *cs, const int **fds);
unsigned sbx_cgroup_files_fds(sbx_cgroup_session_t *cs, const int **fds);

/*
 * A group for one command, used once.  Made ahead with the session's own
 * limits (work to be done off a call's path); _limit() lowers them.  The
 * descriptors are in SBX_TASK_FD_* order; _fds() hands them over (the caller
 * closes), mask and attach count are filled.
 */
int sbx_cgroup_command_create(sbx_cgroup_session_t *cs, uint32_t number,
    sbx_cgroup_command_t **cc, sbx_error_t *e);
int sbx_cgroup_command_limit(sbx_cgroup_command_t *cc,
    const sbx_exec_limits_t *limits, sbx_error_t *e);
/* The same of one command.  No group may have more processor time than the
 * session: where there is to be less of it, commands come first. */
int sbx_cgroup_command_change(sbx_cgroup_command_t *cc,
    const sbx_limits_t *limits, sbx_error_t *e);
unsigned sbx_cgroup_core(const sbx_cgroup_session_t *cs);
unsigned sbx_cgroup_command_fds(sbx_cgroup_command_t *cc, int *fds,
    uint32_t *mask, uint32_t *attach_count);
/* 0 removed (cc is freed), 1 not yet empty, -1 error (freed). */
int sbx_cgroup_command_remove(sbx_cgroup_command_t *cc, sbx_error_t *e);
/*
 * The groups of commands that an earlier broker has left, in no order; what is
 * found is the callee's, which returns 0, or -1 without memory for it.  One
 * that is empty may be in the hands of init, which is about to use it.
 */
typedef int (*sbx_command_found_pt)(sbx_cgroup_command_t *cc,
    uint32_t number, int busy, void *data);
int sbx_cgroup_command_list(sbx_cgroup_session_t *cs,
    sbx_command_found_pt found, void *data, sbx_error_t *e);


/*
 * ---- seccomp -----------------------------------------------------------
 */

/*
 * The program for commands, compiled once; bytes of struct sock_filter that
 * the caller frees.  Loaded with seccomp(2) after no_new_privs.
 */
int sbx_seccomp_command(void **program, size_t *size, sbx_error_t *e);
/* Init's own: what a session's process 1 needs and no more. */
int sbx_seccomp_init(void **program, size_t *size, sbx_error_t *e);
/* What those who have init's filter need for that of commands. */
int sbx_seccomp_rest(void **program, size_t *size, sbx_error_t *e);
/* The same for who serves file calls. */
int sbx_seccomp_files(void **program, size_t *size, sbx_error_t *e);

typedef enum {
    SBX_GUARD_COMMAND,
    SBX_GUARD_FILES               /* a file server, which needs openat2() */
} sbx_guard_t;

/* guard.c: rules by which nobody sets set-user-id and set-group-id bits, and
 * behind them a program (size 0: all else is allowed); the caller frees. */
int sbx_seccomp_guard(sbx_guard_t whom, const void *program, size_t size,
    void **out, size_t *out_size, sbx_error_t *e);
/* async-signal-safe: prctl(no_new_privs) is the caller's. 0 or -1, errno. */
int sbx_seccomp_load(const void *program, size_t size);


/*
 * ---- templates ---------------------------------------------------------
 */

/*
 * Prepares what all sessions of the built-in template share, once a broker:
 * the read-only lower tree with generated files under "<state>/base".
 */
int sbx_base_prepare(const char *state_dir, sbx_error_t *e);


/*
 * ---- launching a session -----------------------------------------------
 *
 * sbx_launch_start() clones process 1 (CLONE_PARENT: the keeper reaps it)
 * and returns at once.  The child works through the seven steps, asks the
 * caller over .status to write its id maps, and execs init.  The caller
 * watches .status and calls sbx_launch_event() for each readiness until it
 * returns 1 (init has been exec'ed; SBX_R_READY follows on .control) or -1.
 */

/* A name of the built-in template: it has two. */
int sbx_template_builtin(const char *name);

typedef struct {
    const char              *id;
    const char              *state_dir;    /* absolute */
    const char              *session_dir;  /* exists, 0700, root's */
    const char              *template;     /* "base" or a name */
    const char              *template_dir; /* may be NULL */
    const char              *host_name;
    uint64_t                 uid_first;    /* 65,536 host ids from here */
    sbx_limits_t             limits;
    uint32_t                 capabilities;
    sbx_cgroup_session_t    *cgroup;
    int                      init_exe;     /* sealed memfd of sandbox-init */
    const void              *env;          /* "K=V\0" ... */
    size_t                   env_size;
    const char              *tenant;       /* whom binds are offered to */
    const void              *rules;        /* sandbox_rules.h, checked */
    size_t                   rules_size;
    const char              *binds;        /* the table of all of them */
    size_t                   binds_size;
    const char              *kernels;      /* a directory of the host's, to
                                              be shown; NULL: none */
    const void              *languages;    /* sandbox_languages.h */
    size_t                   languages_size;
    const void              *filter;       /* for commands */
    size_t                   filter_size;
    const void              *files_filter; /* size 0: as for commands */
    size_t                   files_filter_size;
    const void              *init_filter;
    size_t                   init_filter_size;
    uint32_t                 flags;        /* SBX_LAUNCH_* */
    uint32_t                 create_flags; /* SBX_CREATE_*, for init */
    uint32_t                 network;      /* sbx_network_mode_t, for init's
                                              environment */
    const void              *trust;        /* a certificate (PEM) that is
                                              trusted beside the machine's */
    size_t                   trust_size;   /* 0: none */
    const char              *packages;     /* a directory of the host's with
                                              packages, to be shown; or NULL */
    const char              *package_cache;    /* another; or NULL */
    const sbx_storage_t     *storage;      /* NULL: tmpfs */
    int                     *disk;         /* may be NULL; else receives,
                                              before the launch is over, a
                                              descriptor of the session's
                                              volume for sbx_disk_usage().
                                              It keeps the volume alive */
} sbx_launch_t;

/*
 * The user namespace belongs to the session's own first id rather than to
 * host root, so that inotify instances, queued signals and message queues of
 * all sessions are not counted against host root.  The caller then may not
 * signal init without CAP_KILL: end it with sbx_cgroup_session_end().
 */
#define SBX_LAUNCH_OWN_ACCOUNT   0x01

/* No cgroup namespace: the session sees its groups' full names. */
#define SBX_LAUNCH_CGROUPS_SEEN  0x02

/* It may be changed by sbx_launch_change() while nobody uses it. */
#define SBX_LAUNCH_AHEAD         0x04

enum {
    SBX_KEPT_MEMINFO,
    SBX_KEPT_MEMORY,                      /* what is in memory beside a volume
                                             on a disk */
    SBX_LAUNCH_KEPT
};

typedef struct {
    pid_t   pid;          /* in the caller's namespace */
    int     pidfd;
    int     control;      /* our end of init's control socket, SEQPACKET */
    int     status;       /* messages of the child until its exec */
    int     kept[SBX_LAUNCH_KEPT];        /* with SBX_LAUNCH_AHEAD: the
                                             caller's, -1 where there is
                                             nothing */
    int     netns;        /* its network namespace, once it has asked for its
                             maps; the caller's */
    uint64_t uid_first;
    int    *disk;         /* sbx_launch_t's, to be filled */
} sbx_launched_t;

int sbx_launch_start(const sbx_launch_t *launch, sbx_launched_t *out,
    sbx_error_t *e);
int sbx_launch_event(sbx_launched_t *launched, sbx_error_t *e);
/* What a session that was launched before is to be: a memfd for
 * SBX_OP_HAND_OVER, the caller's; -1.  Takes limits, capabilities, env, flags
 * and the groups of launch. */
int sbx_launch_hand_over(const sbx_launch_t *launch, sbx_error_t *e);
/* What it sees of its memory, and what it may have in it, become those of
 * limits; not what its groups limit. */
int sbx_launch_change(const int kept[SBX_LAUNCH_KEPT],
    const sbx_storage_t *storage, const sbx_limits_t *limits,
    sbx_error_t *e);
/* Processors that a session with a limit of cpus sees. */
unsigned sbx_launch_cpus_seen(uint64_t cpus);

/* Fills disk and inodes of usage. */
int sbx_disk_usage(int disk, sbx_usage_t *usage, sbx_error_t *e);

/* Copies the init program at path into a sealed memfd, 0111, close-on-exec.
 * Refuses a file that is not root's or that others may write. */
int sbx_init_exe(const char *path, int *fd, sbx_error_t *e);


/*
 * ---- a session's network -----------------------------------------------
 */

typedef enum {
    SBX_NET_TCP4,
    SBX_NET_UDP4,
    SBX_NET_TCP6,
    SBX_NET_UDP6,
    SBX_NET_FDS
} sbx_net_fd_t;

/*
 * Enters the network namespace (the calling thread comes back; where it could
 * not, the process ends) and makes the only way out of it: an address and a
 * default route on lo, rules that lead every TCP connection and all DNS to new
 * sockets, and refuse the rest at once.  fds: the sockets, listening and
 * non-blocking, the caller's; those of IPv6 are -1 where there is none.  What
 * was made before is replaced.  -1: the session has no network.
 */
int sbx_net_grant(int netns, int fds[SBX_NET_FDS], sbx_error_t *e);
/* Takes it away: all else but lo is unreachable again. */
int sbx_net_revoke(int netns, sbx_error_t *e);
/* The address that sessions have, and ask for names: "192.0.2.1". */
#define SBX_NET_ADDRESS4     "192.0.0.8"
#define SBX_NET_ADDRESS6     "fd00:5b::1"

/*
 * Starts the egress: a process of the keeper's, process 1 of namespaces of its
 * own but for the network's, with nothing in its root but what a program needs
 * to start, as user id uid, with no capability, and no descriptor but control,
 * ca and cert.  exe is a sealed memfd.  Returns before the exec, whose failure
 * is a line on log and the process's end.  No signal but SIGKILL ends it from
 * outside.  *pid and *pidfd are the caller's.
 */
typedef struct {
    int         exe;
    int         control;
    int         ca;
    int         cert;
    int         log;              /* its standard error; -1: none */
    uint32_t    uid;
    uint64_t    open_files;
} sbx_egress_launch_t;

int sbx_egress_launch(const sbx_egress_launch_t *launch, pid_t *pid,
    int *pidfd, sbx_error_t *e);

/*
 * The egress, of itself, once it has opened and read all that it needs: no
 * file can be opened from then on, no program or process be started, no socket
 * be made but those to the world; what is tried ends the process.  -1: it must
 * not go on.
 */
int sbx_egress_confine(sbx_error_t *e);


/*
 * ---- what the machine can do -------------------------------------------
 */

typedef struct sbx_layers_s  sbx_layers_t;          /* layers.h */

typedef struct {
    const char            *state_dir;
    const char            *template_dir;  /* may be NULL */
    const sbx_layers_t    *layers;        /* probed and settled */
    const sbx_cgroup_t    *cgroup;        /* NULL: there is none, */
    const sbx_error_t     *cgroup_error;  /* and why, or NULL */
    uint32_t               require_isolation;
} sbx_doctor_t;

/* Calls back for every check of /doctor. */
void sbx_doctor(const sbx_doctor_t *d,
    void (*check)(const sbx_f_check_t *c, void *data), void *data);
/* -1: the first of those checks that may fail while a broker runs, and
 * without which no session can be made.  Cheap. */
int sbx_doctor_health(const sbx_doctor_t *d, sbx_error_t *e);

/* Of so many descriptors that a broker may open, those that are kept for
 * calls; new sessions leave twice as many. */
uint64_t sbx_doctor_reserve(uint64_t open_files);
/* Calls back for every limit and layer of /capabilities. */
void sbx_capabilities(const sbx_layers_t *layers,
    void (*capability)(const sbx_f_capability_t *c, void *data), void *data);

/*
 * Quick refusals before anything is started: privileges, and the state
 * directory unless it is NULL.  -1: one line that says what is missing and
 * how to mend.
 */
int sbx_preflight(const char *state_dir, sbx_error_t *e);

/* Keeps only the capabilities that the broker uses, bounding set included,
 * and sets no_new_privs. */
int sbx_caps_reduce_broker(sbx_error_t *e);


#endif
