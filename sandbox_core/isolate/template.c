/*
 * Templates with a root file system of their own: "<dir>/<name>/rootfs",
 * shown with its owners moved to the session's ids by an idmapped mount.
 * The mount is detached: it is the lower layer of one session and goes with
 * its mount namespace.
 *
 * The ids come from a user namespace that is made for that alone: a child
 * that shares our descriptors opens its own namespace and ends once we have
 * written its maps.
 */

#include "isolate_private.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>


#define SBX_SESSION_IDS   65536
#define SBX_USERNS_WAIT   1000       /* ms */


static const char  *sbx_template_names[] = { "base", "code-interpreter-v1" };


static int sbx_template_helper(const int *up, const int *down,
    const sbx_idmap_t *map);
static int sbx_template_maps(pid_t pid, const sbx_idmap_t *map);


int
sbx_template_builtin(const char *name)
{
    size_t  i;

    for (i = 0; i < sbx_nelts(sbx_template_names); i++) {
        if (strcmp(name, sbx_template_names[i]) == 0) {
            return 1;
        }
    }

    return 0;
}


int
sbx_template_open(const sbx_launch_t *launch, int *fd, sbx_error_t *e)
{
    char         name[SBX_TEMPLATE_MAX + 16];
    sbx_idmap_t  map = { 0, 0, launch->uid_first, SBX_SESSION_IDS };
    sbx_auto_fd  dir = -1, rootfs = -1, tree = -1, userns = -1;

    if (launch->template_dir == NULL || launch->template_dir[0] != '/'
        || launch->template[0] == '\0' || launch->template[0] == '.'
        || strlen(launch->template) >= SBX_TEMPLATE_MAX
        || strchr(launch->template, '/') != NULL)
    {
        return sbx_error(e, 0, SBX_E_TEMPLATE, "no such template");
    }

    (void) snprintf(name, sizeof(name), "%s/rootfs", launch->template);

    dir = open(launch->template_dir, O_PATH | O_DIRECTORY | O_CLOEXEC);

    if (dir != -1) {
        rootfs = sbx_sys_open_inside(dir, name, O_PATH | O_DIRECTORY);
    }

    if (rootfs == -1) {
        return sbx_error(e, errno, SBX_E_TEMPLATE,
                         "the template \"%s\" has no rootfs",
                         launch->template);
    }

    tree = sbx_sys_clone_tree(rootfs, "", 0);
    if (tree == -1) {
        return sbx_error(e, errno, SBX_E_TEMPLATE,
                         "the rootfs of \"%s\" cannot be mounted",
                         launch->template);
    }

    userns = sbx_template_userns(&map, e);
    if (userns == -1) {
        return -1;
    }

    if (sbx_sys_mount_attr(tree, SBX_MOUNT_RDONLY | SBX_MOUNT_NOSUID
                                 | SBX_MOUNT_NODEV, userns)
        == -1)
    {
        return sbx_error(e, errno, SBX_E_TEMPLATE,
                         "the file system of \"%s\" takes no idmapped mount: "
                         "put templates on ext4, xfs, btrfs or another that "
                         "does", launch->template);
    }

    *fd = sbx_steal_fd(&tree);

    return 0;
}


int
sbx_template_userns(const sbx_idmap_t *map, sbx_error_t *e)
{
    int          up[2], down[2], fd;
    sbx_auto_fd  up_read = -1, up_write = -1;
    sbx_auto_fd  down_read = -1, down_write = -1;

    if (pipe2(up, O_CLOEXEC) == -1) {
        return sbx_error(e, errno, SBX_E_INTERNAL, "pipe2() failed");
    }

    up_read = up[0];
    up_write = up[1];

    if (pipe2(down, O_CLOEXEC) == -1) {
        return sbx_error(e, errno, SBX_E_INTERNAL, "pipe2() failed");
    }

    down_read = down[0];
    down_write = down[1];

    fd = sbx_template_helper(up, down, map);

    if (fd == -1) {
        return sbx_error(e, errno, SBX_E_UNAVAILABLE,
                         "no user namespace can be made with the session's "
                         "ids: see user.max_user_namespaces");
    }

    return fd;
}


static int
sbx_template_helper(const int *up, const int *down, const sbx_idmap_t *map)
{
    int            fd, rc;
    char           go;
    pid_t          pid, parent;
    struct pollfd  told;

    parent = getpid();

    /* no exit signal: who reaps children by SIGCHLD does not see it */

    pid = (pid_t) syscall(SYS_clone, CLONE_NEWUSER | CLONE_FILES, 0, 0, 0, 0);

    if (pid == 0) {
        /* what it waits for has no end: it has that descriptor itself */
        (void) prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);

        if (getppid() != parent) {
            _exit(1);
        }

        fd = open("/proc/self/ns/user", O_RDONLY | O_CLOEXEC);
        (void) !write(up[1], &fd, sizeof(fd));
        (void) !read(down[0], &go, 1);
        _exit(0);
    }

    if (pid == -1) {
        return -1;
    }

    fd = -1;
    rc = -1;
    told.fd = up[0];
    told.events = POLLIN;

    /* the child's death closes nothing, since all descriptors are shared */

    if (poll(&told, 1, SBX_USERNS_WAIT) == 1
        && read(up[0], &fd, sizeof(fd)) == sizeof(fd) && fd != -1)
    {
        rc = sbx_template_maps(pid, map);
    }

    /* it is not asked to go: somebody may have stopped it */

    (void) kill(pid, SIGKILL);
    (void) waitpid(pid, NULL, __WALL);

    if (rc == -1 && fd != -1) {
        (void) close(fd);
        fd = -1;
    }

    return fd;
}


static int
sbx_template_maps(pid_t pid, const sbx_idmap_t *map)
{
    char         path[64], uids[96], gids[96];
    sbx_auto_fd  proc = -1;

    (void) snprintf(path, sizeof(path), "/proc/%d", (int) pid);
    (void) snprintf(uids, sizeof(uids), "%" PRIu64 " %" PRIu64 " %" PRIu64
                    "\n", map->uid, map->outside, map->count);
    (void) snprintf(gids, sizeof(gids), "%" PRIu64 " %" PRIu64 " %" PRIu64
                    "\n", map->gid, map->outside, map->count);

    proc = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

    if (proc == -1
        || sbx_write_at(proc, "uid_map", uids) == -1
        || sbx_write_at(proc, "gid_map", gids) == -1)
    {
        return -1;
    }

    return 0;
}
