/* The session's own log, and its variables. */

#include "process_test.h"

#include <time.h>


#define LINES   (SBX_LINES_MAX + 8)


typedef struct {
    int64_t     time;
    uint32_t    level;
    char        text[1024];          /* message|KEY=VALUE|... */
} line_t;

static line_t    log_lines[LINES];
static unsigned  log_count;
static uint64_t  log_told;           /* by END */
static int       log_ended;


/* Takes the call to its end. */

static void
read_log(init_call_t *call)
{
    size_t          i, n;
    line_t         *line;
    sbx_frame_t     frame;
    const char     *message, *fields;
    const uint8_t  *p;
    sbx_f_end_t     end;
    sbx_f_line_t    head;

    log_count = 0;
    log_ended = 0;

    while (!log_ended && init_next(call, &frame, &p, NULL, INIT_WAIT) == 1) {

        if (frame.type == SBX_F_END) {
            memcpy(&end, p, sizeof(end));
            log_told = end.count;
            log_ended = 1;
        }

        if (frame.type != SBX_F_LINE) {
            continue;
        }

        if (sbx_wire_check_line(p, frame.length, &head, &message, &fields)
            != 0 || log_count == LINES)
        {
            printf("Bail out! a line is malformed\n");
            exit(1);
        }

        line = &log_lines[log_count++];
        line->time = head.time;
        line->level = head.level;
        n = head.message_len;
        memcpy(line->text, message, n);

        if (head.fields_len != 0) {
            line->text[n] = '|';
            memcpy(line->text + n + 1, fields, head.fields_len);

            for (i = n; i <= n + head.fields_len; i++) {
                if (line->text[i] == '\0') {
                    line->text[i] = '|';
                }
            }

            line->text[i] = '\0';

        } else {
            line->text[n] = '\0';
        }
    }

    init_hang_up(call);
}


static void
look(void)
{
    init_call_t  call;

    init_call(&s, SBX_OP_LOG, NULL, NULL, 0, &call);
    read_log(&call);
}


/* How many lines hold a text, and which is the last. */

static unsigned
lines(const char *text, const line_t **last)
{
    unsigned  i, n;

    if (last != NULL) {
        *last = &log_lines[0];
    }

    for (i = 0, n = 0; i < log_count; i++) {
        if (strstr(log_lines[i].text, text) != NULL) {
            n++;

            if (last != NULL) {
                *last = &log_lines[i];
            }
        }
    }

    return n;
}


static void
test_lines(void)
{
    int              i, pid;
    char             text[256], wide[512];
    init_exec_t      x = { 0 };
    const line_t    *line;
    struct timespec  now;

    look();
    ok(log_ended && log_count == 1 && log_told == 1
       && strcmp(log_lines[0].text, "session started") == 0
       && log_lines[0].level == SBX_LINE_INFO,
       "a new session's log is that it has started");
    (void) clock_gettime(CLOCK_REALTIME, &now);
    ok(log_lines[0].time > (int64_t) (now.tv_sec - 60) * 1000
       && log_lines[0].time <= (int64_t) (now.tv_sec + 1) * 1000, "when");

    x.tag = "blue";
    x.user = SBX_USER_ROOT;
    x.argv = (const char *[]) { "/bin/sh", "-c", "exit 3", NULL };
    init_exec(&s, &x, &r);
    look();
    (void) snprintf(text, sizeof(text),
                    "command started|pid=%d|cmd=/bin/sh -c exit 3|user=root"
                    "|tag=blue|", r.pid);
    is_int(lines(text, NULL), 1, "a command has started");
    (void) snprintf(text, sizeof(text),
                    "command ended|pid=%d|exit_code=3|reason=exited"
                    "|duration_ms=", r.pid);
    is_int(lines(text, &line), 1, "and ended");
    ok(line->level == SBX_LINE_INFO, "by itself");

    /* 199 bytes, and then a character of two */

    memset(wide, 'x', 185);
    (void) strcpy(wide + 185, "\xc3\xa9zzz");
    x = (init_exec_t) { 0 };
    x.argv = (const char *[]) { "/bin/sh", "-c", "true", wide, NULL };
    init_exec(&s, &x, &r);
    look();
    ok(lines("cmd=/bin/sh -c true xxx", &line) == 1
       && strstr(line->text, "x|user=user|") != NULL
       && strchr(line->text, 0xc3) == NULL
       && strstr(line->text, "tag=") == NULL,
       "a long one is cut, between characters");

    x.argv = (const char *[]) { "/nowhere", NULL };
    init_exec(&s, &x, &r);
    look();
    ok(lines("exit_code=127|reason=not_started|", &line) == 1
       && line->level == SBX_LINE_WARN, "one that cannot be run");

    pid = background("echo begun; exec sleep 60", NULL);
    whole(SBX_PROCESS_SIGNAL, pid, &(sbx_f_process_t) { .signal = SIGKILL });
    ok(a.r.ended == SBX_F_END, "one is killed");
    (void) snprintf(text, sizeof(text), "kill -0 %d && echo alive", pid);
    init_shell(&s, text, &r);
    ok(r.exit.exit_code == 1 && r.out == NULL,
       "and is not alive for who has been told so");
    whole(SBX_PROCESS_GET, pid, NULL);
    ok(a.state.flags & SBX_STATE_EXITED, "it has its result");
    look();
    (void) snprintf(text, sizeof(text), "command ended|pid=%d|exit_code=137"
                    "|reason=signal|", pid);
    is_int(lines(text, NULL), 1, "which is logged");

    for (i = 1; i < (int) log_count && log_lines[i].time
                                       >= log_lines[i - 1].time; i++)
    { /* void */ }

    is_int(i, log_count, "oldest first");
}


