/*
 * What a command has used, from the files of its group that the broker
 * opened; where one is missing, from what the kernel says of the leader and
 * of those of its children that were waited for.
 */

#include "init.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>


static ssize_t sbx_init_usage_read(int fd, char *buf, size_t size);
static int sbx_init_usage_key(const char *text, const char *key,
    uint64_t *value);
static uint64_t sbx_init_usage_number(int fd);
static void sbx_init_usage_io(int fd, sbx_f_exit_t *x);
static uint64_t sbx_init_usage_time(const struct timeval *tv);


static ssize_t
sbx_init_usage_read(int fd, char *buf, size_t size)
{
    ssize_t  n;

    buf[0] = '\0';

    if (fd == -1) {
        return -1;
    }

    n = pread(fd, buf, size - 1, 0);

    if (n < 0) {
        return -1;
    }

    buf[n] = '\0';

    return n;
}


/* "key N" at the beginning of a line. */

static int
sbx_init_usage_key(const char *text, const char *key, uint64_t *value)
{
    size_t       len;
    const char  *p;

    len = strlen(key);

    for (p = text; p != NULL && *p != '\0'; p = strchr(p, '\n')) {

        if (*p == '\n') {
            p++;
        }

        if (strncmp(p, key, len) == 0 && p[len] == ' ') {
            *value = strtoull(p + len + 1, NULL, 10);
            return 1;
        }
    }

    return 0;
}


static uint64_t
sbx_init_usage_number(int fd)
{
    char  buf[64];

    if (sbx_init_usage_read(fd, buf, sizeof(buf)) <= 0) {
        return 0;
    }

    return strtoull(buf, NULL, 10);
}


static uint64_t
sbx_init_usage_time(const struct timeval *tv)
{
    return (uint64_t) tv->tv_sec * 1000000 + (uint64_t) tv->tv_usec;
}


void
sbx_init_usage(sbx_init_command_t *c, sbx_f_exit_t *x)
{
    char      buf[2048];
    uint64_t  ns;

    if (sbx_init_usage_read(c->fds[SBX_INIT_FD_CPU], buf, sizeof(buf)) <= 0
        || !sbx_init_usage_key(buf, "user_usec", &x->cpu_user_us)
        || !sbx_init_usage_key(buf, "system_usec", &x->cpu_system_us))
    {
        x->cpu_user_us = sbx_init_usage_time(&c->rusage.ru_utime);
        x->cpu_system_us = sbx_init_usage_time(&c->rusage.ru_stime);
    }

    x->memory_peak = sbx_init_usage_number(c->fds[SBX_INIT_FD_MEMORY_PEAK]);

    if (x->memory_peak == 0) {
        x->memory_peak = (uint64_t) c->rusage.ru_maxrss * 1024;
    }

    x->processes_peak = sbx_init_usage_number(c->fds[SBX_INIT_FD_PIDS_PEAK]);

    if (sbx_init_usage_read(c->fds[SBX_INIT_FD_THROTTLE], buf, sizeof(buf))
            > 0
        && !sbx_init_usage_key(buf, "throttled_usec", &x->throttled_us)
        && sbx_init_usage_key(buf, "throttled_time", &ns))
    {
        x->throttled_us = ns / 1000;
    }

    sbx_init_usage_io(c->fds[SBX_INIT_FD_IO], x);

    if (x->read_bytes == 0 && x->written_bytes == 0) {
        x->read_bytes = (uint64_t) c->rusage.ru_inblock * 512;
        x->written_bytes = (uint64_t) c->rusage.ru_oublock * 512;
    }
}


/*
 * A line for each device, and on it rbytes=N wbytes=N among others.  What
 * goes to a loop device is counted a second time where its file lies.
 */

static void
sbx_init_usage_io(int fd, sbx_f_exit_t *x)
{
    char    buf[4096], *line, *next, *p;
    size_t  i;

    struct {
        const char  *key;
        uint64_t    *sum;
    } keys[] = {
        { "rbytes=", &x->read_bytes },
        { "wbytes=", &x->written_bytes }
    };

    if (sbx_init_usage_read(fd, buf, sizeof(buf)) <= 0) {
        return;
    }

    for (line = buf; line != NULL && *line != '\0'; line = next) {
        next = strchr(line, '\n');

        if (next != NULL) {
            *next++ = '\0';
        }

        for (i = 0; i < sbx_nelts(keys); i++) {
            p = strstr(line, keys[i].key);

            if (p != NULL && strncmp(line, "7:", 2) != 0) {
                *keys[i].sum += strtoull(p + strlen(keys[i].key), NULL, 10);
            }
        }
    }
}


int
sbx_init_usage_cpu_of(int fd, uint64_t *used)
{
    char  buf[512];

    return sbx_init_usage_read(fd, buf, sizeof(buf)) > 0
           && sbx_init_usage_key(buf, "usage_usec", used);
}


uint64_t
sbx_init_usage_cpu(sbx_init_command_t *c)
{
    uint64_t         used;
    struct timespec  ts;

    if (sbx_init_usage_cpu_of(c->fds[SBX_INIT_FD_CPU], &used)) {
        return used;
    }

    /* the clock of one process: the leader's, all that can be seen */

    if (c->pid > 0 && !c->reaped
        && clock_gettime((clockid_t) (~(unsigned) c->pid << 3 | 2), &ts) == 0)
    {
        return (uint64_t) ts.tv_sec * 1000000 + (uint64_t) ts.tv_nsec / 1000;
    }

    return 0;
}


uint64_t
sbx_init_usage_oom(sbx_init_command_t *c)
{
    return sbx_init_usage_oom_of(c->fds[SBX_INIT_FD_OOM]);
}


uint64_t
sbx_init_usage_oom_of(int fd)
{
    char      buf[512];
    uint64_t  kills;

    if (sbx_init_usage_read(fd, buf, sizeof(buf)) > 0
        && sbx_init_usage_key(buf, "oom_kill", &kills))
    {
        return kills;
    }

    return 0;
}


/* It does of memory.events, and never of v1's memory.oom_control. */

int
sbx_init_usage_oom_told(int fd)
{
    char      buf[512];
    uint64_t  count;

    return sbx_init_usage_read(fd, buf, sizeof(buf)) > 0
           && sbx_init_usage_key(buf, "max", &count);
}


int
sbx_init_usage_populated(sbx_init_command_t *c)
{
    return sbx_init_usage_populated_of(c->fds[SBX_INIT_FD_POPULATED]);
}


int
sbx_init_usage_populated_of(int fd)
{
    char      buf[256];
    uint64_t  populated;

    if (sbx_init_usage_read(fd, buf, sizeof(buf)) > 0
        && sbx_init_usage_key(buf, "populated", &populated))
    {
        return populated != 0;
    }

    return -1;
}
