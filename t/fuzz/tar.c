/*
 * An archive as somebody sends it.  The first byte chooses what is mended on
 * the way, since no chance finds a header's sum: bit 0 the sums of headers,
 * bit 1 the sizes too, so that one entry follows another.  What is read of
 * an entry is written and read again, and must be the same.
 */

#include "tar.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>


#define FUZZ_SUM   1
#define FUZZ_SIZE  2


typedef struct {
    const uint8_t  *p;
    size_t          left;
    unsigned        mend;
    unsigned        reads;
} fuzz_bytes_t;


int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int fuzz_read(void *data, void *buf, size_t n, sbx_error_t *e);
static void fuzz_mend(uint8_t *block, unsigned mend);
static void fuzz_again(const sbx_tar_entry_t *entry);


int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    int           rc;
    char          buf[1000];
    ssize_t       n;
    uint64_t      total;
    sbx_tar_t     tar;
    sbx_error_t   e;
    fuzz_bytes_t  bytes;

    static sbx_tar_entry_t  entry;

    if (size == 0) {
        return 0;
    }

    memset(&bytes, 0, sizeof(bytes));
    bytes.p = data + 1;
    bytes.left = size - 1;
    bytes.mend = data[0];

    sbx_tar_open(&tar, fuzz_read, &bytes);

    while ((rc = sbx_tar_next(&tar, &entry, &e)) == 1) {
        if (memchr(entry.path, '\0', sizeof(entry.path)) == NULL
            || memchr(entry.target, '\0', sizeof(entry.target)) == NULL
            || entry.mode > 07777 || entry.mtime_ns > 999999999)
        {
            abort();
        }

        fuzz_again(&entry);
        total = 0;

        while ((n = sbx_tar_data(&tar, buf, sizeof(buf), &e)) > 0) {
            total += (uint64_t) n;
        }

        if (n == 0 && entry.type == SBX_TAR_FILE && total != entry.size) {
            abort();
        }

        if (n == -1) {
            rc = -1;
            break;
        }
    }

    if (rc == -1 && e.code != SBX_E_INVALID) {
        abort();
    }

    return 0;
}


static int
fuzz_read(void *data, void *buf, size_t n, sbx_error_t *e)
{
    fuzz_bytes_t  *bytes;

    bytes = data;

    if (bytes->left == 0) {
        return 1;
    }

    if (bytes->left < n) {
        return sbx_error(e, 0, SBX_E_INVALID, "too early");
    }

    memcpy(buf, bytes->p, n);
    bytes->p += n;
    bytes->left -= n;

    if (n == SBX_TAR_BLOCK && bytes->mend & FUZZ_SUM) {
        fuzz_mend(buf, bytes->mend);
    }

    return 0;
}


static void
fuzz_mend(uint8_t *block, unsigned mend)
{
    char      sum[8];
    size_t    i;
    unsigned  n;

    for (i = 0; i < SBX_TAR_BLOCK && block[i] == 0; i++) { /* void */ }

    if (i == SBX_TAR_BLOCK) {
        return;
    }

    if (mend & FUZZ_SIZE) {
        block[124 + 11] = '\0';
        block[124 + 10] = '0' | (block[124 + 10] & 7);
        block[124 + 9] = '0' | (block[124 + 9] & 7);
        memset(block + 124, '0', 9);
    }

    memset(block + 148, ' ', sizeof(sum));

    for (i = 0, n = 0; i < SBX_TAR_BLOCK; i++) {
        n += block[i];
    }

    (void) snprintf(sum, sizeof(sum), "%06o", n);
    memcpy(block + 148, sum, sizeof(sum));
}


static void
fuzz_again(const sbx_tar_entry_t *entry)
{
    uint8_t      *head;
    sbx_tar_t     tar;
    sbx_error_t   e;
    fuzz_bytes_t  bytes;

    static sbx_tar_entry_t  again;

    if (entry->type == SBX_TAR_OTHER || entry->path[0] == '\0') {
        return;
    }

    /* its own allocation, whose end is watched */

    head = malloc(SBX_TAR_HEAD_MAX);

    if (head == NULL) {
        return;
    }

    memset(&bytes, 0, sizeof(bytes));
    bytes.p = head;
    bytes.left = sbx_tar_head(entry, 1000, 1000, "user", head);

    if (bytes.left > SBX_TAR_HEAD_MAX || bytes.left % SBX_TAR_BLOCK != 0) {
        abort();
    }

    sbx_tar_open(&tar, fuzz_read, &bytes);

    if (sbx_tar_next(&tar, &again, &e) != 1
        || strcmp(again.path, entry->path) != 0
        || again.type != entry->type || again.mode != entry->mode
        || again.size != entry->size || again.mtime != entry->mtime)
    {
        abort();
    }

    if ((entry->type == SBX_TAR_SYMLINK || entry->type == SBX_TAR_HARDLINK)
        && strcmp(again.target, entry->target) != 0)
    {
        abort();
    }

    free(head);
}
