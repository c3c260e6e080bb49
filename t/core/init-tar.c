/*
 * Archives, as they are read: whatever their bytes are, reading ends, and
 * within bounds.
 */

#include "tap.h"
#include "tar.h"

#include <iconv.h>
#include <stdlib.h>
#include <string.h>


#define TEST_BLOCK   512


typedef struct {
    const uint8_t  *p;
    size_t          left;
} test_bytes_t;


static uint8_t          archive[256 * 1024];
static size_t           size;
static size_t           part = 1000;
static int              refuse;
static sbx_error_t      err;
static sbx_tar_entry_t  entry, next;          /* entry: the last */
static sbx_tar_writer_t writer;


static ssize_t
test_read(void *data, const void **p, sbx_error_t *e)
{
    size_t         n;
    test_bytes_t  *bytes = data;

    (void) e;

    n = bytes->left < part ? bytes->left : part;
    *p = bytes->p;
    bytes->p += n;
    bytes->left -= n;

    return (ssize_t) n;
}


static int
test_write(void *data, const void *p, size_t n, sbx_error_t *e)
{
    (void) data;

    if (refuse) {
        return sbx_error(e, 0, SBX_E_UNAVAILABLE, "gone");
    }

    if (n > sizeof(archive) - size) {
        abort();
    }

    memcpy(archive + size, p, n);
    size += n;

    return 0;
}


/* The number of entries, or -1. */

static int
walk(uint64_t *total)
{
    int           rc, n;
    size_t        got;
    uint64_t      offset;
    sbx_tar_t     tar;
    const void   *p;
    test_bytes_t  bytes = { archive, size };

    *total = 0;
    rc = sbx_tar_open(&tar, test_read, &bytes, &err);

    for (n = 0; rc == 0; n++) {
        rc = sbx_tar_next(&tar, &next, &err);

        if (rc != 1) {
            break;
        }

        memcpy(&entry, &next, sizeof(sbx_tar_entry_t));

        if (memchr(entry.path, '\0', sizeof(entry.path)) == NULL
            || memchr(entry.target, '\0', sizeof(entry.target)) == NULL)
        {
            abort();
        }

        while ((rc = sbx_tar_data(&tar, &p, &got, &offset, &err)) == 1) {
            *total += got;

            if (offset + got > entry.size) {
                abort();
            }
        }
    }

    sbx_tar_close(&tar);

    return rc == 0 ? n : -1;
}


static void
add(sbx_tar_type_t type, const char *path, const char *target,
    const char *data)
{
    sbx_tar_entry_t  *one;

    one = calloc(1, sizeof(sbx_tar_entry_t));
    one->type = type;
    one->mode = 0640;
    one->mtime = 1234567890;
    one->mtime_ns = 5;
    one->size = strlen(data);
    (void) strcpy(one->path, path);
    (void) strcpy(one->target, target);

    if (sbx_tar_add(&writer, one, 1000, 1000, "user", &err) != 0
        || (one->size != 0
            && sbx_tar_put(&writer, data, one->size, &err) != 0))
    {
        abort();
    }

    free(one);
}


static void
begin(void)
{
    size = 0;

    if (sbx_tar_create(&writer, test_write, NULL, &err) != 0) {
        abort();
    }
}


static void
end(void)
{
    if (sbx_tar_finish(&writer, &err) != 0) {
        abort();
    }
}


static void
build(void)
{
    char  name[4000];

    memset(name, 'n', sizeof(name));
    name[sizeof(name) - 1] = '\0';

    begin();
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

    begin();
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

    begin();
    add(SBX_TAR_FILE, "file", "", "some content");
    end();

    /* the length of what it says is in its header: as before or shorter */

    len = strlen(text);
    memset(archive + 512, 0, 512);
    memcpy(archive + 512, text, len < 512 ? len : 512);
}


/* What is read of an entry that was written with this time. */

static int64_t
time_of(int64_t seconds, uint32_t ns)
{
    uint64_t                total;
    static sbx_tar_entry_t  one;

    one.mtime = seconds;
    one.mtime_ns = ns;
    (void) strcpy(one.path, "x");

    begin();
    (void) sbx_tar_add(&writer, &one, 0, 0, "user", &err);
    end();

    return walk(&total) == 1 ? entry.mtime : 1;
}


/* Whether a name, and a link's target, are what they were. */

static void
test_name(const char *name, int binary, const char *what)
{
    int       n;
    uint64_t  total;

    begin();
    add(SBX_TAR_FILE, name, "", "");
    add(SBX_TAR_SYMLINK, name, name, "");
    end();

    ok((memmem(archive, size, "hdrcharset", 10) != NULL) == binary,
       "%s: %s", what, binary ? "is told to be no UTF-8" : "is plain");

    n = walk(&total);
    ok(n == 2 && strcmp(entry.path, name) == 0
       && strcmp(entry.target, name) == 0,
       "%s: is the same bytes again", what);
}


