/*
 * A machine for targets of the broker on which everything works and nothing
 * happens: what isolate/ would have made of it.  Groups are names in a table.
 * What a session's first process would be, and the egress, is the target's:
 * sbx_launch_start(), sbx_launch_event(), sbx_egress_launch().
 */

#include "machine.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>


struct sbx_cgroup_s {
    int   pad;
};

struct sbx_cgroup_session_s {
    char  id[SBX_ID_MAX + 8];
};

struct sbx_cgroup_command_s {
    int   pad;
};

struct sbx_storage_s {
    int   pad;
};


machine_group_t  machine_groups[MACHINE_GROUPS];
unsigned         machine_left;


static int
machine_fd(void)
{
    int  fd;

    fd = open("/dev/null", O_RDWR|O_CLOEXEC);
    must(fd != -1);

    return fd;
}


machine_group_t *
machine_find(const char *id)
{
    unsigned  i;

    for (i = 0; i < MACHINE_GROUPS; i++) {
        if (strcmp(machine_groups[i].id, id) == 0) {
            return &machine_groups[i];
        }
    }

    return NULL;
}


/* ---- control groups ----------------------------------------------------- */


int
sbx_cgroup_open(const char *base, const char *name, sbx_cgroup_t **cg,
    sbx_error_t *e)
{
    (void) base;
    (void) name;
    (void) e;

    *cg = calloc(1, sizeof(sbx_cgroup_t));
    must(*cg != NULL);

    return 0;
}


void
sbx_cgroup_known(const sbx_cgroup_t *cg, sbx_cgroup_known_t *known)
{
    must(cg != NULL);
    memset(known, 0, sizeof(*known));
}


int
sbx_cgroup_again(const char *base, const char *name,
    const sbx_cgroup_known_t *known, sbx_cgroup_t **cg, sbx_error_t *e)
{
    must(!known->set);

    return sbx_cgroup_open(base, name, cg, e);
}


void
sbx_cgroup_close(sbx_cgroup_t *cg)
{
    free(cg);
}


void
sbx_cgroup_enforcement(const sbx_cgroup_t *cg, sbx_enforcement_t *enf)
{
    (void) cg;
    (void) enf;
}


int
sbx_cgroup_list(sbx_cgroup_t *cg,
    void (*found)(const char *id, void *data), void *data, sbx_error_t *e)
{
    unsigned  i;

    (void) cg;
    (void) e;

    for (i = 0; i < MACHINE_GROUPS; i++) {
        if (machine_groups[i].id[0] != '\0') {
            found(machine_groups[i].id, data);
        }
    }

    return 0;
}


int
sbx_cgroup_sweep(sbx_cgroup_t *cg, const char *id, sbx_error_t *e)
{
    machine_group_t  *group;

    (void) cg;
    (void) e;

    group = machine_find(id);

    if (group != NULL && id[0] != '\0') {
        machine_killed(id);
        memset(group, 0, sizeof(*group));
        machine_left--;
    }

    return 0;
}


int
sbx_cgroup_owner(const sbx_cgroup_t *cg, const char *id, uint64_t *owner)
{
    machine_group_t  *group;

    (void) cg;

    group = machine_find(id);
    must(group != NULL && id[0] != '\0');
    *owner = group->owner;

    return 0;
}


int
sbx_cgroup_session_create(sbx_cgroup_t *cg, const char *id,
    const sbx_limits_t *limits, int adopt, sbx_cgroup_session_t **cs,
    sbx_error_t *e)
{
    machine_group_t  *group;

    (void) cg;
    (void) limits;

    must(sbx_session_id_ok(id, strlen(id)));
    group = machine_find(id);

    /* no name is given twice, and what is adopted is there */

    must((group != NULL) == adopt);

    if (group == NULL) {
        group = machine_find("");

        if (group == NULL) {
            return sbx_error(e, 0, SBX_E_UNAVAILABLE, "there is no room");
        }

        (void) strcpy(group->id, id);
        machine_left++;
    }

    *cs = calloc(1, sizeof(sbx_cgroup_session_t));
    must(*cs != NULL);
    (void) strcpy((*cs)->id, id);

    return 0;
}


