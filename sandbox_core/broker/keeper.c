/*
 * The keeper: the process that must not fail, so it does little.
 *
 * It is started by fork and exec (by a server's root master through the
 * client library, by an init system, or by a broker whose keeper has died)
 * and runs as root with one capability, DAC_OVERRIDE, for a log that belongs
 * to somebody else.  The capabilities that the broker needs stay in its
 * bounding set alone, where exec gives them to the broker.
 *
 *   lock      held for life: one keeper for a state directory
 *   listening socket   made here, accepted from by the broker
 *   link      a socketpair to the broker of the day (link.h)
 *   store     descriptors that must outlive a broker: the configuration,
 *             the reservations of ids, a copy of each control connection,
 *             and of each session and of the egress the control socket, the
 *             pidfd and what else is of it.  A new broker inherits all of
 *             them over fork and exec; none is ever sent to it, since the
 *             kernel bounds how many root may have on their way, and who else
 *             has some there is not for us to say
 *
 * Sessions' first processes and the egress are the keeper's children (the
 * broker clones them with CLONE_PARENT), so their ends are seen here and told
 * to the broker.  A broker that dies is started again.
 *
 * Everything ends on a signal, when the broker asks for it, or when the last
 * control connection is gone: the broker is told (or started once more) to
 * end its sessions, and the keeper leaves last.  What a broker did not end,
 * the keeper kills: no signal of its own reaches a first process, which is of
 * another user namespace, but the store has the cgroup.kill of each session,
 * opened by the broker.
 */

#include "keeper.h"
#include "log.h"
#include "sandbox_fault.h"
#include "sandbox_util.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/wait.h>


#define SBX_KEEPER_GRACE        30000000     /* for the first connection */
#define SBX_KEEPER_END_WAIT     30000000
#define SBX_KEEPER_STEADY       5000000      /* a broker that lived so long
                                                is restarted at once */
#define SBX_KEEPER_DELAY_MIN    50000
#ifdef SBX_FAULTS
#define SBX_KEEPER_DELAY_MAX    100000       /* one is killed after another */
#else
#define SBX_KEEPER_DELAY_MAX    2000000
#endif
#define SBX_KEEPER_END_TRIES    3
#define SBX_KEEPER_REAP_WAIT    5000000
#define SBX_KEEPER_REAP_STEP    20           /* ms */
#define SBX_KEEPER_AGAIN        20000        /* the kernel lacked memory */


static void sbx_keeper_run(sbx_keeper_t *k);
static int sbx_keeper_wait_ms(sbx_keeper_t *k);
static void sbx_keeper_timers(sbx_keeper_t *k);
static void sbx_keeper_broker_died(sbx_keeper_t *k, int status);
static void sbx_keeper_signalled(sbx_keeper_t *k);
static void sbx_keeper_reap(sbx_keeper_t *k);
static void sbx_keeper_read(sbx_keeper_t *k);
static void sbx_keeper_message(sbx_keeper_t *k, sbx_link_t *msg, int *fds);
static size_t sbx_keeper_controls(const sbx_keeper_t *k);
static void sbx_keeper_answer(sbx_keeper_t *k, sbx_link_t *msg,
    sbx_link_type_t type);
static void sbx_keeper_tell(sbx_keeper_t *k, const sbx_link_t *msg);
static void sbx_keeper_pump(sbx_keeper_t *k);
static int sbx_keeper_send(sbx_keeper_t *k, const sbx_link_t *msg);
static void sbx_keeper_end(sbx_keeper_t *k, const char *why);
static void sbx_keeper_finish(sbx_keeper_t *k);
static size_t sbx_keeper_left(sbx_keeper_t *k);
static void sbx_keeper_broker(sbx_keeper_t *k, int link)
    __attribute__((noreturn));


int
sbx_keeper_main(sbx_options_t *options)
{
    int           ended;
    sbx_error_t   e;
    sbx_keeper_t  k;

    memset(&k, 0, sizeof(sbx_keeper_t));
    k.options = options;
    k.state = -1;
    k.lock = -1;
    k.listen = options->listen;
    k.signals = -1;
    k.link = -1;

    ended = options->inherit != -1 && options->listen == -1;

    /* a person or an init system that starts it waits on standard error */

    if (options->report == -1 && options->inherit == -1) {
        options->report = fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 3);
    }

    if (sbx_keeper_start(&k, &e) != 0) {
        sbx_log_error(SBX_LOG_ERROR, NULL, &e, "the keeper cannot start");
        sbx_keeper_report(&k, &e);
        return 1;
    }

    sbx_log(SBX_LOG_NOTICE, NULL, 0, "keeper of \"%s\" started",
            options->state_dir);

    if (ended) {
        sbx_keeper_end(&k, "the keeper before was ending it");
    }

    sbx_keeper_run(&k);
    sbx_keeper_finish(&k);

    return k.ready ? 0 : 1;
}


