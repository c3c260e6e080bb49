/*
 * Metadata of files: extended attributes "user.KEY", which go where the file
 * goes.  A program of the session may read and set them, too.
 *
 * Where the file system takes none (tmpfs before Linux 6.6), or not so much
 * (ext4: a block for all of a file's), it is kept in memory that init has in
 * common with the processes that serve: in slots, each with the file it is of.
 * A file is known by device, inode and time of birth, so that an inode's
 * number that is used again is another file.  When all slots are taken, those
 * go whose file is no longer where it was last seen; if there are none, the
 * call fails.
 *
 * Slots are written under the servers' lock.  Who holds it may be killed: a
 * slot is in use only once all else of it is written.
 */

#include "init_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/xattr.h>


#define SBX_INIT_META_PREFIX   "user."
#define SBX_INIT_META_SLOTS    512
#define SBX_INIT_META_NAME     256          /* with its NUL */
#define SBX_INIT_META_LIST     65536        /* the kernel's own bound */


typedef struct {
    uint32_t              major;
    uint32_t              minor;
    uint64_t              inode;
    int64_t               born;
    uint32_t              born_ns;
    uint32_t              pad;
} sbx_init_meta_file_t;


typedef struct {
    uint32_t              used;
    uint32_t              size;
    sbx_init_meta_file_t  file;
} sbx_init_meta_slot_t;


typedef struct {
    char                  metadata[SBX_FILE_METADATA_MAX];
    char                  path[SBX_PATH_MAX];
} sbx_init_meta_data_t;


typedef struct {
    uint32_t              used;             /* slots, or more */
    sbx_init_meta_slot_t  slots[SBX_INIT_META_SLOTS];
    sbx_init_meta_data_t  data[SBX_INIT_META_SLOTS];
} sbx_init_meta_t;


static size_t sbx_init_meta_add(char *buf, size_t n, const char *key,
    const char *value, size_t size);
static int sbx_init_meta_attributes(int fd, const char *metadata,
    size_t size);
static int sbx_init_meta_file(int fd, sbx_init_meta_file_t *file);
static int sbx_init_meta_find(const sbx_init_meta_file_t *file);
static size_t sbx_init_meta_slot(int fd, char *buf);
static int sbx_init_meta_keep(sbx_init_serve_t *s, int fd, const char *path,
    const char *metadata, size_t size, sbx_error_t *e);
static int sbx_init_meta_room(sbx_init_serve_t *s);
static void sbx_init_meta_path(int dir, const char *name, char *path);


static sbx_init_meta_t  *sbx_init_meta;


int
sbx_init_meta_open(sbx_error_t *e)
{
    sbx_init_meta = mmap(NULL, sizeof(sbx_init_meta_t), PROT_READ|PROT_WRITE,
                         MAP_SHARED|MAP_ANONYMOUS|MAP_NORESERVE, -1, 0);

    if (sbx_init_meta == MAP_FAILED) {
        return sbx_error(e, errno, SBX_E_INTERNAL, "out of memory");
    }

    return 0;
}


int
sbx_init_meta_kept(void)
{
    return __atomic_load_n(&sbx_init_meta->used, __ATOMIC_ACQUIRE) != 0;
}


/* What does not fit, or would not be what it seems, is left out whole. */

size_t
sbx_init_meta_read(sbx_init_serve_t *s, int fd, char *buf)
{
    char         path[64], *name, *end;
    size_t       n;
    ssize_t      len, size;

    static char  list[SBX_INIT_META_LIST];
    static char  value[SBX_FILE_METADATA_MAX];

    n = 0;

    if (sbx_init_meta_kept() && sbx_init_serve_lock(NULL) == 0) {
        n = sbx_init_meta_slot(fd, buf);
        sbx_init_serve_unlock();
    }

    /* the descriptor may be for its path alone, of which no more is asked */

    (void) snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);

    len = listxattr(path, list, sizeof(list) - 1);

    if (len <= 0) {
        return n;
    }

    end = list + len;
    *end = '\0';

    for (name = list; name < end; name += strlen(name) + 1) {
        if (strncmp(name, SBX_INIT_META_PREFIX,
                    sizeof(SBX_INIT_META_PREFIX) - 1)
            != 0)
        {
            continue;
        }

        size = getxattr(path, name, value, sizeof(value));

        if (size >= 0) {
            n = sbx_init_meta_add(buf, n,
                                  name + sizeof(SBX_INIT_META_PREFIX) - 1,
                                  value, (size_t) size);
        }
    }

    s->share->progress++;

    return n;
}


