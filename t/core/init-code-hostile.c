/*
 * Code that speaks for its interpreter: whatever it says, init lives, the run
 * is answered, and the next one is run.
 */

#include "code_test.h"


static void
test_malformed(void)
{
    size_t  i;

    static const char *const  ways[] = {
        "s.sendall(b'nonsense\\n')",
        "s.sendall(b'result\\n')",
        "s.sendall(b'result -1\\n')",
        "s.sendall(b'result 99999999999999999999\\n')",
        "s.sendall(b'result 16777217\\n')",
        "s.sendall(b'result 1x\\n')",
        "s.sendall(b'result  5\\n')",
        "s.sendall(b' 5\\n')",
        "s.sendall(b'\\n')",
        "s.sendall(b'other 0\\n')",
        "s.sendall(b'r' * 33 + b' 0\\n')",
        "s.sendall(b'x' * 200000)",
        "s.sendall(b'result 0\\n')",
        "s.sendall(b'end 0\\n')",
        "frame('end', ('id', id))",
        "frame('end', ('id', id), ('exit', 256))",
        "frame('end', ('id', id), ('exit', '-1'))",
        "frame('end', ('id', id), ('exit', ''))",
        "frame('end', ('id', id), ('exit', '0' * 24))",
        "frame('end', ('id', 'x'), ('exit', 0))",
        "frame('result', ('main', 1), ('id', id))",
        "frame('result', ('id', id))",
        "frame('result', ('id', id), ('text/plain', 'x'))",
        "frame('result', ('id', id), ('main', 1), ('a b', 'x'))",
        "frame('result', ('id', id), ('main', 1), ('n' * 129, 'x'))",
        "frame('result', ('id', id), ('main', 1), ('', 'x'))",
        "frame('result', ('id', id), ('main', 1), ('a/b', 'x\\0y'))",
        "s.sendall(b'result 20\\n' + field('id', id) +"
        " b'main 99\\n1234567890')",
        "s.sendall(b'result 30\\n' + field('id', id) +"
        " b'main 1\\n1xtext 1\\n1')",
        "s.sendall(b'result 10\\n' + field('id', id) + b'main 1\\n1\\n')",
        "s.sendall(b'error 300\\nid ')"
    };

    for (i = 0; i < sbx_nelts(ways); i++) {
        char  text[512];

        (void) snprintf(text, sizeof(text), "mute = True; %s;"
                        " threading.Event().wait()", ways[i]);
        {
            code_t  x = { .code = text };

            x.timeout = i == sbx_nelts(ways) - 1 ? 300 : 0;
            code_call(&x);
        }

        if (i == sbx_nelts(ways) - 1) {
            break;
        }

        ok(code_died(SBX_REASON_SIGNAL) && a.ran.signal == SIGKILL,
           "it ends the interpreter: %s", ways[i]);
    }

    /* the last one says nothing more, which a time-out ends */

    ok(a.ended == SBX_F_RAN && a.ran.reason == SBX_REASON_TIMEOUT,
       "half a frame is none");
    code("show('alive')");
    is_str(a.results, "main{ text/plain=alive}", "the next one is run");
}


static void
test_forged(void)
{
    code_t  x = { .context = "other", .code = "mine = 1" };

    code("frame('end', ('id', int(id) + 1), ('exit', 9));"
         " frame('end', ('id', 0), ('exit', 9));"
         " frame('end', ('id', 18446744073709551615), ('exit', 9))");
    ok(a.ended == SBX_F_RAN && !(a.ran.flags & SBX_RAN_DIED)
       && a.ran.exit_code == 0, "ends of other runs are dropped");

    code("frame('result', ('id', int(id) + 1), ('main', 1), ('a/b', 'x'));"
         " frame('error', ('id', 0), ('name', 'x')); show('mine')");
    is_str(a.results, "main{ text/plain=mine}", "as are their results");

    code("frame('ready', ('version', '2')); frame('ready'); show(1)");
    is_str(a.results, "main{ text/plain=1}", "that it is ready is known");

    code("frame('end', ('id', id), ('exit', 3)); frame('end', ('id', id),"
         " ('exit', 4)); show('late')");
    ok(a.ran.exit_code == 3 && a.results[0] == '\0',
       "a run ends once, and what comes after is dropped");

    code("frame('error', ('id', id), ('name', 'A')); frame('error',"
         " ('id', id), ('name', 'B'))");
    is_str(a.results, "error{ name=A}", "there is one error");

    code("frame('end', ('id', int(id) + 1), ('exit', 9))");
    code("show('own')");
    is_str(a.results, "main{ text/plain=own}",
           "an end that was forged ahead is none");

    code_call(&x);
    ok(a.ended == SBX_F_RAN && a.ran.execution == 1,
       "another context is not concerned");
}


