/*
 * The checks of control datagrams and of frames with strings.  What passes
 * is read to its end, as a receiver would: the sanitizers see any length that
 * was believed wrongly.  The first byte chooses the check; its highest bit
 * leaves magic, version and size of a datagram as they are, which are put
 * right else: nothing behind them would be reached.
 */

#include "fuzz.h"
#include "sandbox_util.h"
#include "wire.h"


static void mend(uint8_t *p, size_t n, size_t size_at);
static void check_call(uint8_t *p, size_t n);
static void check_task(uint8_t *p, size_t n);
static void check_file(uint8_t *p, size_t n);
static void check_entry(uint8_t *p, size_t n);
static void check_change(uint8_t *p, size_t n);
static void check_match(uint8_t *p, size_t n);
static void check_state(uint8_t *p, size_t n);
static void check_code(uint8_t *p, size_t n);
static void check_context(uint8_t *p, size_t n);
static void check_field(uint8_t *p, size_t n);
static void check_line(uint8_t *p, size_t n);
static void check_result(uint8_t *p, size_t n);
static void check_ran(uint8_t *p, size_t n);


static void (*const checks[])(uint8_t *p, size_t n) = {
    check_call, check_task, check_file, check_entry, check_change,
    check_match, check_state, check_code, check_context, check_field,
    check_line, check_result, check_ran
};

static volatile uint32_t  sink;


int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    uint8_t  *copy;

    if (size < 1) {
        return 0;
    }

    /* its own allocation: aligned, and with an end that is watched */

    copy = malloc(size - 1);

    if (copy == NULL) {
        return 0;
    }

    memcpy(copy, data + 1, size - 1);

    if (data[0] < 0x80 && checks[data[0] % sbx_nelts(checks)] == check_call) {
        mend(copy, size - 1, offsetof(sbx_call_t, size));

    } else if (data[0] < 0x80
               && checks[data[0] % sbx_nelts(checks)] == check_task)
    {
        mend(copy, size - 1, SIZE_MAX);
    }

    checks[data[0] % sbx_nelts(checks)](copy, size - 1);
    free(copy);

    return 0;
}


/* Both begin alike: magic, version. */

static void
mend(uint8_t *p, size_t n, size_t size_at)
{
    uint16_t  version;
    uint32_t  magic, size;

    magic = SBX_WIRE_MAGIC;
    version = SBX_WIRE_VERSION;
    size = (uint32_t) n;

    if (n >= sizeof(magic) + sizeof(version)) {
        memcpy(p, &magic, sizeof(magic));
        memcpy(p + sizeof(magic), &version, sizeof(version));
    }

    if (size_at != SIZE_MAX && n >= size_at + sizeof(size)) {
        memcpy(p + size_at, &size, sizeof(size));
    }
}


static void
touch(const char *s, uint32_t n)
{
    uint32_t  i;

    for (i = 0; i < n; i++) {
        sink += (uint8_t) s[i];
    }
}


static void
check_call(uint8_t *p, size_t n)
{
    sbx_error_t  e;
    sbx_call_t   call;

    if (sbx_wire_check_call(p, n, &e) != 0) {
        return;
    }

    memcpy(&call, p, sizeof(sbx_call_t));

    if (call.size != n
        || (call.session[0] != '\0'
            && !sbx_session_id_ok(call.session, strlen(call.session)))
        || strlen(call.tenant) > SBX_NAME_MAX
        || strlen(call.user) > SBX_NAME_MAX
        || ((call.needs | call.bars) & ~(uint32_t) SBX_CREATE_FLAGS) != 0)
    {
        abort();
    }
}


static void
check_task(uint8_t *p, size_t n)
{
    sbx_error_t  e;

    if (sbx_wire_check_task(p, n, &e) == 0 && n < sizeof(sbx_task_t)) {
        abort();
    }
}


/* Keys and values, of which each has its end. */

static void
check_pairs(const char *p, size_t n)
{
    size_t  i;

    for (i = 0; i < n; /* void */ ) {
        if (p[i] == '\0') {
            abort();
        }

        i += strlen(p + i) + 1;
        i += strlen(p + i) + 1;
    }

    if (i != n) {
        abort();
    }
}


