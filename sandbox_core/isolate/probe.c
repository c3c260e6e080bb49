/*
 * What the kernel can do, by doing it.
 *
 * A child, forked and reaped here, tries the layers one by one, first those
 * of the host, then, in namespaces of its own, those of a session; its own
 * child is the first process of the new pid namespace and tries what a
 * session's processes have.  Results go into memory that all three share, so
 * that what was found out stays when one of them dies.  Nothing outlives
 * them: the mounts are in their namespace, the loop device clears itself.
 */

#include "layers.h"
#include "isolate_private.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/filter.h>
#include <linux/loop.h>
#include <linux/quota.h>
#include <linux/dqblk_xfs.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/capability.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>


#define SBX_PROBE_WAIT     5000       /* ms */
#define SBX_PROBE_DISK     65536
#define SBX_PROBE_INODES   32
#define SBX_PROBE_LOOPS    8
#define SBX_PROBE_ROOT     3          /* descriptors of the inner child */
#define SBX_PROBE_LINK     4

#ifndef SYS_quotactl_fd
#define SYS_quotactl_fd    443
#endif
#ifndef PRJQUOTA
#define PRJQUOTA           2
#endif


typedef struct {
    const sbx_probe_t  *probe;
    sbx_probed_t       *shared;
    int                 link;         /* between the two children */
    int                 root;         /* a tmpfs */
} sbx_prober_t;

/* 0, or -1 with errno. */
typedef struct {
    sbx_layer_t         layer;
    int               (*run)(sbx_prober_t *p);
} sbx_probe_step_t;


static void sbx_probe_wait(pid_t pid);
static void sbx_probe_steps(sbx_prober_t *p, const sbx_probe_step_t *step);
static void sbx_probe_outer(sbx_prober_t *p) __attribute__((noreturn));
static void sbx_probe_unshare(sbx_prober_t *p);
static void sbx_probe_inner(sbx_prober_t *p) __attribute__((noreturn));
static int sbx_probe_few(sbx_prober_t *p);
static int sbx_probe_maps(sbx_prober_t *p, pid_t pid);

static int sbx_probe_swap(sbx_prober_t *p);
static int sbx_probe_image(sbx_prober_t *p);
static int sbx_probe_loop(int control, int file);
static int sbx_probe_quota(sbx_prober_t *p);
static int sbx_probe_idmap(sbx_prober_t *p);
static int sbx_probe_host_view(sbx_prober_t *p);
static int sbx_probe_overlay(sbx_prober_t *p);
static int sbx_probe_attach(const sbx_prober_t *p);
static int sbx_probe_disk(sbx_prober_t *p);
static int sbx_probe_inodes(sbx_prober_t *p);
static int sbx_probe_proc(sbx_prober_t *p);
static int sbx_probe_file_size(sbx_prober_t *p);
static int sbx_probe_open_files(sbx_prober_t *p);
static int sbx_probe_stack(sbx_prober_t *p);
static int sbx_probe_userns(sbx_prober_t *p);
static int sbx_probe_caps(sbx_prober_t *p);
static int sbx_probe_nnp(sbx_prober_t *p);
static int sbx_probe_seccomp(sbx_prober_t *p);


/* Real root's, on the host. */
static const sbx_probe_step_t  sbx_probe_host[] = {
    { SBX_LAYER_SWAP,          sbx_probe_swap },
    { SBX_LAYER_IMAGE,         sbx_probe_image },
    { SBX_LAYER_PROJECT_QUOTA, sbx_probe_quota },
    { SBX_LAYER_IDMAP,         sbx_probe_idmap },
    { SBX_LAYER_HOST_VIEW,     sbx_probe_host_view },
    { SBX_LAYER_MAX,           NULL }
};

/* Real root's, in a mount namespace. */
static const sbx_probe_step_t  sbx_probe_mounts[] = {
    { SBX_LAYER_FILESYSTEM,    sbx_probe_overlay },
    { SBX_LAYER_DISK,          sbx_probe_disk },
    { SBX_LAYER_INODES,        sbx_probe_inodes },
    { SBX_LAYER_MAX,           NULL }
};

