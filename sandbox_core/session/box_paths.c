/*
 * What a run shows and where it may write, as lists of canonical paths.  Done
 * by the helper with the caller's rights, before anything is mounted; what
 * has changed since is found by box_spots.c, which follows no links.
 *
 * Links are followed here one by one, so that it is known where each lies: a
 * denied path that leads through a link in a writable directory cannot be
 * kept, since the command could put another link there.
 */

#include "box.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>


#define SBX_LINKS_MAX   40


static int sbx_paths_scratch(sbx_box_t *box, sbx_error_t *e);
static int sbx_paths_writable(sbx_box_t *box, const char *path,
    const char *what, sbx_error_t *e);
static int sbx_paths_refused(const char *path);
static int sbx_paths_cover(sbx_box_t *box, sbx_error_t *e);
static int sbx_paths_searchable(const sbx_box_t *box, const char *path);
static int sbx_paths_order(const void *one, const void *two);
static void sbx_paths_settle(sbx_box_t *box);
static int sbx_paths_denies(sbx_box_t *box, sbx_box_list_t list,
    sbx_error_t *e);
static int sbx_paths_deny(sbx_box_t *box, const char *path, unsigned read,
    sbx_error_t *e);
static int sbx_resolve_link(const char *cur, char *rest, sbx_error_t *e);
static int sbx_resolve_missing(sbx_where_t *where, const char *rest,
    sbx_error_t *e);


/* Whatever the host has there; the others only if it is a directory. */
static const struct {
    const char  *path;
    const char  *source;
    unsigned     always:1;
} sbx_paths_own[] = {
    { "/tmp",     "tmp",    1 },
    { "/dev/shm", "shm",    1 },
    { "/run",     "run",    1 },
    { "/var/tmp", "vartmp", 0 },
    { "/var/run", "run",    0 }
};


int
sbx_box_paths(sbx_box_t *box, sbx_error_t *e)
{
    char  **path;

    if (sbx_paths_scratch(box, e) == -1
        || sbx_paths_writable(box, box->string[SBX_BOX_WORKSPACE],
                              "workspace", e)
           == -1)
    {
        return -1;
    }

    for (path = box->list[SBX_BOX_WRITABLE]; *path != NULL; path++) {
        if (sbx_paths_writable(box, *path, "writable", e) == -1) {
            return -1;
        }
    }

    if (sbx_box_ids(box, e) == -1
        || sbx_box_secrets(box, e) == -1
        || sbx_paths_cover(box, e) == -1)
    {
        return -1;
    }

    sbx_paths_settle(box);

    box->denies = calloc(box->request.count[SBX_BOX_DENY_WRITE]
                         + box->request.count[SBX_BOX_DENY_READ] + 1,
                         sizeof(sbx_deny_t));
    if (box->denies == NULL) {
        return sbx_error(e, errno, SBX_E_INTERNAL, "no memory");
    }

    if (sbx_paths_denies(box, SBX_BOX_DENY_WRITE, e) == -1
        || sbx_paths_denies(box, SBX_BOX_DENY_READ, e) == -1)
    {
        return -1;
    }

    return 0;
}


int
sbx_path_within(const char *path, const char *dir)
{
    size_t  len;

    len = strlen(dir);

    if (len == 1) {
        return 1;                     /* "/" */
    }

    return strncmp(path, dir, len) == 0
           && (path[len] == '/' || path[len] == '\0');
}


int
sbx_path_writable(const sbx_spots_t *spots, const char *path)
{
    size_t  i;

    for (i = 0; i < spots->nelts; i++) {
        if (spots->elts[i].kind == SBX_SPOT_WRITABLE
            && sbx_path_within(path, spots->elts[i].path))
        {
            return 1;
        }
    }

    return 0;
}


sbx_spot_t *
sbx_spot_add(sbx_spots_t *spots, sbx_spot_kind_t kind, const char *path,
    sbx_error_t *e)
{
    size_t       room;
    sbx_spot_t  *spot;

    if (spots->nelts == spots->room) {
        room = spots->room * 2 + 64;
        spot = realloc(spots->elts, room * sizeof(sbx_spot_t));

        if (spot == NULL) {
            (void) sbx_error(e, errno, SBX_E_INTERNAL, "no memory");
            return NULL;
        }

        spots->elts = spot;
        spots->room = room;
    }

    spot = &spots->elts[spots->nelts];
    memset(spot, 0, sizeof(sbx_spot_t));
    spot->kind = kind;
    spot->is_dir = 1;
    spot->tree = -1;
    spot->cover = -1;
    spot->path = strdup(path);

    if (spot->path == NULL) {
        (void) sbx_error(e, errno, SBX_E_INTERNAL, "no memory");
        return NULL;
    }

    spots->nelts++;

    return spot;
}


