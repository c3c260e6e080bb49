/*
 * TLS that is opened for a header's sake: between a client and a server that
 * are OpenSSL's, with every certificate that a server should not have.
 */

#include "tap.h"

#include "tls.h"

#include <fcntl.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/rand.h>
#include <openssl/x509v3.h>
#include <sys/mman.h>
#include <sys/stat.h>


#define HOST    "secret.example"
#define SECRET  "Bearer 5up3r-s3cret"
#define DAY     86400L
#define BULK    (4 * 1024 * 1024)


typedef struct {
    SSL_CTX   *ctx;
    SSL       *ssl;
    BIO       *in;
    BIO       *out;
    int        ended;             /* as the pair says */
    int        failed;
    char       reason[128];
    uint8_t   *got;
    size_t     ngot;
} peer_t;

static sbx_egress_t      eg;
static sbx_tls_pair_t   *pair;
static peer_t            client;
static peer_t            server;
static unsigned          judged;
static char              value[] = SECRET;
static EVP_PKEY         *ca_key;
static X509             *ca_cert;
static EVP_PKEY         *key;
static sbx_eg_header_t   header = {
    .host = HOST, .name = "Authorization", .value = value,
    .size = sizeof(value) - 1, .tls = 1
};


static int
judge(void *data, const char *host, unsigned port,
    const sbx_eg_header_t **added)
{
    (void) data;
    (void) port;

    judged++;
    *added = (strcmp(host, HOST) == 0) ? &header : NULL;

    return 0;
}


/*
 * ---- certificates ----------------------------------------------------------
 */

static void
extend(X509 *cert, X509 *issuer, int nid, const char *text)
{
    X509V3_CTX       ctx;
    X509_EXTENSION  *e;

    X509V3_set_ctx(&ctx, issuer, cert, NULL, NULL, 0);
    e = X509V3_EXT_conf_nid(NULL, &ctx, nid, text);
    X509_add_ext(cert, e, -1);
    X509_EXTENSION_free(e);
}


static X509 *
certify(const char *name, EVP_PKEY *subject, X509 *issuer,
    EVP_PKEY *issuer_key, long from, long until)
{
    X509        *cert;
    char         names[300];
    static long  serial;

    cert = X509_new();
    X509_set_version(cert, X509_VERSION_3);
    ASN1_INTEGER_set(X509_get_serialNumber(cert), ++serial);
    X509_gmtime_adj(X509_getm_notBefore(cert), from);
    X509_gmtime_adj(X509_getm_notAfter(cert), until);
    X509_set_pubkey(cert, subject);
    X509_NAME_add_entry_by_NID(X509_get_subject_name(cert), NID_commonName,
                               MBSTRING_ASC, (const unsigned char *) name,
                               -1, -1, 0);
    X509_set_issuer_name(cert, X509_get_subject_name(issuer ? issuer : cert));

    if (issuer == NULL) {
        extend(cert, cert, NID_basic_constraints, "critical,CA:TRUE");
    }

    (void) snprintf(names, sizeof(names), "DNS:%s", name);
    extend(cert, issuer ? issuer : cert, NID_subject_alt_name, names);
    X509_sign(cert, issuer_key, EVP_sha256());

    return cert;
}


/* The PEM of a certificate; the caller's. */

static char *
pem_of(X509 *cert, size_t *size)
{
    BIO   *bio;
    char  *p, *copy;

    bio = BIO_new(BIO_s_mem());
    PEM_write_bio_X509(bio, cert);
    *size = (size_t) BIO_get_mem_data(bio, &p);
    copy = malloc(*size);
    memcpy(copy, p, *size);
    BIO_free(bio);

    return copy;
}


static void
trust(X509 *cert)
{
    char         *pem;
    size_t        n;
    sbx_error_t   e;

    pem = pem_of(cert, &n);

    if (sbx_eg_tls_trust(&eg, pem, n, &e) != 0) {
        ok(0, "the test's authority is trusted: %s", e.text);
    }

    free(pem);
}


/*
 * ---- both peers ------------------------------------------------------------
 */

static void
peer_open(peer_t *peer, const SSL_METHOD *method)
{
    memset(peer, 0, sizeof(*peer));

    peer->ctx = SSL_CTX_new(method);
    peer->ssl = SSL_new(peer->ctx);
    peer->in = BIO_new(BIO_s_mem());
    peer->out = BIO_new(BIO_s_mem());
    peer->got = malloc(BULK + 65536);
    SSL_set_bio(peer->ssl, peer->in, peer->out);
}


