/*
 * Tar archives, read and written by libarchive: POSIX (ustar, pax) and GNU's,
 * nothing else, and no file is opened here.  Names are bytes.  What an entry
 * may be is for the caller to judge.
 *
 * In the process that serves a call alone: libarchive ends it where it lacks
 * memory.
 */

#ifndef SBX_INIT_TAR_H
#define SBX_INIT_TAR_H

#include "sandbox_error.h"

#include <stddef.h>
#include <sys/types.h>


#define SBX_TAR_PATH_MAX   4096       /* with its NUL */


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
    uint64_t         size;            /* of a file */
    int64_t          mtime;           /* seconds */
    uint32_t         mtime_ns;
    char             path[SBX_TAR_PATH_MAX];
    char             target[SBX_TAR_PATH_MAX];
} sbx_tar_entry_t;


/*
 * What reads an archive is given a function for its bytes: how many there
 * are at *p, which stay until the next call; 0 at their end; -1, with e.
 */
typedef ssize_t (*sbx_tar_read_t)(void *data, const void **p, sbx_error_t *e);

typedef struct {
    struct archive  *archive;
    sbx_tar_read_t   read;
    void            *data;
    sbx_error_t     *e;
    uint64_t         size;            /* of the last entry */
    unsigned         some:1;          /* a byte has come */
    unsigned         failed:1;        /* read() has, and e tells */
} sbx_tar_t;

/* -1: no memory, or read() failed.  To be closed in any case. */
int sbx_tar_open(sbx_tar_t *tar, sbx_tar_read_t read, void *data,
    sbx_error_t *e);
/* 1: an entry; 0: the end of the archive; -1: SBX_E_INVALID or read()'s.
 * What was left of the entry before is passed over. */
int sbx_tar_next(sbx_tar_t *tar, sbx_tar_entry_t *entry, sbx_error_t *e);
/*
 * 1: n bytes of the entry's file, at offset, which stay until the next call;
 * what lies between are holes.  0: the end of the file; -1 as above.
 */
int sbx_tar_data(sbx_tar_t *tar, const void **p, size_t *n, uint64_t *offset,
    sbx_error_t *e);
void sbx_tar_close(sbx_tar_t *tar);


/* What writes one is given a function that takes all n bytes, or fails.  A
 * directory's path ends in "/". */
typedef int (*sbx_tar_write_t)(void *data, const void *p, size_t n,
    sbx_error_t *e);

typedef struct {
    struct archive        *archive;
    struct archive_entry  *entry;
    sbx_tar_write_t        write;
    void                  *data;
    sbx_error_t           *e;
    unsigned               failed:1;
} sbx_tar_writer_t;

int sbx_tar_create(sbx_tar_writer_t *tar, sbx_tar_write_t write, void *data,
    sbx_error_t *e);
int sbx_tar_add(sbx_tar_writer_t *tar, const sbx_tar_entry_t *entry,
    uint32_t uid, uint32_t gid, const char *owner, sbx_error_t *e);
/* Of the file that was added; what lacks of its size becomes zeros. */
int sbx_tar_put(sbx_tar_writer_t *tar, const void *p, size_t n,
    sbx_error_t *e);
/* The archive's end. */
int sbx_tar_finish(sbx_tar_writer_t *tar, sbx_error_t *e);
void sbx_tar_destroy(sbx_tar_writer_t *tar);


#endif
