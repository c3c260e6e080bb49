/*
 * Limits of a session and of a command, and the one table that names them.
 * The directives sandbox_default and sandbox_max, the manifest's
 * "resources", exec's "limits" and the session's answer all read it.
 */

#ifndef SANDBOX_LIMITS_H
#define SANDBOX_LIMITS_H

#include "sandbox_error.h"

#include <stddef.h>


#define SBX_UNSET        UINT64_MAX        /* left out: take the default */
#define SBX_UNLIMITED    (UINT64_MAX - 1)  /* allowed where the table says */


/* All 64-bit so that the table needs one setter and the wire no padding. */
typedef struct {
    uint64_t   memory;          /* bytes */
    uint64_t   cpus;            /* thousandths of a processor */
    uint64_t   cpu_seconds;     /* milliseconds; unlimited by default */
    uint64_t   processes;
    uint64_t   max_file_size;   /* bytes; SBX_UNSET follows disk */
    uint64_t   open_files;
    uint64_t   stack;           /* bytes */
    uint64_t   disk;            /* bytes; SBX_UNSET: by the kind of storage */
    uint64_t   inodes;
    uint64_t   exec_timeout;    /* milliseconds; or unlimited */
    uint64_t   max_output;      /* bytes of each stream that are kept */
    uint64_t   timeout;         /* milliseconds a session lives */
    uint64_t   paused;          /* milliseconds it may stay paused */
    uint64_t   connections;     /* through the egress, at once */
    uint64_t   network_rate;    /* bytes a second, both ways; or unlimited */
    uint64_t   network_bytes;   /* in its life, both ways; or unlimited */
} sbx_limits_t;


typedef enum {
    SBX_UNIT_BYTES,             /* 512MB, 1048576 */
    SBX_UNIT_COUNT,
    SBX_UNIT_MILLI,             /* 0.5 -> 500 */
    SBX_UNIT_SECONDS            /* 1.5 -> 1500 ms */
} sbx_unit_t;


typedef struct {
    const char   *name;         /* in directives: memory, exec_timeout ... */
    const char   *json;         /* in JSON: memory, exec_timeout_s ... */
    sbx_unit_t    unit;
    size_t        offset;       /* in sbx_limits_t */
    uint64_t      min;          /* smallest value that is accepted */
    uint64_t      max;          /* largest that makes sense anywhere */
    uint64_t      fallback;     /* built-in default */
    uint64_t      cap;          /* built-in value of sandbox_max */
    unsigned      in_manifest:1;
    unsigned      in_exec:1;    /* a command's own "limits" has it */
    unsigned      unlimited_ok:1;
    unsigned      max_only:1;   /* sandbox_max alone has it */
} sbx_limit_t;


extern const sbx_limit_t  sbx_limit_table[];     /* ends with name == NULL */

/* Every field SBX_UNSET. */
void sbx_limits_clear(sbx_limits_t *l);

/* By directive name (json == 0) or JSON name (json != 0); NULL if none. */
const sbx_limit_t *sbx_limit_find(const char *name, size_t len, int json);

uint64_t *sbx_limit_field(sbx_limits_t *l, const sbx_limit_t *limit);

/*
 * Parses "512MB", "0.5", "60", "none" by the limit's unit into *value and
 * checks it against the row's min and max.  -1: SBX_E_INVALID and a text
 * that names what is accepted.
 */
int sbx_limit_parse(const sbx_limit_t *limit, const char *s, size_t len,
    uint64_t *value, sbx_error_t *e);

/*
 * The same of a number in JSON: what has a fraction may have an exponent and
 * any number of decimals, and is rounded to thousandths.
 */
int sbx_limit_number(const sbx_limit_t *limit, const char *s, size_t len,
    uint64_t *value, sbx_error_t *e);

/* What the contract prints: bytes and counts as integers, cpus and seconds
 * as decimals without trailing zeros, "null" for unlimited.  Returns the
 * length written, < 32. */
size_t sbx_limit_print(const sbx_limit_t *limit, uint64_t value, char *buf);

/*
 * "512KB", "512 KiB", "2GB", "1048576" -> bytes (powers of 1024).
 * -1: SBX_E_INVALID; overflow is an error, fractions are not accepted.
 */
int sbx_size_parse(const char *s, size_t len, uint64_t *bytes,
    sbx_error_t *e);

/*
 * Fills what asked leaves SBX_UNSET from def, then checks every value
 * against the row's min and against max.  -1: SBX_E_MANIFEST, the text
 * names the limit, the cap and the JSON name.
 */
int sbx_limits_settle(sbx_limits_t *asked, const sbx_limits_t *def,
    const sbx_limits_t *max, sbx_error_t *e);


#endif
