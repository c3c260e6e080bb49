/*
 * An upload: written into a hidden temporary beside its target, which it
 * replaces when the end frame has come, and not before.
 *
 * The target is what the path leads to, links included, inside the session.
 * Its file is replaced rather than written, so a reader sees the old or the
 * new; so that this gives nobody a right that he lacks, the old one must be
 * writable.  init removes the temporary of a server that was killed.
 */

#include "init_file.h"
#include "sandbox_fault.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>


#define SBX_INIT_PUT_TIME      60        /* s for a piece */
#define SBX_INIT_PUT_LINKS     40

#ifndef RENAME_NOREPLACE
#define RENAME_NOREPLACE       1
#endif


static int sbx_init_put_target(sbx_init_serve_t *s, sbx_init_put_t *put,
    sbx_error_t *e);
static int sbx_init_put_link(sbx_init_put_t *put, char *path,
    sbx_error_t *e);
static int sbx_init_put_check(sbx_init_serve_t *s, sbx_init_put_t *put,
    sbx_error_t *e);
static int sbx_init_put_room(sbx_init_serve_t *s, sbx_init_put_t *put,
    sbx_error_t *e);
static int sbx_init_put_begin(sbx_init_serve_t *s, sbx_init_put_t *put,
    sbx_error_t *e);
static int sbx_init_put_body(sbx_init_serve_t *s, sbx_init_put_t *put,
    sbx_error_t *e);
static void sbx_init_put_rename(sbx_init_serve_t *s, sbx_init_put_t *put);
static int sbx_init_put_condition(sbx_init_serve_t *s, sbx_init_put_t *put,
    sbx_error_t *e);
static int sbx_init_put_matches(const char *list, size_t len,
    const char *tag, int weak);
static int sbx_init_put_mode(sbx_init_serve_t *s, sbx_init_put_t *put,
    sbx_error_t *e);


int
sbx_init_file_verb_put(sbx_init_serve_t *s, sbx_f_end_t *end, sbx_error_t *e)
{
    int                    rc;
    static sbx_init_put_t  put = { .dir = -1, .fd = -1 };

    if (sbx_init_put_open(s, &put, e) != 0) {
        return -1;
    }

    rc = sbx_init_serve_frame(s, SBX_F_READY, NULL, 0, e);

    if (rc == 0) {
        rc = sbx_init_serve_flush(s, e);
    }

    if (rc == 0) {
        SBX_FAULT("file-put-ready");
        s->share->quiet = 1;
        rc = sbx_init_put_body(s, &put, e);
    }

    if (rc == 0) {
        rc = sbx_init_put_end(s, &put, e);
    }

    if (rc != 0) {
        sbx_init_put_drop(s, &put);
    }

    end->created = !put.exists;
    end->size = put.size;

    return rc;
}


int
sbx_init_put_open(sbx_init_serve_t *s, sbx_init_put_t *put, sbx_error_t *e)
{
    if (sbx_init_put_target(s, put, e) != 0
        || sbx_init_put_condition(s, put, e) != 0
        || sbx_init_put_check(s, put, e) != 0
        || sbx_init_put_room(s, put, e) != 0
        || sbx_init_put_begin(s, put, e) != 0)
    {
        return -1;
    }

    if ((s->file.flags & SBX_FILE_F_METADATA) && s->file.metadata_len != 0
        && sbx_init_meta_write(s, put->fd, put->dir, put->temporary,
                               s->metadata, s->file.metadata_len, e)
           != 0)
    {
        sbx_init_put_drop(s, put);
        return -1;
    }

    return 0;
}


void
sbx_init_put_drop(sbx_init_serve_t *s, sbx_init_put_t *put)
{
    sbx_init_meta_drop(put->fd);
    (void) unlinkat(put->dir, put->temporary, 0);
    s->share->temporary[0] = '\0';

    /* its room is free before the caller is told */

    if (put->fd != -1) {
        (void) close(sbx_steal_fd(&put->fd));
    }
}


