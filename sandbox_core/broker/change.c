/*
 * What can be changed of a session that runs: its time, its metadata, what it
 * may reach, and whether it is paused.
 *
 * Changes of a session go one after the other.  Each is written to the record
 * first, as a whole, and becomes true in memory only when it is on the disk:
 * a broker that dies before that leaves the session as it was, and one that
 * dies after it has a successor that knows.  What cannot be written has not
 * happened.
 *
 * To pause, the group "work" is frozen: commands, what they left behind and
 * who serves files.  Init is not frozen, so it is told to stop its clocks.
 * The group is frozen before the record says so and thawed after it; a caller
 * is answered when both are done.  An adopted session's group is made to agree
 * with its record.  While the session is paused its expiry does not come
 * nearer: .left has what it will have.
 */

#include "broker.h"
#include "sandbox_fault.h"

#include <errno.h>
#include <stddef.h>
#include <string.h>


struct sbx_alter_s {
    sbx_node_t       link;
    sbx_node_t       caller;          /* the call, unless it has gone */
    uint16_t         op;
    sbx_patch_t      patch;
    char            *meta;
    char            *network;         /* rules */
    sbx_f_session_t  info;            /* what is being written */
    unsigned         held:1;          /* a RESUME, for calls that are held */
    unsigned         turns:1;         /* it was not so before */
    unsigned         made:1;          /* the namespace has a way out */
    unsigned         again:1;         /* it may have been done before */
};


static sbx_alter_t *sbx_change_make(sbx_session_t *s, uint16_t op,
    sbx_error_t *e);
static void sbx_change_free(sbx_session_t *s, sbx_alter_t *change);
static int sbx_change_patch(sbx_broker_t *b, sbx_alter_t *change,
    const sbx_patch_t *patch, int blob, sbx_error_t *e);
static int sbx_change_network(sbx_broker_t *b, const sbx_session_t *s,
    const sbx_alter_t *change, sbx_error_t *e);
static void sbx_change_next(sbx_session_t *s);
static int sbx_change_begin(sbx_session_t *s, sbx_alter_t *change,
    sbx_error_t *e);
static int sbx_change_settle(sbx_session_t *s, sbx_alter_t *change,
    int64_t now);
static uint64_t sbx_change_resumed(const sbx_session_t *s,
    const sbx_alter_t *change);
static int sbx_change_times(sbx_alter_t *change, int64_t now);
static void sbx_change_done(sbx_session_t *s, sbx_alter_t *change);
static void sbx_change_over(sbx_session_t *s, sbx_alter_t *change,
    const sbx_error_t *e);
static void sbx_change_apply(sbx_session_t *s, sbx_alter_t *change);
static void sbx_change_answer(sbx_session_t *s, sbx_alter_t *change,
    const sbx_error_t *e);
static void sbx_change_failed(sbx_session_t *s, sbx_alter_t *change,
    const sbx_error_t *e);
static void sbx_change_log(const sbx_session_t *s,
    const sbx_alter_t *change);


void
sbx_change_call(sbx_broker_t *b, sbx_call_out_t *call, const void *body,
    int blob)
{
    sbx_error_t     e;
    sbx_alter_t   *change;
    sbx_f_error_t   error;
    sbx_session_t  *s;

    s = sbx_session_of_call(b, &call->head);

    if (s == NULL) {
        sbx_call_session_error(b, &call->head, &error);
        sbx_call_fail(call, &error);
        return;
    }

    change = sbx_change_make(s, call->head.op, &e);

    if (change == NULL) {
        sbx_call_error(call, &e);
        return;
    }

    if (call->head.op != SBX_OP_PAUSE
        && (sbx_change_patch(b, change, body, blob, &e) != 0
            || sbx_change_network(b, s, change, &e) != 0))
    {
        sbx_change_free(s, change);
        sbx_call_error(call, &e);
        return;
    }

    change->again = (call->head.flags & SBX_CALL_AGAIN) != 0;
    memcpy(s->request, call->head.request_id, sizeof(s->request));
    sbx_call_wait(call, &change->caller);
    sbx_list_append(&s->changes, &change->link);
    sbx_change_next(s);
}


