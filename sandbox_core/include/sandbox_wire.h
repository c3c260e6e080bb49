/*
 * The wire: what nginx workers, the broker and session inits say to each
 * other.  One machine, one build: host byte order, fixed layouts, explicit
 * sizes, no pointers.  Every receiver treats every length as hostile.
 *
 *   worker --SEQPACKET, one datagram a call, + SCM_RIGHTS--> broker
 *   broker --SEQPACKET, one datagram a call, + SCM_RIGHTS--> session init
 *   worker <==SOCK_STREAM, length-prefixed frames, the call's own==> broker
 *                                                      or session init
 *
 * The worker makes a socketpair for each call and sends one end with the
 * call's datagram.  Broker calls are answered by the broker on that end;
 * session calls are handed on with their end, and init answers.  Replies
 * never travel on a control connection.
 *
 * A call ends with exactly one of: SBX_F_ERROR, SBX_F_END, SBX_F_EXIT.  A
 * bare EOF is an abort, never an end.  EOF before SBX_F_ACCEPTED means that
 * nothing was run: the worker may send the call again.  The worker aborts a
 * call by closing its end.
 */

#ifndef SANDBOX_WIRE_H
#define SANDBOX_WIRE_H

#include "sandbox_error.h"
#include "sandbox_limits.h"
#include "sandbox_quota.h"
#include "sandbox_metrics.h"
#include "sandbox_code.h"
#include "sandbox_files.h"
#include "sandbox_pool.h"
#include "sandbox_network.h"


#define SBX_WIRE_MAGIC        0x31584253u     /* "SBX1" */
#define SBX_WIRE_VERSION      10

#define SBX_ID_MAX            40      /* session id, without NUL */
#define SBX_NAME_MAX          128     /* tenant, user */
#define SBX_TEMPLATE_MAX      64
#define SBX_REQUEST_ID        32      /* nginx's $request_id */
#define SBX_KEY_MAX           128     /* Idempotency-Key */

#define SBX_FRAME_MAX         65536   /* payload of a frame */
#define SBX_META_MAX          (96 * 1024)    /* metadata, as JSON text */
#define SBX_ENV_MAX           (256 * 1024)   /* a session's environment */
#define SBX_OWN_ENV_MAX       4096    /* configuration's, before it */
#define SBX_STRINGS_MAX       (2 * 1024 * 1024)  /* argv + env of a command */
#define SBX_TAG_MAX           128
#define SBX_COMMANDS_MAX      256     /* commands alive in one session */
#define SBX_TERMINALS_MAX     64      /* of one session, whoever opens them */
#define SBX_RULES_MAX         (128 * 1024)   /* a session's file rules */
#define SBX_RULES_KIND_MAX    64      /* of each kind */
#define SBX_RULES_NAMES_MAX   8192    /* in all paths: each may be a mount */
#define SBX_TEMPLATES_MAX     64      /* of configuration */
#define SBX_BINDS_SIZE        32768   /* the table of host directories */
#define SBX_BINDS_MAX         64
#define SBX_BIND_NAME_MAX     64
#define SBX_TOKEN_KEY         32
#define SBX_PACKAGES_PATH     1024
#define SBX_TRUST_MAX         (16 * 1024)    /* one file of certificates */


/*
 * ---- control datagrams -------------------------------------------------
 */

