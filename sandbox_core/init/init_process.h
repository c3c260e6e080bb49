/*
 * Processes: what is known of them (process.c), what is kept of their output
 * (ring.c), and the calls about them (process_call.c and what it needs).
 */

#ifndef SBX_INIT_PROCESS_H
#define SBX_INIT_PROCESS_H

#include "init.h"

#include <sys/uio.h>


/* Calls about processes at once: those that stay, to read output and to write
 * input, and beside them those that are answered and over. */
#define SBX_INIT_STREAMS       128
#define SBX_INIT_CALLS         (SBX_INIT_STREAMS + 16)
#define SBX_INIT_STRINGS_KEPT  8192      /* bytes of directory, tag, arguments,
                                            variables that are kept of a
                                            command */
#define SBX_INIT_STATE_MAX     (sizeof(sbx_frame_t) + sizeof(sbx_f_state_t)  \
                                + SBX_INIT_STRINGS_KEPT)
#define SBX_INIT_FREE_HOLD     UINT64_MAX


/*
 * ---- rings: a stream's newest bytes ------------------------------------
 */

typedef struct {
    uint64_t              oldest;      /* offset of the first byte kept */
    uint64_t              next;        /* and of the next to come */
    uint64_t              hold;        /* from here on somebody has yet to
                                          read: _FREE_HOLD, nobody */
    uint64_t              limit;       /* bytes kept of what has been read */
    uint64_t              flight;      /* and of it so many before what has
                                          yet to be read, if there is room */
    uint32_t              first;       /* chunks; 0: none */
    uint32_t              last;
} sbx_init_ring_t;

/* How many of so many bytes may come now. */
uint64_t sbx_init_ring_room(const sbx_init_ring_t *ring, uint64_t want);
void sbx_init_ring_append(sbx_init_ring_t *ring, const uint8_t *data,
    size_t n);
/* Where n bytes at an offset are; the number of pieces filled. */
unsigned sbx_init_ring_peek(const sbx_init_ring_t *ring, uint64_t from,
    uint64_t n, struct iovec *iov, unsigned niov);
/* Lets go of what is over the limit. */
void sbx_init_ring_trim(sbx_init_ring_t *ring);
void sbx_init_ring_free(sbx_init_ring_t *ring);


/*
 * ---- processes ---------------------------------------------------------
 */

struct sbx_init_process_s {
    sbx_init_process_t   *next;        /* younger */
    sbx_init_process_t   *previous;
    sbx_init_command_t   *command;     /* NULL: it has ended */
    uint64_t              seq;
    uint64_t              ended;       /* the order of ends */
    unsigned              listed:1;    /* it has a pid */
    unsigned              ringed:1;    /* its output is kept */
    unsigned              readers;
    unsigned              flights;     /* calls that have output of it */
    sbx_init_ring_t       rings[2];
    size_t                size;        /* of the strings */
    sbx_f_state_t         state;
    char                  strings[];   /* as in the frame */
};

/* The first one that came after seq; NULL: none. */
sbx_init_process_t *sbx_init_process_after(uint64_t seq);
sbx_init_process_t *sbx_init_process_find(int32_t pid);
/* The newest of a tag that runs, or else that has ended. */
sbx_init_process_t *sbx_init_process_tagged(const char *tag);
/* What there is to tell of one, and its strings; NULL: none, no memory. */
char *sbx_init_process_copy(const sbx_init_process_t *process,
    sbx_f_state_t *state);
/* Fills a frame; its whole size. */
size_t sbx_init_process_frame(const sbx_init_process_t *process,
    uint8_t *buffer);
/* SBX_STATE_* as they are now. */
uint32_t sbx_init_process_flags(const sbx_init_process_t *process);
/* Output has come, or it is over: whoever is attached gets it. */
void sbx_init_process_feed(sbx_init_process_t *process);
/* The pipe takes more, or nothing any more. */
void sbx_init_process_input(sbx_init_command_t *c);
void sbx_init_process_input_closed(sbx_init_command_t *c);
/* The result is about to be forgotten. */
void sbx_init_process_gone(sbx_init_process_t *process);


/*
 * ---- what commands have left behind (orphan.c) -------------------------
 */

typedef struct {
    int                   group;       /* -1: before the first */
    int                   pid;
} sbx_init_turn_t;

/* The next one's pid; 0: that was the last. */
int sbx_init_orphan_next(sbx_init_turn_t *turn);
/* That one's SBX_F_STATE; what has been read is kept until _look(). */
size_t sbx_init_orphan_turn(const sbx_init_turn_t *turn, uint8_t *buffer);
void sbx_init_orphan_look(void);
int sbx_init_orphan_is(int pid);
/* Fills a frame; its whole size, or 0 if there is none any more. */
size_t sbx_init_orphan_frame(int pid, uint8_t *buffer);
/* 0, or -1 with errno. */
int sbx_init_orphan_signal(int pid, int sig);


