/*
 * The record of a session that is created has to outlive the broker, as its
 * processes do, but not the machine, as nothing of it does: it is in place
 * once it is renamed, and the disk gets it when the kernel likes (.lazy).  All
 * else is flushed before it counts.
 *
 * The threads that write records do nothing but system calls on what they
 * are handed: no malloc, no stdio, no log.  The main thread clones sessions'
 * first processes, and a lock of the C library that another thread held at
 * that moment would stay held in the child for ever.
 */

#include "record.h"
#include "sandbox_fault.h"
#include "sandbox_util.h"
#include "wire.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/stat.h>


#define SBX_RECORD_MAGIC     0x52584253u      /* "SBXR" */
#define SBX_RECORD_VERSION   6
#define SBX_RECORD_MAX       (sizeof(sbx_record_head_t) + SBX_META_MAX        \
                              + SBX_ENV_MAX + SBX_NETWORK_SIZE)
#define SBX_RECORD_BASIS     0xcbf29ce484222325u


static void *sbx_record_thread(void *data);
static int sbx_record_write(sbx_record_writer_t *w, sbx_record_job_t *job);
static int sbx_record_undo(const sbx_record_job_t *job);
static int sbx_record_check(const sbx_record_head_t *head, size_t size,
    const uint8_t *rest, sbx_error_t *e);
static size_t sbx_record_rest(const sbx_record_head_t *head);
static char *sbx_record_part(const uint8_t *from, size_t size);


uint64_t
sbx_record_sum(const void *p, size_t n, uint64_t sum)
{
    const uint8_t  *byte;

    if (sum == 0) {
        sum = SBX_RECORD_BASIS;
    }

    for (byte = p; n != 0; n--, byte++) {
        sum ^= *byte;
        sum *= 0x100000001b3u;
    }

    return sum;
}


int
sbx_record_writer_open(sbx_record_writer_t *w, int parent, sbx_error_t *e)
{
    int       rc;
    sigset_t  all, old;

    memset(w, 0, sizeof(sbx_record_writer_t));
    w->todo_last = &w->todo;
    w->parent = parent;

    w->event = eventfd(0, EFD_CLOEXEC|EFD_NONBLOCK);

    if (w->event == -1) {
        return sbx_error(e, errno, SBX_E_INTERNAL, "eventfd() failed");
    }

    (void) pthread_mutex_init(&w->lock, NULL);
    (void) pthread_cond_init(&w->wake, NULL);

    /* signals are the main thread's */

    (void) sigfillset(&all);
    (void) pthread_sigmask(SIG_SETMASK, &all, &old);

    rc = 0;

    while (rc == 0 && w->nthreads < SBX_RECORD_WRITERS) {
        rc = pthread_create(&w->threads[w->nthreads], NULL,
                            sbx_record_thread, w);
        w->nthreads += rc == 0;
    }

    (void) pthread_sigmask(SIG_SETMASK, &old, NULL);

    if (w->nthreads == 0) {
        return sbx_error(e, rc, SBX_E_UNAVAILABLE,
                         "pthread_create() failed");
    }

    return 0;
}


void
sbx_record_writer_close(sbx_record_writer_t *w)
{
    unsigned           i;
    sbx_record_job_t  *job, *next;

    if (w->nthreads == 0) {
        return;
    }

    (void) pthread_mutex_lock(&w->lock);
    w->stop = 1;
    (void) pthread_cond_broadcast(&w->wake);
    (void) pthread_mutex_unlock(&w->lock);

    for (i = 0; i < w->nthreads; i++) {
        (void) pthread_join(w->threads[i], NULL);
    }

    w->nthreads = 0;

    for (job = w->done; job != NULL; job = next) {
        next = job->next;
        sbx_record_job_free(job);
    }

    w->done = NULL;
    (void) close(w->event);
}


static void *
sbx_record_thread(void *data)
{
    uint64_t              one;
    ssize_t               n;
    sbx_record_job_t     *job;
    sbx_record_writer_t  *w;

    w = data;
    one = 1;

    (void) pthread_mutex_lock(&w->lock);

    for ( ;; ) {
        job = w->todo;

        if (job == NULL) {
            if (w->stop) {
                break;
            }

            (void) pthread_cond_wait(&w->wake, &w->lock);
            continue;
        }

        w->todo = job->next;

        if (w->todo == NULL) {
            w->todo_last = &w->todo;
        }

        (void) pthread_mutex_unlock(&w->lock);

        job->err = sbx_record_write(w, job);

        (void) pthread_mutex_lock(&w->lock);

        job->next = w->done;
        w->done = job;
        n = write(w->event, &one, sizeof(one));
        (void) n;
    }

    (void) pthread_mutex_unlock(&w->lock);

    return NULL;
}


