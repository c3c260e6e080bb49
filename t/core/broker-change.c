/* Changes of a session that runs, and sessions that are tied to a call. */

#include "broker_test.h"


static test_answer_t *
change(test_broker_t *t, sbx_op_t op, const char *id, const char *tenant)
{
    return test_answer(test_call(t->control, op, id, tenant));
}


static test_answer_t *
patch(test_broker_t *t, const char *id, const sbx_patch_t *body,
    const char *meta, int seals)
{
    int             fd;
    sbx_call_t      head;
    test_answer_t  *a;

    fd = -1;

    if (meta != NULL) {
        fd = memfd_create("meta", MFD_CLOEXEC|MFD_ALLOW_SEALING);

        if (fd == -1 || sbx_write_all(fd, meta, strlen(meta)) == -1
            || fcntl(fd, F_ADD_SEALS, seals) == -1)
        {
            test_die("memfd");
        }
    }

    test_head(&head, SBX_OP_PATCH, id, "acme", "", sizeof(sbx_patch_t));
    a = test_answer(test_send(t->control, &head, body, sizeof(sbx_patch_t),
                              fd));

    if (fd != -1) {
        (void) close(fd);
    }

    return a;
}


#define SEALS  (F_SEAL_WRITE|F_SEAL_SHRINK|F_SEAL_GROW)

typedef struct {
    const char   *what;
    sbx_patch_t   body;
    const char   *meta;
    int           seals;
    sbx_code_t    code;
} patch_case_t;

/* Without a word of the network. */
#define PATCH(timeout, flags, meta)  { timeout, flags, meta, 0, 0 }

static const patch_case_t  bad_patches[] = {
    { "unknown flags", PATCH(1000, 0x10, 0), NULL, 0, SBX_E_INVALID },
    { "too long a time", PATCH(86400001, SBX_PATCH_TIMEOUT, 0), NULL, 0,
      SBX_E_MANIFEST },
    { "no time at all", PATCH(0, SBX_PATCH_TIMEOUT, 0), NULL, 0,
      SBX_E_MANIFEST },
    { "a time to extend that is not there",
      PATCH(1000, SBX_PATCH_EXTEND, 0), NULL, 0, SBX_E_INVALID },
    { "time without end", PATCH(SBX_UNLIMITED, SBX_PATCH_TIMEOUT, 0), NULL, 0,
      SBX_E_MANIFEST },
    { "a time that is left out", PATCH(SBX_UNSET, SBX_PATCH_TIMEOUT, 0),
      NULL, 0, SBX_E_INVALID },
    { "metadata without its flag", PATCH(0, 0, 2), "{}", SEALS,
      SBX_E_INVALID },
    { "metadata that is missing", PATCH(0, SBX_PATCH_META, 2), NULL, 0,
      SBX_E_INVALID },
    { "a descriptor too many", PATCH(0, SBX_PATCH_META, 0), "{}", SEALS,
      SBX_E_INVALID },
    { "metadata of another size", PATCH(0, SBX_PATCH_META, 3), "{}", SEALS,
      SBX_E_INVALID },
    { "metadata that can still change", PATCH(0, SBX_PATCH_META, 2), "{}", 0,
      SBX_E_INVALID },
    { "too much metadata", PATCH(0, SBX_PATCH_META, SBX_META_MAX + 1), "{}",
      SEALS, SBX_E_TOO_LARGE },
};


static void
test_patch(test_broker_t *t)
{
    char                 id[64];
    size_t               i;
    int64_t              expires;
    sbx_patch_t          body;
    test_answer_t       *a;
    const patch_case_t  *c;

    test_create(t, "acme", id);
    expires = change(t, SBX_OP_GET, id, "acme")->session.expires;

    for (i = 0; i < sbx_nelts(bad_patches); i++) {
        c = &bad_patches[i];
        a = patch(t, id, &c->body, c->meta, c->seals);
        is_int(a->error.code, c->code, c->what);
    }

    a = change(t, SBX_OP_GET, id, "acme");
    ok(a->session.expires == expires && a->meta_size == 0,
       "what is refused changes nothing");

    memset(&body, 0, sizeof(body));
    body.flags = SBX_PATCH_TIMEOUT|SBX_PATCH_META;
    body.timeout = 900000;
    body.meta_size = 9;
    a = patch(t, id, &body, "{\"a\":\"b\"}", SEALS);
    is_int(a->last, SBX_F_END, "both at once");
    is_str(a->meta, "{\"a\":\"b\"}", "metadata");
    ok(a->session.expires > expires + 500000, "time");

    body.flags = SBX_PATCH_META;
    body.meta_size = 0;
    a = patch(t, id, &body, NULL, 0);
    ok(a->last == SBX_F_END && a->meta_size == 0, "metadata is cleared");

    is_int(change(t, SBX_OP_PAUSE, id, "evil")->error.code, SBX_E_SESSION,
           "another tenant changes nothing");

    (void) test_destroy(t, id);
    is_int(patch(t, id, &body, NULL, 0)->error.ended, SBX_ENDED_DESTROYED,
           "an ended one tells how");
}


