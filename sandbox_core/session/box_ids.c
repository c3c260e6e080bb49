/*
 * Whom a run is on the host.
 *
 * An ordinary user's run is that user, alone in a user namespace.  A run by
 * root is nobody: a host id above all others, the helper's own while it
 * lives.  Writable directories are shown to it through mounts that exchange
 * the directory's owner and that id, so what it writes is the owner's on the
 * disk.  Where a file system takes no such mounts, the run takes the
 * owner's id itself, unless that is root.
 *
 * The read-only view of root's runs is mounted with no id mapped at all.  The
 * kernel then refuses every write to what is there, which for sockets and
 * FIFOs a read-only mount does not.
 */

#include "box.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>


#define SBX_USERNS_WAIT   30000       /* ms */


static int sbx_ids_choose(sbx_box_t *box, sbx_error_t *e);
static int sbx_ids_map(sbx_box_t *box, sbx_spot_t **failed, sbx_error_t *e);
static int sbx_ids_tree(const sbx_box_t *box, sbx_spot_t *spot,
    const struct stat *st, int fd);
static int sbx_ids_userns(uid_t uid, gid_t gid, uid_t to_uid, gid_t to_gid);
static void sbx_ids_child(const int *up, const int *down)
    __attribute__((noreturn));
static int sbx_ids_write(pid_t pid, const char *file, uint64_t id,
    uint64_t to);


int
sbx_box_ids(sbx_box_t *box, sbx_error_t *e)
{
    int  i;

    if (sbx_ids_choose(box, e) == -1) {
        return -1;
    }

    /* or a command of root's could not open its own /dev/stdout */

    for (i = 0; box->root && i < 3; i++) {
        if (box->stdio[i] != -1
            && fchown(box->stdio[i], box->uid, box->gid) == -1)
        {
            return sbx_error(e, errno, SBX_E_INTERNAL,
                             "cannot give a stream to the command");
        }
    }

    return 0;
}


static int
sbx_ids_choose(sbx_box_t *box, sbx_error_t *e)
{
    sbx_spot_t  *failed;
    struct stat  st;

    if (!box->root) {
        box->uid = geteuid();
        box->gid = getegid();
        box->inner_uid = box->uid;
        box->inner_gid = box->gid;

        return 0;
    }

    box->uid = SBX_BOX_UID_BASE + (uid_t) getpid();
    box->gid = box->uid;
    box->inner_uid = SBX_BOX_UID;
    box->inner_gid = SBX_BOX_UID;
    box->nobody = sbx_ids_userns(box->uid, box->gid, box->uid, box->gid);

    if (box->nobody == -1) {
        return sbx_error(e, errno, SBX_E_UNAVAILABLE,
                         "user namespace: none can be made, see "
                         "user.max_user_namespaces");
    }

    if (sbx_ids_map(box, &failed, e) == 0) {
        return 0;
    }

    if (failed == NULL) {
        return -1;
    }

    if (stat(failed->path, &st) == -1) {
        return sbx_error(e, errno, SBX_E_INVALID,
                         "the directory \"%.180s\" has changed",
                         failed->path);
    }

    if (st.st_uid == 0 || st.st_gid == 0) {
        return sbx_error(e, 0, SBX_E_MANIFEST,
                         "\"%.120s\" is root's and its file system takes no "
                         "idmapped mounts: give the directory to an ordinary "
                         "user and group, or take one on ext4, xfs or btrfs",
                         failed->path);
    }

    box->uid = st.st_uid;
    box->gid = st.st_gid;

    if (st.st_uid < SBX_BOX_UID_BASE) {
        (void) snprintf(box->note, sizeof(box->note),
                        "runs as host user %u: the file system of \"%.120s\" "
                        "takes no idmapped mounts", st.st_uid, failed->path);
    }

    if (sbx_ids_map(box, &failed, e) == -1) {
        return failed == NULL ? -1
               : sbx_error(e, 0, SBX_E_MANIFEST,
                           "the file system of \"%.120s\" takes no idmapped "
                           "mounts, and it belongs to another user than the "
                           "other writable directories", failed->path);
    }

    return 0;
}


