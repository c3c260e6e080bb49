/*
 * The sockets of a call to a port: whose network they are of, when they come,
 * and who has them.
 */

#include "broker_test.h"
#include "in_child.h"
#include "isolate.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <netinet/in.h>
#include <sched.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>


#define PORT         8080
#define IN_USE       200          /* calls on one socket */

#ifndef IP_LOCAL_PORT_RANGE
#define IP_LOCAL_PORT_RANGE  51
#endif

#ifndef SO_NETNS_COOKIE
#define SO_NETNS_COOKIE  71
#endif


typedef struct {
    int             fd;           /* the worker's end */
    sbx_wire_t      wire;
    uint8_t         buf[sizeof(sbx_frame_t) + SBX_FRAME_MAX];
    sbx_frame_t     frame;        /* the last one */
    sbx_f_socket_t  socket;
    sbx_f_error_t   error;
} port_call_t;


static port_call_t  call;


/* ---- calls -------------------------------------------------------------- */

static void
begin(test_broker_t *t, const char *id)
{
    sbx_call_t    head;
    sbx_f_port_t  ask;

    memset(&ask, 0, sizeof(ask));
    ask.port = PORT;
    test_head(&head, SBX_OP_PORT, id, "", "", 0);
    call.fd = test_send(t->control, &head, NULL, 0, -1);
    sbx_wire_init(&call.wire, call.buf, sizeof(call.buf));
    test_frame(call.fd, SBX_F_PORT, &ask, sizeof(ask));
}


/* The next frame's type, 0 at the end; *fd is what has come with it, or -1. */

static int
next(int *fd)
{
    int             rc, fds[SBX_WIRE_FDS_ALL];
    ssize_t         n;
    unsigned        nfds;
    struct pollfd   pfd;
    const uint8_t  *p;

    *fd = -1;
    pfd.fd = call.fd;
    pfd.events = POLLIN;

    while ((rc = sbx_wire_next(&call.wire, &call.frame, &p)) == 0) {
        if (poll(&pfd, 1, TEST_WAIT) != 1) {
            printf("# no frame in time\n");
            return 0;
        }

        n = sbx_wire_recv_all(call.fd, call.buf + call.wire.end,
                              call.wire.size - call.wire.end, fds, &nfds,
                              MSG_DONTWAIT);

        if (nfds == 1 && *fd == -1) {
            *fd = fds[0];
            nfds = 0;
        }

        while (nfds != 0) {
            (void) close(fds[--nfds]);
        }

        if (n <= 0) {
            return 0;
        }

        call.wire.end += (size_t) n;
    }

    if (rc == -1) {
        return -1;
    }

    if (call.frame.type == SBX_F_SOCKET
        && call.frame.length == sizeof(sbx_f_socket_t))
    {
        memcpy(&call.socket, p, sizeof(sbx_f_socket_t));
    }

    if (call.frame.type == SBX_F_ERROR) {
        memcpy(&call.error, p, sizeof(sbx_f_error_t));
    }

    return call.frame.type;
}


/* ---- processes ---------------------------------------------------------- */

/* 1 if the thread is in the network of this process. */

static int
at_home(pid_t pid, const char *thread)
{
    char     path[512], here[64], there[64];
    ssize_t  n;

    n = readlink("/proc/self/ns/net", here, sizeof(here) - 1);
    here[n > 0 ? n : 0] = '\0';
    (void) snprintf(path, sizeof(path), "/proc/%d/task/%s/ns/net", (int) pid,
                    thread);
    n = readlink(path, there, sizeof(there) - 1);
    there[n > 0 ? n : 0] = '\0';

    return strcmp(here, there) == 0;
}


/* The first process of the only session: the keeper's child that is
 * elsewhere. */

static pid_t
first_process(pid_t keeper)
{
    int    pid, found;
    char   path[64], name[16];
    FILE  *list;

    found = -1;
    (void) snprintf(path, sizeof(path), "/proc/%d/task/%d/children",
                    (int) keeper, (int) keeper);
    list = fopen(path, "re");

    if (list == NULL) {
        return -1;
    }

    while (fscanf(list, "%d", &pid) == 1) {
        (void) snprintf(name, sizeof(name), "%d", pid);

        if (!at_home(pid, name)) {
            found = pid;
        }
    }

    (void) fclose(list);

    return found;
}


