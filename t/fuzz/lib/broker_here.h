/*
 * A broker in this process, with its keeper, on a machine that does nothing
 * (machine.h): what a target of it says to it is what workers, the first
 * processes of sessions, the egress and the keeper would.
 */

#ifndef SBX_FUZZ_BROKER_HERE_H
#define SBX_FUZZ_BROKER_HERE_H

#include "machine.h"

#include "broker.h"
#include "keeper.h"

#include <setjmp.h>


#define BROKER_CALLS      48           /* of one input */
#define BROKER_PROCESSES  64
#define BROKER_CONTROLS   4
#define BROKER_KEPT       512


/* Who would be a session's first process, or the egress. */
typedef struct {
    char       id[SBX_ID_MAX + 8];     /* "": the egress */
    pid_t      pid;                    /* 0: its place is free */
    int        pidfd;                  /* that somebody may look at */
    int        peer;                   /* its end of its control socket; -1 */
    unsigned   dead:1;                 /* nobody has waited for it yet */
    unsigned   orphan:1;               /* nor will: its keeper has died */
} process_t;

/* What a launch comes to. */
enum { LAUNCH_READY, LAUNCH_SILENT, LAUNCH_FAILS, LAUNCH_NOT };

/* A call, as its worker has it. */
typedef struct {
    int           fd;                  /* -1: closed */
    sbx_call_t    head;
    sbx_wire_t    wire;
    unsigned      last:1;              /* its last frame has come */
    unsigned      deaf:1;              /* its worker does not read */
    uint8_t       buf[sizeof(sbx_frame_t) + SBX_FRAME_MAX];
} call_t;

extern call_t          calls[BROKER_CALLS];
extern unsigned        ncalls;
extern sbx_config_t    config;         /* the first one */
extern unsigned        configured;     /* it may be another now */

extern sbx_broker_t   *broker;
extern sbx_keeper_t    keeper;
extern process_t       processes[BROKER_PROCESSES];
extern unsigned        launch_how;
extern uint64_t        now_us;
extern int64_t         wall_us;        /* of the wall's clock, ahead of that */


/* Both, with what the keeper has; the broker as if it had been killed. */
void broker_begin(const char *dir);
void broker_start(void);
void broker_crash(void);
/* The keeper dies, and the broker would be the next one: what it leaves to
 * itself, a file whose descriptors are its own.  Another keeper, as at a
 * start. */
int broker_follows(void);
void keeper_fresh(void);
extern jmp_buf   broker_over;
extern int       broker_left;
/* It has no descriptor for more. */
extern unsigned  keeper_full;
/* All of it, as a signal would. */
void broker_end(void);
/* A connection to it; ours. */
int broker_connect(void);
/* Until nothing moves any more; what is said to processes is looked at. */
void broker_turns(void);
/* The keeper alone; what it has been told it does. */
void keeper_begin(int link);
void keeper_told(void);
void keeper_end(void);
/* Its store, as a file of copies for who comes next; and these. */
void keeper_hands_on(int store);
extern int  keeper_copies[BROKER_KEPT][SBX_LINK_FDS];

/* It dies. */
void process_die(process_t *p);
process_t *process_of(const char *id);

/* broker_check.c: what has been said to it is taken, and is as it may be; the
 * same of what calls are answered; and of what there is. */
void process_read(process_t *p);
void calls_read(void);
void broker_check(void);


#endif
