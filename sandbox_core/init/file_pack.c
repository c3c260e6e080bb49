/*
 * A directory, or a file, as a tar archive.
 *
 * The tree is walked twice.  The first time nothing is sent: what the user
 * may not read, and more than a walk can take, is told as an error; after
 * that an archive that cannot be ended ends without its end, and is no
 * archive.  Files are taken as they are when they are read: one that shrinks
 * meanwhile is filled up with zeros, one that grows is cut.  Sockets, FIFOs
 * and devices have no place in an archive.
 */

#include "init_file.h"
#include "sandbox_fault.h"
#include "tar.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <zlib.h>


#define SBX_INIT_PACK_LEVELS   200
#define SBX_INIT_PACK_STEP     60           /* s */
#define SBX_INIT_PACK_CHUNK    65536


typedef struct {
    sbx_init_serve_t  *s;
    sbx_tar_writer_t   tar;
    int                sending;
    int                gzip;
    z_stream           z;
    size_t             n;                   /* in out */
    uint8_t            out[SBX_INIT_PACK_CHUNK];
} sbx_init_pack_t;


static int sbx_init_pack_walk(sbx_init_serve_t *s, sbx_init_list_t *list,
    int fd);
static int sbx_init_pack_emit(sbx_init_list_t *list, int fd,
    const char *name);
static int sbx_init_pack_look(sbx_init_list_t *list, int fd,
    const char *name, const struct stat *st);
static int sbx_init_pack_entry(sbx_init_list_t *list, int fd,
    const char *name, const char *path);
static int sbx_init_pack_file(sbx_init_list_t *list, int fd, uint64_t size);
static int sbx_init_pack_write(void *data, const void *p, size_t n,
    sbx_error_t *e);
static int sbx_init_pack_deflate(sbx_init_pack_t *pack, const void *p,
    size_t n, int flush, sbx_error_t *e);
static int sbx_init_pack_send(sbx_init_pack_t *pack, sbx_error_t *e);


int
sbx_init_file_verb_pack(sbx_init_serve_t *s, sbx_f_end_t *end, sbx_error_t *e)
{
    int                     rc;
    sbx_auto_fd             fd = -1;
    struct stat             st;
    static sbx_init_list_t  list;
    static sbx_init_pack_t  pack;

    list.s = s;
    list.end = end;
    list.e = e;
    list.emit = sbx_init_pack_emit;
    list.data = &pack;
    pack.s = s;
    pack.gzip = (s->file.flags & SBX_FILE_F_GZIP) != 0;
    s->patience = SBX_INIT_PACK_STEP;
    s->file.limit = 0;

    if (sbx_init_serve_kind(s, SBX_INIT_KIND_LONG, e) != 0) {
        return -1;
    }

    fd = sbx_init_open(s, s->path, O_RDONLY|O_NONBLOCK|O_NOCTTY, e);

    if (fd == -1) {
        return -1;
    }

    if (fstat(fd, &st) == -1 || sbx_init_foreign(fd)
        || (!S_ISREG(st.st_mode) && !S_ISDIR(st.st_mode)))
    {
        return sbx_error(e, 0, SBX_E_FILE_TYPE,
                         "path: it is no directory, and no regular file");
    }

    if (S_ISDIR(st.st_mode) && sbx_init_pack_walk(s, &list, fd) != 0) {
        return -1;
    }

    if (pack.gzip
        && deflateInit2(&pack.z, Z_DEFAULT_COMPRESSION, Z_DEFLATED, 15 + 16,
                        8, Z_DEFAULT_STRATEGY)
           != Z_OK)
    {
        return sbx_init_errno(e, ENOMEM, "the archive");
    }

    if (sbx_init_serve_frame(s, SBX_F_READY, NULL, 0, e) != 0
        || sbx_init_serve_flush(s, e) != 0)
    {
        return -1;
    }

    SBX_FAULT("file-pack-ready");
    pack.sending = 1;
    s->client = 1;

    if (sbx_tar_create(&pack.tar, sbx_init_pack_write, &pack, e) != 0) {
        return -1;
    }

    if (S_ISDIR(st.st_mode)) {
        rc = sbx_init_pack_walk(s, &list, fd);

    } else if (sbx_init_real(fd, list.path, SBX_PATH_MAX + 64, e) != 0) {
        rc = -1;

    } else {
        rc = sbx_init_pack_entry(&list, AT_FDCWD, list.path,
                                 strrchr(list.path, '/') + 1);
    }

    if (rc != 0 || sbx_tar_finish(&pack.tar, e) != 0
        || (pack.gzip && sbx_init_pack_deflate(&pack, NULL, 0, 1, e) != 0))
    {
        return -1;
    }

    SBX_FAULT("file-pack-whole");

    return sbx_init_pack_send(&pack, e);
}