static void
test_limits(void)
{
    code("frame('result', ('id', id), ('main', 0),"
         " *[('f/%d' % i, 'x') for i in range(40)]); show(1)");
    ok(a.complete == 2 && (a.ran.flags & SBX_RAN_RESULTS_CUT)
       && strstr(a.results, " f/31=x") != NULL
       && strstr(a.results, " f/32=x") == NULL,
       "a result has so many fields and no more");

    code("show('x' * 9000000)");
    ok(a.complete == 1 && a.result_bytes == 9000000 && a.ran.flags == 0,
       "a large result is passed on");

    code("show('x' * 9000000); show('y' * 2000000); show('z');"
         " frame('error', ('id', id), ('name', 'E'), ('value', 'v' * 1000))");
    ok(a.complete == 3 && a.result_bytes == 9000000 + 1 + 1 + 1000
       && (a.ran.flags & SBX_RAN_RESULTS_CUT),
       "what is too much in all is left out, and that is told");

    code("show('x' * 16000000); show('z')");
    ok(a.complete == 1 && a.result_bytes == 1
       && (a.ran.flags & SBX_RAN_RESULTS_CUT)
       && !(a.ran.flags & SBX_RAN_DIED), "also one alone");

    code("show('x' * 17000000)");
    ok(code_died(SBX_REASON_SIGNAL), "but there are frames that are none");

    code("b = field('id', id) + field('main', 0)\n"
         "b = b'result %d\\n' % len(b) + b\n"
         "for i in range(100): s.sendall(b * 1000)");
    ok(a.ended == SBX_F_RAN && (a.ran.flags & SBX_RAN_RESULTS_CUT)
       && a.complete < 50000, "results of nothing count as well");

    code("for i in range(3): show('x' * 16000000)");
    ok(a.ended == SBX_F_RAN && a.ran.duration_us > 1000000,
       "what is dropped is read with pauses");

    code("mute = True; b = field('id', id) + field('main', 1)"
         " + b'text/plain 1000000\\n'; s.sendall(b'result 1000040\\n' + b"
         " + b'x' * 5000); time.sleep(0.05); os._exit(0)");
    ok(code_died(SBX_REASON_EXITED) && a.complete == 0
       && strncmp(a.results, "main{ text/plain=xxx", 20) == 0,
       "a result is not complete where its interpreter has died");
}


/* Pages of init's own. */

static long
resident(void)
{
    char  path[64], buf[256];
    long  size, pages;

    (void) snprintf(path, sizeof(path), "/proc/%d/statm", (int) s.pid);

    if (sbx_read_at(AT_FDCWD, path, buf, sizeof(buf)) <= 0
        || sscanf(buf, "%ld %ld", &size, &pages) != 2)
    {
        return 0;
    }

    return pages * 4096;
}


/* A client that does not read. */

static void
test_slow(void)
{
    long           before, after;
    code_answer_t  w;

    static const struct {
        const char  *name;
        code_t       code;
    } floods[] = {
        { "output",
          { .code = "print('begun')\nfor i in range(64):"
                    " os.write(1, b'x' * 1048576)" } },
        { "results",
          { .code = "print('begun')\nfor i in range(9): show('x' * 1000000)" }
        },
        { "frames of nobody's",
          { .code = "print('begun')\nfor i in range(300000):"
                    " s.sendall(b'end 15\\nid 1\\n0\\nexit 1\\n1\\n'[:0] + "
                    "b'ready 0\\n')" } }
    };

    size_t  i;

    for (i = 0; i < sbx_nelts(floods); i++) {
        before = resident();
        memset(&w, 0, sizeof(w));
        code_begin(&floods[i].code, &w);
        ok(code_until(&w, "begun"), "a flood of %s", floods[i].name);

        /* others are served meanwhile */

        {
            code_t  x = { .context = "other", .code = "show(1)" };

            code_call(&x);
            is_str(a.results, "main{ text/plain=1}",
                   "holds up nobody else");
        }

        after = resident();
        ok(after - before < 4 * 1024 * 1024, "nor fills init (%ld bytes)",
           after - before);
        code_finish(&w);
        ok(w.ended == SBX_F_RAN && !(w.ran.flags & SBX_RAN_DIED),
           "and is read to its end");
        ok(i != 0 || w.ran.stdout_bytes == 64 * 1048576 + 6,
           "all of it");
        code_fresh(&w);
    }
}