static void
peer_close(peer_t *peer)
{
    SSL_free(peer->ssl);
    SSL_CTX_free(peer->ctx);
    free(peer->got);
    memset(peer, 0, sizeof(*peer));
}


/* A server with that certificate (NULL: our good one), and a client that
 * trusts the egress. */

static void
begin(X509 *cert)
{
    X509              *good;
    sbx_error_t        e;
    sbx_http_judge_t   j;

    peer_open(&client, TLS_client_method());
    peer_open(&server, TLS_server_method());

    good = (cert == NULL) ? certify(HOST, key, ca_cert, ca_key, -DAY, DAY)
                          : NULL;

    SSL_use_certificate(server.ssl, cert != NULL ? cert : good);
    SSL_use_PrivateKey(server.ssl, key);
    SSL_set_accept_state(server.ssl);
    X509_free(good);

    X509_STORE_add_cert(SSL_CTX_get_cert_store(client.ctx), eg.tls->ca.cert);
    SSL_set_verify(client.ssl, SSL_VERIFY_PEER, NULL);
    SSL_set1_host(client.ssl, HOST);
    SSL_set_tlsext_host_name(client.ssl, HOST);
    X509_VERIFY_PARAM_set_flags(SSL_get0_param(client.ssl),
                                X509_V_FLAG_X509_STRICT);
    SSL_set_connect_state(client.ssl);

    judged = 0;
    j.host = judge;
    j.data = NULL;
    pair = sbx_tls_pair_open(&eg, HOST, &j, &e);

    if (pair == NULL) {
        ok(0, "a pair: %s", e.text);
        exit(1);
    }
}


static void
end(void)
{
    sbx_tls_pair_close(pair);
    peer_close(&client);
    peer_close(&server);
    ERR_clear_error();
}


/* One step of a peer's own. */

static void
peer_turn(peer_t *peer)
{
    int     rc, error;
    size_t  n;

    if (peer->failed) {
        return;
    }

    ERR_clear_error();
    rc = SSL_is_init_finished(peer->ssl) ? 1 : SSL_do_handshake(peer->ssl);

    if (rc == 1) {
        rc = SSL_read_ex(peer->ssl, peer->got + peer->ngot, 65536, &n);
        peer->ngot += (rc == 1) ? n : 0;
    }

    error = SSL_get_error(peer->ssl, rc);

    if (rc != 1 && error != SSL_ERROR_WANT_READ
        && error != SSL_ERROR_ZERO_RETURN)
    {
        peer->failed = 1;
        (void) snprintf(peer->reason, sizeof(peer->reason), "%s",
                        sbx_tls_reason());
    }
}


/* From a peer to the pair, and back, step bytes at a time. */

static int
peer_move(peer_t *peer, sbx_tls_side_t side, size_t step)
{
    int      over, moved;
    char    *p;
    size_t   n, used;

    static uint8_t  buf[65536];

    moved = 0;
    n = (size_t) BIO_get_mem_data(peer->out, &p);

    if (n != 0) {
        n = n < step ? n : step;
        memcpy(buf, p, n);
        (void) sbx_tls_pair_feed(pair, side, buf, n, &used);
        (void) BIO_read(peer->out, buf, (int) used);
        moved |= (used != 0);
    }

    n = sbx_tls_pair_take(pair, side, buf, step, &over);

    if (n != 0) {
        (void) BIO_write(peer->in, buf, (int) n);
        moved = 1;
    }

    if (over && !peer->ended) {
        peer->ended = 1;
        (void) BIO_set_mem_eof_return(peer->in, 0);
        moved = 1;
    }

    return moved;
}


static void
shuttle(size_t step)
{
    int  moved;

    do {
        moved = peer_move(&client, SBX_TLS_CLIENT, step);
        peer_turn(&client);
        moved |= peer_move(&server, SBX_TLS_SERVER, step);
        peer_turn(&server);
    } while (moved);
}


static void
put(peer_t *peer, const char *s)
{
    size_t  n;

    if (SSL_write_ex(peer->ssl, s, strlen(s), &n) != 1) {
        ok(0, "a peer can write: %s", sbx_tls_reason());
    }
}


static int
got(peer_t *peer, const char *s, const char *name)
{
    peer->got[peer->ngot] = '\0';

    return is_str((char *) peer->got, s, name);
}


static const char *
failed(sbx_refused_t *why)
{
    const char  *text;

    return sbx_tls_pair_failed(pair, why, &text) ? text : "";
}


