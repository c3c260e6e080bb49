/*
 * A command's standard output and error.
 *
 * While the call's socket takes no more, the pipes are not read; past the
 * cap they are read and dropped.  What is in a pipe when the leader ends is
 * the rest of its output; a pipe that others still hold is then kept open
 * and emptied for as long as they do, or they would die of SIGPIPE.
 *
 * In the background, and as soon as somebody is attached, what is read goes
 * to rings.  While somebody is attached who has yet to read what is kept,
 * the pipe is read no further than there is room; while nobody is, the
 * command never waits.
 *
 * Nobody's limit pays for the time that init spends so.  What is dropped is
 * therefore taken in large pieces out of a large pipe, with a pause after
 * each, and so is what is written in crumbs; the number of pieces in any
 * moment is bounded, over all pipes.
 */

#include "init_process.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <string.h>
#include <sys/ioctl.h>


#define SBX_INIT_DRAINS      512
#define SBX_INIT_DROP        (1024 * 1024)   /* bytes in one piece */
#define SBX_INIT_PAUSE       2000            /* us after it */
#define SBX_INIT_PIECES      8               /* pipes read after a pause */
#define SBX_INIT_CRUMB       8192            /* bytes */
#define SBX_INIT_CRUMBS      1000            /* us between them */
#define SBX_INIT_STORE       131072          /* bytes in one piece, kept */
#define SBX_INIT_TTY_LAST    131072          /* more than a terminal holds */
#define SBX_INIT_TTY_AGAIN   50000           /* us: nobody has it open now */


static void sbx_init_output_event(sbx_init_source_t *source,
    uint32_t events);
static void sbx_init_output_took(sbx_init_command_t *c,
    sbx_init_stream_t *stream, size_t n, int dropped);
static ssize_t sbx_init_output_drop(int fd, uint64_t most);
static void sbx_init_output_later(uint64_t at);
static ssize_t sbx_init_output_forward(sbx_init_command_t *c,
    sbx_init_stream_t *stream, sbx_init_ring_t *ring, uint64_t most);
static sbx_init_ring_t *sbx_init_output_ring(sbx_init_command_t *c,
    const sbx_init_stream_t *stream);
static ssize_t sbx_init_output_store(int fd, sbx_init_ring_t *ring,
    uint64_t most);
static void sbx_init_output_read(sbx_init_command_t *c,
    sbx_init_stream_t *stream, ssize_t n, int dropped);
static void sbx_init_output_drain(int fd);
static void sbx_init_output_drain_event(sbx_init_source_t *source,
    uint32_t events);


static int                sbx_init_null = -1;
static sbx_init_source_t  sbx_init_drains[SBX_INIT_DRAINS];
static uint64_t           sbx_init_drain_paused[SBX_INIT_DRAINS];
static unsigned           sbx_init_drain_next;
static unsigned           sbx_init_drain_turn;
static uint64_t           sbx_init_output_due = SBX_INIT_NONE;
static int                sbx_init_output_holding;


int
sbx_init_output_start(sbx_error_t *e)
{
    unsigned  i;

    sbx_init_null = open("/dev/null", O_WRONLY|O_CLOEXEC);

    if (sbx_init_null == -1) {
        return sbx_error(e, errno, SBX_E_INTERNAL, "cannot open /dev/null");
    }

    for (i = 0; i < SBX_INIT_DRAINS; i++) {
        sbx_init_drains[i].fd = -1;
        sbx_init_drains[i].handler = sbx_init_output_drain_event;
    }

    return 0;
}


/* Owned by the user, or a command could not open its own /dev/stdout. */

int
sbx_init_pipe(const sbx_init_command_t *c, int ours, int fds[2])
{
    if (pipe2(fds, O_CLOEXEC) == -1) {
        return -1;
    }

    if (fcntl(fds[ours], F_SETFL, O_NONBLOCK) == -1
        || (c->exec.user == SBX_USER_USER
            && fchown(fds[0], sbx_init.config->uid, sbx_init.config->gid)
               == -1))
    {
        (void) close(fds[0]);
        (void) close(fds[1]);
        return -1;
    }

    return 0;
}


int
sbx_init_output_open(sbx_init_command_t *c, int ends[2])
{
    int       fds[2];
    unsigned  i, n;

    n = (c->exec.flags & SBX_EXEC_MERGE) ? 1 : 2;

    for (i = 0; i < n; i++) {
        if (sbx_init_pipe(c, 0, fds) == -1) {
            return -1;
        }

        sbx_init_output_take(c, &c->streams[i], fds[0]);
        ends[i] = fds[1];
    }

    return 0;
}


