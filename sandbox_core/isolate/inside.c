/*
 * What a session sees of the machine: /proc with the other tenants' and the
 * host's parts hidden, /sys with nothing but processor counts, /dev with six
 * nodes and terminals of its own.  All but procfs and devpts comes from one
 * small tmpfs ("system", see root.c), filled here and read-only from then on:
 *
 *   dev/            bound over /dev
 *   sys/            bound over /sys
 *   sandbox/        bound over /run/sandbox, where there are drivers
 *   meminfo cpuinfo stat loadavg
 *                   bound over their names in /proc
 *   empty nothing/  bound over files and directories of /proc to be hidden
 *
 * Works by names relative to the overlay's root (the working directory):
 * nothing of the session has run yet, and every name it could have made a
 * link of is a directory of ours.
 */

#include "isolate_private.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <time.h>


#define SBX_CPUINFO_MAX   8192
#define SBX_TTY_GROUP     5
#define SBX_INSIDE_LOAD   "0.00 0.00 0.00 1/1 1\n"


static const struct {
    const char  *name;
    unsigned     major;
    unsigned     minor;
} sbx_inside_nodes[] = {
    { "dev/null",    1, 3 },
    { "dev/zero",    1, 5 },
    { "dev/full",    1, 7 },
    { "dev/random",  1, 8 },
    { "dev/urandom", 1, 9 },
    { "dev/tty",     5, 0 }
};

static const struct {
    const char  *name;
    const char  *target;
} sbx_inside_links[] = {
    { "dev/fd",     "/proc/self/fd" },
    { "dev/stdin",  "/proc/self/fd/0" },
    { "dev/stdout", "/proc/self/fd/1" },
    { "dev/stderr", "/proc/self/fd/2" },
    { "dev/ptmx",   "pts/ptmx" }
};

static const char  *sbx_inside_dirs[] = {
    "dev", "dev/pts", "dev/shm", "nothing", "sandbox", "sandbox/kernels",
    "sys", "sys/devices", "sys/devices/system", "sys/devices/system/cpu"
};

/* Hidden where the kernel has them. */
static const char  *sbx_inside_files_hidden[] = {
    "proc/allocinfo", "proc/bootconfig", "proc/buddyinfo", "proc/cgroups",
    "proc/cmdline", "proc/config.gz", "proc/consoles", "proc/diskstats",
    "proc/interrupts", "proc/iomem", "proc/ioports", "proc/kallsyms",
    "proc/kcore", "proc/key-users", "proc/keys", "proc/kmsg",
    "proc/kpagecgroup", "proc/kpagecount", "proc/kpageflags",
    "proc/latency_stats", "proc/locks", "proc/mdstat", "proc/modules",
    "proc/pagetypeinfo", "proc/partitions", "proc/sched_debug",
    "proc/schedstat", "proc/slabinfo", "proc/softirqs",
    "proc/swaps", "proc/sysrq-trigger", "proc/timer_list",
    "proc/timer_stats", "proc/vmallocinfo", "proc/vmstat", "proc/zoneinfo"
};

/* Shown as they are for a machine of the session's size. */
static const struct {
    const char  *source;
    const char  *name;
} sbx_inside_files_shown[] = {
    { "../system/meminfo", "proc/meminfo" },
    { "../system/cpuinfo", "proc/cpuinfo" },
    { "../system/loadavg", "proc/loadavg" },
    { "../system/stat",    "proc/stat" }
};

static const char  *sbx_inside_dirs_hidden[] = {
    "proc/acpi", "proc/asound", "proc/bus", "proc/driver",
    "proc/dynamic_debug", "proc/fs", "proc/irq", "proc/pressure",
    "proc/scsi", "proc/tty"
};


/* One processor of the host's /proc/cpuinfo: read once, since every reading
 * of it disturbs all processors.  And the text made of it last. */
static char  sbx_cpuinfo_host[SBX_CPUINFO_MAX];

static struct {
    unsigned   cpus;
    char      *text;
    size_t     size;
} sbx_cpuinfo;