/*
 * ---- what is shown ---------------------------------------------------------
 */

static void
a_request(size_t step)
{
    X509                 *shown;
    unsigned              n;
    const unsigned char  *alpn;

    printf("# %zu bytes at a time\n", step);

    begin(NULL);
    SSL_set_alpn_protos(client.ssl, (const unsigned char *)
                        "\2h2\x08http/1.1", 12);
    shuttle(step);

    ok(SSL_is_init_finished(client.ssl) && SSL_is_init_finished(server.ssl),
       "both are connected");
    is_str(SSL_get_servername(server.ssl, TLSEXT_NAMETYPE_host_name), HOST,
           "the server hears its name");
    SSL_get0_alpn_selected(client.ssl, &alpn, &n);
    ok(n == 8 && memcmp(alpn, "http/1.1", 8) == 0, "the client gets HTTP/1");

    shown = SSL_get1_peer_certificate(client.ssl);
    ok(shown != NULL && X509_check_issued(eg.tls->ca.cert, shown)
       == X509_V_OK, "and a certificate of the node's");
    X509_free(shown);

    put(&client, "GET /x HTTP/1.1\r\nHost: " HOST "\r\n"
                 "authorization: none\r\n\r\n");
    shuttle(step);
    got(&server, "GET /x HTTP/1.1\r\nAuthorization: " SECRET "\r\n"
                 "Host: " HOST "\r\n\r\n", "the header is added");

    put(&server, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
    shuttle(step);
    got(&client, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok",
        "the answer is as it was");

    SSL_shutdown(client.ssl);
    shuttle(step);
    ok(SSL_get_shutdown(server.ssl) & SSL_RECEIVED_SHUTDOWN && server.ended,
       "the client's end is the server's to see");
    ok(!client.ended, "who may go on");

    put(&server, "more");
    SSL_shutdown(server.ssl);
    shuttle(step);
    ok(client.ngot == 44 && client.ended && !client.failed
       && SSL_get_shutdown(client.ssl) & SSL_RECEIVED_SHUTDOWN,
       "and then ends too");
    end();
}


/* What is wrong with the server is an alert to the client. */

static void
bad_server(X509 *cert, const char *text, const char *reason, const char *name)
{
    sbx_refused_t  why;

    begin(cert);
    shuttle(SIZE_MAX);

    if (!ok(strstr(failed(&why), text) != NULL && client.failed
            && strcmp(client.reason, reason) == 0 && client.ended
            && server.ended && judged == 0, "%s is refused", name))
    {
        printf("# \"%s\", client \"%s\", ended %d, %d\n", failed(&why),
               client.reason, client.ended, server.ended);
    }

    end();
}


static void
bad_servers(void)
{
    X509           *cert;
    size_t          n;
    EVP_PKEY       *other_key;
    sbx_refused_t   why;

    cert = certify("other.example", key, ca_cert, ca_key, -DAY, DAY);
    bad_server(cert, "hostname mismatch", "sslv3 alert bad certificate",
               "another name");
    X509_free(cert);

    cert = certify(HOST, key, ca_cert, ca_key, -2 * DAY, -DAY);
    bad_server(cert, "expired", "sslv3 alert certificate expired",
               "an old certificate");
    X509_free(cert);

    cert = certify(HOST, key, ca_cert, ca_key, DAY, 2 * DAY);
    bad_server(cert, "not yet valid", "sslv3 alert certificate expired",
               "one of tomorrow");
    X509_free(cert);

    cert = certify(HOST, key, NULL, key, -DAY, DAY);
    bad_server(cert, "self-signed", "tlsv1 alert unknown ca", "a self-signed");
    X509_free(cert);

    other_key = EVP_EC_gen("P-256");
    cert = certify(HOST, key, ca_cert, other_key, -DAY, DAY);
    bad_server(cert, "certificate", "sslv3 alert bad certificate",
               "a false signature");
    X509_free(cert);
    EVP_PKEY_free(other_key);

    cert = certify(HOST, key, eg.tls->ca.cert, eg.tls->ca.key, -DAY, DAY);
    bad_server(cert, "certificate", "tlsv1 alert unknown ca",
               "one of the node's own");
    X509_free(cert);

    begin(NULL);
    SSL_do_handshake(client.ssl);
    (void) peer_move(&client, SBX_TLS_CLIENT, SIZE_MAX);
    (void) sbx_tls_pair_feed(pair, SBX_TLS_SERVER,
                             (const uint8_t *) "220 mail\r\n", 10, &n);
    (void) peer_move(&client, SBX_TLS_CLIENT, SIZE_MAX);
    peer_turn(&client);
    ok(strstr(failed(&why), "TLS with the server") != NULL
       && strstr(client.reason, "handshake failure") != NULL,
       "a server without TLS is refused");
    end();

    begin(NULL);
    SSL_do_handshake(client.ssl);
    (void) peer_move(&client, SBX_TLS_CLIENT, SIZE_MAX);
    (void) sbx_tls_pair_feed(pair, SBX_TLS_SERVER, NULL, 0, &n);
    (void) peer_move(&client, SBX_TLS_CLIENT, SIZE_MAX);
    peer_turn(&client);
    ok(*failed(&why) != '\0'
       && strstr(client.reason, "handshake failure") != NULL,
       "and so is one that says nothing");
    end();

    begin(NULL);
    SSL_set_max_proto_version(server.ssl, TLS1_1_VERSION);
    shuttle(SIZE_MAX);
    ok(*failed(&why) != '\0' && client.failed, "and one of old");
    end();
}


static void
bad_clients(void)
{
    size_t         n, i;
    sbx_refused_t  why;

    static const uint8_t  junk[] = "\x16\x03\x01\x00\x05hello, server";

    begin(NULL);
    SSL_set1_host(client.ssl, "other.example");
    shuttle(SIZE_MAX);
    ok(client.failed && strstr(failed(&why), "session's program") != NULL
       && judged == 0, "a client that does not take it says so");
    end();

    begin(NULL);
    SSL_set_alpn_protos(client.ssl, (const unsigned char *) "\2h2", 3);
    shuttle(SIZE_MAX);
    ok(client.failed && strstr(client.reason, "application protocol") != NULL,
       "HTTP/2 alone is no protocol here");
    end();

    begin(NULL);
    SSL_set_security_level(client.ssl, 0);
    SSL_set_min_proto_version(client.ssl, TLS1_VERSION);
    SSL_set_max_proto_version(client.ssl, TLS1_1_VERSION);
    shuttle(SIZE_MAX);
    ok(client.failed && *failed(&why) != '\0', "nor is TLS of old");
    end();

    begin(NULL);
    shuttle(SIZE_MAX);
    put(&client, "GET / HTTP/1.1\r\nHost: other.example\r\n\r\n");
    shuttle(SIZE_MAX);
    ok(*failed(&why) != '\0' && why == SBX_REFUSED_NAME && server.ngot == 0
       && judged == 0, "another Host than the server's is refused");
    end();

    begin(NULL);
    shuttle(SIZE_MAX);
    put(&client, "TRACE / HTTP/1.1\r\nHost: " HOST "\r\n\r\n");
    shuttle(SIZE_MAX);
    ok(*failed(&why) != '\0' && why == SBX_REFUSED_PROTOCOL
       && server.ngot == 0, "and so is what would show the header");
    end();

    begin(NULL);
    (void) sbx_tls_pair_feed(pair, SBX_TLS_CLIENT, junk, sizeof(junk) - 1,
                             &n);
    for (i = 0; i < 10; i++) {
        (void) peer_move(&server, SBX_TLS_SERVER, SIZE_MAX);
        peer_turn(&server);
    }
    ok(*failed(&why) != '\0' && server.ended, "and what is no TLS");
    end();

    begin(NULL);
    (void) sbx_tls_pair_feed(pair, SBX_TLS_CLIENT, NULL, 0, &n);
    for (i = 0; i < 10; i++) {
        (void) peer_move(&server, SBX_TLS_SERVER, SIZE_MAX);
        peer_turn(&server);
    }
    ok(*failed(&why) == '\0' && server.ended,
       "a client that goes away has done no wrong");
    end();
}


static void
cuts(void)
{
    size_t  n;

    begin(NULL);
    shuttle(SIZE_MAX);
    put(&server, "HTTP/1.1 200 OK\r\n\r\nhal");
    shuttle(SIZE_MAX);
    (void) sbx_tls_pair_feed(pair, SBX_TLS_SERVER, NULL, 0, &n);
    shuttle(SIZE_MAX);
    ok(client.ended && client.failed
       && strstr(client.reason, "unexpected eof") != NULL
       && client.ngot == 22, "an answer that is cut does not look whole");
    end();

    begin(NULL);
    shuttle(SIZE_MAX);
    put(&client, "GET / HTTP/1.1\r\nHost: " HOST "\r\n\r\n");
    shuttle(SIZE_MAX);
    (void) sbx_tls_pair_feed(pair, SBX_TLS_CLIENT, NULL, 0, &n);
    shuttle(SIZE_MAX);
    ok(server.ended && server.failed && server.ngot != 0,
       "nor does a request");
    end();
}


static void
a_socket(void)
{
    static const char  ask[] =
        "GET / HTTP/1.1\r\nHost: " HOST "\r\nUpgrade: websocket\r\n"
        "Connection: Upgrade\r\n\r\n";

    begin(NULL);
    shuttle(SIZE_MAX);
    put(&client, ask);
    shuttle(SIZE_MAX);
    server.ngot = 0;
    put(&client, "\x81\x05hello");
    shuttle(SIZE_MAX);
    is_int((int64_t) server.ngot, 0, "what follows an upgrade waits");

    put(&server, "HTTP/1.1 101 Switching Protocols\r\n\r\n\x81\x02yo");
    shuttle(SIZE_MAX);
    got(&server, "\x81\x05hello", "and goes on after its answer");
    put(&client, "\x81\x05""again");
    shuttle(SIZE_MAX);
    is_int((int64_t) server.ngot, 14, "as does all else");
    end();
}


/*
 * ---- much ------------------------------------------------------------------
 */

/* Nobody takes what is made: then nothing more is taken in. */

static void
bounds(void)
{
    size_t          n, used, taken, i;
    static uint8_t  bulk[BULK];

    RAND_bytes(bulk, sizeof(bulk));

    begin(NULL);
    shuttle(SIZE_MAX);
    put(&client, "GET / HTTP/1.1\r\nHost: " HOST "\r\n\r\n");
    shuttle(SIZE_MAX);
    SSL_write_ex(server.ssl, bulk, sizeof(bulk), &n);
    taken = 0;

    for (i = 0; i < 1000; i++) {
        char     *p;
        uint8_t   buf[8192];

        n = (size_t) BIO_get_mem_data(server.out, &p);
        n = n < sizeof(buf) ? n : sizeof(buf);
        memcpy(buf, p, n);
        (void) sbx_tls_pair_feed(pair, SBX_TLS_SERVER, buf, n, &used);
        (void) BIO_read(server.out, buf, (int) used);
        taken += used;
    }

    ok(taken < 256 * 1024, "little is held for a client that does not read");
    printf("# %zu bytes\n", taken);

    shuttle(4096);
    ok(client.ngot == BULK && memcmp(client.got, bulk, BULK) == 0,
       "and it gets all of it when it does");
    end();

    begin(NULL);
    shuttle(SIZE_MAX);
    put(&client, "PUT / HTTP/1.1\r\nHost: " HOST "\r\n"
                 "Content-Length: 4194304\r\n\r\n");
    SSL_write_ex(client.ssl, bulk, sizeof(bulk), &n);
    taken = 0;

    for (i = 0; i < 1000; i++) {
        char     *p;
        uint8_t   buf[8192];

        n = (size_t) BIO_get_mem_data(client.out, &p);
        n = n < sizeof(buf) ? n : sizeof(buf);
        memcpy(buf, p, n);
        (void) sbx_tls_pair_feed(pair, SBX_TLS_CLIENT, buf, n, &used);
        (void) BIO_read(client.out, buf, (int) used);
        taken += used;
    }

    ok(taken < 512 * 1024, "nor for a server that does not");
    printf("# %zu bytes\n", taken);

    shuttle(4096);
    ok(server.ngot > BULK
       && memcmp(server.got + server.ngot - BULK, bulk, BULK) == 0,
       "and it gets all too");
    end();
}


/*
 * ---- the node's authority --------------------------------------------------
 */

static size_t
file_read(int fd, char *buf, size_t size)
{
    ssize_t  n;

    n = pread(fd, buf, size - 1, 0);
    buf[n > 0 ? n : 0] = '\0';

    return (size_t) (n > 0 ? n : 0);
}


static void
authority(void)
{
    int            fd, cert_fd, same;
    char           first[8192], second[8192], certs[8192], host[64];
    X509          *a, *b;
    size_t         i;
    sbx_error_t    e;
    sbx_egress_t   one;

    memset(&one, 0, sizeof(one));
    fd = memfd_create("ca", MFD_CLOEXEC);
    cert_fd = memfd_create("cert", MFD_CLOEXEC);

    is_int(sbx_eg_tls_open(&one, fd, cert_fd, &e), 0, "an authority is made");
    (void) file_read(fd, first, sizeof(first));
    (void) file_read(cert_fd, certs, sizeof(certs));
    ok(strstr(first, "PRIVATE KEY") != NULL
       && strstr(first, "BEGIN CERTIFICATE") != NULL, "and kept");
    ok(strstr(certs, "PRIVATE") == NULL
       && strncmp(certs, "-----BEGIN CERTIFICATE-----", 27) == 0
       && strstr(first, certs) != NULL, "what sessions get is no key");

    a = sbx_ca_leaf(&one.tls->ca, "a.example");
    b = sbx_ca_leaf(&one.tls->ca, "a.example");
    ok(a != NULL && a == b, "a host's certificate is made once");
    X509_free(b);

    for (i = 0; i < SBX_CA_LEAVES; i++) {
        (void) snprintf(host, sizeof(host), "h%zu.example", i);
        X509_free(sbx_ca_leaf(&one.tls->ca, host));
    }

    is_int((int64_t) one.tls->ca.nleaves, SBX_CA_LEAVES,
           "so many are kept and no more");
    b = sbx_ca_leaf(&one.tls->ca, "a.example");
    ok(b != NULL && a != b && X509_cmp(a, b) != 0,
       "the one that was not used longest went");
    X509_free(a);
    X509_free(b);
    ok(sbx_ca_leaf(&one.tls->ca, "a.example,DNS:b.example") == NULL,
       "what is no name has none");
    sbx_eg_tls_close(&one);

    is_int(sbx_eg_tls_open(&one, fd, cert_fd, &e), 0, "later again");
    (void) file_read(fd, second, sizeof(second));
    same = strcmp(first, second) == 0;
    ok(same, "it is the same");
    sbx_eg_tls_close(&one);

    (void) ftruncate(fd, 100);
    is_int(sbx_eg_tls_open(&one, fd, cert_fd, &e), 0,
           "what was written in part is made anew");
    (void) file_read(fd, second, sizeof(second));
    (void) file_read(cert_fd, certs, sizeof(certs));
    ok(strcmp(first, second) != 0 && strstr(second, certs) != NULL,
       "for sessions too");
    sbx_eg_tls_close(&one);

    (void) close(fd);
    fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
    ok(sbx_eg_tls_open(&one, fd, cert_fd, &e) != 0 && one.tls == NULL,
       "and what cannot be written is told: %s", e.text);
    (void) close(fd);
    (void) close(cert_fd);
}


static void
trusted(void)
{
    char         *pem, *broken;
    size_t        n;
    sbx_error_t   e;

    is_int(sbx_eg_tls_trust(&eg, "nothing", 7, &e), -1,
           "no certificate is no trust");
    is_str(e.text, "there is no certificate in it", "which is told");

    pem = pem_of(ca_cert, &n);
    broken = malloc(2 * n);
    memcpy(broken, pem, n);
    memcpy(broken + n, pem, n);
    broken[n + 100] = '!';
    is_int(sbx_eg_tls_trust(&eg, broken, 2 * n, &e), -1,
           "nor is one that cannot be read, after one that can");
    free(broken);
    free(pem);

    begin(NULL);
    shuttle(SIZE_MAX);
    is_int(SSL_is_init_finished(client.ssl), 1,
           "and what was trusted before is");
    end();
}


int
main(void)
{
    sbx_error_t  e;

    if (sbx_eg_tls_open(&eg, -1, -1, &e) != 0) {
        ok(0, "TLS: %s", e.text);
        return done_testing();
    }

    ca_key = EVP_EC_gen("P-256");
    key = EVP_EC_gen("P-256");
    ca_cert = certify("test authority", ca_key, NULL, ca_key, -DAY, DAY);

    if (eg.tls->host_pem != NULL) {
        bad_server(NULL, "local issuer", "tlsv1 alert unknown ca",
                   "whom the host does not know");

    } else {
        skip("the host trusts nobody", "whom the host does not know");
    }

    trust(ca_cert);
    a_request(SIZE_MAX);
    a_request(1);
    bad_servers();
    bad_clients();
    cuts();
    a_socket();
    bounds();
    trusted();
    authority();

    sbx_eg_tls_close(&eg);
    EVP_PKEY_free(ca_key);
    EVP_PKEY_free(key);
    X509_free(ca_cert);

    return done_testing();
}
