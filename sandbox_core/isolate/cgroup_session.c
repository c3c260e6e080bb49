/*
 * A session's groups and those of its commands:
 *
 *   <id>               nothing but children
 *   <id>/init          process 1: a small memory limit of its own
 *   <id>/work          memory + disk (tmpfs pages stay charged after the
 *                      command that wrote them), cpu quota; frozen by pause,
 *                      killed by cancel
 *   <id>/work/files    who serves file calls: a few processes, so that a
 *                      session full of processes can still be read
 *   <id>/work/run      the session's process limit
 *   <id>/work/run/<n>  one command: the session's memory, used once
 *
 * Paths are put together anew for each call instead of keeping directories
 * open: a broker has hundreds of sessions and few descriptors.
 */

#include "cgroup_private.h"

#include "wire.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/stat.h>


/* Parents first; "enable" marks those whose children have controllers. */
static const struct {
    const char  *name;
    unsigned     enable:1;
} sbx_session_groups[] = {
    { "",           1 },
    { "/init",      0 },
    { "/work",      1 },
    { "/work/files", 0 },
    { "/work/run",  1 }
};


/* What a command's descriptors are, in the order of the wire's bits. */
static const struct {
    uint32_t            bit;
    sbx_role_t          role;
    const char         *name;         /* NULL: by file */
    sbx_cgroup_file_t   file;
    int                 flags;
} sbx_command_files[] = {
    { SBX_TASK_FD_KILL,        SBX_ROLE_CORE,   "cgroup.kill", 0, O_WRONLY },
    { SBX_TASK_FD_CPU,         SBX_ROLE_CORE,   "cpu.stat",    0, O_RDONLY },
    { SBX_TASK_FD_MEMORY_PEAK, SBX_ROLE_MEMORY, NULL,
      SBX_FILE_MEMORY_PEAK, O_RDONLY },
    { SBX_TASK_FD_OOM,         SBX_ROLE_MEMORY, NULL,
      SBX_FILE_OOM, O_RDONLY },
    { SBX_TASK_FD_PIDS_PEAK,   SBX_ROLE_PIDS,   NULL,
      SBX_FILE_PIDS_PEAK, O_RDONLY },
    { SBX_TASK_FD_PIDS_EVENTS, SBX_ROLE_PIDS,   NULL,
      SBX_FILE_PIDS_EVENTS, O_RDONLY },
    { SBX_TASK_FD_THROTTLE,    SBX_ROLE_CPU,    NULL,
      SBX_FILE_THROTTLE, O_RDONLY },
    { SBX_TASK_FD_IO,          SBX_ROLE_CORE,   "io.stat",     0, O_RDONLY },
    { SBX_TASK_FD_POPULATED,   SBX_ROLE_CORE,   "cgroup.events", 0,
      O_RDONLY },
    { SBX_TASK_FD_PIDS_CURRENT, SBX_ROLE_PIDS,  "../pids.current", 0,
      O_RDONLY }
};


static int sbx_session_make(const sbx_cgroup_session_t *cs, sbx_error_t *e);
static int sbx_session_limit(const sbx_cgroup_session_t *cs, sbx_error_t *e);
static int sbx_session_own(const sbx_cgroup_session_t *cs, const char *path);
static unsigned sbx_session_attach(sbx_cgroup_session_t *cs, int *fds,
    const char *group);
static void sbx_session_close(int *fds);
static uint64_t sbx_session_cache(const sbx_cgroup_t *cg, const char *work,
    uint64_t memory);
static int sbx_command_oom_event(const sbx_cgroup_command_t *cc, int file);
static void sbx_session_path(const sbx_cgroup_session_t *cs,
    const char *group, char *path);


