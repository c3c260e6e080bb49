/*
 * sandbox-session: the helper of the library sandbox_session.h.  It is of no
 * use by itself: descriptor 3 is the library's socket.
 */

#include "box.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/capability.h>
#include <sys/file.h>
#include <sys/prctl.h>
#include <sys/stat.h>


#define SBX_MAIN_FDS   4


static int sbx_main_request(sbx_box_t *box, sbx_error_t *e);
static int sbx_main_receive(sbx_box_t *box, int *fds, sbx_error_t *e);
static int sbx_main_strings(sbx_box_t *box, int fd, sbx_error_t *e);
static int sbx_main_lock(const sbx_box_t *box, int *lock, sbx_error_t *e);
static int sbx_main_owner(sbx_box_t *box, sbx_error_t *e);
static unsigned sbx_main_mapped(uint64_t id, unsigned same);
static int sbx_main_refused(const sbx_box_t *box, const sbx_error_t *e);
static void sbx_main_run(sbx_box_t *box, sbx_box_answer_t *answer);


int
main(int argc, char **argv)
{
    static sbx_box_t         box;
    static sbx_box_answer_t  answer;

    (void) argv;

    if (argc != 1 || fcntl(SBX_BOX_SOCKET, F_GETFD) == -1) {
        (void) fprintf(stderr, "sandbox-session is started by sandboxctl run "
                       "and by programs that use sandbox_session.h\n");
        return 2;
    }

    (void) signal(SIGPIPE, SIG_IGN);
    (void) umask(022);
    (void) sbx_sys_close_range(SBX_BOX_SOCKET + 1, ~0u, 0);
    (void) fcntl(SBX_BOX_SOCKET, F_SETFD, FD_CLOEXEC);

    box.nobody = -1;
    answer.magic = SBX_BOX_MAGIC;
    answer.type = SBX_BOX_FAILED;

    if (sbx_main_request(&box, &answer.error) == 0) {
        if (box.request.op == SBX_BOX_KEEP) {
            sbx_box_keep(&box);
            _exit(0);
        }

        sbx_main_run(&box, &answer);
    }

    (void) send(SBX_BOX_SOCKET, &answer, sizeof(answer), MSG_NOSIGNAL);
    _exit(0);
}


static int
sbx_main_request(sbx_box_t *box, sbx_error_t *e)
{
    int                 fds[SBX_MAIN_FDS];
    unsigned            i;
    sbx_box_request_t  *request;

    for (i = 0; i < SBX_MAIN_FDS; i++) {
        fds[i] = -1;
    }

    for (i = 0; i < 3; i++) {
        box->stdio[i] = -1;
    }

    if (sbx_main_receive(box, fds, e) == -1) {
        return -1;
    }

    request = &box->request;

    if (request->magic != SBX_BOX_MAGIC
        || request->version != SBX_BOX_VERSION
        || request->strings_size > SBX_BOX_STRINGS_MAX || fds[0] == -1)
    {
        return sbx_error(e, 0, SBX_E_INTERNAL,
                         "sandbox-session and the library that calls it are "
                         "of different versions");
    }

    if (request->op == SBX_BOX_RUN) {
        i = 1;

        if (request->flags & SBX_BOX_INPUT) {
            box->stdio[0] = fds[i++];
        }

        box->stdio[1] = fds[i++];
        box->stdio[2] = fds[i];

        if (box->stdio[1] == -1 || box->stdio[2] == -1) {
            return sbx_error(e, 0, SBX_E_INTERNAL, "streams are missing");
        }
    }

    if (sbx_main_strings(box, fds[0], e) == -1
        || sbx_main_owner(box, e) == -1)
    {
        return -1;
    }

    if (request->op == SBX_BOX_RUN && box->list[SBX_BOX_ARGV][0] == NULL) {
        return sbx_error(e, 0, SBX_E_INVALID, "there is no command");
    }

    return 0;
}


static int
sbx_main_receive(sbx_box_t *box, int *fds, sbx_error_t *e)
{
    ssize_t          n;
    size_t           count;
    struct iovec     iov = { &box->request, sizeof(box->request) };
    struct msghdr    msg;
    struct cmsghdr  *cmsg;
    union {
        struct cmsghdr  align;
        char            data[CMSG_SPACE(SBX_MAIN_FDS * sizeof(int))];
    } control;

    memset(&msg, 0, sizeof(msg));
    memset(&control, 0, sizeof(control));
    msg.msg_iov = &iov;
    msg.msg_iovlen = 1;
    msg.msg_control = control.data;
    msg.msg_controllen = sizeof(control.data);

    do {
        n = recvmsg(SBX_BOX_SOCKET, &msg, MSG_CMSG_CLOEXEC);
    } while (n == -1 && errno == EINTR);

    if (n == 0) {
        _exit(0);                     /* the caller has changed its mind */
    }

    if (n != sizeof(box->request)) {
        return sbx_error(e, n == -1 ? errno : 0, SBX_E_INTERNAL,
                         "the request is malformed");
    }

    cmsg = CMSG_FIRSTHDR(&msg);

    if (cmsg != NULL && cmsg->cmsg_level == SOL_SOCKET
        && cmsg->cmsg_type == SCM_RIGHTS)
    {
        count = (cmsg->cmsg_len - CMSG_LEN(0)) / sizeof(int);

        if (count <= SBX_MAIN_FDS) {
            memcpy(fds, CMSG_DATA(cmsg), count * sizeof(int));
        }
    }

    return 0;
}


