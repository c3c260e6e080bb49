/*
 * What may have a session that asks for tokens, and a session that is resumed:
 * by whom, with what time, and by the calls that need it.
 */

#include "broker_test.h"

#include <time.h>


#define MINUTE   ((int64_t) 60000)


static int
begin(test_broker_t *t, sbx_op_t op, const char *id, uint32_t flags)
{
    sbx_call_t         head;
    sbx_exec_limits_t  limits;

    memset(&limits, 0xff, sizeof(limits));
    test_head(&head, op, id, "acme", "",
              op == SBX_OP_EXEC ? sizeof(limits) : 0);
    head.flags = flags;

    return test_send(t->control, &head, &limits,
                     op == SBX_OP_EXEC ? sizeof(limits) : 0, -1);
}


static test_answer_t *
change(test_broker_t *t, sbx_op_t op, const char *id)
{
    return test_answer(test_call(t->control, op, id, "acme"));
}


/* A PATCH or a RESUME with a time. */

static test_answer_t *
timed(test_broker_t *t, sbx_op_t op, const char *id, int64_t ms,
    uint32_t flags)
{
    sbx_call_t   head;
    sbx_patch_t  body;

    memset(&body, 0, sizeof(body));
    body.timeout = (uint64_t) ms;
    body.flags = flags;
    test_head(&head, op, id, "acme", "", sizeof(body));

    return test_answer(test_send(t->control, &head, &body, sizeof(body),
                                 -1));
}


static int64_t
left(const test_answer_t *a)
{
    struct timespec  now;

    (void) clock_gettime(CLOCK_REALTIME, &now);

    return a->session.expires - (int64_t) now.tv_sec * 1000
           - now.tv_nsec / 1000000;
}


/* About so many minutes. */

static int
about(const test_answer_t *a, int64_t minutes)
{
    int64_t  ms;

    ms = left(a);

    if (a->last != SBX_F_END || ms <= minutes * MINUTE - 20000
        || ms > minutes * MINUTE)
    {
        printf("# %lld ms\n", (long long) ms);
        return 0;
    }

    return 1;
}


static void
make(test_broker_t *t, char *id, uint32_t flags, uint64_t timeout)
{
    sbx_create_t    body;
    test_answer_t  *a;

    test_create_body(&body);
    body.flags = flags;
    body.limits.timeout = timeout;
    a = test_answer(test_create_send(t->control, "acme", &body, -1));
    (void) strcpy(id, a->session.id);
    ok(a->last == SBX_F_END && a->session.flags == flags,
       "a session has the flags 0x%x", (unsigned) flags);
}


typedef struct {
    const char  *what;
    uint32_t     needs;
    uint32_t     bars;
    sbx_code_t   code;
} bar_t;

static const bar_t  bars[] = {
    { "what it has", SBX_CREATE_PORT_TOKEN, 0, SBX_OK },
    { "what it has not", SBX_CREATE_NO_TOKEN, 0, SBX_E_TOKEN },
    { "one of two", SBX_CREATE_PORT_TOKEN|SBX_CREATE_NO_TOKEN, 0,
      SBX_E_TOKEN },
    { "what it must not have", 0, SBX_CREATE_PORT_TOKEN, SBX_E_TOKEN },
    { "and has not", 0, SBX_CREATE_NO_TOKEN, SBX_OK },
    { "bits that there are not", 0x80000000, 0, SBX_E_INVALID },
    { "of both kinds", 0, 0x80, SBX_E_INVALID },
};


