/*
 * Commands in a session: what goes in, what comes out, how they end.
 */

#include "init_test.h"

#include <dirent.h>


static init_session_t  s;
static init_result_t   r;


static void
test_basics(void)
{
    init_exec_t  x = { 0 };
    const char  *argv[] = { "printf", "[%s]", "a b", "", "$HOME", NULL };
    uint32_t     over;

    x.argv = argv;
    init_exec(&s, &x, &r);

    ok(r.accepted && r.started, "a command is accepted and started");
    is_int(r.ended, SBX_F_EXIT, "and has an exit");
    is_str(init_text(r.out), "[a b][][$HOME]", "its arguments are not parsed");
    is_int(r.exit.exit_code, 0, "exit code");
    is_int(r.exit.reason, SBX_REASON_EXITED, "reason");
    is_int((int64_t) r.exit.stdout_bytes, 14, "bytes are counted");
    is_int(r.exit.pid, r.pid, "its pid is the one it was started with");
    ok(r.exit.duration_us > 0 && r.exit.memory_peak > 0,
       "usage without a group comes from the process itself");

    over = s.over;

    while (s.over == over) {
        init_records(&s, INIT_WAIT);
    }

    is_int(s.last_over, init_number, "the broker is told that it is over");

    init_shell(&s, "echo out; echo err >&2; exit 7", &r);
    is_str(init_text(r.out), "out\n", "standard output");
    is_str(init_text(r.err), "err\n", "standard error");
    is_int(r.exit.exit_code, 7, "exit code 7");

    init_shell(&s, "kill -SEGV $$", &r);
    is_int(r.exit.reason, SBX_REASON_SIGNAL, "a signal is one");
    is_int(r.exit.signal, SIGSEGV, "and known");
    is_int(r.exit.exit_code, 139, "128 + n");

    init_shell(&s, "kill -KILL $$", &r);
    is_int(r.exit.reason, SBX_REASON_SIGNAL,
           "a SIGKILL of its own is a signal, no limit");
    is_int((int64_t) r.exit.flags, 0, "no flag is set");

    init_shell(&s, "exit 137", &r);
    is_int(r.exit.reason, SBX_REASON_EXITED, "137 means nothing");

    x.flags = SBX_EXEC_MERGE;
    argv[0] = "sh";
    argv[1] = "-c";
    argv[2] = "echo a; echo b >&2; echo c";
    argv[3] = NULL;
    init_exec(&s, &x, &r);
    is_str(init_text(r.out), "a\nb\nc\n", "merged output keeps its order");
    ok(r.err_size == 0 && r.exit.stderr_bytes == 0, "nothing is on stderr");
}


