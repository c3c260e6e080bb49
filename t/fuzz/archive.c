/*
 * An archive from the network: whatever its bytes are, reading ends, each
 * entry is one that can be written, and what was written is read as the same.
 * The first byte tells in what parts the rest comes.  The sums of headers are
 * put right: nothing behind them would be reached else.
 */

#include "tar.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>


#define FUZZ_OUT       65536
#define FUZZ_ENTRIES   1000


typedef struct {
    const uint8_t    *p;
    size_t            left;
    size_t            part;
} fuzz_bytes_t;


int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);


static uint8_t          fuzz_out[FUZZ_OUT];
static size_t           fuzz_out_len;
static sbx_tar_entry_t  fuzz_entry, fuzz_again;


static ssize_t
fuzz_read(void *data, const void **p, sbx_error_t *e)
{
    size_t         n;
    fuzz_bytes_t  *bytes = data;

    (void) e;

    n = bytes->left < bytes->part ? bytes->left : bytes->part;
    *p = bytes->p;
    bytes->p += n;
    bytes->left -= n;

    return (ssize_t) n;
}


static int
fuzz_write(void *data, const void *p, size_t n, sbx_error_t *e)
{
    (void) data;

    if (n > FUZZ_OUT - fuzz_out_len) {
        return sbx_error(e, 0, SBX_E_UNAVAILABLE, "enough");
    }

    memcpy(fuzz_out + fuzz_out_len, p, n);
    fuzz_out_len += n;

    return 0;
}


static void
fuzz_sums(uint8_t *p, size_t size)
{
    size_t    i;
    char      text[8];
    unsigned  sum;

    for ( /* void */ ; size >= 512; p += 512, size -= 512) {
        if (memcmp(p + 257, "ustar", 5) != 0) {
            continue;
        }

        memset(p + 148, ' ', 8);

        for (i = 0, sum = 0; i < 512; i++) {
            sum += p[i];
        }

        (void) snprintf(text, sizeof(text), "%06o", sum);
        memcpy(p + 148, text, 7);
    }
}


/* Its header, alone: the file's bytes do not come. */

static void
fuzz_round_trip(void)
{
    size_t            n, head;
    sbx_tar_t         tar;
    sbx_error_t       e;
    fuzz_bytes_t      bytes;
    sbx_tar_writer_t  writer;

    n = strlen(fuzz_entry.path);

    if (n == 0 || fuzz_entry.type == SBX_TAR_OTHER
        || (fuzz_entry.type == SBX_TAR_DIRECTORY
            && fuzz_entry.path[n - 1] != '/')
        || ((fuzz_entry.type == SBX_TAR_SYMLINK
             || fuzz_entry.type == SBX_TAR_HARDLINK)
            && fuzz_entry.target[0] == '\0'))
    {
        return;
    }

    fuzz_out_len = 0;

    if (sbx_tar_create(&writer, fuzz_write, NULL, &e) != 0
        || sbx_tar_add(&writer, &fuzz_entry, 1000, 1000, "user", &e) != 0)
    {
        abort();
    }

    head = fuzz_out_len;
    fuzz_out_len = FUZZ_OUT;
    sbx_tar_destroy(&writer);

    bytes.p = fuzz_out;
    bytes.left = head;
    bytes.part = FUZZ_OUT;

    if (sbx_tar_open(&tar, fuzz_read, &bytes, &e) != 0
        || sbx_tar_next(&tar, &fuzz_again, &e) != 1
        || strcmp(fuzz_entry.path, fuzz_again.path) != 0
        || fuzz_entry.type != fuzz_again.type
        || fuzz_entry.mode != fuzz_again.mode
        || fuzz_entry.size != fuzz_again.size
        || (fuzz_entry.mtime >= 0 && fuzz_entry.mtime < INT64_C(1) << 40
            && (fuzz_entry.mtime != fuzz_again.mtime
                || fuzz_entry.mtime_ns != fuzz_again.mtime_ns))
        || ((fuzz_entry.type == SBX_TAR_SYMLINK
             || fuzz_entry.type == SBX_TAR_HARDLINK)
            && strcmp(fuzz_entry.target, fuzz_again.target) != 0))
    {
        abort();
    }

    sbx_tar_close(&tar);
}


int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    size_t         n;
    uint8_t       *copy;
    unsigned       entries;
    uint64_t       offset, total;
    sbx_tar_t      tar;
    const void    *p;
    sbx_error_t    e;
    fuzz_bytes_t   bytes;

    if (size == 0) {
        return 0;
    }

    copy = malloc(size);

    if (copy == NULL) {
        return 0;
    }

    memcpy(copy, data + 1, size - 1);
    fuzz_sums(copy, size - 1);

    bytes.p = copy;
    bytes.left = size - 1;
    bytes.part = 1 + data[0] * (size_t) 17;
    total = 0;

    if (sbx_tar_open(&tar, fuzz_read, &bytes, &e) == 0) {
        for (entries = 0; entries < FUZZ_ENTRIES; entries++) {
            if (sbx_tar_next(&tar, &fuzz_entry, &e) != 1) {
                break;
            }

            if (memchr(fuzz_entry.path, '\0', SBX_TAR_PATH_MAX) == NULL
                || memchr(fuzz_entry.target, '\0', SBX_TAR_PATH_MAX) == NULL
                || fuzz_entry.mode > 07777 || fuzz_entry.mtime_ns > 999999999)
            {
                abort();
            }

            while (sbx_tar_data(&tar, &p, &n, &offset, &e) == 1) {
                total += n;

                if (offset + n > fuzz_entry.size || total > size
                    || fuzz_entry.type != SBX_TAR_FILE)
                {
                    abort();
                }
            }

            fuzz_round_trip();
        }
    }

    sbx_tar_close(&tar);
    free(copy);

    return 0;
}
