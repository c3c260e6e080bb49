/*
 * The link of a call to a port: what it is, when it comes, and who has it.
 */

#include "broker_test.h"

#include <dirent.h>
#include <sys/resource.h>


#define PORT         8080
#define IN_USE       200          /* calls on one socket */


typedef struct {
    int             fd;           /* the worker's end */
    sbx_wire_t      wire;
    uint8_t         buf[sizeof(sbx_frame_t) + SBX_FRAME_MAX];
    sbx_frame_t     frame;        /* the last one */
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


/* ---- tests -------------------------------------------------------------- */

static void
test_link(test_broker_t *t, const char *id)
{
    int        fd, none, type, domain, size;
    char       byte;
    pid_t      broker, init;
    unsigned   before, has;
    socklen_t  len;

    broker = test_pid(t, "broker.pid");
    init = first_process(test_pid(t, "keeper.pid"));
    before = descriptors(broker, -1, &has);

    /* without init: it has no say in it */

    ok(init > 0 && kill(init, SIGSTOP) == 0, "init stands still");
    begin(t, id);
    is_int(next(&fd), SBX_F_SOCKET, "a socket comes all the same");

    type = 0;
    domain = 0;
    size = 0;
    len = sizeof(int);
    (void) getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &len);
    (void) getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &len);
    (void) getsockopt(fd, SOL_SOCKET, SO_SNDBUF, &size, &len);
    ok(type == SOCK_STREAM && domain == AF_UNIX
       && (fcntl(fd, F_GETFL) & O_NONBLOCK) != 0,
       "a stream of this machine that does not block");
    ok(size <= 512 * 1024, "with a buffer that is bounded");
    ok(recv(fd, &byte, 1, MSG_DONTWAIT) == -1 && errno == EAGAIN,
       "its other end is open");
    none = -1;
    ok(poll(&(struct pollfd) { call.fd, POLLIN, 0 }, 1, 0) == 0,
       "nothing else is said meanwhile");
    (void) kill(init, SIGCONT);
    is_int(next(&none), SBX_F_ERROR, "that is init's to say");
    ok(none == -1 && call.error.err == ECONNREFUSED,
       "which finds nobody that listens");
    (void) descriptors(init, fd, &has);
    is_int(has, 0, "init has no such socket");
    (void) descriptors(broker, fd, &has);
    is_int(has, 0, "nor does the broker keep it");
    ok(all_at_home(broker), "the broker is where it was");
    (void) close(call.fd);
    ok(until_descriptors(broker, before), "and as many descriptors are open");
    (void) poll(&(struct pollfd) { fd, POLLIN, 0 }, 1, TEST_WAIT);
    is_int((int) recv(fd, &byte, 1, MSG_DONTWAIT), 0,
           "the other end goes with the call");
    (void) close(fd);
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


/* One for the call, and so many for a link. */

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

    for (n = 0; n < 2; n++) {

        /* what the last call had is free by then, and not later */

        (void) until_descriptors(broker, before);
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

    is_int(refused, 2, "a call without its link is refused, for a while");
    ok(all_at_home(broker), "the broker is where it was");
    ok(until_descriptors(broker, before), "and as many descriptors are open");
    ok(test_logged(t, "port has no link"), "the log tells of it");

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

    test_link(&t, id);
    test_descriptors(&t, id);
    test_in_use(&t, id);
    ok(test_destroy(&t, id), "the session ends");
    test_refused(&t);
    test_close(&t);

    return done_testing();
}
