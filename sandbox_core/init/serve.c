/*
 * The process that serves one file call.
 *
 * Forked from init, it enters the group "files", closes what is not its
 * own, loads a seccomp filter as commands do, and keeps of init's capabilities
 * those that a command's root has; only then does it read the call, which
 * says as whom it is to act, and becomes that.  Nobody in the session can
 * trace it or read its memory.  It may block: an alarm ends what takes too
 * long, and init one that was stopped.
 */

#include "init_file.h"
#include "sandbox_fault.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/capability.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/fsuid.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>


#define SBX_INIT_SERVE_FILES   300        /* open files */
#define SBX_INIT_SERVE_TIME    30         /* s for a step */
#define SBX_INIT_SERVE_DRAIN   5          /* s for a worker to stop sending */
#define SBX_INIT_SERVE_LOOK    20000      /* ms; init has more patience */

#define SBX_INIT_FILE_CAPS                                                   \
    ((1u << CAP_CHOWN) | (1u << CAP_DAC_OVERRIDE) | (1u << CAP_FOWNER))
#define SBX_INIT_BECOME_CAPS                                                 \
    (SBX_INIT_FILE_CAPS | (1u << CAP_SETUID) | (1u << CAP_SETGID))


static void sbx_init_serve_on_alarm(int sig);
static int sbx_init_serve_prepare(sbx_init_serve_t *s, int entered,
    sbx_error_t *e);
static int sbx_init_serve_caps(uint32_t caps);
static int sbx_init_serve_filter(void);
static int sbx_init_serve_read(sbx_init_serve_t *s, sbx_error_t *e);
static int sbx_init_serve_become(const sbx_f_file_t *file, sbx_error_t *e);
static void sbx_init_serve_fail(sbx_init_serve_t *s, const sbx_error_t *e);
static int sbx_init_serve_wait(sbx_init_serve_t *s, short events,
    sbx_error_t *e);


static const sbx_init_verb_t  sbx_init_verbs[] = {
    NULL,
    sbx_init_file_verb_open,          /* SBX_FILE_OPEN */
    sbx_init_file_verb_put,           /* SBX_FILE_PUT */
    sbx_init_file_verb_delete,        /* SBX_FILE_DELETE */
    sbx_init_file_verb_glob,          /* SBX_FILE_GLOB */
    sbx_init_file_verb_stat,          /* SBX_FILE_STAT */
    sbx_init_file_verb_list,          /* SBX_FILE_LIST */
    sbx_init_file_verb_mkdir,         /* SBX_FILE_MKDIR */
    sbx_init_file_verb_move,          /* SBX_FILE_MOVE */
    sbx_init_file_verb_search,        /* SBX_FILE_SEARCH */
    sbx_init_file_verb_watch,         /* SBX_FILE_WATCH */
    sbx_init_file_verb_pack,          /* SBX_FILE_PACK */
    sbx_init_file_verb_unpack,        /* SBX_FILE_UNPACK */
    sbx_init_file_verb_compose,       /* SBX_FILE_COMPOSE */
    sbx_init_file_verb_watcher,       /* SBX_FILE_WATCHER */
    sbx_init_file_verb_events,        /* SBX_FILE_EVENTS */
    sbx_init_file_verb_unwatch        /* SBX_FILE_UNWATCH */
};

static volatile sig_atomic_t  sbx_init_serve_expired;

static uint8_t  sbx_init_serve_in[SBX_INIT_BUFFER];
static uint8_t  sbx_init_serve_out[SBX_INIT_BUFFER];


void
sbx_init_serve(int call, int lock, sbx_init_share_t *share, int entered)
{
    sbx_error_t              e;
    sbx_f_end_t              end;
    static sbx_init_serve_t  s;

    s.call = call;
    s.lock = lock;
    s.share = share;
    s.patience = SBX_INIT_SERVE_TIME;
    s.out = sbx_init_serve_out;
    sbx_wire_init(&s.in, sbx_init_serve_in, sizeof(sbx_init_serve_in));
    memset(&end, 0, sizeof(sbx_f_end_t));

    if (sbx_init_serve_prepare(&s, entered, &e) != 0
        || sbx_init_serve_read(&s, &e) != 0
        || sbx_init_serve_become(&s.file, &e) != 0
        || sbx_init_verbs[s.file.verb](&s, &end, &e) != 0)
    {
        sbx_init_serve_fail(&s, &e);
        _exit(0);
    }

    if (s.status == 0) {
        (void) sbx_init_serve_frame(&s, SBX_F_END, &end, sizeof(sbx_f_end_t),
                                    &e);
        (void) sbx_init_serve_flush(&s, &e);
    }

    _exit(s.status);
}


