/*
 * Readers of a process's output.  What they are sent comes from the rings
 * themselves: a frame's bytes are announced, and stay in the ring until the
 * socket has taken them.  A slow reader thereby holds back the command, and
 * costs no memory of its own; one that goes away lets go of all at once.
 */

#include "init_process.h"
#include "sandbox_fault.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>


#define SBX_INIT_READER_FRAME   32768
#define SBX_INIT_READER_PIECES  16
#define SBX_INIT_READER_TURN    262144   /* bytes before others' turn */


static int sbx_init_reader_frame(sbx_init_call_t *call);


void
sbx_init_reader_begin(sbx_init_call_t *call)
{
    unsigned             i;
    sbx_error_t          e;
    sbx_f_error_t        error;
    sbx_f_output_t       output;
    sbx_init_ring_t     *ring;
    sbx_init_process_t  *process;

    process = call->process;

    if (process->command != NULL) {
        /* from now on, if not since its start */
        sbx_init_process_ring(process->command);
    }

    memset(&output, 0, sizeof(output));
    output.pid = process->state.pid;
    output.flags = sbx_init_process_flags(process);

    for (i = 0; i < 2; i++) {
        ring = &process->rings[i];

        if (call->ask.flags & SBX_PROCESS_LIVE) {
            call->ask.from[i] = ring->next;
        }

        call->from[i] = call->ask.from[i] == SBX_UNSET ? ring->oldest
                                                       : call->ask.from[i];
        output.from[i] = call->from[i];
        output.oldest[i] = ring->oldest;

        if (call->from[i] > ring->next) {
            (void) sbx_error(&e, 0, SBX_E_INVALID,
                             "the offset is beyond the end of %s",
                             i == 0 ? "stdout" : "stderr");
            sbx_init_call_error(call, &e);
            return;
        }
    }

    if (output.from[0] < output.oldest[0] || output.from[1] < output.oldest[1])
    {
        (void) sbx_error(&e, 0, SBX_E_OFFSET,
                         "output at that offset is no longer kept");
        sbx_init_error_fill(&error, &e);
        memcpy(error.oldest, output.oldest, sizeof(error.oldest));
        sbx_init_call_refuse(call, &error);
        return;
    }

    call->state = SBX_INIT_CALL_READS;
    call->flies = 1;
    call->seq = process->seq;
    call->have = 0;
    process->readers++;
    sbx_init_flight_begin(process);

    if ((call->ask.flags & SBX_PROCESS_LIVE) == 0
        && (call->ask.from[0] != SBX_UNSET || call->ask.from[1] != SBX_UNSET))
    {
        /* one that asks for whatever there is has not been here before */
        sbx_init_hold_take(process, call->from);
    }

    sbx_init_reader_hold(process);

    sbx_init_call_send(call, SBX_F_OUTPUT, &output, sizeof(output));
    SBX_FAULT("init-output-attached");
    sbx_init_reader_send(call);
}


/* From the first byte on that one has yet to read, or comes back to. */

void
sbx_init_reader_hold(sbx_init_process_t *process)
{
    unsigned          i;
    uint64_t          hold[2];
    sbx_init_call_t  *call;

    hold[0] = SBX_INIT_FREE_HOLD;
    hold[1] = SBX_INIT_FREE_HOLD;

    for (call = process->readers != 0 ? sbx_init_call_each(NULL) : NULL;
         call != NULL;
         call = sbx_init_call_each(call))
    {
        if (call->state != SBX_INIT_CALL_READS || call->process != process) {
            continue;
        }

        for (i = 0; i < 2; i++) {
            if (call->from[i] < hold[i]) {
                hold[i] = call->from[i];
            }
        }
    }

    sbx_init_hold_least(process, hold);

    for (i = 0; i < 2; i++) {
        process->rings[i].hold = hold[i];
        sbx_init_ring_trim(&process->rings[i]);
    }

    sbx_init_output_room();
}


/* 0: there is nothing more to be sent now. */

static int
sbx_init_reader_frame(sbx_init_call_t *call)
{
    unsigned             i, k;
    uint64_t             n;
    sbx_init_process_t  *process;

    process = call->process;

    for (i = 0; i < 2; i++) {
        k = (call->stream + 1 + i) % 2;
        n = process->rings[k].next - call->from[k];

        if (n == 0) {
            continue;
        }

        call->stream = k;
        call->pending = n < SBX_INIT_READER_FRAME ? n : SBX_INIT_READER_FRAME;
        call->out_start = 0;
        call->out_end = sbx_wire_header(call->out,
                                        k == 0 ? SBX_F_STDOUT : SBX_F_STDERR,
                                        (size_t) call->pending);
        return 1;
    }

    return 0;
}


