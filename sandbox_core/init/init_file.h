/*
 * File calls: what the parent side and the processes that serve share.
 */

#ifndef SBX_INIT_FILE_H
#define SBX_INIT_FILE_H

#include "init.h"

#include <sys/stat.h>


#define SBX_INIT_TEMPORARY   ".sandbox-upload-"   /* then 32 hex digits */
#define SBX_INIT_REPLACES    "-r"     /* after them: takes a file's place */
#define SBX_INIT_OPENED      10                   /* exit status */
#define SBX_INIT_LOCK        4                    /* in a server */
#define SBX_INIT_KEEP        5                    /* file_keep.c, and on */
#define SBX_INIT_KEEP_FDS    4

/* What a server is about: each kind has a number of servers of its own, so
 * that what lasts cannot take those that every other call needs. */
typedef enum {
    SBX_INIT_KIND_CALL,
    SBX_INIT_KIND_LONG,                 /* archives and searches */
    SBX_INIT_KIND_WATCH,
    SBX_INIT_KIND_KEEP,                 /* watches whose events are kept */
    SBX_INIT_KINDS
} sbx_init_kind_t;

#define SBX_INIT_SERVERS_CALL    12
#define SBX_INIT_SERVERS_LONG    4
#define SBX_INIT_SERVERS_WATCH   16
#define SBX_INIT_SERVERS_KEEP    2
#define SBX_INIT_SERVERS                                                     \
    (SBX_INIT_SERVERS_CALL + SBX_INIT_SERVERS_LONG + SBX_INIT_SERVERS_WATCH  \
     + SBX_INIT_SERVERS_KEEP)

/* A page or two that the process which serves has in common with init. */
typedef struct {
    volatile uint32_t   progress;      /* changes while it gets on */
    volatile uint32_t   quiet;         /* nothing has been said: init may
                                          answer in its place, and has to,
                                          or the call would be sent again */
    volatile uint32_t   kind;          /* sbx_init_kind_t */
    volatile uint32_t   used;          /* by a server; init's */
    volatile uint32_t   user;          /* sbx_user_t, whose the temporary is */
    volatile uint32_t   keeps;         /* watches, and has no call: sbx_user_t
                                          + 1 */
    char                temporary[SBX_PATH_MAX + 64];
    char                staged[SBX_PATH_MAX + 64];  /* a second one: a file
                                                       that is not in it */
} sbx_init_share_t;


/* One call, in the process that serves it. */
typedef struct {
    int                 call;
    int                 lock;
    sbx_init_share_t   *share;
    sbx_wire_t          in;
    uint8_t            *out;
    size_t              out_end;
    sbx_f_file_t        file;
    char                path[SBX_PATH_MAX];
    char                path2[SBX_PATH_MAX];
    char                sources[SBX_FILE_SOURCES_MAX];
    char                metadata[SBX_FILE_METADATA_MAX];
    int                 root;          /* O_PATH of "/" */
    int                 status;        /* to exit with */
    unsigned            patience;      /* s for the worker to take more */
    unsigned            client:1;      /* the worker waits for its client */
    const char         *quota;         /* with SBX_E_QUOTA: of what; EAGAIN:
                                          it helps to wait */
    unsigned            quota_limit;
} sbx_init_serve_t;


typedef int (*sbx_init_verb_t)(sbx_init_serve_t *s, sbx_f_end_t *end,
    sbx_error_t *e);

/* file.c: all of them, SBX_INIT_SERVERS */
const sbx_init_share_t *sbx_init_file_shares(void);

/* serve.c */
/* entered: the process was born in the group for file calls. */
void sbx_init_serve(int call, int lock, sbx_init_share_t *share, int entered)
    __attribute__((noreturn));
/* Removes a directory that a server which was killed has left. */
void sbx_init_serve_sweep(const char *path, int lock, sbx_init_share_t *share,
    int entered) __attribute__((noreturn));
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
/* The same, and one that has gone off while nothing was done is forgotten. */
void sbx_init_serve_renew(sbx_init_serve_t *s, unsigned seconds);
int sbx_init_serve_late(sbx_error_t *e);

/*
 * The call becomes one of another kind; -1: SBX_E_QUOTA, there are as many as
 * there may be.
 */
int sbx_init_serve_kind(sbx_init_serve_t *s, sbx_init_kind_t kind,
    sbx_error_t *e);
/* One server of the session at a time; the death of its holder frees it. */
int sbx_init_serve_lock(sbx_error_t *e);
void sbx_init_serve_unlock(void);
/* 1: a temporary of ours, of which nobody is told. */
int sbx_init_hidden(const char *name);

/* resolve.c: all paths, inside the session's root */
/* "path" made absolute by the workspace. */
int sbx_init_path(const char *path, char *buf, sbx_error_t *e);
/* The same without slashes at its end, in SBX_PATH_MAX bytes: what entries
 * with SBX_FILE_F_MORE begin with.  Of the root *len is 0. */
int sbx_init_given(const char *path, char *buf, size_t *len, sbx_error_t *e);
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
/* A directory and all above it; *made: how many of them at its end are new,
 * 0 if it was there. */
int sbx_init_make(sbx_init_serve_t *s, const char *path, mode_t mode,
    int *made, int *dirfd, sbx_error_t *e);
/* The path by which the kernel knows an open directory. */
int sbx_init_real(int fd, char *buf, size_t size, sbx_error_t *e);
/* 1 if the directory belongs to the kernel (procfs, sysfs ...). */
int sbx_init_foreign(int fd);
int sbx_init_errno(sbx_error_t *e, int err, const char *what);