/* How many descriptors it has, and whether one is the socket of fd. */

static unsigned
descriptors(pid_t pid, int fd, unsigned *has)
{
    char            path[512], link[64], own[64];
    DIR            *dir;
    ssize_t         n;
    unsigned        count;
    struct stat     st;
    struct dirent  *entry;

    count = 0;
    *has = 0;
    own[0] = '\0';

    if (fd != -1 && fstat(fd, &st) == 0) {
        (void) snprintf(own, sizeof(own), "socket:[%llu]",
                        (unsigned long long) st.st_ino);
    }

    (void) snprintf(path, sizeof(path), "/proc/%d/fd", (int) pid);
    dir = opendir(path);

    while (dir != NULL && (entry = readdir(dir)) != NULL) {
        (void) snprintf(path, sizeof(path), "/proc/%d/fd/%s", (int) pid,
                        entry->d_name);
        n = readlink(path, link, sizeof(link) - 1);

        if (n > 0) {
            link[n] = '\0';
            count++;
            *has += own[0] != '\0' && strcmp(link, own) == 0;
        }
    }

    if (dir != NULL) {
        (void) closedir(dir);
    }

    return count;
}


static int
until_descriptors(pid_t pid, unsigned count)
{
    int       i;
    unsigned  has;

    for (i = 0; i < TEST_WAIT / 5; i++) {
        if (descriptors(pid, -1, &has) <= count) {
            return 1;
        }

        (void) poll(NULL, 0, 5);
    }

    return 0;
}


static int
all_at_home(pid_t pid)
{
    int             all;
    char            path[64];
    DIR            *dir;
    struct dirent  *entry;

    all = 1;
    (void) snprintf(path, sizeof(path), "/proc/%d/task", (int) pid);
    dir = opendir(path);

    if (dir == NULL) {
        return 0;
    }

    while ((entry = readdir(dir)) != NULL) {
        all &= entry->d_name[0] == '.' || at_home(pid, entry->d_name);
    }

    (void) closedir(dir);

    return all;
}


/* ---- networks ----------------------------------------------------------- */

static socklen_t
address(struct sockaddr_in6 *a, int family, int port)
{
    struct sockaddr_in  in;

    memset(a, 0, sizeof(*a));

    if (family == AF_INET6) {
        a->sin6_family = AF_INET6;
        a->sin6_addr = in6addr_loopback;
        a->sin6_port = htons((uint16_t) port);
        return sizeof(*a);
    }

    memset(&in, 0, sizeof(in));
    in.sin_family = AF_INET;
    in.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    in.sin_port = htons((uint16_t) port);
    memcpy(a, &in, sizeof(in));

    return sizeof(in);
}


/* In the network of a process, or (-1) in this one's: what listens there. */

static int
listener(pid_t pid, int family, int port, uint64_t *cookie)
{
    int                  fd, home, there;
    char                 path[64];
    socklen_t            len;
    struct sockaddr_in6  a;

    home = open("/proc/self/ns/net", O_RDONLY|O_CLOEXEC);

    if (pid != -1) {
        (void) snprintf(path, sizeof(path), "/proc/%d/ns/net", (int) pid);
        there = open(path, O_RDONLY|O_CLOEXEC);

        if (there == -1 || setns(there, CLONE_NEWNET) == -1) {
            test_die("setns");
        }

        (void) close(there);
    }

    fd = socket(family, SOCK_STREAM|SOCK_CLOEXEC|SOCK_NONBLOCK, 0);
    len = address(&a, family, port);

    if (fd != -1 && (bind(fd, (struct sockaddr *) &a, len) == -1
                     || listen(fd, 8) == -1))
    {
        (void) close(fd);
        fd = -1;
    }

    len = sizeof(*cookie);

    if (fd != -1) {
        (void) getsockopt(fd, SOL_SOCKET, SO_NETNS_COOKIE, cookie, &len);
    }

    if (setns(home, CLONE_NEWNET) == -1) {
        test_die("setns");
    }

    (void) close(home);

    return fd;
}


