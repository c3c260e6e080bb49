/*
 * Tries to leave a file with the set-user-id or the set-group-id bit in the
 * directory that it is given, by every call that a mode can be told to.  One
 * line for each:
 *
 *     NAME BITS RESULT MODE
 *
 * where RESULT is "ok" or the errno's name, and MODE what the file has then.
 * By raw calls: what libc makes of a mode is not what is asked.
 */

#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>


#define HIGH          0xffff000000000000UL   /* which no kernel looks at */
#define FCHMODAT2     452


typedef struct {
    const char   *name;
    long        (*run)(const char *path, unsigned long mode);
} way_t;

struct how {
    uint64_t      flags;
    uint64_t      mode;
    uint64_t      resolve;
};


static int
file(const char *path)
{
    return open(path, O_CREAT|O_RDWR, 0755);
}


static long
way_chmod(const char *path, unsigned long mode)
{
    (void) close(file(path));
    return syscall(SYS_chmod, path, mode);
}


static long
way_chmod_high(const char *path, unsigned long mode)
{
    return way_chmod(path, mode | HIGH);
}


static long
way_fchmod(const char *path, unsigned long mode)
{
    return syscall(SYS_fchmod, file(path), mode);
}


static long
way_fchmodat(const char *path, unsigned long mode)
{
    (void) close(file(path));
    return syscall(SYS_fchmodat, AT_FDCWD, path, mode);
}


static long
way_fchmodat2(const char *path, unsigned long mode)
{
    (void) close(file(path));
    return syscall(FCHMODAT2, AT_FDCWD, path, mode, 0);
}


static long
way_open(const char *path, unsigned long mode)
{
    return syscall(SYS_open, path, O_CREAT|O_RDWR, mode);
}


static long
way_openat(const char *path, unsigned long mode)
{
    return syscall(SYS_openat, AT_FDCWD, path, O_CREAT|O_RDWR, mode);
}


static long
way_creat(const char *path, unsigned long mode)
{
    return syscall(SYS_creat, path, mode);
}


static long
way_mknod(const char *path, unsigned long mode)
{
    return syscall(SYS_mknod, path, S_IFREG | mode, 0);
}


static long
way_mknodat(const char *path, unsigned long mode)
{
    return syscall(SYS_mknodat, AT_FDCWD, path, S_IFREG | mode, 0);
}


static long
link_up(long fd, const char *path)
{
    char  from[64];

    if (fd == -1) {
        return -1;
    }

    (void) snprintf(from, sizeof(from), "/proc/self/fd/%ld", fd);

    return linkat(AT_FDCWD, from, AT_FDCWD, path, AT_SYMLINK_FOLLOW);
}


static long
way_tmpfile(const char *path, unsigned long mode)
{
    return link_up(syscall(SYS_open, ".", O_TMPFILE|O_RDWR, mode), path);
}


static long
way_tmpfile_at(const char *path, unsigned long mode)
{
    return link_up(syscall(SYS_openat, AT_FDCWD, ".", O_TMPFILE|O_RDWR, mode),
                   path);
}


/* Where a filter cannot look. */

static long
way_openat2(const char *path, unsigned long mode)
{
    struct how  how = { O_CREAT|O_RDWR, mode, 0 };

    return syscall(SYS_openat2, AT_FDCWD, path, &how, sizeof(how));
}


static long
way_socket(const char *path, unsigned long mode)
{
    int                 fd;
    struct sockaddr_un  sun = { .sun_family = AF_UNIX };

    fd = socket(AF_UNIX, SOCK_STREAM, 0);

    if (syscall(SYS_fchmod, fd, mode) == -1) {
        return -1;
    }

    (void) snprintf(sun.sun_path, sizeof(sun.sun_path), "%s", path);

    return bind(fd, (struct sockaddr *) &sun, sizeof(sun));
}


static long
way_elsewhere(const char *path, unsigned long mode)
{
    const char  *made = "/tmp/made";

    (void) unlink(made);
    (void) close(file(made));

    return syscall(SYS_chmod, made, mode) == -1 ? -1 : rename(made, path);
}


/* Not refused, and nothing comes of it. */

static long
way_mkdir(const char *path, unsigned long mode)
{
    return syscall(SYS_mkdir, path, mode);
}


static long
way_no_mode(const char *path, unsigned long mode)
{
    (void) close(file(path));
    return syscall(SYS_openat, AT_FDCWD, path, O_RDONLY|O_DIRECTORY, mode)
           == -1 && errno == ENOTDIR
           ? syscall(SYS_open, path, O_RDONLY, mode) : -1;
}


static const way_t  ways[] = {
    { "chmod", way_chmod },
    { "chmod-high", way_chmod_high },
    { "fchmod", way_fchmod },
    { "fchmodat", way_fchmodat },
    { "fchmodat2", way_fchmodat2 },
    { "open", way_open },
    { "openat", way_openat },
    { "creat", way_creat },
    { "mknod", way_mknod },
    { "mknodat", way_mknodat },
    { "tmpfile", way_tmpfile },
    { "tmpfile-at", way_tmpfile_at },
    { "openat2", way_openat2 },
    { "socket", way_socket },
    { "elsewhere", way_elsewhere },
    { "mkdir", way_mkdir },
    { "no-mode", way_no_mode }
};


int
main(int argc, char **argv)
{
    int          err;
    char         path[256];
    size_t       i, k;
    struct stat  st;

    static const unsigned  bits[] = { 04755, 02755, 06711, 04000 };

    if (argc < 2 || chdir(argv[1]) == -1) {
        return 2;
    }

    (void) umask(0);

    for (i = 0; i < sizeof(ways) / sizeof(ways[0]); i++) {
        for (k = 0; k < sizeof(bits) / sizeof(bits[0]); k++) {
            (void) snprintf(path, sizeof(path), "%s.%04o", ways[i].name,
                            bits[k]);
            errno = 0;
            err = ways[i].run(path, bits[k]) == -1 ? errno : 0;
            st.st_mode = 0;
            (void) lstat(path, &st);

            printf("%s %04o %s %04o\n", ways[i].name, bits[k],
                   err ? strerrorname_np(err) : "ok", st.st_mode & 07777);
        }
    }

    return 0;
}
