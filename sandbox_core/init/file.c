/*
 * File calls, the side of process 1.
 *
 * Each is served by a child of its own, which has become the session's user
 * when it reads the first byte; init reads none.  Init keeps a copy of the
 * call's socket: while a download lasts, because closing the session's side
 * is how it is cut; else so that a call whose server was killed is answered
 * or ended, and its hidden temporary removed.
 *
 * The servers run as users of the session, who may kill or stop them: so
 * init ends one that makes no progress, and there is a bounded number of each
 * kind.  Which kind a call is of its server tells, once it has read it: a
 * watch is then no longer among those that other calls wait for.
 */

#include "init_file.h"
#include "sandbox_fault.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/openat2.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>


#define SBX_INIT_FILES        1024      /* calls, waiting and open ones too */
#define SBX_INIT_FILE_LOOK    5000000   /* us */
#define SBX_INIT_FILE_SOON    20000     /* us, while a call waits */
#define SBX_INIT_FILE_STUCK   90000000  /* us; longer than the longest alarm */


typedef enum {
    SBX_INIT_FILE_FREE,
    SBX_INIT_FILE_WAITS,
    SBX_INIT_FILE_SERVED,
    SBX_INIT_FILE_OPEN                  /* a download */
} sbx_init_file_state_t;


typedef struct {
    sbx_init_file_state_t   state;
    sbx_init_source_t       call;
    uint32_t                turn;
    pid_t                   pid;
    unsigned                server;     /* its place among the shares */
    unsigned                hung_up:1;
    unsigned                sweeps:1;   /* no call: removes what is left */
    uint32_t                progress;   /* when it was last looked at */
    uint64_t                since;
} sbx_init_file_t;


static void sbx_init_file_event(sbx_init_source_t *source, uint32_t events);
static void sbx_init_file_next(void);
static void sbx_init_file_fork(sbx_init_file_t *f, unsigned server);
static int sbx_init_file_full(void);
static sbx_init_file_t *sbx_init_file_new(void);
static void sbx_init_file_killed(sbx_init_file_t *f);
static int sbx_init_file_sweep(const char *path);
static void sbx_init_file_sweep_tree(unsigned server);
static void sbx_init_file_free(sbx_init_file_t *f);


static sbx_init_file_t    sbx_init_files[SBX_INIT_FILES];
static unsigned           sbx_init_files_end;
static uint32_t           sbx_init_file_turn;
static sbx_init_share_t  *sbx_init_shares;
static uint64_t           sbx_init_servers;        /* bits: in use */
static int                sbx_init_file_lock = -1;
static int                sbx_init_files_cut;


int
sbx_init_file_open(sbx_error_t *e)
{
    unsigned  i;

    if (sbx_init_meta_open(e) != 0 || sbx_init_keep_open(e) != 0) {
        return -1;
    }

    sbx_init_shares = mmap(NULL, SBX_INIT_SERVERS * sizeof(sbx_init_share_t),
                           PROT_READ|PROT_WRITE, MAP_SHARED|MAP_ANONYMOUS,
                           -1, 0);

    if (sbx_init_shares == MAP_FAILED) {
        return sbx_error(e, errno, SBX_E_INTERNAL, "out of memory");
    }

    sbx_init_file_lock = memfd_create("lock", MFD_CLOEXEC);

    if (sbx_init_file_lock == -1) {
        return sbx_error(e, errno, SBX_E_INTERNAL, "memfd_create() failed");
    }

    for (i = 0; i < SBX_INIT_FILES; i++) {
        sbx_init_files[i].call.fd = -1;
    }

    return 0;
}


const sbx_init_share_t *
sbx_init_file_shares(void)
{
    return sbx_init_shares;
}


static sbx_init_file_t *
sbx_init_file_new(void)
{
    unsigned          i;
    sbx_init_file_t  *f;

    for (i = 0; i < SBX_INIT_FILES; i++) {
        if (sbx_init_files[i].state == SBX_INIT_FILE_FREE) {
            break;
        }
    }

    if (i == SBX_INIT_FILES) {
        return NULL;
    }

    if (i >= sbx_init_files_end) {
        sbx_init_files_end = i + 1;
    }

    f = &sbx_init_files[i];

    memset(f, 0, sizeof(sbx_init_file_t));
    f->call.fd = -1;

    return f;
}


void
sbx_init_file_task(int fd)
{
    int               type;
    socklen_t         len;
    sbx_error_t       e;
    sbx_f_error_t     error;
    sbx_init_file_t  *f;

    len = sizeof(type);

    if (getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &len) == -1
        || type != SOCK_STREAM)
    {
        (void) close(fd);
        return;
    }

    f = sbx_init_file_new();

    if (f == NULL) {
        (void) sbx_error(&e, 0, SBX_E_UNAVAILABLE,
                         "too many file calls of the session are open");
        sbx_init_error_fill(&error, &e);
        sbx_init_exec_refuse(fd, &error);
        return;
    }

    f->state = SBX_INIT_FILE_WAITS;
    f->turn = sbx_init_file_turn++;
    f->call.fd = fd;
    f->call.handler = sbx_init_file_event;
    f->call.data = f;

    sbx_init_file_next();

    if (f->state == SBX_INIT_FILE_WAITS) {
        sbx_init_source_set(&f->call, EPOLLRDHUP);
    }
}


