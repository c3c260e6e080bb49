/*
 * Writes the seeds that have structures in them, as "seed-..." below
 * t/fuzz/corpus/: to be run after a change of a layout ("make fuzz-seeds"),
 * by which the old ones mean something else.
 */

#include "broker.h"
#include "egress_wire.h"
#include "record.h"
#include "sandbox_task.h"
#include "wire.h"

#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>


static uint8_t  buf[1 << 20];
static size_t   len;
static size_t   message;              /* where the one that is made begins */


static void
add(const void *p, size_t n)
{
    memcpy(buf + len, p, n);
    len += n;
}


static void
byte(unsigned b)
{
    buf[len++] = (uint8_t) b;
}


/* A frame, and what follows its structure. */

static void
frame(unsigned type, const void *p, size_t n, const void *p2, size_t n2)
{
    len += sbx_wire_header(buf + len, (sbx_frame_type_t) type, n + n2);
    add(p, n);

    if (n2 != 0) {
        add(p2, n2);
    }
}


/* A message of the targets that take several: kind, how, length, bytes. */

static void
begin(unsigned kind, unsigned how)
{
    message = len;
    byte(kind);
    byte(how);
    len += 2;
}


static void
end(void)
{
    size_t  n;

    n = len - message - 4;
    buf[message + 2] = (uint8_t) n;
    buf[message + 3] = (uint8_t) (n >> 8);
}


static void
save(const char *target, const char *name)
{
    int   fd;
    char  path[256];

    (void) snprintf(path, sizeof(path), "t/fuzz/corpus/%s", target);
    (void) mkdir(path, 0755);
    (void) snprintf(path, sizeof(path), "t/fuzz/corpus/%s/seed-%s", target,
                    name);
    fd = open(path, O_WRONLY|O_CREAT|O_TRUNC|O_CLOEXEC, 0644);

    if (fd == -1 || write(fd, buf, len) != (ssize_t) len || close(fd) == -1) {
        perror(path);
        exit(1);
    }

    len = 0;
}


/* ---- init --------------------------------------------------------------- */


static void
exec_frames(uint32_t flags)
{
    sbx_f_exec_t  exec;

    static const char  strings[] = "/workspace\0/bin/sh\0-c\0true\0A=b";

    memset(&exec, 0, sizeof(exec));
    exec.flags = flags;
    exec.argc = 3;
    exec.envc = 1;
    exec.strings_size = sizeof(strings);
    exec.timeout = SBX_UNSET;
    exec.max_output = SBX_UNSET;
    exec.cpu_seconds = SBX_UNSET;
    exec.max_file_size = SBX_UNSET;
    exec.open_files = SBX_UNSET;
    exec.stack = SBX_UNSET;
    (void) strcpy(exec.tag, "t");
    frame(SBX_F_EXEC, &exec, sizeof(exec), NULL, 0);
    frame(SBX_F_STRINGS, strings, sizeof(strings), NULL, 0);
}


static void
process_frame(uint32_t verb, int32_t pid)
{
    sbx_f_process_t  ask;

    memset(&ask, 0, sizeof(ask));
    ask.verb = verb;
    ask.pid = pid;
    ask.signal = 15;
    ask.rows = 24;
    ask.cols = 80;
    frame(SBX_F_PROCESS, &ask, sizeof(ask), NULL, 0);
}


static void
code_frames(uint32_t verb, const char *context, const char *language)
{
    char          names[64];
    sbx_f_code_t  code;

    memset(&code, 0, sizeof(code));
    code.verb = verb;
    code.context_len = (uint32_t) strlen(context);
    code.language_len = (uint32_t) strlen(language);
    code.timeout = SBX_UNSET;
    code.max_output = SBX_UNSET;

    if (verb == SBX_CODE_RUN) {
        code.envc = 1;
        code.code_size = 5;
        code.strings_size = 9;
    }

    (void) snprintf(names, sizeof(names), "%s%s", context, language);
    frame(SBX_F_CODE, &code, sizeof(code), names, strlen(names));

    if (verb == SBX_CODE_RUN) {
        frame(SBX_F_STRINGS, "x = 1A=b", 9, NULL, 0);
    }
}