typedef enum {
    /* first datagram of every control connection */
    SBX_OP_HELLO_CONTROL = 1,   /* master; workers inherit the connection */
    SBX_OP_HELLO_CONFIG  = 2,   /* root's only: sbx_config_t follows it */
    SBX_OP_HELLO_WATCH   = 3,   /* root's only: looks, and changes nothing */

    /* calls that the broker answers */
    SBX_OP_HEALTH        = 16,
    SBX_OP_DOCTOR        = 17,
    SBX_OP_CAPABILITIES  = 18,
    SBX_OP_TEMPLATES     = 19,
    SBX_OP_CREATE        = 20,
    SBX_OP_GET           = 21,
    SBX_OP_LIST          = 22,
    SBX_OP_DESTROY       = 23,
    SBX_OP_PATCH         = 24,
    SBX_OP_PAUSE         = 25,
    SBX_OP_RESUME        = 26,
    SBX_OP_END           = 27,   /* DESTROY that gives time */
    SBX_OP_SAMPLES       = 28,   /* SESSION with META, SAMPLE..., END */

    /* the admin API's, answered where sbx_config_t allows it */
    SBX_OP_QUOTA_GET     = 32,
    SBX_OP_QUOTA_SET     = 33,
    SBX_OP_SETTINGS_GET  = 34,
    SBX_OP_SETTINGS_SET  = 35,
    SBX_OP_DRAIN         = 36,
    SBX_OP_DESTROY_ALL   = 37,   /* of head.tenant; END counts them */
    SBX_OP_QUOTA_LIST    = 38,   /* of head.tenant, or all; END's .next is 1
                                    if there are more */

    SBX_OP_METRICS       = 40,
    SBX_OP_REFUSALS      = 41,   /* ACCEPTED, REFUSAL..., never an END: what
                                    sessions are refused is told to the oldest
                                    of such calls that are open */

    /* calls that are handed to the session's init */
    SBX_OP_EXEC          = 64,
    SBX_OP_FILE          = 65,
    SBX_OP_PROCESS       = 66,   /* of the capability "shell" */
    SBX_OP_PORT          = 67,   /* of the capability "ports" */
    SBX_OP_CANCEL        = 68,   /* of none; END counts what was ended */
    SBX_OP_CODE          = 69,   /* of the capability "code" */
    SBX_OP_LOG           = 70,   /* of none, of a paused session too: no frame
                                    from the worker; LINE..., END whose
                                    .count are those that went */
    SBX_OP_ENV           = 71,   /* of none: STRINGS of "K=V\0" ..., END */

    /* broker to init only */
    SBX_OP_CUT           = 128,  /* shut downloads, answer SBX_R_CUT */
    SBX_OP_TERMINATE     = 129,  /* SIGTERM to every command */
    SBX_OP_FREEZE        = 130,  /* clocks stand still until THAW */
    SBX_OP_THAW          = 131,
    SBX_OP_BUSY          = 132,  /* answer SBX_R_BUSY */
    SBX_OP_GROUP         = 133,  /* what SBX_R_GROUP asked for */
    SBX_OP_WARM          = 134,  /* .token: the language of which a kernel is
                                    to be made ready; answer SBX_R_WARM */
    SBX_OP_HAND_OVER     = 135,  /* + a memfd as descriptor 4 of a start: what
                                    the session is from now on */
    SBX_OP_NETWORK       = 136,  /* .token: sbx_network_mode_t, which commands
                                    that begin see in their environment */
    SBX_OP_COMMANDS      = 137   /* answer SBX_R_HELD..., SBX_R_HELD_ALL */
} sbx_op_t;


/*
 * HELLO: this header alone.  HELLO_CONFIG: sbx_config_t after it in the same
 * datagram, answered on the connection itself by an sbx_hello_t.
 * HELLO_CONTROL is answered so too, once the connection would outlive the
 * broker; nothing else is ever written to it.  Calls need not wait for that.
 * HELLO_WATCH is answered at once: such a connection is not a server's, keeps
 * no broker alive and ends none, and takes only calls that look.
 */
typedef struct {
    uint32_t      magic;
    uint16_t      version;
    uint16_t      op;                     /* sbx_op_t */
    uint32_t      size;                   /* of the whole datagram */
    uint32_t      flags;                  /* SBX_CALL_* */
    char          request_id[SBX_REQUEST_ID + 8];      /* NUL terminated */
    char          session[SBX_ID_MAX + 8];  /* "" where none is meant */
    char          tenant[SBX_NAME_MAX + 8]; /* "" = any tenant may */
    char          user[SBX_NAME_MAX + 8];   /* "" = any user */
    uint32_t      needs;                  /* SBX_CREATE_* that the session must
                                             have, else E_TOKEN */
    uint32_t      bars;                   /* that it must not have */
} sbx_call_t;

/* Of a session that is there: OWNER comes before all other frames. */
#define SBX_CALL_OWNER        0x01
/* A paused session with SBX_CREATE_AUTO_RESUME is resumed first, and the call
 * goes on then. */
#define SBX_CALL_RESUME       0x02
/* The worker has sent it before, and nobody has answered: it may have been
 * done by a broker that has died since.  What was done once is not done again,
 * and is answered as it would have been. */
#define SBX_CALL_AGAIN        0x04
/* Of a CREATE without a key: the worker says END, without a payload, when its
 * client has been told.  A call that is closed without leaves no session. */
#define SBX_CALL_TELLS        0x08

#define SBX_CALL_FLAGS        0x0f    /* all of them */


/* After a sbx_call_t for SBX_OP_CREATE.  Descriptors: call, then the blob
 * memfd if any of its parts' sizes is not 0 (sealed: WRITE, SHRINK, GROW). */