int
sbx_cgroup_session_create(sbx_cgroup_t *cg, const char *id,
    const sbx_limits_t *limits, int adopt, sbx_cgroup_session_t **out,
    sbx_error_t *e)
{
    unsigned               i;
    sbx_error_t            ignored;
    sbx_cgroup_session_t  *cs;

    if (!sbx_session_id_ok(id, strlen(id))) {
        return sbx_error(e, 0, SBX_E_INVALID, "bad session id");
    }

    cs = calloc(1, sizeof(sbx_cgroup_session_t));
    if (cs == NULL) {
        return sbx_error(e, errno, SBX_E_INTERNAL, "no memory");
    }

    cs->cg = cg;
    cs->limits = *limits;
    (void) snprintf(cs->id, sizeof(cs->id), "%s", id);

    for (i = 0; i < SBX_ROLE_MAX; i++) {
        cs->init_fds[i] = -1;
        cs->files_fds[i] = -1;
    }

    if (adopt) {
        if (faccessat(sbx_cgroup_role_dir(cg, SBX_ROLE_CORE), id, F_OK, 0)
            == -1)
        {
            (void) sbx_error(e, errno, SBX_E_SESSION,
                             "the cgroup of %s is gone", id);
            goto failed;
        }

        *out = cs;

        return 0;
    }

    if (sbx_session_make(cs, e) == -1 || sbx_session_limit(cs, e) == -1) {
        (void) sbx_cgroup_session_remove(cs, &ignored);
        goto failed;
    }

    *out = cs;

    return 0;

failed:

    free(cs);

    return -1;
}


static int
sbx_session_make(const sbx_cgroup_session_t *cs, sbx_error_t *e)
{
    char    path[SBX_CGROUP_PATH_MAX];
    size_t  i;

    for (i = 0; i < sbx_nelts(sbx_session_groups); i++) {
        sbx_session_path(cs, sbx_session_groups[i].name, path);

        if (sbx_cgroup_make(cs->cg, path) == -1
            || (sbx_session_groups[i].enable
                && sbx_cgroup_enable(cs->cg, path) == -1))
        {
            return sbx_error(e, errno, SBX_E_INTERNAL,
                             "cannot make the cgroup \"%s\"", path);
        }
    }

    return 0;
}


static int
sbx_session_limit(const sbx_cgroup_session_t *cs, sbx_error_t *e)
{
    char                 init[SBX_CGROUP_PATH_MAX];
    char                 work[SBX_CGROUP_PATH_MAX];
    char                 files[SBX_CGROUP_PATH_MAX];
    char                 run[SBX_CGROUP_PATH_MAX];
    uint64_t             memory;
    const sbx_limits_t  *l;

    l = &cs->limits;

    sbx_session_path(cs, "/init", init);
    sbx_session_path(cs, "/work", work);
    sbx_session_path(cs, "/work/files", files);
    sbx_session_path(cs, "/work/run", run);

    memory = l->memory;

    if (memory < SBX_UNLIMITED && l->disk < SBX_UNLIMITED - memory) {
        memory += l->disk;
    }

    if (sbx_cgroup_set_memory(cs->cg, init, SBX_INIT_MEMORY) == -1
        || sbx_cgroup_set_pids(cs->cg, init, SBX_INIT_PROCESSES) == -1
        || sbx_cgroup_set_memory(cs->cg, work, memory) == -1
        || sbx_cgroup_set_sockets(cs->cg, work, l->memory) == -1
        || sbx_cgroup_set_cpus(cs->cg, work, l->cpus) == -1
        || sbx_cgroup_set_pids(cs->cg, files, SBX_FILES_PROCESSES) == -1
        || sbx_cgroup_set_pids(cs->cg, run, l->processes) == -1)
    {
        return sbx_error(e, errno, SBX_E_INTERNAL,
                         "cannot set the cgroup limits of %s", cs->id);
    }

    return 0;
}


int
sbx_cgroup_session_owner(sbx_cgroup_session_t *cs, uint64_t owner, int adopt,
    sbx_error_t *e)
{
    char  files[SBX_CGROUP_PATH_MAX];

    cs->owner = owner;

    if (adopt) {
        return 0;
    }

    sbx_session_path(cs, "/work/files", files);

    if (sbx_session_own(cs, cs->id) == -1 || sbx_session_own(cs, files) == -1)
    {
        return sbx_error(e, errno, SBX_E_INTERNAL,
                         "cannot give the cgroups of %s to its init", cs->id);
    }

    return 0;
}