/* In all namespaces; each leaves less for the next. */
static const sbx_probe_step_t  sbx_probe_session[] = {
    { SBX_LAYER_PROC,          sbx_probe_proc },
    { SBX_LAYER_MAX_FILE_SIZE, sbx_probe_file_size },
    { SBX_LAYER_OPEN_FILES,    sbx_probe_open_files },
    { SBX_LAYER_STACK,         sbx_probe_stack },
    { SBX_LAYER_USER_NS,       sbx_probe_userns },
    { SBX_LAYER_CAPABILITIES,  sbx_probe_caps },
    { SBX_LAYER_NO_NEW_PRIVS,  sbx_probe_nnp },
    { SBX_LAYER_SECCOMP,       sbx_probe_seccomp },
    { SBX_LAYER_MAX,           NULL }
};

static const struct {
    sbx_layer_t   layer;
    int           flag;
} sbx_probe_namespaces[] = {
    { SBX_LAYER_CGROUP_NS, CLONE_NEWCGROUP },
    { SBX_LAYER_UTS_NS,    CLONE_NEWUTS },
    { SBX_LAYER_IPC_NS,    CLONE_NEWIPC },
    { SBX_LAYER_NETWORK,   CLONE_NEWNET },
    { SBX_LAYER_MOUNT_NS,  CLONE_NEWNS },
    { SBX_LAYER_PID_NS,    CLONE_NEWPID }
};


void
sbx_probe(const sbx_probe_t *probe, sbx_probed_t *probed)
{
    pid_t          pid;
    unsigned       i;
    sbx_prober_t   p;

    memset(&p, 0, sizeof(sbx_prober_t));
    p.probe = probe;
    p.link = -1;
    p.root = -1;
    p.shared = mmap(NULL, sizeof(sbx_probed_t), PROT_READ|PROT_WRITE,
                    MAP_SHARED|MAP_ANONYMOUS, -1, 0);

    for (i = 0; i < SBX_LAYER_MAX; i++) {
        probed->err[i] = SBX_PROBE_NONE;
    }

    if (p.shared == MAP_FAILED) {
        return;
    }

    *p.shared = *probed;
    pid = fork();

    if (pid == 0) {
        sbx_probe_outer(&p);
    }

    if (pid != -1) {
        sbx_probe_wait(pid);
    }

    *probed = *p.shared;
    (void) munmap(p.shared, sizeof(sbx_probed_t));
}


static void
sbx_probe_wait(pid_t pid)
{
    sbx_auto_fd    fd = -1;
    struct pollfd  pfd;

    fd = (int) syscall(SYS_pidfd_open, pid, 0);

    if (fd != -1) {
        pfd.fd = fd;
        pfd.events = POLLIN;

        if (poll(&pfd, 1, SBX_PROBE_WAIT) != 1) {
            (void) kill(pid, SIGKILL);
        }
    }

    while (waitpid(pid, NULL, 0) == -1 && errno == EINTR) {
        /* void */
    }
}


static void
sbx_probe_steps(sbx_prober_t *p, const sbx_probe_step_t *step)
{
    for ( /* void */ ; step->run != NULL; step++) {
        errno = 0;
        p->shared->err[step->layer] =
            step->run(p) == 0 ? 0 : errno != 0 ? errno : EIO;
    }
}


static void
sbx_probe_outer(sbx_prober_t *p)
{
    int                   pair[2];
    pid_t                 pid;
    sbx_probed_network_t  network;

    (void) prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
    (void) signal(SIGXFSZ, SIG_IGN);

    sbx_probe_steps(p, sbx_probe_host);
    sbx_probe_unshare(p);

    /* never in the host's own */

    if (p->shared->err[SBX_LAYER_NETWORK] == 0) {
        sbx_probe_network(&network);
        p->shared->err[SBX_LAYER_NETWORK_GRANTS] = network.grants;
        p->shared->err[SBX_LAYER_NETWORK_CONNTRACK] = network.conntrack;
        p->shared->err[SBX_LAYER_NETWORK_IPV6] = network.ipv6;
    }

    if (p->shared->err[SBX_LAYER_MOUNT_NS] == 0) {
        sbx_probe_steps(p, sbx_probe_mounts);
    }

    if (socketpair(AF_UNIX, SOCK_SEQPACKET|SOCK_CLOEXEC, 0, pair) == -1) {
        _exit(1);
    }

    pid = fork();

    if (pid == 0) {
        p->link = pair[1];
        (void) close(pair[0]);
        sbx_probe_inner(p);
    }

    (void) close(pair[1]);
    p->link = pair[0];

    if (pid == -1 || sbx_probe_maps(p, pid) == -1) {
        _exit(1);
    }

    (void) waitpid(pid, NULL, 0);
    _exit(0);
}


