#include "tar.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>


/* A header's fields, by their places. */
#define SBX_TAR_NAME       0
#define SBX_TAR_MODE       100
#define SBX_TAR_UID        108
#define SBX_TAR_GID        116
#define SBX_TAR_SIZE       124
#define SBX_TAR_MTIME      136
#define SBX_TAR_SUM        148
#define SBX_TAR_TYPE       156
#define SBX_TAR_LINK       157
#define SBX_TAR_MAGIC      257
#define SBX_TAR_OWNER      265
#define SBX_TAR_PREFIX     345

#define SBX_TAR_EXTENSIONS 16         /* before one entry */
#define SBX_TAR_SIZE_MAX   (UINT64_C(1) << 60)


/* What extension headers have said of the entry that follows them. */
typedef struct {
    unsigned   has_path:1;
    unsigned   has_target:1;
    unsigned   has_size:1;
    unsigned   has_mtime:1;
    unsigned   sparse:1;
} sbx_tar_said_t;


static int sbx_tar_skip(sbx_tar_t *tar, sbx_error_t *e);
static int sbx_tar_block(sbx_tar_t *tar, uint8_t *block, sbx_error_t *e);
static int sbx_tar_sum(const uint8_t *block);
static int sbx_tar_number(const uint8_t *p, size_t n, uint64_t *value);
static int sbx_tar_extra(sbx_tar_t *tar, const uint8_t *block, int type,
    sbx_tar_entry_t *entry, sbx_tar_said_t *said, sbx_error_t *e);
static int sbx_tar_pax(char *p, size_t n, sbx_tar_entry_t *entry,
    sbx_tar_said_t *said, sbx_error_t *e);
static int sbx_tar_record(const char *key, const char *value, size_t len,
    sbx_tar_entry_t *entry, sbx_tar_said_t *said, sbx_error_t *e);
static int sbx_tar_time(const char *value, sbx_tar_entry_t *entry);
static int sbx_tar_string(char *to, const char *from, size_t len,
    sbx_error_t *e);
static int sbx_tar_fill(sbx_tar_t *tar, const uint8_t *block,
    sbx_tar_entry_t *entry, const sbx_tar_said_t *said, sbx_error_t *e);


void
sbx_tar_open(sbx_tar_t *tar,
    int (*read)(void *data, void *buf, size_t n, sbx_error_t *e), void *data)
{
    memset(tar, 0, sizeof(sbx_tar_t));
    tar->read = read;
    tar->data = data;
}


int
sbx_tar_next(sbx_tar_t *tar, sbx_tar_entry_t *entry, sbx_error_t *e)
{
    int             rc;
    uint8_t         block[SBX_TAR_BLOCK];
    unsigned        i;
    sbx_tar_said_t  said;

    memset(entry, 0, sizeof(sbx_tar_entry_t));
    memset(&said, 0, sizeof(sbx_tar_said_t));

    for (i = 0; i < SBX_TAR_EXTENSIONS; i++) {
        if (sbx_tar_skip(tar, e) != 0) {
            return -1;
        }

        rc = sbx_tar_block(tar, block, e);

        if (rc != 1) {
            return rc;
        }

        switch (block[SBX_TAR_TYPE]) {

        case 'x':
        case 'X':
        case 'g':
        case 'L':
        case 'K':
            if (sbx_tar_extra(tar, block, block[SBX_TAR_TYPE], entry, &said,
                              e)
                != 0)
            {
                return -1;
            }

            break;

        default:
            return sbx_tar_fill(tar, block, entry, &said, e) == 0 ? 1 : -1;
        }
    }

    return sbx_error(e, 0, SBX_E_INVALID,
                     "the archive has too many extensions before an entry");
}


static int
sbx_tar_skip(sbx_tar_t *tar, sbx_error_t *e)
{
    size_t   n;
    uint8_t  buf[4096];

    while (tar->left != 0) {
        n = tar->left < sizeof(buf) ? (size_t) tar->left : sizeof(buf);

        if (tar->read(tar->data, buf, n, e) != 0) {
            return sbx_error(e, 0, SBX_E_INVALID,
                             "the archive ends within an entry");
        }

        tar->left -= n;
    }

    tar->file = 0;

    return 0;
}


