/*
 * The call of one command, seen from its socket: the frames that start it,
 * its standard input, and what goes back.
 *
 * One buffer at a time holds what has come in, and stays while a frame of
 * standard input cannot be passed on: then the socket is read no further.
 * One buffer holds what the socket did not take, and no pipe is read while
 * it is there.  Both are given back as soon as they are empty.
 */

#include "init.h"
#include "sandbox_fault.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>


#define SBX_INIT_SEND_BUFFER   32768     /* the kernel's, for each call */
#define SBX_INIT_STRINGS_COUNT 262144    /* arguments and variables */
#define SBX_INIT_EXEC_FLAGS                                                  \
    (SBX_EXEC_CAP|SBX_EXEC_MERGE|SBX_EXEC_DETACH|SBX_EXEC_STDIN_OPEN         \
     |SBX_EXEC_TTY|SBX_EXEC_BACKGROUND|SBX_EXEC_DEFAULT_CWD|SBX_EXEC_LONG)


static int sbx_init_exec_take(sbx_init_command_t *c, const sbx_task_t *task,
    int *fds, unsigned nfds);
static void sbx_init_exec_event(sbx_init_source_t *source, uint32_t events);
static void sbx_init_exec_last(sbx_init_command_t *c);
static void sbx_init_exec_read(sbx_init_command_t *c);
static void sbx_init_exec_frames(sbx_init_command_t *c);
static int sbx_init_exec_frame(sbx_init_command_t *c,
    const sbx_frame_t *frame, const uint8_t *payload);
static int sbx_init_exec_running(sbx_init_command_t *c,
    const sbx_frame_t *frame, const uint8_t *payload);
static int sbx_init_exec_begin(sbx_init_command_t *c, const uint8_t *payload,
    size_t size, sbx_error_t *e);
static int sbx_init_exec_strings(sbx_init_command_t *c,
    const uint8_t *payload, size_t size, sbx_error_t *e);
static int sbx_init_exec_room(sbx_init_command_t *c);
static int sbx_init_exec_go(sbx_init_command_t *c);
static void sbx_init_exec_flush(sbx_init_command_t *c);
static void sbx_init_exec_error(sbx_init_command_t *c, const sbx_error_t *e);


static int  sbx_init_starving;


void
sbx_init_exec_task(const sbx_task_t *task, int *fds, unsigned nfds)
{
    sbx_error_t          e;
    sbx_f_error_t        error;
    sbx_init_command_t  *c;

    c = sbx_init_command_new();

    if (c != NULL) {
        c->number = task->command;

        if (sbx_init_exec_take(c, task, fds, nfds) == 0) {
            c->state = SBX_INIT_ASKED;
            sbx_init_exec_interest(c);
            sbx_init_exec_read(c);
            return;
        }

        sbx_init_command_free(c);
        return;
    }

    (void) sbx_error(&e, 0, SBX_E_QUOTA,
                     "%u commands run in the session, and no more may",
                     SBX_COMMANDS_MAX);
    sbx_init_error_fill(&error, &e);
    memcpy(error.scope, "session", sizeof("session"));
    memcpy(error.resource, "commands", sizeof("commands"));
    error.limit = SBX_COMMANDS_MAX;
    error.retry_after = 1;

    while (nfds > 1) {
        (void) close(fds[--nfds]);
    }

    if (nfds == 1) {
        sbx_init_exec_refuse(fds[0], &error);
    }

    sbx_init_record_over(task->command, NULL);
}


/* The descriptors find their places; all are the command's from here on. */

