/*
 * What the broker does for a session's network: the egress is started, told
 * and replaced, and what is a session's is kept, whoever dies.
 */

#include "broker_network.h"


/*
 * ---- tests ---------------------------------------------------------------
 */

static void
test_none(void)
{
    test_answer_t  *a;

    is_int(egress_pid(), -1, "without a grant there is no egress");
    a = create(SBX_NETWORK_ALL, NULL);
    ok(a->last == SBX_F_ERROR && a->error.code == SBX_E_MANIFEST
       && strncmp(a->error.text, "/manifest/network", 17) == 0,
       "and no session has a network: %s", a->error.text);
}


static void
test_grant(char *id)
{
    int             fd;
    pid_t           pid;
    char            path[64];
    struct stat     st;
    test_answer_t  *a;

    row(SBX_EGRESS_ALLOW, "*.example.org", NULL, NULL);
    row(SBX_EGRESS_ALLOW, "*.test", NULL, NULL);
    ok(tell() == 0, "a configuration that grants something");
    pid = await_egress(0);
    ok(pid > 0, "starts the egress");
    (void) snprintf(path, sizeof(path), "/proc/%d", (int) pid);
    ok(stat(path, &st) == 0 && st.st_uid >= t.config.uid_first,
       "as a user of the sessions' range");
    listen_to();

    a = create(SBX_NETWORK_LISTS, "a.example.org");

    if (!ok(made(a, id), "a session is granted")) {
        return;
    }

    ok(a->session.network == SBX_NETWORK_LISTS
       && a->session.network_size == 15 && !a->session.network_open,
       "and told what it was granted");
    ok(await_told(id, "grant-2-15-a.example.org-"), "as the egress is");
    is_str(refusal.tenant, "acme", "what it says has a tenant,");
    is_str(refusal.user, "alice", "a user,");
    is_int(refusal.port, 443, "a port");

    ended = 0;
    fd = test_call(t.control, SBX_OP_GET, id, "");
    test_follow(fd, take_rules, is_ended, NULL);
    (void) close(fd);
    ok(rules_told == 15 && memcmp(rules, "aa.example.org", 15) == 0,
       "a GET tells its rules");

    a = create(SBX_NETWORK_LISTS, "example.net");
    ok(a->last == SBX_F_ERROR && a->error.code == SBX_E_MANIFEST,
       "more than configuration allows is refused: %s", a->error.text);
    a = create(SBX_NETWORK_ALL, "a.example.org");
    is_int(a->error.code, SBX_E_INVALID, "rules without their mode, too");
    a = create(SBX_NETWORK_LISTS, "a..example.org");
    ok(a->last == SBX_F_ERROR, "and what is no rule");
}


static void
test_change(const char *id)
{
    test_answer_t  *a;

    a = patch(id, SBX_NETWORK_LISTS, "b.example.org");
    ok(a->last == SBX_F_END && a->session.network_size == 15,
       "what it may reach is changed");
    ok(await_told(id, "change-2-15-b.example.org-"), "in the egress too");

    a = patch(id, SBX_NETWORK_LISTS, "example.net");
    ok(a->last == SBX_F_ERROR && a->error.code == SBX_E_MANIFEST
       && strncmp(a->error.text, "/network", 8) == 0,
       "not to more than configuration allows: %s", a->error.text);

    a = patch(id, SBX_NETWORK_NONE, NULL);
    ok(a->last == SBX_F_END && a->session.network == SBX_NETWORK_NONE,
       "it is taken away");
    ok(await_told(id, "revoke-0-0--"), "in the egress too");
    a = patch(id, SBX_NETWORK_ALL, NULL);
    ok(a->last == SBX_F_END && a->session.network == SBX_NETWORK_ALL,
       "and given");
    ok(await_told(id, "grant-1-0--"), "with sockets");
    is_int((int64_t) usage(id)->network_sent, 2 * EGRESS_SENT,
           "what it has sent goes on");
    is_int((int64_t) usage(id)->connections, 3, "its connections are told");
}


