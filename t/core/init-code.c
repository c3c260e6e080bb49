/*
 * Code: runs, results, output, and the order of all of them.
 */

#include "code_test.h"


static code_answer_t  b;


static void
test_run(void)
{
    code("show(6 * 7)");
    ok(a.ended == SBX_F_RAN && a.accepted == 1, "code is run");
    is_str(a.results, "main{ text/plain=42}", "and its result told");
    is_str(a.id, "python", "in the default context of its language");
    is_str(a.language, "python", "which is named");
    is_str(a.cwd, "/home/user", "and is in the workspace");
    ok(a.ran.exit_code == 0 && a.ran.reason == SBX_REASON_EXITED
       && a.ran.flags == 0 && a.ran.execution == 1, "it has ended by itself");
    ok(a.ran.started_us != 0, "and says how long the start has taken");

    code("x = 5");
    code("show(x)");
    is_str(a.results, "main{ text/plain=5}", "what it has set is remembered");
    ok(a.ran.execution == 3 && a.ran.started_us == 0 && s.groups == 1,
       "by the same interpreter");

    code("");
    ok(a.ended == SBX_F_RAN && a.ran.flags == 0, "also nothing can be run");

    code("code = 7");
    ok(a.ran.exit_code == 7 && a.ran.reason == SBX_REASON_EXITED,
       "an exit code is passed on");

    code("show(os.environ['OWN'] + os.environ['USER'] + os.getcwd())");
    is_str(a.results, "main{ text/plain=1user/home/user}",
           "its environment is a command's, and the language's");
}


static void
test_environment(void)
{
    code_t  x = { .code = "show(b';'.join(env))",
                  .env = (const char *[]) { "A=1", "B=two words", NULL } };

    code_call(&x);
    is_str(a.results, "main{ text/plain=A=1;B=two words}",
           "a run's own variables are its kernel's to set");

    x.env = (const char *[]) { "=1", NULL };
    code_call(&x);
    ok(code_failed(SBX_E_INVALID), "one without a name is refused");

    x.env = NULL;
    x.code = "a\0b";
    x.code_size = 3;
    code_call(&x);
    ok(code_failed(SBX_E_INVALID), "as is code with a NUL");

    code("show(env)");
    is_str(a.results, "main{ text/plain=[]}", "the next run has none");
}


static void
test_order(void)
{
    int  i;

    for (i = 0; i < 20; i++) {
        code("os.write(1, b'one\\n'); os.write(2, b'two\\n'); show(1);"
             " frame('result', ('id', id), ('main', 0), ('a/b', 2),"
             " ('c/d', 'x' * 30))");

        /* two pipes have no order between them */

        if (strcmp(a.order, "coer") != 0 && strcmp(a.order, "ceor") != 0) {
            break;
        }
    }

    ok(i == 20, "output comes before the result after it (%s)", a.order);
    is_str(init_text(a.out), "one\n", "standard output");
    is_str(init_text(a.err), "two\n", "standard error");
    is_str(a.results, "main{ text/plain=1}display{ a/b=2 c/d="
           "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxx}", "bundles of several types");
    ok(a.ran.stdout_bytes == 4 && a.ran.stderr_bytes == 4, "all is counted");

    code("os.write(1, b'x' * 3000000); show('end')");
    ok(a.out_size == 3000000 && strcmp(a.order, "cor") == 0,
       "also what is more than a pipe holds");

    code("subprocess.run(['sh', '-c', 'echo child; echo error >&2']);"
         " show(0)");
    ok(strcmp(init_text(a.out), "child\n") == 0
       && strcmp(init_text(a.err), "error\n") == 0
       && a.order[strlen(a.order) - 1] == 'r',
       "and the output of children");

    code("frame('error', ('id', id), ('name', 'E'), ('value', 'v'),"
         " ('traceback', 't\\nu')); code = 1");
    is_str(a.results, "error{ name=E value=v traceback=t\nu}",
           "an error is told");
    ok(a.ran.exit_code == 1 && a.ran.reason == SBX_REASON_EXITED,
       "and is no reason to die");
}


