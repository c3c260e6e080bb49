/*
 * cgroups: the broker's branch, and the primitives that know the two
 * versions.  Whoever calls works as real root; every file is opened here and
 * only descriptors are given away, because the kernel judges a write by the
 * opener's credentials: nothing in the hierarchy ever belongs to a session.
 *
 * Hierarchies are reached through private mounts (fsopen, fsmount) that no
 * path leads to: whatever is mounted at /sys/fs/cgroup, or not, or read-only,
 * does not matter.
 */

#include "cgroup_private.h"

#include "wire.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>


#define SBX_CGROUP_DEPTH   8


static const char  *sbx_cgroup_files[SBX_FILE_MAX][2] = {
    /*                          v1                             v2 */
    [SBX_FILE_ATTACH]      = { "tasks",                       "cgroup.procs" },
    [SBX_FILE_MEMORY_MAX]  = { "memory.limit_in_bytes",       "memory.max" },
    [SBX_FILE_MEMORY_SWAP] = { "memory.memsw.limit_in_bytes",
                                                         "memory.swap.max" },
    [SBX_FILE_MEMORY_NOW]  = { "memory.usage_in_bytes",     "memory.current" },
    [SBX_FILE_MEMORY_PEAK] = { "memory.max_usage_in_bytes", "memory.peak" },
    [SBX_FILE_OOM]         = { "memory.oom_control",        "memory.events" },
    [SBX_FILE_PIDS_MAX]    = { "pids.max",                  "pids.max" },
    [SBX_FILE_PIDS_NOW]    = { "pids.current",              "pids.current" },
    [SBX_FILE_PIDS_PEAK]   = { "pids.peak",                 "pids.peak" },
    [SBX_FILE_PIDS_EVENTS] = { "pids.events",               "pids.events" },
    [SBX_FILE_CPU_MAX]     = { "cpu.cfs_quota_us",          "cpu.max" },
    [SBX_FILE_CPU_WEIGHT]  = { "cpu.shares",                "cpu.weight" },
    [SBX_FILE_THROTTLE]    = { "cpu.stat",                  "cpu.stat" }
};


/* Files that not every kernel has. */
static const struct {
    uint32_t            bit;
    sbx_role_t          role;
    sbx_cgroup_file_t   file;
} sbx_cgroup_optional[] = {
    { SBX_TASK_FD_MEMORY_PEAK, SBX_ROLE_MEMORY, SBX_FILE_MEMORY_PEAK },
    { SBX_TASK_FD_OOM,         SBX_ROLE_MEMORY, SBX_FILE_OOM },
    { SBX_TASK_FD_PIDS_PEAK,   SBX_ROLE_PIDS,   SBX_FILE_PIDS_PEAK },
    { SBX_TASK_FD_PIDS_EVENTS, SBX_ROLE_PIDS,   SBX_FILE_PIDS_EVENTS },
    { SBX_TASK_FD_THROTTLE,    SBX_ROLE_CPU,    SBX_FILE_THROTTLE }
};


static int sbx_cgroup_try(const char *base, const char *name,
    unsigned no_cpu, const sbx_cgroup_known_t *known, sbx_cgroup_t **out,
    sbx_error_t *e);
static int sbx_cgroup_branch(sbx_cgroup_t *cg, sbx_error_t *e);
static int sbx_cgroup_probe(sbx_cgroup_t *cg, sbx_error_t *e);
static int sbx_cgroup_prune(int dirfd, const char *name, unsigned depth);


const char *
sbx_cgroup_file(const sbx_cgroup_t *cg, sbx_role_t role,
    sbx_cgroup_file_t file)
{
    return sbx_cgroup_files[file][cg->tree[cg->role[role]].v2];
}


int
sbx_cgroup_role_dir(const sbx_cgroup_t *cg, sbx_role_t role)
{
    return cg->tree[cg->role[role]].branch;
}


int
sbx_cgroup_open_file(const sbx_cgroup_t *cg, sbx_role_t role,
    const char *path, const char *file, int flags)
{
    char  name[SBX_CGROUP_PATH_MAX + 64];

    (void) snprintf(name, sizeof(name), "%s/%s", path, file);

    return openat(sbx_cgroup_role_dir(cg, role), name, flags | O_CLOEXEC);
}


