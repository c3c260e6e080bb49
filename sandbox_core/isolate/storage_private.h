/* What the files of the storage share. */

#ifndef SBX_STORAGE_PRIVATE_H
#define SBX_STORAGE_PRIVATE_H

#include "isolate_private.h"
#include "storage.h"


#define SBX_STORAGE_BLOCK    4096
#define SBX_STORAGE_FLOOR    (64ull << 20)   /* bytes that a host keeps */

typedef struct sbx_removal_s  sbx_removal_t;

struct sbx_storage_s {
    sbx_storage_kind_t   kind;
    int                  dir;         /* of images, or of sessions */
    char                 path[SBX_PATH_MAX];
    char                 named[SBX_PATH_MAX];   /* sbx_storage_named() */
    char                 lacks[200];
    sbx_removal_t       *removals;    /* children that remove a tree */
    unsigned             quota:1;     /* of a directory: it is enforced */
};


/* storage_image.c */
int sbx_image_open(sbx_storage_t *storage, sbx_error_t *e);
int sbx_image_make(const sbx_storage_t *storage, const sbx_volume_t *volume,
    int *root, sbx_error_t *e);

/* storage_directory.c */
int sbx_directory_open(sbx_storage_t *storage, sbx_error_t *e);
int sbx_directory_make(const sbx_storage_t *storage,
    const sbx_volume_t *volume, int *root, sbx_error_t *e);
int sbx_directory_remove(sbx_storage_t *storage, const char *id,
    sbx_error_t *e);
int sbx_directory_sweep(sbx_storage_t *storage, const sbx_sweep_t *sweep,
    sbx_error_t *e);
unsigned sbx_directory_swept(sbx_storage_t *storage,
    const sbx_sweep_t *sweep);
void sbx_directory_close(sbx_storage_t *storage);


#endif
