/*
 * Calls that a paused session is resumed for.  They wait with their sockets,
 * in the order in which they came, until the session runs; nothing has been
 * done of them until then, so that a worker whose broker dies meanwhile sends
 * them again.
 */

#include "broker.h"
#include "sandbox_fault.h"

#include <string.h>


typedef struct {
    sbx_node_t          link;
    sbx_call_t          head;
    sbx_exec_limits_t   limits;       /* of an EXEC */
    int                 fd;
} sbx_held_t;


static int sbx_resume_stands(const sbx_session_t *s);
static void sbx_resume_refuse(sbx_session_t *s, const sbx_error_t *e);
static sbx_held_t *sbx_resume_next(sbx_session_t *s);


static int
sbx_resume_stands(const sbx_session_t *s)
{
    return s->info.status == SBX_STATUS_PAUSED || s->frozen;
}


int
sbx_resume_call(sbx_session_t *s, const sbx_call_t *head, int fd,
    const void *body)
{
    sbx_error_t     e;
    sbx_held_t     *held;
    sbx_f_error_t   error;

    if ((head->flags & SBX_CALL_RESUME) == 0 || head->op == SBX_OP_LOG
        || (s->info.flags & SBX_CREATE_AUTO_RESUME) == 0
        || !sbx_resume_stands(s))
    {
        return 0;
    }

    held = s->nheld < SBX_HELD_MAX ? calloc(1, sizeof(sbx_held_t)) : NULL;

    if (held == NULL) {
        (void) sbx_error(&e, 0, SBX_E_UNAVAILABLE,
                         "too many calls wait for the session to be resumed");
        sbx_call_fill(&error, &e);
        sbx_call_refuse(s->broker, head, fd, &error);
        return 1;
    }

    held->head = *head;
    held->fd = fd;

    if (head->op == SBX_OP_EXEC) {
        memcpy(&held->limits, body, sizeof(sbx_exec_limits_t));
    }

    sbx_list_append(&s->held, &held->link);
    SBX_FAULT("broker-resume-held");

    /* the first of them is who resumes it */

    if (s->nheld++ == 0) {
        memcpy(s->request, head->request_id, sizeof(s->request));

        if (sbx_change_resume(s, &e) != 0) {
            sbx_resume_refuse(s, &e);
        }
    }

    return 1;
}


/* Whether they may is asked anew: nothing was when they came. */

void
sbx_resume_over(sbx_session_t *s, const sbx_error_t *e)
{
    uint64_t      until;
    sbx_error_t   stays;
    sbx_held_t   *held;

    if (e == NULL && sbx_resume_stands(s)) {
        (void) sbx_error(&stays, 0, SBX_E_UNAVAILABLE,
                         "the session could not be resumed");
        e = &stays;
    }

    if (e != NULL) {
        sbx_resume_refuse(s, e);
        return;
    }

    until = sbx_now_us() + SBX_ROUND;

    while (!sbx_list_empty(&s->held)) {
        if (sbx_now_us() > until) {
            sbx_timer_set(&s->broker->loop, &s->held_timer, 0);
            return;
        }

        held = sbx_resume_next(s);
        sbx_command_call(s, &held->head, held->fd, &held->limits);
        free(held);
    }
}


void
sbx_resume_tick(sbx_timer_t *timer)
{
    sbx_session_t  *s;

    s = timer->data;

    if (!sbx_list_empty(&s->held)) {
        sbx_resume_over(s, NULL);
    }
}


static sbx_held_t *
sbx_resume_next(sbx_session_t *s)
{
    sbx_held_t  *held;

    held = sbx_node_of(s->held.next, sbx_held_t, link);
    sbx_list_remove(&held->link);
    s->nheld--;

    return held;
}


static void
sbx_resume_refuse(sbx_session_t *s, const sbx_error_t *e)
{
    sbx_held_t     *held;
    sbx_f_error_t   error;

    sbx_call_fill(&error, e);

    while (!sbx_list_empty(&s->held)) {
        held = sbx_resume_next(s);
        sbx_call_refuse(s->broker, &held->head, held->fd, &error);
        free(held);
    }
}


void
sbx_resume_drop(sbx_session_t *s)
{
    sbx_held_t     *held;
    sbx_f_error_t   error;

    while (!sbx_list_empty(&s->held)) {
        held = sbx_resume_next(s);
        sbx_call_session_error(s->broker, &held->head, &error);
        sbx_call_refuse(s->broker, &held->head, held->fd, &error);
        free(held);
    }
}
