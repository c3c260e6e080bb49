/*
 * What a session installs from and whom it trusts, where configuration says
 * so: directories of the host with packages, shown read-only, and
 * certificates that count beside the machine's own.
 *
 * The bundle of the machine is copied into the session with what is added to
 * it, as a session's programs read one file; what is added is there alone,
 * too, for those that take it beside their own.
 */

#include "isolate_private.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>


#define SBX_TRUST_PAGE      4096u
#define SBX_TRUST_BUNDLE    (4 * 1024 * 1024)
#define SBX_TRUST_MACHINE   "etc/ssl/certs/ca-certificates.crt"
#define SBX_TRUST_ADDED     "etc/ssl/certs/sandbox-egress.pem"


static const char  *sbx_trust_dirs[] = { "etc/ssl", "etc/ssl/certs" };

static const char  *sbx_trust_files[] = { SBX_TRUST_MACHINE,
                                          SBX_TRUST_ADDED };


static int sbx_trust_open(const sbx_plan_t *plan, struct stat *st);
static int sbx_trust_write(const sbx_plan_t *plan, int upper,
    const char *name, sbx_error_t *e);
static int sbx_trust_copy(const sbx_plan_t *plan, int to);
static int sbx_packages_show(const char *path, const char *name,
    sbx_error_t *e);


static const struct {
    const char  *name;                    /* in the session */
    size_t       from;                    /* of the launch */
} sbx_packages_dirs[] = {
    { SBX_PACKAGES,      offsetof(sbx_launch_t, packages) },
    { SBX_PACKAGE_CACHE, offsetof(sbx_launch_t, package_cache) }
};


static const char *
sbx_packages_from(const sbx_plan_t *plan, size_t i)
{
    const char  *path;

    memcpy(&path, (const char *) plan->launch + sbx_packages_dirs[i].from,
           sizeof(path));

    return path;
}


void
sbx_packages_volume(const sbx_plan_t *plan, sbx_volume_t *volume)
{
    size_t       i;
    uint64_t     size;
    struct stat  st;
    sbx_auto_fd  bundle = -1;

    for (i = 0; i < sbx_nelts(sbx_packages_dirs); i++) {
        volume->directories += sbx_packages_from(plan, i) != NULL;
    }

    if (plan->launch->trust_size == 0) {
        return;
    }

    bundle = sbx_trust_open(plan, &st);
    size = 2 * plan->launch->trust_size
           + (bundle != -1 ? (uint64_t) st.st_size : 0);

    volume->bytes += size + sbx_nelts(sbx_trust_files) * SBX_TRUST_PAGE;
    volume->files += sbx_nelts(sbx_trust_files);
    volume->directories += sbx_nelts(sbx_trust_dirs);
}


int
sbx_packages_write(const sbx_plan_t *plan, int upper, sbx_error_t *e)
{
    size_t       i;
    uid_t        root;
    const char  *name;

    root = (uid_t) plan->launch->uid_first;

    for (i = 0; i < sbx_nelts(sbx_packages_dirs); i++) {
        name = sbx_packages_dirs[i].name + 1;

        if (sbx_packages_from(plan, i) != NULL
            && (mkdirat(upper, name, 0755) == -1
                || fchownat(upper, name, root, root, AT_SYMLINK_NOFOLLOW)
                   == -1))
        {
            return sbx_error(e, errno, SBX_E_INTERNAL, "cannot make /%s",
                             name);
        }
    }

    if (plan->launch->trust_size == 0) {
        return 0;
    }

    for (i = 0; i < sbx_nelts(sbx_trust_dirs); i++) {
        name = sbx_trust_dirs[i];

        if (mkdirat(upper, name, 0755) == -1
            || fchownat(upper, name, root, root, AT_SYMLINK_NOFOLLOW) == -1)
        {
            return sbx_error(e, errno, SBX_E_INTERNAL, "cannot make /%s",
                             name);
        }
    }

    for (i = 0; i < sbx_nelts(sbx_trust_files); i++) {
        if (sbx_trust_write(plan, upper, sbx_trust_files[i], e) == -1) {
            return -1;
        }
    }

    return 0;
}


/* The machine's own bundle, the template's before the host's; -1: none. */
static int
sbx_trust_open(const sbx_plan_t *plan, struct stat *st)
{
    sbx_auto_fd  fd = -1;

    if (plan->template_fd != -1) {
        fd = sbx_sys_open_inside(plan->template_fd, SBX_TRUST_MACHINE,
                                 O_RDONLY | O_NONBLOCK | O_NOCTTY);
    }

    if (fd == -1) {
        fd = open("/" SBX_TRUST_MACHINE,
                  O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    }

    if (fd == -1 || fstat(fd, st) == -1 || !S_ISREG(st->st_mode)
        || st->st_size > SBX_TRUST_BUNDLE)
    {
        return -1;
    }

    return sbx_steal_fd(&fd);
}


static int
sbx_trust_write(const sbx_plan_t *plan, int upper, const char *name,
    sbx_error_t *e)
{
    uid_t        root;
    sbx_auto_fd  fd = -1;

    root = (uid_t) plan->launch->uid_first;
    fd = openat(upper, name,
                O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0644);

    if (fd == -1
        || (strcmp(name, SBX_TRUST_MACHINE) == 0
            && sbx_trust_copy(plan, fd) == -1)
        || sbx_write_all(fd, plan->launch->trust, plan->launch->trust_size)
           == -1
        || fchown(fd, root, root) == -1)
    {
        return sbx_error(e, errno, SBX_E_INTERNAL, "cannot write /%s", name);
    }

    return 0;
}


/* No more of it than there was room made for. */
static int
sbx_trust_copy(const sbx_plan_t *plan, int to)
{
    char         buf[16384];
    off_t        left;
    size_t       want;
    ssize_t      n;
    struct stat  st;
    sbx_auto_fd  from = -1;

    from = sbx_trust_open(plan, &st);

    if (from == -1) {
        return 0;
    }

    for (left = st.st_size; left > 0; left -= n) {
        want = left < (off_t) sizeof(buf) ? (size_t) left : sizeof(buf);
        n = sbx_read_full(from, buf, want);

        if (n <= 0) {
            return (int) n;
        }

        if (sbx_write_all(to, buf, (size_t) n) == -1) {
            return -1;
        }
    }

    return sbx_write_all(to, "\n", 1);
}


int
sbx_packages_mount(const sbx_plan_t *plan, sbx_error_t *e)
{
    size_t       i;
    const char  *path;

    for (i = 0; i < sbx_nelts(sbx_packages_dirs); i++) {
        path = sbx_packages_from(plan, i);

        if (path != NULL
            && sbx_packages_show(path, sbx_packages_dirs[i].name + 1, e)
               == -1)
        {
            return -1;
        }
    }

    return 0;
}


/* One that has been removed since stays empty. */
static int
sbx_packages_show(const char *path, const char *name, sbx_error_t *e)
{
    if (access(path, F_OK) == -1 && errno == ENOENT) {
        return 0;
    }

    if (sbx_root_show_tree(path, name) == -1) {
        return sbx_error(e, errno, SBX_E_UNAVAILABLE,
                         "cannot show the packages of \"%.180s\"", path);
    }

    return 0;
}