void
sbx_init_reader_send(sbx_init_call_t *call)
{
    ssize_t              n;
    uint64_t             sent;
    unsigned             count;
    struct iovec         iov[SBX_INIT_READER_PIECES + 1];
    struct msghdr        msg;
    sbx_init_process_t  *process;

    process = call->process;
    sent = 0;

    while (call->state == SBX_INIT_CALL_READS) {

        if (call->from[0] < process->rings[0].oldest
            || call->from[1] < process->rings[1].oldest)
        {
            /* no memory: what is lost is not made up */
            (void) shutdown(call->call.fd, SHUT_RDWR);
            break;
        }

        if (call->out_start == call->out_end && call->pending == 0
            && !sbx_init_reader_frame(call))
        {
            call->out_start = 0;
            call->out_end = 0;
            break;
        }

        if (sent >= SBX_INIT_READER_TURN) {
            call->blocked = 1;
            break;
        }

        iov[0].iov_base = call->out + call->out_start;
        iov[0].iov_len = call->out_end - call->out_start;

        count = 1 + sbx_init_ring_peek(&process->rings[call->stream],
                                       call->from[call->stream],
                                       call->pending, iov + 1,
                                       SBX_INIT_READER_PIECES);

        memset(&msg, 0, sizeof(msg));
        msg.msg_iov = iov;
        msg.msg_iovlen = count;

        n = sendmsg(call->call.fd, &msg, MSG_DONTWAIT|MSG_NOSIGNAL);

        if (n == -1 && errno == EINTR) {
            continue;
        }

        if (n == -1) {
            /* full; or gone, which the loop is about to be told */
            call->blocked = 1;
            break;
        }

        sent += (uint64_t) n;

        if ((size_t) n < iov[0].iov_len) {
            call->out_start += (size_t) n;
            continue;
        }

        n -= (ssize_t) iov[0].iov_len;
        call->out_start = call->out_end;
        call->from[call->stream] += (uint64_t) n;
        call->pending -= (uint64_t) n;
        SBX_FAULT("init-output-sent");
    }

    if (sent != 0) {
        sbx_init_reader_hold(process);
    }

    if (call->state == SBX_INIT_CALL_READS && !call->blocked
        && process->command == NULL
        && call->from[0] == process->rings[0].next
        && call->from[1] == process->rings[1].next)
    {
        sbx_init_call_exit(call, &process->state.exit);
        return;
    }

    sbx_init_call_interest(call);
}


void
sbx_init_reader_end(sbx_init_call_t *call)
{
    sbx_init_process_t  *process;

    process = call->process;
    call->state = SBX_INIT_CALL_CLOSING;
    call->process = NULL;
    call->pending = 0;
    call->out_start = 0;
    call->out_end = 0;

    process->readers--;
    sbx_init_reader_hold(process);
}


/* That it leaves is all that a worker can say, and it says it once. */

int
sbx_init_reader_said(sbx_init_call_t *call)
{
    ssize_t      n;
    sbx_frame_t  frame;

    do {
        n = recv(call->call.fd, call->frame + call->have,
                 sizeof(call->frame) - call->have, MSG_DONTWAIT);
    } while (n == -1 && errno == EINTR);

    if (n == -1 && errno == EAGAIN) {
        return 0;
    }

    if (n <= 0 || call->leaves) {
        return -1;
    }

    call->have += (size_t) n;

    if (call->have < sizeof(call->frame)) {
        return 0;
    }

    call->have = 0;
    call->leaves = 1;
    memcpy(&frame, call->frame, sizeof(frame));

    return sbx_init_flight_leaves(call->ask.pid, call->seq, &frame,
                                  call->frame + sizeof(frame));
}


void
sbx_init_process_feed(sbx_init_process_t *process)
{
    sbx_init_call_t  *call;

    if (process->readers == 0) {
        return;
    }

    for (call = sbx_init_call_each(NULL);
         call != NULL;
         call = sbx_init_call_each(call))
    {
        if (call->state == SBX_INIT_CALL_READS && call->process == process
            && !call->blocked)
        {
            sbx_init_reader_send(call);
        }
    }
}


/* Without its end the stream says that the end is not known. */

void
sbx_init_process_gone(sbx_init_process_t *process)
{
    sbx_init_call_t  *call;

    for (call = sbx_init_call_each(NULL);
         call != NULL;
         call = sbx_init_call_each(call))
    {
        if (call->process == process) {
            sbx_init_call_free(call);
        }
    }
}
