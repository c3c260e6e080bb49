/* Processes by their tag, and what a caller says that it takes them for. */

#include "process_test.h"


static init_exec_t  blue = { .tag = "blue" };


static void
by(uint32_t verb, const char *tag, const sbx_f_process_t *more)
{
    sbx_f_process_t  p = { 0 };

    if (more != NULL) {
        p = *more;
    }

    (void) snprintf(p.tag, sizeof(p.tag), "%s", tag);
    whole(verb, p.pid, &p);
}


static void
test_tags(void)
{
    int              first, second;
    sbx_f_process_t  p = { 0 };

    by(SBX_PROCESS_GET, "blue", NULL);
    ok(failed(SBX_E_PROCESS) && strstr(a.r.error.text, "blue") != NULL,
       "there is none of this tag");

    first = background("exec sleep 60", &blue);
    second = background("exec sleep 60", &blue);
    by(SBX_PROCESS_GET, "blue", NULL);
    is_int(a.state.pid, second, "the newest is meant");

    p.signal = SIGKILL;
    by(SBX_PROCESS_SIGNAL, "blue", &p);
    is_int(a.r.ended, SBX_F_END, "and killed");
    by(SBX_PROCESS_GET, "blue", NULL);
    is_int(a.state.pid, first, "then the one that still runs");
    by(SBX_PROCESS_SIGNAL, "blue", &p);
    by(SBX_PROCESS_GET, "blue", NULL);
    ok(a.state.pid == second && (a.state.flags & SBX_STATE_EXITED),
       "and when none does, the newest again");
    by(SBX_PROCESS_SIGNAL, "blue", &p);
    ok(failed(SBX_E_CONFLICT), "which takes no signal");

    p.pid = second;
    by(SBX_PROCESS_GET, "blue", &p);
    ok(failed(SBX_E_INVALID), "a number and a tag are too much");
    by(SBX_PROCESS_LIST, "blue", NULL);
    ok(failed(SBX_E_INVALID), "a list is of all");
    memset(p.tag, 'x', sizeof(p.tag));
    p.pid = 0;
    whole(SBX_PROCESS_GET, 0, &p);
    ok(failed(SBX_E_INVALID), "a tag has an end");
}


static void
test_env(void)
{
    char            big[9000];
    init_exec_t     x = { .tag = "env" };
    const char     *argv[] = { "/bin/sh", "-c", "exec sleep 60", NULL };
    const char     *env[] = { "A=1", "B=", big, "C=3", NULL };

    memset(big, 'x', sizeof(big) - 1);
    big[sizeof(big) - 1] = '\0';
    memcpy(big, "BIG=", 4);

    x.argv = argv;
    x.env = env;
    (void) background(NULL, &x);
    by(SBX_PROCESS_GET, "env", NULL);
    ok(a.state.envc == 3 && a.state.env_len == 11
       && (a.state.flags & SBX_STATE_CUT)
       && memcmp(sbx_wire_state_env(&a.state, a.args), "A=1\0B=\0C=3", 11)
          == 0,
       "of its own variables those are told that fit as a whole");
    by(SBX_PROCESS_SIGNAL, "env", &(sbx_f_process_t) { .signal = SIGKILL });

    env[2] = NULL;
    (void) background(NULL, &x);
    by(SBX_PROCESS_GET, "env", NULL);
    ok(a.state.envc == 2 && !(a.state.flags & SBX_STATE_CUT)
       && a.state.argc == 3, "all of them, where they do");
    by(SBX_PROCESS_SIGNAL, "env", &(sbx_f_process_t) { .signal = SIGKILL });
}


static int
conflict(int err)
{
    return failed(SBX_E_CONFLICT) && a.r.error.err == err;
}


static void
feed_as(const char *tag, uint32_t flags)
{
    init_call_t      call;
    sbx_f_process_t  p = { .flags = flags };

    (void) snprintf(p.tag, sizeof(p.tag), "%s", tag);
    fresh(&a);
    ask(&call, SBX_PROCESS_STDIN, 0, &p);

    while (!a.r.ended && !a.ready && next(&call, &a) != 0) { /* void */ }

    if (a.ready) {
        put(&call, "word\n");
        init_send(call.fd, SBX_F_STDIN, NULL, 0);
        finish(&call, &a);
    }

    init_hang_up(&call);
}


