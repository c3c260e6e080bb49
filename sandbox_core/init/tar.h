/*
 * The tar format, read and written: POSIX (ustar, pax) and what GNU adds for
 * long names.  No memory is taken, no file is opened.  Names are bytes.
 */

#ifndef SBX_INIT_TAR_H
#define SBX_INIT_TAR_H

#include "sandbox_error.h"

#include <stddef.h>
#include <sys/types.h>


#define SBX_TAR_BLOCK      512
#define SBX_TAR_PATH_MAX   4096       /* with its NUL */
#define SBX_TAR_EXTRA_MAX  65536      /* bytes of a header's extension */
/* of a header with extensions for both names, time and size */
#define SBX_TAR_HEAD_MAX   (8 * SBX_TAR_BLOCK + 2 * SBX_TAR_PATH_MAX)


typedef enum {
    SBX_TAR_FILE,
    SBX_TAR_DIRECTORY,
    SBX_TAR_SYMLINK,
    SBX_TAR_HARDLINK,
    SBX_TAR_OTHER                     /* a device, a FIFO ... */
} sbx_tar_type_t;

typedef struct {
    sbx_tar_type_t   type;
    uint32_t         mode;
    uint64_t         size;            /* of a file's bytes after the header */
    int64_t          mtime;           /* seconds */
    uint32_t         mtime_ns;
    char             path[SBX_TAR_PATH_MAX];
    char             target[SBX_TAR_PATH_MAX];
} sbx_tar_entry_t;


/*
 * What reads an archive is given a function for its bytes: all of n, or -1
 * (with e), or 1 at the end of the bytes before the first of n.
 */
typedef struct {
    int            (*read)(void *data, void *buf, size_t n, sbx_error_t *e);
    void            *data;
    uint64_t         left;            /* of the last entry, with its padding;
                                         the caller reads what is its file's
                                         by sbx_tar_data() */
    uint64_t         file;            /* of it, bytes of the file */
} sbx_tar_t;

void sbx_tar_open(sbx_tar_t *tar,
    int (*read)(void *data, void *buf, size_t n, sbx_error_t *e), void *data);
/* 1: an entry; 0: the end of the archive; -1: SBX_E_INVALID or read()'s.
 * What was left of the entry before is passed over. */
int sbx_tar_next(sbx_tar_t *tar, sbx_tar_entry_t *entry, sbx_error_t *e);
/* The next bytes of the entry's file, n of them at most; 0 at their end. */
ssize_t sbx_tar_data(sbx_tar_t *tar, void *buf, size_t n, sbx_error_t *e);

/* The header of an entry, whole blocks; its size. */
size_t sbx_tar_head(const sbx_tar_entry_t *entry, uint32_t uid, uint32_t gid,
    const char *owner, uint8_t buf[SBX_TAR_HEAD_MAX]);
/* Bytes of zeros after a file of the size. */
size_t sbx_tar_padding(uint64_t size);


#endif
