/*
 * Commands: a group for each, made ahead, used once, and handed with the
 * call's own socket to the session's init, who does the rest.
 *
 * A group is made and removed by the timer "groups", after the call that
 * needed it; the call itself takes the spare one.  Init may be slow or dead:
 * a task that its socket does not take waits, for a while and not with many.
 *
 * What init does not read holds descriptors: the call's own, and with a group
 * all of that.  Groups are opened only for a socket that has room, so that
 * what waits is the calls alone; and the socket holds few (SBX_TASKS_BYTES),
 * because the kernel counts descriptors that are on their way for all of
 * root's processes together.
 */

#include "broker.h"
#include "sandbox_fault.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>


#define SBX_COMMAND_TICK_GROUPS   16        /* removed in one round */
#define SBX_COMMAND_BACKOFF_MIN   20        /* ms */
#define SBX_COMMAND_BACKOFF_MAX   2000
#define SBX_COMMAND_RETRY         20        /* where no event tells */
#define SBX_COMMAND_NUMBERS       "numbers"
#define SBX_COMMAND_NUMBERS_NEW   "numbers.new"
#define SBX_COMMAND_FDS                                                      \
    (SBX_TASK_FD_ATTACH|SBX_TASK_FD_KILL|SBX_TASK_FD_CPU)


static sbx_command_t *sbx_command_make(sbx_session_t *s, sbx_error_t *e);
static int sbx_command_number(sbx_session_t *s, sbx_error_t *e);
static int sbx_command_exec(sbx_session_t *s, const sbx_exec_limits_t *limits,
    sbx_pending_t *p, sbx_error_t *e);
static int sbx_command_call_of(const sbx_pending_t *p);
static int sbx_command_group_of(const sbx_pending_t *p);
static void sbx_command_start(sbx_session_t *s, sbx_pending_t *p);
static sbx_pending_t *sbx_command_next(sbx_session_t *s);
static uint32_t sbx_command_weight(const sbx_pending_t *p);
static int sbx_command_hand(sbx_session_t *s, sbx_pending_t *p);
static int sbx_command_room(const sbx_session_t *s);
static int sbx_command_open(sbx_session_t *s, sbx_pending_t *p);
static void sbx_command_fail(sbx_session_t *s, sbx_pending_t *p, int err,
    const char *text);
static void sbx_command_refuse(sbx_session_t *s, sbx_pending_t *p,
    const sbx_f_error_t *error);
static void sbx_command_soon(sbx_session_t *s, uint32_t ms);
static void sbx_command_close(sbx_session_t *s, sbx_pending_t *p,
    unsigned first);


void
sbx_command_call(sbx_session_t *s, const sbx_call_t *head, int fd,
    const void *body)
{
    sbx_error_t         e;
    sbx_broker_t       *b;
    sbx_f_error_t       error;
    sbx_pending_t       p;
    sbx_exec_limits_t   limits;

    b = s->broker;
    memset(&limits, 0xff, sizeof(sbx_exec_limits_t));
    SBX_FAULT("broker-call-taken");

    if (sbx_resume_call(s, head, fd, body)) {
        return;
    }

    if (head->op == SBX_OP_EXEC) {
        memcpy(&limits, body, sizeof(sbx_exec_limits_t));
    }

    if (sbx_command_check(s, head, &limits, &error) != 0) {
        sbx_call_refuse(b, head, fd, &error);
        return;
    }

    memset(&p, 0, sizeof(sbx_pending_t));
    p.head = *head;
    p.fds[0] = fd;
    p.nfds = 1;
    p.task.magic = SBX_WIRE_MAGIC;
    p.task.version = SBX_WIRE_VERSION;
    p.task.op = head->op;
    memcpy(p.task.request_id, head->request_id, sizeof(p.task.request_id));

    if (head->op == SBX_OP_EXEC && sbx_quota_command(s, &error) != 0) {
        sbx_call_refuse(b, head, fd, &error);
        return;
    }

    if (head->op == SBX_OP_EXEC && sbx_command_exec(s, &limits, &p, &e) != 0)
    {
        sbx_log_error(SBX_LOG_ERROR,
                      &(sbx_log_about_t) { head->request_id, s->info.id },
                      &e, "command has no group");
        sbx_call_fill(&error, &e);
        sbx_call_refuse(b, head, fd, &error);
        return;
    }

    if (head->op == SBX_OP_PORT) {
        if (sbx_command_link(fd, &p.fds[1], &e) != 0) {
            sbx_log_error(SBX_LOG_ERROR,
                          &(sbx_log_about_t) { head->request_id, s->info.id },
                          &e, "port has no link");
            sbx_call_fill(&error, &e);
            sbx_call_refuse(b, head, fd, &error);
            return;
        }

        p.nfds = 2;
    }

    SBX_FAULT("broker-call-checked");
    sbx_credit_begin(s);
    sbx_command_start(s, &p);
}


