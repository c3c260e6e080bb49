/*
 * Asking the running broker: one call after the other on a connection that
 * only looks, each answer read to its last frame.
 */

#include "sandboxctl.h"

#include "wire.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>


#define SBX_CTL_WAIT   10000          /* ms, for each piece of an answer */


static int sbx_ctl_answer(int fd, sbx_ctl_frame_pt frame, void *data,
    sbx_error_t *e);
static int sbx_ctl_fill(int fd, sbx_wire_t *w, sbx_error_t *e);


int
sbx_ctl_connect(const char *state_dir, int *control, sbx_error_t *e)
{
    sbx_hello_t   hello;
    sbx_client_t  client;

    memset(&client, 0, sizeof(sbx_client_t));
    client.state_dir = state_dir;
    client.timeout_ms = SBX_CTL_WAIT;

    return sbx_client_watch(&client, control, &hello, e);
}


int
sbx_ctl_ask(int control, sbx_op_t op, const char *session, const void *body,
    size_t size, sbx_ctl_frame_pt frame, void *data, sbx_error_t *e)
{
    int          pair[2];
    sbx_auto_fd  ours = -1, theirs = -1;

    struct {
        sbx_call_t  head;
        uint8_t     body[sizeof(sbx_list_t)];
    } datagram;

    memset(&datagram, 0, sizeof(datagram));

    datagram.head.magic = SBX_WIRE_MAGIC;
    datagram.head.version = SBX_WIRE_VERSION;
    datagram.head.op = (uint16_t) op;
    datagram.head.size = (uint32_t) (sizeof(sbx_call_t) + size);

    if (size > sizeof(datagram.body)
        || sbx_copy_string(datagram.head.session,
                           sizeof(datagram.head.session), session,
                           strlen(session))
           == -1)
    {
        return sbx_error(e, 0, SBX_E_INVALID, "the call is too long");
    }

    if (size != 0) {
        memcpy(datagram.body, body, size);
    }

    if (socketpair(AF_UNIX, SOCK_STREAM|SOCK_CLOEXEC, 0, pair) == -1) {
        return sbx_error(e, errno, SBX_E_INTERNAL, "socketpair() failed");
    }

    ours = pair[0];
    theirs = pair[1];

    if (sbx_wire_send(control, &datagram, sizeof(sbx_call_t) + size, &theirs,
                      1, 0)
        == -1)
    {
        return sbx_error(e, errno, SBX_E_UNAVAILABLE,
                         "the broker has closed the connection");
    }

    (void) close(sbx_steal_fd(&theirs));

    return sbx_ctl_answer(ours, frame, data, e);
}


static int
sbx_ctl_answer(int fd, sbx_ctl_frame_pt frame, void *data, sbx_error_t *e)
{
    int              rc;
    sbx_wire_t       w;
    sbx_frame_t      head;
    sbx_f_error_t    error;
    const uint8_t   *payload;

    static uint8_t   buf[sizeof(sbx_frame_t) + SBX_FRAME_MAX];

    sbx_wire_init(&w, buf, sizeof(buf));

    for ( ;; ) {
        rc = sbx_wire_next(&w, &head, &payload);

        if (rc == -1) {
            return sbx_error(e, 0, SBX_E_INTERNAL,
                             "the broker's answer is broken");
        }

        if (rc == 0) {
            if (sbx_ctl_fill(fd, &w, e) == -1) {
                return -1;
            }

            continue;
        }

        if (head.type == SBX_F_END) {
            return 0;
        }

        if (head.type == SBX_F_ERROR
            && head.length == sizeof(sbx_f_error_t))
        {
            memcpy(&error, payload, sizeof(sbx_f_error_t));
            error.text[sizeof(error.text) - 1] = '\0';

            return sbx_error(e, error.err, error.code < SBX_E_MAX
                             ? (sbx_code_t) error.code : SBX_E_INTERNAL,
                             "%s", error.text);
        }

        frame(head.type, payload, head.length, data);
    }
}


static int
sbx_ctl_fill(int fd, sbx_wire_t *w, sbx_error_t *e)
{
    ssize_t        n;
    struct pollfd  pfd;

    pfd.fd = fd;
    pfd.events = POLLIN;

    if (poll(&pfd, 1, SBX_CTL_WAIT) != 1) {
        return sbx_error(e, 0, SBX_E_UNAVAILABLE,
                         "the broker does not answer");
    }

    n = read(fd, w->buf + w->end, w->size - w->end);

    if (n <= 0) {
        return sbx_error(e, n == -1 ? errno : 0, SBX_E_UNAVAILABLE,
                         "the broker has ended the answer");
    }

    w->end += (size_t) n;

    return 0;
}