static void
sbx_keeper_run(sbx_keeper_t *k)
{
    size_t          i, n;
    struct pollfd  *pfds;

    for ( ;; ) {
        sbx_keeper_timers(k);
        sbx_keeper_pump(k);

        if (k->done) {
            break;
        }

        pfds = k->pfds;
        pfds[0].fd = k->signals;
        pfds[0].events = POLLIN;
        pfds[1].fd = k->link;
        pfds[1].events = POLLIN;

        if (k->blocked && k->again == 0) {
            pfds[1].events |= POLLOUT;
        }

        n = k->nkept;

        for (i = 0; i < n; i++) {
            pfds[i + 2].fd = k->kept[i].msg.kind == SBX_KEEP_CONTROL
                             ? k->kept[i].fds[0] : -1;
            pfds[i + 2].events = 0;
        }

        if (poll(pfds, n + 2, sbx_keeper_wait_ms(k)) == -1) {
            continue;
        }

        /* from the end: removing moves the last one into the gap */

        for (i = n; i-- > 0; ) {
            if (pfds[i + 2].fd != -1 && pfds[i + 2].revents != 0) {
                sbx_keeper_remove(k, &k->kept[i]);
            }
        }

        if (pfds[1].fd != -1 && pfds[1].revents & (POLLIN|POLLHUP|POLLERR)) {
            sbx_keeper_read(k);
        }

        if (pfds[0].revents != 0) {
            sbx_keeper_signalled(k);
        }
    }
}


static int
sbx_keeper_wait_ms(sbx_keeper_t *k)
{
    uint64_t  now, next;

    now = sbx_now_us();
    next = now + 3600000000;

    if (k->restart != 0 && k->restart < next) {
        next = k->restart;
    }

    if (k->again != 0 && k->again < next) {
        next = k->again;
    }

    if (k->ending && k->end_by < next) {
        next = k->end_by;
    }

    if (!k->had_control && !k->options->standalone && !k->ending
        && k->started + SBX_KEEPER_GRACE < next)
    {
        next = k->started + SBX_KEEPER_GRACE;
    }

    return next <= now ? 0 : (int) ((next - now + 999) / 1000);
}


static void
sbx_keeper_timers(sbx_keeper_t *k)
{
    uint64_t     now;
    sbx_error_t  e;

    now = sbx_now_us();

    if (!k->ending && !k->options->standalone) {
        if (k->had_control && sbx_keeper_controls(k) == 0) {
            sbx_keeper_end(k, "the server is gone");

        } else if (!k->had_control && now >= k->started + SBX_KEEPER_GRACE) {
            sbx_keeper_end(k, "no server has come");
        }
    }

    if (k->ending && now >= k->end_by) {
        sbx_log(SBX_LOG_ERROR, NULL, 0,
                "the broker did not end in time and is killed");
        k->done = 1;
        return;
    }

    if (k->restart != 0 && now >= k->restart) {
        k->restart = 0;

        if (sbx_keeper_spawn(k, &e) != 0) {
            sbx_log_error(SBX_LOG_ERROR, NULL, &e,
                          "the broker cannot be started");
            k->restart = now + SBX_KEEPER_DELAY_MAX;
        }
    }
}


int
sbx_keeper_spawn(sbx_keeper_t *k, sbx_error_t *e)
{
    int            pair[2];
    pid_t          pid;

    if (socketpair(AF_UNIX, SOCK_SEQPACKET|SOCK_CLOEXEC, 0, pair) == -1) {
        return sbx_error(e, errno, SBX_E_INTERNAL, "socketpair() failed");
    }

    pid = fork();

    if (pid == -1) {
        (void) close(pair[0]);
        (void) close(pair[1]);
        return sbx_error(e, errno, SBX_E_UNAVAILABLE, "fork() failed");
    }

    if (pid == 0) {
        sbx_keeper_broker(k, pair[1]);
    }

    (void) close(pair[1]);

    k->link = pair[0];
    k->broker = pid;
    k->broker_started = sbx_now_us();
    k->started_sent = 0;
    k->end_sent = 0;
    k->again = 0;
    k->nqueue = 0;

    sbx_keeper_pid_file(k, "broker.pid", pid);
    SBX_FAULT("keeper-spawn-spawned");

    return 0;
}


/* In the child: it becomes the broker, with all that is kept. */

