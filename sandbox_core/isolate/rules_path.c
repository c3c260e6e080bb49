/*
 * Where a rule's path leads in a root that is being built.  Links are read as
 * text and followed here, a name at a time, so that nothing is reached that
 * was not looked at; a name that a deny rule depends on is held on the way.
 */

#include "rules_private.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/statvfs.h>


#define SBX_RULES_LINKS   40


static int sbx_rules_step(sbx_rules_t *r, sbx_place_t *place,
    const char *name, char *todo, sbx_error_t *e);
static int sbx_rules_link(sbx_rules_t *r, sbx_place_t *place, int fd,
    char *todo, sbx_error_t *e);
static int sbx_rules_take(sbx_place_t *place, int *fd, sbx_error_t *e);
static int sbx_rules_pin(const sbx_place_t *place, int *fd, sbx_error_t *e);
static int sbx_rules_make_one(sbx_rules_t *r, sbx_place_t *place,
    const char *name, mode_t mode, sbx_error_t *e);


int
sbx_rules_walk(sbx_rules_t *r, sbx_place_t *place, sbx_error_t *e)
{
    char    name[SBX_PATH_MAX], todo[SBX_PATH_MAX];
    char   *p;
    size_t  n;

    place->links = 0;
    place->rest[0] = '\0';
    (void) snprintf(todo, sizeof(todo), "%s", place->rule->text);

    if (sbx_rules_up(r, place, "", e) == -1) {
        return -1;
    }

    for ( ;; ) {
        p = todo + strspn(todo, "/");

        if (*p == '\0') {
            break;
        }

        n = strcspn(p, "/");
        (void) sbx_copy_string(name, sizeof(name), p, n);
        memmove(todo, p + n, strlen(p + n) + 1);

        if (sbx_rules_step(r, place, name, todo, e) == -1) {
            return -1;
        }

        if (place->rest[0] != '\0') {
            return 0;
        }
    }

    if (place->len == 0) {
        return sbx_rule_refuse(place->rule, 0, "leads to the root", e);
    }

    return 0;
}


static int
sbx_rules_step(sbx_rules_t *r, sbx_place_t *place, const char *name,
    char *todo, sbx_error_t *e)
{
    char        *slash, path[SBX_PATH_MAX];
    struct stat  st;
    sbx_auto_fd  fd = -1;

    if (strcmp(name, ".") == 0) {
        return 0;
    }

    if (strcmp(name, "..") == 0) {
        /* there is no link in the path: what is above is its parent */

        (void) snprintf(path, sizeof(path), "%s", place->path);
        slash = strrchr(path, '/');

        if (slash != NULL) {
            *slash = '\0';
        }

        return sbx_rules_up(r, place, path, e);
    }

    /* who goes on below this keeps its name, or it would lead elsewhere */

    if (place->len != 0 && sbx_rules_pin(place, &place->fd, e) == -1) {
        return -1;
    }

    if (S_ISDIR(place->st.st_mode)) {
        fd = sbx_sys_open_inside(place->fd, name, O_PATH | O_NOFOLLOW);

        if (fd == -1 && errno != ENOENT) {
            return sbx_rules_failed(place->rule, "cannot be reached", e);
        }
    }

    if (fd == -1) {
        if ((size_t) snprintf(place->rest, sizeof(place->rest), "%s%s", name,
                              todo)
            >= sizeof(place->rest)
            || strstr(todo, "/..") != NULL)
        {
            return sbx_rule_refuse(place->rule, 0, "leads nowhere by a link",
                                   e);
        }

        return 0;
    }

    if (fstat(fd, &st) == -1) {
        return sbx_rules_failed(place->rule, "cannot be reached", e);
    }

    if (S_ISLNK(st.st_mode)) {
        return sbx_rules_link(r, place, fd, todo, e);
    }

    if ((size_t) snprintf(path, sizeof(path), "%s/%s", place->path, name)
        >= sizeof(path))
    {
        return sbx_rule_refuse(place->rule, 0, "leads to too long a path", e);
    }

    place->len = strlen(path);
    memcpy(place->path, path, place->len + 1);

    return sbx_rules_take(place, &fd, e);
}


static int
sbx_rules_link(sbx_rules_t *r, sbx_place_t *place, int fd, char *todo,
    sbx_error_t *e)
{
    int      pinned;
    char     target[SBX_PATH_MAX];
    size_t   left;
    ssize_t  n;

    n = readlinkat(fd, "", target, sizeof(target));
    left = strlen(todo);

    if (n <= 0 || left + (size_t) n >= SBX_PATH_MAX
        || place->links == SBX_RULES_LINKS)
    {
        return sbx_rule_refuse(place->rule, 0, "has links that cannot be "
                               "followed", e);
    }

    place->links++;

    /* a link that could be replaced would make another path of the same
       name */

    pinned = fcntl(fd, F_DUPFD_CLOEXEC, 0);

    if (pinned == -1 || sbx_rules_pin(place, &pinned, e) == -1) {
        if (pinned != -1) {
            (void) close(pinned);
        }

        return -1;
    }

    (void) close(pinned);

    memmove(todo + n, todo, left + 1);
    memcpy(todo, target, (size_t) n);

    return (target[0] == '/') ? sbx_rules_up(r, place, "", e) : 0;
}


