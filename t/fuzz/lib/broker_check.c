/*
 * What may be said by the broker of broker_here.h, and of it.
 */

#include "broker_here.h"

#include "sandbox_rules.h"

#include <errno.h>
#include <sys/socket.h>
#include <unistd.h>


static void call_frame(call_t *call, const sbx_frame_t *frame,
    const uint8_t *p);
static void check_session(const sbx_session_t *s);


call_t        calls[BROKER_CALLS];
unsigned      ncalls;
sbx_config_t  config;
unsigned      configured;


/* ---- what is answered --------------------------------------------------- */


void
calls_read(void)
{
    int             rc;
    ssize_t         n;
    call_t         *call;
    sbx_frame_t     frame;
    const uint8_t  *p;

    for (call = calls; call < calls + ncalls; call++) {
        while (call->fd != -1 && !call->deaf) {
            n = recv(call->fd, call->buf + call->wire.end,
                     sizeof(call->buf) - call->wire.end, MSG_DONTWAIT);

            if (n == 0 || (n == -1 && errno == ECONNRESET)) {
                (void) close(call->fd);
                call->fd = -1;
            }

            if (n <= 0) {
                break;
            }

            call->wire.end += (size_t) n;

            while ((rc = sbx_wire_next(&call->wire, &frame, &p)) == 1) {
                call_frame(call, &frame, p);
            }

            must(rc == 0);
        }
    }
}


/* A session's frame is of a tenant's who may have it. */

static void
call_frame(call_t *call, const sbx_frame_t *frame, const uint8_t *p)
{
    sbx_f_error_t    error;
    sbx_f_owner_t    owner;
    sbx_f_refusal_t  refusal;
    sbx_f_session_t  info;

    must(!call->last && frame->flags == 0);

    switch (frame->type) {

    case SBX_F_ERROR:
        must(frame->length == sizeof(error));
        memcpy(&error, p, sizeof(error));
        must(error.code > SBX_OK && error.code < SBX_E_MAX);
        must(memchr(error.text, '\0', sizeof(error.text)));
        must(memchr(error.mend, '\0', sizeof(error.mend)));
        must(memchr(error.scope, '\0', sizeof(error.scope)));
        must(memchr(error.resource, '\0', sizeof(error.resource)));
        must(error.ended <= SBX_ENDED_NODE_RESTART);
        call->last = 1;
        break;

    case SBX_F_END:
        must(frame->length == sizeof(sbx_f_end_t));
        call->last = 1;
        break;

    case SBX_F_SESSION:
        must(frame->length == sizeof(info));
        memcpy(&info, p, sizeof(info));
        must(sbx_session_id_ok(info.id, strlen(info.id)));
        must(sbx_name_ok(info.tenant, strlen(info.tenant)));
        must(call->head.tenant[0] == '\0'
             || strcmp(call->head.tenant, info.tenant) == 0);
        must(call->head.user[0] == '\0' || call->head.op == SBX_OP_CREATE
             || strcmp(call->head.user, info.user) == 0);
        must(info.meta_size <= SBX_META_MAX
             && info.network <= SBX_NETWORK_LISTS
             && info.status <= SBX_STATUS_PAUSED);
        break;

    case SBX_F_OWNER:
        must(frame->length == sizeof(owner));
        memcpy(&owner, p, sizeof(owner));
        must(call->head.tenant[0] == '\0'
             || strcmp(call->head.tenant, owner.tenant) == 0);
        break;

    case SBX_F_SOCKET:
        must(call->head.op == SBX_OP_PORT
             && frame->length == 0);
        break;

    case SBX_F_REFUSAL:
        must(call->head.op == SBX_OP_REFUSALS
             && frame->length == sizeof(refusal));
        memcpy(&refusal, p, sizeof(refusal));
        must(refusal.reason < SBX_REFUSED_REASONS && refusal.port < 65536);
        must(memchr(refusal.name, '\0', sizeof(refusal.name)));
        must(memchr(refusal.address, '\0', sizeof(refusal.address)));

        for (p = (const uint8_t *) refusal.name; *p != '\0'; p++) {
            must(*p >= ' ' && *p < 0x7f);
        }

        break;

    case SBX_F_ACCEPTED:
    case SBX_F_META:
    case SBX_F_HEALTH:
    case SBX_F_CHECK:
    case SBX_F_CAPABILITY:
    case SBX_F_TEMPLATE:
    case SBX_F_QUOTA:
    case SBX_F_SETTING:
    case SBX_F_DRAIN:
    case SBX_F_METRICS:
    case SBX_F_SAMPLE:
    case SBX_F_NETWORK:
        break;

    default:
        abort();
    }
}