static void
test_surroundings(void)
{
    init_exec_t  x = { 0 };
    const char  *argv[] = { "/usr/bin/env", NULL };
    const char  *env[] = { "MINE=1", "BOTH=call", "MINE=2", "HOME=/tmp",
                           NULL };
    char         lines[1024];

    init_shell(&s, "env | grep -vE '_THREADS=|^GOMAXPROCS=' | sort", &r);
    is_str(init_text(r.out),
           "BOTH=session\nFROM=session\nHOME=/home/user\nLANG=C.UTF-8\n"
           "LOGNAME=user\n"
           "PATH=/usr/local/bin:/usr/bin:/bin\n"
           "PIP_BREAK_SYSTEM_PACKAGES=1\nPIP_DISABLE_PIP_VERSION_CHECK=1\n"
           "PIP_RETRIES=1\n"
           "PWD=/home/user\n"
           "PYTHONUNBUFFERED=1\n"
           "TERM=dumb\nUSER=user\n"
           "npm_config_fetch_retries=0\n"
           "npm_config_fetch_retry_maxtimeout=3000\n"
           "npm_config_fetch_retry_mintimeout=1000\n"
           "npm_config_update_notifier=false\n",
           "the environment is the allow-list and the session's");

    x.argv = argv;
    x.env = env;
    init_exec(&s, &x, &r);
    (void) snprintf(lines, sizeof(lines), "\n%s", init_text(r.out));
    ok(strstr(lines, "\nMINE=2\n") && !strstr(lines, "\nMINE=1\n")
       && strstr(lines, "\nBOTH=call\n") && !strstr(lines, "\nBOTH=session\n")
       && strstr(lines, "\nHOME=/tmp\n"), "the last of a name wins, once");

    x.user = SBX_USER_ROOT;
    x.env = NULL;
    init_exec(&s, &x, &r);
    ok(strstr(init_text(r.out), "HOME=/root\n")
       && strstr(r.out, "USER=root\n"), "root has its own");

    init_shell(&s, "id -u; id -g; id -G; umask; ulimit -n; ulimit -c;"
                   " ulimit -s; ls /proc/self/fd | tr '\\n' ' '", &r);
    is_str(init_text(r.out),
           "1000\n1000\n1000\n0022\n256\n0\n8192\n0 1 2 3 ",
           "ids, umask, limits, and no descriptor but three (and ls's own)");

    init_shell(&s, "grep -E '^(Cap(Inh|Prm|Eff|Bnd|Amb)|NoNewPrivs)' "
                   "/proc/self/status | tr -d '\\t\\n'", &r);
    is_str(init_text(r.out),
           "CapInh:0000000000000000CapPrm:0000000000000000"
           "CapEff:0000000000000000CapBnd:0000000000000000"
           "CapAmb:0000000000000000NoNewPrivs:1",
           "a user has no capability");

    x.argv = (const char *[]) { "grep", "-E", "^Cap(Inh|Prm|Eff|Bnd)",
                                "/proc/self/status", NULL };
    init_exec(&s, &x, &r);
    is_str(init_text(r.out), "CapInh:\t0000000000000000\n"
           "CapPrm:\t00000000000000cb\nCapEff:\t00000000000000cb\n"
           "CapBnd:\t00000000000000cb\n",
           "root has five, and kill is none of them");

    init_shell(&s, "cat /proc/self/status | grep -E '^Sig(Blk|Ign)'"
                   " | tr -d '\\t\\n'", &r);
    is_str(init_text(r.out), "SigBlk:0000000000000000SigIgn:0000000000000000",
           "no signal is blocked or ignored");

    init_shell(&s, "ps -o sid= -o pgid= -p $$ | tr -s ' '; echo \" $$ $$\"",
               &r);
    ok(r.out != NULL && strncmp(r.out, strchr(r.out, '\n') + 1,
                                (size_t) (strchr(r.out, '\n') - r.out)) == 0,
       "it leads a session of its own");

    init_shell(&s, "echo to-err > /dev/stderr; echo to-out > /dev/stdout",
               &r);
    ok(strcmp(init_text(r.out), "to-out\n") == 0
       && strcmp(init_text(r.err), "to-err\n") == 0,
       "a user can open its own /dev/stdout");
}


static void
expect_cwd(const char *cwd, uint32_t user, int code, const char *out,
    const char *name)
{
    init_exec_t  x = { 0 };
    const char  *argv[] = { "pwd", "-P", NULL };

    x.argv = argv;
    x.cwd = cwd;
    x.user = user;
    init_exec(&s, &x, &r);

    if (out != NULL) {
        is_str(init_text(r.out), out, name);

    } else {
        is_int(r.ended == SBX_F_ERROR ? (int) r.error.code : -r.ended, code,
               name);
    }
}


