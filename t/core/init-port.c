/*
 * Calls to ports: whom init lets connect, how many, and that it has nothing of
 * their connections.
 */

#include "init_test.h"

#include <dirent.h>


static init_session_t  s;


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
        if (descriptors("") == count) {
            return 1;
        }

        (void) usleep(5000);
    }

    return 0;
}


static void
test_accepted(void)
{
    int          fd;
    unsigned     all, sockets;
    init_call_t  call;

    all = descriptors("");
    sockets = descriptors("socket:");
    ask(&call, 8080);
    is_int(next(&call, &fd, NULL), SBX_F_ACCEPTED, "who asks may connect");
    is_int(fd, -1, "with a socket of his own");
    ok(descriptors("") == all + 1 && descriptors("socket:") == sockets + 1,
       "init has the call, and nothing else of it");
    ok(poll(&(struct pollfd) { call.fd, POLLIN, 0 }, 1, 0) == 0,
       "and keeps it open");
    init_hang_up(&call);
    ok(until_descriptors(all), "until the other side closes it");
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
    is_int(next(&call, &fd, NULL), SBX_F_ACCEPTED, "one that may");
    init_send(call.fd, SBX_F_PORT, &p, sizeof(p));
    ok(next(&call, &fd, NULL) == 0, "what comes after ends it");
    init_hang_up(&call);
}


/* More than there may be, and nothing of them stays. */

static void
test_many(void)
{
    int                  fd, refused, type = 0;
    unsigned             i, all;
    init_call_t          call;
    sbx_f_error_t        error;
    static init_call_t  *calls[300];

    refused = 0;
    all = descriptors("");
    memset(&error, 0, sizeof(error));

    for (i = 0; i < sbx_nelts(calls); i++) {
        calls[i] = malloc(sizeof(init_call_t));

        if (calls[i] == NULL) {
            init_die("malloc");
        }

        ask(calls[i], 8080);

        if (next(calls[i], &fd, &error) == SBX_F_ERROR) {
            refused++;
        }
    }

    is_int(refused, 300 - 256, "as many as may be open are");
    ok(error.code == SBX_E_QUOTA && error.limit == 256
       && strcmp(error.scope, "session") == 0, "the rest is told why");

    for (i = 0; i < sbx_nelts(calls); i++) {
        init_hang_up(calls[i]);
        free(calls[i]);
    }

    /* once it has seen that the others are gone */

    for (i = 0; i < 1000; i++) {
        ask(&call, 8080);
        type = next(&call, &fd, NULL);

        if (type == SBX_F_ACCEPTED) {
            break;
        }

        init_hang_up(&call);
        (void) usleep(5000);
    }

    is_int(type, SBX_F_ACCEPTED, "and then again");
    init_hang_up(&call);
    ok(until_descriptors(all), "and nothing of them stays");
}


static void
test_capability(void)
{
    int            fd;
    init_call_t    call;
    sbx_f_error_t  error;

    memset(&error, 0, sizeof(error));
    init_config.capabilities = SBX_CAP_SHELL;
    init_start(&s);
    ask(&call, 8080);
    ok(next(&call, &fd, &error) == SBX_F_ERROR
       && error.code == SBX_E_CAPABILITY, "a session without ports has none");
    is_int(next(&call, &fd, NULL), 0, "the call is over");
    init_hang_up(&call);
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

    test_accepted();
    test_hostile();
    test_many();

    ok(init_stop(&s), "the end of the control socket ends the session");

    init_again();
    test_capability();

    return done_testing();
}