static int
sbx_init_exec_take(sbx_init_command_t *c, const sbx_task_t *task, int *fds,
    unsigned nfds)
{
    int        type, size;
    unsigned   n;
    socklen_t  len;

    n = 0;

    if (n < nfds) {
        c->call.fd = fds[n++];
    }

    sbx_init_exec_group(c, task, fds + n, nfds - n);

    len = sizeof(type);

    if (c->call.fd == -1 || c->nattach != task->attach_count
        || getsockopt(c->call.fd, SOL_SOCKET, SO_TYPE, &type, &len) == -1
        || type != SOCK_STREAM)
    {
        return -1;
    }

    size = SBX_INIT_SEND_BUFFER;
    (void) setsockopt(c->call.fd, SOL_SOCKET, SO_SNDBUF, &size, sizeof(size));

    c->call.handler = sbx_init_exec_event;
    c->call.data = c;

    return 0;
}


void
sbx_init_exec_group(sbx_init_command_t *c, const sbx_task_t *task, int *fds,
    unsigned nfds)
{
    unsigned  i, n, bit;

    n = 0;

    for (i = 0; i < task->attach_count && n < nfds; i++) {
        c->attach[c->nattach++] = fds[n++];
    }

    for (i = 0; i < SBX_INIT_FD_MAX && n < nfds; i++) {
        bit = SBX_TASK_FD_KILL << i;

        if (task->fds & bit) {
            c->fds[i] = fds[n++];
        }
    }

    for (i = n; i < nfds; i++) {
        (void) close(fds[i]);
    }

    c->core = task->core;
    c->cpus = task->cpus;
    c->memory = task->memory;
}


void
sbx_init_exec_interest(sbx_init_command_t *c)
{
    uint32_t  events;

    events = EPOLLRDHUP;

    if (c->input_left == 0 && !c->starved) {
        events |= EPOLLIN;
    }

    if (c->out != NULL) {
        events |= EPOLLOUT;
    }

    sbx_init_source_set(&c->call, events);
}


static void
sbx_init_exec_event(sbx_init_source_t *source, uint32_t events)
{
    sbx_init_command_t  *c;

    c = source->data;

    if (events & (EPOLLHUP|EPOLLRDHUP|EPOLLERR)) {
        sbx_init_exec_last(c);
        sbx_init_exec_hang_up(c);
        return;
    }

    if (events & EPOLLOUT) {
        sbx_init_exec_flush(c);
    }

    if ((events & EPOLLIN) && c->state != SBX_INIT_FREE) {
        sbx_init_exec_read(c);
    }
}


/* The worker has gone.  Its last frame may say that its client comes back;
 * input that comes before that has nobody any more. */

static void
sbx_init_exec_last(sbx_init_command_t *c)
{
    int             rc;
    ssize_t         n;
    uint8_t        *buffer;
    sbx_frame_t     frame;
    const uint8_t  *payload;

    if (!c->flies) {
        return;
    }

    if (c->in.buf == NULL) {
        buffer = sbx_init_buffer_get(1);

        if (buffer == NULL) {
            return;
        }

        sbx_wire_init(&c->in, buffer, SBX_INIT_BUFFER);
    }

    c->input_left = 0;

    do {
        while ((rc = sbx_wire_next(&c->in, &frame, &payload)) == 1) {
            if (sbx_init_flight_leaves(c->pid, c->seq, &frame, payload) == 0)
            {
                return;
            }
        }

        if (rc == -1) {
            return;
        }

        n = recv(c->call.fd, c->in.buf + c->in.end, c->in.size - c->in.end,
                 MSG_DONTWAIT);
        c->in.end += n > 0 ? (size_t) n : 0;

    } while (n > 0 || (n == -1 && errno == EINTR));
}


static void
sbx_init_exec_read(sbx_init_command_t *c)
{
    ssize_t   n;
    uint8_t  *buffer;

    if (c->in.buf == NULL) {
        buffer = sbx_init_buffer_get(0);

        if (buffer == NULL) {
            sbx_init_exec_starve(c);
            sbx_init_exec_interest(c);
            return;
        }

        sbx_wire_init(&c->in, buffer, SBX_INIT_BUFFER);
    }

    do {
        n = recv(c->call.fd, c->in.buf + c->in.end, c->in.size - c->in.end,
                 MSG_DONTWAIT);
    } while (n == -1 && errno == EINTR);

    if (n > 0) {
        c->in.end += (size_t) n;
        sbx_init_exec_frames(c);
        return;
    }

    if (n == 0 || errno != EAGAIN) {
        sbx_init_exec_hang_up(c);
        return;
    }

    sbx_init_exec_resume(c);
}


