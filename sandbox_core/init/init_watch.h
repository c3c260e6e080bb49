/*
 * A watch, in the process that serves it: a call's own, or one of those whose
 * events are kept.
 */

#ifndef SBX_INIT_WATCH_H
#define SBX_INIT_WATCH_H

#include "init_file.h"


#define SBX_INIT_WATCH_NODES   1024
#define SBX_INIT_WATCH_LOOK    20000        /* ms between signs of life */
#define SBX_INIT_WATCH_STEP    60           /* s */
#define SBX_INIT_WATCH_PATH    16384


typedef struct {
    int        wd;                          /* -1: free */
    int        parent;                      /* a node, or -1 */
    unsigned   depth;
    char      *name;                        /* in the parent; the top: path */
} sbx_init_node_t;


typedef struct sbx_init_watch_s  sbx_init_watch_t;

struct sbx_init_watch_s {
    /* the maker's: */
    sbx_init_serve_t  *s;
    sbx_error_t       *e;
    uint32_t           flags;               /* SBX_FILE_F_* */
    /* path NULL: OVERFLOW; -1: the watch cannot go on */
    int              (*tell)(sbx_init_watch_t *w, sbx_change_t change,
                         const char *path, size_t len);

    int                inotify;             /* -1: the top is gone */
    int                recursive;
    char               only[256];           /* the name of a file, or "" */
    int                over;                /* the top is gone */
    int                lacks;               /* directories not watched */

    /* what a rename moved from */
    uint32_t           cookie;
    int                hidden;              /* from one of ours */
    int                replaces;
    int                moved;               /* a node, or -1 */

    /* the last write that was told */
    int                wrote;
    char               written[256];

    sbx_init_node_t    nodes[SBX_INIT_WATCH_NODES];
};


/* file_watch.c */
/* All that is not the maker's is 0; on an error it is closed. */
int sbx_init_watch_open(sbx_init_watch_t *w, const char *path);
/* Tells what has happened: some of it, 1; nothing, 0; or -1. */
int sbx_init_watch_read(sbx_init_watch_t *w);
void sbx_init_watch_close(sbx_init_watch_t *w);
int sbx_init_watch_frame(sbx_init_serve_t *s, sbx_change_t change,
    const char *path, size_t len, sbx_error_t *e);
/* An ENTRY of the path, if there is one; the call's flags tell of what. */
int sbx_init_watch_entry(sbx_init_serve_t *s, sbx_change_t change,
    const char *path, size_t len, sbx_error_t *e);


#endif
