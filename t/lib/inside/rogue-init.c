/*
 * A session's first process that is its enemy's: it answers each call with
 * another attack upon the worker, one after the other.
 *
 *     rogue-init --list      what there is: number, what the worker must make
 *                            of it ("bad": a bad frame; "any": some answer),
 *                            and its name
 *
 * A command "rogue from 'N STEP'" is served well, and has the calls that follow
 * begin with attack N, and go on in steps; "rogue at" writes which would be
 * next.  A call that comes again, by its request's id, has the same attack
 * once more.
 */

#include "rogue_attacks.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>


#define CONTROL     3
#define PATIENCE    10            /* seconds, for whoever does not read */


/*
 * ---- on a call's socket --------------------------------------------------
 */

static int  call;


static void
put(const void *bytes, size_t size, const int *fds, unsigned nfds)
{
    char             space[CMSG_SPACE(4 * sizeof(int))];
    ssize_t          sent;
    struct iovec     iov;
    struct pollfd    pfd;
    struct msghdr    msg;
    struct cmsghdr  *cmsg;

    static const uint8_t  refused[] = "a descriptor is refused";

    memset(&msg, 0, sizeof(msg));
    iov.iov_base = (void *) (uintptr_t) bytes;
    iov.iov_len = size;
    msg.msg_iov = &iov;
    msg.msg_iovlen = 1;

    if (nfds != 0) {
        memset(space, 0, sizeof(space));
        msg.msg_control = space;
        msg.msg_controllen = CMSG_SPACE(nfds * sizeof(int));
        cmsg = CMSG_FIRSTHDR(&msg);
        cmsg->cmsg_level = SOL_SOCKET;
        cmsg->cmsg_type = SCM_RIGHTS;
        cmsg->cmsg_len = CMSG_LEN(nfds * sizeof(int));
        memcpy(CMSG_DATA(cmsg), fds, nfds * sizeof(int));
    }

    pfd.fd = call;
    pfd.events = POLLOUT;

    while (size != 0) {
        sent = sendmsg(call, &msg, MSG_NOSIGNAL|MSG_DONTWAIT);

        if (sent == -1 && errno == EPERM && msg.msg_control != NULL) {
            /* a kernel that lets none be passed to who wants none: what comes
             * without it is to be as wrong */
            iov.iov_base = (void *) (uintptr_t) refused;
            iov.iov_len = size = sizeof(refused);
            msg.msg_control = NULL;
            msg.msg_controllen = 0;
            continue;
        }

        if (sent == -1
            && (errno != EAGAIN || poll(&pfd, 1, PATIENCE * 1000) != 1))
        {
            _exit(0);
        }

        if (sent > 0) {
            size -= (size_t) sent;
            iov.iov_base = (uint8_t *) iov.iov_base + sent;
            iov.iov_len = size;
            msg.msg_control = NULL;
            msg.msg_controllen = 0;
        }
    }
}


static void
frame(uint32_t type, const void *payload, size_t size, size_t says,
    const int *fds, unsigned nfds)
{
    uint8_t      buf[sizeof(sbx_frame_t) + SBX_FRAME_MAX];
    sbx_frame_t  head;

    head.length = (uint32_t) says;
    head.type = (uint16_t) type;
    head.flags = 0;
    memcpy(buf, &head, sizeof(head));

    if (size != 0) {
        memcpy(buf + sizeof(head), payload, size);
    }

    put(buf, sizeof(head) + size, fds, nfds);
}


static void
good(uint32_t type, const void *payload, size_t size)
{
    frame(type, payload, size, size, NULL, 0);
}


/* What the worker has to say is none of our business; its end is. */

static void
drain(int until_end)
{
    char           buf[65536];
    ssize_t        n;
    struct pollfd  pfd;

    pfd.fd = call;
    pfd.events = POLLIN;

    while (poll(&pfd, 1, until_end ? PATIENCE * 1000 : 0) == 1) {
        n = recv(call, buf, sizeof(buf), MSG_DONTWAIT);

        if (n == 0 || (n == -1 && errno != EAGAIN)) {
            return;
        }
    }
}


static void
entry(uint32_t type, uint64_t size, const int *fds, unsigned nfds)
{
    uint8_t        buf[sizeof(sbx_f_entry_t) + 2];
    sbx_f_entry_t  e;

    memset(&e, 0, sizeof(e));
    e.mode = 0644;
    e.size = size;
    e.path_len = 2;
    memcpy(buf, &e, sizeof(e));
    memcpy(buf + sizeof(e), "/x", 2);
    frame(type, buf, sizeof(buf), sizeof(buf), fds, nfds);
}


