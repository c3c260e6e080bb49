/*
 * Watches whose events are kept until they are asked for.
 *
 * They are kept by a process of the session's user, one for each of the two:
 * the server of the first such call answers it, lets go of it, and stays.  The
 * servers of later calls ask it over a socket that init has made; whether it
 * is there is told in memory that all have in common.  It never waits for any
 * of them, nor for a worker: what it is asked for goes into a socket that the
 * asker has made, events in a memory file.  It ends with its last watch.
 *
 * A watch's number tells, in its lowest bit, whose process has it.  Should
 * that be killed, its watches are gone, and asking for them says so.
 */

#include "init_watch.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>


#define SBX_INIT_KEEP_USERS   2
#define SBX_INIT_KEEP_ASK     100            /* ms until the next look */
#define SBX_INIT_KEEP_READS   256
#define SBX_INIT_KEEP_EVENTS  (512 * 1024)   /* bytes, of one watch */
#define SBX_INIT_KEEP_ALL     (4 * 1024 * 1024)
#define SBX_INIT_KEEP_FD      64             /* in init: out of the way */


/* In memory that all servers share; but for .alive under their lock. */
typedef struct {
    uint64_t             next;               /* of numbers */
    struct {
        uint32_t         alive;
        uint32_t         watches;
    } of[SBX_INIT_KEEP_USERS];
} sbx_init_keep_t;


typedef struct {
    uint32_t             verb;
    uint32_t             flags;
    uint64_t             number;
    char                 path[SBX_PATH_MAX];
} sbx_init_ask_t;


typedef struct {
    sbx_error_t          error;              /* .code 0: none */
    uint64_t             number;
    uint64_t             size;               /* bytes of events */
    uint32_t             flags;              /* of the watch */
    uint32_t             lost;               /* there were more events */
    uint32_t             quota_limit;
    char                 quota[40];
} sbx_init_reply_t;


typedef struct {
    sbx_init_watch_t     watch;              /* first */
    uint64_t             number;
    uint8_t             *events;             /* sbx_f_change_t + path each */
    size_t               size;
    size_t               room;
    size_t               last;               /* where the newest begins */
    unsigned             n;
    unsigned             lost;
} sbx_init_kept_t;


static int sbx_init_keep_ask(sbx_init_serve_t *s, unsigned user,
    const sbx_init_ask_t *ask, sbx_init_reply_t *reply, int *fd,
    sbx_error_t *e);
static int sbx_init_keep_wait(unsigned user, int fd, sbx_error_t *e);
static int sbx_init_keep_replied(sbx_init_serve_t *s,
    const sbx_init_reply_t *reply, sbx_error_t *e);
static int sbx_init_keep_become(sbx_init_serve_t *s, sbx_f_end_t *end,
    sbx_error_t *e);
static void sbx_init_keep_run(sbx_init_serve_t *s) __attribute__((noreturn));
static void sbx_init_keep_leave(sbx_init_serve_t *s);
static void sbx_init_keep_look(sbx_init_kept_t *kept);
static void sbx_init_keep_request(sbx_init_serve_t *s);
static int sbx_init_keep_add(sbx_init_serve_t *s, const sbx_init_ask_t *ask,
    uint64_t *number, sbx_error_t *e);
static int sbx_init_keep_number(sbx_init_serve_t *s, uint64_t *number,
    sbx_error_t *e);
static void sbx_init_keep_drop(unsigned i);
static int sbx_init_keep_events(sbx_init_kept_t *kept,
    sbx_init_reply_t *reply);
static void sbx_init_keep_clear(sbx_init_kept_t *kept);
static int sbx_init_keep_tell(sbx_init_watch_t *w, sbx_change_t change,
    const char *path, size_t len);
static int sbx_init_keep_send(sbx_init_serve_t *s, const uint8_t *events,
    size_t size, sbx_f_end_t *end, sbx_error_t *e);


static sbx_init_keep_t  *sbx_init_keep;
static int               sbx_init_keep_fds[SBX_INIT_KEEP_FDS];

/* in a keeper */
static unsigned          sbx_init_keep_user;
static sbx_init_kept_t  *sbx_init_keep_watches[SBX_WATCHERS_MAX];
static size_t            sbx_init_keep_bytes;


