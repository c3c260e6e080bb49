/*
 * What the machine can do, for people: the checks of /doctor, the layers of
 * /capabilities, and the quick refusals at start.  A check looks and tries,
 * changes nothing, and never takes long.
 */

#include "isolate_private.h"
#include "cgroup_private.h"

#include <errno.h>
#include <fcntl.h>
#include <dirent.h>
#include <inttypes.h>
#include <limits.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/capability.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <time.h>


#define SBX_DISK_ROOM      (64u << 20)
#define SBX_CLOCK_SANE     1704067200L     /* 2024-01-01 */


typedef struct {
    const char          *state_dir;
    const char          *template_dir;
    const sbx_cgroup_t  *cgroup;
} sbx_doctor_t;

typedef struct {
    const char  *name;
    /* fills found, and mend where it returns 0 */
    int        (*run)(const sbx_doctor_t *d, sbx_f_check_t *c);
} sbx_doctor_check_t;


static int sbx_check_privileges(const sbx_doctor_t *d, sbx_f_check_t *c);
static int sbx_check_userns(const sbx_doctor_t *d, sbx_f_check_t *c);
static int sbx_check_cgroup(const sbx_doctor_t *d, sbx_f_check_t *c);
static int sbx_check_seccomp(const sbx_doctor_t *d, sbx_f_check_t *c);
static int sbx_check_overlay(const sbx_doctor_t *d, sbx_f_check_t *c);
static int sbx_check_disk(const sbx_doctor_t *d, sbx_f_check_t *c);
static int sbx_check_templates(const sbx_doctor_t *d, sbx_f_check_t *c);
static int sbx_check_interpreter(const sbx_doctor_t *d, sbx_f_check_t *c);
static int sbx_check_clock(const sbx_doctor_t *d, sbx_f_check_t *c);


static const sbx_doctor_check_t  sbx_doctor_checks[] = {
    { "privileges",      sbx_check_privileges },
    { "user_namespaces", sbx_check_userns },
    { "cgroup",          sbx_check_cgroup },
    { "seccomp",         sbx_check_seccomp },
    { "overlay",         sbx_check_overlay },
    { "disk",            sbx_check_disk },
    { "templates",       sbx_check_templates },
    { "interpreter",     sbx_check_interpreter },
    { "clock",           sbx_check_clock }
};

/* Without these nothing can be started. */
static const sbx_doctor_check_t  sbx_preflight_checks[] = {
    { "privileges",      sbx_check_privileges },
    { "user namespaces", sbx_check_userns },
    { "seccomp",         sbx_check_seccomp },
    { "overlay",         sbx_check_overlay }
};

static const cap_value_t  sbx_doctor_caps[] = {
    CAP_SYS_ADMIN, CAP_SETUID, CAP_SETGID, CAP_CHOWN, CAP_DAC_OVERRIDE,
    CAP_FOWNER, CAP_NET_ADMIN, CAP_MKNOD, CAP_SYS_CHROOT
};


void
sbx_doctor(const char *state_dir, const char *template_dir, sbx_cgroup_t *cg,
    void (*check)(const sbx_f_check_t *c, void *data), void *data)
{
    size_t         i;
    sbx_doctor_t   d;
    sbx_f_check_t  c;

    d.state_dir = state_dir;
    d.template_dir = template_dir;
    d.cgroup = cg;

    for (i = 0; i < sbx_nelts(sbx_doctor_checks); i++) {
        memset(&c, 0, sizeof(c));
        (void) snprintf(c.name, sizeof(c.name), "%s",
                        sbx_doctor_checks[i].name);
        c.ok = (uint32_t) sbx_doctor_checks[i].run(&d, &c);

        if (c.ok) {
            c.mend[0] = '\0';
        }

        check(&c, data);
    }
}


