/*
 * Standard input that comes by calls of its own, beside that of the call
 * which has begun the command.  A piece at a time is read from a call, and
 * nothing more until the pipe has taken it; so a command that does not read
 * holds up those who write to it, and nobody else.
 */

#include "init_process.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>


static void sbx_init_writer_write(sbx_init_call_t *call);
static int sbx_init_writer_frame(sbx_init_call_t *call);
static void sbx_init_writer_over(sbx_init_call_t *call);
static void sbx_init_writer_closed(sbx_init_call_t *call);


void
sbx_init_writer_begin(sbx_init_call_t *call)
{
    sbx_init_command_t  *c;

    c = call->process->command;

    if ((c->exec.flags & SBX_EXEC_STDIN_OPEN) == 0 || c->input.fd == -1
        || c->input_eof)
    {
        sbx_init_writer_closed(call);
        return;
    }

    call->state = SBX_INIT_CALL_WRITES;
    call->have = 0;
    call->pending = 0;

    sbx_init_call_send(call, SBX_F_READY, NULL, 0);
}


static void
sbx_init_writer_closed(sbx_init_call_t *call)
{
    sbx_error_t  e;

    (void) sbx_error(&e, EPIPE, SBX_E_CONFLICT,
                     "the standard input of process %d is not open",
                     call->ask.pid);
    sbx_init_call_error(call, &e);
}


void
sbx_init_writer_read(sbx_init_call_t *call)
{
    size_t   size;
    ssize_t  n;

    if (call->in_start != call->in_end) {
        return;
    }

    if (call->pending == 0) {
        n = recv(call->call.fd, call->frame + call->have,
                 sizeof(sbx_frame_t) - call->have, MSG_DONTWAIT);

    } else {
        size = call->pending < sizeof(call->in) ? (size_t) call->pending
                                                : sizeof(call->in);
        n = recv(call->call.fd, call->in, size, MSG_DONTWAIT);
    }

    if (n == -1 && (errno == EAGAIN || errno == EINTR)) {
        return;
    }

    if (n <= 0) {
        sbx_init_call_free(call);
        return;
    }

    if (call->pending == 0) {
        call->have += (size_t) n;

        if (call->have == sizeof(sbx_frame_t)
            && sbx_init_writer_frame(call) != 0)
        {
            sbx_init_call_free(call);
        }

        return;
    }

    call->pending -= (uint64_t) n;
    call->in_start = 0;
    call->in_end = (size_t) n;

    if (call->process->command->writer == NULL) {
        sbx_init_writer_write(call);
    }
}


/* -1: this frame has no place here. */

static int
sbx_init_writer_frame(sbx_init_call_t *call)
{
    sbx_frame_t  head;

    memcpy(&head, call->frame, sizeof(head));
    call->have = 0;

    if (head.type != SBX_F_STDIN || head.length > SBX_FRAME_MAX) {
        return -1;
    }

    if (head.length == 0) {
        sbx_init_writer_over(call);

    } else {
        call->pending = head.length;
    }

    return 0;
}


static void
sbx_init_writer_over(sbx_init_call_t *call)
{
    sbx_init_command_t  *c;

    c = call->process->command;

    sbx_init_call_end(call, 0);

    if (call->ask.flags & SBX_PROCESS_EOF) {
        sbx_init_input_eof(c);
    }
}


static void
sbx_init_writer_write(sbx_init_call_t *call)
{
    ssize_t              n;
    sbx_init_command_t  *c;

    c = call->process->command;

    if (c->writer != NULL ? c->writer != call : c->input_left != 0) {
        return;
    }

    while (call->in_start != call->in_end) {
        n = sbx_init_input_put(c, call->in + call->in_start,
                               call->in_end - call->in_start);

        if (n > 0) {
            call->in_start += (size_t) n;
            continue;
        }

        if (n == -1 && errno == EINTR) {
            continue;
        }

        if (n == 0 || errno == EAGAIN) {
            /* whoever has begun goes on first */
            c->writer = call;
            sbx_init_source_set(&c->input, EPOLLOUT);
            sbx_init_call_interest(call);
            return;
        }

        sbx_init_input_close(c);
        return;
    }

    c->writer = NULL;
    sbx_init_call_interest(call);
}


void
sbx_init_process_input(sbx_init_command_t *c)
{
    sbx_init_call_t  *call;

    if (c->writer != NULL) {
        sbx_init_writer_write(c->writer);
    }

    for (call = sbx_init_call_each(NULL);
         call != NULL && c->writer == NULL && c->input.fd != -1;
         call = sbx_init_call_each(call))
    {
        if (call->state == SBX_INIT_CALL_WRITES && call->process == c->process
            && call->in_start != call->in_end)
        {
            sbx_init_writer_write(call);
        }
    }
}


void
sbx_init_process_input_closed(sbx_init_command_t *c)
{
    sbx_init_call_t  *call;

    c->writer = NULL;

    for (call = sbx_init_call_each(NULL);
         call != NULL;
         call = sbx_init_call_each(call))
    {
        if (call->state == SBX_INIT_CALL_WRITES && call->process == c->process)
        {
            sbx_init_writer_closed(call);
        }
    }
}