static int
sbx_record_write(sbx_record_writer_t *w, sbx_record_job_t *job)
{
    sbx_auto_fd  fd = -1;

    fd = openat(job->dir, SBX_RECORD_TEMP,
                O_WRONLY|O_CREAT|O_TRUNC|O_CLOEXEC|O_NOFOLLOW, 0600);

    if (fd == -1 || sbx_write_all(fd, job->data, job->size) != 0
        || (!job->lazy && fsync(fd) != 0))
    {
        return sbx_record_undo(job);
    }

    SBX_FAULT("broker-record-written");

    if (renameat(job->dir, SBX_RECORD_TEMP, job->dir, job->name) != 0) {
        return sbx_record_undo(job);
    }

    SBX_FAULT("broker-record-renamed");

    if (!job->lazy && (fsync(job->dir) != 0 || fsync(w->parent) != 0)) {
        return sbx_record_undo(job);
    }

    return 0;
}


static int
sbx_record_undo(const sbx_record_job_t *job)
{
    int  err;

    err = errno;
    (void) unlinkat(job->dir, SBX_RECORD_TEMP, 0);

    return err;
}


sbx_record_job_t *
sbx_record_file(const char *name, const void *data, size_t size, int dir)
{
    sbx_record_job_t  *job;

    job = malloc(sizeof(sbx_record_job_t) + size);

    if (job == NULL) {
        return NULL;
    }

    memset(job, 0, sizeof(sbx_record_job_t));
    job->name = name;
    job->size = size;
    job->dir = fcntl(dir, F_DUPFD_CLOEXEC, 3);

    if (job->dir == -1) {
        free(job);
        return NULL;
    }

    memcpy(job->data, data, size);

    return job;
}


sbx_record_job_t *
sbx_record_job(sbx_record_head_t *head, const void *meta, const void *env,
    const void *network, int dir)
{
    size_t             size;
    uint8_t           *p;
    sbx_record_job_t  *job;

    size = sizeof(sbx_record_head_t) + sbx_record_rest(head);
    job = malloc(sizeof(sbx_record_job_t) + size);

    if (job == NULL) {
        return NULL;
    }

    memset(job, 0, sizeof(sbx_record_job_t));
    job->name = SBX_RECORD_NAME;
    job->size = size;
    job->dir = fcntl(dir, F_DUPFD_CLOEXEC, 3);

    if (job->dir == -1) {
        free(job);
        return NULL;
    }

    head->magic = SBX_RECORD_MAGIC;
    head->version = SBX_RECORD_VERSION;
    head->size = size;

    p = job->data + sizeof(sbx_record_head_t);

    if (head->meta_size != 0) {
        memcpy(p, meta, head->meta_size);
    }

    if (head->env_size != 0) {
        memcpy(p + head->meta_size, env, head->env_size);
    }

    if (head->network_size != 0) {
        memcpy(p + head->meta_size + head->env_size, network,
               head->network_size);
    }

    head->sum = sbx_record_sum(&head->size, sizeof(sbx_record_head_t)
                               - offsetof(sbx_record_head_t, size), 0);
    head->sum = sbx_record_sum(p, sbx_record_rest(head), head->sum);

    memcpy(job->data, head, sizeof(sbx_record_head_t));

    return job;
}


void
sbx_record_job_free(sbx_record_job_t *job)
{
    (void) close(job->dir);
    free(job);
}


void
sbx_record_queue(sbx_record_writer_t *w, sbx_record_job_t *job)
{
    job->next = NULL;

    (void) pthread_mutex_lock(&w->lock);
    *w->todo_last = job;
    w->todo_last = &job->next;
    (void) pthread_cond_signal(&w->wake);
    (void) pthread_mutex_unlock(&w->lock);
}


sbx_record_job_t *
sbx_record_done(sbx_record_writer_t *w)
{
    ssize_t            n;
    uint64_t           count;
    sbx_record_job_t  *list;

    n = read(w->event, &count, sizeof(count));
    (void) n;

    (void) pthread_mutex_lock(&w->lock);
    list = w->done;
    w->done = NULL;
    (void) pthread_mutex_unlock(&w->lock);

    return list;
}


