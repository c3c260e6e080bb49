/*
 * What is looked into, through a whole egress: TLS by name, a second hello,
 * requests by Host, and headers that are added where they are due and nowhere
 * else.  Clients and servers are OpenSSL's where they speak TLS.
 */

#include "egress_test.h"

#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>


#define SERVER   "198.51.100.7"
#define OTHER    "198.51.100.8"
#define SECRET   "t0p-s3cret"
#define FLOOD    80


typedef struct {
    SSL_CTX  *ctx;
    SSL      *ssl;
    int       fd;
} peer_t;

static et_t               t;
static sbx_egress_task_t  task;
static EVP_PKEY          *ca_key;
static X509              *ca_cert;
static char               ca_pem[4096];
static peer_t             client;
static peer_t             server;

static const et_name_t  names[] = {
    { "a.example", SERVER, 60 },
    { "b.example", SERVER, 60 },
    { "secret.example", SERVER, 60 },
    { "z.example", OTHER, 60 },
    { NULL, NULL, 0 }
};


/*
 * ---- TLS of the test's -----------------------------------------------------
 */

static X509 *
certify(const char *name, EVP_PKEY *key, X509 *issuer)
{
    X509            *cert;
    char             text[300];
    X509V3_CTX       ctx;
    X509_EXTENSION  *e;

    cert = X509_new();
    X509_set_version(cert, X509_VERSION_3);
    ASN1_INTEGER_set(X509_get_serialNumber(cert), issuer != NULL ? 2 : 1);
    X509_gmtime_adj(X509_getm_notBefore(cert), -1000);
    X509_gmtime_adj(X509_getm_notAfter(cert), 100000);
    X509_set_pubkey(cert, key);
    X509_NAME_add_entry_by_NID(X509_get_subject_name(cert), NID_commonName,
                               MBSTRING_ASC, (const unsigned char *) name,
                               -1, -1, 0);
    issuer = issuer != NULL ? issuer : cert;
    X509_set_issuer_name(cert, X509_get_subject_name(issuer));
    X509V3_set_ctx(&ctx, issuer, cert, NULL, NULL, 0);
    (void) snprintf(text, sizeof(text), "DNS:%s", name);
    e = X509V3_EXT_conf_nid(NULL, &ctx, issuer == cert
                                        ? NID_basic_constraints
                                        : NID_subject_alt_name,
                            issuer == cert ? "critical,CA:TRUE" : text);
    X509_add_ext(cert, e, -1);
    X509_EXTENSION_free(e);
    X509_sign(cert, ca_key, EVP_sha256());

    return cert;
}


static void
authority(void)
{
    BIO   *bio;
    char  *p;
    long   n;

    ca_key = EVP_EC_gen("P-256");
    ca_cert = certify("test authority", ca_key, NULL);
    bio = BIO_new(BIO_s_mem());
    PEM_write_bio_X509(bio, ca_cert);
    n = BIO_get_mem_data(bio, &p);
    memcpy(ca_pem, p, (size_t) n < sizeof(ca_pem) - 1 ? (size_t) n
                                                      : sizeof(ca_pem) - 1);
    BIO_free(bio);
}


static void
peer_open(peer_t *peer, const SSL_METHOD *method, int fd)
{
    (void) fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK);

    peer->fd = fd;
    peer->ctx = SSL_CTX_new(method);
    peer->ssl = SSL_new(peer->ctx);
    SSL_set_fd(peer->ssl, fd);
}


static void
peer_close(peer_t *peer)
{
    SSL_free(peer->ssl);
    SSL_CTX_free(peer->ctx);
    (void) close(peer->fd);
    ERR_clear_error();
}


/* Both connected, with a certificate of name's and groups of the server's. */

static void
begin(int listener, const char *sni, const char *name, const char *groups)
{
    X509      *cert;
    EVP_PKEY  *key;

    peer_open(&client, TLS_client_method(),
              et_connect(&t, &t.one, SERVER, 443));
    peer_open(&server, TLS_server_method(), et_accept(listener));

    key = EVP_EC_gen("P-256");
    cert = certify(name, key, ca_cert);
    SSL_use_certificate(server.ssl, cert);
    SSL_use_PrivateKey(server.ssl, key);
    X509_free(cert);
    EVP_PKEY_free(key);

    SSL_set1_groups_list(client.ssl, "X25519:P-384:P-256");
    SSL_set1_groups_list(server.ssl, groups);
    SSL_set_accept_state(server.ssl);
    SSL_set_connect_state(client.ssl);

    if (sni != NULL) {
        SSL_set_tlsext_host_name(client.ssl, sni);
    }
}


static void
end(void)
{
    peer_close(&client);
    peer_close(&server);
    et_sync(&t);
}


/* A turn of one; 1: it is done, 0: it waits, -1. */

