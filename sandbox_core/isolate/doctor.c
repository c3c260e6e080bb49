/*
 * What the machine can do, for people: the checks of /doctor, and the quick
 * refusals at start.  A check looks and changes nothing.  What had to be
 * tried was tried before (layers.h); what is looked at here takes a few
 * system calls, and is of now.
 */

#include "doctor_private.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/capability.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>


#define SBX_UNIT_DEFAULT     "sandbox-broker.service"
#define SBX_NAMESPACES_LOW   1024

#ifndef MFD_EXEC
#define MFD_EXEC             0x10u
#endif


static int sbx_check_privileges(const sbx_doctor_t *d,
    const sbx_doctor_row_t *row, sbx_f_check_t *c);
static int sbx_check_userns(const sbx_doctor_t *d,
    const sbx_doctor_row_t *row, sbx_f_check_t *c);
static int sbx_check_namespaces(const sbx_doctor_t *d,
    const sbx_doctor_row_t *row, sbx_f_check_t *c);
static int sbx_check_namespace_limits(const sbx_doctor_t *d,
    const sbx_doctor_row_t *row, sbx_f_check_t *c);
static int sbx_check_cgroup(const sbx_doctor_t *d,
    const sbx_doctor_row_t *row, sbx_f_check_t *c);
static void sbx_check_cgroup_mend(sbx_f_check_t *c);
static int sbx_check_controller_off(const char *name);
static int sbx_check_cgroup_version(const sbx_doctor_t *d,
    const sbx_doctor_row_t *row, sbx_f_check_t *c);
static int sbx_check_tmpfs(const sbx_doctor_t *d,
    const sbx_doctor_row_t *row, sbx_f_check_t *c);
static int sbx_check_isolation(const sbx_doctor_t *d,
    const sbx_doctor_row_t *row, sbx_f_check_t *c);
static int sbx_check_memfd(const sbx_doctor_t *d,
    const sbx_doctor_row_t *row, sbx_f_check_t *c);
static void sbx_doctor_run(const sbx_doctor_t *d,
    const sbx_doctor_row_t *row, sbx_f_check_t *c);


#define CHECK(name, required, run)                                            \
    { name, required, run, SBX_LAYER_MAX, { NULL, 0, 0, NULL, NULL } }
#define LAYER(name, required, layer)                                          \
    { name, required, sbx_check_layer, layer, { NULL, 0, 0, NULL, NULL } }

/* What sessions are made of. */
static const sbx_doctor_row_t  sbx_doctor_rows[] = {
    CHECK("privileges",       1, sbx_check_privileges),
    CHECK("user_namespaces",  1, sbx_check_userns),
    CHECK("namespaces",       1, sbx_check_namespaces),
    CHECK("namespace_limits", 0, sbx_check_namespace_limits),
    CHECK("cgroup",           1, sbx_check_cgroup),
    CHECK("cgroup_version",   0, sbx_check_cgroup_version),
    LAYER("cpu_bandwidth",    0, SBX_LAYER_CPUS),
    LAYER("swap_limit",       0, SBX_LAYER_SWAP),
    LAYER("seccomp",          1, SBX_LAYER_SECCOMP),
    LAYER("overlay",          1, SBX_LAYER_FILESYSTEM),
    CHECK("tmpfs",            1, sbx_check_tmpfs),
    LAYER("host_view",        1, SBX_LAYER_HOST_VIEW),
    LAYER("private_proc",     1, SBX_LAYER_PROC),
    CHECK("memfd_exec",       1, sbx_check_memfd),
    CHECK("isolation",        1, sbx_check_isolation),
    CHECK(NULL,               0, NULL)
};

static const cap_value_t  sbx_doctor_caps[] = {
    CAP_SYS_ADMIN, CAP_SETUID, CAP_SETGID, CAP_CHOWN, CAP_DAC_OVERRIDE,
    CAP_FOWNER, CAP_NET_ADMIN, CAP_MKNOD, CAP_SYS_CHROOT
};


void
sbx_doctor(const sbx_doctor_t *d,
    void (*check)(const sbx_f_check_t *c, void *data), void *data)
{
    size_t                   i;
    sbx_f_check_t            c;
    const sbx_doctor_row_t  *row;
    const sbx_doctor_row_t  *tables[] = { sbx_doctor_rows, sbx_doctor_host };

    for (i = 0; i < sbx_nelts(tables); i++) {
        for (row = tables[i]; row->name != NULL; row++) {
            sbx_doctor_run(d, row, &c);
            check(&c, data);
        }
    }
}


static void
sbx_doctor_run(const sbx_doctor_t *d, const sbx_doctor_row_t *row,
    sbx_f_check_t *c)
{
    memset(c, 0, sizeof(sbx_f_check_t));
    (void) snprintf(c->name, sizeof(c->name), "%s", row->name);
    c->required = row->required;
    c->ok = (uint32_t) row->run(d, row, c);

    if (c->ok) {
        c->mend[0] = '\0';
    }
}