/* Of what comes after it. */

static size_t
sbx_record_rest(const sbx_record_head_t *head)
{
    return (size_t) head->meta_size + head->env_size + head->network_size;
}


int
sbx_record_read(int dir, sbx_record_head_t *head, char **meta,
    char **network, sbx_error_t *e)
{
    size_t                  size;
    const uint8_t          *rest;
    struct stat             st;
    sbx_auto_fd             fd = -1;
    sbx_auto_free uint8_t  *data = NULL;

    *meta = NULL;
    *network = NULL;

    fd = openat(dir, SBX_RECORD_NAME, O_RDONLY|O_CLOEXEC|O_NOFOLLOW);

    if (fd == -1 || fstat(fd, &st) == -1) {
        return sbx_error(e, errno, SBX_E_INTERNAL, "there is no record");
    }

    if (st.st_size < (off_t) sizeof(sbx_record_head_t)
        || st.st_size > (off_t) SBX_RECORD_MAX)
    {
        return sbx_error(e, 0, SBX_E_INTERNAL,
                         "the record's size is %lld", (long long) st.st_size);
    }

    size = (size_t) st.st_size;
    data = malloc(size);

    if (data == NULL || sbx_read_full(fd, data, size) != (ssize_t) size) {
        return sbx_error(e, errno, SBX_E_INTERNAL, "cannot read the record");
    }

    memcpy(head, data, sizeof(sbx_record_head_t));
    rest = data + sizeof(sbx_record_head_t);

    if (sbx_record_check(head, size, rest, e) != 0) {
        return -1;
    }

    if (head->meta_size != 0) {
        *meta = sbx_record_part(rest, head->meta_size);

        if (*meta == NULL) {
            return sbx_error(e, ENOMEM, SBX_E_INTERNAL, "out of memory");
        }
    }

    if (head->network_size != 0) {
        *network = sbx_record_part(rest + head->meta_size + head->env_size,
                                   head->network_size);

        if (*network == NULL) {
            free(*meta);
            *meta = NULL;
            return sbx_error(e, ENOMEM, SBX_E_INTERNAL, "out of memory");
        }
    }

    return 0;
}


static char *
sbx_record_part(const uint8_t *from, size_t size)
{
    char  *part;

    part = malloc(size + 1);

    if (part != NULL) {
        memcpy(part, from, size);
        part[size] = '\0';
    }

    return part;
}


#define TERMINATED(field)  (memchr(field, '\0', sizeof(field)) != NULL)

static int
sbx_record_check(const sbx_record_head_t *head, size_t size,
    const uint8_t *rest, sbx_error_t *e)
{
    uint64_t                sum;
    const sbx_f_session_t  *info;

    info = &head->info;

    if (head->magic != SBX_RECORD_MAGIC
        || head->version != SBX_RECORD_VERSION || head->size != size
        || head->meta_size > SBX_META_MAX || head->env_size > SBX_ENV_MAX
        || head->network_size > SBX_NETWORK_SIZE
        || size != sizeof(sbx_record_head_t) + sbx_record_rest(head))
    {
        return sbx_error(e, 0, SBX_E_INTERNAL,
                         "the record is of another make or cut");
    }

    sum = sbx_record_sum(&head->size, sizeof(sbx_record_head_t)
                         - offsetof(sbx_record_head_t, size), 0);
    sum = sbx_record_sum(rest, sbx_record_rest(head), sum);

    if (sum != head->sum) {
        return sbx_error(e, 0, SBX_E_INTERNAL, "the record is damaged");
    }

    if (!TERMINATED(info->id) || !TERMINATED(info->tenant)
        || !TERMINATED(info->user) || !TERMINATED(info->template)
        || !TERMINATED(head->key)
        || !sbx_session_id_ok(info->id, strlen(info->id))
        || (!head->pooled
            && (!sbx_name_ok(info->tenant, strlen(info->tenant))
                || !sbx_name_ok(info->user, strlen(info->user))))
        || info->meta_size != head->meta_size
        || info->network > SBX_NETWORK_LISTS
        || info->network_size != head->network_size)
    {
        return sbx_error(e, 0, SBX_E_INTERNAL, "the record is nonsense");
    }

    return 0;
}