static void
test_cwd(void)
{
    int   i, inside;
    char  cwd[64];

    init_shell(&s, "mkdir -p sub/deep; touch file; ln -sfn sub link;"
                   " ln -sfn /nowhere dangling", &r);

    expect_cwd(NULL, 0, 0, "/home/user\n", "the workspace by default");
    expect_cwd("", 0, 0, "/home/user\n", "an empty one is the workspace");
    expect_cwd("sub/deep", 0, 0, "/home/user/sub/deep\n", "a relative one");
    expect_cwd("/tmp", 0, 0, "/tmp\n", "an absolute one");
    expect_cwd("link", 0, 0, "/home/user/sub\n", "a link to one");
    expect_cwd("../../../../..", 0, 0, "/\n", "above the root is the root");
    expect_cwd("missing", 0, SBX_E_FILE, NULL, "a missing one");
    expect_cwd("dangling", 0, SBX_E_FILE, NULL, "a dangling link");
    expect_cwd("file", 0, SBX_E_FILE_TYPE, NULL, "a file");
    expect_cwd("file/x", 0, SBX_E_FILE_TYPE, NULL, "below a file");
    expect_cwd("/root", 0, SBX_E_DENIED, NULL, "root's, for the user");
    expect_cwd("/root", SBX_USER_ROOT, 0, "/root\n", "root's, for root");
    expect_cwd("/proc/self/root", 0, SBX_E_PATH, NULL, "a magic link");
    expect_cwd("/proc/1/cwd", 0, SBX_E_DENIED, NULL, "one of init's");

    for (i = 0, inside = 1; i < 64; i++) {
        (void) snprintf(cwd, sizeof(cwd), "/proc/self/fd/%d", i);
        init_exec(&s, &(init_exec_t) {
                      .argv = (const char *[]) { "pwd", "-P", NULL },
                      .cwd = cwd }, &r);
        inside &= r.ended == SBX_F_ERROR;
    }

    ok(inside, "no /proc/self/fd/N is taken");
}


static void
expect_not_started(const char *program, int code, const char *why)
{
    char         line[512];
    init_exec_t  x = { 0 };
    const char  *argv[] = { program, "arg", NULL };

    x.argv = argv;
    init_exec(&s, &x, &r);

    (void) snprintf(line, sizeof(line), "sandbox: cannot run '%s': %s\n",
                    program, why);

    ok(r.ended == SBX_F_EXIT && r.exit.reason == SBX_REASON_NOT_STARTED
       && r.exit.exit_code == code && r.exit.signal == 0 && !r.started
       && r.exit.stderr_bytes == strlen(line),
       "'%s' is not started: %d", program, code);
    is_str(init_text(r.err), line, "and one line says why");
}


static void
test_not_started(void)
{
    size_t        i;
    char         *big;
    init_exec_t   x = { 0 };
    const char   *argv[3] = { "true", NULL, NULL };
    const char   *env[] = { "PATH=/nonexistent::/tmp", NULL };

    init_shell(&s, "echo text > plain; mkdir -p dir; head -c 64 /dev/zero"
                   " > junk; printf '#!/nowhere/sh\\n' > bad;"
                   " chmod +x junk bad", &r);

    expect_not_started("/no/such/program", 127, "No such file or directory");
    expect_not_started("no-such-program", 127, "No such file or directory");
    expect_not_started("./plain", 126, "Permission denied");
    expect_not_started("./dir", 126, "Permission denied");
    expect_not_started("./junk", 126, "Exec format error");
    expect_not_started("./bad", 127, "No such file or directory");
    expect_not_started("./plain/x", 127, "Not a directory");
    expect_not_started("", 127, "No such file or directory");

    big = malloc(200 * 1024);
    memset(big, 'x', 200 * 1024);
    big[200 * 1024 - 1] = '\0';
    argv[1] = big;
    x.argv = argv;
    init_exec(&s, &x, &r);
    ok(r.exit.reason == SBX_REASON_NOT_STARTED && r.exit.exit_code == 126,
       "an argument of 200 KiB is too long");
    is_str(init_text(r.err),
           "sandbox: cannot run 'true': Argument list too long\n",
           "and one line says so");
    free(big);

    argv[1] = NULL;
    x.env = env;
    init_exec(&s, &x, &r);
    ok(r.exit.reason == SBX_REASON_NOT_STARTED,
       "a program is looked up by the command's own PATH");

    {
        static const char  *many[20002];

        for (i = 0; i < 20000; i++) {
            char  *v = malloc(32);

            (void) snprintf(v, 32, "V%zu=%zu", i % 10000, i);
            many[i] = v;
        }

        x.env = many;
        x.argv = (const char *[]) { "sh", "-c",
                  "env | grep -c '^V[0-9]'; echo $V17 $V9999", NULL };
        init_exec(&s, &x, &r);
        is_str(init_text(r.out), "10000\n10017 19999\n",
               "20,000 variables of 10,000 names");
    }
}


