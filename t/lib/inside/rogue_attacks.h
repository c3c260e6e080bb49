/*
 * What a rogue init may tell a worker: each kind of frame with each fault,
 * and what is no matter of one frame.  The kinds of frames are the wire's own
 * enum: a new one does not compile here until it has its place.
 */

#ifndef ROGUE_ATTACKS_H
#define ROGUE_ATTACKS_H

#include "../../../sandbox_core/include/sandbox_task.h"

#include <stdio.h>
#include <string.h>

#pragma GCC diagnostic error "-Wswitch"


#define TYPES       120           /* and one far above */


typedef enum {
    SHAPE_FIXED,
    SHAPE_STRINGS,                /* a structure, and more after it */
    SHAPE_BYTES,
    SHAPE_EMPTY,
    SHAPE_NEVER                   /* nothing that a worker is ever told */
} shape_kind_t;

typedef struct {
    shape_kind_t  kind;
    size_t        size;
} shape_t;

typedef enum {
    FAULT_ZEROS,
    FAULT_ONES,
    FAULT_RANDOM,
    FAULT_SHORT,
    FAULT_LONG,
    FAULT_LARGE,
    FAULT_HUGE,
    FAULT_CUT,
    FAULT_FILE,
    FAULT_FILES,
    FAULT_MAX
} fault_t;

static const char  *faults[] = {
    "of zeros", "of ones", "of random bytes", "too short", "too long",
    "of 64 KB", "that says it is huge", "cut in the middle",
    "with a descriptor", "with two descriptors"
};

typedef enum {
    BEGIN_NOT,
    BEGIN_ACCEPTED,
    BEGIN_WELL,                   /* as a good answer of the kind does */
    BEGIN_MAX
} begin_t;

static const char  *begins[] = {
    "at first", "once accepted", "in the midst"
};

/* What is no matter of one frame. */

typedef enum {
    WHOLE_CLOSED,
    WHOLE_HEADER,                 /* three bytes of a header */
    WHOLE_PIECES,                 /* a good end, a byte at a time */
    WHOLE_TWICE,                  /* two ends */
    WHOLE_AFTER,                  /* an end, and much more */
    WHOLE_ACCEPTED,               /* accepted over and over */
    WHOLE_OUTPUT,
    WHOLE_ENTRIES,
    WHOLE_SHUT,                   /* says nothing more, and reads */
    WHOLE_CODE_NONE,              /* errors */
    WHOLE_CODE_MUCH,
    WHOLE_UNENDED,
    WHOLE_CONTROLS,
    WHOLE_LATIN,
    WHOLE_NUMBERS,
    WHOLE_SOCKET_TCP,             /* as if they were a port's */
    WHOLE_SOCKET_GARBAGE,
    WHOLE_SOCKET_UNMET,
    WHOLE_SOCKET_LISTENS,
    WHOLE_SOCKET_BLOCKS,
    WHOLE_SOCKET_UDP,
    WHOLE_SOCKET_UNIX,
    WHOLE_SOCKET_FILE,
    WHOLE_SOCKET_TWO,
    WHOLE_FILE_GOOD,              /* descriptors of a file */
    WHOLE_FILE_FIFO,
    WHOLE_FILE_DIRECTORY,
    WHOLE_FILE_NULL,
    WHOLE_FILE_ZERO,
    WHOLE_FILE_SOCKET,
    WHOLE_FILE_PATH,
    WHOLE_FILE_WRITES,
    WHOLE_FILE_BOTH,
    WHOLE_FILE_MEMFD,
    WHOLE_FILE_PROC,
    WHOLE_FILE_SHORTER,           /* than it is said to be */
    WHOLE_FILE_LONGER,
    WHOLE_FILE_NEGATIVE,
    WHOLE_FILE_SPARSE,
    WHOLE_FILE_SHRINKS,
    WHOLE_FILE_LATE,              /* it comes after its frame */
    WHOLE_MAX
} whole_t;

static const char  *wholes[] = {
    "nothing", "three bytes", "an end, a byte at a time", "two ends",
    "an end and much more", "accepted over and over", "much output",
    "many entries", "half closed", "an error of no code",
    "an error of a code that is none", "an error without an end",
    "an error of control characters", "an error that is no UTF-8",
    "an error of large numbers", "a socket that closes",
    "a socket of garbage", "a socket that is not connected",
    "a socket that listens", "a socket that blocks", "a socket of datagrams",
    "a local socket", "a file for a socket", "two sockets", "a file",
    "a FIFO", "a directory", "/dev/null", "/dev/zero", "a socket for a file",
    "an O_PATH descriptor", "a file for writing", "a file for both",
    "a memfd", "a file of /proc", "a file that is shorter",
    "a file that is longer", "a file of a negative size",
    "a sparse file of 1 TB", "a file that shrinks", "a file after its frame"
};

_Static_assert(sizeof(faults) / sizeof(faults[0]) == FAULT_MAX
               && sizeof(begins) / sizeof(begins[0]) == BEGIN_MAX
               && sizeof(wholes) / sizeof(wholes[0]) == WHOLE_MAX,
               "each has a name");


#define FIXED(frame, type)    case frame: return (shape_t)                   \
                                  { SHAPE_FIXED, sizeof(type) }
#define STRINGS(frame, type)  case frame: return (shape_t)                   \
                                  { SHAPE_STRINGS, sizeof(type) }
#define BYTES(frame)          case frame: return (shape_t)                   \
                                  { SHAPE_BYTES, 16 }
#define EMPTY(frame)          case frame: return (shape_t) { SHAPE_EMPTY, 0 }
#define NEVER(frame)          case frame: return (shape_t) { SHAPE_NEVER, 32 }


