/*
 * Contexts and their interpreters: made, listed, restarted, deleted,
 * cancelled, paused, made ready ahead; and what a run has changed.
 */

#include "code_test.h"


static code_answer_t  b;


static void
begin(code_answer_t *w, const char *context, const char *text)
{
    code_t  x = { .code = text, .context = context };

    code_fresh(w);
    code_begin(&x, w);
}


static void
verb(uint32_t v, const char *context)
{
    code_t  x = { .verb = v, .context = context };

    code_call(&x);
}


static void
test_contexts(void)
{
    char    id[SBX_CONTEXT_MAX + 1];
    int     i, pid;
    code_t  x = { .verb = SBX_CODE_CREATE, .cwd = "sub" };

    init_shell(&s, "mkdir -p sub", &r);

    code_call(&x);
    ok(a.ended == SBX_F_END && a.contexts == 1 && a.id[0] == 'c'
       && strlen(a.id) == 21, "a context is made (%s)", a.id);
    ok(strcmp(a.language, "python") == 0
       && strcmp(a.cwd, "/home/user/sub") == 0
       && a.context.state == SBX_CONTEXT_IDLE && a.context.pid > 1
       && a.context.executions == 0, "and is ready");
    (void) strcpy(id, a.id);
    pid = a.context.pid;

    x.verb = 0;
    x.cwd = NULL;
    x.context = id;
    x.code = "v = 1; show(os.getcwd())";
    code_call(&x);
    is_str(a.results, "main{ text/plain=/home/user/sub}",
           "it runs where it was told to");
    is_str(a.id, id, "by its name");
    code("show('v' in globals())");
    is_str(a.results, "main{ text/plain=False}", "and has its own state");

    verb(SBX_CODE_RESTART, id);
    ok(a.ended == SBX_F_END && a.contexts == 1
       && a.context.state == SBX_CONTEXT_IDLE && a.context.pid > 1
       && a.context.pid != pid, "a restart gives it another interpreter");
    x.code = "show('v' in globals())";
    code_call(&x);
    is_str(a.results, "main{ text/plain=False}", "that knows nothing");
    ok(a.ran.execution == 1, "and counts from 1");

    verb(SBX_CODE_DELETE, id);
    ok(a.ended == SBX_F_END, "it is deleted");
    code_call(&x);
    ok(code_failed(SBX_E_CONTEXT), "and gone");
    verb(SBX_CODE_DELETE, id);
    ok(code_failed(SBX_E_CONTEXT), "so it cannot be deleted again");
    verb(SBX_CODE_RESTART, "cnever");
    ok(code_failed(SBX_E_CONTEXT), "or restarted");

    x.context = NULL;
    x.code = NULL;
    x.verb = SBX_CODE_CREATE;
    x.cwd = "missing";
    code_call(&x);
    ok(code_failed(SBX_E_FILE), "none without its directory");
    x.cwd = NULL;
    x.language = "none";
    code_call(&x);
    ok(code_failed(SBX_E_CAPABILITY)
       && strstr(a.error.text, "/no/such/program") != NULL,
       "nor without its program");
    x.language = "early";
    code_call(&x);
    ok(code_failed(SBX_E_UNAVAILABLE)
       && strstr(a.error.text, "exit code 5") != NULL,
       "nor where that ends at once");
    x.verb = 0;
    code_call(&x);
    ok(code_died(SBX_REASON_EXITED) && a.ran.exit_code == 5
       && strcmp(init_text(a.err), "early\n") == 0,
       "a run in such a one says what it has said");
    x.language = "none";
    code_call(&x);
    ok(code_failed(SBX_E_CAPABILITY), "or that there is none");

    x.language = NULL;
    x.verb = SBX_CODE_CREATE;

    for (i = 0; i < SBX_CONTEXTS_MAX; i++) {
        code_call(&x);

        if (a.ended != SBX_F_END) {
            break;
        }
    }

    ok(code_failed(SBX_E_QUOTA) && strcmp(a.error.resource, "contexts") == 0
       && a.error.limit == SBX_CONTEXTS_MAX, "there are so many, no more");

    verb(SBX_CODE_LIST, NULL);
    ok(a.contexts == SBX_CONTEXTS_MAX, "all are listed");

    for (i = 0; i < SBX_CONTEXTS_MAX; i++) {
        verb(SBX_CODE_LIST, NULL);

        if (a.contexts == 0) {
            break;
        }

        (void) strcpy(id, a.id);
        verb(SBX_CODE_DELETE, id);
    }

    verb(SBX_CODE_LIST, NULL);
    ok(a.ended == SBX_F_END && a.contexts == 0, "and can be deleted");
    ok(init_until(&s, "pgrep -f 'kernel[.]py' >/dev/null || echo yes"),
       "with their processes");
}


