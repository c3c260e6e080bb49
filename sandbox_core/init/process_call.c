/*
 * Calls about processes: one frame from the worker, after which init
 * answers; and the call that ends all commands, which has no frame.
 *
 * None of them holds up another: what a worker does not take stays in its
 * own call (or in the ring that it reads), what a pipe does not take stays
 * there too, and nothing more is read of that call.  A call that is answered
 * is shut down, and what still comes is read and dropped until the worker
 * closes.
 */

#include "init_process.h"
#include "sandbox_fault.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>


#define SBX_INIT_CALL_SEND_BUFFER   32768


static void sbx_init_call_event(sbx_init_source_t *source, uint32_t events);
static void sbx_init_call_more(sbx_init_call_t *call);
static void sbx_init_call_ask(sbx_init_call_t *call);
static int sbx_init_call_check(const sbx_init_call_t *call, sbx_error_t *e);
static int sbx_init_call_terminal(const sbx_init_call_t *call,
    sbx_error_t *e);
static void sbx_init_call_do(sbx_init_call_t *call);
static void sbx_init_call_get(sbx_init_call_t *call);
static void sbx_init_call_list(sbx_init_call_t *call);
static void sbx_init_call_resize(sbx_init_call_t *call);
static void sbx_init_call_drop(sbx_init_call_t *call);
static int sbx_init_call_stays(const sbx_init_call_t *call,
    sbx_f_error_t *error);


static sbx_init_call_t  *sbx_init_calls[SBX_INIT_CALLS];
static unsigned          sbx_init_calls_end;


sbx_init_call_t *
sbx_init_call_each(sbx_init_call_t *previous)
{
    unsigned  i;

    for (i = previous == NULL ? 0 : previous->place + 1;
         i < sbx_init_calls_end;
         i++)
    {
        if (sbx_init_calls[i] != NULL
            && sbx_init_calls[i]->state != SBX_INIT_CALL_FREE)
        {
            return sbx_init_calls[i];
        }
    }

    return NULL;
}


static sbx_init_call_t *
sbx_init_call_new(void)
{
    unsigned          i;
    sbx_init_call_t  *call;

    for (i = 0; i < SBX_INIT_CALLS; i++) {
        if (sbx_init_calls[i] == NULL
            || sbx_init_calls[i]->state == SBX_INIT_CALL_FREE)
        {
            break;
        }
    }

    if (i == SBX_INIT_CALLS) {
        return NULL;
    }

    if (sbx_init_calls[i] == NULL) {
        sbx_init_calls[i] = malloc(sizeof(sbx_init_call_t));
    }

    call = sbx_init_calls[i];

    if (call == NULL) {
        return NULL;
    }

    if (i >= sbx_init_calls_end) {
        sbx_init_calls_end = i + 1;
    }

    memset(call, 0, offsetof(sbx_init_call_t, out));
    call->place = i;
    call->give_up = SBX_INIT_NONE;

    return call;
}


void
sbx_init_call_task(const sbx_task_t *task, int fd)
{
    int               type, size;
    socklen_t         len;
    sbx_error_t       e;
    sbx_f_error_t     error;
    sbx_init_call_t  *call;

    len = sizeof(type);

    if (getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &len) == -1
        || type != SOCK_STREAM)
    {
        (void) close(fd);
        return;
    }

    call = sbx_init_call_new();

    if (call == NULL) {
        sbx_init_call_full(&error, "process calls", SBX_INIT_CALLS);
        sbx_init_exec_refuse(fd, &error);
        return;
    }

    size = SBX_INIT_CALL_SEND_BUFFER;
    (void) setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &size, sizeof(size));

    call->state = SBX_INIT_CALL_ASKED;
    call->call.fd = fd;
    call->call.handler = sbx_init_call_event;
    call->call.data = call;
    sbx_init_call_interest(call);

    switch (task->op) {

    case SBX_OP_CANCEL:
        sbx_init_call_cancel(call);
        return;

    case SBX_OP_LOG:
        sbx_init_log_call(call);
        return;

    case SBX_OP_ENV:
        sbx_init_env_call(call);
        return;
    }

    if ((sbx_init.config->capabilities & SBX_CAP_SHELL) == 0) {
        (void) sbx_error(&e, 0, SBX_E_CAPABILITY,
                         "the session lacks the capability \"shell\"");
        sbx_init_call_error(call, &e);
        return;
    }

    sbx_init_call_ask(call);
}


