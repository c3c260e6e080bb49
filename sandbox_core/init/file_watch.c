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

#include "init_watch.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/socket.h>


#define SBX_INIT_WATCH_DEPTH   100
#define SBX_INIT_WATCH_SCAN    100000       /* names of one that appears */

#define SBX_INIT_WATCH_MASK                                                  \
    (IN_CREATE | IN_MODIFY | IN_DELETE | IN_MOVED_FROM | IN_MOVED_TO         \
     | IN_ATTRIB | IN_DELETE_SELF | IN_MOVE_SELF | IN_ONLYDIR                \
     | IN_EXCL_UNLINK)


typedef enum {
    SBX_INIT_NEW_NAME,
    SBX_INIT_NEW_FILE,                      /* that was found */
    SBX_INIT_NEW_UPLOAD
} sbx_init_new_t;


static int sbx_init_watch_send(sbx_init_watch_t *w, sbx_change_t change,
    const char *path, size_t len);
static int sbx_init_watch_top(sbx_init_watch_t *w, const char *given);
static int sbx_init_watch_add(sbx_init_watch_t *w, int dir, const char *name,
    int parent, int *node);
static int sbx_init_watch_below(sbx_init_watch_t *w, int dir, int node,
    int tell);
static void sbx_init_watch_drop(sbx_init_watch_t *w, int node);
static int sbx_init_watch_run(sbx_init_watch_t *w);
static int sbx_init_watch_created(sbx_init_watch_t *w, int node,
    const char *name, sbx_init_new_t kind);
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
    static sbx_init_watch_t  w;

    (void) end;

    w.s = s;
    w.e = e;
    w.flags = s->file.flags;
    w.tell = sbx_init_watch_send;
    s->patience = SBX_INIT_WATCH_STEP;

    if (sbx_init_serve_kind(s, SBX_INIT_KIND_WATCH, e) != 0
        || sbx_init_watch_open(&w, s->path) != 0
        || sbx_init_serve_frame(s, SBX_F_READY, NULL, 0, e) != 0
        || sbx_init_serve_flush(s, e) != 0)
    {
        return -1;
    }

    s->client = 1;

    return sbx_init_watch_run(&w);
}


int
sbx_init_watch_open(sbx_init_watch_t *w, const char *path)
{
    unsigned  i;

    w->recursive = (w->flags & SBX_FILE_F_RECURSIVE) != 0;
    w->moved = -1;
    w->wrote = -1;

    for (i = 0; i < SBX_INIT_WATCH_NODES; i++) {
        w->nodes[i].wd = -1;
    }

    w->inotify = inotify_init1(IN_CLOEXEC|IN_NONBLOCK);

    if (w->inotify == -1) {
        return sbx_error(w->e, errno, SBX_E_UNAVAILABLE,
                         "the kernel has no watch to give now");
    }

    if (sbx_init_watch_top(w, path) != 0) {
        sbx_init_watch_close(w);
        return -1;
    }

    return 0;
}


void
sbx_init_watch_close(sbx_init_watch_t *w)
{
    unsigned  i;

    if (w->inotify == -1) {
        return;
    }

    (void) close(sbx_steal_fd(&w->inotify));

    for (i = 0; i < SBX_INIT_WATCH_NODES; i++) {
        w->nodes[i].wd = -1;
        free(w->nodes[i].name);
        w->nodes[i].name = NULL;
    }
}