static void
test_limits(void)
{
    size_t  i;

    static const struct {
        init_exec_t  x;
        const char  *name;
        const char  *cap;
    } above[] = {
        { { .timeout = 20001 }, "exec_timeout_s", "20" },
        { { .max_output = (1 << 20) + 1 }, "max_output_bytes", "1048576" },
        { { .max_file_size = (32 << 20) + 1 }, "max_file_size", "33554432" },
        { { .open_files = 257 }, "open_files", "256" },
        { { .stack = (8 << 20) + 1 }, "stack", "8388608" },
        { { .open_files = SBX_UNLIMITED }, "open_files", "256" }
    };

    for (i = 0; i < sbx_nelts(above); i++) {
        init_exec_t  x = above[i].x;

        x.argv = (const char *[]) { "touch", "/tmp/ran", NULL };
        init_exec(&s, &x, &r);
        ok(r.ended == SBX_F_ERROR && r.error.code == SBX_E_MANIFEST
           && strstr(r.error.text, above[i].name) != NULL
           && strstr(r.error.text, above[i].cap) != NULL && !r.accepted,
           "%s above the session's is refused and named", above[i].name);
    }

    init_shell(&s, "test -e /tmp/ran || echo none", &r);
    is_str(init_text(r.out), "none\n", "nothing of it was run");

    init_exec(&s, &(init_exec_t) {
                  .argv = (const char *[]) { "echo", "x", NULL },
                  .flags = SBX_EXEC_LONG, .timeout = 20001 }, &r);
    is_str(init_text(r.out), "x\n",
           "a call may have a longer time if it says so");

    init_exec(&s, &(init_exec_t) {
                  .argv = (const char *[]) { "sh", "-c", "ulimit -n;"
                      " ulimit -s; ulimit -f; ulimit -t; echo x", NULL },
                  .open_files = 32, .stack = 1 << 20,
                  .max_file_size = 10240, .cpu_seconds = 5000,
                  .timeout = SBX_UNLIMITED }, &r);
    is_str(init_text(r.out), "32\n1024\n20\n7\nx\n", "lower ones are set");

    init_exec(&s, &(init_exec_t) {
                  .argv = (const char *[]) { "sh", "-c",
                      "while :; do :; done", NULL },
                  .cpu_seconds = 300 }, &r);
    is_int(r.exit.reason, SBX_REASON_CPU_TIME, "processor time is up");
    ok(r.exit.cpu_user_us + r.exit.cpu_system_us >= 290000
       && r.exit.cpu_user_us + r.exit.cpu_system_us < 600000,
       "after what was given");
    is_int(r.exit.signal, SIGKILL, "by SIGKILL");
}


static void
test_refused(void)
{
    size_t        i;
    init_call_t   call;
    sbx_f_exec_t  exec;

    static const struct {
        const char  *strings;
        size_t       size;
        uint32_t     argc;
        uint32_t     envc;
        const char  *name;
    } bad[] = {
        { "\0true\0", 6, 0, 0, "no program" },
        { "\0true\0", 6, 2, 0, "a missing argument" },
        { "\0true\0", 6, 1, 1, "a missing variable" },
        { "\0true\0=x\0", 9, 1, 1, "a variable without a name" },
        { "\0true\0xx\0", 9, 1, 1, "a variable without a value" },
        { "\0true\0xx\0", 9, 1, 0, "bytes after the last string" },
        { "\0true", 5, 1, 0, "a string without an end" },
        { "\0true\0", 6, 0xffffffff, 0, "4 billion arguments" },
        { "\0true\0", 6, 1, 0xffffffff, "4 billion variables" }
    };

    for (i = 0; i < sbx_nelts(bad); i++) {
        memset(&exec, 0xff, sizeof(exec));
        exec.flags = 0;
        exec.user = 0;
        exec.argc = bad[i].argc;
        exec.envc = bad[i].envc;
        exec.strings_size = (uint32_t) bad[i].size;

        init_result_free(&r);
        init_call(&s, SBX_OP_EXEC, &(sbx_task_t) { .command = 0 }, NULL, 0,
                  &call);
        init_send(call.fd, SBX_F_EXEC, &exec, sizeof(exec));
        init_send(call.fd, SBX_F_STRINGS, bad[i].strings, bad[i].size);
        init_send(call.fd, SBX_F_STDIN, NULL, 0);
        init_finish(&call, &r);
        init_hang_up(&call);
        ok(r.ended == SBX_F_ERROR && r.error.code == SBX_E_INVALID
           && !r.accepted, "%s is refused", bad[i].name);
    }

    init_result_free(&r);
    init_call(&s, SBX_OP_EXEC, NULL, NULL, 0, &call);
    (void) send(call.fd, "\xff\xff\xff\xff\0\0\0\0", 8, MSG_NOSIGNAL);
    init_finish(&call, &r);
    init_hang_up(&call);
    is_int(r.ended, SBX_F_ERROR, "a frame of 4 GB is refused");

    init_call(&s, SBX_OP_EXEC, NULL, NULL, 0, &call);
    init_hang_up(&call);
    init_shell(&s, "echo still", &r);
    is_str(init_text(r.out), "still\n", "a call that says nothing harms not");
}