static void
init_seeds(void)
{
    sbx_f_port_t  port;
    sbx_limits_t  limits;

    begin(0, 0);
    exec_frames(0);
    frame(SBX_F_STDIN, "in", 2, NULL, 0);
    frame(SBX_F_STDIN, "", 0, NULL, 0);
    end();
    begin(1, 0);
    process_frame(SBX_PROCESS_LIST, 0);
    end();
    save("init", "exec");

    begin(0, 0x51);
    exec_frames(SBX_EXEC_BACKGROUND|SBX_EXEC_STDIN_OPEN|SBX_EXEC_DETACH);
    end();
    begin(0, 0);
    exec_frames(SBX_EXEC_TTY|SBX_EXEC_MERGE|SBX_EXEC_CAP);
    process_frame(SBX_PROCESS_RESIZE, 0);
    end();
    begin(4, 0);
    end();
    save("init", "background");

    begin(1, 0);
    process_frame(SBX_PROCESS_GET, 7);
    end();
    begin(1, 0x40);
    process_frame(SBX_PROCESS_OUTPUT, 7);
    end();
    begin(1, 1);
    process_frame(SBX_PROCESS_STDIN, 7);
    frame(SBX_F_STDIN, "in", 2, NULL, 0);
    end();
    begin(5, 0);
    end();
    begin(6, 0);
    end();
    begin(11, 0);
    end();
    save("init", "process");

    begin(2, 0);
    code_frames(SBX_CODE_RUN, "", "python");
    end();
    begin(7, 0x30);
    end();
    begin(2, 0x40);
    code_frames(SBX_CODE_CREATE, "", "bash");
    end();
    begin(7, 0x10);
    end();
    begin(2, 0);
    code_frames(SBX_CODE_LIST, "", "");
    end();
    begin(2, 0);
    code_frames(SBX_CODE_DELETE, "python", "");
    end();
    begin(2, 0);
    code_frames(SBX_CODE_RESTART, "python", "");
    end();
    save("init", "code");

    sbx_limits_clear(&limits);
    memset(&port, 0, sizeof(port));
    port.port = 8080;
    begin(9, 0);
    add(&limits, sizeof(limits));
    end();
    begin(3, 0);
    frame(SBX_F_PORT, &port, sizeof(port), NULL, 0);
    end();
    begin(8, 0);
    byte(0);
    end();
    begin(10, 0);
    byte(2);
    end();
    begin(12, 0);
    end();
    begin(13, 0);
    end();
    begin(14, 0);
    end();
    begin(15, 0);
    end();
    save("init", "tasks");
}


/* ---- what survives ------------------------------------------------------ */


static void
state_seeds(void)
{
    sbx_grave_t         grave;
    sbx_record_head_t   head;

    static const char  meta[] = "{\"a\":1}", env[] = "A=b",
                       rules[] = "aa.org";

    memset(&head, 0, sizeof(head));
    (void) strcpy(head.info.id, "i00000000000000000000");
    (void) strcpy(head.info.tenant, "acme");
    (void) strcpy(head.info.user, "alice");
    (void) strcpy(head.info.template, "base");
    (void) strcpy(head.key, "key");
    head.info.meta_size = head.meta_size = sizeof(meta) - 1;
    head.env_size = sizeof(env);
    head.info.network_size = head.network_size = sizeof(rules);
    head.info.network = SBX_NETWORK_LISTS;
    byte(0);
    add(&head, sizeof(head));
    add(meta, sizeof(meta) - 1);
    add(env, sizeof(env));
    add(rules, sizeof(rules));
    save("state", "record");

    memset(&head, 0, sizeof(head));
    (void) strcpy(head.info.id, "i00000000000000000000");
    head.pooled = 1;
    byte(0);
    add(&head, sizeof(head));
    save("state", "pooled");

    memset(&grave, 0, sizeof(grave));
    (void) strcpy(grave.id, "i11111111111111111111");
    (void) strcpy(grave.tenant, "acme");
    (void) strcpy(grave.user, "alice");
    grave.ended = SBX_ENDED_IDLE;
    byte(0);
    add(&grave, sizeof(grave));
    add(&grave, sizeof(grave));
    grave.id[4] = '2';
    add(&grave, sizeof(grave));
    save("ended", "three");
}


/* The layout is quota_file.c's own, and as this. */

static void
quota_seeds(void)
{
    unsigned         i;
    sbx_setting_t    setting;
    sbx_quota_row_t  row;

    struct {
        uint32_t     magic, version;
        uint64_t     sum, size;
        uint32_t     count, pad;
    } head;

    memset(&head, 0, sizeof(head));
    memset(&setting, 0, sizeof(setting));
    byte(1);
    add(&head, sizeof(head));
    add(&setting, sizeof(setting));

    for (i = 0; i < SBX_SETTINGS; i++) {
        add(&setting, sizeof(setting));
    }

    for (i = 0; i < 2; i++) {
        memset(&row, 0, sizeof(row));
        (void) strcpy(row.tenant, "acme");
        (void) strcpy(row.user, i ? "alice" : "");
        sbx_quota_clear(&row.limits);
        add(&row, sizeof(row));
        memset(buf + len, 0, sizeof(int64_t) + SBX_BY_MAX + 8);
        len += sizeof(int64_t) + SBX_BY_MAX + 8;
    }

    save("state", "quotas");
}