int
sbx_preflight(const char *state_dir, sbx_error_t *e)
{
    size_t         i;
    sbx_doctor_t   d;
    sbx_f_check_t  c;

    memset(&d, 0, sizeof(d));
    d.state_dir = state_dir;

    for (i = 0; i < sbx_nelts(sbx_preflight_checks); i++) {
        memset(&c, 0, sizeof(c));

        if (!sbx_preflight_checks[i].run(&d, &c)) {
            return sbx_error(e, 0, SBX_E_UNAVAILABLE, "%s: %s; %s",
                             sbx_preflight_checks[i].name, c.found, c.mend);
        }
    }

    if (state_dir[0] != '/' || access(state_dir, W_OK | X_OK) == -1) {
        return sbx_error(e, errno, SBX_E_UNAVAILABLE,
                         "the state directory \"%.120s\" is not writable: "
                         "make it, on a local file system, or set "
                         "sandbox_state_dir", state_dir);
    }

    return 0;
}


static void __attribute__((format(printf, 2, 3)))
sbx_check_found(sbx_f_check_t *c, const char *fmt, ...)
{
    va_list  args;

    va_start(args, fmt);
    (void) vsnprintf(c->found, sizeof(c->found), fmt, args);
    va_end(args);
}


static void
sbx_check_mend(sbx_f_check_t *c, const char *text)
{
    (void) snprintf(c->mend, sizeof(c->mend), "%s", text);
}


static int
sbx_check_privileges(const sbx_doctor_t *d, sbx_f_check_t *c)
{
    char              missing[128], *name;
    cap_t             caps;
    size_t            i, len;
    cap_flag_value_t  set;

    (void) d;

    sbx_check_mend(c, "start nginx, or sandbox-broker, as root and leave its "
                   "capabilities alone");

    if (geteuid() != 0) {
        sbx_check_found(c, "not root (uid %d)", (int) geteuid());
        return 0;
    }

    caps = cap_get_proc();
    len = 0;
    missing[0] = '\0';

    for (i = 0; i < sbx_nelts(sbx_doctor_caps); i++) {
        if (caps == NULL
            || cap_get_flag(caps, sbx_doctor_caps[i], CAP_EFFECTIVE, &set)
               == -1
            || set == CAP_SET)
        {
            continue;
        }

        name = cap_to_name(sbx_doctor_caps[i]);

        if (name != NULL && len + strlen(name) + 2 < sizeof(missing)) {
            len += (size_t) sprintf(missing + len, " %s", name);
        }

        (void) cap_free(name);
    }

    (void) cap_free(caps);

    if (len != 0) {
        sbx_check_found(c, "root without%s", missing);
        return 0;
    }

    sbx_check_found(c, "root with the capabilities that are needed");

    return 1;
}


static int
sbx_check_userns(const sbx_doctor_t *d, sbx_f_check_t *c)
{
    int    status;
    char   text[32];
    long   pid;

    (void) d;

    sbx_check_mend(c, "sysctl user.max_user_namespaces=65536; the kernel "
                   "needs CONFIG_USER_NS");

    if (sbx_read_at(AT_FDCWD, "/proc/sys/user/max_user_namespaces", text,
                    sizeof(text))
        == -1)
    {
        sbx_check_found(c, "the kernel has no user namespaces");
        return 0;
    }

    /* no exit signal, so that nobody else takes the child for theirs */

    pid = syscall(SYS_clone, CLONE_NEWUSER, 0, 0, 0, 0);

    if (pid == 0) {
        _exit(0);
    }

    text[strcspn(text, "\n")] = '\0';

    if (pid == -1) {
        sbx_check_found(c, "none can be made (%s), the limit is %s",
                        strerror(errno), text);
        return 0;
    }

    (void) waitpid((pid_t) pid, &status, __WALL);
    sbx_check_found(c, "up to %s", text);

    return 1;
}


static int
sbx_check_cgroup(const sbx_doctor_t *d, sbx_f_check_t *c)
{
    const sbx_cgroup_t  *cg;

    cg = d->cgroup;

    if (cg == NULL) {
        sbx_check_found(c, "no group for sessions");
        sbx_check_mend(c, "give the service a group of its own with memory, "
                       "pids and cpu (systemd: Delegate=yes), or name one "
                       "with sandbox_cgroup");
        return 0;
    }

    sbx_check_found(c, "memory %s, pids %s, cpu %s, group \"%s\"",
                    cg->tree[cg->role[SBX_ROLE_MEMORY]].v2 ? "v2" : "v1",
                    cg->tree[cg->role[SBX_ROLE_PIDS]].v2 ? "v2" : "v1",
                    cg->tree[cg->role[SBX_ROLE_CPU]].v2 ? "v2" : "v1",
                    cg->name);

    return 1;
}