void
sbx_init_call_interest(sbx_init_call_t *call)
{
    uint32_t  events;

    if (call->state == SBX_INIT_CALL_FREE) {
        return;
    }

    events = EPOLLRDHUP;

    if (call->state != SBX_INIT_CALL_WRITES
        || call->in_start == call->in_end)
    {
        events |= EPOLLIN;
    }

    if (call->out_start != call->out_end || call->blocked) {
        events |= EPOLLOUT;
    }

    sbx_init_source_set(&call->call, events);
}


static void
sbx_init_call_event(sbx_init_source_t *source, uint32_t events)
{
    sbx_init_call_t  *call;

    call = source->data;

    if (events & (EPOLLHUP|EPOLLRDHUP|EPOLLERR)) {
        if (call->flies) {
            (void) sbx_init_reader_said(call);
        }

        sbx_init_call_free(call);
        return;
    }

    if (events & EPOLLOUT) {
        call->blocked = 0;

        if (sbx_init_call_flush(call)) {
            sbx_init_call_more(call);
        }
    }

    if (events & EPOLLIN) {

        switch (call->state) {

        case SBX_INIT_CALL_ASKED:
            sbx_init_call_ask(call);
            break;

        case SBX_INIT_CALL_WRITES:
            sbx_init_writer_read(call);
            break;

        default:
            sbx_init_call_drop(call);
            break;
        }
    }

    sbx_init_call_interest(call);
}


/* There is room. */

static void
sbx_init_call_more(sbx_init_call_t *call)
{
    switch (call->state) {

    case SBX_INIT_CALL_LISTS:
        sbx_init_call_list(call);
        return;

    case SBX_INIT_CALL_LOGS:
        sbx_init_log_send(call);
        return;

    case SBX_INIT_CALL_ENVS:
        sbx_init_env_send(call);
        return;

    case SBX_INIT_CALL_READS:
        sbx_init_reader_send(call);
        return;

    default:
        return;
    }
}


/* Not a byte past the frame: what follows is read where it belongs. */

static void
sbx_init_call_ask(sbx_init_call_t *call)
{
    ssize_t      n;
    sbx_error_t  e;
    sbx_frame_t  head;

    n = recv(call->call.fd, call->frame + call->have,
             sizeof(call->frame) - call->have, MSG_DONTWAIT);

    if (n == 0 || (n == -1 && errno != EAGAIN && errno != EINTR)) {
        sbx_init_call_free(call);
        return;
    }

    call->have += n > 0 ? (size_t) n : 0;

    if (call->have < sizeof(head)) {
        return;
    }

    memcpy(&head, call->frame, sizeof(head));

    if (head.type != SBX_F_PROCESS
        || head.length != sizeof(sbx_f_process_t))
    {
        (void) sbx_error(&e, 0, SBX_E_INVALID,
                         "the call's frames are malformed");
        sbx_init_call_error(call, &e);
        return;
    }

    if (call->have == sizeof(call->frame)) {
        memcpy(&call->ask, call->frame + sizeof(head), sizeof(call->ask));
        sbx_init_call_do(call);
        sbx_init_call_interest(call);
    }
}


int
sbx_init_process_check(const sbx_f_process_t *ask, sbx_error_t *e)
{
    static const uint32_t  flags[] = {
        [SBX_PROCESS_OUTPUT] = SBX_PROCESS_LIVE,
        [SBX_PROCESS_STDIN] = SBX_PROCESS_EOF|SBX_PROCESS_TTY
                              |SBX_PROCESS_PIPE,
        [SBX_PROCESS_SIGNAL] = SBX_PROCESS_FOREGROUND,
        [SBX_PROCESS_RESIZE] = SBX_PROCESS_TTY
    };

    if (ask->verb < SBX_PROCESS_LIST || ask->verb > SBX_PROCESS_RESIZE) {
        return sbx_error(e, 0, SBX_E_INVALID, "verb %u is unknown",
                         ask->verb);
    }

    if ((ask->flags & ~flags[ask->verb])
        || (ask->flags & (SBX_PROCESS_TTY|SBX_PROCESS_PIPE))
           == (SBX_PROCESS_TTY|SBX_PROCESS_PIPE))
    {
        return sbx_error(e, 0, SBX_E_INVALID, "the flags are unknown");
    }

    if (memchr(ask->tag, '\0', SBX_TAG_MAX + 1) == NULL
        || (ask->tag[0] != '\0'
            && (ask->pid != 0 || ask->verb == SBX_PROCESS_LIST)))
    {
        return sbx_error(e, 0, SBX_E_INVALID, "the tag has no place here");
    }

    if (ask->verb == SBX_PROCESS_SIGNAL
        && (ask->signal < 1 || ask->signal > 64))
    {
        return sbx_error(e, 0, SBX_E_INVALID,
                         "signal %d is none of 1 to 64", ask->signal);
    }

    if (ask->verb == SBX_PROCESS_RESIZE
        && (ask->rows < 1 || ask->rows > UINT16_MAX
            || ask->cols < 1 || ask->cols > UINT16_MAX))
    {
        return sbx_error(e, 0, SBX_E_INVALID,
                         "rows and columns are 1 to 65535");
    }

    return 0;
}


