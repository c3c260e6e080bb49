/*
 * Processes of a session: the background, what is kept of output, standard
 * input by calls of its own, signals, terminals, and the end of all.
 */

#include "init_test.h"


static init_session_t  s;
static init_result_t   r;


/* What a call about processes has been answered. */

typedef struct {
    init_result_t   r;
    int             accepted;
    int             ready;
    unsigned        states;
    sbx_f_state_t   state;           /* the last one */
    char            cwd[SBX_PATH_MAX];
    char            tag[SBX_TAG_MAX + 1];
    char            args[SBX_FRAME_MAX];
    sbx_f_output_t  output;
    int             has_output;
} answer_t;


static answer_t  a;


static void
ask(init_call_t *call, uint32_t verb, int pid, const sbx_f_process_t *more)
{
    sbx_f_process_t  p;

    memset(&p, 0, sizeof(p));

    if (more != NULL) {
        p = *more;
    }

    if (verb == SBX_PROCESS_OUTPUT && more == NULL) {
        p.from[0] = SBX_UNSET;
        p.from[1] = SBX_UNSET;
    }

    p.verb = verb;
    p.pid = pid;

    init_call(&s, SBX_OP_PROCESS, NULL, NULL, 0, call);
    init_send(call->fd, SBX_F_PROCESS, &p, sizeof(p));
}


/* One frame; its type, 0 at the end. */

static int
next(init_call_t *call, answer_t *w)
{
    size_t          n;
    sbx_frame_t     frame;
    const char     *cwd, *tag, *args;
    const uint8_t  *p;

    if (init_next(call, &frame, &p, NULL, INIT_WAIT) != 1) {
        return 0;
    }

    n = frame.length;

    switch (frame.type) {

    case SBX_F_ACCEPTED:
        w->accepted = 1;
        break;

    case SBX_F_READY:
        w->ready = 1;
        break;

    case SBX_F_STARTED:
        w->r.started = 1;
        memcpy(&w->r.pid, p, sizeof(w->r.pid));
        break;

    case SBX_F_STATE:
        w->states++;

        if (sbx_wire_check_state(p, n, &w->state, &cwd, &tag, &args) != 0) {
            printf("Bail out! a state is malformed\n");
            exit(1);
        }

        (void) sbx_copy_string(w->cwd, sizeof(w->cwd), cwd,
                               w->state.cwd_len);
        (void) sbx_copy_string(w->tag, sizeof(w->tag), tag,
                               w->state.tag_len);
        memcpy(w->args, args, w->state.args_len);
        break;

    case SBX_F_OUTPUT:
        memcpy(&w->output, p, sizeof(w->output));
        w->has_output = 1;
        break;

    case SBX_F_STDOUT:
        init_append(&w->r.out, &w->r.out_size, p, n);
        break;

    case SBX_F_STDERR:
        init_append(&w->r.err, &w->r.err_size, p, n);
        break;

    case SBX_F_EXIT:
        memcpy(&w->r.exit, p, sizeof(w->r.exit));
        w->r.ended = SBX_F_EXIT;
        break;

    case SBX_F_ERROR:
        memcpy(&w->r.error, p, sizeof(w->r.error));
        w->r.ended = SBX_F_ERROR;
        break;

    case SBX_F_END:
        memcpy(&w->r.end, p, sizeof(w->r.end));
        w->r.ended = SBX_F_END;
        break;
    }

    return frame.type;
}


static void
fresh(answer_t *w)
{
    init_result_free(&w->r);
    memset(w, 0, sizeof(*w));
}


static void
finish(init_call_t *call, answer_t *w)
{
    while (!w->r.ended && next(call, w) != 0) { /* void */ }
}


/* A whole call. */

static void
whole(uint32_t verb, int pid, const sbx_f_process_t *more)
{
    init_call_t  call;

    fresh(&a);
    ask(&call, verb, pid, more);
    finish(&call, &a);
    init_hang_up(&call);
}


static int
failed(int code)
{
    return a.r.ended == SBX_F_ERROR && a.r.error.code == (uint32_t) code;
}


/* Begins one in the background; its pid. */

static int
background(const char *script, init_exec_t *more)
{
    init_exec_t  x = { 0 };
    init_call_t  call;
    const char  *argv[] = { "/bin/sh", "-c", script, NULL };

    if (more != NULL) {
        x = *more;
    }

    if (x.argv == NULL) {
        x.argv = argv;
    }

    x.flags |= SBX_EXEC_BACKGROUND;
    fresh(&a);
    init_exec_begin(&s, &x, &call);

    if (x.input_size != 0) {
        init_send(call.fd, SBX_F_STDIN, x.input, x.input_size);
    }

    init_send(call.fd, SBX_F_STDIN, NULL, 0);
    finish(&call, &a);
    init_hang_up(&call);

    return a.r.ended == SBX_F_END && a.r.started ? a.r.pid : 0;
}


/* 1 once the process has ended. */

static int
ends(int pid)
{
    int  i;

    for (i = 0; i < 2000; i++) {
        whole(SBX_PROCESS_GET, pid, NULL);

        if (a.state.flags & SBX_STATE_EXITED) {
            return 1;
        }

        (void) usleep(5000);
    }

    return 0;
}


