/*
 * A machine without anything in it, for targets of the broker: machine.c.
 */

#ifndef SBX_FUZZ_MACHINE_H
#define SBX_FUZZ_MACHINE_H

#include "fuzz.h"
#include "isolate.h"
#include "layers.h"
#include "wire.h"


#define MACHINE_GROUPS   64


typedef struct {
    char       id[SBX_ID_MAX + 8];     /* "": it is free */
    uint64_t   owner;
} machine_group_t;

/* Of sessions; how many there are. */
extern machine_group_t  machine_groups[MACHINE_GROUPS];
extern unsigned         machine_left;

machine_group_t *machine_find(const char *id);

/* The target's: all of a session has been killed; what it is to be. */
void machine_killed(const char *id);
void machine_check_launch(const sbx_launch_t *launch);


#endif
