/*
 * The socket that a call brings: of the broker's making, and connected to one
 * that the call's session has.
 */

#include "ngx_http_sandbox_call.h"
#include "ngx_http_sandbox_passed.h"


/*
 * The broker's, before init has the call: what comes later is a session's, and
 * it may keep what it passes and hold the worker up by it.
 */

ngx_int_t
ngx_http_sandbox_call_check_socket(ngx_http_sandbox_call_t *call,
    const u_char *payload, size_t len)
{
    int        type, domain, flags;
    socklen_t  size;

    if (call->answered || call->settled || call->passed == NGX_INVALID_FILE) {
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

    return getsockopt(call->passed, SOL_SOCKET, SO_DOMAIN, &domain, &size)
           == 0
           && domain == AF_UNIX
           ? NGX_OK : NGX_ERROR;
}


/*
 * As OWNER, it does not say that anything was done.  No more descriptors are
 * let in; some may be there already.
 */

ngx_int_t
ngx_http_sandbox_call_socket(ngx_http_sandbox_call_t *call)
{
    call->socket = call->passed;
    call->passed = NGX_INVALID_FILE;
    call->settled = 1;

    (void) ngx_http_sandbox_passed_refuse(call->connection->fd);

    return NGX_OK;
}
