/*
 * Paths of file calls.  The process's root is the session's, and the kernel
 * resolves every path again below it, as the session's user: links inside
 * are followed, none leads out, and the magic ones of procfs are refused.
 */

#include "init_file.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/vfs.h>


#define SBX_INIT_RETRIES      64

#ifndef CGROUP2_SUPER_MAGIC
#define CGROUP2_SUPER_MAGIC   0x63677270
#endif


static int sbx_init_openat2(int dirfd, const char *path, uint64_t flags,
    uint64_t resolve);
static int sbx_init_step(int dirfd, const char *name, mode_t mode, int *made,
    sbx_error_t *e);


static int
sbx_init_openat2(int dirfd, const char *path, uint64_t flags,
    uint64_t resolve)
{
    int              fd;
    unsigned         i;
    struct open_how  how;

    memset(&how, 0, sizeof(struct open_how));
    how.flags = flags | O_CLOEXEC;
    how.resolve = resolve | RESOLVE_NO_MAGICLINKS;

    /* a rename anywhere in the system may disturb the kernel's check */

    for (i = 0; i < SBX_INIT_RETRIES; i++) {
        fd = (int) syscall(SYS_openat2, dirfd, path, &how, sizeof(how));

        if (fd != -1 || (errno != EAGAIN && errno != EINTR)) {
            return fd;
        }
    }

    return -1;
}


int
sbx_init_errno(sbx_error_t *e, int err, const char *what)
{
    size_t  i;

    static const struct {
        int          err;
        sbx_code_t   code;
        const char  *text;
    } table[] = {
        { ENOENT, SBX_E_FILE, "there is no such file" },
        { ENOTDIR, SBX_E_FILE_TYPE, "it is, or is below, no directory" },
        { EISDIR, SBX_E_FILE_TYPE, "it is a directory" },
        { ENXIO, SBX_E_FILE_TYPE, "it is no regular file" },
        { ENODEV, SBX_E_FILE_TYPE, "it is no regular file" },
        { EACCES, SBX_E_DENIED, "permission is denied" },
        { EPERM, SBX_E_DENIED, "it is not permitted" },
        { EROFS, SBX_E_DENIED, "it is on a read-only file system" },
        { EXDEV, SBX_E_DENIED, "it leads out of the session" },
        { EBUSY, SBX_E_DENIED, "something is mounted there" },
        { ETXTBSY, SBX_E_CONFLICT, "it is being executed" },
        { ELOOP, SBX_E_PATH, "its links cannot be followed" },
        { ENAMETOOLONG, SBX_E_PATH, "the path or a name in it is too long" },
        { EINVAL, SBX_E_PATH, "the path means nothing here" },
        { ENOSPC, SBX_E_NO_SPACE, "the session has no space left" },
        { EDQUOT, SBX_E_NO_SPACE, "the session has no space left" },
        { ENOMEM, SBX_E_NO_SPACE, "the session has no memory left" },
        { EFBIG, SBX_E_NO_SPACE, "no file may be so large" },
        { EMLINK, SBX_E_NO_SPACE, "the directory is full" },
        { EEXIST, SBX_E_EXISTS, "it exists" },
        { ENOTEMPTY, SBX_E_CONFLICT, "the directory is not empty" },
        { EAGAIN, SBX_E_UNAVAILABLE, "too much is renamed meanwhile" },
        { EMFILE, SBX_E_UNAVAILABLE, "too many directories are open" },
        { ENFILE, SBX_E_UNAVAILABLE, "too many files are open" },
        { 0, SBX_E_INTERNAL, "the file system failed" }
    };

    for (i = 0; table[i].err != 0 && table[i].err != err; i++) { /* void */ }

    return sbx_error(e, err, table[i].code, "%s: %s", what, table[i].text);
}


int
sbx_init_path(const char *path, char *buf, sbx_error_t *e)
{
    int  n;

    if (path[0] == '/') {
        n = snprintf(buf, SBX_PATH_MAX, "%s", path);

    } else {
        n = snprintf(buf, SBX_PATH_MAX, "%s/%s", sbx_init.config->workspace,
                     path);
    }

    if (n < 0 || n >= SBX_PATH_MAX) {
        return sbx_init_errno(e, ENAMETOOLONG, "path");
    }

    return 0;
}


int
sbx_init_given(const char *path, char *buf, size_t *len, sbx_error_t *e)
{
    size_t  n;

    if (sbx_init_path(path, buf, e) != 0) {
        return -1;
    }

    for (n = strlen(buf); n > 0 && buf[n - 1] == '/'; n--) { /* void */ }

    *len = n;

    return 0;
}


int
sbx_init_open(sbx_init_serve_t *s, const char *path, uint64_t flags,
    sbx_error_t *e)
{
    int   fd;
    char  buf[SBX_PATH_MAX];

    if (sbx_init_path(path, buf, e) != 0) {
        return -1;
    }

    fd = sbx_init_openat2(s->root, buf, flags, RESOLVE_IN_ROOT);

    if (fd == -1) {
        (void) sbx_init_errno(e, errno, "path");
    }

    return fd;
}


int
sbx_init_open_at(int dirfd, const char *name, uint64_t flags)
{
    return sbx_init_openat2(dirfd, name, flags, 0);
}


/* Into a directory, which is made if it is not there. */

