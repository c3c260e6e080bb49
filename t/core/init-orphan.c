/*
 * What commands leave behind in their groups: it is listed, can be signalled
 * and is ended by a cancel.
 */

#include "isolate.h"

#include "init_test.h"

#include <time.h>


static init_session_t         s;
static init_result_t          r;
static sbx_cgroup_t          *cg;
static sbx_cgroup_session_t  *cs;
static uint32_t               number;


typedef struct {
    unsigned       orphans;
    unsigned       results;
    sbx_f_state_t  orphan;           /* the last one */
    char           name[64];
    char           cwd[256];
    char           tag[SBX_TAG_MAX + 1];
    init_result_t  r;
} list_t;


static list_t  l;


static void
finish(init_call_t *call)
{
    sbx_frame_t     frame;
    sbx_f_state_t   state;
    const char     *cwd, *tag, *args;
    const uint8_t  *p;

    memset(&l, 0, sizeof(l));

    while (!l.r.ended && init_next(call, &frame, &p, NULL, INIT_WAIT) == 1) {

        if (frame.type == SBX_F_END) {
            memcpy(&l.r.end, p, sizeof(l.r.end));
            l.r.ended = SBX_F_END;
        }

        if (frame.type == SBX_F_ERROR) {
            memcpy(&l.r.error, p, sizeof(l.r.error));
            l.r.ended = SBX_F_ERROR;
        }

        if (frame.type != SBX_F_STATE) {
            continue;
        }

        if (sbx_wire_check_state(p, frame.length, &state, &cwd, &tag, &args)
            != 0)
        {
            printf("Bail out! a state is malformed\n");
            exit(1);
        }

        if (state.kind != SBX_KIND_ORPHAN) {
            l.results++;
            continue;
        }

        l.orphans++;
        l.orphan = state;
        (void) snprintf(l.name, sizeof(l.name), "%s", args);
        (void) sbx_copy_string(l.cwd, sizeof(l.cwd), cwd, state.cwd_len);
        (void) sbx_copy_string(l.tag, sizeof(l.tag), tag, state.tag_len);
    }

    init_hang_up(call);
}


static void
ask(uint32_t verb, int pid, int sig)
{
    init_call_t      call;
    sbx_f_process_t  p;

    memset(&p, 0, sizeof(p));
    p.verb = verb;
    p.pid = pid;
    p.signal = sig;
    p.rows = 1;
    p.cols = 1;

    init_call(&s, SBX_OP_PROCESS, NULL, NULL, 0, &call);
    init_send(call.fd, SBX_F_PROCESS, &p, sizeof(p));
    finish(&call);
}


static unsigned
orphans(unsigned wanted)
{
    int  i;

    for (i = 0; i < 2000; i++) {
        ask(SBX_PROCESS_LIST, 0, 0);

        if (l.orphans == wanted) {
            break;
        }

        (void) usleep(5000);
    }

    return l.orphans;
}


/* One command in a group of its own, to its end. */

static void
run(const char *script, sbx_cgroup_command_t **group)
{
    int          fds[SBX_TASK_FDS_MAX];
    unsigned     n;
    sbx_error_t  e;
    init_exec_t  x = { .tag = "blue" };
    init_call_t  call;

    if (sbx_cgroup_command_create(cs, ++number, group, &e) == -1) {
        printf("Bail out! %s\n", e.text);
        exit(1);
    }

    n = sbx_cgroup_command_fds(*group, fds, &x.task.fds,
                               &x.task.attach_count);
    x.task.processes = init_config.limits.processes;
    x.task.cpus = init_config.limits.cpus;
    x.fds = fds;
    x.nfds = n;
    x.argv = (const char *[]) { "/bin/sh", "-c", script, NULL };

    init_result_free(&r);
    init_exec_begin(&s, &x, &call);
    init_send(call.fd, SBX_F_STDIN, NULL, 0);

    while (n != 0) {
        (void) close(fds[--n]);
    }

    init_finish(&call, &r);
    init_hang_up(&call);
}