/*
 * ---- links -----------------------------------------------------------------
 */

int
sbx_box_resolve(const sbx_spots_t *spots, const char *path, sbx_where_t *where,
    sbx_error_t *e)
{
    char         rest[PATH_MAX], part[NAME_MAX + 1], *p, *slash;
    size_t       i, len, cur;
    unsigned     links;
    struct stat  st;

    memset(where, 0, sizeof(sbx_where_t));
    where->exists = 1;
    where->is_dir = 1;
    cur = 0;
    links = 0;

    if (path[0] != '/'
        || sbx_copy_string(rest, sizeof(rest), path, strlen(path)) == -1)
    {
        return sbx_error(e, ENAMETOOLONG, SBX_E_INVALID,
                         "\"%.180s\" is no absolute path", path);
    }

    for ( ;; ) {
        p = rest + strspn(rest, "/");
        len = strcspn(p, "/");

        if (len == 0) {
            break;
        }

        if (len > NAME_MAX || cur + 1 + len >= sizeof(where->path)) {
            return sbx_error(e, ENAMETOOLONG, SBX_E_INVALID,
                             "\"%.180s\" is too long", path);
        }

        memcpy(part, p, len);
        part[len] = '\0';
        memmove(rest, p + len, strlen(p + len) + 1);

        if (strcmp(part, ".") == 0) {
            continue;
        }

        if (strcmp(part, "..") == 0) {
            slash = strrchr(where->path, '/');
            cur = slash == NULL ? 0 : (size_t) (slash - where->path);
            where->path[cur] = '\0';
            continue;
        }

        where->path[cur] = '/';
        memcpy(where->path + cur + 1, part, len + 1);

        if (fstatat(AT_FDCWD, where->path, &st, AT_SYMLINK_NOFOLLOW) == -1) {
            if (errno == ENOENT || errno == ENOTDIR) {
                return sbx_resolve_missing(where, rest, e);
            }

            /* the directory that could not be searched */

            i = (size_t) errno;
            where->path[cur] = '\0';
            where->is_dir = 1;

            return sbx_error(e, (int) i, SBX_E_INVALID,
                             "\"%.180s\" cannot be reached", path);
        }

        if (!S_ISLNK(st.st_mode)) {
            cur += 1 + len;
            where->is_dir = (S_ISDIR(st.st_mode) != 0);
            continue;
        }

        if (++links > SBX_LINKS_MAX) {
            return sbx_error(e, ELOOP, SBX_E_INVALID,
                             "\"%.180s\" has too many links", path);
        }

        if (spots != NULL && sbx_path_writable(spots, where->path)) {
            where->through_link = 1;
        }

        if (sbx_resolve_link(where->path, rest, e) == -1) {
            return -1;
        }

        if (rest[0] == '/') {
            cur = 0;
        }

        where->path[cur] = '\0';
    }

    if (cur == 0) {
        where->path[0] = '/';
        where->path[1] = '\0';
        where->is_dir = 1;
    }

    return 0;
}


/* The link's text before what is left. */
static int
sbx_resolve_link(const char *cur, char *rest, sbx_error_t *e)
{
    char     text[PATH_MAX];
    size_t   len;
    ssize_t  n;

    n = readlink(cur, text, sizeof(text) - 1);
    len = strlen(rest);

    if (n <= 0 || (size_t) n + 1 + len >= PATH_MAX) {
        return sbx_error(e, n == -1 ? errno : ENAMETOOLONG, SBX_E_INVALID,
                         "the link \"%.180s\" cannot be followed", cur);
    }

    memmove(rest + n + 1, rest, len + 1);
    memcpy(rest, text, (size_t) n);
    rest[n] = '/';

    return 0;
}


static int
sbx_resolve_missing(sbx_where_t *where, const char *rest, sbx_error_t *e)
{
    char  buf[PATH_MAX + 2];

    (void) snprintf(buf, sizeof(buf), "%s/", rest);

    if (strstr(buf, "/../") != NULL
        || strlen(where->path) + strlen(rest) >= sizeof(where->path))
    {
        return sbx_error(e, ENOENT, SBX_E_INVALID, "\"%.180s\" is not there",
                         where->path);
    }

    (void) strcat(where->path, rest);

    for (size_t n = strlen(where->path);
         n > 1 && where->path[n - 1] == '/';
         n--)
    {
        where->path[n - 1] = '\0';
    }

    where->exists = 0;
    where->is_dir = 0;

    return 0;
}


