/*
 * Code: what the files of the engine share.  A context is an interpreter that
 * remembers, or the wish for one; its process is a command of a kind of its
 * own ("kernel"), see kernels/README.md for what is said to it.
 *
 *   code.c           calls, until their turn comes
 *   code_answer.c    what goes back to the workers
 *   code_context.c   contexts: which there are
 *   code_turn.c      who is next in one, restarts, ends
 *   code_kernel.c    the process: its group, start, interrupts and end
 *   code_setup.c     what a kernel is told before its first run
 *   code_pump.c      output and frames on their way to the call
 *   code_frame.c     frames of kernels, which are hostile
 *   code_files.c     what a run has changed in the workspace
 */

#ifndef SBX_INIT_CODE_H
#define SBX_INIT_CODE_H

#include "init.h"
#include "sandbox_languages.h"

#include <time.h>


#define SBX_CODE_CALLS        160      /* at once, of all verbs */
#define SBX_CODE_SLOTS        (SBX_CONTEXTS_MAX + 16)  /* deleted ones die */
#define SBX_CODE_WAITING      (4 * 1024 * 1024)  /* bytes of code that waits;
                                          as many of those that are next; and
                                          on their way to kernels */
#define SBX_CODE_AGAIN        65536    /* bytes of code that is kept for
                                          another try */
#define SBX_CODE_KEPT         65536    /* bytes of a stream between runs */
#define SBX_CODE_FRAME_MAX    (16 * 1024 * 1024)
#define SBX_CODE_FRAME_COST   256      /* what a frame counts beside what is in
                                          it */
#define SBX_CODE_FIELD_COST   64       /* and a field that is dropped */
#define SBX_CODE_TYPE_MAX     32
#define SBX_CODE_LINE_MAX     (SBX_FIELD_NAME_MAX + 16)
#define SBX_CODE_INTERRUPT    500000   /* us between signals */
#define SBX_CODE_READY_WAIT   60000000 /* us that a start may take */


typedef struct sbx_code_call_s     sbx_code_call_t;
typedef struct sbx_code_context_s  sbx_code_context_t;

typedef enum {
    SBX_CODE_CALL_FREE,
    SBX_CODE_CALL_ASKED,          /* waits for its frame */
    SBX_CODE_CALL_STRINGS,        /* in the queue; its strings come, or wait
                                     for room */
    SBX_CODE_CALL_QUEUED,         /* has all of them */
    SBX_CODE_CALL_TURN,           /* it is its context's .run */
    SBX_CODE_CALL_WAITS,          /* for a kernel's start or end */
    SBX_CODE_CALL_LISTS,
    SBX_CODE_CALL_CLOSING         /* answered */
} sbx_code_call_state_t;

struct sbx_code_call_s {
    sbx_code_call_state_t  state;
    unsigned               place;
    sbx_init_source_t      call;
    sbx_wire_t             in;
    uint8_t               *out;        /* what the socket did not take */
    size_t                 out_start;
    size_t                 out_end;
    uint8_t               *tail;       /* and what comes after that */
    size_t                 tail_start;
    size_t                 tail_end;
    size_t                 tail_held;  /* bytes of it that count */
    uint64_t               give_up;
    uint64_t               seq;
    sbx_code_call_t       *next;       /* in a list of the context's */
    sbx_code_context_t    *context;
    unsigned               whole:1;    /* all that the worker has to say */
    unsigned               starved:1;
    unsigned               head:1;     /* .strings are one that was next */
    unsigned               accepted:1;
    unsigned               sent:1;     /* the kernel has been given the run */
    unsigned               failed:1;   /* an error has been passed on */
    unsigned               again:1;    /* it is the second try */
    unsigned               created:1;  /* CREATE: the context is its own */
    unsigned               cursor;     /* LISTS */

    sbx_f_code_t           ask;
    char                  *strings;
    size_t                 have;

    uint64_t               turn;       /* us: when that came */
    uint64_t               deadline;
    struct timespec        since;      /* of files: changed after that */
    uint64_t               passed[2];  /* bytes of output */
    uint64_t               results;    /* bytes, as they count */
    sbx_f_ran_t            ran;
};


typedef enum {
    SBX_KERNEL_NONE,
    SBX_KERNEL_ASKED,             /* the broker for a group */
    SBX_KERNEL_ROOM,              /* has a group, waits for memory */
    SBX_KERNEL_STARTING,          /* until it is ready */
    SBX_KERNEL_READY,
    SBX_KERNEL_RUNNING,           /* until its frame "end" */
    SBX_KERNEL_DYING              /* killed; until all of it is over */
} sbx_kernel_state_t;

