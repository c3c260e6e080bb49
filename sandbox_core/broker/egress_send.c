/*
 * What the egress is told, and what it says.  There is no queue of messages:
 * a session has one thing at most that the egress is to know of it, which is
 * made into a message when it can be sent.  So nothing grows while the egress
 * takes nothing, and one that takes nothing for long is replaced.
 */

#include "broker.h"
#include "sandbox_fault.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>


#define SBX_OUTLET_ROUND      16          /* messages of one round */
#define SBX_OUTLET_RECORDS    64
#define SBX_OUTLET_STUCK      10000       /* ms */
#define SBX_OUTLET_RETRY      10
#define SBX_OUTLET_RESOLV     "/etc/resolv.conf"
#define SBX_OUTLET_RESOLV_MAX 65536
#define SBX_OUTLET_CA_MAX     (1024 * 1024)
#define SBX_OUTLET_SEALS      (F_SEAL_WRITE|F_SEAL_SHRINK|F_SEAL_GROW        \
                               |F_SEAL_SEAL)


static void sbx_outlet_stuck(sbx_broker_t *b, int moved, int err);
static int sbx_outlet_next(sbx_broker_t *b);
static int sbx_outlet_question(sbx_broker_t *b);
static int sbx_outlet_config(sbx_broker_t *b);
static int sbx_outlet_files(sbx_broker_t *b, int *fds, unsigned *n,
    size_t *resolv, sbx_error_t *e);
static int sbx_outlet_memory(const void *data, size_t size);
static int sbx_outlet_resolv(size_t *size);
static int sbx_outlet_value(const sbx_egress_row_t *row, sbx_error_t *e);
static void sbx_outlet_stat(int64_t now[4]);
static int sbx_outlet_session(sbx_broker_t *b, sbx_session_t *s);
static int sbx_outlet_revoke(sbx_broker_t *b);
static void sbx_outlet_task(sbx_egress_task_t *task, sbx_egress_op_t op,
    const char *id);
static int sbx_outlet_record(sbx_broker_t *b,
    const sbx_egress_record_t *record);


void
sbx_outlet_send(sbx_broker_t *b)
{
    int            i, rc;
    sbx_outlet_t  *o;

    o = &b->outlet;

    if (!o->ready) {
        return;
    }

    for (i = 0; i < SBX_OUTLET_ROUND; i++) {
        rc = sbx_outlet_next(b);

        if (!o->ready) {
            return;
        }

        if (rc == 1) {
            continue;
        }

        if (rc == 0) {
            o->stuck = 0;
            sbx_timer_del(&b->loop, &o->pump);
            sbx_event_set(&b->loop, &o->control_event, EPOLLIN);
            return;
        }

        sbx_outlet_stuck(b, i != 0, errno);
        return;
    }

    o->stuck = 0;
    sbx_timer_set(&b->loop, &o->pump, 0);
}


/*
 * moved: it has taken something before that.  What too many descriptors on
 * their way are (ETOOMANYREFS), and memory, is told of by no event.
 */

static void
sbx_outlet_stuck(sbx_broker_t *b, int moved, int err)
{
    uint64_t       now;
    sbx_outlet_t  *o;

    o = &b->outlet;

    if (err != EAGAIN && err != ETOOMANYREFS && err != ENOBUFS
        && err != ENOMEM)
    {
        sbx_outlet_kill(b, "it cannot be told anything");
        return;
    }

    now = sbx_now_us();

    if (moved || o->stuck == 0) {
        o->stuck = now;

    } else if (now - o->stuck >= (uint64_t) SBX_OUTLET_STUCK * 1000) {
        sbx_outlet_kill(b, "it takes nothing");
        return;
    }

    sbx_event_set(&b->loop, &o->control_event,
                  err == EAGAIN ? EPOLLIN|EPOLLOUT : EPOLLIN);
    sbx_timer_set(&b->loop, &o->pump,
                  err == EAGAIN ? SBX_OUTLET_STUCK / 10 : SBX_OUTLET_RETRY);
}


/* 1: something has been sent, or needs not be; 0: there is nothing; -1. */