void
sbx_init_exec_resume(sbx_init_command_t *c)
{
    if (c->in.buf != NULL) {
        sbx_init_exec_frames(c);

    } else {
        sbx_init_exec_interest(c);
    }
}


static void
sbx_init_exec_frames(sbx_init_command_t *c)
{
    int             rc;
    sbx_error_t     e;
    sbx_frame_t     frame;
    const uint8_t  *payload;

    while (c->state != SBX_INIT_FREE && c->in.buf != NULL
           && c->input_left == 0 && !c->starved)
    {
        if (c->state == SBX_INIT_INPUT && !sbx_init_exec_go(c)) {
            break;
        }

        rc = sbx_wire_next(&c->in, &frame, &payload);

        if (rc == 0) {
            break;
        }

        if (rc == -1 || sbx_init_exec_frame(c, &frame, payload) != 0) {

            if (c->state < SBX_INIT_LAUNCHING) {
                (void) sbx_error(&e, 0, SBX_E_INVALID,
                                 "the call's frames are malformed");
                sbx_init_exec_error(c, &e);

            } else {
                sbx_init_exec_hang_up(c);
            }

            return;
        }
    }

    if (c->state == SBX_INIT_FREE || c->call.fd == -1) {
        return;
    }

    if (c->input_left == 0 && c->in.buf != NULL && c->in.start == c->in.end) {
        sbx_init_buffer_put(c->in.buf);
        c->in.buf = NULL;
    }

    sbx_init_exec_interest(c);

    if (c->state == SBX_INIT_CLOSING) {
        sbx_init_command_step(c);
    }
}


/* -1: this frame has no place here. */

static int
sbx_init_exec_frame(sbx_init_command_t *c, const sbx_frame_t *frame,
    const uint8_t *payload)
{
    int          rc;
    sbx_error_t  e;

    switch (c->state) {

    case SBX_INIT_ASKED:
        if (frame->type != SBX_F_EXEC) {
            return -1;
        }

        rc = sbx_init_exec_begin(c, payload, frame->length, &e);
        break;

    case SBX_INIT_STRINGS:
        if (frame->type != SBX_F_STRINGS) {
            return -1;
        }

        rc = sbx_init_exec_strings(c, payload, frame->length, &e);
        break;

    case SBX_INIT_INPUT:
        if (frame->type != SBX_F_STDIN) {
            return -1;
        }

        sbx_init_command_start(c, frame->length != 0);

        if (c->state != SBX_INIT_LAUNCHING) {
            return 0;
        }

        /* fall through */

    case SBX_INIT_LAUNCHING:
    case SBX_INIT_RUNNING:
    case SBX_INIT_OVER:
        return sbx_init_exec_running(c, frame, payload);

    case SBX_INIT_CLOSING:
        /* what is still to come is of no use, but for its end */
        if (frame->type == SBX_F_STDIN && frame->length == 0) {
            c->input_end = 1;

        } else if (c->flies) {
            (void) sbx_init_flight_leaves(c->pid, c->seq, frame, payload);
        }

        return 0;

    default:
        return -1;
    }

    if (rc != 0) {
        sbx_init_exec_error(c, &e);
    }

    return 0;
}


