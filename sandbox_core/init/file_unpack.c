/*
 * Unpacking an archive.
 *
 * It is unpacked into a hidden directory, in the target, or in the nearest
 * directory above it that is there; only when the archive has come to its
 * end, and every entry is one that may be, its entries are moved to their
 * places (file_unpack_move.c).
 *
 * libarchive tells what is in an archive, and no more (tar.c).  Nothing in an
 * archive is a path of ours: members are made name by name, below the hidden
 * directory, and no link is followed.
 */

#include "init_unpack.h"
#include "sandbox_fault.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/statvfs.h>


#define SBX_INIT_UNPACK_ENTRIES  100000
#define SBX_INIT_UNPACK_DEPTH    100
#define SBX_INIT_UNPACK_TAIL     16777216        /* bytes */
#define SBX_INIT_UNPACK_MEMORY   (192 * 1024 * 1024)
#define SBX_INIT_UNPACK_OLD      "old"
#define SBX_INIT_UNPACK_NEW      "new"


static int sbx_init_unpack_begin(sbx_init_unpack_t *u);
static int sbx_init_unpack_base(sbx_init_unpack_t *u);
static int sbx_init_unpack_bound(sbx_error_t *e);
static int sbx_init_unpack_all(sbx_init_unpack_t *u);
static int sbx_init_unpack_entries(sbx_init_unpack_t *u);
static int sbx_init_unpack_entry(sbx_init_unpack_t *u,
    sbx_tar_entry_t *entry);
static int sbx_init_unpack_name(sbx_init_unpack_t *u, char *path);
static int sbx_init_unpack_parent(sbx_init_unpack_t *u, const char *path,
    int make, int *dir, const char **name);
static int sbx_init_unpack_clear(sbx_init_unpack_t *u, int dir,
    const char *name);
static int sbx_init_unpack_file(sbx_init_unpack_t *u,
    const sbx_tar_entry_t *entry, int dir, const char *name);
static int sbx_init_unpack_directory(sbx_init_unpack_t *u,
    const sbx_tar_entry_t *entry, int dir, const char *name);
static int sbx_init_unpack_link(sbx_init_unpack_t *u,
    const sbx_tar_entry_t *entry, int dir, const char *name);
static int sbx_init_unpack_hard(sbx_init_unpack_t *u, sbx_tar_entry_t *entry,
    int dir, const char *name);
static int sbx_init_unpack_write(sbx_init_unpack_t *u, int fd,
    const uint8_t *p, size_t n, uint64_t offset);
static ssize_t sbx_init_unpack_read(void *data, const void **p,
    sbx_error_t *e);
static ssize_t sbx_init_unpack_inflate(sbx_init_unpack_t *u, const void **p);
static int sbx_init_unpack_more(sbx_init_unpack_t *u);
static int sbx_init_unpack_rest(sbx_init_unpack_t *u);


static uint8_t  sbx_init_unpack_plain[65536];      /* what u->z gave */


static int
sbx_init_unpack_refuse(sbx_init_unpack_t *u, const char *path,
    const char *what)
{
    return sbx_error(u->e, 0, SBX_E_INVALID, "the archive's \"%.100s\" %s",
                     path, what);
}


int
sbx_init_file_verb_unpack(sbx_init_serve_t *s, sbx_f_end_t *end,
    sbx_error_t *e)
{
    int                       rc;
    static sbx_init_unpack_t  u = {
        .base = -1, .hidden = -1, .stage = -1, .old = -1, .target = -1
    };

    u.s = s;
    u.e = e;
    u.end = end;

    if (s->file.size != SBX_UNSET && s->file.size > s->file.max) {
        return sbx_error(e, 0, SBX_E_TOO_LARGE,
                         "the archive is larger than is allowed");
    }

    if (sbx_init_serve_kind(s, SBX_INIT_KIND_LONG, e) != 0) {
        return -1;
    }

    rc = sbx_init_unpack_bound(e);

    if (rc == 0) {
        rc = sbx_init_unpack_begin(&u);
    }

    if (rc == 0) {
        rc = sbx_init_unpack_all(&u);
    }

    if (rc == 0) {
        rc = sbx_init_unpack_move(&u);
    }

    /* what was replaced goes with the directory, whatever took too long; a
     * refusal first tells */

    sbx_init_serve_renew(s, SBX_INIT_UNPACK_STEP);

    if (s->share->temporary[0] != '\0'
        && sbx_init_tree_remove(s, u.base, u.name, NULL) == 0)
    {
        s->share->temporary[0] = '\0';
    }

    return rc;
}


