/*
 * The process: started by the broker (see isolate/net_egress.c), told by it
 * over one socket which sessions there are and what they may reach, and gone
 * when nobody has the other end of it.
 *
 * A task is taken whole or not at all: what is none is dropped with its
 * descriptors and leaves everything as it was; a session of which one cannot
 * be done has no way out any more.
 */

#include "conn.h"
#include "sandbox_fault.h"
#include "wire.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>


#define SBX_EGRESS_TASKS     64        /* of one round */
#define SBX_EGRESS_TASK_MAX  (sizeof(sbx_egress_task_t) + SBX_NETWORK_SIZE)


/* A task and what came with it. */
typedef struct {
    sbx_egress_task_t   task;
    const uint8_t      *rules;
    int                 fds[SBX_WIRE_FDS_ALL];
    unsigned            nfds;
} sbx_egress_call_t;


static int sbx_egress_open(sbx_egress_t *eg, int ca, int cert,
    sbx_error_t *e);
static int sbx_egress_ready(sbx_egress_t *eg, sbx_error_t *e);
static void sbx_egress_close(sbx_egress_t *eg);
static void sbx_egress_control(sbx_event_t *ev, uint32_t events);
static int sbx_egress_receive(sbx_egress_t *eg, sbx_egress_call_t *call);
static int sbx_egress_check(const sbx_egress_task_t *task, size_t n,
    sbx_error_t *e);
static void sbx_egress_configure(sbx_egress_t *eg, sbx_egress_call_t *call);
static void sbx_egress_here(const sbx_egress_t *eg);
static void sbx_egress_say(sbx_egress_t *eg);
static int sbx_egress_grant(sbx_egress_t *eg, sbx_egress_call_t *call,
    sbx_error_t *e);
static sbx_eg_session_t *sbx_egress_session_new(sbx_egress_t *eg,
    const sbx_egress_task_t *task, sbx_error_t *e);
static int sbx_egress_sockets(const sbx_egress_call_t *call, sbx_error_t *e);
static int sbx_egress_socket(int fd, int domain, int type, sbx_error_t *e);
static sbx_traffic_t *sbx_egress_traffic(int fd, sbx_error_t *e);
static int sbx_egress_change(sbx_eg_session_t *s,
    const sbx_egress_call_t *call, sbx_error_t *e);
static void sbx_egress_revoke(sbx_eg_session_t *s);
static void sbx_egress_unlisten(sbx_eg_session_t *s);
static unsigned sbx_egress_bucket(const char *id);


int
sbx_egress_run(int control, int ca, int cert, int (*confine)(sbx_error_t *e))
{
    int            rc;
    sbx_error_t    e;
    sbx_egress_t  *eg;

    eg = calloc(1, sizeof(sbx_egress_t));

    if (eg == NULL) {
        return 1;
    }

    eg->control = control;
    memset(&e, 0, sizeof(e));

    (void) signal(SIGPIPE, SIG_IGN);

    rc = sbx_egress_open(eg, ca, cert, &e);

    if (rc == 0 && confine != NULL) {
        rc = confine(&e);
    }

    if (rc == 0) {
        SBX_FAULT("egress-start-confined");
        rc = sbx_egress_ready(eg, &e);
        SBX_FAULT("egress-start-ready");
    }

    if (rc == 0) {
        rc = sbx_loop_run(&eg->loop, &e);
    }

    if (rc != 0) {
        (void) dprintf(STDERR_FILENO, "sandbox-egress: %s%s%s\n", e.text,
                       e.err != 0 ? ": " : "",
                       e.err != 0 ? strerror(e.err) : "");
    }

    sbx_egress_close(eg);

    return rc == 0 ? 0 : 1;
}


static int
sbx_egress_open(sbx_egress_t *eg, int ca, int cert, sbx_error_t *e)
{
    int  flags;

    if (sbx_loop_init(&eg->loop, e) != 0) {
        return -1;
    }

    flags = fcntl(eg->control, F_GETFL);

    if (flags == -1
        || fcntl(eg->control, F_SETFL, flags | O_NONBLOCK) == -1)
    {
        return sbx_error(e, errno, SBX_E_INTERNAL, "fcntl() failed");
    }

    sbx_eg_cost_open(eg);

    if (sbx_eg_relay_open(eg, e) != 0 || sbx_eg_addresses_open(eg, e) != 0
        || sbx_eg_tls_open(eg, ca, cert, e) != 0
        || sbx_eg_dns_open(eg, e) != 0)
    {
        return -1;
    }

    /* the file of the key is nobody's to write to from here on */

    (void) close(ca);
    (void) close(cert);

    eg->control_event.handler = sbx_egress_control;
    eg->control_event.data = eg;

    if (sbx_event_add(&eg->loop, &eg->control_event, eg->control, EPOLLIN)
        != 0)
    {
        return sbx_error(e, errno, SBX_E_INTERNAL, "epoll_ctl() failed");
    }

    return 0;
}