static int
sbx_init_exec_running(sbx_init_command_t *c, const sbx_frame_t *frame,
    const uint8_t *payload)
{
    sbx_f_process_t  ask;

    if (frame->type == SBX_F_STDIN && !c->input_end) {
        sbx_init_input_frame(c, payload, frame->length);
        sbx_init_exec_begun(c);
        return 0;
    }

    if (c->flies && sbx_init_flight_leaves(c->pid, c->seq, frame, payload)
                    == 0)
    {
        /* said once, and its end follows */
        return -1;
    }

    if (frame->type != SBX_F_PROCESS || frame->length != sizeof(ask)
        || (c->exec.flags & SBX_EXEC_TTY) == 0)
    {
        return -1;
    }

    memcpy(&ask, payload, sizeof(ask));

    if (sbx_init_process_check(&ask, NULL) != 0
        || ask.tag[0] != '\0' || (ask.pid != 0 && ask.pid != c->pid))
    {
        return -1;
    }

    /* that it has just ended is not the worker's mistake */

    switch (ask.verb) {

    case SBX_PROCESS_SIGNAL:
        (void) sbx_init_process_signal(c, &ask);
        return 0;

    case SBX_PROCESS_RESIZE:
        (void) sbx_init_tty_resize(c, ask.rows, ask.cols);
        return 0;

    default:
        return -1;
    }
}


static int
sbx_init_exec_begin(sbx_init_command_t *c, const uint8_t *payload,
    size_t size, sbx_error_t *e)
{
    sbx_f_exec_t  *exec;

    exec = &c->exec;

    if (size != sizeof(sbx_f_exec_t)) {
        return sbx_error(e, 0, SBX_E_INVALID, "the exec frame's size is "
                         "wrong");
    }

    memcpy(exec, payload, sizeof(sbx_f_exec_t));

    if ((sbx_init.config->capabilities & SBX_CAP_SHELL) == 0) {
        return sbx_error(e, 0, SBX_E_CAPABILITY,
                         "the session lacks the capability \"shell\"");
    }

    if (exec->user != SBX_USER_USER && exec->user != SBX_USER_ROOT) {
        return sbx_error(e, 0, SBX_E_INVALID, "the user is unknown");
    }

    if ((exec->flags & ~(uint32_t) SBX_INIT_EXEC_FLAGS)
        || memchr(exec->tag, '\0', SBX_TAG_MAX + 1) == NULL
        || exec->rows > UINT16_MAX || exec->cols > UINT16_MAX)
    {
        return sbx_error(e, 0, SBX_E_INVALID,
                         "flags, tag or size of the terminal are wrong");
    }

    if (exec->argc == 0) {
        return sbx_error(e, 0, SBX_E_INVALID, "there is no program");
    }

    if (exec->strings_size > SBX_STRINGS_MAX) {
        return sbx_error(e, 0, SBX_E_INVALID,
                         "arguments and environment are longer than %u "
                         "bytes", SBX_STRINGS_MAX);
    }

    if (exec->argc > SBX_INIT_STRINGS_COUNT
        || exec->envc > SBX_INIT_STRINGS_COUNT - exec->argc
        || exec->argc + exec->envc >= exec->strings_size)
    {
        return sbx_error(e, 0, SBX_E_INVALID,
                         "the number of arguments and variables is wrong");
    }

    if ((exec->flags & SBX_EXEC_BACKGROUND) && exec->timeout == SBX_UNSET) {
        exec->timeout = SBX_UNLIMITED;
    }

    if (sbx_init_exec_limits(exec, e) != 0) {
        return -1;
    }

    c->background = (exec->flags & SBX_EXEC_BACKGROUND) != 0;
    c->state = SBX_INIT_STRINGS;

    (void) sbx_init_exec_room(c);

    return 0;
}


/* Where all calls together hold too much, this one waits. */

static int
sbx_init_exec_room(sbx_init_command_t *c)
{
    if (c->launch == NULL) {
        c->launch = sbx_init_launch_new(&c->exec);
    }

    if (c->launch == NULL) {
        sbx_init_exec_starve(c);
        return 0;
    }

    return 1;
}