/* When the machine was started, as /proc/stat tells: ps needs it to date a
 * process, and /proc/uptime tells the same. */
static uint64_t  sbx_inside_boot;

static int  sbx_inside_meminfo_fd = -1;


static int sbx_inside_cpuinfo(unsigned cpus);
static int sbx_inside_stat(const sbx_plan_t *plan, int top);
static int sbx_inside_system(const sbx_plan_t *plan, int top,
    sbx_error_t *e);
static int sbx_inside_cpus(const sbx_plan_t *plan, int top, sbx_error_t *e);
static int sbx_inside_file(int top, const char *name, const char *text,
    size_t size);
static int sbx_inside_hide(const char *source, const char *name,
    sbx_error_t *e);


int
sbx_inside_prepare(sbx_error_t *e)
{
    char             *end;
    struct timespec   now, up;

    if (sbx_cpuinfo_host[0] != '\0') {
        return 0;
    }

    if (sbx_read_at(AT_FDCWD, "/proc/cpuinfo", sbx_cpuinfo_host,
                    sizeof(sbx_cpuinfo_host))
        == -1)
    {
        return sbx_error(e, errno, SBX_E_UNAVAILABLE,
                         "/proc/cpuinfo cannot be read");
    }

    end = strstr(sbx_cpuinfo_host, "\n\n");

    if (end != NULL) {
        end[1] = '\0';
    }

    if (clock_gettime(CLOCK_REALTIME, &now) == 0
        && clock_gettime(CLOCK_BOOTTIME, &up) == 0)
    {
        sbx_inside_boot = (uint64_t) (now.tv_sec - up.tv_sec);
    }

    return 0;
}


int
sbx_inside_plan(sbx_plan_t *plan, sbx_error_t *e)
{
    if (sbx_inside_prepare(e) == -1) {
        return -1;
    }

    if (sbx_cpuinfo.cpus != plan->cpus
        && sbx_inside_cpuinfo(plan->cpus) == -1)
    {
        return sbx_error(e, errno, SBX_E_INTERNAL, "no memory");
    }

    plan->cpuinfo = sbx_cpuinfo.text;
    plan->cpuinfo_size = sbx_cpuinfo.size;

    (void) sbx_inside_meminfo(plan->launch->limits.memory, plan->meminfo);

    return 0;
}


int
sbx_inside_mount(const sbx_plan_t *plan, int proc, sbx_error_t *e)
{
    char         gid[32];
    size_t       i;
    sbx_auto_fd  top = -1;

    top = sbx_sys_tmpfs("0755", "16m", SBX_MOUNT_NOSUID | SBX_MOUNT_NOEXEC);

    if (top == -1 || sbx_sys_move_mount(top, AT_FDCWD, "../system") == -1) {
        return sbx_error(e, errno, SBX_E_INTERNAL, "cannot mount a tmpfs");
    }

    (void) snprintf(gid, sizeof(gid), "%" PRIu64,
                    plan->launch->uid_first + SBX_TTY_GROUP);

    if (sbx_inside_system(plan, top, e) == -1
        || sbx_inside_cpus(plan, top, e) == -1
        || sbx_inside_dev(gid, e) == -1)
    {
        return -1;
    }

    if (plan->launch->flags & SBX_LAUNCH_AHEAD) {
        sbx_inside_meminfo_fd = sbx_ahead_keep(top);

        if (sbx_inside_meminfo_fd == -1) {
            return sbx_error(e, errno, SBX_E_INTERNAL,
                             "cannot keep /proc/meminfo");
        }
    }

    /* what is bound from here on is read-only as its source is */

    if (sbx_sys_mount_attr(top, SBX_MOUNT_RDONLY | SBX_MOUNT_NODEV, -1) == -1
        || mount("../system/sys", "sys", NULL, MS_BIND, NULL) == -1)
    {
        return sbx_error(e, errno, SBX_E_INTERNAL, "cannot mount /sys");
    }

    if (sbx_inside_proc(proc, e) == -1) {
        return -1;
    }

    for (i = 0; i < sbx_nelts(sbx_inside_files_shown); i++) {
        if (sbx_inside_hide(sbx_inside_files_shown[i].source,
                            sbx_inside_files_shown[i].name, e)
            == -1)
        {
            return -1;
        }
    }

    return 0;
}


