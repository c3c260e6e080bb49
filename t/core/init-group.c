/*
 * Commands in control groups: what their limits do to them, how all of a
 * command dies, and that init outlives it.
 */

#include "isolate.h"

#include "init_test.h"


#define MB   (1024 * 1024)


typedef struct {
    sbx_cgroup_command_t  *group;
    sbx_task_t             task;
    int                    fds[SBX_TASK_FDS_MAX];
    unsigned               nfds;
} group_t;


static init_session_t          s;
static init_result_t           r;
static sbx_cgroup_t           *cg;
static sbx_cgroup_session_t   *cs;
static uint32_t                number;


static void
group_open(group_t *g, const sbx_exec_limits_t *limits)
{
    sbx_error_t  e;

    memset(g, 0, sizeof(group_t));

    if (sbx_cgroup_command_create(cs, ++number, &g->group, &e) == -1
        || (limits != NULL
            && sbx_cgroup_command_limit(g->group, limits, &e) == -1))
    {
        printf("Bail out! %s\n", e.text);
        exit(1);
    }

    g->nfds = sbx_cgroup_command_fds(g->group, g->fds, &g->task.fds,
                                     &g->task.attach_count);
    g->task.processes = limits != NULL && limits->processes != SBX_UNSET
                        ? limits->processes : init_config.limits.processes;
    g->task.cpus = init_config.limits.cpus;
}


/* What begins in a group takes its descriptors along. */

static void
group_begin(group_t *g, init_exec_t *x, const sbx_exec_limits_t *limits,
    init_call_t *call)
{
    group_open(g, limits);
    x->task = g->task;
    x->fds = g->fds;
    x->nfds = g->nfds;

    init_exec_begin(&s, x, call);
    init_send(call->fd, SBX_F_STDIN, NULL, 0);

    while (g->nfds != 0) {
        (void) close(g->fds[--g->nfds]);
    }
}


/* 1: it was empty when it was asked for the first time; 0: before long. */

static int
group_close(group_t *g)
{
    int          i, rc;
    sbx_error_t  e;

    for (i = 0; i < 1000; i++) {
        rc = sbx_cgroup_command_remove(g->group, &e);

        if (rc != 1) {
            return i == 0;
        }

        (void) usleep(5000);
    }

    return 0;
}


/* Runs it to its end; as group_close(). */

static int
group_exec(const char *script, init_exec_t *x,
    const sbx_exec_limits_t *limits)
{
    int          empty;
    group_t      g;
    uint32_t     over;
    init_call_t  call;

    x->argv = (const char *[]) { "/bin/sh", "-c", script, NULL };
    over = s.over;

    init_result_free(&r);
    group_begin(&g, x, limits, &call);
    init_finish(&call, &r);
    init_hang_up(&call);

    empty = 1;

    if (r.ended == SBX_F_EXIT && (r.exit.flags & SBX_EXIT_TIMED_OUT)) {
        empty = group_close(&g);
    }

    while (s.over == over) {
        init_records(&s, INIT_WAIT);
    }

    if (r.ended != SBX_F_EXIT || !(r.exit.flags & SBX_EXIT_TIMED_OUT)) {
        empty = group_close(&g);
    }

    return empty;
}


static void
test_usage(void)
{
    init_exec_t  x = { 0 };

    ok(group_exec("exit 3", &x, NULL), "a group is empty after its command");
    is_int(r.exit.exit_code, 3, "which has run in it");

    (void) group_exec("python3 -c 'import time; x = bytearray(40 << 20);\n"
                      "t = time.process_time()\n"
                      "while time.process_time() - t < 0.2: pass' &"
                      " sleep 0.1 & sleep 0.1 & wait", &x, NULL);
    ok(r.exit.cpu_user_us + r.exit.cpu_system_us >= 200000,
       "processor time of all of it");
    ok(r.exit.memory_peak >= 40 * MB && r.exit.memory_peak < 90 * MB,
       "memory of all of it (%llu)",
       (unsigned long long) r.exit.memory_peak);

    if (r.exit.processes_peak == 0) {
        skip("this kernel does not tell", "processes at once");

    } else {
        ok(r.exit.processes_peak >= 4 && r.exit.processes_peak < 12,
           "processes at once (%llu)",
           (unsigned long long) r.exit.processes_peak);
    }
}


