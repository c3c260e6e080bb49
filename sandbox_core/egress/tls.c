/*
 * TLS for the sake of a header: what both sides of an opened connection are
 * configured with.  Nothing here reads a file of the host but when the process
 * starts: later it has none.
 */

#include "tls.h"

#include <fcntl.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <string.h>
#include <sys/stat.h>


#define SBX_TLS_TRUST_MAX    (4 * 1024 * 1024)


static SSL_CTX *sbx_tls_context(const SSL_METHOD *method);
static void sbx_tls_read_host(sbx_eg_tls_t *tls);
static X509_STORE *sbx_tls_store(const char *pem, size_t size, int strict,
    sbx_error_t *e);
static int sbx_tls_alpn(SSL *ssl, const unsigned char **out,
    unsigned char *outlen, const unsigned char *in, unsigned int inlen,
    void *data);


static const unsigned char  sbx_tls_http[] = "\x08http/1.1";

/* Where systems keep what they trust. */
static const char * const  sbx_tls_files[] = {
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/cert.pem"
};


int
sbx_eg_tls_open(sbx_egress_t *eg, int ca, int cert, sbx_error_t *e)
{
    sbx_eg_tls_t  *tls;

    /* a configuration of the host's could load anything */

    (void) OPENSSL_init_ssl(OPENSSL_INIT_NO_LOAD_CONFIG, NULL);

    tls = calloc(1, sizeof(*tls));

    if (tls == NULL) {
        return sbx_error(e, errno, SBX_E_INTERNAL, "out of memory");
    }

    eg->tls = tls;

    tls->clients = sbx_tls_context(TLS_server_method());
    tls->servers = sbx_tls_context(TLS_client_method());

    if (tls->clients == NULL || tls->servers == NULL
        || SSL_CTX_set_alpn_protos(tls->servers, sbx_tls_http,
                                   sizeof(sbx_tls_http) - 1) != 0)
    {
        (void) sbx_error(e, 0, SBX_E_INTERNAL, "TLS cannot be set up: %s",
                         sbx_tls_reason());
        sbx_eg_tls_close(eg);
        return -1;
    }

    SSL_CTX_set_alpn_select_cb(tls->clients, sbx_tls_alpn, NULL);
    SSL_CTX_set_client_hello_cb(tls->clients, sbx_tls_hello, NULL);
    SSL_CTX_set_verify(tls->servers, SSL_VERIFY_PEER, NULL);

    sbx_tls_read_host(tls);

    if (sbx_ca_open(&tls->ca, ca, cert, e) != 0) {
        sbx_eg_tls_close(eg);
        return -1;
    }

    return 0;
}


void
sbx_eg_tls_close(sbx_egress_t *eg)
{
    sbx_eg_tls_t  *tls;

    tls = eg->tls;

    if (tls == NULL) {
        return;
    }

    sbx_ca_close(&tls->ca);
    SSL_CTX_free(tls->clients);
    SSL_CTX_free(tls->servers);
    free(tls->host_pem);
    free(tls);

    eg->tls = NULL;
}


static SSL_CTX *
sbx_tls_context(const SSL_METHOD *method)
{
    SSL_CTX  *ctx;

    ctx = SSL_CTX_new(method);

    if (ctx == NULL) {
        return NULL;
    }

    if (SSL_CTX_set_min_proto_version(ctx, TLS1_2_VERSION) != 1
        || SSL_CTX_set_num_tickets(ctx, 0) != 1)
    {
        SSL_CTX_free(ctx);
        return NULL;
    }

    (void) SSL_CTX_set_options(ctx, SSL_OP_NO_TICKET | SSL_OP_NO_COMPRESSION
                                    | SSL_OP_NO_RENEGOTIATION);
    (void) SSL_CTX_set_session_cache_mode(ctx, SSL_SESS_CACHE_OFF);
    (void) SSL_CTX_set_mode(ctx, SSL_MODE_RELEASE_BUFFERS
                                 | SSL_MODE_ENABLE_PARTIAL_WRITE
                                 | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);

    return ctx;
}


/* A client that wants something else, and says so, gets an alert. */

static int
sbx_tls_alpn(SSL *ssl, const unsigned char **out, unsigned char *outlen,
    const unsigned char *in, unsigned int inlen, void *data)
{
    unsigned int  at, n;

    (void) ssl;
    (void) data;

    for (at = 0; at < inlen; at += n + 1) {
        n = in[at];

        if (n >= inlen - at) {
            break;
        }

        if (n == sbx_tls_http[0]
            && memcmp(in + at, sbx_tls_http, n + 1) == 0)
        {
            *out = in + at + 1;
            *outlen = (unsigned char) n;
            return SSL_TLSEXT_ERR_OK;
        }
    }

    return SSL_TLSEXT_ERR_ALERT_FATAL;
}