static void
test_delete_running(void)
{
    code_answer_t  c;

    memset(&c, 0, sizeof(c));
    begin(&b, "python", "print('begun', flush=True);"
          " threading.Event().wait()");
    (void) code_until(&b, "begun");
    begin(&c, "python", "pass");
    (void) code_next(&c);

    verb(SBX_CODE_RESTART, "python");
    ok(a.ended == SBX_F_END, "a restart while it runs");
    code_finish(&b);
    code_finish(&c);
    ok(b.ended == SBX_F_RAN && b.ran.reason == SBX_REASON_CANCELLED
       && (b.ran.flags & SBX_RAN_DIED) && (b.ran.flags & SBX_RAN_CANCELLED),
       "the run is told that its interpreter has died of it");
    ok(c.ended == SBX_F_RAN && c.ran.reason == SBX_REASON_CANCELLED
       && (c.ran.flags & SBX_RAN_DIED), "and so is who waits");

    begin(&b, "python", "print('begun', flush=True);"
          " threading.Event().wait()");
    (void) code_until(&b, "begun");
    verb(SBX_CODE_DELETE, "python");
    ok(a.ended == SBX_F_END, "a deletion while it runs");
    code_finish(&b);
    ok(b.ended == SBX_F_RAN && b.ran.reason == SBX_REASON_CANCELLED
       && (b.ran.flags & SBX_RAN_DIED), "likewise");
    code("show(1)");
    is_str(a.results, "main{ text/plain=1}",
           "a default context is made anew when it is used");
    code_fresh(&c);
}


static void
test_cancel(void)
{
    init_call_t     call;
    init_result_t   end = { 0 };
    code_answer_t   c;

    memset(&c, 0, sizeof(c));
    code("kept = 1");
    begin(&b, "python", "print('begun', flush=True);"
          " threading.Event().wait()");
    (void) code_until(&b, "begun");
    begin(&c, "python", "pass");
    (void) code_next(&c);

    init_call(&s, SBX_OP_CANCEL, NULL, NULL, 0, &call);
    init_finish(&call, &end);
    init_hang_up(&call);
    ok(end.ended == SBX_F_END && end.end.count == 2,
       "a cancel counts what runs and what waits");

    code_finish(&b);
    code_finish(&c);
    ok(b.ended == SBX_F_RAN && b.ran.reason == SBX_REASON_CANCELLED
       && (b.ran.flags & SBX_RAN_CANCELLED)
       && !(b.ran.flags & SBX_RAN_DIED), "interrupts the one");
    ok(c.ended == SBX_F_RAN && c.ran.reason == SBX_REASON_CANCELLED
       && !(c.ran.flags & SBX_RAN_DIED) && c.ran.execution == 0,
       "and takes the other out");
    code("show(kept)");
    is_str(a.results, "main{ text/plain=1}", "interpreters are kept");
    code_fresh(&c);
}


/* What a broker that comes later asks for. */

static void
test_held(void)
{
    sbx_task_t  task;

    memset(&task, 0, sizeof(task));
    task.token = 77;
    s.held = 0;
    s.kernels = 0;
    init_task(&s, SBX_OP_COMMANDS, &task, -1, NULL, 0);

    while (s.held_all != 77) {
        init_records(&s, INIT_WAIT);
    }

    ok(s.kernels >= 1 && s.held == s.kernels,
       "which commands init has is told: its interpreters");
}


static uint32_t
busy(void)
{
    s.busy = 12345;
    init_task(&s, SBX_OP_BUSY, NULL, -1, NULL, 0);

    while (s.busy == 12345) {
        init_records(&s, INIT_WAIT);
    }

    return s.busy;
}


