/*
 * Follows a client's stream of requests: where each of them begins and ends,
 * and that each is for somebody who may be reached.  A head is held until it
 * is whole; bodies pass as they come.
 *
 * The end of an answer is not followed, so the one answer that matters, that
 * of an upgrade, must be the first: a later request's wish for another
 * protocol is left out, and so is one for what has hosts of its own in it
 * (HTTP/2, TLS).  Servers then answer as if nothing had been wished.
 */

#include "http.h"

#include <string.h>


#define SBX_HTTP_HEAD_FIRST    2048
#define SBX_HTTP_HEAD_USUAL    8192      /* what is more has a bound of its
                                            own, of all connections' */
#define SBX_HTTP_HEADS_MAX     (32 * 1024 * 1024)
#define SBX_HTTP_BLANKS        8         /* empty lines before a request */
#define SBX_HTTP_DIGITS        15        /* of a chunk's size */
#define SBX_HTTP_EXTENSIONS    16384     /* bytes, of a body */
#define SBX_HTTP_STATUS        13        /* "HTTP/1.1 101 " */


typedef enum {
    SBX_HTTP_HEAD,
    SBX_HTTP_BODY,
    SBX_HTTP_SIZE,                /* of a chunk */
    SBX_HTTP_EXTENSION,
    SBX_HTTP_SIZE_LF,
    SBX_HTTP_CHUNK,
    SBX_HTTP_CHUNK_CR,
    SBX_HTTP_CHUNK_LF,
    SBX_HTTP_TRAILERS,
    SBX_HTTP_WAIT,                /* for the answer to an upgrade */
    SBX_HTTP_OPAQUE,
    SBX_HTTP_REFUSED
} sbx_http_state_t;

struct sbx_http_s {
    sbx_http_judge_t   judge;
    sbx_http_state_t   state;
    uint8_t           *head;      /* or trailers, as far as they are there */
    size_t             len;
    size_t             room;
    unsigned           whole:1;   /* the head is */
    unsigned           later:1;   /* not the first request */
    unsigned           mixed:1;   /* requests were for several hosts */
    unsigned           skips:1;   /* the rest of an answer's head */
    unsigned           blank:1;   /* of which the line is empty so far */
    unsigned           blanks;
    unsigned           digits;
    size_t             extensions;
    uint64_t           left;      /* of the body, or of a chunk */
    sbx_refused_t      why;
    size_t             answered;
    char               answer[SBX_HTTP_STATUS];
    char               added[SBX_HTTP_NAME_MAX + 1];
    char               host[SBX_NETWORK_HOST_MAX + 3];   /* of the first */
};

/* What is taken, and what is made of it. */
typedef struct {
    const uint8_t  *in;
    size_t          n;
    uint8_t        *out;
    size_t          size;
} sbx_http_flow_t;


static int sbx_http_step(sbx_http_t *http, sbx_http_flow_t *flow);
static int sbx_http_hold(sbx_http_t *http, sbx_http_flow_t *flow);
static int sbx_http_held(sbx_http_t *http, uint8_t ch);
static int sbx_http_grow(sbx_http_t *http);
static void sbx_http_drop(sbx_http_t *http);
static int sbx_http_head(sbx_http_t *http, sbx_http_flow_t *flow);
static int sbx_http_trailers(sbx_http_t *http, sbx_http_flow_t *flow);
static int sbx_http_chunk(sbx_http_t *http, uint8_t ch);
static int sbx_http_chunk_size(sbx_http_t *http, uint8_t ch);
static void sbx_http_pass(sbx_http_t *http, sbx_http_flow_t *flow);
static void sbx_http_next(sbx_http_t *http);
static int sbx_http_refuse(sbx_http_t *http, sbx_refused_t why);
static void sbx_http_status(sbx_http_t *http);


/* Bytes of heads that are larger than usual, in all of the process. */
static size_t  sbx_http_heads;


sbx_http_t *
sbx_http_open(const sbx_http_judge_t *judge)
{
    sbx_http_t  *http;

    http = calloc(1, sizeof(*http));

    if (http == NULL) {
        return NULL;
    }

    http->judge = *judge;

    return http;
}


void
sbx_http_close(sbx_http_t *http)
{
    if (http == NULL) {
        return;
    }

    sbx_http_drop(http);
    free(http);
}


