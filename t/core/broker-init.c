/*
 * What the broker does with inits that misbehave.  This program is also the
 * init: a copy of it stands where the broker looks for sandbox-init, and the
 * session's environment says how it is to behave.
 */

#include "broker_init.h"

#include <dirent.h>


static test_answer_t *
create(test_broker_t *t, const char *mode, char *id)
{
    int             blob;
    char            env[64];
    sbx_create_t    body;
    test_answer_t  *a;

    (void) snprintf(env, sizeof(env), "MODE=%s", mode);
    test_create_body(&body);
    blob = test_blob(&body, "", env, strlen(env) + 1);
    a = test_answer(test_create_send(t->control, "acme", &body, blob));
    (void) close(blob);
    (void) strcpy(id, a->session.id);

    return a;
}


static int
file_send(test_broker_t *t, const char *id)
{
    return test_call(t->control, SBX_OP_FILE, id, "acme");
}


static int
exec_send(test_broker_t *t, const char *id, const sbx_exec_limits_t *limits)
{
    sbx_call_t         head;
    sbx_exec_limits_t  unset;

    memset(&unset, 0xff, sizeof(unset));
    test_head(&head, SBX_OP_EXEC, id, "acme", "", sizeof(unset));

    return test_send(t->control, &head, limits ? limits : &unset,
                     sizeof(unset), -1);
}


static uint32_t
sessions(test_broker_t *t)
{
    return test_answer(test_call(t->control, SBX_OP_HEALTH, "", ""))
           ->health.sessions;
}


static void
await_no_session(test_broker_t *t, const char *name)
{
    int  i;

    for (i = 0; i < TEST_WAIT / 10 && sessions(t) != 0; i++) {
        (void) poll(NULL, 0, 10);
    }

    is_int(sessions(t), 0, name);
}


static void
test_commands(test_broker_t *t)
{
    int                 i;
    char                id[64];
    int32_t             last;
    unsigned            good;
    pid_t               broker;
    sbx_exec_limits_t   limits;
    test_answer_t      *a;

    (void) create(t, "good", id);

    a = test_answer(exec_send(t, id, NULL));
    is_int(a->last, SBX_F_EXIT, "a command is handed to init");
    is_int(a->accepted, 1, "who answers by itself");
    is_int(a->exit.pid, 1, "the first has number 1");
    is_int((int64_t) a->exit.memory_peak, 16, "and the session's processes");
    ok(a->exit.read_bytes > 0, "with files to enter its group by");

    memset(&limits, 0xff, sizeof(limits));
    limits.processes = 8;
    limits.memory = 32 * 1024 * 1024;
    a = test_answer(exec_send(t, id, &limits));
    ok(a->last == SBX_F_EXIT && a->exit.memory_peak == 8,
       "limits of its own are passed on");

    limits.memory = 65 * 1024 * 1024;
    a = test_answer(exec_send(t, id, &limits));
    ok(a->error.code == SBX_E_MANIFEST
       && strstr(a->error.text, "memory") != NULL,
       "more than the session's is refused by name");

    good = 0;

    for (i = 0; i < 1200; i++) {
        a = test_answer(exec_send(t, id, NULL));
        good += a->last == SBX_F_EXIT;
    }

    is_int(good, 1200, "twelve hundred commands, one after the other");
    last = a->exit.pid;

    broker = test_pid(t, "broker.pid");
    ok(tap_kill(broker, SIGKILL) == 0, "the broker dies");
    a = test_answer(exec_send(t, id, NULL));
    ok(a->last == SBX_F_EXIT && a->exit.pid > last,
       "the next gives numbers that were never used");

    is_int(test_answer(file_send(t, id))->last, SBX_F_END,
           "a file call is handed on too");

    ok(test_destroy(t, id), "the session is destroyed");
    a = test_answer(exec_send(t, id, NULL));
    ok(a->error.code == SBX_E_SESSION
       && a->error.ended == SBX_ENDED_DESTROYED,
       "then a command is told that it is gone, and how");
}


static void
test_capabilities(test_broker_t *t)
{
    char            id[64];
    sbx_create_t    body;
    test_answer_t  *a;

    test_create_body(&body);
    body.capabilities = SBX_CAP_SHELL;
    a = test_answer(test_create_send(t->control, "acme", &body, -1));
    (void) strcpy(id, a->session.id);
    is_int(test_answer(file_send(t, id))->error.code, SBX_E_CAPABILITY,
           "no file call without the capability");
    (void) test_destroy(t, id);

    body.capabilities = SBX_CAP_FILES;
    a = test_answer(test_create_send(t->control, "acme", &body, -1));
    (void) strcpy(id, a->session.id);
    is_int(test_answer(exec_send(t, id, NULL))->error.code, SBX_E_CAPABILITY,
           "and no command");
    (void) test_destroy(t, id);
}