static void
sbx_keeper_broker(sbx_keeper_t *k, int link)
{
    int            store;
    size_t         i;
    sbx_error_t    e;
    sbx_options_t  options;

    SBX_FAULT("keeper-spawn-forked");
    store = memfd_create("store", MFD_CLOEXEC);

    for (i = 0; store != -1 && i < k->nkept; i++) {
        if (sbx_link_write(store, &k->kept[i].msg, k->kept[i].fds) != 0) {
            store = -1;
        }
    }

    if (store == -1 || lseek(store, 0, SEEK_SET) == -1) {
        sbx_log(SBX_LOG_ERROR, NULL, errno, "the store cannot be handed on");
        _exit(127);
    }

    options = *k->options;
    options.keeper = 0;
    options.broker = 1;
    options.report = -1;
    options.inherit = store;
    options.link = link;
    options.listen = k->listen;

    /* it is the keeper's age that counts, not that of the broker, which may
     * be the successor of another */

    if (sbx_now_us() - k->started >= SBX_KEEPER_LIVES) {
        options.turn = 0;
    }

    (void) sigprocmask(SIG_SETMASK, &k->old_mask, NULL);
    (void) sbx_options_exec(&options, &e);
    sbx_log_error(SBX_LOG_ERROR, NULL, &e, "the broker cannot start");
    _exit(127);
}


static void
sbx_keeper_broker_died(sbx_keeper_t *k, int status)
{
    int       clean;
    uint64_t  now;

    /* what it had stored before it died counts */

    sbx_keeper_read(k);

    if (k->link != -1) {
        (void) close(k->link);
        k->link = -1;
    }

    SBX_FAULT("keeper-died-read");

    k->broker = 0;
    k->blocked = 0;
    k->again = 0;
    now = sbx_now_us();
    clean = WIFEXITED(status) && WEXITSTATUS(status) == 0;

    if (!clean) {
        sbx_log(SBX_LOG_ERROR, NULL, 0, "the broker ended with %s %d",
                WIFSIGNALED(status) ? "signal" : "code",
                WIFSIGNALED(status) ? WTERMSIG(status)
                                    : WEXITSTATUS(status));
    }

    if (!k->ready) {
        (void) sbx_error(&k->error, 0, SBX_E_UNAVAILABLE,
                         "the broker ended at its start: the log \"%s\" "
                         "tells why", k->options->log_path);
        sbx_keeper_report(k, &k->error);
        k->done = 1;
        return;
    }

    if (k->ending && (clean || ++k->end_tries >= SBX_KEEPER_END_TRIES)) {
        k->done = 1;
        return;
    }

    if (now - k->broker_started >= SBX_KEEPER_STEADY) {
        k->delay = 0;

    } else {
        k->delay = k->delay ? k->delay * 2 : SBX_KEEPER_DELAY_MIN;
    }

    if (k->delay > SBX_KEEPER_DELAY_MAX) {
        k->delay = SBX_KEEPER_DELAY_MAX;
    }

    k->restarts++;
    k->restart = now + k->delay;
}


static void
sbx_keeper_signalled(sbx_keeper_t *k)
{
    struct signalfd_siginfo  info;

    while (read(k->signals, &info, sizeof(info)) == sizeof(info)) {
        if (info.ssi_signo == SIGTERM || info.ssi_signo == SIGINT
            || info.ssi_signo == SIGQUIT)
        {
            sbx_keeper_end(k, "a signal asks for it");
        }
    }

    sbx_keeper_reap(k);
}


static void
sbx_keeper_reap(sbx_keeper_t *k)
{
    int          status;
    pid_t        pid;
    size_t       i;
    sbx_link_t   msg;
    sbx_kept_t  *kept;

    while ((pid = waitpid(-1, &status, WNOHANG)) > 0) {

        if (pid == k->broker) {
            sbx_keeper_broker_died(k, status);
            continue;
        }

        for (i = 0; i < k->nkept; i++) {
            kept = &k->kept[i];

            if ((kept->msg.kind == SBX_KEEP_SESSION
                 || kept->msg.kind == SBX_KEEP_EGRESS)
                && kept->msg.pid == pid
                && !(kept->msg.flags & (SBX_LINK_EXITED|SBX_LINK_ORPHAN)))
            {
                kept->msg.flags |= SBX_LINK_EXITED;
                kept->msg.status = status;
                break;
            }
        }

        SBX_FAULT("keeper-exit-reaped");

        /* also of one that is not in the store, or not yet */

        memset(&msg, 0, sizeof(sbx_link_t));
        msg.type = SBX_LINK_EXIT;
        msg.pid = pid;
        msg.status = status;
        sbx_keeper_tell(k, &msg);
    }
}


