/*
 * Entries: what is told of a file.  The names of owners are the session's
 * own, from files that the session may have made into anything: read with
 * bounds, and only if they are regular.
 */

#include "init_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>


#define SBX_INIT_NAMES_SIZE   65536
#define SBX_INIT_NAME_MAX     32


typedef struct {
    const char  *file;
    int          read;
    char         text[SBX_INIT_NAMES_SIZE + 1];
} sbx_init_names_t;


static size_t sbx_init_name(sbx_init_names_t *names, uint32_t id, char *buf,
    size_t size);
static void sbx_init_names_read(sbx_init_names_t *names);
static int64_t sbx_init_entry_time(const struct timespec *t);
static uint8_t *sbx_init_entry_add(uint8_t *p, const void *data, size_t n);


static sbx_init_names_t  sbx_init_users = { .file = "/etc/passwd" };
static sbx_init_names_t  sbx_init_groups = { .file = "/etc/group" };


static void
sbx_init_names_read(sbx_init_names_t *names)
{
    ssize_t      n;
    struct stat  st;
    sbx_auto_fd  fd = -1;

    names->read = 1;

    fd = open(names->file, O_RDONLY|O_NONBLOCK|O_NOCTTY|O_CLOEXEC);

    if (fd == -1 || fstat(fd, &st) == -1 || !S_ISREG(st.st_mode)) {
        return;
    }

    n = sbx_read_full(fd, names->text, SBX_INIT_NAMES_SIZE);
    names->text[n > 0 ? n : 0] = '\0';
}


/* "name:password:id:" */

static size_t
sbx_init_name(sbx_init_names_t *names, uint32_t id, char *buf, size_t size)
{
    int          n;
    char        *end;
    size_t       len;
    const char  *line, *p;

    if (!names->read) {
        sbx_init_names_read(names);
    }

    for (line = names->text; *line != '\0'; line = p) {
        len = strcspn(line, ":\n");
        p = line + len;

        if (*p == ':' && len != 0 && len < size) {
            p += 1 + strcspn(p + 1, ":\n");

            if (*p == ':' && p[1] >= '0' && p[1] <= '9'
                && strtoul(p + 1, &end, 10) == id && *end == ':')
            {
                memcpy(buf, line, len);
                return len;
            }
        }

        p += strcspn(p, "\n");
        p += *p == '\n';
    }

    n = snprintf(buf, size, "%u", id);

    return (size_t) n;
}


uint32_t
sbx_init_entry_type(mode_t mode)
{
    switch (mode & S_IFMT) {

    case S_IFREG:
        return SBX_TYPE_FILE;

    case S_IFDIR:
        return SBX_TYPE_DIRECTORY;

    case S_IFLNK:
        return SBX_TYPE_LINK;

    case S_IFIFO:
        return SBX_TYPE_FIFO;

    case S_IFSOCK:
        return SBX_TYPE_SOCKET;

    default:
        return SBX_TYPE_DEVICE;
    }
}


/* A file may be of any year; of one that is too far, the last there is. */

static int64_t
sbx_init_entry_time(const struct timespec *t)
{
    int64_t  ns;

    if (__builtin_mul_overflow((int64_t) t->tv_sec, 1000000000, &ns)
        || __builtin_add_overflow(ns, (int64_t) t->tv_nsec, &ns))
    {
        return t->tv_sec < 0 ? INT64_MIN : INT64_MAX;
    }

    return ns;
}


size_t
sbx_init_entry_fill(uint8_t *buf, const struct stat *st, const char *path,
    size_t len, const sbx_init_more_t *more)
{
    char            owner[SBX_INIT_NAME_MAX], group[SBX_INIT_NAME_MAX];
    uint8_t        *p;
    sbx_f_entry_t   entry;

    memset(&entry, 0, sizeof(sbx_f_entry_t));
    entry.type = sbx_init_entry_type(st->st_mode);
    entry.mode = st->st_mode & 07777;
    entry.size = (uint64_t) st->st_size;
    entry.mtime_ns = sbx_init_entry_time(&st->st_mtim);
    entry.inode = st->st_ino;
    entry.path_len = (uint32_t) len;
    entry.owner_len = (uint32_t) sbx_init_name(&sbx_init_users, st->st_uid,
                                               owner, sizeof(owner));
    entry.group_len = (uint32_t) sbx_init_name(&sbx_init_groups, st->st_gid,
                                               group, sizeof(group));
    entry.target_len = (uint32_t) more->target_len;
    entry.target_type = more->target_type;
    entry.target_mode = more->target_mode;
    entry.metadata_len = (uint32_t) more->metadata_len;

    p = sbx_init_entry_add(buf, &entry, sizeof(sbx_f_entry_t));
    p = sbx_init_entry_add(p, path, len);
    p = sbx_init_entry_add(p, owner, entry.owner_len);
    p = sbx_init_entry_add(p, group, entry.group_len);
    p = sbx_init_entry_add(p, more->target, more->target_len);
    p = sbx_init_entry_add(p, more->metadata, more->metadata_len);

    return (size_t) (p - buf);
}


static uint8_t *
sbx_init_entry_add(uint8_t *p, const void *data, size_t n)
{
    if (n != 0) {
        memcpy(p, data, n);
    }

    return p + n;
}


int
sbx_init_entry_send(sbx_init_serve_t *s, int dirfd, const char *name,
    const char *path, size_t len, sbx_error_t *e)
{
    char             target[SBX_PATH_MAX];
    ssize_t          n;
    struct stat      st;
    sbx_init_more_t  more;
    static uint8_t   buf[SBX_FRAME_MAX];

    if (fstatat(dirfd, name, &st, AT_SYMLINK_NOFOLLOW) == -1) {
        return sbx_init_errno(e, errno, "path");
    }

    memset(&more, 0, sizeof(sbx_init_more_t));

    if (S_ISLNK(st.st_mode)) {
        n = readlinkat(dirfd, name, target, sizeof(target) - 1);

        more.target = target;
        more.target_len = n < 0 ? 0 : (size_t) n;
    }

    if (s->file.flags & SBX_FILE_F_MORE) {
        sbx_init_more_look(s, dirfd, name, &st, &more);
    }

    /* a path below the walk's bound, a target below PATH_MAX, bounded
     * metadata: it fits */

    return sbx_init_serve_frame(s, SBX_F_ENTRY, buf,
                                sbx_init_entry_fill(buf, &st, path, len,
                                                    &more),
                                e);
}


int
sbx_init_entry_of(sbx_init_serve_t *s, int dirfd, const char *name,
    const char *given, sbx_error_t *e)
{
    char    path[2 * SBX_PATH_MAX];
    size_t  len;

    if (s->file.flags & SBX_FILE_F_MORE) {
        if (sbx_init_given(given, path, &len, e) != 0) {
            return -1;
        }

        return sbx_init_entry_send(s, dirfd, name, path, len ? len : 1, e);
    }

    if (sbx_init_real(dirfd, path, SBX_PATH_MAX + 64, e) != 0) {
        return -1;
    }

    len = strlen(path);

    if (strcmp(name, ".") != 0) {
        if (len > 1) {
            path[len++] = '/';
        }

        (void) sbx_copy_string(path + len, sizeof(path) - len, name,
                               strlen(name));
        len += strlen(name);
    }

    return sbx_init_entry_send(s, dirfd, name, path, len, e);
}
