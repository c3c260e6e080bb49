/*
 * A session's disk: which kind there is, what holds it, how large it is.
 * The kinds that need more than a mount have files of their own.
 *
 * A volume is made by the session's first process while that is still the
 * broker's copy with the host's mounts, so that neither mkfs nor a copy nor
 * a slow disk holds up the broker's loop.
 */

#include "storage_private.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/magic.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/vfs.h>


#define MB  ((uint64_t) 1024 * 1024)
#define GB  (1024 * MB)

#define SBX_STORAGE_DISK          GB         /* of who asks for none */
#define SBX_STORAGE_SHARE         4          /* of memory: /dev/shm, /run */
#define SBX_STORAGE_SHARE_INODES  4096
#define SBX_STORAGE_OVERLAY       3          /* the top, and work's own */


static sbx_storage_t *sbx_storage_make(sbx_storage_kind_t kind,
    const char *dir, const char *state_dir, const char *tag,
    sbx_error_t *e);
static int sbx_storage_try(sbx_storage_t *s, sbx_error_t *e);
static int sbx_storage_dir(sbx_storage_t *s, sbx_error_t *e);
static int sbx_storage_tmpfs(uint64_t bytes, uint64_t inodes, int *fd,
    sbx_error_t *e);


static const struct {
    const char     *word;
    sbx_enforce_t   by;
    const char     *disk;             /* of /capabilities */
    const char     *inodes;
} sbx_storage_kinds[] = {
    [SBX_STORAGE_AUTO] = { "auto", SBX_BY_NONE, "none", "none" },
    [SBX_STORAGE_TMPFS] = { "tmpfs", SBX_BY_TMPFS, "tmpfs size",
                            "tmpfs nr_inodes" },
    [SBX_STORAGE_DIRECTORY] = { "directory", SBX_BY_PROJECT_QUOTA,
                                "project quota of blocks",
                                "project quota of inodes" },
    [SBX_STORAGE_IMAGE] = { "image", SBX_BY_IMAGE,
                            "size of an ext4 image on a loop device",
                            "inodes of the image" }
};


int
sbx_storage_open(sbx_storage_kind_t kind, const char *dir,
    const char *state_dir, const char *tag, sbx_storage_t **storage,
    sbx_error_t *e)
{
    sbx_storage_t  *s;

    /* it may come from a datagram */

    if ((unsigned) kind >= sbx_nelts(sbx_storage_kinds)) {
        return sbx_error(e, 0, SBX_E_INVALID, "no such kind of storage");
    }

    s = sbx_storage_make(kind == SBX_STORAGE_AUTO ? SBX_STORAGE_IMAGE : kind,
                         dir, state_dir, tag, e);

    if (s == NULL) {
        return -1;
    }

    if (sbx_storage_try(s, e) == -1) {

        if (kind != SBX_STORAGE_AUTO) {
            sbx_storage_close(s);
            return -1;
        }

        (void) snprintf(s->lacks, sizeof(s->lacks), "%.120s%s%.60s", e->text,
                        e->err != 0 ? ": " : "",
                        e->err != 0 ? strerror(e->err) : "");
        s->kind = SBX_STORAGE_TMPFS;
    }

    *storage = s;

    return 0;
}


static sbx_storage_t *
sbx_storage_make(sbx_storage_kind_t kind, const char *dir,
    const char *state_dir, const char *tag, sbx_error_t *e)
{
    int             n;
    sbx_storage_t  *s;

    s = calloc(1, sizeof(sbx_storage_t));

    if (s == NULL) {
        (void) sbx_error(e, errno, SBX_E_INTERNAL, "no memory");
        return NULL;
    }

    s->dir = -1;
    s->kind = kind;
    sbx_storage_named(dir, state_dir, s->named, sizeof(s->named));

    if (dir == NULL || dir[0] == '\0') {
        n = snprintf(s->path, sizeof(s->path), "%s/%s", state_dir,
                     s->kind == SBX_STORAGE_IMAGE ? "images" : "storage");

    } else {
        /* as with the state directory: the last part may be missing */
        (void) mkdir(dir, 0755);
        n = snprintf(s->path, sizeof(s->path), "%s/sandbox-%s", dir, tag);
    }

    if (n >= (int) sizeof(s->path)) {
        (void) sbx_error(e, 0, SBX_E_UNAVAILABLE,
                         "the directory of sandbox_storage is too long");
        sbx_storage_close(s);
        return NULL;
    }

    return s;
}


