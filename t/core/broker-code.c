/*
 * Code in a session as it is made: interpreters' drivers in its root, groups
 * from the broker, and what of both a session cannot do.
 */

#include "broker_test.h"
#include "code_kernel.h"

#include "sandbox_languages.h"


typedef struct {
    int            last;             /* the frame's type */
    char           out[65536];
    size_t         size;
    char           result[4096];
    unsigned       files;
    char           checks[65536];    /* of the doctor: name=ok:found; */
    sbx_f_error_t  error;
    sbx_f_exit_t   exit;
    sbx_f_ran_t    ran;
} answer_t;


static answer_t  a;


static void
take(const sbx_frame_t *f, const uint8_t *p)
{
    size_t         n;
    sbx_f_check_t  check;

    switch (f->type) {

    case SBX_F_STDOUT:
    case SBX_F_STDERR:
        if (a.size + f->length < sizeof(a.out)) {
            memcpy(a.out + a.size, p, f->length);
            a.size += f->length;
        }
        break;

    case SBX_F_PIECE:
        n = strlen(a.result);

        if (n + f->length < sizeof(a.result)) {
            memcpy(a.result + n, p, f->length);
        }
        break;

    case SBX_F_ENTRY:
        a.files++;
        break;

    case SBX_F_CHECK:
        memcpy(&check, p, sizeof(check));

        if (strncmp(check.name, "language_", 9) == 0) {
            n = strlen(a.checks);
            (void) snprintf(a.checks + n, sizeof(a.checks) - n,
                            "%s=%u:%s:%s;", check.name, check.ok,
                            check.found, check.mend);
        }
        break;

    case SBX_F_RAN:
        memcpy(&a.ran, p, sizeof(a.ran));
        a.last = f->type;
        break;

    case SBX_F_EXIT:
        memcpy(&a.exit, p, sizeof(a.exit));
        a.last = f->type;
        break;

    case SBX_F_END:
        a.last = f->type;
        break;

    case SBX_F_ERROR:
        memcpy(&a.error, p, sizeof(a.error));
        a.last = f->type;
        printf("# %s\n", a.error.text);
        break;
    }
}


/* Until the end, or a text. */

static int
all(const char *text)
{
    return a.last != 0 || (text != NULL && strstr(a.out, text) != NULL);
}


static void
follow(int fd, const char *text)
{
    test_follow(fd, take, all, text);
}


static int
code_begin(test_broker_t *t, const char *id, uint32_t verb,
    const char *context, const char *text)
{
    int           fd;
    char          buf[sizeof(sbx_f_code_t) + SBX_CONTEXT_MAX];
    sbx_f_code_t  code;

    memset(&a, 0, sizeof(a));
    memset(&code, 0, sizeof(code));
    code.verb = verb;
    code.context_len = (uint32_t) strlen(context);
    code.timeout = SBX_UNSET;
    code.max_output = SBX_UNSET;
    code.code_size = (uint32_t) strlen(text);
    code.strings_size = code.code_size;
    memcpy(buf, &code, sizeof(code));
    memcpy(buf + sizeof(code), context, code.context_len);

    fd = test_call(t->control, SBX_OP_CODE, id, "");
    test_frame(fd, SBX_F_CODE, buf, sizeof(code) + code.context_len);

    if (text[0] != '\0') {
        test_frame(fd, SBX_F_STRINGS, text, strlen(text));
    }

    return fd;
}


static void
code(test_broker_t *t, const char *id, const char *context, const char *text)
{
    int  fd;

    fd = code_begin(t, id, SBX_CODE_RUN, context, text);
    follow(fd, NULL);
    (void) close(fd);
}


static void
shell(test_broker_t *t, const char *id, const char *script, uint32_t user)
{
    int                fd;
    char               strings[4096];
    size_t             n;
    sbx_call_t         head;
    sbx_f_exec_t       exec;
    sbx_exec_limits_t  limits;

    memset(&limits, 0xff, sizeof(limits));
    memset(&exec, 0xff, sizeof(exec));
    memset(&a, 0, sizeof(a));

    n = (size_t) snprintf(strings, sizeof(strings), "%c/bin/sh%c-c%c%s", 0,
                          0, 0, script) + 1;
    exec.flags = SBX_EXEC_DEFAULT_CWD;
    exec.user = user;
    exec.argc = 3;
    exec.envc = 0;
    exec.rows = 0;
    exec.cols = 0;
    exec.strings_size = (uint32_t) n;
    memset(exec.tag, 0, sizeof(exec.tag));

    test_head(&head, SBX_OP_EXEC, id, "", "", sizeof(limits));
    fd = test_send(t->control, &head, &limits, sizeof(limits), -1);
    test_frame(fd, SBX_F_EXEC, &exec, sizeof(exec));
    test_frame(fd, SBX_F_STRINGS, strings, n);
    test_frame(fd, SBX_F_STDIN, NULL, 0);
    follow(fd, NULL);
    (void) close(fd);
}


