/*
 * A session's disk as a sparse ext4 image on a loop device: a hard limit on
 * any file system.
 *
 * An image of a size is formatted once and kept; each session gets a copy
 * of its few blocks that are not holes.  The copy never has a name, and the
 * loop device lets go of it by itself: a session that ends, or a broker that
 * is killed at any point, leaves neither file nor device.  What is mounted
 * was written by mkfs and by the kernel, never raw by a session.
 *
 * Direct IO, where the host's file system can: a page is cached once, and
 * the loop device needs no memory of the session's group to write one.  No
 * barriers, because nothing of a session outlives a crash of the host, and a
 * session's fsync must not flush the host's disk.
 */

#include "storage_private.h"

#include <dirent.h>
#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/fs.h>
#include <linux/loop.h>
#include <linux/magic.h>
#include <linux/major.h>
#include <spawn.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/vfs.h>
#include <sys/wait.h>


#define SBX_IMAGE_LABEL       "sandbox-image"
#define SBX_IMAGE_NAME        64
#define SBX_IMAGE_KEPT        32         /* sizes that are kept */
#define SBX_IMAGE_COPY_MAX    (64 << 20) /* more than any format writes */
#define SBX_IMAGE_ROUNDS      12
#define SBX_IMAGE_TRIES       1000       /* for a loop device */
#define SBX_IMAGE_INODE       256        /* bytes */
#define SBX_IMAGE_OWN_INODES  11         /* reserved, and lost+found */
#define SBX_IMAGE_OVERLAY     1          /* directory of its own in work */
#define SBX_IMAGE_SLACK       4          /* blocks more than asked for */
#define SBX_IMAGE_GROUP       32768      /* most blocks, and most inodes */
#define SBX_IMAGE_GROUP_LEAST 256        /* blocks */
#define SBX_IMAGE_BIG         (1u << 31) /* blocks: descriptors of 64 bits */
#define SBX_IMAGE_RESERVE     4096       /* blocks; fs/ext4/super.c */

/* Nothing of the host's own settings. */
#define SBX_IMAGE_FEATURES                                                    \
    "none,ext_attr,dir_index,filetype,extent,flex_bg,sparse_super,"           \
    "large_file,huge_file,uninit_bg,dir_nlink,extra_isize"

#ifndef EXT4_SUPER_MAGIC
#define EXT4_SUPER_MAGIC      0xef53
#endif
#ifndef EXT4_IOC_SHUTDOWN
#define EXT4_IOC_SHUTDOWN     _IOR('X', 125, uint32_t)
#endif

#define SBX_SHUTDOWN_NOFLUSH  2
#define SBX_FORGET_LEAST      (4u << 20) /* bytes worth a line in the log */


typedef struct {
    uint64_t   blocks;                /* that a session can write */
    uint64_t   inodes;
} sbx_image_size_t;

/* What the superblock tells. */
typedef struct {
    uint64_t   blocks;
    uint64_t   free_blocks;
} sbx_image_super_t;


static void sbx_image_sweep(const sbx_storage_t *s, int all);
static int sbx_image_model(const sbx_storage_t *s,
    const sbx_image_size_t *size, int *fd, sbx_error_t *e);
static int sbx_image_format(const sbx_storage_t *s, const char *name, int fd,
    const sbx_image_size_t *size, sbx_error_t *e);
static int sbx_image_mkfs(const char *path, uint64_t blocks,
    uint64_t inodes, sbx_error_t *e);
static uint64_t sbx_image_group(uint64_t blocks, uint64_t inodes);
static int sbx_image_run(char *const *argv, sbx_error_t *e);
static int sbx_image_super(int fd, sbx_image_super_t *super);
static uint64_t sbx_image_reserve(uint64_t blocks);
static int sbx_image_copy(const sbx_storage_t *s, int from, int *fd,
    sbx_error_t *e);
static int sbx_image_copy_data(int from, int to, off_t size);
static int sbx_image_attach(const sbx_storage_t *s, int image, char *node,
    int *loop, sbx_error_t *e);
static int sbx_image_node(const sbx_storage_t *s, int number, char *node);
static int sbx_image_mount(const char *node, int *root, sbx_error_t *e);