static void
test_idle_flood(void)
{
    code("def flood():\n"
         " while True: os.write(1, b'x' * 65536)\n"
         "def frames():\n"
         " while True: s.sendall(b'ready 0\\n')\n"
         "threading.Thread(target=flood, daemon=True).start()\n"
         "threading.Thread(target=frames, daemon=True).start()");
    ok(a.ended == SBX_F_RAN, "threads that flood between runs");
    init_shell(&s, "echo alive", &r);
    is_str(init_text(r.out), "alive\n", "do not keep init from its work");

    {
        code_t  x = { .context = "python", .verb = SBX_CODE_DELETE };

        code_call(&x);
        ok(a.ended == SBX_F_END, "and die with their context");
    }
}


static void
test_calls(void)
{
    code_t         x = { .code = "1" };
    sbx_f_code_t   f;
    code_answer_t  w;

    memset(&w, 0, sizeof(w));
    init_call(&s, SBX_OP_CODE, NULL, NULL, 0, &w.call);
    init_send(w.call.fd, SBX_F_EXEC, &f, sizeof(f));
    code_finish(&w);
    ok(w.ended == SBX_F_ERROR && w.error.code == SBX_E_INVALID,
       "a call begins with its own frame");

    memset(&w, 0, sizeof(w));
    memset(&f, 0xff, sizeof(f));
    init_call(&s, SBX_OP_CODE, NULL, NULL, 0, &w.call);
    init_send(w.call.fd, SBX_F_CODE, &f, sizeof(f));
    code_finish(&w);
    ok(w.ended == SBX_F_ERROR && w.error.code == SBX_E_INVALID,
       "which is checked");

    memset(&w, 0, sizeof(w));
    memset(&f, 0, sizeof(f));
    f.verb = SBX_CODE_RUN;
    f.timeout = SBX_UNSET;
    f.max_output = SBX_UNSET;
    f.code_size = 5;
    f.strings_size = 5;
    init_call(&s, SBX_OP_CODE, NULL, NULL, 0, &w.call);
    init_send(w.call.fd, SBX_F_CODE, &f, sizeof(f));
    init_send(w.call.fd, SBX_F_STRINGS, "abcdefgh", 8);
    code_finish(&w);
    ok(w.ended == SBX_F_ERROR && w.error.code == SBX_E_INVALID,
       "as is what follows it");

    x.language = "cobol";
    code_call(&x);
    ok(code_failed(SBX_E_INVALID)
       && strstr(a.error.text, "python, other, none") != NULL,
       "a language that is not there: those that are");

    x.language = "other";
    x.context = "python";
    code_call(&x);
    ok(code_failed(SBX_E_INVALID), "a context of another language");

    x.language = NULL;
    x.context = "cunknown";
    code_call(&x);
    ok(code_failed(SBX_E_CONTEXT), "a context that is not there");

    code("show(1)");
    is_str(a.results, "main{ text/plain=1}", "none of it does harm");
}


/* Code that does not fit into what all that waits may hold. */

static void
test_room(void)
{
    int             i, n;
    long            before;
    char           *text;
    pid_t           pid;
    unsigned        turns;
    uint64_t        execution;
    code_answer_t   first, w[24];

    static const code_t  x = { .code = "print('begun', flush=True)\n"
                               "while not os.path.exists('/tmp/go'):"
                               " time.sleep(.01)" };

    before = resident();
    memset(&first, 0, sizeof(first));
    memset(w, 0, sizeof(w));
    code_begin(&x, &first);
    ok(code_until(&first, "begun"), "a run, behind which there wait");

    text = malloc(1000001);
    memset(text, '#', 1000000);
    text[1000000] = '\0';

    for (i = 0; i < 24; i++) {
        sbx_f_code_t  f;

        memset(&f, 0, sizeof(f));
        f.verb = SBX_CODE_RUN;
        f.timeout = SBX_UNSET;
        f.max_output = SBX_UNSET;
        f.code_size = 1000000;
        f.strings_size = 1000000;
        init_call(&s, SBX_OP_CODE, NULL, NULL, 0, &w[i].call);
        init_send(w[i].call.fd, SBX_F_CODE, &f, sizeof(f));
        pid = fork();

        if (pid == 0) {
            /* init does not read all of it now */

            for (n = 0; n < 1000000; n += 50000) {
                init_send(w[i].call.fd, SBX_F_STRINGS, text + n, 50000);
            }

            _exit(0);
        }
    }

    ok(code_next(&w[0]) == SBX_F_ACCEPTED, "some that have been read");
    ok(resident() - before < 16 * 1024 * 1024, "and some that have not");

    init_shell(&s, "touch /tmp/go", &r);
    code_finish(&first);
    execution = first.ran.execution;

    /* in the order in which they are whole, which those who send decide */

    for (i = 0, turns = 0; i < 24; i++) {
        code_finish(&w[i]);

        if (w[i].ended == SBX_F_RAN && w[i].ran.flags == 0
            && w[i].ran.execution > execution
            && w[i].ran.execution <= execution + 24)
        {
            turns |= 1u << (w[i].ran.execution - execution - 1);
        }
    }

    n = __builtin_popcount(turns);

    is_int(n, 24, "all are run, one after the other");
    code_fresh(&first);
    free(text);
}


