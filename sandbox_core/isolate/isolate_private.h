/*
 * What the files of isolate/ share: the newer system calls, and the steps of
 * a launch that live in files of their own.
 */

#ifndef SBX_ISOLATE_PRIVATE_H
#define SBX_ISOLATE_PRIVATE_H

#include "isolate.h"
#include "sandbox_rules.h"


#define SBX_MOUNT_RDONLY      0x01u
#define SBX_MOUNT_NOSUID      0x02u
#define SBX_MOUNT_NODEV       0x04u
#define SBX_MOUNT_NOEXEC      0x08u
#define SBX_MOUNT_NOATIME     0x10u

typedef enum {
    SBX_FSCONFIG_FLAG   = 0,
    SBX_FSCONFIG_STRING = 1
} sbx_fsconfig_t;


/*
 * The mount interface by descriptors; not every libc has its names.  All
 * return -1 with errno, descriptors are close-on-exec, and all but fsconfig
 * may be used only before a session's code has run or on descriptors alone.
 */
int sbx_sys_fsopen(const char *type);
int sbx_sys_fsconfig(int fs, sbx_fsconfig_t cmd, const char *key,
    const char *value);
/* Creates the superblock, too. */
int sbx_sys_fsmount(int fs, unsigned attr);
/* The two that are made in several places, mounted nowhere yet.  size NULL:
 * the kernel's own choice. */
int sbx_sys_tmpfs(const char *mode, const char *size, unsigned attr);
int sbx_sys_procfs(const char *hidepid);
/* A detached copy; recursive with everything mounted below. */
int sbx_sys_clone_tree(int dirfd, const char *path, int recursive);
int sbx_sys_move_mount(int mount, int dirfd, const char *path);
/* Onto what an O_PATH descriptor is of, a link too. */
int sbx_sys_move_mount_onto(int mount, int fd);
/* Read-only, without what is mounted below it. */
int sbx_sys_mount_seal(int mount);
/* Sets attributes on a detached tree, recursively; userns -1: no idmap. */
int sbx_sys_mount_attr(int mount, unsigned set, int userns);
/* Follows no link at all, and stays below dirfd. */
int sbx_sys_open_inside(int dirfd, const char *path, int flags);
/* The same for an absolute path, with dirfd as the root. */
int sbx_sys_open_rooted(int dirfd, const char *path, int flags);
/* The host's own; no name of the path may be a link. */
int sbx_sys_open_plain(const char *path, int flags);
int sbx_sys_pivot_root(const char *new_root, const char *old_root);
int sbx_sys_close_range(unsigned first, unsigned last, unsigned flags);


#define SBX_MEMINFO_MAX       1024

/* A directory of the host's that the session asks for. */
typedef struct {
    int                  fd;            /* detached, with its attributes */
    unsigned             writable;
    char                 name[SBX_BIND_NAME_MAX + 1];
} sbx_plan_bind_t;

/*
 * What one session is launched with, settled by the parent before the clone
 * so that the child need not look anything up.
 */
typedef struct {
    const sbx_launch_t  *launch;
    unsigned             cpus;          /* processors to be seen */
    unsigned             first_cpu;     /* of those the caller may use */
    int                  template_fd;   /* rootfs, detached and idmapped, or
                                           -1: the built-in template */
    int                  root_fd;       /* the session's volume, detached */
    int                  memory_fd;     /* of /dev/shm and /run, detached,
                                           or -1: in the volume */
    const char          *cpuinfo;       /* texts of /proc */
    size_t               cpuinfo_size;
    char                 meminfo[SBX_MEMINFO_MAX];
    unsigned             nbinds;
    sbx_plan_bind_t      binds[SBX_RULES_KIND_MAX];
} sbx_plan_t;


/* guard.c: the seccomp programs that a session's init is given. */
typedef struct {
    const void          *filter;        /* of commands; size 0: none */
    size_t               filter_size;
    const void          *files;         /* of file servers; size 0: as above */
    size_t               files_size;
    void                *own[2];        /* to be freed */
} sbx_programs_t;

int sbx_programs_choose(const sbx_plan_t *plan, sbx_programs_t *programs,
    sbx_error_t *e);
void sbx_programs_free(sbx_programs_t *programs);

