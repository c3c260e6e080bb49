/*
 * What the files of the broker share.  One thread runs all of it but the
 * writer of records; nothing here waits for a session, a worker or a disk
 * once the broker has been set up.
 */

#ifndef SBX_BROKER_H
#define SBX_BROKER_H

#include "closer.h"
#include "isolate.h"
#include "layers.h"
#include "link.h"
#include "list.h"
#include "log.h"
#include "loop.h"
#include "network.h"
#include "options.h"
#include "quota.h"
#include "record.h"
#include "sandbox_languages.h"
#include "setup.h"
#include "trial.h"
#include "wire.h"


#define SBX_SESSION_BUCKETS     4096
#define SBX_ENDED_MAX           4096      /* ended sessions remembered */
#define SBX_ENDED_KEPT          3600000   /* milliseconds */
#define SBX_ROUND               5000      /* us of one peer, before others */
#define SBX_CALLS_MAX           2048
#define SBX_CALL_QUEUE          (512 * 1024)   /* bytes not yet taken */
#define SBX_CONTROLS_MAX        256
#define SBX_TASKS_MAX           256       /* waiting for one init */
#define SBX_TASKS_LEAST         8         /* where too many wait for others */
#define SBX_TASKS_BYTES         24576     /* of its socket: some 64 tasks, 16
                                             of which may have a group */
#define SBX_TASK_WAIT           5000      /* ms */
#define SBX_IDS_SLOT            65536
#define SBX_IDS_CELL            128       /* slots of a cell */
#define SBX_IDS_CELLS           64        /* cells a broker may hold */
#define SBX_NUMBERS_STEP        1024
#define SBX_SESSION_TERM_WAIT   2000      /* ms from SIGTERM to SIGKILL */
#define SBX_CALL_STALL          60000     /* ms that a peer may not read */
#define SBX_DISCARDERS          8         /* threads */
#define SBX_DISCARD_MAX         1024      /* descriptors to be closed */
#define SBX_CHANGES_MAX         64        /* waiting, of one session */
#define SBX_HELD_MAX            256       /* calls that a session is resumed
                                             for */
#define SBX_RESUMED_LEAST       300000    /* ms that it has then, if its time
                                             was over */


typedef struct sbx_alter_s   sbx_alter_t;
typedef struct sbx_pool_s    sbx_pool_t;


/*
 * ---- calls that the broker answers --------------------------------------
 */

struct sbx_call_out_s {
    sbx_broker_t    *broker;
    sbx_node_t       link;            /* in broker->calls */
    sbx_node_t       wait;            /* in a list of a session */
    sbx_event_t      event;
    sbx_timer_t      timer;           /* while the peer does not read */
    int              fd;
    sbx_call_t       head;
    uint8_t         *queue;
    size_t           start;
    size_t           end;
    size_t           size;
    sbx_session_t   *created;         /* to be undone if the peer goes */
    sbx_session_t   *cursor;          /* LIST: the next one */
    sbx_list_t       filter;
    uint64_t         left;            /* LIST: sessions still to send */
    unsigned         waiting:1;       /* in .wait */
    unsigned         listing:1;
    unsigned         last:1;          /* the last frame is queued */
    unsigned         closed:1;
};


/*
 * ---- sessions ------------------------------------------------------------
 */

typedef enum {
    SBX_S_CREATING,       /* launched; waits for init and for the record */
    SBX_S_RUNNING,
    SBX_S_TERMINATING,    /* SIGTERM is sent, a while is given */
    SBX_S_CUTTING,        /* killed; init cuts its downloads */
    SBX_S_DYING,          /* init is killed; waits for its end */
    SBX_S_REMOVING        /* groups and files go */
} sbx_session_state_t;

typedef struct {
    sbx_node_t              link;
    sbx_cgroup_command_t   *group;
    uint32_t                number;
    unsigned                kernel:1;   /* an interpreter's */
    unsigned                counted:1;  /* by the quotas */
} sbx_command_t;

typedef struct {
    sbx_node_t       link;
    sbx_call_t       head;
    sbx_task_t       task;
    uint64_t         deadline;
    unsigned         nfds;
    int              fds[SBX_TASK_FDS_MAX + 8];  /* the call's; while it is
                                                    handed on, its group's */
} sbx_pending_t;


/*
 * What a session has used so far, by samples.
 */

