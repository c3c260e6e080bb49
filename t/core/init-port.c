/*
 * Calls to ports: what init connects to inside and what it refuses, and that
 * its link says what the program does, and says when that is all.
 */

#include "init_test.h"

#include <dirent.h>


#define LARGE  (8 * 1024 * 1024)


static init_session_t  s;
static init_result_t   r;


/* The frame's type, 0 at the end; *fd is what came with it, or -1. */

static int
next(init_call_t *call, int *fd, sbx_f_error_t *error)
{
    sbx_frame_t     frame;
    const uint8_t  *p;

    *fd = -1;

    if (init_next(call, &frame, &p, fd, INIT_WAIT) != 1) {
        return 0;
    }

    if (frame.type == SBX_F_ERROR && error != NULL) {
        memcpy(error, p, sizeof(sbx_f_error_t));
    }

    return frame.type;
}


/* A call and our end of its link. */

static void
begin(init_call_t *call, int *link)
{
    int  pair[2];

    if (socketpair(AF_UNIX, SOCK_STREAM|SOCK_CLOEXEC, 0, pair) == -1) {
        init_die("socketpair");
    }

    init_call(&s, SBX_OP_PORT, NULL, &pair[1], 1, call);
    (void) close(pair[1]);
    *link = pair[0];
}


static void
ask(init_call_t *call, uint32_t port, int *link)
{
    sbx_f_port_t  p;

    memset(&p, 0, sizeof(p));
    p.port = port;
    begin(call, link);
    init_send(call->fd, SBX_F_PORT, &p, sizeof(p));
}


static void
hang_up(init_call_t *call, int link)
{
    (void) close(link);
    init_hang_up(call);
}


/* A program; until it listens. */

static void
listen_inside(const char *family, const char *address, int port,
    const char *then)
{
    char  script[1024];

    (void) snprintf(script, sizeof(script),
        "python3 -c 'import socket, struct, time\n"
        "s = socket.socket(socket.%s)\n"
        "s.bind((\"%s\", %d))\n"
        "%s' > log%d 2>&1 &\n", family, address, port, then, port);
    init_shell(&s, script, &r);
    (void) snprintf(script, sizeof(script),
        "grep -q ':%04X .* 0A ' /proc/net/tcp /proc/net/tcp6 && echo yes",
        (unsigned) port);
    ok(init_until(&s, script), "%s listens on port %d", address, port);
}


/* How much comes over the link until its end, or -1: that was not in time. */

static long
all_of(int link, char *first, size_t size)
{
    char           buf[65536];
    long           sum;
    ssize_t        n;
    struct pollfd  pfd;

    sum = 0;
    pfd.fd = link;
    pfd.events = POLLIN;

    while (poll(&pfd, 1, INIT_WAIT) == 1) {
        n = recv(link, buf, sizeof(buf), 0);

        if (n <= 0) {
            return sum;
        }

        if (sum == 0) {
            memset(first, 0, size);
            memcpy(first, buf, (size_t) n < size ? (size_t) n : size - 1);
        }

        sum += n;
    }

    return -1;
}


/* What init has open: all of it, or (of) those that are sockets. */

static unsigned
descriptors(const char *of)
{
    char            path[512], link[64];
    DIR            *dir;
    ssize_t         n;
    unsigned        count;
    struct dirent  *entry;

    count = 0;
    (void) snprintf(path, sizeof(path), "/proc/%d/fd", (int) s.pid);
    dir = opendir(path);

    while (dir != NULL && (entry = readdir(dir)) != NULL) {
        (void) snprintf(path, sizeof(path), "/proc/%d/fd/%s", (int) s.pid,
                        entry->d_name);
        n = readlink(path, link, sizeof(link) - 1);
        link[n > 0 ? n : 0] = '\0';
        count += n > 0 && strncmp(link, of, strlen(of)) == 0;
    }

    if (dir != NULL) {
        (void) closedir(dir);
    }

    return count;
}


static int
until_descriptors(unsigned count)
{
    int  i;

    for (i = 0; i < INIT_WAIT / 5; i++) {
        if (descriptors("") <= count) {
            return 1;
        }

        (void) usleep(5000);
    }

    return 0;
}


