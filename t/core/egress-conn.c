/*
 * Connections through the egress, between a session and the world: what is
 * said at either end is heard at the other, and so are ends and resets.
 */

#include "egress_test.h"


#define SERVER    "198.51.100.7"
#define SERVER6   "2001:db8:2::7"


static et_t  t;


static void
check_plain(const char *address, const char *name)
{
    int  listener, client, server;

    listener = et_listen(&t, t.world, address, 7);
    client = et_connect(&t, &t.one, address, 7);
    server = et_accept(listener);

    ok(et_talk(client, server) == 0, "%s: both hear each other", name);

    (void) close(client);
    (void) close(server);
    (void) close(listener);
}


int
main(void)
{
    const char         *why;
    sbx_egress_task_t   task;

    static const char  *open_to_all[] = { "a*", NULL };

    why = et_open(&t, NULL);

    if (why != NULL) {
        return skip_all(why);
    }

    is_int(et_config(&t, open_to_all), 0, "the operator's table is taken");

    et_task_of(&task, &t.one, 0);

    if (et_grant(&t, &t.one, &task, NULL) != 0) {
        return skip_all("no network can be granted here");
    }

    check_plain(SERVER, "IPv4");

    if (t.one.ipv6) {
        check_plain(SERVER6, "IPv6");
    }

    ok(et_refused(&t, &t.one, "10.1.2.3", 7), "a private address");
    is_int(et_reason(&t), SBX_REFUSED_ADDRESS, "and that is told");

    is_int(et_close(&t), 0, "the egress ends with its control");

    return done_testing();
}
