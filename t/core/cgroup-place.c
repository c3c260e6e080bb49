/* Where the broker's branch of the cgroup hierarchy is put. */

#include "cgroup_private.h"
#include "isolate_private.h"

#include "tap.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>


#define ID   "itest0000000000000000000004"


static char          name[64], top[64], base[128];
static sbx_limits_t  limits = {
    .memory = 32u << 20, .cpus = 1000, .processes = 20, .disk = 1u << 20
};


/* The cgroup2 hierarchy, whether or not it is mounted anywhere. */
static int
open_hierarchy(void)
{
    int  fs, mount;

    fs = sbx_sys_fsopen("cgroup2");
    mount = (fs == -1) ? -1 : sbx_sys_fsmount(fs, 0);
    (void) close(fs);

    return mount;
}


static void
own_group(char *path, size_t size)
{
    char   text[4096];
    char  *line;

    path[0] = '\0';

    if (sbx_read_at(AT_FDCWD, "/proc/self/cgroup", text, sizeof(text)) > 0) {
        line = strstr(text, "0::");

        if (line != NULL) {
            (void) snprintf(path, size, "%.*s",
                            (int) strcspn(line + 3, "\n"), line + 3);
        }
    }
}


static void
test_names(void)
{
    size_t         i;
    sbx_error_t    e;
    sbx_cgroup_t  *cg;

    static const char  *names[] = { "", ".", "..", "a/b", ".hidden" };

    for (i = 0; i < sbx_nelts(names); i++) {
        ok(sbx_cgroup_open("", names[i], &cg, &e) == -1
           && e.code == SBX_E_INVALID, "no branch \"%s\"", names[i]);
    }

    ok(sbx_cgroup_open("/a/../../b", name, &cg, &e) == -1,
       "a base does not climb");
}


static int
session_works(sbx_cgroup_t *cg)
{
    int                    rc;
    sbx_error_t            e;
    sbx_cgroup_session_t  *cs;

    if (sbx_cgroup_session_create(cg, ID, &limits, 0, &cs, &e) == -1) {
        printf("# %s: %s\n", e.text, strerror(e.err));
        return 0;
    }

    rc = sbx_cgroup_session_remove(cs, &e);
    sbx_cgroup_session_free(cs);

    return rc == 0;
}


static void
remove_base(sbx_cgroup_t *cg)
{
    unsigned  i;

    /* the directories that hold the branch are the caller's */

    for (i = 0; i < cg->ntrees; i++) {
        int  up, fd;

        (void) unlinkat(cg->tree[i].parent, cg->name, AT_REMOVEDIR);
        up = openat(cg->tree[i].parent, "../..", O_RDONLY|O_DIRECTORY);
        fd = openat(up, top, O_RDONLY|O_DIRECTORY);
        (void) unlinkat(fd, "inner", AT_REMOVEDIR);
        ok(unlinkat(up, top, AT_REMOVEDIR) == 0, "the base is left empty");
        (void) close(fd);
        (void) close(up);
    }
}


static void
test_base(void)
{
    sbx_error_t    e;
    sbx_cgroup_t  *cg;

    if (!ok(sbx_cgroup_open(base, name, &cg, &e) == 0,
            "a base that is named is made"))
    {
        printf("# %s: %s\n", e.text, strerror(e.err));
        return;
    }

    ok(session_works(cg), "and holds sessions");
    sbx_cgroup_close(cg);

    ok(sbx_cgroup_open(base, name, &cg, &e) == 0, "and is taken again");
    remove_base(cg);
    sbx_cgroup_close(cg);
}


/* A service alone in its group: broker() runs as the keeper's child. */
static int
broker(void)
{
    char           path[256], leaf[256];
    sbx_error_t    e;
    sbx_cgroup_t  *cg;

    if (sbx_cgroup_open("", name, &cg, &e) == -1) {
        printf("# %s: %s\n", e.text, strerror(e.err));
        return 1;
    }

    own_group(path, sizeof(path));
    (void) snprintf(leaf, sizeof(leaf), "/%s/%s/broker", top, name);

    if (strcmp(path, leaf) != 0) {
        printf("# in %s\n", path);
        return 2;
    }

    if (!session_works(cg)) {
        return 3;
    }

    /* it ends as by a crash */

    return 0;
}


