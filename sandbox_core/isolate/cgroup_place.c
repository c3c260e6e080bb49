/*
 * Where the broker's branch goes.  v1: below the caller's own group in each
 * hierarchy.  v2 has the rule that a group with children under control may
 * hold no process itself, so there are two cases:
 *
 *   - all that lives in the own group is the caller and its parent (a
 *     service with its own group, the normal case): both move into the leaf
 *     "<own>/<name>/broker", then controllers are enabled in the own group;
 *   - the own group holds others (a shell, an nginx started by hand) or is
 *     the root: the nearest group above that can delegate holds the branch,
 *     and nobody is moved.
 *
 * A broker that was restarted is told where the first one put the branch:
 * who starts it, the keeper, may have been moved meanwhile.  One that is told
 * nothing and finds itself in the leaf takes the group above the branch for
 * its own.
 */

#include "cgroup_private.h"
#include "isolate_private.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/magic.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/vfs.h>


static const char  *sbx_cgroup_controllers[SBX_ROLE_MAX] = {
    [SBX_ROLE_CORE]   = "",
    [SBX_ROLE_MEMORY] = "memory",
    [SBX_ROLE_PIDS]   = "pids",
    [SBX_ROLE_CPU]    = "cpu"
};


static char *sbx_cgroup_line(char *text, const char *controller,
    char *controllers, size_t size);
static int sbx_cgroup_mount(const char *type, const char *controllers,
    sbx_error_t *e);
static int sbx_cgroup_mounted(const char *type, sbx_error_t *e);
static int sbx_v1_place(sbx_tree_t *tree, const char *own, const char *base,
    sbx_error_t *e);
static void sbx_v2_flags(char *flags, size_t size);
static void sbx_v2_counted(sbx_tree_t *tree, int mount, const char *own);
static void sbx_cgroup_note(sbx_tree_t *tree, const char *path);
static int sbx_v2_place(sbx_cgroup_t *cg, sbx_tree_t *tree, char *own,
    const char *base, const sbx_cgroup_known_t *known, sbx_error_t *e);
static int sbx_v2_place_again(sbx_tree_t *tree, int mount,
    const sbx_cgroup_known_t *known, sbx_error_t *e);
static int sbx_v2_place_own(sbx_cgroup_t *cg, sbx_tree_t *tree, int mount,
    char *own, sbx_error_t *e);
static int sbx_v2_place_base(sbx_tree_t *tree, int mount, const char *base,
    sbx_error_t *e);
static int sbx_v2_enable(const sbx_tree_t *tree, int dir);
static int sbx_v2_has(int dir, const char *file, const char *controllers);
static int sbx_v2_enter_leaf(sbx_cgroup_t *cg, int own);
static void sbx_v2_leave_leaf(sbx_cgroup_t *cg, int own);
static int sbx_cgroup_open_path(int mount, const char *path, int make);


int
sbx_cgroup_place(sbx_cgroup_t *cg, const char *base,
    const sbx_cgroup_known_t *known, sbx_error_t *e)
{
    char         text[4096], copy[4096], list[64], *own;
    unsigned     r, k;
    sbx_tree_t  *tree, *core;

    if (base != NULL && base[0] == '\0') {
        base = NULL;
    }

    if (sbx_read_at(AT_FDCWD, "/proc/self/cgroup", text, sizeof(text)) <= 0) {
        return sbx_error(e, errno, SBX_E_UNAVAILABLE,
                         "/proc/self/cgroup cannot be read: the kernel needs "
                         "cgroups");
    }

    core = &cg->tree[0];
    core->v2 = 1;
    cg->ntrees = 1;

    for (r = SBX_ROLE_MEMORY; r < SBX_ROLE_MAX; r++) {
        if (r == SBX_ROLE_CPU && cg->no_cpu) {
            continue;
        }

        memcpy(copy, text, sizeof(copy));
        own = sbx_cgroup_line(copy, sbx_cgroup_controllers[r], list,
                              sizeof(list));

        if (own == NULL) {
            k = (unsigned) strlen(core->controllers);
            (void) snprintf(core->controllers + k,
                            sizeof(core->controllers) - k, "%s+%s",
                            k ? " " : "", sbx_cgroup_controllers[r]);
            continue;
        }

        /* "cpu,cpuacct" and the like: one tree may serve several roles */

        for (k = 1; k < cg->ntrees; k++) {
            if (strcmp(cg->tree[k].controllers, list) == 0) {
                break;
            }
        }

        cg->role[r] = (uint8_t) k;

        if (k == cg->ntrees) {
            tree = &cg->tree[cg->ntrees++];
            memcpy(tree->controllers, list, sizeof(list));

            /* a hierarchy that has groups of ours stays where it is: each
             * tree has the number that it had */

            if (sbx_v1_place(tree, known != NULL ? known->parent[k] : own,
                             base, e)
                == -1)
            {
                return -1;
            }
        }
    }

    own = sbx_cgroup_line(text, NULL, list, sizeof(list));

    if (own == NULL) {
        return sbx_error(e, 0, SBX_E_UNAVAILABLE,
                         "the kernel has no cgroup2: Linux 5.15 or newer, "
                         "with CONFIG_CGROUPS, is needed");
    }

    return sbx_v2_place(cg, core, own, base, known, e);
}


