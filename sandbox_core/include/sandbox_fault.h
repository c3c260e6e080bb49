/*
 * Named points at which a test holds a process: to kill it just there, or to
 * let it go on.  They are compiled in by "make FAULTS=1" and SANITIZE=1
 * alone; in every other build SBX_FAULT() is nothing.
 *
 * A point is armed from outside by root, who writes sbx_fault_armed through
 * /proc/<pid>/mem, so that neither a file nor a descriptor nor a right is
 * needed for it in any process.  What a process forks or executes takes the
 * point along (sbx_fault_env()).
 *
 * A thread that comes to the armed point, after having passed it .skip times,
 * sets .state to SBX_FAULT_HELD and waits, a millisecond at a time, until it
 * reads SBX_FAULT_IDLE.  A process is held once for each arming.
 *
 * Names are "<program>-<call>-<what has just been done>", at most 47
 * characters; t/survive/README.md has all of them.
 */

#ifndef SANDBOX_FAULT_H
#define SANDBOX_FAULT_H

#ifdef SBX_FAULTS

#include <stdint.h>


#define SBX_FAULT_NAME      48
#define SBX_FAULT_VARIABLE  "SANDBOX_FAULT="


typedef enum {
    SBX_FAULT_IDLE = 0,
    SBX_FAULT_ARMED,
    SBX_FAULT_HELD
} sbx_fault_state_t;


typedef struct {
    char      name[SBX_FAULT_NAME];
    uint32_t  skip;
    uint32_t  state;                  /* sbx_fault_state_t */
} sbx_fault_t;


extern volatile sbx_fault_t  sbx_fault_armed;


void sbx_fault_at(const char *name);

/*
 * "SANDBOX_FAULT=<skip>:<name>" of what is armed, for the environment of a
 * program that is about to be executed; NULL where nothing is.  Static
 * memory.
 */
char *sbx_fault_env(void);


#define SBX_FAULT(name)  sbx_fault_at(name)

#else

#define SBX_FAULT(name)  ((void) 0)
#define sbx_fault_env()  NULL

#endif

#endif
