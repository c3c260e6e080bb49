/*
 * A kernel's output and frames on their way to the call that runs.
 *
 * While the call's socket takes no more, nothing is read: so a slow client
 * slows down its own run.  What was written before a frame comes before it:
 * when a frame begins, the pipes hold all of that, and just so much is read
 * of them first.  Between runs the streams are read and their newest bytes
 * kept; frames are read and dropped.
 *
 * As with commands, nobody's limit pays for init's time: what is dropped, of
 * streams or of frames, or comes in crumbs is read with pauses.
 */

#include "init_code.h"

#include <errno.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>


#define SBX_PUMP_BUDGET     262144    /* bytes in one go */
#define SBX_PUMP_LEAST      4096      /* room that is worth a read */
#define SBX_PUMP_CRUMB      8192
#define SBX_PUMP_CRUMBS     1000      /* us between them */
#define SBX_PUMP_FREE       16        /* reads of a run's frames */
#define SBX_PUMP_PAUSE      2000      /* us after what is dropped */
#define SBX_PUMP_DROPPED    65536     /* bytes of frames that were */


static void sbx_code_pump_event(sbx_init_source_t *source, uint32_t events);
static int sbx_code_step(sbx_code_context_t *context);
static int sbx_code_kept(sbx_code_context_t *context);
static int sbx_code_dues(sbx_code_context_t *context);
static int sbx_code_receive(sbx_code_context_t *context);
static ssize_t sbx_code_take(sbx_code_context_t *context, unsigned i,
    uint64_t most);
static ssize_t sbx_code_forward(sbx_code_context_t *context, unsigned i,
    uint64_t most);
static void sbx_code_keep(sbx_code_kept_t *kept, const char *data, size_t n);
static void sbx_code_pause(sbx_code_context_t *context, unsigned i,
    uint64_t until);
static void sbx_code_watch(sbx_code_context_t *context);
static int sbx_code_drained(const sbx_code_context_t *context);


void
sbx_code_pump_open(sbx_code_context_t *context)
{
    unsigned  i;

    for (i = 0; i < 3; i++) {
        context->sources[i].fd = -1;
        context->sources[i].handler = sbx_code_pump_event;
        context->sources[i].data = context;
    }
}


void
sbx_code_pump_close(sbx_code_context_t *context)
{
    unsigned  i;

    for (i = 0; i < 3; i++) {
        sbx_init_source_close(&context->sources[i]);
        context->readable[i] = 0;
        context->paused[i] = 0;
        context->left[i] = 0;
    }

    sbx_init_buffer_put(context->parser.buf);
    memset(&context->parser, 0, sizeof(context->parser));
    context->due = 0;
    context->retry = 0;

    sbx_code_unwrite(context);
}


void
sbx_code_pump_last(sbx_code_context_t *context)
{
    int        n;
    unsigned   i;
    socklen_t  len;

    n = 0;
    len = sizeof(n);

    if (context->sources[SBX_CODE_FRAMES].fd != -1
        && getsockopt(context->sources[SBX_CODE_FRAMES].fd, SOL_SOCKET,
                      SO_ERROR, &n, &len)
           == 0
        && n == ECONNRESET)
    {
        context->unread = 1;
    }

    for (i = 0; i < 3; i++) {
        n = 0;
        context->left[i] = 0;
        context->readable[i] = 1;
        context->paused[i] = 0;

        if (context->sources[i].fd != -1
            && ioctl(context->sources[i].fd, FIONREAD, &n) == 0 && n > 0)
        {
            context->left[i] = (uint64_t) n;
        }
    }

    sbx_code_unwrite(context);
}


static void
sbx_code_pump_event(sbx_init_source_t *source, uint32_t events)
{
    unsigned             i;
    sbx_code_context_t  *context;

    context = source->data;
    i = (unsigned) (source - context->sources);

    if ((events & EPOLLOUT) && sbx_code_write(context) == -1
        && !context->over)
    {
        (void) sbx_code_kill(context, SBX_REASON_SIGNAL);
    }

    if (events & (EPOLLIN|EPOLLHUP|EPOLLERR)) {
        context->readable[i] = 1;
    }

    sbx_code_pump(context);
}


