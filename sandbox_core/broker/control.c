/*
 * Control connections: made by a server's root master, used by its workers.
 * A connection says hello first; who it is, the kernel says.  Then each
 * datagram is one call, with the call's own socket as its descriptor.
 *
 * HELLO_CONFIG   root's (or, where the socket is open to a group, that
 *                group's, whose configuration is not taken); answered by
 *                sbx_hello_t
 * HELLO_CONTROL  answered by sbx_hello_t as well, once the keeper has a copy
 *                of the connection: from then on it outlives the broker
 * HELLO_WATCH    root's; answered at once.  No server's: the keeper never
 *                hears of it, and it takes only calls that look
 */

#include "packages.h"
#include "unkept.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>


#define SBX_CONTROL_HELLO_WAIT    10000     /* ms */
#define SBX_CONTROL_ACCEPT_WAIT   100
#define SBX_CONTROL_ACCEPTS       16        /* of one round, each */
#define SBX_CONTROL_CALLS         16
#define SBX_CONTROL_FULL_WAIT     20
#define SBX_CONTROL_GROUPS        64

typedef union {
    uint64_t     align;
    sbx_call_t   head;
    uint8_t      bytes[sizeof(sbx_call_t) + sizeof(sbx_config_t) + 64];
} sbx_datagram_t;


static void sbx_control_accept(sbx_event_t *ev, uint32_t events);
static void sbx_control_accept_again(sbx_timer_t *timer);
static sbx_control_t *sbx_control_make(sbx_broker_t *b, int fd);
static int sbx_control_allowed(const sbx_control_t *control);
static sbx_control_t *sbx_control_asked(sbx_broker_t *b, uint64_t number);
static void sbx_control_late(sbx_timer_t *timer);
static void sbx_control_again(sbx_timer_t *timer);
static int sbx_control_ended(const sbx_control_t *control);
static void sbx_control_event(sbx_event_t *ev, uint32_t events);
static void sbx_control_hello(sbx_control_t *control,
    const sbx_datagram_t *datagram, size_t n);
static void sbx_control_config(sbx_control_t *control,
    const sbx_config_t *config);
static void sbx_control_unfit(sbx_control_t *control, const sbx_error_t *e);
static void sbx_control_answer(sbx_control_t *control, const sbx_error_t *e);
static void sbx_control_call(sbx_control_t *control,
    const sbx_datagram_t *datagram, size_t n, int *fds, unsigned nfds);
static int sbx_control_looks(uint16_t op);
static int sbx_control_is_stream(int fd);
static int sbx_control_reserved(uint64_t open_files, int fd,
    unsigned reserves);
static void sbx_control_dispatch(sbx_broker_t *b, const sbx_call_t *head,
    const void *body, int fd, int blob);
static void sbx_control_close(sbx_control_t *control);


int
sbx_control_listen(sbx_broker_t *b, sbx_error_t *e)
{
    b->listen_event.handler = sbx_control_accept;
    b->listen_event.data = b;
    b->listen_timer.handler = sbx_control_accept_again;
    b->listen_timer.data = b;

    if (sbx_event_add(&b->loop, &b->listen_event, b->options->listen,
                      EPOLLIN)
        == -1)
    {
        return sbx_error(e, errno, SBX_E_INTERNAL, "epoll_ctl() failed");
    }

    return 0;
}


static void
sbx_control_accept(sbx_event_t *ev, uint32_t events)
{
    int             fd;
    unsigned        i;
    sbx_broker_t   *b;
    sbx_control_t  *control;

    (void) events;

    b = ev->data;

    for (i = 0; i < SBX_CONTROL_ACCEPTS; i++) {
        fd = accept4(ev->fd, NULL, NULL, SOCK_CLOEXEC|SOCK_NONBLOCK);

        if (fd == -1) {
            if (errno == EMFILE || errno == ENFILE || errno == ENOMEM) {
                sbx_event_set(&b->loop, ev, 0);
                sbx_timer_set(&b->loop, &b->listen_timer,
                              SBX_CONTROL_ACCEPT_WAIT);
            }

            return;
        }

        control = sbx_control_make(b, fd);

        if (control == NULL) {
            continue;
        }

        if (!sbx_control_allowed(control)) {
            sbx_log(SBX_LOG_WARN, NULL, 0,
                    "a connection of user %u is refused",
                    (unsigned) control->uid);
            sbx_control_close(control);
        }
    }
}