/*
 * ---- calls about processes ---------------------------------------------
 */

typedef enum {
    SBX_INIT_CALL_FREE,
    SBX_INIT_CALL_ASKED,               /* waits for its frame */
    SBX_INIT_CALL_LISTS,
    SBX_INIT_CALL_LOGS,
    SBX_INIT_CALL_ENVS,
    SBX_INIT_CALL_READS,               /* attached to output */
    SBX_INIT_CALL_WRITES,              /* standard input */
    SBX_INIT_CALL_CANCELS,             /* waits for those that die */
    SBX_INIT_CALL_KILLS,               /* waits for the one that dies */
    SBX_INIT_CALL_CLOSING              /* answered */
} sbx_init_call_state_t;


struct sbx_init_call_s {
    sbx_init_call_state_t  state;
    unsigned               place;
    sbx_init_source_t      call;
    uint64_t               give_up;
    unsigned               blocked:1;  /* READS: waits for the socket */
    unsigned               orphan:1;   /* it is about one left behind */
    unsigned               flies:1;    /* READS, and after that */
    unsigned               leaves:1;   /* the worker has said so */

    sbx_f_process_t        ask;
    sbx_init_process_t    *process;
    uint8_t                frame[sizeof(sbx_frame_t)
                                 + sizeof(sbx_f_process_t)];
    size_t                 have;       /* of the frame */

    uint64_t               from[2];    /* READS: the next byte's offset */
    unsigned               stream;     /* of the frame that is being sent */
    uint64_t               pending;    /* of its bytes; WRITES: of the frame
                                          that comes; LOGS: the last line
                                          that is told */
    uint64_t               seq;        /* LISTS, LOGS: the last one told;
                                          READS, KILLS: of the process */
    sbx_init_turn_t        turn;       /* LISTS: of those left behind */
    uint64_t               count;      /* CANCELS, LOGS */

    size_t                 out_start;
    size_t                 out_end;
    size_t                 in_start;   /* of what is to be written */
    size_t                 in_end;

    /* not cleared for the next */
    uint8_t                out[SBX_INIT_STATE_MAX + 2048];
    uint8_t                in[SBX_INIT_STRINGS_KEPT];
};

void sbx_init_call_interest(sbx_init_call_t *call);
void sbx_init_call_send(sbx_init_call_t *call, sbx_frame_type_t type,
    const void *payload, size_t size);
void sbx_init_call_error(sbx_init_call_t *call, const sbx_error_t *e);
void sbx_init_call_refuse(sbx_init_call_t *call, const sbx_f_error_t *error);
void sbx_init_call_end(sbx_init_call_t *call, uint64_t count);
void sbx_init_call_exit(sbx_init_call_t *call, const sbx_f_exit_t *exit);
/* 1: everything of out is on its way. */
int sbx_init_call_flush(sbx_init_call_t *call);
void sbx_init_call_free(sbx_init_call_t *call);
sbx_init_call_t *sbx_init_call_each(sbx_init_call_t *previous);

/* process_kill.c */
void sbx_init_call_signal(sbx_init_call_t *call);
void sbx_init_call_cancel(sbx_init_call_t *call);
void sbx_init_kill_tick(uint64_t now);

/* process_output.c */
void sbx_init_reader_begin(sbx_init_call_t *call);
void sbx_init_reader_send(sbx_init_call_t *call);
void sbx_init_reader_end(sbx_init_call_t *call);
/* From where on its rings wait has changed. */
void sbx_init_reader_hold(sbx_init_process_t *process);
/* The worker has said something: -1, it has no place here. */
int sbx_init_reader_said(sbx_init_call_t *call);

/* hold.c: readers that are coming back */
void sbx_init_hold_place(sbx_init_process_t *process, const uint64_t from[2]);
/* A reader has come. */
void sbx_init_hold_take(sbx_init_process_t *process, const uint64_t from[2]);
/* Of one that is about to be forgotten; NULL: of all. */
void sbx_init_hold_drop(const sbx_init_process_t *process);
/* Lowers what is more than the places of a process. */
void sbx_init_hold_least(const sbx_init_process_t *process,
    uint64_t least[2]);
void sbx_init_hold_tick(uint64_t now);
void sbx_init_hold_thaw(uint64_t frozen_at, uint64_t now);

/* log.c */
void sbx_init_log_call(sbx_init_call_t *call);
void sbx_init_log_send(sbx_init_call_t *call);
void sbx_init_env_call(sbx_init_call_t *call);
void sbx_init_env_send(sbx_init_call_t *call);

/* process_input.c */
void sbx_init_writer_begin(sbx_init_call_t *call);
void sbx_init_writer_read(sbx_init_call_t *call);


#endif
