/*
 * The broker: makes sessions, hands calls to them, ends them.
 *
 * Started by the keeper, as root; it drops to the capabilities that it uses
 * before it reads anything from anybody but its keeper.  What it reads later
 * are datagrams of fixed layouts from the server's workers and records of a
 * fixed size from sessions' inits.
 *
 * What it must not lose when it dies is in the keeper's store and in the
 * sessions' records.  If the keeper dies instead, the broker writes the store
 * into a memfd and becomes the keeper by exec: the same descriptors, and a
 * new broker below it.
 */

#include "broker.h"
#include "keeper.h"
#include "sandbox_fault.h"
#include "unkept.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>


#define SBX_BROKER_STARTED_WAIT 10000     /* ms */
#define SBX_BROKER_LETTERS_WAIT 20
#define SBX_BROKER_TURNS        5         /* keepers that do not, in a row */


struct sbx_letter_s {
    sbx_letter_t   *next;
    sbx_link_t      msg;
    unsigned        nfds;
    int             fds[SBX_LINK_FDS];
};

/* A session of the store; adopted when everything else is there. */

typedef struct {
    sbx_link_t      msg;
    int             fds[SBX_LINK_FDS];
} sbx_stored_t;

typedef struct {
    sbx_stored_t   *sessions;
    size_t          n;
    size_t          size;
    int             config;
} sbx_store_t;


static int sbx_broker_start(sbx_broker_t *b, sbx_error_t *e);
static int sbx_broker_files(sbx_broker_t *b, sbx_error_t *e);
static void sbx_broker_signals(void);
static void sbx_broker_signal(int signo);
static int sbx_broker_store(sbx_broker_t *b, sbx_store_t *store,
    sbx_error_t *e);
static int sbx_broker_stored(sbx_broker_t *b, sbx_store_t *store,
    const sbx_link_t *msg, const int *fds);
static int sbx_broker_started(sbx_broker_t *b, sbx_store_t *store,
    sbx_error_t *e);
static int sbx_broker_restore(sbx_broker_t *b, sbx_store_t *store,
    sbx_error_t *e);
static void sbx_broker_link(sbx_event_t *ev, uint32_t events);
static void sbx_broker_letters(sbx_broker_t *b);
static void sbx_broker_letters_again(sbx_timer_t *timer);
static void sbx_broker_letters_wait(sbx_broker_t *b, int err);
static sbx_letter_t *sbx_broker_letter(const sbx_link_t *msg,
    const int *fds);
static void sbx_broker_letter_free(sbx_letter_t *letter);
static void sbx_broker_records(sbx_event_t *ev, uint32_t events);
static void sbx_broker_take_over(sbx_broker_t *b);
static void sbx_broker_bequeath(int out, sbx_keep_t kind, uint64_t number,
    const sbx_session_t *s, const int *fds);
static void sbx_broker_bequeath_egress(const sbx_broker_t *b, int out);
static void sbx_broker_done(sbx_broker_t *b);


int
sbx_broker_main(sbx_options_t *options)
{
    int            rc;
    sbx_error_t    e;
    sbx_broker_t  *b;

    b = calloc(1, sizeof(sbx_broker_t));

    if (b == NULL) {
        return 1;
    }

    b->options = options;
    b->started = sbx_now_us();
    b->started_ms = sbx_broker_clock_ms();
    b->state = -1;
    b->sessions_dir = -1;
    b->init_exe = -1;
    b->graves.fd = -1;

    rc = sbx_log_open(options->log_path, &e);

    if (rc == 0) {
        rc = sbx_broker_start(b, &e);
    }

    if (rc == 0) {
        rc = sbx_loop_run(&b->loop, &e);
    }

    if (rc != 0) {
        sbx_log_error(SBX_LOG_ERROR, NULL, &e, "the broker ends");
        return 1;
    }

    sbx_broker_done(b);
    free(b);

    return 0;
}


