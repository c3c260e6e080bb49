/*
 * A client that is asked to say hello again: it passes if it names the same.
 * Client and server are OpenSSL's; what lies between the two is the test's.
 */

#include "tap.h"

#include "inspect.h"

#include <openssl/ssl.h>


#define BUF  65536


typedef struct {
    SSL_CTX  *ctx;
    SSL      *ssl;
    BIO      *in;
    BIO      *out;
} peer_t;

static peer_t         client;
static peer_t         server;
static sbx_greeting_t   *hello;
static int            refused;
static sbx_refused_t  why;
static uint8_t        held[BUF];         /* of the client, not taken yet */
static size_t         nheld;


static void
peer_open(peer_t *peer, const SSL_METHOD *method, const char *groups)
{
    peer->ctx = SSL_CTX_new(method);
    peer->ssl = SSL_new(peer->ctx);
    peer->in = BIO_new(BIO_s_mem());
    peer->out = BIO_new(BIO_s_mem());
    SSL_set_bio(peer->ssl, peer->in, peer->out);
    SSL_set1_groups_list(peer->ssl, groups);
}


static void
peer_close(peer_t *peer)
{
    SSL_free(peer->ssl);
    SSL_CTX_free(peer->ctx);
}


static void
begin(const char *groups)
{
    X509      *cert;
    EVP_PKEY  *key;

    peer_open(&client, TLS_client_method(), "X25519:P-384:P-256");
    peer_open(&server, TLS_server_method(), groups);

    key = EVP_EC_gen("P-256");
    cert = X509_new();
    X509_gmtime_adj(X509_getm_notBefore(cert), 0);
    X509_gmtime_adj(X509_getm_notAfter(cert), 1000);
    X509_set_pubkey(cert, key);
    X509_sign(cert, key, EVP_sha256());
    SSL_use_certificate(server.ssl, cert);
    SSL_use_PrivateKey(server.ssl, key);
    X509_free(cert);
    EVP_PKEY_free(key);

    SSL_set_accept_state(server.ssl);
    SSL_set_connect_state(client.ssl);
    SSL_set_tlsext_host_name(client.ssl, "a.example");

    hello = sbx_greeting_open("a.example");
    refused = 0;
    nheld = 0;
}


static void
end(void)
{
    peer_close(&client);
    peer_close(&server);
    sbx_greeting_close(hello);
}


/* Through the guard to the server, as far as it is taken. */

static int
to_server(size_t step)
{
    size_t          n, used, made, moved;
    static uint8_t  out[BUF * 3];

    moved = 0;

    while (nheld != 0 && !refused) {
        n = nheld < step ? nheld : step;
        refused = sbx_greeting_client(hello, held, n, &used, out, sizeof(out),
                                   &made, &why);
        memmove(held, held + used, nheld - used);
        nheld -= used;
        moved += used + made;

        if (made != 0) {
            (void) BIO_write(server.in, out, (int) made);
        }

        if (used == 0 && made == 0) {
            break;
        }
    }

    return moved != 0;
}


static int
from_peer(peer_t *peer, uint8_t *buf, size_t size)
{
    int  n;

    n = BIO_read(peer->out, buf, (int) size);

    return n > 0 ? n : 0;
}


static void
shuttle(size_t step)
{
    int             moved;
    size_t          n, at, part;
    static uint8_t  buf[BUF];

    do {
        (void) SSL_do_handshake(client.ssl);
        n = (size_t) from_peer(&client, held + nheld, BUF - nheld);
        nheld += n;
        moved = (n != 0) | to_server(step);

        (void) SSL_do_handshake(server.ssl);
        n = (size_t) from_peer(&server, buf, sizeof(buf));
        moved |= (n != 0);

        for (at = 0; at < n; at += part) {
            part = n - at < step ? n - at : step;

            if (sbx_greeting_watches(hello)) {
                sbx_greeting_server(hello, buf + at, part);
            }

            (void) BIO_write(client.in, buf + at, (int) part);
        }

    } while (moved && !refused);
}