typedef struct {
    char          template[SBX_TEMPLATE_MAX];
    char          key[SBX_KEY_MAX + 8];   /* Idempotency-Key or "" */
    uint8_t       body_digest[16];        /* of the request body, for key;
                                             without one at random, and not 0:
                                             tells what is sent AGAIN */
    sbx_limits_t  limits;                 /* settled; checked again.  disk
                                             may be SBX_UNSET, and then
                                             max_file_size too: they follow
                                             the kind of storage */
    uint32_t      capabilities;           /* SBX_CAP_* */
    uint32_t      flags;                  /* SBX_CREATE_* */
    uint32_t      meta_size;              /* JSON text, first in the blob */
    uint32_t      env_size;               /* "K=V\0" ..., second */
    uint32_t      rules_size;             /* sandbox_rules.h, third */
    uint32_t      network;                /* sbx_network_mode_t */
    uint32_t      network_size;           /* LISTS: its rules, fourth */
    uint32_t      pad;
    uint64_t      idle_timeout;           /* ms; 0: never ends for that */
} sbx_create_t;

#define SBX_CAP_SHELL              0x01
#define SBX_CAP_FILES              0x02
#define SBX_CAP_CODE               0x04
#define SBX_CAP_PORTS              0x08

#define SBX_CREATE_WEAK_OK         0x01   /* require_isolation: false */
#define SBX_CREATE_ON_TIMEOUT_PAUSE 0x02
#define SBX_CREATE_MEMORY_RLIMIT   0x04   /* each process has the memory
                                             limit as address space, too */
#define SBX_CREATE_TIED            0x08   /* answered without END: the session
                                             ends when the worker closes, and
                                             END comes when it has ended */
#define SBX_CREATE_AUTO_RESUME     0x10   /* for SBX_CALL_RESUME */

/* Kept, and told in SESSION: what they mean is the worker's. */
#define SBX_CREATE_NO_TOKEN        0x20   /* who has the id needs no token */
#define SBX_CREATE_PORT_TOKEN      0x40   /* its ports ask for one */

#define SBX_CREATE_FLAGS           0x7f   /* all of them */


/* After a sbx_call_t for SBX_OP_PATCH, and for SBX_OP_RESUME, which does it in
 * one with resuming (no metadata; without SBX_PATCH_TIMEOUT the session has
 * the time that was left).  The answer comes when the change is on disk; END's
 * .count of PAUSE and RESUME is 1 where the session was not so before.
 * Descriptors: call, then a memfd of the metadata, sealed as that of
 * a CREATE, if its size is not 0. */
typedef struct {
    uint64_t      timeout;                /* ms from now */
    uint32_t      flags;                  /* SBX_PATCH_* */
    uint32_t      meta_size;              /* JSON text, first in the memfd */
    uint32_t      network;                /* sbx_network_mode_t */
    uint32_t      network_size;           /* its rules, second */
} sbx_patch_t;

#define SBX_PATCH_TIMEOUT          0x01
#define SBX_PATCH_META             0x02
#define SBX_PATCH_EXTEND           0x04   /* TIMEOUT: never ends it earlier */
#define SBX_PATCH_NETWORK          0x08   /* connections that are no longer
                                             allowed are cut */

/* After a sbx_call_t for SBX_OP_END. */
typedef struct {
    uint64_t      grace;                  /* ms from SIGTERM to SIGKILL */
} sbx_end_t;

#define SBX_GRACE_MAX              600000


/* After a sbx_call_t for SBX_OP_LIST. */
typedef struct {
    char          template[SBX_TEMPLATE_MAX];   /* "" = any */
    uint32_t      status;                 /* 0 any, else sbx_status_t + 1 */
    uint32_t      pad;
    uint64_t      before;                 /* seq below this; 0 = newest */
    uint64_t      limit;                  /* sessions at most; 0 = all */
} sbx_list_t;


/* After a sbx_call_t for SBX_OP_SAMPLES: unix ms, both included. */
typedef struct {
    int64_t       start;
    int64_t       end;
    uint32_t      last;                   /* only the newest of these */
    uint32_t      pad;
} sbx_samples_t;


/* After a sbx_call_t for SBX_OP_EXEC: what the broker needs to make the
 * command's group ready.  SBX_UNSET fields follow the session's. */
typedef struct {
    uint64_t      memory;
    uint64_t      cpus;
    uint64_t      processes;
} sbx_exec_limits_t;


/* What keeps the files of sessions. */
typedef enum {
    SBX_STORAGE_AUTO,
    SBX_STORAGE_TMPFS,
    SBX_STORAGE_DIRECTORY,
    SBX_STORAGE_IMAGE
} sbx_storage_kind_t;

/*
 * Configuration, from the root master only.  Paths are absolute.
 */
