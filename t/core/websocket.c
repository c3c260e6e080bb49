/* WebSocket's frames, as a client may send them and as none should. */

#include "tap.h"

#include "sandbox_util.h"
#include "websocket.h"


static const uint8_t  mask[4] = { 0x11, 0xa2, 0x03, 0xf4 };


/* A masked frame; its size. */

static size_t
frame(uint8_t *p, unsigned first, const void *data, size_t len)
{
    size_t   i, n;
    uint8_t  head[SBX_WS_HEADER_MAX];

    n = sbx_ws_header(head, SBX_WS_TEXT, len);
    memcpy(p, head, n);
    p[0] = (uint8_t) first;
    p[1] |= 0x80;
    memcpy(p + n, mask, 4);
    n += 4;

    for (i = 0; i < len; i++) {
        p[n + i] = ((const uint8_t *) data)[i] ^ mask[i & 3];
    }

    return n + len;
}


/* What a first frame is answered with: the opcode, or minus the code. */

static int
first(const void *bytes, size_t len)
{
    int              rc;
    uint8_t          copy[512], *p;
    sbx_ws_t         ws;
    sbx_ws_event_t   event;

    memset(&ws, 0, sizeof(ws));
    memcpy(copy, bytes, len);
    p = copy;

    rc = sbx_ws_next(&ws, &p, copy + len, &event);

    if (rc == 1) {
        return event.opcode;
    }

    return (rc == 0) ? 0 : -(int) event.code;
}


static int
first_frame(unsigned head, const void *data, size_t len)
{
    uint8_t  buf[512];

    return first(buf, frame(buf, head, data, len));
}


static void
messages(void)
{
    int             rc, ends;
    size_t          n, i, got;
    uint8_t         buf[1024], text[64], *p;
    sbx_ws_t        ws;
    sbx_ws_event_t  event;

    n = frame(buf, 0x01, "hel", 3);
    n += frame(buf + n, 0x89, "are you", 7);
    n += frame(buf + n, 0x80, "lo", 2);
    n += frame(buf + n, 0x82, NULL, 0);
    n += frame(buf + n, 0x88, "\x03\xe8""bye", 5);

    /* a byte at a time: the worst that a stream can do */

    memset(&ws, 0, sizeof(ws));
    got = 0;
    ends = 0;

    for (i = 0; i < n; i++) {
        p = buf + i;

        while ((rc = sbx_ws_next(&ws, &p, buf + i + 1, &event)) == 1) {
            if (event.opcode == SBX_WS_TEXT) {
                memcpy(text + got, event.data, event.len);
                got += event.len;
                ends += event.fin;

            } else if (event.opcode == SBX_WS_PING) {
                ok(event.len == 7 && memcmp(event.data, "are you", 7) == 0
                   && got == 3, "a ping between the parts of a message");

            } else if (event.opcode == SBX_WS_BINARY) {
                ok(event.len == 0 && event.fin, "an empty message");

            } else {
                ok(event.opcode == SBX_WS_CLOSE && event.code == 1000
                   && event.len == 3 && memcmp(event.data, "bye", 3) == 0,
                   "a close with its reason");
            }
        }

        if (rc != 0) {
            ok(0, "nothing is wrong at byte %zu", i);
        }
    }

    ok(got == 5 && memcmp(text, "hello", 5) == 0 && ends == 1,
       "a message in two parts");

    n = frame(buf, 0x82, "late", 4);
    p = buf;
    ok(sbx_ws_next(&ws, &p, buf + n, &event) == 0 && p == buf + n,
       "nothing follows a close");
}


static void
lengths(void)
{
    size_t          n, got;
    uint64_t        len;
    uint8_t        *buf, *p;
    sbx_ws_t        ws;
    sbx_ws_event_t  event;

    static const size_t  sizes[] = { 125, 126, 65535, 65536, 70000 };

    buf = malloc(80000);

    for (size_t i = 0; buf != NULL && i < sbx_nelts(sizes); i++) {
        memset(buf, 'x', 80000);
        memset(&ws, 0, sizeof(ws));

        n = sbx_ws_header(buf, SBX_WS_BINARY, sizes[i]);
        buf[1] |= 0x80;
        memset(buf + n, 0, 4);
        n += 4 + sizes[i];
        p = buf;

        for (got = 0; sbx_ws_next(&ws, &p, buf + n, &event) == 1; ) {
            got += event.len;
        }

        ok(got == sizes[i] && p == buf + n, "a frame of %zu bytes", sizes[i]);
    }

    free(buf);

    ok(first("\x82\xfe\x00\x05zzzz", 8) == -SBX_WS_PROTOCOL,
       "a length in two bytes that one would hold");
    ok(first("\x82\xff\0\0\0\0\0\0\xff\xffzzzz", 14) == -SBX_WS_PROTOCOL,
       "a length in eight bytes that two would hold");
    ok(first("\x82\xff\xff\xff\xff\xff\xff\xff\xff\xffzzzz", 14)
       == -SBX_WS_PROTOCOL, "a length beyond all");
    ok(first("\x82\xff\x7f\xff\xff\xff\xff\xff\xff\xffzzzz", 14) == 0,
       "the longest: it is never waited for as a whole");

    memset(&ws, 0, sizeof(ws));
    len = sizeof(ws);
    ok(len < 512, "a connection's state is small, whatever is announced");
}