static int
sbx_session_own(const sbx_cgroup_session_t *cs, const char *path)
{
    char  name[SBX_CGROUP_PATH_MAX + 32];

    if (cs->owner == 0) {
        return 0;
    }

    (void) snprintf(name, sizeof(name), "%s/cgroup.procs", path);

    return fchownat(sbx_cgroup_role_dir(cs->cg, SBX_ROLE_CORE), name,
                    (uid_t) cs->owner, (gid_t) -1, AT_SYMLINK_NOFOLLOW);
}


int
sbx_cgroup_session_change(sbx_cgroup_session_t *cs,
    const sbx_limits_t *limits, sbx_error_t *e)
{
    char  work[SBX_CGROUP_PATH_MAX];
    char  run[SBX_CGROUP_PATH_MAX];

    sbx_session_path(cs, "/work", work);
    sbx_session_path(cs, "/work/run", run);

    if ((limits->memory != cs->limits.memory
         && (sbx_cgroup_change_memory(cs->cg, work,
                                      limits->memory + limits->disk) == -1
             || sbx_cgroup_set_sockets(cs->cg, work, limits->memory) == -1))
        || sbx_cgroup_set_cpus(cs->cg, work, limits->cpus) == -1
        || sbx_cgroup_set_pids(cs->cg, run, limits->processes) == -1)
    {
        return sbx_error(e, errno, SBX_E_INTERNAL,
                         "cannot change the cgroup limits of %s", cs->id);
    }

    cs->limits = *limits;

    return 0;
}


void
sbx_cgroup_session_free(sbx_cgroup_session_t *cs)
{
    if (cs != NULL) {
        sbx_session_close(cs->init_fds);
        sbx_session_close(cs->files_fds);
        free(cs);
    }
}


int
sbx_cgroup_session_remove(sbx_cgroup_session_t *cs, sbx_error_t *e)
{
    int     rc;
    char    path[SBX_CGROUP_PATH_MAX];
    size_t  i;

    if (sbx_cgroup_kill(cs->cg, cs->id) == -1) {
        return sbx_error(e, errno, SBX_E_INTERNAL,
                         "cannot kill the cgroup of %s", cs->id);
    }

    /* the usual case first: nothing but the groups that are always there */

    for (i = sbx_nelts(sbx_session_groups); i-- > 0; ) {
        sbx_session_path(cs, sbx_session_groups[i].name, path);

        rc = sbx_cgroup_unmake(cs->cg, path);

        if (rc != 0) {
            return sbx_cgroup_sweep(cs->cg, cs->id, e);
        }
    }

    return 0;
}


int
sbx_cgroup_session_kill(sbx_cgroup_session_t *cs, sbx_error_t *e)
{
    char  path[SBX_CGROUP_PATH_MAX];

    sbx_session_path(cs, "/work", path);

    if (sbx_cgroup_kill(cs->cg, path) == -1) {
        return sbx_error(e, errno, SBX_E_INTERNAL,
                         "cannot kill the processes of %s", cs->id);
    }

    return 0;
}


int
sbx_cgroup_session_end(sbx_cgroup_session_t *cs, sbx_error_t *e)
{
    if (sbx_cgroup_kill(cs->cg, cs->id) == -1) {
        return sbx_error(e, errno, SBX_E_INTERNAL,
                         "cannot kill the cgroup of %s", cs->id);
    }

    return 0;
}


int
sbx_cgroup_session_killer(const sbx_cgroup_session_t *cs)
{
    return sbx_cgroup_open_file(cs->cg, SBX_ROLE_CORE, cs->id, "cgroup.kill",
                                O_WRONLY);
}


int
sbx_cgroup_session_freeze(sbx_cgroup_session_t *cs, int frozen,
    sbx_error_t *e)
{
    char  path[SBX_CGROUP_PATH_MAX];

    sbx_session_path(cs, "/work", path);

    if (sbx_cgroup_write(cs->cg, SBX_ROLE_CORE, path, "cgroup.freeze",
                         frozen ? "1" : "0")
        == -1)
    {
        return sbx_error(e, errno, SBX_E_INTERNAL,
                         "cannot %s the processes of %s",
                         frozen ? "freeze" : "thaw", cs->id);
    }

    return 0;
}


