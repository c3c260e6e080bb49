/*
 * Watching a directory, or a file in one, by inotify.
 *
 * Each watched directory is a node below its parent's, so that a path is
 * known however directories are renamed.  A directory that appears is watched
 * first and read then: what was put into it meanwhile is told, some of it
 * perhaps twice, but nothing is missed.  The kernel keeps what has not been
 * read, to its own bound, while the caller is slow; what it drops, or cannot
 * be watched, is told as an overflow.
 *
 * Temporaries of ours are hidden: the rename that ends an upload is its one
 * event, and the name that it comes from tells whether the file is new.
 */

#include "init_file.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/socket.h>


#define SBX_INIT_WATCH_NODES   1024
#define SBX_INIT_WATCH_DEPTH   100
#define SBX_INIT_WATCH_SCAN    100000       /* names of one that appears */
#define SBX_INIT_WATCH_LOOK    20000        /* ms */
#define SBX_INIT_WATCH_STEP    60           /* s */
#define SBX_INIT_WATCH_PATH    16384

#define SBX_INIT_WATCH_MASK                                                  \
    (IN_CREATE | IN_MODIFY | IN_DELETE | IN_MOVED_FROM | IN_MOVED_TO         \
     | IN_ATTRIB | IN_DELETE_SELF | IN_MOVE_SELF | IN_ONLYDIR                \
     | IN_EXCL_UNLINK)


typedef struct {
    int        wd;                          /* -1: free */
    int        parent;                      /* a node, or -1 */
    unsigned   depth;
    char      *name;                        /* in the parent; the top: path */
} sbx_init_node_t;


typedef struct {
    sbx_init_serve_t  *s;
    sbx_error_t       *e;
    int                inotify;
    int                recursive;
    char               only[256];           /* the name of a file, or "" */
    int                over;                /* the top is gone */
    int                told;                /* of watches that lack */

    /* what a rename moved from */
    uint32_t           cookie;
    int                hidden;              /* from one of ours */
    int                replaces;
    int                moved;               /* a node, or -1 */

    /* the last write that was told */
    int                wrote;
    char               written[256];

    sbx_init_node_t    nodes[SBX_INIT_WATCH_NODES];
} sbx_init_watch_t;


static int sbx_init_watch_top(sbx_init_watch_t *w);
static int sbx_init_watch_add(sbx_init_watch_t *w, int dir, const char *name,
    int parent, int *node);
static int sbx_init_watch_below(sbx_init_watch_t *w, int dir, int node,
    int tell);
static void sbx_init_watch_drop(sbx_init_watch_t *w, int node);
static int sbx_init_watch_run(sbx_init_watch_t *w);
static int sbx_init_watch_event(sbx_init_watch_t *w,
    const struct inotify_event *event);
static int sbx_init_watch_named(sbx_init_watch_t *w, int node,
    const struct inotify_event *event);
static int sbx_init_watch_find(sbx_init_watch_t *w, int node,
    const char *name);
static int sbx_init_watch_appeared(sbx_init_watch_t *w, int node,
    const struct inotify_event *event);
static int sbx_init_watch_tell(sbx_init_watch_t *w, sbx_change_t change,
    int node, const char *name);
static int sbx_init_watch_overflow(sbx_init_watch_t *w);
static int sbx_init_watch_path(sbx_init_watch_t *w, int node, char *buf,
    size_t size);


int
sbx_init_file_verb_watch(sbx_init_serve_t *s, sbx_f_end_t *end,
    sbx_error_t *e)
{
    unsigned                 i;
    static sbx_init_watch_t  w;

    (void) end;

    w.s = s;
    w.e = e;
    w.recursive = (s->file.flags & SBX_FILE_F_RECURSIVE) != 0;
    w.moved = -1;
    w.wrote = -1;
    s->patience = SBX_INIT_WATCH_STEP;

    for (i = 0; i < SBX_INIT_WATCH_NODES; i++) {
        w.nodes[i].wd = -1;
    }

    if (sbx_init_serve_kind(s, SBX_INIT_KIND_WATCH, e) != 0) {
        return -1;
    }

    w.inotify = inotify_init1(IN_CLOEXEC|IN_NONBLOCK);

    if (w.inotify == -1) {
        return sbx_error(e, errno, SBX_E_UNAVAILABLE,
                         "the kernel has no watch to give now");
    }

    if (sbx_init_watch_top(&w) != 0
        || sbx_init_serve_frame(s, SBX_F_READY, NULL, 0, e) != 0
        || sbx_init_serve_flush(s, e) != 0)
    {
        return -1;
    }

    return sbx_init_watch_run(&w);
}