static void
sbx_control_accept_again(sbx_timer_t *timer)
{
    sbx_broker_t  *b;

    b = timer->data;
    sbx_event_set(&b->loop, &b->listen_event, EPOLLIN);
}


static sbx_control_t *
sbx_control_make(sbx_broker_t *b, int fd)
{
    socklen_t       len;
    struct ucred    peer;
    sbx_control_t  *control;

    len = sizeof(struct ucred);
    control = NULL;

    if (b->ncontrols < SBX_CONTROLS_MAX
        && getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &len) == 0)
    {
        control = calloc(1, sizeof(sbx_control_t));
    }

    if (control == NULL) {
        (void) close(fd);
        return NULL;
    }

    control->broker = b;
    control->fd = fd;
    control->uid = peer.uid;
    control->gid = peer.gid;
    control->event.handler = sbx_control_event;
    control->event.data = control;
    control->timer.handler = sbx_control_late;
    control->timer.data = control;
    control->again.handler = sbx_control_again;
    control->again.data = control;

    sbx_list_append(&b->controls, &control->link);
    b->ncontrols++;

    if (sbx_event_add(&b->loop, &control->event, fd, EPOLLIN) == -1) {
        sbx_control_close(control);
        return NULL;
    }

    sbx_timer_set(&b->loop, &control->timer, SBX_CONTROL_HELLO_WAIT);

    return control;
}


static int
sbx_control_allowed(const sbx_control_t *control)
{
    gid_t           groups[SBX_CONTROL_GROUPS];
    size_t          i;
    socklen_t       len;
    sbx_options_t  *options;

    options = control->broker->options;

    if (control->uid == 0) {
        return 1;
    }

    if (options->socket_group == NULL) {
        return 0;
    }

    if (control->gid == options->socket_gid) {
        return 1;
    }

    len = sizeof(groups);

    if (getsockopt(control->fd, SOL_SOCKET, SO_PEERGROUPS, groups, &len)
        == -1)
    {
        return 0;
    }

    for (i = 0; i < len / sizeof(gid_t); i++) {
        if (groups[i] == options->socket_gid) {
            return 1;
        }
    }

    return 0;
}


/* One that the keeper kept: it has said hello to an earlier broker. */

int
sbx_control_adopt(sbx_broker_t *b, uint64_t number, int fd)
{
    sbx_control_t  *control;

    control = sbx_control_make(b, fd);

    if (control == NULL) {
        return -1;
    }

    control->greeted = 1;
    control->number = number;
    sbx_timer_del(&b->loop, &control->timer);

    if (number >= b->control_number) {
        b->control_number = number + 1;
    }

    return 0;
}


void
sbx_control_stored(sbx_broker_t *b, uint64_t number)
{
    sbx_control_t  *control;

    control = sbx_control_asked(b, number);

    if (control != NULL) {
        control->answer = 0;
        sbx_control_answer(control, NULL);
    }
}


void
sbx_control_refused(sbx_broker_t *b, uint64_t number)
{
    sbx_error_t     e;
    sbx_control_t  *control;

    control = sbx_control_asked(b, number);

    if (control != NULL) {
        control->answer = 0;
        control->greeted = 0;
        (void) sbx_error(&e, 0, SBX_E_UNAVAILABLE,
                         "the keeper has no room for another connection");
        sbx_control_answer(control, &e);
        sbx_control_close(control);
    }
}