static int
sbx_init_exec_strings(sbx_init_command_t *c, const uint8_t *payload,
    size_t size, sbx_error_t *e)
{
    sbx_init_launch_t  *launch;

    launch = c->launch;

    if (size == 0 || size > launch->strings_size - c->strings) {
        return sbx_error(e, 0, SBX_E_INVALID,
                         "the string table's size is wrong");
    }

    memcpy(launch->strings + c->strings, payload, size);
    c->strings += size;

    if (c->strings < launch->strings_size) {
        return 0;
    }

    launch->root = c->exec.user == SBX_USER_ROOT;
    sbx_init_launch_cpus(launch, c);

    if (sbx_init_launch_strings(launch, &c->exec, e) != 0) {
        return -1;
    }

    (void) snprintf(c->program, sizeof(c->program), "%s", launch->argv[0]);

    c->accepted = 1;
    c->state = SBX_INIT_INPUT;
    SBX_FAULT("init-exec-read");
    sbx_init_exec_send(c, SBX_F_ACCEPTED, NULL, 0);
    SBX_FAULT("init-exec-accepted");

    (void) sbx_init_exec_go(c);

    return 0;
}


/* Where as many are on their way to exec as may, this one waits; 0 then. */

static int
sbx_init_exec_go(sbx_init_command_t *c)
{
    if (!sbx_init_launch_room()) {
        sbx_init_exec_starve(c);
        return 0;
    }

    /* others are started by the first of their input */

    if (c->exec.flags & (SBX_EXEC_STDIN_OPEN|SBX_EXEC_TTY)) {
        sbx_init_command_start(c, 1);
    }

    return 1;
}


static void
sbx_init_exec_error(sbx_init_command_t *c, const sbx_error_t *e)
{
    sbx_f_error_t  error;

    sbx_init_error_fill(&error, e);
    sbx_init_exec_fail(c, &error);
}


void
sbx_init_exec_fail(sbx_init_command_t *c, const sbx_f_error_t *error)
{
    if (c->code != NULL) {
        sbx_init_code_fail(c, error);
    }

    sbx_init_exec_send(c, SBX_F_ERROR, error, sizeof(sbx_f_error_t));

    c->state = SBX_INIT_CLOSING;
    c->answered = 1;
    c->give_up = sbx_now_us() + SBX_INIT_LINGER;
    sbx_init_loop_wake(c->give_up);

    sbx_init_command_step(c);
}


void
sbx_init_exec_send(sbx_init_command_t *c, sbx_frame_type_t type,
    const void *payload, size_t size)
{
    uint8_t  *p;

    if (c->call.fd == -1) {
        return;
    }

    if (c->out == NULL) {
        c->out = sbx_init_buffer_get(1);
        c->out_start = 0;
        c->out_end = 0;
    }

    if (c->out == NULL
        || SBX_INIT_BUFFER - c->out_end < sizeof(sbx_frame_t) + size)
    {
        /* without this frame the call means nothing */
        (void) shutdown(c->call.fd, SHUT_RDWR);
        return;
    }

    p = c->out + c->out_end;
    p += sbx_wire_header(p, type, size);

    if (size != 0) {
        memcpy(p, payload, size);
    }

    c->out_end += sizeof(sbx_frame_t) + size;

    sbx_init_exec_flush(c);
}


void
sbx_init_exec_push(sbx_init_command_t *c, uint8_t *buffer, size_t size)
{
    c->out = buffer;
    c->out_start = 0;
    c->out_end = size;

    sbx_init_exec_flush(c);
    SBX_FAULT("init-exec-output");
}