int
sbx_http_client(sbx_http_t *http, const uint8_t *in, size_t n, size_t *used,
    uint8_t *out, size_t size, size_t *made, sbx_refused_t *why)
{
    int              rc;
    sbx_http_flow_t  flow;

    flow.in = in;
    flow.n = n;
    flow.out = out;
    flow.size = size;

    do {
        rc = sbx_http_step(http, &flow);
    } while (rc == 1);

    *used = n - flow.n;
    *made = size - flow.size;
    *why = http->why;

    return http->state == SBX_HTTP_REFUSED;
}


int
sbx_http_watches(const sbx_http_t *http)
{
    return http->state == SBX_HTTP_WAIT;
}


int
sbx_http_opaque(const sbx_http_t *http)
{
    return http->state == SBX_HTTP_OPAQUE;
}


void
sbx_http_server(sbx_http_t *http, const uint8_t *in, size_t n)
{
    size_t  i;

    for (i = 0; i < n && http->state == SBX_HTTP_WAIT; i++) {

        if (!http->skips) {
            http->answer[http->answered++] = (char) in[i];

            if (http->answered == SBX_HTTP_STATUS) {
                sbx_http_status(http);
            }

        } else if (in[i] == '\n') {

            /* what comes before an answer: another one follows */

            if (http->blank) {
                http->skips = 0;
                http->answered = 0;
            }

            http->blank = 1;

        } else if (in[i] != '\r') {
            http->blank = 0;
        }
    }
}


static void
sbx_http_status(sbx_http_t *http)
{
    const char  *p;

    p = http->answer;

    if (memcmp(p, "HTTP/1.", 7) != 0 || p[7] < '0' || p[7] > '9'
        || p[8] != ' ' || p[9] != '1' || p[10] < '0' || p[10] > '9'
        || p[11] < '0' || p[11] > '9'
        || (p[12] != ' ' && p[12] != '\r' && p[12] != '\n'))
    {
        http->state = SBX_HTTP_HEAD;
        return;
    }

    if (p[10] == '0' && p[11] == '1') {
        http->state = SBX_HTTP_OPAQUE;
        return;
    }

    http->skips = 1;
    http->blank = (p[12] == '\n');
}


/* 1: more may be done; 0: not now, or never again. */

static int
sbx_http_step(sbx_http_t *http, sbx_http_flow_t *flow)
{
    uint8_t  ch;

    switch (http->state) {

    case SBX_HTTP_HEAD:
    case SBX_HTTP_TRAILERS:
        return sbx_http_hold(http, flow);

    case SBX_HTTP_BODY:
    case SBX_HTTP_CHUNK:
    case SBX_HTTP_OPAQUE:

        if (flow->n == 0 || flow->size == 0) {
            return 0;
        }

        sbx_http_pass(http, flow);

        return 1;

    case SBX_HTTP_SIZE:
    case SBX_HTTP_EXTENSION:
    case SBX_HTTP_SIZE_LF:
    case SBX_HTTP_CHUNK_CR:
    case SBX_HTTP_CHUNK_LF:

        if (flow->n == 0 || flow->size == 0) {
            return 0;
        }

        ch = *flow->in++;
        flow->n--;

        if (sbx_http_chunk(http, ch) != 0) {
            return sbx_http_refuse(http, SBX_REFUSED_PROTOCOL);
        }

        *flow->out++ = ch;
        flow->size--;

        return 1;

    case SBX_HTTP_WAIT:
    case SBX_HTTP_REFUSED:
        return 0;
    }

    return 0;
}


/* Whatever is of a body, or of what is none of ours. */

static void
sbx_http_pass(sbx_http_t *http, sbx_http_flow_t *flow)
{
    size_t  n;

    n = flow->n < flow->size ? flow->n : flow->size;

    if (http->state != SBX_HTTP_OPAQUE && n > http->left) {
        n = (size_t) http->left;
    }

    memcpy(flow->out, flow->in, n);
    flow->in += n;
    flow->n -= n;
    flow->out += n;
    flow->size -= n;

    if (http->state == SBX_HTTP_OPAQUE) {
        return;
    }

    http->left -= n;

    if (http->left != 0) {
        return;
    }

    if (http->state == SBX_HTTP_CHUNK) {
        http->state = SBX_HTTP_CHUNK_CR;

    } else {
        sbx_http_next(http);
    }
}