static void
test_background(void)
{
    int          pid;
    init_call_t  call;

    pid = background("echo out; echo err >&2; read x < fifo; echo $x;"
                     " exit 3", NULL);
    ok(pid > 1, "a background command is answered by STARTED and END");
    ok(a.accepted && a.r.out_size == 0, "and by nothing else");

    whole(SBX_PROCESS_GET, pid, NULL);
    ok(a.r.ended == SBX_F_END && a.states == 1 && a.accepted,
       "GET answers one state");
    ok(a.state.pid == pid && a.state.kind == SBX_KIND_COMMAND
       && a.state.argc == 3 && (a.state.flags & SBX_STATE_EXITED) == 0,
       "of a command that runs");
    is_str(a.args, "/bin/sh", "with its arguments");

    fresh(&a);
    ask(&call, SBX_PROCESS_OUTPUT, pid, NULL);

    while (a.r.out_size < 4 || a.r.err_size < 4) {
        if (next(&call, &a) == 0) {
            break;
        }
    }

    is_str(init_text(a.r.out), "out\n", "what is kept is sent");
    is_str(init_text(a.r.err), "err\n", "of both streams");
    ok(a.has_output && a.output.from[0] == 0 && a.output.oldest[1] == 0,
       "and said where it begins");

    init_shell(&s, "echo more > fifo", &r);
    finish(&call, &a);
    init_hang_up(&call);
    is_str(init_text(a.r.out), "out\nmore\n", "then what comes");
    ok(a.r.ended == SBX_F_EXIT && a.r.exit.exit_code == 3
       && a.r.exit.pid == pid && a.r.exit.stdout_bytes == 9, "then the exit");

    whole(SBX_PROCESS_GET, pid, NULL);
    ok((a.state.flags & SBX_STATE_EXITED) && a.state.exit.exit_code == 3
       && a.state.exit.reason == SBX_REASON_EXITED
       && a.state.exit.stdout_bytes == 9, "its result is kept");

    whole(SBX_PROCESS_OUTPUT, pid, NULL);
    ok(a.r.ended == SBX_F_EXIT && strcmp(init_text(a.r.out), "out\nmore\n")
       == 0, "and so is its output");

    whole(SBX_PROCESS_LIST, 0, NULL);
    ok(a.r.ended == SBX_F_END && a.states >= 2, "both are listed");
}



static void
test_state(void)
{
    int          pid;
    char        *big;
    init_exec_t  x = { .tag = "blue", .cwd = "/tmp", .user = SBX_USER_ROOT };

    pid = background("exit 0", &x);
    whole(SBX_PROCESS_GET, pid, NULL);
    ok(strcmp(a.cwd, "/tmp") == 0 && strcmp(a.tag, "blue") == 0
       && a.state.user == SBX_USER_ROOT, "directory, tag and user are told");
    ok(a.state.started > 1600000000000, "and when it was started");

    x.cwd = "sub";
    init_shell(&s, "mkdir -p sub", &r);
    pid = background("exit 0", &x);
    whole(SBX_PROCESS_GET, pid, NULL);
    is_str(a.cwd, "/home/user/sub", "a directory is told as a whole");

    big = malloc(20001);
    memset(big, 'x', 20000);
    big[20000] = '\0';
    x.argv = (const char *[]) { "true", big, "last", NULL };
    pid = background(NULL, &x);
    whole(SBX_PROCESS_GET, pid, NULL);
    ok((a.state.flags & SBX_STATE_CUT) && a.state.argc == 2
       && a.state.args_len > 4096 && a.state.args_len <= 8192,
       "long arguments are cut, and that is said");
    free(big);

    x.argv = (const char *[]) { "/no/such", NULL };
    x.user = SBX_USER_USER;
    x.cwd = NULL;
    pid = background(NULL, &x);
    ok(pid > 1 && ends(pid) && a.state.exit.reason == SBX_REASON_NOT_STARTED
       && a.state.exit.exit_code == 127, "one that cannot be run says so");
    whole(SBX_PROCESS_OUTPUT, pid, NULL);
    is_str(init_text(a.r.err), "sandbox: cannot run '/no/such': "
           "No such file or directory\n", "and why");

    x.argv = (const char *[]) { "true", NULL };
    x.cwd = "missing";
    ok(background(NULL, &x) == 0 && failed(SBX_E_FILE),
       "one without its directory is refused");

    whole(SBX_PROCESS_GET, 4000000, NULL);
    ok(failed(SBX_E_PROCESS), "no process, no state");
    whole(SBX_PROCESS_GET, 1, NULL);
    ok(failed(SBX_E_PROCESS), "process 1 is none of them");
    whole(SBX_PROCESS_GET, -1, NULL);
    ok(failed(SBX_E_PROCESS), "nor is -1");
    whole(SBX_PROCESS_OUTPUT, 0, NULL);
    ok(failed(SBX_E_PROCESS), "nor 0");
}


/* "1\n2\n...": the text, of n lines. */

static char *
lines(unsigned n)
{
    char      *text, *p;
    unsigned   i;

    text = malloc((size_t) n * 8 + 1);
    p = text;

    for (i = 1; i <= n; i++) {
        p += sprintf(p, "%u\n", i);
    }

    return text;
}


static void
test_ring(void)
{
    int              pid;
    char            *text;
    size_t           total;
    init_exec_t      x = { .max_output = 10000 };
    sbx_f_process_t  p = { .from = { 0, 0 } };

    text = lines(20000);
    total = strlen(text);

    pid = background("seq 1 20000", &x);
    ok(ends(pid), "with nobody attached it never waits");
    ok(a.state.exit.stdout_bytes == total
       && (a.state.exit.flags & SBX_EXIT_OUT_TRUNCATED)
       && !(a.state.exit.flags & SBX_EXIT_ERR_TRUNCATED),
       "all bytes are counted, and that some are lost is said");

    whole(SBX_PROCESS_OUTPUT, pid, NULL);
    ok(a.output.from[0] == total - 10000 && a.output.oldest[0]
       == a.output.from[0] && a.r.out_size == 10000
       && strcmp(init_text(a.r.out), text + total - 10000) == 0,
       "the newest 10,000 are kept, to the byte");

    whole(SBX_PROCESS_OUTPUT, pid, &p);
    ok(failed(SBX_E_OFFSET) && a.r.error.oldest[0] == total - 10000
       && a.r.error.oldest[1] == 0, "an offset that is gone: the oldest");

    p.from[0] = total - 10001;
    whole(SBX_PROCESS_OUTPUT, pid, &p);
    ok(failed(SBX_E_OFFSET), "also by one");

    p.from[0] = total - 123;
    whole(SBX_PROCESS_OUTPUT, pid, &p);
    ok(a.output.from[0] == total - 123 && a.r.ended == SBX_F_EXIT
       && strcmp(init_text(a.r.out), text + total - 123) == 0,
       "one can go on at an offset");

    p.from[0] = total;
    whole(SBX_PROCESS_OUTPUT, pid, &p);
    ok(a.r.ended == SBX_F_EXIT && a.r.out_size == 0, "also at the end");

    p.from[0] = total + 1;
    whole(SBX_PROCESS_OUTPUT, pid, &p);
    ok(failed(SBX_E_INVALID), "but not beyond it");

    p.from[0] = SBX_UNSET;
    p.from[1] = 1;
    whole(SBX_PROCESS_OUTPUT, pid, &p);
    ok(failed(SBX_E_INVALID), "of neither stream");

    free(text);
}