void
sbx_code_pump(sbx_code_context_t *context)
{
    if (context->pumping) {
        context->again = 1;
        return;
    }

    /* it may speak before its start has been heard of, and is then a process
     * that nobody could find */

    if (context->command != NULL && context->command->launch != NULL) {
        context->retry = 0;
        sbx_code_watch(context);
        return;
    }

    context->pumping = 1;
    context->budget = SBX_PUMP_BUDGET;

    do {
        context->again = 0;

        while (sbx_code_step(context)) { /* void */ }
    } while (context->again && context->budget != 0);

    context->pumping = 0;
    context->retry = 0;

    if (context->run != NULL && context->run->out != NULL) {
        (void) sbx_code_flush(context->run);
    }

    if (context->parser.start == context->parser.end) {
        sbx_init_buffer_put(context->parser.buf);
        context->parser.buf = NULL;
    }

    if (context->budget == 0
        && (context->run == NULL || context->run->out == NULL))
    {
        context->retry = sbx_now_us();
        sbx_init_loop_wake(context->retry);
    }

    sbx_code_watch(context);

    if (context->over && sbx_code_drained(context)) {
        sbx_code_over(context);
    }
}


/* 1: something has moved. */

static int
sbx_code_step(sbx_code_context_t *context)
{
    int       rc;
    unsigned  i;

    if (context->budget == 0) {
        return 0;
    }

    if (context->run != NULL
        && !sbx_code_room(context->run, SBX_PUMP_LEAST))
    {
        return 0;
    }

    rc = sbx_code_kept(context);

    if (rc != 0) {
        return rc == 1;
    }

    if (context->due) {
        return sbx_code_dues(context);
    }

    rc = sbx_code_parse(context);

    if (rc == 1) {
        return 1;
    }

    if (rc == -1) {
        /* whatever this is, it is no kernel of ours; one that saw its socket
         * closed first might exit of itself */

        if (!context->over) {
            (void) sbx_code_kill(context, SBX_REASON_SIGNAL);
        }

        sbx_init_source_close(&context->sources[SBX_CODE_FRAMES]);
        sbx_init_buffer_put(context->parser.buf);
        memset(&context->parser, 0, sizeof(context->parser));
        context->left[SBX_CODE_FRAMES] = 0;

        return 1;
    }

    if (sbx_code_receive(context)) {
        return 1;
    }

    for (i = 0; i < 2; i++) {
        if (context->readable[i] && context->paused[i] == 0
            && sbx_code_take(context, i, UINT64_MAX) > 0)
        {
            return 1;
        }
    }

    return 0;
}


/* What came between runs is the first of this one.  -1: no room. */

static int
sbx_code_kept(sbx_code_context_t *context)
{
    size_t            n, cap;
    unsigned          i;
    sbx_code_call_t  *run;
    sbx_code_kept_t  *kept;

    run = context->run;

    if (run == NULL) {
        return 0;
    }

    for (i = 0; i < 2; i++) {
        kept = &context->kept[i];

        if (kept->data == NULL) {
            continue;
        }

        n = SBX_CODE_KEPT - kept->start;
        n = n < kept->len ? n : kept->len;
        n = n < SBX_FRAME_MAX / 2 ? n : SBX_FRAME_MAX / 2;

        if (n == 0) {
            free(kept->data);
            memset(kept, 0, sizeof(*kept));
            return 1;
        }

        if (!sbx_code_room(run, sizeof(sbx_frame_t) + n)) {
            return -1;
        }

        cap = n;

        if ((run->ask.flags & SBX_CODE_F_CAP)
            && cap > run->ask.max_output - run->passed[i])
        {
            cap = (size_t) (run->ask.max_output - run->passed[i]);
            run->ran.flags |= i == 0 ? SBX_RAN_OUT_TRUNCATED
                                     : SBX_RAN_ERR_TRUNCATED;
        }

        if (cap != 0) {
            sbx_code_put(run, i == 0 ? SBX_F_STDOUT : SBX_F_STDERR,
                         kept->data + kept->start, cap, NULL, 0);
        }

        run->passed[i] += cap;
        *(i == 0 ? &run->ran.stdout_bytes : &run->ran.stderr_bytes) += n;
        kept->start = (kept->start + n) % SBX_CODE_KEPT;
        kept->len -= n;

        return 1;
    }

    return 0;
}


static int
sbx_code_dues(sbx_code_context_t *context)
{
    ssize_t   n;
    unsigned  i;

    for (i = 0; i < 2; i++) {
        if (context->dues[i] == 0) {
            continue;
        }

        n = sbx_code_take(context, i, context->dues[i]);

        if (n == 0) {
            return 0;
        }

        context->dues[i] = n < 0 ? 0 : context->dues[i] - (uint64_t) n;

        return 1;
    }

    context->due = 0;

    return 1;
}


