/*
 * Calls that run code, seen from their sockets, until they are answered or
 * their turn has come.
 *
 * What a call has to say is one frame with its names, and of a run its code.
 * That is read when there is memory for it: all that waits may hold so much
 * and no more, and who finds no room is not read until there is some, or
 * until it is the next of its context.
 */

#include "init_code.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>


#define SBX_CODE_SEND_BUFFER   32768
#define SBX_CODE_LONG          1000000   /* us of a run */
#define SBX_CODE_TIMEOUT       30000   /* ms, of who asks for none */


static void sbx_code_event(sbx_init_source_t *source, uint32_t events);
static void sbx_code_gone(sbx_code_call_t *call);
static void sbx_code_read(sbx_code_call_t *call);
static void sbx_code_drop_input(sbx_code_call_t *call);
static void sbx_code_frames(sbx_code_call_t *call);
static int sbx_code_ask(sbx_code_call_t *call, const uint8_t *payload,
    size_t size, sbx_error_t *e);
static int sbx_code_ask_run(sbx_code_call_t *call, sbx_error_t *e);
static int sbx_code_check(const sbx_code_call_t *call, sbx_error_t *e);
static unsigned sbx_code_runs(void);
static int sbx_code_allot(sbx_code_call_t *call);
static int sbx_code_strings(sbx_code_call_t *call, const uint8_t *payload,
    size_t size, sbx_error_t *e);
static int sbx_code_whole(sbx_code_call_t *call, sbx_error_t *e);
static void sbx_code_list(sbx_code_call_t *call);


static sbx_code_call_t  *sbx_code_calls[SBX_CODE_CALLS];
static unsigned          sbx_code_calls_end;
static uint64_t          sbx_code_seq;
static size_t            sbx_code_held[2];     /* bytes of code that waits,
                                                  and that is next */
static int               sbx_code_starving;
static int               sbx_code_lately;
static char              sbx_code_nothing[1];


sbx_code_call_t *
sbx_code_call_each(sbx_code_call_t *previous)
{
    unsigned  i;

    for (i = previous == NULL ? 0 : previous->place + 1;
         i < sbx_code_calls_end;
         i++)
    {
        if (sbx_code_calls[i]->state != SBX_CODE_CALL_FREE) {
            return sbx_code_calls[i];
        }
    }

    return NULL;
}


static sbx_code_call_t *
sbx_code_call_new(void)
{
    unsigned          i;
    sbx_code_call_t  *call;

    for (i = 0; i < sbx_code_calls_end; i++) {
        if (sbx_code_calls[i]->state == SBX_CODE_CALL_FREE) {
            break;
        }
    }

    if (i == SBX_CODE_CALLS) {
        return NULL;
    }

    if (i == sbx_code_calls_end) {
        sbx_code_calls[i] = malloc(sizeof(sbx_code_call_t));

        if (sbx_code_calls[i] == NULL) {
            return NULL;
        }

        sbx_code_calls_end++;
    }

    call = sbx_code_calls[i];
    memset(call, 0, sizeof(sbx_code_call_t));
    call->place = i;
    call->call.fd = -1;
    call->seq = ++sbx_code_seq;
    call->deadline = SBX_INIT_NONE;

    return call;
}


void
sbx_init_code_task(int fd)
{
    int               type, size;
    socklen_t         len;
    sbx_error_t       e;
    sbx_f_error_t     error;
    sbx_code_call_t  *call;

    len = sizeof(type);

    if (getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &len) == -1
        || type != SOCK_STREAM)
    {
        (void) close(fd);
        return;
    }

    call = sbx_code_call_new();

    if (call == NULL) {
        (void) sbx_error(&e, 0, SBX_E_UNAVAILABLE,
                         "too many calls that run code are open");
        sbx_init_error_fill(&error, &e);
        error.retry_after = 1;
        sbx_init_exec_refuse(fd, &error);
        return;
    }

    size = SBX_CODE_SEND_BUFFER;
    (void) setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &size, sizeof(size));

    call->state = SBX_CODE_CALL_ASKED;
    call->call.fd = fd;
    call->call.handler = sbx_code_event;
    call->call.data = call;
    sbx_code_interest(call);
    sbx_code_read(call);
}


void
sbx_code_interest(sbx_code_call_t *call)
{
    uint32_t  events;

    events = EPOLLRDHUP;

    if (!call->starved) {
        events |= EPOLLIN;
    }

    if (call->out != NULL || call->tail != NULL) {
        events |= EPOLLOUT;
    }

    sbx_init_source_set(&call->call, events);
}