typedef enum {
    SBX_CODE_HEAD,                /* the line that begins a frame */
    SBX_CODE_DUE,                 /* what was written before it comes first */
    SBX_CODE_FIELD,
    SBX_CODE_VALUE,
    SBX_CODE_LF,
    SBX_CODE_SKIP
} sbx_code_parse_t;

typedef struct {
    uint8_t               *buf;        /* SBX_INIT_BUFFER, or NULL */
    size_t                 start;
    size_t                 end;
    sbx_code_parse_t       state;
    unsigned               type;
    size_t                 body;       /* bytes of it that are left */
    size_t                 value;      /* and of a field's value */
    unsigned               fields;     /* that were met */
    unsigned               forward:1;  /* the value goes to the call */
    unsigned               capture:1;
    unsigned               begun:1;    /* RESULT has been sent */
    char                   name[SBX_FIELD_NAME_MAX + 1];
    char                   number[24];
    size_t                 number_len;
    uint64_t               id;
    uint64_t               exit;
    unsigned               passed;     /* fields */
} sbx_code_parser_t;

typedef struct {
    char                  *data;       /* SBX_CODE_KEPT, or NULL */
    size_t                 start;
    size_t                 len;
} sbx_code_kept_t;


#define SBX_CODE_FRAMES    2           /* of .sources; 0 and 1 are streams */

struct sbx_code_context_s {
    unsigned               place;
    unsigned               used:1;
    unsigned               deleted:1;  /* lives until its kernel is dead */
    unsigned               over:1;     /* the process is; the rest is read */
    unsigned               starts:1;   /* wanted without a run */
    unsigned               warm:1;     /* the broker waits for it */
    unsigned               untold:1;   /* and is to be told */
    unsigned               late:1;     /* killed: it was not ready in time */
    unsigned               setup:1;    /* it is to be told what there is */
    unsigned               pumping:1;
    unsigned               again:1;
    unsigned               due:1;
    unsigned               unread:1;   /* it has died with a frame unread */
    char                   id[SBX_CONTEXT_MAX + 1];
    char                  *cwd;        /* as it was given */
    unsigned               number;     /* of its language */
    sbx_language_t         language;

    sbx_kernel_state_t     kernel;
    uint32_t               token;
    uint64_t               ask;        /* us: again then */
    sbx_init_command_t    *command;
    uint64_t               ready_by;
    uint64_t               ready_at;
    uint64_t               executions;
    sbx_f_exit_t           exit;
    int                    failed;     /* errno of its exec, or 0 */
    uint32_t               told;       /* sbx_reason_t, of .untold */
    char                  *preload;
    size_t                 preload_size;

    sbx_init_source_t      sources[3];
    unsigned               readable[3];
    uint64_t               dues[2];    /* bytes that come before a frame */
    uint64_t               left[3];    /* over: bytes that are still there */
    uint64_t               paused[3];  /* not read until then, unless 0 */
    uint64_t               read[3];    /* when, last */
    unsigned               crumbs;     /* small reads of frames in a run */
    size_t                 dropped;    /* bytes of frames, since a pause */
    sbx_code_kept_t        kept[2];
    sbx_code_parser_t      parser;
    uint64_t               retry;      /* us: to go on without an event */
    size_t                 budget;

    char                  *frame;      /* on its way to the kernel */
    size_t                 frame_start;
    size_t                 frame_end;

    sbx_code_call_t       *run;
    sbx_code_call_t       *queue;
    sbx_code_call_t       *waiters;    /* CREATE, RESTART, DELETE */
    sbx_reason_t           cut;        /* why the run is interrupted */
    uint64_t               cut_next;   /* us: the next signal; 0: none */
    uint64_t               cut_kill;
};


/* code.c */
sbx_code_call_t *sbx_code_call_each(sbx_code_call_t *previous);
void sbx_code_call_free(sbx_code_call_t *call);
void sbx_code_interest(sbx_code_call_t *call);
/* A call is the next one, and may wait for room. */
void sbx_code_head(sbx_code_call_t *call);
void sbx_code_strings_free(sbx_code_call_t *call);
/* A run has, after so many microseconds. */
void sbx_code_ended(uint64_t duration);
void sbx_code_calls_tick(uint64_t now);

/* code_answer.c */
/* 1: there is room for so many bytes (or nobody to send them to). */
int sbx_code_room(sbx_code_call_t *call, size_t need);
/* A frame of two parts, where there is room. */
void sbx_code_put(sbx_code_call_t *call, sbx_frame_type_t type,
    const void *p, size_t n, const void *p2, size_t n2);
/* Room at the end of the tail for files: so much of all calls together is
 * held for workers that do not read, and no more.  NULL: there is none. */