void
sbx_init_output_take(sbx_init_command_t *c, sbx_init_stream_t *stream, int fd)
{
    stream->command = c;
    stream->type = stream == &c->streams[0] ? SBX_F_STDOUT : SBX_F_STDERR;
    stream->source.fd = fd;
    stream->source.handler = sbx_init_output_event;
    stream->source.data = stream;
}


void
sbx_init_output_watch(sbx_init_command_t *c)
{
    int                 ready;
    unsigned            i;
    sbx_init_stream_t  *stream;

    ready = (c->background || (c->out == NULL && !c->starved))
            && (c->state == SBX_INIT_RUNNING
                || (c->state == SBX_INIT_OVER && c->settled));

    for (i = 0; i < 2; i++) {
        stream = &c->streams[i];

        sbx_init_source_set(&stream->source,
                       ready && !stream->held
                       && (c->state == SBX_INIT_RUNNING
                                 ? stream->paused == 0 : stream->last != 0)
                       ? EPOLLIN : 0);
    }
}


static void
sbx_init_output_event(sbx_init_source_t *source, uint32_t events)
{
    int                  dropped;
    ssize_t              n;
    uint64_t             most, cap;
    sbx_init_ring_t     *ring;
    sbx_init_stream_t   *stream;
    sbx_init_command_t  *c;

    (void) events;

    stream = source->data;
    c = stream->command;
    ring = sbx_init_output_ring(c, stream);

    most = c->state == SBX_INIT_OVER ? stream->last : UINT64_MAX;
    cap = (c->exec.flags & SBX_EXEC_CAP) ? c->exec.max_output - stream->sent
                                         : UINT64_MAX;

    if (ring != NULL) {
        most = most < SBX_INIT_DROP ? most : SBX_INIT_DROP;
        most = sbx_init_ring_room(ring, most);

        if (most == 0) {
            stream->held = 1;
            sbx_init_output_holding = 1;
            sbx_init_output_watch(c);
            return;
        }
    }

    dropped = c->call.fd == -1 || c->background || cap == 0;

    if (!dropped) {
        n = sbx_init_output_forward(c, stream, ring, most < cap ? most : cap);

        if (n == -2) {
            sbx_init_exec_starve(c);
            sbx_init_output_watch(c);
            return;
        }

    } else if (ring != NULL) {
        n = sbx_init_output_store(source->fd, ring, most);
        dropped = c->process->readers == 0;

    } else {
        n = sbx_init_output_drop(source->fd, most);
    }

    if (n > 0 && cap == 0 && !c->background) {
        stream->truncated = 1;
    }

    sbx_init_output_read(c, stream, n, dropped);
}


/* After a read: n as read() tells it. */

static void
sbx_init_output_read(sbx_init_command_t *c, sbx_init_stream_t *stream,
    ssize_t n, int dropped)
{
    int  tty;

    tty = (c->exec.flags & SBX_EXEC_TTY) != 0;

    if (n == -1 && (errno == EAGAIN || errno == EINTR)) {

        if (!tty || c->state != SBX_INIT_OVER) {
            return;
        }

        n = 0;
        stream->last = 0;

    } else if (n == -1 && tty && c->state == SBX_INIT_RUNNING) {
        /* it may be opened again */
        stream->paused = sbx_now_us() + SBX_INIT_TTY_AGAIN;
        sbx_init_output_later(stream->paused);
        sbx_init_output_watch(c);
        return;

    } else if (n <= 0) {
        /* nobody has the other end any more */
        sbx_init_source_close(&stream->source);
        stream->last = 0;
        n = 0;
    }

    sbx_init_output_took(c, stream, (size_t) n, dropped);

    if (tty && c->state == SBX_INIT_OVER
        && !sbx_init_tty_pending(stream->source.fd))
    {
        stream->last = 0;
    }

    sbx_init_output_watch(c);

    if (c->process != NULL && c->process->readers != 0) {
        sbx_init_process_feed(c->process);
    }

    if (c->state == SBX_INIT_OVER) {
        sbx_init_command_step(c);
    }
}


static sbx_init_ring_t *
sbx_init_output_ring(sbx_init_command_t *c, const sbx_init_stream_t *stream)
{
    if (c->process == NULL || !c->process->ringed) {
        return NULL;
    }

    return &c->process->rings[stream == &c->streams[0] ? 0 : 1];
}


/* All that it tells is what read() told last, or how much has come. */