static int
sbx_init_call_check(const sbx_init_call_t *call, sbx_error_t *e)
{
    if (call->ask.verb == SBX_PROCESS_LIST) {
        return 0;
    }

    if (call->process == NULL && !call->orphan) {
        return call->ask.tag[0] != '\0'
               ? sbx_error(e, 0, SBX_E_PROCESS,
                           "there is no process with the tag \"%s\"",
                           call->ask.tag)
               : sbx_error(e, 0, SBX_E_PROCESS, "there is no process %d",
                           call->ask.pid);
    }

    if (call->ask.verb == SBX_PROCESS_GET
        || (call->orphan && call->ask.verb == SBX_PROCESS_SIGNAL))
    {
        return 0;
    }

    if (call->orphan) {
        return sbx_error(e, 0, SBX_E_CONFLICT,
                         "process %d was left behind by a command and has no "
                         "input or output that is known", call->ask.pid);
    }

    if (call->ask.verb != SBX_PROCESS_OUTPUT
        && (call->process->command == NULL
            || call->process->command->reaped))
    {
        return sbx_error(e, 0, SBX_E_CONFLICT, "process %d has ended",
                         call->ask.pid);
    }

    return sbx_init_call_terminal(call, e);
}


static int
sbx_init_call_terminal(const sbx_init_call_t *call, sbx_error_t *e)
{
    uint32_t  flags;

    flags = call->ask.flags & (SBX_PROCESS_TTY|SBX_PROCESS_PIPE);

    if (flags == 0
        || flags == (call->process->state.flags & SBX_STATE_TTY
                     ? SBX_PROCESS_TTY : SBX_PROCESS_PIPE))
    {
        return 0;
    }

    return sbx_error(e, ENOTTY, SBX_E_CONFLICT,
                     flags == SBX_PROCESS_TTY
                     ? "process %d has no terminal"
                     : "process %d has a terminal", call->ask.pid);
}


static void
sbx_init_call_do(sbx_init_call_t *call)
{
    sbx_error_t    e;
    sbx_f_error_t  error;

    if (sbx_init_process_check(&call->ask, &e) != 0) {
        sbx_init_call_error(call, &e);
        return;
    }

    if (call->ask.tag[0] != '\0') {
        call->process = sbx_init_process_tagged(call->ask.tag);
        call->ask.pid = call->process != NULL ? call->process->state.pid : 0;

    } else if (call->ask.verb != SBX_PROCESS_LIST) {
        call->process = call->ask.pid > 0
                        ? sbx_init_process_find(call->ask.pid) : NULL;
        call->orphan = call->process == NULL
                     && sbx_init_orphan_is(call->ask.pid);
    }

    if (sbx_init_call_check(call, &e) != 0) {
        call->process = NULL;
        sbx_init_call_error(call, &e);
        return;
    }

    if (sbx_init_call_stays(call, &error) != 0) {
        call->process = NULL;
        sbx_init_call_refuse(call, &error);
        return;
    }

    sbx_init_call_send(call, SBX_F_ACCEPTED, NULL, 0);
    SBX_FAULT("init-process-accepted");

    switch (call->ask.verb) {

    case SBX_PROCESS_LIST:
        call->state = SBX_INIT_CALL_LISTS;
        call->turn.group = -1;
        sbx_init_call_list(call);
        return;

    case SBX_PROCESS_GET:
        sbx_init_call_get(call);
        return;

    case SBX_PROCESS_OUTPUT:
        sbx_init_reader_begin(call);
        return;

    case SBX_PROCESS_STDIN:
        sbx_init_writer_begin(call);
        return;

    case SBX_PROCESS_SIGNAL:
        sbx_init_call_signal(call);
        return;

    default:
        sbx_init_call_resize(call);
        return;
    }
}