void
sbx_cgroup_session_free(sbx_cgroup_session_t *cs)
{
    free(cs);
}


int
sbx_cgroup_session_killer(const sbx_cgroup_session_t *cs)
{
    (void) cs;

    return machine_fd();
}


int
sbx_cgroup_session_change(sbx_cgroup_session_t *cs,
    const sbx_limits_t *limits, sbx_error_t *e)
{
    (void) cs;
    (void) limits;
    (void) e;

    return 0;
}


int
sbx_cgroup_session_remove(sbx_cgroup_session_t *cs, sbx_error_t *e)
{
    return sbx_cgroup_sweep(NULL, cs->id, e);
}


int
sbx_cgroup_session_kill(sbx_cgroup_session_t *cs, sbx_error_t *e)
{
    (void) cs;
    (void) e;

    return 0;
}


int
sbx_cgroup_session_end(sbx_cgroup_session_t *cs, sbx_error_t *e)
{
    (void) e;
    machine_killed(cs->id);

    return 0;
}


int
sbx_cgroup_session_freeze(sbx_cgroup_session_t *cs, int frozen,
    sbx_error_t *e)
{
    (void) cs;
    (void) frozen;
    (void) e;

    return 0;
}


int
sbx_cgroup_session_events(const sbx_cgroup_session_t *cs)
{
    (void) cs;

    return memfd_create("events", MFD_CLOEXEC);
}


int
sbx_cgroup_frozen(int events)
{
    (void) events;

    return 1;
}


int
sbx_cgroup_session_owner(sbx_cgroup_session_t *cs, uint64_t owner,
    int adopt, sbx_error_t *e)
{
    machine_group_t  *group;

    (void) e;

    group = machine_find(cs->id);
    must(group != NULL && (!adopt || group->owner == owner));
    group->owner = owner;

    return 0;
}


int
sbx_cgroup_session_usage(sbx_cgroup_session_t *cs, sbx_usage_t *usage,
    sbx_error_t *e)
{
    (void) cs;
    (void) e;
    usage->memory = 4096;

    return 0;
}


int
sbx_cgroup_session_memory(sbx_cgroup_session_t *cs, sbx_usage_t *usage,
    sbx_error_t *e)
{
    return sbx_cgroup_session_usage(cs, usage, e);
}


int
sbx_cgroup_session_cpu(sbx_cgroup_session_t *cs, uint64_t *us)
{
    (void) cs;
    *us = 0;

    return 0;
}


int
sbx_cgroup_session_ahead(sbx_cgroup_session_t *cs, int ahead)
{
    (void) cs;
    (void) ahead;

    return 0;
}


int
sbx_cgroup_command_create(sbx_cgroup_session_t *cs, uint32_t number,
    sbx_cgroup_command_t **cc, sbx_error_t *e)
{
    (void) cs;
    (void) number;
    (void) e;

    *cc = calloc(1, sizeof(sbx_cgroup_command_t));
    must(*cc != NULL);

    return 0;
}


int
sbx_cgroup_command_limit(sbx_cgroup_command_t *cc,
    const sbx_exec_limits_t *limits, sbx_error_t *e)
{
    (void) cc;
    (void) limits;
    (void) e;

    return 0;
}


int
sbx_cgroup_command_change(sbx_cgroup_command_t *cc,
    const sbx_limits_t *limits, sbx_error_t *e)
{
    (void) cc;
    (void) limits;
    (void) e;

    return 0;
}


unsigned
sbx_cgroup_core(const sbx_cgroup_session_t *cs)
{
    (void) cs;

    return 0;
}


unsigned
sbx_cgroup_command_fds(sbx_cgroup_command_t *cc, int *fds, uint32_t *mask,
    uint32_t *attach_count)
{
    (void) cc;

    fds[0] = machine_fd();
    fds[1] = machine_fd();
    fds[2] = machine_fd();
    *mask = SBX_TASK_FD_ATTACH|SBX_TASK_FD_KILL|SBX_TASK_FD_CPU;
    *attach_count = 1;

    return 3;
}


