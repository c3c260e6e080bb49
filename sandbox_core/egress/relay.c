/*
 * Bytes from one side to the other.  A socket is read only while the other
 * takes what comes: what waits is in the kernel's buffers, whose sizes it
 * bounds, and in one pipe at most.  A socket that is not read is not asked
 * for events either, so that a hang-up of a side that waits costs nothing.
 */

#include "conn.h"
#include "sandbox_fault.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>


#define SBX_EG_FDS_RESERVED   64        /* control, resolvers, spare pipes */

#define SBX_EG_WINDOW_MAX     (8 * 1024 * 1024)


static int sbx_eg_relay_window(void);
static void sbx_eg_relay_unpause(sbx_timer_t *timer);
static sbx_eg_pipe_t *sbx_eg_relay_pipe(sbx_egress_t *eg);
static void sbx_eg_relay_finish(sbx_eg_conn_t *c);
static int sbx_eg_relay_side(sbx_eg_conn_t *c, sbx_eg_end_t from);
static int sbx_eg_relay_splice(sbx_eg_conn_t *c, sbx_eg_end_t from);
static int sbx_eg_relay_in(sbx_eg_conn_t *c, sbx_eg_end_t from);
static int sbx_eg_relay_out(sbx_eg_conn_t *c, sbx_eg_end_t from);
static int sbx_eg_relay_ends(sbx_eg_conn_t *c);
static int sbx_eg_relay_settle(sbx_eg_conn_t *c);
static uint32_t sbx_eg_relay_wanted(const sbx_eg_conn_t *c, sbx_eg_end_t i);


int
sbx_eg_relay_open(sbx_egress_t *eg, sbx_error_t *e)
{
    size_t            fds;
    struct rlimit     limit;
    sbx_eg_relay_t   *relay;

    relay = calloc(1, sizeof(sbx_eg_relay_t));

    if (relay == NULL) {
        return sbx_error(e, errno, SBX_E_INTERNAL, "out of memory");
    }

    relay->egress = eg;
    relay->pause.handler = sbx_eg_relay_unpause;
    relay->pause.data = relay;

    fds = 1024;

    if (getrlimit(RLIMIT_NOFILE, &limit) == 0) {
        fds = limit.rlim_cur > INT32_MAX ? INT32_MAX
                                         : (size_t) limit.rlim_cur;
    }

    /* two of a connection's own, and of what sessions, pipes and questions
     * need a fifth */

    fds -= fds > SBX_EG_FDS_RESERVED * 2 ? SBX_EG_FDS_RESERVED : fds / 2;
    relay->max = fds / 5 * 2;
    relay->window = sbx_eg_relay_window();
    eg->relay = relay;

    return 0;
}


/*
 * A window that grows by itself fits each server better than a fixed one, but
 * where the host lets it grow far, and kernels since 6.16 do to 32 MB, a few
 * connections that are not read any more have the whole host's memory for TCP.
 * The kernel doubles what it is asked for, or gives as much as it may.
 */

static int
sbx_eg_relay_window(void)
{
    char           buf[128], *p;
    unsigned       i;
    unsigned long  most;

    if (sbx_read_at(AT_FDCWD, "/proc/sys/net/ipv4/tcp_rmem", buf, sizeof(buf))
        <= 0)
    {
        return SBX_EG_WINDOW_MAX / 2;
    }

    most = 0;
    p = buf;

    for (i = 0; i < 3; i++) {
        most = strtoul(p, &p, 10);
    }

    return most == 0 || most > SBX_EG_WINDOW_MAX ? SBX_EG_WINDOW_MAX / 2 : 0;
}


void
sbx_eg_relay_close(sbx_egress_t *eg)
{
    sbx_eg_pipe_t  *pipe;

    if (eg->relay == NULL) {
        return;
    }

    while (eg->relay->spare != NULL) {
        pipe = eg->relay->spare;
        eg->relay->spare = pipe->next;
        (void) close(pipe->fds[0]);
        (void) close(pipe->fds[1]);
        free(pipe);
    }

    sbx_timer_del(&eg->loop, &eg->relay->pause);
    free(eg->relay);
    eg->relay = NULL;
}