static void
begin_well(uint16_t op)
{
    sbx_f_started_t  started;
    sbx_f_output_t   output;

    memset(&started, 0, sizeof(started));
    memset(&output, 0, sizeof(output));
    good(SBX_F_ACCEPTED, NULL, 0);

    switch (op) {

    case SBX_OP_EXEC:
        started.pid = 7;
        good(SBX_F_STARTED, &started, sizeof(started));
        good(SBX_F_STDOUT, "hello", 5);
        break;

    case SBX_OP_PROCESS:
        good(SBX_F_OUTPUT, &output, sizeof(output));
        break;

    case SBX_OP_FILE:
        entry(SBX_F_ENTRY, 5, NULL, 0);
        break;

    case SBX_OP_ENV:
        good(SBX_F_STRINGS, "A=1", 4);
        break;
    }
}


static void
attack_frame(const attack_t *a, uint16_t op)
{
    int      fds[2];
    size_t   size, i;
    shape_t  s;

    static uint8_t  bytes[SBX_FRAME_MAX];

    if (a->begin == BEGIN_ACCEPTED) {
        good(SBX_F_ACCEPTED, NULL, 0);

    } else if (a->begin == BEGIN_WELL) {
        begin_well(op);
    }

    s = shape((sbx_frame_type_t) a->type);
    size = s.size;
    fds[0] = open("/etc/passwd", O_RDONLY|O_CLOEXEC);
    fds[1] = fds[0];

    switch (a->fault) {

    case FAULT_ONES:
        memset(bytes, 0xff, sizeof(bytes));
        break;

    case FAULT_RANDOM:
        srand(a->type);

        for (i = 0; i < sizeof(bytes); i++) {
            bytes[i] = (uint8_t) rand();
        }

        break;

    case FAULT_SHORT:
        size -= size != 0;
        break;

    case FAULT_LONG:
        size++;
        break;

    case FAULT_LARGE:
        size = SBX_FRAME_MAX;
        break;

    case FAULT_HUGE:
        frame(a->type, bytes, size, a->type % 2 ? SBX_FRAME_MAX + 1
                                                : UINT32_MAX, NULL, 0);
        return;

    case FAULT_CUT:
        frame(a->type, bytes, size / 2, size + 1, NULL, 0);
        return;

    default:
        break;
    }

    frame(a->type, bytes, size, size, fds,
          a->fault == FAULT_FILE ? 1 : a->fault == FAULT_FILES ? 2 : 0);
}


static void
attack_error(whole_t whole)
{
    sbx_f_error_t  e;

    memset(&e, 0, sizeof(e));
    e.code = SBX_E_QUOTA;

    switch (whole) {

    case WHOLE_CODE_NONE:
        e.code = 0;
        break;

    case WHOLE_CODE_MUCH:
        e.code = UINT32_MAX;
        break;

    case WHOLE_UNENDED:
        memset(&e, 'x', sizeof(e));
        e.code = SBX_E_QUOTA;
        break;

    case WHOLE_CONTROLS:
        (void) strcpy(e.text, "\r\n\r\nHTTP/1.1 200 OK\r\n\"\\\x01");
        (void) strcpy(e.scope, "\"},{\"");
        (void) strcpy(e.resource, "a\nb");
        (void) strcpy(e.mend, "\x1b[2J\"");
        break;

    case WHOLE_LATIN:
        memset(e.text, 0xe4, sizeof(e.text) - 1);
        memset(e.scope, 0xff, sizeof(e.scope) - 1);
        memset(e.mend, 0xc0, sizeof(e.mend) - 1);
        break;

    default:
        memset(&e.limit, 0xff, 2 * sizeof(uint64_t));
        e.code = SBX_E_SESSION;
        e.ended = UINT32_MAX;
        e.ended_at = INT64_MIN;
        e.oldest[0] = UINT64_MAX;
        break;
    }

    good(SBX_F_ERROR, &e, sizeof(e));
}


