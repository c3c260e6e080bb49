/*
 * What the keeper has refused to store, for want of a descriptor or of memory
 * of its own.  It is sent again until the keeper has it: a session that was
 * answered is not ended for that, but it would not outlive this broker, so no
 * other is made meanwhile.
 */

#include "unkept.h"

#include <errno.h>


#define SBX_UNKEPT_AGAIN   500       /* ms */


static int sbx_unkept_mark(sbx_broker_t *b, const sbx_link_t *msg,
    unsigned unkept);
static void sbx_unkept_tick(sbx_timer_t *timer);
static unsigned sbx_unkept_send(sbx_broker_t *b, int send);


void
sbx_unkept_refused(sbx_broker_t *b, const sbx_link_t *msg)
{
    if (msg->kind == SBX_KEEP_CONTROL) {
        sbx_control_refused(b, msg->number);
        return;
    }

    if (!sbx_unkept_mark(b, msg, 1)) {
        return;
    }

    if (!b->unkept) {
        sbx_log(SBX_LOG_ERROR, NULL, 0,
                "the keeper has no descriptor or no memory for more: no "
                "session is made until it has");
    }

    b->unkept = 1;
    b->unkept_timer.handler = sbx_unkept_tick;
    b->unkept_timer.data = b;
    sbx_timer_set(&b->loop, &b->unkept_timer, SBX_UNKEPT_AGAIN);
}


void
sbx_unkept_stored(sbx_broker_t *b, const sbx_link_t *msg)
{
    if (msg->kind == SBX_KEEP_CONTROL) {
        sbx_control_stored(b, msg->number);
        return;
    }

    if (b->unkept) {
        (void) sbx_unkept_mark(b, msg, 0);
    }
}


int
sbx_unkept_admit(const sbx_broker_t *b, sbx_error_t *e)
{
    return b->unkept ? sbx_error(e, 0, SBX_E_UNAVAILABLE,
                                 "the keeper has no room for another session")
                     : 0;
}


/* 0: it is gone. */

static int
sbx_unkept_mark(sbx_broker_t *b, const sbx_link_t *msg, unsigned unkept)
{
    uint32_t        i;
    sbx_session_t  *s;

    switch ((sbx_keep_t) msg->kind) {

    case SBX_KEEP_SESSION:
        s = sbx_session_find(b, msg->id);

        if (s == NULL || !s->stored) {
            return 0;
        }

        s->unkept = unkept & 1;
        return 1;

    case SBX_KEEP_IDS:
        for (i = 0; i < b->ids.ncells; i++) {
            if (b->ids.cells[i].number == msg->number) {
                b->ids.cells[i].unkept = (uint8_t) unkept;
                return 1;
            }
        }

        return 0;

    case SBX_KEEP_CONFIG:
        b->config_unkept = unkept & 1;
        return 1;

    case SBX_KEEP_EGRESS:
        b->outlet.unkept = msg->pid == b->outlet.pid && unkept;
        return 1;

    case SBX_KEEP_CONTROL:
    case SBX_KEEP_NONE:
        break;
    }

    return 0;
}


static void
sbx_unkept_tick(sbx_timer_t *timer)
{
    sbx_broker_t  *b;

    b = timer->data;

    if (sbx_unkept_send(b, 0) == 0) {
        b->unkept = 0;
        sbx_log(SBX_LOG_NOTICE, NULL, 0, "the keeper has everything");
        return;
    }

    (void) sbx_unkept_send(b, 1);
    sbx_timer_set(&b->loop, timer, SBX_UNKEPT_AGAIN);
}


/* How many there are; sent only where nothing waits to be sent, which would
 * need descriptors of our own. */

static unsigned
sbx_unkept_send(sbx_broker_t *b, int send)
{
    int             fds[SBX_LINK_FDS];
    uint32_t        i;
    unsigned        n;
    sbx_cell_t     *cell;
    sbx_node_t     *node;
    sbx_error_t     e;
    sbx_session_t  *s;

    n = 0;

    for (node = b->sessions.next; node != &b->sessions; node = node->next) {
        s = sbx_node_of(node, sbx_session_t, link);

        if (!s->unkept || !s->stored) {
            continue;
        }

        n++;

        if (send && b->letters == NULL) {
            sbx_session_fds(s, fds);
            (void) sbx_broker_tell(b, SBX_LINK_STORE, SBX_KEEP_SESSION,
                                   s->uid_first, s, fds);
        }
    }

    for (i = 0; i < b->ids.ncells; i++) {
        cell = &b->ids.cells[i];

        if (!cell->unkept) {
            continue;
        }

        n++;

        if (send && b->letters == NULL) {
            (void) sbx_broker_tell(b, SBX_LINK_STORE, SBX_KEEP_IDS,
                                   cell->number, NULL, &cell->fd);
        }
    }

    n += b->config_unkept;

    if (b->config_unkept && send && b->letters == NULL) {
        (void) sbx_setup_keep_config(b, &e);
    }

    if (b->outlet.unkept && b->outlet.pid != 0 && !b->outlet.killed) {
        n++;

        if (send && b->letters == NULL) {
            (void) sbx_outlet_keep(b);
        }
    }

    return n;
}
