/*
 * The node's own certificate authority: sessions of a template with a header
 * for TLS trust it, nobody else does.  Its key and certificate are in a file
 * of root's that the process has as a descriptor; certificates of hosts are
 * made as they are needed and kept in memory.
 */

#include "tls.h"

#include <errno.h>
#include <openssl/pem.h>
#include <openssl/rand.h>
#include <openssl/x509v3.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>


#define SBX_CA_NAME         "sandbox egress"
#define SBX_CA_DAY          86400
#define SBX_CA_YEARS        (10L * 365 * SBX_CA_DAY)
#define SBX_CA_LEFT         (60L * SBX_CA_DAY)   /* then another is made */
#define SBX_CA_LEAF_TIME    (30L * SBX_CA_DAY)
#define SBX_CA_BEFORE       (-3600L)             /* clocks differ */
#define SBX_CA_SERIAL       16
#define SBX_CA_NAME_MAX     64                   /* of a common name */
#define SBX_CA_FILE_MAX     16384


/* Extension, value as openssl.cnf has it. */
typedef struct {
    int          nid;
    const char  *value;
} sbx_ca_extension_t;


static int sbx_ca_read(sbx_ca_t *ca, int fd);
static int sbx_ca_make(sbx_ca_t *ca);
static int sbx_ca_store(const sbx_ca_t *ca, int fd, int with_key);
static int sbx_ca_replace(int fd, const void *p, size_t n);
static X509 *sbx_ca_certificate(EVP_PKEY *key, const char *name, long life);
static int sbx_ca_extend(X509 *cert, X509 *issuer,
    const sbx_ca_extension_t *extensions, size_t n);
static X509 *sbx_ca_make_leaf(sbx_ca_t *ca, const char *host);


int
sbx_ca_open(sbx_ca_t *ca, int fd, int cert_fd, sbx_error_t *e)
{
    if (fd == -1 || sbx_ca_read(ca, fd) != 0) {
        sbx_ca_close(ca);

        if (sbx_ca_make(ca) != 0) {
            return sbx_error(e, 0, SBX_E_INTERNAL, "a certificate authority "
                             "cannot be made: %s", sbx_tls_reason());
        }

        if (fd != -1 && sbx_ca_store(ca, fd, 1) != 0) {
            return sbx_error(e, errno, SBX_E_INTERNAL, "the certificate "
                             "authority's file cannot be written");
        }
    }

    if (cert_fd != -1 && sbx_ca_store(ca, cert_fd, 0) != 0) {
        return sbx_error(e, errno, SBX_E_INTERNAL, "the certificate's file "
                         "cannot be written");
    }

    ca->leaf_key = EVP_EC_gen("P-256");

    if (ca->leaf_key == NULL) {
        return sbx_error(e, 0, SBX_E_INTERNAL, "a key cannot be made: %s",
                         sbx_tls_reason());
    }

    return 0;
}


void
sbx_ca_close(sbx_ca_t *ca)
{
    size_t  i;

    for (i = 0; i < ca->nleaves; i++) {
        X509_free(ca->leaves[i].cert);
    }

    EVP_PKEY_free(ca->key);
    EVP_PKEY_free(ca->leaf_key);
    X509_free(ca->cert);

    memset(ca, 0, sizeof(*ca));
}


/*
 * ---- files -----------------------------------------------------------------
 */

/* -1 too where there is nothing yet, or what is there does not last. */

static int
sbx_ca_read(sbx_ca_t *ca, int fd)
{
    BIO      *bio;
    char      buf[SBX_CA_FILE_MAX];
    time_t    later;
    ssize_t   n;

    n = pread(fd, buf, sizeof(buf), 0);

    if (n <= 0) {
        return -1;
    }

    bio = BIO_new_mem_buf(buf, (int) n);

    if (bio != NULL) {
        ca->key = PEM_read_bio_PrivateKey(bio, NULL, NULL, NULL);
        ca->cert = PEM_read_bio_X509(bio, NULL, NULL, NULL);
    }

    BIO_free(bio);
    OPENSSL_cleanse(buf, sizeof(buf));

    later = time(NULL) + SBX_CA_LEFT;

    if (ca->key == NULL || ca->cert == NULL
        || X509_check_private_key(ca->cert, ca->key) != 1
        || X509_cmp_time(X509_get0_notAfter(ca->cert), &later) != 1)
    {
        (void) sbx_tls_reason();
        return -1;
    }

    return 0;
}