static void
sbx_keeper_read(sbx_keeper_t *k)
{
    int         fds[SBX_LINK_FDS], rc;
    sbx_link_t  msg;

    if (k->link == -1) {
        return;
    }

    while ((rc = sbx_link_recv(k->link, &msg, fds)) > 0) {
        if (rc == 2) {
            sbx_keeper_answer(k, &msg, SBX_LINK_REFUSED);
            continue;
        }

        sbx_keeper_message(k, &msg, fds);
    }

    if (rc == -1 && errno == EAGAIN) {
        return;
    }

    /* its end is told by SIGCHLD; one that only closed the link is of no
     * use to anybody */

    (void) close(k->link);
    k->link = -1;

    if (k->broker != 0) {
        (void) kill(k->broker, SIGKILL);
    }
}


static void
sbx_keeper_message(sbx_keeper_t *k, sbx_link_t *msg, int *fds)
{
    sbx_kept_t  *kept;

    switch (msg->type) {

    case SBX_LINK_STORE:
        if (sbx_keeper_store(k, msg, fds) != 0) {
            sbx_keeper_answer(k, msg, SBX_LINK_REFUSED);
            break;
        }

        if (msg->kind == SBX_KEEP_SESSION) {
            SBX_FAULT("keeper-store-kept");
        }

        /* one that came too late gets no answer, and tries again */

        if (msg->kind == SBX_KEEP_CONTROL && k->ending) {
            break;
        }

        k->had_control |= msg->kind == SBX_KEEP_CONTROL;
        sbx_keeper_answer(k, msg, SBX_LINK_STORED);

        break;

    case SBX_LINK_DROP:
        kept = sbx_keeper_find(k, msg);

        if (kept != NULL) {
            sbx_keeper_remove(k, kept);
        }

        SBX_FAULT("keeper-drop-dropped");
        break;

    case SBX_LINK_TOLD:
        kept = sbx_keeper_find(k, msg);

        if (kept != NULL) {
            kept->msg.flags &= ~(uint32_t) SBX_LINK_UNTOLD;
        }

        break;

    case SBX_LINK_READY:
        k->ready = 1;
        sbx_keeper_report(k, NULL);
        break;

    case SBX_LINK_END:
        sbx_keeper_end(k, "the broker asks for it");
        break;
    }
}


static size_t
sbx_keeper_controls(const sbx_keeper_t *k)
{
    size_t  i, n;

    n = 0;

    for (i = 0; i < k->nkept; i++) {
        n += k->kept[i].msg.kind == SBX_KEEP_CONTROL;
    }

    return n;
}


static void
sbx_keeper_answer(sbx_keeper_t *k, sbx_link_t *msg, sbx_link_type_t type)
{
    msg->type = (uint16_t) type;
    sbx_keeper_tell(k, msg);
}


static void
sbx_keeper_tell(sbx_keeper_t *k, const sbx_link_t *msg)
{
    size_t       size;
    sbx_link_t  *queue;

    if (k->link == -1) {
        return;
    }

    if (k->nqueue == k->queue_size) {
        size = k->queue_size ? k->queue_size * 2 : 64;
        queue = realloc(k->queue, size * sizeof(sbx_link_t));

        if (queue == NULL) {
            /* a broker that missed something is replaced by one that is
             * sent everything */
            (void) kill(k->broker, SIGKILL);
            return;
        }

        k->queue = queue;
        k->queue_size = size;
    }

    k->queue[k->nqueue] = *msg;
    k->queue[k->nqueue++].magic = SBX_LINK_MAGIC;
}


/* Sends what there is, in order. */

static void
sbx_keeper_pump(sbx_keeper_t *k)
{
    size_t      i;
    sbx_link_t  msg;

    k->blocked = 1;

    if (k->link == -1 || (k->again != 0 && sbx_now_us() < k->again)) {
        return;
    }

    k->again = 0;
    memset(&msg, 0, sizeof(sbx_link_t));
    msg.magic = SBX_LINK_MAGIC;
    msg.type = SBX_LINK_STARTED;
    msg.number = k->restarts;

    if (!k->started_sent) {
        if (sbx_keeper_send(k, &msg) != 0) {
            return;
        }

        k->started_sent = 1;
    }

    for (i = 0; i < k->nqueue; i++) {
        if (sbx_keeper_send(k, &k->queue[i]) != 0) {
            break;
        }
    }

    if (i != 0) {
        memmove(k->queue, k->queue + i,
                (k->nqueue - i) * sizeof(sbx_link_t));
        k->nqueue -= i;
    }

    if (k->nqueue != 0) {
        return;
    }

    if (k->ending && !k->end_sent) {
        msg.type = SBX_LINK_END;

        if (sbx_keeper_send(k, &msg) != 0) {
            return;
        }

        k->end_sent = 1;
    }

    k->blocked = 0;
}


