/*
 * Removing, making and moving.
 *
 * A tree is removed by descriptors and single names, no link followed: what
 * the session renames meanwhile can only bring us to another directory that
 * its user may empty himself.  Of any depth: what lies deeper than there are
 * descriptors for is moved up to the top first.
 */

#include "init_file.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/syscall.h>


#define SBX_INIT_TREE_DEPTH    96
#define SBX_INIT_TREE_ROUNDS   64
#define SBX_INIT_TREE_MOVED    ".sandbox-delete-"

#ifndef RENAME_NOREPLACE
#define RENAME_NOREPLACE       1
#endif


typedef struct {
    sbx_init_serve_t  *s;
    sbx_error_t       *e;
    int                top;            /* what the deep is moved to */
    unsigned           moved;
    uint64_t           key;
} sbx_init_tree_t;


static int sbx_init_tree_keep(sbx_init_serve_t *s, int dir, const char *name,
    sbx_error_t *e);
static int sbx_init_tree_empty(sbx_init_tree_t *tree, int dir,
    unsigned depth);
static int sbx_init_tree_entry(sbx_init_tree_t *tree, int dir,
    const char *name, unsigned depth);


int
sbx_init_file_verb_delete(sbx_init_serve_t *s, sbx_f_end_t *end,
    sbx_error_t *e)
{
    int              dir, rc, err;
    char             name[256], path[SBX_PATH_MAX];
    size_t           len;
    struct stat      st;

    if (sbx_init_path(s->path, path, e) != 0) {
        return -1;
    }

    /* "dir/" is the directory "dir" */

    for (len = strlen(path); len > 1 && path[len - 1] == '/'; len--) {
        path[len - 1] = '\0';
    }

    if (len == 1) {
        return sbx_error(e, 0, SBX_E_DENIED, "path: the root stays");
    }

    if (sbx_init_parent(s, path, 0, name, &dir, e) != 0
        || sbx_init_tree_keep(s, dir, name, e) != 0)
    {
        return -1;
    }

    end->count = 1;

    if (sbx_init_serve_lock(e) != 0) {
        return -1;
    }

    rc = unlinkat(dir, name, 0);
    err = errno;
    sbx_init_serve_unlock();
    errno = err;

    if (rc == 0) {
        return 0;
    }

    if (errno != EISDIR && errno != EPERM) {
        return sbx_init_errno(e, errno, "path");
    }

    if (fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) == -1
        || !S_ISDIR(st.st_mode))
    {
        return sbx_init_errno(e, EPERM, "path");
    }

    if (unlinkat(dir, name, AT_REMOVEDIR) == 0) {
        return 0;
    }

    if (errno != ENOTEMPTY || !(s->file.flags & SBX_FILE_F_RECURSIVE)) {
        return sbx_init_errno(e, errno, "path");
    }

    return sbx_init_tree_remove(s, dir, name, e);
}


int
sbx_init_tree_remove(sbx_init_serve_t *s, int dir, const char *name,
    sbx_error_t *e)
{
    sbx_init_tree_t  tree;

    memset(&tree, 0, sizeof(sbx_init_tree_t));
    tree.s = s;
    tree.e = e;
    tree.top = -1;

    if (getrandom(&tree.key, sizeof(tree.key), 0) != sizeof(tree.key)) {
        return sbx_error(e, errno, SBX_E_INTERNAL, "getrandom() failed");
    }

    return sbx_init_tree_entry(&tree, dir, name, 0);
}


/* The workspace and what holds it are not the call's to take away. */

static int
sbx_init_tree_keep(sbx_init_serve_t *s, int dir, const char *name,
    sbx_error_t *e)
{
    char         target[SBX_PATH_MAX + 64], workspace[SBX_PATH_MAX + 64];
    size_t       len;
    sbx_auto_fd  fd = -1, work = -1;

    fd = sbx_init_open_at(dir, name, O_PATH|O_DIRECTORY|O_NOFOLLOW);

    if (fd == -1) {
        return 0;
    }

    work = sbx_init_open(s, "", O_PATH|O_DIRECTORY, NULL);

    if (work == -1
        || sbx_init_real(fd, target, sizeof(target), e) != 0
        || sbx_init_real(work, workspace, sizeof(workspace), e) != 0)
    {
        return 0;
    }

    len = strlen(target);

    if (strncmp(workspace, target, len) == 0
        && (workspace[len] == '\0' || workspace[len] == '/'))
    {
        return sbx_error(e, 0, SBX_E_DENIED,
                         "path: the workspace stays, and what holds it");
    }

    return 0;
}


/* Rounds: the session may put in new entries while the old are removed. */

