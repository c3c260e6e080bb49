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

#include "box.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>


#define SBX_TOPS_MAX     128
#define SBX_HOST         (SBX_MOUNT_RDONLY | SBX_MOUNT_NOSUID                \
                          | SBX_MOUNT_NODEV)
#define SBX_MASK         (SBX_HOST | SBX_MOUNT_NOEXEC)


/* A name in the host's "/". */
typedef struct {
    char   name[NAME_MAX + 1];
    char  *link;
    int    tree;
    int    parts;                 /* without what is mounted below it */
} sbx_top_t;

typedef struct {
    sbx_top_t   tops[SBX_TOPS_MAX];
    unsigned    ntops;
    int         host;                 /* the old "/" */
    int         root;                 /* the new one */
    int         root_mount;
    int         system;
    int         scratch;
    int         nobody;
    char      **parts;
    size_t      nparts;
} sbx_build_t;


static int sbx_view_trees(sbx_box_t *box, const sbx_build_t *b,
    sbx_error_t *e);
static int sbx_view_tops(sbx_build_t *b, sbx_error_t *e);
static int sbx_view_top(sbx_build_t *b, const char *name, sbx_error_t *e);
static int sbx_view_alone(const sbx_build_t *b, const char *path);
static int sbx_view_parts(sbx_build_t *b, sbx_error_t *e);
static int sbx_view_base(sbx_build_t *b, sbx_error_t *e);
static int sbx_view_system(sbx_error_t *e);
static int sbx_view_seal(int mount, sbx_error_t *e);
static int sbx_view_scratch(const sbx_box_t *box, sbx_build_t *b,
    sbx_error_t *e);
static int sbx_view_place(const sbx_build_t *b, sbx_error_t *e);
static int sbx_view_dev(sbx_error_t *e);
static int sbx_view_dev_name(const char *name, const char *target,
    void *data);
static int sbx_view_sys(const sbx_build_t *b, sbx_error_t *e);
static int sbx_view_op(sbx_box_t *box, const sbx_build_t *b, size_t n,
    sbx_error_t *e);
static int sbx_view_op_tree(const sbx_build_t *b, sbx_spot_t *op);
static int sbx_view_mkdir(const sbx_box_t *box, const sbx_build_t *b,
    const char *path);
static int sbx_view_ours(const sbx_box_t *box, const char *path);
static int sbx_view_deny(const sbx_box_t *box, const sbx_build_t *b,
    const sbx_deny_t *deny, sbx_error_t *e);
static int sbx_view_pin(const sbx_build_t *b, const char *from,
    const char *path);
static int sbx_view_pivot(const sbx_build_t *b, sbx_error_t *e);


/* Where the base may be mounted; nothing of it is needed from then on. */
static const char  *sbx_view_bases[] = {
    "/tmp", "/var/tmp", "/mnt", "/srv", "/opt", "/proc"
};

/* Of the run's own, or not there at all. */
static const char  *sbx_view_left_out[] = {
    "proc", "sys", "dev", "run", "tmp", "lost+found"
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

    for (i = 0; i < box->ops.nops; i++) {
        if (sbx_view_op(box, &b, i, e) == -1) {
            return -1;
        }
    }

    for (i = 0; i < box->ndenies; i++) {
        if (sbx_view_deny(box, &b, &box->denies[i], e) == -1) {
            return -1;
        }
    }

    for (i = 0; i < box->ops.nops; i++) {
        if (box->ops.ops[i].cover != -1
            && sbx_view_seal(box->ops.ops[i].cover, e) == -1)
        {
            return -1;
        }
    }

    return sbx_view_pivot(&b, e);
}