static void
test_pause(void)
{
    code_t    x = { .code = "print('begun', flush=True); time.sleep(4);"
                    " print('end', flush=True)\n"
                    "while not os.path.exists('/tmp/go'): time.sleep(.01)",
                    .timeout = 3000 };
    uint64_t  begun, frozen;

    memset(&b, 0, sizeof(b));
    begun = sbx_now_us();
    code_begin(&x, &b);
    (void) code_until(&b, "begun");
    init_task(&s, SBX_OP_FREEZE, NULL, -1, NULL, 0);
    (void) busy();
    frozen = sbx_now_us();
    (void) code_until(&b, "end");
    frozen = sbx_now_us() - frozen;
    init_task(&s, SBX_OP_THAW, NULL, -1, NULL, 0);
    init_shell(&s, "touch /tmp/go", &r);
    code_finish(&b);
    ok(b.ended == SBX_F_RAN && b.ran.reason == SBX_REASON_EXITED
       && b.ran.flags == 0, "while the session is paused clocks stand still");
    ok(b.ran.duration_us <= sbx_now_us() - begun - frozen,
       "also that of the run");
}


static void
test_busy(void)
{
    int  i;

    code("pass");

    for (i = 0; i < 2000 && busy() != 0; i++) {
        (void) usleep(5000);
    }

    is_int(busy(), 0, "a session with an idle interpreter is idle");

    code("time.sleep(1.1)");

    do {
        i = (int) busy();
    } while (i > 1);

    is_int(i, 1, "one where a long run has just ended is not");
    is_int(busy(), 0, "but has been asked then");

    begin(&b, "python", "print('begun', flush=True);"
          " threading.Event().wait()");
    (void) code_until(&b, "begun");
    is_int(busy(), 1, "nor is one that runs code");
    (void) close(b.call.fd);
    b.call.fd = -1;
    code("pass");
}


static void
test_groups(void)
{
    uint32_t    groups, token, over;
    sbx_task_t  task;

    token = 0;
    verb(SBX_CODE_DELETE, "python");
    code_deaf = 1;
    groups = s.groups;
    begin(&b, "python", "show(1)");

    while (s.groups < groups + 2) {
        init_records(&s, INIT_WAIT);
        token = s.groups == groups + 1 ? s.token : token;
    }

    is_int(s.token, token, "a broker that does not answer is asked again");

    over = s.over;
    memset(&task, 0, sizeof(task));
    task.command = ++init_number;
    task.token = token + 1;
    init_task(&s, SBX_OP_GROUP, &task, -1, NULL, 0);

    while (s.over == over) {
        init_records(&s, INIT_WAIT);
    }

    is_int(s.last_over, init_number, "another's group is given back");

    code_deaf = 0;
    code_group();
    code_finish(&b);
    is_str(b.results, "main{ text/plain=1}", "the right one is used");

    over = s.over;
    code_group();

    while (s.over == over) {
        init_records(&s, INIT_WAIT);
    }

    is_int(s.last_over, init_number, "and a second one given back");

    verb(SBX_CODE_DELETE, "python");
    code_deaf = 1;
    groups = s.groups;
    begin(&b, "python", "show(1)");

    while (s.groups == groups) {
        init_records(&s, INIT_WAIT);
    }

    task.token = s.token;
    task.command = 0;
    task.refused = SBX_E_QUOTA;
    init_task(&s, SBX_OP_GROUP, &task, -1, NULL, 0);
    code_finish(&b);
    ok(b.ended == SBX_F_ERROR && b.error.code == SBX_E_QUOTA
       && strcmp(b.error.resource, "commands") == 0,
       "where there is none, that is the answer");

    {
        code_t  x = { .verb = SBX_CODE_CREATE };

        groups = s.groups;
        code_fresh(&b);
        code_begin(&x, &b);

        while (s.groups == groups) {
            init_records(&s, INIT_WAIT);
        }

        (void) close(b.call.fd);
        code_fresh(&b);
        verb(SBX_CODE_LIST, NULL);

        while (strcmp(a.id, "python") != 0 && a.contexts > 1) {
            verb(SBX_CODE_LIST, NULL);
        }

        over = s.over;
        code_group();

        while (s.over == over) {
            init_records(&s, INIT_WAIT);
        }

        is_int(s.last_over, init_number,
               "a context whose maker has left is given up");
    }

    {
        code_t  x = { .code = "1", .timeout = 200 };

        code_call(&x);
        ok(a.ended == SBX_F_RAN && a.ran.reason == SBX_REASON_TIMEOUT
           && !(a.ran.flags & SBX_RAN_DIED),
           "and nobody waits for one for ever");
    }

    code_deaf = 0;
    code("show(1)");
    is_str(a.results, "main{ text/plain=1}", "code is run again");
}