/* Connects; 1 if it is the one inside that is asked, and the host's is not. */

static int
reaches(int fd, int family, int inside, int host)
{
    int                  got, rc;
    socklen_t            len;
    struct pollfd        pfd;
    struct sockaddr_in6  a;

    len = address(&a, family, PORT);
    rc = connect(fd, (struct sockaddr *) &a, len);

    if (rc == -1 && errno != EINPROGRESS) {
        return 0;
    }

    pfd.fd = inside;
    pfd.events = POLLIN;

    if (poll(&pfd, 1, TEST_WAIT) != 1) {
        return 0;
    }

    got = accept4(inside, NULL, NULL, SOCK_CLOEXEC);

    if (got == -1) {
        return 0;
    }

    (void) close(got);

    if (host == -1) {
        return 1;
    }

    got = accept4(host, NULL, NULL, SOCK_CLOEXEC);

    if (got != -1) {
        (void) close(got);
        return 0;
    }

    return errno == EAGAIN;
}


/* Of how many ports connect() may try each, and by that how long it takes. */

static int
choice(int fd)
{
    uint32_t             range;
    socklen_t            len;
    struct sockaddr_in6  a;

    len = sizeof(range);

    if (getsockopt(fd, SOL_IP, IP_LOCAL_PORT_RANGE, &range, &len) == 0
        && range != 0)
    {
        return (int) (range >> 16) - (int) (range & 0xffff) + 1;
    }

    len = sizeof(a);
    memset(&a, 0, sizeof(a));

    return getsockname(fd, (struct sockaddr *) &a, &len) == 0
           && a.sin6_port != 0
           ? 1 : 1 << 16;
}


/* ---- tests -------------------------------------------------------------- */

static void
test_sockets(test_broker_t *t, const char *id)
{
    int                  fds[2], i, n, none, types[2], sizes[2];
    int                  inside[2], host[2];
    pid_t                broker, init;
    unsigned             before, has;
    uint64_t             there, here, of[2];
    socklen_t            len;
    struct sockaddr_in6  peer;

    static const int  families[] = { AF_INET, AF_INET6 };

    broker = test_pid(t, "broker.pid");
    init = first_process(test_pid(t, "keeper.pid"));
    there = 0;
    here = 0;

    /* the port may be another program's already, here; and there may be no
     * IPv6, or none that is in use */

    none = socket(AF_INET6, SOCK_STREAM|SOCK_CLOEXEC, 0);
    n = none != -1 ? 2 : 1;
    (void) close(none);

    for (i = 0; i < 2; i++) {
        host[i] = listener(-1, families[i], PORT, &here);
        inside[i] = listener(init, families[i], PORT, &there);
    }

    if (!ok(inside[0] != -1, "who listens inside")) {
        return;
    }

    before = descriptors(broker, -1, &has);

    /* without init: it has no say in it */

    ok(init > 0 && kill(init, SIGSTOP) == 0, "init stands still");
    begin(t, id);

    for (i = 0; i < n; i++) {
        is_int(next(&fds[i]), SBX_F_SOCKET, "a socket comes all the same");
        ok(fds[i] != -1 && call.socket.left == (uint32_t) (n - i - 1)
           && call.socket.family == (uint32_t) families[i],
           "of a family, and how many follow");

        len = sizeof(of[i]);
        of[i] = 0;
        (void) getsockopt(fds[i], SOL_SOCKET, SO_NETNS_COOKIE, &of[i], &len);
        len = sizeof(types[i]);
        (void) getsockopt(fds[i], SOL_SOCKET, SO_TYPE, &types[i], &len);
        len = sizeof(sizes[i]);
        (void) getsockopt(fds[i], SOL_SOCKET, SO_RCVBUF, &sizes[i], &len);
        len = sizeof(peer);
        ok(types[i] == SOCK_STREAM
           && (fcntl(fds[i], F_GETFL) & O_NONBLOCK) != 0
           && getpeername(fds[i], (struct sockaddr *) &peer, &len) == -1
           && errno == ENOTCONN,
           "a stream that does not block and is not connected");
        ok(sizes[i] <= 512 * 1024, "with buffers that are bounded");
        ok(choice(fds[i]) <= 64, "that looks for a port among few (%d)",
           choice(fds[i]));
        ok(of[i] == there && (here == 0 || of[i] != here),
           "in the session's network");
    }

    none = -1;
    ok(poll(&(struct pollfd) { call.fd, POLLIN, 0 }, 1, 0) == 0,
       "nothing else is said meanwhile");
    (void) kill(init, SIGCONT);
    is_int(next(&none), SBX_F_ACCEPTED, "that is init's to say");
    is_int(none, -1, "without a descriptor");

    for (i = 0; i < n; i++) {
        (void) descriptors(init, fds[i], &has);
        is_int(has, 0, "init has no such socket");
        (void) descriptors(broker, fds[i], &has);
        is_int(has, 0, "nor does the broker keep it");
        ok(inside[i] == -1
           || reaches(fds[i], families[i], inside[i], host[i]),
           "it leads to what listens inside");
    }

    ok(all_at_home(broker), "the broker is where it was");
    (void) close(call.fd);
    ok(until_descriptors(broker, before), "and as many descriptors are open");

    for (i = 0; i < n; i++) {
        (void) close(fds[i]);

        if (inside[i] != -1) {
            (void) close(inside[i]);
        }

        if (host[i] != -1) {
            (void) close(host[i]);
        }
    }
}