/* 1: a header; 0: the end, which a block of zeros is, too. */

static int
sbx_tar_block(sbx_tar_t *tar, uint8_t *block, sbx_error_t *e)
{
    int     rc;
    size_t  i;

    rc = tar->read(tar->data, block, SBX_TAR_BLOCK, e);

    if (rc != 0) {
        return rc == 1 ? 0 : -1;
    }

    for (i = 0; i < SBX_TAR_BLOCK && block[i] == 0; i++) { /* void */ }

    if (i == SBX_TAR_BLOCK) {
        return 0;
    }

    if (!sbx_tar_sum(block)) {
        return sbx_error(e, 0, SBX_E_INVALID,
                         "this is no tar archive, or a header of it is "
                         "damaged");
    }

    return 1;
}


/* Some have summed signed characters. */

static int
sbx_tar_sum(const uint8_t *block)
{
    size_t    i;
    int64_t   plain, other;
    uint64_t  told;

    if (sbx_tar_number(block + SBX_TAR_SUM, 8, &told) != 0) {
        return 0;
    }

    plain = 0;
    other = 0;

    for (i = 0; i < SBX_TAR_BLOCK; i++) {
        if (i >= SBX_TAR_SUM && i < SBX_TAR_SUM + 8) {
            plain += ' ';
            other += ' ';
            continue;
        }

        plain += block[i];
        other += (int8_t) block[i];
    }

    return (int64_t) told == plain || (int64_t) told == other;
}


/* Octal digits, or with the first bit set a number of 256s. */

static int
sbx_tar_number(const uint8_t *p, size_t n, uint64_t *value)
{
    size_t    i;
    uint64_t  v;

    v = 0;

    if (p[0] & 0x80) {
        if (p[0] != 0x80) {
            return -1;
        }

        for (i = 1; i < n; i++) {
            if (v >> 52) {
                return -1;
            }

            v = v << 8 | p[i];
        }

        *value = v;
        return 0;
    }

    for (i = 0; i < n && p[i] == ' '; i++) { /* void */ }

    for ( /* void */ ; i < n && p[i] >= '0' && p[i] <= '7'; i++) {
        v = v << 3 | (uint64_t) (p[i] - '0');
    }

    if (i < n && p[i] != ' ' && p[i] != '\0') {
        return -1;
    }

    *value = v;

    return 0;
}


static int
sbx_tar_extra(sbx_tar_t *tar, const uint8_t *block, int type,
    sbx_tar_entry_t *entry, sbx_tar_said_t *said, sbx_error_t *e)
{
    size_t       n;
    uint64_t     size;
    static char  buf[SBX_TAR_EXTRA_MAX + 1];

    if (sbx_tar_number(block + SBX_TAR_SIZE, 12, &size) != 0
        || size > SBX_TAR_EXTRA_MAX)
    {
        return sbx_error(e, 0, SBX_E_INVALID,
                         "the archive has an extension of more than %d bytes",
                         SBX_TAR_EXTRA_MAX);
    }

    n = (size_t) size;
    tar->left = size + sbx_tar_padding(size);

    /* what is said of all entries is of owners and times: not for us */

    if (type == 'g') {
        return 0;
    }

    if (n != 0 && tar->read(tar->data, buf, n, e) != 0) {
        return sbx_error(e, 0, SBX_E_INVALID,
                         "the archive ends within an extension");
    }

    tar->left -= n;
    buf[n] = '\0';

    switch (type) {

    case 'L':
        said->has_path = 1;
        return sbx_tar_string(entry->path, buf, strlen(buf), e);

    case 'K':
        said->has_target = 1;
        return sbx_tar_string(entry->target, buf, strlen(buf), e);

    default:
        return sbx_tar_pax(buf, n, entry, said, e);
    }
}


/* "LENGTH key=value\n" ... */