static int
sbx_init_pack_walk(sbx_init_serve_t *s, sbx_init_list_t *list, int fd)
{
    int  dir;

    dir = openat(fd, ".", O_RDONLY|O_DIRECTORY|O_CLOEXEC);

    if (dir == -1) {
        return sbx_init_errno(list->e, errno, "path");
    }

    list->names = 0;

    if (sbx_init_list_run(list, dir, SBX_INIT_PACK_LEVELS) != 0) {
        (void) close(dir);
        return -1;
    }

    (void) close(dir);

    if (list->end->truncated) {
        return sbx_error(list->e, 0, SBX_E_TOO_LARGE,
                         "the tree has more names than an archive may hold, "
                         "or is deeper than %d directories",
                         SBX_INIT_PACK_LEVELS);
    }

    (void) s;

    return 0;
}


static int
sbx_init_pack_emit(sbx_init_list_t *list, int fd, const char *name)
{
    struct stat       st;
    sbx_init_pack_t  *pack;

    pack = list->data;
    list->path[list->len] = '\0';

    sbx_init_serve_alarm(list->s, SBX_INIT_PACK_STEP);

    if (pack->sending) {
        return sbx_init_pack_entry(list, fd, name,
                                   list->path + list->base + 1);
    }

    if (fstatat(fd, name, &st, AT_SYMLINK_NOFOLLOW) == -1) {
        return 0;
    }

    return sbx_init_pack_look(list, fd, name, &st);
}


static int
sbx_init_pack_look(sbx_init_list_t *list, int fd, const char *name,
    const struct stat *st)
{
    int  mode;

    mode = S_ISDIR(st->st_mode) ? R_OK|X_OK : R_OK;

    if ((S_ISREG(st->st_mode) || S_ISDIR(st->st_mode))
        && faccessat(fd, name, mode, AT_EACCESS) == -1 && errno != ENOENT)
    {
        return sbx_error(list->e, errno, SBX_E_DENIED,
                         "path: \"%.160s\" in it cannot be read",
                         list->path + list->base + 1);
    }

    if (S_ISDIR(st->st_mode)
        && list->depth + 1 >= SBX_INIT_PACK_LEVELS)
    {
        list->end->truncated = 1;
    }

    return 0;
}


static int
sbx_init_pack_entry(sbx_init_list_t *list, int fd, const char *name,
    const char *path)
{
    size_t                  n;
    ssize_t                 len;
    sbx_auto_fd             file = -1;
    struct stat             st;
    sbx_init_pack_t        *pack;
    static sbx_tar_entry_t  entry;

    if (fstatat(fd, name, &st, AT_SYMLINK_NOFOLLOW) == -1) {
        return errno == ENOENT ? 0 : sbx_init_errno(list->e, errno, "path");
    }

    pack = list->data;
    memset(&entry, 0, sizeof(sbx_tar_entry_t));

    if (S_ISREG(st.st_mode)) {
        file = sbx_init_open_at(fd, name,
                                O_RDONLY|O_NONBLOCK|O_NOCTTY|O_NOFOLLOW);

        if (file == -1 && errno == ENOENT) {
            return 0;
        }

        if (file == -1 || fstat(file, &st) == -1 || !S_ISREG(st.st_mode)
            || sbx_init_foreign(file))
        {
            return sbx_error(list->e, errno, SBX_E_DENIED,
                             "a file can no longer be read");
        }

        entry.type = SBX_TAR_FILE;
        entry.size = (uint64_t) st.st_size;

    } else if (S_ISDIR(st.st_mode)) {
        entry.type = SBX_TAR_DIRECTORY;

    } else if (S_ISLNK(st.st_mode)) {
        entry.type = SBX_TAR_SYMLINK;
        len = readlinkat(fd, name, entry.target, sizeof(entry.target) - 1);

        if (len <= 0) {
            return 0;
        }

    } else {
        return 0;
    }

    n = strlen(path);

    if (n + 2 > sizeof(entry.path)) {
        return sbx_init_errno(list->e, ENAMETOOLONG, "path");
    }

    memcpy(entry.path, path, n + 1);

    if (entry.type == SBX_TAR_DIRECTORY) {
        entry.path[n] = '/';
        entry.path[n + 1] = '\0';
    }

    entry.mode = st.st_mode & 07777;
    entry.mtime = st.st_mtim.tv_sec;
    entry.mtime_ns = (uint32_t) st.st_mtim.tv_nsec;

    if (sbx_tar_add(&pack->tar, &entry, st.st_uid, st.st_gid,
                    st.st_uid == 0 ? "root" : "user", list->e)
        != 0)
    {
        return -1;
    }

    return file == -1 ? 0 : sbx_init_pack_file(list, file, entry.size);
}