static int
sbx_ca_store(const sbx_ca_t *ca, int fd, int with_key)
{
    int    rc, ok;
    BIO   *bio;
    char  *p;
    long   n;

    bio = BIO_new(BIO_s_secmem());

    if (bio == NULL) {
        errno = ENOMEM;
        return -1;
    }

    ok = (!with_key
          || PEM_write_bio_PrivateKey(bio, ca->key, NULL, NULL, 0, NULL,
                                      NULL) == 1)
         && PEM_write_bio_X509(bio, ca->cert) == 1;

    n = BIO_get_mem_data(bio, &p);
    rc = -1;

    if (ok && n > 0) {
        rc = sbx_ca_replace(fd, p, (size_t) n);

    } else {
        errno = ENOMEM;
    }

    if (n > 0) {
        OPENSSL_cleanse(p, (size_t) n);
    }

    BIO_free(bio);

    return rc;
}


/* Nothing is written where it says just that already. */

static int
sbx_ca_replace(int fd, const void *p, size_t n)
{
    char     buf[SBX_CA_FILE_MAX];
    int      same;
    ssize_t  had;

    had = pread(fd, buf, sizeof(buf), 0);
    same = had == (ssize_t) n && memcmp(buf, p, n) == 0;
    OPENSSL_cleanse(buf, sizeof(buf));

    if (same) {
        return 0;
    }

    if (ftruncate(fd, 0) != 0 || lseek(fd, 0, SEEK_SET) != 0
        || sbx_write_all(fd, p, n) != 0)
    {
        return -1;
    }

    /* a file in memory has nothing to be synchronized with */

    return (fsync(fd) == 0 || errno == EINVAL) ? 0 : -1;
}


/*
 * ---- certificates ----------------------------------------------------------
 */

static int
sbx_ca_make(sbx_ca_t *ca)
{
    static const sbx_ca_extension_t  extensions[] = {
        { NID_basic_constraints, "critical,CA:TRUE,pathlen:0" },
        { NID_key_usage, "critical,keyCertSign,cRLSign" },
        { NID_subject_key_identifier, "hash" },
        { NID_authority_key_identifier, "keyid:always" }
    };

    ca->key = EVP_EC_gen("P-256");

    if (ca->key == NULL) {
        return -1;
    }

    ca->cert = sbx_ca_certificate(ca->key, SBX_CA_NAME, SBX_CA_YEARS);

    if (ca->cert == NULL
        || X509_set_issuer_name(ca->cert, X509_get_subject_name(ca->cert))
           != 1
        || sbx_ca_extend(ca->cert, ca->cert, extensions,
                         sbx_nelts(extensions)) != 0
        || X509_sign(ca->cert, ca->key, EVP_sha256()) == 0)
    {
        return -1;
    }

    return 0;
}


X509 *
sbx_ca_leaf(sbx_ca_t *ca, const char *host)
{
    size_t          i;
    time_t          now;
    X509           *cert;
    sbx_ca_leaf_t  *leaf;

    now = time(NULL);
    leaf = NULL;

    for (i = 0; i < ca->nleaves; i++) {

        if (strcmp(ca->leaves[i].host, host) == 0) {
            leaf = &ca->leaves[i];
            break;
        }

        if (leaf == NULL || ca->leaves[i].used < leaf->used) {
            leaf = &ca->leaves[i];
        }
    }

    if (i == ca->nleaves || leaf->until <= now) {
        cert = sbx_ca_make_leaf(ca, host);

        if (cert == NULL) {
            return NULL;
        }

        if (i == ca->nleaves && i < SBX_CA_LEAVES) {
            leaf = &ca->leaves[ca->nleaves++];
        }

        /* otherwise one of this name, or what was used longest ago, goes */

        X509_free(leaf->cert);
        leaf->cert = cert;
        leaf->until = now + SBX_CA_LEAF_TIME - SBX_CA_DAY;
        (void) sbx_copy_string(leaf->host, sizeof(leaf->host), host,
                               strlen(host));
    }

    leaf->used = ++ca->uses;

    return X509_up_ref(leaf->cert) == 1 ? leaf->cert : NULL;
}


