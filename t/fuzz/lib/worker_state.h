/*
 * What the files of the worker share: worker.c makes requests, and turns
 * events; worker_nginx.c is what of nginx is not nginx's own, and looks at
 * answers; worker_core.c is the broker, and the init behind it.
 */

#ifndef NGX_FUZZ_WORKER_STATE_H
#define NGX_FUZZ_WORKER_STATE_H

#include "worker.h"


#define WORKER_BODY   (1 << 20)


typedef struct {
    ngx_cycle_t           cycle;
    ngx_log_t             log;
    ngx_connection_t      client;
    int                   door[2];     /* of the worker, of the broker */
    ngx_uint_t            logged;      /* levels, as bits */

    /* the request that goes on, and what it has answered */
    ngx_http_request_t   *request;     /* NULL: all of it is gone */
    ngx_uint_t            over;
    ngx_uint_t            finals;      /* but for those of NGX_DONE */
    ngx_int_t             final;
    ngx_uint_t            status;
    ngx_uint_t            header_only;
    ngx_uint_t            whole;       /* the end of the body has come */
    char                  type[128];
    u_char                answer[WORKER_BODY];
    size_t                answer_len;
    ngx_uint_t            answer_lost;    /* some of it: no more is known */
    ngx_uint_t            told;        /* METAs, and so many more if bad */
    const uint8_t        *said;        /* by the client, not read yet */
    size_t                said_len;
} worker_t;

extern worker_t  worker;


/* worker_nginx.c */
void worker_events(void);
void worker_over(ngx_http_request_t *r);
int worker_json(const void *text, size_t n);
void worker_check_answer(void);

/* worker.c: until nothing moves any more */
void worker_turns(void);

/* worker_core.c */
/* Takes what the worker has sent: calls, and frames into them. */
void worker_core(void);
/* A message for the last call, or the one before it. */
void worker_core_say(unsigned kind, unsigned how, const uint8_t *p, size_t n);
/* It is gone: no call has another side. */
void worker_core_gone(void);


#endif