/* root.c: from a fresh mount namespace to "/" of the session. */
int sbx_root_volume(sbx_plan_t *plan, sbx_error_t *e);
int sbx_root_build(const sbx_plan_t *plan, int proc, sbx_error_t *e);

/* rules.c: what the manifest's "filesystem" asks for.  The parent opens
 * (and closes) directories of the host; the child makes mount points for them
 * in the session's tmpfs, then mounts, before it enters the root. */
int sbx_rules_prepare(sbx_plan_t *plan, sbx_error_t *e);
void sbx_rules_release(sbx_plan_t *plan);
int sbx_rules_points(const sbx_plan_t *plan, sbx_error_t *e);
int sbx_rules_apply(const sbx_plan_t *plan, sbx_error_t *e);

/* etc.c: the session's own files, written into the upper directory. */
int sbx_etc_write(const sbx_plan_t *plan, int upper, sbx_error_t *e);
uint64_t sbx_etc_disk(const sbx_plan_t *plan);
uint64_t sbx_etc_inodes(void);

/* packages.c: packages to be shown, certificates to be trusted.  What they
 * take of a volume; the files and mount points in the upper directory; the
 * mounts, where the working directory is the new root. */
void sbx_packages_volume(const sbx_plan_t *plan, sbx_volume_t *volume);
int sbx_packages_write(const sbx_plan_t *plan, int upper, sbx_error_t *e);
int sbx_packages_mount(const sbx_plan_t *plan, sbx_error_t *e);
/* root.c: a tree of the host's, read-only, as an overlay of its own. */
int sbx_root_show_tree(const char *path, const char *name);

/* inside.c: /proc, /sys and /dev as a session sees them. */
int sbx_inside_prepare(sbx_error_t *e);       /* once a broker */
int sbx_inside_plan(sbx_plan_t *plan, sbx_error_t *e);     /* the parent */
/* proc: the session's procfs, detached. */
int sbx_inside_mount(const sbx_plan_t *plan, int proc, sbx_error_t *e);
/* The text of a session with so much memory; its length. */
size_t sbx_inside_meminfo(uint64_t memory, char text[SBX_MEMINFO_MAX]);
/* Of the child: with SBX_LAUNCH_AHEAD, meminfo for the broker; else -1. */
int sbx_inside_kept(void);

/* ahead.c: meminfo in the tmpfs top, for writing; -1: errno. */
int sbx_ahead_keep(int top);
/* /proc alone, its masks bound from "../system/empty" and
 * "../system/nothing"; the working directory is the new root. */
int sbx_inside_proc(int proc, sbx_error_t *e);
/* /dev from "../system/dev", read-only, and its own terminals, of a group
 * unless that is NULL. */
int sbx_inside_dev(const char *gid, sbx_error_t *e);
/* Calls back for each node ("dev/null") and, with a target, each link. */
int sbx_inside_dev_names(int (*name)(const char *name, const char *target,
    void *data), void *data);

/* net.c: lo, and what nobody may change later.  proc: a mounted procfs. */
int sbx_net_setup(int proc, sbx_error_t *e);
/* 0, or -1 with errno. */
int sbx_net_up(void);

/* caps.c */
int sbx_caps_reduce_init(sbx_error_t *e);
int sbx_caps_drop_all(sbx_error_t *e);

/* template.c: a rootfs as a detached mount with the session's ids. */
int sbx_template_open(const sbx_launch_t *launch, int *fd, sbx_error_t *e);
/* A user namespace for an idmapped mount: what has the id inside on its file
 * system appears as the session's id outside (and count - 1 following). */
typedef struct {
    uint64_t             uid;
    uint64_t             gid;
    uint64_t             outside;
    uint64_t             count;
} sbx_idmap_t;

int sbx_template_userns(const sbx_idmap_t *map, sbx_error_t *e);

/* probe_nft.c: what a session's network is made of, tried out in a network
 * namespace that is new and the caller's alone: 0 it works, or an errno. */
typedef struct {
    int32_t              grants;
    int32_t              conntrack;     /* a part of the former */
    int32_t              ipv6;
} sbx_probed_network_t;

void sbx_probe_network(sbx_probed_network_t *probed);

/* doctor.c: is it in PATH, or in the system's directories without one? */
int sbx_program_there(const char *name);


#endif