static void
wrong(void)
{
    uint8_t  buf[512], data[200];
    size_t   n;

    memset(data, 'a', sizeof(data));

    ok(first("\x82\x03""abc", 5) == 0
       && first("\x82\x03""abcd", 6) == -SBX_WS_PROTOCOL,
       "a frame without a mask");
    is_int(first_frame(0xc2, "a", 1), -SBX_WS_PROTOCOL, "a reserved bit");
    is_int(first_frame(0x83, "a", 1), -SBX_WS_PROTOCOL, "an opcode of none");
    is_int(first_frame(0x8b, "a", 1), -SBX_WS_PROTOCOL,
           "a control opcode of none");
    is_int(first_frame(0x80, "a", 1), -SBX_WS_PROTOCOL,
           "a continuation of nothing");
    is_int(first_frame(0x09, "a", 1), -SBX_WS_PROTOCOL, "a ping in parts");
    is_int(first_frame(0x89, data, 126), -SBX_WS_PROTOCOL,
           "a ping that is too long");
    is_int(first_frame(0x89, data, 125), SBX_WS_PING, "the longest ping");

    n = frame(buf, 0x02, "a", 1);
    n += frame(buf + n, 0x82, "b", 1);

    {
        uint8_t         *p = buf;
        sbx_ws_t         ws;
        sbx_ws_event_t   event;

        memset(&ws, 0, sizeof(ws));
        ok(sbx_ws_next(&ws, &p, buf + n, &event) == 1
           && sbx_ws_next(&ws, &p, buf + n, &event) == -1
           && event.code == SBX_WS_PROTOCOL,
           "a message within a message");
    }

    is_int(first_frame(0x88, NULL, 0), SBX_WS_CLOSE, "a close of two bytes");
    is_int(first_frame(0x88, "\x03", 1), -SBX_WS_PROTOCOL,
           "a close with half a code");
    is_int(first_frame(0x88, "\x03\xed", 2), -SBX_WS_PROTOCOL,
           "1005, which is never sent");
    is_int(first_frame(0x88, "\x03\xe7", 2), -SBX_WS_PROTOCOL, "999");
    is_int(first_frame(0x88, "\x13\x88", 2), -SBX_WS_PROTOCOL, "5000");
    is_int(first_frame(0x88, "\x0f\xa0", 2), SBX_WS_CLOSE, "4000");
    is_int(first_frame(0x88, "\x03\xe8\xc3", 3), -SBX_WS_NOT_TEXT,
           "a reason that is no text");
}


/* Whatever comes, it ends, and what is told lies within what came. */

static void
garbage(void)
{
    int              rc, bad;
    size_t           i, n;
    uint8_t          buf[256], *p;
    unsigned         k;
    sbx_ws_t         ws;
    sbx_ws_event_t   event;

    srandom(6455);
    bad = 0;

    for (k = 0; k < 20000; k++) {
        memset(&ws, 0, sizeof(ws));

        do {
            n = 1 + (size_t) random() % sizeof(buf);

            for (i = 0; i < n; i++) {
                buf[i] = (uint8_t) random();
            }

            if (k & 1) {
                buf[0] &= 0x8f;
                buf[1 % n] |= 0x80;
            }

            p = buf;

            while ((rc = sbx_ws_next(&ws, &p, buf + n, &event)) == 1) {
                bad += event.len > sizeof(buf) || p > buf + n;
            }

            bad += p > buf + n || (rc == 0 && p != buf + n);

        } while (rc == 0 && !ws.closed && random() % 8 != 0);
    }

    is_int(bad, 0, "20000 connections of garbage");
}


int
main(void)
{
    messages();
    lengths();
    wrong();
    garbage();

    return done_testing();
}