/*
 * Init is hostile, as ever: what it may have so is bounded by the number of
 * commands that a session may run, and what it does not take by the number of
 * tasks that wait.  Where nothing can be answered it asks again.
 */

void
sbx_command_group(sbx_session_t *s, uint32_t token)
{
    sbx_error_t        e;
    sbx_pending_t      p;
    sbx_exec_limits_t  limits;

    if (s->state != SBX_S_RUNNING || sbx_command_crowded(s)
        || !sbx_command_may_ask(s))
    {
        return;
    }

    SBX_FAULT("broker-group-asked");
    memset(&limits, 0xff, sizeof(sbx_exec_limits_t));
    memset(&p, 0, sizeof(sbx_pending_t));
    p.task.magic = SBX_WIRE_MAGIC;
    p.task.version = SBX_WIRE_VERSION;
    p.task.op = SBX_OP_GROUP;
    p.task.token = token;

    if ((s->info.capabilities & SBX_CAP_CODE) == 0) {
        p.task.refused = SBX_E_CAPABILITY;

    } else if (s->ncommands >= SBX_COMMANDS_MAX) {
        p.task.refused = SBX_E_QUOTA;

    } else if (sbx_command_exec(s, &limits, &p, &e) != 0) {
        sbx_log_error(SBX_LOG_ERROR,
                      &(sbx_log_about_t) { NULL, s->info.id }, &e,
                      "interpreter has no group");
        p.task.refused = e.code;
    }

    sbx_credit_begin(s);
    sbx_command_start(s, &p);
}


/* The spare group, or one made now, becomes the task's. */

static int
sbx_command_exec(sbx_session_t *s, const sbx_exec_limits_t *limits,
    sbx_pending_t *p, sbx_error_t *e)
{
    sbx_task_t          *task;
    sbx_command_t       *command;
    const sbx_limits_t  *own;

    own = &s->info.limits;
    task = &p->task;
    command = s->spare;
    s->spare = NULL;

    if (command == NULL) {
        command = sbx_command_make(s, e);

        if (command == NULL) {
            return -1;
        }
    }

    s->ncommands++;

    if ((limits->memory < own->memory || limits->processes < own->processes
         || limits->cpus < own->cpus)
        && sbx_cgroup_command_limit(command->group, limits, e) != 0)
    {
        sbx_list_append(&s->lingering, &command->link);
        sbx_command_soon(s, 1);
        return -1;
    }

    command->kernel = task->op == SBX_OP_GROUP;

    if (command->kernel) {
        sbx_list_append(&s->kernels, &command->link);

    } else {
        sbx_list_append(&s->running, &command->link);
        command->counted = 1;
        sbx_quota_commands(s, 1);
    }

    task->command = command->number;
    task->processes = limits->processes != SBX_UNSET ? limits->processes
                                                     : own->processes;
    task->cpus = limits->cpus != SBX_UNSET ? limits->cpus : own->cpus;
    task->memory = limits->memory != SBX_UNSET ? limits->memory
                                               : own->memory;

    task->core = sbx_cgroup_core(s->cgroup);
    sbx_command_soon(s, 0);

    return 0;
}


