/*
 * Process 1 of a session, in this process: tasks as a broker sends them, with
 * their descriptors or others, and what workers write into their calls.  It
 * starts nothing: every clone fails here as on a machine without room, there
 * is nobody to be killed, and no port that listens.
 *
 * A message of the input is a byte that chooses the task, one of what is
 * wrong with it, two of its length, and the bytes: what is written into the
 * call, or the memory file of a hand-over, or the datagram itself.  Whatever
 * comes: init goes on, says what may be said, and when the workers are gone
 * nothing is left of their calls, no buffer and no descriptor.
 */

#include "fuzz.h"

#include <sched.h>
#include <signal.h>
#include <sys/socket.h>

static int here_connect(int fd, const struct sockaddr *sa, socklen_t len);
#define sbx_init_launch_go  init_launch_go
#define sbx_init_clone      init_clone
#include "../../sandbox_core/init/launch.c"
#undef sbx_init_launch_go
#undef sbx_init_clone
#define connect             here_connect
#include "../../sandbox_core/init/port.c"
#undef connect
#include "../../sandbox_core/init/loop.c"
#include "init_code.h"

#include <fcntl.h>


#define INIT_CALLS    12               /* of one input */
#define INIT_FIXED    4
#define INIT_TURNS    4096

/* of the second byte */
#define INIT_ENDS     0x01             /* the worker says no more */
#define INIT_DGRAM    0x02             /* a call of the wrong kind */
#define INIT_NONE     0x04             /* no descriptor */
#define INIT_MORE     0x08             /* one too many */
#define INIT_GROUP    0x10             /* with those of a group */
#define INIT_REFUSED  0x20             /* GROUP: there is none */
#define INIT_HALVES   0x40             /* the bytes come in two parts */


int sbx_init_launch_go(sbx_init_launch_t *launch);
long sbx_init_clone(int group, unsigned long flags, volatile int32_t *pid,
    volatile unsigned *entered);

static void begin(void);
static void turns(void);
static void task_send(unsigned which, unsigned how, const uint8_t *p,
    size_t n);
static void task_bytes(int fd, const uint8_t *p, size_t n);
static void call_read(unsigned i);
static void call_frame(const sbx_frame_t *frame, const uint8_t *p);
static void records(void);
static void group_refuse(uint32_t token);


static const uint16_t  ops[] = {
    SBX_OP_EXEC, SBX_OP_PROCESS, SBX_OP_CODE, SBX_OP_PORT, SBX_OP_CANCEL,
    SBX_OP_LOG, SBX_OP_ENV, SBX_OP_GROUP, SBX_OP_WARM, SBX_OP_HAND_OVER,
    SBX_OP_NETWORK, SBX_OP_BUSY, SBX_OP_FREEZE, SBX_OP_THAW, SBX_OP_CUT,
    SBX_OP_TERMINATE, SBX_OP_FILE
};

#define INIT_RAW   sbx_nelts(ops)          /* a datagram */
#define INIT_SAY   (sbx_nelts(ops) + 1)    /* more, into the last call */

static struct {
    int          fd;
    sbx_wire_t   wire;
    uint8_t      buf[SBX_INIT_BUFFER];
    unsigned     over;                 /* its last frame has come */
} calls[INIT_CALLS];

static unsigned            ncalls;
static int                 broker = -1, null = -1;
static uint32_t            asked;          /* the last token of a group */
static sbx_init_config_t   config;
static const char          env[] = "LANG=C.UTF-8\0A=b";
static const char          languages[] =
    "python\0" "5\0" "1\0" "0\0" "/bin/true\0"
    "bash\0" "5\0" "1\0" "1\0" "/bin/true\0" "A=b";