int
sbx_cgroup_session_events(const sbx_cgroup_session_t *cs)
{
    char  path[SBX_CGROUP_PATH_MAX];

    sbx_session_path(cs, "/work", path);

    return sbx_cgroup_open_file(cs->cg, SBX_ROLE_CORE, path, "cgroup.events",
                                O_RDONLY);
}


int
sbx_cgroup_frozen(int events)
{
    char     text[256];
    ssize_t  n;

    n = pread(events, text, sizeof(text) - 1, 0);

    if (n == -1) {
        return -1;
    }

    text[n] = '\0';

    return strstr(text, "frozen 1") != NULL;
}


int
sbx_cgroup_session_memory(sbx_cgroup_session_t *cs, sbx_usage_t *usage,
    sbx_error_t *e)
{
    char                 work[SBX_CGROUP_PATH_MAX];
    const sbx_cgroup_t  *cg;

    cg = cs->cg;

    sbx_session_path(cs, "/work", work);

    if (sbx_cgroup_read_number(cg, SBX_ROLE_MEMORY, work,
                    sbx_cgroup_file(cg, SBX_ROLE_MEMORY, SBX_FILE_MEMORY_NOW),
                               NULL, &usage->memory)
        == -1)
    {
        return sbx_error(e, errno, SBX_E_INTERNAL,
                         "cannot read the memory of %s", cs->id);
    }

    usage->memory_cache = sbx_session_cache(cg, work, usage->memory);

    return 0;
}


int
sbx_cgroup_session_usage(sbx_cgroup_session_t *cs, sbx_usage_t *usage,
    sbx_error_t *e)
{
    char                 work[SBX_CGROUP_PATH_MAX];
    char                 run[SBX_CGROUP_PATH_MAX];
    const sbx_cgroup_t  *cg;

    cg = cs->cg;

    sbx_session_path(cs, "/work", work);
    sbx_session_path(cs, "/work/run", run);

    if (sbx_cgroup_session_memory(cs, usage, e) == -1) {
        return -1;
    }

    if (sbx_cgroup_session_cpu(cs, &usage->cpu_us) == -1
        || sbx_cgroup_read_number(cg, SBX_ROLE_PIDS, run, "pids.current",
                                  NULL, &usage->processes)
           == -1)
    {
        return sbx_error(e, errno, SBX_E_INTERNAL,
                         "cannot read the usage of %s", cs->id);
    }

    if (sbx_cgroup_read_number(cg, SBX_ROLE_MEMORY, work,
                   sbx_cgroup_file(cg, SBX_ROLE_MEMORY, SBX_FILE_MEMORY_PEAK),
                               NULL, &usage->memory_peak)
        == -1)
    {
        usage->memory_peak = usage->memory;
    }

    return 0;
}


/* It is read a moment after the memory of which it is a part. */

static uint64_t
sbx_session_cache(const sbx_cgroup_t *cg, const char *work, uint64_t memory)
{
    uint64_t     cache;
    const char  *key;

    key = cg->tree[cg->role[SBX_ROLE_MEMORY]].v2 ? "file" : "total_cache";

    if (sbx_cgroup_read_number(cg, SBX_ROLE_MEMORY, work, "memory.stat", key,
                               &cache)
        == -1
        && sbx_cgroup_read_number(cg, SBX_ROLE_MEMORY, work, "memory.stat",
                                  "cache", &cache)
           == -1)
    {
        return 0;
    }

    return cache < memory ? cache : memory;
}


int
sbx_cgroup_session_cpu(sbx_cgroup_session_t *cs, uint64_t *us)
{
    return sbx_cgroup_read_number(cs->cg, SBX_ROLE_CORE, cs->id, "cpu.stat",
                                  "usage_usec", us);
}