static void
sbx_probe_unshare(sbx_prober_t *p)
{
    size_t  i;

    for (i = 0; i < sbx_nelts(sbx_probe_namespaces); i++) {
        p->shared->err[sbx_probe_namespaces[i].layer] =
            unshare(sbx_probe_namespaces[i].flag) == 0 ? 0 : errno;
    }
}


/* The inner child's maps, once it has its namespace and asks for them. */

static int
sbx_probe_maps(sbx_prober_t *p, pid_t pid)
{
    char         go, path[64], map[64];
    sbx_auto_fd  proc = -1;

    if (recv(p->link, &go, 1, 0) != 1) {
        return -1;
    }

    (void) snprintf(path, sizeof(path), "/proc/%d", (int) pid);
    (void) snprintf(map, sizeof(map), "0 %" PRIu64 " 65536\n",
                    p->probe->uid_first);

    proc = open(path, O_RDONLY|O_DIRECTORY|O_CLOEXEC);

    if (proc == -1
        || sbx_write_at(proc, "uid_map", map) == -1
        || sbx_write_at(proc, "gid_map", map) == -1)
    {
        return -1;
    }

    return send(p->link, "", 1, MSG_NOSIGNAL) == 1 ? 0 : -1;
}


static void
sbx_probe_inner(sbx_prober_t *p)
{
    (void) prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);

    if (sbx_probe_few(p) == -1) {
        _exit(1);
    }

    sbx_probe_steps(p, sbx_probe_session);
    _exit(0);
}


/*
 * A broker that takes over may have hundreds of descriptors of sessions, and
 * what is tried here are limits of how many there may be.
 */

static int
sbx_probe_few(sbx_prober_t *p)
{
    int  link, root;

    root = p->root == -1 ? -1 : fcntl(p->root, F_DUPFD_CLOEXEC,
                                      SBX_PROBE_LINK + 1);
    link = fcntl(p->link, F_DUPFD_CLOEXEC, SBX_PROBE_LINK + 1);

    if (link == -1 || dup2(link, SBX_PROBE_LINK) == -1) {
        return -1;
    }

    p->link = SBX_PROBE_LINK;

    if (p->root != -1) {

        if (root == -1 || dup2(root, SBX_PROBE_ROOT) == -1) {
            return -1;
        }

        p->root = SBX_PROBE_ROOT;
    }

    return sbx_sys_close_range(SBX_PROBE_LINK + 1, ~0u, 0);
}


/* Is any on?  A limit of nothing is not missed. */

static int
sbx_probe_swap(sbx_prober_t *p)
{
    char         text[512];
    const char  *line;

    (void) p;

    if (sbx_read_at(AT_FDCWD, "/proc/swaps", text, sizeof(text)) == -1) {
        return errno == ENOENT ? 0 : -1;
    }

    line = strchr(text, '\n');

    if (line == NULL || line[1] == '\0') {
        return 0;
    }

    errno = EBUSY;

    return -1;
}