int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    int                  before, after;
    size_t               len;
    unsigned             i, many;
    sbx_code_context_t  *context;

    if (broker == -1) {
        begin();
    }

    before = dup(null);
    must(before != -1);
    (void) close(before);
    ncalls = 0;

    for (many = 0; size >= INIT_FIXED && many < 2 * INIT_CALLS; many++) {
        len = (size_t) data[2] | (size_t) data[3] << 8;
        len = len < size - INIT_FIXED ? len : size - INIT_FIXED;
        task_send(data[0] % (INIT_SAY + 1), data[1], data + INIT_FIXED, len);
        data += INIT_FIXED + len;
        size -= INIT_FIXED + len;
    }

    task_send(13, 0, NULL, 0);         /* THAW: it may stand still */

    for (i = 0; i < ncalls; i++) {
        call_read(i);
        (void) close(calls[i].fd);
    }

    turns();
    records();


    /* what stays of a session is its contexts, without kernels here */

    while ((context = sbx_code_context_each(NULL)) != NULL) {
        if (context->kernel == SBX_KERNEL_ASKED) {
            group_refuse(context->token);
            continue;
        }

        must(context->run == NULL && context->queue == NULL
             && context->waiters == NULL
             && context->kernel == SBX_KERNEL_NONE);
        sbx_code_free(context);
    }

    must(sbx_init_buffers_used == 0);
    must(sbx_init_command_each(NULL) == NULL);
    sbx_init_launch_sweep();
    must(sbx_init_launch_used == 0);

    if (sbx_init.env != env) {
        (void) munmap((void *) (uintptr_t)
                      (sbx_init.env - sizeof(sbx_init_config_t)),
                      sizeof(sbx_init_config_t));
    }

    sbx_init.ending = 0;
    sbx_init.config = &config;
    sbx_init.env = env;
    sbx_init.network = 0;
    sbx_init_launch_env();
    must(!sbx_init_stopped);

    after = dup(null);
    must(after == before);
    (void) close(after);

    return 0;
}


static void
begin(void)
{
    int          control[2], size;
    sbx_error_t  e;

    null = open("/dev/null", O_RDWR|O_CLOEXEC);
    must(null != -1);
    must(socketpair(AF_UNIX, SOCK_SEQPACKET|SOCK_CLOEXEC, 0, control) == 0);

    /* where init has it; what is there is kept elsewhere */

    if (fcntl(SBX_INIT_CONTROL, F_GETFD) != -1
        && control[0] != SBX_INIT_CONTROL)
    {
        if (control[1] == SBX_INIT_CONTROL) {
            control[1] = dup(control[1]);
        }

        if (null == SBX_INIT_CONTROL) {
            null = dup(null);
        }
    }

    must(dup2(control[0], SBX_INIT_CONTROL) == SBX_INIT_CONTROL);
    broker = control[1];
    size = 4 * (int) SBX_INIT_BUFFER;
    (void) setsockopt(broker, SOL_SOCKET, SO_SNDBUF, &size, sizeof(size));

    memset(&config, 0, sizeof(config));
    config.magic = SBX_WIRE_MAGIC;
    config.version = SBX_WIRE_VERSION;
    sbx_limits_clear(&config.limits);
    config.limits.exec_timeout = 60000;
    config.limits.max_output = 65536;
    config.limits.disk = 1 << 20;
    config.uid = 1000;
    config.gid = 1000;
    config.env_size = sizeof(env);
    config.capabilities = SBX_CAP_SHELL|SBX_CAP_FILES|SBX_CAP_CODE
                          |SBX_CAP_PORTS;
    config.languages_size = sizeof(languages);
    (void) strcpy(config.workspace, "/workspace");
    (void) strcpy(config.home, "/workspace");
    (void) strcpy(config.path, "/usr/bin:/bin");

    sbx_init.config = &config;
    sbx_init.env = env;
    sbx_init.filter = (const uint8_t *) "";
    sbx_init.files_filter = sbx_init.filter;
    sbx_init.languages = languages;
    sbx_init.cpus = 1;

    must(sbx_init_loop_open(&e) == 0 && sbx_init_command_open(&e) == 0
         && sbx_init_file_open(&e) == 0 && sbx_init_control_open(&e) == 0);
    sbx_init_log_begin();
    turns();
    records();
}


/* Until there is nothing more to do. */

static void
turns(void)
{
    int                  n, i;
    sbx_init_source_t   *source;
    struct epoll_event   event;

    for (i = 0; i < INIT_TURNS; i++) {
        n = epoll_wait(sbx_init_epoll, &event, 1, 0);

        if (n == 1) {
            source = event.data.ptr;
            source->handler(source, event.events);
        }

        sbx_init_loop_tick();

        if (n != 1) {
            return;
        }
    }

    /* an end that nobody handles is told again and again */

    abort();
}