static void
test_bars(test_broker_t *t)
{
    int             fd;
    char            id[64];
    size_t          i;
    pid_t           old;
    sbx_call_t      head;
    sbx_frame_t     frame;
    test_answer_t  *a;

    make(t, id, SBX_CREATE_PORT_TOKEN|SBX_CREATE_AUTO_RESUME, 600000);

    for (i = 0; i < sbx_nelts(bars); i++) {
        test_head(&head, SBX_OP_GET, id, "acme", "", 0);
        head.needs = bars[i].needs;
        head.bars = bars[i].bars;
        a = test_answer(test_send(t->control, &head, NULL, 0, -1));
        is_int(a->error.code, bars[i].code, bars[i].what);
    }

    test_head(&head, SBX_OP_DESTROY, id, "acme", "", 0);
    head.needs = SBX_CREATE_NO_TOKEN;
    is_int(test_answer(test_send(t->control, &head, NULL, 0, -1))
               ->error.code,
           SBX_E_TOKEN, "it is not ended");

    head.op = SBX_OP_CANCEL;
    head.flags = SBX_CALL_OWNER;
    fd = test_send(t->control, &head, NULL, 0, -1);
    ok(sbx_read_full(fd, &frame, sizeof(frame)) == sizeof(frame)
       && frame.type == SBX_F_ERROR, "and whose it is, is not told");
    (void) close(fd);

    (void) strcpy(head.tenant, "evil");
    head.flags = 0;
    is_int(test_answer(test_send(t->control, &head, NULL, 0, -1))
               ->error.code,
           SBX_E_SESSION, "to others it is not there at all");

    old = test_pid(t, "broker.pid");
    (void) kill(old, SIGKILL);
    (void) test_await_successor(t, "broker.pid", old);
    a = change(t, SBX_OP_GET, id);
    ok(a->last == SBX_F_END
       && a->session.flags == (SBX_CREATE_PORT_TOKEN
                               |SBX_CREATE_AUTO_RESUME),
       "a new broker knows its flags");
    ok(test_destroy(t, id), "destroyed");
}


static void
test_time(test_broker_t *t)
{
    char            id[64];
    test_answer_t  *a;

    make(t, id, 0, 10 * 60000);

    a = timed(t, SBX_OP_PATCH, id, 5 * MINUTE,
              SBX_PATCH_TIMEOUT|SBX_PATCH_EXTEND);
    ok(about(a, 10), "a shorter time does not end it earlier");
    a = timed(t, SBX_OP_PATCH, id, 20 * MINUTE,
              SBX_PATCH_TIMEOUT|SBX_PATCH_EXTEND);
    ok(about(a, 20), "a longer one has it end later");
    a = timed(t, SBX_OP_PATCH, id, 15 * MINUTE, SBX_PATCH_TIMEOUT);
    ok(about(a, 15), "but where it is not to be extended");

    a = timed(t, SBX_OP_RESUME, id, 30 * MINUTE, SBX_PATCH_TIMEOUT);
    ok(about(a, 30) && a->end.count == 0,
       "to resume one that runs changes its time");
    a = timed(t, SBX_OP_RESUME, id, 10 * MINUTE,
              SBX_PATCH_TIMEOUT|SBX_PATCH_EXTEND);
    ok(about(a, 30) && a->end.count == 0, "or does not");
    is_int(timed(t, SBX_OP_RESUME, id, 1, SBX_PATCH_META)->error.code,
           SBX_E_INVALID, "it has no metadata");
    is_int(timed(t, SBX_OP_RESUME, id, 1, SBX_PATCH_EXTEND)->error.code,
           SBX_E_INVALID, "nor half a time");

    a = change(t, SBX_OP_PAUSE, id);

    if (a->error.code == SBX_E_MANIFEST) {
        printf("# %s\n", a->error.text);
        (void) test_destroy(t, id);
        return;
    }

    a = timed(t, SBX_OP_PATCH, id, 10 * MINUTE,
              SBX_PATCH_TIMEOUT|SBX_PATCH_EXTEND);
    ok(about(a, 30) && a->session.status == SBX_STATUS_PAUSED,
       "what a paused one will have is not made less");
    a = timed(t, SBX_OP_PATCH, id, 40 * MINUTE,
              SBX_PATCH_TIMEOUT|SBX_PATCH_EXTEND);
    ok(about(a, 40) && a->session.left == 40 * MINUTE, "but more");

    a = timed(t, SBX_OP_RESUME, id, 5 * MINUTE,
              SBX_PATCH_TIMEOUT|SBX_PATCH_EXTEND);
    ok(about(a, 40) && a->end.count == 1
       && a->session.status == SBX_STATUS_RUNNING,
       "resumed it has what it had");
    (void) change(t, SBX_OP_PAUSE, id);
    a = timed(t, SBX_OP_RESUME, id, 5 * MINUTE, SBX_PATCH_TIMEOUT);
    ok(about(a, 5) && a->end.count == 1, "or what it is given");
    (void) change(t, SBX_OP_PAUSE, id);
    a = timed(t, SBX_OP_RESUME, id, 50 * MINUTE,
              SBX_PATCH_TIMEOUT|SBX_PATCH_EXTEND);
    ok(about(a, 50) && a->end.count == 1, "or the longer of both");

    (void) test_destroy(t, id);
}


