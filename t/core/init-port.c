/*
 * Calls to ports: what init connects to inside, and what it refuses.
 */

#include "init_test.h"

#include <arpa/inet.h>
#include <netinet/in.h>


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


static void
ask(init_call_t *call, uint32_t port)
{
    sbx_f_port_t  p;

    memset(&p, 0, sizeof(p));
    p.port = port;
    init_call(&s, SBX_OP_PORT, NULL, NULL, 0, call);
    init_send(call->fd, SBX_F_PORT, &p, sizeof(p));
}


/* A server that says "hi" and closes; until it listens. */

static void
listen_inside(const char *family, const char *address, int port,
    const char *then)
{
    char  script[1024];

    (void) snprintf(script, sizeof(script),
        "python3 -c 'import socket, time\n"
        "s = socket.socket(socket.%s)\n"
        "s.bind((\"%s\", %d))\n"
        "%s' > log%d 2>&1 &\n", family, address, port, then, port);
    init_shell(&s, script, &r);
    (void) snprintf(script, sizeof(script),
        "grep -q ':%04X .* 0A ' /proc/net/tcp /proc/net/tcp6 && echo yes",
        (unsigned) port);
    ok(init_until(&s, script), "%s listens on port %d", address, port);
}


static int
hello(int fd)
{
    char           buf[16];
    ssize_t        n;
    struct pollfd  pfd;

    pfd.fd = fd;
    pfd.events = POLLIN;

    if (poll(&pfd, 1, INIT_WAIT) != 1) {
        return 0;
    }

    n = recv(fd, buf, sizeof(buf), 0);

    return n == 2 && memcmp(buf, "hi", 2) == 0;
}


static void
test_connect(void)
{
    int           fd, type;
    socklen_t     len;
    init_call_t   call;

    static const char  loop[] =
        "s.listen(8)\n"
        "while True:\n"
        "    c = s.accept()[0]\n"
        "    c.sendall(b\"hi\")\n"
        "    c.close()\n";

    listen_inside("AF_INET", "127.0.0.1", 8080, loop);
    listen_inside("AF_INET6", "::1", 8081, loop);

    ask(&call, 8080);
    is_int(next(&call, &fd, NULL), SBX_F_SOCKET, "a socket comes");
    len = sizeof(type);
    ok(fd != -1 && (fcntl(fd, F_GETFL) & O_NONBLOCK) != 0
       && getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &len) == 0
       && type == SOCK_STREAM, "a stream that does not block");
    ok(hello(fd), "of the server");
    (void) close(fd);
    init_hang_up(&call);

    ask(&call, 8081);
    is_int(next(&call, &fd, NULL), SBX_F_SOCKET, "::1 is tried as well");
    ok(hello(fd), "and heard");
    (void) close(fd);
    init_hang_up(&call);
}


static void
test_refused(void)
{
    int            fd;
    init_call_t    call;
    sbx_f_error_t  error;

    memset(&error, 0, sizeof(error));
    ask(&call, 9);
    is_int(next(&call, &fd, &error), SBX_F_ERROR, "nothing listens");
    ok(error.code == SBX_E_UNAVAILABLE && error.err == ECONNREFUSED,
       "and that is told apart");
    is_int(next(&call, &fd, NULL), 0, "the call is over");
    init_hang_up(&call);

    /* the queue of a listener that accepts nobody */

    listen_inside("AF_INET", "127.0.0.1", 8082,
                  "s.listen(0)\n"
                  "h = [socket.create_connection((\"127.0.0.1\", 8082))]\n"
                  "time.sleep(1000)\n");
    ok(init_until(&s, "test `grep -c ':1F92 ' /proc/net/tcp` -ge 3"
                  " && echo yes"),
       "its queue is full");

    {
        init_call_t  other;

        ask(&call, 8082);
        ask(&other, 8080);
        is_int(next(&other, &fd, NULL), SBX_F_SOCKET,
               "nobody else waits for it");
        (void) close(fd);
        init_hang_up(&other);
    }

    memset(&error, 0, sizeof(error));
    is_int(next(&call, &fd, &error), SBX_F_ERROR, "it has its time");
    ok(error.code == SBX_E_UNAVAILABLE && error.err == ETIMEDOUT,
       "and no more");
    init_hang_up(&call);
}


