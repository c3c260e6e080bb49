/*
 * What lies over a run's view of the host, from above to below: masks of what
 * must not be seen, directories of the run's own, writable ones, and last
 * what is denied in those.
 */

#include "box_root.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>


static int sbx_view_spot_tree(const sbx_build_t *b, sbx_spot_t *spot);
static int sbx_view_mkdir(const sbx_box_t *box, const sbx_build_t *b,
    const char *path);
static int sbx_view_ours(const sbx_box_t *box, const char *path);
static int sbx_view_pin(const sbx_build_t *b, const char *from,
    const char *path);


int
sbx_view_trees(sbx_box_t *box, const sbx_build_t *b, sbx_error_t *e)
{
    size_t       i;
    sbx_spot_t  *spot;
    struct stat  st;

    for (i = 0; i < box->spots.nelts; i++) {
        sbx_auto_fd  fd = -1;

        spot = &box->spots.elts[i];

        if (spot->kind != SBX_SPOT_WRITABLE || spot->tree != -1) {
            continue;
        }

        fd = sbx_view_open(b->host, spot->path);

        if (fd == -1 || fstat(fd, &st) == -1 || st.st_dev != spot->dev
            || st.st_ino != spot->ino)
        {
            return sbx_error(e, fd == -1 ? errno : 0, SBX_E_INVALID,
                             "the directory \"%.180s\" has changed",
                             spot->path);
        }

        spot->tree = sbx_sys_clone_tree(fd, "", 1);

        if (spot->tree == -1
            || sbx_sys_mount_attr(spot->tree,
                                  SBX_MOUNT_NOSUID | SBX_MOUNT_NODEV, -1)
               == -1)
        {
            return sbx_error(e, errno, SBX_E_INTERNAL,
                             "cannot bind \"%.180s\"", spot->path);
        }
    }

    return 0;
}


int
sbx_view_spot(sbx_box_t *box, const sbx_build_t *b, size_t n, sbx_error_t *e)
{
    sbx_spot_t  *spot;
    sbx_auto_fd  target = -1;

    spot = &box->spots.elts[n];
    target = sbx_view_open(b->root, spot->path);

    if (target == -1 && errno == ENOENT
        && (spot->kind == SBX_SPOT_WRITABLE || spot->kind == SBX_SPOT_SCRATCH)
        && sbx_view_mkdir(box, b, spot->path) == 0)
    {
        target = sbx_view_open(b->root, spot->path);
    }

    if (target == -1) {
        /* what cannot be reached need not be hidden: the command has no
           more rights than this process */

        if (spot->kind != SBX_SPOT_WRITABLE
            && (errno == ENOENT || errno == ENOTDIR || errno == EACCES))
        {
            return 0;
        }

        return sbx_error(e, errno, SBX_E_INVALID,
                         "\"%.180s\" cannot be reached", spot->path);
    }

    if (sbx_view_spot_tree(b, spot) == -1
        || sbx_sys_move_mount_onto(spot->tree, target) == -1)
    {
        return sbx_error(e, errno, SBX_E_INTERNAL, "cannot mount \"%.180s\"",
                         spot->path);
    }

    if (spot->cover == -1) {
        (void) close(spot->tree);
        spot->tree = -1;
    }

    return 0;
}


static int
sbx_view_spot_tree(const sbx_build_t *b, sbx_spot_t *spot)
{
    switch (spot->kind) {

    case SBX_SPOT_WRITABLE:
        return 0;

    case SBX_SPOT_SCRATCH:
        spot->tree = sbx_sys_clone_tree(b->scratch, spot->source, 0);
        return spot->tree == -1 ? -1 : 0;

    case SBX_SPOT_COVER:
    case SBX_SPOT_HIDE:
        break;
    }

    if (spot->is_dir && (spot->below || spot->kind == SBX_SPOT_COVER)) {
        /* searched, but not listed, and closed off when all is in it */

        spot->tree = sbx_sys_tmpfs("0711", "1m", SBX_MOUNT_NOSUID
                                                 | SBX_MOUNT_NODEV
                                                 | SBX_MOUNT_NOEXEC);
        spot->cover = spot->tree;

        return spot->tree == -1 ? -1 : 0;
    }

    spot->tree = sbx_sys_clone_tree(AT_FDCWD, spot->is_dir
                                              ? "../system/closed"
                                              : "../system/hidden", 0);

    return spot->tree == -1
           ? -1 : sbx_sys_mount_attr(spot->tree, SBX_MASK, -1);
}