/* Of one run, not of all that its interpreter has run. */

static void
test_cpu(void)
{
    int     i, n;
    code_t  x = { .context = "python" };

    x.code = "t = time.process_time()\n"
             "while time.process_time() - t < 0.7: pass";

    for (i = 0, n = 0; i < 3; i++) {
        code_call(&x);
        n += a.ended == SBX_F_RAN && a.ran.flags == 0;
    }

    is_int(n, 3, "processor time counts anew for each run");

    x.code = "while True: pass";
    code_call(&x);
    ok(code_died(SBX_REASON_CPU_TIME), "who uses up what a run may is killed");
}


static void
test_process(void)
{
    int              pid;
    sbx_frame_t      frame;
    init_call_t      call;
    const char      *cwd, *tag, *args;
    sbx_f_state_t    state;
    const uint8_t   *p;
    sbx_f_process_t  ask = { .verb = SBX_PROCESS_GET };

    code("pass");
    code("pass");
    pid = a.context.pid;
    ask.pid = pid;
    memset(&state, 0, sizeof(state));
    tag = "";

    init_call(&s, SBX_OP_PROCESS, NULL, NULL, 0, &call);
    init_send(call.fd, SBX_F_PROCESS, &ask, sizeof(ask));

    while (init_next(&call, &frame, &p, NULL, INIT_WAIT) == 1) {
        if (frame.type == SBX_F_STATE) {
            (void) sbx_wire_check_state(p, frame.length, &state, &cwd, &tag,
                                        &args);
            break;
        }
    }

    ok(state.pid == pid && state.kind == SBX_KIND_CODE && state.tag_len == 6
       && memcmp(tag, "python", 6) == 0, "it is a process of its own kind");
    init_hang_up(&call);
}


static void
test_files(void)
{
    code("open('new', 'w').write('12345')");
    ok(a.files == 1 && a.size == 5, "a file that a run has made is told");
    is_str(a.paths, "/home/user/new ", "by its path");
    (void) usleep(20000);
    code("pass");
    is_int(a.files, 0, "once");
    (void) usleep(20000);
    code("open('new', 'a').write('6'); os.makedirs('d/e', exist_ok=True);"
         " open('d/e/deep', 'w')");
    ok(a.files == 2 && strstr(a.paths, "/home/user/d/e/deep ") != NULL
       && strstr(a.paths, "/home/user/new ") != NULL,
       "also what it has changed, at any depth");
    (void) usleep(20000);
    code("[os.makedirs(d, exist_ok=True) or open(d + '/x', 'w') for d in"
         " ('.cache', '.npm', '__pycache__', '.config', '.local')];"
         " os.symlink('/etc', 'out'); os.symlink('new', 'link');"
         " os.mkfifo('fifo'); open('/tmp/other', 'w')");
    is_int(a.files, 0, "no caches, no links, nothing elsewhere");

    init_shell(&s, "rm -f fifo link out", &r);

    {
        init_exec_t  y = { .user = SBX_USER_ROOT };

        y.argv = (const char *[]) { "sh", "-c", "mkdir -m 700 root", NULL };
        init_exec(&s, &y, &r);
        begin(&b, "python", "print('begun', flush=True); time.sleep(600)");
        (void) code_until(&b, "begun");
        y.argv = (const char *[]) { "sh", "-c", "touch root/in", NULL };
        init_exec(&s, &y, &r);
    }

    {
        init_call_t    call;
        init_result_t  end = { 0 };

        init_call(&s, SBX_OP_CANCEL, NULL, NULL, 0, &call);
        init_finish(&call, &end);
        init_hang_up(&call);
    }

    code_finish(&b);
    is_int(b.files, 0, "nor what the user may not see");

    code("os.makedirs('many', exist_ok=True);"
         " [open('many/%d' % i, 'w').close() for i in range(3000)]");
    ok(a.files > 0 && a.files <= 1000 && a.ran.files == a.files
       && (a.ran.flags & SBX_RAN_FILES_CUT),
       "of many there are some, and that is told (%u)", a.files);
    init_shell(&s, "rm -rf many", &r);
}


