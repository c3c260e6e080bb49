/*
 * The egress's process, as the broker sees it: started when configuration
 * first grants anything, ended with the broker, and started again whenever it
 * is gone.  It is the keeper's child, and the broker's end of its control
 * socket is in the keeper's store: it goes on while brokers come and go.
 *
 *   none      -> starting   a configuration, or the timer after an end
 *   starting  -> ready      it has said READY; else it is killed
 *   ready     -> none       it has died, or was killed for what it has done,
 *                           or as it did not answer for 10 seconds
 *
 * It is of a user of its own: the first of 65,536 host ids that are taken as
 * a session's are, and kept for the next one.  Nothing here waits for it, but
 * for its very first certificate: sbx_outlet_await().
 */

#include "broker.h"
#include "sandbox_fault.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>


#define SBX_OUTLET_READY_WAIT   5000      /* ms */
#define SBX_OUTLET_KILL_WAIT    1000
#define SBX_OUTLET_AWAIT        2000
#define SBX_OUTLET_DELAY_MIN    20
#define SBX_OUTLET_DELAY_MAX    5000
#define SBX_OUTLET_STEADY       5000000   /* us: one that lived so long is
                                             replaced at once */
#define SBX_OUTLET_ASK          2000      /* ms */
#define SBX_OUTLET_ASKED_MAX    5         /* and no answer: it hangs */
#define SBX_OUTLET_CERT_MAX     16384
#define SBX_OUTLET_KEY          "egress-ca.pem"
#define SBX_OUTLET_CERT         "egress-ca.crt"


static void sbx_outlet_control(sbx_event_t *ev, uint32_t events);
static void sbx_outlet_pidfd(sbx_event_t *ev, uint32_t events);
static void sbx_outlet_timer(sbx_timer_t *timer);
static void sbx_outlet_pump(sbx_timer_t *timer);
static void sbx_outlet_ask(sbx_timer_t *timer);
static int sbx_outlet_grants(const sbx_config_t *config, int tls);
static void sbx_outlet_start(sbx_broker_t *b);
static int sbx_outlet_launch(sbx_broker_t *b, sbx_error_t *e);
static int sbx_outlet_file(sbx_broker_t *b, const char *name, mode_t mode,
    sbx_error_t *e);
static int sbx_outlet_watch(sbx_broker_t *b);
static void sbx_outlet_gone(sbx_broker_t *b);
static void sbx_outlet_again(sbx_broker_t *b);
static void sbx_outlet_let_go(sbx_broker_t *b);
static int sbx_outlet_signal(const sbx_outlet_t *o);


void
sbx_outlet_open(sbx_broker_t *b)
{
    sbx_outlet_t  *o;

    o = &b->outlet;
    o->control = -1;
    o->pidfd = -1;
    o->control_event.handler = sbx_outlet_control;
    o->control_event.data = b;
    o->pidfd_event.handler = sbx_outlet_pidfd;
    o->pidfd_event.data = b;
    o->timer.handler = sbx_outlet_timer;
    o->timer.data = b;
    o->pump.handler = sbx_outlet_pump;
    o->pump.data = b;
    o->watch.handler = sbx_outlet_ask;
    o->watch.data = b;
    sbx_list_init(&o->todo);
    sbx_list_init(&o->revoked);
    sbx_list_init(&o->listeners);
}


void
sbx_outlet_close(sbx_broker_t *b)
{
    sbx_outlet_t  *o;

    o = &b->outlet;
    o->wanted = 0;
    o->adopted = 0;

    if (o->pid != 0) {
        (void) sbx_outlet_signal(o);
    }

    sbx_outlet_let_go(b);
    sbx_ids_slot_give(b, &o->slot);
}


void
sbx_outlet_adopt(sbx_broker_t *b, pid_t pid, uint64_t first, const int *fds)
{
    sbx_outlet_t  *o;

    o = &b->outlet;

    /* there is one at most; should there be two, they have no owner, nor has
     * what is no process */

    if (o->pid != 0 || pid <= 0) {
        (void) close(fds[0]);
        (void) close(fds[1]);
        return;
    }

    o->pid = pid;
    o->control = fds[0];
    o->pidfd = fds[1];
    o->uid = (uid_t) first;
    o->adopted = 1;
}