static int
sbx_broker_start(sbx_broker_t *b, sbx_error_t *e)
{
    sbx_store_t  store;

    (void) umask(077);
    sbx_broker_signals();

    sbx_list_init(&b->controls);
    sbx_list_init(&b->calls);
    sbx_list_init(&b->sessions);
    sbx_pool_open(b);
    sbx_outlet_open(b);
    b->letters_last = &b->letters;
    b->letters_timer.handler = sbx_broker_letters_again;
    b->letters_timer.data = b;
    b->link_event.handler = sbx_broker_link;
    b->link_event.data = b;
    b->writer_event.handler = sbx_broker_records;
    b->writer_event.data = b;

    (void) sbx_error(&b->problem, 0, SBX_E_UNAVAILABLE,
                     "the broker has not been configured yet");

    if (sbx_process_hide(e) != 0
        || sbx_caps_reduce_broker(e) != 0
        || sbx_loop_init(&b->loop, e) != 0
        || sbx_broker_files(b, e) != 0)
    {
        return -1;
    }

    sbx_languages_open(b);
    sbx_command_costs(b);

    memset(&store, 0, sizeof(sbx_store_t));
    store.config = -1;

    if (sbx_broker_store(b, &store, e) != 0
        || sbx_broker_started(b, &store, e) != 0)
    {
        return -1;
    }

    if (sbx_event_add(&b->loop, &b->link_event, b->options->link, EPOLLIN)
        == -1
        || sbx_event_add(&b->loop, &b->writer_event, b->writer.event,
                         EPOLLIN)
           == -1)
    {
        return sbx_error(e, errno, SBX_E_INTERNAL, "epoll_ctl() failed");
    }

    SBX_FAULT("broker-start-stored");

    if (sbx_broker_restore(b, &store, e) != 0) {
        return -1;
    }

    SBX_FAULT("broker-start-restored");

    if (b->options->listen != -1 && sbx_control_listen(b, e) != 0) {
        return -1;
    }

    (void) sbx_broker_tell(b, SBX_LINK_READY, SBX_KEEP_NONE, 0, NULL, NULL);

    return 0;
}


static int
sbx_broker_files(sbx_broker_t *b, sbx_error_t *e)
{
    struct rlimit  files;

    if (getrlimit(RLIMIT_NOFILE, &files) == -1) {
        return sbx_error(e, errno, SBX_E_INTERNAL, "getrlimit() failed");
    }

    b->open_files = files.rlim_max;
    sbx_process_raise_files();

    b->state = open(b->options->state_dir, O_RDONLY|O_DIRECTORY|O_CLOEXEC);

    if (b->state == -1
        || (mkdirat(b->state, "sessions", 0700) == -1 && errno != EEXIST))
    {
        return sbx_error(e, errno, SBX_E_UNAVAILABLE,
                         "cannot write to the state directory \"%s\"",
                         b->options->state_dir);
    }

    b->sessions_dir = openat(b->state, "sessions",
                             O_RDONLY|O_DIRECTORY|O_CLOEXEC|O_NOFOLLOW);

    if (b->sessions_dir == -1) {
        return sbx_error(e, errno, SBX_E_UNAVAILABLE,
                         "cannot open \"%s/sessions\"",
                         b->options->state_dir);
    }

    if (sbx_ids_tag(b, e) != 0 || sbx_graves_open(b, e) != 0
        || sbx_quota_open(b, e) != 0)
    {
        return -1;
    }

    if (sbx_discard_open(b, e) != 0) {
        return -1;
    }

    return sbx_record_writer_open(&b->writer, b->sessions_dir, e);
}


/*
 * Ending is the keeper's decision.  Handlers rather than SIG_IGN, which a
 * session's processes would inherit.
 */

static void
sbx_broker_signals(void)
{
    size_t            i;
    struct sigaction  sa;

    static const int  signals[] = {
        SIGTERM, SIGINT, SIGQUIT, SIGHUP, SIGPIPE, SIGUSR1, SIGUSR2
    };

    memset(&sa, 0, sizeof(struct sigaction));
    sa.sa_handler = sbx_broker_signal;
    sa.sa_flags = SA_RESTART;

    for (i = 0; i < sbx_nelts(signals); i++) {
        (void) sigaction(signals[i], &sa, NULL);
    }
}


static void
sbx_broker_signal(int signo)
{
    (void) signo;
}