static void
test_cap(void)
{
    code_t  x = { .code = "os.write(1, b'x' * 200000); os.write(2, b'y')",
                  .flags = SBX_CODE_F_CAP, .max_output = 1000 };

    code_call(&x);
    ok(a.out_size == 1000 && a.err_size == 1
       && a.ran.stdout_bytes == 200000
       && (a.ran.flags & SBX_RAN_OUT_TRUNCATED)
       && !(a.ran.flags & SBX_RAN_ERR_TRUNCATED),
       "past its cap output is dropped and counted");

    x.max_output = (1 << 20) + 1;
    code_call(&x);
    ok(code_failed(SBX_E_MANIFEST), "no more than the session has");

    x.max_output = 0;
    x.timeout = 20001;
    code_call(&x);
    ok(code_failed(SBX_E_MANIFEST), "nor longer");
}


static void
test_between(void)
{
    code("def talk():\n time.sleep(0.05)\n"
         " os.write(1, b'a' * 400000 + b'late'); os.write(2, b'done');"
         " done.set()\n"
         "done = threading.Event()\n"
         "threading.Thread(target=talk).start()");
    ok(a.ended == SBX_F_RAN && a.out_size == 0, "a thread goes on");
    code("done.wait(); print('now')");
    ok(a.out_size >= 65536 + 4 && a.out_size <= 400000 + 8
       && strcmp(a.out + a.out_size - 8, "late" "now\n") == 0,
       "what it writes does not block it, and is there in the next run");
    is_str(init_text(a.err), "done", "of both streams");
}


/* Another call than the one at hand. */

static void
begin(code_answer_t *w, const char *language, const char *text)
{
    code_t  x = { .code = text, .language = language };

    code_fresh(w);
    code_begin(&x, w);
}


static void
test_queue(void)
{
    int            i;
    code_t         x = { 0 };
    code_answer_t  c, more[SBX_RUNS_MAX];

    memset(&c, 0, sizeof(c));
    memset(more, 0, sizeof(more));

    begin(&b, NULL, "print('begun', flush=True); input_ = f.readline;"
          " threading.Event().wait()");
    ok(code_until(&b, "begun"), "a run that takes long");

    begin(&c, NULL, "show(x)");
    ok(code_next(&c) == SBX_F_ACCEPTED && c.contexts == 0,
       "the next one of its context is told that it waits");

    x.language = "other";
    x.code = "show(2)";
    code_call(&x);
    is_str(a.results, "main{ text/plain=2}", "contexts run in parallel");

    x.verb = SBX_CODE_LIST;
    x.code = NULL;
    x.language = NULL;
    code_call(&x);
    ok(a.ended == SBX_F_END && a.contexts == 2, "both are listed");
    ok(a.context.state == SBX_CONTEXT_IDLE && strcmp(a.id, "other") == 0
       && a.context.pid > 1 && a.context.executions == 1
       && a.context.waiting == 0, "with what they do");

    for (i = 0; i < SBX_RUNS_MAX - 1; i++) {
        begin(&more[i], NULL, "pass");

        if (code_next(&more[i]) != SBX_F_ACCEPTED) {
            break;
        }
    }

    is_int(i, SBX_RUNS_MAX - 1, "so many runs may wait");
    code("pass");
    ok(code_failed(SBX_E_QUOTA)
       && strcmp(a.error.resource, "runs") == 0
       && strcmp(a.error.scope, "session") == 0
       && a.error.limit == SBX_RUNS_MAX, "and no more");

    for (i = 0; i < SBX_RUNS_MAX - 1; i++) {
        (void) close(more[i].call.fd);
        code_fresh(&more[i]);
    }

    x.verb = SBX_CODE_LIST;

    do {
        code_fresh(&a);
        code_begin(&x, &a);

        while (code_next(&a) > 0 && strcmp(a.id, "python") != 0) { /* void */ }

        i = (int) a.context.waiting;
        code_finish(&a);
    } while (i != 1);

    ok(a.ended == SBX_F_END, "who leaves waits no more");

    (void) close(b.call.fd);
    b.call.fd = -1;
    code_finish(&c);
    is_str(c.results, "main{ text/plain=5}",
           "and whose run goes on has it interrupted, and the state kept");
    code_fresh(&c);
}