int
sbx_image_open(sbx_storage_t *storage, sbx_error_t *e)
{
    sbx_auto_fd    root = -1;
    sbx_volume_t   volume;
    struct statfs  st;

    /* even where there will be no more: what they took is given back */

    sbx_image_sweep(storage, 1);

    if (fstatfs(storage->dir, &st) == -1) {
        return sbx_error(e, errno, SBX_E_UNAVAILABLE,
                         "\"%.160s\" cannot be asked", storage->path);
    }

    if ((uint32_t) st.f_type == TMPFS_MAGIC
        || (uint32_t) st.f_type == RAMFS_MAGIC)
    {
        return sbx_error(e, 0, SBX_E_UNAVAILABLE,
                         "\"%.120s\" is in memory: name a directory on a "
                         "disk with sandbox_storage image", storage->path);
    }

    /* whatever may be missing shows here and not in a session */

    memset(&volume, 0, sizeof(sbx_volume_t));
    volume.limits.disk = 1 << 20;
    volume.limits.inodes = 256;

    return sbx_image_make(storage, &volume, &root, e);
}


int
sbx_image_make(const sbx_storage_t *storage, const sbx_volume_t *volume,
    int *root, sbx_error_t *e)
{
    int               rc;
    char              node[SBX_PATH_MAX + SBX_IMAGE_NAME];
    sbx_auto_fd       model = -1, image = -1, loop = -1;
    sbx_image_size_t  size;

    /* each directory takes a block here, which it does not in a tmpfs */

    size.blocks = (volume->limits.disk + volume->bytes
                   + SBX_STORAGE_BLOCK - 1) / SBX_STORAGE_BLOCK
                  + volume->directories + SBX_IMAGE_OVERLAY;
    size.inodes = volume->limits.inodes + volume->files
                  + volume->directories + SBX_IMAGE_OVERLAY;

    if (sbx_image_model(storage, &size, &model, e) == -1
        || sbx_image_copy(storage, model, &image, e) == -1
        || sbx_image_attach(storage, image, node, &loop, e) == -1)
    {
        return -1;
    }

    rc = sbx_image_mount(node, root, e);

    if (strncmp(node, "/dev/", 5) != 0) {
        (void) unlink(node);
    }

    return rc;
}


/*
 * ---- images that are copied ------------------------------------------------
 */

static int
sbx_image_is(const char *name, const char *prefix)
{
    return strncmp(name, prefix, strlen(prefix)) == 0;
}


/*
 * Files that a killed process has left (all), or the size that was used least
 * recently where there are too many: who asks for sizes chooses how many.
 */