void
sbx_init_serve_sweep(const char *path, int lock, sbx_init_share_t *share,
    int entered)
{
    char                    *name, dir[SBX_PATH_MAX + 64];
    sbx_auto_fd              fd = -1;
    sbx_f_file_t             file;
    static sbx_init_serve_t  s;

    s.call = lock;
    s.lock = lock;
    s.share = share;
    memset(&file, 0, sizeof(sbx_f_file_t));
    file.user = share->user;

    (void) sbx_copy_string(dir, sizeof(dir), path, strlen(path));
    name = strrchr(dir, '/');

    if (name != NULL && sbx_init_serve_prepare(&s, entered, NULL) == 0
        && sbx_init_serve_become(&file, NULL) == 0)
    {
        *name++ = '\0';
        fd = open(dir[0] ? dir : "/", O_PATH|O_DIRECTORY|O_NOFOLLOW);

        if (fd != -1 && sbx_init_hidden(name)) {
            (void) sbx_init_tree_remove(&s, fd, name, NULL);
        }
    }

    _exit(0);
}


static void
sbx_init_serve_on_alarm(int sig)
{
    (void) sig;

    sbx_init_serve_expired = 1;
}


static int
sbx_init_serve_prepare(sbx_init_serve_t *s, int entered, sbx_error_t *e)
{
    uint32_t          i;
    sigset_t          set;
    struct rlimit     files;
    struct sigaction  action;

    for (i = 0; i < sbx_init.config->files_attach_count; i++) {
        if (entered && i == sbx_init.config->files_core) {
            continue;
        }

        if (write(SBX_INIT_ATTACH + (int) i, "0", 1) != 1) {
            return sbx_error(e, errno, SBX_E_INTERNAL,
                             "the group for file calls cannot be entered");
        }
    }

    /* 0-2 are /dev/null; the call becomes 3, the lock 4, then come the
     * sockets of watches, and all else goes */

    if (dup2(s->call, SBX_INIT_CONTROL) == -1
        || dup2(s->lock, SBX_INIT_LOCK) == -1
        || sbx_init_keep_inherit() == -1
        || syscall(SYS_close_range, SBX_INIT_KEEP + SBX_INIT_KEEP_FDS, ~0u,
                   0)
           == -1)
    {
        return sbx_error(e, errno, SBX_E_INTERNAL, "out of descriptors");
    }

    s->call = SBX_INIT_CONTROL;

    memset(&action, 0, sizeof(struct sigaction));
    action.sa_handler = sbx_init_serve_on_alarm;
    (void) sigaction(SIGALRM, &action, NULL);
    (void) sigemptyset(&set);
    (void) sigaddset(&set, SIGALRM);
    (void) sigprocmask(SIG_UNBLOCK, &set, NULL);
    sbx_init_serve_alarm(s, SBX_INIT_SERVE_TIME);

    files.rlim_cur = SBX_INIT_SERVE_FILES;
    files.rlim_max = SBX_INIT_SERVE_FILES;
    (void) setrlimit(RLIMIT_NOFILE, &files);
    (void) umask(022);

    s->root = open("/", O_PATH|O_DIRECTORY|O_CLOEXEC);

    if (s->root == -1
        || prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) == -1
        || sbx_init_serve_caps(SBX_INIT_BECOME_CAPS) == -1
        || sbx_init_serve_filter() == -1)
    {
        return sbx_error(e, errno, SBX_E_INTERNAL,
                         "the file call cannot be prepared");
    }

    return 0;
}


static int
sbx_init_serve_caps(uint32_t caps)
{
    struct __user_cap_header_struct  header;
    struct __user_cap_data_struct    data[2];

    memset(data, 0, sizeof(data));
    header.version = _LINUX_CAPABILITY_VERSION_3;
    header.pid = 0;
    data[0].effective = caps;
    data[0].permitted = caps;

    return (int) syscall(SYS_capset, &header, data);
}


