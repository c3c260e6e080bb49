/*
 * A connection of a session: the socket that was accepted in the session's
 * network, the one that was opened to the world, and what goes between them.
 *
 *   accepted -> judged by address and port -> connecting -> open -> closed
 *
 * Each side has a mode, which says what becomes of the bytes that come from
 * it.  A client's first bytes, where they matter, are looked at where they
 * are, in the socket's own buffer: nothing is held here, and what was seen is
 * then moved as all else.
 *
 *   LOOK     they are looked at, and stay
 *   SPLICE   they go to the other side through a pipe that is held only while
 *            there are bytes in it
 *   HTTP     of a client: through the filter of requests, or that of a second
 *            hello
 *   TLS      of both sides: through a TLS server and a TLS client
 *
 * A side that takes nothing stops the reading of the other; nothing is kept
 * but what a pipe holds, or what a filter has made and could not send.
 */

#ifndef SBX_EGRESS_CONN_H
#define SBX_EGRESS_CONN_H

#include "egress.h"
#include "inspect.h"


#define SBX_EG_ACCEPTS        32        /* of one listener, one round */
#define SBX_EG_ROUNDS         4         /* of one side, one event */
#define SBX_EG_SPLICE_MAX     (1024 * 1024)
#define SBX_EG_COPY_MAX       SBX_EG_FIRST_MAX
/* The kernel gives a user 64 MB of pipes: a few have room for as many bytes as
 * sockets have, which is what transfers without a peer get; beyond
 * SBX_EG_PIPES_MAX bytes are copied. */
#define SBX_EG_PIPE_SIZE      (1024 * 1024)
#define SBX_EG_PIPE_SMALL     (128 * 1024)
#define SBX_EG_PIPES_MAX      256
#define SBX_EG_PIPES_SPARE    32
#define SBX_EG_CONNECT_WAIT   20000     /* ms */
#define SBX_EG_ACCEPT_PAUSE   50        /* ms without accepting, where the
                                           process has no descriptors */
#define SBX_EG_CUT_ROUND      2000      /* us of closing what costs much */
#define SBX_EG_LOOKS_FAST     256       /* looks at first bytes that come one
                                           by one, then one each */
#define SBX_EG_LOOK_PACE      10        /* ms */
#define SBX_EG_OPENINGS       20        /* of TLS for a header's sake, a second
                                           of one session */
#define SBX_EG_OPENINGS_BURST 50        /* at a stroke */


typedef enum {
    SBX_EG_CLIENT,
    SBX_EG_SERVER
} sbx_eg_end_t;

typedef enum {
    SBX_EG_MODE_NONE,                   /* nothing is read */
    SBX_EG_MODE_LOOK,
    SBX_EG_MODE_SPLICE,
    SBX_EG_MODE_HTTP,
    SBX_EG_MODE_TLS
} sbx_eg_mode_t;

/* Why the first bytes matter. */
typedef enum {
    SBX_EG_LOOK_NOT,
    SBX_EG_LOOK_HEADER,                 /* a header may be due, no more */
    SBX_EG_LOOK_DENIED,                 /* names are denied */
    SBX_EG_LOOK_NAME                    /* it is allowed by name alone */
} sbx_eg_look_t;

typedef struct sbx_eg_pipe_s  sbx_eg_pipe_t;
typedef struct sbx_eg_conn_s  sbx_eg_conn_t;

struct sbx_eg_pipe_s {
    sbx_eg_pipe_t  *next;
    int             fds[2];
};

typedef struct {
    sbx_event_t      event;
    sbx_eg_pipe_t   *pipe;              /* with what came from this side */
    uint32_t         held;              /* bytes in it */
    int              fd;
    uint8_t          mode;              /* sbx_eg_mode_t */
    unsigned         ended:1;           /* its end has come */
    unsigned         passed:1;          /* and the other was told */
    unsigned         full:1;            /* the other takes nothing now */
    unsigned         starved:1;         /* the session has no credit */
    unsigned         blocked:1;         /* until the other says something, or
                                           the timer */
    unsigned         over:1;            /* an error or a hang-up was seen */
} sbx_eg_side_t;

/* What only connections have that are read: see filter.c. */
typedef struct {
    sbx_http_t       *http;
    sbx_greeting_t   *greeting;
    sbx_tls_pair_t   *tls;
    sbx_http_judge_t  judge;
    char             *host;             /* TLS: whom the server is to be */
    sbx_eg_policy_t  *policy;           /* whose header may be in use */
    struct {
        uint8_t      *data;             /* made for a side, and not sent */
        size_t        size;
        size_t        sent;
    } pending[2];
} sbx_eg_filter_t;

struct sbx_eg_conn_s {
    sbx_node_t         node;
    sbx_node_t         waiting;         /* for credit */
    sbx_eg_session_t  *session;
    sbx_eg_side_t      side[2];         /* by sbx_eg_end_t */
    sbx_timer_t        timer;           /* connect, then looks */
    uint64_t           judge_by;        /* us; 0: nothing was said yet */
    uint32_t           looked;          /* bytes; more are waited for */
    uint16_t           looks;
    uint16_t           port;
    uint8_t            address[16];     /* where it goes */
    uint8_t            look;            /* sbx_eg_look_t */
    unsigned           connecting:1;
    unsigned           queued:1;        /* in session->waiting */
    unsigned           spoke:1;         /* the server has */
    unsigned           closed:1;
    unsigned           named:1;         /* by its client; else, the name that
                                           leads there is why it is allowed */
    unsigned           known:1;         /* it was looked up, and had the
                                           address; that may be forgotten */
    char              *name;            /* the newest */
    sbx_eg_filter_t   *filter;
};

