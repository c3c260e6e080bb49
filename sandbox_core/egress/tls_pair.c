/*
 * An opened connection: TLS with the client, whom we show a certificate of our
 * own, TLS with the server, whom we check, and requests between them that pass
 * a filter.
 *
 * The server comes first: only when it has shown who it is does the client
 * hear anything, so that a server that is none is told of by an alert, in the
 * place where programs look for it.
 *
 * Buffers are OpenSSL's, in memory, and bounded: nothing is taken in while
 * what came before it has not gone out.
 */

#include "tls.h"

#include <openssl/err.h>
#include <openssl/x509v3.h>
#include <string.h>


#define SBX_TLS_BUFFER    32768
#define SBX_TLS_CHUNK     16384
#define SBX_TLS_TEXT      192


typedef struct {
    SSL       *ssl;
    BIO       *in;                /* the SSL's */
    BIO       *out;
    unsigned   ready:1;           /* the handshake is over */
    unsigned   ended:1;           /* nothing more comes */
    unsigned   cut:1;             /* without having said so */
    unsigned   closed:1;          /* nothing more goes there */
} sbx_tls_end_t;

struct sbx_tls_pair_s {
    sbx_tls_end_t      ends[2];   /* by sbx_tls_side_t */
    sbx_http_t        *http;
    sbx_http_judge_t   judge;
    char               host[SBX_NETWORK_HOST_MAX + 3];
    uint8_t           *held;      /* what the filter does not take yet */
    size_t             nheld;
    unsigned           failed:1;
    int                alert;     /* that the client is to get */
    sbx_refused_t      why;
    char               text[SBX_TLS_TEXT];
};


static int sbx_tls_end_open(sbx_tls_end_t *end, SSL_CTX *ctx);
static int sbx_tls_pair_client(sbx_tls_pair_t *pair, sbx_eg_tls_t *tls);
static int sbx_tls_pair_server(sbx_tls_pair_t *pair);
static int sbx_tls_pair_judge(void *data, const char *host, unsigned port,
    const sbx_eg_header_t **header);
static void sbx_tls_pump(sbx_tls_pair_t *pair);
static int sbx_tls_greet(sbx_tls_pair_t *pair, sbx_tls_side_t side);
static void sbx_tls_greet_failed(sbx_tls_pair_t *pair, sbx_tls_side_t side);
static int sbx_tls_alert(long result);
static int sbx_tls_request(sbx_tls_pair_t *pair);
static int sbx_tls_filter(sbx_tls_pair_t *pair, const uint8_t *p, size_t n);
static int sbx_tls_answer(sbx_tls_pair_t *pair);
static size_t sbx_tls_read(sbx_tls_pair_t *pair, sbx_tls_side_t side,
    uint8_t *buf);
static int sbx_tls_write(sbx_tls_pair_t *pair, sbx_tls_side_t side,
    const uint8_t *p, size_t n);
static void sbx_tls_finish(sbx_tls_pair_t *pair, sbx_tls_side_t side, int cut);
static void sbx_tls_fail(sbx_tls_pair_t *pair, sbx_refused_t why,
    const char *what, const char *reason);


sbx_tls_pair_t *
sbx_tls_pair_open(sbx_egress_t *eg, const char *host,
    const sbx_http_judge_t *judge, sbx_error_t *e)
{
    sbx_tls_pair_t    *pair;
    sbx_http_judge_t   inner;

    if (eg->tls == NULL) {
        (void) sbx_error(e, 0, SBX_E_INTERNAL, "TLS is not set up");
        return NULL;
    }

    if (sbx_tls_trusts(eg->tls, e) != 0) {
        return NULL;
    }

    pair = calloc(1, sizeof(*pair));

    if (pair == NULL) {
        (void) sbx_error(e, errno, SBX_E_INTERNAL, "out of memory");
        return NULL;
    }

    inner.host = sbx_tls_pair_judge;
    inner.data = pair;

    pair->judge = *judge;
    pair->http = sbx_http_open(&inner);

    if (pair->http == NULL
        || sbx_copy_string(pair->host, sizeof(pair->host), host,
                           strlen(host)) != 0
        || sbx_tls_end_open(&pair->ends[SBX_TLS_CLIENT], eg->tls->clients)
           != 0
        || sbx_tls_end_open(&pair->ends[SBX_TLS_SERVER], eg->tls->servers)
           != 0
        || sbx_tls_pair_client(pair, eg->tls) != 0
        || sbx_tls_pair_server(pair) != 0)
    {
        (void) sbx_error(e, 0, SBX_E_INTERNAL, "a connection cannot be "
                         "opened: %s", sbx_tls_reason());
        sbx_tls_pair_close(pair);
        return NULL;
    }

    sbx_tls_pump(pair);

    return pair;
}