static sbx_control_t *
sbx_control_asked(sbx_broker_t *b, uint64_t number)
{
    sbx_node_t     *node;
    sbx_control_t  *control;

    for (node = b->controls.next; node != &b->controls; node = node->next) {
        control = sbx_node_of(node, sbx_control_t, link);

        if (control->greeted && control->number == number
            && control->answer)
        {
            return control;
        }
    }

    return NULL;
}


static void
sbx_control_late(sbx_timer_t *timer)
{
    sbx_control_close(timer->data);
}


static void
sbx_control_again(sbx_timer_t *timer)
{
    sbx_control_t  *control;

    control = timer->data;
    sbx_event_set(&control->broker->loop, &control->event, EPOLLIN);
}


/* An empty datagram reads like an end. */

static int
sbx_control_ended(const sbx_control_t *control)
{
    struct pollfd  pfd;

    pfd.fd = control->fd;
    pfd.events = POLLRDHUP;

    return poll(&pfd, 1, 0) == 1;
}


static void
sbx_control_event(sbx_event_t *ev, uint32_t events)
{
    int              fds[SBX_WIRE_FDS_ALL];
    ssize_t          n;
    uint64_t         until;
    unsigned         i, nfds;
    sbx_control_t   *control;
    sbx_datagram_t   datagram;

    (void) events;

    control = ev->data;
    sbx_clock_look(control->broker);

    until = sbx_now_us() + SBX_ROUND;

    for (i = 0; i < SBX_CONTROL_CALLS && ev->active; i++) {
        if (sbx_now_us() > until) {
            return;
        }

        if (sbx_discard_full(control->broker)) {
            sbx_event_set(&control->broker->loop, ev, 0);
            sbx_timer_set(&control->broker->loop, &control->again,
                          SBX_CONTROL_FULL_WAIT);
            return;
        }

        n = sbx_wire_recv_all(control->fd, &datagram, sizeof(sbx_datagram_t),
                              fds, &nfds, MSG_DONTWAIT);

        if (n == -1 && errno == EAGAIN) {
            return;
        }

        if (n == -1 && errno == EMSGSIZE) {
            sbx_discard_all(control->broker, fds, nfds);
            sbx_log(SBX_LOG_WARN, NULL, 0,
                    "a call was dropped: too long, or no descriptor is free");
            continue;
        }

        if (n == 0 && !sbx_control_ended(control)) {
            sbx_discard_all(control->broker, fds, nfds);
            continue;
        }

        if (n <= 0) {
            /* the last datagram before the end may have been an empty one */
            sbx_discard_all(control->broker, fds, nfds);
            sbx_control_close(control);
            return;
        }

        if (control->greeted || control->watch) {
            sbx_control_call(control, &datagram, (size_t) n, fds, nfds);
            continue;
        }

        sbx_discard_all(control->broker, fds, nfds);
        sbx_control_hello(control, &datagram, (size_t) n);
    }
}


static void
sbx_control_hello(sbx_control_t *control, const sbx_datagram_t *datagram,
    size_t n)
{
    sbx_error_t        e;
    sbx_broker_t      *b;
    const sbx_call_t  *head;

    b = control->broker;
    head = &datagram->head;

    if (b->ending) {
        /* without an answer: it tries again, and finds a successor */
        sbx_control_close(control);
        return;
    }

    if (n >= sizeof(sbx_call_t) && head->magic == SBX_WIRE_MAGIC
        && head->version != SBX_WIRE_VERSION)
    {
        (void) sbx_error(&e, 0, SBX_E_UNAVAILABLE,
                         "the running broker speaks version %u and the "
                         "server version %u: restart the one that was not "
                         "upgraded", SBX_WIRE_VERSION, head->version);
        sbx_control_answer(control, &e);
        return;
    }

    if (sbx_wire_check_call(datagram, n, &e) != 0) {
        sbx_control_answer(control, &e);
        return;
    }

    switch (head->op) {

    case SBX_OP_HELLO_CONFIG:
        sbx_control_config(control, (const sbx_config_t *) (const void *)
                                    (datagram->bytes + sizeof(sbx_call_t)));
        return;

    case SBX_OP_HELLO_CONTROL:
        control->greeted = 1;
        control->answer = 1;
        control->number = b->control_number++;
        sbx_timer_del(&b->loop, &control->timer);

        if (sbx_broker_tell(b, SBX_LINK_STORE, SBX_KEEP_CONTROL,
                            control->number, NULL, &control->fd)
            != 0)
        {
            /* without an answer, as above */
            control->greeted = 0;
            sbx_control_close(control);
        }

        return;

    case SBX_OP_HELLO_WATCH:
        if (control->uid != 0) {
            break;
        }

        control->watch = 1;
        sbx_timer_del(&b->loop, &control->timer);
        sbx_control_answer(control, NULL);
        return;
    }

    (void) sbx_error(&e, 0, SBX_E_INVALID, "a connection begins with hello");
    sbx_control_answer(control, &e);
}


