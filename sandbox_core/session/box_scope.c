/*
 * A run that is given the network is in the host's network namespace, where
 * abstract sockets of others are: Landlock takes them away.
 */

#include "box.h"

#include <sys/syscall.h>


#define SBX_SCOPE_LANDLOCK    444     /* landlock_create_ruleset */
#define SBX_SCOPE_ABSTRACT    0x01u   /* LANDLOCK_SCOPE_ABSTRACT_UNIX_SOCKET */


/* Linux 6.12; the third word of the attribute is not in every header. */
static int
sbx_scope_rules(void)
{
    uint64_t  attr[3] = { 0, 0, SBX_SCOPE_ABSTRACT };

    return (int) syscall(SBX_SCOPE_LANDLOCK, attr, sizeof(attr), 0);
}


void
sbx_box_scope(void)
{
    sbx_auto_fd  rules = -1;

    rules = sbx_scope_rules();

    if (rules != -1) {
        (void) syscall(SYS_landlock_restrict_self, rules, 0);
    }
}


int
sbx_box_scope_known(void)
{
    sbx_auto_fd  rules = -1;

    rules = sbx_scope_rules();

    return rules != -1;
}
