/*
 * Calls that the broker answers.  Frames wait in a queue of the call's own,
 * bounded; a peer that does not read delays nobody else, and one that closes
 * its end aborts the call.
 */

#include "broker.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>


static void sbx_call_event(sbx_event_t *ev, uint32_t events);
static void sbx_call_told(sbx_call_out_t *call);
static void sbx_call_stalled(sbx_timer_t *timer);
static void sbx_call_flush(sbx_call_out_t *call);
static int sbx_call_room(sbx_call_out_t *call, size_t size);
static int sbx_call_passing(int err);


sbx_call_out_t *
sbx_call_make(sbx_broker_t *b, const sbx_call_t *head, int fd)
{
    sbx_call_out_t  *call;

    call = NULL;

    if (b->ncalls < SBX_CALLS_MAX) {
        call = calloc(1, sizeof(sbx_call_out_t));
    }

    if (call == NULL) {
        sbx_discard(b, fd);
        return NULL;
    }

    call->broker = b;
    call->fd = fd;
    call->head = *head;
    call->event.handler = sbx_call_event;
    call->event.data = call;
    call->timer.handler = sbx_call_stalled;
    call->timer.data = call;

    sbx_list_init(&call->wait);
    sbx_list_append(&b->calls, &call->link);
    b->ncalls++;

    if (sbx_event_add(&b->loop, &call->event, fd, EPOLLRDHUP) == -1) {
        sbx_call_close(call);
        return NULL;
    }

    return call;
}


static void
sbx_call_event(sbx_event_t *ev, uint32_t events)
{
    sbx_call_out_t  *call;

    call = ev->data;

    if (events & (EPOLLHUP|EPOLLERR|EPOLLRDHUP)) {
        sbx_call_told(call);
        sbx_call_close(call);
        return;
    }

    sbx_call_flush(call);

    if (!call->closed && call->listing && call->end == 0) {
        sbx_service_list(call);
    }
}


/* The worker has closed: whether before its client knew of the session. */

static void
sbx_call_told(sbx_call_out_t *call)
{
    int          fds[SBX_WIRE_FDS_ALL];
    ssize_t      n;
    unsigned     nfds;
    sbx_frame_t  frame;

    if (call->created == NULL || !call->last || call->start != call->end) {
        return;
    }

    n = sbx_wire_recv_all(call->fd, &frame, sizeof(sbx_frame_t), fds, &nfds,
                          MSG_DONTWAIT);
    sbx_discard_all(call->broker, fds, nfds);

    if (n == (ssize_t) sizeof(sbx_frame_t) && frame.type == SBX_F_END
        && frame.length == 0)
    {
        call->created = NULL;
    }
}


/* What it holds is others' too. */

static void
sbx_call_stalled(sbx_timer_t *timer)
{
    sbx_call_close(timer->data);
}


static void
sbx_call_flush(sbx_call_out_t *call)
{
    ssize_t  n;

    while (call->start < call->end) {
        n = sbx_wire_send(call->fd, call->queue + call->start,
                          call->end - call->start, NULL, 0, MSG_DONTWAIT);

        if (n == -1) {
            if (errno == EAGAIN) {
                sbx_event_set(&call->broker->loop, &call->event,
                              EPOLLRDHUP|EPOLLOUT);

                if (!call->timer.set) {
                    sbx_timer_set(&call->broker->loop, &call->timer,
                                  SBX_CALL_STALL);
                }

                return;
            }

            sbx_call_close(call);
            return;
        }

        call->start += (size_t) n;
        sbx_timer_del(&call->broker->loop, &call->timer);
    }

    call->start = 0;
    call->end = 0;

    if (call->last && call->created != NULL
        && (call->head.flags & SBX_CALL_TELLS))
    {
        sbx_event_set(&call->broker->loop, &call->event, EPOLLRDHUP);
        return;
    }

    if (call->last) {
        call->created = NULL;
        sbx_call_close(call);
        return;
    }

    sbx_event_set(&call->broker->loop, &call->event,
                  call->listing ? EPOLLRDHUP|EPOLLOUT : EPOLLRDHUP);
}


static int
sbx_call_room(sbx_call_out_t *call, size_t size)
{
    size_t    want;
    uint8_t  *queue;

    if (call->size - call->end >= size) {
        return 0;
    }

    if (call->start != 0) {
        memmove(call->queue, call->queue + call->start,
                call->end - call->start);
        call->end -= call->start;
        call->start = 0;
    }

    want = call->size ? call->size : 2048;

    while (want - call->end < size) {
        want *= 2;
    }

    if (want > SBX_CALL_QUEUE) {
        return -1;
    }

    if (want == call->size) {
        return 0;
    }

    queue = realloc(call->queue, want);

    if (queue == NULL) {
        return -1;
    }

    call->queue = queue;
    call->size = want;

    return 0;
}


int
sbx_call_frame(sbx_call_out_t *call, sbx_frame_type_t type,
    const void *data, size_t size, const void *more, size_t more_size)
{
    if (call->closed) {
        return -1;
    }

    if (sbx_call_room(call, sizeof(sbx_frame_t) + size + more_size) != 0) {
        sbx_call_close(call);
        return -1;
    }

    call->end += sbx_wire_header(call->queue + call->end, type,
                                 size + more_size);

    if (size != 0) {
        memcpy(call->queue + call->end, data, size);
        call->end += size;
    }

    if (more_size != 0) {
        memcpy(call->queue + call->end, more, more_size);
        call->end += more_size;
    }

    return 0;
}


