/*
 * What the child of a vfork does until it executes the command's program:
 * first what needs init's rights (group, limits), then it gives the rights
 * away, then what is to be done with the command's rights alone (working
 * directory, the search for the program), the seccomp filter last.
 *
 * It runs in init's memory.  So: no libc, and no change of what belongs to
 * the memory rather than to the process (dumpability is init's, which must
 * stay as it is; exec gives the command its own).  The kernel sets the
 * memory non-dumpable when the ids change, which init's is anyway.
 *
 * no_new_privs is on since before init: a command's root gets at its exec no
 * capability that is not permitted here, whatever the bounding set holds.
 */

#include "init.h"
#include "init_sys.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/capability.h>
#include <linux/openat2.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>


#define SBX_CHILD_CAPS                                                       \
    ((1u << CAP_CHOWN) | (1u << CAP_DAC_OVERRIDE) | (1u << CAP_FOWNER)       \
     | (1u << CAP_SETUID) | (1u << CAP_SETGID))

/* What init itself holds, and so all that a bounding set can have. */
#define SBX_CHILD_HELD                                                       \
    (SBX_CHILD_CAPS | (1u << CAP_KILL) | (1u << CAP_SETPCAP))
#define SBX_CHILD_LAST_CAP   CAP_SETPCAP

/* Where the kernel looks when a command has no PATH. */
#define SBX_CHILD_PATH   "/usr/local/bin:/usr/bin:/bin"


typedef struct {
    uint64_t   handler;
    uint64_t   flags;
    uint64_t   restorer;
    uint64_t   mask;
} sbx_child_sigaction_t;

typedef struct {
    uint16_t      len;
    const void   *filter;
} sbx_child_program_t;


static void sbx_child_enter(sbx_init_launch_t *launch);
static void sbx_child_count(sbx_init_launch_t *launch);
static void sbx_child_stdio(sbx_init_launch_t *launch);
static void sbx_child_limit(sbx_init_launch_t *launch);
static void sbx_child_become(sbx_init_launch_t *launch);
static void sbx_child_chdir(sbx_init_launch_t *launch);
static void sbx_child_filter(sbx_init_launch_t *launch);
static void sbx_child_exec(sbx_init_launch_t *launch)
    __attribute__((noreturn));
static void sbx_child_fail(sbx_init_launch_t *launch, sbx_init_stage_t stage,
    long rc) __attribute__((noreturn));


void
sbx_init_child(sbx_init_launch_t *launch)
{
    sbx_child_enter(launch);
    sbx_child_stdio(launch);
    sbx_child_limit(launch);
    sbx_child_become(launch);
    sbx_child_chdir(launch);
    sbx_child_filter(launch);
    sbx_child_exec(launch);
}


static void
sbx_child_fail(sbx_init_launch_t *launch, sbx_init_stage_t stage, long rc)
{
    launch->outcome.err = (int32_t) -rc;
    launch->outcome.stage = stage;

    for ( ;; ) {
        (void) sbx_sys(SYS_exit_group, 127, 0, 0, 0, 0);
    }
}


static void
sbx_child_enter(sbx_init_launch_t *launch)
{
    long      rc;
    unsigned  i;

    for (i = 0; i < launch->nattach; i++) {
        if (launch->entered && i == launch->core) {
            continue;
        }

        rc = sbx_sys(SYS_write, launch->attach[i], sbx_sys_ptr("0"), 1, 0,
                     0);

        if (rc != 1) {
            sbx_child_fail(launch, rc == -EAGAIN ? SBX_INIT_STAGE_CLONE
                                                 : SBX_INIT_STAGE_SETUP, rc);
        }
    }

    sbx_child_count(launch);

    rc = sbx_sys(SYS_setsid, 0, 0, 0, 0, 0);

    if (rc < 0) {
        sbx_child_fail(launch, SBX_INIT_STAGE_SETUP, rc);
    }
}


/*
 * The kernel refuses a fork past the limit, but never a process that comes
 * from outside: whoever finds one too many after it has come leaves again.
 */

static void
sbx_child_count(sbx_init_launch_t *launch)
{
    char      buf[24] = "";
    long      i, n;
    uint64_t  count;

    if (launch->pids == -1) {
        return;
    }

    n = sbx_sys(SYS_pread64, launch->pids, sbx_sys_ptr(buf), sizeof(buf), 0,
                0);

    if (n <= 0) {
        sbx_child_fail(launch, SBX_INIT_STAGE_SETUP, n < 0 ? n : -EIO);
    }

    count = 0;

    for (i = 0; i < n && buf[i] >= '0' && buf[i] <= '9'; i++) {
        count = count * 10 + (uint64_t) (buf[i] - '0');
    }

    if (count > launch->processes) {
        sbx_child_fail(launch, SBX_INIT_STAGE_CLONE, -EDQUOT);
    }
}


/* The first descriptor that is not to be had. */