static void
task_bytes(int fd, const uint8_t *p, size_t n)
{
    while (n != 0) {
        ssize_t  sent = send(fd, p, n, MSG_DONTWAIT|MSG_NOSIGNAL);

        if (sent <= 0) {
            return;
        }

        p += sent;
        n -= (size_t) sent;
        turns();
    }
}


static void
task_send(unsigned which, unsigned how, const uint8_t *p, size_t n)
{
    int          fds[SBX_TASK_FDS_MAX], pair[2], opened[4];
    unsigned     i, nfds, nopened;
    sbx_task_t   task;

    if (which == INIT_RAW) {
        if (n != 0) {
            (void) sbx_wire_send(broker, p, n, &null, how & 1, MSG_DONTWAIT);
            turns();
        }

        return;
    }

    if (which == INIT_SAY) {
        if (ncalls != 0) {
            task_bytes(calls[ncalls - 1].fd, p, n);
            call_read(ncalls - 1);
        }

        return;
    }

    memset(&task, 0, sizeof(task));
    task.magic = SBX_WIRE_MAGIC;
    task.version = SBX_WIRE_VERSION;
    task.op = ops[which];
    task.command = ncalls;
    nfds = 0;
    nopened = 0;

    switch (task.op) {

    case SBX_OP_GROUP:
        task.token = asked;
        task.refused = how & INIT_REFUSED ? SBX_E_QUOTA : 0;
        asked = 0;
        break;

    case SBX_OP_WARM:
    case SBX_OP_NETWORK:
        task.token = n ? p[0] & 3 : 0;
        break;

    case SBX_OP_HAND_OVER:
        /* a whole one, with what the input has for limits and the rest:
         * one that cannot be read ends a session, as it must */

        opened[nopened] = memfd_create("given", MFD_CLOEXEC);
        must(opened[nopened] != -1);
        {
            sbx_init_config_t  given = config;

            n = n < sizeof(given.limits) ? n : sizeof(given.limits);
            memcpy(&given.limits, p, n);
            given.env_size = 0;
            given.languages_size = 0;
            must(pwrite(opened[nopened], &given, sizeof(given), 0)
                 == (ssize_t) sizeof(given));
        }

        fds[nfds++] = opened[nopened++];
        break;

    case SBX_OP_EXEC:
    case SBX_OP_PROCESS:
    case SBX_OP_CODE:
    case SBX_OP_PORT:
    case SBX_OP_CANCEL:
    case SBX_OP_LOG:
    case SBX_OP_ENV:
    case SBX_OP_FILE:
        if (ncalls == INIT_CALLS || (how & INIT_NONE)) {
            break;
        }

        must(socketpair(AF_UNIX, (how & INIT_DGRAM ? SOCK_DGRAM : SOCK_STREAM)
                        |SOCK_CLOEXEC|SOCK_NONBLOCK, 0, pair) == 0);
        calls[ncalls].fd = pair[1];
        calls[ncalls].over = 0;
        sbx_wire_init(&calls[ncalls].wire, calls[ncalls].buf,
                      SBX_INIT_BUFFER);
        ncalls++;
        opened[nopened++] = pair[0];
        fds[nfds++] = pair[0];

        /* the worker has written before the task comes, or some of it */

        i = how & INIT_HALVES ? (unsigned) (n / 2) : (unsigned) n;
        (void) !send(pair[1], p, i, MSG_DONTWAIT|MSG_NOSIGNAL);
        p += i;
        n -= i;

        if ((how & INIT_ENDS) && n == 0) {
            (void) shutdown(pair[1], SHUT_WR);
        }

        break;

    default:
        break;
    }

    if (how & INIT_GROUP) {
        task.attach_count = 1;
        task.fds = SBX_TASK_FD_ATTACH|SBX_TASK_FD_KILL;
        fds[nfds++] = null;
        fds[nfds++] = null;
    }

    if (how & INIT_MORE) {
        fds[nfds++] = null;
    }

    must(sbx_wire_send(broker, &task, sizeof(task), fds, nfds, MSG_DONTWAIT)
         == (ssize_t) sizeof(task));

    while (nopened != 0) {
        (void) close(opened[--nopened]);
    }

    turns();

    if ((how & INIT_HALVES) && task.op != SBX_OP_HAND_OVER && ncalls != 0) {
        task_bytes(calls[ncalls - 1].fd, p, n);
    }

    for (i = 0; i < ncalls; i++) {
        call_read(i);
    }

    records();
}