static sbx_command_t *
sbx_command_make(sbx_session_t *s, sbx_error_t *e)
{
    sbx_command_t  *command;

    if (sbx_command_number(s, e) != 0) {
        return NULL;
    }

    command = calloc(1, sizeof(sbx_command_t));

    if (command == NULL) {
        (void) sbx_error(e, ENOMEM, SBX_E_UNAVAILABLE, "out of memory");
        return NULL;
    }

    sbx_list_init(&command->link);
    command->number = s->number++;

    if (sbx_cgroup_command_create(s->cgroup, command->number,
                                  &command->group, e)
        != 0)
    {
        free(command);
        return NULL;
    }

    return command;
}


/*
 * A number is never used twice, by a later broker neither: numbers are
 * reserved in steps in a file, which survives the process that wrote it.  It
 * is there whole or as it was, whatever a disk that is full makes of it.
 */

static int
sbx_command_number(sbx_session_t *s, sbx_error_t *e)
{
    uint32_t     reserved;
    sbx_auto_fd  fd = -1;

    if (s->number < s->reserved) {
        return 0;
    }

    if (s->reserved > UINT32_MAX - SBX_NUMBERS_STEP) {
        return sbx_error(e, 0, SBX_E_CAPACITY,
                         "the session has used up its commands' numbers");
    }

    reserved = s->reserved + SBX_NUMBERS_STEP;
    fd = openat(s->dir, SBX_COMMAND_NUMBERS_NEW,
                O_WRONLY|O_CREAT|O_TRUNC|O_CLOEXEC|O_NOFOLLOW, 0600);

    if (fd == -1
        || sbx_write_all(fd, &reserved, sizeof(reserved)) != 0
        || renameat(s->dir, SBX_COMMAND_NUMBERS_NEW, s->dir,
                    SBX_COMMAND_NUMBERS)
           == -1)
    {
        return sbx_error(e, errno, SBX_E_UNAVAILABLE,
                         "cannot reserve commands' numbers");
    }

    s->reserved = reserved;

    return 0;
}


int
sbx_command_numbers(sbx_session_t *s, int adopt)
{
    ssize_t      n;
    uint32_t     reserved;
    sbx_auto_fd  fd = -1;

    if (!adopt) {
        return 0;
    }

    fd = openat(s->dir, SBX_COMMAND_NUMBERS, O_RDONLY|O_CLOEXEC|O_NOFOLLOW);

    if (fd == -1) {
        if (errno != ENOENT) {
            return -1;
        }

        reserved = SBX_NUMBERS_STEP;

    } else {
        n = sbx_read_full(fd, &reserved, sizeof(reserved));

        if (n != sizeof(reserved)) {
            errno = n == -1 ? errno : EPROTO;
            return -1;
        }
    }

    s->number = reserved;
    s->reserved = reserved;

    return 0;
}


static void
sbx_command_start(sbx_session_t *s, sbx_pending_t *p)
{
    sbx_broker_t   *b;
    sbx_pending_t  *waiting;

    b = s->broker;

    if (sbx_list_empty(&s->tasks)) {
        switch (sbx_command_hand(s, p)) {

        case 0:
            return;

        case -1:
            sbx_command_fail(s, p, errno,
                             "the session's first process is gone");
            return;
        }
    }

    waiting = malloc(sizeof(sbx_pending_t));

    if (waiting == NULL) {
        sbx_command_close(s, p, 0);
        (void) sbx_command_over(s, p->task.command);
        return;
    }

    *waiting = *p;
    waiting->deadline = sbx_now_us() + SBX_TASK_WAIT * 1000;
    sbx_list_append(&s->tasks, &waiting->link);
    s->ntasks += sbx_command_weight(waiting);
    b->ntasks += sbx_command_weight(waiting);

    if (!s->queue.set) {
        sbx_timer_set(&b->loop, &s->queue, SBX_COMMAND_RETRY);
    }
}