/* There may be descriptors again. */

static void
sbx_eg_relay_unpause(sbx_timer_t *timer)
{
    unsigned           i, k;
    sbx_egress_t      *eg;
    sbx_eg_session_t  *s;

    eg = ((sbx_eg_relay_t *) timer->data)->egress;

    for (i = 0; i < SBX_EG_BUCKETS; i++) {
        for (s = eg->buckets[i]; s != NULL; s = s->next) {
            for (k = 0; k < SBX_EG_LISTENERS; k += 2) {
                sbx_event_set(&eg->loop, &s->events[k],
                              s->cost.cut ? 0 : EPOLLIN);
            }
        }
    }
}


static sbx_eg_pipe_t *
sbx_eg_relay_pipe(sbx_egress_t *eg)
{
    sbx_eg_pipe_t   *pipe;
    sbx_eg_relay_t  *relay;

    relay = eg->relay;

    if (relay->spare != NULL) {
        pipe = relay->spare;
        relay->spare = pipe->next;
        relay->nspare--;
        return pipe;
    }

    if (relay->npipes == SBX_EG_PIPES_MAX) {
        return NULL;
    }

    pipe = calloc(1, sizeof(sbx_eg_pipe_t));

    if (pipe == NULL) {
        return NULL;
    }

    if (pipe2(pipe->fds, O_NONBLOCK|O_CLOEXEC) == -1) {
        free(pipe);
        return NULL;
    }

    /* what is not granted leaves it as it is */

    (void) fcntl(pipe->fds[1], F_SETPIPE_SZ,
                 relay->npipes < SBX_EG_PIPES_SPARE ? SBX_EG_PIPE_SIZE
                                                    : SBX_EG_PIPE_SMALL);

    relay->npipes++;

    return pipe;
}


void
sbx_eg_relay_pipe_free(sbx_egress_t *eg, sbx_eg_pipe_t *pipe, int clean)
{
    sbx_eg_relay_t  *relay;

    relay = eg->relay;

    if (clean && relay->nspare < SBX_EG_PIPES_SPARE) {
        pipe->next = relay->spare;
        relay->spare = pipe;
        relay->nspare++;
        return;
    }

    (void) close(pipe->fds[0]);
    (void) close(pipe->fds[1]);
    free(pipe);
    relay->npipes--;
}


void
sbx_eg_relay_event(sbx_event_t *ev, uint32_t events)
{
    sbx_eg_end_t    i;
    sbx_eg_conn_t  *c;

    c = ev->data;
    i = ev == &c->side[SBX_EG_CLIENT].event ? SBX_EG_CLIENT : SBX_EG_SERVER;

    if (c->session->cost.cut) {
        /* it is closed in a moment */
        return;
    }

    if (events & (EPOLLERR|EPOLLHUP)) {

        /* what it had sent before is read first, where it is read at all */

        if (c->side[i].mode == SBX_EG_MODE_NONE
            || c->side[i].mode == SBX_EG_MODE_LOOK
            || ((events & EPOLLERR) && c->side[i].ended))
        {
            sbx_eg_conn_close(c, 1);
            return;
        }

        c->side[i].over = 1;
    }

    if ((events & EPOLLRDHUP) && c->side[i].mode == SBX_EG_MODE_LOOK) {
        c->side[i].ended = 1;
    }

    if (events & EPOLLOUT) {
        c->side[!i].full = 0;
    }

    if (((events & ~(uint32_t) EPOLLOUT) && sbx_eg_relay_side(c, i) != 0)
        || ((events & EPOLLOUT) && sbx_eg_relay_side(c, !i) != 0))
    {
        sbx_eg_conn_close(c, 1);
        return;
    }

    sbx_eg_relay_finish(c);
}