/* An archive's headers are held, of sparse files as many as it has. */

static int
sbx_init_unpack_bound(sbx_error_t *e)
{
    struct rlimit  limit;

    limit.rlim_cur = SBX_INIT_UNPACK_MEMORY;
    limit.rlim_max = SBX_INIT_UNPACK_MEMORY;

    if (setrlimit(RLIMIT_AS, &limit) == -1) {
        return sbx_error(e, errno, SBX_E_INTERNAL, "setrlimit() failed");
    }

    return 0;
}


static int
sbx_init_unpack_begin(sbx_init_unpack_t *u)
{
    int       n;
    char      dir[SBX_PATH_MAX + 64];
    uint64_t  random[2];

    if (sbx_init_unpack_base(u) != 0
        || sbx_init_real(u->base, dir, sizeof(dir), u->e) != 0)
    {
        return -1;
    }

    if (sbx_init_foreign(u->base)) {
        return sbx_error(u->e, 0, SBX_E_FILE_TYPE,
                         "path: nothing is unpacked there");
    }

    if (getrandom(random, sizeof(random), 0) != sizeof(random)) {
        return sbx_error(u->e, errno, SBX_E_INTERNAL, "getrandom() failed");
    }

    (void) snprintf(u->name, sizeof(u->name),
                    SBX_INIT_TEMPORARY "%016lx%016lx",
                    (unsigned long) random[0], (unsigned long) random[1]);

    n = snprintf(u->s->share->temporary, sizeof(u->s->share->temporary),
                 "%s/%s", dir[1] ? dir : "", u->name);

    if (n < 0 || (size_t) n >= sizeof(u->s->share->temporary)
        || mkdirat(u->base, u->name, 0700) == -1)
    {
        u->s->share->temporary[0] = '\0';
        return sbx_init_errno(u->e, errno, "path");
    }

    u->hidden = sbx_init_open_at(u->base, u->name,
                                 O_PATH|O_DIRECTORY|O_NOFOLLOW);

    if (u->hidden == -1
        || mkdirat(u->hidden, SBX_INIT_UNPACK_NEW, 0700) == -1
        || mkdirat(u->hidden, SBX_INIT_UNPACK_OLD, 0700) == -1)
    {
        return sbx_init_errno(u->e, errno, "path");
    }

    u->stage = sbx_init_open_at(u->hidden, SBX_INIT_UNPACK_NEW,
                                O_PATH|O_DIRECTORY|O_NOFOLLOW);
    u->old = sbx_init_open_at(u->hidden, SBX_INIT_UNPACK_OLD,
                              O_PATH|O_DIRECTORY|O_NOFOLLOW);

    if (u->stage == -1 || u->old == -1) {
        return sbx_init_errno(u->e, errno, "path");
    }

    if (sbx_init_serve_frame(u->s, SBX_F_READY, NULL, 0, u->e) != 0
        || sbx_init_serve_flush(u->s, u->e) != 0)
    {
        return -1;
    }

    u->s->share->quiet = 1;
    u->s->client = 1;
    u->s->patience = SBX_INIT_UNPACK_STEP;

    return 0;
}


/* The target, or what is above it; never the parent of one that is there,
 * which need not be the user's. */

static int
sbx_init_unpack_base(sbx_init_unpack_t *u)
{
    char         path[SBX_PATH_MAX], *last;
    sbx_error_t  e;

    if (sbx_init_path(u->s->path, u->path, u->e) != 0) {
        return -1;
    }

    (void) strcpy(path, u->path);

    for ( ;; ) {
        u->base = sbx_init_open(u->s, path, O_PATH|O_DIRECTORY, &e);

        if (u->base != -1) {
            break;
        }

        if (e.code != SBX_E_FILE) {
            return sbx_error(u->e, e.err, e.code, "%s", e.text);
        }

        for (last = path + strlen(path); last > path && last[-1] == '/';
             last--)
        {
            last[-1] = '\0';
        }

        last = strrchr(path, '/');

        if (last == NULL) {
            return sbx_init_errno(u->e, ENOENT, "path");
        }

        last[last == path] = '\0';
    }

    if (faccessat(u->base, ".", W_OK|X_OK, AT_EACCESS) == -1) {
        return sbx_init_errno(u->e, errno, "path");
    }

    return 0;
}