static void
sbx_control_config(sbx_control_t *control, const sbx_config_t *config)
{
    sbx_error_t    e;
    sbx_broker_t  *b;

    b = control->broker;

    if (control->uid != 0) {
        (void) sbx_error(&e, 0, SBX_E_UNAVAILABLE,
                         "the broker waits for root's configuration");
        sbx_control_answer(control, b->configured ? NULL : &e);
        return;
    }

    if (config->binds_size > sizeof(config->binds)) {
        (void) sbx_error(&e, 0, SBX_E_INVALID,
                         "the table of host directories is too long");
        sbx_control_answer(control, &e);
        return;
    }

    if (!sbx_quota_config_ok(&config->quotas)) {
        (void) sbx_error(&e, 0, SBX_E_INVALID,
                         "the table of quotas is malformed");
        sbx_control_unfit(control, &e);
        return;
    }

    if (!sbx_pools_config_ok(&config->pools)) {
        (void) sbx_error(&e, 0, SBX_E_INVALID,
                         "the table of pools is malformed");
        sbx_control_unfit(control, &e);
        return;
    }

    if (config->egress_size > sizeof(config->egress)
        || (config->egress_size != 0
            && sbx_egress_table_check(config->egress, config->egress_size,
                                      &e)
               != 0))
    {
        (void) sbx_error(&e, 0, SBX_E_INVALID,
                         "the table of the egress is malformed");
        sbx_control_unfit(control, &e);
        return;
    }

    if (!sbx_packages_config_ok(config)) {
        (void) sbx_error(&e, 0, SBX_E_INVALID,
                         "what sessions install with is malformed");
        sbx_control_unfit(control, &e);
        return;
    }

    if (b->configured) {
        sbx_setup_change(b, config);
        sbx_control_answer(control, NULL);
        return;
    }

    if (b->based) {
        /* sessions live, in what the rest of the configuration says */
        sbx_setup_change(b, config);

    } else {
        memcpy(&b->config, config, sizeof(sbx_config_t));
    }

    if (sbx_setup(b, &e) == 0) {
        sbx_log(SBX_LOG_NOTICE, NULL, 0, "broker is ready");
        sbx_control_answer(control, NULL);
        return;
    }

    sbx_log_error(SBX_LOG_ERROR, NULL, &e, "no session can be made");
    sbx_control_unfit(control, &e);
}


/* Nobody keeps a broker that cannot work, unless it is on its own. */

static void
sbx_control_unfit(sbx_control_t *control, const sbx_error_t *e)
{
    sbx_broker_t  *b;

    b = control->broker;
    sbx_control_answer(control, e);

    if (!b->options->standalone && b->nsessions == 0 && !b->ever_configured)
    {
        (void) sbx_broker_tell(b, SBX_LINK_END, SBX_KEEP_NONE, 0, NULL, NULL);
    }
}


/* e NULL: all is well. */