static void
command(int fd, const char *script)
{
    char          strings[256];
    size_t        n;
    sbx_f_exec_t  exec;

    memset(&exec, 0, sizeof(exec));
    n = (size_t) snprintf(strings, sizeof(strings), "%c/bin/sh%c-c%c%s", 0,
                          0, 0, script) + 1;
    exec.flags = SBX_EXEC_DEFAULT_CWD;
    exec.argc = 3;
    exec.strings_size = (uint32_t) n;
    exec.timeout = SBX_UNSET;
    exec.max_output = SBX_UNSET;
    exec.cpu_seconds = SBX_UNSET;
    exec.max_file_size = SBX_UNSET;
    exec.open_files = SBX_UNSET;
    exec.stack = SBX_UNSET;

    test_frame(fd, SBX_F_EXEC, &exec, sizeof(exec));
    test_frame(fd, SBX_F_STRINGS, strings, n);
    test_frame(fd, SBX_F_STDIN, NULL, 0);
}


/* How often a text is in the log. */

static unsigned
logged(test_broker_t *t, const char *text)
{
    char      line[4096];
    FILE     *log;
    unsigned  n;

    log = fopen(t->log, "re");

    for (n = 0; log != NULL && fgets(line, sizeof(line), log) != NULL; ) {
        n += strstr(line, text) != NULL;
    }

    if (log != NULL) {
        (void) fclose(log);
    }

    return n;
}


static void
test_calls(test_broker_t *t)
{
    int             fd[4];
    char            id[64];
    unsigned        n;
    pid_t           old;
    test_answer_t  *a;

    make(t, id, 0, 600000);
    a = change(t, SBX_OP_PAUSE, id);

    if (a->error.code == SBX_E_MANIFEST) {
        (void) test_destroy(t, id);
        return;
    }

    is_int(test_answer(begin(t, SBX_OP_CANCEL, id, SBX_CALL_RESUME))
               ->error.code,
           SBX_E_PAUSED, "one that is not to be resumed is not");
    (void) test_destroy(t, id);

    make(t, id, SBX_CREATE_AUTO_RESUME, 600000);
    (void) change(t, SBX_OP_PAUSE, id);
    is_int(test_answer(begin(t, SBX_OP_CANCEL, id, 0))->error.code,
           SBX_E_PAUSED, "nor by a call that does not ask for it");
    is_int(test_answer(begin(t, SBX_OP_LOG, id, SBX_CALL_RESUME))->last,
           SBX_F_END, "its log can be read");
    is_int(change(t, SBX_OP_GET, id)->session.status, SBX_STATUS_PAUSED,
           "and it goes on to be paused");

    n = logged(t, "session is resumed");
    fd[0] = begin(t, SBX_OP_CANCEL, id, SBX_CALL_RESUME);
    fd[1] = begin(t, SBX_OP_ENV, id, SBX_CALL_RESUME);
    fd[2] = begin(t, SBX_OP_CANCEL, id, SBX_CALL_RESUME);
    (void) close(fd[1]);
    is_int(test_answer(fd[0])->last, SBX_F_END,
           "a call that asks for it goes on when it has been resumed");
    is_int(test_answer(fd[2])->last, SBX_F_END, "as does another");
    is_int(logged(t, "session is resumed") - n, 1, "once for them all");
    a = change(t, SBX_OP_GET, id);
    ok(a->session.status == SBX_STATUS_RUNNING && about(a, 10),
       "it runs, and has the time that was left");

    /* a whole command, whose frames are there before it can begin */

    (void) change(t, SBX_OP_PAUSE, id);
    fd[0] = begin(t, SBX_OP_EXEC, id, SBX_CALL_RESUME|SBX_CALL_OWNER);
    command(fd[0], "exit 7");
    a = test_answer(fd[0]);
    ok(a->last == SBX_F_EXIT && a->exit.exit_code == 7,
       "a command resumes it, and is run");

    /* in the middle of being paused */

    fd[0] = test_call(t->control, SBX_OP_PAUSE, id, "acme");
    fd[1] = begin(t, SBX_OP_CANCEL, id, SBX_CALL_RESUME);
    a = test_answer(fd[0]);
    ok(a->last == SBX_F_END && a->end.count == 1, "it is paused first");
    is_int(test_answer(fd[1])->last, SBX_F_END, "and then resumed");

    /* what cannot be written has not happened, and is told */

    (void) change(t, SBX_OP_PAUSE, id);
    old = test_pid(t, "broker.pid");
    (void) kill(old, SIGKILL);
    (void) test_await_successor(t, "broker.pid", old);
    is_int(test_answer(begin(t, SBX_OP_CANCEL, id, SBX_CALL_RESUME))->last,
           SBX_F_END, "a new broker resumes it too");

    /* its end comes first */

    (void) change(t, SBX_OP_PAUSE, id);
    fd[0] = begin(t, SBX_OP_CANCEL, id, SBX_CALL_RESUME);
    fd[1] = test_call(t->control, SBX_OP_DESTROY, id, "acme");
    a = test_answer(fd[0]);
    ok(a->last == SBX_F_END || a->last == 0
       || a->error.ended == SBX_ENDED_DESTROYED,
       "a call that the end overtakes is told");
    is_int(test_answer(fd[1])->last, SBX_F_END, "the end comes");
}