static int
sbx_code_receive(sbx_code_context_t *context)
{
    size_t              most, pauses;
    ssize_t             n;
    uint64_t            now;
    sbx_code_parser_t  *p;
    sbx_init_source_t  *source;

    p = &context->parser;
    source = &context->sources[SBX_CODE_FRAMES];

    if (source->fd == -1 || !context->readable[SBX_CODE_FRAMES]
        || context->paused[SBX_CODE_FRAMES] != 0)
    {
        return 0;
    }

    if (context->over && context->left[SBX_CODE_FRAMES] == 0) {
        sbx_init_source_close(source);
        return 0;
    }

    if (context->dropped >= SBX_PUMP_DROPPED && !context->over) {
        pauses = context->dropped / SBX_PUMP_DROPPED;
        context->dropped = 0;
        sbx_code_pause(context, SBX_CODE_FRAMES,
                       sbx_now_us() + pauses * SBX_PUMP_PAUSE);
        return 0;
    }

    if (p->buf == NULL) {
        p->buf = sbx_init_buffer_get(1);
        p->start = 0;
        p->end = 0;

        if (p->buf == NULL) {
            sbx_code_pause(context, SBX_CODE_FRAMES,
                           sbx_now_us() + SBX_PUMP_PAUSE);
            return 0;
        }

    } else if (p->start != 0) {
        memmove(p->buf, p->buf + p->start, p->end - p->start);
        p->end -= p->start;
        p->start = 0;
    }

    most = SBX_INIT_BUFFER - p->end;

    if (context->over && most > context->left[SBX_CODE_FRAMES]) {
        most = (size_t) context->left[SBX_CODE_FRAMES];
    }

    if (most == 0) {
        return 0;
    }

    n = recv(source->fd, p->buf + p->end, most, MSG_DONTWAIT);

    if (n == -1 && (errno == EAGAIN || errno == EINTR)) {
        context->readable[SBX_CODE_FRAMES] = errno == EINTR;
        n = 0;

    } else if (n <= 0) {
        context->unread = n == -1 && errno == ECONNRESET;
        sbx_init_source_close(source);
        sbx_code_mute(context);
        n = 0;
    }

    if (n == 0) {
        return 0;
    }

    p->end += (size_t) n;
    context->budget -= (size_t) n < context->budget ? (size_t) n
                                                    : context->budget;

    if (context->over) {
        context->left[SBX_CODE_FRAMES] -= (uint64_t) n;
        return 1;
    }

    now = sbx_now_us();

    if ((size_t) n < most) {
        context->readable[SBX_CODE_FRAMES] = 0;
    }

    if (n < SBX_PUMP_CRUMB
        && now < context->read[SBX_CODE_FRAMES] + SBX_PUMP_CRUMBS
        && (context->run == NULL || ++context->crumbs > SBX_PUMP_FREE))
    {
        sbx_code_pause(context, SBX_CODE_FRAMES, now + SBX_PUMP_CRUMBS);
    }

    context->read[SBX_CODE_FRAMES] = now;

    return 1;
}


/* How much was taken; 0: there is no room for it, -1: there is none. */

static ssize_t
sbx_code_take(sbx_code_context_t *context, unsigned i, uint64_t most)
{
    ssize_t             n;
    uint64_t            now, asked;
    sbx_code_call_t    *run;
    sbx_init_source_t  *source;

    static char  scratch[65536];

    run = context->run;
    source = &context->sources[i];

    if (source->fd == -1) {
        context->readable[i] = 0;
        return -1;
    }

    if (context->over && most > context->left[i]) {
        most = context->left[i];
    }

    if (most == 0) {
        sbx_init_source_close(source);
        return -1;
    }

    asked = most < sizeof(scratch) ? most : sizeof(scratch);
    n = run != NULL ? sbx_code_forward(context, i, asked) : -3;

    if (n == -2) {
        return 0;
    }

    now = sbx_now_us();

    if (n == -3) {
        n = read(source->fd, scratch, (size_t) asked);

        if (n > 0 && run == NULL) {
            sbx_code_keep(&context->kept[i], scratch, (size_t) n);
        }

        if (n > 0 && !context->over) {
            sbx_code_pause(context, i, now + SBX_PUMP_PAUSE);
        }

        if (n > 0 && run != NULL && run->call.fd != -1) {
            run->ran.flags |= i == 0 ? SBX_RAN_OUT_TRUNCATED
                                     : SBX_RAN_ERR_TRUNCATED;
        }
    }

    if (n == -1 && (errno == EAGAIN || errno == EINTR)) {
        context->readable[i] = errno == EINTR;
        return -1;
    }

    if (n <= 0) {
        /* nobody has the other end any more */
        sbx_init_source_close(source);
        context->left[i] = 0;
        return -1;
    }

    if (run != NULL) {
        *(i == 0 ? &run->ran.stdout_bytes : &run->ran.stderr_bytes)
            += (uint64_t) n;
    }

    context->budget -= (size_t) n < context->budget ? (size_t) n
                                                    : context->budget;

    if (context->over) {
        context->left[i] -= (uint64_t) n;
        return n;
    }

    if (n < SBX_PUMP_CRUMB && context->paused[i] == 0
        && now < context->read[i] + SBX_PUMP_CRUMBS)
    {
        sbx_code_pause(context, i, now + SBX_PUMP_CRUMBS);
    }

    context->read[i] = now;

    return n;
}