static int
sbx_egress_ready(sbx_egress_t *eg, sbx_error_t *e)
{
    sbx_egress_record_t  record;

    memset(&record, 0, sizeof(record));
    record.magic = SBX_EGRESS_MAGIC;
    record.type = SBX_EGRESS_READY;

    if (send(eg->control, &record, sizeof(record), MSG_NOSIGNAL)
        != (ssize_t) sizeof(record))
    {
        return sbx_error(e, errno, SBX_E_INTERNAL, "send() failed");
    }

    return 0;
}


static void
sbx_egress_close(sbx_egress_t *eg)
{
    size_t    i;
    unsigned  bucket;

    for (bucket = 0; bucket < SBX_EG_BUCKETS; bucket++) {
        while (eg->buckets[bucket] != NULL) {
            sbx_egress_revoke(eg->buckets[bucket]);
        }
    }

    for (i = 0; i < eg->npolicies; i++) {
        sbx_eg_policy_release(eg->policies[i]);
    }

    free(eg->policies);

    sbx_eg_dns_close(eg);
    sbx_eg_tls_close(eg);
    sbx_eg_addresses_close(eg);
    sbx_eg_relay_close(eg);
    sbx_eg_cost_close(eg);
    sbx_event_del(&eg->loop, &eg->control_event);
    sbx_loop_done(&eg->loop);
    free(eg);
}


static void
sbx_egress_control(sbx_event_t *ev, uint32_t events)
{
    int                rc;
    unsigned           i;
    sbx_error_t        e;
    sbx_egress_t      *eg;
    sbx_eg_session_t  *s;
    sbx_egress_call_t  call;

    eg = ev->data;

    if (events & EPOLLOUT) {
        sbx_egress_say(eg);
    }

    for (i = 0; i < SBX_EGRESS_TASKS; i++) {
        rc = sbx_egress_receive(eg, &call);

        if (rc == -1) {
            return;
        }

        if (rc == 0) {
            continue;
        }

        memset(&e, 0, sizeof(e));
        rc = 0;
        s = sbx_eg_session_find(eg, call.task.session);

        switch ((sbx_egress_op_t) call.task.op) {

        case SBX_EGRESS_CONFIG:
            sbx_egress_configure(eg, &call);
            SBX_FAULT("egress-config-taken");
            break;

        case SBX_EGRESS_GRANT:
            SBX_FAULT("egress-grant-told");
            rc = sbx_egress_grant(eg, &call, &e);
            SBX_FAULT("egress-grant-taken");
            break;

        case SBX_EGRESS_CHANGE:
            rc = s == NULL ? 0 : sbx_egress_change(s, &call, &e);
            break;

        case SBX_EGRESS_REVOKE:
            if (s != NULL) {
                sbx_egress_revoke(s);
            }

            SBX_FAULT("egress-revoke-revoked");
            break;

        case SBX_EGRESS_ASK:
            sbx_egress_here(eg);
            break;
        }

        if (rc != 0) {
            (void) dprintf(STDERR_FILENO, "sandbox-egress: a task of session "
                           "\"%s\" is not done: %s\n", call.task.session,
                           e.text);

            /* what it had before may be more than it is to have now */

            s = sbx_eg_session_find(eg, call.task.session);

            if (s != NULL) {
                sbx_egress_revoke(s);
            }
        }

        while (call.nfds > 0) {
            call.nfds--;

            if (call.fds[call.nfds] != -1) {
                (void) close(call.fds[call.nfds]);
            }
        }
    }
}


/* 1: a task; 0: none that can be read; -1: nothing now, or the end. */

