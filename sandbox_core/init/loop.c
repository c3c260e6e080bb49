/*
 * sandbox-init: how it works.
 *
 * Process 1 of a session is one loop over epoll.  It waits for tasks of the
 * broker (control.c), each with one end of a socketpair whose other end an
 * nginx worker holds; for the frames of those workers (exec.c); for output
 * and input of commands (output.c, stdin.c); for children (SIGCHLD as a
 * descriptor); and for moments in time.  It blocks on none of them: what a
 * peer does not take is kept in one buffer, and the source of it is not read
 * until the buffer is empty.  So a slow client slows down its own command.
 *
 * A command is made by a thread that exists for that alone (launch.c): it
 * makes the child by vfork and is stopped until the child has executed its
 * program.  The loop itself is never stopped so, because a process of the
 * session may send the child SIGSTOP at any moment before its exec.
 *
 * Code is run by interpreters that stay (code.c), each a command of its own
 * kind.
 *
 * A file call is served by a forked child that has become the session's user
 * before it reads the call's first byte (file.c).
 *
 * What runs in the session is hostile.  It can signal init, which has no
 * handlers and as process 1 is immune; it cannot trace it or read its memory
 * (not dumpable); and it can write no file that init reads.
 *
 * Memory: fixed tables, and buffers that are mapped when needed and given
 * back.  What all calls together may hold is bounded below.
 */

#include "init.h"

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/signalfd.h>
#include <sys/wait.h>


#define SBX_INIT_BUFFERS_MAX    192       /* 12.4 MB */
#define SBX_INIT_BUFFERS_KEPT   8
#define SBX_INIT_REAP_MAX       256       /* in one round */
#define SBX_INIT_BUFFER_MAPPED  ((SBX_INIT_BUFFER + 4095) & ~(size_t) 4095)


static void sbx_init_loop_children(sbx_init_source_t *source,
    uint32_t events);
static void sbx_init_loop_tick(void);
static int sbx_init_loop_timeout(void);


static int                 sbx_init_epoll = -1;
static int                 sbx_init_stopped;
static uint64_t            sbx_init_next = SBX_INIT_NONE;
static sbx_init_source_t   sbx_init_children;

static uint8_t            *sbx_init_buffers[SBX_INIT_BUFFERS_KEPT];
static unsigned            sbx_init_buffers_kept;
static unsigned            sbx_init_buffers_used;


int
sbx_init_loop_open(sbx_error_t *e)
{
    sigset_t  set;

    sbx_init_epoll = epoll_create1(EPOLL_CLOEXEC);

    if (sbx_init_epoll == -1) {
        return sbx_error(e, errno, SBX_E_INTERNAL, "epoll_create1() failed");
    }

    (void) sigemptyset(&set);
    (void) sigaddset(&set, SIGCHLD);

    sbx_init_children.fd = signalfd(-1, &set, SFD_CLOEXEC|SFD_NONBLOCK);
    sbx_init_children.handler = sbx_init_loop_children;

    if (sbx_init_children.fd == -1) {
        return sbx_error(e, errno, SBX_E_INTERNAL, "signalfd() failed");
    }

    sbx_init_source_set(&sbx_init_children, EPOLLIN);

    return 0;
}


/*
 * One event at a time: a handler may close any other source, and none can
 * then be met again in a list that was fetched before.
 */

void
sbx_init_loop_run(void)
{
    int                  n;
    sbx_init_source_t   *source;
    struct epoll_event   event;

    while (!sbx_init_stopped) {
        n = epoll_wait(sbx_init_epoll, &event, 1, sbx_init_loop_timeout());

        if (n == 1) {
            source = event.data.ptr;
            source->handler(source, event.events);
        }

        sbx_init_loop_tick();
    }
}


void
sbx_init_loop_stop(void)
{
    sbx_init_stopped = 1;
}


void
sbx_init_loop_wake(uint64_t at)
{
    if (at < sbx_init_next) {
        sbx_init_next = at;
    }
}


static int
sbx_init_loop_timeout(void)
{
    uint64_t  now, ms;

    if (sbx_init_next == SBX_INIT_NONE) {
        return -1;
    }

    now = sbx_now_us();

    if (sbx_init_next <= now) {
        return 0;
    }

    ms = (sbx_init_next - now + 999) / 1000;

    return ms < 60000 ? (int) ms : 60000;
}