static int
sbx_init_unpack_all(sbx_init_unpack_t *u)
{
    int  rc;

    rc = sbx_tar_open(&u->tar, sbx_init_unpack_read, u, u->e);

    if (rc == 0) {
        rc = sbx_init_unpack_entries(u);
    }

    sbx_tar_close(&u->tar);

    if (rc != 0 || sbx_init_unpack_rest(u) != 0) {
        return -1;
    }

    SBX_FAULT("file-unpack-whole");

    if (u->s->file.size != SBX_UNSET && u->s->file.size != u->received) {
        return sbx_error(u->e, 0, SBX_E_INVALID,
                         "the archive is not of the length that was told");
    }

    return 0;
}


static int
sbx_init_unpack_entries(sbx_init_unpack_t *u)
{
    int                     rc;
    static sbx_tar_entry_t  entry;

    for ( ;; ) {
        sbx_init_serve_alarm(u->s, SBX_INIT_UNPACK_STEP);

        rc = sbx_tar_next(&u->tar, &entry, u->e);

        if (rc != 1) {
            return rc;
        }

        SBX_FAULT("file-unpack-entry");

        if (++u->end->count > SBX_INIT_UNPACK_ENTRIES) {
            return sbx_error(u->e, 0, SBX_E_TOO_LARGE,
                             "the archive has more than %d entries",
                             SBX_INIT_UNPACK_ENTRIES);
        }

        if (sbx_init_unpack_entry(u, &entry) != 0) {
            return -1;
        }
    }
}


static int
sbx_init_unpack_entry(sbx_init_unpack_t *u,
    sbx_tar_entry_t *entry)
{
    int          rc;
    sbx_auto_fd  dir = -1;
    const char  *name;

    if (sbx_init_unpack_name(u, entry->path) != 0) {
        return -1;
    }

    /* the directory that all is in: the target is there already */

    if (entry->path[0] == '\0') {
        return entry->type == SBX_TAR_DIRECTORY
               ? 0 : sbx_init_unpack_refuse(u, ".", "has no name");
    }

    if (sbx_init_unpack_parent(u, entry->path, 1, &dir, &name) != 0) {
        return -1;
    }

    if (entry->type == SBX_TAR_DIRECTORY) {
        return sbx_init_unpack_directory(u, entry, dir, name);
    }

    /* the later of two entries of a name counts */

    rc = sbx_init_unpack_clear(u, dir, name);

    if (rc != 0) {
        return rc == 1 ? sbx_init_unpack_refuse(u, entry->path,
                                                "is a directory, too")
                       : -1;
    }

    switch (entry->type) {

    case SBX_TAR_FILE:
        return sbx_init_unpack_file(u, entry, dir, name);

    case SBX_TAR_SYMLINK:
        return sbx_init_unpack_link(u, entry, dir, name);

    case SBX_TAR_HARDLINK:
        return sbx_init_unpack_hard(u, entry, dir, name);

    default:
        return sbx_init_unpack_refuse(u, entry->path,
                                      "is no file, directory or link");
    }
}


/* Without ".", doubled and last slashes. */