/*
 * ---- what there is to be run ----------------------------------------------
 */

static void
put(const char *dir, const char *name, const char *text)
{
    int   fd;
    char  path[4096], *slash;

    (void) snprintf(path, sizeof(path), "%s/%s", dir, name);
    slash = strrchr(path, '/');
    *slash = '\0';
    (void) mkdir(path, 0755);
    *slash = '/';

    fd = open(path, O_WRONLY|O_CREAT|O_TRUNC|O_CLOEXEC, 0644);

    if (fd == -1 || sbx_write_all(fd, text, strlen(text)) == -1) {
        test_die(path);
    }

    (void) close(fd);
}


/* The programs as they were built, beside drivers of this test. */

static void
build(test_broker_t *t)
{
    char    from[4400], to[4400], dir[4200];
    size_t  i;

    static const char *const  programs[] = {
        "sandbox-broker", "sandbox-init"
    };

    (void) snprintf(dir, sizeof(dir), "%s/helpers", t->dir);

    if (chmod(t->dir, 0755) == -1 || mkdir(dir, 0755) == -1) {
        test_die(dir);
    }

    for (i = 0; i < sbx_nelts(programs); i++) {
        (void) snprintf(from, sizeof(from), "%s/%s", t->helpers,
                        programs[i]);
        (void) snprintf(to, sizeof(to), "%s/%s", dir, programs[i]);

        if (symlink(from, to) == -1) {
            test_die(to);
        }
    }

    (void) snprintf(t->helpers, sizeof(t->helpers), "%.4000s", dir);
    (void) snprintf(dir, sizeof(dir), "%s/kernels", t->helpers);

    if (mkdir(dir, 0755) == -1) {
        test_die(dir);
    }

    put(dir, "python/kernel.conf", "# of the test\n"
        "command /usr/bin/python3\ncommand -S\ncommand @/driver.py\n"
        "grace 2\nenvironment OF_THE_KERNEL=yes\n"
        "needs /bin/sh\nwants something true\nwants else exit 1\n"
        "mend install else\n");
    put(dir, "python/driver.py", code_kernel);
    put(dir, "missing/kernel.conf", "command /no/such/program\n"
        "needs /no/such/program\nmend install such a program\n");
    put(dir, "wrong/kernel.conf", "nonsense\n");
    put(dir, "empty/nothing", "");
}


static void
test_kernel(test_broker_t *t, const char *id)
{
    code(t, id, "", "x = 6; print(os.environ['OF_THE_KERNEL']); show(x * 7)");
    ok(a.last == SBX_F_RAN && a.ran.flags == 0, "code is run");
    is_str(a.result, "42", "with its result");
    is_str(a.out, "yes\n", "in the environment of its kernel");

    code(t, id, "python", "print(x, __file__ if 0 else sys.argv[0])");
    is_str(a.out, "6 /run/sandbox/kernels/python/driver.py\n",
           "which remembers, and is run from where its driver is shown");

    code(t, id, "", "print(open('/proc/self/status').read())");
    ok(strstr(a.out, "Uid:\t1000\t1000\t1000\t1000") != NULL
       && strstr(a.out, "CapEff:\t0000000000000000") != NULL
       && strstr(a.out, "CapBnd:\t0000000000000000") != NULL
       && strstr(a.out, "NoNewPrivs:\t1") != NULL, "as the user, no more");
    ok(strstr(a.out, "Seccomp:\t2") != NULL, "filtered");

    code(t, id, "", "print(sorted(int(n) for n in "
         "os.listdir('/proc/self/fd'))[:5])");
    ok(strncmp(a.out, "[0, 1, 2, 3, 4]\n", 16) == 0
       || strncmp(a.out, "[0, 1, 2, 3]\n", 13) == 0,
       "with four descriptors, and that of its list");

    code(t, id, "", "os.makedirs('a/b'); open('a/b/new', 'w').write('x');"
         " open('/tmp/other', 'w')");
    ok(a.files == 1 && a.ran.files == 1, "what it makes is told");

    code(t, id, "missing", "1");
    ok(a.last == SBX_F_ERROR && a.error.code == SBX_E_CAPABILITY
       && strstr(a.error.text, "/no/such/program") != NULL,
       "an interpreter that is not there is named");

    code(t, id, "wrong", "1");
    ok(a.last == SBX_F_ERROR && a.error.code == SBX_E_CONTEXT,
       "a description with a mistake is no language");
    ok(test_logged(t, "line 1 of the language \"wrong\" is wrong"),
       "and the log says where");
}


