/*
 * Reads of files that are held until a test lets go of them: loaded into
 * nginx (LD_PRELOAD), it wraps sendfile() and pread(), as a lock of the file
 * would be waited for.
 *
 * HELD names a directory.  A read of a file NAME at an offset waits while the
 * test has a lock of the byte at that offset of the file NAME there, if there
 * is one.  That it waits, and that it has gone on, is told in NAME.log: lines
 * of "PID TID +OFFSET" and "PID TID -OFFSET".
 */

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sendfile.h>
#include <sys/syscall.h>
#include <unistd.h>


typedef ssize_t (*sendfile_pt)(int to, int from, off64_t *offset, size_t n);
typedef ssize_t (*pread_pt)(int fd, void *buf, size_t n, off64_t offset);


static const char  *dir;


/* A worker has no environment left. */

__attribute__((constructor)) static void
find_dir(void)
{
    const char  *name;

    name = getenv("HELD");
    dir = (name == NULL) ? NULL : strdup(name);
}


static void
told(const char *log, char sign, off64_t offset)
{
    int   fd, n;
    char  line[64];

    fd = open(log, O_WRONLY|O_APPEND|O_CREAT|O_CLOEXEC, 0666);
    n = snprintf(line, sizeof(line), "%d %ld %c%lld\n", (int) getpid(),
                 syscall(SYS_gettid), sign, (long long) offset);

    if (fd == -1 || write(fd, line, (size_t) n) != n) {
        abort();
    }

    close(fd);
}


static void
held(int from, off64_t offset)
{
    int           fd, err;
    char          link[64], name[PATH_MAX], path[2 * PATH_MAX];
    char          log[2 * PATH_MAX + 8];
    ssize_t       n;
    const char   *base;
    struct flock  lock;

    if (dir == NULL) {
        return;
    }

    err = errno;
    (void) snprintf(link, sizeof(link), "/proc/self/fd/%d", from);
    n = readlink(link, name, sizeof(name) - 1);

    if (n == -1) {
        errno = err;
        return;
    }

    name[n] = '\0';
    base = strrchr(name, '/');

    if (base == NULL) {
        errno = err;
        return;
    }

    (void) snprintf(path, sizeof(path), "%s%s", dir, base);
    fd = open(path, O_RDONLY|O_CLOEXEC);

    if (fd != -1) {
        (void) snprintf(log, sizeof(log), "%s.log", path);
        told(log, '+', offset);

        memset(&lock, 0, sizeof(lock));
        lock.l_type = F_RDLCK;
        lock.l_whence = SEEK_SET;
        lock.l_start = offset;
        lock.l_len = 1;

        while (fcntl(fd, F_OFD_SETLKW, &lock) == -1 && errno == EINTR) {
            /* again */
        }

        told(log, '-', offset);
        close(fd);
    }

    errno = err;
}


ssize_t
sendfile64(int to, int from, off64_t *offset, size_t n)
{
    sendfile_pt  next;

    held(from, offset == NULL ? 0 : *offset);
    *(void **) &next = dlsym(RTLD_NEXT, "sendfile64");

    return next(to, from, offset, n);
}


ssize_t
sendfile(int to, int from, off_t *offset, size_t n)
{
    return sendfile64(to, from, (off64_t *) offset, n);
}


ssize_t
pread64(int fd, void *buf, size_t n, off64_t offset)
{
    pread_pt  next;

    held(fd, offset);
    *(void **) &next = dlsym(RTLD_NEXT, "pread64");

    return next(fd, buf, n, offset);
}


ssize_t
pread(int fd, void *buf, size_t n, off_t offset)
{
    return pread64(fd, buf, n, (off64_t) offset);
}