static int
sbx_init_watch_top(sbx_init_watch_t *w)
{
    int           node;
    char          path[SBX_PATH_MAX + 64], *slash;
    sbx_auto_fd   fd = -1;
    struct stat   st;

    fd = sbx_init_open(w->s, w->s->path, O_PATH, w->e);

    if (fd == -1 || sbx_init_real(fd, path, sizeof(path), w->e) != 0) {
        return -1;
    }

    if (fstat(fd, &st) == -1 || sbx_init_foreign(fd)) {
        return sbx_error(w->e, 0, SBX_E_FILE_TYPE,
                         "path: it cannot be watched");
    }

    /* a file is replaced by another of its name: the name is watched */

    if (!S_ISDIR(st.st_mode)) {
        slash = strrchr(path, '/');
        (void) sbx_copy_string(w->only, sizeof(w->only), slash + 1,
                               strlen(slash + 1));
        slash[slash == path] = '\0';
        w->recursive = 0;

        (void) close(sbx_steal_fd(&fd));
        fd = sbx_init_open(w->s, path, O_PATH|O_DIRECTORY, w->e);

        if (fd == -1) {
            return -1;
        }
    }

    if (sbx_init_watch_add(w, fd, path[1] ? path : "", -1, &node) != 0) {
        return sbx_init_errno(w->e, errno, "path");
    }

    if (!w->recursive) {
        return 0;
    }

    if (sbx_init_watch_below(w, fd, node, 0) != 0) {
        return -1;
    }

    if (w->told) {
        w->s->quota = "watched directories";
        w->s->quota_limit = SBX_INIT_WATCH_NODES;
        return sbx_error(w->e, 0, SBX_E_QUOTA,
                         "the tree has more than the %d directories that one "
                         "watch may have, or is too deep",
                         SBX_INIT_WATCH_NODES);
    }

    return 0;
}


/* By a descriptor: whatever the name means by then, it is this directory.
 * -1 with errno. */

static int
sbx_init_watch_add(sbx_init_watch_t *w, int dir, const char *name,
    int parent, int *node)
{
    int       wd;
    char      path[64];
    unsigned  i, k;

    for (i = 0; i < SBX_INIT_WATCH_NODES; i++) {
        if (w->nodes[i].wd == -1) {
            break;
        }
    }

    if (i == SBX_INIT_WATCH_NODES
        || (parent != -1
            && w->nodes[parent].depth >= SBX_INIT_WATCH_DEPTH))
    {
        errno = ENOSPC;
        return -1;
    }

    (void) snprintf(path, sizeof(path), "/proc/self/fd/%d", dir);

    wd = inotify_add_watch(w->inotify, path, SBX_INIT_WATCH_MASK);

    if (wd == -1) {
        return -1;
    }

    /* found by a scan before its event was read */

    for (k = 0; k < SBX_INIT_WATCH_NODES; k++) {
        if (w->nodes[k].wd == wd) {
            errno = EEXIST;
            return -1;
        }
    }

    w->nodes[i].name = strdup(name);

    if (w->nodes[i].name == NULL) {
        (void) inotify_rm_watch(w->inotify, wd);
        errno = ENOMEM;
        return -1;
    }

    w->nodes[i].wd = wd;
    w->nodes[i].parent = parent;
    w->nodes[i].depth = parent == -1 ? 0 : w->nodes[parent].depth + 1;
    *node = (int) i;

    return 0;
}


/* What is in a watched directory: told, if it has appeared, and watched. */

