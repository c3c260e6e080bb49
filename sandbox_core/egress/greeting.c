/*
 * A server of TLS 1.3 may ask its client to say hello again (RFC 8446, 4.1.4),
 * and the second ClientHello comes in the clear, with a name that servers take
 * for the one that is meant.  So after the first nothing of the client passes
 * until the server has answered; if it asks again, the second hello has to
 * name the same.  What is between the two, the client's early data that the
 * server does not take, passes.
 */

#include "inspect.h"

#include <string.h>


#define SBX_GREETING_RECORD      5         /* bytes of a record's header */
#define SBX_GREETING_MESSAGE     4         /* and of a message's */
#define SBX_GREETING_SERVER      38        /* up to a ServerHello's random */
#define SBX_GREETING_HANDSHAKE   22
#define SBX_GREETING_SPARE       1024


typedef enum {
    SBX_GREETING_FIRST,
    SBX_GREETING_WAIT,            /* for what the server says to it */
    SBX_GREETING_AGAIN,           /* another is due */
    SBX_GREETING_SECOND,          /* and has begun */
    SBX_GREETING_GO,              /* it is held, and may go */
    SBX_GREETING_OPAQUE,
    SBX_GREETING_REFUSED
} sbx_greeting_state_t;

/* Records of one side, as they come by. */
typedef struct {
    uint8_t   header[SBX_GREETING_RECORD];
    size_t    nheader;
    size_t    left;               /* of the record */
} sbx_greeting_records_t;

struct sbx_greeting_s {
    sbx_greeting_state_t     state;
    sbx_greeting_records_t   client;
    sbx_greeting_records_t   server;
    uint8_t                  message[SBX_GREETING_SERVER];
    size_t                   n;      /* of a message so far */
    uint8_t                 *held;   /* the second */
    size_t                   nheld;
    size_t                   room;
    size_t                   sent;   /* of it */
    sbx_refused_t            why;
    char                     name[];
};


static void sbx_greeting_first(sbx_greeting_t *hello, uint8_t ch);
static int sbx_greeting_again(sbx_greeting_t *hello, uint8_t ch);
static int sbx_greeting_hold(sbx_greeting_t *hello, const uint8_t *in,
    size_t n);
static size_t sbx_greeting_go(sbx_greeting_t *hello, uint8_t *out,
    size_t size);
static int sbx_greeting_record(sbx_greeting_records_t *records, uint8_t ch);
static void sbx_greeting_answer(sbx_greeting_t *hello);


/* The random of a ServerHello that asks for another hello. */
static const uint8_t  sbx_greeting_retry[] = {
    0xcf, 0x21, 0xad, 0x74, 0xe5, 0x9a, 0x61, 0x11,
    0xbe, 0x1d, 0x8c, 0x02, 0x1e, 0x65, 0xb8, 0x91,
    0xc2, 0xa2, 0x11, 0x16, 0x7a, 0xbb, 0x8c, 0x5e,
    0x07, 0x9e, 0x09, 0xe2, 0xc8, 0xa8, 0x33, 0x9c
};


sbx_greeting_t *
sbx_greeting_open(const char *name)
{
    size_t           n;
    sbx_greeting_t  *hello;

    n = strlen(name) + 1;
    hello = calloc(1, sizeof(*hello) + n);

    if (hello == NULL) {
        return NULL;
    }

    memcpy(hello->name, name, n);

    return hello;
}


void
sbx_greeting_close(sbx_greeting_t *hello)
{
    if (hello == NULL) {
        return;
    }

    free(hello->held);
    free(hello);
}


int
sbx_greeting_watches(const sbx_greeting_t *hello)
{
    return hello->state == SBX_GREETING_WAIT;
}


int
sbx_greeting_opaque(const sbx_greeting_t *hello)
{
    return hello->state == SBX_GREETING_OPAQUE;
}


int
sbx_greeting_client(sbx_greeting_t *hello, const uint8_t *in, size_t n,
    size_t *used, uint8_t *out, size_t size, size_t *made, sbx_refused_t *why)
{
    size_t  i, to, part;

    to = sbx_greeting_go(hello, out, size);

    for (i = 0; i < n && to < size; i++) {

        if (hello->state == SBX_GREETING_FIRST) {
            sbx_greeting_first(hello, in[i]);

        } else if (hello->state != SBX_GREETING_AGAIN
                   || sbx_greeting_again(hello, in[i]))
        {
            break;
        }

        out[to++] = in[i];
    }

    if (hello->state == SBX_GREETING_OPAQUE && i < n) {
        part = n - i < size - to ? n - i : size - to;
        memcpy(out + to, in + i, part);
        to += part;
        i += part;
    }

    if (hello->state == SBX_GREETING_SECOND && i < n) {

        if (sbx_greeting_hold(hello, in + i, n - i) != 0) {
            hello->state = SBX_GREETING_REFUSED;
        }

        i = n;
        to += sbx_greeting_go(hello, out + to, size - to);
    }

    *used = i;
    *made = to;
    *why = hello->why;

    return hello->state == SBX_GREETING_REFUSED;
}


