/*
 * What the files of the JSON binder share.  A parser lives for one call of
 * sbx_json_bind(); a callback that has failed returns 0 and yajl stops.
 */

#ifndef SBX_JSON_PARSER_H
#define SBX_JSON_PARSER_H

#include "json.h"

#include <setjmp.h>

#include <yajl/yajl_parse.h>


#define SBX_JSON_DEPTH         16
#define SBX_JSON_TOKENS_MAX    32768    /* names and values of a document */
#define SBX_JSON_FIELDS_MAX    64       /* rows of a table: bits of a mask */
#define SBX_JSON_POINTER_MAX   128


typedef enum {
    SBX_JSON_NULL,
    SBX_JSON_TRUTH,
    SBX_JSON_NUMBER,
    SBX_JSON_TEXT
} sbx_json_kind_t;

typedef struct {
    sbx_json_kind_t   kind;
    const char       *s;
    size_t            len;
    uint32_t          truth;
} sbx_json_scalar_t;


typedef enum {
    SBX_JSON_IN_FIELDS,       /* an object with a table */
    SBX_JSON_IN_MAP,          /* an object of free keys */
    SBX_JSON_IN_LIST,         /* an array of strings */
    SBX_JSON_IN_OBJECTS,      /* an array of objects with a table */
    SBX_JSON_IN_SKIPPED,      /* an object that nobody looks at */
    SBX_JSON_IN_SKIPPED_LIST
} sbx_json_in_t;

/* An object or array that is open.  .key, or the count of .elts, is the way
 * to the value that comes next. */
typedef struct {
    sbx_json_in_t             in;
    const sbx_json_field_t   *fields;
    const sbx_json_field_t   *field;      /* IN_FIELDS: of the next value */
    const sbx_json_field_t   *filled;     /* the row that this one fills */
    uint8_t                  *target;     /* what offsets count from */
    void                     *value;      /* MAP, LIST: what is filled */
    uint64_t                  given;      /* rows seen, null or not */
    uint64_t                  bound;      /* rows that have a value */
    sbx_json_str_t            key;
    unsigned                  keyed:1;
    void                     *elts;
    size_t                    nelts;
    size_t                    room;
} sbx_json_frame_t;

typedef struct {
    const sbx_json_alloc_t   *alloc;
    sbx_error_t              *error;
    jmp_buf                   out_of_memory;
    yajl_handle               yajl;
    unsigned                  depth;
    unsigned                  tokens;     /* names and values, so far */
    unsigned                  failed:1;
    unsigned                  marked:1;   /* escapes are */
    size_t                    bad;        /* offset of the first bad byte */
    const char               *why;        /* what is bad about it */
    size_t                    end;        /* of the document */
    const sbx_json_field_t   *fields;
    uint8_t                  *target;
    sbx_json_frame_t          frames[SBX_JSON_DEPTH];
} sbx_json_parser_t;

/* By sbx_json_type_t: what the type takes.  bind NULL: no scalar. */
typedef struct {
    const char   *wanted;
    int         (*bind)(sbx_json_parser_t *p, const sbx_json_field_t *field,
                      void *value, const sbx_json_scalar_t *s);
    unsigned      array:1;
    unsigned      object:1;
} sbx_json_type_row_t;

extern const sbx_json_type_row_t  sbx_json_types[];


/* Never NULL: a failure jumps out of yajl, which does not look at what it
 * gets. */
void *sbx_json_palloc(sbx_json_parser_t *p, size_t size);
void sbx_json_copy(sbx_json_parser_t *p, sbx_json_str_t *to, const void *s,
    size_t len);

/* Memory for yajl, by the same means. */
void sbx_json_yajl_funcs(sbx_json_parser_t *p, yajl_alloc_funcs *funcs);

/* Names the place under the cursor; the first failure counts.  0. */
int sbx_json_fail(sbx_json_parser_t *p, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));

/* A scalar into the row under the cursor of an object with a table. */
int sbx_json_into_fields(sbx_json_parser_t *p, sbx_json_frame_t *frame,
    const sbx_json_scalar_t *s);
/* The row under the cursor has its value. */
void sbx_json_bound(sbx_json_frame_t *frame);

/* 1, or 0 after sbx_json_fail(): no key of a MAP is there twice. */
int sbx_json_keys_unique(sbx_json_parser_t *p, sbx_json_frame_t *frame);

/*
 * Sets .bad and .why: the first place of the text that yajl would let pass
 * and must not.  Where marked is not NULL it is a copy of the text, and a
 * backslash of an escape becomes SBX_JSON_MARK in it: to yajl, which is slow
 * at it, a string then has none, and sbx_json_unmark() decodes it.
 */
#define SBX_JSON_MARK          0xff     /* no byte of UTF-8 */

void sbx_json_scan(sbx_json_parser_t *p, const uint8_t *s, size_t n,
    uint8_t *marked);

/* Decodes len bytes in place, as sbx_json_scan() has left them; the length
 * that it has then. */
size_t sbx_json_unmark(uint8_t *s, size_t len);


#endif