/* What the keeper has for it, whole: nothing of it was ever on its way. */

static int
sbx_broker_store(sbx_broker_t *b, sbx_store_t *store, sbx_error_t *e)
{
    int         fds[SBX_LINK_FDS], rc;
    sbx_link_t  msg;

    if (b->options->inherit == -1) {
        return 0;
    }

    while ((rc = sbx_link_read(b->options->inherit, &msg, fds)) == 1) {
        if (sbx_broker_stored(b, store, &msg, fds) != 0) {
            return sbx_error(e, ENOMEM, SBX_E_INTERNAL, "out of memory");
        }
    }

    if (rc == -1) {
        return sbx_error(e, errno, SBX_E_INTERNAL,
                         "the keeper's store cannot be read");
    }

    (void) close(b->options->inherit);
    b->options->inherit = -1;

    return 0;
}


/*
 * The one time that the broker waits: for a word of the keeper, which says it
 * at once.  One that has died is replaced, as soon as there is anything to go
 * on with.
 */

static int
sbx_broker_started(sbx_broker_t *b, sbx_store_t *store, sbx_error_t *e)
{
    int            fds[SBX_LINK_FDS], rc;
    sbx_link_t     msg;
    struct pollfd  pfd;

    for ( ;; ) {
        rc = sbx_link_recv(b->options->link, &msg, fds);

        if (rc == 1 && msg.type == SBX_LINK_STARTED) {
            b->restarts = msg.number;
            return 0;
        }

        if (rc == 0 && store->config != -1) {
            return 0;
        }

        if (rc == -1 && errno == EAGAIN) {
            pfd.fd = b->options->link;
            pfd.events = POLLIN;

            if (poll(&pfd, 1, SBX_BROKER_STARTED_WAIT) == 0) {
                return sbx_error(e, 0, SBX_E_INTERNAL,
                                 "the keeper says nothing");
            }

            continue;
        }

        if (rc != 1) {
            return sbx_error(e, rc == 0 ? 0 : errno, SBX_E_INTERNAL,
                             "the keeper is gone");
        }
    }
}


static int
sbx_broker_stored(sbx_broker_t *b, sbx_store_t *store, const sbx_link_t *msg,
    const int *fds)
{
    size_t         size;
    sbx_stored_t  *sessions;

    switch ((sbx_keep_t) msg->kind) {

    case SBX_KEEP_CONFIG:
        store->config = fds[0];
        return 0;

    case SBX_KEEP_IDS:
        sbx_ids_adopt(b, msg->number, fds[0]);
        return 0;

    case SBX_KEEP_CONTROL:
        return sbx_control_adopt(b, msg->number, fds[0]);

    case SBX_KEEP_EGRESS:
        sbx_outlet_adopt(b, msg->pid, msg->number, fds);
        return 0;

    case SBX_KEEP_SESSION:
        break;

    case SBX_KEEP_NONE:
    default:                           /* with no descriptor */
        return 0;
    }

    if (store->n == store->size) {
        size = store->size ? store->size * 2 : 64;
        sessions = realloc(store->sessions, size * sizeof(sbx_stored_t));

        if (sessions == NULL) {
            return -1;
        }

        store->sessions = sessions;
        store->size = size;
    }

    store->sessions[store->n].msg = *msg;
    memcpy(store->sessions[store->n].fds, fds, sizeof(int) * SBX_LINK_FDS);
    store->n++;

    return 0;
}


/*
 * Sessions first: whatever may be wrong with the machine just now, they are
 * there, and what they need is.  If not even that is to be had, the keeper
 * starts the next broker, and they wait.
 */