/* It was judged as a whole before: only where it ends is to be seen. */

static void
sbx_greeting_first(sbx_greeting_t *hello, uint8_t ch)
{
    size_t  want;

    if (!sbx_greeting_record(&hello->client, ch)) {
        return;
    }

    if (hello->n < SBX_GREETING_MESSAGE) {
        hello->message[hello->n] = ch;
    }

    hello->n++;

    if (hello->n < SBX_GREETING_MESSAGE) {
        return;
    }

    want = SBX_GREETING_MESSAGE
           + ((size_t) hello->message[1] << 16
              | (size_t) hello->message[2] << 8 | hello->message[3]);

    if (hello->n >= want) {
        hello->n = 0;
        hello->state = SBX_GREETING_WAIT;
    }
}


/* 1: the second hello begins here. */

static int
sbx_greeting_again(sbx_greeting_t *hello, uint8_t ch)
{
    if (hello->client.nheader == 0 && ch == SBX_GREETING_HANDSHAKE) {
        hello->state = SBX_GREETING_SECOND;
        return 1;
    }

    (void) sbx_greeting_record(&hello->client, ch);

    return 0;
}


/* Until it is whole; with it what has come behind it. */

static int
sbx_greeting_hold(sbx_greeting_t *hello, const uint8_t *in, size_t n)
{
    size_t         room;
    uint8_t       *held;
    sbx_sniffed_t  sniffed;

    hello->why = SBX_REFUSED_PROTOCOL;

    if (hello->nheld + n > hello->room) {
        room = hello->nheld + n + SBX_GREETING_SPARE;
        held = (room <= 4 * SBX_EG_FIRST_MAX) ? realloc(hello->held, room)
                                              : NULL;

        if (held == NULL) {
            return -1;
        }

        hello->held = held;
        hello->room = room;
    }

    memcpy(hello->held + hello->nheld, in, n);
    hello->nheld += n;

    switch (sbx_sniff(hello->held, hello->nheld, &sniffed)) {

    case SBX_SNIFF_MORE:
        return 0;

    case SBX_SNIFF_TLS:
        break;

    case SBX_SNIFF_HTTP:
    case SBX_SNIFF_OTHER:
    case SBX_SNIFF_BAD:
        return -1;
    }

    if (sniffed.ech) {
        hello->why = SBX_REFUSED_HIDDEN;
        return -1;
    }

    if (strcmp(sniffed.name, hello->name) != 0) {
        hello->why = SBX_REFUSED_NAME;
        return -1;
    }

    hello->state = SBX_GREETING_GO;

    return 0;
}


static size_t
sbx_greeting_go(sbx_greeting_t *hello, uint8_t *out, size_t size)
{
    size_t  n;

    if (hello->state != SBX_GREETING_GO) {
        return 0;
    }

    n = hello->nheld - hello->sent;
    n = n < size ? n : size;
    memcpy(out, hello->held + hello->sent, n);
    hello->sent += n;

    if (hello->sent == hello->nheld) {
        free(hello->held);
        hello->held = NULL;
        hello->state = SBX_GREETING_OPAQUE;
    }

    return n;
}


/* 1: the byte is of what a record holds. */

static int
sbx_greeting_record(sbx_greeting_records_t *records, uint8_t ch)
{
    if (records->nheader < SBX_GREETING_RECORD) {
        records->header[records->nheader++] = ch;

        if (records->nheader == SBX_GREETING_RECORD) {
            records->left = (size_t) records->header[3] << 8
                            | records->header[4];
            records->nheader = records->left != 0 ? SBX_GREETING_RECORD : 0;
        }

        return 0;
    }

    if (--records->left == 0) {
        records->nheader = 0;
    }

    return 1;
}


void
sbx_greeting_server(sbx_greeting_t *hello, const uint8_t *in, size_t n)
{
    size_t  i;

    for (i = 0; i < n && hello->state == SBX_GREETING_WAIT; i++) {

        if (hello->server.nheader == 0 && in[i] != SBX_GREETING_HANDSHAKE) {

            /* an alert, or no TLS at all: nothing is asked for */

            hello->state = SBX_GREETING_OPAQUE;
            return;
        }

        if (sbx_greeting_record(&hello->server, in[i])) {
            hello->message[hello->n++] = in[i];

            if (hello->n == SBX_GREETING_SERVER) {
                sbx_greeting_answer(hello);
            }
        }
    }
}


static void
sbx_greeting_answer(sbx_greeting_t *hello)
{
    size_t  at;

    at = SBX_GREETING_SERVER - sizeof(sbx_greeting_retry);

    hello->state = (memcmp(hello->message + at, sbx_greeting_retry,
                           sizeof(sbx_greeting_retry)) == 0)
                   ? SBX_GREETING_AGAIN : SBX_GREETING_OPAQUE;
}