/*
 * ---- whom servers are checked by -------------------------------------------
 */

int
sbx_eg_tls_trust(sbx_egress_t *eg, const char *pem, size_t size,
    sbx_error_t *e)
{
    X509_STORE    *store;
    sbx_eg_tls_t  *tls;

    tls = eg->tls;

    if (tls == NULL) {
        return sbx_error(e, 0, SBX_E_INTERNAL, "TLS is not set up");
    }

    if (pem != NULL) {
        store = sbx_tls_store(pem, size, 1, e);

    } else {

        /* again when it is needed, if it ever is */

        store = X509_STORE_new();
    }

    if (store == NULL) {
        return pem != NULL ? -1 : sbx_error(e, 0, SBX_E_INTERNAL,
                                            "out of memory");
    }

    SSL_CTX_set_cert_store(tls->servers, store);

    return 0;
}


int
sbx_tls_trusts(sbx_eg_tls_t *tls, sbx_error_t *e)
{
    X509_STORE  *store;

    store = SSL_CTX_get_cert_store(tls->servers);

    if (sk_X509_OBJECT_num(X509_STORE_get0_objects(store)) > 0) {
        return 0;
    }

    if (tls->host_pem == NULL) {
        return sbx_error(e, 0, SBX_E_UNAVAILABLE, "the host has no "
                         "certificates to check servers by");
    }

    store = sbx_tls_store(tls->host_pem, tls->host_size, 0, e);

    if (store == NULL) {
        return -1;
    }

    SSL_CTX_set_cert_store(tls->servers, store);

    return 0;
}


/* strict: nothing but certificates is in it. */

static X509_STORE *
sbx_tls_store(const char *pem, size_t size, int strict, sbx_error_t *e)
{
    int             bad;
    BIO            *bio;
    X509           *cert;
    size_t          n;
    unsigned long   error;
    X509_STORE     *store;

    store = X509_STORE_new();
    bio = (size <= SBX_TLS_TRUST_MAX) ? BIO_new_mem_buf(pem, (int) size)
                                      : NULL;

    if (store == NULL || bio == NULL) {
        X509_STORE_free(store);
        BIO_free(bio);
        (void) sbx_error(e, 0, SBX_E_INVALID, "the certificates are too "
                         "large, or memory is out");
        return NULL;
    }

    ERR_clear_error();
    bad = 0;

    for (n = 0; /* void */; n++) {
        cert = PEM_read_bio_X509(bio, NULL, NULL, NULL);

        if (cert == NULL) {
            break;
        }

        bad |= (X509_STORE_add_cert(store, cert) != 1);
        X509_free(cert);
    }

    error = ERR_peek_last_error();
    bad |= (ERR_GET_LIB(error) != ERR_LIB_PEM
            || ERR_GET_REASON(error) != PEM_R_NO_START_LINE);
    ERR_clear_error();
    BIO_free(bio);

    if (n == 0 || (bad && strict)) {
        X509_STORE_free(store);
        (void) sbx_error(e, 0, SBX_E_INVALID, n == 0 ? "there is no "
                         "certificate in it" : "a certificate in it cannot "
                         "be read");
        return NULL;
    }

    return store;
}


/* None is no error: an operator's file may take its place. */

static void
sbx_tls_read_host(sbx_eg_tls_t *tls)
{
    char         *buf;
    size_t        i;
    ssize_t       n;
    struct stat   st;

    for (i = 0; i < sbx_nelts(sbx_tls_files); i++) {
        sbx_auto_fd  fd = -1;

        fd = open(sbx_tls_files[i], O_RDONLY | O_CLOEXEC | O_NOCTTY
                                    | O_NONBLOCK);

        if (fd == -1 || fstat(fd, &st) != 0 || !S_ISREG(st.st_mode)
            || st.st_size <= 0 || st.st_size > SBX_TLS_TRUST_MAX)
        {
            continue;
        }

        buf = malloc((size_t) st.st_size);

        if (buf == NULL) {
            return;
        }

        n = sbx_read_full(fd, buf, (size_t) st.st_size);

        if (n > 0) {
            tls->host_pem = buf;
            tls->host_size = (size_t) n;
            return;
        }

        free(buf);
    }
}


const char *
sbx_tls_reason(void)
{
    const char     *text;
    unsigned long   error;

    error = ERR_peek_error();
    text = (error != 0) ? ERR_reason_error_string(error) : NULL;
    ERR_clear_error();

    return text != NULL ? text : "unknown";
}
