/*
 * Unpacking an archive, its end: from the hidden directory to their places.
 *
 * What is replaced is kept in the hidden directory by a second name, and each
 * step is noted, so that a rename that fails undoes those before it.
 */

#include "init_unpack.h"
#include "sandbox_fault.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>


#define SBX_INIT_UNPACK_LOG      (16 * 1024 * 1024)

#ifndef RENAME_NOREPLACE
#define RENAME_NOREPLACE         1
#endif


static void sbx_init_unpack_unmake(char *path, int made);
static int sbx_init_unpack_names(sbx_init_unpack_t *u, int from,
    char **names, size_t *used);
static int sbx_init_unpack_merge(sbx_init_unpack_t *u, int from, int to,
    char *path, size_t len, int look);
static int sbx_init_unpack_one(sbx_init_unpack_t *u, int from, int to,
    const char *name, char *path, size_t len, int look);
static int sbx_init_unpack_replace(sbx_init_unpack_t *u, int from, int to,
    const char *name, const char *path);
static void sbx_init_unpack_staged(sbx_init_unpack_t *u, int dir,
    const char *name);
static int sbx_init_unpack_note(sbx_init_unpack_t *u, char what,
    const char *path);
static void sbx_init_unpack_undo(sbx_init_unpack_t *u);


int
sbx_init_unpack_move(sbx_init_unpack_t *u)
{
    int          rc, made;
    static char  path[SBX_TAR_PATH_MAX + 256];

    if (sbx_init_serve_lock(u->e) != 0) {
        return -1;
    }

    made = 0;
    rc = sbx_init_make(u->s, u->path, 0755, &made, &u->target, u->e);

    if (rc == 0) {
        rc = sbx_init_unpack_merge(u, u->stage, u->target, path, 0, 1);
    }

    if (rc == 0) {
        rc = sbx_init_unpack_merge(u, u->stage, u->target, path, 0, 0);

        if (rc != 0) {
            sbx_init_unpack_undo(u);
        }
    }

    if (rc != 0) {
        sbx_init_unpack_unmake(u->path, made);
    }

    sbx_init_serve_unlock();

    return rc;
}


/* The target, and those above it that were made for it. */

static void
sbx_init_unpack_unmake(char *path, int made)
{
    char  *end;

    for ( /* void */ ; made > 0; made--) {
        end = path + strlen(path);

        while (end > path + 1
               && (end[-1] == '/' || (end[-1] == '.' && end[-2] == '/')))
        {
            *--end = '\0';
        }

        (void) unlinkat(AT_FDCWD, path, AT_REMOVEDIR);
        end = strrchr(path, '/');

        if (end == NULL) {
            return;
        }

        end[1] = '\0';
    }
}


/* All names first: entries leave the directory while it is gone through. */

static int
sbx_init_unpack_names(sbx_init_unpack_t *u, int from, char **names,
    size_t *used)
{
    int             fd;
    DIR            *dir;
    char           *more;
    size_t          n, room;
    struct dirent  *de;

    *names = NULL;
    *used = 0;
    room = 0;

    fd = openat(from, ".", O_RDONLY|O_DIRECTORY|O_CLOEXEC);
    dir = fd != -1 ? fdopendir(fd) : NULL;

    if (dir == NULL) {
        return sbx_init_errno(u->e, errno, "the archive");
    }

    while ((de = readdir(dir)) != NULL) {
        if (strcmp(de->d_name, ".") == 0 || strcmp(de->d_name, "..") == 0) {
            continue;
        }

        n = strlen(de->d_name) + 1;

        if (*used + n > room) {
            room = room * 2 + 4096;
            more = room <= SBX_INIT_UNPACK_LOG ? malloc(room) : NULL;

            if (more == NULL) {
                (void) closedir(dir);
                return sbx_init_errno(u->e, ENOMEM, "the archive");
            }

            if (*names != NULL) {
                memcpy(more, *names, *used);
                free(*names);
            }

            *names = more;
        }

        memcpy(*names + *used, de->d_name, n);
        *used += n;
    }

    (void) closedir(dir);

    return 0;
}


static int
sbx_init_unpack_merge(sbx_init_unpack_t *u, int from, int to, char *path,
    size_t len, int look)
{
    int     rc;
    char   *names;
    size_t  n, used;

    rc = sbx_init_unpack_names(u, from, &names, &used);

    for (n = 0; rc == 0 && n < used; n += strlen(names + n) + 1) {
        sbx_init_serve_alarm(u->s, SBX_INIT_UNPACK_STEP);
        rc = sbx_init_unpack_one(u, from, to, names + n, path, len, look);
    }

    free(names);

    return rc;
}