static ssize_t
sbx_init_output_store(int fd, sbx_init_ring_t *ring, uint64_t most)
{
    size_t          size;
    ssize_t         n, sum;
    static uint8_t  scratch[65536];

    for (sum = 0; sum < SBX_INIT_STORE && most != 0; sum += n) {
        size = most < sizeof(scratch) ? (size_t) most : sizeof(scratch);
        n = read(fd, scratch, size);

        if (n <= 0) {
            return sum != 0 ? sum : n;
        }

        sbx_init_ring_append(ring, scratch, (size_t) n);
        most -= (uint64_t) n;

        if ((size_t) n < size) {
            return sum + n;
        }
    }

    return sum;
}


void
sbx_init_output_keep(sbx_init_command_t *c, sbx_init_stream_t *stream,
    const uint8_t *data, size_t n)
{
    sbx_init_ring_t  *ring;

    ring = sbx_init_output_ring(c, stream);

    if (ring != NULL) {
        sbx_init_ring_append(ring, data, n);
    }
}


void
sbx_init_output_kept(sbx_init_command_t *c)
{
    unsigned                i;
    const sbx_init_ring_t  *ring;

    for (i = 0; i < 2 && c->background && c->process != NULL; i++) {
        ring = &c->process->rings[i];
        c->streams[i].truncated = ring->oldest != 0
                                  || ring->next > ring->limit;
    }
}


void
sbx_init_output_room(void)
{
    unsigned             i, held;
    sbx_init_command_t  *c;

    if (!sbx_init_output_holding) {
        return;
    }

    sbx_init_output_holding = 0;

    for (c = sbx_init_command_each(NULL);
         c != NULL;
         c = sbx_init_command_each(c))
    {
        for (held = 0, i = 0; i < 2; i++) {
            held |= c->streams[i].held;
            c->streams[i].held = 0;
        }

        if (held) {
            sbx_init_output_watch(c);
        }
    }
}


static void
sbx_init_output_took(sbx_init_command_t *c, sbx_init_stream_t *stream,
    size_t n, int dropped)
{
    uint64_t  now;

    stream->total += n;
    stream->last -= n < stream->last ? n : stream->last;

    if (c->state == SBX_INIT_OVER || stream->source.fd == -1) {
        return;
    }

    now = sbx_now_us();

    if (dropped) {
        if (!stream->wide && (c->exec.flags & SBX_EXEC_TTY) == 0) {
            /* fewer and larger pieces; refused, it is as good as it was */
            (void) fcntl(stream->source.fd, F_SETPIPE_SZ, SBX_INIT_DROP);
            stream->wide = 1;
        }

        stream->paused = now + SBX_INIT_PAUSE;
        sbx_init_output_later(stream->paused);

    } else if (n < SBX_INIT_CRUMB && now < stream->read + SBX_INIT_CRUMBS) {
        stream->paused = now + SBX_INIT_CRUMBS;
        sbx_init_output_later(stream->paused);
    }

    stream->read = now;
}


static void
sbx_init_output_later(uint64_t at)
{
    if (at < sbx_init_output_due) {
        sbx_init_output_due = at;
    }

    sbx_init_loop_wake(at);
}


/* Some of those whose pause is over may go on, each in its turn. */

void
sbx_init_output_tick(uint64_t now)
{
    unsigned             i, n, pieces;
    sbx_init_stream_t   *stream;
    sbx_init_command_t  *c;

    if (now < sbx_init_output_due) {
        if (sbx_init_output_due != SBX_INIT_NONE) {
            sbx_init_loop_wake(sbx_init_output_due);
        }

        return;
    }

    sbx_init_output_due = SBX_INIT_NONE;
    pieces = 0;

    for (c = sbx_init_command_each(NULL);
         c != NULL;
         c = sbx_init_command_each(c))
    {
        for (i = 0; i < 2; i++) {
            stream = &c->streams[i];

            if (stream->paused != 0 && now >= stream->paused) {
                stream->paused = 0;
                sbx_init_output_watch(c);

            } else if (stream->paused != 0) {
                sbx_init_output_later(stream->paused);
            }
        }
    }

    for (i = 0; i < SBX_INIT_DRAINS; i++) {
        n = (sbx_init_drain_turn + i) % SBX_INIT_DRAINS;

        if (sbx_init_drain_paused[n] == 0) {
            continue;
        }

        if (now < sbx_init_drain_paused[n] || pieces == SBX_INIT_PIECES) {
            sbx_init_output_later(now + SBX_INIT_PAUSE);
            continue;
        }

        sbx_init_drain_paused[n] = 0;
        sbx_init_source_set(&sbx_init_drains[n], EPOLLIN);

        if (++pieces == SBX_INIT_PIECES) {
            sbx_init_drain_turn = n + 1;
        }
    }
}


