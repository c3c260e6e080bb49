/*
 * The table of limits and layers: /capabilities, and what require_isolation
 * means.  A layer that is WEAK can be done without by whoever says so; its
 * absence lets a session use more of the host, or learn more of it, but never
 * reach another.  Without one that is NEEDED nothing is started.
 */

#include "layers.h"
#include "cgroup_private.h"
#include "storage.h"

#include <stdio.h>
#include <string.h>


typedef enum {
    SBX_NEEDED,
    SBX_WEAK,
    SBX_EXTRA                         /* no part of isolation */
} sbx_layer_kind_t;

typedef enum {
    SBX_FROM_PROBE,
    SBX_FROM_CGROUP,                  /* there once the groups are open */
    SBX_FROM_SWAP,
    SBX_FROM_CPUS,
    SBX_FROM_OOM,
    SBX_FROM_FREEZE,
    SBX_FROM_ITSELF                   /* this program's own doing */
} sbx_layer_source_t;

typedef struct {
    const char          *name;        /* of /capabilities */
    sbx_layer_kind_t     kind;
    sbx_layer_source_t   source;
    sbx_role_t           role;        /* whose tree has which version */
    const char          *v1;
    const char          *v2;          /* or the only word */
    const char          *mend;
} sbx_layer_row_t;


#define SBX_MEND_CGROUP                                                       \
    "see the check \"cgroup\" of GET /doctor"
#define SBX_MEND_ROOT                                                         \
    "start nginx, or sandbox-broker, as root with its capabilities, outside " \
    "of another container's filter"
#define SBX_MEND_NAMESPACE(file)                                              \
    "sysctl -w user.max_" file "_namespaces=65536; a service unit may not "   \
    "have RestrictNamespaces="
#define SBX_MEND_NFT                                                          \
    "printf '%s\\n' nf_tables nf_conntrack nft_chain_nat nft_redir "          \
    "nft_reject_inet nft_ct nft_limit > "                                     \
    "/etc/modules-load.d/sandbox-nft.conf && systemctl restart "              \
    "systemd-modules-load"

/* PROBE and ITSELF: one word for all machines. */
#define PROBED(n, kind, by, mend)                                             \
    { n, kind, SBX_FROM_PROBE, SBX_ROLE_CORE, NULL, by, mend }
#define ITSELF(n, by)                                                         \
    { n, SBX_NEEDED, SBX_FROM_ITSELF, SBX_ROLE_CORE, NULL, by, "" }

