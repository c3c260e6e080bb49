/*
 * The cgroup of a run, where the caller may have one: root below its own
 * group, an ordinary user in a delegated one.  The same groups as those of a
 * session with one command, in a branch that all runs share.
 */

#include "box.h"
#include "cgroup_private.h"
#include "init.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>


#define SBX_GROUP_TRIES    8
#define SBX_GROUP_WAITS    200        /* of 5 ms, for the dead to go */


static int sbx_group_make(sbx_box_t *box, sbx_error_t *e);
static void sbx_group_name(char *id);
static void sbx_group_found(const char *id, void *data);
static void sbx_group_command(const sbx_box_t *box, sbx_init_command_t *c);


int
sbx_box_group_open(sbx_box_t *box, sbx_error_t *e)
{
    unsigned     i;
    sbx_error_t  why;

    /* who ends at this moment may remove the branch: then once more */

    for (i = 0; i < SBX_GROUP_TRIES; i++) {
        if (sbx_group_make(box, &why) == 0) {
            return 0;
        }

        sbx_box_group_close(box);

        if (why.code == SBX_E_UNAVAILABLE) {
            break;
        }
    }

    if (box->request.memory_strategy == SBX_MEMORY_CGROUP) {
        return sbx_error(e, why.err, SBX_E_MANIFEST,
                         "memory_strategy cgroup: %.190s", why.text);
    }

    if (box->root && box->note[0] == '\0') {
        (void) snprintf(box->note, sizeof(box->note), "no cgroup: %.220s",
                        why.text);
    }

    return 0;
}


static int
sbx_group_make(sbx_box_t *box, sbx_error_t *e)
{
    char          id[SBX_ID_MAX + 1];
    uint32_t      attach;
    sbx_limits_t  limits;

    if (sbx_cgroup_open(NULL, SBX_BOX_GROUP, &box->cg, e) == -1) {
        box->cg = NULL;
        return -1;
    }

    (void) sbx_cgroup_list(box->cg, sbx_group_found, box->cg, NULL);

    limits = box->request.limits;
    limits.disk = SBX_UNSET;

    if (box->request.memory_strategy == SBX_MEMORY_RLIMIT) {
        limits.memory = SBX_UNSET;
    }

    sbx_group_name(id);

    if (sbx_cgroup_session_create(box->cg, id, &limits, 0, &box->cs, e)
        == -1)
    {
        box->cs = NULL;
        return -1;
    }

    if (sbx_cgroup_command_create(box->cs, 1, &box->cc, e) == -1) {
        box->cc = NULL;
        return -1;
    }

    box->nfiles = sbx_cgroup_command_fds(box->cc, box->files,
                                         &box->files_mask, &attach);
    box->nattach = attach;

    if (box->nfiles == 0) {
        return sbx_error(e, errno, SBX_E_INTERNAL,
                         "cannot open the run's cgroup");
    }

    return 0;
}


/* With the helper's pid in it, so that what a killed one left is known. */
static void
sbx_group_name(char *id)
{
    size_t         i, n;
    unsigned char  random[12];

    if (getrandom(random, sizeof(random), 0) != sizeof(random)) {
        memset(random, 0, sizeof(random));
    }

    n = (size_t) sprintf(id, "ir%010dx", (int) getpid());

    for (i = 0; i < sizeof(random); i++) {
        id[n++] = (char) ('a' + random[i] % 26);
    }

    id[n] = '\0';
}


static void
sbx_group_found(const char *id, void *data)
{
    int       pid;
    uint64_t  populated;

    /* a helper of another pid namespace is not seen, but its run is */

    if (sscanf(id, "ir%10dx", &pid) == 1 && pid > 1 && kill(pid, 0) == -1
        && errno == ESRCH
        && sbx_cgroup_read_number(data, SBX_ROLE_CORE, id, "cgroup.events",
                                  "populated", &populated)
           == 0
        && populated == 0)
    {
        (void) sbx_cgroup_sweep(data, id, NULL);
    }
}


