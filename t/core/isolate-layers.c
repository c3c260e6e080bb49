/* Layers of isolation: what is probed, what follows, and what doctor says. */

#include "layers.h"
#include "cgroup_private.h"

#include "in_child.h"
#include "tap.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/netlink.h>
#include <sched.h>
#include <seccomp.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>


static char            state[] = "/tmp/sbx-layers-XXXXXX";
static sbx_layers_t    layers;
static sbx_f_check_t   checks[64];
static unsigned        nchecks;


/* Groups as they would be found; no file of them is touched. */
static sbx_cgroup_t    groups;


static void
all_there(void)
{
    unsigned  i;

    for (i = 0; i < SBX_LAYER_MAX; i++) {
        layers.probed.err[i] = 0;
    }

    (void) snprintf(layers.storage_dir, sizeof(layers.storage_dir), "%s",
                    state);
    memset(&groups, 0, sizeof(groups));
    groups.tree[0].v2 = 1;
    groups.tree[0].parent = -1;
    groups.has_swap = 1;
    groups.has_cpus = 1;
    groups.has_freeze = 1;
}


static const sbx_f_capability_t *
row_of(const char *name)
{
    unsigned  i;

    for (i = 0; i < SBX_LAYER_MAX; i++) {
        if (strcmp(layers.row[i].name, name) == 0) {
            return &layers.row[i];
        }
    }

    return &layers.row[0];
}


static void
keep_check(const sbx_f_check_t *c, void *data)
{
    (void) data;

    if (nchecks < sbx_nelts(checks)) {
        checks[nchecks++] = *c;
    }
}


static const sbx_f_check_t *
check_of(const char *name)
{
    unsigned              i;
    static sbx_f_check_t  none;

    for (i = 0; i < nchecks; i++) {
        if (strcmp(checks[i].name, name) == 0) {
            return &checks[i];
        }
    }

    return &none;
}


static void
doctor(const sbx_cgroup_t *cg, uint32_t strict)
{
    sbx_doctor_t  d;

    memset(&d, 0, sizeof(d));
    d.state_dir = state;
    d.layers = &layers;
    d.cgroup = cg;
    d.require_isolation = strict;
    nchecks = 0;

    sbx_doctor(&d, keep_check, NULL);
}


static void
probe(sbx_probed_t *probed)
{
    sbx_probe_t  p;

    memset(&p, 0, sizeof(p));
    p.state_dir = state;
    p.storage_dir = state;
    p.uid_first = 1073741824;

    sbx_probe(&p, probed);
}


/* Every row says by what, or how to mend it. */
static void
test_rows(const sbx_cgroup_t *cg, const char *what)
{
    unsigned                   i, bad;
    const sbx_f_capability_t  *c;

    sbx_layers_settle(&layers, cg);
    bad = 0;

    for (i = 0; i < SBX_LAYER_MAX; i++) {
        c = &layers.row[i];

        bad += c->name[0] == '\0' || c->by[0] == '\0'
               || (c->enforced ? c->mend[0] != '\0'
                   : c->mend[0] == '\0' || strcmp(c->by, "none") != 0)
               || (c->enforced != 0)
                  != ((layers.lacking & SBX_LAYER_BIT(i)) == 0);
    }

    is_int(bad, 0, what);
}