static const sbx_layer_row_t  sbx_layer_rows[SBX_LAYER_MAX] = {

    [SBX_LAYER_MEMORY] = { "memory", SBX_NEEDED, SBX_FROM_CGROUP,
        SBX_ROLE_MEMORY, "cgroup v1 memory.limit_in_bytes",
        "cgroup v2 memory.max", SBX_MEND_CGROUP },

    [SBX_LAYER_SWAP] = { "swap", SBX_WEAK, SBX_FROM_SWAP, SBX_ROLE_MEMORY,
        "cgroup v1 memory.memsw.limit_in_bytes", "cgroup v2 memory.swap.max",
        "swapoff -a; or add swapaccount=1 to GRUB_CMDLINE_LINUX in "
        "/etc/default/grub, then: update-grub && reboot" },

    [SBX_LAYER_CPUS] = { "cpus", SBX_WEAK, SBX_FROM_CPUS, SBX_ROLE_CPU,
        "cgroup v1 cpu.cfs_quota_us", "cgroup v2 cpu.max",
        "delegate the cpu controller (systemd: Delegate=yes) on a kernel "
        "with CONFIG_CFS_BANDWIDTH; remove cgroup_disable=cpu from the "
        "kernel's command line" },

    [SBX_LAYER_CPU_SECONDS] = { "cpu_seconds", SBX_NEEDED, SBX_FROM_CGROUP,
        SBX_ROLE_CORE, NULL, "poll of cgroup v2 cpu.stat", SBX_MEND_CGROUP },

    [SBX_LAYER_PROCESSES] = { "processes", SBX_NEEDED, SBX_FROM_CGROUP,
        SBX_ROLE_PIDS, "cgroup v1 pids.max", "cgroup v2 pids.max",
        SBX_MEND_CGROUP },

    [SBX_LAYER_MAX_FILE_SIZE] = PROBED("max_file_size", SBX_NEEDED,
        "rlimit RLIMIT_FSIZE", SBX_MEND_ROOT),

    [SBX_LAYER_OPEN_FILES] = PROBED("open_files", SBX_NEEDED,
        "rlimit RLIMIT_NOFILE", SBX_MEND_ROOT),

    [SBX_LAYER_STACK] = PROBED("stack", SBX_NEEDED, "rlimit RLIMIT_STACK",
        SBX_MEND_ROOT),

    [SBX_LAYER_DISK] = PROBED("disk", SBX_NEEDED, "tmpfs size",
        "use a kernel with CONFIG_TMPFS"),

    [SBX_LAYER_INODES] = PROBED("inodes", SBX_NEEDED, "tmpfs nr_inodes",
        "use a kernel with CONFIG_TMPFS"),

    [SBX_LAYER_EXEC_TIMEOUT] = ITSELF("exec_timeout",
        "timer of the session's first process, cgroup v2 cgroup.kill"),

    [SBX_LAYER_MAX_OUTPUT] = ITSELF("max_output",
        "count of the session's first process"),

    [SBX_LAYER_TIMEOUT] = ITSELF("timeout", "timer of the broker"),

    [SBX_LAYER_USER_NS] = PROBED("user_namespace", SBX_NEEDED,
        "65,536 ids of the session's own", SBX_MEND_NAMESPACE("user")),

    [SBX_LAYER_PID_NS] = PROBED("pid_namespace", SBX_NEEDED,
        "namespace of the session's own", SBX_MEND_NAMESPACE("pid")),

    [SBX_LAYER_MOUNT_NS] = PROBED("mount_namespace", SBX_NEEDED,
        "namespace of the session's own", SBX_MEND_NAMESPACE("mnt")),

    [SBX_LAYER_IPC_NS] = PROBED("ipc_namespace", SBX_NEEDED,
        "namespace of the session's own", SBX_MEND_NAMESPACE("ipc")),

    [SBX_LAYER_UTS_NS] = PROBED("uts_namespace", SBX_NEEDED,
        "namespace of the session's own", SBX_MEND_NAMESPACE("uts")),

    [SBX_LAYER_NETWORK] = PROBED("network", SBX_NEEDED,
        "network namespace with lo alone", SBX_MEND_NAMESPACE("net")),

    [SBX_LAYER_CGROUP_NS] = PROBED("cgroup_namespace", SBX_WEAK,
        "namespace of the session's own", SBX_MEND_NAMESPACE("cgroup")),

    [SBX_LAYER_SECCOMP] = PROBED("seccomp", SBX_NEEDED, "filter",
        "use a kernel with CONFIG_SECCOMP_FILTER"),

    [SBX_LAYER_NO_NEW_PRIVS] = PROBED("no_new_privs", SBX_NEEDED,
        "prctl PR_SET_NO_NEW_PRIVS", SBX_MEND_ROOT),

    [SBX_LAYER_CAPABILITIES] = PROBED("capabilities", SBX_NEEDED,
        "empty sets, and a bounding set of the session's own",
        SBX_MEND_ROOT),

    [SBX_LAYER_FILESYSTEM] = PROBED("filesystem", SBX_NEEDED,
        "overlay in a mount namespace of the session's own",
        "modprobe overlay && echo overlay > "
        "/etc/modules-load.d/sandbox.conf"),

    [SBX_LAYER_HOST_VIEW] = PROBED("host_view", SBX_NEEDED,
        "read-only mount of the host's /usr", SBX_MEND_ROOT),

    [SBX_LAYER_PROC] = PROBED("private_proc", SBX_NEEDED,
        "proc of the session's own, hidepid=2", SBX_MEND_ROOT),

    [SBX_LAYER_KILL] = { "kill", SBX_NEEDED, SBX_FROM_CGROUP, SBX_ROLE_CORE,
        NULL, "cgroup v2 cgroup.kill", SBX_MEND_CGROUP },

    [SBX_LAYER_OOM_KILL] = { "oom_kill", SBX_WEAK, SBX_FROM_OOM,
        SBX_ROLE_MEMORY,
        "count of cgroup v1 memory.oom_control, then cgroup.kill",
        "count of cgroup v2 memory.events, then cgroup.kill",
        "use a kernel that counts oom_kill in the memory controller" },

    [SBX_LAYER_PAUSE] = { "pause", SBX_EXTRA, SBX_FROM_FREEZE, SBX_ROLE_CORE,
        NULL, "cgroup v2 cgroup.freeze",
        "use a kernel with cgroup.freeze" },

    [SBX_LAYER_IDMAP] = PROBED("idmapped_mounts", SBX_EXTRA,
        "mount_setattr MOUNT_ATTR_IDMAP",
        "put sandbox_template_dir on ext4, xfs or btrfs"),

    [SBX_LAYER_NETWORK_GRANTS] = PROBED("network_grants", SBX_EXTRA,
        "nftables, redirect to the egress", SBX_MEND_NFT),

    [SBX_LAYER_NETWORK_CONNTRACK] = PROBED("network_conntrack", SBX_EXTRA,
        "nftables, ct and notrack", SBX_MEND_NFT),

    [SBX_LAYER_NETWORK_IPV6] = PROBED("network_ipv6", SBX_EXTRA,
        "nftables, redirect to the egress",
        "sysctl -w net.ipv6.conf.all.disable_ipv6=0 "
        "net.ipv6.conf.default.disable_ipv6=0; remove ipv6.disable=1 from "
        "the kernel's command line"),

    [SBX_LAYER_IMAGE] = PROBED("image", SBX_EXTRA, "loop device with ext4",
        "modprobe loop; modprobe ext4; apt-get install e2fsprogs"),

    /* how to mend it is up to the file system */
    [SBX_LAYER_PROJECT_QUOTA] = PROBED("project_quota", SBX_EXTRA,
        "the file system of sandbox_storage's directory", NULL)
};