/* What may go wrong while a broker runs, and stops sessions. */

int
sbx_doctor_health(const sbx_doctor_t *d, sbx_error_t *e)
{
    size_t         i;
    sbx_f_check_t  c;

    static const sbx_doctor_row_t  rows[] = {
        CHECK("disk",      0, sbx_check_disk),
        CHECK("inodes",    0, sbx_check_inodes),
        CHECK("isolation", 1, sbx_check_isolation)
    };

    for (i = 0; i < sbx_nelts(rows); i++) {
        sbx_doctor_run(d, &rows[i], &c);

        if (!c.ok && c.required) {
            /* half a command is worse than none */

            return sbx_error(e, 0, SBX_E_UNAVAILABLE, "%s: %.100s; %s",
                             c.name, c.found,
                             strlen(c.mend) <= 120 ? c.mend
                             : "GET /doctor has the command that mends it");
        }
    }

    return 0;
}


/* Without these nothing can be started. */

int
sbx_preflight(const char *state_dir, sbx_error_t *e)
{
    sbx_doctor_t   d;
    sbx_f_check_t  c;

    static const sbx_doctor_row_t  privileges =
        CHECK("privileges", 1, sbx_check_privileges);

    memset(&d, 0, sizeof(sbx_doctor_t));
    sbx_doctor_run(&d, &privileges, &c);

    if (!c.ok) {
        return sbx_error(e, 0, SBX_E_UNAVAILABLE, "%s: %s; %s", c.name,
                         c.found, c.mend);
    }

    if (state_dir == NULL) {
        return 0;
    }

    if (state_dir[0] != '/' || access(state_dir, W_OK | X_OK) == -1) {
        return sbx_error(e, errno, SBX_E_UNAVAILABLE,
                         "the state directory \"%.120s\" is not writable: "
                         "make it, on a local file system, or set "
                         "sandbox_state_dir", state_dir);
    }

    return 0;
}


void
sbx_check_found(sbx_f_check_t *c, const char *fmt, ...)
{
    va_list  args;

    va_start(args, fmt);
    (void) vsnprintf(c->found, sizeof(c->found), fmt, args);
    va_end(args);
}


void
sbx_check_mend(sbx_f_check_t *c, const char *fmt, ...)
{
    va_list  args;

    va_start(args, fmt);
    (void) vsnprintf(c->mend, sizeof(c->mend), fmt, args);
    va_end(args);
}


void
sbx_check_unit(sbx_f_check_t *c, const char *setting)
{
    char  text[4096], *path, *unit;

    unit = NULL;

    if (sbx_read_at(AT_FDCWD, "/proc/self/cgroup", text, sizeof(text)) > 0) {
        path = strstr(text, ".service");

        if (path != NULL) {
            path[strlen(".service")] = '\0';
            unit = strrchr(text, '/');
        }
    }

    unit = (unit == NULL || strlen(unit) > 64)
           ? (char *) (uintptr_t) SBX_UNIT_DEFAULT : unit + 1;

    sbx_check_mend(c, "mkdir -p /etc/systemd/system/%s.d && "
                   "printf '[Service]\\n%s\\n' > "
                   "/etc/systemd/system/%s.d/sandbox.conf && "
                   "systemctl daemon-reload && systemctl restart %s", unit,
                   setting, unit, unit);
}


const char *
sbx_check_why(const sbx_doctor_t *d, sbx_layer_t layer)
{
    int  err;

    err = d->layers->probed.err[layer];

    return err > 0 ? strerror(err) : "it could not be tried";
}