/* ---- who takes a keeper's place ----------------------------------------- */

/* The numbers of broker.c and heir.c. */
enum { SAY_CREATE = 1, SAY_TIME = 7, SAY_CRASH = 8 };
enum { HEIR_REPLACE = 0x80, HEIR_FULL, HEIR_RECORD, HEIR_CHECK };

static void
say(unsigned kind, unsigned how, unsigned a, unsigned b, unsigned c)
{
    begin(kind, how);
    byte(a);
    byte(b);
    byte(c);
    end();
}


/* Three of them, one with a network; the record of each is written. */

static void
heir_sessions(void)
{
    unsigned  i;

    static const char  parts[] = "{}\036\036\036";

    for (i = 0; i < 3; i++) {
        begin(SAY_CREATE, 0);
        byte(0);
        byte(2 * (i & 1));
        byte(0x17 + 16 * i);
        byte(0);
        byte(4 + (i == 2));
        byte(0);
        byte(0);
        byte(0);
        add(parts, sizeof(parts) - 1);
        end();
    }
}


static void
heir_seeds(void)
{
    unsigned  how;

    heir_sessions();
    say(HEIR_REPLACE, 0, 0, 0, 0);
    say(HEIR_CHECK, 0, 0, 0, 0);
    say(SAY_CRASH, 1, 0, 0, 0);
    say(HEIR_CHECK, 0, 0, 0, 0);
    heir_sessions();
    say(HEIR_REPLACE, 0, 0, 0, 0);
    say(SAY_TIME, 22, 2, 0, 0);
    say(HEIR_CHECK, 0, 0, 0, 0);
    save("heir", "sound");

    for (how = 1; how <= 8; how++) {
        if (how % 3 == 1) {
            heir_sessions();
        }

        say(HEIR_REPLACE, how, 7, 2 * how - 1, 8);
        say(HEIR_CHECK, 0, 0, 0, 0);
        say(HEIR_REPLACE, how, 8, how, 6);
        say(SAY_TIME, 22, 2, 0, 0);
    }

    save("heir", "spoilt");

    for (how = 9; how <= 12; how++) {
        heir_sessions();
        say(HEIR_REPLACE, how, 3, 90 + how, 0);
        say(HEIR_CHECK, 0, 0, 0, 0);
    }

    save("heir", "unread");

    heir_sessions();
    say(HEIR_FULL, 1, 0, 0, 0);
    heir_sessions();
    say(SAY_TIME, 20, 1, 0, 0);
    say(HEIR_CHECK, 0, 0, 0, 0);
    say(HEIR_REPLACE, 0, 0, 0, 0);
    say(HEIR_FULL, 1, 0, 0, 0);
    heir_sessions();
    say(HEIR_FULL, 0, 0, 0, 0);
    say(SAY_TIME, 20, 1, 0, 0);
    say(SAY_TIME, 20, 1, 0, 0);
    say(HEIR_CHECK, 0, 0, 0, 0);
    say(SAY_CRASH, 1, 0, 0, 0);
    say(HEIR_CHECK, 0, 0, 0, 0);
    save("heir", "full");

    for (how = 0; how < 4; how++) {
        heir_sessions();
        say(HEIR_RECORD, how, 0, 1, 2);
        say(how & 1 ? HEIR_REPLACE : SAY_CRASH, 0, 0, 0, 0);
        say(HEIR_CHECK, 0, 0, 0, 0);
    }

    save("heir", "records");
}


/* ---- the checks of the wire --------------------------------------------- */


/* One of each datagram: all that a check of strings looks at is empty. */