static int sbx_layer_there(const sbx_layers_t *l, sbx_layer_t layer,
    const sbx_cgroup_t *cg);
static const char *sbx_layer_by(const sbx_layers_t *l, sbx_layer_t layer,
    const sbx_cgroup_t *cg);
static void sbx_layer_mend(const sbx_layers_t *l, sbx_layer_t layer,
    sbx_f_capability_t *c);


void
sbx_layers_settle(sbx_layers_t *l, const sbx_cgroup_t *cg)
{
    unsigned             i;
    sbx_f_capability_t  *c;

    l->lacking = 0;
    l->unlimited = 0;

    for (i = 0; i < SBX_LAYER_MAX; i++) {
        c = &l->row[i];

        memset(c, 0, sizeof(sbx_f_capability_t));
        (void) snprintf(c->name, sizeof(c->name), "%s",
                        sbx_layer_rows[i].name);

        c->enforced = (uint32_t) sbx_layer_there(l, (sbx_layer_t) i, cg);

        (void) snprintf(c->by, sizeof(c->by), "%s",
                        c->enforced ? sbx_layer_by(l, (sbx_layer_t) i, cg)
                                    : "none");

        if (!c->enforced) {
            l->lacking |= SBX_LAYER_BIT(i);
            sbx_layer_mend(l, (sbx_layer_t) i, c);
        }
    }
}


static void
sbx_layer_mend(const sbx_layers_t *l, sbx_layer_t layer,
    sbx_f_capability_t *c)
{
    if (sbx_layer_rows[layer].mend == NULL) {
        sbx_project_mend(l->storage_dir, c->mend, sizeof(c->mend));
        return;
    }

    (void) snprintf(c->mend, sizeof(c->mend), "%s",
                    sbx_layer_rows[layer].mend);
}


void
sbx_layers_storage(sbx_layers_t *l, const sbx_storage_t *storage)
{
    size_t               i;
    sbx_f_capability_t  *c;

    static const sbx_layer_t  held[] = { SBX_LAYER_DISK, SBX_LAYER_INODES };

    for (i = 0; i < sbx_nelts(held); i++) {
        c = &l->row[held[i]];

        if (l->lacking & SBX_LAYER_BIT(held[i])) {
            /* no session without the tmpfs of its /run and /dev/shm */
            continue;
        }

        sbx_storage_capability(storage, c);

        if (!c->enforced) {
            l->unlimited |= SBX_LAYER_BIT(held[i]);
        }
    }

    l->lacking |= l->unlimited;
}