static X509 *
sbx_ca_make_leaf(sbx_ca_t *ca, const char *host)
{
    X509    *cert;
    char     names[SBX_NETWORK_HOST_MAX + 32];
    size_t   len;

    sbx_ca_extension_t  extensions[] = {
        { NID_basic_constraints, "critical,CA:FALSE" },
        { NID_key_usage, "critical,digitalSignature" },
        { NID_ext_key_usage, "serverAuth" },
        { NID_subject_key_identifier, "hash" },
        { NID_authority_key_identifier, "keyid:always" },
        { NID_subject_alt_name, names }
    };

    len = strlen(host);

    if (len == 0 || sbx_network_host_ok(host, len, NULL) != 1) {
        return NULL;
    }

    /* a subject is no place for a long name, and may be empty then */

    (void) snprintf(names, sizeof(names), "%sDNS:%s",
                    len > SBX_CA_NAME_MAX ? "critical," : "", host);

    cert = sbx_ca_certificate(ca->leaf_key,
                              len > SBX_CA_NAME_MAX ? NULL : host,
                              SBX_CA_LEAF_TIME);

    if (cert == NULL) {
        return NULL;
    }

    if (X509_set_issuer_name(cert, X509_get_subject_name(ca->cert)) != 1
        || sbx_ca_extend(cert, ca->cert, extensions, sbx_nelts(extensions))
           != 0
        || X509_sign(cert, ca->key, EVP_sha256()) == 0)
    {
        X509_free(cert);
        return NULL;
    }

    return cert;
}


/* All but its issuer, its extensions and its signature. */

static X509 *
sbx_ca_certificate(EVP_PKEY *key, const char *name, long life)
{
    X509     *cert;
    BIGNUM   *serial;
    uint8_t   bytes[SBX_CA_SERIAL];

    if (RAND_bytes(bytes, sizeof(bytes)) != 1) {
        return NULL;
    }

    bytes[0] &= 0x7f;
    bytes[0] |= 0x40;

    cert = X509_new();
    serial = BN_bin2bn(bytes, sizeof(bytes), NULL);

    if (cert == NULL || serial == NULL
        || BN_to_ASN1_INTEGER(serial, X509_get_serialNumber(cert)) == NULL
        || X509_set_version(cert, X509_VERSION_3) != 1
        || X509_gmtime_adj(X509_getm_notBefore(cert), SBX_CA_BEFORE) == NULL
        || X509_gmtime_adj(X509_getm_notAfter(cert), life) == NULL
        || X509_set_pubkey(cert, key) != 1
        || (name != NULL
            && X509_NAME_add_entry_by_NID(X509_get_subject_name(cert),
                                          NID_commonName, MBSTRING_UTF8,
                                          (const unsigned char *) name, -1,
                                          -1, 0) != 1))
    {
        X509_free(cert);
        cert = NULL;
    }

    BN_free(serial);

    return cert;
}


static int
sbx_ca_extend(X509 *cert, X509 *issuer, const sbx_ca_extension_t *extensions,
    size_t n)
{
    int              rc;
    size_t           i;
    X509V3_CTX       ctx;
    X509_EXTENSION  *extension;

    X509V3_set_ctx(&ctx, issuer, cert, NULL, NULL, 0);

    for (i = 0; i < n; i++) {
        extension = X509V3_EXT_conf_nid(NULL, &ctx, extensions[i].nid,
                                        extensions[i].value);

        if (extension == NULL) {
            return -1;
        }

        rc = X509_add_ext(cert, extension, -1);
        X509_EXTENSION_free(extension);

        if (rc != 1) {
            return -1;
        }
    }

    return 0;
}