static shape_t
shape(sbx_frame_type_t type)
{
    switch (type) {
    FIXED(SBX_F_ERROR, sbx_f_error_t);
    EMPTY(SBX_F_ACCEPTED);
    FIXED(SBX_F_END, sbx_f_end_t);
    FIXED(SBX_F_SESSION, sbx_f_session_t);
    BYTES(SBX_F_META);
    FIXED(SBX_F_HEALTH, sbx_f_health_t);
    FIXED(SBX_F_CHECK, sbx_f_check_t);
    FIXED(SBX_F_CAPABILITY, sbx_f_capability_t);
    FIXED(SBX_F_TEMPLATE, sbx_f_template_t);
    FIXED(SBX_F_QUOTA, sbx_f_quota_t);
    FIXED(SBX_F_SETTING, sbx_f_setting_t);
    FIXED(SBX_F_DRAIN, sbx_f_drain_t);
    FIXED(SBX_F_METRICS, sbx_f_metrics_t);
    FIXED(SBX_F_SAMPLE, sbx_f_sample_t);
    BYTES(SBX_F_NETWORK);
    NEVER(SBX_F_REFUSAL);
    NEVER(SBX_F_OWNER);
    NEVER(SBX_F_EXEC);
    BYTES(SBX_F_STRINGS);
    NEVER(SBX_F_STDIN);
    NEVER(SBX_F_FILE);
    BYTES(SBX_F_DATA);
    NEVER(SBX_F_PROCESS);
    NEVER(SBX_F_PORT);
    NEVER(SBX_F_CODE);
    FIXED(SBX_F_STARTED, sbx_f_started_t);
    BYTES(SBX_F_STDOUT);
    BYTES(SBX_F_STDERR);
    FIXED(SBX_F_EXIT, sbx_f_exit_t);
    STRINGS(SBX_F_ENTRY, sbx_f_entry_t);
    STRINGS(SBX_F_OPENED, sbx_f_entry_t);
    EMPTY(SBX_F_READY);
    STRINGS(SBX_F_STATE, sbx_f_state_t);
    FIXED(SBX_F_OUTPUT, sbx_f_output_t);
    NEVER(SBX_F_SOCKET);          /* by init */
    STRINGS(SBX_F_CHANGE, sbx_f_change_t);
    STRINGS(SBX_F_MATCH, sbx_f_match_t);
    STRINGS(SBX_F_CONTEXT, sbx_f_context_t);
    FIXED(SBX_F_RESULT, sbx_f_result_t);
    STRINGS(SBX_F_FIELD, sbx_f_field_t);
    BYTES(SBX_F_PIECE);
    FIXED(SBX_F_RAN, sbx_f_ran_t);
    STRINGS(SBX_F_LINE, sbx_f_line_t);
    }

    return (shape_t) { SHAPE_NEVER, 8 };
}


/*
 * ---- attacks -------------------------------------------------------------
 */

typedef struct {
    uint32_t  type;
    fault_t   fault;
    begin_t   begin;
    whole_t   whole;              /* WHOLE_MAX: of one frame */
    int       bad;
} attack_t;

static attack_t  attacks[TYPES * FAULT_MAX * BEGIN_MAX + WHOLE_MAX];
static unsigned  nattacks;


/* Whether there is no call of which this could be a part. */

static int
is_bad(uint32_t type, fault_t fault)
{
    shape_t  s;

    s = shape((sbx_frame_type_t) type);

    switch (fault) {

    case FAULT_CUT:
    case FAULT_FILE:
    case FAULT_FILES:
        return 0;

    case FAULT_HUGE:
        return 1;

    case FAULT_SHORT:
        return s.kind == SHAPE_FIXED || s.kind == SHAPE_STRINGS
               || s.kind == SHAPE_NEVER;

    case FAULT_LONG:
    case FAULT_LARGE:
        return s.kind == SHAPE_FIXED || s.kind == SHAPE_EMPTY
               || s.kind == SHAPE_NEVER;

    default:
        return s.kind == SHAPE_NEVER;
    }
}


static void
attack_table(void)
{
    unsigned   type, fault, whole;
    attack_t  *a;

    for (type = 0; type < TYPES; type++) {

        /* of those that are none a few are enough */

        if (shape((sbx_frame_type_t) type).size == 8 && type % 16 != 0
            && type != TYPES - 1)
        {
            continue;
        }

        for (fault = 0; fault < FAULT_MAX; fault++) {
            a = &attacks[nattacks];
            a->type = type == TYPES - 1 ? 65535 : type;
            a->fault = (fault_t) fault;
            a->begin = (begin_t) (nattacks % BEGIN_MAX);
            a->whole = WHOLE_MAX;
            a->bad = is_bad(type, a->fault);
            nattacks++;
        }
    }

    for (whole = 0; whole < WHOLE_MAX; whole++) {
        a = &attacks[nattacks++];
        memset(a, 0, sizeof(*a));
        a->whole = (whole_t) whole;
        a->bad = whole >= WHOLE_SOCKET_TCP && whole <= WHOLE_SOCKET_TWO;
    }
}


static void
attack_list(void)
{
    unsigned         i;
    const attack_t  *a;

    for (i = 0; i < nattacks; i++) {
        a = &attacks[i];

        if (a->whole != WHOLE_MAX) {
            printf("%u %s - %s\n", i, a->bad ? "bad" : "any",
                   wholes[a->whole]);

        } else {
            printf("%u %s %d frame %u %s, %s\n", i, a->bad ? "bad" : "any",
                   (int) a->begin, a->type, faults[a->fault],
                   begins[a->begin]);
        }
    }
}


#endif