void
sbx_change_pause(sbx_session_t *s)
{
    sbx_error_t    e;
    sbx_alter_t  *change;

    change = sbx_change_make(s, SBX_OP_PAUSE, &e);

    if (change == NULL) {
        sbx_session_end(s, SBX_ENDED_EXPIRED, 0);
        return;
    }

    /* should another change go first that makes the time longer, it is
     * paused all the same: its time was over when this was decided */

    sbx_list_append(&s->changes, &change->link);
    sbx_change_next(s);
}


int
sbx_change_resume(sbx_session_t *s, sbx_error_t *e)
{
    sbx_alter_t  *change;

    change = sbx_change_make(s, SBX_OP_RESUME, e);

    if (change == NULL) {
        return -1;
    }

    change->held = 1;
    sbx_list_append(&s->changes, &change->link);
    sbx_change_next(s);

    return 0;
}


static sbx_alter_t *
sbx_change_make(sbx_session_t *s, uint16_t op, sbx_error_t *e)
{
    sbx_alter_t  *change;

    if (s->nchanges >= SBX_CHANGES_MAX) {
        (void) sbx_error(e, 0, SBX_E_UNAVAILABLE,
                         "the session has too many changes to be written");
        return NULL;
    }

    change = calloc(1, sizeof(sbx_alter_t));

    if (change == NULL) {
        (void) sbx_error(e, ENOMEM, SBX_E_UNAVAILABLE, "out of memory");
        return NULL;
    }

    sbx_list_init(&change->link);
    sbx_list_init(&change->caller);
    change->op = op;
    s->nchanges++;

    return change;
}


static void
sbx_change_free(sbx_session_t *s, sbx_alter_t *change)
{
    sbx_list_remove(&change->link);
    s->nchanges--;
    free(change->meta);
    free(change->network);
    free(change);
}


static int
sbx_change_patch(sbx_broker_t *b, sbx_alter_t *change,
    const sbx_patch_t *patch, int blob, sbx_error_t *e)
{
    size_t               size;
    uint32_t             known;
    sbx_limits_t         limits;
    sbx_auto_free char  *data = NULL;

    change->patch = *patch;
    known = SBX_PATCH_TIMEOUT|SBX_PATCH_EXTEND;

    if (change->op == SBX_OP_PATCH) {
        known |= SBX_PATCH_META|SBX_PATCH_NETWORK;
    }

    size = (size_t) patch->meta_size + patch->network_size;

    if ((patch->flags & ~known) != 0
        || (patch->flags & (SBX_PATCH_EXTEND|SBX_PATCH_TIMEOUT))
           == SBX_PATCH_EXTEND
        || (patch->meta_size != 0 && !(patch->flags & SBX_PATCH_META))
        || (!(patch->flags & SBX_PATCH_NETWORK)
            && (patch->network != 0 || patch->network_size != 0))
        || (size != 0) != (blob != -1)
        || ((patch->flags & SBX_PATCH_TIMEOUT)
            && patch->timeout == SBX_UNSET))
    {
        return sbx_error(e, 0, SBX_E_INVALID, "the patch is malformed");
    }

    if (patch->flags & SBX_PATCH_TIMEOUT) {
        sbx_limits_clear(&limits);
        limits.timeout = patch->timeout;

        if (sbx_limits_settle(&limits, &b->config.max, &b->config.max, e)
            != 0)
        {
            return -1;
        }
    }

    if (size == 0) {
        return 0;
    }

    if (patch->meta_size > SBX_META_MAX) {
        return sbx_error(e, 0, SBX_E_TOO_LARGE, "metadata is over %d bytes",
                         SBX_META_MAX);
    }

    if (patch->network_size > SBX_NETWORK_SIZE) {
        return sbx_error(e, 0, SBX_E_MANIFEST,
                         "/network: takes more than %d bytes",
                         SBX_NETWORK_SIZE);
    }

    return sbx_create_read(blob, size, &data, e) == 0
           && sbx_create_copy(data, patch->meta_size, &change->meta, e) == 0
           && sbx_create_copy(data + patch->meta_size, patch->network_size,
                              &change->network, e) == 0 ? 0 : -1;
}


static int
sbx_change_network(sbx_broker_t *b, const sbx_session_t *s,
    const sbx_alter_t *change, sbx_error_t *e)
{
    return (change->patch.flags & SBX_PATCH_NETWORK) == 0
           ? 0 : sbx_way_admit(b, s->info.template, change->patch.network,
                               change->network, change->patch.network_size,
                               "/network", e);
}


/* Begins the first, unless it has been begun. */