static size_t
sbx_init_meta_add(char *buf, size_t n, const char *key, const char *value,
    size_t size)
{
    size_t       len;
    const char  *p;

    len = strlen(key) + 1;

    if (len == 1 || memchr(value, '\0', size) != NULL
        || len + size + 1 > SBX_FILE_METADATA_MAX - n)
    {
        return n;
    }

    for (p = buf; p < buf + n; p += strlen(p) + 1) {
        if (strcmp(p, key) == 0) {
            return n;
        }

        p += strlen(p) + 1;
    }

    memcpy(buf + n, key, len);
    memcpy(buf + n + len, value, size);
    buf[n + len + size] = '\0';

    return n + len + size + 1;
}


int
sbx_init_meta_write(sbx_init_serve_t *s, int fd, int dir, const char *name,
    const char *metadata, size_t size, sbx_error_t *e)
{
    int   err;
    char  path[SBX_PATH_MAX];

    err = sbx_init_meta_attributes(fd, metadata, size);

    switch (err) {

    case 0:
        return 0;

    case EOPNOTSUPP:
    case ENOSPC:
    case EDQUOT:
    case E2BIG:
    case ERANGE:
        sbx_init_meta_path(dir, name, path);
        return sbx_init_meta_keep(s, fd, path, metadata, size, e);

    default:
        return sbx_init_errno(e, err, "metadata");
    }
}


/* All of them, or none and an error. */

static int
sbx_init_meta_attributes(int fd, const char *metadata, size_t size)
{
    int          err;
    char         name[SBX_INIT_META_NAME];
    const char  *key, *value, *end;

    end = metadata + size;
    err = 0;

    for (key = metadata; key < end; key = value + strlen(value) + 1) {
        value = key + strlen(key) + 1;

        if ((size_t) snprintf(name, sizeof(name), SBX_INIT_META_PREFIX "%s",
                              key)
            >= sizeof(name))
        {
            err = ERANGE;
            break;
        }

        if (fsetxattr(fd, name, value, strlen(value), 0) == -1) {
            err = errno;
            break;
        }
    }

    end = key;

    for (key = metadata; err != 0 && key < end;
         key = value + strlen(value) + 1)
    {
        value = key + strlen(key) + 1;

        (void) snprintf(name, sizeof(name), SBX_INIT_META_PREFIX "%s", key);
        (void) fremovexattr(fd, name);
    }

    return err;
}


/*
 * ---- slots -----------------------------------------------------------------
 */

/* -1: nothing tells it from another of the same number. */

static int
sbx_init_meta_file(int fd, sbx_init_meta_file_t *file)
{
    struct statx  st;

    memset(file, 0, sizeof(sbx_init_meta_file_t));

    if (statx(fd, "", AT_EMPTY_PATH, STATX_INO|STATX_BTIME, &st) == -1
        || (st.stx_mask & (STATX_INO|STATX_BTIME))
           != (STATX_INO|STATX_BTIME))
    {
        return -1;
    }

    file->major = st.stx_dev_major;
    file->minor = st.stx_dev_minor;
    file->inode = st.stx_ino;
    file->born = st.stx_btime.tv_sec;
    file->born_ns = st.stx_btime.tv_nsec;

    return 0;
}


static int
sbx_init_meta_find(const sbx_init_meta_file_t *file)
{
    int                    i;
    sbx_init_meta_slot_t  *slot;

    for (i = 0; i < SBX_INIT_META_SLOTS; i++) {
        slot = &sbx_init_meta->slots[i];

        if (slot->used
            && memcmp(&slot->file, file, sizeof(sbx_init_meta_file_t)) == 0)
        {
            return i;
        }
    }

    return -1;
}


static size_t
sbx_init_meta_slot(int fd, char *buf)
{
    int                   i;
    sbx_init_meta_file_t  file;

    if (sbx_init_meta_file(fd, &file) != 0) {
        return 0;
    }

    i = sbx_init_meta_find(&file);

    if (i == -1 || sbx_init_meta->slots[i].size > SBX_FILE_METADATA_MAX) {
        return 0;
    }

    memcpy(buf, sbx_init_meta->data[i].metadata,
           sbx_init_meta->slots[i].size);

    return sbx_init_meta->slots[i].size;
}


static void
sbx_init_meta_free(int i)
{
    __atomic_store_n(&sbx_init_meta->slots[i].used, 0, __ATOMIC_RELEASE);
    __atomic_fetch_sub(&sbx_init_meta->used, 1, __ATOMIC_ACQ_REL);
}


