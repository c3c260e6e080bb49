/* A network for a session. */

#include "isolate_private.h"


int
sbx_net_grant(int netns, int fds[SBX_NET_FDS], sbx_error_t *e)
{
    (void) netns;
    (void) fds;
    (void) e;

    return -1;
}


int
sbx_net_revoke(int netns, sbx_error_t *e)
{
    (void) netns;
    (void) e;

    return -1;
}