static void
test_warm(void)
{
    int         fd;
    sbx_task_t  task;

    verb(SBX_CODE_DELETE, "python");
    memset(&task, 0, sizeof(task));

    fd = memfd_create("preload", MFD_CLOEXEC);

    if (write(fd, "numpy\0pandas", 13) != 13) {
        init_die("memfd");
    }

    init_task(&s, SBX_OP_WARM, &task, fd, NULL, 0);
    (void) close(fd);

    while (s.warm == 0) {
        code_records();
        (void) poll(NULL, 0, 2);
    }

    is_int(s.warm_reason, 0, "an interpreter is made ready ahead");
    code("show([[(k, v) for k, v in g] for g in setups])");
    ok(strstr(a.results, "('cwd', b'/home/user'), ('preload', b'numpy'),"
              " ('preload', b'pandas')") != NULL,
       "with what it was told to import");
    ok(a.ran.started_us == 0 && a.ran.execution == 1, "nothing is waited for");

    task.token = 2;
    init_task(&s, SBX_OP_WARM, &task, -1, NULL, 0);

    while (s.warm == 1) {
        code_records();
        (void) poll(NULL, 0, 2);
    }

    ok(s.warm_reason != 0, "one that is not to be had is told");
    task.token = 99;
    init_task(&s, SBX_OP_WARM, &task, -1, NULL, 0);

    while (s.warm == 2) {
        code_records();
        (void) poll(NULL, 0, 2);
    }

    ok(s.warm_reason != 0, "also of no language");
}


/* The log's messages and fields, one line after the other. */

static const char *
lines(void)
{
    size_t          i, n;
    init_call_t     call;
    sbx_frame_t     frame;
    const uint8_t  *p;

    static char     text[65536];

    n = 0;
    init_call(&s, SBX_OP_LOG, NULL, NULL, 0, &call);

    while (init_next(&call, &frame, &p, NULL, INIT_WAIT) == 1
           && frame.type != SBX_F_END)
    {
        for (i = sizeof(sbx_f_line_t);
             frame.type == SBX_F_LINE && i < frame.length
             && n < sizeof(text) - 2;
             i++)
        {
            text[n++] = p[i] != '\0' ? (char) p[i] : '|';
        }

        text[n++] = '\n';
        text[n] = '\0';
    }

    init_hang_up(&call);

    return text;
}


static void
test_hand_over(void)
{
    int          fd;
    const char  *env;

    ok(strstr(lines(), "interpreter diedlanguage=python|context=") != NULL
       && strstr(lines(), "interpreter endedlanguage=python|context=")
          != NULL,
       "the log tells which interpreters have died, and which were ended");

    code("import resource");
    env = "NEW=one\0SECOND=two";
    init_env = env;
    init_env_size = 19;
    init_languages_size = 0;
    init_config.limits.open_files = 99;
    init_config.limits.exec_timeout = 10000;
    fd = init_make_config();
    init_task(&s, SBX_OP_HAND_OVER, NULL, fd, NULL, 0);
    (void) close(fd);

    code("show(setups[-1]); print(resource.getrlimit("
         "resource.RLIMIT_NOFILE)[1])");
    ok(strstr(a.results, "[('env', b'NEW=one'), ('env', b'SECOND=two'),"
              " ('cwd', b'/home/user')]") != NULL,
       "handed over, an interpreter is told the session's variables");
    is_str(init_text(a.out), "99\n", "and has its limits");
    ok(strstr(lines(), "session started\n"
              "interpreter startedlanguage=python|context=python|\n") != NULL
       && strstr(lines(), "command started") == NULL,
       "its log begins anew, with what is ready in it");
    init_shell(&s, "echo $NEW-$SECOND; ulimit -n", &r);
    is_str(init_text(r.out), "one-two\n99\n", "as commands have");
    {
        code_t  x = { .code = "1", .timeout = 10001 };

        code_call(&x);
        ok(code_failed(SBX_E_MANIFEST), "and runs");
    }

    code("show(open('/proc/1/status').read())");
    ok(strstr(a.results, "Uid:\t0\t0\t0\t0\n") != NULL
       && strstr(a.results, "Gid:\t0\t0\t0\t0\n") != NULL,
       "init's ids are what they were");
}