/* Moves the pages out of the pipe; they are looked at by nobody. */

static ssize_t
sbx_init_output_drop(int fd, uint64_t most)
{
    ssize_t      n;
    static char  scratch[4096];

    if (most > SBX_INIT_DROP) {
        most = SBX_INIT_DROP;
    }

    n = splice(fd, NULL, sbx_init_null, NULL, (size_t) most,
               SPLICE_F_NONBLOCK);

    if (n == -1 && (errno == EINVAL || errno == ENOSYS)) {
        n = read(fd, scratch,
                 most < sizeof(scratch) ? (size_t) most : sizeof(scratch));
    }

    return n;
}


/* The frame is made where it will be sent from.  -2: no buffer is free. */

static ssize_t
sbx_init_output_forward(sbx_init_command_t *c, sbx_init_stream_t *stream,
    sbx_init_ring_t *ring, uint64_t most)
{
    ssize_t   n;
    uint8_t  *buffer;

    buffer = sbx_init_buffer_get(0);

    if (buffer == NULL) {
        return -2;
    }

    if (most > SBX_FRAME_MAX) {
        most = SBX_FRAME_MAX;
    }

    n = read(stream->source.fd, buffer + sizeof(sbx_frame_t), (size_t) most);

    if (n <= 0) {
        sbx_init_buffer_put(buffer);
        return n;
    }

    stream->sent += (uint64_t) n;

    if (ring != NULL) {
        sbx_init_ring_append(ring, buffer + sizeof(sbx_frame_t), (size_t) n);
    }

    sbx_init_exec_push(c, buffer,
                       sbx_wire_header(buffer, stream->type, (size_t) n)
                       + (size_t) n);

    return n;
}


void
sbx_init_output_last(sbx_init_command_t *c)
{
    int                 n;
    unsigned            i;
    sbx_init_stream_t  *stream;

    for (i = 0; i < 2; i++) {
        stream = &c->streams[i];
        stream->last = 0;
        n = 0;

        if (c->exec.flags & SBX_EXEC_TTY) {
            if (sbx_init_tty_pending(stream->source.fd)) {
                stream->last = SBX_INIT_TTY_LAST;
            }

        } else if (stream->source.fd != -1
            && ioctl(stream->source.fd, FIONREAD, &n) == 0 && n > 0)
        {
            stream->last = (uint64_t) n;
        }
    }
}


int
sbx_init_output_done(sbx_init_command_t *c)
{
    return c->streams[0].last == 0 && c->streams[1].last == 0;
}


void
sbx_init_output_close(sbx_init_command_t *c)
{
    int            fd;
    unsigned       i;
    struct pollfd  pfd;

    for (i = 0; i < 2; i++) {
        fd = sbx_init_source_take(&c->streams[i].source);

        if (fd == -1) {
            continue;
        }

        if (c->exec.flags & SBX_EXEC_TTY) {
            /* those that are left hear it as the end of a terminal */
            (void) close(fd);
            continue;
        }

        pfd.fd = fd;
        pfd.events = POLLIN;

        if (poll(&pfd, 1, 0) == 1 && (pfd.revents & POLLHUP)) {
            (void) close(fd);
            continue;
        }

        sbx_init_output_drain(fd);
    }
}


/* When all places are taken, the oldest has to do without its reader. */

static void
sbx_init_output_drain(int fd)
{
    unsigned            i;
    sbx_init_source_t  *source;

    for (i = 0; i < SBX_INIT_DRAINS; i++) {
        source = &sbx_init_drains[sbx_init_drain_next++ % SBX_INIT_DRAINS];

        if (source->fd == -1) {
            break;
        }
    }

    sbx_init_source_close(source);
    source->fd = fd;
    sbx_init_drain_paused[source - sbx_init_drains] = 0;
    sbx_init_source_set(source, EPOLLIN);
}


static void
sbx_init_output_drain_event(sbx_init_source_t *source, uint32_t events)
{
    ssize_t    n;
    uint64_t  *paused;

    (void) events;

    paused = &sbx_init_drain_paused[source - sbx_init_drains];
    n = sbx_init_output_drop(source->fd, SBX_INIT_DROP);

    if (n == 0 || (n == -1 && errno != EAGAIN && errno != EINTR)) {
        sbx_init_source_close(source);
        *paused = 0;
        return;
    }

    sbx_init_source_set(source, 0);
    *paused = sbx_now_us() + SBX_INIT_PAUSE;
    sbx_init_output_later(*paused);
}