static void
test_quota(test_broker_t *t)
{
    int             i;
    char            id[64];
    test_answer_t  *a;

    (void) create(t, "endless", id);

    for (i = 0; i < SBX_COMMANDS_MAX; i++) {
        a = test_answer(exec_send(t, id, NULL));

        if (a->last != SBX_F_EXIT) {
            printf("# %d: %s\n", i, a->error.text);
            break;
        }
    }

    is_int(i, SBX_COMMANDS_MAX, "as many commands as may live");
    a = test_answer(exec_send(t, id, NULL));
    is_int(a->error.code, SBX_E_QUOTA, "no more");
    is_str(a->error.scope, "session", "scope");
    is_str(a->error.resource, "commands", "resource");
    is_int((int64_t) a->error.limit, SBX_COMMANDS_MAX, "limit");
    ok(test_destroy(t, id), "and all of them go with the session");
}


/* The n-th lowest number that the broker has free. */

static rlim_t
free_number(pid_t broker, unsigned n)
{
    int          fd;
    char         path[64];
    struct stat  st;

    for (fd = 0; fd < 1 << 20; fd++) {
        (void) snprintf(path, sizeof(path), "/proc/%d/fd/%d", (int) broker,
                        fd);

        if (lstat(path, &st) == -1 && n-- == 0) {
            break;
        }
    }

    return (rlim_t) fd;
}


/* A command of which not every group could be opened is not handed on. */

static void
test_descriptors(test_broker_t *t)
{
    char            id[64];
    pid_t           broker;
    unsigned        n, refused;
    test_answer_t  *a;
    struct rlimit   few, usual;

    (void) create(t, "plain", id);
    broker = test_pid(t, "broker.pid");
    (void) prlimit(broker, RLIMIT_NOFILE, NULL, &usual);
    few = usual;
    refused = 0;

    /* one for the call's socket, and so many for groups */

    for (n = 0; n < 2; n++) {
        few.rlim_cur = free_number(broker, 1 + n);
        (void) prlimit(broker, RLIMIT_NOFILE, &few, NULL);
        a = test_answer(exec_send(t, id, NULL));
        (void) prlimit(broker, RLIMIT_NOFILE, &usual, NULL);
        refused += a->last == SBX_F_ERROR
                   && a->error.code == SBX_E_UNAVAILABLE;
    }

    is_int(refused, 2, "a command without its groups is refused");
    a = test_answer(exec_send(t, id, NULL));
    ok(a->last == SBX_F_EXIT && a->exit.read_bytes > 0,
       "with them it is not");
    ok(test_destroy(t, id), "the session goes");
}


static void
test_deaths(test_broker_t *t)
{
    char            id[64];
    test_answer_t  *a;

    a = create(t, "stillborn", id);
    is_int(a->error.code, SBX_E_UNAVAILABLE,
           "an init that dies at once is a create that failed");
    await_no_session(t, "of which nothing stays");

    (void) create(t, "mortal", id);
    a = test_answer(exec_send(t, id, NULL));
    is_int(a->last, 0, "an init that dies ends its calls without an answer");
    await_no_session(t, "and its session");
    a = test_answer(test_call(t->control, SBX_OP_GET, id, "acme"));
    is_int(a->error.ended, SBX_ENDED_NODE_RESTART, "whose owner is told");

    (void) create(t, "nonsense", id);
    (void) test_answer(file_send(t, id));
    await_no_session(t, "an init that sends nonsense is ended");
    ok(test_logged(t, "nonsense"), "and the log tells of it");
}


static void
test_silence(test_broker_t *t)
{
    int             calls[400], i;
    char            id[64], other[64];
    uint64_t        begun;
    unsigned        refused;
    struct pollfd   pfd;
    test_answer_t  *a;

    (void) create(t, "deaf", id);
    (void) create(t, "good", other);

    begun = sbx_now_us();

    for (i = 0; i < (int) sbx_nelts(calls); i++) {
        calls[i] = file_send(t, id);
    }

    a = test_answer(exec_send(t, other, NULL));
    ok(a->last == SBX_F_EXIT && sbx_now_us() - begun < 3000000,
       "an init that does not read delays no other session");

    /* the last one sent is the last one given up */

    i = (int) sbx_nelts(calls) - 1;
    a = test_answer(calls[i]);
    is_int(a->error.code, SBX_E_UNAVAILABLE, "its calls are given up");
    refused = 0;

    while (i-- > 0) {
        pfd.fd = calls[i];
        pfd.events = POLLIN;

        if (poll(&pfd, 1, 0) == 1) {
            refused += test_answer(calls[i])->error.code
                       == SBX_E_UNAVAILABLE;

        } else {
            (void) close(calls[i]);
        }
    }

    ok(refused > 50, "what its socket does not hold is refused, not kept");

    begun = sbx_now_us();
    ok(test_destroy(t, id), "it can be destroyed");
    ok(sbx_now_us() - begun < 4000000, "within a short while");
    (void) test_destroy(t, other);
}


