/*
 * libarchive is asked for tar alone: no other format, no filter, nothing
 * that would start a program or touch the disk.
 *
 * Names are bytes here.  libarchive believes those of pax headers to be
 * UTF-8, and would turn them into what it takes for the locale's characters,
 * normalised on the way, by iconv(), which in a static program loads modules
 * from the file system: from the session's.  So iconv() is our own: it knows
 * nothing to turn UTF-8 into, for which reason libarchive warns, and gives the
 * name as it was; and into UTF-8, for headers that are written, goes what
 * is UTF-8 already.  Other names are written as "BINARY".
 */

#include "tar.h"

#include "json.h"

#include <archive.h>
#include <archive_entry.h>
#include <errno.h>
#include <iconv.h>
#include <string.h>


#define SBX_TAR_SIZE_MAX   (INT64_C(1) << 60)


/*
 * What libarchive's pax writer says of an entry it cannot have, which none
 * of ours is.  Where libarchive defines it, each format's writer comes along,
 * and with them libraries that nothing here uses.
 */
void sbx_tar_unsupported(struct archive *archive, struct archive_entry *entry,
    const char *format)
    __asm__("__archive_write_entry_filetype_unsupported")
    __attribute__((weak));

static la_ssize_t sbx_tar_on_read(struct archive *archive, void *data,
    const void **p);
static la_ssize_t sbx_tar_on_write(struct archive *archive, void *data,
    const void *p, size_t n);
static int sbx_tar_fill(sbx_tar_t *tar, struct archive_entry *from,
    sbx_tar_entry_t *entry, sbx_error_t *e);
static int sbx_tar_string(char *to, const char *from, sbx_error_t *e);
static int sbx_tar_benign(struct archive *archive, const char *what);
static int sbx_tar_failed(struct archive *archive, sbx_error_t *e);


/* ---- characters -------------------------------------------------------- */


iconv_t
iconv_open(const char *to, const char *from)
{
    static char  utf8;

    (void) from;

    if (strcmp(to, "UTF-8") == 0) {
        return &utf8;
    }

    errno = EINVAL;

    return (iconv_t) -1;
}


size_t
iconv(iconv_t cd, char **in, size_t *in_left, char **out, size_t *out_left)
{
    size_t  n;

    (void) cd;

    if (in == NULL || *in == NULL) {
        return 0;
    }

    while (*in_left != 0) {
        n = sbx_utf8_sequence(*in, *in_left);

        if (n == 0 || n > *out_left) {
            errno = n == 0 ? EILSEQ : E2BIG;
            return (size_t) -1;
        }

        memcpy(*out, *in, n);
        *in += n;
        *in_left -= n;
        *out += n;
        *out_left -= n;
    }

    return 0;
}


int
iconv_close(iconv_t cd)
{
    (void) cd;

    return 0;
}


/* ---- reading ----------------------------------------------------------- */


int
sbx_tar_open(sbx_tar_t *tar, sbx_tar_read_t read, void *data, sbx_error_t *e)
{
    memset(tar, 0, sizeof(sbx_tar_t));
    tar->read = read;
    tar->data = data;
    tar->e = e;
    tar->archive = archive_read_new();

    if (tar->archive == NULL
        || archive_read_support_format_tar(tar->archive) != ARCHIVE_OK)
    {
        return sbx_error(e, ENOMEM, SBX_E_UNAVAILABLE,
                         "out of memory for an archive");
    }

    /* the first bytes are read here; none at all are no archive to libarchive,
     * but an empty one to us */

    if (archive_read_open(tar->archive, tar, NULL, sbx_tar_on_read, NULL)
            != ARCHIVE_OK
        && (tar->some || tar->failed))
    {
        return tar->failed ? -1 : sbx_tar_failed(tar->archive, e);
    }

    return 0;
}


void
sbx_tar_close(sbx_tar_t *tar)
{
    if (tar->archive != NULL) {
        (void) archive_read_free(tar->archive);
        tar->archive = NULL;
    }
}


static la_ssize_t
sbx_tar_on_read(struct archive *archive, void *data, const void **p)
{
    ssize_t     n;
    sbx_tar_t  *tar;

    tar = data;
    n = tar->failed ? -1 : tar->read(tar->data, p, tar->e);

    if (n == -1) {
        tar->failed = 1;
        archive_set_error(archive, EIO, "no more bytes");
        return ARCHIVE_FATAL;
    }

    tar->some |= (n != 0);

    return n;
}


