/* Who starts, replaces and ends whom. */

#include "broker_test.h"

#include <grp.h>
#include <stddef.h>
#include <sys/un.h>


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

    ok(tap_kill(broker, SIGKILL) == 0, "the broker is killed");
    ok(test_alive(&t, id), "a call sent meanwhile finds the session");
    ok(test_pid(&t, "broker.pid") != broker, "with another broker");
    is_int(test_pid(&t, "keeper.pid"), keeper, "and the same keeper");
    ok(test_destroy(&t, id), "the adopted session can be destroyed");

    /* a keeper that dies */

    test_create(&t, "acme", id);
    ok(tap_kill(keeper, SIGKILL) == 0, "the keeper is killed");
    broker = test_await_successor(&t, "broker.pid", test_pid(&t,
                                                           "broker.pid"));
    ok(test_alive(&t, id), "the session lives on below another keeper");
    ok(test_pid(&t, "keeper.pid") != keeper, "whose pid is on file");
    ok(test_destroy(&t, id), "and can be destroyed");
    test_create(&t, "acme", id);
    ok(test_alive(&t, id), "and another one made");

    test_close(&t);
}


/* The value of a line of /proc/<pid>/status, as a number of base. */

static unsigned long long
status_of(pid_t pid, const char *name, int base)
{
    char                path[64], line[256];
    FILE               *status;
    unsigned long long  value;

    (void) snprintf(path, sizeof(path), "/proc/%d/status", (int) pid);
    status = fopen(path, "re");
    value = ~0ULL;

    while (status != NULL && fgets(line, sizeof(line), status) != NULL) {
        if (strncmp(line, name, strlen(name)) == 0) {
            value = strtoull(line + strlen(name), NULL, base);
        }
    }

    if (status != NULL) {
        (void) fclose(status);
    }

    return value;
}


#define CAP(n)  (1ULL << (n))

/* What the broker may at most: CHOWN, DAC_OVERRIDE, FOWNER, SETGID, SETUID,
 * NET_ADMIN, SYS_CHROOT, SYS_ADMIN, SYS_RESOURCE, MKNOD. */

#define BROKER_CAPS                                                          \
    (CAP(0)|CAP(1)|CAP(3)|CAP(6)|CAP(7)|CAP(12)|CAP(18)|CAP(21)|CAP(24)      \
     |CAP(27))

static void
rights(test_broker_t *t, const char *when)
{
    pid_t  broker, keeper;

    broker = test_pid(t, "broker.pid");
    keeper = test_pid(t, "keeper.pid");

    is_int((int64_t) (status_of(broker, "CapPrm:", 16) & ~BROKER_CAPS), 0,
           "the broker holds no capability but its own");
    is_int((int64_t) (status_of(broker, "CapBnd:", 16) & ~BROKER_CAPS), 0,
           "nor could it");
    is_int((int64_t) status_of(broker, "NoNewPrivs:", 10), 1,
           "nor get more by exec");
    is_int((int64_t) status_of(keeper, "CapEff:", 16), CAP(1), when);
    is_int((int64_t) (status_of(keeper, "CapBnd:", 16) & ~BROKER_CAPS), 0,
           "whose bounding set is the broker's");
}


static int
descriptors(pid_t pid)
{
    int    n;
    char   path[64];
    FILE  *list;

    (void) snprintf(path, sizeof(path), "ls /proc/%d/fd | wc -l", (int) pid);
    list = popen(path, "re");
    n = -1;

    if (list != NULL) {
        (void) !fscanf(list, "%d", &n);
        (void) pclose(list);
    }

    return n;
}


/* Threads close what has been in a session, some time later. */

static int
comes_to(pid_t pid, int n)
{
    int  i;

    for (i = 0; descriptors(pid) > n && i < TEST_WAIT / 10; i++) {
        (void) poll(NULL, 0, 10);
    }

    return descriptors(pid) <= n;
}


/* What the broker has started, to look at the machine, has ended. */

