/*
 * Starting the helper: posix_spawn, which shares nothing with other threads,
 * one socket, and a sealed-off memfd of strings.
 */

#include "session.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pwd.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>


#ifndef SBX_HELPER_DIR
#define SBX_HELPER_DIR    "/usr/lib/nginx/sandbox"
#endif

#define SBX_HELPER_NAME   "sandbox-session"
#define SBX_HELPER_FDS    4
#define SBX_HELPER_OWN    32      /* variables that are made here, at most */


static int sbx_helper_strings(const sbx_sandbox_t *sb,
    sbx_box_request_t *request, const sbx_sandbox_command_t *c,
    sbx_error_t *e);
static int sbx_helper_spawn(const char *path, int socket, pid_t *pid);
static int sbx_helper_send(int fd, const sbx_box_request_t *request,
    const int *fds, unsigned nfds);
static int sbx_helper_offline(sbx_sandbox_t *sb, size_t *n);
static int sbx_helper_cpus(sbx_sandbox_t *sb, size_t *n);
static int sbx_helper_variable(sbx_sandbox_t *sb, size_t *n,
    const char *text, const char *value);


/* "LC_" and its like stand for all that begin so. */
static const char  *sbx_helper_allowed[] = {
    "PATH=", "LANG=", "LANGUAGE=", "LC_", "TERM=", "COLORTERM=", "TZ=",
    "SHELL=", "NO_COLOR="
};


int
sbx_helper_find(sbx_sandbox_t *sb, const char *path, sbx_error_t *e)
{
    char     text[PATH_MAX], *slash;
    ssize_t  n;

    if (path != NULL) {
        sb->helper = strdup(path);

    } else {
        n = readlink("/proc/self/exe", text,
                     sizeof(text) - sizeof(SBX_HELPER_NAME) - 1);
        text[n > 0 ? n : 0] = '\0';
        slash = strrchr(text, '/');

        if (slash != NULL) {
            memcpy(slash + 1, SBX_HELPER_NAME, sizeof(SBX_HELPER_NAME));
        }

        if (slash == NULL || access(text, X_OK) == -1) {
            (void) snprintf(text, sizeof(text), "%s/%s", SBX_HELPER_DIR,
                            SBX_HELPER_NAME);
        }

        sb->helper = strdup(text);
    }

    if (sb->helper == NULL) {
        return sbx_error(e, errno, SBX_E_INTERNAL, "no memory");
    }

    if (access(sb->helper, X_OK) == -1) {
        return sbx_error(e, errno, SBX_E_UNAVAILABLE,
                         "cannot execute \"%.180s\": install it, or name it "
                         "with the option helper", sb->helper);
    }

    return 0;
}


/*
 * ---- environment -----------------------------------------------------------
 */

int
sbx_helper_environment(sbx_sandbox_t *sb, const char *const *env,
    sbx_error_t *e)
{
    size_t                i, k, n, room;
    const char           *home, *user;
    struct passwd         pw, *found;
    char                  buf[4096];

    for (room = SBX_HELPER_OWN; environ[room - SBX_HELPER_OWN] != NULL;
         room++)
    {
        /* void */
    }

    for (i = 0; env != NULL && env[i] != NULL; i++) {
        room++;
    }

    sb->env = calloc(room + 1, sizeof(char *));
    home = getenv("HOME");
    user = "user";

    if (getpwuid_r(geteuid(), &pw, buf, sizeof(buf), &found) == 0
        && found != NULL)
    {
        user = found->pw_name;
        home = home != NULL && home[0] == '/' ? home : found->pw_dir;
    }

    sb->home = strdup(home != NULL && home[0] == '/' ? home : "/");

    if (sb->env == NULL || sb->home == NULL) {
        return sbx_error(e, errno, SBX_E_INTERNAL, "no memory");
    }

    n = 0;

    for (i = 0; environ[i] != NULL; i++) {
        for (k = 0; k < sbx_nelts(sbx_helper_allowed); k++) {
            if (strncmp(environ[i], sbx_helper_allowed[k],
                        strlen(sbx_helper_allowed[k]))
                == 0
                && sbx_helper_variable(sb, &n, environ[i], NULL) == -1)
            {
                return sbx_error(e, errno, SBX_E_INTERNAL, "no memory");
            }
        }
    }

    /* root's home is hidden from its runs, which are not root's either */

    if (sbx_helper_variable(sb, &n, "HOME=",
                            geteuid() == 0 ? sb->workspace : sb->home)
        == -1
        || sbx_helper_variable(sb, &n, "USER=",
                               geteuid() == 0 ? "user" : user)
           == -1
        || sbx_helper_variable(sb, &n, "LOGNAME=",
                               geteuid() == 0 ? "user" : user)
           == -1
        || sbx_helper_variable(sb, &n, "TMPDIR=", "/tmp") == -1
        || sbx_helper_offline(sb, &n) == -1
        || sbx_helper_cpus(sb, &n) == -1)
    {
        return sbx_error(e, errno, SBX_E_INTERNAL, "no memory");
    }

    for (i = 0; env != NULL && env[i] != NULL; i++) {
        if (env[i][0] == '=' || strchr(env[i], '=') == NULL) {
            return sbx_error(e, 0, SBX_E_INVALID,
                             "env \"%.100s\" is not NAME=VALUE", env[i]);
        }

        if (sbx_helper_variable(sb, &n, env[i], NULL) == -1) {
            return sbx_error(e, errno, SBX_E_INTERNAL, "no memory");
        }
    }

    return 0;
}


