/*
 * A sandbox without any server: a workspace, a budget, and commands that run
 * inside an operating-system boundary.
 *
 *   sbx_sandbox_options_t   o;
 *   sbx_sandbox_command_t   c;
 *   sbx_sandbox_result_t    r;
 *
 *   sbx_sandbox_options_init(&o);
 *   o.limits.memory = 256 << 20;
 *
 *   if (sbx_sandbox_open(&o, &sb, &e) == 0) {
 *       sbx_sandbox_command_init(&c);
 *       c.argv = (const char *const []) { "python3", "job.py", NULL };
 *
 *       if (sbx_sandbox_run(sb, &c, &r, &e) == 0) {
 *           puts(r.out.data);
 *           sbx_sandbox_result_free(&r);
 *       }
 *
 *       sbx_sandbox_close(sb);
 *       sbx_sandbox_free(sb);
 *   }
 *
 * For root and for ordinary users, and for programs with threads: nothing of
 * the library runs in a forked copy of the caller.  What it starts is the
 * program sandbox-session, which ends all that it made when the caller is
 * gone.  Every run is a sandbox of its own; limits are for each run.
 *
 * All functions that return int return 0, or -1 with a filled error.
 */

#ifndef SANDBOX_SESSION_H
#define SANDBOX_SESSION_H

#include "sandbox_error.h"
#include "sandbox_limits.h"

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>


typedef struct sbx_sandbox_s  sbx_sandbox_t;

typedef enum {
    SBX_BACKEND_AUTO,             /* namespaces; where the machine has none
                                     for the caller, and isolation is not
                                     required, passthrough */
    SBX_BACKEND_NAMESPACES,
    SBX_BACKEND_PASSTHROUGH       /* no isolation: rlimits, time limits, and
                                     everything is killed at the end */
} sbx_backend_t;

typedef enum {
    SBX_MEMORY_AUTO,              /* a cgroup where there is one */
    SBX_MEMORY_CGROUP,            /* a cgroup, or the run is refused */
    SBX_MEMORY_RLIMIT             /* of each process, by its address space */
} sbx_memory_strategy_t;


/* Strings are copied by sbx_sandbox_open(); lists end with NULL and may be
 * NULL themselves. */
typedef struct {
    const char              *workspace;     /* a directory of yours, which is
                                               never removed; NULL: a private
                                               one, removed at the end */
    const char *const       *writable;      /* further directories */
    const char *const       *deny_write;    /* win over those; relative ones */
    const char *const       *deny_read;     /* are below the workspace */
    const char *const       *env;           /* "K=V", beside the allow-list */
    sbx_limits_t             limits;        /* SBX_UNSET: none.  exec_timeout
                                               and max_output are defaults of
                                               the runs; cpus and the like as
                                               in sandbox_limits.h.  disk,
                                               inodes, timeout: not used */
    sbx_backend_t            backend;
    sbx_memory_strategy_t    memory_strategy;
    unsigned                 network;       /* 1: the host's own network */
    unsigned                 require_isolation;
    const char              *helper;        /* path of sandbox-session; NULL:
                                               beside the running program,
                                               else where it was installed */
} sbx_sandbox_options_t;

typedef struct {
    const char *const       *argv;          /* found by PATH; ends with NULL */
    const char              *shell;         /* if argv is NULL: a text for
                                               /bin/sh -c */
    const char              *cwd;           /* relative to the workspace;
                                               NULL: the workspace */
    const char *const       *env;           /* "K=V", this run's own */
    const void              *input;         /* for standard input ... */
    size_t                   input_size;
    int                      input_fd;      /* ... or read from here, unless
                                               -1.  Neither: end of file */
    uint64_t                 timeout;       /* ms; SBX_UNSET: the sandbox's,
                                               SBX_UNLIMITED: none */
    uint64_t                 max_output;    /* bytes kept of each stream;
                                               SBX_UNSET: the sandbox's */
    /* Called in the running thread with what is kept, as it comes: stream 1
     * or 2.  Then the result has counts and no data. */
    void                   (*output)(int stream, const void *data,
                                     size_t size, void *ctx);
    void                    *ctx;
} sbx_sandbox_command_t;