static void
sbx_init_exec_flush(sbx_init_command_t *c)
{
    ssize_t  n;

    while (c->out != NULL && c->out_start < c->out_end) {
        n = send(c->call.fd, c->out + c->out_start,
                 c->out_end - c->out_start, MSG_DONTWAIT|MSG_NOSIGNAL);

        if (n == -1) {
            if (errno == EINTR) {
                continue;
            }

            if (errno == EAGAIN) {
                sbx_init_exec_interest(c);
                return;
            }

            /* the worker is gone, which the loop is about to be told */
            break;
        }

        c->out_start += (size_t) n;
    }

    sbx_init_buffer_put(c->out);
    c->out = NULL;

    sbx_init_exec_interest(c);
    sbx_init_output_watch(c);

    if (c->begun && c->state != SBX_INIT_CLOSING) {
        /* nothing more is said on either side */
        sbx_init_exec_hang_up(c);
        return;
    }

    if (c->state >= SBX_INIT_OVER) {
        sbx_init_command_step(c);
    }
}


void
sbx_init_exec_begun(sbx_init_command_t *c)
{
    sbx_f_end_t  end;

    if ((c->exec.flags & SBX_EXEC_BACKGROUND) == 0 || c->begun
        || !c->exec_done || c->call.fd == -1
        || (!c->input_end && !c->reaped))
    {
        return;
    }

    memset(&end, 0, sizeof(end));
    c->begun = 1;
    sbx_init_exec_send(c, SBX_F_END, &end, sizeof(end));
}


void
sbx_init_exec_hang_up(sbx_init_command_t *c)
{
    sbx_init_source_close(&c->call);

    sbx_init_buffer_put(c->in.buf);
    sbx_init_buffer_put(c->out);
    c->in.buf = NULL;
    c->out = NULL;
    c->input_left = 0;
    c->starved = 0;

    if (c->state < SBX_INIT_LAUNCHING || c->state > SBX_INIT_RUNNING
        || (c->exec.flags & (SBX_EXEC_DETACH|SBX_EXEC_BACKGROUND)) == 0
        || (c->exec.flags & SBX_EXEC_STDIN_OPEN) == 0)
    {
        sbx_init_input_close(c);

    } else {
        sbx_init_input_next(c);
    }

    if ((c->exec.flags & SBX_EXEC_DETACH) && !c->background) {
        c->background = 1;
        sbx_init_process_ring(c);
    }

    if (c->flies) {
        c->flies = 0;
        sbx_init_flight_end(c->pid, c->seq);
    }

    switch (c->state) {

    case SBX_INIT_ASKED:
    case SBX_INIT_STRINGS:
    case SBX_INIT_INPUT:
        sbx_init_command_free(c);
        return;

    case SBX_INIT_LAUNCHING:
    case SBX_INIT_RUNNING:
        if ((c->exec.flags & (SBX_EXEC_DETACH|SBX_EXEC_BACKGROUND)) == 0) {
            sbx_init_command_kill(c, SBX_REASON_DISCONNECTED);
        }

        /* what it writes is read, and kept or dropped */
        sbx_init_output_watch(c);
        return;

    case SBX_INIT_OVER:
        /* the last of what it wrote, which waited for the call */
        sbx_init_output_watch(c);
        sbx_init_command_step(c);
        return;

    case SBX_INIT_CLOSING:
        sbx_init_command_step(c);
        return;

    case SBX_INIT_FREE:
        return;
    }
}


void
sbx_init_exec_starve(sbx_init_command_t *c)
{
    c->starved = 1;
    sbx_init_starving = 1;
}


/* Buffers or room may have become free: who waits for them tries again. */

void
sbx_init_exec_starved(void)
{
    sbx_init_command_t  *c;

    if (!sbx_init_starving) {
        return;
    }

    sbx_init_starving = 0;

    for (c = sbx_init_command_each(NULL);
         c != NULL;
         c = sbx_init_command_each(c))
    {
        if (!c->starved) {
            continue;
        }

        c->starved = 0;

        if ((c->state == SBX_INIT_STRINGS && !sbx_init_exec_room(c))
            || (c->state == SBX_INIT_INPUT && !sbx_init_exec_go(c)))
        {
            continue;
        }

        sbx_init_output_watch(c);
        sbx_init_exec_resume(c);
    }
}