/*
 * ---- init --------------------------------------------------------------
 */

int
sbx_init_keep_open(sbx_error_t *e)
{
    int       i, k, pair[2];

    sbx_init_keep = mmap(NULL, sizeof(sbx_init_keep_t), PROT_READ|PROT_WRITE,
                         MAP_SHARED|MAP_ANONYMOUS, -1, 0);

    if (sbx_init_keep == MAP_FAILED) {
        return sbx_error(e, errno, SBX_E_INTERNAL, "out of memory");
    }

    for (i = 0; i < SBX_INIT_KEEP_FDS; i += 2) {
        if (socketpair(AF_UNIX, SOCK_SEQPACKET|SOCK_CLOEXEC, 0, pair) == -1)
        {
            return sbx_error(e, errno, SBX_E_INTERNAL,
                             "socketpair() failed");
        }

        for (k = 0; k < 2; k++) {
            sbx_init_keep_fds[i + k] = fcntl(pair[k], F_DUPFD_CLOEXEC,
                                             SBX_INIT_KEEP_FD);
            (void) close(pair[k]);

            if (sbx_init_keep_fds[i + k] == -1) {
                return sbx_error(e, errno, SBX_E_INTERNAL,
                                 "out of descriptors");
            }
        }
    }

    return 0;
}


void
sbx_init_keep_died(sbx_init_share_t *share)
{
    unsigned  user;

    user = share->keeps - 1;
    share->keeps = 0;

    if (user < SBX_INIT_KEEP_USERS) {
        sbx_init_keep->of[user].watches = 0;
        __atomic_store_n(&sbx_init_keep->of[user].alive, 0,
                         __ATOMIC_RELEASE);
    }
}


/*
 * ---- servers -----------------------------------------------------------
 */

int
sbx_init_keep_inherit(void)
{
    int  i;

    for (i = 0; i < SBX_INIT_KEEP_FDS; i++) {
        if (dup2(sbx_init_keep_fds[i], SBX_INIT_KEEP + i) == -1) {
            return -1;
        }
    }

    return 0;
}


int
sbx_init_file_verb_watcher(sbx_init_serve_t *s, sbx_f_end_t *end,
    sbx_error_t *e)
{
    int                      rc, alive;
    unsigned                 user;
    sbx_init_reply_t         reply;
    static sbx_init_ask_t    ask;

    user = s->file.user == SBX_USER_ROOT;
    ask.verb = SBX_FILE_WATCHER;
    ask.flags = s->file.flags;
    (void) sbx_copy_string(ask.path, sizeof(ask.path), s->path,
                           strlen(s->path));

    for ( ;; ) {
        rc = sbx_init_keep_ask(s, user, &ask, &reply, NULL, e);

        if (rc == 0) {
            end->count = reply.number;
            return sbx_init_keep_replied(s, &reply, e);
        }

        if (rc == -1 || sbx_init_serve_lock(e) != 0) {
            return -1;
        }

        alive = (int) sbx_init_keep->of[user].alive;

        if (!alive) {
            s->share->keeps = user + 1;
            s->share->kind = SBX_INIT_KIND_KEEP;
            __atomic_store_n(&sbx_init_keep->of[user].alive, 1,
                             __ATOMIC_RELEASE);
        }

        sbx_init_serve_unlock();

        if (!alive) {
            sbx_init_keep_user = user;
            return sbx_init_keep_become(s, end, e);
        }
    }
}


int
sbx_init_file_verb_events(sbx_init_serve_t *s, sbx_f_end_t *end,
    sbx_error_t *e)
{
    int                rc;
    uint8_t           *events;
    sbx_auto_fd        fd = -1;
    sbx_init_ask_t     ask;
    sbx_init_reply_t   reply;

    memset(&ask, 0, sizeof(sbx_init_ask_t));
    ask.verb = s->file.verb;
    ask.number = s->file.size;

    rc = sbx_init_keep_ask(s, s->file.size & 1, &ask, &reply, &fd, e);

    if (rc == 1) {
        return sbx_error(e, 0, SBX_E_FILE, "there is no such watch");
    }

    if (rc == -1 || sbx_init_keep_replied(s, &reply, e) != 0) {
        return -1;
    }

    s->file.flags = reply.flags;

    if (reply.size != 0) {
        events = fd == -1 ? MAP_FAILED
                          : mmap(NULL, reply.size, PROT_READ, MAP_SHARED, fd,
                                 0);

        if (events == MAP_FAILED) {
            return sbx_init_errno(e, ENOMEM, "the events");
        }

        if (sbx_init_keep_send(s, events, reply.size, end, e) != 0) {
            return -1;
        }
    }

    if (reply.lost) {
        end->count++;
        return sbx_init_watch_frame(s, SBX_CHANGE_OVERFLOW, NULL, 0, e);
    }

    return 0;
}