static long
sbx_child_first(const sbx_init_launch_t *launch)
{
    return launch->extra != -1 ? 4 : 3;
}


/* Every descriptor but 0-2, and 3 of a kernel, is closed here, those of the
 * group too. */

static void
sbx_child_stdio(sbx_init_launch_t *launch)
{
    int   i, fd;
    long  rc;

    for (i = 0; i < 3; i++) {
        fd = launch->stdio[i];

        if (fd == -1) {
            fd = (int) sbx_sys(SYS_openat, AT_FDCWD,
                               sbx_sys_ptr("/dev/null"), O_RDONLY, 0, 0);

            if (fd < 0) {
                /* init's own is there, if the session's is not */
                continue;
            }
        }

        rc = sbx_sys(SYS_dup3, fd, i, 0, 0, 0);

        if (rc < 0) {
            sbx_child_fail(launch, SBX_INIT_STAGE_SETUP, rc);
        }
    }

    if (launch->tty) {
        rc = sbx_sys(SYS_ioctl, 0, TIOCSCTTY, 0, 0, 0);

        if (rc < 0) {
            sbx_child_fail(launch, SBX_INIT_STAGE_SETUP, rc);
        }
    }

    rc = 0;

    if (launch->extra != -1) {
        rc = sbx_sys(SYS_dup3, launch->extra, 3, 0, 0, 0);
    }

    if (rc >= 0) {
        rc = sbx_sys(SYS_close_range, sbx_child_first(launch), UINT_MAX, 0,
                     0, 0);
    }

    if (rc < 0) {
        sbx_child_fail(launch, SBX_INIT_STAGE_SETUP, rc);
    }
}


static void
sbx_child_limit(sbx_init_launch_t *launch)
{
    long      rc;
    unsigned  i;

    for (i = 0; i < launch->nrlimits; i++) {
        rc = sbx_sys(SYS_prlimit64, 0, launch->resources[i],
                     sbx_sys_ptr(&launch->rlimits[i]), 0, 0);

        if (rc < 0) {
            sbx_child_fail(launch, SBX_INIT_STAGE_SETUP, rc);
        }
    }

    if (launch->affinity_size != 0) {
        /* what is seen, not what holds: that it fails loses nothing */
        (void) sbx_sys(SYS_sched_setaffinity, 0,
                       (long) launch->affinity_size,
                       sbx_sys_ptr(launch->affinity), 0, 0);
    }

    (void) sbx_sys(SYS_umask, 022, 0, 0, 0, 0);
}


static void
sbx_child_become(sbx_init_launch_t *launch)
{
    long                             rc;
    uint64_t                         none;
    unsigned                         i, cap;
    sbx_child_sigaction_t            action;
    struct __user_cap_header_struct  header;
    struct __user_cap_data_struct    data[2];

    rc = 0;

    for (cap = 0; cap <= SBX_CHILD_LAST_CAP && rc == 0; cap++) {
        if ((SBX_CHILD_HELD & (1u << cap)) != 0
            && !(launch->root && (SBX_CHILD_CAPS & (1u << cap)) != 0))
        {
            rc = sbx_sys(SYS_prctl, PR_CAPBSET_DROP, cap, 0, 0, 0);
        }
    }

    if (rc == 0) {
        rc = sbx_sys(SYS_setgroups, 0, 0, 0, 0, 0);
    }

    if (rc == 0) {
        rc = sbx_sys(SYS_setresgid, launch->gid, launch->gid, launch->gid,
                     0, 0);
    }

    if (rc == 0) {
        rc = sbx_sys(SYS_setresuid, launch->uid, launch->uid, launch->uid,
                     0, 0);
    }

    if (rc < 0) {
        sbx_child_fail(launch, SBX_INIT_STAGE_SETUP, rc);
    }

    header.version = _LINUX_CAPABILITY_VERSION_3;
    header.pid = 0;

    for (i = 0; i < 2; i++) {
        data[i].effective = (i == 0 && launch->root) ? SBX_CHILD_CAPS : 0;
        data[i].permitted = data[i].effective;
        data[i].inheritable = 0;
    }

    rc = sbx_sys(SYS_capset, sbx_sys_ptr(&header), sbx_sys_ptr(data), 0, 0,
                 0);

    if (rc < 0) {
        sbx_child_fail(launch, SBX_INIT_STAGE_SETUP, rc);
    }

    (void) sbx_sys(SYS_prctl, PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0,
                   0);

    /* the one disposition that init has changed, and its mask */

    action.handler = (uint64_t) (uintptr_t) SIG_DFL;
    action.flags = 0;
    action.restorer = 0;
    action.mask = 0;
    none = 0;

    (void) sbx_sys(SYS_rt_sigaction, SIGPIPE, sbx_sys_ptr(&action), 0,
                   sizeof(none), 0);
    (void) sbx_sys(SYS_rt_sigprocmask, SIG_SETMASK, sbx_sys_ptr(&none), 0,
                   sizeof(none), 0);
}