static sbx_pending_t *
sbx_command_next(sbx_session_t *s)
{
    sbx_pending_t  *p;

    p = sbx_node_of(s->tasks.next, sbx_pending_t, link);
    sbx_list_remove(&p->link);
    s->ntasks -= sbx_command_weight(p);
    s->broker->ntasks -= sbx_command_weight(p);

    return p;
}


/* Of one that waits: a port's call has its link besides. */

static uint32_t
sbx_command_weight(const sbx_pending_t *p)
{
    return p->task.op == SBX_OP_PORT ? 2 : 1;
}


/*
 * 0: it is over with, and init has it or the call is refused; 1: its socket
 * is full; -1: it is gone.  ETOOMANYREFS means that too many descriptors are
 * on their way, which no event tells the end of.
 */

static int
sbx_command_hand(sbx_session_t *s, sbx_pending_t *p)
{
    int       err;
    unsigned  calls;

    calls = p->nfds;
    err = 0;

    if (sbx_command_group_of(p)) {
        if (!sbx_command_room(s)) {
            err = EAGAIN;

        } else if (sbx_command_open(s, p) != 0) {
            /* outside its group it would run without limits */

            if (sbx_command_call_of(p)) {
                sbx_command_fail(s, p, errno,
                                 "the command's group cannot be opened");
                return 0;
            }

            (void) sbx_command_over(s, p->task.command);
            p->task.refused = SBX_E_UNAVAILABLE;
        }
    }

    if (err == 0
        && sbx_command_socket_send(s, &p->task, p->fds, p->nfds) != -1)
    {
        SBX_FAULT("broker-call-handed");
        sbx_command_close(s, p, 0);
        return 0;
    }

    err = err ? err : errno;
    sbx_command_close(s, p, calls);
    p->nfds = calls;
    errno = err;

    if (err == EAGAIN) {
        sbx_event_set(&s->broker->loop, &s->control_event, EPOLLIN|EPOLLOUT);
        return 1;
    }

    return err == ETOOMANYREFS || err == ENOBUFS || err == ENOMEM ? 1 : -1;
}


/* As the event tells it: a quarter of what the socket may hold. */

static int
sbx_command_room(const sbx_session_t *s)
{
    struct pollfd  pfd;

    pfd.fd = s->control;
    pfd.events = POLLOUT;

    return poll(&pfd, 1, 0) == 1;
}


static int
sbx_command_open(sbx_session_t *s, sbx_pending_t *p)
{
    unsigned        calls;
    sbx_task_t     *task;
    sbx_command_t  *command;

    task = &p->task;
    command = sbx_command_find(s, task->command);

    if (command == NULL) {
        /* init says that it is over, and has never had it */
        errno = ENOENT;
        return -1;
    }

    calls = p->nfds;
    p->nfds += sbx_cgroup_command_fds(command->group, p->fds + p->nfds,
                                      &task->fds, &task->attach_count);

    if ((task->fds & SBX_COMMAND_FDS) == SBX_COMMAND_FDS) {
        return 0;
    }

    sbx_command_close(s, p, calls);
    p->nfds = calls;
    task->fds = 0;
    task->attach_count = 0;
    errno = EMFILE;

    return -1;
}


static void
sbx_command_fail(sbx_session_t *s, sbx_pending_t *p, int err,
    const char *text)
{
    sbx_error_t    e;
    sbx_f_error_t  error;

    (void) sbx_error(&e, err, SBX_E_UNAVAILABLE, "%s", text);
    sbx_call_fill(&error, &e);
    sbx_command_refuse(s, p, &error);
}


static void
sbx_command_refuse(sbx_session_t *s, sbx_pending_t *p,
    const sbx_f_error_t *error)
{
    if (sbx_command_call_of(p)) {
        sbx_command_close(s, p, 1);
        sbx_call_refuse(s->broker, &p->head, p->fds[0], error);

    } else {
        sbx_command_close(s, p, 0);
    }

    if (sbx_command_group_of(p)) {
        (void) sbx_command_over(s, p->task.command);
    }
}


/* The first descriptor is a call's own. */

