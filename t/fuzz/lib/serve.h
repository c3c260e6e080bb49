/*
 * A process that serves a file call, for targets of the verbs: it has time,
 * and nobody who waits.  sbx_init_serve_next() and sbx_init_serve_frame() are
 * the target's.
 */

#ifndef SBX_FUZZ_SERVE_H
#define SBX_FUZZ_SERVE_H

#include "fuzz.h"

#include "init_file.h"


int
sbx_init_serve_flush(sbx_init_serve_t *s, sbx_error_t *e)
{
    (void) s;
    (void) e;

    return 0;
}


void
sbx_init_serve_alarm(sbx_init_serve_t *s, unsigned seconds)
{
    (void) s;
    must(seconds != 0);
}


int
sbx_init_serve_late(sbx_error_t *e)
{
    (void) e;

    return 0;
}


int
sbx_init_serve_kind(sbx_init_serve_t *s, sbx_init_kind_t kind,
    sbx_error_t *e)
{
    (void) s;
    (void) e;
    must(kind == SBX_INIT_KIND_LONG);

    return 0;
}


int
sbx_init_serve_lock(sbx_error_t *e)
{
    (void) e;

    return 0;
}


void
sbx_init_serve_unlock(void)
{
    /* void */
}


/* What other verbs would call. */

int
sbx_init_serve_fd(sbx_init_serve_t *s, sbx_frame_type_t type,
    const void *payload, size_t size, int fd, sbx_error_t *e)
{
    (void) s;
    (void) type;
    (void) payload;
    (void) size;
    (void) fd;
    (void) e;
    abort();
}


void
sbx_init_serve_renew(sbx_init_serve_t *s, unsigned seconds)
{
    sbx_init_serve_alarm(s, seconds);
}


int
sbx_init_hidden(const char *name)
{
    (void) name;
    abort();
}


void
sbx_init_serve(int call, int lock, sbx_init_share_t *own, int entered)
{
    (void) call;
    (void) lock;
    (void) own;
    (void) entered;
    abort();
}


void
sbx_init_serve_sweep(const char *path, int lock, sbx_init_share_t *own,
    int entered)
{
    (void) path;
    (void) lock;
    (void) own;
    (void) entered;
    abort();
}


#endif