static void
test_connect(void)
{
    int          fd, link;
    char         text[16];
    unsigned     all;
    init_call_t  call;

    static const char  loop[] =
        "s.listen(300)\n"
        "while True:\n"
        "    c = s.accept()[0]\n"
        "    c.sendall(b\"hi\")\n"
        "    c.close()\n";

    listen_inside("AF_INET", "127.0.0.1", 8080, loop);
    listen_inside("AF_INET6", "::1", 8081, loop);

    all = descriptors("");
    ask(&call, 8080, &link);
    is_int(next(&call, &fd, NULL), SBX_F_ACCEPTED, "a program is connected");
    is_int(fd, -1, "without a descriptor");
    is_int(all_of(link, text, sizeof(text)), 2, "what it says comes, ended");
    ok(strcmp(text, "hi") == 0, "as it was said");
    is_int(next(&call, &fd, NULL), SBX_F_END, "and that this was all");
    hang_up(&call, link);
    ok(until_descriptors(all), "nothing of it stays open");

    ask(&call, 8081, &link);
    is_int(next(&call, &fd, NULL), SBX_F_ACCEPTED, "::1 is tried as well");
    is_int(all_of(link, text, sizeof(text)), 2, "and heard");
    hang_up(&call, link);
}


static void
test_refused(void)
{
    int            fd, link, others;
    init_call_t    call, other;
    sbx_f_error_t  error;

    memset(&error, 0, sizeof(error));
    ask(&call, 9, &link);
    is_int(next(&call, &fd, &error), SBX_F_ERROR, "nothing listens");
    ok(error.code == SBX_E_UNAVAILABLE && error.err == ECONNREFUSED,
       "and that is told apart");
    is_int(next(&call, &fd, NULL), 0, "the call is over");
    hang_up(&call, link);

    /* the queue of a listener that accepts nobody */

    listen_inside("AF_INET", "127.0.0.1", 8082,
                  "s.listen(0)\n"
                  "h = [socket.create_connection((\"127.0.0.1\", 8082))]\n"
                  "time.sleep(1000)\n");
    ok(init_until(&s, "test `grep -c ':1F92 ' /proc/net/tcp` -ge 3"
                  " && echo yes"),
       "its queue is full");

    ask(&call, 8082, &link);
    ask(&other, 8080, &others);
    is_int(next(&other, &fd, NULL), SBX_F_ACCEPTED,
           "nobody else waits for it");
    hang_up(&other, others);

    memset(&error, 0, sizeof(error));
    is_int(next(&call, &fd, &error), SBX_F_ERROR, "it has its time");
    ok(error.code == SBX_E_UNAVAILABLE && error.err == ETIMEDOUT,
       "and no more");
    hang_up(&call, link);
}


/* More than all that is on its way holds, there and back. */

static void
test_large(void)
{
    int            fd, link;
    long           back, there;
    char           buf[65536];
    ssize_t        n;
    init_call_t    call;
    struct pollfd  pfd;

    listen_inside("AF_INET", "127.0.0.1", 8083,
                  "s.listen(8)\n"
                  "while True:\n"
                  "    c = s.accept()[0]\n"
                  "    while True:\n"
                  "        b = c.recv(65536)\n"
                  "        if not b: break\n"
                  "        c.sendall(b)\n");
    ask(&call, 8083, &link);
    is_int(next(&call, &fd, NULL), SBX_F_ACCEPTED, "one that says all again");
    (void) fcntl(link, F_SETFL, O_NONBLOCK);
    memset(buf, 'x', sizeof(buf));
    there = 0;
    back = 0;

    while (back < LARGE) {
        pfd.fd = link;
        pfd.events = POLLIN | (there < LARGE ? POLLOUT : 0);

        if (poll(&pfd, 1, INIT_WAIT) != 1) {
            break;
        }

        n = there < LARGE ? send(link, buf, sizeof(buf), MSG_NOSIGNAL) : 0;
        there += n > 0 ? n : 0;
        n = recv(link, buf, sizeof(buf), 0);
        back += n > 0 ? n : 0;

        if (n == 0) {
            break;
        }
    }

    ok(back >= LARGE, "%ld of %ld bytes come back", back, there);

    /* who does not read is waited for: what is held is bounded */

    there = 0;

    for ( ;; ) {
        n = send(link, buf, sizeof(buf), MSG_NOSIGNAL);

        if (n == -1 && (errno != EAGAIN
                        || poll(&(struct pollfd) { link, POLLOUT, 0 }, 1,
                                300)
                           != 1))
        {
            break;
        }

        there += n > 0 ? n : 0;

        if (there > 1L << 30) {
            break;
        }
    }

    ok(there < 64L << 20, "%ld bytes are on their way, and no more", there);
    hang_up(&call, link);
}