static int
sbx_check_privileges(const sbx_doctor_t *d, const sbx_doctor_row_t *row,
    sbx_f_check_t *c)
{
    char              missing[128], *name;
    cap_t             caps;
    size_t            i, len;
    cap_flag_value_t  set;

    (void) d;
    (void) row;

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
sbx_check_userns(const sbx_doctor_t *d, const sbx_doctor_row_t *row,
    sbx_f_check_t *c)
{
    char  text[32];

    (void) row;

    if (sbx_read_at(AT_FDCWD, "/proc/sys/user/max_user_namespaces", text,
                    sizeof(text))
        == -1)
    {
        sbx_check_found(c, "the kernel has no user namespaces");
        sbx_check_mend(c, "use a kernel with CONFIG_USER_NS");
        return 0;
    }

    text[strcspn(text, "\n")] = '\0';

    if (d->layers->probed.err[SBX_LAYER_USER_NS] != 0) {
        sbx_check_found(c, "none with 65,536 ids can be made (%s), the limit "
                        "is %s", sbx_check_why(d, SBX_LAYER_USER_NS), text);

        if (strcmp(text, "0") == 0) {
            sbx_check_mend(c, "sysctl -w user.max_user_namespaces=65536 && "
                           "echo user.max_user_namespaces=65536 >> "
                           "/etc/sysctl.d/90-sandbox.conf");

        } else {
            sbx_check_mend(c, "start it as the host's own root, outside of "
                           "any container or user namespace");
        }

        return 0;
    }

    sbx_check_found(c, "65,536 ids for each session, up to %s of them", text);

    return 1;
}


static const struct {
    sbx_layer_t   layer;
    const char   *name;               /* of user.max_..._namespaces */
} sbx_doctor_namespaces[] = {
    { SBX_LAYER_PID_NS,    "pid" },
    { SBX_LAYER_MOUNT_NS,  "mnt" },
    { SBX_LAYER_IPC_NS,    "ipc" },
    { SBX_LAYER_UTS_NS,    "uts" },
    { SBX_LAYER_NETWORK,   "net" },
    { SBX_LAYER_CGROUP_NS, "cgroup" }
};


static int
sbx_check_namespaces(const sbx_doctor_t *d, const sbx_doctor_row_t *row,
    sbx_f_check_t *c)
{
    size_t       i;
    sbx_layer_t  layer;

    (void) row;

    for (i = 0; i < sbx_nelts(sbx_doctor_namespaces); i++) {
        layer = sbx_doctor_namespaces[i].layer;

        if (d->layers->probed.err[layer] == 0) {
            continue;
        }

        sbx_check_found(c, "no %s namespace can be made: %s",
                        sbx_doctor_namespaces[i].name,
                        sbx_check_why(d, layer));
        sbx_check_mend(c, "%s", sbx_layers_mend(d->layers,
                                               SBX_LAYER_BIT(layer)));

        /* sessions may do without this one; see the check "isolation" */
        c->required = layer != SBX_LAYER_CGROUP_NS;

        return 0;
    }

    sbx_check_found(c, "pid, mnt, ipc, uts, net and cgroup");

    return 1;
}


static int
sbx_check_namespace_limits(const sbx_doctor_t *d, const sbx_doctor_row_t *row,
    sbx_f_check_t *c)
{
    char                path[64], text[32];
    size_t              i;
    unsigned long long  n, least;

    (void) d;
    (void) row;

    least = ~0ULL;

    for (i = 0; i < sbx_nelts(sbx_doctor_namespaces); i++) {
        (void) snprintf(path, sizeof(path),
                        "/proc/sys/user/max_%s_namespaces",
                        sbx_doctor_namespaces[i].name);

        if (sbx_read_at(AT_FDCWD, path, text, sizeof(text)) <= 0) {
            continue;
        }

        n = strtoull(text, NULL, 10);
        least = n < least ? n : least;

        if (n < SBX_NAMESPACES_LOW) {
            sbx_check_found(c, "user.max_%s_namespaces is %llu: each session "
                            "takes one", sbx_doctor_namespaces[i].name, n);
            sbx_check_mend(c, "sysctl -w user.max_%s_namespaces=65536 && "
                           "echo user.max_%s_namespaces=65536 >> "
                           "/etc/sysctl.d/90-sandbox.conf",
                           sbx_doctor_namespaces[i].name,
                           sbx_doctor_namespaces[i].name);
            return 0;
        }
    }

    sbx_check_found(c, "room for %llu sessions", least);

    return 1;
}


static int
sbx_check_cgroup(const sbx_doctor_t *d, const sbx_doctor_row_t *row,
    sbx_f_check_t *c)
{
    const sbx_cgroup_t  *cg;

    (void) row;

    cg = d->cgroup;

    if (cg == NULL) {
        sbx_check_found(c, "no group for sessions%s%.150s",
                        d->cgroup_error != NULL ? ": " : "",
                        d->cgroup_error != NULL ? d->cgroup_error->text : "");
        sbx_check_cgroup_mend(c);
        return 0;
    }

    sbx_check_found(c, "memory %s, pids %s, cpu %s, group \"%s\"",
                    cg->tree[cg->role[SBX_ROLE_MEMORY]].v2 ? "v2" : "v1",
                    cg->tree[cg->role[SBX_ROLE_PIDS]].v2 ? "v2" : "v1",
                    !cg->has_cpus ? "none"
                    : cg->tree[cg->role[SBX_ROLE_CPU]].v2 ? "v2" : "v1",
                    cg->name);

    return 1;
}


/* Controllers that the kernel was told to leave out come first: nothing that
 * is delegated brings them back. */

static void
sbx_check_cgroup_mend(sbx_f_check_t *c)
{
    if (geteuid() != 0) {
        sbx_check_mend(c, "run it as root");

    } else if (sbx_check_controller_off("memory")) {
        sbx_check_mend(c, "add \"cgroup_enable=memory cgroup_memory=1\" to "
                       "GRUB_CMDLINE_LINUX in /etc/default/grub (Raspberry "
                       "Pi: to /boot/firmware/cmdline.txt), then: "
                       "update-grub && reboot");

    } else if (sbx_check_controller_off("pids")) {
        sbx_check_mend(c, "remove cgroup_disable=pids from the kernel's "
                       "command line, then: update-grub && reboot");

    } else {
        sbx_check_unit(c, "Delegate=yes");
    }
}


static int
sbx_check_controller_off(const char *name)
{
    char    text[4096], *line, *save, word[32];
    int     enabled, groups, hierarchy;

    if (sbx_read_at(AT_FDCWD, "/proc/cgroups", text, sizeof(text)) <= 0) {
        return 0;
    }

    for (line = strtok_r(text, "\n", &save);
         line != NULL;
         line = strtok_r(NULL, "\n", &save))
    {
        if (sscanf(line, "%31s %d %d %d", word, &hierarchy, &groups,
                   &enabled)
            == 4 && strcmp(word, name) == 0)
        {
            return enabled == 0;
        }
    }

    return 1;
}


static int
sbx_check_cgroup_version(const sbx_doctor_t *d, const sbx_doctor_row_t *row,
    sbx_f_check_t *c)
{
    const sbx_cgroup_t  *cg;

    (void) row;

    cg = d->cgroup;

    if (cg != NULL && sbx_cgroup_version(cg) == SBX_BY_CGROUP_V2) {
        sbx_check_found(c, "v2");
        return 1;
    }

    sbx_check_found(c, cg == NULL ? "unknown"
                    : "v1: it works, but the kernel kills one process of a "
                      "command at a time, and swap may not be counted");
    sbx_check_mend(c, "add systemd.unified_cgroup_hierarchy=1 to "
                   "GRUB_CMDLINE_LINUX in /etc/default/grub, then: "
                   "update-grub && reboot");

    return 0;
}


/* The rows of layers.c. */

int
sbx_check_layer(const sbx_doctor_t *d, const sbx_doctor_row_t *row,
    sbx_f_check_t *c)
{
    const sbx_f_capability_t  *layer;

    layer = &d->layers->row[row->layer];

    if (layer->enforced) {
        sbx_check_found(c, "%s", layer->by);
        return 1;
    }

    sbx_check_found(c, "no %s: %s", row->name, sbx_check_why(d, row->layer));
    sbx_check_mend(c, "%s", layer->mend);

    return 0;
}


/* Of /run and /dev/shm, whatever keeps a session's files. */

static int
sbx_check_tmpfs(const sbx_doctor_t *d, const sbx_doctor_row_t *row,
    sbx_f_check_t *c)
{
    (void) row;

    if (d->layers->probed.err[SBX_LAYER_DISK] == 0) {
        sbx_check_found(c, "one of a size and a number of files");
        return 1;
    }

    sbx_check_found(c, "none can be mounted: %s",
                    sbx_check_why(d, SBX_LAYER_DISK));
    sbx_check_mend(c, "%s", sbx_layers_mend(d->layers,
                                            SBX_LAYER_BIT(SBX_LAYER_DISK)));

    return 0;
}


static int
sbx_check_isolation(const sbx_doctor_t *d, const sbx_doctor_row_t *row,
    sbx_f_check_t *c)
{
    char      names[128];
    uint64_t  weak;

    (void) row;

    weak = sbx_layers_weak(d->layers);
    c->required = d->require_isolation;

    if (weak == 0) {
        sbx_check_found(c, "every layer that sessions can do without");
        return 1;
    }

    sbx_layers_names(weak, names, sizeof(names));
    sbx_check_found(c, "lacking: %s; sessions are %s", names,
                    d->require_isolation ? "refused (require_isolation)"
                                         : "made without");
    sbx_check_mend(c, "%s", sbx_layers_mend(d->layers, weak));

    return 0;
}


/* A session's first process is run from one. */

static int
sbx_check_memfd(const sbx_doctor_t *d, const sbx_doctor_row_t *row,
    sbx_f_check_t *c)
{
    sbx_auto_fd  fd = -1;

    (void) d;
    (void) row;

    fd = memfd_create("doctor", MFD_CLOEXEC | MFD_EXEC);

    if (fd == -1 && errno == EINVAL) {
        fd = memfd_create("doctor", MFD_CLOEXEC);
    }

    if (fd == -1) {
        sbx_check_found(c, "no executable memory file: %s", strerror(errno));
        sbx_check_mend(c, "sysctl -w vm.memfd_noexec=1; remove what sets it "
                       "to 2 from /etc/sysctl.d");
        return 0;
    }

    sbx_check_found(c, "executable memory files");

    return 1;
}
