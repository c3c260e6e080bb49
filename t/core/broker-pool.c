/*
 * Sessions that are made ahead, where the test is their init too and sees
 * what it is told, and in which order.
 */

#include "broker_init.h"


#define FIRST   "MODE=good"           /* what they are launched with */


static sbx_pool_metrics_t *
metrics(test_broker_t *t)
{
    static sbx_pool_metrics_t  pool;

    pool = test_answer(test_call(t->control, SBX_OP_METRICS, "", ""))
           ->metrics.pools[0];

    return &pool;
}


static int
await_ready(test_broker_t *t, uint64_t n)
{
    int                  i;
    sbx_pool_metrics_t  *m;

    for (i = 0; i < TEST_WAIT / 10; i++) {
        m = metrics(t);

        if (m->ready == n && m->filling == 0) {
            return 1;
        }

        (void) poll(NULL, 0, 10);
    }

    return 0;
}


/* Another configuration, from a server of root's. */

static int
tell(test_broker_t *t)
{
    int           control;
    sbx_hello_t   hello;
    sbx_client_t  client;

    client = t->client;
    client.spawn = 0;
    control = -1;

    if (sbx_client_start(&client, &control, &hello, &t->error) != 0) {
        return -1;
    }

    (void) close(control);

    return 0;
}


static void
configure(sbx_config_t *config, const char *env, uint32_t sessions)
{
    sbx_create_t         body;
    sbx_pool_config_t   *pool;

    memset(&config->pools, 0, sizeof(config->pools));
    test_create_body(&body);

    pool = &config->pools.pools[0];
    config->pools.count = 1;
    (void) strcpy(pool->template, "base");
    pool->sessions = sessions;
    pool->capabilities = body.capabilities;
    pool->limits = body.limits;
    pool->env_size = (uint32_t) strlen(env) + 1;
    (void) strcpy(config->pools.strings, env);
    config->pools.strings_size = pool->env_size;
}


static int
create_send(test_broker_t *t, uint64_t processes)
{
    int           fd, blob;
    sbx_create_t  body;

    test_create_body(&body);
    (void) strcpy(body.template, "code-interpreter-v1");
    body.limits.processes = processes;
    body.flags = SBX_CREATE_AUTO_RESUME|SBX_CREATE_NO_TOKEN
                 |SBX_CREATE_PORT_TOKEN;
    blob = test_blob(&body, "", "COLOUR=blue", sizeof("COLOUR=blue"));
    fd = test_create_send(t->control, "acme", &body, blob);
    (void) close(blob);

    return fd;
}


static test_answer_t *
ask(test_broker_t *t, const char *id)
{
    return test_answer(test_call(t->control, SBX_OP_FILE, id, "acme"));
}


static void
test_tables(test_broker_t *t)
{
    size_t         i;
    sbx_config_t  *config;

    static const char  *names[] = {
        "too many of them", "more strings than there is room for",
        "strings that are nobody's", "a name without an end", "no name",
        "none at all of it", "too many sessions", "a variable without an end",
        "more variables than strings", "languages without an end"
    };

    config = &t->config;

    for (i = 0; i < sbx_nelts(names); i++) {
        configure(config, FIRST, 1);

        switch (i) {
        case 0: config->pools.count = SBX_POOLS_MAX + 1; break;
        case 1: config->pools.strings_size = SBX_POOL_STRINGS + 1; break;
        case 2: config->pools.strings_size++; break;
        case 3: memset(config->pools.pools[0].template, 'x', 64); break;
        case 4: config->pools.pools[0].template[0] = '\0'; break;
        case 5: config->pools.pools[0].sessions = 0; break;
        case 6: config->pools.pools[0].sessions = SBX_POOL_SESSIONS_MAX + 1;
                break;
        case 7: config->pools.strings[strlen(FIRST)] = 'x'; break;
        case 8: config->pools.pools[0].env_size++; break;
        case 9: memset(config->pools.pools[0].kernels, 'x',
                       SBX_POOL_KERNELS); break;
        }

        ok(tell(t) != 0, "%s", names[i]);
    }

    ok(metrics(t)->template[0] == '\0', "none of them is taken");
}


