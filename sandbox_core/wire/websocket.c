/*
 * Frames of WebSocket.  What a peer may do wrong ends the connection, and
 * nothing that it says is taken for a length to make room by: data go on as
 * they come, control frames fit into what is there.
 */

#include "websocket.h"
#include "json.h"

#include <string.h>


static size_t sbx_ws_head_size(const sbx_ws_t *ws);
static int sbx_ws_head(sbx_ws_t *ws);
static int sbx_ws_order(sbx_ws_t *ws);
static void sbx_ws_unmask(sbx_ws_t *ws, uint8_t *p, size_t n);
static int sbx_ws_control(sbx_ws_t *ws, sbx_ws_event_t *event);
static int sbx_ws_close(sbx_ws_t *ws, sbx_ws_event_t *event);


static int
sbx_ws_wrong(sbx_ws_t *ws, sbx_ws_event_t *event, unsigned code)
{
    memset(event, 0, sizeof(sbx_ws_event_t));
    event->code = (uint16_t) code;
    ws->closed = 1;

    return -1;
}


int
sbx_ws_next(sbx_ws_t *ws, uint8_t **p, uint8_t *end, sbx_ws_event_t *event)
{
    size_t  n;

    memset(event, 0, sizeof(sbx_ws_event_t));

    if (ws->closed) {
        *p = end;
        return 0;
    }

    for ( ;; ) {

        while (!ws->in_frame) {
            if (*p == end) {
                return 0;
            }

            ws->head[ws->head_len++] = *(*p)++;

            if (ws->head_len == sbx_ws_head_size(ws)) {
                if (sbx_ws_head(ws) != 0) {
                    return sbx_ws_wrong(ws, event, SBX_WS_PROTOCOL);
                }
            }
        }

        n = (size_t) (end - *p);

        if (n > ws->left) {
            n = (size_t) ws->left;
        }

        if (n == 0 && ws->left != 0) {
            return 0;
        }

        sbx_ws_unmask(ws, *p, n);

        event->data = *p;
        event->len = n;

        *p += n;
        ws->at += n;
        ws->left -= n;

        if (ws->opcode < SBX_WS_CLOSE) {
            event->opcode = ws->message;
            event->fin = ws->fin && ws->left == 0;

            if (ws->left == 0) {
                ws->in_frame = 0;
                ws->message = ws->fin ? 0 : ws->message;
            }

            return 1;
        }

        if (n != 0) {
            memcpy(ws->control + ws->control_len, event->data, n);
            ws->control_len = (uint8_t) (ws->control_len + n);
        }

        if (ws->left == 0) {
            ws->in_frame = 0;
            return sbx_ws_control(ws, event);
        }
    }
}


/* As far as it is known by now. */

static size_t
sbx_ws_head_size(const sbx_ws_t *ws)
{
    if (ws->head_len < 2) {
        return 2;
    }

    switch (ws->head[1] & 0x7f) {

    case 126:
        return 2 + 2 + 4;

    case 127:
        return 2 + 8 + 4;

    default:
        return 2 + 4;
    }
}


static int
sbx_ws_head(sbx_ws_t *ws)
{
    size_t    i, n;
    uint64_t  len;

    ws->head_len = 0;

    /* no extension gives the reserved bits a meaning; a client masks */

    if ((ws->head[0] & 0x70) || !(ws->head[1] & 0x80)) {
        return -1;
    }

    len = ws->head[1] & 0x7f;
    n = (len == 126) ? 2 : (len == 127) ? 8 : 0;

    if (n != 0) {
        for (len = 0, i = 0; i < n; i++) {
            len = len << 8 | ws->head[2 + i];
        }

        /* the shortest form is the only one */

        if (len < (n == 2 ? 126 : 65536) || len > INT64_MAX) {
            return -1;
        }
    }

    memcpy(ws->mask, ws->head + 2 + n, 4);

    ws->fin = ws->head[0] >> 7;
    ws->opcode = ws->head[0] & 0x0f;
    ws->left = len;
    ws->at = 0;
    ws->in_frame = 1;

    return sbx_ws_order(ws);
}


static int
sbx_ws_order(sbx_ws_t *ws)
{
    switch (ws->opcode) {

    case SBX_WS_CONTINUATION:
        return ws->message == 0 ? -1 : 0;

    case SBX_WS_TEXT:
    case SBX_WS_BINARY:
        if (ws->message != 0) {
            return -1;
        }

        ws->message = ws->opcode;
        return 0;

    case SBX_WS_CLOSE:
    case SBX_WS_PING:
    case SBX_WS_PONG:
        ws->control_len = 0;
        return (ws->fin && ws->left <= SBX_WS_CONTROL_MAX) ? 0 : -1;

    default:
        return -1;
    }
}


static void
sbx_ws_unmask(sbx_ws_t *ws, uint8_t *p, size_t n)
{
    size_t  i;

    for (i = 0; i < n; i++) {
        p[i] ^= ws->mask[(ws->at + i) & 3];
    }
}


static int
sbx_ws_control(sbx_ws_t *ws, sbx_ws_event_t *event)
{
    event->opcode = ws->opcode;
    event->fin = 1;
    event->data = ws->control;
    event->len = ws->control_len;

    return (ws->opcode == SBX_WS_CLOSE) ? sbx_ws_close(ws, event) : 1;
}


static int
sbx_ws_close(sbx_ws_t *ws, sbx_ws_event_t *event)
{
    size_t    i, n;
    unsigned  code;

    ws->closed = 1;

    if (event->len == 0) {
        return 1;
    }

    if (event->len == 1) {
        return sbx_ws_wrong(ws, event, SBX_WS_PROTOCOL);
    }

    code = (unsigned) (ws->control[0] << 8 | ws->control[1]);

    /* what is registered for the wire, and what applications may use */

    if (!(code >= 1000 && code <= 1003) && !(code >= 1007 && code <= 1014)
        && !(code >= 3000 && code <= 4999))
    {
        return sbx_ws_wrong(ws, event, SBX_WS_PROTOCOL);
    }

    event->code = (uint16_t) code;
    event->data += 2;
    event->len -= 2;

    for (i = 0; i < event->len; i += n) {
        n = sbx_utf8_sequence(event->data + i, event->len - i);

        if (n == 0) {
            return sbx_ws_wrong(ws, event, SBX_WS_NOT_TEXT);
        }
    }

    return 1;
}


size_t
sbx_ws_header(uint8_t buf[SBX_WS_HEADER_MAX], sbx_ws_opcode_t opcode,
    uint64_t len)
{
    size_t  i, n;

    buf[0] = (uint8_t) (0x80 | opcode);

    if (len < 126) {
        buf[1] = (uint8_t) len;
        return 2;
    }

    n = (len < 65536) ? 2 : 8;
    buf[1] = (n == 2) ? 126 : 127;

    for (i = 0; i < n; i++) {
        buf[2 + i] = (uint8_t) (len >> (8 * (n - 1 - i)));
    }

    return 2 + n;
}