/* Whoever traces a process is told of its end first, and may not listen. */

static void
test_traced(void)
{
    char           text[512];
    code_answer_t  w;

    code_t  x = { .context = "other", .code = text };
    code_t  restart = { .context = "python", .verb = SBX_CODE_RESTART };

    code("show(os.getpid())");
    (void) snprintf(text, sizeof(text), "import ctypes\n"
                    "print(ctypes.CDLL(None).ptrace(16, %d, 0, 0), flush=True)"
                    "\nwhile not os.path.exists('/tmp/let'): time.sleep(.01)",
                    atoi(a.results + strlen("main{ text/plain=")));
    memset(&w, 0, sizeof(w));
    code_begin(&x, &w);
    ok(code_until(&w, "\n"), "an interpreter is traced by another: %s",
       init_text(w.out));

    code_call(&restart);
    ok(a.ended == SBX_F_END, "and is replaced all the same");
    code("show(1)");
    is_str(a.results, "main{ text/plain=1}", "the new one runs code");

    init_shell(&s, "touch /tmp/let", &r);
    code_finish(&w);
    ok(w.ended == SBX_F_RAN && w.ran.exit_code == 0,
       "as does who has traced it");
    code_fresh(&w);
}


static int
sanitized(void)
{
    const char  *value;

    value = getenv("SANDBOX_SANITIZE");

    return value != NULL && value[0] != '\0' && value[0] != '0';
}


/* Lists of files for clients that do not read them. */

static void
test_lists(void)
{
    int            i, n;
    long           before;
    size_t         bytes;
    code_answer_t  w[6];

    code_t  create = { .verb = SBX_CODE_CREATE, .language = "other" };
    code_t  last = { .code = "1" };
    code_t  x = { .code = "d = os.open('/home/user', os.O_RDONLY)\n"
                          "for i in range(14):\n"
                          "    try: os.mkdir('d' * 240, dir_fd=d)\n"
                          "    except FileExistsError: pass\n"
                          "    d, e = os.open('d' * 240, os.O_RDONLY,"
                          " dir_fd=d), d\n"
                          "    os.close(e)\n"
                          "for i in range(1000): os.close(os.open("
                          "'%s%d' % ('f' * 200, i),"
                          " os.O_CREAT | os.O_RDWR, dir_fd=d))\n"
                          "for i in range(1000): os.utime("
                          "'%s%d' % ('f' * 200, i), dir_fd=d)\n" };

    before = resident();
    memset(w, 0, sizeof(w));

    for (i = 0; i < (int) sbx_nelts(w); i++) {
        char  id[SBX_CONTEXT_MAX + 1];

        code_call(&create);
        (void) snprintf(id, sizeof(id), "%s", a.id);
        x.context = id;
        last.context = id;
        code_begin(&x, &w[i]);
        code_call(&last);
    }

    if (sanitized()) {
        skip("a sanitizer keeps freed memory", "lists that nobody reads");

    } else {
        ok(resident() - before < 12 * 1024 * 1024,
           "lists that nobody reads");
    }

    for (i = 0, n = 0, bytes = 0; i < (int) sbx_nelts(w); i++) {
        code_finish(&w[i]);
        n += w[i].ended == SBX_F_RAN && !(w[i].ran.flags & SBX_RAN_DIED)
             && w[i].files == w[i].ran.files;
        bytes += w[i].path_bytes;
        printf("# %u files, %zu bytes\n", w[i].files, w[i].path_bytes);
    }

    is_int(n, (int) sbx_nelts(w), "are told as far as they go");
    ok(bytes < 8 * 1024 * 1024, "which is no more than init may hold");

    x.context = NULL;
    code_call(&x);
    ok(a.files != 0, "and then there is room again");

    init_shell(&s, "rm -rf /home/user/d*", &r);
}


int
main(void)
{
    if (!code_open()) {
        return skip_all("root, python3 and sandbox-init are needed");
    }

    init_config.limits.exec_timeout = 15000;
    init_config.limits.max_file_size = 64 << 20;
    code_start();
    test_malformed();
    test_forged();
    test_limits();
    test_slow();
    test_idle_flood();
    test_calls();
    test_room();
    test_traced();
    test_lists();
    ok(init_stop(&s), "the session ends");

    return done_testing();
}