int
sbx_init_file_verb_unwatch(sbx_init_serve_t *s, sbx_f_end_t *end,
    sbx_error_t *e)
{
    return sbx_init_file_verb_events(s, end, e);
}


static int
sbx_init_keep_send(sbx_init_serve_t *s, const uint8_t *events, size_t size,
    sbx_f_end_t *end, sbx_error_t *e)
{
    size_t          at;
    const char     *path;
    sbx_f_change_t  head;

    for (at = 0; size - at >= sizeof(head); at += head.path_len) {
        memcpy(&head, events + at, sizeof(head));
        at += sizeof(head);

        if (head.path_len > size - at) {
            break;
        }

        path = (const char *) events + at;

        if (sbx_init_watch_frame(s, head.change, path, head.path_len, e) != 0
            || ((s->file.flags & SBX_FILE_F_MORE)
                && sbx_init_watch_entry(s, head.change, path, head.path_len,
                                        e)
                   != 0))
        {
            return -1;
        }

        end->count++;
    }

    return 0;
}


/* 0: *reply, and *fd or -1; 1: there is nobody to ask; -1 */

static int
sbx_init_keep_ask(sbx_init_serve_t *s, unsigned user,
    const sbx_init_ask_t *ask, sbx_init_reply_t *reply, int *fd,
    sbx_error_t *e)
{
    int          pair[2], got[1], rc;
    ssize_t      n;
    unsigned     nfds;
    sbx_auto_fd  mine = -1, theirs = -1;

    memset(reply, 0, sizeof(sbx_init_reply_t));

    if (socketpair(AF_UNIX, SOCK_SEQPACKET|SOCK_CLOEXEC, 0, pair) == -1) {
        return sbx_error(e, errno, SBX_E_UNAVAILABLE, "socketpair() failed");
    }

    mine = pair[0];
    theirs = pair[1];

    if (sbx_init_serve_lock(e) != 0) {
        return -1;
    }

    if (!sbx_init_keep->of[user].alive) {
        sbx_init_serve_unlock();
        return 1;
    }

    n = sbx_wire_send(SBX_INIT_KEEP + 2 * (int) user, ask,
                      sizeof(sbx_init_ask_t), &theirs, 1, MSG_DONTWAIT);
    sbx_init_serve_unlock();

    if (n == -1) {
        return sbx_error(e, errno, SBX_E_UNAVAILABLE,
                         "too much is asked of the session's watches");
    }

    (void) close(sbx_steal_fd(&theirs));

    rc = sbx_init_keep_wait(user, mine, e);

    if (rc != 0) {
        return rc;
    }

    nfds = 1;
    n = sbx_wire_recv(mine, reply, sizeof(sbx_init_reply_t), got, &nfds, 0);

    if (n == -1) {
        return sbx_error(e, errno, SBX_E_UNAVAILABLE, "recvmsg() failed");
    }

    if (nfds == 1 && fd != NULL) {
        *fd = got[0];

    } else if (nfds == 1) {
        (void) close(got[0]);
    }

    if (n == 0) {
        return 1;
    }

    if (n != sizeof(sbx_init_reply_t)) {
        return sbx_error(e, 0, SBX_E_INTERNAL, "an answer is malformed");
    }

    s->share->progress++;

    return 0;
}


/* What was asked may lie in a socket that nobody reads any more. */