static void
sbx_code_event(sbx_init_source_t *source, uint32_t events)
{
    sbx_code_call_t  *call;

    call = source->data;

    if (events & (EPOLLHUP|EPOLLRDHUP|EPOLLERR)) {
        sbx_code_gone(call);
        return;
    }

    if ((events & EPOLLOUT) && sbx_code_flush(call)) {

        if (call->state == SBX_CODE_CALL_TURN) {
            sbx_code_pump(call->context);

        } else if (call->state == SBX_CODE_CALL_LISTS) {
            sbx_code_list(call);
        }
    }

    if ((events & EPOLLIN) && call->state != SBX_CODE_CALL_FREE) {
        sbx_code_read(call);
    }
}


/* The worker has closed: a run that waits has never been, one that runs is
 * interrupted. */

static void
sbx_code_gone(sbx_code_call_t *call)
{
    sbx_code_context_t  *context;

    context = call->context;

    switch (call->state) {

    case SBX_CODE_CALL_STRINGS:
    case SBX_CODE_CALL_QUEUED:
        sbx_code_unqueue(context, call);
        sbx_code_call_free(call);
        sbx_code_next(context);
        return;

    case SBX_CODE_CALL_TURN:
        sbx_init_source_close(&call->call);
        (void) sbx_code_flush(call);
        sbx_code_left(context);
        return;

    case SBX_CODE_CALL_WAITS:
        sbx_code_unwait(context, call);

        if (call->created) {
            /* nobody knows its name */
            sbx_code_call_free(call);
            sbx_code_delete(context, NULL);
            return;
        }

        sbx_code_call_free(call);
        return;

    default:
        sbx_code_call_free(call);
        return;
    }
}


void
sbx_code_call_free(sbx_code_call_t *call)
{
    sbx_code_strings_free(call);
    sbx_init_source_close(&call->call);
    sbx_init_buffer_put(call->in.buf);
    sbx_init_buffer_put(call->out);
    sbx_code_tail_free(call);
    call->in.buf = NULL;
    call->out = NULL;
    call->state = SBX_CODE_CALL_FREE;
}


static void
sbx_code_read(sbx_code_call_t *call)
{
    ssize_t   n;
    uint8_t  *buffer;

    if (call->state >= SBX_CODE_CALL_QUEUED) {
        sbx_code_drop_input(call);
        return;
    }

    if (call->in.buf == NULL) {
        buffer = sbx_init_buffer_get(0);

        if (buffer == NULL) {
            call->starved = 1;
            sbx_code_starving = 1;
            sbx_code_interest(call);
            return;
        }

        sbx_wire_init(&call->in, buffer, SBX_INIT_BUFFER);
    }

    do {
        n = recv(call->call.fd, call->in.buf + call->in.end,
                 call->in.size - call->in.end, MSG_DONTWAIT);
    } while (n == -1 && errno == EINTR);

    if (n > 0) {
        call->in.end += (size_t) n;
        sbx_code_frames(call);
        return;
    }

    if (n == 0 || errno != EAGAIN) {
        sbx_code_gone(call);
    }
}


/* Nothing more has a place here. */

static void
sbx_code_drop_input(sbx_code_call_t *call)
{
    ssize_t  n;
    char     scratch[4096];

    n = recv(call->call.fd, scratch, sizeof(scratch), MSG_DONTWAIT);

    if (n == 0 || (n == -1 && errno != EAGAIN && errno != EINTR)
        || (n > 0 && call->state != SBX_CODE_CALL_CLOSING))
    {
        sbx_code_gone(call);
    }
}


