/*
 * A session's network namespace with the network off: lo and nothing else,
 * so that every other destination is unreachable at once.  The namespace
 * belongs to the initial user namespace: what is set here stays.
 */

#include "isolate_private.h"

#include <errno.h>
#include <net/if.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>


static const struct {
    const char  *name;
    const char  *value;
    unsigned     required:1;
} sbx_net_sysctls[] = {
    /* nobody in the session may bind low ports otherwise, root included */
    { "sys/net/ipv4/ip_unprivileged_port_start", "0",    1 },
    { "sys/net/ipv4/ping_group_range",           "1 0",  0 },
    /* nothing is lost on lo, and to pace what is sent there costs much */
    { "sys/net/ipv4/tcp_congestion_control",     "reno", 0 }
};


int
sbx_net_up(void)
{
    struct ifreq  lo;
    sbx_auto_fd   fd = -1;

    fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);

    if (fd == -1) {
        return -1;
    }

    memset(&lo, 0, sizeof(lo));
    memcpy(lo.ifr_name, "lo", sizeof("lo"));
    lo.ifr_flags = IFF_UP | IFF_LOOPBACK | IFF_RUNNING;

    return ioctl(fd, SIOCSIFFLAGS, &lo);
}


int
sbx_net_setup(int proc, sbx_error_t *e)
{
    size_t  i;

    if (sbx_net_up() == -1) {
        return sbx_error(e, errno, SBX_E_INTERNAL, "cannot bring lo up");
    }

    for (i = 0; i < sbx_nelts(sbx_net_sysctls); i++) {
        if (sbx_write_at(proc, sbx_net_sysctls[i].name,
                         sbx_net_sysctls[i].value)
            == -1
            && sbx_net_sysctls[i].required)
        {
            return sbx_error(e, errno, SBX_E_INTERNAL, "cannot set %s",
                             sbx_net_sysctls[i].name);
        }
    }

    return 0;
}
