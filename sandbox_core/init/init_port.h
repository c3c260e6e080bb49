/*
 * A call to a port: port.c has its life, port_relay.c its bytes.
 */

#ifndef SBX_INIT_PORT_H
#define SBX_INIT_PORT_H

#include "init.h"


#define SBX_INIT_PORT_LINGER   2000000    /* us for a refusal to be read */


typedef enum {
    SBX_INIT_PORT_FREE,
    SBX_INIT_PORT_ASKED,
    SBX_INIT_PORT_CONNECTING,
    SBX_INIT_PORT_ANSWERING,
    SBX_INIT_PORT_OPEN,
    SBX_INIT_PORT_CLOSING
} sbx_init_port_state_t;

/* One way: what has been read, and not been sent on. */
typedef struct {
    uint8_t               *data;
    size_t                 start;
    size_t                 end;
    unsigned               over:1;     /* nothing more comes */
    unsigned               refused:1;  /* nobody takes it */
    unsigned               reset:1;    /* for the connection is reset */
} sbx_init_way_t;

typedef struct {
    sbx_init_port_state_t  state;
    sbx_init_source_t      call;
    sbx_init_source_t      socket;     /* to the program */
    sbx_init_source_t      link;       /* to the worker */
    uint32_t               port;
    unsigned               family;     /* which one is being tried */
    int                    err;        /* why there is no connection */
    unsigned               reset:1;    /* the program has cut it off */
    unsigned               told:1;     /* so has the worker that all came */
    uint64_t               give_up;
    size_t                 have;       /* of the frame */
    uint8_t                frame[sizeof(sbx_frame_t) + sizeof(sbx_f_port_t)];
    uint8_t               *bytes;      /* of both ways */
    sbx_init_way_t         there;      /* to the program */
    sbx_init_way_t         back;
} sbx_init_port_t;


/* port.c: an error instead of what was asked for, or of its end. */
void sbx_init_port_fail(sbx_init_port_t *p, const sbx_error_t *e);
void sbx_init_port_free(sbx_init_port_t *p);

/* port_relay.c: 0, or -1 without memory. */
int sbx_init_port_open(sbx_init_port_t *p);
/* An event of either side. */
void sbx_init_port_moves(sbx_init_source_t *source, uint32_t events);
/* The worker has gone: what it has sent is passed on, as far as the program
 * takes it at once; it is freed. */
void sbx_init_port_gone(sbx_init_port_t *p);


#endif