int
sbx_cgroup_session_ahead(sbx_cgroup_session_t *cs, int ahead)
{
    return sbx_cgroup_set_weight(cs->cg, cs->id, ahead ? SBX_CPU_AHEAD : 1);
}


unsigned
sbx_cgroup_init_fds(sbx_cgroup_session_t *cs, const int **fds)
{
    *fds = cs->init_fds;

    return sbx_session_attach(cs, cs->init_fds, "/init");
}


unsigned
sbx_cgroup_files_fds(sbx_cgroup_session_t *cs, const int **fds)
{
    *fds = cs->files_fds;

    return sbx_session_attach(cs, cs->files_fds, "/work/files");
}


/* Opens the attach file of every tree; 0 when one cannot be opened. */
static unsigned
sbx_session_attach(sbx_cgroup_session_t *cs, int *fds, const char *group)
{
    char      name[SBX_CGROUP_PATH_MAX + 32];
    unsigned  i;

    for (i = 0; i < cs->cg->ntrees; i++) {
        if (fds[i] != -1) {
            continue;
        }

        (void) snprintf(name, sizeof(name), "%s%s/%s", cs->id, group,
                        cs->cg->tree[i].v2 ? "cgroup.procs" : "tasks");

        fds[i] = openat(cs->cg->tree[i].branch, name, O_WRONLY | O_CLOEXEC);

        if (fds[i] == -1) {
            sbx_session_close(fds);
            return 0;
        }
    }

    return cs->cg->ntrees;
}


static void
sbx_session_close(int *fds)
{
    unsigned  i;

    for (i = 0; i < SBX_ROLE_MAX; i++) {
        if (fds[i] != -1) {
            (void) close(fds[i]);
            fds[i] = -1;
        }
    }
}


void
sbx_cgroup_fds_drop(sbx_cgroup_session_t *cs)
{
    sbx_session_close(cs->init_fds);
    sbx_session_close(cs->files_fds);
}


int
sbx_cgroup_init_dir(sbx_cgroup_session_t *cs)
{
    return sbx_cgroup_open_file(cs->cg, SBX_ROLE_CORE, cs->id, "init",
                                O_RDONLY | O_DIRECTORY);
}


int
sbx_cgroup_files_dir(sbx_cgroup_session_t *cs)
{
    return sbx_cgroup_open_file(cs->cg, SBX_ROLE_CORE, cs->id, "work/files",
                                O_RDONLY | O_DIRECTORY);
}


unsigned
sbx_cgroup_core(const sbx_cgroup_session_t *cs)
{
    return cs->cg->role[SBX_ROLE_CORE];
}


static void
sbx_session_path(const sbx_cgroup_session_t *cs, const char *group,
    char *path)
{
    (void) snprintf(path, SBX_CGROUP_PATH_MAX, "%s%s", cs->id, group);
}


/*
 * ---- commands ------------------------------------------------------------
 */

int
sbx_cgroup_command_create(sbx_cgroup_session_t *cs, uint32_t number,
    sbx_cgroup_command_t **out, sbx_error_t *e)
{
    sbx_cgroup_command_t  *cc;

    cc = calloc(1, sizeof(sbx_cgroup_command_t));
    if (cc == NULL) {
        return sbx_error(e, errno, SBX_E_INTERNAL, "no memory");
    }

    cc->cs = cs;
    (void) snprintf(cc->path, sizeof(cc->path), "%s/work/run/%" PRIu32,
                    cs->id, number);

    /* the limits of processes and cpus stand here too, so that the group's
       own events tell which command met them */

    if (sbx_cgroup_make(cs->cg, cc->path) == -1
        || sbx_cgroup_set_memory(cs->cg, cc->path, cs->limits.memory) == -1
        || sbx_cgroup_set_sockets(cs->cg, cc->path, cs->limits.memory) == -1
        || sbx_cgroup_set_oom_group(cs->cg, cc->path) == -1
        || sbx_cgroup_set_pids(cs->cg, cc->path, cs->limits.processes) == -1
        || sbx_cgroup_set_cpus(cs->cg, cc->path, cs->limits.cpus) == -1
        || sbx_session_own(cs, cc->path) == -1)
    {
        (void) sbx_error(e, errno, SBX_E_INTERNAL,
                         "cannot make the cgroup \"%s\"", cc->path);
        (void) sbx_cgroup_unmake(cs->cg, cc->path);
        free(cc);
        return -1;
    }

    *out = cc;

    return 0;
}


