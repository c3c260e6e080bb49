/*
 * Where a session's files are kept, and what holds its disk limit: one of
 * three kinds behind one interface.
 *
 *   tmpfs       in memory; size and inodes of a tmpfs
 *   directory   in a directory of the session's own; a project quota
 *   image       in a sparse ext4 image of the session's own, by a loop device
 */

#ifndef SBX_STORAGE_H
#define SBX_STORAGE_H

#include "sandbox_util.h"
#include "sandbox_wire.h"


typedef struct sbx_storage_s  sbx_storage_t;          /* per broker */

/*
 * Finds out whether the machine can do the kind, by doing it once, and makes
 * its directory.  AUTO: image where it works, else tmpfs.  dir NULL or "":
 * below the state directory.  tag: a name for what is this broker's own in a
 * directory that others may use too.  -1: SBX_E_UNAVAILABLE, the text says
 * what is missing and how to mend it.
 */
int sbx_storage_open(sbx_storage_kind_t kind, const char *dir,
    const char *state_dir, const char *tag, sbx_storage_t **storage,
    sbx_error_t *e);
void sbx_storage_close(sbx_storage_t *storage);

/*
 * What was found out so, in fixed-size words: whoever has the same machine
 * and directory again need not find it out, and does not find anything else.
 */
typedef struct {
    uint32_t  kind;                   /* sbx_storage_kind_t, never AUTO */
    uint32_t  quota;
    char      lacks[200];
} sbx_storage_known_t;

void sbx_storage_known(const sbx_storage_t *storage,
    sbx_storage_known_t *known);
int sbx_storage_again(const sbx_storage_known_t *known, const char *dir,
    const char *state_dir, const char *tag, sbx_storage_t **storage,
    sbx_error_t *e);

/* Never AUTO.  Here and below NULL stands for tmpfs. */
sbx_storage_kind_t sbx_storage_kind(const sbx_storage_t *storage);
/* Why AUTO is not an image, or why a directory has no quota; or "". */
const char *sbx_storage_lacks(const sbx_storage_t *storage);

/* Fills disk and inodes. */
void sbx_storage_enforcement(const sbx_storage_t *storage,
    sbx_enforcement_t *enf);
/* Changes the rows "disk" and "inodes", no other; with how to mend it. */
void sbx_storage_capability(const sbx_storage_t *storage,
    sbx_f_capability_t *c);
/* The directory of files that is asked for, or the one below state_dir. */
void sbx_storage_named(const char *dir, const char *state_dir, char *buf,
    size_t size);
/* A command by which the file system of dir has a project quota, and which
 * type it is; storage_quota.c. */
void sbx_project_mend(const char *dir, char *buf, size_t size);
const char *sbx_project_type(const char *dir, char *buf, size_t size);
/* The check of /doctor. */
void sbx_storage_check(const sbx_storage_t *storage, sbx_f_check_t *c);

/* The disk of a session that asks for none. */
uint64_t sbx_storage_default_disk(const sbx_storage_t *storage,
    uint64_t memory);
/* Bytes of files that may lie in the session's memory beside what its
 * commands use. */
uint64_t sbx_storage_in_memory(const sbx_storage_t *storage,
    const sbx_limits_t *limits);
/* -1, SBX_E_CAPACITY: the host's disk has no room for one more. */
int sbx_storage_admit(const sbx_storage_t *storage,
    const sbx_limits_t *limits, sbx_error_t *e);

/*
 * What was written and is not on the disk yet need not go there: the session
 * ends.  disk: of a session whose disk is kept by an image, and nothing else.
 */
void sbx_storage_forget(int disk);
/*
 * Removes what there is of a session that has ended: 0 it is gone, 1 not yet
 * (call again), -1 error.  Never waits.
 */
int sbx_storage_remove(sbx_storage_t *storage, const char *id,
    sbx_error_t *e);

/*
 * What is there of sessions that are not alive.  found() is told for which
 * project its files count (0: none), and is 1 where that number is held until
 * over().  _swept() goes on with what is being removed, few at a time, tells
 * how much is left, and calls over() for the rest: with the number, or 0
 * where it was not held.  -1: not all of it could be looked at,
 * SBX_E_UNAVAILABLE.
 */
typedef struct {
    int   (*alive)(const char *id, void *data);
    int   (*found)(uint32_t project, void *data);
    void  (*over)(const char *id, uint32_t project, int removed, void *data);
    void   *data;
} sbx_sweep_t;

int sbx_storage_sweep(sbx_storage_t *storage, const sbx_sweep_t *sweep,
    sbx_error_t *e);
unsigned sbx_storage_swept(sbx_storage_t *storage, const sbx_sweep_t *sweep);


/*
 * In the first process of a session, as real root in mounts of its own that
 * still show the host's: makes the session's volume.
 *   root     the top of the volume, detached
 *   memory   a small tmpfs for /dev/shm and /run, detached; -1: they are in
 *            the volume
 */
typedef struct {
    const char    *id;
    const char    *session_dir;
    uint64_t       uid_first;
    sbx_limits_t   limits;
    uint64_t       bytes;             /* of our files, besides the limit */
    uint64_t       files;             /* as many inodes */
    uint64_t       directories;
    uint64_t       in_memory;         /* entries of /dev/shm and /run */
} sbx_volume_t;

int sbx_storage_volume(const sbx_storage_t *storage,
    const sbx_volume_t *volume, int *root, int *memory, sbx_error_t *e);


#endif
