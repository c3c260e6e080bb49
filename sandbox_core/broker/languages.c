/*
 * The languages that sessions can run code in: their descriptions, read once
 * at the start of a broker, and what of them this machine lacks, for the
 * doctor.  The latter is found out by commands that may take a second each:
 * a child runs them one after the other, as nobody.  Nobody waits for it, and
 * what takes too long is taken for there.
 */

#include "broker.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>


#define SBX_LANGUAGES_FILE    "kernel.conf"
#define SBX_LANGUAGES_TEXT    16384
#define SBX_LANGUAGES_WAIT    3000        /* ms until the child is made */
#define SBX_LANGUAGES_PROBE   60000       /* ms for one command */
#define SBX_LANGUAGES_NICE    5
#define SBX_LANGUAGES_NOBODY  65534


static int sbx_languages_names(int dir, char names[][SBX_LANGUAGE_MAX + 1]);
static int sbx_languages_compare(const void *a, const void *b);
static void sbx_languages_read(sbx_languages_t *l, int dir,
    const char *name);
static void sbx_languages_row(sbx_languages_t *l, const char *name,
    const char *text, size_t size);
static int sbx_languages_safe(int fd);
static void sbx_languages_timer(sbx_timer_t *timer);
static void sbx_languages_event(sbx_event_t *ev, uint32_t events);
static void sbx_languages_child(const sbx_languages_t *l, int fd)
    __attribute__((noreturn));
static int sbx_languages_probe(const char *command);
static void sbx_languages_over(sbx_broker_t *b);


void
sbx_languages_open(sbx_broker_t *b)
{
    int               i, n;
    char              names[SBX_LANGUAGES_MAX][SBX_LANGUAGE_MAX + 1];
    sbx_auto_fd       dir = -1;
    sbx_languages_t  *l;

    l = calloc(1, sizeof(sbx_languages_t));

    if (l == NULL) {
        return;
    }

    l->fd = -1;

    if (b->options->kernels_dir != NULL) {
        (void) snprintf(l->dir, sizeof(l->dir), "%s",
                        b->options->kernels_dir);

    } else {
        (void) snprintf(l->dir, sizeof(l->dir), "%s/kernels",
                        b->options->helper_dir);
    }

    dir = open(l->dir, O_RDONLY|O_DIRECTORY|O_CLOEXEC);

    if (dir == -1 || !sbx_languages_safe(dir)) {
        sbx_log(SBX_LOG_NOTICE, NULL, dir == -1 ? errno : 0,
                "no language can be run: \"%s\" is not there, or not root's "
                "alone", l->dir);
        free(l);
        return;
    }

    b->languages = l;
    n = sbx_languages_names(dir, names);

    for (i = 0; i < n; i++) {
        sbx_languages_read(l, dir, names[i]);
    }

    l->timer.handler = sbx_languages_timer;
    l->timer.data = b;
    l->event.handler = sbx_languages_event;
    l->event.data = b;

    sbx_timer_set(&b->loop, &l->timer, SBX_LANGUAGES_WAIT);
}


/* What sessions execute is nobody's to change. */

static int
sbx_languages_safe(int fd)
{
    struct stat  st;

    return fstat(fd, &st) == 0 && st.st_uid == 0 && (st.st_mode & 022) == 0;
}


static int
sbx_languages_names(int dir, char names[][SBX_LANGUAGE_MAX + 1])
{
    int             n, fd;
    DIR            *list;
    struct dirent  *entry;

    n = 0;
    fd = fcntl(dir, F_DUPFD_CLOEXEC, 0);
    list = fd != -1 ? fdopendir(fd) : NULL;

    if (list == NULL) {
        return 0;
    }

    while (n < SBX_LANGUAGES_MAX && (entry = readdir(list)) != NULL) {
        if (sbx_language_ok(entry->d_name, strlen(entry->d_name))) {
            (void) strcpy(names[n++], entry->d_name);
        }
    }

    (void) closedir(list);
    qsort(names, (size_t) n, sizeof(names[0]), sbx_languages_compare);

    return n;
}


static int
sbx_languages_compare(const void *a, const void *b)
{
    return strcmp(a, b);
}


static void
sbx_languages_read(sbx_languages_t *l, int dir, const char *name)
{
    char         path[SBX_LANGUAGE_MAX + 32], text[SBX_LANGUAGES_TEXT];
    ssize_t      n;
    sbx_error_t  e;
    sbx_auto_fd  fd = -1;

    (void) snprintf(path, sizeof(path), "%s/" SBX_LANGUAGES_FILE, name);
    fd = openat(dir, path, O_RDONLY|O_CLOEXEC|O_NONBLOCK);

    if (fd == -1 && (errno == ENOENT || errno == ENOTDIR)) {
        return;
    }

    n = fd != -1 && sbx_languages_safe(fd)
        ? sbx_read_full(fd, text, sizeof(text)) : -1;

    if (n <= 0 || n == sizeof(text)) {
        sbx_log(SBX_LOG_WARN, NULL, 0,
                "the language \"%s\" is left out: its description cannot be "
                "read, or is not root's alone", name);
        return;
    }

    if (sbx_language_add(l->table, &l->size, name, text, (size_t) n, &e)
        != 0)
    {
        sbx_log_error(SBX_LOG_WARN, NULL, &e, "a language is left out");
        return;
    }

    sbx_languages_row(l, name, text, (size_t) n);
}


