/*
 * The languages that code can be written in.  Each is a directory below the
 * kernels' own, with a description of it, "kernel.conf", lines of a word and
 * the rest of the line:
 *
 *   command   an argument of what is run in a session, from the program on;
 *             "@/" at its start is the language's directory there
 *   grace     seconds from an interrupt to a kill; 5 if it is left out
 *   environment   NAME=value, of the kernel alone
 *   needs     a program's path without which the language is not there
 *   wants     a name, and a command line of which exit status 0 says that it
 *             is there: for the doctor alone
 *   mend      what a machine's operator does about all of these
 *
 * Empty lines and those that begin with "#" are skipped.  The broker reads the
 * descriptions once, at its start, and gives what a session needs of them to
 * its init as a table of strings.
 */

#ifndef SANDBOX_LANGUAGES_H
#define SANDBOX_LANGUAGES_H

#include "sandbox_error.h"
#include "sandbox_wire.h"


#define SBX_LANGUAGES_SIZE     32768       /* the table of all */
#define SBX_LANGUAGE_ARGS_MAX  32
#define SBX_KERNELS_INSIDE     "/run/sandbox/kernels"   /* in a session */


/* Of the table: no copies, valid as long as it is. */
typedef struct {
    const char   *name;
    const char   *args;                   /* argc strings with their NULs */
    const char   *env;                    /* envc "K=V" strings */
    uint32_t      argc;
    uint32_t      envc;
    uint32_t      grace;                  /* seconds */
} sbx_language_t;

/*
 * Appends what the description text (size bytes) of the language name says to
 * the table of *used bytes.  SBX_E_INVALID names the line.
 */
int sbx_language_add(char table[SBX_LANGUAGES_SIZE], size_t *used,
    const char *name, const char *text, size_t size, sbx_error_t *e);

/* The i-th language of a table, from 0; 0, or -1: there are no more, or the
 * table is malformed. */
int sbx_language_get(const char *table, size_t size, unsigned i,
    sbx_language_t *language);

/* The rest of a description's n-th line of a word, from 0; -1: there is none,
 * or it does not fit. */
int sbx_language_line_of(const char *text, size_t size, const char *word,
    unsigned n, char *rest, size_t rest_size);

/* By its name; its index, or -1. */
int sbx_language_find(const char *table, size_t size, const char *name,
    size_t len, sbx_language_t *language);


#endif