static void
test_deaths(const char *id)
{
    pid_t     egress, old, keeper;
    uint64_t  restarts;

    old = egress_pid();
    ok(tap_kill(old, SIGKILL) == 0, "the egress is killed");
    egress = await_egress(old);
    ok(egress > 0, "another one is there");
    ok(await_told(id, "grant-1-0--"), "and told of the session");
    is_int((int64_t) usage(id)->network_sent, 3 * EGRESS_SENT,
           "what the session has sent goes on");
    restarts = metrics()->egress_restarts;
    is_int((int64_t) restarts, 1, "it is counted");

    old = test_pid(&t, "broker.pid");
    (void) tap_kill(old, SIGKILL);
    ok(test_await_successor(&t, "broker.pid", old) > 0,
       "the broker is killed and another one there");
    listen_to();
    is_int(egress_pid(), egress, "the egress is the same");
    is_int((int64_t) usage(id)->network_sent >= 3 * EGRESS_SENT, 1,
           "what the session has sent is known");
    is_int(patch(id, SBX_NETWORK_LISTS, "c.test")->last, SBX_F_END,
           "it can be changed");
    ok(await_told(id, "-2-8-c.test-"), "in the egress too");

    old = test_pid(&t, "broker.pid");
    (void) tap_kill(old, SIGKILL);
    (void) tap_kill(egress, SIGKILL);
    ok(test_await_successor(&t, "broker.pid", old) > 0, "both are killed");
    listen_to();
    old = egress;
    egress = await_egress(old);
    ok(egress > 0, "and both replaced");
    ok(await_told(id, "grant-2-8-c.test-"), "the session is granted again");

    keeper = test_pid(&t, "keeper.pid");
    old = test_pid(&t, "broker.pid");
    (void) tap_kill(keeper, SIGKILL);
    ok(test_await_successor(&t, "broker.pid", old) > 0,
       "the keeper is replaced");
    listen_to();
    is_int(egress_pid(), egress, "the egress is the same");
    (void) tap_kill(egress, SIGKILL);
    egress = await_egress(egress);
    ok(egress > 0, "its end is seen though the keeper is not its parent");
    ok(await_told(id, "grant-2-8-c.test-"), "and the session granted");
}


/* One that takes nothing delays nobody. */

static void
test_stopped(const char *id)
{
    int        i;
    char       other[64];
    pid_t      egress;
    uint32_t   size;
    uint64_t   begun;

    egress = egress_pid();
    (void) tap_kill(egress, SIGSTOP);
    begun = sbx_now_us();

    for (i = 0, size = 0; size < SBX_NETWORK_SIZE - 200 && i < 250; i++) {
        (void) memset(rules + size + 1, 'x', 60);
        put(rules, &size, 'a', "");
        size--;
        (void) snprintf(rules + size, 80, "x%059d.d%03d.test", 0, i);
        size += (uint32_t) strlen(rules + size) + 1;
    }

    for (i = 0; i < 16; i++) {
        if (test_answer(patch_send(id, SBX_NETWORK_LISTS, size))->last
            != SBX_F_END)
        {
            break;
        }
    }

    is_int(i, 16, "changes are answered while the egress is stopped");
    ok(made(create(SBX_NETWORK_ALL, NULL), other), "a session is made");
    ok(sbx_now_us() - begun < 5000000, "at once");
    is_int(patch(id, SBX_NETWORK_LISTS, "last.test")->last, SBX_F_END,
           "one change more");
    (void) tap_kill(egress, SIGCONT);
    ok(await_told(other, "grant-1-0--"),
       "it is told of the session when it goes on");
    ok(await_told(id, "change-2-11-last.test-"), "and of the last change");
    ok(test_destroy(&t, other), "which goes");
}


static void
test_gone(void)
{
    char               id[64];
    uint64_t           sent;
    sbx_f_metrics_t   *m;

    ok(made(create(SBX_NETWORK_ALL, NULL), id)
       && await_told(id, "grant-1-0--"), "another session");
    m = metrics();
    sent = m->network_sent;
    ok(sent >= EGRESS_SENT && m->connections >= 3 && m->egress_up == 1
       && m->refused[SBX_REFUSED_RULE] > 0, "metrics tell of it");
    ok(test_destroy(&t, id), "it goes");
    ok(metrics()->network_sent == sent, "what it has sent stays counted");
}


/* Of a session that ends while there is no broker the egress is to know. */

