/*
 * Records of sessions: <sessions>/<id>/record, written whole (a temporary,
 * fsync, rename, fsync of the directory) by threads of their own, so that a
 * slow disk delays the call that waits for it and nothing else.
 */

#ifndef SBX_RECORD_H
#define SBX_RECORD_H

#include "sandbox_wire.h"

#include <pthread.h>


#define SBX_RECORD_NAME      "record"
#define SBX_RECORD_TEMP      "record.new"
#define SBX_RECORD_WRITERS   4

typedef struct {
    uint32_t          magic;
    uint32_t          version;
    uint64_t          sum;              /* of everything after it */
    uint64_t          size;             /* of the whole file */
    uint64_t          uid_first;
    sbx_f_session_t   info;
    char              key[SBX_KEY_MAX + 8];
    uint8_t           digest[16];
    uint32_t          meta_size;        /* follow the header */
    uint32_t          env_size;
    uint32_t          network_size;     /* rules, last */
    uint32_t          pooled;           /* nobody's: there are no names */
    uint32_t          routed;           /* it has once had a network */
    uint32_t          pad;
    int64_t           ahead;            /* sbx_clock_ahead() of its times */
} sbx_record_head_t;

typedef struct sbx_record_job_s  sbx_record_job_t;

struct sbx_record_job_s {
    sbx_record_job_t  *next;
    void              *session;         /* NULL: nobody waits any more */
    int                dir;             /* owned */
    int                err;             /* the outcome: an errno, or 0 */
    const char        *name;            /* SBX_RECORD_NAME, or another's */
    unsigned           lazy:1;          /* done when it is written: see
                                           record.c */
    size_t             size;
    uint8_t            data[];
};

typedef struct {
    pthread_mutex_t    lock;
    pthread_cond_t     wake;
    pthread_t          threads[SBX_RECORD_WRITERS];
    unsigned           nthreads;
    sbx_record_job_t  *todo;
    sbx_record_job_t **todo_last;
    sbx_record_job_t  *done;
    int                parent;          /* the directory of sessions */
    int                event;           /* eventfd: .done is not empty */
    unsigned           stop:1;
} sbx_record_writer_t;


int sbx_record_writer_open(sbx_record_writer_t *w, int parent,
    sbx_error_t *e);
/* Finishes what is queued. */
void sbx_record_writer_close(sbx_record_writer_t *w);

/* Fills the sums and sizes of head; the job is the caller's until queued. */
sbx_record_job_t *sbx_record_job(sbx_record_head_t *head, const void *meta,
    const void *env, const void *network, int dir);
/* Any file of dir, whose name is a constant; NULL: errno. */
sbx_record_job_t *sbx_record_file(const char *name, const void *data,
    size_t size, int dir);
void sbx_record_queue(sbx_record_writer_t *w, sbx_record_job_t *job);
/* All that is done, as a list; the caller frees each, by
 * sbx_record_job_free(). */
sbx_record_job_t *sbx_record_done(sbx_record_writer_t *w);
void sbx_record_job_free(sbx_record_job_t *job);

/*
 * Reads and checks a record; *meta (NUL terminated) and *network, NULL if
 * there is none, are the caller's.  -1: missing or damaged.
 */
int sbx_record_read(int dir, sbx_record_head_t *head, char **meta,
    char **network, sbx_error_t *e);

/* FNV-1a. */
uint64_t sbx_record_sum(const void *p, size_t n, uint64_t sum);


#endif