/* What a first process, or the egress, is told. */

void
process_read(process_t *p)
{
    int                 fds[SBX_WIRE_FDS_ALL];
    ssize_t             n;
    unsigned            i, nfds;
    sbx_task_t          task;
    sbx_error_t         e;
    sbx_egress_task_t   said;

    static uint8_t  buf[sizeof(said) + SBX_NETWORK_SIZE + 64];

    for ( ;; ) {
        n = sbx_wire_recv_all(p->peer, buf, sizeof(buf), fds, &nfds,
                              MSG_DONTWAIT);

        if (n <= 0) {
            if (n != 0 && errno != EAGAIN && errno != ECONNRESET) {
                fprintf(stderr, "recvmsg() from %d, of %d: %s\n", p->peer,
                        (int) p->pid, strerror(errno));
                abort();
            }

            return;
        }

        for (i = 0; i < nfds; i++) {
            must(close(fds[i]) == 0);
        }

        if (p->id[0] != '\0') {
            must(sbx_wire_check_task(buf, (size_t) n, &e) == 0);
            memcpy(&task, buf, sizeof(task));
            i = (task.op >= SBX_OP_EXEC && task.op <= SBX_OP_ENV) ? 1 : 0;
            i += task.fds ? 3 : 0;
            i += task.op == SBX_OP_HAND_OVER || task.op == SBX_OP_PORT;
            must(nfds == i && task.attach_count == (task.fds ? 1 : 0));
            continue;
        }

        must((size_t) n >= sizeof(said));
        memcpy(&said, buf, sizeof(said));
        must(said.magic == SBX_EGRESS_MAGIC
             && said.version == SBX_WIRE_VERSION);

        switch (said.op) {

        case SBX_EGRESS_CONFIG:
            must((size_t) n == sizeof(said) && nfds == 2);
            break;

        case SBX_EGRESS_GRANT:
        case SBX_EGRESS_CHANGE:
            must((size_t) n == sizeof(said) + said.size);
            must(sbx_session_id_ok(said.session, strlen(said.session)));
            must(said.mode != SBX_NETWORK_NONE
                 && said.mode <= SBX_NETWORK_LISTS);
            must(said.size == 0 || sbx_network_check(buf + sizeof(said),
                                                     said.size, &e) == 0);
            must((nfds != 0) == (said.op == SBX_EGRESS_GRANT));
            break;

        case SBX_EGRESS_REVOKE:
        case SBX_EGRESS_ASK:
            must((size_t) n == sizeof(said) && nfds == 0);
            break;

        default:
            abort();
        }
    }
}


/* A session is made of what may be. */