static void
test_rings(void)
{
    int          i, pids[12];
    uint64_t     kept, sum;
    init_exec_t  x = { 0 };

    for (i = 0; i < 12; i++) {
        pids[i] = background("head -c 1048576 /dev/zero", &x);
        (void) ends(pids[i]);
    }

    for (i = 0, sum = 0; i < 12; i++) {
        whole(SBX_PROCESS_OUTPUT, pids[i], NULL);
        kept = a.r.out_size;
        sum += kept;

        if (i == 0) {
            ok(kept == 0 && a.output.oldest[0] == 1048576
               && a.r.ended == SBX_F_EXIT, "the oldest output is gone");
        }
    }

    ok(kept == 1048576, "the newest is all there");
    ok(sum <= SBX_RINGS_MAX && sum > SBX_RINGS_MAX - 65536,
       "all rings together keep 8 MiB (%llu)", (unsigned long long) sum);
}


static void
test_pressure(void)
{
    int          pid;
    char        *text;
    init_exec_t  x = { .max_output = 10000 };
    init_call_t  slow, other;

    text = lines(500000);

    pid = background("read x < fifo; seq 1 500000; echo over > mark", &x);
    ask(&slow, SBX_PROCESS_OUTPUT, pid, NULL);
    ask(&other, SBX_PROCESS_OUTPUT, pid, NULL);

    fresh(&a);

    while (!a.has_output && next(&slow, &a) != 0) { /* void */ }

    fresh(&a);

    while (!a.has_output && next(&other, &a) != 0) { /* void */ }

    init_shell(&s, "echo go > fifo; sleep 0.4; test -e mark || echo none",
               &r);
    is_str(init_text(r.out), "none\n",
           "a command waits for somebody who is attached and does not read");

    init_hang_up(&slow);
    finish(&other, &a);
    init_hang_up(&other);
    ok(a.r.ended == SBX_F_EXIT && strcmp(init_text(a.r.out), text) == 0,
       "who goes away holds nothing back; the other one misses nothing");

    ok(init_until(&s, "test -e mark && echo yes"), "and the command ends");

    /* several at once, none of them late */

    pid = background("read x < fifo; seq 1 5000", NULL);
    ask(&slow, SBX_PROCESS_OUTPUT, pid, NULL);
    ask(&other, SBX_PROCESS_OUTPUT, pid, NULL);
    init_shell(&s, "echo go > fifo", &r);
    text[23893] = '\0';
    fresh(&a);
    finish(&slow, &a);
    ok(strcmp(init_text(a.r.out), text) == 0, "one reader has all");
    fresh(&a);
    finish(&other, &a);
    ok(strcmp(init_text(a.r.out), text) == 0, "and so has another");
    init_hang_up(&slow);
    init_hang_up(&other);

    free(text);
}


/* All 8 MiB are held by readers: who has none must not wait for them. */

static void
test_held(void)
{
    int          i, pids[9];
    init_exec_t  x = { 0 };
    init_call_t  calls[9];

    for (i = 0; i < 9; i++) {
        pids[i] = background("read x < go; head -c 3000000 /dev/zero", &x);
        ask(&calls[i], SBX_PROCESS_OUTPUT, pids[i], NULL);
        fresh(&a);

        while (!a.has_output && next(&calls[i], &a) != 0) { /* void */ }
    }

    init_shell(&s, "mkfifo go; exec 3<>go; yes | head -n 9 >&3; sleep 0.5",
               &r);

    i = background("head -c 3000000 /dev/zero", &x);
    ok(ends(i), "a command that nobody reads does not wait for readers");

    for (i = 0; i < 9; i++) {
        fresh(&a);

        /* nine of them hold more than there is: one at a time goes on */

        if (i < 8) {
            init_hang_up(&calls[i]);

        } else {
            finish(&calls[i], &a);
            init_hang_up(&calls[i]);
            ok(a.r.ended == SBX_F_EXIT && a.r.out_size == 3000000
               && a.r.exit.stdout_bytes == 3000000,
               "and the last reader has all of its own");
        }
    }

    for (i = 0; i < 9; i++) {
        (void) ends(pids[i]);
    }
}


static void
test_detach(void)
{
    int              pid;
    init_exec_t      x = { .flags = SBX_EXEC_DETACH|SBX_EXEC_CAP };
    init_call_t      call;
    sbx_f_process_t  p = { .from = { 7, 0 } };

    x.argv = (const char *[]) { "sh", "-c", "echo before; read x < fifo;"
                                " echo after; exit 4", NULL };
    init_exec_begin(&s, &x, &call);
    init_send(call.fd, SBX_F_STDIN, NULL, 0);
    fresh(&a);

    while (a.r.out_size < 7 && next(&call, &a) != 0) { /* void */ }

    pid = a.r.pid;
    init_hang_up(&call);
    init_shell(&s, "echo go > fifo", &r);
    ok(ends(pid) && a.state.exit.exit_code == 4
       && a.state.exit.reason == SBX_REASON_EXITED
       && !(a.state.exit.flags & SBX_EXIT_OUT_TRUNCATED),
       "a detached one goes on without its worker");

    whole(SBX_PROCESS_OUTPUT, pid, NULL);
    ok(a.output.from[0] == 0
       && strcmp(init_text(a.r.out), "before\nafter\n") == 0,
       "its output is kept, since its start");
    whole(SBX_PROCESS_OUTPUT, pid, &p);
    ok(a.output.from[0] == 7 && strcmp(init_text(a.r.out), "after\n") == 0,
       "and is gone on with from where its worker was");

    x.flags = 0;
    init_exec_begin(&s, &x, &call);
    init_send(call.fd, SBX_F_STDIN, NULL, 0);
    fresh(&a);

    while (a.r.out_size < 7 && next(&call, &a) != 0) { /* void */ }

    pid = a.r.pid;
    init_hang_up(&call);
    ok(ends(pid) && a.state.exit.reason == SBX_REASON_DISCONNECTED,
       "one that is not detached is killed");
}