int
sbx_cgroup_command_remove(sbx_cgroup_command_t *cc, sbx_error_t *e)
{
    (void) e;
    free(cc);

    return 0;
}


int
sbx_cgroup_command_list(sbx_cgroup_session_t *cs, sbx_command_found_pt found,
    void *data, sbx_error_t *e)
{
    (void) cs;
    (void) found;
    (void) data;
    (void) e;

    return 0;
}


/* ---- what sessions are launched with ------------------------------------ */


static int
machine_program(void **program, size_t *size)
{
    *size = 8;
    *program = calloc(1, *size);
    must(*program != NULL);

    return 0;
}


int
sbx_seccomp_init(void **program, size_t *size, sbx_error_t *e)
{
    (void) e;

    return machine_program(program, size);
}


int
sbx_seccomp_rest(void **program, size_t *size, sbx_error_t *e)
{
    (void) e;

    return machine_program(program, size);
}


int
sbx_seccomp_files(void **program, size_t *size, sbx_error_t *e)
{
    (void) e;

    return machine_program(program, size);
}


int
sbx_init_exe(const char *path, int *fd, sbx_error_t *e)
{
    (void) path;
    (void) e;
    *fd = machine_fd();

    return 0;
}


int
sbx_base_prepare(const char *state_dir, sbx_error_t *e)
{
    (void) state_dir;
    (void) e;

    return 0;
}


int
sbx_caps_reduce_broker(sbx_error_t *e)
{
    (void) e;

    return 0;
}


int
sbx_template_builtin(const char *name)
{
    return strcmp(name, "base") == 0;
}


int
sbx_launch_hand_over(const sbx_launch_t *launch, sbx_error_t *e)
{
    (void) e;
    machine_check_launch(launch);

    return memfd_create("given", MFD_CLOEXEC);
}


int
sbx_launch_change(const int kept[SBX_LAUNCH_KEPT],
    const sbx_storage_t *storage, const sbx_limits_t *limits, sbx_error_t *e)
{
    (void) kept;
    (void) storage;
    (void) limits;
    (void) e;

    return 0;
}


unsigned
sbx_launch_cpus_seen(uint64_t cpus)
{
    return (unsigned) ((cpus + 999) / 1000);
}


int
sbx_net_grant(int netns, int fds[SBX_NET_FDS], sbx_error_t *e)
{
    int  i;

    (void) netns;
    (void) e;

    for (i = 0; i < SBX_NET_FDS; i++) {
        fds[i] = machine_fd();
    }

    return 0;
}


int
sbx_net_revoke(int netns, sbx_error_t *e)
{
    (void) netns;
    (void) e;

    return 0;
}


/* ---- layers, storage ---------------------------------------------------- */


void
sbx_probe(const sbx_probe_t *probe, sbx_probed_t *probed)
{
    (void) probe;
    memset(probed, 0, sizeof(*probed));
}


void
sbx_layers_settle(sbx_layers_t *l, const sbx_cgroup_t *cg)
{
    unsigned  i;

    (void) cg;

    for (i = 0; i < SBX_LAYER_MAX; i++) {
        l->row[i].enforced = 1;
    }
}


void
sbx_layers_storage(sbx_layers_t *l, const sbx_storage_t *storage)
{
    (void) l;
    (void) storage;
}


int
sbx_layers_needed(const sbx_layers_t *l, sbx_error_t *e)
{
    (void) l;
    (void) e;

    return 0;
}


uint64_t
sbx_layers_weak(const sbx_layers_t *l)
{
    (void) l;

    return 0;
}


void
sbx_layers_names(uint64_t bits, char *buf, size_t size)
{
    (void) bits;
    must(size != 0);
    buf[0] = '\0';
}


const char *
sbx_layers_mend(const sbx_layers_t *l, uint64_t bits)
{
    (void) l;
    (void) bits;

    return "";
}


void
sbx_layers_enforcement(const sbx_layers_t *l, sbx_enforcement_t *enf)
{
    (void) l;
    (void) enf;
}


void
sbx_doctor(const sbx_doctor_t *d,
    void (*check)(const sbx_f_check_t *c, void *data), void *data)
{
    (void) d;
    (void) check;
    (void) data;
}