void
machine_check_launch(const sbx_launch_t *launch)
{
    size_t              i, len;
    const char         *p;
    sbx_rule_t          rule;
    sbx_bind_t          bind;
    sbx_error_t         e;
    const sbx_limit_t  *limit;
    sbx_limits_t        limits, max;

    /* one that is given out has had these before */

    if (launch->id != NULL) {
        must(sbx_session_id_ok(launch->id, strlen(launch->id)));
        must(launch->uid_first >= config.uid_first
             && launch->uid_first % 65536 == 0
             && launch->uid_first < config.uid_first + config.uid_count);
    }

    must((launch->create_flags & ~(uint32_t) SBX_CREATE_FLAGS) == 0);
    must(launch->network <= SBX_NETWORK_LISTS);

    for (p = launch->env, i = 0; i < launch->env_size; i += len + 1) {
        len = strnlen(p + i, launch->env_size - i);
        must(len < launch->env_size - i);
        must(p[i] != '=' && memchr(p + i, '=', len) != NULL);
    }

    if (launch->rules_size != 0) {
        must(sbx_rules_check(launch->rules, launch->rules_size, &e) == 0);
        sbx_rule_first(&rule, launch->rules, launch->rules_size);

        while (sbx_rule_next(&rule) == 1) {
            must(rule.text[-1] != SBX_RULE_BIND
                 || sbx_bind_find(launch->binds, launch->binds_size,
                                  rule.text, launch->tenant, &bind) == 0);
        }
    }

    limits = launch->limits;
    max = broker->config.max;

    for (limit = sbx_limit_table; limit->name != NULL; limit++) {
        must(*sbx_limit_field(&limits, limit) != SBX_UNSET);
        must(configured || launch->limits.disk == 0
             || *sbx_limit_field(&limits, limit)
                <= *sbx_limit_field(&max, limit));
    }
}


/* ---- what is there ------------------------------------------------------ */


static unsigned
list_length(const sbx_node_t *list)
{
    unsigned           n;
    const sbx_node_t  *node;

    n = 0;

    for (node = list->next; node != list; node = node->next) {
        must(node->next->prev == node && node->prev->next == node);
        n++;
    }

    return n;
}


void
broker_check(void)
{
    uint32_t              running, held;
    uint64_t              memory;
    sbx_node_t           *node;
    const sbx_broker_t   *b;
    const sbx_session_t  *s;

    b = broker;
    running = held = 0;
    memory = 0;
    must(b->nsessions == list_length(&b->sessions)
                         + list_length(&b->pools.sessions));
    must(b->ncalls == list_length(&b->calls));
    must(b->ncontrols == list_length(&b->controls));
    must(b->ncalls <= BROKER_CALLS);

    for (node = b->sessions.next; node != &b->sessions; node = node->next) {
        s = sbx_node_of(node, const sbx_session_t, link);
        check_session(s);
        must(!s->pooled);
        running += s->ended == SBX_ENDED_NOT && s->state == SBX_S_RUNNING;
        held += s->hold.held;
        memory += s->hold.held ? s->hold.taken.memory : 0;

        /* one without a record is nobody's, and ends */

        if (s->info.tenant[0] == '\0') {
            must(s->ended == SBX_ENDED_NODE_RESTART && !s->adopted);
            continue;
        }

        must(sbx_name_ok(s->info.tenant, strlen(s->info.tenant)));
        must(sbx_name_ok(s->info.user, strlen(s->info.user)));
    }

    must(running == b->nrunning);
    must(held == b->quotas.used.sessions);
    must(memory == b->quotas.used.memory);

    for (node = b->pools.sessions.next; node != &b->pools.sessions;
         node = node->next)
    {
        s = sbx_node_of(node, const sbx_session_t, link);
        check_session(s);
        must(s->pooled && !s->hold.held);
    }
}


static void
check_session(const sbx_session_t *s)
{
    sbx_node_t           *node;
    const sbx_session_t  *with;

    must(sbx_session_id_ok(s->info.id, strlen(s->info.id)));
    must(sbx_session_find(broker, s->info.id) == s);
    must(s->ncommands == list_length(&s->running) + list_length(&s->kernels)
                         + list_length(&s->lingering)
         || s->state >= SBX_S_CUTTING);
    must(s->ncommands <= SBX_COMMANDS_MAX);
    must(s->ntasks == list_length(&s->tasks) && s->ntasks <= SBX_TASKS_MAX);
    must(s->nchanges == list_length(&s->changes));

    /* nobody else has its ids */

    for (node = s->link.next; node != &broker->sessions
                              && node != &broker->pools.sessions;
         node = node->next)
    {
        with = sbx_node_of(node, const sbx_session_t, link);
        must(with->uid_first == 0 || with->uid_first != s->uid_first);
    }
}
