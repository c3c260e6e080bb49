/*
 * The broker's event loop: epoll, timers, and nothing that waits.  One
 * thread.  Handlers may add and delete any event or timer, their own too.
 */

#ifndef SBX_LOOP_H
#define SBX_LOOP_H

#include "sandbox_error.h"

#include <stddef.h>
#include <sys/epoll.h>


typedef struct sbx_event_s  sbx_event_t;
typedef struct sbx_timer_s  sbx_timer_t;


struct sbx_event_s {
    int           fd;             /* not owned */
    uint32_t      events;         /* EPOLL* that are asked for */
    void        (*handler)(sbx_event_t *ev, uint32_t events);
    void         *data;
    unsigned      active:1;
};

/*
 * A node of the loop's heap, whose memory is its owner's: setting a timer
 * needs none, so it cannot fail, and what a timer is to end does end.
 */

struct sbx_timer_s {
    uint64_t      at;             /* microseconds, monotonic */
    void        (*handler)(sbx_timer_t *timer);
    void         *data;
    sbx_timer_t  *child;          /* the first of those that are later */
    sbx_timer_t  *next;           /* of the same parent */
    sbx_timer_t  *prev;           /* of the same; or the parent */
    unsigned      set:1;
};

typedef struct {
    int           epoll;
    sbx_timer_t  *first;          /* the next timer; NULL: none is set */
    void        **garbage;
    size_t        ngarbage;
    size_t        garbage_size;
    unsigned      stop:1;
} sbx_loop_t;


int sbx_loop_init(sbx_loop_t *loop, sbx_error_t *e);
void sbx_loop_done(sbx_loop_t *loop);

/* Until sbx_loop_stop(). */
int sbx_loop_run(sbx_loop_t *loop, sbx_error_t *e);
void sbx_loop_stop(sbx_loop_t *loop);

/* Frees p when no handler of this round can meet it any more. */
void sbx_loop_free(sbx_loop_t *loop, void *p);

int sbx_event_add(sbx_loop_t *loop, sbx_event_t *ev, int fd,
    uint32_t events);
void sbx_event_set(sbx_loop_t *loop, sbx_event_t *ev, uint32_t events);
/* Before the descriptor is closed. */
void sbx_event_del(sbx_loop_t *loop, sbx_event_t *ev);

/* Sets or moves; ms from now. */
void sbx_timer_set(sbx_loop_t *loop, sbx_timer_t *timer, uint64_t ms);
void sbx_timer_del(sbx_loop_t *loop, sbx_timer_t *timer);


#endif