/* A network of its own, and a kernel that knows no ranges. */

static int
on_older(void)
{
    int          i, fds[SBX_NET_FAMILIES], netns;
    sbx_error_t  e;

    struct sock_filter  filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_setsockopt, 0, 3),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS,
                 offsetof(struct seccomp_data, args[2])),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, IP_LOCAL_PORT_RANGE, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENOPROTOOPT),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)
    };
    struct sock_fprog   prog = { sbx_nelts(filter), filter };

    if (unshare(CLONE_NEWNET) == -1
        || prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == -1
        || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &prog) == -1)
    {
        return 1;
    }

    netns = open("/proc/self/ns/net", O_RDONLY|O_CLOEXEC);

    if (netns == -1 || sbx_net_port_sockets(netns, fds, &e) != 0) {
        return 2;
    }

    for (i = 0; i < SBX_NET_FAMILIES; i++) {
        if (fds[i] != -1 && choice(fds[i]) != 1) {
            return 3;
        }
    }

    return 0;
}


/* The n-th lowest number that the broker has free. */

static rlim_t
free_number(pid_t broker, unsigned n)
{
    int          fd;
    char         path[64];
    struct stat  st;

    for (fd = 0; fd < 1 << 20; fd++) {
        (void) snprintf(path, sizeof(path), "/proc/%d/fd/%d", (int) broker,
                        fd);

        if (lstat(path, &st) == -1 && n-- == 0) {
            break;
        }
    }

    return (rlim_t) fd;
}


/* One for the call, one for the way back, and so many for sockets. */

static void
test_descriptors(test_broker_t *t, const char *id)
{
    int            fd, type;
    pid_t          broker;
    unsigned       n, before, has, refused;
    struct rlimit  few, usual;

    broker = test_pid(t, "broker.pid");
    before = descriptors(broker, -1, &has);
    (void) prlimit(broker, RLIMIT_NOFILE, NULL, &usual);
    few = usual;
    refused = 0;

    for (n = 0; n < 3; n++) {
        few.rlim_cur = free_number(broker, 1 + n);
        (void) prlimit(broker, RLIMIT_NOFILE, &few, NULL);
        begin(t, id);
        type = next(&fd);
        (void) prlimit(broker, RLIMIT_NOFILE, &usual, NULL);
        memset(&call.error.text[sizeof(call.error.text) - 1], 0, 1);
        refused += type == SBX_F_ERROR
                   && call.error.code == SBX_E_UNAVAILABLE
                   && call.error.err == EMFILE
                   && call.error.retry_after == 1;
        (void) close(call.fd);

        if (fd != -1) {
            (void) close(fd);
        }
    }

    is_int(refused, 3, "a call without its sockets is refused, for a while");
    ok(all_at_home(broker), "the broker is where it was");
    ok(until_descriptors(broker, before), "and as many descriptors are open");
    ok(test_logged(t, "port has no socket"), "the log tells of it");

    begin(t, id);
    is_int(next(&fd), SBX_F_SOCKET, "with descriptors it is not");
    (void) close(fd);
    (void) close(call.fd);
}


