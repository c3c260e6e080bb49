/*
 * The broker's side of init: tasks come in, one datagram each with their
 * descriptors; records go out.  Neither waits: while records cannot be sent,
 * no task is taken that would need another.  The end of the socket means
 * that broker and keeper are both gone, and with them the session.
 */

#include "init.h"
#include "init_process.h"
#include "sandbox_fault.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>


#define SBX_INIT_TASKS          16        /* taken in one round */
#define SBX_INIT_TASK_FDS       (SBX_TASK_FDS_MAX + 8)
#define SBX_INIT_OVER_MAX       1024      /* a power of two */
#define SBX_INIT_REAPED_EVERY   10000     /* us */
#define SBX_INIT_CUT_WAIT       400000    /* us for commands to be answered */


static void sbx_init_control_event(sbx_init_source_t *source,
    uint32_t events);
static int sbx_init_control_read(void);
static void sbx_init_control_short(sbx_task_t *task, int *fds,
    unsigned nfds);
static void sbx_init_control_task(const sbx_task_t *task, int *fds,
    unsigned nfds);
static void sbx_init_control_flush(void);
static int sbx_init_control_held(void);
static int sbx_init_control_send(sbx_record_type_t type, uint32_t command);
static int sbx_init_control_put(sbx_record_t *record);


static sbx_init_source_t  sbx_init_control;

/* What is still to be told. */
static sbx_record_t       sbx_init_over[SBX_INIT_OVER_MAX];
static uint32_t           sbx_init_over_first;
static uint32_t           sbx_init_over_last;
static int                sbx_init_ready;
static int                sbx_init_reaped;
static uint64_t           sbx_init_reaped_at;
static int                sbx_init_held_asked;
static uint32_t           sbx_init_held_token;
static sbx_init_command_t  *sbx_init_held_last;    /* that was told */
static int                sbx_init_cut_asked;
static uint64_t           sbx_init_cut_until;


int
sbx_init_control_open(sbx_error_t *e)
{
    int        type;
    socklen_t  len;

    len = sizeof(type);

    if (getsockopt(SBX_INIT_CONTROL, SOL_SOCKET, SO_TYPE, &type, &len) == -1
        || type != SOCK_SEQPACKET)
    {
        return sbx_error(e, errno, SBX_E_INTERNAL,
                         "descriptor 3 is no control socket");
    }

    sbx_init_control.fd = SBX_INIT_CONTROL;
    sbx_init_control.handler = sbx_init_control_event;
    sbx_init_source_set(&sbx_init_control, EPOLLIN);

    return 0;
}


static void
sbx_init_control_event(sbx_init_source_t *source, uint32_t events)
{
    unsigned  i;

    (void) source;

    if (events & EPOLLOUT) {
        sbx_init_control_flush();
    }

    if (events & (EPOLLIN|EPOLLHUP|EPOLLERR)) {
        for (i = 0; i < SBX_INIT_TASKS; i++) {
            if (sbx_init_control_read() != 0) {
                break;
            }
        }
    }
}


/* 0: a datagram was taken. */

static int
sbx_init_control_read(void)
{
    int            fds[SBX_WIRE_FDS_ALL];
    ssize_t        n;
    unsigned       nfds;
    sbx_task_t     task;
    struct pollfd  end;

    memset(&task, 0, sizeof(sbx_task_t));
    n = sbx_wire_recv_all(SBX_INIT_CONTROL, &task, sizeof(sbx_task_t), fds,
                          &nfds, MSG_DONTWAIT);

    if ((n == -1 && errno == EMSGSIZE) || nfds > SBX_INIT_TASK_FDS) {
        sbx_init_control_short(&task, fds, nfds);
        return 0;
    }

    if (n == -1) {
        return -1;
    }

    if (n == 0 && nfds == 0) {
        end.fd = SBX_INIT_CONTROL;
        end.events = POLLIN|POLLRDHUP;

        if (poll(&end, 1, 0) == 1
            && (end.revents & (POLLHUP|POLLRDHUP|POLLERR)))
        {
            sbx_init_loop_stop();
            return -1;
        }
    }

    if (sbx_wire_check_task(&task, (size_t) n, NULL) != 0) {
        while (nfds != 0) {
            (void) close(fds[--nfds]);
        }

        return 0;
    }

    sbx_init_control_task(&task, fds, nfds);

    return 0;
}


/*
 * There is not a descriptor for each that came.  A call whose own is there is
 * told so, one whose is not learns of it by its end; a group that the broker
 * takes for used is given back.
 */