static int
sbx_broker_restore(sbx_broker_t *b, sbx_store_t *store, sbx_error_t *e)
{
    size_t       i;
    sbx_error_t  problem;

    if (store->config == -1) {
        /* a server that is started anew takes sessions again */
        b->quotas.draining.value = 0;

    } else if (sbx_setup_stored(b, store->config) == 0
               && sbx_setup_base(b, e) != 0)
    {
        return -1;
    }

    if (b->based && b->outlet.adopted) {
        sbx_outlet_configure(b);
    }

    SBX_FAULT("broker-start-configured");
    sbx_outlet_adopted(b);

    for (i = 0; i < store->n; i++) {
        if (sbx_adopt_session(b, &store->sessions[i].msg,
                              store->sessions[i].fds)
            != 0)
        {
            return sbx_error(e, ENOMEM, SBX_E_INTERNAL, "out of memory");
        }
    }

    free(store->sessions);

    if (store->config == -1) {
        return 0;
    }

    sbx_log(SBX_LOG_NOTICE, NULL, 0,
            "broker started again, %u of %zu sessions adopted", b->nrunning,
            store->n);

    if (b->based && sbx_setup(b, &problem) != 0) {
        sbx_log_error(SBX_LOG_ERROR, NULL, &problem,
                      "no session can be made");

        if (b->outlet.pid == 0) {
            sbx_outlet_configure(b);
        }
    }

    return 0;
}


static void
sbx_broker_link(sbx_event_t *ev, uint32_t events)
{
    int            fds[SBX_LINK_FDS], rc;
    unsigned       i;
    sbx_link_t     msg;
    sbx_broker_t  *b;

    b = ev->data;

    if (events & EPOLLOUT) {
        sbx_broker_letters(b);
    }

    while ((rc = sbx_link_recv(ev->fd, &msg, fds)) == 1) {

        switch (msg.type) {

        case SBX_LINK_EXIT:
            if (!sbx_outlet_exited(b, msg.pid)) {
                sbx_session_exited(b, msg.pid, msg.status);
            }

            break;

        case SBX_LINK_STORED:
            sbx_unkept_stored(b, &msg);
            break;

        case SBX_LINK_REFUSED:
            sbx_unkept_refused(b, &msg);
            break;

        case SBX_LINK_END:
            sbx_broker_end(b);
            break;

        case SBX_LINK_STORE:
            for (i = 0; i < sbx_link_fds(msg.kind); i++) {
                (void) close(fds[i]);
            }

            break;
        }
    }

    if (rc == 0) {
        sbx_broker_take_over(b);
    }
}


int
sbx_broker_tell(sbx_broker_t *b, sbx_link_type_t type, sbx_keep_t kind,
    uint64_t number, const sbx_session_t *s, const int *fds)
{
    sbx_link_t  msg;

    memset(&msg, 0, sizeof(sbx_link_t));
    msg.type = (uint16_t) type;
    msg.kind = (uint16_t) kind;
    msg.number = number;

    if (s != NULL) {
        msg.pid = s->pid;
        msg.flags = s->secret ? SBX_LINK_UNTOLD : 0;
        memcpy(msg.id, s->info.id, sizeof(msg.id));
    }

    return sbx_broker_post(b, &msg, fds);
}


int
sbx_broker_post(sbx_broker_t *b, sbx_link_t *msg, const int *fds)
{
    int            err;
    sbx_letter_t  *letter;

    msg->magic = SBX_LINK_MAGIC;
    err = 0;

    if (b->letters == NULL) {
        if (sbx_link_send(b->options->link, msg, fds,
                          fds != NULL ? sbx_link_fds(msg->kind) : 0)
            == 0)
        {
            return 0;
        }

        err = errno;
    }

    letter = sbx_broker_letter(msg, fds);

    if (letter == NULL) {
        err = errno;

        if (msg->type == SBX_LINK_STORE) {
            errno = err;
            return -1;
        }

        /* what is dropped here would be kept for ever */

        sbx_log(SBX_LOG_ERROR, NULL, err,
                "the keeper cannot be told: the broker ends");
        exit(1);
    }

    *b->letters_last = letter;
    b->letters_last = &letter->next;

    if (b->letters == letter) {
        sbx_broker_letters_wait(b, err);
    }

    return 0;
}


static sbx_letter_t *
sbx_broker_letter(const sbx_link_t *msg, const int *fds)
{
    int            err;
    unsigned       i, n;
    sbx_letter_t  *letter;

    letter = calloc(1, sizeof(sbx_letter_t));

    if (letter == NULL) {
        return NULL;
    }

    letter->msg = *msg;
    n = fds != NULL ? sbx_link_fds(msg->kind) : 0;

    for (i = 0; i < n; i++) {
        letter->fds[i] = fcntl(fds[i], F_DUPFD_CLOEXEC, 3);

        if (letter->fds[i] == -1) {
            err = errno;
            sbx_broker_letter_free(letter);
            errno = err;
            return NULL;
        }

        letter->nfds++;
    }

    return letter;
}


