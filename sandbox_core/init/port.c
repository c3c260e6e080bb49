/*
 * Calls to ports: init, which lives in the session's network, connects to
 * what listens there and relays its bytes (port_relay.c).
 *
 *   ASKED -> CONNECTING (127.0.0.1, then ::1) -> ANSWERING -> OPEN
 *
 * The other end of the link is the worker's, of the broker's making: what a
 * program does to its own sockets costs whoever sends to them, and that is
 * the session, and nobody else.
 *
 * Nobody waits for anybody: a connect that the listener's queue does not take
 * has its own time, and all of them together are bounded.
 */

#include "init_port.h"
#include "sandbox_fault.h"

#include <errno.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>


#define SBX_INIT_PORTS         256        /* open at once */
#define SBX_INIT_PORT_ASK      5000000    /* us until the frame is there */
#define SBX_INIT_PORT_CONNECT  5000000    /* us to be let in */
#define SBX_INIT_PORT_FAMILIES 2
/* bytes that either side may have on its way: nobody's limit counts them */
#define SBX_INIT_PORT_BUFFER   (256 * 1024)


static sbx_init_port_t *sbx_init_port_new(void);
static void sbx_init_port_event(sbx_init_source_t *source, uint32_t events);
static void sbx_init_port_ask(sbx_init_port_t *p);
static void sbx_init_port_connect(sbx_init_port_t *p);
static int sbx_init_port_socket(unsigned family, uint32_t port, int *fd);
static void sbx_init_port_connected(sbx_init_source_t *source,
    uint32_t events);
static void sbx_init_port_accept(sbx_init_port_t *p);
static void sbx_init_port_drop(sbx_init_port_t *p);


static sbx_init_port_t  *sbx_init_ports[SBX_INIT_PORTS];
static unsigned          sbx_init_ports_end;


void
sbx_init_port_task(int fd, int link)
{
    int               type;
    socklen_t         len;
    sbx_error_t       e;
    sbx_f_error_t     error;
    sbx_init_port_t  *p;

    len = sizeof(type);

    if (getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &len) == -1
        || type != SOCK_STREAM || sbx_init.ending)
    {
        (void) close(fd);
        (void) close(link);
        return;
    }

    p = sbx_init_port_new();

    if (p == NULL) {
        (void) sbx_error(&e, 0, SBX_E_QUOTA,
                         "%d connections to the session's ports are open, "
                         "and no more may be", SBX_INIT_PORTS);
        sbx_init_error_fill(&error, &e);
        memcpy(error.scope, "session", sizeof("session"));
        memcpy(error.resource, "ports", sizeof("ports"));
        error.limit = SBX_INIT_PORTS;
        error.retry_after = 1;
        (void) close(link);
        sbx_init_exec_refuse(fd, &error);
        return;
    }

    p->state = SBX_INIT_PORT_ASKED;
    p->call.fd = fd;
    p->call.handler = sbx_init_port_event;
    p->call.data = p;
    p->socket.handler = sbx_init_port_connected;
    p->socket.data = p;
    p->link.fd = link;
    p->link.handler = sbx_init_port_moves;
    p->link.data = p;
    p->give_up = sbx_now_us() + SBX_INIT_PORT_ASK;
    sbx_init_loop_wake(p->give_up);
    sbx_init_source_set(&p->call, EPOLLIN|EPOLLRDHUP);

    if ((sbx_init.config->capabilities & SBX_CAP_PORTS) == 0) {
        (void) sbx_error(&e, 0, SBX_E_CAPABILITY,
                         "the session lacks the capability \"ports\"");
        sbx_init_port_fail(p, &e);
        return;
    }

    sbx_init_port_ask(p);
}


static sbx_init_port_t *
sbx_init_port_new(void)
{
    unsigned          i;
    sbx_init_port_t  *p;

    for (i = 0; i < SBX_INIT_PORTS; i++) {
        if (sbx_init_ports[i] == NULL) {
            sbx_init_ports[i] = malloc(sizeof(sbx_init_port_t));
            break;
        }

        if (sbx_init_ports[i]->state == SBX_INIT_PORT_FREE) {
            break;
        }
    }

    if (i == SBX_INIT_PORTS || sbx_init_ports[i] == NULL) {
        return NULL;
    }

    if (i >= sbx_init_ports_end) {
        sbx_init_ports_end = i + 1;
    }

    p = sbx_init_ports[i];
    memset(p, 0, sizeof(sbx_init_port_t));
    p->call.fd = -1;
    p->socket.fd = -1;
    p->link.fd = -1;

    return p;
}


static void
sbx_init_port_event(sbx_init_source_t *source, uint32_t events)
{
    sbx_init_port_t  *p;

    p = source->data;

    if (events & (EPOLLHUP|EPOLLRDHUP|EPOLLERR)) {
        sbx_init_port_gone(p);
        return;
    }

    if ((events & EPOLLOUT) && p->state == SBX_INIT_PORT_ANSWERING) {
        sbx_init_port_accept(p);
    }

    if (events & EPOLLIN) {
        if (p->state == SBX_INIT_PORT_ASKED) {
            sbx_init_port_ask(p);

        } else if (p->state != SBX_INIT_PORT_FREE) {
            sbx_init_port_drop(p);
        }
    }
}