static void
test_given(test_broker_t *t)
{
    char            id[64];
    test_answer_t  *a;

    configure(&t->config, FIRST, 2);
    ok(tell(t) == 0, "a pool");
    ok(await_ready(t, 2), "is filled");
    is_int(test_answer(test_call(t->control, SBX_OP_LIST, "", ""))->sessions,
           0, "and seen by nobody");

    a = test_answer(create_send(t, 12));
    is_int(a->last, SBX_F_END, "a create");
    is_int((int) a->session.limits.processes, 12, "with its own limits");
    is_int((int) a->session.flags,
           SBX_CREATE_AUTO_RESUME|SBX_CREATE_NO_TOKEN|SBX_CREATE_PORT_TOKEN,
           "and flags");
    is_str(a->session.template, "code-interpreter-v1",
           "and the name of the template that it has asked for");
    (void) strcpy(id, a->session.id);
    is_int((int) metrics(t)->hits, 1, "is given one of the pool");

    a = ask(t, id);
    is_int(a->last, SBX_F_END, "its init serves");
    is_int(a->end.created, 1, "was told once what it is to be");
    is_int((int) a->end.next, 12, "with these limits");
    is_int((int) a->end.size, 1, "and this environment");
    ok(test_destroy(t, id), "and ends");
    ok(await_ready(t, 2), "another takes its place");
}


/* Both have been sent before either is answered. */

static void
test_last(test_broker_t *t)
{
    int         first, second;
    char        ids[2][64];
    uint64_t    hits, empty;

    configure(&t->config, FIRST, 1);
    ok(tell(t) == 0 && await_ready(t, 1), "one is left");

    hits = metrics(t)->hits;
    empty = metrics(t)->misses[SBX_MISS_EMPTY];
    first = create_send(t, 16);
    second = create_send(t, 16);
    (void) strcpy(ids[0], test_answer(first)->session.id);
    (void) strcpy(ids[1], test_answer(second)->session.id);

    ok(ids[0][0] != '\0' && ids[1][0] != '\0' && strcmp(ids[0], ids[1]) != 0,
       "two ask for it, and each has a session");
    is_int((int) (metrics(t)->hits - hits), 1, "one of them that");
    is_int((int) (metrics(t)->misses[SBX_MISS_EMPTY] - empty), 1,
           "the other none of the pool");
    ok(test_destroy(t, ids[0]) && test_destroy(t, ids[1]), "both end");
}


/* Who asked does not wait for the answer. */

static void
test_gone(test_broker_t *t)
{
    int  i;

    for (i = 0; i < 20; i++) {
        (void) await_ready(t, 1);
        (void) close(create_send(t, 16));
    }

    for (i = 0; i < TEST_WAIT / 10
         && test_answer(test_call(t->control, SBX_OP_LIST, "", ""))->sessions
            != 0; i++)
    {
        (void) poll(NULL, 0, 10);
    }

    is_int(test_answer(test_call(t->control, SBX_OP_LIST, "", ""))->sessions,
           0, "what nobody waits for ends");
    ok(await_ready(t, 1), "and the pool is filled");
}


static void
test_forged(test_broker_t *t)
{
    char            id[64];
    test_answer_t  *a;

    configure(&t->config, "MODE=forger", 1);
    ok(tell(t) == 0 && await_ready(t, 1), "made anew");

    a = test_answer(create_send(t, 16));
    (void) strcpy(id, a->session.id);
    a = ask(t, id);
    is_int(a->last, SBX_F_END, "one says that it is warm");
    is_int((int) a->end.created, 1, "which was given out");
    is_int(ask(t, id)->last, SBX_F_END, "and goes on as a session");
    ok(await_ready(t, 1) && test_destroy(t, id), "which is all");
}


