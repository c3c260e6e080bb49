/*
 * What a run sees of the host: each directory of the host's "/", read-only,
 * with all that is mounted below it, or piece by piece where that takes no
 * such mount as a whole.
 */

#include "box_root.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>


static int sbx_view_top(sbx_build_t *b, const char *name, sbx_error_t *e);
static int sbx_view_alone(const sbx_build_t *b, const char *path);
static int sbx_view_part(const char *path, const char *type, void *data,
    sbx_error_t *e);
static int sbx_view_order(const void *one, const void *two);


/* Of the run's own, or not there at all. */
static const char  *sbx_view_left_out[] = {
    "proc", "sys", "dev", "run", "tmp", "lost+found"
};


int
sbx_view_tops(sbx_build_t *b, sbx_error_t *e)
{
    int             rc;
    DIR            *dir;
    size_t          i;
    struct dirent  *entry;

    dir = opendir("/");

    if (dir == NULL) {
        return sbx_error(e, errno, SBX_E_INTERNAL, "cannot read \"/\"");
    }

    rc = 0;

    while (rc == 0 && (entry = readdir(dir)) != NULL) {
        if (strcmp(entry->d_name, ".") == 0
            || strcmp(entry->d_name, "..") == 0)
        {
            continue;
        }

        for (i = 0; i < sbx_nelts(sbx_view_left_out); i++) {
            if (strcmp(entry->d_name, sbx_view_left_out[i]) == 0) {
                break;
            }
        }

        if (i == sbx_nelts(sbx_view_left_out)) {
            rc = sbx_view_top(b, entry->d_name, e);
        }
    }

    (void) closedir(dir);

    return rc;
}


static int
sbx_view_top(sbx_build_t *b, const char *name, sbx_error_t *e)
{
    char         text[PATH_MAX];
    ssize_t      n;
    sbx_top_t   *top;
    struct stat  st;

    if (fstatat(b->host, name, &st, AT_SYMLINK_NOFOLLOW) == -1
        || (!S_ISDIR(st.st_mode) && !S_ISLNK(st.st_mode)))
    {
        return 0;
    }

    if (b->ntops == SBX_TOPS_MAX) {
        return sbx_error(e, 0, SBX_E_MANIFEST,
                         "\"/\" has more than %d directories", SBX_TOPS_MAX);
    }

    top = &b->tops[b->ntops];
    top->tree = -1;
    (void) snprintf(top->name, sizeof(top->name), "%s", name);

    if (S_ISLNK(st.st_mode)) {
        n = readlinkat(b->host, name, text, sizeof(text) - 1);

        if (n <= 0) {
            return 0;
        }

        text[n] = '\0';
        top->link = strdup(text);
        b->ntops += (top->link != NULL);

        return 0;
    }

    top->tree = sbx_sys_clone_tree(b->host, name, 1);

    if (top->tree == -1 && (errno == EACCES || errno == ENOENT)) {
        return 0;
    }

    if (top->tree != -1 && b->nobody != -1
        && sbx_sys_mount_attr(top->tree, SBX_HOST, b->nobody) == -1)
    {
        /* all or nothing, and something below takes no such mount: then each
           for itself */

        (void) close(top->tree);
        top->tree = sbx_view_alone(b, name);
        top->parts = 1;
    }

    if (top->tree == -1
        || (b->nobody == -1
            && sbx_sys_mount_attr(top->tree, SBX_HOST, -1) == -1))
    {
        return sbx_error(e, errno, SBX_E_INTERNAL,
                         "cannot make a read-only view of \"/%s\"", name);
    }

    b->ntops++;

    return 0;
}


/* One mount without what is mounted below it. */
static int
sbx_view_alone(const sbx_build_t *b, const char *path)
{
    sbx_auto_fd  tree = -1;

    tree = sbx_sys_clone_tree(b->host, path, 0);

    if (tree == -1
        || (sbx_sys_mount_attr(tree, SBX_HOST, b->nobody) == -1
            && sbx_sys_mount_attr(tree, SBX_HOST, -1) == -1))
    {
        return -1;
    }

    return sbx_steal_fd(&tree);
}


static int
sbx_view_part(const char *path, const char *type, void *data,
    sbx_error_t *e)
{
    char         **parts;
    size_t         i, len;
    sbx_build_t   *b;

    (void) type;
    b = data;
    len = strcspn(path + 1, "/");

    for (i = 0; i < b->ntops; i++) {
        if (b->tops[i].parts && strlen(b->tops[i].name) == len
            && memcmp(b->tops[i].name, path + 1, len) == 0
            && path[1 + len] == '/')
        {
            break;
        }
    }

    if (i == b->ntops) {
        return 0;
    }

    parts = realloc(b->parts, (b->nparts + 1) * sizeof(char *));

    if (parts == NULL) {
        return sbx_error(e, errno, SBX_E_INTERNAL, "no memory");
    }

    b->parts = parts;
    parts[b->nparts] = strdup(path);

    return parts[b->nparts++] == NULL
           ? sbx_error(e, errno, SBX_E_INTERNAL, "no memory") : 0;
}


static int
sbx_view_order(const void *one, const void *two)
{
    return strcmp(*(char *const *) one, *(char *const *) two);
}


/* What was mounted below, from above to below; what cannot be reached, or is
 * mounted over, is left out. */
int
sbx_view_parts(sbx_build_t *b, sbx_error_t *e)
{
    size_t  i;

    if (sbx_box_mounts(sbx_view_part, b, e) == -1) {
        return -1;
    }

    if (b->nparts == 0) {
        return 0;
    }

    qsort(b->parts, b->nparts, sizeof(char *), sbx_view_order);

    for (i = 0; i < b->nparts; i++) {
        sbx_auto_fd  tree = -1, target = -1;

        if (i > 0 && strcmp(b->parts[i], b->parts[i - 1]) == 0) {
            continue;
        }

        target = sbx_view_open(b->root, b->parts[i]);
        tree = target == -1 ? -1 : sbx_view_alone(b, b->parts[i] + 1);

        if (tree != -1 && sbx_sys_move_mount_onto(tree, target) == -1) {
            return sbx_error(e, errno, SBX_E_INTERNAL,
                             "cannot mount \"%.180s\"", b->parts[i]);
        }
    }

    return 0;
}
