/*
 * What the two files about the process of a command share: command_start.c
 * until its program runs, command.c from then on.
 */

#ifndef SBX_INIT_COMMAND_H
#define SBX_INIT_COMMAND_H

#include "init.h"


/* command.c */
uint32_t sbx_init_command_index(const sbx_init_command_t *c);
sbx_init_command_t *sbx_init_command_of(uint32_t index);
/* Begins to watch for the kernel's kills. */
void sbx_init_command_memory(sbx_init_command_t *c);
/* Looks at the CPU time, and says when to look again. */
void sbx_init_command_cpu(sbx_init_command_t *c, uint64_t now);
/* The leader has been reaped, and is known not to be launching. */
void sbx_init_command_over(sbx_init_command_t *c);

/* command_start.c */
/* Closes what is the child's: it has them, or there is none. */
void sbx_init_command_ends(sbx_init_command_t *c);


#endif
