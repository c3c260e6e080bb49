/*
 * The mount system calls that work on descriptors, by number: a libc may be
 * older than the kernel, and the kernel's header and the libc's define the
 * same structure twice.
 */

#include "isolate_private.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <sys/syscall.h>


#define SBX_FSOPEN_CLOEXEC         0x1u
#define SBX_FSMOUNT_CLOEXEC        0x1u
#define SBX_FSCONFIG_CREATE        6u
#define SBX_OPEN_TREE_CLONE        0x1u
#define SBX_MOVE_MOUNT_EMPTY_FROM  0x4u
#define SBX_MOVE_MOUNT_EMPTY_TO    0x40u
#define SBX_ATTR_IDMAP             0x100000u
#define SBX_AT_RECURSIVE           0x8000u
#define SBX_MS_PRIVATE             (1u << 18)

#ifndef AT_EMPTY_PATH
#define AT_EMPTY_PATH              0x1000
#endif


typedef struct {
    uint64_t  attr_set;
    uint64_t  attr_clr;
    uint64_t  propagation;
    uint64_t  userns_fd;
} sbx_mount_attr_t;


int
sbx_sys_fsopen(const char *type)
{
    return (int) syscall(SYS_fsopen, type, SBX_FSOPEN_CLOEXEC);
}


int
sbx_sys_fsconfig(int fs, sbx_fsconfig_t cmd, const char *key,
    const char *value)
{
    return (int) syscall(SYS_fsconfig, fs, (unsigned) cmd, key, value, 0);
}


int
sbx_sys_fsmount(int fs, unsigned attr)
{
    if (syscall(SYS_fsconfig, fs, SBX_FSCONFIG_CREATE, NULL, NULL, 0) == -1) {
        return -1;
    }

    return (int) syscall(SYS_fsmount, fs, SBX_FSMOUNT_CLOEXEC, attr);
}


int
sbx_sys_tmpfs(const char *mode, const char *size, unsigned attr)
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


int
sbx_sys_procfs(const char *hidepid)
{
    sbx_auto_fd  fs = -1;

    fs = sbx_sys_fsopen("proc");

    if (fs == -1
        || sbx_sys_fsconfig(fs, SBX_FSCONFIG_STRING, "source", "proc") == -1
        || sbx_sys_fsconfig(fs, SBX_FSCONFIG_STRING, "hidepid", hidepid)
           == -1)
    {
        return -1;
    }

    return sbx_sys_fsmount(fs, SBX_MOUNT_NOSUID | SBX_MOUNT_NODEV
                               | SBX_MOUNT_NOEXEC);
}


int
sbx_sys_clone_tree(int dirfd, const char *path, int recursive)
{
    unsigned  flags;

    flags = SBX_OPEN_TREE_CLONE | O_CLOEXEC;

    if (recursive) {
        flags |= SBX_AT_RECURSIVE;
    }

    if (path[0] == '\0') {
        flags |= AT_EMPTY_PATH;
    }

    return (int) syscall(SYS_open_tree, dirfd, path, flags);
}


int
sbx_sys_move_mount(int mount, int dirfd, const char *path)
{
    return (int) syscall(SYS_move_mount, mount, "", dirfd, path,
                         SBX_MOVE_MOUNT_EMPTY_FROM);
}


int
sbx_sys_move_mount_onto(int mount, int target)
{
    return (int) syscall(SYS_move_mount, mount, "", target, "",
                         SBX_MOVE_MOUNT_EMPTY_FROM
                         | SBX_MOVE_MOUNT_EMPTY_TO);
}


int
sbx_sys_mount_seal(int mount)
{
    sbx_mount_attr_t  attr = { 0 };

    attr.attr_set = SBX_MOUNT_RDONLY;

    return (int) syscall(SYS_mount_setattr, mount, "", AT_EMPTY_PATH, &attr,
                         sizeof(attr));
}


int
sbx_sys_mount_attr(int mount, unsigned set, int userns)
{
    sbx_mount_attr_t  attr = { 0 };

    attr.attr_set = set;
    attr.propagation = SBX_MS_PRIVATE;

    if (userns != -1) {
        attr.attr_set |= SBX_ATTR_IDMAP;
        attr.userns_fd = (uint64_t) userns;
    }

    return (int) syscall(SYS_mount_setattr, mount, "",
                         AT_EMPTY_PATH | SBX_AT_RECURSIVE, &attr,
                         sizeof(attr));
}


static int
sbx_sys_openat2(int dirfd, const char *path, int flags, uint64_t resolve)
{
    struct open_how  how = { 0 };

    how.flags = (uint64_t) flags | O_CLOEXEC;
    how.resolve = resolve;

    return (int) syscall(SYS_openat2, dirfd, path, &how, sizeof(how));
}


int
sbx_sys_open_inside(int dirfd, const char *path, int flags)
{
    return sbx_sys_openat2(dirfd, path, flags,
                           RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS);
}


int
sbx_sys_open_rooted(int dirfd, const char *path, int flags)
{
    return sbx_sys_openat2(dirfd, path, flags,
                           RESOLVE_IN_ROOT | RESOLVE_NO_SYMLINKS);
}


int
sbx_sys_open_plain(const char *path, int flags)
{
    return sbx_sys_openat2(AT_FDCWD, path, flags, RESOLVE_NO_SYMLINKS);
}


int
sbx_sys_pivot_root(const char *new_root, const char *old_root)
{
    return (int) syscall(SYS_pivot_root, new_root, old_root);
}


int
sbx_sys_close_range(unsigned first, unsigned last, unsigned flags)
{
    return (int) syscall(SYS_close_range, first, last, flags);
}