static void
sbx_control_answer(sbx_control_t *control, const sbx_error_t *e)
{
    sbx_hello_t  hello;

    memset(&hello, 0, sizeof(sbx_hello_t));
    hello.magic = SBX_WIRE_MAGIC;
    hello.ok = e == NULL;
    hello.broker_pid = getpid();
    hello.keeper_pid = getppid();

    if (e != NULL) {
        hello.error = *e;

    } else if (!control->watch) {
        memcpy(hello.token_key, control->broker->token_key,
               sizeof(hello.token_key));
    }

    (void) sbx_wire_send(control->fd, &hello, sizeof(sbx_hello_t), NULL, 0,
                         MSG_DONTWAIT);
}


static void
sbx_control_call(sbx_control_t *control, const sbx_datagram_t *datagram,
    size_t n, int *fds, unsigned nfds)
{
    int                blob;
    sbx_call_t         head;
    sbx_error_t        e;
    sbx_broker_t      *b;
    sbx_f_error_t      error;

    b = control->broker;
    blob = nfds == 2 ? fds[1] : -1;

    if (nfds == 0 || nfds > 2 || !sbx_control_is_stream(fds[0])
        || sbx_control_crowded(b, fds[0], 1))
    {
        sbx_log(SBX_LOG_WARN, NULL, 0, "a call is dropped: %s",
                nfds == 0 || nfds > 2 ? "its descriptors are not a call's"
                : sbx_control_crowded(b, fds[0], 1)
                  ? "too few descriptors are free"
                  : "its descriptor is no stream socket");
        sbx_discard_all(b, fds, nfds);
        return;
    }

    if (sbx_wire_check_call(datagram, n, &e) == 0
        && blob != -1 && datagram->head.op != SBX_OP_CREATE
        && datagram->head.op != SBX_OP_PATCH)
    {
        (void) sbx_error(&e, 0, SBX_E_INVALID, "a descriptor too many");

    } else if (control->watch && n >= sizeof(sbx_call_t)
               && !sbx_control_looks(datagram->head.op))
    {
        (void) sbx_error(&e, 0, SBX_E_INVALID,
                         "op %u is not for a connection that watches",
                         datagram->head.op);

    } else if (sbx_wire_check_call(datagram, n, &e) == 0) {
        sbx_control_dispatch(b, &datagram->head,
                             datagram->bytes + sizeof(sbx_call_t), fds[0],
                             blob);
        fds[0] = -1;
    }

    if (fds[0] != -1) {
        sbx_log_error(SBX_LOG_WARN, NULL, &e, "a malformed call");
        memset(&head, 0, sizeof(sbx_call_t));
        sbx_call_fill(&error, &e);
        sbx_call_refuse(b, &head, fds[0], &error);
    }

    if (blob != -1) {
        sbx_discard(b, blob);
    }
}


static int
sbx_control_looks(uint16_t op)
{
    size_t  i;

    static const sbx_op_t  ops[] = {
        SBX_OP_HEALTH, SBX_OP_DOCTOR, SBX_OP_CAPABILITIES, SBX_OP_TEMPLATES,
        SBX_OP_GET, SBX_OP_LIST, SBX_OP_SAMPLES, SBX_OP_METRICS
    };

    for (i = 0; i < sbx_nelts(ops); i++) {
        if (ops[i] == op) {
            return 1;
        }
    }

    return 0;
}


/*
 * The lowest free number tells how many are in use.  What a message brings
 * must always find room: what does not is closed by the kernel, on our time.
 * So new sessions stop coming well before calls do: those that are there can
 * be used, and ended, however many they are.
 */

int
sbx_control_crowded(sbx_broker_t *b, int fd, unsigned reserves)
{
    struct rlimit  files;

    if (sbx_control_reserved(b->open_files, fd, reserves) == 0) {
        return 0;
    }

    /* the operator may have given more since (prlimit) */

    if (getrlimit(RLIMIT_NOFILE, &files) == -1
        || files.rlim_cur <= b->open_files)
    {
        return 1;
    }

    b->open_files = files.rlim_cur;

    return sbx_control_reserved(b->open_files, fd, reserves);
}


