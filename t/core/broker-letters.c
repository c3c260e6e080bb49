/*
 * What the broker has for a keeper that takes nothing: it waits as letters,
 * which need descriptors of their own.  Where these are short a create is
 * refused; what was answered is there for the next broker, and nothing else.
 */

#include "broker_init.h"

#include <dirent.h>
#include <sys/un.h>


#define CONNECTIONS  1000    /* more than the link takes letters of */
#define NUMBERS      4096
#define AGAIN        10
#define KEPT         6       /* descriptors of a session's letter */


/*
 * Descriptors of the broker: how many; and the limit that leaves it so many
 * that are free.
 */

static unsigned
files(test_broker_t *t, unsigned left, unsigned *limit)
{
    DIR            *dir;
    char            path[64], used[NUMBERS];
    pid_t           broker;
    unsigned        i, n;
    struct dirent  *entry;

    broker = test_pid(t, "broker.pid");
    (void) snprintf(path, sizeof(path), "/proc/%d/fd", (int) broker);
    memset(used, 0, sizeof(used));
    dir = opendir(path);
    n = 0;

    while (dir != NULL && (entry = readdir(dir)) != NULL) {
        if (entry->d_name[0] == '.') {
            continue;
        }

        i = (unsigned) atoi(entry->d_name);
        n++;

        if (i < sizeof(used)) {
            used[i] = 1;
        }
    }

    if (dir != NULL) {
        (void) closedir(dir);
    }

    for (i = 0; i < sizeof(used) && (used[i] || left-- != 0); i++) {
        /* void */
    }

    if (limit != NULL) {
        *limit = i;
    }

    return n;
}


/* A server that comes and goes: two messages to the keeper. */

static void
visit(test_broker_t *t)
{
    int                 fd;
    sbx_call_t          head;
    struct sockaddr_un  addr;

    memset(&addr, 0, sizeof(addr));
    addr.sun_family = AF_UNIX;
    (void) snprintf(addr.sun_path, sizeof(addr.sun_path), "%.80s/broker.sock",
                    t->state);
    fd = socket(AF_UNIX, SOCK_SEQPACKET|SOCK_CLOEXEC, 0);
    test_head(&head, SBX_OP_HELLO_CONTROL, "", "", "", 0);

    if (connect(fd, (struct sockaddr *) &addr, sizeof(addr)) == -1
        || sbx_wire_send(fd, &head, sizeof(head), NULL, 0, 0) == -1)
    {
        test_die("a connection");
    }

    (void) close(fd);
}


/* Until letters keep the descriptors of connections that are gone. */

static int
fill(test_broker_t *t)
{
    int       i;
    unsigned  before;

    before = files(t, 0, NULL);

    for (i = 0; i < CONNECTIONS; i++) {
        visit(t);

        /* the broker comes to it, and closes its side */

        if (i % 20 == 19) {
            (void) test_answer(test_call(t->control, SBX_OP_HEALTH, "", ""));
            (void) poll(NULL, 0, 20);

            if (files(t, 0, NULL) > before + 8) {
                return 1;
            }
        }
    }

    return 0;
}


/*
 * The first process that waits to be told: of all signals it has SIGUSR2
 * blocked, while one that is being launched has more.  Not the one before it,
 * which may be dying.
 */

static pid_t
late(test_broker_t *t, pid_t last)
{
    int                  parent;
    DIR                 *proc;
    char                 path[300], text[4096], *p;
    pid_t                found, keeper;
    struct dirent       *entry;
    unsigned long long   blocked;

    found = 0;
    keeper = test_pid(t, "keeper.pid");
    proc = opendir("/proc");

    while (proc != NULL && (entry = readdir(proc)) != NULL) {
        (void) snprintf(path, sizeof(path), "/proc/%.200s/status",
                        entry->d_name);

        if (entry->d_name[0] < '1' || entry->d_name[0] > '9'
            || sbx_read_at(AT_FDCWD, path, text, sizeof(text)) <= 0)
        {
            continue;
        }

        p = strstr(text, "\nPPid:");

        if (p == NULL || sscanf(p, "\nPPid: %d", &parent) != 1
            || parent != keeper || (pid_t) atoi(entry->d_name) == last
            || strstr(text, "\nState:\tZ") != NULL)
        {
            continue;
        }

        p = strstr(text, "\nSigBlk:");

        if (p != NULL && sscanf(p, "\nSigBlk: %llx", &blocked) == 1
            && (blocked >> (SIGUSR2 - 1) & 1)
            && (blocked >> (SIGTERM - 1) & 1) == 0)
        {
            found = (pid_t) atoi(entry->d_name);
        }
    }

    if (proc != NULL) {
        (void) closedir(proc);
    }

    return found;
}


static int
create_send(test_broker_t *t, const char *mode)
{
    int           blob, fd;
    char          env[64];
    sbx_create_t  body;

    (void) snprintf(env, sizeof(env), "MODE=%s", mode);
    test_create_body(&body);
    blob = test_blob(&body, "", env, strlen(env) + 1);
    fd = test_create_send(t->control, "acme", &body, blob);
    (void) close(blob);

    return fd;
}


static void
create(test_broker_t *t, char *id)
{
    (void) strcpy(id, test_answer(create_send(t, "good"))->session.id);
}