/* The worker has closed: nothing else is asked of the loop here. */

static void
sbx_init_file_event(sbx_init_source_t *source, uint32_t events)
{
    sbx_init_file_t  *f;

    (void) events;

    f = source->data;

    sbx_init_file_free(f);
    sbx_init_file_next();
}


/* Who has waited longest is served, if anybody can serve. */

static void
sbx_init_file_next(void)
{
    unsigned          i, server;
    sbx_init_file_t  *f, *first;

    for (server = 0; server < SBX_INIT_SERVERS; server++) {

        if (sbx_init_servers & (1ull << server)) {
            continue;
        }

        first = NULL;

        for (i = 0; i < sbx_init_files_end; i++) {
            f = &sbx_init_files[i];

            if (f->state == SBX_INIT_FILE_WAITS
                && (first == NULL || (int32_t) (f->turn - first->turn) < 0))
            {
                first = f;
            }
        }

        if (first == NULL) {
            return;
        }

        if (sbx_init_file_full()) {
            sbx_init_loop_wake(sbx_now_us() + SBX_INIT_FILE_SOON);
            return;
        }

        sbx_init_file_fork(first, server);
    }
}


/* Of those that serve any call: what has become another kind is not one. */

static int
sbx_init_file_full(void)
{
    unsigned  i, n;

    for (i = 0, n = 0; i < SBX_INIT_SERVERS; i++) {
        n += ((sbx_init_servers & (1ull << i))
              && sbx_init_shares[i].kind == SBX_INIT_KIND_CALL);
    }

    return n >= SBX_INIT_SERVERS_CALL;
}


static void
sbx_init_file_fork(sbx_init_file_t *f, unsigned server)
{
    int                err, group;
    char               path[SBX_PATH_MAX + 64];
    long               made;
    int32_t            pid;
    unsigned           n;
    uint32_t           user;
    volatile unsigned  entered;
    sbx_f_error_t      error;
    sbx_init_share_t  *share;

    share = &sbx_init_shares[server];
    path[0] = '\0';
    user = 0;

    if (f->sweeps) {
        (void) sbx_copy_string(path, sizeof(path), share->temporary,
                               strlen(share->temporary));
        user = share->user;
    }

    memset(share, 0, sizeof(sbx_init_share_t));
    share->user = user;
    share->quiet = !f->sweeps;
    share->used = 1;

    /* the server has the same open file: what it does with it is no event */

    if (!f->sweeps) {
        sbx_init_source_set(&f->call, 0);
    }

    n = sbx_init.config->files_attach_count;
    group = n != 0 ? SBX_INIT_ATTACH + (int) n : -1;
    entered = 0;
    pid = 0;

    made = sbx_init_clone(group, 0, &pid, &entered);
    f->pid = made < 0 ? -1 : (pid_t) made;

    if (f->pid == 0 && f->sweeps) {
        sbx_init_serve_sweep(path, sbx_init_file_lock, share, entered != 0);
    }

    if (f->pid == 0) {
        sbx_init_serve(f->call.fd, sbx_init_file_lock, share, entered != 0);
    }

    if (f->pid == -1) {
        share->used = 0;

        if (f->sweeps) {
            sbx_init_file_free(f);
            return;
        }

        err = (int) -made;

        sbx_init_error_soon(&error, err, "the file call cannot be served now");
        sbx_init_exec_refuse(sbx_init_source_take(&f->call), &error);
        sbx_init_file_free(f);
        return;
    }

    SBX_FAULT("init-file-forked");
    sbx_init_servers |= 1ull << server;

    f->state = SBX_INIT_FILE_SERVED;
    f->server = server;
    f->progress = share->progress;
    f->since = sbx_now_us();

    sbx_init_loop_wake(f->since + SBX_INIT_FILE_LOOK);
}


int
sbx_init_file_reap(pid_t pid, int status)
{
    unsigned          i;
    sbx_init_file_t  *f;

    for (i = 0; i < sbx_init_files_end; i++) {
        if (sbx_init_files[i].state == SBX_INIT_FILE_SERVED
            && sbx_init_files[i].pid == pid)
        {
            break;
        }
    }

    if (i == sbx_init_files_end) {
        return 0;
    }

    SBX_FAULT("init-file-reaped");
    f = &sbx_init_files[i];
    sbx_init_servers &= ~(1ull << f->server);
    sbx_init_shares[f->server].used = 0;
    sbx_init_keep_died(&sbx_init_shares[f->server]);

    if (WIFEXITED(status) && WEXITSTATUS(status) == SBX_INIT_OPENED) {
        f->state = SBX_INIT_FILE_OPEN;
        sbx_init_source_set(&f->call, EPOLLRDHUP);

        if (sbx_init_files_cut) {
            (void) shutdown(f->call.fd, SHUT_WR);
        }

    } else {
        if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) {
            sbx_init_file_killed(f);
        }

        if (f->state == SBX_INIT_FILE_SERVED) {
            sbx_init_file_free(f);
        }
    }

    sbx_init_file_next();

    return 1;
}