static int
sbx_helper_offline(sbx_sandbox_t *sb, size_t *n)
{
    size_t  i;

    static const char  *variables[] = { SBX_PACKAGE_VARIABLES,
                                        SBX_OFFLINE_VARIABLES };

    if (sb->network) {
        return 0;
    }

    for (i = 0; i < sbx_nelts(variables); i++) {
        if (sbx_helper_variable(sb, n, variables[i], NULL) == -1) {
            return -1;
        }
    }

    return 0;
}


/* Libraries start as many threads as the run has processors. */
static int
sbx_helper_cpus(sbx_sandbox_t *sb, size_t *n)
{
    char       text[64];
    size_t     i;
    uint64_t   cpus;
    cpu_set_t  own;

    static const char  *names[] = { SBX_CPUS_VARIABLES };

    if (sb->limits.cpus >= SBX_UNLIMITED) {
        return 0;
    }

    cpus = (sb->limits.cpus + 999) / 1000;

    if (sched_getaffinity(0, sizeof(own), &own) == 0
        && cpus > (uint64_t) CPU_COUNT(&own))
    {
        cpus = (uint64_t) CPU_COUNT(&own);
    }

    for (i = 0; i < sbx_nelts(names); i++) {
        (void) snprintf(text, sizeof(text), "%s=%llu", names[i],
                        (unsigned long long) cpus);

        if (sbx_helper_variable(sb, n, text, NULL) == -1) {
            return -1;
        }
    }

    return 0;
}


/* The last of a name wins. */
static int
sbx_helper_variable(sbx_sandbox_t *sb, size_t *n, const char *text,
    const char *value)
{
    char    *copy;
    size_t   i, len;

    len = (size_t) (strchr(text, '=') - text) + 1;

    if (value == NULL) {
        copy = strdup(text);

    } else if (asprintf(&copy, "%s%s", text, value) == -1) {
        copy = NULL;
    }

    if (copy == NULL) {
        return -1;
    }

    for (i = 0; i < *n; i++) {
        if (strncmp(sb->env[i], copy, len) == 0) {
            free(sb->env[i]);
            sb->env[i] = copy;
            return 0;
        }
    }

    sb->env[(*n)++] = copy;

    return 0;
}


/*
 * ---- the request -----------------------------------------------------------
 */

void
sbx_helper_request(const sbx_sandbox_t *sb, sbx_box_op_t op,
    sbx_box_request_t *request)
{
    memset(request, 0, sizeof(sbx_box_request_t));
    request->magic = SBX_BOX_MAGIC;
    request->version = SBX_BOX_VERSION;
    request->op = op;
    request->backend = sb->backend;
    request->memory_strategy = sb->memory_strategy;
    request->limits = sb->limits;
    request->flags |= sb->network ? SBX_BOX_NETWORK : 0;
    request->flags |= sb->require ? SBX_BOX_REQUIRE : 0;
    request->flags |= sb->private ? SBX_BOX_PRIVATE : 0;
}


static uint32_t
sbx_helper_list(FILE *out, const char *const *list)
{
    uint32_t  n;

    for (n = 0; list != NULL && list[n] != NULL; n++) {
        (void) fwrite(list[n], 1, strlen(list[n]) + 1, out);
    }

    return n;
}


