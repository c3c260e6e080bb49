/*
 * Descriptors that came from a session: what shares them cannot make a worker
 * wait.
 */

#ifndef _NGX_HTTP_SANDBOX_PASSED_H_INCLUDED_
#define _NGX_HTTP_SANDBOX_PASSED_H_INCLUDED_


#include "ngx_http_sandbox.h"


/* Every descriptor that was passed is closed by this, unless nginx does; by
 * which session, or "". */
void ngx_http_sandbox_passed_close(const char *session, ngx_fd_t fd);

/* Closes one of ours into which some may have been passed, or whose other end
 * is watched: by which session, or "". */
void ngx_http_sandbox_passed_close_call(ngx_connection_t *c,
    const char *session, const char *watched);

/* Before nginx closes such a one: what it holds goes by itself. */
void ngx_http_sandbox_passed_part(ngx_fd_t fd, const char *session);

/* As ngx_recv(), where the kernel cannot refuse what is passed. */
ssize_t ngx_http_sandbox_passed_recv(ngx_connection_t *c, u_char *buf,
    size_t size, const char *session);

/* What comes out of band is in line.  NGX_OK, NGX_ERROR. */
ngx_int_t ngx_http_sandbox_passed_inline(ngx_fd_t fd);

/* Nothing is passed into a socket of ours any more: 0 where the kernel cannot
 * (before Linux 6.16). */
ngx_uint_t ngx_http_sandbox_passed_refuse(ngx_fd_t fd);

/*
 * What sbx_wire_recv_all() does, of a stream that nobody else reads, and no
 * descriptor is closed by it: with more than there are numbers for it is -1
 * (EMSGSIZE), and what came stays in the queue.
 */
ssize_t ngx_http_sandbox_passed_receive(ngx_fd_t fd, u_char *buf, size_t size,
    int fds[SBX_WIRE_FDS_ALL], unsigned *nfds, const char *session);

/* So many of the session's wait to be closed that it is to have no call that
 * may bring more. */
ngx_uint_t ngx_http_sandbox_passed_full(const char *session);

void ngx_http_sandbox_passed_init(ngx_cycle_t *cycle);
void ngx_http_sandbox_passed_exit(void);


#endif /* _NGX_HTTP_SANDBOX_PASSED_H_INCLUDED_ */