static int
sbx_probe_image(sbx_prober_t *p)
{
    int          i, rc;
    sbx_auto_fd  control = -1, file = -1, ext4 = -1;

    (void) p;

    ext4 = sbx_sys_fsopen("ext4");
    control = open("/dev/loop-control", O_RDWR|O_CLOEXEC);
    file = memfd_create("loop", MFD_CLOEXEC);

    if (ext4 == -1 || control == -1 || file == -1
        || ftruncate(file, SBX_PROBE_DISK) == -1)
    {
        return -1;
    }

    /* another may take the number that was free */

    for (i = 0; i < SBX_PROBE_LOOPS; i++) {
        rc = sbx_probe_loop(control, file);

        if (rc == 0 || errno != EBUSY) {
            break;
        }
    }

    if (rc == -1) {
        return -1;
    }

    if (!sbx_program_there("mkfs.ext4")) {
        errno = ENOPKG;
        return -1;
    }

    return 0;
}


static int
sbx_probe_loop(int control, int file)
{
    int                 n;
    char                path[32];
    sbx_auto_fd         device = -1;
    struct loop_config  config;

    n = ioctl(control, LOOP_CTL_GET_FREE);

    if (n == -1) {
        return -1;
    }

    (void) snprintf(path, sizeof(path), "/dev/loop%d", n);
    device = open(path, O_RDWR|O_CLOEXEC);

    if (device == -1) {
        return -1;
    }

    memset(&config, 0, sizeof(struct loop_config));
    config.fd = (uint32_t) file;
    config.info.lo_flags = LO_FLAGS_AUTOCLEAR|LO_FLAGS_READ_ONLY;

    return ioctl(device, LOOP_CONFIGURE, &config);
}


static int
sbx_probe_quota(sbx_prober_t *p)
{
    char                   path[SBX_PATH_MAX], *slash;
    sbx_auto_fd            dir = -1;
    struct fs_quota_statv  st;

    (void) snprintf(path, sizeof(path), "%s", p->probe->storage_dir);

    /* it may not have been made yet */

    for ( ;; ) {
        dir = open(path, O_RDONLY|O_DIRECTORY|O_CLOEXEC);
        slash = strrchr(path, '/');

        if (dir != -1 || errno != ENOENT || slash == NULL || slash == path) {
            break;
        }

        *slash = '\0';
    }

    if (dir == -1) {
        return -1;
    }

    memset(&st, 0, sizeof(struct fs_quota_statv));
    st.qs_version = FS_QSTATV_VERSION1;

    if (syscall(SYS_quotactl_fd, dir, QCMD(Q_XGETQSTATV, PRJQUOTA), 0, &st)
        == -1)
    {
        return -1;
    }

    if (!(st.qs_flags & FS_QUOTA_PDQ_ENFD)) {
        errno = ESRCH;
        return -1;
    }

    return 0;
}


/* Templates lie there; without any, the next best file system is asked. */

static int
sbx_probe_idmap(sbx_prober_t *p)
{
    size_t       i;
    sbx_error_t  e;
    sbx_idmap_t  map;
    sbx_auto_fd  tree = -1, userns = -1;
    const char  *dirs[3];

    dirs[0] = p->probe->template_dir;
    dirs[1] = p->probe->state_dir;
    dirs[2] = "/usr";

    for (i = 0; i < sbx_nelts(dirs) && tree == -1; i++) {
        if (dirs[i] != NULL && dirs[i][0] == '/') {
            tree = sbx_sys_clone_tree(AT_FDCWD, dirs[i], 0);
        }
    }

    if (tree == -1) {
        return -1;
    }

    map.uid = 0;
    map.gid = 0;
    map.outside = p->probe->uid_first;
    map.count = 65536;

    userns = sbx_template_userns(&map, &e);

    if (userns == -1) {
        errno = e.err;
        return -1;
    }

    return sbx_sys_mount_attr(tree, SBX_MOUNT_RDONLY, userns);
}


static int
sbx_probe_host_view(sbx_prober_t *p)
{
    sbx_auto_fd  tree = -1;

    (void) p;

    tree = sbx_sys_clone_tree(AT_FDCWD, "/usr", 0);

    if (tree == -1
        || sbx_sys_mount_attr(tree, SBX_MOUNT_RDONLY | SBX_MOUNT_NOSUID
                                    | SBX_MOUNT_NODEV, -1)
           == -1)
    {
        return -1;
    }

    if (faccessat(tree, ".", W_OK, 0) == -1 && errno == EROFS) {
        return 0;
    }

    errno = EPERM;

    return -1;
}


