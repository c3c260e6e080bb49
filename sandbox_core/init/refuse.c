/*
 * What a call is told that cannot be served.
 */

#include "init.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>


void
sbx_init_error_fill(sbx_f_error_t *f, const sbx_error_t *e)
{
    memset(f, 0, sizeof(sbx_f_error_t));

    f->code = e->code;
    f->err = e->err;
    (void) sbx_copy_string(f->text, sizeof(f->text), e->text,
                           strnlen(e->text, sizeof(e->text) - 1));
}


void
sbx_init_error_soon(sbx_f_error_t *f, int err, const char *text)
{
    sbx_error_t  e;

    (void) sbx_error(&e, err, SBX_E_UNAVAILABLE, "%s", text);
    sbx_init_error_fill(f, &e);
    f->retry_after = 1;
}


void
sbx_init_error_quota(sbx_f_error_t *f, uint64_t limit)
{
    sbx_error_t  e;

    (void) sbx_error(&e, EAGAIN, SBX_E_QUOTA,
                     "the session has no room for another process");
    sbx_init_error_fill(f, &e);

    memcpy(f->scope, "session", sizeof("session"));
    memcpy(f->resource, "processes", sizeof("processes"));
    f->limit = limit;
    f->retry_after = 1;
}


void
sbx_init_call_full(sbx_f_error_t *error, const char *resource, unsigned limit)
{
    sbx_error_t  e;

    (void) sbx_error(&e, 0, SBX_E_QUOTA,
                     "the session has %u %s open, as many as it may", limit,
                     resource);
    sbx_init_error_fill(error, &e);

    memcpy(error->scope, "session", sizeof("session"));
    (void) sbx_copy_string(error->resource, sizeof(error->resource),
                           resource, strlen(resource));
    error->limit = limit;
    error->retry_after = 1;
}


/* An answer to a call that is nobody's yet; closes its socket. */

void
sbx_init_exec_refuse(int fd, const sbx_f_error_t *error)
{
    uint8_t  buf[sizeof(sbx_frame_t) + sizeof(sbx_f_error_t)];
    size_t   n;

    n = sbx_wire_header(buf, SBX_F_ERROR, sizeof(sbx_f_error_t));
    memcpy(buf + n, error, sizeof(sbx_f_error_t));

    (void) sbx_wire_send(fd, buf, sizeof(buf), NULL, 0, MSG_DONTWAIT);
    (void) close(fd);
}