static void
test_pause(test_broker_t *t)
{
    int             calls[8], n;
    char            id[64];
    size_t          i;
    sbx_call_t      head;
    test_answer_t  *a;

    test_create(t, "acme", id);
    a = change(t, SBX_OP_PAUSE, id, "acme");

    if (a->error.code == SBX_E_MANIFEST) {
        printf("# %s\n", a->error.text);
        (void) test_destroy(t, id);
        return;
    }

    ok(a->last == SBX_F_END && a->session.status == SBX_STATUS_PAUSED
       && a->session.paused != 0 && a->end.count == 1, "paused");
    a = change(t, SBX_OP_PAUSE, id, "acme");
    ok(a->last == SBX_F_END && a->end.count == 0, "but once");

    is_int(change(t, SBX_OP_FILE, id, "acme")->error.code, SBX_E_PAUSED,
           "a file call is refused");
    is_int(change(t, SBX_OP_CANCEL, id, "acme")->error.code, SBX_E_PAUSED,
           "as is a cancel");

    test_head(&head, SBX_OP_EXEC, id, "acme", "", sizeof(sbx_exec_limits_t));
    is_int(test_answer(test_send(t->control, &head,
                                 &(sbx_exec_limits_t) { 0, 0, 0 },
                                 sizeof(sbx_exec_limits_t), -1))->error.code,
           SBX_E_PAUSED, "and a command");

    a = change(t, SBX_OP_RESUME, id, "acme");
    ok(a->last == SBX_F_END && a->session.status == SBX_STATUS_RUNNING
       && a->session.paused == 0 && a->end.count == 1, "resumed");
    a = change(t, SBX_OP_RESUME, id, "acme");
    ok(a->last == SBX_F_END && a->end.count == 0, "but once");

    /* one after the other, and who goes away takes nothing with him */

    for (i = 0; i < sbx_nelts(calls); i++) {
        calls[i] = test_call(t->control, i % 2 ? SBX_OP_RESUME
                                               : SBX_OP_PAUSE, id, "acme");
    }

    (void) close(calls[3]);
    (void) close(calls[6]);
    n = 0;

    for (i = 0; i < sbx_nelts(calls); i++) {
        if (i == 3 || i == 6) {
            continue;
        }

        a = test_answer(calls[i]);
        n += a->last == SBX_F_END
             && a->session.status == (i % 2 ? SBX_STATUS_RUNNING
                                            : SBX_STATUS_PAUSED);
    }

    is_int(n, sbx_nelts(calls) - 2, "eight at once are done in their order");

    /* the end of one whose changes are under way */

    calls[0] = test_call(t->control, SBX_OP_PAUSE, id, "acme");
    calls[1] = test_call(t->control, SBX_OP_DESTROY, id, "acme");
    calls[2] = test_call(t->control, SBX_OP_RESUME, id, "acme");
    a = test_answer(calls[0]);
    ok(a->last == SBX_F_END || a->error.code == SBX_E_SESSION,
       "a change that the end overtakes is answered");
    is_int(test_answer(calls[1])->last, SBX_F_END, "the end comes");
    is_int(test_answer(calls[2])->error.code, SBX_E_SESSION,
           "and nothing after it");
}


static void
test_end(test_broker_t *t)
{
    char            id[64];
    sbx_end_t       end;
    sbx_call_t      head;
    test_answer_t  *a;

    test_create(t, "acme", id);
    end.grace = UINT64_MAX;
    test_head(&head, SBX_OP_END, id, "acme", "", sizeof(end));
    a = test_answer(test_send(t->control, &head, &end, sizeof(end), -1));
    is_int(a->last, SBX_F_END, "nothing runs: no time is waited for");
    is_int(change(t, SBX_OP_GET, id, "acme")->error.ended,
           SBX_ENDED_DESTROYED, "destroyed");
}


