#include "sandbox_fault.h"

#ifdef SBX_FAULTS

#include <poll.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>


/* What was in the environment is taken once, by the first point passed. */

volatile sbx_fault_t  sbx_fault_armed;


static void
sbx_fault_inherit(void)
{
    char           name[SBX_FAULT_NAME];
    size_t         i;
    unsigned       skip;
    const char    *value;
    static int     done;

    if (done) {
        return;
    }

    done = 1;
    value = getenv("SANDBOX_FAULT");

    if (value == NULL || sbx_fault_armed.state != SBX_FAULT_IDLE
        || sscanf(value, "%u:%47s", &skip, name) != 2)
    {
        return;
    }

    for (i = 0; name[i] != '\0'; i++) {
        sbx_fault_armed.name[i] = name[i];
    }

    /* not to be found again by whatever this process becomes */
    (void) unsetenv("SANDBOX_FAULT");

    sbx_fault_armed.name[i] = '\0';
    sbx_fault_armed.skip = skip;
    sbx_fault_armed.state = SBX_FAULT_ARMED;
}


void
sbx_fault_at(const char *name)
{
    sbx_fault_inherit();

    if (sbx_fault_armed.state != SBX_FAULT_ARMED
        || strcmp(name, (const char *) sbx_fault_armed.name) != 0)
    {
        return;
    }

    if (sbx_fault_armed.skip != 0) {
        sbx_fault_armed.skip--;
        return;
    }

    sbx_fault_armed.state = SBX_FAULT_HELD;

    while (sbx_fault_armed.state == SBX_FAULT_HELD) {
        (void) poll(NULL, 0, 1);
    }
}


char *
sbx_fault_env(void)
{
    static char  text[sizeof(SBX_FAULT_VARIABLE) + SBX_FAULT_NAME + 12];

    sbx_fault_inherit();

    if (sbx_fault_armed.state != SBX_FAULT_ARMED) {
        return NULL;
    }

    (void) snprintf(text, sizeof(text), SBX_FAULT_VARIABLE "%u:%s",
                    (unsigned) sbx_fault_armed.skip,
                    (const char *) sbx_fault_armed.name);

    return text;
}

#endif