struct sbx_eg_relay_s {
    sbx_egress_t      *egress;
    sbx_eg_pipe_t     *spare;
    unsigned           nspare;
    unsigned           npipes;
    size_t             nconns;          /* of all sessions */
    size_t             max;             /* of them */
    int                window;          /* of a wide one's server, what is
                                           asked for; 0: the kernel's own */
    sbx_timer_t        pause;           /* no descriptor to accept with */
    uint8_t            in[SBX_EG_COPY_MAX];
    uint8_t            out[SBX_HTTP_ROOM];
};


/* relay.c */
int sbx_eg_relay_open(sbx_egress_t *eg, sbx_error_t *e);
void sbx_eg_relay_close(sbx_egress_t *eg);
void sbx_eg_relay_pipe_free(sbx_egress_t *eg, sbx_eg_pipe_t *pipe, int clean);
/* A side's events, which the connection may not outlive. */
void sbx_eg_relay_event(sbx_event_t *ev, uint32_t events);
/* Moves what can be moved from both sides, and waits for the rest. */
void sbx_eg_relay_go(sbx_eg_conn_t *c);
/*
 * Below: 0, or -1: it is over (the connection is still there).
 * Moves by copying; what is not sent stays in the socket.
 */
int sbx_eg_relay_copy(sbx_eg_conn_t *c, sbx_eg_end_t from);
/* send() to a side, as it is. */
ssize_t sbx_eg_relay_send(sbx_eg_conn_t *c, sbx_eg_end_t to, const void *p,
    size_t n);
/* At most max bytes that a side has sent, which stay there; 0: none now, or
 * the end (side->ended). */
ssize_t sbx_eg_relay_peek(sbx_eg_conn_t *c, sbx_eg_end_t from, uint8_t *buf,
    size_t max);
void sbx_eg_relay_drop(sbx_eg_conn_t *c, sbx_eg_end_t from, size_t n);
/* EPOLLIN of the client only when there are more than n bytes. */
void sbx_eg_relay_beyond(sbx_eg_conn_t *c, size_t n);

/* look.c */
int sbx_eg_look(sbx_eg_conn_t *c);
void sbx_eg_look_timer(sbx_eg_conn_t *c);
/* Whether what the client says first matters. */
sbx_eg_look_t sbx_eg_look_why(sbx_eg_conn_t *c, sbx_eg_verdict_t verdict);
/*
 * Whether its client may mean host.  A name that was once found for a
 * connection stays its name: answers are forgotten sooner than connections
 * end, and nobody asks again for one that is open.
 */
int sbx_eg_look_named(sbx_eg_conn_t *c, const char *host, sbx_refused_t *why);
/* The header that is due to it then, or NULL. */
const sbx_eg_header_t *sbx_eg_look_header(sbx_eg_conn_t *c, const char *host,
    int tls);
/* What its client named.  -1: out of memory. */
int sbx_eg_named(sbx_eg_conn_t *c, const char *host);

/* filter.c */
int sbx_eg_filter_http(sbx_eg_conn_t *c);
/* A client that was judged by its first hello, until a second is out of the
 * question. */
int sbx_eg_filter_greeting(sbx_eg_conn_t *c, const char *name);
int sbx_eg_filter_tls(sbx_eg_conn_t *c, const char *host);
int sbx_eg_filter_client(sbx_eg_conn_t *c);
void sbx_eg_filter_server(sbx_eg_conn_t *c, const uint8_t *p, size_t n);
int sbx_eg_filter_watches(const sbx_eg_conn_t *c);
int sbx_eg_filter_pair(sbx_eg_conn_t *c);
int sbx_eg_filter_pending(const sbx_eg_conn_t *c, sbx_eg_end_t to);
void sbx_eg_filter_close(sbx_eg_conn_t *c);

/* conn.c */
void sbx_eg_conn_close(sbx_eg_conn_t *c, int reset);
/* -1, so that refusing is one line. */
int sbx_eg_conn_refuse(sbx_eg_conn_t *c, sbx_refused_t why, const char *name);

/* credit.c: the same for a connection, who waits in a queue where there is
 * none; 0: it waits. */
size_t sbx_eg_credit(sbx_eg_conn_t *c, sbx_eg_end_t from, size_t wanted);
void sbx_eg_credit_leave(sbx_eg_conn_t *c);
/* The session's limits have changed. */
void sbx_eg_credit_reset(sbx_eg_session_t *s);

/* decide.c */
/* sbx_eg_decide(), and the name for whose sake it is BY_NAME. */
sbx_eg_verdict_t sbx_eg_decide_by(sbx_eg_session_t *s,
    const uint8_t address[16], unsigned port, sbx_refused_t *why,
    const char **name);
/* sbx_eg_decide_named() of a name that was looked up. */
int sbx_eg_decide_known(sbx_eg_session_t *s, const uint8_t address[16],
    unsigned port, const char *host, sbx_refused_t *why);
int sbx_eg_decide_denies(const sbx_eg_session_t *s);
/* Where names are denied: whether the address may be reached by who does not
 * say whom it means; 0: it may. */
int sbx_eg_decide_bare(sbx_eg_session_t *s, const uint8_t address[16],
    unsigned port);


#endif
