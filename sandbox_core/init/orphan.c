/*
 * What commands have left behind, one by one: the processes of the groups
 * that left.c watches.  Of such a process its number is known, and what the
 * command was that left it; init sees no more of it, and must not: a hostile
 * one could withhold the pages that its arguments lie on.
 */

#include "init_process.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>


#define SBX_INIT_ORPHANS_READ   65536     /* bytes of a group's list */
#define SBX_INIT_ORPHANS_TOLD   256       /* of a session's end */


static struct {
    int       read;                       /* the rest is this group's */
    int       group;
    unsigned  n;
    int       pids[SBX_INIT_ORPHANS_READ / 2];
} sbx_init_orphan_seen;


static const char *sbx_init_orphans(int procs);
static void sbx_init_orphan_read(int group);
static int sbx_init_orphan_order(const void *a, const void *b);
static size_t sbx_init_orphan_write(int pid, const sbx_f_state_t *of,
    const char *strings, uint8_t *buffer);
static int sbx_init_orphan_in(int pid, const sbx_f_state_t **state,
    const char **strings);


/* Pids, one a line, in no order. */

static const char *
sbx_init_orphans(int procs)
{
    ssize_t      n;
    static char  buf[SBX_INIT_ORPHANS_READ];

    n = procs != -1 ? pread(procs, buf, sizeof(buf) - 1, 0) : -1;

    /* half a number is another one */

    while (n > 0 && buf[n - 1] != '\n') {
        n--;
    }

    buf[n > 0 ? n : 0] = '\0';

    return buf;
}


void
sbx_init_orphan_look(void)
{
    sbx_init_orphan_seen.read = 0;
}


/* The list of a group, once for all that are taken of it. */

static void
sbx_init_orphan_read(int group)
{
    int          pid, procs;
    char        *end;
    const char  *p, *strings;

    sbx_init_orphan_seen.read = 1;
    sbx_init_orphan_seen.group = group;
    sbx_init_orphan_seen.n = 0;

    if (sbx_init_left_group((unsigned) group, &procs, &strings) == NULL) {
        return;
    }

    for (p = sbx_init_orphans(procs); /* void */ ; p = end) {
        pid = (int) strtol(p, &end, 10);

        if (end == p) {
            break;
        }

        sbx_init_orphan_seen.pids[sbx_init_orphan_seen.n++] = pid;
    }

    qsort(sbx_init_orphan_seen.pids, sbx_init_orphan_seen.n, sizeof(int),
          sbx_init_orphan_order);
}


static int
sbx_init_orphan_order(const void *a, const void *b)
{
    int  x, y;

    x = *(const int *) a;
    y = *(const int *) b;

    return (x > y) - (x < y);
}


/* The least one above that of the last turn. */

int
sbx_init_orphan_next(sbx_init_turn_t *turn)
{
    unsigned  low, high, middle;

    if (turn->group == -1) {
        turn->group = 0;
        turn->pid = 0;
    }

    for ( /* void */ ; turn->group < SBX_COMMANDS_MAX; turn->group++) {

        if (!sbx_init_orphan_seen.read
            || sbx_init_orphan_seen.group != turn->group)
        {
            sbx_init_orphan_read(turn->group);
        }

        low = 0;
        high = sbx_init_orphan_seen.n;

        while (low < high) {
            middle = low + (high - low) / 2;

            if (sbx_init_orphan_seen.pids[middle] > turn->pid) {
                high = middle;

            } else {
                low = middle + 1;
            }
        }

        if (low < sbx_init_orphan_seen.n) {
            turn->pid = sbx_init_orphan_seen.pids[low];
            return turn->pid;
        }

        turn->pid = 0;
    }

    return 0;
}


static int
sbx_init_orphan_in(int pid, const sbx_f_state_t **state,
    const char **strings)
{
    int          one, procs;
    char        *end;
    unsigned     i;
    const char  *p;

    for (i = 0; i < SBX_COMMANDS_MAX; i++) {
        *state = sbx_init_left_group(i, &procs, strings);

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
    const char           *strings;
    const sbx_f_state_t  *state;

    return pid > 1 && sbx_init_orphan_in(pid, &state, &strings);
}


size_t
sbx_init_orphan_frame(int pid, uint8_t *buffer)
{
    const char           *strings;
    const sbx_f_state_t  *of;

    return sbx_init_orphan_in(pid, &of, &strings)
           ? sbx_init_orphan_write(pid, of, strings, buffer) : 0;
}


size_t
sbx_init_orphan_turn(const sbx_init_turn_t *turn, uint8_t *buffer)
{
    int                   procs;
    const char           *strings;
    const sbx_f_state_t  *of;

    of = sbx_init_left_group((unsigned) turn->group, &procs, &strings);

    return of != NULL
           ? sbx_init_orphan_write(turn->pid, of, strings, buffer) : 0;
}


static size_t
sbx_init_orphan_write(int pid, const sbx_f_state_t *of, const char *strings,
    uint8_t *buffer)
{
    size_t         n, size;
    sbx_f_state_t  state;

    state = *of;
    state.pid = pid;
    state.kind = SBX_KIND_ORPHAN;
    state.flags &= SBX_STATE_CUT;
    size = (size_t) state.cwd_len + state.tag_len + state.args_len
           + state.env_len;

    n = sbx_wire_header(buffer, SBX_F_STATE, sizeof(state) + size);
    memcpy(buffer + n, &state, sizeof(state));
    n += sizeof(state);
    memcpy(buffer + n, strings, size);

    return n + size;
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


/* More are not told: who has that many does not wait for words. */

void
sbx_init_orphan_terminate(void)
{
    int              pid;
    unsigned         n;
    sbx_init_turn_t  turn;

    memset(&turn, 0, sizeof(turn));
    turn.group = -1;
    sbx_init_orphan_look();

    for (n = 0; n < SBX_INIT_ORPHANS_TOLD; n++) {
        pid = sbx_init_orphan_next(&turn);

        if (pid == 0) {
            return;
        }

        (void) sbx_init_orphan_signal(pid, SIGTERM);
    }
}
