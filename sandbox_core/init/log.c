/*
 * The session's own log: what has happened in it, as lines for its owner.
 *
 * A list of lines, each with memory of its own, the oldest of which goes where
 * there are too many: a session in which nothing happens has none.  Who reads
 * it is sent those that there were when it asked.  What it does not take stays
 * in the list, and may be gone by the time that it does: a slow reader loses
 * lines, and holds up nobody.
 */

#include "init_code.h"
#include "init_process.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>


#define SBX_LOG_FIELDS      768       /* bytes of a line's fields */
#define SBX_LOG_COMMAND     200       /* of a command, that are told */


typedef struct sbx_log_line_s  sbx_log_line_t;

struct sbx_log_line_s {
    sbx_log_line_t   *next;           /* younger */
    uint64_t          seq;
    sbx_f_line_t      head;
    char              text[];         /* the message, then the fields */
};

typedef struct {
    size_t            size;
    char              data[SBX_LOG_FIELDS];
} sbx_log_fields_t;


static void sbx_log_field(sbx_log_fields_t *fields, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
static void sbx_log_add(sbx_line_level_t level, const char *message,
    const sbx_log_fields_t *fields);
static void sbx_log_forget(void);
static void sbx_log_command(sbx_log_fields_t *fields,
    const sbx_init_process_t *process);
static void sbx_log_memory(const sbx_f_exit_t *x,
    const sbx_log_fields_t *fields);


static sbx_log_line_t  *sbx_log_oldest;
static sbx_log_line_t  *sbx_log_youngest;
static uint64_t         sbx_log_seq;
static unsigned         sbx_log_lines;
static size_t           sbx_log_bytes;


/* "KEY=VALUE"; one that finds no room is left out. */

static void
sbx_log_field(sbx_log_fields_t *fields, const char *format, ...)
{
    int      n;
    size_t   room;
    va_list  args;

    room = sizeof(fields->data) - fields->size;

    va_start(args, format);
    n = vsnprintf(fields->data + fields->size, room, format, args);
    va_end(args);

    if (n > 0 && (size_t) n < room) {
        fields->size += (size_t) n + 1;
    }
}


static void
sbx_log_add(sbx_line_level_t level, const char *message,
    const sbx_log_fields_t *fields)
{
    size_t           len, size;
    sbx_log_line_t  *line;
    struct timespec  now;

    len = strlen(message);
    size = len + (fields != NULL ? fields->size : 0);
    line = malloc(sizeof(sbx_log_line_t) + size);

    if (line == NULL) {
        return;
    }

    (void) clock_gettime(CLOCK_REALTIME, &now);

    memset(line, 0, sizeof(sbx_log_line_t));
    line->seq = ++sbx_log_seq;
    line->head.time = (int64_t) now.tv_sec * 1000 + now.tv_nsec / 1000000;
    line->head.level = level;
    line->head.message_len = (uint32_t) len;
    line->head.fields_len = (uint32_t) (size - len);
    memcpy(line->text, message, len);

    if (fields != NULL) {
        memcpy(line->text + len, fields->data, fields->size);
    }

    if (sbx_log_youngest != NULL) {
        sbx_log_youngest->next = line;

    } else {
        sbx_log_oldest = line;
    }

    sbx_log_youngest = line;
    sbx_log_lines++;
    sbx_log_bytes += sizeof(sbx_f_line_t) + size;

    while (sbx_log_lines > SBX_LINES_MAX || sbx_log_bytes > SBX_LINES_SIZE) {
        sbx_log_forget();
    }
}


static void
sbx_log_forget(void)
{
    sbx_log_line_t  *line;

    line = sbx_log_oldest;
    sbx_log_oldest = line->next;

    if (sbx_log_oldest == NULL) {
        sbx_log_youngest = NULL;
    }

    sbx_log_lines--;
    sbx_log_bytes -= sizeof(sbx_f_line_t) + line->head.message_len
                     + line->head.fields_len;
    free(line);
}


/* What was before is nobody's. */

void
sbx_init_log_begin(void)
{
    while (sbx_log_oldest != NULL) {
        sbx_log_forget();
    }

    sbx_log_add(SBX_LINE_INFO, "session started", NULL);
}


void
sbx_init_log_paused(int paused)
{
    sbx_log_add(SBX_LINE_INFO, paused ? "session paused" : "session resumed",
                NULL);
}


/* The arguments with blanks between them; no character of UTF-8 is cut. */

static void
sbx_log_command(sbx_log_fields_t *fields, const sbx_init_process_t *process)
{
    char                  text[SBX_LOG_COMMAND + 1];
    size_t                i, n;
    const char           *args;
    const sbx_f_state_t  *state;

    state = &process->state;
    args = process->strings + state->cwd_len + state->tag_len;
    n = state->args_len != 0 ? state->args_len - 1 : 0;

    if (n > SBX_LOG_COMMAND) {
        n = SBX_LOG_COMMAND;

        while (n != 0 && ((uint8_t) args[n] & 0xc0) == 0x80) {
            n--;
        }
    }

    for (i = 0; i < n; i++) {
        text[i] = args[i] != '\0' ? args[i] : ' ';
    }

    text[n] = '\0';
    sbx_log_field(fields, "cmd=%s", text);
}


void
sbx_init_log_started(const sbx_init_process_t *process)
{
    sbx_log_fields_t      fields;
    const sbx_f_state_t  *state;

    state = &process->state;

    if (state->kind == SBX_KIND_CODE) {
        return;
    }

    fields.size = 0;
    sbx_log_field(&fields, "pid=%d", state->pid);
    sbx_log_command(&fields, process);
    sbx_log_field(&fields, "user=%s",
                  state->user == SBX_USER_ROOT ? "root" : "user");

    if (state->tag_len != 0) {
        sbx_log_field(&fields, "tag=%.*s", (int) state->tag_len,
                      process->strings + state->cwd_len);
    }

    sbx_log_add(SBX_LINE_INFO, "command started", &fields);
}


static void
sbx_log_memory(const sbx_f_exit_t *x, const sbx_log_fields_t *fields)
{
    if (x->reason == SBX_REASON_MEMORY || (x->flags & SBX_EXIT_OOM_KILLED)) {
        sbx_log_add(SBX_LINE_ERROR, "out of memory", fields);
    }
}


/* One that has no result has ended with the session, or never began. */

void
sbx_init_log_ended(const sbx_init_process_t *process)
{
    sbx_log_fields_t     fields;
    const sbx_f_exit_t  *x;

    x = &process->state.exit;

    if (process->state.kind == SBX_KIND_CODE) {
        return;
    }

    fields.size = 0;
    sbx_log_field(&fields, "pid=%d", process->state.pid);
    sbx_log_memory(x, &fields);
    sbx_log_field(&fields, "exit_code=%d", x->exit_code);
    sbx_log_field(&fields, "reason=%s", sbx_reason_word(x->reason));
    sbx_log_field(&fields, "duration_ms=%llu",
                  (unsigned long long) x->duration_us / 1000);

    sbx_log_add(x->reason == SBX_REASON_EXITED ? SBX_LINE_INFO
                                               : SBX_LINE_WARN,
                "command ended", &fields);
}


void
sbx_init_log_left(int32_t pid, int memory)
{
    sbx_log_fields_t  fields;

    fields.size = 0;
    sbx_log_field(&fields, "pid=%d", pid);

    if (memory) {
        sbx_log_add(SBX_LINE_ERROR, "out of memory", &fields);

    } else {
        sbx_log_add(SBX_LINE_INFO,
                    "processes were left behind by a command", &fields);
    }
}


void
sbx_init_log_kernel(const struct sbx_code_context_s *context, int ended)
{
    int                  expected;
    sbx_log_fields_t     fields;
    const sbx_f_exit_t  *x;

    fields.size = 0;
    sbx_log_field(&fields, "language=%s", context->language.name);
    sbx_log_field(&fields, "context=%s", context->id);

    if (!ended) {
        sbx_log_add(SBX_LINE_INFO, "interpreter started", &fields);
        return;
    }

    x = &context->exit;
    expected = x->reason == SBX_REASON_CANCELLED
               || x->reason == SBX_REASON_SESSION_ENDED;

    sbx_log_memory(x, &fields);
    sbx_log_field(&fields, "exit_code=%d", x->exit_code);
    sbx_log_field(&fields, "reason=%s", sbx_reason_word(x->reason));

    sbx_log_add(expected ? SBX_LINE_INFO : SBX_LINE_ERROR,
                expected ? "interpreter ended" : "interpreter died",
                &fields);
}


/*
 * ---- calls ----------------------------------------------------------------
 */


void
sbx_init_log_call(sbx_init_call_t *call)
{
    call->state = SBX_INIT_CALL_LOGS;
    call->pending = sbx_log_seq;
    sbx_init_call_send(call, SBX_F_ACCEPTED, NULL, 0);
    sbx_init_log_send(call);
}


/* As many as there is room for; the socket's event has it go on. */

void
sbx_init_log_send(sbx_init_call_t *call)
{
    size_t                 size;
    uint8_t               *p;
    const sbx_log_line_t  *line;

    for (line = sbx_log_oldest; line != NULL; line = line->next) {

        if (line->seq <= call->seq) {
            continue;
        }

        if (line->seq > call->pending) {
            break;
        }

        size = line->head.message_len + line->head.fields_len;

        if (sizeof(call->out) - call->out_end
                < 2 * sizeof(sbx_frame_t) + sizeof(sbx_f_line_t) + size
                  + sizeof(sbx_f_end_t)
            && !sbx_init_call_flush(call))
        {
            return;
        }

        p = call->out + call->out_end;
        p += sbx_wire_header(p, SBX_F_LINE, sizeof(sbx_f_line_t) + size);
        memcpy(p, &line->head, sizeof(sbx_f_line_t));
        memcpy(p + sizeof(sbx_f_line_t), line->text, size);
        call->out_end += sizeof(sbx_frame_t) + sizeof(sbx_f_line_t) + size;
        call->seq = line->seq;
        call->count++;
    }

    sbx_init_call_end(call, call->count);
}


void
sbx_init_env_call(sbx_init_call_t *call)
{
    call->state = SBX_INIT_CALL_ENVS;
    sbx_init_call_send(call, SBX_F_ACCEPTED, NULL, 0);
    sbx_init_env_send(call);
}


/* .pending: bytes that have been told. */

void
sbx_init_env_send(sbx_init_call_t *call)
{
    size_t  n;

    while (call->pending < sbx_init.config->env_size) {

        if (call->out_end != 0 && !sbx_init_call_flush(call)) {
            return;
        }

        n = sbx_init.config->env_size - (size_t) call->pending;
        n = n < SBX_INIT_STRINGS_KEPT ? n : SBX_INIT_STRINGS_KEPT;
        call->pending += n;
        sbx_init_call_send(call, SBX_F_STRINGS,
                           sbx_init.env + call->pending - n, n);
    }

    sbx_init_call_end(call, 0);
}