/* In the foreground: somebody looks on. */

static void
test_foreground(void)
{
    int              pid;
    answer_t         w;
    init_exec_t      x = { 0 };
    init_call_t      call, look;
    sbx_f_process_t  p = { .from = { 7, SBX_UNSET } };

    memset(&w, 0, sizeof(w));
    x.argv = (const char *[]) { "sh", "-c", "echo before; read x < fifo;"
                                " echo after", NULL };
    init_exec_begin(&s, &x, &call);
    init_send(call.fd, SBX_F_STDIN, NULL, 0);

    while (w.r.out_size < 7 && next(&call, &w) != 0) { /* void */ }

    pid = w.r.pid;
    fresh(&a);
    ask(&look, SBX_PROCESS_OUTPUT, pid, &p);

    while (!a.has_output && next(&look, &a) != 0) { /* void */ }

    init_shell(&s, "echo go > fifo", &r);
    finish(&look, &a);
    finish(&call, &w);
    ok(strcmp(init_text(w.r.out), "before\nafter\n") == 0
       && strcmp(init_text(a.r.out), "after\n") == 0
       && a.r.ended == SBX_F_EXIT && w.r.ended == SBX_F_EXIT,
       "who attaches to a command of another's call sees what comes");
    init_hang_up(&call);
    init_hang_up(&look);
    init_result_free(&w.r);

    whole(SBX_PROCESS_GET, pid, NULL);
    ok((a.state.flags & SBX_STATE_EXITED)
       && a.state.exit.stdout_bytes == 13, "its result is kept too");
}


static void
put(init_call_t *call, const char *text)
{
    init_send(call->fd, SBX_F_STDIN, text, strlen(text));
}


/* Standard input by a call of its own. */

static void
feed(int pid, const char *text, uint32_t flags)
{
    init_call_t      call;
    sbx_f_process_t  p = { .flags = flags };

    fresh(&a);
    ask(&call, SBX_PROCESS_STDIN, pid, &p);

    while (!a.r.ended && !a.ready && next(&call, &a) != 0) { /* void */ }

    if (a.ready) {
        put(&call, text);
        init_send(call.fd, SBX_F_STDIN, NULL, 0);
        finish(&call, &a);
    }

    init_hang_up(&call);
}


static void
test_stdin(void)
{
    int           i, n, pid, other;
    char          frame[sizeof(sbx_frame_t) + 1000];
    init_exec_t   x = { .flags = SBX_EXEC_STDIN_OPEN };
    init_call_t   call;
    init_exec_t   with = { .flags = SBX_EXEC_STDIN_OPEN, .input = "first\n",
                           .input_size = 6 };

    pid = background("cat; echo over", &with);
    whole(SBX_PROCESS_GET, pid, NULL);
    ok(a.state.flags & SBX_STATE_STDIN_OPEN, "its standard input is open");

    feed(pid, "second\n", 0);
    ok(a.r.ended == SBX_F_END && a.ready && a.accepted,
       "standard input is taken");
    feed(pid, "third\n", SBX_PROCESS_EOF);
    ok(a.r.ended == SBX_F_END, "and its end");
    ok(ends(pid), "the command has met it");
    whole(SBX_PROCESS_OUTPUT, pid, NULL);
    is_str(init_text(a.r.out), "first\nsecond\nthird\nover\n",
           "all of it has come, the call's own first");
    feed(pid, "late", 0);
    ok(failed(SBX_E_CONFLICT), "none after the exit");

    pid = background("read x < fifo", NULL);
    feed(pid, "x", 0);
    ok(failed(SBX_E_CONFLICT), "none without stdin_open");
    init_shell(&s, "echo go > fifo", &r);

    pid = background("exec <&-; read x < fifo", &x);
    ok(init_until(&s, "test -p fifo && echo yes"), "one closes its own");
    for (i = 0; i < 400; i++) {
        feed(pid, "x", 0);

        if (a.r.ended == SBX_F_ERROR) {
            break;
        }

        (void) usleep(5000);
    }
    ok(failed(SBX_E_CONFLICT), "which is a conflict");
    init_shell(&s, "echo go > fifo", &r);

    pid = background("cat >/dev/null; read x < fifo", &x);
    feed(pid, "x", SBX_PROCESS_EOF);
    feed(pid, "x", 0);
    ok(failed(SBX_E_CONFLICT), "none after the close");
    whole(SBX_PROCESS_GET, pid, NULL);
    ok((a.state.flags & SBX_STATE_STDIN_OPEN) == 0, "as its state says");
    init_shell(&s, "echo go > fifo", &r);

    /* one that is not read */

    pid = background("read x < fifo; wc -c", &x);
    other = background("cat", &x);
    fresh(&a);
    ask(&call, SBX_PROCESS_STDIN, pid, NULL);

    while (!a.ready && next(&call, &a) != 0) { /* void */ }

    (void) sbx_wire_header(frame, SBX_F_STDIN, 1000);
    memset(frame + sizeof(sbx_frame_t), 'x', 1000);
    (void) fcntl(call.fd, F_SETFL, O_NONBLOCK);

    for (n = 0, i = 0; n < 10000 && i < 100; /* void */) {
        if (send(call.fd, frame, sizeof(frame), MSG_NOSIGNAL)
            == (ssize_t) sizeof(frame))
        {
            n++;
            i = 0;
            continue;
        }

        i++;
        (void) usleep(2000);
    }

    (void) fcntl(call.fd, F_SETFL, 0);
    ok(n > 60 && n < 10000, "who writes to a full pipe has to wait (%d)", n);

    feed(other, "text\n", SBX_PROCESS_EOF);
    ok(a.r.ended == SBX_F_END && ends(other), "others do not wait for it");

    {
        init_call_t  second;

        fresh(&a);
        ask(&second, SBX_PROCESS_STDIN, pid, NULL);

        while (!a.ready && next(&second, &a) != 0) { /* void */ }

        put(&second, "12345");
        init_shell(&s, "echo go > fifo", &r);
        init_send(second.fd, SBX_F_STDIN, NULL, 0);
        finish(&second, &a);
        ok(a.r.ended == SBX_F_END, "a second one has its turn");
        init_hang_up(&second);
    }

    init_send(call.fd, SBX_F_STDIN, NULL, 0);
    fresh(&a);
    finish(&call, &a);
    ok(a.r.ended == SBX_F_END, "and the first one goes on");
    init_hang_up(&call);
    feed(pid, "", SBX_PROCESS_EOF);
    (void) ends(pid);
    whole(SBX_PROCESS_OUTPUT, pid, NULL);
    is_int(atol(init_text(a.r.out)), n * 1000 + 5, "no byte is lost");

    /* a writer that goes away in the middle of a frame */

    pid = background("cat", &x);
    fresh(&a);
    ask(&call, SBX_PROCESS_STDIN, pid, NULL);

    while (!a.ready && next(&call, &a) != 0) { /* void */ }

    (void) send(call.fd, frame, 100, MSG_NOSIGNAL);
    init_hang_up(&call);
    feed(pid, "after\n", SBX_PROCESS_EOF);
    ok(a.r.ended == SBX_F_END && ends(pid), "others go on without it");
}


