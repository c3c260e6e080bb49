/*
 * Ending all that a command has started.  Its control group does it in one
 * stroke, forks under way included.  Where the machine has no such file
 * (which a session without full isolation may meet), the processes that can
 * be seen are walked instead: those of the leader's session and group, and
 * their descendants; one that is both a new session and an orphan escapes.
 */

#include "init.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>


#define SBX_INIT_WALK_MAX   1024
#define SBX_INIT_ZOMBIE     1


typedef struct {
    pid_t   pid;
    pid_t   parent;
    pid_t   group;
    pid_t   session;
    int     marked;
} sbx_init_seen_t;


static unsigned sbx_init_kill_list(sbx_init_seen_t *list);
static int sbx_init_kill_stat(int proc, const char *name,
    sbx_init_seen_t *process);
static int sbx_init_kill_walk(pid_t leader, int sig);


void
sbx_init_kill_hurry(int fd)
{
    /* the words of v2 and of v1; one of them is refused */

    if (fd != -1 && pwrite(fd, "max", 3, 0) == -1) {
        (void) (pwrite(fd, "-1", 2, 0) == -1);
    }
}


void
sbx_init_kill_group(int fd, pid_t leader)
{
    if ((fd == -1 || pwrite(fd, "1", 1, 0) != 1) && leader > 0) {
        (void) sbx_init_kill_walk(leader, SIGKILL);
    }

    if (leader > 0) {
        (void) kill(leader, SIGKILL);
        (void) kill(-leader, SIGKILL);
    }
}


int
sbx_init_kill_zombie(pid_t pid)
{
    char             name[16];
    int              proc, rc;
    sbx_init_seen_t  seen;

    proc = open("/proc", O_RDONLY|O_DIRECTORY|O_CLOEXEC);

    if (proc == -1) {
        return 0;
    }

    (void) snprintf(name, sizeof(name), "%d", (int) pid);
    rc = sbx_init_kill_stat(proc, name, &seen);
    (void) close(proc);

    return rc == SBX_INIT_ZOMBIE;
}


int
sbx_init_kill_left(pid_t leader)
{
    return sbx_init_kill_walk(leader, SIGKILL) != 0;
}


/* How many were met. */

static int
sbx_init_kill_walk(pid_t leader, int sig)
{
    int                        found, more;
    unsigned                   i, k, n;
    sbx_init_seen_t        *p;
    static sbx_init_seen_t  list[SBX_INIT_WALK_MAX];

    n = sbx_init_kill_list(list);
    found = 0;

    do {
        more = 0;

        for (i = 0; i < n; i++) {
            p = &list[i];

            if (p->marked) {
                continue;
            }

            for (k = 0; k < n; k++) {
                if (list[k].marked && list[k].pid == p->parent) {
                    break;
                }
            }

            if (k < n || p->pid == leader || p->session == leader
                || p->group == leader)
            {
                p->marked = 1;
                more = 1;
                found++;
                (void) kill(p->pid, sig);
            }
        }
    } while (more);

    return found;
}


static unsigned
sbx_init_kill_list(sbx_init_seen_t *list)
{
    DIR            *dir;
    unsigned        n;
    struct dirent  *de;

    dir = opendir("/proc");

    if (dir == NULL) {
        return 0;
    }

    n = 0;

    while (n < SBX_INIT_WALK_MAX && (de = readdir(dir)) != NULL) {
        if (de->d_name[0] < '1' || de->d_name[0] > '9') {
            continue;
        }

        if (sbx_init_kill_stat(dirfd(dir), de->d_name, &list[n]) == 0
            && list[n].pid != 1)
        {
            n++;
        }
    }

    (void) closedir(dir);

    return n;
}


/* "pid (name) state parent group session": the name may hold anything. */

static int
sbx_init_kill_stat(int proc, const char *name, sbx_init_seen_t *process)
{
    char         path[64], buf[512], state;
    const char  *p;

    (void) snprintf(path, sizeof(path), "%.20s/stat", name);

    if (sbx_read_at(proc, path, buf, sizeof(buf)) <= 0) {
        return -1;
    }

    p = strrchr(buf, ')');

    if (p == NULL
        || sscanf(p + 1, " %c %d %d %d", &state, &process->parent,
                  &process->group, &process->session)
           != 4)
    {
        return -1;
    }

    if (state == 'Z') {
        return SBX_INIT_ZOMBIE;
    }

    process->pid = atoi(name);
    process->marked = 0;

    return 0;
}