typedef struct {
    sbx_timer_t      timer;
    sbx_f_sample_t  *ring;            /* oldest first; NULL: none yet */
    uint32_t         count;
    uint32_t         size;            /* that there is memory for */
    uint32_t         stride;          /* looks that make up a sample */
    uint32_t         looks;           /* that are in the last one */
    uint64_t         at;              /* us: of the last look */
    uint64_t         cpu;             /* us, used by then */
    sbx_f_sample_t   now;             /* after that one, for a call */
    uint64_t         now_at;
    unsigned         begun:1;         /* .cpu is known */
} sbx_sampled_t;


struct sbx_session_s {
    sbx_broker_t            *broker;
    sbx_node_t               link;      /* broker->sessions, oldest first */
    sbx_session_t           *next_id;   /* same bucket */
    sbx_f_session_t          info;
    sbx_session_state_t      state;
    char                    *meta;
    char                     key[SBX_KEY_MAX + 8];
    uint8_t                  digest[16];
    char                     request[SBX_REQUEST_ID + 8];
    int                      dir;
    uint64_t                 uid_first;
    uint32_t                 cell;      /* index in broker->ids */
    uint32_t                 slot;      /* both mean nothing without */
                                        /* .uid_first */

    /* its first process */
    pid_t                    pid;
    int                      pidfd;
    int                      control;
    int                      disk;      /* of its volume */
    int                      killer;    /* its groups' cgroup.kill */
    sbx_launched_t           launched;
    sbx_event_t              status_event;
    sbx_event_t              control_event;
    sbx_event_t              pidfd_event;

    sbx_cgroup_session_t    *cgroup;
    sbx_node_t               running;   /* sbx_command_t */
    sbx_node_t               kernels;   /* the same, of interpreters: they
                                           are in no quota, and idle */
    sbx_node_t               inherited; /* adopted: init may have them */
    sbx_node_t               lingering; /* their leader is over */
    sbx_command_t           *spare;
    uint32_t                 ncommands; /* of all these lists */
    uint32_t                 asks;      /* groups that init may ask for now */
    uint64_t                 asked_at;  /* us; .asks was right then */
    uint32_t                 number;    /* of the next command */
    uint32_t                 reserved;  /* numbers below are recorded */
    sbx_node_t               tasks;     /* sbx_pending_t */
    uint32_t                 ntasks;
    sbx_op_t                 untold;    /* init, for want of room; or 0 */
    uint32_t                 slow;      /* uses of .control, of late */
    uint64_t                 slow_since;    /* us */
    sbx_trial_t              trial;     /* whether that is of .control */

    sbx_node_t               creators;  /* calls */
    sbx_node_t               destroyers;
    sbx_error_t              error;     /* why it was not created */
    sbx_ended_t              ended;
    int64_t                  ended_at;
    int                      status;    /* of waitpid() */

    sbx_timer_t              timer;     /* of the state */
    sbx_timer_t              expiry;
    sbx_timer_t              groups;    /* spare and lingering */
    sbx_timer_t              queue;     /* deadlines of .tasks */
    sbx_timer_t              credit_timer;
    int64_t                  credit;    /* us of processor time */
    uint64_t                 credit_at;
    uint64_t                 credit_cpu;  /* used when it was charged */
    uint32_t                 backoff;

    sbx_record_job_t        *job;       /* being written */
    sbx_hold_t               hold;
    sbx_node_t               changes;   /* sbx_alter_t, the first of which
                                           is being written */
    uint32_t                 nchanges;
    sbx_node_t               held;      /* calls that it is resumed for */
    uint32_t                 nheld;
    uint64_t                 grace;     /* ms from SIGTERM to SIGKILL */

    sbx_event_t              still;     /* that it is frozen */
    sbx_timer_t              held_timer;    /* goes on with .held */
    sbx_timer_t              still_timer;
    sbx_timer_t              idle;
    sbx_sampled_t            sampled;
    uint64_t                 cpu_told;  /* us: by init, of commands that are
                                           over; of this broker's */
    uint64_t                 touched;   /* us: by a call or a command's end */
    sbx_way_t                way;

    sbx_pool_t              *pool;      /* that it waits in, or is made for */
    sbx_node_t               pooling;   /* in its .ready */
    const char              *kernel;    /* that is being made ready */
    unsigned                 nwarm;     /* interpreters that have become it */
    sbx_usage_t              warm;      /* what it used when it was ready */