/*
 * ---- heads and trailers ----------------------------------------------------
 */

static int
sbx_http_hold(sbx_http_t *http, sbx_http_flow_t *flow)
{
    while (!http->whole) {

        if (flow->n == 0) {
            return 0;
        }

        flow->n--;

        if (http->len == http->room && sbx_http_grow(http) != 0) {
            return sbx_http_refuse(http, http->room < SBX_HTTP_HEAD_MAX
                                         ? SBX_REFUSED_LIMIT
                                         : SBX_REFUSED_PROTOCOL);
        }

        if (sbx_http_held(http, *flow->in++) != 0) {
            return sbx_http_refuse(http, SBX_REFUSED_PROTOCOL);
        }
    }

    /* judged when it can go: what it is judged by may change before */

    if (flow->size < http->len + SBX_HTTP_ADDED_MAX) {
        return 0;
    }

    return http->state == SBX_HTTP_HEAD ? sbx_http_head(http, flow)
                                        : sbx_http_trailers(http, flow);
}


static int
sbx_http_held(sbx_http_t *http, uint8_t ch)
{
    uint8_t  last;

    last = http->len != 0 ? http->head[http->len - 1] : '\0';

    if ((ch == '\n') != (last == '\r') || ch == '\0') {
        return -1;
    }

    http->head[http->len++] = ch;

    if (ch != '\n') {
        return 0;
    }

    if (http->len == 2 && http->state == SBX_HTTP_HEAD) {
        http->len = 0;
        return (++http->blanks > SBX_HTTP_BLANKS) ? -1 : 0;
    }

    http->whole = http->len == 2
                  || (http->len >= 4
                      && memcmp(http->head + http->len - 4, "\r\n", 2) == 0);

    return 0;
}


static int
sbx_http_grow(sbx_http_t *http)
{
    size_t    room, large;
    uint8_t  *head;

    room = http->room != 0 ? http->room * 2 : SBX_HTTP_HEAD_FIRST;
    large = http->room > SBX_HTTP_HEAD_USUAL ? http->room : 0;

    if (room > SBX_HTTP_HEAD_MAX
        || (room > SBX_HTTP_HEAD_USUAL
            && sbx_http_heads - large + room > SBX_HTTP_HEADS_MAX))
    {
        return -1;
    }

    head = realloc(http->head, room);

    if (head == NULL) {
        return -1;
    }

    if (room > SBX_HTTP_HEAD_USUAL) {
        sbx_http_heads += room - large;
    }

    http->head = head;
    http->room = room;

    return 0;
}


static void
sbx_http_drop(sbx_http_t *http)
{
    if (http->room > SBX_HTTP_HEAD_USUAL) {
        sbx_http_heads -= http->room;
    }

    free(http->head);
    http->head = NULL;
    http->room = 0;
}


static int
sbx_http_head(sbx_http_t *http, sbx_http_flow_t *flow)
{
    size_t                  n;
    sbx_refused_t           why;
    sbx_http_head_t         head;
    const sbx_eg_header_t  *header;

    if (sbx_http_head_read(http->head, http->len, &head, &why) != 0) {
        return sbx_http_refuse(http, why);
    }

    header = NULL;

    if (http->judge.host(http->judge.data, head.host, head.port, &header)
        != 0)
    {
        return sbx_http_refuse(http, SBX_REFUSED_NAME);
    }

    http->added[0] = '\0';
    http->mixed |= http->later && strcmp(http->host, head.host) != 0;

    if (header != NULL) {

        /* a server that sees another end of the request before would give
         * this one to the other host */

        if (http->mixed) {
            return sbx_http_refuse(http, SBX_REFUSED_NAME);
        }

        if (sbx_http_head_added(&head, header) != 0
            || sbx_copy_string(http->added, sizeof(http->added),
                               header->name, strlen(header->name)) != 0)
        {
            return sbx_http_refuse(http, SBX_REFUSED_PROTOCOL);
        }
    }

    if (!head.upgrade || http->later) {
        sbx_http_head_stay(&head);
    }

    n = sbx_http_head_write(&head, header, flow->out);
    flow->out += n;
    flow->size -= n;

    if (!http->later) {
        memcpy(http->host, head.host, sizeof(http->host));
    }

    http->later = 1;
    http->extensions = 0;
    http->left = head.length;

    if (head.chunked) {
        http->state = SBX_HTTP_SIZE;
        http->digits = 0;

    } else if (head.length != 0) {
        http->state = SBX_HTTP_BODY;

    } else {
        sbx_http_next(http);
    }

    if (head.upgrade) {
        http->state = SBX_HTTP_WAIT;
    }

    sbx_http_drop(http);
    http->len = 0;
    http->whole = 0;

    return 1;
}


