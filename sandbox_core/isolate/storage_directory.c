/*
 * A session's disk as a directory of its own on a file system of the host's,
 * held by a project quota: every file below inherits the project, and the
 * kernel refuses blocks and inodes past the project's limits.  A project is
 * the first host id of its session, which no other has while anything of it
 * is there.  A session cannot leave its project: the kernel lets only the
 * initial user namespace change one.
 *
 * A tree may be as large and as deep as its session liked, so it is removed
 * by a child of the broker, one level at a time: what is below comes up
 * beside its parent, and no depth costs descriptors or stack.  The child may
 * outlive its broker, and a later broker has the tree removed as well: they
 * take turns by a lock, and neither touches the project's limits, which might
 * be those of somebody else by then.  They are set anew for each session, and
 * mean nothing without one.
 */

#include "storage_private.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/dqblk_xfs.h>
#include <linux/fs.h>
#include <linux/quota.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>


#define SBX_DIRECTORY_PROBE    ".probe"
#define SBX_DIRECTORY_PROJECT  0x7fffffffu   /* of the probe: no session's */

#define SBX_DIRECTORY_OVERLAY  2             /* the top, and work's own */
#define SBX_DIRECTORY_SWEEPERS 4             /* children, of left trees */

#ifndef SYS_quotactl_fd
#define SYS_quotactl_fd        443
#endif


struct sbx_removal_s {
    sbx_removal_t   *next;
    pid_t            pid;             /* 0: it waits for its turn */
    uint32_t         project;         /* of one that is swept; 0 */
    unsigned         swept:1;
    char             id[SBX_ID_MAX + 8];
};


static int sbx_directory_project(int dir, uint32_t project);
static int sbx_directory_quota(int dir, uint32_t project, uint64_t bytes,
    uint64_t inodes);
static int sbx_directory_enforced(const sbx_storage_t *s);
static sbx_removal_t *sbx_directory_removal(sbx_storage_t *s,
    const char *id);
static int sbx_directory_start(const sbx_storage_t *s,
    sbx_removal_t *removal);
static int sbx_directory_ended(sbx_removal_t **at);
static int sbx_directory_project_of(const sbx_storage_t *s, const char *id,
    uint32_t *project);
static void sbx_directory_child(const sbx_storage_t *s, const char *id)
    __attribute__((noreturn));
static int sbx_directory_empty(int top);
static unsigned sbx_directory_raise(int top, const char *name,
    uint64_t *number);


/*
 * ---- quotas ----------------------------------------------------------------
 */

static int
sbx_quotactl(int fd, int command, uint32_t project, void *data)
{
    return (int) syscall(SYS_quotactl_fd, fd, QCMD(command, PRJQUOTA),
                         project, data);
}


int
sbx_directory_open(sbx_storage_t *storage, sbx_error_t *e)
{
    (void) e;

    storage->quota = sbx_directory_enforced(storage) == 1;

    if (!storage->quota) {
        (void) snprintf(storage->lacks, sizeof(storage->lacks),
                        "no project quota is enforced on the file system of "
                        "%.120s", storage->path);
    }

    return 0;
}


/* 1 if all that a session needs can be done. */
static int
sbx_directory_enforced(const sbx_storage_t *s)
{
    int                    rc;
    sbx_auto_fd            dir = -1;
    struct if_dqblk        limits;
    struct fs_quota_statv  state;

    memset(&state, 0, sizeof(state));
    state.qs_version = FS_QSTATV_VERSION1;

    if (sbx_quotactl(s->dir, Q_XGETQSTATV, 0, &state) == -1
        || !(state.qs_flags & FS_QUOTA_PDQ_ENFD))
    {
        return 0;
    }

    (void) unlinkat(s->dir, SBX_DIRECTORY_PROBE, AT_REMOVEDIR);

    if (mkdirat(s->dir, SBX_DIRECTORY_PROBE, 0700) == -1) {
        return 0;
    }

    dir = openat(s->dir, SBX_DIRECTORY_PROBE,
                 O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);

    memset(&limits, 0, sizeof(limits));

    rc = dir != -1
         && sbx_directory_project(dir, SBX_DIRECTORY_PROJECT) == 0
         && sbx_directory_quota(dir, SBX_DIRECTORY_PROJECT, 1 << 20, 64) == 0
         && sbx_quotactl(dir, Q_GETQUOTA, SBX_DIRECTORY_PROJECT, &limits)
            == 0
         && limits.dqb_bhardlimit == 1024
         && sbx_directory_quota(dir, SBX_DIRECTORY_PROJECT, 0, 0) == 0;

    (void) unlinkat(s->dir, SBX_DIRECTORY_PROBE, AT_REMOVEDIR);

    return rc;
}


