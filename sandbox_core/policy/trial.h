/*
 * Whether calls that serve a session are slow of themselves.
 *
 * A call may take long because of what it does, or because interrupts were
 * served meanwhile, whose time no clock of a process leaves out on every
 * kernel, or because the virtual machine stood still.  Those hit whatever
 * runs, and who is busy most of all; and a session can make them for others.
 * So once calls for a session are suspected, each is followed by a control
 * that lasts four times as long and does the same for nobody.  What hits both
 * alike hits the control four times as often.
 */

#ifndef SBX_TRIAL_H
#define SBX_TRIAL_H

#include <stdint.h>


/* Of slow calls and slow controls the difference that ends it. */
#define SBX_TRIAL_GUILTY    10
#define SBX_TRIAL_INNOCENT  4

#define SBX_TRIAL_TIMES     4
#define SBX_TRIAL_MOST      1000          /* us of a call that are repeated */
#define SBX_TRIAL_FORGET    600000000     /* us without a slow call */


/* All zeroes: there is none, and a control only looks at the clock. */
typedef struct {
    int          fds[2];        /* to write to, to read from; 0: none */
    uint64_t   (*clock)(void *data);    /* us */
    void        *data;
} sbx_trial_probe_t;

/* All zeroes: it has not begun. */
typedef struct {
    unsigned     on:1;
    int          score;
    uint64_t     slow_at;
} sbx_trial_t;

typedef enum {
    SBX_TRIAL_OPEN = 0,
    SBX_TRIAL_IS_INNOCENT,      /* it is over, and may begin anew */
    SBX_TRIAL_IS_GUILTY
} sbx_trial_verdict_t;


/*
 * What a control does, as the calls do it: bytes through a UDP socket of this
 * network namespace's loopback (packets), or of a pair of AF_UNIX.  Where that
 * cannot be had it does nothing.
 */
void sbx_trial_probe_open(sbx_trial_probe_t *probe, int packets);
void sbx_trial_probe_close(sbx_trial_probe_t *probe);

/* us of this thread: the clock of a probe; data is not looked at. */
uint64_t sbx_trial_clock(void *data);

void sbx_trial_begin(sbx_trial_t *trial);
/* A call took so many us of the probe's clock, which was slow or not; a
 * control is slow with more than most at a stroke. */
sbx_trial_verdict_t sbx_trial_call(sbx_trial_t *trial,
    const sbx_trial_probe_t *probe, uint64_t took, int slow, uint64_t most);

#endif