    unsigned                 ready:1;
    unsigned                 recorded:1;
    unsigned                 stored:1;  /* the keeper has it */
    unsigned                 unkept:1;  /* no, it had no room */
    unsigned                 orphan:1;  /* not the keeper's child */
    unsigned                 exited:1;
    unsigned                 watched:1; /* its pidfd has told */
    unsigned                 keyed:1;   /* found by its key */
    unsigned                 ahead:1;   /* of other sessions */
    unsigned                 credit_again:1;
    unsigned                 adopted:1;
    unsigned                 costly:1;  /* .control is, and it ends */
    unsigned                 unasked:1; /* init, for want of room */
    unsigned                 frozen:1;
    unsigned                 asked:1;   /* init, whether it is busy */
    unsigned                 pooled:1;  /* nobody's yet */
    unsigned                 secret:1;  /* nobody has been told its name */
};


/*
 * ---- sessions that are made ahead ----------------------------------------
 */

struct sbx_pool_s {
    sbx_broker_t       *broker;
    sbx_pool_config_t   config;
    char               *env;          /* both in one block */
    char               *preload;
    uint64_t            root[2];      /* device and inode of its files */
    sbx_node_t          ready;        /* .pooling, oldest first */
    uint32_t            nready;
    uint64_t            hits;
    uint64_t            misses[SBX_MISSES];
    uint64_t            failures;
    uint64_t            again;        /* us: not to be tried before */
    uint32_t            backoff;      /* ms */
    unsigned            noted:1;      /* that it failed, in the log */
    unsigned            lacking:1;    /* the same of its kernels */
};

typedef struct {
    sbx_pool_t         *pool[SBX_POOLS_MAX];
    uint32_t            count;
    sbx_node_t          sessions;     /* nobody's, until they are gone */
    sbx_node_t          waiting;      /* creates, for one of them to go */
    sbx_session_t      *filling;
    sbx_timer_t         timer;
    uint64_t            touched;      /* us: the last call */
    uint64_t            began;        /* us: with .filling */
    uint64_t            rest;         /* us: nothing is made before */
    unsigned            next;         /* of .pool, to be filled */
    sbx_timer_t         room;         /* .waiting is looked at then */
    unsigned            half:1;       /* .filling is still to be launched */
} sbx_pools_t;


/*
 * ---- ids -----------------------------------------------------------------
 */

typedef struct {
    uint64_t      number;             /* of the cell, machine-wide */
    int           fd;                 /* the socket that reserves it */
    uint64_t      first;              /* id of slot 0 */
    uint32_t      slots;
    uint32_t      used;
    uint32_t      next;               /* where the search begins */
    uint8_t       taken[SBX_IDS_CELL];
    uint16_t      held[SBX_IDS_CELL]; /* by what an earlier broker left */
    uint8_t       unkept;             /* not yet in the keeper's store */
} sbx_cell_t;

typedef struct {
    uint64_t      first;
    uint64_t      count;
    sbx_cell_t    cells[SBX_IDS_CELLS];
    uint32_t      ncells;
} sbx_ids_t;


/*
 * ---- ended sessions ------------------------------------------------------
 */

typedef struct {
    uint64_t      sum;                /* of the rest */
    int64_t       ended_at;
    uint32_t      ended;
    uint32_t      pad;
    char          id[SBX_ID_MAX + 8];
    char          tenant[SBX_NAME_MAX + 8];
    char          user[SBX_NAME_MAX + 8];
} sbx_grave_t;

typedef struct {
    sbx_grave_t  *graves;             /* SBX_ENDED_MAX */
    uint32_t     *buckets;            /* index + 1 */
    uint32_t     *chain;
    uint32_t      next;
    int           fd;
} sbx_graves_t;


/*
 * ---- the broker ----------------------------------------------------------
 */

typedef struct {
    sbx_broker_t    *broker;
    sbx_node_t       link;
    sbx_event_t      event;
    sbx_timer_t      timer;           /* until it has said hello */
    int              fd;
    uint64_t         number;          /* in the keeper's store */
    uid_t            uid;
    gid_t            gid;
    sbx_timer_t      again;           /* takes no calls until then */
    unsigned         greeted:1;       /* HELLO_CONTROL */
    unsigned         watch:1;         /* HELLO_WATCH */
    unsigned         answer:1;        /* owed when the keeper has it */
} sbx_control_t;

/*
 * ---- languages -----------------------------------------------------------
 */

#define SBX_LANGUAGE_WANTS   12

typedef struct {
    char             name[40];
    char             command[400];
    unsigned         known:1;
    unsigned         there:1;
} sbx_language_want_t;

typedef struct {
    char                 name[SBX_LANGUAGE_MAX + 8];
    char                 lacks[128];      /* a program; "" none */
    char                 mend[400];
    unsigned             nwants;
    sbx_language_want_t  wants[SBX_LANGUAGE_WANTS];
} sbx_language_row_t;