static void
sbx_code_frames(sbx_code_call_t *call)
{
    int                  rc;
    sbx_error_t          e;
    sbx_frame_t          frame;
    const uint8_t       *payload;
    sbx_code_context_t  *context;

    while (call->state < SBX_CODE_CALL_QUEUED
           && call->state != SBX_CODE_CALL_FREE && !call->starved)
    {
        rc = sbx_wire_next(&call->in, &frame, &payload);

        if (rc == 0) {
            break;
        }

        (void) sbx_error(&e, 0, SBX_E_INVALID,
                         "the call's frames are malformed");

        if (rc == 1 && call->state == SBX_CODE_CALL_ASKED
            && frame.type == SBX_F_CODE)
        {
            rc = sbx_code_ask(call, payload, frame.length, &e);

        } else if (rc == 1 && call->state == SBX_CODE_CALL_STRINGS
                   && frame.type == SBX_F_STRINGS)
        {
            rc = sbx_code_strings(call, payload, frame.length, &e);

        } else {
            rc = -1;
        }

        if (rc == -1) {
            context = call->context;

            if (call->state == SBX_CODE_CALL_STRINGS) {
                sbx_code_unqueue(context, call);

            } else {
                context = NULL;
            }

            sbx_code_error(call, &e);

            if (context != NULL) {
                sbx_code_next(context);
            }

            return;
        }
    }

    if (call->state == SBX_CODE_CALL_FREE) {
        return;
    }

    if (call->in.buf != NULL
        && (call->state >= SBX_CODE_CALL_QUEUED
            || call->in.start == call->in.end))
    {
        sbx_init_buffer_put(call->in.buf);
        call->in.buf = NULL;
    }

    if (call->state == SBX_CODE_CALL_QUEUED) {
        sbx_code_next(call->context);
        return;
    }

    sbx_code_interest(call);
}


static int
sbx_code_ask(sbx_code_call_t *call, const uint8_t *payload, size_t size,
    sbx_error_t *e)
{
    char                 id[SBX_CONTEXT_MAX + 1];
    char                 language[SBX_LANGUAGE_MAX + 1];
    char                 directory[SBX_PATH_MAX];
    const char          *p, *p2, *p3;
    sbx_f_code_t        *ask;
    sbx_code_context_t  *context;

    ask = &call->ask;

    if (sbx_wire_check_code(payload, size, ask, &p, &p2, &p3) != 0) {
        return sbx_error(e, 0, SBX_E_INVALID,
                         "the frame of the code is malformed");
    }

    (void) sbx_copy_string(id, sizeof(id), p, ask->context_len);
    (void) sbx_copy_string(language, sizeof(language), p2,
                           ask->language_len);
    (void) sbx_copy_string(directory, sizeof(directory), p3, ask->cwd_len);

    if (sbx_code_check(call, e) != 0) {
        return -1;
    }

    if (ask->verb == SBX_CODE_LIST) {
        call->whole = 1;
        call->state = SBX_CODE_CALL_LISTS;
        sbx_code_put(call, SBX_F_ACCEPTED, NULL, 0, NULL, 0);
        sbx_code_list(call);
        return 0;
    }

    if (ask->verb == SBX_CODE_RUN && sbx_code_ask_run(call, e) != 0) {
        return call->state == SBX_CODE_CALL_ASKED ? -1 : 0;
    }

    context = sbx_code_context_of(call, id, language, directory, e);

    if (context == NULL) {
        return call->state == SBX_CODE_CALL_ASKED ? -1 : 0;
    }

    call->context = context;

    if (ask->verb == SBX_CODE_RUN) {
        call->state = SBX_CODE_CALL_STRINGS;
        sbx_code_queue(context, call);

        if (ask->strings_size == 0) {
            return sbx_code_whole(call, e);
        }

        (void) sbx_code_allot(call);
        return 0;
    }

    call->whole = 1;
    call->state = SBX_CODE_CALL_WAITS;
    sbx_code_put(call, SBX_F_ACCEPTED, NULL, 0, NULL, 0);

    switch (ask->verb) {

    case SBX_CODE_CREATE:
        call->created = 1;
        context->starts = 1;
        sbx_code_wait(context, call);
        sbx_code_next(context);
        break;

    case SBX_CODE_DELETE:
        sbx_code_delete(context, call);
        break;

    default:
        sbx_code_restart(context, call);
    }

    if (call->state == SBX_CODE_CALL_WAITS) {
        (void) sbx_code_flush(call);
    }

    return 0;
}