static void
sbx_change_next(sbx_session_t *s)
{
    sbx_error_t    e;
    sbx_alter_t  *change;

    while (s->job == NULL && !s->still.active && s->state == SBX_S_RUNNING
           && !sbx_list_empty(&s->changes))
    {
        change = sbx_node_of(s->changes.next, sbx_alter_t, link);

        switch (sbx_change_begin(s, change, &e)) {

        case 1:
            return;

        case 0:
            sbx_change_over(s, change, NULL);
            break;

        default:
            sbx_change_failed(s, change, &e);
            break;
        }
    }
}


static void
sbx_change_failed(sbx_session_t *s, sbx_alter_t *change,
    const sbx_error_t *e)
{
    uint16_t  op;

    op = change->op;

    if (change->made) {
        sbx_way_unmake(s);
    }

    sbx_log_error(SBX_LOG_ERROR,
                  &(sbx_log_about_t) { s->request, s->info.id }, e,
                  "session stays as it was");

    sbx_change_over(s, change, e);

    if (op != SBX_OP_PAUSE || s->info.status == SBX_STATUS_PAUSED) {
        return;
    }

    if (s->frozen) {
        (void) sbx_change_freeze(s, 0, NULL);
    }

    /* it was to be paused because its time is over: so it ends */

    if (s->info.expires <= sbx_broker_clock_ms()) {
        sbx_session_end(s, SBX_ENDED_EXPIRED, 0);
    }
}


/* 1: it is being written; 0: there is nothing to be changed. */

static int
sbx_change_begin(sbx_session_t *s, sbx_alter_t *change, sbx_error_t *e)
{
    const char  *meta, *network;

    if (!sbx_change_settle(s, change, sbx_broker_clock_ms())) {
        return 0;
    }

    if (change->op == SBX_OP_PAUSE
        && !s->broker->layers.row[SBX_LAYER_PAUSE].enforced)
    {
        return sbx_error(e, 0, SBX_E_MANIFEST,
                         "this machine cannot pause a session: %s",
                         s->broker->layers.row[SBX_LAYER_PAUSE].mend);
    }

    if (change->op == SBX_OP_PAUSE && sbx_change_freeze(s, 1, e) != 0) {
        return -1;
    }

    SBX_FAULT("broker-change-begun");

    if (s->info.network == SBX_NETWORK_NONE
        && change->info.network != SBX_NETWORK_NONE)
    {
        if (sbx_way_make(s, e) != 0) {
            return -1;
        }

        change->made = 1;
    }

    meta = (change->patch.flags & SBX_PATCH_META) ? change->meta : s->meta;
    network = (change->patch.flags & SBX_PATCH_NETWORK) ? change->network
                                                        : s->way.rules;
    s->job = sbx_change_record(s, &change->info, meta, network);

    if (s->job != NULL) {
        sbx_record_queue(&s->broker->writer, s->job);
        SBX_FAULT("broker-change-queued");
        return 1;
    }

    return sbx_error(e, errno, SBX_E_UNAVAILABLE,
                     "cannot write the session's record");
}


/*
 * The session as it will be; 0: as it is.  A PATCH counts from when its turn
 * has come.  One that is paused because its time was over has, once it is
 * resumed, the time that it was given last.
 */

static int
sbx_change_settle(sbx_session_t *s, sbx_alter_t *change, int64_t now)
{
    int               changed;
    sbx_f_session_t  *info;

    info = &change->info;
    *info = s->info;

    switch (change->op) {

    case SBX_OP_PAUSE:

        if (info->status == SBX_STATUS_PAUSED) {
            return 0;
        }

        change->turns = 1;
        info->status = SBX_STATUS_PAUSED;
        info->paused = now;
        info->left = info->expires > now ? (uint64_t) (info->expires - now)
                                         : info->limits.timeout;
        return 1;

    case SBX_OP_RESUME:

        /* one that stayed frozen, though it was to run, is tried again */

        change->turns = info->status == SBX_STATUS_PAUSED || s->frozen;

        if (info->status == SBX_STATUS_PAUSED) {
            info->expires = now + (int64_t) sbx_change_resumed(s, change);
            info->status = SBX_STATUS_RUNNING;
            info->paused = 0;
        }

        break;

    default:
        break;
    }

    changed = sbx_change_times(change, now);

    if (change->patch.flags & SBX_PATCH_META) {
        info->meta_size = change->patch.meta_size;
        changed = 1;
    }

    if (change->patch.flags & SBX_PATCH_NETWORK) {
        info->network = change->patch.network;
        info->network_size = change->patch.network_size;
        changed = 1;
    }

    return changed || change->turns;
}


