/*
 * The sockets that a call brings: of the broker's making, in the network of
 * the call's session, and for the worker to connect.
 */

#include "ngx_http_sandbox_call.h"
#include "ngx_http_sandbox_passed.h"

#include <netinet/in.h>


/*
 * The broker's, before init has the call: what comes later is a session's, and
 * it may keep what it passes and hold the worker up by it.  IPv4 comes first.
 */

ngx_int_t
ngx_http_sandbox_call_check_socket(ngx_http_sandbox_call_t *call,
    const u_char *payload, size_t len)
{
    int             type, domain, flags;
    socklen_t       size;
    ngx_uint_t      first;
    sbx_f_socket_t  socket;

    ngx_memcpy(&socket, payload, sizeof(sbx_f_socket_t));

    if (call->answered || call->settled || call->passed == NGX_INVALID_FILE) {
        return NGX_ERROR;
    }

    first = (call->sockets[0] == NGX_INVALID_FILE);

    if (socket.left > first
        || socket.family != (uint32_t) (first ? AF_INET : AF_INET6))
    {
        return NGX_ERROR;
    }

    flags = fcntl(call->passed, F_GETFL);
    size = sizeof(int);

    if (flags == -1 || !(flags & O_NONBLOCK)
        || getsockopt(call->passed, SOL_SOCKET, SO_TYPE, &type, &size) == -1
        || type != SOCK_STREAM)
    {
        return NGX_ERROR;
    }

    size = sizeof(int);

    if (getsockopt(call->passed, SOL_SOCKET, SO_DOMAIN, &domain, &size) == -1
        || (uint32_t) domain != socket.family)
    {
        return NGX_ERROR;
    }

    return NGX_OK;
}


/*
 * As OWNER, it does not say that anything was done.  With the last of them no
 * more descriptors are let in; some may be there already.
 */

ngx_int_t
ngx_http_sandbox_call_socket(ngx_http_sandbox_call_t *call,
    const u_char *payload)
{
    sbx_f_socket_t  socket;

    ngx_memcpy(&socket, payload, sizeof(sbx_f_socket_t));

    call->sockets[socket.family == AF_INET ? 0 : 1] = call->passed;
    call->passed = NGX_INVALID_FILE;

    if (socket.left == 0) {
        call->settled = 1;
        (void) ngx_http_sandbox_passed_refuse(call->connection->fd);
    }

    return NGX_OK;
}


/* They are of the broker: nobody shares them, and no close of them waits. */

void
ngx_http_sandbox_call_close_sockets(ngx_http_sandbox_call_t *call)
{
    ngx_uint_t  i;

    for (i = 0; i < SBX_SOCKETS_MAX; i++) {
        if (call->sockets[i] != NGX_INVALID_FILE) {
            (void) close(call->sockets[i]);
            call->sockets[i] = NGX_INVALID_FILE;
        }
    }
}