static int
sbx_outlet_next(sbx_broker_t *b)
{
    sbx_outlet_t  *o;

    o = &b->outlet;

    if (o->configure) {
        return sbx_outlet_config(b);
    }

    if (o->ask) {
        return sbx_outlet_question(b);
    }

    if (!sbx_list_empty(&o->revoked)) {
        return sbx_outlet_revoke(b);
    }

    if (!sbx_list_empty(&o->todo)) {
        return sbx_outlet_session(b, sbx_node_of(o->todo.next, sbx_session_t,
                                                 way.todo));
    }

    return 0;
}


static void
sbx_outlet_task(sbx_egress_task_t *task, sbx_egress_op_t op, const char *id)
{
    memset(task, 0, sizeof(sbx_egress_task_t));
    task->magic = SBX_EGRESS_MAGIC;
    task->version = SBX_WIRE_VERSION;
    task->op = (uint16_t) op;
    (void) snprintf(task->session, sizeof(task->session), "%s", id);
}


static int
sbx_outlet_question(sbx_broker_t *b)
{
    sbx_egress_task_t  task;

    sbx_outlet_task(&task, SBX_EGRESS_ASK, "");

    if (sbx_wire_send(b->outlet.control, &task, sizeof(sbx_egress_task_t),
                      NULL, 0, MSG_DONTWAIT)
        == -1)
    {
        return -1;
    }

    b->outlet.ask = 0;

    return 1;
}


/*
 * ---- configuration -------------------------------------------------------
 */

static int
sbx_outlet_config(sbx_broker_t *b)
{
    int                fds[SBX_EGRESS_FILES_MAX], err, rc;
    size_t             resolv;
    unsigned           n;
    sbx_error_t        e;
    sbx_outlet_t      *o;
    sbx_egress_task_t  task;

    o = &b->outlet;
    n = 0;
    resolv = 0;
    rc = 1;
    err = 0;

    if (sbx_outlet_files(b, fds, &n, &resolv, &e) != 0) {
        /* what it has goes on to hold */
        o->unfit = 1;
        sbx_log_error(SBX_LOG_ERROR, NULL, &e,
                      "the egress is not told of the configuration");

    } else {
        sbx_outlet_task(&task, SBX_EGRESS_CONFIG, "");
        task.size = b->config.egress_size;
        task.extra = (uint32_t) resolv;

        if (sbx_wire_send(o->control, &task, sizeof(sbx_egress_task_t), fds,
                          n, MSG_DONTWAIT)
            == -1)
        {
            rc = -1;
            err = errno;
        }
    }

    while (n != 0) {
        (void) close(fds[--n]);
    }

    if (rc == 1) {
        SBX_FAULT("broker-egress-configured");
        o->configure = 0;
    }

    errno = err;

    return rc;
}


static int
sbx_outlet_files(sbx_broker_t *b, int *fds, unsigned *n, size_t *resolv,
    sbx_error_t *e)
{
    int               fd;
    sbx_egress_row_t  row;

    sbx_outlet_stat(b->outlet.resolv);
    b->outlet.looked = sbx_now_us();

    fds[*n] = sbx_outlet_memory(b->config.egress, b->config.egress_size);
    *n += fds[*n] != -1;

    if (*n == 1) {
        fds[*n] = sbx_outlet_resolv(resolv);
        *n += fds[*n] != -1;
    }

    if (*n != 2) {
        return sbx_error(e, errno, SBX_E_INTERNAL, "memfd_create() failed");
    }

    memset(&row, 0, sizeof(sbx_egress_row_t));

    while (sbx_egress_row_next(b->config.egress, b->config.egress_size, &row)
           == 1)
    {
        if (row.type != SBX_EGRESS_HEADER && row.type != SBX_EGRESS_TLS_HEADER
            && row.type != SBX_EGRESS_CA)
        {
            continue;
        }

        if (*n == SBX_EGRESS_FILES_MAX) {
            return sbx_error(e, 0, SBX_E_INVALID, "it names too many files");
        }

        fd = sbx_outlet_value(&row, e);

        if (fd == -1) {
            return -1;
        }

        fds[(*n)++] = fd;
    }

    return 0;
}


static int
sbx_outlet_memory(const void *data, size_t size)
{
    sbx_auto_fd  fd = -1;

    fd = memfd_create("egress", MFD_CLOEXEC|MFD_ALLOW_SEALING);

    if (fd == -1 || (size != 0 && sbx_write_all(fd, data, size) != 0)
        || fcntl(fd, F_ADD_SEALS, SBX_OUTLET_SEALS) == -1)
    {
        return -1;
    }

    return sbx_steal_fd(&fd);
}


