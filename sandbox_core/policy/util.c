#include "sandbox_util.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <time.h>


int
sbx_write_all(int fd, const void *buf, size_t n)
{
    const char  *p;
    ssize_t      written;

    p = buf;

    while (n != 0) {
        written = write(fd, p, n);

        if (written == -1) {
            if (errno == EINTR) {
                continue;
            }

            return -1;
        }

        p += written;
        n -= (size_t) written;
    }

    return 0;
}


ssize_t
sbx_read_full(int fd, void *buf, size_t n)
{
    char     *p;
    size_t    left;
    ssize_t   got;

    p = buf;
    left = n;

    while (left != 0) {
        got = read(fd, p, left);

        if (got == -1) {
            if (errno == EINTR) {
                continue;
            }

            return -1;
        }

        if (got == 0) {
            break;
        }

        p += got;
        left -= (size_t) got;
    }

    return (ssize_t) (n - left);
}


ssize_t
sbx_read_at(int dirfd, const char *name, char *buf, size_t size)
{
    ssize_t      n;
    sbx_auto_fd  fd = -1;

    if (size == 0) {
        errno = EINVAL;
        return -1;
    }

    fd = openat(dirfd, name, O_RDONLY|O_CLOEXEC);
    if (fd == -1) {
        return -1;
    }

    n = sbx_read_full(fd, buf, size - 1);
    if (n == -1) {
        return -1;
    }

    buf[n] = '\0';

    return n;
}


int
sbx_write_at(int dirfd, const char *name, const char *s)
{
    ssize_t      n;
    size_t       len;
    sbx_auto_fd  fd = -1;

    fd = openat(dirfd, name, O_WRONLY|O_CLOEXEC);
    if (fd == -1) {
        return -1;
    }

    len = strlen(s);

    /* one write: files of the kernel take a value whole or not at all */

    do {
        n = write(fd, s, len);
    } while (n == -1 && errno == EINTR);

    if (n == -1) {
        return -1;
    }

    if ((size_t) n != len) {
        errno = EIO;
        return -1;
    }

    return 0;
}


uint64_t
sbx_now_us(void)
{
    struct timespec  ts;

    (void) clock_gettime(CLOCK_MONOTONIC, &ts);

    return (uint64_t) ts.tv_sec * 1000000 + (uint64_t) ts.tv_nsec / 1000;
}


int
sbx_copy_string(char *dst, size_t size, const char *src, size_t len)
{
    if (len >= size) {
        return -1;
    }

    /* what is empty may be nowhere */

    if (len != 0) {
        memcpy(dst, src, len);
    }

    dst[len] = '\0';

    return 0;
}