int
sbx_doctor_health(const sbx_doctor_t *d, sbx_error_t *e)
{
    (void) d;
    (void) e;

    return 0;
}


uint64_t
sbx_doctor_reserve(uint64_t open_files)
{
    return open_files / 4;
}


void
sbx_capabilities(const sbx_layers_t *layers,
    void (*capability)(const sbx_f_capability_t *c, void *data), void *data)
{
    unsigned  i;

    for (i = 0; i < SBX_LAYER_MAX; i++) {
        capability(&layers->row[i], data);
    }
}


int
sbx_preflight(const char *state_dir, sbx_error_t *e)
{
    (void) state_dir;
    (void) e;

    return 0;
}


int
sbx_storage_open(sbx_storage_kind_t kind, const char *dir,
    const char *state_dir, const char *tag, sbx_storage_t **storage,
    sbx_error_t *e)
{
    (void) kind;
    (void) dir;
    (void) state_dir;
    (void) tag;
    (void) e;

    *storage = calloc(1, sizeof(sbx_storage_t));
    must(*storage != NULL);

    return 0;
}


void
sbx_storage_close(sbx_storage_t *storage)
{
    free(storage);
}


void
sbx_storage_known(const sbx_storage_t *storage, sbx_storage_known_t *known)
{
    (void) storage;
    memset(known, 0, sizeof(*known));
    known->kind = SBX_STORAGE_TMPFS;
}


int
sbx_storage_again(const sbx_storage_known_t *known, const char *dir,
    const char *state_dir, const char *tag, sbx_storage_t **storage,
    sbx_error_t *e)
{
    must(known->kind == SBX_STORAGE_TMPFS);

    return sbx_storage_open(SBX_STORAGE_TMPFS, dir, state_dir, tag, storage,
                            e);
}


sbx_storage_kind_t
sbx_storage_kind(const sbx_storage_t *storage)
{
    (void) storage;

    return SBX_STORAGE_TMPFS;
}


const char *
sbx_storage_lacks(const sbx_storage_t *storage)
{
    (void) storage;

    return "";
}


void
sbx_storage_enforcement(const sbx_storage_t *storage, sbx_enforcement_t *enf)
{
    (void) storage;
    (void) enf;
}


void
sbx_storage_named(const char *dir, const char *state_dir, char *buf,
    size_t size)
{
    (void) dir;
    (void) snprintf(buf, size, "%s", state_dir);
}


void
sbx_storage_check(const sbx_storage_t *storage, sbx_f_check_t *c)
{
    (void) storage;
    (void) c;
}


uint64_t
sbx_storage_default_disk(const sbx_storage_t *storage, uint64_t memory)
{
    (void) storage;

    return memory;
}


uint64_t
sbx_storage_in_memory(const sbx_storage_t *storage,
    const sbx_limits_t *limits)
{
    (void) storage;

    return limits->disk;
}


int
sbx_storage_admit(const sbx_storage_t *storage, const sbx_limits_t *limits,
    sbx_error_t *e)
{
    (void) storage;
    (void) limits;
    (void) e;

    return 0;
}


void
sbx_storage_forget(int disk)
{
    (void) disk;
}


int
sbx_storage_remove(sbx_storage_t *storage, const char *id, sbx_error_t *e)
{
    (void) storage;
    (void) e;

    /* what is in its groups has gone before it */

    must(machine_find(id) == NULL);

    return 0;
}


int
sbx_storage_sweep(sbx_storage_t *storage, const sbx_sweep_t *sweep,
    sbx_error_t *e)
{
    (void) storage;
    (void) sweep;
    (void) e;

    return 0;
}


unsigned
sbx_storage_swept(sbx_storage_t *storage, const sbx_sweep_t *sweep)
{
    (void) storage;
    (void) sweep;

    return 0;
}


int
sbx_disk_usage(int disk, sbx_usage_t *usage, sbx_error_t *e)
{
    (void) disk;
    (void) e;
    usage->disk = 4096;
    usage->inodes = 1;

    return 0;
}