/* The group's file says so, and the file is the test's. */

static void
test_memory(void)
{
    int           fd;
    char          text[64];
    init_exec_t   x = { 0 };
    const line_t *line;

    fd = memfd_create("events", MFD_CLOEXEC);
    (void) sbx_write_all(fd, "oom_kill 1\n", 11);
    x.argv = (const char *[]) { "/bin/sleep", "60", NULL };
    x.task.fds = SBX_TASK_FD_OOM;
    x.fds = &fd;
    x.nfds = 1;
    init_exec(&s, &x, &r);
    (void) close(fd);
    is_int(r.exit.reason, SBX_REASON_MEMORY, "one without memory");
    look();
    (void) snprintf(text, sizeof(text), "out of memory|pid=%d|", r.pid);
    ok(lines(text, &line) == 1 && line->level == SBX_LINE_ERROR,
       "is told of");
}


static void
test_paused(void)
{
    init_task(&s, SBX_OP_FREEZE, NULL, -1, NULL, 0);
    look();
    ok(log_ended && lines("session paused", NULL) == 1,
       "the log is there while the session is paused");
    is_int(lines("session resumed", NULL), 0, "which it is");
    init_task(&s, SBX_OP_THAW, NULL, -1, NULL, 0);
    look();
    ok(lines("session paused", NULL) == 1
       && lines("session resumed", NULL) == 1, "and is no longer");
}


/* More lines than are kept, and one who does not read them. */

static void
test_many(void)
{
    int           i, size;
    init_exec_t   x = { 0 };
    init_call_t   slow, mute;

    init_call(&s, SBX_OP_LOG, NULL, NULL, 0, &mute);
    x.argv = (const char *[]) { "/bin/true",
        "0123456789012345678901234567890123456789012345678901234567890123456"
        "7890123456789012345678901234567890123456789012345678901234567890123"
        "456789", NULL };
    x.tag = "many";

    for (i = 0; i < 460; i++) {
        init_exec(&s, &x, &r);
        init_records(&s, 0);
    }

    look();
    ok(log_ended && log_count < SBX_LINES_MAX && log_count > 600
       && log_told == log_count, "what takes too much room is not kept");
    is_int(lines("session started", NULL), 0, "the oldest goes");
    ok(strstr(log_lines[log_count - 1].text, "command ended") != NULL,
       "the newest stays");

    x.argv = (const char *[]) { "/bin/true", NULL };
    x.tag = NULL;

    for (i = 0; i < 520; i++) {
        init_exec(&s, &x, &r);
        init_records(&s, 0);
    }

    look();
    is_int(log_count, SBX_LINES_MAX, "nor are too many");

    /* its socket holds less than that */

    init_call(&s, SBX_OP_LOG, NULL, NULL, 0, &slow);
    size = 4096;
    (void) setsockopt(slow.fd, SOL_SOCKET, SO_RCVBUF, &size, sizeof(size));

    for (i = 0; i < 40; i++) {
        init_exec(&s, &x, &r);
        init_records(&s, 0);
    }

    read_log(&slow);
    ok(log_ended && log_count <= SBX_LINES_MAX && log_told == log_count
       && lines("command", NULL) == log_count,
       "a slow one is told what there still is (%u)", log_count);
    init_hang_up(&mute);
    look();
    ok(log_ended, "one that never read holds up nobody");
}


static void
test_env(void)
{
    int              type;
    size_t           n;
    char            *got;
    sbx_frame_t      frame;
    init_call_t      call;
    const uint8_t   *p;

    init_call(&s, SBX_OP_ENV, NULL, NULL, 0, &call);
    got = calloc(1, init_env_size);
    type = 0;
    n = 0;

    while (type != SBX_F_END
           && init_next(&call, &frame, &p, NULL, INIT_WAIT) == 1)
    {
        type = frame.type;

        if (type == SBX_F_STRINGS && n + frame.length <= init_env_size) {
            memcpy(got + n, p, frame.length);
            n += frame.length;
        }
    }

    ok(type == SBX_F_END && n == init_env_size
       && memcmp(got, init_env, n) == 0, "the session's variables");
    free(got);
    init_hang_up(&call);
}


int
main(void)
{
    static char  env[40000];

    if (geteuid() != 0) {
        return skip_all("needs root");
    }

    memset(env, 'v', sizeof(env) - 1);
    memcpy(env, "COLOUR=blue\0BIG=", 16);
    init_env = env;
    init_env_size = sizeof(env);
    init_defaults();
    init_start(&s);

    test_lines();
    test_memory();
    test_paused();
    test_env();
    test_many();

    ok(init_stop(&s), "the session ends");

    return done_testing();
}
