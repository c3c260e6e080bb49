/*
 * The broker of broker_here.h.  It is the broker's own code, and the keeper's,
 * but for threads, time, signals, ids of the machine, and processes.
 */

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "broker_here.h"

static int here_clock(clockid_t clock, struct timespec *ts);
static pid_t here_waitpid(pid_t pid, int *status, int options);
static int here_kill(pid_t pid, int signo);
static ssize_t here_random(void *buf, size_t n, unsigned flags);
static int here_peer(int fd, int level, int name, void *value,
    socklen_t *len);
static void here_exit(int code) __attribute__((noreturn));
static int here_link_recv(int fd, sbx_link_t *msg, int fds[SBX_LINK_FDS]);

#define sbx_now_us                util_now_us
#include "../../../sandbox_core/policy/util.c"
#undef sbx_now_us

#define clock_gettime             here_clock
#include "../../../sandbox_core/broker/clock.c"
#undef clock_gettime

#define bind(fd, address, len)    ((void) (len), 0)
#define getrandom                 here_random
#include "../../../sandbox_core/broker/ids.c"
#undef bind
#undef getrandom

#define sbx_record_writer_open    record_writer_open
#define sbx_record_writer_close   record_writer_close
#define sbx_record_queue          record_queue
#include "../../../sandbox_core/broker/record.c"
#undef sbx_record_writer_open
#undef sbx_record_writer_close
#undef sbx_record_queue

#define getsockopt                here_peer
#include "../../../sandbox_core/broker/control.c"
#undef getsockopt

#define sigaction(signo, sa, old) 0
#define exit                      here_exit
#include "../../../sandbox_core/broker/broker.c"
#undef sigaction
#undef exit

#define waitpid                   here_waitpid
#define kill                      here_kill
#define sbx_link_recv             here_link_recv
#include "../../../sandbox_core/broker/keeper.c"
#undef waitpid
#undef kill
#undef sbx_link_recv

#include "sandbox_rules.h"


#define BROKER_ROUNDS   20000          /* until all is quiet */
#define BROKER_PID      0x40000000     /* more than the kernel has */
#define BROKER_NOW      1000000000000  /* us */
#define BROKER_WALL     1700000000000000


static void turn_stop(sbx_timer_t *timer);
static int turn_records(void);
static int turn_keeper(void);
static int turn_processes(void);
static void session_free(sbx_session_t *s);


sbx_broker_t   *broker;
sbx_keeper_t    keeper;
process_t       processes[BROKER_PROCESSES];
unsigned        launch_how;
uint64_t        now_us;
int64_t         wall_us;
int             keeper_copies[BROKER_KEPT][SBX_LINK_FDS];
unsigned        keeper_full;
jmp_buf         broker_over;
int             broker_left;

static sbx_options_t  broker_options, keeper_options;
static sbx_timer_t    stop_timer;
static uint64_t       random_next;
static pid_t          pid_next;
static unsigned       hostile;         /* the keeper's broker may be */


void
broker_begin(const char *dir)
{
    broker_options.state_dir = dir;
    broker_options.helper_dir = "/nowhere";
    broker_options.kernels_dir = "/nowhere";
    broker_options.log_path = "/dev/null";
    broker_options.report = -1;
    broker_options.listen = -1;
    broker_options.standalone = 1;
    broker_options.broker = 1;

    keeper_begin(-1);
    hostile = 0;
    launch_how = LAUNCH_READY;
    wall_us = BROKER_WALL;
    sbx_clock_known = 0;
    random_next = 1;
    pid_next = BROKER_PID;
    broker_start();
}


/* A keeper alone, whose link's other end is somebody's. */

void
keeper_begin(int link)
{
    keeper_fresh();
    keeper.link = link;
    now_us = BROKER_NOW;
    hostile = 1;
}


void
keeper_fresh(void)
{
    sbx_error_t  e;

    memset(&keeper, 0, sizeof(keeper));
    keeper_full = 0;
    keeper.options = &keeper_options;
    keeper_options.standalone = 1;
    keeper_options.state_dir = "";
    must(sbx_keeper_store_open(&keeper, &e) == 0);
    keeper.state = -1;
    keeper.lock = -1;
    keeper.listen = -1;
    keeper.signals = -1;
    keeper.link = -1;
    keeper.broker = BROKER_PID - 1;
}


void
keeper_told(void)
{
    sbx_keeper_read(&keeper);
    sbx_keeper_pump(&keeper);
}