int
sbx_inside_kept(void)
{
    return sbx_inside_meminfo_fd;
}


int
sbx_inside_dev_names(int (*name)(const char *name, const char *target,
    void *data), void *data)
{
    size_t  i;

    for (i = 0; i < sbx_nelts(sbx_inside_nodes); i++) {
        if (name(sbx_inside_nodes[i].name, NULL, data) == -1) {
            return -1;
        }
    }

    for (i = 0; i < sbx_nelts(sbx_inside_links); i++) {
        if (name(sbx_inside_links[i].name, sbx_inside_links[i].target, data)
            == -1)
        {
            return -1;
        }
    }

    return 0;
}


static int
sbx_inside_system(const sbx_plan_t *plan, int top, sbx_error_t *e)
{
    size_t  i;

    for (i = 0; i < sbx_nelts(sbx_inside_dirs); i++) {
        if (mkdirat(top, sbx_inside_dirs[i], 0755) == -1) {
            goto failed;
        }
    }

    for (i = 0; i < sbx_nelts(sbx_inside_nodes); i++) {
        if (mknodat(top, sbx_inside_nodes[i].name, S_IFCHR | 0666,
                    makedev(sbx_inside_nodes[i].major,
                            sbx_inside_nodes[i].minor))
            == -1)
        {
            goto failed;
        }
    }

    for (i = 0; i < sbx_nelts(sbx_inside_links); i++) {
        if (symlinkat(sbx_inside_links[i].target, top,
                      sbx_inside_links[i].name)
            == -1)
        {
            goto failed;
        }
    }

    if (sbx_inside_file(top, "empty", "", 0) == 0
        && sbx_inside_file(top, "meminfo", plan->meminfo,
                           strlen(plan->meminfo))
           == 0
        && sbx_inside_file(top, "cpuinfo", plan->cpuinfo, plan->cpuinfo_size)
           == 0
        && sbx_inside_file(top, "loadavg", SBX_INSIDE_LOAD,
                           sizeof(SBX_INSIDE_LOAD) - 1)
           == 0
        && sbx_inside_stat(plan, top) == 0)
    {
        return 0;
    }

failed:

    return sbx_error(e, errno, SBX_E_INTERNAL, "cannot fill /dev and /sys");
}


/* Lines for the session's processors alone, with none of the counts: those
 * of the machine tell what others do. */
static int
sbx_inside_stat(const sbx_plan_t *plan, int top)
{
    int       rc;
    FILE     *out;
    char     *text;
    size_t    size;
    unsigned  i;

    out = open_memstream(&text, &size);
    if (out == NULL) {
        return -1;
    }

    (void) fprintf(out, "cpu  0 0 0 0 0 0 0 0 0 0\n");

    for (i = 0; i < plan->cpus; i++) {
        (void) fprintf(out, "cpu%u 0 0 0 0 0 0 0 0 0 0\n", i);
    }

    (void) fprintf(out, "intr 0\nctxt 0\nbtime %" PRIu64 "\nprocesses 0\n"
                        "procs_running 1\nprocs_blocked 0\n"
                        "softirq 0 0 0 0 0 0 0 0 0 0 0\n", sbx_inside_boot);

    if (fclose(out) != 0) {
        return -1;
    }

    rc = sbx_inside_file(top, "stat", text, size);
    free(text);

    return rc;
}


static int
sbx_inside_file(int top, const char *name, const char *text, size_t size)
{
    sbx_auto_fd  fd = -1;

    fd = openat(top, name, O_WRONLY | O_CREAT | O_CLOEXEC, 0444);

    return (fd == -1) ? -1 : sbx_write_all(fd, text, size);
}