static int
sbx_init_meta_keep(sbx_init_serve_t *s, int fd, const char *path,
    const char *metadata, size_t size, sbx_error_t *e)
{
    int                    i;
    sbx_init_meta_file_t   file;
    sbx_init_meta_slot_t  *slot;

    if (sbx_init_meta_file(fd, &file) != 0) {
        return sbx_error(e, 0, SBX_E_CONFLICT,
                         "metadata: the file system there keeps none");
    }

    if (sbx_init_serve_lock(e) != 0) {
        return -1;
    }

    i = sbx_init_meta_room(s);

    if (i == -1) {
        sbx_init_serve_unlock();
        return sbx_error(e, 0, SBX_E_NO_SPACE,
                         "metadata: the session has no room for more of it");
    }

    slot = &sbx_init_meta->slots[i];
    slot->file = file;
    slot->size = (uint32_t) size;
    memcpy(sbx_init_meta->data[i].metadata, metadata, size);
    (void) sbx_copy_string(sbx_init_meta->data[i].path, SBX_PATH_MAX, path,
                           strlen(path));

    __atomic_fetch_add(&sbx_init_meta->used, 1, __ATOMIC_ACQ_REL);
    __atomic_store_n(&slot->used, 1, __ATOMIC_RELEASE);

    sbx_init_serve_unlock();

    return 0;
}


/* A slot, or -1.  What this user cannot look at is taken to be there. */

static int
sbx_init_meta_room(sbx_init_serve_t *s)
{
    int                    i, fd, room;
    sbx_error_t            e;
    sbx_init_meta_file_t   file;
    sbx_init_meta_slot_t  *slot;

    for (i = 0; i < SBX_INIT_META_SLOTS; i++) {
        if (!sbx_init_meta->slots[i].used) {
            return i;
        }
    }

    room = -1;

    for (i = 0; i < SBX_INIT_META_SLOTS; i++) {
        slot = &sbx_init_meta->slots[i];
        fd = sbx_init_open(s, sbx_init_meta->data[i].path,
                           O_PATH|O_NOFOLLOW, &e);

        if (fd == -1) {
            if (e.code != SBX_E_FILE && e.code != SBX_E_FILE_TYPE) {
                continue;
            }

        } else if (sbx_init_meta_file(fd, &file) == 0
                   && memcmp(&slot->file, &file, sizeof(file)) == 0)
        {
            (void) close(fd);
            continue;

        } else {
            (void) close(fd);
        }

        sbx_init_meta_free(i);
        room = i;
    }

    return room;
}


/* "" where it is too long: such a file's slot may go when all are taken. */

static void
sbx_init_meta_path(int dir, const char *name, char *path)
{
    size_t  len;

    if (sbx_init_real(dir, path, SBX_PATH_MAX, NULL) != 0) {
        path[0] = '\0';
        return;
    }

    len = strlen(path);

    if (len > 1) {
        path[len++] = '/';
    }

    if (len >= SBX_PATH_MAX
        || sbx_copy_string(path + len, SBX_PATH_MAX - len, name,
                           strlen(name))
           != 0)
    {
        path[0] = '\0';
    }
}


void
sbx_init_meta_drop(int fd)
{
    int                   i;
    sbx_init_meta_file_t  file;

    if (fd == -1 || !sbx_init_meta_kept()
        || sbx_init_meta_file(fd, &file) != 0
        || sbx_init_serve_lock(NULL) != 0)
    {
        return;
    }

    i = sbx_init_meta_find(&file);

    if (i != -1) {
        sbx_init_meta_free(i);
    }

    sbx_init_serve_unlock();
}


void
sbx_init_meta_moved(int dir, const char *name)
{
    int                   i;
    char                  path[SBX_PATH_MAX];
    sbx_auto_fd           fd = -1;
    sbx_init_meta_file_t  file;

    if (!sbx_init_meta_kept()) {
        return;
    }

    fd = sbx_init_open_at(dir, name, O_PATH|O_NOFOLLOW);

    if (fd == -1 || sbx_init_meta_file(fd, &file) != 0) {
        return;
    }

    sbx_init_meta_path(dir, name, path);

    if (sbx_init_serve_lock(NULL) != 0) {
        return;
    }

    i = sbx_init_meta_find(&file);

    if (i != -1) {
        (void) sbx_copy_string(sbx_init_meta->data[i].path, SBX_PATH_MAX,
                               path, strlen(path));
    }

    sbx_init_serve_unlock();
}