static void
sbx_init_port_ask(sbx_init_port_t *p)
{
    ssize_t       n;
    sbx_error_t   e;
    sbx_frame_t   head;
    sbx_f_port_t  ask;

    n = recv(p->call.fd, p->frame + p->have, sizeof(p->frame) - p->have,
             MSG_DONTWAIT);

    if (n == 0 || (n == -1 && errno != EAGAIN && errno != EINTR)) {
        sbx_init_port_free(p);
        return;
    }

    p->have += n > 0 ? (size_t) n : 0;

    if (p->have < sizeof(head)) {
        return;
    }

    memcpy(&head, p->frame, sizeof(head));

    if (head.type != SBX_F_PORT || head.length != sizeof(ask)) {
        (void) sbx_error(&e, 0, SBX_E_INVALID,
                         "the call's frames are malformed");
        sbx_init_port_fail(p, &e);
        return;
    }

    if (p->have < sizeof(p->frame)) {
        return;
    }

    memcpy(&ask, p->frame + sizeof(head), sizeof(ask));

    if (ask.port < 1 || ask.port > UINT16_MAX || ask.pad != 0) {
        (void) sbx_error(&e, 0, SBX_E_INVALID, "a port is 1 to 65535");
        sbx_init_port_fail(p, &e);
        return;
    }

    p->port = ask.port;
    p->state = SBX_INIT_PORT_CONNECTING;
    p->give_up = sbx_now_us() + SBX_INIT_PORT_CONNECT;
    sbx_init_loop_wake(p->give_up);

    sbx_init_port_connect(p);
}


/* Tries the families that are left. */

static void
sbx_init_port_connect(sbx_init_port_t *p)
{
    int          fd;
    sbx_error_t  e;

    for ( /* void */ ; p->family < SBX_INIT_PORT_FAMILIES; p->family++) {

        if (sbx_init_port_socket(p->family, p->port, &fd) == 0) {
            p->socket.fd = fd;
            sbx_init_port_accept(p);
            return;
        }

        if (fd != -1) {
            p->socket.fd = fd;
            sbx_init_source_set(&p->socket, EPOLLOUT);
            return;
        }

        if (p->family == 0 && errno != ECONNREFUSED) {
            p->err = errno;
        }
    }

    if (p->err != 0) {
        (void) sbx_error(&e, p->err, SBX_E_UNAVAILABLE,
                         p->err == EADDRNOTAVAIL
                         ? "programs of the session have all ports in use "
                           "from which one could be connected to"
                         : "nothing can be connected to in the session");
        sbx_init_port_fail(p, &e);
        return;
    }

    (void) sbx_error(&e, ECONNREFUSED, SBX_E_UNAVAILABLE,
                     "nothing listens on port %u of the session", p->port);
    sbx_init_port_fail(p, &e);
}


/* 0: connected; -1: on its way if there is a descriptor. */

static int
sbx_init_port_socket(unsigned family, uint32_t port, int *fd)
{
    int  rc, size;
    union {
        struct sockaddr      any;
        struct sockaddr_in   in;
        struct sockaddr_in6  in6;
    } address;
    socklen_t  len;

    memset(&address, 0, sizeof(address));

    if (family == 0) {
        address.in.sin_family = AF_INET;
        address.in.sin_port = htons((uint16_t) port);
        address.in.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        len = sizeof(address.in);

    } else {
        address.in6.sin6_family = AF_INET6;
        address.in6.sin6_port = htons((uint16_t) port);
        address.in6.sin6_addr = in6addr_loopback;
        len = sizeof(address.in6);
    }

    *fd = socket(address.any.sa_family, SOCK_STREAM|SOCK_NONBLOCK|SOCK_CLOEXEC,
                 0);

    if (*fd == -1) {
        return -1;
    }

    size = SBX_INIT_PORT_BUFFER;
    rc = setsockopt(*fd, SOL_SOCKET, SO_RCVBUF, &size, sizeof(size));

    if (rc == 0) {
        rc = setsockopt(*fd, SOL_SOCKET, SO_SNDBUF, &size, sizeof(size));
    }

    if (rc == -1) {
        (void) close(*fd);
        *fd = -1;
        return -1;
    }

    do {
        rc = connect(*fd, &address.any, len);
    } while (rc == -1 && errno == EINTR);

    if (rc == -1 && errno != EINPROGRESS) {
        (void) close(*fd);
        *fd = -1;
    }

    return rc;
}