typedef struct {
    uint64_t      uid_first;
    uint64_t      uid_count;
    sbx_limits_t  max;                    /* sandbox_max */
    uint32_t      require_isolation;
    uint32_t      storage;                /* sbx_storage_kind_t */
    uint32_t      binds_size;             /* bytes of .binds in use */
    uint32_t      pad;
    char          template_dir[SBX_PATH_MAX];
    char          cgroup[SBX_PATH_MAX];   /* "" = below the broker's own */
    char          storage_dir[SBX_PATH_MAX];  /* "" = the state directory */
    char          binds[SBX_BINDS_SIZE];  /* sandbox_rules.h */
    sbx_quota_config_t  quotas;           /* sandbox_quota.h */
    char          templates[SBX_TEMPLATES_MAX][SBX_TEMPLATE_MAX];
                                          /* names, "" where unused */
    uint8_t       defaults[32];           /* digest: tells that they changed */
    sbx_pools_config_t  pools;            /* sandbox_pool.h */
    uint32_t      egress_size;            /* bytes of .egress in use */
    uint32_t      egress_pad;
    char          egress[SBX_EGRESS_SIZE];    /* sandbox_network.h */

    /* what sessions install from; none of it opens the network.  Paths are
       absolute, or "" */
    char          packages[SBX_PACKAGES_PATH];       /* at SBX_PACKAGES */
    char          package_cache[SBX_PACKAGES_PATH];  /* at .._CACHE */
    char          trust[2][SBX_PACKAGES_PATH];       /* certificates, PEM */
    uint32_t      env_size;
    uint32_t      env_pad;
    char          env[SBX_OWN_ENV_MAX];   /* "K=V\0" ..., before those of the
                                             session itself, which win */
} sbx_config_t;

#define SBX_PACKAGES          "/opt/packages"
#define SBX_PACKAGE_CACHE     "/opt/package-cache"

/* The answer to HELLO_CONFIG. */
typedef struct {
    uint32_t      magic;
    uint32_t      ok;                     /* else error says why */
    sbx_error_t   error;
    int32_t       broker_pid;
    int32_t       keeper_pid;
    uint8_t       token_key[SBX_TOKEN_KEY];  /* of this state directory: the
                                                server's, to derive tokens of
                                                sessions from */
} sbx_hello_t;


/*
 * ---- frames on a call's own socket -------------------------------------
 */

typedef struct {
    uint32_t      length;                 /* payload, <= SBX_FRAME_MAX */
    uint16_t      type;                   /* sbx_frame_type_t */
    uint16_t      flags;                  /* 0 unless a type says */
} sbx_frame_t;


typedef enum {
    SBX_F_ERROR      = 1,     /* sbx_f_error_t; last */
    SBX_F_ACCEPTED   = 2,     /* empty: from here on the call has happened;
                                 again and again while a session is paused,
                                 so that nobody takes it for dead */
    SBX_F_END        = 3,     /* sbx_f_end_t; last */

    /* from the broker */
    SBX_F_SESSION    = 16,    /* sbx_f_session_t, then META frames */
    SBX_F_META       = 17,    /* next bytes of the session's metadata */
    SBX_F_HEALTH     = 18,    /* sbx_f_health_t */
    SBX_F_CHECK      = 19,    /* sbx_f_check_t, one for each check */
    SBX_F_CAPABILITY = 20,    /* sbx_f_capability_t, one for each */
    SBX_F_TEMPLATE   = 21,    /* sbx_f_template_t, one for each */
    SBX_F_QUOTA      = 26,    /* sbx_f_quota_t */
    SBX_F_SETTING    = 27,    /* sbx_f_setting_t, one for each */
    SBX_F_DRAIN      = 28,    /* sbx_f_drain_t */
    SBX_F_METRICS    = 32,    /* sbx_f_metrics_t */
    SBX_F_SAMPLE     = 34,    /* sbx_f_sample_t, oldest first */
    SBX_F_NETWORK    = 35,    /* a session's rules, after its SESSION where
                                 has_usage and network_size are not 0 */
    SBX_F_REFUSAL    = 36,    /* sbx_f_refusal_t */
    SBX_F_OWNER      = 33,    /* sbx_f_owner_t; it does not mean that the
                                 call has happened */
    SBX_F_SOCKET     = 89,    /* SCM_RIGHTS: a stream socket of AF_UNIX,
                                 connected, non-blocking; before init has the
                                 call, and no more than OWNER does it mean
                                 that it has happened */

    /* worker to init */
    SBX_F_EXEC       = 64,    /* sbx_f_exec_t, then STRINGS, then STDIN */
    SBX_F_STRINGS    = 65,    /* next bytes of the string table */
    SBX_F_STDIN      = 66,    /* bytes; empty = end of standard input */
    SBX_F_FILE       = 67,    /* sbx_f_file_t + strings, in one frame */
    SBX_F_DATA       = 68,    /* body of a PUT; empty = its end */
    SBX_F_PROCESS    = 69,    /* sbx_f_process_t; in an EXEC with a terminal
                                 too, for RESIZE and SIGNAL */
    SBX_F_PORT       = 70,    /* sbx_f_port_t */
    SBX_F_CODE       = 71,    /* sbx_f_code_t + names, in one frame; RUN: then
                                 STRINGS */

    /* init to worker */
    SBX_F_STARTED    = 80,    /* sbx_f_started_t */
    SBX_F_STDOUT     = 81,    /* bytes */
    SBX_F_STDERR     = 82,    /* bytes */
    SBX_F_EXIT       = 83,    /* sbx_f_exit_t; last */
    SBX_F_ENTRY      = 84,    /* sbx_f_entry_t + strings */
    SBX_F_OPENED     = 85,    /* sbx_f_entry_t + path; + SCM_RIGHTS, one
                                 regular file, read-only.  The call stays
                                 open while the worker sends the file: an
                                 EOF on it then means "stop sending" */
    SBX_F_READY      = 86,    /* a PUT may send its DATA frames, a process
                                 takes STDIN frames, a watch is set */
    SBX_F_STATE      = 87,    /* sbx_f_state_t + strings: a process */
    SBX_F_OUTPUT     = 88,    /* sbx_f_output_t: where the output begins */
    SBX_F_CHANGE     = 90,    /* sbx_f_change_t + path: a watch's event */
    SBX_F_MATCH      = 91,    /* sbx_f_match_t + path, line: of a search */
    SBX_F_CONTEXT    = 92,    /* sbx_f_context_t + strings */
    SBX_F_RESULT     = 93,    /* sbx_f_result_t, then its fields */
    SBX_F_FIELD      = 94,    /* sbx_f_field_t + its name, then PIECEs */
    SBX_F_PIECE      = 95,    /* next bytes of the field */
    SBX_F_RAN        = 96,    /* sbx_f_ran_t; last */
    SBX_F_LINE       = 97     /* sbx_f_line_t + strings */
} sbx_frame_type_t;


