/*
 * Processes in a session as it is made: its own file system of terminals,
 * its groups, its filter.
 */

#include "broker_test.h"


typedef struct {
    int      last;                   /* the frame's type */
    int      pid;
    unsigned orphans;
    int      orphan;
    uint64_t count;
    char     out[65536];
    size_t   size;
    sbx_f_error_t  error;
    sbx_f_exit_t   exit;
} answer_t;


static answer_t  a;


static void
take(const sbx_frame_t *f, const uint8_t *p)
{
    sbx_f_state_t  state;

    switch (f->type) {

    case SBX_F_STARTED:
        memcpy(&a.pid, p, sizeof(a.pid));
        break;

    case SBX_F_STDOUT:
        if (a.size + f->length < sizeof(a.out)) {
            memcpy(a.out + a.size, p, f->length);
            a.size += f->length;
        }
        break;

    case SBX_F_STATE:
        memcpy(&state, p, sizeof(state));

        if (state.kind == SBX_KIND_ORPHAN) {
            a.orphans++;
            a.orphan = state.pid;
        }
        break;

    case SBX_F_EXIT:
        memcpy(&a.exit, p, sizeof(a.exit));
        a.last = f->type;
        break;

    case SBX_F_END:
        memcpy(&a.count, p + offsetof(sbx_f_end_t, count), sizeof(a.count));
        a.last = f->type;
        break;

    case SBX_F_ERROR:
        memcpy(&a.error, p, sizeof(a.error));
        a.last = f->type;
        printf("# %s\n", a.error.text);
        break;
    }
}


/* Until the end, or a text. */

static int
all(const char *text)
{
    return a.last != 0 || (text != NULL && strstr(a.out, text) != NULL);
}


static void
follow(int fd, const char *text)
{
    test_follow(fd, take, all, text);
}


static int
begin(test_broker_t *t, const char *id, const char *script, uint32_t flags,
    uint32_t user)
{
    int                fd;
    char               strings[4096];
    size_t             n;
    sbx_call_t         head;
    sbx_f_exec_t       exec;
    sbx_exec_limits_t  limits;

    memset(&limits, 0xff, sizeof(limits));
    memset(&exec, 0, sizeof(exec));
    memset(&a, 0, sizeof(a));

    n = (size_t) snprintf(strings, sizeof(strings), "%c/bin/sh%c-c%c%s", 0,
                          0, 0, script) + 1;
    exec.flags = flags|SBX_EXEC_DEFAULT_CWD;
    exec.user = user;
    exec.argc = 3;
    exec.strings_size = (uint32_t) n;
    exec.timeout = SBX_UNSET;
    exec.max_output = SBX_UNSET;
    exec.cpu_seconds = SBX_UNSET;
    exec.max_file_size = SBX_UNSET;
    exec.open_files = SBX_UNSET;
    exec.stack = SBX_UNSET;

    test_head(&head, SBX_OP_EXEC, id, "", "", sizeof(limits));
    fd = test_send(t->control, &head, &limits, sizeof(limits), -1);
    test_frame(fd, SBX_F_EXEC, &exec, sizeof(exec));
    test_frame(fd, SBX_F_STRINGS, strings, n);

    return fd;
}


static void
ask(test_broker_t *t, const char *id, uint32_t verb, int pid, int sig)
{
    int              fd;
    sbx_f_process_t  p;

    memset(&a, 0, sizeof(a));
    memset(&p, 0, sizeof(p));
    p.verb = verb;
    p.pid = pid;
    p.signal = sig;
    p.from[0] = SBX_UNSET;
    p.from[1] = SBX_UNSET;

    fd = test_call(t->control, SBX_OP_PROCESS, id, "");
    test_frame(fd, SBX_F_PROCESS, &p, sizeof(p));
    follow(fd, NULL);
    (void) close(fd);
}