/* Only below what is the run's own; errno is ENOENT's otherwise. */
static int
sbx_view_mkdir(const sbx_box_t *box, const sbx_build_t *b, const char *path)
{
    char         part[PATH_MAX], *p;
    sbx_auto_fd  parent = -1;

    (void) snprintf(part, sizeof(part), "%s", path);

    for (p = part + 1; ; p++) {
        p = strchrnul(p, '/');

        if (*p == '\0') {
            break;
        }

        *p = '\0';

        if (sbx_view_ours(box, part)) {
            (void) mkdirat(b->root, part + 1, 0755);
        }

        *p = '/';
    }

    if (!sbx_view_ours(box, path)) {
        errno = ENOENT;
        return -1;
    }

    p = strrchr(part, '/');
    *p = '\0';
    parent = sbx_view_open(b->root, part[0] == '\0' ? "/" : part);

    return parent == -1 ? -1 : mkdirat(parent, p + 1, 0755);
}


/* Whether the directory that holds path is the run's own. */
static int
sbx_view_ours(const sbx_box_t *box, const char *path)
{
    size_t             i, nearest;
    const sbx_spot_t  *spot;

    if (strchr(path + 1, '/') == NULL) {
        return 1;
    }

    nearest = SIZE_MAX;

    for (i = 0; i < box->spots.nelts; i++) {
        spot = &box->spots.elts[i];

        if (strcmp(spot->path, path) != 0
            && sbx_path_within(path, spot->path))
        {
            nearest = i;
        }
    }

    if (nearest == SIZE_MAX) {
        return 0;
    }

    spot = &box->spots.elts[nearest];

    return spot->kind == SBX_SPOT_SCRATCH || spot->cover != -1;
}


int
sbx_view_deny(const sbx_box_t *box, const sbx_build_t *b,
    const sbx_deny_t *deny, sbx_error_t *e)
{
    sbx_auto_fd  target = -1, tree = -1;

    if (deny->writable != -1
        && sbx_view_pin(b, box->spots.elts[deny->writable].path, deny->path)
           == -1)
    {
        return sbx_error(e, errno, SBX_E_INTERNAL,
                         "cannot hold the way to \"%.180s\"", deny->path);
    }

    target = sbx_view_open(b->root, deny->path);

    if (target == -1 && errno == ENOENT && !deny->exists
        && sbx_view_mkdir(box, b, deny->path) == 0)
    {
        target = sbx_view_open(b->root, deny->path);
    }

    if (target == -1) {
        /* gone behind a mask, out of reach, or never there: then it was not
           in anything writable, or box_paths.c would have refused it */

        if ((errno != ENOENT && errno != ENOTDIR && errno != EACCES)
            || (deny->exists && deny->writable != -1 && !deny->read))
        {
            return sbx_error(e, errno, SBX_E_INVALID,
                             "\"%.180s\" has changed", deny->path);
        }

        return 0;
    }

    if (!deny->read) {
        tree = sbx_sys_clone_tree(target, "", 1);

    } else if (deny->is_dir || !deny->exists) {
        tree = sbx_sys_clone_tree(AT_FDCWD, "../system/closed", 0);

    } else {
        tree = sbx_sys_clone_tree(AT_FDCWD, "../system/hidden", 0);
    }

    if (tree == -1 || sbx_sys_mount_attr(tree, SBX_HOST, -1) == -1
        || sbx_sys_move_mount_onto(tree, target) == -1)
    {
        return sbx_error(e, errno, SBX_E_INTERNAL,
                         "cannot close \"%.180s\"", deny->path);
    }

    return 0;
}


/*
 * A directory that is no mount point can be renamed, with a mount in it, and
 * another put in its place.  So every directory between the writable one and
 * the denied path is bound to itself; once, since a copy holds all that is
 * mounted below, and copies of copies double with each rule.
 */
static int
sbx_view_pin(const sbx_build_t *b, const char *from, const char *path)
{
    char          part[PATH_MAX], *p;
    struct statx  st;

    (void) snprintf(part, sizeof(part), "%s", path);

    for (p = part + strlen(from) + 1; ; p++) {
        sbx_auto_fd  fd = -1, tree = -1;

        if (p > part + strlen(part) || (p = strchr(p, '/')) == NULL) {
            return 0;
        }

        *p = '\0';
        fd = sbx_view_open(b->root, part);
        *p = '/';

        if (fd == -1) {
            return errno == ENOENT || errno == EACCES ? 0 : -1;
        }

        if (statx(fd, "", AT_EMPTY_PATH, STATX_TYPE, &st) == -1) {
            return -1;
        }

        if (st.stx_attributes & STATX_ATTR_MOUNT_ROOT) {
            continue;
        }

        tree = sbx_sys_clone_tree(fd, "", 1);

        if (tree == -1 || sbx_sys_move_mount_onto(tree, fd) == -1) {
            return -1;
        }
    }
}