static int
sbx_init_keep_wait(unsigned user, int fd, sbx_error_t *e)
{
    int            rc;
    struct pollfd  pfd;

    pfd.fd = fd;
    pfd.events = POLLIN;

    for ( ;; ) {
        rc = poll(&pfd, 1, SBX_INIT_KEEP_ASK);

        if (rc == 1) {
            return 0;
        }

        if (sbx_init_serve_late(e) != 0) {
            return -1;
        }

        if (rc == 0
            && !__atomic_load_n(&sbx_init_keep->of[user].alive,
                                __ATOMIC_ACQUIRE))
        {
            return 1;
        }
    }
}


static int
sbx_init_keep_replied(sbx_init_serve_t *s, const sbx_init_reply_t *reply,
    sbx_error_t *e)
{
    static char  quota[sizeof(reply->quota)];

    if (reply->error.code == 0) {
        return 0;
    }

    *e = reply->error;

    if (reply->quota[0] != '\0') {
        (void) sbx_copy_string(quota, sizeof(quota), reply->quota,
                               strnlen(reply->quota, sizeof(quota) - 1));
        s->quota = quota;
        s->quota_limit = reply->quota_limit;
    }

    return -1;
}


/*
 * ---- the process that keeps ----------------------------------------------
 */

static int
sbx_init_keep_become(sbx_init_serve_t *s, sbx_f_end_t *end, sbx_error_t *e)
{
    sbx_init_ask_t  ask;

    ask.flags = s->file.flags;
    (void) sbx_copy_string(ask.path, sizeof(ask.path), s->path,
                           strlen(s->path));

    if (sbx_init_keep_add(s, &ask, &end->count, e) != 0) {
        sbx_init_keep_died(s->share);
        return -1;
    }

    if (sbx_init_serve_frame(s, SBX_F_END, end, sizeof(sbx_f_end_t), e) != 0
        || sbx_init_serve_flush(s, e) != 0)
    {
        /* nobody knows its number */
        sbx_init_keep_drop(0);
    }

    (void) close(sbx_steal_fd(&s->call));
    s->out_end = 0;

    sbx_init_keep_run(s);
}


static void
sbx_init_keep_run(sbx_init_serve_t *s)
{
    unsigned         i, n, which[SBX_WATCHERS_MAX];
    struct pollfd    fds[SBX_WATCHERS_MAX + 1];
    sbx_init_kept_t  *kept;

    fds[0].fd = SBX_INIT_KEEP + 2 * (int) sbx_init_keep_user + 1;
    fds[0].events = POLLIN;

    for ( ;; ) {
        sbx_init_serve_renew(s, SBX_INIT_WATCH_STEP);

        if (sbx_init_keep->of[sbx_init_keep_user].watches == 0) {
            sbx_init_keep_leave(s);
        }

        for (i = 0, n = 0; i < SBX_WATCHERS_MAX; i++) {
            kept = sbx_init_keep_watches[i];

            if (kept != NULL && kept->watch.inotify != -1) {
                which[n++] = i;
                fds[n].fd = kept->watch.inotify;
                fds[n].events = POLLIN;
                fds[n].revents = 0;
            }
        }

        fds[0].revents = 0;

        if (poll(fds, n + 1, SBX_INIT_WATCH_LOOK) == -1 && errno != EINTR) {
            _exit(1);
        }

        for (i = 0; i < n; i++) {
            if (fds[i + 1].revents != 0) {
                sbx_init_keep_look(sbx_init_keep_watches[which[i]]);
            }
        }

        if (fds[0].revents != 0) {
            sbx_init_keep_request(s);
        }
    }
}


/* Ends, unless somebody has just asked for something. */

static void
sbx_init_keep_leave(sbx_init_serve_t *s)
{
    struct pollfd  pfd;

    if (sbx_init_serve_lock(NULL) != 0) {
        return;
    }

    pfd.fd = SBX_INIT_KEEP + 2 * (int) sbx_init_keep_user + 1;
    pfd.events = POLLIN;

    if (poll(&pfd, 1, 0) == 0) {
        sbx_init_keep_died(s->share);
        _exit(0);
    }

    sbx_init_serve_unlock();
}


static void
sbx_init_keep_look(sbx_init_kept_t *kept)
{
    sbx_error_t  e;

    kept->watch.e = &e;

    /* what cannot be told further is an end, and events may lack */

    if (sbx_init_watch_read(&kept->watch) == -1) {
        kept->lost = 1;
        kept->watch.over = 1;
    }

    if (kept->watch.over) {
        sbx_init_watch_close(&kept->watch);
    }
}