static void
test_timeout(void)
{
    size_t  i;

    static const char *const  ways[] = {
        "setsid sleep 71 & sleep 71",
        "(setsid sh -c 'sleep 71 &' &); sleep 71",
        "for i in $(seq 12); do sleep 71 & done; wait",
        "trap '' TERM INT HUP; sleep 71",
        "kill -STOP $$",
        "python3 -c \"import os,signal,time; signal.signal(15, 1);"
        " [os.fork() for _ in range(3)];"
        " os.setsid() if os.getpid() != os.getpgid(0) else 0;"
        " time.sleep(71)\""
    };

    for (i = 0; i < sbx_nelts(ways); i++) {
        init_exec_t  x = { .timeout = 1000 };

        ok(group_exec(ways[i], &x, NULL), "%s: none is left", ways[i]);
        ok(r.exit.reason == SBX_REASON_TIMEOUT
           && (r.exit.flags & SBX_EXIT_TIMED_OUT)
           && r.exit.duration_us < 6000000, "and it is told in time");
    }
}


static void
test_hang_up(void)
{
    group_t      g;
    init_call_t  call;
    init_exec_t  x = { 0 };
    uint32_t     over;

    x.argv = (const char *[]) { "sh", "-c", "(setsid sleep 72 &); sleep 72",
                                NULL };
    over = s.over;
    group_begin(&g, &x, NULL, &call);
    ok(init_until(&s, "test $(pgrep -fc '^sleep 7[2]') = 2 && echo yes"),
       "a command and one that left it");
    init_hang_up(&call);

    while (s.over < over + 2) {
        init_records(&s, INIT_WAIT);

        if (s.last_over == init_number) {
            break;
        }
    }

    ok(init_until(&s, "pgrep -f '^sleep 7[2]' >/dev/null || echo yes"),
       "both die with the worker's end of the call");
    (void) group_close(&g);
}


static void
test_memory(void)
{
    init_exec_t        x = { 0 };
    sbx_exec_limits_t  limits = { 32 * MB, SBX_UNSET, SBX_UNSET };

    (void) group_exec("exec python3 -c 'x = bytearray(200 << 20)'", &x,
                      &limits);
    is_int(r.exit.reason, SBX_REASON_MEMORY, "out of memory is told");
    ok(r.exit.flags & SBX_EXIT_OOM_KILLED, "and flagged");
    is_int(r.exit.exit_code, 137, "137");
    ok(r.exit.memory_peak <= 33 * MB, "the peak is the limit");

    (void) group_exec("python3 -c 'x = bytearray(200 << 20)' & sleep 60", &x,
                      &limits);
    is_int(r.exit.reason, SBX_REASON_MEMORY,
           "where a child is killed, the rest of the command follows");
    ok(r.exit.flags & SBX_EXIT_OOM_KILLED, "flagged");
    ok(r.exit.duration_us < 30000000, "at once");

    (void) group_exec("kill -9 $$", &x, &limits);
    ok(r.exit.reason == SBX_REASON_SIGNAL && r.exit.flags == 0,
       "its own SIGKILL is no limit");
}


/*
 * Pages of a tmpfs stay charged when nobody is left to be killed for them:
 * the next command meets the limit while it still shares init's memory.
 */

