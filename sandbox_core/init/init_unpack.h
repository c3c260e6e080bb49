/*
 * What the two sources of unpacking share.
 */

#ifndef SBX_INIT_UNPACK_H
#define SBX_INIT_UNPACK_H

#include "init_file.h"
#include "tar.h"

#include <zlib.h>


#define SBX_INIT_UNPACK_STEP     60            /* s */


typedef struct {
    sbx_init_serve_t  *s;
    sbx_error_t       *e;
    sbx_f_end_t       *end;

    /* where */
    char               path[SBX_PATH_MAX];     /* of the target */
    int                base;                   /* of the hidden directory */
    char               name[64];               /* of it, in base */
    int                hidden;
    int                stage;                  /* new, in it */
    int                old;                    /* what is replaced */
    int                target;

    /* what comes */
    sbx_tar_t          tar;
    const uint8_t     *data;                   /* of the last frame */
    size_t             left;
    uint64_t           received;
    unsigned           begun:1;
    unsigned           gzip:1;
    unsigned           over:1;                 /* the empty frame has come */
    unsigned           done:1;                 /* one compressed part has */
    unsigned           tail:1;                 /* what follows is none */
    z_stream           z;

    /* what was moved, to undo it */
    char              *log;
    size_t             log_len;
    size_t             log_room;
    unsigned           kept;                   /* names in old */
} sbx_init_unpack_t;


/* Of file_unpack_move.c: what lies in the stage to its places, or nothing. */
int sbx_init_unpack_move(sbx_init_unpack_t *u);


#endif