static int
sbx_control_reserved(uint64_t open_files, int fd, unsigned reserves)
{
    return (uint64_t) fd >= open_files
                            - reserves * sbx_doctor_reserve(open_files);
}


static int
sbx_control_is_stream(int fd)
{
    int        domain, type;
    socklen_t  len;

    len = sizeof(int);

    if (getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &len) == -1
        || domain != AF_UNIX)
    {
        return 0;
    }

    len = sizeof(int);

    return getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &len) == 0
           && type == SOCK_STREAM;
}


/* Nothing was sent before, so there is room; it is no reason to fail. */

static void
sbx_control_owner(const sbx_session_t *s, int fd)
{
    size_t         n;
    uint8_t        frame[sizeof(sbx_frame_t) + sizeof(sbx_f_owner_t)];
    sbx_f_owner_t  owner;

    memset(&owner, 0, sizeof(sbx_f_owner_t));
    memcpy(owner.tenant, s->info.tenant, sizeof(owner.tenant));
    memcpy(owner.user, s->info.user, sizeof(owner.user));

    n = sbx_wire_header(frame, SBX_F_OWNER, sizeof(sbx_f_owner_t));
    memcpy(frame + n, &owner, sizeof(sbx_f_owner_t));

    (void) sbx_wire_send(fd, frame, sizeof(frame), NULL, 0, MSG_DONTWAIT);
}


/* fd is handed on; blob stays the caller's. */

static void
sbx_control_dispatch(sbx_broker_t *b, const sbx_call_t *head,
    const void *body, int fd, int blob)
{
    sbx_f_error_t    error;
    sbx_session_t   *s;
    sbx_call_out_t  *call;

    sbx_pool_touch(b);

    s = (head->flags & SBX_CALL_OWNER) ? sbx_session_of_call(b, head) : NULL;

    if (s != NULL) {
        sbx_control_owner(s, fd);
    }

    if (head->op >= SBX_OP_EXEC && head->op <= SBX_OP_ENV) {
        s = sbx_session_of_call(b, head);

        if (s != NULL) {
            sbx_command_call(s, head, fd, body);
            return;
        }

        sbx_call_session_error(b, head, &error);
        sbx_call_refuse(b, head, fd, &error);
        return;
    }

    call = sbx_call_make(b, head, fd);

    if (call == NULL) {
        return;
    }

    if (head->op == SBX_OP_CREATE) {
        sbx_create(b, call, body, blob);

    } else if (head->op >= SBX_OP_PATCH && head->op <= SBX_OP_RESUME) {
        sbx_change_call(b, call, body, blob);

    } else {
        sbx_service_call(b, call, body);
    }
}


static void
sbx_control_close(sbx_control_t *control)
{
    sbx_broker_t  *b;

    b = control->broker;

    if (control->greeted) {
        (void) sbx_broker_tell(b, SBX_LINK_DROP, SBX_KEEP_CONTROL,
                               control->number, NULL, NULL);
    }

    sbx_event_del(&b->loop, &control->event);
    sbx_timer_del(&b->loop, &control->timer);
    sbx_timer_del(&b->loop, &control->again);
    sbx_list_remove(&control->link);
    b->ncontrols--;

    sbx_discard(b, control->fd);
    sbx_loop_free(&b->loop, control);
}


void
sbx_control_close_all(sbx_broker_t *b)
{
    sbx_control_t   *control;
    sbx_call_out_t  *call;

    while (!sbx_list_empty(&b->calls)) {
        call = sbx_node_of(b->calls.next, sbx_call_out_t, link);
        sbx_call_close(call);
    }

    while (!sbx_list_empty(&b->controls)) {
        control = sbx_node_of(b->controls.next, sbx_control_t, link);
        sbx_control_close(control);
    }
}