static void
sbx_init_keep_request(sbx_init_serve_t *s)
{
    int                     got[1], events;
    ssize_t                 n;
    unsigned                nfds, i;
    sbx_auto_fd             fd = -1, file = -1;
    sbx_init_kept_t        *kept;
    sbx_init_reply_t        reply;
    static sbx_init_ask_t   ask;

    nfds = 1;
    n = sbx_wire_recv(SBX_INIT_KEEP + 2 * (int) sbx_init_keep_user + 1, &ask,
                      sizeof(ask), got, &nfds, MSG_DONTWAIT);

    if (n <= 0 || nfds != 1) {
        return;
    }

    fd = got[0];

    if (n != sizeof(ask) || memchr(ask.path, '\0', SBX_PATH_MAX) == NULL) {
        return;
    }

    memset(&reply, 0, sizeof(reply));
    kept = NULL;

    for (i = 0; ask.verb != SBX_FILE_WATCHER && i < SBX_WATCHERS_MAX; i++) {
        kept = sbx_init_keep_watches[i];

        if (kept != NULL && kept->number == ask.number) {
            break;
        }

        kept = NULL;
    }

    events = 0;

    if (ask.verb == SBX_FILE_WATCHER) {
        s->quota = NULL;

        if (sbx_init_keep_add(s, &ask, &reply.number, &reply.error) == 0) {
            reply.error.code = 0;

        } else if (s->quota != NULL) {
            reply.quota_limit = s->quota_limit;
            (void) sbx_copy_string(reply.quota, sizeof(reply.quota),
                                   s->quota, strlen(s->quota));
        }

    } else if (kept == NULL) {
        (void) sbx_error(&reply.error, 0, SBX_E_FILE,
                         "there is no such watch");

    } else if (ask.verb == SBX_FILE_UNWATCH) {
        sbx_init_keep_drop(i);

    } else {
        file = sbx_init_keep_events(kept, &reply);
        events = (reply.error.code == 0);
    }

    n = sbx_wire_send(fd, &reply, sizeof(reply), &file, file != -1,
                      MSG_DONTWAIT|MSG_NOSIGNAL);

    if (n != -1 && events) {
        sbx_init_keep_clear(kept);
    }

    if (n == -1 && ask.verb == SBX_FILE_WATCHER && reply.error.code == 0) {

        /* the asker is gone: nobody knows the number */

        for (i = 0; i < SBX_WATCHERS_MAX; i++) {
            kept = sbx_init_keep_watches[i];

            if (kept != NULL && kept->number == reply.number) {
                sbx_init_keep_drop(i);
                break;
            }
        }
    }
}


static int
sbx_init_keep_add(sbx_init_serve_t *s, const sbx_init_ask_t *ask,
    uint64_t *number, sbx_error_t *e)
{
    unsigned          i;
    sbx_init_kept_t  *kept;

    kept = calloc(1, sizeof(sbx_init_kept_t));

    if (kept == NULL) {
        return sbx_init_errno(e, ENOMEM, "the watch");
    }

    if (sbx_init_keep_number(s, number, e) != 0) {
        free(kept);
        return -1;
    }

    /* there are as many places as the session may have watches */

    for (i = 0; sbx_init_keep_watches[i] != NULL; i++) { /* void */ }

    sbx_init_keep_watches[i] = kept;

    kept->number = *number;
    kept->watch.s = s;
    kept->watch.e = e;
    kept->watch.flags = ask->flags;
    kept->watch.tell = sbx_init_keep_tell;

    if (sbx_init_watch_open(&kept->watch, ask->path) != 0) {
        sbx_init_keep_drop(i);
        return -1;
    }

    return 0;
}