static int
sbx_init_put_target(sbx_init_serve_t *s, sbx_init_put_t *put, sbx_error_t *e)
{
    int       follow;
    char      path[SBX_PATH_MAX];
    unsigned  i, make;

    if (sbx_init_path(s->path, path, e) != 0) {
        return -1;
    }

    /* who replaces a file makes no directories for it */

    make = (s->file.flags & SBX_FILE_F_CONDITION) && s->path2[0] != '\n'
           ? 0 : SBX_INIT_MAKE;

    for (i = 0; i < SBX_INIT_PUT_LINKS; i++) {
        if (sbx_init_parent(s, path, make, put->name, &put->dir, e) != 0) {

            if (!make && e->code == SBX_E_FILE) {
                return sbx_error(e, 0, SBX_E_PRECONDITION,
                                 "there is no such file");
            }

            return -1;
        }

        if (sbx_init_foreign(put->dir)) {
            return sbx_error(e, 0, SBX_E_FILE_TYPE,
                             "path: it is no regular file");
        }

        put->exists = fstatat(put->dir, put->name, &put->st,
                              AT_SYMLINK_NOFOLLOW)
                      == 0;

        if (!put->exists && errno != ENOENT) {
            return sbx_init_errno(e, errno, "path");
        }

        follow = put->exists && S_ISLNK(put->st.st_mode);

        if (!follow) {
            return 0;
        }

        if (sbx_init_put_link(put, path, e) != 0) {
            return -1;
        }

        (void) close(put->dir);
        put->dir = -1;
    }

    return sbx_init_errno(e, ELOOP, "path");
}


/* The path that the link means, from the directory that it is in. */

static int
sbx_init_put_link(sbx_init_put_t *put, char *path, sbx_error_t *e)
{
    int      len;
    char     target[SBX_PATH_MAX], dir[SBX_PATH_MAX + 64];
    ssize_t  n;

    n = readlinkat(put->dir, put->name, target, sizeof(target) - 1);

    if (n <= 0) {
        return sbx_init_errno(e, n == 0 ? ENOENT : errno, "path");
    }

    target[n] = '\0';
    dir[0] = '\0';

    if (target[0] != '/'
        && sbx_init_real(put->dir, dir, sizeof(dir), e) != 0)
    {
        return -1;
    }

    len = snprintf(path, SBX_PATH_MAX, "%s%s%s", dir, dir[0] ? "/" : "",
                   target);

    return len < SBX_PATH_MAX ? 0 : sbx_init_errno(e, ENAMETOOLONG, "path");
}


static int
sbx_init_put_check(sbx_init_serve_t *s, sbx_init_put_t *put, sbx_error_t *e)
{
    if (s->file.size != SBX_UNSET && s->file.size > s->file.max) {
        return sbx_error(e, 0, SBX_E_TOO_LARGE,
                         "the upload is larger than is allowed");
    }

    if (!put->exists) {
        return 0;
    }

    if (S_ISDIR(put->st.st_mode)) {
        return sbx_init_errno(e, EISDIR, "path");
    }

    if (!S_ISREG(put->st.st_mode)) {
        return sbx_error(e, 0, SBX_E_FILE_TYPE,
                         "path: it is no regular file");
    }

    if (s->file.flags & SBX_FILE_F_NO_REPLACE) {
        return sbx_init_errno(e, EEXIST, "path");
    }

    if (faccessat(put->dir, put->name, W_OK, AT_EACCESS) == -1) {
        return sbx_init_errno(e, errno, "path");
    }

    return 0;
}


static int
sbx_init_put_room(sbx_init_serve_t *s, sbx_init_put_t *put, sbx_error_t *e)
{
    uint64_t        room;
    struct statvfs  fs;

    if (fstatvfs(put->dir, &fs) == -1) {
        return 0;
    }

    if (fs.f_flag & ST_RDONLY) {
        return sbx_init_errno(e, EROFS, "path");
    }

    room = (uint64_t) fs.f_bavail * fs.f_frsize;

    /* one without blocks, as devpts, tells nothing of its room */

    if ((s->file.size != SBX_UNSET && fs.f_blocks != 0 && s->file.size > room)
        || (fs.f_files != 0 && fs.f_favail == 0))
    {
        return sbx_init_errno(e, ENOSPC, "the upload");
    }

    return 0;
}


