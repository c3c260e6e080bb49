/*
 * The table of processes, by age: commands that run, and what is known of
 * those that have ended.  One that has ended is kept as long as it is among
 * the newest; with it goes what is kept of its output.
 */

#include "init_process.h"

#include <stdio.h>
#include <string.h>
#include <time.h>


static size_t sbx_init_process_strings(sbx_init_process_t *process,
    const sbx_init_command_t *c, const char *cwd);
static char *sbx_init_process_env(sbx_init_process_t *process,
    const sbx_init_command_t *c, char *p, const char *end);
static void sbx_init_process_forget(void);
static void sbx_init_process_free(sbx_init_process_t *process);


static sbx_init_process_t  *sbx_init_oldest;
static sbx_init_process_t  *sbx_init_youngest;
static uint64_t             sbx_init_process_seq;
static uint64_t             sbx_init_process_ends;
static unsigned             sbx_init_results;


int
sbx_init_process_new(sbx_init_command_t *c)
{
    unsigned             i;
    const char          *cwd;
    struct timespec      now;
    sbx_init_process_t  *process;

    process = calloc(1, sizeof(sbx_init_process_t) + SBX_INIT_STRINGS_KEPT);

    if (process == NULL) {
        return -1;
    }

    cwd = c->launch->cwd;
    process->size = sbx_init_process_strings(process, c, cwd);

    (void) clock_gettime(CLOCK_REALTIME, &now);
    process->state.started = (int64_t) now.tv_sec * 1000
                             + now.tv_nsec / 1000000;
    process->state.user = c->exec.user;
    process->state.flags |= (c->exec.flags & SBX_EXEC_TTY)
                            ? SBX_STATE_TTY : 0;
    process->state.kind = (c->exec.flags & (SBX_EXEC_TTY|SBX_EXEC_STDIN_OPEN
                                            |SBX_EXEC_BACKGROUND))
                          == (SBX_EXEC_TTY|SBX_EXEC_STDIN_OPEN)
                          ? SBX_KIND_TERMINAL : SBX_KIND_COMMAND;

    if (c->code != NULL) {
        process->state.kind = SBX_KIND_CODE;
    }

    for (i = 0; i < 2; i++) {
        process->rings[i].hold = SBX_INIT_FREE_HOLD;
        process->rings[i].limit = c->exec.max_output;
    }

    process->ringed = (c->exec.flags & (SBX_EXEC_BACKGROUND|SBX_EXEC_DETACH))
                      != 0;
    process->command = c;
    c->process = realloc(process, sizeof(sbx_init_process_t)
                                  + process->size);

    if (c->process == NULL) {
        c->process = process;
    }

    return 0;
}


/* As many of them as there is room for, the last one of those cut. */

static size_t
sbx_init_process_strings(sbx_init_process_t *process,
    const sbx_init_command_t *c, const char *cwd)
{
    char           *p, *end;
    size_t          len;
    uint32_t        i;
    sbx_f_state_t  *state;

    p = process->strings;
    end = p + SBX_INIT_STRINGS_KEPT;
    state = &process->state;

    len = 0;

    if (cwd[0] != '/') {
        len = (size_t) snprintf(p, SBX_PATH_MAX, "%s%s",
                                sbx_init.config->workspace,
                                cwd[0] != '\0' ? "/" : "");
    }

    memcpy(p + len, cwd, strnlen(cwd, SBX_PATH_MAX - 1 - len));
    len += strnlen(cwd, SBX_PATH_MAX - 1 - len);
    state->cwd_len = (uint32_t) len;
    p += len;

    len = strnlen(c->exec.tag, SBX_TAG_MAX);
    memcpy(p, c->exec.tag, len);
    state->tag_len = (uint32_t) len;
    p += len;

    for (i = 0; i < c->exec.argc && end - p > 1; i++) {
        len = strlen(c->launch->argv[i]);

        if (len >= (size_t) (end - p)) {
            len = (size_t) (end - p) - 1;
            state->flags |= SBX_STATE_CUT;
        }

        memcpy(p, c->launch->argv[i], len);
        p[len] = '\0';
        p += len + 1;
        state->args_len += (uint32_t) len + 1;
    }

    state->argc = i;
    state->flags |= i < c->exec.argc ? SBX_STATE_CUT : 0;

    if (c->code == NULL) {
        p = sbx_init_process_env(process, c, p, end);
    }

    return (size_t) (p - process->strings);
}


/* Those for which there is room as they are: half a value is another one. */

static char *
sbx_init_process_env(sbx_init_process_t *process, const sbx_init_command_t *c,
    char *p, const char *end)
{
    size_t          len;
    uint32_t        i;
    const char     *variable;
    sbx_f_state_t  *state;

    state = &process->state;
    variable = c->launch->own;

    for (i = 0; i < c->exec.envc; i++) {
        len = strlen(variable) + 1;

        if (len > (size_t) (end - p)) {
            state->flags |= SBX_STATE_CUT;

        } else {
            memcpy(p, variable, len);
            p += len;
            state->envc++;
            state->env_len += (uint32_t) len;
        }

        variable += len;
    }

    return p;
}


/* It has a number now: a result that had the same is no longer to be told
 * from it. */