static void
sbx_image_sweep(const sbx_storage_t *s, int all)
{
    int             fd;
    DIR            *dir;
    char            oldest[SBX_IMAGE_NAME];
    time_t          when;
    unsigned        n;
    struct stat     st;
    struct dirent  *entry;

    fd = openat(s->dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    dir = (fd == -1) ? NULL : fdopendir(fd);

    if (dir == NULL) {
        return;
    }

    n = 0;
    when = 0;
    oldest[0] = '\0';

    while ((entry = readdir(dir)) != NULL) {

        if (all && (sbx_image_is(entry->d_name, "new.")
                    || sbx_image_is(entry->d_name, "loop.")))
        {
            (void) unlinkat(s->dir, entry->d_name, 0);
            continue;
        }

        if (!sbx_image_is(entry->d_name, "image.")
            || fstatat(s->dir, entry->d_name, &st, AT_SYMLINK_NOFOLLOW) == -1)
        {
            continue;
        }

        n++;

        if (oldest[0] == '\0' || st.st_mtime < when) {
            when = st.st_mtime;
            (void) snprintf(oldest, sizeof(oldest), "%.60s", entry->d_name);
        }
    }

    (void) closedir(dir);

    if (n > SBX_IMAGE_KEPT) {
        (void) unlinkat(s->dir, oldest, 0);
    }
}


static int
sbx_image_model(const sbx_storage_t *s, const sbx_image_size_t *size,
    int *fd, sbx_error_t *e)
{
    int          rc;
    char         name[SBX_IMAGE_NAME], fresh[SBX_IMAGE_NAME];
    uint64_t     random;
    sbx_auto_fd  file = -1;

    /* the first number changes with what is below */

    (void) snprintf(name, sizeof(name), "image.1.%" PRIu64 ".%" PRIu64,
                    size->blocks, size->inodes);

    *fd = openat(s->dir, name, O_RDWR | O_CLOEXEC | O_NOFOLLOW);

    if (*fd != -1) {
        (void) futimens(*fd, NULL);
        return 0;
    }

    if (getrandom(&random, sizeof(random), 0) != sizeof(random)) {
        return sbx_error(e, errno, SBX_E_INTERNAL, "getrandom() failed");
    }

    (void) snprintf(fresh, sizeof(fresh), "new.%016" PRIx64, random);

    file = openat(s->dir, fresh, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);

    if (file == -1) {
        return sbx_error(e, errno, SBX_E_UNAVAILABLE,
                         "cannot write to \"%.160s\"", s->path);
    }

    rc = sbx_image_format(s, fresh, file, size, e);

    if (rc == 0 && renameat(s->dir, fresh, s->dir, name) == -1) {
        rc = sbx_error(e, errno, SBX_E_UNAVAILABLE,
                       "cannot write to \"%.160s\"", s->path);
    }

    if (rc == -1) {
        (void) unlinkat(s->dir, fresh, 0);
        return -1;
    }

    sbx_image_sweep(s, 0);
    *fd = sbx_steal_fd(&file);

    return 0;
}


/*
 * How much mkfs takes for itself is its own affair: what it left free tells
 * how much larger, or smaller, the image must be for the session to have
 * what it asked for.
 */
static int
sbx_image_format(const sbx_storage_t *s, const char *name, int fd,
    const sbx_image_size_t *size, sbx_error_t *e)
{
    char               path[SBX_PATH_MAX + SBX_IMAGE_NAME];
    int64_t            lack;
    unsigned           i;
    uint64_t           blocks, inodes;
    sbx_image_super_t  super;

    (void) snprintf(path, sizeof(path), "%s/%s", s->path, name);

    inodes = size->inodes + SBX_IMAGE_OWN_INODES;
    blocks = size->blocks + inodes * SBX_IMAGE_INODE / SBX_STORAGE_BLOCK;
    blocks += sbx_image_reserve(blocks) + 16;

    for (i = 0; i < SBX_IMAGE_ROUNDS; i++) {

        /* what the round before wrote may lie elsewhere in this one */

        if (ftruncate(fd, 0) == -1
            || ftruncate(fd, (off_t) (blocks * SBX_STORAGE_BLOCK)) == -1)
        {
            return sbx_error(e, errno, SBX_E_UNAVAILABLE,
                             "the file system of \"%.120s\" takes no file of "
                             "%" PRIu64 " MB", s->path, blocks >> 8);
        }

        if (sbx_image_mkfs(path, blocks, inodes, e) == -1) {
            return -1;
        }

        if (sbx_image_super(fd, &super) == -1) {
            return sbx_error(e, errno, SBX_E_UNAVAILABLE,
                             "mkfs.ext4 has made no file system");
        }

        lack = (int64_t) (size->blocks + sbx_image_reserve(super.blocks))
               - (int64_t) super.free_blocks;

        if (lack <= 0 && lack >= -SBX_IMAGE_SLACK) {
            return 0;
        }

        /* a larger file system keeps more for itself */

        blocks += (uint64_t) (lack + lack / 49 + 1);
    }

    /* with many inodes a size grows by leaps, as large as a small disk */

    return sbx_error(e, 0, SBX_E_MANIFEST,
                     "/manifest/resources/inodes: no image of %" PRIu64
                     " MB has as many: ask for more disk or for fewer",
                     size->blocks >> 8);
}


/* What ext4 keeps for itself of a mounted file system with extents. */
static uint64_t
sbx_image_reserve(uint64_t blocks)
{
    return (blocks / 50 < SBX_IMAGE_RESERVE) ? blocks / 50
                                             : SBX_IMAGE_RESERVE;
}


/* A group has at most as many inodes as its bitmap has bits. */
static uint64_t
sbx_image_group(uint64_t blocks, uint64_t inodes)
{
    uint64_t  groups, size;

    size = (blocks > inodes) ? blocks : inodes;
    groups = (size + SBX_IMAGE_GROUP - 1) / SBX_IMAGE_GROUP;
    size = ((blocks + groups - 1) / groups + 7) / 8 * 8;

    return (size < SBX_IMAGE_GROUP_LEAST) ? SBX_IMAGE_GROUP_LEAST : size;
}


static int
sbx_image_mkfs(const char *path, uint64_t blocks, uint64_t inodes,
    sbx_error_t *e)
{
    char  group[24], nodes[24], count[24];

    const char  *argv[] = {
        "mkfs.ext4", "-q", "-F", "-b", "4096", "-I", "256", "-m", "0",
        "-L", SBX_IMAGE_LABEL,
        "-O", (blocks < SBX_IMAGE_BIG) ? SBX_IMAGE_FEATURES
                                       : SBX_IMAGE_FEATURES ",64bit",
        "-E", "lazy_itable_init=1,nodiscard,root_owner=0:0",
        "-g", group, "-N", nodes, path, count, NULL
    };

    (void) snprintf(group, sizeof(group), "%" PRIu64,
                    sbx_image_group(blocks, inodes));
    (void) snprintf(nodes, sizeof(nodes), "%" PRIu64, inodes);
    (void) snprintf(count, sizeof(count), "%" PRIu64, blocks);

    return sbx_image_run((char *const *) (uintptr_t) argv, e);
}


static int
sbx_image_run(char *const *argv, sbx_error_t *e)
{
    int                         rc, status;
    pid_t                       pid;
    size_t                      i;
    posix_spawn_file_actions_t  actions;

    static char  config[] = "MKE2FS_CONFIG=/dev/null";
    static char  path[] = "PATH=/usr/sbin:/usr/bin:/sbin:/bin";
    static char  *env[] = { config, path, NULL };

    static const char  *programs[] = {
        "/usr/sbin/mkfs.ext4", "/sbin/mkfs.ext4", "/usr/bin/mkfs.ext4"
    };

    for (i = 0; access(programs[i], X_OK) == -1; ) {
        if (++i == sbx_nelts(programs)) {
            return sbx_error(e, 0, SBX_E_UNAVAILABLE,
                             "mkfs.ext4 is missing: apt-get install "
                             "e2fsprogs");
        }
    }

    (void) posix_spawn_file_actions_init(&actions);
    (void) posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDWR,
                                            0);
    (void) posix_spawn_file_actions_adddup2(&actions, 0, 1);
    (void) posix_spawn_file_actions_adddup2(&actions, 0, 2);

    rc = posix_spawn(&pid, programs[i], &actions, NULL, argv, env);
    (void) posix_spawn_file_actions_destroy(&actions);

    if (rc != 0) {
        return sbx_error(e, rc, SBX_E_UNAVAILABLE, "cannot run \"%s\"",
                         programs[i]);
    }

    status = -1;

    while (waitpid(pid, &status, 0) == -1 && errno == EINTR) { /* void */ }

    if (status != 0) {
        return sbx_error(e, 0, SBX_E_UNAVAILABLE,
                         "mkfs.ext4 has failed with status %#x",
                         (unsigned) status);
    }

    return 0;
}