typedef struct {
    uint32_t      code;                   /* sbx_code_t */
    int32_t       err;
    char          text[248];
    char          scope[24];              /* organization, user, session */
    char          resource[24];           /* sessions, processes ... */
    uint64_t      limit;
    uint64_t      retry_after;            /* seconds; 0: waiting is no help */
    uint32_t      ended;                  /* sbx_ended_t of a dead session */
    uint32_t      pad;
    int64_t       ended_at;               /* unix ms */
    uint64_t      oldest[2];              /* E_OFFSET: what is kept begins */
    char          mend[400];              /* E_MANIFEST: the command that
                                             mends the machine, or "" */
} sbx_f_error_t;

/* A bare end carries zeros. */
typedef struct {
    uint64_t      next;                   /* LIST: before= of the next page;
                                             GLOB: entries skipped; 0: none */
    uint64_t      count;                  /* what the call counts */
    uint32_t      created;                /* PUT: 1 new, 0 replaced;
                                             CREATE: 1, 0 if by its key */
    uint32_t      truncated;
    uint64_t      size;                   /* PUT: bytes of the file */
} sbx_f_end_t;


typedef enum {
    SBX_STATUS_RUNNING,
    SBX_STATUS_PAUSED
} sbx_status_t;

typedef enum {
    SBX_ENDED_NOT,
    SBX_ENDED_DESTROYED,
    SBX_ENDED_EXPIRED,
    SBX_ENDED_IDLE,
    SBX_ENDED_ADMIN,
    SBX_ENDED_NODE_RESTART
} sbx_ended_t;

/* How a limit is enforced; the words are sbx_enforce_word()'s. */
typedef enum {
    SBX_BY_NONE,
    SBX_BY_CGROUP_V2,
    SBX_BY_CGROUP_V1,
    SBX_BY_RLIMIT,
    SBX_BY_TMPFS,
    SBX_BY_PROJECT_QUOTA,
    SBX_BY_IMAGE,
    SBX_BY_POLL,
    SBX_BY_FILTER
} sbx_enforce_t;

const char *sbx_enforce_word(sbx_enforce_t by);

typedef struct {
    uint8_t       memory;                 /* sbx_enforce_t each */
    uint8_t       cpus;
    uint8_t       cpu_seconds;
    uint8_t       processes;
    uint8_t       max_file_size;
    uint8_t       open_files;
    uint8_t       stack;
    uint8_t       disk;
    uint8_t       inodes;
    uint8_t       seccomp;
    uint8_t       userns;
    uint8_t       swap;
    uint8_t       cgroupns;
    uint8_t       pad[3];
} sbx_enforcement_t;