static void
test_input(void)
{
    size_t        size;
    char         *big;
    init_call_t   call;
    init_exec_t   x = { 0 };

    size = 3 * 1024 * 1024 + 17;
    big = malloc(size);
    memset(big, 'y', size);

    x.argv = (const char *[]) { "readlink", "/proc/self/fd/0", NULL };
    init_exec(&s, &x, &r);
    is_str(init_text(r.out), "/dev/null\n", "no input is /dev/null");

    x.argv = (const char *[]) { "cat", NULL };
    x.input = "a\0b";
    x.input_size = 3;
    init_exec(&s, &x, &r);
    ok(r.out_size == 3 && memcmp(r.out, "a\0b", 3) == 0,
       "input is passed, NUL and all");

    x.argv = (const char *[]) { "sh", "-c", "sleep 0.2; wc -c", NULL };
    x.input = big;
    x.input_size = size;
    init_exec(&s, &x, &r);
    is_str(init_text(r.out), "3145745\n", "three megabytes of it");

    x.argv = (const char *[]) { "true", NULL };
    init_exec(&s, &x, &r);
    is_int(r.exit.reason, SBX_REASON_EXITED,
           "a command that never reads ends all the same");

    x.argv = (const char *[]) { "sh", "-c", "exec <&-; sleep 0.2; echo end",
                                NULL };
    init_exec(&s, &x, &r);
    is_str(init_text(r.out), "end\n", "one that closes it goes on");

    /* a worker that is stuck in its input, and goes */

    x.argv = (const char *[]) { "sh", "-c", "echo $$ > stuck; sleep 61",
                                NULL };
    init_exec_begin(&s, &x, &call);
    (void) fcntl(call.fd, F_SETFL, O_NONBLOCK);
    init_send(call.fd, SBX_F_STDIN, big, SBX_FRAME_MAX);
    init_send(call.fd, SBX_F_STDIN, big, SBX_FRAME_MAX);
    init_send(call.fd, SBX_F_STDIN, big, SBX_FRAME_MAX);
    ok(init_until(&s, "test -s stuck && echo yes"), "one that is stuck");
    init_hang_up(&call);
    ok(init_until(&s, "kill -0 $(cat stuck) 2>/dev/null || echo yes"),
       "ends when its worker goes");

    free(big);
}