static int
sbx_check_seccomp(const sbx_doctor_t *d, sbx_f_check_t *c)
{
    static const uint32_t  actions[] = {
        SECCOMP_RET_KILL_PROCESS, SECCOMP_RET_ERRNO, SECCOMP_RET_ALLOW
    };

    size_t    i;
    uint32_t  action;

    (void) d;

    for (i = 0; i < sbx_nelts(actions); i++) {
        action = actions[i];

        if (syscall(SYS_seccomp, SECCOMP_GET_ACTION_AVAIL, 0, &action)
            == -1)
        {
            sbx_check_found(c, "the kernel has no seccomp filters");
            sbx_check_mend(c, "use a kernel with CONFIG_SECCOMP_FILTER");
            return 0;
        }
    }

    sbx_check_found(c, "filters");

    return 1;
}


static int
sbx_check_overlay(const sbx_doctor_t *d, sbx_f_check_t *c)
{
    sbx_auto_fd     fs = -1;
    struct utsname  name;

    (void) d;

    if (uname(&name) == -1) {
        name.release[0] = '\0';
    }

    fs = sbx_sys_fsopen("overlay");

    if (fs == -1) {
        sbx_check_found(c, "Linux %.60s has no overlay (%s)", name.release,
                        strerror(errno));
        sbx_check_mend(c, "modprobe overlay; the kernel needs "
                       "CONFIG_OVERLAY_FS, the service CAP_SYS_ADMIN");
        return 0;
    }

    sbx_check_found(c, "Linux %.60s", name.release);

    return 1;
}


static int
sbx_check_disk(const sbx_doctor_t *d, sbx_f_check_t *c)
{
    uint64_t        room;
    struct statvfs  st;

    if (statvfs(d->state_dir, &st) == -1) {
        sbx_check_found(c, "%.120s: %s", d->state_dir, strerror(errno));
        sbx_check_mend(c, "make the state directory, or set "
                       "sandbox_state_dir");
        return 0;
    }

    room = (uint64_t) st.f_bavail * st.f_frsize;
    sbx_check_found(c, "%" PRIu64 " MB free below %.120s", room >> 20,
                    d->state_dir);

    if (room < SBX_DISK_ROOM || (st.f_flag & ST_RDONLY)
        || (st.f_files != 0 && st.f_favail < 1000))
    {
        sbx_check_mend(c, "records of sessions need 64 MB and 1,000 inodes "
                       "on a writable file system: make room, or move "
                       "sandbox_state_dir");
        return 0;
    }

    return 1;
}


static int
sbx_check_templates(const sbx_doctor_t *d, sbx_f_check_t *c)
{
    char            path[NAME_MAX + 32];
    DIR            *dir;
    unsigned        n;
    struct dirent  *entry;

    if (d->template_dir == NULL || d->template_dir[0] == '\0') {
        sbx_check_found(c, "base");
        return 1;
    }

    dir = opendir(d->template_dir);

    if (dir == NULL) {
        sbx_check_found(c, "base; %.120s: %s", d->template_dir,
                        strerror(errno));

        if (errno == ENOENT) {
            return 1;
        }

        sbx_check_mend(c, "let the service read sandbox_template_dir");
        return 0;
    }

    n = 0;

    while ((entry = readdir(dir)) != NULL) {
        (void) snprintf(path, sizeof(path), "%s/template.json",
                        entry->d_name);

        if (entry->d_name[0] != '.'
            && faccessat(dirfd(dir), path, R_OK, 0) == 0)
        {
            n++;
        }
    }

    (void) closedir(dir);
    sbx_check_found(c, "base and %u in %.120s", n, d->template_dir);

    return 1;
}