typedef struct {
    uint64_t      memory;                 /* bytes now */
    uint64_t      memory_peak;
    uint64_t      cpu_us;
    uint64_t      processes;
    uint64_t      disk;
    uint64_t      inodes;
    uint64_t      memory_cache;           /* of memory: files' pages */
    uint64_t      connections;            /* through the egress, now */
    uint64_t      network_sent;           /* bytes, since it was created */
    uint64_t      network_received;
    uint64_t      network_refused;        /* connections and names */
} sbx_usage_t;

/* What a session used.  Samples cover its whole life: where there are too
 * many of them, two become one each, and they are taken half as often. */
typedef struct {
    int64_t       time;                   /* unix ms */
    uint64_t      span;                   /* us since the one before */
    uint64_t      cpu_us;                 /* used in that span */
    uint64_t      memory;                 /* bytes */
    uint64_t      memory_cache;
    uint64_t      disk;
    uint64_t      disk_total;             /* bytes; the limit's, or that of
                                             the file system */
} sbx_f_sample_t;

#define SBX_SAMPLES_MAX         240

/* The session's own log, a ring of SBX_LINES_MAX lines and SBX_LINES_SIZE
 * bytes.  Strings follow: the message, then fields as "KEY=VALUE\0" ... */
typedef struct {
    int64_t       time;                   /* unix ms */
    uint32_t      level;                  /* sbx_line_level_t */
    uint32_t      message_len;            /* without a NUL */
    uint32_t      fields_len;
    uint32_t      pad;
} sbx_f_line_t;

typedef enum {
    SBX_LINE_DEBUG,
    SBX_LINE_INFO,
    SBX_LINE_WARN,
    SBX_LINE_ERROR
} sbx_line_level_t;

#define SBX_LINES_MAX           1000
#define SBX_LINES_SIZE          (128 * 1024)

typedef struct {
    char              id[SBX_ID_MAX + 8];
    char              tenant[SBX_NAME_MAX + 8];
    char              user[SBX_NAME_MAX + 8];
    char              template[SBX_TEMPLATE_MAX];
    uint64_t          seq;                /* order of creation, from 1 */
    int64_t           created;            /* unix ms */
    int64_t           expires;            /* unix ms */
    uint32_t          status;             /* sbx_status_t */
    uint32_t          capabilities;
    uint32_t          flags;              /* SBX_CREATE_* */
    uint32_t          isolated;           /* every layer is there */
    uint32_t          meta_size;          /* bytes in META frames after it */
    uint32_t          has_usage;
    sbx_limits_t      limits;
    sbx_enforcement_t enforcement;
    sbx_usage_t       usage;
    int64_t           paused;             /* unix ms; 0: it runs */
    uint64_t          left;               /* paused: ms that it will have */
    uint64_t          idle_timeout;       /* ms; 0: none */
    uint32_t          network;            /* sbx_network_mode_t */
    uint32_t          network_size;       /* bytes of its rules, in a NETWORK
                                             frame where has_usage is set */
    uint32_t          network_open;       /* nothing public is refused */
    uint32_t          network_pad;
} sbx_f_session_t;

typedef struct {
    uint32_t      ok;
    uint32_t      sessions;
    char          text[248];              /* why not; where ok: the layers
                                             that sessions do without */
} sbx_f_health_t;

typedef struct {
    char          name[40];
    uint32_t      ok;
    uint32_t      required;               /* without it no session is made */
    char          found[200];
    char          mend[400];              /* "" where ok */
} sbx_f_check_t;

typedef struct {
    char          name[40];               /* memory, seccomp ... */
    uint32_t      enforced;
    uint32_t      pad;
    char          by[80];                 /* "cgroup v2 memory.max" */
    char          mend[400];              /* "" where enforced */
} sbx_f_capability_t;

typedef struct {
    char          name[SBX_TEMPLATE_MAX];
    char          alias[SBX_TEMPLATE_MAX];  /* "" if none */
    char          description[200];
} sbx_f_template_t;


/*
 * EXEC.  string table: the working directory, then argc arguments, then envc
 * "K=V" strings, each with its NUL; strings_size bytes in STRINGS frames
 * right after this frame.  Then STDIN frames; their end, the empty one, is
 * always explicit, also when there is none.  It is the end of standard input
 * too, but with SBX_EXEC_STDIN_OPEN; on a terminal it is the character for it.
 * Without a timeout SBX_EXEC_BACKGROUND has none.
 */
