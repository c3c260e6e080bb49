/*
 * What goes back to the workers of code: frames into one buffer a call, which
 * is sent when there is nothing more to add, or no room; and the list of
 * files with the last frame, which may be longer than that.
 */

#include "init_code.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>


#define SBX_CODE_TAILS   (8 * 1024 * 1024)   /* bytes of files, of all calls */


static void sbx_code_drop(sbx_code_call_t *call);
static int sbx_code_send(sbx_code_call_t *call, const uint8_t *data,
    size_t *start, size_t end);
static void sbx_code_last(sbx_code_call_t *call, sbx_frame_type_t type,
    const void *payload, size_t size);


static size_t  sbx_code_tails;


int
sbx_code_room(sbx_code_call_t *call, size_t need)
{
    if (call->call.fd == -1) {
        return 1;
    }

    if (call->out != NULL && SBX_INIT_BUFFER - call->out_end < need
        && !sbx_code_flush(call))
    {
        return 0;
    }

    if (call->out == NULL) {
        call->out = sbx_init_buffer_get(1);
        call->out_start = 0;
        call->out_end = 0;
    }

    return call->out != NULL;
}


void
sbx_code_put(sbx_code_call_t *call, sbx_frame_type_t type, const void *p,
    size_t n, const void *p2, size_t n2)
{
    uint8_t  *to;

    if (call->call.fd == -1) {
        return;
    }

    if (!sbx_code_room(call, sizeof(sbx_frame_t) + n + n2)) {
        /* without this frame the call means nothing */
        (void) shutdown(call->call.fd, SHUT_RDWR);
        return;
    }

    to = call->out + call->out_end;
    to += sbx_wire_header(to, type, n + n2);

    if (n != 0) {
        memcpy(to, p, n);
    }

    if (n2 != 0) {
        memcpy(to + n, p2, n2);
    }

    call->out_end += sizeof(sbx_frame_t) + n + n2;
}


int
sbx_code_flush(sbx_code_call_t *call)
{
    if (call->call.fd == -1) {
        sbx_code_drop(call);
        return 1;
    }

    if (call->out != NULL) {
        if (sbx_code_send(call, call->out, &call->out_start, call->out_end)
            != 0)
        {
            return 0;
        }

        sbx_init_buffer_put(call->out);
        call->out = NULL;
    }

    if (call->tail != NULL) {
        if (sbx_code_send(call, call->tail, &call->tail_start,
                          call->tail_end)
            != 0)
        {
            return 0;
        }

        sbx_code_tail_free(call);
    }

    if (call->state != SBX_CODE_CALL_CLOSING) {
        sbx_code_interest(call);
        return 1;
    }

    if (call->whole) {
        sbx_code_call_free(call);
        return 1;
    }

    /* the worker has more to say, and would lose what it has not read yet if
     * it were cut short */
    (void) shutdown(call->call.fd, SHUT_WR);
    sbx_code_interest(call);

    return 1;
}


/* -1: the socket takes no more now. */

static int
sbx_code_send(sbx_code_call_t *call, const uint8_t *data, size_t *start,
    size_t end)
{
    ssize_t  n;

    while (*start < end) {
        n = send(call->call.fd, data + *start, end - *start,
                 MSG_DONTWAIT|MSG_NOSIGNAL);

        if (n == -1 && errno == EINTR) {
            continue;
        }

        if (n == -1 && errno == EAGAIN) {
            sbx_code_interest(call);
            return -1;
        }

        if (n == -1) {
            /* the worker is gone, which the loop is about to be told */
            *start = end;
            break;
        }

        *start += (size_t) n;
    }

    return 0;
}


static void
sbx_code_drop(sbx_code_call_t *call)
{
    sbx_init_buffer_put(call->out);
    call->out = NULL;
    sbx_code_tail_free(call);
}


uint8_t *
sbx_code_tail(sbx_code_call_t *call, size_t size)
{
    uint8_t  *tail;

    if (sbx_code_tails + size > SBX_CODE_TAILS) {
        return NULL;
    }

    tail = realloc(call->tail, call->tail_end + size);

    if (tail == NULL) {
        return NULL;
    }

    call->tail = tail;
    call->tail_held += size;
    sbx_code_tails += size;

    return tail + call->tail_end;
}


void
sbx_code_tail_free(sbx_code_call_t *call)
{
    free(call->tail);
    call->tail = NULL;
    sbx_code_tails -= call->tail_held;
    call->tail_held = 0;
}


/* As the client may name it. */

size_t
sbx_code_cwd(const sbx_code_context_t *context, char *path)
{
    int          n;
    const char  *cwd;

    cwd = context->cwd;

    n = snprintf(path, SBX_PATH_MAX, "%s%s%s",
                 cwd[0] == '/' ? "" : sbx_init.config->workspace,
                 cwd[0] == '/' || cwd[0] == '\0' ? "" : "/", cwd);

    return n < SBX_PATH_MAX ? (size_t) n : SBX_PATH_MAX - 1;
}