static void
sbx_init_port_connected(sbx_init_source_t *source, uint32_t events)
{
    int               err;
    socklen_t         len;
    sbx_init_port_t  *p;

    (void) events;

    p = source->data;
    err = 0;
    len = sizeof(err);

    if (getsockopt(source->fd, SOL_SOCKET, SO_ERROR, &err, &len) == -1) {
        err = errno;
    }

    if (err != 0) {
        sbx_init_source_close(&p->socket);
        p->family++;
        sbx_init_port_connect(p);
        return;
    }

    sbx_init_source_set(&p->socket, 0);
    sbx_init_port_accept(p);
}


/* A frame of a header alone is taken whole or not at all. */

static void
sbx_init_port_accept(sbx_init_port_t *p)
{
    size_t   size;
    ssize_t  n;
    uint8_t  frame[sizeof(sbx_frame_t)];

    p->socket.handler = sbx_init_port_moves;
    size = sbx_wire_header(frame, SBX_F_ACCEPTED, 0);
    n = sbx_wire_send(p->call.fd, frame, size, NULL, 0, MSG_DONTWAIT);

    if (n == -1 && errno == EAGAIN) {
        p->state = SBX_INIT_PORT_ANSWERING;
        sbx_init_source_set(&p->call, EPOLLIN|EPOLLOUT|EPOLLRDHUP);
        return;
    }

    if (n != (ssize_t) size || sbx_init_port_open(p) != 0) {
        sbx_init_port_free(p);
        return;
    }

    SBX_FAULT("init-port-accepted");
    p->state = SBX_INIT_PORT_OPEN;
    p->give_up = SBX_INIT_NONE;
    sbx_init_source_set(&p->call, EPOLLIN|EPOLLRDHUP);
}


void
sbx_init_port_fail(sbx_init_port_t *p, const sbx_error_t *e)
{
    size_t         n;
    sbx_f_error_t  error;
    uint8_t        frame[sizeof(sbx_frame_t) + sizeof(sbx_f_error_t)];

    sbx_init_source_close(&p->socket);

    sbx_init_error_fill(&error, e);
    n = sbx_wire_header(frame, SBX_F_ERROR, sizeof(sbx_f_error_t));
    memcpy(frame + n, &error, sizeof(sbx_f_error_t));

    if (sbx_wire_send(p->call.fd, frame, sizeof(frame), NULL, 0,
                      MSG_DONTWAIT)
        != (ssize_t) sizeof(frame))
    {
        sbx_init_port_free(p);
        return;
    }

    (void) shutdown(p->call.fd, SHUT_WR);
    p->state = SBX_INIT_PORT_CLOSING;
    p->give_up = sbx_now_us() + SBX_INIT_PORT_LINGER;
    sbx_init_loop_wake(p->give_up);
}


/* Nothing has a place after the frame. */

static void
sbx_init_port_drop(sbx_init_port_t *p)
{
    ssize_t  n;
    char     scratch[1024];

    n = recv(p->call.fd, scratch, sizeof(scratch), MSG_DONTWAIT);

    if (n == 0 || (n == -1 && errno != EAGAIN && errno != EINTR)
        || (n > 0 && p->state != SBX_INIT_PORT_CLOSING))
    {
        sbx_init_port_gone(p);
    }
}


void
sbx_init_port_free(sbx_init_port_t *p)
{
    sbx_init_source_close(&p->socket);
    sbx_init_source_close(&p->call);
    sbx_init_source_close(&p->link);
    free(p->bytes);
    p->bytes = NULL;
    p->state = SBX_INIT_PORT_FREE;
}


void
sbx_init_port_tick(uint64_t now)
{
    unsigned          i;
    sbx_error_t       e;
    sbx_init_port_t  *p;

    for (i = 0; i < sbx_init_ports_end; i++) {
        p = sbx_init_ports[i];

        if (p == NULL || p->state == SBX_INIT_PORT_FREE
            || p->give_up == SBX_INIT_NONE)
        {
            continue;
        }

        if (now < p->give_up) {
            sbx_init_loop_wake(p->give_up);

        } else if (p->state == SBX_INIT_PORT_CONNECTING) {
            (void) sbx_error(&e, ETIMEDOUT, SBX_E_UNAVAILABLE,
                             "what listens on port %u of the session takes "
                             "no connection", p->port);
            sbx_init_port_fail(p, &e);

        } else {
            sbx_init_port_free(p);
        }
    }
}


unsigned
sbx_init_port_calls(void)
{
    unsigned                i, n;
    const sbx_init_port_t  *p;

    n = 0;

    for (i = 0; i < sbx_init_ports_end; i++) {
        p = sbx_init_ports[i];
        n += p != NULL && p->state != SBX_INIT_PORT_FREE
             && p->state != SBX_INIT_PORT_CLOSING;
    }

    return n;
}


void
sbx_init_port_cut(void)
{
    unsigned  i;

    for (i = 0; i < sbx_init_ports_end; i++) {
        if (sbx_init_ports[i] != NULL
            && sbx_init_ports[i]->state != SBX_INIT_PORT_FREE)
        {
            sbx_init_port_free(sbx_init_ports[i]);
        }
    }
}
