/*
 * File calls: what the parent side and the processes that serve share.
 */

#ifndef SBX_INIT_FILE_H
#define SBX_INIT_FILE_H

#include "init.h"

#include <sys/stat.h>


#define SBX_INIT_TEMPORARY   ".sandbox-upload-"   /* then 32 hex digits */
#define SBX_INIT_OPENED      10                   /* exit status */

/* A page or two that the process which serves has in common with init. */
typedef struct {
    volatile uint32_t   progress;      /* changes while it gets on */
    volatile uint32_t   quiet;         /* no frame is under way: init may
                                          answer in its place */
    char                temporary[SBX_PATH_MAX + 64];
} sbx_init_share_t;


/* One call, in the process that serves it. */
typedef struct {
    int                 call;
    sbx_init_share_t   *share;
    sbx_wire_t          in;
    uint8_t            *out;
    size_t              out_end;
    sbx_f_file_t        file;
    char                path[SBX_PATH_MAX];
    char                path2[SBX_PATH_MAX];
    int                 root;          /* O_PATH of "/" */
    int                 status;        /* to exit with */
} sbx_init_serve_t;


typedef int (*sbx_init_verb_t)(sbx_init_serve_t *s, sbx_f_end_t *end,
    sbx_error_t *e);

/* serve.c */
/* entered: the process was born in the group for file calls. */
void sbx_init_serve(int call, sbx_init_share_t *share, int entered)
    __attribute__((noreturn));
/* Collects frames; _flush() sends them.  -1: the worker is gone, or it is
 * late. */
int sbx_init_serve_frame(sbx_init_serve_t *s, sbx_frame_type_t type,
    const void *payload, size_t size, sbx_error_t *e);
int sbx_init_serve_flush(sbx_init_serve_t *s, sbx_error_t *e);
/* Sends all that is collected and a frame with a descriptor. */
int sbx_init_serve_fd(sbx_init_serve_t *s, sbx_frame_type_t type,
    const void *payload, size_t size, int fd, sbx_error_t *e);
/* The next frame, waited for. */
int sbx_init_serve_next(sbx_init_serve_t *s, sbx_frame_t *frame,
    const uint8_t **payload, sbx_error_t *e);
/* The time for the next step begins anew. */
void sbx_init_serve_alarm(sbx_init_serve_t *s, unsigned seconds);
int sbx_init_serve_late(sbx_error_t *e);

/* resolve.c: all paths, inside the session's root */
/* "path" made absolute by the workspace. */
int sbx_init_path(const char *path, char *buf, sbx_error_t *e);
/* openat2() below the root, links followed but none of procfs. */
int sbx_init_open(sbx_init_serve_t *s, const char *path, uint64_t flags,
    sbx_error_t *e);
/* The same from a directory, one name; -1 with errno. */
int sbx_init_open_at(int dirfd, const char *name, uint64_t flags);
/*
 * The directory of path's last name, opened O_PATH, and that name.  With
 * SBX_INIT_MAKE missing directories are made.  A path that ends in "/", "."
 * or ".." has no last name: SBX_E_PATH.
 */
#define SBX_INIT_MAKE   1
int sbx_init_parent(sbx_init_serve_t *s, const char *path, unsigned flags,
    char *name, int *dirfd, sbx_error_t *e);
/* A directory and all above it; *made tells whether it is new. */
int sbx_init_make(sbx_init_serve_t *s, const char *path, mode_t mode,
    int *made, int *dirfd, sbx_error_t *e);
/* The path by which the kernel knows an open directory. */
int sbx_init_real(int fd, char *buf, size_t size, sbx_error_t *e);
/* 1 if the directory belongs to the kernel (procfs, sysfs ...). */
int sbx_init_foreign(int fd);
int sbx_init_errno(sbx_error_t *e, int err, const char *what);

/* entry.c */
int sbx_init_entry_send(sbx_init_serve_t *s, int dirfd, const char *name,
    const char *path, size_t len, sbx_error_t *e);
/* The frame's payload for an open file; the size, or 0. */
size_t sbx_init_entry_fill(uint8_t *buf, const struct stat *st,
    const char *path, size_t len, const char *target, size_t target_len);
/* The entry of a path that was resolved by sbx_init_parent(). */
int sbx_init_entry_of(sbx_init_serve_t *s, int dirfd, const char *name,
    sbx_error_t *e);

/* The verbs. */
int sbx_init_file_verb_open(sbx_init_serve_t *s, sbx_f_end_t *end,
    sbx_error_t *e);
int sbx_init_file_verb_stat(sbx_init_serve_t *s, sbx_f_end_t *end,
    sbx_error_t *e);
int sbx_init_file_verb_put(sbx_init_serve_t *s, sbx_f_end_t *end,
    sbx_error_t *e);
int sbx_init_file_verb_delete(sbx_init_serve_t *s, sbx_f_end_t *end,
    sbx_error_t *e);
int sbx_init_file_verb_mkdir(sbx_init_serve_t *s, sbx_f_end_t *end,
    sbx_error_t *e);
int sbx_init_file_verb_move(sbx_init_serve_t *s, sbx_f_end_t *end,
    sbx_error_t *e);
int sbx_init_file_verb_glob(sbx_init_serve_t *s, sbx_f_end_t *end,
    sbx_error_t *e);
int sbx_init_file_verb_list(sbx_init_serve_t *s, sbx_f_end_t *end,
    sbx_error_t *e);


#endif