void
sbx_outlet_adopted(sbx_broker_t *b)
{
    if (b->outlet.adopted) {
        (void) sbx_outlet_signal(&b->outlet);
        b->outlet.adopted = 0;
        sbx_outlet_let_go(b);
    }
}


void
sbx_outlet_configure(sbx_broker_t *b)
{
    sbx_outlet_t  *o;

    o = &b->outlet;
    o->wanted = sbx_outlet_grants(&b->config, 0) ? 1 : 0;
    o->configure = 1;
    o->delay = 0;

    if (o->adopted) {
        o->adopted = 0;
        o->ready = 1;
        o->started = sbx_now_us();
        o->slot.first = o->uid;
        sbx_outlet_watch_over(b);

        if (sbx_outlet_watch(b) != 0) {
            sbx_outlet_kill(b, "it cannot be watched");
        }

        /* one that is killed is not listened to any more */

        if (sbx_ids_slot_again(b, &o->slot) != 0) {
            o->slot.first = 0;
            sbx_outlet_kill(b, "its ids are not ours");
        }
    }

    if (o->pid != 0) {
        sbx_outlet_soon(b);

    } else if (o->wanted) {
        sbx_outlet_start(b);
    }
}


/* Whether a table has a rule that allows, or a header within TLS. */

static int
sbx_outlet_grants(const sbx_config_t *config, int tls)
{
    char              type;
    sbx_egress_row_t  row;

    memset(&row, 0, sizeof(sbx_egress_row_t));
    type = tls ? SBX_EGRESS_TLS_HEADER : SBX_EGRESS_ALLOW;

    while (sbx_egress_row_next(config->egress, config->egress_size, &row)
           == 1)
    {
        if (row.type == type) {
            return 1;
        }
    }

    return 0;
}


static void
sbx_outlet_start(sbx_broker_t *b)
{
    sbx_error_t    e;
    sbx_outlet_t  *o;

    o = &b->outlet;
    memset(&e, 0, sizeof(sbx_error_t));
    o->started = sbx_now_us();

    if (sbx_outlet_launch(b, &e) == 0) {
        sbx_timer_set(&b->loop, &o->timer, SBX_OUTLET_READY_WAIT);
        return;
    }

    /* it is tried again and again, and told once */

    if (!o->failing) {
        o->failing = 1;
        sbx_log_error(SBX_LOG_ERROR, NULL, &e,
                      "the egress cannot be started");
    }

    sbx_outlet_again(b);
}


static int
sbx_outlet_launch(sbx_broker_t *b, sbx_error_t *e)
{
    int                  pair[2];
    char                 path[SBX_PATH_MAX];
    sbx_auto_fd          exe = -1, ca = -1, cert = -1, near = -1, far = -1;
    sbx_outlet_t        *o;
    sbx_egress_launch_t  launch;

    o = &b->outlet;

    if (snprintf(path, sizeof(path), "%s/sandbox-egress",
                 b->options->helper_dir)
        >= (int) sizeof(path))
    {
        return sbx_error(e, 0, SBX_E_UNAVAILABLE,
                         "sandbox_helper_dir is too long");
    }

    if (sbx_init_exe(path, &exe, e) != 0
        || (o->slot.first == 0 && sbx_ids_slot(b, &o->slot, e) != 0))
    {
        return -1;
    }

    ca = sbx_outlet_file(b, SBX_OUTLET_KEY, 0600, e);
    cert = ca == -1 ? -1 : sbx_outlet_file(b, SBX_OUTLET_CERT, 0644, e);

    if (cert == -1) {
        return -1;
    }

    if (socketpair(AF_UNIX, SOCK_SEQPACKET|SOCK_CLOEXEC|SOCK_NONBLOCK, 0,
                   pair)
        == -1)
    {
        return sbx_error(e, errno, SBX_E_INTERNAL, "socketpair() failed");
    }

    near = pair[0];
    far = pair[1];

    memset(&launch, 0, sizeof(sbx_egress_launch_t));
    launch.exe = exe;
    launch.control = far;
    launch.ca = ca;
    launch.cert = cert;
    launch.log = STDERR_FILENO;
    launch.uid = (uint32_t) o->slot.first;
    launch.open_files = b->open_files;

    if (sbx_egress_launch(&launch, &o->pid, &o->pidfd, e) != 0) {
        o->pid = 0;
        o->pidfd = -1;
        return -1;
    }

    SBX_FAULT("broker-egress-launched");

    o->control = sbx_steal_fd(&near);
    o->uid = launch.uid;
    o->unkept = 0;

    if (sbx_outlet_keep(b) != 0) {
        sbx_outlet_kill(b, "it cannot be kept");
    }

    SBX_FAULT("broker-egress-stored");

    if (sbx_outlet_watch(b) != 0) {
        sbx_outlet_kill(b, "it cannot be watched");
    }

    return 0;
}