static void
test_settle(void)
{
    char         names[128];
    sbx_error_t  e;

    all_there();
    test_rows(&groups, "with everything each row says by what");
    is_int((int64_t) layers.lacking, 0, "nothing is lacking");
    is_int((int64_t) sbx_layers_weak(&layers), 0, "nor weak");
    ok(sbx_layers_needed(&layers, &e) == 0, "nor needed");
    is_str(row_of("memory")->by, "cgroup v2 memory.max", "memory on v2");

    groups.tree[0].v2 = 0;
    test_rows(&groups, "on v1 too");
    is_str(row_of("memory")->by, "cgroup v1 memory.limit_in_bytes",
           "memory on v1");

    test_rows(NULL, "and without groups");
    ok(!row_of("memory")->enforced && !row_of("processes")->enforced
       && !row_of("cpus")->enforced && !row_of("kill")->enforced
       && row_of("seccomp")->enforced,
       "then no limit of theirs is said to be enforced");
    ok(sbx_layers_needed(&layers, &e) == -1
       && strstr(e.text, "\"memory\"") != NULL,
       "memory is named first: %s", e.text);

    all_there();
    groups.has_cpus = 0;
    groups.has_swap = 0;
    layers.probed.err[SBX_LAYER_SWAP] = EBUSY;
    layers.probed.err[SBX_LAYER_CGROUP_NS] = EPERM;
    test_rows(&groups, "a machine that is weaker");
    ok(sbx_layers_needed(&layers, &e) == 0, "can still be used");
    sbx_layers_names(sbx_layers_weak(&layers), names, sizeof(names));
    is_str(names, "swap, cpus, cgroup_namespace", "what it lacks has names");
    ok(strstr(sbx_layers_mend(&layers, sbx_layers_weak(&layers)),
              "swapoff -a")
       != NULL,
       "and a command that mends the first");
    sbx_layers_names(sbx_layers_weak(&layers), names, 8);
    ok(strlen(names) < 8, "names are cut to what fits");

    layers.probed.err[SBX_LAYER_SWAP] = 0;
    sbx_layers_settle(&layers, &groups);
    is_str(row_of("swap")->by, "no swap is on",
           "no swap at all is not missed");

    all_there();
    layers.probed.err[SBX_LAYER_IMAGE] = ENOENT;
    layers.probed.err[SBX_LAYER_NETWORK_GRANTS] = SBX_PROBE_NONE;
    sbx_layers_settle(&layers, &groups);
    ok(sbx_layers_weak(&layers) == 0 && sbx_layers_needed(&layers, &e) == 0
       && !row_of("image")->enforced && !row_of("network_grants")->enforced,
       "what no session needs makes none weaker");
}


/* One text for all who ask, that names the directory. */
static void
test_quota(void)
{
    size_t                i;
    const char           *mend;
    const sbx_f_check_t  *c;

    static const char *const  odd[] = {
        "/dev/shm/a b", "/dev/shm/a;b", "/dev/shm/$(id)",
        "/dev/shm/0123456789/0123456789/0123456789/0123456789/0123456789/01"
    };

    all_there();
    layers.probed.err[SBX_LAYER_PROJECT_QUOTA] = ENOSYS;
    sbx_layers_settle(&layers, &groups);
    doctor(&groups, 1);

    c = check_of("project_quota");
    mend = row_of("project_quota")->mend;

    ok(strstr(mend, "prjquota") != NULL && strstr(mend, " && ") != NULL,
       "a command gives a project quota: %s", mend);
    is_str(c->mend, mend, "and /doctor has the same");
    ok(!c->ok && strncmp(c->found, state, strlen(state)) == 0
       && strstr(c->found, "Function") == NULL,
       "what it found names the directory: %s", c->found);

    (void) snprintf(layers.storage_dir, sizeof(layers.storage_dir),
                    "/dev/shm/none/such");
    sbx_layers_settle(&layers, &groups);
    doctor(&groups, 1);
    ok(strstr(row_of("project_quota")->mend, "mount -o loop,prjquota "
              "/var/lib/sandbox.ext4 /dev/shm/none/such") != NULL
       && strstr(check_of("project_quota")->found, "tmpfs") != NULL,
       "one that is not there yet, in memory: %s",
       row_of("project_quota")->mend);

    /* a command with half of a name, or with a blank in it, is another's */

    for (i = 0; i < sbx_nelts(odd); i++) {
        (void) snprintf(layers.storage_dir, sizeof(layers.storage_dir),
                        "%s", odd[i]);
        sbx_layers_settle(&layers, &groups);
        mend = row_of("project_quota")->mend;
        ok(strstr(mend, "sandbox.ext4 DIRECTORY") != NULL
           && strstr(mend, "/dev/shm") == NULL,
           "a name that is no word of a command: %s", mend);
    }
}


