/*
 * Between fork and exec, in the first process's child: the group, limits,
 * standard streams, the working directory, the program.  Rights and filters
 * are the first process's own and need no change.
 */

#include "box.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>


#define SBX_COMMAND_MEMLOCK    (8u << 20)
#define SBX_COMMAND_MSGQUEUE   819200
#define SBX_COMMAND_PENDING    4096
#define SBX_COMMAND_REPORT     3


typedef struct {
    int       resource;
    uint64_t  value;
    unsigned  asked:1;            /* else no more than the caller has */
    const char *name;
} sbx_command_limit_t;


static unsigned sbx_command_limits(const sbx_box_t *box,
    sbx_command_limit_t *limits);
static int sbx_command_set_limits(const sbx_box_t *box);
static int sbx_command_stdio(const sbx_box_t *box);
static void sbx_command_cpus(const sbx_box_t *box);
static int sbx_command_there(const char *name);
static void sbx_command_fail(int report, uint32_t stage)
    __attribute__((noreturn));


#define SBX_COMMAND_LIMITS   16


static unsigned
sbx_command_limits(const sbx_box_t *box, sbx_command_limit_t *limits)
{
    unsigned             i, n;
    const sbx_limits_t  *l;

    l = &box->request.limits;

    const sbx_command_limit_t  all[] = {
        { RLIMIT_NOFILE, l->open_files, 1, "open_files" },
        { RLIMIT_FSIZE, l->max_file_size, 1, "max_file_size" },
        { RLIMIT_STACK, l->stack, 1, "stack" },
        { RLIMIT_AS, box->rlimit_memory ? l->memory : SBX_UNSET, 1,
          "memory" },
        { RLIMIT_DATA, box->rlimit_memory ? l->memory : SBX_UNSET, 1,
          "memory" },
        { RLIMIT_CPU, l->cpu_seconds >= SBX_UNLIMITED ? SBX_UNSET
                      : l->cpu_seconds / 1000 + 2, 1, "cpu_seconds" },
        /* the first process of the run counts as well */
        { RLIMIT_NPROC, box->count && l->processes < SBX_UNLIMITED
                        ? l->processes + 1 : SBX_UNSET, 1, "processes" },
        /* at 0 the kernel runs the host's crash handler */
        { RLIMIT_CORE, 1, 0, NULL },
        { RLIMIT_MEMLOCK, SBX_COMMAND_MEMLOCK, 0, NULL },
        { RLIMIT_MSGQUEUE, SBX_COMMAND_MSGQUEUE, 0, NULL },
        { RLIMIT_SIGPENDING, SBX_COMMAND_PENDING, 0, NULL },
        { RLIMIT_RTPRIO, 0, 0, NULL },
        { RLIMIT_NICE, 0, 0, NULL }
    };

    n = 0;

    for (i = 0; i < sbx_nelts(all); i++) {
        if (all[i].value < SBX_UNLIMITED) {
            limits[n++] = all[i];
        }
    }

    return n;
}


/* Where the caller has less than is asked for, root raises its own. */
int
sbx_box_limits_check(const sbx_box_t *box, sbx_error_t *e)
{
    unsigned             i, n;
    struct rlimit64      own;
    sbx_command_limit_t  limits[SBX_COMMAND_LIMITS];

    n = sbx_command_limits(box, limits);

    for (i = 0; i < n; i++) {
        if (!limits[i].asked || limits[i].resource == RLIMIT_CPU
            || getrlimit64(limits[i].resource, &own) == -1
            || own.rlim_max >= limits[i].value)
        {
            continue;
        }

        own.rlim_max = limits[i].value;

        if (setrlimit64(limits[i].resource, &own) == -1) {
            (void) getrlimit64(limits[i].resource, &own);

            return sbx_error(e, errno, SBX_E_MANIFEST,
                             "%s asks for %" PRIu64 ", but the hard limit "
                             "of the caller is %" PRIu64, limits[i].name,
                             limits[i].value, (uint64_t) own.rlim_max);
        }
    }

    return 0;
}


static int
sbx_command_set_limits(const sbx_box_t *box)
{
    unsigned             i, n;
    struct rlimit64      own, limit;
    sbx_command_limit_t  limits[SBX_COMMAND_LIMITS];

    n = sbx_command_limits(box, limits);

    for (i = 0; i < n; i++) {
        limit.rlim_cur = limits[i].value;
        limit.rlim_max = limits[i].value;

        if (limits[i].resource == RLIMIT_CPU) {
            limit.rlim_max++;
        }

        if (getrlimit64(limits[i].resource, &own) == 0
            && own.rlim_max < limit.rlim_max)
        {
            limit.rlim_max = own.rlim_max;

            if (limit.rlim_cur > own.rlim_max) {
                limit.rlim_cur = own.rlim_max;
            }
        }

        if (setrlimit64(limits[i].resource, &limit) == -1) {
            return -1;
        }
    }

    return 0;
}