static void
test_signal(void)
{
    int              pid;
    size_t           i;
    init_call_t      call;
    sbx_f_process_t  p = { .signal = SIGUSR1 };

    static const int  bad[] = { 0, -1, 65, 1 << 30 };

    pid = background("sh -c 'trap \"echo child; exit\" USR1; echo ready;"
                     " while :; do sleep 0.02; done' &"
                     " trap 'echo leader' USR1;"
                     " wait; wait; exit 5", NULL);
    fresh(&a);
    ask(&call, SBX_PROCESS_OUTPUT, pid, NULL);

    while (a.r.out_size < 6 && next(&call, &a) != 0) { /* void */ }

    {
        answer_t  kept = a;

        memset(&a, 0, sizeof(a));
        whole(SBX_PROCESS_SIGNAL, pid, &p);
        ok(a.r.ended == SBX_F_END && a.accepted, "a signal is sent");
        fresh(&a);
        a = kept;
    }

    finish(&call, &a);
    init_hang_up(&call);
    ok(strstr(init_text(a.r.out), "child\n") != NULL
       && strstr(a.r.out, "leader\n") && a.r.exit.exit_code == 5,
       "to all of the command's group");

    pid = background("read x < fifo", NULL);
    p.signal = 64;
    whole(SBX_PROCESS_SIGNAL, pid, &p);
    ok(a.r.ended == SBX_F_END && ends(pid) && a.state.exit.signal == 64
       && a.state.exit.reason == SBX_REASON_SIGNAL,
       "any that there is, also of real time");

    whole(SBX_PROCESS_SIGNAL, pid, &p);
    ok(failed(SBX_E_CONFLICT), "none after the end");

    for (i = 0; i < sbx_nelts(bad); i++) {
        p.signal = bad[i];
        whole(SBX_PROCESS_SIGNAL, pid, &p);
        ok(failed(SBX_E_INVALID), "signal %d is none", bad[i]);
    }

    p.signal = SIGKILL;
    whole(SBX_PROCESS_SIGNAL, 1, &p);
    ok(failed(SBX_E_PROCESS), "init is not signalled");
    whole(SBX_PROCESS_SIGNAL, -1, &p);
    ok(failed(SBX_E_PROCESS), "nor is everybody");
}


/* Reads the call's output until a text is in it. */

static int
until(init_call_t *call, const char *text)
{
    while (strstr(init_text(a.r.out), text) == NULL) {
        if (next(call, &a) == 0 || a.r.ended) {
            return strstr(init_text(a.r.out), text) != NULL;
        }
    }

    return 1;
}