/* Each of those asked says anew when it wants to be asked again. */

static void
sbx_init_loop_tick(void)
{
    uint64_t  now;

    sbx_init_exec_starved();

    if (sbx_init_next == SBX_INIT_NONE) {
        return;
    }

    now = sbx_now_us();

    if (now < sbx_init_next) {
        return;
    }

    sbx_init_next = SBX_INIT_NONE;

    sbx_init_launch_sweep();
    sbx_init_command_tick(now);
    sbx_init_left_tick(now);
    sbx_init_output_tick(now);
    sbx_init_call_tick(now);
    sbx_init_port_tick(now);
    sbx_init_code_tick(now);
    sbx_init_file_tick(now);
    sbx_init_control_tick(now);
    sbx_init_pause_tick(now);
}


void
sbx_init_source_set(sbx_init_source_t *source, uint32_t events)
{
    int                 op;
    struct epoll_event  event;

    if (source->fd == -1 || source->events == events) {
        return;
    }

    /* nothing to wait for: out of the set, or an end that nobody handles
     * would be told again and again */

    op = events == 0 ? EPOLL_CTL_DEL
                     : source->events == 0 ? EPOLL_CTL_ADD : EPOLL_CTL_MOD;

    memset(&event, 0, sizeof(struct epoll_event));
    event.events = events;
    event.data.ptr = source;

    if (epoll_ctl(sbx_init_epoll, op, source->fd, &event) == 0) {
        source->events = events;
    }
}


int
sbx_init_source_take(sbx_init_source_t *source)
{
    /* close() would not do: a child may have the same open file */

    sbx_init_source_set(source, 0);
    source->events = 0;

    return sbx_steal_fd(&source->fd);
}


void
sbx_init_source_close(sbx_init_source_t *source)
{
    int  fd;

    fd = sbx_init_source_take(source);

    if (fd != -1) {
        (void) close(fd);
    }
}


static void
sbx_init_loop_children(sbx_init_source_t *source, uint32_t events)
{
    int                      status, orphans;
    pid_t                    pid;
    unsigned                 i;
    struct rusage            usage;
    struct signalfd_siginfo  info;

    (void) events;

    while (read(source->fd, &info, sizeof(info)) > 0) { /* void */ }

    orphans = 0;

    for (i = 0; i < SBX_INIT_REAP_MAX; i++) {
        pid = wait4(-1, &status, WNOHANG, &usage);

        if (pid <= 0) {
            break;
        }

        if (!sbx_init_command_reap(pid, status, &usage)
            && !sbx_init_file_reap(pid, status))
        {
            orphans = 1;
        }
    }

    if (orphans) {
        sbx_init_left_reaped();
        sbx_init_record(SBX_R_REAPED);
    }

    if (i == SBX_INIT_REAP_MAX) {
        /* others have their turn; the rest is still there */
        (void) raise(SIGCHLD);
    }
}


uint8_t *
sbx_init_buffer_get(int force)
{
    uint8_t  *buffer;

    if (sbx_init_buffers_kept != 0) {
        sbx_init_buffers_used++;
        return sbx_init_buffers[--sbx_init_buffers_kept];
    }

    if (sbx_init_buffers_used >= SBX_INIT_BUFFERS_MAX && !force) {
        return NULL;
    }

    buffer = mmap(NULL, SBX_INIT_BUFFER_MAPPED, PROT_READ|PROT_WRITE,
                  MAP_PRIVATE|MAP_ANONYMOUS, -1, 0);

    if (buffer == MAP_FAILED) {
        return NULL;
    }

    /* a forked child has no use for it, and need not copy it */
    (void) madvise(buffer, SBX_INIT_BUFFER_MAPPED, MADV_DONTFORK);

    sbx_init_buffers_used++;

    return buffer;
}


void
sbx_init_buffer_put(uint8_t *buffer)
{
    if (buffer == NULL) {
        return;
    }

    sbx_init_buffers_used--;

    if (sbx_init_buffers_kept < SBX_INIT_BUFFERS_KEPT) {
        sbx_init_buffers[sbx_init_buffers_kept++] = buffer;
        return;
    }

    (void) munmap(buffer, SBX_INIT_BUFFER_MAPPED);
}