static int
sbx_directory_project(int dir, uint32_t project)
{
    struct fsxattr  attr;

    if (ioctl(dir, FS_IOC_FSGETXATTR, &attr) == -1) {
        return -1;
    }

    attr.fsx_projid = project;
    attr.fsx_xflags |= FS_XFLAG_PROJINHERIT;

    return ioctl(dir, FS_IOC_FSSETXATTR, &attr);
}


/* Zeros: no limits, and the kernel forgets the project when it is empty. */
static int
sbx_directory_quota(int dir, uint32_t project, uint64_t bytes,
    uint64_t inodes)
{
    struct if_dqblk  limits;

    memset(&limits, 0, sizeof(limits));

    limits.dqb_bhardlimit = (bytes + QIF_DQBLKSIZE - 1) / QIF_DQBLKSIZE;
    limits.dqb_bsoftlimit = limits.dqb_bhardlimit;
    limits.dqb_ihardlimit = inodes;
    limits.dqb_isoftlimit = inodes;
    limits.dqb_valid = QIF_LIMITS;

    return sbx_quotactl(dir, Q_SETQUOTA, project, &limits);
}


int
sbx_directory_make(const sbx_storage_t *storage, const sbx_volume_t *volume,
    int *root, sbx_error_t *e)
{
    char         path[SBX_PATH_MAX + SBX_ID_MAX + 8];
    uint32_t     project;
    sbx_auto_fd  dir = -1, tree = -1;

    project = (uint32_t) volume->uid_first;

    if (mkdirat(storage->dir, volume->id, 0755) == -1) {
        return sbx_error(e, errno, SBX_E_UNAVAILABLE,
                         "cannot make the session's directory of files");
    }

    /* by its path: what storage->dir is on is mounted in the broker's
       namespace, of which nothing can be cloned here */

    (void) snprintf(path, sizeof(path), "%s/%s", storage->path, volume->id);
    dir = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);

    if (dir == -1 || fchmod(dir, 0755) == -1) {
        return sbx_error(e, errno, SBX_E_UNAVAILABLE,
                         "cannot open the session's directory of files");
    }

    if (storage->quota
        && (sbx_directory_project(dir, project) == -1
            || sbx_directory_quota(dir, project,
                                   volume->limits.disk + volume->bytes
                                   + (volume->directories
                                      + SBX_DIRECTORY_OVERLAY)
                                     * SBX_STORAGE_BLOCK,
                                   volume->limits.inodes + volume->files
                                   + volume->directories
                                   + SBX_DIRECTORY_OVERLAY)
               == -1))
    {
        return sbx_error(e, errno, SBX_E_UNAVAILABLE,
                         "cannot set the session's project quota");
    }

    tree = sbx_sys_clone_tree(dir, "", 0);

    if (tree == -1
        || sbx_sys_mount_attr(tree, SBX_MOUNT_NOSUID | SBX_MOUNT_NODEV, -1)
           == -1)
    {
        return sbx_error(e, errno, SBX_E_INTERNAL,
                         "cannot mount the session's directory of files");
    }

    *root = sbx_steal_fd(&tree);

    return 0;
}


/*
 * ---- removal ---------------------------------------------------------------
 */

int
sbx_directory_remove(sbx_storage_t *storage, const char *id, sbx_error_t *e)
{
    int             rc;
    sbx_removal_t  *removal, **at;

    for (at = &storage->removals; *at != NULL; at = &(*at)->next) {
        if (strcmp((*at)->id, id) == 0) {
            break;
        }
    }

    if (*at == NULL) {

        if (faccessat(storage->dir, id, F_OK, AT_SYMLINK_NOFOLLOW) == -1
            && errno == ENOENT)
        {
            return 0;
        }

        removal = sbx_directory_removal(storage, id);

        if (removal == NULL) {
            return sbx_error(e, errno, SBX_E_INTERNAL,
                             "the files of %s cannot be removed", id);
        }

        at = &storage->removals;
    }

    /* too many processes for the moment: it is tried again */

    if ((*at)->pid == 0) {
        (void) sbx_directory_start(storage, *at);
        return 1;
    }

    rc = sbx_directory_ended(at);

    return rc == -1 ? sbx_error(e, 0, SBX_E_INTERNAL, "files of %s stay", id)
                    : rc;
}


