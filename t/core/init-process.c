/*
 * Processes of a session: the background, what is kept of output, and
 * standard input by calls of its own.
 */

#include "process_test.h"

#include <linux/sockios.h>
#include <sys/ioctl.h>


/* Calls that stay, of one session: docs/limits.md. */
#define STREAMS  128


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
    int          i, go, pids[9];
    init_exec_t  x = { 0 };
    init_call_t  calls[9];

    /* nobody begins before his reader is there */

    init_shell(&s, "mkfifo go", &r);
    go = background("exec 3<>go; read x < fifo; yes | head -n 9 >&3;"
                    " read x < fifo", &x);

    for (i = 0; i < 9; i++) {
        pids[i] = background("read x < go; head -c 3000000 /dev/zero", &x);
        ask(&calls[i], SBX_PROCESS_OUTPUT, pids[i], NULL);
        fresh(&a);

        while (!a.has_output && next(&calls[i], &a) != 0) { /* void */ }
    }

    init_shell(&s, "echo go > fifo; sleep 0.5", &r);

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

    init_shell(&s, "echo go > fifo", &r);
    (void) ends(go);
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


/* A file of the session, awaited from outside. */

static int
outside(const char *name)
{
    int          i;
    char         path[256];
    struct stat  st;

    (void) snprintf(path, sizeof(path), "/proc/%d/root/home/user/%s",
                    (int) s.pid, name);

    for (i = 0; i < 2000; i++) {
        if (stat(path, &st) == 0) {
            return 1;
        }

        (void) usleep(5000);
    }

    return 0;
}


/* Until init has read all that was sent to it. */

static void
taken(const init_call_t *call)
{
    int  i, left;

    for (i = 0; i < 2000; i++) {
        if (ioctl(call->fd, SIOCOUTQ, &left) == -1 || left == 0) {
            break;
        }

        (void) usleep(5000);
    }
}


/*
 * The command's own call waits behind a writer that goes away, at a moment
 * when the pipe has room: init is stopped, so that it meets both at once.
 */

static void
test_turns(void)
{
    char          piece[8192];
    unsigned      i;
    init_call_t   call, writer;
    const char   *argv[] = {
        "/bin/sh", "-c",
        "while [ ! -e empty ]; do sleep 0.02; done; head -c 65536 >/dev/null; "
        "touch emptied; exec cat", NULL
    };
    init_exec_t   x = { .flags = SBX_EXEC_STDIN_OPEN, .argv = argv };

    memset(piece, 'x', sizeof(piece));
    fresh(&a);
    init_exec_begin(&s, &x, &call);

    while (!a.r.started && next(&call, &a) != 0) { /* void */ }

    ask(&writer, SBX_PROCESS_STDIN, a.r.pid, NULL);

    while (!a.ready && next(&writer, &a) != 0) { /* void */ }

    for (i = 0; i < 9; i++) {
        init_send(writer.fd, SBX_F_STDIN, piece, sizeof(piece));
    }

    taken(&writer);
    put(&call, "hello\n");
    put(&call, "world\n");
    taken(&call);
    (void) background("sleep 1; touch empty", NULL);
    fresh(&a);

    (void) tap_kill(s.pid, SIGSTOP);
    init_hang_up(&writer);
    ok(outside("emptied"), "the pipe is emptied");
    (void) tap_kill(s.pid, SIGCONT);

    ok(until(&call, "hello\n"), "who waited behind a writer is next");
    ok(until(&call, "world\n"), "and goes on");

    init_hang_up(&call);
}


/* Those who follow leave room for those who list and kill. */

static void
test_many(void)
{
    int           pid;
    unsigned      i, n;
    init_call_t  *calls, writer;
    const char   *argv[] = { "cat", NULL };
    init_exec_t   x = { .flags = SBX_EXEC_STDIN_OPEN, .argv = argv };

    pid = background(NULL, &x);
    calls = calloc(STREAMS, sizeof(init_call_t));

    for (i = 0, n = 0; i < STREAMS; i++) {
        fresh(&a);
        ask(&calls[i], SBX_PROCESS_OUTPUT, pid, NULL);

        while (!a.has_output && next(&calls[i], &a) != 0) { /* void */ }

        n += (a.has_output != 0);
    }

    is_int(n, STREAMS, "as many as may follow one process");

    whole(SBX_PROCESS_OUTPUT, pid, NULL);
    ok(failed(SBX_E_QUOTA), "one more may not");
    is_str(a.r.error.resource, "process streams", "and is told of what");
    ok(strcmp(a.r.error.scope, "session") == 0 && a.r.error.limit == STREAMS
       && a.r.error.retry_after == 1, "whose, how many, and to come again");

    fresh(&a);
    ask(&writer, SBX_PROCESS_STDIN, pid, NULL);
    finish(&writer, &a);
    ok(failed(SBX_E_QUOTA), "nor may one that writes");
    init_hang_up(&writer);

    whole(SBX_PROCESS_LIST, 0, NULL);
    ok(a.r.ended == SBX_F_END && a.states >= 1, "a list is answered");

    n = 0;

    do {
        init_hang_up(&calls[0]);
        fresh(&a);
        ask(&calls[0], SBX_PROCESS_OUTPUT, pid, NULL);

        while (!a.has_output && next(&calls[0], &a) != 0) { /* void */ }

    } while (!a.has_output && failed(SBX_E_QUOTA) && n++ < 1000);

    ok(a.has_output, "when one has gone there is room for one");

    for (i = 0; i < STREAMS; i++) {
        init_hang_up(&calls[i]);
    }

    free(calls);

    /* who has hung up may still be there for a moment */

    do {
        feed(pid, "", SBX_PROCESS_EOF);
    } while (failed(SBX_E_QUOTA));

    ok(ends(pid), "the process goes on, and ends");
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
    test_turns();
    test_many();

    ok(init_stop(&s), "the end of the control socket ends the session");

    return done_testing();
}