void
sbx_eg_relay_go(sbx_eg_conn_t *c)
{
    if (sbx_eg_relay_side(c, SBX_EG_CLIENT) != 0
        || sbx_eg_relay_side(c, SBX_EG_SERVER) != 0)
    {
        sbx_eg_conn_close(c, 1);
        return;
    }

    sbx_eg_relay_finish(c);
}


static void
sbx_eg_relay_finish(sbx_eg_conn_t *c)
{
    if (sbx_eg_relay_ends(c) != 0) {
        sbx_eg_conn_close(c, 1);
        return;
    }

    if (c->side[SBX_EG_CLIENT].passed && c->side[SBX_EG_SERVER].passed) {
        sbx_eg_conn_close(c, 0);
        return;
    }

    if (sbx_eg_relay_settle(c) != 0) {
        sbx_eg_conn_close(c, 1);
    }
}


static int
sbx_eg_relay_side(sbx_eg_conn_t *c, sbx_eg_end_t from)
{
    sbx_eg_side_t  *side;

    side = &c->side[from];

    if (side->full || side->starved || c->connecting || c->session->cost.cut
        || (side->blocked && side->mode != SBX_EG_MODE_TLS)
        || (side->ended && side->mode != SBX_EG_MODE_LOOK && side->held == 0
            && !sbx_eg_filter_pending(c, !from)))
    {
        return 0;
    }

    switch ((sbx_eg_mode_t) side->mode) {

    case SBX_EG_MODE_NONE:
        return 0;

    case SBX_EG_MODE_LOOK:
        if (sbx_eg_look(c) != 0) {
            return -1;
        }

        /* what is not looked at any more goes on at once */

        return side->mode == SBX_EG_MODE_LOOK
               ? 0 : sbx_eg_relay_side(c, from);

    case SBX_EG_MODE_SPLICE:
        return sbx_eg_relay_splice(c, from);

    case SBX_EG_MODE_HTTP:
        return sbx_eg_filter_client(c);

    case SBX_EG_MODE_TLS:
        return sbx_eg_filter_pair(c);
    }

    return 0;
}


static int
sbx_eg_relay_splice(sbx_eg_conn_t *c, sbx_eg_end_t from)
{
    int             rc;
    unsigned        i;
    sbx_eg_side_t  *side;

    side = &c->side[from];

    for (i = 0; i < SBX_EG_ROUNDS; i++) {

        if (side->held == 0) {
            if (from == SBX_EG_SERVER && sbx_eg_filter_watches(c)) {
                return sbx_eg_relay_copy(c, from);
            }

            if (side->pipe == NULL) {
                side->pipe = sbx_eg_relay_pipe(c->session->egress);

                if (side->pipe == NULL) {
                    return sbx_eg_relay_copy(c, from);
                }
            }

            rc = sbx_eg_relay_in(c, from);

            if (rc <= 0) {
                break;
            }
        }

        SBX_FAULT("egress-relay-taken");
        rc = sbx_eg_relay_out(c, from);
        SBX_FAULT("egress-relay-passed");

        if (rc <= 0) {
            break;
        }
    }

    /* an urgent byte, which splice() does not pass */

    if (i == 0 && rc == 0 && side->held == 0 && !side->ended
        && !side->starved)
    {
        rc = sbx_eg_relay_copy(c, from);
    }

    if (side->held == 0 && side->pipe != NULL) {
        sbx_eg_relay_pipe_free(c->session->egress, side->pipe, 1);
        side->pipe = NULL;
    }

    return i < SBX_EG_ROUNDS ? rc : 0;
}


/* 1: there is something in the pipe; 0: nothing comes now. */