static void
test_terminal(test_broker_t *t, const char *id, uint32_t user)
{
    int              fd;
    sbx_f_process_t  p;

    fd = begin(t, id, "ls -ln $(tty) | cut -d' ' -f1,3,4; stty size;"
               " echo x > /dev/tty; read l; echo got:$l; stty size",
               SBX_EXEC_TTY|SBX_EXEC_STDIN_OPEN, user);
    follow(fd, "x\r\n");
    ok(strstr(a.out, user == SBX_USER_ROOT ? "crw--w---- 0 5\r\n"
                                           : "crw--w---- 1000 5\r\n")
       != NULL, "a terminal of the session's own");

    memset(&p, 0, sizeof(p));
    p.verb = SBX_PROCESS_RESIZE;
    p.rows = 33;
    p.cols = 44;
    test_frame(fd, SBX_F_PROCESS, &p, sizeof(p));
    test_frame(fd, SBX_F_STDIN, "hello\n", 6);
    follow(fd, NULL);
    (void) close(fd);
    ok(a.last == SBX_F_EXIT && strstr(a.out, "24 80\r\n") != NULL
       && strstr(a.out, "got:hello\r\n") != NULL
       && strstr(a.out, "33 44\r\n") != NULL, "works as one");
}


/* What a session may do to terminals must not be felt outside of it. */

static void
test_many_terminals(test_broker_t *t, const char *id)
{
    int  fd, other;

    fd = begin(t, id, "exec python3 -c 'import os\n"
               "try:\n"
               "    while True: os.openpty()\n"
               "except OSError: pass\n"
               "print(\"full\", flush=True)\n"
               "os.read(0, 1)'", SBX_EXEC_STDIN_OPEN, SBX_USER_USER);
    follow(fd, "full");

    if (strstr(a.out, "full") == NULL) {
        skip("no python3 in the session", "many terminals");
        (void) close(fd);
        return;
    }

    other = begin(t, id, "true", SBX_EXEC_TTY, SBX_USER_USER);
    follow(other, NULL);
    (void) close(other);
    ok(a.last == SBX_F_ERROR && a.error.code == SBX_E_QUOTA,
       "a session's terminals can run out");

    other = begin(t, id, "echo alive", 0, SBX_USER_USER);
    test_frame(other, SBX_F_STDIN, NULL, 0);
    follow(other, NULL);
    (void) close(other);
    ok(strcmp(a.out, "alive\n") == 0, "but nothing else");
    (void) close(fd);
}


static void
test_left(test_broker_t *t, const char *id)
{
    int  fd, i, pid;

    fd = begin(t, id, "sleep 71 > /dev/null 2>&1 & echo out",
               SBX_EXEC_BACKGROUND, SBX_USER_USER);
    test_frame(fd, SBX_F_STDIN, NULL, 0);
    follow(fd, NULL);
    (void) close(fd);
    pid = a.pid;
    ok(a.last == SBX_F_END && pid > 1, "a command in the background");

    ask(t, id, SBX_PROCESS_OUTPUT, pid, 0);
    ok(a.last == SBX_F_EXIT && strcmp(a.out, "out\n") == 0,
       "with its output");

    for (i = 0; i < 1000; i++) {
        ask(t, id, SBX_PROCESS_LIST, 0, 0);

        if (a.orphans == 1) {
            break;
        }

        (void) usleep(5000);
    }

    ok(a.orphans == 1 && a.orphan > 1, "what it left behind is listed");
    ask(t, id, SBX_PROCESS_SIGNAL, a.orphan, SIGKILL);
    ok(a.last == SBX_F_END, "and can be signalled");

    for (i = 0; i < 1000; i++) {
        ask(t, id, SBX_PROCESS_LIST, 0, 0);

        if (a.orphans == 0) {
            break;
        }

        (void) usleep(5000);
    }

    ok(a.orphans == 0, "until it is gone");

    fd = begin(t, id, "trap '' TERM; sleep 71 & sleep 71",
               SBX_EXEC_BACKGROUND, SBX_USER_ROOT);
    test_frame(fd, SBX_F_STDIN, NULL, 0);
    follow(fd, NULL);
    (void) close(fd);
    pid = a.pid;

    memset(&a, 0, sizeof(a));
    fd = test_call(t->control, SBX_OP_CANCEL, id, "");
    follow(fd, NULL);
    (void) close(fd);
    ok(a.last == SBX_F_END && a.count == 1, "a cancel ends it");
    ask(t, id, SBX_PROCESS_OUTPUT, pid, 0);
    ok(a.last == SBX_F_EXIT && a.exit.reason == SBX_REASON_CANCELLED,
       "and says so");
}