int
sbx_rules_up(sbx_rules_t *r, sbx_place_t *place, const char *path,
    sbx_error_t *e)
{
    int  fd;

    fd = sbx_sys_open_rooted(r->root, (path[0] == '\0') ? "/" : path,
                             O_PATH);
    if (fd == -1) {
        return sbx_rules_failed(place->rule, "cannot be reached", e);
    }

    place->len = strlen(path);
    (void) snprintf(place->path, sizeof(place->path), "%s", path);

    if (sbx_rules_take(place, &fd, e) == -1) {
        (void) close(fd);
        return -1;
    }

    return 0;
}


static int
sbx_rules_take(sbx_place_t *place, int *fd, sbx_error_t *e)
{
    size_t  i;

    static const char  *kernel[] = { "/proc", "/sys", "/dev" };

    for (i = 0; i < sbx_nelts(kernel); i++) {
        if (sbx_rule_below(place->path, kernel[i])) {
            return sbx_rule_refuse(place->rule, 0, "leads to what is the "
                                   "kernel's", e);
        }
    }

    if (place->fd != -1) {
        (void) close(place->fd);
    }

    place->fd = sbx_steal_fd(fd);

    if (fstat(place->fd, &place->st) == -1) {
        return sbx_rules_failed(place->rule, "cannot be reached", e);
    }

    return 0;
}


/* Binds it onto itself, if it is not a mount point already and its name could
 * be changed; *fd is then of the mount. */
static int
sbx_rules_pin(const sbx_place_t *place, int *fd, sbx_error_t *e)
{
    int           tree;
    struct statx  st;

    if (!place->pin || sbx_rules_readonly(*fd)) {
        return 0;
    }

    if (statx(*fd, "", AT_EMPTY_PATH, 0, &st) == -1) {
        return sbx_rules_failed(place->rule, "cannot be reached", e);
    }

    if (st.stx_attributes & STATX_ATTR_MOUNT_ROOT) {
        return 0;
    }

    tree = sbx_sys_clone_tree(*fd, "", 1);

    if (tree == -1 || sbx_sys_move_mount_onto(tree, *fd) == -1) {
        if (tree != -1) {
            (void) close(tree);
        }

        return sbx_rules_failed(place->rule, "what is above it, or a link on "
                                "the way, cannot be held", e);
    }

    (void) close(*fd);
    *fd = tree;

    return 0;
}


int
sbx_rules_make(sbx_rules_t *r, sbx_place_t *place, sbx_error_t *e)
{
    char    *name, *next, *save;
    mode_t   mode;
    size_t   len;

    len = strlen(place->rest);

    mode = (place->pin && place->rest[len - 1] != '/') ? S_IFREG | 0444
                                                       : S_IFDIR | 0755;
    save = NULL;
    name = strtok_r(place->rest, "/", &save);

    while (name != NULL) {
        next = strtok_r(NULL, "/", &save);

        if (strcmp(name, ".") != 0
            && sbx_rules_make_one(r, place, name,
                                  (next == NULL) ? mode : S_IFDIR | 0755, e)
               == -1)
        {
            return -1;
        }

        name = next;
    }

    return 0;
}


static int
sbx_rules_make_one(sbx_rules_t *r, sbx_place_t *place, const char *name,
    mode_t mode, sbx_error_t *e)
{
    int          rc;
    uid_t        owner;
    sbx_auto_fd  fd = -1;

    if (sbx_rules_pin(place, &place->fd, e) == -1) {
        return -1;
    }

    owner = (place->st.st_mode & S_IWOTH) ? r->user : place->st.st_uid;

    rc = S_ISDIR(mode) ? mkdirat(place->fd, name, mode & 07777)
                       : mknodat(place->fd, name, mode, 0);

    if (rc == -1
        || fchownat(place->fd, name, owner, owner, AT_SYMLINK_NOFOLLOW) == -1)
    {
        return sbx_rules_failed(place->rule, "is not there and cannot be "
                                "made", e);
    }

    fd = sbx_sys_open_inside(place->fd, name, O_PATH | O_NOFOLLOW);

    if (fd == -1) {
        return sbx_rules_failed(place->rule, "cannot be reached", e);
    }

    return sbx_rules_take(place, &fd, e);
}


int
sbx_rules_readonly(int fd)
{
    struct statvfs  fs;

    return fstatvfs(fd, &fs) == 0 && (fs.f_flag & ST_RDONLY);
}


int
sbx_rules_failed(const sbx_rule_t *rule, const char *what, sbx_error_t *e)
{
    return sbx_rule_refuse(rule, errno, what, e);
}
