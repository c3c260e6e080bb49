/*
 * A session's life.  The broker makes its groups and its directory, clones
 * its first process (isolate), and from then on only watches: the status
 * pipe until init has been exec'ed, the control socket for init's records,
 * the pidfd for its end.  Nothing here waits; each state has one timer.
 *
 *   CREATING -> RUNNING      init has said READY and the record is written
 *   RUNNING -> TERMINATING   its time is over: SIGTERM, two seconds
 *   * -> CUTTING             commands are killed, init cuts its downloads
 *   CUTTING -> DYING         init is killed
 *   DYING -> REMOVING        it has been reaped: nothing of it runs
 *   REMOVING -> gone         groups, files, ids; who waits is answered
 *
 * A session that fails at any point takes the same way out (session_end.c).
 * One that is made ahead (.pooled) is RUNNING while it is nobody's, in a list
 * of its own, and CREATING again while it is being given out: pool.c.
 */

#include "broker.h"
#include "packages.h"
#include "sandbox_fault.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>


#define SBX_SESSION_LAUNCH_WAIT   30000     /* ms, each */
#define SBX_SESSION_RECORDS       32        /* of one round */


static sbx_session_t **sbx_session_bucket(sbx_broker_t *b, const char *id);
static sbx_session_t *sbx_session_owned(sbx_broker_t *b,
    const sbx_call_t *head);
static void sbx_session_status(sbx_event_t *ev, uint32_t events);
static void sbx_session_control(sbx_event_t *ev, uint32_t events);
static int sbx_session_record(sbx_session_t *s, const sbx_record_t *record);
static int sbx_session_dead(const sbx_session_t *s);
static void sbx_session_pidfd(sbx_event_t *ev, uint32_t events);
static void sbx_session_timer(sbx_timer_t *timer);
static void sbx_session_expired(sbx_timer_t *timer);
static void sbx_session_settle(sbx_session_t *s);
static int sbx_session_store(sbx_session_t *s, sbx_error_t *e);
static int sbx_session_exited_of(const sbx_node_t *list, pid_t pid,
    int status);


sbx_session_t *
sbx_session_make(sbx_broker_t *b)
{
    sbx_session_t  *s;

    s = calloc(1, sizeof(sbx_session_t));

    if (s == NULL) {
        return NULL;
    }

    s->broker = b;
    s->state = SBX_S_CREATING;
    s->dir = -1;
    s->pidfd = -1;
    s->control = -1;
    s->disk = -1;
    s->killer = -1;
    s->launched.status = -1;
    s->launched.netns = -1;
    s->launched.kept[SBX_KEPT_MEMINFO] = -1;
    s->launched.kept[SBX_KEPT_MEMORY] = -1;
    s->number = 1;
    s->reserved = SBX_NUMBERS_STEP;

    sbx_list_init(&s->link);
    sbx_list_init(&s->running);
    sbx_list_init(&s->kernels);
    sbx_list_init(&s->inherited);
    sbx_list_init(&s->lingering);
    sbx_list_init(&s->tasks);
    sbx_list_init(&s->creators);
    sbx_list_init(&s->destroyers);
    sbx_list_init(&s->changes);
    sbx_list_init(&s->held);
    sbx_list_init(&s->pooling);
    s->grace = SBX_SESSION_TERM_WAIT;

    s->status_event.handler = sbx_session_status;
    s->status_event.data = s;
    s->control_event.handler = sbx_session_control;
    s->control_event.data = s;
    s->pidfd_event.handler = sbx_session_pidfd;
    s->pidfd_event.data = s;

    s->timer.handler = sbx_session_timer;
    s->timer.data = s;
    s->expiry.handler = sbx_session_expired;
    s->expiry.data = s;
    s->groups.handler = sbx_command_tick;
    s->groups.data = s;
    s->queue.handler = sbx_command_queue_tick;
    s->held_timer.data = s;
    s->held_timer.handler = sbx_resume_tick;
    s->queue.data = s;
    sbx_credit_open(s);
    sbx_freeze_open(s);
    sbx_idle_open(s);
    sbx_samples_open(s);
    sbx_way_open(s);

    return s;
}