static int
sbx_egress_receive(sbx_egress_t *eg, sbx_egress_call_t *call)
{
    ssize_t                n;
    unsigned               i;
    sbx_error_t            e;

    static uint8_t         buf[SBX_EGRESS_TASK_MAX];

    n = sbx_wire_recv_all(eg->control, buf, sizeof(buf), call->fds,
                          &call->nfds, MSG_DONTWAIT);

    if (n == -1 && errno == EAGAIN && call->nfds == 0) {
        return -1;
    }

    if (n == 0 || (n == -1 && errno != EINTR && errno != EAGAIN
                   && errno != EMSGSIZE))
    {
        sbx_loop_stop(&eg->loop);
    }

    memset(&e, 0, sizeof(e));

    if (n > 0) {
        memset(&call->task, 0, sizeof(call->task));
        memcpy(&call->task, buf, (size_t) n < sizeof(call->task)
                                 ? (size_t) n : sizeof(call->task));
        call->rules = buf + sizeof(call->task);

        if (sbx_egress_check(&call->task, (size_t) n, &e) == 0) {
            return 1;
        }

        (void) dprintf(STDERR_FILENO, "sandbox-egress: a task is dropped: "
                       "%s\n", e.text);
    }

    for (i = 0; i < call->nfds; i++) {
        (void) close(call->fds[i]);
    }

    return eg->loop.stop ? -1 : 0;
}


static int
sbx_egress_check(const sbx_egress_task_t *task, size_t n, sbx_error_t *e)
{
    size_t  size;

    if (n < sizeof(sbx_egress_task_t) || task->magic != SBX_EGRESS_MAGIC
        || task->version != SBX_WIRE_VERSION)
    {
        return sbx_error(e, 0, SBX_E_INVALID, "it is no task of this "
                         "version");
    }

    if (task->op < SBX_EGRESS_CONFIG || task->op > SBX_EGRESS_ASK) {
        return sbx_error(e, 0, SBX_E_INVALID, "its kind is unknown");
    }

    size = task->op == SBX_EGRESS_GRANT || task->op == SBX_EGRESS_CHANGE
           ? task->size : 0;

    if (n - sizeof(sbx_egress_task_t) != size) {
        return sbx_error(e, 0, SBX_E_INVALID, "its size is wrong");
    }

    if (memchr(task->template, '\0', sizeof(task->template)) == NULL
        || memchr(task->session, '\0', sizeof(task->session)) == NULL)
    {
        return sbx_error(e, 0, SBX_E_INVALID, "a name in it has no end");
    }

    if (task->op != SBX_EGRESS_CONFIG && task->op != SBX_EGRESS_ASK
        && !sbx_session_id_ok(task->session, strlen(task->session)))
    {
        return sbx_error(e, 0, SBX_E_INVALID, "it is of no session");
    }

    if ((task->op == SBX_EGRESS_GRANT || task->op == SBX_EGRESS_CHANGE)
        && task->mode > SBX_NETWORK_LISTS)
    {
        return sbx_error(e, 0, SBX_E_INVALID, "its mode is unknown");
    }

    return 0;
}


static void
sbx_egress_configure(sbx_egress_t *eg, sbx_egress_call_t *call)
{
    int                   rc;
    sbx_error_t           e;
    sbx_egress_record_t  *record;

    record = &eg->configured;
    memset(record, 0, sizeof(*record));
    memset(&e, 0, sizeof(e));

    rc = sbx_eg_config(eg, &call->task, call->fds, call->nfds, record->name,
                       &e);

    if (rc != 0) {
        (void) dprintf(STDERR_FILENO, "sandbox-egress: the configuration is "
                       "not taken: %s\n", e.text);
        record->err = e.err != 0 ? (uint32_t) e.err : EINVAL;

    } else {
        record->name[0] = '\0';
    }

    record->magic = SBX_EGRESS_MAGIC;
    record->type = SBX_EGRESS_CONFIGURED;
    sbx_egress_say(eg);
}


/* Where there is no room for it, there is something for the broker to read. */

static void
sbx_egress_here(const sbx_egress_t *eg)
{
    sbx_egress_record_t  record;

    memset(&record, 0, sizeof(record));
    record.magic = SBX_EGRESS_MAGIC;
    record.type = SBX_EGRESS_HERE;

    (void) !send(eg->control, &record, sizeof(record),
                 MSG_DONTWAIT|MSG_NOSIGNAL);
}


/* An answer is not lost where a refusal may be. */