static int
sbx_init_tree_entry(sbx_init_tree_t *tree, int dir, const char *name,
    unsigned depth)
{
    int          rc;
    char         moved[64];
    unsigned     i;
    sbx_auto_fd  fd = -1;

    for (i = 0; i < SBX_INIT_TREE_ROUNDS; i++) {
        if (unlinkat(dir, name, AT_REMOVEDIR) == 0 || errno == ENOENT) {
            return 0;
        }

        if (errno != ENOTEMPTY && errno != EEXIST) {
            return sbx_init_errno(tree->e, errno, "path");
        }

        if (depth >= SBX_INIT_TREE_DEPTH) {
            (void) snprintf(moved, sizeof(moved),
                            SBX_INIT_TREE_MOVED "%016lx-%u",
                            (unsigned long) tree->key, tree->moved++);

            if (renameat(dir, name, tree->top, moved) == -1) {
                return sbx_init_errno(tree->e, errno, "path");
            }

            return 0;
        }

        fd = openat(dir, name, O_RDONLY|O_DIRECTORY|O_NOFOLLOW|O_CLOEXEC);

        if (fd == -1) {
            return sbx_init_errno(tree->e, errno, "path");
        }

        if (depth == 0) {
            tree->top = fd;
        }

        rc = sbx_init_tree_empty(tree, fd, depth);
        (void) close(sbx_steal_fd(&fd));

        if (rc != 0) {
            return -1;
        }
    }

    return sbx_init_errno(tree->e, ENOTEMPTY, "path");
}


static int
sbx_init_tree_empty(sbx_init_tree_t *tree, int dir, unsigned depth)
{
    int             rc;
    DIR            *list;
    struct dirent  *de;

    list = fdopendir(fcntl(dir, F_DUPFD_CLOEXEC, 0));

    if (list == NULL) {
        return sbx_init_errno(tree->e, errno, "path");
    }

    rc = 0;

    while (rc == 0 && (de = readdir(list)) != NULL) {
        if (strcmp(de->d_name, ".") == 0 || strcmp(de->d_name, "..") == 0) {
            continue;
        }

        tree->s->share->progress++;
        rc = sbx_init_serve_late(tree->e);

        if (rc != 0 || unlinkat(dir, de->d_name, 0) == 0
            || errno == ENOENT)
        {
            continue;
        }

        if (errno != EISDIR && errno != EPERM) {
            rc = sbx_init_errno(tree->e, errno, "path");
            continue;
        }

        rc = sbx_init_tree_entry(tree, dir, de->d_name, depth + 1);
    }

    (void) closedir(list);

    return rc;
}


int
sbx_init_file_verb_mkdir(sbx_init_serve_t *s, sbx_f_end_t *end,
    sbx_error_t *e)
{
    int          made;
    mode_t       mode;
    sbx_auto_fd  fd = -1;

    mode = (s->file.flags & SBX_FILE_F_MODE) ? s->file.mode & 0777 : 0755;

    if (sbx_init_make(s, s->path, mode, &made, &fd, e) != 0) {
        return -1;
    }

    if (made && (s->file.flags & SBX_FILE_F_MODE)
        && fchmodat(fd, ".", mode, 0) == -1)
    {
        return sbx_init_errno(e, errno, "path");
    }

    end->created = made != 0;
    end->count = 1;

    return sbx_init_entry_of(s, fd, ".", s->path, e);
}


int
sbx_init_file_verb_move(sbx_init_serve_t *s, sbx_f_end_t *end,
    sbx_error_t *e)
{
    int          rc, err;
    char         name[256], name2[256];
    sbx_auto_fd  from = -1, to = -1;
    struct stat  st;

    if (sbx_init_parent(s, s->path, 0, name, &from, e) != 0
        || sbx_init_tree_keep(s, from, name, e) != 0)
    {
        return -1;
    }

    /* no directory is made for what is not there */

    if (fstatat(from, name, &st, AT_SYMLINK_NOFOLLOW) == -1) {
        return sbx_init_errno(e, errno, "from");
    }

    if (sbx_init_parent(s, s->path2, SBX_INIT_MAKE, name2, &to, e) != 0) {
        return -1;
    }

    if (sbx_init_serve_lock(e) != 0) {
        return -1;
    }

    rc = (int) syscall(SYS_renameat2, from, name, to, name2,
                       (s->file.flags & SBX_FILE_F_NO_REPLACE)
                       ? RENAME_NOREPLACE : 0);
    err = errno;
    sbx_init_serve_unlock();
    errno = err;

    if (rc == -1 && errno == EXDEV) {
        if (sbx_init_move_copy(s, from, name, to, name2, e) != 0) {
            return -1;
        }

        rc = 0;
    }

    if (rc == -1) {
        if (errno == EINVAL) {
            return sbx_error(e, errno, SBX_E_CONFLICT,
                             "a directory cannot be moved into itself");
        }

        return sbx_init_errno(e, errno, "to");
    }

    end->count = 1;
    sbx_init_meta_moved(to, name2);

    return sbx_init_entry_of(s, to, name2, s->path2, e);
}