static void
clean(sbx_cgroup_command_t *group)
{
    int          i;
    sbx_error_t  e;

    for (i = 0; i < 2000 && sbx_cgroup_command_remove(group, &e) == 1; i++) {
        (void) usleep(5000);
    }
}


static void
test_left(void)
{
    int                    pid;
    sbx_cgroup_command_t  *one, *two, *none;

    run("true", &none);
    is_int(orphans(0), 0, "who leaves nothing behind leaves no orphan");
    clean(none);

    run("setsid sleep 71 >/dev/null 2>&1 & setsid sleep 72 &", &one);
    run("(setsid sleep 73 &)", &two);
    is_int(orphans(3), 3, "what commands left behind is listed");
    ok(l.results >= 3, "beside the results");
    is_str(l.name, "/bin/sh", "by its command's arguments");
    ok(strcmp(l.tag, "blue") == 0 && strcmp(l.cwd, "/home/user") == 0,
       "tag and directory");
    ok(l.orphan.pid > 1 && l.orphan.user == SBX_USER_USER
       && (l.orphan.flags & SBX_STATE_EXITED) == 0, "as what runs");
    ok(llabs(l.orphan.started / 1000 - (int64_t) time(NULL)) < 60,
       "since a moment ago");

    pid = l.orphan.pid;
    ask(SBX_PROCESS_GET, pid, 0);
    ok(l.orphans == 1 && l.orphan.pid == pid, "one can be asked for");

    ask(SBX_PROCESS_OUTPUT, pid, 0);
    ok(l.r.ended == SBX_F_ERROR && l.r.error.code == SBX_E_CONFLICT,
       "its output is not known");
    ask(SBX_PROCESS_STDIN, pid, 0);
    ok(l.r.ended == SBX_F_ERROR && l.r.error.code == SBX_E_CONFLICT,
       "nor its input");
    ask(SBX_PROCESS_RESIZE, pid, 0);
    ok(l.r.ended == SBX_F_ERROR && l.r.error.code == SBX_E_CONFLICT,
       "nor a terminal");

    ask(SBX_PROCESS_SIGNAL, pid, SIGTERM);
    is_int(l.r.ended, SBX_F_END, "it can be signalled");
    is_int(orphans(2), 2, "and has gone then");
    ask(SBX_PROCESS_GET, pid, 0);
    ok(l.r.ended == SBX_F_ERROR && l.r.error.code == SBX_E_PROCESS,
       "without a result");
    ask(SBX_PROCESS_SIGNAL, pid, SIGTERM);
    ok(l.r.ended == SBX_F_ERROR && l.r.error.code == SBX_E_PROCESS,
       "and without a signal");

    {
        init_call_t  call;

        init_call(&s, SBX_OP_CANCEL, NULL, NULL, 0, &call);
        finish(&call);
        ok(l.r.ended == SBX_F_END && l.r.end.count == 0,
           "a cancel counts commands");
    }

    is_int(orphans(0), 0, "and ends what they left behind");
    clean(one);
    clean(two);
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
    (void) snprintf(id, sizeof(id), "initorphan%d", (int) getpid());

    if (sbx_cgroup_open(NULL, id, &cg, &e) == -1) {
        return skip_all(e.text);
    }

    (void) snprintf(id, sizeof(id), "itestorph%012d", (int) getpid());

    if (sbx_cgroup_session_create(cg, id, &init_config.limits, 0, &cs, &e)
        == -1)
    {
        printf("# %s: %s\n", e.text, strerror(e.err));
        sbx_cgroup_close(cg);
        return skip_all("no groups can be made");
    }

    init_start(&s);
    test_left();
    ok(init_stop(&s), "the session ends");

    while (sbx_cgroup_session_remove(cs, &e) == 1) {
        (void) usleep(5000);
    }

    sbx_cgroup_close(cg);

    return done_testing();
}