static int
sbx_inside_cpus(const sbx_plan_t *plan, int top, sbx_error_t *e)
{
    char      text[64], name[64];
    size_t    k;
    unsigned  i;

    static const char  *files[] = { "online", "possible", "present" };

    if (plan->cpus > 1) {
        (void) snprintf(text, sizeof(text), "0-%u\n", plan->cpus - 1);

    } else {
        (void) snprintf(text, sizeof(text), "0\n");
    }

    for (k = 0; k < sbx_nelts(files); k++) {
        (void) snprintf(name, sizeof(name), "sys/devices/system/cpu/%s",
                        files[k]);

        if (sbx_inside_file(top, name, text, strlen(text)) == -1) {
            goto failed;
        }
    }

    (void) snprintf(text, sizeof(text), "%u\n", plan->cpus - 1);

    if (sbx_inside_file(top, "sys/devices/system/cpu/kernel_max", text,
                        strlen(text))
        == -1)
    {
        goto failed;
    }

    for (i = 0; i < plan->cpus; i++) {
        (void) snprintf(name, sizeof(name), "sys/devices/system/cpu/cpu%u",
                        i);

        if (mkdirat(top, name, 0755) == -1) {
            goto failed;
        }
    }

    return 0;

failed:

    return sbx_error(e, errno, SBX_E_INTERNAL, "cannot fill /sys");
}


/* A session's processors are numbered from 0, all in one package. */
static int
sbx_inside_cpuinfo(unsigned cpus)
{
    FILE        *out;
    char        *text;
    size_t       size, k, key, len;
    unsigned     i, value;
    const char  *line, *next;

    static const struct {
        const char  *name;
        unsigned     count:1;         /* of all, else this one's number */
    } lines[] = {
        { "processor", 0 }, { "core id", 0 }, { "apicid", 0 },
        { "initial apicid", 0 }, { "siblings", 1 }, { "cpu cores", 1 }
    };

    out = open_memstream(&text, &size);
    if (out == NULL) {
        return -1;
    }

    for (i = 0; i < cpus; i++) {

        for (line = sbx_cpuinfo_host; *line != '\0'; line = next) {
            next = strchrnul(line, '\n');
            next += (*next != '\0');
            len = (size_t) (next - line);
            key = strcspn(line, "\t:\n");

            for (k = 0; k < sbx_nelts(lines); k++) {
                if (strlen(lines[k].name) == key
                    && strncmp(line, lines[k].name, key) == 0)
                {
                    break;
                }
            }

            if (k == sbx_nelts(lines)) {
                (void) fwrite(line, 1, len, out);
                continue;
            }

            /* the tabs before the colon stay as they are */

            value = lines[k].count ? cpus : i;
            (void) fprintf(out, "%.*s: %u\n", (int) strcspn(line, ":\n"),
                           line, value);
        }

        (void) fputc('\n', out);
    }

    if (fclose(out) != 0) {
        return -1;
    }

    free(sbx_cpuinfo.text);
    sbx_cpuinfo.text = text;
    sbx_cpuinfo.size = size;
    sbx_cpuinfo.cpus = cpus;

    return 0;
}


size_t
sbx_inside_meminfo(uint64_t memory, char text[SBX_MEMINFO_MAX])
{
    int       n;
    size_t    i;
    uint64_t  total;

    static const struct {
        const char  *name;
        unsigned     whole:1;           /* the limit, else 0 */
    } lines[] = {
        { "MemTotal", 1 }, { "MemFree", 1 }, { "MemAvailable", 1 },
        { "Buffers", 0 }, { "Cached", 0 }, { "SwapCached", 0 },
        { "Active", 0 }, { "Inactive", 0 }, { "SwapTotal", 0 },
        { "SwapFree", 0 }, { "Dirty", 0 }, { "Writeback", 0 },
        { "AnonPages", 0 }, { "Mapped", 0 }, { "Shmem", 0 },
        { "KReclaimable", 0 }, { "Slab", 0 }, { "SReclaimable", 0 },
        { "SUnreclaim", 0 }, { "CommitLimit", 1 }, { "Committed_AS", 0 }
    };

    total = memory / 1024;
    n = 0;

    for (i = 0; i < sbx_nelts(lines); i++) {
        n += snprintf(text + n, SBX_MEMINFO_MAX - (size_t) n,
                      "%s:%*s%8" PRIu64 " kB\n", lines[i].name,
                      (int) (15 - strlen(lines[i].name)), "",
                      lines[i].whole ? total : 0);
    }

    return (size_t) n;
}