void
keeper_end(void)
{
    while (keeper.nkept != 0) {
        sbx_keeper_remove(&keeper, &keeper.kept[keeper.nkept / 2]);
    }

    if (keeper.link != -1) {
        (void) close(keeper.link);
    }

    sbx_keeper_store_close(&keeper);
    free(keeper.queue);
}


/* What the keeper has goes to it over fork and exec: copies, in a file. */

void
keeper_hands_on(int store)
{
    int        *fds;
    size_t      i;
    unsigned    n;

    for (i = 0; i < keeper.nkept; i++) {
        must(i < BROKER_KEPT);
        fds = keeper_copies[i];

        for (n = 0; n < sbx_link_fds(keeper.kept[i].msg.kind); n++) {
            fds[n] = fcntl(keeper.kept[i].fds[n], F_DUPFD_CLOEXEC, 3);
            must(fds[n] != -1);
        }

        must(sbx_link_write(store, &keeper.kept[i].msg, fds) == 0);
    }

    must(lseek(store, 0, SEEK_SET) == 0);
}


void
broker_start(void)
{
    int            pair[2], store;
    sbx_error_t    e;
    sbx_broker_t  *b;

    store = memfd_create("store", MFD_CLOEXEC);
    must(store != -1);
    keeper_hands_on(store);
    must(socketpair(AF_UNIX, SOCK_SEQPACKET|SOCK_CLOEXEC, 0, pair) == 0);

    keeper.link = pair[0];
    keeper.broker = BROKER_PID - 1;
    keeper.started_sent = 0;
    keeper.end_sent = 0;
    keeper.nqueue = 0;
    keeper.again = 0;
    sbx_keeper_pump(&keeper);
    broker_options.link = pair[1];
    broker_options.inherit = store;

    /* as sbx_broker_main() */

    b = calloc(1, sizeof(sbx_broker_t));
    must(b != NULL);
    broker = b;
    b->options = &broker_options;
    b->started = sbx_now_us();
    b->started_ms = sbx_broker_clock_ms();
    b->state = -1;
    b->sessions_dir = -1;
    b->init_exe = -1;
    b->graves.fd = -1;
    must(sbx_broker_start(b, &e) == 0);
    must(broker_options.inherit == store || broker_options.inherit == -1);

    if (broker_options.inherit == store) {
        (void) close(store);
    }
}


/* Nothing that it does from here on reaches anybody. */

void
broker_crash(void)
{
    int              pair[2];
    sbx_node_t      *node, *next;
    sbx_broker_t    *b;
    sbx_call_out_t  *call;

    b = broker;
    (void) close(keeper.link);
    keeper.link = -1;
    must(socketpair(AF_UNIX, SOCK_SEQPACKET|SOCK_CLOEXEC, 0, pair) == 0);
    must(dup3(pair[0], b->options->link, O_CLOEXEC) == b->options->link);
    (void) close(pair[0]);

    for (node = b->calls.next; node != &b->calls; node = next) {
        next = node->next;
        call = sbx_node_of(node, sbx_call_out_t, link);
        call->created = NULL;
        sbx_call_close(call);
    }

    while (!sbx_list_empty(&b->sessions)) {
        session_free(sbx_node_of(b->sessions.next, sbx_session_t, link));
    }

    while (!sbx_list_empty(&b->pools.sessions)) {
        session_free(sbx_node_of(b->pools.sessions.next, sbx_session_t,
                                 link));
    }

    b->ending = 1;
    b->nsessions = 0;
    b->outlet.pid = b->outlet.pid == 0 ? 0 : BROKER_PID - 2;
    sbx_broker_done(b);
    (void) close(b->options->link);
    (void) close(pair[1]);
    free(b);
    broker = NULL;

    /* the keeper has seen its end */

    keeper.broker = 0;
    keeper.restarts++;
}


int
broker_follows(void)
{
    process_t  *p;

    broker_left = -1;

    if (setjmp(broker_over) == 0) {
        sbx_broker_take_over(broker);
    }

    for (p = processes; p < processes + BROKER_PROCESSES; p++) {
        p->orphan = 1;
    }

    must(broker_left != -1);

    return broker_left;
}