static void
sbx_init_file_killed(sbx_init_file_t *f)
{
    sbx_error_t        e;
    sbx_f_error_t      error;
    sbx_init_share_t  *share;

    share = &sbx_init_shares[f->server];

    if (f->sweeps) {
        return;
    }

    if (share->quiet) {
        (void) sbx_error(&e, 0, SBX_E_UNAVAILABLE,
                         "the process that served the call was killed, "
                         "perhaps for want of memory");
        sbx_init_error_fill(&error, &e);
        sbx_init_exec_refuse(sbx_init_source_take(&f->call), &error);
    }

    if (share->staged[0] != '\0') {
        share->staged[sizeof(share->staged) - 1] = '\0';
        (void) sbx_init_file_sweep(share->staged);
    }

    if (share->temporary[0] != '\0') {
        share->temporary[sizeof(share->temporary) - 1] = '\0';

        if (sbx_init_file_sweep(share->temporary) == EISDIR) {
            sbx_init_file_sweep_tree(f->server);
        }
    }
}


/* What an archive was unpacked into: too much to be removed by init. */

static void
sbx_init_file_sweep_tree(unsigned server)
{
    sbx_init_file_t  *f;

    f = sbx_init_file_new();

    if (f != NULL) {
        f->sweeps = 1;
        sbx_init_file_fork(f, server);
    }
}


/*
 * By a name that only its maker knew.  If the session has meanwhile moved
 * the directory or put a link in its place, nothing is found there.
 */

static int
sbx_init_file_sweep(const char *path)
{
    char             dir[SBX_PATH_MAX + 64];
    sbx_auto_fd      fd = -1;
    const char      *name;
    struct open_how  how;

    name = strrchr(path, '/');

    if (name == NULL
        || strncmp(name + 1, SBX_INIT_TEMPORARY,
                   sizeof(SBX_INIT_TEMPORARY) - 1)
           != 0
        || sbx_copy_string(dir, sizeof(dir), path, (size_t) (name - path))
           != 0)
    {
        return 0;
    }

    memset(&how, 0, sizeof(struct open_how));
    how.flags = O_PATH|O_DIRECTORY|O_CLOEXEC;
    how.resolve = RESOLVE_NO_MAGICLINKS|RESOLVE_NO_SYMLINKS;

    fd = (int) syscall(SYS_openat2, AT_FDCWD, dir[0] ? dir : "/", &how,
                       sizeof(how));

    if (fd == -1 || unlinkat(fd, name + 1, 0) == 0) {
        return 0;
    }

    return errno;
}


void
sbx_init_file_cut(void)
{
    unsigned  i;

    sbx_init_files_cut = 1;

    /* our half alone: the worker reads the end and closes, which is how we
     * learn that it has let go of the file */

    for (i = 0; i < sbx_init_files_end; i++) {
        if (sbx_init_files[i].state == SBX_INIT_FILE_OPEN) {
            (void) shutdown(sbx_init_files[i].call.fd, SHUT_WR);
        }
    }
}


int
sbx_init_file_cutting(void)
{
    unsigned  i;

    for (i = 0; i < sbx_init_files_end; i++) {
        if (sbx_init_files[i].state == SBX_INIT_FILE_OPEN) {
            return 1;
        }
    }

    return 0;
}


unsigned
sbx_init_file_calls(void)
{
    unsigned          i, n;
    sbx_init_file_t  *f;

    n = 0;

    for (i = 0; i < sbx_init_files_end; i++) {
        f = &sbx_init_files[i];

        n += (f->state != SBX_INIT_FILE_FREE
              && (f->state != SBX_INIT_FILE_SERVED
                  || !sbx_init_shares[f->server].keeps));
    }

    return n;
}


void
sbx_init_file_tick(uint64_t now)
{
    int                served;
    unsigned           i;
    sbx_init_file_t   *f;
    sbx_init_share_t  *share;

    served = 0;

    sbx_init_file_next();

    for (i = 0; i < sbx_init_files_end; i++) {
        f = &sbx_init_files[i];

        if (f->state != SBX_INIT_FILE_SERVED) {
            continue;
        }

        served = 1;
        share = &sbx_init_shares[f->server];

        if (share->keeps) {

            /* it goes on without its call */

            sbx_init_source_close(&f->call);
        }

        if (share->progress != f->progress) {
            f->progress = share->progress;
            f->since = now;

        } else if (sbx_init_paused()) {
            f->since = now;

        } else if (now - f->since >= SBX_INIT_FILE_STUCK) {
            (void) kill(f->pid, SIGKILL);
            f->since = now;
        }
    }

    if (served) {
        sbx_init_loop_wake(now + SBX_INIT_FILE_LOOK);
    }
}


static void
sbx_init_file_free(sbx_init_file_t *f)
{
    sbx_init_source_close(&f->call);
    f->state = SBX_INIT_FILE_FREE;
}