static int
tcp(int flags, int *far)
{
    int                 door, near;
    socklen_t           len;
    struct sockaddr_in  addr;

    memset(&addr, 0, sizeof(addr));
    addr.sin_family = AF_INET;
    addr.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    len = sizeof(addr);
    door = socket(AF_INET, SOCK_STREAM, 0);
    near = socket(AF_INET, SOCK_STREAM, 0);

    if (bind(door, (struct sockaddr *) &addr, len) == -1
        || listen(door, 1) == -1
        || getsockname(door, (struct sockaddr *) &addr, &len) == -1
        || connect(near, (struct sockaddr *) &addr, len) == -1)
    {
        _exit(1);
    }

    *far = accept(door, NULL, NULL);
    (void) close(door);
    (void) fcntl(near, F_SETFL, flags);

    return near;
}


static void
attack_socket(whole_t whole)
{
    int       fds[2], far, nfds;
    unsigned  i;

    far = -1;
    nfds = 1;

    switch (whole) {

    case WHOLE_SOCKET_UNMET:
    case WHOLE_SOCKET_LISTENS:
        fds[0] = socket(AF_INET, SOCK_STREAM|SOCK_NONBLOCK, 0);

        if (whole == WHOLE_SOCKET_LISTENS) {
            (void) listen(fds[0], 1);
        }

        break;

    case WHOLE_SOCKET_UDP:
        fds[0] = socket(AF_INET, SOCK_DGRAM|SOCK_NONBLOCK, 0);
        break;

    case WHOLE_SOCKET_UNIX:
        (void) socketpair(AF_UNIX, SOCK_STREAM|SOCK_NONBLOCK, 0, fds);
        break;

    case WHOLE_SOCKET_FILE:
        fds[0] = open("/etc/passwd", O_RDONLY|O_NONBLOCK);
        break;

    default:
        fds[0] = tcp(whole == WHOLE_SOCKET_BLOCKS ? 0 : O_NONBLOCK, &far);
        fds[1] = fds[0];
        nfds = whole == WHOLE_SOCKET_TWO ? 2 : 1;
        break;
    }

    frame(SBX_F_SOCKET, NULL, 0, 0, fds, nfds);
    (void) close(fds[0]);

    if (whole == WHOLE_SOCKET_GARBAGE) {
        for (i = 0; i < 1000; i++) {
            (void) send(far, "\0HTTP/1.1 \r\xff:\n\t999", 18, MSG_NOSIGNAL);
        }
    }

    if (far != -1) {
        (void) close(far);
    }
}


static void
attack_file(whole_t whole)
{
    int       fds[2], flags;
    char      name[32];
    uint64_t  size;

    (void) snprintf(name, sizeof(name), "/tmp/rogue.%d", (int) getpid());
    size = 5;
    flags = O_RDONLY;
    fds[1] = -1;

    switch (whole) {

    case WHOLE_FILE_FIFO:
        (void) mkfifo(name, 0600);
        flags = O_RDONLY|O_NONBLOCK;
        break;

    case WHOLE_FILE_DIRECTORY:
        (void) mkdir(name, 0700);
        break;

    case WHOLE_FILE_NULL:
    case WHOLE_FILE_ZERO:
    case WHOLE_FILE_PROC:
        (void) strcpy(name, whole == WHOLE_FILE_NULL ? "/dev/null"
                            : whole == WHOLE_FILE_ZERO ? "/dev/zero"
                            : "/proc/self/status");
        break;

    default:
        fds[1] = open(name, O_CREAT|O_RDWR|O_CLOEXEC, 0600);
        (void) !write(fds[1], "hello", 5);
        break;
    }

    switch (whole) {

    case WHOLE_FILE_PATH:
        flags = O_PATH;
        break;

    case WHOLE_FILE_WRITES:
        flags = O_WRONLY;
        break;

    case WHOLE_FILE_BOTH:
        flags = O_RDWR;
        break;

    case WHOLE_FILE_SHORTER:
        size = 1 << 20;
        break;

    case WHOLE_FILE_LONGER:
        size = 1;
        break;

    case WHOLE_FILE_NEGATIVE:
        size = UINT64_MAX;
        break;

    case WHOLE_FILE_SPARSE:
        size = 1ULL << 40;
        (void) ftruncate(fds[1], (off_t) size);
        break;

    case WHOLE_FILE_SHRINKS:
        size = 64 << 20;
        (void) ftruncate(fds[1], (off_t) size);
        break;

    default:
        break;
    }

    fds[0] = open(name, flags|O_CLOEXEC);

    if (whole == WHOLE_FILE_SOCKET) {
        (void) socketpair(AF_UNIX, SOCK_STREAM, 0, fds);

    } else if (whole == WHOLE_FILE_MEMFD) {
        fds[0] = memfd_create("rogue", 0);
    }

    if (strncmp(name, "/tmp", 4) == 0) {
        (void) remove(name);
    }

    good(SBX_F_ACCEPTED, NULL, 0);

    if (whole == WHOLE_FILE_LATE) {
        entry(SBX_F_OPENED, size, NULL, 0);
        put("", 1, fds, 1);
        return;
    }

    entry(SBX_F_OPENED, size, fds, 1);

    if (whole == WHOLE_FILE_SHRINKS) {
        (void) ftruncate(fds[1], 5);
    }

    /* an end would be "stop sending" */

    drain(1);
}


