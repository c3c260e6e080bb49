/*
 * What a run has created or changed in the workspace: regular files whose
 * status has changed since it began, as the kernel's coarse clock counts,
 * by which file systems stamp them.
 *
 * The walk is made with the rights of the session's user for files, follows
 * no link and enters nothing that is mounted below: what rules of the session
 * hide or bind is not told.  It is over after a few milliseconds, whatever
 * there is; the outermost directories come first.
 */

#include "init_code.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>


#define SBX_FILES_TIME     5000       /* us */
#define SBX_FILES_TOLD     1000
#define SBX_FILES_DIRS     4096       /* that wait to be walked */
#define SBX_FILES_NAMES    (512 * 1024)   /* bytes of their names */
#define SBX_FILES_NAME     256        /* bytes of one, with its slash */
#define SBX_FILES_LOOK     64         /* names between looks at the clock */
#define SBX_FILES_LATE     32         /* told ones that are remembered */
#define SBX_FILES_TICK     20000000   /* ns: a coarse clock's step, at most */


typedef struct {
    sbx_code_call_t   *call;
    int                top;
    uint64_t           until;
    unsigned           looks;
    unsigned           cut:1;
    char              *names;         /* of directories, from next to end */
    size_t             next;
    size_t             end;
    size_t             size;
    unsigned           dirs;
} sbx_files_t;


/*
 * Files that were told with the newest stamp that there can be.  Another run
 * that begins within the same step of the coarse clock would be told to have
 * changed them.
 */
typedef struct {
    uint64_t           ino;
    uint64_t           size;
    struct timespec    changed;
    uint64_t           told;          /* us */
} sbx_files_late_t;


static void sbx_files_rights(uid_t uid, gid_t gid);
static int sbx_files_open(int dir, const char *path);
static void sbx_files_walk(sbx_files_t *w, int fd, const char *path);
static void sbx_files_entry(sbx_files_t *w, int fd, const char *path,
    const char *name, unsigned type);
static void sbx_files_push(sbx_files_t *w, const char *path,
    const char *name);
static int sbx_files_before(const sbx_code_call_t *call,
    const struct statx *st);
static void sbx_files_late(const struct statx *st);
static void sbx_files_tell(sbx_files_t *w, const struct statx *st,
    const char *path, const char *name);


static sbx_files_late_t  sbx_files_told[SBX_FILES_LATE];
static unsigned          sbx_files_next;

static const char  *sbx_files_skipped[] = {
    ".cache", ".config", ".local", ".npm", ".ipython", "__pycache__"
};


void
sbx_code_files(sbx_code_call_t *call)
{
    int          fd;
    char         path[SBX_PATH_MAX];
    size_t       len;
    sbx_files_t  w;

    if (call->call.fd == -1 || sbx_init_paused()) {
        return;
    }

    memset(&w, 0, sizeof(w));
    w.call = call;
    w.until = sbx_now_us() + SBX_FILES_TIME;

    sbx_files_rights(sbx_init.config->uid, sbx_init.config->gid);

    w.top = sbx_files_open(AT_FDCWD, sbx_init.config->workspace);

    if (w.top != -1) {
        sbx_files_walk(&w, w.top, "");

        while (w.next < w.end && !w.cut) {
            len = strlen(w.names + w.next) + 1;
            memcpy(path, w.names + w.next, len);
            w.next += len;
            fd = sbx_files_open(w.top, path);

            if (fd != -1) {
                sbx_files_walk(&w, fd, path);
                (void) close(fd);
            }
        }

        (void) close(w.top);
    }

    sbx_files_rights(0, 0);
    free(w.names);

    call->ran.flags |= w.cut ? SBX_RAN_FILES_CUT : 0;
}


/* Capabilities over files go and come with the id.  The kernel also sets
 * whether this memory may be dumped, as the host has it. */

static void
sbx_files_rights(uid_t uid, gid_t gid)
{
    (void) syscall(SYS_setfsgid, gid);
    (void) syscall(SYS_setfsuid, uid);
    (void) prctl(PR_SET_DUMPABLE, 0, 0, 0, 0);
}


static int
sbx_files_open(int dir, const char *path)
{
    struct open_how  how;

    memset(&how, 0, sizeof(how));
    how.flags = O_RDONLY|O_DIRECTORY|O_CLOEXEC|O_NOFOLLOW|O_NONBLOCK;
    how.resolve = dir == AT_FDCWD ? RESOLVE_NO_MAGICLINKS
                                  : RESOLVE_BENEATH|RESOLVE_NO_SYMLINKS
                                    |RESOLVE_NO_XDEV;

    return (int) syscall(SYS_openat2, dir, path, &how, sizeof(how));
}


static void
sbx_files_walk(sbx_files_t *w, int fd, const char *path)
{
    long            n, at;
    unsigned        i;

    struct {
        uint64_t    ino;
        int64_t     off;
        uint16_t    len;
        uint8_t     type;
        char        name[];
    } *entry;

    static char     buf[32768] __attribute__((aligned(8)));

    while (!w->cut && (n = syscall(SYS_getdents64, fd, buf, sizeof(buf))) > 0)
    {
        for (at = 0; at < n && !w->cut; at += entry->len) {
            entry = (void *) (buf + at);

            if (++w->looks % SBX_FILES_LOOK == 0
                && sbx_now_us() >= w->until)
            {
                w->cut = 1;
                return;
            }

            if (entry->name[0] == '.'
                && (entry->name[1] == '\0'
                    || (entry->name[1] == '.' && entry->name[2] == '\0')))
            {
                continue;
            }

            for (i = 0; i < sbx_nelts(sbx_files_skipped); i++) {
                if (strcmp(entry->name, sbx_files_skipped[i]) == 0) {
                    break;
                }
            }

            if (i == sbx_nelts(sbx_files_skipped)
                || entry->type == DT_REG)
            {
                sbx_files_entry(w, fd, path, entry->name, entry->type);
            }
        }
    }
}