static void
test_full(void)
{
    int          i, alive;
    init_exec_t  x = { .timeout = 5000 };

    (void) group_exec("exec cat /dev/zero > /tmp/fill", &x, NULL);
    is_int(r.exit.reason, SBX_REASON_MEMORY,
           "a file that is memory takes all of the session's");

    for (i = 0, alive = 0; i < 20; i++) {
        (void) group_exec("true", &x, NULL);
        alive += r.ended == SBX_F_EXIT || r.ended == SBX_F_ERROR;
    }

    is_int(alive, 20, "with the session's memory full every call is answered");

    init_shell(&s, "rm -f /tmp/fill; echo alive", &r);
    is_str(init_text(r.out), "alive\n", "and init lives");
}


static void
test_cpu(void)
{
    uint64_t     used;
    init_exec_t  x = { .cpu_seconds = 500 };

    (void) group_exec("for i in 1 2 3; do (setsid sh -c 'while :; do :;"
                      " done') & done; wait", &x, NULL);
    used = r.exit.cpu_user_us + r.exit.cpu_system_us;
    is_int(r.exit.reason, SBX_REASON_CPU_TIME, "processor time of a tree");
    ok(used >= 490000 && used < 900000, "is what was given (%llu us)",
       (unsigned long long) used);

    (void) group_exec("sleep 0.7", &x, NULL);
    is_int(r.exit.reason, SBX_REASON_EXITED, "sleeping costs none");
}


static void
test_processes(void)
{
    int          n;
    group_t      g;
    init_call_t  call;
    init_exec_t  x = { 0 };

    x.argv = (const char *[]) { "sh", "-c", "for i in $(seq 15); do sleep 73"
                                " & done; wait", NULL };
    group_begin(&g, &x, NULL, &call);
    ok(init_until(&s, "test $(pgrep -fc '^sleep 7[3]') = 15 && echo yes"),
       "a session fills with processes");

    for (n = 0; n < 3; n++) {
        init_exec_t  y = { 0 };

        (void) group_exec("true", &y, NULL);

        if (r.ended == SBX_F_ERROR) {
            break;
        }
    }

    ok(r.ended == SBX_F_ERROR && r.error.code == SBX_E_QUOTA
       && strcmp(r.error.scope, "session") == 0
       && strcmp(r.error.resource, "processes") == 0,
       "no further command is let in");
    is_int((int64_t) r.error.limit, 16, "and the limit is told");

    init_hang_up(&call);
    (void) group_close(&g);
    (void) group_exec("true", &x, NULL);
    is_int(r.ended, SBX_F_EXIT, "until there is room");
}


int
main(void)
{
    char         id[32];
    sbx_error_t  e;

    if (geteuid() != 0) {
        return skip_all("root is needed for namespaces");
    }

    if (init_program() == NULL) {
        return skip_all("sandbox-init has not been built");
    }

    init_defaults();
    init_config.limits.memory = 96 * MB;
    init_config.limits.disk = 1 * MB;
    init_config.limits.processes = 16;
    init_config.limits.exec_timeout = 30000;
    init_config.limits.max_file_size = 1024 * MB;
    init_disk = "mode=0755,size=1g,nr_inodes=20000";

    (void) snprintf(id, sizeof(id), "initgroup%d", (int) getpid());

    if (sbx_cgroup_open(NULL, id, &cg, &e) == -1) {
        return skip_all(e.text);
    }

    (void) snprintf(id, sizeof(id), "itestinit%012d", (int) getpid());

    if (sbx_cgroup_session_create(cg, id, &init_config.limits, 0, &cs, &e)
        == -1)
    {
        printf("# %s: %s\n", e.text, strerror(e.err));
        sbx_cgroup_close(cg);
        return skip_all("no groups can be made");
    }

    init_start(&s);

    test_usage();
    test_timeout();
    test_hang_up();
    test_memory();
    test_cpu();
    test_full();
    test_processes();

    ok(init_stop(&s), "the session ends");

    while (sbx_cgroup_session_remove(cs, &e) == 1) {
        (void) usleep(5000);
    }

    sbx_cgroup_close(cg);

    return done_testing();
}