static int
sbx_helper_strings(const sbx_sandbox_t *sb, sbx_box_request_t *request,
    const sbx_sandbox_command_t *c, sbx_error_t *e)
{
    FILE              *out;
    char              *text;
    size_t             i, size;
    const char        *shell[] = { "/bin/sh", "-c", NULL, NULL };
    sbx_auto_fd        fd = -1;
    sbx_auto_free void  *owned = NULL;

    out = open_memstream(&text, &size);

    if (out == NULL) {
        return sbx_error(e, errno, SBX_E_INTERNAL, "no memory");
    }

    const char  *strings[SBX_BOX_NSTRINGS] = {
        [SBX_BOX_WORKSPACE] = sb->workspace,
        [SBX_BOX_CWD] = c != NULL && c->cwd != NULL ? c->cwd : "",
        [SBX_BOX_HOME] = sb->home != NULL ? sb->home : ""
    };

    for (i = 0; i < SBX_BOX_NSTRINGS; i++) {
        (void) fwrite(strings[i], 1, strlen(strings[i]) + 1, out);
    }

    shell[2] = c != NULL ? c->shell : NULL;

    const struct {
        sbx_box_list_t      list;
        const char *const  *items;
    } lists[] = {
        { SBX_BOX_WRITABLE, (const char *const *) sb->writable },
        { SBX_BOX_DENY_WRITE, (const char *const *) sb->deny_write },
        { SBX_BOX_DENY_READ, (const char *const *) sb->deny_read },
        { SBX_BOX_ARGV, c == NULL ? NULL
                        : c->argv != NULL ? c->argv
                        : c->shell != NULL ? shell : NULL },
        { SBX_BOX_ENV, (const char *const *) sb->env },
        { SBX_BOX_ENV, c != NULL ? c->env : NULL }
    };

    for (i = 0; i < sbx_nelts(lists); i++) {
        request->count[lists[i].list] += sbx_helper_list(out, lists[i].items);
    }

    if (fclose(out) != 0) {
        return sbx_error(e, errno, SBX_E_INTERNAL, "no memory");
    }

    owned = text;

    if (size > SBX_BOX_STRINGS_MAX) {
        return sbx_error(e, E2BIG, SBX_E_INVALID,
                         "arguments and environment are over %u bytes",
                         SBX_BOX_STRINGS_MAX);
    }

    request->strings_size = (uint32_t) size;
    fd = memfd_create("sandbox", MFD_CLOEXEC);

    if (fd == -1 || sbx_write_all(fd, text, size) == -1) {
        return sbx_error(e, errno, SBX_E_INTERNAL, "memfd_create() failed");
    }

    return sbx_steal_fd(&fd);
}


int
sbx_helper_start(const sbx_sandbox_t *sb, sbx_box_request_t *request,
    const sbx_sandbox_command_t *c, const int *fds, unsigned nfds, int *fd,
    pid_t *pid, sbx_error_t *e)
{
    int          pair[2], all[SBX_HELPER_FDS], rc;
    unsigned     i;
    sbx_auto_fd  strings = -1;

    strings = sbx_helper_strings(sb, request, c, e);

    if (strings == -1) {
        return -1;
    }

    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) == -1) {
        return sbx_error(e, errno, SBX_E_INTERNAL, "socketpair() failed");
    }

    rc = sbx_helper_spawn(sb->helper, pair[1], pid);
    (void) close(pair[1]);

    if (rc != 0) {
        (void) close(pair[0]);
        return sbx_error(e, rc, SBX_E_UNAVAILABLE,
                         "cannot start \"%.180s\"", sb->helper);
    }

    all[0] = strings;

    for (i = 0; i < nfds; i++) {
        all[1 + i] = fds[i];
    }

    if (sbx_helper_send(pair[0], request, all, 1 + nfds) == -1) {
        rc = errno;
        sbx_helper_end(pair[0], *pid);
        return sbx_error(e, rc, SBX_E_UNAVAILABLE,
                         "\"%.180s\" does not answer", sb->helper);
    }

    *fd = pair[0];

    return 0;
}


/* Returns an errno.  A session of its own: what a terminal sends to the
 * caller's group, the caller alone is to answer. */