static int
sbx_init_serve_filter(void)
{
    struct {
        uint16_t     len;
        const void  *filter;
    } program;

    if (sbx_init.files_filter_size == 0) {
        return 0;
    }

    program.len = (uint16_t) (sbx_init.files_filter_size / 8);
    program.filter = sbx_init.files_filter;

    return (int) syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &program);
}


static int
sbx_init_serve_read(sbx_init_serve_t *s, sbx_error_t *e)
{
    const char      *path, *path2;
    sbx_frame_t      frame;
    const uint8_t   *payload;

    if (sbx_init_serve_next(s, &frame, &payload, e) != 0) {
        return -1;
    }

    if (frame.type != SBX_F_FILE
        || sbx_wire_check_file(payload, frame.length, &s->file, &path,
                               &path2)
           != 0)
    {
        return sbx_error(e, 0, SBX_E_PATH,
                         "the call's frame is malformed, or a path in it");
    }

    /* the check has seen to all lengths, and that no NUL is in the paths */

    (void) sbx_copy_string(s->path, sizeof(s->path), path, s->file.path_len);

    if (s->file.verb == SBX_FILE_COMPOSE) {
        memcpy(s->sources, path2, s->file.path2_len);

    } else {
        (void) sbx_copy_string(s->path2, sizeof(s->path2), path2,
                               s->file.path2_len);
    }

    memcpy(s->metadata, sbx_wire_file_metadata(&s->file, path),
           s->file.metadata_len);

    if ((sbx_init.config->capabilities & SBX_CAP_FILES) == 0) {
        return sbx_error(e, 0, SBX_E_CAPABILITY,
                         "the session lacks the capability \"files\"");
    }

    if (s->file.verb == 0 || s->file.verb >= sbx_nelts(sbx_init_verbs)) {
        return sbx_error(e, 0, SBX_E_INVALID, "the file call is unknown");
    }

    if (s->file.user != SBX_USER_USER && s->file.user != SBX_USER_ROOT) {
        return sbx_error(e, 0, SBX_E_INVALID, "the user is unknown");
    }

    s->share->user = s->file.user;
    SBX_FAULT("file-call-read");

    return 0;
}


static int
sbx_init_serve_become(const sbx_f_file_t *file, sbx_error_t *e)
{
    uid_t     uid;
    gid_t     gid;
    uint32_t  caps;

    uid = 0;
    gid = 0;
    caps = SBX_INIT_FILE_CAPS;

    if (file->user == SBX_USER_USER) {
        uid = sbx_init.config->uid;
        gid = sbx_init.config->gid;
        caps = 0;
    }

    if (setgroups(0, NULL) == -1
        || setresgid(gid, gid, gid) == -1
        || setresuid(uid, uid, uid) == -1)
    {
        return sbx_error(e, errno, SBX_E_INTERNAL,
                         "the session's user cannot be taken");
    }

    /* what is made is his from its first moment: there is none in which the
     * session could put something else in its place */

    if (file->flags & SBX_FILE_F_OWNED) {
        (void) setfsgid(sbx_init.config->gid);
        (void) setfsuid(sbx_init.config->uid);
    }

    if (sbx_init_serve_caps(caps) == -1
        || prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) == -1)
    {
        return sbx_error(e, errno, SBX_E_INTERNAL,
                         "the session's user cannot be taken");
    }

    return 0;
}


/* An upload that fails may be in the middle of its body: the worker is let
 * go on until it has read the answer. */

static void
sbx_init_serve_fail(sbx_init_serve_t *s, const sbx_error_t *e)
{
    sbx_error_t    ignored;
    sbx_f_error_t  error;

    /* entries that have been collected are the worker's, before an error */

    s->client = 0;
    sbx_init_serve_renew(s, SBX_INIT_SERVE_DRAIN);

    sbx_init_error_fill(&error, e);

    if (e->code == SBX_E_QUOTA && s->quota != NULL) {
        (void) strcpy(error.scope, "session");
        (void) sbx_copy_string(error.resource, sizeof(error.resource),
                               s->quota, strlen(s->quota));
        error.limit = s->quota_limit;
        error.retry_after = (e->err == EAGAIN);
    }

    if (sbx_init_serve_frame(s, SBX_F_ERROR, &error, sizeof(sbx_f_error_t),
                             &ignored)
            != 0
        || sbx_init_serve_flush(s, &ignored) != 0)
    {
        return;
    }

    if ((s->file.verb != SBX_FILE_PUT && s->file.verb != SBX_FILE_UNPACK)
        || shutdown(s->call, SHUT_WR) == -1)
    {
        return;
    }

    while (recv(s->call, s->in.buf, s->in.size, 0) > 0) { /* void */ }
}