static int
sbx_init_watch_below(sbx_init_watch_t *w, int dir, int node, int tell)
{
    int             fd, rc, next;
    DIR            *list;
    unsigned        names;
    struct dirent  *de;

    fd = openat(dir, ".", O_RDONLY|O_DIRECTORY|O_CLOEXEC);
    list = fd != -1 ? fdopendir(fd) : NULL;

    if (list == NULL) {

        /* it cannot be read, or is gone: then there is nothing to tell */

        return 0;
    }

    rc = 0;
    names = 0;

    while (rc == 0 && (de = readdir(list)) != NULL) {
        if (strcmp(de->d_name, ".") == 0 || strcmp(de->d_name, "..") == 0
            || sbx_init_hidden(de->d_name))
        {
            continue;
        }

        sbx_init_serve_alarm(w->s, SBX_INIT_WATCH_STEP);

        if (++names > SBX_INIT_WATCH_SCAN) {
            rc = sbx_init_watch_overflow(w);
            break;
        }

        if (tell) {
            rc = sbx_init_watch_tell(w, SBX_CHANGE_CREATE, node, de->d_name);
        }

        if (rc != 0 || !w->recursive
            || (de->d_type != DT_DIR && de->d_type != DT_UNKNOWN))
        {
            continue;
        }

        fd = sbx_init_open_at(dirfd(list), de->d_name,
                              O_PATH|O_DIRECTORY|O_NOFOLLOW);

        if (fd == -1) {
            continue;
        }

        if (sbx_init_watch_add(w, fd, de->d_name, node, &next) == 0) {
            rc = sbx_init_watch_below(w, fd, next, tell);

        } else if (errno != EACCES && errno != ENOENT && errno != EEXIST) {
            w->told++;
            rc = tell ? sbx_init_watch_overflow(w) : 0;
        }

        (void) close(fd);
    }

    (void) closedir(list);

    return rc;
}


/* A node and those below it. */

static void
sbx_init_watch_drop(sbx_init_watch_t *w, int node)
{
    int  i;

    (void) inotify_rm_watch(w->inotify, w->nodes[node].wd);
    w->nodes[node].wd = -1;
    free(w->nodes[node].name);
    w->nodes[node].name = NULL;

    for (i = 0; i < SBX_INIT_WATCH_NODES; i++) {
        if (w->nodes[i].wd != -1 && w->nodes[i].parent == node) {
            sbx_init_watch_drop(w, i);
        }
    }
}


static int
sbx_init_watch_run(sbx_init_watch_t *w)
{
    int                          n;
    char                        *p;
    ssize_t                      got;
    struct pollfd                fds[2];
    const struct inotify_event  *event;

    static char  buf[32768]
        __attribute__((aligned(__alignof__(struct inotify_event))));

    fds[0].fd = w->inotify;
    fds[0].events = POLLIN;
    fds[1].fd = w->s->call;
    fds[1].events = POLLRDHUP;

    while (!w->over) {
        sbx_init_serve_alarm(w->s, SBX_INIT_WATCH_STEP);

        n = poll(fds, 2, SBX_INIT_WATCH_LOOK);

        if (n == -1 && errno != EINTR) {
            return sbx_error(w->e, errno, SBX_E_INTERNAL, "poll() failed");
        }

        if (n > 0 && fds[1].revents != 0) {
            return sbx_error(w->e, 0, SBX_E_UNAVAILABLE,
                             "the caller is gone");
        }

        got = read(w->inotify, buf, sizeof(buf));

        for (p = buf; got > 0 && p < buf + got && !w->over;
             p += sizeof(struct inotify_event) + event->len)
        {
            event = (const struct inotify_event *) (void *) p;

            if (sbx_init_watch_event(w, event) != 0) {
                return -1;
            }
        }

        if (w->s->out_end != 0 && sbx_init_serve_flush(w->s, w->e) != 0) {
            return -1;
        }
    }

    return 0;
}