int
sbx_cgroup_command_limit(sbx_cgroup_command_t *cc,
    const sbx_exec_limits_t *limits, sbx_error_t *e)
{
    const sbx_cgroup_t  *cg;
    const sbx_limits_t  *session;

    cg = cc->cs->cg;
    session = &cc->cs->limits;

    if ((limits->memory < session->memory
         && (sbx_cgroup_set_memory(cg, cc->path, limits->memory) == -1
             || sbx_cgroup_set_sockets(cg, cc->path, limits->memory) == -1))
        || (limits->processes < session->processes
            && sbx_cgroup_set_pids(cg, cc->path, limits->processes) == -1)
        || (limits->cpus < session->cpus
            && sbx_cgroup_set_cpus(cg, cc->path, limits->cpus) == -1))
    {
        return sbx_error(e, errno, SBX_E_INTERNAL,
                         "cannot set the limits of \"%s\"", cc->path);
    }

    return 0;
}


int
sbx_cgroup_command_change(sbx_cgroup_command_t *cc,
    const sbx_limits_t *limits, sbx_error_t *e)
{
    if (sbx_cgroup_change_memory(cc->cs->cg, cc->path, limits->memory) == -1
        || sbx_cgroup_set_sockets(cc->cs->cg, cc->path, limits->memory) == -1
        || sbx_cgroup_set_pids(cc->cs->cg, cc->path, limits->processes) == -1
        || sbx_cgroup_set_cpus(cc->cs->cg, cc->path, limits->cpus) == -1)
    {
        return sbx_error(e, errno, SBX_E_INTERNAL,
                         "cannot change the limits of \"%s\"", cc->path);
    }

    return 0;
}


unsigned
sbx_cgroup_command_fds(sbx_cgroup_command_t *cc, int *fds, uint32_t *mask,
    uint32_t *attach_count)
{
    int                  fd, oom;
    size_t               k;
    unsigned             i, n;
    const char          *name;
    const sbx_cgroup_t  *cg;

    cg = cc->cs->cg;
    n = 0;
    *mask = 0;
    *attach_count = 0;

    for (i = 0; i < cg->ntrees; i++) {
        char  path[SBX_CGROUP_PATH_MAX + 32];

        (void) snprintf(path, sizeof(path), "%s/%s", cc->path,
                        cg->tree[i].v2 ? "cgroup.procs" : "tasks");

        fd = openat(cg->tree[i].branch, path, O_WRONLY | O_CLOEXEC);

        if (fd == -1) {
            /* a command outside one of its groups must not be started */

            while (n > 0) {
                (void) close(fds[--n]);
            }

            return 0;
        }

        fds[n++] = fd;
    }

    *mask = SBX_TASK_FD_ATTACH;
    *attach_count = n;
    oom = -1;

    for (k = 0; k < sbx_nelts(sbx_command_files); k++) {
        if (cg->missing & sbx_command_files[k].bit) {
            continue;
        }

        name = sbx_command_files[k].name;

        if (name == NULL) {
            name = sbx_cgroup_file(cg, sbx_command_files[k].role,
                                   sbx_command_files[k].file);
        }

        fd = sbx_cgroup_open_file(cg, sbx_command_files[k].role, cc->path,
                                  name, sbx_command_files[k].flags);
        if (fd != -1) {
            fds[n++] = fd;
            *mask |= sbx_command_files[k].bit;
            oom = sbx_command_files[k].bit == SBX_TASK_FD_OOM ? fd : oom;
        }
    }

    fd = sbx_command_oom_event(cc, oom);

    if (fd != -1) {
        fds[n++] = fd;
        *mask |= SBX_TASK_FD_OOM_EVENT;
    }

    fd = sbx_cgroup_open_file(cg, SBX_ROLE_CPU, cc->path,
                         sbx_cgroup_file(cg, SBX_ROLE_CPU, SBX_FILE_CPU_MAX),
                              O_WRONLY);

    if (fd != -1) {
        fds[n++] = fd;
        *mask |= SBX_TASK_FD_CPU_MAX;
    }

    fd = (cc->cs->owner == 0)
         ? -1 : openat(sbx_cgroup_role_dir(cg, SBX_ROLE_CORE), cc->path,
                       O_RDONLY | O_DIRECTORY | O_CLOEXEC);

    if (fd != -1) {
        fds[n++] = fd;
        *mask |= SBX_TASK_FD_DIR;
    }

    fd = sbx_cgroup_open_file(cg, SBX_ROLE_CORE, cc->path, "cgroup.procs",
                              O_RDONLY);

    if (fd != -1) {
        fds[n++] = fd;
        *mask |= SBX_TASK_FD_PROCS;
    }

    return n;
}