/*
 * ---- what is mounted -------------------------------------------------------
 */

static int
sbx_paths_scratch(sbx_box_t *box, sbx_error_t *e)
{
    size_t       i;
    sbx_spot_t  *spot;
    sbx_where_t  where;
    sbx_error_t  ignored;

    for (i = 0; i < sbx_nelts(sbx_paths_own); i++) {
        if (!sbx_paths_own[i].always
            && (sbx_box_resolve(NULL, sbx_paths_own[i].path, &where, &ignored)
                == -1
                || !where.exists || !where.is_dir
                || strcmp(where.path, sbx_paths_own[i].path) != 0))
        {
            continue;
        }

        spot = sbx_spot_add(&box->spots, SBX_SPOT_SCRATCH,
                            sbx_paths_own[i].path, e);

        if (spot == NULL) {
            return -1;
        }

        spot->source = sbx_paths_own[i].source;
    }

    return 0;
}


static int
sbx_paths_writable(sbx_box_t *box, const char *path, const char *what,
    sbx_error_t *e)
{
    size_t       i;
    sbx_spot_t  *spot;
    struct stat  st;
    sbx_where_t  where;

    if (sbx_box_resolve(NULL, path, &where, e) == -1) {
        return -1;
    }

    if (!where.exists || !where.is_dir || stat(where.path, &st) == -1) {
        return sbx_error(e, where.exists ? ENOTDIR : ENOENT, SBX_E_INVALID,
                         "%s \"%.180s\" is no directory", what, path);
    }

    /* else the command could open it, and what is denied in it could not be
       found now */

    if (!box->root
        && faccessat(AT_FDCWD, where.path, X_OK, AT_EACCESS) == -1)
    {
        return sbx_error(e, errno, SBX_E_INVALID,
                         "%s \"%.180s\" cannot be entered", what,
                         where.path);
    }

    if (sbx_paths_refused(where.path)) {
        return sbx_error(e, 0, SBX_E_INVALID,
                         "%s \"%.180s\" may not be made writable", what,
                         where.path);
    }

    for (i = 0; i < box->spots.nelts; i++) {
        if (box->spots.elts[i].kind == SBX_SPOT_WRITABLE
            && strcmp(box->spots.elts[i].path, where.path) == 0)
        {
            return 0;
        }
    }

    spot = sbx_spot_add(&box->spots, SBX_SPOT_WRITABLE, where.path, e);

    if (spot == NULL) {
        return -1;
    }

    spot->dev = st.st_dev;
    spot->ino = st.st_ino;

    return 0;
}


static int
sbx_paths_refused(const char *path)
{
    size_t  i;

    static const char  *dirs[] = { "/proc", "/sys", "/dev" };

    if (strcmp(path, "/") == 0) {
        return 1;
    }

    for (i = 0; i < sbx_nelts(dirs); i++) {
        if (sbx_path_within(path, dirs[i])
            && !sbx_path_within(path, "/dev/shm"))
        {
            return 1;
        }
    }

    return 0;
}


/* Directories on the way that the run's id may not search. */
static int
sbx_paths_cover(sbx_box_t *box, sbx_error_t *e)
{
    char    path[PATH_MAX], *p;
    size_t  i, n;

    n = box->spots.nelts;

    for (i = 0; box->root && i < n; i++) {
        if (box->spots.elts[i].kind != SBX_SPOT_WRITABLE) {
            continue;
        }

        (void) snprintf(path, sizeof(path), "%s", box->spots.elts[i].path);

        for (p = strchr(path + 1, '/'); p != NULL; p = strchr(p + 1, '/')) {
            *p = '\0';

            if (!sbx_paths_searchable(box, path)
                && sbx_spot_add(&box->spots, SBX_SPOT_COVER, path, e) == NULL)
            {
                return -1;
            }

            *p = '/';
        }
    }

    return 0;
}


static int
sbx_paths_searchable(const sbx_box_t *box, const char *path)
{
    mode_t       bit;
    size_t       i;
    struct stat  st;

    /* in the run's own /tmp the way is made anew, in a writable directory
       it is the owner's */

    for (i = 0; i < box->spots.nelts; i++) {
        if ((box->spots.elts[i].kind == SBX_SPOT_SCRATCH
             || box->spots.elts[i].kind == SBX_SPOT_WRITABLE)
            && sbx_path_within(path, box->spots.elts[i].path))
        {
            return 1;
        }
    }

    if (stat(path, &st) == -1) {
        return 0;
    }

    bit = st.st_uid == box->uid ? S_IXUSR
          : st.st_gid == box->gid ? S_IXGRP : S_IXOTH;

    return (st.st_mode & bit) != 0;
}