static int
test_childless(pid_t pid)
{
    int    i;
    char   path[64], text[16];
    FILE  *list;

    (void) snprintf(path, sizeof(path), "/proc/%d/task/%d/children",
                    (int) pid, (int) pid);

    for (i = 0; i < TEST_WAIT / 5; i++) {
        list = fopen(path, "re");

        if (list == NULL) {
            return 0;
        }

        if (fgets(text, sizeof(text), list) == NULL) {
            (void) fclose(list);
            return 1;
        }

        (void) fclose(list);
        (void) poll(NULL, 0, 5);
    }

    return 0;
}


static void
test_rights(void)
{
    int            before, i, broker_before;
    char           id[64];
    test_broker_t  t;

    test_open(&t, "rights");
    is_int(test_start(&t), 0, "a broker runs");
    rights(&t, "the keeper has DAC_OVERRIDE alone");

    /* what it looks at once is done with */

    is_int(test_answer(test_call(t.control, SBX_OP_DOCTOR, "", ""))->last,
           SBX_F_END, "the doctor looks");
    ok(test_childless(test_pid(&t, "broker.pid")), "and has looked");
    test_create(&t, "acme", id);
    (void) test_destroy(&t, id);
    before = descriptors(test_pid(&t, "keeper.pid"));
    broker_before = descriptors(test_pid(&t, "broker.pid"));

    for (i = 0; i < 20; i++) {
        test_create(&t, "acme", id);
        (void) test_destroy(&t, id);
    }

    ok(test_alive(&t, id) == 0, "twenty sessions have come and gone");

    ok(comes_to(test_pid(&t, "keeper.pid"), before),
       "the keeper has no descriptor more than before");
    ok(comes_to(test_pid(&t, "broker.pid"), broker_before),
       "nor has the broker");

    (void) tap_kill(test_pid(&t, "keeper.pid"), SIGKILL);
    (void) test_await_successor(&t, "broker.pid",
                                test_pid(&t, "broker.pid"));
    (void) test_alive(&t, id);
    rights(&t, "a keeper that was a broker too");
    test_close(&t);
}


static void
test_signal(void)
{
    char           id[64];
    test_broker_t  t;

    test_open(&t, "signal");
    is_int(test_start(&t), 0, "a broker runs");
    test_create(&t, "acme", id);
    (void) tap_kill(test_pid(&t, "broker.pid"), SIGTERM);
    ok(test_alive(&t, id), "a broker does not end by itself");
    (void) tap_kill(test_pid(&t, "keeper.pid"), SIGTERM);
    test_close(&t);
}


/* Nothing of a session outlives both. */

static void
test_all_dead(void)
{
    char            id[64], path[8192];
    pid_t           broker, keeper;
    test_answer_t  *a;
    test_broker_t   t;

    test_open(&t, "dead");
    is_int(test_start(&t), 0, "a broker runs");
    test_create(&t, "acme", id);
    broker = test_pid(&t, "broker.pid");
    keeper = test_pid(&t, "keeper.pid");
    (void) snprintf(path, sizeof(path), "sessions/%s/record", id);
    ok(test_exists(t.state, path), "a session has its record");

    /* stopped first, so that neither replaces the other */

    (void) tap_kill(keeper, SIGSTOP);
    (void) tap_kill(broker, SIGKILL);
    (void) tap_kill(keeper, SIGKILL);
    ok(test_await_end(keeper) == 0 && test_await_end(broker) == 0,
       "keeper and broker are killed");

    (void) close(t.control);
    is_int(test_start(&t), 0, "the next start succeeds");
    ok(!test_exists(t.state, path), "what was left is removed");
    a = test_answer(test_call(t.control, SBX_OP_GET, id, "acme"));
    is_int(a->error.ended, SBX_ENDED_NODE_RESTART,
           "the session's owner is told");
    test_create(&t, "acme", id);
    ok(test_destroy(&t, id), "and sessions are made again");
    test_close(&t);
}