void
sbx_code_context_frame(sbx_code_call_t *call,
    const sbx_code_context_t *context)
{
    char             strings[SBX_CONTEXT_MAX + SBX_LANGUAGE_MAX
                             + SBX_PATH_MAX];
    char            *p;
    sbx_f_context_t  f;

    if (call->call.fd == -1) {
        return;
    }

    memset(&f, 0, sizeof(f));

    switch (context->kernel) {

    case SBX_KERNEL_ASKED:
    case SBX_KERNEL_ROOM:
    case SBX_KERNEL_STARTING:
        f.state = SBX_CONTEXT_STARTING;
        break;

    case SBX_KERNEL_RUNNING:
        f.state = SBX_CONTEXT_RUNNING;
        break;

    default:
        f.state = SBX_CONTEXT_IDLE;
    }

    if (context->command != NULL && context->command->pid > 0) {
        f.pid = context->command->pid;
    }

    f.id_len = (uint32_t) strlen(context->id);
    f.language_len = (uint32_t) strlen(context->language.name);
    f.waiting = sbx_code_waiting(context);
    f.executions = context->executions;

    p = strings;
    memcpy(p, context->id, f.id_len);
    p += f.id_len;
    memcpy(p, context->language.name, f.language_len);
    p += f.language_len;
    f.cwd_len = (uint32_t) sbx_code_cwd(context, p);
    p += f.cwd_len;

    sbx_code_put(call, SBX_F_CONTEXT, &f, sizeof(f), strings,
                 (size_t) (p - strings));
}


static void
sbx_code_last(sbx_code_call_t *call, sbx_frame_type_t type,
    const void *payload, size_t size)
{
    uint8_t  *tail;

    sbx_code_strings_free(call);

    if (call->call.fd == -1) {
        sbx_code_call_free(call);
        return;
    }

    call->state = SBX_CODE_CALL_CLOSING;
    call->context = NULL;
    call->give_up = sbx_now_us() + SBX_INIT_LINGER;
    sbx_init_loop_wake(call->give_up);

    tail = realloc(call->tail, call->tail_end + sizeof(sbx_frame_t) + size);

    if (tail == NULL) {
        (void) shutdown(call->call.fd, SHUT_RDWR);
        return;
    }

    call->tail = tail;
    tail += call->tail_end;
    tail += sbx_wire_header(tail, type, size);
    memcpy(tail, payload, size);
    call->tail_end += sizeof(sbx_frame_t) + size;

    if (call->out == NULL) {
        call->out = sbx_init_buffer_get(1);
        call->out_start = 0;
        call->out_end = 0;
    }

    if (call->out != NULL && SBX_INIT_BUFFER - call->out_end
                             >= call->tail_end - call->tail_start)
    {
        /* one piece is one call of the kernel */

        memcpy(call->out + call->out_end, call->tail + call->tail_start,
               call->tail_end - call->tail_start);
        call->out_end += call->tail_end - call->tail_start;
        sbx_code_tail_free(call);
    }

    (void) sbx_code_flush(call);
}


void
sbx_code_error(sbx_code_call_t *call, const sbx_error_t *e)
{
    sbx_f_error_t  error;

    sbx_init_error_fill(&error, e);
    sbx_code_last(call, SBX_F_ERROR, &error, sizeof(error));
}


void
sbx_code_refuse(sbx_code_call_t *call, const sbx_f_error_t *error)
{
    sbx_code_last(call, SBX_F_ERROR, error, sizeof(sbx_f_error_t));
}


void
sbx_code_quota(sbx_code_call_t *call, const char *resource, uint64_t limit,
    const char *text)
{
    sbx_error_t    e;
    sbx_f_error_t  error;

    (void) sbx_error(&e, 0, SBX_E_QUOTA, "%s", text);
    sbx_init_error_fill(&error, &e);
    memcpy(error.scope, "session", sizeof("session"));
    (void) snprintf(error.resource, sizeof(error.resource), "%s", resource);
    error.limit = limit;
    error.retry_after = 1;
    sbx_code_refuse(call, &error);
}


void
sbx_code_end(sbx_code_call_t *call)
{
    sbx_f_end_t  end;

    memset(&end, 0, sizeof(end));
    sbx_code_last(call, SBX_F_END, &end, sizeof(end));
}


void
sbx_code_ran(sbx_code_call_t *call)
{
    sbx_f_ran_t  ran;

    ran = call->ran;

    ran.flags |= ran.reason == SBX_REASON_TIMEOUT ? SBX_RAN_TIMED_OUT : 0;
    ran.flags |= ran.reason == SBX_REASON_CANCELLED ? SBX_RAN_CANCELLED : 0;

    if (call->turn != 0) {
        ran.duration_us = sbx_now_us() - call->turn;
        sbx_code_ended(ran.duration_us);
    }

    sbx_code_last(call, SBX_F_RAN, &ran, sizeof(ran));
}


void
sbx_code_never(sbx_code_call_t *call, sbx_reason_t reason, uint32_t flags)
{
    if (call->state == SBX_CODE_CALL_STRINGS) {
        /* it has not happened */
        sbx_code_put(call, SBX_F_ACCEPTED, NULL, 0, NULL, 0);
    }

    call->ran.reason = reason;
    call->ran.flags |= flags;
    call->ran.exit_code = 130;
    sbx_code_ran(call);
}