static void
sbx_broker_letter_free(sbx_letter_t *letter)
{
    unsigned  i;

    for (i = 0; i < letter->nfds; i++) {
        (void) close(letter->fds[i]);
    }

    free(letter);
}


static void
sbx_broker_letters(sbx_broker_t *b)
{
    sbx_letter_t  *letter;

    while (b->letters != NULL) {
        letter = b->letters;

        if (sbx_link_send(b->options->link, &letter->msg, letter->fds,
                          letter->nfds)
            != 0 && errno != EPIPE && errno != ECONNRESET)
        {
            sbx_broker_letters_wait(b, errno);
            return;
        }

        /* one that is gone is replaced by one that is told everything */

        b->letters = letter->next;
        sbx_broker_letter_free(letter);
    }

    b->letters_last = &b->letters;
    sbx_event_set(&b->loop, &b->link_event, EPOLLIN);
}


/* No event tells that the kernel has memory again. */

static void
sbx_broker_letters_wait(sbx_broker_t *b, int err)
{
    if (err == EAGAIN) {
        sbx_event_set(&b->loop, &b->link_event, EPOLLIN|EPOLLOUT);
        return;
    }

    sbx_event_set(&b->loop, &b->link_event, EPOLLIN);
    sbx_timer_set(&b->loop, &b->letters_timer, SBX_BROKER_LETTERS_WAIT);
}


static void
sbx_broker_letters_again(sbx_timer_t *timer)
{
    sbx_broker_letters(timer->data);
}


static void
sbx_broker_records(sbx_event_t *ev, uint32_t events)
{
    sbx_broker_t      *b;
    sbx_record_job_t  *job, *next;

    (void) events;

    b = ev->data;

    for (job = sbx_record_done(&b->writer); job != NULL; job = next) {
        next = job->next;

        if (strcmp(job->name, SBX_QUOTA_FILE) == 0) {
            sbx_quota_saved(b, job->err);

        } else {
            sbx_session_recorded(job->session, job->err);
        }

        sbx_record_job_free(job);
    }
}


void
sbx_broker_end(sbx_broker_t *b)
{
    sbx_node_t  *node, *next;

    if (b->ending) {
        return;
    }

    b->ending = 1;
    (void) sbx_error(&b->problem, 0, SBX_E_UNAVAILABLE, "the node stops");

    sbx_event_del(&b->loop, &b->listen_event);
    sbx_timer_del(&b->loop, &b->listen_timer);

    if (b->options->listen != -1) {
        (void) close(b->options->listen);
        b->options->listen = -1;
    }

    sbx_pool_configure(b);

    /* all are killed before any is waited for */

    for (node = b->sessions.next; node != &b->sessions; node = next) {
        next = node->next;
        sbx_session_end(sbx_node_of(node, sbx_session_t, link),
                        SBX_ENDED_NODE_RESTART, 1);
    }

    sbx_broker_session_gone(b);
}


void
sbx_broker_session_gone(sbx_broker_t *b)
{
    if (b->ending && b->nsessions == 0) {
        sbx_loop_stop(&b->loop);
    }
}


static void
sbx_broker_bequeath(int out, sbx_keep_t kind, uint64_t number,
    const sbx_session_t *s, const int *fds)
{
    sbx_link_t  msg;

    memset(&msg, 0, sizeof(sbx_link_t));
    msg.kind = (uint16_t) kind;
    msg.number = number;

    if (s != NULL) {
        msg.pid = s->pid;
        msg.flags = s->secret ? SBX_LINK_UNTOLD : 0;
        memcpy(msg.id, s->info.id, sizeof(msg.id));
    }

    if (sbx_link_write(out, &msg, fds) != 0) {
        sbx_log(SBX_LOG_ERROR, NULL, errno, "\"%s\" (%u) is not handed on",
                msg.id, (unsigned) kind);
    }
}