static sbx_session_t **
sbx_session_bucket(sbx_broker_t *b, const char *id)
{
    return &b->buckets[sbx_record_sum(id, strlen(id), 0)
                       % SBX_SESSION_BUCKETS];
}


void
sbx_session_insert(sbx_session_t *s)
{
    sbx_broker_t    *b;
    sbx_session_t  **bucket;

    b = s->broker;
    bucket = sbx_session_bucket(b, s->info.id);

    s->next_id = *bucket;
    *bucket = s;
    sbx_list_append(s->pooled ? &b->pools.sessions : &b->sessions, &s->link);
    b->nsessions++;
}


void
sbx_session_erase(sbx_session_t *s)
{
    sbx_broker_t    *b;
    sbx_session_t  **at;

    b = s->broker;

    for (at = sbx_session_bucket(b, s->info.id); *at != NULL;
         at = &(*at)->next_id)
    {
        if (*at == s) {
            *at = s->next_id;
            break;
        }
    }

    sbx_list_remove(&s->link);
    b->nsessions--;
}


void
sbx_session_order(sbx_session_t *s)
{
    sbx_node_t    *node;
    sbx_broker_t  *b;

    b = s->broker;

    sbx_list_remove(&s->link);

    for (node = b->sessions.prev; node != &b->sessions; node = node->prev) {
        if (sbx_node_of(node, sbx_session_t, link)->info.seq < s->info.seq) {
            break;
        }
    }

    sbx_list_append(node->next, &s->link);
}


sbx_session_t *
sbx_session_find(sbx_broker_t *b, const char *id)
{
    sbx_session_t  *s;

    for (s = *sbx_session_bucket(b, id); s != NULL; s = s->next_id) {
        if (strcmp(s->info.id, id) == 0) {
            return s;
        }
    }

    return NULL;
}


/* A DESTROY also finds one that is ending, to wait for its end. */

static sbx_session_t *
sbx_session_owned(sbx_broker_t *b, const sbx_call_t *head)
{
    sbx_session_t  *s;

    s = sbx_session_find(b, head->session);

    if (s == NULL || s->pooled || s->state == SBX_S_CREATING
        || (s->state != SBX_S_RUNNING && head->op != SBX_OP_DESTROY
            && head->op != SBX_OP_END)
        || (head->tenant[0] && strcmp(head->tenant, s->info.tenant) != 0)
        || (head->user[0] && strcmp(head->user, s->info.user) != 0))
    {
        return NULL;
    }

    return s;
}


static int
sbx_session_bars(const sbx_session_t *s, const sbx_call_t *head)
{
    return (s->info.flags & head->needs) != head->needs
           || (s->info.flags & head->bars) != 0;
}


sbx_session_t *
sbx_session_of_call(sbx_broker_t *b, const sbx_call_t *head)
{
    sbx_session_t  *s;

    s = sbx_session_owned(b, head);

    if (s == NULL || sbx_session_bars(s, head)) {
        return NULL;
    }

    sbx_session_told(s);
    sbx_idle_touch(s);

    return s;
}


int
sbx_session_barred(sbx_broker_t *b, const sbx_call_t *head)
{
    sbx_session_t  *s;

    s = sbx_session_owned(b, head);

    return s != NULL && sbx_session_bars(s, head);
}