/* One that is missing, or that no resolver would read, is empty. */

static int
sbx_outlet_resolv(size_t *size)
{
    ssize_t              n;
    struct stat          st;
    sbx_auto_fd          fd = -1;
    sbx_auto_free char  *text = NULL;

    n = 0;
    text = malloc(SBX_OUTLET_RESOLV_MAX);

    if (text == NULL) {
        return -1;
    }

    fd = open(SBX_OUTLET_RESOLV, O_RDONLY|O_CLOEXEC|O_NONBLOCK);

    if (fd != -1 && fstat(fd, &st) == 0 && S_ISREG(st.st_mode)) {
        n = sbx_read_full(fd, text, SBX_OUTLET_RESOLV_MAX);
    }

    *size = n > 0 ? (size_t) n : 0;

    return sbx_outlet_memory(text, *size);
}


static int
sbx_outlet_value(const sbx_egress_row_t *row, sbx_error_t *e)
{
    off_t        max;
    const char  *path;
    struct stat  st;
    sbx_auto_fd  fd = -1;

    path = row->type == SBX_EGRESS_CA ? row->text[0] : row->text[2];
    max = row->type == SBX_EGRESS_CA ? SBX_OUTLET_CA_MAX
                                     : SBX_EGRESS_VALUE_MAX + 1;

    fd = path == NULL ? -1 : open(path, O_RDONLY|O_CLOEXEC|O_NOFOLLOW
                                        |O_NONBLOCK|O_NOCTTY);

    if (fd == -1 || fstat(fd, &st) == -1) {
        (void) sbx_error(e, errno, SBX_E_UNAVAILABLE,
                         "cannot open \"%s\"", path != NULL ? path : "");
        return -1;
    }

    if (!S_ISREG(st.st_mode) || st.st_size > max) {
        (void) sbx_error(e, 0, SBX_E_UNAVAILABLE,
                         "\"%s\" is no regular file of at most %lld bytes",
                         path, (long long) max);
        return -1;
    }

    return sbx_steal_fd(&fd);
}


static void
sbx_outlet_stat(int64_t now[4])
{
    struct stat  st;

    memset(now, 0, sizeof(int64_t) * 4);

    if (stat(SBX_OUTLET_RESOLV, &st) == 0) {
        now[0] = (int64_t) st.st_ino;
        now[1] = (int64_t) st.st_size;
        now[2] = (int64_t) st.st_mtim.tv_sec;
        now[3] = (int64_t) st.st_mtim.tv_nsec;
    }
}


/* Once a second is enough. */

int
sbx_outlet_resolv_changed(sbx_broker_t *b)
{
    int64_t        now[4];
    uint64_t       us;
    sbx_outlet_t  *o;

    o = &b->outlet;
    us = sbx_now_us();

    if (us - o->looked < 1000000) {
        return 0;
    }

    o->looked = us;
    sbx_outlet_stat(now);

    return memcmp(now, o->resolv, sizeof(now)) != 0;
}


/*
 * ---- sessions ------------------------------------------------------------
 */

static int
sbx_outlet_session(sbx_broker_t *b, sbx_session_t *s)
{
    int                fds[SBX_NET_FDS + 1];
    size_t             size;
    unsigned           n;
    sbx_way_t         *way;
    sbx_egress_task_t  task;

    static uint8_t     buf[sizeof(sbx_egress_task_t) + SBX_NETWORK_SIZE];

    way = &s->way;
    n = 0;
    size = way->op == SBX_EGRESS_REVOKE ? 0 : s->info.network_size;

    if (way->op == SBX_EGRESS_GRANT && way->fds[SBX_NET_TCP4] == -1
        && sbx_way_remake(s) != 0)
    {
        sbx_way_sent(s);
        return 1;
    }

    sbx_outlet_task(&task, way->op, s->info.id);
    task.size = (uint32_t) size;
    task.mode = s->info.network;
    task.connections = s->info.limits.connections;
    task.rate = s->info.limits.network_rate;
    task.bytes = s->info.limits.network_bytes;
    (void) snprintf(task.template, sizeof(task.template), "%s",
                    sbx_create_means(b, s->info.template));

    if (way->op == SBX_EGRESS_GRANT) {
        fds[n++] = way->fds[SBX_NET_TCP4];
        fds[n++] = way->fds[SBX_NET_UDP4];
        task.extra = way->fds[SBX_NET_TCP6] != -1
                     && way->fds[SBX_NET_UDP6] != -1;

        if (task.extra) {
            fds[n++] = way->fds[SBX_NET_TCP6];
            fds[n++] = way->fds[SBX_NET_UDP6];
        }

        fds[n++] = way->traffic;
    }

    memcpy(buf, &task, sizeof(task));

    if (size != 0) {
        memcpy(buf + sizeof(task), way->rules, size);
    }

    if (sbx_wire_send(b->outlet.control, buf, sizeof(task) + size, fds, n,
                      MSG_DONTWAIT)
        == -1)
    {
        return -1;
    }

    SBX_FAULT("broker-egress-granted");
    way->told = way->op != SBX_EGRESS_REVOKE;
    sbx_way_sent(s);

    return 1;
}