static int
sbx_main_strings(sbx_box_t *box, int fd, sbx_error_t *e)
{
    char      *p, *end;
    size_t     i, k, size;

    size = box->request.strings_size;
    box->strings = malloc(size + 1);

    if (box->strings == NULL
        || pread(fd, box->strings, size, 0) != (ssize_t) size)
    {
        return sbx_error(e, errno, SBX_E_INTERNAL,
                         "the request's strings cannot be read");
    }

    (void) close(fd);
    box->strings[size] = '\0';
    p = box->strings;
    end = p + size;

    for (i = 0; i < SBX_BOX_NSTRINGS; i++) {
        box->string[i] = p < end ? p : "";
        p += p < end ? strlen(p) + 1 : 0;
    }

    for (i = 0; i < SBX_BOX_NLISTS; i++) {
        box->list[i] = calloc((size_t) box->request.count[i] + 1,
                              sizeof(char *));

        if (box->list[i] == NULL) {
            return sbx_error(e, errno, SBX_E_INTERNAL, "no memory");
        }

        for (k = 0; k < box->request.count[i] && p < end; k++) {
            box->list[i][k] = p;
            p += strlen(p) + 1;
        }
    }

    return 0;
}


/*
 * Root of the machine needs its rights here.  Root of somebody's user
 * namespace, who has no ids to give away, is a user like any other.
 */
static int
sbx_main_owner(sbx_box_t *box, sbx_error_t *e)
{
    cap_t             caps;
    unsigned          spare;
    cap_flag_value_t  admin;

    if (getuid() != geteuid() || getgid() != getegid()) {
        return sbx_error(e, 0, SBX_E_INVALID,
                         "a set-user-id program may not make sandboxes");
    }

    if (geteuid() != 0) {
        return 0;
    }

    spare = sbx_main_mapped(SBX_BOX_UID_BASE + (uint64_t) getpid(), 0);

    if (!spare && !sbx_main_mapped(0, 1)) {
        return 0;
    }

    admin = CAP_CLEAR;
    caps = cap_get_proc();

    if (caps != NULL) {
        (void) cap_get_flag(caps, CAP_SYS_ADMIN, CAP_EFFECTIVE, &admin);
        (void) cap_free(caps);
    }

    if (admin != CAP_SET && box->request.op != SBX_BOX_KEEP
        && box->request.backend != SBX_BACKEND_PASSTHROUGH)
    {
        return sbx_error(e, 0, SBX_E_UNAVAILABLE,
                         "user namespace: root without CAP_SYS_ADMIN cannot "
                         "run commands as anybody but root: start it as an "
                         "ordinary user");
    }

    box->root = (admin == CAP_SET);

    return 0;
}


/* Whether an id exists here; same: and is itself in the parent's namespace,
 * as root of the machine is. */
static unsigned
sbx_main_mapped(uint64_t id, unsigned same)
{
    FILE                *file;
    unsigned             found;
    unsigned long long   first, outside, count;

    file = fopen("/proc/self/uid_map", "re");
    found = 0;

    while (file != NULL && !found
           && fscanf(file, "%llu %llu %llu", &first, &outside, &count) == 3)
    {
        found = id >= first && id - first < count
                && (!same || first == outside);
    }

    if (file != NULL) {
        (void) fclose(file);
    }

    return found;
}


/* A private workspace stays while a run is in it. */
static int
sbx_main_lock(const sbx_box_t *box, int *lock, sbx_error_t *e)
{
    char  path[PATH_MAX], *slash;

    if ((box->request.flags & SBX_BOX_PRIVATE) == 0) {
        return 0;
    }

    (void) snprintf(path, sizeof(path), "%s", box->string[SBX_BOX_WORKSPACE]);
    slash = strrchr(path, '/');

    if (slash != NULL) {
        *slash = '\0';
        *lock = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    }

    if (*lock == -1 || flock(*lock, LOCK_SH | LOCK_NB) == -1) {
        return sbx_error(e, errno, SBX_E_CONFLICT, "the workspace is gone");
    }

    return 0;
}


/*
 * Whether the machine has no isolation for this user at all.  Root has the
 * right to it, and a command with root's rights would be the machine's end;
 * and what is only short just now, others may have used up.
 */
static int
sbx_main_refused(const sbx_box_t *box, const sbx_error_t *e)
{
    size_t  i;

    static const int  passing[] = {
        EAGAIN, ENOMEM, EMFILE, ENFILE, EINTR, EBUSY
    };

    if (box->root || e->code != SBX_E_UNAVAILABLE) {
        return 0;
    }

    for (i = 0; i < sbx_nelts(passing); i++) {
        if (e->err == passing[i]) {
            return 0;
        }
    }

    return 1;
}


static void
sbx_main_run(sbx_box_t *box, sbx_box_answer_t *answer)
{
    int  lock, plain;

    lock = -1;
    plain = box->request.backend == SBX_BACKEND_PASSTHROUGH;

    if (sbx_main_lock(box, &lock, &answer->error) == -1) {
        return;
    }

    if (plain && (box->request.flags & SBX_BOX_REQUIRE)) {
        (void) sbx_error(&answer->error, 0, SBX_E_INVALID,
                         "isolation is required, and the backend passthrough "
                         "has none");
        return;
    }

    if (!plain) {
        sbx_box_run(box, answer);

        if (answer->type == SBX_BOX_RESULT
            || box->request.backend == SBX_BACKEND_NAMESPACES
            || (box->request.flags & SBX_BOX_REQUIRE)
            || !sbx_main_refused(box, &answer->error))
        {
            return;
        }

        /* nothing of the command has run: the streams are as they were */

        (void) snprintf(box->note, sizeof(box->note), "not isolated: %.220s",
                        answer->error.text);
        box->count = 0;
    }

    sbx_box_plain(box, answer);
}