static void
sbx_languages_row(sbx_languages_t *l, const char *name, const char *text,
    size_t size)
{
    char                 line[512], *space;
    unsigned             i;
    sbx_language_row_t  *row;

    row = &l->rows[l->nrows++];
    (void) snprintf(row->name, sizeof(row->name), "%s", name);

    for (i = 0;
         sbx_language_line_of(text, size, "needs", i, line, sizeof(line))
         == 0;
         i++)
    {
        if (access(line, X_OK) == -1 && row->lacks[0] == '\0') {
            (void) snprintf(row->lacks, sizeof(row->lacks), "%.100s", line);
        }
    }

    for (i = 0;
         row->nwants < SBX_LANGUAGE_WANTS
         && sbx_language_line_of(text, size, "wants", i, line, sizeof(line))
            == 0;
         i++)
    {
        space = strpbrk(line, " \t");

        if (space == NULL) {
            continue;
        }

        *space = '\0';
        (void) snprintf(row->wants[row->nwants].name,
                        sizeof(row->wants[0].name), "%.30s", line);
        (void) snprintf(row->wants[row->nwants].command,
                        sizeof(row->wants[0].command), "%s", space + 1);
        row->nwants++;
    }

    if (sbx_language_line_of(text, size, "mend", 0, row->mend,
                             sizeof(row->mend))
        != 0)
    {
        (void) snprintf(row->mend, sizeof(row->mend),
                        "install what \"%s\" needs", name);
    }
}


static void
sbx_languages_timer(sbx_timer_t *timer)
{
    sbx_languages_look(timer->data);
}


/* Once. */

void
sbx_languages_look(sbx_broker_t *b)
{
    int               fds[2];
    sbx_languages_t  *l;

    l = b->languages;

    if (l == NULL || l->looked) {
        return;
    }

    l->looked = 1;
    sbx_timer_del(&b->loop, &l->timer);

    if (pipe2(fds, O_CLOEXEC) == -1) {
        return;
    }

    l->pid = fork();

    if (l->pid == 0) {
        sbx_languages_child(l, fds[1]);
    }

    (void) close(fds[1]);
    l->fd = fds[0];

    if (l->pid == -1
        || sbx_event_add(&b->loop, &l->event, l->fd, EPOLLIN) == -1)
    {
        sbx_languages_over(b);
    }
}


/* A byte for each command, in their order. */

static void
sbx_languages_event(sbx_event_t *ev, uint32_t events)
{
    char                  byte;
    sbx_broker_t         *b;
    sbx_languages_t      *l;
    sbx_language_want_t  *want;

    (void) events;

    b = ev->data;
    l = b->languages;

    if (read(l->fd, &byte, 1) != 1) {
        sbx_event_del(&b->loop, ev);
        sbx_languages_over(b);
        return;
    }

    while (l->row < l->nrows && l->want == l->rows[l->row].nwants) {
        l->row++;
        l->want = 0;
    }

    if (l->row < l->nrows) {
        want = &l->rows[l->row].wants[l->want++];
        want->known = 1;
        want->there = byte == '1';
    }
}


static void
sbx_languages_over(sbx_broker_t *b)
{
    sbx_languages_t  *l;

    l = b->languages;

    if (l->fd != -1) {
        (void) close(l->fd);
        l->fd = -1;
    }

    if (l->pid > 0) {
        /* it has ended, or is made to */
        (void) kill(l->pid, SIGKILL);

        while (waitpid(l->pid, NULL, 0) == -1 && errno == EINTR) {
            /* void */
        }
    }

    l->pid = 0;
}