static void
attack_whole(whole_t whole, uint16_t op)
{
    uint8_t      buf[2 * sizeof(sbx_frame_t) + sizeof(sbx_f_end_t)];
    size_t       i;
    sbx_frame_t  head;
    sbx_f_end_t  end;

    static uint8_t  bytes[SBX_FRAME_MAX];

    memset(&end, 0, sizeof(end));

    switch (whole) {

    case WHOLE_CLOSED:
        return;

    case WHOLE_HEADER:
        put("\1\0\0", 3, NULL, 0);
        return;

    case WHOLE_PIECES:
        memset(buf, 0, sizeof(buf));
        memset(&head, 0, sizeof(head));
        head.type = SBX_F_ACCEPTED;
        memcpy(buf, &head, sizeof(head));
        head.type = SBX_F_END;
        head.length = sizeof(end);
        memcpy(buf + sizeof(head), &head, sizeof(head));

        for (i = 0; i < sizeof(buf); i++) {
            put(buf + i, 1, NULL, 0);
        }

        return;

    case WHOLE_TWICE:
    case WHOLE_AFTER:
        good(SBX_F_ACCEPTED, NULL, 0);
        good(SBX_F_END, &end, sizeof(end));
        good(SBX_F_END, &end, sizeof(end));

        for (i = 0; whole == WHOLE_AFTER && i < 16; i++) {
            good(SBX_F_STDOUT, bytes, sizeof(bytes));
        }

        return;

    case WHOLE_ACCEPTED:
        for (i = 0; i < 5000; i++) {
            good(SBX_F_ACCEPTED, NULL, 0);
        }

        return;

    case WHOLE_OUTPUT:
        begin_well(op);

        for (i = 0; i < 200; i++) {
            good(SBX_F_STDOUT, bytes, sizeof(bytes));
        }

        return;

    case WHOLE_ENTRIES:
        good(SBX_F_ACCEPTED, NULL, 0);

        for (i = 0; i < 5000; i++) {
            entry(SBX_F_ENTRY, i, NULL, 0);
        }

        return;

    case WHOLE_SHUT:
        good(SBX_F_ACCEPTED, NULL, 0);
        (void) shutdown(call, SHUT_WR);
        drain(1);
        return;

    default:
        break;
    }

    if (whole >= WHOLE_FILE_GOOD) {
        attack_file(whole);

    } else if (whole >= WHOLE_SOCKET_TCP) {
        attack_socket(whole);

    } else {
        attack_error(whole);
    }
}


/*
 * ---- as a session's init -------------------------------------------------
 */

static unsigned  next;
static unsigned  step;
static unsigned  now;
static char      request[SBX_REQUEST_ID + 8];


static void
record(uint32_t type, uint32_t command)
{
    sbx_record_t  r;

    memset(&r, 0, sizeof(r));
    r.magic = SBX_WIRE_MAGIC;
    r.type = type;
    r.command = command;
    (void) send(CONTROL, &r, sizeof(r), MSG_NOSIGNAL);
}


/* 1: the command was one for us, and is answered. */