int
sbx_outlet_keep(sbx_broker_t *b)
{
    int            pair[2];
    sbx_link_t     msg;
    sbx_outlet_t  *o;

    o = &b->outlet;
    pair[0] = o->control;
    pair[1] = o->pidfd;

    memset(&msg, 0, sizeof(sbx_link_t));
    msg.type = SBX_LINK_STORE;
    msg.kind = SBX_KEEP_EGRESS;
    msg.pid = o->pid;
    msg.number = o->slot.first;

    return sbx_broker_post(b, &msg, pair);
}


/* Root's, whoever is given the descriptor. */

static int
sbx_outlet_file(sbx_broker_t *b, const char *name, mode_t mode,
    sbx_error_t *e)
{
    struct stat  st;
    sbx_auto_fd  fd = -1;

    fd = openat(b->state, name, O_RDWR|O_CREAT|O_CLOEXEC|O_NOFOLLOW|O_NONBLOCK,
                0600);

    if (fd == -1 || fstat(fd, &st) == -1) {
        (void) sbx_error(e, errno, SBX_E_UNAVAILABLE,
                         "cannot open \"%s/%s\"", b->options->state_dir,
                         name);
        return -1;
    }

    if (!S_ISREG(st.st_mode) || st.st_uid != 0 || fchmod(fd, mode) == -1) {
        (void) sbx_error(e, 0, SBX_E_UNAVAILABLE,
                         "\"%s/%s\" is not a file of root's",
                         b->options->state_dir, name);
        return -1;
    }

    return sbx_steal_fd(&fd);
}


static int
sbx_outlet_watch(sbx_broker_t *b)
{
    sbx_outlet_t  *o;

    o = &b->outlet;

    return sbx_event_add(&b->loop, &o->control_event, o->control, EPOLLIN)
           == 0
           && sbx_event_add(&b->loop, &o->pidfd_event, o->pidfd, EPOLLIN)
              == 0 ? 0 : -1;
}


static void
sbx_outlet_control(sbx_event_t *ev, uint32_t events)
{
    sbx_broker_t  *b;

    b = ev->data;

    if (events & EPOLLOUT) {
        sbx_outlet_send(b);
    }

    if (ev->active) {
        sbx_outlet_read(b);
    }
}


static void
sbx_outlet_pidfd(sbx_event_t *ev, uint32_t events)
{
    (void) events;

    sbx_outlet_gone(ev->data);
}


int
sbx_outlet_exited(sbx_broker_t *b, pid_t pid)
{
    if (pid == 0 || b->outlet.pid != pid) {
        return 0;
    }

    sbx_outlet_gone(b);

    return 1;
}


/* READY is late, one that was killed is still there, or it is time for the
 * next one. */

static void
sbx_outlet_timer(sbx_timer_t *timer)
{
    sbx_broker_t  *b;
    sbx_outlet_t  *o;

    b = timer->data;
    o = &b->outlet;

    if (b->ending) {
        return;
    }

    if (o->killed) {
        (void) sbx_outlet_signal(o);
        sbx_timer_set(&b->loop, timer, SBX_OUTLET_KILL_WAIT);

    } else if (o->pid != 0 && !o->ready) {
        o->failing = 1;
        sbx_outlet_kill(b, "it was not ready in time");

    } else if (o->pid == 0 && o->wanted) {
        sbx_outlet_start(b);
    }
}


static void
sbx_outlet_pump(sbx_timer_t *timer)
{
    sbx_outlet_send(timer->data);
}


