/*
 * Structural checks of what arrives: sizes, terminators, characters.  What a
 * value means is the receiver's to judge; here only that it can be read.
 */

#include "wire.h"

#include <stddef.h>
#include <string.h>


typedef struct {
    const char  *name;
    size_t       offset;
    size_t       size;
} sbx_wire_string_t;

typedef struct {
    uint16_t                  op;
    size_t                    body;      /* after sbx_call_t */
    const sbx_wire_string_t  *strings;   /* in the body */
} sbx_wire_shape_t;


static int sbx_wire_check_strings(const char *base,
    const sbx_wire_string_t *s, sbx_error_t *e);


#define STRING(type, field)                                                  \
    { #field, offsetof(type, field), sizeof(((type *) 0)->field) }

static const sbx_wire_string_t  sbx_wire_call_strings[] = {
    STRING(sbx_call_t, request_id),
    STRING(sbx_call_t, session),
    STRING(sbx_call_t, tenant),
    STRING(sbx_call_t, user),
    { NULL, 0, 0 }
};

static const sbx_wire_string_t  sbx_wire_config_strings[] = {
    STRING(sbx_config_t, template_dir),
    STRING(sbx_config_t, cgroup),
    STRING(sbx_config_t, storage_dir),
    { NULL, 0, 0 }
};

static const sbx_wire_string_t  sbx_wire_create_strings[] = {
    STRING(sbx_create_t, template),
    STRING(sbx_create_t, key),
    { NULL, 0, 0 }
};

static const sbx_wire_string_t  sbx_wire_list_strings[] = {
    STRING(sbx_list_t, template),
    { NULL, 0, 0 }
};

static const sbx_wire_string_t  sbx_wire_quota_strings[] = {
    STRING(sbx_quota_set_t, by),
    { NULL, 0, 0 }
};

static const sbx_wire_string_t  sbx_wire_settings_strings[] = {
    STRING(sbx_settings_set_t, by),
    { NULL, 0, 0 }
};

static const sbx_wire_string_t  sbx_wire_drain_strings[] = {
    STRING(sbx_drain_t, by),
    { NULL, 0, 0 }
};

static const sbx_wire_string_t  sbx_wire_destroy_all_strings[] = {
    STRING(sbx_destroy_all_t, by),
    { NULL, 0, 0 }
};

static const sbx_wire_string_t  sbx_wire_quota_list_strings[] = {
    STRING(sbx_quota_list_t, tenant),
    STRING(sbx_quota_list_t, user),
    { NULL, 0, 0 }
};

static const sbx_wire_string_t  sbx_wire_no_strings[] = {
    { NULL, 0, 0 }
};


static const sbx_wire_shape_t  sbx_wire_shapes[] = {
    { SBX_OP_HELLO_CONTROL, 0, sbx_wire_no_strings },
    { SBX_OP_HELLO_CONFIG, sizeof(sbx_config_t), sbx_wire_config_strings },
    { SBX_OP_HELLO_WATCH, 0, sbx_wire_no_strings },
    { SBX_OP_HEALTH, 0, sbx_wire_no_strings },
    { SBX_OP_DOCTOR, 0, sbx_wire_no_strings },
    { SBX_OP_CAPABILITIES, 0, sbx_wire_no_strings },
    { SBX_OP_TEMPLATES, 0, sbx_wire_no_strings },
    { SBX_OP_CREATE, sizeof(sbx_create_t), sbx_wire_create_strings },
    { SBX_OP_GET, 0, sbx_wire_no_strings },
    { SBX_OP_LIST, sizeof(sbx_list_t), sbx_wire_list_strings },
    { SBX_OP_DESTROY, 0, sbx_wire_no_strings },
    { SBX_OP_QUOTA_GET, 0, sbx_wire_no_strings },
    { SBX_OP_QUOTA_LIST, sizeof(sbx_quota_list_t),
      sbx_wire_quota_list_strings },
    { SBX_OP_QUOTA_SET, sizeof(sbx_quota_set_t), sbx_wire_quota_strings },
    { SBX_OP_SETTINGS_GET, 0, sbx_wire_no_strings },
    { SBX_OP_SETTINGS_SET, sizeof(sbx_settings_set_t),
      sbx_wire_settings_strings },
    { SBX_OP_DRAIN, sizeof(sbx_drain_t), sbx_wire_drain_strings },
    { SBX_OP_DESTROY_ALL, sizeof(sbx_destroy_all_t),
      sbx_wire_destroy_all_strings },
    { SBX_OP_PATCH, sizeof(sbx_patch_t), sbx_wire_no_strings },
    { SBX_OP_PAUSE, 0, sbx_wire_no_strings },
    { SBX_OP_RESUME, sizeof(sbx_patch_t), sbx_wire_no_strings },
    { SBX_OP_SAMPLES, sizeof(sbx_samples_t), sbx_wire_no_strings },
    { SBX_OP_END, sizeof(sbx_end_t), sbx_wire_no_strings },
    { SBX_OP_METRICS, 0, sbx_wire_no_strings },
    { SBX_OP_REFUSALS, 0, sbx_wire_no_strings },
    { SBX_OP_EXEC, sizeof(sbx_exec_limits_t), sbx_wire_no_strings },
    { SBX_OP_FILE, 0, sbx_wire_no_strings },
    { SBX_OP_PROCESS, 0, sbx_wire_no_strings },
    { SBX_OP_PORT, 0, sbx_wire_no_strings },
    { SBX_OP_CANCEL, 0, sbx_wire_no_strings },
    { SBX_OP_CODE, 0, sbx_wire_no_strings },
    { SBX_OP_LOG, 0, sbx_wire_no_strings },
    { SBX_OP_ENV, 0, sbx_wire_no_strings },
    { 0, 0, NULL }
};


static int
sbx_wire_check_strings(const char *base, const sbx_wire_string_t *s,
    sbx_error_t *e)
{
    for ( /* void */ ; s->name != NULL; s++) {
        if (memchr(base + s->offset, '\0', s->size) == NULL) {
            return sbx_error(e, 0, SBX_E_INVALID,
                             "%s is not terminated", s->name);
        }
    }

    return 0;
}


int
sbx_wire_check_call(const void *buf, size_t n, sbx_error_t *e)
{
    sbx_call_t               call;
    const sbx_wire_shape_t  *shape;

    if (n < sizeof(sbx_call_t)) {
        return sbx_error(e, 0, SBX_E_INVALID, "the datagram is too short");
    }

    memcpy(&call, buf, sizeof(sbx_call_t));

    if (call.magic != SBX_WIRE_MAGIC) {
        return sbx_error(e, 0, SBX_E_INVALID, "magic is wrong");
    }

    if (call.version != SBX_WIRE_VERSION) {
        return sbx_error(e, 0, SBX_E_INVALID,
                         "version is %u, but this is %u", call.version,
                         SBX_WIRE_VERSION);
    }

    for (shape = sbx_wire_shapes; shape->op != call.op; shape++) {
        if (shape->op == 0) {
            return sbx_error(e, 0, SBX_E_INVALID, "op %u is unknown",
                             call.op);
        }
    }

    if (shape->op == 0) {
        return sbx_error(e, 0, SBX_E_INVALID, "op is missing");
    }

    if (n != sizeof(sbx_call_t) + shape->body || call.size != n) {
        return sbx_error(e, 0, SBX_E_INVALID,
                         "size is wrong for op %u", call.op);
    }

    if (call.flags & ~(uint32_t) SBX_CALL_FLAGS) {
        return sbx_error(e, 0, SBX_E_INVALID, "flags are unknown");
    }

    if ((call.needs | call.bars) & ~(uint32_t) SBX_CREATE_FLAGS) {
        return sbx_error(e, 0, SBX_E_INVALID,
                         "needs or bars hold unknown bits");
    }

    if (sbx_wire_check_strings((const char *) &call, sbx_wire_call_strings,
                               e)
        != 0)
    {
        return -1;
    }

    if (call.session[0] != '\0'
        && !sbx_session_id_ok(call.session, strlen(call.session)))
    {
        return sbx_error(e, 0, SBX_E_INVALID, "session is malformed");
    }

    if (call.tenant[0] != '\0'
        && !sbx_name_ok(call.tenant, strlen(call.tenant)))
    {
        return sbx_error(e, 0, SBX_E_INVALID, "tenant is malformed");
    }

    if (call.user[0] != '\0' && !sbx_name_ok(call.user, strlen(call.user))) {
        return sbx_error(e, 0, SBX_E_INVALID, "user is malformed");
    }

    return sbx_wire_check_strings((const char *) buf + sizeof(sbx_call_t),
                                  shape->strings, e);
}


int
sbx_wire_check_task(const void *buf, size_t n, sbx_error_t *e)
{
    sbx_task_t  task;

    if (n != sizeof(sbx_task_t)) {
        return sbx_error(e, 0, SBX_E_INVALID, "the task's size is wrong");
    }

    memcpy(&task, buf, sizeof(sbx_task_t));

    if (task.magic != SBX_WIRE_MAGIC || task.version != SBX_WIRE_VERSION) {
        return sbx_error(e, 0, SBX_E_INVALID,
                         "the task's magic or version is wrong");
    }

    switch (task.op) {

    case SBX_OP_EXEC:
    case SBX_OP_FILE:
    case SBX_OP_PROCESS:
    case SBX_OP_PORT:
    case SBX_OP_CANCEL:
    case SBX_OP_CUT:
    case SBX_OP_TERMINATE:
    case SBX_OP_FREEZE:
    case SBX_OP_THAW:
    case SBX_OP_BUSY:
    case SBX_OP_CODE:
    case SBX_OP_LOG:
    case SBX_OP_ENV:
    case SBX_OP_GROUP:
    case SBX_OP_WARM:
    case SBX_OP_HAND_OVER:
    case SBX_OP_COMMANDS:
        break;

    case SBX_OP_NETWORK:
        if (task.token > SBX_NETWORK_LISTS) {
            return sbx_error(e, 0, SBX_E_INVALID, "token is no network");
        }
        break;

    default:
        return sbx_error(e, 0, SBX_E_INVALID, "op %u is unknown", task.op);
    }

    if (memchr(task.request_id, '\0', sizeof(task.request_id)) == NULL) {
        return sbx_error(e, 0, SBX_E_INVALID,
                         "request_id is not terminated");
    }

    if (task.attach_count > SBX_TASK_FDS_MAX
        || (task.attach_count != 0) != ((task.fds & SBX_TASK_FD_ATTACH) != 0))
    {
        return sbx_error(e, 0, SBX_E_INVALID, "attach_count is wrong");
    }

    return 0;
}


int
sbx_wire_check_file(const uint8_t *p, size_t n, sbx_f_file_t *file,
    const char **path, const char **path2)
{
    size_t  max;

    if (n < sizeof(sbx_f_file_t)) {
        return -1;
    }

    memcpy(file, p, sizeof(sbx_f_file_t));
    p += sizeof(sbx_f_file_t);
    n -= sizeof(sbx_f_file_t);

    max = (file->verb == SBX_FILE_COMPOSE) ? SBX_FILE_SOURCES_MAX
                                           : SBX_PATH_MAX - 1;

    if (file->path_len >= SBX_PATH_MAX || file->path2_len > max
        || file->metadata_len > SBX_FILE_METADATA_MAX
        || n != (size_t) file->path_len + file->path2_len
                + file->metadata_len)
    {
        return -1;
    }

    *path = (const char *) p;
    *path2 = (const char *) p + file->path_len;

    if (memchr(*path, '\0', file->path_len) != NULL) {
        return -1;
    }

    /* several sources, each with its NUL */

    if (file->verb == SBX_FILE_COMPOSE) {
        if (file->path2_len != 0 && (*path2)[file->path2_len - 1] != '\0') {
            return -1;
        }

    } else if (memchr(*path2, '\0', file->path2_len) != NULL) {
        return -1;
    }

    return sbx_wire_metadata_ok(sbx_wire_file_metadata(file, *path),
                                file->metadata_len)
           ? 0 : -1;
}


/* Pairs of strings, each with its NUL; no key is empty. */

int
sbx_wire_metadata_ok(const char *p, size_t n)
{
    size_t  i, strings, start;

    strings = 0;
    start = 0;

    for (i = 0; i < n; i++) {
        if (p[i] != '\0') {
            continue;
        }

        if (strings % 2 == 0 && i == start) {
            return 0;
        }

        strings++;
        start = i + 1;
    }

    return start == n && strings % 2 == 0;
}


int
sbx_wire_check_line(const uint8_t *p, size_t n, sbx_f_line_t *line,
    const char **message, const char **fields)
{
    if (n < sizeof(sbx_f_line_t)) {
        return -1;
    }

    memcpy(line, p, sizeof(sbx_f_line_t));
    p += sizeof(sbx_f_line_t);
    n -= sizeof(sbx_f_line_t);

    if (line->level > SBX_LINE_ERROR
        || line->message_len > SBX_FRAME_MAX
        || line->fields_len > SBX_FRAME_MAX
        || n != (size_t) line->message_len + line->fields_len)
    {
        return -1;
    }

    *message = (const char *) p;
    *fields = *message + line->message_len;

    if (memchr(*message, '\0', line->message_len) != NULL
        || (line->fields_len != 0
            && (*fields)[line->fields_len - 1] != '\0'))
    {
        return -1;
    }

    return 0;
}


int
sbx_wire_check_entry(const uint8_t *p, size_t n, sbx_f_entry_t *entry,
    const char **path, const char **owner, const char **group,
    const char **target)
{
    if (n < sizeof(sbx_f_entry_t)) {
        return -1;
    }

    memcpy(entry, p, sizeof(sbx_f_entry_t));
    p += sizeof(sbx_f_entry_t);
    n -= sizeof(sbx_f_entry_t);

    /* paths below a directory may be longer than the kernel takes at once */

    if (entry->type > SBX_TYPE_DEVICE
        || entry->path_len > SBX_FRAME_MAX
        || entry->owner_len > SBX_NAME_MAX
        || entry->group_len > SBX_NAME_MAX
        || entry->target_len > SBX_PATH_MAX
        || entry->target_type > SBX_TYPE_NONE
        || entry->metadata_len > SBX_FILE_METADATA_MAX
        || n != (size_t) entry->path_len + entry->owner_len
                + entry->group_len + entry->target_len
                + entry->metadata_len)
    {
        return -1;
    }

    *path = (const char *) p;
    *owner = *path + entry->path_len;
    *group = *owner + entry->owner_len;
    *target = *group + entry->group_len;

    return sbx_wire_metadata_ok(sbx_wire_entry_metadata(entry, *target),
                                entry->metadata_len)
           ? 0 : -1;
}


/* Whether p is count strings, each with its NUL. */

static int
sbx_wire_check_table(const char *p, size_t len, uint32_t count)
{
    size_t    i;
    uint32_t  ends;

    for (ends = 0, i = 0; i < len; i++) {
        ends += (p[i] == '\0');
    }

    return ends == count && (len == 0 || p[len - 1] == '\0');
}


int
sbx_wire_check_state(const uint8_t *p, size_t n, sbx_f_state_t *state,
    const char **cwd, const char **tag, const char **args)
{
    if (n < sizeof(sbx_f_state_t)) {
        return -1;
    }

    memcpy(state, p, sizeof(sbx_f_state_t));
    p += sizeof(sbx_f_state_t);
    n -= sizeof(sbx_f_state_t);

    if (state->kind > SBX_KIND_CODE || state->user > SBX_USER_ROOT
        || state->cwd_len >= SBX_PATH_MAX || state->tag_len > SBX_TAG_MAX
        || state->args_len > SBX_FRAME_MAX
        || state->env_len > SBX_FRAME_MAX
        || n != (size_t) state->cwd_len + state->tag_len + state->args_len
                + state->env_len)
    {
        return -1;
    }

    *cwd = (const char *) p;
    *tag = *cwd + state->cwd_len;
    *args = *tag + state->tag_len;

    if (memchr(*cwd, '\0', (size_t) state->cwd_len + state->tag_len) != NULL)
    {
        return -1;
    }

    return (sbx_wire_check_table(*args, state->args_len, state->argc)
            && sbx_wire_check_table(*args + state->args_len, state->env_len,
                                    state->envc))
           ? 0 : -1;
}


int
sbx_session_id_ok(const char *s, size_t len)
{
    size_t  i;

    if (len < 21 || len > SBX_ID_MAX || s[0] != 'i') {
        return 0;
    }

    for (i = 1; i < len; i++) {
        if ((s[i] < 'a' || s[i] > 'z') && (s[i] < '0' || s[i] > '9')) {
            return 0;
        }
    }

    return 1;
}


int
sbx_name_ok(const char *s, size_t len)
{
    size_t  i;

    if (len == 0 || len > SBX_NAME_MAX) {
        return 0;
    }

    for (i = 0; i < len; i++) {
        if ((s[i] >= 'A' && s[i] <= 'Z') || (s[i] >= 'a' && s[i] <= 'z')
            || (s[i] >= '0' && s[i] <= '9'))
        {
            continue;
        }

        if (i == 0 || s[i] == '\0' || strchr("._@:+-", s[i]) == NULL) {
            return 0;
        }
    }

    return 1;
}