static void
test_output(void)
{
    int           i;
    init_exec_t   x = { 0 };
    init_call_t   call;

    x.argv = (const char *[]) { "sh", "-c",
             "head -c 5000000 /dev/zero; head -c 300 /dev/zero >&2", NULL };
    x.flags = SBX_EXEC_CAP;
    x.max_output = 1000;
    init_exec(&s, &x, &r);
    ok(r.out_size == 1000 && r.err_size == 300, "output up to the cap");
    ok(r.exit.stdout_bytes == 5000000 && r.exit.stderr_bytes == 300,
       "all of it is counted");
    is_int((int64_t) r.exit.flags, SBX_EXIT_OUT_TRUNCATED, "and flagged");
    is_int(r.exit.exit_code, 0, "the command has not noticed");

    x.argv = (const char *[]) { "head", "-c", "1000", "/dev/zero", NULL };
    init_exec(&s, &x, &r);
    ok(r.out_size == 1000 && r.exit.flags == 0, "exactly the cap is whole");

    x.flags = 0;
    x.argv = (const char *[]) { "head", "-c", "3000000", "/dev/zero", NULL };
    init_exec(&s, &x, &r);
    ok(r.out_size == 3000000, "without the flag nothing is dropped");

    /* a slow reader slows the command down */

    x.argv = (const char *[]) { "sh", "-c", "yes | head -c 100000000;"
                                " touch written", NULL };
    init_exec_begin(&s, &x, &call);
    init_send(call.fd, SBX_F_STDIN, NULL, 0);
    (void) usleep(300000);
    init_shell(&s, "test -e written || echo none", &r);
    is_str(init_text(r.out), "none\n", "what is not read is not written");
    init_hang_up(&call);
    ok(init_until(&s, "pgrep -x yes >/dev/null || echo yes"),
       "and its command dies with its worker");

    /* what others write later is read and dropped */

    init_shell(&s, "rm -f go late; (while [ ! -e go ]; do sleep 0.02; done;"
                   " head -c 1000000 /dev/zero; head -c 1000000 /dev/zero"
                   " >&2; echo $? > late) & echo STARTED", &r);
    is_str(init_text(r.out), "STARTED\n", "the leader's end is the answer");
    is_int((int64_t) r.exit.stdout_bytes, 8, "with its bytes");
    init_shell(&s, "touch go", &r);
    ok(init_until(&s, "test -s late && sed s/0/yes/ late"),
       "a child that stays can write on");

    for (i = 0; i < 40; i++) {
        init_shell(&s, "printf 0123456789; printf 0123456789 >&2", &r);

        if (r.out_size != 10 || r.err_size != 10) {
            break;
        }
    }

    is_int(i, 40, "the last bytes are never lost");

    x.argv = (const char *[]) { "sh", "-c", "echo a > /dev/null; exec >&-"
                                " 2>&-; sleep 0.1", NULL };
    init_exec(&s, &x, &r);
    is_int(r.exit.exit_code, 0, "a command may close its output");
}


static void
test_ends(void)
{
    uint32_t      reaped;
    init_exec_t   x = { 0 };
    init_call_t   call;

    x.argv = (const char *[]) { "sh", "-c", "printf part; sleep 62 & sleep"
                                " 62", NULL };
    x.timeout = 300;
    init_exec(&s, &x, &r);
    is_int(r.exit.reason, SBX_REASON_TIMEOUT, "a timeout is one");
    ok((r.exit.flags & SBX_EXIT_TIMED_OUT) && r.exit.exit_code == 137
       && r.exit.duration_us >= 300000 && r.exit.duration_us < 5000000,
       "told, and in time");
    is_str(init_text(r.out), "part", "what came before it is there");
    init_shell(&s, "pgrep -f 'sleep 6[2]' || echo none", &r);
    is_str(init_text(r.out), "none\n", "its children are dead too");

    x.argv = (const char *[]) { "sh", "-c", "setsid sleep 63 & sleep 63",
                                NULL };
    init_exec(&s, &x, &r);
    init_shell(&s, "pgrep -f 'sleep 6[3]' || echo none", &r);
    is_str(init_text(r.out), "none\n", "one in another session too");

    x.argv = (const char *[]) { "sh", "-c", "kill -STOP $$", NULL };
    init_exec(&s, &x, &r);
    is_int(r.exit.reason, SBX_REASON_TIMEOUT, "a stopped one times out");

    x.timeout = 0;
    x.argv = (const char *[]) { "sleep", "64", NULL };
    init_exec_begin(&s, &x, &call);
    init_send(call.fd, SBX_F_STDIN, NULL, 0);
    ok(init_until(&s, "pgrep -f 'sleep 6[4]' >/dev/null && echo yes"),
       "a command runs");
    init_hang_up(&call);
    ok(init_until(&s, "pgrep -f 'sleep 6[4]' >/dev/null || echo yes"),
       "and is killed when its worker goes");

    x.flags = SBX_EXEC_DETACH;
    x.argv = (const char *[]) { "sh", "-c", "while [ ! -e go2 ]; do sleep"
             " 0.02; done; yes | head -c 1000000; echo done > detached",
             NULL };
    init_exec_begin(&s, &x, &call);
    init_send(call.fd, SBX_F_STDIN, NULL, 0);
    ok(init_until(&s, "pgrep -f 'go[2]' >/dev/null && echo yes"),
       "a detached one runs");
    init_hang_up(&call);
    init_shell(&s, "touch go2", &r);
    ok(init_until(&s, "test -s detached && echo yes"),
       "and goes on without its worker");

    reaped = s.reaped;
    init_shell(&s, "setsid sh -c 'sleep 0.1' >/dev/null 2>&1 & exit", &r);

    while (s.reaped == reaped) {
        init_records(&s, INIT_WAIT);
    }

    ok(1, "an orphan's end is told to the broker");
}