static int
sbx_tar_pax(char *p, size_t n, sbx_tar_entry_t *entry, sbx_tar_said_t *said,
    sbx_error_t *e)
{
    char    *key, *value, *end;
    size_t   len, i;

    while (n != 0) {
        len = 0;

        for (i = 0; i < n && p[i] >= '0' && p[i] <= '9' && len < n; i++) {
            len = len * 10 + (size_t) (p[i] - '0');
        }

        if (i == 0 || i == n || p[i] != ' ' || len > n || len < i + 4
            || p[len - 1] != '\n')
        {
            return sbx_error(e, 0, SBX_E_INVALID,
                             "the archive has a malformed extension");
        }

        key = p + i + 1;
        end = p + len - 1;
        value = memchr(key, '=', (size_t) (end - key));

        if (value == NULL) {
            return sbx_error(e, 0, SBX_E_INVALID,
                             "the archive has a malformed extension");
        }

        *value++ = '\0';
        *end = '\0';

        if (sbx_tar_record(key, value, (size_t) (end - value), entry, said, e)
            != 0)
        {
            return -1;
        }

        p += len;
        n -= len;
    }

    return 0;
}


static int
sbx_tar_record(const char *key, const char *value, size_t len,
    sbx_tar_entry_t *entry, sbx_tar_said_t *said, sbx_error_t *e)
{
    char                *end;
    unsigned long long   n;

    if (strcmp(key, "path") == 0) {
        said->has_path = 1;
        return sbx_tar_string(entry->path, value, len, e);
    }

    if (strcmp(key, "linkpath") == 0) {
        said->has_target = 1;
        return sbx_tar_string(entry->target, value, len, e);
    }

    if (strncmp(key, "GNU.sparse.", sizeof("GNU.sparse.") - 1) == 0) {
        said->sparse = 1;
        return 0;
    }

    if (strcmp(key, "size") == 0) {
        n = strtoull(value, &end, 10);

        if (value[0] < '0' || value[0] > '9' || *end != '\0'
            || n > SBX_TAR_SIZE_MAX)
        {
            return sbx_error(e, 0, SBX_E_INVALID,
                             "the archive has an entry without a size");
        }

        entry->size = n;
        said->has_size = 1;
        return 0;
    }

    if (strcmp(key, "mtime") == 0 && sbx_tar_time(value, entry) == 0) {
        said->has_mtime = 1;
    }

    return 0;
}


static int
sbx_tar_time(const char *value, sbx_tar_entry_t *entry)
{
    char      *end;
    uint32_t   ns, unit;

    entry->mtime = strtoll(value, &end, 10);
    ns = 0;

    if (end == value) {
        return -1;
    }

    if (*end == '.') {
        for (unit = 100000000, end++; *end >= '0' && *end <= '9'; end++) {
            ns += unit * (uint32_t) (*end - '0');
            unit /= 10;
        }
    }

    entry->mtime_ns = value[0] == '-' ? 0 : ns;

    return 0;
}


static int
sbx_tar_string(char *to, const char *from, size_t len, sbx_error_t *e)
{
    if (len >= SBX_TAR_PATH_MAX || memchr(from, '\0', len) != NULL) {
        return sbx_error(e, 0, SBX_E_INVALID,
                         "the archive has a name with a NUL, or of more than "
                         "%d bytes", SBX_TAR_PATH_MAX - 1);
    }

    memcpy(to, from, len);
    to[len] = '\0';

    return 0;
}