static int
done(void)
{
    return SSL_is_init_finished(client.ssl)
           && SSL_is_init_finished(server.ssl) && sbx_greeting_opaque(hello)
           && !refused;
}


static void
passes(void)
{
    size_t  i;

    static const size_t  steps[] = { SIZE_MAX, 100, 1 };

    for (i = 0; i < 3; i++) {
        begin("X25519");
        shuttle(steps[i]);
        ok(done(), "a handshake passes, in parts of %zu", steps[i]);
        end();

        begin("P-384:P-256");
        shuttle(steps[i]);
        ok(done(), "one with a second hello too");
        end();

        begin("P-384:P-256");
        SSL_set_max_proto_version(server.ssl, TLS1_2_VERSION);
        shuttle(steps[i]);
        ok(done(), "and one of TLS 1.2, which knows no second");
        end();
    }

    /* whatever the server says */

    begin("X25519");
    (void) SSL_do_handshake(client.ssl);
    nheld = (size_t) from_peer(&client, held, BUF);
    memcpy(held + nheld, "early", 5);
    nheld += 5;
    (void) to_server(SIZE_MAX);
    is_int((int64_t) nheld, 5, "what follows a hello waits for its answer");
    is_int(sbx_greeting_watches(hello), 1, "which is watched");
    sbx_greeting_server(hello, (const uint8_t *) "\x15\x03\x03\0\2\2\x28", 7);
    is_int(sbx_greeting_opaque(hello), 1, "an alert is one");
    (void) to_server(SIZE_MAX);
    is_int((int64_t) nheld, 0, "after which all passes");
    end();
}


/* Up to where the server has asked again. */

static void
asked(void)
{
    size_t          n;
    static uint8_t  buf[BUF];

    begin("P-384:P-256");
    (void) SSL_do_handshake(client.ssl);
    nheld = (size_t) from_peer(&client, held, BUF);
    (void) to_server(SIZE_MAX);
    (void) SSL_do_handshake(server.ssl);
    n = (size_t) from_peer(&server, buf, sizeof(buf));
    sbx_greeting_server(hello, buf, n);

    ok(!sbx_greeting_watches(hello) && !sbx_greeting_opaque(hello),
       "the server asks again");
}


/* A first hello of somebody else's. */

static void
another(const char *name)
{
    peer_t  other;

    peer_open(&other, TLS_client_method(), "P-384");
    SSL_set_connect_state(other.ssl);

    if (name != NULL) {
        SSL_set_tlsext_host_name(other.ssl, name);
    }

    (void) SSL_do_handshake(other.ssl);
    nheld += (size_t) from_peer(&other, held + nheld, BUF - nheld);
    peer_close(&other);
}


static void
refuses(void)
{
    size_t  i;

    static const size_t  steps[] = { SIZE_MAX, 1 };

    for (i = 0; i < 2; i++) {
        asked();
        another("b.example");
        (void) to_server(steps[i]);
        ok(refused && why == SBX_REFUSED_NAME && BIO_pending(server.in) == 0,
           "another name in a second hello is refused");
        end();

        asked();
        another(NULL);
        (void) to_server(steps[i]);
        ok(refused && why == SBX_REFUSED_NAME, "and so is none");
        end();

        asked();
        memcpy(held, "\x14\x03\x03\0\1\1\x17\x03\x03\0\3abc", 14);
        nheld = 14;
        another("b.example");
        (void) to_server(steps[i]);
        ok(refused && BIO_pending(server.in) == 14,
           "behind early data as well");
        end();

        asked();
        memcpy(held, "\x16\x03\x03\0\4\x0b\0\0\0", 9);
        nheld = 9;
        (void) to_server(steps[i]);
        ok(refused && why == SBX_REFUSED_PROTOCOL, "and what is no hello");
        end();

        asked();
        another("a.example");
        memcpy(held + nheld, "rest", 4);
        nheld += 4;
        (void) to_server(steps[i]);
        ok(!refused && nheld == 0 && sbx_greeting_opaque(hello),
           "the same name is not");
        end();
    }
}


int
main(void)
{
    passes();
    refuses();

    return done_testing();
}