/* However many follow a session's output, its processes can be listed and
 * killed. */

static int
sbx_init_call_stays(const sbx_init_call_t *call, sbx_f_error_t *error)
{
    unsigned          n;
    sbx_init_call_t  *other;

    if (call->ask.verb != SBX_PROCESS_OUTPUT
        && call->ask.verb != SBX_PROCESS_STDIN)
    {
        return 0;
    }

    n = 0;

    for (other = sbx_init_call_each(NULL);
         other != NULL;
         other = sbx_init_call_each(other))
    {
        n += (other->state == SBX_INIT_CALL_READS
              || other->state == SBX_INIT_CALL_WRITES);
    }

    if (n < SBX_INIT_STREAMS) {
        return 0;
    }

    sbx_init_call_full(error, "process streams", SBX_INIT_STREAMS);
    return -1;
}


static void
sbx_init_call_get(sbx_init_call_t *call)
{
    size_t       n;
    sbx_error_t  e;

    if (call->process != NULL) {
        n = sbx_init_process_frame(call->process,
                                   call->out + call->out_end);

    } else {
        n = sbx_init_orphan_frame(call->ask.pid, call->out + call->out_end);
    }

    call->process = NULL;

    if (n == 0) {
        (void) sbx_error(&e, 0, SBX_E_PROCESS, "there is no process %d",
                         call->ask.pid);
        sbx_init_call_error(call, &e);
        return;
    }

    call->out_end += n;
    sbx_init_call_end(call, 0);
}


/* As many as there is room for; the socket's event has it go on. */

static void
sbx_init_call_list(sbx_init_call_t *call)
{
    int                  pid;
    size_t               n;
    sbx_init_process_t  *process;

    /* what was read at the last turn is old */
    sbx_init_orphan_look();

    do {
        process = sbx_init_process_after(call->seq);

        if (process != NULL) {
            call->seq = process->seq;
            call->out_end += sbx_init_process_frame(process, call->out
                                                             + call->out_end);
            continue;
        }

        pid = sbx_init_orphan_next(&call->turn);

        if (pid == 0) {
            sbx_init_call_end(call, 0);
            return;
        }

        n = sbx_init_orphan_turn(&call->turn, call->out + call->out_end);
        call->out_end += n;

    } while (sizeof(call->out) - call->out_end
                 >= SBX_INIT_STATE_MAX + sizeof(sbx_frame_t)
                    + sizeof(sbx_f_end_t)
             || sbx_init_call_flush(call));
}


static void
sbx_init_call_resize(sbx_init_call_t *call)
{
    int                  rc;
    sbx_error_t          e;
    sbx_init_command_t  *c;

    c = call->process != NULL ? call->process->command : NULL;
    call->process = NULL;

    rc = c != NULL ? sbx_init_tty_resize(c, call->ask.rows, call->ask.cols)
                   : -1;

    if (rc == -1) {
        (void) sbx_error(&e, 0, SBX_E_CONFLICT,
                         "process %d has no terminal", call->ask.pid);
        sbx_init_call_error(call, &e);
        return;
    }

    sbx_init_call_end(call, 0);
}


void
sbx_init_call_tick(uint64_t now)
{
    sbx_init_call_t  *call;

    sbx_init_hold_tick(now);
    sbx_init_kill_tick(now);

    for (call = sbx_init_call_each(NULL);
         call != NULL;
         call = sbx_init_call_each(call))
    {
        if (call->state == SBX_INIT_CALL_CLOSING) {

            if (now >= call->give_up) {
                sbx_init_call_free(call);

            } else {
                sbx_init_loop_wake(call->give_up);
            }
        }
    }
}


void
sbx_init_call_send(sbx_init_call_t *call, sbx_frame_type_t type,
    const void *payload, size_t size)
{
    uint8_t  *p;

    if (call->state == SBX_INIT_CALL_FREE) {
        return;
    }

    if (sizeof(call->out) - call->out_end < sizeof(sbx_frame_t) + size) {
        /* without this frame the call means nothing */
        (void) shutdown(call->call.fd, SHUT_RDWR);
        return;
    }

    p = call->out + call->out_end;
    p += sbx_wire_header(p, type, size);

    if (size != 0) {
        memcpy(p, payload, size);
    }

    call->out_end += sizeof(sbx_frame_t) + size;

    (void) sbx_init_call_flush(call);
}