static void
test_kinds(void)
{
    init_exec_t      x;
    init_call_t      call;
    sbx_f_process_t  size = { .rows = 30, .cols = 90,
                              .flags = SBX_PROCESS_TTY };

    x = (init_exec_t) { .tag = "tty",
                        .flags = SBX_EXEC_TTY|SBX_EXEC_STDIN_OPEN,
                        .argv = (const char *[]) { "/bin/cat", NULL } };
    init_exec_begin(&s, &x, &call);
    init_send(call.fd, SBX_F_STDIN, NULL, 0);
    fresh(&a);

    while (!a.r.started && next(&call, &a) != 0) { /* void */ }

    x.tag = "pipe";
    x.flags = SBX_EXEC_STDIN_OPEN;
    (void) background(NULL, &x);
    x.tag = "closed";
    x.flags = 0;
    x.argv = (const char *[]) { "/bin/sleep", "60", NULL };
    (void) background(NULL, &x);

    feed_as("tty", SBX_PROCESS_TTY);
    is_int(a.r.ended, SBX_F_END, "a terminal takes what is meant for one");
    feed_as("tty", SBX_PROCESS_PIPE);
    ok(conflict(ENOTTY), "and not what is meant for a pipe");
    feed_as("pipe", SBX_PROCESS_PIPE);
    is_int(a.r.ended, SBX_F_END, "a pipe takes what is meant for one");
    feed_as("pipe", SBX_PROCESS_TTY);
    ok(conflict(ENOTTY), "and not what is meant for a terminal");
    feed_as("closed", SBX_PROCESS_PIPE);
    ok(conflict(EPIPE), "what has no input takes none");
    feed_as("closed", SBX_PROCESS_PIPE|SBX_PROCESS_TTY);
    ok(failed(SBX_E_INVALID), "nothing is both");

    by(SBX_PROCESS_RESIZE, "tty", &size);
    is_int(a.r.ended, SBX_F_END, "a terminal has a size");
    by(SBX_PROCESS_RESIZE, "pipe", &size);
    ok(conflict(ENOTTY), "a pipe has none");

    by(SBX_PROCESS_SIGNAL, "pipe",
       &(sbx_f_process_t) { .signal = SIGKILL });
    by(SBX_PROCESS_SIGNAL, "closed",
       &(sbx_f_process_t) { .signal = SIGKILL });
    init_hang_up(&call);
}


static void
test_live(void)
{
    int              pid;
    init_call_t      call;
    init_exec_t      x = { .tag = "live", .flags = SBX_EXEC_STDIN_OPEN };
    sbx_f_process_t  p = { .flags = SBX_PROCESS_LIVE, .tag = "live" };

    x.argv = (const char *[]) { "/bin/sh", "-c",
        "echo before; while read l; do echo got:$l; done; exit 4", NULL };
    pid = background(NULL, &x);

    /* what came before has been kept */

    fresh(&a);
    ask(&call, SBX_PROCESS_OUTPUT, pid, NULL);
    ok(until(&call, "before\n") && a.output.pid == pid
       && a.output.flags == SBX_STATE_STDIN_OPEN,
       "the output says whose it is, and how it is");
    init_hang_up(&call);

    fresh(&a);
    ask(&call, SBX_PROCESS_OUTPUT, 0, &p);

    while (!a.has_output && next(&call, &a) != 0) { /* void */ }

    ok(a.output.pid == pid && a.output.from[0] == 7
       && a.output.oldest[0] == 0, "from now on");
    init_hang_up(&call);

    ask(&call, SBX_PROCESS_OUTPUT, 0, &p);
    fresh(&a);

    while (!a.has_output && next(&call, &a) != 0) { /* void */ }

    {
        answer_t  kept = a;

        memset(&a, 0, sizeof(a));
        feed(pid, "one\n", SBX_PROCESS_EOF);
        init_result_free(&a.r);
        a = kept;
    }

    finish(&call, &a);
    is_str(init_text(a.r.out), "got:one\n", "what comes is all");
    is_int(a.r.exit.exit_code, 4, "to its end");
    init_hang_up(&call);

    by(SBX_PROCESS_OUTPUT, "live", &p);
    ok(a.r.ended == SBX_F_EXIT && a.r.out == NULL
       && (a.output.flags & SBX_STATE_EXITED)
       && a.r.exit.exit_code == 4, "of what has ended, its end");

    p.flags = SBX_PROCESS_EOF;
    by(SBX_PROCESS_OUTPUT, "live", &p);
    ok(failed(SBX_E_INVALID), "flags that have no place here");
}


int
main(void)
{
    if (geteuid() != 0) {
        return skip_all("needs root");
    }

    init_defaults();
    init_start(&s);

    test_tags();
    test_env();
    test_kinds();
    test_live();

    ok(init_stop(&s), "the session ends");

    return done_testing();
}