static void
sbx_egress_say(sbx_egress_t *eg)
{
    ssize_t  n;

    if (eg->configured.magic == 0) {
        sbx_event_set(&eg->loop, &eg->control_event, EPOLLIN);
        return;
    }

    n = send(eg->control, &eg->configured, sizeof(eg->configured),
             MSG_DONTWAIT|MSG_NOSIGNAL);

    if (n == -1 && (errno == EAGAIN || errno == EINTR || errno == ENOBUFS)) {
        sbx_event_set(&eg->loop, &eg->control_event, EPOLLIN|EPOLLOUT);
        return;
    }

    eg->configured.magic = 0;
    sbx_event_set(&eg->loop, &eg->control_event, EPOLLIN);
}


static int
sbx_egress_grant(sbx_egress_t *eg, sbx_egress_call_t *call, sbx_error_t *e)
{
    unsigned            i, n;
    sbx_traffic_t      *traffic;
    sbx_network_list_t  rules;
    sbx_eg_session_t   *s;

    if (sbx_egress_sockets(call, e) != 0
        || sbx_network_check(call->rules, call->task.size, e) != 0
        || sbx_network_list(call->rules, call->task.size, &rules, e) != 0)
    {
        return -1;
    }

    sbx_network_list_free(&rules);
    n = call->nfds - 1;
    traffic = sbx_egress_traffic(call->fds[n], e);

    if (traffic == NULL) {
        return -1;
    }

    s = sbx_eg_session_find(eg, call->task.session);

    if (s == NULL) {
        s = sbx_egress_session_new(eg, &call->task, e);

        if (s == NULL) {
            (void) munmap(traffic, sizeof(sbx_traffic_t));
            return -1;
        }

        traffic->connections = 0;

    } else {
        sbx_egress_unlisten(s);
        traffic->connections = s->traffic->connections;
        (void) munmap(s->traffic, sizeof(sbx_traffic_t));
    }

    s->traffic = traffic;

    for (i = 0; i < n; i++) {
        s->fds[i] = sbx_steal_fd(&call->fds[i]);
    }

    if (sbx_egress_change(s, call, e) != 0
        || sbx_eg_dns_session_open(s, e) != 0
        || sbx_eg_conn_listen(s, e) != 0)
    {
        return -1;
    }

    return 0;
}


static sbx_eg_session_t *
sbx_egress_session_new(sbx_egress_t *eg, const sbx_egress_task_t *task,
    sbx_error_t *e)
{
    unsigned           i;
    sbx_eg_session_t  *s;

    s = calloc(1, sizeof(sbx_eg_session_t));

    if (s == NULL) {
        (void) sbx_error(e, errno, SBX_E_INTERNAL, "out of memory");
        return NULL;
    }

    s->egress = eg;
    memcpy(s->id, task->session, sizeof(s->id));
    sbx_list_init(&s->conns);
    sbx_list_init(&s->waiting);
    s->cost.timer.handler = sbx_eg_conn_costs;
    s->cost.timer.data = s;

    for (i = 0; i < SBX_EG_LISTENERS; i++) {
        s->fds[i] = -1;
    }

    if (sbx_eg_names_open(s) != 0) {
        (void) sbx_error(e, errno, SBX_E_INTERNAL, "out of memory");
        free(s);
        return NULL;
    }

    i = sbx_egress_bucket(s->id);
    s->next = eg->buckets[i];
    eg->buckets[i] = s;
    eg->nsessions++;

    return s;
}


static int
sbx_egress_sockets(const sbx_egress_call_t *call, sbx_error_t *e)
{
    unsigned  i, n;

    n = call->task.extra == 1 ? SBX_EG_LISTENERS : SBX_EG_LISTENERS / 2;

    if (call->task.extra > 1 || call->nfds != n + 1) {
        return sbx_error(e, 0, SBX_E_INVALID, "it has the wrong number of "
                         "descriptors");
    }

    for (i = 0; i < n; i++) {
        if (sbx_egress_socket(call->fds[i], i < 2 ? AF_INET : AF_INET6,
                              i % 2 == 0 ? SOCK_STREAM : SOCK_DGRAM, e)
            != 0)
        {
            return -1;
        }
    }

    return 0;
}


static int
sbx_egress_socket(int fd, int domain, int type, sbx_error_t *e)
{
    int        flags, is_domain, is_type, listens;
    socklen_t  len;

    len = sizeof(int);

    if (getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &is_domain, &len) == -1
        || getsockopt(fd, SOL_SOCKET, SO_TYPE, &is_type, &len) == -1
        || getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listens, &len) == -1
        || is_domain != domain || is_type != type
        || (type == SOCK_STREAM) != listens)
    {
        return sbx_error(e, 0, SBX_E_INVALID, "a descriptor is not the "
                         "socket that it should be");
    }

    flags = fcntl(fd, F_GETFL);

    if (flags == -1 || (flags & O_NONBLOCK) == 0) {
        return sbx_error(e, 0, SBX_E_INVALID, "a socket would wait");
    }

    return 0;
}


