/*
 * What the library's own files share.  None of them is part of the helper.
 */

#ifndef SBX_SESSION_H
#define SBX_SESSION_H

#include "box.h"

#include <pthread.h>


typedef struct sbx_sandbox_run_s  sbx_sandbox_run_t;

struct sbx_sandbox_run_s {
    int                 socket;
    unsigned            cancelled;    /* the helper has been told */
    sbx_sandbox_run_t  *next;
};

struct sbx_sandbox_s {
    char                   *workspace;
    char                   *home;
    char                   *helper;
    char                  **writable;
    char                  **deny_write;
    char                  **deny_read;
    char                  **env;          /* allow-list, then the options' */
    sbx_limits_t            limits;
    sbx_backend_t           backend;
    sbx_memory_strategy_t   memory_strategy;
    unsigned                network:1;
    unsigned                require:1;
    unsigned                private:1;

    int                     keeper;       /* of a private workspace, or -1 */
    pid_t                   keeper_pid;

    pthread_mutex_t         mutex;        /* of what follows */
    pthread_cond_t          idle;
    unsigned                closed:1;
    unsigned                nruns;
    sbx_sandbox_run_t      *runs;
};


/* session_helper.c */
int sbx_helper_find(sbx_sandbox_t *sb, const char *path, sbx_error_t *e);
int sbx_helper_environment(sbx_sandbox_t *sb, const char *const *env,
    sbx_error_t *e);
void sbx_helper_request(const sbx_sandbox_t *sb, sbx_box_op_t op,
    sbx_box_request_t *request);
/* fds: input (or none), output, error.  The socket is the caller's. */
int sbx_helper_start(const sbx_sandbox_t *sb, sbx_box_request_t *request,
    const sbx_sandbox_command_t *c, const int *fds, unsigned nfds,
    int *fd, pid_t *pid, sbx_error_t *e);
/* Blocks; -1 for an answer that is an error, too. */
int sbx_helper_answer(int fd, sbx_box_answer_t *answer, sbx_error_t *e);
/* Says that this is the end, waits for it, closes. */
void sbx_helper_end(int fd, pid_t pid);


#endif