static void
sbx_broker_bequeath_egress(const sbx_broker_t *b, int out)
{
    int         fds[SBX_LINK_FDS];
    sbx_link_t  msg;

    if (b->outlet.pid == 0 || b->outlet.killed) {
        return;
    }

    memset(&msg, 0, sizeof(sbx_link_t));
    msg.kind = SBX_KEEP_EGRESS;
    msg.number = b->outlet.slot.first;
    msg.pid = b->outlet.pid;
    fds[0] = b->outlet.control;
    fds[1] = b->outlet.pidfd;

    (void) sbx_link_write(out, &msg, fds);
}


/* The keeper is dead: this process takes its place. */

static void
sbx_broker_take_over(sbx_broker_t *b)
{
    int             config, fds[SBX_LINK_FDS], out;
    uint32_t        i;
    sbx_error_t     e;
    sbx_node_t     *node;
    sbx_control_t  *control;
    sbx_options_t   options;
    sbx_session_t  *s;

    options = *b->options;
    options.turn = sbx_now_us() - b->started < SBX_KEEPER_LIVES
                   ? options.turn + 1 : 0;

    if (options.turn > SBX_BROKER_TURNS) {
        sbx_log(SBX_LOG_ERROR, NULL, 0,
                "keepers die as soon as they start: the broker gives up");
        exit(1);
    }

    sbx_log(SBX_LOG_ERROR, NULL, 0, "the keeper has died and is replaced");

    out = memfd_create("store", MFD_CLOEXEC);
    config = b->based ? sbx_setup_config_fd(b) : -1;

    if (out == -1 || (b->based && config == -1)) {
        sbx_log(SBX_LOG_ERROR, NULL, errno, "memfd_create() failed");
        exit(1);
    }

    if (config != -1) {
        sbx_broker_bequeath(out, SBX_KEEP_CONFIG, 0, NULL, &config);
    }

    for (i = 0; i < b->ids.ncells; i++) {
        sbx_broker_bequeath(out, SBX_KEEP_IDS, b->ids.cells[i].number, NULL,
                            &b->ids.cells[i].fd);
    }

    for (node = b->controls.next; node != &b->controls; node = node->next) {
        control = sbx_node_of(node, sbx_control_t, link);

        if (control->greeted) {
            sbx_broker_bequeath(out, SBX_KEEP_CONTROL, control->number, NULL,
                                &control->fd);
        }
    }

    for (node = b->sessions.next; node != &b->sessions; node = node->next) {
        s = sbx_node_of(node, sbx_session_t, link);

        if (s->stored && s->pidfd != -1 && s->control != -1) {
            sbx_session_fds(s, fds);
            sbx_broker_bequeath(out, SBX_KEEP_SESSION, s->uid_first, s, fds);
        }
    }

    sbx_broker_bequeath_egress(b, out);
    SBX_FAULT("broker-replace-written");
    (void) lseek(out, 0, SEEK_SET);

    options.keeper = 1;
    options.broker = 0;
    options.link = -1;
    options.inherit = out;

    (void) sbx_options_exec(&options, &e);
    sbx_log_error(SBX_LOG_ERROR, NULL, &e, "the keeper is not replaced");
    exit(1);
}


static void
sbx_broker_done(sbx_broker_t *b)
{
    sbx_letter_t  *letter;

    sbx_record_writer_close(&b->writer);
    sbx_pool_close(b);
    sbx_outlet_close(b);
    sbx_control_close_all(b);
    sbx_languages_close(b);
    sbx_discard_close(b);
    sbx_setup_undo(b);
    sbx_sweep_close(b);
    sbx_ids_close(b);
    sbx_graves_close(b);
    sbx_quota_close(b);
    sbx_trial_probe_close(&b->probe);
    sbx_loop_done(&b->loop);

    (void) unlinkat(b->state, "sessions", AT_REMOVEDIR);
    (void) close(b->sessions_dir);
    (void) close(b->state);

    while (b->letters != NULL) {
        letter = b->letters;
        b->letters = letter->next;
        sbx_broker_letter_free(letter);
    }

    /* the link closes with the process: its end is what the keeper awaits */
}