/* One by one: nothing runs without these, whatever is configured. */
static void
test_never(void)
{
    size_t       i;
    sbx_error_t  e;

    static const sbx_layer_t  never[] = {
        SBX_LAYER_USER_NS, SBX_LAYER_PID_NS, SBX_LAYER_MOUNT_NS,
        SBX_LAYER_IPC_NS, SBX_LAYER_UTS_NS, SBX_LAYER_NETWORK,
        SBX_LAYER_SECCOMP, SBX_LAYER_NO_NEW_PRIVS, SBX_LAYER_CAPABILITIES,
        SBX_LAYER_FILESYSTEM, SBX_LAYER_HOST_VIEW, SBX_LAYER_PROC,
        SBX_LAYER_DISK, SBX_LAYER_INODES, SBX_LAYER_OPEN_FILES,
        SBX_LAYER_MAX_FILE_SIZE, SBX_LAYER_STACK
    };

    for (i = 0; i < sbx_nelts(never); i++) {
        all_there();
        layers.probed.err[never[i]] = EPERM;
        sbx_layers_settle(&layers, &groups);

        ok(sbx_layers_needed(&layers, &e) == -1
           && e.code == SBX_E_UNAVAILABLE
           && strstr(e.text, layers.row[never[i]].name) != NULL
           && (sbx_layers_weak(&layers) & SBX_LAYER_BIT(never[i])) == 0,
           "never without %s", layers.row[never[i]].name);

        all_there();
        layers.probed.err[never[i]] = SBX_PROBE_NONE;
        sbx_layers_settle(&layers, &groups);
        ok(sbx_layers_needed(&layers, &e) == -1,
           "nor where it could not be tried");
    }
}


static void
test_doctor(void)
{
    unsigned      i, bad;
    sbx_error_t   e;
    sbx_doctor_t  d;

    all_there();
    sbx_layers_settle(&layers, &groups);
    doctor(&groups, 1);
    bad = 0;

    for (i = 0; i < nchecks; i++) {
        bad += checks[i].name[0] == '\0' || checks[i].found[0] == '\0'
               || (checks[i].ok != 0) != (checks[i].mend[0] == '\0');
    }

    ok(nchecks > 25, "%u checks", nchecks);
    is_int(bad, 0, "each says what it found, and how to mend what is wrong");
    ok(check_of("isolation")->ok && check_of("isolation")->required,
       "isolation is complete, and is required");

    groups.has_cpus = 0;
    sbx_layers_settle(&layers, &groups);
    doctor(&groups, 1);
    ok(!check_of("isolation")->ok && check_of("isolation")->required
       && strstr(check_of("isolation")->found, "cpus") != NULL
       && strstr(check_of("isolation")->mend, "Delegate=yes") != NULL
       && !check_of("cpu_bandwidth")->ok,
       "without a layer: %s", check_of("isolation")->found);

    memset(&d, 0, sizeof(d));
    d.state_dir = state;
    d.layers = &layers;
    d.cgroup = &groups;
    d.require_isolation = 1;
    ok(sbx_doctor_health(&d, &e) == -1 && strstr(e.text, "cpus") != NULL,
       "health says the same: %s", e.text);

    for (i = 0; i < SBX_LAYER_MAX; i++) {
        (void) snprintf(layers.row[i].mend, sizeof(layers.row[i].mend),
                        "%0121d", 7);
    }

    ok(sbx_doctor_health(&d, &e) == -1 && strstr(e.text, "000") == NULL
       && strstr(e.text, "GET /doctor") != NULL,
       "half a command is never told: %s", e.text);

    d.require_isolation = 0;
    ok(sbx_doctor_health(&d, &e) == 0, "unless sessions may do without");
    doctor(&groups, 0);
    ok(!check_of("isolation")->ok && !check_of("isolation")->required,
       "and doctor notes it then");

    doctor(NULL, 1);
    ok(!check_of("cgroup")->ok && check_of("cgroup")->required
       && strstr(check_of("cgroup")->mend, "Delegate=yes") != NULL,
       "without groups: %s", check_of("cgroup")->mend);
}


static int
body_no_loop(void)
{
    sbx_probed_t  p;

    if (unshare(CLONE_NEWNS) == -1
        || mount(NULL, "/", NULL, MS_REC|MS_PRIVATE, NULL) == -1
        || mount("none", "/dev", "tmpfs", 0, NULL) == -1)
    {
        return 77;
    }

    probe(&p);

    if (p.err[SBX_LAYER_IMAGE] != ENOENT
        || p.err[SBX_LAYER_FILESYSTEM] != 0)
    {
        return 1;
    }

    layers.probed = p;
    sbx_layers_settle(&layers, &groups);
    doctor(&groups, 1);

    return !check_of("loop_devices")->ok
           && !check_of("loop_devices")->required
           && strstr(check_of("loop_devices")->mend, "modprobe loop") ? 0 : 2;
}