void
sbx_init_process_started(sbx_init_command_t *c)
{
    sbx_init_process_t  *process, *other;

    process = c->process;

    for (other = sbx_init_oldest; other != NULL; other = other->next) {
        if (other->state.pid == c->pid) {
            if (other->command != NULL) {
                other->command->process = NULL;

            } else {
                sbx_init_results--;
            }

            sbx_init_process_free(other);
            break;
        }
    }

    process->state.pid = c->pid;
    process->seq = ++sbx_init_process_seq;
    c->seq = process->seq;
    process->listed = 1;

    if ((c->exec.flags & SBX_EXEC_DETACH) && !c->background
        && c->call.fd != -1)
    {
        c->flies = 1;
        sbx_init_flight_begin(process);
    }

    process->previous = sbx_init_youngest;

    if (sbx_init_youngest != NULL) {
        sbx_init_youngest->next = process;

    } else {
        sbx_init_oldest = process;
    }

    sbx_init_youngest = process;
    sbx_init_log_started(process);
}


void
sbx_init_process_ended(sbx_init_command_t *c)
{
    unsigned             i;
    sbx_init_process_t  *process;

    process = c->process;
    c->process = NULL;

    if (process == NULL) {
        return;
    }

    if (!process->listed) {
        free(process);
        return;
    }

    process->command = NULL;
    process->ended = ++sbx_init_process_ends;
    process->state.exit = c->exit;
    process->state.flags |= SBX_STATE_EXITED;
    process->state.flags &= ~(uint32_t) SBX_STATE_STDIN_OPEN;

    for (i = 0; i < 2 && !process->ringed; i++) {
        process->rings[i].next = c->streams[i].total;
        process->rings[i].oldest = c->streams[i].total;
    }

    if (c->ended) {
        sbx_init_log_ended(process);
    }

    sbx_init_results++;
    sbx_init_process_feed(process);
    sbx_init_process_forget();
}


void
sbx_init_process_ring(sbx_init_command_t *c)
{
    unsigned             i;
    sbx_init_process_t  *process;

    process = c->process;

    if (process == NULL || process->ringed) {
        return;
    }

    process->ringed = 1;

    for (i = 0; i < 2; i++) {
        process->rings[i].next = c->streams[i].total;
        process->rings[i].oldest = c->streams[i].total;
    }
}


/* The one that ended first; not one that somebody is reading: of readers
 * there are fewer than results. */

static void
sbx_init_process_forget(void)
{
    sbx_init_process_t  *process, *first;

    if (sbx_init_results <= SBX_PROCESSES_KEPT) {
        return;
    }

    first = NULL;

    for (process = sbx_init_oldest; process != NULL; process = process->next)
    {
        if (process->command == NULL && process->readers == 0
            && (first == NULL || process->ended < first->ended))
        {
            first = process;
        }
    }

    if (first != NULL) {
        sbx_init_results--;
        sbx_init_process_free(first);
    }
}


static void
sbx_init_process_free(sbx_init_process_t *process)
{
    sbx_init_process_gone(process);
    sbx_init_hold_drop(process);
    sbx_init_ring_free(&process->rings[0]);
    sbx_init_ring_free(&process->rings[1]);

    if (process->previous != NULL) {
        process->previous->next = process->next;

    } else {
        sbx_init_oldest = process->next;
    }

    if (process->next != NULL) {
        process->next->previous = process->previous;

    } else {
        sbx_init_youngest = process->previous;
    }

    free(process);
}


sbx_init_process_t *
sbx_init_process_after(uint64_t seq)
{
    sbx_init_process_t  *process;

    for (process = sbx_init_oldest;
         process != NULL && process->seq <= seq;
         process = process->next)
    { /* void */ }

    return process;
}


sbx_init_process_t *
sbx_init_process_find(int32_t pid)
{
    sbx_init_process_t  *process;

    for (process = sbx_init_oldest;
         process != NULL && process->state.pid != pid;
         process = process->next)
    { /* void */ }

    return process;
}


/* An interpreter is known by its context, not by a tag. */

sbx_init_process_t *
sbx_init_process_tagged(const char *tag)
{
    size_t               len;
    sbx_init_process_t  *process, *found;

    len = strlen(tag);
    found = NULL;

    for (process = sbx_init_youngest;
         process != NULL;
         process = process->previous)
    {
        if (process->state.kind == SBX_KIND_CODE
            || process->state.tag_len != len
            || memcmp(process->strings + process->state.cwd_len, tag, len)
               != 0)
        {
            continue;
        }

        if (process->command != NULL && !process->command->reaped) {
            return process;
        }

        if (found == NULL) {
            found = process;
        }
    }

    return found;
}


uint32_t
sbx_init_process_flags(const sbx_init_process_t *process)
{
    const sbx_init_command_t  *c;

    c = process->command;

    return process->state.flags
           | (c != NULL && c->input.fd != -1
              && (c->exec.flags & SBX_EXEC_STDIN_OPEN)
              ? SBX_STATE_STDIN_OPEN : 0);
}


size_t
sbx_init_process_frame(const sbx_init_process_t *process, uint8_t *buffer)
{
    size_t         n;
    sbx_f_state_t  state;

    state = process->state;
    state.flags = sbx_init_process_flags(process);

    n = sbx_wire_header(buffer, SBX_F_STATE, sizeof(state) + process->size);
    memcpy(buffer + n, &state, sizeof(state));
    memcpy(buffer + n + sizeof(state), process->strings, process->size);

    return n + sizeof(state) + process->size;
}


char *
sbx_init_process_copy(const sbx_init_process_t *process, sbx_f_state_t *state)
{
    char  *strings;

    memset(state, 0, sizeof(sbx_f_state_t));

    strings = process != NULL ? malloc(process->size) : NULL;

    if (strings != NULL) {
        *state = process->state;
        memcpy(strings, process->strings, process->size);
    }

    return strings;
}