static int
order(void)
{
    char           buf[4096];
    size_t         n, want;
    ssize_t        got;
    char          *end;
    const char    *p, *rogue;
    sbx_f_exec_t   exec;
    sbx_f_exit_t   over;
    struct pollfd  pfd;

    pfd.fd = call;
    pfd.events = POLLIN;
    n = 0;
    want = sizeof(sbx_frame_t) + sizeof(exec);

    while (n < want && want < sizeof(buf)
           && poll(&pfd, 1, PATIENCE * 1000) == 1)
    {
        got = recv(call, buf + n, sizeof(buf) - n, MSG_DONTWAIT);

        if (got <= 0) {
            return 0;
        }

        n += (size_t) got;

        /* the strings follow in a frame of their own */

        if (n >= sizeof(sbx_frame_t) + sizeof(exec)) {
            memcpy(&exec, buf + sizeof(sbx_frame_t), sizeof(exec));
            want = 2 * sizeof(sbx_frame_t) + sizeof(exec)
                   + exec.strings_size;
        }
    }

    rogue = memmem(buf, n, "rogue", 6);

    if (rogue == NULL) {
        return 0;
    }

    p = rogue + 6;

    if (strcmp(p, "from") == 0) {
        next = (unsigned) strtoul(p + 5, &end, 10);
        step = (unsigned) strtoul(end, NULL, 10);
    }

    memset(&over, 0, sizeof(over));
    over.pid = (int32_t) next;
    over.exit_code = (int32_t) (next & 0x7f);
    over.reason = SBX_REASON_EXITED;
    good(SBX_F_ACCEPTED, NULL, 0);
    (void) snprintf(buf, sizeof(buf), "%u", next);
    good(SBX_F_STDOUT, buf, strlen(buf));
    over.stdout_bytes = strlen(buf);
    good(SBX_F_EXIT, &over, sizeof(over));

    return 1;
}


static void
serve(const sbx_task_t *task)
{
    const attack_t  *a;

    if (task->op == SBX_OP_EXEC && order()) {
        return;
    }

    if (strcmp(task->request_id, request) != 0) {
        (void) strcpy(request, task->request_id);
        now = next;
        next += step;
    }

    if (now >= nattacks || fork() != 0) {
        return;
    }

    (void) close(CONTROL);
    (void) alarm(2 * PATIENCE);
    a = &attacks[now];

    if (a->whole == WHOLE_MAX) {
        attack_frame(a, task->op);

    } else {
        attack_whole(a->whole, task->op);
    }

    /* what is bad the worker is to close by itself */

    drain(a->bad);
    _exit(0);
}


static void
obey(const sbx_task_t *task, int fd)
{
    switch ((sbx_op_t) task->op) {

    case SBX_OP_CUT:
        record(SBX_R_CUT, 0);
        break;

    case SBX_OP_BUSY:
        record(SBX_R_BUSY, 1);
        break;

    case SBX_OP_WARM:
        record(SBX_R_WARM, task->token);
        break;

    case SBX_OP_EXEC:
    case SBX_OP_FILE:
    case SBX_OP_PROCESS:
    case SBX_OP_PORT:
    case SBX_OP_CANCEL:
    case SBX_OP_CODE:
    case SBX_OP_LOG:
    case SBX_OP_ENV:
        call = fd;
        serve(task);

        if (task->op == SBX_OP_EXEC) {
            record(SBX_R_COMMAND_OVER, task->command);
        }

        break;

    default:
        break;
    }
}


int
main(int argc, char **argv)
{
    int              fds[SBX_TASK_FDS_MAX + 8];
    char             space[CMSG_SPACE(sizeof(fds))];
    size_t           n, i;
    ssize_t          got;
    sbx_task_t       task;
    struct iovec     iov;
    struct pollfd    pfd;
    struct msghdr    msg;
    struct cmsghdr  *cmsg;

    attack_table();

    if (argc > 1 && strcmp(argv[1], "--list") == 0) {
        attack_list();
        return 0;
    }

    (void) signal(SIGCHLD, SIG_IGN);
    record(SBX_R_READY, 0);

    for ( ;; ) {
        memset(&msg, 0, sizeof(msg));
        iov.iov_base = &task;
        iov.iov_len = sizeof(task);
        msg.msg_iov = &iov;
        msg.msg_iovlen = 1;
        msg.msg_control = space;
        msg.msg_controllen = sizeof(space);

        pfd.fd = CONTROL;
        pfd.events = POLLIN;
        (void) poll(&pfd, 1, -1);
        got = recvmsg(CONTROL, &msg, MSG_DONTWAIT);

        if (got <= 0) {
            if (got == -1 && (errno == EAGAIN || errno == EINTR)) {
                continue;
            }

            return 0;
        }

        cmsg = CMSG_FIRSTHDR(&msg);
        n = cmsg != NULL ? (cmsg->cmsg_len - CMSG_LEN(0)) / sizeof(int) : 0;

        if (n != 0) {
            memcpy(fds, CMSG_DATA(cmsg), n * sizeof(int));
        }

        obey(&task, n != 0 ? fds[0] : -1);

        for (i = 0; i < n; i++) {
            (void) close(fds[i]);
        }
    }
}