typedef struct {
    char                 dir[SBX_PATH_MAX];
    char                 table[SBX_LANGUAGES_SIZE];
    size_t               size;
    sbx_language_row_t   rows[SBX_LANGUAGES_MAX];
    unsigned             nrows;
    sbx_timer_t          timer;           /* until it is looked */
    sbx_event_t          event;
    int                  fd;              /* of what the child says, or -1 */
    pid_t                pid;
    unsigned             row;             /* what it says next is of these */
    unsigned             want;
    unsigned             looked:1;
} sbx_languages_t;


typedef struct sbx_letter_s  sbx_letter_t;

struct sbx_broker_s {
    sbx_options_t   *options;
    sbx_loop_t       loop;
    int              state;           /* directories */
    uint8_t          token_key[SBX_TOKEN_KEY];
    int              sessions_dir;
    uint64_t         started;         /* us */
    uint64_t         open_files;      /* the hard limit */
    char             tag[8];          /* of this node and state directory */

    sbx_event_t      link_event;
    sbx_letter_t    *letters;         /* to the keeper, waiting */
    sbx_letter_t   **letters_last;
    sbx_timer_t      letters_timer;   /* where no event tells */
    sbx_timer_t      unkept_timer;    /* unkept.c */
    sbx_trial_probe_t  probe;         /* command_send.c */

    sbx_event_t      listen_event;
    sbx_timer_t      listen_timer;
    sbx_node_t       controls;
    uint32_t         ncontrols;
    uint32_t         ntasks;          /* that wait, of all sessions */
    uint64_t         control_number;

    sbx_node_t       calls;
    uint32_t         ncalls;

    sbx_config_t     config;
    sbx_error_t      problem;         /* why no session can be made */
    sbx_cgroup_t    *cgroup;
    sbx_storage_t   *storage;
    int              init_exe;
    void            *filter;
    size_t           filter_size;
    void            *files_filter;
    size_t           files_filter_size;
    void            *init_filter;
    size_t           init_filter_size;
    sbx_enforcement_t enforcement;
    sbx_layers_t     layers;
    sbx_error_t      cgroup_error;
    uint32_t         isolated;
    sbx_known_t      known;
    sbx_left_t       left;
    sbx_timer_t      setup_timer;     /* once more what has failed */
    uint64_t         setup_delay;     /* ms */

    sbx_node_t       sessions;
    sbx_session_t   *buckets[SBX_SESSION_BUCKETS];
    uint32_t         nsessions;
    uint32_t         nrunning;
    uint64_t         seq;

    sbx_ids_t        ids;
    sbx_graves_t     graves;
    sbx_record_writer_t  writer;
    sbx_event_t      writer_event;
    sbx_closer_t    *closer;
    sbx_timer_t      discard_timer;
    sbx_quotas_t     quotas;
    sbx_pools_t      pools;
    sbx_outlet_t     outlet;
    sbx_languages_t *languages;       /* NULL: none */
    uint64_t         ended[SBX_METRICS_ENDED];    /* sessions */
    uint64_t         over[SBX_METRICS_REASONS];   /* commands */
    uint64_t         over_cpu_us;
    uint64_t         restarts;        /* before this one */
    int64_t          started_ms;

    unsigned         based:1;         /* what sessions that run need */
    unsigned         probed:1;
    unsigned         configured:1;    /* what making them needs, too */
    unsigned         ever_configured:1;
    unsigned         restored:1;      /* by the keeper's store */
    unsigned         unkept:1;        /* the keeper lacks something */
    unsigned         config_unkept:1;
    unsigned         ending:1;
};


/* broker.c */
int sbx_broker_main(sbx_options_t *options);
/*
 * Tells the keeper; never waits.  fds are copied if they must.  -1: it will
 * not have what was to be stored; all else is told, or the broker ends and
 * is replaced by one that is told everything.
 */
int sbx_broker_tell(sbx_broker_t *b, sbx_link_type_t type, sbx_keep_t kind,
    uint64_t number, const sbx_session_t *s, const int *fds);
/* The same of a message that is all there but for its magic. */
int sbx_broker_post(sbx_broker_t *b, sbx_link_t *msg, const int *fds);
/* Every session ends, then the broker. */
void sbx_broker_end(sbx_broker_t *b);
/* Called when a session is gone. */
void sbx_broker_session_gone(sbx_broker_t *b);