static int
sbx_image_super(int fd, sbx_image_super_t *super)
{
    uint16_t  magic;
    uint32_t  word[256];

    if (pread(fd, word, sizeof(word), 1024) != sizeof(word)) {
        return -1;
    }

    memcpy(&magic, (const char *) word + 0x38, sizeof(magic));

    if (le16toh(magic) != EXT4_SUPER_MAGIC) {
        errno = EINVAL;
        return -1;
    }

    super->blocks = le32toh(word[0x4 / 4]);
    super->free_blocks = le32toh(word[0xc / 4]);

    /* INCOMPAT_64BIT */

    if (le32toh(word[0x60 / 4]) & 0x80) {
        super->blocks |= (uint64_t) le32toh(word[0x150 / 4]) << 32;
        super->free_blocks |= (uint64_t) le32toh(word[0x158 / 4]) << 32;
    }

    return 0;
}


/*
 * ---- a session's own -------------------------------------------------------
 */

static int
sbx_image_copy(const sbx_storage_t *s, int from, int *fd, sbx_error_t *e)
{
    char         name[SBX_IMAGE_NAME];
    uint64_t     random;
    sbx_auto_fd  to = -1;
    struct stat  st;

    to = openat(s->dir, ".", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);

    if (to == -1
        && getrandom(&random, sizeof(random), 0) == sizeof(random))
    {
        /* not every file system has files without a name */

        (void) snprintf(name, sizeof(name), "new.%016" PRIx64, random);
        to = openat(s->dir, name, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC,
                    0600);
        (void) unlinkat(s->dir, name, 0);
    }

    if (to == -1 || fstat(from, &st) == -1) {
        return sbx_error(e, errno, SBX_E_UNAVAILABLE,
                         "cannot write to \"%.160s\"", s->path);
    }

    if (ioctl(to, FICLONE, from) == -1
        && sbx_image_copy_data(from, to, st.st_size) == -1)
    {
        return sbx_error(e, errno, SBX_E_UNAVAILABLE,
                         "cannot copy an image in \"%.120s\"%s", s->path,
                         errno == EFBIG ? ": its file system keeps no holes"
                                        : "");
    }

    *fd = sbx_steal_fd(&to);

    return 0;
}


