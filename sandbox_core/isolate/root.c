/*
 * A session's root, built by the child in its fresh mount namespace, as real
 * root, before any code of the session runs:
 *
 *   the session's directory <- a volume with the session's disk and inode
 *                              limits (storage.h), holding
 *       upper, work            of the overlay
 *       tmp, vartmp            bound over /tmp and /var/tmp, so that one
 *                              limit covers all that can be written
 *       memory                 with run and shm, bound over /run and
 *                              /dev/shm; a small tmpfs where the volume is
 *                              not in memory itself
 *       lower                  <- the read-only tree below (shared, prepared
 *                                 once; or a template's)
 *       host, none             <- layers below /usr: the host's, and nothing;
 *                                 packages and drivers likewise
 *       system                 <- a second small tmpfs: what /dev, /sys and
 *                                 parts of /proc are made of
 *       masks, own             <- of file rules, see rules.c
 *       root                   <- the overlay; becomes "/"
 *
 * The overlay is mounted with relative names, since mountinfo shows them to
 * the session.  The parent is sent a descriptor of the volume, to ask it for
 * its use; the old tree is detached whole after pivot_root.
 */

#include "isolate_private.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>


#define SBX_USER            1000u
#define SBX_ROOT_MEMORY     "memory"


/* Owners are the session's own ids; parents come first. */
typedef struct {
    const char  *name;
    unsigned     owner;
    mode_t       mode;
} sbx_dir_t;

static const sbx_dir_t  sbx_root_dirs[] = {
    { "upper",                0,        0755 },
    { "upper/app",            SBX_USER, 0755 },
    { "upper/data",           SBX_USER, 0755 },
    { "upper/etc",            0,        0755 },
    { "upper/home",           0,        0755 },
    { "upper/home/user",      SBX_USER, 0755 },
    { "upper/media",          0,        0755 },
    { "upper/mnt",            0,        0755 },
    { "upper/opt",            0,        0755 },
    { "upper/root",           0,        0700 },
    { "upper/srv",            SBX_USER, 0755 },
    { "upper/var",            0,        0755 },
    { "upper/var/cache",      0,        0755 },
    { "upper/var/lib",        0,        0755 },
    { "upper/var/log",        0,        0755 },
    { "upper/workspace",      SBX_USER, 0755 },
    { "tmp",                  0,        01777 },
    { "vartmp",               0,        01777 }
};

static const sbx_dir_t  sbx_root_memory_dirs[] = {
    { "run",                  0,        0755 },
    { "run/lock",             0,        01777 },
    { "run/user",             0,        0755 },
    { "run/user/1000",        SBX_USER, 0700 },
    { "shm",                  0,        01777 }
};

/* Where the interpreters' drivers are shown. */
static const sbx_dir_t  sbx_root_kernel_dirs[] = {
    { "run/sandbox",          0,        0755 }
};

/* Nobody's in the session. */
static const char  *sbx_root_plain[] = {
    "work", "lower", "root", "system", "host", "none", "masks", "own",
    SBX_ROOT_MEMORY
};

/* A template may lack these or have links of these names, which a directory
 * in the upper layer hides; the built-in one has them in its lower layer. */
static const char  *sbx_root_points[] = {
    "upper/dev", "upper/proc", "upper/run", "upper/sys", "upper/tmp",
    "upper/var/tmp"
};

/* What is the host's in the built-in template. */
static const char  *sbx_root_host[] = {
    "usr", "bin", "sbin", "lib", "lib32", "lib64", "libx32"
};

static const struct {
    const char  *from;
    const char  *to;
} sbx_root_binds[] = {
    { "../tmp",    "tmp" },
    { "../vartmp", "var/tmp" },
    { "../" SBX_ROOT_MEMORY "/shm", "dev/shm" },
    { "../" SBX_ROOT_MEMORY "/run", "run" }
};


static int sbx_root_populate(const sbx_plan_t *plan, sbx_error_t *e);
static int sbx_root_make(const sbx_plan_t *plan, int top,
    const sbx_dir_t *dirs, size_t n, sbx_error_t *e);