static int
sbx_tar_fill(sbx_tar_t *tar, const uint8_t *block, sbx_tar_entry_t *entry,
    const sbx_tar_said_t *said, sbx_error_t *e)
{
    int       n;
    uint64_t  mode, size, mtime;

    static const struct {
        char            type;
        sbx_tar_type_t  is;
    } types[] = {
        { '0', SBX_TAR_FILE }, { '\0', SBX_TAR_FILE }, { '7', SBX_TAR_FILE },
        { '1', SBX_TAR_HARDLINK }, { '2', SBX_TAR_SYMLINK },
        { '5', SBX_TAR_DIRECTORY }
    };

    if (sbx_tar_number(block + SBX_TAR_MODE, 8, &mode) != 0
        || sbx_tar_number(block + SBX_TAR_SIZE, 12, &size) != 0
        || size > SBX_TAR_SIZE_MAX)
    {
        return sbx_error(e, 0, SBX_E_INVALID,
                         "the archive has a header that cannot be");
    }

    /* a time before 1970 or after 2242 is not worth a refusal */

    if (!said->has_mtime
        && sbx_tar_number(block + SBX_TAR_MTIME, 12, &mtime) == 0)
    {
        entry->mtime = (int64_t) mtime;
    }

    entry->mode = (uint32_t) mode & 07777;
    entry->type = SBX_TAR_OTHER;

    for (n = 0; n < (int) (sizeof(types) / sizeof(types[0])); n++) {
        if (types[n].type == (char) block[SBX_TAR_TYPE]) {
            entry->type = types[n].is;
        }
    }

    if (said->sparse) {
        return sbx_error(e, 0, SBX_E_INVALID,
                         "the archive has a sparse file, which is not read");
    }

    if (!said->has_path) {
        n = 0;

        /* a prefix is POSIX's; GNU has other things in its place */

        if (memcmp(block + SBX_TAR_MAGIC, "ustar\0", 6) == 0
            && block[SBX_TAR_PREFIX] != '\0')
        {
            n = snprintf(entry->path, sizeof(entry->path), "%.155s/",
                         (const char *) block + SBX_TAR_PREFIX);
        }

        (void) snprintf(entry->path + n, sizeof(entry->path) - (size_t) n,
                        "%.100s", (const char *) block + SBX_TAR_NAME);
    }

    if (!said->has_target) {
        (void) snprintf(entry->target, sizeof(entry->target), "%.100s",
                        (const char *) block + SBX_TAR_LINK);
    }

    if (!said->has_size) {
        entry->size = size;
    }

    /* before POSIX a directory was a file whose name ends so */

    n = (int) strlen(entry->path);

    if (entry->type == SBX_TAR_FILE && n != 0 && entry->path[n - 1] == '/') {
        entry->type = SBX_TAR_DIRECTORY;
    }

    tar->left = entry->size + sbx_tar_padding(entry->size);
    tar->file = entry->type == SBX_TAR_FILE ? entry->size : 0;

    /* links and directories have none, whatever is told */

    if (entry->type == SBX_TAR_SYMLINK || entry->type == SBX_TAR_DIRECTORY
        || entry->type == SBX_TAR_HARDLINK)
    {
        if (!said->has_size && entry->type != SBX_TAR_HARDLINK) {
            tar->left = 0;
        }

        entry->size = 0;
    }

    return 0;
}


ssize_t
sbx_tar_data(sbx_tar_t *tar, void *buf, size_t n, sbx_error_t *e)
{
    if (tar->file < n) {
        n = (size_t) tar->file;
    }

    if (n == 0) {
        return 0;
    }

    switch (tar->read(tar->data, buf, n, e)) {

    case 0:
        tar->file -= n;
        tar->left -= n;
        return (ssize_t) n;

    case 1:
        return sbx_error(e, 0, SBX_E_INVALID,
                         "the archive ends within a file");

    default:
        return -1;
    }
}


size_t
sbx_tar_padding(uint64_t size)
{
    return (size_t) ((SBX_TAR_BLOCK - size % SBX_TAR_BLOCK) % SBX_TAR_BLOCK);
}


/* ---- writing ----------------------------------------------------------- */


static size_t
sbx_tar_put_record(char *buf, const char *key, const char *value)
{
    int     n;
    size_t  len, digits;

    /* the length counts its own digits */

    len = strlen(key) + strlen(value) + 3;

    for (digits = 1; digits < 6; digits++) {
        n = snprintf(buf, 16, "%zu", len + digits);

        if ((size_t) n == digits) {
            break;
        }
    }

    return (size_t) sprintf(buf, "%zu %s=%s\n", len + digits, key, value);
}