static int
sbx_init_watch_event(sbx_init_watch_t *w, const struct inotify_event *event)
{
    int  node, top;

    if (event->mask & IN_Q_OVERFLOW) {
        return sbx_init_watch_overflow(w);
    }

    /* the other half of a rename follows at once, or was in another tree */

    if (w->moved != -1
        && (!(event->mask & IN_MOVED_TO) || event->cookie != w->cookie))
    {
        sbx_init_watch_drop(w, w->moved);
        w->moved = -1;
    }

    for (node = 0; node < SBX_INIT_WATCH_NODES; node++) {
        if (w->nodes[node].wd == event->wd) {
            break;
        }
    }

    if (node == SBX_INIT_WATCH_NODES) {
        return 0;
    }

    top = (w->nodes[node].parent == -1);

    if (event->len != 0) {
        return sbx_init_watch_named(w, node, event);
    }

    if (event->mask & IN_IGNORED) {
        if (top) {
            w->over = 1;
        }

        sbx_init_watch_drop(w, node);
        return 0;
    }

    if (!top || w->only[0] != '\0') {
        return 0;
    }

    if (event->mask & (IN_DELETE_SELF|IN_MOVE_SELF)) {
        w->over = 1;
        return sbx_init_watch_tell(w, event->mask & IN_MOVE_SELF
                                      ? SBX_CHANGE_RENAME : SBX_CHANGE_REMOVE,
                                   node, NULL);
    }

    return (event->mask & IN_ATTRIB)
           ? sbx_init_watch_tell(w, SBX_CHANGE_CHMOD, node, NULL) : 0;
}


static int
sbx_init_watch_named(sbx_init_watch_t *w, int node,
    const struct inotify_event *event)
{
    size_t  len;

    if (w->only[0] != '\0' && strcmp(event->name, w->only) != 0
        && !sbx_init_hidden(event->name))
    {
        w->cookie = 0;
        return 0;
    }

    if (event->mask & IN_MOVED_FROM) {
        w->cookie = event->cookie;
        w->hidden = sbx_init_hidden(event->name);
        len = strlen(event->name);
        w->replaces = len > sizeof(SBX_INIT_REPLACES)
                      && strcmp(event->name + len + 1
                                - sizeof(SBX_INIT_REPLACES),
                                SBX_INIT_REPLACES)
                         == 0;

        w->moved = sbx_init_watch_find(w, node, event->name);
    }

    if (sbx_init_hidden(event->name)) {
        return 0;
    }

    if (event->mask & (IN_CREATE|IN_MOVED_TO)) {
        return sbx_init_watch_appeared(w, node, event);
    }

    if (event->mask & IN_MOVED_FROM) {
        return sbx_init_watch_tell(w, SBX_CHANGE_RENAME, node, event->name);
    }

    if (event->mask & IN_DELETE) {
        return sbx_init_watch_tell(w, SBX_CHANGE_REMOVE, node, event->name);
    }

    if (event->mask & IN_MODIFY) {

        /* one for a row of writes */

        if (w->wrote == node && strcmp(w->written, event->name) == 0) {
            return 0;
        }

        if (sbx_init_watch_tell(w, SBX_CHANGE_WRITE, node, event->name) != 0)
        {
            return -1;
        }

        w->wrote = node;
        (void) sbx_copy_string(w->written, sizeof(w->written), event->name,
                               strlen(event->name));
        return 0;
    }

    return (event->mask & IN_ATTRIB)
           ? sbx_init_watch_tell(w, SBX_CHANGE_CHMOD, node, event->name) : 0;
}


/* The watched directory of a name, or -1. */

static int
sbx_init_watch_find(sbx_init_watch_t *w, int node, const char *name)
{
    int  i;

    for (i = 0; i < SBX_INIT_WATCH_NODES; i++) {
        if (w->nodes[i].wd != -1 && w->nodes[i].parent == node
            && strcmp(w->nodes[i].name, name) == 0)
        {
            return i;
        }
    }

    return -1;
}