typedef struct {
    uint32_t      flags;                  /* SBX_EXEC_* */
    uint32_t      user;                   /* sbx_user_t */
    uint32_t      argc;                   /* >= 1 */
    uint32_t      envc;                   /* the call's own variables */
    uint32_t      strings_size;           /* <= SBX_STRINGS_MAX */
    uint32_t      pad;
    uint64_t      timeout;                /* ms or SBX_UNLIMITED */
    uint64_t      max_output;             /* bytes of each stream sent with
                                             SBX_EXEC_CAP */
    uint64_t      cpu_seconds;            /* ms or SBX_UNLIMITED */
    uint64_t      max_file_size;          /* bytes */
    uint64_t      open_files;
    uint64_t      stack;                  /* bytes */
    uint32_t      rows;                   /* with SBX_EXEC_TTY; 0: 24, 80 */
    uint32_t      cols;
    char          tag[SBX_TAG_MAX + 8];   /* "" where there is none */
} sbx_f_exec_t;

#define SBX_EXEC_CAP            0x01      /* drop and count past max_output */
#define SBX_EXEC_MERGE          0x02      /* stderr into stdout */
#define SBX_EXEC_DETACH         0x04      /* goes on if the worker closes */
#define SBX_EXEC_STDIN_OPEN     0x08
#define SBX_EXEC_TTY            0x10
#define SBX_EXEC_BACKGROUND     0x20
#define SBX_EXEC_DEFAULT_CWD    0x40      /* cwd was left out: if it is gone,
                                             "/" */
#define SBX_EXEC_LONG           0x80      /* timeout may be more than the
                                             session's exec_timeout */

typedef struct {
    char          tenant[SBX_NAME_MAX + 8];
    char          user[SBX_NAME_MAX + 8];
} sbx_f_owner_t;

/* After SBX_OP_REFUSALS: what the egress refused a session, and where that was
 * to go.  The strings end within their arrays, and are printable. */
typedef struct {
    int64_t       at;                     /* unix ms */
    uint32_t      reason;                 /* sbx_refused_t */
    uint32_t      port;                   /* 0: none */
    uint32_t      more;                   /* of the session, that were not told
                                             before it */
    uint32_t      pad;
    char          session[SBX_ID_MAX + 8];
    char          tenant[SBX_NAME_MAX + 8];
    char          user[SBX_NAME_MAX + 8];
    char          address[48];            /* "192.0.2.1"; "": none */
    char          name[SBX_NETWORK_HOST_MAX + 3];    /* "": none */
} sbx_f_refusal_t;

typedef enum {
    SBX_USER_USER,                        /* 1000 */
    SBX_USER_ROOT                         /* the session's own root */
} sbx_user_t;

typedef struct {
    int32_t       pid;                    /* in the session's namespace */
    uint32_t      pad;
} sbx_f_started_t;

typedef enum {
    SBX_REASON_EXITED,
    SBX_REASON_SIGNAL,
    SBX_REASON_TIMEOUT,
    SBX_REASON_MEMORY,
    SBX_REASON_CPU_TIME,
    SBX_REASON_CANCELLED,
    SBX_REASON_DISCONNECTED,
    SBX_REASON_SESSION_ENDED,
    SBX_REASON_NOT_STARTED,
    SBX_REASON_MAX
} sbx_reason_t;

const char *sbx_reason_word(sbx_reason_t reason);

typedef struct {
    int32_t       pid;
    int32_t       exit_code;              /* 128 + n for a signal */
    int32_t       signal;                 /* 0 if none */
    uint32_t      reason;                 /* sbx_reason_t */
    uint32_t      flags;                  /* SBX_EXIT_* */
    uint32_t      pad;
    uint64_t      stdout_bytes;           /* all that was written */
    uint64_t      stderr_bytes;
    uint64_t      duration_us;
    uint64_t      cpu_user_us;
    uint64_t      cpu_system_us;
    uint64_t      memory_peak;            /* bytes */
    uint64_t      processes_peak;
    uint64_t      read_bytes;
    uint64_t      written_bytes;
    uint64_t      throttled_us;
} sbx_f_exit_t;

#define SBX_EXIT_TIMED_OUT      0x01
#define SBX_EXIT_OOM_KILLED     0x02
#define SBX_EXIT_CANCELLED      0x04
#define SBX_EXIT_OUT_TRUNCATED  0x08
#define SBX_EXIT_ERR_TRUNCATED  0x10


/*
 * PROCESS: one frame from the worker, after which init answers.  Processes are
 * known by the pid of their leader in the session's namespace: commands that
 * run, the newest SBX_PROCESSES_KEPT that have ended, and what ended commands
 * left behind.
 *
 * An EXEC with SBX_EXEC_BACKGROUND is answered by STARTED and, once the pipe
 * has taken its STDIN frames (or it has ended), by END: its output goes to
 * rings of max_output bytes, SBX_RINGS_MAX over all of a session (the oldest
 * bytes go first, but none that somebody who is attached has yet to read).
 * One with SBX_EXEC_DETACH becomes so when its worker goes; its output is in
 * rings from its start, so that nothing is lost that the worker had not got.
 */