void
sbx_tls_pair_close(sbx_tls_pair_t *pair)
{
    if (pair == NULL) {
        return;
    }

    SSL_free(pair->ends[SBX_TLS_CLIENT].ssl);
    SSL_free(pair->ends[SBX_TLS_SERVER].ssl);
    sbx_http_close(pair->http);
    free(pair->held);
    free(pair);
}


int
sbx_tls_pair_feed(sbx_tls_pair_t *pair, sbx_tls_side_t side,
    const uint8_t *in, size_t n, size_t *used)
{
    size_t          room;
    sbx_tls_end_t  *end;

    end = &pair->ends[side];
    *used = n;

    if (pair->failed) {
        return -1;
    }

    if (end->ended) {
        return 0;
    }

    if (n == 0) {
        (void) BIO_set_mem_eof_return(end->in, 0);

    } else {
        room = BIO_ctrl_pending(end->in);
        room = (room < SBX_TLS_BUFFER) ? SBX_TLS_BUFFER - room : 0;
        n = (n < room) ? n : room;

        if (n != 0 && BIO_write(end->in, in, (int) n) != (int) n) {
            sbx_tls_fail(pair, SBX_REFUSED_PROTOCOL, "out of memory", NULL);
        }

        *used = n;
    }

    sbx_tls_pump(pair);

    return pair->failed ? -1 : 0;
}


size_t
sbx_tls_pair_take(sbx_tls_pair_t *pair, sbx_tls_side_t side, uint8_t *out,
    size_t size, int *end)
{
    int             n;
    sbx_tls_end_t  *to;

    to = &pair->ends[side];
    n = 0;

    if (size != 0 && BIO_ctrl_pending(to->out) != 0) {
        n = BIO_read(to->out, out, size < INT32_MAX ? (int) size : INT32_MAX);
        n = (n > 0) ? n : 0;

        sbx_tls_pump(pair);
    }

    *end = (to->closed || pair->failed) && BIO_ctrl_pending(to->out) == 0;

    return (size_t) n;
}


int
sbx_tls_pair_failed(const sbx_tls_pair_t *pair, sbx_refused_t *why,
    const char **text)
{
    if (!pair->failed) {
        return 0;
    }

    *why = pair->why;
    *text = pair->text;

    return 1;
}


/*
 * ---- both ends -------------------------------------------------------------
 */

static int
sbx_tls_end_open(sbx_tls_end_t *end, SSL_CTX *ctx)
{
    end->in = BIO_new(BIO_s_mem());
    end->out = BIO_new(BIO_s_mem());
    end->ssl = SSL_new(ctx);

    if (end->in == NULL || end->out == NULL || end->ssl == NULL) {
        BIO_free(end->in);
        BIO_free(end->out);
        end->in = NULL;
        end->out = NULL;
        return -1;
    }

    SSL_set_bio(end->ssl, end->in, end->out);

    return 0;
}


static int
sbx_tls_pair_client(sbx_tls_pair_t *pair, sbx_eg_tls_t *tls)
{
    int    rc;
    SSL   *ssl;
    X509  *cert;

    ssl = pair->ends[SBX_TLS_CLIENT].ssl;
    cert = sbx_ca_leaf(&tls->ca, pair->host);

    if (cert == NULL) {
        return -1;
    }

    rc = SSL_use_certificate(ssl, cert);
    X509_free(cert);

    if (rc != 1 || SSL_use_PrivateKey(ssl, tls->ca.leaf_key) != 1
        || SSL_set_app_data(ssl, pair) != 1)
    {
        return -1;
    }

    SSL_set_accept_state(ssl);

    return 0;
}


