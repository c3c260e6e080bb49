/*
 * Processes of a session: signals, terminals, hostile calls, floods, and the
 * end of all.
 */

#include "process_test.h"


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
    ok(failed(SBX_E_QUOTA) && a.r.error.retry_after == 1,
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
    int       i;
    long      rss;
    unsigned  fds;

    rounds(20);
    rss = init_status("VmRSS:");
    fds = init_fds();
    rounds(60);

    /* a sanitizer keeps freed memory */

#ifndef __SANITIZE_ADDRESS__
    ok(init_status("VmRSS:") - rss < 1024, "memory is given back (%ld, %ld)",
       rss, init_status("VmRSS:"));
#else
    (void) rss;
#endif

    /* what the last round left behind ends after its answer */

    for (i = 0; i < 500 && init_fds() > fds + 1; i++) {
        (void) usleep(20000);
    }

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


/* What it wrote last waits for a client that reads slowly, and then goes. */

static void
test_gone(void)
{
    int          pid;
    char         look[64];
    init_exec_t  x = { .argv = (const char *[]) { "sh", "-c",
                       "head -c 10000000 /dev/zero & sleep 0.1", NULL } };
    init_call_t  call;

    init_exec_begin(&s, &x, &call);
    init_send(call.fd, SBX_F_STDIN, NULL, 0);
    fresh(&a);

    while (a.r.pid == 0 && next(&call, &a) != 0) { /* void */ }

    pid = a.r.pid;
    (void) snprintf(look, sizeof(look),
                    "kill -0 %d || { pgrep -x head >&2 && echo yes; }", pid);
    ok(pid != 0 && init_until(&s, look),
       "a command's leader ends, and what it began still writes");

    whole(SBX_PROCESS_GET, pid, NULL);
    ok(!(a.state.flags & SBX_STATE_EXITED),
       "it goes on as long as its client does not read");
    init_hang_up(&call);
    ok(ends(pid), "it ends when the client goes");
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

    test_signal();
    test_tty();
    test_cancel();
    test_kept();
    test_hostile();
    test_flood();
    test_leaks();
    test_gone();
    test_terminate();

    ok(init_stop(&s), "the end of the control socket ends the session");

    return done_testing();
}