static int
sbx_image_copy_data(int from, int to, off_t size)
{
    char     buf[65536];
    off_t    at, end, sum;
    size_t   want;
    ssize_t  n;

    if (ftruncate(to, size) == -1) {
        return -1;
    }

    end = 0;
    sum = 0;

    for ( ;; ) {
        at = lseek(from, end, SEEK_DATA);

        if (at == -1) {
            return (errno == ENXIO) ? 0 : -1;
        }

        end = lseek(from, at, SEEK_HOLE);

        if (end == -1) {
            return -1;
        }

        sum += end - at;

        if (sum > SBX_IMAGE_COPY_MAX) {
            errno = EFBIG;
            return -1;
        }

        for ( ; at < end; at += n) {
            want = (end - at < (off_t) sizeof(buf)) ? (size_t) (end - at)
                                                    : sizeof(buf);
            n = pread(from, buf, want, at);

            if (n <= 0 || pwrite(to, buf, (size_t) n, at) != n) {
                return -1;
            }
        }
    }
}


/* Others take loop devices too: the one that is free now may not be then. */
static int
sbx_image_attach(const sbx_storage_t *s, int image, char *node, int *loop,
    sbx_error_t *e)
{
    int                 number, tries;
    sbx_auto_fd         control = -1;
    struct loop_config  config;

    control = open("/dev/loop-control", O_RDWR | O_CLOEXEC);

    if (control == -1) {
        return sbx_error(e, errno, SBX_E_UNAVAILABLE,
                         "no loop devices: modprobe loop");
    }

    memset(&config, 0, sizeof(config));
    config.fd = (uint32_t) image;
    config.block_size = SBX_STORAGE_BLOCK;
    config.info.lo_flags = LO_FLAGS_AUTOCLEAR | LO_FLAGS_DIRECT_IO;

    for (tries = 0; tries < SBX_IMAGE_TRIES; tries++) {

        /* makes one where none is free */
        number = ioctl(control, LOOP_CTL_GET_FREE);

        if (number < 0) {
            return sbx_error(e, errno, SBX_E_UNAVAILABLE,
                             "no loop device is free");
        }

        *loop = sbx_image_node(s, number, node);

        if (*loop != -1) {
            if (ioctl(*loop, LOOP_CONFIGURE, &config) == 0) {
                return 0;
            }

            (void) close(*loop);
            *loop = -1;
        }

        if (errno != EBUSY && errno != ENXIO) {
            return sbx_error(e, errno, SBX_E_UNAVAILABLE,
                             "cannot use the loop device %d", number);
        }
    }

    return sbx_error(e, EBUSY, SBX_E_UNAVAILABLE, "no loop device is free");
}