/* clock.c: unix ms, by the wall's clock as it was looked at last. */
int64_t sbx_broker_clock_ms(void);
/* What that is ahead of the clock that only goes forward, in ms. */
int64_t sbx_clock_ahead(void);
/* Before anything is told or begun: the clock may have been set. */
void sbx_clock_look(sbx_broker_t *b);
void sbx_clock_shift(sbx_f_session_t *info, int64_t by);
/* Of a record, whose times were told when the clock was so far ahead. */
void sbx_clock_read(sbx_f_session_t *info, int64_t ahead);

/* discard.c: closes without waiting what a peer chose */
int sbx_discard_open(sbx_broker_t *b, sbx_error_t *e);
void sbx_discard(sbx_broker_t *b, int fd);
void sbx_discard_all(sbx_broker_t *b, const int *fds, unsigned nfds);
/* 1: take nothing more for a while. */
int sbx_discard_full(sbx_broker_t *b);
void sbx_discard_close(sbx_broker_t *b);

/* languages.c */
void sbx_languages_open(sbx_broker_t *b);
/* Begins to look for what the machine lacks; once. */
void sbx_languages_look(sbx_broker_t *b);
void sbx_languages_checks(sbx_broker_t *b,
    void (*check)(const sbx_f_check_t *c, void *data), void *data);
void sbx_languages_close(sbx_broker_t *b);

/* control.c */
int sbx_control_listen(sbx_broker_t *b, sbx_error_t *e);
int sbx_control_adopt(sbx_broker_t *b, uint64_t number, int fd);
void sbx_control_close_all(sbx_broker_t *b);

/* call.c: fd is taken over in any case */
sbx_call_out_t *sbx_call_make(sbx_broker_t *b, const sbx_call_t *head,
    int fd);
/* Queues a frame of two parts; -1: no memory or the queue is full, the call
 * is closed then. */
int sbx_call_frame(sbx_call_out_t *call, sbx_frame_type_t type,
    const void *data, size_t size, const void *more, size_t more_size);
void sbx_call_end(sbx_call_out_t *call, const sbx_f_end_t *end);
/* Sends what is queued; the call goes on. */
void sbx_call_push(sbx_call_out_t *call);
void sbx_call_error(sbx_call_out_t *call, const sbx_error_t *e);
void sbx_call_fail(sbx_call_out_t *call, const sbx_f_error_t *error);
/* Errors of a call that has no sbx_call_out_t yet. */
void sbx_call_refuse(sbx_broker_t *b, const sbx_call_t *head, int fd,
    const sbx_f_error_t *error);
void sbx_call_session_error(sbx_broker_t *b, const sbx_call_t *head,
    sbx_f_error_t *error);
void sbx_call_fill(sbx_f_error_t *error, const sbx_error_t *e);
void sbx_call_wait(sbx_call_out_t *call, sbx_node_t  *list);
void sbx_call_close(sbx_call_out_t *call);
/* The session goes: lists that are being sent step over it. */
void sbx_call_forget(sbx_broker_t *b, const sbx_session_t *s);

/* service.c */
void sbx_service_call(sbx_broker_t *b, sbx_call_out_t *call,
    const void *body);
int sbx_service_session(sbx_call_out_t *call, sbx_session_t *s,
    const sbx_usage_t *usage);
/* Of the call; NULL: it has been answered. */
sbx_session_t *sbx_service_find(sbx_broker_t *b, sbx_call_out_t *call);
/* More of a LIST, now that the queue is empty. */
void sbx_service_list(sbx_call_out_t *call);

/* pool.c: sessions that are made ahead */
void sbx_pool_open(sbx_broker_t *b);
void sbx_pool_close(sbx_broker_t *b);
/* The configuration is new, or whether sessions are taken. */
void sbx_pool_configure(sbx_broker_t *b);
sbx_pool_t *sbx_pool_find(const sbx_broker_t *b, const char *template);
/* Whether what it shows is still the template's. */
int sbx_pool_current(const sbx_pool_t *pool);
/* None of them is of use any more. */
void sbx_pool_empty(sbx_pool_t *pool);
/* A call has come: nothing is made ahead just now. */
void sbx_pool_touch(sbx_broker_t *b);
/* Something is to be made, when there is time. */
void sbx_pool_soon(sbx_broker_t *b);
/* Steps of one that is nobody's. */
void sbx_pool_started(sbx_session_t *s);
int sbx_pool_warmed(sbx_session_t *s, const sbx_record_t *record);
void sbx_pool_settle(sbx_session_t *s);
void sbx_pool_late(sbx_session_t *s);
/* An interpreter of it has ended. */
void sbx_pool_cold(sbx_session_t *s);
/* It ends. */
void sbx_pool_out(sbx_session_t *s);
void sbx_pool_let_go(sbx_session_t *s);
void sbx_pool_metrics(const sbx_broker_t *b, sbx_pool_metrics_t *m);