static void
session_free(sbx_session_t *s)
{
    sbx_broker_t   *b;
    sbx_command_t  *command;

    b = s->broker;
    s->stored = 0;
    s->way.told = 0;
    s->state = SBX_S_REMOVING;

    if (s->job != NULL) {
        s->job->session = NULL;
    }

    if (s->pooled) {
        sbx_pool_out(s);
    }

    sbx_command_drop(s);
    sbx_change_drop(s);
    sbx_resume_drop(s);

    while (!sbx_list_empty(&s->lingering)) {
        command = sbx_node_of(s->lingering.next, sbx_command_t, link);
        sbx_list_remove(&command->link);
        (void) sbx_cgroup_command_remove(command->group, NULL);
        free(command);
    }

    sbx_session_erase(s);
    sbx_admin_gone(b, s);
    sbx_session_free(s);
}


void
broker_end(void)
{
    unsigned   i;
    process_t  *p;

    launch_how = LAUNCH_NOT;
    sbx_keeper_end(&keeper, "it is over");

    for (i = 0; i < 64 && (!broker->ending || broker->nsessions != 0); i++) {
        broker_turns();
        now_us += 1000000;
    }

    must(broker->ending && broker->nsessions == 0 && broker->nrunning == 0);
    must(sbx_list_empty(&broker->sessions));
    must(sbx_list_empty(&broker->pools.sessions));
    broker_turns();
    sbx_broker_done(broker);
    (void) close(broker_options.link);
    free(broker);
    broker = NULL;

    /* the egress ends when nobody has the other end */

    for (i = 0; i < keeper.nkept; i++) {
        must(keeper.kept[i].msg.kind != SBX_KEEP_SESSION);
    }

    (void) close(keeper.link);
    sbx_keeper_store_close(&keeper);
    free(keeper.queue);

    for (p = processes; p < processes + BROKER_PROCESSES; p++) {
        if (p->pid != 0) {
            must(p->id[0] == '\0' || p->dead);
            process_die(p);
            (void) close(p->pidfd);
            memset(p, 0, sizeof(*p));
        }
    }
}


int
broker_connect(void)
{
    int             pair[2];
    sbx_control_t  *control;

    must(socketpair(AF_UNIX, SOCK_SEQPACKET|SOCK_CLOEXEC|SOCK_NONBLOCK, 0,
                    pair) == 0);
    control = sbx_control_make(broker, pair[1]);

    if (control == NULL) {
        (void) close(pair[0]);
        return -1;
    }

    must(sbx_control_allowed(control));

    return pair[0];
}


/* ---- turns -------------------------------------------------------------- */


static void
turn_stop(sbx_timer_t *timer)
{
    (void) timer;
    sbx_loop_stop(&broker->loop);
}


/* A writer of records takes one. */

static int
turn_records(void)
{
    uint64_t              one;
    sbx_record_job_t     *job;
    sbx_record_writer_t  *w;

    w = &broker->writer;
    job = w->todo;
    one = 1;

    if (job == NULL) {
        return 0;
    }

    w->todo = job->next;

    if (w->todo == NULL) {
        w->todo_last = &w->todo;
    }

    job->err = sbx_record_write(w, job);
    job->next = w->done;
    w->done = job;
    must(write(w->event, &one, sizeof(one)) == sizeof(one));

    return 1;
}


/* As sbx_keeper_run(). */

static int
turn_keeper(void)
{
    int            moved;
    size_t         i;
    struct pollfd  pfd;

    moved = 0;

    for (i = keeper.nkept; i-- > 0; ) {
        pfd.fd = keeper.kept[i].fds[0];
        pfd.events = 0;

        if (keeper.kept[i].msg.kind == SBX_KEEP_CONTROL
            && poll(&pfd, 1, 0) == 1)
        {
            sbx_keeper_remove(&keeper, &keeper.kept[i]);
            moved = 1;
        }
    }

    pfd.fd = keeper.link;
    pfd.events = POLLIN;

    if (poll(&pfd, 1, 0) == 1) {
        must(!(pfd.revents & (POLLHUP|POLLERR)));
        sbx_keeper_read(&keeper);
        must(keeper.link != -1);
        moved = 1;
    }

    sbx_keeper_reap(&keeper);
    sbx_keeper_pump(&keeper);

    return moved;
}


static int
turn_processes(void)
{
    int         moved;
    process_t  *p;

    moved = 0;

    for (p = processes; p < processes + BROKER_PROCESSES; p++) {
        if (p->pid != 0 && p->peer != -1) {
            process_read(p);
        }

        /* who has been killed */

        if (p->pid != 0 && !p->dead && p->id[0] == '\0'
            && p->pid == broker->outlet.pid && broker->outlet.killed)
        {
            process_die(p);
            moved = 1;
        }
    }

    return moved;
}