static int
sbx_check_interpreter(const sbx_doctor_t *d, sbx_f_check_t *c)
{
    size_t    i, len;
    unsigned  python;

    static const char  *programs[] = {
        "/usr/bin/python3", "/usr/bin/bash", "/usr/bin/node", "/usr/bin/git"
    };

    (void) d;

    len = 0;
    python = 0;

    for (i = 0; i < sbx_nelts(programs); i++) {
        if (access(programs[i], X_OK) == 0) {
            len += (size_t) snprintf(c->found + len, sizeof(c->found) - len,
                                     "%s%s", len ? " " : "", programs[i]);
            python |= (i == 0);
        }
    }

    if (!python) {
        sbx_check_mend(c, "the base template shows the host's programs: "
                       "install python3 in /usr/bin");
    }

    return (int) python;
}


static int
sbx_check_clock(const sbx_doctor_t *d, sbx_f_check_t *c)
{
    char             text[64];
    struct tm        tm;
    struct timespec  ts;

    (void) d;

    if (clock_gettime(CLOCK_REALTIME, &ts) == -1
        || gmtime_r(&ts.tv_sec, &tm) == NULL)
    {
        sbx_check_found(c, "no clock");
        return 0;
    }

    (void) strftime(text, sizeof(text), "%Y-%m-%dT%H:%M:%SZ", &tm);
    sbx_check_found(c, "%s", text);

    if (ts.tv_sec < SBX_CLOCK_SANE) {
        sbx_check_mend(c, "set the clock: certificates and expiry times "
                       "depend on it");
        return 0;
    }

    return 1;
}


void
sbx_capabilities(sbx_cgroup_t *cg,
    void (*capability)(const sbx_f_capability_t *c, void *data), void *data)
{
    int                 v2;
    size_t              i;
    sbx_f_capability_t  c;

    static const struct {
        const char  *name;
        int          role;            /* SBX_ROLE_CORE: cgroup2 in any case,
                                         -1: none needed */
        const char  *v1;
        const char  *v2;
    } rows[] = {
        { "memory",          SBX_ROLE_MEMORY,
          "cgroup v1 memory.limit_in_bytes", "cgroup v2 memory.max" },
        { "swap",            SBX_ROLE_MEMORY,
          "cgroup v1 memory.memsw.limit_in_bytes",
          "cgroup v2 memory.swap.max" },
        { "cpus",            SBX_ROLE_CPU,
          "cgroup v1 cpu.cfs_quota_us", "cgroup v2 cpu.max" },
        { "cpu_seconds",     SBX_ROLE_CORE, NULL,
          "poll of cgroup v2 cpu.stat" },
        { "processes",       SBX_ROLE_PIDS,
          "cgroup v1 pids.max", "cgroup v2 pids.max" },
        { "kill",            SBX_ROLE_CORE, NULL, "cgroup v2 cgroup.kill" },
        { "pause",           SBX_ROLE_CORE, NULL, "cgroup v2 cgroup.freeze" },
        { "max_file_size",   -1, NULL, "rlimit RLIMIT_FSIZE" },
        { "open_files",      -1, NULL, "rlimit RLIMIT_NOFILE" },
        { "stack",           -1, NULL, "rlimit RLIMIT_STACK" },
        { "disk",            -1, NULL, "tmpfs size" },
        { "inodes",          -1, NULL, "tmpfs nr_inodes" },
        { "seccomp",         -1, NULL, "filter" },
        { "user_namespace",  -1, NULL, "65,536 ids of the session's own" },
        { "network",         -1, NULL, "network namespace with lo alone" },
        { "filesystem",      -1, NULL,
          "overlay in a mount namespace of the session's own" }
    };

    for (i = 0; i < sbx_nelts(rows); i++) {
        memset(&c, 0, sizeof(c));
        (void) snprintf(c.name, sizeof(c.name), "%s", rows[i].name);

        c.enforced = rows[i].role == -1 || cg != NULL;

        if (cg != NULL && strcmp(rows[i].name, "swap") == 0) {
            c.enforced = cg->has_swap;
        }

        v2 = rows[i].v1 == NULL
             || (cg != NULL && cg->tree[cg->role[rows[i].role]].v2);

        (void) snprintf(c.by, sizeof(c.by), "%s",
                        !c.enforced ? "none" : v2 ? rows[i].v2 : rows[i].v1);

        capability(&c, data);
    }
}