static void
sbx_languages_child(const sbx_languages_t *l, int fd)
{
    int       null;
    char      byte;
    unsigned  i, k;
    sigset_t  none;

    (void) prctl(PR_SET_PDEATHSIG, SIGKILL);
    (void) setpriority(PRIO_PROCESS, 0, SBX_LANGUAGES_NICE);
    (void) sigemptyset(&none);
    (void) sigprocmask(SIG_SETMASK, &none, NULL);
    (void) umask(022);

    null = open("/dev/null", O_RDWR);
    fd = fcntl(fd, F_DUPFD, 10);

    if (null == -1 || fd == -1 || dup2(null, 0) == -1 || dup2(null, 1) == -1
        || dup2(null, 2) == -1 || chdir("/") == -1)
    {
        _exit(1);
    }

    (void) syscall(SYS_close_range, 3, fd - 1, 0);
    (void) syscall(SYS_close_range, fd + 1, ~0u, 0);
    (void) fcntl(fd, F_SETFD, FD_CLOEXEC);

    for (i = 0; i < l->nrows; i++) {
        for (k = 0; k < l->rows[i].nwants; k++) {
            byte = sbx_languages_probe(l->rows[i].wants[k].command) ? '1'
                                                                    : '0';

            if (write(fd, &byte, 1) != 1) {
                _exit(1);
            }
        }
    }

    _exit(0);
}


static int
sbx_languages_probe(const char *command)
{
    int              status, i;
    pid_t            pid;
    char            *argv[] = { (char *) (uintptr_t) "sh",
                                (char *) (uintptr_t) "-c",
                                (char *) (uintptr_t) command, NULL };
    char            *envp[] = {
        (char *) (uintptr_t) "PATH=/usr/local/bin:/usr/bin:/bin",
        (char *) (uintptr_t) "HOME=/nonexistent",
        (char *) (uintptr_t) "PYTHONDONTWRITEBYTECODE=1", NULL
    };
    struct timespec  pause = { 0, 20000000 };

    pid = fork();

    if (pid == 0) {
        (void) setpgid(0, 0);
        (void) syscall(SYS_setgroups, 0, NULL);
        (void) syscall(SYS_setresgid, SBX_LANGUAGES_NOBODY,
                       SBX_LANGUAGES_NOBODY, SBX_LANGUAGES_NOBODY);

        if (syscall(SYS_setresuid, SBX_LANGUAGES_NOBODY,
                    SBX_LANGUAGES_NOBODY, SBX_LANGUAGES_NOBODY)
            == 0)
        {
            (void) prctl(PR_SET_PDEATHSIG, SIGKILL);
            (void) execve("/bin/sh", argv, envp);
        }

        _exit(127);
    }

    if (pid == -1) {
        return 0;
    }

    for (i = 0; i < SBX_LANGUAGES_PROBE / 20; i++) {
        if (waitpid(pid, &status, WNOHANG) == pid) {
            return WIFEXITED(status) && WEXITSTATUS(status) == 0;
        }

        (void) nanosleep(&pause, NULL);
    }

    (void) kill(-pid, SIGKILL);
    (void) kill(pid, SIGKILL);
    (void) waitpid(pid, NULL, 0);

    return 1;
}


/* The doctor's rows, from what is known by now. */

void
sbx_languages_checks(sbx_broker_t *b,
    void (*check)(const sbx_f_check_t *c, void *data), void *data)
{
    int                         n;
    unsigned                    i, k, lacks, unknown;
    sbx_f_check_t               c;
    sbx_languages_t            *l;
    const sbx_language_row_t   *row;
    const sbx_language_want_t  *want;

    l = b->languages;

    if (l == NULL) {
        return;
    }

    sbx_languages_look(b);

    for (i = 0; i < l->nrows; i++) {
        row = &l->rows[i];
        memset(&c, 0, sizeof(c));
        (void) snprintf(c.name, sizeof(c.name), "language_%.28s", row->name);
        lacks = 0;
        unknown = 0;
        n = 0;

        if (row->lacks[0] != '\0') {
            lacks = 1;
            n = snprintf(c.found, sizeof(c.found), "there is no %s",
                         row->lacks);
        }

        for (k = 0; k < row->nwants && row->lacks[0] == '\0'; k++) {
            want = &row->wants[k];
            unknown += !want->known && l->fd != -1;

            if ((!want->known && l->fd == -1) || (want->known && !want->there))
            {
                n += snprintf(c.found + n, sizeof(c.found) - (size_t) n,
                              "%s%s", lacks++ == 0 ? "it runs, without "
                                                   : ", ", want->name);
                n = n < (int) sizeof(c.found) ? n
                                              : (int) sizeof(c.found) - 1;
            }
        }

        if (lacks == 0) {
            (void) snprintf(c.found, sizeof(c.found),
                            unknown ? "the program is there, its packages "
                                      "are being looked for"
                                    : "all that it can use is there");
        }

        c.ok = lacks == 0;

        if (!c.ok) {
            (void) snprintf(c.mend, sizeof(c.mend), "%s", row->mend);
        }

        check(&c, data);
    }
}


void
sbx_languages_close(sbx_broker_t *b)
{
    sbx_languages_t  *l;

    l = b->languages;

    if (l == NULL) {
        return;
    }

    sbx_timer_del(&b->loop, &l->timer);

    if (l->fd != -1) {
        sbx_event_del(&b->loop, &l->event);
    }

    sbx_languages_over(b);
    free(l);
    b->languages = NULL;
}