static int
sbx_init_unpack_one(sbx_init_unpack_t *u, int from, int to, const char *name,
    char *path, size_t len, int look)
{
    int          rc;
    size_t       n;
    struct stat  new, old;
    sbx_auto_fd  below = -1, into = -1;

    n = strlen(name);

    if (len + n + 2 > SBX_TAR_PATH_MAX + 256) {
        return sbx_init_errno(u->e, ENAMETOOLONG, "the archive");
    }

    memcpy(path + len, name, n + 1);
    len += n;

    if (fstatat(from, name, &new, AT_SYMLINK_NOFOLLOW) == -1) {
        return sbx_init_errno(u->e, errno, "the archive");
    }

    if (fstatat(to, name, &old, AT_SYMLINK_NOFOLLOW) == -1) {
        if (errno != ENOENT) {
            return sbx_init_errno(u->e, errno, "path");
        }

        if (look) {
            return 0;
        }

        if (sbx_init_unpack_note(u, 'm', path) != 0) {
            return -1;
        }

        rc = (int) syscall(SYS_renameat2, from, name, to, name,
                           RENAME_NOREPLACE);

        return rc == 0 ? 0 : sbx_init_errno(u->e, errno, "path");
    }

    if (S_ISDIR(new.st_mode) != S_ISDIR(old.st_mode)) {
        return sbx_error(u->e, 0, SBX_E_FILE_TYPE,
                         "\"%.120s\" is a directory, and in the archive it "
                         "is none, or the reverse", path);
    }

    if (!S_ISDIR(new.st_mode)) {
        if (S_ISREG(old.st_mode)
            && faccessat(to, name, W_OK, AT_EACCESS) == -1)
        {
            return sbx_init_errno(u->e, errno, "path");
        }

        return look ? 0 : sbx_init_unpack_replace(u, from, to, name, path);
    }

    below = sbx_init_open_at(from, name, O_PATH|O_DIRECTORY|O_NOFOLLOW);
    into = sbx_init_open_at(to, name, O_PATH|O_DIRECTORY|O_NOFOLLOW);

    if (below == -1 || into == -1
        || faccessat(into, ".", W_OK|X_OK, AT_EACCESS) == -1)
    {
        return sbx_init_errno(u->e, errno, "path");
    }

    path[len++] = '/';
    path[len] = '\0';

    return sbx_init_unpack_merge(u, below, into, path, len, look);
}


/*
 * A reader finds the old or the new.  The last step is a rename within the
 * directory, from a name that tells a watch what it is.
 */

static int
sbx_init_unpack_replace(sbx_init_unpack_t *u, int from, int to,
    const char *name, const char *path)
{
    char  kept[24], temporary[sizeof(u->name) + 8];

    (void) snprintf(kept, sizeof(kept), "%u", u->kept);
    (void) snprintf(temporary, sizeof(temporary), "%s" SBX_INIT_REPLACES,
                    u->name);
    sbx_init_unpack_staged(u, to, temporary);

    if (linkat(to, name, u->old, kept, 0) == -1) {
        return sbx_init_errno(u->e, errno, "path");
    }

    if (sbx_init_unpack_note(u, 'r', path) != 0) {
        return -1;
    }

    u->kept++;

    if (renameat(from, name, to, temporary) == -1) {
        return sbx_init_errno(u->e, errno, "path");
    }

    SBX_FAULT("file-unpack-staged");

    if (renameat(to, temporary, to, name) == -1) {
        (void) unlinkat(to, temporary, 0);
        return sbx_init_errno(u->e, errno, "path");
    }

    u->s->share->staged[0] = '\0';
    SBX_FAULT("file-unpack-moved");

    return 0;
}


/* For init, told before it is there: it is outside the hidden directory. */

static void
sbx_init_unpack_staged(sbx_init_unpack_t *u, int dir, const char *name)
{
    int          n;
    char         path[SBX_PATH_MAX + 64];
    sbx_error_t  e;

    if (sbx_init_real(dir, path, sizeof(path), &e) != 0) {
        return;
    }

    n = snprintf(u->s->share->staged, sizeof(u->s->share->staged), "%s/%s",
                 path[1] ? path : "", name);

    if (n < 0 || (size_t) n >= sizeof(u->s->share->staged)) {
        u->s->share->staged[0] = '\0';
    }
}


static int
sbx_init_unpack_note(sbx_init_unpack_t *u, char what, const char *path)
{
    char    *more;
    size_t   n, room;

    n = strlen(path) + 3;

    if (u->log_len + n > u->log_room) {
        room = u->log_room * 2 + 65536;
        more = room <= SBX_INIT_UNPACK_LOG ? realloc(u->log, room) : NULL;

        if (more == NULL) {
            return sbx_error(u->e, ENOMEM, SBX_E_TOO_LARGE,
                             "the archive's names are too long to be moved "
                             "in one step");
        }

        u->log = more;
        u->log_room = room;
    }

    /* "\0", what, the path, "\0": to be read from its end */

    u->log[u->log_len] = '\0';
    u->log[u->log_len + 1] = what;
    memcpy(u->log + u->log_len + 2, path, n - 2);
    u->log_len += n;

    return 0;
}


/* The last first.  A directory that was moved is a path again in both. */

static void
sbx_init_unpack_undo(sbx_init_unpack_t *u)
{
    char         kept[24], *p, *slash;
    size_t       end;
    const char  *name;

    while (u->log_len != 0) {
        for (end = u->log_len - 2; u->log[end] != '\0'; end--) { /* void */ }

        u->log_len = end;
        p = u->log + end + 1;

        {
            char         what = *p++;
            sbx_auto_fd  from = -1, to = -1;

            if (what == 'r') {
                (void) snprintf(kept, sizeof(kept), "%u", --u->kept);
            }

            slash = strrchr(p, '/');
            name = slash != NULL ? slash + 1 : p;

            if (slash != NULL) {
                *slash = '\0';
            }

            from = sbx_init_open_at(u->stage, slash != NULL ? p : ".",
                                    O_PATH|O_DIRECTORY);
            to = sbx_init_open_at(u->target, slash != NULL ? p : ".",
                                  O_PATH|O_DIRECTORY);

            if (from == -1 || to == -1) {
                continue;
            }

            if (what == 'm') {
                (void) syscall(SYS_renameat2, to, name, from, name,
                               RENAME_NOREPLACE);
                continue;
            }

            (void) renameat(u->old, kept, to, name);
        }
    }
}