static int
sbx_helper_spawn(const char *path, int socket, pid_t *pid)
{
    int                         rc, i;
    char                        name[] = SBX_HELPER_NAME;
    char                       *argv[] = { name, NULL };
    char                       *envp[] = { NULL };
    sigset_t                    signals;
    posix_spawnattr_t           attr;
    posix_spawn_file_actions_t  actions;

    rc = posix_spawn_file_actions_init(&actions);

    if (rc != 0) {
        return rc;
    }

    rc = posix_spawnattr_init(&attr);

    if (rc != 0) {
        (void) posix_spawn_file_actions_destroy(&actions);
        return rc;
    }

    (void) sigemptyset(&signals);
    rc = posix_spawnattr_setsigmask(&attr, &signals);
    (void) sigfillset(&signals);
    rc |= posix_spawnattr_setsigdefault(&attr, &signals);
    rc |= posix_spawnattr_setflags(&attr, POSIX_SPAWN_SETSIGMASK
                                          | POSIX_SPAWN_SETSIGDEF
                                          | POSIX_SPAWN_SETSID);

    /* the socket first: it may be one of 0-2 in a caller that closed those */

    rc |= posix_spawn_file_actions_adddup2(&actions, socket, SBX_BOX_SOCKET);

    for (i = 0; i < 3; i++) {
        rc |= posix_spawn_file_actions_addopen(&actions, i, "/dev/null",
                                               O_RDWR, 0);
    }

    if (rc == 0) {
        rc = posix_spawn(pid, path, &actions, &attr, argv, envp);
    }

    (void) posix_spawnattr_destroy(&attr);
    (void) posix_spawn_file_actions_destroy(&actions);

    return rc;
}


static int
sbx_helper_send(int fd, const sbx_box_request_t *request, const int *fds,
    unsigned nfds)
{
    ssize_t            n;
    sbx_box_request_t  copy;
    struct iovec       iov;
    struct msghdr      msg;
    struct cmsghdr    *cmsg;
    union {
        struct cmsghdr  align;
        char            data[CMSG_SPACE(SBX_HELPER_FDS * sizeof(int))];
    } control;

    copy = *request;
    iov.iov_base = &copy;
    iov.iov_len = sizeof(copy);

    memset(&msg, 0, sizeof(msg));
    memset(&control, 0, sizeof(control));
    msg.msg_iov = &iov;
    msg.msg_iovlen = 1;
    msg.msg_control = control.data;
    msg.msg_controllen = CMSG_SPACE(nfds * sizeof(int));

    cmsg = CMSG_FIRSTHDR(&msg);
    cmsg->cmsg_level = SOL_SOCKET;
    cmsg->cmsg_type = SCM_RIGHTS;
    cmsg->cmsg_len = CMSG_LEN(nfds * sizeof(int));
    memcpy(CMSG_DATA(cmsg), fds, nfds * sizeof(int));

    do {
        n = sendmsg(fd, &msg, MSG_NOSIGNAL);
    } while (n == -1 && errno == EINTR);

    return n == sizeof(copy) ? 0 : -1;
}


int
sbx_helper_answer(int fd, sbx_box_answer_t *answer, sbx_error_t *e)
{
    ssize_t  n;

    /* a cancel that came too late to be read is told first, by a reset; the
       answer is behind it */

    do {
        n = recv(fd, answer, sizeof(sbx_box_answer_t), 0);
    } while (n == -1 && (errno == EINTR || errno == ECONNRESET));

    if (n != sizeof(sbx_box_answer_t) || answer->magic != SBX_BOX_MAGIC) {
        return sbx_error(e, n == -1 ? errno : 0, SBX_E_INTERNAL,
                         "sandbox-session ended without an answer");
    }

    if (answer->type == SBX_BOX_FAILED) {
        return sbx_error(e, answer->error.err,
                         answer->error.code > SBX_OK
                         && answer->error.code < SBX_E_MAX
                         ? (sbx_code_t) answer->error.code : SBX_E_INTERNAL,
                         "%.247s", answer->error.text);
    }

    return 0;
}


void
sbx_helper_end(int fd, pid_t pid)
{
    char           byte[64];
    ssize_t        n;

    (void) shutdown(fd, SHUT_WR);

    /* its end of the socket closes with its life */

    do {
        n = recv(fd, byte, sizeof(byte), 0);
    } while (n > 0 || (n == -1 && (errno == EINTR || errno == ECONNRESET)));

    (void) close(fd);

    /* a caller that waits for all its children may have been quicker */

    while (waitpid(pid, NULL, 0) == -1 && errno == EINTR) { /* void */ }
}
