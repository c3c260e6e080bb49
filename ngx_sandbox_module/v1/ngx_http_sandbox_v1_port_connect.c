/*
 * The connection to a port of a session.  Its sockets are of the broker's
 * making, in the session's network, one for each family: nobody else has
 * them.  127.0.0.1 is tried, and where nobody takes the connection there, ::1.
 * What listens may have its queue full; all together has its time.  The
 * session may have taken the ports that a connection would come from.
 */

#include "ngx_http_sandbox_v1_port.h"
#include "sandbox_fault.h"

#include <linux/sockios.h>
#include <sys/ioctl.h>


#define NGX_HTTP_SANDBOX_V1_PORT_CONNECT  5000       /* ms */


typedef union {
    struct sockaddr      any;
    struct sockaddr_in   in;
    struct sockaddr_in6  in6;
} ngx_http_sandbox_v1_port_address_t;


static ngx_int_t ngx_http_sandbox_v1_port_try(
    ngx_http_sandbox_v1_port_t *port);
static ngx_int_t ngx_http_sandbox_v1_port_reach(ngx_connection_t *c,
    ngx_uint_t family, ngx_uint_t number);
static socklen_t ngx_http_sandbox_v1_port_address(
    ngx_http_sandbox_v1_port_address_t *address, ngx_uint_t family,
    ngx_uint_t number);
static ngx_int_t ngx_http_sandbox_v1_port_add(ngx_connection_t *c);
static void ngx_http_sandbox_v1_port_connect_handler(ngx_event_t *wev);
static void ngx_http_sandbox_v1_port_empty_handler(ngx_event_t *ev);


ngx_int_t
ngx_http_sandbox_v1_port_connect(ngx_http_sandbox_v1_port_t *port)
{
    SBX_FAULT("worker-port-connects");

    port->call->timeout = 0;
    port->deadline = ngx_current_msec + NGX_HTTP_SANDBOX_V1_PORT_CONNECT;

    return ngx_http_sandbox_v1_port_try(port);
}


/* Goes through the families that are left; as what frame() returns. */

static ngx_int_t
ngx_http_sandbox_v1_port_try(ngx_http_sandbox_v1_port_t *port)
{
    ngx_fd_t                  fd;
    ngx_msec_int_t            left;
    ngx_connection_t         *c;
    ngx_http_sandbox_call_t  *call;

    call = port->call;

    for ( /* void */ ; port->family < SBX_SOCKETS_MAX; port->family++) {

        fd = call->sockets[port->family];

        if (fd == NGX_INVALID_FILE) {
            continue;
        }

        c = ngx_get_connection(fd, port->request->connection->log);

        if (c == NULL) {
            /* upstream has no answer for a worker that has none left */

            return ngx_http_sandbox_op_finish(call,
                      ngx_http_sandbox_problem(port->request,
                                         NGX_HTTP_SANDBOX_BROKER_UNAVAILABLE,
                                         NULL));
        }

        call->sockets[port->family] = NGX_INVALID_FILE;
        port->socket = c;

        c->data = port;
        c->type = SOCK_STREAM;
        c->log = port->request->connection->log;
        c->read->log = c->log;
        c->write->log = c->log;
        c->read->handler = ngx_http_sandbox_v1_port_empty_handler;
        c->write->handler = ngx_http_sandbox_v1_port_connect_handler;
        c->number = ngx_atomic_fetch_add(ngx_connection_counter, 1);
        c->start_time = ngx_current_msec;

        switch (ngx_http_sandbox_v1_port_reach(c, port->family, port->port)) {

        case NGX_OK:
            return ngx_http_sandbox_v1_port_begin(port);

        case NGX_AGAIN:
            left = (ngx_msec_int_t) (port->deadline - ngx_current_msec);
            ngx_add_timer(c->write, left > 0 ? (ngx_msec_t) left : 0);
            return NGX_OK;

        case NGX_BUSY:
            port->crowded = 1;

            /* fall through */

        default:
            ngx_http_sandbox_v1_port_disconnect(port);
            break;
        }
    }

    if (port->crowded) {
        return ngx_http_sandbox_op_finish(call,
                  ngx_http_sandbox_problem(port->request,
                                         NGX_HTTP_SANDBOX_BROKER_UNAVAILABLE,
                                         "the session has too many ports in "
                                         "use for a connection from outside"));
    }

    return ngx_http_sandbox_op_finish(call,
              ngx_http_sandbox_problem(port->request,
                                       NGX_HTTP_SANDBOX_BAD_GATEWAY,
                                       "nothing listens on port %ui of the "
                                       "session", port->port));
}


/* NGX_OK, NGX_AGAIN, NGX_DECLINED; NGX_BUSY: there is no port for it.  A
 * machine without IPv6 says the same of its address. */

