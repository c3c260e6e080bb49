/*
 * Whether a session can be given a network here: by giving one, in the network
 * namespace that the caller has made for this alone, and connecting to an
 * address of the world, which has to come to the socket that is there for it.
 * Nothing leaves the namespace, where there is nothing but lo.
 */

#include "net_private.h"

#include <arpa/inet.h>
#include <errno.h>
#include <linux/netfilter_ipv4.h>
#include <netinet/in.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>


#define SBX_PROBE_NET_WAIT   1000    /* ms */
#define SBX_PROBE_NET_PORT   443

/* of the blocks for documentation */
#define SBX_PROBE_NET_WORLD4  "203.0.113.1"
#define SBX_PROBE_NET_WORLD6  "2001:db8::1"


static int sbx_probe_conntrack(void);
static int sbx_probe_redirect(int family, int listener);


void
sbx_probe_network(sbx_probed_network_t *probed)
{
    int          fds[SBX_NET_FDS], i;
    sbx_error_t  e;

    for (i = 0; i < SBX_NET_FDS; i++) {
        fds[i] = -1;
    }

    probed->conntrack = sbx_probe_conntrack();
    probed->grants = probed->conntrack;
    probed->ipv6 = probed->conntrack;

    if (probed->conntrack != 0) {
        return;
    }

    if (sbx_net_make(fds, &e) == -1) {
        probed->grants = e.err != 0 ? e.err : EIO;
        probed->ipv6 = probed->grants;

    } else {
        probed->grants = sbx_probe_redirect(AF_INET, fds[SBX_NET_TCP4]);
        probed->ipv6 = sbx_probe_redirect(AF_INET6, fds[SBX_NET_TCP6]);
    }

    for (i = 0; i < SBX_NET_FDS; i++) {
        if (fds[i] != -1) {
            (void) close(fds[i]);
        }
    }
}


/* The rules but for those that lead anywhere: 0, or an errno. */
static int
sbx_probe_conntrack(void)
{
    sbx_net_rules_t  rules;

    memset(&rules, 0, sizeof(rules));
    rules.judge_only = 1;

    return sbx_net_up() == 0 && sbx_net_rules(&rules) == 0 ? 0 : errno;
}


static int
sbx_probe_redirect(int family, int listener)
{
    socklen_t            len;
    sbx_auto_fd          client = -1, server = -1;
    struct pollfd        pfd = { .fd = listener, .events = POLLIN };
    struct sockaddr_in   in4, *went4;
    struct sockaddr_in6  in6, went;

    if (listener == -1) {
        return EAFNOSUPPORT;
    }

    memset(&in4, 0, sizeof(in4));
    in4.sin_family = AF_INET;
    in4.sin_port = htons(SBX_PROBE_NET_PORT);
    (void) inet_pton(AF_INET, SBX_PROBE_NET_WORLD4, &in4.sin_addr);

    memset(&in6, 0, sizeof(in6));
    in6.sin6_family = AF_INET6;
    in6.sin6_port = htons(SBX_PROBE_NET_PORT);
    (void) inet_pton(AF_INET6, SBX_PROBE_NET_WORLD6, &in6.sin6_addr);

    client = socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);

    if (client == -1
        || (connect(client, family == AF_INET ? (struct sockaddr *) &in4
                                              : (struct sockaddr *) &in6,
                    family == AF_INET ? sizeof(in4) : sizeof(in6))
            == -1 && errno != EINPROGRESS))
    {
        return errno;
    }

    if (poll(&pfd, 1, SBX_PROBE_NET_WAIT) != 1) {
        return ETIMEDOUT;
    }

    server = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
    len = sizeof(went);
    memset(&went, 0, sizeof(went));

    if (server == -1
        || getsockopt(server, family == AF_INET ? SOL_IP : SOL_IPV6,
                      SO_ORIGINAL_DST, &went, &len)
           == -1)
    {
        return errno;
    }

    went4 = (struct sockaddr_in *) &went;

    if (family == AF_INET) {
        return went4->sin_addr.s_addr == in4.sin_addr.s_addr
               && went4->sin_port == in4.sin_port ? 0 : EPROTO;
    }

    return memcmp(&went.sin6_addr, &in6.sin6_addr, sizeof(in6.sin6_addr)) == 0
           && went.sin6_port == in6.sin6_port ? 0 : EPROTO;
}