void
sbx_storage_known(const sbx_storage_t *storage, sbx_storage_known_t *known)
{
    memset(known, 0, sizeof(sbx_storage_known_t));
    known->kind = (uint32_t) storage->kind;
    known->quota = storage->quota;
    (void) snprintf(known->lacks, sizeof(known->lacks), "%s",
                    storage->lacks);
}


/* The directory alone is opened: a disk that is full for the moment is no
   reason to be another kind. */
int
sbx_storage_again(const sbx_storage_known_t *known, const char *dir,
    const char *state_dir, const char *tag, sbx_storage_t **storage,
    sbx_error_t *e)
{
    sbx_storage_t  *s;

    s = sbx_storage_make((sbx_storage_kind_t) known->kind, dir, state_dir,
                         tag, e);

    if (s == NULL) {
        return -1;
    }

    if (s->kind != SBX_STORAGE_TMPFS && sbx_storage_dir(s, e) == -1) {
        sbx_storage_close(s);
        return -1;
    }

    s->quota = known->quota != 0;
    (void) snprintf(s->lacks, sizeof(s->lacks), "%s", known->lacks);

    *storage = s;

    return 0;
}


static int
sbx_storage_try(sbx_storage_t *s, sbx_error_t *e)
{
    switch (s->kind) {

    case SBX_STORAGE_IMAGE:
        return (sbx_storage_dir(s, e) == -1) ? -1 : sbx_image_open(s, e);

    case SBX_STORAGE_DIRECTORY:
        return (sbx_storage_dir(s, e) == -1) ? -1 : sbx_directory_open(s, e);

    case SBX_STORAGE_TMPFS:
    case SBX_STORAGE_AUTO:
        break;
    }

    return 0;
}


static int
sbx_storage_dir(sbx_storage_t *s, sbx_error_t *e)
{
    struct stat  st;

    if (mkdir(s->path, 0700) == -1 && errno != EEXIST) {
        return sbx_error(e, errno, SBX_E_UNAVAILABLE,
                         "cannot make \"%.160s\" for sandbox_storage",
                         s->path);
    }

    s->dir = open(s->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);

    if (s->dir == -1 || fstat(s->dir, &st) == -1) {
        return sbx_error(e, errno, SBX_E_UNAVAILABLE,
                         "cannot open \"%.160s\" of sandbox_storage",
                         s->path);
    }

    if (st.st_uid != 0 || (st.st_mode & 022) != 0) {
        return sbx_error(e, 0, SBX_E_UNAVAILABLE,
                         "\"%.120s\" of sandbox_storage must be root's and "
                         "writable by nobody else", s->path);
    }

    return 0;
}


void
sbx_storage_close(sbx_storage_t *storage)
{
    if (storage == NULL) {
        return;
    }

    sbx_directory_close(storage);

    if (storage->dir != -1) {
        (void) close(storage->dir);
    }

    free(storage);
}


sbx_storage_kind_t
sbx_storage_kind(const sbx_storage_t *storage)
{
    return (storage == NULL) ? SBX_STORAGE_TMPFS : storage->kind;
}


const char *
sbx_storage_lacks(const sbx_storage_t *storage)
{
    return (storage == NULL) ? "" : storage->lacks;
}


static sbx_enforce_t
sbx_storage_by(const sbx_storage_t *storage)
{
    sbx_storage_kind_t  kind;

    kind = sbx_storage_kind(storage);

    return (kind == SBX_STORAGE_DIRECTORY && !storage->quota)
           ? SBX_BY_NONE : sbx_storage_kinds[kind].by;
}