static int
turn(peer_t *peer, int rc)
{
    int  error;

    if (rc == 1) {
        return 1;
    }

    error = SSL_get_error(peer->ssl, rc);

    return error == SSL_ERROR_WANT_READ || error == SSL_ERROR_WANT_WRITE
           ? 0 : -1;
}


static int
handshake(void)
{
    int            one, two;
    struct pollfd  p[2];

    for ( ;; ) {
        ERR_clear_error();
        one = turn(&client, SSL_do_handshake(client.ssl));
        two = turn(&server, SSL_do_handshake(server.ssl));

        if (one != 0 && two != 0) {
            return one == 1 && two == 1;
        }

        p[0].fd = one == 0 ? client.fd : -1;
        p[1].fd = two == 0 ? server.fd : -1;
        p[0].events = POLLIN;
        p[1].events = POLLIN;

        if (poll(p, 2, ET_WAIT) <= 0) {
            return -1;
        }
    }
}


/* What a peer hears. */

static const char *
hears(peer_t *peer)
{
    int          rc;
    size_t       n;
    static char  buf[4096];

    buf[0] = '\0';

    for ( ;; ) {
        ERR_clear_error();
        rc = SSL_read_ex(peer->ssl, buf, sizeof(buf) - 1, &n);

        if (rc == 1) {
            buf[n] = '\0';
            return buf;
        }

        if (turn(peer, rc) != 0 || !et_ready(peer->fd, POLLIN, ET_WAIT)) {
            return buf;
        }
    }
}


static void
says(peer_t *peer, const char *text)
{
    size_t  n;

    (void) SSL_write_ex(peer->ssl, text, strlen(text), &n);
}


/* It was cut, for that. */

static int
cut(int fd, sbx_refused_t why)
{
    int  rc, reason;

    rc = et_says(fd);
    reason = et_reason(&t);

    if (rc != -ECONNRESET || reason != (int) why) {
        printf("# %d, reason %d\n", rc, reason);
        return 0;
    }

    return 1;
}


static void
look_up(const char *name)
{
    char  address[INET6_ADDRSTRLEN];

    if (et_lookup(&t, &t.one, name, 1, address) != 0) {
        ok(0, "%s is looked up", name);
    }
}


/*
 * ---- by name ---------------------------------------------------------------
 */

/* A first hello of some client's, as bytes. */

static int
hello_of(const char *name, uint8_t *buf, size_t size)
{
    int       n;
    BIO      *out;
    SSL      *ssl;
    SSL_CTX  *ctx;

    ctx = SSL_CTX_new(TLS_client_method());
    ssl = SSL_new(ctx);
    out = BIO_new(BIO_s_mem());
    SSL_set_bio(ssl, BIO_new(BIO_s_mem()), out);
    SSL_set1_groups_list(ssl, "P-384");

    if (name != NULL) {
        SSL_set_tlsext_host_name(ssl, name);
    }

    SSL_set_connect_state(ssl);
    (void) SSL_do_handshake(ssl);
    n = BIO_read(out, buf, (int) size);
    SSL_free(ssl);
    SSL_CTX_free(ctx);

    return n;
}


static void
refused_hello(int listener, const char *name, sbx_refused_t why,
    const char *what)
{
    int      n, fd, at;
    char     c;
    uint8_t  buf[4096];

    fd = et_connect(&t, &t.one, SERVER, 443);
    at = et_accept(listener);
    n = hello_of(name, buf, sizeof(buf));
    (void) send(fd, buf, (size_t) n, MSG_NOSIGNAL);
    ok(cut(fd, why), "%s", what);
    ok(recv(at, &c, 1, 0) <= 0, "and the server has heard nothing");
    (void) close(fd);
    (void) close(at);
}


static void
tls_by_name(int listener)
{
    size_t  i;

    static const char  *rows[] = { "aa.example", NULL };
    static const char  *groups[] = { "X25519", "P-384:P-256" };

    (void) et_config(&t, rows);
    look_up("a.example");

    for (i = 0; i < 2; i++) {
        begin(listener, "a.example", "a.example", groups[i]);
        is_int(handshake(), 1, i == 0 ? "TLS by its name"
                                      : "with a second hello too");
        says(&client, "ping");
        is_str(hears(&server), "ping", "the server hears the client");
        says(&server, "pong");
        is_str(hears(&client), "pong", "and the client the server");
        end();
    }

    et_forget(&t);
    refused_hello(listener, "b.example", SBX_REFUSED_NAME,
                  "another name is refused");
    refused_hello(listener, NULL, SBX_REFUSED_HIDDEN, "and so is none");
}


