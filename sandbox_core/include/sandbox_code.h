/*
 * The wire's part about code: what calls of SBX_OP_CODE say and are told.
 */

#ifndef SANDBOX_CODE_H
#define SANDBOX_CODE_H

#include <stdint.h>


/*
 * CODE: one frame from the worker with its names (context, language, working
 * directory, without NULs).  "" as a context is the language's own, made when
 * it is first used; "" as a language is the context's, or "python".
 *
 * A RUN is queued behind the context's others.  ACCEPTED comes when init has
 * the whole of it, CONTEXT (which context it is) when its turn has come; until
 * then a close takes it out of the queue, and from then on it interrupts it.
 * STDOUT, STDERR and RESULTs follow, each kind in its order, and what was
 * written before a result before it; then an ENTRY for each file of the
 * workspace that has been created or changed, then RAN.  A result's fields end
 * with an empty one (no name, no size); one that has not come to that when
 * another frame does is to be dropped: its kernel died.
 */
typedef enum {
    SBX_CODE_RUN       = 1,   /* -> ACCEPTED, CONTEXT, ..., RAN */
    SBX_CODE_CREATE    = 2,   /* a new context; -> CONTEXT, END once its
                                 kernel is ready */
    SBX_CODE_LIST      = 3,   /* -> CONTEXT..., END */
    SBX_CODE_DELETE    = 4,   /* -> END; its runs are answered */
    SBX_CODE_RESTART   = 5    /* -> CONTEXT, END once the kernel is ready */
} sbx_code_verb_t;

typedef struct {
    uint32_t      verb;                   /* sbx_code_verb_t */
    uint32_t      flags;                  /* SBX_CODE_F_* */
    uint32_t      context_len;            /* <= SBX_CONTEXT_MAX */
    uint32_t      language_len;           /* <= SBX_LANGUAGE_MAX */
    uint32_t      cwd_len;                /* < SBX_PATH_MAX; CREATE */
    uint32_t      envc;                   /* RUN: the run's own variables */
    uint32_t      code_size;              /* first in the strings, no NUL in
                                             it and none after it */
    uint32_t      strings_size;           /* code, then "K=V\0" ...; at most
                                             SBX_CODE_STRINGS_MAX */
    uint64_t      timeout;                /* RUN: ms or SBX_UNLIMITED, from
                                             when its turn has come;
                                             SBX_UNSET: 30 s, or what the
                                             session has, if that is less */
    uint64_t      max_output;             /* RUN: bytes of each stream sent
                                             with SBX_CODE_F_CAP */
} sbx_f_code_t;

#define SBX_CODE_F_CAP          0x01      /* drop and count past max_output */

#define SBX_CONTEXT_MAX         64        /* bytes of an id, [A-Za-z0-9_-] */
#define SBX_LANGUAGE_MAX        32        /* [a-z0-9_] */
#define SBX_LANGUAGES_MAX       16
#define SBX_CONTEXTS_MAX        32        /* of a session */
#define SBX_RUNS_MAX            64        /* waiting, of a session */
#define SBX_CODE_STRINGS_MAX    (1024 * 1024 + 65536)
#define SBX_RESULTS_MAX         (10 * 1024 * 1024)  /* bytes of all fields of
                                             a run, with some for each result;
                                             what is over is dropped */

typedef enum {
    SBX_CONTEXT_STARTING,
    SBX_CONTEXT_IDLE,
    SBX_CONTEXT_RUNNING
} sbx_context_state_t;

/* Strings follow: id, language, working directory. */
typedef struct {
    uint32_t      state;                  /* sbx_context_state_t */
    uint32_t      id_len;
    uint32_t      language_len;
    uint32_t      cwd_len;
    int32_t       pid;                    /* of its kernel; 0: none */
    uint32_t      waiting;                /* runs */
    uint64_t      executions;             /* of this kernel */
} sbx_f_context_t;

typedef enum {
    SBX_RESULT_DISPLAY,                   /* fields are named by MIME type */
    SBX_RESULT_MAIN,                      /* that, of the last expression */
    SBX_RESULT_ERROR                      /* name, value, traceback */
} sbx_result_kind_t;

typedef struct {
    uint32_t      kind;                   /* sbx_result_kind_t */
    uint32_t      fields;                 /* 0: the empty one ends them */
} sbx_f_result_t;

#define SBX_RESULT_FIELDS_MAX   32

/* UTF-8; images and PDF as base64, JSON types as JSON text, not checked. */
typedef struct {
    uint64_t      size;                   /* of the PIECEs in all */
    uint32_t      name_len;               /* 1 .. SBX_FIELD_NAME_MAX; 0: the
                                             result is complete */
    uint32_t      pad;
} sbx_f_field_t;

#define SBX_FIELD_NAME_MAX      128

typedef struct {
    int32_t       exit_code;              /* bash: of the last command; else
                                             0, or 1 with an error; of a
                                             kernel that died its own */
    int32_t       signal;                 /* that a kernel died of, or 0 */
    uint32_t      reason;                 /* sbx_reason_t: EXITED where the
                                             kernel lives and has ended the
                                             run by itself, TIMEOUT, CANCELLED
                                             where it was interrupted; else
                                             what the kernel died of */
    uint32_t      flags;                  /* SBX_RAN_* */
    uint64_t      execution;              /* number in the kernel, from 1 */
    uint64_t      stdout_bytes;           /* all that was written */
    uint64_t      stderr_bytes;
    uint64_t      duration_us;
    uint64_t      started_us;             /* until the kernel was ready */
    uint64_t      files;                  /* that changed; with _FILES_CUT at
                                             least */
} sbx_f_ran_t;

#define SBX_RAN_TIMED_OUT       0x01
#define SBX_RAN_DIED            0x02      /* the kernel; the next run has a
                                             new one */
#define SBX_RAN_OOM_KILLED      0x04
#define SBX_RAN_OUT_TRUNCATED   0x08
#define SBX_RAN_ERR_TRUNCATED   0x10
#define SBX_RAN_RESULTS_CUT     0x20
#define SBX_RAN_FILES_CUT       0x40
#define SBX_RAN_CANCELLED       0x80


#endif
