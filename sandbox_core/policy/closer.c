#include "closer.h"
#include "sandbox_util.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>


#define SBX_CLOSER_THREADS  8
#define SBX_CLOSER_STACK    (64 * 1024)
#define SBX_CLOSER_PIPE     (256 * 1024)
#define SBX_CLOSER_NAME     "sandbox-closer"   /* among a worker's others */


typedef struct {
    int         fd;
    unsigned   *count;
} sbx_closer_job_t;

struct sbx_closer_s {
    int         pipe[2];          /* of sbx_closer_job_t */
    unsigned    pending;
    unsigned    users;            /* its threads, and who opened it */
    int         signo;
    pthread_t   threads[SBX_CLOSER_THREADS];
    unsigned    nthreads;
};


static int sbx_closer_start(sbx_closer_t *c, unsigned threads);
static void *sbx_closer_thread(void *data);
static void sbx_closer_closed(sbx_closer_t *c, unsigned *count);
static void sbx_closer_leave(sbx_closer_t *c);


sbx_closer_t *
sbx_closer_open(unsigned threads, int signo, sbx_error_t *e)
{
    int            rc;
    sbx_closer_t  *c;

    c = calloc(1, sizeof(sbx_closer_t));

    if (c == NULL) {
        (void) sbx_error(e, ENOMEM, SBX_E_INTERNAL, "out of memory");
        return NULL;
    }

    c->users = 1;
    c->signo = signo;

    if (pipe2(c->pipe, O_CLOEXEC) == -1) {
        (void) sbx_error(e, errno, SBX_E_INTERNAL, "pipe2() failed");
        free(c);
        return NULL;
    }

    /* as it is, where the kernel gives no more */

    (void) fcntl(c->pipe[1], F_SETPIPE_SZ, SBX_CLOSER_PIPE);

    rc = fcntl(c->pipe[1], F_SETFL, O_NONBLOCK) == -1
         ? errno : sbx_closer_start(c, threads);

    if (c->nthreads == 0) {
        (void) sbx_error(e, rc, SBX_E_UNAVAILABLE,
                         "threads that close cannot be started");
        sbx_closer_done(c, 0);
        return NULL;
    }

    return c;
}


/* Of all that are wanted one will do. */

static int
sbx_closer_start(sbx_closer_t *c, unsigned threads)
{
    int             rc;
    sigset_t        all, old;
    pthread_attr_t  attr;

    (void) sigfillset(&all);

    if (c->signo != 0) {
        (void) sigdelset(&all, c->signo);
    }

    (void) pthread_sigmask(SIG_SETMASK, &all, &old);
    (void) pthread_attr_init(&attr);
    (void) pthread_attr_setstacksize(&attr, SBX_CLOSER_STACK
                                            + PTHREAD_STACK_MIN);

    rc = 0;

    while (c->nthreads < threads && c->nthreads < SBX_CLOSER_THREADS) {
        (void) __atomic_add_fetch(&c->users, 1, __ATOMIC_RELAXED);
        rc = pthread_create(&c->threads[c->nthreads], &attr,
                            sbx_closer_thread, c);

        if (rc != 0) {
            (void) __atomic_sub_fetch(&c->users, 1, __ATOMIC_RELAXED);
            break;
        }

        c->nthreads++;
    }

    (void) pthread_attr_destroy(&attr);
    (void) pthread_sigmask(SIG_SETMASK, &old, NULL);

    return rc;
}


/* Nothing but system calls. */

static void *
sbx_closer_thread(void *data)
{
    ssize_t            n;
    sbx_closer_t      *c;
    struct linger      none;
    sbx_closer_job_t   job;

    c = data;
    memset(&none, 0, sizeof(struct linger));
    (void) prctl(PR_SET_NAME, SBX_CLOSER_NAME);

    for ( ;; ) {
        n = read(c->pipe[0], &job, sizeof(job));

        if (n == -1 && errno == EINTR) {
            continue;
        }

        if (n != sizeof(job)) {
            sbx_closer_leave(c);
            return NULL;
        }

        (void) setsockopt(job.fd, SOL_SOCKET, SO_LINGER, &none,
                          sizeof(none));
        (void) close(job.fd);

        sbx_closer_closed(c, job.count);
    }
}


static void
sbx_closer_closed(sbx_closer_t *c, unsigned *count)
{
    if (count != NULL) {
        (void) __atomic_sub_fetch(count, 1, __ATOMIC_RELEASE);
    }

    (void) __atomic_sub_fetch(&c->pending, 1, __ATOMIC_RELEASE);
}


void
sbx_closer_close(sbx_closer_t *c, int fd, unsigned *count)
{
    sbx_closer_job_t  job;

    if (c == NULL) {
        (void) close(fd);
        return;
    }

    memset(&job, 0, sizeof(job));
    job.fd = fd;
    job.count = count;

    (void) __atomic_add_fetch(&c->pending, 1, __ATOMIC_ACQUIRE);

    if (count != NULL) {
        (void) __atomic_add_fetch(count, 1, __ATOMIC_ACQUIRE);
    }

    if (write(c->pipe[1], &job, sizeof(job)) != sizeof(job)) {
        /* the pipe holds thousands: more than who looks at what is pending
         * lets come */
        (void) close(fd);
        sbx_closer_closed(c, count);
    }
}


unsigned
sbx_closer_pending(const sbx_closer_t *c)
{
    return c != NULL ? __atomic_load_n(&c->pending, __ATOMIC_ACQUIRE) : 0;
}


void
sbx_closer_nudge(sbx_closer_t *c)
{
    unsigned  i;

    for (i = 0; i < c->nthreads; i++) {
        (void) pthread_kill(c->threads[i], c->signo);
    }
}


/* The threads end by the end of the pipe. */

void
sbx_closer_done(sbx_closer_t *c, int wait)
{
    unsigned  i;

    if (c == NULL) {
        return;
    }

    (void) close(c->pipe[1]);

    for (i = 0; wait && i < c->nthreads; i++) {
        (void) pthread_join(c->threads[i], NULL);
    }

    sbx_closer_leave(c);
}


static void
sbx_closer_leave(sbx_closer_t *c)
{
    if (__atomic_sub_fetch(&c->users, 1, __ATOMIC_ACQ_REL) == 0) {
        (void) close(c->pipe[0]);
        free(c);
    }
}