static ngx_int_t
ngx_http_sandbox_v1_port_reach(ngx_connection_t *c, ngx_uint_t family,
    ngx_uint_t number)
{
    int                                 rc;
    ngx_err_t                           err;
    socklen_t                           len;
    ngx_http_sandbox_v1_port_address_t  address;

    len = ngx_http_sandbox_v1_port_address(&address, family, number);

    do {
        rc = connect(c->fd, &address.any, len);
        err = (rc == -1) ? ngx_socket_errno : 0;
    } while (err == NGX_EINTR);

    if (rc == -1 && err != NGX_EINPROGRESS) {
        ngx_log_debug2(NGX_LOG_DEBUG_HTTP, c->log, err,
                       "sandbox port %ui refuses, family %ui", number,
                       family);

        return (err == EADDRNOTAVAIL && family == 0) ? NGX_BUSY
                                                     : NGX_DECLINED;
    }

    if (ngx_http_sandbox_v1_port_add(c) != NGX_OK) {
        return NGX_DECLINED;
    }

    return (rc == 0) ? NGX_OK : NGX_AGAIN;
}


static socklen_t
ngx_http_sandbox_v1_port_address(ngx_http_sandbox_v1_port_address_t *address,
    ngx_uint_t family, ngx_uint_t number)
{
    ngx_memzero(address, sizeof(ngx_http_sandbox_v1_port_address_t));

    if (family == 0) {
        address->in.sin_family = AF_INET;
        address->in.sin_port = htons((in_port_t) number);
        address->in.sin_addr.s_addr = htonl(INADDR_LOOPBACK);

        return sizeof(struct sockaddr_in);
    }

    address->in6.sin6_family = AF_INET6;
    address->in6.sin6_port = htons((in_port_t) number);
    address->in6.sin6_addr = in6addr_loopback;

    return sizeof(struct sockaddr_in6);
}


static ngx_int_t
ngx_http_sandbox_v1_port_add(ngx_connection_t *c)
{
    if (ngx_add_conn != NULL) {
        return ngx_add_conn(c);
    }

    return ngx_add_event(c->write, NGX_WRITE_EVENT,
                         (ngx_event_flags & NGX_USE_CLEAR_EVENT)
                         ? NGX_CLEAR_EVENT : NGX_LEVEL_EVENT);
}


static void
ngx_http_sandbox_v1_port_connect_handler(ngx_event_t *wev)
{
    int                          err;
    socklen_t                    len;
    ngx_connection_t            *c, *client;
    ngx_http_request_t          *r;
    ngx_http_sandbox_v1_port_t  *port;

    c = wev->data;
    port = c->data;
    r = port->request;
    client = r->connection;

    ngx_http_set_log_request(client->log, r);

    if (wev->timedout) {
        ngx_http_sandbox_v1_port_disconnect(port);

        (void) ngx_http_sandbox_op_finish(port->call,
                  ngx_http_sandbox_problem(r,
                                           NGX_HTTP_SANDBOX_GATEWAY_TIMEOUT,
                                           "what listens on port %ui of the "
                                           "session takes no connection",
                                           port->port));
        return;
    }

    err = 0;
    len = sizeof(int);

    if (getsockopt(c->fd, SOL_SOCKET, SO_ERROR, (void *) &err, &len) == -1) {
        err = ngx_socket_errno;
    }

    if (err != 0) {
        ngx_http_sandbox_v1_port_disconnect(port);
        port->family++;
        (void) ngx_http_sandbox_v1_port_try(port);

    } else {
        ngx_del_timer(wev);
        (void) ngx_http_sandbox_v1_port_begin(port);
    }

    ngx_http_run_posted_requests(client);
}


/* What comes before upstream has the connection is found by it then. */

static void
ngx_http_sandbox_v1_port_empty_handler(ngx_event_t *ev)
{
}


/* It waits for upstream, and the others are of no use any more. */

ngx_int_t
ngx_http_sandbox_v1_port_connected(ngx_http_sandbox_v1_port_t *port)
{
    ngx_event_t  *wev;

    ngx_http_sandbox_call_close_sockets(port->call);

    wev = port->socket->write;
    wev->handler = ngx_http_sandbox_v1_port_empty_handler;

    return ngx_handle_write_event(wev, 0);
}


void
ngx_http_sandbox_v1_port_disconnect(ngx_http_sandbox_v1_port_t *port)
{
    if (port->socket == NULL) {
        return;
    }

    ngx_http_sandbox_v1_port_quiet(port->socket->fd);
    ngx_close_connection(port->socket);
    port->socket = NULL;
}


/*
 * What is not sent yet when a socket is closed stays for as long as nobody
 * reads it, and counts for no limit: it goes with the socket.  One with
 * nothing to send is closed as usual, so that a program that has read all of
 * it sees an end and no reset.
 */

void
ngx_http_sandbox_v1_port_quiet(ngx_fd_t fd)
{
    int            unsent;
    struct linger  linger;

    if (ioctl(fd, SIOCOUTQ, &unsent) == 0 && unsent == 0) {
        return;
    }

    linger.l_onoff = 1;
    linger.l_linger = 0;

    (void) setsockopt(fd, SOL_SOCKET, SO_LINGER, &linger,
                      sizeof(struct linger));
}
