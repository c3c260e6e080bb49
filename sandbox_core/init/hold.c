/*
 * Places of readers that are coming back.  A worker that leaves says where
 * its client goes on, and until the client is there, or the time is over, the
 * process is held back as by a reader that is slow.
 *
 * What a worker's socket has taken its client need not have got.  While such
 * a call is open, rings keep that much of what has been read (their flight),
 * so that there is something left for a place to be held at.
 */

#include "init_process.h"

#include <string.h>


/* At one leave each call may have one. */
#define SBX_INIT_HOLDS         (SBX_INIT_CALLS + SBX_COMMANDS_MAX)

/* More than a call's buffers and its socket hold, on both sides. */
#define SBX_INIT_FLIGHT        524288


typedef struct {
    sbx_init_process_t   *process;     /* NULL: free */
    uint64_t              from[2];
    uint64_t              start;
    uint64_t              until;
} sbx_init_hold_t;


static sbx_init_hold_t  sbx_init_holds[SBX_INIT_HOLDS];
static unsigned         sbx_init_holds_used;


static void
sbx_init_hold_free(sbx_init_hold_t *hold)
{
    sbx_init_process_t  *process;

    process = hold->process;
    memset(hold, 0, sizeof(sbx_init_hold_t));
    sbx_init_holds_used--;

    sbx_init_reader_hold(process);
}


/* A free one, or the one that has waited for longest. */

static sbx_init_hold_t *
sbx_init_hold_new(void)
{
    unsigned          i;
    sbx_init_hold_t  *hold;

    hold = &sbx_init_holds[0];

    for (i = 0; i < SBX_INIT_HOLDS && hold->process != NULL; i++) {
        if (sbx_init_holds[i].process == NULL
            || sbx_init_holds[i].until < hold->until)
        {
            hold = &sbx_init_holds[i];
        }
    }

    if (hold->process != NULL) {
        sbx_init_hold_free(hold);
    }

    return hold;
}


void
sbx_init_hold_place(sbx_init_process_t *process, const uint64_t from[2])
{
    unsigned          i;
    sbx_init_hold_t  *hold;

    for (i = 0; i < 2; i++) {
        if (from[i] > process->rings[i].next
            || from[i] < process->rings[i].oldest)
        {
            return;
        }
    }

    hold = sbx_init_hold_new();
    hold->process = process;
    hold->from[0] = from[0];
    hold->from[1] = from[1];
    hold->start = sbx_now_us();
    hold->until = hold->start + SBX_HOLD_TIME;
    sbx_init_holds_used++;

    sbx_init_reader_hold(process);
    sbx_init_loop_wake(hold->until);
}


/* Of those that the reader has yet to come to, the nearest. */

void
sbx_init_hold_take(sbx_init_process_t *process, const uint64_t from[2])
{
    unsigned          i;
    sbx_init_hold_t  *hold, *nearest;

    nearest = NULL;

    for (i = 0; i < SBX_INIT_HOLDS && sbx_init_holds_used != 0; i++) {
        hold = &sbx_init_holds[i];

        if (hold->process == process
            && from[0] <= hold->from[0] && from[1] <= hold->from[1]
            && (nearest == NULL
                || hold->from[0] - from[0] + (hold->from[1] - from[1])
                   < nearest->from[0] - from[0]
                     + (nearest->from[1] - from[1])))
        {
            nearest = hold;
        }
    }

    if (nearest != NULL) {
        sbx_init_hold_free(nearest);
    }
}


void
sbx_init_hold_drop(const sbx_init_process_t *process)
{
    unsigned  i;

    for (i = 0; i < SBX_INIT_HOLDS && sbx_init_holds_used != 0; i++) {
        if (sbx_init_holds[i].process != NULL
            && (process == NULL || sbx_init_holds[i].process == process))
        {
            sbx_init_hold_free(&sbx_init_holds[i]);
        }
    }
}


void
sbx_init_hold_least(const sbx_init_process_t *process, uint64_t least[2])
{
    unsigned  i, k;

    for (i = 0; i < SBX_INIT_HOLDS && sbx_init_holds_used != 0; i++) {
        for (k = 0; k < 2 && sbx_init_holds[i].process == process; k++) {
            if (sbx_init_holds[i].from[k] < least[k]) {
                least[k] = sbx_init_holds[i].from[k];
            }
        }
    }
}


void
sbx_init_hold_tick(uint64_t now)
{
    unsigned          i;
    sbx_init_hold_t  *hold;

    if (sbx_init_paused()) {
        return;
    }

    for (i = 0; i < SBX_INIT_HOLDS && sbx_init_holds_used != 0; i++) {
        hold = &sbx_init_holds[i];

        if (hold->process != NULL && now >= hold->until) {
            sbx_init_hold_free(hold);

        } else if (hold->process != NULL) {
            sbx_init_loop_wake(hold->until);
        }
    }
}


void
sbx_init_hold_thaw(uint64_t frozen_at, uint64_t now)
{
    uint64_t          stood;
    unsigned          i;
    sbx_init_hold_t  *hold;

    for (i = 0; i < SBX_INIT_HOLDS && sbx_init_holds_used != 0; i++) {
        hold = &sbx_init_holds[i];

        if (hold->process != NULL) {
            stood = now - (hold->start > frozen_at ? hold->start : frozen_at);
            hold->start += stood;
            hold->until += stood;
        }
    }
}


/* ---- calls whose worker may leave --------------------------------------- */


void
sbx_init_flight_begin(sbx_init_process_t *process)
{
    process->flights++;
    process->rings[0].flight = SBX_INIT_FLIGHT;
    process->rings[1].flight = SBX_INIT_FLIGHT;
}


/* It may have been forgotten meanwhile, and its number be another's. */

static sbx_init_process_t *
sbx_init_flight_of(int32_t pid, uint64_t seq)
{
    sbx_init_process_t  *process;

    process = sbx_init_process_find(pid);

    return process != NULL && process->seq == seq ? process : NULL;
}


void
sbx_init_flight_end(int32_t pid, uint64_t seq)
{
    sbx_init_process_t  *process;

    process = sbx_init_flight_of(pid, seq);

    if (process != NULL && --process->flights == 0) {
        process->rings[0].flight = 0;
        process->rings[1].flight = 0;
        sbx_init_ring_trim(&process->rings[0]);
        sbx_init_ring_trim(&process->rings[1]);
    }
}


int
sbx_init_flight_leaves(int32_t pid, uint64_t seq, const sbx_frame_t *frame,
    const void *payload)
{
    sbx_f_process_t      ask;
    sbx_init_process_t  *process;

    if (frame->type != SBX_F_PROCESS || frame->length != sizeof(ask)) {
        return -1;
    }

    memcpy(&ask, payload, sizeof(ask));

    if (ask.verb != SBX_PROCESS_LEAVE || ask.flags != 0 || ask.pid != pid) {
        return -1;
    }

    process = sbx_init_flight_of(pid, seq);

    if (process != NULL && !sbx_init.ending) {
        sbx_init_hold_place(process, ask.from);
    }

    return 0;
}