int
sbx_cgroup_write(const sbx_cgroup_t *cg, sbx_role_t role, const char *path,
    const char *file, const char *text)
{
    char  name[SBX_CGROUP_PATH_MAX + 64];

    (void) snprintf(name, sizeof(name), "%s/%s", path, file);

    return sbx_write_at(sbx_cgroup_role_dir(cg, role), name, text);
}


int
sbx_cgroup_read_number(const sbx_cgroup_t *cg, sbx_role_t role,
    const char *path, const char *file, const char *key, uint64_t *value)
{
    char         name[SBX_CGROUP_PATH_MAX + 64], text[2048];
    size_t       len;
    const char  *p;

    (void) snprintf(name, sizeof(name), "%s/%s", path, file);

    if (sbx_read_at(sbx_cgroup_role_dir(cg, role), name, text, sizeof(text))
        == -1)
    {
        return -1;
    }

    p = text;

    if (key != NULL) {
        len = strlen(key);

        while (strncmp(p, key, len) != 0 || p[len] != ' ') {
            p = strchr(p, '\n');

            if (p == NULL) {
                errno = ENODATA;
                return -1;
            }

            p++;
        }

        p += len;
    }

    *value = strtoull(p, NULL, 10);

    return 0;
}


int
sbx_cgroup_make(const sbx_cgroup_t *cg, const char *path)
{
    unsigned  i;

    for (i = 0; i < cg->ntrees; i++) {
        if (mkdirat(cg->tree[i].branch, path, 0755) == -1 && errno != EEXIST) {
            return -1;
        }
    }

    return 0;
}


int
sbx_cgroup_enable(const sbx_cgroup_t *cg, const char *path)
{
    char               name[SBX_CGROUP_PATH_MAX + 64];
    unsigned           i;
    const sbx_tree_t  *tree;

    (void) snprintf(name, sizeof(name), "%s/cgroup.subtree_control", path);

    for (i = 0; i < cg->ntrees; i++) {
        tree = &cg->tree[i];

        if (tree->v2 && tree->controllers[0] != '\0'
            && sbx_write_at(tree->branch, name, tree->controllers) == -1)
        {
            return -1;
        }
    }

    return 0;
}


int
sbx_cgroup_unmake(const sbx_cgroup_t *cg, const char *path)
{
    int       rc;
    unsigned  i;

    rc = 0;

    for (i = 0; i < cg->ntrees; i++) {
        if (unlinkat(cg->tree[i].branch, path, AT_REMOVEDIR) == 0
            || errno == ENOENT)
        {
            continue;
        }

        if (errno != EBUSY && errno != ENOTEMPTY) {
            return -1;
        }

        rc = 1;
    }

    return rc;
}


int
sbx_cgroup_unmake_tree(const sbx_cgroup_t *cg, const char *path)
{
    int       rc, one;
    unsigned  i;

    rc = 0;

    for (i = 0; i < cg->ntrees; i++) {
        one = sbx_cgroup_prune(cg->tree[i].branch, path, 0);

        if (one == -1) {
            return -1;
        }

        rc |= one;
    }

    return rc;
}