static void
test_stillborn(test_broker_t *t)
{
    int       i;
    char      id[64];
    uint64_t  failures;

    configure(&t->config, "MODE=stillborn", 1);
    failures = metrics(t)->failures;
    ok(tell(t) == 0, "one whose init dies at once");

    for (i = 0; i < TEST_WAIT / 10
         && metrics(t)->failures < failures + 2; i++)
    {
        (void) poll(NULL, 0, 10);
    }

    ok(metrics(t)->failures >= failures + 2, "is tried again");
    is_int(test_logged(t, "no session can be made for the pool"), 1,
           "and told of");

    test_create(t, "acme", id);
    ok(id[0] != '\0', "sessions are made all the same");
    ok(test_destroy(t, id), "and end");

    configure(&t->config, FIRST, 1);
    ok(tell(t) == 0 && await_ready(t, 1), "until it can be made");
}


static void
test_brief(test_broker_t *t)
{
    int       i, ready;
    uint64_t  failures;

    configure(&t->config, "MODE=brief", 1);
    (void) strcpy(t->config.pools.pools[0].kernels, "python");
    t->config.pools.pools[0].capabilities |= SBX_CAP_CODE;
    failures = metrics(t)->failures;
    ok(tell(t) == 0, "one whose interpreter ends once it is ready");

    for (ready = 0, i = 0; i < TEST_WAIT / 10
         && metrics(t)->failures < failures + 2; i++)
    {
        ready |= metrics(t)->ready != 0;
        (void) poll(NULL, 0, 10);
    }

    ok(metrics(t)->failures >= failures + 2, "is tried again");
    ok(!ready, "and is not given out without");

    configure(&t->config, FIRST, 1);
    ok(tell(t) == 0 && await_ready(t, 1), "until it can be made");
}


/* A language for those that have interpreters; it is never run. */

static void
language(const test_broker_t *t)
{
    int   fd;
    char  path[8192];

    static const char  text[] = "command /bin/true\n";

    (void) snprintf(path, sizeof(path), "%s/kernels", t->helpers);
    (void) mkdir(path, 0755);
    (void) snprintf(path, sizeof(path), "%s/kernels/python", t->helpers);
    (void) mkdir(path, 0755);
    (void) snprintf(path, sizeof(path), "%s/kernels/python/kernel.conf",
                    t->helpers);
    fd = open(path, O_WRONLY|O_CREAT|O_CLOEXEC, 0644);
    (void) sbx_write_all(fd, text, sizeof(text) - 1);
    (void) close(fd);
}


static void
test_successor(test_broker_t *t)
{
    char   id[64], owned[64];
    pid_t  old;

    (void) strcpy(owned, test_answer(create_send(t, 16))->session.id);
    ok(await_ready(t, 1), "one that is owned, one that is not");
    old = test_pid(t, "broker.pid");
    (void) kill(old, SIGKILL);
    ok(test_await_successor(t, "broker.pid", old) > 0, "another broker");
    ok(await_ready(t, 1), "has a pool of its own");
    ok(test_alive(t, owned), "the owned one goes on");
    is_int((int) ask(t, owned)->end.created, 1, "as it was");

    (void) strcpy(id, test_answer(create_send(t, 16))->session.id);
    is_int((int) ask(t, id)->end.created, 1, "and one is given out");
    ok(test_destroy(t, id) && test_destroy(t, owned), "both end");
}


int
main(void)
{
    test_broker_t  t;

    if (init_is()) {
        return init_main();
    }

    if (geteuid() != 0) {
        return skip_all("needs root");
    }

    test_open(&t, "pool");
    init_helpers(&t);
    language(&t);

    if (!ok(test_start(&t) == 0, "a broker starts")) {
        printf("# %s\n", t.error.text);
        return done_testing();
    }

    test_tables(&t);
    test_given(&t);
    test_last(&t);
    test_gone(&t);
    test_forged(&t);
    test_stillborn(&t);
    test_brief(&t);
    test_successor(&t);
    test_close(&t);

    return done_testing();
}
