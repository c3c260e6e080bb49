/* Who starts, replaces and ends whom. */

#pragma GCC diagnostic ignored "-Wunused-function"

#include "broker_test.h"


static void
test_life(void)
{
    char           id[64];
    pid_t          broker, keeper;
    test_broker_t  t;

    test_open(&t, "life");

    if (!ok(test_start(&t) == 0, "a broker is started where none is")) {
        printf("# %s (%d)\n", t.error.text, t.error.err);
        exit(done_testing());
    }

    broker = test_pid(&t, "broker.pid");
    keeper = test_pid(&t, "keeper.pid");
    is_int(t.hello.broker_pid, broker, "broker.pid names the broker");
    is_int(t.hello.keeper_pid, keeper, "keeper.pid names the keeper");

    test_create(&t, "acme", id);
    ok(id[0] == 'i', "a session is made");
    ok(test_alive(&t, id), "and answers");

    /* a broker that dies */

    ok(kill(broker, SIGKILL) == 0, "the broker is killed");
    ok(test_alive(&t, id), "a call sent meanwhile finds the session");
    ok(test_pid(&t, "broker.pid") != broker, "with another broker");
    is_int(test_pid(&t, "keeper.pid"), keeper, "and the same keeper");
    ok(test_destroy(&t, id), "the adopted session can be destroyed");

    /* a keeper that dies */

    test_create(&t, "acme", id);
    ok(kill(keeper, SIGKILL) == 0, "the keeper is killed");
    broker = test_await_successor(&t, "broker.pid", test_pid(&t,
                                                           "broker.pid"));
    ok(test_alive(&t, id), "the session lives on below another keeper");
    ok(test_pid(&t, "keeper.pid") != keeper, "whose pid is on file");
    ok(test_destroy(&t, id), "and can be destroyed");
    test_create(&t, "acme", id);
    ok(test_alive(&t, id), "and another one made");

    test_close(&t);
}


int
main(void)
{
    if (geteuid() != 0) {
        return skip_all("needs root");
    }

    test_life();

    return done_testing();
}