static int
read_session(int fd, sbx_f_session_t *session)
{
    sbx_frame_t    frame;
    struct pollfd  pfd;

    pfd.fd = fd;
    pfd.events = POLLIN;

    if (poll(&pfd, 1, TEST_WAIT) != 1
        || sbx_read_full(fd, &frame, sizeof(frame)) != sizeof(frame)
        || frame.type != SBX_F_SESSION
        || sbx_read_full(fd, session, sizeof(*session))
           != sizeof(*session))
    {
        return -1;
    }

    return 0;
}


static void
test_tied(test_broker_t *t)
{
    int              fd, i;
    pid_t            old;
    sbx_create_t     body;
    test_answer_t   *a;
    struct pollfd    pfd;
    sbx_f_session_t  s;

    test_create_body(&body);
    body.flags = SBX_CREATE_TIED;
    (void) strcpy(body.key, "key");
    is_int(test_answer(test_create_send(t->control, "acme", &body, -1))
               ->error.code,
           SBX_E_INVALID, "one that is tied has no key");
    body.key[0] = '\0';

    fd = test_create_send(t->control, "acme", &body, -1);
    ok(read_session(fd, &s) == 0 && test_alive(t, s.id),
       "a tied session is there");
    pfd.fd = fd;
    pfd.events = POLLIN;
    is_int(poll(&pfd, 1, 100), 0, "and its call goes on");
    (void) close(fd);

    for (i = 0; i < TEST_WAIT / 10 && test_alive(t, s.id); i++) {
        (void) poll(NULL, 0, 10);
    }

    is_int(change(t, SBX_OP_GET, s.id, "acme")->error.ended,
           SBX_ENDED_DESTROYED, "it ends with the call");

    fd = test_create_send(t->control, "acme", &body, -1);
    is_int(read_session(fd, &s), 0, "another");
    ok(test_destroy(t, s.id), "is destroyed");
    a = test_answer(fd);
    is_int(a->last, SBX_F_END, "of which its call is told");

    fd = test_create_send(t->control, "acme", &body, -1);
    is_int(read_session(fd, &s), 0, "a third");
    old = test_pid(t, "broker.pid");
    (void) kill(old, SIGKILL);
    (void) test_await_successor(t, "broker.pid", old);

    for (i = 0; i < TEST_WAIT / 10 && test_alive(t, s.id); i++) {
        (void) poll(NULL, 0, 10);
    }

    ok(!test_alive(t, s.id), "does not outlive its broker");
    (void) close(fd);
}


static void
test_idle(test_broker_t *t)
{
    int             i;
    char            id[64];
    sbx_list_t      filter;
    sbx_call_t      head;
    sbx_create_t    body;
    test_answer_t  *a;

    test_create_body(&body);
    body.idle_timeout = SBX_UNLIMITED;
    is_int(test_answer(test_create_send(t->control, "acme", &body, -1))
               ->error.code,
           SBX_E_INVALID, "idle without end is refused");

    body.idle_timeout = 200;
    a = test_answer(test_create_send(t->control, "acme", &body, -1));
    is_int(a->last, SBX_F_END, "a session that may not be idle for long");
    (void) strcpy(id, a->session.id);

    /* a list is no use of it */

    memset(&filter, 0, sizeof(filter));
    test_head(&head, SBX_OP_LIST, "", "acme", "", sizeof(filter));

    for (i = 0; i < TEST_WAIT / 20; i++) {
        a = test_answer(test_send(t->control, &head, &filter, sizeof(filter),
                                  -1));

        if (a->sessions == 0) {
            break;
        }

        (void) poll(NULL, 0, 20);
    }

    is_int(change(t, SBX_OP_GET, id, "acme")->error.ended, SBX_ENDED_IDLE,
           "ends as idle");
}


int
main(void)
{
    test_broker_t  t;

    if (geteuid() != 0) {
        return skip_all("needs root");
    }

    test_open(&t, "change");

    if (!ok(test_start(&t) == 0, "a broker starts")) {
        printf("# %s\n", t.error.text);
        return done_testing();
    }

    test_patch(&t);
    test_pause(&t);
    test_end(&t);
    test_idle(&t);
    test_tied(&t);
    test_close(&t);

    return done_testing();
}