/* entry.c */
typedef struct {
    const char         *target;        /* of a link */
    size_t              target_len;
    uint32_t            target_type;   /* of what it leads to, with MORE */
    uint32_t            target_mode;
    const char         *metadata;
    size_t              metadata_len;
} sbx_init_more_t;

int sbx_init_entry_send(sbx_init_serve_t *s, int dirfd, const char *name,
    const char *path, size_t len, sbx_error_t *e);
/* The frame's payload; its size. */
size_t sbx_init_entry_fill(uint8_t *buf, const struct stat *st,
    const char *path, size_t len, const sbx_init_more_t *more);
uint32_t sbx_init_entry_type(mode_t mode);
/* The entry of the path "given", which was resolved to this. */
int sbx_init_entry_of(sbx_init_serve_t *s, int dirfd, const char *name,
    const char *given, sbx_error_t *e);

/* file_more.c: for SBX_FILE_F_MORE; what it tells is valid until the next. */
void sbx_init_more_look(sbx_init_serve_t *s, int dirfd, const char *name,
    const struct stat *st, sbx_init_more_t *more);

/* file_meta.c: metadata, as "KEY\0VALUE\0" ..., of files that are open */
int sbx_init_meta_open(sbx_error_t *e);
/* Into SBX_FILE_METADATA_MAX bytes; how many there are. */
size_t sbx_init_meta_read(sbx_init_serve_t *s, int fd, char *buf);
/* To a file that has none yet, and its name. */
int sbx_init_meta_write(sbx_init_serve_t *s, int fd, int dir,
    const char *name, const char *metadata, size_t size, sbx_error_t *e);
/* A file is about to go: what init keeps of it goes, too. */
void sbx_init_meta_drop(int fd);
/* It is elsewhere now. */
void sbx_init_meta_moved(int dir, const char *name);
/* 1 if init keeps metadata of any file. */
int sbx_init_meta_kept(void);

/* file_keep.c: init's sockets for it; in a server they become SBX_INIT_KEEP
 * and those after it. */
int sbx_init_keep_open(sbx_error_t *e);
int sbx_init_keep_inherit(void);
/* The server was, or is no longer, one that keeps watches. */
void sbx_init_keep_died(sbx_init_share_t *share);

/* tree.c: a directory and all below it, by a name in dir. */
int sbx_init_tree_remove(sbx_init_serve_t *s, int dir, const char *name,
    sbx_error_t *e);

/*
 * file_list.c: a walk in the order of whole paths, bounded in depth, names
 * and memory; where a bound was met end->truncated tells.  The caller sets
 * the first part; emit() is given each entry by its directory and name,
 * while path[0 .. len] is where it is.
 */
typedef struct sbx_init_list_s  sbx_init_list_t;

#define SBX_INIT_LIST_PATH     32768       /* bytes; a frame takes it */

struct sbx_init_list_s {
    sbx_init_serve_t         *s;
    sbx_f_end_t              *end;
    sbx_error_t              *e;
    const struct sbx_glob_s  *glob;     /* NULL: a plain list */
    int                     (*emit)(sbx_init_list_t *list, int fd,
                                const char *name);
    void                     *data;

    unsigned                  depth;
    size_t                    memory;
    uint64_t                  names;
    uint64_t                  found;
    unsigned                  full:1;   /* no more is wanted, or possible */
    size_t                    base;     /* of path: the top's */
    size_t                    len;      /* of path */
    char                      path[SBX_INIT_LIST_PATH];
};

/* states: of the glob, or how many levels. */
int sbx_init_list_run(sbx_init_list_t *list, int fd, uint64_t states);

/*
 * file_put.c: a file that is written beside its place, and then takes it.
 * After _open() either _end() succeeds, or _drop() is called.
 */
typedef struct {
    int           dir;                   /* of the target */
    char          name[256];
    int           exists;
    struct stat   st;                    /* where it exists */
    int           fd;                    /* the temporary's */
    char          temporary[64];
    uint64_t      size;                  /* bytes written */
} sbx_init_put_t;

int sbx_init_put_open(sbx_init_serve_t *s, sbx_init_put_t *put,
    sbx_error_t *e);
/* In whole; all of a file is bounded by the call's .max. */
int sbx_init_put_write(sbx_init_serve_t *s, sbx_init_put_t *put,
    const uint8_t *data, size_t n, sbx_error_t *e);
int sbx_init_put_end(sbx_init_serve_t *s, sbx_init_put_t *put,
    sbx_error_t *e);
void sbx_init_put_drop(sbx_init_serve_t *s, sbx_init_put_t *put);

/* file_move.c: a file, to another mount. */
int sbx_init_move_copy(sbx_init_serve_t *s, int from, const char *name,
    int to, const char *name2, sbx_error_t *e);

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
int sbx_init_file_verb_search(sbx_init_serve_t *s, sbx_f_end_t *end,
    sbx_error_t *e);
int sbx_init_file_verb_watch(sbx_init_serve_t *s, sbx_f_end_t *end,
    sbx_error_t *e);
int sbx_init_file_verb_pack(sbx_init_serve_t *s, sbx_f_end_t *end,
    sbx_error_t *e);
int sbx_init_file_verb_unpack(sbx_init_serve_t *s, sbx_f_end_t *end,
    sbx_error_t *e);
int sbx_init_file_verb_compose(sbx_init_serve_t *s, sbx_f_end_t *end,
    sbx_error_t *e);
int sbx_init_file_verb_watcher(sbx_init_serve_t *s, sbx_f_end_t *end,
    sbx_error_t *e);
int sbx_init_file_verb_events(sbx_init_serve_t *s, sbx_f_end_t *end,
    sbx_error_t *e);
int sbx_init_file_verb_unwatch(sbx_init_serve_t *s, sbx_f_end_t *end,
    sbx_error_t *e);


#endif