static void
test_talker(test_broker_t *t)
{
    char            id[64], other[64];
    uint64_t        begun;

    (void) create(t, "talker", id);
    (void) create(t, "good", other);

    begun = sbx_now_us();
    is_int(test_answer(exec_send(t, other, NULL))->last, SBX_F_EXIT,
           "an init that never stops talking");
    ok(sbx_now_us() - begun < 3000000, "delays no other session");
    ok(test_destroy(t, id), "and is destroyed");
    (void) test_destroy(t, other);
}


/* The time is over while a command runs. */

static void
test_grace(test_broker_t *t, const char *mode, unsigned least, unsigned most)
{
    int             blob;
    char            dir[128], env[64], id[64];
    uint64_t        begun;
    sbx_create_t    body;
    test_answer_t  *a;

    (void) snprintf(env, sizeof(env), "MODE=%s", mode);
    test_create_body(&body);
    body.limits.timeout = 1000;
    blob = test_blob(&body, "", env, strlen(env) + 1);
    begun = sbx_now_us();
    a = test_answer(test_create_send(t->control, "acme", &body, blob));
    (void) close(blob);
    (void) strcpy(id, a->session.id);

    is_int(test_answer(exec_send(t, id, NULL))->last, SBX_F_EXIT,
           "a command in a session of a short life");

    while (test_answer(exec_send(t, id, NULL))->last == SBX_F_EXIT
           && sbx_now_us() - begun < TEST_WAIT * 1000)
    {
        (void) poll(NULL, 0, 20);
    }

    a = test_answer(test_call(t->control, SBX_OP_GET, id, "acme"));
    is_int(a->error.ended, SBX_ENDED_EXPIRED,
           "no call is taken after its end");

    (void) snprintf(dir, sizeof(dir), "sessions/%s", id);

    while (test_exists(t->state, dir)
           && sbx_now_us() - begun < TEST_WAIT * 1000)
    {
        (void) poll(NULL, 0, 20);
    }

    begun = (sbx_now_us() - begun) / 1000;
    ok(begun >= least && begun < most, "%s: gone after %u to %u ms", mode,
       least, most);
}


/* Where its socket is full, it hears of the resumption all the same. */

static void
test_full(test_broker_t *t, unsigned few)
{
    int             i, calls[FEW + 1];
    char            id[64];
    unsigned        n;
    uint64_t        frozen;
    test_answer_t  *a;

    (void) create(t, "slow", id);

    for (n = 0; n < few; n++) {
        calls[n] = file_send(t, id);
    }

    for (i = 0; i < 100; i++) {
        a = test_answer(test_call(t->control, SBX_OP_PAUSE, id, "acme"));

        if (a->last != SBX_F_END) {
            printf("# %s\n", a->error.text);
            break;
        }

        (void) test_answer(test_call(t->control, SBX_OP_RESUME, id, "acme"));
    }

    frozen = 1;

    for (i = 0; i < TEST_WAIT / 20 && frozen != 0; i++) {
        a = test_answer(file_send(t, id));
        frozen = a->last == SBX_F_END ? a->end.count : 1;
        (void) poll(NULL, 0, 20);
    }

    is_int((int64_t) frozen, 0, "no clock stands still after a resumption");

    while (n-- > 0) {
        (void) close(calls[n]);
    }

    (void) test_destroy(t, id);
}


/* Who waits for an init that is slow is no reason to call it idle. */

static void
test_waiting(test_broker_t *t)
{
    int             calls[FULL], blob, served, refused;
    char            id[64], env[] = "MODE=slow";
    unsigned        n;
    sbx_create_t    body;
    test_answer_t  *a;

    test_create_body(&body);
    body.idle_timeout = 200;
    blob = test_blob(&body, "", env, sizeof(env));
    a = test_answer(test_create_send(t->control, "acme", &body, blob));
    (void) close(blob);
    (void) strcpy(id, a->session.id);

    for (n = 0; n < FULL; n++) {
        calls[n] = file_send(t, id);
    }

    served = 0;
    refused = 0;

    for (n = 0; n < FULL; n++) {
        a = test_answer(calls[n]);
        served += a->last == SBX_F_END;
        refused += a->error.code == SBX_E_UNAVAILABLE;
    }

    ok(served > FEW && served + refused == FULL,
       "calls that wait are served, or have been too many");
    (void) test_destroy(t, id);
}