static void
sbx_files_entry(sbx_files_t *w, int fd, const char *path, const char *name,
    unsigned type)
{
    struct statx            st;
    const struct timespec  *since;

    if (type == DT_DIR) {
        sbx_files_push(w, path, name);
        return;
    }

    if (type != DT_REG && type != DT_UNKNOWN) {
        return;
    }

    /* in an overlay files and directories need not be of one device */

    if (statx(fd, name, AT_SYMLINK_NOFOLLOW|AT_STATX_DONT_SYNC,
              STATX_BASIC_STATS, &st)
            == -1
        || (st.stx_attributes & STATX_ATTR_MOUNT_ROOT))
    {
        return;
    }

    if (S_ISDIR(st.stx_mode)) {
        sbx_files_push(w, path, name);
        return;
    }

    since = &w->call->since;

    if (S_ISREG(st.stx_mode)
        && (st.stx_ctime.tv_sec > since->tv_sec
            || (st.stx_ctime.tv_sec == since->tv_sec
                && (long) st.stx_ctime.tv_nsec >= since->tv_nsec))
        && !sbx_files_before(w->call, &st))
    {
        sbx_files_tell(w, &st, path, name);
    }
}


/* 1: it was told, as it is, before this run began. */

static int
sbx_files_before(const sbx_code_call_t *call, const struct statx *st)
{
    unsigned                 i;
    const sbx_files_late_t  *late;

    for (i = 0; i < SBX_FILES_LATE; i++) {
        late = &sbx_files_told[i];

        if (late->told != 0 && late->told <= call->turn
            && late->ino == st->stx_ino && late->size == st->stx_size
            && late->changed.tv_sec == st->stx_ctime.tv_sec
            && late->changed.tv_nsec == (long) st->stx_ctime.tv_nsec)
        {
            return 1;
        }
    }

    return 0;
}


static void
sbx_files_late(const struct statx *st)
{
    int64_t            age;
    struct timespec    now;
    sbx_files_late_t  *late;

    (void) clock_gettime(CLOCK_REALTIME, &now);
    age = (now.tv_sec - st->stx_ctime.tv_sec) * 1000000000
          + now.tv_nsec - (long) st->stx_ctime.tv_nsec;

    if (age > SBX_FILES_TICK) {
        return;
    }

    late = &sbx_files_told[sbx_files_next++ % SBX_FILES_LATE];
    late->ino = st->stx_ino;
    late->size = st->stx_size;
    late->changed.tv_sec = st->stx_ctime.tv_sec;
    late->changed.tv_nsec = (long) st->stx_ctime.tv_nsec;
    late->told = sbx_now_us();
}


static void
sbx_files_push(sbx_files_t *w, const char *path, const char *name)
{
    char    *names;
    size_t   len, n;

    len = strlen(path);
    n = len + strlen(name) + 2;

    /* a name of a file has to fit, too */

    if (n >= SBX_PATH_MAX - sizeof(sbx_init.config->workspace)
             - SBX_FILES_NAME
        || w->dirs == SBX_FILES_DIRS || w->end + n > SBX_FILES_NAMES)
    {
        w->cut = 1;
        return;
    }

    if (w->end + n > w->size) {
        w->size = (w->end + n) * 2 < 4096 ? 4096 : (w->end + n) * 2;
        names = realloc(w->names, w->size);

        if (names == NULL) {
            w->cut = 1;
            return;
        }

        w->names = names;
    }

    names = w->names + w->end;

    if (len != 0) {
        memcpy(names, path, len);
        names[len++] = '/';
    }

    (void) strcpy(names + len, name);
    w->end += len + strlen(name) + 1;
    w->dirs++;
}


static void
sbx_files_tell(sbx_files_t *w, const struct statx *st, const char *path,
    const char *name)
{
    char             *p;
    size_t            len, size;
    uint8_t          *tail;
    sbx_f_entry_t     entry;
    sbx_code_call_t  *call;

    call = w->call;

    if (call->ran.files == SBX_FILES_TOLD) {
        w->cut = 1;
        return;
    }

    len = strlen(sbx_init.config->workspace) + 1 + strlen(path)
          + (path[0] != '\0') + strlen(name);
    size = sizeof(sbx_frame_t) + sizeof(entry) + len;

    /* and one that strcpy() ends with */
    tail = sbx_code_tail(call, size + 1);

    if (tail == NULL) {
        w->cut = 1;
        return;
    }

    call->ran.files++;

    memset(&entry, 0, sizeof(entry));
    entry.type = SBX_TYPE_FILE;
    entry.mode = st->stx_mode & 07777;
    entry.size = st->stx_size;
    entry.mtime_ns = st->stx_mtime.tv_sec * 1000000000
                     + st->stx_mtime.tv_nsec;
    entry.inode = st->stx_ino;
    entry.path_len = (uint32_t) len;

    tail += sbx_wire_header(tail, SBX_F_ENTRY, sizeof(entry) + len);
    memcpy(tail, &entry, sizeof(entry));

    p = stpcpy((char *) tail + sizeof(entry), sbx_init.config->workspace);
    *p++ = '/';

    if (path[0] != '\0') {
        p = stpcpy(p, path);
        *p++ = '/';
    }

    (void) strcpy(p, name);
    call->tail_end += size;

    sbx_files_late(st);
}
