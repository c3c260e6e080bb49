/* Starting and finding a broker, and what is said when that fails. */

#include "broker_test.h"

#include <sys/file.h>
#include <sys/un.h>


static void
fails(test_broker_t *t, const char *says, const char *name)
{
    int  rc;

    rc = test_start(t);

    if (!ok(rc == -1 && strstr(t->error.text, says) != NULL, "%s", name)) {
        printf("# %d: %s\n", rc, t->error.text);
    }

    ok(strchr(t->error.text, '\n') == NULL, "in one line");
    is_int(t->control, -1, "and no connection");
}


static void
test_errors(void)
{
    char           path[8192];
    test_broker_t  t;

    test_open(&t, "errors");

    t.client.spawn = 0;
    fails(&t, "start the service", "where none runs and none may be started");
    t.client.spawn = 1;

    t.client.helper_dir = "/nonexistent";
    fails(&t, "sandbox_helper_dir", "helpers that are not there");
    t.client.helper_dir = t.helpers;

    (void) snprintf(path, sizeof(path), "%s/file", t.dir);
    (void) close(open(path, O_CREAT|O_WRONLY|O_CLOEXEC, 0644));
    t.client.state_dir = path;
    fails(&t, "cannot connect", "a state directory that is a file");

    (void) snprintf(path, sizeof(path), "%s/a/b", t.dir);
    fails(&t, "state directory", "one whose parent is missing");

    (void) snprintf(path, sizeof(path), "%s/open", t.dir);
    (void) mkdir(path, 0700);
    (void) chmod(path, 0777);
    fails(&t, "writable by nobody else", "one that others may write");

    (void) snprintf(path, sizeof(path), "%s/foreign", t.dir);
    (void) mkdir(path, 0700);
    (void) !chown(path, 65534, 65534);
    fails(&t, "belong to root", "one that belongs to somebody else");

    t.client.state_dir = t.state;
    t.client.log_path = "/nonexistent/error.log";
    fails(&t, "log", "a log that cannot be opened");
    t.client.log_path = t.log;

    t.config.uid_first = 0;
    fails(&t, "sandbox_uid_range", "ids that belong to the machine");
    ok(!test_exists(t.state, "broker.sock")
       || test_await_end(test_pid(&t, "keeper.pid")) == 0,
       "a broker that cannot work does not stay");

    t.config.uid_first = 1073741824;
    is_int(test_start(&t), 0, "and the next one starts");
    test_close(&t);
}


/* Two at once: one broker. */

static void
test_race(void)
{
    int            i, status;
    pid_t          pids[4];
    test_broker_t  t;

    test_open(&t, "race");

    for (i = 0; i < 4; i++) {
        pids[i] = fork();

        if (pids[i] == 0) {
            i = test_start(&t);
            (void) poll(NULL, 0, i == 0 ? 1500 : 0);
            _exit(i == 0 ? t.hello.keeper_pid % 251 : 255);
        }
    }

    for (i = 0; i < 4; i++) {
        (void) waitpid(pids[i], &status, 0);

        if (!ok(WIFEXITED(status) && WEXITSTATUS(status) != 255,
                "server %d finds a broker", i))
        {
            printf("# %d\n", WEXITSTATUS(status));
        }
    }

    (void) test_await_end(test_pid(&t, "keeper.pid"));
    test_close(&t);
}


static void
test_long_path(void)
{
    char           id[64];
    size_t         n;
    test_broker_t  t;

    test_open(&t, "long");

    for (n = 0; n < 10; n++) {
        (void) strcat(t.state, "/a-directory-with-a-long-name");
    }

    n = strlen(t.dir);

    do {
        n += strcspn(t.state + n + 1, "/") + 1;
        t.state[n] = '\0';
        (void) mkdir(t.state, 0700);
        t.state[n] = '/';
    } while (n < strlen(t.dir) + 150);

    t.state[n] = '\0';

    ok(strlen(t.state) > 108, "a path longer than a socket's address");

    if (ok(test_start(&t) == 0, "is no hindrance")) {
        test_create(&t, "acme", id);
        ok(test_destroy(&t, id), "nor for sessions");

    } else {
        printf("# %s (%d)\n", t.error.text, t.error.err);
    }

    test_close(&t);
}


/* A reload: another connection, another configuration, the same broker. */