/* A descriptor, or the kernel's error. */

static long
sbx_child_directory(long dirfd, const char *path)
{
    struct open_how  how;

    how.flags = O_PATH|O_DIRECTORY|O_CLOEXEC;
    how.mode = 0;
    how.resolve = RESOLVE_NO_MAGICLINKS;

    return sbx_sys(SYS_openat2, dirfd, sbx_sys_ptr(path), sbx_sys_ptr(&how),
                   sizeof(how), 0);
}


/*
 * With the command's rights, so that a directory which the user may not
 * enter is none to start in; magic links, as those of /proc/self/fd, are
 * not followed.
 */

static void
sbx_child_chdir(sbx_init_launch_t *launch)
{
    long         fd, base;
    const char  *cwd;

    cwd = launch->cwd;

    if (cwd[0] == '/') {
        fd = sbx_child_directory(AT_FDCWD, cwd);

    } else {
        fd = sbx_child_directory(AT_FDCWD, launch->workspace);

        if (fd >= 0 && cwd[0] != '\0') {
            base = fd;
            fd = sbx_child_directory(base, cwd);
        }
    }

    if (fd >= 0) {
        fd = sbx_sys(SYS_fchdir, fd, 0, 0, 0, 0);
    }

    if (fd < 0 && launch->default_cwd) {
        fd = sbx_sys(SYS_chdir, sbx_sys_ptr("/"), 0, 0, 0, 0);
    }

    if (fd < 0) {
        sbx_child_fail(launch, SBX_INIT_STAGE_CWD, fd);
    }

    (void) sbx_sys(SYS_close_range, sbx_child_first(launch), UINT_MAX, 0, 0,
                   0);
}


static void
sbx_child_filter(sbx_init_launch_t *launch)
{
    long                 rc;
    sbx_child_program_t  program;

    if (launch->filter_size == 0) {
        return;
    }

    program.len = (uint16_t) (launch->filter_size / 8);
    program.filter = launch->filter;

    rc = sbx_sys(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0,
                 sbx_sys_ptr(&program), 0, 0);

    if (rc < 0) {
        sbx_child_fail(launch, SBX_INIT_STAGE_SETUP, rc);
    }
}


static long
sbx_child_try(sbx_init_launch_t *launch, const char *program)
{
    return sbx_sys(SYS_execve, sbx_sys_ptr(program),
                   sbx_sys_ptr(launch->argv), sbx_sys_ptr(launch->envp), 0,
                   0);
}


static const char *
sbx_child_path(sbx_init_launch_t *launch)
{
    size_t       i;
    const char  *s;

    for (i = 0; launch->envp[i] != NULL; i++) {
        s = launch->envp[i];

        if (s[0] == 'P' && s[1] == 'A' && s[2] == 'T' && s[3] == 'H'
            && s[4] == '=')
        {
            return s + 5;
        }
    }

    return SBX_CHILD_PATH;
}


/*
 * As execvp() searches, but a file of unknown format is given to no shell,
 * and a directory that may not be searched has no program in it.
 */

static void
sbx_child_exec(sbx_init_launch_t *launch)
{
    char         file[PATH_MAX];
    long         rc, found;
    size_t       n, i;
    const char  *name, *path;

    name = launch->argv[0];

    for (n = 0; name[n] != '\0' && name[n] != '/'; n++) { /* void */ }

    if (name[n] == '/' || n == 0) {
        rc = sbx_child_try(launch, name);
        sbx_child_fail(launch, SBX_INIT_STAGE_EXEC, rc);
    }

    path = sbx_child_path(launch);
    found = -ENOENT;

    for ( ;; ) {
        for (i = 0;
             path[i] != '\0' && path[i] != ':' && i < sizeof(file) - 2;
             i++)
        {
            file[i] = path[i];
        }

        path += i;

        /* an element that is too long is passed over */

        if ((*path == ':' || *path == '\0') && i + n + 2 <= sizeof(file)) {
            if (i != 0 && file[i - 1] != '/') {
                file[i++] = '/';
            }

            for (n = 0; name[n] != '\0'; n++) {
                file[i + n] = name[n];
            }

            file[i + n] = '\0';

            rc = sbx_child_try(launch, file);

            if (rc == -EACCES) {
                /* also what lies in a directory that may not be searched */

                if (sbx_sys(SYS_faccessat, AT_FDCWD, sbx_sys_ptr(file), F_OK,
                            0, 0) == 0)
                {
                    found = rc;
                }

            } else if (rc != -ENOENT && rc != -ENOTDIR
                       && rc != -ENAMETOOLONG && rc != -ELOOP)
            {
                sbx_child_fail(launch, SBX_INIT_STAGE_EXEC, rc);
            }
        }

        while (*path != ':' && *path != '\0') {
            path++;
        }

        if (*path == '\0') {
            break;
        }

        path++;
    }

    sbx_child_fail(launch, SBX_INIT_STAGE_EXEC, found);
}