static int sbx_root_memory(const sbx_plan_t *plan, sbx_error_t *e);
static int sbx_root_overlay(const sbx_plan_t *plan, sbx_error_t *e);
static int sbx_root_show_host(sbx_error_t *e);
static int sbx_root_show_mounts(const char *dir, sbx_error_t *e);
static int sbx_root_bind_tree(const char *path, const char *to);
static void sbx_root_unescape(char *path);
static int sbx_root_show_kernels(const sbx_plan_t *plan, sbx_error_t *e);
static int sbx_root_enter(sbx_error_t *e);


int
sbx_root_volume(sbx_plan_t *plan, sbx_error_t *e)
{
    sbx_volume_t  volume;

    volume.id = plan->launch->id;
    volume.session_dir = plan->launch->session_dir;
    volume.uid_first = plan->launch->uid_first;
    volume.limits = plan->launch->limits;
    volume.bytes = sbx_etc_disk(plan);
    volume.files = sbx_etc_inodes();
    volume.directories = sbx_nelts(sbx_root_dirs)
                         + sbx_nelts(sbx_root_plain) + plan->nbinds;
    volume.in_memory = sbx_nelts(sbx_root_memory_dirs);

    if (plan->launch->kernels != NULL) {
        volume.in_memory += sbx_nelts(sbx_root_kernel_dirs);
    }

    if (plan->template_fd != -1) {
        volume.directories += sbx_nelts(sbx_root_points);
    }

    sbx_packages_volume(plan, &volume);

    return sbx_storage_volume(plan->launch->storage, &volume,
                              &plan->root_fd, &plan->memory_fd, e);
}


int
sbx_root_build(const sbx_plan_t *plan, int proc, sbx_error_t *e)
{
    size_t  i;

    /* nothing that is mounted from here on reaches the host, nor back */

    if (mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) == -1) {
        return sbx_error(e, errno, SBX_E_INTERNAL,
                         "cannot make the mounts private");
    }

    if (sbx_root_populate(plan, e) == -1 || sbx_root_overlay(plan, e) == -1) {
        return -1;
    }

    if (plan->template_fd == -1 && sbx_root_show_host(e) == -1) {
        return -1;
    }

    if (sbx_inside_mount(plan, proc, e) == -1) {
        return -1;
    }

    for (i = 0; i < sbx_nelts(sbx_root_binds); i++) {
        if (mount(sbx_root_binds[i].from, sbx_root_binds[i].to, NULL, MS_BIND,
                  NULL)
            == -1)
        {
            return sbx_error(e, errno, SBX_E_INTERNAL,
                             "cannot mount the session's /%s",
                             sbx_root_binds[i].to);
        }
    }

    if (sbx_root_show_kernels(plan, e) == -1
        || sbx_packages_mount(plan, e) == -1
        || sbx_rules_apply(plan, e) == -1)
    {
        return -1;
    }

    return sbx_root_enter(e);
}