int
sbx_inside_dev(const char *gid, sbx_error_t *e)
{
    char         most[12];
    sbx_auto_fd  dev = -1, fs = -1, pts = -1;

    (void) snprintf(most, sizeof(most), "%d", SBX_TERMINALS_MAX);
    dev = sbx_sys_clone_tree(AT_FDCWD, "../system/dev", 1);

    if (dev == -1
        || sbx_sys_mount_attr(dev, SBX_MOUNT_RDONLY | SBX_MOUNT_NOSUID
                                   | SBX_MOUNT_NOEXEC, -1)
           == -1
        || sbx_sys_move_mount(dev, AT_FDCWD, "dev") == -1)
    {
        return sbx_error(e, errno, SBX_E_INTERNAL, "cannot mount /dev");
    }

    fs = sbx_sys_fsopen("devpts");

    if (fs == -1
        || sbx_sys_fsconfig(fs, SBX_FSCONFIG_STRING, "source", "devpts")
           == -1
        || sbx_sys_fsconfig(fs, SBX_FSCONFIG_STRING, "ptmxmode", "0666") == -1
        || sbx_sys_fsconfig(fs, SBX_FSCONFIG_STRING, "mode", "0620") == -1
        || (gid != NULL
            && sbx_sys_fsconfig(fs, SBX_FSCONFIG_STRING, "gid", gid) == -1)
        || sbx_sys_fsconfig(fs, SBX_FSCONFIG_STRING, "max", most) == -1)
    {
        return sbx_error(e, errno, SBX_E_INTERNAL, "cannot make a devpts");
    }

    pts = sbx_sys_fsmount(fs, SBX_MOUNT_NOSUID | SBX_MOUNT_NOEXEC);

    if (pts == -1 || sbx_sys_move_mount(pts, AT_FDCWD, "dev/pts") == -1) {
        return sbx_error(e, errno, SBX_E_INTERNAL, "cannot mount /dev/pts");
    }

    return 0;
}


static int
sbx_inside_hide(const char *source, const char *name, sbx_error_t *e)
{
    if (mount(source, name, NULL, MS_BIND, NULL) == 0 || errno == ENOENT) {
        return 0;
    }

    return sbx_error(e, errno, SBX_E_INTERNAL, "cannot hide /%s", name);
}


int
sbx_inside_proc(int proc, sbx_error_t *e)
{
    size_t       i;
    sbx_auto_fd  sys = -1;

    if (sbx_sys_move_mount(proc, AT_FDCWD, "proc") == -1) {
        return sbx_error(e, errno, SBX_E_INTERNAL, "cannot mount /proc");
    }

    sys = sbx_sys_clone_tree(AT_FDCWD, "proc/sys", 0);

    if (sys == -1
        || sbx_sys_mount_attr(sys, SBX_MOUNT_RDONLY | SBX_MOUNT_NOSUID
                                   | SBX_MOUNT_NODEV | SBX_MOUNT_NOEXEC, -1)
           == -1
        || sbx_sys_move_mount(sys, AT_FDCWD, "proc/sys") == -1)
    {
        return sbx_error(e, errno, SBX_E_INTERNAL,
                         "cannot make /proc/sys read-only");
    }

    for (i = 0; i < sbx_nelts(sbx_inside_files_hidden); i++) {
        if (sbx_inside_hide("../system/empty", sbx_inside_files_hidden[i], e)
            == -1)
        {
            return -1;
        }
    }

    for (i = 0; i < sbx_nelts(sbx_inside_dirs_hidden); i++) {
        if (sbx_inside_hide("../system/nothing", sbx_inside_dirs_hidden[i],
                            e)
            == -1)
        {
            return -1;
        }
    }

    return 0;
}