int
sbx_session_launch(sbx_session_t *s, const char *env, size_t env_size,
    const char *rules, size_t rules_size, sbx_error_t *e)
{
    int                  bytes, rc;
    char                 dir[SBX_PATH_MAX];
    size_t               trust_size;
    sbx_launch_t         launch;
    sbx_broker_t        *b;
    sbx_auto_free char  *trust = NULL;
    sbx_packages_own_t   own = { NULL, NULL };

    b = s->broker;

    if (sbx_way_page(s, e) != 0
        || sbx_outlet_trust(b, s->info.template, &trust, &trust_size, e) != 0)
    {
        return -1;
    }

    (void) snprintf(dir, sizeof(dir), "%s/sessions/%s",
                    b->options->state_dir, s->info.id);

    memset(&launch, 0, sizeof(sbx_launch_t));
    launch.id = s->info.id;
    launch.state_dir = b->options->state_dir;
    launch.session_dir = dir;
    launch.template = sbx_create_root(b, s->info.template);
    launch.template_dir = b->config.template_dir;
    launch.host_name = "sandbox";
    launch.uid_first = s->uid_first;
    launch.limits = s->info.limits;
    launch.capabilities = s->info.capabilities;
    launch.cgroup = s->cgroup;
    launch.init_exe = b->init_exe;
    launch.env = env;
    launch.env_size = env_size;
    launch.tenant = s->info.tenant;
    launch.rules = rules;
    launch.rules_size = rules_size;
    launch.binds = b->config.binds;
    launch.binds_size = b->config.binds_size;
    launch.filter = b->filter;
    launch.filter_size = b->filter_size;
    launch.files_filter = b->files_filter;
    launch.files_filter_size = b->files_filter_size;
    launch.init_filter = b->init_filter;
    launch.init_filter_size = b->init_filter_size;
    launch.flags = SBX_LAUNCH_OWN_ACCOUNT;
    launch.create_flags = s->info.flags;
    launch.network = s->info.network;
    launch.trust = trust;
    launch.trust_size = trust_size;
    launch.storage = b->storage;

    if (b->languages != NULL && b->languages->size != 0) {
        launch.kernels = b->languages->dir;
        launch.languages = b->languages->table;
        launch.languages_size = b->languages->size;
    }

    if (sbx_layers_weak(&b->layers) & SBX_LAYER_BIT(SBX_LAYER_CGROUP_NS)) {
        launch.flags |= SBX_LAUNCH_CGROUPS_SEEN;
    }

    launch.disk = &s->disk;

    if (s->pooled) {
        launch.flags |= SBX_LAUNCH_AHEAD;

    } else {
        sbx_credit_begin(s);
    }

    rc = sbx_packages_launch(b, sbx_create_means(b, s->info.template),
                             &launch, &own, e);

    if (rc == 0) {
        rc = sbx_launch_start(&launch, &s->launched, e);
    }

    sbx_packages_own_free(&own);

    if (rc != 0) {
        s->launched.status = -1;
        s->launched.netns = -1;
        return -1;
    }

    s->pid = s->launched.pid;
    s->pidfd = s->launched.pidfd;
    s->control = s->launched.control;
    bytes = SBX_TASKS_BYTES;
    (void) setsockopt(s->control, SOL_SOCKET, SO_SNDBUF, &bytes,
                      sizeof(bytes));

    if (sbx_event_add(&b->loop, &s->status_event, s->launched.status,
                      EPOLLIN)
        == -1)
    {
        return sbx_error(e, errno, SBX_E_INTERNAL, "epoll_ctl() failed");
    }

    sbx_timer_set(&b->loop, &s->timer, SBX_SESSION_LAUNCH_WAIT);

    return sbx_session_watch(s, e);
}


/* Its end first: that of one whose socket cannot be watched is seen, too. */

int
sbx_session_watch(sbx_session_t *s, sbx_error_t *e)
{
    if (sbx_event_add(&s->broker->loop, &s->pidfd_event, s->pidfd, EPOLLIN)
        == -1
        || sbx_event_add(&s->broker->loop, &s->control_event, s->control,
                         EPOLLIN) == -1)
    {
        return sbx_error(e, errno, SBX_E_INTERNAL, "epoll_ctl() failed");
    }

    return 0;
}


void
sbx_session_log(sbx_session_t *s, sbx_log_level_t level, int err,
    const char *text)
{
    sbx_log(level, &(sbx_log_about_t) { s->request, s->info.id }, err, "%s",
            text);
}


