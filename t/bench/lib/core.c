/*
 * A command in a live session without any nginx: the same frames that a
 * worker sends, over a control connection of our own, so that what the HTTP
 * side adds can be told apart.
 */

#include "measure.h"

#include "sandbox_util.h"
#include "wire.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>


#define CORE_WAIT  20000              /* ms */


static uint8_t  buffer[sizeof(sbx_frame_t) + SBX_FRAME_MAX + 4096];


static int
core_connect(const char *state)
{
    int                 fd;
    sbx_call_t          hello;
    struct sockaddr_un  sun;

    memset(&sun, 0, sizeof(sun));
    sun.sun_family = AF_UNIX;
    (void) snprintf(sun.sun_path, sizeof(sun.sun_path), "%s/broker.sock",
                    state);

    fd = socket(AF_UNIX, SOCK_SEQPACKET|SOCK_CLOEXEC, 0);

    if (fd == -1 || connect(fd, (struct sockaddr *) &sun, sizeof(sun)) == -1)
    {
        measure_die(sun.sun_path);
    }

    memset(&hello, 0, sizeof(hello));
    hello.magic = SBX_WIRE_MAGIC;
    hello.version = SBX_WIRE_VERSION;
    hello.op = SBX_OP_HELLO_CONTROL;
    hello.size = sizeof(hello);

    if (sbx_wire_send(fd, &hello, sizeof(hello), NULL, 0, 0) == -1) {
        measure_die("hello");
    }

    return fd;
}


static size_t
core_frame(uint8_t *p, sbx_frame_type_t type, const void *data, size_t n)
{
    size_t  head;

    head = sbx_wire_header(p, type, n);

    if (n != 0) {
        memcpy(p + head, data, n);
    }

    return head + n;
}


/* What a worker sends after its call: the command, its strings, no input. */

static size_t
core_command(uint8_t *p, char **argv)
{
    char          strings[4096];
    size_t        n, size;
    sbx_f_exec_t  exec;

    memset(&exec, 0, sizeof(exec));
    n = 1;
    strings[0] = '\0';

    for (exec.argc = 0; argv[exec.argc] != NULL; exec.argc++) {
        size = strlen(argv[exec.argc]) + 1;

        if (size > sizeof(strings) - n) {
            errno = E2BIG;
            measure_die(argv[exec.argc]);
        }

        memcpy(strings + n, argv[exec.argc], size);
        n += size;
    }

    exec.flags = SBX_EXEC_CAP|SBX_EXEC_DEFAULT_CWD;
    exec.strings_size = (uint32_t) n;
    exec.timeout = SBX_UNSET;
    exec.max_output = SBX_UNSET;
    exec.cpu_seconds = SBX_UNSET;
    exec.max_file_size = SBX_UNSET;
    exec.open_files = SBX_UNSET;
    exec.stack = SBX_UNSET;

    size = core_frame(p, SBX_F_EXEC, &exec, sizeof(exec));
    size += core_frame(p + size, SBX_F_STRINGS, strings, n);
    size += core_frame(p + size, SBX_F_STDIN, NULL, 0);

    return size;
}


/* Until the command has ended. */

static void
core_wait(int fd)
{
    ssize_t         n;
    sbx_wire_t      in;
    sbx_frame_t     frame;
    sbx_f_exit_t    end;
    sbx_f_error_t   error;
    const uint8_t  *payload;

    sbx_wire_init(&in, buffer, sizeof(buffer));

    for ( ;; ) {
        n = recv(fd, in.buf + in.end, in.size - in.end, 0);

        if (n <= 0) {
            errno = n == 0 ? ECONNRESET : errno;
            measure_die("the call");
        }

        in.end += (size_t) n;

        while (sbx_wire_next(&in, &frame, &payload) == 1) {

            if (frame.type == SBX_F_EXIT && frame.length == sizeof(end)) {
                memcpy(&end, payload, sizeof(end));

                if (end.exit_code != 0) {
                    errno = ECHILD;
                    measure_die("the command");
                }

                return;
            }

            if (frame.type == SBX_F_ERROR && frame.length == sizeof(error)) {
                memcpy(&error, payload, sizeof(error));
                errno = error.err;
                measure_die(error.text);
            }
        }
    }
}


int
measure_core(int argc, char **argv)
{
    int                control, pair[2];
    long               n, count;
    size_t             size;
    double             start;
    uint8_t            command[8192];
    sbx_exec_limits_t  limits;

    struct {
        sbx_call_t         head;
        sbx_exec_limits_t  limits;
    } call;

    if (argc < 4) {
        return 2;
    }

    count = measure_count(argv[2]);
    control = core_connect(argv[0]);

    memset(&limits, 0xff, sizeof(limits));
    memset(&call, 0, sizeof(call));
    call.limits = limits;
    call.head.magic = SBX_WIRE_MAGIC;
    call.head.version = SBX_WIRE_VERSION;
    call.head.op = SBX_OP_EXEC;
    call.head.size = sizeof(call);
    memset(call.head.request_id, '0', SBX_REQUEST_ID);
    (void) snprintf(call.head.session, sizeof(call.head.session), "%s",
                    argv[1]);

    for (n = 0; n < count; n++) {
        start = measure_now();

        if (socketpair(AF_UNIX, SOCK_STREAM|SOCK_CLOEXEC, 0, pair) == -1) {
            measure_die("socketpair");
        }

        size = core_command(command, argv + 3);

        if (sbx_wire_send(control, &call, sizeof(call), &pair[1], 1, 0) == -1
            || close(pair[1]) == -1
            || send(pair[0], command, size, MSG_NOSIGNAL) != (ssize_t) size)
        {
            measure_die("send");
        }

        core_wait(pair[0]);
        (void) close(pair[0]);
        (void) printf("%.1f\n", measure_now() - start);
    }

    return 0;
}