static int
sbx_command_call_of(const sbx_pending_t *p)
{
    return p->task.op != SBX_OP_GROUP;
}


static int
sbx_command_group_of(const sbx_pending_t *p)
{
    return p->task.op == SBX_OP_EXEC
           || (p->task.op == SBX_OP_GROUP && p->task.refused == 0);
}


static void
sbx_command_close(sbx_session_t *s, sbx_pending_t *p, unsigned first)
{
    unsigned  i;

    if (first == 0 && sbx_command_call_of(p)) {
        sbx_discard(s->broker, p->fds[0]);
        first = 1;
    }

    for (i = first; i < p->nfds; i++) {
        (void) close(p->fds[i]);
    }
}


void
sbx_command_flush(sbx_session_t *s)
{
    sbx_pending_t  *p;

    sbx_event_set(&s->broker->loop, &s->control_event, EPOLLIN);

    while (!sbx_list_empty(&s->tasks)) {
        p = sbx_node_of(s->tasks.next, sbx_pending_t, link);

        if (sbx_command_hand(s, p) != 0) {
            /* a dead init is found out by its events */
            return;
        }

        free(sbx_command_next(s));
    }
}


void
sbx_command_queue_tick(sbx_timer_t *timer)
{
    uint64_t        now;
    sbx_pending_t  *p;
    sbx_session_t  *s;

    s = timer->data;

    if (s->costly) {
        sbx_session_lost(s, "init's control socket costs too much");
        return;
    }

    sbx_command_flush(s);

    if (s->untold != 0) {
        sbx_command_tell(s, s->untold);
    }

    if (s->unasked) {
        sbx_command_ask(s);
    }

    if (s->way.untold) {
        sbx_way_tell(s);
    }

    now = sbx_now_us();

    while (!sbx_list_empty(&s->tasks)) {
        p = sbx_node_of(s->tasks.next, sbx_pending_t, link);

        if (p->deadline > now) {
            sbx_timer_set(&s->broker->loop, &s->queue, SBX_COMMAND_RETRY);
            return;
        }

        p = sbx_command_next(s);
        sbx_command_fail(s, p, 0, "the session does not take its calls");
        free(p);
    }
}


int
sbx_command_change(sbx_session_t *s, const sbx_limits_t *limits,
    sbx_error_t *e)
{
    sbx_node_t     *node;
    sbx_command_t  *command;

    if (s->spare != NULL
        && sbx_cgroup_command_change(s->spare->group, limits, e) != 0)
    {
        return -1;
    }

    /* nobody's session runs nothing but interpreters */

    for (node = s->kernels.next; node != &s->kernels; node = node->next) {
        command = sbx_node_of(node, sbx_command_t, link);

        if (sbx_cgroup_command_change(command->group, limits, e) != 0) {
            return -1;
        }
    }

    return 0;
}


int
sbx_command_over(sbx_session_t *s, uint32_t number)
{
    sbx_command_t  *command;

    command = sbx_command_find(s, number);

    if (command == NULL) {
        return 0;
    }

    SBX_FAULT("broker-command-over");
    sbx_list_remove(&command->link);
    sbx_list_append(&s->lingering, &command->link);
    s->backoff = SBX_COMMAND_BACKOFF_MIN;
    sbx_command_soon(s, 0);

    if (command->counted) {
        command->counted = 0;
        sbx_quota_commands(s, -1);
    }

    if (command->kernel) {
        return 2;
    }

    sbx_idle_touch(s);

    return 1;
}


sbx_command_t *
sbx_command_find(sbx_session_t *s, uint32_t number)
{
    size_t          i;
    sbx_node_t     *node;
    sbx_command_t  *command;
    sbx_node_t     *lists[] = { &s->running, &s->kernels, &s->inherited };

    for (i = 0; i < sbx_nelts(lists); i++) {
        for (node = lists[i]->next; node != lists[i]; node = node->next) {
            command = sbx_node_of(node, sbx_command_t, link);

            if (command->number == number) {
                return command;
            }
        }
    }

    return NULL;
}