static int
sbx_code_check(const sbx_code_call_t *call, sbx_error_t *e)
{
    const sbx_f_code_t  *ask;

    ask = &call->ask;

    if ((sbx_init.config->capabilities & SBX_CAP_CODE) == 0) {
        return sbx_error(e, 0, SBX_E_CAPABILITY,
                         "the session lacks the capability \"code\"");
    }

    if (sbx_init.ending) {
        return sbx_error(e, 0, SBX_E_SESSION, "the session is ending");
    }

    if (ask->verb < SBX_CODE_RUN || ask->verb > SBX_CODE_RESTART
        || (ask->verb != SBX_CODE_RUN
            && (ask->flags || ask->envc || ask->strings_size))
        || (ask->verb != SBX_CODE_CREATE && ask->cwd_len != 0)
        || ((ask->verb == SBX_CODE_CREATE || ask->verb == SBX_CODE_LIST)
            && ask->context_len != 0)
        || ((ask->verb == SBX_CODE_DELETE || ask->verb == SBX_CODE_RESTART)
            && ask->context_len == 0)
        || (ask->flags & ~(uint32_t) SBX_CODE_F_CAP))
    {
        return sbx_error(e, 0, SBX_E_INVALID,
                         "verb, flags or names of the call are wrong");
    }

    return 0;
}


/* What a run asks for, within what the session has. */

static int
sbx_code_ask_run(sbx_code_call_t *call, sbx_error_t *e)
{
    sbx_f_exec_t  exec;

    memset(&exec, 0xff, sizeof(exec));
    exec.flags = 0;
    exec.timeout = call->ask.timeout;
    exec.max_output = call->ask.max_output;

    if (sbx_init_exec_limits(&exec, e) != 0) {
        return -1;
    }

    if (call->ask.timeout == SBX_UNSET && exec.timeout > SBX_CODE_TIMEOUT) {
        exec.timeout = SBX_CODE_TIMEOUT;
    }

    call->ask.timeout = exec.timeout;
    call->ask.max_output = exec.max_output;

    if (sbx_code_runs() >= SBX_RUNS_MAX) {
        sbx_code_quota(call, "runs", SBX_RUNS_MAX,
                       "too many runs of code wait in the session");
        return -1;
    }

    return 0;
}


static unsigned
sbx_code_runs(void)
{
    unsigned          n;
    sbx_code_call_t  *call;

    n = 0;

    for (call = sbx_code_call_each(NULL);
         call != NULL;
         call = sbx_code_call_each(call))
    {
        n += call->state == SBX_CODE_CALL_STRINGS
             || call->state == SBX_CODE_CALL_QUEUED;
    }

    return n;
}


/* Who is next has room of its own: those behind it may have taken the rest,
 * and wait for it. */

static int
sbx_code_allot(sbx_code_call_t *call)
{
    size_t  size, *held;

    if (call->strings != NULL) {
        return 1;
    }

    size = call->ask.strings_size;
    call->head = call->context->queue == call && call->context->run == NULL;
    held = &sbx_code_held[call->head];

    if (*held == 0 || *held + size <= SBX_CODE_WAITING) {
        call->strings = malloc(size);
    }

    if (call->strings == NULL) {
        call->starved = 1;
        sbx_code_starving = 1;
        return 0;
    }

    *held += size;
    call->starved = 0;

    return 1;
}


void
sbx_code_head(sbx_code_call_t *call)
{
    if (!call->starved || !sbx_code_allot(call)) {
        return;
    }

    if (call->in.buf != NULL) {
        sbx_code_frames(call);

    } else {
        sbx_code_interest(call);
    }
}


void
sbx_code_strings_free(sbx_code_call_t *call)
{
    if (call->strings == NULL) {
        return;
    }

    free(call->strings);
    call->strings = NULL;
    sbx_code_held[call->head] -= call->ask.strings_size;

    if (sbx_code_starving) {
        sbx_init_loop_wake(0);
    }
}


/* Who came first is served first. */

static void
sbx_code_starved(void)
{
    uint64_t          seq;
    sbx_code_call_t  *call, *first;

    if (!sbx_code_starving) {
        return;
    }

    sbx_code_starving = 0;
    seq = 0;

    for ( ;; ) {
        first = NULL;

        for (call = sbx_code_call_each(NULL);
             call != NULL;
             call = sbx_code_call_each(call))
        {
            if (call->starved && call->seq > seq
                && (first == NULL || call->seq < first->seq))
            {
                first = call;
            }
        }

        if (first == NULL) {
            return;
        }

        seq = first->seq;

        if (first->state == SBX_CODE_CALL_STRINGS && !sbx_code_allot(first))
        {
            continue;
        }

        first->starved = 0;

        if (first->in.buf != NULL) {
            sbx_code_frames(first);

        } else {
            sbx_code_read(first);
        }
    }
}