static int
sbx_init_unpack_name(sbx_init_unpack_t *u, char *path)
{
    char      *from, *to;
    size_t     n;
    unsigned   depth;

    if (path[0] == '/') {
        return sbx_init_unpack_refuse(u, path, "is an absolute path");
    }

    from = path;
    to = path;
    depth = 0;

    while (*from != '\0') {
        n = strcspn(from, "/");

        if (n == 2 && memcmp(from, "..", 2) == 0) {
            return sbx_init_unpack_refuse(u, path, "leads out of it");
        }

        if (n != 0 && !(n == 1 && *from == '.')) {

            if (n > 255 || ++depth > SBX_INIT_UNPACK_DEPTH) {
                return sbx_init_unpack_refuse(u, path,
                                              "is too long, or too deep");
            }

            if (to != path) {
                *to++ = '/';
            }

            memmove(to, from, n);

            if (n >= sizeof(SBX_INIT_TEMPORARY) - 1
                && memcmp(to, SBX_INIT_TEMPORARY,
                          sizeof(SBX_INIT_TEMPORARY) - 1)
                   == 0)
            {
                return sbx_init_unpack_refuse(u, path,
                                              "has a name that is reserved");
            }

            to += n;
        }

        from += n;
        from += (*from == '/');
    }

    *to = '\0';

    return 0;
}


static int
sbx_init_unpack_parent(sbx_init_unpack_t *u, const char *path, int make,
    int *dir, const char **name)
{
    int          fd;
    char         part[256];
    size_t       n;
    const char  *p;

    *name = path;
    *dir = sbx_init_open_at(u->stage, ".", O_PATH|O_DIRECTORY);

    if (*dir == -1) {
        return sbx_init_errno(u->e, errno, "path");
    }

    for (p = path; strchr(p, '/') != NULL; p += n + 1) {
        n = strcspn(p, "/");

        if (sbx_copy_string(part, sizeof(part), p, n) != 0) {
            return sbx_init_errno(u->e, ENAMETOOLONG, "path");
        }

        fd = sbx_init_open_at(*dir, part, O_PATH|O_DIRECTORY|O_NOFOLLOW);

        if (fd == -1 && errno == ENOENT && make) {
            if (mkdirat(*dir, part, 0755) == -1) {
                return sbx_init_errno(u->e, errno, "the archive");
            }

            fd = sbx_init_open_at(*dir, part, O_PATH|O_DIRECTORY|O_NOFOLLOW);
        }

        if (fd == -1) {
            return sbx_init_unpack_refuse(u, path,
                                          "is below what is no directory");
        }

        (void) close(*dir);
        *dir = fd;
    }

    *name = p;

    return 0;
}


/* 1: a directory is there. */

static int
sbx_init_unpack_clear(sbx_init_unpack_t *u, int dir, const char *name)
{
    if (unlinkat(dir, name, 0) == 0 || errno == ENOENT) {
        return 0;
    }

    return errno == EISDIR ? 1 : sbx_init_errno(u->e, errno, "the archive");
}


static int
sbx_init_unpack_file(sbx_init_unpack_t *u,
    const sbx_tar_entry_t *entry, int dir, const char *name)
{
    int              rc;
    size_t           n;
    uint64_t         offset, written;
    const void      *p;
    sbx_auto_fd      fd = -1;
    struct statvfs   fs;
    struct timespec  times[2];

    if (fstatvfs(dir, &fs) == 0
        && entry->size / fs.f_frsize > fs.f_bavail)
    {
        return sbx_init_errno(u->e, ENOSPC, "the archive");
    }

    fd = openat(dir, name, O_CREAT|O_EXCL|O_NOFOLLOW|O_WRONLY|O_CLOEXEC,
                0600);

    if (fd == -1) {
        return sbx_init_errno(u->e, errno, "the archive");
    }

    written = 0;

    for ( ;; ) {
        rc = sbx_tar_data(&u->tar, &p, &n, &offset, u->e);

        if (rc == -1) {
            return -1;
        }

        if (rc == 0) {
            break;
        }

        if (sbx_init_unpack_write(u, fd, p, n, offset) != 0) {
            return -1;
        }

        written = offset + n;
        sbx_init_serve_alarm(u->s, SBX_INIT_UNPACK_STEP);
    }

    if (written != entry->size && ftruncate(fd, (off_t) entry->size) == -1) {
        return sbx_init_errno(u->e, errno, "the archive");
    }

    u->end->size += entry->size;

    memset(times, 0, sizeof(times));
    times[0].tv_nsec = UTIME_NOW;
    times[1].tv_sec = entry->mtime;
    times[1].tv_nsec = entry->mtime_ns;

    if (fchmod(fd, entry->mode & 0777) == -1) {
        return sbx_init_errno(u->e, errno, "the archive");
    }

    /* a time that the file system lacks is no reason */

    (void) futimens(fd, times);

    return 0;
}