/* Sealed: it cannot become shorter than what is mapped. */

static sbx_traffic_t *
sbx_egress_traffic(int fd, sbx_error_t *e)
{
    int           seals;
    void         *p;
    struct stat   st;

    seals = fcntl(fd, F_GET_SEALS);

    if (seals == -1 || (seals & F_SEAL_SHRINK) == 0 || fstat(fd, &st) == -1
        || st.st_size < (off_t) sizeof(sbx_traffic_t))
    {
        (void) sbx_error(e, 0, SBX_E_INVALID, "the page of traffic is none");
        return NULL;
    }

    p = mmap(NULL, sizeof(sbx_traffic_t), PROT_READ|PROT_WRITE, MAP_SHARED,
             fd, 0);

    if (p == MAP_FAILED) {
        (void) sbx_error(e, errno, SBX_E_INTERNAL, "mmap() failed");
        return NULL;
    }

    return p;
}


static int
sbx_egress_change(sbx_eg_session_t *s, const sbx_egress_call_t *call,
    sbx_error_t *e)
{
    sbx_eg_policy_t           *policy;
    sbx_network_list_t         rules;
    const sbx_egress_task_t   *task;

    task = &call->task;

    if (sbx_network_check(call->rules, task->size, e) != 0
        || sbx_network_list(call->rules, task->size, &rules, e) != 0)
    {
        return -1;
    }

    sbx_network_list_free(&s->rules);
    s->rules = rules;
    s->mode = (sbx_network_mode_t) task->mode;
    s->connections = task->connections;
    s->rate = task->rate;
    s->bytes = task->bytes;
    memcpy(s->template, task->template, sizeof(s->template));

    policy = sbx_eg_policy_of(s->egress, s->template);

    if (policy != NULL) {
        policy->users++;
    }

    if (s->policy != NULL) {
        sbx_eg_policy_release(s->policy);
    }

    s->policy = policy;
    sbx_eg_conn_review(s);

    return 0;
}


static void
sbx_egress_revoke(sbx_eg_session_t *s)
{
    sbx_egress_t       *eg;
    sbx_eg_session_t  **at;

    eg = s->egress;

    sbx_eg_conn_close_all(s);
    sbx_egress_unlisten(s);
    sbx_eg_names_close(s);
    sbx_timer_del(&eg->loop, &s->credit_timer);
    sbx_timer_del(&eg->loop, &s->cost.timer);
    sbx_network_list_free(&s->rules);

    if (s->policy != NULL) {
        sbx_eg_policy_release(s->policy);
    }

    if (s->traffic != NULL) {
        (void) munmap(s->traffic, sizeof(sbx_traffic_t));
    }

    for (at = &eg->buckets[sbx_egress_bucket(s->id)]; *at != NULL;
         at = &(*at)->next)
    {
        if (*at == s) {
            *at = s->next;
            eg->nsessions--;
            break;
        }
    }

    sbx_loop_free(&eg->loop, s);
}


static void
sbx_egress_unlisten(sbx_eg_session_t *s)
{
    unsigned  i;

    sbx_eg_dns_session_close(s);

    for (i = 0; i < SBX_EG_LISTENERS; i++) {
        if (s->fds[i] == -1) {
            continue;
        }

        sbx_event_del(&s->egress->loop, &s->events[i]);
        (void) close(s->fds[i]);
        s->fds[i] = -1;
    }
}


sbx_eg_session_t *
sbx_eg_session_find(sbx_egress_t *eg, const char *id)
{
    sbx_eg_session_t  *s;

    for (s = eg->buckets[sbx_egress_bucket(id)]; s != NULL; s = s->next) {
        if (strcmp(s->id, id) == 0) {
            return s;
        }
    }

    return NULL;
}


static unsigned
sbx_egress_bucket(const char *id)
{
    uint32_t  hash;

    for (hash = 2166136261u; *id != '\0'; id++) {
        hash = (hash ^ (uint8_t) *id) * 16777619u;
    }

    return hash % SBX_EG_BUCKETS;
}