/* What it has when it is resumed.  For somebody who has not asked for that
 * it would not be worth it to have it for a moment. */

static uint64_t
sbx_change_resumed(const sbx_session_t *s, const sbx_alter_t *change)
{
    uint64_t                least;
    const sbx_f_session_t  *info;

    info = &s->info;

    if (!change->held || info->expires > info->paused) {
        return info->left;
    }

    least = s->broker->config.max.timeout;
    least = least < SBX_RESUMED_LEAST ? least : SBX_RESUMED_LEAST;

    return info->left > least ? info->left : least;
}


static int
sbx_change_times(sbx_alter_t *change, int64_t now)
{
    int64_t              left;
    sbx_f_session_t     *info;
    const sbx_patch_t   *patch;

    info = &change->info;
    patch = &change->patch;

    if ((patch->flags & SBX_PATCH_TIMEOUT) == 0) {
        return 0;
    }

    left = info->status == SBX_STATUS_PAUSED ? (int64_t) info->left
                                             : info->expires - now;

    if ((patch->flags & SBX_PATCH_EXTEND) && left >= (int64_t) patch->timeout)
    {
        return 0;
    }

    info->limits.timeout = patch->timeout;
    info->left = patch->timeout;
    info->expires = now + (int64_t) patch->timeout;

    return 1;
}


void
sbx_change_written(sbx_session_t *s, int err)
{
    sbx_error_t    e;
    sbx_alter_t  *change;

    if (sbx_list_empty(&s->changes)) {
        return;
    }

    change = sbx_node_of(s->changes.next, sbx_alter_t, link);

    if (err != 0) {
        (void) sbx_error(&e, err, SBX_E_UNAVAILABLE,
                         "the session's record cannot be written");
        sbx_change_failed(s, change, &e);
        sbx_change_next(s);
        return;
    }

    SBX_FAULT("broker-change-written");

    if (change->op == SBX_OP_PAUSE && !sbx_freeze_await(s)) {
        return;
    }

    sbx_change_done(s, change);
}


void
sbx_change_frozen(sbx_session_t *s)
{
    if (s->state == SBX_S_RUNNING && !sbx_list_empty(&s->changes)) {
        sbx_change_done(s, sbx_node_of(s->changes.next, sbx_alter_t, link));
    }
}


static void
sbx_change_done(sbx_session_t *s, sbx_alter_t *change)
{
    sbx_change_apply(s, change);
    SBX_FAULT("broker-change-applied");
    sbx_change_over(s, change, NULL);
    SBX_FAULT("broker-change-answered");
    sbx_change_next(s);
}


/* Whoever waits for it is told; e NULL: it is done. */

static void
sbx_change_over(sbx_session_t *s, sbx_alter_t *change, const sbx_error_t *e)
{
    unsigned  held;

    held = change->held;

    sbx_change_answer(s, change, e);
    sbx_change_free(s, change);

    if (held) {
        sbx_resume_over(s, e);
    }
}


static void
sbx_change_apply(sbx_session_t *s, sbx_alter_t *change)
{
    uint32_t     before;
    sbx_error_t  e;

    before = s->info.network;
    s->info = change->info;

    if (change->patch.flags & SBX_PATCH_META) {
        free(s->meta);
        s->meta = change->meta;
        change->meta = NULL;
    }

    if (change->patch.flags & SBX_PATCH_NETWORK) {
        free(s->way.rules);
        s->way.rules = change->network;
        change->network = NULL;
        sbx_way_follow(s, before);
    }

    if (change->op == SBX_OP_RESUME && s->frozen
        && sbx_change_freeze(s, 0, &e) != 0)
    {
        sbx_log_error(SBX_LOG_ERROR,
                      &(sbx_log_about_t) { s->request, s->info.id }, &e,
                      "session stays frozen");
    }

    if (change->turns && s->info.status == SBX_STATUS_PAUSED) {
        sbx_samples_stop(s);

    } else if (change->turns) {
        sbx_samples_start(s);
    }

    sbx_change_clock(s);
    sbx_idle_touch(s);
    sbx_change_log(s, change);
}