void
broker_turns(void)
{
    unsigned            i;
    sbx_error_t         e;
    sbx_loop_t         *loop;
    struct epoll_event  event;

    loop = &broker->loop;
    stop_timer.handler = turn_stop;

    for (i = 0; i < BROKER_ROUNDS; i++) {
        if (turn_keeper() + turn_processes() + turn_records() != 0) {
            continue;
        }

        if (epoll_wait(loop->epoll, &event, 1, 0) != 1
            && (loop->first == NULL || loop->first->at > now_us))
        {
            return;
        }

        sbx_timer_set(loop, &stop_timer, 0);
        loop->stop = 0;
        must(sbx_loop_run(loop, &e) == 0);
        sbx_timer_del(loop, &stop_timer);
        loop->stop = 0;
    }

    /* an event that nobody handles is told again and again */

    abort();
}


/* ---- processes ---------------------------------------------------------- */


process_t *
process_of(const char *id)
{
    process_t  *p;

    for (p = processes; p < processes + BROKER_PROCESSES; p++) {
        if (p->pid != 0 && strcmp(p->id, id) == 0 && !p->dead) {
            return p;
        }
    }

    return NULL;
}


static process_t *
process_make(const char *id, pid_t *pid, int *pidfd)
{
    process_t  *p;

    for (p = processes; p < processes + BROKER_PROCESSES; p++) {
        if (p->pid == 0) {
            (void) snprintf(p->id, sizeof(p->id), "%s", id);
            p->pid = ++pid_next;
            p->pidfd = eventfd(0, EFD_CLOEXEC|EFD_NONBLOCK);
            p->peer = -1;
            *pid = p->pid;
            *pidfd = fcntl(p->pidfd, F_DUPFD_CLOEXEC, 3);
            must(p->pidfd != -1 && *pidfd != -1);
            return p;
        }
    }

    return NULL;
}


void
process_die(process_t *p)
{
    uint64_t  one;

    if (p->dead) {
        return;
    }

    one = 1;
    p->dead = 1;
    must(write(p->pidfd, &one, sizeof(one)) == sizeof(one));

    if (p->peer != -1) {
        (void) close(p->peer);
        p->peer = -1;
    }
}


void
machine_killed(const char *id)
{
    process_t  *p;

    p = process_of(id);

    if (p != NULL) {
        process_die(p);
    }
}


int
sbx_launch_start(const sbx_launch_t *launch, sbx_launched_t *out,
    sbx_error_t *e)
{
    int           control[2], status[2];
    process_t    *p;
    sbx_record_t  record;

    machine_check_launch(launch);

    if (launch_how == LAUNCH_NOT
        || (p = process_make(launch->id, &out->pid, &out->pidfd)) == NULL)
    {
        return sbx_error(e, EAGAIN, SBX_E_INTERNAL, "clone() failed");
    }

    must(socketpair(AF_UNIX, SOCK_SEQPACKET|SOCK_CLOEXEC|SOCK_NONBLOCK, 0,
                    control) == 0);
    must(socketpair(AF_UNIX, SOCK_SEQPACKET|SOCK_CLOEXEC|SOCK_NONBLOCK, 0,
                    status) == 0);
    (void) close(status[1]);
    out->control = control[0];
    out->status = status[0];
    out->netns = open("/dev/null", O_RDWR|O_CLOEXEC);
    out->kept[SBX_KEPT_MEMINFO] = -1;
    out->kept[SBX_KEPT_MEMORY] = -1;
    out->uid_first = launch->uid_first;
    out->disk = launch->disk;
    *launch->disk = open("/dev/null", O_RDWR|O_CLOEXEC);
    must(out->netns != -1 && *launch->disk != -1);
    p->peer = control[1];

    if (launch_how == LAUNCH_READY) {
        memset(&record, 0, sizeof(record));
        record.magic = SBX_WIRE_MAGIC;
        record.type = SBX_R_READY;
        (void) !send(p->peer, &record, sizeof(record), MSG_NOSIGNAL);
    }

    return 0;
}


int
sbx_launch_event(sbx_launched_t *launched, sbx_error_t *e)
{
    (void) launched;

    return launch_how == LAUNCH_FAILS
           ? sbx_error(e, 0, SBX_E_MANIFEST, "/manifest: it failed") : 1;
}


