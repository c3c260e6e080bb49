/*
 * What broker and init say to each other.
 *
 * Over the session's control socket (SEQPACKET).  Broker to init: sbx_task_t
 * with descriptors; init to broker: sbx_record_t, fixed size, none.
 */

#ifndef SANDBOX_TASK_H
#define SANDBOX_TASK_H

#include "sandbox_wire.h"


#define SBX_TASK_FDS_MAX      24

/* What the descriptors after the call's own are, in this order, where the
 * bit is set. */
#define SBX_TASK_FD_ATTACH        0x0001  /* attach_count of them, O_WRONLY:
                                             the child writes "0" to each */
#define SBX_TASK_FD_KILL          0x0002  /* cgroup.kill, O_WRONLY: "1" */
#define SBX_TASK_FD_CPU           0x0004  /* cpu.stat of cgroup2 */
#define SBX_TASK_FD_MEMORY_PEAK   0x0008  /* one number */
#define SBX_TASK_FD_OOM           0x0010  /* "oom_kill N" line of
                                             memory.events or oom_control */
#define SBX_TASK_FD_PIDS_PEAK     0x0020  /* one number */
#define SBX_TASK_FD_PIDS_EVENTS   0x0040  /* "max N" */
#define SBX_TASK_FD_THROTTLE      0x0080  /* cpu.stat of the cpu controller:
                                             throttled_usec or _time (ns) */
#define SBX_TASK_FD_IO            0x0100  /* io.stat of cgroup2 */
#define SBX_TASK_FD_POPULATED     0x0200  /* cgroup.events of cgroup2 */
#define SBX_TASK_FD_PIDS_CURRENT  0x0400  /* pids.current of all commands:
                                             attaching is never refused, so
                                             the child looks for itself */
#define SBX_TASK_FD_OOM_EVENT     0x0800  /* v1: an eventfd that is signalled
                                             when the group is out of
                                             memory; on v2 the kernel kills
                                             the whole group by itself */
#define SBX_TASK_FD_DIR           0x2000  /* the group in the core's tree, to
                                             be cloned into; that spares the
                                             attach file .core */
#define SBX_TASK_FD_PROCS         0x4000  /* cgroup.procs in the core's tree:
                                             what it has left behind */
#define SBX_TASK_FD_CPU_MAX       0x1000  /* the group's quota, O_WRONLY: who
                                             is to die shall not wait for
                                             its turn */

typedef struct {
    uint32_t      magic;
    uint16_t      version;
    uint16_t      op;                     /* EXEC, FILE, CUT, TERMINATE */
    uint32_t      command;                /* EXEC: number, never reused */
    uint32_t      fds;                    /* SBX_TASK_FD_* */
    uint32_t      attach_count;
    uint32_t      core;                   /* of the attach files */
    char          request_id[SBX_REQUEST_ID + 8];
    uint64_t      processes;              /* of the command, for messages */
    uint64_t      cpus;                   /* thousandths, for polling */
    uint64_t      memory;                 /* bytes, of the command */
    uint32_t      token;                  /* GROUP: of the record; WARM */
    uint32_t      refused;                /* GROUP: sbx_code_t, and then no
                                             descriptors */
} sbx_task_t;

typedef enum {
    SBX_R_READY        = 1,   /* init runs; once */
    SBX_R_COMMAND_OVER = 2,   /* the leader of .command has been reaped; of
                                 the group's descriptors init keeps those
                                 alone that watch what is left in it */
    SBX_R_REAPED       = 3,   /* something else died: groups may be empty */
    SBX_R_CUT          = 4,   /* every download is cut */
    SBX_R_BUSY         = 5,   /* .command calls are open or being served */
    SBX_R_GROUP        = 6,   /* a group for a kernel is wanted; .command is
                                 a token of init's.  Its end is told as a
                                 command's */
    SBX_R_WARM         = 7,   /* a kernel of language .command is ready; or
                                 it is not to be had: .reason is not 0 */
    SBX_R_HELD         = 8,   /* init has .command, whose end it will tell;
                                 .reason is not 0: it is an interpreter's */
    SBX_R_HELD_ALL     = 9    /* those were all that had been handed to it
                                 before the question; .command is its token */
} sbx_record_type_t;

typedef struct {
    uint32_t      magic;
    uint32_t      type;
    uint32_t      command;
    uint32_t      running;    /* commands that run now */
    uint32_t      reason;     /* COMMAND_OVER: sbx_reason_t; SBX_REASON_MAX of
                                 one that there never was */
    uint32_t      pad;
    uint64_t      cpu_us;
} sbx_record_t;


/*
 * What init is given at exec: descriptor 3 is the control socket, descriptor
 * 4 a sealed memfd that starts with this and goes on with env_size bytes of
 * "K=V\0" and the seccomp programs; 5 ... the attach files of the group
 * "files" (for processes that serve file calls), and after them that group
 * itself in the core's tree.
 */
typedef struct {
    uint32_t      magic;
    uint32_t      version;
    sbx_limits_t  limits;
    uint32_t      uid;                    /* of "user": 1000 */
    uint32_t      gid;
    uint32_t      files_attach_count;     /* descriptors 5 .. */
    uint32_t      files_core;             /* of them: spared by a clone into
                                             the group */
    uint32_t      cpus_visible;           /* processors for affinity */
    uint32_t      filter_size;            /* bytes of the seccomp program for
                                             commands, after the env */
    uint32_t      env_size;
    uint32_t      capabilities;
    uint32_t      flags;                  /* SBX_CREATE_* */
    uint32_t      files_filter_size;      /* bytes of the one for who serves
                                             a file call, after that; 0: the
                                             commands' */
    uint32_t      languages_size;         /* bytes after the filters:
                                             sandbox_languages.h */
    uint32_t      network;                /* sbx_network_mode_t */
    char          workspace[256];
    char          home[256];
    char          path[512];              /* PATH */
} sbx_init_config_t;


#endif
