/*
 * The file system of a run while it is being built: what box_root.c shares
 * with box_host.c and box_spots.c.
 */

#ifndef SBX_BOX_ROOT_H
#define SBX_BOX_ROOT_H

#include "box.h"


#define SBX_TOPS_MAX     128
#define SBX_HOST         (SBX_MOUNT_RDONLY | SBX_MOUNT_NOSUID                \
                          | SBX_MOUNT_NODEV)
#define SBX_MASK         (SBX_HOST | SBX_MOUNT_NOEXEC)


/* A name in the host's "/". */
typedef struct {
    char   name[NAME_MAX + 1];
    char  *link;
    int    tree;
    int    parts;                 /* without what is mounted below it */
} sbx_top_t;

typedef struct {
    sbx_top_t   tops[SBX_TOPS_MAX];
    unsigned    ntops;
    int         host;                 /* the old "/" */
    int         root;                 /* the new one */
    int         root_mount;
    int         system;
    int         scratch;
    int         nobody;
    char      **parts;
    size_t      nparts;
} sbx_build_t;


/* box_root.c */
/* What is bound from it later is read-only as well. */
int sbx_view_seal(int mount, sbx_error_t *e);
/* Of a canonical path, without following anything. */
int sbx_view_open(int dirfd, const char *path);

/* box_host.c: the host's directories, one by one and read-only. */
int sbx_view_tops(sbx_build_t *b, sbx_error_t *e);
/* What was mounted below those that could only be had without it. */
int sbx_view_parts(sbx_build_t *b, sbx_error_t *e);

/* box_spots.c: what is mounted over that. */
/* Writable directories as detached trees; root's are there already. */
int sbx_view_trees(sbx_box_t *box, const sbx_build_t *b, sbx_error_t *e);
int sbx_view_spot(sbx_box_t *box, const sbx_build_t *b, size_t n,
    sbx_error_t *e);
int sbx_view_deny(const sbx_box_t *box, const sbx_build_t *b,
    const sbx_deny_t *deny, sbx_error_t *e);


#endif