/* -1 and *failed: that one could not be mapped. */
static int
sbx_ids_map(sbx_box_t *box, sbx_spot_t **failed, sbx_error_t *e)
{
    size_t       i;
    sbx_spot_t  *spot;
    struct stat  st;
    sbx_auto_fd  root = -1;

    *failed = NULL;
    root = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);

    if (root == -1) {
        return sbx_error(e, errno, SBX_E_INTERNAL, "cannot open \"/\"");
    }

    for (i = 0; i < box->spots.nelts; i++) {
        sbx_auto_fd  fd = -1;

        spot = &box->spots.elts[i];

        if (spot->kind != SBX_SPOT_WRITABLE) {
            continue;
        }

        fd = sbx_sys_open_inside(root, spot->path + 1, O_PATH | O_DIRECTORY);

        if (fd == -1 || fstat(fd, &st) == -1 || st.st_dev != spot->dev
            || st.st_ino != spot->ino)
        {
            return sbx_error(e, fd == -1 ? errno : 0, SBX_E_INVALID,
                             "the directory \"%.180s\" has changed",
                             spot->path);
        }

        if (sbx_ids_tree(box, spot, &st, fd) == -1) {
            *failed = spot;
            return -1;
        }
    }

    return 0;
}


static int
sbx_ids_tree(const sbx_box_t *box, sbx_spot_t *spot, const struct stat *st,
    int fd)
{
    int          recursive;
    sbx_auto_fd  userns = -1;

    if (st->st_uid != box->uid || st->st_gid != box->gid) {
        userns = sbx_ids_userns(st->st_uid, st->st_gid, box->uid, box->gid);

        if (userns == -1) {
            return -1;
        }
    }

    /* what is mounted below may not be mappable, and is then left out */

    for (recursive = 1; recursive >= 0; recursive--) {
        if (spot->tree != -1) {
            (void) close(spot->tree);
        }

        spot->tree = sbx_sys_clone_tree(fd, "", recursive);

        if (spot->tree == -1) {
            return -1;
        }

        if (sbx_sys_mount_attr(spot->tree, SBX_MOUNT_NOSUID | SBX_MOUNT_NODEV,
                               userns)
            == 0)
        {
            return 0;
        }
    }

    (void) close(spot->tree);
    spot->tree = -1;

    return -1;
}


/* A namespace in which that id of the disk is this one of the host. */
static int
sbx_ids_userns(uid_t uid, gid_t gid, uid_t to_uid, gid_t to_gid)
{
    int            up[2], down[2], fd;
    pid_t          pid;
    sbx_auto_fd    up_read = -1, up_write = -1, down_read = -1,
                   down_write = -1;
    struct pollfd  told;

    if (pipe2(up, O_CLOEXEC) == -1) {
        return -1;
    }

    up_read = up[0];
    up_write = up[1];

    if (pipe2(down, O_CLOEXEC) == -1) {
        return -1;
    }

    down_read = down[0];
    down_write = down[1];

    pid = (pid_t) syscall(SYS_clone, CLONE_NEWUSER | CLONE_FILES | SIGCHLD,
                          0, 0, 0, 0);

    if (pid == 0) {
        sbx_ids_child(up, down);
    }

    if (pid == -1) {
        return -1;
    }

    fd = -1;
    told.fd = up_read;
    told.events = POLLIN;

    if (poll(&told, 1, SBX_USERNS_WAIT) != 1
        || read(up_read, &fd, sizeof(fd)) != sizeof(fd))
    {
        fd = -1;
        (void) kill(pid, SIGKILL);
    }

    if (fd != -1
        && (sbx_ids_write(pid, "uid_map", uid, to_uid) == -1
            || sbx_ids_write(pid, "gid_map", gid, to_gid) == -1))
    {
        (void) close(fd);
        fd = -1;
    }

    (void) !write(down_write, "", 1);
    (void) waitpid(pid, NULL, 0);

    return fd;
}


/* Shares the parent's descriptors, and so opens for both. */
static void
sbx_ids_child(const int *up, const int *down)
{
    int   fd;
    char  go;

    fd = open("/proc/self/ns/user", O_RDONLY | O_CLOEXEC);
    (void) !write(up[1], &fd, sizeof(fd));
    (void) !read(down[0], &go, 1);
    _exit(0);
}


static int
sbx_ids_write(pid_t pid, const char *file, uint64_t id, uint64_t to)
{
    char  path[64], map[64];

    (void) snprintf(path, sizeof(path), "/proc/%d/%s", (int) pid, file);
    (void) snprintf(map, sizeof(map), "%llu %llu 1\n",
                    (unsigned long long) id, (unsigned long long) to);

    return sbx_write_at(AT_FDCWD, path, map);
}
