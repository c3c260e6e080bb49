/*
 * A worker that is somebody else's by now: descriptors whose closing waits,
 * and a log that leads elsewhere.  The broker waits for none of it.
 */

#include "broker_test.h"

#include <netinet/in.h>


#define LINGER      30        /* seconds */
#define MANY        200       /* descriptors in one message */
#define STRANGER    65534
#define SOON        5000000   /* us; far less than a socket lingers */


static void
find(int *fd, const char *what)
{
    if (*fd == -1) {
        test_die(what);
    }
}


/* The last close() of it waits for a peer that never reads. */

static int
lingering(void)
{
    int                 fd, door, peer, size;
    char                buf[4096];
    socklen_t           len;
    struct linger       wait = { 1, LINGER };
    struct sockaddr_in  addr;

    memset(&addr, 0, sizeof(addr));
    memset(buf, 0, sizeof(buf));
    addr.sin_family = AF_INET;
    addr.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    len = sizeof(addr);
    size = 4096;

    door = socket(AF_INET, SOCK_STREAM|SOCK_CLOEXEC, 0);
    fd = socket(AF_INET, SOCK_STREAM|SOCK_CLOEXEC, 0);
    find(&door, "socket");
    find(&fd, "socket");

    (void) setsockopt(door, SOL_SOCKET, SO_RCVBUF, &size, sizeof(size));

    if (bind(door, (struct sockaddr *) &addr, len) == -1
        || listen(door, 1) == -1
        || getsockname(door, (struct sockaddr *) &addr, &len) == -1
        || connect(fd, (struct sockaddr *) &addr, len) == -1)
    {
        test_die("connect");
    }

    peer = accept(door, NULL, NULL);
    find(&peer, "accept");
    (void) close(door);

    while (send(fd, buf, sizeof(buf), MSG_DONTWAIT) > 0) { /* void */ }

    if (setsockopt(fd, SOL_SOCKET, SO_LINGER, &wait, sizeof(wait)) == -1) {
        test_die("SO_LINGER");
    }

    return fd;
}


/* More descriptors than sbx_wire_send() sends. */

static void
send_fds(int control, const void *buf, size_t size, const int *fds,
    unsigned nfds)
{
    char             space[CMSG_SPACE(MANY * sizeof(int))];
    struct iovec     iov;
    struct msghdr    msg;
    struct cmsghdr  *cmsg;

    memset(space, 0, sizeof(space));
    memset(&msg, 0, sizeof(msg));
    iov.iov_base = (void *) (uintptr_t) buf;
    iov.iov_len = size;
    msg.msg_iov = &iov;
    msg.msg_iovlen = 1;
    msg.msg_control = space;
    msg.msg_controllen = CMSG_SPACE(nfds * sizeof(int));

    cmsg = CMSG_FIRSTHDR(&msg);
    cmsg->cmsg_level = SOL_SOCKET;
    cmsg->cmsg_type = SCM_RIGHTS;
    cmsg->cmsg_len = CMSG_LEN(nfds * sizeof(int));
    memcpy(CMSG_DATA(cmsg), fds, nfds * sizeof(int));

    if (sendmsg(control, &msg, 0) == -1) {
        test_die("sendmsg");
    }
}


/* The broker is stopped meanwhile, so that it is the last to close. */

static void
attack(test_broker_t *t, const void *buf, size_t size, int *fds,
    unsigned nfds, const char *name)
{
    pid_t           broker;
    unsigned        i;
    uint64_t        start;
    test_answer_t  *a;

    broker = test_pid(t, "broker.pid");
    (void) kill(broker, SIGSTOP);

    send_fds(t->control, buf, size, fds, nfds);

    for (i = 0; i < nfds; i++) {
        if (fds[i] > STDERR_FILENO) {
            (void) close(fds[i]);
        }
    }

    (void) kill(broker, SIGCONT);

    start = sbx_now_us();
    a = test_answer(test_call(t->control, SBX_OP_HEALTH, "", ""));

    ok(a->health.ok == 1 && sbx_now_us() - start < SOON, "%s", name);
}