static int
sbx_outlet_revoke(sbx_broker_t *b)
{
    sbx_revoked_t      *gone;
    sbx_egress_task_t   task;

    gone = sbx_node_of(b->outlet.revoked.next, sbx_revoked_t, link);
    sbx_outlet_task(&task, SBX_EGRESS_REVOKE, gone->id);

    if (sbx_wire_send(b->outlet.control, &task, sizeof(task), NULL, 0,
                      MSG_DONTWAIT)
        == -1)
    {
        return -1;
    }

    sbx_list_remove(&gone->link);
    b->outlet.nrevoked--;
    free(gone);

    return 1;
}


/*
 * ---- what it says --------------------------------------------------------
 */

void
sbx_outlet_read(sbx_broker_t *b)
{
    int                   fds[SBX_WIRE_FDS_ALL], i;
    ssize_t               n;
    unsigned              nfds;
    sbx_outlet_t         *o;
    sbx_egress_record_t   record;

    o = &b->outlet;

    for (i = 0; i < SBX_OUTLET_RECORDS && o->control_event.active; i++) {
        n = sbx_wire_recv_all(o->control, &record, sizeof(record), fds,
                              &nfds, MSG_DONTWAIT);

        if (n == -1 && errno == EAGAIN) {
            return;
        }

        sbx_discard_all(b, fds, nfds);

        if (n == 0 || (n == -1 && errno == ECONNRESET)) {
            /* its end is told by its pidfd */
            sbx_outlet_kill(b, "it has closed its control socket");
            return;
        }

        if (n != (ssize_t) sizeof(record) || nfds != 0
            || sbx_outlet_record(b, &record) != 0)
        {
            sbx_outlet_kill(b, "it has sent nonsense");
            return;
        }
    }
}


static int
sbx_outlet_record(sbx_broker_t *b, const sbx_egress_record_t *record)
{
    sbx_outlet_t  *o;

    o = &b->outlet;

    if (record->magic != SBX_EGRESS_MAGIC
        || memchr(record->session, '\0', sizeof(record->session)) == NULL
        || memchr(record->name, '\0', sizeof(record->name)) == NULL)
    {
        return -1;
    }

    o->asked = 0;

    switch (record->type) {

    case SBX_EGRESS_HERE:
        return 0;

    case SBX_EGRESS_READY:

        /* to an adopted one it may have been said just before */

        if (!o->ready) {
            o->ready = 1;
            o->failing = 0;
            o->configure = 1;
            sbx_timer_del(&b->loop, &o->timer);
            sbx_log(SBX_LOG_NOTICE, NULL, 0, "the egress is ready");
            sbx_outlet_watch_over(b);
            sbx_way_renew(b);
            sbx_outlet_soon(b);
        }

        return 0;

    case SBX_EGRESS_CONFIGURED:
        o->unfit = record->err != 0 || record->name[0] != '\0';

        if (record->err != 0 || record->name[0] != '\0') {
            sbx_log(SBX_LOG_ERROR, NULL, (int) record->err,
                    "the egress does not take its configuration%s%s",
                    record->name[0] != '\0' ? ": " : "", record->name);
        }

        return 0;

    case SBX_EGRESS_REFUSED:

        if (record->reason >= SBX_REFUSED_REASONS || record->port > 65535) {
            return -1;
        }

        sbx_way_refused(b, record);
        return 0;
    }

    return -1;
}