static void
test_meanwhile(const char *id)
{
    int      i;
    char     gone[64];
    pid_t    broker, init;
    int64_t  told;

    ok(made(create(SBX_NETWORK_ALL, NULL), gone)
       && await_told(gone, "grant-1-0--"), "a session");
    init = init_of(gone);
    broker = test_pid(&t, "broker.pid");
    ok(init > 0 && tap_kill(broker, SIGSTOP) == 0
       && tap_kill(init, SIGKILL) == 0 && test_await_end(init) == 0,
       "ends while the broker is stopped,");
    ok(tap_kill(broker, SIGKILL) == 0
       && test_await_successor(&t, "broker.pid", broker) > 0,
       "which is replaced");

    /* the only other one is granted again, which makes one */

    for (i = 0, told = 0; told < 2 && i < TEST_WAIT / 10; i++) {
        (void) poll(NULL, 0, 10);
        told = (int64_t) metrics()->refused[SBX_REFUSED_RULE];
    }

    is_int(told, 2, "and tells the egress that the session is over");
    listen_to();

    is_int(patch(id, SBX_NETWORK_LISTS, "d.test")->last, SBX_F_END,
           "another change");
    ok(await_told(id, "change-2-8-d.test-"), "is told");
    is_int(refusal.more, 1, "with what nobody has heard before");
    is_int(patch(id, SBX_NETWORK_LISTS, "last.test")->last, SBX_F_END,
           "one more");
    ok(await_told(id, "change-2-11-last.test-") && refusal.more == 0,
       "is told alone");
}


/* A session that was made ahead is granted when it is given out. */

static void
test_pooled(void)
{
    int                  i;
    char                 id[64], path[128];
    sbx_create_t         body;
    test_answer_t       *a;
    sbx_pool_config_t   *pool;

    test_create_body(&body);
    t.config.egress_size = 0;
    row(SBX_EGRESS_ALLOW, "*", NULL, NULL);

    pool = &t.config.pools.pools[0];
    t.config.pools.count = 1;
    (void) strcpy(pool->template, "base");
    pool->sessions = 1;
    pool->capabilities = body.capabilities;
    pool->limits = body.limits;
    (void) tell();

    for (i = 0; i < TEST_WAIT / 10 && metrics()->pools[0].ready == 0; i++) {
        (void) poll(NULL, 0, 10);
    }

    a = create(SBX_NETWORK_ALL, NULL);
    ok(made(a, id) && a->session.network == SBX_NETWORK_ALL
       && a->session.network_open, "a session with a network that is open");
    is_int((int64_t) metrics()->pools[0].hits, 1, "was made ahead");
    ok(await_told(id, "grant-1-0--"), "of which the egress is told");
    ok(test_destroy(&t, id), "it goes");

    for (i = 0; i < TEST_WAIT / 10 && metrics()->pools[0].ready == 0; i++) {
        (void) poll(NULL, 0, 10);
    }

    (void) strcpy(t.config.packages, "/usr/share");
    (void) tell();
    ok(made(create(SBX_NETWORK_NONE, NULL), id), "the next one");
    (void) snprintf(path, sizeof(path), "/proc/%d/root" SBX_PACKAGES "/doc",
                    (int) init_of(id));
    ok(access(path, F_OK) == 0,
       "has packages that were not there when one was made ahead");
    ok(test_destroy(&t, id), "it goes, too");
    t.config.packages[0] = '\0';

    memset(&t.config.pools, 0, sizeof(t.config.pools));
    (void) tell();
}


int
main(void)
{
    char   id[64];
    pid_t  egress;

    if (egress_is()) {
        return egress_main();
    }

    if (geteuid() != 0) {
        return skip_all("needs root");
    }

    test_open(&t, "network");
    egress_helpers(&t);

    if (!ok(test_start(&t) == 0, "a broker starts")) {
        printf("# %s\n", t.error.text);
        return done_testing();
    }

    test_none();
    test_grant(id);
    test_change(id);
    test_deaths(id);
    test_stopped(id);
    test_gone();
    test_meanwhile(id);
    test_pooled();
    egress = egress_pid();
    test_close(&t);
    ok(egress > 0 && test_await_end(egress) == 0, "so does the egress");

    return done_testing();
}
