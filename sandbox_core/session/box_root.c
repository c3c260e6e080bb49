/*
 * The file system of a run: the host's own "/" read-only, less what a
 * program must not see, and the writable directories where they are on the
 * host.
 *
 *   <base>/            a tmpfs on some directory of the old root
 *     system/          what is bound over things to be hidden, /dev and /sys
 *     root/            the new root, a tmpfs: the host's directories one by
 *                      one, so that /run, /proc, /sys and /dev of the host
 *                      are nowhere below it
 *
 * For an ordinary user this is done in a user namespace of the run's own, for
 * root before there is one; the steps are the same.  Nothing is ever made in
 * a directory of the host: where a mount point is missing, it is made only
 * in what is the run's own.  Every path is canonical, is opened without
 * following any link, and is mounted on by descriptor: whoever writes in the
 * workspace at this moment cannot lead a mount astray.
 */

#include "box_root.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>


static int sbx_view_base(sbx_build_t *b, sbx_error_t *e);
static int sbx_view_system(sbx_error_t *e);
static int sbx_view_scratch(const sbx_box_t *box, sbx_build_t *b,
    sbx_error_t *e);
static int sbx_view_place(const sbx_build_t *b, sbx_error_t *e);
static int sbx_view_dev(sbx_error_t *e);
static int sbx_view_dev_name(const char *name, const char *target,
    void *data);
static int sbx_view_sys(const sbx_build_t *b, sbx_error_t *e);
static int sbx_view_pivot(const sbx_build_t *b, sbx_error_t *e);


/* Where the base may be mounted; nothing of it is needed from then on. */
static const char  *sbx_view_bases[] = {
    "/tmp", "/var/tmp", "/mnt", "/srv", "/opt", "/proc"
};

static const struct {
    const char  *name;
    mode_t       mode;
} sbx_view_scratch_dirs[] = {
    { "tmp",    01777 },
    { "vartmp", 01777 },
    { "shm",    01777 },
    { "run",     0755 }
};


int
sbx_box_root(sbx_box_t *box, int proc, sbx_error_t *e)
{
    size_t              i;
    static sbx_build_t  b;            /* large, and used once */

    b.root = -1;
    b.root_mount = -1;
    b.system = -1;
    b.scratch = -1;
    b.nobody = box->nobody;
    b.host = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);

    if (b.host == -1) {
        return sbx_error(e, errno, SBX_E_INTERNAL, "cannot open \"/\"");
    }

    if (sbx_view_trees(box, &b, e) == -1
        || sbx_view_tops(&b, e) == -1
        || sbx_view_base(&b, e) == -1
        || sbx_view_scratch(box, &b, e) == -1
        || sbx_view_place(&b, e) == -1
        || sbx_view_parts(&b, e) == -1
        || sbx_view_dev(e) == -1
        || sbx_view_sys(&b, e) == -1
        || sbx_view_seal(b.system, e) == -1
        || sbx_inside_proc(proc, e) == -1)
    {
        return -1;
    }

    for (i = 0; i < box->spots.nelts; i++) {
        if (sbx_view_spot(box, &b, i, e) == -1) {
            return -1;
        }
    }

    for (i = 0; i < box->ndenies; i++) {
        if (sbx_view_deny(box, &b, &box->denies[i], e) == -1) {
            return -1;
        }
    }

    for (i = 0; i < box->spots.nelts; i++) {
        if (box->spots.elts[i].cover != -1
            && sbx_view_seal(box->spots.elts[i].cover, e) == -1)
        {
            return -1;
        }
    }

    return sbx_view_pivot(&b, e);
}


int
sbx_view_open(int dirfd, const char *path)
{
    return sbx_sys_open_inside(dirfd, path[1] == '\0' ? "." : path + 1,
                               O_PATH);
}