static int
sbx_init_put_begin(sbx_init_serve_t *s, sbx_init_put_t *put, sbx_error_t *e)
{
    int       n;
    char      dir[SBX_PATH_MAX + 64];
    uint64_t  random[2];

    if (sbx_init_real(put->dir, dir, sizeof(dir), e) != 0) {
        return -1;
    }

    if (getrandom(random, sizeof(random), 0) != sizeof(random)) {
        return sbx_error(e, errno, SBX_E_INTERNAL, "getrandom() failed");
    }

    (void) snprintf(put->temporary, sizeof(put->temporary),
                    SBX_INIT_TEMPORARY "%016lx%016lx%s",
                    (unsigned long) random[0], (unsigned long) random[1],
                    put->exists ? SBX_INIT_REPLACES : "");

    /* told before it is made: there is no moment in which only we know */

    n = snprintf(s->share->temporary, sizeof(s->share->temporary), "%s/%s",
                 dir[1] ? dir : "", put->temporary);

    if (n < 0 || (size_t) n >= sizeof(s->share->temporary)) {
        s->share->temporary[0] = '\0';
        return sbx_init_errno(e, ENAMETOOLONG, "path");
    }

    put->fd = openat(put->dir, put->temporary,
                     O_CREAT|O_EXCL|O_NOFOLLOW|O_WRONLY|O_CLOEXEC, 0600);

    if (put->fd == -1) {
        s->share->temporary[0] = '\0';
        return sbx_init_errno(e, errno, "path");
    }

    SBX_FAULT("file-put-made");

    return 0;
}


static int
sbx_init_put_body(sbx_init_serve_t *s, sbx_init_put_t *put, sbx_error_t *e)
{
    sbx_frame_t     frame;
    const uint8_t  *data;

    s->client = 1;
    s->patience = SBX_INIT_PUT_TIME;

    for ( ;; ) {
        sbx_init_serve_alarm(s, SBX_INIT_PUT_TIME);

        if (sbx_init_serve_next(s, &frame, &data, e) != 0) {
            return -1;
        }

        if (frame.type != SBX_F_DATA) {
            return sbx_error(e, 0, SBX_E_INVALID,
                             "the upload's frames are malformed");
        }

        if (frame.length == 0) {
            break;
        }

        if (sbx_init_put_write(s, put, data, frame.length, e) != 0) {
            return -1;
        }
    }

    if (s->file.size != SBX_UNSET && s->file.size != put->size) {
        return sbx_error(e, 0, SBX_E_INVALID,
                         "the upload is not of the length that was told");
    }

    return 0;
}


int
sbx_init_put_write(sbx_init_serve_t *s, sbx_init_put_t *put,
    const uint8_t *data, size_t n, sbx_error_t *e)
{
    size_t   done;
    ssize_t  written;

    if (n > s->file.max || put->size > s->file.max - n) {
        return sbx_error(e, 0, SBX_E_TOO_LARGE,
                         "the upload is larger than is allowed");
    }

    for (done = 0; done < n; done += (size_t) written) {
        written = write(put->fd, data + done, n - done);

        if (written == -1) {
            if (errno == EINTR && sbx_init_serve_late(e) == 0) {
                written = 0;
                continue;
            }

            return errno == EINTR ? -1
                                  : sbx_init_errno(e, errno, "the upload");
        }
    }

    put->size += n;
    SBX_FAULT("file-put-wrote");

    return 0;
}


/* The temporary's name tells a watch whether the file is a new one. */

static void
sbx_init_put_rename(sbx_init_serve_t *s, sbx_init_put_t *put)
{
    char    name[sizeof(put->temporary) + 4], *told;
    size_t  len;

    len = strcspn(put->temporary + sizeof(SBX_INIT_TEMPORARY), "-")
          + sizeof(SBX_INIT_TEMPORARY);

    (void) snprintf(name, sizeof(name), "%.*s%s", (int) len, put->temporary,
                    put->exists ? SBX_INIT_REPLACES : "");

    if (strlen(name) < sizeof(put->temporary)
        && renameat(put->dir, put->temporary, put->dir, name) == 0)
    {
        (void) strcpy(put->temporary, name);

        told = strrchr(s->share->temporary, '/');

        if (told != NULL) {
            told++;
            (void) sbx_copy_string(told, sizeof(s->share->temporary)
                                   - (size_t) (told - s->share->temporary),
                                   name, strlen(name));
        }
    }
}


/*
 * If-Match, a newline, If-None-Match, held against the target.  An entity
 * tag is what the worker makes of a file's time, size and number.
 */