/* A child that is stopped before its exec must not stop init. */

static void
test_stopped(void)
{
    int           i, started;
    uint64_t      begin, longest, t;
    init_call_t   call;
    init_exec_t   x = { 0 };

    x.argv = (const char *[]) { "python3", "-c",
        "import os, signal, time\n"
        "end = time.time() + 4\n"
        "while time.time() < end:\n"
        "    try:\n"
        "        os.kill(-1, signal.SIGSTOP)\n"
        "    except ProcessLookupError:\n"
        "        pass\n", NULL };
    x.timeout = 6000;
    init_exec_begin(&s, &x, &call);
    init_send(call.fd, SBX_F_STDIN, NULL, 0);
    (void) usleep(400000);

    x.argv = (const char *[]) { "sh", "-c", "echo x", NULL };
    x.timeout = 200;
    longest = 0;
    started = 0;
    begin = sbx_now_us();

    for (i = 0; i < 40 && sbx_now_us() - begin < 4000000; i++) {
        t = sbx_now_us();
        init_exec(&s, &x, &r);
        t = sbx_now_us() - t;
        longest = t > longest ? t : longest;
        started += r.ended == SBX_F_EXIT;
    }

    is_int(started, i, "commands under a storm of SIGSTOP are answered");
    ok(longest < 2000000, "each within its timeout (%llu us)",
       (unsigned long long) longest);

    init_hang_up(&call);
    init_shell(&s, "echo alive", &r);
    is_str(init_text(r.out), "alive\n", "and init is well");
}


static void
test_many(void)
{
    int                 i, n, good;
    init_exec_t         x = { 0 };
    static init_call_t  calls[SBX_COMMANDS_MAX + 1];

    x.argv = (const char *[]) { "sh", "-c", "echo $$", NULL };

    for (i = 0; i < 100; i++) {
        init_exec_begin(&s, &x, &calls[i]);
        init_send(calls[i].fd, SBX_F_STDIN, NULL, 0);
    }

    for (i = 0, good = 0; i < 100; i++) {
        init_result_free(&r);
        init_finish(&calls[i], &r);
        good += r.ended == SBX_F_EXIT && r.out_size > 1;
        init_hang_up(&calls[i]);
    }

    is_int(good, 100, "a hundred at once");

    /* calls that are not begun take places as well */

    while (init_until(&s, "echo yes") != 1) { /* void */ }

    for (n = 0; n < SBX_COMMANDS_MAX; n++) {
        init_call(&s, SBX_OP_EXEC, NULL, NULL, 0, &calls[n]);
    }

    init_shell(&s, "true", &r);
    ok(r.ended == SBX_F_ERROR && r.error.code == SBX_E_QUOTA
       && strcmp(r.error.resource, "commands") == 0
       && r.error.limit == SBX_COMMANDS_MAX,
       "more than there are places is a quota");

    while (n != 0) {
        init_hang_up(&calls[--n]);
    }

    ok(init_until(&s, "echo yes"), "which closing gives back");
}


/* Nobody's limit pays for what init does: it must be little. */

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