static int
sbx_view_tmpfs(const char *mode, const char *size, unsigned attr)
{
    sbx_auto_fd  fs = -1;

    fs = sbx_sys_fsopen("tmpfs");

    if (fs == -1
        || sbx_sys_fsconfig(fs, SBX_FSCONFIG_STRING, "source", "sandbox")
           == -1
        || sbx_sys_fsconfig(fs, SBX_FSCONFIG_STRING, "mode", mode) == -1
        || (size != NULL
            && sbx_sys_fsconfig(fs, SBX_FSCONFIG_STRING, "size", size) == -1))
    {
        return -1;
    }

    return sbx_sys_fsmount(fs, attr);
}


/* Of a canonical path, without following anything. */
static int
sbx_view_open(int dirfd, const char *path)
{
    return sbx_sys_open_inside(dirfd, path[1] == '\0' ? "." : path + 1,
                               O_PATH);
}


/* Writable directories as detached trees; root's are there already. */
static int
sbx_view_trees(sbx_box_t *box, const sbx_build_t *b, sbx_error_t *e)
{
    size_t       i;
    sbx_spot_t    *op;
    struct stat  st;

    for (i = 0; i < box->ops.nops; i++) {
        sbx_auto_fd  fd = -1;

        op = &box->ops.ops[i];

        if (op->kind != SBX_SPOT_WRITABLE || op->tree != -1) {
            continue;
        }

        fd = sbx_view_open(b->host, op->path);

        if (fd == -1 || fstat(fd, &st) == -1 || st.st_dev != op->dev
            || st.st_ino != op->ino)
        {
            return sbx_error(e, fd == -1 ? errno : 0, SBX_E_INVALID,
                             "the directory \"%.180s\" has changed",
                             op->path);
        }

        op->tree = sbx_sys_clone_tree(fd, "", 1);

        if (op->tree == -1
            || sbx_sys_mount_attr(op->tree,
                                  SBX_MOUNT_NOSUID | SBX_MOUNT_NODEV, -1)
               == -1)
        {
            return sbx_error(e, errno, SBX_E_INTERNAL,
                             "cannot bind \"%.180s\"", op->path);
        }
    }

    return 0;
}


static int
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
static int
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


