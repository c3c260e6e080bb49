/*
 * sandboxctl run: what its two files and the table of commands share.
 */

#ifndef SBX_RUN_H
#define SBX_RUN_H

#include "sandbox_session.h"
#include "sandbox_util.h"

#include <stdarg.h>


int sbx_ctl_run(int argc, char **argv);

/* The result as one JSON object on standard output. */
int sbx_run_json(const sbx_sandbox_result_t *r, const char *workspace);
const char *sbx_run_backend_word(sbx_backend_t backend);


#endif