static void
test_hostile(void)
{
    int            fd;
    size_t         i;
    init_call_t    call;
    sbx_f_port_t   p;
    sbx_f_error_t  error;

    static const uint32_t  ports[] = { 0, 65536, 0x10050, UINT32_MAX };

    for (i = 0; i < sbx_nelts(ports); i++) {
        memset(&error, 0, sizeof(error));
        ask(&call, ports[i]);
        ok(next(&call, &fd, &error) == SBX_F_ERROR
           && error.code == SBX_E_INVALID, "port %u is none", ports[i]);
        init_hang_up(&call);
    }

    memset(&p, 0, sizeof(p));
    p.port = 8080;
    init_call(&s, SBX_OP_PORT, NULL, NULL, 0, &call);
    init_send(call.fd, SBX_F_PORT, &p, sizeof(p) - 1);
    ok(next(&call, &fd, &error) == SBX_F_ERROR
       && error.code == SBX_E_INVALID, "a short frame");
    init_hang_up(&call);

    init_call(&s, SBX_OP_PORT, NULL, NULL, 0, &call);
    init_send(call.fd, SBX_F_EXEC, &p, sizeof(p));
    ok(next(&call, &fd, &error) == SBX_F_ERROR
       && error.code == SBX_E_INVALID, "another frame");
    init_hang_up(&call);

    ask(&call, 8080);
    is_int(next(&call, &fd, NULL), SBX_F_SOCKET, "a socket");
    init_send(call.fd, SBX_F_PORT, &p, sizeof(p));
    ok(next(&call, &(int) { -1 }, NULL) == 0, "what comes after ends it");
    (void) close(fd);
    init_hang_up(&call);
}


/* More than there may be, and nothing of them stays. */

static void
test_many(void)
{
    int                  fd, refused, type = 0;
    unsigned             i;
    sbx_f_error_t        error;
    static int           fds[300];
    static init_call_t  *calls[300];

    refused = 0;
    memset(&error, 0, sizeof(error));

    for (i = 0; i < sbx_nelts(calls); i++) {
        calls[i] = malloc(sizeof(init_call_t));

        if (calls[i] == NULL) {
            init_die("malloc");
        }

        ask(calls[i], 8080);

        if (next(calls[i], &fds[i], &error) == SBX_F_ERROR) {
            refused++;
        }
    }

    is_int(refused, 300 - 256, "as many as may be open are");
    ok(error.code == SBX_E_QUOTA && error.limit == 256
       && strcmp(error.scope, "session") == 0, "the rest is told why");

    for (i = 0; i < sbx_nelts(calls); i++) {
        if (fds[i] != -1) {
            (void) close(fds[i]);
        }

        init_hang_up(calls[i]);
        free(calls[i]);
    }

    init_call_t  call;

    /* once it has seen that the others are gone */

    for (i = 0; i < 1000; i++) {
        ask(&call, 8080);
        fd = -1;
        type = next(&call, &fd, NULL);

        if (type == SBX_F_SOCKET) {
            break;
        }

        init_hang_up(&call);
        (void) usleep(5000);
    }

    is_int(type, SBX_F_SOCKET, "and then again");
    ok(hello(fd), "as before");

    /* init keeps none of it: the server has closed, and now we do */

    (void) close(fd);
    ok(init_until(&s, "grep -q ':1F90 .* 08 ' /proc/net/tcp || echo yes"),
       "no socket waits for init to close it");
    init_hang_up(&call);
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
    test_hostile();
    test_many();

    ok(init_stop(&s), "the end of the control socket ends the session");

    return done_testing();
}