static void
sbx_session_status(sbx_event_t *ev, uint32_t events)
{
    int             rc;
    sbx_session_t  *s;

    (void) events;

    s = ev->data;
    rc = sbx_launch_event(&s->launched, &s->error);

    if (rc == 0) {
        return;
    }

    sbx_event_del(&s->broker->loop, ev);

    if (s->launched.status != -1) {
        (void) close(s->launched.status);
        s->launched.status = -1;
    }

    SBX_FAULT("broker-create-executed");

    if (rc == -1) {
        sbx_session_log(s, s->error.code == SBX_E_MANIFEST ? SBX_LOG_INFO
                                                           : SBX_LOG_ERROR,
                        s->error.err, s->error.text);
        sbx_session_end(s, SBX_ENDED_NODE_RESTART, 1);
    }
}


/*
 * Init serves a session's hostile processes and may have become one of them:
 * what it says is taken only whole and in its place.
 */

static void
sbx_session_control(sbx_event_t *ev, uint32_t events)
{
    int             fds[SBX_WIRE_FDS_ALL];
    unsigned        i, nfds;
    ssize_t         n;
    sbx_record_t    record;
    sbx_session_t  *s;

    s = ev->data;

    if (events & EPOLLOUT) {
        sbx_command_flush(s);
    }

    for (i = 0; i < SBX_SESSION_RECORDS && ev->active; i++) {
        n = sbx_command_socket_recv(s, &record, fds, &nfds);

        if (n == -1 && errno == EAGAIN) {
            return;
        }

        /* also of an empty datagram, which reads like an end */

        sbx_discard_all(s->broker, fds, nfds);

        if (n == 0 || (n == -1 && errno == ECONNRESET)) {
            sbx_session_lost(s, "init closed its control socket");
            return;
        }

        if (n != sizeof(sbx_record_t) || nfds != 0
            || record.magic != SBX_WIRE_MAGIC
            || sbx_session_record(s, &record) != 0)
        {
            sbx_session_lost(s, "init sent nonsense");
            return;
        }

        if (record.type == SBX_R_GROUP) {

            /* that is much work, and others come first */

            return;
        }
    }
}


/* Who was answered by init may say something of it first. */

void
sbx_session_hear(sbx_session_t *s)
{
    if (s->control_event.active) {
        sbx_session_control(&s->control_event, EPOLLIN);
    }
}


static int
sbx_session_record(sbx_session_t *s, const sbx_record_t *record)
{
    int  known;

    switch (record->type) {

    case SBX_R_READY:
        if (s->ready) {
            return -1;
        }

        s->ready = 1;
        SBX_FAULT("broker-create-ready");
        sbx_session_settle(s);
        return 0;

    case SBX_R_COMMAND_OVER:
        known = sbx_command_over(s, record->command);

        /* of a session that ends they were counted when it began to */

        if (known == 1) {
            sbx_metrics_command(s, record->reason, record->cpu_us);
        }

        if (known == 2) {
            sbx_pool_cold(s);
        }

        return 0;

    case SBX_R_REAPED:
        sbx_command_reaped(s);
        return 0;

    case SBX_R_GROUP:
        sbx_command_group(s, record->command);
        return 0;

    case SBX_R_BUSY:
        sbx_idle_busy(s, record->command);
        return 0;

    case SBX_R_WARM:
        return sbx_pool_warmed(s, record);

    case SBX_R_HELD:
    case SBX_R_HELD_ALL:
        sbx_command_held(s, record);
        return 0;

    case SBX_R_CUT:
        if (s->state == SBX_S_CUTTING) {
            sbx_session_kill(s);
        }

        return 0;
    }

    return -1;
}