void
sbx_command_reaped(sbx_session_t *s)
{
    if (!sbx_list_empty(&s->lingering)) {
        s->backoff = SBX_COMMAND_BACKOFF_MIN;
        sbx_command_soon(s, SBX_COMMAND_BACKOFF_MIN);
    }
}


static void
sbx_command_soon(sbx_session_t *s, uint32_t ms)
{
    if (s->state != SBX_S_RUNNING && s->state != SBX_S_TERMINATING) {
        return;
    }

    if (s->groups.set
        && s->groups.at <= sbx_now_us() + (uint64_t) ms * 1000)
    {
        return;
    }

    sbx_timer_set(&s->broker->loop, &s->groups, ms);
}


void
sbx_command_tick(sbx_timer_t *timer)
{
    int             rc;
    unsigned        i;
    sbx_node_t      busy, *node;
    sbx_error_t     e;
    sbx_command_t  *command;
    sbx_session_t  *s;

    s = timer->data;
    sbx_list_init(&busy);

    for (i = 0; i < SBX_COMMAND_TICK_GROUPS; i++) {

        if (sbx_list_empty(&s->lingering)) {
            break;
        }

        node = s->lingering.next;
        sbx_list_remove(node);
        command = sbx_node_of(node, sbx_command_t, link);
        rc = sbx_cgroup_command_remove(command->group, &e);

        if (rc == 1) {
            sbx_list_append(&busy, node);
            continue;
        }

        if (rc == -1) {
            sbx_log_error(SBX_LOG_WARN,
                          &(sbx_log_about_t) { NULL, s->info.id }, &e,
                          "command's group stays");
        }

        s->ncommands--;
        free(command);
    }

    if (s->state == SBX_S_TERMINATING && s->ncommands == 0) {
        /* nothing is left of what was told to end */
        sbx_session_end(s, s->ended, 1);
        return;
    }

    while (!sbx_list_empty(&busy)) {
        node = busy.next;
        sbx_list_remove(node);
        sbx_list_append(&s->lingering, node);
    }

    if (s->spare == NULL && s->state == SBX_S_RUNNING) {
        s->spare = sbx_command_make(s, &e);
    }

    sbx_pool_settle(s);

    if (s->state >= SBX_S_CUTTING) {
        /* it could not be made ready */
        return;
    }

    if (!sbx_list_empty(&s->lingering)) {
        s->backoff = s->backoff ? s->backoff : SBX_COMMAND_BACKOFF_MIN;
        sbx_command_soon(s, s->backoff);
        s->backoff = s->backoff * 2 < SBX_COMMAND_BACKOFF_MAX
                     ? s->backoff * 2 : SBX_COMMAND_BACKOFF_MAX;
    }
}


void
sbx_command_drop(sbx_session_t *s)
{
    sbx_node_t     *node;
    sbx_f_error_t   error;
    sbx_command_t  *command;
    sbx_pending_t  *p;

    sbx_timer_del(&s->broker->loop, &s->queue);

    while (!sbx_list_empty(&s->tasks)) {
        p = sbx_command_next(s);
        sbx_call_session_error(s->broker, &p->head, &error);
        sbx_command_refuse(s, p, &error);
        free(p);
    }

    while (!sbx_list_empty(&s->running)) {
        node = s->running.next;
        sbx_list_remove(node);
        sbx_list_append(&s->lingering, node);
        sbx_quota_commands(s, -1);
        sbx_metrics_command(s, SBX_REASON_SESSION_ENDED, 0);
    }

    while (!sbx_list_empty(&s->kernels)) {
        node = s->kernels.next;
        sbx_list_remove(node);
        sbx_list_append(&s->lingering, node);
    }

    while (!sbx_list_empty(&s->inherited)) {
        command = sbx_node_of(s->inherited.next, sbx_command_t, link);
        (void) sbx_command_over(s, command->number);
    }

    if (s->spare != NULL) {
        sbx_list_append(&s->lingering, &s->spare->link);
        s->spare = NULL;
    }
}