static void
test_damaged_record(void)
{
    int             fd;
    char            good[64], bad[64], path[8192];
    test_answer_t  *a;
    test_broker_t   t;

    test_open(&t, "damaged");
    is_int(test_start(&t), 0, "a broker runs");
    test_create(&t, "acme", good);
    test_create(&t, "acme", bad);

    (void) snprintf(path, sizeof(path), "%s/sessions/%s/record", t.state,
                    bad);
    fd = open(path, O_WRONLY|O_CLOEXEC);
    (void) !pwrite(fd, "XX", 2, 100);
    (void) close(fd);

    (void) tap_kill(test_pid(&t, "broker.pid"), SIGKILL);
    ok(test_alive(&t, good), "a session with a whole record is adopted");
    ok(!test_alive(&t, bad), "one with a damaged record is not");

    a = test_answer(test_call(t.control, SBX_OP_HEALTH, "", ""));
    is_int(a->health.sessions, 1, "nor counted");
    test_close(&t);
}


/* The test stands in for systemd too. */

static void
test_standalone(void)
{
    int                 old, notify;
    char                id[64], name[64], said[64];
    pid_t               pid;
    ssize_t             n;
    test_broker_t       t;
    struct pollfd       pfd;
    struct sockaddr_un  sa;

    test_open(&t, "standalone");

    memset(&sa, 0, sizeof(sa));
    sa.sun_family = AF_UNIX;
    (void) snprintf(name, sizeof(name), "@sbx-notify-%d", (int) getpid());
    memcpy(sa.sun_path + 1, name + 1, strlen(name) - 1);
    notify = socket(AF_UNIX, SOCK_DGRAM|SOCK_CLOEXEC, 0);
    is_int(bind(notify, (struct sockaddr *) &sa,
                (socklen_t) (offsetof(struct sockaddr_un, sun_path)
                             + strlen(name))), 0,
           "somebody waits to be told");

    pid = fork();

    if (pid == 0) {
        char  program[8192];

        (void) snprintf(program, sizeof(program), "%s/sandbox-broker",
                        t.helpers);
        (void) setenv("NOTIFY_SOCKET", name, 1);
        (void) execl(program, program, "--keeper", "--standalone", "--state",
                     t.state, "--helpers", t.helpers, "--log", t.log, NULL);
        _exit(1);
    }

    pfd = (struct pollfd) { .fd = notify, .events = POLLIN };
    (void) poll(&pfd, 1, 30000);
    n = recv(notify, said, sizeof(said) - 1, MSG_DONTWAIT);
    said[n > 0 ? n : 0] = '\0';
    is_str(said, "READY=1\n", "when the broker is ready");
    ok(test_exists(t.state, "broker.sock")
       && test_exists(t.state, "broker.pid"), "and can be found");
    (void) close(notify);

    t.client.spawn = 0;
    is_int(test_start(&t), 0, "a server finds the service");
    is_int(t.hello.keeper_pid, pid, "and starts none of its own");
    test_create(&t, "acme", id);

    old = t.control;
    t.control = -1;
    (void) close(old);
    is_int(test_start(&t), 0, "the server is gone, and another one comes");
    ok(test_alive(&t, id), "the session has lived on");

    (void) tap_kill(pid, SIGTERM);
    (void) waitpid(pid, NULL, 0);
    test_close(&t);
}


/* Of a group's member, or of somebody else: errno of connecting. */

static int
test_connects(test_broker_t *t, gid_t gid)
{
    int                 status;
    pid_t               pid;
    struct sockaddr_un  sa;

    pid = fork();

    if (pid == 0) {
        memset(&sa, 0, sizeof(sa));
        sa.sun_family = AF_UNIX;
        (void) snprintf(sa.sun_path, sizeof(sa.sun_path), "%.80s/broker.sock",
                        t->state);

        if (setgroups(0, NULL) == -1 || setresgid(gid, gid, gid) == -1
            || setresuid(65534, 65534, 65534) == -1)
        {
            _exit(255);
        }

        _exit(connect(socket(AF_UNIX, SOCK_SEQPACKET|SOCK_CLOEXEC, 0),
                      (struct sockaddr *) &sa, sizeof(sa)) == -1 ? errno : 0);
    }

    return waitpid(pid, &status, 0) == pid && WIFEXITED(status)
           ? WEXITSTATUS(status) : -1;
}


