/*
 * Checks of what is the host's own: settings, devices, programs, room.
 */

#include "doctor_private.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <time.h>


#define SBX_DISK_ROOM      (64u << 20)
#define SBX_DISK_LEAST     (1u << 20)
#define SBX_INODE_ROOM     1000
#define SBX_INODE_LEAST    16
#define SBX_FILES_ROOM     8192
#define SBX_FILES_SESSION  7              /* descriptors, in the broker */
#define SBX_FILES_OWN      128            /* and of its own, at most */
#define SBX_FILES_RESERVE  320            /* more than a datagram brings */
#define SBX_TASKS_ROOM     4096
#define SBX_CLOCK_SANE     1704067200L    /* 2024-01-01 */
#define SBX_PATH_DEFAULT   "/usr/local/sbin:/usr/sbin:/usr/bin:/sbin:/bin"


static int sbx_check_state(const sbx_doctor_t *d,
    const sbx_doctor_row_t *row, sbx_f_check_t *c);
static int sbx_check_room(const sbx_doctor_t *d, sbx_f_check_t *c,
    struct statvfs *st);
static int sbx_check_files(const sbx_doctor_t *d,
    const sbx_doctor_row_t *row, sbx_f_check_t *c);
static int sbx_check_tasks(const sbx_doctor_t *d,
    const sbx_doctor_row_t *row, sbx_f_check_t *c);
static int sbx_check_templates(const sbx_doctor_t *d,
    const sbx_doctor_row_t *row, sbx_f_check_t *c);
static int sbx_check_interpreter(const sbx_doctor_t *d,
    const sbx_doctor_row_t *row, sbx_f_check_t *c);
static int sbx_check_clock(const sbx_doctor_t *d,
    const sbx_doctor_row_t *row, sbx_f_check_t *c);
static int sbx_check_loop(const sbx_doctor_t *d,
    const sbx_doctor_row_t *row, sbx_f_check_t *c);
static int sbx_check_quota(const sbx_doctor_t *d,
    const sbx_doctor_row_t *row, sbx_f_check_t *c);
static int sbx_check_nftables(const sbx_doctor_t *d,
    const sbx_doctor_row_t *row, sbx_f_check_t *c);
static int sbx_check_apparmor(const sbx_doctor_t *d,
    const sbx_doctor_row_t *row, sbx_f_check_t *c);
static int sbx_check_sysctl(const sbx_doctor_t *d,
    const sbx_doctor_row_t *row, sbx_f_check_t *c);
static int sbx_check_sysctl_read(const char *name, int64_t *value);


#define CHECK(name, required, run)                                            \
    { name, required, run, SBX_LAYER_MAX, { NULL, 0, 0, NULL, NULL } }
#define LAYER(name, layer)                                                    \
    { name, 0, sbx_check_layer, layer, { NULL, 0, 0, NULL, NULL } }
#define SYSCTL(name, setting, min, max, value, why)                           \
    { name, 0, sbx_check_sysctl, SBX_LAYER_MAX,                               \
      { setting, min, max, value, why } }