/* The frame is made where it will be sent from.  -2: there is no room; -3:
 * it is to be dropped. */

static ssize_t
sbx_code_forward(sbx_code_context_t *context, unsigned i, uint64_t most)
{
    ssize_t           n;
    uint8_t          *to;
    uint64_t          room;
    sbx_code_call_t  *run;

    run = context->run;

    if (run->call.fd == -1) {
        return -3;
    }

    if (run->ask.flags & SBX_CODE_F_CAP) {
        room = run->ask.max_output - run->passed[i];
        most = most < room ? most : room;

        if (most == 0) {
            return -3;
        }
    }

    if (!sbx_code_room(run, SBX_PUMP_LEAST) || run->out == NULL) {
        return -2;
    }

    room = SBX_INIT_BUFFER - run->out_end - sizeof(sbx_frame_t);
    most = most < room ? most : room;
    most = most < SBX_FRAME_MAX ? most : SBX_FRAME_MAX;

    to = run->out + run->out_end;
    n = read(context->sources[i].fd, to + sizeof(sbx_frame_t), (size_t) most);

    if (n > 0) {
        run->out_end += sbx_wire_header(to, i == 0 ? SBX_F_STDOUT
                                                   : SBX_F_STDERR,
                                        (size_t) n)
                        + (size_t) n;
        run->passed[i] += (uint64_t) n;
    }

    return n;
}


/* The newest bytes; without memory there are none. */

static void
sbx_code_keep(sbx_code_kept_t *kept, const char *data, size_t n)
{
    size_t  at, piece;

    if (kept->data == NULL) {
        kept->data = malloc(SBX_CODE_KEPT);
        kept->start = 0;
        kept->len = 0;
    }

    if (kept->data == NULL) {
        return;
    }

    if (n > SBX_CODE_KEPT) {
        data += n - SBX_CODE_KEPT;
        n = SBX_CODE_KEPT;
    }

    while (n != 0) {
        at = (kept->start + kept->len) % SBX_CODE_KEPT;
        piece = SBX_CODE_KEPT - at < n ? SBX_CODE_KEPT - at : n;
        memcpy(kept->data + at, data, piece);
        data += piece;
        n -= piece;
        kept->len += piece;

        if (kept->len > SBX_CODE_KEPT) {
            kept->start = (kept->start + kept->len - SBX_CODE_KEPT)
                          % SBX_CODE_KEPT;
            kept->len = SBX_CODE_KEPT;
        }
    }
}


static void
sbx_code_pause(sbx_code_context_t *context, unsigned i, uint64_t until)
{
    context->paused[i] = until;
    sbx_init_loop_wake(until);
}


void
sbx_code_pump_tick(sbx_code_context_t *context, uint64_t now)
{
    int       go;
    unsigned  i;

    go = context->retry != 0 && now >= context->retry;

    for (i = 0; i < 3; i++) {
        if (context->paused[i] != 0 && now >= context->paused[i]) {
            context->paused[i] = 0;
            context->readable[i] = 1;
            go = 1;

        } else if (context->paused[i] != 0) {
            sbx_init_loop_wake(context->paused[i]);
        }
    }

    if (go) {
        sbx_code_pump(context);
    }
}


static void
sbx_code_watch(sbx_code_context_t *context)
{
    int       blocked;
    uint32_t  events;
    unsigned  i;

    blocked = context->over
              || (context->command != NULL
                  && context->command->launch != NULL)
              || (context->run != NULL && context->run->out != NULL);

    for (i = 0; i < 3; i++) {
        events = !blocked && context->paused[i] == 0 ? EPOLLIN : 0;

        if (i == SBX_CODE_FRAMES && context->frame != NULL) {
            events |= EPOLLOUT;
        }

        sbx_init_source_set(&context->sources[i], events);
    }
}


static int
sbx_code_drained(const sbx_code_context_t *context)
{
    return context->sources[0].fd == -1 && context->sources[1].fd == -1
           && context->sources[SBX_CODE_FRAMES].fd == -1
           && (context->run == NULL || context->run->out == NULL)
           && context->budget != 0;
}