/* Sockets that nobody takes out of a call: no more than a few. */

static void
test_in_use(test_broker_t *t, const char *id)
{
    int         fd, i, pair[2], type;
    unsigned    sockets, refused;
    sbx_call_t  head;

    if (socketpair(AF_UNIX, SOCK_STREAM|SOCK_CLOEXEC, 0, pair) == -1) {
        test_die("socketpair");
    }

    test_head(&head, SBX_OP_PORT, id, "", "", 0);

    for (i = 0; i < IN_USE; i++) {
        while (sbx_wire_send(t->control, &head, sizeof(head), &pair[1], 1, 0)
               == -1)
        {
            if (errno != EAGAIN) {
                test_die("a call");
            }

            (void) poll(NULL, 0, 5);
        }
    }

    (void) close(pair[1]);

    /* calls are taken in their order: all of them have been by now */

    ok(test_alive(t, id), "the broker goes on");
    call.fd = pair[0];
    sbx_wire_init(&call.wire, call.buf, sizeof(call.buf));
    sockets = 0;
    refused = 0;

    for ( ;; ) {
        type = next(&fd);

        if (fd != -1) {
            (void) close(fd);
        }

        if (type != SBX_F_SOCKET && type != SBX_F_ERROR) {
            break;
        }

        sockets += type == SBX_F_SOCKET;
        refused += type == SBX_F_ERROR && call.error.code == SBX_E_INVALID;

        if (refused != 0 && sockets != 0
            && poll(&(struct pollfd) { call.fd, POLLIN, 0 }, 1, 0) == 0)
        {
            break;
        }
    }

    ok(sockets != 0 && sockets <= 40 && refused != 0,
       "one call does not collect sockets (%u)", sockets);
    (void) close(call.fd);
}


static void
test_refused(test_broker_t *t)
{
    int   fd;
    char  id[SBX_ID_MAX + 8];

    test_create(t, "acme", id);
    begin(t, id);
    ok(next(&fd) == SBX_F_ERROR && call.error.code == SBX_E_CAPABILITY
       && fd == -1, "a session without the capability has no sockets");
    (void) close(call.fd);
    ok(test_destroy(t, id), "it ends");

    begin(t, id);
    ok(next(&fd) == SBX_F_ERROR && fd == -1, "nor has one that has ended");
    (void) close(call.fd);
}


int
main(void)
{
    char            id[SBX_ID_MAX + 8];
    sbx_create_t    create;
    test_answer_t  *a;
    test_broker_t   t;

    if (geteuid() != 0) {
        return skip_all("needs root");
    }

    test_open(&t, "port");

    if (!ok(test_start(&t) == 0, "a broker starts")) {
        printf("# %s\n", t.error.text);
        return done_testing();
    }

    test_create_body(&create);
    create.capabilities = SBX_CAP_SHELL|SBX_CAP_PORTS;
    a = test_answer(test_create_send(t.control, "acme", &create, -1));
    ok(a->last == SBX_F_END, "a session with ports");
    (void) strcpy(id, a->session.id);

    test_sockets(&t, id);
    test_descriptors(&t, id);
    test_in_use(&t, id);
    ok(test_destroy(&t, id), "the session ends");
    test_refused(&t);
    test_close(&t);
    is_int(in_child(on_older), 0, "an older kernel's have one port each");

    return done_testing();
}