typedef struct {
    char          *data;          /* size bytes and a NUL */
    size_t         size;
    uint64_t       total;         /* all that was written */
    unsigned       truncated;
} sbx_sandbox_output_t;

/* How each limit was kept: "cgroup v2", "cgroup v1", "rlimit", "poll",
 * "filter", "none"; NULL where none was asked for. */
typedef struct {
    const char    *memory;
    const char    *cpus;
    const char    *cpu_seconds;
    const char    *processes;
    const char    *max_file_size;
    const char    *open_files;
    const char    *stack;
    const char    *seccomp;       /* "filter" or "none" */
} sbx_sandbox_enforcement_t;

typedef struct {
    pid_t                      pid;         /* inside */
    int                        exit_code;   /* 128 + n for a signal; 126, 127:
                                               not started */
    int                        signal;      /* 0 if none */
    const char                *reason;      /* exited, signal, timeout,
                                               memory, cpu_time, cancelled,
                                               not_started */
    unsigned                   timed_out;
    unsigned                   oom_killed;  /* the kernel killed any of its
                                               processes for memory */
    unsigned                   cancelled;
    sbx_sandbox_output_t       out;
    sbx_sandbox_output_t       err;
    uint64_t                   duration_us;
    uint64_t                   cpu_user_us;
    uint64_t                   cpu_system_us;
    uint64_t                   memory_peak;      /* bytes; measured by
                                                    processes: of the largest
                                                    one; 0: not known */
    uint64_t                   processes_peak;   /* 0: not known */
    uint64_t                   read_bytes;
    uint64_t                   written_bytes;
    uint64_t                   throttled_us;
    unsigned                   isolated;
    sbx_backend_t              backend;          /* the one that was used */
    sbx_sandbox_enforcement_t  enforcement;
    const char                *measured;         /* what the figures above
                                                    are from: "cgroup v2",
                                                    "cgroup v1", "processes" */
    char                       note[248];        /* what is less than could
                                                    be expected; "" if none */
} sbx_sandbox_result_t;


/* No limit but 60 s of time and 1 MB of each output. */
void sbx_sandbox_options_init(sbx_sandbox_options_t *o);
void sbx_sandbox_command_init(sbx_sandbox_command_t *c);

/*
 * Makes the private workspace and checks paths and limits; reads the
 * environment.  SBX_E_INVALID: the text names the option.
 */
int sbx_sandbox_open(const sbx_sandbox_options_t *o, sbx_sandbox_t **sb,
    sbx_error_t *e);

/* The directory that commands may write; lives as long as the handle. */
const char *sbx_sandbox_workspace(const sbx_sandbox_t *sb);

/*
 * Runs a command and waits for it.  When it returns, everything that the
 * command started is dead and everything that was made for it is removed.
 * Any number of threads may run commands of one sandbox at once.  -1: it was
 * not tried: SBX_E_INVALID (an option is wrong), SBX_E_MANIFEST (asks for
 * what this machine does not give this user), SBX_E_UNAVAILABLE (a layer is
 * missing), SBX_E_CONFLICT (closed).  A program that cannot be run is a
 * result, not an error.
 */
int sbx_sandbox_run(sbx_sandbox_t *sb, const sbx_sandbox_command_t *c,
    sbx_sandbox_result_t *r, sbx_error_t *e);
void sbx_sandbox_result_free(sbx_sandbox_result_t *r);

/* Ends the commands that run, as "cancelled"; returns how many.  From any
 * thread; does not wait. */
unsigned sbx_sandbox_cancel(sbx_sandbox_t *sb);

/* Cancels what runs, waits for its end, removes the private workspace.  From
 * any thread and more than once; a run after it is SBX_E_CONFLICT. */
void sbx_sandbox_close(sbx_sandbox_t *sb);

/* Closes if need be, and frees.  Nobody may use the handle then. */
void sbx_sandbox_free(sbx_sandbox_t *sb);

/*
 * How each limit and each layer is kept on this machine, for this caller and
 * these options, found out by trying.  by: "cgroup v2", "rlimit" ... "none".
 */
int sbx_sandbox_capabilities(sbx_sandbox_t *sb,
    void (*capability)(const char *name, const char *by, void *ctx),
    void *ctx, sbx_error_t *e);


#endif