static int
sbx_eg_relay_in(sbx_eg_conn_t *c, sbx_eg_end_t from)
{
    size_t          max;
    ssize_t         n;
    sbx_eg_side_t  *side;
    sbx_eg_span_t   span;

    side = &c->side[from];
    max = sbx_eg_credit(c, from, SBX_EG_SPLICE_MAX);

    if (max == 0) {
        return 0;
    }

    span = sbx_eg_cost_begin(c->session);

    do {
        n = splice(side->fd, NULL, side->pipe->fds[1], NULL, max,
                   SPLICE_F_MOVE|SPLICE_F_NONBLOCK);
    } while (n == -1 && errno == EINTR);

    if (from == SBX_EG_CLIENT) {
        sbx_eg_cost_end(c->session, &span, n);
    }

    if (n == -1) {
        return errno == EAGAIN ? 0 : -1;
    }

    if (n == 0) {
        side->ended = 1;
        return 0;
    }

    side->held = (uint32_t) n;
    c->spoke |= from == SBX_EG_SERVER;
    sbx_eg_conn_spend(c->session, (size_t) n, from == SBX_EG_CLIENT);

    return 1;
}


/* 1: the pipe is empty; 0: the other takes no more now. */

static int
sbx_eg_relay_out(sbx_eg_conn_t *c, sbx_eg_end_t from)
{
    ssize_t         n;
    sbx_eg_side_t  *side;
    sbx_eg_span_t   span;

    side = &c->side[from];
    span = sbx_eg_cost_begin(c->session);

    do {
        n = splice(side->pipe->fds[0], NULL, c->side[!from].fd, NULL,
                   side->held, SPLICE_F_MOVE|SPLICE_F_NONBLOCK);
    } while (n == -1 && errno == EINTR);

    if (from == SBX_EG_SERVER) {
        sbx_eg_cost_end(c->session, &span, n);
    }

    if (n == -1) {
        if (errno != EAGAIN) {
            return -1;
        }

        n = 0;
    }

    side->held -= (uint32_t) n;
    side->full = side->held != 0;

    return side->held == 0;
}


int
sbx_eg_relay_copy(sbx_eg_conn_t *c, sbx_eg_end_t from)
{
    size_t           max;
    ssize_t          n, sent;
    unsigned         i;
    sbx_eg_relay_t  *relay;

    relay = c->session->egress->relay;

    for (i = 0; i < SBX_EG_ROUNDS; i++) {
        max = sbx_eg_credit(c, from, sizeof(relay->in));

        if (max == 0) {
            return 0;
        }

        n = sbx_eg_relay_peek(c, from, relay->in, max);

        if (n <= 0) {
            return (int) n;
        }

        sent = sbx_eg_relay_send(c, !from, relay->in, (size_t) n);

        if (sent == -1) {
            if (errno != EAGAIN && errno != EINTR) {
                return -1;
            }

            sent = 0;
        }

        if (sent > 0) {
            sbx_eg_relay_drop(c, from, (size_t) sent);

            if (from == SBX_EG_SERVER) {
                sbx_eg_filter_server(c, relay->in, (size_t) sent);
            }
        }

        if (sent < n) {
            c->side[from].full = 1;
            return 0;
        }
    }

    return 0;
}


ssize_t
sbx_eg_relay_send(sbx_eg_conn_t *c, sbx_eg_end_t to, const void *p, size_t n)
{
    ssize_t        sent;
    sbx_eg_span_t  span;

    span = sbx_eg_cost_begin(c->session);
    sent = send(c->side[to].fd, p, n, MSG_DONTWAIT|MSG_NOSIGNAL);

    if (to == SBX_EG_CLIENT) {
        sbx_eg_cost_end(c->session, &span, sent);
    }

    return sent;
}


ssize_t
sbx_eg_relay_peek(sbx_eg_conn_t *c, sbx_eg_end_t from, uint8_t *buf,
    size_t max)
{
    ssize_t  n;

    do {
        n = recv(c->side[from].fd, buf, max, MSG_PEEK|MSG_DONTWAIT);
    } while (n == -1 && errno == EINTR);

    if (n == 0) {
        c->side[from].ended = 1;
    }

    if (n == -1 && errno == EAGAIN) {
        return 0;
    }

    return n;
}