uint8_t *sbx_code_tail(sbx_code_call_t *call, size_t size);
void sbx_code_tail_free(sbx_code_call_t *call);
/* 1: all that there was has gone. */
int sbx_code_flush(sbx_code_call_t *call);
void sbx_code_context_frame(sbx_code_call_t *call,
    const sbx_code_context_t *context);
size_t sbx_code_cwd(const sbx_code_context_t *context, char *path);
/* The last frames of a call. */
void sbx_code_error(sbx_code_call_t *call, const sbx_error_t *e);
void sbx_code_refuse(sbx_code_call_t *call, const sbx_f_error_t *error);
void sbx_code_quota(sbx_code_call_t *call, const char *resource,
    uint64_t limit, const char *text);
void sbx_code_end(sbx_code_call_t *call);
void sbx_code_ran(sbx_code_call_t *call);
/* The RAN of one that never came to its turn. */
void sbx_code_never(sbx_code_call_t *call, sbx_reason_t reason,
    uint32_t flags);

/* code_context.c */
sbx_code_context_t *sbx_code_context_each(sbx_code_context_t *previous);
/* What a call is about, made if it may be; NULL fills e. */
sbx_code_context_t *sbx_code_context_of(sbx_code_call_t *call,
    const char *id, const char *language, const char *cwd, sbx_error_t *e);
sbx_code_context_t *sbx_code_context_default(unsigned language);
/* It has no kernel, and nobody runs in it or waits for that. */
void sbx_code_free(sbx_code_context_t *context);
void sbx_code_queue(sbx_code_context_t *context, sbx_code_call_t *call);
void sbx_code_unqueue(sbx_code_context_t *context, sbx_code_call_t *call);
unsigned sbx_code_waiting(const sbx_code_context_t *context);
void sbx_code_wait(sbx_code_context_t *context, sbx_code_call_t *call);
void sbx_code_unwait(sbx_code_context_t *context, sbx_code_call_t *call);

/* code_turn.c */
/* The next one's turn, a start that is wanted. */
void sbx_code_next(sbx_code_context_t *context);
void sbx_code_delete(sbx_code_context_t *context, sbx_code_call_t *call);
void sbx_code_restart(sbx_code_context_t *context, sbx_code_call_t *call);
/* The worker of the one that runs is gone. */
void sbx_code_left(sbx_code_context_t *context);
/* The kernel is ready, or not to be had. */
void sbx_code_started(sbx_code_context_t *context);
void sbx_code_lost(sbx_code_context_t *context, const sbx_f_error_t *error);
/* Its kernel is over, all of it has been read. */
void sbx_code_over(sbx_code_context_t *context);
/* The frame "end" has come. */
void sbx_code_finish(sbx_code_context_t *context);

/* code_kernel.c */
void sbx_code_start(sbx_code_context_t *context);
void sbx_code_ready(sbx_code_context_t *context);
void sbx_code_run(sbx_code_context_t *context);
/* 0: all of the frame is on its way; -1: the kernel is gone. */
int sbx_code_write(sbx_code_context_t *context);
/* Its socket has ended. */
void sbx_code_mute(sbx_code_context_t *context);
void sbx_code_unwrite(sbx_code_context_t *context);
void sbx_code_interrupt(sbx_code_context_t *context, sbx_reason_t reason);
/* 1: something is dying; 0: there was no process. */
int sbx_code_kill(sbx_code_context_t *context, sbx_reason_t reason);
void sbx_code_kernel_tick(sbx_code_context_t *context, uint64_t now);
/* Appends a field to a frame's body; -1: no memory. */
int sbx_code_append(char **body, size_t *size, size_t *used,
    const char *name, const char *value, size_t len);
int sbx_code_frame(sbx_code_context_t *context, const char *type,
    char *body, size_t size);

/* code_setup.c */
void sbx_code_setup(sbx_code_context_t *context);
/* The broker waits to hear: 0, or why there is none. */
void sbx_code_warmed(sbx_code_context_t *context, uint32_t reason);
void sbx_code_setup_tick(sbx_code_context_t *context, uint64_t now);

/* code_pump.c */
void sbx_code_pump(sbx_code_context_t *context);
void sbx_code_pump_open(sbx_code_context_t *context);
void sbx_code_pump_close(sbx_code_context_t *context);
/* What is in pipes and socket now is the rest. */
void sbx_code_pump_last(sbx_code_context_t *context);
void sbx_code_pump_tick(sbx_code_context_t *context, uint64_t now);

/* code_frame.c: 1 went on, 0 more bytes or room are needed, -1 malformed */
int sbx_code_parse(sbx_code_context_t *context);

/* code_files.c: appends ENTRY frames to the tail, counts them in ran. */
void sbx_code_files(sbx_code_call_t *call);


#endif