static sbx_removal_t *
sbx_directory_removal(sbx_storage_t *s, const char *id)
{
    sbx_removal_t  *removal;

    removal = calloc(1, sizeof(sbx_removal_t));

    if (removal != NULL) {
        (void) snprintf(removal->id, sizeof(removal->id), "%s", id);
        removal->next = s->removals;
        s->removals = removal;
    }

    return removal;
}


static int
sbx_directory_start(const sbx_storage_t *s, sbx_removal_t *removal)
{
    pid_t  pid;

    /* no exit signal: who reaps children by SIGCHLD does not see it */

    pid = (pid_t) syscall(SYS_clone, 0, 0, 0, 0, 0);

    if (pid == 0) {
        sbx_directory_child(s, removal->id);
    }

    removal->pid = pid == -1 ? 0 : pid;

    return pid == -1 ? -1 : 0;
}


/* 1: not yet; 0, -1: it is out of the list, and gone or not. */

static int
sbx_directory_ended(sbx_removal_t **at)
{
    int             status;
    pid_t           rc;
    sbx_removal_t  *removal;

    removal = *at;
    status = 0;
    rc = waitpid(removal->pid, &status, WNOHANG | __WALL);

    if (rc == 0) {
        return 1;
    }

    *at = removal->next;
    free(removal);

    return rc == -1 || status != 0 ? -1 : 0;
}


static void
sbx_directory_child(const sbx_storage_t *s, const char *id)
{
    int          dir, parent, rc;
    struct stat  st;

    dir = openat(s->dir, id, O_RDONLY | O_DIRECTORY | O_NOFOLLOW);

    if (dir == -1) {
        _exit(errno != ENOENT && unlinkat(s->dir, id, 0) == -1);
    }

    /* nothing else of the broker's is to be kept open, or in the way */

    dir = fcntl(dir, F_DUPFD, 2);
    parent = fcntl(s->dir, F_DUPFD, 2);

    if (dir == -1 || parent == -1 || dup2(dir, 0) == -1
        || dup2(parent, 1) == -1)
    {
        _exit(1);
    }

    (void) sbx_sys_close_range(2, ~0u, 0);

    /* an earlier broker's child may be at it */

    while (flock(0, LOCK_EX) == -1 && errno == EINTR) { /* void */ }

    if (fstat(0, &st) == 0 && st.st_nlink == 0) {
        _exit(0);
    }

    rc = sbx_directory_empty(0);

    if (unlinkat(1, id, AT_REMOVEDIR) == -1 && errno != ENOENT) {
        rc = -1;
    }

    _exit(rc != 0);
}