static void
test_tty(void)
{
    int              pid;
    init_exec_t      x = { .flags = SBX_EXEC_TTY, .timeout = 15000 };
    init_call_t      call;
    sbx_f_process_t  p = { .verb = SBX_PROCESS_RESIZE, .rows = 40,
                           .cols = 120 };

    x.argv = (const char *[]) { "sh", "-c",
        "trap 'echo winch' WINCH; stty size; echo $TERM;"
        " test -t 0 && test -t 1 && test -t 2 && echo is-tty;"
        " echo named > /dev/tty; ls -ln $(tty) | cut -d' ' -f1,3; read l;"
        " echo got:$l; until read l; do :; done; stty size; echo err >&2;"
        " read l; echo not here", NULL };
    init_exec_begin(&s, &x, &call);
    fresh(&a);
    ok(until(&call, "crw--w---- 1000\r\n"), "a terminal is the user's own");
    ok(strstr(a.r.out, "24 80\r\n") != NULL, "of 24 rows and 80 columns");
    ok(NULL != strstr(a.r.out, "is-tty\r\nnamed\r\n")
       && strstr(a.r.out, "xterm-256color\r\n"),
       "and the command's controlling one");

    put(&call, "hello\n");
    ok(until(&call, "got:hello\r\n") && strstr(a.r.out, "\r\nhello\r\n"),
       "what is typed is echoed and read");

    init_send(call.fd, SBX_F_PROCESS, &p, sizeof(p));
    ok(until(&call, "winch"), "a new size is told by SIGWINCH");
    put(&call, "\n");
    ok(until(&call, "40 120\r\n"), "and is that of the terminal");
    ok(until(&call, "err\r\n") && a.r.err_size == 0, "there is one stream");

    put(&call, "\003");
    finish(&call, &a);
    init_hang_up(&call);
    ok(a.r.ended == SBX_F_EXIT && a.r.exit.signal == SIGINT,
       "control-C is an interrupt");

    /* signals in the same call */

    x.argv = (const char *[]) { "sh", "-c", "echo up; read l", NULL };
    init_exec_begin(&s, &x, &call);
    fresh(&a);
    (void) until(&call, "up\r\n");
    p.verb = SBX_PROCESS_SIGNAL;
    p.signal = SIGTERM;
    init_send(call.fd, SBX_F_PROCESS, &p, sizeof(p));
    finish(&call, &a);
    init_hang_up(&call);
    ok(a.r.ended == SBX_F_EXIT && a.r.exit.signal == SIGTERM,
       "a signal may come in the same call");

    /* the end of input */

    x.argv = (const char *[]) { "sh", "-c", "cat; echo over", NULL };
    init_exec_begin(&s, &x, &call);
    fresh(&a);
    put(&call, "line\n");
    init_send(call.fd, SBX_F_STDIN, NULL, 0);
    finish(&call, &a);
    init_hang_up(&call);
    ok(a.r.ended == SBX_F_EXIT && a.r.exit.exit_code == 0
       && strstr(init_text(a.r.out), "over\r\n"),
       "the end of input is the character for it");

    /* the last output, and much of it */

    x.argv = (const char *[]) { "seq", "1", "100000", NULL };
    init_exec_begin(&s, &x, &call);
    fresh(&a);
    finish(&call, &a);
    init_hang_up(&call);
    ok(a.r.out_size == 688895 && a.r.exit.stdout_bytes == 688895
       && strcmp(a.r.out + a.r.out_size - 8, "100000\r\n") == 0,
       "all of its output comes (%zu)", a.r.out_size);

    /* whose worker goes */

    x.argv = (const char *[]) { "sh", "-c", "echo up; read l", NULL };
    init_exec_begin(&s, &x, &call);
    fresh(&a);
    (void) until(&call, "up\r\n");
    pid = a.r.pid;
    init_hang_up(&call);
    ok(ends(pid) && a.state.exit.reason == SBX_REASON_DISCONNECTED,
       "a terminal ends with its worker");

    /* in the background */

    x.flags = SBX_EXEC_TTY|SBX_EXEC_STDIN_OPEN;
    x.rows = 10;
    x.cols = 20;
    x.argv = NULL;
    pid = background("stty size; read l; stty size; cat", &x);
    ok(pid > 1, "a terminal in the background");
    fresh(&a);
    ask(&call, SBX_PROCESS_OUTPUT, pid, NULL);
    ok(until(&call, "10 20\r\n"), "has the size that was asked for");
    init_hang_up(&call);

    whole(SBX_PROCESS_GET, pid, NULL);
    ok(a.state.flags & SBX_STATE_TTY, "as its state says");

    p.rows = 65535;
    p.cols = 1;
    whole(SBX_PROCESS_RESIZE, pid, &p);
    ok(a.r.ended == SBX_F_END, "and can be resized");
    feed(pid, "\n", 0);
    feed(pid, "text\n", SBX_PROCESS_EOF);
    ok(ends(pid), "its input ends");
    whole(SBX_PROCESS_OUTPUT, pid, NULL);
    ok(NULL != strstr(init_text(a.r.out), "65535 1\r\n"),
       "and it was resized");
    ok(NULL != strstr(strstr(init_text(a.r.out), "text\r\n") + 1, "text\r\n"),
       "what was typed is echoed, and came");
    whole(SBX_PROCESS_RESIZE, pid, &p);
    ok(failed(SBX_E_CONFLICT), "not after its end");

    p.rows = 0;
    whole(SBX_PROCESS_RESIZE, pid, &p);
    ok(failed(SBX_E_INVALID), "a size without rows is none");
    p.rows = 65536;
    whole(SBX_PROCESS_RESIZE, pid, &p);
    ok(failed(SBX_E_INVALID), "nor is one of 65536");

    p.rows = 1;
    pid = background("read x < fifo", NULL);
    whole(SBX_PROCESS_RESIZE, pid, &p);
    ok(failed(SBX_E_CONFLICT), "without a terminal there is no size");
    init_shell(&s, "echo go > fifo", &r);
}


static void
test_cancel(void)
{
    int           i, pids[3];
    answer_t      w;
    init_exec_t   x = { 0 };
    init_call_t   call, cancel, look;

    memset(&w, 0, sizeof(w));

    for (i = 0; i < 3; i++) {
        pids[i] = background("trap '' TERM INT HUP; sleep 100 & sleep 100",
                             NULL);
    }

    x.argv = (const char *[]) { "sleep", "100", NULL };
    init_exec_begin(&s, &x, &call);
    init_send(call.fd, SBX_F_STDIN, NULL, 0);

    while (!w.r.started && next(&call, &w) != 0) { /* void */ }

    ask(&look, SBX_PROCESS_OUTPUT, pids[0], NULL);
    fresh(&a);

    while (!a.has_output && next(&look, &a) != 0) { /* void */ }

    fresh(&a);
    init_call(&s, SBX_OP_CANCEL, NULL, NULL, 0, &cancel);
    finish(&cancel, &a);
    init_hang_up(&cancel);
    ok(a.r.ended == SBX_F_END && a.accepted && a.r.end.count == 4,
       "cancel ends what runs, and counts it (%llu)",
       (unsigned long long) a.r.end.count);

    finish(&call, &w);
    init_hang_up(&call);
    ok(w.r.exit.reason == SBX_REASON_CANCELLED
       && (w.r.exit.flags & SBX_EXIT_CANCELLED), "each is told why");

    fresh(&a);
    finish(&look, &a);
    init_hang_up(&look);
    ok(a.r.ended == SBX_F_EXIT && a.r.exit.reason == SBX_REASON_CANCELLED,
       "who is attached as well");

    for (i = 0; i < 3; i++) {
        ok(ends(pids[i]) && a.state.exit.reason == SBX_REASON_CANCELLED,
           "one of the background is cancelled");
    }

    fresh(&a);
    init_call(&s, SBX_OP_CANCEL, NULL, NULL, 0, &cancel);
    finish(&cancel, &a);
    init_hang_up(&cancel);
    ok(a.r.ended == SBX_F_END && a.r.end.count == 0, "nothing runs: 0");

    init_shell(&s, "echo alive", &r);
    is_str(init_text(r.out), "alive\n", "the session goes on");
    init_result_free(&w.r);
}