/* A /dev that is not the kernel's own lacks nodes of devices made later. */
static int
sbx_image_node(const sbx_storage_t *s, int number, char *node)
{
    int          fd;
    char         path[64], text[32], name[SBX_IMAGE_NAME];
    unsigned     major, minor;
    struct stat  st;

    (void) sprintf(node, "/dev/loop%d", number);
    fd = open(node, O_RDWR | O_CLOEXEC | O_NOFOLLOW);

    if (fd == -1 && errno == ENOENT) {
        (void) snprintf(path, sizeof(path), "/sys/block/loop%d/dev", number);

        if (sbx_read_at(AT_FDCWD, path, text, sizeof(text)) == -1
            || sscanf(text, "%u:%u", &major, &minor) != 2)
        {
            errno = ENXIO;
            return -1;
        }

        (void) snprintf(name, sizeof(name), "loop.%d", number);
        (void) sprintf(node, "%s/%s", s->path, name);
        (void) mknodat(s->dir, name, S_IFBLK | 0600, makedev(major, minor));
        fd = openat(s->dir, name, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
    }

    if (fd != -1
        && (fstat(fd, &st) == -1 || !S_ISBLK(st.st_mode)
            || major(st.st_rdev) != LOOP_MAJOR))
    {
        (void) close(fd);
        errno = ENODEV;
        return -1;
    }

    return fd;
}


static int
sbx_image_mount(const char *node, int *root, sbx_error_t *e)
{
    sbx_auto_fd  fs = -1;

    fs = sbx_sys_fsopen("ext4");

    if (fs == -1) {
        return sbx_error(e, errno, SBX_E_UNAVAILABLE,
                         "the kernel has no ext4: modprobe ext4");
    }

    if (sbx_sys_fsconfig(fs, SBX_FSCONFIG_STRING, "source", node) == -1
        || sbx_sys_fsconfig(fs, SBX_FSCONFIG_STRING, "errors", "remount-ro")
           == -1
        || sbx_sys_fsconfig(fs, SBX_FSCONFIG_STRING, "barrier", "0") == -1
        || sbx_sys_fsconfig(fs, SBX_FSCONFIG_FLAG, "noinit_itable", NULL)
           == -1
        || sbx_sys_fsconfig(fs, SBX_FSCONFIG_FLAG, "nodiscard", NULL) == -1)
    {
        return sbx_error(e, errno, SBX_E_UNAVAILABLE,
                         "cannot set up the mount of an image");
    }

    *root = sbx_sys_fsmount(fs, SBX_MOUNT_NOSUID | SBX_MOUNT_NODEV
                                | SBX_MOUNT_NOATIME);

    if (*root == -1) {
        return sbx_error(e, errno, SBX_E_UNAVAILABLE,
                         "cannot mount an image");
    }

    return 0;
}


/*
 * The last unmount writes everything out first.  A file system that was shut
 * down writes nothing.  The checks are many because the ioctl is fatal to
 * whatever it meets.
 */
void
sbx_storage_forget(int disk)
{
    char           label[FSLABEL_MAX];
    sbx_auto_fd    fd = -1;
    uint32_t       flags;
    struct stat    st;
    struct statfs  fs;

    fd = openat(disk, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);

    if (fd == -1 || fstat(fd, &st) == -1 || fstatfs(fd, &fs) == -1
        || (uint32_t) fs.f_type != EXT4_SUPER_MAGIC
        || major(st.st_dev) != LOOP_MAJOR
        || (uint64_t) (fs.f_blocks - fs.f_bfree) * (uint64_t) fs.f_bsize
           < SBX_FORGET_LEAST)
    {
        return;
    }

    memset(label, 0, sizeof(label));

    if (ioctl(fd, FS_IOC_GETFSLABEL, label) == -1
        || strcmp(label, SBX_IMAGE_LABEL) != 0)
    {
        return;
    }

    flags = SBX_SHUTDOWN_NOFLUSH;
    (void) ioctl(fd, EXT4_IOC_SHUTDOWN, &flags);
}