static int
sbx_tls_pair_server(sbx_tls_pair_t *pair)
{
    SSL  *ssl;

    ssl = pair->ends[SBX_TLS_SERVER].ssl;

    SSL_set_hostflags(ssl, X509_CHECK_FLAG_NO_PARTIAL_WILDCARDS);

    if (SSL_set1_host(ssl, pair->host) != 1
        || SSL_set_tlsext_host_name(ssl, pair->host) != 1)
    {
        return -1;
    }

    SSL_set_connect_state(ssl);

    return 0;
}


/* The server has proved to be one host: what is for another, and the header
 * that is due there, is not for it. */

static int
sbx_tls_pair_judge(void *data, const char *host, unsigned port,
    const sbx_eg_header_t **header)
{
    sbx_tls_pair_t  *pair;

    pair = data;

    if (strcmp(host, pair->host) != 0) {
        return 1;
    }

    return pair->judge.host(pair->judge.data, host, port, header);
}


static void
sbx_tls_pump(sbx_tls_pair_t *pair)
{
    int             moved;
    sbx_tls_end_t  *client, *server;

    client = &pair->ends[SBX_TLS_CLIENT];
    server = &pair->ends[SBX_TLS_SERVER];

    do {
        moved = 0;

        if (!server->ready && !server->closed) {
            moved = sbx_tls_greet(pair, SBX_TLS_SERVER);

        } else if (!client->ready && !client->closed) {
            moved = sbx_tls_greet(pair, SBX_TLS_CLIENT);

        } else if (client->ready && server->ready) {
            moved = sbx_tls_request(pair);

            if (!pair->failed) {
                moved |= sbx_tls_answer(pair);
            }
        }

    } while (moved && !pair->failed);
}


/*
 * ---- handshakes ------------------------------------------------------------
 */

static int
sbx_tls_greet(sbx_tls_pair_t *pair, sbx_tls_side_t side)
{
    int             rc, reason;
    sbx_tls_end_t  *end;

    end = &pair->ends[side];

    ERR_clear_error();
    rc = SSL_do_handshake(end->ssl);

    if (rc == 1) {
        end->ready = 1;
        return 1;
    }

    reason = SSL_get_error(end->ssl, rc);

    if (reason == SSL_ERROR_WANT_READ || reason == SSL_ERROR_WANT_WRITE) {
        return 0;
    }

    sbx_tls_greet_failed(pair, side);

    return 0;
}


static void
sbx_tls_greet_failed(sbx_tls_pair_t *pair, sbx_tls_side_t side)
{
    int             gone;
    long            result;
    sbx_tls_end_t  *client, *server;

    client = &pair->ends[SBX_TLS_CLIENT];
    server = &pair->ends[SBX_TLS_SERVER];

    gone = ERR_GET_REASON(ERR_peek_error())
           == SSL_R_UNEXPECTED_EOF_WHILE_READING;

    if (side == SBX_TLS_CLIENT) {

        /* one that has lost interest has done nothing wrong */

        if (gone) {
            ERR_clear_error();
            client->closed = 1;
            sbx_tls_finish(pair, SBX_TLS_SERVER, 0);
            return;
        }

        sbx_tls_fail(pair, SBX_REFUSED_PROTOCOL,
                     "TLS with the session's program", sbx_tls_reason());
        return;
    }

    result = SSL_get_verify_result(server->ssl);
    pair->alert = sbx_tls_alert(result);

    if (result != X509_V_OK) {
        ERR_clear_error();
        sbx_tls_fail(pair, SBX_REFUSED_PROTOCOL, "the server's certificate",
                     X509_verify_cert_error_string(result));

    } else {
        sbx_tls_fail(pair, SBX_REFUSED_PROTOCOL, "TLS with the server",
                     sbx_tls_reason());
    }

    (void) SSL_do_handshake(client->ssl);
    ERR_clear_error();
}