static int
sbx_cgroup_prune(int dirfd, const char *name, unsigned depth)
{
    int             fd, rc, one;
    DIR            *dir;
    struct dirent  *entry;

    if (unlinkat(dirfd, name, AT_REMOVEDIR) == 0 || errno == ENOENT) {
        return 0;
    }

    if ((errno != EBUSY && errno != ENOTEMPTY) || depth == SBX_CGROUP_DEPTH) {
        return -1;
    }

    fd = openat(dirfd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    dir = (fd == -1) ? NULL : fdopendir(fd);

    if (dir == NULL) {
        if (fd != -1) {
            (void) close(fd);
        }

        return (errno == ENOENT) ? 0 : -1;
    }

    rc = 0;

    while ((entry = readdir(dir)) != NULL) {
        if (entry->d_type != DT_DIR || entry->d_name[0] == '.') {
            continue;
        }

        one = sbx_cgroup_prune(fd, entry->d_name, depth + 1);

        if (one != 0) {
            rc = one;
        }
    }

    (void) closedir(dir);

    if (rc == 0 && unlinkat(dirfd, name, AT_REMOVEDIR) == -1
        && errno != ENOENT)
    {
        rc = (errno == EBUSY || errno == ENOTEMPTY) ? 1 : -1;
    }

    return rc;
}


int
sbx_cgroup_kill(const sbx_cgroup_t *cg, const char *path)
{
    /* what a freezer holds dies on v2 without being thawed */
    if (sbx_cgroup_write(cg, SBX_ROLE_CORE, path, "cgroup.kill", "1") == 0
        || errno == ENOENT || errno == ENODEV)
    {
        return 0;
    }

    return -1;
}


int
sbx_cgroup_set_memory(const sbx_cgroup_t *cg, const char *path,
    uint64_t bytes)
{
    int   v2;
    char  text[32];

    if (bytes >= SBX_UNLIMITED) {
        return 0;
    }

    v2 = cg->tree[cg->role[SBX_ROLE_MEMORY]].v2;
    (void) snprintf(text, sizeof(text), "%" PRIu64, bytes);

    if (sbx_cgroup_write(cg, SBX_ROLE_MEMORY, path,
                    sbx_cgroup_file(cg, SBX_ROLE_MEMORY, SBX_FILE_MEMORY_MAX),
                         text)
        == -1)
    {
        return -1;
    }

    if (!cg->has_swap) {
        return 0;
    }

    /* v1 counts memory and swap together and checks that memory comes first,
       so the second write may only follow the first */

    return sbx_cgroup_write(cg, SBX_ROLE_MEMORY, path,
                   sbx_cgroup_file(cg, SBX_ROLE_MEMORY, SBX_FILE_MEMORY_SWAP),
                            v2 ? "0" : text);
}


int
sbx_cgroup_change_memory(const sbx_cgroup_t *cg, const char *path,
    uint64_t bytes)
{
    char  text[32];

    /* where v1 is to have more, swap goes first; where less, that is refused
     * and comes last */

    if (cg->has_swap && !cg->tree[cg->role[SBX_ROLE_MEMORY]].v2) {
        (void) snprintf(text, sizeof(text), "%" PRIu64, bytes);
        (void) sbx_cgroup_write(cg, SBX_ROLE_MEMORY, path,
                   sbx_cgroup_file(cg, SBX_ROLE_MEMORY, SBX_FILE_MEMORY_SWAP),
                                text);
    }

    return sbx_cgroup_set_memory(cg, path, bytes);
}


int
sbx_cgroup_set_sockets(const sbx_cgroup_t *cg, const char *path,
    uint64_t memory)
{
    char  text[32];

    if (memory >= SBX_UNLIMITED || cg->tree[cg->role[SBX_ROLE_MEMORY]].v2) {
        return 0;
    }

    (void) snprintf(text, sizeof(text), "%" PRIu64,
                    memory / SBX_SOCKETS_SHARE);

    if (sbx_cgroup_write(cg, SBX_ROLE_MEMORY, path,
                         "memory.kmem.tcp.limit_in_bytes", text)
        == -1 && errno != ENOENT)
    {
        return -1;
    }

    return 0;
}


int
sbx_cgroup_set_oom_group(const sbx_cgroup_t *cg, const char *path)
{
    if (!cg->tree[cg->role[SBX_ROLE_MEMORY]].v2) {
        return 0;
    }

    return sbx_cgroup_write(cg, SBX_ROLE_MEMORY, path, "memory.oom.group",
                            "1");
}


int
sbx_cgroup_set_pids(const sbx_cgroup_t *cg, const char *path, uint64_t count)
{
    char  text[32];

    if (count >= SBX_UNLIMITED) {
        return 0;
    }

    (void) snprintf(text, sizeof(text), "%" PRIu64, count);

    return sbx_cgroup_write(cg, SBX_ROLE_PIDS, path, "pids.max", text);
}


int
sbx_cgroup_set_cpus(const sbx_cgroup_t *cg, const char *path,
    uint64_t thousandths)
{
    char      text[64];
    uint64_t  quota;

    if (thousandths >= SBX_UNLIMITED || !cg->has_cpus) {
        return 0;
    }

    quota = thousandths * SBX_CPU_PERIOD_US / 1000;

    if (quota < 1000) {
        quota = 1000;                     /* the kernel's least, 1 ms */
    }

    if (cg->tree[cg->role[SBX_ROLE_CPU]].v2) {
        (void) snprintf(text, sizeof(text), "%" PRIu64 " %u", quota,
                        SBX_CPU_PERIOD_US);

    } else {
        /* a new group's period is 100 ms */
        (void) snprintf(text, sizeof(text), "%" PRIu64, quota);
    }

    if (sbx_cgroup_write(cg, SBX_ROLE_CPU, path,
                         sbx_cgroup_file(cg, SBX_ROLE_CPU, SBX_FILE_CPU_MAX),
                         text)
        == 0)
    {
        return 0;
    }

    /* v1 refuses more than a group above has: that is the limit then */

    return errno == EINVAL && !cg->tree[cg->role[SBX_ROLE_CPU]].v2 ? 0 : -1;
}


int
sbx_cgroup_set_weight(const sbx_cgroup_t *cg, const char *path,
    unsigned times)
{
    char      text[32];
    unsigned  one;

    if (!cg->has_cpus) {
        return 0;
    }

    one = cg->tree[cg->role[SBX_ROLE_CPU]].v2 ? SBX_CPU_WEIGHT
                                              : SBX_CPU_SHARES;

    (void) snprintf(text, sizeof(text), "%u", one * times);

    return sbx_cgroup_write(cg, SBX_ROLE_CPU, path,
                      sbx_cgroup_file(cg, SBX_ROLE_CPU, SBX_FILE_CPU_WEIGHT),
                            text);
}


/* Sessions can be told to do without a limit of processors. */
int
sbx_cgroup_open(const char *base, const char *name, sbx_cgroup_t **out,
    sbx_error_t *e)
{
    sbx_error_t  second;

    if (sbx_cgroup_try(base, name, 0, NULL, out, e) == 0) {
        return 0;
    }

    if (e->code != SBX_E_UNAVAILABLE) {
        return -1;
    }

    return sbx_cgroup_try(base, name, 1, NULL, out, &second);
}


void
sbx_cgroup_known(const sbx_cgroup_t *cg, sbx_cgroup_known_t *known)
{
    unsigned  i;

    memset(known, 0, sizeof(sbx_cgroup_known_t));

    for (i = 0; i < cg->ntrees; i++) {
        if (cg->tree[i].path[0] == '\0') {
            return;
        }

        memcpy(known->parent[i], cg->tree[i].path, SBX_CGROUP_OWN_MAX);
    }

    known->leaf = cg->tree[0].leaf;
    known->no_cpu = cg->no_cpu;
    known->set = 1;
}


int
sbx_cgroup_again(const char *base, const char *name,
    const sbx_cgroup_known_t *known, sbx_cgroup_t **out, sbx_error_t *e)
{
    if (!known->set || (base != NULL && base[0] != '\0')) {
        return sbx_cgroup_open(base, name, out, e);
    }

    return sbx_cgroup_try(NULL, name, known->no_cpu, known, out, e);
}


static int
sbx_cgroup_try(const char *base, const char *name, unsigned no_cpu,
    const sbx_cgroup_known_t *known, sbx_cgroup_t **out, sbx_error_t *e)
{
    unsigned       i;
    sbx_cgroup_t  *cg;

    if (strlen(name) >= SBX_CGROUP_NAME_MAX || name[0] == '.'
        || strchr(name, '/') != NULL || name[0] == '\0')
    {
        return sbx_error(e, 0, SBX_E_INVALID, "bad cgroup name \"%.64s\"",
                         name);
    }

    cg = calloc(1, sizeof(sbx_cgroup_t));
    if (cg == NULL) {
        return sbx_error(e, errno, SBX_E_INTERNAL, "no memory");
    }

    for (i = 0; i < SBX_ROLE_MAX; i++) {
        cg->tree[i].parent = -1;
        cg->tree[i].branch = -1;
    }

    (void) snprintf(cg->name, sizeof(cg->name), "%s", name);
    cg->no_cpu = no_cpu & 1;

    if (sbx_cgroup_place(cg, base, known, e) == -1
        || sbx_cgroup_branch(cg, e) == -1
        || sbx_cgroup_probe(cg, e) == -1)
    {
        sbx_cgroup_close(cg);
        return -1;
    }

    *out = cg;

    return 0;
}


static int
sbx_cgroup_branch(sbx_cgroup_t *cg, sbx_error_t *e)
{
    unsigned     i;
    sbx_tree_t  *tree;

    for (i = 0; i < cg->ntrees; i++) {
        tree = &cg->tree[i];

        if (mkdirat(tree->parent, cg->name, 0755) == -1 && errno != EEXIST) {
            return sbx_error(e, errno, SBX_E_UNAVAILABLE,
                             "no cgroup \"%s\" can be made for \"%s\": give "
                             "the service a writable cgroup hierarchy",
                             cg->name, tree->controllers);
        }

        tree->branch = openat(tree->parent, cg->name,
                              O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        if (tree->branch == -1) {
            return sbx_error(e, errno, SBX_E_UNAVAILABLE,
                             "cannot open the cgroup \"%s\"", cg->name);
        }
    }

    if (sbx_cgroup_enable(cg, ".") == -1) {
        return sbx_error(e, errno, SBX_E_UNAVAILABLE,
                         "cgroup controllers cannot be enabled below \"%s\"",
                         cg->name);
    }

    return 0;
}


static int
sbx_cgroup_probe(sbx_cgroup_t *cg, sbx_error_t *e)
{
    size_t    i;
    unsigned  rc;
    char      probe[] = "probe";

    rc = (unsigned) sbx_cgroup_make(cg, probe);

    if (rc != 0) {
        return sbx_error(e, errno, SBX_E_UNAVAILABLE,
                         "no group can be made in the cgroup \"%s\"",
                         cg->name);
    }

    for (i = 0; i < sbx_nelts(sbx_cgroup_optional); i++) {
        sbx_auto_fd  fd = -1;

        fd = sbx_cgroup_open_file(cg, sbx_cgroup_optional[i].role, probe,
                              sbx_cgroup_file(cg, sbx_cgroup_optional[i].role,
                                              sbx_cgroup_optional[i].file),
                                  O_RDONLY);
        if (fd == -1) {
            cg->missing |= sbx_cgroup_optional[i].bit;
        }
    }

    cg->has_freeze = faccessat(sbx_cgroup_role_dir(cg, SBX_ROLE_CORE),
                               "probe/cgroup.freeze", W_OK, 0) == 0;
    cg->has_swap = 1;
    cg->has_swap = (sbx_cgroup_set_memory(cg, probe, SBX_INIT_MEMORY) == 0);

    cg->has_cpus = !cg->no_cpu;
    cg->has_cpus = cg->has_cpus && sbx_cgroup_set_cpus(cg, probe, 1000) == 0;

    if (sbx_cgroup_set_pids(cg, probe, SBX_INIT_PROCESSES) == -1
        || (!cg->has_swap
            && sbx_cgroup_set_memory(cg, probe, SBX_INIT_MEMORY) == -1))
    {
        (void) sbx_cgroup_unmake(cg, probe);
        return sbx_error(e, errno, SBX_E_UNAVAILABLE,
                         "cgroup limits cannot be set in \"%s\": memory and "
                         "pids are needed", cg->name);
    }

    if (sbx_cgroup_write(cg, SBX_ROLE_CORE, probe, "cgroup.kill", "1")
        == -1)
    {
        (void) sbx_cgroup_unmake(cg, probe);
        return sbx_error(e, errno, SBX_E_UNAVAILABLE,
                         "cgroup.kill is missing: Linux 5.15 or newer is "
                         "needed");
    }

    (void) sbx_cgroup_unmake(cg, probe);

    return 0;
}


void
sbx_cgroup_close(sbx_cgroup_t *cg)
{
    unsigned  i;

    if (cg == NULL) {
        return;
    }

    sbx_cgroup_unplace(cg);

    for (i = 0; i < cg->ntrees; i++) {
        if (cg->tree[i].parent != -1) {
            (void) unlinkat(cg->tree[i].parent, cg->name, AT_REMOVEDIR);
            (void) close(cg->tree[i].parent);
        }

        if (cg->tree[i].branch != -1) {
            (void) close(cg->tree[i].branch);
        }
    }

    free(cg);
}


sbx_enforce_t
sbx_cgroup_version(const sbx_cgroup_t *cg)
{
    return cg->tree[cg->role[SBX_ROLE_MEMORY]].v2 ? SBX_BY_CGROUP_V2
                                                  : SBX_BY_CGROUP_V1;
}


void
sbx_cgroup_enforcement(const sbx_cgroup_t *cg, sbx_enforcement_t *enf)
{
    static const struct {
        size_t       offset;
        sbx_role_t   role;
    } by_cgroup[] = {
        { offsetof(sbx_enforcement_t, memory),    SBX_ROLE_MEMORY },
        { offsetof(sbx_enforcement_t, cpus),      SBX_ROLE_CPU },
        { offsetof(sbx_enforcement_t, processes), SBX_ROLE_PIDS }
    };

    size_t  i;

    memset(enf, 0, sizeof(sbx_enforcement_t));

    enf->max_file_size = SBX_BY_RLIMIT;
    enf->open_files = SBX_BY_RLIMIT;
    enf->stack = SBX_BY_RLIMIT;
    enf->disk = SBX_BY_TMPFS;
    enf->inodes = SBX_BY_TMPFS;
    enf->seccomp = SBX_BY_FILTER;
    enf->userns = SBX_BY_FILTER;

    if (cg == NULL) {
        return;
    }

    enf->cpu_seconds = SBX_BY_POLL;

    if (cg->has_swap) {
        enf->swap = (uint8_t) sbx_cgroup_version(cg);
    }

    for (i = 0; i < sbx_nelts(by_cgroup); i++) {
        if (by_cgroup[i].role == SBX_ROLE_CPU && !cg->has_cpus) {
            continue;
        }

        *((uint8_t *) enf + by_cgroup[i].offset) =
            cg->tree[cg->role[by_cgroup[i].role]].v2 ? SBX_BY_CGROUP_V2
                                                     : SBX_BY_CGROUP_V1;
    }
}


int
sbx_cgroup_list(sbx_cgroup_t *cg, void (*found)(const char *id, void *data),
    void *data, sbx_error_t *e)
{
    int             fd;
    DIR            *dir;
    unsigned        i, k;
    struct stat     st;
    struct dirent  *entry;

    for (i = 0; i < cg->ntrees; i++) {
        fd = openat(cg->tree[i].branch, ".", O_RDONLY | O_DIRECTORY
                                             | O_CLOEXEC);
        dir = (fd == -1) ? NULL : fdopendir(fd);

        if (dir == NULL) {
            if (fd != -1) {
                (void) close(fd);
            }

            return sbx_error(e, errno, SBX_E_INTERNAL,
                             "cannot list the cgroup \"%s\"", cg->name);
        }

        while ((entry = readdir(dir)) != NULL) {
            if (entry->d_type != DT_DIR
                || !sbx_session_id_ok(entry->d_name, strlen(entry->d_name)))
            {
                continue;
            }

            /* one that an earlier tree has was told already */

            for (k = 0; k < i; k++) {
                if (fstatat(cg->tree[k].branch, entry->d_name, &st, 0) == 0) {
                    break;
                }
            }

            if (k == i) {
                found(entry->d_name, data);
            }
        }

        (void) closedir(dir);
    }

    return 0;
}


int
sbx_cgroup_sweep(sbx_cgroup_t *cg, const char *id, sbx_error_t *e)
{
    int  rc;

    if (!sbx_session_id_ok(id, strlen(id))) {
        return sbx_error(e, 0, SBX_E_INVALID, "bad session id");
    }

    if (sbx_cgroup_kill(cg, id) == -1) {
        return sbx_error(e, errno, SBX_E_INTERNAL,
                         "cannot kill the cgroup of %s", id);
    }

    rc = sbx_cgroup_unmake_tree(cg, id);

    if (rc == -1) {
        return sbx_error(e, errno, SBX_E_INTERNAL,
                         "cannot remove the cgroups of %s", id);
    }

    return rc;
}


int
sbx_cgroup_owner(const sbx_cgroup_t *cg, const char *id, uint64_t *owner)
{
    char         path[SBX_CGROUP_PATH_MAX];
    struct stat  st;

    *owner = 0;
    (void) snprintf(path, sizeof(path), "%s/cgroup.procs", id);

    if (fstatat(sbx_cgroup_role_dir(cg, SBX_ROLE_CORE), path, &st,
                AT_SYMLINK_NOFOLLOW)
        == -1)
    {
        return errno == ENOENT || errno == ENODEV ? 0 : -1;
    }

    *owner = st.st_uid;

    return 0;
}