int
sbx_init_serve_kind(sbx_init_serve_t *s, sbx_init_kind_t kind,
    sbx_error_t *e)
{
    unsigned                 i, n;
    const sbx_init_share_t  *all;

    static const struct {
        unsigned             max;
        const char          *resource;
    } kinds[SBX_INIT_KINDS] = {
        { SBX_INIT_SERVERS_CALL, "file calls" },
        { SBX_INIT_SERVERS_LONG, "archives and searches" },
        { SBX_INIT_SERVERS_WATCH, "watches" },
        { SBX_INIT_SERVERS_KEEP, "watchers" }
    };

    if (sbx_init_serve_lock(e) != 0) {
        return -1;
    }

    all = sbx_init_file_shares();

    for (i = 0, n = 0; i < SBX_INIT_SERVERS; i++) {
        n += (all[i].used && all[i].kind == kind);
    }

    if (n < kinds[kind].max) {
        s->share->kind = kind;
        sbx_init_serve_unlock();
        return 0;
    }

    sbx_init_serve_unlock();

    s->quota = kinds[kind].resource;
    s->quota_limit = kinds[kind].max;

    return sbx_error(e, EAGAIN, SBX_E_QUOTA,
                     "the session has %u %s open, as many as it may",
                     n, kinds[kind].resource);
}


/* A record lock is its process's: whoever is killed lets go of it. */

int
sbx_init_serve_lock(sbx_error_t *e)
{
    struct flock  lock;

    memset(&lock, 0, sizeof(struct flock));
    lock.l_type = F_WRLCK;
    lock.l_whence = SEEK_SET;

    while (fcntl(SBX_INIT_LOCK, F_SETLKW, &lock) == -1) {
        if (errno != EINTR) {
            return sbx_error(e, errno, SBX_E_INTERNAL, "fcntl() failed");
        }

        if (sbx_init_serve_late(e) != 0) {
            return -1;
        }
    }

    return 0;
}


void
sbx_init_serve_unlock(void)
{
    struct flock  lock;

    memset(&lock, 0, sizeof(struct flock));
    lock.l_type = F_UNLCK;
    lock.l_whence = SEEK_SET;

    (void) fcntl(SBX_INIT_LOCK, F_SETLK, &lock);
}


int
sbx_init_hidden(const char *name)
{
    return strncmp(name, SBX_INIT_TEMPORARY, sizeof(SBX_INIT_TEMPORARY) - 1)
           == 0;
}


void
sbx_init_serve_alarm(sbx_init_serve_t *s, unsigned seconds)
{
    s->share->progress++;
    (void) alarm(seconds);
}


void
sbx_init_serve_renew(sbx_init_serve_t *s, unsigned seconds)
{
    sbx_init_serve_alarm(s, seconds);
    sbx_init_serve_expired = 0;
}


int
sbx_init_serve_late(sbx_error_t *e)
{
    if (!sbx_init_serve_expired) {
        return 0;
    }

    return sbx_error(e, ETIMEDOUT, SBX_E_UNAVAILABLE,
                     "the file call took too long");
}


/*
 * The socket may have been made non-blocking by its sender.
 *
 * How long a client may be silent is the server's to say, by its directives,
 * and the worker's to measure: for as long the clock of this process stands
 * still, and init hears that it lives.
 */

static int
sbx_init_serve_wait(sbx_init_serve_t *s, short events, sbx_error_t *e)
{
    int            n;
    struct pollfd  pfd;

    if (sbx_init_serve_late(e) != 0) {
        return -1;
    }

    pfd.fd = s->call;
    pfd.events = events;

    do {
        if (s->client) {
            sbx_init_serve_renew(s, 0);
        }

        n = poll(&pfd, 1, s->client ? SBX_INIT_SERVE_LOOK : -1);

        if (n == -1 && errno != EINTR) {
            return sbx_error(e, errno, SBX_E_INTERNAL, "poll() failed");
        }

    } while (s->client && n <= 0);

    if (s->client) {
        sbx_init_serve_renew(s, s->patience);
    }

    return sbx_init_serve_late(e);
}