static void
test_flood(void)
{
    double       before, used;
    init_exec_t  x = { .timeout = 2000, .flags = SBX_EXEC_CAP };

    x.argv = (const char *[]) { "sh", "-c", "yes & yes >&2", NULL };
    before = init_cpu();
    init_exec(&s, &x, &r);
    used = init_cpu() - before;
    ok(r.exit.reason == SBX_REASON_TIMEOUT && r.exit.stdout_bytes > 1 << 20
       && r.exit.stderr_bytes > 1 << 20, "two floods for two seconds");
    ok(used < 0.7, "cost init little (%.2f s)", used);

    init_shell(&s, "yes & yes >&2 & echo x", &r);
    before = init_cpu();
    init_shell(&s, "sleep 1; pkill yes", &r);
    used = init_cpu() - before;
    ok(used < 0.4, "and so do those that stay behind (%.2f s)", used);
}


/* Init's memory and descriptors after all of it. */

static long
init_rss(void)
{
    char  path[64], buf[4096];

    (void) snprintf(path, sizeof(path), "/proc/%d/status", s.pid);

    if (sbx_read_at(AT_FDCWD, path, buf, sizeof(buf)) <= 0) {
        return -1;
    }

    return atol(strstr(buf, "VmRSS:") + 6);
}


/* How many descriptors init has; -1 without it. */

static long
init_fds(void)
{
    long            n;
    DIR            *dir;
    char            path[64];
    struct dirent  *entry;

    (void) snprintf(path, sizeof(path), "/proc/%d/fd", s.pid);

    dir = opendir(path);
    if (dir == NULL) {
        return -1;
    }

    for (n = 0, entry = readdir(dir); entry != NULL; entry = readdir(dir)) {
        n += entry->d_name[0] != '.';
    }

    (void) closedir(dir);

    return n;
}


static void
test_leaks(void)
{
    int   i;
    long  before, after, n1, n2;

    for (i = 0; i < 50; i++) {
        init_shell(&s, "echo x; true &", &r);
    }

    before = init_rss();
    n1 = init_fds();

    for (i = 0; i < 300; i++) {
        init_shell(&s, "echo x; true &", &r);
    }

    after = init_rss();

    /* what the last commands left behind ends after their answers */

    for (i = 0; i < 500 && (n2 = init_fds()) > n1 + 3; i++) {
        (void) usleep(20000);
    }

    /* a sanitizer keeps freed memory */

#ifndef __SANITIZE_ADDRESS__
    ok(after - before < 256, "300 commands leave no memory (%ld, %ld KiB)",
       before, after);
    ok(after < 16 * 1024, "init is small");
#else
    (void) before;
    (void) after;
#endif

    ok(n1 > 0 && n2 > 0 && n2 <= n1 + 3, "and no descriptor (%ld, %ld)",
       n1, n2);
}


static void
test_terminate(void)
{
    init_call_t  call;
    init_exec_t  x = { 0 };

    x.argv = (const char *[]) { "sh", "-c", "trap 'echo bye; exit 3' TERM;"
             " touch trapped; while :; do sleep 0.02; done", NULL };
    init_exec_begin(&s, &x, &call);
    init_send(call.fd, SBX_F_STDIN, NULL, 0);
    ok(init_until(&s, "test -e trapped && echo yes"), "a command runs");

    init_result_free(&r);
    init_task(&s, SBX_OP_TERMINATE, NULL, -1, NULL, 0);
    init_finish(&call, &r);
    init_hang_up(&call);
    is_str(init_text(r.out), "bye\n", "SIGTERM has reached it");
    is_int(r.exit.reason, SBX_REASON_SESSION_ENDED, "reason session_ended");
    is_int(r.exit.exit_code, 3, "with its own exit code");

    init_task(&s, SBX_OP_CUT, NULL, -1, NULL, 0);

    while (s.cut == 0) {
        init_records(&s, INIT_WAIT);
    }

    ok(1, "a cut without downloads is answered at once");
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
    init_env = "FROM=session\0BOTH=session\0";
    init_env_size = 26;
    init_start(&s);

    test_basics();
    test_surroundings();
    test_cwd();
    test_not_started();
    test_limits();
    test_refused();
    test_input();
    test_output();
    test_ends();
    test_stopped();
    test_many();
    test_flood();
    test_leaks();
    test_terminate();

    ok(init_stop(&s), "the end of the control socket ends the session");

    return done_testing();
}
