/*
 * What keeper and broker say to each other, over a socketpair that no other
 * process has: the store of descriptors and the ends of processes.
 */

#ifndef SBX_LINK_H
#define SBX_LINK_H

#include "sandbox_wire.h"


#define SBX_LINK_MAGIC    0x4b584253u     /* "SBXK" */
#define SBX_LINK_FDS      6


typedef enum {
    /* broker to keeper; a new broker inherits all that is kept */
    SBX_LINK_STORE = 1,       /* one kept thing */
    SBX_LINK_DROP,            /* kind, number, id */
    SBX_LINK_READY,           /* the broker takes calls */
    SBX_LINK_END,             /* end everything; keeper to broker too */

    /* keeper to broker */
    SBX_LINK_STARTED,         /* number: restarts */
    SBX_LINK_STORED,          /* it is in the store: kind, number, id */
    SBX_LINK_REFUSED,         /* it is not: the keeper has no descriptor or
                                 no memory for it just now */
    SBX_LINK_EXIT,            /* pid, status */

    /* broker to keeper */
    SBX_LINK_TOLD             /* id is UNTOLD no more */
} sbx_link_type_t;


typedef enum {
    SBX_KEEP_NONE = 0,
    SBX_KEEP_CONFIG,          /* memfd of a sbx_config_t; one */
    SBX_KEEP_IDS,             /* the socket that reserves cell .number */
    SBX_KEEP_CONTROL,         /* a control connection, .number */
    SBX_KEEP_SESSION,         /* control socket, pidfd, disk, network
                                 namespace, traffic page and cgroup.kill of
                                 .id, whose first process is .pid and whose
                                 ids begin at .number */
    SBX_KEEP_EGRESS           /* control socket and pidfd of .pid, which has
                                 the ids from .number on */
} sbx_keep_t;


#define SBX_LINK_ORPHAN   0x01    /* STORE: not the keeper's child */
#define SBX_LINK_EXITED   0x02    /* STORE: has exited with .status */
#define SBX_LINK_UNTOLD   0x04    /* STORE: nobody has been told its name */


typedef struct {
    uint32_t      magic;
    uint16_t      type;                   /* sbx_link_type_t */
    uint16_t      kind;                   /* sbx_keep_t */
    uint64_t      number;
    int32_t       pid;
    int32_t       status;                 /* of waitpid() */
    uint32_t      flags;
    int32_t       fds[SBX_LINK_FDS];      /* across an exec */
    char          id[SBX_ID_MAX + 8];
} sbx_link_t;


/* How many descriptors go with a STORE of kind. */
unsigned sbx_link_fds(sbx_keep_t kind);

/* 0, or -1 with errno; never waits. */
int sbx_link_send(int fd, const sbx_link_t *msg, const int *fds,
    unsigned nfds);

/*
 * The store as a file of messages, for the program that is executed next: the
 * descriptors are inherited.  0 or -1; 1: one was read, 0: that was all.
 */
int sbx_link_write(int file, const sbx_link_t *msg, const int *fds);
int sbx_link_read(int file, sbx_link_t *msg, int fds[SBX_LINK_FDS]);

/*
 * 1: a message, with sbx_link_fds() descriptors where it is a STORE; 2: a
 * STORE for whose descriptors this process has no room, without them; 0: the
 * peer is gone; -1 with errno (EAGAIN: nothing now; EPROTO: nonsense).
 */
int sbx_link_recv(int fd, sbx_link_t *msg, int fds[SBX_LINK_FDS]);


#endif
