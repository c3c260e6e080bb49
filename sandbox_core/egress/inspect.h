/*
 * Reading what a client of the world says first, and what it goes on to say
 * where that matters: TLS, HTTP.  Hostile bytes on both sides.
 */

#ifndef SBX_INSPECT_H
#define SBX_INSPECT_H

#include "egress.h"


/*
 * ---- the first bytes: sniff.c ----------------------------------------------
 */

typedef enum {
    SBX_SNIFF_MORE,               /* cannot be told yet */
    SBX_SNIFF_TLS,
    SBX_SNIFF_HTTP,               /* a request of HTTP/1 begins */
    SBX_SNIFF_OTHER,
    SBX_SNIFF_BAD                 /* TLS or HTTP that is none, or too long */
} sbx_sniff_t;

typedef struct {
    char       name[SBX_NETWORK_HOST_MAX + 3];    /* TLS: SNI, lower case; ""
                                                     none */
    unsigned   ech:1;             /* TLS: encrypted_client_hello, whatever is
                                     in it */
    unsigned   h2:1;              /* OTHER: HTTP/2 with prior knowledge */
} sbx_sniffed_t;

/*
 * Of the n bytes that a client has sent so far (all of them each time).  A
 * ClientHello may come in any number of records and segments.  MORE only below
 * SBX_EG_FIRST_MAX.  Line ends before a request belong to it.
 */
sbx_sniff_t sbx_sniff(const uint8_t *p, size_t n, sbx_sniffed_t *out);


/*
 * ---- a second hello: greeting.c --------------------------------------------
 *
 * Of a client whose first ClientHello was judged, by the name in it.  All of
 * it passes, but a second ClientHello with another name.  To be used as the
 * filter of HTTP below: what is taken and made, whose turn it is, and when
 * nothing more needs to be looked at.
 */

typedef struct sbx_greeting_s  sbx_greeting_t;

sbx_greeting_t *sbx_greeting_open(const char *name);
void sbx_greeting_close(sbx_greeting_t *hello);
int sbx_greeting_client(sbx_greeting_t *hello, const uint8_t *in, size_t n,
    size_t *used, uint8_t *out, size_t size, size_t *made,
    sbx_refused_t *why);
int sbx_greeting_watches(const sbx_greeting_t *hello);
void sbx_greeting_server(sbx_greeting_t *hello, const uint8_t *in, size_t n);
int sbx_greeting_opaque(const sbx_greeting_t *hello);


/*
 * ---- HTTP/1: http.c --------------------------------------------------------
 *
 * A filter between a client and a server: reads requests as servers do, has
 * each of them judged by the host that it names (absolute-form target, Host,
 * port; both must agree), adds a header where one is due and removes the
 * client's own of that name, and passes all else on byte by byte.  What
 * servers read in different ways is refused: two lengths, a length and an
 * encoding, folded lines, bare CR, a space before a colon, two Hosts, none.
 * CONNECT is refused, and TRACE where a header is added.  After an Upgrade to
 * a WebSocket nothing of the client passes until the server has answered: 101
 * makes the rest opaque, all else goes on as before.  It is the first request
 * of its connection; any other wish for another protocol is left out, as if it
 * had not been asked for.
 */

typedef struct sbx_http_s  sbx_http_t;

typedef struct {
    /* 0 allowed, 1 refused; port 0: none is named.  *header is set to what is
     * to be added, or NULL. */
    int    (*host)(void *data, const char *host, unsigned port,
                   const sbx_eg_header_t **header);
    void    *data;
} sbx_http_judge_t;

sbx_http_t *sbx_http_open(const sbx_http_judge_t *judge);
void sbx_http_close(sbx_http_t *http);

/*
 * Takes up to n bytes of the client (*used) and writes what is to be sent to
 * the server (*made of size, at least SBX_HTTP_ROOM).  0: goes on when more
 * bytes, more room or the server's answer are there; 1: refused, after what
 * was made; *why tells.  A header that is added is in *out: to be cleared.
 */
#define SBX_HTTP_ROOM        (128 * 1024)

int sbx_http_client(sbx_http_t *http, const uint8_t *in, size_t n,
    size_t *used, uint8_t *out, size_t size, size_t *made,
    sbx_refused_t *why);
/* 1: what the server says is to be shown to _server(); 0: it does not matter
 * now. */
int sbx_http_watches(const sbx_http_t *http);
/* Bytes of the server, all of which pass unchanged. */
void sbx_http_server(sbx_http_t *http, const uint8_t *in, size_t n);
/* 1: from here on the client's bytes pass as they are. */
int sbx_http_opaque(const sbx_http_t *http);


/*
 * ---- TLS that is opened for a header's sake: tls.c, ca.c -------------------
 */

/* Reads the key and certificate of ca, or makes them and writes cert too. */
int sbx_eg_tls_open(sbx_egress_t *eg, int ca, int cert, sbx_error_t *e);
/* Certificates that servers are checked by, PEM; NULL: the host's, which are
 * read once, before the process has no files. */
int sbx_eg_tls_trust(sbx_egress_t *eg, const char *pem, size_t size,
    sbx_error_t *e);
void sbx_eg_tls_close(sbx_egress_t *eg);

/*
 * A TLS server for the client, who has named host, and a TLS client for the
 * server, checked as host; HTTP/1 between them through a filter.  Bytes only:
 * sockets are the caller's.
 */
typedef struct sbx_tls_pair_s  sbx_tls_pair_t;

typedef enum { SBX_TLS_CLIENT, SBX_TLS_SERVER } sbx_tls_side_t;

sbx_tls_pair_t *sbx_tls_pair_open(sbx_egress_t *eg, const char *host,
    const sbx_http_judge_t *judge, sbx_error_t *e);
void sbx_tls_pair_close(sbx_tls_pair_t *pair);
/* What has come from a side; *used bytes were taken; n 0: its end. */
int sbx_tls_pair_feed(sbx_tls_pair_t *pair, sbx_tls_side_t side,
    const uint8_t *in, size_t n, size_t *used);
/* What is to be sent to a side; the bytes made.  *end: nothing more will. */
size_t sbx_tls_pair_take(sbx_tls_pair_t *pair, sbx_tls_side_t side,
    uint8_t *out, size_t size, int *end);
/* 1: it is over, as *why says; text is for the log.  What there is to take for
 * the client is still to be sent: an alert, which says what was wrong. */
int sbx_tls_pair_failed(const sbx_tls_pair_t *pair, sbx_refused_t *why,
    const char **text);


#endif
