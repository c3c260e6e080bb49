/*
 * Waiting until a session that is to be paused stands still.  The kernel
 * freezes each process as it leaves the kernel, and tells by the group's
 * events once all have; nothing of it runs meanwhile but what cannot be
 * interrupted.  That is waited for as long as a caller can bear: a process
 * that hangs on a disk will not run before the disk answers, and is frozen
 * then.
 */

#include "broker.h"

#include <errno.h>
#include <string.h>


#define SBX_FREEZE_WAIT   2000        /* ms for all to stand still */


static void sbx_freeze_event(sbx_event_t *ev, uint32_t events);
static void sbx_freeze_late(sbx_timer_t *timer);


void
sbx_freeze_open(sbx_session_t *s)
{
    s->still.fd = -1;
    s->still.handler = sbx_freeze_event;
    s->still.data = s;
    s->still_timer.handler = sbx_freeze_late;
    s->still_timer.data = s;
}


int
sbx_freeze_await(sbx_session_t *s)
{
    int  fd;

    fd = sbx_cgroup_session_events(s->cgroup);

    if (fd == -1 || sbx_cgroup_frozen(fd) != 0
        || sbx_event_add(&s->broker->loop, &s->still, fd, EPOLLPRI) == -1)
    {
        if (fd != -1) {
            (void) close(fd);
        }

        return 1;
    }

    sbx_timer_set(&s->broker->loop, &s->still_timer, SBX_FREEZE_WAIT);

    return 0;
}


/* What the file says now is what the next event is a change of. */

static void
sbx_freeze_event(sbx_event_t *ev, uint32_t events)
{
    sbx_session_t  *s;

    (void) events;

    s = ev->data;

    if (sbx_cgroup_frozen(ev->fd) != 0) {
        sbx_freeze_close(s);
        sbx_change_frozen(s);
    }
}


static void
sbx_freeze_late(sbx_timer_t *timer)
{
    sbx_session_t  *s;

    s = timer->data;

    sbx_log(SBX_LOG_NOTICE, &(sbx_log_about_t) { s->request, s->info.id }, 0,
            "session is paused while the kernel holds a process of it, which "
            "will freeze when that lets go");

    sbx_freeze_close(s);
    sbx_change_frozen(s);
}


void
sbx_freeze_close(sbx_session_t *s)
{
    int  fd;

    sbx_timer_del(&s->broker->loop, &s->still_timer);

    if (s->still.active) {
        fd = s->still.fd;
        sbx_event_del(&s->broker->loop, &s->still);
        (void) close(fd);
    }
}