static void
second_hello(int listener)
{
    int             n;
    char            c;
    static uint8_t  buf[4096];

    begin(listener, "a.example", "a.example", "P-384:P-256");
    (void) SSL_do_handshake(client.ssl);

    while (SSL_do_handshake(server.ssl) != 1
           && BIO_number_written(SSL_get_wbio(server.ssl)) == 0)
    {
        if (!et_ready(server.fd, POLLIN, ET_WAIT)) {
            break;
        }
    }

    ok(et_ready(client.fd, POLLIN, ET_WAIT), "a server asks for a second");
    (void) recv(client.fd, buf, sizeof(buf), 0);
    n = hello_of("b.example", buf, sizeof(buf));
    (void) send(client.fd, buf, (size_t) n, MSG_NOSIGNAL);
    ok(cut(client.fd, SBX_REFUSED_NAME), "which names another: refused");
    ok(recv(server.fd, &c, 1, 0) <= 0, "and the server does not hear it");
    end();
}


/* A hello that comes a byte at a time, as segments of their own. */

static void
cut_hello(int listener)
{
    int      n, i, fd, at, len;
    uint8_t  buf[4096], got[4096];

    fd = et_connect(&t, &t.one, SERVER, 443);
    at = et_accept(listener);
    n = hello_of("a.example", buf, sizeof(buf));

    for (i = 0; i < n; i++) {
        (void) send(fd, buf + i, 1, MSG_NOSIGNAL);
    }

    len = et_ready(at, POLLIN, ET_WAIT)
          ? (int) recv(at, got, (size_t) n, MSG_WAITALL) : -1;
    ok(len == n && memcmp(got, buf, (size_t) n) == 0,
       "a hello in pieces passes as it is");
    (void) close(fd);
    (void) close(at);
    et_sync(&t);

    fd = et_connect(&t, &t.one, SERVER, 443);
    at = et_accept(listener);
    n = hello_of("b.example", buf, sizeof(buf));

    for (i = 0; i < n; i++) {
        (void) send(fd, buf + i, 1, MSG_NOSIGNAL);
    }

    ok(cut(fd, SBX_REFUSED_NAME), "and is refused as a whole one is");
    ok(recv(at, got, 1, 0) <= 0, "before anything of it has passed");
    (void) close(fd);
    (void) close(at);
}


/*
 * ---- headers ---------------------------------------------------------------
 */

/* What a server of plain HTTP hears of a request. */

static const char *
plain(int listener, const char *address, const char *request)
{
    int          fd, at;
    ssize_t      n;
    static char  buf[4096];

    buf[0] = '\0';
    fd = et_connect(&t, &t.one, address, 80);
    at = et_accept(listener);
    (void) send(fd, request, strlen(request), MSG_NOSIGNAL);

    if (at != -1 && et_ready(at, POLLIN, ET_WAIT)) {
        n = recv(at, buf, sizeof(buf) - 1, 0);
        buf[n > 0 ? n : 0] = '\0';
    }

    (void) close(fd);
    (void) close(at);
    et_sync(&t);

    return buf;
}


static void
plain_headers(void)
{
    int  listener, other;

    static const char  *by_name[] = {
        "aa.example", "asecret.example",
        "hsecret.example\1X-Key\1/key", NULL
    };
    static const char  *any[] = {
        "a*", "hsecret.example\1X-Key\1/key", NULL
    };
    static const char  *values[] = { SECRET "\n", NULL };
    static const char   ask[] =
        "GET / HTTP/1.1\r\nX-Key: mine\r\nHost: secret.example\r\n\r\n";
    static const char   got[] =
        "GET / HTTP/1.1\r\nX-Key: " SECRET "\r\nHost: secret.example\r\n\r\n";

    listener = et_listen(&t, t.world, SERVER, 80);
    other = et_listen(&t, t.world, OTHER, 80);

    (void) et_config_values(&t, any, values);
    look_up("z.example");
    is_str(plain(other, OTHER, ask), ask,
           "no header goes where a client only says that it leads");
    is_str(plain(listener, SERVER, ask), ask,
           "nor where nobody has looked up that it does");

    look_up("secret.example");
    is_str(plain(listener, SERVER, ask), got, "but where it was looked up");
    is_str(plain(other, OTHER, ask), ask, "and still not elsewhere");

    (void) et_config_values(&t, by_name, values);
    is_str(plain(listener, SERVER, ask), got, "and by name");
    is_str(plain(listener, SERVER, "GET / HTTP/1.1\r\nHost: a.example\r\n"
                                   "\r\n"),
           "GET / HTTP/1.1\r\nHost: a.example\r\n\r\n", "for its host alone");

    is_str(plain(listener, SERVER, "GET / HTTP/1.1\r\nHost: a.example\r\n"
                                   "\r\nGET / HTTP/1.1\r\n"
                                   "Host: b.example\r\n\r\n"),
           "", "a second request for another host takes both with it");
    et_forget(&t);
    is_str(plain(listener, SERVER, "TRACE / HTTP/1.1\r\n"
                                   "Host: secret.example\r\n\r\n"), "",
           "nothing that would show it passes");

    (void) close(listener);
    (void) close(other);
}