void
sbx_storage_enforcement(const sbx_storage_t *storage, sbx_enforcement_t *enf)
{
    enf->disk = (uint8_t) sbx_storage_by(storage);
    enf->inodes = enf->disk;
}


void
sbx_storage_named(const char *dir, const char *state_dir, char *buf,
    size_t size)
{
    (void) ((dir == NULL || dir[0] == '\0')
            ? snprintf(buf, size, "%s/storage", state_dir)
            : snprintf(buf, size, "%s", dir));
}


/* Of a directory without a quota. */
static void
sbx_storage_mend(const sbx_storage_t *storage, char *buf, size_t size)
{
    size_t  len;

    sbx_project_mend(storage->named, buf, size);
    len = strlen(buf);
    (void) snprintf(buf + len, size - len, "; or set sandbox_storage image");
}


void
sbx_storage_capability(const sbx_storage_t *storage, sbx_f_capability_t *c)
{
    const char          *by;
    sbx_storage_kind_t   kind;

    kind = sbx_storage_kind(storage);

    if (strcmp(c->name, "disk") == 0) {
        by = sbx_storage_kinds[kind].disk;

    } else if (strcmp(c->name, "inodes") == 0) {
        by = sbx_storage_kinds[kind].inodes;

    } else {
        return;
    }

    c->enforced = sbx_storage_by(storage) != SBX_BY_NONE;
    (void) snprintf(c->by, sizeof(c->by), "%s", c->enforced ? by : "none");

    if (!c->enforced) {
        sbx_storage_mend(storage, c->mend, sizeof(c->mend));
    }
}


void
sbx_storage_check(const sbx_storage_t *storage, sbx_f_check_t *c)
{
    const char  *lacks;

    memset(c, 0, sizeof(sbx_f_check_t));
    (void) snprintf(c->name, sizeof(c->name), "storage");

    lacks = sbx_storage_lacks(storage);
    c->ok = sbx_storage_by(storage) != SBX_BY_NONE;

    (void) snprintf(c->found, sizeof(c->found), "%s%s%.160s",
                    sbx_storage_kinds[sbx_storage_kind(storage)].word,
                    lacks[0] != '\0' ? "; " : "", lacks);

    if (!c->ok) {
        sbx_storage_mend(storage, c->mend, sizeof(c->mend));
    }
}


uint64_t
sbx_storage_default_disk(const sbx_storage_t *storage, uint64_t memory)
{
    uint64_t  disk;

    disk = SBX_STORAGE_DISK;

    if (sbx_storage_kind(storage) == SBX_STORAGE_TMPFS
        && memory / 2 < disk)
    {
        disk = memory / 2;
    }

    return disk;
}


uint64_t
sbx_storage_in_memory(const sbx_storage_t *storage,
    const sbx_limits_t *limits)
{
    if (sbx_storage_kind(storage) == SBX_STORAGE_TMPFS) {
        return limits->disk;
    }

    return limits->memory / SBX_STORAGE_SHARE / SBX_STORAGE_BLOCK
           * SBX_STORAGE_BLOCK;
}


int
sbx_storage_admit(const sbx_storage_t *storage, const sbx_limits_t *limits,
    sbx_error_t *e)
{
    uint64_t        room, need;
    struct statvfs  st;

    if (sbx_storage_kind(storage) == SBX_STORAGE_TMPFS) {
        return 0;
    }

    if (fstatvfs(storage->dir, &st) == -1) {
        return sbx_error(e, errno, SBX_E_UNAVAILABLE,
                         "the disk of sandbox_storage cannot be asked");
    }

    room = (uint64_t) st.f_bavail * st.f_frsize;
    need = limits->disk + SBX_STORAGE_FLOOR;

    if (room < need) {
        return sbx_error(e, 0, SBX_E_CAPACITY,
                         "the host's disk has %" PRIu64 " MB free, and a "
                         "session with a disk of %" PRIu64 " MB needs %"
                         PRIu64 " MB", room / MB, limits->disk / MB,
                         need / MB);
    }

    return 0;
}