void
sbx_outlet_watch_over(sbx_broker_t *b)
{
    b->outlet.asked = 0;
    sbx_timer_set(&b->loop, &b->outlet.watch, SBX_OUTLET_ASK);
}


/* Times are counted, as a machine may have stood still. */

static void
sbx_outlet_ask(sbx_timer_t *timer)
{
    sbx_broker_t  *b;
    sbx_outlet_t  *o;

    b = timer->data;
    o = &b->outlet;

    if (!o->ready || b->ending) {
        return;
    }

    if (o->asked == SBX_OUTLET_ASKED_MAX) {
        sbx_outlet_kill(b, "it does not answer");
        return;
    }

    o->asked++;
    o->ask = 1;
    sbx_timer_set(&b->loop, timer, SBX_OUTLET_ASK);
    sbx_outlet_soon(b);
}


void
sbx_outlet_soon(sbx_broker_t *b)
{
    sbx_outlet_t  *o;

    o = &b->outlet;

    if (o->ready && o->stuck == 0) {
        sbx_timer_set(&b->loop, &o->pump, 0);
    }
}


void
sbx_outlet_kill(sbx_broker_t *b, const char *why)
{
    sbx_outlet_t  *o;

    o = &b->outlet;

    if (o->pid == 0 || o->killed) {
        return;
    }

    sbx_log(SBX_LOG_ERROR, NULL, 0, "the egress is killed: %s", why);

    o->killed = 1;
    o->ready = 0;
    sbx_event_del(&b->loop, &o->control_event);
    sbx_timer_del(&b->loop, &o->pump);
    sbx_timer_del(&b->loop, &o->watch);
    (void) sbx_outlet_signal(o);
    sbx_timer_set(&b->loop, &o->timer, SBX_OUTLET_KILL_WAIT);
}


static void
sbx_outlet_gone(sbx_broker_t *b)
{
    sbx_outlet_t  *o;

    o = &b->outlet;

    if (!o->killed) {
        sbx_log(SBX_LOG_ERROR, NULL, 0, "the egress has ended");
    }

    if (!o->ready && !o->killed) {
        o->failing = 1;
    }

    sbx_outlet_let_go(b);

    if (o->wanted && !b->ending) {
        o->restarts++;
        sbx_outlet_again(b);
    }
}


/* The next one, the later the sooner the last one was gone. */

static void
sbx_outlet_again(sbx_broker_t *b)
{
    sbx_outlet_t  *o;

    o = &b->outlet;

    if (sbx_now_us() - o->started >= SBX_OUTLET_STEADY) {
        o->delay = 0;

    } else {
        o->delay = o->delay != 0 ? o->delay * 2 : SBX_OUTLET_DELAY_MIN;
    }

    if (o->delay > SBX_OUTLET_DELAY_MAX) {
        o->delay = SBX_OUTLET_DELAY_MAX;
    }

    sbx_timer_set(&b->loop, &o->timer, o->delay);
}


/* What there is of it, here and in the keeper's store. */

static void
sbx_outlet_let_go(sbx_broker_t *b)
{
    sbx_link_t     msg;
    sbx_outlet_t  *o;

    o = &b->outlet;

    sbx_timer_del(&b->loop, &o->timer);
    sbx_timer_del(&b->loop, &o->pump);
    sbx_timer_del(&b->loop, &o->watch);

    if (o->pid != 0) {
        sbx_event_del(&b->loop, &o->control_event);
        sbx_event_del(&b->loop, &o->pidfd_event);

        memset(&msg, 0, sizeof(sbx_link_t));
        msg.type = SBX_LINK_DROP;
        msg.kind = SBX_KEEP_EGRESS;
        msg.number = o->uid;
        (void) sbx_broker_post(b, &msg, NULL);

        (void) close(o->control);
        (void) close(o->pidfd);
    }

    o->control = -1;
    o->pidfd = -1;
    o->pid = 0;
    o->ready = 0;
    o->killed = 0;
    o->unfit = 0;
    o->stuck = 0;
    o->ask = 0;

    sbx_way_lost(b);
}


/*
 * The egress has no capability that would have us need CAP_KILL, which a
 * broker has not: for a moment this thread is of the egress's user.  Its
 * capabilities come back with its own.
 */