const sbx_doctor_row_t  sbx_doctor_host[] = {
    CHECK("state",            1, sbx_check_state),
    CHECK("disk",             0, sbx_check_disk),
    CHECK("inodes",           0, sbx_check_inodes),
    CHECK("open_files",       0, sbx_check_files),
    CHECK("tasks",            0, sbx_check_tasks),

    SYSCTL("pid_max", "kernel.pid_max", 32768, INT64_MAX, "4194304",
           "processes of all sessions share the numbers"),
    SYSCTL("threads_max", "kernel.threads-max", 16384, INT64_MAX, "262144",
           "processes and threads of all sessions together"),

    CHECK("templates",        0, sbx_check_templates),
    CHECK("interpreter",      0, sbx_check_interpreter),
    CHECK("clock",            0, sbx_check_clock),

    /* other kinds of disks, and networks */
    LAYER("idmapped_mounts",  SBX_LAYER_IDMAP),
    CHECK("loop_devices",     0, sbx_check_loop),
    CHECK("project_quota",    0, sbx_check_quota),
    CHECK("nftables",         0, sbx_check_nftables),

    /* for sandboxctl as an ordinary user */
    SYSCTL("userns_clone", "kernel.unprivileged_userns_clone", 1, INT64_MAX,
           "1", "users other than root can make no user namespace"),
    CHECK("apparmor_userns",  0, sbx_check_apparmor),

    SYSCTL("suid_dumpable", "fs.suid_dumpable", -1, INT64_MAX, "0", ""),
    SYSCTL("ptrace_scope", "kernel.yama.ptrace_scope", 0, 1, "1",
           "debuggers in sessions are refused"),
    SYSCTL("protected_symlinks", "fs.protected_symlinks", 1, INT64_MAX, "1",
           "links of others in /tmp are followed"),
    SYSCTL("protected_hardlinks", "fs.protected_hardlinks", 1, INT64_MAX,
           "1", "files of others can be linked to"),
    SYSCTL("dmesg_restrict", "kernel.dmesg_restrict", 1, INT64_MAX, "1",
           "any user of the host reads the kernel's log"),
    SYSCTL("epoll_watches", "fs.epoll.max_user_watches", 1, 65536, "65536",
           "a session can hold a processor for milliseconds by waking as many"
           " watches of its own; the bound is each user's, on all the host"),
    SYSCTL("overcommit", "vm.overcommit_memory", 0, 1, "0",
           "programs that reserve much fail with memory to spare"),

    CHECK(NULL, 0, NULL)
};


static int
sbx_check_state(const sbx_doctor_t *d, const sbx_doctor_row_t *row,
    sbx_f_check_t *c)
{
    struct stat  st;

    (void) row;

    if (stat(d->state_dir, &st) == -1) {
        /* the first start makes it, where that is the whole reason */
        c->required = errno != ENOENT;

        sbx_check_found(c, "%.120s: %s", d->state_dir, strerror(errno));
        sbx_check_mend(c, "mkdir -p -m 0755 %.120s", d->state_dir);
        return 0;
    }

    if (!S_ISDIR(st.st_mode) || st.st_uid != 0
        || (st.st_mode & (S_IWGRP | S_IWOTH)))
    {
        sbx_check_found(c, "%.120s: mode %04o, owner %u", d->state_dir,
                        (unsigned) st.st_mode & 07777, (unsigned) st.st_uid);
        sbx_check_mend(c, "chown root:root %.120s && chmod 0755 %.120s",
                       d->state_dir, d->state_dir);
        return 0;
    }

    if (access(d->state_dir, W_OK | X_OK) == -1) {
        sbx_check_found(c, "%.120s: %s", d->state_dir, strerror(errno));
        sbx_check_mend(c, "mount -o remount,rw the file system of %.120s, or "
                       "set sandbox_state_dir to another", d->state_dir);
        return 0;
    }

    sbx_check_found(c, "%.120s", d->state_dir);

    return 1;
}


/* The state directory, or the nearest above it that is there. */

static int
sbx_check_room(const sbx_doctor_t *d, sbx_f_check_t *c, struct statvfs *st)
{
    char  path[SBX_PATH_MAX], *slash;

    (void) snprintf(path, sizeof(path), "%s", d->state_dir);

    while (statvfs(path, st) == -1) {
        slash = strrchr(path, '/');

        if (errno != ENOENT || slash == NULL || slash == path) {
            sbx_check_found(c, "%.120s: %s", d->state_dir, strerror(errno));
            sbx_check_mend(c, "set sandbox_state_dir to a directory that can "
                           "be read");
            return -1;
        }

        *slash = '\0';
    }

    return 0;
}


