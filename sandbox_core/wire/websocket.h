/*
 * The server's end of WebSocket's framing (RFC 6455), without any event loop
 * and without memory of its own.  No extension is known.
 */

#ifndef SBX_WEBSOCKET_H
#define SBX_WEBSOCKET_H

#include <stddef.h>
#include <stdint.h>


#define SBX_WS_CONTROL_MAX    125
#define SBX_WS_HEADER_MAX     10      /* of a frame that is sent */

typedef enum {
    SBX_WS_CONTINUATION = 0,
    SBX_WS_TEXT         = 1,
    SBX_WS_BINARY       = 2,
    SBX_WS_CLOSE        = 8,
    SBX_WS_PING         = 9,
    SBX_WS_PONG         = 10
} sbx_ws_opcode_t;

/* Codes of a close. */
#define SBX_WS_NORMAL         1000
#define SBX_WS_AWAY           1001
#define SBX_WS_PROTOCOL       1002
#define SBX_WS_NOT_TEXT       1007
#define SBX_WS_POLICY         1008
#define SBX_WS_TOO_BIG        1009
#define SBX_WS_INTERNAL       1011

/* All zeros is a connection's begin. */
typedef struct {
    uint8_t    head[14];
    uint8_t    mask[4];
    uint8_t    control[SBX_WS_CONTROL_MAX];
    uint8_t    control_len;
    uint8_t    head_len;
    uint8_t    opcode;                /* of the frame */
    uint8_t    message;               /* of the message, 0: in none */
    uint8_t    fin;
    uint8_t    in_frame;
    uint8_t    closed;
    uint64_t   left;                  /* bytes of the frame to come */
    uint64_t   at;                    /* bytes of the frame that came */
} sbx_ws_t;

typedef struct {
    uint8_t         opcode;           /* TEXT, BINARY: a part of a message */
    uint8_t         fin;              /* its last part */
    uint16_t        code;             /* CLOSE: 0 where none was given */
    const uint8_t  *data;             /* unmasked; CLOSE: the reason */
    size_t          len;
} sbx_ws_event_t;

/*
 * Takes what it can from *p ... end, which it unmasks in place, and moves *p.
 * 1: *event; 0: all is taken, and more is needed; -1: the peer broke the
 * protocol, event->code says how.  Nothing follows a CLOSE or a -1.
 */
int sbx_ws_next(sbx_ws_t *ws, uint8_t **p, uint8_t *end,
    sbx_ws_event_t *event);

/* The header of a frame that is whole and not masked; its length. */
size_t sbx_ws_header(uint8_t buf[SBX_WS_HEADER_MAX], sbx_ws_opcode_t opcode,
    uint64_t len);


#endif
