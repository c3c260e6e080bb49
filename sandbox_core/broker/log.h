/*
 * Lines in nginx's error-log format, one write each.  Keeper and broker each
 * open the file by themselves; it becomes their standard error too, so that
 * whatever the C library has to say is found there.
 */

#ifndef SBX_LOG_H
#define SBX_LOG_H

#include "sandbox_error.h"


typedef enum {
    SBX_LOG_ERROR,
    SBX_LOG_WARN,
    SBX_LOG_NOTICE,
    SBX_LOG_INFO
} sbx_log_level_t;

/* What a line is about; either may be NULL or "". */
typedef struct {
    const char   *request;
    const char   *session;
} sbx_log_about_t;


/* path "" or NULL: lines go nowhere.  The string must stay. */
int sbx_log_open(const char *path, sbx_error_t *e);

/* err is an errno, or 0. */
void sbx_log(sbx_log_level_t level, const sbx_log_about_t *about, int err,
    const char *fmt, ...) __attribute__((format(printf, 4, 5)));
void sbx_log_error(sbx_log_level_t level, const sbx_log_about_t *about,
    const sbx_error_t *e, const char *what);


#endif