static void
test_memory(test_broker_t *t, const char *id)
{
    code(t, id, "", "y = 1; x = bytearray(4000 << 20)");
    ok(a.last == SBX_F_RAN && (a.ran.flags & SBX_RAN_DIED)
       && (a.ran.flags & SBX_RAN_OOM_KILLED)
       && a.ran.reason == SBX_REASON_MEMORY,
       "memory that is not there ends it, and that is told");

    code(t, id, "", "print('y' in globals())");
    is_str(a.out, "False\n", "the next run has a fresh one");
    ok(a.ran.execution == 1, "which counts from 1");

    code(t, id, "", "subprocess.Popen(['sleep', '79'],"
         " start_new_session=True); os._exit(3)");
    ok(a.last == SBX_F_RAN && (a.ran.flags & SBX_RAN_DIED)
       && a.ran.reason == SBX_REASON_EXITED && a.ran.exit_code == 3,
       "one that exits has died");
    shell(t, id, "pgrep -f '^sleep 7[9]' || echo none", SBX_USER_USER);
    is_str(a.out, "none\n", "and leaves nothing behind");
}


static void
test_place(test_broker_t *t, const char *id)
{
    size_t  i;

    static const char *const  ways[] = {
        "echo x > /run/sandbox/kernels/python/driver.py",
        "mv /run/sandbox/kernels/python /run/sandbox/kernels/other",
        "mv /run/sandbox/kernels /run/sandbox/other",
        "mv /run/sandbox /run/other",
        "rm -rf /run/sandbox",
        "umount /run/sandbox/kernels",
        "mount -t tmpfs none /run/sandbox/kernels",
        "chmod 777 /run/sandbox/kernels/python"
    };

    for (i = 0; i < sbx_nelts(ways); i++) {
        shell(t, id, ways[i], SBX_USER_ROOT);
        ok(a.last == SBX_F_EXIT && a.exit.exit_code != 0,
           "no: %s", ways[i]);
    }

    shell(t, id, "cat /run/sandbox/kernels/python/driver.py | head -c 6",
          SBX_USER_USER);
    is_str(a.out, "import", "drivers can be read, and are what they were");
    shell(t, id, "grep /run/sandbox/kernels /proc/self/mountinfo"
          " | cut -d' ' -f6 | grep ro, | grep nosuid | grep -c nodev",
          SBX_USER_USER);
    is_str(a.out, "1\n", "read-only, without set-user-id and devices");
}


/* A kernel waits for code; the session is idle all the same. */

static void
test_restart(test_broker_t *t, const char *id)
{
    int    fd;
    pid_t  old;

    code(t, id, "", "z = 26");
    ok(a.last == SBX_F_RAN, "an interpreter that remembers");

    old = t->hello.broker_pid;
    (void) kill(old, SIGKILL);
    (void) test_await_successor(t, "broker.pid", old);

    code(t, id, "", "print(z)");
    is_str(a.out, "26\n", "outlives a broker");

    fd = code_begin(t, id, SBX_CODE_RESTART, "python", "");
    follow(fd, NULL);
    (void) close(fd);
    ok(a.last == SBX_F_END, "and another one is started by its successor");
    code(t, id, "", "print('z' in globals())");
    is_str(a.out, "False\n", "afresh");
}


static void
test_doctor(test_broker_t *t)
{
    int  i, fd;

    for (i = 0; i < 400; i++) {
        memset(&a, 0, sizeof(a));
        fd = test_call(t->control, SBX_OP_DOCTOR, "", "");
        follow(fd, NULL);
        (void) close(fd);

        if (strstr(a.checks, "without else") != NULL) {
            break;
        }

        (void) usleep(50000);
    }

    ok(strstr(a.checks, "language_python=0:it runs, without else:"
              "install else;") != NULL,
       "the doctor says what a language lacks, and what to do");
    ok(strstr(a.checks, "language_missing=0:there is no /no/such/program:"
              "install such a program;") != NULL, "also that it is not there");
    printf("# %s\n", a.checks);
}


static void
create(test_broker_t *t, uint32_t capabilities, char *id)
{
    sbx_create_t    body;
    test_answer_t  *answer;

    test_create_body(&body);
    body.capabilities = capabilities;
    answer = test_answer(test_create_send(t->control, "acme", &body, -1));
    (void) strcpy(id, answer->session.id);
}


static void
test_capability(test_broker_t *t)
{
    char  id[SBX_ID_MAX + 8];

    create(t, SBX_CAP_SHELL, id);

    code(t, id, "", "1");
    ok(a.last == SBX_F_ERROR && a.error.code == SBX_E_CAPABILITY,
       "without the capability \"code\" none is run");
    ok(test_destroy(t, id), "that session ends");
}


int
main(void)
{
    char           id[SBX_ID_MAX + 8];
    test_broker_t  t;

    if (geteuid() != 0) {
        return skip_all("needs root");
    }

    test_open(&t, "code");
    build(&t);

    if (!ok(test_start(&t) == 0, "a broker starts")) {
        printf("# %s\n", t.error.text);
        return done_testing();
    }

    create(&t, SBX_CAP_SHELL|SBX_CAP_CODE, id);
    test_kernel(&t, id);
    test_memory(&t, id);
    test_place(&t, id);
    test_restart(&t, id);
    ok(test_destroy(&t, id), "the session ends");
    test_capability(&t);
    test_doctor(&t);
    test_close(&t);

    return done_testing();
}