void
sbx_box_group_close(sbx_box_t *box)
{
    int       rc;
    unsigned  i;

    for (i = 0; i < box->nfiles; i++) {
        (void) close(box->files[i]);
    }

    box->nfiles = 0;
    box->nattach = 0;

    /* the last process is gone a moment before its group is empty */

    for (i = 0; box->cc != NULL && i < SBX_GROUP_WAITS; i++) {
        rc = sbx_cgroup_command_remove(box->cc, NULL);

        if (rc != 1) {
            box->cc = NULL;
            break;
        }

        (void) usleep(5000);
    }

    for (i = 0; box->cs != NULL && i < SBX_GROUP_WAITS; i++) {
        if (sbx_cgroup_session_remove(box->cs, NULL) != 1) {
            break;
        }

        (void) usleep(5000);
    }

    sbx_cgroup_session_free(box->cs);
    box->cs = NULL;

    sbx_cgroup_close(box->cg);
    box->cg = NULL;
}


void
sbx_box_enforcement(const sbx_box_t *box, sbx_enforcement_t *enf)
{
    sbx_cgroup_enforcement(box->cg, enf);

    enf->disk = SBX_BY_NONE;
    enf->inodes = SBX_BY_NONE;

    if (box->cg == NULL) {
        enf->cpu_seconds = SBX_BY_POLL;
        enf->processes = SBX_BY_RLIMIT;
        enf->memory = SBX_BY_RLIMIT;
    }

    if (box->rlimit_memory) {
        enf->memory = SBX_BY_RLIMIT;
    }
}


sbx_enforce_t
sbx_box_measured(const sbx_box_t *box)
{
    sbx_enforcement_t  enf;

    if (sbx_box_group_blind(box)) {
        return SBX_BY_NONE;
    }

    sbx_cgroup_enforcement(box->cg, &enf);

    return (sbx_enforce_t) enf.memory;
}


int
sbx_box_group_blind(const sbx_box_t *box)
{
    uint32_t  needed;

    needed = 2u << SBX_INIT_FD_MEMORY_PEAK | 2u << SBX_INIT_FD_CPU;

    return box->nfiles == 0 || (box->files_mask & needed) != needed;
}


/* As init reads the files of a command's group. */
static void
sbx_group_command(const sbx_box_t *box, sbx_init_command_t *c)
{
    unsigned  i, n;

    memset(c, 0, sizeof(sbx_init_command_t));
    n = box->nattach;

    for (i = 0; i < SBX_INIT_FD_MAX; i++) {
        c->fds[i] = -1;

        if (n < box->nfiles && (box->files_mask & (2u << i)) != 0) {
            c->fds[i] = box->files[n++];
        }
    }
}


uint64_t
sbx_box_group_cpu(const sbx_box_t *box)
{
    sbx_init_command_t  c;

    sbx_group_command(box, &c);

    return sbx_init_usage_cpu(&c);
}


void
sbx_box_group_usage(const sbx_box_t *box, sbx_f_exit_t *x)
{
    uint64_t            processes;
    sbx_init_command_t  c;

    if (box->nfiles == 0) {
        return;
    }

    sbx_group_command(box, &c);

    c.rusage.ru_utime.tv_sec = (time_t) (x->cpu_user_us / 1000000);
    c.rusage.ru_utime.tv_usec = (suseconds_t) (x->cpu_user_us % 1000000);
    c.rusage.ru_stime.tv_sec = (time_t) (x->cpu_system_us / 1000000);
    c.rusage.ru_stime.tv_usec = (suseconds_t) (x->cpu_system_us % 1000000);
    c.rusage.ru_maxrss = (long) (x->memory_peak / 1024);
    c.rusage.ru_inblock = (long) (x->read_bytes / 512);
    c.rusage.ru_oublock = (long) (x->written_bytes / 512);
    x->read_bytes = 0;
    x->written_bytes = 0;
    processes = x->processes_peak;

    sbx_init_usage(&c, x);

    if (x->processes_peak == 0) {
        x->processes_peak = processes;
    }

    if (sbx_init_usage_oom(&c) != 0) {
        x->flags |= SBX_EXIT_OOM_KILLED;
    }
}