/* Leaves the working directory in the new root. */
static int
sbx_view_base(sbx_build_t *b, sbx_error_t *e)
{
    size_t       i;
    sbx_auto_fd  base = -1;

    base = sbx_view_tmpfs("0755", "1m", SBX_MOUNT_NOSUID);

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

    b->root_mount = sbx_view_tmpfs("0755", "1m",
                                   SBX_MOUNT_NOSUID | SBX_MOUNT_NODEV);
    b->system = sbx_view_tmpfs("0755", "1m",
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


/* What is bound from it later is read-only as well. */
static int
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

    b->scratch = sbx_view_tmpfs("0755",
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
    sbx_auto_fd  dev = -1, fs = -1, pts = -1;

    if (sbx_inside_dev_names(sbx_view_dev_name, NULL) == -1) {
        return sbx_error(e, errno, SBX_E_INTERNAL, "cannot fill /dev");
    }

    dev = sbx_sys_clone_tree(AT_FDCWD, "../system/dev", 1);

    if (dev == -1
        || sbx_sys_mount_attr(dev, SBX_MOUNT_RDONLY | SBX_MOUNT_NOSUID
                                   | SBX_MOUNT_NOEXEC, -1)
           == -1
        || sbx_sys_move_mount(dev, AT_FDCWD, "dev") == -1)
    {
        return sbx_error(e, errno, SBX_E_INTERNAL, "cannot mount /dev");
    }

    fs = sbx_sys_fsopen("devpts");

    if (fs == -1
        || sbx_sys_fsconfig(fs, SBX_FSCONFIG_STRING, "source", "devpts")
           == -1
        || sbx_sys_fsconfig(fs, SBX_FSCONFIG_STRING, "ptmxmode", "0666") == -1
        || sbx_sys_fsconfig(fs, SBX_FSCONFIG_STRING, "mode", "0620") == -1
        || sbx_sys_fsconfig(fs, SBX_FSCONFIG_STRING, "max", "64") == -1)
    {
        return sbx_error(e, errno, SBX_E_INTERNAL, "cannot make a devpts");
    }

    pts = sbx_sys_fsmount(fs, SBX_MOUNT_NOSUID | SBX_MOUNT_NOEXEC);

    if (pts == -1 || sbx_sys_move_mount(pts, AT_FDCWD, "dev/pts") == -1) {
        return sbx_error(e, errno, SBX_E_INTERNAL, "cannot mount /dev/pts");
    }

    return 0;
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
sbx_view_op(sbx_box_t *box, const sbx_build_t *b, size_t n, sbx_error_t *e)
{
    sbx_spot_t    *op;
    sbx_auto_fd  target = -1;

    op = &box->ops.ops[n];
    target = sbx_view_open(b->root, op->path);

    if (target == -1 && errno == ENOENT
        && (op->kind == SBX_SPOT_WRITABLE || op->kind == SBX_SPOT_SCRATCH)
        && sbx_view_mkdir(box, b, op->path) == 0)
    {
        target = sbx_view_open(b->root, op->path);
    }

    if (target == -1) {
        /* what cannot be reached need not be hidden: the command has no
           more rights than this process */

        if (op->kind != SBX_SPOT_WRITABLE
            && (errno == ENOENT || errno == ENOTDIR || errno == EACCES))
        {
            return 0;
        }

        return sbx_error(e, errno, SBX_E_INVALID,
                         "\"%.180s\" cannot be reached", op->path);
    }

    if (sbx_view_op_tree(b, op) == -1
        || sbx_sys_move_mount_onto(op->tree, target) == -1)
    {
        return sbx_error(e, errno, SBX_E_INTERNAL, "cannot mount \"%.180s\"",
                         op->path);
    }

    if (op->cover == -1) {
        (void) close(op->tree);
        op->tree = -1;
    }

    return 0;
}


static int
sbx_view_op_tree(const sbx_build_t *b, sbx_spot_t *op)
{
    switch (op->kind) {

    case SBX_SPOT_WRITABLE:
        return 0;

    case SBX_SPOT_SCRATCH:
        op->tree = sbx_sys_clone_tree(b->scratch, op->source, 0);
        return op->tree == -1 ? -1 : 0;

    case SBX_SPOT_COVER:
    case SBX_SPOT_HIDE:
        break;
    }

    if (op->is_dir && (op->below || op->kind == SBX_SPOT_COVER)) {
        /* searched, but not listed, and closed off when all is in it */

        op->tree = sbx_view_tmpfs("0711", "1m", SBX_MOUNT_NOSUID
                                                | SBX_MOUNT_NODEV
                                                | SBX_MOUNT_NOEXEC);
        op->cover = op->tree;

        return op->tree == -1 ? -1 : 0;
    }

    op->tree = sbx_sys_clone_tree(AT_FDCWD, op->is_dir ? "../system/closed"
                                                       : "../system/hidden",
                                  0);

    return op->tree == -1 ? -1 : sbx_sys_mount_attr(op->tree, SBX_MASK, -1);
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
    size_t           i, nearest;
    const sbx_spot_t  *op;

    if (strchr(path + 1, '/') == NULL) {
        return 1;
    }

    nearest = SIZE_MAX;

    for (i = 0; i < box->ops.nops; i++) {
        op = &box->ops.ops[i];

        if (strcmp(op->path, path) != 0 && sbx_path_within(path, op->path)) {
            nearest = i;
        }
    }

    if (nearest == SIZE_MAX) {
        return 0;
    }

    op = &box->ops.ops[nearest];

    return op->kind == SBX_SPOT_SCRATCH || op->cover != -1;
}


static int
sbx_view_deny(const sbx_box_t *box, const sbx_build_t *b,
    const sbx_deny_t *deny, sbx_error_t *e)
{
    sbx_auto_fd  target = -1, tree = -1;

    if (deny->writable != -1
        && sbx_view_pin(b, box->ops.ops[deny->writable].path, deny->path)
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