static int
sbx_outlet_signal(const sbx_outlet_t *o)
{
    int  err, rc;

    rc = (int) syscall(SYS_pidfd_send_signal, o->pidfd, SIGKILL, NULL, 0);

    if (rc == 0 || errno != EPERM) {
        return rc;
    }

    if (syscall(SYS_setresuid, -1, o->uid, -1) == -1) {
        return -1;
    }

    rc = (int) syscall(SYS_pidfd_send_signal, o->pidfd, SIGKILL, NULL, 0);
    err = errno;

    if (syscall(SYS_setresuid, -1, 0, -1) == -1) {
        abort();
    }

    (void) prctl(PR_SET_DUMPABLE, 0, 0, 0, 0);
    errno = err;

    return rc;
}


/*
 * Sessions that are to trust its certificates wait for it no longer than
 * this, once for a state directory.
 */

void
sbx_outlet_await(sbx_broker_t *b)
{
    uint64_t        until, now;
    struct stat     st;
    sbx_outlet_t   *o;
    struct pollfd   pfd;

    o = &b->outlet;

    if (o->pid == 0 || o->ready || !sbx_outlet_grants(&b->config, 1)
        || (fstatat(b->state, SBX_OUTLET_CERT, &st, AT_SYMLINK_NOFOLLOW) == 0
            && st.st_size != 0))
    {
        return;
    }

    until = sbx_now_us() + (uint64_t) SBX_OUTLET_AWAIT * 1000;

    while (o->pid != 0 && !o->ready && !o->killed) {
        now = sbx_now_us();
        pfd.fd = o->control;
        pfd.events = POLLIN;

        if (now >= until
            || poll(&pfd, 1, (int) ((until - now) / 1000) + 1) != 1)
        {
            return;
        }

        sbx_outlet_read(b);
    }
}


int
sbx_outlet_trust(const sbx_broker_t *b, const char *template, char **pem,
    size_t *size, sbx_error_t *e)
{
    ssize_t      n;
    sbx_auto_fd  fd = -1;

    *size = 0;

    if (sbx_egress_table_tls(b->config.egress, b->config.egress_size,
                             sbx_create_means(b, template))
        != 1)
    {
        return 0;
    }

    fd = openat(b->state, SBX_OUTLET_CERT, O_RDONLY|O_CLOEXEC|O_NOFOLLOW);
    *pem = malloc(SBX_OUTLET_CERT_MAX + 1);

    if (*pem == NULL) {
        return sbx_error(e, ENOMEM, SBX_E_UNAVAILABLE, "out of memory");
    }

    n = fd == -1 ? 0 : sbx_read_full(fd, *pem, SBX_OUTLET_CERT_MAX + 1);

    if (n <= 0 || n > SBX_OUTLET_CERT_MAX) {
        return sbx_error(e, 0, SBX_E_UNAVAILABLE,
                         "the egress has not made its certificate yet");
    }

    *size = (size_t) n;

    return 0;
}


int
sbx_outlet_lacking(const sbx_broker_t *b)
{
    return b->outlet.wanted && (!b->outlet.ready || b->outlet.unfit);
}


void
sbx_outlet_check(const sbx_broker_t *b, sbx_f_check_t *check)
{
    const sbx_outlet_t  *o;

    o = &b->outlet;
    memset(check, 0, sizeof(sbx_f_check_t));
    (void) strcpy(check->name, "egress");
    check->ok = o->ready && !o->unfit;

    if (o->ready && o->unfit) {
        (void) snprintf(check->found, sizeof(check->found),
                        "it has not taken the configuration: what it had "
                        "before holds");
        (void) snprintf(check->mend, sizeof(check->mend),
                        "read why in the error log, and reload");
        return;
    }

    if (o->ready) {
        (void) snprintf(check->found, sizeof(check->found),
                        "process %d, started again %llu times", (int) o->pid,
                        (unsigned long long) o->restarts);
        return;
    }

    (void) snprintf(check->found, sizeof(check->found),
                    "it does not run: sessions reach nothing");
    (void) snprintf(check->mend, sizeof(check->mend),
                    "read why in the error log; the program is "
                    "\"%.200s/sandbox-egress\"", b->options->helper_dir);
}