static int
sbx_init_watch_top(sbx_init_watch_t *w, const char *given)
{
    int           node;
    char          path[SBX_PATH_MAX + 64], *slash;
    size_t        len;
    sbx_auto_fd   fd = -1;
    struct stat   st;

    fd = sbx_init_open(w->s, given, O_PATH, w->e);

    if (fd == -1 || sbx_init_real(fd, path, sizeof(path), w->e) != 0) {
        return -1;
    }

    if (fstat(fd, &st) == -1 || sbx_init_foreign(fd)) {
        return sbx_error(w->e, 0, SBX_E_FILE_TYPE,
                         "path: it cannot be watched");
    }

    if (w->flags & SBX_FILE_F_MORE) {
        if (!S_ISDIR(st.st_mode)) {
            return sbx_init_errno(w->e, ENOTDIR, "path");
        }

        if (sbx_init_given(given, path, &len, w->e) != 0) {
            return -1;
        }

        path[len] = '\0';
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

    if (strcmp(path, "/") == 0) {
        path[0] = '\0';
    }

    if (sbx_init_watch_add(w, fd, path, -1, &node) != 0) {
        return sbx_init_errno(w->e, errno, "path");
    }

    if (!w->recursive) {
        return 0;
    }

    if (sbx_init_watch_below(w, fd, node, 0) != 0) {
        return -1;
    }

    if (w->lacks) {
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
            rc = sbx_init_watch_created(w, node, de->d_name,
                                        de->d_type == DT_REG
                                        ? SBX_INIT_NEW_FILE
                                        : SBX_INIT_NEW_NAME);
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
            w->lacks++;
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
    int            n;
    struct pollfd  fds[2];

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

        if (sbx_init_watch_read(w) == -1
            || (w->s->out_end != 0
                && sbx_init_serve_flush(w->s, w->e) != 0))
        {
            return -1;
        }
    }

    return 0;
}


int
sbx_init_watch_read(sbx_init_watch_t *w)
{
    char                        *p;
    ssize_t                      got;
    const struct inotify_event  *event;

    static char  buf[32768]
        __attribute__((aligned(__alignof__(struct inotify_event))));

    /* whoever asks for more has every write, but for those at once */

    if (w->flags & SBX_FILE_F_MORE) {
        w->wrote = -1;
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

    return got > 0;
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
    int          rc, next, pair;
    char         path[SBX_INIT_WATCH_PATH], *name;
    sbx_auto_fd  fd = -1;

    pair = (event->mask & IN_MOVED_TO) && event->cookie == w->cookie;

    /* a scan has told of it */

    if ((event->mask & IN_CREATE)
        && sbx_init_watch_find(w, node, event->name) != -1)
    {
        return 0;
    }

    rc = pair && w->hidden && w->replaces
         ? sbx_init_watch_tell(w, SBX_CHANGE_WRITE, node, event->name)
         : sbx_init_watch_created(w, node, event->name,
                                  pair && w->hidden
                                  && !(event->mask & IN_ISDIR)
                                  ? SBX_INIT_NEW_UPLOAD
                                  : SBX_INIT_NEW_NAME);

    if (rc != 0) {
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


/*
 * Whoever asks for more is told, too, that there is content, and of what an
 * upload has done to the file before it had its name.
 */

static int
sbx_init_watch_created(sbx_init_watch_t *w, int node, const char *name,
    sbx_init_new_t kind)
{
    if (sbx_init_watch_tell(w, SBX_CHANGE_CREATE, node, name) != 0) {
        return -1;
    }

    if (!(w->flags & SBX_FILE_F_MORE) || kind == SBX_INIT_NEW_NAME) {
        return 0;
    }

    if (kind == SBX_INIT_NEW_UPLOAD
        && sbx_init_watch_tell(w, SBX_CHANGE_CHMOD, node, name) != 0)
    {
        return -1;
    }

    return sbx_init_watch_tell(w, SBX_CHANGE_WRITE, node, name);
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
    size_t       len;
    static char  path[SBX_INIT_WATCH_PATH + 257];

    w->wrote = -1;

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

    return w->tell(w, change, path, len);
}


static int
sbx_init_watch_overflow(sbx_init_watch_t *w)
{
    return w->tell(w, SBX_CHANGE_OVERFLOW, NULL, 0);
}


static int
sbx_init_watch_send(sbx_init_watch_t *w, sbx_change_t change,
    const char *path, size_t len)
{
    if (sbx_init_watch_frame(w->s, change, path, len, w->e) != 0) {
        return -1;
    }

    return (w->flags & SBX_FILE_F_MORE)
           ? sbx_init_watch_entry(w->s, change, path, len, w->e) : 0;
}


int
sbx_init_watch_frame(sbx_init_serve_t *s, sbx_change_t change,
    const char *path, size_t len, sbx_error_t *e)
{
    sbx_f_change_t  head;
    static uint8_t  buf[sizeof(sbx_f_change_t) + SBX_INIT_WATCH_PATH + 257];

    head.change = change;
    head.path_len = (uint32_t) len;
    memcpy(buf, &head, sizeof(sbx_f_change_t));

    if (len != 0) {
        memcpy(buf + sizeof(sbx_f_change_t), path, len);
    }

    return sbx_init_serve_frame(s, SBX_F_CHANGE, buf,
                                sizeof(sbx_f_change_t) + len, e);
}


int
sbx_init_watch_entry(sbx_init_serve_t *s, sbx_change_t change,
    const char *path, size_t len, sbx_error_t *e)
{
    char         real[SBX_PATH_MAX], name[256];
    sbx_auto_fd  dir = -1;
    struct stat  st;

    if ((change != SBX_CHANGE_CREATE && change != SBX_CHANGE_WRITE
         && change != SBX_CHANGE_CHMOD)
        || sbx_copy_string(real, sizeof(real), path, len) != 0)
    {
        return 0;
    }

    if (len == 1) {
        dir = sbx_init_open(s, real, O_PATH|O_DIRECTORY, NULL);
        (void) strcpy(name, ".");

    } else if (sbx_init_parent(s, real, 0, name, &dir, NULL) != 0) {
        return 0;
    }

    /* gone, or going: that comes as a change of its own */

    if (dir == -1 || fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) == -1) {
        return 0;
    }

    if (sbx_init_entry_send(s, dir, name, path, len, e) != 0) {
        return e->code == SBX_E_FILE ? 0 : -1;
    }

    return 0;
}