/* That there is room again is an event; that there is memory is not, and a
 * link that is ready would have us try without end. */

static int
sbx_keeper_send(sbx_keeper_t *k, const sbx_link_t *msg)
{
    if (sbx_link_send(k->link, msg, NULL, 0) == 0) {
        return 0;
    }

    if (errno != EAGAIN) {
        k->again = sbx_now_us() + SBX_KEEPER_AGAIN;
    }

    return -1;
}


static void
sbx_keeper_end(sbx_keeper_t *k, const char *why)
{
    if (k->ending) {
        return;
    }

    sbx_log(SBX_LOG_NOTICE, NULL, 0, "everything ends: %s", why);

    k->ending = 1;
    k->end_by = sbx_now_us() + SBX_KEEPER_END_WAIT;

    /* no name, no callers: a server that starts now makes its own keeper */

    if (k->listen != -1) {
        (void) unlinkat(k->state, SBX_KEEPER_SOCKET, 0);
        (void) close(k->listen);
        k->listen = -1;
    }

    if (k->restart != 0) {
        k->restart = sbx_now_us();
    }
}


/*
 * Most of what there was has ended by itself, or by the broker.  A first
 * process that does not is stopped, or is no longer ours: all of its session
 * is killed by its groups.
 */

static void
sbx_keeper_finish(sbx_keeper_t *k)
{
    int          status;
    pid_t        pid;
    size_t       i;
    uint64_t     until;
    sbx_kept_t  *kept;

    if (k->broker != 0) {
        (void) kill(k->broker, SIGKILL);
    }

    /* the egress ends when nobody has the other end of its socket; from the
     * last one on: removing moves that into the gap */

    for (i = k->nkept; i-- > 0; ) {
        kept = &k->kept[i];

        if (kept->msg.kind == SBX_KEEP_EGRESS) {
            sbx_keeper_remove(k, kept);

        } else if (kept->msg.kind == SBX_KEEP_SESSION
                   && write(kept->fds[5], "1", 1) == -1 && errno != ENODEV)
        {
            sbx_log(SBX_LOG_ERROR, &(sbx_log_about_t) { NULL, kept->msg.id },
                    errno, "the session cannot be killed");
        }
    }

    until = sbx_now_us() + SBX_KEEPER_REAP_WAIT;

    while (sbx_now_us() < until) {
        pid = waitpid(-1, &status, WNOHANG);

        if (pid == -1 && sbx_keeper_left(k) == 0) {
            break;
        }

        if (pid <= 0) {
            (void) poll(NULL, 0, SBX_KEEPER_REAP_STEP);
        }
    }

    (void) sbx_keeper_left(k);

    for (i = 0; i < k->nkept; i++) {
        if (k->kept[i].msg.kind == SBX_KEEP_SESSION
            && !(k->kept[i].msg.flags & SBX_LINK_EXITED))
        {
            sbx_log(SBX_LOG_ERROR,
                    &(sbx_log_about_t) { NULL, k->kept[i].msg.id }, 0,
                    "the session's first process, %d, does not die",
                    (int) k->kept[i].msg.pid);
        }
    }

    (void) unlinkat(k->state, SBX_KEEPER_SOCKET, 0);
    (void) unlinkat(k->state, "broker.pid", 0);
    (void) unlinkat(k->state, "keeper.pid", 0);

    sbx_keeper_store_close(k);
    free(k->queue);

    sbx_log(SBX_LOG_NOTICE, NULL, 0, "keeper of \"%s\" ended",
            k->options->state_dir);
}


/* How many first processes live, our children or not. */

static size_t
sbx_keeper_left(sbx_keeper_t *k)
{
    size_t         i, n;
    sbx_kept_t    *kept;
    struct pollfd  pfd;

    n = 0;

    for (i = 0; i < k->nkept; i++) {
        kept = &k->kept[i];

        if (kept->msg.kind != SBX_KEEP_SESSION
            || (kept->msg.flags & SBX_LINK_EXITED))
        {
            continue;
        }

        pfd.fd = kept->fds[1];
        pfd.events = POLLIN;

        if (poll(&pfd, 1, 0) == 1) {
            kept->msg.flags |= SBX_LINK_EXITED;

        } else {
            n++;
        }
    }

    return n;
}