static int
sbx_http_trailers(sbx_http_t *http, sbx_http_flow_t *flow)
{
    size_t           i, n;
    sbx_http_head_t  head;

    if (sbx_http_trailers_read(http->head, http->len, &head) != 0) {
        return sbx_http_refuse(http, SBX_REFUSED_PROTOCOL);
    }

    for (i = 0; i < head.nfields; i++) {

        if (sbx_http_named(&head.fields[i].name, http->added)) {
            return sbx_http_refuse(http, SBX_REFUSED_PROTOCOL);
        }
    }

    n = sbx_http_head_write(&head, NULL, flow->out);
    flow->out += n;
    flow->size -= n;

    sbx_http_next(http);

    return 1;
}


/* Another request; between two of them nothing is held. */

static void
sbx_http_next(sbx_http_t *http)
{
    sbx_http_drop(http);

    http->state = SBX_HTTP_HEAD;
    http->len = 0;
    http->whole = 0;
    http->blanks = 0;
}


static int
sbx_http_refuse(sbx_http_t *http, sbx_refused_t why)
{
    http->state = SBX_HTTP_REFUSED;
    http->why = why;

    return 0;
}


/*
 * ---- chunks ----------------------------------------------------------------
 */

static int
sbx_http_chunk(sbx_http_t *http, uint8_t ch)
{
    switch (http->state) {

    case SBX_HTTP_SIZE:
        return sbx_http_chunk_size(http, ch);

    case SBX_HTTP_EXTENSION:

        if (ch == '\r') {
            http->state = SBX_HTTP_SIZE_LF;
            return 0;
        }

        if ((ch < ' ' && ch != '\t') || ch == 0x7f) {
            return -1;
        }

        return (++http->extensions > SBX_HTTP_EXTENSIONS) ? -1 : 0;

    case SBX_HTTP_SIZE_LF:
        http->state = (http->left != 0) ? SBX_HTTP_CHUNK : SBX_HTTP_TRAILERS;
        return (ch == '\n') ? 0 : -1;

    case SBX_HTTP_CHUNK_CR:
        http->state = SBX_HTTP_CHUNK_LF;
        return (ch == '\r') ? 0 : -1;

    case SBX_HTTP_CHUNK_LF:
        http->state = SBX_HTTP_SIZE;
        http->digits = 0;
        http->left = 0;
        return (ch == '\n') ? 0 : -1;

    case SBX_HTTP_HEAD:
    case SBX_HTTP_BODY:
    case SBX_HTTP_CHUNK:
    case SBX_HTTP_TRAILERS:
    case SBX_HTTP_WAIT:
    case SBX_HTTP_OPAQUE:
    case SBX_HTTP_REFUSED:
        break;
    }

    return -1;
}


static int
sbx_http_chunk_size(sbx_http_t *http, uint8_t ch)
{
    unsigned  digit;

    if (http->digits != 0 && (ch == '\r' || ch == ';')) {
        http->state = (ch == ';') ? SBX_HTTP_EXTENSION : SBX_HTTP_SIZE_LF;
        return 0;
    }

    if (ch >= '0' && ch <= '9') {
        digit = (unsigned) (ch - '0');

    } else if ((ch | 0x20) >= 'a' && (ch | 0x20) <= 'f') {
        digit = (unsigned) ((ch | 0x20) - 'a') + 10;

    } else {
        return -1;
    }

    if (++http->digits > SBX_HTTP_DIGITS) {
        return -1;
    }

    http->left = http->left << 4 | digit;

    return 0;
}
