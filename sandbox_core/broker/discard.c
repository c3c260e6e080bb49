/*
 * Closing what a peer has sent.  A descriptor that somebody else chose may
 * make close() wait, for as long as he likes: a TCP socket with SO_LINGER, a
 * file of a FUSE server of his own; or, where it is a socket that is ours to
 * use, such a one in its queue.  So they are closed by threads that do
 * nothing else, and that signals keep from lingering; the loop waits for
 * none of them.  While too many wait to be closed, no calls are taken.
 *
 * As with the writers of records: nothing but system calls in the threads.
 */

#include "broker.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>


#define SBX_DISCARD_NUDGE   50                /* ms */
#define SBX_DISCARD_STACK   (64 * 1024)


static void *sbx_discard_thread(void *data);
static void sbx_discard_nudge(sbx_timer_t *timer);
static void sbx_discard_free(sbx_discard_t *d);


int
sbx_discard_open(sbx_broker_t *b, sbx_error_t *e)
{
    int             rc;
    sigset_t        all, old;
    sbx_discard_t  *d;
    pthread_attr_t  attr;

    d = calloc(1, sizeof(sbx_discard_t));

    if (d == NULL) {
        return sbx_error(e, ENOMEM, SBX_E_INTERNAL, "out of memory");
    }

    b->discard = d;
    d->users = 1;
    d->pipe[0] = -1;
    d->pipe[1] = -1;
    d->timer.handler = sbx_discard_nudge;
    d->timer.data = b;

    if (pipe2(d->pipe, O_CLOEXEC) == -1
        || fcntl(d->pipe[1], F_SETFL, O_NONBLOCK) == -1)
    {
        return sbx_error(e, errno, SBX_E_INTERNAL, "pipe2() failed");
    }

    (void) sigfillset(&all);
    (void) sigdelset(&all, SIGUSR1);
    (void) pthread_sigmask(SIG_SETMASK, &all, &old);
    (void) pthread_attr_init(&attr);
    (void) pthread_attr_setstacksize(&attr, SBX_DISCARD_STACK
                                            + PTHREAD_STACK_MIN);

    rc = 0;

    while (rc == 0 && d->nthreads < SBX_DISCARDERS) {
        (void) __atomic_add_fetch(&d->users, 1, __ATOMIC_RELAXED);
        rc = pthread_create(&d->threads[d->nthreads], &attr,
                            sbx_discard_thread, d);

        if (rc != 0) {
            (void) __atomic_sub_fetch(&d->users, 1, __ATOMIC_RELAXED);
            break;
        }

        d->nthreads++;
    }

    (void) pthread_attr_destroy(&attr);
    (void) pthread_sigmask(SIG_SETMASK, &old, NULL);

    if (d->nthreads == 0) {
        return sbx_error(e, rc, SBX_E_UNAVAILABLE,
                         "pthread_create() failed");
    }

    return 0;
}


static void *
sbx_discard_thread(void *data)
{
    int             fd;
    ssize_t         n;
    sbx_discard_t  *d;
    struct linger   none;

    d = data;
    memset(&none, 0, sizeof(struct linger));

    for ( ;; ) {
        n = read(d->pipe[0], &fd, sizeof(fd));

        if (n == -1 && errno == EINTR) {
            continue;
        }

        if (n != sizeof(fd)) {
            sbx_discard_free(d);
            return NULL;
        }

        (void) setsockopt(fd, SOL_SOCKET, SO_LINGER, &none, sizeof(none));
        (void) close(fd);

        (void) __atomic_sub_fetch(&d->pending, 1, __ATOMIC_RELEASE);
    }
}


void
sbx_discard(sbx_broker_t *b, int fd)
{
    ssize_t         n;
    sbx_discard_t  *d;

    d = b->discard;

    if (d == NULL) {
        /* the broker ends */
        (void) close(fd);
        return;
    }

    (void) __atomic_add_fetch(&d->pending, 1, __ATOMIC_ACQUIRE);
    n = write(d->pipe[1], &fd, sizeof(fd));

    if (n != sizeof(fd)) {
        /* the pipe holds more than sbx_discard_full() lets come */
        (void) __atomic_sub_fetch(&d->pending, 1, __ATOMIC_RELEASE);
        return;
    }

    if (d->timer.index == 0) {
        (void) sbx_timer_set(&b->loop, &d->timer, SBX_DISCARD_NUDGE);
    }
}


void
sbx_discard_all(sbx_broker_t *b, const int *fds, unsigned nfds)
{
    unsigned  i;

    for (i = 0; i < nfds; i++) {
        sbx_discard(b, fds[i]);
    }
}


int
sbx_discard_full(sbx_broker_t *b)
{
    return b->discard != NULL
           && __atomic_load_n(&b->discard->pending, __ATOMIC_ACQUIRE)
              > SBX_DISCARD_MAX;
}


/* Whoever lingers is interrupted; the others read on. */

static void
sbx_discard_nudge(sbx_timer_t *timer)
{
    unsigned        i;
    sbx_broker_t   *b;
    sbx_discard_t  *d;

    b = timer->data;
    d = b->discard;

    if (__atomic_load_n(&d->pending, __ATOMIC_ACQUIRE) == 0) {
        return;
    }

    for (i = 0; i < d->nthreads; i++) {
        (void) pthread_kill(d->threads[i], SIGUSR1);
    }

    (void) sbx_timer_set(&b->loop, &d->timer, SBX_DISCARD_NUDGE);
}


/* The threads end by the end of the pipe; one that hangs is left behind. */

void
sbx_discard_close(sbx_broker_t *b)
{
    sbx_discard_t  *d;

    d = b->discard;

    if (d == NULL) {
        return;
    }

    sbx_timer_del(&b->loop, &d->timer);

    if (d->pipe[1] != -1) {
        (void) close(d->pipe[1]);
    }

    b->discard = NULL;
    sbx_discard_free(d);
}


static void
sbx_discard_free(sbx_discard_t *d)
{
    if (__atomic_sub_fetch(&d->users, 1, __ATOMIC_ACQ_REL) == 0) {
        if (d->pipe[0] != -1) {
            (void) close(d->pipe[0]);
        }

        free(d);
    }
}