static void
call_seeds(void)
{
    size_t      i;
    char        name[32];
    sbx_call_t  call;

    static const struct {
        uint16_t  op;
        size_t    body;
    } ops[] = {
        { SBX_OP_HELLO_CONTROL, 0 }, { SBX_OP_CREATE, sizeof(sbx_create_t) },
        { SBX_OP_LIST, sizeof(sbx_list_t) },
        { SBX_OP_QUOTA_SET, sizeof(sbx_quota_set_t) },
        { SBX_OP_QUOTA_LIST, sizeof(sbx_quota_list_t) },
        { SBX_OP_SETTINGS_SET, sizeof(sbx_settings_set_t) },
        { SBX_OP_DRAIN, sizeof(sbx_drain_t) },
        { SBX_OP_DESTROY_ALL, sizeof(sbx_destroy_all_t) },
        { SBX_OP_PATCH, sizeof(sbx_patch_t) },
        { SBX_OP_SAMPLES, sizeof(sbx_samples_t) },
        { SBX_OP_END, sizeof(sbx_end_t) },
        { SBX_OP_EXEC, sizeof(sbx_exec_limits_t) }
    };

    for (i = 0; i < sizeof(ops) / sizeof(ops[0]); i++) {
        memset(&call, 0, sizeof(call));
        call.op = ops[i].op;
        (void) strcpy(call.session, "i00000000000000000000");
        (void) strcpy(call.tenant, "acme");
        (void) strcpy(call.user, "alice");
        byte(0);
        add(&call, sizeof(call));
        memset(buf + len, 0, ops[i].body);
        len += ops[i].body;
        (void) snprintf(name, sizeof(name), "call-%u", ops[i].op);
        save("wire-check", name);
    }
}


/* A structure, then what it tells of. */

static void
shape(unsigned check, const char *name, const void *p, size_t n,
    const char *rest, size_t rest_len)
{
    byte(check);
    add(p, n);
    add(rest, rest_len);
    save("wire-check", name);
}


static void
check_seeds(void)
{
    sbx_task_t       task;
    sbx_f_file_t     file;
    sbx_f_entry_t    entry;
    sbx_f_change_t   change;
    sbx_f_match_t    match;
    sbx_f_state_t    state;
    sbx_f_code_t     code;
    sbx_f_context_t  context;
    sbx_f_field_t    field;
    sbx_f_line_t     line;
    sbx_f_result_t   result;
    sbx_f_ran_t      ran;

    memset(&task, 0, sizeof(task));
    task.op = SBX_OP_EXEC;
    task.attach_count = 1;
    task.fds = SBX_TASK_FD_ATTACH;
    shape(1, "task", &task, sizeof(task), "", 0);

    memset(&file, 0, sizeof(file));
    file.verb = SBX_FILE_MOVE;
    file.path_len = 2;
    file.path2_len = 2;
    file.metadata_len = 4;
    shape(2, "file", &file, sizeof(file), "/a/bk\0v", 8);
    file.verb = SBX_FILE_COMPOSE;
    shape(2, "compose", &file, sizeof(file), "/ab\0k\0v", 8);

    memset(&entry, 0, sizeof(entry));
    entry.path_len = 2;
    entry.owner_len = 1;
    entry.group_len = 1;
    entry.target_len = 1;
    entry.metadata_len = 4;
    shape(3, "entry", &entry, sizeof(entry), "/aogtk\0v", 9);

    memset(&change, 0, sizeof(change));
    change.path_len = 2;
    shape(4, "change", &change, sizeof(change), "/a", 2);

    memset(&match, 0, sizeof(match));
    match.path_len = 2;
    match.text_len = 1;
    shape(5, "match", &match, sizeof(match), "/at", 3);

    memset(&state, 0, sizeof(state));
    state.cwd_len = 1;
    state.tag_len = 1;
    state.argc = 2;
    state.args_len = 4;
    state.envc = 1;
    state.env_len = 4;
    shape(6, "state", &state, sizeof(state), "/ta\0b\0A=b", 10);

    memset(&code, 0, sizeof(code));
    code.verb = SBX_CODE_RUN;
    code.context_len = 1;
    code.language_len = 1;
    code.cwd_len = 1;
    shape(7, "code", &code, sizeof(code), "cl/", 3);

    memset(&context, 0, sizeof(context));
    context.id_len = 1;
    context.language_len = 1;
    context.cwd_len = 1;
    shape(8, "context", &context, sizeof(context), "cl/", 3);

    memset(&field, 0, sizeof(field));
    field.size = 5;
    field.name_len = 4;
    shape(9, "field", &field, sizeof(field), "text", 4);

    memset(&line, 0, sizeof(line));
    line.message_len = 1;
    line.fields_len = 4;
    shape(10, "line", &line, sizeof(line), "mA=b", 5);

    memset(&result, 0, sizeof(result));
    shape(11, "result", &result, sizeof(result), "", 0);

    memset(&ran, 0, sizeof(ran));
    shape(12, "ran", &ran, sizeof(ran), "", 0);
}


int
main(void)
{
    call_seeds();
    check_seeds();
    init_seeds();
    state_seeds();
    quota_seeds();
    heir_seeds();

    return 0;
}