void
sbx_eg_relay_drop(sbx_eg_conn_t *c, sbx_eg_end_t from, size_t n)
{
    ssize_t          dropped;
    sbx_eg_span_t    span;
    sbx_eg_relay_t  *relay;

    relay = c->session->egress->relay;
    c->spoke |= from == SBX_EG_SERVER;
    sbx_eg_conn_spend(c->session, n, from == SBX_EG_CLIENT);

    if (from == SBX_EG_CLIENT) {
        sbx_eg_relay_beyond(c, 0);
    }

    /* they are there, as they were seen; none is written to the buffer */

    while (n > 0) {
        span = sbx_eg_cost_begin(c->session);
        dropped = recv(c->side[from].fd, relay->in, n,
                       MSG_TRUNC|MSG_DONTWAIT);

        if (from == SBX_EG_CLIENT) {
            sbx_eg_cost_end(c->session, &span, dropped);
        }

        if (dropped <= 0) {
            if (dropped == -1 && errno == EINTR) {
                continue;
            }

            break;
        }

        n -= (size_t) dropped;
    }
}


void
sbx_eg_relay_beyond(sbx_eg_conn_t *c, size_t n)
{
    int  low;

    if (c->looked == n) {
        return;
    }

    low = (int) n + 1;
    c->looked = (uint32_t) n;

    (void) setsockopt(c->side[SBX_EG_CLIENT].fd, SOL_SOCKET, SO_RCVLOWAT,
                      &low, sizeof(low));
}


/*
 * The end of what a side has to say is passed on when all before it was.  A
 * client that waits for what its server will not say any more waits for ever.
 */

static int
sbx_eg_relay_ends(sbx_eg_conn_t *c)
{
    int             rc;
    unsigned        i;
    sbx_eg_side_t  *side;
    sbx_eg_span_t   span;

    if (c->side[SBX_EG_SERVER].passed && c->side[SBX_EG_CLIENT].blocked
        && c->side[SBX_EG_CLIENT].mode == SBX_EG_MODE_HTTP)
    {
        return -1;
    }

    for (i = 0; i < 2; i++) {
        side = &c->side[i];

        if (!side->ended || side->passed || side->held != 0
            || side->mode == SBX_EG_MODE_LOOK
            || side->mode == SBX_EG_MODE_TLS
            || sbx_eg_filter_pending(c, !i))
        {
            continue;
        }

        span = sbx_eg_cost_begin(c->session);
        rc = shutdown(c->side[!i].fd, SHUT_WR);

        if (i == SBX_EG_SERVER) {
            sbx_eg_cost_end(c->session, &span, rc);
        }

        if (rc == -1) {
            return -1;
        }

        side->passed = 1;
    }

    return 0;
}


static int
sbx_eg_relay_settle(sbx_eg_conn_t *c)
{
    unsigned        i;
    uint32_t        wanted;
    sbx_loop_t     *loop;
    sbx_eg_side_t  *side;

    loop = &c->session->egress->loop;

    for (i = 0; i < 2; i++) {
        side = &c->side[i];
        wanted = sbx_eg_relay_wanted(c, i);

        if (wanted == 0 && side->over) {
            /* it would be told again and again */
            sbx_event_del(loop, &side->event);

        } else if (side->event.active) {
            sbx_event_set(loop, &side->event, wanted);

        } else if (sbx_event_add(loop, &side->event, side->fd, wanted) != 0) {
            return -1;
        }
    }

    return 0;
}


static uint32_t
sbx_eg_relay_wanted(const sbx_eg_conn_t *c, sbx_eg_end_t i)
{
    uint32_t              events;
    const sbx_eg_side_t  *side;

    side = &c->side[i];
    events = c->side[!i].full ? EPOLLOUT : 0;

    if (side->mode == SBX_EG_MODE_NONE || side->full || side->starved
        || side->blocked)
    {
        return events;
    }

    if (side->mode == SBX_EG_MODE_LOOK) {
        return side->ended ? events : events | EPOLLIN | EPOLLRDHUP;
    }

    return side->ended ? events : events | EPOLLIN;
}