int
sbx_storage_remove(sbx_storage_t *storage, const char *id, sbx_error_t *e)
{
    if (sbx_storage_kind(storage) != SBX_STORAGE_DIRECTORY) {
        /* unlinked as soon as it was there, or never on a disk */
        return 0;
    }

    return sbx_directory_remove(storage, id, e);
}


int
sbx_storage_sweep(sbx_storage_t *storage, const sbx_sweep_t *sweep,
    sbx_error_t *e)
{
    return sbx_storage_kind(storage) == SBX_STORAGE_DIRECTORY
           ? sbx_directory_sweep(storage, sweep, e) : 0;
}


unsigned
sbx_storage_swept(sbx_storage_t *storage, const sbx_sweep_t *sweep)
{
    return sbx_storage_kind(storage) == SBX_STORAGE_DIRECTORY
           ? sbx_directory_swept(storage, sweep) : 0;
}


int
sbx_storage_volume(const sbx_storage_t *storage, const sbx_volume_t *volume,
    int *root, int *memory, sbx_error_t *e)
{
    int                  rc;
    sbx_storage_kind_t   kind;
    const sbx_limits_t  *limits;

    limits = &volume->limits;
    kind = sbx_storage_kind(storage);

    if (kind == SBX_STORAGE_TMPFS) {
        return sbx_storage_tmpfs(limits->disk + volume->bytes,
                                 limits->inodes + volume->files
                                 + volume->directories + volume->in_memory
                                 + SBX_STORAGE_OVERLAY,
                                 root, e);
    }

    rc = (kind == SBX_STORAGE_IMAGE)
         ? sbx_image_make(storage, volume, root, e)
         : sbx_directory_make(storage, volume, root, e);

    if (rc == -1) {
        return -1;
    }

    return sbx_storage_tmpfs(sbx_storage_in_memory(storage, limits),
                             SBX_STORAGE_SHARE_INODES, memory, e);
}


static int
sbx_storage_tmpfs(uint64_t bytes, uint64_t inodes, int *fd, sbx_error_t *e)
{
    char         size[32], count[32];
    sbx_auto_fd  fs = -1;

    (void) snprintf(size, sizeof(size), "%" PRIu64, bytes);
    (void) snprintf(count, sizeof(count), "%" PRIu64, inodes);

    fs = sbx_sys_fsopen("tmpfs");

    if (fs == -1
        || sbx_sys_fsconfig(fs, SBX_FSCONFIG_STRING, "source", "sandbox")
           == -1
        || sbx_sys_fsconfig(fs, SBX_FSCONFIG_STRING, "size", size) == -1
        || sbx_sys_fsconfig(fs, SBX_FSCONFIG_STRING, "nr_inodes", count)
           == -1
        || sbx_sys_fsconfig(fs, SBX_FSCONFIG_STRING, "mode", "0755") == -1)
    {
        return sbx_error(e, errno, SBX_E_INTERNAL,
                         "cannot make a tmpfs of %s bytes", size);
    }

    *fd = sbx_sys_fsmount(fs, SBX_MOUNT_NOSUID | SBX_MOUNT_NODEV);

    if (*fd == -1) {
        return sbx_error(e, errno, SBX_E_INTERNAL,
                         "cannot mount a tmpfs of %s bytes", size);
    }

    return 0;
}


int
sbx_disk_usage(int disk, sbx_usage_t *usage, sbx_error_t *e)
{
    struct statfs  st;

    if (fstatfs(disk, &st) == -1) {
        return sbx_error(e, errno, SBX_E_INTERNAL,
                         "the session's disk cannot be asked");
    }

    usage->disk = (uint64_t) (st.f_blocks - st.f_bfree)
                  * (uint64_t) st.f_bsize;
    usage->inodes = (uint64_t) (st.f_files - st.f_ffree);

    return 0;
}