void
sbx_session_lost(sbx_session_t *s, const char *why)
{
    sbx_event_del(&s->broker->loop, &s->control_event);

    /* its last words may still lie in the status socket */

    if (s->state == SBX_S_CREATING && s->launched.status != -1) {
        sbx_session_status(&s->status_event, EPOLLIN);
    }

    if (s->state == SBX_S_CREATING || s->state == SBX_S_RUNNING) {
        sbx_session_log(s, SBX_LOG_WARN, 0, why);

        if (s->error.code == SBX_OK) {
            (void) sbx_error(&s->error, 0, SBX_E_UNAVAILABLE,
                             "the session ended at its start: %s", why);
        }
    }

    /* whoever serves no more is of no use; its processes are not spared */

    sbx_session_end(s, SBX_ENDED_NODE_RESTART, 1);

    if (s->state == SBX_S_CUTTING) {
        sbx_session_kill(s);
    }
}


static int
sbx_session_dead(const sbx_session_t *s)
{
    struct pollfd  pfd = { s->pidfd, POLLIN, 0 };

    return poll(&pfd, 1, 0) == 1 && (pfd.revents & POLLIN);
}


static void
sbx_session_pidfd(sbx_event_t *ev, uint32_t events)
{
    sbx_session_t  *s;

    (void) events;

    s = ev->data;
    s->watched = 1;
    sbx_event_del(&s->broker->loop, ev);

    if (s->state == SBX_S_DYING) {
        sbx_session_dying(s);
        return;
    }

    if (s->state < SBX_S_DYING) {
        sbx_session_lost(s, "init has died");
    }
}


/* The keeper has reaped a process. */

void
sbx_session_exited(sbx_broker_t *b, pid_t pid, int status)
{
    if (!sbx_session_exited_of(&b->sessions, pid, status)) {
        (void) sbx_session_exited_of(&b->pools.sessions, pid, status);
    }
}


static int
sbx_session_exited_of(const sbx_node_t *list, pid_t pid, int status)
{
    sbx_node_t     *node;
    sbx_session_t  *s;

    for (node = list->next; node != list; node = node->next) {
        s = sbx_node_of(node, sbx_session_t, link);

        if (s->pid == pid && !s->exited && !s->orphan) {
            s->exited = 1;
            s->status = status;

            if (s->state == SBX_S_DYING) {
                sbx_session_dying(s);

            } else if (s->state < SBX_S_DYING) {
                sbx_session_lost(s, "init has died");
            }

            return 1;
        }
    }

    return 0;
}


/* The record has been written, or not. */

void
sbx_session_recorded(sbx_session_t *s, int err)
{
    s->job = NULL;

    if (s->state == SBX_S_REMOVING) {
        sbx_session_remove(s);
        return;
    }

    if (s->state == SBX_S_RUNNING) {
        sbx_change_written(s, err);
        return;
    }

    if (s->state != SBX_S_CREATING) {
        return;
    }

    if (err != 0) {
        (void) sbx_error(&s->error, err, SBX_E_UNAVAILABLE,
                         "the session's record cannot be written");
        sbx_session_log(s, SBX_LOG_ERROR, err, s->error.text);
        sbx_session_end(s, SBX_ENDED_NODE_RESTART, 1);
        return;
    }

    s->recorded = 1;
    SBX_FAULT("broker-create-recorded");
    sbx_session_settle(s);
}


static void
sbx_session_settle(sbx_session_t *s)
{
    if (s->state != SBX_S_CREATING || !s->ready || !s->recorded) {
        return;
    }

    if (s->pooled) {
        sbx_pool_started(s);
        return;
    }

    if (sbx_list_empty(&s->creators)) {
        /* nobody waits for it, and nobody else knows its name */
        sbx_session_end(s, SBX_ENDED_DESTROYED, 1);
        return;
    }

    /* by its key it is found again, and one that is tied goes with its call */

    s->secret = !s->keyed && (s->info.flags & SBX_CREATE_TIED) == 0;

    if ((s->info.network != SBX_NETWORK_NONE
         && sbx_way_make(s, &s->error) != 0)
        || sbx_session_store(s, &s->error) != 0)
    {
        sbx_session_log(s, SBX_LOG_ERROR, s->error.err, s->error.text);
        sbx_session_end(s, SBX_ENDED_NODE_RESTART, 1);
        return;
    }

    SBX_FAULT("broker-create-routed");
    sbx_session_run(s);
    sbx_way_follow(s, SBX_NETWORK_NONE);
    sbx_session_log(s, SBX_LOG_INFO, 0, "session created");
    sbx_create_answer(s);
}