/* How many commands are over, once there are as many; and their time. */

static unsigned
over(test_broker_t *t, unsigned want, uint64_t *cpu_us)
{
    unsigned          i, n, round;
    sbx_f_metrics_t  *m;

    for (round = 0; round < TEST_WAIT / 5; round++) {
        m = &test_answer(test_call(t->control, SBX_OP_METRICS, "", ""))
             ->metrics;
        *cpu_us = m->cpu_us;

        for (n = 0, i = 0; i < SBX_METRICS_REASONS; i++) {
            n += (unsigned) m->commands[i];
        }

        if (n >= want) {
            break;
        }

        (void) poll(NULL, 0, 5);
    }

    return n;
}


/*
 * What init tells is bounded by what the session has used, and of a true one
 * nothing is left out: neither of many commands, nor of one that began before
 * this broker.
 */

#define BURN  "i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done"

static void
test_time(test_broker_t *t)
{
    int       fd;
    char      id[SBX_ID_MAX + 8];
    pid_t     broker;
    uint64_t  before, after, sum;
    unsigned  i;

    test_create(t, "acme", id);
    (void) over(t, 0, &before);
    sum = 0;

    for (i = 0; i < 10; i++) {
        fd = begin(t, id, i % 2 ? BURN "& wait" : BURN, 0, SBX_USER_USER);
        test_frame(fd, SBX_F_STDIN, NULL, 0);
        follow(fd, NULL);
        (void) close(fd);
        sum += a.exit.cpu_user_us + a.exit.cpu_system_us;
    }

    is_int(over(t, 10, &after), 10, "ten commands are over");
    ok(sum > 0 && after - before == sum, "all of their time is counted");

    fd = begin(t, id, BURN "; echo half; read x; " BURN,
               SBX_EXEC_STDIN_OPEN, SBX_USER_USER);
    follow(fd, "half");
    broker = test_pid(t, "broker.pid");
    (void) tap_kill(broker, SIGKILL);
    ok(test_await_successor(t, "broker.pid", broker) > 0 && a.last == 0,
       "the broker is replaced while one runs");
    test_frame(fd, SBX_F_STDIN, "go\n", 3);
    follow(fd, NULL);
    (void) close(fd);
    sum = a.exit.cpu_user_us + a.exit.cpu_system_us;
    is_int(over(t, 1, &after), 1, "and counts it");
    ok(sum > 0 && after == sum, "with the time before it was there");

    ok(test_destroy(t, id), "the session ends");
}


int
main(void)
{
    char           id[SBX_ID_MAX + 8];
    test_broker_t  t;

    if (geteuid() != 0) {
        return skip_all("needs root");
    }

    test_open(&t, "process");

    if (!ok(test_start(&t) == 0, "a broker starts")) {
        printf("# %s\n", t.error.text);
        return done_testing();
    }

    test_time(&t);
    test_create(&t, "acme", id);
    test_terminal(&t, id, SBX_USER_USER);
    test_terminal(&t, id, SBX_USER_ROOT);
    test_many_terminals(&t, id);
    test_left(&t, id);
    ok(test_destroy(&t, id), "the session ends");
    test_close(&t);

    return done_testing();
}