int
sbx_egress_launch(const sbx_egress_launch_t *launch, pid_t *pid, int *pidfd,
    sbx_error_t *e)
{
    process_t            *p;
    sbx_egress_record_t   record;

    must(launch->uid >= 65536 && launch->uid != UINT32_MAX);
    p = launch_how == LAUNCH_NOT ? NULL : process_make("", pid, pidfd);

    if (p == NULL) {
        return sbx_error(e, EAGAIN, SBX_E_INTERNAL, "clone() failed");
    }

    p->peer = fcntl(launch->control, F_DUPFD_CLOEXEC, 3);
    must(p->peer != -1);

    if (launch_how == LAUNCH_READY) {
        memset(&record, 0, sizeof(record));
        record.magic = SBX_EGRESS_MAGIC;
        record.type = SBX_EGRESS_READY;
        (void) !send(p->peer, &record, sizeof(record), MSG_NOSIGNAL);
    }

    return 0;
}


/* ---- what is not there -------------------------------------------------- */


uint64_t
sbx_now_us(void)
{
    return now_us;
}


static int
here_clock(clockid_t clock, struct timespec *ts)
{
    int64_t  wall;

    (void) clock;

    wall = (int64_t) now_us + wall_us;
    ts->tv_sec = wall / 1000000;
    ts->tv_nsec = wall % 1000000 * 1000;

    return 0;
}


/* Each of the dead once. */

static pid_t
here_waitpid(pid_t pid, int *status, int options)
{
    process_t  *p;

    (void) options;
    must(pid == -1);

    for (p = processes; p < processes + BROKER_PROCESSES; p++) {
        if (p->pid != 0 && p->dead && !p->orphan) {
            pid = p->pid;
            *status = SIGKILL;
            (void) close(p->pidfd);
            memset(p, 0, sizeof(*p));
            return pid;
        }
    }

    return -1;
}


/* As sbx_link_recv() by a process with few descriptors. */

static int
here_link_recv(int fd, sbx_link_t *msg, int fds[SBX_LINK_FDS])
{
    int       rc;
    unsigned  i;

    rc = sbx_link_recv(fd, msg, fds);

    if (rc == 1 && msg->type == SBX_LINK_STORE && keeper_full) {
        for (i = 0; i < sbx_link_fds((sbx_keep_t) msg->kind); i++) {
            (void) close(fds[i]);
        }

        return 2;
    }

    return rc;
}


/* A keeper has no reason to kill a broker that obeys. */

static int
here_kill(pid_t pid, int signo)
{
    must(hostile && pid == BROKER_PID - 1 && signo == SIGKILL);

    return 0;
}


/* Nor a broker one to give up. */

static void
here_exit(int code)
{
    (void) code;
    abort();
}


static ssize_t
here_random(void *buf, size_t n, unsigned flags)
{
    size_t   i;
    uint8_t  *p = buf;

    (void) flags;

    for (i = 0; i < n; i++) {
        random_next = random_next * 6364136223846793005u
                      + 1442695040888963407u;
        p[i] = (uint8_t) (random_next >> 56);
    }

    return (ssize_t) n;
}


/* Who connects is root. */

static int
here_peer(int fd, int level, int name, void *value, socklen_t *len)
{
    struct ucred  *peer = value;

    if (level == SOL_SOCKET && name == SO_PEERCRED) {
        memset(peer, 0, sizeof(*peer));
        peer->pid = 1;
        return 0;
    }

    return getsockopt(fd, level, name, value, len);
}


int
sbx_record_writer_open(sbx_record_writer_t *w, int parent, sbx_error_t *e)
{
    (void) e;

    memset(w, 0, sizeof(*w));
    w->todo_last = &w->todo;
    w->parent = parent;
    w->event = eventfd(0, EFD_CLOEXEC|EFD_NONBLOCK);
    must(w->event != -1 && pthread_mutex_init(&w->lock, NULL) == 0);

    return 0;
}


void
sbx_record_queue(sbx_record_writer_t *w, sbx_record_job_t *job)
{
    job->next = NULL;
    *w->todo_last = job;
    w->todo_last = &job->next;
}


void
sbx_record_writer_close(sbx_record_writer_t *w)
{
    sbx_record_job_t  *job;

    while ((job = w->todo) != NULL) {
        w->todo = job->next;
        sbx_record_job_free(job);
    }

    while ((job = w->done) != NULL) {
        w->done = job->next;
        sbx_record_job_free(job);
    }

    (void) close(w->event);
}