int
sbx_tar_next(sbx_tar_t *tar, sbx_tar_entry_t *entry, sbx_error_t *e)
{
    int                    rc;
    struct archive_entry  *from;

    tar->e = e;
    rc = archive_read_next_header(tar->archive, &from);

    if (tar->failed) {
        return -1;
    }

    if (rc == ARCHIVE_EOF || !tar->some) {
        return 0;
    }

    if (rc != ARCHIVE_OK
        && (rc != ARCHIVE_WARN
            || !sbx_tar_benign(tar->archive, "can't be converted")))
    {
        return sbx_tar_failed(tar->archive, e);
    }

    return sbx_tar_fill(tar, from, entry, e) == 0 ? 1 : -1;
}


static int
sbx_tar_fill(sbx_tar_t *tar, struct archive_entry *from,
    sbx_tar_entry_t *entry, sbx_error_t *e)
{
    size_t       n;
    long         ns;
    int64_t      size;
    const char  *hard;

    static const struct {
        unsigned        filetype;
        sbx_tar_type_t  type;
    } types[] = {
        { AE_IFREG, SBX_TAR_FILE }, { AE_IFDIR, SBX_TAR_DIRECTORY },
        { AE_IFLNK, SBX_TAR_SYMLINK }
    };

    memset(entry, 0, sizeof(sbx_tar_entry_t));
    entry->type = SBX_TAR_OTHER;
    entry->mode = (uint32_t) archive_entry_perm(from) & 07777;
    entry->mtime = archive_entry_mtime(from);

    /* a fraction counts away from zero: before 1970 there is none */

    ns = archive_entry_mtime_nsec(from);

    if (entry->mtime >= 0 && ns >= 0 && ns < 1000000000) {
        entry->mtime_ns = (uint32_t) ns;
    }

    for (n = 0; n < sizeof(types) / sizeof(types[0]); n++) {
        if (types[n].filetype == archive_entry_filetype(from)) {
            entry->type = types[n].type;
        }
    }

    hard = archive_entry_hardlink(from);

    if (hard != NULL) {
        entry->type = SBX_TAR_HARDLINK;
    }

    if (sbx_tar_string(entry->path, archive_entry_pathname(from), e) != 0
        || sbx_tar_string(entry->target, hard != NULL ? hard
                          : archive_entry_symlink(from), e) != 0)
    {
        return -1;
    }

    /* before POSIX a directory was a file whose name ends so */

    n = strlen(entry->path);

    if (entry->type == SBX_TAR_FILE && n != 0 && entry->path[n - 1] == '/') {
        entry->type = SBX_TAR_DIRECTORY;
    }

    size = archive_entry_size(from);

    if (entry->type == SBX_TAR_FILE) {
        if (size < 0 || size > SBX_TAR_SIZE_MAX) {
            return sbx_error(e, 0, SBX_E_INVALID,
                             "the archive has a file of no possible size");
        }

        entry->size = (uint64_t) size;
    }

    tar->size = entry->size;

    return 0;
}


static int
sbx_tar_string(char *to, const char *from, sbx_error_t *e)
{
    size_t  len;

    len = from != NULL ? strlen(from) : 0;

    if (len >= SBX_TAR_PATH_MAX) {
        return sbx_error(e, 0, SBX_E_INVALID,
                         "the archive has a name of more than %d bytes",
                         SBX_TAR_PATH_MAX - 1);
    }

    if (len != 0) {
        memcpy(to, from, len);
    }

    to[len] = '\0';

    return 0;
}


/* A warning means that something of an entry was not understood. */

static int
sbx_tar_benign(struct archive *archive, const char *what)
{
    const char  *text;

    text = archive_error_string(archive);

    return text != NULL && strstr(text, what) != NULL;
}


static int
sbx_tar_failed(struct archive *archive, sbx_error_t *e)
{
    const char  *text;

    if (archive_errno(archive) == ENOMEM) {
        return sbx_error(e, ENOMEM, SBX_E_TOO_LARGE,
                         "the archive takes more memory than there is for "
                         "one");
    }

    text = archive_error_string(archive);

    return sbx_error(e, 0, SBX_E_INVALID,
                     "this is no tar archive, or it is damaged: %.100s",
                     text != NULL ? text : "it cannot be read");
}


int
sbx_tar_data(sbx_tar_t *tar, const void **p, size_t *n, uint64_t *offset,
    sbx_error_t *e)
{
    int         rc;
    la_int64_t  at;

    tar->e = e;

    do {
        rc = archive_read_data_block(tar->archive, p, n, &at);

        if (tar->failed) {
            return -1;
        }

        if (rc == ARCHIVE_EOF) {
            return 0;
        }

        if (rc != ARCHIVE_OK) {
            return sbx_tar_failed(tar->archive, e);
        }

    } while (*n == 0);

    if (at < 0 || (uint64_t) at > tar->size
        || *n > tar->size - (uint64_t) at)
    {
        return sbx_error(e, 0, SBX_E_INVALID,
                         "the archive has a file with more bytes than its "
                         "size");
    }

    *offset = (uint64_t) at;

    return 1;
}