static int
sbx_init_keep_number(sbx_init_serve_t *s, uint64_t *number, sbx_error_t *e)
{
    if (sbx_init_serve_lock(e) != 0) {
        return -1;
    }

    if (sbx_init_keep->of[0].watches + sbx_init_keep->of[1].watches
        >= SBX_WATCHERS_MAX)
    {
        sbx_init_serve_unlock();

        s->quota = "watchers";
        s->quota_limit = SBX_WATCHERS_MAX;

        return sbx_error(e, EAGAIN, SBX_E_QUOTA,
                         "the session has %d watches whose events are kept, "
                         "as many as it may", SBX_WATCHERS_MAX);
    }

    sbx_init_keep->of[sbx_init_keep_user].watches++;
    *number = ++sbx_init_keep->next << 1 | sbx_init_keep_user;
    sbx_init_serve_unlock();

    return 0;
}


static void
sbx_init_keep_drop(unsigned i)
{
    sbx_init_kept_t  *kept;

    kept = sbx_init_keep_watches[i];
    sbx_init_keep_watches[i] = NULL;

    sbx_init_watch_close(&kept->watch);
    sbx_init_keep_clear(kept);
    free(kept);

    while (sbx_init_serve_lock(NULL) != 0) { /* void */ }

    sbx_init_keep->of[sbx_init_keep_user].watches--;
    sbx_init_serve_unlock();
}


/* All that has happened by now, as a memory file; -1: there is nothing, or
 * it cannot be told. */

static int
sbx_init_keep_events(sbx_init_kept_t *kept, sbx_init_reply_t *reply)
{
    int       fd;
    unsigned  i;

    for (i = 0; i < SBX_INIT_KEEP_READS && kept->watch.inotify != -1; i++) {
        kept->watch.e = &reply->error;

        if (sbx_init_watch_read(&kept->watch) != 1) {
            break;
        }
    }

    reply->error.code = 0;

    if (kept->watch.over) {
        sbx_init_watch_close(&kept->watch);
    }

    reply->flags = kept->watch.flags;
    reply->lost = kept->lost;
    reply->size = kept->size;

    if (kept->size == 0) {
        return -1;
    }

    fd = memfd_create("events", MFD_CLOEXEC);

    if (fd == -1 || sbx_write_all(fd, kept->events, kept->size) == -1) {
        (void) sbx_init_errno(&reply->error, errno, "the events");

        if (fd != -1) {
            (void) close(fd);
        }

        return -1;
    }

    return fd;
}


static void
sbx_init_keep_clear(sbx_init_kept_t *kept)
{
    free(kept->events);
    sbx_init_keep_bytes -= kept->room;
    kept->events = NULL;
    kept->size = 0;
    kept->room = 0;
    kept->n = 0;
    kept->lost = 0;
    kept->watch.wrote = -1;
}


static int
sbx_init_keep_tell(sbx_init_watch_t *w, sbx_change_t change,
    const char *path, size_t len)
{
    size_t            room, need;
    uint8_t          *more;
    sbx_f_change_t    head;
    sbx_init_kept_t  *kept;

    kept = (sbx_init_kept_t *) w;

    head.change = change;
    head.path_len = (uint32_t) len;
    need = sizeof(head) + len;

    /* a row of writes is one, however long it takes */

    if (kept->lost
        || (change == SBX_CHANGE_WRITE && kept->n != 0
            && kept->size - kept->last == need
            && memcmp(kept->events + kept->last, &head, sizeof(head)) == 0
            && memcmp(kept->events + kept->last + sizeof(head), path, len)
               == 0))
    {
        return 0;
    }

    if (change == SBX_CHANGE_OVERFLOW || kept->n == SBX_WATCHER_EVENTS
        || need > SBX_INIT_KEEP_EVENTS - kept->size)
    {
        kept->lost = 1;
        return 0;
    }

    if (need > kept->room - kept->size) {
        room = kept->room == 0 ? 4096 : kept->room * 2;

        while (room < kept->size + need) {
            room *= 2;
        }

        more = room - kept->room > SBX_INIT_KEEP_ALL - sbx_init_keep_bytes
               ? NULL : realloc(kept->events, room);

        if (more == NULL) {
            kept->lost = 1;
            return 0;
        }

        sbx_init_keep_bytes += room - kept->room;
        kept->events = more;
        kept->room = room;
    }

    memcpy(kept->events + kept->size, &head, sizeof(head));
    memcpy(kept->events + kept->size + sizeof(head), path, len);
    kept->last = kept->size;
    kept->size += need;
    kept->n++;

    return 0;
}