static int
sbx_directory_empty(int top)
{
    int             fd;
    DIR            *dir;
    unsigned        left, done;
    uint64_t        number;
    struct dirent  *entry;

    number = 0;

    do {
        fd = openat(top, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        dir = (fd == -1) ? NULL : fdopendir(fd);

        if (dir == NULL) {
            return -1;
        }

        left = 0;
        done = 0;

        while ((entry = readdir(dir)) != NULL) {
            if (strcmp(entry->d_name, ".") == 0
                || strcmp(entry->d_name, "..") == 0)
            {
                continue;
            }

            left++;

            if (unlinkat(top, entry->d_name, 0) == 0
                || unlinkat(top, entry->d_name, AT_REMOVEDIR) == 0)
            {
                done++;
                continue;
            }

            done += sbx_directory_raise(top, entry->d_name, &number);
        }

        (void) closedir(dir);

    } while (left != 0 && done != 0);

    return (left == 0) ? 0 : -1;
}


/* How many entries are not where they were. */
static unsigned
sbx_directory_raise(int top, const char *name, uint64_t *number)
{
    int             fd, rc;
    DIR            *dir;
    char            fresh[32];
    unsigned        done;
    struct dirent  *entry;

    fd = openat(top, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
    dir = (fd == -1) ? NULL : fdopendir(fd);

    if (dir == NULL) {
        return 0;
    }

    done = 0;

    while ((entry = readdir(dir)) != NULL) {
        if (strcmp(entry->d_name, ".") == 0
            || strcmp(entry->d_name, "..") == 0)
        {
            continue;
        }

        if (unlinkat(dirfd(dir), entry->d_name, 0) == 0
            || unlinkat(dirfd(dir), entry->d_name, AT_REMOVEDIR) == 0)
        {
            done++;
            continue;
        }

        do {
            (void) snprintf(fresh, sizeof(fresh), "r.%016" PRIx64,
                            (*number)++);
            rc = renameat(dirfd(dir), entry->d_name, top, fresh);
        } while (rc == -1 && (errno == ENOTEMPTY || errno == EEXIST
                              || errno == ENOTDIR));

        done += rc == 0;
    }

    (void) closedir(dir);
    done += unlinkat(top, name, AT_REMOVEDIR) == 0;

    return done;
}


/* 0: none, as of a file, or where there are no projects. */

static int
sbx_directory_project_of(const sbx_storage_t *s, const char *id,
    uint32_t *project)
{
    sbx_auto_fd     dir = -1;
    struct fsxattr  attr;

    *project = 0;
    dir = openat(s->dir, id, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);

    if (dir == -1) {
        return errno == ENOTDIR || errno == ELOOP || errno == ENOENT ? 0 : -1;
    }

    if (ioctl(dir, FS_IOC_FSGETXATTR, &attr) == 0) {
        *project = attr.fsx_projid;
    }

    return 0;
}


int
sbx_directory_sweep(sbx_storage_t *storage, const sbx_sweep_t *sweep,
    sbx_error_t *e)
{
    int             fd;
    DIR            *dir;
    uint32_t        project;
    sbx_removal_t  *removal;
    struct dirent  *entry;

    fd = openat(storage->dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    dir = (fd == -1) ? NULL : fdopendir(fd);

    if (dir == NULL) {
        (void) sbx_error(e, errno, SBX_E_UNAVAILABLE,
                         "cannot list \"%.160s\" of sandbox_storage",
                         storage->path);

        if (fd != -1) {
            (void) close(fd);
        }

        return -1;
    }

    while ((entry = readdir(dir)) != NULL) {
        if (entry->d_name[0] == '.' || strlen(entry->d_name) > SBX_ID_MAX
            || sweep->alive(entry->d_name, sweep->data))
        {
            continue;
        }

        for (removal = storage->removals;
             removal != NULL && strcmp(removal->id, entry->d_name) != 0;
             removal = removal->next) { /* void */ }

        if (removal != NULL) {
            continue;
        }

        if (sbx_directory_project_of(storage, entry->d_name, &project) == -1
            || (removal = sbx_directory_removal(storage, entry->d_name))
               == NULL)
        {
            (void) sbx_error(e, errno, SBX_E_UNAVAILABLE,
                             "files of %.40s cannot be looked at",
                             entry->d_name);
            (void) closedir(dir);
            return -1;
        }

        removal->swept = 1;
        removal->project = sweep->found(project, sweep->data) ? project : 0;
    }

    (void) closedir(dir);

    return 0;
}


/* A server that was killed with all of its sessions leaves as many trees. */

unsigned
sbx_directory_swept(sbx_storage_t *storage, const sbx_sweep_t *sweep)
{
    int             rc;
    char            id[SBX_ID_MAX + 8];
    unsigned        left, running;
    uint32_t        project;
    sbx_removal_t  *removal, **at;

    left = 0;
    running = 0;
    at = &storage->removals;

    while (*at != NULL) {
        removal = *at;

        if (!removal->swept) {
            at = &removal->next;
            continue;
        }

        project = removal->project;
        (void) strcpy(id, removal->id);
        rc = 1;

        if (removal->pid != 0) {
            rc = sbx_directory_ended(at);

        } else if (running < SBX_DIRECTORY_SWEEPERS) {
            (void) sbx_directory_start(storage, removal);
        }

        if (rc == 1) {
            running += removal->pid != 0;
            left++;
            at = &removal->next;
            continue;
        }

        sweep->over(id, project, rc == 0, sweep->data);
    }

    return left;
}


/* Who removes goes on; at the next start it is begun again where it ended. */

void
sbx_directory_close(sbx_storage_t *storage)
{
    sbx_removal_t  *removal;

    while (storage->removals != NULL) {
        removal = storage->removals;
        storage->removals = removal->next;

        if (removal->pid != 0) {
            (void) waitpid(removal->pid, NULL, WNOHANG | __WALL);
        }

        free(removal);
    }
}