static void
test_names(void)
{
    char  name[3000];

    test_name("plain", 0, "ASCII");
    test_name("caf\xc3\xa9", 0, "composed characters");
    test_name("cafe\xcc\x81", 0, "decomposed ones");
    test_name("\xf0\x9f\x98\x80", 0, "an emoji");
    test_name("two\nlines = 1", 0, "a newline");
    test_name("\xff\xfe-\xc0\x80", 1, "no UTF-8");

    memset(name, 'n', sizeof(name));
    (void) strcpy(name + 2000, "/e\xcc\x81");
    test_name(name, 0, "a long name");
    (void) strcpy(name + 2000, "/e\xcc");
    test_name(name, 1, "a long name, no UTF-8");

    /* a static program's own would read files, and load modules */

    ok(iconv_open("ANSI_X3.4-1968", "UTF-8") == (iconv_t) -1,
       "no table of characters is loaded");
}


static void
test_damage(void)
{
    int       n;
    size_t    i, all, wrong;
    uint8_t   was;
    uint64_t  total;
    unsigned  k;

    static const uint8_t  bits[] = { 0x01, 0x80, 0xff, 0x30 };

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
}


static void
test_fields(void)
{
    uint64_t  total;

    field(124, "77777777777\0", 12);
    is_int(walk(&total), -1, "a size beyond the end");
    field(124, "\x80\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff", 12);
    is_int(walk(&total), -1, "one of more than 64 bits");
    field(124, "\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff", 12);
    is_int(walk(&total), -1, "a negative one");
    field(124, "9x", 2);
    is_int(walk(&total), -1, "one that is none");
    field(156, "6", 1);
    (void) walk(&total);
    is_int(entry.type, SBX_TAR_OTHER, "a FIFO is told as such");

    extension("99999999999999999999 path=x\n");
    is_int(walk(&total), -1, "an extension whose length is too long");
    extension("0 path=x\n");
    is_int(walk(&total), -1, "is none");
    extension("path=x\n");
    is_int(walk(&total), -1, "is not there");
    extension("5 x\n\n");
    is_int(walk(&total), -1, "or that says nothing");
}


int
main(void)
{
    int              n;
    uint64_t         total;
    unsigned         k;
    sbx_tar_entry_t  one;

    build();
    n = walk(&total);
    is_int(n, 4, "what is written is read");
    is_int((int64_t) total, 13, "with its bytes");
    is_int((int64_t) strlen(entry.path), 3999, "long names too");
    is_int(entry.mtime, 1234567890, "and times");
    is_int(entry.mtime_ns, 5, "to the nanosecond");

    for (part = 1, k = 0; part < 1100; part += 13) {
        k += (walk(&total) != 4);
    }

    is_int(k, 0, "in parts of any size");
    part = 1000;

    ok(time_of(99999999999, 0) == 99999999999, "a time after 2242");
    ok(time_of(-5, 7) == -5 && entry.mtime_ns == 0, "and one before 1970");
    ok(time_of(0, 7) == 0 && entry.mtime_ns == 7, "and 1970");

    test_names();
    test_damage();

    size = 0;
    is_int(walk(&total), 0, "nothing is an empty archive");
    begin();
    end();
    is_int((int64_t) size, 2 * TEST_BLOCK, "an empty one is two blocks");
    is_int(walk(&total), 0, "and empty");

    test_fields();

    begin();

    for (k = 0; k < 40; k++) {
        add(SBX_TAR_FILE, "x", "", "");
        size -= TEST_BLOCK;
    }

    end();
    is_int(walk(&total), -1, "extensions without an entry");

    memset(&one, 0, sizeof(sbx_tar_entry_t));
    (void) strcpy(one.path, "big");
    one.size = UINT64_C(1) << 40;
    one.mtime = -5;
    begin();
    is_int(sbx_tar_add(&writer, &one, 5000000, 5000000, "user", &err), 0,
           "a file of a terabyte");
    memset(archive + size, 0, 2 * TEST_BLOCK);
    size += 2 * TEST_BLOCK;
    is_int(walk(&total), -1, "ends too early");
    is_int((int64_t) entry.size, INT64_C(1) << 40, "its size was told");
    is_int(entry.mtime, -5, "and a time before 1970");

    refuse = 1;
    is_int(sbx_tar_put(&writer, "x", 1, &err), -1, "who takes no bytes");
    is_int(err.code, SBX_E_UNAVAILABLE, "tells why");

    return done_testing();
}