static int
body_no_mkfs(void)
{
    sbx_probed_t  p;

    if (setenv("PATH", "/nonexistent", 1) == -1) {
        return 1;
    }

    probe(&p);
    layers.probed = p;
    sbx_layers_settle(&layers, &groups);
    doctor(&groups, 1);

    /* where there are no loop devices either, they are named first */

    return p.err[SBX_LAYER_IMAGE] != 0
           && (strstr(check_of("loop_devices")->mend, "e2fsprogs")
               || access("/dev/loop-control", F_OK) == -1)
           ? 0 : 2;
}


/* A kernel that has no nftables says the same. */
static int
body_no_nftables(void)
{
    sbx_probed_t     p;
    scmp_filter_ctx  filter;

    filter = seccomp_init(SCMP_ACT_ALLOW);

    if (filter == NULL
        || seccomp_rule_add(filter, SCMP_ACT_ERRNO(EPROTONOSUPPORT),
                            SCMP_SYS(socket), 2,
                            SCMP_A0(SCMP_CMP_EQ, AF_NETLINK, 0),
                            SCMP_A2(SCMP_CMP_EQ, NETLINK_NETFILTER, 0))
           != 0
        || seccomp_load(filter) != 0)
    {
        return 1;
    }

    probe(&p);
    layers.probed = p;
    sbx_layers_settle(&layers, &groups);
    doctor(&groups, 1);

    return p.err[SBX_LAYER_NETWORK_GRANTS] == EPROTONOSUPPORT
           && p.err[SBX_LAYER_NETWORK_CONNTRACK] == EPROTONOSUPPORT
           && p.err[SBX_LAYER_NETWORK_IPV6] == EPROTONOSUPPORT
           && !row_of("network_grants")->enforced
           && strstr(row_of("network_grants")->mend, "nft_redir")
           && !check_of("nftables")->ok
           && strstr(check_of("nftables")->found, "not tracked")
           && strstr(check_of("nftables")->mend, "nft_redir") ? 0 : 2;
}


static int
body_few_files(void)
{
    struct rlimit  few = { 1024, 1024 };

    if (setrlimit(RLIMIT_NOFILE, &few) == -1) {
        return 1;
    }

    doctor(&groups, 1);

    return !check_of("open_files")->ok && !check_of("open_files")->required
           && strstr(check_of("open_files")->mend, "LimitNOFILE=65536")
           ? 0 : 2;
}


static int
enter_userns(void)
{
    int  fd, rc;

    if (unshare(CLONE_NEWUSER) == -1) {
        return -1;
    }

    fd = open("/proc/self/uid_map", O_WRONLY|O_CLOEXEC);

    if (fd == -1) {
        return -1;
    }

    rc = write(fd, "0 0 1", 5) == 5 ? 0 : -1;
    (void) close(fd);

    return rc;
}


/* Root of a user namespace is not the host's. */
static int
body_userns(void)
{
    sbx_error_t   e;
    sbx_probed_t  p;

    if (enter_userns() == -1) {
        return 77;
    }

    probe(&p);

    if (p.err[SBX_LAYER_USER_NS] == 0) {
        return 1;
    }

    layers.probed = p;
    sbx_layers_settle(&layers, &groups);
    doctor(&groups, 1);

    return sbx_layers_needed(&layers, &e) == -1
           && !check_of("user_namespaces")->ok ? 0 : 2;
}


/* A limit of a user namespace's own, so that none can be made in it. */
static int
body_no_namespaces(void)
{
    int           fd;
    sbx_probed_t  p;

    if (enter_userns() == -1) {
        return 77;
    }

    fd = open("/proc/sys/user/max_net_namespaces", O_WRONLY|O_CLOEXEC);

    if (fd == -1 || write(fd, "0", 1) != 1) {
        return 77;
    }

    (void) close(fd);
    probe(&p);
    layers.probed = p;
    sbx_layers_settle(&layers, &groups);
    doctor(&groups, 1);

    return p.err[SBX_LAYER_NETWORK] == ENOSPC
           && !check_of("namespaces")->ok && check_of("namespaces")->required
           && strstr(check_of("namespaces")->found, "net namespace")
           && strstr(check_of("namespaces")->mend, "max_net_namespaces")
           && !check_of("namespace_limits")->ok ? 0 : 2;
}