int
sbx_tls_hello(SSL *ssl, int *alert, void *data)
{
    sbx_tls_pair_t  *pair;

    (void) data;

    pair = SSL_get_app_data(ssl);

    if (pair == NULL || pair->alert != 0) {
        *alert = (pair != NULL) ? pair->alert : SSL_AD_INTERNAL_ERROR;
        return SSL_CLIENT_HELLO_ERROR;
    }

    return SSL_CLIENT_HELLO_SUCCESS;
}


/* As if the client had checked the server's certificate itself. */

static int
sbx_tls_alert(long result)
{
    size_t  i;

    static const struct {
        long   result;
        int    alert;
    } alerts[] = {
        { X509_V_OK, SSL_AD_HANDSHAKE_FAILURE },
        { X509_V_ERR_UNABLE_TO_GET_ISSUER_CERT, SSL_AD_UNKNOWN_CA },
        { X509_V_ERR_UNABLE_TO_GET_ISSUER_CERT_LOCALLY, SSL_AD_UNKNOWN_CA },
        { X509_V_ERR_UNABLE_TO_VERIFY_LEAF_SIGNATURE, SSL_AD_UNKNOWN_CA },
        { X509_V_ERR_DEPTH_ZERO_SELF_SIGNED_CERT, SSL_AD_UNKNOWN_CA },
        { X509_V_ERR_SELF_SIGNED_CERT_IN_CHAIN, SSL_AD_UNKNOWN_CA },
        { X509_V_ERR_CERT_HAS_EXPIRED, SSL_AD_CERTIFICATE_EXPIRED },
        { X509_V_ERR_CERT_NOT_YET_VALID, SSL_AD_CERTIFICATE_EXPIRED }
    };

    for (i = 0; i < sbx_nelts(alerts); i++) {

        if (alerts[i].result == result) {
            return alerts[i].alert;
        }
    }

    return SSL_AD_BAD_CERTIFICATE;
}


/*
 * ---- what is said ----------------------------------------------------------
 */

/* 1: something moved. */

static int
sbx_tls_request(sbx_tls_pair_t *pair)
{
    int             moved;
    size_t          n;
    sbx_tls_end_t  *client, *server;

    static uint8_t  text[SBX_TLS_CHUNK];

    client = &pair->ends[SBX_TLS_CLIENT];
    server = &pair->ends[SBX_TLS_SERVER];

    if (server->closed || BIO_ctrl_pending(server->out) >= SBX_TLS_BUFFER) {
        return 0;
    }

    if (pair->nheld != 0) {
        n = pair->nheld;
        memcpy(text, pair->held, n);
        moved = 0;

    } else {

        /* what a client has us say to itself is bounded too */

        if (client->ended
            || BIO_ctrl_pending(client->out) >= 2 * SBX_TLS_BUFFER)
        {
            n = 0;

        } else {
            n = sbx_tls_read(pair, SBX_TLS_CLIENT, text);
        }

        moved = (n != 0);
    }

    if (n != 0) {
        moved |= sbx_tls_filter(pair, text, n);
    }

    OPENSSL_cleanse(text, n);

    if (client->ended && pair->nheld == 0 && !pair->failed) {
        sbx_tls_finish(pair, SBX_TLS_SERVER, client->cut);
    }

    return moved;
}


/* What is not taken is held, as it is. */

static int
sbx_tls_filter(sbx_tls_pair_t *pair, const uint8_t *p, size_t n)
{
    int            rc, moved;
    size_t         used, made;
    sbx_refused_t  why;

    static uint8_t  out[SBX_HTTP_ROOM];

    moved = 0;

    do {
        rc = sbx_http_client(pair->http, p, n, &used, out, sizeof(out), &made,
                             &why);
        p += used;
        n -= used;
        moved |= (used != 0 || made != 0);

        if (made != 0 && sbx_tls_write(pair, SBX_TLS_SERVER, out, made) != 0) {
            rc = -1;
        }

        OPENSSL_cleanse(out, made);

    } while (rc == 0 && made != 0 && n != 0);

    if (rc == 1) {
        sbx_tls_fail(pair, why, "a request is refused", NULL);
    }

    if (rc != 0) {
        return 0;
    }

    if (n != 0 && pair->held == NULL) {
        pair->held = malloc(SBX_TLS_CHUNK);

        if (pair->held == NULL) {
            sbx_tls_fail(pair, SBX_REFUSED_PROTOCOL, "out of memory", NULL);
            return 0;
        }
    }

    if (n != 0) {
        memcpy(pair->held, p, n);

    } else {
        free(pair->held);
        pair->held = NULL;
    }

    pair->nheld = n;

    return moved;
}