static void
test_reload(void)
{
    int             old;
    char            id[64];
    sbx_create_t    body;
    sbx_hello_t     hello;
    test_broker_t   t;
    test_answer_t  *a;

    test_open(&t, "reload");
    is_int(test_start(&t), 0, "a server starts");
    hello = t.hello;
    test_create(&t, "acme", id);

    old = t.control;
    t.config.max.memory = 32 * 1024 * 1024;
    t.config.uid_count = 1073741824 / 2;
    is_int(test_start(&t), 0, "it loads its configuration anew");
    is_int(t.hello.broker_pid, hello.broker_pid, "the broker stays");
    (void) close(old);
    ok(test_alive(&t, id), "the session too");
    ok(test_logged(&t, "sandbox_uid_range has changed"),
       "the log tells what cannot change now");

    test_create_body(&body);
    a = test_answer(test_create_send(t.control, "acme", &body, -1));
    is_int(a->error.code, SBX_E_MANIFEST, "new sessions have the new limits");

    (void) tap_kill(t.hello.broker_pid, SIGKILL);
    a = test_answer(test_create_send(t.control, "acme", &body, -1));
    is_int(a->error.code, SBX_E_MANIFEST, "also with the next broker");

    ok(test_destroy(&t, id), "the old session is destroyed");
    test_close(&t);
}


/* A successor that comes while the predecessor still ends. */

static void
test_restart(void)
{
    int            i, good;
    char           id[64];
    test_broker_t  t;

    test_open(&t, "restart");
    good = 0;

    for (i = 0; i < 5; i++) {
        if (test_start(&t) != 0) {
            printf("# %s\n", t.error.text);
            continue;
        }

        test_create(&t, "acme", id);
        good += id[0] == 'i';
        (void) close(t.control);
        t.control = -1;
    }

    is_int(good, 5, "five servers, one right after the other");
    is_int(test_start(&t), 0, "and a last one");
    test_close(&t);
}


static void
test_version(void)
{
    int                 fd;
    char                datagram[sizeof(sbx_call_t) + 100];
    ssize_t             n;
    unsigned            nfds;
    sbx_call_t          head;
    sbx_hello_t         hello;
    struct pollfd       pfd;
    test_broker_t       t;
    struct sockaddr_un  addr;

    test_open(&t, "version");
    is_int(test_start(&t), 0, "a broker runs");

    fd = socket(AF_UNIX, SOCK_SEQPACKET|SOCK_CLOEXEC, 0);
    memset(&addr, 0, sizeof(addr));
    addr.sun_family = AF_UNIX;
    (void) snprintf(addr.sun_path, sizeof(addr.sun_path),
                    "%.80s/broker.sock", t.state);
    is_int(connect(fd, (struct sockaddr *) &addr, sizeof(addr)), 0,
           "a server of another version comes");

    test_head(&head, SBX_OP_HELLO_CONFIG, "", "", "", 100);
    head.version = SBX_WIRE_VERSION + 1;
    memset(datagram, 0, sizeof(datagram));
    memcpy(datagram, &head, sizeof(head));
    (void) sbx_wire_send(fd, datagram, sizeof(datagram), NULL, 0, 0);

    pfd.fd = fd;
    pfd.events = POLLIN;
    (void) poll(&pfd, 1, TEST_WAIT);
    nfds = 0;
    memset(&hello, 0, sizeof(hello));
    n = sbx_wire_recv(fd, &hello, sizeof(hello), NULL, &nfds, MSG_DONTWAIT);
    ok(n == sizeof(hello) && !hello.ok
       && strstr(hello.error.text, "version") != NULL,
       "it is told that versions differ");
    (void) close(fd);

    test_close(&t);
}


/* Where one connects as another user. */

static void
test_stranger(void)
{
    int                 fd, status;
    pid_t               pid;
    char                path[8192];
    test_broker_t       t;
    struct sockaddr_un  addr;

    test_open(&t, "stranger");
    is_int(test_start(&t), 0, "a broker runs");
    (void) chmod(t.dir, 0755);
    (void) chmod(t.state, 0755);
    (void) snprintf(path, sizeof(path), "%s/broker.sock", t.state);

    pid = fork();

    if (pid == 0) {
        if (setgid(65534) == -1 || setuid(65534) == -1) {
            _exit(2);
        }

        fd = socket(AF_UNIX, SOCK_SEQPACKET|SOCK_CLOEXEC, 0);
        memset(&addr, 0, sizeof(addr));
        addr.sun_family = AF_UNIX;
        (void) snprintf(addr.sun_path, sizeof(addr.sun_path), "%.100s",
                        path);
        _exit(connect(fd, (struct sockaddr *) &addr, sizeof(addr)) == -1
              && errno == EACCES ? 0 : 1);
    }

    (void) waitpid(pid, &status, 0);
    is_int(status, 0, "another user cannot connect");
    test_close(&t);
}


int
main(void)
{
    if (geteuid() != 0) {
        return skip_all("needs root");
    }

    test_errors();
    test_race();
    test_long_path();
    test_reload();
    test_restart();
    test_version();
    test_stranger();

    return done_testing();
}