/* A directory in the place of the record's temporary. */

static void
test_failure(test_broker_t *t)
{
    int             fd[2];
    char            id[64], path[8192];
    test_answer_t  *a;

    make(t, id, SBX_CREATE_AUTO_RESUME, 600000);
    a = change(t, SBX_OP_PAUSE, id);

    if (a->error.code == SBX_E_MANIFEST) {
        (void) test_destroy(t, id);
        return;
    }

    (void) snprintf(path, sizeof(path), "%s/sessions/%s/record.new",
                    t->state, id);
    (void) mkdir(path, 0700);
    fd[0] = begin(t, SBX_OP_CANCEL, id, SBX_CALL_RESUME);
    fd[1] = begin(t, SBX_OP_CANCEL, id, SBX_CALL_RESUME);
    is_int(test_answer(fd[0])->error.code, SBX_E_UNAVAILABLE,
           "that it cannot be resumed is told");
    is_int(test_answer(fd[1])->error.code, SBX_E_UNAVAILABLE,
           "to everybody");
    is_int(change(t, SBX_OP_GET, id)->session.status, SBX_STATUS_PAUSED,
           "it stays as it was");
    (void) rmdir(path);
    is_int(test_answer(begin(t, SBX_OP_CANCEL, id, SBX_CALL_RESUME))->last,
           SBX_F_END, "until it can");
    (void) test_destroy(t, id);
}


/* One whose time is over is worth resuming for. */

static void
test_expired(test_broker_t *t)
{
    int             i;
    char            id[64];
    test_answer_t  *a;

    make(t, id, SBX_CREATE_AUTO_RESUME|SBX_CREATE_ON_TIMEOUT_PAUSE, 1000);

    for (i = 0; i < TEST_WAIT / 20; i++) {
        a = change(t, SBX_OP_GET, id);

        if (a->session.status == SBX_STATUS_PAUSED || a->last != SBX_F_END) {
            break;
        }

        (void) poll(NULL, 0, 20);
    }

    ok(a->last == SBX_F_END && a->session.left == 1000,
       "one whose time is over is paused");
    is_int(test_answer(begin(t, SBX_OP_CANCEL, id, SBX_CALL_RESUME))->last,
           SBX_F_END, "a call resumes it");
    a = change(t, SBX_OP_GET, id);
    ok(about(a, 5), "and it has five minutes");
    is_int((int64_t) a->session.limits.timeout, 1000,
           "though it was given less");
    (void) test_destroy(t, id);
}


int
main(void)
{
    test_broker_t  t;

    if (geteuid() != 0) {
        return skip_all("needs root");
    }

    test_open(&t, "resume");

    if (!ok(test_start(&t) == 0, "a broker starts")) {
        printf("# %s\n", t.error.text);
        return done_testing();
    }

    test_bars(&t);
    test_time(&t);
    test_calls(&t);
    test_failure(&t);
    test_expired(&t);
    test_close(&t);

    return done_testing();
}
