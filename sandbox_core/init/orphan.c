/*
 * What commands have left behind, one by one: the processes of the groups
 * that left.c watches.  Of a stranger's process only that is read which
 * makes nobody wait: its name, its age and its user's number; not its memory
 * (and so not its arguments), whose pages a hostile one could withhold.
 */

#include "init_process.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>


#define SBX_INIT_ORPHANS_READ   65536     /* bytes of a group's list */


static const char *sbx_init_orphans(int procs);
static int sbx_init_orphan_in(int pid, const sbx_f_state_t **state,
    const char **tag);
static int64_t sbx_init_orphan_started(const char *stat);


/* Pids, one a line, in no order. */

static const char *
sbx_init_orphans(int procs)
{
    ssize_t      n;
    static char  buf[SBX_INIT_ORPHANS_READ];

    n = procs != -1 ? pread(procs, buf, sizeof(buf) - 1, 0) : -1;
    buf[n > 0 ? n : 0] = '\0';

    return buf;
}


/* The least one above that of the last turn. */

int
sbx_init_orphan_next(sbx_init_turn_t *turn)
{
    int          pid, best, procs;
    char        *end;
    const char  *p, *tag;

    for ( ;; ) {
        if (turn->group == -1) {
            turn->group = 0;
            turn->pid = 0;
        }

        if (turn->group == SBX_COMMANDS_MAX) {
            return 0;
        }

        best = 0;
        p = sbx_init_left_group((unsigned) turn->group, &procs, &tag) != NULL
            ? sbx_init_orphans(procs) : "";

        for ( ;; ) {
            pid = (int) strtol(p, &end, 10);

            if (end == p) {
                break;
            }

            if (pid > turn->pid && (best == 0 || pid < best)) {
                best = pid;
            }

            p = end;
        }

        if (best != 0) {
            turn->pid = best;
            return best;
        }

        turn->group++;
        turn->pid = 0;
    }
}


static int
sbx_init_orphan_in(int pid, const sbx_f_state_t **state, const char **tag)
{
    int          one, procs;
    char        *end;
    unsigned     i;
    const char  *p;

    for (i = 0; i < SBX_COMMANDS_MAX; i++) {
        *state = sbx_init_left_group(i, &procs, tag);

        if (*state == NULL) {
            continue;
        }

        for (p = sbx_init_orphans(procs); /* void */ ; p = end) {
            one = (int) strtol(p, &end, 10);

            if (end == p) {
                break;
            }

            if (one == pid) {
                return 1;
            }
        }
    }

    return 0;
}


int
sbx_init_orphan_is(int pid)
{
    const char           *tag;
    const sbx_f_state_t  *state;

    return pid > 1 && sbx_init_orphan_in(pid, &state, &tag);
}


size_t
sbx_init_orphan_frame(int pid, uint8_t *buffer)
{
    char                  path[64], stat_[1024], *name, *end;
    size_t                n, len, tag_len;
    const char           *tag;
    struct stat           st;
    sbx_f_state_t         state;
    const sbx_f_state_t  *of;

    (void) snprintf(path, sizeof(path), "/proc/%d/stat", pid);

    if (!sbx_init_orphan_in(pid, &of, &tag)
        || sbx_read_at(AT_FDCWD, path, stat_, sizeof(stat_)) <= 0
        || stat(path, &st) == -1)
    {
        return 0;
    }

    name = strchr(stat_, '(');
    end = strrchr(stat_, ')');

    if (name == NULL || end == NULL || end < name) {
        return 0;
    }

    name++;
    *end = '\0';
    len = strlen(name) + 1;
    tag_len = of->tag_len;

    memset(&state, 0, sizeof(state));
    state.pid = pid;
    state.kind = SBX_KIND_ORPHAN;
    state.user = st.st_uid == 0 ? SBX_USER_ROOT : SBX_USER_USER;
    state.argc = 1;
    state.tag_len = (uint32_t) tag_len;
    state.args_len = (uint32_t) len;
    state.started = sbx_init_orphan_started(end + 1);
    state.flags = SBX_STATE_CUT;

    n = sbx_wire_header(buffer, SBX_F_STATE, sizeof(state) + tag_len + len);
    memcpy(buffer + n, &state, sizeof(state));
    n += sizeof(state);
    memcpy(buffer + n, tag, tag_len);
    n += tag_len;
    memcpy(buffer + n, name, len);

    return n + len;
}


/* The 22nd field of all: ticks since the machine's start. */

static int64_t
sbx_init_orphan_started(const char *stat)
{
    int              i;
    int64_t          now, boot;
    const char      *p;
    struct timespec  ts;

    for (p = stat, i = 2; p != NULL && i < 22; i++) {
        p = strchr(p + 1, ' ');
    }

    if (p == NULL || clock_gettime(CLOCK_REALTIME, &ts) == -1) {
        return 0;
    }

    now = (int64_t) ts.tv_sec * 1000 + ts.tv_nsec / 1000000;

    if (clock_gettime(CLOCK_BOOTTIME, &ts) == -1) {
        return 0;
    }

    boot = (int64_t) ts.tv_sec * 1000 + ts.tv_nsec / 1000000;

    return now - boot
           + (int64_t) strtoull(p, NULL, 10) * 1000 / sysconf(_SC_CLK_TCK);
}


/* By a descriptor: its number may be another's by the time it is sent. */

int
sbx_init_orphan_signal(int pid, int sig)
{
    sbx_auto_fd  fd = -1;

    fd = (int) syscall(SYS_pidfd_open, pid, 0);

    if (fd == -1) {
        return -1;
    }

    if (!sbx_init_orphan_is(pid)) {
        errno = ESRCH;
        return -1;
    }

    return (int) syscall(SYS_pidfd_send_signal, fd, sig, NULL, 0);
}