static int
sbx_init_step(int dirfd, const char *name, mode_t mode, int *made,
    sbx_error_t *e)
{
    int       fd;
    unsigned  i;

    for (i = 0; i < SBX_INIT_RETRIES; i++) {
        fd = sbx_init_openat2(dirfd, name, O_PATH|O_DIRECTORY, 0);

        if (fd != -1) {
            return fd;
        }

        if (errno != ENOENT || mode == (mode_t) -1) {
            return sbx_init_errno(e, errno, "path");
        }

        if (mkdirat(dirfd, name, mode) == 0) {
            *made = 1;
            continue;
        }

        if (errno != EEXIST) {
            return sbx_init_errno(e, errno, "path");
        }

        /* made by another, or a link that leads nowhere */

        if (faccessat(dirfd, name, F_OK, AT_EACCESS) == -1
            && faccessat(dirfd, name, F_OK, AT_SYMLINK_NOFOLLOW) == 0)
        {
            return sbx_init_errno(e, ENOENT, "path");
        }
    }

    return sbx_init_errno(e, EAGAIN, "path");
}


/*
 * Walks the first len bytes of an absolute path.  The mode of what is made
 * is 0755 but for the last name's.  mode -1: nothing is made.  *made: how many
 * directories at its end are new.
 */

static int
sbx_init_walk(sbx_init_serve_t *s, const char *path, size_t len, mode_t mode,
    int *made, sbx_error_t *e)
{
    int          next, new;
    char         name[SBX_PATH_MAX];
    size_t       n;
    sbx_auto_fd  fd = -1;
    const char  *p, *end;

    p = path;
    end = path + len;
    *made = 0;

    fd = sbx_init_openat2(s->root, "/", O_PATH|O_DIRECTORY, RESOLVE_IN_ROOT);

    if (fd == -1) {
        return sbx_init_errno(e, errno, "path");
    }

    for ( ;; ) {
        while (p < end && *p == '/') {
            p++;
        }

        if (p == end) {
            return sbx_steal_fd(&fd);
        }

        for (n = 0; p + n < end && p[n] != '/'; n++) { /* void */ }

        (void) sbx_copy_string(name, sizeof(name), p, n);
        p += n;

        while (p < end && *p == '/') {
            p++;
        }

        if (strcmp(name, ".") == 0) {
            continue;
        }

        new = 0;
        next = sbx_init_step(fd, name,
                             mode == (mode_t) -1 || p == end ? mode : 0755,
                             &new, e);

        if (next == -1) {
            return -1;
        }

        *made = new ? *made + 1 : 0;

        (void) close(fd);
        fd = next;
    }
}


int
sbx_init_make(sbx_init_serve_t *s, const char *path, mode_t mode, int *made,
    int *dirfd, sbx_error_t *e)
{
    char  buf[SBX_PATH_MAX];

    if (sbx_init_path(path, buf, e) != 0) {
        return -1;
    }

    *dirfd = sbx_init_walk(s, buf, strlen(buf), mode, made, e);

    return *dirfd == -1 ? -1 : 0;
}


int
sbx_init_parent(sbx_init_serve_t *s, const char *path, unsigned flags,
    char *name, int *dirfd, sbx_error_t *e)
{
    int          made;
    char         buf[SBX_PATH_MAX];
    const char  *last;

    if (sbx_init_path(path, buf, e) != 0) {
        return -1;
    }

    last = strrchr(buf, '/') + 1;

    if (last[0] == '\0' || strcmp(last, ".") == 0 || strcmp(last, "..") == 0)
    {
        return sbx_error(e, 0, SBX_E_PATH,
                         "path: it does not end in the name of a file");
    }

    if (strlen(last) > 255) {
        return sbx_init_errno(e, ENAMETOOLONG, "path");
    }

    (void) sbx_copy_string(name, 256, last, strlen(last));

    if (flags & SBX_INIT_MAKE) {
        *dirfd = sbx_init_walk(s, buf, (size_t) (last - buf), 0755, &made,
                               e);

    } else {
        buf[last - buf] = '\0';
        *dirfd = sbx_init_openat2(s->root, buf, O_PATH|O_DIRECTORY,
                                  RESOLVE_IN_ROOT);

        if (*dirfd == -1) {
            (void) sbx_init_errno(e, errno, "path");
        }
    }

    return *dirfd == -1 ? -1 : 0;
}


int
sbx_init_real(int fd, char *buf, size_t size, sbx_error_t *e)
{
    char     name[64];
    ssize_t  n;

    (void) snprintf(name, sizeof(name), "/proc/self/fd/%d", fd);

    n = readlink(name, buf, size - 1);

    if (n <= 0 || (size_t) n >= size - 1 || buf[0] != '/') {
        return sbx_init_errno(e, n > 0 ? ENAMETOOLONG : errno,
                              "path of a directory");
    }

    buf[n] = '\0';

    return 0;
}


int
sbx_init_foreign(int fd)
{
    size_t         i;
    struct stat    st, dev;
    struct statfs  fs;

    static const unsigned long  foreign[] = {
        PROC_SUPER_MAGIC, SYSFS_MAGIC, CGROUP_SUPER_MAGIC,
        CGROUP2_SUPER_MAGIC, DEBUGFS_MAGIC, TRACEFS_MAGIC, SECURITYFS_MAGIC
    };

    if (fstatfs(fd, &fs) == -1 || fstat(fd, &st) == -1) {
        return 1;
    }

    /* the files over those of /proc and /sys are of the same tmpfs as /dev */

    if (stat("/dev", &dev) == 0 && dev.st_dev == st.st_dev) {
        return 1;
    }

    for (i = 0; i < sbx_nelts(foreign); i++) {
        if ((unsigned long) fs.f_type == foreign[i]) {
            return 1;
        }
    }

    return 0;
}