static void
check_file(uint8_t *p, size_t n)
{
    const char    *path, *path2;
    sbx_f_file_t   file;

    if (sbx_wire_check_file(p, n, &file, &path, &path2) == 0) {
        touch(path, file.path_len);
        touch(path2, file.path2_len);
        check_pairs(sbx_wire_file_metadata(&file, path), file.metadata_len);
    }
}


static void
check_entry(uint8_t *p, size_t n)
{
    const char     *path, *owner, *group, *target;
    sbx_f_entry_t   entry;

    if (sbx_wire_check_entry(p, n, &entry, &path, &owner, &group, &target)
        == 0)
    {
        touch(path, entry.path_len);
        touch(owner, entry.owner_len);
        touch(group, entry.group_len);
        touch(target, entry.target_len);
        check_pairs(sbx_wire_entry_metadata(&entry, target),
                    entry.metadata_len);
    }
}


static void
check_change(uint8_t *p, size_t n)
{
    const char      *path;
    sbx_f_change_t   change;

    if (sbx_wire_check_change(p, n, &change, &path) == 0) {
        touch(path, change.path_len);
    }
}


static void
check_match(uint8_t *p, size_t n)
{
    const char     *path, *text;
    sbx_f_match_t   match;

    if (sbx_wire_check_match(p, n, &match, &path, &text) == 0) {
        touch(path, match.path_len);
        touch(text, match.text_len);
    }
}


static void
check_state(uint8_t *p, size_t n)
{
    uint32_t        i;
    const char     *cwd, *tag, *args;
    sbx_f_state_t   state;

    if (sbx_wire_check_state(p, n, &state, &cwd, &tag, &args) != 0) {
        return;
    }

    touch(cwd, state.cwd_len);
    touch(tag, state.tag_len);

    /* as many strings as are told, which fill what is told */

    for (i = 0, n = 0; i < state.argc; i++) {
        n += strlen(args + n) + 1;
    }

    if (n != state.args_len) {
        abort();
    }

    args = sbx_wire_state_env(&state, args);

    for (i = 0, n = 0; i < state.envc; i++) {
        n += strlen(args + n) + 1;
    }

    if (n != state.env_len) {
        abort();
    }
}


static void
check_line(uint8_t *p, size_t n)
{
    const char    *message, *fields;
    sbx_f_line_t   line;

    if (sbx_wire_check_line(p, n, &line, &message, &fields) != 0) {
        return;
    }

    touch(message, line.message_len);
    touch(fields, line.fields_len);

    if (line.fields_len != 0 && fields[line.fields_len - 1] != '\0') {
        abort();
    }
}


static void
check_code(uint8_t *p, size_t n)
{
    const char    *context, *language, *cwd;
    sbx_f_code_t   code;

    if (sbx_wire_check_code(p, n, &code, &context, &language, &cwd) == 0) {
        touch(context, code.context_len);
        touch(language, code.language_len);
        touch(cwd, code.cwd_len);
    }
}


static void
check_context(uint8_t *p, size_t n)
{
    const char       *id, *language, *cwd;
    sbx_f_context_t   context;

    if (sbx_wire_check_context(p, n, &context, &id, &language, &cwd) == 0) {
        touch(id, context.id_len);
        touch(language, context.language_len);
        touch(cwd, context.cwd_len);
    }
}


static void
check_field(uint8_t *p, size_t n)
{
    const char     *name;
    sbx_f_field_t   field;

    if (sbx_wire_check_field(p, n, &field, &name) == 0) {
        touch(name, field.name_len);
    }
}


static void
check_result(uint8_t *p, size_t n)
{
    sbx_f_result_t  result;

    if (sbx_wire_check_result(p, n, &result) == 0) {
        must(result.kind <= SBX_RESULT_ERROR && n == sizeof(result));
    }
}


static void
check_ran(uint8_t *p, size_t n)
{
    sbx_f_ran_t  ran;

    if (sbx_wire_check_ran(p, n, &ran) == 0) {
        must(strlen(sbx_reason_word((sbx_reason_t) ran.reason)) != 0
             && n == sizeof(ran));
    }
}