/* Leaves the working directory in the new root. */
static int
sbx_view_base(sbx_build_t *b, sbx_error_t *e)
{
    size_t       i;
    sbx_auto_fd  base = -1;

    base = sbx_sys_tmpfs("0755", "1m", SBX_MOUNT_NOSUID);

    for (i = 0; base != -1 && i < sbx_nelts(sbx_view_bases); i++) {
        if (sbx_sys_move_mount(base, AT_FDCWD, sbx_view_bases[i]) == 0) {
            break;
        }
    }

    if (base == -1 || i == sbx_nelts(sbx_view_bases)
        || fchdir(base) == -1
        || mkdir("root", 0755) == -1
        || mkdir("system", 0755) == -1
        || mkdir("scratch", 0755) == -1)
    {
        return sbx_error(e, errno, SBX_E_INTERNAL, "cannot mount a tmpfs");
    }

    b->root_mount = sbx_sys_tmpfs("0755", "1m",
                                  SBX_MOUNT_NOSUID | SBX_MOUNT_NODEV);
    b->system = sbx_sys_tmpfs("0755", "1m",
                              SBX_MOUNT_NOSUID | SBX_MOUNT_NOEXEC);

    if (b->root_mount == -1 || b->system == -1
        || sbx_sys_move_mount(b->system, AT_FDCWD, "system") == -1
        || sbx_sys_move_mount(b->root_mount, AT_FDCWD, "root") == -1
        || chdir("root") == -1)
    {
        return sbx_error(e, errno, SBX_E_INTERNAL, "cannot mount a tmpfs");
    }

    b->root = open(".", O_PATH | O_DIRECTORY | O_CLOEXEC);

    if (b->root == -1) {
        return sbx_error(e, errno, SBX_E_INTERNAL, "cannot open a tmpfs");
    }

    return sbx_view_system(e);
}


int
sbx_view_seal(int mount, sbx_error_t *e)
{
    if (sbx_sys_mount_seal(mount) == -1) {
        return sbx_error(e, errno, SBX_E_INTERNAL,
                         "cannot make a tmpfs read-only");
    }

    return 0;
}


static int
sbx_view_file(const char *name, mode_t mode)
{
    sbx_auto_fd  fd = -1;

    fd = open(name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, mode);

    return fd == -1 ? -1 : 0;
}


static int
sbx_view_system(sbx_error_t *e)
{
    size_t  i;

    static const struct {
        const char  *name;
        mode_t       mode;
    } dirs[] = {
        { "../system/nothing",            0555 },
        { "../system/closed",             0000 },
        { "../system/dev",                0755 },
        { "../system/dev/pts",            0755 },
        { "../system/dev/shm",            0755 },
        { "../system/sys",                0755 },
        { "../system/sys/devices",        0755 },
        { "../system/sys/devices/system", 0755 },
        { "../system/sys/devices/system/cpu", 0755 }
    };

    for (i = 0; i < sbx_nelts(dirs); i++) {
        if (mkdir(dirs[i].name, dirs[i].mode) == -1) {
            goto failed;
        }
    }

    if (sbx_view_file("../system/empty", 0444) == 0
        && sbx_view_file("../system/hidden", 0000) == 0)
    {
        return 0;
    }

failed:

    return sbx_error(e, errno, SBX_E_INTERNAL, "cannot fill a tmpfs");
}


/* One tmpfs for all that is the run's own, so that it has one size. */
static int
sbx_view_scratch(const sbx_box_t *box, sbx_build_t *b, sbx_error_t *e)
{
    char    size[32];
    size_t  i;

    (void) snprintf(size, sizeof(size), "%" PRIu64,
                    box->request.limits.memory);

    b->scratch = sbx_sys_tmpfs("0755",
                               box->request.limits.memory < SBX_UNLIMITED
                               ? size : NULL,
                               SBX_MOUNT_NOSUID | SBX_MOUNT_NODEV);

    /* mounted, since older kernels copy nothing out of a detached mount */

    if (b->scratch != -1
        && sbx_sys_move_mount(b->scratch, AT_FDCWD, "../scratch") == -1)
    {
        return sbx_error(e, errno, SBX_E_INTERNAL,
                         "cannot make a private /tmp");
    }

    for (i = 0; b->scratch != -1 && i < sbx_nelts(sbx_view_scratch_dirs);
         i++)
    {
        if (mkdirat(b->scratch, sbx_view_scratch_dirs[i].name, 0755) == -1
            || fchownat(b->scratch, sbx_view_scratch_dirs[i].name, box->uid,
                        box->gid, AT_SYMLINK_NOFOLLOW)
               == -1
            || fchmodat(b->scratch, sbx_view_scratch_dirs[i].name,
                        sbx_view_scratch_dirs[i].mode, 0)
               == -1)
        {
            break;
        }
    }

    if (b->scratch == -1 || i != sbx_nelts(sbx_view_scratch_dirs)) {
        return sbx_error(e, errno, SBX_E_INTERNAL,
                         "cannot make a private /tmp");
    }

    return 0;
}