static void
test_timeout(void)
{
    code_t  x = { .code = "y = 1; threading.Event().wait()",
                  .timeout = 300 };

    code_call(&x);
    ok(a.ended == SBX_F_RAN && a.ran.reason == SBX_REASON_TIMEOUT
       && (a.ran.flags & SBX_RAN_TIMED_OUT)
       && !(a.ran.flags & SBX_RAN_DIED) && a.ran.exit_code == 130,
       "a run that takes too long is interrupted");
    is_str(a.results, "error{ name=KeyboardInterrupt value= traceback=}",
           "as by a keyboard");
    code("show(y)");
    is_str(a.results, "main{ text/plain=1}", "with its state kept");

    x.code = "subprocess.run(['sleep', '77'])";
    code_call(&x);
    ok(a.ran.reason == SBX_REASON_TIMEOUT && !(a.ran.flags & SBX_RAN_DIED),
       "also where a child is waited for");
    ok(init_until(&s, "pgrep -f '^sleep 7[7]' >/dev/null || echo yes"),
       "who is interrupted too");

    x.code = "n = 0\n"
             "while n < 2:\n"
             " try:\n"
             "  threading.Event().wait()\n"
             " except KeyboardInterrupt:\n"
             "  n += 1\n"
             "show(n)";
    code_call(&x);
    ok(a.ran.reason == SBX_REASON_TIMEOUT && !(a.ran.flags & SBX_RAN_DIED)
       && strcmp(a.results, "main{ text/plain=2}") == 0,
       "once is not enough: again");

    x.code = "subprocess.Popen(['sleep', '78'], start_new_session=True)\n"
             "while True:\n"
             " try:\n"
             "  threading.Event().wait()\n"
             " except KeyboardInterrupt:\n"
             "  pass\n";
    code_call(&x);
    ok(code_died(SBX_REASON_TIMEOUT) && (a.ran.flags & SBX_RAN_TIMED_OUT)
       && a.ran.signal == SIGKILL && a.ran.exit_code == 137,
       "who does not hear is killed");
    ok(init_until(&s, "pgrep -f '^sleep 7[8]' >/dev/null || echo yes"),
       "with all that it has started");

    code("show('y' in globals())");
    is_str(a.results, "main{ text/plain=False}", "the next has a fresh one");
    ok(a.ran.execution == 1 && a.ran.started_us != 0, "that counts from 1");
}


static void
test_death(void)
{
    size_t  i;

    static const struct {
        const char    *code;
        sbx_reason_t   reason;
        int            exit_code;
        int            signal;
    } ways[] = {
        { "os._exit(3)", SBX_REASON_EXITED, 3, 0 },
        { "os.kill(os.getpid(), 11)", SBX_REASON_SIGNAL, 139, 11 },
        { "os.kill(os.getpid(), 9)", SBX_REASON_SIGNAL, 137, 9 },
        { "s.close(); f.close(); os.close(3) if os.path.exists("
          "'/proc/self/fd/3') else 0; mute = True; threading.Event().wait()",
          SBX_REASON_SIGNAL, 137, 9 }
    };

    for (i = 0; i < sbx_nelts(ways); i++) {
        code("x = 1");
        code(ways[i].code);
        ok(code_died(ways[i].reason)
           && a.ran.exit_code == ways[i].exit_code
           && a.ran.signal == ways[i].signal, "an end is told: %s",
           ways[i].code);
        code("show('x' in globals())");
        is_str(a.results, "main{ text/plain=False}", "and survived");
    }

    code("os.write(1, b'last'); os.write(2, b'words'); show('seen');"
         " os._exit(0)");
    ok(code_died(SBX_REASON_EXITED) && strcmp(init_text(a.out), "last") == 0
       && strcmp(init_text(a.err), "words") == 0
       && strcmp(a.results, "main{ text/plain=seen}") == 0,
       "what was written before is passed on");

    code("mute = True; frame('end', ('id', id), ('exit', 4));"
         " time.sleep(0.2); os._exit(0)");
    ok(a.ended == SBX_F_RAN && !(a.ran.flags & SBX_RAN_DIED)
       && a.ran.exit_code == 4, "a run that has ended has not died");
    code("show(1)");
    is_str(a.results, "main{ text/plain=1}", "and the next one is run");
    ok(a.ran.flags == 0 && a.ran.execution == 1,
       "by the next one, as the dead one had not read it");
}


int
main(void)
{
    if (!code_open()) {
        return skip_all("root, python3 and sandbox-init are needed");
    }

    code_start();
    test_run();
    test_environment();
    test_order();
    test_cap();
    test_between();
    test_queue();
    test_timeout();
    test_death();
    ok(init_stop(&s), "the session ends");

    return done_testing();
}