int
sbx_init_serve_frame(sbx_init_serve_t *s, sbx_frame_type_t type,
    const void *payload, size_t size, sbx_error_t *e)
{
    uint8_t  *p;

    if (size > SBX_FRAME_MAX) {
        return sbx_error(e, 0, SBX_E_INTERNAL, "a frame is too long");
    }

    if (sizeof(sbx_init_serve_out) - s->out_end < sizeof(sbx_frame_t) + size
        && sbx_init_serve_flush(s, e) != 0)
    {
        return -1;
    }

    p = s->out + s->out_end;
    p += sbx_wire_header(p, type, size);

    if (size != 0) {
        memcpy(p, payload, size);
    }

    s->out_end += sizeof(sbx_frame_t) + size;

    return 0;
}


int
sbx_init_serve_flush(sbx_init_serve_t *s, sbx_error_t *e)
{
    size_t   sent;
    ssize_t  n;

    sent = 0;

    while (sent < s->out_end) {
        SBX_FAULT("file-call-telling");
        n = send(s->call, s->out + sent, s->out_end - sent,
                 MSG_NOSIGNAL|MSG_DONTWAIT);

        if (n != -1) {
            sent += (size_t) n;
            s->share->quiet = 0;
            sbx_init_serve_alarm(s, s->patience);
            continue;
        }

        if (errno == EAGAIN) {
            if (sbx_init_serve_wait(s, POLLOUT, e) != 0) {
                return -1;
            }

        } else if (errno != EINTR) {
            return sbx_error(e, errno, SBX_E_UNAVAILABLE,
                             "the caller is gone");
        }
    }

    s->out_end = 0;

    return 0;
}


int
sbx_init_serve_fd(sbx_init_serve_t *s, sbx_frame_type_t type,
    const void *payload, size_t size, int fd, sbx_error_t *e)
{
    size_t   i, n;
    ssize_t  sent;

    if (sbx_init_serve_flush(s, e) != 0
        || sbx_init_serve_frame(s, type, payload, size, e) != 0)
    {
        return -1;
    }

    for ( ;; ) {
        sent = sbx_wire_send(s->call, s->out, s->out_end, &fd, 1,
                             MSG_DONTWAIT);

        if (sent != -1) {
            break;
        }

        if (errno != EAGAIN && errno != ETOOMANYREFS) {
            return sbx_error(e, errno, SBX_E_UNAVAILABLE,
                             "the caller is gone");
        }

        if (sbx_init_serve_wait(s, POLLOUT, e) != 0) {
            return -1;
        }
    }

    /* the descriptor has gone with the first byte */

    s->share->quiet = 0;
    n = s->out_end - (size_t) sent;

    for (i = 0; i < n; i++) {
        s->out[i] = s->out[(size_t) sent + i];
    }

    s->out_end = n;

    return sbx_init_serve_flush(s, e);
}


int
sbx_init_serve_next(sbx_init_serve_t *s, sbx_frame_t *frame,
    const uint8_t **payload, sbx_error_t *e)
{
    int      rc;
    ssize_t  n;

    for ( ;; ) {
        rc = sbx_wire_next(&s->in, frame, payload);

        if (rc == 1) {
            return 0;
        }

        if (rc == -1) {
            return sbx_error(e, 0, SBX_E_INVALID,
                             "the call's frames are malformed");
        }

        n = recv(s->call, s->in.buf + s->in.end, s->in.size - s->in.end,
                 MSG_DONTWAIT);

        if (n > 0) {
            s->in.end += (size_t) n;
            s->share->progress++;
            continue;
        }

        if (n == 0 || (errno != EAGAIN && errno != EINTR)) {
            return sbx_error(e, n == 0 ? 0 : errno, SBX_E_UNAVAILABLE,
                             "the caller is gone");
        }

        if (sbx_init_serve_wait(s, POLLIN, e) != 0) {
            return -1;
        }
    }
}
