/*
 * The end of a session, from TERMINATING to gone; see session.c for the
 * states.  Each step is taken as soon as the one before it has been seen to
 * be done, or its timer says that it will not be.
 */

#include "broker.h"
#include "sandbox_fault.h"

#include <stdio.h>
#include <string.h>


#define SBX_SESSION_CUT_WAIT      1000
#define SBX_SESSION_KILL_WAIT     5000
#define SBX_SESSION_REAP_WAIT     250
#define SBX_SESSION_REMOVE_MAX    200
#define SBX_SESSION_GROUPS        16        /* removed in one round */


static int sbx_session_remove_groups(sbx_session_t *s);
static void sbx_session_gone(sbx_session_t *s);
static void sbx_session_hang_up(sbx_session_t *s);
static void sbx_session_unwatch(sbx_session_t *s);


static const char  *sbx_session_words[] = {
    "not", "destroyed", "expired", "idle", "admin", "node restart"
};


void
sbx_session_end(sbx_session_t *s, sbx_ended_t why, int kill_now)
{
    int            running;
    char           text[64];
    sbx_broker_t  *b;

    b = s->broker;

    if (s->state >= SBX_S_CUTTING
        || (s->state == SBX_S_TERMINATING && !kill_now))
    {
        return;
    }

    running = s->state == SBX_S_RUNNING && !s->pooled;

    if (s->pooled) {
        sbx_pool_out(s);
    }

    if (s->ended == SBX_ENDED_NOT) {
        s->ended = why;
        s->ended_at = sbx_broker_clock_ms();
        s->keyed = 0;

        sbx_timer_del(&b->loop, &s->expiry);
        sbx_idle_close(s);
        sbx_samples_close(s);

        if (running) {
            sbx_metrics_ended(b, why);
            b->nrunning--;
            sbx_graves_add(b, &s->info, why, s->ended_at);
            SBX_FAULT("broker-end-buried");
            (void) snprintf(text, sizeof(text), "session ends: %s",
                            sbx_session_words[why]);
            sbx_session_log(s, SBX_LOG_INFO, 0, text);
        }
    }

    /* what is frozen obeys nobody; killed it can be as it is */

    if (!kill_now && s->frozen) {
        (void) sbx_change_freeze(s, 0, NULL);
    }

    if (!kill_now && running && s->ncommands != 0
        && sbx_command_send(s, SBX_OP_TERMINATE) == 0)
    {
        s->state = SBX_S_TERMINATING;
        sbx_change_drop(s);
        sbx_timer_set(&b->loop, &s->timer, s->grace);
        return;
    }

    sbx_session_cut(s);
}


void
sbx_session_cut(sbx_session_t *s)
{
    int            creating;
    sbx_error_t    e;
    sbx_broker_t  *b;

    b = s->broker;
    creating = s->state == SBX_S_CREATING;
    s->state = SBX_S_CUTTING;

    sbx_timer_del(&b->loop, &s->groups);

    if (s->cgroup != NULL && sbx_cgroup_session_kill(s->cgroup, &e) != 0) {
        sbx_session_log(s, SBX_LOG_WARN, e.err, e.text);
    }

    SBX_FAULT("broker-end-cut");

    sbx_command_drop(s);
    sbx_change_drop(s);
    sbx_way_cut(s);

    if (creating) {
        if (s->error.code == SBX_OK) {
            (void) sbx_error(&s->error, 0, SBX_E_UNAVAILABLE,
                             "the session was ended before it was ready");
        }

        sbx_create_answer(s);
    }

    if (s->ready && !s->watched && !s->exited
        && sbx_command_send(s, SBX_OP_CUT) == 0)
    {
        sbx_timer_set(&b->loop, &s->timer, SBX_SESSION_CUT_WAIT);
        return;
    }

    sbx_session_kill(s);
}


/*
 * Init belongs to a user namespace that is not ours, so no signal reaches it
 * from here: its group is killed, and the last copies of its control socket
 * are closed, which it takes for the end as well.
 */

void
sbx_session_kill(sbx_session_t *s)
{
    int            rc;
    sbx_error_t    e;
    sbx_broker_t  *b;

    b = s->broker;
    s->state = SBX_S_DYING;
    rc = 0;
    memset(&e, 0, sizeof(sbx_error_t));

    sbx_session_hang_up(s);
    SBX_FAULT("broker-end-dropped");

    if (s->pidfd == -1) {
        s->exited = 1;

    } else if (s->cgroup != NULL) {
        rc = sbx_cgroup_session_end(s->cgroup, &e);

    } else if (b->cgroup != NULL) {
        rc = sbx_cgroup_sweep(b->cgroup, s->info.id, &e);
    }

    if (rc == -1) {
        sbx_session_log(s, SBX_LOG_WARN, e.err, e.text);
    }

    SBX_FAULT("broker-end-killed");

    sbx_timer_set(&b->loop, &s->timer, SBX_SESSION_KILL_WAIT);
    sbx_session_dying(s);
}


void
sbx_session_dying(sbx_session_t *s)
{
    if (s->exited || (s->watched && s->orphan)) {
        s->state = SBX_S_REMOVING;
        s->backoff = 1;
        SBX_FAULT("broker-end-reaped");
        sbx_session_unwatch(s);
        sbx_session_remove(s);
        return;
    }

    if (s->watched) {
        sbx_timer_set(&s->broker->loop, &s->timer, SBX_SESSION_REAP_WAIT);
    }
}


/* Once more, until nothing is left; the loop is never held up for long. */

