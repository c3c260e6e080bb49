/* Starting the egress. */

#include "isolate_private.h"


int
sbx_egress_launch(const sbx_egress_launch_t *launch, pid_t *pid, int *pidfd, sbx_error_t *e)
{
    (void) launch;
    (void) pid;
    (void) pidfd;
    (void) e;

    return -1;
}
