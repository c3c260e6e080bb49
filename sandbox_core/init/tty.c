/*
 * A command's terminal: one of the session's own file system of terminals,
 * whose other side is init's.  Its end is opened by way of init's, not by
 * name; the child makes it its controlling terminal (child.c).
 */

#include "init.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <poll.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/vfs.h>
#include <termios.h>

#ifndef TIOCGPTPEER
#define TIOCGPTPEER   _IO('T', 0x41)
#endif


#define SBX_INIT_PTS    "/dev/pts"
#define SBX_INIT_PTMX   SBX_INIT_PTS "/ptmx"
#define SBX_INIT_ROWS   24
#define SBX_INIT_COLS   80


static int sbx_init_tty_check(int fd);
static int sbx_init_tty_set(sbx_init_command_t *c, int ours, int theirs);


int
sbx_init_tty_open(sbx_init_command_t *c, int *end)
{
    int                 unlock;
    sbx_init_stream_t  *stream;
    sbx_auto_fd         ours = -1, theirs = -1, input = -1;

    ours = open(SBX_INIT_PTMX,
                O_RDWR|O_NOCTTY|O_NONBLOCK|O_CLOEXEC|O_NOFOLLOW);
    unlock = 0;

    if (ours == -1 || sbx_init_tty_check(ours) == -1
        || ioctl(ours, TIOCSPTLCK, &unlock) == -1)
    {
        return -1;
    }

    theirs = ioctl(ours, TIOCGPTPEER, O_RDWR|O_NOCTTY|O_CLOEXEC);
    input = fcntl(ours, F_DUPFD_CLOEXEC, 0);

    if (theirs == -1 || input == -1
        || sbx_init_tty_set(c, ours, theirs) == -1)
    {
        return -1;
    }

    stream = &c->streams[0];
    sbx_init_output_take(c, stream, sbx_steal_fd(&ours));
    sbx_init_input_take(c, sbx_steal_fd(&input));
    *end = sbx_steal_fd(&theirs);

    return 0;
}


/*
 * The kernel says the same where the host has none left: so they are
 * counted.  errno stays as it was.
 */

int
sbx_init_tty_full(void)
{
    int             fd, err;
    DIR            *dir;
    unsigned        n;
    struct statfs   fs;
    struct dirent  *entry;

    n = 0;
    err = errno;
    fd = open(SBX_INIT_PTS, O_RDONLY|O_DIRECTORY|O_CLOEXEC|O_NOFOLLOW);

    if (fd == -1 || fstatfs(fd, &fs) == -1
        || fs.f_type != DEVPTS_SUPER_MAGIC || (dir = fdopendir(fd)) == NULL)
    {
        if (fd != -1) {
            (void) close(fd);
        }

        errno = err;
        return 0;
    }

    while (n < SBX_TERMINALS_MAX && (entry = readdir(dir)) != NULL) {
        n += entry->d_name[0] >= '0' && entry->d_name[0] <= '9';
    }

    (void) closedir(dir);
    errno = err;

    return n == SBX_TERMINALS_MAX;
}


/* Nothing else may lie there, whatever a session's root has done. */

static int
sbx_init_tty_check(int fd)
{
    struct stat    st;
    struct statfs  fs;

    if (fstat(fd, &st) == -1 || fstatfs(fd, &fs) == -1) {
        return -1;
    }

    if (!S_ISCHR(st.st_mode) || st.st_rdev != makedev(5, 2)
        || fs.f_type != DEVPTS_SUPER_MAGIC)
    {
        errno = ENOTTY;
        return -1;
    }

    return 0;
}


static int
sbx_init_tty_set(sbx_init_command_t *c, int ours, int theirs)
{
    uid_t           uid;
    struct winsize  size;
    struct termios  mode;

    uid = c->exec.user == SBX_USER_USER ? sbx_init.config->uid : 0;

    size.ws_row = (uint16_t) (c->exec.rows ? c->exec.rows : SBX_INIT_ROWS);
    size.ws_col = (uint16_t) (c->exec.cols ? c->exec.cols : SBX_INIT_COLS);
    size.ws_xpixel = 0;
    size.ws_ypixel = 0;

    if (fchown(theirs, uid, (gid_t) -1) == -1
        || fchmod(theirs, 0620) == -1
        || ioctl(ours, TIOCSWINSZ, &size) == -1
        || tcgetattr(theirs, &mode) == -1)
    {
        return -1;
    }

    mode.c_iflag |= IUTF8;

    return tcsetattr(theirs, TCSANOW, &mode);
}


int
sbx_init_tty_resize(sbx_init_command_t *c, uint32_t rows, uint32_t cols)
{
    struct winsize  size;

    if ((c->exec.flags & SBX_EXEC_TTY) == 0 || c->streams[0].source.fd == -1)
    {
        return -1;
    }

    size.ws_row = (uint16_t) rows;
    size.ws_col = (uint16_t) cols;
    size.ws_xpixel = 0;
    size.ws_ypixel = 0;

    return ioctl(c->streams[0].source.fd, TIOCSWINSZ, &size);
}


/* A shell gives each of its jobs a group of its own: the command's group is
 * the shell alone. */

int
sbx_init_tty_signal(sbx_init_command_t *c, int sig)
{
    pid_t  group;

    if ((c->exec.flags & SBX_EXEC_TTY) != 0 && !c->reaped
        && c->streams[0].source.fd != -1
        && ioctl(c->streams[0].source.fd, TIOCGPGRP, &group) == 0
        && group > 1 && kill(-group, sig) == 0)
    {
        return 0;
    }

    return sbx_init_command_signal(c, sig);
}


int
sbx_init_tty_pending(int fd)
{
    struct pollfd  pfd;

    pfd.fd = fd;
    pfd.events = POLLIN;

    return fd != -1 && poll(&pfd, 1, 0) == 1 && (pfd.revents & POLLIN);
}


unsigned
sbx_init_tty_eof(int fd, int last, uint8_t *eof)
{
    struct termios  mode;

    if (tcgetattr(fd, &mode) == -1 || (mode.c_lflag & ICANON) == 0
        || mode.c_cc[VEOF] == 0)
    {
        return 0;
    }

    *eof = mode.c_cc[VEOF];

    if (last == -1 || last == '\n' || last == mode.c_cc[VEOF]
        || (last == '\r' && (mode.c_iflag & ICRNL)))
    {
        return 1;
    }

    return 2;
}
