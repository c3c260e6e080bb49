/*
 * Errors of the core.  A function that can fail returns 0 or -1 and fills
 * the sbx_error_t that is its last argument; a library never exits.
 */

#ifndef SANDBOX_ERROR_H
#define SANDBOX_ERROR_H

#include <stdint.h>


/*
 * Codes travel on the wire: append only.  The module maps each to a status
 * and a code of the HTTP contract; the core knows nothing of either.
 */
typedef enum {
    SBX_OK                   = 0,
    SBX_E_INTERNAL           = 1,    /* a bug or a failing machine */
    SBX_E_UNAVAILABLE        = 2,    /* try again shortly */
    SBX_E_INVALID            = 3,    /* the caller's field is wrong */
    SBX_E_MANIFEST           = 4,    /* asks for what cannot be given */
    SBX_E_TEMPLATE           = 5,    /* no such template */
    SBX_E_SESSION            = 6,    /* no such session, or not yours */
    SBX_E_PAUSED             = 7,
    SBX_E_CONFLICT           = 8,
    SBX_E_QUOTA              = 9,    /* scope, resource and limit are set */
    SBX_E_CAPACITY           = 10,   /* the node is full or draining */
    SBX_E_PROCESS            = 11,   /* no such process */
    SBX_E_FILE               = 12,   /* no such file */
    SBX_E_PATH               = 13,   /* empty, too long, ... */
    SBX_E_DENIED             = 14,   /* policy or permission */
    SBX_E_FILE_TYPE          = 15,   /* not the type that the call needs */
    SBX_E_NO_SPACE           = 16,   /* disk or inodes of the session */
    SBX_E_EXISTS             = 17,
    SBX_E_PRECONDITION       = 18,
    SBX_E_TOO_LARGE          = 19,
    SBX_E_CAPABILITY         = 20,   /* template or manifest lacks it */
    SBX_E_OFFSET             = 21,   /* output that is no longer kept */
    SBX_E_FORBIDDEN          = 22,   /* this identity may not do that */
    SBX_E_CONTEXT            = 23,   /* no such context of code */
    SBX_E_TOKEN              = 24,   /* the session asks for a token */
    SBX_E_MAX
} sbx_code_t;


typedef struct {
    uint32_t   code;          /* sbx_code_t */
    int32_t    err;           /* errno, or 0 */
    char       text[248];     /* a sentence without the errno's text */
} sbx_error_t;


/*
 * Fills e (which may be NULL) and returns -1, so that failing is one line.
 * err is an errno or 0; the text is cut to what fits.
 */
int sbx_error(sbx_error_t *e, int err, sbx_code_t code, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));


#endif
