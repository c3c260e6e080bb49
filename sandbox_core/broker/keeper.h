#ifndef SBX_KEEPER_H
#define SBX_KEEPER_H

#include "link.h"
#include "options.h"

#include <signal.h>


#define SBX_KEEPER_SOCKET   "broker.sock"

/* us: one that dies sooner was no use; of too many in a row the last broker
 * gives up */
#ifdef SBX_FAULTS
#define SBX_KEEPER_LIVES    300000
#else
#define SBX_KEEPER_LIVES    5000000
#endif


typedef struct {
    sbx_link_t      msg;
    int             fds[SBX_LINK_FDS];
} sbx_kept_t;

typedef struct {
    sbx_options_t  *options;
    int             state;
    int             lock;
    int             listen;
    int             signals;
    int             link;
    sigset_t        old_mask;
    pid_t           broker;           /* 0: none runs */
    sbx_kept_t     *kept;
    size_t          nkept;
    size_t          kept_size;
    struct pollfd  *pfds;             /* kept_size, and two */
    sbx_link_t     *queue;            /* to the broker */
    size_t          nqueue;
    size_t          queue_size;
    uint64_t        started;
    uint64_t        broker_started;
    uint64_t        restart;          /* when; 0: not planned */
    uint64_t        delay;
    uint64_t        restarts;         /* of brokers that died */
    uint64_t        end_by;
    uint64_t        again;            /* when the link is tried once more,
                                         where no event tells; 0 */
    unsigned        end_tries;
    unsigned        ready:1;          /* a broker has once been ready */
    unsigned        had_control:1;
    unsigned        started_sent:1;
    unsigned        blocked:1;        /* the link is full */
    unsigned        ending:1;
    unsigned        end_sent:1;
    unsigned        done:1;
    sbx_error_t     error;            /* of a first start that failed */
} sbx_keeper_t;


/* Until everything has ended; the process's exit code. */
int sbx_keeper_main(sbx_options_t *options);

/* keeper_start.c: the directory, the lock, the socket, the rights. */
int sbx_keeper_start(sbx_keeper_t *k, sbx_error_t *e);
/* Written whole: a temporary, renamed. */
void sbx_keeper_pid_file(sbx_keeper_t *k, const char *name, pid_t pid);
/* One line to who started us; NULL: the start has succeeded. */
void sbx_keeper_report(sbx_keeper_t *k, const sbx_error_t *e);

/* keeper_store.c */
int sbx_keeper_store_open(sbx_keeper_t *k, sbx_error_t *e);
void sbx_keeper_store_close(sbx_keeper_t *k);
/* Takes fds over.  -1: there is no memory for it. */
int sbx_keeper_store(sbx_keeper_t *k, sbx_link_t *msg, int *fds);
/* A session by its name alone; NULL: it is not kept. */
sbx_kept_t *sbx_keeper_find(sbx_keeper_t *k, const sbx_link_t *msg);
/* The last one takes its place. */
void sbx_keeper_remove(sbx_keeper_t *k, sbx_kept_t *kept);

/* keeper.c */
int sbx_keeper_spawn(sbx_keeper_t *k, sbx_error_t *e);


/* What /proc shows of the keeper and of the broker is root's alone, and
 * neither leaves a core. */
int sbx_process_hide(sbx_error_t *e);
/* Open files up to the hard limit. */
void sbx_process_raise_files(void);


#endif