static unsigned
sessions(test_broker_t *t)
{
    return test_answer(test_call(t->control, SBX_OP_HEALTH, "", ""))
           ->health.sessions;
}


/*
 * Too few are left of all that the broker may have when a session is ready to
 * be kept, one more each time.
 */

static void
create_short(test_broker_t *t, char *id)
{
    int             fd, i;
    pid_t           broker, init, last;
    unsigned        again, before, limit, n, refused;
    test_answer_t  *a;
    struct rlimit   few, usual;

    broker = test_pid(t, "broker.pid");
    (void) prlimit(broker, RLIMIT_NOFILE, NULL, &usual);
    few = usual;
    again = 0;
    last = 0;
    refused = 0;
    id[0] = '\0';

    before = files(t, 0, NULL);

    for (n = 0; n <= KEPT; n++) {

        /* what the one before had is closed a little later */

        for (i = 0; i < TEST_WAIT / 5 && files(t, 0, NULL) > before; i++) {
            (void) poll(NULL, 0, 5);
        }

        fd = create_send(t, "late");
        init = 0;

        for (i = 0; i < TEST_WAIT / 5 && init == 0; i++) {
            (void) poll(NULL, 0, 5);
            init = late(t, last);
        }

        last = init;

        /* after two rounds nothing is under way that needs any */

        (void) test_answer(test_call(t->control, SBX_OP_HEALTH, "", ""));
        (void) test_answer(test_call(t->control, SBX_OP_HEALTH, "", ""));
        (void) files(t, n, &limit);
        few.rlim_cur = limit;
        (void) prlimit(broker, RLIMIT_NOFILE, &few, NULL);
        (void) tap_kill(init, SIGUSR1);
        a = test_answer(fd);
        (void) prlimit(broker, RLIMIT_NOFILE, &usual, NULL);

        if (a->last == SBX_F_END && (n == KEPT || again == AGAIN)) {
            (void) strcpy(id, a->session.id);
            break;
        }

        if (a->last == SBX_F_END) {

            /* something was closed meanwhile, so that there was one more */

            (void) strcpy(id, a->session.id);
            (void) test_destroy(t, id);
            id[0] = '\0';
            again++;
            n--;
            continue;
        }

        refused += a->error.code == SBX_E_UNAVAILABLE
                   && a->error.retry_after > 0
                   && strstr(a->error.text, "cannot be kept") != NULL;
    }

    is_int(refused, KEPT, "without a descriptor for each of a letter's a "
           "create is told to try again");
    ok(id[0] != '\0', "where there are enough it is made");
}


static void
await_sessions(test_broker_t *t, unsigned n, const char *name)
{
    int  i;

    for (i = 0; i < TEST_WAIT / 20 && sessions(t) != n; i++) {
        (void) poll(NULL, 0, 20);
    }

    is_int(sessions(t), n, name);
}


/* The keeper stands, and goes on or is killed in the end. */

static void
test_letters(int deadly)
{
    int            i;
    char           first[64], gone[64], id[64], last[64];
    pid_t          broker, keeper;
    unsigned       before;
    test_broker_t  t;

    test_open(&t, "letters");
    init_helpers(&t);
    is_int(test_start(&t), 0, "a broker runs");
    create(&t, first);
    before = files(&t, 0, NULL);
    broker = test_pid(&t, "broker.pid");
    keeper = test_pid(&t, "keeper.pid");

    ok(tap_kill(keeper, SIGSTOP) == 0 && fill(&t),
       "a keeper that stands, and what it is to be told waits");
    create(&t, gone);
    create(&t, id);
    ok(gone[0] != '\0' && id[0] != '\0', "sessions are made all the same");
    create_short(&t, last);
    ok(test_destroy(&t, gone), "and one of them is ended");
    ok(test_alive(&t, first), "others live");
    await_sessions(&t, 3, "what was refused is gone");

    if (deadly) {
        ok(tap_kill(keeper, SIGKILL) == 0, "the keeper is killed");
        ok(test_await_successor(&t, "keeper.pid", keeper) > 0,
           "the broker takes its place");

    } else {
        ok(tap_kill(keeper, SIGCONT) == 0, "the keeper goes on");

        for (i = 0; i < TEST_WAIT / 10; i++) {
            if (files(&t, 0, NULL) < before + 30) {
                break;
            }

            (void) poll(NULL, 0, 10);
        }

        ok(i < TEST_WAIT / 10, "it is told everything");
        ok(tap_kill(broker, SIGKILL) == 0, "then the broker is killed");
    }

    ok(test_await_successor(&t, "broker.pid", broker) > 0,
       "another broker has come");
    ok(test_alive(&t, first) && test_alive(&t, id) && test_alive(&t, last),
       "who was answered is there");
    ok(!test_alive(&t, gone), "who was ended is not");
    await_sessions(&t, 3, "nor is anybody else");
    ok(test_destroy(&t, first) && test_destroy(&t, id)
       && test_destroy(&t, last), "they end");
    test_close(&t);
}


int
main(void)
{
    if (init_is()) {
        return init_main();
    }

    if (geteuid() != 0) {
        return skip_all("needs root");
    }

    test_letters(0);
    test_letters(1);

    return done_testing();
}