/* pool_take.c: giving them out */
/* One that becomes what is asked for and is being recorded, or NULL. */
sbx_session_t *sbx_pool_take(sbx_broker_t *b, const sbx_call_t *head,
    const sbx_create_t *body, const char *data);
/*
 * There was no room for a session.  1: one that is nobody's ends, and the
 * call, and *data, are taken up again when it is gone; 0: there is none.
 */
int sbx_pool_yield(sbx_broker_t *b, sbx_call_out_t *call,
    const sbx_create_t *body, char **data);
/* A session is gone. */
void sbx_pool_gone(sbx_broker_t *b);
/* The timer of that: creates that wait for room are tried again. */
void sbx_pool_room(sbx_timer_t *timer);

/* create.c */
/* One that waited for room. */
void sbx_create_again(sbx_broker_t *b, sbx_call_out_t *call,
    sbx_create_t *body, char **data);
/* Settles and checks its limits. */
int sbx_create_limits(sbx_broker_t *b, sbx_create_t *body, sbx_error_t *e);
/* Steps of a session's making: what it is, its directory (one that has none
 * is to be freed, all others to be ended), its groups, its first process. */
void sbx_create_info(sbx_session_t *s, const sbx_call_t *head,
    const sbx_create_t *body);
int sbx_create_dir(sbx_session_t *s, sbx_error_t *e);
int sbx_create_groups(sbx_session_t *s, sbx_error_t *e);
void sbx_create_group(const sbx_broker_t *b, const sbx_limits_t *limits,
    sbx_limits_t *group);
int sbx_create_launch(sbx_session_t *s, const char *env, size_t env_size,
    const char *rules, size_t rules_size, sbx_error_t *e);
/* Queued; without it nobody is answered. */
int sbx_create_record(sbx_session_t *s, sbx_error_t *e);
void sbx_create(sbx_broker_t *b, sbx_call_out_t *call,
    const sbx_create_t *body, int blob);
/* The session runs, or has failed: answers who waits for it. */
void sbx_create_answer(sbx_session_t *s);
/* Its metadata and the rules of its network, from the blob. */
int sbx_create_keep(sbx_session_t *s, const sbx_create_t *body,
    const char *data, sbx_error_t *e);
int sbx_create_copy(const char *from, size_t size, char **to,
    sbx_error_t *e);
/* The contents of a sealed memfd of just size bytes, the caller's. */
int sbx_create_read(int blob, size_t size, char **data, sbx_error_t *e);
/* The template that a name stands for: the built-in one has two. */
const char *sbx_create_means(const sbx_broker_t *b, const char *name);
/* Whose files a template has: its own, or "base". */
const char *sbx_create_root(const sbx_broker_t *b, const char *name);

/* session.c */
sbx_session_t *sbx_session_make(sbx_broker_t *b);
void sbx_session_insert(sbx_session_t *s);
/* Out of the table and the list again. */
void sbx_session_erase(sbx_session_t *s);
/* Its .seq has become known: among the others in that order. */
void sbx_session_order(sbx_session_t *s);
sbx_session_t *sbx_session_find(sbx_broker_t *b, const char *id);
/* One that runs, belongs to who calls, and has what the call needs. */
sbx_session_t *sbx_session_of_call(sbx_broker_t *b, const sbx_call_t *head);
/* 1: it is there, and has not what the call needs. */
int sbx_session_barred(sbx_broker_t *b, const sbx_call_t *head);
int sbx_session_launch(sbx_session_t *s, const char *env, size_t env_size,
    const char *rules, size_t rules_size, sbx_error_t *e);
int sbx_session_watch(sbx_session_t *s, sbx_error_t *e);
/* In the order that the keeper has them. */
void sbx_session_fds(const sbx_session_t *s, int fds[SBX_LINK_FDS]);
void sbx_session_recorded(sbx_session_t *s, int err);
void sbx_session_run(sbx_session_t *s);
/* Somebody knows its name, or is about to. */
void sbx_session_told(sbx_session_t *s);
void sbx_session_exited(sbx_broker_t *b, pid_t pid, int status);
void sbx_session_log(sbx_session_t *s, sbx_log_level_t level, int err,
    const char *text);