static void
sbx_tar_put_header(uint8_t *block, const char *name, char type,
    const sbx_tar_entry_t *entry, uint64_t size, uint32_t uid, uint32_t gid,
    const char *owner)
{
    size_t    i;
    unsigned  sum;
    uint64_t  octal;

    memset(block, 0, SBX_TAR_BLOCK);
    memcpy(block + SBX_TAR_NAME, name, strnlen(name, 100));

    octal = size < (UINT64_C(1) << 33) ? size : 0;

    (void) sprintf((char *) block + SBX_TAR_MODE, "%07o",
                   entry->mode & 07777);
    (void) sprintf((char *) block + SBX_TAR_UID, "%07o", uid & 07777777);
    (void) sprintf((char *) block + SBX_TAR_GID, "%07o", gid & 07777777);
    (void) sprintf((char *) block + SBX_TAR_SIZE, "%011lo",
                   (unsigned long) octal);
    (void) sprintf((char *) block + SBX_TAR_MTIME, "%011lo",
                   entry->mtime < 0 ? 0
                   : (unsigned long) entry->mtime & 077777777777);

    block[SBX_TAR_TYPE] = (uint8_t) type;
    memcpy(block + SBX_TAR_MAGIC, "ustar\00000", 8);
    memcpy(block + SBX_TAR_OWNER, owner, strnlen(owner, 31));
    memcpy(block + SBX_TAR_OWNER + 32, owner, strnlen(owner, 31));

    if (type == '1' || type == '2') {
        memcpy(block + SBX_TAR_LINK, entry->target,
               strnlen(entry->target, 100));
    }

    memset(block + SBX_TAR_SUM, ' ', 8);

    for (i = 0, sum = 0; i < SBX_TAR_BLOCK; i++) {
        sum += block[i];
    }

    (void) sprintf((char *) block + SBX_TAR_SUM, "%06o", sum);
}


size_t
sbx_tar_head(const sbx_tar_entry_t *entry, uint32_t uid, uint32_t gid,
    const char *owner, uint8_t buf[SBX_TAR_HEAD_MAX])
{
    char             *p, number[64];
    size_t            n, extra;
    sbx_tar_entry_t   plain;

    static const char  types[] = { '0', '5', '2', '1', '0' };

    p = (char *) buf + SBX_TAR_BLOCK;

    if (strlen(entry->path) > 100) {
        p += sbx_tar_put_record(p, "path", entry->path);
    }

    if ((entry->type == SBX_TAR_SYMLINK || entry->type == SBX_TAR_HARDLINK)
        && strlen(entry->target) > 100)
    {
        p += sbx_tar_put_record(p, "linkpath", entry->target);
    }

    if (entry->size >= (UINT64_C(1) << 33)) {
        (void) sprintf(number, "%lu", (unsigned long) entry->size);
        p += sbx_tar_put_record(p, "size", number);
    }

    /* a fraction counts away from zero: before 1970 there is none */

    if (entry->mtime_ns != 0 || entry->mtime < 0
        || entry->mtime >= (INT64_C(1) << 33))
    {
        (void) sprintf(number, "%ld.%09u", (long) entry->mtime,
                       entry->mtime < 0 ? 0 : entry->mtime_ns);
        p += sbx_tar_put_record(p, "mtime", number);
    }

    extra = (size_t) (p - ((char *) buf + SBX_TAR_BLOCK));
    n = 0;

    if (extra != 0) {
        memset(&plain, 0, sizeof(sbx_tar_entry_t));
        plain.mode = 0644;
        plain.mtime = entry->mtime;
        sbx_tar_put_header(buf, "././@PaxHeader", 'x', &plain, extra, 0, 0,
                           "root");
        memset(p, 0, sbx_tar_padding(extra));
        n = SBX_TAR_BLOCK + extra + sbx_tar_padding(extra);
    }

    sbx_tar_put_header(buf + n, entry->path, types[entry->type], entry,
                       entry->size, uid, gid, owner);

    return n + SBX_TAR_BLOCK;
}
