/*
 * Binding JSON to structures by table.  yajl parses; depth, size and counts
 * are bounded; a duplicate key (but in what is skipped), an unknown field, a
 * wrong type or a value out of range is an error that names the field by JSON
 * Pointer.  Memory comes from the caller's allocator, and only from it;
 * nothing is freed.
 */

#ifndef SBX_JSON_H
#define SBX_JSON_H

#include "sandbox_limits.h"
#include "sandbox_network.h"


typedef struct {
    void   *(*alloc)(void *ctx, size_t size);     /* NULL when out */
    void    *ctx;
} sbx_json_alloc_t;

typedef struct {
    const char   *data;           /* NUL after len as well; NUL bytes inside
                                     are possible and counted in len */
    size_t        len;
} sbx_json_str_t;

typedef struct {
    sbx_json_str_t  *elts;
    size_t           nelts;
} sbx_json_list_t;

typedef struct {
    sbx_json_str_t   key;
    sbx_json_str_t   value;
} sbx_json_pair_t;

typedef struct {
    sbx_json_pair_t  *elts;
    size_t            nelts;
} sbx_json_map_t;


typedef enum {
    SBX_JSON_STRING,              /* sbx_json_str_t; min, max: bytes */
    SBX_JSON_BOOL,                /* uint32_t, 0 or 1 */
    SBX_JSON_COUNT,               /* uint64_t; integer, min..max */
    SBX_JSON_LIMIT,               /* uint64_t; by .limit's unit; the value or
                                     a size string */
    SBX_JSON_STRINGS,             /* sbx_json_list_t; max: elements */
    SBX_JSON_MAP,                 /* sbx_json_map_t of strings; max: pairs */
    SBX_JSON_OBJECT,              /* .fields, into offset */
    SBX_JSON_COMMAND,             /* sbx_json_command_t: string or array */
    SBX_JSON_NETWORK,             /* sbx_json_network_t: bool or object */
    SBX_JSON_OBJECTS,             /* sbx_json_objects_t: array of objects, each
                                     by .fields; max: elements */
    SBX_JSON_SCALAR,              /* sbx_json_str_t: as STRING, or the text of
                                     a number */
    SBX_JSON_ANY                  /* accepted and skipped */
} sbx_json_type_t;

typedef struct {
    uint32_t         is_array;
    sbx_json_str_t   shell;       /* is_array 0 */
    sbx_json_list_t  argv;        /* is_array 1, at least one element */
} sbx_json_command_t;

typedef struct {
    void            *elts;        /* .size bytes each */
    size_t           nelts;
} sbx_json_objects_t;

typedef struct {
    uint32_t         mode;        /* sbx_network_mode_t */
    uint32_t         allow_seen;  /* an empty one allows nothing */
    sbx_json_list_t  allow;
    sbx_json_list_t  deny;
} sbx_json_network_t;


typedef struct sbx_json_field_s  sbx_json_field_t;

/* A table ends with a NULL name. */
struct sbx_json_field_s {
    const char              *name;
    sbx_json_type_t          type;
    size_t                   offset;      /* of the value in the target */
    uint64_t                 min;
    uint64_t                 max;
    const char              *limit;       /* LIMIT: JSON name in the table of
                                             limits */
    const sbx_json_field_t  *fields;      /* OBJECT, OBJECTS */
    const void              *element;     /* OBJECTS: an element's defaults */
    size_t                   size;        /* OBJECTS: of it */
    size_t                   seen;        /* offset of a uint32_t that becomes
                                             1 when the field is there; 0:
                                             none (put one at no offset 0) */
    unsigned                 required:1;
    unsigned                 lax:1;       /* of the table's end, whose type is
                                             ANY: other names are skipped */
    unsigned                 nullable:1;  /* null counts as left out; for a
                                             LIMIT that may be unlimited it
                                             means unlimited */
};


/*
 * Parses the whole text into target, which the caller has set to defaults.
 * -1: SBX_E_INVALID, e->text is "<JSON Pointer>: what is wrong" ("" pointer:
 * the document).  Also refused: depth over 16, more than 32768 names and
 * values, invalid UTF-8, text after the document, numbers that are no
 * decimals, escapes of half a surrogate pair.
 *
 * A max of 0 is no bound, but for what the type itself says.  Offsets in an
 * OBJECT's .fields, .seen too, count from that object's own offset.
 */
int sbx_json_bind(const void *text, size_t size,
    const sbx_json_field_t *fields, void *target,
    const sbx_json_alloc_t *alloc, sbx_error_t *e);


/*
 * Whether a text, which comes in pieces, is one JSON value: UTF-8, no escape
 * that is half a surrogate pair, no deeper than SBX_JSON_CHECK_DEPTH, and no
 * number that is beyond those of a double or longer than the two bounds below:
 * for such a one parsers give up the text as a whole.  It takes no memory but
 * this.  _end(): 0, or -1; sbx_json_check() is all three.
 */
#define SBX_JSON_CHECK_DEPTH      64      /* bits of .objects */
#define SBX_JSON_NUMBER_DIGITS    1000
#define SBX_JSON_NUMBER_EXPONENT  999

typedef struct {
    const char  *word;            /* what is left of it */
    uint64_t     objects;         /* which of what is open are no arrays */
    uint32_t     depth;
    uint8_t      state;
    uint8_t      left;            /* bytes or digits of a character */
    uint8_t      low;             /* bounds of the next byte */
    uint8_t      high;
    uint16_t     code;
    uint8_t      pair;            /* its first half is there */
    uint8_t      name;            /* the string is a member's */
    uint16_t     digits;          /* of a number */
    uint16_t     whole;           /* those before its point */
    uint16_t     exponent;
    uint8_t      minus;           /* the exponent's sign */
    int8_t       order;           /* its digits and the largest's */
} sbx_json_check_t;

void sbx_json_check_begin(sbx_json_check_t *c);
void sbx_json_check_piece(sbx_json_check_t *c, const void *text, size_t size);
int sbx_json_check_end(const sbx_json_check_t *c);

int sbx_json_check(const void *text, size_t size);


/*
 * Fills e like sbx_json_bind() does, for checks that come after it: the
 * pointer is base + "/" + key, escaped and cut to what fits.  Returns -1.
 */
int sbx_json_refuse(sbx_error_t *e, const char *base,
    const sbx_json_str_t *key, const char *what);

/*
 * How many bytes the UTF-8 sequence at s has, 1..4; 0 where none is whole
 * and well-formed within n (overlong forms and surrogates are not).
 */
size_t sbx_utf8_sequence(const void *s, size_t n);


#endif