static int
broker_again(void)
{
    char           path[256];
    sbx_error_t    e;
    sbx_cgroup_t  *cg;

    if (sbx_cgroup_open("", name, &cg, &e) == -1 || !session_works(cg)) {
        return 1;
    }

    sbx_cgroup_close(cg);
    own_group(path, sizeof(path));

    return (path[0] == '/' && strcmp(path + 1, top) == 0) ? 0 : 2;
}


static int
wait_for(pid_t pid)
{
    int  status;

    return (waitpid(pid, &status, 0) == pid && WIFEXITED(status))
           ? WEXITSTATUS(status) : -1;
}


static pid_t
run(int (*body)(void))
{
    pid_t  pid;

    (void) fflush(stdout);
    pid = fork();

    if (pid == 0) {
        int  rc = body();

        (void) fflush(stdout);
        _exit(rc);
    }

    return pid;
}


static int  group = -1;


static int
keeper(void)
{
    int   rc;
    char  path[256], leaf[256];

    if (sbx_write_at(group, "cgroup.procs", "0") == -1) {
        return 10;
    }

    rc = wait_for(run(broker));

    if (rc != 0) {
        return 20 + rc;
    }

    own_group(path, sizeof(path));
    (void) snprintf(leaf, sizeof(leaf), "/%s/%s/broker", top, name);

    if (strcmp(path, leaf) != 0) {
        return 30;
    }

    rc = wait_for(run(broker_again));

    if (rc != 0) {
        return 40 + rc;
    }

    own_group(path, sizeof(path));

    return (strcmp(path + 1, top) == 0) ? 0 : 50;
}


static void
test_service(void)
{
    char         text[256];
    sbx_auto_fd  hierarchy = -1;

    hierarchy = open_hierarchy();

    if (hierarchy == -1
        || sbx_read_at(hierarchy, "cgroup.controllers", text, sizeof(text))
           == -1
        || strstr(text, "memory") == NULL)
    {
        skip("memory is not on cgroup v2 here", "a service's own group");
        return;
    }

    if (mkdirat(hierarchy, top, 0755) == -1
        || sbx_write_at(hierarchy, "cgroup.subtree_control",
                        "+memory +pids +cpu")
           == -1)
    {
        skip("no group can be made", "a service's own group");
        return;
    }

    group = openat(hierarchy, top, O_RDONLY|O_DIRECTORY|O_CLOEXEC);

    is_int(wait_for(run(keeper)), 0,
           "keeper and broker move to a leaf, a new broker finds it, and its "
           "end takes it away");
    (void) close(group);
    ok(unlinkat(hierarchy, top, AT_REMOVEDIR) == 0,
       "the service's group is left empty");
}


/*
 * The next broker of a keeper that has been moved: it is told where the first
 * one's branch is, in each hierarchy.
 */

static sbx_cgroup_t        *above;        /* holds both places */
static sbx_cgroup_known_t  *known;        /* shared by all processes */
static int                  listed;


static int
move_to(const char *place)
{
    char         file[64];
    unsigned     i;

    (void) snprintf(file, sizeof(file), "%s/cgroup.procs", place);

    for (i = 0; i < above->ntrees; i++) {
        if (sbx_write_at(above->tree[i].parent, file, "0") == -1) {
            printf("# %s: %s\n", file, strerror(errno));
            return -1;
        }
    }

    return 0;
}


static void
list_one(const char *id, void *data)
{
    (void) data;
    listed += strcmp(id, ID) == 0;
}


static int
broker_before(void)
{
    sbx_error_t            e;
    sbx_cgroup_t          *cg;
    sbx_cgroup_session_t  *cs;

    if (sbx_cgroup_open("", name, &cg, &e) == -1
        || sbx_cgroup_session_create(cg, ID, &limits, 0, &cs, &e) == -1)
    {
        printf("# %s: %s\n", e.text, strerror(e.err));
        return 1;
    }

    sbx_cgroup_known(cg, known);

    return known->set ? 0 : 2;
}


