/*
 * What the sockets cost that a session has the other ends of.
 *
 * Whoever watches the other end is woken within the call that sends, receives
 * or closes here, one by one, some hundred thousand times if he likes.  A call
 * that has taken long by a clock that costs next to nothing puts its session
 * into a small table; for as long as that had such a call of late, the time of
 * this thread is looked at instead.  A few calls that are slow by that begin a
 * trial (see trial.h), and whoever is found guilty is to be left alone for a
 * while, twice as long each time.
 *
 * Where a call may be divided, little is done with the sockets of a session
 * that has had a slow one, and twice as much after each that was none: each
 * piece that comes or goes wakes them all.
 *
 * All of it is of one thread.
 */

#ifndef SBX_COSTS_H
#define SBX_COSTS_H

#include "trial.h"
#include "sandbox_limits.h"
#include "sandbox_wire.h"

#include <stddef.h>
#include <stdint.h>


#define SBX_COSTS_SESSIONS  64
#define SBX_COSTS_SLOW      5000         /* us of a call */
#define SBX_COSTS_CALLS     3            /* that are slow, for a trial */
#define SBX_COSTS_WINDOW    10000000     /* us: within it */
#define SBX_COSTS_TRIAL     60000000     /* us without any, of a trial */
#define SBX_COSTS_FIRST     10           /* s to be left alone for */
#define SBX_COSTS_LEVELS    6            /* doubled so often */
#define SBX_COSTS_MOST      600
#define SBX_COSTS_FORGET    600000000    /* us after the end of it, a step */
#define SBX_COSTS_ROOM      65536        /* bytes: from there on, any */


typedef struct {
    char         session[SBX_ID_MAX + 8];
    uint64_t     slow_at;                /* us, on any clock */
    uint64_t     exact_until;
    uint64_t     since;                  /* of the slow calls counted */
    unsigned     slow;
    unsigned     level;
    uint64_t     until;                  /* left alone; 0: it is not */
    uint64_t     ended;                  /* when it last was */
    size_t       room;
    sbx_trial_t  trial;
} sbx_costs_of_t;

typedef struct {
    uint64_t           (*now)(void *data);       /* us */
    void                *data;
    sbx_trial_probe_t    probe;
    uint64_t             swept;          /* us */
    unsigned             used;
    sbx_costs_of_t       of[SBX_COSTS_SESSIONS];
} sbx_costs_t;

/* A call. */
typedef struct {
    uint64_t             at;
    uint64_t             own;            /* of this thread */
    unsigned             exact:1;
} sbx_costs_span_t;

typedef enum {
    SBX_COSTS_FINE = 0,
    SBX_COSTS_TRIED,            /* a control has taken time, too */
    SBX_COSTS_WAS_SLOW,
    SBX_COSTS_IS_GUILTY         /* from now on it is to be left alone */
} sbx_costs_verdict_t;


/* The clocks of the machine and of the thread, and the socket of controls. */
void sbx_costs_open(sbx_costs_t *costs);
void sbx_costs_close(sbx_costs_t *costs);

/* Around each call; errno stays as it is. */
void sbx_costs_begin(sbx_costs_t *costs, const char *session,
    sbx_costs_span_t *span);
sbx_costs_verdict_t sbx_costs_end(sbx_costs_t *costs, const char *session,
    const sbx_costs_span_t *span);

/* Seconds for which it is still to be left alone; 0: it is not. */
unsigned sbx_costs_left(sbx_costs_t *costs, const char *session);

/* Whether it has had a slow call of late. */
int sbx_costs_suspect(sbx_costs_t *costs, const char *session);

/* At most so many of these bytes are for one call. */
size_t sbx_costs_room(sbx_costs_t *costs, const char *session, size_t size);

#endif