int
sbx_check_disk(const sbx_doctor_t *d, const sbx_doctor_row_t *row,
    sbx_f_check_t *c)
{
    uint64_t        room;
    struct statvfs  st;

    (void) row;

    if (sbx_check_room(d, c, &st) == -1) {
        return 0;
    }

    room = (uint64_t) st.f_bavail * st.f_frsize;
    sbx_check_found(c, "%" PRIu64 " MB free below %.120s%s", room >> 20,
                    d->state_dir, st.f_flag & ST_RDONLY ? ", read-only" : "");

    if (room >= SBX_DISK_ROOM && !(st.f_flag & ST_RDONLY)) {
        return 1;
    }

    c->required = room < SBX_DISK_LEAST || (st.f_flag & ST_RDONLY);
    sbx_check_mend(c, "records of sessions need 64 MB on a writable file "
                   "system: make room, or move sandbox_state_dir");

    return 0;
}


int
sbx_check_inodes(const sbx_doctor_t *d, const sbx_doctor_row_t *row,
    sbx_f_check_t *c)
{
    struct statvfs  st;

    (void) row;

    if (sbx_check_room(d, c, &st) == -1) {
        return 0;
    }

    if (st.f_files == 0) {
        sbx_check_found(c, "as many as there is room for");
        return 1;
    }

    sbx_check_found(c, "%" PRIu64 " free below %.120s",
                    (uint64_t) st.f_favail, d->state_dir);

    if (st.f_favail >= SBX_INODE_ROOM) {
        return 1;
    }

    c->required = st.f_favail < SBX_INODE_LEAST;
    sbx_check_mend(c, "records of sessions need 1,000 inodes: remove files, "
                   "or move sandbox_state_dir");

    return 0;
}


uint64_t
sbx_doctor_reserve(uint64_t open_files)
{
    return open_files / 4 < SBX_FILES_RESERVE ? open_files / 4
                                              : SBX_FILES_RESERVE;
}


static int
sbx_check_files(const sbx_doctor_t *d, const sbx_doctor_row_t *row,
    sbx_f_check_t *c)
{
    uint64_t       left, taken;
    struct rlimit  limit;

    (void) d;
    (void) row;

    if (getrlimit(RLIMIT_NOFILE, &limit) == -1) {
        sbx_check_found(c, "%s", strerror(errno));
        return 0;
    }

    taken = SBX_FILES_OWN + 2 * sbx_doctor_reserve(limit.rlim_max);
    left = limit.rlim_max > taken ? limit.rlim_max - taken : 0;

    sbx_check_found(c, "hard limit %" PRIu64 ": room for %" PRIu64
                    " sessions", (uint64_t) limit.rlim_max,
                    left / SBX_FILES_SESSION);

    if (limit.rlim_max >= SBX_FILES_ROOM) {
        return 1;
    }

    sbx_check_unit(c, "LimitNOFILE=65536");

    return 0;
}


static int
sbx_check_tasks(const sbx_doctor_t *d, const sbx_doctor_row_t *row,
    sbx_f_check_t *c)
{
    int                 parent;
    char                text[64];
    unsigned long long  n;

    (void) row;

    parent = d->cgroup == NULL ? -1
             : d->cgroup->tree[d->cgroup->role[SBX_ROLE_PIDS]].parent;

    if (parent == -1
        || sbx_read_at(parent, "pids.max", text, sizeof(text)) <= 0
        || strncmp(text, "max", 3) == 0)
    {
        sbx_check_found(c, "the group above has no limit of its own");
        return 1;
    }

    n = strtoull(text, NULL, 10);
    sbx_check_found(c, "the group above holds all sessions to %llu "
                    "processes", n);

    if (n >= SBX_TASKS_ROOM) {
        return 1;
    }

    sbx_check_unit(c, "TasksMax=infinity");

    return 0;
}


