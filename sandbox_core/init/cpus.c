/*
 * The processors that a command is meant to see: as many as its share of
 * them, rounded up.  Affinity says so to nproc and its kin, variables to the
 * libraries that start a thread for each processor.  A program may widen its
 * affinity; the group's quota holds it all the same.
 */

#include "init.h"

#include <sched.h>
#include <stdio.h>
#include <string.h>


static const char  *sbx_init_cpus_names[SBX_INIT_CPUS_VARIABLES] = {
    SBX_CPUS_VARIABLES
};


void
sbx_init_launch_cpus(sbx_init_launch_t *launch, const sbx_init_command_t *c)
{
    int        cpu;
    unsigned   i, have, taken, first;
    cpu_set_t  own, mine;

    launch->cpus = sbx_init.cpus;

    if (c->cpus != 0 && (c->cpus + 999) / 1000 < launch->cpus) {
        launch->cpus = (unsigned) ((c->cpus + 999) / 1000);
    }

    for (i = 0; i < SBX_INIT_CPUS_VARIABLES; i++) {
        (void) snprintf(launch->threads[i], sizeof(launch->threads[i]),
                        "%s=%u", sbx_init_cpus_names[i], launch->cpus);
    }

    launch->affinity_size = 0;

    if (sched_getaffinity(0, sizeof(own), &own) == -1) {
        /* more processors than a cpu_set_t holds: all of them then */
        return;
    }

    have = (unsigned) CPU_COUNT(&own);

    if (launch->cpus >= have) {
        return;
    }

    /* commands beside each other do not all take the first ones */

    first = c->number % have;
    CPU_ZERO(&mine);
    i = 0;

    for (cpu = 0; cpu < CPU_SETSIZE; cpu++) {
        if (!CPU_ISSET(cpu, &own)) {
            continue;
        }

        taken = (i + have - first) % have;
        i++;

        if (taken < launch->cpus) {
            CPU_SET(cpu, &mine);
        }
    }

    memcpy(launch->affinity, &mine, sizeof(mine));
    launch->affinity_size = sizeof(mine);
}
