/*
 * Moving a file to another mount of the session, where rename() cannot.
 *
 * It is copied into a hidden temporary beside its new place, takes the name
 * in one step, and only then is the old one removed: whatever fails, the file
 * is there.  A directory is not moved so: nobody could tell when half of it
 * is here and half there.
 */

#include "init_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/syscall.h>


#define SBX_INIT_MOVE_STEP   60           /* s for a piece */

#ifndef RENAME_NOREPLACE
#define RENAME_NOREPLACE     1
#endif


static int sbx_init_move_open(int from, const char *name, struct stat *st,
    sbx_error_t *e);
static int sbx_init_move_temporary(sbx_init_serve_t *s, int to,
    const char *name, char *temporary, size_t size, sbx_error_t *e);
static int sbx_init_move_metadata(sbx_init_serve_t *s, int in, int out,
    int to, const char *temporary, sbx_error_t *e);
static int sbx_init_move_bytes(sbx_init_serve_t *s, int in, int out,
    const struct stat *st, sbx_error_t *e);
static int sbx_init_move_names(sbx_init_serve_t *s, int from,
    const char *name, int to, const char *temporary, const char *name2,
    sbx_error_t *e);


int
sbx_init_move_copy(sbx_init_serve_t *s, int from, const char *name, int to,
    const char *name2, sbx_error_t *e)
{
    int          rc;
    char         temporary[64];
    sbx_auto_fd  in = -1, out = -1;
    struct stat  st;

    in = sbx_init_move_open(from, name, &st, e);

    if (in == -1
        || sbx_init_move_temporary(s, to, name2, temporary,
                                   sizeof(temporary), e)
           != 0)
    {
        return -1;
    }

    out = openat(to, temporary,
                 O_CREAT|O_EXCL|O_NOFOLLOW|O_WRONLY|O_CLOEXEC, 0600);

    if (out == -1) {
        s->share->temporary[0] = '\0';
        return sbx_init_errno(e, errno, "to");
    }

    rc = sbx_init_move_metadata(s, in, out, to, temporary, e);

    if (rc == 0) {
        rc = sbx_init_move_bytes(s, in, out, &st, e);
    }

    if (rc == 0) {
        rc = sbx_init_move_names(s, from, name, to, temporary, name2, e);
    }

    sbx_init_meta_drop(rc == 0 ? in : out);

    if (rc != 0) {
        (void) unlinkat(to, temporary, 0);
    }

    s->share->temporary[0] = '\0';

    return rc;
}


static int
sbx_init_move_open(int from, const char *name, struct stat *st,
    sbx_error_t *e)
{
    sbx_auto_fd  fd = -1;

    if (fstatat(from, name, st, AT_SYMLINK_NOFOLLOW) == -1) {
        return sbx_init_errno(e, errno, "from");
    }

    if (!S_ISREG(st->st_mode)) {
        return sbx_error(e, 0, SBX_E_CONFLICT,
                         "from and to are on different mounts of the "
                         "session, between which only files are moved: copy "
                         "by a command, then remove");
    }

    if (faccessat(from, ".", W_OK|X_OK, AT_EACCESS) == -1) {
        return sbx_init_errno(e, errno, "from");
    }

    fd = sbx_init_open_at(from, name,
                          O_RDONLY|O_NONBLOCK|O_NOCTTY|O_NOFOLLOW);

    if (fd == -1 || fstat(fd, st) == -1) {
        return sbx_init_errno(e, errno, "from");
    }

    if (!S_ISREG(st->st_mode) || sbx_init_foreign(fd)) {
        return sbx_error(e, 0, SBX_E_FILE_TYPE, "from: it is no file");
    }

    return sbx_steal_fd(&fd);
}


static int
sbx_init_move_temporary(sbx_init_serve_t *s, int to, const char *name,
    char *temporary, size_t size, sbx_error_t *e)
{
    int          n;
    char         dir[SBX_PATH_MAX + 64];
    uint64_t     random[2];
    struct stat  st;

    if (sbx_init_real(to, dir, sizeof(dir), e) != 0) {
        return -1;
    }

    if (getrandom(random, sizeof(random), 0) != sizeof(random)) {
        return sbx_error(e, errno, SBX_E_INTERNAL, "getrandom() failed");
    }

    if (fstatat(to, name, &st, AT_SYMLINK_NOFOLLOW) == -1) {
        st.st_mode = 0;

    } else if (s->file.flags & SBX_FILE_F_NO_REPLACE) {
        return sbx_init_errno(e, EEXIST, "to");

    } else if (S_ISDIR(st.st_mode)) {
        return sbx_init_errno(e, EISDIR, "to");
    }

    (void) snprintf(temporary, size, SBX_INIT_TEMPORARY "%016lx%016lx%s",
                    (unsigned long) random[0], (unsigned long) random[1],
                    st.st_mode != 0 ? SBX_INIT_REPLACES : "");

    n = snprintf(s->share->temporary, sizeof(s->share->temporary), "%s/%s",
                 dir[1] ? dir : "", temporary);

    if (n < 0 || (size_t) n >= sizeof(s->share->temporary)) {
        s->share->temporary[0] = '\0';
        return sbx_init_errno(e, ENAMETOOLONG, "to");
    }

    return 0;
}


static int
sbx_init_move_metadata(sbx_init_serve_t *s, int in, int out, int to,
    const char *temporary, sbx_error_t *e)
{
    char    metadata[SBX_FILE_METADATA_MAX];
    size_t  n;

    n = sbx_init_meta_read(s, in, metadata);

    return n == 0 ? 0 : sbx_init_meta_write(s, out, to, temporary, metadata,
                                            n, e);
}


static int
sbx_init_move_bytes(sbx_init_serve_t *s, int in, int out,
    const struct stat *st, sbx_error_t *e)
{
    ssize_t          n, k, written;
    struct timespec  times[2];
    static char      buf[65536];

    for ( ;; ) {
        sbx_init_serve_alarm(s, SBX_INIT_MOVE_STEP);

        n = read(in, buf, sizeof(buf));

        if (n == 0) {
            break;
        }

        if (n == -1) {
            return sbx_init_errno(e, errno, "from");
        }

        for (k = 0; k < n; k += written) {
            written = write(out, buf + k, (size_t) (n - k));

            if (written == -1) {
                return sbx_init_errno(e, errno, "to");
            }
        }
    }

    times[0] = st->st_atim;
    times[1] = st->st_mtim;

    if (fchmod(out, st->st_mode & 0777) == -1) {
        return sbx_init_errno(e, errno, "to");
    }

    (void) futimens(out, times);

    return 0;
}


static int
sbx_init_move_names(sbx_init_serve_t *s, int from, const char *name, int to,
    const char *temporary, const char *name2, sbx_error_t *e)
{
    int  rc;

    if (sbx_init_serve_lock(e) != 0) {
        return -1;
    }

    rc = (int) syscall(SYS_renameat2, to, temporary, to, name2,
                       (s->file.flags & SBX_FILE_F_NO_REPLACE)
                       ? RENAME_NOREPLACE : 0);

    if (rc == -1) {
        rc = sbx_init_errno(e, errno, "to");

    } else if (unlinkat(from, name, 0) == -1 && errno != ENOENT) {
        rc = sbx_error(e, errno, SBX_E_DENIED,
                       "from: it was copied, but cannot be removed");
    }

    sbx_init_serve_unlock();

    return rc;
}