static int
sbx_check_templates(const sbx_doctor_t *d, const sbx_doctor_row_t *row,
    sbx_f_check_t *c)
{
    char            path[NAME_MAX + 32];
    DIR            *dir;
    unsigned        n;
    struct dirent  *entry;

    (void) row;

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

        sbx_check_mend(c, "chmod 0755 %.120s", d->template_dir);
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
sbx_check_interpreter(const sbx_doctor_t *d, const sbx_doctor_row_t *row,
    sbx_f_check_t *c)
{
    size_t    i, len;
    unsigned  python;

    static const char  *programs[] = {
        "/usr/bin/python3", "/usr/bin/bash", "/usr/bin/node", "/usr/bin/git"
    };

    (void) d;
    (void) row;

    len = 0;
    python = 0;

    for (i = 0; i < sbx_nelts(programs); i++) {
        if (access(programs[i], X_OK) == 0) {
            len += (size_t) snprintf(c->found + len, sizeof(c->found) - len,
                                     "%s%s", len ? " " : "", programs[i]);
            python |= (i == 0);
        }
    }

    if (len == 0) {
        sbx_check_found(c, "none");
    }

    sbx_check_mend(c, "apt-get install python3");

    return (int) python;
}


static int
sbx_check_clock(const sbx_doctor_t *d, const sbx_doctor_row_t *row,
    sbx_f_check_t *c)
{
    char             text[64];
    struct tm        tm;
    struct timespec  ts;

    (void) d;
    (void) row;

    sbx_check_mend(c, "timedatectl set-ntp true");

    if (clock_gettime(CLOCK_REALTIME, &ts) == -1
        || gmtime_r(&ts.tv_sec, &tm) == NULL)
    {
        sbx_check_found(c, "no clock");
        return 0;
    }

    (void) strftime(text, sizeof(text), "%Y-%m-%dT%H:%M:%SZ", &tm);
    sbx_check_found(c, "%s", text);

    return ts.tv_sec >= SBX_CLOCK_SANE;
}


int
sbx_program_there(const char *name)
{
    size_t       len;
    char         file[PATH_MAX];
    const char  *path;

    path = getenv("PATH");

    if (path == NULL) {
        path = SBX_PATH_DEFAULT;
    }

    for ( ;; ) {
        len = strcspn(path, ":");

        if (len != 0
            && snprintf(file, sizeof(file), "%.*s/%s", (int) len, path, name)
               < (int) sizeof(file)
            && access(file, X_OK) == 0)
        {
            return 1;
        }

        if (path[len] == '\0') {
            return 0;
        }

        path += len + 1;
    }
}


static int
sbx_check_loop(const sbx_doctor_t *d, const sbx_doctor_row_t *row,
    sbx_f_check_t *c)
{
    (void) row;

    if (access("/dev/loop-control", R_OK | W_OK) == -1) {
        sbx_check_found(c, "/dev/loop-control: %s", strerror(errno));
        sbx_check_mend(c, "modprobe loop && echo loop > "
                       "/etc/modules-load.d/sandbox-loop.conf");
        return 0;
    }

    if (!sbx_program_there("mkfs.ext4")) {
        sbx_check_found(c, "mkfs.ext4 is not in PATH");
        sbx_check_mend(c, "apt-get install e2fsprogs");
        return 0;
    }

    if (d->layers->probed.err[SBX_LAYER_IMAGE] != 0) {
        sbx_check_found(c, "no image can be attached: %s",
                        sbx_check_why(d, SBX_LAYER_IMAGE));
        sbx_check_mend(c, "modprobe loop; modprobe ext4");
        return 0;
    }

    sbx_check_found(c, "loop devices, ext4 and mkfs.ext4");

    return 1;
}


static int
sbx_check_quota(const sbx_doctor_t *d, const sbx_doctor_row_t *row,
    sbx_f_check_t *c)
{
    char         type[32];
    const char  *dir;

    (void) row;

    dir = d->layers->storage_dir;
    (void) sbx_project_type(dir, type, sizeof(type));

    if (d->layers->probed.err[SBX_LAYER_PROJECT_QUOTA] == 0) {
        sbx_check_found(c, "%.120s: enforced by its %s", dir, type);
        return 1;
    }

    sbx_check_found(c, "%.120s: its %s enforces none", dir, type);
    sbx_check_mend(c, "%s",
                   sbx_layers_mend(d->layers,
                                   SBX_LAYER_BIT(SBX_LAYER_PROJECT_QUOTA)));

    return 0;
}


static int
sbx_check_nftables(const sbx_doctor_t *d, const sbx_doctor_row_t *row,
    sbx_f_check_t *c)
{
    (void) row;

    if (d->layers->probed.err[SBX_LAYER_NETWORK_GRANTS] != 0) {
        sbx_check_found(c, "%s: %s",
                        d->layers->probed.err[SBX_LAYER_NETWORK_CONNTRACK]
                        != 0 ? "connections are not tracked"
                             : "connections are not redirected",
                        sbx_check_why(d, SBX_LAYER_NETWORK_GRANTS));
        sbx_check_mend(c, "%s",
                       sbx_layers_mend(d->layers, SBX_LAYER_BIT(
                                               SBX_LAYER_NETWORK_GRANTS)));
        return 0;
    }

    sbx_check_found(c, "connections are tracked and redirected, IPv6 %s",
                    d->layers->probed.err[SBX_LAYER_NETWORK_IPV6] == 0
                    ? "too" : "is not there");

    return 1;
}


static int
sbx_check_apparmor(const sbx_doctor_t *d, const sbx_doctor_row_t *row,
    sbx_f_check_t *c)
{
    int64_t  value;

    static const char  name[] =
        "kernel.apparmor_restrict_unprivileged_userns";

    (void) d;
    (void) row;

    if (sbx_check_sysctl_read(name, &value) == -1) {
        sbx_check_found(c, "AppArmor does not restrict user namespaces");
        return 1;
    }

    sbx_check_found(c, "%s is %" PRId64, name, value);
    sbx_check_mend(c, "printf 'abi <abi/4.0>,\\ninclude <tunables/global>\\n"
                   "profile sandboxctl /usr/sbin/sandboxctl "
                   "flags=(unconfined) {\\n  userns,\\n}\\n' > "
                   "/etc/apparmor.d/sandboxctl && apparmor_parser -r "
                   "/etc/apparmor.d/sandboxctl; or, for all programs: "
                   "sysctl -w %s=0", name);

    return value == 0;
}


static int
sbx_check_sysctl(const sbx_doctor_t *d, const sbx_doctor_row_t *row,
    sbx_f_check_t *c)
{
    int64_t                     value;
    const sbx_doctor_sysctl_t  *s;

    (void) d;

    s = &row->sysctl;

    if (sbx_check_sysctl_read(s->name, &value) == -1) {
        sbx_check_found(c, "this kernel has no %s", s->name);
        return 1;
    }

    sbx_check_found(c, "%s is %" PRId64, s->name, value);

    /* the one setting whose middle is wrong */

    if (s->min == -1 && value == 1) {
        sbx_check_found(c, "%s is 1: for a moment a command could be traced "
                        "by another of its session", s->name);

    } else if (value >= s->min && value <= s->max) {
        return 1;

    } else {
        sbx_check_found(c, "%s is %" PRId64 ": %s", s->name, value, s->why);
    }

    sbx_check_mend(c, "sysctl -w %s=%s && echo %s=%s >> "
                   "/etc/sysctl.d/90-sandbox.conf", s->name, s->value,
                   s->name, s->value);

    return 0;
}


static int
sbx_check_sysctl_read(const char *name, int64_t *value)
{
    char  path[128], text[64], *p;

    (void) snprintf(path, sizeof(path), "/proc/sys/%s", name);

    for (p = path + strlen("/proc/sys/"); *p != '\0'; p++) {
        if (*p == '.') {
            *p = '/';
        }
    }

    if (sbx_read_at(AT_FDCWD, path, text, sizeof(text)) <= 0) {
        return -1;
    }

    *value = strtoll(text, NULL, 10);

    return 0;
}