static int
sbx_root_populate(const sbx_plan_t *plan, sbx_error_t *e)
{
    int          top;
    size_t       i, points;
    sbx_auto_fd  upper = -1;

    top = plan->root_fd;

    for (i = 0; i < sbx_nelts(sbx_root_plain); i++) {
        if (mkdirat(top, sbx_root_plain[i], 0755) == -1) {
            return sbx_error(e, errno, SBX_E_INTERNAL, "cannot make \"%s\"",
                             sbx_root_plain[i]);
        }
    }

    if (sbx_root_make(plan, top, sbx_root_dirs, sbx_nelts(sbx_root_dirs), e)
        == -1
        || sbx_root_memory(plan, e) == -1)
    {
        return -1;
    }

    points = (plan->template_fd == -1) ? 0 : sbx_nelts(sbx_root_points);

    for (i = 0; i < points; i++) {
        if (mkdirat(top, sbx_root_points[i], 0755) == -1) {
            return sbx_error(e, errno, SBX_E_INTERNAL, "cannot make \"%s\"",
                             sbx_root_points[i]);
        }
    }

    if (sbx_rules_points(plan, e) == -1) {
        return -1;
    }

    upper = openat(top, "upper", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (upper == -1) {
        return sbx_error(e, errno, SBX_E_INTERNAL, "cannot open \"upper\"");
    }

    return sbx_etc_write(plan, upper, e) == -1
           ? -1 : sbx_packages_write(plan, upper, e);
}


static int
sbx_root_make(const sbx_plan_t *plan, int top, const sbx_dir_t *dirs,
    size_t n, sbx_error_t *e)
{
    size_t            i;
    uid_t             id;
    const sbx_dir_t  *dir;

    for (i = 0; i < n; i++) {
        dir = &dirs[i];
        id = (uid_t) (plan->launch->uid_first + dir->owner);

        if (mkdirat(top, dir->name, dir->mode) == -1
            || fchownat(top, dir->name, id, id, AT_SYMLINK_NOFOLLOW) == -1)
        {
            return sbx_error(e, errno, SBX_E_INTERNAL, "cannot make \"%s\"",
                             dir->name);
        }
    }

    return 0;
}


/* What is in memory with any kind of storage. */
static int
sbx_root_memory(const sbx_plan_t *plan, sbx_error_t *e)
{
    sbx_auto_fd  top = -1;

    if (plan->memory_fd == -1) {
        top = openat(plan->root_fd, SBX_ROOT_MEMORY,
                     O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    } else {
        top = fcntl(plan->memory_fd, F_DUPFD_CLOEXEC, 0);
    }

    if (top == -1) {
        return sbx_error(e, errno, SBX_E_INTERNAL,
                         "cannot open \"" SBX_ROOT_MEMORY "\"");
    }

    if (sbx_root_make(plan, top, sbx_root_memory_dirs,
                      sbx_nelts(sbx_root_memory_dirs), e)
        == -1)
    {
        return -1;
    }

    if (plan->launch->kernels == NULL) {
        return 0;
    }

    return sbx_root_make(plan, top, sbx_root_kernel_dirs,
                         sbx_nelts(sbx_root_kernel_dirs), e);
}


static int
sbx_root_overlay(const sbx_plan_t *plan, sbx_error_t *e)
{
    char         base[PATH_MAX];
    sbx_auto_fd  lower = -1;

    if (sbx_sys_move_mount(plan->root_fd, AT_FDCWD, plan->launch->session_dir)
        == -1
        || chdir(plan->launch->session_dir) == -1
        || (plan->memory_fd != -1
            && sbx_sys_move_mount(plan->memory_fd, AT_FDCWD, SBX_ROOT_MEMORY)
               == -1))
    {
        return sbx_error(e, errno, SBX_E_INTERNAL,
                         "cannot mount the session's volume");
    }

    if (plan->template_fd != -1) {
        lower = fcntl(plan->template_fd, F_DUPFD_CLOEXEC, 0);

    } else {
        (void) snprintf(base, sizeof(base), "%s/base",
                        plan->launch->state_dir);
        lower = sbx_sys_clone_tree(AT_FDCWD, base, 0);
    }

    if (lower == -1
        || sbx_sys_mount_attr(lower, SBX_MOUNT_RDONLY | SBX_MOUNT_NOSUID
                                     | SBX_MOUNT_NODEV, -1)
           == -1
        || sbx_sys_move_mount(lower, AT_FDCWD, "lower") == -1)
    {
        return sbx_error(e, errno, SBX_E_INTERNAL,
                         "cannot mount the template's tree");
    }

    if (mount("sandbox", "root", "overlay", MS_NOSUID | MS_NODEV,
              "lowerdir=lower,upperdir=upper,workdir=work,index=off,"
              "metacopy=off")
        == -1
        || chdir("root") == -1)
    {
        return sbx_error(e, errno, SBX_E_INTERNAL,
                         "cannot mount the session's overlay");
    }

    return 0;
}


/*
 * The host's programs and libraries, read-only with all that is mounted
 * below.  Never idmapped: mapped, files that are for the host's root alone
 * would be the session's root's.  On a host with merged /usr the other names
 * are links, which the lower layer has.
 *
 * Each is an overlay of the session's own: through a bind mount inotify and
 * locks of the host's inodes would tell what others open there.
 */
static int
sbx_root_show_host(sbx_error_t *e)
{
    char         path[32];
    size_t       i;
    struct stat  st;

    for (i = 0; i < sbx_nelts(sbx_root_host); i++) {
        (void) snprintf(path, sizeof(path), "/%s", sbx_root_host[i]);

        if (lstat(path, &st) == -1 || !S_ISDIR(st.st_mode)) {
            continue;
        }

        if (sbx_root_show_tree(path, sbx_root_host[i]) == -1) {
            return sbx_error(e, errno, SBX_E_INTERNAL,
                             "cannot show the host's %s", path);
        }

        if (sbx_root_show_mounts(path, e) == -1) {
            return -1;
        }
    }

    return 0;
}


int
sbx_root_show_tree(const char *path, const char *name)
{
    if (sbx_root_bind_tree(path, "../host") == -1) {
        return -1;
    }

    return mount("sandbox", name, "overlay",
                 MS_RDONLY | MS_NOSUID | MS_NODEV,
                 "lowerdir=../host:../none,index=off,metacopy=off");
}


static int
sbx_root_bind_tree(const char *path, const char *to)
{
    sbx_auto_fd  tree = -1;

    tree = sbx_sys_clone_tree(AT_FDCWD, path, 0);

    if (tree == -1
        || sbx_sys_mount_attr(tree, SBX_MOUNT_RDONLY | SBX_MOUNT_NOSUID
                                    | SBX_MOUNT_NODEV, -1)
           == -1
        || sbx_sys_move_mount(tree, AT_FDCWD, to) == -1)
    {
        return -1;
    }

    return 0;
}


/* An overlay shows nothing that is mounted below its layers: such file
 * systems come on top, in the order of the mount table. */
static int
sbx_root_show_mounts(const char *dir, sbx_error_t *e)
{
    int      field;
    char    *line, *path, *end;
    FILE    *table;
    size_t   size, len;

    table = fopen("/proc/self/mountinfo", "re");
    if (table == NULL) {
        return sbx_error(e, errno, SBX_E_INTERNAL,
                         "cannot read the mount table");
    }

    line = NULL;
    size = 0;
    len = strlen(dir);

    while (getline(&line, &size, table) != -1) {
        path = line;

        for (field = 0; field < 4 && path != NULL; field++) {
            path = strchr(path + (field != 0), ' ');
        }

        end = (path == NULL) ? NULL : strchr(path + 1, ' ');

        if (end == NULL) {
            continue;
        }

        path++;
        *end = '\0';
        sbx_root_unescape(path);

        if (strncmp(path, dir, len) == 0 && path[len] == '/'
            && sbx_root_bind_tree(path, path + 1) == -1)
        {
            (void) sbx_error(e, errno, SBX_E_INTERNAL,
                             "cannot show the host's %.180s", path);
            free(line);
            (void) fclose(table);

            return -1;
        }
    }

    free(line);
    (void) fclose(table);

    return 0;
}


/* The mount table has white space and backslashes as three octal digits. */
static void
sbx_root_unescape(char *path)
{
    char  *to;

    for (to = path; *path != '\0'; to++) {
        if (path[0] == '\\' && path[1] >= '0' && path[1] <= '3'
            && path[2] >= '0' && path[2] <= '7'
            && path[3] >= '0' && path[3] <= '7')
        {
            *to = (char) ((path[1] - '0') * 64 + (path[2] - '0') * 8
                          + (path[3] - '0'));
            path += 4;
            continue;
        }

        *to = *path++;
    }

    *to = '\0';
}


/*
 * Both the directory and the one that it lies in are mounts: a directory that
 * only leads to a mount could be renamed by the session's root, and another
 * one put in its place.  As with /usr it is an overlay: a bind mount would
 * tell where the directory lies on the host.
 */
static int
sbx_root_show_kernels(const sbx_plan_t *plan, sbx_error_t *e)
{
    if (plan->launch->kernels == NULL) {
        return 0;
    }

    if (mount("../system/sandbox", "run/sandbox", NULL, MS_BIND, NULL) == -1
        || sbx_root_show_tree(plan->launch->kernels, "run/sandbox/kernels")
           == -1)
    {
        return sbx_error(e, errno, SBX_E_INTERNAL,
                         "cannot show the interpreters' drivers of %.180s",
                         plan->launch->kernels);
    }

    return 0;
}


static int
sbx_root_enter(sbx_error_t *e)
{
    /* both names the same: the old root ends up on top of the new one, and
       a lazy unmount takes it and all below it away */

    if (sbx_sys_pivot_root(".", ".") == -1
        || umount2(".", MNT_DETACH) == -1
        || chdir("/") == -1)
    {
        return sbx_error(e, errno, SBX_E_INTERNAL,
                         "cannot enter the session's root");
    }

    return 0;
}