static int
sbx_tls_answer(sbx_tls_pair_t *pair)
{
    size_t          n;
    sbx_tls_end_t  *client, *server;

    static uint8_t  text[SBX_TLS_CHUNK];

    client = &pair->ends[SBX_TLS_CLIENT];
    server = &pair->ends[SBX_TLS_SERVER];

    if (client->closed || BIO_ctrl_pending(client->out) >= SBX_TLS_BUFFER
        || BIO_ctrl_pending(server->out) >= 2 * SBX_HTTP_ROOM)
    {
        return 0;
    }

    n = server->ended ? 0 : sbx_tls_read(pair, SBX_TLS_SERVER, text);

    if (n != 0) {

        if (sbx_http_watches(pair->http)) {
            sbx_http_server(pair->http, text, n);
        }

        (void) sbx_tls_write(pair, SBX_TLS_CLIENT, text, n);
        OPENSSL_cleanse(text, n);
    }

    if (server->ended && !pair->failed) {
        sbx_tls_finish(pair, SBX_TLS_CLIENT, server->cut);
    }

    return n != 0;
}


/* Of SBX_TLS_CHUNK at most; 0: nothing now, the end, or a failure. */

static size_t
sbx_tls_read(sbx_tls_pair_t *pair, sbx_tls_side_t side, uint8_t *buf)
{
    size_t          n;
    sbx_tls_end_t  *end;

    end = &pair->ends[side];

    ERR_clear_error();

    if (SSL_read_ex(end->ssl, buf, SBX_TLS_CHUNK, &n) == 1) {
        return n;
    }

    switch (SSL_get_error(end->ssl, 0)) {

    case SSL_ERROR_WANT_READ:
    case SSL_ERROR_WANT_WRITE:
        return 0;

    case SSL_ERROR_ZERO_RETURN:
        end->ended = 1;
        return 0;

    default:
        break;
    }

    if (ERR_GET_REASON(ERR_peek_error())
        == SSL_R_UNEXPECTED_EOF_WHILE_READING)
    {
        ERR_clear_error();
        end->ended = 1;
        end->cut = 1;
        return 0;
    }

    sbx_tls_fail(pair, SBX_REFUSED_PROTOCOL,
                 side == SBX_TLS_CLIENT ? "TLS with the session's program"
                                        : "TLS with the server",
                 sbx_tls_reason());

    return 0;
}


/* All of it: a buffer in memory takes what there is. */

static int
sbx_tls_write(sbx_tls_pair_t *pair, sbx_tls_side_t side, const uint8_t *p,
    size_t n)
{
    size_t  written;

    while (n != 0) {
        ERR_clear_error();

        if (SSL_write_ex(pair->ends[side].ssl, p, n, &written) != 1) {
            sbx_tls_fail(pair, SBX_REFUSED_PROTOCOL, "TLS",
                         sbx_tls_reason());
            return -1;
        }

        p += written;
        n -= written;
    }

    return 0;
}


/* A stream that was cut is not made to look as if it had been whole. */

static void
sbx_tls_finish(sbx_tls_pair_t *pair, sbx_tls_side_t side, int cut)
{
    sbx_tls_end_t  *end;

    end = &pair->ends[side];

    if (end->closed) {
        return;
    }

    end->closed = 1;

    if (!cut && end->ready) {
        ERR_clear_error();
        (void) SSL_shutdown(end->ssl);
        ERR_clear_error();
    }
}


static void
sbx_tls_fail(sbx_tls_pair_t *pair, sbx_refused_t why, const char *what,
    const char *reason)
{
    pair->failed = 1;
    pair->why = why;

    (void) snprintf(pair->text, sizeof(pair->text), "%s%s%s", what,
                    reason != NULL ? ": " : "", reason != NULL ? reason : "");
}