/* The path of the line that has the controller, or of cgroup2's. */
static char *
sbx_cgroup_line(char *text, const char *controller, char *controllers,
    size_t size)
{
    char    *line, *list, *path, *item, *next, *save;
    size_t   len;

    for (line = text; *line != '\0'; line = next) {
        next = strchrnul(line, '\n');

        if (*next != '\0') {
            *next++ = '\0';
        }

        list = strchr(line, ':');
        path = (list == NULL) ? NULL : strchr(list + 1, ':');

        if (path == NULL) {
            continue;
        }

        list++;
        *path++ = '\0';

        if (controller == NULL) {
            if (strncmp(line, "0:", 2) == 0 && list[0] == '\0') {
                return path;
            }

            continue;
        }

        len = strlen(list);

        if (len >= size) {
            continue;
        }

        memset(controllers, 0, size);
        memcpy(controllers, list, len);

        for (item = strtok_r(list, ",", &save);
             item != NULL;
             item = strtok_r(NULL, ",", &save))
        {
            if (strcmp(item, controller) == 0) {
                return path;
            }
        }
    }

    return NULL;
}


static int
sbx_cgroup_mount(const char *type, const char *controllers, sbx_error_t *e)
{
    int          mount;
    char         list[256], *item, *save;
    sbx_auto_fd  fs = -1;

    fs = sbx_sys_fsopen(type);

    if (fs != -1) {
        (void) snprintf(list, sizeof(list), "%s", controllers);

        for (item = strtok_r(list, ",", &save);
             item != NULL;
             item = strtok_r(NULL, ",", &save))
        {
            (void) sbx_sys_fsconfig(fs, SBX_FSCONFIG_FLAG, item, NULL);
        }

        mount = sbx_sys_fsmount(fs, SBX_MOUNT_NOSUID | SBX_MOUNT_NODEV
                                    | SBX_MOUNT_NOEXEC);
        if (mount != -1) {
            return mount;
        }
    }

    if (geteuid() != 0) {
        return sbx_cgroup_mounted(type, e);
    }

    return sbx_error(e, errno, SBX_E_UNAVAILABLE,
                     "%s %s cannot be mounted: root with CAP_SYS_ADMIN and "
                     "Linux 5.15 or newer are needed", type, controllers);
}


/* An ordinary user, to whom a group of cgroup2 may be delegated. */
static int
sbx_cgroup_mounted(const char *type, sbx_error_t *e)
{
    sbx_auto_fd    fd = -1;
    struct statfs  fs;

    fd = open("/sys/fs/cgroup", O_RDONLY | O_DIRECTORY | O_CLOEXEC);

    if (fd == -1 || strcmp(type, "cgroup2") != 0 || fstatfs(fd, &fs) == -1
        || fs.f_type != CGROUP2_SUPER_MAGIC)
    {
        return sbx_error(e, 0, SBX_E_UNAVAILABLE,
                         "an ordinary user needs a delegated group of "
                         "cgroup v2: systemd-run --user --scope -p "
                         "Delegate=yes, on a machine with cgroup v2 alone");
    }

    return sbx_steal_fd(&fd);
}