void
sbx_session_remove(sbx_session_t *s)
{
    int            rc;
    sbx_error_t    e;
    sbx_broker_t  *b;

    b = s->broker;

    if (s->job != NULL) {
        /* its writer is still in the directory */
        return;
    }

    memset(&e, 0, sizeof(sbx_error_t));
    rc = sbx_session_remove_groups(s);

    if (rc == 0) {
        if (s->cgroup != NULL) {
            rc = sbx_cgroup_session_remove(s->cgroup, &e);

        } else if (b->cgroup != NULL) {
            rc = sbx_cgroup_sweep(b->cgroup, s->info.id, &e);
        }
    }

    if (rc == 0) {
        SBX_FAULT("broker-end-ungrouped");
        rc = sbx_storage_remove(b->storage, s->info.id, &e);
    }

    if (rc == 1) {
        sbx_timer_set(&b->loop, &s->timer, s->backoff);
        s->backoff *= 2;

        if (s->backoff > SBX_SESSION_REMOVE_MAX) {
            s->backoff = SBX_SESSION_REMOVE_MAX;
        }

        return;
    }

    if (rc == -1) {
        sbx_session_log(s, SBX_LOG_ERROR, e.err, e.text);
        /* what may still live keeps its ids */
        s->uid_first = 0;
    }

    SBX_FAULT("broker-end-emptied");
    sbx_session_gone(s);
}


/* 1: there are more. */

static int
sbx_session_remove_groups(sbx_session_t *s)
{
    unsigned        i;
    sbx_error_t     e;
    sbx_node_t     *node;
    sbx_command_t  *command;

    for (i = 0; !sbx_list_empty(&s->lingering); i++) {

        if (i == SBX_SESSION_GROUPS) {
            s->backoff = 1;
            return 1;
        }

        node = s->lingering.next;
        command = sbx_node_of(node, sbx_command_t, link);

        if (sbx_cgroup_command_remove(command->group, &e) == 1) {
            return 1;
        }

        sbx_list_remove(node);
        free(command);
    }

    return 0;
}


static void
sbx_session_gone(sbx_session_t *s)
{
    sbx_broker_t    *b;
    sbx_call_out_t  *call;

    b = s->broker;

    sbx_adopt_remove_dir(b, s->info.id);
    SBX_FAULT("broker-end-removed");

    sbx_call_forget(b, s);
    sbx_session_erase(s);
    sbx_ids_give(b, s);
    sbx_quota_give(s);
    sbx_admin_gone(b, s);

    while (!sbx_list_empty(&s->destroyers)) {
        call = sbx_node_of(s->destroyers.next, sbx_call_out_t, wait);
        sbx_list_remove(&call->wait);
        sbx_call_end(call, NULL);
    }

    SBX_FAULT("broker-end-answered");

    sbx_session_free(s);
    sbx_pool_gone(b);
    sbx_broker_session_gone(b);
}


/* Our copies and the keeper's, of what init holds the other end of. */

static void
sbx_session_hang_up(sbx_session_t *s)
{
    if (s->stored) {
        (void) sbx_broker_tell(s->broker, SBX_LINK_DROP, SBX_KEEP_SESSION, 0,
                               s, NULL);
        s->stored = 0;
    }

    sbx_event_del(&s->broker->loop, &s->control_event);

    if (s->control != -1) {
        sbx_discard(s->broker, s->control);
        s->control = -1;
    }

    if (s->disk == -1) {
        return;
    }

    /* an open file keeps the whole volume */

    if (s->info.enforcement.disk != SBX_BY_IMAGE) {
        (void) close(s->disk);
        s->disk = -1;
        return;
    }

    /* the last to let go of an image waits for its unmount: not init, on
       whose end a client waits */

    sbx_storage_forget(s->disk);
}


static void
sbx_session_unwatch(sbx_session_t *s)
{
    sbx_loop_t  *loop;

    loop = &s->broker->loop;

    sbx_session_hang_up(s);

    if (s->disk != -1) {
        sbx_discard(s->broker, s->disk);
        s->disk = -1;
    }

    sbx_event_del(loop, &s->status_event);
    sbx_event_del(loop, &s->pidfd_event);

    if (s->launched.status != -1) {
        (void) close(s->launched.status);
        s->launched.status = -1;
    }

    if (s->pidfd != -1) {
        (void) close(s->pidfd);
        s->pidfd = -1;
    }

    if (s->killer != -1) {
        (void) close(s->killer);
        s->killer = -1;
    }
}


/* Memory and descriptors; it is in no list any more, or never was. */

void
sbx_session_free(sbx_session_t *s)
{
    sbx_loop_t  *loop;

    loop = &s->broker->loop;

    sbx_session_unwatch(s);
    sbx_pool_let_go(s);
    sbx_timer_del(loop, &s->timer);
    sbx_timer_del(loop, &s->expiry);
    sbx_timer_del(loop, &s->groups);
    sbx_timer_del(loop, &s->queue);
    sbx_timer_del(loop, &s->held_timer);
    sbx_credit_close(s);
    sbx_idle_close(s);
    sbx_samples_close(s);
    sbx_freeze_close(s);
    sbx_way_close(s);
    sbx_ids_give(s->broker, s);
    sbx_quota_give(s);

    /* it was removed: its blocks are freed with the last descriptor of it */

    if (s->dir != -1) {
        sbx_discard(s->broker, s->dir);
    }

    if (s->cgroup != NULL) {
        sbx_cgroup_session_free(s->cgroup);
    }

    free(s->meta);
    sbx_loop_free(loop, s);
}