/* The same mounts as a session's, with the same words. */

static int
sbx_probe_overlay(sbx_prober_t *p)
{
    size_t       i;
    char         size[16], inodes[16];
    sbx_auto_fd  fs = -1, file = -1;

    static const char  *dirs[] = { "lower", "lower/d", "upper", "work",
                                   "root" };

    (void) snprintf(size, sizeof(size), "%d", SBX_PROBE_DISK);
    (void) snprintf(inodes, sizeof(inodes), "%d", SBX_PROBE_INODES);

    fs = sbx_sys_fsopen("tmpfs");

    if (fs == -1
        || sbx_sys_fsconfig(fs, SBX_FSCONFIG_STRING, "size", size) == -1
        || sbx_sys_fsconfig(fs, SBX_FSCONFIG_STRING, "nr_inodes", inodes)
           == -1)
    {
        return -1;
    }

    p->root = sbx_sys_fsmount(fs, SBX_MOUNT_NOSUID | SBX_MOUNT_NODEV);

    if (p->root == -1) {
        return -1;
    }

    for (i = 0; i < sbx_nelts(dirs); i++) {
        if (mkdirat(p->root, dirs[i], 0755) == -1) {
            return -1;
        }
    }

    if (mount(NULL, "/", NULL, MS_REC|MS_PRIVATE, NULL) == -1
        || sbx_probe_attach(p) == -1
        || fchdir(p->root) == -1
        || mount("sandbox", "root", "overlay", MS_NOSUID|MS_NODEV,
                 "lowerdir=lower,upperdir=upper,workdir=work,index=off,"
                 "metacopy=off")
           == -1)
    {
        return -1;
    }

    file = open("root/d/f", O_WRONLY|O_CREAT|O_EXCL|O_CLOEXEC, 0600);

    return file == -1 ? -1 : access("upper/d/f", F_OK);
}


/* An overlay takes no layers from a mount that is nowhere. */

static int
sbx_probe_attach(const sbx_prober_t *p)
{
    size_t       i;
    const char  *dirs[3];

    dirs[0] = p->probe->state_dir;
    dirs[1] = "/tmp";
    dirs[2] = "/run";

    for (i = 0; i < sbx_nelts(dirs); i++) {
        if (sbx_sys_move_mount(p->root, AT_FDCWD, dirs[i]) == 0) {
            return 0;
        }
    }

    return -1;
}


static int
sbx_probe_disk(sbx_prober_t *p)
{
    ssize_t      n;
    sbx_auto_fd  file = -1;

    static const char  page[4096];

    file = openat(p->root, "full", O_WRONLY|O_CREAT|O_CLOEXEC, 0600);

    if (file == -1) {
        return -1;
    }

    for (n = 0; n <= SBX_PROBE_DISK; n += (ssize_t) sizeof(page)) {
        if (write(file, page, sizeof(page)) != (ssize_t) sizeof(page)) {
            return errno == ENOSPC ? 0 : -1;
        }
    }

    errno = ENOTSUP;

    return -1;
}


static int
sbx_probe_inodes(sbx_prober_t *p)
{
    int   i;
    char  name[16];

    for (i = 0; i <= SBX_PROBE_INODES; i++) {
        (void) snprintf(name, sizeof(name), "%d", i);

        if (mknodat(p->root, name, S_IFREG | 0600, 0) == -1) {
            return errno == ENOSPC ? 0 : -1;
        }
    }

    errno = ENOTSUP;

    return -1;
}


static int
sbx_probe_proc(sbx_prober_t *p)
{
    char         self[16];
    ssize_t      n;
    sbx_auto_fd  proc = -1;

    (void) p;

    proc = sbx_sys_procfs("2");

    if (proc == -1) {
        return -1;
    }

    /* ours only if it knows this process as its first */

    n = readlinkat(proc, "self", self, sizeof(self));

    if (n == 1 && self[0] == '1') {
        return 0;
    }

    errno = EPERM;

    return -1;
}