static void
sbx_init_control_short(sbx_task_t *task, int *fds, unsigned nfds)
{
    sbx_error_t    e;
    sbx_f_error_t  error;

    if (sbx_wire_check_task(task, sizeof(sbx_task_t), NULL) == 0) {

        if ((task->op == SBX_OP_EXEC || task->op == SBX_OP_GROUP)
            && task->refused == 0)
        {
            sbx_init_record_over(task->command, NULL);
        }

        if (task->op == SBX_OP_GROUP) {
            task->refused = SBX_E_UNAVAILABLE;
            sbx_init_code_group(task, fds, nfds);
            return;
        }

        if (task->op == SBX_OP_EXEC && nfds != 0) {
            (void) sbx_error(&e, EMFILE, SBX_E_UNAVAILABLE,
                             "the session's first process has no descriptor "
                             "free for another command");
            sbx_init_error_fill(&error, &e);
            error.retry_after = 1;
            sbx_init_exec_refuse(fds[0], &error);
            fds[0] = fds[--nfds];
        }
    }

    while (nfds != 0) {
        (void) close(fds[--nfds]);
    }
}


static void
sbx_init_control_task(const sbx_task_t *task, int *fds, unsigned nfds)
{
    SBX_FAULT("init-task-taken");

    switch (task->op) {

    case SBX_OP_EXEC:
        sbx_init_exec_task(task, fds, nfds);
        return;

    case SBX_OP_CODE:
        if (nfds != 0) {
            sbx_init_code_task(fds[--nfds]);
        }
        break;

    case SBX_OP_GROUP:
        sbx_init_code_group(task, fds, nfds);
        return;

    case SBX_OP_WARM:
        sbx_init_code_warm(task, fds, nfds);
        SBX_FAULT("init-warm-begun");
        break;

    case SBX_OP_HAND_OVER:
        if (nfds != 0) {
            sbx_init_hand_over(fds[0]);
            SBX_FAULT("init-take-taken");
        }
        break;

    case SBX_OP_FILE:
        if (nfds != 0) {
            sbx_init_file_task(fds[--nfds]);
        }
        break;

    case SBX_OP_PROCESS:
    case SBX_OP_CANCEL:
    case SBX_OP_LOG:
    case SBX_OP_ENV:
        if (nfds != 0) {
            sbx_init_call_task(task, fds[--nfds]);
        }
        break;

    case SBX_OP_PORT:
        if (nfds == 2) {
            sbx_init_port_task(fds[0], fds[1]);
            nfds = 0;
        }
        break;

    case SBX_OP_CUT:
        SBX_FAULT("init-end-asked");
        sbx_init.ending = 1;
        sbx_init_cut_asked = 1;
        sbx_init_cut_until = sbx_now_us() + SBX_INIT_CUT_WAIT;
        sbx_init_file_cut();
        sbx_init_port_cut();
        sbx_init_code_ending();
        sbx_init_hold_drop(NULL);
        sbx_init_loop_wake(0);
        break;

    case SBX_OP_TERMINATE:
        sbx_init.ending = 1;
        sbx_init_command_terminate();
        sbx_init_code_ending();
        sbx_init_orphan_terminate();
        sbx_init_hold_drop(NULL);
        break;

    case SBX_OP_FREEZE:
        sbx_init_pause(sbx_now_us());
        SBX_FAULT("init-pause-stopped");
        break;

    case SBX_OP_THAW:
        sbx_init_resume(sbx_now_us());
        SBX_FAULT("init-resume-started");
        break;

    case SBX_OP_NETWORK:
        sbx_init.network = task->token;
        break;

    case SBX_OP_BUSY:
        (void) sbx_init_control_send(SBX_R_BUSY, sbx_init_busy());
        break;

    case SBX_OP_COMMANDS:
        /* whoever asked before is no more */
        sbx_init_held_asked = 1;
        sbx_init_held_token = task->token;
        sbx_init_held_last = NULL;
        sbx_init_control_flush();
        break;
    }

    while (nfds != 0) {
        (void) close(fds[--nfds]);
    }
}


void
sbx_init_record(sbx_record_type_t type)
{
    switch (type) {

    case SBX_R_READY:
        sbx_init_ready = 1;
        break;

    case SBX_R_REAPED:
        sbx_init_reaped = 1;
        break;

    case SBX_R_COMMAND_OVER:
    case SBX_R_CUT:
    case SBX_R_BUSY:
    case SBX_R_GROUP:
    case SBX_R_WARM:
    case SBX_R_HELD:
    case SBX_R_HELD_ALL:
        break;
    }

    sbx_init_control_flush();
}


int
sbx_init_record_ask(sbx_record_type_t type, uint32_t command,
    uint32_t reason)
{
    sbx_record_t  record;

    memset(&record, 0, sizeof(sbx_record_t));
    record.type = type;
    record.command = command;
    record.reason = reason;

    return sbx_init_control_put(&record);
}