static int
sbx_init_watch_appeared(sbx_init_watch_t *w, int node,
    const struct inotify_event *event)
{
    int           next, pair;
    char          path[SBX_INIT_WATCH_PATH], *name;
    sbx_auto_fd   fd = -1;
    sbx_change_t  change;

    pair = (event->mask & IN_MOVED_TO) && event->cookie == w->cookie;

    /* a scan has told of it */

    if ((event->mask & IN_CREATE)
        && sbx_init_watch_find(w, node, event->name) != -1)
    {
        return 0;
    }

    change = pair && w->hidden && w->replaces ? SBX_CHANGE_WRITE
                                              : SBX_CHANGE_CREATE;

    if (sbx_init_watch_tell(w, change, node, event->name) != 0) {
        return -1;
    }

    if (!(event->mask & IN_ISDIR) || !w->recursive) {
        w->moved = -1;
        return 0;
    }

    if (pair && w->moved != -1) {

        /* it is watched already, with all below */

        name = strdup(event->name);

        if (name == NULL) {
            return sbx_init_watch_overflow(w);
        }

        free(w->nodes[w->moved].name);
        w->nodes[w->moved].name = name;
        w->nodes[w->moved].parent = node;
        w->nodes[w->moved].depth = w->nodes[node].depth + 1;
        w->moved = -1;
        return 0;
    }

    if (sbx_init_watch_path(w, node, path, sizeof(path)) != 0
        || strlen(path) + strlen(event->name) + 2 > SBX_PATH_MAX)
    {
        return sbx_init_watch_overflow(w);
    }

    (void) strcat(path, "/");
    (void) strcat(path, event->name);

    fd = sbx_init_open(w->s, path, O_PATH|O_DIRECTORY|O_NOFOLLOW, NULL);

    /* gone already: that will be told */

    if (fd == -1) {
        return 0;
    }

    if (sbx_init_watch_add(w, fd, event->name, node, &next) != 0) {
        return errno == EACCES || errno == EEXIST ? 0
                                             : sbx_init_watch_overflow(w);
    }

    return sbx_init_watch_below(w, fd, next, 1);
}


static int
sbx_init_watch_path(sbx_init_watch_t *w, int node, char *buf, size_t size)
{
    int     i, chain[SBX_INIT_WATCH_DEPTH + 2];
    size_t  n, len;

    for (n = 0; node != -1; node = w->nodes[node].parent) {
        if (n == sbx_nelts(chain)) {
            return -1;
        }

        chain[n++] = node;
    }

    for (len = 0; n != 0; n--) {
        i = snprintf(buf + len, size - len, "%s%s",
                     w->nodes[chain[n - 1]].parent == -1 ? "" : "/",
                     w->nodes[chain[n - 1]].name);

        if (i < 0 || (size_t) i >= size - len) {
            return -1;
        }

        len += (size_t) i;
    }

    return 0;
}


static int
sbx_init_watch_tell(sbx_init_watch_t *w, sbx_change_t change, int node,
    const char *name)
{
    size_t          len;
    sbx_f_change_t  head;
    static uint8_t  buf[sizeof(sbx_f_change_t) + SBX_INIT_WATCH_PATH + 257];
    char           *path;

    w->wrote = -1;
    path = (char *) buf + sizeof(sbx_f_change_t);

    if (sbx_init_watch_path(w, node, path, SBX_INIT_WATCH_PATH) != 0) {
        return sbx_init_watch_overflow(w);
    }

    len = strlen(path);

    if (name != NULL) {
        path[len++] = '/';
        (void) sbx_copy_string(path + len, 257, name, strlen(name));
        len += strlen(name);

    } else if (len == 0) {
        path[len++] = '/';
    }

    head.change = change;
    head.path_len = (uint32_t) len;
    memcpy(buf, &head, sizeof(sbx_f_change_t));

    return sbx_init_serve_frame(w->s, SBX_F_CHANGE, buf,
                                sizeof(sbx_f_change_t) + len, w->e);
}


static int
sbx_init_watch_overflow(sbx_init_watch_t *w)
{
    sbx_f_change_t  head;

    head.change = SBX_CHANGE_OVERFLOW;
    head.path_len = 0;

    return sbx_init_serve_frame(w->s, SBX_F_CHANGE, &head,
                                sizeof(sbx_f_change_t), w->e);
}
