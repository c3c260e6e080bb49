/*
 * Ownership helpers.  A local that owns a descriptor or a buffer carries a
 * cleanup attribute and starts as -1 or NULL; handing over clears it.
 */

#ifndef SANDBOX_UTIL_H
#define SANDBOX_UTIL_H

#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/types.h>
#include <unistd.h>


/* Read by OpenMP, BLAS and LAPACK libraries, and by language runtimes. */
#define SBX_CPUS_VARIABLES                                                    \
    "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS",             \
    "BLIS_NUM_THREADS", "VECLIB_MAXIMUM_THREADS", "NUMEXPR_NUM_THREADS",      \
    "NUMEXPR_MAX_THREADS", "RAYON_NUM_THREADS", "POLARS_MAX_THREADS",         \
    "GOMAXPROCS"

/*
 * Where there is no network: installers otherwise try again, pip for 12 s
 * and npm for minutes.  With none at all pip does not say what went wrong.
 */
#define SBX_OFFLINE_VARIABLES                                                 \
    "PIP_RETRIES=1", "npm_config_fetch_retries=0"

/*
 * Everywhere: what is installed goes to the user's own directories, which is
 * not what Debian guards its own from; and nobody looks for newer installers,
 * or waits for a minute for what is refused.
 */
#define SBX_PACKAGE_VARIABLES                                                 \
    "PIP_BREAK_SYSTEM_PACKAGES=1", "PIP_DISABLE_PIP_VERSION_CHECK=1",         \
    "PIP_RETRIES=3", "npm_config_update_notifier=false",                      \
    "npm_config_fetch_retry_mintimeout=1000",                                 \
    "npm_config_fetch_retry_maxtimeout=3000"

#define SBX_CLEANUP(fn)   __attribute__((cleanup(fn)))
#define sbx_auto_fd       SBX_CLEANUP(sbx_cleanup_fd) int
#define sbx_auto_free     SBX_CLEANUP(sbx_cleanup_free)

#define sbx_nelts(a)      (sizeof(a) / sizeof((a)[0]))


static inline void
sbx_cleanup_fd(int *fd)
{
    if (*fd != -1) {
        (void) close(*fd);
    }
}


static inline void
sbx_cleanup_free(void *p)
{
    free(*(void **) p);
}


static inline int
sbx_steal_fd(int *fd)
{
    int  n;

    n = *fd;
    *fd = -1;

    return n;
}


/* Retries EINTR; 0 or -1 with errno.  For regular files and pipes that do
 * not block. */
int sbx_write_all(int fd, const void *buf, size_t n);
ssize_t sbx_read_full(int fd, void *buf, size_t n);

/* Reads a small file of /proc or of a cgroup relative to dirfd, NUL
 * terminated; the length or -1. */
ssize_t sbx_read_at(int dirfd, const char *name, char *buf, size_t size);
/* Writes a whole string to an existing file relative to dirfd; 0 or -1. */
int sbx_write_at(int dirfd, const char *name, const char *s);

/* Monotonic clock, microseconds. */
uint64_t sbx_now_us(void);

/* memcpy into a NUL terminated array; -1 if it does not fit. */
int sbx_copy_string(char *dst, size_t size, const char *src, size_t len);


#endif
