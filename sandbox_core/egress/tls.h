/*
 * TLS that is opened: what tls.c (contexts, trust), ca.c (certificates that
 * sessions are shown) and tls_pair.c (connections) have in common.
 */

#ifndef SBX_TLS_H
#define SBX_TLS_H

#include "inspect.h"

#include <openssl/ssl.h>


#define SBX_CA_LEAVES    256


typedef struct {
    char       host[SBX_NETWORK_HOST_MAX + 3];
    X509      *cert;
    time_t     until;             /* another is made then */
    uint64_t   used;
} sbx_ca_leaf_t;

/* One key for all leaves: it never leaves the process, and ends with it. */
typedef struct {
    EVP_PKEY       *key;
    X509           *cert;
    EVP_PKEY       *leaf_key;
    sbx_ca_leaf_t   leaves[SBX_CA_LEAVES];
    size_t          nleaves;
    uint64_t        uses;
} sbx_ca_t;

struct sbx_eg_tls_s {
    sbx_ca_t     ca;
    SSL_CTX     *clients;         /* we are the server */
    SSL_CTX     *servers;         /* we are the client */
    char        *host_pem;        /* the host's, read but not yet parsed */
    size_t       host_size;
};


/* The key and certificate in ca, or new ones, which are written to both where
 * they are not -1. */
int sbx_ca_open(sbx_ca_t *ca, int fd, int cert_fd, sbx_error_t *e);
/* A certificate of host's; the caller's reference. */
X509 *sbx_ca_leaf(sbx_ca_t *ca, const char *host);
void sbx_ca_close(sbx_ca_t *ca);

/* That servers are checked by something: parses the host's if need be. */
int sbx_tls_trusts(sbx_eg_tls_t *tls, sbx_error_t *e);
/* A client's hello is there: whether it is answered. */
int sbx_tls_hello(SSL *ssl, int *alert, void *data);
/* What OpenSSL has said last, and nothing of what peers have; clears it. */
const char *sbx_tls_reason(void);


#endif
