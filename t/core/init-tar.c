/*
 * Archives, as they are read: whatever their bytes are, reading ends, and
 * within bounds.
 */

#include "tap.h"
#include "tar.h"

#include <stdlib.h>
#include <string.h>


typedef struct {
    const uint8_t  *p;
    size_t          left;
} test_bytes_t;


static uint8_t          archive[256 * 1024];
static size_t           size;
static sbx_tar_entry_t  entry, next;          /* entry: the last */


static int
test_read(void *data, void *buf, size_t n, sbx_error_t *e)
{
    test_bytes_t  *bytes = data;

    if (bytes->left == 0) {
        return 1;
    }

    if (bytes->left < n) {
        return sbx_error(e, 0, SBX_E_INVALID, "too early");
    }

    memcpy(buf, bytes->p, n);
    bytes->p += n;
    bytes->left -= n;

    return 0;
}


/* The number of entries, or -1. */

static int
walk(uint64_t *total)
{
    int           rc, n;
    char          buf[1000];
    ssize_t       got;
    sbx_tar_t     tar;
    sbx_error_t   e;
    test_bytes_t  bytes = { archive, size };

    sbx_tar_open(&tar, test_read, &bytes);
    *total = 0;

    for (n = 0; /* void */; n++) {
        rc = sbx_tar_next(&tar, &next, &e);

        if (rc != 1) {
            return rc == 0 ? n : -1;
        }

        memcpy(&entry, &next, sizeof(sbx_tar_entry_t));

        if (memchr(entry.path, '\0', sizeof(entry.path)) == NULL
            || memchr(entry.target, '\0', sizeof(entry.target)) == NULL)
        {
            return -2;
        }

        while ((got = sbx_tar_data(&tar, buf, sizeof(buf), &e)) > 0) {
            *total += (uint64_t) got;
        }

        if (got == -1) {
            return -1;
        }
    }
}


static void
add(sbx_tar_type_t type, const char *path, const char *target,
    const char *data)
{
    size_t           n;
    static uint8_t   head[SBX_TAR_HEAD_MAX];
    sbx_tar_entry_t  *one;

    one = calloc(1, sizeof(sbx_tar_entry_t));
    one->type = type;
    one->mode = 0640;
    one->mtime = 1234567890;
    one->mtime_ns = 5;
    one->size = strlen(data);
    (void) strcpy(one->path, path);
    (void) strcpy(one->target, target);

    n = sbx_tar_head(one, 1000, 1000, "user", head);
    memcpy(archive + size, head, n);
    size += n;
    memcpy(archive + size, data, one->size);
    size += one->size;
    n = sbx_tar_padding(one->size);
    memset(archive + size, 0, n);
    size += n;
    free(one);
}


/* What is read of a header that was written with this time. */

static int64_t
time_of(int64_t seconds, uint32_t ns)
{
    uint64_t                total;
    static sbx_tar_entry_t  one;

    one.mtime = seconds;
    one.mtime_ns = ns;
    (void) strcpy(one.path, "x");
    size = sbx_tar_head(&one, 0, 0, "user", archive);

    return walk(&total) == 1 ? entry.mtime : 1;
}


static void
end(void)
{
    memset(archive + size, 0, 2 * SBX_TAR_BLOCK);
    size += 2 * SBX_TAR_BLOCK;
}


static void
build(void)
{
    char  name[4000];

    memset(name, 'n', sizeof(name));
    name[sizeof(name) - 1] = '\0';

    size = 0;
    add(SBX_TAR_FILE, "file", "", "some content");
    add(SBX_TAR_DIRECTORY, "dir/", "", "");
    add(SBX_TAR_SYMLINK, "link", name, "");
    add(SBX_TAR_FILE, name, "", "x");
    end();
}


/* A header with one field replaced, and its sum made right again. */

static void
field(size_t at, const char *text, size_t len)
{
    size_t    i;
    unsigned  sum;

    size = 0;
    add(SBX_TAR_FILE, "file", "", "some content");
    end();

    /* past the extension for the time, to the file's own header */

    memcpy(archive + 1024 + at, text, len);
    memset(archive + 1024 + 148, ' ', 8);

    for (i = 0, sum = 0; i < 512; i++) {
        sum += archive[1024 + i];
    }

    (void) snprintf((char *) archive + 1024 + 148, 8, "%06o", sum);
}


static void
extension(const char *text)
{
    size_t  len;

    size = 0;
    add(SBX_TAR_FILE, "file", "", "some content");
    end();

    /* the length of what it says is in its header: as before or shorter */

    len = strlen(text);
    memset(archive + 512, 0, 512);
    memcpy(archive + 512, text, len < 512 ? len : 512);
}


int
main(void)
{
    int        n;
    size_t     i, all, wrong;
    uint8_t    was;
    uint64_t   total;
    unsigned   k;

    static const uint8_t  bits[] = { 0x01, 0x80, 0xff, 0x30 };

    build();
    n = walk(&total);
    is_int(n, 4, "what is written is read");
    is_int((int64_t) total, 13, "with its bytes");
    is_int((int64_t) strlen(entry.path), 3999, "long names too");
    is_int(entry.mtime, 1234567890, "and times");
    is_int(entry.mtime_ns, 5, "to the nanosecond");

    ok(time_of(99999999999, 0) == 99999999999, "a time after 2242");
    ok(time_of(-5, 7) == -5 && entry.mtime_ns == 0, "and one before 1970");
    ok(time_of(0, 0) == 0, "and 1970");
    build();

    all = size;
    wrong = 0;

    for (i = 0; i < all; i++) {
        for (k = 0; k < sizeof(bits); k++) {
            was = archive[i];
            archive[i] ^= bits[k];
            n = walk(&total);
            wrong += (n < -1 || n > 40 || total > all);
            archive[i] = was;
        }
    }

    is_int((int64_t) wrong, 0, "any byte may be another");

    for (i = 0, wrong = 0; i < all; i += 7) {
        size = i;
        n = walk(&total);
        wrong += (n < -1 || total > all);
    }

    is_int((int64_t) wrong, 0, "it may end anywhere");

    size = 0;
    is_int(walk(&total), 0, "nothing is an empty archive");

    field(124, "77777777777\0", 12);
    is_int(walk(&total), -1, "a size beyond the end");
    field(124, "\x80\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff", 12);
    is_int(walk(&total), -1, "one of more than 64 bits");
    field(124, "\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff", 12);
    is_int(walk(&total), -1, "a negative one");
    field(124, "9x", 2);
    is_int(walk(&total), -1, "one that is none");
    field(156, "S", 1);
    is_int(walk(&total), 1, "a type that is not known");
    is_int(entry.type, SBX_TAR_OTHER, "is told as such");

    extension("99999999999999999999 path=x\n");
    is_int(walk(&total), -1, "an extension whose length is too long");
    extension("0 path=x\n");
    is_int(walk(&total), -1, "is none");
    extension("path=x\n");
    is_int(walk(&total), -1, "is not there");
    extension("5 x\n\n");
    is_int(walk(&total), -1, "or that says nothing");

    size = 0;

    for (k = 0; k < 40; k++) {
        add(SBX_TAR_FILE, "x", "", "");
        size -= 512;
    }

    end();
    is_int(walk(&total), -1, "extensions without an entry");

    return done_testing();
}