void
sbx_init_record_over(uint32_t command, const sbx_f_exit_t *end)
{
    sbx_record_t  *record;

    if (sbx_init_over_last - sbx_init_over_first < SBX_INIT_OVER_MAX) {
        record = &sbx_init_over[sbx_init_over_last++ % SBX_INIT_OVER_MAX];

        memset(record, 0, sizeof(sbx_record_t));
        record->type = SBX_R_COMMAND_OVER;
        record->command = command;
        record->reason = end != NULL ? end->reason : SBX_REASON_MAX;
        record->cpu_us = end != NULL ? end->cpu_user_us + end->cpu_system_us
                                     : 0;
    }

    sbx_init_control_flush();
}


static void
sbx_init_control_flush(void)
{
    uint32_t  waiting, events;
    uint64_t  now;

    events = 0;

    if (sbx_init_ready) {
        sbx_init_ready = sbx_init_control_send(SBX_R_READY, 0);
        events |= sbx_init_ready ? EPOLLOUT : 0;
    }

    while (events == 0 && sbx_init_over_first != sbx_init_over_last) {
        if (sbx_init_control_put(&sbx_init_over[sbx_init_over_first
                                                % SBX_INIT_OVER_MAX])
            != 0)
        {
            events |= EPOLLOUT;
            break;
        }

        sbx_init_over_first++;
    }

    /* after what is over, which is not held any more */

    if (events == 0 && sbx_init_held_asked) {
        sbx_init_held_asked = sbx_init_control_held();
        events |= sbx_init_held_asked ? EPOLLOUT : 0;
    }

    if (events == 0 && sbx_init_reaped) {
        now = sbx_now_us();

        /* a fork bomb must not become one of records */

        if (now >= sbx_init_reaped_at + SBX_INIT_REAPED_EVERY) {
            sbx_init_reaped = sbx_init_control_send(SBX_R_REAPED, 0);
            events |= sbx_init_reaped ? EPOLLOUT : 0;
            sbx_init_reaped_at = now;

        } else {
            sbx_init_loop_wake(sbx_init_reaped_at + SBX_INIT_REAPED_EVERY);
        }
    }

    waiting = sbx_init_over_last - sbx_init_over_first;

    if (waiting < SBX_INIT_OVER_MAX - SBX_COMMANDS_MAX - SBX_INIT_TASKS) {
        events |= EPOLLIN;
    }

    sbx_init_source_set(&sbx_init_control, events);
}


/* 0: all that is held has been told; 1: the socket is full. */

static int
sbx_init_control_held(void)
{
    sbx_record_t         record;
    sbx_init_command_t  *c;

    for (c = sbx_init_command_each(sbx_init_held_last);
         c != NULL;
         c = sbx_init_command_each(c))
    {
        if (!c->told && c->number != 0) {
            memset(&record, 0, sizeof(sbx_record_t));
            record.type = SBX_R_HELD;
            record.command = c->number;
            record.reason = c->code != NULL;

            if (sbx_init_control_put(&record) != 0) {
                return 1;
            }
        }

        sbx_init_held_last = c;
    }

    return sbx_init_control_send(SBX_R_HELD_ALL, sbx_init_held_token);
}


/* 0: sent, or there is nobody to send it to; 1: the socket is full. */

static int
sbx_init_control_send(sbx_record_type_t type, uint32_t command)
{
    sbx_record_t  record;

    memset(&record, 0, sizeof(sbx_record_t));
    record.type = type;
    record.command = command;

    return sbx_init_control_put(&record);
}


static int
sbx_init_control_put(sbx_record_t *record)
{
    record->magic = SBX_WIRE_MAGIC;
    record->running = sbx_init_command_running();

    if (sbx_wire_send(SBX_INIT_CONTROL, record, sizeof(sbx_record_t), NULL,
                      0, MSG_DONTWAIT)
        == -1)
    {
        return errno == EAGAIN || errno == ENOBUFS || errno == ENOMEM;
    }

    return 0;
}


void
sbx_init_control_tick(uint64_t now)
{
    if (sbx_init_cut_asked) {

        /* the commands' last words are worth a moment */

        if ((sbx_init_file_cutting() || sbx_init_command_running() != 0
             || sbx_init_code_calls() != 0)
            && now < sbx_init_cut_until)
        {
            sbx_init_loop_wake(now + 2000);

        } else if (!sbx_init_file_cutting()) {
            sbx_init_cut_asked = sbx_init_control_send(SBX_R_CUT, 0);

            if (sbx_init_cut_asked) {
                sbx_init_loop_wake(now + 2000);
            }

        } else {
            sbx_init_loop_wake(now + 2000);
        }
    }

    sbx_init_control_flush();
}
