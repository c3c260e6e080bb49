#include "log.h"
#include "sandbox_util.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>


#define SBX_LOG_LINE    2048
#define SBX_LOG_RECHECK 1000000    /* microseconds */


static int sbx_log_file(const char *path, int create);
static void sbx_log_reopen(void);
static size_t sbx_log_put(char *line, size_t n, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
static void sbx_log_clean(char *line, size_t n);


static const char  *sbx_log_words[] = { "error", "warn", "notice", "info" };

static const char  *sbx_log_path;
static int          sbx_log_fd = -1;
static uint64_t     sbx_log_checked;


int
sbx_log_open(const char *path, sbx_error_t *e)
{
    int  fd;

    if (path == NULL || path[0] == '\0') {
        return 0;
    }

    fd = sbx_log_file(path, O_CREAT);

    if (fd == -1) {
        return sbx_error(e, errno, SBX_E_UNAVAILABLE,
                         "cannot open the log \"%s\"", path);
    }

    if (dup2(fd, STDERR_FILENO) == -1) {
        (void) close(fd);
        return sbx_error(e, errno, SBX_E_INTERNAL, "dup2() failed");
    }

    sbx_log_path = path;
    sbx_log_fd = fd;
    sbx_log_checked = sbx_now_us();

    return 0;
}


/*
 * Where the directory is not root's alone, who writes there must not have
 * root write elsewhere, or wait for the reader of a FIFO: a link is followed,
 * to a terminal or a pipe maybe, in root's directory only.
 */

static int
sbx_log_file(const char *path, int create)
{
    int          trusted;
    char         dir[4096];
    const char  *slash;
    struct stat  st;
    sbx_auto_fd  fd = -1;

    slash = strrchr(path, '/');

    if (slash == NULL
        || sbx_copy_string(dir, sizeof(dir), path,
                           (size_t) (slash - path) + 1)
           != 0
        || stat(dir, &st) == -1)
    {
        errno = slash == NULL ? EINVAL : errno;
        return -1;
    }

    trusted = st.st_uid == 0 && (st.st_mode & (S_IWGRP|S_IWOTH)) == 0;

    fd = open(path, O_WRONLY|O_APPEND|O_CLOEXEC|O_NOCTTY|O_NONBLOCK|create
                    |(trusted ? 0 : O_NOFOLLOW), 0644);

    if (fd == -1 || fstat(fd, &st) == -1) {
        return -1;
    }

    if (!trusted && (!S_ISREG(st.st_mode) || st.st_nlink > 1)) {
        errno = EPERM;
        return -1;
    }

    return sbx_steal_fd(&fd);
}


/*
 * A renamed file is left for the one that has its name now.  Not created
 * here: the server makes it with the owner and mode that it wants, and until
 * then the old file takes the lines.
 */

static void
sbx_log_reopen(void)
{
    int          fd;
    uint64_t     now;
    struct stat  there, ours;

    now = sbx_now_us();

    if (now - sbx_log_checked < SBX_LOG_RECHECK) {
        return;
    }

    sbx_log_checked = now;

    if (stat(sbx_log_path, &there) == -1 || fstat(sbx_log_fd, &ours) == -1
        || (there.st_ino == ours.st_ino && there.st_dev == ours.st_dev))
    {
        return;
    }

    fd = sbx_log_file(sbx_log_path, 0);

    if (fd == -1) {
        return;
    }

    (void) dup2(fd, STDERR_FILENO);
    (void) close(sbx_log_fd);
    sbx_log_fd = fd;
}


static size_t
sbx_log_put(char *line, size_t n, const char *fmt, ...)
{
    int      len;
    va_list  args;

    va_start(args, fmt);
    len = vsnprintf(line + n, SBX_LOG_LINE - n, fmt, args);
    va_end(args);

    if (len < 0) {
        return n;
    }

    n += (size_t) len;

    return n < SBX_LOG_LINE ? n : SBX_LOG_LINE - 1;
}


/* A name from outside must not begin a line of its own. */

static void
sbx_log_clean(char *line, size_t n)
{
    size_t  i;

    for (i = 0; i < n; i++) {
        if ((unsigned char) line[i] < ' ' || line[i] == 0x7f) {
            line[i] = '?';
        }
    }
}


void
sbx_log(sbx_log_level_t level, const sbx_log_about_t *about, int err,
    const char *fmt, ...)
{
    int        len;
    char       line[SBX_LOG_LINE];
    size_t     n;
    time_t     now;
    va_list    args;
    struct tm  tm;

    if (sbx_log_fd == -1) {
        return;
    }

    sbx_log_reopen();

    now = time(NULL);
    (void) localtime_r(&now, &tm);

    n = strftime(line, sizeof(line), "%Y/%m/%d %H:%M:%S", &tm);
    n = sbx_log_put(line, n, " [%s] %d#%d: sandbox: ", sbx_log_words[level],
                    (int) getpid(), (int) getpid());

    va_start(args, fmt);
    len = vsnprintf(line + n, sizeof(line) - n, fmt, args);
    va_end(args);

    if (len > 0) {
        n += (size_t) len < sizeof(line) - n ? (size_t) len
                                             : sizeof(line) - n - 1;
    }

    if (err != 0) {
        n = sbx_log_put(line, n, " (%d: %s)", err, strerror(err));
    }

    if (about != NULL && about->session != NULL && about->session[0]) {
        n = sbx_log_put(line, n, ", session: %s", about->session);
    }

    if (about != NULL && about->request != NULL && about->request[0]) {
        n = sbx_log_put(line, n, ", request: %s", about->request);
    }

    sbx_log_clean(line, n);
    line[n++] = '\n';

    len = (int) write(sbx_log_fd, line, n);
    (void) len;
}


void
sbx_log_error(sbx_log_level_t level, const sbx_log_about_t *about,
    const sbx_error_t *e, const char *what)
{
    sbx_log(level, about, e->err, "%s: %s", what, e->text);
}