static void
sbx_change_answer(sbx_session_t *s, sbx_alter_t *change,
    const sbx_error_t *e)
{
    sbx_f_end_t      end;
    sbx_call_out_t  *call;

    if (sbx_list_empty(&change->caller)) {
        return;
    }

    call = sbx_node_of(change->caller.next, sbx_call_out_t, wait);
    sbx_list_remove(&call->wait);

    if (e != NULL) {
        sbx_call_error(call, e);
        return;
    }

    memset(&end, 0, sizeof(sbx_f_end_t));
    end.count = change->turns || change->again;

    if (sbx_service_session(call, s, NULL) == 0) {
        sbx_call_end(call, &end);
    }
}


static void
sbx_change_log(const sbx_session_t *s, const sbx_alter_t *change)
{
    size_t    i;
    uint16_t  op;

    static const struct {
        uint16_t     op;
        const char  *text;
    } table[] = {
        { SBX_OP_PAUSE, "session is paused" },
        { SBX_OP_RESUME, "session is resumed" },
        { SBX_OP_PATCH, "session is changed" },
        { 0, "" }
    };

    op = change->turns ? change->op : SBX_OP_PATCH;

    for (i = 0; table[i].op != 0 && table[i].op != op; i++) {
        /* void */
    }

    sbx_log(SBX_LOG_INFO, &(sbx_log_about_t) { s->request, s->info.id }, 0,
            "%s", table[i].text);
}


void
sbx_change_drop(sbx_session_t *s)
{
    sbx_alter_t    *change;
    sbx_f_error_t    error;
    sbx_call_out_t  *call;

    sbx_freeze_close(s);
    sbx_resume_drop(s);

    while (!sbx_list_empty(&s->changes)) {
        change = sbx_node_of(s->changes.next, sbx_alter_t, link);

        if (!sbx_list_empty(&change->caller)) {
            call = sbx_node_of(change->caller.next, sbx_call_out_t, wait);
            sbx_list_remove(&call->wait);
            sbx_call_session_error(s->broker, &call->head, &error);
            sbx_call_fail(call, &error);
        }

        sbx_change_free(s, change);
    }
}


int
sbx_change_freeze(sbx_session_t *s, int frozen, sbx_error_t *e)
{
    sbx_error_t  ignored;

    if (e == NULL) {
        e = &ignored;
    }

    /* its clocks stop first and go on last: no time is counted in which
     * nothing could run */

    if (frozen) {
        sbx_command_tell(s, SBX_OP_FREEZE);
    }

    if (s->cgroup == NULL
        || sbx_cgroup_session_freeze(s->cgroup, frozen, e) != 0)
    {
        if (frozen) {
            sbx_command_tell(s, SBX_OP_THAW);
        }

        return -1;
    }

    if (!frozen) {
        sbx_command_tell(s, SBX_OP_THAW);
    }

    s->frozen = frozen != 0;

    return 0;
}


void
sbx_change_shift(sbx_node_t *node, int64_t by)
{
    sbx_clock_shift(&sbx_node_of(node, sbx_alter_t, link)->info, by);
}


void
sbx_change_clock(sbx_session_t *s)
{
    int64_t        at, left;
    sbx_loop_t    *loop;

    loop = &s->broker->loop;
    at = s->info.expires;

    if (s->info.status == SBX_STATUS_PAUSED) {
        at = s->info.paused + (int64_t) s->info.limits.paused;
    }

    left = at - sbx_broker_clock_ms();
    sbx_timer_set(loop, &s->expiry, left > 0 ? (uint64_t) left : 0);
}


/* The environment is init's alone once it has been launched. */

sbx_record_job_t *
sbx_change_record(sbx_session_t *s, const sbx_f_session_t *info,
    const char *meta, const char *network)
{
    sbx_record_job_t   *job;
    sbx_record_head_t   head;

    memset(&head, 0, sizeof(sbx_record_head_t));
    head.uid_first = s->uid_first;
    head.info = *info;
    memcpy(head.key, s->key, sizeof(head.key));
    memcpy(head.digest, s->digest, sizeof(head.digest));
    head.meta_size = info->meta_size;
    head.network_size = info->network_size;
    head.routed = s->way.routed;
    head.pooled = s->pooled;
    head.ahead = sbx_clock_ahead();

    job = sbx_record_job(&head, meta, NULL, network, s->dir);

    if (job != NULL) {
        job->session = s;
    }

    return job;
}