static void
test_kept(void)
{
    int  i, first, slow;

    slow = background("read x < fifo", NULL);

    init_shell(&s, "true", &r);
    first = r.pid;

    for (i = 0; i < 260; i++) {
        init_shell(&s, "true", &r);
    }

    whole(SBX_PROCESS_LIST, 0, NULL);
    is_int(a.states, SBX_PROCESSES_KEPT + 1,
           "256 results are kept, and what runs is listed");
    whole(SBX_PROCESS_GET, first, NULL);
    ok(failed(SBX_E_PROCESS), "the oldest are not");

    init_shell(&s, "echo go > fifo", &r);
    ok(ends(slow), "one that ends late is among the newest");
    whole(SBX_PROCESS_LIST, 0, NULL);
    is_int(a.states, SBX_PROCESSES_KEPT, "all that is listed has ended");
}


static void
raw(init_call_t *call, sbx_frame_type_t type, const void *payload,
    size_t size)
{
    fresh(&a);
    init_call(&s, SBX_OP_PROCESS, NULL, NULL, 0, call);
    init_send(call->fd, type, payload, size);
}


static void
test_hostile(void)
{
    int              i, pid;
    init_exec_t      x = { .flags = SBX_EXEC_STDIN_OPEN };
    init_call_t      call;
    sbx_f_process_t  p;

    static init_call_t  calls[200];
    static const char   junk[200];

    memset(&p, 0, sizeof(p));
    raw(&call, SBX_F_PROCESS, &p, sizeof(p));
    finish(&call, &a);
    ok(failed(SBX_E_INVALID) && !a.accepted, "verb 0 is none");
    init_hang_up(&call);

    whole(SBX_PROCESS_RESIZE + 1, 1, NULL);
    ok(failed(SBX_E_INVALID), "nor is the one after the last");

    p.flags = 2;
    whole(SBX_PROCESS_LIST, 0, &p);
    ok(failed(SBX_E_INVALID), "flags that are none");
    p.flags = SBX_PROCESS_EOF;
    whole(SBX_PROCESS_GET, 2, &p);
    ok(failed(SBX_E_INVALID), "or another verb's");

    raw(&call, SBX_F_STDIN, junk, 5);
    finish(&call, &a);
    ok(failed(SBX_E_INVALID), "a call begins with its own frame");
    init_hang_up(&call);

    raw(&call, SBX_F_PROCESS, junk, sizeof(p) - 1);
    finish(&call, &a);
    ok(failed(SBX_E_INVALID), "of the right size");
    init_hang_up(&call);

    raw(&call, SBX_F_PROCESS, junk, sizeof(p) + 1);
    finish(&call, &a);
    ok(failed(SBX_E_INVALID), "and no longer");
    init_hang_up(&call);

    raw(&call, SBX_F_PROCESS, NULL, 0);
    (void) shutdown(call.fd, SHUT_WR);
    finish(&call, &a);
    ok(a.r.ended != SBX_F_END, "half a call is none");
    init_hang_up(&call);

    pid = background("read x < fifo", &x);

    fresh(&a);
    ask(&call, SBX_PROCESS_OUTPUT, pid, NULL);

    while (!a.has_output && next(&call, &a) != 0) { /* void */ }

    init_send(call.fd, SBX_F_STDIN, junk, 5);
    finish(&call, &a);
    ok(a.r.ended == 0, "who reads has nothing to say");
    init_hang_up(&call);

    fresh(&a);
    ask(&call, SBX_PROCESS_STDIN, pid, NULL);

    while (!a.ready && next(&call, &a) != 0) { /* void */ }

    init_send(call.fd, SBX_F_DATA, junk, 5);
    finish(&call, &a);
    ok(a.r.ended == 0, "who writes has only that to say");
    init_hang_up(&call);

    {
        sbx_frame_t  head = { .length = 0xffffffff, .type = SBX_F_STDIN };

        fresh(&a);
        ask(&call, SBX_PROCESS_STDIN, pid, NULL);

        while (!a.ready && next(&call, &a) != 0) { /* void */ }

        (void) send(call.fd, &head, sizeof(head), MSG_NOSIGNAL);
        finish(&call, &a);
        ok(a.r.ended == 0, "and no frame longer than one may be");
        init_hang_up(&call);
    }

    /* what belongs to terminals, elsewhere */

    x.flags = 0;
    x.argv = (const char *[]) { "sleep", "100", NULL };
    memset(&p, 0, sizeof(p));
    p.verb = SBX_PROCESS_SIGNAL;
    p.signal = SIGTERM;
    init_exec_begin(&s, &x, &call);
    init_send(call.fd, SBX_F_STDIN, NULL, 0);
    fresh(&a);

    while (!a.r.started && next(&call, &a) != 0) { /* void */ }

    init_send(call.fd, SBX_F_PROCESS, &p, sizeof(p));
    i = a.r.pid;
    finish(&call, &a);
    init_hang_up(&call);
    ok(a.r.ended == 0 && ends(i)
       && a.state.exit.reason == SBX_REASON_DISCONNECTED,
       "a frame for a terminal ends a call without one");

    /* more calls than there are places */

    for (i = 0; i < 200; i++) {
        ask(&calls[i], SBX_PROCESS_OUTPUT, pid, NULL);
    }

    fresh(&a);
    finish(&calls[199], &a);
    ok(failed(SBX_E_UNAVAILABLE) && a.r.error.retry_after == 1,
       "calls have a bound");

    for (i = 0; i < 200; i++) {
        init_hang_up(&calls[i]);
    }

    init_shell(&s, "echo go > fifo", &r);
    ok(ends(pid), "which closing gives back");

    init_task(&s, SBX_OP_PROCESS, NULL, -1, NULL, 0);
    init_task(&s, SBX_OP_CANCEL, NULL, -1, NULL, 0);
    init_shell(&s, "echo alive", &r);
    is_str(init_text(r.out), "alive\n", "calls without a socket are nothing");
}