static void
tls_headers(int listener)
{
    static const char  *rows[] = {
        "C/ca", "a*", "ssecret.example\1X-Key\1/key", NULL
    };
    const char         *values[] = { ca_pem, SECRET "\n", NULL };
    static const char   ask[] =
        "GET / HTTP/1.1\r\nHost: secret.example\r\n\r\n";

    is_int(et_config_values(&t, rows, values), 0, "a header for TLS");
    look_up("secret.example");

    begin(listener, "secret.example", "secret.example", "X25519");
    is_int(handshake(), 1, "TLS that is opened");
    says(&client, ask);
    is_str(hears(&server), "GET / HTTP/1.1\r\nX-Key: " SECRET "\r\n"
                           "Host: secret.example\r\n\r\n",
           "the server gets the header");
    says(&server, "HTTP/1.1 204 \r\n\r\n");
    is_str(hears(&client), "HTTP/1.1 204 \r\n\r\n", "the client its answer");
    SSL_shutdown(server.ssl);
    (void) shutdown(server.fd, SHUT_WR);
    is_str(hears(&client), "", "and its end");
    ok(SSL_get_shutdown(client.ssl) & SSL_RECEIVED_SHUTDOWN,
       "as it should be");
    end();

    et_forget(&t);
    begin(listener, "secret.example", "b.example", "X25519");
    is_int(handshake(), 0, "a server that is another");
    ok(ERR_GET_REASON(ERR_peek_error()) == SSL_R_SSLV3_ALERT_BAD_CERTIFICATE
       || SSL_get_state(client.ssl) == TLS_ST_CW_CLNT_HELLO,
       "of which the client is told");
    is_int(et_reason(&t), SBX_REFUSED_PROTOCOL, "as the broker is");
    end();

    /* whom the host trusts is read before there are no files any more */

    is_int(et_config_values(&t, rows + 1, values + 1), 0,
           "no authority but the host's");
    begin(listener, "secret.example", "secret.example", "X25519");
    is_int(handshake(), 0, "a server that the host does not trust");
    ok(server.fd != -1 && et_soon(&t.one.traffic->connections, 0),
       "is cut, and the egress lives");
    is_int(et_reason(&t), SBX_REFUSED_PROTOCOL, "and tells of it");
    end();

    begin(listener, "a.example", "a.example", "X25519");
    is_int(handshake(), 1, "what is for another host is not opened");
    ok(X509_check_host(SSL_get0_peer_certificate(client.ssl), "a.example", 0,
                       0, NULL) == 1
       && X509_check_issued(ca_cert, SSL_get0_peer_certificate(client.ssl))
          == X509_V_OK, "and its certificate is its own");
    end();
}

/* Handshakes are work for the one process of all sessions. */

static void
tls_floods(int listener)
{
    int     i, limited;
    peer_t  many[FLOOD];

    static const char  *rows[] = {
        "C/ca", "a*", "ssecret.example\1X-Key\1/key", NULL
    };
    const char         *values[] = { ca_pem, SECRET "\n", NULL };

    (void) et_config_values(&t, rows, values);
    look_up("secret.example");
    et_forget(&t);

    for (i = 0; i < FLOOD; i++) {
        peer_open(&many[i], TLS_client_method(),
                  et_connect(&t, &t.one, SERVER, 443));
        SSL_set_tlsext_host_name(many[i].ssl, "secret.example");
        (void) SSL_connect(many[i].ssl);
        (void) close(et_accept(listener));
    }

    limited = 0;

    for (i = 0; i < FLOOD && !limited; i++) {
        limited = et_reason(&t) == SBX_REFUSED_LIMIT;
    }

    ok(limited, "there is an end to what is opened at a stroke");

    for (i = 0; i < FLOOD; i++) {
        peer_close(&many[i]);
    }
}


int
main(void)
{
    int          listener;
    const char  *why;

    static const char  *open_to_all[] = { "a*", NULL };

    why = et_open(&t, names);

    if (why != NULL) {
        return skip_all(why);
    }

    (void) et_config(&t, open_to_all);
    et_task_of(&task, &t.one, 0);

    if (et_grant(&t, &t.one, &task, NULL) != 0) {
        return skip_all("no network can be granted here");
    }

    authority();
    listener = et_listen(&t, t.world, SERVER, 443);

    tls_by_name(listener);
    second_hello(listener);
    cut_hello(listener);
    plain_headers();
    tls_headers(listener);
    tls_floods(listener);

    ok(et_soon(&t.one.traffic->connections, 0), "no connection is left");
    is_int(et_close(&t), 0, "the egress ends with its control");

    X509_free(ca_cert);
    EVP_PKEY_free(ca_key);

    return done_testing();
}