/* session_end.c */
void sbx_session_end(sbx_session_t *s, sbx_ended_t why, int kill_now);
/* What its init has said by now, before what is said of it since. */
void sbx_session_hear(sbx_session_t *s);
/* Its init serves no more, or must not. */
void sbx_session_lost(sbx_session_t *s, const char *why);
/* The steps of an end that its events and its timer take. */
void sbx_session_cut(sbx_session_t *s);
void sbx_session_kill(sbx_session_t *s);
void sbx_session_dying(sbx_session_t *s);
void sbx_session_remove(sbx_session_t *s);
void sbx_session_free(sbx_session_t *s);

/* command.c */
void sbx_command_call(sbx_session_t *s, const sbx_call_t *head, int fd,
    const void *body);
/* Init wants a group for an interpreter. */
void sbx_command_group(sbx_session_t *s, uint32_t token);
/* 1 a command, 2 an interpreter, or 0: no such command runs. */
int sbx_command_over(sbx_session_t *s, uint32_t number);
void sbx_command_reaped(sbx_session_t *s);
/* Whether too much waits for init to take one more. */
int sbx_command_crowded(const sbx_session_t *s);
/* Whether init may have one more group for an interpreter now. */
int sbx_command_may_ask(sbx_session_t *s);
/* 0, or -1 with what to refuse the call with; limits are an EXEC's. */
int sbx_command_check(sbx_session_t *s, const sbx_call_t *head,
    const sbx_exec_limits_t *limits, sbx_f_error_t *error);
void sbx_command_tick(sbx_timer_t *timer);
void sbx_command_queue_tick(sbx_timer_t *timer);
void sbx_command_flush(sbx_session_t *s);
int sbx_command_send(sbx_session_t *s, sbx_op_t op);
/* The same with a number and a descriptor (-1: none), which stays the
 * caller's. */
int sbx_command_send_with(sbx_session_t *s, sbx_op_t op, uint32_t token,
    int fd);
/* Before what is sent and comes costs anything. */
void sbx_command_costs(sbx_broker_t *b);
/* What else is sent to init, and all that comes: as sbx_wire_send() and
 * sbx_wire_recv_all(). */
ssize_t sbx_command_socket_send(sbx_session_t *s, const sbx_task_t *task,
    const int *fds, unsigned nfds);
ssize_t sbx_command_socket_recv(sbx_session_t *s, sbx_record_t *record,
    int *fds, unsigned *nfds);
/* The groups that there are follow limits that are to be the session's. */
int sbx_command_change(sbx_session_t *s, const sbx_limits_t *limits,
    sbx_error_t *e);
/* Once more what init had no room for. */
void sbx_command_retry(sbx_session_t *s);
/* FREEZE or THAW, now or when there is room: the last one counts. */
void sbx_command_tell(sbx_session_t *s, sbx_op_t op);
/* Forgets the groups (their files go with the session's) and refuses what
 * waits. */
void sbx_command_drop(sbx_session_t *s);
int sbx_command_numbers(sbx_session_t *s, int adopt);
sbx_command_t *sbx_command_find(sbx_session_t *s, uint32_t number);

/* command_port.c: passes one end of a link on a call to a port, whose socket
 * fd stays the caller's; *link is the other end, the caller's, for init. */
int sbx_command_link(int fd, int *link, sbx_error_t *e);

/* command_adopt.c: commands of an earlier broker */
int sbx_command_adopt(sbx_session_t *s, sbx_error_t *e);
/* Asks init which it has, now or when there is room; and what it answers. */
void sbx_command_ask(sbx_session_t *s);
void sbx_command_held(sbx_session_t *s, const sbx_record_t *record);

/* change.c: what can be changed of a session that runs */
void sbx_change_call(sbx_broker_t *b, sbx_call_out_t *call,
    const void *body, int blob);
/* Its time is over: it is paused. */
void sbx_change_pause(sbx_session_t *s);
/* It is resumed for the calls that are held; 0, or -1. */
int sbx_change_resume(sbx_session_t *s, sbx_error_t *e);
/* The record of the first change has been written, or not. */
void sbx_change_written(sbx_session_t *s, int err);
/* What the first change waited for stands still. */
void sbx_change_frozen(sbx_session_t *s);
/* Refuses what waits; the session ends. */
void sbx_change_drop(sbx_session_t *s);
/* Its processes and init's clocks as its status says. */
int sbx_change_freeze(sbx_session_t *s, int frozen, sbx_error_t *e);
/* The timer of its life, or of its pause. */
void sbx_change_clock(sbx_session_t *s);
/* Of a change that is not done yet, by its node in the session's list. */
void sbx_change_shift(sbx_node_t *node, int64_t by);
sbx_record_job_t *sbx_change_record(sbx_session_t *s,
    const sbx_f_session_t *info, const char *meta, const char *network);