static int
sbx_paths_order(const void *one, const void *two)
{
    int                rc;
    const sbx_spot_t  *a, *b;

    a = one;
    b = two;
    rc = strcmp(a->path, b->path);

    return rc != 0 ? rc : (int) a->kind - (int) b->kind;
}


static void
sbx_paths_settle(sbx_box_t *box)
{
    size_t       i, k, n;
    sbx_spot_t  *spots;

    spots = box->spots.elts;
    qsort(spots, box->spots.nelts, sizeof(sbx_spot_t), sbx_paths_order);
    n = 0;

    for (i = 0; i < box->spots.nelts; i++) {
        if (n != 0 && spots[n - 1].kind == spots[i].kind
            && strcmp(spots[n - 1].path, spots[i].path) == 0)
        {
            free(spots[i].path);
            continue;
        }

        spots[n++] = spots[i];
    }

    box->spots.nelts = n;

    for (i = 0; i < n; i++) {
        for (k = 0; k < n; k++) {
            if (spots[k].kind == SBX_SPOT_WRITABLE
                && strcmp(spots[k].path, spots[i].path) != 0
                && sbx_path_within(spots[k].path, spots[i].path))
            {
                spots[i].below = 1;
            }
        }
    }
}


/*
 * ---- what is denied --------------------------------------------------------
 */

static int
sbx_paths_denies(sbx_box_t *box, sbx_box_list_t list, sbx_error_t *e)
{
    int     n;
    char    full[PATH_MAX], **path;

    for (path = box->list[list]; *path != NULL; path++) {
        n = snprintf(full, sizeof(full), "%s%s%s",
                     (*path)[0] == '/' ? ""
                                       : box->string[SBX_BOX_WORKSPACE],
                     (*path)[0] == '/' ? "" : "/", *path);

        if (n < 0 || (size_t) n >= sizeof(full)) {
            return sbx_error(e, ENAMETOOLONG, SBX_E_INVALID,
                             "\"%.180s\" is too long", *path);
        }

        if (sbx_paths_deny(box, full, list == SBX_BOX_DENY_READ, e) == -1) {
            return -1;
        }
    }

    return 0;
}


static int
sbx_paths_deny(sbx_box_t *box, const char *path, unsigned read,
    sbx_error_t *e)
{
    size_t       i;
    unsigned     scratch;
    sbx_spot_t  *spot;
    sbx_deny_t  *deny;
    sbx_where_t  where;

    if (sbx_box_resolve(&box->spots, path, &where, e) == -1) {
        if (e->err != EACCES) {
            return -1;
        }

        /* no more can the command, until it gives itself the right to */

        if (!sbx_path_writable(&box->spots, where.path)) {
            return 0;
        }
    }

    if (strcmp(where.path, "/") == 0) {
        return sbx_error(e, 0, SBX_E_INVALID, "\"/\" cannot be denied");
    }

    if (!read && where.through_link) {
        return sbx_error(e, 0, SBX_E_INVALID,
                         "deny_write \"%.100s\" leads through a link in a "
                         "writable directory, which the command could "
                         "replace: name \"%.80s\"", path, where.path);
    }

    deny = &box->denies[box->ndenies];
    deny->read = read & 1;
    deny->exists = where.exists;
    deny->is_dir = where.is_dir;
    deny->writable = -1;
    scratch = 0;

    for (i = 0; i < box->spots.nelts; i++) {
        spot = &box->spots.elts[i];

        if (!sbx_path_within(where.path, spot->path)) {
            continue;
        }

        if (spot->kind == SBX_SPOT_WRITABLE) {
            if (deny->writable == -1) {
                deny->writable = (int) i;
            }

            scratch = 0;

        } else if (spot->kind == SBX_SPOT_SCRATCH) {
            scratch = 1;
        }
    }

    if (scratch) {
        /* nothing of the host is there, whatever the host has */
        deny->exists = 0;
        deny->writable = -1;

    } else if (!where.exists) {
        if (deny->writable == -1) {
            return 0;
        }

        return sbx_error(e, ENOENT, SBX_E_INVALID,
                         "%s \"%.180s\" is not there, and nothing is made "
                         "in a directory of yours: make it first",
                         read ? "deny_read" : "deny_write", path);
    }

    deny->path = strdup(where.path);

    if (deny->path == NULL) {
        return sbx_error(e, errno, SBX_E_INTERNAL, "no memory");
    }

    box->ndenies++;

    return 0;
}