/* The kernel keeps the two for as long as the eventfd or the group lives. */

static int
sbx_command_oom_event(const sbx_cgroup_command_t *cc, int file)
{
    int                  event;
    char                 text[64];
    const sbx_cgroup_t  *cg;

    cg = cc->cs->cg;

    if (file == -1 || cg->tree[cg->role[SBX_ROLE_MEMORY]].v2) {
        return -1;
    }

    event = eventfd(0, EFD_CLOEXEC|EFD_NONBLOCK);

    if (event == -1) {
        return -1;
    }

    (void) snprintf(text, sizeof(text), "%d %d", event, file);

    if (sbx_cgroup_write(cg, SBX_ROLE_MEMORY, cc->path,
                         "cgroup.event_control", text)
        == -1)
    {
        (void) close(event);
        return -1;
    }

    return event;
}


int
sbx_cgroup_command_remove(sbx_cgroup_command_t *cc, sbx_error_t *e)
{
    int  rc;

    rc = sbx_cgroup_unmake(cc->cs->cg, cc->path);

    if (rc == 1) {
        return 1;
    }

    if (rc == -1) {
        (void) sbx_error(e, errno, SBX_E_INTERNAL,
                         "cannot remove the cgroup \"%s\"", cc->path);
    }

    free(cc);

    return rc;
}


int
sbx_cgroup_command_list(sbx_cgroup_session_t *cs, sbx_command_found_pt found,
    void *data, sbx_error_t *e)
{
    int                    fd;
    DIR                   *dir;
    uint64_t               busy;
    unsigned long          number;
    struct dirent         *entry;
    sbx_cgroup_command_t  *cc;

    fd = sbx_cgroup_open_file(cs->cg, SBX_ROLE_CORE, cs->id, "work/run",
                              O_RDONLY | O_DIRECTORY);
    dir = (fd == -1) ? NULL : fdopendir(fd);

    if (dir == NULL) {
        (void) sbx_error(e, errno, SBX_E_INTERNAL,
                         "cannot read the cgroups of %s", cs->id);

        if (fd != -1) {
            (void) close(fd);
        }

        return -1;
    }

    while ((entry = readdir(dir)) != NULL) {
        number = strtoul(entry->d_name, NULL, 10);

        if (entry->d_type != DT_DIR || number == 0) {
            continue;
        }

        cc = calloc(1, sizeof(sbx_cgroup_command_t));

        if (cc == NULL) {
            break;
        }

        cc->cs = cs;
        (void) snprintf(cc->path, sizeof(cc->path), "%s/work/run/%lu",
                        cs->id, number);

        if (sbx_cgroup_read_number(cs->cg, SBX_ROLE_CORE, cc->path,
                                   "cgroup.events", "populated", &busy)
            == -1)
        {
            busy = 1;
        }

        if (found(cc, (uint32_t) number, busy != 0, data) != 0) {
            free(cc);
            break;
        }
    }

    (void) closedir(dir);

    return entry == NULL ? 0 : sbx_error(e, ENOMEM, SBX_E_UNAVAILABLE,
                                         "out of memory");
}
