/*
 * What leads out of sessions, as the broker has it: the egress, which is a
 * process of its own, and the sockets in sessions' network namespaces that are
 * handed to it.  Included by broker.h.
 */

#ifndef SBX_BROKER_NETWORK_H
#define SBX_BROKER_NETWORK_H

#include "egress_wire.h"
#include "isolate.h"
#include "list.h"
#include "loop.h"


/* 65,536 host ids, of a session or of the egress; .first 0: none. */

typedef struct {
    uint64_t        first;
    uint32_t        cell;            /* index in broker->ids */
    uint32_t        slot;
} sbx_slot_t;


/* Of a session. */

typedef struct {
    sbx_node_t        todo;          /* in broker->outlet.todo */
    sbx_egress_op_t   op;            /* that is to be sent; or 0 */
    int               traffic;       /* memfd of a sbx_traffic_t */
    int               fds[SBX_NET_FDS];     /* not yet handed over */
    char             *rules;         /* info.network_size bytes */
    sbx_traffic_t     seen;          /* of the page, the last time */
    uint64_t          second;        /* in which a refusal was told */
    uint32_t          more;          /* refusals since, that were not */
    unsigned          told:1;        /* the egress may know it */
    unsigned          routed:1;      /* it has once had a network */
    unsigned          untold:1;      /* init, for want of room */
    uint32_t          unheard;       /* refusals, while nobody listened */
} sbx_way_t;


/* Of the broker: the egress of the node. */

typedef struct {
    sbx_event_t       control_event;
    sbx_event_t       pidfd_event;
    sbx_timer_t       timer;         /* READY is due, or it is to be started,
                                        or killed again */
    sbx_timer_t       pump;          /* more of .todo; or it is stuck */
    sbx_timer_t       watch;         /* it is to be asked */
    int               control;
    int               pidfd;
    pid_t             pid;           /* 0: none runs */
    uid_t             uid;           /* its own */
    sbx_slot_t        slot;
    sbx_node_t        todo;          /* sessions */
    sbx_node_t        revoked;       /* sessions that are gone */
    uint32_t          nrevoked;
    sbx_node_t        listeners;     /* calls: REFUSALS */
    uint64_t          stuck;         /* us: since when it takes nothing; 0 */
    uint64_t          started;       /* us */
    uint64_t          delay;         /* ms, before the next start */
    uint64_t          looked;        /* us: at resolv.conf */
    int64_t           resolv[4];     /* what it was then */
    uint64_t          restarts;
    uint64_t          refused[SBX_REFUSED_REASONS];
    uint64_t          sent;          /* by sessions that have ended */
    uint64_t          received;
    uint64_t          second;        /* and the refusals that were told */
    uint64_t          told;          /* in it */
    uint64_t          lines_at;      /* us: a second of log lines began */
    uint32_t          lines;
    uint32_t          unlogged;
    uint32_t          asked;         /* times since it last said anything */
    unsigned          ask:1;         /* ASK is to be sent */
    unsigned          wanted:1;
    unsigned          ready:1;
    unsigned          killed:1;
    unsigned          unkept:1;      /* the keeper had no room for it */
    unsigned          adopted:1;     /* it has been ready to another broker */
    unsigned          configure:1;   /* CONFIG is to be sent */
    unsigned          failing:1;     /* the last start came to nothing */
    unsigned          unfit:1;       /* it has not taken what it was told */
} sbx_outlet_t;


/* A session that is gone, and that the egress is to forget. */

typedef struct {
    sbx_node_t        link;
    char              id[SBX_ID_MAX + 8];
} sbx_revoked_t;


typedef struct sbx_broker_s    sbx_broker_t;
typedef struct sbx_session_s   sbx_session_t;
typedef struct sbx_call_out_s  sbx_call_out_t;


/* egress.c: the process */
void sbx_outlet_open(sbx_broker_t *b);
void sbx_outlet_close(sbx_broker_t *b);
/* From the keeper's store; fds are taken over. */
void sbx_outlet_adopt(sbx_broker_t *b, pid_t pid, uint64_t first,
    const int *fds);
/* After the ids are known: keeps it, or lets it go. */
void sbx_outlet_adopted(sbx_broker_t *b);
/* The configuration is new. */
void sbx_outlet_configure(sbx_broker_t *b);
/* Waits a moment for a first certificate, where sessions are to have it. */
void sbx_outlet_await(sbx_broker_t *b);
/* 1: it was its end that the keeper has told of. */
int sbx_outlet_exited(sbx_broker_t *b, pid_t pid);
/* It is told what there is to tell, when there is time. */
void sbx_outlet_soon(sbx_broker_t *b);
/* It is ready: from now on it is to be there when it is asked. */
void sbx_outlet_watch_over(sbx_broker_t *b);
/* It has done what it may not: another one is started. */
int sbx_outlet_keep(sbx_broker_t *b);
void sbx_outlet_kill(sbx_broker_t *b, const char *why);
/* 1: it should run, by what configuration says, and does not. */
int sbx_outlet_lacking(const sbx_broker_t *b);
void sbx_outlet_check(const sbx_broker_t *b, sbx_f_check_t *check);
/* The certificate that the template's sessions trust, the caller's; *size 0:
 * they trust none.  -1: there is none yet. */
int sbx_outlet_trust(const sbx_broker_t *b, const char *template,
    char **pem, size_t *size, sbx_error_t *e);

/* egress_send.c: what it is told */
/* As much as it takes. */
void sbx_outlet_send(sbx_broker_t *b);
/* What it has said. */
void sbx_outlet_read(sbx_broker_t *b);
/* resolv.conf is another one than was sent. */
int sbx_outlet_resolv_changed(sbx_broker_t *b);

/* network.c: sessions */
void sbx_way_open(sbx_session_t *s);
int sbx_way_page(sbx_session_t *s, sbx_error_t *e);
void sbx_way_close(sbx_session_t *s);
/* What would give the machine what a network needs; NULL: it has it. */
const char *sbx_way_lacks(const sbx_broker_t *b, uint32_t mode);
/* Whether a session may have it; at is where it is asked for. */
int sbx_way_admit(const sbx_broker_t *b, const char *template, uint32_t mode,
    const void *rules, size_t size, const char *at, sbx_error_t *e);
/* The way out of the namespace: made, made once more, or taken away. */
int sbx_way_make(sbx_session_t *s, sbx_error_t *e);
int sbx_way_remake(sbx_session_t *s);
void sbx_way_unmake(sbx_session_t *s);
/* What info says is true from now on: the egress and init are told. */
void sbx_way_follow(sbx_session_t *s, uint32_t before);
/* A session of an earlier broker's. */
void sbx_way_adopt(sbx_session_t *s);
/* The session ends: the egress is to forget it. */
void sbx_way_cut(sbx_session_t *s);
/* The egress has been told what it was to know of it. */
void sbx_way_sent(sbx_session_t *s);
/* The egress is gone; another one is there: all is granted again. */
void sbx_way_lost(sbx_broker_t *b);
void sbx_way_renew(sbx_broker_t *b);
/* Init, unless it takes nothing now. */
void sbx_way_tell(sbx_session_t *s);
void sbx_way_usage(sbx_session_t *s, sbx_usage_t *usage);
void sbx_way_metrics(const sbx_broker_t *b, sbx_f_metrics_t *m);
/* A session of an egress's record; what it may say is checked. */
void sbx_way_refused(sbx_broker_t *b, const sbx_egress_record_t *record);
void sbx_way_listen(sbx_broker_t *b, sbx_call_out_t *call,
    const void *body);


#endif