/* Whether init stands still, or whatever it had to do is done. */

static int
rests(char state)
{
    int    i;
    char   path[64], stat[512], *p;
    FILE  *f;

    (void) snprintf(path, sizeof(path), "/proc/%d/stat", (int) s.pid);

    for (i = 0; i < 2000; i++) {
        f = fopen(path, "r");
        p = f != NULL && fgets(stat, sizeof(stat), f) != NULL
            ? strrchr(stat, ')') : NULL;

        if (f != NULL) {
            (void) fclose(f);
        }

        if (p != NULL && p[2] == state) {
            return 1;
        }

        (void) usleep(5000);
    }

    return 0;
}


/* A client that has read all that there was, just when the next run comes:
 * init hears of that first. */

static void
test_next(void)
{
    int             i, size, was;
    sbx_frame_t     frame;
    sbx_f_code_t    ask;
    const uint8_t  *p;

    begin(&a, NULL, "print('x' * 4000000)");

    for (i = 0, size = 0; i < 20; i = size == was && size > 0 ? i + 1 : 0) {
        was = size;
        (void) usleep(5000);
        (void) ioctl(a.call.fd, FIONREAD, &size);
    }

    memset(&ask, 0, sizeof(ask));
    ask.verb = SBX_CODE_RUN;
    ask.timeout = SBX_UNSET;
    ask.max_output = SBX_UNSET;
    ask.code_size = 1;
    ask.strings_size = 1;
    code_fresh(&b);
    init_call(&s, SBX_OP_CODE, NULL, NULL, 0, &b.call);
    init_send(b.call.fd, SBX_F_CODE, &ask, sizeof(ask));
    init_shell(&s, "true", &r);

    (void) kill(s.pid, SIGSTOP);
    ok(rests('T'), "init is stopped, and a run's client does not read");
    init_send(b.call.fd, SBX_F_STRINGS, "1", 1);

    while (init_next(&a.call, &frame, &p, NULL, 0) == 1) {
        code_take(&a, &frame, p);
    }

    (void) kill(s.pid, SIGCONT);
    code_finish(&a);
    code_finish(&b);
    ok(a.ended == SBX_F_RAN && a.out_size > 0
       && a.ran.stdout_bytes == 4000001,
       "when it has read, the run goes on");
    ok(b.ended == SBX_F_RAN && b.ran.exit_code == 0,
       "and the one that came meanwhile after it");
}


static void
test_end(void)
{
    begin(&b, "python", "print('begun', flush=True);"
          " signal.signal(15, signal.SIG_DFL); threading.Event().wait()");
    (void) code_until(&b, "begun");
    init_task(&s, SBX_OP_TERMINATE, NULL, -1, NULL, 0);
    code_finish(&b);
    ok(b.ended == SBX_F_RAN && b.ran.reason == SBX_REASON_SESSION_ENDED
       && (b.ran.flags & SBX_RAN_DIED), "the session's end is told");
    code("1");
    ok(code_failed(SBX_E_SESSION), "and nothing is begun after it");
}


int
main(void)
{
    if (!code_open()) {
        return skip_all("root, python3 and sandbox-init are needed");
    }

    init_config.limits.cpu_seconds = 1500;
    code_start();
    test_contexts();
    test_delete_running();
    test_cancel();
    test_pause();
    test_busy();
    test_held();
    test_groups();
    test_cpu();
    test_process();
    test_files();
    test_warm();
    test_next();
    test_hand_over();
    test_end();
    ok(init_stop(&s), "the session ends");

    return done_testing();
}