/* An end that is none of what was to be said. */

static void
test_cut(void)
{
    int            fd, link;
    char           text[16];
    init_call_t    call;
    sbx_f_error_t  error;

    listen_inside("AF_INET", "127.0.0.1", 8084,
                  "s.listen(8)\n"
                  "while True:\n"
                  "    c = s.accept()[0]\n"
                  "    c.recv(1)\n"
                  "    c.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER,\n"
                  "                 struct.pack(\"ii\", 1, 0))\n"
                  "    c.close()\n");
    ask(&call, 8084, &link);
    is_int(next(&call, &fd, NULL), SBX_F_ACCEPTED, "one that resets");
    (void) send(link, "x", 1, MSG_NOSIGNAL);
    is_int(next(&call, &fd, &error), SBX_F_ERROR, "which is told");
    ok(poll(&(struct pollfd) { link, POLLIN, 0 }, 1, 0) == 0,
       "before the link ends");
    init_hang_up(&call);
    is_int(all_of(link, text, sizeof(text)), 0, "as it does with the call");
    (void) close(link);
}


/* The same where the one who sends to it meets the end first. */

static void
test_cut_sending(void)
{
    int            fd, link;
    char           buf[65536];
    ssize_t        n;
    init_call_t    call;
    sbx_f_error_t  error;
    struct pollfd  pfds[2];

    listen_inside("AF_INET", "127.0.0.1", 8086,
                  "s.listen(8)\n"
                  "c = s.accept()[0]\n"
                  "c.settimeout(0.3)\n"
                  "try:\n"
                  "    while True: c.send(b\"x\" * 65536)\n"
                  "except OSError: pass\n"
                  "print(\"full\", flush=True)\n"
                  "import os\n"
                  "while not os.path.exists(\"go8086\"): time.sleep(0.01)\n"
                  "c.close()\n"
                  "print(\"closed\", flush=True)\n");
    ask(&call, 8086, &link);
    is_int(next(&call, &fd, NULL), SBX_F_ACCEPTED, "one that says much");
    (void) fcntl(link, F_SETFL, O_NONBLOCK);
    memset(buf, 'x', sizeof(buf));

    pfds[0].fd = link;
    pfds[0].events = POLLOUT;

    while (poll(pfds, 1, 300) == 1) {
        (void) send(link, buf, sizeof(buf), MSG_NOSIGNAL);
    }

    ok(init_until(&s, "grep -q full log8086 && touch go8086 && echo yes")
       && init_until(&s, "grep -q closed log8086 && echo yes"),
       "and goes, without having read any of what it is sent");

    pfds[0].events = POLLIN;
    pfds[1].fd = call.fd;
    pfds[1].events = POLLIN;
    n = 1;

    while (n > 0 && poll(pfds, 2, INIT_WAIT) > 0
           && !(pfds[1].revents & POLLIN))
    {
        n = recv(link, buf, sizeof(buf), 0);
    }

    is_int(next(&call, &fd, &error), SBX_F_ERROR, "has cut it off");
    is_int(error.code, SBX_E_UNAVAILABLE, "which is told as that");
    hang_up(&call, link);
}


/* The other side goes: the program has what was said, and an end. */

static void
test_gone(void)
{
    int          fd, link;
    unsigned     all;
    init_call_t  call;

    listen_inside("AF_INET", "127.0.0.1", 8085,
                  "s.listen(8)\n"
                  "while True:\n"
                  "    c = s.accept()[0]\n"
                  "    n = 0\n"
                  "    try:\n"
                  "        while True:\n"
                  "            b = c.recv(65536)\n"
                  "            if not b: break\n"
                  "            n += len(b)\n"
                  "        print(n, flush=True)\n"
                  "    except OSError as e:\n"
                  "        print(e.errno, flush=True)\n");
    all = descriptors("");
    ask(&call, 8085, &link);
    is_int(next(&call, &fd, NULL), SBX_F_ACCEPTED, "one that listens");
    (void) send(link, "0123456789", 10, MSG_NOSIGNAL);
    init_hang_up(&call);
    (void) close(link);
    ok(init_until(&s, "test \"`cat log8085`\" = 10 && echo yes"),
       "has all that was said, and its end");
    ok(until_descriptors(all), "and nothing stays open");
}