static int
sbx_view_place(const sbx_build_t *b, sbx_error_t *e)
{
    size_t            i;
    const sbx_top_t  *top;

    static const char  *own[] = { "proc", "sys", "dev", "run", "tmp" };

    for (i = 0; i < b->ntops; i++) {
        top = &b->tops[i];

        if (top->link != NULL) {
            if (symlinkat(top->link, b->root, top->name) == -1) {
                goto failed;
            }

            continue;
        }

        if (mkdirat(b->root, top->name, 0755) == -1
            || sbx_sys_move_mount(top->tree, b->root, top->name) == -1)
        {
            goto failed;
        }
    }

    for (i = 0; i < sbx_nelts(own); i++) {
        if (mkdirat(b->root, own[i], 0755) == -1) {
            goto failed;
        }
    }

    return 0;

failed:

    return sbx_error(e, errno, SBX_E_INTERNAL,
                     "cannot build the root directory");
}


/* Nodes are the host's own, bound: an ordinary user can make none. */
static int
sbx_view_dev(sbx_error_t *e)
{
    if (sbx_inside_dev_names(sbx_view_dev_name, NULL) == -1) {
        return sbx_error(e, errno, SBX_E_INTERNAL, "cannot fill /dev");
    }

    return sbx_inside_dev(NULL, e);
}


static int
sbx_view_dev_name(const char *name, const char *target, void *data)
{
    char         host[64], own[64];
    sbx_auto_fd  tree = -1;

    (void) data;
    (void) snprintf(host, sizeof(host), "/%s", name);
    (void) snprintf(own, sizeof(own), "../system/%s", name);

    if (target != NULL) {
        return symlink(target, own);
    }

    tree = sbx_sys_clone_tree(AT_FDCWD, host, 0);

    if (tree == -1) {
        return errno == ENOENT ? 0 : -1;
    }

    if (sbx_view_file(own, 0444) == -1) {
        return -1;
    }

    return sbx_sys_move_mount(tree, AT_FDCWD, own);
}


/* Of /sys the processors alone, as they are. */
static int
sbx_view_sys(const sbx_build_t *b, sbx_error_t *e)
{
    sbx_auto_fd  sys = -1, cpu = -1;

    cpu = sbx_sys_clone_tree(b->host, "sys/devices/system/cpu", 1);

    if (cpu != -1
        && (sbx_sys_mount_attr(cpu, SBX_MASK, -1) == -1
            || sbx_sys_move_mount(cpu, AT_FDCWD,
                                  "../system/sys/devices/system/cpu")
               == -1))
    {
        return sbx_error(e, errno, SBX_E_INTERNAL, "cannot mount /sys");
    }

    sys = sbx_sys_clone_tree(AT_FDCWD, "../system/sys", 1);

    if (sys == -1
        || sbx_sys_mount_attr(sys, SBX_MASK, -1) == -1
        || sbx_sys_move_mount(sys, AT_FDCWD, "sys") == -1)
    {
        return sbx_error(e, errno, SBX_E_INTERNAL, "cannot mount /sys");
    }

    return 0;
}


static int
sbx_view_pivot(const sbx_build_t *b, sbx_error_t *e)
{
    if (sbx_sys_mount_seal(b->root_mount) == -1
        || sbx_sys_pivot_root(".", ".") == -1
        || umount2(".", MNT_DETACH) == -1
        || chdir("/") == -1)
    {
        return sbx_error(e, errno, SBX_E_INTERNAL,
                         "cannot change the root directory");
    }

    return 0;
}