/* Of a flood in the background init does little. */

static double
init_cpu(void)
{
    char           path[64], buf[1024];
    unsigned long  user, system;

    (void) snprintf(path, sizeof(path), "/proc/%d/stat", s.pid);

    if (sbx_read_at(AT_FDCWD, path, buf, sizeof(buf)) <= 0
        || sscanf(strrchr(buf, ')') + 2, "%*c %*d %*d %*d %*d %*d %*u %*u"
                  " %*u %*u %*u %lu %lu", &user, &system)
           != 2)
    {
        return 1e9;
    }

    return (double) (user + system) / (double) sysconf(_SC_CLK_TCK);
}


static long
init_status(const char *key)
{
    char         path[64], buf[4096];
    const char  *p;

    (void) snprintf(path, sizeof(path), "/proc/%d/status", s.pid);

    if (sbx_read_at(AT_FDCWD, path, buf, sizeof(buf)) <= 0) {
        return -1;
    }

    p = strstr(buf, key);

    return p != NULL ? atol(p + strlen(key)) : -1;
}


static void
test_flood(void)
{
    int          pid;
    double       used;
    init_exec_t  x = { .timeout = 2000 };
    init_exec_t  tty = { .timeout = 2000, .flags = SBX_EXEC_TTY };

    used = init_cpu();
    pid = background("yes & yes >&2", &x);
    ok(ends(pid) && a.state.exit.reason == SBX_REASON_TIMEOUT
       && a.state.exit.stdout_bytes > 1 << 20, "two floods for two seconds");
    used = init_cpu() - used;
    ok(used < 1.0, "cost init little (%.2f s)", used);

    used = init_cpu();
    pid = background("exec yes", &tty);
    ok(ends(pid) && a.state.exit.stdout_bytes > 65536,
       "a flood on a terminal");
    used = init_cpu() - used;
    ok(used < 1.0, "costs no more (%.2f s)", used);

    used = init_cpu();
    pid = background("exec < /dev/null > /dev/null 2>&1; sleep 1;"
                     " echo late > /dev/tty", &tty);
    ok(ends(pid) && a.state.exit.exit_code == 0,
       "a terminal that nobody has open is not its end");
    whole(SBX_PROCESS_OUTPUT, pid, NULL);
    is_str(init_text(a.r.out), "late\r\n", "and may be opened again");
    used = init_cpu() - used;
    ok(used < 0.3, "which is not waited for in a circle (%.2f s)", used);
}


static unsigned
init_fds(void)
{
    char      path[64];
    FILE     *p;
    unsigned  n;

    (void) snprintf(path, sizeof(path), "ls /proc/%d/fd | wc -l", s.pid);
    p = popen(path, "r");
    n = 0;

    if (p == NULL || fscanf(p, "%u", &n) != 1) {
        n = 0;
    }

    (void) pclose(p);

    return n;
}


static void
rounds(int n)
{
    int          i, pid;
    init_call_t  call;
    init_exec_t  x = { .flags = SBX_EXEC_TTY|SBX_EXEC_STDIN_OPEN };

    for (i = 0; i < n; i++) {
        pid = background("cat", &x);
        feed(pid, "x\n", 0);
        fresh(&a);
        ask(&call, SBX_PROCESS_OUTPUT, pid, NULL);
        (void) next(&call, &a);
        init_hang_up(&call);
        feed(pid, "", SBX_PROCESS_EOF);
        (void) ends(pid);
        whole(SBX_PROCESS_LIST, 0, NULL);
    }
}


static void
test_leaks(void)
{
    long      rss;
    unsigned  fds;

    rounds(20);
    rss = init_status("VmRSS:");
    fds = init_fds();
    rounds(60);

    ok(init_status("VmRSS:") - rss < 1024, "memory is given back (%ld, %ld)",
       rss, init_status("VmRSS:"));
    ok(init_fds() <= fds + 1, "and so are descriptors (%u, %u)", fds,
       init_fds());
}


static void
test_terminate(void)
{
    int          pid;
    init_call_t  call;

    pid = background("trap 'echo bye; exit 3' TERM; echo up;"
                     " while :; do sleep 0.02; done", NULL);
    fresh(&a);
    ask(&call, SBX_PROCESS_OUTPUT, pid, NULL);
    (void) until(&call, "up\n");
    init_task(&s, SBX_OP_TERMINATE, NULL, -1, NULL, 0);
    finish(&call, &a);
    init_hang_up(&call);
    ok(a.r.ended == SBX_F_EXIT && a.r.exit.exit_code == 3
       && a.r.exit.reason == SBX_REASON_SESSION_ENDED
       && strcmp(init_text(a.r.out), "up\nbye\n") == 0,
       "the session's end reaches the background");
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
    init_shell(&s, "mkfifo fifo", &r);

    test_background();
    test_state();
    test_ring();
    test_rings();
    test_pressure();
    test_held();
    test_detach();
    test_foreground();
    test_stdin();
    test_signal();
    test_tty();
    test_cancel();
    test_kept();
    test_hostile();
    test_flood();
    test_leaks();
    test_terminate();

    ok(init_stop(&s), "the end of the control socket ends the session");

    return done_testing();
}
