/*
 * A multipart/form-data body (RFC 7578), taken apart as it comes, without any
 * event loop and without memory of its own.
 */

#ifndef SBX_MULTIPART_H
#define SBX_MULTIPART_H

#include <stddef.h>
#include <stdint.h>


#define SBX_MULTIPART_BOUNDARY    70
#define SBX_MULTIPART_HEAD_MAX    16384     /* headers of one part */
#define SBX_MULTIPART_PARTS_MAX   1000

typedef enum {
    SBX_MULTIPART_MORE,               /* all is taken, and more is needed */
    SBX_MULTIPART_PART,               /* one begins: .name and .filename */
    SBX_MULTIPART_DATA,               /* a piece of it */
    SBX_MULTIPART_PART_END,
    SBX_MULTIPART_END,                /* of all; what follows is skipped */
    SBX_MULTIPART_BROKEN              /* .fault says why; for good */
} sbx_multipart_event_t;

typedef struct {
    const char   *data;               /* NULL: it was not given */
    size_t        len;
} sbx_multipart_text_t;

typedef struct {
    uint8_t               delimiter[4 + SBX_MULTIPART_BOUNDARY + 1];
    size_t                delimiter_len;
    int                   state;
    size_t                matched;    /* bytes of it that have come */
    size_t                skip;       /* of those, that only seem to have */
    int                   in_part;
    unsigned              parts;
    size_t                head_len;
    char                  head[SBX_MULTIPART_HEAD_MAX + 1];

    /* of the part; valid until the next one */
    sbx_multipart_text_t  name;
    sbx_multipart_text_t  filename;   /* decoded; may hold any byte */

    const char           *fault;
} sbx_multipart_t;


/*
 * Begins a body whose Content-Type has this value.  0; 1: it is of another
 * type; -1: it is multipart/form-data without a boundary that can be one.
 */
int sbx_multipart_init(sbx_multipart_t *m, const void *type, size_t len);

/*
 * Takes what it can from *p ... end and moves *p.  DATA: *data and *len; they
 * are in what came or in m, valid until the next call.
 */
sbx_multipart_event_t sbx_multipart_next(sbx_multipart_t *m,
    const uint8_t **p, const uint8_t *end, const uint8_t **data,
    size_t *len);


#endif