static int
sbx_init_unpack_write(sbx_init_unpack_t *u, int fd, const uint8_t *p,
    size_t n, uint64_t offset)
{
    size_t   k;
    ssize_t  written;

    for (k = 0; k < n; k += (size_t) written) {
        written = pwrite(fd, p + k, n - k, (off_t) (offset + k));

        if (written == -1) {
            if (errno != EINTR) {
                return sbx_init_errno(u->e, errno, "the archive");
            }

            if (sbx_init_serve_late(u->e) != 0) {
                return -1;
            }

            written = 0;
        }
    }

    return 0;
}


/* The user can always enter, read and write a directory of his archive: it
 * could not be moved to its place otherwise. */

static int
sbx_init_unpack_directory(sbx_init_unpack_t *u, const sbx_tar_entry_t *entry,
    int dir, const char *name)
{
    sbx_auto_fd  fd = -1;

    if (mkdirat(dir, name, 0755) == -1 && errno != EEXIST) {
        return sbx_init_errno(u->e, errno, "the archive");
    }

    fd = openat(dir, name, O_RDONLY|O_DIRECTORY|O_NOFOLLOW|O_CLOEXEC);

    if (fd == -1) {
        return sbx_init_unpack_refuse(u, entry->path, "is a file, too");
    }

    if (fchmod(fd, (entry->mode & 0777) | 0700) == -1) {
        return sbx_init_errno(u->e, errno, "the archive");
    }

    return 0;
}


/*
 * ".." may stand at the beginning alone, and as often as there are
 * directories above: after a name, that name could be a link itself, and
 * then nobody can tell where ".." leads.
 */

static int
sbx_init_unpack_link(sbx_init_unpack_t *u, const sbx_tar_entry_t *entry,
    int dir, const char *name)
{
    int          names;
    size_t       n;
    unsigned     depth;
    const char  *p;

    for (depth = 0, p = entry->path; *p != '\0'; p++) {
        depth += (*p == '/');
    }

    p = entry->target;
    names = 0;

    if (*p == '\0' || *p == '/') {
        return sbx_init_unpack_refuse(u, entry->path,
                                      "is a link to an absolute path, or to "
                                      "none");
    }

    for ( /* void */ ; *p != '\0'; p += n + (p[n] == '/')) {
        n = strcspn(p, "/");

        if (n == 0 || (n == 1 && *p == '.')) {
            continue;
        }

        if (n != 2 || memcmp(p, "..", 2) != 0) {
            names = 1;
            continue;
        }

        if (names || depth-- == 0) {
            return sbx_init_unpack_refuse(u, entry->path,
                                          "is a link that leads out of it");
        }
    }

    if (symlinkat(entry->target, dir, name) == -1) {
        return sbx_init_errno(u->e, errno, "the archive");
    }

    return 0;
}


/* To a file of the archive that has come before. */

static int
sbx_init_unpack_hard(sbx_init_unpack_t *u, sbx_tar_entry_t *entry, int dir,
    const char *name)
{
    const char   *last;
    struct stat   st;
    sbx_auto_fd   from = -1;

    if (sbx_init_unpack_name(u, entry->target) != 0
        || sbx_init_unpack_parent(u, entry->target, 0, &from, &last) != 0)
    {
        return -1;
    }

    if (last[0] == '\0'
        || fstatat(from, last, &st, AT_SYMLINK_NOFOLLOW) == -1
        || !S_ISREG(st.st_mode))
    {
        return sbx_init_unpack_refuse(u, entry->path,
                                      "is a hard link to what is no file of "
                                      "it");
    }

    if (linkat(from, last, dir, name, 0) == -1) {
        return sbx_init_errno(u->e, errno, "the archive");
    }

    return 0;
}


/* ---- its bytes --------------------------------------------------------- */