void
sbx_session_fds(const sbx_session_t *s, int fds[SBX_LINK_FDS])
{
    fds[0] = s->control;
    fds[1] = s->pidfd;
    fds[2] = s->disk;
    fds[3] = s->launched.netns;
    fds[4] = s->way.traffic;
    fds[5] = s->killer;
}


/* From now on it outlives this broker. */

static int
sbx_session_store(sbx_session_t *s, sbx_error_t *e)
{
    int  fds[SBX_LINK_FDS];

    sbx_session_fds(s, fds);

    if (sbx_broker_tell(s->broker, SBX_LINK_STORE, SBX_KEEP_SESSION,
                        s->uid_first, s, fds)
        != 0)
    {
        return sbx_error(e, errno, SBX_E_UNAVAILABLE,
                         "the session cannot be kept");
    }

    s->stored = 1;
    SBX_FAULT("broker-create-stored");

    return 0;
}


void
sbx_session_run(sbx_session_t *s)
{
    sbx_broker_t  *b;

    b = s->broker;
    s->state = SBX_S_RUNNING;
    b->nrunning++;

    sbx_timer_del(&b->loop, &s->timer);
    sbx_change_clock(s);
    sbx_idle_start(s);
    sbx_samples_start(s);
    sbx_timer_set(&b->loop, &s->groups, 0);
}


/* Before the name is on its way: a broker that dies then leaves a session that
 * stays, not one that its maker is told of and that ends. */

void
sbx_session_told(sbx_session_t *s)
{
    if (!s->secret) {
        return;
    }

    s->secret = 0;

    if (s->state == SBX_S_RUNNING) {
        sbx_timer_del(&s->broker->loop, &s->timer);
    }

    (void) sbx_broker_tell(s->broker, SBX_LINK_TOLD, SBX_KEEP_SESSION, 0, s,
                           NULL);
}


static void
sbx_session_expired(sbx_timer_t *timer)
{
    sbx_session_t  *s;

    s = timer->data;

    if ((s->info.flags & SBX_CREATE_ON_TIMEOUT_PAUSE)
        && s->info.status == SBX_STATUS_RUNNING)
    {
        sbx_change_pause(s);
        return;
    }

    sbx_session_end(s, SBX_ENDED_EXPIRED, 0);
}


static void
sbx_session_timer(sbx_timer_t *timer)
{
    sbx_session_t  *s;

    s = timer->data;

    switch (s->state) {

    case SBX_S_CREATING:
        (void) sbx_error(&s->error, 0, SBX_E_UNAVAILABLE,
                         "the session did not start in time");
        sbx_session_log(s, SBX_LOG_ERROR, 0, s->error.text);
        sbx_session_end(s, SBX_ENDED_NODE_RESTART, 1);
        break;

    case SBX_S_RUNNING:
        if (s->secret) {
            sbx_session_end(s, SBX_ENDED_DESTROYED, 1);
            break;
        }

        sbx_pool_late(s);
        break;

    case SBX_S_TERMINATING:
        sbx_session_cut(s);
        break;

    case SBX_S_CUTTING:
        sbx_session_kill(s);
        break;

    case SBX_S_DYING:
        if (!s->watched && sbx_session_dead(s)) {
            /* it could not be watched */
            sbx_session_pidfd(&s->pidfd_event, EPOLLIN);
            break;
        }

        if (s->watched) {
            /* dead, though its parent has not told */
            s->exited = 1;
            sbx_session_dying(s);
            break;
        }

        sbx_session_log(s, SBX_LOG_WARN, 0, "init does not die");
        sbx_session_kill(s);
        break;

    case SBX_S_REMOVING:
        sbx_session_remove(s);
        break;
    }
}