int
sbx_init_call_flush(sbx_init_call_t *call)
{
    ssize_t  n;

    while (call->out_start < call->out_end) {
        n = send(call->call.fd, call->out + call->out_start,
                 call->out_end - call->out_start, MSG_DONTWAIT|MSG_NOSIGNAL);

        if (n == -1 && errno == EINTR) {
            continue;
        }

        if (n == -1 && errno == EAGAIN) {
            sbx_init_call_interest(call);
            return 0;
        }

        if (n == -1) {
            /* the worker is gone, which the loop is about to be told: what it
             * has not taken is not to be followed by more */
            call->blocked = 1;
            sbx_init_call_interest(call);
            return 0;
        }

        call->out_start += (size_t) n;
    }

    call->out_start = 0;
    call->out_end = 0;

    if (call->state == SBX_INIT_CALL_CLOSING) {
        (void) shutdown(call->call.fd, SHUT_WR);
    }

    return 1;
}


/* The last frame: what comes after it from the worker is of no use. */

static void
sbx_init_call_last(sbx_init_call_t *call, sbx_frame_type_t type,
    const void *payload, size_t size)
{
    if (call->state == SBX_INIT_CALL_FREE) {
        return;
    }

    if (call->state == SBX_INIT_CALL_READS) {
        sbx_init_reader_end(call);
    }

    call->process = NULL;
    call->in_start = call->in_end;
    call->blocked = 0;
    call->state = SBX_INIT_CALL_CLOSING;
    call->give_up = sbx_now_us() + SBX_INIT_LINGER;
    sbx_init_loop_wake(call->give_up);

    sbx_init_call_send(call, type, payload, size);
    sbx_init_call_interest(call);
}


void
sbx_init_call_error(sbx_init_call_t *call, const sbx_error_t *e)
{
    sbx_f_error_t  error;

    sbx_init_error_fill(&error, e);
    sbx_init_call_last(call, SBX_F_ERROR, &error, sizeof(error));
}


void
sbx_init_call_refuse(sbx_init_call_t *call, const sbx_f_error_t *error)
{
    sbx_init_call_last(call, SBX_F_ERROR, error, sizeof(sbx_f_error_t));
}


void
sbx_init_call_exit(sbx_init_call_t *call, const sbx_f_exit_t *exit)
{
    sbx_init_call_last(call, SBX_F_EXIT, exit, sizeof(sbx_f_exit_t));
}


void
sbx_init_call_end(sbx_init_call_t *call, uint64_t count)
{
    sbx_f_end_t  end;

    memset(&end, 0, sizeof(end));
    end.count = count;
    sbx_init_call_last(call, SBX_F_END, &end, sizeof(end));
}


static void
sbx_init_call_drop(sbx_init_call_t *call)
{
    ssize_t  n;
    char     scratch[4096];

    if (call->flies) {
        if (sbx_init_reader_said(call) != 0) {
            sbx_init_call_free(call);
        }

        return;
    }

    n = recv(call->call.fd, scratch, sizeof(scratch), MSG_DONTWAIT);

    if (n == 0 || (n == -1 && errno != EAGAIN && errno != EINTR)
        || (n > 0 && call->state != SBX_INIT_CALL_CLOSING))
    {
        /* gone; or it says what has no place here */
        sbx_init_call_free(call);
    }
}


void
sbx_init_call_free(sbx_init_call_t *call)
{
    sbx_init_command_t  *c;

    c = NULL;

    if (call->state == SBX_INIT_CALL_READS) {
        sbx_init_reader_end(call);

    } else if (call->state == SBX_INIT_CALL_WRITES && call->process != NULL) {
        c = call->process->command;
    }

    if (call->flies) {
        call->flies = 0;
        sbx_init_flight_end(call->ask.pid, call->seq);
    }

    call->state = SBX_INIT_CALL_FREE;
    call->process = NULL;
    sbx_init_source_close(&call->call);

    if (c != NULL && c->writer == call) {
        /* what is left of its piece is lost, and others go on */
        c->writer = NULL;
        sbx_init_input_next(c);
    }
}