static ssize_t
sbx_init_unpack_read(void *data, const void **p, sbx_error_t *e)
{
    int                 rc;
    ssize_t             n;
    sbx_init_unpack_t  *u;

    u = data;

    if (!u->begun) {
        rc = sbx_init_unpack_more(u);

        if (rc != 0) {
            return rc == 1 ? 0 : -1;
        }

        /* what is compressed begins with 1f, which no name does */

        u->begun = 1;
        u->gzip = (u->data[0] == 0x1f);

        if (u->gzip && inflateInit2(&u->z, 15 + 16) != Z_OK) {
            return sbx_init_errno(e, ENOMEM, "the archive");
        }
    }

    if (sbx_init_serve_late(e) != 0) {
        return -1;
    }

    if (u->gzip) {
        return sbx_init_unpack_inflate(u, p);
    }

    if (u->left == 0) {
        rc = sbx_init_unpack_more(u);

        if (rc != 0) {
            return rc == 1 ? 0 : -1;
        }
    }

    *p = u->data;
    n = (ssize_t) u->left;
    u->left = 0;

    return n;
}


/*
 * zlib checks each part's sum, which libarchive's filter does not.  Parts may
 * follow each other; what follows and is none is passed over, as gzip does.
 */

static ssize_t
sbx_init_unpack_inflate(sbx_init_unpack_t *u, const void **p)
{
    int  rc;

    do {
        if (u->left == 0) {
            rc = sbx_init_unpack_more(u);

            if (rc == -1) {
                return -1;
            }

            if (rc == 1) {
                return u->done ? 0
                       : sbx_error(u->e, 0, SBX_E_INVALID,
                                   "the archive's compressed data ends too "
                                   "early");
            }
        }

        if (u->done) {
            u->tail |= (u->data[0] != 0x1f);

            if (u->tail) {
                u->left = 0;
                continue;
            }

            (void) inflateReset(&u->z);
            u->done = 0;
        }

        u->z.next_in = (uint8_t *) u->data;
        u->z.avail_in = (uInt) u->left;
        u->z.next_out = sbx_init_unpack_plain;
        u->z.avail_out = sizeof(sbx_init_unpack_plain);

        rc = inflate(&u->z, Z_NO_FLUSH);

        if (rc != Z_OK && rc != Z_STREAM_END && rc != Z_BUF_ERROR) {
            return sbx_error(u->e, 0, SBX_E_INVALID,
                             "the archive's compressed data is damaged");
        }

        u->data += u->left - u->z.avail_in;
        u->left = u->z.avail_in;
        u->done = (rc == Z_STREAM_END);

    } while (u->tail
             || u->z.avail_out == sizeof(sbx_init_unpack_plain));

    *p = sbx_init_unpack_plain;

    return (ssize_t) (sizeof(sbx_init_unpack_plain) - u->z.avail_out);
}


static int
sbx_init_unpack_more(sbx_init_unpack_t *u)
{
    sbx_frame_t  frame;

    if (u->over) {
        return 1;
    }

    sbx_init_serve_alarm(u->s, SBX_INIT_UNPACK_STEP);

    if (sbx_init_serve_next(u->s, &frame, &u->data, u->e) != 0) {
        return -1;
    }

    if (frame.type != SBX_F_DATA) {
        return sbx_error(u->e, 0, SBX_E_INVALID,
                         "the archive's frames are malformed");
    }

    if (frame.length > u->s->file.max
        || u->received > u->s->file.max - frame.length)
    {
        return sbx_error(u->e, 0, SBX_E_TOO_LARGE,
                         "the archive is larger than is allowed");
    }

    u->left = frame.length;
    u->received += frame.length;
    u->over = (frame.length == 0);

    return u->over;
}


/* To the empty frame: what is compressed is read to its sum, but a few bytes
 * may become any number of zeros after the archive's end. */

static int
sbx_init_unpack_rest(sbx_init_unpack_t *u)
{
    size_t       tail;
    ssize_t      n;
    const void  *p;

    tail = 0;

    do {
        n = sbx_init_unpack_read(u, &p, u->e);
        tail += n > 0 ? (size_t) n : 0;

        if (tail > SBX_INIT_UNPACK_TAIL && u->gzip) {
            return sbx_error(u->e, 0, SBX_E_INVALID,
                             "the archive has more than %d bytes after its "
                             "end", SBX_INIT_UNPACK_TAIL);
        }

    } while (n > 0);

    return n == 0 ? 0 : -1;
}
