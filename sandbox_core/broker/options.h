/*
 * How sandbox-broker was started.  The strings are argv's.
 */

#ifndef SBX_OPTIONS_H
#define SBX_OPTIONS_H

#include "sandbox_error.h"

#include <sys/types.h>


typedef struct {
    const char   *state_dir;
    const char   *helper_dir;
    const char   *kernels_dir;    /* NULL: "kernels" in helper_dir */
    const char   *log_path;
    const char   *socket_group;   /* NULL: root's alone */
    gid_t         socket_gid;
    int           report;         /* start-up errors go there; -1 */
    int           link;           /* broker: to the keeper */
    int           listen;         /* the listening socket; -1 */
    int           inherit;        /* keeper: the store of a dead one; -1 */
    int           turn;           /* how many have died in a row */
    unsigned      keeper:1;
    unsigned      broker:1;
    unsigned      standalone:1;
} sbx_options_t;


/* Descriptors named by number are made close-on-exec. */
int sbx_options_parse(int argc, char **argv, sbx_options_t *options,
    sbx_error_t *e);

/*
 * Replaces the process by this same program with options; descriptors that
 * are named in it are inherited.  Returns only when that failed.
 */
int sbx_options_exec(const sbx_options_t *options, sbx_error_t *e);


#endif