static int
sbx_init_pack_file(sbx_init_list_t *list, int fd, uint64_t size)
{
    size_t            want;
    ssize_t           n;
    uint64_t          left;
    sbx_init_pack_t  *pack;
    static uint8_t    buf[65536];

    left = size;
    pack = list->data;

    while (left != 0) {
        want = left < sizeof(buf) ? (size_t) left : sizeof(buf);
        n = read(fd, buf, want);

        if (n == -1 && errno == EINTR) {
            if (sbx_init_serve_late(list->e) != 0) {
                return -1;
            }

            continue;
        }

        if (n <= 0) {
            memset(buf, 0, want);
            n = (ssize_t) want;
        }

        if (sbx_tar_put(&pack->tar, buf, (size_t) n, list->e) != 0) {
            return -1;
        }

        left -= (uint64_t) n;
    }

    return 0;
}


static int
sbx_init_pack_write(void *data, const void *p, size_t n, sbx_error_t *e)
{
    size_t            part;
    const uint8_t    *from;
    sbx_init_pack_t  *pack;

    pack = data;

    if (pack->gzip) {
        return sbx_init_pack_deflate(pack, p, n, 0, e);
    }

    for (from = p; n != 0; from += part, n -= part) {
        part = sizeof(pack->out) - pack->n;
        part = n < part ? n : part;

        memcpy(pack->out + pack->n, from, part);
        pack->n += part;

        if (pack->n == sizeof(pack->out)
            && sbx_init_pack_send(pack, e) != 0)
        {
            return -1;
        }
    }

    return 0;
}


static int
sbx_init_pack_deflate(sbx_init_pack_t *pack, const void *p, size_t n,
    int flush, sbx_error_t *e)
{
    int  rc;

    pack->z.next_in = (uint8_t *) p;
    pack->z.avail_in = (uInt) n;

    do {
        pack->z.next_out = pack->out + pack->n;
        pack->z.avail_out = (uInt) (sizeof(pack->out) - pack->n);
        rc = deflate(&pack->z, flush ? Z_FINISH : Z_NO_FLUSH);
        pack->n = sizeof(pack->out) - pack->z.avail_out;

        if (pack->n == sizeof(pack->out)
            && sbx_init_pack_send(pack, e) != 0)
        {
            return -1;
        }

    } while (pack->z.avail_in != 0 || (flush && rc != Z_STREAM_END));

    return 0;
}


static int
sbx_init_pack_send(sbx_init_pack_t *pack, sbx_error_t *e)
{
    size_t  n;

    n = pack->n;
    pack->n = 0;

    if (n == 0) {
        return 0;
    }

    if (sbx_init_serve_frame(pack->s, SBX_F_DATA, pack->out, n, e) != 0) {
        return -1;
    }

    if (sbx_init_serve_flush(pack->s, e) != 0) {
        return -1;
    }

    SBX_FAULT("file-pack-sent");

    return 0;
}