void
sbx_call_end(sbx_call_out_t *call, const sbx_f_end_t *end)
{
    sbx_f_end_t  bare;

    if (end == NULL) {
        memset(&bare, 0, sizeof(sbx_f_end_t));
        end = &bare;
    }

    call->listing = 0;

    if (sbx_call_frame(call, SBX_F_END, end, sizeof(sbx_f_end_t), NULL, 0)
        == 0)
    {
        call->last = 1;
        sbx_call_flush(call);
    }
}


void
sbx_call_push(sbx_call_out_t *call)
{
    if (!call->closed) {
        sbx_call_flush(call);
    }
}


void
sbx_call_fill(sbx_f_error_t *error, const sbx_error_t *e)
{
    memset(error, 0, sizeof(sbx_f_error_t));
    error->code = e->code == SBX_E_INTERNAL && sbx_call_passing(e->err)
                  ? SBX_E_UNAVAILABLE : e->code;
    error->err = e->err;
    memcpy(error->text, e->text, sizeof(error->text));
    error->text[sizeof(error->text) - 1] = '\0';

    if (error->code == SBX_E_UNAVAILABLE) {
        error->retry_after = 1;
    }
}


/* What the node is short of for the moment, wherever that was found: a moment
 * later all may be well. */

static int
sbx_call_passing(int err)
{
    return err == EAGAIN || err == ENOMEM || err == ENOBUFS || err == EMFILE
           || err == ENFILE || err == ENOSPC || err == ETOOMANYREFS;
}


void
sbx_call_error(sbx_call_out_t *call, const sbx_error_t *e)
{
    sbx_f_error_t  error;

    sbx_call_fill(&error, e);
    sbx_call_fail(call, &error);
}


void
sbx_call_fail(sbx_call_out_t *call, const sbx_f_error_t *error)
{
    call->listing = 0;

    if (sbx_call_frame(call, SBX_F_ERROR, error, sizeof(sbx_f_error_t), NULL,
                       0)
        == 0)
    {
        call->last = 1;
        sbx_call_flush(call);
    }
}


void
sbx_call_refuse(sbx_broker_t *b, const sbx_call_t *head, int fd,
    const sbx_f_error_t *error)
{
    sbx_call_out_t  *call;

    call = sbx_call_make(b, head, fd);

    if (call != NULL) {
        sbx_call_fail(call, error);
    }
}


/* No such session, and, for its owner, how it ended; or it is there, and the
 * call may not have it. */

void
sbx_call_session_error(sbx_broker_t *b, const sbx_call_t *head,
    sbx_f_error_t *error)
{
    sbx_error_t           e;
    sbx_session_t        *s;
    const sbx_grave_t    *grave;
    const char           *tenant, *user;

    if (sbx_session_barred(b, head)) {
        (void) sbx_error(&e, 0, SBX_E_TOKEN, "the session asks for a token");
        sbx_call_fill(error, &e);
        return;
    }

    (void) sbx_error(&e, 0, SBX_E_SESSION, "there is no such session");
    sbx_call_fill(error, &e);

    s = sbx_session_find(b, head->session);
    grave = sbx_graves_find(b, head->session);

    if (s != NULL && s->ended != SBX_ENDED_NOT && !s->pooled) {
        tenant = s->info.tenant;
        user = s->info.user;

    } else if (grave != NULL) {
        tenant = grave->tenant;
        user = grave->user;

    } else {
        return;
    }

    if ((head->tenant[0] && strcmp(head->tenant, tenant) != 0)
        || (head->user[0] && strcmp(head->user, user) != 0))
    {
        return;
    }

    (void) sbx_error(&e, 0, SBX_E_SESSION, "the session has ended");
    sbx_call_fill(error, &e);

    if (grave != NULL) {
        error->ended = grave->ended;
        error->ended_at = grave->ended_at;

    } else {
        error->ended = s->ended;
        error->ended_at = s->ended_at;
    }
}


void
sbx_call_wait(sbx_call_out_t *call, sbx_node_t *list)
{
    sbx_list_remove(&call->wait);
    sbx_list_append(list, &call->wait);
}


void
sbx_call_close(sbx_call_out_t *call)
{
    sbx_broker_t   *b;
    sbx_session_t  *created;

    if (call->closed) {
        return;
    }

    b = call->broker;
    created = call->created;

    call->closed = 1;
    call->created = NULL;

    sbx_event_del(&b->loop, &call->event);
    sbx_timer_del(&b->loop, &call->timer);
    sbx_list_remove(&call->link);
    sbx_list_remove(&call->wait);
    b->ncalls--;

    sbx_discard(b, call->fd);
    free(call->queue);
    call->queue = NULL;
    sbx_loop_free(&b->loop, call);

    /* nobody knows the name of what was made for this call */

    if (created != NULL) {
        sbx_session_hear(created);
        sbx_session_end(created, SBX_ENDED_DESTROYED, 1);
    }
}


void
sbx_call_forget(sbx_broker_t *b, const sbx_session_t *s)
{
    sbx_node_t      *node, *next, *prev;
    sbx_call_out_t  *call;

    prev = s->link.prev;

    for (node = b->calls.next; node != &b->calls; node = next) {
        next = node->next;
        call = sbx_node_of(node, sbx_call_out_t, link);

        if (call->created == s) {
            call->created = NULL;

            if (s->info.flags & SBX_CREATE_TIED) {
                sbx_call_end(call, NULL);
            }
        }

        if (call->cursor == s) {
            call->cursor = prev == &b->sessions
                           ? NULL : sbx_node_of(prev, sbx_session_t, link);
        }
    }
}
