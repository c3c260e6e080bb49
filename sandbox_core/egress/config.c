/* What the operator says. */

#include "egress.h"


int
sbx_eg_config(sbx_egress_t *eg, const sbx_egress_task_t *task, int *fds, unsigned nfds, char name[SBX_NETWORK_HOST_MAX + 3], sbx_error_t *e)
{
    (void) eg;
    (void) task;
    (void) fds;
    (void) nfds;
    (void) name;
    (void) e;

    return -1;
}


sbx_eg_policy_t *
sbx_eg_policy_of(sbx_egress_t *eg, const char *template)
{
    (void) eg;
    (void) template;

    return NULL;
}


void
sbx_eg_policy_release(sbx_eg_policy_t *policy)
{
    (void) policy;
}