static int
body_nobody(void)
{
    sbx_probed_t  p;

    if (setgid(65534) == -1 || setuid(65534) == -1) {
        return 1;
    }

    probe(&p);

    return p.err[SBX_LAYER_MOUNT_NS] == EPERM
           && p.err[SBX_LAYER_FILESYSTEM] != 0
           && p.err[SBX_LAYER_HOST_VIEW] != 0
           && p.err[SBX_LAYER_NETWORK_GRANTS] != 0
           && p.err[SBX_LAYER_IMAGE] != 0 ? 0 : 2;
}


#define TOP     "/sys/fs/cgroup/sbx-layers-top"
#define BELOW   TOP "/below"


static int
put(const char *name, const char *text)
{
    return sbx_write_at(AT_FDCWD, name, text);
}


/* A container to which the cpu controller was not delegated: v2 alone. */
static int
body_no_cpu(void)
{
    int                    rc;
    sbx_error_t            e;
    sbx_cgroup_t          *cg;
    sbx_limits_t           limits;
    sbx_enforcement_t      enf;
    const sbx_limit_t     *limit;
    sbx_cgroup_session_t  *cs;

    if (access("/sys/fs/cgroup/cgroup.subtree_control", W_OK) == -1
        || put("/sys/fs/cgroup/cgroup.subtree_control", "+memory +pids") == -1
        || mkdir(TOP, 0755) == -1
        || put(TOP "/cgroup.subtree_control", "+memory +pids") == -1
        || mkdir(BELOW, 0755) == -1
        || put(BELOW "/cgroup.procs", "0") == -1
        || unshare(CLONE_NEWCGROUP) == -1)
    {
        return 77;
    }

    if (sbx_cgroup_open(NULL, "sbx-layers", &cg, &e) == -1) {
        printf("# %s\n", e.text);
        return 1;
    }

    probe(&layers.probed);
    sbx_layers_settle(&layers, cg);
    doctor(cg, 1);
    sbx_cgroup_enforcement(cg, &enf);

    rc = sbx_layers_weak(&layers) == SBX_LAYER_BIT(SBX_LAYER_CPUS)
         && sbx_layers_needed(&layers, &e) == 0
         && enf.cpus == SBX_BY_NONE && enf.memory == SBX_BY_CGROUP_V2
         && !check_of("isolation")->ok
         && strstr(check_of("isolation")->found, "cpus") ? 0 : 2;

    for (limit = sbx_limit_table; limit->name != NULL; limit++) {
        *sbx_limit_field(&limits, limit) = limit->fallback;
    }

    if (sbx_cgroup_session_create(cg, "iaaaaaaaaaaaaaaaaaaaaaaaa", &limits,
                                  0, &cs, &e)
        == -1)
    {
        printf("# %s\n", e.text);
        return 3;
    }

    (void) sbx_cgroup_session_remove(cs, &e);
    sbx_cgroup_session_free(cs);
    sbx_cgroup_close(cg);

    return rc;
}


static const struct {
    int         (*body)(void);
    const char   *name;
} lacks[] = {
    { body_no_loop,       "a /dev without loop devices" },
    { body_no_mkfs,       "a PATH without mkfs.ext4" },
    { body_no_nftables,   "a kernel without nftables" },
    { body_few_files,     "a hard limit of 1,024 descriptors" },
    { body_userns,        "root of a user namespace" },
    { body_no_namespaces, "user.max_net_namespaces=0" },
    { body_nobody,        "an ordinary user" },
    { body_no_cpu,        "a cgroup without the cpu controller" }
};


static unsigned
count_mounts(void)
{
    int        c;
    FILE      *f;
    unsigned   n;

    f = fopen("/proc/self/mountinfo", "re");

    if (f == NULL) {
        return 0;
    }

    for (n = 0; (c = fgetc(f)) != EOF; n += c == '\n') {
        /* void */
    }

    (void) fclose(f);

    return n;
}