/* Without being told: the fault is there. */

static int
broker_untold(void)
{
    sbx_error_t    e;
    sbx_cgroup_t  *cg;

    if (sbx_cgroup_open("", name, &cg, &e) == -1
        || sbx_cgroup_list(cg, list_one, NULL, &e) == -1)
    {
        return 1;
    }

    sbx_cgroup_close(cg);

    return listed == 0 ? 0 : 2;
}


static int
broker_told(void)
{
    sbx_error_t         e;
    sbx_cgroup_t       *cg;
    sbx_cgroup_known_t  same;

    if (sbx_cgroup_again("", name, known, &cg, &e) == -1
        || sbx_cgroup_list(cg, list_one, NULL, &e) == -1)
    {
        printf("# %s: %s\n", e.text, strerror(e.err));
        return 1;
    }

    sbx_cgroup_known(cg, &same);

    if (listed == 0 || memcmp(&same, known, sizeof(same)) != 0) {
        return 2;
    }

    while (sbx_cgroup_sweep(cg, ID, &e) == 1) { /* void */ }

    if (!session_works(cg)) {
        return 3;
    }

    sbx_cgroup_close(cg);

    return 0;
}


static int
broker_gone(void)
{
    sbx_error_t    e;
    sbx_cgroup_t  *cg;

    return sbx_cgroup_again("", name, known, &cg, &e) == -1
           && e.err == ENOENT ? 0 : 1;
}


static int
keeper_moved(void)
{
    int        rc;
    char       path[256];
    unsigned   i;

    if (move_to("one") == -1) {
        return 10;
    }

    rc = wait_for(run(broker_before));

    if (rc != 0) {
        return 20 + rc;
    }

    if (move_to("two") == -1) {
        return 30;
    }

    own_group(path, sizeof(path));

    if (strstr(path, "/two") == NULL) {
        return 31;
    }

    rc = wait_for(run(broker_untold));

    if (rc != 0) {
        return 40 + rc;
    }

    rc = wait_for(run(broker_told));

    if (rc != 0) {
        return 50 + rc;
    }

    for (i = 0; i < above->ntrees; i++) {
        if (unlinkat(above->tree[i].parent, "one", AT_REMOVEDIR) == -1) {
            printf("# one: %s\n", strerror(errno));
            return 60;
        }
    }

    rc = wait_for(run(broker_gone));

    return rc == 0 ? 0 : 70 + rc;
}


static void
test_moved(void)
{
    unsigned     i;
    sbx_error_t  e;

    known = mmap(NULL, sizeof(*known), PROT_READ|PROT_WRITE,
                 MAP_SHARED|MAP_ANONYMOUS, -1, 0);

    if (known == MAP_FAILED
        || !ok(sbx_cgroup_open(base, name, &above, &e) == 0, "two places"))
    {
        return;
    }

    for (i = 0; i < above->ntrees; i++) {
        (void) mkdirat(above->tree[i].parent, "one", 0755);
        (void) mkdirat(above->tree[i].parent, "two", 0755);
    }

    is_int(wait_for(run(keeper_moved)), 0,
           "a broker whose keeper was moved finds the sessions that there "
           "are, and is told where the place is gone");

    for (i = 0; i < above->ntrees; i++) {
        (void) unlinkat(above->tree[i].parent, "one", AT_REMOVEDIR);
        (void) unlinkat(above->tree[i].parent, "two", AT_REMOVEDIR);
    }

    remove_base(above);
    sbx_cgroup_close(above);
}


int
main(void)
{
    if (geteuid() != 0) {
        return skip_all("needs root");
    }

    (void) snprintf(name, sizeof(name), "sbx-test-%d", (int) getpid());
    (void) snprintf(top, sizeof(top), "sbx-top-%d", (int) getpid());
    (void) snprintf(base, sizeof(base), "/%s/inner", top);

    test_names();
    test_base();
    test_service();
    test_moved();

    return done_testing();
}