static void
test_hostile(void)
{
    int            fd, link;
    size_t         i;
    init_call_t    call;
    sbx_f_port_t   p;
    sbx_f_error_t  error;

    static const uint32_t  ports[] = { 0, 65536, 0x10050, UINT32_MAX };

    for (i = 0; i < sbx_nelts(ports); i++) {
        memset(&error, 0, sizeof(error));
        ask(&call, ports[i], &link);
        ok(next(&call, &fd, &error) == SBX_F_ERROR
           && error.code == SBX_E_INVALID, "port %u is none", ports[i]);
        hang_up(&call, link);
    }

    memset(&p, 0, sizeof(p));
    p.port = 8080;
    begin(&call, &link);
    init_send(call.fd, SBX_F_PORT, &p, sizeof(p) - 1);
    ok(next(&call, &fd, &error) == SBX_F_ERROR
       && error.code == SBX_E_INVALID, "a short frame");
    hang_up(&call, link);

    begin(&call, &link);
    init_send(call.fd, SBX_F_EXEC, &p, sizeof(p));
    ok(next(&call, &fd, &error) == SBX_F_ERROR
       && error.code == SBX_E_INVALID, "another frame");
    hang_up(&call, link);

    ask(&call, 8085, &link);
    is_int(next(&call, &fd, NULL), SBX_F_ACCEPTED, "one that may");
    init_send(call.fd, SBX_F_PORT, &p, sizeof(p));
    ok(next(&call, &fd, NULL) == 0, "what comes after ends it");
    hang_up(&call, link);
}


/* More than there may be, and nothing of them stays. */

static void
test_many(void)
{
    int                  fd, link, refused, type = 0;
    unsigned             i, all;
    init_call_t          call;
    sbx_f_error_t        error;
    static int           links[300];
    static init_call_t  *calls[300];

    refused = 0;
    all = descriptors("");
    memset(&error, 0, sizeof(error));

    for (i = 0; i < sbx_nelts(calls); i++) {
        calls[i] = malloc(sizeof(init_call_t));

        if (calls[i] == NULL) {
            init_die("malloc");
        }

        ask(calls[i], 8080, &links[i]);

        if (next(calls[i], &fd, &error) == SBX_F_ERROR) {
            refused++;
        }
    }

    is_int(refused, 300 - 256, "as many as may be open are");
    ok(error.code == SBX_E_QUOTA && error.limit == 256
       && strcmp(error.scope, "session") == 0, "the rest is told why");

    for (i = 0; i < sbx_nelts(calls); i++) {
        hang_up(calls[i], links[i]);
        free(calls[i]);
    }

    /* once it has seen that the others are gone */

    for (i = 0; i < 1000; i++) {
        ask(&call, 8080, &link);
        type = next(&call, &fd, NULL);

        if (type == SBX_F_ACCEPTED) {
            break;
        }

        hang_up(&call, link);
        (void) usleep(5000);
    }

    is_int(type, SBX_F_ACCEPTED, "and then again");
    hang_up(&call, link);
    ok(until_descriptors(all), "and nothing of them stays");
}


static void
test_capability(void)
{
    int            fd, link;
    init_call_t    call;
    sbx_f_error_t  error;

    memset(&error, 0, sizeof(error));
    init_config.capabilities = SBX_CAP_SHELL;
    init_start(&s);
    ask(&call, 8080, &link);
    ok(next(&call, &fd, &error) == SBX_F_ERROR
       && error.code == SBX_E_CAPABILITY, "a session without ports has none");
    is_int(next(&call, &fd, NULL), 0, "the call is over");
    hang_up(&call, link);
    ok(init_stop(&s), "and the session ends");
}


int
main(void)
{
    if (geteuid() != 0) {
        return skip_all("root is needed for namespaces");
    }

    if (init_program() == NULL) {
        return skip_all("sandbox-init has not been built");
    }

    init_defaults();

    init_config.capabilities = SBX_CAP_SHELL | SBX_CAP_PORTS;
    init_start(&s);

    if (!ok(init_until(&s, "command -v python3 > /dev/null && echo yes"),
            "python3 is there"))
    {
        return done_testing();
    }

    test_connect();
    test_refused();
    test_large();
    test_cut();
    test_cut_sending();
    test_gone();
    test_hostile();
    test_many();

    ok(init_stop(&s), "the end of the control socket ends the session");

    init_again();
    test_capability();

    return done_testing();
}