static void
test_real(void)
{
    int            rc;
    size_t         i;
    unsigned       mounts;
    uint64_t       start;
    sbx_error_t    e;
    sbx_cgroup_t  *cg;
    sbx_probed_t   p;

    mounts = count_mounts();
    start = sbx_now_us();
    probe(&p);
    printf("# a probe takes %llu us\n",
           (unsigned long long) (sbx_now_us() - start));
    is_int(count_mounts(), mounts, "a probe leaves no mount");
    ok(waitpid(-1, NULL, WNOHANG) == -1 && errno == ECHILD, "and no child");

    layers.probed = p;
    ok(sbx_cgroup_open(NULL, "sbx-layers", &cg, &e) == 0, "groups");
    sbx_layers_settle(&layers, cg);
    ok(sbx_layers_needed(&layers, &e) == 0 && sbx_layers_weak(&layers) == 0,
       "this machine has every layer");
    sbx_cgroup_close(cg);

    all_there();

    for (i = 0; i < sbx_nelts(lacks); i++) {
        rc = in_child(lacks[i].body);

        if (rc == 77) {
            skip("this machine does not let it be taken away",
                 lacks[i].name);
            continue;
        }

        is_int(rc, 0, lacks[i].name);
    }
}


/* A broker that takes over has descriptors of each session. */
static void
test_crowded(void)
{
    int           fd, fds[300];
    unsigned      i, other;
    sbx_probed_t  few, many;

    probe(&few);

    for (i = 0; i < sbx_nelts(fds); i++) {
        fds[i] = open("/dev/null", O_RDONLY|O_CLOEXEC);
    }

    fd = fds[sbx_nelts(fds) - 1];
    probe(&many);

    for (i = 0, other = 0; i < SBX_LAYER_MAX; i++) {
        other += few.err[i] != many.err[i];
    }

    ok(fd > 256 && other == 0, "the same with hundreds of open files");

    for (i = 0; i < sbx_nelts(fds); i++) {
        (void) close(fds[i]);
    }
}


/* v1 refuses a share above that of a group above: that group's holds. */
static void
test_above(void)
{
    int                    own;
    char                   text[32];
    sbx_error_t            e;
    sbx_cgroup_t          *cg, *low;
    sbx_limits_t           limits;
    const sbx_limit_t     *limit;
    sbx_cgroup_session_t  *cs;

    if (sbx_cgroup_open(NULL, "sbx-above", &cg, &e) == -1
        || cg->tree[cg->role[SBX_ROLE_CPU]].v2)
    {
        skip("the cpu controller is not v1", "a group above with half a cpu");
        return;
    }

    own = sbx_cgroup_role_dir(cg, SBX_ROLE_CPU);
    ok(sbx_cgroup_make(cg, "half") == 0
       && sbx_write_at(own, "half/cpu.cfs_quota_us", "50000") == 0,
       "a group above with half a processor");

    /* the branch would be below it in one hierarchy alone, so stand-ins */

    ok(sbx_cgroup_make(cg, "half/child") == 0, "a group in it");
    is_int(sbx_cgroup_set_cpus(cg, "half/child", 1000), 0,
           "a whole processor is no error");
    ok(sbx_read_at(own, "half/child/cpu.cfs_quota_us", text, sizeof(text))
       > 0 && strcmp(text, "-1\n") == 0, "the half holds");
    is_int(sbx_cgroup_set_cpus(cg, "half/child", 250), 0, "a quarter is set");

    (void) sbx_cgroup_unmake(cg, "half/child");
    (void) sbx_cgroup_unmake(cg, "half");

    /* no share at all can be set: told as missing, and not by a failure */

    low = cg;
    low->has_cpus = 0;

    for (limit = sbx_limit_table; limit->name != NULL; limit++) {
        *sbx_limit_field(&limits, limit) = limit->fallback;
    }

    is_int(sbx_cgroup_session_create(low, "iaaaaaaaaaaaaaaaaaaaaaaaa",
                                     &limits, 0, &cs, &e), 0,
           "a session without a limit of processors");
    is_int(sbx_cgroup_session_remove(cs, &e), 0, "is removed");
    sbx_cgroup_session_free(cs);
    sbx_cgroup_close(cg);
}


int
main(void)
{
    char  command[128];

    if (geteuid() != 0) {
        return skip_all("needs root");
    }

    if (mkdtemp(state) == NULL || chmod(state, 0755) == -1) {
        return skip_all("no directory below /tmp");
    }

    test_settle();
    test_quota();
    test_never();
    test_doctor();
    test_real();
    test_crowded();
    test_above();

    (void) rmdir(BELOW);
    (void) rmdir(TOP);
    (void) snprintf(command, sizeof(command), "rm -rf %s", state);
    (void) !system(command);

    return done_testing();
}