static int
sbx_layer_there(const sbx_layers_t *l, sbx_layer_t layer,
    const sbx_cgroup_t *cg)
{
    switch (sbx_layer_rows[layer].source) {

    case SBX_FROM_PROBE:
        return l->probed.err[layer] == 0;

    case SBX_FROM_CGROUP:
        return cg != NULL;

    case SBX_FROM_SWAP:
        /* none to limit is as good as a limit */
        return cg != NULL && (cg->has_swap || l->probed.err[layer] == 0);

    case SBX_FROM_CPUS:
        return cg != NULL && cg->has_cpus;

    case SBX_FROM_OOM:
        return cg != NULL && !(cg->missing & SBX_TASK_FD_OOM);

    case SBX_FROM_FREEZE:
        return cg != NULL && cg->has_freeze;

    case SBX_FROM_ITSELF:
        return 1;
    }

    return 0;
}


static const char *
sbx_layer_by(const sbx_layers_t *l, sbx_layer_t layer,
    const sbx_cgroup_t *cg)
{
    const sbx_layer_row_t  *row;

    (void) l;

    row = &sbx_layer_rows[layer];

    if (row->source == SBX_FROM_SWAP && !cg->has_swap) {
        return "no swap is on";
    }

    if (row->v1 == NULL || cg == NULL || cg->tree[cg->role[row->role]].v2) {
        return row->v2;
    }

    return row->v1;
}


int
sbx_layers_needed(const sbx_layers_t *l, sbx_error_t *e)
{
    int       err;
    unsigned  i;

    for (i = 0; i < SBX_LAYER_MAX; i++) {
        if (sbx_layer_rows[i].kind != SBX_NEEDED
            || !(l->lacking & ~l->unlimited & SBX_LAYER_BIT(i)))
        {
            continue;
        }

        err = l->probed.err[i];

        return sbx_error(e, err > 0 ? err : 0, SBX_E_UNAVAILABLE,
                         "this machine cannot give sessions \"%s\", and none "
                         "can do without: %s", sbx_layer_rows[i].name,
                         l->row[i].mend);
    }

    return 0;
}


uint64_t
sbx_layers_weak(const sbx_layers_t *l)
{
    uint64_t  bits;
    unsigned  i;

    bits = l->unlimited;

    for (i = 0; i < SBX_LAYER_MAX; i++) {
        if (sbx_layer_rows[i].kind == SBX_WEAK) {
            bits |= SBX_LAYER_BIT(i);
        }
    }

    return l->lacking & bits;
}


void
sbx_layers_names(uint64_t bits, char *buf, size_t size)
{
    size_t    len;
    unsigned  i;

    buf[0] = '\0';

    for (i = 0; i < SBX_LAYER_MAX; i++) {
        if (bits & SBX_LAYER_BIT(i)) {
            len = strlen(buf);
            (void) snprintf(buf + len, size - len, "%s%s", len ? ", " : "",
                            sbx_layer_rows[i].name);
        }
    }
}


const char *
sbx_layers_mend(const sbx_layers_t *l, uint64_t bits)
{
    unsigned  i;

    for (i = 0; i < SBX_LAYER_MAX; i++) {
        if (bits & l->lacking & SBX_LAYER_BIT(i)) {
            return l->row[i].mend;
        }
    }

    return "";
}


void
sbx_layers_enforcement(const sbx_layers_t *l, sbx_enforcement_t *enf)
{
    size_t  i;

    static const struct {
        sbx_layer_t   layer;
        size_t        offset;
    } words[] = {
        { SBX_LAYER_SECCOMP, offsetof(sbx_enforcement_t, seccomp) },
        { SBX_LAYER_USER_NS, offsetof(sbx_enforcement_t, userns) },
        { SBX_LAYER_CGROUP_NS, offsetof(sbx_enforcement_t, cgroupns) }
    };

    for (i = 0; i < sbx_nelts(words); i++) {
        *((uint8_t *) enf + words[i].offset) =
            (l->lacking & SBX_LAYER_BIT(words[i].layer))
            ? SBX_BY_NONE : SBX_BY_FILTER;
    }
}


void
sbx_capabilities(const sbx_layers_t *l,
    void (*capability)(const sbx_f_capability_t *c, void *data), void *data)
{
    unsigned  i;

    for (i = 0; i < SBX_LAYER_MAX; i++) {
        capability(&l->row[i], data);
    }
}