/* resume.c: calls that a paused session is resumed for */
/* 1: such a call, which has been taken over. */
int sbx_resume_call(sbx_session_t *s, const sbx_call_t *head, int fd,
    const void *body);
/* It runs, and they go on; or e says why not. */
void sbx_resume_over(sbx_session_t *s, const sbx_error_t *e);
/* The session ends. */
void sbx_resume_drop(sbx_session_t *s);
void sbx_resume_tick(sbx_timer_t *timer);

/* freeze.c: until a session stands still */
void sbx_freeze_open(sbx_session_t *s);
/* 1: it does; 0: sbx_change_frozen() is called later. */
int sbx_freeze_await(sbx_session_t *s);
void sbx_freeze_close(sbx_session_t *s);

/* idle.c: sessions that nobody uses */
void sbx_idle_open(sbx_session_t *s);
void sbx_idle_start(sbx_session_t *s);
/* A call is there, or a command has ended. */
void sbx_idle_touch(sbx_session_t *s);
/* What init has answered. */
void sbx_idle_busy(sbx_session_t *s, uint32_t calls);
void sbx_idle_close(sbx_session_t *s);

/* samples.c: what a session uses, while it runs */
void sbx_samples_open(sbx_session_t *s);
/* It runs, or runs on. */
void sbx_samples_start(sbx_session_t *s);
/* It is paused. */
void sbx_samples_stop(sbx_session_t *s);
void sbx_samples_call(sbx_broker_t *b, sbx_call_out_t *call,
    const void *body);
/* One look more; it may become a sample of its own. */
void sbx_samples_add(sbx_sampled_t *d, const sbx_f_sample_t *sample);
void sbx_samples_close(sbx_session_t *s);

/* credit.c: who goes first where processors are short */
void sbx_credit_open(sbx_session_t *s);
/* The session begins something that somebody waits for. */
void sbx_credit_begin(sbx_session_t *s);
void sbx_credit_tick(sbx_timer_t *timer);
void sbx_credit_close(sbx_session_t *s);

/* ids.c */
int sbx_ids_open(sbx_broker_t *b, sbx_error_t *e);
/* A reservation from the store. */
void sbx_ids_adopt(sbx_broker_t *b, uint64_t number, int fd);
/* Of anybody; the slot that .first names; given back. */
int sbx_ids_slot(sbx_broker_t *b, sbx_slot_t *taken, sbx_error_t *e);
int sbx_ids_slot_again(sbx_broker_t *b, sbx_slot_t *taken);
void sbx_ids_slot_give(sbx_broker_t *b, sbx_slot_t *taken);
int sbx_ids_take(sbx_broker_t *b, sbx_session_t *s, sbx_error_t *e);
int sbx_ids_retake(sbx_broker_t *b, sbx_session_t *s, uint64_t first);
/* The ids from first on are nobody's until as many have released them; 1, or
 * 0 where they are none of ours. */
int sbx_ids_hold(sbx_broker_t *b, uint64_t first);
void sbx_ids_release(sbx_broker_t *b, uint64_t first);
void sbx_ids_give(sbx_broker_t *b, sbx_session_t *s);
void sbx_ids_close(sbx_broker_t *b);
int sbx_ids_tag(sbx_broker_t *b, sbx_error_t *e);
int sbx_ids_name(sbx_broker_t *b, char id[SBX_ID_MAX + 8], sbx_error_t *e);

/* graves.c */
int sbx_graves_open(sbx_broker_t *b, sbx_error_t *e);
void sbx_graves_add(sbx_broker_t *b, const sbx_f_session_t *info,
    sbx_ended_t why, int64_t at);
const sbx_grave_t *sbx_graves_find(sbx_broker_t *b, const char *id);
/* The clock was set by so many ms. */
void sbx_graves_shift(sbx_broker_t *b, int64_t by);
void sbx_graves_close(sbx_broker_t *b);

/* admin.c */
void sbx_admin_call(sbx_broker_t *b, sbx_call_out_t *call, const void *body);
/* Answers a change that is safe. */
void sbx_admin_answer(sbx_broker_t *b, sbx_call_out_t *call, int err);
void sbx_admin_gone(sbx_broker_t *b, const sbx_session_t *s);

/* metrics.c */
void sbx_metrics_call(sbx_broker_t *b, sbx_call_out_t *call,
    const void *body);
void sbx_metrics_ended(sbx_broker_t *b, unsigned why);
/* A command has ended; SBX_REASON_MAX: there was none. */
void sbx_metrics_command(sbx_session_t *s, uint32_t reason, uint64_t cpu_us);


#endif