typedef enum {
    SBX_PROCESS_LIST   = 1,   /* -> STATE..., END */
    SBX_PROCESS_GET    = 2,   /* -> STATE, END */
    SBX_PROCESS_OUTPUT = 3,   /* -> OUTPUT, STDOUT and STDERR that go on where
                                 OUTPUT says, then EXIT; ERROR E_OFFSET */
    SBX_PROCESS_STDIN  = 4,   /* -> READY; STDIN..., the empty one is the end
                                 of the call -> END; standard input's own end
                                 only with SBX_PROCESS_EOF */
    SBX_PROCESS_SIGNAL = 5,   /* -> END */
    SBX_PROCESS_RESIZE = 6,   /* -> END */
    SBX_PROCESS_LEAVE  = 7    /* the last frame in the call of an OUTPUT, or
                                 of an EXEC with SBX_EXEC_DETACH, whose worker
                                 is to end: its client comes back for .pid's
                                 output at .from, and until it does, or for
                                 SBX_HOLD_TIME, the process is held back as
                                 by a reader; no answer */
} sbx_process_verb_t;

typedef struct {
    uint32_t      verb;                   /* sbx_process_verb_t */
    int32_t       pid;                    /* 0: the EXEC's own, or LIST */
    uint32_t      flags;                  /* SBX_PROCESS_* */
    int32_t       signal;                 /* 1 .. 64 */
    uint32_t      rows;                   /* 1 .. 65535 */
    uint32_t      cols;
    uint64_t      from[2];                /* OUTPUT: SBX_UNSET, the oldest */
    char          tag[SBX_TAG_MAX + 8];   /* with .pid 0, of all but LIST: the
                                             newest of it that runs, or else
                                             that has ended */
} sbx_f_process_t;

#define SBX_PROCESS_EOF         0x01
#define SBX_PROCESS_FOREGROUND  0x02      /* SIGNAL: of a terminal, to what
                                             runs in its foreground */
#define SBX_PROCESS_LIVE        0x04      /* OUTPUT: what comes from now on */
#define SBX_PROCESS_TTY         0x08      /* STDIN, RESIZE: of a terminal; else
                                             E_CONFLICT, err ENOTTY */
#define SBX_PROCESS_PIPE        0x10      /* STDIN: of none; E_CONFLICT, err
                                             ENOTTY, or EPIPE: it is closed */
#define SBX_PROCESSES_KEPT      256
#define SBX_HOLD_TIME           10000000  /* us */
#define SBX_RINGS_MAX           (8 * 1024 * 1024)

typedef struct {
    uint64_t      from[2];                /* the next byte's offset */
    uint64_t      oldest[2];
    int32_t       pid;                    /* of whom */
    uint32_t      flags;                  /* SBX_STATE_* */
} sbx_f_output_t;

typedef enum {
    SBX_KIND_COMMAND,
    SBX_KIND_ORPHAN,                      /* left behind; has no result */
    SBX_KIND_TERMINAL,
    SBX_KIND_CODE
} sbx_kind_t;

/* Strings follow: working directory, tag, then argc arguments, then envc of
 * the call's own variables "K=V", each of these with its NUL; cut to 8 KiB in
 * all, SBX_STATE_CUT tells.  Those of an orphan,
 * and its start, are those of the command that left it behind. */
typedef struct {
    int32_t       pid;
    uint32_t      kind;                   /* sbx_kind_t */
    uint32_t      flags;                  /* SBX_STATE_* */
    uint32_t      user;                   /* sbx_user_t */
    uint32_t      argc;
    uint32_t      cwd_len;
    uint32_t      tag_len;                /* 0: none */
    uint32_t      args_len;
    uint32_t      envc;
    uint32_t      env_len;
    int64_t       started;                /* unix ms */
    sbx_f_exit_t  exit;                   /* with SBX_STATE_EXITED */
} sbx_f_state_t;

#define SBX_STATE_EXITED        0x01
#define SBX_STATE_PAUSED        0x02
#define SBX_STATE_STDIN_OPEN    0x04
#define SBX_STATE_TTY           0x08
#define SBX_STATE_CUT           0x10


/*
 * PORT: -> SOCKET from the broker, a link whose other end init is given; then,
 * from init, ACCEPTED: the program is connected, and what is said over the
 * link is said to it.  END comes before the link's end if the program has said
 * all; ERROR, or the call's end, if it was cut off.
 */
typedef struct {
    uint32_t      port;                   /* 1 .. 65535 */
    uint32_t      pad;
} sbx_f_port_t;


#endif