static pid_t
test_keeper(test_broker_t *t, const char *group)
{
    char   program[8192];
    pid_t  pid;

    pid = fork();

    if (pid == 0) {
        (void) snprintf(program, sizeof(program), "%s/sandbox-broker",
                        t->helpers);
        (void) execl(program, program, "--keeper", "--standalone", "--state",
                     t->state, "--helpers", t->helpers, "--log", t->log,
                     "--socket-group", group, NULL);
        _exit(1);
    }

    return pid;
}


/* The socket is of use to those whom it is for, wherever it is. */

static void
test_group(void)
{
    pid_t           pid;
    struct stat     st;
    test_broker_t   t;
    struct group   *group;

    group = getgrnam("daemon");

    if (group == NULL) {
        ok(1, "# SKIP no group \"daemon\"");
        return;
    }

    test_open(&t, "group");
    (void) chmod(t.dir, 0755);

    pid = test_keeper(&t, "daemon");
    ok(test_await_successor(&t, "broker.pid", -1) > 0, "a service");
    ok(stat(t.state, &st) == 0 && st.st_uid == 0
       && st.st_gid == group->gr_gid && (st.st_mode & 07777) == 0710,
       "makes a directory that its group may enter");
    is_int(test_connects(&t, group->gr_gid), 0, "the group comes to it");
    is_int(test_connects(&t, 65534), EACCES, "nobody else does");
    ok(!test_logged(&t, "cannot enter"), "and nothing is to be told");

    (void) tap_kill(pid, SIGTERM);
    (void) waitpid(pid, NULL, 0);

    (void) chmod(t.state, 0700);
    pid = test_keeper(&t, "daemon");
    ok(test_await_successor(&t, "broker.pid", -1) > 0,
       "one whose directory was there");
    is_int(test_connects(&t, group->gr_gid), EACCES, "and cannot be entered");
    ok(test_logged(&t, "the group \"daemon\" cannot enter"), "says so");

    (void) tap_kill(pid, SIGTERM);
    (void) waitpid(pid, NULL, 0);
    test_close(&t);
}


/* The test stands in for logrotate. */

static void
test_log(void)
{
    int            i;
    char           id[64], old[8192];
    struct stat    st;
    test_broker_t  t;

    test_open(&t, "log");
    is_int(test_start(&t), 0, "a broker runs");
    (void) snprintf(old, sizeof(old), "%s.1", t.log);
    (void) rename(t.log, old);
    (void) close(open(t.log, O_CREAT|O_WRONLY|O_CLOEXEC, 0640));

    for (i = 0; i < 200; i++) {
        test_create(&t, "acme", id);
        (void) test_destroy(&t, id);

        if (stat(t.log, &st) == 0 && st.st_size != 0) {
            break;
        }

        (void) poll(NULL, 0, 20);
    }

    ok(test_logged(&t, "request: 0123456789abcdef0123456789abcdef"),
       "after a rotation lines go to the new file, with the request's id");
    test_close(&t);
}


/* Two servers with one range of ids. */

static void
test_ids(void)
{
    char           id[64];
    test_broker_t  a, b;

    test_open(&a, "ids-a");
    test_open(&b, "ids-b");
    a.config.uid_first = 1610612736;
    a.config.uid_count = 8388608;
    b.config.uid_first = 1610612736;
    b.config.uid_count = 8388608;

    is_int(test_start(&a), 0, "a broker takes its ids");
    is_int(test_start(&b), -1, "another one does not get the same");
    ok(strstr(b.error.text, "sandbox_uid_range") != NULL,
       "and is told how to mend it");

    test_create(&a, "acme", id);
    (void) tap_kill(test_pid(&a, "broker.pid"), SIGKILL);
    is_int(test_start(&b), -1, "not even when the first has just died");
    ok(test_alive(&a, id), "whose session lives on");

    b.config.uid_count = 2 * 8388608;
    is_int(test_start(&b), 0, "in a larger range both find room");

    test_close(&b);
    test_close(&a);
}


int
main(void)
{
    if (geteuid() != 0) {
        return skip_all("needs root");
    }

    test_life();
    test_rights();
    test_signal();
    test_all_dead();
    test_damaged_record();
    test_standalone();
    test_group();
    test_log();
    test_ids();

    return done_testing();
}