/* Opens a directory below the mount, where asked making what is missing. */
static int
sbx_cgroup_open_path(int mount, const char *path, int make)
{
    char    name[PATH_MAX], *p;
    size_t  len;

    while (*path == '/') {
        path++;
    }

    len = strlen(path);

    if (len == 0) {
        return openat(mount, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    }

    if (len >= sizeof(name) || strcmp(path, "..") == 0
        || strncmp(path, "../", 3) == 0 || strstr(path, "/../") != NULL)
    {
        errno = EINVAL;
        return -1;
    }

    memcpy(name, path, len + 1);

    for (p = name; make && p != NULL; p = strchr(p + 1, '/')) {
        if (p != name) {
            *p = '\0';
            (void) mkdirat(mount, name, 0755);
            *p = '/';
        }
    }

    if (make) {
        (void) mkdirat(mount, name, 0755);
    }

    return openat(mount, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
}


static int
sbx_v1_place(sbx_tree_t *tree, const char *own, const char *base,
    sbx_error_t *e)
{
    sbx_auto_fd  mount = -1;

    mount = sbx_cgroup_mount("cgroup", tree->controllers, e);
    if (mount == -1) {
        return -1;
    }

    sbx_cgroup_note(tree, base ? base : own);
    tree->parent = sbx_cgroup_open_path(mount, base ? base : own,
                                        base != NULL);
    if (tree->parent == -1) {
        return sbx_error(e, errno, SBX_E_UNAVAILABLE,
                         "cannot open the cgroup \"%s\" of %s",
                         base ? base : own, tree->controllers);
    }

    return 0;
}


static void
sbx_cgroup_note(sbx_tree_t *tree, const char *path)
{
    if (strlen(path) < sizeof(tree->path)) {
        (void) strcpy(tree->path, path);
    }
}


/*
 * There is one cgroup2 on a machine, and whoever mounts it sets its flags
 * (nsdelegate, memory_recursiveprot ...) for all: they are asked for again.
 */

static void
sbx_v2_flags(char *flags, size_t size)
{
    char   line[4096], *options;
    FILE  *f;

    flags[0] = '\0';
    f = fopen("/proc/self/mountinfo", "re");

    if (f == NULL) {
        return;
    }

    while (fgets(line, sizeof(line), f) != NULL) {
        options = strstr(line, " - cgroup2 ");
        options = (options == NULL) ? NULL : strrchr(options, ' ');

        if (options != NULL) {
            options[strcspn(options, "\n")] = '\0';
            (void) snprintf(flags, size, "%s", options + 1);
            break;
        }
    }

    (void) fclose(f);
}


/* What a command reads and writes is counted where the kernel can. */

static void
sbx_v2_counted(sbx_tree_t *tree, int mount, const char *own)
{
    size_t       len;
    sbx_auto_fd  dir = -1;

    len = strlen(tree->controllers);
    dir = sbx_cgroup_open_path(mount, own, 0);

    if (len != 0 && dir != -1 && sbx_v2_has(dir, "cgroup.controllers", "+io"))
    {
        (void) snprintf(tree->controllers + len,
                        sizeof(tree->controllers) - len, " +io");
    }
}


static int
sbx_v2_place(sbx_cgroup_t *cg, sbx_tree_t *tree, char *own,
    const char *base, const sbx_cgroup_known_t *known, sbx_error_t *e)
{
    char         flags[256];
    sbx_auto_fd  mount = -1;

    sbx_v2_flags(flags, sizeof(flags));

    mount = sbx_cgroup_mount("cgroup2", flags, e);
    if (mount == -1) {
        return -1;
    }

    sbx_v2_counted(tree, mount, base != NULL ? "/"
                                : known != NULL ? known->parent[0] : own);

    if (base != NULL) {
        return sbx_v2_place_base(tree, mount, base, e);
    }

    if (known != NULL) {
        return sbx_v2_place_again(tree, mount, known, e);
    }

    return sbx_v2_place_own(cg, tree, mount, own, e);
}


static int
sbx_v2_place_own(sbx_cgroup_t *cg, sbx_tree_t *tree, int mount, char *own,
    sbx_error_t *e)
{
    char         leaf[SBX_CGROUP_NAME_MAX + 16], *slash;
    int          dir;
    size_t       len, leaf_len;
    unsigned     first;

    leaf_len = (size_t) snprintf(leaf, sizeof(leaf), "/%s/%s", cg->name,
                                 SBX_CGROUP_LEAF);
    len = strlen(own);
    first = 1;

    if (len >= leaf_len && strcmp(own + len - leaf_len, leaf) == 0) {
        own[len - leaf_len] = '\0';
        tree->leaf = 1;
    }

    for ( ;; ) {
        dir = sbx_cgroup_open_path(mount, own, 0);
        if (dir == -1) {
            return sbx_error(e, errno, SBX_E_UNAVAILABLE,
                             "cannot open the cgroup \"%s\"", own);
        }

        if (sbx_v2_enable(tree, dir) == 0
            || (first && !tree->leaf && sbx_v2_enter_leaf(cg, dir) == 0))
        {
            tree->parent = dir;
            sbx_cgroup_note(tree, own);
            return 0;
        }

        (void) close(dir);
        first = 0;

        slash = strrchr(own, '/');

        if (slash == NULL || own[1] == '\0') {
            break;
        }

        /* the parent of "/a" is "/" */
        slash[slash == own] = '\0';
    }

    return sbx_error(e, errno, SBX_E_UNAVAILABLE,
                     "no cgroup here may have children with %s: run the "
                     "service in a group of its own (systemd: Delegate=yes) "
                     "or name one with sandbox_cgroup", tree->controllers);
}


static int
sbx_v2_place_again(sbx_tree_t *tree, int mount,
    const sbx_cgroup_known_t *known, sbx_error_t *e)
{
    sbx_auto_fd  dir = -1;

    dir = sbx_cgroup_open_path(mount, known->parent[0], 0);

    if (dir == -1 || sbx_v2_enable(tree, dir) == -1) {
        return sbx_error(e, errno, SBX_E_UNAVAILABLE,
                         "cannot go on in the cgroup \"%s\"",
                         known->parent[0]);
    }

    sbx_cgroup_note(tree, known->parent[0]);
    tree->leaf = known->leaf & 1;
    tree->parent = sbx_steal_fd(&dir);

    return 0;
}


static int
sbx_v2_place_base(sbx_tree_t *tree, int mount, const char *base,
    sbx_error_t *e)
{
    char    name[PATH_MAX], *p;
    size_t  len;

    len = strlen(base);

    if (len + 2 > sizeof(name)) {
        return sbx_error(e, 0, SBX_E_INVALID, "the cgroup's name is too long");
    }

    (void) snprintf(name, sizeof(name), "/%s", base + (base[0] == '/'));

    /* controllers must be enabled in every group from the root down */

    for (p = name; ; p = strchrnul(p + 1, '/')) {
        char         saved;
        sbx_auto_fd  dir = -1;

        saved = *p;
        *p = '\0';
        dir = sbx_cgroup_open_path(mount, name, 1);

        if (dir == -1) {
            return sbx_error(e, errno, SBX_E_UNAVAILABLE,
                             "cannot make the cgroup \"%s\"", name);
        }

        if (sbx_v2_enable(tree, dir) == -1) {
            return sbx_error(e, errno, SBX_E_UNAVAILABLE,
                             "the cgroup \"%s\" cannot enable %s for its "
                             "children", name[0] ? name : "/",
                             tree->controllers);
        }

        *p = saved;

        if (saved == '\0' || p[1] == '\0') {
            tree->parent = sbx_steal_fd(&dir);
            return 0;
        }
    }
}


static int
sbx_v2_enable(const sbx_tree_t *tree, int dir)
{
    if (tree->controllers[0] == '\0'
        || sbx_v2_has(dir, "cgroup.subtree_control", tree->controllers))
    {
        return 0;
    }

    if (!sbx_v2_has(dir, "cgroup.controllers", tree->controllers)) {
        errno = EOPNOTSUPP;
        return -1;
    }

    return sbx_write_at(dir, "cgroup.subtree_control", tree->controllers);
}


static int
sbx_v2_has(int dir, const char *file, const char *controllers)
{
    char         text[512], list[64], want[72], *item, *save;
    ssize_t      n;

    text[0] = ' ';
    n = sbx_read_at(dir, file, text + 1, sizeof(text) - 2);

    if (n == -1) {
        return 0;
    }

    n++;

    while (n > 1 && isspace((unsigned char) text[n - 1])) {
        n--;
    }

    text[n] = ' ';
    text[n + 1] = '\0';

    (void) snprintf(list, sizeof(list), "%s", controllers);

    for (item = strtok_r(list, " +", &save);
         item != NULL;
         item = strtok_r(NULL, " +", &save))
    {
        (void) snprintf(want, sizeof(want), " %s ", item);

        if (strstr(text, want) == NULL) {
            return 0;
        }
    }

    return 1;
}


/* Moves the caller and its parent, then tries again. */
static int
sbx_v2_enter_leaf(sbx_cgroup_t *cg, int own)
{
    int          rc, err;
    char         mine[1024], theirs[1024], name[SBX_CGROUP_NAME_MAX + 32];
    pid_t        parent;
    sbx_auto_fd  leaf = -1;

    (void) snprintf(name, sizeof(name), "%s/%s", cg->name,
                    SBX_CGROUP_LEAF);

    if ((mkdirat(own, cg->name, 0755) == -1 && errno != EEXIST)
        || (mkdirat(own, name, 0755) == -1 && errno != EEXIST))
    {
        return -1;
    }

    leaf = openat(own, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (leaf == -1) {
        return -1;
    }

    parent = getppid();

    if (parent > 1) {
        (void) snprintf(name, sizeof(name), "/proc/%d/cgroup", (int) parent);

        if (sbx_read_at(AT_FDCWD, name, theirs, sizeof(theirs)) > 0
            && sbx_read_at(AT_FDCWD, "/proc/self/cgroup", mine, sizeof(mine))
               > 0
            && strcmp(mine, theirs) == 0)
        {
            (void) snprintf(name, sizeof(name), "%d", (int) parent);
            (void) sbx_write_at(leaf, "cgroup.procs", name);
        }
    }

    rc = sbx_write_at(leaf, "cgroup.procs", "0");

    if (rc == 0) {
        rc = sbx_v2_enable(&cg->tree[0], own);
    }

    if (rc == 0) {
        cg->tree[0].leaf = 1;
        return 0;
    }

    err = errno;
    sbx_v2_leave_leaf(cg, own);
    errno = err;

    return -1;
}


static void
sbx_v2_leave_leaf(sbx_cgroup_t *cg, int own)
{
    char         name[SBX_CGROUP_NAME_MAX + 32], text[4096], *pid, *save;
    sbx_auto_fd  leaf = -1;

    (void) snprintf(name, sizeof(name), "%s/%s", cg->name,
                    SBX_CGROUP_LEAF);

    leaf = openat(own, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

    if (leaf != -1
        && sbx_read_at(leaf, "cgroup.procs", text, sizeof(text)) > 0)
    {
        for (pid = strtok_r(text, "\n", &save);
             pid != NULL;
             pid = strtok_r(NULL, "\n", &save))
        {
            (void) sbx_write_at(own, "cgroup.procs", pid);
        }
    }

    (void) unlinkat(own, name, AT_REMOVEDIR);
    (void) unlinkat(own, cg->name, AT_REMOVEDIR);
}


/* Undoes the move; what still has sessions in it stays as it is. */
void
sbx_cgroup_unplace(sbx_cgroup_t *cg)
{
    char         minus[64], *p;
    sbx_tree_t  *tree;

    tree = &cg->tree[0];

    if (!tree->leaf || tree->parent == -1 || tree->branch == -1) {
        return;
    }

    (void) snprintf(minus, sizeof(minus), "%s", tree->controllers);

    for (p = minus; *p != '\0'; p++) {
        if (*p == '+') {
            *p = '-';
        }
    }

    if (sbx_write_at(tree->branch, "cgroup.subtree_control", minus) == 0
        && sbx_write_at(tree->parent, "cgroup.subtree_control", minus) == 0)
    {
        sbx_v2_leave_leaf(cg, tree->parent);
    }
}
