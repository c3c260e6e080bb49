/*
 * What the broker tells a session's init of its own accord.  What its socket
 * does not take is told again by the session's timer "queue".
 */

#include "broker.h"

#include <string.h>
#include <sys/socket.h>


#define SBX_COMMAND_AGAIN  20        /* ms */


/* A task of the broker's own, with nothing to answer on. */

int
sbx_command_send(sbx_session_t *s, sbx_op_t op)
{
    return sbx_command_send_with(s, op, 0, -1);
}


int
sbx_command_send_with(sbx_session_t *s, sbx_op_t op, uint32_t token, int fd)
{
    sbx_task_t  task;

    if (s->control == -1) {
        return -1;
    }

    memset(&task, 0, sizeof(sbx_task_t));
    task.magic = SBX_WIRE_MAGIC;
    task.version = SBX_WIRE_VERSION;
    task.op = (uint16_t) op;
    task.token = token;

    return sbx_wire_send(s->control, &task, sizeof(sbx_task_t), &fd, fd != -1,
                         MSG_DONTWAIT)
           == -1 ? -1 : 0;
}


/* Init's clocks would stand still for ever, or never. */

void
sbx_command_tell(sbx_session_t *s, sbx_op_t op)
{
    s->untold = 0;

    if (sbx_command_send(s, op) == 0 || s->control == -1) {
        return;
    }

    s->untold = op;
    sbx_command_retry(s);
}


void
sbx_command_retry(sbx_session_t *s)
{
    if (!s->queue.set) {
        sbx_timer_set(&s->broker->loop, &s->queue, SBX_COMMAND_AGAIN);
    }
}