static void
test_closing(test_broker_t *t)
{
    int         fds[MANY], pair[2], inner;
    size_t      i;
    sbx_call_t  head;

    test_head(&head, SBX_OP_HEALTH, "", "", "", 0);

    fds[0] = lingering();
    attack(t, &head, sizeof(head), fds, 1, "a lingering socket for a call's");

    if (socketpair(AF_UNIX, SOCK_STREAM|SOCK_CLOEXEC, 0, pair) == -1) {
        test_die("socketpair");
    }

    inner = lingering();
    send_fds(pair[0], "x", 1, &inner, 1);
    (void) close(inner);
    fds[0] = pair[1];
    attack(t, &head, sizeof(head), fds, 1, "one in the queue of a call's");
    (void) close(pair[0]);

    for (i = 0; i < MANY; i++) {
        fds[i] = STDOUT_FILENO;
    }

    fds[MANY - 1] = lingering();
    attack(t, &head, sizeof(head), fds, MANY, "one among very many");

    fds[0] = lingering();
    attack(t, "", 0, fds, 1,
           "one that comes with nothing, which is no end either");
}


/* Whether the broker writes to path when it has something to say. */

static int
written(test_broker_t *t, const char *path)
{
    int          i, pair[2];
    sbx_call_t   head;
    struct stat  st;

    test_head(&head, SBX_OP_HEALTH, "", "", "", 0);
    head.magic = 0;

    /* it looks for a new log once a second, when it writes */

    for (i = 0; i < 30; i++) {
        if (socketpair(AF_UNIX, SOCK_STREAM|SOCK_CLOEXEC, 0, pair) == -1) {
            test_die("socketpair");
        }

        (void) sbx_wire_send(t->control, &head, sizeof(head), &pair[1], 1, 0);
        (void) close(pair[1]);
        (void) test_answer(pair[0]);

        if (path != NULL && stat(path, &st) == 0 && st.st_size != 0) {
            return 1;
        }

        (void) poll(NULL, 0, 50);
    }

    return 0;
}


static void
test_log(test_broker_t *t)
{
    int             fd;
    char            victim[512], old[512];
    test_answer_t  *a;

    (void) snprintf(victim, sizeof(victim), "%s/victim", t->dir);
    (void) snprintf(old, sizeof(old), "%s/old", t->dir);
    fd = open(victim, O_CREAT|O_WRONLY|O_CLOEXEC, 0600);
    find(&fd, "victim");
    (void) close(fd);

    if (chown(t->dir, STRANGER, STRANGER) == -1 || rename(t->log, old) == -1
        || symlink(victim, t->log) == -1)
    {
        test_die("log");
    }

    ok(!written(t, victim), "no link to elsewhere is followed");

    (void) unlink(t->log);

    if (link(victim, t->log) == -1) {
        test_die("link");
    }

    ok(!written(t, victim), "nor a second name");

    (void) unlink(t->log);

    if (mkfifo(t->log, 0600) == -1) {
        test_die("mkfifo");
    }

    (void) written(t, NULL);
    a = test_answer(test_call(t->control, SBX_OP_HEALTH, "", ""));
    ok(a->health.ok == 1, "a FIFO in its place holds nobody up");

    (void) unlink(t->log);
    fd = open(t->log, O_CREAT|O_WRONLY|O_CLOEXEC, 0600);
    find(&fd, "log");
    (void) close(fd);
    ok(written(t, t->log), "a new file gets the lines");
}


int
main(void)
{
    test_broker_t  t;

    if (geteuid() != 0) {
        return skip_all("needs root");
    }

    test_open(&t, "hostile");

    if (!ok(test_start(&t) == 0, "a broker starts")) {
        printf("# %s\n", t.error.text);
        return done_testing();
    }

    test_closing(&t);
    test_log(&t);
    test_close(&t);

    return done_testing();
}