static int
sbx_code_strings(sbx_code_call_t *call, const uint8_t *payload, size_t size,
    sbx_error_t *e)
{
    if (size == 0 || size > call->ask.strings_size - call->have) {
        return sbx_error(e, 0, SBX_E_INVALID,
                         "the string table's size is wrong");
    }

    memcpy(call->strings + call->have, payload, size);
    call->have += size;

    return call->have < call->ask.strings_size ? 0 : sbx_code_whole(call, e);
}


static int
sbx_code_whole(sbx_code_call_t *call, sbx_error_t *e)
{
    char                *p, *end, *nul;
    uint32_t             i;
    const sbx_f_code_t  *ask;

    ask = &call->ask;
    p = call->strings;

    if (p == NULL) {
        p = sbx_code_nothing;
    }

    end = p + ask->strings_size;

    if (ask->code_size != 0 && memchr(p, '\0', ask->code_size) != NULL) {
        return sbx_error(e, 0, SBX_E_INVALID, "the code has a NUL byte");
    }

    p += ask->code_size;

    for (i = 0; i < ask->envc; i++) {
        nul = p < end ? memchr(p, '\0', (size_t) (end - p)) : NULL;

        if (nul == NULL || p[0] == '=' || strchr(p, '=') == NULL) {
            return sbx_error(e, 0, SBX_E_INVALID,
                             "variable %u is missing or has no name", i);
        }

        p = nul + 1;
    }

    if (p != end) {
        return sbx_error(e, 0, SBX_E_INVALID,
                         "the string table is longer than its strings");
    }

    call->whole = 1;
    call->accepted = 1;
    call->state = SBX_CODE_CALL_QUEUED;
    sbx_code_put(call, SBX_F_ACCEPTED, NULL, 0, NULL, 0);

    if (call->context->run != NULL || call->context->queue != call) {
        /* it is told now that it waits */
        (void) sbx_code_flush(call);
    }

    return 0;
}


static void
sbx_code_list(sbx_code_call_t *call)
{
    sbx_code_context_t  *context;

    for (context = sbx_code_context_each(NULL);
         context != NULL;
         context = sbx_code_context_each(context))
    {
        if (context->place < call->cursor || context->deleted) {
            continue;
        }

        if (!sbx_code_room(call, sizeof(sbx_frame_t)
                           + sizeof(sbx_f_context_t) + SBX_CONTEXT_MAX
                           + SBX_LANGUAGE_MAX + SBX_PATH_MAX))
        {
            return;
        }

        sbx_code_context_frame(call, context);
        call->cursor = context->place + 1;
    }

    sbx_code_end(call);
}


unsigned
sbx_init_code_calls(void)
{
    unsigned          n;
    sbx_code_call_t  *call;

    n = 0;

    for (call = sbx_code_call_each(NULL);
         call != NULL;
         call = sbx_code_call_each(call))
    {
        n += call->state != SBX_CODE_CALL_CLOSING;
    }

    return n;
}


/* The broker knows when a run was asked for, but not when it has ended. */

unsigned
sbx_init_code_busy(void)
{
    unsigned  n;

    n = sbx_init_code_calls() + (sbx_code_lately ? 1 : 0);
    sbx_code_lately = 0;

    return n;
}


void
sbx_code_ended(uint64_t duration)
{
    if (duration > SBX_CODE_LONG) {
        sbx_code_lately = 1;
    }
}


/* Whoever waits hears that there is an answer to come. */

void
sbx_init_code_alive(void)
{
    sbx_code_call_t  *call;

    for (call = sbx_code_call_each(NULL);
         call != NULL;
         call = sbx_code_call_each(call))
    {
        if (call->accepted && call->out == NULL && call->tail == NULL
            && call->state < SBX_CODE_CALL_CLOSING)
        {
            sbx_code_put(call, SBX_F_ACCEPTED, NULL, 0, NULL, 0);
            (void) sbx_code_flush(call);
        }
    }
}


void
sbx_code_calls_tick(uint64_t now)
{
    sbx_code_call_t  *call;

    sbx_code_starved();

    for (call = sbx_code_call_each(NULL);
         call != NULL;
         call = sbx_code_call_each(call))
    {
        if (call->state != SBX_CODE_CALL_CLOSING) {
            continue;
        }

        if (call->out != NULL || call->tail != NULL) {
            /* it is slow, but not gone */
            call->give_up = now + SBX_INIT_LINGER;
        }

        if (now >= call->give_up) {
            sbx_code_call_free(call);

        } else {
            sbx_init_loop_wake(call->give_up);
        }
    }
}