/* ---- writing ----------------------------------------------------------- */


void
sbx_tar_unsupported(struct archive *archive, struct archive_entry *entry,
    const char *format)
{
    (void) entry;
    (void) format;

    archive_set_error(archive, EINVAL, "an entry of no type for an archive");
}


/* Blocks are not collected: who takes the bytes does. */

int
sbx_tar_create(sbx_tar_writer_t *tar, sbx_tar_write_t write, void *data,
    sbx_error_t *e)
{
    memset(tar, 0, sizeof(sbx_tar_writer_t));
    tar->write = write;
    tar->data = data;
    tar->e = e;
    tar->archive = archive_write_new();
    tar->entry = archive_entry_new();

    if (tar->archive == NULL || tar->entry == NULL
        || archive_write_set_format_pax(tar->archive) != ARCHIVE_OK
        || archive_write_set_bytes_per_block(tar->archive, 0) != ARCHIVE_OK
        || archive_write_open(tar->archive, tar, NULL, sbx_tar_on_write, NULL)
           != ARCHIVE_OK)
    {
        return sbx_error(e, ENOMEM, SBX_E_UNAVAILABLE,
                         "out of memory for an archive");
    }

    return 0;
}


static la_ssize_t
sbx_tar_on_write(struct archive *archive, void *data, const void *p, size_t n)
{
    sbx_tar_writer_t  *tar;

    tar = data;

    if (tar->failed || tar->write(tar->data, p, n, tar->e) != 0) {
        tar->failed = 1;
        archive_set_error(archive, EIO, "no more bytes");
        return ARCHIVE_FATAL;
    }

    return (la_ssize_t) n;
}


int
sbx_tar_add(sbx_tar_writer_t *tar, const sbx_tar_entry_t *entry,
    uint32_t uid, uint32_t gid, const char *owner, sbx_error_t *e)
{
    int  rc;

    static const unsigned  types[] = {
        AE_IFREG, AE_IFDIR, AE_IFLNK, AE_IFREG, AE_IFIFO
    };

    tar->e = e;
    (void) archive_entry_clear(tar->entry);

    archive_entry_set_pathname(tar->entry, entry->path);
    archive_entry_set_filetype(tar->entry, types[entry->type]);
    archive_entry_set_perm(tar->entry, entry->mode & 07777);
    archive_entry_set_mtime(tar->entry, entry->mtime,
                            entry->mtime < 0 ? 0 : (long) entry->mtime_ns);
    archive_entry_set_size(tar->entry, entry->type == SBX_TAR_FILE
                                       ? (la_int64_t) entry->size : 0);
    archive_entry_set_uid(tar->entry, uid);
    archive_entry_set_gid(tar->entry, gid);
    archive_entry_set_uname(tar->entry, owner);
    archive_entry_set_gname(tar->entry, owner);

    if (entry->type == SBX_TAR_SYMLINK) {
        archive_entry_set_symlink(tar->entry, entry->target);
    }

    if (entry->type == SBX_TAR_HARDLINK) {
        archive_entry_set_hardlink(tar->entry, entry->target);
    }

    rc = archive_write_header(tar->archive, tar->entry);

    if (rc == ARCHIVE_OK
        || (rc == ARCHIVE_WARN
            && sbx_tar_benign(tar->archive, "Can't translate")))
    {
        return 0;
    }

    return tar->failed ? -1 : sbx_tar_failed(tar->archive, e);
}


int
sbx_tar_put(sbx_tar_writer_t *tar, const void *p, size_t n, sbx_error_t *e)
{
    la_ssize_t  rc;

    tar->e = e;
    rc = archive_write_data(tar->archive, p, n);

    if (rc == (la_ssize_t) n) {
        return 0;
    }

    return tar->failed ? -1 : sbx_tar_failed(tar->archive, e);
}


int
sbx_tar_finish(sbx_tar_writer_t *tar, sbx_error_t *e)
{
    tar->e = e;

    if (archive_write_close(tar->archive) == ARCHIVE_OK) {
        return 0;
    }

    return tar->failed ? -1 : sbx_tar_failed(tar->archive, e);
}


void
sbx_tar_destroy(sbx_tar_writer_t *tar)
{
    if (tar->archive != NULL) {
        (void) archive_write_free(tar->archive);
        tar->archive = NULL;
    }

    archive_entry_free(tar->entry);
    tar->entry = NULL;
}
