/*
 * Limits and layers of isolation: which of them this machine has, by what,
 * and what a session can do without.
 *
 * What the kernel can do is tried out by a child that lives for a moment in
 * namespaces of its own (probe.c), by the first broker, and by later ones if
 * something was lacking; what control groups can do was tried when they were
 * opened.  Nobody asks for version numbers.
 */

#ifndef SBX_LAYERS_H
#define SBX_LAYERS_H

#include "isolate.h"


typedef enum {
    /* limits */
    SBX_LAYER_MEMORY,
    SBX_LAYER_SWAP,
    SBX_LAYER_CPUS,
    SBX_LAYER_CPU_SECONDS,
    SBX_LAYER_PROCESSES,
    SBX_LAYER_MAX_FILE_SIZE,
    SBX_LAYER_OPEN_FILES,
    SBX_LAYER_STACK,
    SBX_LAYER_DISK,
    SBX_LAYER_INODES,
    SBX_LAYER_EXEC_TIMEOUT,
    SBX_LAYER_MAX_OUTPUT,
    SBX_LAYER_TIMEOUT,

    /* isolation */
    SBX_LAYER_USER_NS,
    SBX_LAYER_PID_NS,
    SBX_LAYER_MOUNT_NS,
    SBX_LAYER_IPC_NS,
    SBX_LAYER_UTS_NS,
    SBX_LAYER_NETWORK,
    SBX_LAYER_CGROUP_NS,
    SBX_LAYER_SECCOMP,
    SBX_LAYER_NO_NEW_PRIVS,
    SBX_LAYER_CAPABILITIES,
    SBX_LAYER_FILESYSTEM,
    SBX_LAYER_HOST_VIEW,
    SBX_LAYER_PROC,
    SBX_LAYER_KILL,
    SBX_LAYER_OOM_KILL,

    /* what no session needs to be isolated */
    SBX_LAYER_PAUSE,
    SBX_LAYER_IDMAP,
    SBX_LAYER_NETWORK_GRANTS,
    SBX_LAYER_NETWORK_CONNTRACK,
    SBX_LAYER_NETWORK_IPV6,
    SBX_LAYER_IMAGE,
    SBX_LAYER_PROJECT_QUOTA,

    SBX_LAYER_MAX
} sbx_layer_t;

#define SBX_LAYER_BIT(layer)   ((uint64_t) 1 << (layer))

/* What a probe leaves where it found nothing out. */
#define SBX_PROBE_NONE         (-1)

typedef struct {
    const char   *state_dir;          /* absolute; need not be there */
    const char   *template_dir;       /* may be NULL */
    const char   *storage_dir;        /* that a project quota would be of */
    uint64_t      uid_first;          /* 65,536 host ids to be mapped */
} sbx_probe_t;

typedef struct {
    int32_t       err[SBX_LAYER_MAX];   /* 0 it works, an errno, or NONE */
} sbx_probed_t;

struct sbx_layers_s {
    sbx_probed_t         probed;
    char                 storage_dir[SBX_PATH_MAX];   /* as the probe's */
    uint64_t             lacking;
    uint64_t             unlimited;     /* of what storage should hold */
    sbx_f_capability_t   row[SBX_LAYER_MAX];
};


/* Forks, waits for at most five seconds, changes nothing. */
void sbx_probe(const sbx_probe_t *probe, sbx_probed_t *probed);

/*
 * What follows from l->probed and the control groups (NULL: there are none).
 * Of all that a session needs to be isolated, _needed() tells the first thing
 * that is lacking and that none can do without: -1, SBX_E_UNAVAILABLE, with
 * the mending command.  _weak() are the bits of what is lacking besides.
 */
void sbx_layers_settle(sbx_layers_t *l, const sbx_cgroup_t *cg);
/* After _settle(): disk and inodes are held by the storage (NULL: a tmpfs).
 * Where it does not hold them, a session may do without. */
void sbx_layers_storage(sbx_layers_t *l, const sbx_storage_t *storage);
int sbx_layers_needed(const sbx_layers_t *l, sbx_error_t *e);
uint64_t sbx_layers_weak(const sbx_layers_t *l);
/* swap, cgroup_namespace ... of the bits, ", " between them. */
void sbx_layers_names(uint64_t bits, char *buf, size_t size);
/* The command that mends the first of the bits that is lacking, or "". */
const char *sbx_layers_mend(const sbx_layers_t *l, uint64_t bits);
/* The words of seccomp, userns, swap and cgroupns. */
void sbx_layers_enforcement(const sbx_layers_t *l, sbx_enforcement_t *enf);


#endif