static void
group_refuse(uint32_t token)
{
    asked = token;
    task_send(7, INIT_REFUSED, NULL, 0);
}


/* ---- what it says ------------------------------------------------------- */


static void
records(void)
{
    ssize_t        n;
    sbx_record_t   record;

    for ( ;; ) {
        n = recv(broker, &record, sizeof(record), MSG_DONTWAIT|MSG_TRUNC);

        if (n == -1) {
            return;
        }

        must(n == sizeof(record) && record.magic == SBX_WIRE_MAGIC);
        must(record.type >= SBX_R_READY && record.type <= SBX_R_WARM);

        if (record.type == SBX_R_GROUP) {
            asked = record.command;
        }
    }
}


static void
call_read(unsigned i)
{
    ssize_t         n;
    sbx_wire_t     *w;
    sbx_frame_t     frame;
    const uint8_t  *payload;

    w = &calls[i].wire;

    for ( ;; ) {
        n = recv(calls[i].fd, w->buf + w->end, w->size - w->end,
                 MSG_DONTWAIT);

        if (n <= 0) {
            return;
        }

        w->end += (size_t) n;

        while ((n = sbx_wire_next(w, &frame, &payload)) == 1) {

            /* a call ends with one frame, and nothing follows */

            must(!calls[i].over);
            calls[i].over = frame.type == SBX_F_ERROR
                            || frame.type == SBX_F_END
                            || frame.type == SBX_F_EXIT;
            call_frame(&frame, payload);
        }

        must(n == 0);
        turns();
    }
}


/* As a worker checks it. */

static void
call_frame(const sbx_frame_t *frame, const uint8_t *p)
{
    size_t           n;
    uint8_t         *copy;
    const char      *s1, *s2, *s3;
    sbx_f_line_t     line;
    sbx_f_state_t    state;
    sbx_f_error_t    error;
    sbx_f_context_t  context;

    n = frame->length;
    copy = malloc(n ? n : 1);
    must(copy != NULL);
    memcpy(copy, p, n);

    switch (frame->type) {

    case SBX_F_ERROR:
        must(n == sizeof(error));
        memcpy(&error, copy, n);
        must(memchr(error.text, '\0', sizeof(error.text)) != NULL
             && memchr(error.scope, '\0', sizeof(error.scope)) != NULL
             && memchr(error.resource, '\0', sizeof(error.resource)) != NULL
             && error.code != SBX_OK);
        break;

    case SBX_F_ACCEPTED:
        must(n == 0);
        break;

    case SBX_F_END:
        must(n == sizeof(sbx_f_end_t));
        break;

    case SBX_F_EXIT:
        must(n == sizeof(sbx_f_exit_t));
        break;

    case SBX_F_STATE:
        must(sbx_wire_check_state(copy, n, &state, &s1, &s2, &s3) == 0);
        break;

    case SBX_F_LINE:
        must(sbx_wire_check_line(copy, n, &line, &s1, &s2) == 0);
        break;

    case SBX_F_CONTEXT:
        must(sbx_wire_check_context(copy, n, &context, &s1, &s2, &s3) == 0);
        break;

    case SBX_F_OUTPUT:
        must(n == sizeof(sbx_f_output_t));
        break;

    case SBX_F_RAN:
        must(n == sizeof(sbx_f_ran_t));
        break;

    case SBX_F_STRINGS:
    case SBX_F_STDOUT:
    case SBX_F_STDERR:
        break;

    default:
        abort();
    }

    free(copy);
}


/* ---- what this process must not do -------------------------------------- */


int
sbx_init_launch_go(sbx_init_launch_t *launch)
{
    (void) launch;
    errno = EAGAIN;

    return -1;
}


long
sbx_init_clone(int group, unsigned long flags, volatile int32_t *pid,
    volatile unsigned *entered)
{
    (void) group;
    (void) flags;
    (void) pid;
    *entered = 0;

    return -EAGAIN;
}


int
kill(pid_t pid, int sig)
{
    (void) pid;
    (void) sig;
    errno = ESRCH;

    return -1;
}


static int
here_connect(int fd, const struct sockaddr *sa, socklen_t len)
{
    (void) fd;
    (void) sa;
    (void) len;
    errno = ECONNREFUSED;

    return -1;
}