static int
sbx_command_stdio(const sbx_box_t *box)
{
    int  i, fd;

    for (i = 0; i < 3; i++) {
        fd = box->stdio[i];

        if (fd == -1) {
            fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
        }

        if (fd == -1 || dup2(fd, i) == -1) {
            return -1;
        }
    }

    return 0;
}


static void
sbx_command_fail(int report, uint32_t stage)
{
    uint32_t  text[2];

    text[0] = stage;
    text[1] = (uint32_t) errno;
    (void) !write(report, text, sizeof(text));
    _exit(127);
}


void
sbx_box_command(const sbx_box_t *box, int report)
{
    unsigned     i;
    sigset_t     none;
    const char  *cwd;

    for (i = 0; i < box->nattach; i++) {
        if (write(box->files[i], "0", 1) != 1) {
            sbx_command_fail(report, SBX_COMMAND_SETUP);
        }
    }

    (void) setsid();
    (void) umask(022);

    if (sbx_command_stdio(box) == -1
        || dup3(report, SBX_COMMAND_REPORT, O_CLOEXEC) == -1)
    {
        sbx_command_fail(report, SBX_COMMAND_SETUP);
    }

    report = SBX_COMMAND_REPORT;

    /* before the directory, so that /proc/self/fd/9 leads nowhere, and
       before the limits, which may be lower than what is open here */

    if (sbx_sys_close_range(SBX_COMMAND_REPORT + 1, ~0u, 0) == -1
        || sbx_command_set_limits(box) == -1)
    {
        sbx_command_fail(report, SBX_COMMAND_SETUP);
    }

    cwd = box->string[SBX_BOX_CWD];

    if (chdir(box->string[SBX_BOX_WORKSPACE]) == -1
        || (cwd[0] != '\0' && chdir(cwd) == -1))
    {
        sbx_command_fail(report, SBX_COMMAND_CWD);
    }

    sbx_command_cpus(box);

    (void) signal(SIGPIPE, SIG_DFL);
    (void) sigemptyset(&none);
    (void) sigprocmask(SIG_SETMASK, &none, NULL);

    environ = box->list[SBX_BOX_ENV];
    (void) execvp(box->list[SBX_BOX_ARGV][0], box->list[SBX_BOX_ARGV]);

    if (errno == EACCES && !sbx_command_there(box->list[SBX_BOX_ARGV][0])) {
        errno = ENOENT;
    }

    sbx_command_fail(report, SBX_COMMAND_EXEC);
}


/*
 * Whether PATH has a file of that name: a directory of it that may not be
 * searched (root's own, mostly) makes execvp() say EACCES of any.
 */

static int
sbx_command_there(const char *name)
{
    char         file[PATH_MAX];
    size_t       len;
    const char  *path;

    path = getenv("PATH");

    if (strchr(name, '/') != NULL || path == NULL) {
        return 1;
    }

    for ( ;; ) {
        len = strcspn(path, ":");

        if (snprintf(file, sizeof(file), "%.*s%s%s", (int) len, path,
                     len != 0 ? "/" : "", name) < (int) sizeof(file)
            && access(file, F_OK) == 0)
        {
            return 1;
        }

        if (path[len] == '\0') {
            return 0;
        }

        path += len + 1;
    }
}


/*
 * As many processors as the run's share, rounded up, from a place of the
 * list that differs from run to run.  A hint to programs that count them:
 * they may widen it, and the group's quota holds them all the same.
 */

static void
sbx_command_cpus(const sbx_box_t *box)
{
    int              cpu;
    unsigned         i, have, want, first;
    uint64_t         cpus;
    cpu_set_t        own, mine;
    struct timespec  now;

    cpus = box->request.limits.cpus;

    if (cpus >= SBX_UNLIMITED
        || sched_getaffinity(0, sizeof(own), &own) == -1)
    {
        return;
    }

    have = (unsigned) CPU_COUNT(&own);

    if ((cpus + 999) / 1000 >= have) {
        return;
    }

    want = (unsigned) ((cpus + 999) / 1000);
    (void) clock_gettime(CLOCK_MONOTONIC, &now);
    first = (unsigned) (now.tv_nsec / 1000) % have;
    CPU_ZERO(&mine);

    for (cpu = 0, i = 0; cpu < CPU_SETSIZE; cpu++) {
        if (CPU_ISSET(cpu, &own) && (i++ + have - first) % have < want) {
            CPU_SET(cpu, &mine);
        }
    }

    (void) sched_setaffinity(0, sizeof(mine), &mine);
}