static int
sbx_probe_file_size(sbx_prober_t *p)
{
    sbx_auto_fd    file = -1;
    struct rlimit  limit = { 16, 16 };

    (void) p;

    file = memfd_create("size", MFD_CLOEXEC);

    if (file == -1 || setrlimit(RLIMIT_FSIZE, &limit) == -1
        || ftruncate(file, 16) == -1)
    {
        return -1;
    }

    if (ftruncate(file, 17) == -1 && errno == EFBIG) {
        return 0;
    }

    errno = ENOTSUP;

    return -1;
}


static int
sbx_probe_open_files(sbx_prober_t *p)
{
    int            fd;
    struct rlimit  limit;

    if (getrlimit(RLIMIT_NOFILE, &limit) == -1) {
        return -1;
    }

    limit.rlim_cur = 64;
    limit.rlim_max = 64;

    if (setrlimit(RLIMIT_NOFILE, &limit) == -1) {
        return -1;
    }

    while ((fd = fcntl(p->link, F_DUPFD_CLOEXEC, 0)) != -1) {
        if (fd >= 64) {
            errno = ENOTSUP;
            return -1;
        }
    }

    if (errno != EMFILE) {
        return -1;
    }

    return sbx_sys_close_range(SBX_PROBE_LINK + 1, 63, 0);
}


static int
sbx_probe_stack(sbx_prober_t *p)
{
    struct rlimit  limit = { 4 << 20, 8 << 20 }, got;

    (void) p;

    if (setrlimit(RLIMIT_STACK, &limit) == -1
        || getrlimit(RLIMIT_STACK, &got) == -1)
    {
        return -1;
    }

    return got.rlim_max == limit.rlim_max ? 0 : -1;
}


static int
sbx_probe_userns(sbx_prober_t *p)
{
    char  go;

    if (unshare(CLONE_NEWUSER) == -1) {
        return -1;
    }

    /* whoever may write the maps is the other child */

    if (send(p->link, "", 1, MSG_NOSIGNAL) != 1
        || recv(p->link, &go, 1, 0) != 1)
    {
        errno = EPERM;
        return -1;
    }

    if (setresgid(0, 0, 0) == -1 || setresuid(0, 0, 0) == -1) {
        return -1;
    }

    return geteuid() == 0 ? 0 : -1;
}


static int
sbx_probe_caps(sbx_prober_t *p)
{
    int               rc;
    cap_t             caps;
    cap_flag_value_t  set;

    (void) p;

    if (prctl(PR_CAPBSET_DROP, CAP_SYS_ADMIN, 0, 0, 0) == -1
        || prctl(PR_CAPBSET_READ, CAP_SYS_ADMIN, 0, 0, 0) != 0)
    {
        return -1;
    }

    caps = cap_init();
    rc = (caps == NULL) ? -1 : cap_set_proc(caps);
    (void) cap_free(caps);

    if (rc == -1) {
        return -1;
    }

    caps = cap_get_proc();
    set = CAP_SET;
    rc = (caps == NULL) ? -1
         : cap_get_flag(caps, CAP_SYS_ADMIN, CAP_PERMITTED, &set);
    (void) cap_free(caps);

    return rc == 0 && set == CAP_CLEAR ? 0 : -1;
}


static int
sbx_probe_nnp(sbx_prober_t *p)
{
    (void) p;

    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == -1) {
        return -1;
    }

    return prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) == 1 ? 0 : -1;
}


/* A filter that refuses one harmless call; does it? */

static int
sbx_probe_seccomp(sbx_prober_t *p)
{
    static const struct sock_filter  program[] = {
        BPF_STMT(BPF_LD|BPF_W|BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP|BPF_JEQ|BPF_K, SYS_getppid, 0, 1),
        BPF_STMT(BPF_RET|BPF_K, SECCOMP_RET_ERRNO|ENOLINK),
        BPF_STMT(BPF_RET|BPF_K, SECCOMP_RET_ALLOW)
    };

    (void) p;

    if (sbx_seccomp_load(program, sizeof(program)) == -1) {
        return -1;
    }

    if (syscall(SYS_getppid) == -1 && errno == ENOLINK) {
        return 0;
    }

    errno = ENOTSUP;

    return -1;
}
