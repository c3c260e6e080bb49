/*
 * Places of readers that come back: what a worker that leaves says of its
 * client holds a process back until the client is there, or 10 s are over.
 */

#include "process_test.h"


#define MANY  (8u * 1024 * 1024)

static init_exec_t  small = { .max_output = 1000,
                              .flags = SBX_EXEC_STDIN_OPEN };


static void
leave(init_call_t *call, int pid, uint64_t from)
{
    sbx_f_process_t  p = { .verb = SBX_PROCESS_LEAVE, .pid = pid,
                           .from = { from, 0 } };

    init_send(call->fd, SBX_F_PROCESS, &p, sizeof(p));
    init_hang_up(call);
}


static void
back(init_call_t *call, int pid, uint64_t from)
{
    sbx_f_process_t  p = { .from = { from, 0 } };

    fresh(&a);
    ask(call, SBX_PROCESS_OUTPUT, pid, &p);
}


/* One that waits for a line until somebody has its output, which would not
 * all be kept else. */

static int
begun(const char *script, init_call_t *call)
{
    int   pid;
    char  text[128];

    (void) snprintf(text, sizeof(text), "read -r line; exec %s", script);
    pid = background(text, &small);
    back(call, pid, 0);

    while (!a.has_output && next(call, &a) != 0) { /* void */ }

    feed(pid, "\n", 0);
    fresh(&a);

    return pid;
}


/* Reads frames of numbered lines and looks at each; the bytes read. */

static uint64_t
counted(init_call_t *call, uint64_t at, uint64_t most, int *wrong)
{
    char      line[16];
    size_t    i;
    uint64_t  begun;

    begun = at;

    while (at - begun < most && !a.r.ended && next(call, &a) != 0) {
        for (i = 0; i < a.r.out_size; i++, at++) {
            (void) snprintf(line, sizeof(line), "%07u\n",
                            (unsigned) (at / 8));
            *wrong += a.r.out[i] != line[at % 8];
        }

        a.r.out_size = 0;
    }

    return at - begun;
}


static void
test_back(void)
{
    int          pid, i, wrong;
    uint64_t     at;
    init_call_t  call;

    wrong = 0;
    pid = begun("seq -f %07.0f 0 1048575", &call);

    /* the worker has taken more than its client has got */

    for (at = 0, i = 0; i < 5; i++) {
        at += counted(&call, at, 100000, &wrong);
        (void) usleep(20000);
        leave(&call, pid, at);
        (void) usleep(50000);
        back(&call, pid, at);
    }

    at += counted(&call, at, UINT64_MAX, &wrong);
    init_hang_up(&call);
    ok(a.r.ended == SBX_F_EXIT && at == MANY && wrong == 0,
       "who comes back has every byte once (%llu, %d wrong)",
       (unsigned long long) at, wrong);
}


static void
test_detach(void)
{
    int          pid, wrong;
    uint64_t     at;
    init_exec_t  x = { .flags = SBX_EXEC_DETACH, .max_output = 1000 };
    init_call_t  call;

    x.argv = (const char *[]) { "seq", "-f", "%07.0f", "0", "1048575", NULL };
    wrong = 0;
    init_exec_begin(&s, &x, &call);
    init_send(call.fd, SBX_F_STDIN, NULL, 0);
    fresh(&a);
    at = counted(&call, 0, 100000, &wrong);
    pid = a.r.pid;
    leave(&call, pid, at);
    (void) usleep(100000);
    back(&call, pid, at);
    at += counted(&call, at, UINT64_MAX, &wrong);
    init_hang_up(&call);
    ok(a.r.ended == SBX_F_EXIT && at == MANY && wrong == 0,
       "so does who has begun it (%llu, %d wrong)",
       (unsigned long long) at, wrong);
}


/* One that is held back where nobody comes. */

static int
held(void)
{
    int          pid, wrong;
    uint64_t     at;
    init_call_t  call;

    wrong = 0;
    pid = begun("head -c 8388608 /dev/zero", &call);
    at = counted(&call, 0, 100000, &wrong);
    leave(&call, pid, at);

    return pid;
}


static void
test_ends(void)
{
    int          pid;
    uint64_t     since;
    init_call_t  call;

    since = sbx_now_us();
    pid = held();
    (void) usleep(300000);
    whole(SBX_PROCESS_GET, pid, NULL);
    ok((a.state.flags & SBX_STATE_EXITED) == 0, "it waits");
    init_shell(&s, "echo else", &r);
    is_str(init_text(r.out), "else\n", "and others do not");
    ok(ends(pid) && sbx_now_us() - since >= SBX_HOLD_TIME,
       "until the time is over");

    since = sbx_now_us();
    pid = held();
    init_call(&s, SBX_OP_CANCEL, NULL, NULL, 0, &call);
    fresh(&a);
    finish(&call, &a);
    init_hang_up(&call);
    ok(ends(pid) && sbx_now_us() - since < SBX_HOLD_TIME,
       "a cancel does not wait");

    since = sbx_now_us();
    pid = background("head -c 8388608 /dev/zero", NULL);
    fresh(&a);
    ask(&call, SBX_PROCESS_LEAVE, pid, NULL);
    finish(&call, &a);
    init_hang_up(&call);
    ok(failed(SBX_E_INVALID), "it is no call of its own");
    ok(ends(pid) && sbx_now_us() - since < SBX_HOLD_TIME,
       "and holds nothing back so");
}


int
main(void)
{
    if (geteuid() != 0) {
        return skip_all("root is needed for namespaces");
    }

    if (init_program() == NULL) {
        return skip_all("sandbox-init has not been built");
    }

    init_defaults();
    init_start(&s);

    test_back();
    test_detach();
    test_ends();

    ok(init_stop(&s), "the end of the control socket ends the session");

    return done_testing();
}
