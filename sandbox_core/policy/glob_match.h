/*
 * Patterns for paths: "*", "?", "[...]", "{a,b}", and "**" for any number of
 * directories.  A pattern is matched name by name, by whoever walks a tree:
 * a set of states says which parts of it the names so far have satisfied,
 * so a walk visits each directory once, however many "**" there are.
 *
 * Names that begin with a dot are matched by an explicit dot only.  "?" is
 * one character where pattern and name are UTF-8, else one byte.
 */

#ifndef SBX_GLOB_MATCH_H
#define SBX_GLOB_MATCH_H

#include "sandbox_error.h"

#include <stddef.h>


#define SBX_GLOB_SEGMENTS   32        /* after the literal beginning */


typedef struct sbx_glob_s  sbx_glob_t;

/*
 * Takes memory with malloc; sbx_glob_free() gives it back.  -1: SBX_E_INVALID
 * and what is wrong with the pattern.
 */
int sbx_glob_compile(const char *pattern, size_t len, sbx_glob_t **glob,
    sbx_error_t *e);
void sbx_glob_free(sbx_glob_t *glob);

/* The directory that the walk begins in: the literal names before the first
 * that is none ("" where there are none, "/" for an absolute pattern). */
const char *sbx_glob_base(const sbx_glob_t *glob);

/* The set before any name. */
uint64_t sbx_glob_start(const sbx_glob_t *glob);

/*
 * The set after one more name.  through: "**" may pass through it (it is a
 * directory, and no link to one).  -1: the pattern is too costly for this
 * name.
 */
int sbx_glob_step(const sbx_glob_t *glob, uint64_t states, const char *name,
    size_t len, int through, uint64_t *next, sbx_error_t *e);

/* 1: the names so far are a match. */
int sbx_glob_accepts(const sbx_glob_t *glob, uint64_t states);
/* 1: names below could be. */
int sbx_glob_goes_on(const sbx_glob_t *glob, uint64_t states);
/* 1: the pattern ends in "/", so only directories match. */
int sbx_glob_directories(const sbx_glob_t *glob);


#endif