static int
sbx_init_put_condition(sbx_init_serve_t *s, sbx_init_put_t *put,
    sbx_error_t *e)
{
    char         tag[64];
    const char  *none;
    struct stat  st;

    if (!(s->file.flags & SBX_FILE_F_CONDITION)) {
        return 0;
    }

    none = strchr(s->path2, '\n');

    if (none == NULL) {
        return sbx_error(e, 0, SBX_E_INVALID, "the condition is malformed");
    }

    tag[0] = '\0';

    if (fstatat(put->dir, put->name, &st, AT_SYMLINK_NOFOLLOW) == 0) {
        (void) snprintf(tag, sizeof(tag), "\"%lx-%lx-%lx\"",
                        (unsigned long) st.st_mtim.tv_sec * 1000000000
                        + (unsigned long) st.st_mtim.tv_nsec,
                        (unsigned long) st.st_size,
                        (unsigned long) st.st_ino);
    }

    if ((none != s->path2
         && !sbx_init_put_matches(s->path2, (size_t) (none - s->path2), tag,
                                  0))
        || (none[1] != '\0'
            && sbx_init_put_matches(none + 1, strlen(none + 1), tag, 1)))
    {
        return sbx_error(e, 0, SBX_E_PRECONDITION,
                         "the file is not as the call expects it");
    }

    return 0;
}


/* A list of entity tags, or "*"; weak ones only where weak is enough. */

static int
sbx_init_put_matches(const char *list, size_t len, const char *tag, int weak)
{
    int          counts;
    size_t       n;
    const char  *p, *end, *close;

    p = list;
    end = list + len;

    if (len == 1 && *p == '*') {
        return tag[0] != '\0';
    }

    while (p < end) {
        if (*p == ' ' || *p == '\t' || *p == ',') {
            p++;
            continue;
        }

        counts = 1;

        if (end - p > 2 && p[0] == 'W' && p[1] == '/') {
            p += 2;
            counts = weak;
        }

        close = *p == '"' ? memchr(p + 1, '"', (size_t) (end - p - 1)) : NULL;

        if (close == NULL) {
            return 0;
        }

        n = (size_t) (close + 1 - p);

        if (counts && tag[0] != '\0' && n == strlen(tag)
            && memcmp(p, tag, n) == 0)
        {
            return 1;
        }

        p = close + 1;
    }

    return 0;
}


static int
sbx_init_put_mode(sbx_init_serve_t *s, sbx_init_put_t *put, sbx_error_t *e)
{
    mode_t  mode;

    mode = 0644;

    if (put->exists) {
        /* other content under the set-user-id bit would be another's
           program: it goes, as with every write */

        mode = put->st.st_mode & 01777;

        if (!(s->file.flags & SBX_FILE_F_OWNED)
            && (put->st.st_uid != geteuid() || put->st.st_gid != getegid())
            && fchown(put->fd, put->st.st_uid, put->st.st_gid) == -1)
        {
            return sbx_error(e, errno, SBX_E_DENIED,
                             "path: its owner cannot be kept");
        }
    }

    if (s->file.flags & SBX_FILE_F_MODE) {
        mode = s->file.mode & 0777;
    }

    if (fchmod(put->fd, mode) == -1) {
        return sbx_init_errno(e, errno, "path");
    }

    return 0;
}


int
sbx_init_put_end(sbx_init_serve_t *s, sbx_init_put_t *put, sbx_error_t *e)
{
    int          rc, existed;
    sbx_auto_fd  old = -1;

    SBX_FAULT("file-put-whole");

    if (sbx_init_put_mode(s, put, e) != 0) {
        return -1;
    }

    if (sbx_init_meta_kept()) {
        old = sbx_init_open_at(put->dir, put->name, O_PATH|O_NOFOLLOW);
    }

    /* what is found at the name is so when the file takes it: other calls
     * of the session wait until it has */

    if (sbx_init_serve_lock(e) != 0) {
        return -1;
    }

    rc = sbx_init_put_condition(s, put, e);

    if (rc == 0) {
        existed = put->exists;
        put->exists = fstatat(put->dir, put->name, &put->st,
                              AT_SYMLINK_NOFOLLOW)
                      == 0;

        if (existed != put->exists) {
            sbx_init_put_rename(s, put);
        }

        rc = (int) syscall(SYS_renameat2, put->dir, put->temporary, put->dir,
                           put->name,
                           (s->file.flags & SBX_FILE_F_NO_REPLACE)
                           ? RENAME_NOREPLACE : 0);

        if (rc == -1) {
            rc = sbx_init_errno(e, errno, "path");
        }
    }

    SBX_FAULT("file-put-renamed");
    sbx_init_serve_unlock();

    if (rc == 0) {
        s->share->temporary[0] = '\0';
        sbx_init_meta_drop(old);
        sbx_init_meta_moved(put->dir, put->name);
    }

    return rc;
}