static unsigned
broker_files(test_broker_t *t)
{
    DIR       *dir;
    char       path[64];
    unsigned   n;

    (void) snprintf(path, sizeof(path), "/proc/%d/fd",
                    (int) test_pid(t, "broker.pid"));
    dir = opendir(path);

    for (n = 0; dir != NULL && readdir(dir) != NULL; n++) { /* void */ }

    if (dir != NULL) {
        (void) closedir(dir);
    }

    return n;
}


static void
test_gifts(test_broker_t *t)
{
    int       i;
    char      id[64];
    unsigned  before;

    before = broker_files(t);
    (void) create(t, "giver", id);
    (void) test_answer(file_send(t, id));
    await_no_session(t, "an init that sends nothing, with descriptors, ends");

    /* closed by a thread of their own, and by what the session's end does */

    for (i = 0; i < TEST_WAIT / 10 && broker_files(t) > before + MANY / 2;
         i++)
    {
        (void) poll(NULL, 0, 10);
    }

    ok(broker_files(t) <= before + MANY / 2, "and leaves none in the broker");
}


static int
end_send(test_broker_t *t, const char *id, uint64_t grace)
{
    sbx_end_t   end;
    sbx_call_t  head;

    end.grace = grace;
    test_head(&head, SBX_OP_END, id, "acme", "", sizeof(end));

    return test_send(t->control, &head, &end, sizeof(end), -1);
}


static void
restart(test_broker_t *t)
{
    pid_t  old;

    old = test_pid(t, "broker.pid");
    (void) tap_kill(old, SIGKILL);
    ok(test_await_successor(t, "broker.pid", old) > 0, "another broker");
}


/* A broker that ends a session, or whose predecessor had begun to. */

static void
test_successor(test_broker_t *t)
{
    int             fd, i;
    char            id[64], dir[128];
    uint64_t        begun;
    test_answer_t  *a;

    (void) create(t, "endless", id);
    is_int(test_answer(exec_send(t, id, NULL))->last, SBX_F_EXIT,
           "a command that does not obey");
    fd = end_send(t, id, 600000);

    for (i = 0; i < TEST_WAIT / 10 && test_alive(t, id); i++) {
        (void) poll(NULL, 0, 10);
    }

    restart(t);
    is_int(test_answer(fd)->last, 0, "who waits for the end learns nothing");
    a = test_answer(test_call(t->control, SBX_OP_GET, id, "acme"));
    is_int(a->error.ended, SBX_ENDED_DESTROYED,
           "what was ending is not alive again");
    (void) snprintf(dir, sizeof(dir), "sessions/%s", id);

    for (i = 0; i < TEST_WAIT / 10 && test_exists(t->state, dir); i++) {
        (void) poll(NULL, 0, 10);
    }

    ok(!test_exists(t->state, dir), "but goes");

    (void) create(t, "endless", id);
    (void) test_answer(exec_send(t, id, NULL));
    restart(t);
    ok(test_alive(t, id) && test_alive(t, id), "the session goes on");
    a = test_answer(end_send(t, id, 600000));
    is_int(a->last, SBX_F_END,
           "where nothing is left of a command no time is waited for");

    (void) create(t, "resident", id);
    (void) test_answer(exec_send(t, id, NULL));
    restart(t);
    is_int(test_answer(exec_send(t, id, NULL))->last, SBX_F_EXIT,
           "a command beside one of the broker before");
    begun = sbx_now_us();
    a = test_answer(end_send(t, id, 2000));
    ok(a->last == SBX_F_END && sbx_now_us() - begun >= 1900000,
       "that has all of its time");
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

    test_open(&t, "init");
    init_helpers(&t);

    if (!ok(test_start(&t) == 0, "a broker starts")) {
        printf("# %s\n", t.error.text);
        return done_testing();
    }

    test_commands(&t);
    test_capabilities(&t);
    test_quota(&t);
    test_descriptors(&t);
    test_deaths(&t);
    test_silence(&t);
    test_talker(&t);
    test_full(&t, FEW);
    test_full(&t, FEW + 1);
    test_waiting(&t);
    test_gifts(&t);
    test_successor(&t);
    test_grace(&t, "obedient", 900, 2900);
    test_grace(&t, "endless", 2200, 9000);
    test_close(&t);

    return done_testing();
}
